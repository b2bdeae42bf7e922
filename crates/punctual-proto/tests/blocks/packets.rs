//! How blocks fill packets.

use crate::{
    Pair, block,
    common::{delivery, ms, outcomes},
};

#[test]
fn small_blocks_share_packets() {
    let mut pair = Pair::new();
    let before = pair.world.packets_sent[pair.from.host];
    let ids = pair.send_all((0..300).map(|n| block(20).priority(n as u8).deadline(ms(500))));
    let sent = pair.world.packets_sent[pair.from.host] - before;
    assert!(sent <= 12, "300 blocks of 20 bytes took {sent} packets");
    assert_eq!(pair.received_in(ms(200)).len(), ids.len());
    assert!(outcomes(&pair.events()).values().all(|outcome| delivery(Some(outcome)).on_time()));
    pair.ends_clean();
}

#[test]
fn an_urgent_block_overtakes_what_waits() {
    let urgent = || block(10_000).priority(0).deadline(ms(1_000));
    let completion = |pair: &mut Pair, id| {
        pair.received_in(ms(3_000));
        delivery(outcomes(&pair.events()).get(&id)).completion
    };
    let mut pair = Pair::new();
    let alone = pair.send(urgent());
    let alone = completion(&mut pair, alone);
    let mut pair = Pair::new();
    pair.send(block(4 << 20).priority(255));
    pair.world.run(ms(5));
    let id = pair.send(urgent());
    let beside = completion(&mut pair, id);
    assert!(beside <= alone.mul_f64(1.2), "{beside:?} beside bulk, {alone:?} alone");
    pair.ends_clean();
}
