//! What a controller is told of arrivals.

use std::time::{Duration, Instant};

use crate::rate::Rate;

/// What a report says, for the controller.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// When it came.
    pub now: Instant,
    /// Packets it tells of.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them bore an ECN mark.
    pub marked: u64,
    /// When the last of them to arrive had left.
    pub sent: Instant,
    /// The earliest and the last arrival, on the receiver's clock, microseconds.
    pub arrived: (u64, u64),
    /// The shortest queue that any of them found.
    pub queue: Duration,
    /// The longest.
    pub longest: Duration,
    /// The pace at which the queue is served, if lately there was one.
    pub service: Option<Rate>,
    /// The greatest pace at which a few packets came out of one in this report: what the link carries at least, whoever else uses it.
    pub swift: Rate,
    /// Whether there was one in this report.
    pub served: bool,
    /// Whether what is served comes by fits and starts, as where packets are late by chance.
    pub uneven: bool,
}
