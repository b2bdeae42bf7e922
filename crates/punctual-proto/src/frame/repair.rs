//! SOURCE and REPAIR: what a redundancy group is made of.
//!
//! SOURCE goes before all other frames of its datagram, and makes a symbol of them; REPAIR holds a shard of the
//! [code](crate::fec) over the symbols of a group.

use bytes::{Buf, BufMut};

use super::{time::TIMESTAMP_SIZE, varint};
use crate::{
    error::ProtocolError,
    fec::{LENGTH_PREFIX, MAX_SOURCES, is_shard_len, most_repairs},
};

/// The frame type of SOURCE.
pub(super) const SOURCE: u64 = 0x20;
/// The frame type of REPAIR.
pub(super) const REPAIR: u64 = 0x21;

/// SOURCE: the place in a group of what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceHead {
    /// Which group.
    pub(crate) group: u64,
    /// Which of its symbols, from 0; less than [`MAX_SOURCES`].
    pub(crate) index: u8,
    /// For how long after this datagram's arrival the receiver is to be ready to use the group, milliseconds.
    pub(crate) life: u64,
}

impl SourceHead {
    pub(super) fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, SOURCE);
        varint::put(out, self.group);
        out.put_u8(self.index);
        varint::put(out, self.life);
    }

    /// Reads what follows the frame type.
    pub(super) fn decode(input: &mut impl Buf) -> Result<Self, ProtocolError> {
        let group = varint::get(input)?;
        let index = varint::get_u8(input)?;
        if usize::from(index) >= MAX_SOURCES {
            return Err(ProtocolError::Malformed);
        }
        Ok(Self { group, index, life: varint::get(input)? })
    }
}

/// REPAIR without its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RepairHead {
    /// Which group.
    pub(crate) group: u64,
    /// As in [`SourceHead`].
    pub(crate) life: u64,
    /// m: how many symbols the group has, 1 to [`MAX_SOURCES`].
    pub(crate) sources: u8,
    /// n: for how many repairs its code is made, 1 to [`most_repairs`] of m.
    pub(crate) repairs: u8,
    /// Which of these, from 0.
    pub(crate) index: u8,
}

impl RepairHead {
    pub(super) fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, REPAIR);
        varint::put(out, self.group);
        varint::put(out, self.life);
        out.put_slice(&[self.sources, self.repairs, self.index]);
    }

    /// Reads what lies between the frame type and the shard, and checks that the rest of `input` may be one.
    pub(super) fn decode(input: &mut impl Buf) -> Result<Self, ProtocolError> {
        let head = Self {
            group: varint::get(input)?,
            life: varint::get(input)?,
            sources: varint::get_u8(input)?,
            repairs: varint::get_u8(input)?,
            index: varint::get_u8(input)?,
        };
        if head.is_possible() && is_shard_len(input.remaining()) { Ok(head) } else { Err(ProtocolError::Malformed) }
    }

    pub(super) fn is_possible(&self) -> bool {
        let sizes = [(self.sources, MAX_SOURCES), (self.repairs, most_repairs(self.sources.into()))];
        sizes.iter().all(|&(size, max)| (1..=max).contains(&size.into())) && self.index < self.repairs
    }
}

/// Bytes of a SOURCE.
pub(crate) const fn source_head(group: u64, life: u64) -> usize {
    1 + varint::size(group) + 1 + varint::size(life)
}

/// Bytes of a REPAIR without its shard.
pub(crate) const fn repair_head(group: u64, life: u64) -> usize {
    1 + varint::size(group) + varint::size(life) + 3
}

/// Bytes of a datagram with a repair and a TIMESTAMP before it.
pub(crate) const fn repair_datagram(group: u64, life: u64, shard: usize) -> usize {
    TIMESTAMP_SIZE + repair_head(group, life) + shard
}

/// The longest symbol in a group whose datagrams have room for `capacity` bytes each and tell no longer life than `life`
/// milliseconds.
///
/// So long that its own datagram, with the SOURCE, fits, and so does that of a repair with a TIMESTAMP before it.
pub(crate) const fn max_symbol(capacity: usize, group: u64, life: u64) -> usize {
    let symbol = capacity.saturating_sub(source_head(group, life));
    let shard = capacity.saturating_sub(TIMESTAMP_SIZE + repair_head(group, life));
    let in_shard = (shard & !1).saturating_sub(LENGTH_PREFIX);
    if symbol < in_shard { symbol } else { in_shard }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        fec::shard_len,
        frame::{DatagramFrame, DatagramFrames, DatagramWriter},
    };

    pub(in crate::frame) fn any_source() -> impl Strategy<Value = SourceHead> {
        (varint::any_value(), 0..MAX_SOURCES as u8, varint::any_value()).prop_map(|(group, index, life)| SourceHead {
            group,
            index,
            life,
        })
    }

    pub(in crate::frame) fn any_repair() -> impl Strategy<Value = RepairHead> {
        let repairs = |sources: u8| (Just(sources), 1..=most_repairs(sources.into()) as u8);
        let sizes = (1..=MAX_SOURCES as u8).prop_flat_map(repairs);
        let code = sizes.prop_flat_map(|(sources, repairs)| (Just(sources), Just(repairs), 0..repairs));
        (varint::any_value(), varint::any_value(), code)
            .prop_map(|(group, life, (sources, repairs, index))| RepairHead { group, life, sources, repairs, index })
    }

    #[test]
    fn impossible_values() {
        let source = |mut bytes: &[u8]| SourceHead::decode(&mut bytes);
        assert!(source(&[9, 127, 5]).is_ok());
        assert_eq!(source(&[9, 128, 5]), Err(ProtocolError::Malformed), "an index too high");
        let repair = |mut bytes: &[u8]| RepairHead::decode(&mut bytes);
        assert!(repair(&[9, 5, 128, 127, 126, 0, 0]).is_ok());
        for (bytes, why) in [
            (&[9, 5, 0, 1, 0, 0, 0][..], "of nothing"),
            (&[9, 5, 129, 1, 0, 0, 0], "of too much"),
            (&[9, 5, 1, 0, 0, 0, 0], "no repairs"),
            (&[9, 5, 1, 128, 0, 0, 0], "too many repairs"),
            (&[9, 5, 1, 2, 2, 0, 0], "an index too high"),
            (&[9, 5, 1, 1, 0], "no shard"),
            (&[9, 5, 1, 1, 0, 0], "half a length"),
            (&[9, 5, 1, 1, 0, 0, 0, 0], "an odd shard"),
        ] {
            assert_eq!(repair(bytes), Err(ProtocolError::Malformed), "{why}");
        }
    }

    proptest! {
        #[test]
        fn heads_have_the_size_they_are_said_to_have(source in any_source(), repair in any_repair()) {
            let mut out = Vec::new();
            source.encode(&mut out);
            prop_assert_eq!(out.len(), source_head(source.group, source.life));
            out.clear();
            repair.encode(&mut out);
            prop_assert_eq!(out.len(), repair_head(repair.group, repair.life));
        }

        #[test]
        fn heads_cut_short(source in any_source(), repair in any_repair()) {
            let mut out = Vec::new();
            source.encode(&mut out);
            for end in 1..out.len() {
                prop_assert_eq!(SourceHead::decode(&mut &out[1..end]), Err(ProtocolError::Malformed));
            }
            out.clear();
            repair.encode(&mut out);
            for end in 1..=out.len() {
                prop_assert_eq!(RepairHead::decode(&mut &out[1..end]), Err(ProtocolError::Malformed));
            }
        }

        #[test]
        fn the_longest_symbol_just_fits(capacity in 60_usize..1_500, source in any_source(), repair in any_repair()) {
            let repair = RepairHead { group: source.group, life: source.life, ..repair };
            let fits = |symbol: usize| {
                let mut datagram = DatagramWriter::new(capacity);
                let source = datagram.source(source.group, source.index, source.life) && datagram.remaining() >= symbol;
                let mut datagram = DatagramWriter::new(capacity);
                source && datagram.timestamp(1) && datagram.repair(&repair, &vec![7; shard_len(symbol)])
            };
            let longest = max_symbol(capacity, source.group, source.life);
            prop_assert!(fits(longest));
            prop_assert!(!fits(longest + 1));
        }

        #[test]
        fn repairs_round_trip(repair in any_repair(), half in 1_usize..100, stamped: bool) {
            let shard = vec![0x5a; 2 * half];
            let mut datagram = DatagramWriter::new(500);
            prop_assert!(!stamped || datagram.timestamp(9));
            prop_assert!(datagram.repair(&repair, &shard));
            prop_assert_eq!(datagram.remaining(), 0, "it takes the rest");
            let mut frames = DatagramFrames::new(datagram.finish());
            if stamped {
                prop_assert_eq!(frames.next(), Some(Ok(DatagramFrame::Timestamp { sent: 9 })));
            }
            prop_assert_eq!(frames.next(), Some(Ok(DatagramFrame::Repair { head: repair, shard: shard.into() })));
            prop_assert_eq!(frames.next(), None);
        }
    }
}
