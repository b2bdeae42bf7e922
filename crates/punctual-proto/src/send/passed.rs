//! Blocks that others of their channel have passed.
//!
//! What is whole of a channel waits at the receiver for all that is before it there, until that is whole, too, or known to be dropped. A block that cannot be in time must
//! not be kept until its deadline is over, then: the word that it is dropped takes as long as a block does, and all that waits for it, which has deadlines
//! a little later, would be late with it. Nothing is lost by dropping it sooner but the chance that the forecast is wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    channels::Place,
    late::{CLAIMS, LOOK},
    store::Store,
};
use crate::block::{BlockId, Channel};

/// How often it is looked who has become late, at most.
const LEAST_LOOK: Duration = Duration::from_millis(1);

/// The blocks of channels, and who has to wait for whom.
#[derive(Debug, Default)]
pub(super) struct Passed(BTreeMap<Channel, Line>);

/// A channel. Its blocks have rising ids.
#[derive(Debug, Default)]
struct Line {
    /// Those that have something to send, or are on their way and late.
    open: BTreeSet<BlockId>,
    /// Those that have left whole.
    whole: BTreeSet<BlockId>,
    /// The peer gives them out by time, not by turn: it has said of one that it is complete before others were that are before it.
    by_time: bool,
}

impl Line {
    /// Whether one that is behind it has left whole, and waits for it.
    fn waits_for(&self, id: BlockId) -> bool {
        !self.by_time && self.open.contains(&id) && self.whole.last().is_some_and(|last| *last > id)
    }

    /// Whether there are such.
    fn waits(&self) -> bool {
        self.open.first().is_some_and(|first| self.waits_for(*first))
    }
}

impl Passed {
    /// The peer takes no other channels than these.
    pub(super) fn retain(&mut self, is_known: impl Fn(Channel) -> bool) {
        self.0.retain(|&channel, _| is_known(channel));
    }

    /// A block of a channel has something to send, or is on its way and late.
    pub(super) fn insert(&mut self, place: Option<Place>, id: BlockId) {
        if let Some((channel, _)) = place {
            let line = self.0.entry(channel).or_default();
            line.whole.remove(&id);
            line.open.insert(id);
        }
    }

    /// All of it has left.
    pub(super) fn on_whole(&mut self, place: Option<Place>, id: BlockId) {
        if let Some(line) = self.line_mut(place) {
            line.open.remove(&id);
            line.whole.insert(id);
        }
    }

    /// The peer says that it is complete.
    pub(super) fn on_completed(&mut self, place: Option<Place>, id: BlockId) {
        if let Some(line) = self.line_mut(place) {
            line.by_time |=
                [&line.open, &line.whole].into_iter().any(|ids| ids.first().is_some_and(|first| *first < id));
        }
    }

    /// It has ended, or nothing more is sent of it.
    pub(super) fn forget(&mut self, place: Option<Place>, id: BlockId) {
        if let Some(line) = self.line_mut(place) {
            line.open.remove(&id);
            line.whole.remove(&id);
        }
    }

    fn line_mut(&mut self, place: Option<Place>) -> Option<&mut Line> {
        place.and_then(|(channel, _)| self.0.get_mut(&channel))
    }

    /// Whether something in this block's channel waits for what it has passed.
    pub(super) fn is_in(&self, place: Option<Place>) -> bool {
        place.and_then(|(channel, _)| self.0.get(&channel)).is_some_and(Line::waits)
    }

    /// Whether something in any channel does.
    pub(super) fn is_any(&self) -> bool {
        self.0.values().any(Line::waits)
    }

    /// The first behind it that has left whole.
    fn first_behind(&self, place: Option<Place>, id: BlockId) -> Option<BlockId> {
        let line = place.and_then(|(channel, _)| self.0.get(&channel))?;
        line.whole.range(id..).next().copied()
    }

    fn is_waited_for(&self, place: Option<Place>, id: BlockId) -> bool {
        place.and_then(|(channel, _)| self.0.get(&channel)).is_some_and(|line| line.waits_for(id))
    }

    /// Whether nothing is left of blocks that have ended.
    pub(super) fn is_clean(&self) -> bool {
        self.0.values().all(|line| line.open.is_empty() && line.whole.is_empty())
    }
}

impl Store {
    /// Whether a block of a channel is late, and others, which have left, would wait for it.
    pub(super) fn holds_up(&self, now: Instant, id: BlockId) -> bool {
        let Some(block) = self.blocks.get(&id).filter(|block| self.passed.is_waited_for(block.channel, id)) else {
            return false;
        };
        // Late, it may still be of use to others.
        let comes_late = || {
            let first = self.passed.first_behind(block.channel, id).and_then(|first| self.blocks.get(&first)?.due());
            let is_waited_for = block.expected.is_some_and(|at| first.is_some_and(|due| at > due));
            is_waited_for && !self.has_followers(now, id)
        };
        // A rate that is beginning to show says nothing of who will be late.
        let is_known = || block.deadline.is_some_and(|deadline| !self.forecast.is_growing(deadline));
        let is_late = || if block.unsent() > 0 { is_known() && self.is_late(now, id) } else { comes_late() };
        self.drops_stale && self.peer_confirms && is_late()
    }

    /// When it is to be looked whether blocks that hold others up have become late.
    pub(super) fn next_to_hold_up(&self, now: Instant) -> Option<Instant> {
        if !self.passed.is_any() {
            return None;
        }
        let becomes_late = |(due, id): (Instant, BlockId)| {
            let block = self.blocks.get(&id).filter(|block| self.passed.is_waited_for(block.channel, id))?;
            due.checked_sub(self.forecast.time(block.unsent())?)
        };
        // Who is late already, and was kept, need not be looked at so often.
        let first = self.due.iter().take(CLAIMS).copied().filter_map(becomes_late).filter(|at| *at >= now).min();
        Some(first.map_or(now + LOOK, |at| at.clamp(now + LEAST_LOOK, now + LOOK)))
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
        passed.on_whole(place(8), BlockId(8));
        assert!(holds_up(&passed, 4) && passed.is_any() && passed.is_in(place(0)) && !passed.is_in(place(1)));
        passed.on_completed(place(8), BlockId(8));
        assert!(!holds_up(&passed, 4) && !passed.is_any(), "it has not waited");
        for id in 0..10 {
            passed.forget(place(id), BlockId(id));
        }
        assert!(passed.is_clean());
    }
}
