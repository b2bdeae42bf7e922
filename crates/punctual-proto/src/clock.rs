//! The offset between two hosts' clocks, and one-way delays.
//!
//! Deadlines are kept by the receiver's clock and set by the sender's, so each end needs to convert the other's times to its
//! own. Neither clock is trusted: they may be hours apart and drift. `docs/clock.md` has the reasoning with a drawing;
//! this is the summary. It follows DTP (section IV-D: `arrival = send_time + one_way_delay + system_error`, calibrated while the
//! RTT is stable) and NTP's minimum filter (RFC 5905, section 10).
//!
//! # What is measured
//!
//! With θ = the peer's clock minus ours, each timestamp that arrives and each report of one of ours gives one of
//!
//! ```text
//! backward  b = now − peer_sent          = delay from the peer − θ
//! forward   f = peer_received − our_sent = delay to the peer   + θ
//! ```
//!
//! Per path, the smallest f and b of half a second (a *bucket*; the first is longer) make one measurement of two things:
//! `f + b`, the round-trip time, **which no clock error can touch**; and `(f − b)/2 = θ + a`, where the path's *asymmetry*
//! `a = (delay to − delay from)/2` cannot be told from θ by any exchange of messages.
//!
//! # What is concluded
//!
//! 1. The asymmetry of the first path is taken to be 0 (the anchor: the error is at most half its RTT). Until its
//!    smallest RTT has been seen several times, a bucket with a smaller RTT counts for more than all before it.
//! 2. θ and its drift are followed by a Kalman filter of two states, fed by buckets whose RTT is the path's known floor.
//! 3. A clock does not jump. When the RTT leaves the floor, the filter's prediction says which direction changed: the
//!    other still measures θ. What persists becomes the path's new *level* (its RTT and its asymmetry), so a step in one
//!    direction moves the one-way delays and not the clock. A path that returns to its lowest level gets that level's
//!    asymmetry back, so that queues that come and go leave no error behind.
//! 4. A new path's asymmetry is learnt against the filter. A path with less than half the RTT that the anchor's asymmetry was
//!    assumed at takes over as anchor: its assumption can be wrong by less than half as much.
//! 5. A delay is never negative: θ stays within `[−b, f]` of every bucket, whatever the filter says.
//! 6. But a host sleeps, and its clock with it. What would make a delay negative by more than the prediction may be wrong by, or one direction
//!    longer by just as much as the other is shorter, twice on end and against the word of no other path, is a clock that jumped: θ follows at
//!    once, and what is known of the paths stands.
//!
//! Per timestamp this costs a search among at most sixteen paths and a few additions; the filter runs once per bucket.
//! Arithmetic is on `f64` microseconds relative to the first difference seen, where 1 µs is exact for centuries.

use std::time::Duration;

use crate::{base::PathId, limits::MAX_PATHS};

mod filter;
mod path;
mod playout;
#[cfg(test)]
mod tests;
mod unwrap;

use filter::Filter;
use path::{Level, PathClock};
pub(crate) use playout::PlayoutClock;
pub(crate) use unwrap::{Unwrapper, wire};

/// A session's clock: microseconds since an epoch of the endpoint's own choosing.
pub type Micros = u64;

/// The comparison of the two hosts' clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ClockEstimate {
    /// The peer's clock minus ours, microseconds: modulo 2³² (71.6 minutes), as times on the wire are, and so between −2³¹ and 2³¹.
    pub offset_micros: f64,
    /// How fast that grows, parts per million.
    pub skew_ppm: f64,
    /// Bound on the error of the offset: half the smallest round-trip time seen.
    pub error_bound: Duration,
}

/// The oldest report that is believed, µs. Our choice: longer than any sane RTT with the 100 ms a report may wait, and short
/// enough that an uncertain drift (100 ppm) moves θ by no more than 1 ms meanwhile.
const MAX_REPORT_AGE: u64 = 10_000_000;
/// RTTs closer than this, µs, are one and the same floor. Above the granularity of timers and of a busy host's wake-ups.
const TOUCH: f64 = 1_000.0;
/// A change of RTT beyond this, µs, is a change of the path or a queue; below, it is noise and moves θ by half of it
/// at most. At 6,000 a step of 4 ms moves θ by 2.6 ms, and `small_steps_stay_small` fails; at 3,000 the worst is below 2 ms.
const STEP: f64 = 3_000.0;
/// As `STEP`, for what one direction may differ from the filter's prediction, µs, beyond three of its standard deviations.
const GATE: f64 = 2_000.0;
/// How long a path may stay off its level before what is seen meanwhile becomes its level, µs. Longer than most queues
/// stand under a low-delay controller (a BBR probe round is 8 RTT; its RTT probe comes every 5 to 10 s).
const HOLD: u64 = 5_000_000;
/// A level is believed once it has been touched in this many buckets: two seconds of them.
const CONFIRM: u32 = 4;
/// … or has been tried for this long, µs: under heavy queueing the floor is seldom touched.
const LEARN_MAX: u64 = 10_000_000;
/// Standard deviation of a bucket at its floor, µs: the wake-up jitter of two ordinary hosts, halved by the difference.
const FLOOR_SD: f64 = 150.0;
/// Standard deviation of one direction's bucket while the other is queueing, µs: `TOUCH` less what the minimum removes.
const ONE_WAY_SD: f64 = 700.0;
/// A path takes over as anchor below this share of the RTT at which the asymmetry was assumed to be 0.
const TAKEOVER: f64 = 0.5;

/// Whether and how firmly θ is known.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// No path has been heard in both directions.
    Unknown,
    /// The asymmetry of this path is taken to be 0; its floor is still sought.
    Anchoring { path: PathId, since: Micros },
    /// The filter runs, and paths are measured against it.
    Running,
}

/// The estimator: hears every timestamp and every report, and converts between the two clocks.
#[derive(Debug)]
pub(crate) struct Clocks {
    stage: Stage,
    /// The first difference of the clocks seen, µs; all that follows is relative to it.
    origin: Option<i128>,
    filter: Filter,
    paths: Vec<PathClock>,
    /// RTT at which the asymmetry of the anchor was assumed to be 0, µs.
    anchor_rtt: f64,
    /// Smallest RTT seen, µs.
    min_rtt: f64,
    /// The latest time heard of.
    now: Micros,
    /// By how much the peer's clock has gained on ours, µs, as far as the drift was known, and as of when.
    drifted: (f64, Micros),
}

impl Default for Clocks {
    fn default() -> Self {
        Self::new()
    }
}

impl Clocks {
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Unknown,
            origin: None,
            filter: Filter::new(),
            paths: Vec::with_capacity(MAX_PATHS),
            anchor_rtt: f64::INFINITY,
            min_rtt: f64::INFINITY,
            now: 0,
            drifted: (0.0, 0),
        }
    }

    /// A datagram that carries the peer's time `peer_sent` arrived on `path`.
    pub(crate) fn on_arrival(&mut self, path: PathId, peer_sent: u64, now: Micros) {
        let index = self.prepare(path, now);
        let offset = self.relative(peer_sent, now);
        let delay = self.filter.offset_at(now) - offset;
        self.paths[index].bucket.add_backward(delay);
        self.centre(index);
    }

    /// The peer says that it received what we sent on `path` at `our_sent`, and when.
    ///
    /// The more of the least delayed datagrams are reported, the better the clock.
    pub(crate) fn on_reported(&mut self, path: PathId, our_sent: Micros, peer_received: u64, now: Micros) {
        if our_sent > now || now - our_sent > MAX_REPORT_AGE {
            return;
        }
        let index = self.prepare(path, now);
        let offset = self.relative(peer_received, our_sent);
        let delay = offset - self.filter.offset_at(our_sent);
        self.paths[index].bucket.add_forward(delay);
        self.centre(index);
    }

    /// `path` is gone; what was learnt about the clocks stays.
    pub(crate) fn path_closed(&mut self, path: PathId) {
        self.paths.retain(|known| known.id != path);
        if matches!(self.stage, Stage::Anchoring { path: anchor, .. } if anchor == path) {
            self.stage = Stage::Running;
        }
    }

    /// The comparison of the clocks as of the latest time heard of; `None` until a path has been heard in both directions.
    pub(crate) fn estimate(&self) -> Option<ClockEstimate> {
        let origin = self.known_origin()?;
        Some(ClockEstimate {
            offset_micros: modulo(origin as f64 + self.filter.offset_at(self.now)),
            skew_ppm: self.filter.skew() * 1e6,
            error_bound: micros(self.min_rtt / 2.0),
        })
    }

    /// The peer's time as ours.
    pub(crate) fn to_ours(&self, peer: u64) -> Option<Micros> {
        let origin = self.known_origin()?;
        Some(self.filter.invert(i128::from(peer) - origin))
    }

    /// The peer's clock minus ours at a moment of ours, microseconds. As long as the clocks have not been compared, by what was heard from the peer alone: the fastest datagram is taken to have
    /// been `delay` µs on its way. `None` if none with a time was heard.
    pub(crate) fn offset_or_guess(&self, now: Micros, delay: f64) -> Option<f64> {
        if let Some(origin) = self.known_origin() {
            return Some(origin as f64 + self.filter.offset_at(now));
        }
        let fastest = self.paths.iter().filter_map(|path| path.bucket.backward()).min_by(f64::total_cmp)?;
        // Delays are kept relative to the origin and the filter's offset, which is 0 until there is a comparison.
        Some(self.origin? as f64 + delay - fastest)
    }

    /// What the peer's clock would have read at that reading of its own, had it not drifted since the session began, as far as is known. Delays reckoned by it stay what they
    /// are for as long as the network does. A better estimate of the drift changes what is to come, and nothing of what was.
    pub(crate) fn without_drift(&mut self, peers: u64, now: Micros) -> u64 {
        let (drifted, at) = &mut self.drifted;
        *drifted += self.filter.skew() * now.saturating_sub(*at) as f64;
        *at = now.max(*at);
        peers.saturating_add_signed(-(*drifted as i64))
    }

    /// The peer's clock [without its drift](Self::without_drift) minus ours, microseconds, as of the latest time heard of.
    pub(crate) fn offset_without_drift(&self) -> Option<f64> {
        Some(self.known_origin()? as f64 + self.filter.offset_at(self.now) - self.drifted.0)
    }

    fn known_origin(&self) -> Option<i128> {
        self.origin.filter(|_| self.stage != Stage::Unknown)
    }

    /// The peer's clock minus ours by one pair of readings, relative to the origin.
    fn relative(&mut self, peer: u64, ours: Micros) -> f64 {
        let difference = i128::from(peer) - i128::from(ours);
        float(difference - *self.origin.get_or_insert(difference))
    }

    /// Finds or makes the path, and evaluates its bucket if that is due.
    fn prepare(&mut self, id: PathId, now: Micros) -> usize {
        self.now = self.now.max(now);
        let index = match self.paths.iter().position(|known| known.id == id) {
            Some(index) => index,
            None => {
                if self.paths.len() == MAX_PATHS {
                    let oldest = self.paths.iter().min_by_key(|known| known.heard).map(|known| known.id);
                    oldest.into_iter().for_each(|id| self.path_closed(id));
                }
                self.paths.push(PathClock::new(id, now));
                self.paths.len() - 1
            }
        };
        let last = std::mem::replace(&mut self.paths[index].heard, now);
        if self.paths[index].is_due(now) {
            self.evaluate(index, last, now);
        }
        index
    }

    /// Until the first bucket is complete there is nothing better than the middle of what it holds.
    fn centre(&mut self, index: usize) {
        let path = &self.paths[index];
        let Some(seen) = path.bucket.measured() else { return };
        let id = path.id;
        let anchored = |anchor| self.paths.iter().any(|path| path.id == anchor && path.level.is_some());
        match self.stage {
            Stage::Unknown => self.stage = Stage::Anchoring { path: id, since: self.now },
            Stage::Anchoring { path: anchor, .. } if path.level.is_some() || anchored(anchor) => return,
            Stage::Anchoring { path: anchor, .. } if anchor == id => {}
            // Whichever path was heard first, the shorter one is the better anchor.
            Stage::Anchoring { since, .. } if seen.rtt < self.anchor_rtt - STEP => {
                self.stage = Stage::Anchoring { path: id, since };
            }
            _ => return,
        }
        self.min_rtt = self.min_rtt.min(seen.rtt);
        self.anchor_rtt = seen.rtt;
        self.move_clock(seen.asymmetry);
        self.filter.restart(self.now, seen.rtt / 4.0);
    }

    /// A bucket is complete, and the next begins `now`; the last that it holds came at `last`: the stations of the method, in order.
    fn evaluate(&mut self, index: usize, last: Micros, now: Micros) {
        let complete = self.paths[index].bucket.take(now);
        let Some(mut seen) = complete else { return };
        // Of the silence since then it knows nothing.
        self.filter.predict(last);

        // Causality: neither delay is negative.
        let excess = seen.asymmetry - seen.asymmetry.clamp(-seen.rtt / 2.0, seen.rtt / 2.0);
        if excess.abs() > self.gate() {
            if self.paths[index].is_torn(&seen) {
                return;
            }
            let usual = self.paths[index].level.map_or(0.0, |level| level.asymmetry);
            let usual = usual.clamp(-seen.rtt / 2.0, seen.rtt / 2.0);
            self.jump(seen.asymmetry - usual);
            seen.asymmetry = usual;
        } else if excess != 0.0 {
            self.move_clock(excess);
            self.filter.widen(excess);
            seen.asymmetry -= excess;
        }

        self.min_rtt = self.min_rtt.min(seen.rtt);
        self.paths[index].note_noise(&seen);

        let id = self.paths[index].id;
        match self.stage {
            Stage::Unknown => {}
            Stage::Anchoring { path, since } if path == id => self.anchor(index, seen, now, since),
            Stage::Anchoring { since, .. } if seen.rtt < self.anchor_rtt - STEP => {
                self.paths[index].level = None;
                self.stage = Stage::Anchoring { path: id, since };
                self.anchor(index, seen, now, since);
            }
            _ if self.paths[index].tracking => self.track(index, seen, now),
            _ => self.learn(index, seen, now),
        }
    }

    /// The anchor's floor is still sought: less RTT means less queueing, hence a better θ.
    fn anchor(&mut self, index: usize, seen: Level, now: Micros, since: Micros) {
        let Some(mut level) = self.paths[index].level else {
            self.move_clock(seen.asymmetry);
            self.filter.restart(now, FLOOR_SD.max(seen.rtt / 32.0));
            self.anchor_rtt = seen.rtt;
            self.paths[index].learn_level(Level { rtt: seen.rtt, asymmetry: 0.0, learnt: false }, now);
            return;
        };
        let drop = level.rtt - seen.rtt;
        if drop > 0.0 {
            // All buckets so far were queued by this much more, in one direction or the other.
            self.filter.widen(drop / 2.0);
            level.rtt = seen.rtt;
            self.anchor_rtt = seen.rtt;
        }
        let path = &mut self.paths[index];
        path.level = Some(level);
        if drop > TOUCH {
            path.touches = 0;
        }
        path.touches += u32::from(-drop <= TOUCH);
        if path.touches >= CONFIRM || now.saturating_sub(since) > LEARN_MAX {
            path.confirm(now);
            self.stage = Stage::Running;
        }
        let rise = (-drop).max(0.0);
        let shift = seen.asymmetry - level.asymmetry;
        let (step, noise) = (path.step(), path.noise());
        if rise <= step {
            self.correct(shift, FLOOR_SD.hypot(rise / 2.0).hypot(noise));
        } else {
            self.correct_one_way(rise, shift, step, noise);
        }
    }

    /// The path's level is not known yet: it is measured against the clock, and tells nothing about it.
    fn learn(&mut self, index: usize, seen: Level, now: Micros) {
        let gate = self.gate();
        let path = &mut self.paths[index];
        path.learn(seen, gate, now);
        let Some(level) = path.level.filter(|_| path.tracking) else { return };
        if self.stage == Stage::Running && level.rtt < self.anchor_rtt * TAKEOVER {
            self.move_clock(level.asymmetry);
            self.anchor_rtt = level.rtt;
        }
    }

    /// The path's level is known: a bucket at that level measures θ.
    fn track(&mut self, index: usize, seen: Level, now: Micros) {
        let gate = self.gate();
        let path = &mut self.paths[index];
        let Some(level) = path.level else { return };
        let rise = seen.rtt - level.rtt;
        let shift = seen.asymmetry - level.asymmetry;
        let (step, noise) = (path.step(), path.noise());
        if rise.abs() <= step && shift.abs() <= gate.max(step / 2.0) {
            let shift = path.agree(seen, now);
            self.correct(shift, FLOOR_SD.hypot(rise / 2.0).hypot(noise));
            return;
        }
        let jumped = path.has_jumped(&seen, gate);
        path.disagree(seen, gate, now);
        let (id, since) = (path.id, path.agreed());
        // Others were at their levels later than this one: then it is the path.
        // One that has not been heard for long says nothing.
        let lately = |at: Micros| now.saturating_sub(at) <= HOLD;
        let contradicted =
            |other: &PathClock| other.id != id && other.agreed().is_some_and(|at| Some(at) > since && lately(at));
        if jumped && !self.paths.iter().any(contradicted) {
            self.jump(shift);
        } else {
            self.correct_one_way(rise, shift, step, noise);
        }
    }

    /// The RTT is above the floor: one direction may still be as it was, and measures θ. Half the difference would not: a
    /// queue is never negative, so its mean would pull the clock.
    fn correct_one_way(&mut self, rise: f64, shift: f64, step: f64, noise: f64) {
        if rise <= step {
            return;
        }
        let (forward, backward) = (rise / 2.0 + shift, rise / 2.0 - shift);
        let gate = self.gate() - GATE + TOUCH;
        // Which of the two it is that stayed must not depend on the order in which they are looked at.
        if backward.abs() <= gate.min(forward.abs()) {
            self.correct(-backward, ONE_WAY_SD.hypot(noise));
        } else if forward.abs() <= gate {
            self.correct(forward, ONE_WAY_SD.hypot(noise));
        }
    }

    fn gate(&self) -> f64 {
        GATE + 3.0 * self.filter.deviation()
    }

    /// θ was measured to differ by `innovation` from the prediction.
    fn correct(&mut self, innovation: f64, deviation: f64) {
        let moved = self.filter.update(innovation, deviation);
        self.paths.iter_mut().for_each(|path| path.clock_corrected(moved));
    }

    /// The peer's clock jumped by so much against ours, or ours by as much the other way.
    fn jump(&mut self, by: f64) {
        self.filter.shift(by);
        self.paths.iter_mut().for_each(|path| path.clock_corrected(by));
    }

    /// θ was assumed wrongly, and with it every asymmetry.
    fn move_clock(&mut self, by: f64) {
        self.filter.shift(by);
        self.paths.iter_mut().for_each(|path| path.clock_moved(by));
    }
}

/// What is nearest to 0 of all that the wire cannot tell from it.
fn modulo(micros: f64) -> f64 {
    const WRAP: f64 = (1_u64 << 32) as f64;
    micros - WRAP * (micros / WRAP).round()
}

/// A delay in microseconds as a duration; a negative one is noise round 0.
fn micros(delay: f64) -> Duration {
    Duration::from_micros((delay + 0.5) as u64)
}

/// Microseconds, up to 292,000 years: within that it takes no more than an instruction.
fn float(micros: i128) -> f64 {
    micros.clamp(i64::MIN.into(), i64::MAX.into()) as i64 as f64
}

fn clamp(micros: i128) -> u64 {
    micros.clamp(0, i128::from(u64::MAX)) as u64
}
