//! Blocks of extreme sizes and deadlines.

use std::time::Duration;

use punctual_proto::{Block, BlockId, Channel, DropReason, Limits, Outcome, Redundancy, SendError, SessionConfig};

use crate::{
    Pair, block,
    common::{ms, outcomes},
    dropped,
};

#[test]
fn the_smallest_and_the_largest_block() {
    let mut pair = Pair::new();
    let large: Vec<u8> = (0..16_u32 << 20).map(|at| (at / 251) as u8).collect();
    let ids = pair.send_all([Block::new(large.clone()), Block::new(vec![7])]);
    pair.world.run(ms(20_000));
    let mut received = pair.world.recv_all(pair.to);
    received.sort_by_key(|block| block.id);
    assert_eq!(received.iter().map(|block| block.id).collect::<Vec<_>>(), ids);
    assert!(received[0].data == large && received[1].data[..] == [7]);
    let limit = 16 << 20;
    let refused = |pair: &mut Pair, block| pair.world.try_send(pair.from, block).expect_err("it is refused");
    assert_eq!(
        refused(&mut pair, block(limit + 1)),
        SendError::TooLarge { size: limit as u64 + 1, limit: limit as u64 }
    );
    let short = Duration::from_micros(999);
    assert_eq!(refused(&mut pair, block(1).deadline(short)), SendError::DeadlineTooShort(short));
    pair.ends_clean();
}

#[test]
fn empty_blocks_are_blocks() {
    // On credit for three blocks and 40 bytes, in and out of a channel, with every mode of redundancy, on a path that loses every third packet.
    for lossy in [false, true] {
        let limits = Limits::default().max_block_size(40).receive_bytes(40).receive_blocks(3);
        let mut pair = Pair::receiving(limits);
        if lossy {
            pair.world.lose_every = Some((pair.from.host, 3));
        }
        let mut ids = Vec::new();
        for n in 0..60 {
            let block = block(if n % 4 == 3 { 30 } else { 0 });
            let block = if n % 2 == 0 { block.channel(Channel(1)) } else { block };
            ids.push(pair.send(block.redundancy(Redundancy::ALL[n % 6])));
        }
        let mut received = Vec::new();
        for _ in 0..2_000 {
            pair.world.run(ms(10));
            received.extend(pair.world.recv_all(pair.to));
        }
        let ends = outcomes(&pair.events());
        for (n, id) in ids.iter().enumerate() {
            let size = if n % 4 == 3 { 30 } else { 0 };
            let came = received.iter().filter(|block| block.id == *id).collect::<Vec<_>>();
            match &ends[id] {
                Outcome::Delivered(delivery) => {
                    assert_eq!((came.len(), delivery.good_bytes), (1, size), "block {n}");
                    assert_eq!((came[0].data.len() as u64, came[0].meta.size), (size, size), "block {n}");
                }
                Outcome::Dropped { .. } => assert!(lossy && came.is_empty(), "block {n}"),
            }
        }
        let mut order = received.iter().filter(|block| block.meta.channel.is_some()).map(|block| block.id);
        assert!(order.clone().count() > 15 && order.try_fold(BlockId(0), |a, b| (a <= b).then_some(b)).is_some());
        let stats = pair.world.session(pair.to.host, pair.to.session).stats();
        assert_eq!(stats.received_bytes, received.iter().map(|block| block.meta.size).sum::<u64>());
        pair.ends_clean();
    }
}

#[test]
fn what_is_overdue_when_it_is_handed_over_is_not_sent() {
    let mut pair = Pair::new();
    let long_ago = pair.world.now.checked_sub(ms(5_000)).expect("the machine has run for a while");
    let ids = [10, 100_000].map(|size| pair.send(block(size).begun_at(long_ago).deadline(ms(50))));
    let good = pair.send(block(10).deadline(ms(50)));
    assert_eq!(pair.received_in(ms(200)), [good]);
    let ends = outcomes(&pair.events());
    for id in ids {
        assert_eq!(ends[&id], dropped(DropReason::Expired), "{id}");
    }
    assert_eq!(pair.world.session(pair.from.host, pair.from.session).stats().source_bytes, 10);
    pair.ends_clean();
}

#[test]
fn no_keep_alive_is_a_keep_alive_too() {
    let mut pair =
        Pair::with(SessionConfig { keep_alive: Duration::MAX, ..SessionConfig::default() }, Limits::default());
    let id = pair.send(block(10));
    assert_eq!(pair.received_in(ms(200)), [id]);
    pair.ends_clean();
}

#[test]
fn an_empty_block_can_be_taken_back() {
    let mut pair = Pair::receiving(Limits::default().receive_blocks(1));
    let ids = pair.send_all([block(100), block(0), block(0).depends_on(BlockId(1)), block(0)]);
    pair.world.cancel(pair.from, ids[1]);
    assert_eq!(pair.received_in(ms(300)), [ids[0], ids[3]]);
    let ends = outcomes(&pair.events());
    assert_eq!(ends[&ids[1]], dropped(DropReason::Cancelled));
    assert_eq!(ends[&ids[2]], dropped(DropReason::DependencyDropped));
    // Dropped when it is under way.
    let id = pair.send(block(0));
    pair.world.cancel(pair.from, id);
    pair.received_in(ms(300));
    assert!(outcomes(&pair.events()).contains_key(&id));
    pair.ends_clean();
}

#[test]
fn blocks_larger_than_the_peer_takes() {
    let limits = Limits::default().max_block_size(1_000).receive_bytes(1_000);
    let mut pair = Pair::connecting(SessionConfig::default(), limits);
    let early = pair.send_all([block(1_001), block(1_000)]);
    let said = |pair: &mut Pair| pair.world.session(pair.from.host, pair.from.session).stats().peer_max_block_size;
    assert_eq!(said(&mut pair), None);
    pair.connected();
    assert_eq!(pair.received_in(ms(300)), [early[1]]);
    assert_eq!(outcomes(&pair.events())[&early[0]], dropped(DropReason::Refused));
    assert_eq!(said(&mut pair), Some(1_000));
    let late = pair.world.try_send(pair.from, block(1_001));
    assert_eq!(late, Err(SendError::TooLarge { size: 1_001, limit: 1_000 }));
    pair.ends_clean();
}

#[test]
fn a_deadline_of_a_millisecond() {
    // The path takes ten: what was sent at once comes late, and both ends know it.
    let mut pair = Pair::new();
    // By then the clocks have been compared.
    pair.send(block(1));
    pair.received_in(ms(200));
    let ids = pair.send_all((0..50).map(|_| block(3_000).deadline(ms(1))));
    let received = pair.received_in(ms(500));
    let ended = outcomes(&pair.events());
    for id in ids {
        match ended[&id] {
            Outcome::Delivered(delivery) => {
                assert!(received.contains(&id));
                assert!(!delivery.on_time() && delivery.good_bytes == 0, "{delivery:?}");
            }
            Outcome::Dropped { reason, good_bytes } => assert_eq!((reason, good_bytes), (DropReason::Expired, 0)),
        }
    }
    pair.ends_clean();
}
