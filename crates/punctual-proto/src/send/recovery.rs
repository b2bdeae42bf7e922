//! What became of each packet, and whether what was lost is still worth sending.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{packetize::Contents, store::Store};
use crate::{block::BlockId, multipath::PathId, schedule::SendContext};

/// A packet on its way.
#[derive(Debug)]
struct Packet {
    sent: Instant,
    contents: Contents,
    /// Its fragments have been sent for again already; only an acknowledgement still counts.
    given_up: bool,
}

/// The packets in flight on one path.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    packets: BTreeMap<u64, Packet>,
    /// The latest packet the peer is known to have. What was sent before it is for QUIC's loss detection to judge; what
    /// was sent after it is the tail, of which nothing has been heard.
    largest_acked: Option<u64>,
}

impl InFlight {
    pub(crate) fn on_sent(&mut self, pn: u64, sent: Instant, contents: Contents) {
        self.packets.insert(pn, Packet { sent, contents, given_up: false });
    }

    /// The contents of a packet just sent become known: noq reports the packet first.
    pub(crate) fn set_contents(&mut self, pn: u64, contents: Contents) {
        if let Some(packet) = self.packets.get_mut(&pn) {
            packet.contents = contents;
        }
    }

    /// The peer has the packet. Returns whether it was one of ours.
    pub(crate) fn on_acked(&mut self, pn: u64, sent: Instant, now: Instant, store: &mut Store) -> bool {
        // Packet numbers of different QUIC spaces may coincide during the handshake; the time tells them apart.
        let Some(packet) = self.packets.get(&pn).filter(|packet| packet.sent == sent) else { return false };
        for piece in packet.contents.iter() {
            store.on_acked(now, piece.id, piece.range.clone(), piece.with_info);
        }
        self.packets.remove(&pn);
        self.largest_acked = self.largest_acked.max(Some(pn));
        true
    }

    /// QUIC gave the packet up.
    pub(crate) fn on_lost(&mut self, pn: u64, path: PathId, now: Instant, store: &mut Store) {
        if let Some(packet) = self.packets.remove(&pn).filter(|packet| !packet.given_up) {
            lose(&packet.contents, path, now, store);
        }
    }

    /// The path is not to be trusted: all that is in flight on it is due again.
    pub(crate) fn give_up(&mut self, path: PathId, now: Instant, store: &mut Store) {
        for packet in self.packets.values_mut().filter(|packet| !packet.given_up) {
            packet.given_up = true;
            lose(&packet.contents, path, now, store);
        }
    }

    /// Sends for the tail's packets from before `sent_by` again, where waiting longer could cost a deadline: that is, of
    /// blocks due before `due_by`.
    pub(crate) fn give_up_urgent(
        &mut self,
        sent_by: Instant,
        due_by: Instant,
        path: PathId,
        now: Instant,
        store: &mut Store,
    ) {
        let urgent = |store: &Store, contents: &Contents| {
            contents.iter().any(|piece| store.get(piece.id).and_then(|b| b.due()).is_some_and(|due| due < due_by))
        };
        for packet in tail(&mut self.packets, self.largest_acked) {
            if packet.sent > sent_by {
                break;
            }
            if !packet.given_up && urgent(store, &packet.contents) {
                packet.given_up = true;
                lose(&packet.contents, path, now, store);
            }
        }
    }

    /// Gives up packets that QUIC itself seems to have forgotten: those sent over `age` ago.
    pub(crate) fn expire(&mut self, age: Duration, path: PathId, now: Instant, store: &mut Store) {
        while let Some(oldest) = self.packets.first_entry() {
            if now.saturating_duration_since(oldest.get().sent) <= age {
                break;
            }
            let packet = oldest.remove();
            if !packet.given_up {
                lose(&packet.contents, path, now, store);
            }
        }
    }

    /// When the oldest packet of the tail was sent.
    pub(crate) fn oldest_of_tail(&self) -> Option<Instant> {
        self.packets.range(self.largest_acked.map_or(0, |pn| pn + 1)..).next().map(|(_, packet)| packet.sent)
    }

    /// When the first packet of the tail was sent that left after `judged`.
    pub(crate) fn first_of_tail_after(&self, judged: Option<Instant>) -> Option<Instant> {
        let mut tail = self.packets.range(self.largest_acked.map_or(0, |pn| pn + 1)..);
        tail.find(|(_, packet)| judged.is_none_or(|judged| packet.sent > judged)).map(|(_, packet)| packet.sent)
    }
}

fn tail(packets: &mut BTreeMap<u64, Packet>, largest_acked: Option<u64>) -> impl Iterator<Item = &mut Packet> {
    packets.range_mut(largest_acked.map_or(0, |pn| pn + 1)..).map(|(_, packet)| packet)
}

/// What a packet carried is due again.
pub(crate) fn lose(contents: &Contents, path: PathId, now: Instant, store: &mut Store) {
    for piece in contents.iter() {
        store.on_lost(now, piece.id, piece.range.clone(), piece.with_info, path);
    }
}

/// The scheduler's next block, passing over those whose lost bytes can no longer arrive in time.
///
/// New bytes are the scheduler's to judge (ADS suspends what cannot make it). Lost ones are judged here: a block
/// that lacks bytes which cannot arrive is worth nothing, so none of its other bytes are sent either.
pub(crate) fn next_worthwhile(store: &mut Store, cx: &SendContext<'_>) -> Option<BlockId> {
    loop {
        let id = store.next(cx)?;
        if store.drops_stale() && lost_in_vain(store, id, cx) {
            store.give_up(id);
            continue;
        }
        return Some(id);
    }
}

fn lost_in_vain(store: &Store, id: BlockId, cx: &SendContext<'_>) -> bool {
    let Some(block) = store.get(id) else { return false };
    let Some(due) = block.due() else { return false };
    block.next_range().is_some_and(|(_, again)| again) && cx.now + cx.one_way_delay > due
}
