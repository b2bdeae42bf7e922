//! Peers whose reports of arrivals are lies, nonsense or far too many, and peers that report nothing.
//!
//! Whatever they say costs themselves at most: data goes on to flow, the session lives, and so does another of the same endpoint. How fast
//! such a peer is sent to, at a link that cannot carry it all, is tried in the unit tests of `path`.

mod common;

use std::collections::BTreeMap;

use common::{
    bench::{Bench, limits},
    ms,
    raw::Config,
    wire::{self, Said, join, timestamp},
};
use punctual_proto::Block;

/// What a block holds.
const BLOCK: usize = 10_000;
/// Time between two rounds of reports.
const STEP: u64 = 5;

/// A server that sends to a peer of bare QUIC, with room for all of it.
fn bench() -> Bench {
    let mut bench = Bench::with(limits().send_bytes(8 << 20), Config::default());
    bench.control(&wire::credit(1 << 30, 1 << 20));
    bench
}

/// The TIMESTAMPs of what came since the last call, and the bytes of blocks.
fn came(bench: &mut Bench) -> (Vec<u32>, u64) {
    let (mut stamps, mut bytes) = (Vec::new(), 0);
    for payload in std::mem::take(&mut bench.raw().datagrams) {
        for said in wire::read_datagram(&payload) {
            match said {
                Said::Timestamp(stamp) => stamps.push(stamp),
                Said::Fragment { len, .. } => bytes += len as u64,
                _ => {}
            }
        }
    }
    (stamps, bytes)
}

/// What a peer reports, given what came just now, the time on its clock, and the number of the round.
type Reports = fn(&[u32], u32, u32) -> Vec<Vec<u8>>;

/// A peer that reports so takes blocks for `rounds`. Returns how many bytes came.
fn send_to(bench: &mut Bench, rounds: u32, reports: Reports) -> u64 {
    let mut all = 0;
    for round in 0..rounds {
        for _ in 0..3 {
            bench.world.send(bench.end, Block::new(vec![1; BLOCK]));
        }
        bench.world.run(ms(STEP));
        let (stamps, bytes) = came(bench);
        all += bytes;
        let now = 7_000_000 + round * STEP as u32 * 1_000;
        for report in reports(&stamps, now, round) {
            bench.raw().datagram(join(&[&timestamp(now), &report]));
        }
    }
    all
}

/// One report of all stamps, at these times.
fn report(stamps: &[u32], at: impl Fn(u32, u32) -> u32) -> Vec<Vec<u8>> {
    let list: Vec<_> = (0..).zip(stamps).map(|(i, &stamp)| (stamp, at(i, stamp))).collect();
    list.chunks(100).map(|list| wire::arrivals(0, list)).collect()
}

/// What a peer may report without being told off, however little sense it makes.
const LIES: [(&str, Reports); 11] = [
    ("nothing", |_, _, _| Vec::new()),
    ("the truth", |stamps, now, _| report(stamps, |i, _| now + i)),
    ("all at one instant, always the same", |stamps, _, _| report(stamps, |_, _| 77)),
    ("as soon as they were sent", |stamps, _, _| report(stamps, |_, stamp| stamp)),
    ("time runs backwards", |stamps, now, _| report(stamps, |i, _| now.wrapping_neg().wrapping_sub(i))),
    ("half an hour ahead, and half an hour back", |stamps, now, round| {
        report(stamps, |i, _| now.wrapping_add(((i + round) % 3) << 30))
    }),
    ("any time", |stamps, now, _| report(stamps, |i, stamp| (now ^ stamp).wrapping_mul(2_654_435_761).wrapping_add(i))),
    ("what was never sent", |_, now, round| {
        let stamps: Vec<u32> = (0..300_u32).map(|i| (i ^ round).wrapping_mul(2_654_435_761)).collect();
        report(&stamps, |_, _| now)
    }),
    ("everything fifty times", |stamps, now, _| (0..50).flat_map(|_| report(stamps, |i, _| now + i)).collect()),
    ("paths that do not exist", |stamps, now, _| {
        let list: Vec<_> = stamps.iter().map(|&stamp| (stamp, now)).collect();
        let paths = [1, 77, u64::from(u32::MAX)];
        paths.into_iter().filter(|_| !list.is_empty()).map(|path| wire::arrivals(path, &list)).collect()
    }),
    ("one at a time, the last first", |stamps, now, _| {
        stamps.iter().rev().map(|&stamp| wire::arrival(0, stamp, now)).collect()
    }),
];

#[test]
fn data_flows_whatever_a_peer_reports() {
    let mut rates = BTreeMap::new();
    for (what, reports) in LIES {
        let mut bench = bench();
        let bytes = send_to(&mut bench, 200, reports);
        // Without any report there is a first window for each round trip, 12 packets in 10 ms and what the ACK is late by. Who says
        // that its path is slow is believed.
        let least = if what == "any time" { 3 * BLOCK as u64 } else { 500_000 };
        assert!(bytes > least, "{what}: {bytes}");
        bench.lives();
        bench.others_go_on();
        rates.insert(what, bytes);
    }
    assert!(rates["the truth"] > rates["nothing"], "{rates:?}");
}

#[test]
fn millions_of_arrivals_a_second_are_taken_in() {
    let mut bench = bench();
    // Four million a second, of stamps near those that were sent.
    let flood: Reports = |stamps, now, _| {
        let last = stamps.last().copied().unwrap_or_default();
        let list: Vec<_> = (0..250_u32).map(|i| (last.wrapping_sub(i), now)).collect();
        vec![wire::arrivals(0, &list); 80]
    };
    let bytes = send_to(&mut bench, 40, flood);
    assert!(bytes > 100_000, "{bytes}");
    assert!(bench.world.most_events < 1_000, "{}", bench.world.most_events);
    bench.lives();
    bench.others_go_on();
}

/// What was true of a path until the peer fell silent is not true for ever: but the session goes on.
#[test]
fn a_peer_that_ceases_to_report_is_served_still() {
    let mut bench = bench();
    send_to(&mut bench, 100, |stamps, now, _| report(stamps, |i, _| now + i));
    let bytes = send_to(&mut bench, 100, |_, _, _| Vec::new());
    assert!(bytes > 100 * 3 * BLOCK as u64 * 9 / 10, "{bytes}");
    bench.lives();
    bench.others_go_on();
}

/// A receiver of Punctual's reports what it got, however wild the stamps, and no more than fits.
#[test]
fn wild_stamps_are_reported_as_they_came() {
    let mut bench = Bench::new();
    let stamps: Vec<u32> = (0..3_000_u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    for stamp in &stamps {
        bench.raw().datagram(join(&[&timestamp(*stamp), &wire::fragment(0, 0, &[1; 10])]));
    }
    bench.world.run(ms(500));
    let said: Vec<_> = std::mem::take(&mut bench.raw().datagrams).iter().map(|one| wire::read_datagram(one)).collect();
    let reported: usize =
        said.iter().flatten().map(|said| if let Said::Arrivals(count) = said { *count } else { 0 }).sum();
    assert!(reported > 100 && reported <= 3_010, "{reported}");
    bench.lives();
    bench.others_go_on();
}

/// What the peer sends has no blocks, so nobody waits for word of it. All of that goes along with the first block, and leaves room for it.
#[test]
fn a_report_that_goes_along_leaves_room() {
    let mut bench = bench();
    bench.lives();
    for round in 0..600_u32 {
        bench.raw().datagram(timestamp(round.wrapping_mul(500_000_003)));
        bench.world.run(ms(1));
    }
    bench.lives();
    came(&mut bench);
    bench.world.send(bench.end, Block::new(vec![1; BLOCK]));
    bench.world.run(ms(50));
    let all: Vec<_> = std::mem::take(&mut bench.raw().datagrams);
    let said: Vec<_> = all.iter().map(|payload| wire::read_datagram(payload)).collect();
    let reports = said.iter().filter(|said| said.iter().any(|one| matches!(one, Said::Arrivals { .. })));
    let full = reports.filter(|said| said.iter().any(|one| matches!(one, Said::Fragment { .. })));
    assert!(full.count() >= 1, "{said:?}");
    bench.lives();
}
