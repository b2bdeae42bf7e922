//! The control stream: what must arrive, in order.
//!
//! Each side opens one unidirectional stream. It begins with the stream's type, then come frames: a type, a length and that many
//! bytes. The first is SETTINGS. It lasts as long as the session, though on another stream of QUIC's if need be
//! ([`continuation`](super::continuation)).

use bytes::{Buf, BufMut, BytesMut};

use super::{
    EXTENSIONS,
    block::{get_place, put_place},
    varint,
    zigzag::{difference, get_difference, put_difference, unzigzag, zigzag},
};
use crate::{
    block::{BlockId, Channel, Delta, DropReason},
    error::ProtocolError,
};

/// The type of the control stream, its first integer.
const STREAM_TYPE: u64 = 0x50;
/// The version in SETTINGS.
const VERSION: u64 = 1;
/// The longest payload of a frame we know, bytes.
pub(crate) const MAX_PAYLOAD: usize = 1024;
/// The most blocks of a COMPLETED_LIST that we write: however far apart, they have room.
pub(crate) const MAX_LIST: usize = 60;

const SETTINGS: u64 = 0x00;
const CREDIT: u64 = 0x01;
const DROPPED: u64 = 0x02;
const COMPLETED: u64 = 0x03;
const FREED: u64 = 0x04;
const REFUSED: u64 = 0x05;
const EXPECT: u64 = 0x06;
const UPDATE: u64 = 0x07;
const COMPLETED_LIST: u64 = 0x08;
const HEARD: u64 = 0x09;

const MAX_BLOCK_SIZE: u64 = 0x01;
const RECEIVE_BYTES: u64 = 0x02;
const RECEIVE_BLOCKS: u64 = 0x03;
const CHANNELS: u64 = 0x04;
const REPAIR_WINDOW: u64 = 0x05;

/// Flag of DROPPED: a channel and the position in it follow.
const HAS_CHANNEL: u8 = 0x01;

/// A frame of the control stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ControlFrame {
    /// What the sender of this frame accepts. The first frame, once.
    Settings(Settings),
    /// How much the peer may have opened since the session began, in all.
    Credit {
        /// Sum of the blocks' sizes.
        bytes: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// The sender of a block gave it up.
    Dropped {
        /// Which.
        id: BlockId,
        /// Why.
        reason: DropReason,
        /// Its size; 0 if no BLOCK_INFO of it was ever sent, so that it used no credit.
        size: u64,
        /// Its place among ordered blocks, which nothing will fill.
        channel: Option<(Channel, u64)>,
    },
    /// The receiver has all of a block.
    Completed {
        /// Which.
        id: BlockId,
        /// Since when, on the receiver's clock; see [`time`](super::time).
        at: u32,
        /// Bytes that came before the deadline.
        good_bytes: u64,
    },
    /// The receiver has all of each of these blocks, and all came before its deadline: which, and since when.
    ///
    /// As many as [`MAX_LIST`], at least one, and no two after each other with ids further apart than a zigzagged varint can tell.
    CompletedList(Vec<(BlockId, u32)>),
    /// The receiver has forgotten a dropped block.
    Freed {
        /// Which.
        id: BlockId,
        /// Bytes of it that had come before the deadline.
        good_bytes: u64,
    },
    /// The receiver does not want a block; its sender is to drop it.
    Refused {
        /// Which.
        id: BlockId,
    },
    /// By how much a completion missed what the receiving application expected.
    Expect {
        /// Which block.
        id: BlockId,
        /// Actual minus expected. Beyond 36,000 years it is cut short.
        delta: Delta,
    },
    /// The sending application changed its mind about an open block.
    Update {
        /// Which.
        id: BlockId,
        /// The new priority.
        priority: u8,
        /// The new deadline, microseconds from hand-over; at least 1.
        deadline: Option<u64>,
    },
    /// How much of the peer's control stream has been read: that much need not be said again.
    Heard {
        /// Bytes since its beginning.
        bytes: u64,
    },
}

/// SETTINGS: what its sender accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The largest block, bytes.
    pub(crate) max_block_size: u64,
    /// The credit to begin with: the sum of the sizes of opened blocks.
    pub(crate) receive_bytes: u64,
    /// The credit to begin with: the number of opened blocks.
    pub(crate) receive_blocks: u64,
    /// How many channels there may be; 0, also if unsaid, for none.
    pub(crate) channels: u64,
    /// Bytes of symbols and shards of unfinished redundancy groups that are kept; 0, also if unsaid, for no redundancy.
    pub(crate) repair_window: u64,
}

/// Writes what goes before the first frame.
pub(crate) fn open_stream(out: &mut Vec<u8>) {
    varint::put(out, STREAM_TYPE);
}

impl ControlFrame {
    /// Appends the frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.frame_type());
        let begin = out.len();
        self.encode_payload(out);
        let length = out.len() - begin;
        debug_assert!(length <= MAX_PAYLOAD);
        varint::put(out, length as u64);
        // The length, which is known only now, goes before the payload.
        out[begin..].rotate_left(length);
    }

    fn frame_type(&self) -> u64 {
        match self {
            Self::Settings(_) => SETTINGS,
            Self::Credit { .. } => CREDIT,
            Self::Dropped { .. } => DROPPED,
            Self::Completed { .. } => COMPLETED,
            Self::CompletedList(_) => COMPLETED_LIST,
            Self::Freed { .. } => FREED,
            Self::Refused { .. } => REFUSED,
            Self::Expect { .. } => EXPECT,
            Self::Update { .. } => UPDATE,
            Self::Heard { .. } => HEARD,
        }
    }

    fn encode_payload(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Settings(ref settings) => settings.encode(out),
            Self::Credit { bytes, blocks } => {
                varint::put(out, bytes);
                varint::put(out, blocks);
            }
            Self::Dropped { id, reason, size, channel } => {
                varint::put(out, id.0);
                out.put_u8(reason_to_wire(reason));
                varint::put(out, size);
                out.put_u8(if channel.is_some() { HAS_CHANNEL } else { 0 });
                if let Some(place) = channel {
                    put_place(out, place);
                }
            }
            Self::Completed { id, at, good_bytes } => {
                varint::put(out, id.0);
                out.put_u32(at);
                varint::put(out, good_bytes);
            }
            Self::CompletedList(ref list) => put_list(out, list),
            Self::Freed { id, good_bytes } => {
                varint::put(out, id.0);
                varint::put(out, good_bytes);
            }
            Self::Refused { id } => varint::put(out, id.0),
            Self::Expect { id, delta } => {
                varint::put(out, id.0);
                varint::put(out, zigzag(delta.as_micros()));
            }
            Self::Update { id, priority, deadline } => {
                varint::put(out, id.0);
                out.put_u8(priority);
                varint::put(out, deadline.unwrap_or(0));
            }
            Self::Heard { bytes } => varint::put(out, bytes),
        }
    }

    /// Reads the payload of a frame of a known type.
    fn decode(frame_type: u64, mut payload: &[u8]) -> Result<Self, ProtocolError> {
        let input = &mut payload;
        let frame = match frame_type {
            SETTINGS => Self::Settings(Settings::decode(input)?),
            CREDIT => Self::Credit { bytes: varint::get(input)?, blocks: varint::get(input)? },
            DROPPED => Self::Dropped {
                id: BlockId(varint::get(input)?),
                reason: reason_from_wire(varint::get_u8(input)?)?,
                size: varint::get(input)?,
                channel: match varint::get_u8(input)? {
                    0 => None,
                    HAS_CHANNEL => Some(get_place(input)?),
                    _ => return Err(ProtocolError::Malformed),
                },
            },
            COMPLETED => Self::Completed {
                id: BlockId(varint::get(input)?),
                at: varint::get_u32(input)?,
                good_bytes: varint::get(input)?,
            },
            COMPLETED_LIST => Self::CompletedList(get_list(input)?),
            FREED => Self::Freed { id: BlockId(varint::get(input)?), good_bytes: varint::get(input)? },
            REFUSED => Self::Refused { id: BlockId(varint::get(input)?) },
            EXPECT => Self::Expect {
                id: BlockId(varint::get(input)?),
                delta: Delta::from_micros(unzigzag(varint::get(input)?)),
            },
            UPDATE => Self::Update {
                id: BlockId(varint::get(input)?),
                priority: varint::get_u8(input)?,
                deadline: Some(varint::get(input)?).filter(|&micros| micros > 0),
            },
            HEARD => Self::Heard { bytes: varint::get(input)? },
            _ => return Err(ProtocolError::UnknownFrame),
        };
        if input.has_remaining() { Err(ProtocolError::Malformed) } else { Ok(frame) }
    }
}

impl Settings {
    fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, VERSION);
        for (id, value) in [
            (MAX_BLOCK_SIZE, self.max_block_size),
            (RECEIVE_BYTES, self.receive_bytes),
            (RECEIVE_BLOCKS, self.receive_blocks),
            (CHANNELS, self.channels),
            (REPAIR_WINDOW, self.repair_window),
        ] {
            varint::put(out, id);
            varint::put(out, value);
        }
    }

    /// Reads to the end of `input`.
    fn decode(input: &mut impl Buf) -> Result<Self, ProtocolError> {
        // Of another version we know nothing but that it is one.
        if varint::get(input)? != VERSION {
            return Err(ProtocolError::Settings);
        }
        let mut known = [None; 5];
        while input.has_remaining() {
            let id = varint::get(input)?;
            let value = varint::get(input)?;
            if (MAX_BLOCK_SIZE..=REPAIR_WINDOW).contains(&id)
                && known[(id - MAX_BLOCK_SIZE) as usize].replace(value).is_some()
            {
                return Err(ProtocolError::Settings);
            }
        }
        let [Some(max_block_size), Some(receive_bytes), Some(receive_blocks), channels, repair_window] = known else {
            return Err(ProtocolError::Settings);
        };
        let (channels, repair_window) = (channels.unwrap_or(0), repair_window.unwrap_or(0));
        Ok(Self { max_block_size, receive_bytes, receive_blocks, channels, repair_window })
    }
}

/// Reads a control stream as it comes.
///
/// Push what the stream yields, then call [`next`](Self::next) until it returns `Ok(None)`. Between two such rounds it holds
/// less than one frame: at most [`HELD`](Self::HELD) bytes. During one it holds what was pushed besides, so push a
/// chunk of the stream at a time. Extensions are dropped as they come, however long they are.
#[derive(Debug, Default)]
pub(crate) struct ControlDecoder {
    buf: BytesMut,
    /// Bytes of an extension that are still to come.
    skip: u64,
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    /// The stream's type comes next.
    #[default]
    StreamType,
    /// SETTINGS comes next.
    Settings,
    /// Anything but SETTINGS comes next.
    Open,
    /// The peer broke the protocol.
    Failed(ProtocolError),
}

impl ControlDecoder {
    /// The most that is held between rounds, bytes: a type and a length of eight bytes each, and a payload, all but its last
    /// byte.
    pub(crate) const HELD: usize = 8 + 8 + MAX_PAYLOAD - 1;

    /// Takes the next bytes of the stream.
    pub(crate) fn push(&mut self, mut data: &[u8]) {
        if matches!(self.stage, Stage::Failed(_)) {
            return;
        }
        if self.buf.is_empty() {
            self.skip_in(&mut data);
        }
        self.buf.extend_from_slice(data);
    }

    /// The next frame, or `None` until more is pushed. An error is final: every later call returns it again.
    pub(crate) fn next(&mut self) -> Result<Option<ControlFrame>, ProtocolError> {
        if let Stage::Failed(error) = self.stage {
            return Err(error);
        }
        let frame = self.read().inspect_err(|&error| {
            self.stage = Stage::Failed(error);
            self.buf = BytesMut::new();
        });
        debug_assert!(frame != Ok(None) || self.held() <= Self::HELD, "less than a frame is left between rounds");
        frame
    }

    fn read(&mut self) -> Result<Option<ControlFrame>, ProtocolError> {
        if let Stage::StreamType = self.stage {
            match varint::try_get(&mut self.buf) {
                None => return Ok(None),
                Some(STREAM_TYPE) => self.stage = Stage::Settings,
                Some(_) => return Err(ProtocolError::Stream),
            }
        }
        loop {
            let mut buf = std::mem::take(&mut self.buf);
            self.skip_in(&mut buf);
            self.buf = buf;

            let mut rest = &self.buf[..];
            let Some(frame_type) = varint::try_get(&mut rest) else { return Ok(None) };
            self.check_type(frame_type)?;
            let Some(length) = varint::try_get(&mut rest) else { return Ok(None) };
            if EXTENSIONS.contains(&frame_type) {
                self.skip = length;
                let head = self.buf.len() - rest.len();
                self.buf.advance(head);
                continue;
            }

            let length = usize::try_from(length).ok().filter(|&length| length <= MAX_PAYLOAD);
            let length = length.ok_or(ProtocolError::Malformed)?;
            let Some((payload, after)) = rest.split_at_checked(length) else { return Ok(None) };
            let frame = ControlFrame::decode(frame_type, payload)?;
            let consumed = self.buf.len() - after.len();
            self.buf.advance(consumed);
            self.stage = Stage::Open;
            return Ok(Some(frame));
        }
    }

    /// SETTINGS first and only first; then only what is known or may be skipped.
    fn check_type(&self, frame_type: u64) -> Result<(), ProtocolError> {
        let settings_are_due = matches!(self.stage, Stage::Settings);
        match frame_type {
            SETTINGS if settings_are_due => Ok(()),
            _ if settings_are_due => Err(ProtocolError::Settings),
            SETTINGS => Err(ProtocolError::Settings),
            CREDIT..=HEARD => Ok(()),
            extension if EXTENSIONS.contains(&extension) => Ok(()),
            _ => Err(ProtocolError::UnknownFrame),
        }
    }

    /// Drops what `data` has of the extension being skipped.
    fn skip_in(&mut self, data: &mut impl Buf) {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(data.remaining());
        data.advance(skipped);
        self.skip -= skipped as u64;
    }

    pub(super) fn held(&self) -> usize {
        self.buf.len()
    }
}

/// Whether a block can follow another in a COMPLETED_LIST.
pub(crate) fn can_follow(before: BlockId, id: BlockId) -> bool {
    difference(before.0, id.0).is_some()
}

/// Writes what COMPLETED_LIST says of its first block, and then by how much the next ones differ.
fn put_list(out: &mut impl BufMut, list: &[(BlockId, u32)]) {
    let mut before = None;
    for &(id, at) in list {
        match before.replace((id, at)) {
            None => {
                varint::put(out, id.0);
                out.put_u32(at);
            }
            Some((BlockId(last), since)) => {
                let told = put_difference(out, last, id.0);
                debug_assert!(told, "{id:?} is too far from {last}");
                varint::put(out, zigzag(at.wrapping_sub(since).cast_signed().into()));
            }
        }
    }
}

fn get_list(input: &mut impl Buf) -> Result<Vec<(BlockId, u32)>, ProtocolError> {
    let mut last = (varint::get(input)?, varint::get_u32(input)?);
    let mut list = vec![(BlockId(last.0), last.1)];
    while input.has_remaining() {
        let id = get_difference(input, last.0)?;
        let later = i32::try_from(unzigzag(varint::get(input)?)).map_err(|_| ProtocolError::Malformed)?;
        last = (id, last.1.wrapping_add_signed(later));
        list.push((BlockId(last.0), last.1));
    }
    Ok(list)
}

fn reason_to_wire(reason: DropReason) -> u8 {
    match reason {
        DropReason::Expired => 0,
        DropReason::Cancelled => 1,
        DropReason::DependencyDropped => 2,
        DropReason::Refused => 3,
        DropReason::SessionClosed => 4,
        DropReason::Lost => 5,
    }
}

fn reason_from_wire(byte: u8) -> Result<DropReason, ProtocolError> {
    Ok(match byte {
        0 => DropReason::Expired,
        1 => DropReason::Cancelled,
        2 => DropReason::DependencyDropped,
        3 => DropReason::Refused,
        4 => DropReason::SessionClosed,
        5 => DropReason::Lost,
        _ => return Err(ProtocolError::Malformed),
    })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::frame::block::tests::any_place;

    const EXAMPLE: Settings = Settings {
        max_block_size: 16 << 20,
        receive_bytes: 64 << 20,
        receive_blocks: 16_384,
        channels: 256,
        repair_window: 4 << 20,
    };

    fn any_settings() -> impl Strategy<Value = Settings> {
        let value = varint::any_value;
        (value(), value(), value(), value(), value()).prop_map(
            |(max_block_size, receive_bytes, receive_blocks, channels, repair_window)| Settings {
                max_block_size,
                receive_bytes,
                receive_blocks,
                channels,
                repair_window,
            },
        )
    }

    /// Anything that may follow SETTINGS.
    fn any_frame() -> impl Strategy<Value = ControlFrame> {
        let value = varint::any_value;
        let id = || value().prop_map(BlockId);
        let reason = (0..6_u8).prop_map(|byte| reason_from_wire(byte).unwrap());
        let delta = (value(), any::<bool>()).prop_map(|(size, sign)| {
            let micros = (size / 2) as i64;
            Delta::from_micros(if sign { !micros } else { micros })
        });
        prop_oneof![
            (value(), value()).prop_map(|(bytes, blocks)| ControlFrame::Credit { bytes, blocks }),
            (id(), reason, value(), proptest::option::of(any_place()))
                .prop_map(|(id, reason, size, channel)| ControlFrame::Dropped { id, reason, size, channel }),
            (id(), any::<u32>(), value()).prop_map(|(id, at, good_bytes)| ControlFrame::Completed {
                id,
                at,
                good_bytes
            }),
            vec((id(), any::<u32>()), 1..MAX_LIST).prop_map(|mut list| {
                let near = list.windows(2).take_while(|pair| can_follow(pair[0].0, pair[1].0)).count();
                list.truncate(1 + near);
                ControlFrame::CompletedList(list)
            }),
            (id(), value()).prop_map(|(id, good_bytes)| ControlFrame::Freed { id, good_bytes }),
            id().prop_map(|id| ControlFrame::Refused { id }),
            (id(), delta).prop_map(|(id, delta)| ControlFrame::Expect { id, delta }),
            (id(), any::<u8>(), proptest::option::of(value().prop_map(|micros| micros.max(1))))
                .prop_map(|(id, priority, deadline)| ControlFrame::Update { id, priority, deadline }),
            value().prop_map(|bytes| ControlFrame::Heard { bytes }),
        ]
    }

    /// A frame, or the type, the length and the filler of an extension.
    #[derive(Debug, Clone)]
    enum Item {
        Frame(ControlFrame),
        Extension(u64, usize),
    }

    fn any_item() -> impl Strategy<Value = Item> {
        prop_oneof![
            4 => any_frame().prop_map(Item::Frame),
            1 => (EXTENSIONS, 0..5000_usize).prop_map(|(frame_type, length)| Item::Extension(frame_type, length)),
        ]
    }

    fn encode(settings: Settings, items: &[Item]) -> (Vec<u8>, Vec<ControlFrame>) {
        let mut out = Vec::new();
        open_stream(&mut out);
        let mut frames = vec![ControlFrame::Settings(settings)];
        frames[0].encode(&mut out);
        for item in items {
            match item {
                Item::Frame(frame) => {
                    frame.encode(&mut out);
                    frames.push(frame.clone());
                }
                Item::Extension(frame_type, length) => {
                    varint::put(&mut out, *frame_type);
                    varint::put(&mut out, *length as u64);
                    out.resize(out.len() + length, 0xff);
                }
            }
        }
        (out, frames)
    }

    /// A stream that has got as far as SETTINGS, and then `bytes`.
    fn after_settings(bytes: &[u8]) -> Result<Vec<ControlFrame>, ProtocolError> {
        let mut decoder = ControlDecoder::default();
        decoder.push(&encode(EXAMPLE, &[]).0);
        assert_eq!(decoder.next(), Ok(Some(ControlFrame::Settings(EXAMPLE))));
        decoder.push(bytes);
        std::iter::from_fn(|| decoder.next().transpose()).collect()
    }

    fn first(bytes: &[u8]) -> Result<Option<ControlFrame>, ProtocolError> {
        let mut decoder = ControlDecoder::default();
        decoder.push(bytes);
        let first = decoder.next();
        if first.is_err() {
            decoder.push(bytes);
            assert_eq!(decoder.next(), first, "errors are final");
        }
        first
    }

    /// A stream whose first frame is SETTINGS with this payload.
    fn settings(payload: &[u8]) -> Result<Option<ControlFrame>, ProtocolError> {
        first(&[&[0x40, 0x50, 0x00, payload.len() as u8], payload].concat())
    }

    #[test]
    fn the_stream_type_comes_first() {
        assert_eq!(first(&[0x40]), Ok(None));
        assert_eq!(first(&[0x40, 0x50]), Ok(None));
        assert_eq!(first(&[0x40, 0x51]), Err(ProtocolError::Stream));
        assert_eq!(first(&[0x00]), Err(ProtocolError::Stream));
    }

    #[test]
    fn settings_come_first_and_once() {
        for frame_type in [CREDIT, UPDATE, 0x08, 0x40, 0x7f] {
            let mut bytes = vec![0x40, 0x50];
            varint::put(&mut bytes, frame_type);
            assert_eq!(first(&bytes), Err(ProtocolError::Settings), "{frame_type:#x}");
        }
        let mut again = Vec::new();
        ControlFrame::Settings(EXAMPLE).encode(&mut again);
        assert_eq!(after_settings(&again), Err(ProtocolError::Settings));
    }

    #[test]
    fn settings_that_cannot_be() {
        let all = |channels, repair_window| {
            Ok(Some(ControlFrame::Settings(Settings {
                max_block_size: 9,
                receive_bytes: 8,
                receive_blocks: 7,
                channels,
                repair_window,
            })))
        };
        assert_eq!(settings(&[1, 5, 5, 4, 6, 3, 7, 1, 9, 2, 8]), all(6, 5), "in any order");
        assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7]), all(0, 0), "channels and repairs may be left out");
        assert_eq!(settings(&[1, 0, 5, 1, 9, 2, 8, 3, 7, 0x40, 0x99, 5, 0, 5]), all(0, 0), "unknown ids are ignored");
        let bad = Err(ProtocolError::Settings);
        assert_eq!(settings(&[2, 1, 9, 2, 8, 3, 7]), bad, "another version");
        assert_eq!(settings(&[2, 0xff]), bad, "another version, whatever follows");
        assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7, 1, 9]), bad, "said twice");
        assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7, 4, 1, 4, 1]), bad, "said twice");
        assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7, 5, 1, 5, 1]), bad, "said twice");
        for missing in [[2, 8, 3, 7], [1, 9, 3, 7], [1, 9, 2, 8]] {
            assert_eq!(settings(&[&[1][..], &missing].concat()), bad, "left out");
        }
        assert_eq!(settings(&[1]), bad);
        assert_eq!(settings(&[]), Err(ProtocolError::Malformed), "no version");
        assert_eq!(settings(&[1, 1, 9, 2, 8, 3, 7, 4]), Err(ProtocolError::Malformed), "half a pair");
    }

    #[test]
    fn unknown_types_fail_before_their_length() {
        for frame_type in (HEARD + 1..0x200).filter(|t| !EXTENSIONS.contains(t)) {
            let mut bytes = Vec::new();
            varint::put(&mut bytes, frame_type);
            assert_eq!(after_settings(&bytes), Err(ProtocolError::UnknownFrame), "{frame_type:#x}");
        }
    }

    #[test]
    fn malformed_payloads() {
        for payload in [
            &[0x01, 0x01, 5][..],                                    // CREDIT cut short
            &[0x01, 0x03, 5, 5, 5],                                  // CREDIT with something behind
            &[0x02, 0x04, 1, 6, 0, 0],                               // DROPPED for an unknown reason
            &[0x02, 0x04, 1, 0, 0, 2],                               // DROPPED with an unknown flag
            &[0x02, 0x04, 1, 0, 0, 1],                               // DROPPED without the channel it promises
            &[0x02, 0x0d, 1, 0, 0, 1, 0xc0, 0, 0, 1, 0, 0, 0, 0, 0], // DROPPED in a channel of 33 bits
            &[0x03, 0x05, 1, 0, 0, 0, 0],                            // COMPLETED cut short
            &[0x04, 0x00],                                           // FREED with nothing
            &[0x05, 0x01, 0x40],                                     // REFUSED with half an id
            &[0x06, 0x03, 1, 1, 1],                                  // EXPECT with something behind
            &[0x07, 0x02, 1, 1],                                     // UPDATE cut short
            &[0x05, 0x44, 0x01],                                     // 1,025 bytes
            &[0x05, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], // as long as can be
        ] {
            assert_eq!(after_settings(payload), Err(ProtocolError::Malformed), "{payload:02x?}");
        }
        assert_eq!(after_settings(&[0x05, 0x44, 0x00]), Ok(vec![]), "1,024 bytes may come");
    }

    #[test]
    fn endless_extensions_are_not_kept() {
        let mut decoder = ControlDecoder::default();
        decoder.push(&encode(EXAMPLE, &[]).0);
        decoder.push(&[0x40, 0x40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(decoder.next(), Ok(Some(ControlFrame::Settings(_)))));
        for _ in 0..100 {
            assert_eq!(decoder.next(), Ok(None));
            decoder.push(&[0; 10_000]);
            assert_eq!(decoder.held(), 0);
        }
    }

    proptest! {
        #[test]
        fn round_trip_in_any_chunks(
            settings in any_settings(),
            items in vec(any_item(), 0..12),
            chunks in vec(prop_oneof![Just(0_usize), 1..4_usize, 1..2000_usize], 1..50),
        ) {
            let (bytes, expected) = encode(settings, &items);
            let mut decoder = ControlDecoder::default();
            let mut frames = Vec::new();
            let mut rest = &bytes[..];
            for chunk in chunks.into_iter().chain([usize::MAX]) {
                let (chunk, after) = rest.split_at(chunk.min(rest.len()));
                rest = after;
                decoder.push(chunk);
                while let Some(frame) = decoder.next().unwrap() {
                    frames.push(frame);
                }
                prop_assert!(decoder.held() <= ControlDecoder::HELD);
            }
            prop_assert_eq!(decoder.held(), 0);
            prop_assert_eq!(frames, expected);
        }

        #[test]
        fn every_frame_byte_by_byte(frame in any_frame()) {
            let (bytes, expected) = encode(EXAMPLE, &[Item::Frame(frame)]);
            let mut decoder = ControlDecoder::default();
            let mut frames = Vec::new();
            for (at, byte) in bytes.iter().enumerate() {
                decoder.push(&[*byte]);
                frames.extend(decoder.next().unwrap());
                prop_assert_eq!(frames.len() == 2, at + 1 == bytes.len());
            }
            prop_assert_eq!(frames, expected);
        }

        #[test]
        fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..300)) {
            crate::frame::fuzzing::control(&bytes);
        }

        #[test]
        fn arbitrary_bytes_after_settings(bytes in vec(prop_oneof![0..8_u8, any::<u8>()], 0..300)) {
            let _ = after_settings(&bytes);
        }
    }
}
