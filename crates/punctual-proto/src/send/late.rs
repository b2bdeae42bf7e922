//! What a block is worth that cannot be in time any more: what it does for others.
//!
//! Whoever depends on a block needs it by its own deadline, not by that of the block. So a late block stays worth sending as long as
//!
//! - one of those that depend on it can still be in time, behind all that goes first; or
//! - more of them are likely to come, and
//!   - sending goes faster than blocks are handed over, or will before long, as far as anybody knows: then what is late is caught up with while
//!     they still come; or
//!   - nothing else is there to be sent in its place, but what has no deadline and is less important. That the paths carry too little is an estimate,
//!     and one that nothing mends if nothing is sent.
//!
//! A block is late not only because of what it has to send itself. What it depends on may have left already, over a path that brings it too late: then
//! it serves those that are due when that is there, and until then it is not what is most urgent.
//!
//! In overload none of these holds for long where there are others; each block that depends on it would be later than the one before. What
//! can help nobody is dropped, and with it all that depends on it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{live::LiveBlock, store::Store};
use crate::{
    base::{PathView, trusted},
    block::{BlockId, DropReason},
    multipath::PathSet,
    schedule::{SendContext, usable},
};

/// How often late blocks are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// How many that depend on a block are looked at, the nearest. So many frames of video are seconds: a family with more behind it is late for
/// good, and those beyond count as others.
pub(super) const FAMILY: usize = 256;

/// How many blocks are looked at that go first, those due soonest.
pub(super) const CLAIMS: usize = 1_024;

/// Of a deadline that makes sense the way there leaves one part in so many, at the least.
const HARDLY: u32 = 16;

/// Bytes on the wire for each byte of a block.
const WIRE_BYTES: f64 = 1.04;

/// Until when a late block is of use to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It must be there by then.
    Until(Instant),
    /// One that depends on it has no deadline.
    Anytime,
}

/// What the paths were like when a block was sent last, those with the least delay first: the delay of each, its bytes of blocks
/// per second, and how many of these in the long run.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    paths: Vec<(Duration, f64, f64)>,
    /// The least delay of those that may carry much more than has been seen so far.
    growing: Option<Duration>,
    /// The least delay of any path, if nothing waits there, whether it is to be relied on or not.
    least: Option<Duration>,
}

impl Forecast {
    pub(super) fn follow(&mut self, cx: &SendContext<'_>) {
        self.paths.clear();
        let of = |path: &PathView| {
            let lasting = path.rate - path.momentary;
            (path.delay(), path.rate / WIRE_BYTES, lasting / WIRE_BYTES)
        };
        self.paths.extend(trusted(cx.paths).map(of));
        self.paths.sort_unstable_by_key(|&(delay, ..)| delay);
        self.growing = trusted(cx.paths).filter(|path| path.growing).map(PathView::delay).min();
        self.least = cx.paths.iter().map(|path| path.min_one_way_delay).min();
    }

    /// What a deadline is taken for. How much of a round trip is the way there nobody can measure: half of it is assumed, and nothing that an application asks for is called
    /// impossible for that. If no path leaves more than one part in [`HARDLY`] of the deadline, half of it is left to be spent here. A deadline that can be met is taken at its word: in overload
    /// blocks leave at the last moment.
    pub(super) fn taken_for(&self, deadline: Duration) -> Duration {
        match self.least {
            Some(least) if deadline.saturating_sub(least) < deadline / HARDLY => least.saturating_add(deadline / 2),
            _ => deadline,
        }
    }

    /// How long it takes until so many bytes that leave from now on have arrived.
    pub(super) fn time(&self, bytes: u64) -> Option<Duration> {
        // Of what has a slower path carried, when the next one's first byte arrives?
        let (mut rate, mut carried, mut at) = (0.0, 0.0, Duration::ZERO);
        for &(delay, more, _) in &self.paths {
            let meanwhile = rate * (delay - at).as_secs_f64();
            if carried + meanwhile >= bytes as f64 {
                break;
            }
            (rate, carried, at) = (rate + more, carried + meanwhile, delay);
        }
        at.checked_add(Duration::try_from_secs_f64((bytes as f64 - carried) / rate).ok()?)
    }

    /// When so many bytes have arrived, if they leave from `now`.
    fn arrival(&self, now: Instant, bytes: u64) -> Option<Instant> {
        now.checked_add(self.time(bytes)?)
    }

    /// Bytes per second, in the long run, of the paths that bring anything within a deadline.
    pub(super) fn rate(&self, deadline: Duration) -> f64 {
        self.paths.iter().take_while(|&&(delay, ..)| delay < deadline).map(|&(.., lasting)| lasting).sum()
    }

    /// Whether one of the paths that bring anything within a deadline may carry much more than has been seen so far.
    pub(super) fn is_growing(&self, deadline: Duration) -> bool {
        self.growing.is_some_and(|delay| delay < deadline)
    }

    pub(super) fn is_known(&self) -> bool {
        !self.paths.is_empty()
    }
}

impl Store {
    /// The paths that a block had better leave to others. One that is late leaves none: those that wait for it are the sooner in time the sooner it is there.
    pub(crate) fn leaves_to_others(&self, now: Instant, block: &LiveBlock, paths: &[PathView]) -> PathSet {
        match (block.deadline, block.others) {
            (Some(deadline), None) => self.leeway.wanted(now, deadline, block.priority, usable(paths)),
            _ => PathSet::default(),
        }
    }

    /// The block has bytes to send, and cannot bring them in time.
    pub(super) fn on_late(&mut self, now: Instant, id: BlockId) {
        let holds_up = self.holds_up(now, id);
        let goes_on = |block: &&LiveBlock| block.dying.is_none() && (block.unsent() > 0 || holds_up);
        let Some(block) = self.blocks.get(&id).filter(goes_on) else {
            self.late.remove(&id);
            return;
        };
        // One that has to wait for another late one shares its fate.
        let waits = self.graph.blockers(id).any(|need| self.late.contains(&need)) && !self.must_not_wait(id);
        let others = match waits {
            true if self.has_followers(now, id) => Some(None),
            true => None,
            false => self.use_to_others(now, id).map(Some),
        };
        let overdue = block.due().is_some_and(|due| due < now);
        match others {
            None if overdue || holds_up => {
                self.unmet = self.unmet.max(block.deadline.filter(|_| !block.all_sent_once()));
                self.late.remove(&id);
                self.drop_block(id, DropReason::Expired);
            }
            others => {
                self.late.insert(id);
                self.look_at.get_or_insert(now + LOOK);
                self.serve(id, others.flatten());
            }
        }
    }

    /// Looks at the late ones again.
    pub(super) fn look_at_late(&mut self, now: Instant) {
        self.look_at = None;
        for id in self.all_that_hold_up(now) {
            self.on_late(now, id);
        }
        self.look_at = self.look_at.into_iter().chain(self.next_to_hold_up(now)).min();
        let late: Vec<_> = self.late.iter().copied().collect();
        for id in late {
            if self.late.contains(&id) && self.is_late(now, id) {
                self.on_late(now, id);
            } else if self.late.remove(&id) {
                self.serve(id, None);
            }
        }
    }

    /// No more blocks are handed over: what cannot be in time is of use to those that are there, or to nobody.
    pub(crate) fn on_last(&mut self, now: Instant) {
        self.kin.complete();
        self.look_at_late(now);
    }

    /// Whether a block cannot be in time by itself, even if nothing goes before it.
    pub(super) fn is_late(&self, now: Instant, id: BlockId) -> bool {
        let Some((block, due)) = self.blocks.get(&id).and_then(|block| Some((block, block.due()?))) else {
            return false;
        };
        let in_time = || self.forecast.arrival(now, block.unsent()).is_some_and(|arrival| arrival <= due);
        due < now || self.forecast.is_known() && !in_time() || self.waits_too_long(id)
    }

    /// Bytes of a block have left for where they should be `at` that moment.
    pub(crate) fn on_its_way(&mut self, now: Instant, id: BlockId, at: Instant) {
        let complete_at = self.complete_at(id).map_or(at, |needs| needs.max(at));
        let Some(block) = self.blocks.get_mut(&id) else { return };
        // It leaves too late, and would have been in time had it left when it was handed over.
        let way = at.saturating_duration_since(now);
        if block.due().is_some_and(|due| at > due) && block.deadline.is_some_and(|deadline| way <= deadline) {
            self.unmet = self.unmet.max(block.deadline);
        }
        let at = complete_at;
        let at = block.expected.map_or(at, |before| before.max(at));
        block.expected = Some(at);
        if block.due().is_some_and(|due| at > due) {
            self.passed.insert(block.channel, id);
        }
        // Those that depend on it are due later, as a rule.
        if !self.drops_stale || block.due().is_none_or(|due| at <= due) {
            return;
        }
        let followers: Vec<_> = self.graph.dependants(id).collect();
        for follower in followers {
            if !self.late.contains(&follower) && self.waits_too_long(follower) {
                self.on_late(now, follower);
            }
        }
    }

    /// When all that a block depends on should be there, as far as it is on its way.
    fn complete_at(&self, id: BlockId) -> Option<Instant> {
        self.graph.needs(id).filter_map(|need| self.blocks.get(&need)?.expected).max()
    }

    /// Whether what a block depends on will come too late for it, though it has left.
    pub(super) fn waits_too_long(&self, id: BlockId) -> bool {
        let due = || self.blocks.get(&id).and_then(LiveBlock::due);
        self.complete_at(id).is_some_and(|at| due().is_some_and(|due| due < at))
    }

    /// Whether a block that nothing depends on, nor it on others, cannot be in time, and others are there that may. Who drops nothing sends all in
    /// their turn.
    pub(crate) fn is_in_vain(&self, now: Instant, id: BlockId) -> bool {
        let is_alone = || self.graph.blockers(id).next().is_none() && !self.has_followers(now, id);
        let others = || self.claims(u8::MAX, |other| other != id).any(|(_, bytes)| bytes > 0);
        self.drops_stale && self.is_late(now, id) && is_alone() && others()
    }

    /// Whether a block that cannot be in time goes on for the sake of others.
    pub(super) fn goes_on(&mut self, now: Instant, id: BlockId) -> bool {
        if !self.late.contains(&id) && self.has_followers(now, id) {
            self.on_late(now, id);
        }
        self.blocks.get(&id).is_some_and(|block| block.others.is_some())
    }

    pub(super) fn has_followers(&self, now: Instant, id: BlockId) -> bool {
        self.graph.dependants(id).next().is_some() || self.kin.to_come(id, now).is_some()
    }

    fn serve(&mut self, id: BlockId, others: Option<Use>) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if block.others != others {
            block.others = others;
            block.hopeless &= others.is_none();
            self.refresh_cluster(id);
        }
    }

    /// Until when a late block is of use to those that depend on it.
    fn use_to_others(&self, now: Instant, id: BlockId) -> Option<Use> {
        let forecast = &self.forecast;
        let block = self.blocks.get(&id)?;
        // No earlier than that can one that depends on it be of use.
        let complete = self.complete_at(id).unwrap_or(now);
        let followers = self.graph.followers(id, FAMILY);
        let priority = self.serving_priority(block);
        let mut first = self.claims(priority, |other| other != id && !followers.contains(&other)).peekable();
        // What goes before them of others, and of the family.
        let (mut ahead, mut family) = (0, block.unsent());
        for &follower in &followers {
            let Some(other) = self.blocks.get(&follower).filter(|other| other.dying.is_none()) else { continue };
            let Some(due) = other.due() else { return Some(Use::Anytime) };
            while let Some((_, bytes)) = first.next_if(|&(at, _)| at <= due) {
                ahead += bytes;
            }
            let bytes = family + other.unsent();
            if due >= complete && forecast.arrival(now, ahead + bytes).is_some_and(|arrival| arrival <= due) {
                // It goes before those in between.
                let behind = forecast.time(ahead + bytes)?.saturating_sub(forecast.time(ahead + block.unsent())?);
                return Some(Use::Until(due.checked_sub(behind).unwrap_or(due)));
            }
            // If it were only late, it would not be sent.
            if self.has_followers(now, follower) {
                family = bytes;
            }
        }
        // None of those that are there. Each that is to come finds itself less late than the one before, if there is room.
        let to_come = self.kin.to_come(id, now)?;
        let last = followers.last().and_then(|last| self.blocks.get(last)).unwrap_or(block);
        let deadline = last.deadline?;
        let last_due = last.due()?;
        let late = forecast.arrival(now, ahead + family)?.saturating_duration_since(last_due);
        let room = 1.0 - self.load.rate(now, priority) / forecast.rate(deadline);
        // Whoever comes then is due a deadline later.
        let for_those_of = |time: Duration| Use::Until(now + time + deadline);
        if self.forecast.growing.is_some() {
            return Some(for_those_of(to_come));
        }
        let caught_up = Duration::try_from_secs_f64(late.as_secs_f64() / room).ok();
        let caught_up = caught_up.map(|caught_up| caught_up.max(complete.saturating_duration_since(last_due)));
        if let Some(caught_up) = caught_up.filter(|caught_up| *caught_up <= to_come) {
            return Some(for_those_of(caught_up));
        }
        (!self.is_in_the_way(id, &followers)).then(|| for_those_of(to_come))
    }

    /// Whether there are other blocks to be sent in its place, which are no more important: those go before it anyway.
    fn is_in_the_way(&self, id: BlockId, followers: &BTreeSet<BlockId>) -> bool {
        let Some(priority) = self.blocks.get(&id).map(|block| block.priority) else { return false };
        let is_other = |other: BlockId| {
            let no_more = self.blocks.get(&other).is_some_and(|block| block.priority >= priority);
            other != id && no_more && !followers.contains(&other)
        };
        // What has no deadline and is less important loses nothing but a while.
        let waits = |(&other, block): (&BlockId, &LiveBlock)| {
            let may_wait = block.priority > priority;
            block.due().is_none() && !may_wait && block.dying.is_none() && block.unsent() > 0 && is_other(other)
        };
        let undated = || self.blocks.len() > self.due.len() && self.blocks.iter().any(waits);
        self.claims(u8::MAX, is_other).any(|(_, bytes)| bytes > 0) || undated()
    }

    /// The blocks that others have to send, by deadline, of those at least as important.
    pub(super) fn claims(&self, priority: u8, which: impl Fn(BlockId) -> bool) -> impl Iterator<Item = (Instant, u64)> {
        self.due.iter().take(CLAIMS).filter_map(move |&(due, id)| {
            let block =
                self.blocks.get(&id).filter(|block| which(id) && !block.hopeless && block.priority <= priority)?;
            Some((due, block.unsent()))
        })
    }
}

#[cfg(test)]
#[path = "late_tests.rs"]
mod tests;
