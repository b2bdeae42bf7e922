//! The least of many straight lines at a moment, without looking at each.
//!
//! Every block's weighted priority is, until its next change of phase, a straight line over time. Lines of equal slope
//! never cross, so their order does not depend on the time: such lines share a *lane*, a heap that stays in order however long it
//! stands, and only the heads of the lanes have to be compared.
//!
//! Slopes are as many as there are combinations of deadline and unsent ratio, so lines that are not in an exact lane
//! share one with those of *almost* their slope: its magnitude is rounded down to four bits after the leading one,
//! at most [`SLOPE_ERROR`] of it. The rounded slope gives a lower bound of each line; lines are looked at, in the order
//! of the bounds, until the bound exceeds the best value found, which makes the answer exact. At most
//! [`LOOK_BUDGET`] lines are looked at beyond the heads. If that runs out (many lines within a few per cent of the
//! least), the answer is at most 1 + [`SLOPE_ERROR`] times the least.
//!
//! There are at most 16 lanes to an octave of slope: deadlines from 10 ms to 1 s, none of them twice, and unsent
//! ratios from 1 to 1 % make 212 at most for the blocks that can make it, and as many for those that cannot.

use std::collections::HashMap;

use super::heap::{Entry, Heap, NOWHERE};
use crate::block::BlockId;

/// How far, at most, a slope is rounded down, as a share of the rounded slope.
#[cfg(any(test, doc))]
pub(super) const SLOPE_ERROR: f64 = 1.0 / 16.0;

/// The bits of an `f64` that the rounding keeps: sign, exponent and four of the mantissa.
const SLOPE_MASK: u64 = !((1 << 48) - 1);

/// Lanes for slopes that are kept exactly. Applications use few distinct deadlines.
const EXACT_LANES: usize = 64;

/// Lines looked at per decision besides the heads of the lanes.
const LOOK_BUDGET: usize = 64;

/// Entries for which an empty lane keeps room.
const KEPT_ROOM: usize = 64;

/// `base + slope · (time − turn)`, with `base` and `slope · (time − turn)` never negative while the line is in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub(super) base: f64,
    /// Per second.
    pub(super) slope: f64,
    /// Seconds.
    pub(super) turn: f64,
}

impl Line {
    pub(super) fn at(&self, time: f64) -> f64 {
        self.base + self.slope * (time - self.turn)
    }
}

/// The slope of a lane (its bits), and whether all its lines have exactly that slope.
type LaneKey = (u64, bool);

/// Lines by lane.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Of each lane, the value at time 0 of its head's bound (infinite if it is empty) and its slope. Beside the lanes, not
    /// in them, because they are read through for every decision.
    heads: Vec<(f64, f64)>,
    by_key: HashMap<LaneKey, u32>,
    empty: Vec<u32>,
    exact: usize,
    /// The lane in which the least line was last.
    favourite: usize,
    /// By slot: its lane, its place in the lane's heap, and its line.
    lane_of: Vec<u32>,
    positions: Vec<u32>,
    lines: Vec<Line>,
    /// Places in a heap that are still to be looked at; kept for its room.
    stack: Vec<u32>,
}

#[derive(Debug)]
struct Lane {
    key: LaneKey,
    heap: Heap,
}

impl Lanes {
    /// Makes room for `slots` slots.
    pub(super) fn grow(&mut self, slots: usize) {
        self.lane_of.resize(slots, NOWHERE);
        self.positions.resize(slots, NOWHERE);
        self.lines.resize(slots, Line { base: 0.0, slope: 0.0, turn: 0.0 });
    }

    /// Sets the line of a slot. `common` says that many slots are likely to have the same slope.
    pub(super) fn set(&mut self, slot: u32, id: BlockId, line: Line, common: bool) {
        let mut lane = self.lane_of[slot as usize];
        if lane != NOWHERE && self.lines[slot as usize] == line {
            return;
        }
        let [exact, rounded] = [(line.slope.to_bits(), true), (line.slope.to_bits() & SLOPE_MASK, false)];
        if lane == NOWHERE || ![exact, rounded].contains(&self.lanes[lane as usize].key) {
            self.remove(slot);
            let common = line.slope == 0.0 || common;
            let room = || self.exact < EXACT_LANES || line.slope == 0.0 || self.by_key.contains_key(&exact);
            lane = self.open(if common && room() { exact } else { rounded });
        }
        let key = self.lanes[lane as usize].key;
        self.lane_of[slot as usize] = lane;
        self.lines[slot as usize] = line;
        let at_zero = line.base - f64::from_bits(key.0) * line.turn;
        self.lanes[lane as usize].heap.set(Entry { key: at_zero, id, slot }, &mut self.positions);
        self.refresh(lane);
    }

    /// Forgets the line of a slot, if it has one.
    pub(super) fn remove(&mut self, slot: u32) {
        let lane = std::mem::replace(&mut self.lane_of[slot as usize], NOWHERE);
        if lane == NOWHERE {
            return;
        }
        self.lanes[lane as usize].heap.remove(slot, &mut self.positions);
        self.refresh(lane);
        if self.lanes[lane as usize].heap.is_empty() {
            self.close(lane);
        }
    }

    /// The slot whose line is least at `time`, ties by id.
    pub(super) fn least(&mut self, time: f64) -> Option<BlockId> {
        let mut best = (f64::INFINITY, BlockId(u64::MAX));
        let mut budget = LOOK_BUDGET;
        // The lane that had the least last time is likely to have one that is hard to beat.
        let first = self.favourite;
        self.look(first, time, &mut best, &mut budget);
        for lane in 0..self.heads.len() {
            let (at_zero, slope) = self.heads[lane];
            if at_zero + slope * time <= best.0 && lane != first {
                self.look(lane, time, &mut best, &mut budget);
            }
        }
        best.0.is_finite().then_some(best.1)
    }

    /// Lowers `best` to the least line of a lane, if that is less.
    fn look(&mut self, lane: usize, time: f64, best: &mut (f64, BlockId), budget: &mut usize) {
        let Some(Lane { key: (slope, exact), heap }) = self.lanes.get(lane) else { return };
        let slope = f64::from_bits(*slope);
        self.stack.clear();
        self.stack.push(0);
        while let Some(index) = self.stack.pop() {
            let Some(entry) = heap.get(index) else { continue };
            if entry.key + slope * time > best.0 {
                continue;
            }
            let value = (self.lines[entry.slot as usize].at(time), entry.id);
            if value < *best {
                *best = value;
                self.favourite = lane;
            }
            if *exact || *budget == 0 {
                return;
            }
            *budget -= 1;
            self.stack.extend([2 * index + 2, 2 * index + 1]);
        }
    }

    /// How many lanes there are, the empty ones that are kept for their room included.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    fn open(&mut self, key: LaneKey) -> u32 {
        if let Some(&lane) = self.by_key.get(&key) {
            return lane;
        }
        let lane = self.empty.pop().unwrap_or_else(|| {
            self.lanes.push(Lane { key, heap: Heap::default() });
            self.heads.push((f64::INFINITY, 0.0));
            (self.lanes.len() - 1) as u32
        });
        self.lanes[lane as usize].key = key;
        self.by_key.insert(key, lane);
        self.exact += usize::from(key.1);
        lane
    }

    fn close(&mut self, lane: u32) {
        let Lane { key, heap } = &mut self.lanes[lane as usize];
        heap.shrink_to(KEPT_ROOM);
        self.by_key.remove(key);
        self.exact -= usize::from(key.1);
        self.empty.push(lane);
    }

    fn refresh(&mut self, lane: u32) {
        let Lane { key: (slope, _), heap } = &self.lanes[lane as usize];
        self.heads[lane as usize] = match heap.first() {
            Some(entry) => (entry.key, f64::from_bits(*slope)),
            None => (f64::INFINITY, 0.0),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line() -> impl Strategy<Value = Line> {
        // Up to 50 s before its turn a line falls, after 50 s (the tests look at 50 s) it rises.
        let slope = prop_oneof![0.001..1000.0f64, 1.0..1.1f64];
        (0.0..1.0, slope, prop_oneof![0.0..100.0f64, 49.0..51.0f64]).prop_map(|(base, slope, turn)| Line {
            base,
            slope: if turn > 50.0 { -slope } else { slope },
            turn,
        })
    }

    proptest! {
        #[test]
        fn the_least_is_found(lines in prop::collection::vec((line(), any::<bool>()), 1..60)) {
            let mut lanes = Lanes::default();
            lanes.grow(lines.len());
            for ((line, common), slot) in lines.iter().zip(0u32..) {
                lanes.set(slot, BlockId(slot.into()), *line, *common);
            }
            let least = lines.iter().map(|(line, _)| line.at(50.0)).fold(f64::INFINITY, f64::min);
            let found = lanes.least(50.0).unwrap();
            let value = lines[found.0 as usize].0.at(50.0);
            prop_assert!(value <= least * (1.0 + 1e-9) + 1e-9, "{value} {least}");
            for slot in 0..lines.len() as u32 {
                lanes.remove(slot);
            }
            prop_assert_eq!(lanes.least(50.0), None);
            prop_assert!(lanes.by_key.is_empty());
        }
    }

    #[test]
    fn the_least_need_not_be_the_head() {
        let mut lanes = Lanes::default();
        lanes.grow(2);
        lanes.set(0, BlockId(0), Line { base: 0.0, slope: -1.06, turn: 1.0 }, false);
        lanes.set(1, BlockId(1), Line { base: 0.03, slope: -1.0, turn: 1.0 }, false);
        assert_eq!(lanes.len(), 1);
        assert_eq!(lanes.least(0.0), Some(BlockId(1)), "1.03 against 1.06, with bounds of 1.03 and 1");
    }

    #[test]
    fn many_lines_close_together_stay_within_the_error() {
        let mut lanes = Lanes::default();
        let lines =
            (0..10_000u32).map(|i| Line { base: 0.0, slope: -1.0 - f64::from(i * 7919 % 10_000) * 6e-6, turn: 1.0 });
        let lines: Vec<Line> = lines.collect();
        lanes.grow(lines.len());
        for (line, slot) in lines.iter().zip(0u32..) {
            lanes.set(slot, BlockId(slot.into()), *line, false);
        }
        let found = lanes.least(0.0).unwrap();
        assert!(lines[found.0 as usize].at(0.0) <= 1.0 + SLOPE_ERROR);
        assert_eq!(lanes.len(), 1);
    }
}
