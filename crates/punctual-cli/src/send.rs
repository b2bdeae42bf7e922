//! `punctual send`.

mod connect;
mod watch;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use punctual::{Block, BlockId, Channel, CloseReason, Endpoint, SendError, Session};
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
    stats::{self, Figures, Tally},
};
use connect::{connect, not_built, trust, ways};
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
    let connected = connect(&endpoint, &ways, route::host(&args.to)?, settings.connect_timeout(), &display).await;
    let (session, mut watch) = connected.map_err(|failure| failure.showing(fingerprint))?;

    let pieces = source.start()?;
    let sender = Sender::new(session, watch.names(), &settings, args, Interrupt::listen()?);
    let ended = sender.run(&settings, pieces, &display, &mut watch).await;
    drop(display);
    let ended = ended.map_err(|failure| failure.showing(fingerprint));
    if matches!(ended, Err(Failure::Refused(_) | Failure::NotLetIn(_))) {
        sender.tally.refused();
    }
    let told = stats::conclude(&args.common, &sender.figures());
    // So that the receiver hears the end; it does not matter more than this.
    let _ = tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
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

/// The sending side of a session.
struct Sender {
    session: Session,
    interrupt: Interrupt,
    deadline: Option<Duration>,
    /// Of the most important blocks.
    priority: u8,
    channel: Option<Channel>,
    idle_timeout: Duration,
    tally: Tally,
    paths: PathNames,
}

impl Sender {
    fn new(session: Session, paths: PathNames, settings: &Settings, args: &SendArgs, interrupt: Interrupt) -> Self {
        Self {
            session,
            interrupt,
            deadline: settings.deadline,
            priority: settings.priority.unwrap_or(if args.source.is_video() { 0 } else { 128 }),
            channel: (!args.unordered).then_some(Channel(settings.channel.unwrap_or(0))),
            idle_timeout: settings.idle_timeout(),
            tally: Tally::default(),
            paths,
        }
    }

    /// Sends until the input ends, the session breaks or a signal comes; then waits for what is under way.
    async fn run(
        &self,
        settings: &Settings,
        pieces: mpsc::Receiver<Result<Piece, Failure>>,
        display: &Display,
        watch: &mut Watch,
    ) -> Result<(), Failure> {
        let mut outcomes = JoinSet::new();
        let work = async {
            let sent = tokio::select! {
                sent = self.send_all(pieces, &mut outcomes) => sent,
                reason = self.session.closed() => Err(self.lost(&reason)),
                signal = self.interrupt.first() => Err(Failure::Interrupted(signal)),
            };
            let finished = self.finish(settings.finish_timeout()).await;
            outcomes.join_all().await;
            sent.and(finished)
        };
        tokio::select! {
            ended = work => ended,
            () = display.run(self.session.events(), Some(watch), || self.figures()) => Ok(()),
        }
    }

    async fn send_all(
        &self,
        mut pieces: mpsc::Receiver<Result<Piece, Failure>>,
        outcomes: &mut JoinSet<()>,
    ) -> Result<(), Failure> {
        let mut pace = Pace::default();
        let mut sent = Sent::default();
        while let Some(piece) = pieces.recv().await {
            let piece = piece?;
            if let Some(spacing) = piece.spacing {
                pace.wait(spacing).await;
            }
            self.tally.handed_over();
            let id = match sent.ids_of(&piece.dependencies) {
                Some(dependencies) => self.send(piece, dependencies, outcomes).await?,
                None => None,
            };
            if id.is_none() {
                self.tally.given_up();
            }
            sent.push(id);
            while outcomes.try_join_next().is_some() {}
        }
        Ok(())
    }

    /// Hands a block over; `None` if there was no room for it before its deadline, or if it is no block that can be sent.
    async fn send(
        &self,
        piece: Piece,
        dependencies: Vec<BlockId>,
        outcomes: &mut JoinSet<()>,
    ) -> Result<Option<BlockId>, Failure> {
        let size = piece.data.len() as u64;
        let rank = piece.picture.map_or(0, Kind::priority);
        let playout = piece.own.deadline.unwrap_or(self.deadline);
        let mut block = Block::new(piece.data);
        block.priority = piece.own.priority.unwrap_or_else(|| self.priority.saturating_add(rank));
        block.deadline = playout.map(|playout| piece.picture.map_or(playout, |picture| picture.deadline(playout)));
        block.channel = piece.own.channel.unwrap_or(self.channel);
        block.dependencies = dependencies;
        // From here, deadline and delay are counted.
        block.begin = piece.begun;
        match self.session.send(block).await {
            Ok(sent) => {
                let (id, tally) = (sent.id(), self.tally.clone());
                outcomes.spawn(async move { tally.ended(&sent.await, playout, size) });
                Ok(Some(id))
            }
            Err(SendError::Full(_)) => Ok(None),
            Err(SendError::Closed) => Err(self.lost(&self.session.closed().await)),
            // A frame or message that cannot go is no reason to keep back the others.
            Err(error @ (SendError::Empty | SendError::TooLarge { .. })) => {
                eprintln!("punctual: left out: {error}");
                Ok(None)
            }
            Err(error) => Err(Failure::Usage(error.to_string())),
        }
    }

    /// Waits for blocks under way; a second signal ends that.
    async fn finish(&self, within: Duration) -> Result<(), Failure> {
        let undelivered = tokio::select! {
            undelivered = self.session.finish(within) => undelivered,
            signal = self.interrupt.second() => {
                self.session.close(close::STOPPED, "the sender was told to stop");
                return Err(Failure::Interrupted(signal));
            }
        };
        match undelivered.reason {
            Some(CloseReason::Local) | None
                if undelivered.taken || !undelivered.is_empty() || !self.session.is_punctual() =>
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
        self.tally.figures(Some(&self.session.stats()), &self.session.path_stats(), |path| self.paths.get(path.id))
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

/// The blocks that the latest pieces became.
#[derive(Default)]
struct Sent {
    ids: BTreeMap<u64, Option<BlockId>>,
    next: u64,
}

impl Sent {
    /// A decoder holds 16 reference pictures; what lies further back than this is not referred to.
    const KEPT: u64 = 256;

    fn push(&mut self, id: Option<BlockId>) {
        self.ids.insert(self.next, id);
        self.next += 1;
        if let Some(old) = self.next.checked_sub(Self::KEPT) {
            self.ids.remove(&old);
        }
    }

    /// The blocks of these pieces; `None` if one of them was given up.
    fn ids_of(&self, pieces: &[u64]) -> Option<Vec<BlockId>> {
        // One that has been forgotten is long since delivered or dropped.
        pieces.iter().filter_map(|piece| self.ids.get(piece).copied()).collect()
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

    #[test]
    fn what_needs_a_piece_that_was_given_up_is_given_up() {
        let mut sent = Sent::default();
        sent.push(Some(BlockId(7)));
        sent.push(None);
        assert_eq!(sent.ids_of(&[0]), Some(vec![BlockId(7)]));
        assert_eq!(sent.ids_of(&[0, 1]), None);
        for _ in 0..1_000 {
            sent.push(None);
        }
        assert_eq!(sent.ids_of(&[0]), Some(vec![]), "long ago");
        assert!(sent.ids.len() <= 256);
    }
}
