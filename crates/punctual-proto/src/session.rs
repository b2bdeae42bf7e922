//! One connection: the glue between the stations.

use std::{net::SocketAddr, time::Instant};

use crate::{
    block::{Block, BlockId, BlockUpdate, Delta, ReceivedBlock},
    endpoint::NetworkPath,
    error::{BlockError, CloseReason, PathError, SendError},
    multipath::PathId,
    stats::{PathStats, SessionStats},
};

/// One connection with a peer, over one or more paths.
///
/// Got from [`Endpoint::session`](crate::Endpoint::session), and under [its contract](crate#the-contract).
pub struct Session {}

impl Session {
    /// Hands a block over. Its deadline runs from here (or from [`Block::begin`]).
    ///
    /// Allowed before [`Event::Connected`](crate::Event::Connected); the block waits.
    ///
    /// # Errors
    /// See [`SendError`]; `Full` gives the block back.
    pub fn send(&mut self, now: Instant, block: Block) -> Result<BlockId, SendError> {
        let _ = (now, block);
        todo!()
    }

    /// Whether `send` would take a block of `size` bytes now, as far as room goes.
    pub fn has_room(&self, size: usize) -> bool {
        let _ = size;
        todo!()
    }

    /// Changes what was said of a live block.
    pub fn update(&mut self, now: Instant, id: BlockId, update: BlockUpdate) -> Result<(), BlockError> {
        let _ = (now, id, update);
        todo!()
    }

    /// Drops a live block, and with it those that depend on it. Its outcome follows as an event, unless
    /// the receiver turns out to have it already.
    pub fn cancel(&mut self, now: Instant, id: BlockId) -> Result<(), BlockError> {
        let _ = (now, id);
        todo!()
    }

    /// The next complete block.
    pub fn recv(&mut self) -> Option<ReceivedBlock> {
        todo!()
    }

    /// Tells the peer's application by how much a block's completion missed what this side expected
    /// (`expect` of DTP): positive means it came too late.
    pub fn expect(&mut self, id: BlockId, delta: Delta) -> Result<(), BlockError> {
        let _ = (id, delta);
        todo!()
    }

    /// Refuses one of the peer's blocks: it is freed here and dropped there.
    pub fn refuse(&mut self, id: BlockId) -> Result<(), BlockError> {
        let _ = id;
        todo!()
    }

    /// Opens another path (clients only). [`PathEvent::Opened`](crate::PathEvent::Opened) or `Closed` follows.
    pub fn open_path(&mut self, now: Instant, path: NetworkPath) -> Result<PathId, PathError> {
        let _ = (now, path);
        todo!()
    }

    /// Closes a path; what was in flight on it goes elsewhere.
    pub fn close_path(&mut self, now: Instant, id: PathId) -> Result<(), PathError> {
        let _ = (now, id);
        todo!()
    }

    /// Ends the session at once: every live block is dropped ([`DropReason::SessionClosed`](crate::DropReason)).
    /// `code` 0 is a normal end; codes from [`ProtocolError::BASE`](crate::ProtocolError::BASE) up are Punctual's.
    pub fn close(&mut self, now: Instant, code: u32, reason: &str) {
        let _ = (now, code, reason);
        todo!()
    }

    /// Blocks handed over that have not ended yet.
    pub fn live_blocks(&self) -> usize {
        todo!()
    }

    /// Whether the peer speaks `punctual/1`; `None` before the handshake has told.
    pub fn is_punctual(&self) -> Option<bool> {
        todo!()
    }

    /// Why the session ended, once it has.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        todo!()
    }

    /// The peer's address on its first path.
    pub fn remote_address(&self) -> SocketAddr {
        todo!()
    }

    /// Totals.
    pub fn stats(&mut self) -> SessionStats {
        todo!()
    }

    /// State and totals of every open path, in the order of their ids.
    pub fn path_stats(&mut self) -> Vec<PathStats> {
        todo!()
    }
}
