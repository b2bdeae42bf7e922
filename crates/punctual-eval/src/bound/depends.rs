//! Blocks that are of no use without others: which of them can be on time at all, and how many of each priority and those above it.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Job, Origin, amortised,
    capacity::{Path, nanos},
    chains::Stream,
    count::{Counts, priorities, whole},
    fractional::fractional,
    instance::{Instance, due, work},
};

/// What a job has to do with others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ties<'a> {
    /// Where it comes from. The jobs of a source are looked at in their order.
    pub source: u16,
    /// Earlier jobs without which it is of no use, the direct ones: they have to be there by its due date, on time themselves or not.
    pub needs: &'a [u32],
}

/// Jobs of which some need others.
pub(super) struct Tied<'a> {
    ties: &'a [Ties<'a>],
    /// Whether each could be on time with all that it needs, if these had the links to themselves.
    can: Vec<bool>,
    /// Of each job, the latest that it needs.
    parents: Vec<Option<usize>>,
    /// The jobs of each source in which one needs another, in order.
    streams: Vec<Vec<usize>>,
    /// All others.
    loose: Vec<usize>,
}

impl<'a> Tied<'a> {
    /// `None` if no job needs another. Packets pass one path of each of `cuts`.
    pub(super) fn new(cuts: &[Vec<Path>], jobs: &[Job], ties: &'a [Ties<'a>], end: Duration) -> Option<Self> {
        ties.iter().find(|tie| !tie.needs.is_empty())?;
        let latest = |index: usize| needs(ties, index).max();
        let mut tied = Self {
            ties,
            can: vec![true; jobs.len()],
            parents: (0..jobs.len()).map(latest).collect(),
            streams: Vec::new(),
            loose: Vec::new(),
        };
        for cut in cuts.iter().filter(|cut| is_limited(cut)) {
            refuse(cut, jobs, |index| needs(ties, index), nanos(end), &mut tied.can);
        }
        let mut sources: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for index in 0..jobs.len() {
            sources.entry(ties.get(index).map_or(0, |tie| tie.source)).or_default().push(index);
        }
        for source in sources.into_values() {
            if source.iter().any(|index| tied.parents[*index].is_some()) {
                tied.streams.push(source);
            } else {
                tied.loose.extend(source);
            }
        }
        Some(tied)
    }

    /// Whether a job can be on time, as far as its needs go.
    pub(super) fn can(&self, job: usize) -> bool {
        self.can[job]
    }

    /// Most blocks on time of each priority and those above it; `None` over a path without limit.
    ///
    /// The lower of two: each source alone, block by block ([`Stream`]), and all together by fractions ([`amortised`]).
    pub(super) fn counts(&self, paths: &[Path], jobs: &[Job], end: Duration) -> Option<Counts> {
        is_limited(paths).then_some(())?;
        let streams: Vec<Stream> = self.streams.iter().map(|of| self.stream(paths, jobs, of, end)).collect();
        let most = priorities(jobs).map(|priority| {
            let counted = |job: usize| self.can[job] && jobs[job].priority <= priority;
            let loose = self.loose.iter().filter(|job| counted(**job)).count() as u64;
            let alone = streams.iter().map(|stream| stream.most(counted)).fold(loose, u64::saturating_add);
            (priority, alone.min(whole(self.fractional(paths, jobs, end, priority))))
        });
        let most: Vec<_> = most.collect();
        let hopeless = self.can.iter().filter(|can| !**can).count() as u64;
        let origin = Origin { hopeless, dependent: jobs.len() as u64 - hopeless, ..Origin::default() };
        Some(Counts { most, origin, exact: false })
    }

    /// Most blocks on time of this priority and those above it, by fractions: infinitely many over a path without limit.
    pub(super) fn fractional(&self, paths: &[Path], jobs: &[Job], end: Duration, priority: u8) -> f64 {
        if !is_limited(paths) {
            return f64::INFINITY;
        }
        let shares = amortised::shares(jobs, &self.parents, |job| self.can[job] && jobs[job].priority <= priority);
        let instance = Instance::of_shares(paths, jobs, end, &shares);
        fractional(&instance.windows, &instance.tasks, |_| 1.0)
    }

    fn stream(&self, paths: &[Path], jobs: &[Job], of: &[usize], end: Duration) -> Stream {
        Stream::new(paths, jobs, of, |job, on| self.ties[job].needs.contains(&(on as u32)), end)
    }
}

/// The jobs that one directly needs.
fn needs<'a>(ties: &'a [Ties<'a>], index: usize) -> impl Iterator<Item = usize> + 'a {
    let needs = ties.get(index).map_or(&[][..], |tie| tie.needs);
    needs.iter().map(|need| *need as usize).filter(move |need| *need < index)
}

/// A path without limit, however long, may have brought anything that was handed over early enough.
fn is_limited(paths: &[Path]) -> bool {
    !paths.iter().any(Path::is_unlimited)
}

/// Refuses what these paths cannot bring. It is taken along chains only: of a job that needs two others, the one counts that leaves
/// less.
///
/// A chain's bytes leave one after the other, none before it was handed over. So of the capacity since time began, at least that before the
/// first of them was handed over is of no use to them, and what they need comes on top; `level` is where that ends, at least.
fn refuse<I>(paths: &[Path], jobs: &[Job], needs: impl Fn(usize) -> I, end: u64, can: &mut [bool])
where
    I: Iterator<Item = usize>,
{
    // The level, and the latest hand-over along the chain.
    let mut chains: Vec<(i64, u64)> = Vec::with_capacity(jobs.len());
    for (index, job) in jobs.iter().enumerate() {
        let before = needs(index).filter_map(|need| chains.get(need)).copied();
        let (needed, release) =
            before.fold((0, nanos(job.handed_over)), |(level, at), chain| (level.max(chain.0), at.max(chain.1)));
        let gone = |path: &Path| path.before(path.first_departure(release).into());
        let passed: i64 = paths.iter().map(gone).fold(0, i64::saturating_add);
        // Who was there before what it needs may have been carried by then.
        let own = if release > nanos(job.handed_over) { 0 } else { work(job) };
        let level = needed.max(passed).saturating_add(own);
        // A path on which it would be late adds nothing, and takes nothing away.
        let useful = |path: &Path| {
            path.latest_departure(due(job, end)).map_or(0, |latest| path.by(latest.into())).max(gone(path))
        };
        can[index] &= level <= paths.iter().map(useful).fold(0, i64::saturating_add);
        chains.push((level, release));
    }
}

#[cfg(test)]
mod tests {
    use punctual_sim::{LinkSpec, Loss};

    use super::{super::shared::cuts, *};

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn job(at: u64, size: u32, deadline: u64) -> Job {
        Job { handed_over: ms(at), deadline: Some(ms(deadline)), size, priority: 0, weight: 1.0 }
    }

    /// Which of the jobs can be on time; each is a source's last.
    fn can(paths: &[LinkSpec], jobs: &[Job], needs: &[&[u32]]) -> Vec<bool> {
        let ties: Vec<Ties<'_>> = needs.iter().map(|needs| Ties { source: 0, needs }).collect();
        let tied = Tied::new(&cuts(&paths.into()), jobs, &ties, ms(10_000)).unwrap();
        (0..jobs.len()).map(|job| tied.can(job)).collect()
    }

    /// Over 8 Mbit/s and 10 ms, a kilobyte takes a little more than a millisecond.
    fn alone(jobs: &[Job], needs: &[&[u32]]) -> Vec<bool> {
        can(&[LinkSpec::new(8.0, ms(10)).loss(Loss::Bernoulli(0.5))], jobs, needs)
    }

    #[test]
    fn a_chain_waits_for_its_first_block() {
        // 100 KB take 100 ms: too long for the first, and for the second, which needs it; the fourth has it by then.
        let jobs = [job(0, 100_000, 100), job(20, 1_000, 80), job(20, 1_000, 80), job(40, 1_000, 80)];
        assert_eq!(alone(&jobs, &[&[], &[0], &[], &[1]]), [false, false, true, true]);
        // Nothing needs itself or what comes later.
        assert_eq!(alone(&jobs, &[&[], &[1], &[3], &[]]), [false, true, true, true]);
    }

    #[test]
    fn idle_time_between_the_blocks_of_a_chain_is_lost() {
        let jobs = [job(0, 1_000, 50), job(200, 80_000, 80), job(200, 60_000, 80)];
        assert_eq!(alone(&jobs, &[&[], &[0], &[0]]), [true, false, true]);
    }

    #[test]
    fn what_was_there_before_what_it_needs_may_have_gone_first() {
        // 40 KB take 41 ms: from 0 on those of the second, from 45 ms on those that it needs.
        let jobs = [job(45, 40_000, 60), job(0, 40_000, 105)];
        assert_eq!(alone(&jobs, &[&[], &[0]]), [true, true]);
    }

    #[test]
    fn paths_add_up_and_a_long_one_takes_nothing_away() {
        let short = LinkSpec::new(8.0, ms(10));
        let jobs = [job(0, 50_000, 60), job(0, 70_000, 60), job(0, 1, 5_000)];
        let both = |paths: &[LinkSpec]| can(paths, &jobs, &[&[], &[], &[0]])[..2].to_vec();
        assert_eq!(both(std::slice::from_ref(&short)), [false, false]);
        assert_eq!(both(&[short.clone(), short.clone()]), [true, true]);
        assert_eq!(both(&[short.clone(), LinkSpec::new(8.0, ms(500))]), [false, false]);
        assert_eq!(both(&[short, LinkSpec::unlimited(ms(500))]), [true, true], "nothing is known then");
    }

    #[test]
    fn jobs_that_need_nothing_are_not_tied() {
        let jobs = [job(0, 1, 50), job(0, 1, 50)];
        assert!(Tied::new(&[], &jobs, &[], ms(100)).is_none());
        assert!(Tied::new(&[], &jobs, &[Ties::default(); 2], ms(100)).is_none());
    }
}
