//! Which losses are a policer's: what it lets pass between any two of them is what its bucket was filled with.
//!
//! A policer is a bucket of tokens: filled at a rate, emptied by what passes; what finds too little in it is dropped, at once and without a queue. So
//! whenever it drops, its bucket is empty but for less than a packet, and what has passed since it dropped before is its rate times the time, a
//! packet more or less, or less than that if the bucket was full in between. What is lost by chance is not held to that: what passes between
//! two losses wanders about. A queue of a few packets that overflows looks the same, and is to be answered the same way.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::rate::Rate;

/// Losses that are looked at together. With these, a path that loses 1 to 20 % by chance, in bursts of up to 16, was taken for policed 4 times in
/// 480 million packets; at 40 % 17 times in as many.
const LOOKED_AT: usize = 64;
/// And after so many more are looked at again.
const STEP: usize = 8;
/// Packets, of the largest that were lost, by which what is left in the bucket may differ between losses: one, and a little for what clocks do to
/// the times of leaving.
const SLACK: f64 = 1.25;
/// A bucket is not full again sooner than after so many losses on average. By chance they leave a line so narrow after two or three.
const RUN: usize = 7;
/// What two looks on end find must not differ by more than this factor: a rhythm of our own may look like a line for once.
const AGREEMENT: f64 = 1.05;
/// How much more than the bucket has been seen to hold is tried: this share of it, and at least so many bytes.
const PROBE: (f64, f64) = (0.25, 3_000.0);
/// After a drop nothing more is tried for so long at first, and for up to so long where one try after the other fails.
const PROBED_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32));
/// How much of what the bucket was thought to hold is not believed any more after a drop: it may have been by chance.
const DISBELIEF: f64 = 0.25;
/// What was found out holds for so long.
const MEMORY: Duration = Duration::from_secs(10);

/// A loss: when the packet left, its size, and what had passed before it.
#[derive(Debug, Clone, Copy)]
struct Drop {
    at: Instant,
    bytes: u16,
    passed: u64,
}

/// What a policer lets pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    /// In the long run.
    pub(crate) rate: Rate,
    /// Bytes that may pass at once after a pause.
    pub(crate) burst: u64,
}

/// What the policer's bucket holds, as far as it has shown.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Bytes when it is full.
    depth: f64,
    /// Bytes now. What has passed beyond that shows that it is deeper.
    level: f64,
    at: Instant,
    /// When more may be tried, and how long to wait after the next drop.
    probed_after: Option<Instant>,
    patience: Duration,
}

impl Bucket {
    fn empty(at: Instant) -> Self {
        Self { depth: 0.0, level: 0.0, at, probed_after: None, patience: PROBED_AFTER.0 }
    }

    fn fill(&mut self, at: Instant, rate: Rate) {
        let filled = rate.bytes_in(at.saturating_duration_since(self.at));
        self.level = (self.level + filled).min(self.depth);
        self.at = at;
    }

    fn on_passed(&mut self, bytes: u16) {
        self.level -= f64::from(bytes);
        if self.level < 0.0 {
            self.depth -= self.level;
            self.level = 0.0;
            self.patience = PROBED_AFTER.0;
        }
    }

    fn on_dropped(&mut self) {
        self.depth -= self.level * DISBELIEF;
        self.level = self.level.min(self.depth);
        if self.probed_after.is_none_or(|after| self.at >= after) {
            self.probed_after = Some(self.at + self.patience);
            self.patience = (self.patience * 2).min(PROBED_AFTER.1);
        }
    }

    /// How much may be sent at once.
    fn burst(&self, now: Instant) -> u64 {
        let probe =
            if self.probed_after.is_some_and(|after| now < after) { 0.0 } else { PROBE.1.max(self.depth * PROBE.0) };
        (self.depth + probe) as u64
    }
}

/// Finds out whether a policer drops what is lost, and how much it lets pass.
#[derive(Debug, Default)]
pub(crate) struct Policer {
    passed: u64,
    /// Of several on end the first.
    drops: VecDeque<Drop>,
    since_look: usize,
    /// What the last look has found.
    seen: Option<Rate>,
    /// What it lets pass, and when the last packet left that tells of it.
    found: Option<(Rate, Instant)>,
    bucket: Option<Bucket>,
    /// When the latest packet left.
    now: Option<Instant>,
}

impl Policer {
    /// The next packet, in the order of sending, passed.
    pub(crate) fn on_passed(&mut self, at: Instant, bytes: u16) {
        self.now = Some(at);
        self.passed += u64::from(bytes);
        if let Some(bucket) = self.filled(at) {
            bucket.on_passed(bytes);
        }
    }

    /// The bucket at that time.
    fn filled(&mut self, at: Instant) -> Option<&mut Bucket> {
        let rate = self.rate()?;
        let bucket = self.bucket.as_mut()?;
        bucket.fill(at, rate);
        Some(bucket)
    }

    /// The next packet, in the order of sending, was lost, and there was no queue to blame. How many losses are a policer's by what this one tells: this
    /// one and those before it.
    pub(crate) fn on_dropped(&mut self, at: Instant, bytes: u16) -> u32 {
        self.now = Some(at);
        let known = self.rate().is_some();
        if let Some(bucket) = self.filled(at) {
            bucket.on_dropped();
        }
        if self.drops.back().is_some_and(|last| last.passed == self.passed) {
            // The bucket was empty, as it was just before.
            return known.into();
        }
        if self.drops.len() == LOOKED_AT {
            self.drops.pop_front();
        }
        self.drops.push_back(Drop { at, bytes, passed: self.passed });
        self.since_look += 1;
        if self.drops.len() < LOOKED_AT || self.since_look < STEP {
            return known.into();
        }
        self.since_look = 0;
        let seen = self.look();
        let before = std::mem::replace(&mut self.seen, seen);
        let agree = |rate: Rate| before.is_some_and(|before| before <= rate * AGREEMENT && rate <= before * AGREEMENT);
        self.found = seen.filter(|rate| agree(*rate)).map(|rate| (rate, at));
        if self.found.is_some() && !known {
            // What it was seen to hold before, it may hold again.
            let bucket = self.bucket.get_or_insert(Bucket::empty(at));
            (bucket.level, bucket.at) = (0.0, at);
        }
        match self.found {
            None => 0,
            Some(_) if known => 1,
            Some(_) => LOOKED_AT as u32,
        }
    }

    /// What a policer lets pass, if there is one.
    pub(crate) fn limit(&self) -> Option<Limit> {
        Some(Limit { rate: self.rate()?, burst: self.bucket?.burst(self.now?) })
    }

    fn rate(&self) -> Option<Rate> {
        let (rate, at) = self.found?;
        (self.now?.saturating_duration_since(at) < MEMORY).then_some(rate)
    }

    /// The rate at which a bucket was filled that lets pass what did, if what was lost found it empty.
    fn look(&self) -> Option<Rate> {
        let slack = SLACK * f64::from(self.drops.iter().map(|drop| drop.bytes).max()?);
        let between = |from: &Drop, to: &Drop| {
            let time = to.at.saturating_duration_since(from.at).as_secs_f64();
            (time.max(1e-6), (to.passed - from.passed) as f64)
        };
        // No slower, for as much has passed.
        let mut rate = 0.0_f64;
        for (i, from) in self.drops.iter().enumerate() {
            for to in self.drops.range(i + 1..) {
                let (time, passed) = between(from, to);
                rate = rate.max((passed - slack) / time);
            }
        }
        // Nor faster, if it was not full in between.
        let (mut runs, mut best, mut first) = (1, (0.0, 0.0), self.drops.front()?);
        let mut fullest = 0.0_f64;
        for drop in &self.drops {
            let (time, passed) = between(first, drop);
            let more = passed - rate * time;
            fullest = fullest.max(more);
            if fullest - more > slack {
                (runs, first, fullest) = (runs + 1, drop, 0.0);
            } else if passed > best.1 {
                best = (time, passed);
            }
        }
        (best.1 > 0.0 && runs * RUN <= LOOKED_AT).then(|| Rate::from_bytes_per_second(best.1 / best.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets of this size so far apart through `passes`, and returns what is told at the end, and how many losses were put down to a policer
    /// of how many.
    fn send(
        count: u32,
        gap: impl Fn(u32) -> Duration,
        mut passes: impl FnMut(Duration, f64) -> bool,
    ) -> (Option<Rate>, u32, u32) {
        let (start, mut policer, mut t) = (Instant::now(), Policer::default(), Duration::ZERO);
        let (mut told, mut lost) = (0, 0);
        for i in 0..count {
            if passes(t, 1_200.0) {
                policer.on_passed(start + t, 1_200);
            } else {
                lost += 1;
                told += policer.on_dropped(start + t, 1_200);
            }
            t += gap(i);
        }
        (policer.rate(), told, lost)
    }

    fn bucket(rate: f64, depth: f64) -> impl FnMut(Duration, f64) -> bool {
        let (mut level, mut before) = (depth, Duration::ZERO);
        move |t, bytes| {
            level = (level + rate * (t - before).as_secs_f64()).min(depth);
            before = t;
            let passes = level >= bytes;
            if passes {
                level -= bytes;
            }
            passes
        }
    }

    /// By chance, in bursts of this length on average, if that is more than 1.
    fn chance(seed: u64, loss: f64, burst: f64) -> impl FnMut(Duration, f64) -> bool {
        let (mut state, mut bad) = (seed, false);
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        move |_, _| {
            let end = if burst > 1.0 { 1.0 / burst } else { 1.0 - loss };
            bad = if bad { draw() >= end } else { draw() < end * loss / (1.0 - loss) };
            !bad
        }
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_policer_is_known_by_what_it_lets_pass() {
        // 1.2 MB/s sent evenly, in frames of ten packets, and of thirty with a bucket that fills up in between.
        let even = |_| MS;
        let frames = |i| if i % 10 == 9 { MS * 9 } else { MS / 10 };
        let large = |i| if i % 50 == 49 { MS * 40 } else { MS * 3 / 10 };
        for (name, gap, rate, depth) in [
            ("even", &even as &dyn Fn(u32) -> Duration, 0.9e6, 20e3),
            ("a little too much", &even, 1.1e6, 20e3),
            ("a third passes", &even, 0.4e6, 64e3),
            ("frames", &frames, 0.9e6, 20e3),
            ("frames above the bucket", &large, 1.5e6, 12e3),
        ] {
            let (found, told, lost) = send(4_000, gap, bucket(rate, depth));
            let found = found.unwrap_or_else(|| panic!("{name}: nothing of {lost} losses")).bytes_per_second();
            assert!((0.9..1.02).contains(&(found / rate)), "{name}: {found} of {rate}");
            assert!(told + 2 * LOOKED_AT as u32 > lost && told <= lost, "{name}: {told} of {lost}");
        }
    }

    #[test]
    fn what_is_lost_by_chance_is_not_its() {
        let even = |_| MS;
        let frames = |i| if i % 10 == 9 { MS * 9 } else { MS / 10 };
        let small = |i| if i % 3 == 2 { MS * 9 } else { MS / 10 };
        for gap in [&even as &dyn Fn(u32) -> Duration, &frames, &small] {
            for loss in [0.01, 0.05, 0.1, 0.2, 0.4] {
                for burst in [1.0, 2.0, 4.0, 8.0, 16.0] {
                    if burst > 1.0 && loss / (1.0 - loss) > burst {
                        continue;
                    }
                    for seed in 1..20 {
                        let (_, told, lost) = send(4_000, gap, chance(seed, loss, burst));
                        assert!(told <= lost / 20, "{loss} in bursts of {burst}, seed {seed}: {told} of {lost}");
                    }
                }
            }
        }
    }

    #[test]
    fn how_much_a_bucket_holds_is_found_out() {
        // Ten times a second as much is sent at once as the bucket is thought to hold, between packets at its rate.
        let (rate, depth) = (1e6, 50e3);
        let (start, mut policer, mut passes) = (Instant::now(), Policer::default(), bucket(rate, depth));
        let mut send = |policer: &mut Policer, t: Duration, bytes: u64| {
            (0..bytes / 1_200)
                .filter(|_| {
                    let passed = passes(t, 1_200.0);
                    if passed {
                        policer.on_passed(start + t, 1_200);
                    } else {
                        policer.on_dropped(start + t, 1_200);
                    }
                    !passed
                })
                .count()
        };
        let mut t = Duration::ZERO;
        while policer.limit().is_none() {
            send(&mut policer, t, 2_400);
            t += MS;
        }
        let (found, mut dropped, mut sent) = (t, 0, 0);
        while t < found + MS * 8_000 {
            let burst = policer.limit().map_or(0, |limit| limit.burst);
            dropped += send(&mut policer, t, burst);
            sent += burst / 1_200;
            t += MS * 100;
        }
        let burst = policer.limit().expect("it was seen lately").burst as f64;
        assert!((0.8..1.3).contains(&(burst / depth)), "{burst} of {depth}");
        assert!((dropped as u64) < sent / 20, "{dropped} of {sent}");
    }
}
