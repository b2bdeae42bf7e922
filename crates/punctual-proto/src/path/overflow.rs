//! Which losses are congestion: those of a queue that overflows.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use crate::least::Least;

/// How long the longest queue is remembered.
const MEMORY: Duration = Duration::from_secs(10);
/// A queue is long from this share of the longest on: a drop-tail queue loses what finds it full.
const LONG: u32 = 2;
/// And from this on: less is the grain of links and clocks.
const FLOOR: Duration = Duration::from_millis(2);
/// Packets after which an old one counts for 1/e.
const FADE: f64 = 512.0;
/// What is believed of the share lost in short queues before anything was seen: three in a hundred, as if seen on ten packets.
const PRIOR: (f64, f64) = (0.3, 10.0);
/// Standard deviations by which losses in long queues must exceed what is lost in short ones, to be put down to the queue.
const BEYOND: f64 = 3.0;

/// Packets that arrived and that were lost, the past fading.
#[derive(Debug, Clone, Copy, Default)]
struct Zone {
    packets: f64,
    lost: f64,
}

/// What is left of the past with each packet.
const KEEP: f64 = 1.0 - 1.0 / FADE;

impl Zone {
    fn note(&mut self, lost: bool) {
        self.packets = self.packets * KEEP + 1.0;
        self.lost = self.lost * KEEP + f64::from(u8::from(lost));
    }
}

/// Compares what is lost where the queue is short with what is lost where it is long.
///
/// A path that loses packets by itself does so whatever its queue; a full queue loses only what finds it long.
#[derive(Debug)]
pub(crate) struct Overflow {
    longest: Least<Reverse<Duration>>,
    short: Zone,
    long: Zone,
    /// Losses in long queues that were put down to chance, for nothing told yet that they were not; the past fading with that of the zone.
    unsure: f64,
}

impl Default for Overflow {
    fn default() -> Self {
        Self { longest: Least::over(MEMORY), short: Zone::default(), long: Zone::default(), unsure: 0.0 }
    }
}

impl Overflow {
    fn is_long(&self, queue: Duration) -> bool {
        queue > (self.longest() / LONG).max(FLOOR)
    }

    /// The longest queue that a packet has found lately.
    pub(crate) fn longest(&self) -> Duration {
        self.longest.get().map_or(Duration::ZERO, |longest| longest.0)
    }

    /// A packet arrived that had found this queue.
    pub(crate) fn on_arrived(&mut self, queue: Duration, now: Instant) {
        self.longest.add(Reverse(queue), now);
        self.note(queue, false);
    }

    /// A packet that had found this queue arrived, or was lost. Whether the queue was long.
    fn note(&mut self, queue: Duration, lost: bool) -> bool {
        let long = self.is_long(queue);
        if long {
            self.long.note(lost);
            self.unsure *= KEEP;
        } else {
            self.short.note(lost);
        }
        long
    }

    /// A packet was lost whose neighbours had found this queue. Whether it was congestion, and if so, how many before it were, too,
    /// that were put down to chance.
    pub(crate) fn on_lost(&mut self, queue: Duration) -> Option<u32> {
        if !self.note(queue, true) {
            return None;
        }
        let usual = self.by_itself();
        let expected = self.long.packets * usual;
        let excess = self.long.lost - expected;
        if excess <= BEYOND * (expected * (1.0 - usual)).sqrt() {
            self.unsure += 1.0;
            return None;
        }
        // Without this one. As many as were to be expected were lost by chance indeed.
        Some(std::mem::take(&mut self.unsure).min(excess - 1.0).max(0.0).ceil() as u32)
    }

    /// The share of packets that the path loses by itself, as far as is known.
    fn by_itself(&self) -> f64 {
        (self.short.lost + PRIOR.0) / (self.short.packets + PRIOR.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A thousand packets in a queue that rises and falls; how many of those lost were put down to it.
    fn congested(lost: impl Fn(u32, Duration) -> bool) -> (usize, usize) {
        let (start, mut overflow) = (Instant::now(), Overflow::default());
        let fates = (0..1_000_u32).filter_map(|i| {
            let (queue, now) = (MS * (i % 50), start + MS * i);
            if lost(i, queue) {
                return Some(overflow.on_lost(queue).is_some());
            }
            overflow.on_arrived(queue, now);
            None
        });
        let fates: Vec<bool> = fates.collect();
        (fates.iter().filter(|congestion| **congestion).count(), fates.len())
    }

    #[test]
    fn what_a_full_queue_loses_is_congestion() {
        let (congestion, all) = congested(|_, queue| queue > MS * 40);
        assert!(congestion > all * 9 / 10, "{congestion} of {all}");
    }

    #[test]
    fn the_first_losses_of_a_queue_are_known_for_what_they_were_in_the_end() {
        let mut overflow = Overflow::default();
        (1..30).for_each(|i| overflow.on_arrived(MS * i, Instant::now()));
        let told: Vec<_> = (0..8).map(|_| overflow.on_lost(MS * 29)).collect();
        let congestion = told.iter().flatten().map(|before| 1 + before).sum::<u32>();
        assert_eq!((told[0], congestion), (None, 8), "{told:?}");
    }

    #[test]
    fn what_is_lost_by_chance_is_not() {
        let chance = |i: u32| i.wrapping_mul(2_654_435_761) >> 24 < 26;
        let (congestion, all) = congested(|i, _| chance(i));
        assert!(all > 80 && congestion < all / 10, "{congestion} of {all}");
    }

    #[test]
    fn what_chance_took_in_long_queues_is_not_pardoned_for_a_burst() {
        let (start, mut overflow) = (Instant::now(), Overflow::default());
        // A loss in ten, whatever the queue.
        for i in 0..10_000_u32 {
            let queue = MS * (i % 49);
            if i % 10 == 3 {
                overflow.on_lost(queue);
            } else {
                overflow.on_arrived(queue, start + MS * (i / 10));
            }
        }
        let told: Vec<_> = (0..60).filter_map(|_| overflow.on_lost(MS * 48)).collect();
        let pardoned = told.iter().sum::<u32>();
        assert!(!told.is_empty() && pardoned < 60, "{pardoned}");
    }

    #[test]
    fn a_path_without_queues_has_no_congestion() {
        let mut overflow = Overflow::default();
        (0..100).for_each(|_| overflow.on_arrived(MS, Instant::now()));
        assert!(!(0..50).any(|_| overflow.on_lost(MS).is_some()));
    }
}
