//! A block of which the application has nothing yet: what the peer has said of it, and what has come.

use std::time::Duration;

use crate::{block::Channel, receive::reassembly::Reassembly};

/// What the peer said of a block, in our terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Info {
    /// As it counts.
    pub(super) size: u64,
    pub(super) is_empty: bool,
    /// On the peer's clock.
    pub(super) begin: u64,
    pub(super) deadline: Option<Duration>,
    pub(super) priority: u8,
    pub(super) channel: Option<(Channel, u64)>,
}

/// A block that has not been handed over.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) info: Option<Info>,
    /// What the peer said of it since.
    pub(super) update: Option<(Option<Duration>, u8)>,
    pub(super) bytes: Reassembly,
    pub(super) good_bytes: u64,
}

impl Incoming {
    pub(super) fn is_complete(&self) -> bool {
        self.info.is_some_and(|info| self.bytes.is_complete(info.size))
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.update.map_or_else(|| self.info.and_then(|info| info.deadline), |(deadline, _)| deadline)
    }
}
