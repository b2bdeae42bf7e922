//! What path schedulers take for the chance of being in time, against what comes of it.
//!
//! Single packets with all kinds of deadlines, sent once, over random pairs of paths with jitter, losses and others' bursts: the chance that
//! [`multipath::in_time`] gave each when it left, and whether it was there in time.

mod common;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use common::*;
use punctual_proto::{
    Block, BlockId, Redundancy,
    multipath::{self, FragmentView, PathChoice, PathScheduler, PathSet, PathView},
    schedule,
};
use punctual_sim::{CrossTraffic, Jitter, LinkSpec, Loss};

/// The chance that each block was given, by those of its packets that left last.
type Predicted = Arc<Mutex<BTreeMap<BlockId, f64>>>;

/// The paths with room in turn, so that good and bad chances are taken.
struct Watched {
    predicted: Predicted,
    turns: usize,
}

impl PathScheduler for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        let ready: Vec<_> = paths.iter().filter(|path| path.ready).collect();
        self.turns += 1;
        let path = ready[self.turns % ready.len()];
        // One that no path seems to meet is taken for another; this is about what was said.
        let mut asked = *fragment;
        asked.block.deadline = Some(deadline(fragment.block.id.0));
        let chance = multipath::in_time(&asked, path, now);
        self.predicted.lock().expect("no panics").insert(fragment.block.id, chance);
        PathChoice::Send(PathSet::one(path.id))
    }
}

const BLOCKS: u64 = 1_600;
/// Before that little is known of the paths.
const WARM_UP: Duration = ms(1_000);

/// A deadline from 10 to 130 ms.
fn deadline(index: u64) -> Duration {
    ms(10 + (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 120)
}

/// Chances and what came of them, in one world.
fn world(seed: u64) -> Vec<(f64, bool)> {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let links: Vec<_> = (0..2)
        .map(|_| {
            let link = LinkSpec::new(2.0 + draw(80) as f64 / 10.0, ms(8 + draw(70)));
            let jitter = Duration::from_micros(draw(6_000));
            let link =
                link.jitter([Jitter::None, Jitter::Uniform(jitter), Jitter::Exponential(jitter)][draw(3) as usize]);
            link.loss(Loss::Bernoulli([0.0, 0.005, 0.03][draw(3) as usize]))
        })
        .collect();
    let busy = draw(3) == 0;
    let predicted = Predicted::default();
    let mut setup =
        Setup { seed, back: |link| link.clone().loss(Loss::None).jitter(Jitter::None), ..Setup::new(links) };
    setup.config.session.scheduler = schedule::by_name("fcfs").expect("known");
    let watched = predicted.clone();
    setup.config.session.path_scheduler = Arc::new(move || Box::new(Watched { predicted: watched.clone(), turns: 0 }));
    let template = Block::new(vec![7; 1_000]).redundancy(Redundancy::None);
    let source = Source::new(template, ms(5), BLOCKS).vary(|block, index, _| block.deadline(deadline(index)));
    let mut pair = setup.prepare(source);
    if busy {
        let bursts = CrossTraffic::bursts(1.5, ms(100), ms(300));
        let link = pair.world.path_links(pair.paths[0]).0[0];
        pair.world.add_cross_traffic(link, bursts);
    }
    pair.begin();
    pair.world.run_for(ms(5) * BLOCKS as u32 + ms(2_000));
    let (source, sink, predicted) = (pair.source(), pair.sink(), predicted.lock().expect("no panics"));
    let of = |(index, (id, at)): (usize, (&BlockId, &Duration))| {
        let took = sink.received.get(id).map(|(received, _)| *received - *at);
        let chance = *predicted.get(id)?;
        (*at - pair.start >= WARM_UP).then(|| (chance, took.is_some_and(|took| took <= deadline(index as u64))))
    };
    source.sent.iter().enumerate().filter_map(of).collect()
}

#[test]
fn what_is_likely_to_be_in_time_is() {
    let outcomes: Vec<_> = (1..=24).flat_map(world).collect();
    let brier = |of: &dyn Fn(f64) -> f64| {
        let error = |(chance, came): &(f64, bool)| (of(*chance) - f64::from(u8::from(*came))).powi(2);
        outcomes.iter().map(error).sum::<f64>() / outcomes.len() as f64
    };
    let share = |of: &[&(f64, bool)]| of.iter().filter(|(_, came)| *came).count() as f64 / of.len().max(1) as f64;
    let base = share(&outcomes.iter().collect::<Vec<_>>());
    let [ours, blind] = [brier(&|chance| chance), brier(&|_| base)];
    println!(
        "{} packets, {:.1} % in time; Brier score {ours:.4}, of that share alone {blind:.4}",
        outcomes.len(),
        100.0 * base
    );
    let edges = [0.0, 0.001, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.1];
    for edge in edges.windows(2) {
        let within: Vec<_> = outcomes.iter().filter(|(chance, _)| (edge[0]..edge[1]).contains(chance)).collect();
        let said = within.iter().map(|(chance, _)| chance).sum::<f64>() / within.len().max(1) as f64;
        let came = share(&within);
        let line = format!(
            "{:5.3} to {:5.3}: {:5} packets, said {:6.2} %, came {:6.2} %",
            edge[0],
            edge[1],
            within.len(),
            100.0 * said,
            100.0 * came
        );
        println!("{line}");
        // Where decisions are: what is thought all but sure is, and what is thought likely.
        let bearable = if said > 0.95 {
            0.015
        } else if said > 0.7 {
            0.06
        } else {
            0.25
        };
        let chance_alone = 2.0 * (said * (1.0 - said) / within.len().max(1) as f64).sqrt();
        assert!((said - came).abs() < bearable + chance_alone, "{line}");
    }
    assert!(ours < 0.15 * blind, "{ours} of {blind}");
}
