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

use super::bucket::{Bucket, History, Shown};
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
/// A line through fewer is not believed more than what is known.
const LEAST_POINTS: f64 = 16.0;
/// What was found out holds for so long.
const MEMORY: Duration = Duration::from_secs(10);

/// Losses on end: when the first packet left, its size, what had passed before it, and how many of them have been put down to chance.
#[derive(Debug, Clone, Copy)]
struct Drop {
    at: Instant,
    bytes: u16,
    passed: u64,
    chance: u32,
    /// What the bucket showed, if it was known.
    shown: Shown,
}

/// What a policer lets pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    /// In the long run.
    pub(crate) rate: Rate,
    /// Bytes that may pass at once after a pause.
    pub(crate) burst: u64,
}

/// What passed from one drop to those after it, by time: a line, if the bucket was not full in between.
#[derive(Debug, Clone, Copy)]
struct Line {
    first: Drop,
    /// How many drops.
    points: f64,
    /// What passed until the last of them.
    passed: f64,
    /// Of times, of what passed, and of their squares and products.
    sums: [f64; 4],
}

impl Line {
    fn from(first: &Drop) -> Self {
        Self { first: *first, points: 1.0, passed: 0.0, sums: [0.0; 4] }
    }

    fn add(&mut self, time: f64, passed: f64) {
        self.points += 1.0;
        self.passed = passed;
        for (sum, more) in self.sums.iter_mut().zip([time, passed, time * time, time * passed]) {
            *sum += more;
        }
    }

    /// Of the line that comes nearest to all of them (least squares): what is left in the bucket at each differs by up to a packet.
    fn slope(&self) -> f64 {
        let [time, passed, squares, products] = self.sums.map(|sum| sum / self.points);
        (products - time * passed) / (squares - time * time)
    }
}

/// Finds out whether a policer drops what is lost, and how much it lets pass.
#[derive(Debug, Default)]
pub(crate) struct Policer {
    passed: u64,
    drops: VecDeque<Drop>,
    /// What passed lately, while no policer is known.
    history: History,
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
            bucket.on_passed(bytes.into());
        } else {
            self.history.on_passed(at, self.passed);
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
        let shown = match self.filled(at) {
            Some(bucket) => bucket.on_dropped(SLACK * f64::from(bytes)),
            None => {
                self.history.on_dropped(at, self.passed);
                Shown::default()
            }
        };
        if let Some(last) = self.drops.back_mut().filter(|last| last.passed == self.passed) {
            // The bucket was empty, as it was just before.
            last.chance += u32::from(!known);
            return known.into();
        }
        if self.drops.len() == LOOKED_AT {
            self.drops.pop_front();
        }
        self.drops.push_back(Drop { at, bytes, passed: self.passed, chance: u32::from(!known), shown });
        self.since_look += 1;
        if self.drops.len() < LOOKED_AT || self.since_look < STEP {
            return known.into();
        }
        self.since_look = 0;
        let seen = self.look();
        let before = std::mem::replace(&mut self.seen, seen);
        let agree = |rate: Rate| before.is_some_and(|before| before <= rate * AGREEMENT && rate <= before * AGREEMENT);
        self.found = seen.filter(|rate| agree(*rate)).map(|rate| (rate, at));
        if let Some((rate, _)) = self.found.filter(|_| !known) {
            self.bucket = Some(self.history.fill(self.bucket, at, rate));
        }
        match (self.found, self.drops.back_mut()) {
            (None, Some(last)) => {
                last.chance = 1;
                0
            }
            (Some(_), _) if !known => self.drops.iter_mut().map(|drop| std::mem::take(&mut drop.chance)).sum(),
            _ => 1,
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
        // Nor faster, if it was not full in between. Of those on end between which it was not, those tell most between which most passed.
        let mut line = Line::from(self.drops.front()?);
        let (mut runs, mut best, mut fullest) = (1, line, 0.0_f64);
        for drop in self.drops.iter().skip(1) {
            let (time, passed) = between(&line.first, drop);
            let more = passed - rate * time;
            fullest = fullest.max(more);
            let full = fullest - more > slack;
            if full || drop.shown.full {
                // That a bucket is empty that was known to be is no sign of chance.
                runs += usize::from(full && !drop.shown.empty);
                (line, fullest) = (Line::from(drop), 0.0);
                continue;
            }
            line.add(time, passed);
            if line.passed > best.passed {
                best = line;
            }
        }
        if best.passed == 0.0 || runs * RUN > LOOKED_AT {
            return None;
        }
        // A few drops tell little of the rate of a policer that is known.
        let known = self.rate().filter(|_| best.points < LEAST_POINTS);
        Some(known.unwrap_or_else(|| Rate::from_bytes_per_second(best.slope())))
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
    fn who_keeps_to_it_does_not_forget_it() {
        // Once it is known, a little more than the bucket holds leaves at once, ten times a second: it has been full each time that it drops.
        let (start, mut policer, mut passes) = (Instant::now(), Policer::default(), bucket(1e6, 30e3));
        let (mut t, mut lost, mut told) = (Duration::ZERO, 0, 0);
        let mut send = |policer: &mut Policer, t: Duration, packets: u32| {
            for _ in 0..packets {
                if passes(t, 1_200.0) {
                    policer.on_passed(start + t, 1_200);
                } else {
                    lost += 1;
                    told += policer.on_dropped(start + t, 1_200);
                }
            }
            (lost, told)
        };
        while policer.limit().is_none() {
            send(&mut policer, t, 2);
            t += MS;
        }
        // Those before the ones that were looked at are not told of.
        let before = send(&mut policer, t, 0);
        for _ in 0..200 {
            t += MS * 100;
            send(&mut policer, t, 27);
        }
        let (lost, told) = send(&mut policer, t, 0);
        let (lost, told) = (lost - before.0, told - before.1);
        assert!(lost > 200 && lost - told < STEP as u32, "{told} of {lost}");
        assert!(policer.limit().is_some());
    }

    #[test]
    fn nothing_is_put_down_to_it_twice() {
        // Losses by chance once it is known, so that it is forgotten and found again.
        let (mut by_chance, mut passes) = (chance(1, 0.05, 1.0), bucket(1e6, 30e3));
        let both = move |t: Duration, bytes| {
            let struck = t > MS * 2_000 && t < MS * 8_000;
            if struck { by_chance(t, bytes) } else { passes(t, bytes) }
        };
        let (_, told, lost) = send(20_000, |_| MS * 4 / 5, both);
        assert!(told <= lost && told > lost / 4, "{told} of {lost}");
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
