//! Blocks that others of their channel have passed.
//!
//! What is whole of a channel waits at the receiver for all that is before it there, until that is whole, too, or known to be dropped. A block that cannot be in time must
//! not be kept until its deadline is over, then: the word that it is dropped takes as long as a block does, and all that waits for it, which has deadlines
//! a little later, would be late with it. Nothing is lost by dropping it sooner but the chance that the forecast is wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::{
    channels::Place,
    late::{CLAIMS, LOOK},
    store::Store,
};
use crate::block::{BlockId, Channel};

/// The blocks of channels, and who has to wait for whom.
#[derive(Debug, Default)]
pub(super) struct Passed {
    lines: BTreeMap<Channel, Line>,
    /// Those that something behind them has passed: it has left whole, and they have not, or it is there before them.
    passed: BTreeSet<BlockId>,
}

/// A channel. Its blocks have rising ids.
#[derive(Debug, Default)]
struct Line {
    /// Those that have something to send, or are on their way and late, and that nothing has passed.
    open: BTreeSet<BlockId>,
    /// Those that have left whole.
    whole: BTreeSet<BlockId>,
}

impl Passed {
    /// A block of a channel has something to send, or is on its way and late.
    pub(super) fn insert(&mut self, place: Option<Place>, id: BlockId) {
        let Some((channel, _)) = place else { return };
        let line = self.lines.entry(channel).or_default();
        line.whole.remove(&id);
        match line.whole.last() {
            Some(last) if *last > id => self.passed.insert(id),
            _ => line.open.insert(id),
        };
    }

    /// All of it has left.
    pub(super) fn on_whole(&mut self, place: Option<Place>, id: BlockId) {
        self.forget(place, id);
        let Some(line) = place.and_then(|(channel, _)| self.lines.get_mut(&channel)) else { return };
        let behind = line.open.split_off(&id);
        self.passed.append(&mut std::mem::replace(&mut line.open, behind));
        line.whole.insert(id);
    }

    /// It has ended, or nothing more is sent of it.
    pub(super) fn forget(&mut self, place: Option<Place>, id: BlockId) {
        if let Some(line) = place.and_then(|(channel, _)| self.lines.get_mut(&channel)) {
            line.open.remove(&id);
            line.whole.remove(&id);
            self.passed.remove(&id);
        }
    }

    /// Whether some may have been passed.
    pub(super) fn is_any(&self) -> bool {
        !self.passed.is_empty()
    }

    /// Whether one that is behind it in its channel has left whole.
    fn is_waited_for(&self, place: Option<Place>, id: BlockId) -> bool {
        let line = place.filter(|_| self.passed.contains(&id)).and_then(|(channel, _)| self.lines.get(&channel));
        line.and_then(|line| line.whole.last()).is_some_and(|last| *last > id)
    }

    /// Whether nothing is left of blocks that have ended.
    pub(super) fn is_clean(&self) -> bool {
        self.passed.is_empty() && self.lines.values().all(|line| line.open.is_empty() && line.whole.is_empty())
    }
}

impl Store {
    /// Whether a block of a channel is late, or will be by the time that it is looked at again, and others, which have left, would wait for it.
    pub(super) fn holds_up(&self, now: Instant, id: BlockId) -> bool {
        let Some(block) = self.blocks.get(&id).filter(|block| self.passed.is_waited_for(block.channel, id)) else {
            return false;
        };
        // Late, it may still be of use to others.
        let comes_late = || {
            let is_late = block.due().is_some_and(|due| block.expected.is_some_and(|at| at > due));
            is_late && !self.has_followers(now, id)
        };
        // A rate that is beginning to show says nothing of who will be late.
        let is_known = || block.deadline.is_some_and(|deadline| !self.forecast.is_growing(deadline));
        let is_late = || if block.unsent() > 0 { is_known() && self.is_late(now + LOOK, id) } else { comes_late() };
        self.drops_stale && self.peer_confirms && is_late()
    }

    /// Those that hold others up.
    pub(super) fn all_that_hold_up(&self, now: Instant) -> Vec<BlockId> {
        if !self.passed.is_any() {
            return Vec::new();
        }
        self.due.iter().take(CLAIMS).map(|&(_, id)| id).filter(|&id| self.holds_up(now, id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_passes_all_before_it_that_have_something_to_send() {
        let mut passed = Passed::default();
        let place = |id: u64| Some((Channel(id as u32 % 2), id / 2));
        let holds_up = |passed: &Passed, id: u64| passed.is_waited_for(place(id), BlockId(id));
        (0..10).for_each(|id| passed.insert(place(id), BlockId(id)));
        passed.insert(None, BlockId(10));
        passed.on_whole(place(6), BlockId(6));
        assert_eq!([0, 1, 2, 4, 6, 8].map(|id| holds_up(&passed, id)), [true, false, true, true, false, false]);
        passed.on_whole(place(2), BlockId(2));
        assert_eq!([0, 2, 4].map(|id| holds_up(&passed, id)), [true, false, true], "it was not the first");
        passed.insert(place(2), BlockId(2));
        assert!(holds_up(&passed, 2), "some of it was lost");
        passed.forget(place(6), BlockId(6));
        assert_eq!([0, 2, 4].map(|id| holds_up(&passed, id)), [false; 3], "nothing waits any more");
        for id in 0..10 {
            passed.forget(place(id), BlockId(id));
        }
        assert!(passed.is_clean());
    }
}
