//! The clock that blocks are played out by: the comparison of the two hosts' clocks, without its jumps.
//!
//! The [estimate](super::Clocks) is the best there is at any moment, so it moves when a better measurement comes: by a millisecond now and then, by more while
//! little is known yet, and by all of it where a host's clock stood. Whoever listens to what is played out would hear each of these as a gap or a
//! stutter. So play-out goes by an offset of its own, which follows the estimate at a bounded rate: pitch and speed are off by [`RATE`] at most, for as long as it
//! takes, and the order and the spacing of what is played out stay what they were at the sender.

use super::Micros;

/// How fast the offset follows, µs/µs: 0.25 %, which changes a pitch by 4.3 cents: about the least that is heard between two pure tones of 1 kHz, one right after the other, and here it comes
/// and goes without a step. It is 12 times what two crystals at their limits drift.
const RATE: f64 = 2_500e-6;
/// The same, in the beginning: what was played before was played by a guess. 50 ms are made up for in a second.
const FIRST_RATE: f64 = 50_000e-6;
/// How long the beginning is, µs: the estimate is within a millisecond then in all but the noisiest cases (`docs/clock.md`), and has been followed.
const BEGINNING: u64 = 4_000_000;
/// An offset that is wrong by more than this, µs, is given up at once: a host has slept, and there is nothing left to be played without a gap. To follow it would take 40 s.
const JUMP: f64 = 100_000.0;

/// The peer's clock minus ours, as play-out takes it to be.
#[derive(Debug, Clone, Copy)]
struct Followed {
    /// Microseconds.
    offset: f64,
    /// As of when, and since when it has been followed.
    at: Micros,
    since: Micros,
}

/// Follows the comparison of the clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlayoutClock(Option<Followed>);

impl PlayoutClock {
    /// The peer's clock is `offset` microseconds ahead of ours, by the best estimate there is `now`.
    pub(crate) fn follow(&mut self, offset: f64, now: Micros) {
        let Some(followed) = &mut self.0 else {
            self.0 = Some(Followed { offset, at: now, since: now });
            return;
        };
        let elapsed = now.saturating_sub(followed.at) as f64;
        let rate = if now.saturating_sub(followed.since) < BEGINNING { FIRST_RATE } else { RATE };
        let error = offset - followed.offset;
        followed.offset += if error.abs() > JUMP { error } else { error.clamp(-rate * elapsed, rate * elapsed) };
        followed.at = followed.at.max(now);
    }

    /// What the peer's clock reads when ours reads `ours`; `None` as long as nothing is known of it.
    pub(crate) fn peers(&self, ours: Micros) -> Option<u64> {
        Some(ours.saturating_add_signed(self.whole()?))
    }

    /// The first reading of ours at which the peer's clock has come to `peers`.
    pub(crate) fn ours(&self, peers: u64) -> Option<Micros> {
        Some(peers.saturating_add_signed(self.whole()?.saturating_neg()))
    }

    /// The offset in whole microseconds. Both ways go by this one number: an alarm that went off before its time by a rounding error would be set for the same moment again, for ever.
    fn whole(&self) -> Option<i64> {
        Some(self.0?.offset.floor() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn settled(offset: f64) -> PlayoutClock {
        let mut clock = PlayoutClock::default();
        clock.follow(offset, 0);
        clock.follow(offset, 10 * SECOND);
        clock
    }

    fn offset(clock: &PlayoutClock) -> f64 {
        clock.0.expect("it follows").offset
    }

    #[test]
    fn it_follows_at_a_rate_that_nobody_hears() {
        let mut clock = settled(5_000.0);
        let mut before = offset(&clock);
        // The estimate moves by 50 ms at once.
        for step in 1..=3_000_u64 {
            clock.follow(55_000.0, 10 * SECOND + step * 10_000);
            let moved = offset(&clock) - before;
            assert!((0.0..=10_000.0 * RATE + 1e-6).contains(&moved), "{moved} in 10 ms");
            before = offset(&clock);
        }
        assert_eq!(before, 55_000.0, "after 20 s it is there");
    }

    #[test]
    fn drift_is_followed_without_falling_behind() {
        let mut clock = settled(0.0);
        for step in 1..=6_000_u64 {
            let now = 10 * SECOND + step * 10_000;
            let truth = (step * 10_000) as f64 * 200e-6;
            clock.follow(truth, now);
            assert!((offset(&clock) - truth).abs() < 1e-6);
        }
    }

    #[test]
    fn what_was_guessed_in_the_beginning_is_soon_mended() {
        let mut clock = PlayoutClock::default();
        clock.follow(0.0, 0);
        clock.follow(40_000.0, SECOND / 2);
        assert_eq!(offset(&clock), 25_000.0);
        clock.follow(40_000.0, SECOND);
        assert_eq!(offset(&clock), 40_000.0);
    }

    #[test]
    fn a_host_that_slept_is_believed_at_once() {
        let mut clock = settled(1e6);
        clock.follow(-4e6, 10 * SECOND);
        assert_eq!(offset(&clock), -4e6);
    }

    #[test]
    fn an_alarm_set_by_it_is_never_early() {
        let mut clock = PlayoutClock::default();
        assert_eq!((clock.ours(5), clock.peers(5)), (None, None));
        // With the last, and floating point both ways, ours was 8,681,852,585 for the peer's 4,561,839,774, and the peer's for that one less.
        for offset in [0.0, 0.3, -0.3, 4_294_967_301.7, -1_000.9, -4_120_012_811.000_001] {
            clock = PlayoutClock::default();
            clock.follow(offset, 0);
            for peers in (1_000..2_000).chain([1 << 33, (1 << 33) + 1, 4_561_839_774]) {
                let ours = clock.ours(peers).unwrap();
                assert!(ours == 0 || clock.peers(ours).unwrap() >= peers, "{offset} {peers}");
                assert!(ours < 2 || clock.peers(ours - 2).unwrap() < peers, "{offset} {peers}");
            }
        }
    }
}
