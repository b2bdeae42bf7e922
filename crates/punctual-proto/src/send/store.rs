//! The live blocks of a sender: from `send` to exactly one outcome.
//!
//! The store owns the blocks, their dependencies and the scheduler's picture of them, and decides when a block has
//! ended. What it has to say leaves through [`Store::poll`]: outcomes for the application, notices for the peer.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

use rangemap::RangeSet;

use super::{
    channels::{Channels, Place},
    graph::Graph,
    groups::Groups,
    kin::Kin,
    late::Forecast,
    leeway::Leeway,
    live::{InfoState, LiveBlock},
    load::Load,
    opening::{LINE, Opening, is_sendable},
    packetize::Piece,
    passed::Passed,
    second_try::SecondTries,
    sources::Sources,
    tally::Tally,
};
use crate::{
    base::{FragmentKind, PathId, Remains},
    block::{BlockId, DropReason, Outcome, Redundancy},
    by_id::ById,
    limits::Limits,
    redundancy::Policy,
    schedule::{BlockScheduler, BlockView, SendContext},
};

/// How many of the latest block ids the store remembers the fate of, for dependencies on blocks that have ended.
const MEMORY: u64 = 65_536;

/// Something the store has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// To the application: the block has ended.
    Ended(BlockId, Outcome, Remains),
    /// To the peer: the block will never be complete. `size` is 0 if it used no credit.
    Dropped { id: BlockId, reason: DropReason, size: u64, channel: Option<Place> },
    /// To the peer: the block's deadline or priority changed after it had been announced.
    Updated { id: BlockId, deadline: Option<Duration>, priority: u8 },
}

/// The live blocks.
pub(crate) struct Store {
    pub(super) limits: Limits,
    pub(super) blocks: ById<LiveBlock>,
    pub(crate) groups: Groups,
    /// How blocks are protected that do not say it themselves, nor their channel.
    pub(super) redundancy: Redundancy,
    pub(super) graph: Graph,
    pub(super) kin: Kin,
    pub(super) load: Load,
    pub(crate) leeway: Leeway,
    scheduler: Box<dyn BlockScheduler>,
    pub(super) drops_stale: bool,
    inherits_priority: bool,
    pub(super) forecast: Forecast,
    /// Blocks that cannot be in time, and are looked at for the sake of others at `look_at`.
    pub(super) late: BTreeSet<BlockId>,
    /// Blocks out of the competition for now, and those that were found to have to be opened after one of them.
    pub(super) held: BTreeSet<BlockId>,
    aside: Vec<BlockId>,
    pub(super) look_at: Option<Instant>,
    /// From when on it is looked again whether one was put off.
    pub(super) look_put_off_at: Option<Instant>,
    /// One of them can be sent now.
    pub(super) look_soon: bool,
    /// Blocks have expired of which something had never left; the longest that one of them had.
    pub(super) unmet: Option<Duration>,
    /// When blocks with a deadline are looked at.
    pub(super) due: BTreeSet<(Instant, BlockId)>,
    /// When what the peer is presumed to have of a block is doubted.
    pub(super) doubts: BTreeSet<(Instant, BlockId)>,
    pub(super) next_id: u64,
    pub(super) bytes: u64,
    pub(super) channels: Channels,
    /// Those that are periodic, for path schedulers that look ahead.
    pub(crate) sources: Sources,
    pub(crate) minds_sources: bool,
    pub(crate) second_tries: SecondTries,
    /// Blocks of channels that were dropped before the peer said how many channels it takes.
    pub(super) early_drops: Vec<(BlockId, DropReason, Place)>,
    /// There is more to say to the peer than it takes.
    pub(super) hushed: bool,
    pub(super) opening: Opening,
    pub(super) passed: Passed,
    /// The largest block the peer takes, once it has said so.
    pub(super) peer_max_block: Option<u64>,
    /// Whether the peer answers a drop with what it had received.
    pub(super) peer_confirms: bool,
    /// Blocks that ended dropped, of the last [`MEMORY`] ids.
    pub(super) dropped: RangeSet<u64>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) tally: Tally,
    /// The smallest block that `send` has said `Full` to since there was room for one of its size last.
    pub(super) starved: Option<usize>,
}

impl Store {
    pub(crate) fn new(
        limits: Limits,
        scheduler: Box<dyn BlockScheduler>,
        redundancy: Redundancy,
        policy: Box<dyn Policy>,
    ) -> Self {
        Self {
            limits,
            blocks: ById::default(),
            groups: Groups::new(policy),
            redundancy,
            graph: Graph::default(),
            kin: Kin::default(),
            load: Load::default(),
            leeway: Leeway::default(),
            forecast: Forecast::default(),
            late: BTreeSet::new(),
            held: BTreeSet::new(),
            aside: Vec::new(),
            look_at: None,
            look_put_off_at: None,
            look_soon: false,
            unmet: None,
            drops_stale: scheduler.drops_stale(),
            inherits_priority: scheduler.inherits_priority(),
            scheduler,
            due: BTreeSet::new(),
            doubts: BTreeSet::new(),
            next_id: 0,
            bytes: 0,
            channels: Channels::new(&limits),
            sources: Sources::default(),
            minds_sources: false,
            second_tries: SecondTries::default(),
            early_drops: Vec::new(),
            hushed: false,
            opening: Opening::default(),
            passed: Passed::default(),
            peer_max_block: None,
            peer_confirms: true,
            dropped: RangeSet::new(),
            notices: VecDeque::new(),
            tally: Tally::default(),
            starved: None,
        }
    }

    /// The block whose bytes go next.
    pub(crate) fn next(&mut self, cx: &SendContext<'_>) -> Option<BlockId> {
        self.forecast.follow(cx);
        if std::mem::take(&mut self.look_soon) {
            self.look_at_late(cx.now);
        }
        loop {
            let id = self.scheduler.next(cx)?;
            if self.serve_those_put_off(cx.now, id) {
                continue;
            }
            let Some(block) = self.blocks.get(&id) else {
                debug_assert!(false, "the scheduler named a block that has ended");
                self.scheduler.remove(id);
                continue;
            };
            if block.opened {
                return Some(id);
            }
            match self.opening.choose(block, &self.blocks, &self.graph) {
                // What has to be opened first is out of the competition for now, and this one with it.
                Ok(first) if self.held.contains(&first) => {
                    self.scheduler.remove(id);
                    self.aside.push(id);
                }
                Ok(first) => return Some(first),
                Err(waiting) => {
                    waiting.into_iter().for_each(|id| self.scheduler.remove(id));
                    waiting.into_iter().for_each(|id| self.refresh_open_followers(id));
                }
            }
        }
    }

    /// Whether blocks have expired since this was last asked of which something had never left; the longest that one of them had.
    pub(crate) fn take_unmet(&mut self) -> Option<Duration> {
        self.unmet.take()
    }

    /// Takes a block out of the competition that has nothing to send, after all.
    pub(crate) fn withdraw(&mut self, id: BlockId) {
        self.scheduler.remove(id);
    }

    /// Takes a block out of the competition until [`unhold`](Self::unhold).
    pub(crate) fn hold(&mut self, id: BlockId) {
        self.scheduler.remove(id);
        self.held.insert(id);
    }

    /// A held block waits for a certain path: what it has to send counts as sent for those that depend on it, which may go by another path
    /// meanwhile.
    pub(crate) fn pass_over(&mut self, id: BlockId) {
        for touched in self.graph.set_passed_over(id, true) {
            self.refresh(touched);
        }
    }

    /// Lets a held block compete again.
    pub(crate) fn unhold(&mut self, id: BlockId) {
        self.held.remove(&id);
        for touched in self.graph.set_passed_over(id, false) {
            self.refresh(touched);
        }
        self.refresh_cluster(id);
        for aside in std::mem::take(&mut self.aside) {
            self.refresh(aside);
        }
    }

    /// What was lost of the block cannot arrive in time any more: no more is sent of it.
    pub(crate) fn give_up(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(&id) {
            block.hopeless = true;
        }
        self.refresh(id);
    }

    pub(crate) fn get(&self, id: BlockId) -> Option<&LiveBlock> {
        self.blocks.get(&id)
    }

    /// The scheduler's view of a live block.
    pub(crate) fn view(&self, id: BlockId) -> Option<BlockView> {
        let view_of = |block: &LiveBlock| BlockView {
            id,
            size: block.size(),
            unsent: block.unsent(),
            begin: block.begin,
            deadline: block.serving_deadline(),
            priority: self.serving_priority(block),
            followers: self.kin.followers(block.id),
            beyond_means: self.is_beyond_means(block),
            again: block.next_range().is_some_and(|(_, again)| again),
        };
        let mut view = view_of(self.blocks.get(&id)?);
        if self.graph.is_clustered(id) {
            // A circle of dependencies counts as one big block, as urgent as its most urgent member.
            for member in self.graph.members(id).filter(|&member| member != id) {
                let Some(other) = self.blocks.get(&member).map(view_of) else { continue };
                view.size += other.size;
                view.unsent += other.unsent;
                view.priority = view.priority.min(other.priority);
                if other.due().is_some_and(|due| view.due().is_none_or(|mine| due < mine)) {
                    (view.begin, view.deadline) = (other.begin, other.deadline);
                }
            }
        }
        Some(view)
    }

    /// What the other blocks have to send that are no less important than this one, but for those that are `held`.
    pub(crate) fn waiting_beside(&self, id: BlockId, held: &[BlockId]) -> u64 {
        let Some(priority) = self.blocks.get(&id).map(|block| block.priority) else { return 0 };
        let others = self.blocks.values().filter(|block| block.id != id && block.priority <= priority);
        others.filter(|block| !held.contains(&block.id)).map(LiveBlock::unsent).sum()
    }

    /// Whether it is one of a family that is best left out, as more is handed over than can be carried.
    fn is_beyond_means(&self, block: &LiveBlock) -> bool {
        self.load.is_too_much()
            && block.deadline.is_some()
            && self.kin.is_of_family(block.id)
            && self.load.is_beyond(self.serving_priority(block), self.kin.price(block.id))
    }

    /// How important a block is to the scheduler: to itself or, if that counts, to those that depend on it.
    pub(super) fn serving_priority(&self, block: &LiveBlock) -> u8 {
        if self.inherits_priority { block.priority.min(block.lent_priority) } else { block.priority }
    }

    /// Bytes of a block went out, with or without its info.
    pub(crate) fn on_sent(&mut self, id: BlockId, range: Range<u64>, with_info: bool) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if !range.is_empty() {
            block.on_sent(range);
        }
        if with_info {
            block.on_info_sent();
            if !std::mem::replace(&mut block.opened, true) {
                let next = self.opening.on_opened(block.size(), block.channel);
                next.into_iter().for_each(|next| self.refresh(next));
            }
        }
        self.after_change(id);
    }

    /// The peer has a piece of a block.
    pub(super) fn on_piece_acked(&mut self, now: Instant, piece: &Piece) {
        let Some(block) = self.blocks.get_mut(&piece.id) else { return };
        if piece.with_info {
            block.on_info_acked();
        }
        let before = block.unsent();
        let regained = block.on_acked(piece.range.clone(), now);
        self.after_ack(piece, before, regained);
    }

    /// The peer has a piece of a block that had `before` bytes to send, and `regained` of what had been lost.
    pub(super) fn after_ack(&mut self, piece: &Piece, before: u64, regained: u64) {
        match piece.kind {
            // It had not been lost.
            FragmentKind::Source | FragmentKind::Repair => {}
            FragmentKind::Resent => self.tally.resend_regained_bytes += regained,
            FragmentKind::Copy => self.tally.copy_regained_bytes += regained,
        }
        if self.blocks.get(&piece.id).is_some_and(|block| block.unsent() != before) {
            self.after_change(piece.id);
        }
    }

    /// Bytes of a block were lost on `path`.
    pub(crate) fn on_lost(&mut self, now: Instant, id: BlockId, range: Range<u64>, with_info: bool, path: PathId) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if with_info && block.info == InfoState::InFlight {
            block.info = InfoState::Due;
        }
        if block.on_lost(range, path) && block.dying.is_none() {
            self.after_loss(now, id);
        }
    }

    /// Bytes of a block are due again.
    pub(super) fn after_loss(&mut self, now: Instant, id: BlockId) {
        let Some(block) = self.blocks.get(&id) else { return };
        if !block.redundancy.resends() {
            self.drop_block(id, DropReason::Lost);
        } else {
            let overdue = self.drops_stale && block.due().is_some_and(|due| due < now);
            self.after_change(id);
            if overdue {
                self.on_late(now, id);
            }
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        // A deadline has passed once it lies behind us.
        let due = self.due.first().map(|&(due, _)| due + Duration::from_micros(1));
        let second_try = self.second_tries.next_timeout();
        [due, self.look_at, self.groups.next_timeout(), self.next_doubt(), second_try].into_iter().flatten().min()
    }

    /// Drops what is worthless by now.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.expire_groups(now);
        self.doubt_presumed(now);
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at_late(now);
        }
        while let Some(&(due, id)) = self.due.first() {
            if due >= now {
                break;
            }
            self.due.pop_first();
            // What is wholly on its way may yet have arrived in time: the peer's word, or a loss, will tell.
            self.on_late(now, id);
        }
    }

    /// Ends every live block because the session is over.
    pub(crate) fn close(&mut self) {
        let mut ids: Vec<_> = self.blocks.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(block) = self.blocks.get(&id) else { continue };
            let (reason, good_bytes) = (block.dying.unwrap_or(DropReason::SessionClosed), block.good_bytes);
            self.end(id, Outcome::Dropped { reason, good_bytes });
        }
        self.groups.close_all();
        self.early_drops.clear();
        self.notices.retain(|notice| matches!(notice, Notice::Ended(..)));
    }

    /// Whether it has something to say.
    pub(crate) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// The next thing the store has to say.
    pub(crate) fn poll(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The largest block that the peer takes, once it has said so.
    pub(crate) fn peer_max_block(&self) -> Option<u64> {
        self.peer_max_block
    }

    /// Whether the peer has said its SETTINGS.
    pub(crate) fn knows_peer(&self) -> bool {
        self.peer_max_block.is_some()
    }

    /// Whether stale blocks are dropped.
    pub(crate) fn drops_stale(&self) -> bool {
        self.drops_stale
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether nothing at all is left of past blocks but counters.
    pub(crate) fn is_clean(&self) -> bool {
        self.blocks.is_empty()
            && self.graph.is_empty()
            && self.due.is_empty()
            && self.doubts.is_empty()
            && self.late.is_empty()
            && self.second_tries.is_empty()
            && self.opening.is_clean()
            && self.passed.is_clean()
            && self.groups.is_empty()
            && self.bytes == 0
    }

    pub(super) fn set_needs(&mut self, id: BlockId, needs: Vec<BlockId>) {
        let blocks = &self.blocks;
        // What was handed on may be more than what was asked for.
        let room = self.limits.dependency_edges.saturating_sub(self.graph.edges());
        let live = needs.into_iter().filter(|need| blocks.contains_key(need)).take(room);
        let unsent = |id| blocks.get(&id).is_some_and(|block: &LiveBlock| block.unsent() > 0);
        for touched in self.graph.set_needs(id, live, unsent) {
            self.refresh(touched);
        }
        self.refresh_cluster(id);
    }

    pub(super) fn is_orphan(&self, needs: &[BlockId]) -> bool {
        needs.iter().any(|need| self.dropped.contains(&need.0))
    }

    /// Brings graph and scheduler up to date after a block's bytes changed hands.
    pub(super) fn after_change(&mut self, id: BlockId) {
        let block = self.blocks.get(&id);
        let unsent = block.is_some_and(|block| block.unsent() > 0);
        if let Some(LiveBlock { channel: place @ Some(_), dying, .. }) = block {
            match (unsent, dying) {
                (true, _) => self.passed.insert(*place, id),
                (false, None) => self.passed.on_whole(*place, id),
                (false, Some(_)) => self.passed.forget(*place, id),
            }
            self.look_soon |= self.look_at.is_none() && self.passed.is_in(*place);
        }
        for touched in self.graph.set_unsent(id, unsent) {
            self.look_soon |= self.late.contains(&touched);
            self.refresh(touched);
        }
        self.refresh_cluster(id);
    }

    /// Refreshes a block and those it forms a circle with.
    pub(super) fn refresh_cluster(&mut self, id: BlockId) {
        if self.graph.is_clustered(id) {
            let members: Vec<_> = self.graph.members(id).collect();
            members.into_iter().for_each(|member| self.refresh(member));
        } else {
            self.refresh(id);
        }
    }

    /// Shows the scheduler a block as it is now, or takes it away.
    pub(super) fn refresh(&mut self, id: BlockId) {
        let competes = self.is_sendable(id) && !self.opening.is_waiting(id);
        if competes && let Some(view) = self.view(id) {
            self.scheduler.insert(&view);
        } else {
            self.scheduler.remove(id);
        }
    }

    /// The same for the open blocks that depend on a block which begins or ceases to wait for credit.
    pub(super) fn refresh_open_followers(&mut self, id: BlockId) {
        for follower in self.graph.followers(id, LINE) {
            if self.blocks.get(&follower).is_some_and(|block| block.opened) {
                self.refresh(follower);
            }
        }
    }

    /// Whether a block has bytes that may be sent, credit apart.
    pub(super) fn is_sendable(&self, id: BlockId) -> bool {
        let goes_on = || self.blocks.get(&id).is_some_and(LiveBlock::goes_on);
        is_sendable(id, &self.blocks, &self.graph) || goes_on() && self.must_not_wait(id)
    }

    /// Whether a block must not wait for those it depends on: one of them waits for credit, of which this one holds some.
    pub(super) fn must_not_wait(&self, id: BlockId) -> bool {
        self.blocks.get(&id).is_some_and(|block| block.opened) && self.opening.holds_up(id, &self.graph)
    }

    pub(super) fn end(&mut self, id: BlockId, outcome: Outcome) {
        let Some(block) = self.blocks.remove(&id) else { return };
        self.bytes -= block.size();
        if let Some(due) = block.due() {
            self.due.remove(&(due, id));
        }
        self.forget_doubt(&block);
        self.second_tries.forget(&block);
        self.passed.forget(block.channel, id);
        if let Some(next) = self.opening.on_ended(&block) {
            self.refresh(next);
        }
        self.late.remove(&id);
        self.held.remove(&id);
        self.scheduler.remove(id);
        let (missed, sent) = (block.missed(), block.sent());
        match outcome {
            // By then it had, in a packet whose acknowledgement is still to come.
            Outcome::Delivered(_) => self.tally.resend_regained_bytes += missed,
            Outcome::Dropped { .. } => {
                self.tally.never_regained_bytes += missed;
                self.opening.on_dropped(block.channel);
            }
        }
        if !matches!(outcome, Outcome::Delivered(delivery) if delivery.on_time()) {
            self.tally.wasted_bytes += sent;
        }
        match outcome {
            Outcome::Delivered(delivery) if delivery.on_time() => self.tally.on_time += 1,
            Outcome::Delivered(_) => self.tally.late += 1,
            Outcome::Dropped { .. } => {
                self.tally.dropped += 1;
                self.dropped.insert(id.0..id.0 + 1);
            }
        }
        if matches!(outcome, Outcome::Delivered(_)) {
            self.hand_on_needs(id);
        }
        for touched in self.graph.remove(id) {
            self.look_soon |= self.late.contains(&touched);
            self.refresh(touched);
        }
        self.notices.push_back(Notice::Ended(id, outcome, block.remains()));
    }

    /// What a delivered block still needs, those need that depend on it.
    fn hand_on_needs(&mut self, id: BlockId) {
        let open: Vec<_> = self.graph.needs(id).collect();
        if open.is_empty() {
            return;
        }
        let dependants: Vec<_> = self.graph.dependants(id).collect();
        for dependant in dependants {
            let needs: Vec<_> = self.graph.needs(dependant).chain(open.iter().copied()).collect();
            self.set_needs(dependant, needs);
        }
        self.kin.on_delivered(id, open);
    }

    pub(super) fn forget_old(&mut self) {
        if let Some(floor) = self.next_id.checked_sub(MEMORY)
            && self.dropped.first().is_some_and(|oldest| oldest.start < floor)
        {
            self.dropped.remove(0..floor);
        }
    }
}
