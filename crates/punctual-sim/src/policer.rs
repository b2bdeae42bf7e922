//! What a policer lets through.

use std::time::Duration;

/// A token bucket without a queue: packets beyond its rate and burst are dropped, as operators do to hold a customer to a
/// rate, at a link that is itself much faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policer {
    /// Bits per second that it lets through, headers included.
    pub rate: u64,
    /// Bytes that it lets through at once after a pause.
    pub burst: u64,
}

/// How full the bucket is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bucket {
    /// Bits · 10⁹ that are spent; so that nothing is lost to rounding, and a new bucket is full.
    spent: u128,
    at: Duration,
}

impl Bucket {
    /// Whether a packet of so many bytes may pass at `now`, which must not go back.
    pub(crate) fn passes(&mut self, policer: &Policer, now: Duration, bytes: u32) -> bool {
        let regained = u128::from(policer.rate) * now.saturating_sub(self.at).as_nanos();
        self.spent = self.spent.saturating_sub(regained);
        self.at = now;
        let spent = self.spent + u128::from(bytes) * 8_000_000_000;
        let fits = spent <= u128::from(policer.burst) * 8_000_000_000;
        if fits {
            self.spent = spent;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate() {
        let policer = Policer { rate: 8_000_000, burst: 10_000 }; // A kilobyte a millisecond.
        let mut bucket = Bucket::default();
        let mut passed = |from: u64, packets: u64| {
            // Twice the rate.
            let at = |packet| Duration::from_micros(from * 1000 + packet * 500);
            (0..packets).filter(|packet| bucket.passes(&policer, at(*packet), 1000)).count()
        };
        assert_eq!(passed(0, 18), 18, "nine milliseconds' worth and a burst are in it");
        assert_eq!(passed(9, 200), 100);
        assert_eq!(passed(10_000, 10), 10, "full again after a pause");
    }

    #[test]
    fn what_is_larger_than_the_burst_never_passes() {
        let mut bucket = Bucket::default();
        assert!(!bucket.passes(&Policer { rate: 1_000_000, burst: 999 }, Duration::from_secs(9), 1000));
    }
}
