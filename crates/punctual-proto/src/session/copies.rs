//! The pipeline's copies: what is on its way on one path, sent on another, too, as the path scheduler wants it.

use std::time::Instant;

use bytes::Bytes;

use super::{Session, output::context, queued::Datagram};
use crate::{
    base::PathId,
    block::BlockId,
    clock::wire,
    multipath::{FragmentView, Outstanding},
    send::{packetize, recovery},
};

/// A packet to copy.
struct Wanted {
    packet: Outstanding,
    number: u64,
    /// The path for the copy, and when pacing lets it go if it must wait for that.
    on: PathId,
    ready_at: Option<Instant>,
}

impl Session {
    /// A copy that the path scheduler wants, and that can go now.
    pub(super) fn next_wanted_copy(&mut self, now: Instant) -> Option<(Datagram, Bytes)> {
        self.output.copy_at = None;
        if !self.output.makes_copies() || self.paths.is_single() {
            return None;
        }
        self.refresh_views(now);
        let next = recovery::next_worthwhile(&mut self.store, &context(now, self.output.views()));
        let next = next.and_then(|id| self.fragment_view(id, now));
        loop {
            let wanted = self.wanted_copy(next.as_ref(), now)?;
            if wanted.ready_at.is_some() {
                self.output.copy_at = wanted.ready_at;
                return None;
            }
            if let Some(copy) = self.make_copy(&wanted, now) {
                return Some(copy);
            }
        }
    }

    /// The oldest packet of which a copy is wanted on a path that can carry it now, or else on the one that soonest can.
    fn wanted_copy(&mut self, next: Option<&FragmentView>, now: Instant) -> Option<Wanted> {
        let mut soonest: Option<Wanted> = None;
        for view in self.output.views().to_vec() {
            let ready_at = view.ready_at.filter(|_| !view.ready);
            if !view.ready && ready_at.is_none() {
                continue;
            }
            for path in self.paths.iter().filter(|path| path.id != view.id) {
                let mut refused = None;
                for (number, sent, contents) in path.in_flight.uncopied(view.id) {
                    let first = contents.iter().next().map(|piece| piece.id);
                    if first == refused {
                        continue;
                    }
                    let lacks = |id: BlockId, range| self.store.get(id).is_some_and(|block| block.lacks(range));
                    let lacking = contents.iter().find(|piece| lacks(piece.id, &piece.range));
                    let Some(block) = lacking.and_then(|piece| self.store.view(piece.id)) else { continue };
                    let packet = Outstanding { block, sent, path: path.id };
                    let wanted = Wanted { packet, number, on: view.id, ready_at };
                    let rank = |wanted: &Wanted| (wanted.ready_at, wanted.packet.sent);
                    if soonest.as_ref().is_some_and(|other| rank(other) <= rank(&wanted)) {
                        break;
                    }
                    if self.output.wants_copy(&wanted.packet, &view, next, now) {
                        soonest = Some(wanted);
                        break;
                    }
                    refused = first;
                }
            }
        }
        soonest
    }

    fn make_copy(&mut self, wanted: &Wanted, now: Instant) -> Option<(Datagram, Bytes)> {
        let capacity = self.capacity()?;
        let stamp = self.stamp(now);
        let sent = self.paths.get_mut(wanted.on)?.stamp(stamp.micros(now));
        let path = self.paths.get_mut(wanted.packet.path)?;
        path.in_flight.on_copied(wanted.number, wanted.on);
        let contents = path.in_flight.contents(wanted.number)?;
        let filled = packetize::fill_copy(&self.store, contents, capacity, stamp, sent)?;
        self.output.note_data(now);
        self.steering.keep_quiet_but(None);
        Some((Datagram::new(wanted.on, wire(sent), filled.contents), filled.payload))
    }
}
