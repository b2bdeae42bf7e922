//! What blocks do, between two endpoints: dependencies, channels, changes of mind, limits, ends.

mod changes;
mod channels;
#[path = "../common/mod.rs"]
mod common;
mod contract;
mod dependencies;
mod ends;
mod extremes;
mod packets;
mod room;

use std::time::Duration;

use common::{End, World, client_config, ms, server_config};
use punctual_proto::{Block, BlockId, DropReason, Event, Limits, Outcome, SessionConfig, schedule};

/// A sender and a receiver.
pub(crate) struct Pair {
    pub(crate) world: World,
    /// The client, which sends.
    pub(crate) from: End,
    /// The server, which receives.
    pub(crate) to: End,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(SessionConfig::default(), Limits::default())
    }

    /// With a sender that goes by a scheduler's name.
    pub(crate) fn scheduled(name: &str) -> Self {
        let scheduler = schedule::by_name(name).expect("it exists");
        Self::with(SessionConfig { scheduler, ..SessionConfig::default() }, Limits::default())
    }

    pub(crate) fn receiving(limits: Limits) -> Self {
        Self::with(SessionConfig::default(), limits)
    }

    pub(crate) fn sending(limits: Limits) -> Self {
        Self::with(SessionConfig { limits, ..SessionConfig::default() }, Limits::default())
    }

    pub(crate) fn with(client: SessionConfig, server: Limits) -> Self {
        let mut pair = Self::connecting(client, server);
        pair.connected();
        pair.world.run(ms(100));
        pair.events();
        pair
    }

    /// The client has been told to connect, and no packet has come back yet.
    pub(crate) fn connecting(client: SessionConfig, server: Limits) -> Self {
        let mut world = World::new(ms(10));
        let to = world.add_endpoint(Some(server_config(SessionConfig { limits: server, ..SessionConfig::default() })));
        let from = world.add_endpoint(None);
        let session = world.connect(from, &client_config(client), to);
        let nobody = End { host: to, session };
        Self { world, from: End { host: from, session }, to: nobody }
    }

    pub(crate) fn connected(&mut self) {
        self.to.session = self.world.accept(self.to.host);
    }

    pub(crate) fn send(&mut self, block: Block) -> BlockId {
        self.world.send(self.from, block)
    }

    /// Hands blocks over before any of them is sent.
    pub(crate) fn send_all(&mut self, blocks: impl IntoIterator<Item = Block>) -> Vec<BlockId> {
        let now = self.world.now;
        let session = self.world.session(self.from.host, self.from.session);
        let ids = blocks.into_iter().map(|block| session.send(now, block).expect("there is room")).collect();
        self.world.drain();
        ids
    }

    /// What the sender has heard since it was asked last.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        self.world.events_of(self.from.host, self.from.session)
    }

    pub(crate) fn peer_events(&mut self) -> Vec<Event> {
        self.world.events_of(self.to.host, self.to.session)
    }

    /// Blocks in the order in which the receiver gets them within `time`.
    pub(crate) fn received_in(&mut self, time: Duration) -> Vec<BlockId> {
        let (until, to) = (self.world.now + time, self.to);
        let mut order = Vec::new();
        while self.world.now < until {
            self.world.run(ms(1));
            order.extend(self.world.recv_all(to).into_iter().map(|block| block.id));
        }
        order
    }

    /// Nothing is left at either end.
    #[track_caller]
    pub(crate) fn ends_clean(mut self) {
        for end in [self.from, self.to] {
            assert!(self.world.session(end.host, end.session).is_clean());
        }
    }
}

pub(crate) fn block(size: usize) -> Block {
    Block::new(vec![0xb5; size])
}

pub(crate) fn dropped(reason: DropReason) -> Outcome {
    Outcome::Dropped { reason, good_bytes: 0 }
}
