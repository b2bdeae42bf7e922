//! Times on the wire: microseconds modulo 2³².

use super::Micros;

/// A time as it is sent: its low 32 bits.
pub(crate) fn wire(micros: u64) -> u32 {
    micros as u32
}

/// Extends wire times to 64 bits, each to the value nearest to what the peer's clock should read by now.
///
/// Right as long as no time is more than 2³¹ µs (35 minutes) from that, in either direction, however long nothing was heard. The first time
/// becomes 2³² + its value, so that earlier ones that arrive after it stay positive.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unwrapper {
    /// The latest time seen, and when that was by our clock.
    latest: Option<(u64, Micros)>,
}

impl Unwrapper {
    /// The 64-bit time that `time` stands for, which is heard `now`.
    pub(crate) fn extend(&mut self, time: u32, now: Micros) -> u64 {
        let extended = match self.latest {
            None => (1 << 32) + u64::from(time),
            Some((latest, at)) => {
                let expected = latest.saturating_add(now.saturating_sub(at));
                expected.saturating_add_signed(i64::from(time.wrapping_sub(wire(expected)) as i32))
            }
        };
        if self.latest.is_none_or(|(latest, _)| extended > latest) {
            self.latest = Some((extended, now));
        }
        extended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;

    #[test]
    fn follows_any_start_through_wraps_and_silences() {
        for start in [0, 1, u64::from(u32::MAX), u64::from(u32::MAX) - 5, 77 << 32] {
            let mut unwrapper = Unwrapper::default();
            let base = unwrapper.extend(wire(start), 1_000);
            assert_eq!(base, (1 << 32) + (start & 0xffff_ffff));
            let mut heard = 0;
            for silence in (1..=1_000).chain([1, 1_500, 2, 100_000, 1]) {
                heard += silence * MINUTE;
                // Two clocks that differ by 100 ppm.
                let now = 1_000 + heard + heard / 10_000;
                assert_eq!(unwrapper.extend(wire(start + heard), now), base + heard, "{silence} minutes");
            }
        }
    }

    #[test]
    fn survives_reordering_of_minutes() {
        let mut unwrapper = Unwrapper::default();
        let start = (9 << 32) + 5 * MINUTE;
        let mut extend = |time: u64, at: u64| unwrapper.extend(wire(start + time - 30 * MINUTE), at * MINUTE);
        let base = extend(30 * MINUTE, 30);
        assert_eq!(extend(0, 30), base - 30 * MINUTE);
        assert_eq!(extend(60 * MINUTE, 30), base + 30 * MINUTE);
        assert_eq!(extend(30 * MINUTE, 31), base);
        assert_eq!(extend(90 * MINUTE, 60), base + 60 * MINUTE);
    }

    #[test]
    fn a_host_that_slept_is_believed() {
        let mut unwrapper = Unwrapper::default();
        let base = unwrapper.extend(0, 0);
        // It says what it said half an hour before, and goes on from there.
        assert_eq!(unwrapper.extend(5, 30 * MINUTE), base + 5);
        assert_eq!(unwrapper.extend(wire(10 * MINUTE), 40 * MINUTE), base + 10 * MINUTE);
        // Ours slept.
        assert_eq!(unwrapper.extend(wire(40 * MINUTE), 40 * MINUTE), base + 40 * MINUTE);
    }
}
