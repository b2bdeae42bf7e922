//! The most blocks on time, of each priority and those above it.

use super::{
    Job, Origin, agreeable, fractional,
    instance::Instance,
    serve::components,
    sweep::{self, Swept, Width},
    windows::{Task, Windows},
};

/// What sweeps may look at in all: some tens of milliseconds.
const STEPS: u64 = 12_000_000;

/// Backlogs a sweep remembers for each number of tasks; the next width is tried if the one before was not exact and was cheap.
const BACKLOGS: [usize; 3] = [1, 4, 16];

/// Numbers of tasks a sweep remembers.
const COUNTS: usize = 64;

/// Most blocks on time by priority.
pub(super) struct Counts {
    /// Of each priority that occurs and those above it.
    pub(super) most: Vec<(u8, u64)>,
    /// Where the last of these numbers comes from.
    pub(super) origin: Origin,
    /// Whether none of them could be lower, as far as the machines go.
    pub(super) exact: bool,
}

impl Counts {
    /// The lower of two by every priority.
    pub(super) fn lower(self, other: Self) -> Self {
        let last = |counts: &Self| counts.most.last().map(|(_, most)| *most);
        Self {
            origin: if last(&other) < last(&self) { other.origin } else { self.origin },
            most: self.most.iter().zip(&other.most).map(|((priority, a), (_, b))| (*priority, *a.min(b))).collect(),
            exact: self.exact || other.exact,
        }
    }
}

/// The priorities that occur, the highest first.
pub(super) fn priorities(jobs: &[Job]) -> impl Iterator<Item = u8> + use<> {
    let mut present = [false; 256];
    jobs.iter().for_each(|job| present[usize::from(job.priority)] = true);
    (0..=u8::MAX).filter(move |priority| present[usize::from(*priority)])
}

/// Most blocks on time of each priority that occurs and those above it.
pub(super) fn prefixes(instance: &Instance, jobs: &[Job]) -> Counts {
    let mut possible = [0u64; 256];
    let feasible = instance.free.iter().copied().chain(instance.tasks.iter().map(|task| task.job));
    feasible.for_each(|job| possible[usize::from(jobs[job].priority)] += 1);

    let steps = STEPS / priorities(jobs).count().max(1) as u64;
    let mut counts = Counts { most: Vec::new(), origin: Origin::default(), exact: true };
    let most = &mut counts.most;
    for priority in priorities(jobs) {
        let within = |job: usize| jobs[job].priority <= priority;
        let tasks: Vec<_> = instance.tasks.iter().filter(|task| within(task.job)).copied().collect();
        let free = instance.free.iter().filter(|job| within(**job)).count() as u64;
        let mut origin = Origin { unhindered: free, ..Origin::default() };
        let count = free + count(&instance.windows, &tasks, steps, &mut origin);
        let before = most.last().map_or(0, |(_, most)| *most);
        most.push((priority, count.min(before + possible[usize::from(priority)])));
        counts.exact &= origin.swept + origin.fractional == 0;
        counts.origin = origin;
    }
    counts.origin.hopeless = jobs.len() as u64 - possible.iter().sum::<u64>();
    // What more blocks cannot reach, fewer of them cannot either.
    for index in (1..most.len()).rev() {
        most[index - 1].1 = most[index - 1].1.min(most[index].1);
    }
    counts
}

/// Most tasks on time, part by part.
pub(super) fn count(windows: &Windows, tasks: &[Task], steps: u64, origin: &mut Origin) -> u64 {
    let share = |part: &[Task]| (u128::from(steps) * part.len() as u128 / tasks.len() as u128) as u64;
    let parts = components(windows, tasks).into_iter();
    parts
        .map(|(part, complete)| {
            if complete {
                origin.unhindered += part.len() as u64;
                part.len() as u64
            } else {
                hindered(windows, part, share(part), origin)
            }
        })
        .sum()
}

/// Most tasks on time of a part in which not all can be.
fn hindered(windows: &Windows, part: &[Task], steps: u64, origin: &mut Origin) -> u64 {
    let n = part.len() as u64;
    let agree = windows.machines() == 1 && agreeable::agree(part);
    if let Some(most) = agree.then(|| agreeable::most(windows, part)).flatten() {
        origin.exact += n;
        return most;
    }
    let fractional = whole(fractional::fractional(windows, part, |_| 1.0));
    let mut least = u64::MAX;
    for backlogs in BACKLOGS {
        let swept = sweep::most(windows, part, Width { backlogs, counts: COUNTS, steps });
        least = least.min(swept.most);
        if let Swept { exact: true, .. } = swept {
            origin.exact += n;
            return least;
        }
        if swept.steps > steps / 16 {
            break;
        }
    }
    *(if least <= fractional { &mut origin.swept } else { &mut origin.fractional }) += n;
    least.min(fractional)
}

/// The greatest whole number not above `value`, whatever a sum of fractions has lost on the way.
pub(super) fn whole(value: f64) -> u64 {
    (value + 1e-6).floor() as u64
}
