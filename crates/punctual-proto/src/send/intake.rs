//! What the application says: it hands blocks over, changes what it said of them, and takes them back.

use std::time::{Duration, Instant};

use super::{
    kin::Concerned,
    live::LiveBlock,
    store::{Notice, Store},
};
use crate::{
    block::{Block, BlockId, BlockUpdate, Channel, DropReason, Redundancy},
    error::{BlockError, SendError},
    limits::MAX_LIVE,
};

impl Store {
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
        let redundancy = redundancy.unwrap_or_else(|| self.redundancy(channel));
        let place = channel.map(|channel| self.channels.next(channel));
        let mut live = LiveBlock::new(id, data, begin, deadline, priority, redundancy, place);
        let said = deadline;
        let deadline = said.map(|said| self.forecast.taken_for(said));
        live.set_deadline(said, deadline);
        self.second_tries.begin(&mut live);
        let size = live.size();
        if let Some(channel) = channel.filter(|_| self.minds_sources) {
            self.sources.on_block(channel, begin, size, deadline, priority);
        }
        if let Some(deadline) = deadline {
            self.leeway.on_block(now, deadline, priority, size);
        }
        self.bytes += size;
        let overdue = live.due().is_some_and(|due| due < now);
        self.watch(id, live.due());
        self.opening.insert(place, id, size);
        self.passed.insert(place, id);
        self.blocks.insert(id, live);
        self.tally.accepted += 1;
        self.forget_old();
        let needs = self.kin.with_open(&dependencies);
        let kind = (channel, priority, !dependencies.is_empty());
        if self.is_orphan(&needs) {
            self.kin.insert(id, kind, size, dependencies, now);
            self.drop_block(id, DropReason::DependencyDropped);
        } else {
            let Concerned { leaders, ended } = self.kin.insert(id, kind, size, dependencies, now);
            if let Some(deadline) = deadline {
                self.load.add(now, priority, self.kin.price(id), size);
                if self.kin.is_of_family(id) {
                    self.judge_load(now, deadline);
                }
            }
            self.set_needs(id, needs);
            if self.drops_stale && (overdue || self.waits_too_long(id)) && self.late.insert(id) {
                self.look_soon = true;
            }
            leaders.into_iter().for_each(|leader| self.on_followed(now, leader, priority));
            // They are worth less than was thought.
            for member in ended {
                if self.blocks.get(&member).is_some_and(|block| block.unsent() > 0) {
                    self.refresh_cluster(member);
                }
            }
        }
        Ok(id)
    }

    /// Whether so much is to be said of blocks that there had better be no more of them.
    pub(crate) fn hush(&mut self, hushed: bool) {
        self.hushed = hushed;
    }

    /// Whether a block of `size` bytes has room.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        !self.hushed
            && self.blocks.len() + self.early_drops.len() < self.max_live()
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
        if size == 0 && !self.peer_confirms {
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
        if block.channel.is_some_and(|channel| !self.channels.takes(channel)) {
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
            block.set_deadline(deadline, deadline.map(|deadline| self.forecast.taken_for(deadline)));
            block.hopeless = false;
            block.others = None;
            self.late.remove(&id);
        }
        if block.opened && (update.priority.is_some() || update.deadline.is_some()) {
            let (deadline, priority) = (block.said_deadline(), block.priority);
            self.notices.push_back(Notice::Updated { id, deadline, priority });
        }
        if update.deadline.is_some() {
            if let Some(due) = old_due {
                self.due.remove(&(due, id));
            }
            self.watch(id, self.blocks[&id].due());
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
        self.channels.set_redundancy(channel, mode)
    }

    /// How blocks of a channel, or of none, are protected that do not say it themselves.
    pub(crate) fn redundancy(&self, channel: Option<Channel>) -> Redundancy {
        channel.and_then(|channel| self.channels.redundancy(channel)).unwrap_or(self.redundancy)
    }

    /// Drops a block because the application wants it.
    pub(crate) fn cancel(&mut self, id: BlockId) -> Result<(), BlockError> {
        if self.blocks.get(&id).is_none_or(|block| block.dying.is_some()) {
            return Err(BlockError::NotLive(id));
        }
        self.drop_block(id, DropReason::Cancelled);
        Ok(())
    }

    /// The block is looked at when it is due.
    fn watch(&mut self, id: BlockId, due: Option<Instant>) {
        if let Some(due) = due.filter(|_| self.drops_stale) {
            self.due.insert((due, id));
        }
    }

    /// Judges now and then what of all that is handed over is too much, for the paths that bring anything within this deadline.
    fn judge_load(&mut self, now: Instant, deadline: Duration) {
        if self.forecast.is_known() && self.load.is_to_be_judged(now) {
            let waiting = self.claims(u8::MAX, |_| true).map(|(_, bytes)| bytes).sum();
            self.load.judge(now, waiting, self.forecast.rate(deadline));
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits::Limits, redundancy, schedule};

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
