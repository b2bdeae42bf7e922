//! The bound against the truth: every choice of tasks, tried.

use proptest::prelude::*;

use super::{
    Origin, agreeable, fractional,
    machine::{Task, most_work},
    part_count,
    sweep::{self, Swept, Width},
};

/// Whether all of `tasks` (by release) can be on time.
fn feasible(tasks: &[Task]) -> bool {
    most_work(tasks.iter().copied()) == tasks.iter().map(|task| task.work).sum::<i64>()
}

/// The most on time, by trying every choice.
fn best(tasks: &[Task], value: impl Fn(&Task) -> u64) -> u64 {
    (0u32..1 << tasks.len())
        .filter_map(|choice| {
            let chosen: Vec<_> =
                tasks.iter().enumerate().filter(|(i, _)| choice >> i & 1 == 1).map(|(_, task)| *task).collect();
            feasible(&chosen).then(|| chosen.iter().map(&value).sum())
        })
        .max()
        .unwrap_or(0)
}

/// A good choice for many tasks: small ones first, kept if all kept so far can still be on time.
fn heuristic(tasks: &[Task]) -> u64 {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|index| (tasks[*index].work, tasks[*index].due));
    let mut among = vec![false; tasks.len()];
    for index in order {
        among[index] = true;
        let near =
            |task: &Task| task.due > tasks[index].release - 3_000_000 && task.release < tasks[index].due + 3_000_000;
        let chosen: Vec<_> =
            tasks.iter().zip(&among).filter(|(task, among)| **among && near(task)).map(|(task, _)| *task).collect();
        among[index] = feasible(&chosen);
    }
    among.iter().filter(|among| **among).count() as u64
}

fn tasks(n: usize) -> impl Strategy<Value = Vec<Task>> {
    let task = (0..30i64, 1..8i64, 0..12i64).prop_map(|(release, work, slack)| Task {
        release,
        due: release + work + slack,
        work,
        job: 0,
    });
    prop::collection::vec(task, 0..=n).prop_map(|mut tasks| {
        tasks.sort_by_key(|task| (task.release, task.due));
        tasks
    })
}

fn agreed(n: usize) -> impl Strategy<Value = Vec<Task>> {
    tasks(n).prop_map(|mut tasks| {
        let mut latest = 0;
        tasks.iter_mut().for_each(|task| {
            latest = latest.max(task.due);
            task.due = latest;
        });
        tasks
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn agreeable_windows_are_exact(tasks in agreed(8)) {
        prop_assert!(agreeable::agree(&tasks));
        let best = best(&tasks, |_| 1);
        prop_assert_eq!(agreeable::most(&tasks), Some(best));
        prop_assert_eq!(sweep::most(&tasks, Width { backlogs: 1, counts: 20 }).most, best);
    }

    #[test]
    fn a_sweep_that_forgets_nothing_is_exact(tasks in tasks(8)) {
        let swept = sweep::most(&tasks, Width { backlogs: 1000, counts: 1000 });
        prop_assert_eq!(swept, Swept { most: best(&tasks, |_| 1), exact: true });
    }

    #[test]
    fn no_method_is_ever_below_the_best(tasks in tasks(8)) {
        let count = best(&tasks, |_| 1);
        for width in [(1, 1), (1, 3), (2, 2), (1, 100), (3, 100)] {
            let swept = sweep::most(&tasks, Width { backlogs: width.0, counts: width.1 });
            prop_assert!(swept.most >= count && !(swept.exact && swept.most > count), "{:?} {:?}", width, swept);
        }
        for widened in agreeable::widened(&tasks) {
            prop_assert!(agreeable::agree(&widened));
            prop_assert!(agreeable::most(&widened).unwrap() >= count);
        }
        prop_assert!(fractional::fractional(&tasks, |_| 1.0) + 1e-9 >= count as f64);
        let work = best(&tasks, |task| task.work as u64);
        prop_assert!(fractional::fractional(&tasks, |task| task.work as f64) + 1e-9 >= work as f64);
        prop_assert!(most_work(tasks.iter().copied()) >= work as i64);
        let total: u64 = super::count(&tasks, &mut Origin::default());
        prop_assert!(total >= count && total <= count + 1);
    }
}

/// Three sources, as units of work.
fn three(seed: u64, load: f64) -> Vec<Task> {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let horizon = 20_000_000i64;
    let mut tasks = Vec::new();
    let mut demand = 0.0;
    for _ in 0..3 {
        let period = random.random_range(8_000..120_000) as f64;
        let size = random.random_range(1_000..120_000) as f64;
        let deadline = random.random_range(50_000..500_000) as i64;
        let spread: f64 = [0.0, 0.3, 0.8][random.random_range(0..3)];
        demand += size / period;
        let mut at = random.random::<f64>() * period;
        while at < horizon as f64 {
            let work = size * (1.0 + spread * (random.random::<f64>() * 2.0 - 1.0));
            tasks.push((at, deadline, work));
            at += period * if random.random::<bool>() { 1.0 } else { 0.5 + random.random::<f64>() };
        }
    }
    let mut tasks: Vec<_> = tasks
        .into_iter()
        .map(|(at, deadline, work)| Task {
            release: at as i64,
            due: at as i64 + deadline,
            work: (work * (1.0 / (load * demand))) as i64 + 1,
            job: 0,
        })
        .filter(|task| task.work <= task.due - task.release)
        .collect();
    tasks.sort_by_key(|task| (task.release, task.due));
    tasks
}

#[test]
#[ignore]
fn gaps() {
    for load in [0.6, 0.75, 0.9] {
        for seed in 0..12 {
            let tasks = three(seed, load);
            let low = heuristic(&tasks);
            let mut line = format!("{load} {seed:2} n {:5} low {low:5}", tasks.len());
            let pct = |x: f64| (x / low as f64 - 1.0) * 100.0;
            let t = std::time::Instant::now();
            line += &format!(" lp {:+.2}%", pct(fractional::fractional(&tasks, |_| 1.0)));
            line += &format!(" ({:.1}ms)", t.elapsed().as_secs_f64() * 1e3);
            for k in [1, 2, 4, 16] {
                let t = std::time::Instant::now();
                let s = sweep::most(&tasks, Width { backlogs: k, counts: 64 });
                line += &format!(
                    " k{k} {:+.2}% {} ({:.1}ms)",
                    pct(s.most as f64),
                    s.exact as u8,
                    t.elapsed().as_secs_f64() * 1e3
                );
            }
            let w = agreeable::widened(&tasks).map(|t| agreeable::most(&t).map_or(f64::NAN, |m| pct(m as f64)));
            let t = std::time::Instant::now();
            let mut o = Origin::default();
            let all: u64 = super::components(&tasks).into_iter().map(|(p, c)| part_count(p, c, &mut o)).sum();
            println!(
                "{line} wide {w:.2?} all {:+.2}% ({:.1}ms) {o:?}",
                pct(all as f64),
                t.elapsed().as_secs_f64() * 1e3
            );
        }
    }
}
