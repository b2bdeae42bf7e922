//! How sessions begin to be of use, and how they end: nothing is delivered to nobody, a peaceful end waits for the application, and the peer hears of every end.

mod common;

use std::time::Duration;

use common::{End, HostId, World, address, address_at, client_config, ms, server_config};
use punctual_proto::{Block, CloseReason, Event, LocalId, NetworkPath, Outcome, SendError, SessionConfig};

/// A client and a server; `holds` tells whether the server waits for sessions to be accepted.
fn joined(holds: bool) -> (World, End, End) {
    let mut world = World::new(ms(10));
    let mut config = server_config(SessionConfig::default());
    if holds {
        config = config.wait_for_acceptance();
    }
    let server = world.add_endpoint(Some(config));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(SessionConfig::default()), server);
    let theirs = world.accept(server);
    (world, End { host, session }, End { host: server, session: theirs })
}

fn finish(world: &mut World, end: End) {
    let now = world.now;
    world.session(end.host, end.session).finish(now);
}

fn catch_up(world: &mut World, end: End) -> bool {
    let now = world.now;
    world.session(end.host, end.session).caught_up(now)
}

fn close(world: &mut World, end: End) {
    let now = world.now;
    world.session(end.host, end.session).close(now, 7, "enough");
}

fn closed(events: &[Event]) -> Option<&CloseReason> {
    events.iter().find_map(|event| if let Event::Closed(reason) = event { Some(reason) } else { None })
}

#[test]
fn nothing_is_delivered_before_the_session_is_accepted() {
    let (mut world, from, to) = joined(true);
    let kept = world.send(from, Block::new(vec![1; 5_000]));
    let urgent = world.send(from, Block::new(vec![1; 5_000]).deadline(ms(100)));
    world.run(ms(1_000));
    let outcomes = common::outcomes(&world.events_of(from.host, from.session));
    assert!(!outcomes.contains_key(&kept), "it waits");
    assert!(matches!(outcomes[&urgent], Outcome::Dropped { .. }), "nobody was there to take it");
    assert_eq!(world.session(to.host, to.session).stats().live_in_bytes, 0);
    let now = world.now;
    world.session(to.host, to.session).accept(now);
    world.run(ms(100));
    assert_eq!(world.recv(to).map(|block| block.id), Some(kept));
    world.run(ms(100));
    common::delivery(common::outcomes(&world.events_of(from.host, from.session)).get(&kept));
    // Twice does no harm.
    world.session(to.host, to.session).accept(now);
    world.run(ms(100));
    assert_eq!(closed(&world.events_of(from.host, from.session)), None);
}

fn is_taken(world: &mut World, from: End) -> bool {
    world.run(ms(100));
    world.events_of(from.host, from.session).contains(&Event::Taken)
}

#[test]
fn the_end_waits_until_everything_is_given_to_the_application() {
    let (mut world, from, to) = joined(false);
    world.send(from, Block::new("first"));
    let last = world.send(from, Block::new(vec![1; 5_000]));
    finish(&mut world, from);
    assert!(matches!(world.try_send(from, Block::new("more")), Err(SendError::Closed)));
    world.run(ms(1_000));
    let events = world.events_of(from.host, from.session);
    common::delivery(common::outcomes(&events).get(&last));
    assert!(!events.contains(&Event::Taken), "nobody has read them");
    assert!(!catch_up(&mut world, to), "there is something to read");
    assert!(world.recv(to).is_some());
    assert!(!is_taken(&mut world, from), "one is left");
    assert!(world.recv(to).is_some());
    assert!(is_taken(&mut world, from));
    assert!(!catch_up(&mut world, to), "said once");
}

#[test]
fn what_was_given_before_the_peer_finished_is_taken() {
    let (mut world, from, to) = joined(false);
    world.send(from, Block::new("only"));
    world.run(ms(100));
    assert!(world.recv(to).is_some());
    finish(&mut world, from);
    assert!(is_taken(&mut world, from));
}

#[test]
fn an_application_that_says_itself_what_it_has_dealt_with_is_waited_for() {
    for early in [false, true] {
        let (mut world, from, to) = joined(false);
        world.session(to.host, to.session).confirm_by_word();
        world.send(from, Block::new("only"));
        world.run(ms(100));
        if early {
            assert!(world.recv(to).is_some());
            assert!(!catch_up(&mut world, to), "nobody has asked yet");
        }
        world.take_events(to.host);
        finish(&mut world, from);
        assert!(!is_taken(&mut world, from));
        assert!(world.events_of(to.host, to.session).contains(&Event::Readable), "it is to look again");
        if !early {
            assert!(world.recv(to).is_some());
        }
        assert!(!is_taken(&mut world, from), "given is not dealt with");
        assert!(catch_up(&mut world, to), "it is waited for");
        assert!(is_taken(&mut world, from));
    }
}

#[test]
fn who_has_sent_nothing_has_nothing_to_wait_for() {
    let (mut world, from, _) = joined(false);
    finish(&mut world, from);
    assert!(world.events_of(from.host, from.session).contains(&Event::Taken));
}

#[test]
fn each_direction_has_an_end_of_its_own() {
    let (mut world, from, to) = joined(false);
    let has_finished = |world: &mut World, end: End| world.session(end.host, end.session).peer_has_finished();
    // The client never had anything to say.
    world.take_events(to.host);
    finish(&mut world, from);
    world.run(ms(100));
    assert!(world.events_of(to.host, to.session).contains(&Event::Readable), "it is to look");
    assert!(has_finished(&mut world, to) && !has_finished(&mut world, from));
    // The server goes on.
    for n in 0..3 {
        world.send(to, Block::new(vec![n; 5_000]));
    }
    finish(&mut world, to);
    world.run(ms(200));
    for n in 0..3 {
        assert!(!has_finished(&mut world, from), "there is something to read");
        assert_eq!(world.recv(from).expect("it is there").data[0], n);
    }
    assert!(has_finished(&mut world, from));
    assert!(is_taken(&mut world, to));
    assert_eq!(closed(&world.take_events(to.host).into_iter().map(|(_, event)| event).collect::<Vec<_>>()), None);
}

/// Whether the server hears of the end if the first `lost` datagrams of it are lost.
fn hears_of_the_end(lost: u64) -> bool {
    let (mut world, from, to) = joined(false);
    world.run(ms(500));
    let before = world.packets_sent[from.host];
    close(&mut world, from);
    world.cut = Some(address_at(from.host, 0));
    world.run_until(ms(2_000), |world| world.packets_sent[from.host] >= before + lost);
    world.cut = None;
    world.run(ms(2_000));
    closed(&world.events_of(to.host, to.session)).is_some()
}

#[test]
fn a_lost_farewell_is_said_again() {
    assert!(hears_of_the_end(1));
    assert!(hears_of_the_end(2));
}

/// Both paths end at address `remote` of the server.
fn two_paths(remote: u32) -> (World, End, End) {
    let (mut world, from, to) = joined(false);
    let path = NetworkPath { local: LocalId(1), remote: address_at(to.host, remote) };
    let now = world.now;
    world.session(from.host, from.session).open_path(now, path).expect("a path");
    world.run(ms(500));
    (world, from, to)
}

fn assert_heard(world: &mut World, to: End) {
    world.run(ms(500));
    let reason = CloseReason::Peer { code: 7, reason: "enough".into() };
    assert_eq!(closed(&world.events_of(to.host, to.session)), Some(&reason));
}

#[test]
fn the_farewell_goes_over_a_path_that_lives() {
    for dead in [0, 1] {
        let (mut world, from, to) = two_paths(1);
        world.cut = Some(address_at(from.host, dead));
        for _ in 0..20 {
            world.send(from, Block::new(vec![1; 5_000]));
            world.run(ms(50));
        }
        close(&mut world, from);
        assert_heard(&mut world, to);
    }
}

#[test]
fn the_farewell_goes_over_each_path_to_the_same_address() {
    for dead in [0, 1] {
        let (mut world, from, to) = two_paths(0);
        // Nobody knows it yet.
        world.cut = Some(address_at(from.host, dead));
        close(&mut world, from);
        assert_heard(&mut world, to);
    }
}

#[test]
fn the_peer_has_been_told_within_moments() {
    for mut case in [joined(false), two_paths(0), two_paths(1)] {
        let (world, from) = (&mut case.0, case.1);
        close(world, from);
        assert!(!has_parted(world, from.host));
        world.run(ms(250));
        assert!(has_parted(world, from.host));
    }
}

fn has_parted(world: &mut World, host: HostId) -> bool {
    world.endpoint(host).has_parted()
}

#[test]
fn a_session_in_its_handshake_is_closed_with_all_others() {
    let mut world = World::new(Duration::from_millis(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    world.connect(host, &client_config(SessionConfig::default()), server);
    world.run(ms(15));
    // The client is gone; the server has heard of it once.
    world.cut = Some(address_at(host, 0));
    assert_eq!(world.endpoint(server).sessions(), 1);
    let now = world.now;
    world.endpoint(server).close_all(now, 0, "");
    world.run(ms(500));
    assert!(has_parted(&mut world, server));
}

/// Two attempts at a server succeed with the same turn, and one of them is given up (as by who tries several paths at once): it has answered nothing yet, and has keys of each level. Once it
/// sent farewells without end, a hundred thousand a second.
#[test]
fn who_closes_with_the_first_answer_says_so_a_few_times() {
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let (config, mut now) = (client_config(SessionConfig::default()), world.now);
    let path = |to| NetworkPath { local: LocalId(0), remote: common::address(to) };
    let session = world.endpoint(host).connect(now, &config, path(server), common::SERVER_NAME).expect("it can begin");
    let exchange = |from: HostId, to: HostId, now, world: &mut World| {
        let (mut sent, mut buf) = (0, Vec::new());
        while let Some(transmit) = world.endpoint(from).poll_transmit(now, &mut buf) {
            sent += 1;
            assert!(sent < 100, "without end");
            let datagram = buf[..transmit.size].iter().copied().collect();
            world.endpoint(to).handle_datagram(now, path(from), transmit.ecn, datagram);
            buf.clear();
        }
        sent
    };
    exchange(host, server, now, &mut world);
    now += ms(10);
    exchange(server, host, now, &mut world);
    world.session(host, session).close(now, 7, "enough");
    let mut farewells = 0;
    for _ in 0..500 {
        farewells += exchange(host, server, now, &mut world);
        exchange(server, host, now, &mut world);
        now += ms(10);
        world.endpoint(host).handle_timeout(now);
        world.endpoint(server).handle_timeout(now);
    }
    assert!((1..=9).contains(&farewells), "{farewells}");
    world.now = now;
    world.drain();
    let ends = world.take_events(server);
    let knows =
        |(_, event): &(_, Event)| matches!(event, Event::Closed(CloseReason::Transport(_) | CloseReason::Peer { .. }));
    assert!(ends.iter().any(knows), "the server is told: {ends:?}");
}

/// Whoever looks for another way to a peer that is gone finds out no later that it is: a path that was just opened has a long probe timeout, which QUIC would wait for three times over.
#[test]
fn other_ways_that_are_tried_make_no_dead_session_last() {
    let idle = ms(10_000);
    let mut world = World::new(ms(20));
    let config = SessionConfig { idle_timeout: idle, ..SessionConfig::default() };
    let server = world.add_endpoint(Some(server_config(config.clone())));
    let client = world.add_endpoint(None);
    let session = world.connect(client, &client_config(config), server);
    world.accept(server);
    let end = End { host: client, session };
    world.send(end, Block::new(vec![1; 1_000]));
    world.run(ms(200));
    world.cut = Some(address(server));
    let begin = world.now;
    let mut ended = None;
    for step in 1..=1_500 {
        if ended.is_some() {
            break;
        }
        let _ = world.try_send(end, Block::new(vec![1; 10_000]).deadline(ms(200)));
        world.run(ms(33));
        if step % 100 == 0 {
            let (now, local) = (world.now, LocalId(step / 100));
            let _ = world.session(client, session).open_path(now, NetworkPath { local, remote: address(server) });
        }
        let events = world.events_of(client, session);
        ended = events.into_iter().find_map(|event| match event {
            Event::Closed(reason) => Some((reason, world.now - begin)),
            _ => None,
        });
    }
    let (reason, after) = ended.expect("it ends");
    assert_eq!(reason, CloseReason::TimedOut);
    assert!((idle..idle + ms(500)).contains(&after), "after {after:?}");
}

/// Who closes as soon as its application has taken everything says so to nobody if that word is lost.
#[test]
fn it_is_known_whether_the_peer_has_heard_that_all_is_taken() {
    for lost in 0..4 {
        let (mut world, from, to) = joined(false);
        let awaits = |world: &mut World| world.session(from.host, from.session).awaits_hearing();
        finish(&mut world, from);
        world.send(to, Block::new("an answer"));
        finish(&mut world, to);
        world.run(ms(500));
        assert!(!awaits(&mut world), "nothing has been taken");
        world.take_events(to.host);
        let before = world.packets_sent[from.host];
        world.cut = (lost > 0).then(|| address_at(from.host, 0));
        assert!(world.recv(from).is_some());
        world.run_until(ms(10_000), |world| world.packets_sent[from.host] >= before + lost);
        assert!(awaits(&mut world), "{lost}");
        assert!(!world.events_of(from.host, from.session).contains(&Event::Heard), "{lost}");
        world.cut = None;
        world.run(ms(3_000));
        assert!(!awaits(&mut world), "{lost}");
        assert!(world.events_of(from.host, from.session).contains(&Event::Heard), "{lost}");
        assert!(world.events_of(to.host, to.session).contains(&Event::Taken), "{lost}");
        close(&mut world, from);
        assert!(!awaits(&mut world), "closed");
    }
}

/// A server that takes its time to accept says its settings before what it has said of the end.
#[test]
fn that_all_is_taken_is_heard_whenever_the_session_was_accepted() {
    let (mut world, from, to) = joined(true);
    finish(&mut world, from);
    world.run(ms(200));
    let now = world.now;
    world.session(to.host, to.session).accept(now);
    world.run(ms(500));
    assert!(!world.session(to.host, to.session).awaits_hearing());
    assert!(world.events_of(to.host, to.session).contains(&Event::Heard));
}

/// How long QUIC keeps a connection that is closed hangs on round trips, and so on how late the peer answers: half a minute here, where that takes three seconds.
#[test]
fn what_is_over_is_forgotten_however_slow_the_peer_is() {
    let mut world = World::new(ms(1_500));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(SessionConfig::default()), server);
    world.run(ms(8_000));
    let client = End { host, session };
    let connected = world.events_of(host, session);
    assert!(connected.iter().any(|event| matches!(event, Event::Connected { .. })), "{connected:?}");
    world.cut = Some(address(server));
    close(&mut world, client);
    world.run(ms(9_000));
    assert!(closed(&world.events_of(host, session)).is_some());
    assert_eq!(world.endpoint(host).sessions(), 1, "what is still on its way is met with an answer");
    world.run(ms(2_000));
    assert_eq!(world.endpoint(host).sessions(), 0);
}
