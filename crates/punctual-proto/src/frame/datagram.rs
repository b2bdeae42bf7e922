//! A datagram's payload: frames, one after the other, to its end.

use std::ops::Range;

use bytes::{Buf, BufMut, Bytes};

use super::{
    EXTENSIONS,
    arrivals::{self, ARRIVALS, Arrival, Arrivals},
    block::{BLOCK, BLOCK_INFO, BlockInfo, FRAGMENT, FRAGMENT_WITH_LENGTH, FragmentHead, LAST_BLOCK},
    repair::{REPAIR, RepairHead, SOURCE, SourceHead, repair_head},
    time::TIMESTAMP,
    varint,
};
use crate::{block::BlockId, error::ProtocolError, fec::is_shard_len};

/// The frame type of PADDING, and all there is to it.
const PADDING: u64 = 0x00;

/// More than any frame but FRAGMENT and REPAIR takes: BLOCK_INFO, the longest, has a type, six integers and two bytes.
const LONGEST_HEAD: usize = 64;

/// A frame of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DatagramFrame {
    /// When the datagram was sent, on its sender's clock.
    Timestamp {
        /// Microseconds modulo 2^32; see [`time`](super::time).
        sent: u32,
    },
    /// When datagrams of ours came.
    Arrivals(Arrivals),
    /// Opens a block; never without a TIMESTAMP before it in the same datagram.
    BlockInfo(BlockInfo),
    /// Bytes of a block.
    Fragment {
        /// Which block.
        id: BlockId,
        /// Where in the block they belong; `offset + data.len()` is a varint too.
        offset: u64,
        /// The bytes, at least one, shared with the datagram.
        data: Bytes,
    },
    /// The datagram is part of a redundancy group.
    Source {
        /// Which, and which part.
        head: SourceHead,
        /// All that follows in the datagram, shared with it. Its frames come next, as of any datagram.
        symbol: Bytes,
    },
    /// A repair of a redundancy group.
    Repair {
        /// Which group, and which repair.
        head: RepairHead,
        /// A shard, shared with the datagram.
        shard: Bytes,
    },
}

/// Fills one datagram.
///
/// Each method writes its frame whole or not at all. The buffer is allocated once, and a datagram filled to its
/// capacity is handed on without a copy.
#[derive(Debug)]
pub(crate) struct DatagramWriter {
    buf: Vec<u8>,
    /// Where SOURCE ends, if there is one.
    begin: usize,
    capacity: usize,
    /// The last block it was told of.
    last: Option<BlockInfo>,
}

impl DatagramWriter {
    /// An empty datagram that may grow to `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { buf: Vec::with_capacity(capacity), begin: 0, capacity, last: None }
    }

    /// SOURCE: makes what follows the symbol `index` of a group that lives for `life` milliseconds more. Before everything else. Whether there was room.
    ///
    /// [`max_symbol`](super::repair::max_symbol) tells how much may follow.
    pub(crate) fn source(&mut self, group: u64, index: u8, life: u64) -> bool {
        debug_assert!(self.buf.is_empty(), "SOURCE is a datagram's first frame");
        let fits = self.write(|out| SourceHead { group, index, life }.encode(out));
        self.begin = self.buf.len();
        fits
    }

    /// REPAIR: a shard of a group, and the last frame. Whether there was room.
    pub(crate) fn repair(&mut self, head: &RepairHead, shard: &[u8]) -> bool {
        debug_assert!(head.is_possible(), "{head:?}");
        debug_assert!(is_shard_len(shard.len()), "a shard of {} bytes", shard.len());
        debug_assert_eq!(self.begin, 0, "repairs are not repaired");
        if repair_head(head.group, head.life) + shard.len() > self.remaining() {
            return false;
        }
        head.encode(&mut self.buf);
        self.buf.extend_from_slice(shard);
        self.capacity = self.buf.len();
        true
    }

    /// TIMESTAMP: the datagram's time of sending. The first frame but for SOURCE, if there is to be one.
    pub(crate) fn timestamp(&mut self, sent: u32) -> bool {
        debug_assert!(self.is_empty(), "the timestamp is a datagram's first frame");
        self.write(|out| {
            varint::put(out, TIMESTAMP);
            out.put_u32(sent);
        })
    }

    /// PADDING, up to the capacity.
    pub(crate) fn pad(&mut self) {
        self.buf.resize(self.capacity, PADDING as u8);
    }

    /// ARRIVALS, with as many of the path's arrivals as there is room for, and as fit `most` bytes: how many that was.
    pub(crate) fn arrivals(&mut self, path: u64, list: &[Arrival], most: usize) -> usize {
        let head = arrivals::head_size(path, list.len());
        let most = most.min(self.remaining());
        if list.is_empty() || most < head {
            return 0;
        }
        let mut room = most - head;
        let fits = |pair: &&[Arrival]| {
            let size = pair[1].size_after(&pair[0]);
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        };
        let count = 1 + list.windows(2).take_while(fits).count();
        arrivals::encode(path, &list[..count], &mut self.buf);
        count
    }

    /// BLOCK_INFO, which needs a timestamp before it. Whether there was room.
    pub(crate) fn block_info(&mut self, info: &BlockInfo) -> bool {
        debug_assert_eq!(self.buf.get(self.begin).map(|&t| t.into()), Some(TIMESTAMP), "an age needs a timestamp");
        let fits = self.write(|out| info.encode(out));
        if fits {
            self.last = Some(*info);
        }
        fits
    }

    /// BLOCK: all of a block at once, behind a timestamp. Whether there was room.
    pub(crate) fn block(&mut self, info: &BlockInfo, data: &[u8]) -> bool {
        debug_assert_eq!(self.buf.get(self.begin).map(|&t| t.into()), Some(TIMESTAMP), "an age needs a timestamp");
        debug_assert_eq!(info.size, data.len() as u64, "all of the block");
        let before = self.last;
        let fits = self.write_with(data, |out| info.encode_after(before.as_ref(), out));
        if fits {
            self.last = Some(*info);
        }
        fits
    }

    /// FRAGMENT: as many bytes of `data` as there is room for. How many that was: 0 if not one.
    ///
    /// The last fragment of a full datagram has no length and takes the rest of it; after that there is no room left, even
    /// if the length just saved was a byte or two of it.
    pub(crate) fn fragment(&mut self, id: BlockId, offset: u64, data: &[u8]) -> usize {
        let to_the_end = FragmentHead { id, offset, length: None };
        let with_length = FragmentHead { id, offset, length: Some(data.len()) };
        let room = self.remaining();
        if data.is_empty() || room <= to_the_end.size() {
            return 0;
        }
        if with_length.size() + data.len() < room {
            with_length.encode(&mut self.buf);
            self.buf.extend_from_slice(data);
            return data.len();
        }
        let written = data.len().min(room - to_the_end.size());
        to_the_end.encode(&mut self.buf);
        self.buf.extend_from_slice(&data[..written]);
        self.capacity = self.buf.len();
        written
    }

    /// The room that these bytes of a block need, and what there is to be told of it, if they are the last in the datagram.
    pub(crate) fn needed_for(&self, info: Option<&BlockInfo>, id: BlockId, range: &Range<u64>) -> usize {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let fragment = FragmentHead { id, offset: range.start, length: None }.size();
        let head = match info {
            Some(info) if info.size == range.end - range.start => {
                encoded(|out| info.encode_after(self.last.as_ref(), out)).1
            }
            Some(info) => encoded(|out| info.encode(out)).1 + fragment,
            None => fragment,
        };
        head.saturating_add(len)
    }

    /// Bytes of room left.
    pub(crate) fn remaining(&self) -> usize {
        self.capacity - self.buf.len()
    }

    /// Whether nothing was written yet, but for SOURCE, which means nothing by itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.buf.len() == self.begin
    }

    /// The datagram.
    pub(crate) fn finish(self) -> Bytes {
        self.buf.into()
    }

    /// Writes a short frame if there is room for it.
    fn write(&mut self, frame: impl FnOnce(&mut &mut [u8])) -> bool {
        self.write_with(&[], |out| {
            frame(out);
            true
        })
    }

    /// Writes a head, if there is one, and the data behind it, if there is room for both.
    fn write_with(&mut self, data: &[u8], head: impl FnOnce(&mut &mut [u8]) -> bool) -> bool {
        let (scratch, len, is_there) = encoded(head);
        let fits = is_there && len + data.len() <= self.remaining();
        if fits {
            self.buf.extend_from_slice(&scratch[..len]);
            self.buf.extend_from_slice(data);
        }
        fits
    }
}

/// A short frame or the head of one, how long it is, and what else came of it.
fn encoded<T>(head: impl FnOnce(&mut &mut [u8]) -> T) -> ([u8; LONGEST_HEAD], usize, T) {
    let mut scratch = [0; LONGEST_HEAD];
    let mut rest = &mut scratch[..];
    let outcome = head(&mut rest);
    let len = LONGEST_HEAD - rest.len();
    (scratch, len, outcome)
}

/// The frames of a received datagram. Ends at the datagram's end or after the first error.
///
/// Padding and extensions are passed over in silence. A BLOCK is read as the BLOCK_INFO and the FRAGMENT that it stands for.
#[derive(Debug, Clone)]
pub(crate) struct DatagramFrames {
    rest: Bytes,
    has_timestamp: bool,
    place: Place,
    /// The last block it told of.
    last: Option<BlockInfo>,
    /// The data of that, if it is to come next.
    data: Option<Bytes>,
}

/// Where frames are read, for what SOURCE and REPAIR have to say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing was read yet.
    Begin,
    /// Behind the first frame, which was no SOURCE.
    Plain,
    /// In the symbol of a group.
    Symbol,
}

impl DatagramFrames {
    /// Reads `datagram`.
    pub(crate) fn new(datagram: Bytes) -> Self {
        Self { rest: datagram, has_timestamp: false, place: Place::Begin, last: None, data: None }
    }

    /// Reads a symbol that was restored: what followed SOURCE in a datagram that has not come.
    pub(crate) fn of_symbol(symbol: Bytes) -> Self {
        Self { place: Place::Symbol, ..Self::new(symbol) }
    }

    /// The next frame that is one to us; there is at least a byte left.
    fn read(&mut self) -> Result<Option<DatagramFrame>, ProtocolError> {
        let rest = &mut self.rest;
        let place = self.place;
        if place == Place::Begin {
            self.place = Place::Plain;
        }
        Ok(Some(match varint::get(rest)? {
            PADDING => return Ok(None),
            TIMESTAMP => {
                // With two there would be no telling which of them an age counts from.
                if std::mem::replace(&mut self.has_timestamp, true) {
                    return Err(ProtocolError::Malformed);
                }
                DatagramFrame::Timestamp { sent: varint::get_u32(rest)? }
            }
            ARRIVALS => DatagramFrame::Arrivals(Arrivals::decode(rest)?),
            BLOCK_INFO => {
                if !self.has_timestamp {
                    return Err(ProtocolError::Malformed);
                }
                let info = BlockInfo::decode(rest)?;
                self.last = Some(info);
                DatagramFrame::BlockInfo(info)
            }
            frame_type @ BLOCK..=LAST_BLOCK => {
                if !self.has_timestamp {
                    return Err(ProtocolError::Malformed);
                }
                let info = BlockInfo::decode_after(self.last.as_ref(), frame_type, rest)?;
                let size = usize::try_from(info.size).ok().filter(|&size| size <= rest.len());
                let data = rest.split_to(size.ok_or(ProtocolError::Malformed)?);
                self.data = Some(data).filter(|data| !data.is_empty());
                self.last = Some(info);
                DatagramFrame::BlockInfo(info)
            }
            frame_type @ (FRAGMENT | FRAGMENT_WITH_LENGTH) => {
                let (id, offset, length) = FragmentHead::decode(frame_type, rest)?;
                DatagramFrame::Fragment { id, offset, data: rest.split_to(length) }
            }
            SOURCE => {
                if place != Place::Begin {
                    return Err(ProtocolError::Malformed);
                }
                self.place = Place::Symbol;
                DatagramFrame::Source { head: SourceHead::decode(rest)?, symbol: rest.clone() }
            }
            REPAIR => {
                if place == Place::Symbol {
                    return Err(ProtocolError::Malformed);
                }
                DatagramFrame::Repair { head: RepairHead::decode(rest)?, shard: std::mem::take(rest) }
            }
            extension if EXTENSIONS.contains(&extension) => {
                let length = varint::get(rest)?;
                match usize::try_from(length) {
                    Ok(length) if length <= rest.len() => rest.advance(length),
                    _ => return Err(ProtocolError::Malformed),
                }
                return Ok(None);
            }
            _ => return Err(ProtocolError::UnknownFrame),
        }))
    }
}

impl Iterator for DatagramFrames {
    type Item = Result<DatagramFrame, ProtocolError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let (Some(data), Some(info)) = (self.data.take(), &self.last) {
            return Some(Ok(DatagramFrame::Fragment { id: info.id, offset: 0, data }));
        }
        while !self.rest.is_empty() {
            let frame = self.read();
            if frame.is_err() {
                self.rest = Bytes::new();
            }
            if let Some(item) = frame.transpose() {
                return Some(item);
            }
        }
        None
    }
}

impl std::iter::FusedIterator for DatagramFrames {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{arrivals::tests::any_arrivals, block::tests::any_info, repair::tests::any_source};

    /// A frame to write; the fragment's data is cut to what fits.
    #[derive(Debug, Clone)]
    enum Write {
        Arrivals(Arrivals),
        BlockInfo(BlockInfo),
        Block(BlockInfo, Vec<u8>),
        Fragment(BlockId, u64, Vec<u8>),
    }

    fn any_write() -> impl Strategy<Value = Write> {
        let fragment = (varint::any_value(), varint::any_value(), proptest::collection::vec(any::<u8>(), 0..300));
        prop_oneof![
            any_arrivals().prop_map(Write::Arrivals),
            any_info().prop_map(Write::BlockInfo),
            (any_info(), any::<bool>(), proptest::collection::vec(any::<u8>(), 1..40)).prop_map(
                |(info, alike, data)| {
                    let alike =
                        alike.then_some(BlockInfo { deadline: Some(50_000), priority: 7, channel: None, ..info });
                    Write::Block(BlockInfo { size: data.len() as u64, ..alike.unwrap_or(info) }, data)
                }
            ),
            fragment.prop_map(|(id, offset, data)| {
                Write::Fragment(BlockId(id), offset.min(varint::MAX - data.len() as u64), data)
            }),
        ]
    }

    fn read(bytes: &[u8]) -> Vec<Result<DatagramFrame, ProtocolError>> {
        DatagramFrames::new(Bytes::copy_from_slice(bytes)).collect()
    }

    fn fragment(id: u64, offset: u64, data: &'static [u8]) -> DatagramFrame {
        DatagramFrame::Fragment { id: BlockId(id), offset, data: Bytes::from_static(data) }
    }

    const MALFORMED: Result<DatagramFrame, ProtocolError> = Err(ProtocolError::Malformed);

    #[test]
    fn a_full_packet_spends_24_bytes_at_most() {
        let largest = (1 << 30) - 1;
        let mut writer = DatagramWriter::new(1200);
        assert!(writer.timestamp(u32::MAX));
        let written = writer.fragment(BlockId(largest), largest, &[0; 2000]);
        assert_eq!(writer.remaining(), 0);
        let datagram = writer.finish();
        assert_eq!(datagram.len(), 1200);
        assert!(datagram.len() - written <= 24, "{} bytes", datagram.len() - written);
    }

    #[test]
    fn what_does_not_fit_leaves_no_trace() {
        let info = BlockInfo { id: BlockId(1), size: 9, age: 0, deadline: Some(1), priority: 0, channel: None };
        let mut writer = DatagramWriter::new(11);
        assert!(writer.timestamp(1));
        assert!(!writer.block_info(&info));
        assert_eq!(writer.arrivals(0, &[Arrival { stamp: 0, received: 0, ce: false }], usize::MAX), 0);
        assert_eq!(writer.fragment(BlockId(1 << 20), 0, b"x"), 0);
        assert_eq!(writer.fragment(BlockId(1), 0, b""), 0);
        assert_eq!(writer.remaining(), 6);
        assert_eq!(writer.fragment(BlockId(1), 0, b"xyz"), 3);
        assert_eq!(writer.remaining(), 0);
        assert!(!DatagramWriter::new(4).timestamp(1));
    }

    #[test]
    fn a_fragment_takes_the_rest_only_where_it_must() {
        // Four bytes of head with a length, three without.
        for (capacity, left) in [(9, 0), (10, 0), (11, 0), (12, 1)] {
            let mut writer = DatagramWriter::new(capacity);
            let written = writer.fragment(BlockId(1), 0, b"1234567");
            assert_eq!(written, 7.min(capacity - 3));
            assert_eq!(writer.remaining(), left, "of {capacity}");
            let datagram = writer.finish();
            assert_eq!(u64::from(datagram[0]), if left == 0 { FRAGMENT } else { FRAGMENT_WITH_LENGTH });
            assert_eq!(read(&datagram), [Ok(fragment(1, 0, &b"1234567"[..written]))]);
        }
    }

    #[test]
    fn a_small_block_among_its_like_spends_five_bytes() {
        let info =
            |id, age| BlockInfo { id: BlockId(id), size: 32, age, deadline: Some(297_000), priority: 1, channel: None };
        let mut writer = DatagramWriter::new(1200);
        assert!(writer.timestamp(u32::MAX));
        assert!(writer.block(&info(1 << 20, 40_000), &[0; 32]));
        let before = writer.remaining();
        assert!(writer.block(&info((1 << 20) + 20, 35_000), &[0; 32]));
        assert!(before - writer.remaining() <= 32 + 5);
    }

    #[test]
    fn fragments_share_the_datagram() {
        let datagram = Bytes::from_static(&[0x13, 1, 0, 2, b'a', b'b', 0x12, 2, 0, b'c']);
        let inside = datagram.as_ptr_range();
        for frame in DatagramFrames::new(datagram) {
            let Ok(DatagramFrame::Fragment { data, .. }) = frame else { panic!("{frame:?}") };
            assert!(inside.contains(&data.as_ptr()));
        }
    }

    #[test]
    fn an_age_needs_exactly_one_timestamp() {
        let timestamp = [0x01, 0, 0, 0, 1];
        let info = [0x10, 1, 9, 0, 0, 0];
        assert_eq!(read(&info), [MALFORMED]);
        assert!(read(&[&timestamp[..], &[0, 0], &info].concat()).iter().all(Result::is_ok));
        assert_eq!(read(&[timestamp, timestamp].concat()), [Ok(DatagramFrame::Timestamp { sent: 1 }), MALFORMED]);
    }

    #[test]
    fn malformed_fragments() {
        assert_eq!(read(&[0x12, 1, 0]), [MALFORMED], "no data");
        assert_eq!(read(&[0x13, 1, 0, 0]), [MALFORMED], "a length of 0");
        assert_eq!(read(&[0x13, 1, 0, 2, 7]), [MALFORMED], "less data than promised");
        assert_eq!(read(&[0x13, 1]), [MALFORMED], "cut short");
    }

    #[test]
    fn fragments_end_where_varints_do() {
        let mut bytes = vec![0x12, 1];
        varint::put(&mut bytes, varint::MAX - 1);
        bytes.push(7);
        assert_eq!(read(&bytes), [Ok(fragment(1, varint::MAX - 1, &[7]))]);
        bytes.push(8);
        assert_eq!(read(&bytes), [Err(ProtocolError::FragmentRange)]);

        let mut bytes = vec![0x13, 1, 1];
        varint::put(&mut bytes, varint::MAX);
        assert_eq!(read(&bytes), [Err(ProtocolError::FragmentRange)]);
    }

    #[test]
    fn padding_and_extensions_are_skipped() {
        let bytes = [0x00, 0x00, 0x40, 0x40, 0x02, 0xff, 0xff, 0x40, 0x7f, 0x00, 0x12, 1, 0, 7];
        assert_eq!(read(&bytes), [Ok(fragment(1, 0, &[7]))]);
        assert_eq!(read(&[0x40, 0x40, 0x03, 0xff, 0xff]), [MALFORMED], "an extension cut short");
        assert_eq!(read(&[0x40, 0x40]), [MALFORMED], "an extension without a length");
        assert_eq!(read(&[0x40]), [MALFORMED], "half a type");
    }

    #[test]
    fn other_types_are_unknown() {
        let known = [0x00, 0x01, 0x02, 0x10, 0x12, 0x13, 0x20, 0x21];
        let is_known = |t: &u64| known.contains(t) || (BLOCK..=LAST_BLOCK).contains(t);
        for frame_type in (0..0x200).filter(|t| !is_known(t)) {
            let mut bytes = Vec::new();
            varint::put(&mut bytes, frame_type);
            bytes.extend([0; 60]);
            let known = EXTENSIONS.contains(&frame_type);
            let expected = if known { vec![] } else { vec![Err(ProtocolError::UnknownFrame)] };
            assert_eq!(read(&bytes), expected, "{frame_type:#x}");
        }
    }

    #[test]
    fn source_is_first_and_repair_stands_alone() {
        let source = [0x20, 9, 3, 5];
        let head = SourceHead { group: 9, index: 3, life: 5 };
        let repair = [0x21, 9, 5, 2, 1, 0, 0, 0];
        let fragment_of_one = [0x13, 1, 0, 1, 7];
        let symbol = |symbol: &[u8]| Ok(DatagramFrame::Source { head, symbol: Bytes::copy_from_slice(symbol) });

        assert_eq!(read(&source), [symbol(&[])], "an empty symbol");
        let datagram = [&source[..], &fragment_of_one].concat();
        assert_eq!(read(&datagram), [symbol(&fragment_of_one), Ok(fragment(1, 0, &[7]))]);
        for before in [&[0x00][..], &[0x01, 0, 0, 0, 1], &fragment_of_one, &[0x40, 0x40, 0], &source] {
            let last = read(&[before, &source].concat()).pop();
            assert_eq!(last, Some(MALFORMED), "{before:02x?}");
        }
        assert_eq!(read(&[&source[..], &repair].concat()), [symbol(&repair), MALFORMED]);
        for before in [&[][..], &[0x00], &[0x01, 0, 0, 0, 1], &fragment_of_one] {
            let last = read(&[before, &repair].concat()).pop();
            assert!(matches!(last, Some(Ok(DatagramFrame::Repair { .. }))), "{before:02x?}");
        }

        let of_symbol = |bytes: &[u8]| DatagramFrames::of_symbol(Bytes::copy_from_slice(bytes)).collect::<Vec<_>>();
        assert_eq!(of_symbol(&fragment_of_one), [Ok(fragment(1, 0, &[7]))]);
        assert_eq!(of_symbol(&source), [MALFORMED]);
        assert_eq!(of_symbol(&repair), [MALFORMED]);
    }

    proptest! {
        #[test]
        fn round_trip(
            sent: u32,
            source in proptest::option::of(any_source()),
            capacity in 25_usize..1500,
            writes in proptest::collection::vec(any_write(), 0..20),
        ) {
            let mut writer = DatagramWriter::new(capacity);
            if let Some(SourceHead { group, index, life }) = source {
                prop_assert!(writer.source(group, index, life));
            }
            let begin = capacity - writer.remaining();
            prop_assert!(writer.is_empty());
            prop_assert!(writer.timestamp(sent));
            let mut expected = vec![Ok(DatagramFrame::Timestamp { sent })];
            for write in writes {
                let before = writer.remaining();
                let frame = match write {
                    Write::Block(info, data) => {
                        let fits = writer.block(&info, &data);
                        expected.extend(fits.then_some(Ok(DatagramFrame::BlockInfo(info))));
                        fits.then(|| DatagramFrame::Fragment { id: info.id, offset: 0, data: data.into() })
                    }
                    Write::Arrivals(Arrivals { path, mut list }) => {
                        list.truncate(writer.arrivals(path, &list, usize::MAX));
                        (!list.is_empty()).then_some(DatagramFrame::Arrivals(Arrivals { path, list }))
                    }
                    Write::BlockInfo(info) => writer.block_info(&info).then_some(DatagramFrame::BlockInfo(info)),
                    Write::Fragment(id, offset, mut data) => {
                        let written = writer.fragment(id, offset, &data);
                        let all = written == data.len();
                        prop_assert!(written == 0 || all || writer.remaining() == 0);
                        data.truncate(written);
                        (written > 0).then_some(DatagramFrame::Fragment { id, offset, data: data.into() })
                    }
                };
                prop_assert!(frame.is_some() || writer.remaining() == before);
                expected.extend(frame.map(Ok));
            }
            let datagram = writer.finish();
            prop_assert!(datagram.len() <= capacity);
            let symbol = datagram.slice(begin..);
            if let Some(head) = source {
                let of_symbol: Vec<_> = DatagramFrames::of_symbol(symbol.clone()).collect();
                prop_assert_eq!(&of_symbol, &expected);
                expected.insert(0, Ok(DatagramFrame::Source { head, symbol }));
            }
            prop_assert_eq!(DatagramFrames::new(datagram).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            crate::frame::fuzzing::datagram(&bytes);
        }
    }
}
