//! Times on the wire: microseconds modulo 2³².

/// A time as it is sent: its low 32 bits.
pub(crate) fn wire(micros: u64) -> u32 {
    micros as u32
}

/// Extends wire times to 64 bits, each to the value nearest to the latest time seen.
///
/// Right as long as no time is more than 2³¹ µs (35 minutes) from the latest before it, in either direction. The first time
/// becomes 2³² + its value, so that earlier ones that arrive after it stay positive.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unwrapper {
    latest: Option<u64>,
}

impl Unwrapper {
    /// The 64-bit time that `time` stands for.
    pub(crate) fn extend(&mut self, time: u32) -> u64 {
        let extended = match self.latest {
            None => (1 << 32) + u64::from(time),
            Some(latest) => latest.saturating_add_signed(i64::from(time.wrapping_sub(wire(latest)) as i32)),
        };
        self.latest = self.latest.max(Some(extended));
        extended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;

    #[test]
    fn follows_any_start_through_wraps() {
        for start in [0, 1, u64::from(u32::MAX), u64::from(u32::MAX) - 5, 77 << 32] {
            let mut unwrapper = Unwrapper::default();
            let base = unwrapper.extend(wire(start));
            assert_eq!(base, (1 << 32) + (start & 0xffff_ffff));
            for minute in 1..1_000 {
                assert_eq!(unwrapper.extend(wire(start + minute * MINUTE)), base + minute * MINUTE);
            }
        }
    }

    #[test]
    fn survives_reordering_of_minutes() {
        let mut unwrapper = Unwrapper::default();
        let start = (9 << 32) + 5 * MINUTE;
        let base = unwrapper.extend(wire(start));
        assert_eq!(unwrapper.extend(wire(start - 30 * MINUTE)), base - 30 * MINUTE);
        assert_eq!(unwrapper.extend(wire(start + 30 * MINUTE)), base + 30 * MINUTE);
        assert_eq!(unwrapper.extend(wire(start)), base);
        assert_eq!(unwrapper.extend(wire(start + 60 * MINUTE)), base + 60 * MINUTE);
    }
}
