//! `punctual send`.

mod connect;
mod held;
mod watch;

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use punctual::{Block, Channel, CloseReason, Endpoint, SendError, Session};
use punctual_eval::annexb::Kind;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    cli::{SendArgs, SourceArgs},
    config::{Settings, spoken},
    display::Display,
    exit::{Failure, close},
    identity::{self, Loaded},
    route,
    signals::Interrupt,
    source::{Coding, Cut, Piece, Source, Video},
    stats::{self, Figures, SentFigures, Tally},
};
use connect::{Caller, not_built, trust, ways};
use held::{Blocks, Held};
use watch::PathNames;
pub(crate) use watch::Watch;

/// Sends what was asked for and tells how it went.
pub(crate) async fn run(args: &SendArgs) -> Result<(), Failure> {
    let settings = Settings::load(&args.settings, args.config.as_deref())?;
    let ways = ways(&settings, &args.to)?;
    let trust = trust(&settings)?;
    let config = settings.endpoint_config(args.common.qlog.as_deref())?;
    let source = Source::open(args.input.as_deref(), cut(args, &settings)?)?;

    let mut builder = Endpoint::client().trust(trust).config(config);
    let mut fingerprint = None;
    if let Some(path) = &args.identity {
        let Loaded { identity, made } = identity::load_or_make(path, &["localhost".into()])?;
        if made && !args.common.quiet {
            eprintln!("made {}: fingerprint {}", path.display(), identity.fingerprint());
        }
        fingerprint = Some(identity.fingerprint());
        builder = builder.identity(identity);
    }
    let endpoint = builder.build().map_err(not_built)?;
    let display = Display::new(&args.common);
    let caller = Caller { endpoint: &endpoint, ways: &ways, name: route::host(&args.to)?, display: &display };
    let interrupt = Interrupt::listen()?;
    let connected = tokio::select! {
        connected = caller.connect(settings.connect_timeout()) => connected,
        signal = interrupt.first() => Err(Failure::Interrupted(signal)),
    };
    let (session, watch) = match connected {
        Ok(connected) => connected,
        Err(failure) => {
            // A receiver that is half way there is told.
            endpoint.close(close::STOPPED, "the sender was told to stop");
            let _ = tokio::time::timeout(END_WITHIN, endpoint.wait_idle()).await;
            return Err(failure.showing(fingerprint));
        }
    };

    let pieces = source.start()?;
    let sender = Sender::new(session, watch.names(), &settings, args, interrupt);
    let ended = sender.run(&settings, Input::new(pieces), &caller, watch).await;
    drop(display);
    let ended = ended.map_err(|failure| failure.showing(fingerprint));
    if matches!(ended, Err(Failure::Refused(_) | Failure::NotLetIn(_))) {
        sender.tally.refused();
    }
    let told = stats::conclude(&args.common, &sender.figures());
    // So that the receiver hears the end; it does not matter more than this.
    let _ = tokio::time::timeout(END_WITHIN, endpoint.wait_idle()).await;
    ended.and(told)?;
    match sender.figures() {
        figures if args.common.strict && figures.missed() > 0 => Err(Failure::NotDelivered(figures.counts())),
        _ => Ok(()),
    }
}

/// What a block is to be.
fn cut(args: &SendArgs, settings: &Settings) -> Result<Cut, Failure> {
    let video = |coding| Cut::Video(Video { coding, fps: settings.fps, pace: args.pace });
    let cut = match args.source {
        SourceArgs { h264: true, .. } => video(Coding::H264),
        SourceArgs { h265: true, .. } => video(Coding::H265),
        SourceArgs { chunks: Some(size), .. } => Cut::Chunks(size),
        SourceArgs { lines: true, .. } => Cut::Lines,
        SourceArgs { framed_headers, .. } => Cut::Framed { headers: framed_headers },
    };
    match cut {
        Cut::Video(_) => Ok(cut),
        _ if args.pace => {
            Err(Failure::Usage("--pace is for videos (--h264, --h265), which have a beat to keep".into()))
        }
        _ => Ok(cut),
    }
}

/// How long the receiver's being told of the end may take.
const END_WITHIN: Duration = Duration::from_secs(1);
/// How long to wait before a name is resolved again, or an address called that answered wrongly.
const RETRY: Duration = Duration::from_millis(500);
/// Bytes of live input that are kept while there is no session.
const KEPT: usize = 16 << 20;

/// The sending side: of a session, and of those that follow if it is lost.
struct Sender {
    current: Mutex<Current>,
    interrupt: Interrupt,
    deadline: Option<Duration>,
    /// Of the most important blocks.
    priority: u8,
    channel: Option<Channel>,
    idle_timeout: Duration,
    tally: Tally,
    blocks: Blocks,
}

/// The session there is.
struct Current {
    session: Session,
    paths: PathNames,
    /// What those before it have sent.
    before: Option<SentFigures>,
}

impl Sender {
    fn new(session: Session, paths: PathNames, settings: &Settings, args: &SendArgs, interrupt: Interrupt) -> Self {
        Self {
            current: Mutex::new(Current { session, paths, before: None }),
            interrupt,
            deadline: settings.deadline,
            priority: settings.priority.unwrap_or(if args.source.is_video() { 0 } else { 128 }),
            channel: (!args.unordered).then_some(Channel(settings.channel.unwrap_or(0))),
            idle_timeout: settings.idle_timeout(),
            tally: Tally::default(),
            blocks: Blocks::default(),
        }
    }

    fn session(&self) -> Session {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).session.clone()
    }

    /// Sends until the input ends, the session breaks for good or a signal comes; then waits for what is under way.
    async fn run(
        &self,
        settings: &Settings,
        mut input: Input,
        caller: &Caller<'_>,
        mut watch: Watch,
    ) -> Result<(), Failure> {
        // Until when to try to connect again; there has been no need if there is none.
        let mut until = None;
        let ended = loop {
            let ended = self.run_session(settings, &mut input, caller.display, &mut watch).await;
            let silent = matches!(self.session().closed().await, CloseReason::TimedOut);
            let more = !input.ended || !self.blocks.is_empty();
            let why = match ended {
                Err(Failure::SessionLost(why)) if silent && more && !settings.reconnect().is_zero() => {
                    until = Some(Instant::now() + settings.reconnect());
                    why
                }
                // It may still have the session that was lost, or another sender. What an earlier session delivered has been taken.
                Err(failure @ (Failure::Refused(_) | Failure::NotLetIn(_))) if until.is_some() => {
                    tokio::time::sleep(RETRY).await;
                    failure.to_string()
                }
                ended => break ended,
            };
            let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break Err(Failure::SessionLost(why));
            }
            caller.display.say(&format!("{why}: connecting again, for {} at most", spoken(left)));
            match self.again(&mut input, caller, left).await {
                Ok((session, new)) => {
                    caller.display.say("connected again: going on with what is not too late");
                    self.replace(session, new.names());
                    watch = new;
                }
                Err(Failure::Interrupted(signal)) => break Err(Failure::Interrupted(signal)),
                Err(failure) => {
                    break Err(Failure::SessionLost(format!("{why}; connecting again failed: {failure}")));
                }
            }
        };
        self.blocks.give_up_all(&self.tally);
        ended
    }

    /// The same with one session.
    async fn run_session(
        &self,
        settings: &Settings,
        input: &mut Input,
        display: &Display,
        watch: &mut Watch,
    ) -> Result<(), Failure> {
        let session = self.session();
        let mut outcomes = JoinSet::new();
        let work = async {
            let sent = tokio::select! {
                sent = self.send_all(&session, input, &mut outcomes) => sent,
                reason = session.closed() => Err(self.lost(&reason)),
                signal = self.interrupt.first() => Err(Failure::Interrupted(signal)),
            };
            let finished = self.finish(&session, settings.finish_timeout()).await;
            outcomes.join_all().await;
            sent.and(finished)
        };
        tokio::select! {
            ended = work => ended,
            () = display.run(session.events(), Some(watch), || self.figures()) => Ok(()),
        }
    }

    /// Connects again, as soon as that can be done. What comes in meanwhile of a live input is kept as long as it is of use.
    async fn again(
        &self,
        input: &mut Input,
        caller: &Caller<'_>,
        within: Duration,
    ) -> Result<(Session, Watch), Failure> {
        let due = Instant::now() + within;
        let connected = async {
            loop {
                match caller.connect(due.saturating_duration_since(Instant::now())).await {
                    Err(Failure::Unreachable(_) | Failure::Path(_) | Failure::Refused(_))
                        if Instant::now() + RETRY < due =>
                    {
                        tokio::time::sleep(RETRY).await;
                    }
                    connected => return connected,
                }
            }
        };
        let mut connected = std::pin::pin!(connected);
        loop {
            let has_room = input.is_live && !input.ended && input.next.is_none() && self.blocks.bytes() < KEPT;
            tokio::select! {
                connected = &mut connected => return connected,
                signal = self.interrupt.first() => return Err(Failure::Interrupted(signal)),
                more = input.fill(), if has_room => {
                    more?;
                    if let Some(piece) = input.next.take() {
                        self.hold(piece);
                    }
                    self.blocks.drop_stale(&self.tally);
                }
            }
        }
    }

    /// Another session takes the place of the one that was lost.
    fn replace(&self, session: Session, paths: PathNames) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = SentFigures::from(&current.session.stats());
        let before = current.before.map_or(sent, |before| before.plus(&sent));
        *current = Current { session, paths, before: Some(before) };
    }

    async fn send_all(&self, session: &Session, input: &mut Input, outcomes: &mut JoinSet<()>) -> Result<(), Failure> {
        for position in self.blocks.begin_again(&self.tally) {
            self.send(session, position, outcomes).await?;
        }
        loop {
            input.fill().await?;
            // It stays in its place until its time has come, lest it be lost with the session.
            let Some(piece) = &input.next else { return Ok(()) };
            if let Some(spacing) = piece.spacing {
                input.pace.wait(spacing).await;
            }
            if let Some(piece) = input.next.take() {
                let position = self.hold(piece);
                self.send(session, position, outcomes).await?;
            }
            while outcomes.try_join_next().is_some() {}
        }
    }

    /// Makes a block of a piece, and keeps it until it has ended; its position.
    fn hold(&self, piece: Piece) -> u64 {
        self.tally.handed_over();
        let rank = piece.picture.map_or(0, Kind::priority);
        let playout = piece.own.deadline.unwrap_or(self.deadline);
        let mut block = Block::new(piece.data);
        block.priority = piece.own.priority.unwrap_or_else(|| self.priority.saturating_add(rank));
        block.deadline = playout.map(|playout| piece.picture.map_or(playout, |picture| picture.deadline(playout)));
        block.channel = piece.own.channel.unwrap_or(self.channel);
        // From here, deadline and delay are counted.
        block.begin = Some(piece.begun.unwrap_or_else(Instant::now));
        self.blocks.hold(Held { block, playout, needs: piece.dependencies })
    }

    /// Hands a block over, or gives it up if there is no room for it before its deadline, or if it is none that can be sent.
    async fn send(&self, session: &Session, position: u64, outcomes: &mut JoinSet<()>) -> Result<(), Failure> {
        let Some(block) = self.blocks.block(position) else {
            self.blocks.give_up(position, &self.tally);
            return Ok(());
        };
        match session.send(block).await {
            Ok(sent) => {
                self.blocks.named(position, sent.id());
                let (blocks, tally) = (self.blocks.clone(), self.tally.clone());
                outcomes.spawn(async move { blocks.ended(position, &sent.await, &tally) });
                return Ok(());
            }
            Err(SendError::Full(_)) => {}
            Err(SendError::Closed) => return Err(self.lost(&session.closed().await)),
            // A frame or message that cannot go is no reason to keep back the others.
            Err(error @ (SendError::Empty | SendError::TooLarge { .. })) => eprintln!("punctual: left out: {error}"),
            Err(error) => return Err(Failure::Usage(error.to_string())),
        }
        self.blocks.give_up(position, &self.tally);
        Ok(())
    }

    /// Waits for blocks under way; a second signal ends that.
    async fn finish(&self, session: &Session, within: Duration) -> Result<(), Failure> {
        let undelivered = tokio::select! {
            undelivered = session.finish(within) => undelivered,
            signal = self.interrupt.second() => {
                session.close(close::STOPPED, "the sender was told to stop");
                return Err(Failure::Interrupted(signal));
            }
        };
        match undelivered.reason {
            Some(CloseReason::Local) | None
                if undelivered.taken || !undelivered.is_empty() || !session.is_punctual() =>
            {
                Ok(())
            }
            Some(CloseReason::Local) | None => {
                let within = spoken(within);
                Err(Failure::SessionLost(format!("the receiver has not taken all that was delivered within {within}")))
            }
            Some(reason) => Err(self.lost(&reason)),
        }
    }

    fn lost(&self, reason: &CloseReason) -> Failure {
        connect::lost(reason, self.idle_timeout)
    }

    fn figures(&self) -> Figures {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Current { session, paths, before } = &*current;
        let mut figures = self.tally.figures(Some(&session.stats()), &session.path_stats(), |path| paths.get(path.id));
        if let (Some(before), Some(sent)) = (before, &mut figures.sent) {
            *sent = before.plus(sent);
        }
        figures
    }
}

/// What there is to send.
struct Input {
    pieces: mpsc::Receiver<Result<Piece, Failure>>,
    /// The next one, if it has been read.
    next: Option<Piece>,
    /// There are no more to be read.
    ended: bool,
    /// Pieces come by themselves, and go stale.
    is_live: bool,
    pace: Pace,
}

impl Input {
    fn new(pieces: mpsc::Receiver<Result<Piece, Failure>>) -> Self {
        Self { pieces, next: None, ended: false, is_live: false, pace: Pace::default() }
    }

    /// Waits for the next piece; at the end there is none.
    async fn fill(&mut self) -> Result<(), Failure> {
        if self.next.is_none() && !self.ended {
            let piece = self.pieces.recv().await.transpose();
            self.ended = !matches!(piece, Ok(Some(_)));
            self.next = piece?;
            self.is_live |= self.next.as_ref().is_some_and(|piece| piece.begun.is_some());
        }
        Ok(())
    }
}

/// Keeps pieces apart in time.
#[derive(Default)]
struct Pace {
    next: Option<Instant>,
}

impl Pace {
    /// Waits until it is time for the next piece, which the one after it follows by `spacing`.
    async fn wait(&mut self, spacing: Duration) {
        let due = self.due(Instant::now(), spacing);
        tokio::time::sleep_until(due.into()).await;
    }

    /// When the next piece is due. A piece that comes much too late, from a camera that paused, say, sets a new beat: those after it
    /// are not hurried.
    fn due(&mut self, now: Instant, spacing: Duration) -> Instant {
        let due = self.next.filter(|&next| now < next + spacing).unwrap_or(now);
        self.next = Some(due + spacing);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_beat() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        let dues = [0, 1, 85, 86, 500, 501].map(|now| pace.due(start + ms(now), ms(40)) - start);
        assert_eq!(dues, [0, 40, 80, 120, 500, 540].map(ms), "a little late is made up for, a pause is not");
    }
}
