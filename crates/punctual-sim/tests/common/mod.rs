//! What the scenarios share: a source of blocks at even intervals, a sink, and a pair of hosts with paths between them.

#![allow(dead_code, reason = "each scenario uses what it needs")]

use std::{collections::BTreeMap, time::Duration};

use punctual_proto::{Block, BlockId, ClientConfig, Delivery, Event, Outcome, PathEvent, SessionId};
use punctual_sim::{
    App, AppContext, ConnectionId, HostClock, HostConfig, HostId, LinkSpec, LogMode, PathHandle, World, tls,
};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What becomes of the template for the block of this number, the first being 0, with the name of the one before.
pub(crate) type Vary = fn(Block, u64, Option<BlockId>) -> Block;

/// Sends a block at even intervals, beginning when its session is connected.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) template: Block,
    vary: Vary,
    pub(crate) interval: Duration,
    /// After every so many blocks nothing is sent for so long.
    pauses: Option<(u64, Duration)>,
    pub(crate) count: u64,
    /// When each block was handed over, in virtual time.
    pub(crate) sent: BTreeMap<BlockId, Duration>,
    pub(crate) outcomes: BTreeMap<BlockId, Outcome>,
    pub(crate) path_events: Vec<(Duration, u32, PathEvent)>,
    session: Option<SessionId>,
}

impl Source {
    pub(crate) fn new(template: Block, interval: Duration, count: u64) -> Self {
        Self {
            template,
            vary: |block, _, _| block,
            interval,
            pauses: None,
            count,
            sent: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            path_events: Vec::new(),
            session: None,
        }
    }

    /// One whose blocks are not all alike.
    pub(crate) fn vary(self, vary: Vary) -> Self {
        Self { vary, ..self }
    }

    /// One that sends nothing for so long after every so many blocks.
    pub(crate) fn pauses(self, blocks: u64, pause: Duration) -> Self {
        Self { pauses: Some((blocks, pause)), ..self }
    }

    /// Delivered blocks.
    pub(crate) fn deliveries(&self) -> impl Iterator<Item = (BlockId, Delivery)> + '_ {
        self.outcomes.iter().filter_map(|(id, outcome)| match outcome {
            Outcome::Delivered(delivery) => Some((*id, *delivery)),
            Outcome::Dropped { .. } => None,
        })
    }

    /// Blocks that were not of use by the sender's own account, those without an outcome included.
    pub(crate) fn not_on_time(&self) -> Vec<(BlockId, Option<Outcome>)> {
        let useful = |id| matches!(self.outcomes.get(id), Some(Outcome::Delivered(delivery)) if delivery.on_time());
        self.sent.keys().filter(|id| !useful(id)).map(|id| (*id, self.outcomes.get(id).copied())).collect()
    }
}

impl App for Source {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.session = Some(session);
                self.on_timer(cx, 0);
            }
            Event::Outcome { id, outcome } => {
                assert_eq!(self.outcomes.insert(id, outcome), None, "two outcomes for {id}");
            }
            Event::Path { id, event } => self.path_events.push((cx.now(), id.0, event)),
            Event::Closed(reason) => panic!("closed: {reason}"),
            _ => (),
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, token: u64) {
        let session = self.session.expect("connected");
        if token < self.count {
            let last = self.sent.last_key_value().map(|(id, _)| *id);
            let block = (self.vary)(self.template.clone(), token, last);
            let id = cx.send(session, block).expect("room for a block");
            self.sent.insert(id, cx.now());
            let next = token + 1;
            let pause = self.pauses.filter(|(after, _)| next.is_multiple_of(*after)).map(|(_, pause)| pause);
            cx.set_timer(cx.now() + pause.unwrap_or(self.interval), next);
        }
    }
}

/// Takes every block at once, and remembers when.
#[derive(Default)]
pub(crate) struct Sink {
    /// When each block was taken, in virtual time, and what the receiver thinks its completion time was.
    pub(crate) received: BTreeMap<BlockId, (Duration, Option<Duration>)>,
    pub(crate) peer_dropped: Vec<BlockId>,
}

impl App for Sink {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Readable => {
                while let Some(block) = cx.recv(session) {
                    let before = self.received.insert(block.id, (cx.now(), block.completion));
                    assert_eq!(before, None, "{} twice", block.id);
                }
            }
            Event::PeerDropped { id, .. } => self.peer_dropped.push(id),
            Event::Closed(reason) => panic!("closed: {reason}"),
            _ => (),
        }
    }
}

/// A client with a source, a server with a sink, and paths between them, connected.
pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) client: HostId,
    pub(crate) server: HostId,
    pub(crate) paths: Vec<PathHandle>,
    pub(crate) connection: ConnectionId,
    /// When the measured run began.
    pub(crate) start: Duration,
}

/// How to make a [`Pair`].
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) log: LogMode,
    pub(crate) links: Vec<LinkSpec>,
    /// What the links of the way back are like.
    pub(crate) back: fn(&LinkSpec) -> LinkSpec,
    pub(crate) clocks: [HostClock; 2],
    pub(crate) config: ClientConfig,
}

impl Setup {
    /// Paths whose links are alike both ways, and perfect clocks.
    pub(crate) fn new(links: Vec<LinkSpec>) -> Self {
        Self {
            seed: 1,
            log: LogMode::Off,
            links,
            back: LinkSpec::clone,
            clocks: [HostClock::default(); 2],
            config: tls::client_config(),
        }
    }

    pub(crate) fn connect(self, source: Source) -> Pair {
        let mut pair = self.prepare(source);
        pair.begin();
        pair
    }

    /// A pair before its handshake.
    pub(crate) fn prepare(self, source: Source) -> Pair {
        let mut world = World::new(self.seed).with_log(self.log);
        let client = world.add_host(HostConfig::new().clock(self.clocks[0]).app(source));
        let server =
            world.add_host(HostConfig::new().clock(self.clocks[1]).server(tls::server_config()).app(Sink::default()));
        let paths: Vec<_> =
            self.links.iter().map(|link| world.add_path(client, server, link.clone(), (self.back)(link))).collect();
        let connection = world.connect(client, &self.config, &paths).expect("a session can be started");
        Pair { world, client, server, paths, connection, start: Duration::ZERO }
    }
}

impl Pair {
    /// Shakes hands; the measured run begins.
    pub(crate) fn begin(&mut self) {
        self.start = self.world.handshake().expect("the handshake succeeds");
    }

    pub(crate) fn source(&self) -> &Source {
        self.world.app(self.client).expect("the client runs a source")
    }

    pub(crate) fn sink(&self) -> &Sink {
        self.world.app(self.server).expect("the server runs a sink")
    }

    /// Blocks that the receiving application did not have in time, in truth, and by how much.
    pub(crate) fn late(&self) -> Vec<(BlockId, Duration, Option<Duration>)> {
        let source = self.source();
        let deadline = source.template.deadline.expect("a source with a deadline");
        let took = |id| self.sink().received.get(id).map(|(at, _)| *at - source.sent[id]);
        source
            .sent
            .iter()
            .map(|(id, at)| (*id, *at - self.start, took(id)))
            .filter(|(_, _, took)| took.is_none_or(|took| took > deadline))
            .collect()
    }
}

/// The path of DMTP's evaluation: 15 Mbit/s, 60 ms one way.
pub(crate) fn dmtp_link() -> LinkSpec {
    LinkSpec::new(15.0, ms(60))
}

/// Its workload: 24 KB, 50 times a second, to be there in 200 ms.
pub(crate) fn dmtp_source(seconds: u64) -> Source {
    Source::new(Block::new(vec![7; 24_000]).deadline(ms(200)), ms(20), 50 * seconds)
}
