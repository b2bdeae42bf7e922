//! Differences: small numbers of either sign, as small varints.

use bytes::{Buf, BufMut};

use super::varint;
use crate::error::ProtocolError;

/// The largest difference that a varint holds once it is zigzagged.
pub(super) const MAX_DELTA: i64 = (1 << 61) - 1;

/// Small numbers of either sign to small numbers: 0, -1, 1, -2 become 0, 1, 2, 3.
pub(super) fn zigzag(delta: i64) -> u64 {
    let delta = delta.clamp(-MAX_DELTA - 1, MAX_DELTA);
    (delta << 1 ^ delta >> 63).cast_unsigned()
}

pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// By how much a varint differs from the one before it, zigzagged; `None` if that is beyond what a varint holds.
pub(super) fn difference(before: u64, value: u64) -> Option<u64> {
    let delta = value.cast_signed() - before.cast_signed();
    (-MAX_DELTA - 1..=MAX_DELTA).contains(&delta).then(|| zigzag(delta))
}

/// Writes that; nothing, and `false`, if there is none.
pub(super) fn put_difference(out: &mut impl BufMut, before: u64, value: u64) -> bool {
    difference(before, value).map(|difference| varint::put(out, difference)).is_some()
}

/// Reads a varint that is told by its difference to the one before it.
pub(super) fn get_difference(input: &mut impl Buf, before: u64) -> Result<u64, ProtocolError> {
    let delta = unzigzag(varint::get(input)?);
    let value = before.checked_add_signed(delta).filter(|&value| value <= varint::MAX);
    value.ok_or(ProtocolError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn differences_are_read_as_written(before in varint::any_value(), value in varint::any_value()) {
            let mut out = Vec::new();
            if put_difference(&mut out, before, value) {
                prop_assert_eq!(get_difference(&mut &out[..], before), Ok(value));
            } else {
                prop_assert!(before.abs_diff(value) > MAX_DELTA.cast_unsigned());
                prop_assert!(out.is_empty());
            }
        }
    }

    #[test]
    fn deltas_of_any_sign() {
        for (delta, value) in
            [(0, 0), (-1, 1), (1, 2), (-2, 3), (MAX_DELTA, varint::MAX - 1), (!MAX_DELTA, varint::MAX)]
        {
            assert_eq!(zigzag(delta), value);
            assert_eq!(unzigzag(value), delta);
        }
        assert_eq!(unzigzag(zigzag(i64::MAX)), MAX_DELTA);
        assert_eq!(unzigzag(zigzag(i64::MIN)), !MAX_DELTA);
    }

    #[test]
    fn what_is_no_varint_is_refused() {
        assert_eq!(get_difference(&mut &[1][..], 0), Err(ProtocolError::Malformed), "-1");
        assert_eq!(get_difference(&mut &[2][..], varint::MAX), Err(ProtocolError::Malformed), "one too many");
    }
}
