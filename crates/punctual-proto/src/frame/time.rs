//! Times on the wire.
//!
//! A time is the low 32 bits of its sender's clock in microseconds. It wraps every 71.6 minutes, so it means the moment
//! nearest to now that it could: unambiguous for all that is less than 35 minutes away, which nothing we send comes near.

use std::time::Duration;

use super::varint;
use crate::clock::Micros;

/// The frame type of TIMESTAMP.
pub(super) const TIMESTAMP: u64 = 0x01;
/// All bytes of a TIMESTAMP.
pub(super) const TIMESTAMP_SIZE: usize = 5;

/// A time as it travels.
pub(crate) const fn to_wire(time: Micros) -> u32 {
    time as u32
}

/// The moment nearest to `near` that travels as `wire`; the later one if two are equally near the beginning of time.
///
/// `near` is a recent time *on the clock that `wire` was read from*: our own for what the peer echoes, the newest
/// one known of the peer's for what the peer says of itself.
pub(crate) fn from_wire(wire: u32, near: Micros) -> Micros {
    let ahead = wire.wrapping_sub(to_wire(near)).cast_signed();
    // Before the epoch or past the end of u64: stay in the turn that `near` is in.
    near.checked_add_signed(ahead.into()).unwrap_or(near & !Micros::from(u32::MAX) | Micros::from(wire))
}

/// A duration as it travels, microseconds: one too long for a varint is the longest.
pub(crate) fn wire_duration(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(varint::MAX).min(varint::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wraps_both_ways() {
        let turn = 1 << 32;
        assert_eq!(from_wire(5, turn - 5), turn + 5);
        assert_eq!(from_wire(u32::MAX, turn + 3), turn - 1);
        assert_eq!(from_wire(7, 7 * turn + 100), 7 * turn + 7);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        assert_eq!(from_wire(u32::MAX, 3), u64::from(u32::MAX));
        assert_eq!(from_wire(3, u64::MAX), u64::MAX - u64::from(u32::MAX) + 3);
    }

    proptest! {
        #[test]
        fn finds_what_is_within_half_a_turn(time in (1_u64 << 31)..(1 << 62), off in -(1_i64 << 31)..(1_i64 << 31)) {
            let near = time.saturating_add_signed(off);
            prop_assert_eq!(from_wire(to_wire(time), near), time);
        }
    }
}
