//! When tasks may be worked on: the work each machine can have done by their releases and due dates.
//!
//! A machine does one unit of work in one of its own time. Moments are the same for all machines, and where each machine's clock
//! stands at them never falls from one moment to the next. So a unit of capacity can be used by tasks released before it and due
//! no sooner than it is of use; nothing else about machines matters (`docs/bound.md`).

use super::capacity::MOST;

/// A job as the machines see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    /// Not before this one of [`Windows::releases`].
    pub(super) release: usize,
    /// By this one of [`Windows::dues`].
    pub(super) due: usize,
    /// At least 1.
    pub(super) work: i64,
    /// Whose it is: an index into the jobs.
    pub(super) job: usize,
}

/// Moments in order; for each, where every machine's clock stands.
#[derive(Debug, Default)]
pub(super) struct Moments {
    machines: usize,
    clocks: Vec<i64>,
}

impl Moments {
    /// Those of `times` (in order), and which of them each one is: times at which all clocks stand the same are one moment.
    pub(super) fn new<T>(times: &[T], machines: usize, clocks: impl Fn(&T, usize) -> i64) -> (Self, Vec<usize>) {
        let mut moments = Self { machines, clocks: Vec::new() };
        let mut which: Vec<usize> = Vec::with_capacity(times.len());
        for time in times {
            let own: Vec<i64> = (0..machines).map(|machine| clocks(time, machine)).collect();
            let moment = match which.last() {
                Some(last) if moments.at(*last) == own => *last,
                Some(last) => last + 1,
                None => 0,
            };
            moments.clocks.truncate(moment * machines);
            moments.clocks.extend(own);
            which.push(moment);
        }
        (moments, which)
    }

    /// All clocks at a moment.
    pub(super) fn at(&self, moment: usize) -> &[i64] {
        &self.clocks[moment * self.machines..][..self.machines]
    }
}

/// The moments of all tasks, on all machines.
#[derive(Debug, Default)]
pub(super) struct Windows {
    pub(super) releases: Moments,
    pub(super) dues: Moments,
}

impl Windows {
    pub(super) fn machines(&self) -> usize {
        self.dues.machines
    }

    /// The work all machines can do from one release to another, or to the end of time, that is of use to what is due then.
    pub(super) fn work(&self, from: usize, to: Option<usize>, due: usize) -> i64 {
        let stretches = self.releases.at(from).iter().zip(self.dues.at(due));
        let work = match to {
            None => stretches.fold(0, |sum: i64, (from, due)| sum.saturating_add((due - from).max(0))),
            Some(to) => stretches
                .zip(self.releases.at(to))
                .fold(0, |sum: i64, ((from, due), to)| sum.saturating_add((*due.min(to) - from).max(0))),
        };
        work.min(MOST)
    }

    /// Whether all machines are open to what is due then for as long as it takes to that release.
    pub(super) fn is_open_until(&self, release: usize, due: usize) -> bool {
        self.releases.at(release).iter().zip(self.dues.at(due)).all(|(release, due)| release <= due)
    }

    /// Whether a machine is left at that release that can still do something for what is due then.
    pub(super) fn is_open(&self, release: usize, due: usize) -> bool {
        self.releases.at(release).iter().zip(self.dues.at(due)).any(|(release, due)| release < due)
    }

    /// The most work that can be done on a task.
    pub(super) fn alone(&self, task: &Task) -> i64 {
        task.work.min(self.work(task.release, None, task.due))
    }
}

/// Tasks on a single machine, given by when they are released, due and how much work they are.
#[cfg(test)]
pub(super) fn single(tasks: &[(i64, i64, i64)]) -> (Windows, Vec<Task>) {
    let tasks: Vec<_> = tasks.iter().map(|(release, due, work)| ([*release].into(), [*due].into(), *work)).collect();
    several(&tasks)
}

/// Where the clocks of several machines stand at a task's release and when it is due, and how much work it is.
#[cfg(test)]
pub(super) type Sketch = (Vec<i64>, Vec<i64>, i64);

/// The same on several machines, whose clocks are in the same order.
#[cfg(test)]
pub(super) fn several(tasks: &[Sketch]) -> (Windows, Vec<Task>) {
    let moments = |which: fn(&Sketch) -> &Vec<i64>| {
        let mut times: Vec<_> = tasks.iter().map(which).cloned().collect();
        times.sort();
        times.dedup();
        let machines = times.first().map_or(0, Vec::len);
        assert!(times.windows(2).all(|pair| pair[0].iter().zip(&pair[1]).all(|(a, b)| a <= b)));
        (Moments::new(&times, machines, |time, machine| time[machine]).0, times)
    };
    let ((releases, release_at), (dues, due_at)) = (moments(|task| &task.0), moments(|task| &task.1));
    let task = |(job, (release, due, work)): (usize, &Sketch)| Task {
        release: release_at.partition_point(|at| at < release),
        due: due_at.partition_point(|at| at < due),
        work: *work,
        job,
    };
    let mut all: Vec<_> = tasks.iter().enumerate().map(task).collect();
    all.sort_unstable_by_key(|task| (task.release, task.due, task.job));
    (Windows { releases, dues }, all)
}
