//! Peers that break the protocol, and peers that go to its limits.
//!
//! They are built on bare QUIC and write their frames by hand from `docs/protocol.md`. Each session they
//! spoil ends with the error that document names, at the moment it names, and another session of the same endpoint goes on.

mod common;

use std::collections::BTreeMap;

use common::{
    OTHER_ALPN,
    bench::{BLOCKS, Bench, MAX_BLOCK, REPAIR_WINDOW, WINDOW, limits},
    delivery, ms, outcomes,
    raw::Config,
    wire::{self, Info, dropped, fragment, frame, join, timestamp, varint},
};
use punctual_proto::{Block, BlockId, Event, ProtocolError};

// ---- Blocks

#[test]
fn an_honest_block_by_hand_is_received_and_answered() {
    let mut bench = Bench::new();
    let settings = &bench.answers()[0];
    let expected = vec![1, 1, MAX_BLOCK, 2, WINDOW, 3, BLOCKS, 4, 4, 5, REPAIR_WINDOW];
    assert_eq!((settings.0, wire::numbers(&settings.1)), (0, expected));
    let info = Info { deadline: Some(100_000), place: Some((3, 0)), ..Info::new(0, 2_000) };
    bench.datagram(&[&info.bytes(), &fragment(0, 0, &[1; 900])]);
    bench.datagram(&[&wire::last_fragment(0, 900, &[2; 1_100])]);
    bench.lives();
    assert_eq!(bench.received(), BTreeMap::from([(0, [[1; 900].as_slice(), &[2; 1_100]].concat())]));
    let completed = bench.answers().into_iter().find(|(frame_type, _)| *frame_type == 0x08).expect("COMPLETED_LIST");
    assert_eq!((completed.1[0], completed.1.len()), (0, 5), "the id, when, and no other");
}

#[test]
fn small_blocks_by_hand_are_told_by_how_they_differ() {
    let mut bench = Bench::new();
    // Its data is not here yet; those that follow are like it nevertheless.
    let info = Info { deadline: Some(100_000), age: 10, ..Info::new(5, 4) };
    bench.datagram(&[&info.bytes(), &wire::block_alike(2, -3, b"then"), &wire::block_alike(-1, 0, b"what")]);
    bench.lives();
    assert_eq!(bench.received(), BTreeMap::from([(7, b"then".to_vec()), (6, b"what".to_vec())]));
    bench.datagram(&[&fragment(5, 0, b"now?")]);
    bench.lives();
    assert_eq!(bench.received(), BTreeMap::from([(5, b"now?".to_vec())]));
    let numbers = |payload: &[u8]| (payload[0], wire::numbers(&payload[5..]));
    let completed = bench.answers().into_iter().filter(|(frame_type, _)| *frame_type == 0x08);
    let completed: Vec<_> = completed.map(|(_, payload)| numbers(&payload)).collect();
    assert_eq!(completed, [(7, vec![1, 0]), (5, vec![])], "7 and with it 6, then 5");
}

#[test]
fn an_info_may_be_repeated() {
    let mut bench = Bench::new();
    let info = Info { deadline: Some(100_000), place: Some((3, 0)), age: 10, ..Info::new(0, 2_000) };
    bench.info(info);
    bench.info(info);
    // The age grows with the TIMESTAMP.
    let later = Info { age: 510, ..info };
    bench.raw().datagram(join(&[&timestamp(1_000_500), &later.bytes()]));
    bench.lives();
    // Also behind an UPDATE.
    bench.control(&wire::update(0, 1, 5_000));
    bench.lives();
    bench.info(info);
    bench.lives();
    // Also after the block's end.
    bench.datagram(&[&fragment(0, 0, &[0; 1_000])]);
    bench.datagram(&[&fragment(0, 1_000, &[0; 1_000])]);
    bench.lives();
    bench.info(info);
    bench.lives();
    let blocks = bench.world.recv_all(bench.end);
    assert_eq!(blocks.len(), 1);
    assert_eq!((blocks[0].meta.priority, blocks[0].meta.deadline), (1, Some(ms(5))), "the UPDATE outranks the info");
}

#[test]
fn an_info_must_not_change() {
    let info = Info { deadline: Some(100_000), place: Some((3, 0)), age: 10, ..Info::new(0, 2_000) };
    for changed in [
        Info { size: 2_001, ..info },
        Info { age: 11, ..info },
        Info { priority: 127, ..info },
        Info { deadline: Some(100_001), ..info },
        Info { deadline: None, ..info },
        Info { place: Some((3, 1)), ..info },
        Info { place: Some((2, 0)), ..info },
        Info { place: None, ..info },
    ] {
        let mut bench = Bench::new();
        bench.info(info);
        bench.lives();
        bench.info(changed);
        bench.dies(ProtocolError::InfoConflict);
    }
}

#[test]
fn a_fragment_must_lie_within_its_block() {
    let mut bench = Bench::new();
    bench.datagram(&[&Info::new(0, 100).bytes(), &fragment(0, 99, &[0])]);
    bench.lives();
    bench.datagram(&[&fragment(0, 99, &[0, 0])]);
    bench.dies(ProtocolError::FragmentRange);

    // The size is learnt afterwards.
    let mut bench = Bench::new();
    bench.datagram(&[&fragment(0, 100, &[0])]);
    bench.lives();
    bench.info(Info::new(0, 100));
    bench.dies(ProtocolError::FragmentRange);

    // It is learnt from DROPPED.
    let mut bench = Bench::new();
    bench.datagram(&[&fragment(0, 100, &[0])]);
    bench.lives();
    bench.control(&dropped(0, 0, 100, None));
    bench.dies(ProtocolError::FragmentRange);

    // No block is that large; and no number.
    for offset in [MAX_BLOCK, (1 << 62) - 2] {
        let mut bench = Bench::new();
        bench.datagram(&[&fragment(0, offset, &[0])]);
        bench.dies(ProtocolError::FragmentRange);
    }
}

#[test]
fn fragments_may_overlap_but_must_agree() {
    for (offset, byte) in [(0, 0), (15, 0), (300, 2), (311, 2)] {
        let mut bench = Bench::new();
        bench.datagram(&[&Info::new(0, 320).bytes(), &fragment(0, 0, &[1; 20]), &fragment(0, 300, &[3; 20])]);
        bench.datagram(&[&fragment(0, 0, &[1; 20]), &fragment(0, 5, &[1; 15]), &fragment(0, 301, &[3; 9])]);
        bench.lives();
        bench.datagram(&[&fragment(0, offset, &[byte; 2])]);
        bench.dies(ProtocolError::FragmentConflict);
    }
    // Agreeing to the end, across everything.
    let mut bench = Bench::new();
    bench.datagram(&[&Info::new(0, 320).bytes(), &fragment(0, 10, &[1; 20]), &fragment(0, 300, &[1; 20])]);
    bench.datagram(&[&fragment(0, 0, &[1; 320])]);
    bench.datagram(&[&fragment(0, 0, &[9; 320])]);
    bench.lives();
    assert_eq!(bench.received(), BTreeMap::from([(0, vec![1; 320])]), "of an ended block nothing is checked");
}

#[test]
fn a_block_has_a_size_within_bounds() {
    for size in [MAX_BLOCK + 1, (1 << 62) - 1] {
        let mut bench = Bench::new();
        bench.info(Info::new(1, MAX_BLOCK));
        bench.lives();
        bench.info(Info::new(0, size));
        bench.dies(ProtocolError::BlockSize);
    }
    let mut bench = Bench::new();
    bench.control(&dropped(0, 0, MAX_BLOCK + 1, None));
    bench.dies(ProtocolError::BlockSize);
}

#[test]
fn an_empty_block_counts_as_one_byte() {
    let mut bench = Bench::new();
    bench.datagram(&[&Info::new(0, 0).bytes(), &Info::new(0, 0).bytes(), &fragment(0, 0, &[0])]);
    bench.datagram(&[&fragment(1, 0, &[0])]);
    bench.info(Info::new(1, 0));
    bench.lives();
    assert_eq!(bench.received(), BTreeMap::from([(0, vec![]), (1, vec![])]));

    // What it is said to be, it stays; and its byte is a zero.
    for (first, then, error) in [
        (fragment(0, 1, &[0]), Info::new(0, 0).bytes(), ProtocolError::FragmentRange),
        (fragment(0, 0, &[7]), Info::new(0, 0).bytes(), ProtocolError::FragmentConflict),
        (Info::new(0, 1).bytes(), Info::new(0, 0).bytes(), ProtocolError::InfoConflict),
    ] {
        let mut bench = Bench::new();
        bench.datagram(&[&first]);
        bench.datagram(&[&then]);
        bench.dies(error);
    }

    // Nothing is free.
    let mut bench = Bench::new();
    for id in 0..=limits().receive_blocks {
        bench.info(Info::new(id, 0));
    }
    bench.dies(ProtocolError::Credit);
}

#[test]
fn impossible_values_are_malformed() {
    let no_timestamp = Info::new(0, 1).bytes();
    let mut flags = join(&[&timestamp(1), &no_timestamp]);
    let at = flags.len() - 2;
    flags[at] = 0x04;
    let no_deadline = join(&[&timestamp(1), &Info { deadline: Some(0), ..Info::new(0, 1) }.bytes()]);
    let channel = join(&[&timestamp(1), &Info { place: Some((1 << 32, 0)), ..Info::new(0, 1) }.bytes()]);
    let echo = join(&[&timestamp(1), &wire::arrival(1 << 32, 0, 0)]);
    let no_data = fragment(0, 0, &[]);
    let cut = [0x13, 0, 0, 5, 1];
    for payload in
        [&no_timestamp[..], &flags, &no_deadline, &channel, &echo, &no_data, &cut, &[0x01], &timestamp(1).repeat(2)]
    {
        let mut bench = Bench::new();
        bench.raw().datagram(payload.to_vec());
        bench.dies(ProtocolError::Malformed);
    }
    for control in [
        frame(0x01, &varint(5)),
        frame(0x05, &[&varint(0)[..], &varint(0)].concat()),
        dropped(0, 6, 0, None),
        frame(0x02, &[0, 0, 0, 2]),
        join(&[&varint(0x01), &varint(1_025)]),
    ] {
        let mut bench = Bench::new();
        bench.control(&control);
        bench.dies(ProtocolError::Malformed);
    }
}

#[test]
fn what_a_datagram_says_before_an_error_counts_no_more_than_the_error() {
    let mut bench = Bench::new();
    bench.datagram(&[&Info::new(0, 1).bytes(), &fragment(0, 0, b"!"), &[0x22]]);
    bench.dies(ProtocolError::UnknownFrame);
}

// ---- Credit

#[test]
fn credit_bounds_the_number_of_blocks() {
    let mut bench = Bench::new();
    for id in 0..BLOCKS {
        bench.info(Info::new(id, 1));
    }
    bench.lives();
    bench.info(Info::new(BLOCKS, 1));
    bench.dies(ProtocolError::Credit);
}

#[test]
fn credit_bounds_their_bytes() {
    let mut bench = Bench::new();
    for id in 0..WINDOW / MAX_BLOCK {
        bench.info(Info::new(id, MAX_BLOCK));
    }
    bench.lives();
    bench.info(Info::new(9, 1));
    bench.dies(ProtocolError::Credit);
}

#[test]
fn credit_comes_back_as_blocks_are_consumed_and_not_before() {
    let mut bench = Bench::new();
    for id in 0..BLOCKS {
        bench.block(Info::new(id, 1));
    }
    bench.lives();
    assert!(bench.answers().iter().all(|(frame_type, _)| *frame_type != 0x01), "nothing was consumed yet");
    assert_eq!(bench.received().len(), 16);
    bench.lives();
    let credit = bench.answers().into_iter().rfind(|(frame_type, _)| *frame_type == 0x01).expect("CREDIT");
    assert_eq!(wire::numbers(&credit.1), [WINDOW + BLOCKS, 2 * BLOCKS]);
    for id in BLOCKS..2 * BLOCKS {
        bench.info(Info::new(id, 1));
    }
    bench.lives();
    bench.info(Info::new(2 * BLOCKS, 1));
    bench.dies(ProtocolError::Credit);
}

#[test]
fn dropped_blocks_give_their_credit_back() {
    let mut bench = Bench::new();
    for id in 0..10 * BLOCKS {
        // Every other one is opened before.
        if id % 2 == 0 {
            bench.datagram(&[&Info::new(id, MAX_BLOCK).bytes(), &fragment(id, 3, &[0; 1_000])]);
        }
        bench.lives();
        bench.control(&dropped(id, 1, MAX_BLOCK, None));
        bench.lives();
    }
    assert_eq!(bench.stats().live_in_bytes, 0);
    let freed = |(frame_type, payload): &(u64, Vec<u8>)| (*frame_type == 0x04).then(|| wire::numbers(payload));
    let answers: Vec<_> = bench.answers().iter().filter_map(freed).collect();
    assert_eq!(answers, (0..10 * BLOCKS).map(|id| vec![id, (id + 1) % 2 * 1_000]).collect::<Vec<_>>());
    let heard = bench.events().iter().filter(|event| matches!(event, Event::PeerDropped { .. })).count();
    assert_eq!(heard as u64, 10 * BLOCKS);
}

#[test]
fn fragments_without_an_info_need_credit_too() {
    // Blocks.
    let mut bench = Bench::new();
    bench.info(Info::new(0, 1));
    for id in 1..BLOCKS {
        bench.datagram(&[&fragment(id, 0, b"x")]);
    }
    bench.lives();
    // Their infos use no more.
    for id in 1..BLOCKS {
        bench.info(Info::new(id, 2));
    }
    bench.lives();
    bench.datagram(&[&fragment(BLOCKS, 0, b"x")]);
    bench.dies(ProtocolError::Credit);

    // Bytes: a block ends with the furthest of its fragments.
    let mut bench = Bench::new();
    for id in 0..WINDOW / MAX_BLOCK {
        bench.datagram(&[&fragment(id, 7, b"x"), &fragment(id, MAX_BLOCK - 1, b"x")]);
    }
    bench.lives();
    bench.info(Info::new(0, MAX_BLOCK));
    bench.lives();
    bench.datagram(&[&fragment(9, 0, b"x")]);
    bench.dies(ProtocolError::Credit);

    // Those of dropped blocks are nobody's any more.
    let mut bench = Bench::new();
    for id in 0..5 * BLOCKS {
        bench.datagram(&[&fragment(id, 0, b"x")]);
        bench.lives();
        bench.control(&dropped(id, 0, 5, None));
        bench.lives();
    }
}

#[test]
fn tiny_fragments_do_not_fill_the_memory() {
    let mut bench = Bench::new();
    for id in 0..WINDOW / MAX_BLOCK {
        bench.info(Info::new(id, MAX_BLOCK));
    }
    bench.lives();
    let mut most = 0;
    'attack: for id in 0..WINDOW / MAX_BLOCK {
        for from in (1..MAX_BLOCK).step_by(200) {
            let pieces: Vec<_> = (from..from + 200).step_by(2).map(|at| fragment(id, at, b"x")).collect();
            bench.raw().datagram(pieces.concat());
            bench.world.run(ms(20));
            if bench.raw().lost.is_some() {
                break 'attack;
            }
            most = most.max(bench.stats().live_in_bytes);
        }
    }
    assert!(most > WINDOW, "small fragments cost more than their bytes: {most}");
    assert!(most <= 2 * WINDOW, "{most}");
    bench.dies(ProtocolError::Credit);
}

#[test]
fn fragments_that_keep_their_packets_count_as_packets() {
    // What Ethernet carries, all of which a fragment may keep alive.
    const PACKET: u64 = 1_500;
    const SHORTEST: u64 = 1_024;
    const LONGEST: u64 = 1_100;
    let mut bench = Bench::new();
    for id in 0..WINDOW / MAX_BLOCK {
        bench.info(Info::new(id, MAX_BLOCK));
    }
    bench.lives();
    let (mut kept, mut held) = (0, 0);
    for id in 0..WINDOW / MAX_BLOCK {
        // A byte is missing before each.
        let mut at = 1;
        while at + LONGEST < MAX_BLOCK {
            let len = SHORTEST + 19 * kept % (LONGEST - SHORTEST + 1);
            bench.raw().datagram(fragment(id, at, &vec![7; len as usize]));
            bench.world.run(ms(20));
            (at, kept) = (at + len + 1, kept + 1);
            held = bench.stats().live_in_bytes;
            assert!((kept * PACKET..=2 * WINDOW).contains(&held), "{held} for {kept}");
        }
    }
    bench.lives();
    assert!(kept > 30 && held > WINDOW, "{held} for {kept}");
    // Without its gaps a block keeps no packet.
    let mut at = 0;
    for nth in 0..kept * MAX_BLOCK / WINDOW {
        bench.raw().datagram(fragment(0, at, &[7]));
        at += SHORTEST + 19 * nth % (LONGEST - SHORTEST + 1) + 1;
    }
    bench.lives();
    let freed = held - bench.stats().live_in_bytes;
    assert!(freed > 4_000, "{freed}");
    for id in 0..WINDOW / MAX_BLOCK {
        bench.control(&dropped(id, 0, MAX_BLOCK, None));
    }
    bench.lives();
    assert_eq!(bench.stats().live_in_bytes, 0);
}

#[test]
fn updates_for_blocks_that_never_come_are_bounded() {
    let mut bench = Bench::new();
    for id in 0..BLOCKS {
        bench.control(&wire::update(id, 0, 0));
    }
    bench.lives();
    bench.control(&wire::update(BLOCKS, 0, 0));
    bench.dies(ProtocolError::Credit);
}

// ---- Channels

#[test]
fn a_position_is_used_once() {
    for again in [
        (1, Info { place: Some((0, 5)), ..Info::new(1, 1) }),
        // Behind us already.
        (0, Info { place: Some((0, 0)), ..Info::new(1, 1) }),
    ] {
        let mut bench = Bench::new();
        bench.block(Info { place: Some((0, if again.0 == 1 { 5 } else { 0 })), ..Info::new(0, 1) });
        bench.lives();
        bench.info(again.1);
        bench.dies(ProtocolError::Channel);
    }
    let mut bench = Bench::new();
    bench.control(&dropped(0, 0, 0, Some((0, 5))));
    bench.lives();
    bench.control(&dropped(1, 0, 0, Some((0, 5))));
    bench.dies(ProtocolError::Channel);
}

#[test]
fn there_are_so_many_channels_and_no_more() {
    for last in [Info { place: Some((4, 0)), ..Info::new(4, 1) }.bytes(), Vec::new()] {
        let mut bench = Bench::new();
        for channel in 0..4 {
            bench.block(Info { place: Some((channel * 1_000, 0)), ..Info::new(channel, 1) });
        }
        bench.lives();
        match last.is_empty() {
            true => bench.control(&dropped(4, 0, 0, Some((u64::from(u32::MAX), 0)))),
            false => bench.datagram(&[&last]),
        }
        bench.dies(ProtocolError::Channel);
    }
}

#[test]
fn dropped_positions_are_passed_over_however_many_they_are() {
    // Position 0 is late; everything behind it is dropped, again and again.
    let mut bench = Bench::new();
    const MANY: u64 = 100_000;
    let mut stream = Vec::new();
    for id in 1..=MANY {
        stream.extend(dropped(id, 0, 0, Some((7, id))));
    }
    bench.control(&stream);
    for _ in 0..40 {
        bench.lives();
    }
    bench.block(Info { place: Some((7, 0)), ..Info::new(0, 1) });
    bench.block(Info { place: Some((7, MANY + 1)), ..Info::new(MANY + 1, 1) });
    bench.lives();
    assert_eq!(bench.received().into_keys().collect::<Vec<_>>(), [0, MANY + 1]);
}

// ---- Frame types

#[test]
fn types_for_extensions_are_skipped() {
    let mut bench = Bench::new();
    let extension = |frame_type: u64, len: usize| join(&[&varint(frame_type), &varint(len as u64), &vec![0xff; len]]);
    bench.datagram(&[
        &extension(0x40, 0),
        &[0, 0, 0],
        &Info::new(0, 2).bytes(),
        &extension(0x7f, 300),
        &fragment(0, 0, b"ok"),
    ]);
    let control = [extension(0x7f, 100_000), dropped(1, 0, 0, None), extension(0x40, 0)].concat();
    bench.control(&control);
    bench.lives();
    bench.lives();
    assert_eq!(bench.received(), BTreeMap::from([(0, b"ok".to_vec())]));
    assert!(bench.events().iter().any(|event| matches!(event, Event::PeerDropped { id: BlockId(1), .. })));
    // One that never ends holds up what is behind it, and nothing else.
    bench.control(&join(&[&varint(0x41), &varint((1 << 62) - 1), &[0; 1_000]]));
    bench.lives();
    bench.block(Info::new(2, 5));
    bench.lives();
    assert_eq!(bench.received().len(), 1);
}

#[test]
fn all_other_types_are_refused() {
    for frame_type in [0x03, 0x0f, 0x11, 0x14, 0x17, 0x22, 0x2f, 0x30, 0x3f, 0x80, (1 << 62) - 1] {
        let mut bench = Bench::new();
        bench.datagram(&[&varint(frame_type), &[0; 100]]);
        bench.dies(ProtocolError::UnknownFrame);
    }
    for frame_type in [0x10, 0x3f, 0x80, (1 << 62) - 1] {
        let mut bench = Bench::new();
        bench.control(&frame(frame_type, &[0; 10]));
        bench.dies(ProtocolError::UnknownFrame);
    }
}

// ---- Clocks

#[test]
fn absurd_times_harm_nobody() {
    let mut bench = Bench::new();
    let end = bench.end;
    let mut seed = 7_u64;
    let mut draw = || {
        // xorshift64*
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        seed.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    for round in 0..400 {
        let stamp = match round % 4 {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << 31,
            _ => draw() as u32,
        };
        let echo = wire::arrival(draw() % 3, draw() as u32, draw() as u32);
        // An echo of a time that was, and one that may have been.
        let now = 50_000 + round * 11_000;
        let likely = wire::arrival(0, now as u32, draw() as u32);
        bench.raw().datagram(join(&[&timestamp(stamp), &echo, &likely]));
        bench.world.run(ms(11));
    }
    bench.lives();
    let age = (1 << 62) - 1;
    let info = Info { age, deadline: Some((1 << 62) - 1), ..Info::new(0, 5) };
    bench.datagram(&[&info.bytes(), &fragment(0, 0, b"hello")]);
    bench.lives();
    assert_eq!(bench.received().len(), 1);

    let id = bench.world.send(end, Block::new(vec![1; 3_000]));
    bench.lives();
    bench.control(&wire::completed(id.0, draw() as u32, 3_000));
    bench.lives();
    let done = delivery(outcomes(&bench.events()).get(&id));
    assert!(done.completion <= ms(110), "not later than now: {done:?}");

    let clock = bench.stats().clock.expect("there is an estimate");
    assert!(clock.offset_micros.is_finite() && clock.skew_ppm.is_finite(), "{clock:?}");
    assert!(clock.skew_ppm.abs() <= 500.0, "{clock:?}");
    let now = bench.world.now;
    let paths = bench.world.session(end.host, end.session).path_stats(now);
    assert!(paths.iter().all(|path| path.rate.is_finite()), "{paths:?}");
    let before = bench.world.packets_sent[bench.server];
    bench.world.run(ms(1_000));
    let chatter = bench.world.packets_sent[bench.server] - before;
    assert!(chatter < 50, "{chatter} packets in an idle second");
    bench.others_go_on();
}

// ---- Peers that do not speak it

#[test]
fn streams_of_other_peers_are_bounded_too() {
    let other = Config { alpn: OTHER_ALPN, ..Config::default() };
    // Blocks that nobody takes.
    let mut bench = Bench::silent_with(limits(), other);
    let mut waiting = 0;
    for _ in 0..200 {
        let Some(stream) = bench.raw().try_open() else { break };
        bench.raw().write(stream, b"x");
        bench.raw().finish(stream);
        bench.world.run(ms(20));
        waiting += 1;
    }
    assert_eq!(waiting, 200);
    assert_eq!(bench.stats().live_in, BLOCKS);
    assert_eq!(bench.received().len(), 200, "the others come as these are taken");

    // Blocks that never end: the newest must go.
    let mut bench = Bench::silent_with(limits(), other);
    for _ in 0..20 {
        let stream = bench.raw().open();
        bench.raw().write(stream, &[7; MAX_BLOCK as usize - 1]);
        bench.world.run(ms(50));
        assert!(bench.stats().live_in_bytes <= WINDOW);
    }
    bench.lives();
    let dropped = bench.events().iter().filter(|event| matches!(event, Event::PeerDropped { .. })).count();
    assert_eq!(dropped, 16, "four have room");

    // One that is too large.
    let mut bench = Bench::silent_with(limits(), other);
    let stream = bench.raw().open();
    bench.raw().write(stream, &[7; MAX_BLOCK as usize + 1]);
    bench.lives();
    assert_eq!(bench.stats().live_in_bytes, 0);
    bench.others_go_on();
}

/// However long a peer wishes its blocks to wait, and however many of them it leaves out before one that is due, they are its own that wait.
#[test]
fn a_wish_for_ages_is_cut_and_gaps_are_passed_over() {
    let mut bench = Bench::new();
    bench.control(&frame(0x0f, &join(&[&varint((1 << 62) - 1), &[1], &varint(7)])));
    bench.lives();
    // The position before it is never heard of.
    bench.block(Info { place: Some((7, 1)), ..Info::new(0, 5) });
    bench.lives();
    assert_eq!(bench.received().len(), 0, "it waits");
    bench.world.run(ms(10_500));
    assert_eq!(bench.received().len(), 1, "for no longer than ten seconds");
    // What was passed over is refused when it comes, and its place is not used twice.
    bench.block(Info { place: Some((7, 0)), ..Info::new(1, 5) });
    bench.lives();
    assert_eq!(bench.received().len(), 0);
    assert!(bench.events().iter().any(|event| matches!(event, Event::Skipped { id: BlockId(1), .. })));
    bench.block(Info { place: Some((7, 0)), ..Info::new(2, 5) });
    bench.dies(ProtocolError::Channel);
}
