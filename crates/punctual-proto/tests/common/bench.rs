//! A server with a session that a test spoils by hand, and with one of an honest client, which has to go on.

use std::collections::BTreeMap;

use punctual_proto::{Block, CloseReason, Event, Limits, ProtocolError, SessionConfig, SessionStats};

use super::{
    End, HostId, World, client_config, delivery, ms, outcomes,
    raw::{Config, Raw},
    server_config,
    wire::{self, Info, fragment, hello, join, timestamp},
};

pub(crate) const MAX_BLOCK: u64 = 10_000;
pub(crate) const WINDOW: u64 = 40_000;
pub(crate) const BLOCKS: u64 = 16;
pub(crate) const CHANNELS: usize = 4;
pub(crate) const REPAIR_WINDOW: u64 = 20_000;

/// Small, so that they are soon reached.
pub(crate) fn limits() -> Limits {
    Limits::default()
        .max_block_size(MAX_BLOCK)
        .receive_bytes(WINDOW)
        .receive_blocks(BLOCKS)
        .channels(CHANNELS)
        .repair_window(REPAIR_WINDOW)
}

/// A server with two sessions: one with a peer that keeps to nothing, one with an honest client.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) server: HostId,
    pub(crate) raw: HostId,
    /// The server's end of the session with the raw peer.
    pub(crate) end: End,
    pub(crate) honest: End,
    pub(crate) honest_at_server: End,
}

impl Bench {
    /// A peer that has said nothing yet.
    pub(crate) fn silent_with(limits: Limits, config: Config) -> Self {
        let mut world = World::new(ms(5));
        let session = SessionConfig { limits, ..SessionConfig::default() };
        let server = world.add_endpoint(Some(server_config(session)));
        let client = world.add_endpoint(None);
        let honest = world.connect(client, &client_config(SessionConfig::default()), server);
        let honest_at_server = End { host: server, session: world.accept(server) };
        let raw = world.add_raw(config, server);
        let (session, punctual) = world.accept_any(server);
        assert_eq!(punctual, config.alpn == b"punctual/1");
        world.run(ms(50));
        let end = End { host: server, session };
        Self { world, server, raw, end, honest: End { host: client, session: honest }, honest_at_server }
    }

    pub(crate) fn silent() -> Self {
        Self::silent_with(limits(), Config::default())
    }

    /// A peer that has sent its SETTINGS.
    pub(crate) fn with(limits: Limits, config: Config) -> Self {
        let mut bench = Self::silent_with(limits, config);
        bench.control(&hello(1 << 20, 1 << 22, 1_000, 4));
        bench.lives();
        bench
    }

    pub(crate) fn new() -> Self {
        Self::with(limits(), Config::default())
    }

    pub(crate) fn raw(&mut self) -> &mut Raw {
        self.world.raw(self.raw)
    }

    pub(crate) fn control(&mut self, bytes: &[u8]) {
        self.raw().control(bytes);
    }

    /// Sends a datagram of these frames, with a TIMESTAMP before them.
    pub(crate) fn datagram(&mut self, frames: &[&[u8]]) {
        let payload = join(&[&timestamp(1_000_000), &join(frames)]);
        self.raw().datagram(payload);
    }

    pub(crate) fn info(&mut self, info: Info) {
        self.datagram(&[&info.bytes()]);
    }

    /// A whole block in one datagram.
    pub(crate) fn block(&mut self, info: Info) {
        let data = vec![info.id as u8; info.size as usize];
        self.datagram(&[&info.bytes(), &fragment(info.id, 0, &data)]);
    }

    pub(crate) fn stats(&mut self) -> SessionStats {
        self.world.session(self.end.host, self.end.session).stats()
    }

    /// The control frames that have come back.
    pub(crate) fn answers(&mut self) -> Vec<(u64, Vec<u8>)> {
        wire::read_control(&self.raw().stream)
    }

    /// Blocks that the server's application gets, by id.
    pub(crate) fn received(&mut self) -> BTreeMap<u64, Vec<u8>> {
        self.world.recv_all(self.end).into_iter().map(|block| (block.id.0, block.data.to_vec())).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        self.world.events_of(self.end.host, self.end.session)
    }

    /// All is well so far.
    #[track_caller]
    pub(crate) fn lives(&mut self) {
        self.world.run(ms(50));
        let lost = self.raw().lost.clone();
        assert_eq!(lost, None);
        assert_eq!(self.world.session(self.end.host, self.end.session).close_reason(), None);
    }

    /// The session ends with `error`, on both sides; what it held is freed; the other session goes on.
    #[track_caller]
    pub(crate) fn dies(&mut self, error: ProtocolError) {
        self.world.run(ms(12));
        let lost = self.raw().lost.clone();
        assert_eq!(self.raw().closed_with(), Some(error.code()), "{lost:?}");
        let events = self.events();
        let closed: Vec<_> = events.iter().filter(|event| matches!(event, Event::Closed(_))).collect();
        assert_eq!(closed, [&Event::Closed(CloseReason::Protocol(error))]);
        assert_eq!(events.last(), Some(closed[0]), "nothing follows");
        let End { host, session } = self.end;
        if self.world.endpoint(host).session(session).is_some() {
            self.received();
            let stats = self.stats();
            assert_eq!((stats.live_in, stats.live_in_bytes, stats.live_out, stats.live_out_bytes), (0, 0, 0, 0));
        }
        self.others_go_on();
        assert_eq!(self.world.endpoint(self.server).sessions(), 1, "the session is forgotten");
    }

    #[track_caller]
    pub(crate) fn others_go_on(&mut self) {
        self.world.take_events(self.honest.host);
        let id = self.world.send(self.honest, Block::new(vec![5; 7_000]).deadline(ms(200)));
        self.world.run(ms(100));
        let block = self.world.recv(self.honest_at_server).expect("the other session goes on");
        assert_eq!((block.id, block.data.len()), (id, 7_000));
        self.world.run(ms(100));
        let events = self.world.events_of(self.honest.host, self.honest.session);
        assert!(delivery(outcomes(&events).get(&id)).on_time());
    }
}
