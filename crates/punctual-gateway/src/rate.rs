//! How much a client may have carried.

use std::time::{Duration, Instant};

/// Bytes per second, with what was saved up in the last second.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Bytes per second.
    rate: f64,
    level: f64,
    filled: Instant,
}

impl Bucket {
    /// For how long what is not used is saved up.
    const DEPTH: Duration = Duration::from_secs(1);

    /// A full bucket; `rate` in bytes per second.
    pub(crate) fn new(rate: u64, now: Instant) -> Self {
        let rate = rate as f64;
        Self { rate, level: rate * Self::DEPTH.as_secs_f64(), filled: now }
    }

    /// Takes so many bytes out, if there is anything left: what comes later waits for the debt.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) -> bool {
        let earned = self.rate * now.saturating_duration_since(self.filled).as_secs_f64();
        self.level = (self.level + earned).min(self.rate * Self::DEPTH.as_secs_f64());
        self.filled = self.filled.max(now);
        let left = self.level > 0.0;
        if left {
            self.level -= bytes as f64;
        }
        left
    }

    /// The same, and if there is nothing left, how long until there is; zero if it was taken.
    pub(crate) fn take_or_wait(&mut self, bytes: usize, now: Instant) -> Duration {
        if self.take(bytes, now) { Duration::ZERO } else { Duration::from_secs_f64((1.0 - self.level) / self.rate) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_long_run_the_rate_is_kept_and_a_burst_is_a_seconds_worth() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10_000, start);
        let at_once = (0..100).filter(|_| bucket.take(1_000, start)).count();
        assert_eq!(at_once, 10);
        let (mut now, mut passed) = (start, 0);
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            passed += usize::from(bucket.take(1_000, now));
        }
        assert!((99..=101).contains(&passed), "{passed} in ten seconds");
    }

    #[test]
    fn a_debt_is_waited_for() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1_000, start);
        assert!(bucket.take(3_000, start));
        let wait = bucket.take_or_wait(1, start);
        assert!((Duration::from_secs(2)..Duration::from_millis(2_010)).contains(&wait), "{wait:?}");
        assert!(bucket.take(1, start + wait));
    }
}
