//! The one datagram in QUIC's queue: how it gets there, which packet it left in, and what becomes of it if it cannot leave any more.

use std::{ops::Range, time::Instant};

use super::Session;
use crate::{
    base::{FragmentKind, PathId},
    block::BlockId,
    clock::wire,
    frame::DatagramWriter,
    limits::DATAGRAM_QUEUE,
    noq,
    observe::FragmentSent,
    send::{
        packetize::{Contents, Piece},
        recovery,
    },
};

/// What QUIC's datagram queue has room for when it is empty.
const EMPTY_QUEUE: usize = noq::empty_queue(DATAGRAM_QUEUE);

/// A datagram that QUIC holds or is about to be given.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) path: PathId,
    /// Its TIMESTAMP.
    pub(super) stamp: u32,
    pub(super) contents: Contents,
    /// If it is a repair fragment: its length, and the block it is there for first.
    pub(super) repair: Option<(u64, BlockId)>,
    /// How long it is, once it is with QUIC.
    pub(super) len: usize,
}

impl Datagram {
    pub(super) fn new(path: PathId, stamp: u32, contents: Contents) -> Self {
        Self { path, stamp, contents, repair: None, len: 0 }
    }

    /// What it carries: kind, block, and the range there.
    fn fragments(&self) -> impl Iterator<Item = (FragmentKind, BlockId, Range<u64>)> {
        let repair = self.repair.map(|(len, block)| (FragmentKind::Repair, block, 0..len));
        let pieces = self.contents.iter().filter(|piece| !piece.range.is_empty());
        pieces.map(|piece| (piece.kind, piece.id, piece.range.clone())).chain(repair)
    }
}

impl Session {
    /// If the queued datagram has left, ties its contents to the packet it left in.
    pub(super) fn note_departure(&mut self, now: Instant) {
        if self.output.queued.is_none() || self.conn.datagrams().send_buffer_space() < EMPTY_QUEUE {
            return;
        }
        let Some(datagram) = self.output.queued.take() else { return };
        match self.output.last_sent.and_then(|(path, pn)| Some((self.paths.get_mut(path)?, pn))) {
            Some((path, pn)) => {
                for (kind, block, range) in datagram.fragments() {
                    let (offset, len) = (range.start, range.end - range.start);
                    self.output.sent.count(kind, len);
                    path.sent.count(kind, len);
                    if let Some(observer) = &mut self.observer {
                        let fragment = FragmentSent { block, offset, len, kind, path: path.id, packet: pn };
                        observer.fragment_sent(now, &fragment);
                    }
                }
                path.on_stamped(pn, datagram.stamp);
                let in_a_hurry = |piece: &Piece| self.store.get(piece.id).is_none_or(|block| block.due().is_some());
                if !datagram.contents.iter().any(in_a_hurry) {
                    path.on_patient(pn);
                }
                path.in_flight.set_contents(pn, datagram.contents);
            }
            // QUIC threw it away, for the MTU fell, or it left on a path that is gone.
            None => recovery::lose(&datagram.contents, datagram.path, now, &mut self.store),
        }
    }

    /// What waits in QUIC's queue since an earlier turn may have become too long for every path: for the one that took such datagrams is gone, or its peer has moved, and QUIC
    /// begins with small packets there. It would be in the way of all that follows for ever. QUIC can only be brought to throw it away by another datagram that leaves no
    /// room for it, which says nothing.
    pub(super) fn clear_queue(&mut self, now: Instant) {
        let Some(queued) = &self.output.queued else { return };
        let Some(most) = self.conn.datagrams().max_size().filter(|most| *most < queued.len) else { return };
        let Some(carrier) = self.paths.get(queued.path).map(|path| path.id).or(self.paths.control()) else { return };
        let micros = self.micros(now);
        let Some(path) = self.paths.get_mut(carrier) else { return };
        let stamp = wire(path.stamp(micros));
        let mut writer = DatagramWriter::new(most);
        writer.timestamp(stamp);
        writer.pad();
        if self.conn.datagrams().send(writer.finish(), true).is_ok() {
            let datagram = Datagram { len: most, ..Datagram::new(carrier, stamp, Contents::default()) };
            if let Some(lost) = self.output.queued.replace(datagram) {
                recovery::lose(&lost.contents, lost.path, now, &mut self.store);
            }
        }
    }

    /// Puts the next datagram, if there is one, into QUIC's queue.
    pub(super) fn queue_next(&mut self, now: Instant) -> bool {
        while let Some((datagram, payload)) = self
            .next_report(now)
            .or_else(|| self.next_copy(now))
            .or_else(|| self.next_repair(now))
            .or_else(|| self.next_wanted_copy(now))
            .or_else(|| self.next_fill(now))
        {
            let len = payload.len();
            if self.conn.datagrams().send(payload, false).is_ok() {
                self.output.queued = Some(Datagram { len, ..datagram });
                return true;
            }
            // It does not fit any more (the MTU fell): its bytes are due again.
            self.output.capacity = None;
            recovery::lose(&datagram.contents, datagram.path, now, &mut self.store);
        }
        false
    }
}
