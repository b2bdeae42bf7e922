//! Clocks that are compared across silence and sleep, as sessions see it.

mod common;

use std::time::Duration;

use common::{End, World, client_config, ms, outcomes, server_config};
use punctual_proto::{Block, Outcome, SessionConfig};

const ONE_WAY: Duration = Duration::from_millis(30);

/// A session that has been used for some seconds.
fn pair() -> (World, End, End) {
    // Sleep is no reason to end it here.
    let config = || SessionConfig { idle_timeout: Duration::from_secs(120), ..SessionConfig::default() };
    let mut world = World::new(ONE_WAY);
    let server = world.add_endpoint(Some(server_config(config())));
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
