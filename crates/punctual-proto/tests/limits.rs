//! What a controller hears of its path being used less than it could be.

mod common;

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use common::{End, World, address, client_config, ms, server_config};
use punctual_proto::{
    Block, LocalId, NetworkPath, Rate, Redundancy, SessionConfig,
    congestion::{Congestion, Driver, PathState},
    multipath::{FragmentView, PathChoice, PathId, PathScheduler, PathSet, PathView},
};

/// A controller that lets 100 KB leave each second, and counts how often it is told that there was no more to send.
#[derive(Debug)]
struct Counting {
    index: usize,
    dry: Arc<Mutex<[u32; 2]>>,
}

fn pace() -> Rate {
    Rate::from_bytes_per_second(100e3)
}

impl Driver for Counting {
    fn on_dry(&mut self) {
        self.dry.lock().expect("no test has failed yet")[self.index] += 1;
    }

    fn rate(&self, _: Instant, _: &PathState) -> Rate {
        pace()
    }

    fn pace(&self, _: Instant, _: &PathState) -> Rate {
        pace()
    }

    fn window(&self, _: &PathState) -> u64 {
        1 << 30
    }
}

/// The first path and no other.
struct First;

impl PathScheduler for First {
    fn name(&self) -> &'static str {
        "first"
    }

    fn choose(&mut self, _: &FragmentView, paths: &[PathView], _: Instant) -> PathChoice {
        match paths.iter().find(|path| path.id == PathId(0)) {
            Some(path) if path.ready => PathChoice::Send(PathSet::one(path.id)),
            _ => PathChoice::Wait,
        }
    }
}

/// A client with two paths of which it uses the first, and how often each controller is told that there was no more to send.
fn connected() -> (World, End, impl Fn() -> [u32; 2]) {
    let dry = Arc::new(Mutex::new([0; 2]));
    let of = dry.clone();
    let config = SessionConfig {
        congestion: Congestion::Reports(Arc::new(move |index, _| Box::new(Counting { index, dry: of.clone() }))),
        path_scheduler: Arc::new(|| Box::new(First)),
        ..SessionConfig::default()
    };
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(config), server);
    world.accept(server);
    let (now, path) = (world.now, NetworkPath { local: LocalId(1), remote: address(server) });
    world.session(host, session).open_path(now, path).expect("it can be opened");
    world.run(ms(1_000));
    let take = move || std::mem::take(&mut *dry.lock().expect("no test has failed yet"));
    take();
    (world, End { host, session }, take)
}

#[test]
fn pacing_is_no_lack_of_data_and_idleness_is() {
    let (mut world, client, take) = connected();
    world.send(client, Block::new(vec![7; 60_000]));
    world.run(ms(500));
    let [waited_for, idle] = take();
    assert_eq!(waited_for, 0, "there is more to send, as soon as pacing lets it");
    // What it delivers is not what it carries, whoever wants it so.
    assert!(idle > 0, "that the other is left idle it has to know");
    world.run(ms(1_000));
    assert!(take()[0] > 0, "all has left");
}

#[test]
fn repair_fragments_that_pacing_holds_back_are_no_lack_of_data() {
    let (mut world, client, take) = connected();
    world.send(client, Block::new(vec![7; 6_000]).deadline(ms(5_000)).redundancy(Redundancy::Duplicate));
    // How many bytes of copies had left after each millisecond, and what was said meanwhile.
    let mut steps = Vec::new();
    for _ in 0..300 {
        world.run(ms(1));
        let copied = world.session(client.host, client.session).stats().repair_bytes;
        steps.push((copied, take()[0]));
    }
    let all = steps.last().map_or(0, |step| step.0);
    assert!(all >= 6_000, "{all}");
    assert!(steps.iter().all(|&(copied, dry)| copied == all || dry == 0), "{steps:?}");
    assert!(steps.iter().any(|step| step.1 > 0), "once all have left there is no more");
}
