//! A peer that does not speak Punctual: one block to a unidirectional stream, RESET_STREAM when a block is dropped.
//!
//! Here QUIC itself sends lost bytes again and says when a stream has arrived, so the stations keep only
//! what is theirs still: which block goes next, on which path, and when it is no longer worth sending.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use bytes::BytesMut;
use noq_proto::{Dir, StreamEvent, StreamId, VarInt, WriteError};

use super::{Session, output::context};
use crate::{
    base::FragmentKind,
    block::{BlockId, Outcome},
    congestion::steering::Gate,
    error::ProtocolError,
    multipath::PathChoice,
    network::Transmit,
    send::recovery,
};

/// The code of a RESET_STREAM (or STOP_SENDING) for a dropped block.
pub(crate) const DROPPED: u32 = ProtocolError::BASE + 0x40;
/// Most of a block that is handed to QUIC at once: about a packet, so that the next decision comes soon.
const STEP: u64 = 1_200;
/// The most bytes of a stream read at once.
const READ_CHUNK: usize = 64 << 10;

/// The streams of a fallback session.
#[derive(Debug, Default)]
pub(super) struct Fallback {
    sending: BTreeMap<BlockId, StreamId>,
    blocks: BTreeMap<StreamId, BlockId>,
    receiving: BTreeMap<StreamId, BytesMut>,
    /// Blocks that wait until the peer allows another stream.
    waiting: BTreeSet<BlockId>,
}

impl Fallback {
    pub(super) fn is_clean(&self) -> bool {
        self.sending.is_empty() && self.blocks.is_empty() && self.receiving.is_empty() && self.waiting.is_empty()
    }

    /// Blocks of which there are bytes but not all, and these bytes.
    pub(super) fn live_in(&self) -> (u64, u64) {
        let held = self.receiving.values().map(|bytes| bytes.len() as u64).filter(|&bytes| bytes > 0);
        held.fold((0, 0), |(blocks, sum), bytes| (blocks + 1, sum + bytes))
    }
}

impl Session {
    /// The pipeline of a fallback session.
    pub(super) fn poll_fallback(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            self.refresh_views(now);
            let cx = context(now, self.output.views());
            let next = recovery::next_worthwhile(&mut self.store, &cx);
            let ready = self.output.views().iter().any(|view| view.ready);
            let Some(id) = next.filter(|_| ready) else {
                self.output.wait(next.is_some());
                self.release_held();
                return None;
            };
            if !self.has_stream(id) {
                self.store.hold(id);
                // One that depends on it may hold the stream that it waits for.
                self.store.pass_over(id);
                self.fallback.waiting.insert(id);
                continue;
            }
            let slot = match self.fragment_view(id, now).map(|fragment| self.output.choose(&fragment, now)) {
                Some(PathChoice::Send(paths)) => {
                    paths.iter().next().and_then(|path| self.paths.get(path)).map(|path| path.slot())
                }
                _ => None,
            };
            let Some(slot) = slot.filter(|_| self.push(id)) else {
                self.hold(id);
                continue;
            };
            self.steering.set_gate(Gate::Only(slot));
            let transmit = self.poll_quic(now, buf);
            if transmit.is_some() {
                return transmit;
            }
            // QUIC's own window or pacer holds it back; it goes with what QUIC sends next by itself.
            self.output.stir();
            self.release_held();
            return None;
        }
    }

    /// Whether a block has a stream: if need be, and the peer allows it, a new one.
    fn has_stream(&mut self, id: BlockId) -> bool {
        if self.fallback.sending.contains_key(&id) {
            return true;
        }
        let Some(stream) = self.conn.streams().open(Dir::Uni) else { return false };
        let priority = self.store.get(id).map_or(0, |block| block.priority);
        let _ = self.conn.send_stream(stream).set_priority(-i32::from(priority));
        self.fallback.sending.insert(id, stream);
        self.fallback.blocks.insert(stream, id);
        true
    }

    /// Hands the next bytes of a block to its stream. `false` if that has no room.
    fn push(&mut self, id: BlockId) -> bool {
        let Some(&stream) = self.fallback.sending.get(&id) else { return false };
        let Some(block) = self.store.get(id) else { return false };
        let Some((range, _)) = block.next_range() else { return false };
        let end = range.end.min(range.start + STEP);
        let bytes = block.data.slice(range.start as usize..end as usize);
        match self.conn.send_stream(stream).write(&bytes) {
            Ok(written) => {
                self.store.on_sent(id, range.start..range.start + written as u64, true);
                if self.store.get(id).is_some_and(|block| block.all_sent_once()) {
                    let _ = self.conn.send_stream(stream).finish();
                }
                self.output.sent.count(FragmentKind::Source, written as u64);
                true
            }
            Err(WriteError::Stopped(_)) => {
                let _ = self.store.on_refused(id);
                false
            }
            Err(_) => false,
        }
    }

    pub(super) fn take_fallback_event(&mut self, now: Instant, event: StreamEvent) {
        match event {
            StreamEvent::Finished { id } => {
                let Some(block) = self.fallback.blocks.get(&id).and_then(|&block| self.store.get(block)) else {
                    return;
                };
                // QUIC's acknowledgement took about half a round trip.
                let elapsed = now.saturating_duration_since(block.begin);
                let completion = elapsed.saturating_sub(self.shortest_rtt() / 2);
                let (id, good_bytes) = (block.id, block.good_bytes);
                let _ = self.store.on_completed(id, completion, good_bytes);
            }
            StreamEvent::Stopped { id, .. } => {
                if let Some(&block) = self.fallback.blocks.get(&id) {
                    let _ = self.store.on_refused(block);
                }
            }
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(id) = self.conn.streams().accept(Dir::Uni) {
                    self.fallback.receiving.insert(id, BytesMut::new());
                }
            }
            StreamEvent::Available { dir: Dir::Uni } => {
                for id in std::mem::take(&mut self.fallback.waiting) {
                    self.store.unhold(id);
                }
            }
            StreamEvent::Opened { dir: Dir::Bi }
            | StreamEvent::Readable { .. }
            | StreamEvent::Writable { .. }
            | StreamEvent::Available { dir: Dir::Bi } => {}
        }
    }

    /// Reads blocks from the peer's streams, as far as there is room for them.
    pub(super) fn read_fallback_streams(&mut self, now: Instant) {
        let streams: Vec<_> = self.fallback.receiving.keys().copied().collect();
        for id in streams {
            while self.has_room_for_streams() {
                let mut stream = self.conn.recv_stream(id);
                let Ok(mut chunks) = stream.read(true) else {
                    self.fallback.receiving.remove(&id);
                    break;
                };
                let next = chunks.next(READ_CHUNK);
                let _ = chunks.finalize();
                let Some(bytes) = self.fallback.receiving.get_mut(&id) else { break };
                match next {
                    Ok(Some(chunk))
                        if (bytes.len() + chunk.bytes.len()) as u64 <= self.config.limits.max_block_size =>
                    {
                        bytes.extend_from_slice(&chunk.bytes);
                    }
                    Ok(Some(_)) => {
                        self.stop_incoming(id);
                        break;
                    }
                    Ok(None) => {
                        let bytes = self.fallback.receiving.remove(&id).unwrap_or_default();
                        // A block has bytes; a stream may be opened and ended for reasons of its own.
                        if bytes.is_empty() {
                            break;
                        }
                        let block = BlockId(id.index());
                        self.receiver.on_stream_block(block, bytes.freeze(), now);
                        if let Some(observer) = &mut self.observer {
                            observer.block_complete(now, block);
                        }
                        break;
                    }
                    Err(noq_proto::ReadError::Reset(_)) => {
                        self.drop_incoming(id);
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
        // Beginnings alone fill all the room, and the application cannot make any: the latest of them must go.
        while self.receiver.live().0 == 0 && !self.has_room_for_streams() {
            let Some((&latest, _)) = self.fallback.receiving.iter().rfind(|(_, bytes)| !bytes.is_empty()) else {
                break;
            };
            self.stop_incoming(latest);
        }
    }

    /// A plain QUIC peer knows nothing of our limits, so that we stop reading instead.
    fn has_room_for_streams(&self) -> bool {
        let (limits, (blocks, bytes)) = (&self.config.limits, self.receiver.live());
        blocks < limits.receive_blocks && bytes + self.fallback.live_in().1 < self.receiver.limits().receive_bytes
    }

    fn stop_incoming(&mut self, id: StreamId) {
        let _ = self.conn.recv_stream(id).stop(VarInt::from_u32(DROPPED));
        self.drop_incoming(id);
    }

    fn drop_incoming(&mut self, id: StreamId) {
        let bytes = self.fallback.receiving.remove(&id).unwrap_or_default();
        self.receiver.on_stream_dropped(BlockId(id.index()), bytes.len() as u64);
    }

    /// One of our blocks has ended: its stream, if there is one, must not go on.
    pub(super) fn fallback_ended(&mut self, id: BlockId, outcome: &Outcome) {
        if self.fallback.waiting.remove(&id) {
            // Others of its channel stood aside for it.
            self.store.unhold(id);
        }
        let Some(stream) = self.fallback.sending.remove(&id) else { return };
        self.fallback.blocks.remove(&stream);
        if matches!(outcome, Outcome::Dropped { .. }) {
            let _ = self.conn.send_stream(stream).reset(VarInt::from_u32(DROPPED));
        }
    }
}
