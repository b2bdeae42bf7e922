//! How fast something goes.

use std::{
    iter::Sum,
    ops::{Add, Div, Mul},
    time::Duration,
};

/// Bytes per second: never negative, never NaN.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Rate(f64);

impl Rate {
    /// Nothing moves.
    pub const ZERO: Self = Self(0.0);
    /// A byte a second: what stands for "hardly anything" where a rate is divided by.
    pub const LEAST: Self = Self(1.0);

    /// So many bytes per second; what is negative or no number counts as 0.
    pub fn from_bytes_per_second(bytes: f64) -> Self {
        Self(bytes.max(0.0))
    }

    /// `bytes` in `time`. In no time at all: in a nanosecond.
    pub fn of(bytes: u64, time: Duration) -> Self {
        Self(bytes as f64 / time.as_secs_f64().max(1e-9))
    }

    /// Bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.0
    }

    /// Bytes in `time`.
    pub fn bytes_in(self, time: Duration) -> f64 {
        self.0 * time.as_secs_f64()
    }

    /// How long `bytes` take. At less than a byte a second: as long as at one.
    pub fn time_for(self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.0.max(1.0))
    }

    /// The higher of the two.
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// The lower of the two.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

impl Mul<f64> for Rate {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self::from_bytes_per_second(self.0 * factor)
    }
}

impl Div for Rate {
    type Output = f64;

    fn div(self, other: Self) -> f64 {
        self.0 / other.0.max(1e-9)
    }
}

impl Add for Rate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_times() {
        let rate = Rate::of(1_000, Duration::from_millis(10));
        assert_eq!(rate, Rate::from_bytes_per_second(100e3));
        assert_eq!(rate.time_for(50_000), Duration::from_millis(500));
        assert_eq!(rate.bytes_in(Duration::from_millis(20)), 2e3);
        assert_eq!(rate * 2.0 / rate, 2.0);
    }

    #[test]
    fn there_is_no_nonsense() {
        assert_eq!(Rate::from_bytes_per_second(f64::NAN), Rate::ZERO);
        assert_eq!(Rate::from_bytes_per_second(-1.0), Rate::ZERO);
        assert_eq!(Rate::ZERO.time_for(3), Duration::from_secs(3));
        assert!(Rate::of(1, Duration::ZERO).bytes_per_second().is_finite());
    }
}
