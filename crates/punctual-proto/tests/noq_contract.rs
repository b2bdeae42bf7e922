//! What this crate takes for granted of noq, asked of noq itself: one test for each row of the table in `src/noq.rs`.
//!
//! A failure is no bug of noq's, which never promised any of this. It says what has changed and what of ours depends on it.

mod common;
#[path = "noq_contract/ending.rs"]
mod ending;
#[allow(dead_code, reason = "what only the library needs")]
#[path = "../src/noq.rs"]
mod noq;
#[path = "common/quic.rs"]
mod quic;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use common::{inject::smuggled, ms, wire::varint};
use noq_proto::{Dir, Event, PathId, PathStatus};

use noq::{MOST_PIECES, SHUT, SILENCED, UNPACED, WIDE_OPEN, empty_queue, path_number, renew_keys, trickle};
use quic::{Answers, Pair, QUEUE, Told, Wanted, Who, local, seen};

const CLOSED: Answers = Answers { window: SHUT, metrics_window: UNPACED, pacing_rate: None };

/// What a controller is told of packets that left.
fn sent(told: &[Told]) -> Vec<(usize, u64, u16)> {
    let sent = |told: &Told| match *told {
        Told::Sent { slot, pn, bytes } => Some((slot, pn, bytes)),
        _ => None,
    };
    told.iter().filter_map(sent).collect()
}

#[test]
fn a_window_of_nothing_keeps_data_off_a_path() {
    let mut pair = Pair::over(3);
    for open in [0, 1, 2, 1, 0] {
        pair.client.hand.all(CLOSED);
        pair.client.send("steered");
        let closed = pair.drain(Who::Client);
        assert!(
            closed.iter().all(|made| made.size < 7),
            "noq sends datagrams on paths with a window of 0 ({closed:?}): the gate of `congestion::steering` steers nothing any more"
        );
        pair.client.hand.get().answers[open].window = WIDE_OPEN;
        let ends: Vec<_> = pair.drain(Who::Client).iter().map(|made| usize::from(made.end)).collect();
        assert_eq!(
            ends,
            [open],
            "noq does not send a datagram on the one path whose window is open: the gate of `congestion::steering` steers nothing any more"
        );
        pair.run(ms(30));
    }
    assert_eq!(pair.server.datagrams.len(), 5);
}

#[test]
fn acknowledgements_pass_a_closed_window() {
    let mut pair = Pair::over(2);
    pair.server.hand.all(CLOSED);
    pair.client.hand.take();
    pair.client.send("to be acknowledged");
    pair.run(ms(50));
    let acked = pair.client.hand.take().iter().any(|told| matches!(told, Told::Acked { .. }));
    assert!(
        acked,
        "noq holds back acknowledgements where the window is 0: a session that has no data to send is silent"
    );
}

#[test]
fn loss_probes_pass_a_closed_window() {
    let mut pair = Pair::over(2);
    pair.client.send("lost");
    pair.lose = 1;
    assert_eq!(pair.drain(Who::Client).len(), 1);
    pair.client.hand.all(CLOSED);
    pair.made.clear();
    pair.run(ms(2_000));
    let probes = pair.made.iter().filter(|(who, _)| *who == Who::Client).count();
    assert!(probes > 0, "noq sends no loss probe where the window is 0: what is lost last on a path is found out late");
}

#[test]
fn the_widest_window_overflows_nothing() {
    let mut pair = Pair::new();
    for _ in 0..40 {
        pair.client.send(vec![1; 1_000]);
    }
    let made = pair.drain(Who::Client).len();
    assert_eq!(
        made, 40,
        "noq's sum of bytes in flight and a packet no longer fits beside the widest window: `Gate::Only` closes the path it names"
    );
}

#[test]
fn a_path_is_not_paced_at_a_window_beyond_32_bits() {
    let burst = |metrics_window| {
        let mut pair = Pair::new();
        pair.client.hand.all(Answers { metrics_window, ..Answers::default() });
        let mut made = 0;
        for _ in 0..2_000 {
            pair.client.send(vec![1; 1_000]);
            made += pair.drain(Who::Client).len();
            if made == 0 || pair.client.conn.datagrams().send_buffer_space() < empty_queue(QUEUE) {
                break;
            }
        }
        made
    };
    assert!(
        burst(12_000) < 100,
        "noq's pacer no longer goes by the window of a controller's metrics: `UNPACED` says nothing, and pacing has to be turned off in another way"
    );
    assert_eq!(
        burst(UNPACED),
        2_000,
        "noq paces at a window beyond 32 bits: datagrams wait in its queue, where nothing urgent can overtake them"
    );
}

#[test]
fn acknowledgements_wait_for_a_bucket_that_is_short_of_a_packet() {
    let mut pair = Pair::over(2);
    // The server's first path is to be quiet, as noq would send all acknowledgements there.
    let quiet = pair.server.slot(PathId::ZERO).expect("it has a controller");
    let mtu = 1_200;
    pair.server.hand.get().answers[quiet].pacing_rate = Some(trickle(mtu));
    pair.run(ms(200));
    pair.server.conn.ping_path(PathId::ZERO).expect("it is open");
    pair.drain(Who::Server);
    let heard_at = |pair: &mut Pair, from: u8| {
        let slot = pair.client.slot(if from == 0 { PathId::ZERO } else { PathId::from(1u8) });
        pair.client.hand.all(CLOSED);
        pair.client.hand.get().answers[slot.expect("it has a controller")].window = WIDE_OPEN;
        pair.client.send("to be acknowledged");
        pair.made.clear();
        pair.run(ms(60));
        let ends: BTreeSet<_> =
            pair.made.iter().filter(|(who, _)| *who == Who::Server).map(|(_, made)| made.end).collect();
        ends
    };
    pair.server.hand.get().answers[quiet].pacing_rate = Some(SILENCED);
    for _ in 0..10 {
        assert_eq!(
            heard_at(&mut pair, 1),
            BTreeSet::from([1]),
            "noq's pacer no longer holds back acknowledgements at one byte per second with a bucket that is short of a packet: those of a session \
             that merely receives leave on its first path, dead or not (`SILENCED`)"
        );
    }
    // With a bucket that holds a packet, acknowledgements leave there again, as often as there are any.
    pair.server.hand.get().answers[quiet].pacing_rate = Some(trickle(mtu));
    heard_at(&mut pair, 1);
    heard_at(&mut pair, 1);
    pair.server.hand.get().answers[quiet].pacing_rate = Some(SILENCED);
    for _ in 0..10 {
        assert!(
            heard_at(&mut pair, 1).contains(&0),
            "noq's pacer charges acknowledgements, or its bucket holds less than a packet: a stray acknowledgement needs no ping to be kept \
             from its path the next time (`trickle`, `Session::poll_own`)"
        );
    }
}

#[test]
fn a_controller_hears_of_a_packet_before_it_leaves_and_of_its_fate_before_the_sum() {
    let mut pair = Pair::over(2);
    pair.client.hand.take();
    for _ in 0..20 {
        pair.client.send("one");
        let made = pair.drain(Who::Client);
        let told = sent(&pair.client.hand.take());
        assert_eq!(
            (made.len(), told.len()),
            (1, 1),
            "noq makes another number of packets than it tells the controller of, in one call: `Session::note_departure` ties contents to the wrong packet"
        );
    }
    pair.run(ms(100));
    pair.client.hand.take();
    // One of these is lost, and found lost by those after it.
    pair.lose = 1;
    (0..10).for_each(|_| pair.client.send(vec![2; 1_000]));
    pair.drain(Who::Client);
    pair.run(ms(100));
    let told = pair.client.hand.take();
    let (mut open_acks, mut open_losses) = (0, 0);
    for told in &told {
        match told {
            Told::Acked { .. } => open_acks += 1,
            Told::EndOfAcks { .. } => open_acks = 0,
            Told::Lost { .. } => open_losses += 1,
            Told::Congestion { .. } => open_losses = 0,
            Told::Sent { .. } | Told::Mtu { .. } => {}
        }
    }
    assert!(told.iter().any(|told| matches!(told, Told::Lost { .. })), "{told:?}");
    assert_eq!(
        (open_acks, open_losses),
        (0, 0),
        "noq ends no batch of acknowledgements with `on_end_acks`, or no losses with `on_congestion_event`: fates stay in `Steered` and the session never learns them"
    );
    assert_eq!(
        told.iter().rev().find_map(|told| match told {
            Told::EndOfAcks { in_flight, .. } => Some(*in_flight),
            _ => None,
        }),
        Some(0),
        "noq's count of bytes in flight, told at the end of acknowledgements, is not 0 when nothing is: `PathReading::in_flight` is wrong"
    );
}

#[test]
fn the_controller_of_a_path_is_the_one_that_the_factory_made() {
    let mut pair = Pair::over(3);
    let slots: Vec<_> = pair.client.conn.paths().into_iter().map(|path| pair.client.slot(path)).collect();
    assert!(
        slots.iter().all(Option::is_some),
        "noq wraps the controllers it is given, or shows another: `Panel::of` finds nothing, and no path can be opened"
    );
    assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), 3, "noq shares a controller between paths: {slots:?}");
    let (slot, path) = (slots[2], pair.client.conn.paths()[2]);
    pair.client.hand.take();
    pair.client.hand.all(CLOSED);
    pair.client.hand.get().answers[slot.expect("checked above")].window = WIDE_OPEN;
    pair.client.send("there");
    pair.drain(Who::Client);
    let told = sent(&pair.client.hand.take());
    assert_eq!(
        told.iter().map(|(slot, ..)| Some(*slot)).collect::<Vec<_>>(),
        [pair.client.slot(path)],
        "noq tells another controller of a packet than it shows for its path: what becomes of packets is put down to the wrong path"
    );
}

#[test]
fn a_path_whose_peer_has_moved_gets_a_new_controller() {
    let mut pair = Pair::new();
    let before = pair.server.slot(PathId::ZERO);
    pair.moved_to = Some(9);
    pair.client.send("from elsewhere");
    pair.run(ms(300));
    let network = pair.server.conn.network_path(PathId::ZERO).expect("it is open");
    assert_eq!(
        network.remote(),
        seen(9),
        "noq no longer follows a peer that moves: `Session::follow_moves` waits in vain"
    );
    assert_ne!(
        pair.server.slot(PathId::ZERO),
        before,
        "noq keeps the controller of a path whose peer has moved: `Session::follow_moves` need not take it for a new one any more"
    );
}

#[test]
fn a_peer_that_has_moved_is_challenged_no_more_once_that_has_been_lost_until_it_moves_again() {
    let mut pair = Pair::new();
    let challenges = |pair: &mut Pair| {
        pair.client.send("here I am");
        pair.run(ms(1_000));
        pair.server.conn.path_stats(PathId::ZERO).expect("it is open").frame_tx.path_challenge
    };
    // Nothing that is sent there arrives.
    (pair.moved_to, pair.narrow) = (Some(9), Some((9, 0)));
    let lost = challenges(&mut pair);
    assert!(lost > 0, "noq does not challenge a peer that moves: there is nothing to be made up for");
    pair.narrow = None;
    assert_eq!(
        challenges(&mut pair),
        lost,
        "noq challenges a peer again after it had given up: `Session::needs_validation` is not needed any more"
    );
    pair.moved_to = Some(10);
    assert!(
        challenges(&mut pair) > lost,
        "noq does not challenge a peer that moves once more: showing it by another address does not help"
    );
}

#[test]
fn a_queue_of_datagrams_that_is_empty_says_so() {
    let mut pair = Pair::new();
    for len in [1, 2, 600, 1_000] {
        let room = pair.client.conn.datagrams().send_buffer_space();
        assert_eq!(
            room,
            empty_queue(QUEUE),
            "noq counts the room of an empty queue in another way: `noq::empty_queue` is wrong"
        );
        pair.client.send(vec![0; len]);
        assert!(
            pair.client.conn.datagrams().send_buffer_space() < empty_queue(QUEUE),
            "noq's queue seems empty with a datagram of {len} bytes in it: `Session::note_departure` takes it for sent"
        );
        pair.drain(Who::Client);
        pair.run(ms(30));
    }
}

#[test]
fn a_packet_s_datagrams_are_there_as_soon_as_the_packet_is() {
    let mut pair = Pair::over(2);
    let mut made = Vec::new();
    for path in [0, 1, 0, 1] {
        pair.client.hand.all(CLOSED);
        pair.client.hand.get().answers[path].window = WIDE_OPEN;
        pair.client.send(vec![path as u8]);
        made.extend(pair.drain(Who::Client));
    }
    assert_eq!(made.len(), 4);
    pair.run(ms(30));
    let packets: BTreeSet<_> = pair.server.datagrams.iter().map(|(packet, _)| *packet).collect();
    assert_eq!(
        packets.len(),
        4,
        "noq does not give a datagram as soon as its packet has been handed in: arrivals are put down to the path of a later packet"
    );
}

#[test]
fn paths_are_numbered_alike_on_both_sides_and_shown_as_the_number() {
    let pair = Pair::over(4);
    let numbers = |paths: Vec<PathId>| paths.into_iter().map(path_number).collect::<Vec<_>>();
    let (ours, theirs) = (numbers(pair.client.conn.paths()), numbers(pair.server.conn.paths()));
    assert_eq!(
        ours,
        [0, 1, 2, 3],
        "noq no longer shows a `PathId` as its number: `path_number` gives what the peer does not know, and reports of arrivals name no path"
    );
    assert_eq!(ours, theirs, "noq numbers paths by side: reports of arrivals name the wrong path");
}

#[test]
fn local_ends_come_back_as_they_were_given() {
    let mut pair = Pair::over(3);
    let paths = pair.client.conn.paths();
    let locals: Vec<_> =
        paths.iter().map(|&path| pair.client.conn.network_path(path).ok().and_then(|path| path.local_ip())).collect();
    assert_eq!(
        locals,
        [0, 1, 2].map(|end| Some(local(end))),
        "noq changes local addresses, or wants them of the remote one's family: `LocalId` cannot tell sockets apart any more"
    );
    // The ends of what left were read from the packets' source addresses.
    pair.made.clear();
    for path in paths {
        pair.client.conn.ping_path(path).expect("it is open");
    }
    let ends: BTreeSet<_> = pair.drain(Who::Client).iter().map(|made| made.end).collect();
    assert_eq!(
        ends,
        BTreeSet::from([0, 1, 2]),
        "noq does not name the local address of what leaves: datagrams leave from the wrong socket"
    );
}

#[test]
fn a_datagram_is_no_longer_than_the_narrowest_path_allows() {
    let mut pair = Pair::with(Wanted { mtu_discovery: true, ..Wanted::default() });
    pair.narrow = Some((1, 1_300));
    let (wide, narrow) = (PathId::ZERO, pair.open(1));
    pair.run(ms(10_000));
    let mtu = |pair: &mut Pair, path| pair.client.conn.path_stats(path).expect("it is open").current_mtu;
    let (wide, narrow) = (mtu(&mut pair, wide), mtu(&mut pair, narrow));
    assert!(wide > 1_400 && narrow <= 1_300, "{wide} {narrow}");
    let size = pair.client.conn.datagrams().max_size().expect("datagrams are spoken");
    assert!(
        size < usize::from(narrow),
        "noq takes datagrams of {size} bytes where a path carries packets of {narrow}: what is queued may not fit the path it is steered to"
    );
}

#[test]
fn a_datagram_that_fits_no_path_any_more_makes_way_for_one_that_does_not_fit_beside_it() {
    let mut pair = Pair::with(Wanted { mtu_discovery: true, queue: Some(2 << 10), ..Wanted::default() });
    pair.run(ms(2_000));
    let size = |pair: &mut Pair| pair.client.conn.datagrams().max_size().expect("datagrams are spoken");
    let room = |pair: &mut Pair| pair.client.conn.datagrams().send_buffer_space();
    let (wide, empty) = (size(&mut pair), room(&mut pair));
    assert_eq!(empty, empty_queue(2 << 10));
    // The only path that would have it is shut, and another has yet to learn of more than 1,200 bytes.
    pair.client.hand.all(CLOSED);
    pair.client.send(vec![1; wide]);
    pair.begin_opening(1);
    let narrow = size(&mut pair);
    assert!(wide > narrow, "{wide} {narrow}");
    pair.drain(Who::Client);
    assert!(
        room(&mut pair) < empty,
        "noq throws away what has become too long: `Session::clear_queue` is not needed any more"
    );
    pair.client.conn.datagrams().send(vec![2; narrow].into(), true).expect("it fits");
    pair.client.hand.all(Answers::default());
    pair.run(ms(100));
    let arrived: Vec<_> = pair.server.datagrams.iter().map(|(_, datagram)| datagram.len()).collect();
    assert_eq!(
        arrived,
        [narrow],
        "noq keeps a datagram that is too long in front of others: a session in whose queue one is left stands still"
    );
    assert_eq!(room(&mut pair), empty);
}

#[test]
fn a_packet_larger_than_the_known_mtu_is_a_probe_and_is_not_told_lost() {
    let mut pair = Pair::with(Wanted { mtu_discovery: true, ..Wanted::default() });
    pair.client.hand.take();
    pair.narrow = Some((1, 1_300));
    let path = pair.open(1);
    let slot = pair.client.slot(path).expect("it has a controller");
    pair.run(ms(20_000));
    let told = pair.client.hand.take();
    let (mut mtu, mut probes) = (1_200, BTreeSet::new());
    for told in told.iter() {
        match *told {
            Told::Mtu { slot: of, mtu: new } if of == slot => mtu = new,
            Told::Sent { slot: of, pn, bytes } if of == slot && bytes > mtu => _ = probes.insert(pn),
            _ => {}
        }
    }
    assert!(
        probes.len() > 1,
        "noq no longer tells the controller of MTU probes, or tells of a larger MTU before it tries: `Fate::Sent` marks no probes"
    );
    let lost =
        told.iter().filter(|told| matches!(told, Told::Lost { slot: of, pn } if *of == slot && probes.contains(pn)));
    assert_eq!(
        lost.count(),
        0,
        "noq reports lost MTU probes as losses: controllers and the model of the path must be told to leave them out"
    );
}

#[test]
fn statistics_count_a_packet_s_stream_frames_at_once() {
    let mut pair = Pair::new();
    let id = pair.client.conn.streams().open(Dir::Uni).expect("the server allows streams");
    for words in 1..=3 {
        let count = |pair: &mut Pair| pair.client.conn.path_stats(PathId::ZERO).expect("it is open").frame_tx.stream;
        let before = count(&mut pair);
        pair.client.conn.send_stream(id).write(b"a word").expect("there is room");
        assert!(pair.poll(Who::Client).is_some());
        assert_eq!(
            count(&mut pair),
            before + 1,
            "noq does not count the STREAM frame of a packet it has just made (word {words}): words are not said again when their path dies"
        );
        pair.run(ms(30));
    }
}

#[test]
fn the_last_word_on_a_path_holds() {
    let mut pair = Pair::over(2);
    let path = pair.client.conn.paths()[1];
    for status in [PathStatus::Backup, PathStatus::Available, PathStatus::Backup] {
        pair.client.conn.set_path_status(path, status).expect("it is open");
        pair.run(ms(50));
        assert_eq!(
            pair.server.conn.remote_path_status(path),
            Some(status),
            "noq does not tell what the peer last said of a path: paths are distrusted, or used, against the peer's word"
        );
    }
}

#[test]
fn keys_are_renewed_early_once() {
    let renewals = |forced: bool| {
        let count = Arc::new(AtomicUsize::new(0));
        let mut pair = Pair::with(Wanted { renewals: count.clone(), ..Wanted::default() });
        if forced {
            renew_keys(&mut pair.client.conn);
            pair.run(ms(100));
        }
        let before = count.load(Relaxed);
        for _ in 0..100 {
            (0..20).for_each(|_| pair.client.send(vec![1; 1_000]));
            pair.run(ms(25));
        }
        assert_eq!(pair.server.datagrams.len(), 2_000);
        count.load(Relaxed) - before
    };
    assert!(
        renewals(false) > 0,
        "noq no longer renews keys by itself among the first 1,000 packets: `Session::renew_keys` is not needed any more"
    );
    assert_eq!(
        renewals(true),
        0,
        "noq renews keys soon after they have been renewed by hand: what is under way on the longer of two paths is lost then (`Session::renew_keys`)"
    );
}

#[test]
fn a_stream_in_many_pieces_is_borne() {
    let lives = |pieces: u64| {
        let mut pair = Pair::new();
        for first in (0..pieces).step_by(50) {
            let piece = |at: u64| {
                // STREAM with offset and length; the client's first unidirectional stream.
                let head = [0x0e, 2, 2 * at + 1, 1].into_iter().flat_map(varint);
                head.chain([0]).collect::<Vec<_>>()
            };
            let frames: Vec<_> = (first..pieces.min(first + 50)).flat_map(piece).collect();
            pair.client.send(smuggled(&frames));
            pair.run(ms(5));
        }
        pair.run(ms(50));
        !pair.server.events.iter().any(|event| matches!(event, Event::ConnectionLost { .. }))
    };
    assert!(
        lives(MOST_PIECES as u64 - 1),
        "noq's receiver bears fewer pieces of a stream than {MOST_PIECES}: a lossy way back ends sessions (`MOST_PIECES`, `session::control`)"
    );
    assert!(
        !lives(2 * MOST_PIECES as u64),
        "noq's receiver bears more pieces of a stream than {MOST_PIECES}: the control stream may be handed on faster (`MOST_PIECES`, `session::control`)"
    );
}
