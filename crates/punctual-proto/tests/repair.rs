//! Redundancy at a receiver: what a sender makes of it by hand, from `docs/protocol.md`.

mod common;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use common::{
    World,
    bench::{Bench, REPAIR_WINDOW, limits},
    ms,
    raw::Config,
    server_config,
    wire::{self, Info, arrival, fragment, hello, join, last_fragment, repair, shard, source, sum_of, timestamp},
};
use punctual_proto::{BlockId, FragmentArrived, Observer, ProtocolError, SessionConfig};

/// How long groups live here, milliseconds.
const LIFE: u64 = 200;

/// The symbols of block `id` in `count` datagrams, the last shorter than the others; and its bytes.
fn symbols(id: u64, count: u64) -> (Vec<Vec<u8>>, Vec<u8>) {
    let data: Vec<u8> = (0..100 * count - 30).map(|byte| (byte * 7 + id) as u8).collect();
    let info = Info { deadline: Some(300_000), ..Info::new(id, data.len() as u64) };
    let symbols = data.chunks(100).enumerate().map(|(at, bytes)| {
        let head = if at == 0 { info.bytes() } else { Vec::new() };
        join(&[&timestamp(1_000_000 + at as u32), &head, &last_fragment(id, 100 * at as u64, bytes)])
    });
    (symbols.collect(), data)
}

fn in_group(group: u64, index: usize, symbol: &[u8]) -> Vec<u8> {
    join(&[&source(group, index as u8, LIFE), symbol])
}

/// A repair of the group, which has only one.
fn one_repair(group: u64, symbols: &[Vec<u8>]) -> Vec<u8> {
    repair(group, LIFE, (symbols.len() as u8, 1), 0, &sum_of(symbols))
}

fn receives(bench: &mut Bench, id: u64, data: &[u8]) {
    bench.lives();
    assert_eq!(bench.received(), BTreeMap::from([(id, data.to_vec())]));
}

#[test]
fn any_lost_datagram_is_restored() {
    for lost in 0..4 {
        let mut bench = Bench::new();
        let (symbols, data) = symbols(0, 4);
        for (index, symbol) in symbols.iter().enumerate().filter(|&(index, _)| index != lost) {
            bench.raw().datagram(in_group(9, index, symbol));
        }
        bench.lives();
        assert_eq!(bench.received(), BTreeMap::new());
        // A repair may follow a TIMESTAMP.
        bench.datagram(&[&one_repair(9, &symbols)]);
        receives(&mut bench, 0, &data);

        let stats = bench.stats();
        let part = data.chunks(100).nth(lost).unwrap().len() as u64;
        assert_eq!((stats.received_bytes, stats.recovered_bytes), (data.len() as u64, part));
        assert_eq!((stats.repair_bytes_received, stats.wasted_repair_bytes), (sum_of(&symbols).len() as u64, 0));
        let completed =
            bench.answers().into_iter().find(|(frame_type, _)| *frame_type == 0x08).expect("COMPLETED_LIST");
        assert_eq!((completed.1[0], completed.1.len()), (0, 5), "it alone");

        // The datagram was late, not lost.
        bench.raw().datagram(in_group(9, lost, &symbols[lost]));
        bench.lives();
        assert_eq!(bench.stats().duplicate_bytes, part);
        assert!(bench.world.session(bench.end.host, bench.end.session).is_clean());
    }
}

#[test]
fn a_lone_symbol_is_its_own_repair() {
    let mut bench = Bench::new();
    let (symbols, data) = symbols(0, 1);
    let lone = shard(&symbols[0], symbols[0].len().next_multiple_of(2) + 2);
    bench.raw().datagram(repair(0, LIFE, (1, 5), 3, &lone));
    receives(&mut bench, 0, &data);
    bench.raw().datagram(repair(0, LIFE, (1, 5), 4, &lone));
    bench.lives();
    let stats = bench.stats();
    assert_eq!((stats.recovered_bytes, stats.duplicate_bytes), (data.len() as u64, 0));
    assert_eq!(stats.wasted_repair_bytes, lone.len() as u64);
}

/// The two repairs of the three symbols `hi`, ` yo` and `u` of block 7: a vector of docs/protocol.md.
const OF_HI_YOU: [[u8; 10]; 2] = [
    [0x64, 0xa9, 0xb8, 0x16, 0x04, 0x05, 0x3d, 0x45, 0x8e, 0x00],
    [0x64, 0xad, 0xab, 0x11, 0x03, 0x05, 0x00, 0x55, 0xe1, 0x00],
];

#[test]
fn a_group_of_which_mostly_repairs_come() {
    let mut bench = Bench::new();
    bench.info(Info::new(7, 6));
    bench.raw().datagram(in_group(1, 2, &fragment(7, 5, b"u")));
    for (index, shard) in OF_HI_YOU.iter().enumerate().rev() {
        bench.raw().datagram(repair(1, LIFE, (3, 2), index as u8, shard));
    }
    receives(&mut bench, 7, b"hi you");
    assert_eq!(bench.stats().recovered_bytes, 5);
}

#[test]
fn restored_times_measure_nothing() {
    let mut bench = Bench::new();
    bench.datagram(&[]);
    bench.lives();
    let (mut symbols, data) = symbols(0, 2);
    symbols[1] = join(&[&timestamp(1_000_777), &arrival(0, 1, 900_000_000), &symbols[1][5..]]);
    bench.raw().datagram(in_group(3, 0, &symbols[0]));
    bench.raw().datagram(one_repair(3, &symbols));
    receives(&mut bench, 0, &data);
    assert_eq!(bench.stats().clock, None, "an echo would have given an estimate");
    // The path's own stamp is the one that is echoed.
    bench.world.run(ms(500));
    let echoes = |stamp: u32| {
        let echo = [&[0x02, 0][..], &stamp.to_be_bytes()].concat();
        move |payload: &&bytes::Bytes| payload.windows(echo.len()).any(|at| at == echo)
    };
    let sent = bench.raw().datagrams.clone();
    assert!(sent.iter().any(|payload| echoes(1_000_000)(&payload)));
    assert!(!sent.iter().any(|payload| echoes(1_000_777)(&payload)));
    // Sent as a datagram, the same makes the difference.
    bench.raw().datagram(in_group(3, 1, &symbols[1]));
    bench.world.run(ms(500));
    assert!(bench.stats().clock.is_some());
    let sent = bench.raw().datagrams.clone();
    assert!(sent.iter().any(|payload| echoes(1_000_777)(&payload)));
}

#[test]
fn groups_are_forgotten_when_they_are_of_no_use() {
    let mut bench = Bench::new();
    let (symbols, data) = symbols(0, 3);
    bench.raw().datagram(in_group(5, 0, &symbols[0]));
    bench.raw().datagram(in_group(5, 1, &symbols[1]));
    // Not a word from the peer for so long, and nothing else that would wake the session up just then.
    bench.world.run(ms(LIFE + 50));
    bench.raw().datagram(one_repair(5, &symbols));
    bench.lives();
    assert_eq!(bench.received().len(), 0);
    let stats = bench.stats();
    assert_eq!(stats.wasted_repair_bytes, stats.repair_bytes_received);
    assert_eq!(stats.recovered_bytes, 0);
    // The straggler is a datagram like any other.
    bench.raw().datagram(in_group(5, 2, &symbols[2]));
    receives(&mut bench, 0, &data);
    assert!(bench.world.session(bench.end.host, bench.end.session).is_clean(), "it has opened nothing");
}

#[test]
fn a_group_is_forgotten_though_nothing_else_comes() {
    let mut bench = Bench::new();
    bench.block(Info::new(0, 5));
    bench.raw().datagram(in_group(5, 0, &[]));
    bench.lives();
    bench.received();
    let is_clean = |bench: &mut Bench| bench.world.session(bench.end.host, bench.end.session).is_clean();
    assert!(!is_clean(&mut bench));
    bench.world.run(ms(LIFE - 60));
    assert!(!is_clean(&mut bench));
    bench.world.run(ms(30));
    assert!(is_clean(&mut bench));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut bench = Bench::new();
    let (symbols, data) = symbols(0, 2);
    bench.raw().datagram(in_group(1, 0, &symbols[0]));
    // More than the window in groups with higher ids.
    for group in 2..3 + REPAIR_WINDOW / 1_000 {
        bench.raw().datagram(in_group(group, 0, &[0; 1_000]));
    }
    bench.lives();
    bench.raw().datagram(one_repair(1, &symbols));
    bench.lives();
    assert_eq!(bench.received().len(), 0, "the oldest is forgotten");
    // The newest is not.
    let group = 2 + REPAIR_WINDOW / 1_000;
    let zeros = vec![0; 1_000];
    bench.raw().datagram(repair(group, LIFE, (2, 1), 0, &sum_of(&[zeros, symbols[1].clone()])));
    receives(&mut bench, 0, &data);
}

#[test]
fn without_a_window_there_is_no_redundancy() {
    let limits = limits().repair_window(0);
    let frames =
        [in_group(0, 0, b""), repair(0, LIFE, (1, 1), 0, &[0, 0]), join(&[&timestamp(1), &one_repair(0, &[vec![]])])];
    for datagram in frames {
        let mut bench = Bench::with(limits, Config::default());
        let settings = &bench.answers()[0];
        assert_eq!(wire::numbers(&settings.1).chunks_exact(2).filter(|pair| pair == &[5, 0]).count(), 0);
        bench.raw().datagram(datagram);
        bench.dies(ProtocolError::UnknownFrame);
    }
}

#[test]
fn malformed_frames() {
    let shard = [0; 4];
    for datagram in [
        join(&[&timestamp(1), &source(0, 0, LIFE)]),
        join(&[&[0], &source(0, 0, LIFE)]),
        join(&[&source(0, 0, LIFE), &source(0, 1, LIFE)]),
        join(&[&source(0, 0, LIFE), &repair(0, LIFE, (1, 1), 0, &shard)]),
        source(0, 128, LIFE),
        source(0, 0, LIFE)[..3].to_vec(),
        repair(0, LIFE, (0, 1), 0, &shard),
        repair(0, LIFE, (129, 1), 0, &shard),
        repair(0, LIFE, (1, 0), 0, &shard),
        repair(0, LIFE, (1, 128), 0, &shard),
        repair(0, LIFE, (1, 13), 0, &shard),
        repair(0, LIFE, (2, 17), 0, &shard),
        repair(0, LIFE, (1, 1), 1, &shard),
        repair(0, LIFE, (1, 1), 0, &[]),
        repair(0, LIFE, (1, 1), 0, &shard[..3]),
    ] {
        let mut bench = Bench::new();
        bench.raw().datagram(datagram);
        bench.dies(ProtocolError::Malformed);
    }
}

#[test]
fn a_group_may_have_four_times_as_many_repairs_as_sources_and_eight() {
    let mut bench = Bench::new();
    for (group, code) in [(1, 12), (2, 16), (29, 124), (30, 127), (128, 127)].into_iter().enumerate() {
        bench.raw().datagram(repair(group as u64, LIFE, code, code.1 - 1, &[0; 4]));
    }
    bench.lives();
}

#[test]
fn repairs_must_agree_with_their_group() {
    let zeros = [0; 10];
    let first = repair(3, LIFE, (4, 2), 0, &zeros);
    for (before, after) in [
        // Repairs with each other.
        (first.clone(), repair(3, LIFE, (5, 2), 1, &zeros)),
        (first.clone(), repair(3, LIFE, (4, 3), 1, &zeros)),
        (first.clone(), repair(3, LIFE, (4, 2), 1, &zeros[2..])),
        (first.clone(), repair(3, LIFE, (4, 3), 0, &zeros)),
        // Sources with repairs, in either order.
        (first.clone(), in_group(3, 4, &[])),
        (first.clone(), in_group(3, 0, &[0; 9])),
        (in_group(3, 4, &[]), first.clone()),
        (in_group(3, 0, &[0; 9]), first.clone()),
    ] {
        let mut bench = Bench::new();
        bench.raw().datagram(before);
        bench.lives();
        bench.raw().datagram(after);
        bench.dies(ProtocolError::Repair);
    }
}

#[test]
fn what_is_restored_must_make_sense() {
    let of_lone = |shard: &[u8]| repair(0, LIFE, (1, 1), 0, shard);
    let lone = |symbol: &[u8]| of_lone(&sum_of(&[symbol.to_vec()]));
    for datagram in [
        // No shard: its length reaches beyond it, or what follows is not zero.
        of_lone(&[0, 3, 0, 0]),
        of_lone(&[0xff, 0xff, 0, 0]),
        of_lone(&[0, 1, 0, 1]),
        // No frames.
        lone(&[0x01, 0]),
        lone(&[0x13, 0]),
        lone(&[0x22]),
        lone(&Info::new(0, 5).bytes()),
        // Groups in groups.
        lone(&source(1, 0, LIFE)),
        lone(&repair(1, LIFE, (1, 1), 0, &[0, 0])),
    ] {
        let mut bench = Bench::new();
        bench.raw().datagram(datagram);
        bench.dies(ProtocolError::Repair);
    }
    // What has a meaning has it as in any datagram.
    let mut bench = Bench::new();
    bench.block(Info::new(0, 50));
    bench.raw().datagram(lone(&fragment(1, 0, &[0; 20])));
    bench.raw().datagram(repair(1, LIFE, (1, 1), 0, &sum_of(&[fragment(1, 10, &[1; 20])])));
    bench.dies(ProtocolError::FragmentConflict);
}

#[test]
fn a_symbol_sent_twice_counts_once() {
    let mut bench = Bench::new();
    let (symbols, data) = symbols(0, 2);
    bench.raw().datagram(in_group(1, 0, &symbols[0]));
    // A resent datagram has another TIMESTAMP, and may have less in it.
    bench.raw().datagram(in_group(1, 0, &timestamp(1_000_009)));
    bench.raw().datagram(one_repair(1, &symbols));
    receives(&mut bench, 0, &data);
}

#[test]
fn groups_end_with_the_session() {
    let mut bench = Bench::new();
    bench.raw().datagram(in_group(1, 0, &[0; 1_000]));
    bench.lives();
    bench.raw().datagram(vec![0x22]);
    bench.dies(ProtocolError::UnknownFrame);
}

#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<FragmentArrived>>>);

impl Observer for Arrivals {
    fn fragment_arrived(&mut self, _: Instant, fragment: &FragmentArrived) {
        self.0.lock().expect("no test has failed yet").push(*fragment);
    }
}

#[test]
fn an_observer_sees_what_was_recovered() {
    let arrivals = Arrivals::default();
    let to = arrivals.clone();
    let observer: punctual_proto::ObserverFactory = Arc::new(move |_| Box::new(to.clone()));
    let mut world = World::new(ms(5));
    let server =
        world.add_endpoint(Some(server_config(SessionConfig { observer: Some(observer), ..SessionConfig::default() })));
    let raw = world.add_raw(Config::default(), server);
    world.accept(server);
    world.raw(raw).control(&hello(1 << 20, 1 << 22, 1_000, 4));
    let (symbols, _) = symbols(0, 2);
    world.raw(raw).datagram(in_group(1, 0, &symbols[0]));
    world.raw(raw).datagram(one_repair(1, &symbols));
    world.run(ms(50));
    let seen: Vec<_> =
        arrivals.0.lock().unwrap().iter().map(|f| (f.block, f.offset, f.path.is_some(), f.recovered)).collect();
    assert_eq!(seen, [(BlockId(0), 0, true, false), (BlockId(0), 100, false, true)]);
}
