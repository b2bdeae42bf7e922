//! What can go wrong, as enums to match on.

use std::{sync::Arc, time::Duration};

use noq_proto::ConnectionError;
use thiserror::Error;

use crate::{
    base::PathId,
    block::{Block, BlockId},
};

/// Why `send` did not take a block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// As many bytes or blocks are live as [`Limits`](crate::Limits) allow; the block comes back.
    /// Try again after [`Event::Writable`](crate::Event::Writable).
    #[error("the sender holds as much as its limits allow; send again once it is writable")]
    Full(Box<Block>),
    /// The block has no bytes, which a peer that does not speak Punctual cannot be told.
    #[error("a block must have at least one byte, as the peer does not speak punctual/1")]
    Empty,
    /// Larger than we or the peer allow.
    #[error("a block of {size} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// The block's size, bytes.
        size: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// Deadlines begin at 1 ms.
    #[error("a deadline of {0:?} is shorter than a millisecond")]
    DeadlineTooShort(Duration),
    /// It depends on a block that was never sent.
    #[error("it depends on block {0}, which does not exist")]
    UnknownDependency(BlockId),
    /// Too many dependencies, for this block or in all.
    #[error("too many dependencies (Limits::dependencies_per_block, Limits::dependency_edges)")]
    TooManyDependencies,
    /// It would be one more channel than a session may have in all its life: [use one again](crate::Limits::channels).
    #[error("too many channels (Limits::channels)")]
    TooManyChannels,
    /// The session has ended or is ending.
    #[error("the session is closed")]
    Closed,
}

/// Why `update`, `cancel`, `refuse` or `expect` had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The block has ended already, or never was.
    #[error("block {0} is not live")]
    NotLive(BlockId),
    /// Deadlines begin at 1 ms.
    #[error("a deadline of {0:?} is shorter than a millisecond")]
    DeadlineTooShort(Duration),
    /// It would depend on a block that was never sent.
    #[error("block {0} does not exist")]
    UnknownDependency(BlockId),
    /// Too many dependencies, for this block or in all.
    #[error("too many dependencies (Limits::dependencies_per_block, Limits::dependency_edges)")]
    TooManyDependencies,
    /// Too many `expect`s wait to be sent.
    #[error("too much feedback waits to be sent")]
    Busy,
    /// The peer does not speak Punctual.
    #[error("the peer does not speak punctual/1")]
    Fallback,
}

/// Why a path could not be opened, changed or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// Only the client opens paths.
    #[error("only the client opens paths")]
    NotClient,
    /// The peer did not agree to multipath.
    #[error("the peer does not support multipath")]
    NotSupported,
    /// We or the peer allow no more.
    #[error("no more paths are allowed")]
    TooMany,
    /// As many have been opened, or tried, as a session can have in all its life (16,384, for a peer keeps a little of each). Those that are open stay; for
    /// others begin another session.
    #[error("the session has had as many paths as it can have in its life; begin another session")]
    Spent,
    /// There is a path between these ends already, or one on its way.
    #[error("{0} is between the same ends already")]
    AlreadyOpen(PathId),
    /// There is no such path.
    #[error("there is no such path")]
    Unknown,
    /// A cost is a number, and not less than nothing.
    #[error("the cost of a path must be finite and not negative")]
    InvalidCost,
    /// Closing the last path would end the session; close that instead.
    #[error("it is the last path; close the session instead")]
    Last,
    /// The session has ended.
    #[error("the session is closed")]
    Closed,
}

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// We closed it.
    #[error("closed by this side")]
    Local,
    /// The peer's application closed it.
    #[error("closed by the peer (code {code}): {reason}")]
    Peer {
        /// The peer's code; 0 is a normal end. Codes below [`ProtocolError::BASE`] are the application's.
        code: u64,
        /// The peer's words.
        reason: String,
    },
    /// Nothing was heard for [`SessionConfig::idle_timeout`](crate::SessionConfig::idle_timeout).
    #[error("the peer fell silent")]
    TimedOut,
    /// The peer does not know the session any more: a server that was started again says so (RFC 9000, section 10.3). It can be called again at once. It is heard on the session's
    /// first path alone; if that is no more, the session [times out](Self::TimedOut) instead.
    #[error("the peer does not know the session any more, as if it had been started again")]
    Reset,
    /// The peer broke the Punctual protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// QUIC or TLS failed: a certificate that does not check, a version that does not match, …
    #[error("{0}")]
    Transport(#[from] TransportError),
}

/// QUIC or TLS failed, here or at the peer.
#[derive(Debug, Clone, Error)]
#[error("{words}")]
pub struct TransportError {
    words: String,
    code: Option<u64>,
    by_peer: bool,
    tls: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl TransportError {
    pub(crate) fn of(error: &ConnectionError) -> Self {
        let (code, by_peer, tls) = match error {
            ConnectionError::TransportError(error) => (Some(u64::from(error.code)), false, error.crypto.clone()),
            ConnectionError::ConnectionClosed(close) => (Some(u64::from(close.error_code)), true, None),
            _ => (None, false, None),
        };
        Self { words: error.to_string(), code, by_peer, tls }
    }

    /// The QUIC transport error code (RFC 9000, section 20.1), if there is one. 256 to 511 are TLS alerts.
    pub fn code(&self) -> Option<u64> {
        self.code
    }

    /// The TLS alert (RFC 8446, section 6), if it is one.
    pub fn alert(&self) -> Option<u8> {
        self.code.filter(|code| code >> 8 == 1).map(|code| code as u8)
    }

    /// Whether it was the peer that ended the connection.
    pub fn is_by_peer(&self) -> bool {
        self.by_peer
    }

    /// What TLS had to say on this side, if it was that.
    pub fn tls(&self) -> Option<&crate::rustls::Error> {
        self.tls.as_deref()?.downcast_ref()
    }
}

impl PartialEq for TransportError {
    fn eq(&self, other: &Self) -> bool {
        (&self.words, self.code, self.by_peer) == (&other.words, other.code, other.by_peer)
    }
}

impl Eq for TransportError {}

/// How a peer can break the Punctual protocol. Each closes the session with a code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A frame is cut short or holds an impossible value.
    #[error("malformed frame")]
    Malformed,
    /// A frame type outside those known and those reserved for extensions.
    #[error("unknown frame type")]
    UnknownFrame,
    /// SETTINGS missing, repeated, or of another version.
    #[error("bad settings")]
    Settings,
    /// More blocks or bytes than there was credit for.
    #[error("credit exceeded")]
    Credit,
    /// A block larger than allowed.
    #[error("bad block size")]
    BlockSize,
    /// A fragment beyond its block's end.
    #[error("fragment out of range")]
    FragmentRange,
    /// Two fragments disagree about the same bytes.
    #[error("contradictory fragments")]
    FragmentConflict,
    /// Block info that differs from what was said before, or a block id used twice.
    #[error("contradictory block info")]
    InfoConflict,
    /// Feedback about a block that was never sent.
    #[error("feedback about an unknown block")]
    UnknownBlock,
    /// More channels than allowed, or a channel position used twice.
    #[error("bad channel")]
    Channel,
    /// A stream that has no business in a Punctual session, or the end of one that must stay open.
    #[error("bad stream")]
    Stream,
    /// A repair that contradicts its group: other repairs, sources, or what it restores.
    #[error("contradictory repair")]
    Repair,
    /// For as long as a session may be idle the peer acknowledged what it was sent and did not say a word of it, or of itself.
    #[error("silent peer")]
    Silent,
    /// No breach: all sessions of the endpoint together hold too much, and this one most of it.
    #[error("the endpoint is out of memory")]
    Memory,
    /// A client that opens and abandons paths without end.
    #[error("paths opened and abandoned without end")]
    Paths,
    /// No breach: the server lets in who shows a token that it knows, and the client has not shown one.
    #[error("no token that the server knows")]
    Token,
    /// No breach: the program has panicked, and what it held of the session went with that.
    #[error("the program has panicked")]
    Panicked,
}

impl ProtocolError {
    /// The first of the QUIC application error codes that Punctual keeps for itself (`"PU" << 8`).
    pub const BASE: u32 = 0x0050_5500;

    /// The QUIC application error code that names this error on the wire.
    pub fn code(self) -> u64 {
        self.number().into()
    }

    pub(crate) fn number(self) -> u32 {
        Self::BASE + 1 + self as u32
    }

    /// The error a code names.
    pub fn from_code(code: u64) -> Option<Self> {
        use ProtocolError::*;
        [
            Malformed,
            UnknownFrame,
            Settings,
            Credit,
            BlockSize,
            FragmentRange,
            FragmentConflict,
            InfoConflict,
            UnknownBlock,
            Channel,
            Stream,
            Repair,
            Silent,
            Memory,
            Paths,
            Token,
            Panicked,
        ]
        .into_iter()
        .find(|e| e.code() == code)
    }
}
