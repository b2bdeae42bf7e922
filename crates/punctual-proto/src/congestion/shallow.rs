//! A queue that is full before it stands.
//!
//! What a round finds standing is worth speaking of only beyond some milliseconds and what packets vary by anyway. A queue of a dozen packets may never
//! be that long: it loses what is too much, and all that delay says is that nothing stands. There the losses say it, as far as they are known to be the
//! queue's and not chance's.

use std::time::Duration;

/// A round in which more than this share of the packets, and more than one, found no room tells that the queue was full.
const MUCH: f64 = 0.01;
/// For so many rounds the queue is held to be as short as it was.
const MEMORY: u32 = 128;
/// A lost packet's queue counts so much in how long the queue is when it is full.
const GAIN: u32 = 8;
/// What may be sent too fast before the answer comes back, of what the empty path holds: a queue with room for that, besides what is worth speaking
/// of, stands before it is full.
const UNANSWERED: u32 = 4;

/// How long the queue is when it is full, and since when nothing found it so.
#[derive(Debug, Clone)]
pub(super) struct Shallow {
    full: Option<Duration>,
    /// Lost for want of room in this round.
    lost: u64,
    /// Rounds since there was too much.
    since: u32,
}

impl Default for Shallow {
    fn default() -> Self {
        Self { full: None, lost: 0, since: u32::MAX }
    }
}

impl Shallow {
    /// A packet found no room, whose neighbours found this queue.
    pub(super) fn on_overflow(&mut self, queue: Duration) {
        self.lost += 1;
        self.full = Some(self.full.map_or(queue, |full| (full * (GAIN - 1) + queue) / GAIN));
    }

    /// A round has ended in which so many packets arrived. Whether it found the queue full.
    pub(super) fn end_round(&mut self, packets: u64) -> bool {
        let lost = std::mem::take(&mut self.lost);
        let full = lost > 1 && lost as f64 > MUCH * packets as f64;
        self.since = if full { 0 } else { self.since.saturating_add(1) };
        full
    }

    /// How long the queue is when it is full, if that is before a queue counts as `worth` speaking of on a path that long when empty.
    pub(super) fn full(&self, worth: Duration, base: Duration) -> Option<Duration> {
        let full = self.full.filter(|_| self.since < MEMORY)?;
        (full < worth + base / UNANSWERED).then_some(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn only_what_is_full_before_it_stands_is_shallow() {
        let mut shallow = Shallow::default();
        assert_eq!(shallow.full(MS * 3, MS * 4), None);
        (0..10).for_each(|_| shallow.on_overflow(MS * 3));
        assert!(shallow.end_round(90));
        assert_eq!(shallow.full(MS * 3, MS * 4), Some(MS * 3));
        assert_eq!(shallow.full(MS * 2, MS * 4), None, "there is room to see it stand");
        assert_eq!(
            shallow.full(MS * 2, MS * 400),
            Some(MS * 3),
            "not on a long path, where it is full before any answer comes back"
        );

        let mut deep = Shallow::default();
        (0..10).for_each(|_| deep.on_overflow(MS * 102));
        assert!(deep.end_round(90));
        assert_eq!(deep.full(MS * 2, MS * 400), None, "unless it has room for a quarter of what the path holds");
    }

    #[test]
    fn a_loss_now_and_then_says_nothing_and_the_past_is_forgotten() {
        let mut shallow = Shallow::default();
        shallow.on_overflow(MS);
        assert!(!shallow.end_round(20), "one");
        (0..2).for_each(|_| shallow.on_overflow(MS));
        assert!(!shallow.end_round(300), "two of three hundred");
        (0..4).for_each(|_| shallow.on_overflow(MS));
        assert!(shallow.end_round(300));
        for _ in 1..MEMORY {
            assert!(!shallow.end_round(300));
            assert!(shallow.full(MS * 2, MS).is_some());
        }
        assert!(!shallow.end_round(300) && shallow.full(MS * 2, MS).is_none());
    }
}
