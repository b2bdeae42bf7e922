//! Worlds in which everything happens soon: up to three paths of ordinary rates and delays, small limits, and a minute to come to rest.

use std::time::Duration;

use punctual_proto::Limits;
use punctual_sim::{HostClock, HostConfig, Jitter, LinkSpec, LogMode, Loss, World, tls};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;

use crate::{
    ms,
    restless::{ACTIVE, Restless, at_rest, verdict},
};

/// How long a world has after that to come to rest. (A sender that backs off under loss takes its time.)
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest mean burst of losses, packets.
const BURST: f64 = 8.0;

/// A link on which losses in a row, where there are any, are fewer than `burst` on average.
pub(crate) fn any_link(random: &mut Pcg64, burst: f64) -> LinkSpec {
    let spec = LinkSpec::new(random.random_range(0.5..12.0), ms(random.random_range(1..80)));
    let spec = match random.random_range(0..4) {
        0 => spec,
        1 => spec.loss(Loss::bursts(random.random_range(0.0..0.2), random.random_range(1.0..burst))),
        _ => spec.loss(Loss::Bernoulli(random.random_range(0.0..0.2))),
    };
    let sometimes =
        |random: &mut Pcg64, most: f64| if random.random_bool(0.5) { random.random_range(0.0..most) } else { 0.0 };
    let spec = if random.random_bool(0.3) { spec.jitter(Jitter::Exponential(ms(5))) } else { spec };
    let spec = if random.random_bool(0.3) { spec.queue(random.random_range(3_000..60_000)) } else { spec };
    let spec = if random.random_bool(0.3) { spec.ecn_threshold(10_000) } else { spec };
    let reordered = sometimes(random, 0.1);
    spec.corruption(sometimes(random, 0.05))
        .duplication(sometimes(random, 0.1))
        .reordering(reordered, ms(random.random_range(1..50)))
}

/// Small limits, so that they are met.
pub(crate) fn any_limits(random: &mut Pcg64) -> Limits {
    if random.random_bool(0.5) {
        return Limits::default();
    }
    Limits::default()
        .max_block_size(40_000)
        .receive_bytes(random.random_range(40_000..400_000))
        .receive_blocks(random.random_range(4..64))
        .send_bytes(random.random_range(40_000..400_000))
        .send_blocks(random.random_range(4..64))
}

/// Runs a world to its end; what is wrong with it, if anything.
pub(crate) fn run(seed: u64, log: LogMode) -> Result<(), String> {
    let mut random = Pcg64::new(seed.into(), 1);
    let mut world = World::new(seed).with_log(log);
    let (mut client_config, mut server_config) = (tls::client_config(), tls::server_config());
    client_config.session.limits = any_limits(&mut random);
    server_config.session.limits = any_limits(&mut random);
    let clock = |random: &mut Pcg64| {
        HostClock::ahead(Duration::from_secs(random.random_range(0..10_000)))
            .drift_ppm(random.random_range(-100.0..100.0))
    };
    let client = HostConfig::new().clock(clock(&mut random)).app(Restless::new(random.next_u64()));
    let server =
        HostConfig::new().clock(clock(&mut random)).server(server_config).app(Restless::new(random.next_u64()));
    let hosts = [world.add_host(client), world.add_host(server)];
    let paths: Vec<_> = (0..random.random_range(1..=3))
        .map(|_| world.add_path(hosts[0], hosts[1], any_link(&mut random, BURST), any_link(&mut random, BURST)))
        .collect();
    let connection = world.connect(hosts[0], &client_config, &paths).map_err(|error| error.to_string())?;
    let start = world.handshake().map_err(|error| error.to_string())?;
    for &path in &paths {
        if random.random_bool(0.4) {
            let death = start + ms(random.random_range(0..1_500));
            let rebirth = death + ms(random.random_range(1..1_500));
            world.at(death, move |world| world.kill_path(path));
            world.at(rebirth, move |world| world.revive_path(path));
        }
    }
    // All paths but one may die for good, both ways or one.
    let mut fate = Pcg64::new(seed.into(), 2);
    let survivor = fate.random_range(0..paths.len());
    for (_, &path) in paths.iter().enumerate().filter(|(at, _)| *at != survivor) {
        let (to, back) = world.path_links(path);
        for link in [to, back].concat() {
            if fate.random_bool(0.3) {
                world.at(start + ms(fate.random_range(0..3_500)), move |world| world.kill_link(link));
            }
        }
    }
    let sessions = [world.client(connection), world.server(connection).expect("the server has the session")];

    world.run_until(start + ACTIVE);
    while world.now() < start + ACTIVE + PATIENCE && !at_rest(&mut world, &sessions) {
        world.run_for(ms(50));
    }
    // What is on its way twice must not turn up again.
    world.run_for(ms(300));
    let result = verdict(&mut world, &sessions);
    if result.is_err() && log == LogMode::Full {
        println!("{}", world.log());
    }
    result
}
