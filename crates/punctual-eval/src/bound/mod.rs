//! The clairvoyant bound: how many blocks no sender can beat, not even one that knows the future.
//!
//! Statement, relaxations and proof are in `docs/design.md`, "The clairvoyant bound". In short: links and blocks become tasks on one
//! preemptive machine ([`capacity`], [`machine`]); that falls into parts that do not touch; and of each part the lowest of
//! several upper bounds counts ([`agreeable`], [`sweep`], [`fractional`]).

mod agreeable;
mod capacity;
#[cfg(test)]
mod exhaustive;
mod fractional;
mod machine;
mod sweep;

use std::time::Duration;

use punctual_sim::LinkSpec;

use self::{
    capacity::{Path, UNITS_PER_BYTE},
    machine::{Instance, Task, components},
    sweep::{Swept, Width},
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
    /// Where [`on_time`](Self::on_time) comes from.
    pub origin: Origin,
}

/// How many blocks each method decided about: those of the parts for which it was the lowest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// Nothing stands in their way: all of them can be on time.
    pub unhindered: u64,
    /// Too large for their deadline even alone.
    pub hopeless: u64,
    /// The exact optimum (of the capacity, cut as finely as one likes): agreeable windows, or a sweep that forgot nothing.
    pub exact: u64,
    /// Agreeable windows after some were widened.
    pub widened: u64,
    /// A sweep that had to forget something.
    pub swept: u64,
    /// The fractional relaxation.
    pub fractional: u64,
}

/// An upper bound on what any sender can bring over `paths` in time, even one that knows the future.
///
/// `end` is when the run stops: what arrives later does not count, and blocks without a deadline are due then. Links count as they
/// are specified, from their beginning on; loss, the way back, and that links may die are ignored, which makes the bound no lower.
pub fn bound(paths: &[LinkSpec], jobs: &[Job], end: Duration) -> Bound {
    let paths: Vec<_> = paths.iter().filter_map(Path::new).collect();
    let instance = Instance::new(&paths, jobs, end);
    let (up_to_priority, origin) = prefixes(&instance, jobs);
    let weight = |job: usize| if jobs[job].weight > 0.0 { jobs[job].weight } else { 0.0 };
    let free: f64 = instance.free.iter().map(|job| weight(*job)).sum();
    let weighted = free + fractional::fractional(&instance.tasks, |task| weight(task.job));
    let free: u64 = instance.free.iter().map(|job| u64::from(jobs[*job].size)).sum();
    let bytes = machine::most_work(instance.tasks.iter().copied()) / UNITS_PER_BYTE;
    Bound {
        on_time: up_to_priority.last().map_or(0, |(_, most)| *most),
        weighted: weighted.min(by_priority(&up_to_priority, jobs).unwrap_or(f64::INFINITY)),
        bytes_on_time: free + bytes.unsigned_abs(),
        up_to_priority,
        origin,
    }
}

/// Most blocks on time of each priority and those above it, and where the last of these numbers comes from.
fn prefixes(instance: &Instance, jobs: &[Job]) -> (Vec<(u8, u64)>, Origin) {
    let (mut present, mut possible) = ([false; 256], [0u64; 256]);
    jobs.iter().for_each(|job| present[usize::from(job.priority)] = true);
    let feasible = instance.free.iter().copied().chain(instance.tasks.iter().map(|task| task.job));
    feasible.for_each(|job| possible[usize::from(jobs[job].priority)] += 1);
    let mut origin = Origin::default();
    let mut most = Vec::new();
    for priority in (0..=u8::MAX).filter(|priority| present[usize::from(*priority)]) {
        let within = |job: usize| jobs[job].priority <= priority;
        let tasks: Vec<_> = instance.tasks.iter().filter(|task| within(task.job)).copied().collect();
        let free = instance.free.iter().filter(|job| within(**job)).count() as u64;
        origin = Origin { unhindered: free, hopeless: jobs.len() as u64, ..Origin::default() };
        let count = free + count(&tasks, &mut origin);
        let before = most.last().map_or(0, |(_, most)| *most);
        most.push((priority, count.min(before + possible[usize::from(priority)])));
    }
    origin.hopeless -= possible.iter().sum::<u64>().min(origin.hopeless);
    // What more blocks cannot reach, fewer of them cannot either.
    for index in (1..most.len()).rev() {
        most[index - 1].1 = most[index - 1].1.min(most[index].1);
    }
    (most, origin)
}

/// Most tasks on time.
fn count(tasks: &[Task], origin: &mut Origin) -> u64 {
    components(tasks).into_iter().map(|(part, complete)| part_count(part, complete, origin)).sum()
}

fn part_count(part: &[Task], complete: bool, origin: &mut Origin) -> u64 {
    let n = part.len() as u64;
    if complete {
        origin.unhindered += n;
        return n;
    }
    if agreeable::agree(part) {
        if let Some(most) = agreeable::most(part) {
            origin.exact += n;
            return most;
        }
    }
    let Swept { most, exact } = sweep::most(part, Width { backlogs: 1, counts: 64 });
    if exact {
        origin.exact += n;
        return most;
    }
    let fractional = whole(fractional::fractional(part, |_| 1.0));
    let widened = agreeable::widened(part).iter().filter_map(|part| agreeable::most(part)).min().unwrap_or(n);
    let least = most.min(fractional).min(widened);
    *(match least {
        _ if least == most => &mut origin.swept,
        _ if least == widened => &mut origin.widened,
        _ => &mut origin.fractional,
    }) += n;
    least
}

/// The greatest whole number not above `value`, whatever a sum of fractions has lost on the way.
fn whole(value: f64) -> u64 {
    (value + 1e-6).floor() as u64
}

/// Most weight on time, if weight follows from priority and does not rise as that falls: Abel's summation of the counts.
fn by_priority(up_to_priority: &[(u8, u64)], jobs: &[Job]) -> Option<f64> {
    let mut weights = [None; 256];
    for job in jobs {
        let weight = weights[usize::from(job.priority)].get_or_insert(job.weight);
        if *weight != job.weight || !(*weight >= 0.0) {
            return None;
        }
    }
    let weights: Vec<f64> = weights.into_iter().flatten().collect();
    let next = weights.iter().skip(1).copied().chain([0.0]);
    let steps = weights.iter().zip(next).map(|(weight, next)| weight - next);
    let terms: Vec<_> = steps.zip(up_to_priority).map(|(step, (_, most))| (step, *most as f64)).collect();
    terms.iter().all(|(step, _)| *step >= 0.0).then(|| terms.iter().map(|(step, most)| step * most).sum())
}
