//! What a session may hold, so that a hostile peer's costs are its own, and what the protocol bounds.

use std::time::Duration;

/// The most paths a session can have open.
pub const MAX_PATHS: usize = 16;

/// The most blocks a sender may have live, by the protocol: a receiver needs to remember so many gaps between ended ids.
pub(crate) const MAX_LIVE: usize = 65_536;
/// The largest block there may be: 1 GiB.
pub(crate) const LARGEST_BLOCK: u64 = 1 << 30;

/// The longest latency of play-out: 10 minutes. Times on the wire mean the moment within 35 minutes.
pub(crate) const LONGEST_LATENCY: Duration = Duration::from_secs(600);

/// Room in QUIC's queue for outgoing datagrams. We queue one at a time, and beside one of a full packet there is no room for another: so that one that fits no path
/// any more can be thrown out ([`noq`](crate::noq)). The largest packet that MTU discovery tries has 1,452 bytes.
pub(crate) const DATAGRAM_QUEUE: usize = 2 << 10;
/// Bytes of all streams that a peer may send ahead of our reading.
pub(crate) const RECEIVE_WINDOW: u32 = 8 << 20;

/// Bounds on what a session may hold. Those marked *announced* are told to the peer in SETTINGS and enforced on it.
///
/// A session sends blocks and receives them. Each bound says whether it is the *sender*'s, for the blocks that we hand over, the *receiver*'s, for those of the
/// peer, or of *both*.
///
/// ```
/// use punctual_proto::Limits;
///
/// let limits = Limits::default().max_block_size(1 << 20).receive_bytes(4 << 20);
/// assert_eq!(limits.sessions, 4_096, "what is not said stays as it is");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// *Both*: largest block we accept, bytes (*announced*), and largest one `send` takes. At most 1 GiB. Default 16 MiB.
    pub max_block_size: u64,
    /// *Receiver*: bytes of blocks the peer may have open towards us before we consume them (*announced*, as credit).
    /// At least `max_block_size`. Default 64 MiB.
    pub receive_bytes: u64,
    /// *Receiver*: blocks the peer may have open towards us (*announced*, as credit). Default 16,384.
    pub receive_blocks: u64,
    /// *Sender*: bytes of live blocks `send` accepts before it says [`SendError::Full`](crate::SendError::Full). Default 64 MiB.
    pub send_bytes: u64,
    /// *Sender*: live blocks `send` accepts before it says `Full`. At most 65,536, and taken for that if larger. Default 16,384.
    pub send_blocks: usize,
    /// *Sender*: dependencies one block may name. Default 64.
    pub dependencies_per_block: usize,
    /// *Sender*: dependency edges between live blocks. Default 65,536.
    pub dependency_edges: usize,
    /// *Both*: different channels in all of a session's life, each way (*enforced on the peer*); one that was used stays one of them, and can be used again. Default 256.
    pub channels: usize,
    /// *Receiver*: bytes kept of what the peer sends with redundancy until it is of no use any more (*announced*); if that is not
    /// enough, the oldest is forgotten. 0 asks the peer to send no redundancy. Default 4 MiB.
    pub repair_window: u64,
    /// *Receiver*: the longest latency at which the peer may have its blocks given to our application by [its wish](crate::Session::wish_latency); what it wishes beyond counts as this. What waits holds
    /// its credit, and a peer that wishes more than `receive_bytes` last for waits for itself. Default 10 s.
    pub wished_latency: Duration,
    /// *Both*: paths open at once, at most [`MAX_PATHS`](crate::limits::MAX_PATHS). Default 8.
    pub paths: u32,
    /// *Both*: events waiting for the application before the session stops reading what the peer has to say of blocks, give or
    /// take a thousand. Default 65,536.
    pub events: usize,
    /// Sessions a server endpoint has at once. *Both*, of servers only. Default 4,096.
    pub sessions: usize,
    /// *Receiver*: bytes that all sessions of an endpoint hold of what their peers sent, blocks that the application has not taken included. A new session's `receive_bytes` is at most a quarter of what has not been
    /// promised to others (but never less than `max_block_size`). If all hold more nevertheless, the one that holds most ends ([`ProtocolError::Memory`](crate::ProtocolError::Memory)). At least
    /// `receive_bytes`. Default 1 GiB.
    pub endpoint_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_block_size: 16 << 20,
            receive_bytes: 64 << 20,
            receive_blocks: 16_384,
            send_bytes: 64 << 20,
            send_blocks: 16_384,
            dependencies_per_block: 64,
            dependency_edges: 65_536,
            channels: 256,
            repair_window: 4 << 20,
            wished_latency: Duration::from_secs(10),
            paths: 8,
            events: 65_536,
            sessions: 4_096,
            endpoint_bytes: 1 << 30,
        }
    }
}

impl Limits {
    /// Sets [`max_block_size`](Self#structfield.max_block_size).
    pub fn max_block_size(mut self, max_block_size: u64) -> Self {
        self.max_block_size = max_block_size;
        self
    }

    /// Sets [`receive_bytes`](Self#structfield.receive_bytes).
    pub fn receive_bytes(mut self, receive_bytes: u64) -> Self {
        self.receive_bytes = receive_bytes;
        self
    }

    /// Sets [`receive_blocks`](Self#structfield.receive_blocks).
    pub fn receive_blocks(mut self, receive_blocks: u64) -> Self {
        self.receive_blocks = receive_blocks;
        self
    }

    /// Sets [`send_bytes`](Self#structfield.send_bytes).
    pub fn send_bytes(mut self, send_bytes: u64) -> Self {
        self.send_bytes = send_bytes;
        self
    }

    /// Sets [`send_blocks`](Self#structfield.send_blocks).
    pub fn send_blocks(mut self, send_blocks: usize) -> Self {
        self.send_blocks = send_blocks;
        self
    }

    /// Sets [`dependencies_per_block`](Self#structfield.dependencies_per_block).
    pub fn dependencies_per_block(mut self, dependencies_per_block: usize) -> Self {
        self.dependencies_per_block = dependencies_per_block;
        self
    }

    /// Sets [`dependency_edges`](Self#structfield.dependency_edges).
    pub fn dependency_edges(mut self, dependency_edges: usize) -> Self {
        self.dependency_edges = dependency_edges;
        self
    }

    /// Sets [`channels`](Self#structfield.channels).
    pub fn channels(mut self, channels: usize) -> Self {
        self.channels = channels;
        self
    }

    /// Sets [`repair_window`](Self#structfield.repair_window).
    pub fn repair_window(mut self, repair_window: u64) -> Self {
        self.repair_window = repair_window;
        self
    }

    /// Sets [`wished_latency`](Self#structfield.wished_latency).
    pub fn wished_latency(mut self, wished_latency: Duration) -> Self {
        self.wished_latency = wished_latency;
        self
    }

    /// Sets [`paths`](Self#structfield.paths).
    pub fn paths(mut self, paths: u32) -> Self {
        self.paths = paths;
        self
    }

    /// Sets [`events`](Self#structfield.events).
    pub fn events(mut self, events: usize) -> Self {
        self.events = events;
        self
    }

    /// Sets [`sessions`](Self#structfield.sessions).
    pub fn sessions(mut self, sessions: usize) -> Self {
        self.sessions = sessions;
        self
    }

    /// Sets [`endpoint_bytes`](Self#structfield.endpoint_bytes).
    pub fn endpoint_bytes(mut self, endpoint_bytes: u64) -> Self {
        self.endpoint_bytes = endpoint_bytes;
        self
    }
}
