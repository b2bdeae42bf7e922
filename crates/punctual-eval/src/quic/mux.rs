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
    /// The message's own, and finished behind it.
    Own,
}

impl Multiplexer {
    /// The lane of the message that is the `index`-th of its client.
    pub(super) fn lane(self, index: usize, message: &Message) -> Lane {
        match self {
            Self::One => Lane::Shared(0),
            Self::PerSource => Lane::Shared(message.source.into()),
            Self::Parallel(streams) => Lane::Shared((index % streams.max(1) as usize) as u32),
            Self::PerBlock | Self::ByPriority => Lane::Own,
        }
    }

    /// Whether each message has a stream of its own.
    pub(super) fn is_per_block(self) -> bool {
        matches!(self, Self::PerBlock | Self::ByPriority)
    }
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
}
