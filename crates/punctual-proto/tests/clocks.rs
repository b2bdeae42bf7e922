//! Clocks that are compared across silence and sleep, as sessions see it.

mod common;

use std::time::Duration;

use common::{End, World, client_config, delivery, ms, outcomes, server_config};
use punctual_proto::{Block, Channel, Outcome, SessionConfig};

const ONE_WAY: Duration = Duration::from_millis(30);

/// A session that has been used for some seconds.
fn pair() -> (World, End, End) {
    // Sleep is no reason to end it here.
    let config = || SessionConfig { idle_timeout: Duration::from_secs(120), ..SessionConfig::default() };
    let mut world = World::new(ONE_WAY);
    let server = world.add_endpoint(Some(server_config(config())));
    // Their clocks have different beginnings.
    world.run(Duration::from_secs(60));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(config()), server);
    let to = End { host: server, session: world.accept(server) };
    let from = End { host, session };
    (0..200).for_each(|_| _ = exchange(&mut world, from, to));
    (world, from, to)
}

/// A block each way, due in 100 ms; how long they took by the receivers' clocks and by what the senders were told, ms.
fn exchange(world: &mut World, from: End, to: End) -> [f64; 4] {
    let due = Duration::from_millis(100);
    let ways = [(from, to), (to, from)];
    let ids = ways.map(|(sender, _)| world.send(sender, Block::new(vec![7; 500]).deadline(due)));
    world.run(ms(95));
    let mut took = [f64::NAN; 4];
    for (way, (sender, receiver)) in ways.into_iter().enumerate() {
        let received = world.recv_all(receiver).into_iter().find(|block| block.id == ids[way]);
        let completion = received.and_then(|block| block.completion);
        took[way] = completion.map_or(f64::NAN, |completion| completion.as_secs_f64() * 1e3);
        let told = outcomes(&world.events_of(sender.host, sender.session));
        if let Some(Outcome::Delivered(delivery)) = told.get(&ids[way]) {
            took[way + 2] = delivery.completion.as_secs_f64() * 1e3;
        }
    }
    world.run(ms(5));
    took
}

/// Two seconds later all is as it was.
#[track_caller]
fn is_right(world: &mut World, from: End, to: End, what: &str) {
    (0..20).for_each(|_| _ = exchange(world, from, to));
    let took = exchange(world, from, to);
    assert!(took.iter().all(|took| (took - 30.0).abs() < 3.0), "{what}: {took:?}");
    for end in [from, to] {
        let (now, host) = (world.now_at(end.host), end.host);
        let session = world.session(host, end.session);
        let views = session.path_stats(now);
        assert!(views[0].one_way_delay.abs_diff(ONE_WAY) < Duration::from_millis(3), "{what}: {:?}", views[0]);
    }
}

#[test]
fn silence_of_an_hour_changes_nothing() {
    for minutes in [36, 50, 120] {
        let (mut world, from, to) = pair();
        world.run(Duration::from_secs(60 * minutes));
        let first = exchange(&mut world, from, to);
        assert!(first.iter().all(|took| (took - 30.0).abs() < 3.0), "{minutes} minutes: {first:?}");
        is_right(&mut world, from, to, &format!("{minutes} minutes"));
    }
}

#[test]
fn a_host_that_slept_is_followed() {
    for seconds in [5, 25] {
        for sender_sleeps in [false, true] {
            let (mut world, from, to) = pair();
            let sleeper = if sender_sleeps { from.host } else { to.host };
            world.sleep(sleeper, Duration::from_secs(seconds));
            is_right(&mut world, from, to, &format!("{seconds} s, the sender: {sender_sleeps}"));
        }
    }
}

#[test]
fn the_first_word_on_latency_finds_blocks_that_wait_for_their_turn() {
    let channel = Some(Channel(1));
    for wished in [false, true] {
        let (mut world, from, to) = pair();
        let begin = world.now;
        // The second comes first.
        world.delay_next(from.host, ms(60));
        let ids = [0, 1].map(|n| world.send(from, Block::new(vec![n; 500]).channel(Channel(1))));
        world.run(ms(10));
        let now = world.now;
        if wished {
            world.session(from.host, from.session).wish_latency(now, channel, Some(ms(150))).expect("there is room");
            world.drain();
            world.run(ms(30));
        } else {
            world.run(ms(30));
            let now = world.now;
            world.session(to.host, to.session).set_latency(now, channel, Some(ms(150)));
            world.drain();
        }
        let mut came = Vec::new();
        while world.now < begin + ms(200) {
            came.extend(world.recv_all(to).into_iter().map(|block| (block.id, (world.now - begin).as_millis())));
            world.run(ms(1));
        }
        let times: Vec<_> = came.iter().map(|(_, at)| *at).collect();
        assert_eq!(came.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids, "wished: {wished}, {times:?}");
        assert!(times.iter().all(|at| (149..153).contains(at)), "wished: {wished}, {times:?}");
    }
}

#[test]
fn a_block_is_as_old_as_it_is_though_its_sender_was_not_there_yet() {
    let (mut world, from, to) = pair();
    // The sender's clock began 20 s ago.
    let old = Duration::from_secs(40);
    let begin = world.now.checked_sub(old).expect("the machine has run for a while");
    let id = world.send(from, Block::new(vec![7; 500]).begun_at(begin).deadline(old + ms(100)));
    world.run(ms(95));
    let about = |took: Duration| took >= old + ms(29) && took < old + ms(35);
    let came = world.recv_all(to);
    assert!(came.len() == 1 && came[0].completion.is_some_and(about), "{:?}", came[0].completion);
    let told = delivery(outcomes(&world.events_of(from.host, from.session)).get(&id)).completion;
    assert!(about(told), "{told:?}");
}
