//! What the two sides tell each other of blocks, where there are many small ones.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::*;
use punctual_proto::Block;
use punctual_sim::{LinkSpec, Loss};

/// Ten blocks each millisecond, and the way back loses a third of what is said of them: were each word sent by itself, the stream on which
/// they are would be in so many pieces that QUIC's receiver gave up.
#[test]
fn many_small_blocks_outlive_a_way_back_that_loses_much() {
    let block = Block::new(Bytes::from_static(&[7; 60])).deadline(ms(200));
    let link = LinkSpec::new(40.0, ms(60)).queue(100_000);
    let setup = Setup { back: |link| link.clone().loss(Loss::Bernoulli(0.33)), ..Setup::new(vec![link]) };
    let mut pair = setup.connect(Source::new(block, Duration::from_micros(100), 60_000));
    pair.world.run_for(ms(8_000));
    // A session that ends panics in the sink. A few blocks are too late while the path is not known.
    let received = pair.sink().received.len();
    assert!(received > 59_000, "{received}");
    assert_eq!(pair.source().outcomes.len(), 60_000);
}
