//! From paths and jobs to machines and tasks.

use std::time::Duration;

use super::{
    Job,
    amortised::Share,
    capacity::{MOST, Path, UNITS_PER_BYTE, nanos},
    windows::{Moments, Task, Windows},
};

/// The jobs that may be on time.
#[derive(Debug, Default)]
pub(super) struct Instance {
    /// Those that cost nothing, for they can take a path without limit.
    pub(super) free: Vec<usize>,
    /// The others, by release, then due date.
    pub(super) tasks: Vec<Task>,
    pub(super) windows: Windows,
}

/// When a job that is not free can leave.
struct Candidate {
    job: usize,
    release: u64,
    due: u64,
    work: i64,
}

impl Candidate {
    /// Whether a packet of it can be in time over this path.
    fn has_time_for(&self, path: &Path) -> bool {
        path.latest_departure(self.due).is_some_and(|latest| latest >= path.first_departure(self.release))
    }
}

/// A moment by which packets must have come, nanoseconds, and the last departure on each machine for that.
type Due = (u64, Vec<Option<u64>>);

impl Instance {
    /// A machine for each path, but one for all paths that are equally long. Of `which` jobs, leaves out those that would not make it
    /// even alone.
    pub(super) fn new(paths: &[Path], jobs: &[Job], end: Duration, which: impl Iterator<Item = usize>) -> Self {
        let (free, candidates) = candidates(paths, jobs, end, which);
        Self::separate(paths, free, &candidates, true)
    }

    /// The same for jobs that bear other work than their own, over paths none of which is without limit; whether or not they would make
    /// it alone.
    pub(super) fn of_shares(paths: &[Path], jobs: &[Job], end: Duration, shares: &[Share]) -> Self {
        let candidate = |share: &Share| {
            let Share { job, release, work } = *share;
            Candidate { job, release, due: due(&jobs[job], nanos(end)), work }
        };
        Self::separate(paths, Vec::new(), &shares.iter().map(candidate).collect::<Vec<_>>(), false)
    }

    /// The same jobs over other paths, whether or not they would make it there alone.
    pub(super) fn over(&self, paths: &[Path], jobs: &[Job], end: Duration) -> Self {
        let feasible = self.free.iter().copied().chain(self.tasks.iter().map(|task| task.job));
        let (free, candidates) = candidates(paths, jobs, end, feasible);
        Self::separate(paths, free, &candidates, false)
    }

    /// The same jobs on one machine, with the capacity of all paths on a common clock: a departure counts as the arrival it would
    /// be if the wire were never longer than at best. A window is the least that holds those on all paths of use to the job.
    pub(super) fn pooled(&self, paths: &[Path], jobs: &[Job], end: Duration) -> Self {
        let (_, candidates) = candidates(paths, jobs, end, self.tasks.iter().map(|task| task.job));
        let limited = || paths.iter().filter(|path| !path.is_unlimited());
        let sum = |of: &dyn Fn(&Path) -> i64| limited().fold(0, |sum, path| (sum + of(path)).min(MOST));
        let window = |one: &Candidate| {
            let shifted = |path: &Path| {
                let (first, latest) = (path.first_departure(one.release), path.latest_departure(one.due)?);
                let delay = i128::from(path.least_delay());
                (first <= latest).then(|| (i128::from(first) + delay, i128::from(latest) + delay))
            };
            let (from, to) = limited().filter_map(shifted).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
            let release = sum(&|path| path.before(from - i128::from(path.least_delay())));
            Some((one.job, release, sum(&|path| path.by(to - i128::from(path.least_delay())))))
        };
        let all: Vec<_> = candidates.iter().filter_map(window).collect();
        let moments = |of: fn(&(usize, i64, i64)) -> i64| {
            let times = distinct(all.iter().map(of));
            (Moments::new(&times, 1, |time, _| *time).0, times)
        };
        let ((releases, release_at), (dues, due_at)) = (moments(|one| one.1), moments(|one| one.2));
        let task = |&(job, release, due): &(usize, i64, i64)| Task {
            release: place(&release_at, &release),
            due: place(&due_at, &due),
            work: work(&jobs[job]),
            job,
        };
        Self { free: self.free.clone(), tasks: in_order(all.iter().map(task)), windows: Windows { releases, dues } }
    }

    fn separate(paths: &[Path], free: Vec<usize>, candidates: &[Candidate], alone_only: bool) -> Self {
        let machines = machines(paths, candidates);
        let sum = |machine: usize, of: &dyn Fn(&Path) -> i64| {
            machines[machine].iter().fold(0, |sum, path| (sum + of(path)).min(MOST))
        };
        let release_at = distinct(candidates.iter().map(|one| one.release));
        let (releases, release_of) = Moments::new(&release_at, machines.len(), |at, machine| {
            let first = machines[machine][0].first_departure(*at);
            sum(machine, &|path| path.before(first.into()))
        });
        let due_at = distinct(candidates.iter().map(|one| one.due)).into_iter();
        let due_at: Vec<Due> =
            due_at.map(|due| (due, machines.iter().map(|paths| paths[0].latest_departure(due)).collect())).collect();
        let (dues, due_of) = Moments::new(&due_at, machines.len(), |(_, latest), machine| {
            latest[machine].map_or(0, |latest| sum(machine, &|path| path.by(latest.into())))
        });
        let windows = Windows { releases, dues };
        let task = |one: &Candidate| {
            let due = due_at.partition_point(|(due, _)| *due < one.due);
            let release = release_of[place(&release_at, &one.release)];
            let usable = machines.iter().zip(&due_at[due].1).map(|(paths, latest)| {
                let first = paths[0].first_departure(one.release);
                latest.is_some_and(|latest| latest >= first)
            });
            let task = Task { release, due: due_of[due], work: one.work, job: one.job };
            let stretches = windows.releases.at(task.release).iter().zip(windows.dues.at(task.due));
            let usable = usable.zip(stretches).filter(|(usable, _)| *usable);
            let mut stretches = usable.map(|(_, (release, due))| due - release).peekable();
            let closed = stretches.peek().is_none();
            let alone = stretches.fold(0, |sum: i64, stretch| (sum + stretch).min(MOST));
            (!closed && (!alone_only || task.work <= alone)).then_some(task)
        };
        let tasks = in_order(candidates.iter().filter_map(task));
        Self { free, tasks, windows }
    }
}

/// Jobs that have a path without limit that is short enough, and those that may have to make do with others.
fn candidates(
    paths: &[Path],
    jobs: &[Job],
    end: Duration,
    which: impl Iterator<Item = usize>,
) -> (Vec<usize>, Vec<Candidate>) {
    let end = nanos(end);
    let (mut free, mut candidates) = (Vec::new(), Vec::new());
    for job in which {
        let release = nanos(jobs[job].handed_over);
        let due = due(&jobs[job], end);
        let candidate = Candidate { job, release, due, work: work(&jobs[job]) };
        if paths.iter().any(|path| path.is_unlimited() && candidate.has_time_for(path)) {
            free.push(job);
        } else {
            candidates.push(candidate);
        }
    }
    (free, candidates)
}

/// The limited paths that are of use to a candidate; those that are equally long at all times together, for it is all the same which of
/// them a packet takes.
fn machines<'a>(paths: &'a [Path], candidates: &[Candidate]) -> Vec<Vec<&'a Path>> {
    let mut machines: Vec<Vec<&Path>> = Vec::new();
    let is_of_use = |path: &&Path| !path.is_unlimited() && candidates.iter().any(|one| one.has_time_for(path));
    for path in paths.iter().filter(is_of_use) {
        match machines.iter_mut().find(|machine| machine[0].is_as_long_as(path)) {
            Some(machine) => machine.push(path),
            None => machines.push(vec![path]),
        }
    }
    machines
}

/// When a job is due, nanoseconds.
pub(super) fn due(job: &Job, end: u64) -> u64 {
    job.deadline.map_or(end, |deadline| nanos(job.handed_over).saturating_add(nanos(deadline)).min(end))
}

pub(super) fn work(job: &Job) -> i64 {
    i64::from(job.size.max(1)) * UNITS_PER_BYTE
}

fn distinct<T: Ord>(times: impl Iterator<Item = T>) -> Vec<T> {
    let mut times: Vec<T> = times.collect();
    times.sort_unstable();
    times.dedup();
    times
}

/// Where in `times` this one is.
fn place<T: Ord>(times: &[T], time: &T) -> usize {
    times.partition_point(|other| other < time)
}

fn in_order(tasks: impl Iterator<Item = Task>) -> Vec<Task> {
    let mut tasks: Vec<_> = tasks.collect();
    tasks.sort_unstable_by_key(|task| (task.release, task.due, task.job));
    tasks
}

#[cfg(test)]
mod tests {
    use punctual_sim::LinkSpec;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Carries 1,444 of 1,500 bytes a millisecond.
    fn path(delay: u64) -> Path {
        Path::new(&LinkSpec::new(12.0, ms(delay))).unwrap()
    }

    fn job(at: u64, deadline: Option<u64>, size: u32) -> Job {
        Job { handed_over: ms(at), deadline: deadline.map(ms), size, priority: 0, weight: 1.0 }
    }

    const fn at(millis: i64) -> i64 {
        millis * 1_444 * UNITS_PER_BYTE
    }

    fn windows(instance: &Instance) -> Vec<(usize, &[i64], &[i64])> {
        let window =
            |task: &Task| (task.job, instance.windows.releases.at(task.release), instance.windows.dues.at(task.due));
        instance.tasks.iter().map(window).collect()
    }

    #[test]
    fn a_window_is_a_stretch_of_capacity() {
        let jobs = [
            job(10, Some(30), 14_440),
            job(10, Some(30), 14_441 + 1),
            job(0, Some(19), 1),
            job(90, None, 1_444),
            job(99, None, 1),
        ];
        let instance = Instance::new(&[path(20)], &jobs, ms(111), 0..5);
        // What is ready at 10 ms may begin in the nanosecond before.
        assert_eq!(windows(&instance), [(0, &[at(10) - 2][..], &[at(20)][..]), (3, &[at(90) - 2], &[at(91)])]);
        assert_eq!(windows(&instance), windows(&instance.pooled(&[path(20)], &jobs, ms(111))));
        // A second path of the same length doubles it, and one without limit takes all.
        let twice = Instance::new(&[path(20), path(20)], &jobs, ms(111), 0..5);
        assert_eq!(windows(&twice)[0], (0, &[2 * at(10) - 4][..], &[2 * at(20)][..]));
        let unlimited = Path::new(&LinkSpec::unlimited(ms(19))).unwrap();
        assert_eq!(Instance::new(&[path(20), unlimited], &jobs, ms(111), 0..5).free, [0, 1, 2, 3]);
    }

    #[test]
    fn paths_of_different_length_have_windows_of_their_own() {
        let jobs = [job(10, Some(30), 1), job(10, Some(50), 1)];
        let paths = [path(20), path(45), path(20)];
        let instance = Instance::new(&paths, &jobs, ms(111), 0..2);
        let release = &[2 * at(10) - 4, at(10) - 2][..];
        // The first is to be there when nothing is, that left the second machine after it was handed over.
        let dues = [&[2 * at(20), 0][..], &[2 * at(40), at(15)]];
        assert_eq!(windows(&instance), [(0, release, dues[0]), (1, release, dues[1])]);
        assert!(!instance.windows.is_open(0, 0) || instance.windows.alone(&instance.tasks[0]) > 0);
        // On one clock, all three carry both of them.
        let pooled = instance.pooled(&paths, &jobs, ms(111));
        assert_eq!(windows(&pooled)[0], (0, &[2 * at(10) - 4][..], &[2 * at(20)][..]));
        assert_eq!(windows(&pooled)[1].2, [2 * at(40) + at(15)]);
    }
}
