//! Whether a queue stands on the path, and whose it is.
//!
//! The shortest round trip of a whole round tells the least queue there was in it, if that of the empty path is known. A
//! queue of our own goes as soon as we send less. One that stays although we had no more under way than the empty path
//! holds is not ours: somebody fills it, and will take all of the path if we go on making room ([`State::Shared`]); or the
//! path itself has become longer, which its shortest round trip being forgotten will tell.

use std::time::{Duration, Instant};

/// How long the shortest round trip is believed (BBR).
const MEMORY: Duration = Duration::from_secs(10);
/// A queue stands if the shortest round trip of a round exceeds the path's by this,
const FLOOR: Duration = Duration::from_millis(4);
/// or by one part in so many of it, or by so many of our packets' time, whichever is most. (Where several of our kind share a slow
/// path, each with two packets more than its share holds, there are that many at all times.)
const SHARE: u32 = 16;
const PACKETS: f64 = 4.0;
/// A queue that after so many rounds of making room
const STUBBORN_ROUNDS: u32 = 5;
/// (or this many, if others filled it within so many rounds)
const STUBBORN_AGAIN: u32 = 1;
const LATELY: u32 = 100;
/// has not shrunk below this share of what it was is somebody else's.
const STUBBORN_SHARE: f64 = 0.7;
/// Rounds from one look at what is there without us to the next,
const LOOK_EVERY: u32 = 14;
/// at least, though the queue falls: others of our kind may be looking, and if all do at once it is empty;
const LOOK_SOONEST: u32 = 8;
/// such a fall being by this share of it in a round;
const FALL: f64 = 0.15;
/// and rounds that a look takes: one to make room, two to see.
const LOOK: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Empty,
    /// For how many rounds it has stood while we made room, and how long it was in the first.
    Stands {
        rounds: u32,
        first: Duration,
    },
    /// Others fill it.
    Shared {
        /// The shortest round trip seen when we made room.
        without_us: Duration,
        /// Rounds since the last look, or that this one will still take.
        look: Look,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Since(u32),
    Now(u32),
}

/// What to do about the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// There is none worth speaking of.
    Empty,
    /// There is one: make room.
    Stands,
    /// Others fill it: hold our own. The round trip that we find when we make room.
    Shared(Duration),
}

/// The path's shortest round trip, and the queue.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// The least of the current half of [`MEMORY`], since when, and of the one before.
    least: Option<(Duration, Instant)>,
    least_before: Option<Duration>,
    round_shortest: Option<Duration>,
    last_round: Option<Duration>,
    marked: bool,
    state: State,
    /// When the last round ended in which there was none.
    emptied: Option<Instant>,
    /// Rounds since.
    rounds: u32,
    /// Rounds since others filled the queue.
    since_shared: u32,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            least: None,
            least_before: None,
            round_shortest: None,
            last_round: None,
            marked: false,
            state: State::Empty,
            emptied: None,
            rounds: 0,
            since_shared: u32::MAX,
        }
    }
}

impl Standing {
    pub(super) fn on_rtt(&mut self, rtt: Duration, now: Instant) {
        self.round_shortest = Some(self.round_shortest.map_or(rtt, |shortest| shortest.min(rtt)));
        let Some((least, since)) = &mut self.least else {
            self.least = Some((rtt, now));
            return;
        };
        let age = now.saturating_duration_since(*since);
        if age > MEMORY / 2 {
            self.least_before = (age <= MEMORY).then_some(*least);
            self.least = Some((rtt, now));
        } else {
            *least = rtt.min(*least);
        }
    }

    /// A packet was marked: a queue seen by the one who has it.
    pub(super) fn on_mark(&mut self) {
        self.marked = true;
        if self.state == State::Empty {
            self.state = State::Stands { rounds: 0, first: Duration::ZERO };
        }
    }

    /// The empty path's round trip.
    pub(super) fn rtt(&self) -> Option<Duration> {
        let (least, _) = self.least?;
        Some(self.least_before.map_or(least, |before| before.min(least)))
    }

    pub(super) fn queue(&self) -> Queue {
        match self.state {
            State::Empty => Queue::Empty,
            State::Stands { .. } | State::Shared { look: Look::Now(_), .. } => Queue::Stands,
            State::Shared { without_us, .. } => Queue::Shared(without_us),
        }
    }

    /// What stood in the queue all of the last round.
    pub(super) fn last_queue(&self) -> Duration {
        self.last_round.zip(self.rtt()).map_or(Duration::ZERO, |(last, rtt)| last.saturating_sub(rtt))
    }

    /// The round trip when we make room, while others fill the queue.
    pub(super) fn without_us(&self) -> Option<Duration> {
        match self.state {
            State::Shared { without_us, .. } => Some(without_us),
            _ => None,
        }
    }

    /// Whether others have filled it of late.
    pub(super) fn lately_shared(&self) -> bool {
        self.since_shared <= LATELY
    }

    /// From when on there has been a queue in every round.
    pub(super) fn since(&self) -> Option<Instant> {
        self.emptied
    }

    /// Whether it came in the last round.
    pub(super) fn is_new(&self) -> bool {
        self.rounds == 1
    }

    /// Whether a queue of our own stands: what it is served at is the path's rate.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.state, State::Stands { .. })
    }

    /// Ends a round. `made_room`: no more was under way in it than the empty path holds; `packet_time`: how long one of
    /// our packets takes at our rate.
    pub(super) fn end_round(&mut self, now: Instant, made_room: bool, packet_time: Duration) {
        let marked = std::mem::take(&mut self.marked);
        let (Some(rtt), Some(shortest)) = (self.rtt(), self.round_shortest.take()) else { return };
        let queue = shortest.saturating_sub(rtt);
        let before = self.last_round.replace(shortest).unwrap_or(shortest);
        let floor = FLOOR.max(rtt / SHARE).max(packet_time.mul_f64(PACKETS));
        let patience = if self.lately_shared() { STUBBORN_AGAIN } else { STUBBORN_ROUNDS };
        self.state = match self.state {
            _ if queue <= floor && !marked => State::Empty,
            State::Empty => State::Stands { rounds: 0, first: queue },
            State::Stands { rounds: 0, .. } if made_room => State::Stands { rounds: 1, first: queue },
            State::Stands { rounds, first }
                if rounds >= patience && queue >= first.mul_f64(STUBBORN_SHARE) && !marked =>
            {
                State::Shared { without_us: shortest, look: Look::Since(0) }
            }
            State::Stands { rounds, first } if made_room => State::Stands { rounds: rounds + 1, first },
            stands @ State::Stands { .. } => stands,
            State::Shared { look: Look::Now(..=1), .. } => {
                State::Shared { without_us: shortest.min(before), look: Look::Since(0) }
            }
            State::Shared { without_us, look: Look::Now(rounds) } => {
                State::Shared { without_us, look: Look::Now(rounds - 1) }
            }
            State::Shared { without_us, look: Look::Since(rounds) } => {
                let falls = before.saturating_sub(shortest) > before.saturating_sub(rtt).mul_f64(FALL);
                let look = if rounds >= LOOK_EVERY || falls && rounds >= LOOK_SOONEST {
                    Look::Now(LOOK)
                } else {
                    Look::Since(rounds + 1)
                };
                State::Shared { without_us: without_us.min(shortest), look }
            }
        };
        if self.state == State::Empty {
            (self.emptied, self.rounds) = (Some(now), 0);
        } else {
            self.rounds = self.rounds.saturating_add(1);
        }
        let shared = matches!(self.state, State::Shared { .. });
        self.since_shared = if shared { 0 } else { self.since_shared.saturating_add(1) };
    }
}
