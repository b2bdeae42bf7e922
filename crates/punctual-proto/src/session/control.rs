//! The control stream: settings, credit, what became of blocks.

use std::time::{Duration, Instant};

use noq_proto::{Connection, Dir, StreamId};

use crate::{
    block::BlockId,
    config::Limits,
    error::ProtocolError,
    frame::{ControlDecoder, ControlFrame, Settings, control},
};

/// More unsent control bytes than this, and the peer has stopped listening while it goes on talking.
const MAX_BACKLOG: usize = 1 << 20;
/// More than this, and feedback the application volunteers is refused.
const MAX_VOLUNTARY: usize = 64 << 10;
/// The control stream goes before any other.
const PRIORITY: i32 = i32::MAX;

/// Words that are in no hurry wait for others no longer than this.
const MOST_PATIENCE: Duration = Duration::from_millis(25);

/// How long words wait for others since some left last: each packet with words costs one, and its ACK one back; and of a stream in too many
/// pieces, as loss makes of many packets with a word each, QUIC's receiver despairs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Words that something waits for.
    pub(super) short: Duration,
    /// Words that only end a matter: what became of a block.
    pub(super) long: Duration,
}

impl Patience {
    /// None at all.
    pub(super) const NONE: Self = Self { short: Duration::ZERO, long: Duration::ZERO };

    /// As long as ACKs may wait, and for those that are in no hurry about as long as reports do.
    pub(super) fn new(ack_delay: Duration, round_trip: Duration) -> Self {
        Self { short: ack_delay, long: (round_trip / 4).min(MOST_PATIENCE).max(ack_delay) }
    }
}

/// Both directions of the control stream.
#[derive(Debug)]
pub(super) struct Control {
    send: Option<StreamId>,
    pub(super) recv: Option<StreamId>,
    /// Whether there may be something to read.
    pub(super) readable: bool,
    /// Encoded frames that QUIC has not taken yet.
    backlog: Vec<u8>,
    /// Blocks that are complete, all in time, behind that.
    completed: Vec<(BlockId, u32)>,
    /// Something waits for one of these.
    is_urgent: bool,
    /// When frames were last handed on.
    flushed: Option<Instant>,
    /// QUIC takes no more for now.
    is_blocked: bool,
    pub(super) decoder: ControlDecoder,
}

impl Control {
    pub(super) fn new() -> Self {
        Self {
            send: None,
            recv: None,
            readable: false,
            backlog: Vec::new(),
            completed: Vec::new(),
            is_urgent: false,
            flushed: None,
            is_blocked: false,
            decoder: ControlDecoder::new(),
        }
    }

    /// Says what we accept, ahead of all that waits; the stream is opened as soon as the peer allows it.
    pub(super) fn begin(&mut self, limits: &Limits) {
        let waiting = std::mem::take(&mut self.backlog);
        control::open_stream(&mut self.backlog);
        let settings = Settings {
            max_block_size: limits.max_block_size,
            receive_bytes: limits.receive_bytes,
            receive_blocks: limits.receive_blocks,
            channels: limits.channels as u64,
            repair_window: limits.repair_window,
        };
        ControlFrame::Settings(settings).encode(&mut self.backlog);
        self.backlog.extend(waiting);
    }

    /// Queues a frame.
    pub(super) fn write(&mut self, frame: &ControlFrame) {
        use ControlFrame::{Completed, CompletedList, Dropped, Freed};
        self.write_completed();
        // Others of its channel wait for a block that was dropped.
        let only_ends =
            matches!(frame, Completed { .. } | CompletedList(_) | Freed { .. } | Dropped { channel: None, .. });
        self.is_urgent |= !only_ends;
        frame.encode(&mut self.backlog);
    }

    /// Queues the word that a block is complete, all of it in time. What comes in a row shares a frame.
    pub(super) fn complete(&mut self, id: BlockId, at: u32) {
        let near = |&(last, _): &(BlockId, u32)| control::can_follow(last, id);
        if self.completed.len() == control::MAX_LIST || !self.completed.last().is_none_or(near) {
            self.write_completed();
        }
        self.completed.push((id, at));
    }

    fn write_completed(&mut self) {
        if !self.completed.is_empty() {
            ControlFrame::CompletedList(std::mem::take(&mut self.completed)).encode(&mut self.backlog);
        }
    }

    fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.completed.is_empty()
    }

    /// Whether there are words that QUIC has not been given yet, and would take.
    pub(super) fn waits(&self) -> bool {
        self.flushed.is_some() && !self.is_empty() && !self.is_blocked
    }

    /// When [`flush`](Self::flush) is due.
    pub(super) fn due(&self, patience: Patience) -> Option<Instant> {
        let patience = if self.is_urgent { patience.short } else { patience.long };
        self.flushed.filter(|_| self.waits()).map(|flushed| flushed + patience)
    }

    /// Whether there is room for what the application volunteers.
    pub(super) fn has_room(&self) -> bool {
        self.backlog.len() < MAX_VOLUNTARY
    }

    /// Hands queued frames to QUIC, when it is time.
    pub(super) fn flush(&mut self, now: Instant, patience: Patience, conn: &mut Connection) {
        if self.is_empty() || self.due(patience).is_some_and(|due| now < due) {
            return;
        }
        self.write_completed();
        let Some(id) = self.send.or_else(|| self.open(conn)) else { return };
        // Blocked by flow control: what is left waits for the next time.
        let written = conn.send_stream(id).write(&self.backlog).unwrap_or(0);
        self.backlog.drain(..written);
        self.is_blocked = !self.backlog.is_empty();
        self.flushed = Some(now);
        self.is_urgent = self.is_blocked;
    }

    fn open(&mut self, conn: &mut Connection) -> Option<StreamId> {
        self.send = conn.streams().open(Dir::Uni);
        if let Some(id) = self.send {
            // Cannot fail: the stream was opened just now.
            let _ = conn.send_stream(id).set_priority(PRIORITY);
        }
        self.send
    }

    /// # Errors
    /// If the peer goes on talking and has stopped listening.
    pub(super) fn check_backlog(&self) -> Result<(), ProtocolError> {
        if self.backlog.len() > MAX_BACKLOG { Err(ProtocolError::Stream) } else { Ok(()) }
    }
}
