//! What is known of one path: the bucket being filled, and the level it is at.

use super::{CONFIRM, HOLD, LEARN_MAX, Micros, STEP, TOUCH};
use crate::base::PathId;

/// Length of a bucket, µs. Several reports fall into it even where they come only every 100 ms, and drift does not matter within it.
const BUCKET: u64 = 500_000;
/// Length of a path's first bucket, µs: each direction's minimum is taken over all that was heard, as the best two of them
/// seldom fall into one short bucket. An unknown drift of 200 ppm costs 0.2 ms meanwhile.
const FIRST_BUCKET: u64 = 2_000_000;
/// Samples of each direction that a bucket of that length should hold: the minimum of fewer is seldom free of queueing.
const BUCKET_SAMPLES: u32 = 4;
/// A bucket with fewer samples stays open for this long, µs.
const BUCKET_PATIENT: u64 = 1_000_000;
/// A bucket that still lacks one direction after this long, µs, or after twice its length, is discarded.
const BUCKET_MAX: u64 = 2_500_000;
/// The longest bucket there may be, µs. Drift that is not known yet, 200 ppm, is 0.8 ms meanwhile.
const BUCKET_LONGEST: u64 = 4_000_000;
/// Buckets whose RTTs differ by more than this, µs, from one to the next are noisy: so few datagrams are undelayed that the least of half a second are not. A bucket of twice the length halves what
/// the fastest of datagrams that are delayed by pure chance had to wait.
const NOISY: f64 = 500.0;
/// Buckets become longer after so many noisy ones on end, and shorter after so many others: a step, or a clock that jumps, makes two noisy ones.
const UNREST: i32 = 7;
const REST: i32 = -16;
/// The share that the latest difference has in their average, once there are as many as that stands for; until then they are averaged alike.
const NOISE_SHARE: f64 = 0.25;
/// What is less, µs, is none.
const QUIET: f64 = 300.0;

/// A round-trip time and how it divides: the delay towards the peer is `rtt / 2 + asymmetry`. Microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    pub(super) rtt: f64,
    pub(super) asymmetry: f64,
    /// Whether the asymmetry was measured against the clock; else it was assumed, and the clock is set by it.
    pub(super) learnt: bool,
}

impl Level {
    /// Takes in one of `touches` buckets at this level.
    fn touch(&mut self, seen: Self, touches: u32) {
        self.rtt = self.rtt.min(seen.rtt);
        self.asymmetry += (seen.asymmetry - self.asymmetry) / f64::from(touches);
    }

    fn is_near(&self, other: &Self, gate: f64) -> bool {
        (self.rtt - other.rtt).abs() <= STEP && (self.asymmetry - other.asymmetry).abs() <= gate
    }
}

/// The smallest delays of each direction over a short while, by the filter's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    since: Micros,
    forward: f64,
    backward: f64,
    forward_samples: u32,
    backward_samples: u32,
}

impl Bucket {
    fn new(since: Micros) -> Self {
        Self { since, forward: f64::INFINITY, backward: f64::INFINITY, forward_samples: 0, backward_samples: 0 }
    }

    pub(super) fn add_forward(&mut self, delay: f64) {
        self.forward = self.forward.min(delay);
        self.forward_samples = self.forward_samples.saturating_add(1);
    }

    pub(super) fn add_backward(&mut self, delay: f64) {
        self.backward = self.backward.min(delay);
        self.backward_samples = self.backward_samples.saturating_add(1);
    }

    /// The smallest delay from the peer, if any was seen.
    pub(super) fn backward(&self) -> Option<f64> {
        Some(self.backward).filter(|delay| delay.is_finite())
    }

    fn is_due(&self, length: u64, now: Micros) -> bool {
        let age = now.saturating_sub(self.since);
        let samples = self.forward_samples.min(self.backward_samples);
        age >= BUCKET_MAX.max(2 * length)
            || age >= BUCKET_PATIENT.max(length) && samples > 0
            || age >= length && samples >= BUCKET_SAMPLES
    }

    /// What it says, if it has both directions and is possible: a round trip takes time.
    pub(super) fn measured(&self) -> Option<Level> {
        let rtt = self.forward + self.backward;
        let asymmetry = (self.forward - self.backward) / 2.0;
        (rtt.is_finite() && rtt >= 0.0).then_some(Level { rtt, asymmetry, learnt: true })
    }

    /// What it says; begins the next.
    pub(super) fn take(&mut self, now: Micros) -> Option<Level> {
        let measured = self.measured();
        *self = Self::new(now);
        measured
    }

    fn shift(&mut self, by: f64) {
        self.forward -= by;
        self.backward += by;
    }
}

/// A level that may replace another.
#[derive(Debug, Clone, Copy)]
struct Trial {
    level: Level,
    /// Buckets that were at it.
    touches: u32,
    since: Micros,
}

impl Trial {
    fn touch(&mut self, seen: Level) {
        if seen.rtt <= self.level.rtt + TOUCH {
            self.touches += 1;
            self.level.touch(seen, self.touches);
        }
    }
}

/// One path.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathClock {
    pub(super) id: PathId,
    pub(super) heard: Micros,
    pub(super) bucket: Bucket,
    /// Where the path is.
    pub(super) level: Option<Level>,
    /// Buckets that were at the level.
    pub(super) touches: u32,
    /// Whether the level is believed, so that it measures the clock; else the clock measures it.
    pub(super) tracking: bool,
    /// The lowest level believed so far: where the path returns to when its queues have drained.
    home: Option<Level>,
    /// Since when the level is being learnt, or when it was last seen.
    since: Micros,
    /// What may be the next level.
    trial: Option<Trial>,
    /// How long its buckets are, µs; what the last one said; by how much each direction's delay differs from one to the next on average; how many were noisy of late, or, if negative,
    /// were not; and how many differences there were.
    length: u64,
    last: Option<Level>,
    noise: [f64; 2],
    unrest: i32,
    changes: u32,
    /// The asymmetry of the last bucket, if that had the level's RTT and not its asymmetry.
    jumped: Option<f64>,
    /// The last bucket was not possible, and had less than the level's RTT.
    torn: bool,
}

impl PathClock {
    pub(super) fn new(id: PathId, now: Micros) -> Self {
        Self {
            id,
            heard: now,
            bucket: Bucket::new(now),
            level: None,
            touches: 0,
            tracking: false,
            home: None,
            since: now,
            trial: None,
            length: BUCKET,
            last: None,
            noise: [0.0; 2],
            unrest: 0,
            changes: 0,
            jumped: None,
            torn: false,
        }
    }

    pub(super) fn is_due(&self, now: Micros) -> bool {
        self.bucket.is_due(if self.level.is_none() { FIRST_BUCKET } else { self.length }, now)
    }

    /// A bucket said this: the next ones are as long as it takes to find datagrams that did not wait.
    pub(super) fn note_noise(&mut self, seen: &Level) {
        let Some(last) = self.last.replace(*seen) else { return };
        let (rtt, asymmetry) = (seen.rtt - last.rtt, seen.asymmetry - last.asymmetry);
        self.changes = self.changes.saturating_add(1);
        let share = NOISE_SHARE.max(1.0 / f64::from(self.changes));
        for (noise, change) in self.noise.iter_mut().zip([rtt / 2.0 + asymmetry, rtt / 2.0 - asymmetry]) {
            // Of a step, or a queue that comes and stays, one look is enough.
            *noise += share * (change.abs().min(STEP) - *noise);
        }
        self.unrest = if self.both() > NOISY { self.unrest.max(0) + 1 } else { self.unrest.min(0) - 1 };
        if self.unrest >= UNREST {
            self.unrest = 0;
            self.length = (2 * self.length).min(BUCKET_LONGEST);
        } else if self.unrest <= REST {
            self.unrest = 0;
            self.length = (self.length / 2).max(BUCKET);
        }
    }

    /// By how much RTTs differ from one bucket to the next because of what happens in both directions, µs. Where one is quiet, it tells the time by itself.
    fn both(&self) -> f64 {
        2.0 * self.noise[0].min(self.noise[1])
    }

    /// What an RTT may be above the level and still be at it, µs.
    pub(super) fn step(&self) -> f64 {
        STEP.max(3.0 * self.both())
    }

    /// By how much a bucket is off because datagrams are delayed by chance, µs: about half of what its RTT differs from the next.
    pub(super) fn noise(&self) -> f64 {
        if self.both() > QUIET { self.both() / 2.0 } else { 0.0 }
    }

    /// How long a level may be tried.
    fn learn_max(&self) -> u64 {
        LEARN_MAX.max(4 * u64::from(CONFIRM) * self.length)
    }

    /// Begins to learn a level.
    pub(super) fn learn_level(&mut self, level: Level, now: Micros) {
        self.level = Some(level);
        self.touches = 1;
        self.tracking = false;
        self.since = now;
        self.trial = None;
    }

    /// The level is believed from now on.
    pub(super) fn confirm(&mut self, now: Micros) {
        let Some(level) = self.level else { return };
        self.tracking = true;
        self.since = now;
        self.trial = None;
        if self.home.is_none_or(|home| level.rtt <= home.rtt + STEP) {
            self.home = Some(level);
        }
    }

    /// A bucket while the level is being learnt.
    pub(super) fn learn(&mut self, seen: Level, gate: f64, now: Micros) {
        if self.return_home(&seen, gate, now) {
            return;
        }
        let Some(level) = self.level.as_mut().filter(|level| seen.rtt >= level.rtt - TOUCH) else {
            self.learn_level(seen, now);
            return;
        };
        if seen.rtt <= level.rtt + TOUCH {
            self.touches += 1;
            level.touch(seen, self.touches);
        }
        let tried = now.saturating_sub(self.since);
        if self.touches >= CONFIRM || self.touches > 1 && tried > self.learn_max() {
            self.confirm(now);
        } else if tried > self.learn_max() {
            // Seen once and never again.
            self.learn_level(seen, now);
        }
    }

    /// A bucket was at the level. Returns by how much it says that θ differs from the prediction.
    pub(super) fn agree(&mut self, seen: Level, now: Micros) -> f64 {
        self.since = now;
        (self.trial, self.jumped) = (None, None);
        let Some(level) = &mut self.level else { return 0.0 };
        let drop = (level.rtt - seen.rtt).max(0.0);
        level.rtt -= drop;
        if level.learnt {
            // When the asymmetry was learnt there was this much queueing, in one direction or the other, taken for the
            // path's own. Were it kept, the floor would sink in both directions, and pull the clock along each time.
            level.asymmetry += (seen.asymmetry - level.asymmetry).clamp(-drop / 2.0, drop / 2.0);
        }
        seen.asymmetry - level.asymmetry
    }

    /// A bucket was not at the level, which was believed: a queue, or the path has changed. The level stands, and with it
    /// what it says of the direction that did not change, until another has been seen as often.
    pub(super) fn disagree(&mut self, seen: Level, gate: f64, now: Micros) {
        if self.return_home(&seen, gate, now) {
            return;
        }
        if self.home.is_some_and(|home| seen.rtt < home.rtt - STEP) {
            self.home = None;
        }
        let learn_max = self.learn_max();
        let fresh = Trial { level: seen, touches: 1, since: now };
        let trial = match &mut self.trial {
            Some(trial) if now.saturating_sub(trial.since) <= learn_max && seen.rtt >= trial.level.rtt - TOUCH => {
                trial.touch(seen);
                *trial
            }
            trial => *trial.insert(fresh),
        };
        let fell = self.level.is_some_and(|level| trial.level.rtt < level.rtt - STEP);
        if trial.touches >= CONFIRM && (fell || now.saturating_sub(self.since) > HOLD) {
            self.level = Some(trial.level);
            self.confirm(now);
        }
    }

    /// Whether two buckets on end have had the level's RTT and, both alike, another asymmetry: one direction would have become longer by
    /// just as much as the other became shorter. That is no path, it is a clock.
    pub(super) fn has_jumped(&mut self, seen: &Level, gate: f64) -> bool {
        let Some(level) = self.level else { return false };
        let jumps = (seen.rtt - level.rtt).abs() <= STEP && (seen.asymmetry - level.asymmetry).abs() > gate;
        let before = std::mem::replace(&mut self.jumped, jumps.then_some(seen.asymmetry));
        jumps && before.is_some_and(|before| (before - seen.asymmetry).abs() <= TOUCH.max(2.0 * self.noise()))
    }

    /// A bucket says that a delay is negative. Where a clock jumped while it was filled, that is half of it: its RTT is too short, and the next
    /// one tells. Returns whether to wait for that.
    pub(super) fn is_torn(&mut self, seen: &Level) -> bool {
        let shorter = self.level.is_some_and(|level| seen.rtt < level.rtt - STEP);
        self.torn = shorter && !self.torn;
        self.torn
    }

    /// When the path was last at its level, if that is believed.
    pub(super) fn agreed(&self) -> Option<Micros> {
        self.level.filter(|_| self.tracking).map(|_| self.since)
    }

    /// The filter corrected θ: delays measured by the old one change, levels stand.
    pub(super) fn clock_corrected(&mut self, by: f64) {
        self.bucket.shift(by);
        self.trial.iter_mut().for_each(|trial| trial.level.asymmetry -= by);
        self.jumped.iter_mut().for_each(|asymmetry| *asymmetry -= by);
    }

    /// θ was assumed wrongly: asymmetries as well change.
    pub(super) fn clock_moved(&mut self, by: f64) {
        self.clock_corrected(by);
        self.level.iter_mut().chain(&mut self.home).for_each(|level| level.asymmetry -= by);
    }

    fn return_home(&mut self, seen: &Level, gate: f64, now: Micros) -> bool {
        let Some(home) = self.home.filter(|home| home.is_near(seen, gate) && self.level != Some(*home)) else {
            return false;
        };
        self.level = Some(home);
        self.tracking = true;
        self.since = now;
        self.trial = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first difference of two buckets is all that is known, and no small share of it.
    #[test]
    fn noise_is_known_from_the_first_difference_on() {
        let mut path = PathClock::new(PathId(0), 0);
        let seen = |rtt| Level { rtt, asymmetry: 0.0, learnt: true };
        [80_000.0, 84_000.0].iter().for_each(|&rtt| path.note_noise(&seen(rtt)));
        assert!((path.noise() - 2_000.0).abs() < 1.0);
        [84_000.0; 3].iter().for_each(|&rtt| path.note_noise(&seen(rtt)));
        assert!((path.noise() - 500.0).abs() < 1.0);
        path.note_noise(&seen(84_000.0));
        assert!((path.noise() - 375.0).abs() < 1.0);
    }
}
