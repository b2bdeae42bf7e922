//! Redundancy as experiments ask for it and as records tell of it.

use punctual_eval::{
    carry::{self, Stage},
    experiment::Experiment,
    files::Files,
    record::RunRecord,
};

/// Small blocks that are too urgent to be sent again, over a link that loses a tenth of them.
fn run(contender: &str, source: &str) -> RunRecord {
    let text = format!(
        "title = 'x'\nduration = '2s'\ncontenders = ['{contender}']\n[[path]]\nrate = '20 Mbit/s'\ndelay = '30ms'\nloss = '10 %'\n\
         [[workload]]\nsize = 3000\nevery = '10ms'\ndeadline = '80ms'\n{source}"
    );
    let cell = Experiment::parse("x", &text).unwrap().cells().unwrap().remove(0);
    let stage = Stage::new(&cell.setup, &Files::default(), 1).unwrap();
    carry::run(&stage, &cell.contender, 1).unwrap()
}

#[test]
fn repair_bytes_are_told_of_blocks_and_paths() {
    for record in [run("ads+both", ""), run("ads+retransmit", "redundancy = 'both'")] {
        let sent = record.sent();
        assert!(sent.repair > sent.source / 50, "{sent:?}");
        // Before the first loss is known there is no telling how a group fares, but blocks of all of the run have had some.
        let with_repairs = record.blocks.iter().filter(|block| block.repair_bytes > 0).count();
        assert!(with_repairs > record.blocks.len() / 10, "{with_repairs} of {}", record.blocks.len());
        assert!(record.lost.restored * 5 > record.lost.total() * 4, "{:?}", record.lost);
        assert_eq!(record.blocks.iter().map(|block| u64::from(block.repair_bytes)).sum::<u64>(), sent.repair);
        assert_eq!(record.blocks.iter().map(|block| u64::from(block.source_bytes)).sum::<u64>(), sent.source);
    }
}

#[test]
fn a_source_s_word_goes_before_the_contender_s() {
    for (contender, source) in [("ads+none", ""), ("ads+both", "redundancy = 'none'")] {
        let record = run(contender, source);
        let sent = record.sent();
        assert_eq!((sent.repair, sent.copied, sent.resent), (0, 0, 0), "{contender} {source}");
        let lost = record.lost;
        // A packet may be taken for lost and arrive all the same.
        assert!(lost.restored == 0 && lost.never_regained * 10 > lost.total() * 9, "{lost:?}");
        // At 10 % a fifth or so of the blocks lose one of their three packets.
        assert!(record.wasted_bytes > 0 && record.wasted_bytes < sent.source);
    }
}

#[test]
fn duplicates_are_as_much_again() {
    let record = run("ads+duplicate", "");
    let sent = record.sent();
    assert!(sent.repair * 10 > sent.source * 9, "{sent:?}");
    assert!(record.lost.restored * 5 > record.lost.total() * 4, "{:?}", record.lost);
}
