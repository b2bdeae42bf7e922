//! How much is handed over, and what of it is best left out if that is more than can be carried.
//!
//! A scheduler that looks at what is there sees that not all of it can be in time when that is so, which is too late for what depends on each
//! other: the end of one family of frames has been sent by then, and the next one loses its beginning and with it all that follows. In lasting overload
//! somebody has to go without anyway; it had best be those of least use for their bytes, which for families are their last members.
//!
//! Redundancy comes on top, and what makes up for one loss must not make all that follow late: behind a queue that never becomes shorter all is late,
//! until there was room to catch up. So redundancy gets a share of what the paths carry beside what is handed over, and the rest is there to catch
//! up with.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Seconds over which it is averaged: longer than the rhythm of most sources, with large blocks among the small, and short enough to follow
/// one that begins or ends.
const SPAN: f64 = 2.0;
/// How long it is taken to have been observed at least: what comes at once is no rate.
const LEAST_SPAN: f64 = 0.5;
/// So fine prices are told apart: to a quarter of an octave.
const STEPS_PER_OCTAVE: f64 = 4.0;
/// With less than this left of what was offered, nobody hands over any more, bytes.
const LEAST_BYTES: f64 = 1.0;
/// How often it is judged what is too much.
const JUDGED_EVERY: Duration = Duration::from_millis(20);

/// The share of what is left beside what is handed over that redundancy may take. Chosen on the gauntlet's dependent video; see
/// `docs/design.md`.
const REDUNDANCY_SHARE: f64 = 0.5;
/// So many seconds of what the paths carry can be redundancy at once, where it was not needed for a while. With twice as much, 86 % of a video were
/// on time where 88 are (`docs/design.md`).
const REDUNDANCY_BURST: f64 = 0.05;

/// Blocks that are as important and cost about as much: the priority, and the price in steps.
type Class = (u8, i16);

/// What was handed over lately that has a deadline.
#[derive(Debug, Default)]
pub(super) struct Load {
    offered: BTreeMap<Class, Offered>,
    /// When the first block of each priority came.
    since: BTreeMap<u8, Instant>,
    /// Those beyond this class are more than can be carried.
    limit: Option<Class>,
    judged: Option<Instant>,
    /// Bytes of redundancy there was room for, and when.
    room: Option<(Instant, f64)>,
}

/// Bytes, each of which counts less with time, as of a moment.
#[derive(Debug, Clone, Copy)]
struct Offered {
    bytes: f64,
    at: Instant,
}

impl Offered {
    fn bytes_at(&self, now: Instant) -> f64 {
        self.bytes * (-now.saturating_duration_since(self.at).as_secs_f64() / SPAN).exp()
    }

    fn rate(&self, now: Instant, since: Instant) -> f64 {
        let observed = now.saturating_duration_since(since).as_secs_f64().max(LEAST_SPAN);
        self.bytes_at(now) / (SPAN * (1.0 - (-observed / SPAN).exp()))
    }
}

fn class(priority: u8, price: f64) -> Class {
    (priority, (price.max(1.0).log2() * STEPS_PER_OCTAVE) as i16)
}

impl Load {
    /// A block was handed over that costs `price` bytes for each that is of use with it.
    pub(super) fn add(&mut self, now: Instant, priority: u8, price: f64, bytes: u64) {
        self.since.entry(priority).or_insert(now);
        let class = class(priority, price);
        if !self.offered.contains_key(&class) {
            // New ones are few; those that nobody hands over any more make room.
            self.offered.retain(|_, offered| offered.bytes_at(now) >= LEAST_BYTES);
        }
        let offered = self.offered.entry(class).or_insert(Offered { bytes: 0.0, at: now });
        *offered = Offered { bytes: offered.bytes_at(now) + bytes as f64, at: now };
    }

    /// Whether it is time to [judge](Self::judge).
    pub(super) fn is_to_be_judged(&self, now: Instant) -> bool {
        self.judged.is_none_or(|judged| now >= judged + JUDGED_EVERY)
    }

    /// So many bytes are `waiting`, for paths that carry `rate` bytes per second: what is too much for them?
    pub(super) fn judge(&mut self, now: Instant, waiting: u64, rate: f64) {
        self.judged = Some(now);
        let mut excess = self.rate(now, u8::MAX) + waiting as f64 / SPAN - rate;
        self.limit = None;
        if excess <= 0.0 {
            return;
        }
        for (class, offered) in self.offered.iter().rev() {
            excess -= offered.rate(now, self.since[&class.0]);
            if excess <= 0.0 {
                // What is beyond it does not suffice, and it is not all too much.
                self.limit = Some(*class);
                return;
            }
        }
        // More waits than could go in that time, whatever is left out: then all but the first is.
        let live = self.offered.iter().find(|(_, offered)| offered.bytes_at(now) >= LEAST_BYTES);
        self.limit = live.map(|(class, _)| *class);
    }

    /// Bytes per second of blocks that are as important as this, or more.
    pub(super) fn rate(&self, now: Instant, priority: u8) -> f64 {
        let offered = self.offered.range(..=(priority, i16::MAX));
        offered.map(|(class, offered)| offered.rate(now, self.since[&class.0])).sum()
    }

    /// How many bytes of redundancy there is room for on paths that carry `rate` bytes per second.
    pub(super) fn redundancy_room(&mut self, now: Instant, rate: f64) -> f64 {
        let most = rate * REDUNDANCY_BURST;
        let left = (rate - self.rate(now, u8::MAX)).max(0.0);
        let gained = |since| now.saturating_duration_since(since).as_secs_f64() * left * REDUNDANCY_SHARE;
        let room = self.room.map_or(most, |(since, room)| most.min(room + gained(since)));
        self.room = Some((now, room));
        room.max(0.0)
    }

    /// So many bytes of redundancy are to go.
    pub(super) fn on_redundancy(&mut self, bytes: u64) {
        if let Some((_, room)) = &mut self.room {
            *room -= bytes as f64;
        }
    }

    /// Whether some is best left out.
    pub(super) fn is_too_much(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether such a block is among those best left out.
    pub(super) fn is_beyond(&self, priority: u8, price: f64) -> bool {
        self.limit.is_some_and(|limit| class(priority, price) > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.05 * b
    }

    #[test]
    fn it_follows_what_is_offered_by_priority() {
        let mut load = Load::default();
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        for n in 0..1_000 {
            load.add(at(10 * n), 1, 1e3, 1_000);
            load.add(at(10 * n), 5, 1e3, 500);
        }
        assert_eq!(load.rate(at(10_000), 0), 0.0);
        // A block every 10 ms.
        assert!(near(load.rate(at(10_000), 1), 100_000.0), "{}", load.rate(at(10_000), 1));
        assert!(near(load.rate(at(10_000), 255), 150_000.0));
        assert!(load.rate(at(20_000), 255) < 1_500.0);
    }

    #[test]
    fn what_has_just_begun_is_known_at_once() {
        let mut load = Load::default();
        let start = Instant::now();
        for n in 0..100 {
            load.add(start + Duration::from_millis(10 * n), 1, 1e3, 1_000);
        }
        let rate = load.rate(start + Duration::from_millis(1_000), 1);
        assert!(near(rate, 100_000.0), "{rate}");
    }

    #[test]
    fn what_is_too_much_is_the_least_important_and_of_that_the_dearest() {
        let start = Instant::now();
        let beyond = |rate: f64| {
            let mut load = Load::default();
            for n in 0..2_000 {
                // 100 KB/s each: important ones, cheap ones, dear ones.
                let now = start + Duration::from_millis(10 * n);
                load.add(now, 0, 50e3, 1_000);
                load.add(now, 1, 1e3, 1_000);
                load.add(now, 1, 10e3, 1_000);
            }
            load.judge(start + Duration::from_secs(20), 0, rate);
            [(0, 50e3), (1, 1e3), (1, 10e3), (1, 20e3)].map(|(priority, price)| load.is_beyond(priority, price))
        };
        assert_eq!(beyond(310e3), [false; 4], "there is room for all");
        assert_eq!(beyond(250e3), [false, false, false, true], "what is not all too much is not left out");
        assert_eq!(beyond(190e3), [false, false, true, true]);
        assert_eq!(beyond(90e3), [false, true, true, true]);
        assert_eq!(beyond(10e3), [false, true, true, true]);
    }

    #[test]
    fn redundancy_gets_half_of_what_is_left() {
        let start = Instant::now();
        let at = |n: u32| start + Duration::from_millis(10) * n;
        // 100 KB/s are handed over.
        let taken = |rate: f64| {
            let mut load = Load::default();
            let mut taken = 0;
            for n in 0..1_000 {
                load.add(at(n), 0, 1e3, 1_000);
                let room = load.redundancy_room(at(n), rate) as u64;
                load.on_redundancy(room);
                taken += if n < 100 { 0 } else { room };
            }
            taken as f64 / 9.0
        };
        assert!(near(taken(200e3), 50e3) && near(taken(120e3), 10e3), "{} {}", taken(200e3), taken(120e3));
        assert!(taken(100e3) < 1e3 && taken(50e3) == 0.0, "{} {}", taken(100e3), taken(50e3));
        // What was not taken is not kept for long.
        let mut load = Load::default();
        assert_eq!([0, 1_000].map(|n| load.redundancy_room(at(n), 1e6)), [5e4; 2]);
    }

    #[test]
    fn the_more_waits_the_more_is_left_out() {
        let (start, mut load) = (Instant::now(), Load::default());
        let at = |n: u32| start + Duration::from_millis(10) * n;
        for n in 0..1_000 {
            load.add(at(n), 0, 1e3, 1_000);
            load.add(at(n), 1, 1e3, 1_000);
        }
        for (waiting, beyond) in [(0, false), (300_000, true), (600_000, true), (60_000_000, true)] {
            load.judge(at(1_000), waiting, 210e3);
            assert_eq!((load.is_beyond(0, 1e3), load.is_beyond(1, 1e3)), (false, beyond), "{waiting}");
        }
        // The important ones come no more.
        (1_000..10_000).for_each(|n| load.add(at(n), 1, 1e3, 1_000));
        load.judge(at(10_000), 60_000_000, 210e3);
        assert!(!load.is_beyond(1, 1e3));
    }
}
