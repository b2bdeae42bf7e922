//! Loss does not cost deadlines: modes of redundancy, random loss, bursts, deadlines too short to send anything again.

mod common;

use std::time::Duration;

use common::*;
use punctual_proto::{Block, DropReason, Outcome, Redundancy, SessionStats};
use punctual_sim::{LinkSpec, Loss, Schedule};

const WARM_UP: Duration = ms(500);

/// What came of a run.
struct Run {
    blocks: usize,
    late: usize,
    stats: SessionStats,
}

impl Run {
    fn on_time(&self) -> f64 {
        1.0 - self.late as f64 / self.blocks as f64
    }

    /// Repair bytes for each byte of data.
    fn overhead(&self) -> f64 {
        self.stats.repair_bytes as f64 / self.stats.source_bytes as f64
    }
}

fn run(links: Vec<LinkSpec>, source: Source, seed: u64) -> Run {
    run_with(Setup { seed, ..Setup::new(links) }, source)
}

fn run_with(setup: Setup, source: Source) -> Run {
    let seconds = source.interval * source.count as u32;
    let mut pair = setup.connect(source);
    pair.world.run_for(seconds + ms(3_000));
    // Before the first answers it is not known what the paths can carry, nor what they lose.
    let late = pair.late().into_iter().filter(|(_, at, _)| *at >= WARM_UP).count();
    let (client, session) = pair.world.client(pair.connection);
    let (stats, clean) = pair.world.enter(client, |cx| {
        let session = cx.session(session).expect("it is open");
        (session.stats(), session.is_clean())
    });
    assert!(clean, "something is left at the sender");
    let (server, session) = pair.world.server(pair.connection).expect("it is open");
    assert!(pair.world.enter(server, |cx| cx.session(session).expect("it is open").is_clean()), "… at the receiver");
    let source = pair.source();
    assert_eq!(source.outcomes.len(), source.sent.len(), "every block has its outcome");
    Run { blocks: source.sent.len(), late, stats }
}

fn lossy(loss: f64) -> LinkSpec {
    dmtp_link().loss(Loss::Bernoulli(loss))
}

fn source(deadline: u64, mode: Redundancy) -> Source {
    let block = Block::new(vec![7; 24_000]).deadline(ms(deadline)).priority(0).redundancy(mode);
    Source::new(block, ms(20), 50 * 20)
}

/// The worst of some seeds.
fn worst(runs: impl Iterator<Item = Run>) -> f64 {
    runs.map(|run| run.on_time()).fold(1.0, f64::min)
}

#[test]
fn a_fifth_lost_on_one_of_two_paths() {
    let runs = (1..=3).map(|seed| run(vec![lossy(0.2), dmtp_link()], source(200, Redundancy::Auto), seed));
    let worst = worst(runs);
    assert!(worst >= 0.999, "{worst}");
}

#[test]
fn no_time_to_send_anything_again() {
    // 60 ms there, 60 ms back: whatever is lost is known to be after 120 of 130 ms.
    let runs = (1..=3).map(|seed| run(vec![lossy(0.05), dmtp_link()], source(130, Redundancy::Auto), seed));
    let worst = worst(runs);
    assert!(worst >= 0.995, "{worst}");
}

#[test]
fn bursts() {
    let bursty = dmtp_link().loss(Loss::bursts(0.05, 8.0));
    let runs = (1..=3).map(|seed| run(vec![bursty.clone(), dmtp_link()], source(200, Redundancy::Auto), seed));
    let worst = worst(runs);
    assert!(worst >= 0.995, "{worst}");
}

#[test]
fn what_can_be_sent_again_in_time_gets_no_repairs() {
    let clean = run(vec![dmtp_link(); 2], source(400, Redundancy::Auto), 1);
    assert_eq!((clean.late, clean.stats.repair_bytes), (0, 0));
    let near = LinkSpec::new(40.0, ms(10)).loss(Loss::Bernoulli(0.02));
    let lossy = run(vec![near], source(200, Redundancy::Auto), 1);
    assert_eq!(lossy.late, 0);
    assert!(lossy.overhead() < 0.01, "{}", lossy.overhead());
}

#[test]
fn small_blocks_on_a_single_path() {
    for (loss, least) in [(0.1, 0.995), (0.2, 0.98)] {
        let block = Block::new(vec![7; 1_000]).deadline(ms(80)).priority(0);
        let link = LinkSpec::new(20.0, ms(30)).loss(Loss::Bernoulli(loss));
        let run = run(vec![link], Source::new(block, ms(5), 200 * 20), 7);
        assert!(run.on_time() >= least, "{} at {loss}, overhead {}", run.on_time(), run.overhead());
    }
}

#[test]
fn the_modes_do_what_they_say() {
    for mode in Redundancy::ALL {
        let run = run(vec![lossy(0.03), dmtp_link()], source(800, mode), 3);
        let stats = run.stats;
        let (repairs, resent) = (stats.repair_bytes > 0, stats.resent_bytes > 0);
        let expected = match mode {
            Redundancy::Auto | Redundancy::Retransmit => (false, true),
            Redundancy::None => (false, false),
            Redundancy::Fec => (true, false),
            Redundancy::Both | Redundancy::Duplicate => (true, resent),
            other => panic!("{other} is not tested yet"),
        };
        assert_eq!((repairs, resent), expected, "{mode}: {stats:?}");
        let least = match mode {
            Redundancy::None => 0.0,
            Redundancy::Fec => 0.99,
            _ => 0.999,
        };
        assert!(run.on_time() >= least, "{mode}: {} on time", run.on_time());
        if mode == Redundancy::None {
            // What is sent once goes where nothing is lost, as long as there is such a path.
            assert!(run.on_time() >= 0.99, "{} on time", run.on_time());
            let lossy = self::run(vec![lossy(0.03); 2], source(800, mode), 3);
            assert!(lossy.on_time() < 0.9, "what is lost is lost: {}", lossy.on_time());
            assert!(lossy.stats.never_regained_bytes > 0 && lossy.stats.resent_bytes == 0);
        }
        if mode == Redundancy::Duplicate {
            assert!((0.9..1.2).contains(&run.overhead()), "{}", run.overhead());
        }
        if mode == Redundancy::Fec {
            assert!(stats.restored_bytes > 0, "{stats:?}");
        }
    }
}

#[test]
fn a_lost_block_says_so() {
    let link = LinkSpec::new(20.0, ms(10)).loss(Loss::Bernoulli(0.1));
    let source = Source::new(Block::new(vec![7; 10_000]).deadline(ms(500)).redundancy(Redundancy::None), ms(20), 100);
    let mut pair = Setup::new(vec![link]).connect(source);
    pair.world.run_for(ms(4_000));
    let lost = |outcome: &&Outcome| matches!(outcome, Outcome::Dropped { reason: DropReason::Lost, .. });
    let lost = pair.source().outcomes.values().filter(lost).count();
    assert!((30..90).contains(&lost), "{lost}");
    assert_eq!(pair.sink().received.len() + lost, 100);
}

#[test]
fn where_there_is_too_much_already_there_is_no_redundancy() {
    // 12.8 Mbit/s of blocks for a path of 10, none of which could be sent again in time.
    let link = LinkSpec::new(10.0, ms(40)).loss(Loss::Bernoulli(0.05));
    let block = Block::new(vec![7; 16_000]).deadline(ms(100)).priority(0);
    let with = run(vec![link.clone()], Source::new(block.clone(), ms(10), 1_000), 1);
    let without = run(vec![link], Source::new(block.redundancy(Redundancy::Retransmit), ms(10), 1_000), 1);
    assert!(with.on_time() + 0.02 >= without.on_time(), "{} {}", with.on_time(), without.on_time());
}

/// The first blocks overflow the queue; nothing is ever lost again.
#[test]
fn what_a_full_queue_dropped_asks_for_no_repairs() {
    let overhead = |queue| {
        let link = LinkSpec::new(4.0, ms(20)).queue(queue);
        let block = Block::new(vec![7; 36_000]).deadline(ms(125)).priority(0);
        let mut setup = Setup::new(vec![link]);
        // What start-up sends at once, before anything is known of the path, is more than the short queue holds.
        setup.config.session.initial_window_packets = 32;
        let run = run_with(setup, Source::new(block, ms(100), 200));
        let lost = run.stats.never_regained_bytes + run.stats.resend_regained_bytes;
        (lost > 0, run.overhead())
    };
    let ((no, roomy), (yes, full)) = (overhead(1_000_000), overhead(29_000));
    assert!(!no && yes, "only the short queue has overflowed");
    assert!(full <= roomy + 0.02, "{full} {roomy}");
}

#[test]
fn a_path_that_dies_costs_no_more_with_redundancy() {
    let mut pair = Setup::new(vec![dmtp_link(); 2]).connect(source(200, Redundancy::Both));
    let path = pair.paths[0];
    let at = pair.start + ms(8_000);
    pair.world.at(at, move |world| world.kill_path(path));
    pair.world.at(at + ms(2_000), move |world| world.revive_path(path));
    pair.world.run_for(ms(23_000));
    assert!(pair.late().len() <= 1, "{:?}", pair.late());
}

#[test]
fn a_loss_is_made_good_at_once_though_its_group_could_wait_for_more() {
    let block = Block::new(vec![7; 1_000]).deadline(ms(500)).redundancy(Redundancy::Both);
    let link = LinkSpec::new(20.0, ms(10)).loss(Loss::Bernoulli(0.05));
    let mut pair = Setup::new(vec![link]).connect(Source::new(block, ms(20), 500));
    pair.world.run_for(ms(12_000));
    let source = pair.source();
    let mut took: Vec<_> =
        source.sent.iter().filter_map(|(id, at)| Some(pair.sink().received.get(id)?.0 - *at)).collect();
    took.sort_unstable();
    assert_eq!(took.len(), 500);
    assert!(took[494] < ms(120), "{:?}", &took[490..]);
}

#[test]
fn a_delay_spike_kills_no_block_that_is_not_sent_again() {
    let delay = Schedule::fixed(ms(20)).then(ms(3_000), ms(90)).then(ms(6_000), ms(20));
    let block = Block::new(vec![7; 5_000]).deadline(ms(500));
    for mode in [Redundancy::None, Redundancy::Fec] {
        let link = LinkSpec::new(20.0, ms(20)).delay(delay.clone());
        let mut pair = Setup::new(vec![link]).connect(Source::new(block.clone().redundancy(mode), ms(20), 500));
        pair.world.run_for(ms(12_000));
        assert_eq!(pair.late(), [], "{mode}");
    }
}

#[test]
fn a_duplicate_goes_at_once_beside_groups_that_wait() {
    let mut pair = Setup::new(vec![LinkSpec::new(20.0, ms(20)); 2]).connect(Source::new(
        Block::new(vec![7; 1_000]).deadline(ms(300)).redundancy(Redundancy::Fec),
        ms(10),
        300,
    ));
    pair.world.run_for(ms(1_000));
    let (client, session) = pair.world.client(pair.connection);
    let repair_bytes =
        |pair: &mut Pair| pair.world.enter(client, |cx| cx.session(session).expect("it is open").stats().repair_bytes);
    let mut copied_bytes = Vec::new();
    for _ in 0..50 {
        let before = repair_bytes(&mut pair);
        let copied = Block::new(vec![8; 1_000]).deadline(ms(300)).redundancy(Redundancy::Duplicate);
        pair.world.enter(client, |cx| cx.send(session, copied)).expect("room");
        pair.world.run_for(ms(20));
        copied_bytes.push(repair_bytes(&mut pair) - before);
    }
    assert!(copied_bytes.iter().all(|&bytes| bytes >= 1_000), "each has its copy: {copied_bytes:?}");
}

/// Where a link is all but full, redundancy gets little, so that what came late is caught up with; before, it took 19 bytes for each 100. Who asks for it
/// gets it.
#[test]
fn redundancy_leaves_room_but_for_who_asks_for_it() {
    let link = || LinkSpec::new(5.0, ms(50)).queue(60_000).loss(Loss::Bernoulli(0.02));
    let source = |mode| {
        let block = Block::new(vec![7; 16_000]).deadline(ms(122)).redundancy(mode);
        Source::new(block, ms(33), 30 * 12)
    };
    for seed in 1..=3 {
        let (auto, both) =
            (run(vec![link()], source(Redundancy::Auto), seed), run(vec![link()], source(Redundancy::Both), seed));
        let figures = || {
            format!("seed {seed}: {} of {}, {} of {}", auto.on_time(), auto.overhead(), both.on_time(), both.overhead())
        };
        assert!(auto.overhead() < 0.15 && both.overhead() > 0.19, "{}", figures());
        assert!(auto.on_time() > 0.9 && auto.on_time() > both.on_time(), "{}", figures());
    }
}

/// Groups of three frames are answered after there would have been time to send again what was lost of the first.
#[test]
fn what_could_be_sent_again_in_time_does_not_wait_for_a_verdict_too_late() {
    let run = run(vec![lossy(0.05), dmtp_link()], source(200, Redundancy::Both), 1);
    let (lost, again) = (0.025 * run.stats.source_bytes as f64, run.stats.resent_bytes as f64);
    assert_eq!((run.late, (0.1..1.0).contains(&(again / lost))), (0, true), "{again} of {lost}");
}

/// Frames that wait for the first answer can be sent once only, and may leave when the paths still seem to be full.
#[test]
fn the_first_frames_are_protected_once_there_is_room() {
    let late = |seed| {
        let mut frames = source(200, Redundancy::Auto);
        frames.count = 8;
        let mut pair = Setup { seed, ..Setup::new(vec![lossy(0.02), dmtp_link()]) }.connect(frames);
        pair.world.run_for(ms(1_000));
        pair.late().len()
    };
    let late: Vec<_> = (1..=60).map(late).collect();
    assert!(late.iter().sum::<usize>() <= 4, "{late:?}");
}

/// Of 19 Mbit/s one packet in twelve is lost, and a second try is hardly in time. Beside the path that loses is one that loses nothing, is sooner there, and carries next to
/// nothing: it is no reason to go without repair fragments, nor to count on it for what is lost.
#[test]
fn repair_fragments_take_a_path_that_carries_them() {
    let lossy = LinkSpec::new(35.0, ms(85)).queue(1_200_000).loss(Loss::Bernoulli(0.08));
    let source = |deadline| Source::new(Block::new(vec![7; 40_000]).deadline(ms(deadline)), ms(17), 600);
    let small = LinkSpec::new(0.3, ms(40)).queue(8_000);
    for deadline in [180, 240] {
        for seed in 1..=3 {
            let alone = run(vec![lossy.clone()], source(deadline), seed).on_time();
            let both = run(vec![small.clone(), lossy.clone()], source(deadline), seed).on_time();
            assert!(alone > 0.97 && both > 0.94, "{deadline} ms, seed {seed}: {alone:.3}, with both {both:.3}");
        }
    }
}
