//! The offset and the drift of a clock: a Kalman filter of two states.

use super::{Micros, clamp, float};

/// Standard deviation of the skew before anything is known, µs/µs. Crystals are specified to ±100 ppm at worst, two
/// of them to ±200: that is two deviations.
const SKEW_SD: f64 = 100e-6;
/// The largest skew believed, µs/µs: NTP's limit (RFC 5905, `MAXFREQ`), which is 500 ppm.
const MAX_SKEW: f64 = 500e-6;
/// Random walk of the skew, variance per µs: 0.05 ppm in a second, 0.4 ppm in a minute, as a crystal does when a host warms.
const SKEW_WALK: f64 = 0.05e-6 * 0.05e-6 / 1e6;
/// The longest silence whose uncertainty is reckoned, µs: an hour.
const MAX_GAP: f64 = 3.6e9;
/// The largest believed deviation of the offset, µs: past it nothing is known anyway.
const MAX_SD: f64 = 1e12;

/// θ, its skew and their covariance at one instant of our clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filter {
    at: Micros,
    /// µs.
    offset: f64,
    /// µs/µs.
    skew: f64,
    /// Variances of offset and skew, and their covariance.
    var_offset: f64,
    var_skew: f64,
    covariance: f64,
}

impl Filter {
    pub(super) fn new() -> Self {
        Self { at: 0, offset: 0.0, skew: 0.0, var_offset: 0.0, var_skew: SKEW_SD * SKEW_SD, covariance: 0.0 }
    }

    /// Starts afresh from the present offset, known to `deviation`.
    pub(super) fn restart(&mut self, now: Micros, deviation: f64) {
        let offset = self.offset_at(now);
        *self = Self { at: now, offset, skew: self.skew, var_offset: deviation * deviation, ..Self::new() };
    }

    pub(super) fn skew(&self) -> f64 {
        self.skew
    }

    pub(super) fn deviation(&self) -> f64 {
        self.var_offset.sqrt()
    }

    /// The offset at `ours`.
    pub(super) fn offset_at(&self, ours: Micros) -> f64 {
        self.offset + self.skew * float(i128::from(ours) - i128::from(self.at))
    }

    /// Our time at which ours plus the offset is `peer`.
    pub(super) fn invert(&self, peer: i128) -> Micros {
        let since = (float(peer - i128::from(self.at)) - self.offset) / (1.0 + self.skew);
        clamp(i128::from(self.at).saturating_add(since.round() as i128))
    }

    /// Carries the state to `now`; time that runs backwards changes nothing.
    pub(super) fn predict(&mut self, now: Micros) {
        if now <= self.at {
            return;
        }
        self.offset = self.offset_at(now);
        let gap = ((now - self.at) as f64).min(MAX_GAP);
        self.at = now;
        self.var_offset += gap * (2.0 * self.covariance + gap * self.var_skew) + SKEW_WALK * gap.powi(3) / 3.0;
        self.covariance += gap * self.var_skew + SKEW_WALK * gap * gap / 2.0;
        self.var_skew += SKEW_WALK * gap;
        self.bound();
    }

    /// The offset was measured to be `innovation` more than predicted. Returns by how much it changed.
    pub(super) fn update(&mut self, innovation: f64, deviation: f64) -> f64 {
        let total = self.var_offset + deviation * deviation;
        let gain = self.var_offset / total;
        let skew_gain = self.covariance / total;
        self.offset += gain * innovation;
        self.skew = (self.skew + skew_gain * innovation).clamp(-MAX_SKEW, MAX_SKEW);
        self.var_skew -= skew_gain * self.covariance;
        self.covariance *= 1.0 - gain;
        self.var_offset *= 1.0 - gain;
        self.bound();
        gain * innovation
    }

    /// The offset was wrong by `by`.
    pub(super) fn shift(&mut self, by: f64) {
        self.offset += by;
    }

    /// The offset may be wrong by another `deviation`.
    pub(super) fn widen(&mut self, deviation: f64) {
        self.var_offset += deviation * deviation;
        self.bound();
    }

    /// Keeps the covariance a covariance, and finite.
    fn bound(&mut self) {
        self.var_offset = self.var_offset.clamp(1e-3, MAX_SD * MAX_SD);
        self.var_skew = self.var_skew.clamp(1e-20, SKEW_SD * SKEW_SD);
        let limit = (self.var_offset * self.var_skew).sqrt();
        self.covariance = self.covariance.clamp(-limit, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_offset_and_skew_of_a_straight_line() {
        let mut filter = Filter::new();
        filter.restart(0, 10_000.0);
        for step in 1..=240 {
            let now = step * 500_000;
            filter.predict(now);
            let truth = 5_000.0 - 150e-6 * now as f64;
            filter.update(truth - filter.offset_at(now), 150.0);
        }
        assert!((filter.skew() + 150e-6).abs() < 0.5e-6, "{filter:?}");
        assert!((filter.offset_at(120_000_000) - (5_000.0 - 18_000.0)).abs() < 20.0, "{filter:?}");
    }

    #[test]
    fn inverts_what_it_converts() {
        let filter = Filter { at: 1_000_000, offset: 1234.0, skew: 2e-4, ..Filter::new() };
        for ours in [0, 999, 1_000_000, 5_000_000_000] {
            let peer = i128::from(ours) + filter.offset_at(ours).round() as i128;
            assert!(filter.invert(peer).abs_diff(ours) <= 1);
        }
    }
}
