//! A round of [`Steady`](super::steady): what is answered between two of its packets.

use std::time::{Duration, Instant};

use super::Report;

/// What has been seen since the round began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Round {
    /// It ends when a packet is reported that left after this.
    pub(super) began: Option<Instant>,
    pub(super) queue: Option<Duration>,
    pub(super) longest: Duration,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) marked: u64,
    pub(super) lost: u64,
    /// There was a moment when nothing more was there to be sent.
    pub(super) dry: bool,
    /// There would have been more, but nothing of it could be in time at this rate.
    pub(super) starved: bool,
    /// The pace of a queue was seen.
    pub(super) served: bool,
    /// The most that was under way.
    pub(super) most: u64,
}

/// A packet after which others count: when it came, by the receiver's clock, and when it had left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    pub(super) arrived: u64,
    pub(super) sent: Instant,
}

impl Since {
    /// The last packet of a report.
    pub(super) fn of(report: &Report) -> Self {
        Self { arrived: report.arrived.1, sent: report.sent }
    }

    /// How long it took from there to another packet: to send, and to arrive.
    pub(super) fn spans(self, last: &Self) -> (Duration, Duration) {
        let arriving = Duration::from_micros(last.arrived.saturating_sub(self.arrived));
        (last.sent.saturating_duration_since(self.sent), arriving)
    }

    /// How long it took from there to the last packet of another, to send or to arrive, whatever took longer.
    pub(super) fn until(self, report: &Report) -> Duration {
        let arriving = Duration::from_micros(report.arrived.1.saturating_sub(self.arrived));
        arriving.max(report.sent.saturating_duration_since(self.sent))
    }
}
