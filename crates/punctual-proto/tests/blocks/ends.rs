//! How sessions begin and end.

use punctual_proto::{
    BlockId, Channel, CloseReason, DropReason, Event, Limits, Outcome, Redundancy, SendError, SessionConfig,
};

use crate::{
    Pair, block,
    common::{End, World, client_config, delivery, ms, outcomes},
    dropped,
};

#[test]
fn blocks_wait_for_the_handshake_and_the_wait_counts() {
    let mut pair = Pair::connecting(SessionConfig::default(), Limits::default());
    let ids = pair.send_all([block(5_000), block(5_000).deadline(ms(300)), block(5_000).deadline(ms(15))]);
    pair.connected();
    let mut received = pair.received_in(ms(300));
    received.sort();
    assert_eq!(received, ids[..2]);
    let ended = outcomes(&pair.events());
    assert_eq!(ended[&ids[2]], dropped(DropReason::Expired));
    for id in &ids[..2] {
        let completion = delivery(ended.get(id)).completion;
        assert!((ms(28)..ms(60)).contains(&completion), "a round trip and a half: {completion:?}");
    }
    pair.ends_clean();
}

#[test]
fn without_an_answer_deadlines_pass_all_the_same() {
    let mut world = World::new(ms(10));
    let client = world.add_endpoint(None);
    let deaf = world.add_endpoint(None);
    let session = world.connect(client, &client_config(SessionConfig::default()), deaf);
    let end = End { host: client, session };
    let (hasty, patient) = (world.send(end, block(10).deadline(ms(50))), world.send(end, block(10)));
    world.run(ms(100));
    assert_eq!(outcomes(&world.events_of(client, session)).into_keys().collect::<Vec<_>>(), [hasty]);
    world.run(ms(60_000));
    let events = world.events_of(client, session);
    assert_eq!(outcomes(&events)[&patient], dropped(DropReason::SessionClosed));
    assert_eq!(events.last(), Some(&Event::Closed(CloseReason::TimedOut)));
    assert_eq!(world.endpoint(client).sessions(), 0);
}

#[test]
fn every_block_has_one_outcome_when_the_session_is_closed() {
    let mut pair = Pair::new();
    let done = pair.send(block(1_000));
    pair.received_in(ms(100));
    let mut ids = pair.send_all([
        block(4 << 20),
        block(100).priority(0).channel(Channel(1)),
        block(1_000).deadline(ms(10_000)),
        block(100).deadline(ms(1)),
    ]);
    pair.world.run(ms(5));
    // Waits for the peer's word.
    ids.push(pair.send(block(100).priority(0)));
    pair.world.cancel(pair.from, ids[4]);
    let back = pair.world.send(pair.to, block(50_000));
    let now = pair.world.now;
    pair.world.session(pair.from.host, pair.from.session).close(now, 42, "good night");
    pair.world.session(pair.from.host, pair.from.session).close(now, 43, "again");
    let events = pair.events();
    let ended = outcomes(&events);
    ids.push(done);
    ids.sort();
    assert_eq!(ended.keys().copied().collect::<Vec<_>>(), ids);
    assert_eq!(events.last(), Some(&Event::Closed(CloseReason::Local)));
    assert!(matches!(ended[&ids[1]], Outcome::Dropped { reason: DropReason::SessionClosed, .. }));
    assert!(matches!(ended[&ids[5]], Outcome::Dropped { reason: DropReason::Cancelled, .. }));
    assert_eq!(pair.world.try_send(pair.from, block(1)), Err(SendError::Closed));

    pair.world.run(ms(12));
    let events = pair.peer_events();
    assert_eq!(outcomes(&events)[&back], dropped(DropReason::SessionClosed));
    let reason = CloseReason::Peer { code: 42, reason: "good night".into() };
    assert_eq!(events.last(), Some(&Event::Closed(reason)));
    pair.world.run(ms(1_000));
    assert_eq!((pair.events(), pair.peer_events()), (vec![], vec![]));
    for host in [pair.from.host, pair.to.host] {
        assert_eq!(pair.world.endpoint(host).sessions(), 0);
    }
}

/// However long it is, in whatever phase, and however many bytes the code takes.
#[test]
fn a_reason_to_close_is_told_as_far_as_it_is_short() {
    let lengths = (0..3_000).step_by(199).chain([255, 256, 257]).chain((1_100..1_260).step_by(5));
    for (length, code) in lengths.flat_map(|length| [7, 16_383, 16_384, u32::MAX].map(|code| (length, code))) {
        for (accepted, age) in [(false, 0), (true, 0), (true, 100)] {
            let mut pair = Pair::connecting(SessionConfig::default(), Limits::default());
            if accepted {
                pair.connected();
                pair.world.run(ms(age));
            }
            let reason = "\u{e4}".repeat(length / 2) + if length % 2 == 1 { "x" } else { "" };
            let now = pair.world.now;
            pair.world.session(pair.from.host, pair.from.session).close(now, code, &reason);
            pair.world.run(ms(50));
            if accepted {
                let told = CloseReason::Peer { code: code.into(), reason: reason.chars().take(128).collect() };
                assert!(pair.peer_events().contains(&Event::Closed(told)), "{length} {code}");
            }
        }
    }
}

#[test]
fn both_ends_may_close_at_once() {
    let mut pair = Pair::new();
    let (there, back) = (pair.send(block(100_000)), pair.world.send(pair.to, block(100_000)));
    let now = pair.world.now;
    for end in [pair.from, pair.to] {
        pair.world.session(end.host, end.session).close(now, 0, "");
    }
    pair.world.run(ms(1_000));
    for (events, id) in [(pair.events(), there), (pair.peer_events(), back)] {
        assert_eq!(outcomes(&events)[&id], dropped(DropReason::SessionClosed));
        assert_eq!(events.last(), Some(&Event::Closed(CloseReason::Local)));
    }
}

#[test]
fn what_is_decided_while_packets_are_made_is_told_at_once() {
    for mode in Redundancy::ALL {
        let mut pair = Pair::new();
        pair.world.lose_every = Some((pair.from.host, 3));
        let mut ids = Vec::<BlockId>::new();
        let mut told = 0;
        for n in 0..600 {
            if n % 5 == 0 {
                // Far more than the window lets through, now and then one that others depend on.
                let size = if n < 300 { 30_000 } else { 700 };
                let next = block(size).deadline(ms(60)).redundancy(mode);
                let leader = ids.last().filter(|_| n % 20 > 0);
                ids.push(pair.send(if let Some(&leader) = leader { next.depends_on(leader) } else { next }));
            }
            pair.world.run(ms(1));
            pair.world.recv_all(pair.to);
            told += outcomes(&pair.events()).len();
            let now = pair.world.now;
            // It does nothing but bring about what was left to do.
            pair.world.session(pair.from.host, pair.from.session).accept(now);
            assert_eq!(pair.events(), [], "{mode:?}: after {n} ms, with {told} of {} told", ids.len());
        }
        pair.world.run(ms(300));
        told += outcomes(&pair.events()).len();
        assert_eq!(told, ids.len());
    }
}
