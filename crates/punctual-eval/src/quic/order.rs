//! Which of the streams that have data is served next: MAppLE's stream scheduler, as far as noq has one.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::Multiplexer;

/// Which stream goes next. By name: `in-turn`, `in-order`, `by-priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamScheduler {
    /// Each in turn, a packet each: round robin.
    InTurn,
    /// One until it has nothing more, then that which has waited longest; where each message has its own, by age.
    InOrder,
    /// By the priority of the message that opened it; of the same priority by age where each message has its own, else in turn.
    ByPriority,
}

impl StreamScheduler {
    /// What a multiplexer has if nothing else is said.
    pub(super) fn of(multiplexer: Multiplexer) -> Self {
        match multiplexer {
            Multiplexer::One | Multiplexer::PerSource | Multiplexer::Parallel(_) => Self::InTurn,
            Multiplexer::PerBlock => Self::InOrder,
            Multiplexer::ByPriority => Self::ByPriority,
        }
    }

    /// A priority, if it goes by that; else that of all.
    pub(super) fn heeded(self, priority: u8) -> u8 {
        if self == Self::ByPriority { priority } else { 0 }
    }

    /// noq's priority (the greatest goes first) of the stream for a message, opened after `opened` others; `own`: the message's own.
    pub(super) fn rank(self, priority: u8, own: bool, opened: u64) -> i32 {
        match self {
            Self::InTurn => 0,
            Self::InOrder if !own => 0,
            Self::InOrder | Self::ByPriority => rank(self.heeded(priority), if own { opened } else { 0 }),
        }
    }

    /// Whether streams of the same rank take turns.
    pub(super) fn is_fair(self) -> bool {
        self != Self::InOrder
    }
}

/// noq's priority of the stream opened after `opened` others: by the message's priority, then by age.
fn rank(priority: u8, opened: u64) -> i32 {
    const AGES: u64 = 1 << 24;
    // From i32::MAX down to i32::MIN: 2⁸ priorities, 2²⁴ streams. No run opens more, and those of one age take turns.
    let below = (u64::from(priority) * AGES + opened.min(AGES - 1)) as u32;
    (i64::from(i32::MAX) - i64::from(below)) as i32
}

/// Not the name of a [`StreamScheduler`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no stream scheduler; use `in-turn`, `in-order`, or `by-priority`")]
pub struct UnknownStreamScheduler(String);

impl FromStr for StreamScheduler {
    type Err = UnknownStreamScheduler;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name {
            "in-turn" => Self::InTurn,
            "in-order" => Self::InOrder,
            "by-priority" => Self::ByPriority,
            _ => return Err(UnknownStreamScheduler(name.to_owned())),
        })
    }
}

impl fmt::Display for StreamScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InTurn => "in-turn",
            Self::InOrder => "in-order",
            Self::ByPriority => "by-priority",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_there_and_back() {
        for name in ["in-turn", "in-order", "by-priority"] {
            assert_eq!(name.parse::<StreamScheduler>().unwrap().to_string(), name);
        }
        assert!("fair".parse::<StreamScheduler>().unwrap_err().to_string().contains("in-turn"));
    }

    #[test]
    fn ranks_fall_by_priority_then_by_age() {
        let ranks = [rank(0, 0), rank(0, 1), rank(0, 9_999_999), rank(1, 0), rank(255, 0), rank(255, u64::MAX)];
        assert!(ranks.windows(2).all(|pair| pair[0] > pair[1]), "{ranks:?}");
        assert_eq!((ranks[0], ranks[5]), (i32::MAX, i32::MIN));
    }
}
