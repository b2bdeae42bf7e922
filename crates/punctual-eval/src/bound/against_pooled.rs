//! A machine for each path against one machine for all of them, on random instances.

use std::time::Duration;

use punctual_sim::LinkSpec;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Job, bytes_on_time, capacity::Path, count, fractional::fractional, instance::Instance, over};

const END: Duration = Duration::from_millis(10_500);

fn millis(value: f64) -> Duration {
    Duration::from_nanos((value * 1e6) as u64)
}

fn log_uniform(random: &mut Pcg64Mcg, from: f64, to: f64) -> f64 {
    random.random_range(from.ln()..to.ln()).exp()
}

/// Paths of 0.5 to 20 Mbit/s and 2 to 150 ms, and ten seconds of blocks of three sources that need 0.6 to 1.4 of their capacity
/// and have deadlines of 20 ms to 1 s.
fn instance(seed: u64, paths: usize) -> (Vec<LinkSpec>, Vec<Job>) {
    let random = &mut Pcg64Mcg::seed_from_u64(seed);
    let rates: Vec<f64> = (0..paths).map(|_| log_uniform(random, 0.5, 20.0)).collect();
    let links = rates.iter().map(|rate| LinkSpec::new(*rate, millis(log_uniform(random, 2.0, 150.0)))).collect();
    let bytes_per_ms = random.random_range(0.6..1.4) * rates.iter().sum::<f64>() * 125.0;
    let shares = [0; 3].map(|_| random.random_range(0.1..1.0));
    let mut jobs = Vec::new();
    for (share, priority) in shares.into_iter().zip(0..) {
        let period = log_uniform(random, 8.0, 200.0);
        let size = share / shares.iter().sum::<f64>() * bytes_per_ms * period;
        let deadline = log_uniform(random, 20.0, 1_000.0);
        let [spread, jitter] = [[0.0, 0.3, 0.8], [0.0, 0.2, 0.5]].map(|of| of[random.random_range(0..3)]);
        let mut at = random.random_range(0.0..period);
        while at < 10_000.0 {
            jobs.push(Job {
                handed_over: millis(at),
                deadline: Some(millis(deadline)),
                size: (size * (1.0 + random.random_range(-1.0..=1.0) * spread)) as u32 + 1,
                priority,
                weight: random.random_range(0.0..3.0),
            });
            at += period * (1.0 + jitter * random.random_range(-1.0..=1.0));
        }
    }
    (links, jobs)
}

/// Never above; the same for one path; and lower by this much on average: blocks on time, their weight, their bytes.
#[test]
fn a_machine_for_each_path_bounds_no_worse_than_one_for_all() {
    let mut lower = [0.0, 0.0, 0.0];
    for seed in 0..200 {
        let paths = seed as usize % 4 + 1;
        let (links, jobs) = instance(seed, paths);
        let usable: Vec<Path> = links.iter().filter_map(Path::new).collect();
        let bound = over(&usable, &jobs, None, END);
        let pooled = Instance::new(&usable, &jobs, END, 0..jobs.len()).pooled(&usable, &jobs, END);
        let counts = count::prefixes(&pooled, &jobs).most;
        assert!(bound.up_to_priority.iter().zip(&counts).all(|(own, pooled)| own.1 <= pooled.1), "seed {seed}");
        let weight = fractional(&pooled.windows, &pooled.tasks, |task| jobs[task.job].weight);
        let own = [bound.on_time as f64, bound.weighted, bound.bytes_on_time as f64];
        let pooled = [counts.last().unwrap().1 as f64, weight, bytes_on_time(&pooled, &jobs).floor()];
        for ((lower, own), pooled) in lower.iter_mut().zip(own).zip(pooled) {
            assert!(own <= pooled + 1e-6, "seed {seed}: {own} above {pooled}");
            assert!(paths > 1 || own >= pooled - 1e-6, "seed {seed}: {own} below {pooled}");
            // Per cent, of 200.
            *lower += (1.0 - own / pooled.max(1.0)) * f64::from(u8::from(pooled > 0.0)) / 2.0;
        }
    }
    assert!(lower.iter().all(|lower| *lower > 0.3), "lower by {lower:.2?} %");
}
