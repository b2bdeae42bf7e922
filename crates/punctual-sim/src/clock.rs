//! Each host's own idea of the time.

use std::time::{Duration, Instant};

/// How far a host's clock is from virtual time, and how it runs.
///
/// At virtual time *t* the host's clock reads `offset + t · (1 + drift)`. Both the [`Instant`]s its endpoint is given
/// and the readings that go on the wire follow it, so an implementation that compares two hosts' readings without
/// estimating their offset is found out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HostClock {
    /// How far the clock is ahead at virtual time zero.
    pub offset: Duration,
    /// How much too fast it runs, parts per million; negative is too slow.
    pub drift_ppm: f64,
}

impl HostClock {
    /// Ahead by `offset`, running true.
    pub fn ahead(offset: Duration) -> Self {
        Self { offset, drift_ppm: 0.0 }
    }

    /// Runs too fast by this many parts per million.
    pub fn drift_ppm(self, drift_ppm: f64) -> Self {
        Self { drift_ppm, ..self }
    }
}

/// A [`HostClock`] in the terms its endpoint wants: [`Instant`]s.
///
/// `Instant`s cannot be made from nothing, so a world takes one when it begins, the anchor. Its value shows nowhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalClock {
    anchor: Instant,
    offset: Duration,
    /// Drift in parts per 10⁹.
    drift_ppb: i64,
    /// How long it has stood still, of virtual time.
    stood: Duration,
}

const BILLION: i128 = 1_000_000_000;

impl LocalClock {
    pub(crate) fn new(anchor: Instant, clock: HostClock) -> Self {
        // A clock that stands still, or runs backwards, would keep timers from ever firing.
        let drift_ppb = (clock.drift_ppm.clamp(-500_000.0, 500_000.0) * 1000.0).round() as i64;
        Self { anchor, offset: clock.offset, drift_ppb, stood: Duration::ZERO }
    }

    /// The zero of the host's clock.
    pub(crate) fn epoch(&self) -> Instant {
        self.anchor
    }

    /// The host's clock at virtual time `time`.
    pub(crate) fn instant(&self, time: Duration) -> Instant {
        let time = time.saturating_sub(self.stood);
        self.anchor + self.offset + Duration::from_nanos(self.elapsed(time.as_nanos() as i128) as u64)
    }

    /// The first virtual time at which the host's clock reads `instant` or later.
    pub(crate) fn time(&self, instant: Instant) -> Duration {
        let local = instant.saturating_duration_since(self.anchor + self.offset).as_nanos() as i128;
        let rate = BILLION + i128::from(self.drift_ppb);
        let time = (local * BILLION + rate - 1).div_euclid(rate);
        Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX)).saturating_add(self.stood)
    }

    /// It has stood still for this long, up to now.
    pub(crate) fn stood(&mut self, for_: Duration) {
        self.stood += for_;
    }

    fn elapsed(&self, nanos: i128) -> i128 {
        nanos + (nanos * i128::from(self.drift_ppb)).div_euclid(BILLION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(offset_secs: u64, drift_ppm: f64) -> LocalClock {
        LocalClock::new(Instant::now(), HostClock::ahead(Duration::from_secs(offset_secs)).drift_ppm(drift_ppm))
    }

    #[test]
    fn offset_and_drift() {
        let clock = clock(10_800, 100.0);
        let reading = clock.instant(Duration::from_secs(60)) - clock.epoch();
        assert_eq!(reading, Duration::from_secs(10_860) + Duration::from_millis(6));
    }

    #[test]
    fn there_and_back() {
        for drift in [-100.0, 0.0, 0.001, 33.3, 100.0, 9999.0] {
            let clock = clock(7, drift);
            for nanos in (0..5_000).chain((1..2_000).map(|i| i * 123_456_789)) {
                let time = Duration::from_nanos(nanos);
                let back = clock.time(clock.instant(time));
                assert_eq!(clock.instant(back), clock.instant(time), "{drift} {nanos}");
                assert!(back <= time);
            }
        }
    }

    #[test]
    fn a_timeout_is_never_met_early() {
        let clock = clock(3, -100.0);
        for nanos in (0..1_000_000_000).step_by(999_983) {
            let due = clock.instant(Duration::ZERO) + Duration::from_nanos(nanos);
            let time = clock.time(due);
            assert!(clock.instant(time) >= due);
            if let Some(before) = time.checked_sub(Duration::from_nanos(1)) {
                assert!(clock.instant(before) < due);
            }
        }
        assert_eq!(clock.time(clock.epoch()), Duration::ZERO);
    }
}
