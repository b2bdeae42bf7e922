//! Which stream a message goes on.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::Message;

/// Which stream a message goes on. By name: `one`, `per-source`, `per-block`, `by-priority`, `parallel:8`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Multiplexer {
    /// All on one stream: in order, and what is lost holds up all that follows.
    One,
    /// A stream for each source, served in turn.
    PerSource,
    /// A stream for each message, served in the order of their opening.
    #[default]
    PerBlock,
    /// The same, but those of higher priority first.
    ByPriority,
    /// So many streams, served in turn; message *i* goes on stream *i* modulo their number.
    Parallel(u32),
}

/// How a message's stream is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Shared by all messages of the same number, and never finished.
    Shared(u32),
    /// The message's own, with this priority (noq's: the greatest goes first), and finished behind it.
    Own(i32),
}

impl Multiplexer {
    /// The lane of the message that is the `index`-th of its client, when `opened` streams have been opened before.
    pub(super) fn lane(self, index: usize, message: &Message, opened: u64) -> Lane {
        match self {
            Self::One => Lane::Shared(0),
            Self::PerSource => Lane::Shared(message.source.into()),
            Self::Parallel(streams) => Lane::Shared((index % streams.max(1) as usize) as u32),
            Self::PerBlock | Self::ByPriority => Lane::Own(rank(self.heeded(message.priority), opened)),
        }
    }

    /// A priority, if it goes by that; else that of all.
    pub(super) fn heeded(self, priority: u8) -> u8 {
        if self == Self::ByPriority { priority } else { 0 }
    }

    /// Whether each message has a stream of its own.
    pub(super) fn is_per_block(self) -> bool {
        matches!(self, Self::PerBlock | Self::ByPriority)
    }
}

/// noq's priority of the stream opened after `opened` others: by the message's priority, then by age.
pub(super) fn rank(priority: u8, opened: u64) -> i32 {
    const AGES: u64 = 1 << 24;
    // From i32::MAX down to i32::MIN: 2⁸ priorities, 2²⁴ streams. No run opens more, and those of one age take turns.
    let below = (u64::from(priority) * AGES + opened.min(AGES - 1)) as u32;
    (i64::from(i32::MAX) - i64::from(below)) as i32
}

/// Not the name of a [`Multiplexer`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no multiplexer; use `one`, `per-source`, `per-block`, `by-priority`, or `parallel:N`")]
pub struct UnknownMultiplexer(String);

impl FromStr for Multiplexer {
    type Err = UnknownMultiplexer;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name {
            "one" => Self::One,
            "per-source" => Self::PerSource,
            "per-block" => Self::PerBlock,
            "by-priority" => Self::ByPriority,
            _ => {
                let streams = name.strip_prefix("parallel:").and_then(|number| number.parse().ok());
                Self::Parallel(streams.filter(|n| *n > 0).ok_or_else(|| UnknownMultiplexer(name.to_owned()))?)
            }
        })
    }
}

impl fmt::Display for Multiplexer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("one"),
            Self::PerSource => f.write_str("per-source"),
            Self::PerBlock => f.write_str("per-block"),
            Self::ByPriority => f.write_str("by-priority"),
            Self::Parallel(streams) => write!(f, "parallel:{streams}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_there_and_back() {
        for name in ["one", "per-source", "per-block", "by-priority", "parallel:8"] {
            assert_eq!(name.parse::<Multiplexer>().unwrap().to_string(), name);
        }
        for name in ["", "two", "parallel", "parallel:", "parallel:0", "parallel:-1"] {
            assert!(name.parse::<Multiplexer>().unwrap_err().to_string().contains("per-block"), "{name}");
        }
    }

    #[test]
    fn ranks_fall_by_priority_then_by_age() {
        let ranks = [rank(0, 0), rank(0, 1), rank(0, 9_999_999), rank(1, 0), rank(255, 0), rank(255, u64::MAX)];
        assert!(ranks.windows(2).all(|pair| pair[0] > pair[1]), "{ranks:?}");
        assert_eq!((ranks[0], ranks[5]), (i32::MAX, i32::MIN));
    }
}
