//! What a session tells its application.

use std::time::Duration;

use crate::{
    base::PathId,
    block::{BlockId, Delta, DropReason, Outcome},
    error::CloseReason,
};

/// Something the application should know. Poll until there is none left after every call into a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is done: blocks flow.
    Connected {
        /// Whether the peer speaks `punctual/1`; if not, blocks travel one to a stream.
        punctual: bool,
    },
    /// One of our blocks has ended. Exactly one per accepted block.
    Outcome {
        /// Which.
        id: BlockId,
        /// How.
        outcome: Outcome,
    },
    /// There may be blocks to [`recv`](crate::Session::recv).
    Readable,
    /// The peer dropped a block: it will never be complete here.
    PeerDropped {
        /// The sender's name for it.
        id: BlockId,
        /// Why.
        reason: DropReason,
        /// Bytes of it that had arrived.
        received_bytes: u64,
    },
    /// A block was not whole when what follows it in its channel was to be given out at its time ([`Session::set_latency`](crate::Session::set_latency)): it has been refused, and will not come.
    Skipped {
        /// The sender's name for it.
        id: BlockId,
        /// Bytes of it that had arrived.
        received_bytes: u64,
    },
    /// The peer's application said how far a block's completion was from what it expected (`expect` of DTP).
    Expected {
        /// Our block.
        id: BlockId,
        /// Actual minus expected.
        delta: Delta,
    },
    /// `send` may take blocks again after it said [`SendError::Full`](crate::SendError::Full).
    Writable,
    /// After [`finish`](crate::Session::finish): every block has ended, and the peer's application has dealt with those it was given.
    Taken,
    /// The peer has heard that our application has taken everything ([`awaits_hearing`](crate::Session::awaits_hearing)).
    Heard,
    /// A path changed.
    Path {
        /// Which.
        id: PathId,
        /// How.
        event: PathEvent,
    },
    /// The session is over; nothing follows but the outcomes before this.
    Closed(CloseReason),
}

/// What can happen to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathEvent {
    /// It is validated and carries data.
    Opened,
    /// It has been silent for too long with data in flight, or its far end has moved to another address; its fragments go
    /// elsewhere, it is probed.
    Suspected {
        /// How long ago the oldest packet left that should have been answered by now.
        silent: Duration,
    },
    /// A probe was answered: it carries data again.
    Recovered,
    /// It is gone.
    Closed,
}
