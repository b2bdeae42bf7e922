//! When to try again what did not work.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

/// How long after the first failure. A path that failed for a lost packet is back soon.
const FIRST: Duration = Duration::from_millis(500);
/// How long at most: a try is a handful of packets, and somebody may be waiting.
const LONGEST: Duration = Duration::from_secs(15);
/// The share of each pause that is left to chance, so that paths (or hosts) that failed together do not try together.
const JITTER: f64 = 0.25;

/// Pauses that double from one failure to the next.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How long to wait after another failure.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(1.0 - JITTER * chance())
    }

    /// Begins anew: things have changed.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A number from 0 to 1.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without chance, tries may coincide, and no more.
    let _ = SystemRandom::new().fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_bound_and_begin_anew() {
        let mut backoff = Backoff::default();
        let mut whole = FIRST;
        for _ in 0..40 {
            let pause = backoff.next();
            assert!(pause <= whole && pause >= whole.mul_f64(1.0 - JITTER - 1e-6), "{pause:?} of {whole:?}");
            whole = (2 * whole).min(LONGEST);
        }
        assert_eq!(whole, LONGEST);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
