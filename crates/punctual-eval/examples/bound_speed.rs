//! How long the clairvoyant bound takes: `cargo run --release -p punctual-eval --example bound_speed`.

use std::time::{Duration, Instant};

use punctual_eval::bound::{Job, Links, Ties, bound, bound_of_dependent};
use punctual_sim::LinkSpec;

/// Sensors, video and files, each with a priority, for so long.
fn jobs(seconds: u64) -> Vec<Job> {
    let source = |period: u64, deadline: u64, size: u32, spread: u32, priority: u8| {
        (0..seconds * 1000 / period).map(move |i| Job {
            handed_over: Duration::from_millis(i * period),
            deadline: Some(Duration::from_millis(deadline)),
            size: size + (i as u32).wrapping_mul(2_654_435_761) % spread,
            priority,
            weight: f64::from(3 - priority),
        })
    };
    source(10, 100, 300, 900, 0)
        .chain(source(33, 150, 10_000, 20_000, 1))
        .chain(source(200, 500, 80_000, 60_000, 2))
        .collect()
}

/// One-way delays of the paths, milliseconds.
const DELAYS: [&[u64]; 4] = [&[20], &[20, 20], &[10, 60], &[5, 25, 60, 110]];

/// A video of 60 frames per second for so long, in groups of 50, each frame of which needs the one before.
fn video(seconds: u64) -> (Vec<Job>, Vec<Vec<u32>>) {
    let frame = |i: u64| Job {
        handed_over: Duration::from_micros(i * 16_667),
        deadline: Some(Duration::from_millis(400)),
        size: if i.is_multiple_of(50) { 80_000 } else { 15_000 + (i as u32).wrapping_mul(2_654_435_761) % 10_000 },
        priority: u8::from(!i.is_multiple_of(50)),
        weight: 1.0,
    };
    let needs = |i: u64| if i.is_multiple_of(50) { Vec::new() } else { vec![i as u32 - 1] };
    ((0..seconds * 60).map(frame).collect(), (0..seconds * 60).map(needs).collect())
}

fn main() {
    for seconds in [35, 100, 1_700] {
        let (jobs, needs) = video(seconds);
        let ties: Vec<_> = needs.iter().map(|needs| Ties { source: 0, needs }).collect();
        for mbps in [6.0, 9.0, 10.0] {
            let links = [20, 60].map(|delay| LinkSpec::new(mbps / 2.0, Duration::from_millis(delay)));
            let links = Links::from(&links[..]);
            let start = Instant::now();
            let bound = bound_of_dependent(&links, &jobs, &ties, Duration::from_secs(seconds + 1));
            let (took, n) = (start.elapsed(), jobs.len());
            println!("{n:6} frames, {mbps:3.1} Mbit/s: {took:.1?}, {} on time, {:?}", bound.on_time, bound.origin);
        }
    }
    for seconds in [15, 45, 750] {
        let jobs = jobs(seconds);
        for mbps in [4.0, 6.0, 8.0, 9.5] {
            for delays in DELAYS {
                let link = |delay: &u64| LinkSpec::new(mbps / delays.len() as f64, Duration::from_millis(*delay));
                let links: Vec<_> = delays.iter().map(link).collect();
                let start = Instant::now();
                let bound = bound(&links, &jobs, Duration::from_secs(seconds + 1));
                let took = start.elapsed();
                println!(
                    "{:6} jobs, {mbps:3.1} Mbit/s over {delays:?} ms: {took:.1?}, {} on time, {:?}",
                    jobs.len(),
                    bound.on_time,
                    bound.origin
                );
            }
        }
    }
}
