//! What packets waited tells how fast a path is at most.

use std::time::Duration;

/// The fastest of so many packets' word is believed: what one waited was not all for ours.
const PACKETS: usize = 8;

/// Bounds on a path's rate, from its last packets.
///
/// A packet that was answered this much later than the empty path would waited for what was in flight when it left, itself
/// included, and for nothing else of ours; so the path takes at least that time for it. (Others' packets, and acknowledgements that were held
/// back, make it look slower. Hence the fastest.)
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    bounds: [f64; PACKETS],
    seen: usize,
}

impl Waits {
    /// A packet behind `ahead` bytes, its own among them, waited so long.
    pub(super) fn on_ack(&mut self, ahead: u64, waited: Duration) {
        self.bounds[self.seen % PACKETS] = ahead as f64 / waited.as_secs_f64().max(1e-6);
        self.seen += 1;
    }

    /// The path's rate is no more than this, bytes per second, if enough packets have told.
    pub(super) fn most(&self) -> Option<f64> {
        (self.seen >= PACKETS).then(|| self.bounds.iter().copied().fold(0.0, f64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_packets_at_a_time_bound_the_rate() {
        let (ms, mut waits) = (Duration::from_millis, Waits::default());
        // 100 bytes per ms; every third answer is held back.
        for pair in 0..4 {
            assert_eq!(waits.most(), None);
            waits.on_ack(1_000, ms(10 + if pair % 3 == 0 { 20 } else { 0 }));
            waits.on_ack(2_000, ms(20));
        }
        assert_eq!(waits.most(), Some(100_000.0));
    }
}
