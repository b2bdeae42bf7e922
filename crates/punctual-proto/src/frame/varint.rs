//! Variable-length integers: [RFC 9000, section 16](https://www.rfc-editor.org/rfc/rfc9000#section-16).
//!
//! The first two bits say how many bytes there are (1, 2, 4 or 8), the other bits are the number. We write the shortest
//! form and read any.

use bytes::{Buf, BufMut};

use crate::error::ProtocolError;

/// The largest number there is room for.
pub(crate) const MAX: u64 = (1 << 62) - 1;
/// The most bytes that one takes.
pub(crate) const MAX_LEN: usize = 8;

/// Bytes that `value` takes.
pub(crate) const fn size(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes `value`, or [`MAX`] if it is larger.
///
/// Counts and sizes never come near `MAX`; what may is a duration in microseconds, and past 146,000 years one is as
/// good as another.
pub(crate) fn put(out: &mut impl BufMut, value: u64) {
    let value = value.min(MAX);
    match size(value) {
        1 => out.put_u8(value as u8),
        2 => out.put_u16(1 << 14 | value as u16),
        4 => out.put_u32(2 << 30 | value as u32),
        _ => out.put_u64(3 << 62 | value),
    }
}

/// Reads an integer; `None`, and nothing consumed, if it is not all there yet.
pub(crate) fn try_get(input: &mut impl Buf) -> Option<u64> {
    let first = *input.chunk().first()?;
    let len = 1 << (first >> 6);
    if input.remaining() < len {
        return None;
    }
    Some(match len {
        1 => input.get_u8().into(),
        2 => (input.get_u16() & 0x3fff).into(),
        4 => (input.get_u32() & 0x3fff_ffff).into(),
        _ => input.get_u64() & MAX,
    })
}

/// Reads an integer that must be there.
pub(crate) fn get(input: &mut impl Buf) -> Result<u64, ProtocolError> {
    try_get(input).ok_or(ProtocolError::Malformed)
}

/// Reads one byte that must be there.
pub(crate) fn get_u8(input: &mut impl Buf) -> Result<u8, ProtocolError> {
    input.try_get_u8().map_err(|_| ProtocolError::Malformed)
}

/// Reads four bytes, big endian, that must be there.
pub(crate) fn get_u32(input: &mut impl Buf) -> Result<u32, ProtocolError> {
    input.try_get_u32().map_err(|_| ProtocolError::Malformed)
}

/// A number of any size class, for tests: uniform draws would all be eight bytes long.
#[cfg(test)]
pub(crate) fn any_value() -> impl proptest::strategy::Strategy<Value = u64> {
    use proptest::prelude::*;
    prop_oneof![0..0x40_u64, 0..0x4000_u64, 0..0x4000_0000_u64, 0..=MAX]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples_of_the_rfc() {
        // RFC 9000, appendix A.1
        for (mut bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out, bytes);
            assert_eq!(get(&mut bytes), Ok(value));
        }
        assert_eq!(get(&mut &[0x40, 0x25][..]), Ok(37), "longer than need be");
    }

    #[test]
    fn too_large_is_the_largest() {
        let mut out = Vec::new();
        put(&mut out, u64::MAX);
        assert_eq!(out, [0xff; 8]);
        assert_eq!(get(&mut &out[..]), Ok(MAX));
    }

    proptest! {
        #[test]
        fn round_trip(value in any_value()) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), size(value));
            for cut in 0..out.len() {
                let mut input = &out[..cut];
                prop_assert_eq!(try_get(&mut input), None);
                prop_assert_eq!(input.len(), cut);
                prop_assert_eq!(get(&mut input), Err(ProtocolError::Malformed));
            }
            let mut input = &out[..];
            prop_assert_eq!(get(&mut input), Ok(value));
            prop_assert!(input.is_empty());
        }
    }
}
