//! Everything unplugged and plugged in again, in one direction or both, in any order.

mod common;

use std::time::Duration;

use common::*;
use punctual_proto::{Block, BlockId, multipath, schedule};
use punctual_sim::LinkSpec;

/// A generator of numbers below a bound, good enough to draw cases.
fn draws(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// What is well in the end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// Everything.
    All,
    /// One path, both ways; others, or one way of them, may be dead for good.
    OnePath,
}

/// Links die and live again for twenty seconds; from then on nothing changes any more. A few seconds later all is well that goes over them.
fn all_is_well_again(case: u64, end: End) -> Result<(), String> {
    let mut draw = draws(case);
    let paths = if end == End::All { 1 + draw(3) } else { 2 + draw(2) };
    let links: Vec<_> = (0..paths).map(|_| LinkSpec::new((4 + draw(40)) as f64, ms(2 + draw(80)))).collect();
    let block = Block::new(vec![7; 200 + draw(6_000) as usize]).deadline(ms(500));
    // One in ten may be as late as it likes; it must arrive.
    let hurry = |block, number, _| if number % 10 == 0 { Block { deadline: None, ..block } } else { block };
    let source = Source::new(block, ms(20), 2_000).vary(hurry);
    let mut setup = Setup { seed: case, ..Setup::new(links) };
    let scheduler = ["admission", "ads", "edf", "strict", "fcfs"][draw(5) as usize];
    let path_scheduler = ["earliest", "earliest", "lowest-rtt", "round-robin"][draw(4) as usize];
    setup.config.session.scheduler = schedule::by_name(scheduler).expect("known");
    setup.config.session.path_scheduler = multipath::by_name(path_scheduler).expect("known");
    let mut pair = setup.connect(source);
    let good = draw(paths);
    for (at, path) in (0..).zip(pair.paths.clone()) {
        let (to, back) = pair.world.path_links(path);
        let (to, back) = (to[0], back[0]);
        for _ in 0..1 + draw(4) {
            let (from, long, ways) = (draw(18_000), 50 + draw(5_000), 1 + draw(3));
            for (way, link) in [(1, to), (2, back)] {
                if ways & way != 0 {
                    pair.world.at(pair.start + ms(from), move |world| world.kill_link(link));
                    pair.world.at(pair.start + ms((from + long).min(20_000)), move |world| world.revive_link(link));
                }
            }
        }
        let dead = if end == End::All || at == good { 0 } else { draw(4) };
        for (way, link) in [(1, to), (2, back)] {
            if dead & way != 0 {
                pair.world.at(pair.start + ms(20_001), move |world| world.kill_link(link));
            }
        }
    }
    let start = pair.start;
    pair.world.run_for(ms(45_000));
    let source = pair.source();
    let late: Vec<_> = pair.late().into_iter().filter(|(_, at, _)| *at > ms(24_000)).collect();
    let unknown = source.sent.keys().filter(|id| !source.outcomes.contains_key(id)).count();
    let slow = source.not_on_time().into_iter().filter(|(id, _)| source.sent[id] > start + ms(24_000)).count();
    let lost = (0..2_000).step_by(10).filter(|number| !pair.sink().received.contains_key(&BlockId(*number))).count();
    if source.sent.len() == 2_000 && late.is_empty() && unknown == 0 && slow == 0 && lost == 0 {
        return Ok(());
    }
    let first: Vec<(u64, Duration)> = late.iter().take(3).map(|(id, at, _)| (id.0, *at)).collect();
    Err(format!(
        "case {case}, {end:?}: {paths} paths, {scheduler}, {path_scheduler}, {} late from {first:?}, {slow} by the sender's account, {unknown} unknown, {lost} lost",
        late.len()
    ))
}

fn try_all(end: End, cases: std::ops::Range<u64>) {
    let attempt = |case| {
        std::panic::catch_unwind(|| all_is_well_again(case, end)).unwrap_or_else(|_| Err(format!("case {case} panics")))
    };
    let wrong: Vec<_> = cases.filter_map(|case| attempt(case).err()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn all_is_well_once_all_is_plugged_in_again() {
    try_all(End::All, 0..20);
}

#[test]
fn one_path_is_enough() {
    try_all(End::OnePath, 0..80);
}
