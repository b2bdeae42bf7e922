//! What share of the data is sent first on which path, and again on which, at the least cost: the model of Chuat et al. (2017) that DMTP's
//! optimizer solves (V), and a heuristic for it.
//!
//! ```text
//! x_ij    the share that is sent first on i and, if lost, once more on j, or not again
//! P_ij  = [d_i ≤ δ](1 − τ_i) + [a_i + d_j ≤ δ] τ_i (1 − τ_j)      d: one way, τ: loss, δ: deadline, a_i: until a loss on i is known
//! load  = λ Σ x_ij ([i = k] + τ_i [j = k]) ≤ 0.95 b_k             for each path k, λ: what is to be sent, b: rate
//! cost  = λ Σ x_ij (c_i + τ_i c_j)
//! least cost with Σ x = 1 and Σ x P ≥ q; where that cannot be had, as much Σ x P as there is
//! ```

/// How much of a path's rate is planned with.
const USABLE: f64 = 0.95;
/// Exchanges after which a plan is good enough.
const MOST_EXCHANGES: usize = 64;
const EPSILON: f64 = 1e-9;

/// A path, as far as plans go. Seconds, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Link {
    pub(super) delay: f64,
    /// From sending until a loss is known.
    pub(super) answer: f64,
    pub(super) loss: f64,
    pub(super) rate: f64,
    pub(super) cost: f64,
}

/// A way to send: first on one path, and what is lost there on another, or not again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Way {
    pub(super) first: usize,
    pub(super) again: Option<usize>,
    /// Of all that is sent.
    pub(super) share: f64,
    /// To be in time.
    pub(super) chance: f64,
    cost: f64,
}

impl Way {
    /// How much of path `k` a byte takes that goes this way.
    fn load(&self, k: usize, links: &[Link]) -> f64 {
        let first = f64::from(u8::from(self.first == k));
        first + if self.again == Some(k) { links[self.first].loss } else { 0.0 }
    }
}

/// All ways there are, without shares.
fn ways(links: &[Link], deadline: f64) -> Vec<Way> {
    let mut ways = Vec::with_capacity(links.len() * (links.len() + 1));
    for (i, first) in links.iter().enumerate() {
        let once = if first.delay <= deadline { 1.0 - first.loss } else { 0.0 };
        ways.push(Way { first: i, again: None, share: 0.0, chance: once, cost: first.cost });
        for (j, again) in links.iter().enumerate() {
            let in_time = first.answer + again.delay <= deadline;
            let chance = once + if in_time { first.loss * (1.0 - again.loss) } else { 0.0 };
            let cost = first.cost + first.loss * again.cost;
            ways.push(Way { first: i, again: Some(j), share: 0.0, chance, cost });
        }
    }
    ways
}

/// The ways to use and their shares; together less than 1 if the paths do not carry all. Greedy, then mended by exchanges of two ways: not always the least cost.
pub(super) fn plan(links: &[Link], demand: f64, deadline: f64, quality: f64) -> Vec<Way> {
    let mut ways = ways(links, deadline);
    // What of each path is left, as a share of all that is sent.
    let mut room: Vec<f64> = links.iter().map(|link| USABLE * link.rate / demand.max(1.0)).collect();
    let mut left = 1.0;
    // First those that are good enough by themselves, the cheapest first; then the best of the others.
    ways.sort_by(|a, b| {
        let good = |way: &Way| way.chance >= quality;
        let by_cost = a.cost.total_cmp(&b.cost).then(b.chance.total_cmp(&a.chance));
        let by_chance = b.chance.total_cmp(&a.chance).then(a.cost.total_cmp(&b.cost));
        good(b).cmp(&good(a)).then(if good(a) { by_cost } else { by_chance })
    });
    for way in &mut ways {
        let most = (0..links.len()).map(|k| (way.load(k, links), room[k])).filter(|(load, _)| *load > 0.0);
        way.share = most.map(|(load, room)| room / load).fold(left, f64::min).max(0.0);
        left -= way.share;
        (0..links.len()).for_each(|k| room[k] -= way.share * way.load(k, links));
    }
    for _ in 0..MOST_EXCHANGES {
        if !exchange(&mut ways, &mut room, links, quality) {
            break;
        }
    }
    ways.retain(|way| way.share > EPSILON);
    ways
}

/// Takes the best exchange of one way for another: while too little is in time the one that costs least for what it brings, then the one that saves most for
/// what it costs in time. `false` if there is none.
fn exchange(ways: &mut [Way], room: &mut [f64], links: &[Link], quality: f64) -> bool {
    let all: f64 = ways.iter().map(|way| way.share).sum();
    let spare = ways.iter().map(|way| way.share * way.chance).sum::<f64>() - quality * all;
    let mut best: Option<(f64, usize, usize, f64)> = None;
    for (from, a) in ways.iter().enumerate().filter(|(_, way)| way.share > EPSILON) {
        for (to, b) in ways.iter().enumerate() {
            let (gain, price) = (b.chance - a.chance, b.cost - a.cost);
            let worth = match spare < -EPSILON {
                true if gain > EPSILON => -price / gain,
                false if price < -EPSILON && gain >= -EPSILON => f64::INFINITY,
                false if price < -EPSILON => price / gain,
                _ => continue,
            };
            let mut most = a.share;
            for (k, room) in room.iter().enumerate() {
                let more = b.load(k, links) - a.load(k, links);
                if more > EPSILON {
                    most = most.min(room / more);
                }
            }
            if spare < -EPSILON || gain < -EPSILON {
                most = most.min((spare / gain).abs());
            }
            if most > EPSILON && best.is_none_or(|(other, ..)| worth > other) {
                best = Some((worth, from, to, most));
            }
        }
    }
    let Some((_, from, to, share)) = best else { return false };
    for (k, room) in room.iter_mut().enumerate() {
        *room -= share * (ways[to].load(k, links) - ways[from].load(k, links));
    }
    ways[from].share -= share;
    ways[to].share += share;
    true
}

#[cfg(test)]
mod tests {
    use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOutcome};

    use super::*;

    /// The program itself, solved: cost if the quality can be had, else the most of it.
    fn solve(links: &[Link], demand: f64, deadline: f64, quality: Option<f64>) -> Option<f64> {
        let direction =
            if quality.is_some() { OptimizationDirection::Minimize } else { OptimizationDirection::Maximize };
        let mut problem = Problem::new(direction);
        let ways = ways(links, deadline);
        let worth = |way: &Way| if quality.is_some() { way.cost } else { way.chance };
        let shares: Vec<_> = ways.iter().map(|way| problem.add_var(worth(way), (0.0, 1.0))).collect();
        let with = |of: &dyn Fn(&Way) -> f64| -> Vec<_> {
            shares.iter().zip(&ways).map(|(share, way)| (*share, of(way))).collect()
        };
        let whole = if quality.is_some() { ComparisonOp::Eq } else { ComparisonOp::Le };
        problem.add_constraint(with(&|_| 1.0), whole, 1.0);
        for (k, link) in links.iter().enumerate() {
            problem.add_constraint(with(&|way| way.load(k, links)), ComparisonOp::Le, USABLE * link.rate / demand);
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
    fn the_heuristic_is_close_to_the_program() {
        use std::time::Instant;
        let mut state = 7_u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut gaps, mut missed) = (Vec::new(), 0);
        let (mut program, mut heuristic) = (0.0, 0.0);
        for _ in 0..600 {
            let links: Vec<Link> = (0..2 + (draw() * 7.0) as usize)
                .map(|_| {
                    let delay = 0.005 + 0.1 * draw();
                    let loss = if draw() < 0.3 { 0.0 } else { 0.1 * draw() };
                    Link {
                        delay,
                        answer: 2.0 * delay + 0.005,
                        loss,
                        rate: 1e5 + 3e6 * draw(),
                        cost: 0.5 + 2.0 * draw(),
                    }
                })
                .collect();
            let total: f64 = links.iter().map(|link| link.rate).sum();
            let (demand, deadline, quality) =
                (total * (0.1 + 0.8 * draw()), 0.05 + 0.25 * draw(), 0.95 + 0.0499 * draw());
            let began = Instant::now();
            let planned = plan(&links, demand, deadline, quality);
            heuristic += began.elapsed().as_secs_f64();
            let began = Instant::now();
            let best = solve(&links, demand, deadline, Some(quality));
            program += began.elapsed().as_secs_f64();
            let sum = |of: &dyn Fn(&Way) -> f64| planned.iter().map(|way| way.share * of(way)).sum::<f64>();
            for (k, link) in links.iter().enumerate() {
                assert!(sum(&|way| way.load(k, &links)) <= USABLE * link.rate / demand + 1e-6, "no path is overloaded");
            }
            let reached = sum(&|way| way.chance) >= quality - 1e-6 && sum(&|_| 1.0) > 1.0 - 1e-6;
            match best {
                Some(cost) if reached => gaps.push(sum(&|way| way.cost) / cost - 1.0),
                Some(_) => missed += 1,
                None => {
                    let most = solve(&links, demand, deadline, None).expect("nothing is asked for");
                    // Where nothing can be in time, nothing is missed.
                    gaps.push(if most > 1e-6 { 1.0 - sum(&|way| way.chance) / most } else { 0.0 });
                }
            }
        }
        gaps.sort_by(f64::total_cmp);
        let (median, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!(
            "gap: median {median:.4}, 95th percentile {:.4}, worst {worst:.4}; quality missed {missed} of 600 times; program {:.0} us, heuristic {:.0} us",
            gaps[gaps.len() * 95 / 100],
            program / 600.0 * 1e6,
            heuristic / 600.0 * 1e6
        );
        assert!(median <= 0.02, "{median}");
    }
}
