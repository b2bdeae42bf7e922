//! Blocks before their deadlines, over two paths, also when one dies.

mod common;

use std::time::Duration;

use common::*;
use punctual_proto::{Block, Channel, PathEvent, SessionConfig, schedule};
use punctual_sim::{Jitter, LinkSpec, Rate, Schedule, tls};

#[test]
fn two_good_paths_deliver_everything_on_time() {
    let mut pair = Setup::new(vec![dmtp_link(); 2]).connect(dmtp_source(20));
    pair.world.run_for(ms(25_000));
    assert_eq!(pair.source().sent.len(), 1000);
    assert_eq!(pair.late(), [], "in truth");
    assert_eq!(pair.source().not_on_time(), [], "by the sender's account");
}

/// One path dies for two seconds, mid-run, and comes back.
fn path_death(which: usize, deaths_at_ms: &[u64], seed: u64) {
    let mut pair = Setup { seed, ..Setup::new(vec![dmtp_link(); 2]) }.connect(dmtp_source(20));
    let path = pair.paths[which];
    for death in deaths_at_ms {
        let at = pair.start + ms(*death);
        pair.world.at(at, move |world| world.kill_path(path));
        pair.world.at(at + ms(2_000), move |world| world.revive_path(path));
    }
    pair.world.run_for(ms(25_000));
    let late = pair.late();
    let events: Vec<_> =
        pair.source().path_events.iter().map(|(at, id, event)| (*at - pair.start, *id, *event)).collect();
    assert!(late.len() <= deaths_at_ms.len(), "path {which} dead at {deaths_at_ms:?}: late {late:?}, paths {events:?}");
    assert!(pair.source().not_on_time().len() <= deaths_at_ms.len());
    let recovered = |(_, _, event): &(_, _, PathEvent)| *event == PathEvent::Recovered;
    let suspected = |(_, _, event): &(_, _, PathEvent)| matches!(event, PathEvent::Suspected { .. });
    assert_eq!(
        events.iter().filter(|event| recovered(event)).count(),
        events.iter().filter(|event| suspected(event)).count(),
        "what was suspected came back: {events:?}"
    );
}

#[test]
fn the_first_path_dies() {
    path_death(0, &[8_000], 1);
}

#[test]
fn the_second_path_dies() {
    path_death(1, &[8_000], 1);
}

#[test]
fn a_path_dies_at_any_moment_between_two_blocks() {
    for offset in [1, 4, 7, 10, 13, 16, 19] {
        path_death(0, &[8_000 + offset], offset);
        path_death(1, &[8_000 + offset], offset);
    }
}

#[test]
fn a_path_dies_twice() {
    path_death(0, &[4_000, 12_000], 2);
}

/// 4 MB of low priority is queued; a block of top priority is handed over `after` that. How long that takes, with and
/// without the 4 MB.
fn priority_block(after_ms: u64) -> (f64, f64) {
    let run = |bulk: usize| {
        let mut pair = Setup::new(vec![dmtp_link(); 2]).connect(Source::new(Block::new(vec![0]), ms(1), 0));
        let (client, session) = pair.world.client(pair.connection);
        for _ in 0..bulk {
            pair.world.enter(client, |cx| cx.send(session, Block::new(vec![1; 100_000]).priority(200))).expect("room");
        }
        pair.world.run_for(ms(after_ms));
        let sent = pair.world.now();
        let urgent = Block::new(vec![2; 24_000]).priority(0).deadline(ms(200));
        let id = pair.world.enter(client, |cx| cx.send(session, urgent)).expect("room");
        pair.world.run_for(ms(5_000));
        let Some(&(at, _)) = pair.sink().received.get(&id) else {
            return f64::INFINITY;
        };
        assert_eq!(pair.sink().received.len(), bulk + 1, "the rest arrives too");
        (at - sent).as_secs_f64()
    };
    (run(40), run(0))
}

#[test]
fn an_urgent_block_hardly_notices_four_megabytes_before_it() {
    let mut report = Vec::new();
    for after in [0, 1, 50, 100, 200, 300, 400, 600, 800] {
        let (behind, alone) = priority_block(after);
        report.push((after, behind, alone, behind / alone));
    }
    assert!(report.iter().all(|(.., ratio)| *ratio <= 1.2), "(ms after, s behind 4 MB, s alone, ratio): {report:.3?}");
}

/// Audio of 320 bytes every 20 ms, due in 150 ms, beside ten times more video than there is room for: full packets would take 40 ms each.
#[test]
fn on_a_slow_link_what_is_urgent_does_not_wait_behind_long_packets() {
    let audio = Block::new(vec![1; 320]).deadline(ms(150)).priority(0);
    let beside = |audio: Block, n, _| {
        let video = || Block::new(vec![2; 8_000]).deadline(ms(500)).priority(2);
        if n % 2 == 0 { audio } else { video() }
    };
    let mut pair = Setup::new(vec![LinkSpec::new(0.3, ms(20)).queue(150_000)])
        .connect(Source::new(audio, ms(10), 3_000).vary(beside));
    pair.world.run_for(ms(31_000));
    // The first window is in everybody's way.
    let late = pair.late().into_iter().filter(|(id, at, _)| id.0 % 2 == 0 && *at > ms(2_000));
    assert!(late.clone().count() <= 14, "of 1,400: {:?}", late.collect::<Vec<_>>());
}

/// A short narrow path is opened by way of a long one: what is said of it over the long one is out of date when it arrives, and no reason for the
/// peer to send its ACKs the long way from then on.
#[test]
fn what_is_said_of_a_path_may_be_overtaken() {
    let links = vec![LinkSpec::new(50.0, ms(50)), LinkSpec::new(2.0, ms(2))];
    let block = Block::new(vec![7; 80_000]).deadline(ms(100));
    let tiny = |block, number, _| if number < 15 { Block { data: vec![7; 9].into(), ..block } } else { block };
    let mut pair = Setup::new(links).connect(Source::new(block, ms(100), 65).vary(tiny));
    pair.world.run_for(ms(7_500));
    let late: Vec<_> = pair.late().into_iter().filter(|(_, at, _)| *at > ms(2_500)).collect();
    assert_eq!(late, []);
}

/// More blocks than the link carries, each of which has to find it free to be in time: what is too late already does not keep up the queue that makes those
/// to come late.
#[test]
fn what_is_late_does_not_make_others_late() {
    // 20 KB are across after 20 + 17 ms; two of five fit.
    let block = Block::new(vec![7; 20_000]).deadline(ms(41));
    let mut pair =
        Setup::new(vec![LinkSpec::new(10.0, ms(20)).queue(60_000)]).connect(Source::new(block, ms(8), 1_000));
    pair.world.run_for(ms(9_000));
    let on_time = 1_000 - pair.late().len();
    assert!(on_time > 300, "{on_time}");
}

/// But who never drops anything sends it in the order in which it came, however late it is.
#[test]
fn what_is_late_keeps_its_turn_where_nothing_is_dropped() {
    let block = Block::new(vec![7; 20_000]).deadline(ms(41));
    let config = tls::client_config();
    let session = SessionConfig { scheduler: schedule::by_name("fcfs").expect("known"), ..config.session.clone() };
    let link = LinkSpec::new(10.0, ms(20)).queue(60_000);
    let setup = Setup { config: config.session(session), ..Setup::new(vec![link]) };
    // Every other one has time enough, and would pass those before it.
    let patient =
        |block: Block, number: u64, _| if number.is_multiple_of(2) { block } else { block.deadline(ms(9_000)) };
    let mut pair = setup.connect(Source::new(block, ms(8), 200).vary(patient));
    pair.world.run_for(ms(6_000));
    let times: Vec<_> = pair.sink().received.values().map(|(at, _)| *at).collect();
    assert_eq!(times.len(), 200);
    assert!(times.is_sorted(), "by id: {times:?}");
}

/// Video over a path that becomes three times as long: in the pauses between frames a queue of ours would have gone, and its packets stay late by the same. Making room for it, six round
/// trips long, costs one to three seconds of frames.
#[test]
fn a_longer_route_is_told_from_a_queue_by_the_pauses_between_frames() {
    for (step, size) in [(843, 30_500), (2_010, 34_000), (2_020, 35_000)] {
        let delay = Schedule::fixed(ms(26)).then(ms(step), ms(87));
        let link = LinkSpec::new(9.4, ms(26)).delay(delay).queue(370_000);
        let frame = Block::new(vec![7; size]).deadline(ms(251));
        let mut pair =
            Setup::new(vec![link]).connect(Source::new(frame, ms(33), 240).vary(|frame, n, last| match last {
                Some(last) if n % 84 > 0 => frame.depends_on(last),
                _ => Block::new(vec![7; 114_000]).deadline(ms(251)),
            }));
        pair.world.run_for(ms(10_000));
        let late = pair.late().len();
        println!("longer after {step} ms, frames of {size} bytes: {late} of 240 late");
        assert!(late <= 30, "after {step} ms, {size} bytes: {late} of 240 are late");
    }
}

/// A link that is too slow for any block to be in time, and then is not: what is taken for its rate is that at which the little left that did, and nothing says that it could be more. Two
/// of these lost all blocks for good, the third a third of them.
#[test]
fn a_path_that_was_too_slow_is_found_to_be_fast() {
    let cases = [
        (Schedule::fixed(99_000).then(ms(7_300), 2_000_000), 7_300, 5, 5_662, 100, 39),
        (Schedule::fixed(109_000).then(ms(7_100), 2_620_000), 7_100, 6, 4_434, 33, 29),
        (Schedule::fixed(2_070_000).then(ms(5_700), 59_000).then(ms(7_700), 2_070_000), 7_700, 9, 6_733, 100, 74),
    ];
    for (rate, fast, delay, size, every, deadline) in cases {
        let link = LinkSpec::new(2.0, ms(delay)).rate(Rate::Steps(rate.clone())).queue(66_000);
        let block = Block::new(vec![7; size]).deadline(ms(deadline));
        let mut pair = Setup::new(vec![link]).connect(Source::new(block, ms(every), 20_000 / every));
        pair.world.run_for(ms(20_500));
        let late = pair.late().iter().filter(|(_, at, _)| *at > ms(fast + 4_000)).count() as u64;
        let all = (20_000 - fast - 4_000) / every;
        println!("{rate:?}: of {all} blocks from 4 s after the link became fast {late} were late");
        assert!(late * 10 < all, "{rate:?}: {late} of {all} are late");
    }
}

/// How many of 2,000 messages, 1.25 times what the link carries, are there in time, as they come or in order.
fn overloaded(mbits: f64, size: usize, deadline: u64) -> [usize; 2] {
    [None, Some(Channel(0))].map(|channel| {
        let link = LinkSpec::new(mbits, ms(17)).queue((mbits * 1e6 / 8.0 * 0.13) as u64);
        let block = Block::new(vec![7; size]).deadline(ms(deadline));
        let block = channel.into_iter().fold(block, Block::channel);
        let mut pair = Setup::new(vec![link]).connect(Source::new(block, ms(8), 2_000));
        pair.world.run_for(ms(20_000));
        assert_eq!(pair.source().outcomes.len(), 2_000);
        2_000 - pair.source().not_on_time().len()
    })
}

/// What is there waits for what is before it until that is there or known to be dropped. If it were dropped at its deadline, the word of it would come too late for all
/// that follows it closely.
#[test]
fn order_costs_little_of_what_is_in_time_where_there_is_too_much() {
    for (mbits, size, deadline) in [(0.15, 90, 665), (1.0, 1_000, 100), (1.0, 1_000, 400), (10.0, 11_500, 100)] {
        let [as_they_come, in_order] = overloaded(mbits, size, deadline);
        assert!(as_they_come > 1_000, "{as_they_come} over {mbits} Mbit/s");
        assert!(
            in_order * 100 >= as_they_come * 90,
            "{in_order} of {as_they_come} over {mbits} Mbit/s in {deadline} ms"
        );
    }
}

/// Ten seconds of messages of 1.5 Mbit/s, each due in `due`, beside 10 MB without a deadline handed over at once, in blocks of `block` bytes and of this priority: the share of
/// messages that came in time from the second second on, and how many Mbit/s of the others came.
fn beside_a_transfer(links: Vec<LinkSpec>, due: u64, block: usize, priority: u8, scheduler: &str) -> (f64, f64) {
    let config = tls::client_config();
    let session = SessionConfig { scheduler: schedule::by_name(scheduler).expect("known"), ..config.session.clone() };
    let message = Block::new(vec![1; 2_000]).deadline(ms(due));
    let setup = Setup { seed: 5, config: config.session(session), ..Setup::new(links) };
    let mut pair = setup.connect(Source::new(message, ms(11), 909));
    let (_, session) = pair.world.client(pair.connection);
    pair.world.enter(pair.client, |cx| {
        for _ in 0..10_000_000 / block {
            cx.send(session, Block::new(vec![2; block]).priority(priority)).expect("there is room");
        }
    });
    pair.world.run_for(ms(10_000));
    let (source, sink) = (pair.source(), pair.sink());
    let settled = source.sent.iter().filter(|(_, at)| **at >= pair.start + ms(1_000));
    let in_time = |(id, at): &(&_, &_)| sink.received.get(id).is_some_and(|(came, _)| *came <= **at + ms(due));
    let (all, good) = (settled.clone().count(), settled.filter(in_time).count());
    let others = sink.received.keys().filter(|id| !source.sent.contains_key(id)).count() * block;
    (good as f64 / all as f64, others as f64 * 8.0 / 10e6)
}

#[test]
fn a_transfer_leaves_queues_as_short_as_what_is_urgent_needs_them_and_has_what_is_left() {
    // A message needs 8 ms for the way and 3.5 to leave; a full queue is 56 ms long.
    let link = || LinkSpec::new(5.0, ms(8)).queue(35_000);
    for (scheduler, block) in [("admission", 64_000), ("admission", 1_000), ("ads", 64_000)] {
        let (good, others) = beside_a_transfer(vec![link()], 22, block, 200, scheduler);
        assert!(good >= 0.97, "{scheduler}, blocks of {block}: {good:.3} of messages in time");
        assert!(others >= 2.6, "{scheduler}, blocks of {block}: {others:.2} of 3.3 Mbit/s");
    }
    // Who is in no hurry does not hold it back.
    let (good, others) = beside_a_transfer(vec![link()], 300, 64_000, 200, "admission");
    assert!(good >= 0.99 && others >= 2.9, "{good:.3} in time, {others:.2} Mbit/s");
    // Nor who is less important.
    let (_, others) = beside_a_transfer(vec![link()], 22, 64_000, 0, "admission");
    assert!(others >= 2.9, "{others:.2} Mbit/s");
}

#[test]
fn a_path_on_which_nothing_could_be_in_time_is_the_transfers() {
    let links = vec![LinkSpec::new(3.0, ms(8)).queue(30_000), LinkSpec::new(20.0, ms(60)).queue(300_000)];
    let (good, others) = beside_a_transfer(links, 25, 64_000, 200, "admission");
    assert!(good >= 0.97 && others >= 7.5, "{good:.3} in time, all of 10 MB: {others:.2} Mbit/s");
}

/// Half of the messages is in time on the shorter of two paths alone, which carries all of these but not all there is; the others are in time on either.
#[test]
fn who_has_time_leaves_the_short_path_to_who_has_not() {
    let links = vec![LinkSpec::new(13.0, ms(7)).queue(400_000), LinkSpec::new(55.0, ms(65)).queue(450_000)];
    let block = Block::new(vec![7; 11_000]).deadline(ms(24));
    let patient = |block: Block, number: u64, _| if number.is_multiple_of(2) { block } else { block.deadline(ms(144)) };
    let mut pair = Setup::new(links).connect(Source::new(block, ms(5), 2_000).vary(patient));
    pair.world.run_for(ms(11_000));
    // Start-up takes its time.
    let missed = pair.source().not_on_time().len();
    assert!(missed <= 60, "{missed} of 2,000");
}

/// Half of a round trip of 265 ms is more than the deadline, and 15 ms of it are the way there: packets come back through somebody's full queue, say. Nobody can measure that, and who thinks the
/// deadline impossible sends what has none instead.
#[test]
fn a_deadline_is_not_called_impossible_because_answers_take_long() {
    let links = vec![LinkSpec::new(40.0, ms(15)).queue(600_000)];
    let block = || Block::new(vec![7; 33_000]).deadline(ms(125)).priority(1);
    let back = |link: &LinkSpec| link.clone().delay(ms(250));
    let mut pair = Setup { back, ..Setup::new(links) }.connect(Source::new(block(), ms(17), 588));
    let (_, session) = pair.world.client(pair.connection);
    pair.world.enter(pair.client, |cx| {
        for _ in 0..600 {
            cx.send(session, Block::new(vec![2; 64_000]).priority(200)).expect("there is room");
        }
    });
    pair.world.run_for(ms(11_000));
    let (source, sink) = (pair.source(), pair.sink());
    let in_time = |(id, at): &(&_, &_)| sink.received.get(id).is_some_and(|(came, _)| *came <= **at + ms(125));
    let good = source.sent.iter().filter(in_time).count();
    // But for those of start-up, of which a round trip is a quarter of a second.
    assert!(good >= 560, "{good} of 588");
}

/// A link that keeps its packets' order: one that is late by chance holds up those behind it, and the more leave the later half of them are. More is handed over than the other path, which is
/// clean, carries, and some of it is in time there alone. What one in twenty of the packets is late by does not tell this link from one that has the rest in time.
#[test]
fn a_path_on_which_half_come_late_costs_little_of_what_another_brings() {
    let clean = || LinkSpec::new(10.0, ms(36)).queue(200_000);
    let held_up = LinkSpec::new(10.0, ms(18)).queue(300_000).jitter(Jitter::Exponential(Duration::from_micros(17_800)));
    let voice = |block: Block, number: u64, _| if number.is_multiple_of(4) { urgent() } else { block };
    let missed = |links: Vec<LinkSpec>| {
        let block = Block::new(vec![7; 8_000]).deadline(ms(73)).priority(1);
        let mut pair = Setup::new(links).connect(Source::new(block, ms(4), 2_500).vary(voice));
        pair.world.run_for(ms(11_000));
        pair.source().not_on_time().len()
    };
    let (alone, beside) = (missed(vec![clean()]), missed(vec![clean(), held_up]));
    assert!(beside <= alone + 100, "{beside} of 2,500, {alone} without it");
}

fn urgent() -> Block {
    Block::new(vec![8; 600]).deadline(ms(60)).priority(0)
}
