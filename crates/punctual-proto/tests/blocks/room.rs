//! Limits of what may wait, and credit.

use punctual_proto::{DropReason, Event, Limits, Outcome, SendError};

use crate::{
    Pair, block,
    common::{ms, outcomes},
    dropped,
};

#[test]
fn a_full_sender_says_so_and_when_there_is_room_again() {
    for limits in [Limits::default().send_blocks(2), Limits::default().send_bytes(20_000)] {
        let mut pair = Pair::sending(limits);
        pair.send_all([block(10_000), block(10_000)]);
        let third = block(10_000).priority(3);
        assert_eq!(pair.world.try_send(pair.from, third.clone()), Err(SendError::Full(Box::new(third.clone()))));
        assert!(!pair.world.session(pair.from.host, pair.from.session).has_room(1));
        pair.world.run(ms(200));
        let events = pair.events();
        assert_eq!(events.iter().filter(|event| matches!(event, Event::Writable)).count(), 1);
        pair.send(third);
        assert_eq!(pair.received_in(ms(200)).len(), 3);
        assert!(pair.events().iter().all(|event| !matches!(event, Event::Writable)), "there was room all the time");
        pair.ends_clean();
    }
}

#[test]
fn credit_stops_a_sender_until_the_receiver_consumes() {
    let blocks = Limits::default().receive_blocks(4);
    let bytes = Limits::default().max_block_size(10_000).receive_bytes(40_000);
    for limits in [blocks, bytes] {
        let mut pair = Pair::receiving(limits);
        pair.send_all((0..20).map(|_| block(10_000)));
        pair.world.run(ms(1_000));
        let stats = pair.world.session(pair.to.host, pair.to.session).stats();
        assert_eq!((stats.live_in, stats.live_in_bytes), (4, 40_000));
        assert_eq!(pair.world.session(pair.from.host, pair.from.session).live_blocks(), 16);
        for left in (0..20).rev() {
            assert!(pair.world.recv(pair.to).is_some(), "{left} left");
            pair.world.run(ms(100));
        }
        assert_eq!(outcomes(&pair.events()).len(), 20);
        pair.ends_clean();
    }
}

#[test]
fn blocks_that_expire_for_want_of_credit_use_none() {
    let mut pair = Pair::receiving(Limits::default().receive_blocks(4));
    pair.send_all((0..20).map(|_| block(1_000).deadline(ms(100))));
    pair.world.run(ms(500));
    let ended = outcomes(&pair.events());
    assert_eq!(ended.values().filter(|outcome| matches!(outcome, Outcome::Delivered(_))).count(), 4);
    assert_eq!(ended.values().filter(|outcome| **outcome == dropped(DropReason::Expired)).count(), 16);
    assert_eq!(pair.world.recv_all(pair.to).len(), 4);
    pair.send_all((0..4).map(|_| block(1_000)));
    assert_eq!(pair.received_in(ms(100)).len(), 4);
    pair.ends_clean();
}

#[test]
fn a_block_as_large_as_the_window_follows_a_small_one() {
    let size = 100_000;
    let mut pair = Pair::receiving(Limits::default().max_block_size(size).receive_bytes(size).receive_blocks(100));
    for _ in 0..3 {
        let small = pair.send(block(1));
        assert_eq!(pair.received_in(ms(100)), [small]);
        let large = pair.send(block(size as usize));
        assert_eq!(pair.received_in(ms(1_000)), [large]);
    }
    pair.ends_clean();
}
