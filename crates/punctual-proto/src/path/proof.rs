//! What QUIC's acknowledgements prove of a path, whatever its receiver reports.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use crate::least::Least;

/// How long the best round trip is remembered, or up to twice as long.
const MEMORY: Duration = Duration::from_secs(30);
/// So many times what was acknowledged within a round trip may be in flight, while more than half is lost, and while all is well. The least
/// binds no controller that is told the truth, for with twice of what arrives half is lost already. The most is there for the first round
/// trips: reports tell in one of them that a path is much faster than a first window shows.
const FACTOR: (f64, f64) = (2.0, 64.0);
/// How much it grows with a round trip in which less was lost.
const GROWTH: f64 = 1.25;
/// A round trip with fewer packets says nothing of losses.
const LEAST_PACKETS: u64 = 8;

/// A bound on what may be in flight, by ACKs.
///
/// A receiver can report what it likes of times: that all came at one instant, and nothing ever waits. Who believes it sends more and more.
/// But it cannot acknowledge what it has not got, for QUIC leaves out packet numbers to find that out. So a path that loses more than half, or
/// is said to, gets no more than twice what is acknowledged.
#[derive(Debug)]
pub(super) struct Proof {
    /// When this round trip began, and what became of packets in it.
    since: Option<Instant>,
    acked: u64,
    lost: u64,
    packets: u64,
    /// The most bytes that were acknowledged within a round trip.
    best: Least<Reverse<u64>>,
    factor: f64,
}

impl Default for Proof {
    fn default() -> Self {
        Self { since: None, acked: 0, lost: 0, packets: 0, best: Least::over(MEMORY), factor: FACTOR.1 }
    }
}

impl Proof {
    pub(super) fn on_acked(&mut self, bytes: u16, now: Instant, rtt: Duration) {
        self.turn(now, rtt);
        self.acked += u64::from(bytes);
        self.packets += 1;
        self.best.add(Reverse(self.acked), now);
    }

    pub(super) fn on_lost(&mut self, bytes: u16, now: Instant, rtt: Duration) {
        self.turn(now, rtt);
        self.lost += u64::from(bytes);
        self.packets += 1;
    }

    /// Begins the next round trip, if this one is over.
    fn turn(&mut self, now: Instant, rtt: Duration) {
        if self.since.is_some_and(|since| now.saturating_duration_since(since) <= rtt) {
            return;
        }
        if self.packets >= LEAST_PACKETS {
            self.factor = if self.lost > self.acked { FACTOR.0 } else { (self.factor * GROWTH).min(FACTOR.1) };
        }
        (self.since, self.acked, self.lost, self.packets) = (Some(now), 0, 0, 0);
    }

    /// How many bytes may be in flight at most, where `first` is a first window.
    pub(super) fn limit(&self, first: u64) -> u64 {
        let best = self.best.get().map_or(0, |best| best.0);
        first + (self.factor * best as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(40);

    #[test]
    fn where_more_than_half_is_lost_the_limit_is_low_and_it_rises_slowly() {
        let (start, mut proof) = (Instant::now(), Proof::default());
        let mut round = |number: u32, acked: u32, lost: u32| {
            let now = start + MS * 41 * number;
            (0..acked).for_each(|_| proof.on_acked(1_000, now, RTT));
            (0..lost).for_each(|_| proof.on_lost(1_000, now, RTT));
            proof.limit(10_000)
        };
        assert_eq!(round(0, 20, 0), 10_000 + 64 * 20_000);
        assert_eq!(round(1, 5, 15), 10_000 + 64 * 20_000);
        assert_eq!(round(2, 15, 15), 50_000, "the best was 20");
        assert_eq!(round(3, 1, 2), 60_000);
        assert_eq!(round(4, 20, 0), 60_000, "three packets say nothing");
        assert_eq!(round(5, 40, 0), 10_000 + 125_000, "more was acknowledged than ever");
    }
}
