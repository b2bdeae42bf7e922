//! The offset between two hosts' clocks, and one-way delays.

use std::time::Duration;

/// A session's clock: microseconds since an epoch of the endpoint's own choosing.
pub type Micros = u64;

/// The comparison of the two hosts' clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockEstimate {
    /// The peer's clock minus ours, microseconds.
    pub offset_micros: f64,
    /// How fast that grows, parts per million.
    pub skew_ppm: f64,
    /// Bound on the error of the offset: half the smallest round-trip time seen.
    pub error_bound: Duration,
}
