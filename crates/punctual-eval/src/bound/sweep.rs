//! Any windows: a sweep over the releases that remembers, for each number of tasks kept, how much could still be waiting.

use super::windows::{Task, Windows};

/// What [`most`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Swept {
    /// No more tasks can be on time.
    pub(super) most: u64,
    /// And so many can.
    pub(super) exact: bool,
    /// Dates looked at.
    pub(super) steps: u64,
}

/// Times the steps it is meant to take at most after which [`most`] gives up. That many dates are in sight at once that it can remember
/// next to nothing about them.
const PATIENCE: u64 = 16;

/// How much [`most`] may remember.
#[derive(Debug, Clone, Copy)]
pub(super) struct Width {
    /// Different backlogs for each number of tasks.
    pub(super) backlogs: usize,
    /// Different numbers of tasks.
    pub(super) counts: usize,
    /// Dates looked at in all, roughly; the numbers of tasks are narrowed to keep to it.
    pub(super) steps: u64,
}

/// Some way to have kept `count` tasks, or what is at least as good as several such ways.
#[derive(Debug, Clone)]
struct State {
    count: u64,
    /// The work still to be done for those that are due by each date in sight. Never falls from one date to the next.
    backlog: Vec<i64>,
}

impl State {
    /// Whether it is as good as `other` in every way.
    fn dominates(&self, other: &Self) -> bool {
        // The whole backlog first: there they differ most.
        self.count >= other.count && self.backlog.iter().zip(&other.backlog).rev().all(|(own, other)| own <= other)
    }

    /// Becomes as good as both.
    fn relax(&mut self, other: &Self) {
        self.count = self.count.max(other.count);
        self.backlog.iter_mut().zip(&other.backlog).for_each(|(own, other)| *own = (*own).min(*other));
    }

    /// How different two are.
    fn distance(&self, other: &Self) -> i64 {
        self.backlog.iter().zip(&other.backlog).map(|(own, other)| (own - other).abs()).fold(0, i64::saturating_add)
    }

    /// Lets time pass in which so much can be done for what is due by each date in sight: as much as can be for each date and
    /// those before it, which earliest due date first does for all of them at once.
    fn pass(&mut self, work: &[i64]) {
        let mut left = 0;
        for (backlog, work) in self.backlog.iter_mut().zip(work) {
            left = left.max(*backlog - work);
            *backlog = left;
        }
    }
}

/// The most of `tasks` (by release) on time.
///
/// A relaxed decision diagram (Andersen, Hadzic, Hooker and Tiedemann 2007): each task is kept or not. What can come of either
/// depends only on how many are kept and on how much work is left that is due by each date, and less is never worse. States that
/// are no better than another are forgotten; where there are more than `width` allows, two become one that is as good as both.
/// Without that it is exact.
pub(super) fn most(windows: &Windows, tasks: &[Task], width: Width) -> Swept {
    let mut dues: Vec<usize> = tasks.iter().map(|task| task.due).collect();
    dues.sort_unstable();
    dues.dedup();
    let (mut exact, mut steps) = (true, 0);
    let mut states = vec![State { count: 0, backlog: Vec::new() }];
    // Dates in sight: `dues[first..][..states[_].backlog.len()]`.
    let (mut first, mut now) = (0, 0);
    let mut work = Vec::new();
    // The work that can be done from now on for what is due by each date in sight.
    let mut room: Vec<i64> = Vec::new();
    for (index, task) in tasks.iter().enumerate() {
        let mut sight = states[0].backlog.len();
        if task.release != now {
            work.clear();
            let dates = &dues[first..][..sight];
            // What all machines are open to until then has all their work in common.
            let some = dates.partition_point(|due| !windows.is_open_until(task.release, *due));
            work.extend(dates[..sight.min(some + 1)].iter().map(|due| windows.work(now, Some(task.release), *due)));
            work.resize(sight, work.last().copied().unwrap_or(0));
            states.iter_mut().for_each(|state| state.pass(&work));
            room.iter_mut().zip(&work).for_each(|(room, work)| *room -= work);
            now = task.release;
        }
        let open = first + dues[first..].partition_point(|due| !windows.is_open(now, *due));
        if open > first {
            let past = (open - first).min(sight);
            states.iter_mut().for_each(|state| drop(state.backlog.drain(..past)));
            room.drain(..past.min(room.len()));
            first = open;
            sight -= past;
        }
        let rank = dues.partition_point(|due| *due < task.due) - first;
        if sight < rank + 1 {
            sight = rank + 1;
            for state in &mut states {
                let last = state.backlog.last().copied().unwrap_or(0);
                state.backlog.resize(sight, last);
            }
        }
        let more = &dues[first..][..sight][room.len()..];
        room.extend(more.iter().map(|due| windows.work(now, None, *due)));
        let kept: Vec<State> = states
            .iter()
            .filter_map(|state| {
                let mut kept = State { count: state.count + 1, backlog: state.backlog.clone() };
                let later = &mut kept.backlog[rank..];
                later.iter_mut().for_each(|backlog| *backlog += task.work);
                later.iter().zip(&room[rank..]).all(|(backlog, room)| backlog <= room).then_some(kept)
            })
            .collect();
        steps += ((states.len() + kept.len()) * sight) as u64;
        if steps > width.steps.saturating_mul(PATIENCE) {
            return Swept { most: tasks.len() as u64, exact: false, steps };
        }
        let budget = width.steps.saturating_sub(steps) / ((tasks.len() - index) * 2 * width.backlogs * sight) as u64;
        let width = Width { counts: width.counts.min(budget as usize).max(1), ..width };
        (states, exact) = reduce(kept, states, width, exact);
    }
    Swept { most: states[0].count, exact, steps }
}

/// The best of two lists of states, each by falling count.
fn reduce(kept: Vec<State>, left: Vec<State>, width: Width, mut exact: bool) -> (Vec<State>, bool) {
    let mut states: Vec<State> = Vec::with_capacity(kept.len() + left.len());
    let (mut kept, mut left) = (kept.into_iter().peekable(), left.into_iter().peekable());
    let mut same = 0;
    let mut counts = 0;
    loop {
        let next = match (kept.peek(), left.peek()) {
            (Some(a), Some(b)) if a.count >= b.count => kept.next(),
            (Some(_), None) => kept.next(),
            (_, Some(_)) => left.next(),
            (None, None) => break,
        };
        let Some(next) = next else { break };
        if states.iter().any(|state| state.dominates(&next)) {
            continue;
        }
        let count = next.count;
        if states.last().is_none_or(|last| last.count != count) {
            if counts == width.counts {
                // Fewer still: all of them are taken for as many as the last.
                exact = false;
                if let Some(last) = states.last_mut() {
                    last.relax(&next);
                }
                continue;
            }
            (counts, same) = (counts + 1, 0);
        }
        let group = states.len() - same;
        // What this one is better than.
        let mut index = group;
        while index < states.len() {
            if next.dominates(&states[index]) {
                states.swap_remove(index);
            } else {
                index += 1;
            }
        }
        if states.len() - group >= width.backlogs {
            exact = false;
            if let Some(nearest) = states[group..].iter_mut().min_by_key(|state| state.distance(&next)) {
                nearest.relax(&next);
            }
        } else {
            states.push(next);
        }
        same = states.len() - group;
    }
    (states, exact)
}
