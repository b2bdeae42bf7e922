//! What QUIC's acknowledgements prove of a path, whatever its receiver reports.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use super::window::Least;

/// How long the best round trip is remembered, or up to twice as long.
const MEMORY: Duration = Duration::from_secs(10);
/// So many times what was acknowledged within a round trip may be in flight while more than half is lost. A controller that is told the truth
/// has less: where losses are so many, twice what arrives loses half of it.
const LIMIT: u64 = 3;
/// A round trip with fewer packets says nothing of losses.
const LEAST_PACKETS: u64 = 8;

/// A bound on what may be in flight, by ACKs.
///
/// A receiver can report what it likes of times: that all came at one instant, and nothing ever waits. Who believes it sends more and more.
/// But it cannot acknowledge what it has not got, for QUIC leaves out packet numbers to find that out. So a path that loses more than half, or
/// is said to, gets no more than a few times what is acknowledged.
#[derive(Debug)]
pub(super) struct Proof {
    /// When this round trip began, and what of its packets became of.
    since: Option<Instant>,
    acked: u64,
    lost: u64,
    packets: u64,
    /// The most bytes that were acknowledged within a round trip.
    best: Least<Reverse<u64>>,
    /// In the round trip before this one more was lost than arrived.
    excessive: bool,
}

impl Default for Proof {
    fn default() -> Self {
        Self { since: None, acked: 0, lost: 0, packets: 0, best: Least::over(MEMORY), excessive: false }
    }
}

impl Proof {
    pub(super) fn on_acked(&mut self, bytes: u16, now: Instant, rtt: Duration) {
        self.turn(now, rtt);
        self.acked += u64::from(bytes);
        self.packets += 1;
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
            self.excessive = self.lost > self.acked;
        }
        if self.acked > 0 {
            self.best.add(Reverse(self.acked), now);
        }
        (self.since, self.acked, self.lost, self.packets) = (Some(now), 0, 0, 0);
    }

    /// How many bytes may be in flight at most, where `first` is a first window.
    pub(super) fn limit(&self, first: u64) -> u64 {
        if !self.excessive {
            return u64::MAX;
        }
        first + LIMIT * self.best.get().map_or(0, |best| best.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(40);

    #[test]
    fn only_where_more_than_half_is_lost_there_is_a_limit() {
        let (start, mut proof) = (Instant::now(), Proof::default());
        let mut round = |number: u32, acked: u32, lost: u32| {
            let now = start + MS * 41 * number;
            (0..acked).for_each(|_| proof.on_acked(1_000, now, RTT));
            (0..lost).for_each(|_| proof.on_lost(1_000, now, RTT));
            proof.limit(10_000)
        };
        assert_eq!(round(0, 20, 0), u64::MAX);
        assert_eq!(round(1, 5, 15), u64::MAX);
        assert_eq!(round(2, 15, 15), 70_000, "the best was 20");
        assert_eq!(round(3, 1, 2), u64::MAX);
        assert_eq!(round(4, 9, 10), u64::MAX, "three packets say nothing");
        assert_eq!(round(5, 0, 0), u64::MAX);
        assert_eq!(round(6, 1, 0), 70_000);
    }
}
