//! What a sender makes of redundancy, as an observer sees it.

mod common;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use common::{End, World, client_config, ms, server_config};
use punctual_proto::{
    Block, FragmentKind, FragmentSent, Observer, Redundancy, SentPacket, SessionConfig, SessionId,
    redundancy::MAX_SOURCES,
};

#[derive(Default)]
struct Seen {
    sent: Vec<(Instant, FragmentSent)>,
    lost: Vec<(Instant, SentPacket)>,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Seen>>);

impl Recorder {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("no test has failed yet")
    }

    /// Fragments that have left since the last call.
    fn take_sent(&self) -> Vec<FragmentSent> {
        std::mem::take(&mut self.seen().sent).into_iter().map(|(_, fragment)| fragment).collect()
    }
}

impl Observer for Recorder {
    fn fragment_sent(&mut self, at: Instant, fragment: &FragmentSent) {
        self.seen().sent.push((at, *fragment));
    }

    fn packet_lost(&mut self, at: Instant, packet: &SentPacket) {
        self.seen().lost.push((at, *packet));
    }
}

/// A client with a session, and what is seen of it.
fn connected(one_way_delay: Duration) -> (World, End, Recorder) {
    let recorder = Recorder::default();
    let to = recorder.clone();
    let observer: punctual_proto::ObserverFactory = Arc::new(move |_: SessionId| Box::new(to.clone()));
    let config = SessionConfig { observer: Some(observer), ..SessionConfig::default() };
    let mut world = World::new(one_way_delay);
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(config), server);
    world.accept(server);
    world.run(ms(1_000));
    recorder.take_sent();
    (world, End { host, session }, recorder)
}

#[test]
fn a_large_block_does_not_share_its_group_with_the_next() {
    let (mut world, client, recorder) = connected(ms(20));
    let block = || Block::new(vec![7; 45_000]).deadline(ms(5_000)).redundancy(Redundancy::Fec);
    let (first, second) = (world.send(client, block()), world.send(client, block()));
    world.run(ms(2_000));
    let sent = recorder.take_sent();
    let place = |kind, id| sent.iter().position(|f| f.kind == kind && f.block == id).expect("it has left");
    let (repair, next) = (place(FragmentKind::Repair, first), place(FragmentKind::Source, second));
    assert!(repair < next + 2, "the first has its repairs before much of the second is sent: {repair}, {next}");
}

#[test]
fn small_blocks_share_a_group() {
    let (mut world, client, recorder) = connected(ms(20));
    let now = world.now;
    for _ in 0..150 {
        let block = Block::new(vec![7; 1_000]).deadline(ms(5_000)).redundancy(Redundancy::Fec);
        world.session(client.host, client.session).send(now, block).expect("there is room");
    }
    world.run(ms(2_000));
    let sent = recorder.take_sent();
    let repair = sent.iter().position(|f| f.kind == FragmentKind::Repair).expect("a full group has some");
    let datagrams: BTreeSet<u64> = sent[..repair].iter().map(|f| f.packet).collect();
    assert_eq!(datagrams.len(), MAX_SOURCES, "though a block ends in each");
}

#[test]
fn a_small_duplicate_goes_though_larger_blocks_are_too_much() {
    let (mut world, client, recorder) = connected(ms(50));
    // Each could make it alone. The path has shown what a window a round trip is.
    for _ in 0..20 {
        world.send(client, Block::new(vec![7; 60_000]).deadline(ms(1_000)));
    }
    let copied = Block::new(vec![8; 300]).deadline(ms(400)).redundancy(Redundancy::Duplicate);
    let id = world.send(client, copied);
    world.run(ms(350));
    let repairs = |of| {
        let sent = recorder.seen();
        sent.sent.iter().filter(|(_, f)| f.kind == FragmentKind::Repair && f.block == of).count()
    };
    assert_eq!(repairs(id), 1, "the small one has its copy");
}

#[test]
fn large_duplicates_are_not_sent_twice_where_there_is_too_much_already() {
    let (mut world, client, recorder) = connected(ms(50));
    let now = world.now;
    for _ in 0..20 {
        let block = Block::new(vec![7; 60_000]).deadline(ms(1_000)).redundancy(Redundancy::Duplicate);
        world.session(client.host, client.session).send(now, block).expect("there is room");
    }
    world.run(ms(100));
    let copies = recorder.take_sent().iter().filter(|f| f.kind == FragmentKind::Repair).count();
    assert_eq!(copies, 0);
}

#[test]
fn without_a_deadline_nothing_waits_for_a_group_before_it_is_sent_again() {
    let (mut world, client, recorder) = connected(ms(30));
    world.lose_next = Some((client.host, 1_000));
    world.send(client, Block::new(vec![7; 60_000]).redundancy(Redundancy::Both));
    world.run(ms(1_000));
    let seen = recorder.seen();
    let lost_at = seen.lost.first().expect("one is lost").0;
    let again = seen.sent.iter().find(|(_, fragment)| fragment.kind == FragmentKind::Resent);
    let after = again.map(|(at, _)| *at - lost_at).expect("it is sent again, whatever the group makes of it");
    // Pacing may hold it back, but no verdict comes in less than a round trip.
    assert!(after < ms(30), "{after:?}");
}

#[test]
fn what_is_lost_fits_one_datagram_when_it_goes_again_in_a_group() {
    let (mut world, client, recorder) = connected(ms(60));
    world.lose_every = Some((client.host, 20));
    // Time for two tries, so the second goes with repairs, and has a head that the first had not.
    for _ in 0..100 {
        world.send(client, Block::new(vec![7; 24_000]).deadline(ms(215)));
        world.run(ms(20));
    }
    let sent = recorder.take_sent();
    // The first losses are not expected.
    let again: Vec<u64> = sent.iter().filter(|f| f.kind == FragmentKind::Resent).map(|f| f.len).skip(20).collect();
    let ends = again.iter().filter(|&&len| len < 100).count();
    assert!(again.len() > 30 && ends * 4 < again.len(), "{ends} of {} are ends: {again:?}", again.len());
}
