//! What a hostile peer costs: the time a server takes for what such a peer can send, beside an honest one's full datagrams.
//!
//! Everything is measured in one run, in virtual time, without sockets: what is counted is the time in the endpoint, QUIC and its cryptography
//! included, for each packet of the peer's and each byte of these, and what is answered.
//!
//! `cargo run --release -p punctual-proto --features fuzzing --example hostile_cost`; a word behind `--`: only rows that have it.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{
    bench::Bench,
    ms,
    raw::Config,
    wire::{
        self, Info, arrivals, dropped_list, fragment, frame, heard, join, last_fragment, repair, source, timestamp,
        update, varint,
    },
};
use punctual_proto::{Limits, fuzzing::CodedGroup};

/// Bytes of frames in a full datagram.
const FULL: usize = 1_100;
/// How often each kind of traffic is sent, and how many datagrams at a time.
const ROUNDS: u64 = 400;
const BURST: u64 = 8;

/// What the peer sends: the `n`-th time.
type Send = fn(&mut Bench, u64);

const KINDS: &[(&str, Send)] = &[
    ("honest: full datagrams of blocks of 46 kB", honest),
    ("empty datagrams", |bench, _| bench.raw().datagram(Vec::new())),
    ("datagrams of a TIMESTAMP", |bench, n| bench.raw().datagram(timestamp(n as u32 * 50))),
    ("a FRAGMENT of a byte, in order", |bench, n| bench.raw().datagram(fragment(n / 40_000, n % 40_000, b"x"))),
    ("FRAGMENTs of a byte, in order, as many as fit", |bench, n| tiny_fragments(bench, n, 1, false)),
    ("FRAGMENTs of a byte, every other byte", |bench, n| tiny_fragments(bench, n, 2, false)),
    ("the same, the last first", |bench, n| tiny_fragments(bench, n, 2, true)),
    ("BLOCKs of a byte, as many as fit", tiny_blocks),
    ("the same BLOCK_INFO, as often as fits", same_info),
    ("repairs: 2 + 16, of 20 bytes, all restored", |bench, n| repairs(bench, n, 2, 16)),
    ("repairs: 30 + 127, of 20 bytes, all restored", |bench, n| repairs(bench, n, 30, 127)),
    ("repairs: 127 + 127, of 20 bytes, all restored", |bench, n| repairs(bench, n, 127, 127)),
    ("SOURCEs of groups that never end, no byte each", |bench, n| bench.raw().datagram(source(n * 2, 0, 60_000))),
    ("ARRIVALS of what was never sent, as many as fit", many_arrivals),
    ("UPDATEs of a block, as many as fit", |bench, n| {
        let word = update(1 << 30, n as u8, 5_000 + n);
        bench.control(&word.repeat(FULL / word.len()));
    }),
    ("UPDATEs, one in a packet", |bench, n| bench.control(&update(1 << 30, n as u8, 5_000 + n))),
    ("DROPPED_LIST of 1,024 blocks, in a packet each", |bench, n| {
        bench.control(&dropped_list(0, &[(n * 1_024, 1_024)]))
    }),
    ("LATENCY to and fro, as many as fit, 12,800 blocks waiting", latencies),
    ("HEARD of a byte more each, as many as fit", hearing),
    ("CREDIT of a byte more each, as many as fit", |bench, n| {
        let frames =
            (0..FULL as u64 / 8).map(|i| frame(0x01, &join(&[&varint((1 << 22) + n * 200 + i), &varint(1_000)])));
        bench.control(&frames.collect::<Vec<_>>().concat());
    }),
    ("PATH_STATUS, as many as fit", |bench, n| {
        let frames = (0..100).map(|i| [0x3e76 + i % 2, 0, n * 100 + i].map(wire::varint).concat());
        bench.raw().frames(&frames.collect::<Vec<_>>().concat());
    }),
    ("from another address each time", |bench, _| {
        let raw = bench.raw;
        bench.world.roams = Some(raw);
        bench.raw().datagram(Vec::new());
    }),
];

fn honest(bench: &mut Bench, n: u64) {
    let (id, part) = (n / 40, n % 40);
    let fragment = last_fragment(id, part * 1_150, &[id as u8; 1_150]);
    let info = if part == 0 { Info::new(id, 46_000).bytes() } else { Vec::new() };
    bench.raw().datagram(join(&[&timestamp(n as u32 * 50), &info, &fragment]));
}

fn tiny_fragments(bench: &mut Bench, n: u64, step: u64, backwards: bool) {
    let count = 100;
    let at = |i: u64| step * if backwards { 100_000 - (n * count + i) % 50_000 } else { (n * count + i) % 50_000 };
    let id = n * count / 50_000;
    let frames: Vec<_> = (0..count).map(|i| fragment(id, at(i), b"x")).collect();
    bench.raw().datagram(frames.concat());
}

fn tiny_blocks(bench: &mut Bench, n: u64) {
    let first = join(&[&Info::new(n * 200, 1).bytes(), &fragment(n * 200, 0, b"x")]);
    let rest = wire::block_alike(1, 0, b"x").repeat(199);
    bench.raw().datagram(join(&[&timestamp(n as u32 * 50), &first, &rest]));
}

fn latencies(bench: &mut Bench, n: u64) {
    let latency = |millis: u64| frame(0x0f, &join(&[&varint(millis * 1_000), &[0]]));
    if n < 64 {
        bench.control(&latency(9_000));
        return tiny_blocks(bench, n);
    }
    let both = [latency(9_000), latency(8_900)].concat();
    bench.control(&both.repeat(FULL / both.len()));
}

fn hearing(bench: &mut Bench, n: u64) {
    if n < 64 {
        // These are answered, each by itself.
        return tiny_blocks(bench, n);
    }
    let said = bench.raw().stream.len() as u64;
    let first = (n - 64) * 250 % said.max(1);
    let frames = (first..(first + 250).min(said)).map(heard);
    bench.control(&frames.collect::<Vec<_>>().concat());
}

fn same_info(bench: &mut Bench, n: u64) {
    // As old as it was the first time, by the first time's clock.
    let info = Info { age: 500 + n, ..Info::new(1, 40_000) }.bytes();
    bench.raw().datagram(join(&[&timestamp(1_000 + n as u32), &info.repeat(FULL / info.len())]));
}

fn repairs(bench: &mut Bench, n: u64, sources: u8, repairs: u8) {
    if !n.is_multiple_of(BURST) {
        return;
    }
    // Without any of its symbols. They hold nothing.
    let symbols = (0..sources).map(|_| Bytes::from_static(&[0; 20])).collect();
    let coded = CodedGroup::new(symbols, repairs.into()).encode();
    for (index, shard) in coded.iter().enumerate().take(sources.into()) {
        bench.raw().datagram(repair(n / BURST, 1_000, (sources, repairs), index as u8, shard));
    }
}

fn many_arrivals(bench: &mut Bench, n: u64) {
    let list: Vec<_> = (0..500).map(|i| (n as u32 * 500 + i, n as u32 * 50 + i / 8)).collect();
    bench.raw().datagram(join(&[&timestamp(n as u32 * 50), &arrivals(0, &list)]));
}

/// Time, packets of the peer's, and bytes of these.
fn measure(send: Send) -> (Duration, u64, u64) {
    let limits = Limits::default().channels(4);
    let mut bench = Bench::with(limits, Config { paths: 8, ..Config::default() });
    let (raw, server, end) = (bench.raw, bench.server, bench.end);
    bench.world.run(ms(100));
    let before = (bench.world.spent[server], bench.world.packets_sent[raw], bench.world.bytes_sent[raw]);
    for round in 0..ROUNDS {
        (0..BURST).for_each(|i| send(&mut bench, round * BURST + i));
        bench.world.run(ms(20));
        bench.world.recv_all(end);
        bench.world.take_events(server);
    }
    if let Some(lost) = bench.raw().lost.clone() {
        println!("    (it ended: {lost})");
    }
    let world = &bench.world;
    (world.spent[server] - before.0, world.packets_sent[raw] - before.1, world.bytes_sent[raw] - before.2)
}

fn main() {
    let per = |(spent, packets, bytes): (Duration, u64, u64)| {
        let nanos = spent.as_nanos() as f64;
        (nanos / packets as f64, nanos / bytes as f64)
    };
    let (packet, byte) = per(measure(honest));
    println!(
        "| traffic | µs a packet | to honest | ns a byte | to honest | bytes a packet |\n| --- | --- | --- | --- | --- | --- |"
    );
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for &(name, send) in KINDS.iter().filter(|(name, _)| name.contains(&wanted)) {
        let total = measure(send);
        let (a_packet, a_byte) = per(total);
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {} |",
            a_packet / 1_000.0,
            a_packet / packet,
            a_byte,
            a_byte / byte,
            total.2 / total.1
        );
    }
}
