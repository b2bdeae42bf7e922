//! How much is handed over.

use std::{collections::BTreeMap, time::Instant};

/// Seconds over which it is averaged: longer than the rhythm of most sources, with large blocks among the small, and short enough to follow
/// one that begins or ends.
const SPAN: f64 = 2.0;

/// What was handed over lately that has a deadline, by priority.
#[derive(Debug, Default)]
pub(super) struct Load(BTreeMap<u8, Offered>);

/// How long it is taken to have been observed at least: what comes at once is no rate.
const LEAST_SPAN: f64 = 0.5;

/// Bytes, each of which counts less with time, as of a moment.
#[derive(Debug, Clone, Copy)]
struct Offered {
    bytes: f64,
    at: Instant,
    /// When the first of them came.
    since: Instant,
}

impl Offered {
    fn bytes_at(&self, now: Instant) -> f64 {
        self.bytes * (-now.saturating_duration_since(self.at).as_secs_f64() / SPAN).exp()
    }

    fn rate(&self, now: Instant) -> f64 {
        let observed = now.saturating_duration_since(self.since).as_secs_f64().max(LEAST_SPAN);
        self.bytes_at(now) / (SPAN * (1.0 - (-observed / SPAN).exp()))
    }
}

impl Load {
    pub(super) fn add(&mut self, now: Instant, priority: u8, bytes: u64) {
        let offered = self.0.entry(priority).or_insert(Offered { bytes: 0.0, at: now, since: now });
        *offered = Offered { bytes: offered.bytes_at(now) + bytes as f64, at: now, ..*offered };
    }

    /// Bytes per second of blocks that are as important as this, or more.
    pub(super) fn rate(&self, now: Instant, priority: u8) -> f64 {
        self.0.range(..=priority).map(|(_, offered)| offered.rate(now)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_follows_what_is_offered_by_priority() {
        let mut load = Load::default();
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        for n in 0..1_000 {
            load.add(at(10 * n), 1, 1_000);
            load.add(at(10 * n), 5, 500);
        }
        assert_eq!(load.rate(at(10_000), 0), 0.0);
        let near = |rate: f64, aim: f64| (rate / aim - 1.0).abs() < 0.02;
        assert!(near(load.rate(at(10_000), 1), 100_000.0), "{}", load.rate(at(10_000), 1));
        assert!(near(load.rate(at(10_000), 255), 150_000.0));
        assert!(load.rate(at(20_000), 255) < 1_500.0);
    }

    #[test]
    fn it_is_right_from_the_first_second_on() {
        let mut load = Load::default();
        let start = Instant::now();
        for n in 0..100 {
            load.add(start + Duration::from_millis(10 * n), 1, 1_000);
        }
        let rate = load.rate(start + Duration::from_millis(1_000), 1);
        assert!((rate / 100_000.0 - 1.0).abs() < 0.05, "{rate}");
    }
}
