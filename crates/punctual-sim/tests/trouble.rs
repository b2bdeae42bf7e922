//! Hosts that sleep, and paths that a NAT gives another address: what comes of sessions over them.

mod common;

use common::*;
use punctual_proto::{Block, Event, Outcome};
use punctual_sim::{HostConfig, LinkSpec, SleepClock, World, tls};

/// A world of so many paths, and what has become of 40 blocks sent one after the other, 100 ms apart, from a client and from a server: those delivered.
fn delivered(
    paths: u32,
    from_server: bool,
    trouble: impl Fn(&mut World, &[punctual_sim::PathHandle], [punctual_sim::HostId; 2]),
) -> usize {
    let mut world = World::new(u64::from(paths));
    let client = world.add_host(HostConfig::new());
    let server = world.add_host(HostConfig::new().server(tls::server_config()));
    let link = || LinkSpec::new(10.0, ms(20));
    let paths: Vec<_> = (0..paths).map(|_| world.add_path(client, server, link(), link())).collect();
    let connection = world.connect(client, &tls::client_config(), &paths).unwrap();
    world.handshake().unwrap();
    let ends = [world.client(connection), world.server(connection).unwrap()];
    trouble(&mut world, &paths, [client, server]);
    let (from, to) = if from_server { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
    let mut ended = Vec::new();
    for _ in 0..40 {
        let _ = world.enter(from.0, |cx| cx.send(from.1, Block::new(vec![0; 5_000])));
        world.run_for(ms(100));
        world.enter(to.0, |cx| while cx.recv(to.1).is_some() {});
    }
    for _ in 0..400 {
        world.run_for(ms(100));
        world.enter(to.0, |cx| while cx.recv(to.1).is_some() {});
    }
    ended.extend(world.take_events(from.0));
    ended.iter().filter(|(.., event)| matches!(event, Event::Outcome { outcome: Outcome::Delivered(_), .. })).count()
}

#[test]
fn a_path_with_another_address_goes_on() {
    for (paths, from_server, times) in [
        (1, false, 1),
        (1, true, 1),
        (2, false, 1),
        (2, true, 1),
        (1, false, 3),
        (1, true, 3),
        (3, false, 3),
        (3, true, 3),
    ] {
        let delivered = delivered(paths, from_server, |world, paths, [client, _]| {
            let begin = world.now();
            for n in 0..times {
                for &path in paths {
                    world.at(begin + ms(1_000 + 37 * n), move |world| world.rebind(path, client));
                }
            }
        });
        println!("{paths} {from_server} {times}: {delivered}");
        assert_eq!(delivered, 40, "{paths} paths, from the server: {from_server}, {times} times");
    }
}

#[test]
fn a_host_that_slept_goes_on() {
    for clock in [SleepClock::GoesOn, SleepClock::Stands] {
        for sleeper in [0, 1] {
            let delivered = delivered(2, false, |world, _, hosts| {
                let begin = world.now();
                world.at(begin + ms(1_000), move |world| world.sleep(hosts[sleeper], ms(3_000), clock));
            });
            assert_eq!(delivered, 40, "{clock:?} {sleeper}");
        }
    }
}
