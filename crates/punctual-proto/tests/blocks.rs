//! What blocks do, between two endpoints: dependencies, channels, changes of mind, limits, ends.

mod common;

use std::time::{Duration, Instant};

use bytes::BytesMut;
use common::{End, HostId, World, address, client_config, delivery, ms, outcomes, server_config};
use punctual_proto::{
    Block, BlockError, BlockId, BlockUpdate, Channel, CloseReason, Delta, DropReason, Endpoint, EndpointConfig, Event,
    Limits, LocalId, NetworkPath, Outcome, Redundancy, SendError, SessionConfig, schedule,
};

/// A sender and a receiver.
struct Pair {
    world: World,
    /// The client, which sends.
    from: End,
    /// The server, which receives.
    to: End,
}

impl Pair {
    fn new() -> Self {
        Self::with(SessionConfig::default(), Limits::default())
    }

    /// With a sender that goes by a scheduler's name.
    fn scheduled(name: &str) -> Self {
        let scheduler = schedule::by_name(name).expect("it exists");
        Self::with(SessionConfig { scheduler, ..SessionConfig::default() }, Limits::default())
    }

    fn receiving(limits: Limits) -> Self {
        Self::with(SessionConfig::default(), limits)
    }

    fn sending(limits: Limits) -> Self {
        Self::with(SessionConfig { limits, ..SessionConfig::default() }, Limits::default())
    }

    fn with(client: SessionConfig, server: Limits) -> Self {
        let mut pair = Self::connecting(client, server);
        pair.connected();
        pair.world.run(ms(100));
        pair.events();
        pair
    }

    /// The client has been told to connect, and no packet has come back yet.
    fn connecting(client: SessionConfig, server: Limits) -> Self {
        let mut world = World::new(ms(10));
        let to = world.add_endpoint(Some(server_config(SessionConfig { limits: server, ..SessionConfig::default() })));
        let from = world.add_endpoint(None);
        let session = world.connect(from, &client_config(client), to);
        let nobody = End { host: to, session };
        Self { world, from: End { host: from, session }, to: nobody }
    }

    fn connected(&mut self) {
        self.to.session = self.world.accept(self.to.host);
    }

    fn send(&mut self, block: Block) -> BlockId {
        self.world.send(self.from, block)
    }

    /// Hands blocks over before any of them is sent.
    fn send_all(&mut self, blocks: impl IntoIterator<Item = Block>) -> Vec<BlockId> {
        let now = self.world.now;
        let session = self.world.session(self.from.host, self.from.session);
        let ids = blocks.into_iter().map(|block| session.send(now, block).expect("there is room")).collect();
        self.world.drain();
        ids
    }

    /// What the sender has heard since it was asked last.
    fn events(&mut self) -> Vec<Event> {
        self.world.events_of(self.from.host, self.from.session)
    }

    fn peer_events(&mut self) -> Vec<Event> {
        self.world.events_of(self.to.host, self.to.session)
    }

    /// Blocks in the order in which the receiver gets them within `time`.
    fn received_in(&mut self, time: Duration) -> Vec<BlockId> {
        let (until, to) = (self.world.now + time, self.to);
        let mut order = Vec::new();
        while self.world.now < until {
            self.world.run(ms(1));
            order.extend(self.world.recv_all(to).into_iter().map(|block| block.id));
        }
        order
    }

    /// Nothing is left at either end.
    #[track_caller]
    fn ends_clean(mut self) {
        for end in [self.from, self.to] {
            assert!(self.world.session(end.host, end.session).is_clean());
        }
    }
}

fn block(size: usize) -> Block {
    Block::new(vec![0xb5; size])
}

fn dropped(reason: DropReason) -> Outcome {
    Outcome::Dropped { reason, good_bytes: 0 }
}

// ---- Dependencies

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

// ---- Channels

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

// ---- Changes of mind

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

// ---- Room

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

// ---- Packets

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

// ---- Sizes and deadlines

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
    pair.connected();
    assert_eq!(pair.received_in(ms(300)), [early[1]]);
    assert_eq!(outcomes(&pair.events())[&early[0]], dropped(DropReason::Refused));
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

// ---- Begin and end

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

// ---- The contract

fn lone_endpoint() -> (Endpoint, Instant) {
    let now = Instant::now();
    let mut endpoint = Endpoint::new(EndpointConfig::new(now), None);
    let path = NetworkPath { local: LocalId(0), remote: address(0 as HostId) };
    endpoint.connect(now, &client_config(SessionConfig::default()), path, "punctual.test").expect("it can begin");
    (endpoint, now)
}

#[test]
fn a_drained_endpoint_may_be_asked() {
    let (mut endpoint, now) = lone_endpoint();
    let mut buf = Vec::new();
    while endpoint.poll_transmit(now, &mut buf).is_some() {
        buf.clear();
    }
    while endpoint.poll_event().is_some() {}
    assert!(endpoint.poll_timeout().is_some_and(|at| at > now));
    endpoint.handle_datagram(
        now,
        NetworkPath { local: LocalId(0), remote: address(0) },
        None,
        BytesMut::from(&b"noise"[..]),
    );
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "must be drained"))]
fn an_endpoint_must_be_drained_before_it_is_asked() {
    let (endpoint, _) = lone_endpoint();
    endpoint.poll_timeout();
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "time must not run backwards"))]
fn time_must_not_run_backwards() {
    let (mut endpoint, now) = lone_endpoint();
    endpoint.handle_timeout(now + ms(2));
    endpoint.handle_timeout(now + ms(1));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "the buffer must be empty"))]
fn the_buffer_must_be_empty() {
    let (mut endpoint, now) = lone_endpoint();
    endpoint.poll_transmit(now, &mut vec![0]);
}
