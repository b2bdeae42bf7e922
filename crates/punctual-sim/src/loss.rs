//! Which packets a link loses at random.

use rand::RngExt;

use crate::rng::Random;

/// How a link loses packets, its queue and its death aside.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// It does not.
    #[default]
    None,
    /// Each packet with this probability, whatever became of the others.
    Bernoulli(f64),
    /// In bursts.
    GilbertElliott(GilbertElliott),
}

impl Loss {
    /// In bursts: this share of packets, and this many on end, both on average.
    pub fn bursts(mean_loss: f64, mean_burst: f64) -> Self {
        Self::GilbertElliott(GilbertElliott::bursts(mean_loss, mean_burst))
    }

    /// The share of packets lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Bernoulli(p) => *p,
            Self::GilbertElliott(model) => model.mean_loss(),
        }
    }
}

/// A channel that is at times good and at times bad, and changes by chance before each packet (Gilbert 1960, Elliott
/// 1963).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GilbertElliott {
    /// Probability of going from good to bad.
    pub to_bad: f64,
    /// Probability of going from bad to good.
    pub to_good: f64,
    /// Probability of loss while good.
    pub loss_in_good: f64,
    /// Probability of loss while bad.
    pub loss_in_bad: f64,
}

impl GilbertElliott {
    /// A channel that loses nothing while good and everything while bad, with this share of packets lost and this mean
    /// number of losses on end.
    ///
    /// Bursts last a packet at least, and with that share they cannot be shorter than `mean_loss / (1 − mean_loss)`:
    /// shorter ones are raised to that.
    pub fn bursts(mean_loss: f64, mean_burst: f64) -> Self {
        let mean_loss = mean_loss.clamp(0.0, 1.0);
        if mean_loss >= 1.0 {
            return Self { to_bad: 1.0, to_good: 0.0, loss_in_good: 1.0, loss_in_bad: 1.0 };
        }
        let odds = mean_loss / (1.0 - mean_loss);
        let to_good = 1.0 / mean_burst.max(1.0).max(odds);
        Self { to_bad: to_good * odds, to_good, loss_in_good: 0.0, loss_in_bad: 1.0 }
    }

    /// The share of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        if self.to_bad + self.to_good == 0.0 {
            return self.loss_in_good;
        }
        let bad = self.to_bad / (self.to_bad + self.to_good);
        bad * self.loss_in_bad + (1.0 - bad) * self.loss_in_good
    }

    /// How many packets a bad time lasts on average.
    pub fn mean_burst(&self) -> f64 {
        1.0 / self.to_good
    }
}

/// What a loss model remembers from packet to packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LossState {
    bad: bool,
}

impl LossState {
    /// Whether the next packet is lost.
    pub(crate) fn draw(&mut self, loss: &Loss, random: &mut Random) -> bool {
        match loss {
            Loss::None => false,
            Loss::Bernoulli(p) => chance(*p, random),
            Loss::GilbertElliott(model) => {
                let change = if self.bad { model.to_good } else { model.to_bad };
                self.bad ^= chance(change, random);
                chance(if self.bad { model.loss_in_bad } else { model.loss_in_good }, random)
            }
        }
    }
}

/// True with probability `p`; draws only if there is something to decide.
pub(crate) fn chance(p: f64, random: &mut Random) -> bool {
    p > 0.0 && (p >= 1.0 || random.random::<f64>() < p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};

    /// Share lost and mean length of the runs of losses among `n` packets.
    fn observe(loss: Loss, n: usize) -> (f64, f64) {
        let (mut state, mut random) = (LossState::default(), generator(7, Purpose::Link, 0));
        let (mut lost, mut bursts, mut before) = (0.0, 0.0, false);
        for _ in 0..n {
            let now = state.draw(&loss, &mut random);
            lost += f64::from(u8::from(now));
            bursts += f64::from(u8::from(now && !before));
            before = now;
        }
        (lost / n as f64, lost / bursts)
    }

    #[test]
    fn bernoulli() {
        let (share, burst) = observe(Loss::Bernoulli(0.1), 200_000);
        assert!((share - 0.1).abs() < 0.003, "{share}");
        assert!((burst - 1.0 / 0.9).abs() < 0.02, "{burst}");
        assert_eq!(observe(Loss::Bernoulli(1.0), 100).0, 1.0);
        assert_eq!(observe(Loss::None, 100).0, 0.0);
    }

    #[test]
    fn bursts_have_the_wanted_mean_loss_and_length() {
        for (mean_loss, mean_burst) in [(0.01, 8.0), (0.1, 8.0), (0.2, 2.0), (0.5, 4.0)] {
            let loss = Loss::bursts(mean_loss, mean_burst);
            assert!((loss.mean() - mean_loss).abs() < 1e-12);
            // 25,000 bursts: the standard error of their mean length is 0.6 %.
            let (share, burst) = observe(loss, (25_000.0 * mean_burst / mean_loss) as usize);
            assert!((share / mean_loss - 1.0).abs() < 0.03, "{mean_loss} {mean_burst}: {share}");
            assert!((burst / mean_burst - 1.0).abs() < 0.03, "{mean_loss} {mean_burst}: {burst}");
        }
    }

    #[test]
    fn impossible_bursts_keep_the_mean_loss() {
        let model = GilbertElliott::bursts(0.8, 1.0);
        assert!((model.mean_loss() - 0.8).abs() < 1e-12);
        assert!((model.mean_burst() - 4.0).abs() < 1e-12);
        assert_eq!(GilbertElliott::bursts(1.0, 3.0).mean_loss(), 1.0);
        assert_eq!(GilbertElliott::bursts(0.0, 3.0).mean_loss(), 0.0);
    }

    #[test]
    fn both_states_can_lose_some() {
        let model = GilbertElliott { to_bad: 0.02, to_good: 0.2, loss_in_good: 0.01, loss_in_bad: 0.5 };
        let (share, _) = observe(Loss::GilbertElliott(model), 500_000);
        assert!((share - model.mean_loss()).abs() < 0.003, "{share} {}", model.mean_loss());
    }
}
