//! Hosts that sleep, and paths that a NAT gives another address: what comes of sessions over them.

mod common;

use std::{collections::BTreeMap, time::Duration};

use common::*;
use punctual_proto::{Block, Event, Outcome};
use punctual_sim::{HostConfig, LinkSpec, Loss, SleepClock, World, tls};

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

/// 20 KB, 30 times a second, each of use for 200 ms, from the client or from the server; after three seconds the client's address changes on the paths in `moved`.
/// Which of those handed over after that are not there in time.
fn missed(seed: u64, links: &[LinkSpec], from_server: bool, moved: &[usize]) -> Vec<Duration> {
    let mut world = World::new(seed);
    let client = world.add_host(HostConfig::new());
    let server = world.add_host(HostConfig::new().server(tls::server_config()));
    let paths: Vec<_> = links.iter().map(|link| world.add_path(client, server, link.clone(), link.clone())).collect();
    let connection = world.connect(client, &tls::client_config(), &paths).unwrap();
    world.handshake().unwrap();
    let ends = [world.client(connection), world.server(connection).unwrap()];
    let (from, to) = if from_server { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
    let moment = world.now() + ms(3_000);
    for &index in moved {
        let path = paths[index];
        world.at(moment, move |world| world.rebind(path, client));
    }
    let mut sent = BTreeMap::new();
    for _ in 0..300 {
        let block = Block::new(vec![0; 20_000]).deadline(ms(200));
        let id = world.enter(from.0, |cx| cx.send(from.1, block)).expect("there is room");
        sent.insert(id, world.now());
        world.run_for(ms(33));
        world.enter(to.0, |cx| while cx.recv(to.1).is_some() {});
    }
    world.run_for(ms(2_000));
    for (.., event) in world.take_events(from.0) {
        if let Event::Outcome { id, outcome: Outcome::Delivered(delivery), .. } = event
            && delivery.on_time()
        {
            sent.remove(&id);
        }
    }
    sent.into_values().filter_map(|at| at.checked_sub(moment)).collect()
}

/// What is behind the NAT merely receives, and has nothing under way that could be missed: it asks by itself whether it can still be reached.
#[test]
fn a_nat_that_forgets_costs_little() {
    for delay in [2, 5, 20, 60] {
        let link = LinkSpec::new(20.0, ms(delay));
        for from_server in [false, true] {
            for (paths, moved) in [(1, &[0][..]), (2, &[0]), (2, &[1]), (2, &[0, 1])] {
                let missed = missed(1, &vec![link.clone(); paths], from_server, moved);
                let case = format!("{delay} ms, {paths} paths, from the server: {from_server}, {moved:?} moved");
                // It notices after 100 ms, and until the sender knows another round trip has passed.
                assert!(missed.last().is_none_or(|last| *last < ms(100 + 2 * delay)), "{case}: {missed:?}");
                assert!(moved.len() == paths || missed.is_empty(), "{case}: {missed:?}");
            }
        }
    }
}

/// The server may hardly send to where the client is now, for what should show that it is there is lost. That holds up nothing that has another way.
#[test]
fn a_path_that_is_not_validated_holds_up_no_other() {
    let link = LinkSpec::new(20.0, ms(20)).loss(Loss::Bernoulli(0.05));
    for seed in 10..20 {
        let missed = missed(seed, &[link.clone(), link.clone()], true, &[0]);
        assert!(missed.len() <= 2, "seed {seed}: {missed:?}");
    }
}
