//! Worlds with everything that happens to real paths: up to six of them, from 0.1 to 200 Mbit/s and up to 300 ms, that lose up to a third, change their MTU, flap, die one way or
//! for good; hosts that sleep, and get other addresses if it is a moving one; and blocks of up to 16 MiB.

use std::time::Duration;

use punctual_proto::Limits;
use punctual_sim::{
    HostClock, HostConfig, HostId, Jitter, LinkSpec, LogMode, Loss, PathHandle, SleepClock, World, tls,
};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;

use crate::{
    ms,
    narrow::any_limits,
    restless::{ACTIVE, Restless, at_rest, verdict},
};

/// How long things happen to paths and hosts.
const TROUBLED: Duration = Duration::from_secs(4);
/// The longest sleep: not so long that a session would be over.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// How long a world has after that to come to rest.
const PATIENCE: Duration = Duration::from_secs(900);
/// What UDP may put on a link that is to carry QUIC: 1,200 bytes.
const SMALLEST_MTU: u32 = 1_228;

/// Between two numbers, small ones as often as large ones.
fn spread(random: &mut Pcg64, from: f64, to: f64) -> f64 {
    (from.ln() + (to / from).ln() * random.random_range(0.0..1.0)).exp()
}

fn any_link(random: &mut Pcg64) -> (LinkSpec, f64) {
    let rate = spread(random, 0.1, 200.0);
    let spec = LinkSpec::new(rate, Duration::from_secs_f64(spread(random, 0.0005, 0.3)));
    let spec = match random.random_range(0..4) {
        0 => spec,
        1 => spec.loss(Loss::bursts(random.random_range(0.0..0.32), random.random_range(1.0..12.0))),
        2 => spec.loss(Loss::Bernoulli(random.random_range(0.0..0.32))),
        _ => spec.loss(Loss::Bernoulli(random.random_range(0.0..0.03))),
    };
    let sometimes =
        |random: &mut Pcg64, most: f64| if random.random_bool(0.3) { random.random_range(0.0..most) } else { 0.0 };
    let spec = if random.random_bool(0.3) { spec.jitter(Jitter::Exponential(ms(20))) } else { spec };
    let spec = if random.random_bool(0.3) { spec.queue(random.random_range(3_000..1_000_000)) } else { spec };
    let spec = if random.random_bool(0.2) { spec.ecn_threshold(10_000) } else { spec };
    let spec = if random.random_bool(0.3) { spec.mtu(random.random_range(SMALLEST_MTU..9_000)) } else { spec };
    let reordered = sometimes(random, 0.1);
    let spec = spec
        .corruption(sometimes(random, 0.05))
        .duplication(sometimes(random, 0.1))
        .reordering(reordered, ms(random.random_range(1..200)));
    (spec, rate)
}

fn moment(random: &mut Pcg64, start: Duration) -> Duration {
    start + ms(random.random_range(0..TROUBLED.as_millis() as u64))
}

/// What happens to a path, which in the end lives unless it is to `die`.
fn trouble(world: &mut World, random: &mut Pcg64, path: PathHandle, start: Duration, die: bool) {
    let (there, back) = world.path_links(path);
    let links = [there[0], back[0]];
    // It flaps: off and on, one way or both.
    if random.random_bool(0.4) {
        let [some, other] = links;
        let flaps = random.random_range(1..8);
        let both = random.random_bool(0.7);
        for _ in 0..flaps {
            let down = moment(random, start);
            let up = (down + ms(random.random_range(1..1_500))).min(start + TROUBLED);
            world.at(down, move |world| {
                world.kill_link(some);
                if both {
                    world.kill_link(other);
                }
            });
            world.at(up, move |world| {
                world.revive_link(some);
                world.revive_link(other);
            });
        }
        let end = start + TROUBLED;
        world.at(end, move |world| links.into_iter().for_each(|link| world.revive_link(link)));
    }
    for link in links {
        if random.random_bool(0.15) {
            let mtu = random.random_range(SMALLEST_MTU..1_500);
            world.at(moment(random, start), move |world| world.update_link(link, |spec| spec.mtu = mtu));
        }
        if die && random.random_bool(0.5) {
            world.at(moment(random, start) + TROUBLED, move |world| world.kill_link(link));
        }
    }
}

/// Gives the client other addresses, as a NAT does that forgets. A server's stays what it is: nobody could find it again.
fn move_client(world: &mut World, seed: u64, paths: &[PathHandle], start: Duration, client: HostId) {
    let mut random = Pcg64::new(seed.into(), 4);
    for &path in paths {
        while random.random_bool(0.25) {
            world.at(moment(&mut random, start), move |world| world.rebind(path, client));
        }
    }
}

/// Runs a world to its end; what is wrong with it, if anything. If it `moves`, the client's addresses change, too.
pub(crate) fn run(seed: u64, moves: bool, log: LogMode) -> Result<(), String> {
    let mut random = Pcg64::new(seed.into(), 3);
    let mut world = World::new(seed).with_log(log);
    let (mut client_config, mut server_config) = (tls::client_config(), tls::server_config());
    // With small limits there are no large blocks.
    let small = random.random_bool(0.5);
    let limits = |random: &mut Pcg64| if small { any_limits(random) } else { Limits::default() };
    client_config.session.limits = limits(&mut random);
    server_config.session.limits = limits(&mut random);
    let clock = |random: &mut Pcg64| {
        HostClock::ahead(Duration::from_secs(random.random_range(0..10_000)))
            .drift_ppm(random.random_range(-100.0..100.0))
    };
    let links: Vec<_> =
        (0..random.random_range(1..=6)).map(|_| [any_link(&mut random), any_link(&mut random)]).collect();
    let survivor = random.random_range(0..links.len());
    // As large as the path that lives carries within some seconds, were it to lose nothing.
    let slowest = links[survivor].iter().map(|(_, rate)| *rate).fold(f64::MAX, f64::min);
    let largest = if small { 0 } else { ((slowest * 125_000.0 * 20.0) as usize).min(16 << 20) };
    let client = HostConfig::new().clock(clock(&mut random)).app(Restless::sending(random.next_u64(), largest));
    let server = HostConfig::new()
        .clock(clock(&mut random))
        .server(server_config)
        .app(Restless::sending(random.next_u64(), largest));
    let hosts = [world.add_host(client), world.add_host(server)];
    let add = |[(there, _), (back, _)]: [(LinkSpec, f64); 2]| world.add_path(hosts[0], hosts[1], there, back);
    let paths: Vec<_> = links.into_iter().map(add).collect();
    let connection = world.connect(hosts[0], &client_config, &paths).map_err(|error| error.to_string())?;
    let start = world.handshake().map_err(|error| error.to_string())?;
    for (index, &path) in paths.iter().enumerate() {
        let die = index != survivor && random.random_bool(0.5);
        trouble(&mut world, &mut random, path, start, die);
    }
    if moves {
        move_client(&mut world, seed, &paths, start, hosts[0]);
    }
    if random.random_bool(0.2) {
        let sleeper = hosts[random.random_range(0..2)];
        let long = ms(random.random_range(1..LONGEST_SLEEP.as_millis() as u64));
        let clock = if random.random_bool(0.5) { SleepClock::GoesOn } else { SleepClock::Stands };
        world.at(moment(&mut random, start), move |world| world.sleep(sleeper, long, clock));
    }
    let sessions = [world.client(connection), world.server(connection).expect("the server has the session")];

    // Nobody is asked anything in his sleep.
    let awake = start + ACTIVE + TROUBLED + LONGEST_SLEEP;
    world.run_until(awake);
    while world.now() < awake + PATIENCE && !at_rest(&mut world, &sessions) {
        world.run_for(ms(200));
    }
    // What is on its way twice must not turn up again.
    world.run_for(ms(1_000));
    let result = verdict(&mut world, &sessions);
    if result.is_err() && log == LogMode::Full {
        println!("{}", world.log());
    }
    result
}
