//! From paths and jobs to one machine of unit speed, and what earliest due date first does on it.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    time::Duration,
};

use super::{
    Job,
    capacity::{MOST, Path, UNITS_PER_BYTE, nanos},
};

/// A job as the machine sees it. Its time is the work all paths can have done, so that a unit of work takes a unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    /// Not before.
    pub(super) release: i64,
    /// By then.
    pub(super) due: i64,
    /// At least 1.
    pub(super) work: i64,
    /// Whose it is: an index into the jobs.
    pub(super) job: usize,
}

/// The jobs that may be on time.
#[derive(Debug, Default)]
pub(super) struct Instance {
    /// Those that cost nothing, for they can take a path without limit.
    pub(super) free: Vec<usize>,
    /// The others, by release, then due date.
    pub(super) tasks: Vec<Task>,
}

impl Instance {
    /// Leaves out the jobs that would not make it even alone.
    pub(super) fn new(paths: &[Path], jobs: &[Job], end: Duration) -> Self {
        Self::of(paths, jobs, end, 0..jobs.len(), true)
    }

    /// The same jobs over other paths, whether or not they would make it there alone.
    pub(super) fn over(&self, paths: &[Path], jobs: &[Job], end: Duration) -> Self {
        let feasible = self.free.iter().copied().chain(self.tasks.iter().map(|task| task.job));
        Self::of(paths, jobs, end, feasible, false)
    }

    fn of(paths: &[Path], jobs: &[Job], end: Duration, which: impl Iterator<Item = usize>, alone_only: bool) -> Self {
        let end = nanos(end);
        let mut instance = Self::default();
        for (index, job) in which.map(|index| (index, &jobs[index])) {
            let release = nanos(job.handed_over);
            let due = job.deadline.map_or(end, |deadline| release.saturating_add(nanos(deadline)).min(end));
            let usable = || paths.iter().filter_map(|path| Some((path, path.latest_departure(due)?)));
            let usable = || usable().filter(|(_, latest)| *latest >= release);
            if usable().any(|(path, _)| path.is_unlimited()) {
                instance.free.push(index);
                continue;
            }
            // All paths on one clock: a departure counts as the arrival it would be if the wire were never longer than at best.
            let shifted = |(path, latest): (&Path, u64)| {
                let delay = i128::from(path.least_delay());
                (i128::from(release) + delay, i128::from(latest) + delay)
            };
            let Some(window) = usable().map(shifted).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { continue };
            let limited = || paths.iter().filter(|path| !path.is_unlimited());
            let sum = |of: &dyn Fn(&Path) -> i64| limited().fold(0, |sum, path| (sum + of(path)).min(MOST));
            let task = Task {
                release: sum(&|path| path.before(window.0 - i128::from(path.least_delay()))),
                due: sum(&|path| path.by(window.1 - i128::from(path.least_delay()))),
                work: i64::from(job.size.max(1)) * UNITS_PER_BYTE,
                job: index,
            };
            // Alone, path by path, it has less than the common clock gives it.
            let alone = usable().fold(0, |sum: i64, (path, latest)| {
                (sum + path.by(latest.into()) - path.before(release.into())).min(MOST)
            });
            if !alone_only || (task.work <= alone && task.work <= task.due - task.release) {
                instance.tasks.push(task);
            }
        }
        instance.tasks.sort_unstable_by_key(|task| (task.release, task.due, task.job));
        instance
    }
}

/// Work that earliest due date first does on `tasks` (by release), giving a task up when it is due: the most that can be done
/// for them in all. Calls `idle` with the tasks since the last time nothing was left to do, and whether all were completed.
fn serve(tasks: impl Iterator<Item = Task>, mut idle: impl FnMut(usize, bool)) -> i64 {
    let (mut now, mut done, mut since, mut complete) = (i64::MIN, 0, 0, true);
    let mut waiting: BinaryHeap<Reverse<(i64, i64)>> = BinaryHeap::new();
    let mut run = |waiting: &mut BinaryHeap<Reverse<(i64, i64)>>, now: &mut i64, until: i64, complete: &mut bool| {
        while let Some(mut first) = waiting.peek_mut() {
            let Reverse((due, left)) = *first;
            let step = left.min(until - *now).min(due - *now).max(0);
            *now += step;
            done += step;
            if step < left && *now < due {
                first.0.1 -= step;
                break;
            }
            *complete &= step == left;
            PeekMut::pop(first);
        }
    };
    for task in tasks {
        run(&mut waiting, &mut now, task.release, &mut complete);
        if waiting.is_empty() && since > 0 {
            idle(since, complete);
            (since, complete) = (0, true);
        }
        now = now.max(task.release);
        waiting.push(Reverse((task.due, task.work)));
        since += 1;
    }
    run(&mut waiting, &mut now, i64::MAX, &mut complete);
    if since > 0 {
        idle(since, complete);
    }
    done
}

/// The most work that can be done in all for `tasks`, which are in order of release.
pub(super) fn most_work(tasks: impl Iterator<Item = Task>) -> i64 {
    serve(tasks, |_, _| ())
}

/// Parts that do not get in each other's way, and whether all tasks of each can be completed.
///
/// Where earliest due date first is idle, even though it tried all tasks, any feasible choice of tasks can be idle too: see
/// `docs/design.md`.
pub(super) fn components(tasks: &[Task]) -> Vec<(&[Task], bool)> {
    let (mut components, mut rest) = (Vec::new(), tasks);
    serve(tasks.iter().copied(), |n, complete| {
        let (component, others) = rest.split_at(n);
        components.push((component, complete));
        rest = others;
    });
    components
}

#[cfg(test)]
mod tests {
    use punctual_sim::LinkSpec;

    use super::*;

    fn task(release: i64, due: i64, work: i64) -> Task {
        Task { release, due, work, job: 0 }
    }

    #[test]
    fn earliest_due_date_first_preempts_and_gives_up() {
        // The long one is interrupted, and has 4 of its 6 when it is due.
        let tasks = [task(0, 6, 6), task(1, 3, 2), task(10, 12, 1)];
        assert_eq!(most_work(tasks.into_iter()), 7);
        let parts: Vec<_> = components(&tasks).iter().map(|(part, complete)| (part.len(), *complete)).collect();
        assert_eq!(parts, [(2, false), (1, true)]);
        assert!(components(&[]).is_empty());
    }

    #[test]
    fn a_window_is_a_stretch_of_capacity() {
        let ms = Duration::from_millis;
        // 1,444 of 1,500 bytes a millisecond.
        let path = |delay| Path::new(&LinkSpec::new(12.0, ms(delay))).unwrap();
        let job = |at, deadline, size| Job { handed_over: ms(at), deadline, size, priority: 0, weight: 1.0 };
        let jobs = [
            job(10, Some(ms(30)), 14_440),
            job(10, Some(ms(30)), 14_441 + 1),
            job(0, Some(ms(19)), 1),
            job(90, None, 1_444),
            job(99, None, 1),
        ];
        let instance = Instance::new(&[path(20)], &jobs, ms(111));
        let windows: Vec<_> = instance.tasks.iter().map(|task| (task.job, task.release, task.due)).collect();
        let at = |millis: i64| millis * 1_444 * UNITS_PER_BYTE;
        // What is ready at 10 ms may begin in the nanosecond before.
        assert_eq!(windows, [(0, at(10) - 2, at(20)), (3, at(90) - 2, at(91))]);
        // A second path of the same length doubles it, and one without limit takes all.
        assert_eq!(Instance::new(&[path(20), path(20)], &jobs, ms(111)).tasks[0].due, 2 * at(20));
        let unlimited = Path::new(&LinkSpec::unlimited(ms(19))).unwrap();
        assert_eq!(Instance::new(&[path(20), unlimited], &jobs, ms(111)).free, [0, 1, 2, 3]);
    }
}
