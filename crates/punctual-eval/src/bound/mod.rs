//! The clairvoyant bound: how many blocks no sender can beat, not even one that knows the future.
//!
//! Statement, relaxations and proof are in `docs/design.md`, "The clairvoyant bound". In short: links and blocks become tasks on one
//! preemptive machine (`capacity`, `machine`); that falls into parts that do not touch; and of each part the lowest of several
//! upper bounds counts (`agreeable`, `sweep`, `fractional`).

mod agreeable;
mod capacity;
mod count;
#[cfg(test)]
mod exhaustive;
mod fractional;
mod instance;
mod serve;
mod sweep;
mod windows;

use std::time::Duration;

use punctual_sim::LinkSpec;

use self::{
    capacity::{Path, UNITS_PER_BYTE},
    fractional::fractional,
    instance::Instance,
    serve::most_work,
};

/// A block that was, or will be, handed over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// When, since the links were shaped.
    pub handed_over: Duration,
    /// Counted from then; without one, it is due at the end.
    pub deadline: Option<Duration>,
    /// Bytes; 0 counts as 1.
    pub size: u32,
    /// 0 is the highest.
    pub priority: u8,
    /// What it is worth in [`Bound::weighted`], if on time; at least 0.
    pub weight: f64,
}

/// What no sender can exceed.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// Most blocks on time in all.
    pub on_time: u64,
    /// Most blocks on time of those with this or a higher priority, for each priority that occurs, the highest first.
    pub up_to_priority: Vec<(u8, u64)>,
    /// Most sum of the weights of blocks on time.
    pub weighted: f64,
    /// Most bytes of blocks on time.
    pub bytes_on_time: u64,
    /// What a sender cannot exceed on average if it does not know which packets will be lost.
    pub average: Average,
    /// Where [`on_time`](Self::on_time) comes from.
    pub origin: Origin,
}

/// What no sender exceeds on average over the losses, unless it knows which packets will be lost before it sends them. Never
/// above the [`Bound`] it belongs to; below it where packets are lost or damaged. A single run may be luckier.
#[derive(Debug, Clone, PartialEq)]
pub struct Average {
    /// Blocks on time in all.
    pub on_time: f64,
    /// Blocks on time of those with this or a higher priority.
    pub up_to_priority: Vec<(u8, f64)>,
    /// Sum of the weights of blocks on time.
    pub weighted: f64,
    /// Bytes of blocks on time.
    pub bytes_on_time: f64,
}

/// How many blocks each method decided about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// All of these can be on time: nothing stands in their way.
    pub unhindered: u64,
    /// None of these can: they are too large for their deadlines even alone.
    pub hopeless: u64,
    /// The optimum was found, of capacity that can be cut as finely as one likes.
    pub exact: u64,
    /// The sweep had to forget something, and was lowest.
    pub swept: u64,
    /// The fractional relaxation was lowest.
    pub fractional: u64,
}

/// An upper bound on what any sender can bring over `paths` in time, even one that knows the future.
///
/// `end` is when the run stops: what arrives later does not count, and blocks without a deadline are due then. Links count as they
/// are specified, from their beginning on. That they lose packets (but see [`Bound::average`]), have a way back and may die is
/// ignored, which makes the bound no lower.
///
/// It takes some tens of milliseconds at most for a few thousand jobs, and some tenths of a second for a hundred thousand.
pub fn bound(paths: &[LinkSpec], jobs: &[Job], end: Duration) -> Bound {
    let usable: Vec<_> = paths.iter().filter_map(Path::new).collect();
    let instance = Instance::new(&usable, jobs, end);
    let (up_to_priority, origin) = count::prefixes(&instance, jobs);
    let counts: Vec<_> = up_to_priority.iter().map(|(priority, most)| (*priority, *most as f64)).collect();
    let ceiling = Average {
        on_time: counts.last().map_or(0.0, |(_, most)| *most),
        weighted: weighted(&instance, jobs, &counts),
        bytes_on_time: bytes_on_time(&instance, jobs).floor(),
        up_to_priority: counts,
    };
    Bound {
        on_time: up_to_priority.last().map_or(0, |(_, most)| *most),
        up_to_priority,
        weighted: ceiling.weighted,
        bytes_on_time: ceiling.bytes_on_time as u64,
        average: average(paths, &instance, jobs, end, ceiling),
        origin,
    }
}

/// Lowers `ceiling` to what links carry that lose packets.
fn average(paths: &[LinkSpec], instance: &Instance, jobs: &[Job], end: Duration, ceiling: Average) -> Average {
    if paths.iter().all(|path| capacity::survival(path) >= 1.0) {
        return ceiling;
    }
    let thinned: Vec<_> = paths.iter().filter_map(|spec| Some(Path::new(spec)?.thinned(spec))).collect();
    let instance = instance.over(&thinned, jobs, end);
    let count = |(priority, most): (u8, f64)| {
        let within = |job: usize| f64::from(u8::from(jobs[job].priority <= priority));
        (
            priority,
            most.min(
                instance.free.iter().map(|job| within(*job)).sum::<f64>()
                    + fractional(&instance.windows, &instance.tasks, |task| within(task.job)),
            ),
        )
    };
    let up_to_priority: Vec<_> = ceiling.up_to_priority.into_iter().map(count).collect();
    Average {
        on_time: up_to_priority.last().map_or(0.0, |(_, most)| *most),
        weighted: weighted(&instance, jobs, &up_to_priority).min(ceiling.weighted),
        bytes_on_time: bytes_on_time(&instance, jobs).min(ceiling.bytes_on_time),
        up_to_priority,
    }
}

/// Most weight on time.
fn weighted(instance: &Instance, jobs: &[Job], up_to_priority: &[(u8, f64)]) -> f64 {
    let weight = |job: usize| if jobs[job].weight > 0.0 { jobs[job].weight } else { 0.0 };
    let free: f64 = instance.free.iter().map(|job| weight(*job)).sum();
    let most = free + fractional(&instance.windows, &instance.tasks, |task| weight(task.job));
    most.min(by_priority(up_to_priority, jobs).unwrap_or(f64::INFINITY))
}

/// Most bytes on time. All bytes are equally dear, so it is the most work that can be done.
fn bytes_on_time(instance: &Instance, jobs: &[Job]) -> f64 {
    let free: u64 = instance.free.iter().map(|job| u64::from(jobs[*job].size)).sum();
    free as f64 + most_work(&instance.windows, instance.tasks.iter().copied()) as f64 / UNITS_PER_BYTE as f64
}

/// Most weight on time, if weight follows from priority and does not rise as that falls: the counts, summed by parts (Abel).
fn by_priority(up_to_priority: &[(u8, f64)], jobs: &[Job]) -> Option<f64> {
    let mut weights = [None; 256];
    for job in jobs {
        let weight = weights[usize::from(job.priority)].get_or_insert(job.weight);
        if *weight != job.weight || job.weight < 0.0 {
            return None;
        }
    }
    let weights: Vec<f64> = weights.into_iter().flatten().collect();
    let next = weights.iter().skip(1).copied().chain([0.0]);
    let steps: Vec<f64> = weights.iter().zip(next).map(|(weight, next)| weight - next).collect();
    let falls = steps.iter().all(|step| *step >= 0.0);
    falls.then(|| steps.iter().zip(up_to_priority).map(|(step, (_, most))| step * most).sum())
}
