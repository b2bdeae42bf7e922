//! The same seed gives the same run.

mod common;

use common::*;
use punctual_sim::{Jitter, LogMode, Loss};

/// A run in which everything goes wrong that can.
fn run(seed: u64, log: LogMode) -> (String, u64) {
    let link = dmtp_link()
        .loss(Loss::bursts(0.03, 3.0))
        .jitter(Jitter::Exponential(ms(2)))
        .corruption(0.01)
        .duplication(0.01)
        .reordering(0.02, ms(10))
        .ecn_threshold(60_000);
    let other = link.clone().loss(Loss::Bernoulli(0.02));
    let mut pair = Setup { seed, log, ..Setup::new(vec![link, other]) }.connect(dmtp_source(6));
    let path = pair.paths[1];
    pair.world.at(pair.start + ms(2_000), move |world| world.kill_path(path));
    pair.world.at(pair.start + ms(3_000), move |world| world.revive_path(path));
    pair.world.run_for(ms(7_000));
    (pair.world.log().to_string(), pair.world.log().hash())
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let (first, hash) = run(11, LogMode::Full);
    assert!(first.lines().count() > 1_000, "much happens");
    for _ in 0..2 {
        let (again, _) = run(11, LogMode::Full);
        let difference = first.lines().zip(again.lines()).position(|(a, b)| a != b);
        assert_eq!(difference.map(|line| (line, first.lines().nth(line), again.lines().nth(line))), None);
        assert_eq!(first.len(), again.len());
    }
    assert_eq!(run(11, LogMode::Hash), (String::new(), hash));
}

#[test]
fn another_seed_gives_another_run() {
    assert_ne!(run(11, LogMode::Hash), run(12, LogMode::Hash));
}
