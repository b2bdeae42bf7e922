//! What became of each packet, and whether what was lost is still worth sending.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    packetize::Contents,
    policer::{Limit, Policer},
    room::Room,
    store::Store,
};
use crate::{
    base::{Awaited, PathId},
    block::BlockId,
    losses::Losses,
    rate::Rate,
    schedule::SendContext,
};

/// A packet on its way.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) sent: Instant,
    pub(crate) bytes: u16,
    /// How long it was expected to wait on its way.
    wait: Duration,
    contents: Contents,
    /// Its fragments have been sent for again already; only an acknowledgement still counts.
    given_up: bool,
    /// It left before the path was heard again that had been dead: what becomes of it says nothing of chance.
    pub(crate) died: bool,
    /// The paths that were given a copy of it, a bit each, as [`mark`] has it.
    copied: u64,
}

/// The bit of a path among those that were given a copy. Paths so far apart that they share one are hardly ever open together.
fn mark(path: PathId) -> u64 {
    1 << (path.0 % u64::BITS)
}

/// Where a packet lies in the queue, or what became of it.
#[derive(Debug)]
enum Place {
    Open(Packet),
    Gone { sent: Instant, bytes: u16, fate: Fate },
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Acked,
    /// In a queue that overflows, as far as one can tell.
    Overflowed,
    /// With the path, which was dead.
    Died,
    /// In any other way.
    Lost,
}

impl Place {
    fn packet(&self) -> Option<&Packet> {
        match self {
            Self::Open(packet) => Some(packet),
            Self::Gone { .. } => None,
        }
    }

    fn packet_mut(&mut self) -> Option<&mut Packet> {
        match self {
            Self::Open(packet) => Some(packet),
            Self::Gone { .. } => None,
        }
    }
}

/// The packets in flight on one path.
///
/// Nearly all come and go in the order of their numbers, which have few gaps: so they lie in a queue, where a packet's place follows
/// from its number or is near. Of one that has gone, what became of it stays until those before it have gone, too.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    packets: VecDeque<(u64, Place)>,
    /// What their fates, in the order of their numbers, say of the path.
    losses: Losses,
    /// The same, with those in it that a queue of ours is to blame for.
    fates: Losses,
    policer: Policer,
    room: Room,
    /// Packets that found none, as far as it was known of when they were lost.
    no_room: u64,
    /// What the path is taken to carry, and how much of it leaves at once, at most.
    rate: Rate,
    at_once: u64,
    /// What was known of losses, chance and all, when the path went silent.
    before_silence: Option<(Losses, Losses)>,
    /// The latest packet the peer is known to have. What was sent before it is for QUIC's loss detection to judge; what
    /// was sent after it is the tail, of which nothing has been heard.
    largest_acked: Option<u64>,
}

impl InFlight {
    pub(crate) fn on_sent(&mut self, pn: u64, sent: Instant, bytes: u16, wait: Duration) {
        let packet = Place::Open(Packet {
            sent,
            bytes,
            wait,
            contents: Contents::default(),
            given_up: false,
            died: false,
            copied: 0,
        });
        if self.packets.back().is_none_or(|&(last, _)| last < pn) {
            self.packets.push_back((pn, packet));
            return;
        }
        // A number of another space of QUIC's, during the handshake.
        match self.place(pn) {
            Ok(at) => self.packets[at].1 = packet,
            Err(at) => self.packets.insert(at, (pn, packet)),
        }
    }

    /// The contents of a packet just sent become known: noq reports the packet first.
    pub(crate) fn set_contents(&mut self, pn: u64, contents: Contents) {
        if let Ok(at) = self.place(pn)
            && let Some(packet) = self.packets[at].1.packet_mut()
        {
            packet.contents = contents;
        }
    }

    /// The peer has the packet. Returns its bytes, if it was one of ours.
    pub(crate) fn on_acked(&mut self, pn: u64, sent: Instant, now: Instant, store: &mut Store) -> Option<u16> {
        // Packet numbers of different QUIC spaces may coincide during the handshake; the time tells them apart.
        let packet = self.remove(pn, Fate::Acked, |packet| packet.sent == sent)?;
        store.on_packet_acked(now, &packet.contents);
        self.largest_acked = self.largest_acked.max(Some(pn));
        Some(packet.bytes)
    }

    /// QUIC gave the packet up. `congestion`: it found a long queue.
    pub(crate) fn on_lost(&mut self, pn: u64, congestion: bool, path: PathId, now: Instant, store: &mut Store) {
        let died = self.get(pn).is_some_and(|packet| packet.died);
        let fate = match congestion {
            _ if died => Fate::Died,
            true => Fate::Overflowed,
            false => Fate::Lost,
        };
        if let Some(packet) = self.remove(pn, fate, |_| true).filter(|packet| !packet.given_up) {
            lose(&packet.contents, path, now, store);
        }
    }

    /// The path is not to be trusted: all that is in flight on it is due again. What must not be sent again waits for QUIC's word, unless
    /// there will be none, for the path is `gone`.
    pub(crate) fn give_up(&mut self, gone: bool, path: PathId, now: Instant, store: &mut Store) {
        self.give_up_where(|_| true, gone, path, now, store);
    }

    /// The path goes silent.
    pub(crate) fn begin_silence(&mut self) {
        self.before_silence.get_or_insert((self.losses, self.fates));
    }

    /// The path is heard again. If it was `dead` meanwhile, what was lost with it says nothing of chance: it would pass for a path that loses a third of its
    /// packets until some hundreds have gone by, and so never be given them. (Bursts of losses, and policers, make a path silent, too, but not for long.)
    pub(crate) fn end_silence(&mut self, dead: bool) {
        let Some(before) = self.before_silence.take().filter(|_| dead) else { return };
        (self.losses, self.fates) = before;
        for (_, place) in &mut self.packets {
            match place {
                Place::Open(packet) => packet.died = true,
                Place::Gone { fate, .. } if *fate != Fate::Acked => *fate = Fate::Died,
                Place::Gone { .. } => {}
            }
        }
    }

    /// The same, for those packets whose answer has not come in `patience`, a wait on their way not counted.
    pub(crate) fn give_up_older(&mut self, patience: Duration, path: PathId, now: Instant, store: &mut Store) {
        let is_late = |packet: &Packet| now.saturating_duration_since(packet.sent) >= packet.wait + patience;
        self.give_up_where(is_late, false, path, now, store);
    }

    fn give_up_where(
        &mut self,
        is_meant: impl Fn(&Packet) -> bool,
        gone: bool,
        path: PathId,
        now: Instant,
        store: &mut Store,
    ) {
        let open = self.packets.iter_mut().filter_map(|(_, place)| place.packet_mut());
        for packet in open.filter(|packet| !packet.given_up && is_meant(packet)) {
            if gone || store.resends(&packet.contents) {
                packet.given_up = true;
                lose(&packet.contents, path, now, store);
            }
        }
    }

    /// Gives up packets from before `sent_by`, where waiting longer could cost a deadline: those that carry something of blocks due before
    /// `due_by`.
    pub(crate) fn give_up_urgent(
        &mut self,
        sent_by: Instant,
        due_by: Instant,
        path: PathId,
        now: Instant,
        store: &mut Store,
    ) {
        for packet in self.packets.iter_mut().filter_map(|(_, place)| place.packet_mut()) {
            if packet.sent > sent_by {
                break;
            }
            if !packet.given_up && store.is_urgent(&packet.contents, due_by) {
                packet.given_up = true;
                lose(&packet.contents, path, now, store);
            }
        }
    }

    /// Gives up packets that QUIC itself seems to have forgotten, those sent over `age` ago, a wait on their way not counted, and returns
    /// them.
    pub(crate) fn expire(
        &mut self,
        age: Duration,
        path: PathId,
        now: Instant,
        store: &mut Store,
    ) -> Vec<(u64, Packet)> {
        let mut expired = Vec::new();
        while let Some((_, Place::Open(oldest))) = self.packets.front() {
            if now.saturating_duration_since(oldest.sent) <= oldest.wait + age {
                break;
            }
            if let Some((pn, Place::Open(packet))) = self.packets.pop_front() {
                if !packet.given_up {
                    lose(&packet.contents, path, now, store);
                }
                expired.push((pn, packet));
            }
            self.trim();
        }
        expired
    }

    /// A packet whose fate is not known yet.
    pub(crate) fn get(&self, pn: u64) -> Option<&Packet> {
        self.packets[self.place(pn).ok()?].1.packet()
    }

    /// The packets whose fate is not known yet, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Packet)> {
        self.packets.iter().filter_map(|(pn, place)| Some((*pn, place.packet()?)))
    }

    /// The packets that carry bytes of blocks, have no word of their own fate yet, and have not been copied to `path`, the oldest first.
    pub(crate) fn uncopied(&self, path: PathId) -> impl Iterator<Item = (u64, Instant, &Contents)> {
        let fresh = move |packet: &&Packet| !packet.given_up && packet.copied & mark(path) == 0;
        let open = self.packets.iter().filter_map(move |(pn, place)| Some((*pn, place.packet().filter(fresh)?)));
        open.filter(|(_, packet)| packet.contents.is_original()).map(|(pn, packet)| (pn, packet.sent, &packet.contents))
    }

    /// Bytes of the packets sent after `since` whose fate is not known yet.
    pub(crate) fn sent_after(&self, since: Instant) -> u64 {
        let open = self.packets.iter().rev().filter_map(|(_, place)| place.packet());
        open.take_while(|packet| packet.sent > since).map(|packet| u64::from(packet.bytes)).sum()
    }

    /// What a packet carries whose fate is not known yet.
    pub(crate) fn contents(&self, pn: u64) -> Option<&Contents> {
        self.get(pn).map(|packet| &packet.contents)
    }

    /// A copy of the packet goes on `path`.
    pub(crate) fn on_copied(&mut self, pn: u64, path: PathId) {
        if let Ok(at) = self.place(pn)
            && let Some(packet) = self.packets[at].1.packet_mut()
        {
            packet.copied |= mark(path);
        }
    }

    /// The oldest packet whose fate is open.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.packets.front().map(|(number, _)| *number)
    }

    /// The oldest packet of the tail.
    pub(crate) fn oldest_of_tail(&self) -> Option<Awaited> {
        let mut tail = self.packets.range(self.tail_start()..);
        let (number, packet) = tail.find_map(|(number, place)| Some((*number, place.packet()?)))?;
        Some(Awaited { number, bears: !packet.contents.is_empty(), sent: packet.sent, wait: packet.wait, tail: true })
    }

    /// The first packet of those sent after `judged` whose fate is open.
    pub(crate) fn first_after(&self, judged: Option<Instant>) -> Option<Awaited> {
        let late = |sent: Instant| judged.is_none_or(|judged| sent > judged);
        let mut open = self.packets.iter().filter_map(|(pn, place)| Some((*pn, place.packet()?)));
        let (pn, packet) = open.find(|(_, packet)| late(packet.sent))?;
        let tail = self.largest_acked.is_none_or(|acked| pn > acked);
        Some(Awaited { number: pn, bears: !packet.contents.is_empty(), sent: packet.sent, wait: packet.wait, tail })
    }

    /// The latest packet the peer is known to have.
    pub(crate) fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// Where the tail begins.
    fn tail_start(&self) -> usize {
        self.largest_acked.map_or(0, |acked| self.place(acked + 1).unwrap_or_else(|at| at))
    }

    /// Where a packet lies, or would.
    fn place(&self, pn: u64) -> Result<usize, usize> {
        let Some(&(first, _)) = self.packets.front() else { return Err(0) };
        // If no number was left out, this is it; else it is not far before.
        let most = usize::try_from(pn.saturating_sub(first)).unwrap_or(usize::MAX);
        if self.packets.get(most).is_some_and(|&(at, _)| at == pn) {
            return Ok(most);
        }
        self.packets.binary_search_by_key(&pn, |&(pn, _)| pn)
    }

    fn remove(&mut self, pn: u64, fate: Fate, is_it: impl FnOnce(&Packet) -> bool) -> Option<Packet> {
        let at = self.place(pn).ok()?;
        let place = &mut self.packets[at].1;
        let packet = place.packet().filter(|packet| is_it(packet))?;
        let gone = Place::Gone { sent: packet.sent, bytes: packet.bytes, fate };
        let before = std::mem::replace(place, gone);
        self.trim();
        match before {
            Place::Open(packet) => Some(packet),
            Place::Gone { .. } => None,
        }
    }

    /// The first place is never that of a packet that has gone.
    fn trim(&mut self) {
        while let Some(&(_, Place::Gone { sent, bytes, fate })) = self.packets.front() {
            self.learn(sent, bytes, fate);
            self.packets.pop_front();
        }
    }

    /// What became of the next packet, in the order of sending. Against what we do to the path ourselves, doing more of it is no help.
    fn learn(&mut self, sent: Instant, bytes: u16, fate: Fate) {
        if fate == Fate::Died {
            return;
        }
        if fate == Fate::Acked {
            self.room.on_passed(sent, bytes, self.rate);
            self.policer.on_passed(sent, bytes);
            self.losses.note(false);
            self.fates.note(false);
            return;
        }
        let no_room = self.room.on_dropped(sent, bytes, self.rate, self.at_once);
        let policed = if fate == Fate::Lost { self.policer.on_dropped(sent, bytes) } else { 0 };
        match (policed, no_room) {
            (0, 0) => {
                self.fates.note(true);
                if fate == Fate::Lost {
                    self.losses.note(true);
                }
            }
            (0, no_room) => {
                self.no_room += 1;
                self.losses.pardon(no_room - 1);
                self.fates.pardon(no_room - 1);
            }
            (policed, _) => {
                self.fates.note(true);
                self.losses.pardon(policed - 1);
                self.fates.pardon(policed - 1);
            }
        }
    }

    /// Packets that were known for lost for want of room when they were lost, so far.
    pub(crate) fn no_room(&self) -> u64 {
        self.no_room
    }

    /// Follows what the path is taken to carry.
    pub(crate) fn set_rate(&mut self, rate: Rate, at_once: u64) {
        (self.rate, self.at_once) = (rate, at_once);
    }

    /// How many bytes may leave at once, if more would find no room.
    pub(crate) fn room(&self) -> Option<u64> {
        self.room.limit().filter(|_| self.policed().is_none())
    }

    /// What a policer lets pass, if there is one on the path.
    pub(crate) fn policed(&self) -> Option<Limit> {
        self.policer.limit()
    }

    /// The share of packets that were lost lately, for whatever reason.
    pub(crate) fn loss(&self) -> f64 {
        self.fates.observed_rate()
    }

    /// So many losses that were put down to chance were congestion.
    pub(crate) fn pardon(&mut self, losses: u32) {
        self.losses.pardon(losses);
    }

    /// What is known of losses on the path that are not congestion.
    pub(crate) fn losses(&self) -> &Losses {
        &self.losses
    }
}

/// What a packet carried is due again, unless its group makes up for it.
pub(crate) fn lose(contents: &Contents, path: PathId, now: Instant, store: &mut Store) {
    store.on_packet_lost(now, contents, path);
}

/// The scheduler's next block, passing over those whose lost bytes can no longer arrive in time.
///
/// New bytes are the scheduler's to judge (ADS suspends what cannot make it). Lost ones are judged here: a block
/// that lacks bytes which cannot arrive is worth nothing, so none of its other bytes are sent either.
pub(crate) fn next_worthwhile(store: &mut Store, cx: &SendContext<'_>) -> Option<BlockId> {
    loop {
        let id = store.next(cx)?;
        if store.drops_stale() && lost_in_vain(store, id, cx) && !store.goes_on(cx.now, id) {
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
