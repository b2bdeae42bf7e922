//! BLOCK_INFO, what the receiver must know of a block; the head of FRAGMENT, a run of its bytes; and that of BLOCK, which is both for a
//! block that fits into a datagram, told by how it differs from the one before.

use bytes::{Buf, BufMut};

use super::{
    varint,
    zigzag::{get_difference, put_difference},
};
use crate::{
    block::{BlockId, Channel},
    error::ProtocolError,
};

/// The frame type of BLOCK_INFO.
pub(super) const BLOCK_INFO: u64 = 0x10;
/// The frame type of a FRAGMENT that takes the rest of its datagram.
pub(super) const FRAGMENT: u64 = 0x12;
/// The frame type of a FRAGMENT with a length.
pub(super) const FRAGMENT_WITH_LENGTH: u64 = 0x13;

/// The frame type of a BLOCK about which nothing has to be said but its id and age; its three lowest bits say what else there is.
pub(super) const BLOCK: u64 = 0x18;
/// Bit of a BLOCK's type: its size follows, which is not that of the block before.
const OWN_SIZE: u64 = 0x01;
/// Bit of a BLOCK's type: its priority and deadline follow, which are not those of the block before.
const OWN_URGENCY: u64 = 0x02;
/// Bit of a BLOCK's type: a channel and the position in it follow.
const IN_CHANNEL: u64 = 0x04;
/// The last of its types.
pub(super) const LAST_BLOCK: u64 = BLOCK | OWN_SIZE | OWN_URGENCY | IN_CHANNEL;

/// Flag: a deadline follows.
const HAS_DEADLINE: u8 = 0x01;
/// Flag: a channel and the position in it follow.
const HAS_CHANNEL: u8 = 0x02;

/// BLOCK_INFO: opens a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockInfo {
    /// Which block.
    pub(crate) id: BlockId,
    /// Its size, bytes. An empty block (0) is whole by this alone.
    pub(crate) size: u64,
    /// How long before the datagram's TIMESTAMP the block was handed over, microseconds.
    pub(crate) age: u64,
    /// Its deadline, microseconds from hand-over; at least 1.
    pub(crate) deadline: Option<u64>,
    /// 0 is the most important.
    pub(crate) priority: u8,
    /// Its channel, and how many blocks of that channel came before it.
    pub(crate) channel: Option<(Channel, u64)>,
}

impl BlockInfo {
    pub(super) fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, BLOCK_INFO);
        varint::put(out, self.id.0);
        varint::put(out, self.size);
        varint::put(out, self.age);
        let deadline = if self.deadline.is_some() { HAS_DEADLINE } else { 0 };
        let channel = if self.channel.is_some() { HAS_CHANNEL } else { 0 };
        out.put_u8(deadline | channel);
        out.put_u8(self.priority);
        if let Some(deadline) = self.deadline {
            varint::put(out, deadline);
        }
        if let Some(place) = self.channel {
            put_place(out, place);
        }
    }

    /// By how many bytes it is longer when the block is older than 16 ms, at most: up to 18 minutes its age then takes four.
    pub(crate) fn grows_by(&self) -> usize {
        4_usize.saturating_sub(varint::size(self.age))
    }

    /// Reads what follows the frame type.
    pub(super) fn decode(input: &mut impl Buf) -> Result<Self, ProtocolError> {
        let id = BlockId(varint::get(input)?);
        let size = varint::get(input)?;
        let age = varint::get(input)?;
        let flags = varint::get_u8(input)?;
        if flags & !(HAS_DEADLINE | HAS_CHANNEL) != 0 {
            return Err(ProtocolError::Malformed);
        }
        let priority = varint::get_u8(input)?;
        let deadline = match flags & HAS_DEADLINE {
            0 => None,
            _ => Some(varint::get(input)?),
        };
        if deadline == Some(0) {
            return Err(ProtocolError::Malformed);
        }
        let channel = match flags & HAS_CHANNEL {
            0 => None,
            _ => Some(get_place(input)?),
        };
        Ok(Self { id, size, age, deadline, priority, channel })
    }

    /// Writes the head of a BLOCK behind one with the info `before`, if that can be done.
    pub(super) fn encode_after(&self, before: Option<&Self>, out: &mut impl BufMut) -> bool {
        let (id, age) = before.map_or((0, 0), |before| (before.id.0, before.age));
        let own_size = before.is_none_or(|before| before.size != self.size);
        let own_urgency =
            before.is_none_or(|before| (before.priority, before.deadline) != (self.priority, self.deadline));
        let bits = [(own_size, OWN_SIZE), (own_urgency, OWN_URGENCY), (self.channel.is_some(), IN_CHANNEL)];
        varint::put(out, bits.iter().filter(|(is_set, _)| *is_set).fold(BLOCK, |bits, (_, bit)| bits | bit));
        if !(put_difference(out, id, self.id.0) && put_difference(out, age, self.age)) {
            return false;
        }
        if own_size {
            varint::put(out, self.size);
        }
        if own_urgency {
            out.put_u8(self.priority);
            varint::put(out, self.deadline.unwrap_or(0));
        }
        if let Some(place) = self.channel {
            put_place(out, place);
        }
        true
    }

    /// Reads what follows the type of a BLOCK, but for the data.
    pub(super) fn decode_after(
        before: Option<&Self>,
        frame_type: u64,
        input: &mut impl Buf,
    ) -> Result<Self, ProtocolError> {
        let (id, age) = before.map_or((0, 0), |before| (before.id.0, before.age));
        let id = BlockId(get_difference(input, id)?);
        let age = get_difference(input, age)?;
        let size = match frame_type & OWN_SIZE {
            0 => before.ok_or(ProtocolError::Malformed)?.size,
            _ => varint::get(input)?,
        };
        let (priority, deadline) = match frame_type & OWN_URGENCY {
            0 => before.map(|before| (before.priority, before.deadline)).ok_or(ProtocolError::Malformed)?,
            _ => (varint::get_u8(input)?, Some(varint::get(input)?).filter(|&micros| micros > 0)),
        };
        let channel = match frame_type & IN_CHANNEL {
            0 => None,
            _ => Some(get_place(input)?),
        };
        Ok(Self { id, size, age, deadline, priority, channel })
    }
}

/// Writes a channel and a position in it.
pub(super) fn put_place(out: &mut impl BufMut, (channel, position): (Channel, u64)) {
    varint::put(out, channel.0.into());
    varint::put(out, position);
}

/// Reads a channel and a position in it.
pub(super) fn get_place(input: &mut impl Buf) -> Result<(Channel, u64), ProtocolError> {
    Ok((get_channel(input)?, varint::get(input)?))
}

/// Reads a channel.
pub(super) fn get_channel(input: &mut impl Buf) -> Result<Channel, ProtocolError> {
    u32::try_from(varint::get(input)?).map(Channel).map_err(|_| ProtocolError::Malformed)
}

/// The head of a FRAGMENT: all of it but the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FragmentHead {
    pub(super) id: BlockId,
    pub(super) offset: u64,
    /// `None`: the data takes the rest of the datagram.
    pub(super) length: Option<usize>,
}

impl FragmentHead {
    pub(super) fn size(&self) -> usize {
        1 + varint::size(self.id.0)
            + varint::size(self.offset)
            + self.length.map_or(0, |length| varint::size(length as u64))
    }

    pub(super) fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, if self.length.is_some() { FRAGMENT_WITH_LENGTH } else { FRAGMENT });
        varint::put(out, self.id.0);
        varint::put(out, self.offset);
        if let Some(length) = self.length {
            varint::put(out, length as u64);
        }
    }

    /// Reads what lies between the frame type and the data, and checks that the data is there: the length it
    /// returns is never 0 and never more than what remains of `input`.
    pub(super) fn decode(frame_type: u64, input: &mut impl Buf) -> Result<(BlockId, u64, usize), ProtocolError> {
        let id = BlockId(varint::get(input)?);
        let offset = varint::get(input)?;
        let length = if frame_type == FRAGMENT { input.remaining() as u64 } else { varint::get(input)? };
        // The numbers first: an impossible range is one even where the datagram is also cut short. No overflow in u64.
        if offset + length > varint::MAX {
            return Err(ProtocolError::FragmentRange);
        }
        match usize::try_from(length) {
            Ok(length) if (1..=input.remaining()).contains(&length) => Ok((id, offset, length)),
            _ => Err(ProtocolError::Malformed),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::frame) fn any_place() -> impl Strategy<Value = (Channel, u64)> {
        (any::<u32>(), varint::any_value()).prop_map(|(channel, position)| (Channel(channel), position))
    }

    pub(in crate::frame) fn any_info() -> impl Strategy<Value = BlockInfo> {
        let deadline = proptest::option::of(varint::any_value().prop_map(|micros| micros.max(1)));
        (
            varint::any_value(),
            varint::any_value(),
            varint::any_value(),
            deadline,
            any::<u8>(),
            proptest::option::of(any_place()),
        )
            .prop_map(|(id, size, age, deadline, priority, channel)| BlockInfo {
                id: BlockId(id),
                size,
                age,
                deadline,
                priority,
                channel,
            })
    }

    fn decode(mut bytes: &[u8]) -> Result<BlockInfo, ProtocolError> {
        BlockInfo::decode(&mut bytes)
    }

    #[test]
    fn impossible_values() {
        assert!(decode(&[1, 9, 0, 0, 0]).is_ok());
        assert_eq!(decode(&[1, 0, 0, 0, 0]).map(|info| info.size), Ok(0), "an empty block is one, too");
        assert_eq!(decode(&[1, 9, 0, 0x04, 0]), Err(ProtocolError::Malformed), "an unknown flag");
        assert_eq!(decode(&[1, 9, 0, HAS_DEADLINE, 0, 0]), Err(ProtocolError::Malformed), "a deadline of nothing");
        let wide_channel = [1, 9, 0, HAS_CHANNEL, 0, 0xc0, 0, 0, 1, 0, 0, 0, 0, 0];
        assert_eq!(decode(&wide_channel), Err(ProtocolError::Malformed), "a channel of 33 bits");
    }

    proptest! {
        #[test]
        fn cut_short_anywhere(info in any_info()) {
            let mut out = Vec::new();
            info.encode(&mut out);
            prop_assert_eq!(decode(&out[1..]), Ok(info));
            for end in 1..out.len() {
                prop_assert_eq!(decode(&out[1..end]), Err(ProtocolError::Malformed));
            }
        }
    }
}
