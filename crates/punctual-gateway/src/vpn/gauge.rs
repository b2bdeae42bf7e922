//! How much of what a session was given has not left yet.

use std::time::{Duration, Instant};

use punctual::{Session, multipath::PathHealth};

use super::flows::Times;

/// How often a session is asked.
const EVERY: Duration = Duration::from_millis(1);
/// What may wait within the session, as long as it lasts at the pace of its paths: enough that none of them ever waits for us, who look every few milliseconds; later
/// on a busy host. Over two links of 20 Mbit/s (`scripts/vpn`, on a host with ten others at work) one flow of TCP had 31.4 Mbit/s with 4 ms, 36.1 with 10 and 35.6 with 20.
const AHEAD: Duration = Duration::from_millis(10);
/// The same, at least: four packets of Ethernet, of which two leave at once.
const AHEAD_BYTES: u64 = 6_000;
/// How long Linux's TCP waits at least, beyond the round trip, before it sends again what is not answered (TCP_RTO_MIN; RFC 6298 would have a second).
/// What comes later than that may come twice.
const PATIENCE: Duration = Duration::from_millis(200);

/// What may stand of one flow's queue at least (RFC 8289, section 4.3),
const LEAST_TARGET: Duration = Duration::from_millis(5);
/// and at most.
const MOST_TARGET: Duration = Duration::from_millis(50);
/// What may stand, in round trips of the empty path. Linux's TCP (CUBIC) goes down to 0.7 of its window when it is told: what it had beyond the round trip must have been 0.43 of that,
/// or the path runs empty until it has come back, which takes seconds. Others do not wait for this queue, as each flow has its own.
const TARGET: f64 = 0.45;

/// What is known of a session's backlog.
#[derive(Debug)]
pub(super) struct Gauge {
    asked: Option<Instant>,
    /// Bytes that were handed over, but for those that were dropped before they left.
    given: u64,
    /// Bytes that have left, when the session was last asked.
    left: u64,
    /// Bytes that may be so.
    may: u64,
    times: Times,
}

impl Default for Gauge {
    fn default() -> Self {
        Self {
            asked: None,
            given: 0,
            left: 0,
            may: AHEAD_BYTES,
            times: Times { patience: PATIENCE, target: LEAST_TARGET },
        }
    }
}

impl Gauge {
    /// Asks the session, unless that has just been done.
    pub(super) fn ask(&mut self, session: &Session, now: Instant) {
        if self.asked.is_some_and(|asked| now.saturating_duration_since(asked) < EVERY) {
            return;
        }
        self.asked = Some(now);
        let paths = session.path_stats();
        let usable = || paths.iter().filter(|path| path.health == PathHealth::Active);
        let rate: f64 = usable().map(|path| path.rate).sum();
        let stats = session.stats();
        self.left = stats.source_bytes;
        // How much had left of what was dropped is not known for sure; but nothing that has ended has yet to leave.
        self.given = self.given.clamp(self.left, self.left + stats.live_out_bytes);
        self.may = ((rate * AHEAD.as_secs_f64()) as u64).max(AHEAD_BYTES);
        let patience = PATIENCE + usable().map(|path| path.rtt).min().unwrap_or_default();
        // Order is kept, so that the slowest path's is the round trip of all.
        let trip = usable().map(|path| path.min_rtt).max().unwrap_or_default();
        self.times = Times { patience, target: trip.mul_f64(TARGET).clamp(LEAST_TARGET, MOST_TARGET) };
    }

    /// Whether more may be handed over.
    pub(super) fn has_room(&self) -> bool {
        self.given.saturating_sub(self.left) < self.may
    }

    /// So much has been.
    pub(super) fn handed_over(&mut self, bytes: usize) {
        self.given += bytes as u64;
    }

    /// So much of it was dropped before it left, as far as is known.
    pub(super) fn dropped(&mut self, bytes: u64) {
        self.given = self.given.saturating_sub(bytes);
    }

    /// What packets may take.
    pub(super) fn times(&self) -> Times {
        self.times
    }
}
