//! Numbers of variable length, as QUIC has them (RFC 9000, section 16): the two highest bits say how many bytes there are.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest there may be.
pub(crate) const LARGEST: u64 = (1 << 62) - 1;

/// Writes one.
pub(crate) fn put(out: &mut BytesMut, number: u64) {
    debug_assert!(number <= LARGEST, "{number}");
    match number {
        0..0x40 => out.put_u8(number as u8),
        0x40..0x4000 => out.put_u16(0x4000 | number as u16),
        0x4000..0x4000_0000 => out.put_u32(0x8000_0000 | number as u32),
        _ => out.put_u64(0xc000_0000_0000_0000 | number),
    }
}

/// Reads one; `None` if it ends too early.
pub(crate) fn get(from: &mut Bytes) -> Option<u64> {
    let length = 1 << (from.first()? >> 6);
    let whole = from.try_get_uint(length).ok()?;
    Some(whole & (u64::MAX >> (64 - 8 * length + 2)))
}
