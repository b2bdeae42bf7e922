//! How much of what a session was given has not left yet.

use std::time::{Duration, Instant};

use punctual::{Session, multipath::PathHealth};

/// How often a session is asked.
const EVERY: Duration = Duration::from_millis(1);
/// What may wait within the session, as long as it lasts at the pace of its paths: enough that none of them ever waits for us, who look every few milliseconds.
const AHEAD: Duration = Duration::from_millis(4);
/// The same, at least: four packets of Ethernet, of which two leave at once.
const AHEAD_BYTES: u64 = 6_000;
/// How long Linux's TCP waits at least, beyond the round trip, before it sends again what is not answered (TCP_RTO_MIN; RFC 6298 would have a second).
/// What comes later than that may come twice.
const PATIENCE: Duration = Duration::from_millis(200);

/// What is known of a session's backlog.
#[derive(Debug)]
pub(super) struct Gauge {
    asked: Option<Instant>,
    /// Bytes that have not left, by what was known last and what was handed over since.
    unsent: u64,
    /// Bytes that may be so.
    may: u64,
    patience: Duration,
}

impl Default for Gauge {
    fn default() -> Self {
        Self { asked: None, unsent: 0, may: AHEAD_BYTES, patience: PATIENCE }
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
        let in_flight: u64 = usable().map(|path| path.in_flight).sum();
        let rate: f64 = usable().map(|path| path.rate).sum();
        // A block lives until the far side has said that it has it, which comes with the acknowledgement of its last packet.
        self.unsent = session.stats().live_out_bytes.saturating_sub(in_flight);
        self.may = ((rate * AHEAD.as_secs_f64()) as u64).max(AHEAD_BYTES);
        self.patience = PATIENCE + usable().map(|path| path.rtt).min().unwrap_or_default();
    }

    /// Whether more may be handed over.
    pub(super) fn has_room(&self) -> bool {
        self.unsent < self.may
    }

    /// So much has been.
    pub(super) fn handed_over(&mut self, bytes: usize) {
        self.unsent += bytes as u64;
    }

    /// How long a TCP waits for an answer, at least.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }
}
