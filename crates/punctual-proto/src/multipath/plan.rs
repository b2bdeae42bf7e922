//! What share of the data is sent first on which path, and again on which, at the least cost: the model of Chuat et al. (2017) that DMTP's
//! optimizer solves (V).
//!
//! ```text
//! x_ij    the share that is sent first on i and, if lost, once more on j, or not again
//! P_ij  = [d_i ≤ δ](1 − τ_i) + [a_i + d_j ≤ δ] τ_i (1 − τ_j)      d: one way, τ: loss, δ: deadline, a_i: until a loss on i is known
//! load  = λ Σ x_ij ([i = k] + τ_i [j = k]) ≤ 0.95 b_k             for each path k, λ: what is to be sent, b: rate
//! cost  = λ Σ x_ij (c_i + τ_i c_j)
//! least cost with Σ x = 1 and Σ x P ≥ q; where that cannot be had, as much Σ x P as there is
//! ```
//!
//! There the data may also be dropped unsent, at no cost, as long as q is kept; here it is dropped only if the paths do not carry it.

use super::{MAX_PATHS, simplex::Simplex};

/// How much of a path's rate is planned with.
const USABLE: f64 = 0.95;
/// Shares below it are none.
const LEAST_SHARE: f64 = 1e-9;

/// A path, as far as plans go. Seconds, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// One way.
    pub delay: f64,
    /// From sending until a loss is known.
    pub answer: f64,
    /// The share of packets that are lost.
    pub loss: f64,
    /// Bytes per second.
    pub rate: f64,
    /// Of a byte.
    pub cost: f64,
}

impl Link {
    /// The chance that what is sent once is there in time.
    pub(super) fn once(&self, deadline: f64) -> f64 {
        if self.delay <= deadline { 1.0 - self.loss } else { 0.0 }
    }

    /// Whether what it loses can be sent again on `again`, and be in time.
    pub(super) fn has_time_for(&self, again: &Self, deadline: f64) -> bool {
        self.answer + again.delay <= deadline
    }
}

/// A way to send: first on one path, and what is lost there on another, or not again.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Way {
    /// The path of first tries, by its place among the links.
    pub first: usize,
    /// That of second tries.
    pub again: Option<usize>,
    /// Of all that is sent.
    pub share: f64,
    /// To be in time.
    pub chance: f64,
    /// Of a byte, the second try included.
    pub cost: f64,
}

impl Way {
    pub(super) fn new(links: &[Link], deadline: f64, first: usize, again: Option<usize>, share: f64) -> Self {
        let link = &links[first];
        let (mut chance, mut cost) = (link.once(deadline), link.cost);
        if let Some(again) = again.map(|again| &links[again]) {
            chance += if link.has_time_for(again, deadline) { link.loss * (1.0 - again.loss) } else { 0.0 };
            cost += link.loss * again.cost;
        }
        Self { first, again, share, chance, cost }
    }
}

/// The ways to use and their shares; together less than 1 if the paths do not carry all. `demand` in bytes per second, `deadline` in seconds; paths beyond the
/// most that a session has are not used.
pub fn plan(links: &[Link], demand: f64, deadline: f64, quality: f64) -> Vec<Way> {
    let links = &links[..links.len().min(MAX_PATHS)];
    let room = |link: &Link| USABLE * link.rate.max(0.0) / demand.max(1.0);
    let ways = Simplex::new(links, deadline, quality, room).solve();
    ways.filter(|way| way.share > LEAST_SHARE).collect()
}

#[cfg(test)]
mod tests {
    use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOutcome};

    use super::*;

    /// How much of path `k` a byte takes that goes this way.
    fn load(way: &Way, k: usize, links: &[Link]) -> f64 {
        let first = if way.first == k { 1.0 } else { 0.0 };
        first + if way.again == Some(k) { links[way.first].loss } else { 0.0 }
    }

    /// The program itself, by a solver for any: cost if the quality can be had, else the most of it.
    fn solve(links: &[Link], demand: f64, deadline: f64, quality: Option<f64>) -> Option<f64> {
        let direction =
            if quality.is_some() { OptimizationDirection::Minimize } else { OptimizationDirection::Maximize };
        let mut problem = Problem::new(direction);
        let again = || std::iter::once(None).chain((0..links.len()).map(Some));
        let ways: Vec<Way> = (0..links.len())
            .flat_map(|first| again().map(move |again| Way::new(links, deadline, first, again, 0.0)))
            .collect();
        let worth = |way: &Way| if quality.is_some() { way.cost } else { way.chance };
        let shares: Vec<_> = ways.iter().map(|way| problem.add_var(worth(way), (0.0, 1.0))).collect();
        let with = |of: &dyn Fn(&Way) -> f64| -> Vec<_> {
            shares.iter().zip(&ways).map(|(share, way)| (*share, of(way))).collect()
        };
        let whole = if quality.is_some() { ComparisonOp::Eq } else { ComparisonOp::Le };
        problem.add_constraint(with(&|_| 1.0), whole, 1.0);
        for (k, link) in links.iter().enumerate() {
            problem.add_constraint(with(&|way| load(way, k, links)), ComparisonOp::Le, USABLE * link.rate / demand);
        }
        if let Some(quality) = quality {
            problem.add_constraint(with(&|way| way.chance), ComparisonOp::Ge, quality);
        }
        match problem.solve().ok()? {
            SolveOutcome::Solution(solution) => Some(solution.objective()),
            SolveOutcome::Interrupted(_) => None,
        }
    }

    /// DMTP's paths: 15 Mbit/s and 60 ms, one at half the other's cost.
    fn pair(loss: f64) -> [Link; 2] {
        let link = |loss, cost| Link { delay: 0.061, answer: 0.123, loss, rate: 1.875e6, cost };
        [link(loss, 1.0), link(0.0, 2.0)]
    }

    #[test]
    fn the_cheap_path_first_and_the_dear_one_for_what_is_lost() {
        let plan = plan(&pair(0.1), 1.2e6, 0.2, 0.999);
        assert!(plan.iter().all(|way| way.first == 0), "{plan:?}");
        // One in a hundred is late if the second try is on the cheap path, too: a tenth of it may be.
        let dear: f64 = plan.iter().filter(|way| way.again == Some(1)).map(|way| way.share).sum();
        assert!((dear - 0.9).abs() < 1e-6, "{plan:?}");
        // Without time for a second try, all of it goes where nothing is lost.
        let plan = super::plan(&pair(0.1), 1.2e6, 0.15, 0.999);
        assert!(plan.iter().filter(|way| way.first == 0).map(|way| way.share).sum::<f64>() < 0.011, "{plan:?}");
    }

    #[test]
    fn more_than_the_cheap_path_carries_goes_on_both() {
        let plan = plan(&pair(0.0), 2.5e6, 0.2, 0.999);
        let on = |path| plan.iter().filter(|way| way.first == path).map(|way| way.share).sum::<f64>();
        assert!((on(0) - 0.95 * 1.875 / 2.5).abs() < 1e-6 && (on(0) + on(1) - 1.0).abs() < 1e-6, "{plan:?}");
    }

    #[test]
    fn paths_that_cost_nothing_and_ones_that_carry_nothing() {
        let free = pair(0.1).map(|link| Link { cost: 0.0, ..link });
        let planned = plan(&free, 1.2e6, 0.2, 0.999);
        let chance: f64 = planned.iter().map(|way| way.share * way.chance).sum();
        assert!(chance > 0.999 - 1e-9, "{planned:?}");
        let shut = pair(0.1).map(|link| Link { rate: 0.0, ..link });
        assert_eq!(plan(&shut, 1.2e6, 0.2, 0.999), []);
        assert_eq!(plan(&[], 1.2e6, 0.2, 0.999), []);
        // Too much by half: what goes is what the paths carry.
        let much: f64 = plan(&pair(0.0), 1.5 * 2.0 * 1.875e6, 0.2, 0.9).iter().map(|way| way.share).sum();
        assert!((much - 0.95 / 1.5).abs() < 1e-6, "{much}");
    }

    #[test]
    fn no_plan_is_better() {
        let mut state = 7_u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut reached, mut out_of_reach) = (0, 0);
        for n in 0..600 {
            // 2 to 8 paths, and now and then as many as there may be.
            let paths = if n % 50 == 0 { MAX_PATHS } else { 2 + (draw() * 7.0) as usize };
            let links: Vec<Link> = (0..paths)
                .map(|_| {
                    let delay = 0.005 + 0.1 * draw();
                    let loss = if draw() < 0.3 { 0.0 } else { 0.1 * draw() };
                    let (rate, cost) = (1e5 + 3e6 * draw(), 0.5 + 2.0 * draw());
                    Link { delay, answer: 2.0 * delay + 0.005, loss, rate, cost }
                })
                .collect();
            let total: f64 = links.iter().map(|link| link.rate).sum();
            let (demand, deadline, quality) =
                (total * (0.1 + 0.8 * draw()), 0.05 + 0.25 * draw(), 0.95 + 0.0499 * draw());
            let planned = plan(&links, demand, deadline, quality);
            let sum = |of: &dyn Fn(&Way) -> f64| planned.iter().map(|way| way.share * of(way)).sum::<f64>();
            for (k, link) in links.iter().enumerate() {
                let most = USABLE * link.rate / demand;
                assert!(sum(&|way| load(way, k, &links)) <= most + 1e-6, "{n}: path {k} is overloaded");
            }
            match solve(&links, demand, deadline, Some(quality)) {
                Some(cost) => {
                    reached += 1;
                    let chance = sum(&|way| way.chance);
                    assert!(
                        chance > quality - 1e-6 && (sum(&|_| 1.0) - 1.0).abs() < 1e-6,
                        "{n}: {chance} of {quality}"
                    );
                    assert!(sum(&|way| way.cost) < cost * (1.0 + 1e-6), "{n}: {} and {cost}", sum(&|way| way.cost));
                }
                None => {
                    out_of_reach += 1;
                    let most = solve(&links, demand, deadline, None).expect("nothing is asked for");
                    assert!(sum(&|way| way.chance) > most - 1e-6, "{n}: {} of {most}", sum(&|way| way.chance));
                }
            }
        }
        assert!(reached > 400 && out_of_reach > 50, "{reached} {out_of_reach}");
    }
}
