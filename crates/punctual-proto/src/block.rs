//! What the application says of a block, and what it hears back.
//!
//! A *block* is the smallest unit of data the application can use (DTP, section II-B): a video frame, a
//! game command, a sensor reading. A part of one is worth nothing, and one that arrives after its
//! deadline is worth nothing either.

use std::{
    fmt,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::registry::LookupError;

/// Names a block within one direction of a session.
///
/// The sender counts blocks from 0 in the order in which they were handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A named sequence of blocks that the receiving application gets in the order of their hand-over.
///
/// A block of a channel waits at the receiver for those before it, until each is complete or known
/// to be dropped. Blocks without a channel, and blocks of different channels, never wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(pub u32);

/// A block to send: the data and what the application knows of its worth.
///
/// ```
/// use std::time::Duration;
/// use punctual_proto::Block;
///
/// let frame = Block::new(&b"an access unit"[..])
///     .deadline(Duration::from_millis(100))
///     .priority(1);
/// assert_eq!(frame.data.len(), 14);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The bytes: at most [`Limits::max_block_size`](crate::Limits::max_block_size) and what the peer accepts. A block may be empty,
    /// but not to a peer that does not speak Punctual ([`SendError::Empty`](crate::SendError::Empty)).
    pub data: Bytes,
    /// How long after hand-over the whole block must be at the receiver's end of the session, which is when it is
    /// [delivered](Outcome::Delivered).
    ///
    /// `None`: whenever it comes; such a block is never dropped for being late. As long as others that are as important have deadlines, it
    /// leaves queues as short as they need them, and has what is left of the paths.
    /// Otherwise at least [`Block::MIN_DEADLINE`].
    pub deadline: Option<Duration>,
    /// 0 is the most important, 255 the least.
    pub priority: u8,
    /// Blocks without which this one is of no use. They are sent first; if one is dropped, so is this. One that is late is sent all the same
    /// while others that depend on it are likely to come, which is as long as no block stands alone again (in its channel, with its priority). So
    /// who can make a key frame when it is asked to had better do so after an outage: all that is late of those before it is dropped then.
    pub dependencies: Vec<BlockId>,
    /// The sequence this block belongs to, if the receiver is to keep an order.
    pub channel: Option<Channel>,
    /// How it is protected against loss; `None`: as its channel is, or else the session
    /// ([`SessionConfig::redundancy`](crate::SessionConfig::redundancy)).
    pub redundancy: Option<Redundancy>,
    /// When the application handed the block over; the deadline counts from here.
    ///
    /// `None` means the moment of the call to `send`. A caller that had to wait (for room, say) before it
    /// could make that call puts the earlier moment here, so that the wait counts.
    pub begin: Option<Instant>,
}

impl Block {
    /// The shortest deadline a block may have.
    pub const MIN_DEADLINE: Duration = Duration::from_millis(1);

    /// A block without a deadline, of middling priority (128), that depends on nothing.
    pub fn new(data: impl Into<Bytes>) -> Self {
        Self {
            data: data.into(),
            deadline: None,
            priority: 128,
            dependencies: Vec::new(),
            channel: None,
            redundancy: None,
            begin: None,
        }
    }

    /// Sets the deadline, counted from hand-over.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the priority: 0 is the highest, 255 the lowest.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Adds a block that this one is useless without.
    pub fn depends_on(mut self, id: BlockId) -> Self {
        self.dependencies.push(id);
        self
    }

    /// Puts the block in a channel, whose blocks arrive in order.
    pub fn channel(mut self, channel: Channel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Says how the block is protected against loss.
    pub fn redundancy(mut self, redundancy: Redundancy) -> Self {
        self.redundancy = Some(redundancy);
        self
    }

    /// Says when the block was handed over, if that was before the call to `send`.
    pub fn begun_at(mut self, begin: Instant) -> Self {
        self.begin = Some(begin);
        self
    }
}

/// How a block is protected against loss (the modes of DMTP, section IV, and one that chooses).
///
/// *Sent again* means that what was lost goes once more, as long as it can arrive in time. *Repair fragments* go beside the
/// block's own, so that it is whole though some were lost; how many is for the session's policy to say
/// ([`redundancy`](crate::redundancy)). They need a peer that takes them, as ours does unless told not to.
///
/// Where both apply, what is lost waits until it is known whether repair fragments make up for it; but not where there is no deadline:
/// then it is sent again at once, and so it is where that would be too late once it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Redundancy {
    /// What is lost is sent again; what could not be sent again in time has repair fragments. Best for nearly everything.
    #[default]
    Auto,
    /// Neither: what is lost is lost, and the block with it.
    None,
    /// Repair fragments only: beyond them, what is lost is lost.
    Fec,
    /// What is lost is sent again, and nothing more.
    Retransmit,
    /// All of it has repair fragments, and what is lost beyond them is sent again.
    Both,
    /// Everything goes twice, on two paths if there are two, and what is lost of both is sent again.
    Duplicate,
}

impl Redundancy {
    /// All modes, the default first.
    pub const ALL: [Self; 6] = [Self::Auto, Self::None, Self::Fec, Self::Retransmit, Self::Both, Self::Duplicate];

    /// Its name, as [`FromStr`](std::str::FromStr) takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Fec => "fec",
            Self::Retransmit => "retransmit",
            Self::Both => "both",
            Self::Duplicate => "duplicate",
        }
    }

    /// Whether what is lost may be sent again.
    pub(crate) fn resends(self) -> bool {
        !matches!(self, Self::None | Self::Fec)
    }

    /// Whether repair fragments, or a copy, may make up for what is lost.
    pub(crate) fn repairs(self) -> bool {
        !matches!(self, Self::None | Self::Retransmit)
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Redundancy {
    type Err = LookupError;

    fn from_str(name: &str) -> Result<Self, LookupError> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| LookupError::UnknownName {
            kind: "mode of redundancy",
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).to_vec(),
        })
    }
}

/// A change of mind about a block that was handed over before; `None` leaves a property as it is.
///
/// ```
/// use punctual_proto::BlockUpdate;
///
/// // More important than it was, and its deadline is taken away.
/// let update = BlockUpdate { priority: Some(1), deadline: Some(None), ..BlockUpdate::default() };
/// assert_eq!(update.dependencies, None, "those stay");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockUpdate {
    /// The new priority.
    pub priority: Option<u8>,
    /// The new deadline, still counted from the original hand-over; `Some(None)` takes the deadline away.
    pub deadline: Option<Option<Duration>>,
    /// The new set of dependencies, in place of the old.
    pub dependencies: Option<Vec<BlockId>>,
}

/// The time between a block's deadline and its completion: positive is late, zero or negative on time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delta(i64);

impl Delta {
    /// From microseconds; positive is late.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// How far `completion` lies behind `deadline`, both counted from hand-over.
    pub fn between(deadline: Duration, completion: Duration) -> Self {
        let micros = |d: Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
        Self(micros(completion).saturating_sub(micros(deadline)))
    }

    /// Microseconds; positive is late.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whether the deadline was missed.
    pub const fn is_late(self) -> bool {
        self.0 > 0
    }
}

/// How a block ended at its sender. Every block that `send` accepted ends in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver's end of the session has the whole block, and all that comes before it in its channel unless that has a
    /// [latency](crate::Session::set_latency). The receiver says so itself, or acknowledges every byte if it does not speak Punctual. (It lets such
    /// words share packets: a word may be 25 ms later than the block's arrival and half a round trip.)
    ///
    /// That its application has taken the block is not meant. It may still wait to be asked for, or for its time. That all blocks were
    /// taken is said at the end of a session ([`Session::finish`](crate::Session::finish)).
    Delivered(Delivery),
    /// It was given up, and the receiving application does not get it. Only if the session ended first
    /// ([`DropReason::SessionClosed`]), it may have it all the same.
    Dropped {
        /// Why.
        reason: DropReason,
        /// Bytes of it that had arrived in time all the same, as far as the sender knows.
        good_bytes: u64,
    },
}

/// The circumstances of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// From hand-over at the sender to the delivery at the receiver's end (the block completion time of DTP).
    pub completion: Duration,
    /// Completion against the deadline; `None` if the block had none.
    pub delta: Option<Delta>,
    /// Bytes that arrived before the deadline: all of them if the block was on time.
    pub good_bytes: u64,
}

impl Delivery {
    /// The delivery of a block that took so long, with what is known of its deadline, and so many bytes that arrived in time.
    pub fn new(completion: Duration, delta: Option<Delta>, good_bytes: u64) -> Self {
        Self { completion, delta, good_bytes }
    }

    /// Whether the block was of use: it had no deadline, or met it.
    pub fn on_time(&self) -> bool {
        self.delta.is_none_or(|delta| !delta.is_late())
    }
}

/// Why a block was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// Its deadline passed before it could be sent; or the peer has it, and never said a word of it.
    Expired,
    /// The sending application cancelled it.
    Cancelled,
    /// A block it depends on was dropped.
    DependencyDropped,
    /// The peer refused it, or has it and never said a word of it.
    Refused,
    /// The session ended first.
    SessionClosed,
    /// A part of it was lost, and its [`Redundancy`] is one that sends nothing again.
    Lost,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::DependencyDropped => "dependency dropped",
            Self::Refused => "refused by the peer",
            Self::SessionClosed => "session closed",
            Self::Lost => "lost",
        })
    }
}

/// A block that is complete at the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedBlock {
    /// The sender's name for it.
    pub id: BlockId,
    /// The bytes.
    pub data: Bytes,
    /// What the sender said of it; all that a fallback peer can say is the default.
    pub meta: BlockMeta,
    /// When it was complete (and its turn in its channel had come), on the receiver's clock.
    pub completed_at: Instant,
    /// From hand-over at the sender until `completed_at`, by the estimated offset of the two clocks.
    ///
    /// `None` until the clocks have been compared, and for blocks from a fallback peer.
    pub completion: Option<Duration>,
    /// When the application was to have it, on the receiver's clock, if its channel [has a latency](crate::Session::set_latency): the moment to play it. A block that was complete later than that
    /// was given out as it came. As reckoned when it was complete: it was given out by what was known of the clocks at that moment, which may differ by 0.25 % of the time between.
    pub play_at: Option<Instant>,
}

impl ReceivedBlock {
    /// Completion against the deadline; `None` if either is unknown.
    pub fn delta(&self) -> Option<Delta> {
        Some(Delta::between(self.meta.deadline?, self.completion?))
    }
}

/// What the sender says of a block besides its bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockMeta {
    /// Size in bytes.
    pub size: u64,
    /// Deadline, counted from hand-over at the sender.
    pub deadline: Option<Duration>,
    /// 0 is the highest.
    pub priority: u8,
    /// The channel, if any.
    pub channel: Option<Channel>,
}

/// What a block of `size` bytes counts as: one without bytes is sent, acknowledged and opened on credit as one of a single byte, which its info
/// brings along unwritten.
pub(crate) fn weight(size: u64) -> u64 {
    size.max(1)
}
