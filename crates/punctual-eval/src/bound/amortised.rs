//! Blocks that others need, paid for by those that are on time: what each of them has to bear, at least.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use super::{Job, capacity::nanos, instance::work};

/// What a job bears: its own work, part of it, or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) job: usize,
    /// When the first of what it bears part of was handed over, nanoseconds.
    pub(super) release: u64,
    /// At least 1.
    pub(super) work: i64,
}

/// A job and some that need it, whose work is borne in equal parts by those of them that count.
#[derive(Debug, Clone, Copy)]
struct Pool {
    top: usize,
    work: i64,
    bearers: i64,
    release: u64,
}

impl Ord for Pool {
    /// By what each has to bear; without end if nobody does.
    fn cmp(&self, other: &Self) -> Ordering {
        let [own, others] = [(self, other), (other, self)].map(|(a, b)| i128::from(a.work) * i128::from(b.bearers));
        own.cmp(&others).then(self.top.cmp(&other.top))
    }
}

impl PartialOrd for Pool {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pool {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pool {}

/// Shares of those that count, such that any number of them bear no more together than the work of all that they need. Each job but
/// the first of a tree needs its parent, which comes before it.
///
/// Work is handed on to those that need it, as evenly as can be: the isotonic regression of work on the trees, by pools of adjacent
/// violators (Thompson 1962; Pardalos and Xue 1999). On a chain it is the greatest convex function below the sums of its work.
pub(super) fn shares(jobs: &[Job], parents: &[Option<usize>], counts: impl Fn(usize) -> bool) -> Vec<Share> {
    let pool = |job: usize| Pool {
        top: job,
        work: work(&jobs[job]),
        bearers: counts(job).into(),
        release: nanos(jobs[job].handed_over),
    };
    let mut pools: Vec<Pool> = (0..jobs.len()).map(pool).collect();
    let mut tops: Vec<usize> = (0..jobs.len()).collect();
    // Below each job's pool, those of whom a pool's top needs one of it.
    let mut below: Vec<BinaryHeap<Reverse<Pool>>> = Vec::new();
    below.resize_with(jobs.len(), BinaryHeap::new);
    for job in (0..jobs.len()).rev() {
        let mut own = pools[job];
        let mut others = std::mem::take(&mut below[job]);
        while let Some(Reverse(next)) = others.pop() {
            // Who bears less than those it needs bears part of theirs.
            if own.work as i128 * i128::from(next.bearers) <= next.work as i128 * i128::from(own.bearers) {
                others.push(Reverse(next));
                break;
            }
            own.work = own.work.saturating_add(next.work);
            own.bearers += next.bearers;
            own.release = own.release.min(next.release);
            tops[next.top] = job;
            others.append(&mut below[next.top]);
        }
        (pools[job], below[job]) = (own, others);
        if let Some(parent) = parents[job] {
            below[parent].push(Reverse(own));
        }
    }
    for job in 0..jobs.len() {
        tops[job] = tops[tops[job]];
    }
    let share = |job: usize| {
        let Pool { work, bearers, release, .. } = pools[tops[job]];
        Share { job, release, work: work / bearers }
    };
    (0..jobs.len()).filter(|job| counts(*job)).map(share).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::capacity::UNITS_PER_BYTE, *};

    /// What each bears, in bytes, and since when; jobs are a millisecond apart.
    fn borne(sizes: &[u32], parents: &[Option<usize>], counts: impl Fn(usize) -> bool) -> Vec<(usize, u64, i64)> {
        let job = |(at, size): (u64, &u32)| Job {
            handed_over: Duration::from_millis(at),
            deadline: None,
            size: *size,
            priority: 0,
            weight: 1.0,
        };
        let jobs: Vec<Job> = (0..).zip(sizes).map(job).collect();
        let shares = shares(&jobs, parents, counts).into_iter();
        shares.map(|share| (share.job, share.release / 1_000_000, share.work / UNITS_PER_BYTE)).collect()
    }

    #[test]
    fn a_chain_bears_the_convex_part_of_its_sums() {
        let chain = [None, Some(0), Some(1), Some(2)];
        assert_eq!(borne(&[9, 1, 1, 1], &chain, |_| true), [(0, 0, 3), (1, 0, 3), (2, 0, 3), (3, 0, 3)]);
        assert_eq!(borne(&[1, 10, 4, 9], &chain, |_| true), [(0, 0, 1), (1, 1, 7), (2, 1, 7), (3, 3, 9)]);
        assert_eq!(borne(&[1, 10, 4, 9], &[None; 4], |_| true), [(0, 0, 1), (1, 1, 10), (2, 2, 4), (3, 3, 9)]);
    }

    #[test]
    fn what_does_not_count_is_borne_by_what_needs_it() {
        let chain = [None, Some(0), Some(1), Some(2)];
        assert_eq!(borne(&[10, 1, 1, 4], &chain, |job| job == 2), [(2, 0, 12)]);
        assert_eq!(borne(&[10, 1, 1, 4], &chain, |_| false), []);
    }

    #[test]
    fn branches_bear_what_they_share() {
        // The root's 8 and two of three branches, the cheapest first: the third bears its own.
        let tree = [None, Some(0), Some(0), Some(0), Some(1)];
        let shares = borne(&[8, 1, 3, 20, 2], &tree, |_| true);
        assert_eq!(shares, [(0, 0, 3), (1, 0, 3), (2, 0, 3), (3, 3, 20), (4, 0, 3)]);
    }
}
