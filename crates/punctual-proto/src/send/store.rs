//! The live blocks of a sender: from `send` to exactly one outcome.
//!
//! The store owns the blocks, their dependencies and the scheduler's picture of them, and decides when a block has
//! ended. What it has to say leaves through [`Store::poll`]: outcomes for the application, notices for the peer.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

use rangemap::RangeSet;

use super::{
    credit::Credit,
    graph::Graph,
    groups::Groups,
    kin::Kin,
    late::Forecast,
    live::{InfoState, LiveBlock},
    load::Load,
    packetize::Piece,
    tally::Tally,
};
use crate::{
    block::{Block, BlockId, BlockUpdate, Channel, Delivery, Delta, DropReason, Outcome, Redundancy},
    by_id::ById,
    config::{Limits, MAX_LIVE},
    error::{BlockError, ProtocolError, SendError},
    multipath::PathId,
    observe::FragmentKind,
    redundancy::Policy,
    schedule::{BlockScheduler, BlockView, SendContext},
};

/// How many of the latest block ids the store remembers the fate of, for dependencies on blocks that have ended.
const MEMORY: u64 = 65_536;
/// Of those that are in front of a block in its channel, and of what they depend on, so many are looked at.
const LINE: usize = 64;
/// Of the blocks that wait for another, so many are looked at when a path is sought for that.
const FOLLOWERS_COUNTED: usize = 8;

/// Something the store has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// To the application: the block has ended.
    Ended(BlockId, Outcome),
    /// To the peer: the block will never be complete. `size` is 0 if it used no credit.
    Dropped { id: BlockId, reason: DropReason, size: u64, channel: Option<(Channel, u64)> },
    /// To the peer: the block's deadline or priority changed after it had been announced.
    Updated { id: BlockId, deadline: Option<Duration>, priority: u8 },
}

/// A channel that was sent on.
#[derive(Debug, Clone, Copy)]
struct ChannelState {
    /// The position of its next block.
    next: u64,
    /// How many channels there were before it.
    rank: u64,
}

/// The live blocks.
pub(crate) struct Store {
    limits: Limits,
    pub(super) blocks: ById<LiveBlock>,
    pub(crate) groups: Groups,
    /// How blocks are protected that do not say it themselves, and those of some channels.
    redundancy: Redundancy,
    channel_redundancy: BTreeMap<Channel, Redundancy>,
    pub(super) graph: Graph,
    pub(super) kin: Kin,
    pub(super) load: Load,
    scheduler: Box<dyn BlockScheduler>,
    drops_stale: bool,
    inherits_priority: bool,
    pub(super) forecast: Forecast,
    /// Blocks that cannot be in time, and are looked at for the sake of others at `look_at`.
    pub(super) late: BTreeSet<BlockId>,
    pub(super) look_at: Option<Instant>,
    /// One of them can be sent now.
    look_soon: bool,
    /// When blocks with a deadline are looked at.
    pub(super) due: BTreeSet<(Instant, BlockId)>,
    next_id: u64,
    bytes: u64,
    channels: BTreeMap<Channel, ChannelState>,
    /// Blocks of channels that were dropped before the peer said how many channels it takes.
    early_drops: Vec<(BlockId, DropReason, Channel, u64)>,
    credit: Credit,
    /// Blocks of channels that have not been opened, by their place.
    unopened: BTreeMap<(Channel, u64), BlockId>,
    /// Blocks the scheduler chose but there was no credit for.
    without_credit: BTreeSet<BlockId>,
    /// The largest block the peer takes, once it has said so.
    peer_max_block: Option<u64>,
    /// The most channels the peer takes, once it has said so.
    peer_max_channels: Option<u64>,
    /// Whether the peer answers a drop with what it had received.
    peer_confirms: bool,
    /// Blocks that ended dropped, of the last [`MEMORY`] ids.
    dropped: RangeSet<u64>,
    notices: VecDeque<Notice>,
    pub(super) tally: Tally,
    /// The smallest block that `send` has said `Full` to since there was room for one of its size last.
    starved: Option<usize>,
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
            channel_redundancy: BTreeMap::new(),
            graph: Graph::default(),
            kin: Kin::default(),
            load: Load::default(),
            forecast: Forecast::default(),
            late: BTreeSet::new(),
            look_at: None,
            look_soon: false,
            drops_stale: scheduler.drops_stale(),
            inherits_priority: scheduler.inherits_priority(),
            scheduler,
            due: BTreeSet::new(),
            next_id: 0,
            bytes: 0,
            channels: BTreeMap::new(),
            early_drops: Vec::new(),
            credit: Credit::default(),
            unopened: BTreeMap::new(),
            without_credit: BTreeSet::new(),
            peer_max_block: None,
            peer_max_channels: None,
            peer_confirms: true,
            dropped: RangeSet::new(),
            notices: VecDeque::new(),
            tally: Tally::default(),
            starved: None,
        }
    }

    /// Takes a block in.
    pub(crate) fn insert(&mut self, now: Instant, block: Block) -> Result<BlockId, SendError> {
        self.check(&block)?;
        let size = block.data.len();
        if !self.has_room(size) {
            self.starved = Some(self.starved.map_or(size, |starved| starved.min(size)));
            return Err(SendError::Full(Box::new(block)));
        }
        let id = BlockId(self.next_id);
        self.next_id += 1;
        let Block { data, deadline, priority, dependencies, channel, redundancy, begin } = block;
        let begin = begin.map_or(now, |begin| begin.min(now));
        let rank = self.channels.len() as u64;
        let channel = channel.map(|channel| {
            let state = self.channels.entry(channel).or_insert(ChannelState { next: 0, rank });
            state.next += 1;
            (channel, state.next - 1)
        });
        let of_channel = || channel.and_then(|(channel, _)| self.channel_redundancy.get(&channel).copied());
        let redundancy = redundancy.or_else(of_channel).unwrap_or(self.redundancy);
        let live = LiveBlock::new(id, data, begin, deadline, priority, redundancy, channel);
        self.bytes += live.size();
        self.watch(&live);
        if deadline.is_some() {
            self.load.add(now, priority, live.size());
        }
        self.unopened.extend(channel.map(|place| (place, id)));
        self.blocks.insert(id, live);
        self.tally.accepted += 1;
        self.forget_old();
        let needs = self.kin.with_open(&dependencies);
        if self.is_orphan(&needs) {
            self.kin.insert(id, None, Vec::new(), now);
            self.drop_block(id, DropReason::DependencyDropped);
        } else {
            let kind = (channel.map(|(channel, _)| channel), priority, !dependencies.is_empty());
            let leaders = self.kin.insert(id, Some(kind), dependencies, now);
            self.set_needs(id, needs);
            leaders.into_iter().for_each(|leader| self.on_followed(now, leader, priority));
        }
        Ok(id)
    }

    /// Whether a block of `size` bytes has room.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        self.blocks.len() < self.max_live()
            // A single block always fits, however the limits were set.
            && (self.bytes + size as u64 <= self.limits.send_bytes || self.blocks.is_empty())
    }

    /// Whether there is room again for a block there was none for; says so once.
    pub(crate) fn take_writable(&mut self) -> bool {
        let has_room = self.starved.is_some_and(|size| self.has_room(size));
        has_room && self.starved.take().is_some()
    }

    fn max_live(&self) -> usize {
        self.limits.send_blocks.min(MAX_LIVE)
    }

    fn check(&self, block: &Block) -> Result<(), SendError> {
        let size = block.data.len() as u64;
        let limit = self.limits.max_block_size.min(self.peer_max_block.unwrap_or(u64::MAX));
        if size == 0 {
            return Err(SendError::Empty);
        }
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        if let Some(deadline) = block.deadline.filter(|&deadline| deadline < Block::MIN_DEADLINE) {
            return Err(SendError::DeadlineTooShort(deadline));
        }
        if let Some(&unknown) = block.dependencies.iter().find(|need| need.0 >= self.next_id) {
            return Err(SendError::UnknownDependency(unknown));
        }
        if block.dependencies.len() > self.limits.dependencies_per_block
            || self.graph.edges() + block.dependencies.len() > self.limits.dependency_edges
        {
            return Err(SendError::TooManyDependencies);
        }
        let max_channels = (self.limits.channels as u64).min(self.peer_max_channels.unwrap_or(u64::MAX));
        let channels = self.channels.len() as u64;
        if block.channel.is_some_and(|channel| !self.channels.contains_key(&channel) && channels >= max_channels) {
            return Err(SendError::TooManyChannels);
        }
        Ok(())
    }

    /// Changes what was said of a block.
    pub(crate) fn update(&mut self, id: BlockId, update: BlockUpdate) -> Result<(), BlockError> {
        if let Some(Some(deadline)) = update.deadline.filter(|d| d.is_some_and(|d| d < Block::MIN_DEADLINE)) {
            return Err(BlockError::DeadlineTooShort(deadline));
        }
        if let Some(needs) = &update.dependencies {
            if let Some(&unknown) = needs.iter().find(|need| need.0 >= self.next_id) {
                return Err(BlockError::UnknownDependency(unknown));
            }
            if needs.len() > self.limits.dependencies_per_block
                || self.graph.edges() + needs.len() > self.limits.dependency_edges
            {
                return Err(BlockError::TooManyDependencies);
            }
        }
        let block = self.blocks.get_mut(&id).filter(|block| block.dying.is_none()).ok_or(BlockError::NotLive(id))?;
        let old_due = block.due();
        if let Some(priority) = update.priority {
            block.priority = priority;
        }
        if let Some(deadline) = update.deadline {
            block.deadline = deadline;
            block.hopeless = false;
            block.others = None;
            self.late.remove(&id);
        }
        if block.opened && (update.priority.is_some() || update.deadline.is_some()) {
            let (deadline, priority) = (block.deadline, block.priority);
            self.notices.push_back(Notice::Updated { id, deadline, priority });
        }
        if update.deadline.is_some() {
            if let Some(due) = old_due {
                self.due.remove(&(due, id));
            }
            let due = self.blocks[&id].due();
            if let Some(due) = due.filter(|_| self.drops_stale) {
                self.due.insert((due, id));
            }
        }
        if let Some(needs) = update.dependencies {
            self.kin.set_needs(id, &needs);
            let needs = self.kin.with_open(&needs);
            if self.is_orphan(&needs) {
                self.drop_block(id, DropReason::DependencyDropped);
                return Ok(());
            }
            self.set_needs(id, needs);
        }
        self.refresh(id);
        Ok(())
    }

    /// Says how blocks of a channel are protected from now on, unless they say it themselves.
    ///
    /// # Errors
    /// As for a block of a channel too many.
    pub(crate) fn set_channel_redundancy(&mut self, channel: Channel, mode: Redundancy) -> Result<(), SendError> {
        let known = self.channel_redundancy.contains_key(&channel);
        if !known && self.channel_redundancy.len() >= self.limits.channels {
            return Err(SendError::TooManyChannels);
        }
        self.channel_redundancy.insert(channel, mode);
        Ok(())
    }

    /// Drops a block because the application wants it.
    pub(crate) fn cancel(&mut self, id: BlockId) -> Result<(), BlockError> {
        if self.blocks.get(&id).is_none_or(|block| block.dying.is_some()) {
            return Err(BlockError::NotLive(id));
        }
        self.drop_block(id, DropReason::Cancelled);
        Ok(())
    }

    /// The block whose bytes go next.
    pub(crate) fn next(&mut self, cx: &SendContext<'_>) -> Option<BlockId> {
        self.forecast.follow(cx);
        if std::mem::take(&mut self.look_soon) {
            self.look_at_late(cx.now);
        }
        loop {
            let id = self.scheduler.next(cx)?;
            let Some(block) = self.blocks.get(&id) else {
                debug_assert!(false, "the scheduler named a block that has ended");
                self.scheduler.remove(id);
                continue;
            };
            if block.opened {
                return Some(id);
            }
            let (first, reserve) = self.first_to_open(block);
            if self.blocks.get(&first).is_some_and(|block| self.credit.allows(block.size() + reserve)) {
                return Some(first);
            }
            for id in [id, first] {
                self.without_credit.insert(id);
                self.scheduler.remove(id);
            }
        }
    }

    /// The block that must be opened first for `block`, which is not open, to be of use: in a channel those before it, for
    /// it waits for them at the receiver. If it took the credit that they need, both would wait for ever. And the credit that must be left
    /// when that is open: if those before it cannot be sent yet, for what they depend on has not been, what they need to be.
    fn first_to_open(&self, block: &LiveBlock) -> (BlockId, u64) {
        let Some((channel, position)) = block.channel else { return (block.id, 0) };
        let before = self.unopened.range((channel, 0)..(channel, position)).map(|(_, &id)| id);
        let mut todo: Vec<BlockId> = before.take(LINE).collect();
        if let Some(first) = todo.iter().copied().find(|&id| self.is_sendable(id)) {
            return (first, 0);
        }
        let mut seen = BTreeSet::new();
        let (mut needed, mut reserve) = (None, 0);
        while let Some(id) = todo.pop() {
            let Some(other) = self.blocks.get(&id).filter(|other| !other.opened && other.id != block.id) else {
                continue;
            };
            if seen.len() == LINE || !seen.insert(id) {
                continue;
            }
            reserve += other.size();
            if self.is_sendable(id) {
                needed = needed.min(Some(id)).or(Some(id));
            }
            todo.extend(self.graph.needs(id));
        }
        match needed {
            Some(needed) if !self.credit.allows(block.size() + reserve) => (needed, 0),
            _ => (block.id, reserve),
        }
    }

    /// A place in a channel has been opened, or will never be: the next may not have to leave room any more.
    fn on_opened(&mut self, (channel, position): (Channel, u64)) {
        self.unopened.remove(&(channel, position));
        let next = self.unopened.range((channel, position)..=(channel, u64::MAX)).next().map(|(_, &id)| id);
        if let Some(next) = next.filter(|next| self.without_credit.remove(next)) {
            self.refresh(next);
        }
    }

    /// Takes a block out of the competition until [`unhold`](Self::unhold).
    pub(crate) fn hold(&mut self, id: BlockId) {
        self.scheduler.remove(id);
    }

    /// Lets a held block compete again.
    pub(crate) fn unhold(&mut self, id: BlockId) {
        self.refresh(id);
    }

    /// Bytes that cannot be sent before this block is: those of blocks that depend on it. Of many not all are counted.
    pub(crate) fn bytes_behind(&self, id: BlockId) -> u64 {
        let behind = self.graph.followers(id, FOLLOWERS_COUNTED);
        behind.into_iter().filter_map(|id| self.view(id)).map(|view| view.unsent).sum()
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
                let size = block.size();
                self.credit.open(size);
                if let Some(place) = block.channel {
                    self.on_opened(place);
                }
            }
        }
        self.after_change(id);
    }

    /// The peer has a piece of a block.
    pub(super) fn on_piece_acked(&mut self, now: Instant, piece: &Piece) {
        let Some(block) = self.blocks.get_mut(&piece.id) else { return };
        if piece.with_info {
            block.info = InfoState::Known;
        }
        let before = block.unsent();
        let regained = block.on_acked(piece.range.clone(), now);
        match piece.kind {
            // It had not been lost.
            FragmentKind::Source | FragmentKind::Repair => {}
            FragmentKind::Resent => self.tally.resend_regained_bytes += regained,
            FragmentKind::Copy => self.tally.copy_regained_bytes += regained,
        }
        if block.unsent() != before {
            self.after_change(piece.id);
        }
    }

    /// Bytes of a block were lost on `path`.
    pub(crate) fn on_lost(&mut self, now: Instant, id: BlockId, range: Range<u64>, with_info: bool, path: PathId) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if with_info && block.info == InfoState::InFlight {
            block.info = InfoState::Due;
        }
        if !block.on_lost(range, path) || block.dying.is_some() {
            return;
        }
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

    /// The peer has handed the whole block to its application, `completion` after its hand-over here.
    pub(crate) fn on_completed(
        &mut self,
        id: BlockId,
        completion: Duration,
        good_bytes: u64,
    ) -> Result<(), ProtocolError> {
        let Some(block) = self.known(id)? else { return Ok(()) };
        let delta = block.deadline.map(|deadline| Delta::between(deadline, completion));
        let good_bytes = if delta.is_some_and(Delta::is_late) { good_bytes.min(block.size()) } else { block.size() };
        self.end(id, Outcome::Delivered(Delivery { completion, delta, good_bytes }));
        Ok(())
    }

    /// The peer has freed a block that we dropped.
    pub(crate) fn on_freed(&mut self, id: BlockId, good_bytes: u64) -> Result<(), ProtocolError> {
        let Some(block) = self.known(id)? else { return Ok(()) };
        let Some(reason) = block.dying else { return Err(ProtocolError::UnknownBlock) };
        let good_bytes = good_bytes.min(block.size());
        self.bury(id, reason, good_bytes);
        Ok(())
    }

    /// The peer does not want a block.
    pub(crate) fn on_refused(&mut self, id: BlockId) -> Result<(), ProtocolError> {
        let Some(block) = self.known(id)? else { return Ok(()) };
        let (good_bytes, size, channel) = (block.good_bytes, block.size(), block.channel);
        let reason = block.dying.unwrap_or(DropReason::Refused);
        if block.dying.is_none() {
            // The answer settles the credit that the block used.
            self.notices.push_back(Notice::Dropped { id, reason, size, channel });
        }
        self.bury(id, reason, good_bytes);
        Ok(())
    }

    /// # Errors
    /// If there never was such a block.
    pub(crate) fn check_known(&self, id: BlockId) -> Result<(), ProtocolError> {
        if id.0 < self.next_id { Ok(()) } else { Err(ProtocolError::UnknownBlock) }
    }

    /// A live block the peer speaks of; `None` if it has ended.
    fn known(&self, id: BlockId) -> Result<Option<&LiveBlock>, ProtocolError> {
        match self.blocks.get(&id) {
            Some(block) if block.opened => Ok(Some(block)),
            None if id.0 < self.next_id => Ok(None),
            _ => Err(ProtocolError::UnknownBlock),
        }
    }

    /// The peer's limits are known: totals of credit, and its largest block.
    pub(crate) fn on_settings(&mut self, max_block: u64, max_channels: u64, bytes: u64, blocks: u64) {
        self.peer_max_block = Some(max_block);
        self.peer_max_channels = Some(max_channels);
        // The peer would take it for an error to hear of more channels than it has said.
        self.channels.retain(|_, state| state.rank < max_channels);
        self.unopened.retain(|(channel, _), _| self.channels.contains_key(channel));
        for (id, reason, channel, position) in std::mem::take(&mut self.early_drops) {
            let channel = self.channels.contains_key(&channel).then_some((channel, position));
            self.notices.push_back(Notice::Dropped { id, reason, size: 0, channel });
        }
        let mut unfit = Vec::new();
        for (&id, block) in &mut self.blocks {
            if block.channel.is_some_and(|(channel, _)| !self.channels.contains_key(&channel)) {
                block.channel = None;
                unfit.push(id);
            } else if block.size() > max_block {
                unfit.push(id);
            }
        }
        unfit.sort_unstable();
        for id in unfit {
            self.drop_block(id, DropReason::Refused);
        }
        self.grant(bytes, blocks);
    }

    /// The peer is a plain QUIC endpoint: no credit to wait for, no answers to drops.
    pub(crate) fn on_fallback(&mut self) {
        self.peer_confirms = false;
        self.early_drops.clear();
        self.grant(u64::MAX, u64::MAX);
    }

    /// Raises the credit. Totals only grow; a smaller one is an old one.
    pub(crate) fn grant(&mut self, bytes: u64, blocks: u64) {
        self.credit.granted_bytes = self.credit.granted_bytes.max(bytes);
        self.credit.granted_blocks = self.credit.granted_blocks.max(blocks);
        for id in std::mem::take(&mut self.without_credit) {
            self.refresh(id);
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        // A deadline has passed once it lies behind us.
        let due = self.due.first().map(|&(due, _)| due + Duration::from_micros(1));
        [due, self.look_at, self.groups.next_timeout()].into_iter().flatten().min()
    }

    /// Drops what is worthless by now.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.expire_groups(now);
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

    /// The next thing the store has to say.
    pub(crate) fn poll(&mut self) -> Option<Notice> {
        self.notices.pop_front()
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
            && self.late.is_empty()
            && self.without_credit.is_empty()
            && self.unopened.is_empty()
            && self.groups.is_empty()
            && self.bytes == 0
    }

    fn watch(&mut self, block: &LiveBlock) {
        if let Some(due) = block.due().filter(|_| self.drops_stale) {
            self.due.insert((due, block.id));
        }
    }

    fn set_needs(&mut self, id: BlockId, needs: Vec<BlockId>) {
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

    fn is_orphan(&self, needs: &[BlockId]) -> bool {
        needs.iter().any(|need| self.dropped.contains(&need.0))
    }

    /// A block was handed over that depends on `id`, over any number of steps.
    fn on_followed(&mut self, now: Instant, id: BlockId, priority: u8) {
        let Some(block) = self.blocks.get_mut(&id).filter(|block| block.unsent() > 0) else { return };
        block.lent_priority = block.lent_priority.min(priority);
        if self.drops_stale && self.is_late(now, id) && self.late.insert(id) {
            self.look_soon = true;
        }
        self.refresh_cluster(id);
    }

    /// Brings graph and scheduler up to date after a block's bytes changed hands.
    fn after_change(&mut self, id: BlockId) {
        let unsent = self.blocks.get(&id).is_some_and(|block| block.unsent() > 0);
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
    fn refresh(&mut self, id: BlockId) {
        let competes = self.is_sendable(id) && !self.without_credit.contains(&id);
        if competes && let Some(view) = self.view(id) {
            self.scheduler.insert(&view);
        } else {
            self.scheduler.remove(id);
        }
    }

    /// Whether a block has bytes that may be sent, credit apart.
    fn is_sendable(&self, id: BlockId) -> bool {
        self.blocks.get(&id).is_some_and(|block| block.unsent() > 0 && !block.hopeless) && self.graph.is_free(id)
    }

    /// Drops a block for `reason`, and with it whatever depends on it.
    pub(super) fn drop_block(&mut self, id: BlockId, reason: DropReason) {
        let mut todo = vec![(id, reason)];
        while let Some((id, reason)) = todo.pop() {
            let Some(block) = self.blocks.get_mut(&id).filter(|block| block.dying.is_none()) else { continue };
            let size = if block.opened { block.size() } else { 0 };
            match block.channel {
                Some((channel, position)) if self.peer_confirms && self.peer_max_channels.is_none() => {
                    self.early_drops.push((id, reason, channel, position));
                }
                channel => self.notices.push_back(Notice::Dropped { id, reason, size, channel }),
            }
            if block.opened && block.all_sent_once() && self.peer_confirms {
                block.dying = Some(reason);
                block.data = Default::default();
                self.after_change(id);
                // Those that depend on it live on until the peer has said that it does not have it; but if it lacks what this one depends
                // on, it does not matter whether it has this one.
                if reason == DropReason::DependencyDropped {
                    self.dropped.insert(id.0..id.0 + 1);
                    todo.extend(self.graph.dependants(id).map(|orphan| (orphan, reason)));
                }
            } else {
                let good_bytes = block.good_bytes;
                todo.extend(self.graph.dependants(id).map(|orphan| (orphan, DropReason::DependencyDropped)));
                self.end(id, Outcome::Dropped { reason, good_bytes });
            }
        }
    }

    /// Ends a block by the peer's word, and drops what depends on it.
    fn bury(&mut self, id: BlockId, reason: DropReason, good_bytes: u64) {
        let orphans: Vec<_> = self.graph.dependants(id).collect();
        self.end(id, Outcome::Dropped { reason, good_bytes });
        for orphan in orphans {
            self.drop_block(orphan, DropReason::DependencyDropped);
        }
    }

    fn end(&mut self, id: BlockId, outcome: Outcome) {
        let Some(block) = self.blocks.remove(&id) else { return };
        self.bytes -= block.size();
        if let Some(due) = block.due() {
            self.due.remove(&(due, id));
        }
        self.without_credit.remove(&id);
        if let Some(place) = block.channel {
            self.on_opened(place);
        }
        self.late.remove(&id);
        self.scheduler.remove(id);
        let (missed, sent) = (block.missed(), block.sent());
        match outcome {
            // By then it had, in a packet whose acknowledgement is still to come.
            Outcome::Delivered(_) => self.tally.resend_regained_bytes += missed,
            Outcome::Dropped { .. } => self.tally.never_regained_bytes += missed,
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
        self.notices.push_back(Notice::Ended(id, outcome));
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

    fn forget_old(&mut self) {
        if let Some(floor) = self.next_id.checked_sub(MEMORY)
            && self.dropped.first().is_some_and(|oldest| oldest.start < floor)
        {
            self.dropped.remove(0..floor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{redundancy, schedule};

    fn store() -> Store {
        Store::new(Limits::default(), schedule::default_factory()(), Redundancy::Auto, redundancy::default_factory()())
    }

    #[test]
    fn the_peer_never_hears_of_channels_it_has_no_room_for() {
        let mut store = store();
        let mut send = |block| store.insert(Instant::now(), block).unwrap();
        let kept = send(Block::new(vec![0; 10]).channel(Channel(1)));
        let excess = send(Block::new(vec![0; 10]).channel(Channel(2)));
        let large = send(Block::new(vec![0; 1_001]).channel(Channel(1)));
        store.on_settings(1_000, 1, 10_000, 10);
        let dropped = |id, channel| Notice::Dropped { id, reason: DropReason::Refused, size: 0, channel };
        let notices: Vec<_> = std::iter::from_fn(|| store.poll()).collect();
        assert!(notices.contains(&dropped(excess, None)));
        assert!(notices.contains(&dropped(large, Some((Channel(1), 1)))));
        assert!(store.get(kept).is_some());
        let more = store.insert(Instant::now(), Block::new(vec![0; 10]).channel(Channel(2)));
        assert_eq!(more, Err(SendError::TooManyChannels));
    }

    #[test]
    fn writable_means_that_what_was_refused_fits() {
        let limits = Limits { send_bytes: 100, ..Limits::default() };
        let mut store =
            Store::new(limits, schedule::default_factory()(), Redundancy::Auto, redundancy::default_factory()());
        let now = Instant::now();
        let first = store.insert(now, Block::new(vec![0; 60])).unwrap();
        let second = store.insert(now, Block::new(vec![0; 30])).unwrap();
        assert!(matches!(store.insert(now, Block::new(vec![0; 50])), Err(SendError::Full(_))));
        store.cancel(second).unwrap();
        assert!(!store.take_writable());
        store.cancel(first).unwrap();
        assert!(store.take_writable() && !store.take_writable());
    }
}
