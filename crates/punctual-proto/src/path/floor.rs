//! How long the empty path takes one way.

use std::time::{Duration, Instant};

use super::law::Law;
use crate::least::Least;

/// How long the shortest delay is believed, or up to twice as long.
const MEMORY: Duration = Duration::from_secs(10);
/// Packets that nothing of ours can have been in the way of, and the time over which they came, after which the least of them is the
/// floor though it is higher than before: a burst of cross traffic is seldom in the way of all.
const CLEAN: (u32, Duration) = (8, Duration::from_millis(250));
/// For a flow with few packets: so many over so long will do.
const CLEAN_SPARSE: (u32, Duration) = (4, Duration::from_secs(1));
/// The floor is not raised for less than this: it is as good as noise.
const RISE: i64 = 1_000;
/// Packets of up to so many bytes have a floor of their own, for on a slow link their serialisation is much of the delay.
const CLASSES: [u16; 2] = [300, 800];
/// The share of clean packets whose excess over the floor is taken for jitter.
const JITTER_SHARE: f64 = 0.9;

/// Clean packets whose delays are compared.
const NEIGHBOURS: usize = 4;
/// And any packets that came within so long, or up to twice as long.
const LATELY: Duration = Duration::from_millis(50);

/// What packets vary by is remembered for so long, or up to twice as long.
const JITTER_MEMORY: Duration = Duration::from_secs(3);

/// A delay from sender to receiver, microseconds; off by the difference of the two clocks, which is the same for all.
pub(crate) type Delay = i64;

/// The shortest delay of a path, by size of packet, and what varies above it when the path should be empty.
///
/// The shortest delay of late is the floor. It falls at once. It rises when *clean* packets, those that left so long after all
/// others that none of ours can have been in their way, all take longer: then the route has become longer, or others fill the queue for
/// good, which is the same to who sends so little. Who never pauses has to make room and look ([`raise`](Self::raise)).
#[derive(Debug)]
pub(crate) struct Floor {
    least: [Least<Delay>; CLASSES.len() + 1],
    clean: Option<Clean>,
    /// What clean packets exceed their neighbours by, and did in the time before.
    excess: Law,
    excess_before: Law,
    excess_since: Option<Instant>,
    /// By how much the latest clean packets exceeded the floor.
    recent: [Duration; NEIGHBOURS],
    /// The least by which any did.
    lately: Least<Duration>,
}

/// Clean packets since the floor was last compared with them.
#[derive(Debug, Clone, Copy)]
struct Clean {
    /// The least of what they exceed the floor by.
    excess: Delay,
    count: u32,
    since: Instant,
}

impl Default for Floor {
    fn default() -> Self {
        Self {
            least: std::array::from_fn(|_| Least::over(MEMORY)),
            clean: None,
            excess: Law::of(JITTER_SHARE),
            excess_before: Law::of(JITTER_SHARE),
            excess_since: None,
            recent: [Duration::MAX; NEIGHBOURS],
            lately: Least::over(LATELY),
        }
    }
}

impl Floor {
    /// A packet of `bytes` took so long. Returns by how much that exceeds the floor, and whether the floor has risen.
    pub(crate) fn add(&mut self, bytes: u16, delay: Delay, clean: bool, now: Instant) -> (Duration, bool) {
        self.least[class(bytes)].add(delay, now);
        let excess = delay - self.of(bytes).unwrap_or(delay);
        let risen = clean && self.note_clean(excess, now);
        let excess = delay - self.of(bytes).unwrap_or(delay);
        let excess = Duration::from_micros(excess.max(0).cast_unsigned());
        self.lately.add(excess, now);
        if now.saturating_duration_since(*self.excess_since.get_or_insert(now)) > JITTER_MEMORY {
            self.excess_before = std::mem::replace(&mut self.excess, Law::of(JITTER_SHARE));
            self.excess_since = Some(now);
        }
        if clean {
            // Compared with its neighbours: what all of them wait for is a queue, though not of ours.
            let lately = self.lately.get().unwrap_or(excess).min(excess);
            let least = self.recent.iter().fold(lately, |least, recent| least.min(*recent));
            self.excess.add(excess - least);
            self.recent.rotate_right(1);
            self.recent[0] = excess;
        }
        (excess, risen)
    }

    fn note_clean(&mut self, excess: Delay, now: Instant) -> bool {
        let clean = self.clean.get_or_insert(Clean { excess, count: 0, since: now });
        clean.excess = clean.excess.min(excess);
        clean.count += 1;
        let (count, excess, age) = (clean.count, clean.excess, now.saturating_duration_since(clean.since));
        let enough = [CLEAN, CLEAN_SPARSE].iter().any(|(least, time)| count >= *least && age >= *time);
        if enough {
            self.clean = None;
            if excess > RISE {
                self.raise(excess, now);
                return true;
            }
        }
        false
    }

    /// The path has become so much longer.
    pub(crate) fn raise(&mut self, by: Delay, now: Instant) {
        for least in &mut self.least {
            if let Some(floor) = least.get() {
                least.set(floor + by, now);
            }
        }
        self.clean = None;
        // What exceeded the floor until now did so by this much too much.
        (self.excess, self.excess_before) = (Law::of(JITTER_SHARE), Law::of(JITTER_SHARE));
        self.forget_neighbours();
    }

    /// Begins anew: nothing of what was seen is to be compared with what comes.
    pub(crate) fn clear(&mut self) {
        self.least.iter_mut().for_each(Least::clear);
        self.clean = None;
        self.forget_neighbours();
    }

    fn forget_neighbours(&mut self) {
        self.recent = [Duration::MAX; NEIGHBOURS];
        self.lately.clear();
    }

    /// The shortest delay of a packet of `bytes`: no smaller packet takes longer than a larger one.
    pub(crate) fn of(&self, bytes: u16) -> Option<Delay> {
        let own = class(bytes);
        let larger = self.least[own..].iter().filter_map(Least::get).min();
        larger.or_else(|| self.least[..own].iter().rev().find_map(Least::get))
    }

    /// What clean packets vary by above the floor.
    pub(crate) fn jitter(&self) -> Duration {
        let seen = [&self.excess, &self.excess_before].into_iter().filter_map(Law::quantile);
        seen.max().unwrap_or_default()
    }
}

fn class(bytes: u16) -> usize {
    CLASSES.iter().position(|largest| bytes <= *largest).unwrap_or(CLASSES.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Frames of five packets, 33 ms apart; the first of each is clean. What the last one exceeds the floor by, in ms.
    fn frames(floor: &mut Floor, start: Instant, count: u32, delay: Delay) -> u128 {
        let mut last = Duration::ZERO;
        for frame in 0..count {
            for packet in 0..5 {
                let clean = packet == 0;
                last = floor.add(1_200, delay + i64::from(packet) * 1_000, clean, start + MS * 33 * frame).0;
            }
        }
        last.as_millis()
    }

    #[test]
    fn it_falls_at_once_and_rises_when_clean_packets_say_so() {
        let (start, mut floor) = (Instant::now(), Floor::default());
        assert_eq!(frames(&mut floor, start, 30, -5_000_000), 4);
        assert_eq!(frames(&mut floor, start + MS * 1_000, 8, -4_950_000), 54, "it may be a queue");
        assert_eq!(frames(&mut floor, start + MS * 1_300, 30, -4_950_000), 4);
        assert_eq!(frames(&mut floor, start + MS * 2_300, 1, -4_990_000), 4);
    }

    #[test]
    fn what_waits_behind_ours_raises_nothing() {
        let (start, mut floor) = (Instant::now(), Floor::default());
        floor.add(1_200, 10_000, true, start);
        for i in 1..1_000 {
            let (excess, risen) = floor.add(1_200, 60_000, false, start + MS * i);
            assert!(!risen && excess == MS * 50);
        }
    }

    #[test]
    fn small_packets_have_their_own_floor() {
        let (start, mut floor) = (Instant::now(), Floor::default());
        floor.add(1_200, 19_000, true, start);
        assert_eq!(floor.of(100), Some(19_000));
        floor.add(100, 1_600, true, start);
        assert_eq!([100, 500, 1_200].map(|bytes| floor.of(bytes)), [Some(1_600), Some(19_000), Some(19_000)]);
        floor.add(1_200, 1_000, true, start);
        assert_eq!(floor.of(100), Some(1_000));
    }

    #[test]
    fn jitter_is_what_clean_packets_vary_by() {
        let (start, mut floor) = (Instant::now(), Floor::default());
        for i in 0..200_u32 {
            floor.add(1_200, i64::from(i * 7 % 10) * 1_000, true, start + MS * 33 * i);
        }
        assert!((MS * 8..MS * 14).contains(&floor.jitter()), "{:?}", floor.jitter());
    }

    #[test]
    fn what_all_wait_for_is_no_jitter_and_jitter_is_forgotten() {
        let (start, mut floor) = (Instant::now(), Floor::default());
        floor.add(1_200, 0, true, start);
        // A queue of others that grows to 60 ms and goes again, a packet of ours every 10 ms.
        let queue = |i: u32| i64::from(30_u32.abs_diff(i % 60)) * 2_000;
        for i in 1..600 {
            floor.add(1_200, queue(i), true, start + MS * 10 * i);
        }
        assert!(floor.jitter() < MS * 20, "{:?}", floor.jitter());
        let rough = start + MS * 20_000;
        for i in 0..100 {
            floor.add(1_200, i64::from(i % 2) * 40_000, true, rough + MS * 50 * i);
        }
        assert!(floor.jitter() > MS * 35, "{:?}", floor.jitter());
        let smooth = rough + MS * 5_000;
        for i in 0..800 {
            floor.add(1_200, 0, true, smooth + MS * 10 * i);
        }
        assert!(floor.jitter() < MS, "{:?}", floor.jitter());
    }
}
