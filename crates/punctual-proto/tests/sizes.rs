//! Datagrams whose largest size changes while bytes are on their way.

mod common;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use common::{End, World, address, address_at, client_config, ms, server_config};
use punctual_proto::{
    Block, FragmentKind, FragmentSent, LocalId, NetworkPath, Observer, PathId, SentPacket, SessionConfig,
};

/// What every path carries, UDP payload.
const NARROW: usize = 1_200;

#[derive(Default)]
struct Seen {
    sent: Vec<FragmentSent>,
    packets: BTreeMap<(PathId, u64), u16>,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Seen>>);

impl Observer for Recorder {
    fn fragment_sent(&mut self, _: Instant, fragment: &FragmentSent) {
        self.0.lock().expect("no test has failed yet").sent.push(*fragment);
    }

    fn packet_sent(&mut self, _: Instant, packet: &SentPacket) {
        self.0.lock().expect("no test has failed yet").packets.insert((packet.path, packet.number), packet.bytes);
    }
}

#[test]
fn what_is_lost_on_a_wide_path_fills_datagrams_of_a_narrow_one() {
    let recorder = Recorder::default();
    let to = recorder.clone();
    let config = SessionConfig { observer: Some(Arc::new(move |_| Box::new(to.clone()))), ..SessionConfig::default() };
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(config), server);
    let server = End { host: server, session: world.accept(server) };
    world.narrow = Some((address_at(host, 1), NARROW));
    world.run(ms(1_000));

    // What leaves at once is lost, and goes again on a path that is narrower, with all that is left of the block.
    let client = End { host, session };
    world.cut = Some(address_at(host, 0));
    world.send(client, Block::new(vec![7; 60_000]));
    let (now, path) = (world.now, NetworkPath { local: LocalId(1), remote: address(server.host) });
    let narrow = world.session(host, session).open_path(now, path).expect("it can be opened");
    world.run(ms(5_000));
    assert_eq!(world.recv(server).map(|block| block.data.len()), Some(60_000));

    let seen = recorder.0.lock().unwrap();
    let longest = seen.sent.iter().filter(|f| f.path != narrow).map(|f| f.len).max();
    assert!(longest > Some(NARROW as u64), "the first path is wider: {longest:?}");
    let again: u64 =
        seen.sent.iter().filter(|f| f.path == narrow && f.kind == FragmentKind::Resent).map(|f| f.len).sum();
    assert!(again > 10_000, "{again}");
    let with_bytes: BTreeMap<_, _> = seen
        .sent
        .iter()
        .filter(|f| f.path == narrow)
        .map(|f| ((f.path, f.packet), seen.packets[&(f.path, f.packet)]))
        .collect();
    assert!(with_bytes.values().all(|&bytes| usize::from(bytes) <= NARROW));
    let short = with_bytes.values().filter(|&&bytes| usize::from(bytes) < NARROW - 100).count();
    assert!(short <= 1, "only the last need not be full: {with_bytes:?}");
}

/// What fills a slow link is long on it. A small datagram ahead tells how long the path is.
#[test]
fn the_first_datagram_on_a_path_is_small() {
    for (size, first) in [(5_000, 128), (1_000, 128), (250, 250)] {
        let recorder = Recorder::default();
        let to = recorder.clone();
        let config =
            SessionConfig { observer: Some(Arc::new(move |_| Box::new(to.clone()))), ..SessionConfig::default() };
        let mut world = World::new(ms(10));
        let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
        let host = world.add_endpoint(None);
        let session = world.connect(host, &client_config(config), server);
        let server = End { host: server, session: world.accept(server) };
        let client = End { host, session };
        let block = || Block::new(vec![7; size]).deadline(ms(200));
        world.send(client, block());
        world.run(ms(100));
        world.send(client, block());
        world.run(ms(100));
        let taken: Vec<_> = std::iter::from_fn(|| world.recv(server)).map(|block| block.data.len()).collect();
        assert_eq!(taken, [size; 2]);

        let seen = recorder.0.lock().unwrap();
        let lengths = |block| seen.sent.iter().filter(move |f| f.block.0 == block).map(|f| f.len);
        let ids: Vec<_> = seen.sent.iter().map(|f| f.block.0).collect();
        let (one, other) = (lengths(ids[0]).next().unwrap(), lengths(*ids.last().unwrap()).next().unwrap());
        assert!(one <= first && one * 2 > first, "{one} of {size}");
        assert!(other > 128, "{other} of {size}");
    }
}
