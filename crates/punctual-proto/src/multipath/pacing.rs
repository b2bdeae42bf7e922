//! How soon the next packet may leave on a path: a token bucket at the controller's rate.

use std::time::{Duration, Instant};

/// How much of a rate's traffic may leave at once; a driver's timers are no finer than this.
const BURST_TIME: Duration = Duration::from_millis(2);
/// The least that may leave at once, in packets, so that slow paths do not wake us for each one.
const MIN_BURST_PACKETS: f64 = 4.0;
/// What may leave at once after a pause, in packets: TCP's first window (RFC 6928), sent as one train so that its
/// answers tell how fast the path is.
const FIRST_BURST_PACKETS: f64 = 10.0;
/// How long such a pause is at least.
const PAUSE: Duration = Duration::from_millis(100);
/// The most that may leave at once, in packets: about what a core encrypts in a millisecond.
const MAX_BURST_PACKETS: f64 = 256.0;

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes that may leave now; below zero after a packet larger than what was left.
    tokens: f64,
    /// Bytes per second.
    rate: f64,
    burst: f64,
    first_burst: f64,
    last: Instant,
    last_sent: Instant,
}

impl Pacer {
    pub(crate) fn new(now: Instant, rate: f64, mtu: u16) -> Self {
        let mut pacer = Self { tokens: 0.0, rate, burst: 0.0, first_burst: 0.0, last: now, last_sent: now };
        pacer.set_rate(now, rate, mtu);
        pacer.tokens = pacer.first_burst;
        pacer
    }

    /// Follows the controller: `rate` in bytes per second.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: f64, mtu: u16) {
        self.refill(now);
        let mtu = f64::from(mtu);
        self.rate = rate.max(1.0);
        self.first_burst = FIRST_BURST_PACKETS * mtu;
        self.burst = (self.rate * BURST_TIME.as_secs_f64()).clamp(MIN_BURST_PACKETS * mtu, MAX_BURST_PACKETS * mtu);
    }

    /// When a packet may leave: `None` is now.
    pub(crate) fn ready_at(&self, now: Instant) -> Option<Instant> {
        if self.tokens >= 0.0 {
            return None;
        }
        let elapsed = now.saturating_duration_since(self.last).as_secs_f64();
        let missing = -(self.tokens + elapsed * self.rate);
        // A whole microsecond more than needed, so that rounding never wakes us in vain.
        (missing > 0.0).then(|| now + Duration::from_secs_f64(missing / self.rate) + Duration::from_micros(1))
    }

    /// A packet left.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.refill(now);
        self.tokens -= bytes as f64;
        self.last_sent = now;
    }

    fn refill(&mut self, now: Instant) {
        if now == self.last {
            // As all but the first of what leaves together.
            return;
        }
        let elapsed = now.saturating_duration_since(self.last).as_secs_f64();
        self.last = self.last.max(now);
        let paused = now.saturating_duration_since(self.last_sent) >= PAUSE;
        let full = if paused { self.burst.max(self.first_burst) } else { self.burst };
        if self.tokens < full {
            self.tokens = (self.tokens + elapsed * self.rate).min(full);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_run_keeps_the_rate_and_the_short_run_the_burst() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, 1_000_000.0, 1_200);
        let (mut now, mut sent, mut first_burst) = (start, 0u64, None);
        while now < start + Duration::from_secs(1) {
            match pacer.ready_at(now) {
                None => {
                    pacer.on_sent(now, 1_200);
                    sent += 1_200;
                }
                Some(at) => {
                    first_burst.get_or_insert(sent);
                    assert!(at > now);
                    now = at;
                }
            }
        }
        assert!((995_000..=1_000_000 + 11 * 1_200).contains(&sent), "{sent}");
        assert_eq!(first_burst, Some(10 * 1_200 + 1_200), "a packet may leave while a token is left");
    }
}
