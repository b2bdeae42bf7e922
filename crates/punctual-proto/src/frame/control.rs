//! The control stream: what must arrive, in order.
//!
//! Each side opens one unidirectional stream. It begins with the stream's type, then come frames: a type, a length and that many
//! bytes. The first is SETTINGS, or TOKEN and then SETTINGS. It lasts as long as the session, though on another stream of QUIC's if need be
//! ([`continuation`](super::continuation)).

use std::ops::Range;

use bytes::{Buf, BufMut, BytesMut};

use super::{
    EXTENSIONS,
    block::{get_channel, get_place, put_place},
    lists, varint,
    zigzag::{unzigzag, zigzag},
};
use crate::{
    block::{BlockId, Channel, Delta, DropReason},
    error::ProtocolError,
    role::{PathRole, Terms},
    token::Token,
};

/// The type of the control stream, its first integer.
const STREAM_TYPE: u64 = 0x50;
/// The version in SETTINGS.
const VERSION: u64 = 1;
/// The longest payload of a frame we know, bytes.
pub(crate) const MAX_PAYLOAD: usize = 1024;

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
const DROPPED_LIST: u64 = 0x0a;
const FINISHED: u64 = 0x0b;
const TAKEN: u64 = 0x0c;
const PATH: u64 = 0x0d;
const TOKEN: u64 = 0x0e;
const LATENCY: u64 = 0x0f;

const MAX_BLOCK_SIZE: u64 = 0x01;
const RECEIVE_BYTES: u64 = 0x02;
const RECEIVE_BLOCKS: u64 = 0x03;
const CHANNELS: u64 = 0x04;
const REPAIR_WINDOW: u64 = 0x05;

/// Flag of DROPPED and LATENCY: a channel and the position in it follow.
const HAS_CHANNEL: u8 = 0x01;

/// A frame of the control stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ControlFrame {
    /// What a client shows to be let in. If at all, before SETTINGS.
    Token(Token),
    /// What the sender of this frame accepts. The first frame, but for TOKEN, once.
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
    /// As many as [`MAX_LIST`](lists::MAX_LIST), at least one, and no two after each other with ids further apart than a zigzagged varint can tell.
    CompletedList(Vec<(BlockId, u32)>),
    /// The sender of these blocks gave them up, for the same reason. None was ever opened, and none has a place in a channel.
    ///
    /// As many runs as [`MAX_LIST`](lists::MAX_LIST), at least one, rising and not touching, of [`MAX_RUNS_HOLD`](lists::MAX_RUNS_HOLD) blocks in all.
    DroppedList(DropReason, Vec<Range<u64>>),
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
    /// The sender of blocks hands over no more of them, and all have ended.
    Finished,
    /// What a path is for and what it costs, by the word of the application of the sender of this frame.
    Path {
        /// QUIC's number of the path.
        path: u64,
        /// Its terms.
        terms: Terms,
    },
    /// How long after their hand-over blocks of a channel, or those of none, should be given to the receiving application, by the wish of the sending one.
    Latency {
        /// Whose blocks.
        channel: Option<Channel>,
        /// Microseconds; 0 for no wish any more.
        latency: u64,
    },
    /// The answer to FINISHED: the receiving application has dealt with all blocks it was given, and waits for more.
    Taken,
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
            Self::Token(_) => TOKEN,
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
            Self::DroppedList(..) => DROPPED_LIST,
            Self::Finished => FINISHED,
            Self::Taken => TAKEN,
            Self::Path { .. } => PATH,
            Self::Latency { .. } => LATENCY,
        }
    }

    fn encode_payload(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Token(ref token) => out.extend_from_slice(token.bytes()),
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
            Self::CompletedList(ref list) => lists::put(out, list),
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
            Self::DroppedList(reason, ref runs) => {
                out.put_u8(reason_to_wire(reason));
                lists::put_runs(out, runs);
            }
            Self::Path { path, terms: Terms { role, cost } } => {
                varint::put(out, path);
                out.put_u8(role_to_wire(role));
                out.put_f64(cost);
            }
            Self::Latency { channel, latency } => {
                varint::put(out, latency);
                out.put_u8(if channel.is_some() { HAS_CHANNEL } else { 0 });
                if let Some(Channel(channel)) = channel {
                    varint::put(out, channel.into());
                }
            }
            Self::Finished | Self::Taken => {}
        }
    }

    /// Reads the payload of a frame of a known type.
    fn decode(frame_type: u64, mut payload: &[u8]) -> Result<Self, ProtocolError> {
        let input = &mut payload;
        let frame = match frame_type {
            TOKEN => Self::Token(Token::new(std::mem::take(input)).map_err(|_| ProtocolError::Malformed)?),
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
            COMPLETED_LIST => Self::CompletedList(lists::get(input)?),
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
            DROPPED_LIST => Self::DroppedList(reason_from_wire(varint::get_u8(input)?)?, lists::get_runs(input)?),
            FINISHED => Self::Finished,
            TAKEN => Self::Taken,
            PATH => Self::Path {
                path: varint::get(input)?,
                terms: Terms { role: role_from_wire(varint::get_u8(input)?)?, cost: get_cost(input)? },
            },
            LATENCY => Self::Latency {
                latency: varint::get(input)?,
                channel: match varint::get_u8(input)? {
                    0 => None,
                    HAS_CHANNEL => Some(get_channel(input)?),
                    _ => return Err(ProtocolError::Malformed),
                },
            },
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
    /// TOKEN or SETTINGS comes next.
    First,
    /// SETTINGS comes next.
    Settings,
    /// Anything but these comes next.
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
                Some(STREAM_TYPE) => self.stage = Stage::First,
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
            self.stage = if frame_type == TOKEN { Stage::Settings } else { Stage::Open };
            return Ok(Some(frame));
        }
    }

    /// SETTINGS first and only first, but for TOKEN before it; then only what is known or may be skipped.
    fn check_type(&self, frame_type: u64) -> Result<(), ProtocolError> {
        let is_first = matches!(self.stage, Stage::First);
        let settings_are_due = is_first || matches!(self.stage, Stage::Settings);
        match frame_type {
            SETTINGS if settings_are_due => Ok(()),
            TOKEN if is_first => Ok(()),
            _ if settings_are_due => Err(ProtocolError::Settings),
            SETTINGS | TOKEN => Err(ProtocolError::Settings),
            CREDIT..=PATH | LATENCY => Ok(()),
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

fn role_to_wire(role: PathRole) -> u8 {
    match role {
        PathRole::Normal => 0,
        PathRole::Preferred => 1,
        PathRole::Backup => 2,
    }
}

fn role_from_wire(byte: u8) -> Result<PathRole, ProtocolError> {
    PathRole::ALL.into_iter().find(|role| role_to_wire(*role) == byte).ok_or(ProtocolError::Malformed)
}

/// Reads what a byte costs: eight bytes, big endian.
fn get_cost(input: &mut impl Buf) -> Result<f64, ProtocolError> {
    let cost = input.try_get_f64().map_err(|_| ProtocolError::Malformed)?;
    if Terms::is_cost(cost) { Ok(cost) } else { Err(ProtocolError::Malformed) }
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
#[path = "control_tests.rs"]
mod tests;
