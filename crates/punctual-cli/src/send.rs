//! `punctual send`.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use punctual::{Channel, CloseReason, Endpoint, PathId, Session, Snapshot, duration::spoken};
use tokio::task::JoinSet;

use crate::{
    cli::{SendArgs, SourceArgs},
    config::Settings,
    connect::{self, Caller, not_built, trust, ways},
    display::Display,
    exit::{Failure, Shown, close},
    feed::{Blocks, Feeder, Input, LeftOut},
    identity::{self, Loaded},
    incoming::{Coming, Incoming},
    path_figures::ClosedPaths,
    route,
    say::say,
    sent::SentFigures,
    signals::Interrupt,
    sink,
    source::{Coding, Cut, Source, Video},
    stats::{self, Figures, Tally},
    take::Until,
    token,
    watch::{PathNames, Watch},
};

/// Sends what was asked for and tells how it went.
pub(crate) async fn run(args: &SendArgs) -> Result<(), Failure> {
    let settings = Settings::load(&args.settings, args.config.as_deref())?;
    let ways = ways(&settings.session, &args.to)?;
    let trust = trust(&settings.session)?;
    let config = settings.session.endpoint_config(args.common.qlog.as_deref())?;
    let most = punctual::Limits::default().wished_latency;
    if settings.latency.is_some_and(|latency| latency > most) {
        let most = spoken(most);
        return Err(Failure::Usage(format!(
            "--latency: no more than {most} can be asked of a receiver; its own --latency may be longer"
        )));
    }
    let source = Source::open(args.input.as_deref(), cut(args, &settings)?)?;
    // Who is there to receive may have nothing to say.
    let source = if args.receive.is_some() { source.maybe_empty() } else { source };
    let token = settings.session.token.as_deref().map(token::one).transpose()?;
    let incoming = Incoming::open(args)?;
    if let Some(to) = &args.receive {
        sink::not_the_same(args.input.as_deref().unwrap_or(Path::new("-")), to)?;
    }

    let mut builder = Endpoint::client().trust(trust).config(config);
    let mut shown = Shown { fingerprint: None, token: token.is_some() };
    if let Some(token) = token {
        builder = builder.token(token);
    }
    if let Some(path) = &args.identity {
        let Loaded { identity, made } = identity::load_or_make(path, &["localhost".into()])?;
        if made && !args.common.quiet {
            say!("made {}: fingerprint {}", path.display(), identity.fingerprint());
        }
        shown.fingerprint = Some(identity.fingerprint());
        builder = builder.identity(identity);
    }
    let endpoint = builder.build().map_err(not_built)?;
    let display = Display::new(&args.common);
    let caller =
        Caller { endpoint: &endpoint, ways: &ways, name: route::host(&args.to)?, display: &display, command: "recv" };
    let interrupt = Interrupt::listen()?;
    let connected = tokio::select! {
        connected = caller.connect(settings.session.connect_timeout()) => connected,
        signal = interrupt.first() => Err(Failure::Interrupted(signal)),
    };
    let (session, watch) = match connected {
        Ok(connected) => connected,
        Err(failure) => {
            // A receiver that is half way there is told.
            endpoint.close(close::STOPPED, "the sender was told to stop");
            let _ = tokio::time::timeout(END_WITHIN, endpoint.wait_idle()).await;
            return Err(failure.showing(shown));
        }
    };

    if let Some(incoming) = &incoming {
        incoming.begin()?;
    }
    let mut input = Input::new(source.start()?);
    let sender = Sender::new(session, watch.names(), &settings, args, interrupt, incoming);
    let ended = sender.run(&settings, &mut input, &caller, watch).await;
    drop(display);
    // What is not there is worse than what was not to be had; but neither goes without a word.
    let ended = match (ended, input.failure.take()) {
        (Ok(()), failure) => failure.or_else(|| sender.feeder.left_out.failure()).map_or(Ok(()), Err),
        (Err(ended), failure) => {
            if let Some(failure) = failure {
                say!("punctual: {failure}");
            }
            Err(ended)
        }
    };
    let ended = ended.map_err(|failure| failure.showing(shown));
    if matches!(&ended, Err(failure) if failure.is_at_the_door()) {
        sender.feeder.tally.refused();
    }
    let told = stats::conclude(&args.common, &sender.figures());
    // So that the receiver hears the end; it does not matter more than this.
    let _ = tokio::time::timeout(END_WITHIN, endpoint.wait_idle()).await;
    ended.and(told)?;
    match sender.figures().shortfall().filter(|_| args.common.strict) {
        Some(words) => Err(Failure::NotDelivered(words)),
        None => Ok(()),
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
        _ if args.settings.fps.is_some() => {
            Err(Failure::Usage("--fps is for videos (--h264, --h265): nothing else has a frame rate".into()))
        }
        _ => Ok(cut),
    }
}

/// How long the receiver's being told of the end may take.
const END_WITHIN: Duration = Duration::from_secs(1);
/// How long to wait before a name is resolved again, or an address called that answered wrongly.
const RETRY: Duration = Duration::from_millis(500);
/// How often what is kept is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of live input that are kept while there is no session.
const KEPT: usize = 16 << 20;

/// The sending side: of a session, and of those that follow if it is lost.
struct Sender {
    current: Mutex<Current>,
    interrupt: Interrupt,
    idle_timeout: Duration,
    feeder: Feeder,
    /// Where to put what the receiver sends back, if it is to be taken.
    incoming: Option<Incoming>,
}

/// The session there is.
struct Current {
    session: Session,
    paths: PathNames,
    /// What those before it have sent.
    before: Option<SentFigures>,
    /// Paths that are no more, in this or another.
    closed_paths: ClosedPaths,
    /// What the receiver has dropped in those before it, of what it sends back.
    dropped_before: u64,
    /// What those before it have delivered, but were lost before the receiver could say that its program had taken it.
    unconfirmed: Option<u64>,
    /// Whether the receiver has said at its end that it has taken all that was delivered; `None` before that, and if it does not speak Punctual.
    confirmed: Option<bool>,
}

impl Current {
    /// Of this session and those before it; and its own totals.
    fn figures(&mut self, tally: &Tally) -> (Figures, Snapshot) {
        let (snapshot, name) = (self.session.snapshot(), |id: PathId| self.paths.get(id));
        let mut figures = tally.figures(Some(&snapshot.session), &snapshot.paths, name);
        if let (Some(before), Some(sent)) = (&self.before, &mut figures.sent) {
            *sent = before.plus(sent);
        }
        self.closed_paths.note(&snapshot.closed_paths);
        figures.paths.extend(self.closed_paths.figures(name));
        (figures, snapshot)
    }
}

impl Sender {
    fn new(
        session: Session,
        paths: PathNames,
        settings: &Settings,
        args: &SendArgs,
        interrupt: Interrupt,
        incoming: Option<Incoming>,
    ) -> Self {
        Self {
            current: Mutex::new(Current {
                session,
                paths,
                before: None,
                closed_paths: ClosedPaths::default(),
                dropped_before: 0,
                unconfirmed: None,
                confirmed: None,
            }),
            interrupt,
            idle_timeout: settings.session.idle_timeout(),
            feeder: Feeder {
                deadline: settings.deadline,
                priority: settings.priority.unwrap_or(if args.source.is_video() { 0 } else { 128 }),
                channel: (!args.unordered).then_some(Channel(settings.channel.unwrap_or(0))),
                tally: Tally::default(),
                blocks: Blocks::default(),
                left_out: LeftOut::default(),
                latency: settings.latency,
            },
            incoming,
        }
    }

    fn session(&self) -> Session {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).session.clone()
    }

    /// Sends until the input ends, the session breaks for good or a signal comes; then waits for what is under way.
    async fn run(
        &self,
        settings: &Settings,
        input: &mut Input,
        caller: &Caller<'_>,
        mut watch: Watch,
    ) -> Result<(), Failure> {
        // Until when to try to connect again; there has been no need if there is none.
        let mut until = None;
        let ended = loop {
            let ended = self.run_session(settings, input, caller.display, &mut watch).await;
            // Nobody has said that we should go: the paths are gone, or the receiver was killed.
            let silent = matches!(self.session().closed().await, CloseReason::TimedOut | CloseReason::Reset);
            // For what is too late there is no point in connecting again.
            self.feeder.blocks.drop_stale(&self.feeder.tally);
            let comes = self.incoming.as_ref().is_some_and(|incoming| !incoming.has_ended());
            let more = !input.ended || !self.feeder.blocks.is_empty() || comes;
            let why = match ended {
                Err(Failure::SessionLost(why)) if silent && more && !settings.reconnect().is_zero() => {
                    until = Some(Instant::now() + settings.reconnect());
                    why
                }
                // It may still have the session that was lost, or another sender. What an earlier session delivered has been taken.
                Err(failure) if failure.is_at_the_door() && until.is_some() => {
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
            let again = tokio::select! {
                again = self.again(input, caller, left) => again,
                never = caller.display.wait(|| self.figures()) => never,
            };
            match again {
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
        self.feeder.blocks.give_up_all(&self.feeder.tally);
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
            let mut coming = self.incoming.as_ref().map(|incoming| incoming.follow(&session));
            let sent = tokio::select! {
                sent = self.feeder.send_all(&session, input, &mut outcomes) => sent.map_err(|reason| self.lost(&reason)),
                reason = session.closed() => Err(self.lost(&reason)),
                signal = self.interrupt.first() => Err(Failure::Interrupted(signal)),
            };
            let came = match &mut coming {
                Some(coming) if sent.is_ok() => {
                    self.await_the_other_end(&session, settings.finish_timeout(), coming).await
                }
                _ => Ok(Until::Closed),
            };
            let finished = self.finish(&session, settings.finish_timeout()).await;
            outcomes.join_all().await;
            let written = match coming {
                Some(coming) => coming.written(END_WITHIN).await,
                None => Ok(()),
            };
            written.and(sent).and(came.map(drop)).and(finished)
        };
        tokio::select! {
            ended = work => ended,
            never = self.hint_at_what_comes_back(&session, display) => never,
            () = display.run(session.events(), Some(watch), || self.figures()) => Ok(()),
        }
    }

    /// Says so if the receiver sends something back and nobody takes it, and never returns.
    async fn hint_at_what_comes_back<Never>(&self, session: &Session, display: &Display) -> Never {
        while self.incoming.is_none() {
            tokio::time::sleep(RETRY).await;
            if session.stats().live_in > 0 {
                display.say("the receiver sends something back, which is not taken: --receive FILE does");
                break;
            }
        }
        std::future::pending().await
    }

    /// Everything is handed over here; the receiver may have more to say. It is waited for as long as that takes.
    async fn await_the_other_end(
        &self,
        session: &Session,
        within: Duration,
        coming: &mut Coming,
    ) -> Result<Until, Failure> {
        let all = async {
            session.finish_sending(within).await;
            coming.end().await
        };
        tokio::select! {
            came = all => came,
            signal = self.interrupt.first() => Err(Failure::Interrupted(signal)),
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
            let has_room = input.is_live && !input.ended && input.next.is_none() && self.feeder.blocks.bytes() < KEPT;
            tokio::select! {
                connected = &mut connected => return connected,
                signal = self.interrupt.first() => return Err(Failure::Interrupted(signal)),
                () = input.fill(), if has_room => {
                    if let Some(piece) = input.next.take() {
                        self.feeder.hold(piece);
                    }
                    self.feeder.blocks.drop_stale(&self.feeder.tally);
                }
                // What becomes too late makes room for what is new.
                () = tokio::time::sleep(LOOK_EVERY) => self.feeder.blocks.drop_stale(&self.feeder.tally),
            }
        }
    }

    /// Another session takes the place of the one that was lost.
    fn replace(&self, session: Session, paths: PathNames) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (Figures { sent, .. }, last) = current.figures(&self.feeder.tally);
        let names = std::mem::replace(&mut current.paths, paths);
        current.closed_paths.end_session(&last.paths, |id| names.get(id));
        current.before = sent;
        current.dropped_before += last.session.blocks_peer_dropped;
        // None of them ended in peace.
        current.unconfirmed = Some(self.feeder.tally.delivered()).filter(|&blocks| blocks > 0);
        (current.session, current.confirmed) = (session, None);
    }

    /// Waits for blocks under way, and closes the session; a second signal ends that.
    async fn finish(&self, session: &Session, within: Duration) -> Result<(), Failure> {
        let undelivered = tokio::select! {
            undelivered = session.finish(within) => undelivered,
            signal = self.interrupt.second() => {
                session.close(close::STOPPED, "the sender was told to stop");
                self.confirm(session.is_punctual().then_some(false));
                return Err(Failure::Interrupted(signal));
            }
        };
        // A peer that does not speak Punctual says nothing of what it has taken.
        let confirmed = session.is_punctual().then_some(undelivered.taken);
        self.confirm(confirmed);
        match undelivered.reason {
            // Blocks that were dropped for being late are no failure, as long as the receiver is there to say that it has all the others.
            Some(CloseReason::Local) | None if confirmed != Some(false) => Ok(()),
            Some(CloseReason::Local) | None => {
                let within = spoken(within);
                Err(Failure::SessionLost(format!(
                    "the receiver has not taken all that was sent within {within} (--finish-timeout)"
                )))
            }
            Some(reason) => Err(self.lost(&reason)),
        }
    }

    /// Notes what the receiver has said at the end of the session.
    fn confirm(&self, confirmed: Option<bool>) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).confirmed = confirmed;
    }

    fn lost(&self, reason: &CloseReason) -> Failure {
        connect::lost(reason, self.idle_timeout)
    }

    fn figures(&self) -> Figures {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut figures, Snapshot { session: stats, .. }) = current.figures(&self.feeder.tally);
        let Current { dropped_before, unconfirmed, confirmed, .. } = &*current;
        figures.confirmed = confirmed.map(|confirmed| confirmed && unconfirmed.is_none());
        figures.unconfirmed = *unconfirmed;
        figures.left_out = Some(self.feeder.left_out.blocks()).filter(|&blocks| blocks > 0);
        figures.back =
            self.incoming.as_ref().map(|incoming| incoming.figures(dropped_before + stats.blocks_peer_dropped));
        figures
    }
}
