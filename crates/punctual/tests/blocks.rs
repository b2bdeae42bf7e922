//! Blocks on their way: outcomes, order of things, room, changes of mind.

mod common;

use std::{future::IntoFuture, time::Duration};

use common::{client, client_with, pair, server, server_with, within};
use punctual::{
    Block, BlockError, BlockId, BlockUpdate, Channel, Config, Delta, DropReason, Endpoint, Limits, Outcome, Redundancy,
    SendError, SessionEvent,
};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_hundred_blocks_each_way_are_delivered_whole() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    let exchange = async |from: &punctual::Session, to: &punctual::Session| {
        let sender = async {
            let mut sent = Vec::new();
            for n in 0..100usize {
                let block = Block::new(vec![n as u8; 1 + n * n * 3]).deadline(LONG).priority(n as u8);
                sent.push((n, from.send(block).await.expect("accepted")));
            }
            for (n, sent) in sent {
                assert_eq!(sent.id(), BlockId(n as u64));
                let outcome = sent.await;
                let Outcome::Delivered(delivery) = outcome else { panic!("{outcome:?}") };
                assert_eq!(delivery.good_bytes, 1 + (n * n * 3) as u64);
                assert!(delivery.on_time());
            }
        };
        let receiver = async {
            let mut seen = [false; 100];
            while seen.contains(&false) {
                let block = to.recv().await.expect("a block");
                let n = block.id.0 as usize;
                assert!(!std::mem::replace(&mut seen[n], true), "twice");
                assert_eq!(block.data.len(), 1 + n * n * 3);
                assert!(block.data.iter().all(|byte| *byte == n as u8));
                assert_eq!((block.meta.deadline, block.meta.priority), (Some(LONG), n as u8));
            }
        };
        tokio::join!(sender, receiver);
    };
    within(async { tokio::join!(exchange(&ours, &theirs), exchange(&theirs, &ours)) }).await;
    let stats = ours.stats();
    assert_eq!((stats.blocks_sent, stats.blocks_on_time, stats.blocks_received), (100, 100, 100));
    assert_eq!((stats.live_out, stats.live_out_bytes), (0, 0));
}

#[tokio::test]
async fn a_channel_keeps_its_order() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        for n in 0..50u8 {
            // The later, the more urgent: only the channel keeps them in order.
            let block = Block::new(vec![n; 5_000]).priority(200 - n).channel(Channel(1));
            ours.send(block).await.expect("accepted");
        }
        for n in 0..50 {
            assert_eq!(theirs.recv().await.expect("a block").id, BlockId(n));
        }
    })
    .await;
}

#[tokio::test]
async fn without_room_a_block_waits_or_comes_back() {
    let mut config = Config::default();
    config.session.limits = Limits::default().send_bytes(100_000).max_block_size(80_000);
    let server = server_with("127.0.0.1", config.clone());
    let client = client_with(&server, config);
    let (ours, theirs) = within(pair(&server, &client)).await;
    let block = || Block::new(vec![1; 60_000]);
    let _first = ours.try_send(block()).expect("room for one");
    let Err(SendError::Full(back)) = ours.try_send(block()) else { panic!("room for two") };
    assert_eq!(back.data, block().data);
    assert!(matches!(ours.try_send(Block::new(vec![1; 80_001])), Err(SendError::TooLarge { .. })));

    // With somebody to take them, any number goes through that little room.
    let receiver = tokio::spawn(common::drain(theirs));
    within(async {
        let mut sent = Vec::new();
        for _ in 0..50 {
            sent.push(ours.send(block().deadline(LONG)).await.expect("accepted"));
        }
        for sent in sent {
            let outcome = sent.outcome().await;
            assert!(matches!(outcome, Outcome::Delivered(_)), "{outcome:?}");
        }
    })
    .await;
    assert!(within(ours.finish(LONG)).await.is_empty());
    assert_eq!(within(receiver).await.expect("no panic"), 51);
}

#[tokio::test]
async fn waiting_for_room_counts_and_ends_at_the_deadline() {
    let mut config = Config::default();
    config.session.scheduler = punctual::schedule::by_name("edf").expect("a known scheduler");
    config.session.limits = Limits::default().send_blocks(1);
    let server = common::FallsSilent::start();
    let client = Endpoint::client().trust(server.fingerprint).config(config).build().expect("a client");
    let session = within(client.connect(server.address, "localhost").into_future()).await.expect("connected");
    server.fall_silent();
    let _stuck = session.try_send(Block::new("nobody answers")).expect("room for one");
    let block = Block::new("no room").deadline(Duration::from_millis(50));
    let Err(SendError::Full(back)) = within(session.send(block)).await else { panic!("there was room") };
    assert!(back.begin.is_some_and(|begin| begin.elapsed() >= Duration::from_millis(50)));
}

#[tokio::test]
async fn blocks_can_be_cancelled_and_changed() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        let big = ours.send(Block::new(vec![0; 8 << 20]).priority(255)).await.expect("accepted");
        let depends = ours.send(Block::new("late").depends_on(big.id())).await.expect("accepted");
        ours.update(big.id(), BlockUpdate { priority: Some(1), ..BlockUpdate::default() }).expect("live");
        ours.cancel(big.id()).expect("live");
        let outcome = big.await;
        assert!(matches!(outcome, Outcome::Dropped { reason: DropReason::Cancelled, .. }), "{outcome:?}");
        let outcome = depends.await;
        assert!(matches!(outcome, Outcome::Dropped { reason: DropReason::DependencyDropped, .. }), "{outcome:?}");
        assert_eq!(ours.cancel(BlockId(77)), Err(BlockError::NotLive(BlockId(77))));
        // What follows is not held up.
        let sent = ours.send(Block::new("after")).await.expect("accepted");
        assert_eq!(theirs.recv().await.expect("a block").data, "after");
        assert!(matches!(sent.await, Outcome::Delivered(_)));
    })
    .await;
}

#[tokio::test]
async fn what_the_receiver_expected_reaches_the_sender() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    let mut events = ours.events();
    within(async {
        let sent = ours.send(Block::new("frame")).await.expect("accepted");
        let block = theirs.recv().await.expect("a block");
        theirs.expect(block.id, Delta::from_micros(1_500)).expect("taken");
        let expected = SessionEvent::Expected { id: sent.id(), delta: Delta::from_micros(1_500) };
        while events.next().await.expect("an event") != expected {}
    })
    .await;
}

#[tokio::test]
async fn a_handle_that_is_dropped_cancels_nothing() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        for n in 0..20u64 {
            drop(ours.send(Block::new(vec![0; 10_000])).await.expect("accepted"));
            assert_eq!(theirs.recv().await.expect("a block").id, BlockId(n));
        }
    })
    .await;
    assert!(within(ours.finish(LONG)).await.is_empty());
}

#[tokio::test]
async fn redundancy_can_be_said_of_a_channel() {
    let (server, mut config) = (server(), Config::default());
    config.session.limits.channels = 2;
    let client = client_with(&server, config);
    let (ours, theirs) = within(pair(&server, &client)).await;
    for (channel, mode) in [(0, Redundancy::Duplicate), (1, Redundancy::Fec), (0, Redundancy::None)] {
        ours.set_channel_redundancy(Channel(channel), mode).expect("two channels");
    }
    let third = ours.set_channel_redundancy(Channel(2), Redundancy::Both);
    assert!(matches!(third, Err(SendError::TooManyChannels)), "{third:?}");
    let sent = within(ours.send(Block::new("a reading").channel(Channel(0)))).await.expect("accepted");
    assert_eq!(within(theirs.recv()).await.expect("a block").data, "a reading");
    assert!(matches!(within(sent).await, Outcome::Delivered(_)));
}
