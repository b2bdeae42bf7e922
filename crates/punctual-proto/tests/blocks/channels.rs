//! Blocks that are delivered in order.

use punctual_proto::{Channel, DropReason, Limits, SendError, SessionConfig};

use crate::{
    Pair, block,
    common::{delivery, ms, outcomes},
    dropped,
};

#[test]
fn a_channel_keeps_its_order_round_a_dropped_block() {
    let mut pair = Pair::new();
    let blocks = (0..5).map(|n| block(20_000).priority(100 - 10 * n).channel(Channel(9)));
    let ids = pair.send_all(blocks.chain([block(20_000).priority(255)]));
    pair.world.cancel(pair.from, ids[2]);
    let order = pair.received_in(ms(500));
    let in_channel: Vec<_> = order.iter().copied().filter(|&id| id != ids[5]).collect();
    assert_eq!(in_channel, [ids[0], ids[1], ids[3], ids[4]]);
    assert!(order.contains(&ids[5]));
    assert_eq!(outcomes(&pair.events()).len(), 6);
    pair.ends_clean();
}

#[test]
fn channels_do_not_wait_for_each_other() {
    let mut pair = Pair::scheduled("strict");
    let ids = pair.send_all([
        block(1 << 20).priority(255).channel(Channel(0)),
        block(100).priority(0).channel(Channel(0)),
        block(100).priority(0).channel(Channel(u32::MAX)),
        block(100).priority(0),
    ]);
    let order = pair.received_in(ms(2_000));
    assert_eq!(order, [ids[2], ids[3], ids[0], ids[1]]);
    // On time is when the application can have it: its completion is that of the block it waited for.
    let ended = outcomes(&pair.events());
    let completion = |id| delivery(ended.get(&id)).completion;
    assert!(completion(ids[1]) >= completion(ids[0]) && completion(ids[1]) > 2 * completion(ids[3]));
    pair.ends_clean();
}

#[test]
fn more_channels_than_the_peer_allows() {
    let mut pair = Pair::connecting(SessionConfig::default(), Limits::default().channels(2));
    // Handed over before the peer could say how many it takes.
    let early = pair.send_all([3, 2, 1, 0, 1].map(|n| block(100).channel(Channel(n))));
    pair.world.cancel(pair.from, early[4]);
    pair.connected();
    let order = pair.received_in(ms(300));
    assert_eq!(order, early[..2], "the first channels are kept");
    let ended = outcomes(&pair.events());
    assert_eq!(ended[&early[2]], dropped(DropReason::Refused));
    assert_eq!(ended[&early[3]], dropped(DropReason::Refused));
    let more = pair.world.try_send(pair.from, block(1).channel(Channel(0)));
    assert_eq!(more, Err(SendError::TooManyChannels));
    let again = pair.send_all([block(1).channel(Channel(3)), block(1).channel(Channel(2))]);
    assert_eq!(pair.received_in(ms(300)), again);
    pair.ends_clean();
}
