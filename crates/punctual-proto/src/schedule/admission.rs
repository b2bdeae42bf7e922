//! Admission control.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
    time::Instant,
};

use super::{
    BlockScheduler, BlockView, SendContext,
    slack::{Job, Pace, Queue, Turn},
};
use crate::block::BlockId;

/// Bytes on the wire for each byte of a block: of a packet of 1,200 bytes some 50 are headers, QUIC's and ours.
const WIRE_BYTES: f64 = 1.04;

#[derive(Debug, Clone, Copy)]
struct Margins {
    rate: f64,
    entry: f64,
    stay: f64,
    entry_time: f64,
    stay_time: f64,
    swap: f64,
}

impl Margins {
    const TUNED: Self = Self { rate: 0.02, entry: 0.01, stay: 0.03, entry_time: 0.0, stay_time: 0.0005, swap: 0.9 };
}

/// Candidates tried in each decision, one after another through all of them.
const LOOKS: usize = 2;

/// Candidates tried, from the first, in the decision after room was made.
const LOOKS_AT_ROOM: usize = 8;

/// Blocks displaced on trial before it is asked whether displacing could help at all, which costs a look at all.
const TRIALS: usize = 8;

/// Decisions without a look at the rate, as a share of the blocks.
const RATE_SHARE: usize = 32;

/// What is more than a packet.
const ROOM: u64 = 1500;

pub(super) struct Admission {
    margins: Margins,
    origin: Option<Instant>,
    /// Now, and the one-way delay: what is sent at this moment arrives at this time.
    time: f64,
    rate: f64,
    blocks: HashMap<BlockId, Block>,
    admitted: Queue,
    others: BTreeSet<Place>,
    fresh: Vec<BlockId>,
    cursor: Option<Place>,
    room: bool,
    since_rate: usize,
    debt: usize,
}

#[derive(Debug)]
struct Block {
    view: BlockView,
    due: Option<f64>,
    /// `None` for one that is admitted.
    hope: Option<Hope>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hope {
    Candidate,
    NoDeadline,
    Late,
    Dead,
}

type Place = (Hope, u8, u64, BlockId);

pub(super) fn new() -> Admission {
    Admission::new(Margins::TUNED)
}

impl Block {
    fn place(&self, hope: Hope) -> Place {
        let unsent = if hope == Hope::NoDeadline { 0 } else { self.view.unsent };
        (hope, self.view.priority, unsent, self.view.id)
    }

    fn job(&self) -> Option<Job> {
        let turn = Turn { due: self.due?, priority: self.view.priority, id: self.view.id };
        Some(Job { turn, unsent: self.view.unsent })
    }
}

impl Admission {
    fn new(margins: Margins) -> Self {
        Self {
            margins,
            origin: None,
            time: f64::NEG_INFINITY,
            rate: f64::INFINITY,
            blocks: HashMap::new(),
            admitted: Queue::new(),
            others: BTreeSet::new(),
            fresh: Vec::new(),
            cursor: None,
            room: false,
            since_rate: 0,
            debt: 0,
        }
    }

    fn seconds(&self, at: Instant) -> f64 {
        let origin = self.origin.unwrap_or(at);
        match at.checked_duration_since(origin) {
            Some(after) => after.as_secs_f64(),
            None => -origin.duration_since(at).as_secs_f64(),
        }
    }

    fn entry_time(&self) -> f64 {
        self.time + self.margins.entry_time
    }

    fn stay_time(&self) -> f64 {
        self.time - self.margins.stay_time
    }

    fn hope(&self, job: &Job) -> Hope {
        let seconds = job.unsent as f64 * WIRE_BYTES / (self.rate * (1.0 + self.margins.stay));
        if job.turn.due - seconds >= self.stay_time() {
            Hope::Candidate
        } else if job.turn.due > self.time {
            Hope::Late
        } else {
            Hope::Dead
        }
    }

    /// Moves a block among the others, or out of the queue.
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
        if let (Some(job), Some(hope)) = (block.job(), block.hope.take()) {
            self.others.remove(&block.place(hope));
            self.admitted.insert(job);
        }
    }

    fn displace(&mut self, job: &Job) {
        self.exclude(job.turn.id, self.hope(job));
    }

    fn follow_rate(&mut self, rate: f64) {
        self.since_rate += 1;
        if (rate - self.rate).abs() <= self.margins.rate * rate || self.since_rate < self.blocks.len() / RATE_SHARE {
            return;
        }
        let faster = rate > self.rate;
        self.since_rate = 0;
        self.rate = rate;
        let pace = WIRE_BYTES / rate;
        self.admitted.set_paces([pace / (1.0 - self.margins.entry), pace / (1.0 + self.margins.stay)]);
        if faster {
            self.room = true;
            let late = (Hope::Late, 0, 0, BlockId(0))..(Hope::Dead, 0, 0, BlockId(0));
            let late: Vec<_> = self.others.range(late).map(|place| place.3).collect();
            for id in late {
                self.judge(id);
            }
        }
    }

    /// Whether an excluded block with a deadline is a candidate; puts it in its place.
    fn judge(&mut self, id: BlockId) -> bool {
        let Some(block) = self.blocks.get(&id) else { return false };
        let (Some(job), Some(hope)) = (block.job(), block.hope) else { return false };
        let now = self.hope(&job);
        if now != hope {
            self.exclude(id, now);
        }
        now == Hope::Candidate
    }

    /// Gives up blocks until the rest can make it.
    fn shed(&mut self) {
        let mut shed = Vec::new();
        while let Some(late) = self.admitted.first_late(Pace::Stay, self.stay_time()) {
            let Some(weakest) = self.admitted.weakest(late) else { break };
            self.displace(&weakest);
            shed.push(weakest);
        }
        self.take_back(shed);
    }

    /// Admits again what need not have gone.
    fn take_back(&mut self, mut displaced: Vec<Job>) {
        displaced.pop();
        displaced.sort_unstable_by_key(|job| (job.turn.priority, job.unsent, job.turn.id));
        for job in displaced {
            if self.admitted.first_late_with(Pace::Stay, self.stay_time(), &job).is_none() {
                self.admit(job.turn.id);
            }
        }
    }

    fn yields(&self, weak: &Job, job: &Job) -> bool {
        weak.turn.priority > job.turn.priority || self.swaps(weak, job)
    }

    fn swaps(&self, weak: &Job, job: &Job) -> bool {
        weak.turn.priority == job.turn.priority && (job.unsent as f64) < self.margins.swap * weak.unsent as f64
    }

    /// Admits an excluded block if it fits, if need be in place of weaker ones.
    fn try_admit(&mut self, id: BlockId) -> bool {
        let Some(job) = self.blocks.get(&id).filter(|block| block.hope.is_some()).and_then(Block::job) else {
            return false;
        };
        let mut displaced: Vec<Job> = Vec::new();
        let mut swapped = false;
        let fits = loop {
            let Some(late) = self.admitted.first_late_with(Pace::Entry, self.entry_time(), &job) else { break true };
            let Some(mut weakest) = self.admitted.weakest(late) else { break false };
            if weakest.turn.priority > job.turn.priority {
                // The risk is the weaker one's, so it takes more than a doubt to displace it.
                let Some(late) = self.admitted.first_late_with(Pace::Stay, self.stay_time(), &job) else { break true };
                weakest = self.admitted.weakest(late).unwrap_or(weakest);
            }
            if swapped || !self.yields(&weakest, &job) {
                break false;
            }
            if displaced.len() == TRIALS {
                self.debt += self.admitted.len() / 16;
                let time = self.entry_time();
                if !self.admitted.fits_without(Pace::Entry, time, &job, |other| self.yields(other, &job)) {
                    break false;
                }
            }
            swapped = self.swaps(&weakest, &job);
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

    /// Tries to admit some of the candidates.
    fn look(&mut self) {
        if std::mem::take(&mut self.room) {
            self.look_on(None, LOOKS_AT_ROOM);
        }
        self.debt = self.debt.saturating_sub(LOOKS);
        if self.debt == 0 {
            self.cursor = self.look_on(self.cursor, LOOKS);
        }
    }

    fn look_on(&mut self, mut after: Option<Place>, looks: usize) -> Option<Place> {
        for _ in 0..looks {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let place = self.others.range((from, Bound::Unbounded)).next().copied();
            after = place.filter(|place| place.0 == Hope::Candidate);
            let id = after?.3;
            if self.judge(id) {
                self.try_admit(id);
            }
        }
        after
    }

    /// The first of those that are not admitted.
    fn left_over(&mut self) -> Option<BlockId> {
        loop {
            let &(hope, .., id) = self.others.first()?;
            let block = self.blocks.get(&id)?;
            let Some(job) = block.job() else { return Some(id) };
            let now = self.hope(&job);
            if now == Hope::Candidate {
                self.try_admit(id);
                return Some(id);
            }
            if now == hope {
                return Some(id);
            }
            self.exclude(id, now);
        }
    }
}

impl BlockScheduler for Admission {
    fn name(&self) -> &'static str {
        "admission"
    }

    fn insert(&mut self, view: &BlockView) {
        debug_assert!(1 <= view.unsent && view.unsent <= view.size, "{view:?}");
        if self.blocks.is_empty() {
            // Counting anew keeps the numbers small, and so exact, however long the session lives.
            self.origin = Some(view.begin);
        }
        if let Some(block) = self.blocks.get_mut(&view.id) {
            if block.view == *view {
                return;
            }
            if (block.view.due(), block.view.priority) == (view.due(), view.priority) {
                let old = block.hope.map(|hope| block.place(hope));
                self.room |= block.hope.is_none() && view.unsent + ROOM < block.view.unsent;
                block.view = *view;
                if let (Some(hope), Some(old)) = (block.hope, old) {
                    let new = block.place(hope);
                    if new != old {
                        self.others.remove(&old);
                        self.others.insert(new);
                    }
                } else if let Some(job) = block.job() {
                    self.admitted.set_unsent(job.turn, job.unsent);
                }
                return;
            }
            self.remove(view.id);
        }
        let due = view.due().map(|due| self.seconds(due));
        let hope = if due.is_some() { Hope::Candidate } else { Hope::NoDeadline };
        let block = Block { view: *view, due, hope: Some(hope) };
        self.others.insert(block.place(hope));
        self.blocks.insert(view.id, block);
        if due.is_some() {
            self.fresh.push(view.id);
        }
    }

    fn remove(&mut self, id: BlockId) {
        let Some(block) = self.blocks.remove(&id) else { return };
        match (block.hope, block.job()) {
            (Some(hope), _) => {
                self.others.remove(&block.place(hope));
            }
            (None, Some(job)) => {
                self.room |= job.unsent > ROOM;
                self.admitted.remove(job.turn);
            }
            (None, None) => {}
        }
    }

    fn next(&mut self, cx: &SendContext<'_>) -> Option<BlockId> {
        self.time = self.seconds(cx.now) + cx.one_way_delay.as_secs_f64();
        self.follow_rate(cx.rate);
        self.shed();
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_by_key(|id| self.blocks.get(id).map(|block| (block.view.priority, block.view.unsent)));
        for id in fresh.drain(..) {
            if self.judge(id) {
                self.try_admit(id);
            }
        }
        self.fresh = fresh;
        self.look();
        self.admitted.first().or_else(|| self.left_over())
    }
}
