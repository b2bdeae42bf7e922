//! The redundancy groups of a sender: the one being filled, and those whose packets are on their way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rangemap::RangeSet;

use super::{
    group::{Group, Symbol, Verdict},
    last_chance::Kind,
    packetize::{Contents, Piece},
};
use crate::{
    base::PathId,
    block::BlockId,
    fec,
    frame::{RepairHead, repair::repair_datagram},
    redundancy::{GroupFate, GroupView, MAX_SOURCES, Policy, grant::Rest},
};

/// The share of the peer's window for groups that ours may take: it forgets a group a little later than we do.
const WINDOW_SHARE: u64 = 2;
/// What a symbol costs the receiver besides its bytes, and a group besides its symbols; at most.
const SYMBOL_OVERHEAD: u64 = 128;
const GROUP_OVERHEAD: u64 = 512;
/// The receiver remembers the fates of so many groups at least, and takes older ones for over (`docs/protocol.md`, limits).
const MAX_SINCE: u64 = 4_096;
/// The receiver is asked to keep a group for so many round trips after its last deadline, and this long: until then what
/// arrived in time has been acknowledged.
const KEEP_RTTS: u32 = 2;
const KEEP: Duration = Duration::from_millis(50);
/// The same for blocks without a deadline.
const KEEP_ENDLESS: Duration = Duration::from_millis(500);
/// A group ends with a block that has so many source fragments in it: the half of the largest group. More of the next block's would save few
/// repair fragments, and the first would wait for them.
const ENOUGH_SOURCES: usize = MAX_SOURCES / 2;
/// A pause between fragments is one if it is longer than this.
const PAUSE: Duration = Duration::from_millis(1);

/// A repair fragment that waits to be sent.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    group: u64,
    index: u8,
    not_before: Instant,
    /// The path it should take; if none, whichever is first.
    path: Option<PathId>,
}

/// A repair fragment that may go now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) symbol: Symbol,
    pub(crate) index: u8,
    /// The path it should take; if none, whichever is first.
    pub(crate) path: Option<PathId>,
    /// When it must have arrived.
    pub(crate) due: Option<Instant>,
    /// Bytes of its datagram.
    pub(crate) datagram: usize,
}

/// A repair fragment as it goes on the wire.
#[derive(Debug)]
pub(crate) struct RepairFragment {
    pub(crate) head: RepairHead,
    pub(crate) shard: Bytes,
    /// The block it is there for first.
    pub(crate) block: Option<BlockId>,
}

/// A datagram's place in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) symbol: Symbol,
    /// Milliseconds.
    pub(crate) life: u64,
}

/// What the open group is told of a datagram about to join it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joining {
    pub(crate) priority: u8,
    pub(crate) due: Option<Instant>,
    pub(crate) resends: bool,
    /// What is lost of it goes again at a time of its own.
    pub(crate) in_its_time: bool,
    /// The application wants it in a group, whether or not that is worth it.
    pub(crate) asked_for: bool,
    pub(crate) reached: f64,
    /// When the group must have its repairs for this datagram's sake.
    pub(crate) close_by: Instant,
    /// It is to be sent twice, whatever the policy says.
    pub(crate) duplicate: bool,
    pub(crate) rtt: Duration,
}

/// The group being filled.
#[derive(Debug, Clone, Copy)]
struct Open {
    id: u64,
    close_by: Instant,
}

/// The groups.
pub(crate) struct Groups {
    policy: Box<dyn Policy>,
    /// Bytes of groups the receiver is ready to hold; 0 if it wants none.
    window: u64,
    held: u64,
    /// What all groups so far have cost the receiver, whether or not it still has them.
    cost: u64,
    next: u64,
    open: Option<Open>,
    groups: BTreeMap<u64, Group>,
    /// When each is forgotten.
    expiries: BTreeSet<(Instant, u64)>,
    waiting: VecDeque<Waiting>,
    /// When a fragment last joined a group, and how long it usually is until the next does.
    last_joined: Option<Instant>,
    pause: Duration,
    encoder: fec::Encoder,
    rest: Option<Rest>,
    /// Bytes of repair fragments that the last group got.
    last_repairs: u64,
    /// The least one-way delay of a path, as of the last look.
    one_way_delay: Duration,
}

impl Groups {
    pub(crate) fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            window: 0,
            held: 0,
            cost: 0,
            next: 0,
            open: None,
            groups: BTreeMap::new(),
            expiries: BTreeSet::new(),
            waiting: VecDeque::new(),
            last_joined: None,
            pause: Duration::ZERO,
            encoder: fec::Encoder::new(),
            rest: None,
            last_repairs: 0,
            one_way_delay: Duration::ZERO,
        }
    }

    /// What the peer's SETTINGS say.
    pub(crate) fn set_window(&mut self, bytes: u64) {
        self.window = bytes;
    }

    /// Whether a datagram of at most `size` bytes can join a group.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        // With as many bytes of repairs at most.
        self.held + 2 * (size as u64 + SYMBOL_OVERHEAD) <= self.window / WINDOW_SHARE
    }

    /// The number of the next group.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// What a group's repair fragments come to, going by the last, bytes.
    pub(crate) fn usual_repairs(&self) -> u64 {
        self.last_repairs
    }

    /// Whether a group for a block of that priority on `path` would most likely get no repair fragments now.
    pub(crate) fn rests(&self, now: Instant, path: PathId, priority: u8) -> bool {
        let there = |rest: &Rest| rest.path.is_none_or(|resting| resting == path) && priority >= rest.priority;
        self.rest.is_some_and(|rest| now < rest.until && there(&rest))
    }

    pub(crate) fn rest(&mut self, rest: Rest) {
        self.rest = Some(rest);
    }

    /// Whether there is any group, open or on its way.
    pub(crate) fn has_any(&self) -> bool {
        !self.groups.is_empty()
    }

    pub(crate) fn set_one_way_delay(&mut self, delay: Duration) {
        self.one_way_delay = delay;
    }

    /// Whether a datagram of that kind is to be in a group, and not in the open one.
    pub(crate) fn must_close_for(&self, kind: Kind) -> bool {
        let (duplicate, plain) = (kind == Kind::Duplicate, kind == Kind::Plain);
        !plain && self.open_group().is_some_and(|group| group.is_duplicate != duplicate)
    }

    fn open_group(&self) -> Option<&Group> {
        self.groups.get(&self.open.as_ref()?.id)
    }

    /// The place of the next datagram in the open group; one is opened if there is none.
    pub(crate) fn join(&mut self, now: Instant, joining: &Joining) -> Membership {
        let id = self.take_in(now, joining);
        let group = &self.groups[&id];
        Membership { symbol: Symbol { group: id, index: group.len() as u8 }, life: life(group.expires, now) }
    }

    /// Makes the open group fit for such a block, and returns its number.
    pub(crate) fn take_in(&mut self, now: Instant, joining: &Joining) -> u64 {
        let keep = match joining.due {
            // The latest moment there is will do for a deadline beyond all bounds.
            Some(due) => due.max(now).checked_add(joining.rtt * KEEP_RTTS + KEEP).unwrap_or(due),
            None => now + joining.rtt * KEEP_RTTS + KEEP_ENDLESS,
        };
        let open = *self.open.get_or_insert_with(|| {
            let id = self.next;
            self.next += 1;
            self.cost += GROUP_OVERHEAD;
            self.groups.insert(id, Group::new(now, self.cost, joining.duplicate));
            Open { id, close_by: joining.close_by }
        });
        self.open = Some(Open { close_by: open.close_by.min(joining.close_by), ..open });
        let group = self.groups.get_mut(&open.id).expect("the open group is there");
        group.priority = group.priority.min(joining.priority);
        group.resends &= joining.resends;
        group.in_its_time |= joining.in_its_time;
        group.asked_for |= joining.asked_for;
        group.reached = group.reached.max(joining.reached);
        group.answered = group.answered.max(now + joining.rtt);
        self.expiries.remove(&(group.expires, open.id));
        group.expires = group.expires.max(keep);
        self.expiries.insert((group.expires, open.id));
        if let Some(due) = joining.due {
            let (first, last) = group.due.unwrap_or((due, due));
            group.due = Some((first.min(due), last.max(due)));
        }
        if let Some(pause) = self.last_joined.map(|last| now.saturating_duration_since(last)).filter(|p| *p > PAUSE) {
            self.pause = if self.pause.is_zero() { pause } else { (self.pause * 3 + pause) / 4 };
        }
        self.last_joined = Some(now);
        open.id
    }

    /// The datagram for which [`join`](Self::join) gave a place is filled. Returns whether the group is to have no more: it is full, or a
    /// block has `ended` in this datagram that is much of it by itself.
    pub(crate) fn add(
        &mut self,
        symbol: Symbol,
        bytes: Bytes,
        contents: Contents,
        path: PathId,
        ended: impl Fn(BlockId) -> bool,
    ) -> bool {
        let Some(group) = self.groups.get_mut(&symbol.group) else { return false };
        self.held += bytes.len() as u64 + SYMBOL_OVERHEAD;
        self.cost += bytes.len() as u64 + SYMBOL_OVERHEAD;
        // What is whole in one datagram is never much.
        let ends = contents.iter().filter(|piece| piece.range.start > 0).map(|piece| piece.id);
        let ends: Vec<BlockId> = ends.filter(|&id| ended(id)).collect();
        group.add(bytes, contents, path);
        let enough = ends.into_iter().any(|id| group.sources_of(id) >= ENOUGH_SOURCES);
        enough || group.len() >= MAX_SOURCES || group.is_duplicate
    }

    /// When the open group gets its repairs, as things stand. `idle`: nothing else is there that could join it.
    pub(crate) fn close_at(&self, now: Instant, idle: bool) -> Option<Instant> {
        let open = self.open.as_ref()?;
        // Waiting for what should come is worth it if it comes well before time is up.
        let patient = !self.pause.is_zero() && now + self.pause * 2 <= open.close_by;
        Some(if idle && !patient { now } else { open.close_by })
    }

    /// The open group and the bytes one repair fragment of it would take.
    pub(crate) fn open(&self) -> Option<(&Group, usize)> {
        let group = self.open_group()?;
        Some((group, fec::shard_len(group.longest())))
    }

    /// How many repair fragments the open group should have.
    pub(crate) fn wanted(&mut self, view: &GroupView<'_>) -> usize {
        if self.open_group().is_some_and(|group| group.is_duplicate) { 1 } else { self.policy.repairs(view) }
    }

    /// Closes the open group with `repairs` repair fragments, to leave by `path` with `gap` between them.
    pub(crate) fn close(
        &mut self,
        now: Instant,
        repairs: usize,
        path: PathId,
        gap: Duration,
        matters: impl Fn(&Contents) -> bool,
    ) -> Verdict {
        let Some(open) = self.open.take() else { return Verdict::default() };
        let Some(group) = self.groups.get_mut(&open.id) else { return Verdict::default() };
        let repairs = repairs.min(fec::most_repairs(group.len()));
        let made = made(repairs, group.len(), group.resends);
        let shards = if made == 0 { Vec::new() } else { self.encoder.encode(&group.symbols(), made) };
        self.last_repairs = shards.iter().take(repairs).map(|shard| shard.len() as u64).sum();
        let cost = shards.iter().map(|shard| shard.len() as u64 + SYMBOL_OVERHEAD).sum::<u64>();
        self.held += cost;
        // The receiver never sees those kept back, but then it was others that it did.
        self.cost += cost;
        for index in 0..repairs {
            let not_before = now + gap * index as u32;
            self.waiting.push_back(Waiting { group: open.id, index: index as u8, not_before, path: Some(path) });
        }
        self.on_group(now, open.id, |group| group.close(now, shards, repairs, matters))
    }

    /// Repair fragments that may go now; those no longer wanted are forgotten.
    pub(crate) fn ready(&mut self, now: Instant) -> Vec<Ready> {
        let groups = &self.groups;
        let wanted =
            |waiting: &Waiting| groups.get(&waiting.group).is_some_and(|g| g.due_shard(waiting.index).is_some());
        self.waiting.retain(wanted);
        let ready = self.waiting.iter().filter(|waiting| waiting.not_before <= now);
        let ready = ready.filter_map(|&Waiting { group, index, path, .. }| {
            let of = groups.get(&group)?;
            let symbol = Symbol { group, index: (of.len() + usize::from(index)) as u8 };
            let datagram = repair_datagram(group, life(of.expires, now), of.due_shard(index)?.len());
            Some(Ready { symbol, index, path, due: of.due.map(|(_, last)| last), datagram })
        });
        ready.collect()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Bytes of repair fragments that wait to leave on `path`.
    pub(crate) fn waiting_on(&self, path: PathId) -> u64 {
        let shard = |waiting: &Waiting| Some(self.groups.get(&waiting.group)?.due_shard(waiting.index)?.len() as u64);
        self.waiting.iter().filter(|waiting| waiting.path == Some(path)).filter_map(shard).sum()
    }

    /// Takes a repair fragment to send it.
    pub(crate) fn take(&mut self, now: Instant, ready: &Ready) -> Option<RepairFragment> {
        self.forget(ready);
        let group = self.groups.get_mut(&ready.symbol.group)?;
        let shard = group.due_shard(ready.index)?.clone();
        group.on_repair_sent(ready.index);
        let head = RepairHead {
            group: ready.symbol.group,
            life: life(group.expires, now),
            sources: group.len() as u8,
            repairs: group.repairs() as u8,
            index: ready.index,
        };
        Some(RepairFragment { head, shard, block: group.first_block() })
    }

    /// A repair fragment would come too late, or does not fit any more.
    pub(crate) fn withdraw(&mut self, now: Instant, ready: &Ready, matters: impl Fn(&Contents) -> bool) -> Verdict {
        self.forget(ready);
        self.on_group(now, ready.symbol.group, |group| group.withdraw(now, ready.index, matters))
    }

    fn forget(&mut self, ready: &Ready) {
        self.waiting.retain(|waiting| (waiting.group, waiting.index) != (ready.symbol.group, ready.index));
    }

    /// The peer has a symbol.
    pub(crate) fn on_acked(&mut self, now: Instant, symbol: Symbol, matters: impl Fn(&Contents) -> bool) -> Verdict {
        self.on_group(now, symbol.group, |group| group.on_acked(now, symbol.index, matters))
    }

    /// A symbol was lost; `None` if its group is forgotten.
    pub(crate) fn on_lost(
        &mut self,
        now: Instant,
        symbol: Symbol,
        path: PathId,
        matters: impl Fn(&Contents) -> bool,
    ) -> Option<Verdict> {
        let delay = self.one_way_delay;
        if let Some(open) = self.open.as_mut().filter(|open| open.id == symbol.group) {
            // It needs its repairs now.
            open.close_by = now;
        }
        let group = self.groups.get(&symbol.group)?;
        let in_time = group.due.is_none_or(|(first, _)| now + delay <= first);
        Some(self.on_group(now, symbol.group, |group| group.on_lost(now, symbol.index, path, in_time, matters)))
    }

    /// Takes out of a symbol what does not wait for its group, and is sent again by itself.
    pub(crate) fn take_out(&mut self, symbol: Symbol, does_not_wait: impl Fn(&Piece) -> bool) -> Contents {
        self.groups
            .get_mut(&symbol.group)
            .map_or_else(Contents::default, |group| group.take_out(symbol.index, does_not_wait))
    }

    /// Whether it is known only after this moment what became of a symbol's group, so that what could still be sent again now cannot then.
    pub(crate) fn tells_too_late(&self, now: Instant, symbol: Symbol, due: Instant) -> bool {
        let answered = self.groups.get(&symbol.group).filter(|group| !group.is_duplicate).map(|group| group.answered);
        now + self.one_way_delay <= due && answered.is_some_and(|answered| answered + self.one_way_delay > due)
    }

    /// Whether more may be sent for a symbol's group.
    pub(crate) fn resends(&self, symbol: Symbol) -> bool {
        self.groups.get(&symbol.group).is_some_and(|group| group.resends)
    }

    /// It is time to send again what is unacknowledged of a block. Where fewer repair fragments do than it has fragments in a group, these go;
    /// what they make good is returned.
    pub(super) fn second_try(&mut self, now: Instant, id: BlockId) -> RangeSet<u64> {
        let mut made_good = RangeSet::new();
        for (&number, group) in &mut self.groups {
            let (more, ranges) = group.second_try(id);
            made_good.extend(ranges);
            let again = more.iter().map(|&index| Waiting { group: number, index, not_before: now, path: None });
            again.rev().for_each(|waiting| self.waiting.push_front(waiting));
        }
        made_good
    }

    /// By when the first block of a symbol's group must have arrived, if that still depends on the group.
    pub(crate) fn first_due(&self, symbol: Symbol) -> Option<Instant> {
        let group = self.groups.get(&symbol.group).filter(|group| group.resends && !group.is_over())?;
        group.due.map(|(first, _)| first)
    }

    fn on_group(&mut self, now: Instant, id: u64, then: impl FnOnce(&mut Group) -> Verdict) -> Verdict {
        let Some(group) = self.groups.get_mut(&id) else { return Verdict::default() };
        // The receiver forgets the oldest groups first, once all together are too much for it.
        if self.cost - group.cost_before > self.window / WINDOW_SHARE || self.next - id >= MAX_SINCE {
            group.doubt();
        }
        let verdict = then(group);
        let again = verdict.more.iter().map(|&index| Waiting { group: id, index, not_before: now, path: None });
        // They make good a loss, so they go first.
        again.rev().for_each(|waiting| self.waiting.push_front(waiting));
        if group.is_spent() {
            self.end(now, id);
        }
        verdict
    }

    fn end(&mut self, now: Instant, id: u64) {
        let Some(group) = self.groups.remove(&id) else { return };
        self.expiries.remove(&(group.expires, id));
        let symbols = (group.len() + group.repairs()) as u64;
        self.held = self.held.saturating_sub(group.bytes() + symbols * SYMBOL_OVERHEAD);
        let (sent, lost) = group.tally();
        if !group.is_duplicate {
            self.policy.on_fate(&GroupFate { at: now, sent, lost });
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is due. (When the open group is to be closed is for the pipeline to ask.)
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.expiries.first().map(|&(at, _)| at)
    }

    /// When the next repair fragment wants to go of those that do not yet.
    pub(crate) fn next_repair(&self, now: Instant) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.not_before).filter(|at| *at > now).min()
    }

    /// The group of a symbol.
    pub(super) fn get(&self, symbol: Symbol) -> Option<&Group> {
        self.groups.get(&symbol.group)
    }

    /// Forgets groups whose time is up. What was lost of them is returned.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> Vec<(Contents, PathId)> {
        let mut lost = Vec::new();
        while let Some(&(at, id)) = self.expiries.first() {
            if at > now {
                break;
            }
            if let Some(group) = self.groups.get_mut(&id) {
                lost.extend(group.expire().lost);
            }
            self.open = self.open.filter(|open| open.id != id);
            self.end(now, id);
        }
        lost
    }

    /// Forgets everything: the session is over.
    pub(crate) fn close_all(&mut self) {
        self.open = None;
        self.groups.clear();
        self.expiries.clear();
        self.waiting.clear();
        self.held = 0;
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.waiting.is_empty() && self.held == 0
    }
}

/// Until then, in milliseconds from now, rounded up.
fn life(until: Instant, now: Instant) -> u64 {
    let left = until.saturating_duration_since(now);
    left.as_micros().div_ceil(1_000).min(u128::from(u32::MAX)) as u64
}

/// For how many repairs the code of a group of so many sources is made that is to have `repairs`.
///
/// Rounding up costs next to nothing in the code, and gives what can be sent if more is lost.
fn made(repairs: usize, sources: usize, resends: bool) -> usize {
    match (repairs, resends) {
        (0, _) => 0,
        (n, true) => (n + 1).next_power_of_two().min(fec::most_repairs(sources)),
        (n, false) => n,
    }
}

#[cfg(test)]
mod made_tests {
    use super::*;

    #[test]
    fn no_code_is_made_that_the_peer_would_refuse() {
        for sources in 1..=MAX_SOURCES {
            for repairs in 0..=fec::most_repairs(sources) {
                for resends in [false, true] {
                    let made = made(repairs, sources, resends);
                    assert!((repairs..=fec::most_repairs(sources)).contains(&made), "{repairs} of {sources}: {made}");
                }
            }
        }
    }
}
