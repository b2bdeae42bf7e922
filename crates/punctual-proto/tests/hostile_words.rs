//! A peer whose control stream breaks the protocol, or strains it.

mod common;

use std::collections::BTreeMap;

use common::{
    World,
    bench::{Bench, limits},
    ms, outcomes,
    raw::{Config, Raw},
    server_config,
    wire::{self, Info, Said, dropped, dropped_list, fragment, frame, hello, join, varint},
};
use punctual_proto::{Block, CloseReason, DropReason, Event, Outcome, ProtocolError, SessionConfig};

// ---- The control stream

#[test]
fn settings_come_first_once_and_make_sense() {
    let good = [(1, 5_000), (2, 5_000), (3, 1), (4, 0)];
    for bad in [
        wire::credit(1, 1),
        frame(0x40, &[]),
        wire::settings(2, &good),
        wire::settings(0, &good),
        wire::settings(1, &good[..2]),
        wire::settings(1, &[(1, 5_000), (2, 4_999), (3, 1)]),
        wire::settings(1, &[(1, 5_000), (2, 5_000), (3, 0)]),
        wire::settings(1, &[good, good].concat()),
        wire::settings(1, &good).repeat(2),
    ] {
        let mut bench = Bench::silent();
        bench.control(&varint(0x50));
        bench.lives();
        bench.control(&bad);
        bench.dies(ProtocolError::Settings);
    }
    for good in [&good[..3], &[(3, 1), (77, 0), (77, 1), (2, 5_000), (1, 5_000)]] {
        let mut bench = Bench::silent();
        bench.control(&join(&[&varint(0x50), &wire::settings(1, good)]));
        bench.lives();
        bench.others_go_on();
    }
}

#[test]
fn nothing_is_opened_before_settings_have_come() {
    let mut bench = Bench::silent();
    let end = bench.end;
    let id = bench.world.send(end, Block::new(vec![1; 100]));
    bench.lives();
    assert!(bench.raw().datagrams.iter().all(|datagram| !carries_blocks(datagram)));
    bench.control(&hello(1_000, 1_000, 1, 0));
    bench.lives();
    let said: Vec<_> = bench.raw().datagrams.iter().flat_map(|datagram| wire::read_datagram(datagram)).collect();
    assert!(said.contains(&Said::Info { id: id.0, size: 100 }));
    assert!(said.contains(&Said::Fragment { id: id.0, offset: 0, len: 100 }));
}

fn carries_blocks(datagram: &[u8]) -> bool {
    wire::read_datagram(datagram).iter().any(|said| matches!(said, Said::Info { .. } | Said::Fragment { .. }))
}

#[test]
fn a_stream_of_another_type_is_refused() {
    let mut bench = Bench::silent();
    bench.control(&varint(0x51));
    bench.dies(ProtocolError::Stream);
}

#[test]
fn a_second_stream_is_refused() {
    let mut bench = Bench::new();
    let second = bench.raw().open();
    bench.lives();
    bench.raw().write(second, &varint(0x50));
    bench.dies(ProtocolError::Stream);
}

#[test]
fn the_control_stream_does_not_end() {
    let ways: [fn(&mut Raw); 3] = [Raw::finish_control, Raw::reset_control, Raw::stop_theirs];
    for end in ways {
        let mut bench = Bench::new();
        end(bench.raw());
        bench.dies(ProtocolError::Stream);
    }
    // Not even in the middle of a frame.
    let mut bench = Bench::new();
    bench.control(&[0x01, 0x05]);
    bench.lives();
    bench.raw().finish_control();
    bench.dies(ProtocolError::Stream);
}

#[test]
fn the_control_stream_may_go_on_elsewhere() {
    // Streams that are not reset are never ended, and QUIC allows 256 of them.
    for (reset, rounds) in [(true, 600), (false, 200)] {
        let mut bench = Bench::silent();
        let hello = hello(1_000, 1_000, 9, 0);
        let words: Vec<_> = (0..600).map(|more| wire::credit(1_000 + more, 9)).collect();
        let words = join(&[&hello, &words.concat()]);
        let mut end = hello.len();
        bench.control(&words[..end]);
        bench.lives();
        // Again and again, in the middle of a frame, and with more or less of what was said: each word counts once.
        for round in 0..rounds {
            let from = round * 31 % (end + 1);
            end += round % 7;
            bench.raw().go_on(from as u64, reset);
            bench.control(&words[from..end]);
            bench.world.run(ms(20));
        }
        bench.lives();
        bench.others_go_on();
    }
}

#[test]
fn a_control_stream_that_goes_on_nowhere_harms_nobody() {
    let mut bench = Bench::new();
    bench.raw().leave_control();
    bench.lives();
    bench.block(Info::new(0, 5));
    bench.lives();
    assert_eq!(bench.received().len(), 1);
    bench.others_go_on();
}

#[test]
fn a_control_stream_with_a_gap_is_refused() {
    let mut bench = Bench::silent();
    let hello = hello(1_000, 1_000, 1, 0);
    bench.control(&hello);
    bench.lives();
    bench.raw().go_on(hello.len() as u64 + 1, true);
    bench.dies(ProtocolError::Stream);
}

#[test]
fn nobody_has_heard_what_was_not_said() {
    let mut bench = Bench::new();
    bench.block(Info::new(0, 5));
    bench.lives();
    let said = bench.raw().stream.len() as u64;
    bench.control(&join(&[&wire::heard(said), &wire::heard(1), &wire::heard(said)]));
    bench.lives();
    bench.control(&wire::heard(said + 1));
    bench.dies(ProtocolError::Stream);
}

#[test]
fn a_stream_is_opened_as_soon_as_the_peer_allows_one() {
    let mut bench = Bench::silent_with(limits(), Config { streams: 0, ..Config::default() });
    bench.control(&hello(1_000, 1_000, 1, 0));
    bench.block(Info::new(0, 5));
    bench.lives();
    assert_eq!(bench.received().len(), 1);
    assert!(bench.answers().is_empty());
    bench.raw().allow_streams(1);
    bench.lives();
    let types: Vec<_> = bench.answers().into_iter().map(|(frame_type, _)| frame_type).collect();
    assert_eq!(types, [0x00, 0x08]);
}

#[test]
fn a_peer_without_datagrams_is_refused() {
    let mut world = World::new(ms(5));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let raw = world.add_raw(Config { datagrams: false, ..Config::default() }, server);
    world.run(ms(200));
    assert_eq!(world.raw(raw).closed_with(), Some(ProtocolError::Settings.code()));
    let events = world.take_events(server);
    assert!(
        matches!(events[..], [(_, Event::Closed(CloseReason::Protocol(ProtocolError::Settings)))]),
        "nothing was ever open: {events:?}"
    );
}

#[test]
fn a_peer_that_does_not_listen_is_not_talked_to_for_ever() {
    let mut bench = Bench::with(limits(), Config { reads: false, stream_window: 1_000, ..Config::default() });
    // Each of these is answered with six bytes; a mebibyte of answers may wait.
    let mut sent = 0_u64;
    while sent < 400_000 && bench.raw().lost.is_none() {
        let mut stream = Vec::new();
        for id in sent..sent + 10_000 {
            stream.extend(dropped(id, 0, 1, None));
        }
        sent += 10_000;
        bench.control(&stream);
        bench.world.run(ms(100));
        bench.events();
        if sent <= 100_000 {
            bench.lives();
        }
    }
    assert_eq!(bench.raw().closed_with(), Some(ProtocolError::Stream.code()));
    assert!(sent < 250_000, "{sent}");
    bench.others_go_on();
    bench.world.run(ms(15_000));
    assert_eq!(bench.world.endpoint(bench.server).sessions(), 1, "it is over");
}

// ---- Feedback

#[test]
fn feedback_about_blocks_that_never_were() {
    let list = wire::completed_list(1, 0, &[-1]);
    for feedback in [wire::completed(1, 0, 0), list, wire::freed(1, 0), wire::refused(1), wire::expect(1, 0)] {
        let mut bench = Bench::new();
        let end = bench.end;
        let id = bench.world.send(end, Block::new(vec![1; 100]));
        bench.lives();
        bench.control(&feedback);
        bench.world.run(ms(50));
        let events = bench.world.events_of(end.host, end.session);
        let dropped = Outcome::Dropped { reason: DropReason::SessionClosed, good_bytes: 100 };
        assert_eq!(outcomes(&events), BTreeMap::from([(id, dropped)]), "what it had ends with the session");
        assert_eq!(events.last(), Some(&Event::Closed(CloseReason::Protocol(ProtocolError::UnknownBlock))));
        assert_eq!(bench.raw().closed_with(), Some(ProtocolError::UnknownBlock.code()));
        bench.others_go_on();
    }
}

#[test]
fn feedback_about_blocks_that_are_not_open() {
    let list = wire::completed_list(1, 0, &[]);
    for feedback in [wire::completed(1, 0, 0), list, wire::freed(1, 0), wire::refused(1)] {
        let mut bench = Bench::silent();
        bench.control(&hello(1_000, 1_000, 1, 0));
        let end = bench.end;
        for _ in 0..2 {
            bench.world.send(end, Block::new(vec![1; 100]));
        }
        bench.lives();
        // The application may speak of a block that it has not seen.
        bench.control(&wire::expect(1, 0));
        bench.lives();
        bench.control(&feedback);
        bench.dies(ProtocolError::UnknownBlock);
    }
}

#[test]
fn a_block_that_was_not_dropped_is_not_freed() {
    let mut bench = Bench::new();
    let end = bench.end;
    bench.world.send(end, Block::new(vec![1; 100]));
    bench.lives();
    bench.control(&wire::freed(0, 100));
    bench.dies(ProtocolError::UnknownBlock);
}

#[test]
fn a_block_ends_once_whatever_the_peer_says() {
    let feedback = |id| [wire::completed(id, 0, u64::MAX >> 2), wire::freed(id, u64::MAX >> 2), wire::refused(id)];
    for first in 0..3 {
        let mut bench = Bench::new();
        let end = bench.end;
        let id = bench.world.send(end, Block::new(vec![1; 100]).deadline(ms(100)));
        bench.lives();
        if first == 1 {
            bench.world.cancel(end, id);
            bench.lives();
        }
        bench.control(&feedback(id.0)[first]);
        bench.lives();
        let events = bench.events();
        match (first, outcomes(&events).get(&id)) {
            (0, Some(Outcome::Delivered(delivery))) => assert!(delivery.good_bytes == 100),
            (1, Some(Outcome::Dropped { reason: DropReason::Cancelled, good_bytes: 100 })) => {}
            (2, Some(Outcome::Dropped { reason: DropReason::Refused, good_bytes: 100 })) => {}
            other => panic!("{other:?}"),
        }
        for again in feedback(id.0).iter().cycle().take(6) {
            bench.control(again);
        }
        bench.lives();
        assert_eq!(bench.events(), [], "it is over");
        // A block that was opened ends with COMPLETED or DROPPED: what is refused is dropped.
        let drops = bench.answers().iter().filter(|(frame_type, _)| *frame_type == 0x02).count();
        assert_eq!(drops, usize::from(first != 0));
    }
}

#[test]
fn a_refusal_does_not_drop_a_block_twice() {
    let mut bench = Bench::new();
    let end = bench.end;
    let id = bench.world.send(end, Block::new(vec![1; 100]));
    bench.lives();
    bench.world.cancel(end, id);
    bench.control(&wire::refused(id.0));
    bench.lives();
    bench.control(&wire::freed(id.0, 100));
    bench.lives();
    assert_eq!(outcomes(&bench.events()).len(), 1);
    let drops = bench.answers().iter().filter(|(frame_type, _)| *frame_type == 0x02).count();
    assert_eq!(drops, 1);
}

// ---- DROPPED

#[test]
fn a_block_that_was_never_opened_may_be_dropped_with_its_size() {
    let mut bench = Bench::new();
    bench.control(&dropped(5, 0, 700, None));
    bench.lives();
    assert!(bench.answers().contains(&(0x04, [varint(5), varint(0)].concat())));
    // Whatever comes of it later is ignored.
    bench.block(Info::new(5, 600));
    bench.datagram(&[&fragment(5, 9_000, b"?")]);
    bench.lives();
    assert!(bench.received().is_empty());
    // Again: it has ended.
    bench.control(&dropped(5, 0, 700, None));
    bench.lives();
    assert_eq!(bench.events().iter().filter(|event| matches!(event, Event::PeerDropped { .. })).count(), 1);
}

#[test]
fn dropped_says_what_the_info_said() {
    let info = Info { place: Some((3, 0)), ..Info::new(0, 500) };
    for (size, place) in [(499, Some((3, 0))), (500, None), (500, Some((3, 1))), (0, Some((3, 0)))] {
        let mut bench = Bench::new();
        bench.info(info);
        bench.lives();
        bench.control(&dropped(0, 0, size, place));
        bench.dies(ProtocolError::InfoConflict);
    }
    let mut bench = Bench::new();
    bench.info(info);
    bench.lives();
    bench.control(&dropped(0, 0, 500, Some((3, 0))));
    bench.lives();
}

#[test]
fn a_list_of_dropped_blocks_may_not_name_one_that_was_opened() {
    for place in [None, Some((3, 0))] {
        let mut bench = Bench::new();
        bench.info(Info { place, ..Info::new(4, 500) });
        bench.lives();
        bench.control(&dropped_list(0, &[(2, 2)]));
        bench.lives();
        bench.control(&dropped_list(0, &[(0, 2), (1, 5)]));
        bench.dies(ProtocolError::InfoConflict);
    }
}

/// A few bytes that name a thousand blocks each, again and again.
#[test]
fn a_flood_of_lists_of_dropped_blocks_waits_for_the_application() {
    const EVENTS: usize = 100;
    const LISTS: u64 = 100;
    let mut bench = Bench::with(limits().events(EVENTS), Config::default());
    let stream: Vec<_> = (0..LISTS).map(|list| dropped_list(0, &[(list * 1_024, 1_024)])).collect();
    bench.world.delay_next(bench.raw, ms(200));
    bench.control(&stream.concat());
    for _ in 0..40 {
        bench.lives();
    }
    // One more frame is taken as long as there is room.
    let most = bench.world.most_events;
    assert!(most < EVENTS + 1_024, "{most} at once");
    let heard = bench.events().into_iter().filter(|event| matches!(event, Event::PeerDropped { .. })).count();
    assert_eq!(heard as u64, LISTS * 1_024, "each once, none forgotten");
    // Once more: they have ended.
    bench.control(&stream.concat());
    bench.lives();
    assert_eq!(bench.events(), []);
    bench.block(Info::new(LISTS * 1_024, 1));
    bench.lives();
    assert_eq!(bench.received().into_keys().collect::<Vec<_>>(), [LISTS * 1_024]);
}

#[test]
fn a_flood_of_dropped_blocks_waits_for_the_application() {
    const EVENTS: usize = 100;
    const MANY: u64 = 50_000;
    let mut bench = Bench::with(limits().events(EVENTS), Config::default());
    // Every other id, so that no two ranges join.
    let mut stream = Vec::new();
    for id in 0..MANY {
        stream.extend(dropped(2 * id, 0, 0, None));
    }
    // The first packet takes its time, so that what is behind it is read all at once.
    bench.world.delay_next(bench.raw, ms(200));
    bench.control(&stream);
    for _ in 0..40 {
        bench.lives();
    }
    let most = bench.world.most_events;
    assert!(most <= EVENTS + 1, "{most} at once");
    let heard = bench.events().into_iter().filter(|event| matches!(event, Event::PeerDropped { .. })).count();
    assert_eq!(heard as u64, MANY, "each once, none forgotten");
    assert_eq!(bench.stats().live_in, 0);
    // The newest are still known for what they are, and new blocks come through.
    bench.block(Info::new(2 * MANY - 2, 1));
    bench.block(Info::new(2 * MANY - 1, 1));
    bench.lives();
    assert_eq!(bench.received().into_keys().collect::<Vec<_>>(), [2 * MANY - 1]);
}

// ---- A peer that does not answer

/// Runs for so many seconds, in each of which the peer does as it is told; how blocks ended, and how long after `from`.
fn watch(bench: &mut Bench, seconds: u64, talk: impl Fn(u64) -> Vec<u8>) -> BTreeMap<u64, (u64, Outcome)> {
    let mut ended = BTreeMap::new();
    for second in 0..seconds {
        bench.raw().control(&talk(second));
        bench.world.run(ms(1_000));
        let told = outcomes(&bench.events());
        ended.extend(told.into_iter().map(|(id, outcome)| (id.0, (second, outcome))));
    }
    ended
}

#[test]
fn a_block_of_which_the_peer_says_nothing_ends() {
    let mut bench = Bench::new();
    let end = bench.end;
    for n in 0..40_u8 {
        let block = Block::new(vec![n; 500]);
        let due = std::time::Duration::from_millis(100);
        bench.world.send(end, if n % 2 == 0 { block.deadline(due) } else { block });
    }
    bench.lives();
    // It talks, but of other things.
    let ended = watch(&mut bench, 62, |second| wire::credit((1 << 22) + second, 1_000 + second));
    bench.lives();
    assert_eq!(ended.len(), 40, "{ended:?}");
    for (id, (_, outcome)) in ended {
        let reason = if id % 2 == 0 { DropReason::Expired } else { DropReason::Refused };
        assert!(matches!(outcome, Outcome::Dropped { reason: is, .. } if is == reason), "{id} {outcome:?}");
    }
    // Late words are of no consequence.
    bench.control(&wire::completed(0, 0, 500));
    bench.others_go_on();
}

#[test]
fn a_peer_that_never_says_anything_is_left() {
    for settings in [false, true] {
        let mut bench = if settings { Bench::new() } else { Bench::silent() };
        let end = bench.end;
        let id = bench.world.send(end, Block::new(vec![1; 500]));
        bench.lives();
        let ended = watch(&mut bench, 92, |_| Vec::new());
        assert!(matches!(ended.get(&id.0), Some((_, Outcome::Dropped { .. }))), "{ended:?}");
        let lost = bench.raw().closed_with();
        assert_eq!(lost, Some(ProtocolError::Silent.code()), "SETTINGS: {settings}");
    }
}

/// PATH; the cost by its bits.
fn path(path: u64, role: u8, cost: u64) -> Vec<u8> {
    frame(0x0d, &join(&[&varint(path), &[role], &cost.to_be_bytes()]))
}

#[test]
fn words_about_paths_are_read_and_bounded() {
    use punctual_proto::multipath::PathRole;
    let mut bench = Bench::new();
    // Of more paths than there can ever be, and of one again and again.
    for number in 0..5_000 {
        bench.control(&path(number, 2, 1.0_f64.to_bits()));
        bench.control(&path(0, (number % 3) as u8, (number as f64).to_bits()));
    }
    bench.lives();
    let (now, end) = (bench.world.now, bench.end);
    let stats = bench.world.session(end.host, end.session).path_stats(now);
    bench.world.drain();
    assert_eq!((stats.len(), stats[0].role, stats[0].cost), (1, PathRole::Preferred, 4_999.0));
    bench.others_go_on();
    // Roles and costs that are none.
    let bits = [f64::NAN, f64::INFINITY, -1.0, -0.0].map(|cost| path(0, 0, cost.to_bits()));
    for bad in bits.into_iter().chain([path(0, 3, 0), frame(0x0d, &[0, 0])]) {
        let mut bench = Bench::new();
        bench.control(&bad);
        bench.dies(ProtocolError::Malformed);
    }
}
