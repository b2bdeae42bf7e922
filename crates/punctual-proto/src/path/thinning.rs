//! How often answers leave on a path that they fill.
//!
//! Every second packet is answered at once, and when packets came is reported four times in a round trip: of 18 Mbit/s that is 0.65 Mbit/s
//! of packets with little in them, and many an uplink has less. No controller slows answers down, for nobody answers them. So where reports on
//! our own datagrams find that a queue stands on the way back, answers share packets, those that are at least a gap apart:
//!
//! ```text
//! gap := min(max(gap · GROW, LEAST), most)    with each look at which the least delayed packet found a queue that stands
//!        gap · SHRINK, or none below LEAST    with each other
//! most = base round trip / 4, but at least MOST
//! ```
//!
//! RFC 5690 does so for TCP with marks and losses, which come when the queue is full, and answers are late by all of it.

use std::time::{Duration, Instant};

/// The shortest gap: with less, packets that answer two of 1,200 bytes each are as far apart at 10 Mbit/s.
const LEAST: Duration = Duration::from_millis(2);
/// The longest, or a quarter of a round trip: what an answer is late by then is about what it is by chance.
const MOST: Duration = Duration::from_millis(25);
const GROW: f64 = 1.5;
const SHRINK: f64 = 0.99;
/// A look is no shorter than this, nor than a round trip, after which what a gap does can be seen.
const LOOK: Duration = Duration::from_millis(50);
/// A queue that stands is worth speaking of from here on, or from an eighth of the round trip.
const QUEUE: Duration = Duration::from_millis(5);

/// So many of our packets stand in a queue that is ours.
const PACKETS: f64 = 4.0;

/// How far apart a path's answers are.
#[derive(Debug, Default)]
pub(crate) struct Thinning {
    gap: Duration,
    /// When a packet left last.
    last: Option<Instant>,
    /// When was looked last, and how many packets left since.
    looked: Option<Instant>,
    left: u32,
}

impl Thinning {
    /// Packets of ours found this `queue` at least, in an empty round trip of `base`, on a path whose packets vary by `jitter`.
    pub(super) fn on_report(&mut self, now: Instant, queue: Duration, base: Duration, jitter: Duration) {
        let looked = *self.looked.get_or_insert(now);
        let passed = now.saturating_duration_since(looked);
        if passed < LOOK.max(base) {
            return;
        }
        let ours = f64::from(self.left) * queue.as_secs_f64() / passed.as_secs_f64();
        (self.looked, self.left) = (Some(now), 0);
        if queue > QUEUE.max(base / 8) + jitter && ours > PACKETS {
            self.gap = self.gap.mul_f64(GROW).clamp(LEAST, MOST.max(base / 4));
        } else {
            self.gap = Some(self.gap.mul_f64(SHRINK)).filter(|gap| *gap >= LEAST / 2).unwrap_or_default();
        }
    }

    /// A packet leaves.
    pub(crate) fn on_left(&mut self, now: Instant) {
        self.last = Some(now);
        self.left = self.left.saturating_add(1);
    }

    /// Whether they are to be apart at all.
    pub(crate) fn is_on(&self) -> bool {
        !self.gap.is_zero()
    }

    /// Until when the next rests, if it does.
    pub(crate) fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.last.map(|last| last + self.gap).filter(|until| *until > now)
    }
}
