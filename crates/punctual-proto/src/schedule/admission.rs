//! Admission control: what is begun gets there.
//!
//! When more is due than the link can carry, somebody loses. Who loses is decided here before bytes are spent on it:
//! the scheduler keeps a set of blocks that can *all* still make it at the forecast rate, sends of that set the most important
//! that harms no other, and gives everything else what is left over.
//!
//! # Who is admitted
//!
//! A set can make it exactly if, sent earliest due first, each block arrives in time:
//!
//! ```text
//! now + one_way_delay + Σ unsent_j/rate over all j due no later than k  ≤  due_k      for each k in the set
//! ```
//!
//! ([`slack`](super::slack) answers that in logarithmic time.) Of all such sets we want one with the most blocks of the
//! highest priority, then the most of the next, and so on. For one priority, with those above it settled, the rule of
//! Moore and Hodgson (1968) finds it: where a block would be late, of those due until then the one with most left to
//! send gives way. Taking candidates in order of what they have left to send leads to as many, so the set can be kept up
//! to date block by block. A candidate that does not fit may displace *weaker* blocks, those of lower priority or of its
//! own with more left to send, weakest first, if that makes it fit. What is displaced or not admitted stays a candidate
//! and is tried again: the most important first, then the one with the least left to send. A block in the midst of being
//! sent has little left, so what was spent on it is rarely in vain.
//!
//! # A reserve
//!
//! A block that arrives just in time comes too late if a packet of it is lost, or if the rate turns out lower. So the sums above
//! are made with an earlier due time: by [`RESERVE_ROUND_TRIPS`], but at most [`RESERVE_SHARE`] of what the block has to spare.
//! That is what it wants to get in, and its place in the queue; to stay, its true due time is enough. In lasting overload the
//! reserve costs nothing: as many blocks leave a short queue in a second as a long one. No block does without its place for
//! want of a reserve if there are less important ones in the queue: these bear the risk. But where others come to nothing with it, as with a frame of video, they give way to its reserve:
//! a frame that is late by a packet's jitter costs those up to the next key frame.
//!
//! # In what order
//!
//! - Of the admitted the most important that delays none to come before it too much: these must still make it, with
//!   their reserve, at a rate lower by [`AHEAD_MARGIN`] and [`AHEAD_ROUND_TRIPS`] later. Of equals the earliest due goes
//!   first, then the first handed over. So the set stays one that can make it, and what there is of time to spare goes to
//!   the important ones, who will be glad of it when something is lost. It is asked anew for each packet.
//! - Candidates that could make it alone but are not admitted, by priority, then the least left to send.
//! - Blocks without a deadline, by priority, then in order of hand-over. They get what is left over, whatever their
//!   priority: waiting until the admitted are through costs them little, and there is time for both. In lasting overload there is not, and who is no less important than what goes
//!   first is not to wait for its end: a packet of theirs goes in between each round trip, or each [`FED`] packets where these take longer.
//! - Late blocks, which could not make it at the forecast rate even alone. They are sent when there is nothing else, since
//!   the forecast may be wrong: at the start of a session it is far too low, and nothing but sending mends it.
//! - Those whose time is up. The session drops them soon.
//!
//! # When the forecast is noisy
//!
//! The forecast is averaged over [`SMOOTHING`] and taken up when it has moved by [`RATE_TOLERANCE`]. To be admitted, a
//! block must fit at a rate lower by [`ENTRY_MARGIN`]; to be given up, it must not even fit at one higher by
//! [`STAY_MARGIN`]. These are shares of the time that remains, so what is clear is decided early, and what is not, later.
//! They are narrow on purpose: driven over a link as in the tests of `link`, margins of 10 and 20 % lost more blocks than
//! they saved, even when the forecast was off by up to 20 %.
//!
//! # What it costs
//!
//! A decision takes O(log blocks) for the changes since the last and tries [`LOOKS`] candidates, each in its turn. If a try
//! has to displace others to find out, later decisions try none until that is made up for. Taking up a new forecast goes
//! through all blocks, and is put off until there have been 1/[`RATE_SHARE`] as many decisions as there are blocks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    time::Instant,
};

use super::{
    BlockScheduler, BlockView, FED, SendContext,
    pipes::{PACKET, Pipes},
    slack::{Job, Pace, Queue, Turn},
};
use crate::{base::PathHealth, block::BlockId};

/// Bytes on the wire for each byte of a block: of a packet of 1,200 bytes about 50 are headers, QUIC's and ours.
const WIRE_BYTES: f64 = 1.04;

/// How far the rate may move before blocks are judged by the new one. A congestion controller's own estimate is no better.
const RATE_TOLERANCE: f64 = 0.02;

/// Seconds over which the forecast is averaged. With one that is off by up to 20 %, anew every 10 ms, it halves the bytes
/// spent in vain; against the round-trip time that it takes to learn of a true change it counts little.
const SMOOTHING: f64 = 0.01;

/// What must be left of the rate when a block is admitted.
const ENTRY_MARGIN: f64 = 0.01;

/// How much the rate would have to be exceeded before a block is given up.
const STAY_MARGIN: f64 = 0.03;

/// Seconds a block may seem late before it is given up: the grain of one-way delays. Near its end, when there is almost
/// no time for [`STAY_MARGIN`] to be a share of, a block is not given up for that.
const STAY_TIME: f64 = 0.0005;

/// Round trips before its due time at which a block should be there: one to notice a loss, which takes longer under a queue,
/// and the rest for what the queue and the rate may do meanwhile. Tuned with `aitrans`, `cellular` and `dtp-bandwidth`;
/// five do no better.
const RESERVE_ROUND_TRIPS: f64 = 3.0;

/// At most so much of what a block, sent alone, has to spare. A block sent again has little, and is not refused for that.
const RESERVE_SHARE: f64 = 0.5;

/// What must be left of the rate for those before a block that goes ahead of its turn. With 10 %, forecasts off by 20 %
/// cost blocks in the tests of [`link`](super::link).
const AHEAD_MARGIN: f64 = 0.2;

/// And of the time: round trips. Part of it is lost on the way to learning of a change.
const AHEAD_ROUND_TRIPS: f64 = 0.25;

/// Candidates tried in each decision.
const LOOKS: usize = 2;

/// Candidates tried, from the first, in the decision after room was made.
const LOOKS_AT_ROOM: usize = 8;

/// Blocks displaced on trial before it is asked whether displacing all could help, which takes a look at all.
const TRIALS: usize = 8;

/// Blocks looked at in the time that one is displaced and admitted again.
const LOOKED_AT: usize = 16;

/// Blocks, for each decision, that may be judged by a new rate.
const RATE_SHARE: usize = 32;

/// More bytes than a packet's: a block with so much left has not ended by being sent, so its time is free for others.
const ROOM: u64 = 1500;

/// Seconds by which what slower paths take must have fallen for a block to be placed anew.
const EASE: f64 = 0.0005;

/// How much in doubt a forecast is taken to be.
#[derive(Debug, Clone, Copy)]
struct Margins {
    rate: f64,
    smoothing: f64,
    entry: f64,
    stay: f64,
    stay_time: f64,
    ahead: f64,
}

const MARGINS: Margins = Margins {
    rate: RATE_TOLERANCE,
    smoothing: SMOOTHING,
    entry: ENTRY_MARGIN,
    stay: STAY_MARGIN,
    stay_time: STAY_TIME,
    ahead: AHEAD_MARGIN,
};

/// The scheduler.
pub(super) struct Admission {
    margins: Margins,
    /// What times in seconds are counted from.
    origin: Option<Instant>,
    /// Now and the one-way delay: when something sent now arrives.
    time: f64,
    /// The average forecast, and the rate that blocks are judged by. Infinite until the first decision.
    forecast: f64,
    rate: f64,
    blocks: HashMap<BlockId, Block>,
    admitted: Queue,
    /// Those that are not admitted, in the order in which they would be sent.
    others: BTreeSet<Place>,
    /// Not tried yet.
    fresh: Vec<BlockId>,
    /// Removed while admitted, since time last moved: their reserve.
    absent: BTreeMap<BlockId, f64>,
    /// The candidate that was tried last.
    tried: Option<Place>,
    /// Room was made: the first candidates may fit now.
    room: bool,
    /// Decisions since the rate was taken up.
    since_rate: usize,
    /// Tries made that later decisions have yet to make up for.
    debt: usize,
    /// The longest of the paths in use, seconds.
    round_trip: f64,
    /// When something without a deadline was sent last.
    fed: f64,
    pipes: Pipes,
}

#[derive(Debug)]
struct Block {
    view: BlockView,
    /// Seconds since the origin.
    due: Option<f64>,
    /// Seconds that slower paths take longer, as [`Pipes`] has it.
    lag: f64,
    /// Seconds before that when it should be there.
    reserve: f64,
    /// `None` if admitted.
    hope: Option<Hope>,
}

/// What a block that is not admitted may hope for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hope {
    /// Alone it could make it.
    Candidate,
    NoDeadline,
    /// Not at this rate.
    Late,
    /// At no rate.
    Over,
}

/// By hope, priority, then what is left to send.
type Place = (Hope, u8, u64, BlockId);

/// The scheduler, as applications get it.
pub(super) fn new() -> Admission {
    Admission::new(MARGINS)
}

impl Block {
    fn place(&self, hope: Hope) -> Place {
        let price = if hope == Hope::NoDeadline { 0 } else { self.view.price() };
        (hope, self.view.priority, price, self.view.id)
    }

    /// `None` without a deadline.
    fn job(&self) -> Option<Job> {
        let turn = Turn { due: self.due? - self.lag - self.reserve, priority: self.view.priority, id: self.view.id };
        Some(Job { turn, grace: self.reserve, unsent: self.view.unsent, price: self.view.price() })
    }
}

impl Admission {
    fn new(margins: Margins) -> Self {
        Self {
            margins,
            origin: None,
            time: f64::NEG_INFINITY,
            forecast: f64::INFINITY,
            rate: f64::INFINITY,
            blocks: HashMap::new(),
            admitted: Queue::new(),
            others: BTreeSet::new(),
            fresh: Vec::new(),
            absent: BTreeMap::new(),
            tried: None,
            room: false,
            since_rate: 0,
            debt: 0,
            round_trip: 0.0,
            fed: f64::NEG_INFINITY,
            pipes: Pipes::default(),
        }
    }

    fn seconds(&self, at: Instant) -> f64 {
        let origin = self.origin.unwrap_or(at);
        match at.checked_duration_since(origin) {
            Some(after) => after.as_secs_f64(),
            None => -origin.duration_since(at).as_secs_f64(),
        }
    }

    /// When sending begins, for those that are admitted.
    fn stay_time(&self) -> f64 {
        self.time - self.margins.stay_time
    }

    /// What an excluded block with a deadline may hope for now.
    fn hope(&self, job: &Job) -> Hope {
        let seconds = job.unsent as f64 * WIRE_BYTES / (self.rate * (1.0 + self.margins.stay));
        if job.due(Pace::Stay) - seconds >= self.stay_time() {
            Hope::Candidate
        } else if job.due(Pace::Stay) > self.time {
            Hope::Late
        } else {
            Hope::Over
        }
    }

    /// Puts a block where its hope belongs, if it was admitted, too.
    fn exclude(&mut self, id: BlockId, hope: Hope) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        match block.hope.replace(hope) {
            Some(old) => {
                self.others.remove(&block.place(old));
            }
            None => {
                if let Some(job) = block.job() {
                    self.admitted.remove(job.turn);
                }
            }
        }
        self.others.insert(block.place(hope));
    }

    fn admit(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if let (Some(job), Some(hope)) = (block.job(), block.hope) {
            self.others.remove(&block.place(hope));
            self.admitted.insert(job);
            block.hope = None;
        }
    }

    fn displace(&mut self, job: &Job) {
        self.exclude(job.turn.id, self.hope(job));
    }

    /// Takes up the rate if it has changed, `seconds` after the last decision.
    fn follow_rate(&mut self, rate: f64, seconds: f64) {
        self.since_rate += 1;
        if self.forecast.is_infinite() {
            self.forecast = rate;
        }
        self.forecast += (rate - self.forecast) * (seconds / self.margins.smoothing).clamp(0.0, 1.0);
        let rate = self.forecast;
        if (rate - self.rate).abs() <= self.margins.rate * rate || self.since_rate < self.blocks.len() / RATE_SHARE {
            return;
        }
        let faster = rate > self.rate;
        self.since_rate = 0;
        self.rate = rate;
        let pace = WIRE_BYTES / rate;
        let Margins { entry, stay, ahead, .. } = self.margins;
        self.admitted.set_paces([pace / (1.0 - entry), pace / (1.0 + stay), pace / (1.0 - ahead)]);
        if faster {
            self.room = true;
            let first = |hope| (hope, 0, 0, BlockId(0));
            let late: Vec<_> = self.others.range(first(Hope::Late)..first(Hope::Over)).map(|place| place.3).collect();
            for id in late {
                self.judge(id);
            }
        }
    }

    /// Whether a block that is not admitted is a candidate now; puts it where it belongs.
    fn judge(&mut self, id: BlockId) -> bool {
        let Some(block) = self.blocks.get_mut(&id) else { return false };
        if block.hope.is_some() {
            block.lag = block.due.map_or(0.0, |due| self.pipes.lag(due - self.time, block.view.unsent));
        }
        let (Some(job), Some(hope)) = (block.job(), block.hope) else { return false };
        let now = self.hope(&job);
        if now != hope {
            self.exclude(id, now);
        }
        now == Hope::Candidate
    }

    /// Reckons anew what an admitted block loses by slower paths, which falls as time passes. Whether that is less now.
    fn relieve(&mut self, id: BlockId) -> bool {
        let Some(block) = self.blocks.get_mut(&id).filter(|block| block.hope.is_none()) else { return false };
        let (Some(due), Some(job)) = (block.due, block.job()) else { return false };
        let lag = self.pipes.lag(due - self.time, block.view.unsent);
        if lag + EASE > block.lag {
            return false;
        }
        block.lag = lag;
        let eased = block.job();
        self.admitted.remove(job.turn);
        eased.into_iter().for_each(|job| self.admitted.insert(job));
        true
    }

    /// Gives up the weakest until the rest can make it.
    fn shed(&mut self) {
        let mut displaced = Vec::new();
        while let Some(late) = self.admitted.first_late(Pace::Stay, self.stay_time()) {
            if self.relieve(late.id) {
                continue;
            }
            let Some(weakest) = self.admitted.weakest(late) else { break };
            self.displace(&weakest);
            displaced.push(weakest);
        }
        self.take_back(displaced);
    }

    /// Admits again those that need not have gone after all, since one displaced after them made more room.
    fn take_back(&mut self, mut displaced: Vec<Job>) {
        let Some(_last) = displaced.pop() else { return };
        self.room = true;
        displaced.sort_unstable_by_key(|job| (job.turn.priority, job.price, job.turn.id));
        for job in displaced {
            if self.admitted.first_late_with(Pace::Stay, self.stay_time(), &job).is_none() {
                self.admit(job.turn.id);
            }
        }
    }

    /// How long before it is due a block should be there.
    fn reserve(&self, block: &Block) -> f64 {
        let seconds = block.view.unsent as f64 * WIRE_BYTES / self.rate;
        let to_spare = block.due.map_or(0.0, |due| due - block.lag - self.time - seconds);
        (RESERVE_ROUND_TRIPS * self.round_trip).min(RESERVE_SHARE * to_spare).max(0.0)
    }

    /// Admits a block if it fits, if need be in place of weaker ones.
    fn try_to_admit(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get(&id).filter(|block| !block.view.beyond_means) else { return };
        let priority = block.view.priority;
        let reserve = self.reserve(block);
        if self.try_with(id, reserve) || reserve == 0.0 {
            return;
        }
        // For want of a reserve nobody is left out while less important ones are in.
        if self.admitted.weakest_of_all().is_some_and(|weakest| weakest.turn.priority > priority) {
            self.try_with(id, 0.0);
        }
    }

    /// The same, with a reserve. Whether it fits.
    fn try_with(&mut self, id: BlockId, reserve: f64) -> bool {
        let Some(block) = self.blocks.get_mut(&id).filter(|block| block.hope.is_some()) else { return false };
        block.reserve = reserve;
        let (Some(job), alone) = (block.job(), block.view.followers == 0) else { return false };
        let mut displaced: Vec<Job> = Vec::new();
        let fits = loop {
            let Some(late) = self.admitted.first_late_with(Pace::Entry, self.time, &job) else { break true };
            if self.relieve(late.id) {
                continue;
            }
            let Some(mut weakest) = self.admitted.weakest(late) else { break false };
            if weakest.turn.priority > job.turn.priority && alone {
                // The risk is that one's, not ours, and nobody else's. So both may try, unless it is clear that one has to go.
                let Some(late) = self.admitted.first_late_with(Pace::Stay, self.stay_time(), &job) else { break true };
                weakest = self.admitted.weakest(late).unwrap_or(weakest);
            }
            // One for one is a bargain; two of the same priority for one is not.
            let traded = displaced.last().is_some_and(|last| last.turn.priority == job.turn.priority);
            if traded || !yields(&weakest, &job) {
                break false;
            }
            if displaced.len() == TRIALS {
                self.debt += self.admitted.len() / LOOKED_AT;
                if !self.admitted.fits_without(Pace::Entry, self.time, &job, |other| yields(other, &job)) {
                    break false;
                }
            }
            self.displace(&weakest);
            displaced.push(weakest);
        };
        self.debt += 2 * displaced.len();
        if fits {
            self.admit(id);
            self.take_back(displaced);
        } else {
            displaced.iter().for_each(|job| self.admit(job.turn.id));
        }
        fits
    }

    /// Tries some of the candidates again.
    fn look(&mut self) {
        self.debt = self.debt.saturating_sub(LOOKS);
        // While some are absent, their time is not free.
        if self.debt > 0 || !self.absent.is_empty() {
            return;
        }
        if std::mem::take(&mut self.room) {
            self.look_on(None, LOOKS_AT_ROOM);
        }
        self.tried = self.look_on(self.tried, LOOKS);
    }

    /// Tries so many candidates that come after one; the last of them, or `None` if there are no more.
    fn look_on(&mut self, mut after: Option<Place>, candidates: usize) -> Option<Place> {
        for _ in 0..candidates {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.others.range((from, Bound::Unbounded)).next().copied();
            after = next.filter(|place| place.0 == Hope::Candidate);
            let id = after?.3;
            self.debt += 1;
            if self.judge(id) {
                self.try_to_admit(id);
            }
        }
        after
    }

    /// Tries the new ones.
    fn welcome(&mut self) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_by_key(|id| self.blocks.get(id).map(|block| (block.view.priority, block.view.price())));
        for id in fresh.drain(..) {
            if self.judge(id) {
                self.try_to_admit(id);
            }
        }
        self.fresh = fresh;
    }

    /// Bytes of a block were sent, or lost.
    fn progress(&mut self, view: &BlockView) {
        let Some(block) = self.blocks.get_mut(&view.id) else { return };
        let before = block.view.unsent;
        if block.due.is_none() && view.unsent < before {
            self.fed = self.time;
        }
        let old = block.hope.map(|hope| block.place(hope));
        block.view = *view;
        match (block.hope, block.job()) {
            (Some(hope), _) => {
                let new = block.place(hope);
                if let Some(old) = old.filter(|old| *old != new) {
                    self.others.remove(&old);
                    self.others.insert(new);
                }
            }
            (None, Some(job)) => {
                self.room |= view.unsent + ROOM < before;
                self.admitted.set_unsent(job.turn, job.unsent, job.price);
            }
            (None, None) => {}
        }
    }

    /// Whose turn it is: the most important one's that can go before its turn without harm to those before it.
    fn first_admitted(&self) -> Option<BlockId> {
        let margin = AHEAD_ROUND_TRIPS * self.round_trip + PACKET / self.rate;
        self.admitted.foremost(self.admitted.first_late(Pace::Ahead, self.time + margin))
    }

    /// The first without a deadline, if it goes before what is as important as this, or less, for it has waited too long.
    fn starving(&self, now: Instant, priority: u8) -> Option<BlockId> {
        let from = (Hope::NoDeadline, 0, 0, BlockId(0));
        let &(.., id) = self.others.range(from..).next().filter(|place| place.0 == Hope::NoDeadline)?;
        let view = self.blocks.get(&id).map(|block| block.view).filter(|view| view.priority <= priority)?;
        let waited = now.saturating_duration_since(view.begin).as_secs_f64().min(self.time - self.fed);
        (waited >= self.round_trip.max(f64::from(FED) * PACKET / self.rate)).then_some(id)
    }

    /// Who gets what is left over.
    fn first_other(&mut self) -> Option<BlockId> {
        loop {
            let &(hope, .., id) = self.others.first()?;
            let block = self.blocks.get(&id)?;
            let Some(job) = block.job() else { return Some(id) };
            if self.judge(id) {
                if self.absent.is_empty() {
                    self.try_to_admit(id);
                }
                return Some(id);
            }
            if self.hope(&job) == hope {
                return Some(id);
            }
        }
    }
}

/// Whether one block gives way to another, should there be no room for both.
fn yields(weak: &Job, strong: &Job) -> bool {
    (strong.turn.priority, strong.price) < (weak.turn.priority, weak.price)
}

impl BlockScheduler for Admission {
    fn name(&self) -> &'static str {
        "admission"
    }

    fn inherits_priority(&self) -> bool {
        true
    }

    fn insert(&mut self, view: &BlockView) {
        debug_assert!(1 <= view.unsent && view.unsent <= view.size, "{view:?}");
        if self.blocks.is_empty() && self.absent.is_empty() {
            // Counting anew keeps the numbers small, and so exact, however long the session lives.
            self.origin = Some(view.begin);
            self.fresh.clear();
            self.time = f64::NEG_INFINITY;
            self.fed = f64::NEG_INFINITY;
        }
        match self.blocks.get(&view.id).map(|block| block.view) {
            Some(old) if old == *view => return,
            Some(old) if (old.due(), old.priority) == (view.due(), view.priority) => return self.progress(view),
            Some(_) => self.remove(view.id),
            None => {}
        }
        let due = view.due().map(|due| self.seconds(due));
        let hope = if due.is_some() { Hope::Candidate } else { Hope::NoDeadline };
        let absent = self.absent.remove(&view.id);
        let lag = due.filter(|_| absent.is_some()).map_or(0.0, |due| self.pipes.lag(due - self.time, view.unsent));
        let block = Block { view: *view, due, lag, reserve: absent.unwrap_or_default(), hope: Some(hope) };
        self.others.insert(block.place(hope));
        self.blocks.insert(view.id, block);
        if absent.is_some() {
            self.admit(view.id); // The session only made it wait for a better path.
        } else if due.is_some() {
            self.fresh.push(view.id);
        }
    }

    fn remove(&mut self, id: BlockId) {
        let Some(block) = self.blocks.remove(&id) else { return };
        if block.due.is_none() {
            self.fed = self.time;
        }
        match (block.hope, block.job()) {
            (Some(hope), _) => {
                self.others.remove(&block.place(hope));
            }
            (None, Some(job)) => {
                self.room |= job.unsent > ROOM;
                self.admitted.remove(job.turn);
                self.absent.insert(id, block.reserve);
            }
            (None, None) => {}
        }
    }

    fn next(&mut self, cx: &SendContext<'_>) -> Option<BlockId> {
        let time = self.seconds(cx.now) + cx.one_way_delay.as_secs_f64();
        if time > self.time {
            self.absent.clear();
        }
        self.pipes.follow(cx);
        self.follow_rate(cx.rate, time - self.time);
        self.time = time;
        let active = cx.paths.iter().filter(|path| path.health == PathHealth::Active);
        self.round_trip = active.map(|path| path.rtt.as_secs_f64()).fold(0.0, f64::max);
        self.shed();
        self.welcome();
        self.look();
        let first = self.first_admitted().or_else(|| self.first_other())?;
        let dated = self.blocks.get(&first).filter(|block| block.due.is_some());
        dated.and_then(|block| self.starving(cx.now, block.view.priority)).or(Some(first))
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
