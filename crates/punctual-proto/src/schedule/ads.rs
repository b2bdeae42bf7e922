//! The Active-Drop-at-Sender scheduler of DTP (ICNP 2022, section III-B, equations 1 to 3).
//!
//! # The formula
//!
//! ```text
//! remain_time = deadline − unsent/rate − passed_time − one_way_delay                      (1)
//! f = remain_time/deadline, if that is positive; else min(−remain_time/deadline, 1) + β   (2)
//! p = ((1−α)·f + α·priority/p_max) · unsent/size                                          (3)
//! ```
//!
//! The block with the least p goes next, ties by id. A block whose remain_time is not positive is *late*: with β as large
//! as the default it is served only if there is nothing fresh (or if less than about 1/β of it is left to send,
//! because the unsent ratio multiplies β too).
//!
//! What the paper leaves open:
//! - **p_max** is the largest priority number of a block with a deadline since the scheduler was last empty, not the largest
//!   there could be: of 255, an application's 0, 1 and 2 would be no more than a rounding error beside f. It only grows while there
//!   are blocks, so it is seldom that all must be judged anew.
//! - **No deadline**: f = 1, the limit of (2) for a deadline that goes to infinity, and the unsent ratio counts as 1: it
//!   saves what has been spent on a block from being spent in vain, and such a block's bytes are never in vain. So it stands
//!   behind every one of its priority that can still make it, before every one that is late, is never late itself, and
//!   however little of it is left an urgent block overtakes it. A priority beyond p_max counts as 1 and a little more.
//! - **α = 1** (DTP-P): (3) is taken at its word. (1−α)·f is 0 whatever f is, so being late changes nothing. That is
//!   what the paper measured: "DTP will choose to give up old blocks but DTP-P [..] will stick to them" (V-A).
//!   Late blocks go once the deadline itself has passed.
//!
//! # Deciding without looking at every block
//!
//! Let τ = now + one-way delay, and a block's *turn* the τ at which its remain_time becomes 0. Then p is a line over τ in
//! each of three phases,
//!
//! ```text
//! fresh,        τ < turn:             α·priority/p_max·ratio            + (1−α)·ratio/deadline · (turn − τ)
//! late, turn ≤ τ < turn + deadline:  (α·priority/p_max + (1−α)·β)·ratio + (1−α)·ratio/deadline · (τ − turn)
//! worn out,     afterwards:          (α·priority/p_max + (1−α)·(1+β))·ratio
//! ```
//!
//! and a change of the one-way delay only shifts τ. [`Lanes`] finds the least of these lines; two heaps hold the
//! moments at which blocks enter their next phase and entered their present one (τ falls when the one-way delay does).
//! A decision costs O(log blocks + lanes), and each change of phase O(log blocks).
//!
//! # How exact it is
//!
//! While the rate is steady the choice is exactly that of the formula, unless more than a few dozen blocks that are partly
//! sent (or whose deadlines are all different) are almost equally urgent; see [`lanes`](super::lanes). Beyond that the
//! chosen block's p is at most 1 + [`SLOPE_ERROR`] times the least.
//!
//! A turn depends on the rate, and a rate that changes moves every turn by a different amount, so each block keeps
//! the turn it was given. When the rate has moved by more than [`RATE_TOLERANCE`], blocks are gone through again,
//! [`SWEEP_SLOTS`] to a decision, and those whose turn is off by more than [`TURN_TOLERANCE`] get a new one, at most [`SWEEP`] to
//! a decision. Small blocks with distant deadlines never need one. After a sweep a remain_time is wrong by no more than
//! the two tolerances.

use std::time::{Duration, Instant};

use slab::Slab;

#[cfg(doc)]
use super::lanes::SLOPE_ERROR;
use super::{
    BlockScheduler, BlockView, SchedulerFactory, SendContext,
    heap::{Entry, Heap, NOWHERE},
    lanes::{Lanes, Line},
    of,
    pipes::Pipes,
};
use crate::{block::BlockId, by_id::ById, registry::Parameter};

/// The weight of the priority against that of the deadline. Default: DTP, section V.
pub(super) const ALPHA: Parameter = Parameter {
    name: "alpha",
    about: "weight of the priority against the deadline's",
    default: 0.5,
    min: 0.0,
    max: 1.0,
};

/// What a late block is set back by. Default: "the lowest priority value" (DTP, section V).
pub(super) const BETA: Parameter =
    Parameter { name: "beta", about: "how far late blocks are set back", default: LOWEST, min: 0.0, max: 1e6 };

/// What is left of the block; all of it, always, for one without a deadline.
fn ratio(view: &BlockView) -> f64 {
    if view.deadline.is_none() { 1.0 } else { view.unsent as f64 / view.size as f64 }
}

/// The least important priority there can be.
const LOWEST: f64 = 255.0;

/// A block's priority on a scale from 0, the most important, to 1, the least important of those with a deadline.
fn importance(view: &BlockView, p_max: u8) -> f64 {
    let beyond = view.priority.saturating_sub(p_max);
    f64::from(view.priority - beyond) / f64::from(p_max.max(1)) + f64::from(beyond) / LOWEST
}

/// How far the rate may move before turns are looked at. A congestion controller's own estimate is no better.
const RATE_TOLERANCE: f64 = 0.02;

/// How far a turn may be off, as a share of the deadline: 0.4 ms in 100 ms, about the grain of one-way delays.
const TURN_TOLERANCE: f64 = 1.0 / 256.0;

/// Blocks that are given a new turn in each decision after the rate has changed. Each costs about 0.1 µs; 10,000 that
/// all need one are through after 625 packets, when they have at least 10,000 to send.
const SWEEP: usize = 16;

/// Slots a decision goes through to find them. Each costs a few nanoseconds.
const SWEEP_SLOTS: usize = 64;

/// ADS, DTP-D or DTP-P.
pub(super) struct Ads {
    name: &'static str,
    alpha: f64,
    beta: f64,
    /// What times in seconds are counted from.
    origin: Option<Instant>,
    /// τ of the last decision.
    time: f64,
    /// The rate blocks are judged by now, infinite until the first decision.
    rate: f64,
    /// The largest priority number of a block with a deadline since there were none.
    p_max: u8,
    blocks: Slab<Judged>,
    slots: ById<u32>,
    lanes: Lanes,
    /// When each block enters its next phase.
    ahead: Moments,
    /// When each entered its present phase, as negative numbers: the latest first.
    behind: Moments,
    /// The slot the sweep comes to next, and how many it has still to visit.
    sweep_at: usize,
    sweep_left: usize,
    pipes: Pipes,
}

/// A block, and the rate at which it was placed.
struct Judged {
    view: BlockView,
    rate: f64,
}

/// A block's present phase.
struct Phase {
    line: Line,
    since: Option<f64>,
    until: Option<f64>,
}

/// Slots by a moment each may have.
#[derive(Default)]
struct Moments {
    heap: Heap,
    positions: Vec<u32>,
}

impl Ads {
    /// Makes sessions ADS schedulers that call themselves `name`.
    pub(super) fn factory(name: &'static str, alpha: f64, beta: f64) -> SchedulerFactory {
        of(move || Self::new(name, alpha, beta))
    }

    fn new(name: &'static str, alpha: f64, beta: f64) -> Self {
        Self {
            name,
            alpha,
            beta,
            origin: None,
            time: f64::NEG_INFINITY,
            rate: f64::INFINITY,
            p_max: 0,
            blocks: Slab::new(),
            slots: ById::default(),
            lanes: Lanes::default(),
            ahead: Moments::default(),
            behind: Moments::default(),
            sweep_at: 0,
            sweep_left: 0,
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

    /// Puts a block where it belongs by its view, the rate and the time.
    fn place(&mut self, slot: u32) {
        let judged = &mut self.blocks[slot as usize];
        judged.rate = self.rate;
        let view = judged.view;
        let phase = self.phase(&view);
        self.lanes.set(slot, view.id, phase.line, view.unsent == view.size);
        self.ahead.set(slot, view.id, phase.until);
        self.behind.set(slot, view.id, phase.since.map(|since| -since));
    }

    fn phase(&self, view: &BlockView) -> Phase {
        let ratio = ratio(view);
        let urgency = 1.0 - self.alpha;
        let base = self.alpha * importance(view, self.p_max);
        let forever = |p| Phase { line: Line { base: p * ratio, slope: 0.0, turn: 0.0 }, since: None, until: None };
        let Some(deadline) = view.deadline.filter(|_| urgency > 0.0) else { return forever(base + urgency) };
        let deadline = deadline.max(Duration::from_nanos(1)).as_secs_f64();
        let due = self.seconds(view.begin) + deadline;
        let turn = due - self.pipes.lag(due - self.time, view.unsent) - view.unsent as f64 / self.rate;
        let slope = urgency * ratio / deadline;
        if self.time < turn {
            Phase { line: Line { base: base * ratio, slope: -slope, turn }, since: None, until: Some(turn) }
        } else if self.time < turn + deadline {
            let line = Line { base: (base + urgency * self.beta) * ratio, slope, turn };
            Phase { line, since: Some(turn), until: Some(turn + deadline) }
        } else {
            Phase { since: Some(turn + deadline), ..forever(base + urgency * (1.0 + self.beta)) }
        }
    }

    /// Notes a priority; if it is the largest so far, all blocks stand otherwise.
    fn follow_priority(&mut self, block: &BlockView) {
        if block.deadline.is_none() || block.priority <= self.p_max {
            return;
        }
        self.p_max = block.priority;
        if self.alpha > 0.0 {
            let slots: Vec<u32> = self.blocks.iter().map(|(slot, _)| slot as u32).collect();
            slots.into_iter().for_each(|slot| self.place(slot));
        }
    }

    /// Notes the rate, and judges a few blocks anew if it has changed.
    fn follow_rate(&mut self, rate: f64) {
        if self.alpha == 1.0 {
            return; // Nothing depends on it.
        }
        if (rate - self.rate).abs() > RATE_TOLERANCE * rate {
            let first = self.rate.is_infinite();
            self.rate = rate;
            self.sweep_left = self.blocks.capacity();
            if first {
                return self.sweep(usize::MAX, usize::MAX);
            }
        }
        self.sweep(SWEEP, SWEEP_SLOTS);
    }

    /// Goes on with the sweep until it has judged `most` blocks or seen `slots` slots, in use or not.
    fn sweep(&mut self, mut most: usize, slots: usize) {
        for _ in 0..slots.min(self.sweep_left) {
            self.sweep_left -= 1;
            self.sweep_at = if self.sweep_at + 1 < self.blocks.capacity() { self.sweep_at + 1 } else { 0 };
            if self.blocks.get(self.sweep_at).is_some_and(|judged| judged.is_off(self.rate)) {
                self.place(self.sweep_at as u32);
                most -= 1;
                if most == 0 {
                    break;
                }
            }
        }
    }

    /// Moves the blocks whose phase has ended, or has not begun after all because the one-way delay has fallen.
    fn follow_time(&mut self) {
        while let Some(&Entry { key: until, slot, .. }) = self.ahead.heap.first()
            && until <= self.time
        {
            self.place(slot);
        }
        while let Some(&Entry { key, slot, .. }) = self.behind.heap.first()
            && -key > self.time
        {
            self.place(slot);
        }
    }
}

impl BlockScheduler for Ads {
    fn name(&self) -> &'static str {
        self.name
    }

    fn inherits_priority(&self) -> bool {
        // The papers' schedulers know nothing of it.
        self.name == "ads"
    }

    fn insert(&mut self, block: &BlockView) {
        debug_assert!(1 <= block.unsent && block.unsent <= block.size, "{block:?}");
        if self.slots.is_empty() {
            // Counting anew keeps the numbers small, and so exact, however long the session lives.
            (self.origin, self.time) = (Some(block.begin), f64::NEG_INFINITY);
            self.p_max = 0;
        }
        self.follow_priority(block);
        if let Some(&slot) = self.slots.get(&block.id) {
            if self.blocks[slot as usize].view != *block {
                self.blocks[slot as usize].view = *block;
                self.place(slot);
            }
            return;
        }
        let slot = self.blocks.insert(Judged { view: *block, rate: self.rate });
        if slot >= self.ahead.positions.len() {
            self.lanes.grow(self.blocks.capacity());
            self.ahead.positions.resize(self.blocks.capacity(), NOWHERE);
            self.behind.positions.resize(self.blocks.capacity(), NOWHERE);
        }
        self.slots.insert(block.id, slot as u32);
        self.place(slot as u32);
    }

    fn remove(&mut self, id: BlockId) {
        if let Some(slot) = self.slots.remove(&id) {
            self.lanes.remove(slot);
            self.ahead.set(slot, id, None);
            self.behind.set(slot, id, None);
            self.blocks.remove(slot as usize);
        }
    }

    fn next(&mut self, cx: &SendContext<'_>) -> Option<BlockId> {
        self.time = self.seconds(cx.now) + cx.one_way_delay.as_secs_f64();
        self.pipes.follow(cx);
        self.follow_rate(cx.rate);
        self.follow_time();
        self.lanes.least(self.time)
    }
}

impl Judged {
    /// Whether its turn would be another one at this rate.
    fn is_off(&self, rate: f64) -> bool {
        let Some(deadline) = self.view.deadline else { return false };
        let moved = self.view.unsent as f64 * (1.0 / rate - 1.0 / self.rate).abs();
        self.rate.is_infinite() || moved > TURN_TOLERANCE * deadline.as_secs_f64()
    }
}

impl Moments {
    fn set(&mut self, slot: u32, id: BlockId, moment: Option<f64>) {
        match moment {
            Some(key) => self.heap.set(Entry { key, id, slot }, &mut self.positions),
            None if self.positions[slot as usize] != NOWHERE => self.heap.remove(slot, &mut self.positions),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{
        super::{
            lanes::SLOPE_ERROR,
            tests::{Step, block, context, model, start, steps},
        },
        *,
    };

    const MS: Duration = Duration::from_millis(1);

    fn ads() -> Ads {
        Ads::new("ads", 0.5, LOWEST)
    }

    /// Equations 1 to 3 as they stand, with remain_time moved by `shift` seconds.
    fn formula(view: &BlockView, cx: &SendContext<'_>, alpha: f64, beta: f64, p_max: u8, shift: f64) -> f64 {
        let f = view.deadline.map_or(1.0, |deadline| {
            let deadline = deadline.as_secs_f64();
            let passed = (cx.now - view.begin).as_secs_f64();
            let remain = deadline - view.unsent as f64 / cx.rate - passed - cx.one_way_delay.as_secs_f64() + shift;
            if remain > 0.0 { remain / deadline } else { (-remain / deadline).min(1.0) + beta }
        });
        let ratio = super::ratio(view);
        ((1.0 - alpha) * f + alpha * super::importance(view, p_max)) * ratio
    }

    /// The largest priority number of a block with a deadline since there were none.
    struct PMax(u8);

    impl PMax {
        fn follow(&mut self, before: &BTreeMap<BlockId, BlockView>, step: &Step) {
            if before.is_empty() {
                self.0 = 0;
            }
            if let Step::Insert(block) = step
                && block.deadline.is_some()
            {
                self.0 = self.0.max(block.priority);
            }
        }
    }

    /// Runs the steps and compares each decision with the formula: how many times the least p the chosen one is, at most.
    fn worst(steps: &[Step], alpha: f64, beta: f64) -> f64 {
        let mut ads = Ads::new("ads", alpha, beta);
        let mut blocks: BTreeMap<BlockId, BlockView> = BTreeMap::new();
        let (mut worst, mut p_max) = (1.0f64, PMax(0));
        for step in steps {
            p_max.follow(&blocks, step);
            model(&mut ads, &mut blocks, step);
            let Step::Decide { .. } = step else { continue };
            let cx = step.context();
            let chosen = ads.next(&cx);
            assert_eq!(chosen.is_some(), !blocks.is_empty());
            let Some(chosen) = chosen else { continue };
            // Whether remain_time is 0 or 1e-10 is a matter of rounding, but one that p jumps at.
            let p = |view: &BlockView, shift| formula(view, &cx, alpha, beta, p_max.0, shift);
            let either = |view: &BlockView| (p(view, -1e-8), p(view, 1e-8));
            let (a, b) = either(&blocks[&chosen]);
            let least = blocks.values().map(|view| either(view).0.max(either(view).1)).fold(f64::INFINITY, f64::min);
            let rounding = 1e-6;
            worst = worst.max((a.min(b) - rounding) / least.max(f64::MIN_POSITIVE));
        }
        worst
    }

    fn weights() -> impl Strategy<Value = (f64, f64)> {
        (prop_oneof![Just(0.0), Just(0.5), Just(1.0), 0.0..1.0], prop_oneof![Just(LOWEST), 0.0..2.0])
    }

    proptest! {
        #[test]
        fn it_chooses_what_the_formula_says((alpha, beta) in weights(), steps in steps(&[20, 50, 100, 200, 1000], Just(1e6))) {
            prop_assert!(worst(&steps, alpha, beta) <= 1.0);
        }

        #[test]
        fn any_deadlines_stay_within_the_error((alpha, beta) in weights(), steps in steps(&[], Just(1e6))) {
            prop_assert!(worst(&steps, alpha, beta) <= 1.0 + SLOPE_ERROR);
        }

        /// Fewer blocks than a sweep are all looked at in one decision, so that only the tolerances separate the two.
        #[test]
        fn it_follows_the_rate(steps in steps(&[20, 50, 100, 200, 1000], 1e4..1e7)) {
            let mut ads = ads();
            let mut blocks = BTreeMap::new();
            let mut p_max = PMax(0);
            for step in steps {
                p_max.follow(&blocks, &step);
                model(&mut ads, &mut blocks, &step);
                let Step::Decide { .. } = step else { continue };
                let cx = step.context();
                if blocks.len() >= SWEEP {
                    continue;
                }
                let Some(chosen) = ads.next(&cx) else { continue };
                // With its turn somewhere within the tolerances each, the chosen block could be the least. p falls as the turn
                // moves away, then jumps down to f = 0 where the block is no longer late, and rises from there.
                let range = |view: &BlockView| {
                    let ratio = super::ratio(view);
                    let [near, far] = [-1.1, 1.1].map(|k| {
                        let shift = k * TURN_TOLERANCE * view.deadline.unwrap_or_default().as_secs_f64();
                        let rate = cx.rate * (1.0 + k * RATE_TOLERANCE);
                        formula(view, &SendContext { rate, ..cx }, 0.5, LOWEST, p_max.0, shift)
                    });
                    let jumps = near - far > 0.25 * LOWEST * ratio;
                    let lowest = if jumps { 0.5 * super::importance(view, p_max.0) * ratio } else { near };
                    (lowest.min(far), near.max(far))
                };
                for view in blocks.values() {
                    prop_assert!(range(&blocks[&chosen]).0 <= range(view).1 + 1e-6);
                }
            }
        }
    }

    #[test]
    fn an_urgent_block_overtakes() {
        let mut ads = ads();
        ads.insert(&BlockView { deadline: Some(1000 * MS), ..block(0) });
        ads.insert(&BlockView { deadline: Some(200 * MS), begin: start() + 150 * MS, ..block(1) });
        assert_eq!(ads.next(&context(150)), Some(BlockId(0)), "85 % of its time is left, and all of the other's");
        assert_eq!(ads.next(&context(250)), Some(BlockId(1)), "75 % and 50 %");
    }

    #[test]
    fn a_late_block_is_suspended_but_not_dropped() {
        let mut ads = ads();
        ads.insert(&BlockView { deadline: Some(100 * MS), priority: 0, ..block(0) });
        ads.insert(&BlockView { deadline: None, priority: 255, ..block(1) });
        assert_eq!(ads.next(&context(50)), Some(BlockId(0)));
        assert_eq!(ads.next(&context(150)), Some(BlockId(1)));
        ads.remove(BlockId(1));
        assert_eq!(ads.next(&context(151)), Some(BlockId(0)));
        assert_eq!(ads.next(&context(1000)), Some(BlockId(0)));
        ads.remove(BlockId(0));
        assert_eq!(ads.next(&context(1001)), None);
    }

    #[test]
    fn a_shorter_one_way_delay_makes_a_late_block_fresh_again() {
        let mut ads = ads();
        ads.insert(&BlockView { deadline: Some(100 * MS), priority: 0, ..block(0) });
        ads.insert(&BlockView { deadline: None, priority: 255, ..block(1) });
        let delayed = |millis| SendContext { one_way_delay: millis * MS, ..context(50) };
        assert_eq!(ads.next(&delayed(20)), Some(BlockId(0)));
        assert_eq!(ads.next(&delayed(60)), Some(BlockId(1)));
        assert_eq!(ads.next(&delayed(20)), Some(BlockId(0)));
    }

    #[test]
    fn a_lower_rate_makes_a_block_late() {
        let mut ads = ads();
        ads.insert(&BlockView { deadline: Some(100 * MS), priority: 0, ..block(0) });
        ads.insert(&BlockView { deadline: None, priority: 255, ..block(1) });
        assert_eq!(ads.next(&context(50)), Some(BlockId(0)));
        assert_eq!(ads.next(&SendContext { rate: 10_000.0, ..context(50) }), Some(BlockId(1)));
        assert_eq!(ads.next(&context(50)), Some(BlockId(0)));
    }

    #[test]
    fn a_few_small_priorities_count_as_much_as_a_few_large_ones() {
        for priorities in [[0, 1, 2], [0, 100, 200]] {
            let mut ads = ads();
            // The least important is due first by a little, the most important last.
            for (priority, id) in priorities.into_iter().rev().zip(0..) {
                ads.insert(&BlockView { deadline: Some((90 + 10 * id as u32) * MS), priority, ..block(id) });
            }
            assert_eq!(ads.next(&context(0)), Some(BlockId(2)));
        }
    }

    #[test]
    fn a_block_nearly_sent_is_finished_first() {
        let mut ads = ads();
        ads.insert(&BlockView { deadline: Some(100 * MS), priority: 200, unsent: 100, ..block(0) });
        ads.insert(&BlockView { deadline: Some(100 * MS), priority: 100, ..block(1) });
        assert_eq!(ads.next(&context(10)), Some(BlockId(0)));
    }

    #[test]
    fn without_a_deadline_a_block_stands_behind_its_equals() {
        let mut ads = ads();
        ads.insert(&BlockView { deadline: None, ..block(0) });
        ads.insert(&BlockView { deadline: Some(10_000 * MS), ..block(1) });
        ads.insert(&BlockView { deadline: None, priority: 200, ..block(2) });
        for expected in [1, 0, 2] {
            assert_eq!(ads.next(&context(0)), Some(BlockId(expected)));
            ads.remove(BlockId(expected));
        }
    }

    #[test]
    fn ties_go_to_the_first_handed_over() {
        for unsent in [1000, 700] {
            let mut ads = ads();
            for id in [5, 3, 4, 9] {
                ads.insert(&BlockView { deadline: Some(100 * MS), unsent, ..block(id) });
            }
            assert_eq!(ads.next(&context(1)), Some(BlockId(3)));
        }
    }

    #[test]
    fn dtp_d_sees_no_priority_and_dtp_p_no_deadline() {
        let urgent = BlockView { deadline: Some(100 * MS), priority: 255, ..block(0) };
        let important = BlockView { deadline: Some(200 * MS), priority: 0, ..block(1) };
        for (alpha, expected) in [(0.0, 0), (1.0, 1)] {
            let mut ads = Ads::new("", alpha, LOWEST);
            ads.insert(&urgent);
            ads.insert(&important);
            assert_eq!(ads.next(&context(20)), Some(BlockId(expected)));
            // Both late: DTP-P sticks to the important one, as in the paper.
            assert_eq!(ads.next(&context(250)), Some(BlockId(1)));
        }
    }

    #[test]
    fn a_sweep_ends() {
        let mut ads = ads();
        for id in 0..1000 {
            ads.insert(&block(id));
        }
        ads.next(&context(0));
        let slower = SendContext { rate: 5e5, ..context(0) };
        let decisions = (0..).take_while(|_| {
            ads.next(&slower);
            ads.blocks.iter().any(|(_, judged)| judged.rate != 5e5)
        });
        assert!((50..=1024 / SWEEP).contains(&decisions.count()));
    }

    #[test]
    fn steady_sending_settles_in_a_few_lanes() {
        let mut ads = ads();
        for id in 0..100 {
            ads.insert(&BlockView { deadline: Some(100 * MS), ..block(id) });
        }
        for unsent in (1..=1000).rev() {
            ads.insert(&BlockView { deadline: Some(100 * MS), unsent, ..block(50) });
            assert!(ads.next(&context(1)).is_some());
        }
        assert!(ads.lanes.len() <= 3, "{}", ads.lanes.len());
    }
}
