//! The fewest repair fragments that keep the risk of a miss below a target.

use super::{GroupView, MAX_REPAIRS, Policy, chance::Distribution, chance::together};
use crate::{
    base::{MISS, PathId, bears},
    registry::Parameter,
};

pub(super) const TARGET: Parameter = Parameter {
    name: "target",
    about: "the chance that a block of the highest priority misses its deadline by loss",
    default: MISS,
    min: 1e-9,
    max: 0.5,
};

/// No more repair fragments than this for so many sources, and this many besides: where losses come in long bursts and groups are
/// small, the target may be out of reach at any price.
const MOST: (usize, usize) = (2, 4);

/// Chooses n by the probability that the group loses more than n of its m + n.
///
/// What is known of each path's losses is a belief about the rate and the length of bursts ([`Losses`](super::Losses)), and the
/// probability is the mean over it: a path of which little is known gets more than one known to be clean.
pub(super) struct Risk {
    target: f64,
}

impl Risk {
    pub(super) fn new(target: f64) -> Self {
        Self { target }
    }

    /// The chance of failure a group may have.
    fn allowed(&self, group: &GroupView<'_>) -> f64 {
        let target = self.target * bears(group.priority);
        (target / group.reached.clamp(1e-3, 1.0)).min(0.5)
    }
}

impl Policy for Risk {
    fn name(&self) -> &'static str {
        "risk"
    }

    fn repairs(&mut self, group: &GroupView<'_>) -> usize {
        let allowed = self.allowed(group);
        let m = group.len();
        let fresh = |path: PathId| Distribution::new(&group.losses_on(path));
        // Repair fragments on a path of the sources' go on where these ended; on another they run beside them.
        let count = |path| group.sources.iter().find(|(id, _)| *id == path).map_or(0, |(_, count)| *count);
        let others = group.sources.iter().filter(|(path, _)| *path != group.repair_path);
        let others: Vec<_> = others.map(|&(path, count)| fresh(path).after(count)).collect();
        let others = together(&others, m);
        let mut own = fresh(group.repair_path).after(count(group.repair_path));
        let fails = |own: &Distribution, n: usize| {
            let bears = |lost: usize| n.checked_sub(lost).map_or(1.0, |left| own.more_than(left));
            others.iter().enumerate().map(|(lost, p)| p * bears(lost)).sum::<f64>()
        };
        let most = (MOST.0 * m + MOST.1).min(MAX_REPAIRS);
        for n in 0..most {
            // When a group fails with n + 1 losses, a block that has k of its m + n is hit with about this chance.
            let hit = (group.largest_block * (n + 1)) as f64 / (m + n) as f64;
            if fails(&own, n) * hit.min(1.0) <= allowed {
                return n;
            }
            own.step();
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{super::Losses, *};

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);

    fn seen(each: u32, burst: u32) -> Losses {
        let mut losses = Losses::default();
        // Spread like chance, not like a clock.
        let mut state = 1_u64;
        let mut left = 0;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if left == 0 && (state >> 33).is_multiple_of(u64::from(each * burst)) {
                left = burst;
            }
            losses.note(left > 0);
            left = left.saturating_sub(1);
        }
        losses
    }

    fn n(m: usize, losses: &Losses, repair_path: PathId) -> usize {
        let clean = seen(1_000_000, 1);
        let group = GroupView {
            now: Instant::now(),
            sources: &[(A, m)],
            repair_path,
            losses: &[(A, *losses), (B, clean)],
            priority: 0,
            largest_block: m,
            reached: 1.0,
            rtt: Duration::from_millis(50),
        };
        Risk::new(TARGET.default).repairs(&group)
    }

    #[test]
    fn more_loss_needs_more_and_larger_groups_need_less_for_each() {
        let n_at = |each| n(20, &seen(each, 1), A);
        assert!(n_at(100) < n_at(20) && n_at(20) < n_at(10) && n_at(10) < n_at(5));
        // Binomial: of 28 at 10 %, more than 8 are lost with 0.1 %, more than 7 with 0.5 %.
        assert!((7..=10).contains(&n_at(10)), "{}", n_at(10));
        let ten = seen(10, 1);
        assert!((2..=3).contains(&n(1, &ten, A)), "{}", n(1, &ten, A));
        assert!(n(60, &ten, A) < 3 * n(20, &ten, A));
    }

    #[test]
    fn bursts_need_more_and_a_clean_second_path_less() {
        let (single, bursts) = (seen(20, 1), seen(20, 8));
        assert!(n(20, &bursts, A) > n(20, &single, A) + 5, "{} {}", n(20, &bursts, A), n(20, &single, A));
        assert!(n(1, &bursts, B) < 3, "{}", n(1, &bursts, B));
        assert_eq!(n(1, &bursts, A), 6, "there is a limit");
    }

    #[test]
    fn a_path_known_to_be_clean_gets_next_to_nothing() {
        assert!(n(20, &seen(1_000_000, 1), A) <= 1);
        assert_eq!(n(1, &seen(1_000_000, 1), A), 0);
    }

    #[test]
    fn the_lowest_priority_bears_more() {
        let losses = seen(10, 1);
        let known = [(A, losses)];
        let group = |priority, reached| GroupView {
            now: Instant::now(),
            sources: &[(A, 20)],
            repair_path: A,
            losses: &known,
            priority,
            largest_block: 20,
            reached,
            rtt: Duration::from_millis(50),
        };
        let mut risk = Risk::new(TARGET.default);
        let highest = risk.repairs(&group(0, 1.0));
        assert!(risk.repairs(&group(255, 1.0)) < highest);
        assert!(risk.repairs(&group(0, 0.1)) < highest, "it seldom comes to this");
    }
}
