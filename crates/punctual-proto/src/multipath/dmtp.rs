//! DMTP as a whole: its optimizer's plan for first tries, and for second ones a time and a path of their own.

use std::time::Instant;

use super::{FragmentView, PathChoice, PathHealth, PathScheduler, PathSet, PathView, optimizer::Optimizer};
use crate::base::GRANULARITY;

/// First tries go as [`Optimizer`] plans. What is unacknowledged of a block goes again once, `d_max + d_min` after the last of it has left, by the path
/// with the least delay (DMTP, Networking 2023, V, "Retransmission"): `d_max` is the one-way delay of the slowest path that carried it, `d_min`
/// how long acknowledgements take, which DMTP sends by the fastest path. Which way ours come back is the receiver's to choose: so the time is the slowest
/// path's answer as it was measured, the time for which it may be held back included: all but one in a hundred come sooner.
///
/// The paper's retransmission path is said to be the fastest, and in its evaluation (VI) both are alike: of paths whose delays do not differ by more than
/// [`GRANULARITY`] it is the one that loses least, and then the cheapest. Where its pacing holds the path back the fragment waits for it; where its window
/// is full, the fastest with room is taken.
pub(super) struct Dmtp {
    first: Optimizer,
}

impl Dmtp {
    pub(super) fn new(quality: f64) -> Self {
        Self { first: Optimizer::new(quality) }
    }
}

/// The path with the least delay of those that are well, or of all if none is.
fn fastest<'a>(paths: impl Iterator<Item = &'a PathView> + Clone) -> Option<&'a PathView> {
    let any = paths.clone().any(|path| path.health == PathHealth::Active);
    let well = paths.filter(|path| !any || path.health == PathHealth::Active);
    let least = well.clone().map(PathView::delay).min()?;
    let alike = well.filter(|path| path.delay() <= least + GRANULARITY);
    alike.min_by(|a, b| a.loss.total_cmp(&b.loss).then(a.cost.total_cmp(&b.cost)).then(a.id.cmp(&b.id)))
}

impl PathScheduler for Dmtp {
    fn name(&self) -> &'static str {
        "dmtp"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        if fragment.lost_on.is_none() || fragment.block.due().is_none() {
            return self.first.choose(fragment, paths, now);
        }
        let wanted = fastest(paths.iter());
        if wanted.is_some_and(|path| !path.ready && path.ready_at.is_some()) {
            return PathChoice::Wait;
        }
        let path = wanted.filter(|path| path.ready).or_else(|| fastest(paths.iter().filter(|path| path.ready)));
        path.map_or(PathChoice::Wait, |path| PathChoice::Send(PathSet::one(path.id)))
    }

    fn times_second_tries(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{
            PathId,
            tests::{fragment, path},
        },
        *,
    };
    use crate::schedule::BlockView;

    const MS: Duration = Duration::from_millis(1);

    fn takes(millis: u32, view: PathView) -> PathView {
        PathView { one_way_delay: MS * millis, min_one_way_delay: MS * millis, ..view }
    }

    /// Where what was lost on the first path goes.
    fn again(paths: &[PathView]) -> PathChoice {
        let block = BlockView { deadline: Some(MS * 200), ..fragment().block };
        let lost = FragmentView { block, lost_on: Some(PathId(0)), ..fragment() };
        Dmtp::new(0.999).choose(&lost, paths, block.begin)
    }

    #[test]
    fn second_tries_take_the_fastest_path() {
        let [slow, fast] = [takes(60, path(0)), takes(20, path(1))];
        assert_eq!(again(&[slow, fast]), PathChoice::Send(PathSet::one(PathId(1))));
        let paced = PathView { ready: false, ready_at: Some(Instant::now() + MS), ..fast };
        assert_eq!(again(&[slow, paced]), PathChoice::Wait);
        let full = PathView { ready: false, ready_at: None, ..fast };
        assert_eq!(again(&[slow, full]), PathChoice::Send(PathSet::one(PathId(0))));
        let suspect = PathView { health: PathHealth::Suspect, ..fast };
        assert_eq!(again(&[slow, suspect]), PathChoice::Send(PathSet::one(PathId(0))));
    }

    #[test]
    fn of_paths_that_are_alike_the_one_that_loses_least_and_then_the_cheapest() {
        let [lossy, dear, cheap] = [(0, 0.1, 1.0), (1, 0.0, 3.0), (2, 0.0, 2.0)]
            .map(|(id, loss, cost)| takes(60, PathView { loss, cost, ..path(id) }));
        assert_eq!(again(&[lossy, dear]), PathChoice::Send(PathSet::one(PathId(1))));
        assert_eq!(again(&[lossy, dear, cheap]), PathChoice::Send(PathSet::one(PathId(2))));
        let behind_a_queue = PathView { backlog: MS * 5, ..dear };
        assert_eq!(again(&[lossy, behind_a_queue]), PathChoice::Send(PathSet::one(PathId(0))));
    }
}
