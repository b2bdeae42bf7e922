//! Blocks that are of no use without others: which of them can be on time at all.

use std::time::Duration;

use punctual_sim::LinkSpec;

use super::{
    Job, SharedLink,
    capacity::{Path, nanos},
    instance::work,
    shared,
};

/// Whether each job could be on time with all that it needs, if these had the links to themselves. `needs` says for each job which
/// earlier ones those are, directly: they have to be there by its due date, on time themselves or not.
///
/// A job without a deadline is due at the `end`. What is refused here no sender can have on time. It is taken along chains only: of a job
/// that needs two others, the one counts that leaves less.
pub fn decodable<'a>(
    paths: &[LinkSpec],
    shared: &[SharedLink],
    jobs: &[Job],
    needs: impl Fn(usize) -> &'a [u32],
    end: Duration,
) -> Vec<bool> {
    let mut can = vec![true; jobs.len()];
    for cut in shared::cuts(paths, shared) {
        // A path without limit, however long, may have brought anything that was handed over early enough.
        if !cut.iter().any(Path::is_unlimited) {
            over(&cut, jobs, &needs, nanos(end), &mut can);
        }
    }
    can
}

/// Refuses what these paths cannot bring.
///
/// A chain's bytes leave one after the other, none before it was handed over. So of the capacity since time began, at least that before the
/// first of them was handed over is of no use to them, and what they need comes on top; `level` is where that ends, at least.
fn over<'a>(paths: &[Path], jobs: &[Job], needs: impl Fn(usize) -> &'a [u32], end: u64, can: &mut [bool]) {
    // The level, and the latest hand-over along the chain.
    let mut chains: Vec<(i64, u64)> = Vec::with_capacity(jobs.len());
    for (index, job) in jobs.iter().enumerate() {
        let release = nanos(job.handed_over);
        let due = job.deadline.map_or(end, |deadline| release.saturating_add(nanos(deadline)).min(end));
        let before = needs(index).iter().filter_map(|&need| chains.get(need as usize)).copied();
        let (needed, release) = before.fold((0, release), |(level, at), chain| (level.max(chain.0), at.max(chain.1)));
        let gone = |path: &Path| path.before(path.first_departure(release).into());
        let passed: i64 = paths.iter().map(gone).fold(0, i64::saturating_add);
        let level = needed.max(passed).saturating_add(work(job));
        // A path on which it would be late adds nothing, and takes nothing away.
        let useful =
            |path: &Path| path.latest_departure(due).map_or(0, |latest| path.by(latest.into())).max(gone(path));
        can[index] &= level <= paths.iter().map(useful).fold(0, i64::saturating_add);
        chains.push((level, release));
    }
}

#[cfg(test)]
mod tests {
    use punctual_sim::Loss;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn job(at: u64, size: u32, deadline: u64) -> Job {
        Job { handed_over: ms(at), deadline: Some(ms(deadline)), size, priority: 0, weight: 1.0 }
    }

    /// Over 8 Mbit/s and 10 ms, a kilobyte takes a little more than a millisecond.
    fn alone(jobs: &[Job], needs: &[&[u32]]) -> Vec<bool> {
        let link = LinkSpec::new(8.0, ms(10)).loss(Loss::Bernoulli(0.5));
        decodable(&[link], &[], jobs, |index| needs[index], ms(10_000))
    }

    #[test]
    fn a_chain_waits_for_its_first_block() {
        // 100 KB take 100 ms: too long for the first, and for the second, which needs it; the fourth has it by then.
        let jobs = [job(0, 100_000, 100), job(20, 1_000, 80), job(20, 1_000, 80), job(40, 1_000, 80)];
        assert_eq!(alone(&jobs, &[&[], &[0], &[], &[1]]), [false, false, true, true]);
        assert_eq!(alone(&jobs, &[&[], &[], &[], &[]]), [false, true, true, true]);
    }

    #[test]
    fn idle_time_between_the_blocks_of_a_chain_is_lost() {
        let jobs = [job(0, 1_000, 50), job(200, 80_000, 80), job(200, 60_000, 80)];
        assert_eq!(alone(&jobs, &[&[], &[0], &[0]]), [true, false, true]);
    }

    #[test]
    fn paths_add_up_and_a_long_one_takes_nothing_away() {
        let short = LinkSpec::new(8.0, ms(10));
        let jobs = [job(0, 50_000, 60), job(0, 70_000, 60)];
        let can = |paths: &[LinkSpec]| decodable(paths, &[], &jobs, |_| &[], ms(10_000));
        assert_eq!(can(std::slice::from_ref(&short)), [false, false]);
        assert_eq!(can(&[short.clone(), short.clone()]), [true, true]);
        assert_eq!(can(&[short.clone(), LinkSpec::new(8.0, ms(500))]), [false, false]);
        assert_eq!(can(&[short, LinkSpec::unlimited(ms(500))]), [true, true], "nothing is known then");
    }
}
