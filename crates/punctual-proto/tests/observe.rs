//! What an observer is told: all that happens, once, when it happens, and in agreement with the statistics.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use common::{End, OTHER_ALPN, World, address, address_at, client_config, ms, raw, server_config};
use punctual_proto::{
    Block, BlockId, Channel, Event, FragmentArrived, FragmentKind, FragmentSent, LocalId, NetworkPath, Observer,
    PathEvent, PathId, SentPacket, SessionConfig, SessionId,
    multipath::{self, FragmentView, PathChoice, PathScheduler, PathSchedulerFactory, PathSet, PathView},
    schedule,
};

/// Everything that was seen of one session.
#[derive(Default)]
struct Seen {
    session: Option<SessionId>,
    accepted: Vec<(BlockId, u64)>,
    sent: Vec<(Instant, FragmentSent)>,
    arrived: Vec<(Instant, FragmentArrived)>,
    complete: Vec<(Instant, BlockId)>,
    delivered: Vec<(Instant, BlockId)>,
    /// Packets without a fate.
    in_flight: BTreeMap<(PathId, u64), SentPacket>,
    packets_sent: usize,
    acked: Vec<(Instant, SentPacket)>,
    lost: Vec<(Instant, SentPacket)>,
    forgotten: Vec<SentPacket>,
    samples: Vec<(Instant, PathView)>,
}

impl Seen {
    fn sent_bytes(&self, kind: FragmentKind) -> u64 {
        self.sent.iter().filter(|(_, fragment)| fragment.kind == kind).map(|(_, fragment)| fragment.len).sum()
    }

    /// Each byte of each block left just once for the first time, and in order.
    #[track_caller]
    fn every_byte_is_sent_once(&self) {
        let mut frontiers = BTreeMap::new();
        for (_, fragment) in self.sent.iter().filter(|(_, fragment)| fragment.kind == FragmentKind::Source) {
            let frontier = frontiers.entry(fragment.block).or_insert(0);
            assert_eq!(fragment.offset, *frontier, "of {}", fragment.block);
            *frontier += fragment.len;
        }
        assert_eq!(frontiers, self.accepted.iter().copied().collect::<BTreeMap<_, _>>());
    }

    /// A packet that was in flight no longer is.
    #[track_caller]
    fn settle(&mut self, packet: &SentPacket) {
        let sent = self.in_flight.remove(&(packet.path, packet.number));
        assert_eq!(sent.as_ref(), Some(packet), "it was sent, and had no fate yet");
    }
}

struct Recorder(Arc<Mutex<Seen>>);

impl Recorder {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("no test has failed yet")
    }
}

impl Observer for Recorder {
    fn block_accepted(&mut self, _: Instant, id: BlockId, size: u64) {
        self.seen().accepted.push((id, size));
    }

    fn fragment_sent(&mut self, at: Instant, fragment: &FragmentSent) {
        let mut seen = self.seen();
        let packet = seen.in_flight.get(&(fragment.path, fragment.packet)).expect("its packet was seen before");
        assert!(packet.sent == at && u64::from(packet.bytes) > fragment.len);
        seen.sent.push((at, *fragment));
    }

    fn fragment_arrived(&mut self, at: Instant, fragment: &FragmentArrived) {
        self.seen().arrived.push((at, *fragment));
    }

    fn block_complete(&mut self, at: Instant, id: BlockId) {
        self.seen().complete.push((at, id));
    }

    fn block_delivered(&mut self, at: Instant, id: BlockId) {
        self.seen().delivered.push((at, id));
    }

    fn packet_sent(&mut self, at: Instant, packet: &SentPacket) {
        let mut seen = self.seen();
        assert_eq!(packet.sent, at);
        seen.packets_sent += 1;
        assert_eq!(seen.in_flight.insert((packet.path, packet.number), *packet), None, "a number used twice");
    }

    fn packet_acked(&mut self, at: Instant, packet: &SentPacket) {
        let mut seen = self.seen();
        seen.settle(packet);
        seen.acked.push((at, *packet));
    }

    fn packet_lost(&mut self, at: Instant, packet: &SentPacket) {
        let mut seen = self.seen();
        seen.settle(packet);
        seen.lost.push((at, *packet));
    }

    fn packet_forgotten(&mut self, _: Instant, packet: &SentPacket) {
        let mut seen = self.seen();
        seen.settle(packet);
        seen.forgotten.push(*packet);
    }

    fn path_sampled(&mut self, at: Instant, path: &PathView) {
        self.seen().samples.push((at, *path));
    }
}

/// Settings with an observer, and what it sees.
fn watched(mut config: SessionConfig) -> (SessionConfig, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let to = seen.clone();
    config.observer = Some(Arc::new(move |session| {
        let before = to.lock().expect("nothing has failed").session.replace(session);
        assert_eq!(before, None, "there is but one session");
        Box::new(Recorder(to.clone()))
    }));
    (config, seen)
}

/// A client that sends and a server that receives, both watched.
struct Pair {
    world: World,
    from: End,
    to: End,
    at_client: Arc<Mutex<Seen>>,
    at_server: Arc<Mutex<Seen>>,
}

impl Pair {
    fn new(client: SessionConfig) -> Self {
        Self::with_loss(client, None)
    }

    /// With every so manieth packet of the client lost from the very beginning.
    fn with_loss(client: SessionConfig, nth: Option<u64>) -> Self {
        let (client, at_client) = watched(client);
        let (server, at_server) = watched(SessionConfig::default());
        let mut world = World::new(ms(10));
        let host = world.add_endpoint(Some(server_config(server)));
        let from = world.add_endpoint(None);
        world.lose_every = nth.map(|nth| (from, nth));
        let session = world.connect(from, &client_config(client), host);
        let to = End { host, session: world.accept(host) };
        let mut pair = Self { world, from: End { host: from, session }, to, at_client, at_server };
        pair.world.run(ms(100));
        pair
    }

    fn open_second_path(&mut self) -> PathId {
        let (now, path) = (self.world.now, NetworkPath { local: LocalId(1), remote: address(self.to.host) });
        let id = self.world.session(self.from.host, self.from.session).open_path(now, path).expect("it can be opened");
        self.world.run(ms(200));
        id
    }

    fn client(&self) -> MutexGuard<'_, Seen> {
        self.at_client.lock().expect("the observer has not failed")
    }

    fn server(&self) -> MutexGuard<'_, Seen> {
        self.at_server.lock().expect("the observer has not failed")
    }

    /// The application takes what is there after each millisecond.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.world.run(ms(1));
            self.world.recv_all(self.to);
        }
    }

    /// What was seen agrees with what the sessions count, and in itself.
    #[track_caller]
    fn books_balance(&mut self) {
        let sent = self.world.session(self.from.host, self.from.session).stats();
        let received = self.world.session(self.to.host, self.to.session).stats();
        let (client, server) = (self.client(), self.server());
        assert_eq!(client.sent_bytes(FragmentKind::Source), sent.source_bytes);
        assert_eq!(client.sent_bytes(FragmentKind::Resent), sent.resent_bytes);
        assert_eq!(client.sent_bytes(FragmentKind::Copy), sent.copied_bytes);
        assert_eq!(server.arrived.iter().map(|(_, fragment)| fragment.new).sum::<u64>(), received.received_bytes);
        let duplicates = server.arrived.iter().map(|(_, fragment)| fragment.duplicate).sum::<u64>();
        assert_eq!(duplicates, received.duplicate_bytes);
        for seen in [&client, &server] {
            let ended = seen.acked.len() + seen.lost.len() + seen.forgotten.len();
            assert_eq!(seen.packets_sent, ended + seen.in_flight.len());
            assert_eq!(seen.samples.is_empty(), seen.acked.is_empty());
        }
        // Complete, and then delivered, each once.
        let complete: BTreeMap<_, _> = server.complete.iter().map(|&(at, id)| (id, at)).collect();
        assert_eq!(complete.len(), server.complete.len());
        let delivered: BTreeMap<_, _> = server.delivered.iter().map(|&(at, id)| (id, at)).collect();
        assert_eq!(delivered.len(), server.delivered.len());
        assert_eq!(delivered.len() as u64, received.blocks_received);
        for (id, at) in delivered {
            assert!(complete[&id] <= at);
        }
        drop((client, server));
        // The bytes in flight are those of packets without a fate.
        let now = self.world.now;
        for path in self.world.session(self.from.host, self.from.session).path_stats(now) {
            let client = self.client();
            let unsettled = client.in_flight.values().filter(|packet| packet.path == path.id);
            assert_eq!(unsettled.map(|packet| u64::from(packet.bytes)).sum::<u64>(), path.in_flight, "{}", path.id);
        }
    }
}

fn block(size: usize) -> Block {
    Block::new(vec![0xb5; size])
}

#[test]
fn every_station_of_every_byte() {
    let mut pair = Pair::new(SessionConfig::default());
    let begun = pair.world.now;
    let ids = [1, 1_000, 300_000, 20].map(|size| pair.world.send(pair.from, block(size)));
    pair.books_balance();
    pair.run(500);
    pair.books_balance();
    let (client, server) = (pair.client(), pair.server());
    assert_eq!((client.session, server.session), (Some(pair.from.session), Some(pair.to.session)));
    client.every_byte_is_sent_once();
    assert_eq!(client.sent.len(), server.arrived.len(), "nothing was lost");
    // Nothing reorders here: what leaves arrives a one-way delay later.
    for ((left, sent), (came, arrived)) in client.sent.iter().zip(&server.arrived) {
        assert_eq!(*came, *left + ms(10));
        assert_eq!((sent.block, sent.offset, sent.len), (arrived.block, arrived.offset, arrived.new));
        assert_eq!((sent.kind, sent.path, arrived.path), (FragmentKind::Source, PathId(0), Some(PathId(0))));
    }
    // Pacing spreads a large block: the fragments' times are those of the packets, not of the hand-over.
    assert!(client.sent.iter().filter(|(at, _)| *at > begun + ms(1)).count() > 10);
    for id in ids {
        let last = server.arrived.iter().filter(|(_, fragment)| fragment.block == id).map(|(at, _)| *at).max();
        assert_eq!(server.complete.iter().find(|(_, complete)| *complete == id).map(|(at, _)| *at), last);
    }
    assert!(client.complete.is_empty() && server.sent.is_empty() && client.lost.is_empty());
    assert!(client.samples.windows(2).all(|two| two[0].0 <= two[1].0));
    assert!(client.samples.iter().all(|(_, view)| view.id == PathId(0) && view.rate > 0.0 && view.rtt >= ms(20)));
}

#[test]
fn what_is_lost_is_sent_again() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.world.lose_every = Some((pair.from.host, 9));
    for _ in 0..20 {
        pair.world.send(pair.from, block(40_000));
        pair.run(50);
        pair.books_balance();
    }
    pair.run(1_000);
    pair.books_balance();
    let (client, server) = (pair.client(), pair.server());
    client.every_byte_is_sent_once();
    assert_eq!(server.delivered.len(), 20);
    assert!(client.lost.len() > 40 && client.sent_bytes(FragmentKind::Resent) > 40 * 1_000);
    assert!(client.lost.iter().all(|(at, packet)| *at > packet.sent));
    // What goes again was in a packet that had left before.
    let mut gone = BTreeSet::new();
    for (_, fragment) in &client.sent {
        let bytes = (fragment.offset..fragment.offset + fragment.len).map(|at| (fragment.block, at));
        match fragment.kind {
            FragmentKind::Source => gone.extend(bytes),
            kind => assert!(kind == FragmentKind::Resent && bytes.into_iter().all(|byte| gone.contains(&byte))),
        }
    }
}

#[test]
fn losses_in_the_handshake_leave_no_packet_without_a_fate() {
    for nth in 2..8 {
        let mut pair = Pair::with_loss(SessionConfig::default(), Some(nth));
        pair.world.lose_every = None;
        pair.world.send(pair.from, block(100_000));
        // QUIC drops what is left of the handshake in silence: it takes the next alarm to notice.
        pair.run(7_000);
        pair.books_balance();
        let client = pair.client();
        client.every_byte_is_sent_once();
        assert!(client.in_flight.is_empty(), "{:?}", client.in_flight);
        assert_eq!(pair.server().delivered.len(), 1);
    }
}

/// Every fragment on every path that has room.
struct Everywhere;

impl PathScheduler for Everywhere {
    fn name(&self) -> &'static str {
        "everywhere"
    }

    fn choose(&mut self, _: &FragmentView, paths: &[PathView], _: Instant) -> PathChoice {
        let mut set = PathSet::default();
        paths.iter().filter(|path| path.ready).for_each(|path| set.push(path.id));
        if set.iter().next().is_some() { PathChoice::Send(set) } else { PathChoice::Wait }
    }
}

#[test]
fn copies_are_told_from_what_they_copy() {
    // All of it goes at once: a copy that would have to wait is none.
    let config = SessionConfig {
        path_scheduler: Arc::new(|| Box::new(Everywhere)),
        initial_window_packets: 32,
        ..SessionConfig::default()
    };
    let mut pair = Pair::new(config);
    let second = pair.open_second_path();
    pair.world.send(pair.from, block(30_000));
    pair.run(300);
    pair.books_balance();
    let (client, server) = (pair.client(), pair.server());
    client.every_byte_is_sent_once();
    assert_eq!(client.sent_bytes(FragmentKind::Copy), 30_000);
    for (_, fragment) in &client.sent {
        assert_eq!(fragment.path == second, fragment.kind == FragmentKind::Copy);
    }
    let (first, copies): (Vec<_>, Vec<_>) =
        server.arrived.iter().partition(|(_, fragment)| fragment.path == Some(PathId(0)));
    assert!(first.iter().all(|(_, fragment)| fragment.duplicate == 0));
    assert!(copies.iter().all(|(_, fragment)| fragment.new == 0 && fragment.path == Some(second)));
}

#[test]
fn redundant_and_nine_tails_copy_what_is_on_its_way() {
    for name in ["redundant", "nine-tails", "nine-tails-paper"] {
        let path_scheduler = multipath::by_name(name).expect("it exists");
        let mut pair =
            Pair::new(SessionConfig { path_scheduler, initial_window_packets: 32, ..SessionConfig::default() });
        pair.open_second_path();
        pair.world.send(pair.from, block(20_000));
        pair.run(300);
        pair.books_balance();
        let client = pair.client();
        client.every_byte_is_sent_once();
        let copies = client.sent_bytes(FragmentKind::Copy);
        assert!((10_000..=20_000).contains(&copies), "{name}: {copies} bytes");
        assert_eq!(client.sent_bytes(FragmentKind::Resent), 0, "{name}");
        assert_eq!(pair.server().delivered.len(), 1, "{name}");
    }
}

#[test]
fn empty_blocks_take_two_paths_like_others() {
    for name in multipath::names() {
        for lossy in [false, true] {
            let path_scheduler = multipath::by_name(name).expect("it exists");
            let mut pair = Pair::new(SessionConfig { path_scheduler, ..SessionConfig::default() });
            pair.open_second_path();
            if lossy {
                pair.world.lose_every = Some((pair.from.host, 4));
            }
            let ids: Vec<_> = (0..30)
                .map(|n| {
                    pair.run(3);
                    pair.world.send(pair.from, block(if n % 3 == 2 { 700 } else { 0 }))
                })
                .collect();
            pair.run(3_000);
            let server = pair.server();
            let mut came: Vec<_> = server.delivered.iter().map(|(_, id)| *id).collect();
            came.sort_unstable();
            assert_eq!(came, ids, "{name}, {lossy}");
        }
    }
}

#[test]
fn a_copy_makes_good_for_a_path_that_dies() {
    let path_scheduler = multipath::by_name("redundant").expect("it exists");
    let mut pair = Pair::new(SessionConfig { path_scheduler, initial_window_packets: 32, ..SessionConfig::default() });
    pair.open_second_path();
    let sent = pair.world.now;
    pair.world.send(pair.from, block(10_000));
    pair.world.cut = Some(address_at(pair.from.host, 1));
    pair.run(300);
    pair.books_balance();
    // One way and a little: nothing had to be found lost.
    let took = pair.server().delivered[0].0 - sent;
    assert!(took < ms(15), "{took:?}");
}

#[test]
fn room_is_kept_for_an_expected_message_and_no_longer() {
    let path_scheduler = multipath::by_name("cwr").expect("it exists");
    let scheduler = schedule::by_name("priority-fifo").expect("it exists");
    let mut pair = Pair::new(SessionConfig { path_scheduler, scheduler, ..SessionConfig::default() });
    let (from, message) = (pair.from, || block(2_000).priority(0).channel(Channel(1)));
    let session = pair.world.session(from.host, from.session);
    // More than all that the window will ever hold: while it is expected, nothing else may go.
    session.expect_source(Channel(1), ms(100), 1 << 40, None, 0);
    let first = pair.world.send(from, message());
    pair.run(90);
    let background = pair.world.send(from, block(2_000));
    pair.run(60);
    assert_eq!(pair.server().delivered.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [first]);
    // Two turns have passed without it.
    pair.run(100);
    assert_eq!(pair.server().delivered.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [first, background]);
}

#[test]
fn what_was_on_a_dead_path_is_resent_and_then_forgotten() {
    let mut pair = Pair::new(SessionConfig::default());
    let second = pair.open_second_path();
    pair.world.send(pair.from, block(400_000));
    pair.run(15);
    pair.world.cut = Some(address_at(pair.from.host, 1));
    pair.run(500);
    pair.books_balance();
    let closed = Event::Path { id: second, event: PathEvent::Closed };
    assert!(!pair.world.events_of(pair.from.host, pair.from.session).contains(&closed), "it is probed still");
    let in_flight = pair.client().in_flight.values().filter(|packet| packet.path == second).count();
    let now = pair.world.now;
    pair.world.session(pair.from.host, pair.from.session).close_path(now, second).expect("it is not the last");
    pair.run(500);
    pair.books_balance();
    let client = pair.client();
    assert!(client.sent_bytes(FragmentKind::Resent) > 0);
    assert!(client.sent.iter().all(|(_, one)| one.kind == FragmentKind::Source || one.path == PathId(0)));
    assert!(in_flight > 0);
    assert_eq!(client.forgotten.iter().filter(|packet| packet.path == second).count(), in_flight);
    assert_eq!(pair.server().delivered.len(), 1);
}

#[test]
fn complete_is_not_yet_delivered() {
    let scheduler = schedule::by_name("strict").expect("it exists");
    let path_scheduler: PathSchedulerFactory = Arc::new(|| Box::new(Everywhere));
    let mut pair = Pair::new(SessionConfig { scheduler, path_scheduler, ..SessionConfig::default() });
    // Copies come while it waits: they complete nothing.
    pair.open_second_path();
    let now = pair.world.now;
    let session = pair.world.session(pair.from.host, pair.from.session);
    let [late, early] = [(200_000, 9), (1_000, 0)]
        .map(|(size, priority)| session.send(now, block(size).priority(priority).channel(Channel(1))).expect("room"));
    pair.run(300);
    pair.books_balance();
    let server = pair.server();
    let order = |events: &[(Instant, BlockId)]| events.iter().map(|&(_, id)| id).collect::<Vec<_>>();
    assert_eq!(order(&server.complete), [early, late]);
    assert_eq!(order(&server.delivered), [late, early]);
    assert!(server.delivered[1].0 > server.complete[0].0 + ms(10), "it waited for its turn");
}

#[test]
fn a_peer_that_does_not_speak_punctual_has_no_fragments() {
    let (config, seen) = watched(SessionConfig::default());
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(config)));
    let peer = world.add_raw(raw::Config { alpn: OTHER_ALPN, ..raw::Config::default() }, server);
    let (session, punctual) = world.accept_any(server);
    assert!(!punctual);
    let end = End { host: server, session };
    let sent = world.send(end, block(5_000));
    let stream = world.raw(peer).open();
    world.raw(peer).write(stream, &[1; 3_000]);
    world.raw(peer).finish(stream);
    world.run(ms(100));
    let id = world.recv(end).expect("a block came").id;
    let seen = seen.lock().expect("the observer has not failed");
    assert_eq!(seen.accepted, [(sent, 5_000)]);
    assert!(seen.sent.is_empty() && seen.arrived.is_empty());
    assert!(seen.packets_sent >= 5 && !seen.acked.is_empty());
    assert_eq!((seen.complete.len(), seen.delivered.len()), (1, 1));
    assert!(seen.complete[0].1 == id && seen.delivered[0].1 == id && seen.complete[0].0 < seen.delivered[0].0);
}
