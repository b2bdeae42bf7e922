//! Blocks that depend on others.

use punctual_proto::{BlockId, BlockUpdate, Channel, DropReason, Event, Limits, Outcome, SendError};

use crate::{
    Pair, block,
    common::{delivery, ms, outcomes},
    dropped,
};

#[test]
fn what_others_depend_on_is_sent_first() {
    let mut pair = Pair::new();
    let ids = pair.send_all([block(100_000).priority(255), block(1_000).priority(0)]);
    assert_eq!(pair.received_in(ms(1_000)), [ids[1], ids[0]]);

    let first = pair.send(block(100_000).priority(255));
    let second = pair.send(block(1_000).priority(0).depends_on(first));
    assert_eq!(pair.received_in(ms(1_000)), [first, second]);
    pair.ends_clean();
}

#[test]
fn a_drop_takes_along_all_that_depends_on_it() {
    let mut pair = Pair::new();
    let a = pair.send(block(4 << 20));
    let b = pair.send(block(100).depends_on(a));
    let c = pair.send(block(100).depends_on(b));
    let d = pair.send(block(100).priority(0));
    pair.world.run(ms(30));
    pair.world.cancel(pair.from, a);
    // Also what comes later.
    let e = pair.send(block(100).depends_on(c));
    assert_eq!(pair.received_in(ms(300)), [d]);
    let outcomes = outcomes(&pair.events());
    assert!(matches!(outcomes[&a], Outcome::Dropped { reason: DropReason::Cancelled, good_bytes } if good_bytes > 0));
    for id in [b, c, e] {
        assert_eq!(outcomes[&id], dropped(DropReason::DependencyDropped));
    }
    assert!(delivery(outcomes.get(&d)).on_time());
    let mut heard: Vec<_> = pair
        .peer_events()
        .into_iter()
        .filter_map(|event| match event {
            Event::PeerDropped { id, reason, .. } => Some((id, reason)),
            _ => None,
        })
        .collect();
    heard.sort_by_key(|(id, _)| *id);
    let orphan = DropReason::DependencyDropped;
    assert_eq!(heard, [(a, DropReason::Cancelled), (b, orphan), (c, orphan), (e, orphan)]);
    pair.ends_clean();
}

#[test]
fn what_a_channel_waits_for_gets_its_credit_first() {
    // The first block of a channel waits for another one; together with it, those behind it would take all the room there is.
    let mut pair = Pair::receiving(Limits::default().receive_bytes(100_000).max_block_size(100_000));
    let channel = Channel(1);
    let other = pair.send(block(60_000).priority(9));
    let first = pair.send(block(30_000).channel(channel).depends_on(other));
    let behind = pair.send_all([(); 4].map(|()| block(20_000).priority(0).channel(channel)));
    let mut all = vec![other, first];
    all.extend(behind);
    assert_eq!(pair.received_in(ms(2_000)), all);
    pair.ends_clean();
}

#[test]
fn a_circle_of_dependencies_is_sent_as_one() {
    for circle in [false, true] {
        let mut pair = Pair::scheduled("strict");
        let now = pair.world.now;
        let session = pair.world.session(pair.from.host, pair.from.session);
        let x = session.send(now, block(100_000).priority(100)).unwrap();
        let a = session.send(now, block(100_000).priority(200)).unwrap();
        let b = session.send(now, block(100_000).priority(0).depends_on(a)).unwrap();
        let update = BlockUpdate { dependencies: Some(vec![b]), ..BlockUpdate::default() };
        if circle {
            session.update(now, a, update).unwrap();
        }
        pair.world.drain();
        let order = pair.received_in(ms(1_000));
        match circle {
            // `b` lends its priority to what it depends on, for they are one block.
            true => assert_eq!(order[2], x, "{order:?}"),
            false => assert_eq!(order, [x, a, b]),
        }
        pair.ends_clean();
    }
}

#[test]
fn a_circle_of_dependencies_is_dropped_as_one() {
    for victim in 0..3 {
        let mut pair = Pair::new();
        let bulk = pair.send(block(1 << 20).priority(0));
        let a = pair.send(block(50_000));
        let b = pair.send(block(50_000).depends_on(a));
        let c = pair.send(block(50_000).depends_on(b));
        pair.world.update(pair.from, a, BlockUpdate { dependencies: Some(vec![c]), ..BlockUpdate::default() });
        let victim = [a, b, c][victim];
        pair.world.cancel(pair.from, victim);
        assert_eq!(pair.received_in(ms(1_000)), [bulk]);
        let outcomes = outcomes(&pair.events());
        for id in [a, b, c] {
            let reason = if id == victim { DropReason::Cancelled } else { DropReason::DependencyDropped };
            assert_eq!(outcomes[&id], dropped(reason));
        }
        pair.ends_clean();
    }
}

#[test]
fn dependencies_are_checked_and_bounded() {
    let limits = Limits::default().dependencies_per_block(2).dependency_edges(3);
    let mut pair = Pair::sending(limits);
    let ids = pair.send_all([block(1 << 20), block(1 << 20), block(1 << 20)]);
    let needs = |ids: &[BlockId]| ids.iter().fold(block(1), |block, &id| block.depends_on(id));
    let refused = |pair: &mut Pair, block| pair.world.try_send(pair.from, block).expect_err("it is refused");
    assert_eq!(refused(&mut pair, needs(&[BlockId(3)])), SendError::UnknownDependency(BlockId(3)), "not even itself");
    assert_eq!(refused(&mut pair, needs(&ids)), SendError::TooManyDependencies);
    pair.send(needs(&ids[..2]));
    assert_eq!(refused(&mut pair, needs(&ids[..2])), SendError::TooManyDependencies);
    pair.send(needs(&ids[..1]));
    pair.received_in(ms(2_000));
    // What has ended binds nothing.
    pair.send(needs(&ids[..2]));
    pair.received_in(ms(200));
    pair.ends_clean();
}
