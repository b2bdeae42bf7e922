//! The chance that a group loses more than it can bear.

use super::{Losses, MAX_REPAIRS, MAX_SOURCES};

/// Losses among some packets: the probability of each number of them, beliefs averaged over.
#[derive(Debug, Clone)]
pub(super) struct Distribution {
    chains: Vec<Chain>,
}

/// A Gilbert channel with certain numbers, and the losses among the packets it has seen.
#[derive(Debug, Clone)]
struct Chain {
    weight: f64,
    begin: f64,
    end: f64,
    /// By number of losses: the probability of it and that the last packet arrived, or was lost.
    arrived: Vec<f64>,
    lost: Vec<f64>,
}

impl Chain {
    fn new(begin: f64, end: f64, weight: f64) -> Self {
        let bad = begin / (begin + end);
        let room = MAX_SOURCES + MAX_REPAIRS + 1;
        let (mut arrived, mut lost) = (Vec::with_capacity(room), Vec::with_capacity(room));
        arrived.push(1.0 - bad);
        lost.push(bad);
        Self { weight, begin, end, arrived, lost }
    }

    fn step(&mut self) {
        let (mut carried, len) = (0.0, self.arrived.len());
        for k in 0..len {
            let (good, bad) = (self.arrived[k], self.lost[k]);
            self.arrived[k] = good * (1.0 - self.begin) + bad * self.end;
            let loses = good * self.begin + bad * (1.0 - self.end);
            self.lost[k] = carried;
            carried = loses;
        }
        self.arrived.push(0.0);
        self.lost.push(carried);
    }

    fn probability(&self, k: usize) -> f64 {
        self.arrived.get(k).map_or(0.0, |good| good + self.lost[k])
    }
}

impl Distribution {
    /// Before any packet: the channel may be bad already.
    pub(super) fn new(losses: &Losses) -> Self {
        let (begin, end) = losses.beliefs();
        let chains = begin.points().into_iter().flat_map(|(begin, one)| {
            end.points().into_iter().map(move |(end, other)| Chain::new(begin, end, one * other))
        });
        Self { chains: chains.collect() }
    }

    /// One more packet.
    pub(super) fn step(&mut self) {
        self.chains.iter_mut().for_each(Chain::step);
    }

    /// So many more.
    pub(super) fn after(mut self, packets: usize) -> Self {
        (0..packets).for_each(|_| self.step());
        self
    }

    /// The chance of exactly so many losses.
    pub(super) fn probability(&self, losses: usize) -> f64 {
        self.chains.iter().map(|chain| chain.weight * chain.probability(losses)).sum()
    }

    /// The chance of more.
    pub(super) fn more_than(&self, losses: usize) -> f64 {
        (1.0 - (0..=losses).map(|k| self.probability(k)).sum::<f64>()).max(0.0)
    }
}

/// The probabilities of each number of losses on several paths together.
pub(super) fn together(paths: &[Distribution], most: usize) -> Vec<f64> {
    let mut sum = vec![0.0; most + 1];
    sum[0] = 1.0;
    for path in paths {
        let one: Vec<f64> = (0..=most).map(|k| path.probability(k)).collect();
        for total in (0..=most).rev() {
            sum[total] = (0..=total).map(|k| one[k] * sum[total - k]).sum();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rate: u32, burst: u32) -> Losses {
        let mut losses = Losses::default();
        (0..20_000).for_each(|i: u32| losses.note(i % (burst * 100 / rate) < burst));
        losses
    }

    #[test]
    fn probabilities_add_up() {
        let distribution = Distribution::new(&seen(10, 3)).after(40);
        let all: f64 = (0..=40).map(|k| distribution.probability(k)).sum();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        let mean: f64 = (0..=40).map(|k| k as f64 * distribution.probability(k)).sum::<f64>() / 40.0;
        assert!((0.08..0.12).contains(&mean), "{mean}");
        assert!(distribution.more_than(40) < 1e-9);
    }

    #[test]
    fn single_losses_are_binomial_and_bursts_are_worse() {
        let (single, bursts) = (Distribution::new(&seen(10, 1)).after(20), Distribution::new(&seen(10, 8)).after(20));
        // Not quite binomial: a loss here is never followed by another.
        assert!(single.more_than(6) < 0.003, "{}", single.more_than(6));
        assert!(bursts.more_than(6) > 0.08, "{}", bursts.more_than(6));
    }

    #[test]
    fn paths_together_are_their_sum() {
        let one = Distribution::new(&seen(5, 1));
        let split = together(&[one.clone().after(10), one.clone().after(10)], 20);
        let all: f64 = split.iter().sum();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        assert!((split[0] - one.clone().after(10).probability(0).powi(2)).abs() < 1e-9);
    }
}
