//! What a policer's bucket holds, as far as it has shown.
//!
//! What passes beyond what the bucket was filled with since it was full shows how deep it is, at least. So that takes no time to find out once the rate is known, what has passed until then is kept.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::rate::Rate;

/// How much more than the bucket has been seen to hold is tried: this share of it, and at least so many bytes.
const PROBE: (f64, f64) = (0.25, 3_000.0);
/// After a drop nothing more is tried for so long at first, and for up to so long where one try after the other fails.
const PROBED_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32));
/// How much of what the bucket was thought to hold is not believed any more after a drop: it may have been by chance.
const DISBELIEF: f64 = 0.25;
/// A bucket that holds less than so many times what is in doubt does not tell whether it is empty.
const DEEP: f64 = 2.0;
/// What passed is kept for so long, so finely, and in so many parts at most.
const KEPT: Duration = Duration::from_secs(2);
const GRAIN: Duration = Duration::from_millis(4);
const PARTS: usize = 512;

/// The bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// Bytes when it is full.
    depth: f64,
    /// Bytes now. What has passed beyond that shows that it is deeper,
    level: f64,
    /// if not more has passed than it was filled with since it was empty: so many bytes would be in it if it were deep enough.
    most: f64,
    at: Instant,
    /// When more may be tried, and how long to wait after the next drop.
    probed_after: Option<Instant>,
    patience: Duration,
}

/// What a drop shows of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shown {
    /// It may have been full since it was empty before.
    pub(super) full: bool,
    /// It was known to be empty.
    pub(super) empty: bool,
}

impl Bucket {
    /// Of which nothing is known.
    fn new(at: Instant) -> Self {
        Self { depth: 0.0, level: 0.0, most: f64::INFINITY, at, probed_after: None, patience: PROBED_AFTER.0 }
    }

    pub(super) fn fill(&mut self, at: Instant, rate: Rate) {
        let filled = rate.bytes_in(at.saturating_duration_since(self.at));
        self.level = (self.level + filled).min(self.depth);
        self.most += filled;
        self.at = at;
    }

    pub(super) fn on_passed(&mut self, bytes: u64) {
        self.level -= bytes as f64;
        self.most -= bytes as f64;
        // Of what was not in it, so much shows its depth; by the rest it is filled faster than is known.
        let deeper = self.most.min(0.0) - self.level;
        if deeper > 0.0 {
            self.depth += deeper;
            self.patience = PROBED_AFTER.0;
        }
        (self.level, self.most) = (self.level.max(0.0), self.most.max(0.0));
    }

    /// A packet was lost, so there was less in it than that. It was known to be empty if no more than `slack` was known to be left.
    pub(super) fn on_dropped(&mut self, slack: f64) -> Shown {
        if self.probed_after.is_none_or(|after| self.at >= after) {
            self.probed_after = Some(self.at + self.patience);
            self.patience = (self.patience * 2).min(PROBED_AFTER.1);
        }
        let full = self.most > self.level;
        if full {
            self.depth -= self.level * DISBELIEF;
        }
        let shown = Shown { full, empty: self.level <= slack && self.depth > slack * DEEP };
        self.empty();
        shown
    }

    fn empty(&mut self) {
        (self.level, self.most) = (0.0, 0.0);
    }

    /// How much may be sent at once.
    pub(super) fn burst(&self, now: Instant) -> u64 {
        let probe =
            if self.probed_after.is_some_and(|after| now < after) { 0.0 } else { PROBE.1.max(self.depth * PROBE.0) };
        (self.depth + probe) as u64
    }
}

/// What had passed when the last packet left of some that left within [`GRAIN`].
#[derive(Debug, Clone, Copy)]
struct Part {
    at: Instant,
    passed: u64,
    /// A packet was lost: the bucket was empty.
    empty: bool,
}

/// What passed lately, and when.
#[derive(Debug, Default)]
pub(super) struct History {
    parts: VecDeque<Part>,
    /// When the first packet of the last part left.
    began: Option<Instant>,
}

impl History {
    /// So much had passed when a packet passed.
    pub(super) fn on_passed(&mut self, at: Instant, passed: u64) {
        self.add(Part { at, passed, empty: false });
    }

    /// And when one was dropped.
    pub(super) fn on_dropped(&mut self, at: Instant, passed: u64) {
        self.add(Part { at, passed, empty: true });
    }

    fn add(&mut self, part: Part) {
        let soon = self.began.is_some_and(|began| part.at.saturating_duration_since(began) < GRAIN);
        let goes_on = |last: &Part| match last.empty {
            true => last.passed == part.passed,
            false => soon && !part.empty,
        };
        match self.parts.back_mut() {
            Some(last) if goes_on(last) => *last = part,
            _ => {
                self.began = Some(part.at);
                self.parts.push_back(part);
            }
        }
        let old = |first: &Part| part.at.saturating_duration_since(first.at) > KEPT;
        while self.parts.len() > PARTS || self.parts.front().is_some_and(old) {
            self.parts.pop_front();
        }
    }

    /// The bucket at that time, filled at this rate, of which `known` was known: one that is deep enough for what passed to have passed. What is kept is not needed any more.
    pub(super) fn fill(&mut self, known: Option<Bucket>, now: Instant, rate: Rate) -> Bucket {
        let (at, mut before) = self.parts.front().map_or((now, 0), |first| (first.at, first.passed));
        let mut bucket = Bucket { level: 0.0, most: f64::INFINITY, at, ..known.unwrap_or(Bucket::new(at)) };
        for Part { at, passed, empty } in self.parts.drain(..) {
            bucket.fill(at, rate);
            bucket.on_passed(passed - std::mem::replace(&mut before, passed));
            if empty {
                bucket.empty();
            }
        }
        self.began = None;
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PACKET: u64 = 1_000;

    /// Sends so many packets of 1,000 bytes at once every 40 ms, for two seconds and more, through a bucket that holds 30,000 and is filled by 500 in a millisecond, and returns the one that must be there.
    fn sent(at_once: impl Fn(u64) -> u64) -> Bucket {
        let (start, mut history, mut level, mut passed) = (Instant::now(), History::default(), 30_000, 0);
        for n in 0..60 {
            let at = start + 40 * MS * n as u32;
            for _ in 0..at_once(n) {
                if level >= PACKET {
                    (level, passed) = (level - PACKET, passed + PACKET);
                    history.on_passed(at, passed);
                } else {
                    history.on_dropped(at, passed);
                }
            }
            level = (level + 20_000).min(30_000);
        }
        history.fill(None, start + 2_400 * MS, Rate::from_bytes_per_second(500e3))
    }

    #[test]
    fn it_is_as_deep_as_has_passed_at_once() {
        assert_eq!(sent(|_| 15).depth, 15_000.0);
        assert_eq!(sent(|n| if n == 20 { 30 } else { 10 }).depth, 30_000.0);
        assert_eq!(sent(|n| if n == 20 { 60 } else { 10 }).depth, 30_000.0, "more was dropped");
        assert_eq!(sent(|n| if n == 1 { 30 } else { 10 }).depth, 10_000.0, "that was long ago");
    }

    #[test]
    fn what_passes_too_fast_of_an_empty_one_is_no_sign_of_its_depth() {
        // A tenth more than it is thought to be filled with.
        let (start, mut history) = (Instant::now(), History::default());
        history.on_dropped(start, 0);
        (1..1_000).for_each(|n| history.on_passed(start + 2 * MS * n, u64::from(n) * 1_100));
        let bucket = history.fill(None, start + 2_000 * MS, Rate::from_bytes_per_second(500e3));
        assert!(bucket.depth <= 2_200.0, "{bucket:?}");
    }

    #[test]
    fn a_drop_shows_whether_it_was_to_be_expected() {
        let mut bucket = sent(|n| if n == 59 { 30 } else { 10 });
        let rate = Rate::from_bytes_per_second(500e3);
        let shown = bucket.on_dropped(1_250.0);
        assert!(shown.full && shown.empty, "{shown:?}");
        bucket.fill(bucket.at + 10 * MS, rate);
        let shown = bucket.on_dropped(1_250.0);
        assert!(!shown.full && !shown.empty, "{shown:?}");
        assert_eq!(bucket.depth, 30_000.0);
        bucket.fill(bucket.at + 100 * MS, rate);
        let shown = bucket.on_dropped(1_250.0);
        assert!(shown.full && !shown.empty, "{shown:?}");
        assert_eq!(bucket.depth, 30_000.0 * (1.0 - DISBELIEF));
        let mut small = sent(|_| 2);
        assert!(!small.on_dropped(1_250.0).empty, "it holds hardly more than a packet anyway");
    }

    #[test]
    fn what_is_kept_is_little() {
        let (start, mut history) = (Instant::now(), History::default());
        for n in 0..100_000 {
            history.on_passed(start + MS * n / 10, u64::from(n));
            if n % 3 == 0 {
                history.on_dropped(start + MS * n / 10, u64::from(n));
            }
        }
        assert!(history.parts.len() <= PARTS);
        history.on_passed(start + MS * 100_000, 100_001);
        assert_eq!(history.parts.len(), 1);
    }
}
