//! When to try again what did not work.

use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};

/// How long after the first failure. A path that failed for a lost packet is back soon.
const FIRST: Duration = Duration::from_millis(500);
/// How long at most: a try is a handful of packets, and somebody may be waiting.
const LONGEST: Duration = Duration::from_secs(15);
/// For how long everything must have failed to be taken for hopeless.
const HOPELESS: Duration = Duration::from_secs(3_600);
/// How long at most from then on: each try uses up the id of a path, of which a session has 16,384 in all its life.
const LONGEST_HOPELESS: Duration = Duration::from_secs(60);
/// The share of each pause that is left to chance, so that paths (or hosts) that failed together do not try together.
const JITTER: f64 = 0.25;

/// Pauses that double from one failure to the next.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    /// When the first of them was.
    since: Option<Instant>,
}

impl Backoff {
    /// How long to wait after another failure.
    pub(crate) fn next(&mut self, now: Instant) -> Duration {
        let since = *self.since.get_or_insert(now);
        let hopeless = now.saturating_duration_since(since) >= HOPELESS;
        let longest = if hopeless { LONGEST_HOPELESS } else { LONGEST };
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(1.0 - JITTER * chance())
    }

    /// Begins anew: things have changed.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
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
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let mut whole = FIRST;
        for _ in 0..40 {
            let pause = backoff.next(now);
            assert!(is_of(pause, whole), "{pause:?} of {whole:?}");
            whole = (2 * whole).min(LONGEST);
        }
        assert_eq!(whole, LONGEST);
        backoff.reset();
        assert!(backoff.next(now) <= FIRST);
    }

    fn is_of(pause: Duration, whole: Duration) -> bool {
        pause <= whole && pause >= whole.mul_f64(1.0 - JITTER - 1e-6)
    }

    #[test]
    fn what_is_hopeless_is_tried_seldom_until_things_change() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        let (mut now, mut tries) = (start, 0);
        while now < start + HOPELESS {
            now += backoff.next(now);
            tries += 1;
        }
        assert!((240..340).contains(&tries), "{tries}");
        // Ten days, and nobody has run out of ids.
        while now < start + Duration::from_secs(10 * 86_400) {
            let pause = backoff.next(now);
            assert!(is_of(pause, LONGEST_HOPELESS), "{pause:?}");
            (now, tries) = (now + pause + Duration::from_secs(10), tries + 1);
        }
        assert!(tries < 16_384, "{tries}");
        backoff.reset();
        assert!(backoff.next(now) <= FIRST);
        assert!(backoff.next(now) <= 2 * FIRST);
    }
}
