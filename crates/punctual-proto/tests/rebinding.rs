//! A client behind a NAT that gives its paths other ports in the midst of it.

mod common;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use common::{BOUND, BOUND_PORT, End, World, address, client_config, ms, server_config};
use punctual_proto::{Block, Event, LocalId, NetworkPath, PathEvent, PathId, SessionConfig};

/// One way.
const DELAY: Duration = ms(20);
const ROUND_TRIP: Duration = ms(40);
const DEADLINE: Duration = ms(150);

/// Who sends blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Talks {
    Client,
    Server,
    Both,
}

struct Rebound {
    world: World,
    client: End,
    server: End,
    talks: Talks,
    /// Paths that the server doubts, and since when.
    doubted: BTreeMap<PathId, Instant>,
    /// Those that it has trusted again, and after how long.
    trusted: Vec<(PathId, Duration)>,
    late: usize,
    received: usize,
}

impl Rebound {
    fn new(talks: Talks, paths: u32) -> Self {
        Self::seen_as(BOUND, talks, paths)
    }

    /// Behind a NAT that shows the client as this end and those that follow.
    fn seen_as(bound: u32, talks: Talks, paths: u32) -> Self {
        let mut world = World::new(DELAY);
        let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
        let host = world.add_endpoint(None);
        world.nat = (0..paths).map(|local| ((host, local), bound + local)).collect();
        let session = world.connect(host, &client_config(SessionConfig::default()), server);
        let client = End { host, session };
        let server = End { host: server, session: world.accept(server) };
        for local in 1..paths {
            let (now, path) = (world.now, NetworkPath { local: LocalId(local), remote: address(server.host) });
            world.session(host, session).open_path(now, path).expect("it can be opened");
        }
        let (doubted, trusted) = Default::default();
        let mut rebound = Self { world, client, server, talks, doubted, trusted, late: 0, received: 0 };
        rebound.talk(100);
        let settled = rebound.doubted.is_empty() && rebound.trusted.is_empty() && rebound.late == 0;
        assert!(settled, "all is well to begin with");
        rebound
    }

    /// The NAT binds a path to another port.
    fn bind_anew(&mut self, local: u32) {
        *self.world.nat.get_mut(&(self.client.host, local)).expect("it is behind the NAT") += 10;
    }

    /// Blocks of two packets, one every 10 ms.
    fn talk(&mut self, blocks: usize) {
        for _ in 0..blocks {
            for (end, who) in [(self.client, Talks::Client), (self.server, Talks::Server)] {
                if self.talks == who || self.talks == Talks::Both {
                    self.world.send(end, Block::new(vec![1; 2_000]).deadline(DEADLINE));
                }
            }
            for _ in 0..10 {
                self.world.run(ms(1));
                self.look();
            }
        }
    }

    fn look(&mut self) {
        let now = self.world.now;
        for event in self.world.events_of(self.server.host, self.server.session) {
            match event {
                Event::Path { id, event: PathEvent::Suspected { .. } } => _ = self.doubted.entry(id).or_insert(now),
                Event::Path { id, event: PathEvent::Recovered } => {
                    let since = self.doubted.remove(&id).expect("it was doubted");
                    self.trusted.push((id, now - since));
                }
                _ => {}
            }
        }
        for end in [self.client, self.server] {
            while let Some(block) = self.world.recv(end) {
                self.received += 1;
                self.late += usize::from(block.completion > Some(DEADLINE));
            }
        }
    }
}

/// Tries it for each who talks, and at several moments between two blocks.
fn bound_anew(paths: u32, which: u32) {
    for talks in [Talks::Client, Talks::Server, Talks::Both] {
        for phase in [0, 3, 7] {
            let case = format!("{talks:?}, path {which} of {paths}, after {phase} ms");
            let mut rebound = Rebound::new(talks, paths);
            rebound.world.run(ms(phase));
            rebound.bind_anew(which);
            rebound.talk(60);
            let Rebound { doubted, trusted, late, received, .. } = rebound;
            assert!(doubted.is_empty(), "{case}: {doubted:?} for good");
            let all = if talks == Talks::Both { 320 } else { 160 };
            assert!(received + 4 >= all && late == 0, "{case}: {late} of {received} late");
            // Where the server talks over another path, it may have found the silence before the move.
            assert!(matches!(trusted[..], [(_, after)] if after <= ROUND_TRIP + ms(10)), "{case}: {trusted:?}");
        }
    }
}

#[test]
fn an_only_path_that_is_bound_anew_is_trusted_again_after_one_round_trip() {
    bound_anew(1, 0);
}

#[test]
fn so_is_one_of_two() {
    bound_anew(2, 0);
    bound_anew(2, 1);
}

/// QUIC challenges a path that has moved twice, and then gives it up: it may hardly be used any more.
#[test]
fn a_path_is_validated_though_what_is_said_for_that_is_lost_at_first() {
    for (paths, talks) in [(1, Talks::Server), (2, Talks::Server), (1, Talks::Both), (2, Talks::Both)] {
        let mut rebound = Rebound::new(talks, paths);
        (0..paths).for_each(|local| rebound.bind_anew(local));
        rebound.world.lose_every = Some((rebound.server.host, 1));
        // So that the server notices, whoever talks.
        rebound.world.send(rebound.client, Block::new(vec![2; 100]));
        rebound.talk(200);
        rebound.world.lose_every = None;
        rebound.talk(300);
        assert!(rebound.doubted.is_empty(), "{paths} paths, {talks:?}: {:?} for good", rebound.doubted);
        let (received, late) = (rebound.received, rebound.late);
        rebound.talk(100);
        let each = if talks == Talks::Both { 200 } else { 100 };
        assert!(
            rebound.received + 4 >= received + each,
            "{paths} paths, {talks:?}: {} of {each}",
            rebound.received - received
        );
        assert_eq!(rebound.late, late, "{paths} paths, {talks:?}");
        let (now, server) = (rebound.world.now, rebound.server);
        let stats = rebound.world.session(server.host, server.session).path_stats(now);
        let ends: Vec<_> = stats.iter().map(|path| path.network.remote).collect();
        let bound = |local| common::address_at(rebound.client.host, BOUND + local + 10);
        assert_eq!(ends, (0..paths).map(bound).collect::<Vec<_>>(), "the application is told the real addresses");
    }
}

/// What the peer is challenged with is answered after QUIC has given up: such an answer is worth nothing, and is not taken for one again and again.
#[test]
fn a_path_is_validated_though_it_has_become_much_longer() {
    for talks in [Talks::Client, Talks::Server, Talks::Both] {
        // Another port only: QUIC takes the path to be as it was.
        let mut rebound = Rebound::seen_as(BOUND_PORT, talks, 1);
        rebound.bind_anew(0);
        rebound.world.one_way_delay = ms(80);
        rebound.talk(300);
        assert!(rebound.doubted.is_empty(), "{talks:?}: {:?} for good", rebound.doubted);
        let received = rebound.received;
        rebound.talk(100);
        let each = if talks == Talks::Both { 200 } else { 100 };
        let more = rebound.received - received;
        assert!(more + 4 >= each, "{talks:?}: {more} of {each}");
    }
}

/// Paths that move at once need no longer than one that does: half a packet's pause more, if what finds out that the second has moved leaves last.
#[test]
fn both_that_are_bound_anew_at_once_are_trusted_again_after_one_round_trip() {
    for talks in [Talks::Client, Talks::Server, Talks::Both] {
        for phase in [0, 3, 7] {
            let mut rebound = Rebound::new(talks, 2);
            rebound.world.run(ms(phase));
            (0..2).for_each(|local| rebound.bind_anew(local));
            rebound.talk(60);
            let Rebound { doubted, mut trusted, late, .. } = rebound;
            trusted.sort_unstable();
            let soon = trusted.iter().all(|&(_, after)| after <= ROUND_TRIP + ms(15));
            assert!(doubted.is_empty() && trusted.len() == 2 && soon, "{talks:?} after {phase} ms: {trusted:?}");
            assert_eq!(late, 0, "{talks:?} after {phase} ms");
        }
    }
}
