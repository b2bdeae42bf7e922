//! How soon the next packet may leave on a path: a token bucket, counted in time.

use std::time::{Duration, Instant};

use crate::rate::Rate;

/// What may leave at once, as time at the pace: about what drivers' timers are late by. Packets that leave together also tell, by how they
/// arrive, how fast the path is.
pub(super) const QUANTUM: Duration = Duration::from_millis(3);
/// At least so many packets may leave at once after a pause, so that their distance tells something.
const PAIR: u64 = 2;
/// The most that may leave at once, packets: about what a core encrypts in a millisecond.
const MOST: u64 = 256;

/// Nothing is held back for longer than this, seconds, however slow the path.
const LONGEST: f64 = 10.0;

/// How many bytes may leave at once at a pace, unless it is said otherwise.
pub(crate) fn usual_depth(pace: Rate, mtu: u16) -> u64 {
    let mtu = u64::from(mtu);
    (pace.bytes_in(QUANTUM) as u64).clamp(PAIR * mtu, MOST * mtu)
}

/// A token bucket.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    /// All that has left was due by then.
    due: Instant,
    /// Bytes that may leave at once when the bucket is full.
    depth: u64,
    pace: Rate,
}

impl Pacer {
    /// A bucket that holds `depth` bytes to begin with.
    pub(crate) fn new(now: Instant, depth: u64) -> Self {
        let full = Duration::from_secs_f64(LONGEST);
        Self { due: now.checked_sub(full).unwrap_or(now), depth, pace: Rate::LEAST }
    }

    /// The same, but empty.
    pub(crate) fn empty(now: Instant) -> Self {
        Self { due: now, ..Self::new(now, 0) }
    }

    pub(crate) fn pace(&self) -> Rate {
        self.pace
    }

    /// Bytes that may leave at once now.
    pub(crate) fn tokens(&self, now: Instant) -> f64 {
        self.pace.bytes_in(now.saturating_duration_since(self.due)).min(self.depth as f64)
    }

    /// Follows the controller. `depth` replaces the usual depth of the bucket.
    pub(crate) fn set(&mut self, now: Instant, pace: Rate, mtu: u16, depth: Option<u64>) {
        let pace = pace.max(Rate::LEAST);
        if let Some(owed) = self.due.checked_duration_since(now) {
            // What left too early is bytes, and takes as long as they take now.
            self.due = now + owed.mul_f64((self.pace / pace).min(LONGEST / owed.as_secs_f64().max(1e-9)));
        }
        self.pace = pace;
        self.depth = depth.unwrap_or(usual_depth(pace, mtu));
    }

    /// When a packet may leave: `None` is now.
    pub(crate) fn ready_at(&self, now: Instant) -> Option<Instant> {
        // A microsecond more than needed, so that rounding never wakes us in vain.
        (self.due > now).then(|| self.due + Duration::from_micros(1))
    }

    /// A packet left.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64) {
        let depth = self.pace.time_for(self.depth.saturating_sub(bytes));
        let longest = now + Duration::from_secs_f64(LONGEST);
        self.due = (self.due.max(now.checked_sub(depth).unwrap_or(now)) + self.pace.time_for(bytes)).min(longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_run_keeps_the_pace_and_the_short_run_the_depth() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, 12_000);
        pacer.set(start, Rate::from_bytes_per_second(1e6), 1_200, None);
        let (mut now, mut sent, mut first) = (start, 0u64, None);
        while now < start + Duration::from_secs(1) {
            match pacer.ready_at(now) {
                None => {
                    pacer.on_sent(now, 1_200);
                    sent += 1_200;
                }
                Some(at) => {
                    first.get_or_insert(sent);
                    assert!(at > now);
                    now = at;
                }
            }
        }
        assert!((990_000..=1_000_000 + 4 * 1_200).contains(&sent), "{sent}");
        assert_eq!(first, Some(2 * 1_200), "no more than fits into 3 ms");
    }

    #[test]
    fn a_slow_path_gets_two_packets_at_once_and_no_more() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, 0);
        pacer.set(start, Rate::from_bytes_per_second(60e3), 1_200, None);
        let later = start + Duration::from_secs(9);
        let burst = std::iter::from_fn(|| pacer.ready_at(later).is_none().then(|| pacer.on_sent(later, 1_200)));
        assert_eq!(burst.count(), 2);
        assert_eq!(pacer.ready_at(later).map(|at| (at - later).as_millis()), Some(20));
    }
}
