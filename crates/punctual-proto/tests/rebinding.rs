//! A client behind a NAT that gives its paths other ports in the midst of it.

mod common;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use common::{BOUND, End, World, address, client_config, ms, server_config};
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
        let mut world = World::new(DELAY);
        let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
        let host = world.add_endpoint(None);
        world.nat = (0..paths).map(|local| ((host, local), BOUND + local)).collect();
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
