//! What a plan of shares costs, for 2 to 16 paths: ours, and a solver for linear programs of any kind on the same program. And what it costs to choose
//! a path for a fragment, where all cost the same and where each has its price.
//!
//! `cargo bench -p punctual-proto --bench plan`

#![allow(missing_docs)] // of what criterion's macros make

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use microlp::{ComparisonOp, OptimizationDirection, Problem};
use punctual_proto::{
    BlockId,
    multipath::{
        self, FragmentView, PathId, PathView,
        plan::{Link, plan},
    },
    schedule::BlockView,
};

/// What plans are made of: paths, demand (bytes per second), deadline (seconds), quality.
type Asked = (Vec<Link>, f64, f64, f64);

/// Random sets of so many paths.
fn asked(paths: usize) -> Vec<Asked> {
    let mut state = 7_u64;
    let mut draw = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut one = || {
        let links: Vec<Link> = (0..paths)
            .map(|_| {
                let delay = 0.005 + 0.1 * draw();
                let loss = if draw() < 0.3 { 0.0 } else { 0.1 * draw() };
                let (rate, cost) = (1e5 + 3e6 * draw(), 0.5 + 2.0 * draw());
                Link { delay, answer: 2.0 * delay + 0.005, loss, rate, cost }
            })
            .collect();
        let total: f64 = links.iter().map(|link| link.rate).sum();
        (links, total * (0.1 + 0.8 * draw()), 0.05 + 0.25 * draw(), 0.95 + 0.0499 * draw())
    };
    (0..256).map(|_| one()).collect()
}

/// The program of `multipath::plan`, written down for the solver.
fn program((links, demand, deadline, quality): &Asked) -> Option<f64> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let (mut whole, mut in_time, mut loads) = (Vec::new(), Vec::new(), vec![Vec::new(); links.len()]);
    for (i, first) in links.iter().enumerate() {
        let once = if first.delay <= *deadline { 1.0 - first.loss } else { 0.0 };
        for again in std::iter::once(None).chain((0..links.len()).map(Some)) {
            let second = again.map(|again| &links[again]);
            let comes = second.filter(|second| first.answer + second.delay <= *deadline);
            let share = problem.add_var(first.cost + first.loss * second.map_or(0.0, |second| second.cost), (0.0, 1.0));
            whole.push((share, 1.0));
            in_time.push((share, once + comes.map_or(0.0, |second| first.loss * (1.0 - second.loss))));
            loads[i].push((share, if again == Some(i) { 1.0 + first.loss } else { 1.0 }));
            if let Some(again) = again.filter(|again| *again != i) {
                loads[again].push((share, first.loss));
            }
        }
    }
    problem.add_constraint(whole, ComparisonOp::Eq, 1.0);
    problem.add_constraint(in_time, ComparisonOp::Ge, *quality);
    for (link, load) in links.iter().zip(loads) {
        problem.add_constraint(load, ComparisonOp::Le, 0.95 * link.rate / demand);
    }
    Some(problem.solve().ok()?.into_solution().ok()?.objective())
}

fn plans(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_millis(1000)).sample_size(20);
    for paths in [2, 4, 8, 16] {
        let asked = asked(paths);
        let mut turns = (0..asked.len()).cycle();
        let mut next = || &asked[turns.next().unwrap_or_default()];
        group.bench_function(BenchmarkId::new("ours", paths), |bencher| {
            bencher.iter(|| {
                let (links, demand, deadline, quality) = next();
                black_box(plan(links, *demand, *deadline, *quality))
            });
        });
        group.bench_function(BenchmarkId::new("microlp", paths), |bencher| bencher.iter(|| black_box(program(next()))));
    }
    group.finish();
}

fn choices(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choose");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_millis(1000)).sample_size(20);
    let now = Instant::now();
    for (what, each_its_price) in [("alike", false), ("priced", true)] {
        for paths in [2, 4, 8] {
            // No cheap path is enough by itself.
            let view = |id: u32| {
                let mut view = PathView::new(PathId(id), 1e6, Duration::from_millis(40 + 10 * u64::from(id)));
                (view.loss, view.cost) = (0.01, if each_its_price { f64::from(id) } else { 1.0 });
                view
            };
            let views: Vec<_> = (0..paths).map(view).collect();
            let mut block = BlockView::new(BlockId(0), 30_000, now);
            block.deadline = Some(Duration::from_millis(90));
            let fragment = FragmentView::new(block, 1_200);
            let mut expected = multipath::expected()();
            group.bench_function(BenchmarkId::new(what, paths), |bencher| {
                bencher.iter(|| black_box(expected.choose(black_box(&fragment), &views, now)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, plans, choices);
criterion_main!(benches);
