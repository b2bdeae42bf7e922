//! Blocks that are changed, cancelled or refused, and what the receiver expected of them.

use std::time::Duration;

use punctual_proto::{BlockError, BlockId, BlockUpdate, Delta, DropReason, Event, Limits, Outcome};

use crate::{
    Pair, block,
    common::{delivery, ms, outcomes},
    dropped,
};

#[test]
fn an_update_reaches_the_receiver() {
    let mut pair = Pair::new();
    let id = pair.send(block(1 << 20).deadline(ms(5_000)).priority(9));
    pair.world.run(ms(30));
    let update = BlockUpdate { priority: Some(3), deadline: Some(Some(ms(7_000))), dependencies: None };
    pair.world.update(pair.from, id, update);
    pair.world.run(ms(2_000));
    let block = pair.world.recv(pair.to).expect("it came");
    assert_eq!((block.meta.priority, block.meta.deadline), (3, Some(ms(7_000))));
    let ended = delivery(outcomes(&pair.events()).get(&id));
    assert_eq!(ended.delta, Some(Delta::between(ms(7_000), ended.completion)));
    pair.ends_clean();
}

#[test]
fn a_deadline_as_long_as_can_be() {
    let mut pair = Pair::new();
    let ids = pair.send_all([block(1 << 20).deadline(Duration::MAX), block(1 << 20)]);
    pair.world.run(ms(30));
    // More microseconds than 64 bits hold.
    for (id, deadline) in [(ids[0], Duration::from_secs(20_000_000_000_000)), (ids[1], Duration::MAX)] {
        let update = BlockUpdate { deadline: Some(Some(deadline)), ..BlockUpdate::default() };
        pair.world.update(pair.from, id, update);
    }
    pair.world.run(ms(2_000));
    for block in pair.world.recv_all(pair.to) {
        assert_eq!(block.meta.deadline, Some(Duration::from_micros((1 << 62) - 1)));
    }
    let ended = outcomes(&pair.events());
    assert!(ids.iter().all(|id| delivery(ended.get(id)).on_time()));
    pair.ends_clean();
}

#[test]
fn who_closes_at_once_has_said_what_came() {
    let mut pair = Pair::new();
    let first = pair.send(block(1_000));
    pair.world.run(Duration::from_micros(1_500));
    let second = pair.send(block(1_000));
    // The word on the second waits for others, as one has just left.
    pair.world.run(ms(10));
    assert_eq!(pair.world.recv_all(pair.to).len(), 2);
    let now = pair.world.now;
    pair.world.session(pair.to.host, pair.to.session).close(now, 7, "done");
    pair.world.drain();
    pair.world.run(ms(50));
    let events = pair.events();
    assert!(events.iter().any(|event| matches!(event, Event::Closed(_))), "{events:?}");
    let ended = outcomes(&events);
    assert!([first, second].iter().all(|id| delivery(ended.get(id)).on_time()), "{ended:?}");
}

#[test]
fn an_update_can_end_a_block_or_save_it() {
    // Others would send what is in a hurry before bulk.
    let mut pair = Pair::scheduled("ads");
    let bulk = pair.send(block(4 << 20).priority(0));
    let hurried = pair.send(block(1_000).priority(255).deadline(ms(60_000)));
    let saved = pair.send(block(400_000).priority(254).deadline(ms(100)));
    pair.world.run(ms(10));
    let deadline = |deadline| BlockUpdate { deadline: Some(deadline), ..BlockUpdate::default() };
    pair.world.update(pair.from, saved, deadline(None));
    pair.world.update(pair.from, hurried, deadline(Some(ms(5))));
    pair.world.run(ms(20));
    let ended = outcomes(&pair.events());
    assert_eq!(ended[&hurried], dropped(DropReason::Expired));
    let now = pair.world.now;
    let session = pair.world.session(pair.from.host, pair.from.session);
    assert_eq!(session.update(now, hurried, deadline(None)), Err(BlockError::NotLive(hurried)));
    let short = Duration::from_micros(999);
    assert_eq!(session.update(now, saved, deadline(Some(short))), Err(BlockError::DeadlineTooShort(short)));
    let later = BlockUpdate { dependencies: Some(vec![BlockId(3)]), ..BlockUpdate::default() };
    assert_eq!(session.update(now, saved, later), Err(BlockError::UnknownDependency(BlockId(3))));
    let order = pair.received_in(ms(5_000));
    assert!(order.len() == 2 && order.contains(&bulk) && order.contains(&saved));
    pair.ends_clean();
}

#[test]
fn a_block_that_becomes_important_goes_first() {
    let mut pair = Pair::scheduled("strict");
    let ids = pair.send_all((0..3).map(|_| block(300_000).priority(100)));
    pair.world.update(pair.from, ids[2], BlockUpdate { priority: Some(1), ..BlockUpdate::default() });
    assert_eq!(pair.received_in(ms(2_000)), [ids[2], ids[0], ids[1]]);
    pair.ends_clean();
}

#[test]
fn cancelling_before_during_and_after_sending() {
    let mut pair = Pair::new();
    let begun = pair.send(block(4 << 20).priority(0));
    let waiting = pair.send(block(1_000));
    pair.world.run(ms(40));
    pair.world.cancel(pair.from, waiting);
    pair.world.cancel(pair.from, begun);
    let now = pair.world.now;
    let session = pair.world.session(pair.from.host, pair.from.session);
    for id in [begun, waiting, BlockId(77)] {
        assert_eq!(session.cancel(now, id), Err(BlockError::NotLive(id)));
    }
    pair.world.run(ms(100));
    let ended = outcomes(&pair.events());
    assert_eq!(ended[&waiting], dropped(DropReason::Cancelled));
    assert!(matches!(ended[&begun], Outcome::Dropped { reason: DropReason::Cancelled, good_bytes } if good_bytes > 0));
    let told = |event: &Event| matches!(event, Event::PeerDropped { id, received_bytes, .. } if *id == begun && *received_bytes > 0);
    assert!(pair.peer_events().iter().any(told));

    // All of it is on the way: it arrives, and the receiver's word counts.
    let sent = pair.send(block(1_000));
    pair.world.cancel(pair.from, sent);
    pair.world.run(ms(100));
    assert_eq!(pair.world.recv(pair.to).map(|block| block.id), Some(sent));
    let ended = outcomes(&pair.events());
    assert_eq!(delivery(ended.get(&sent)).good_bytes, 1_000);
    assert!(!pair.peer_events().iter().any(|event| matches!(event, Event::PeerDropped { .. })));
    pair.ends_clean();
}

#[test]
fn the_receiver_may_refuse_a_block() {
    let size = 1 << 20;
    let limits = Limits::default().max_block_size(size).receive_bytes(size);
    let mut pair = Pair::receiving(limits);
    // Each of them needs all the credit there is.
    for _ in 0..3 {
        let id = pair.send(block(size as usize));
        let orphan = pair.send(block(1).priority(255).depends_on(id));
        pair.world.run(ms(40));
        let (now, to) = (pair.world.now, pair.to);
        pair.world.session(to.host, to.session).refuse(now, id).expect("it has begun");
        assert_eq!(pair.world.session(to.host, to.session).refuse(now, id), Err(BlockError::NotLive(id)));
        pair.world.run(ms(100));
        let ended = outcomes(&pair.events());
        assert!(matches!(ended[&id], Outcome::Dropped { reason: DropReason::Refused, .. }));
        assert_eq!(ended[&orphan], dropped(DropReason::DependencyDropped));
        assert!(pair.world.recv(to).is_none());
    }
    let id = pair.send(block(size as usize));
    assert_eq!(pair.received_in(ms(2_000)), [id]);
    pair.ends_clean();
}

#[test]
fn the_receiver_says_what_it_expected() {
    let mut pair = Pair::new();
    let id = pair.send(block(10));
    pair.world.run(ms(50));
    let (now, to) = (pair.world.now, pair.to);
    let session = pair.world.session(to.host, to.session);
    for micros in [-7, 7_000] {
        session.expect(now, id, Delta::from_micros(micros)).expect("it is known");
    }
    // A block that never came would be an error to the peer.
    let unknown = BlockId(id.0 + 1);
    assert_eq!(session.expect(now, unknown, Delta::from_micros(0)), Err(BlockError::NotLive(unknown)));
    pair.world.run(ms(50));
    let heard: Vec<_> = pair
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Expected { id, delta } => Some((id, delta.as_micros())),
            _ => None,
        })
        .collect();
    assert_eq!(heard, [(id, -7), (id, 7_000)]);
    assert!(pair.world.recv(to).is_some());
    pair.ends_clean();
}
