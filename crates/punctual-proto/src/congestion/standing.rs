//! Whether a queue stands on the path, and whose it is.
//!
//! The shortest queue that any packet of a round found is one that stood all the time. A queue of our own goes as soon as we send less.
//! One that stays although we had no more under way than the empty path holds is not ours. If it does not even vary, it is no queue: the
//! route has become longer. Else somebody fills it, and will take all of the path if we go on making room ([`State::Shared`]).

use std::time::Duration;

/// A queue that after this many rounds of making room
const STUBBORN_ROUNDS: u32 = 5;
/// (or this many, if others filled it within this many rounds)
const STUBBORN_AGAIN: u32 = 1;
const LATELY: u32 = 100;
/// has not shrunk below this share of what it was is not ours.
const STUBBORN_SHARE: f64 = 0.7;
/// What is not ours and varied by less than this meanwhile is a longer route.
const CONSTANT: Duration = Duration::from_millis(1);
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
    /// For how many rounds it has stood while we made room, how long it was in the first, and the shortest and longest since.
    Stands {
        rounds: u32,
        first: Duration,
        range: (Duration, Duration),
    },
    /// Others fill it.
    Shared {
        /// The queue that is there when we make room.
        without_us: Duration,
        look: Look,
    },
}

/// Rounds since the last look, or that this one will still take.
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
    /// Others fill it: hold our own. What there is when we make room.
    Shared(Duration),
}

/// What a round was like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// The shortest queue that a packet found.
    pub(super) queue: Duration,
    /// One that is not worth speaking of.
    pub(super) short: Duration,
    /// No more was under way than the empty path holds.
    pub(super) made_room: bool,
    /// Packets were marked: a queue seen by the one who has it.
    pub(super) marked: bool,
}

/// The queue of a path.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    state: State,
    before: Duration,
    /// Rounds since a queue stood, and since others filled it.
    calm: u32,
    since_shared: u32,
}

impl Default for Standing {
    fn default() -> Self {
        Self { state: State::Empty, before: Duration::ZERO, calm: u32::MAX, since_shared: u32::MAX }
    }
}

impl Standing {
    pub(super) fn queue(&self) -> Queue {
        match self.state {
            State::Empty => Queue::Empty,
            State::Stands { .. } | State::Shared { look: Look::Now(_), .. } => Queue::Stands,
            State::Shared { without_us, .. } => Queue::Shared(without_us),
        }
    }

    /// The queue when we make room, while others fill it.
    pub(super) fn without_us(&self) -> Option<Duration> {
        match self.state {
            State::Shared { without_us, .. } => Some(without_us),
            _ => None,
        }
    }

    /// The shortest queue of the last round.
    pub(super) fn last(&self) -> Duration {
        self.before
    }

    /// Whether others have filled it of late.
    pub(super) fn lately_shared(&self) -> bool {
        self.since_shared <= LATELY
    }

    /// Rounds since a queue stood.
    pub(super) fn calm(&self) -> u32 {
        self.calm
    }

    /// Ends a round. By how much the route has become longer, if that is what it shows.
    pub(super) fn end_round(&mut self, seen: &Seen) -> Option<Duration> {
        let Seen { queue, short, made_room, marked } = *seen;
        let before = std::mem::replace(&mut self.before, queue);
        let patience = if self.lately_shared() { STUBBORN_AGAIN } else { STUBBORN_ROUNDS };
        let mut longer = None;
        let stands = |rounds, first| State::Stands { rounds, first, range: (queue, queue) };
        self.state = match self.state {
            _ if queue <= short => State::Empty,
            State::Empty => stands(0, queue),
            State::Stands { rounds: 0, .. } if made_room => stands(1, queue),
            State::Stands { rounds, first, range } if made_room => {
                let range = (range.0.min(queue), range.1.max(queue));
                let stubborn = rounds >= patience && queue >= first.mul_f64(STUBBORN_SHARE) && !marked;
                if stubborn && !self.lately_shared() && range.1 - range.0 <= CONSTANT {
                    longer = Some(range.0);
                    State::Empty
                } else if stubborn {
                    State::Shared { without_us: queue, look: Look::Since(0) }
                } else {
                    State::Stands { rounds: rounds + 1, first, range }
                }
            }
            stands @ State::Stands { .. } => stands,
            State::Shared { look: Look::Now(..=1), .. } => {
                State::Shared { without_us: queue.min(before), look: Look::Since(0) }
            }
            State::Shared { without_us, look: Look::Now(rounds) } => {
                State::Shared { without_us, look: Look::Now(rounds - 1) }
            }
            State::Shared { without_us, look: Look::Since(rounds) } => {
                let falls = before.saturating_sub(queue) > before.mul_f64(FALL);
                let look = if rounds >= LOOK_EVERY || falls && rounds >= LOOK_SOONEST {
                    Look::Now(LOOK)
                } else {
                    Look::Since(rounds + 1)
                };
                State::Shared { without_us: without_us.min(queue), look }
            }
        };
        let shared = matches!(self.state, State::Shared { .. });
        self.calm = if self.state == State::Empty { self.calm.saturating_add(1) } else { 0 };
        self.since_shared = if shared { 0 } else { self.since_shared.saturating_add(1) };
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// By how much the route is found to be longer, and the state, after rounds in which packets found such queues, milliseconds, while we
    /// made room.
    fn after(rounds: impl IntoIterator<Item = u32>) -> (Option<Duration>, Queue) {
        let mut standing = Standing::default();
        let mut round =
            |queue| standing.end_round(&Seen { queue: MS * queue, short: MS * 2, made_room: true, marked: false });
        let longer = rounds.into_iter().filter_map(&mut round).last();
        (longer, standing.queue())
    }

    #[test]
    fn what_stays_though_we_make_room_is_a_longer_route_or_others() {
        assert_eq!(after([20; 7]), (Some(MS * 20), Queue::Empty));
        assert!(matches!(after((0..8).map(|round| 40 + round % 3 * 5)), (None, Queue::Shared(_))));
        assert_eq!(after([20, 10, 5, 1]), (None, Queue::Empty));
    }
}
