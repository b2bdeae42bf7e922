//! ARRIVALS: which of the peer's datagrams came over a path, when, and with which ECN mark.

use bytes::{Buf, BufMut};

use super::varint;
use crate::error::ProtocolError;

/// The frame type of ARRIVALS.
pub(super) const ARRIVALS: u64 = 0x02;

/// Bytes that a report of `count` arrivals takes but for the second to the last: type, path, two times, and how many follow.
pub(crate) const fn head_size(path: u64, count: usize) -> usize {
    1 + varint::size(path) + 4 + 4 + varint::size((count as u64) << 1)
}

/// One datagram's arrival, with times as they travel: microseconds modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Its TIMESTAMP, on the clock of who sent it.
    pub(crate) stamp: u32,
    /// When it came, on the clock of who reports it.
    pub(crate) received: u32,
    /// Whether it bore the mark CE.
    pub(crate) ce: bool,
}

impl Arrival {
    /// Bytes it takes behind `before`.
    pub(crate) fn size_after(&self, before: &Self) -> usize {
        varint::size(zigzag(self.stamp.wrapping_sub(before.stamp))) + varint::size(self.later(before))
    }

    fn later(&self, before: &Self) -> u64 {
        u64::from(self.received.wrapping_sub(before.received)) << 1 | u64::from(self.ce)
    }
}

/// The arrivals of one path, in the order in which they came: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// QUIC's id of the path.
    pub(crate) path: u64,
    pub(crate) list: Vec<Arrival>,
}

/// Writes a report of `list`, which is not empty.
pub(super) fn encode(path: u64, list: &[Arrival], out: &mut impl BufMut) {
    let Some((first, rest)) = list.split_first() else { return };
    varint::put(out, ARRIVALS);
    varint::put(out, path);
    out.put_u32(first.stamp);
    out.put_u32(first.received);
    varint::put(out, (rest.len() as u64) << 1 | u64::from(first.ce));
    for (before, arrival) in list.iter().zip(rest) {
        varint::put(out, zigzag(arrival.stamp.wrapping_sub(before.stamp)));
        varint::put(out, arrival.later(before));
    }
}

impl Arrivals {
    /// Reads what follows the frame type.
    pub(super) fn decode(input: &mut impl Buf) -> Result<Self, ProtocolError> {
        let path = varint::get(input)?;
        let (stamp, received) = (varint::get_u32(input)?, varint::get_u32(input)?);
        let head = varint::get(input)?;
        let more = usize::try_from(head >> 1).map_err(|_| ProtocolError::Malformed)?;
        // Each takes two bytes at least, so that no more is allocated than has come.
        if more > input.remaining() / 2 {
            return Err(ProtocolError::Malformed);
        }
        let mut last = Arrival { stamp, received, ce: head & 1 == 1 };
        let mut list = Vec::with_capacity(more + 1);
        list.push(last);
        for _ in 0..more {
            let (ahead, later) = (varint::get(input)?, varint::get(input)?);
            let (Ok(ahead), Ok(gap)) = (u32::try_from(ahead), u32::try_from(later >> 1)) else {
                return Err(ProtocolError::Malformed);
            };
            last = Arrival {
                stamp: last.stamp.wrapping_add(unzigzag(ahead)),
                received: last.received.wrapping_add(gap),
                ce: later & 1 == 1,
            };
            list.push(last);
        }
        Ok(Self { path, list })
    }
}

/// A difference of times, which is a small number of either sign, as a small number.
fn zigzag(difference: u32) -> u64 {
    let signed = difference.cast_signed();
    u64::from(((signed << 1) ^ (signed >> 31)).cast_unsigned())
}

fn unzigzag(number: u32) -> u32 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_arrivals() -> impl Strategy<Value = Arrivals> {
        // From one to the next: a little ahead or back as networks have it, or anything. So the times often wrap.
        let near = (prop_oneof![0..3_000_u32, 4_294_964_296..=u32::MAX], 0..3_000_u32, any::<bool>());
        let far = (any::<u32>(), any::<u32>(), any::<bool>());
        let first =
            (prop_oneof![any::<u32>(), Just(u32::MAX)], prop_oneof![any::<u32>(), Just(u32::MAX)], any::<bool>());
        let steps = proptest::collection::vec(prop_oneof![4 => near, 1 => far], 0..400);
        (varint::any_value(), first, steps).prop_map(|(path, (stamp, received, ce), steps)| {
            let mut last = Arrival { stamp, received, ce };
            let mut list = vec![last];
            for (ahead, later, ce) in steps {
                (last.stamp, last.received, last.ce) =
                    (last.stamp.wrapping_add(ahead), last.received.wrapping_add(later), ce);
                list.push(last);
            }
            Arrivals { path, list }
        })
    }

    #[test]
    fn zigzag_keeps_small_differences_small() {
        let numbers = [0, 1_u32.wrapping_neg(), 1, 2_u32.wrapping_neg(), 1 << 31].map(zigzag);
        assert_eq!(numbers, [0, 1, 2, 3, u64::from(u32::MAX)]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(arrivals in any_arrivals()) {
            let mut out = Vec::new();
            encode(arrivals.path, &arrivals.list, &mut out);
            let sizes = arrivals.list.windows(2).map(|pair| pair[1].size_after(&pair[0])).sum::<usize>();
            prop_assert!(out.len() <= head_size(arrivals.path, arrivals.list.len()) + sizes);
            let mut input = &out[..];
            prop_assert_eq!(varint::get(&mut input), Ok(ARRIVALS));
            prop_assert_eq!(Arrivals::decode(&mut input), Ok(arrivals));
            prop_assert!(input.is_empty());
        }
    }
}
