//! What an application says of its paths: where they lead, what they cost.

mod common;

use std::{sync::Arc, time::Instant};

use common::{End, World, address, address_at, client_config, ms, outcomes, server_config};
use punctual_proto::{
    Block, Event, LocalId, NetworkPath, PathError, PathId, PathStats, SessionConfig,
    multipath::{FragmentView, PathChoice, PathHealth, PathRole, PathScheduler, PathSet, PathView},
};

const FIRST: PathId = PathId(0);

/// The cheapest path with room.
struct Cheapest;

impl PathScheduler for Cheapest {
    fn name(&self) -> &'static str {
        "cheapest"
    }

    fn choose(&mut self, _: &FragmentView, paths: &[PathView], _: Instant) -> PathChoice {
        match paths.iter().min_by(|a, b| a.cost.total_cmp(&b.cost)) {
            Some(path) if path.ready => PathChoice::Send(PathSet::one(path.id)),
            _ => PathChoice::Wait,
        }
    }
}

/// A client that has been told to connect, and the server.
fn connecting() -> (World, End, End) {
    let config = SessionConfig { path_scheduler: Arc::new(|| Box::new(Cheapest)), ..SessionConfig::default() };
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(config), server);
    (world, End { host, session }, End { host: server, session })
}

fn path(world: &mut World, end: End, local: u32, server: End) -> Result<PathId, PathError> {
    let (now, path) = (world.now, NetworkPath { local: LocalId(local), remote: address(server.host) });
    world.session(end.host, end.session).open_path(now, path)
}

fn set_cost(world: &mut World, end: End, path: PathId, cost: f64) -> Result<(), PathError> {
    let now = world.now;
    let set = world.session(end.host, end.session).set_path_cost(now, path, cost);
    world.drain();
    set
}

/// Costs, and bytes sent, of the paths of an end.
fn paths(world: &mut World, end: End) -> Vec<(PathId, f64, u64)> {
    let now = world.now;
    let stats = world.session(end.host, end.session).path_stats(now);
    world.drain();
    stats.iter().map(|path| (path.id, path.cost, path.bytes_sent)).collect()
}

#[test]
fn the_cheapest_path_can_be_told() {
    let (mut world, client, mut server) = connecting();
    // Both before there is any path.
    set_cost(&mut world, client, FIRST, 2.5).expect("it has an id");
    let second = path(&mut world, client, 1, server).expect("it can be opened");
    set_cost(&mut world, client, second, 1e9).expect("it has an id");
    server.session = world.accept(server.host);
    world.run(ms(300));
    let costs = |world: &mut World| paths(world, client).iter().map(|&(id, cost, _)| (id, cost)).collect::<Vec<_>>();
    assert_eq!(costs(&mut world), [(FIRST, 2.5), (second, 1e9)]);
    for (first, other) in [(0.5, 0.25), (0.0, 0.25)] {
        set_cost(&mut world, client, FIRST, first).expect("it is open");
        set_cost(&mut world, client, second, other).expect("it is open");
        assert_eq!(costs(&mut world), [(FIRST, first), (second, other)]);
        let before = paths(&mut world, client);
        world.send(client, Block::new(vec![1; 50_000]));
        world.run(ms(300));
        world.recv(server).expect("it came");
        for (before, after) in before.iter().zip(paths(&mut world, client)) {
            let cheap = (after.0 == FIRST) == (first < other);
            assert_eq!(after.2 - before.2 > 50_000, cheap, "{}: {} bytes", after.0, after.2 - before.2);
        }
    }
    // The server was told, for the way back; but its own application's word comes first.
    let costs = |world: &mut World| paths(world, server).iter().map(|&(_, cost, _)| cost).collect::<Vec<_>>();
    assert_eq!(costs(&mut world), [0.0, 0.25]);
    set_cost(&mut world, server, second, 3.0).expect("servers have costs, too");
    assert_eq!(costs(&mut world), [0.0, 3.0]);
}

#[test]
fn a_path_that_becomes_cheap_ends_the_wait_for_it() {
    let (mut world, client, mut server) = connecting();
    server.session = world.accept(server.host);
    let second = path(&mut world, client, 1, server).expect("it can be opened");
    world.run(ms(300));
    // Nothing comes back on the first, whose window fills.
    set_cost(&mut world, client, second, 1.0).expect("it is open");
    world.cut = Some(common::address_at(client.host, 0));
    world.send(client, Block::new(vec![1; 200_000]));
    world.run(ms(15));
    let before = paths(&mut world, client)[1].2;
    set_cost(&mut world, client, second, 0.0).expect("it is open");
    set_cost(&mut world, client, FIRST, 1.0).expect("it is open");
    assert!(paths(&mut world, client)[1].2 > before + 1_000, "at once, and not when something comes in");
}

#[test]
fn a_cost_that_is_none_is_refused() {
    let (mut world, client, server) = connecting();
    world.accept(server.host);
    for cost in [-1e-9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(set_cost(&mut world, client, FIRST, cost), Err(PathError::InvalidCost), "{cost}");
    }
    assert_eq!(set_cost(&mut world, client, PathId(1), 1.0), Err(PathError::Unknown));
    assert_eq!(paths(&mut world, client)[0].1, 0.0);
    let now = world.now;
    world.session(client.host, client.session).close(now, 0, "");
    assert_eq!(set_cost(&mut world, client, FIRST, 1.0), Err(PathError::Closed));
}

#[test]
fn no_path_is_opened_twice() {
    let (mut world, client, mut server) = connecting();
    let first = Err(PathError::AlreadyOpen(FIRST));
    assert_eq!(path(&mut world, client, 0, server), first, "in the handshake");
    let second = path(&mut world, client, 1, server).expect("it can be opened");
    assert_eq!(path(&mut world, client, 1, server), Err(PathError::AlreadyOpen(second)), "on its way");
    server.session = world.accept(server.host);
    world.run(ms(300));
    assert_eq!(path(&mut world, client, 0, server), first);
    assert_eq!(path(&mut world, client, 1, server), Err(PathError::AlreadyOpen(second)));
    assert_eq!(paths(&mut world, client).len(), 2);
    // Once it is closed, its ends are free again.
    let now = world.now;
    world.session(client.host, client.session).close_path(now, second).expect("it is not the last");
    let again = path(&mut world, client, 1, server).expect("it can be opened again");
    assert_ne!(again, second);
    world.run(ms(1_000));
    assert_eq!(paths(&mut world, client).len(), 2);
}

fn set_role(world: &mut World, end: End, path: PathId, role: PathRole) {
    let now = world.now;
    world.session(end.host, end.session).set_path_role(now, path, role).expect("it has an id");
    world.drain();
}

/// Bytes of blocks that have left on each path of an end, and how far each is trusted.
fn carried(world: &mut World, end: End) -> Vec<(u64, PathHealth)> {
    let now = world.now;
    let stats = world.session(end.host, end.session).path_stats(now);
    world.drain();
    let carried = |path: &PathStats| path.source_bytes + path.resent_bytes + path.copied_bytes + path.repair_bytes;
    stats.iter().map(|path| (carried(path), path.health)).collect()
}

/// Blocks both ways, for a second.
fn talk(world: &mut World, ends: [End; 2]) {
    for _ in 0..50 {
        for end in ends {
            world.send(end, Block::new(vec![1; 10_000]).deadline(ms(200)));
        }
        world.run(ms(20));
        for end in ends {
            world.recv_all(end);
        }
    }
}

#[test]
fn a_backup_carries_no_data_either_way_while_another_path_lives() {
    use PathHealth::{Active, Standby, Suspect};
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(SessionConfig::default()), server);
    let (client, mut server) = (End { host, session }, End { host: server, session });
    let second = path(&mut world, client, 1, server).expect("it can be opened");
    // The first, which QUIC would take for whatever it has to say.
    set_role(&mut world, client, FIRST, PathRole::Backup);
    server.session = world.accept(server.host);
    world.run(ms(300));
    let ends = [client, server];
    talk(&mut world, ends);
    for end in ends {
        let stats = carried(&mut world, end);
        assert_eq!((stats[0], stats[1].1), ((0, Standby), Active), "{stats:?}");
        assert!(stats[1].0 >= 500_000, "{stats:?}");
    }

    // What is there for that, it does.
    world.cut = Some(common::address_at(client.host, 1));
    talk(&mut world, ends);
    for end in ends {
        let stats = carried(&mut world, end);
        assert!(stats[0].0 > 400_000 && (stats[0].1, stats[1].1) == (Active, Suspect), "{stats:?}");
    }

    // The other is back, and soon known to be.
    world.cut = None;
    world.run(ms(500));
    let before = ends.map(|end| carried(&mut world, end));
    talk(&mut world, ends);
    for (end, before) in ends.into_iter().zip(before) {
        let stats = carried(&mut world, end);
        assert_eq!((stats[0], stats[1].1), ((before[0].0, Standby), Active), "{before:?}, then {stats:?}");
    }

    // Two backups are two paths.
    set_role(&mut world, client, second, PathRole::Backup);
    world.run(ms(100));
    talk(&mut world, ends);
    for end in ends {
        let stats = carried(&mut world, end);
        assert!(stats.iter().all(|&(_, health)| health == Active), "{stats:?}");
    }
}

#[test]
fn little_else_goes_over_a_backup() {
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(SessionConfig::default()), server);
    let (client, mut server) = (End { host, session }, End { host: server, session });
    set_role(&mut world, client, FIRST, PathRole::Backup);
    path(&mut world, client, 1, server).expect("it can be opened");
    server.session = world.accept(server.host);
    world.run(ms(2_000));
    let before = [client, server].map(|end| paths(&mut world, end));
    for _ in 0..500 {
        world.send(client, Block::new(vec![1; 10_000]).deadline(ms(200)));
        world.run(ms(20));
        world.recv_all(server);
    }
    for (end, before) in [client, server].into_iter().zip(before) {
        let after = paths(&mut world, end);
        let more = |n: usize| after[n].2 - before[n].2;
        // Probes, and no acknowledgements.
        assert!(more(0) < 5_000 && more(0) * 20 < more(1), "{} and {} bytes", more(0), more(1));
    }
}

/// The size of packets on the first path of an end that sends as much as it can for a time.
fn packet_size(world: &mut World, from: End, to: End, time: u64) -> u64 {
    let sent = |world: &mut World| {
        let now = world.now;
        let stats = world.session(from.host, from.session).path_stats(now);
        world.drain();
        (stats[0].bytes_sent, stats[0].packets_sent)
    };
    let before = sent(world);
    for _ in 0..time / 10 {
        world.send(from, Block::new(vec![1; 50_000]).deadline(ms(100)));
        world.run(ms(10));
        world.recv_all(to);
    }
    let after = sent(world);
    (after.0 - before.0) / (after.1 - before.1).max(1)
}

/// QUIC takes no datagram larger than the smallest MTU of all its paths, those included that are being opened. This says how long that lasts.
#[test]
fn a_new_path_makes_packets_smaller_only_until_its_mtu_is_found() {
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(SessionConfig::default()), server);
    let (client, mut server) = (End { host, session }, End { host: server, session });
    server.session = world.accept(server.host);
    packet_size(&mut world, client, server, 500);
    let full = packet_size(&mut world, client, server, 100);
    assert!(full > 1_300, "{full}");
    path(&mut world, client, 1, server).expect("it can be opened");
    // Ten round trips.
    packet_size(&mut world, client, server, 200);
    let found = packet_size(&mut world, client, server, 100);
    assert!(found > 1_300, "{found}");

    // A path over which nothing comes back: until it is given up.
    world.cut = Some(common::address_at(client.host, 2));
    let dead = path(&mut world, client, 2, server).expect("it can be opened");
    packet_size(&mut world, client, server, 200);
    let small = packet_size(&mut world, client, server, 100);
    let now = world.now;
    world.session(client.host, client.session).close_path(now, dead).expect("it is there");
    world.drain();
    packet_size(&mut world, client, server, 20);
    let again = packet_size(&mut world, client, server, 100);
    assert!(small < 1_250 && again > 1_300, "{small}, then {again}");
}

/// QUIC keeps what is never answered: a path that nothing comes from is probed ever more rarely, and closed after an hour, but not the last one.
#[test]
fn a_path_that_is_dead_for_an_hour_is_closed() {
    let (mut world, client, server) = connecting();
    let server = End { session: world.accept(server.host), ..server };
    let second = path(&mut world, client, 1, server).expect("it can be opened");
    world.run(ms(1_000));
    world.cut = Some(address_at(client.host, 1));
    let ids = |world: &mut World, end| paths(world, end).into_iter().map(|(id, ..)| id).collect::<Vec<_>>();
    let mut sent = Vec::new();
    for minute in 0..75 {
        world.send(client, Block::new(vec![1; 100]));
        world.run(ms(60_000));
        sent.extend(
            paths(&mut world, client).into_iter().filter(|(id, ..)| *id == second).map(|(.., bytes)| (minute, bytes)),
        );
    }
    let (last, bytes) = *sent.last().expect("it lived for some time");
    assert!((55..65).contains(&last), "closed in minute {last}");
    assert!(bytes < 40_000, "{bytes} bytes for nothing, ten a second");
    assert_eq!((ids(&mut world, client), ids(&mut world, server)), (vec![FIRST], vec![FIRST]));
    // It can be opened again.
    world.cut = None;
    let third = path(&mut world, client, 1, server).expect("it can be opened again");
    world.run(ms(1_000));
    assert_eq!(ids(&mut world, client), [FIRST, third]);
}

/// A peer keeps a little of each path there ever was, and would end a session that wears out too many.
#[test]
fn a_session_that_has_had_all_its_paths_keeps_those_it_has() {
    let (mut world, client, server) = connecting();
    world.accept(server.host);
    let mut opened = 0;
    let refused = loop {
        match path(&mut world, client, 1, server) {
            Ok(id) => {
                opened += 1;
                let now = world.now;
                world.session(client.host, client.session).close_path(now, id).expect("it is on its way");
            }
            Err(error) => break error,
        }
        world.drain();
        if opened % 16 == 0 {
            // Until QUIC has forgotten some.
            world.run(ms(1_000));
        }
    };
    assert_eq!(refused, PathError::Spent);
    assert_eq!(opened, 16_383, "beside the first");
    let block = world.send(client, Block::new(vec![1; 100]));
    world.run(ms(1_000));
    assert!(outcomes(&world.events_of(client.host, client.session)).contains_key(&block), "the session goes on");
}

/// noq grants an id anew when both sides have abandoned its path, and a peer that never heard of it does not (n0-computer/noq#804).
#[test]
fn a_way_that_is_dead_uses_no_ids_up_for_others() {
    let (mut world, client, mut server) = connecting();
    server.session = world.accept(server.host);
    world.run(ms(300));
    world.cut = Some(address_at(client.host, 1));
    for _ in 0..50 {
        let dead = path(&mut world, client, 1, server).expect("it can be tried");
        world.drain();
        world.run(ms(500));
        let now = world.now;
        world.session(client.host, client.session).close_path(now, dead).expect("it is not the last");
        world.run(ms(500));
    }
    let news = world.events_of(server.host, server.session);
    assert!(!news.iter().any(|event| matches!(event, Event::Path { .. })), "{news:?}");
    let other = path(&mut world, client, 2, server).expect("it can be opened");
    world.run(ms(1_000));
    for end in [client, server] {
        assert_eq!(paths(&mut world, end).len(), 2);
    }
    assert_eq!(paths(&mut world, client)[1].0, other);
}
