//! A peer that opens, moves and abandons paths as no client would.

mod common;

use common::{
    address_at,
    bench::{Bench, limits},
    ms,
    raw::Config,
    wire::{arrivals, fragment, timestamp, varint},
};
use punctual_proto::{Block, CloseReason, Event, PathEvent, ProtocolError};

/// Frames of QUIC and of multipath (RFC 10069).
const RETIRE_CONNECTION_ID: u64 = 0x19;
const PATH_CHALLENGE: u64 = 0x1a;
const PATH_ABANDON: u64 = 0x3e75;
const PATH_BACKUP: u64 = 0x3e76;
const PATH_AVAILABLE: u64 = 0x3e77;
const PATH_NEW_CONNECTION_ID: u64 = 0x3e78;
const PATH_RETIRE_CONNECTION_ID: u64 = 0x3e79;
const MAX_PATH_ID: u64 = 0x3e7a;
const PATHS_BLOCKED: u64 = 0x3e7b;
const PATH_CIDS_BLOCKED: u64 = 0x3e7c;

/// A frame that consists of numbers.
fn frame(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| varint(number)).collect()
}

/// A server with a session whose peer may have as many paths as the server lets it.
fn bench() -> Bench {
    Bench::with(limits(), Config { paths: 1_000, ..Config::default() })
}

/// The paths of the server's end.
fn paths(bench: &mut Bench) -> usize {
    let (now, end) = (bench.world.now, bench.end);
    let count = bench.world.session(end.host, end.session).path_stats(now).len();
    bench.world.drain();
    count
}

/// Opens as many paths as it is let.
fn open_all(bench: &mut Bench, local: &mut u32) -> usize {
    let (now, raw) = (bench.world.now, bench.raw);
    let mut opened = 0;
    while opened < 100 && bench.raw().open_path(now, address_at(raw, *local)).is_some() {
        (*local, opened) = (*local % 30_000 + 1, opened + 1);
    }
    opened
}

/// Abandons all but the first.
fn abandon_all(bench: &mut Bench) {
    let now = bench.world.now;
    for id in bench.raw().paths().into_iter().skip(1) {
        bench.raw().close_path(now, id);
    }
}

#[test]
fn the_last_path_is_abandoned() {
    for busy in [false, true] {
        let mut bench = bench();
        let end = bench.end;
        if busy {
            (0..10).for_each(|_| _ = bench.world.send(end, Block::new(vec![1; 3_000]).deadline(ms(300))));
            bench.datagram(&[&fragment(0, 5, b"unfinished")]);
            bench.lives();
        }
        bench.raw().frames(&frame(&[PATH_ABANDON, 0, 0]));
        bench.world.run(ms(200));
        // All that was known of it is forgotten before the session ends for want of another.
        bench.world.run(ms(10_000));
        let events = bench.events();
        assert!(events.iter().any(|event| matches!(event, Event::Path { event: PathEvent::Closed, .. })));
        let Some(Event::Closed(CloseReason::Transport(error))) = events.last() else { panic!("{events:?}") };
        assert!(error.to_string().contains("no new path opened"), "{error}");
        bench.others_go_on();
        assert_eq!(bench.world.endpoint(bench.server).sessions(), 1);
    }
}

#[test]
fn paths_are_not_worn_out() {
    let (mut bench, mut local, mut opened) = (bench(), 1, 0);
    while bench.raw().lost.is_none() {
        opened += open_all(&mut bench, &mut local);
        bench.world.run(ms(6));
        abandon_all(&mut bench);
        bench.world.run(ms(6));
        assert!(opened < 100, "{opened} paths within moments");
    }
    assert!(opened > 32, "{opened}: some may be abandoned");
    assert_eq!(bench.raw().closed_with(), Some(ProtocolError::Paths.code()));
    let events = bench.events();
    assert_eq!(events.last(), Some(&Event::Closed(CloseReason::Protocol(ProtocolError::Paths))), "{events:?}");
    bench.others_go_on();
    bench.world.run(ms(5_000));
    assert_eq!(bench.world.endpoint(bench.server).sessions(), 1, "it is forgotten");
}

#[test]
fn who_changes_paths_now_and_then_goes_on() {
    let (mut bench, mut local) = (bench(), 1);
    for _ in 0..100 {
        open_all(&mut bench, &mut local);
        bench.world.run(ms(4_000));
        assert_eq!(paths(&mut bench), 8);
        abandon_all(&mut bench);
        bench.lives();
        assert_eq!(paths(&mut bench), 1);
    }
    assert!(local > 500);
    bench.others_go_on();
}

#[test]
fn reports_may_tell_of_paths_that_are_not_there() {
    let (mut bench, mut local) = (bench(), 1);
    open_all(&mut bench, &mut local);
    bench.lives();
    abandon_all(&mut bench);
    bench.world.run(ms(100));
    for path in [0, 1, 3, 7, 8, 900, u64::from(u32::MAX)] {
        bench.datagram(&[&arrivals(path, &[(0, 5), (u32::MAX, 7), (1, 1)])]);
        bench.lives();
    }
    bench.datagram(&[&arrivals(1 << 32, &[(0, 5)])]);
    bench.dies(ProtocolError::Malformed);
}

#[test]
fn times_that_run_backwards_on_each_path_harm_nobody() {
    let (mut bench, mut local) = (bench(), 1);
    open_all(&mut bench, &mut local);
    bench.lives();
    for step in 0..300_u32 {
        let stamp = u32::MAX.wrapping_sub(step * 10_000_000);
        bench.raw().datagram(timestamp(stamp));
        bench.raw().datagram([timestamp(stamp), arrivals(u64::from(step % 8), &[(stamp, stamp / 2)])].concat());
        bench.world.run(ms(2));
    }
    bench.lives();
    bench.others_go_on();
}

#[test]
fn statuses_may_change_all_the_time() {
    let (mut bench, mut local) = (bench(), 1);
    open_all(&mut bench, &mut local);
    bench.lives();
    let (mut sequence, end) = (0, bench.end);
    let before = bench.world.packets_sent[bench.server];
    for _ in 0..200 {
        let mut frames = Vec::new();
        while frames.len() < 1_000 {
            sequence += 1;
            frames.extend(frame(&[PATH_BACKUP + sequence % 2, sequence % 11, sequence]));
        }
        bench.raw().frames(&frames);
        bench.world.run(ms(1));
    }
    assert!(sequence > 10_000 && PATH_AVAILABLE == PATH_BACKUP + 1);
    let sent = bench.world.packets_sent[bench.server] - before;
    assert!(sent < 2_000, "{sent} packets for 200");
    bench.world.take_events(bench.server);
    let id = bench.world.send(end, Block::new(vec![1; 3_000]));
    bench.lives();
    assert!(bench.raw().datagrams.iter().any(|datagram| !datagram.is_empty()), "{id} goes out");
    bench.others_go_on();
}

#[test]
fn who_is_elsewhere_with_each_packet_is_answered_no_more_than_it_sends() {
    for paths in [0, 8] {
        let mut bench = Bench::with(limits(), Config { paths, ..Config::default() });
        let (raw, end, server) = (bench.raw, bench.end, bench.server);
        bench.world.roams = Some(raw);
        for _ in 0..500 {
            // There is more to send than it is given.
            let _ = bench.world.try_send(end, Block::new(vec![1; 3_000]).deadline(ms(300)));
            bench.datagram(&[]);
            bench.world.run(ms(1));
        }
        let (asked, sent) = (bench.world.packets_sent[raw], bench.world.packets_sent[server]);
        assert!(asked > 30 && sent < 4 * asked, "{sent} for {asked}");
        assert!(bench.world.most_events < 200, "{}", bench.world.most_events);
        bench.world.roams = None;
        bench.world.run(ms(2_000));
        bench.others_go_on();
    }
}

/// Runs the attack until the session ends or it has been done 300 times.
fn attack(mut frames: impl FnMut(u64) -> Vec<u8>) -> Bench {
    let mut bench = bench();
    for round in 0..300 {
        bench.raw().frames(&frames(round));
        bench.world.run(ms(2));
        if bench.raw().lost.is_some() {
            break;
        }
    }
    bench.others_go_on();
    bench
}

#[test]
fn what_is_said_of_connection_ids_and_path_ids_ends_the_session_at_most() {
    // Ids are retired as fast as they come, but for that in use.
    attack(|round| {
        let sequences = round * 4 + 1..round * 4 + 5;
        let retired = sequences.map(|sequence| frame(&[RETIRE_CONNECTION_ID, sequence]));
        retired.chain((1..8).map(|path| frame(&[PATH_RETIRE_CONNECTION_ID, path, round]))).flatten().collect()
    });
    // Those that never were.
    let mut bench = attack(|round| frame(&[PATH_RETIRE_CONNECTION_ID, round % 8, 1 << 40]));
    assert!(bench.raw().lost.is_some());
    // New ones, each of which retires all before it; or that leave gaps; of paths that are not there yet.
    for (step, retires) in [(1, true), (3, true), (1, false), (2, false)] {
        attack(|round| {
            let sequence = 5 + round * step;
            let prior = if retires { sequence } else { 0 };
            let mut new = frame(&[PATH_NEW_CONNECTION_ID, round % 8, sequence, prior]);
            new.push(8);
            new.extend([round as u8, (round >> 8) as u8, 3, 4, 5, 6, 7, 8]);
            new.extend([round as u8; 16]);
            new
        });
    }
    // Games with limits, and complaints.
    for frames in [
        frame(&[MAX_PATH_ID, u64::from(u32::MAX)]),
        frame(&[MAX_PATH_ID, 0]),
        frame(&[PATHS_BLOCKED, 7]),
        frame(&[PATH_CIDS_BLOCKED, 7, 0]),
        frame(&[PATH_ABANDON, 5, 1]),
        [frame(&[PATH_CHALLENGE]), vec![7; 8]].concat().repeat(50),
    ] {
        let mut bench = attack(|_| frames.clone());
        assert_eq!(bench.raw().lost, None);
    }
    for frames in [frame(&[PATHS_BLOCKED, 900]), frame(&[PATH_CIDS_BLOCKED, 900, 0])] {
        let mut bench = attack(|_| frames.clone());
        assert!(bench.raw().lost.is_some());
    }
}
