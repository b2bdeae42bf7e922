//! When a session is over of whose peer nothing is heard.
//!
//! QUIC counts that, too (RFC 9000, 10.1), but for at least three of the longest probe timeout of all its paths. A path that was just opened has a long one, and it doubles with each
//! probe that is not answered: whoever looks for another way to a peer that is gone would find out four times as late as he wishes. So here it is counted from the first packet
//! that should have been answered, whatever has been tried since.

use std::time::Instant;

use noq_proto::VarInt;

use super::Session;
use crate::error::{CloseReason, ProtocolError};

/// A session whose idle time is shorter lasts for so many round trips of its longest path: three probe timeouts, by and large.
const LEAST_RTTS: u32 = 9;

impl Session {
    /// Something that asks for an answer has left.
    pub(super) fn on_asked(&mut self, now: Instant) {
        self.unanswered.get_or_insert(now);
    }

    /// Something came.
    pub(super) fn on_answered(&mut self) {
        self.unanswered = None;
    }

    /// When the session is over unless something comes.
    pub(super) fn idle_at(&self) -> Option<Instant> {
        let longest = self.paths.iter().map(|path| path.rtt()).max().unwrap_or_default();
        let patience = self.config.idle_timeout.max(longest * LEAST_RTTS);
        self.unanswered.and_then(|since| since.checked_add(patience))
    }

    /// Ends it if it is. If only the way back is dead, the peer learns of it.
    pub(super) fn look_whether_idle(&mut self, now: Instant) {
        if self.idle_at().is_none_or(|at| now < at) {
            return;
        }
        tracing::debug!("nothing is heard of the peer any more");
        let error = ProtocolError::Silent;
        self.part(now, VarInt::from_u32(error.number()), error.to_string().into_bytes().into());
        self.end(now, CloseReason::TimedOut);
    }
}
