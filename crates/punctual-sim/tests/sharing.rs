//! Whether paths that share a bottleneck are found to, and others are not, over random networks.

mod common;

use std::{ops::RangeInclusive, time::Duration};

use common::*;
use punctual_proto::{Block, PathId};
use punctual_sim::{CrossTraffic, HostConfig, Jitter, LinkSpec, World, tls};

/// Where the queues of two paths are, and who fills them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Network {
    /// In a link that both go through, which others use, too.
    Shared,
    /// The same without others.
    SharedAlone,
    /// Each in a link of its own, which others use, too.
    Apart,
    /// The same without others.
    ApartAlone,
    /// Nowhere: each has a link of its own that is fast enough for all.
    Idle,
}

/// How long a session is, seconds.
const SECONDS: u64 = 30;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Of a link.
    fn jitter(&mut self) -> Jitter {
        let most = Duration::from_micros(self.below(4_000));
        [Jitter::None, Jitter::Uniform(most), Jitter::Exponential(most)][self.below(3) as usize]
    }

    /// Of a link of that rate, between 40 and 240 ms.
    fn queue(&mut self, mbps: f64) -> u64 {
        (mbps * 125.0 * (40 + self.below(200)) as f64) as u64
    }

    /// What fills such a link now and then.
    fn others(&mut self, mbps: f64) -> CrossTraffic {
        let rate = mbps * (80 + self.below(80)) as f64 / 100.0;
        CrossTraffic::bursts(rate, ms(100 + self.below(600)), ms(200 + self.below(1_000)))
    }
}

/// Every thirtieth frame is four times as large as the others.
fn with_key_frames(block: Block, index: u64, _: Option<punctual_proto::BlockId>) -> Block {
    let times = if index.is_multiple_of(30) { 4 } else { 1 };
    Block::new(vec![7; block.data.len() * times]).deadline(ms(150))
}

/// For each second, whether the two paths were held to share a bottleneck at its end.
fn run(network: Network, seed: u64) -> Vec<bool> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let rate = 4.0 + dice.below(160) as f64 / 10.0;
    let load = (20 + dice.below(80)) as f64 / 100.0;
    let frame = Block::new(vec![7; (rate * load * 1e6 / 8.0 / 30.0) as usize]).deadline(ms(150));
    let mut source = Source::new(frame, ms(33), SECONDS * 30);
    if dice.below(2) == 0 {
        source = source.vary(with_key_frames);
    }
    let mut world = World::new(seed);
    let client = world.add_host(HostConfig::new().app(source));
    let server = world.add_host(HostConfig::new().server(tls::server_config()).app(Sink::default()));
    let mast = matches!(network, Network::Shared | Network::SharedAlone).then(|| {
        let mast = world.add_link(LinkSpec::new(rate, ms(5)).queue(dice.queue(rate)));
        if network == Network::Shared {
            world.add_cross_traffic(mast, dice.others(rate));
        }
        mast
    });
    let paths = [(); 2].map(|()| {
        let own = match network {
            Network::Shared | Network::SharedAlone => rate * 2.0,
            Network::Apart | Network::ApartAlone => rate * (40 + dice.below(30)) as f64 / 100.0,
            Network::Idle => rate * 3.0,
        };
        let spec = LinkSpec::new(own, ms(2 + dice.below(40))).jitter(dice.jitter()).queue(dice.queue(own));
        let link = world.add_link(spec);
        if network == Network::Apart {
            world.add_cross_traffic(link, dice.others(own));
        }
        let back = world.add_link(LinkSpec::unlimited(ms(15)));
        let there: Vec<_> = [Some(link), mast].into_iter().flatten().collect();
        world.join(client, server, &there, &[back])
    });
    let connection = world.connect(client, &tls::client_config(), &paths).expect("a session can be started");
    world.handshake().expect("the handshake succeeds");
    let (_, session) = world.client(connection);
    let second = |_| {
        world.run_for(ms(1_000));
        let stats = world.enter(client, |cx| {
            let now = cx.instant();
            cx.session(session).expect("it is open").path_stats(now)
        });
        let found: Vec<_> = stats.iter().map(|path| path.bottleneck).collect();
        assert!(found == [None; 2] || found == [Some(PathId(0)); 2], "{found:?}");
        found[0].is_some()
    };
    (0..SECONDS).map(second).collect()
}

/// Of so many networks, in how many the paths were held to share a bottleneck at some time, and at the end.
fn found(network: Network, seeds: RangeInclusive<u64>) -> (usize, usize) {
    let runs: Vec<_> = seeds.map(|seed| run(network, seed)).collect();
    let networks = runs.len();
    let ever = runs.iter().filter(|run| run.contains(&true)).count();
    let end = runs.iter().filter(|run| run.last() == Some(&true)).count();
    let mut first: Vec<_> = runs.iter().filter_map(|run| run.iter().position(|found| *found)).collect();
    first.sort_unstable();
    let median = first.get(first.len() / 2).map(|second| second + 1);
    let seconds = runs.iter().flatten().filter(|found| **found).count() as f64 / (SECONDS as usize * networks) as f64;
    println!(
        "{network:?}: {ever} of {networks} at some time, {end} at the end, {:.1} % of the time, in the median after {median:?} s",
        100.0 * seconds
    );
    (ever, end)
}

#[test]
fn a_queue_that_others_fill_is_found_to_be_shared() {
    let (ever, end) = found(Network::Shared, 1..=6);
    assert!(ever >= 5 && end >= 4, "{ever} {end}");
}

#[test]
fn queues_of_their_own_are_not_found_to_be_shared() {
    let (_, congested) = found(Network::Apart, 1..=6);
    let (_, alone) = found(Network::ApartAlone, 1..=6);
    assert!(congested == 0 && alone <= 1, "{congested} {alone}");
}

#[test]
fn where_nothing_waits_nothing_is_found() {
    assert_eq!(found(Network::Idle, 1..=4).0, 0);
}

/// The rates in the documentation, of networks on which nothing was tuned: `cargo test --release -p punctual-sim --test sharing -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn rates() {
    for network in [Network::Shared, Network::SharedAlone, Network::Apart, Network::ApartAlone, Network::Idle] {
        found(network, 101..=200);
    }
}
