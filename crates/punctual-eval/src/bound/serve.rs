//! What earliest due date first does on the machines: the most work there can be, and where nothing is left to do.

use std::ops::Range;

use super::windows::{Task, Windows};

/// Tasks that were released and not completed, by when they are due.
struct Waiting {
    /// The due moment of the first of `left`.
    first: usize,
    /// Work left for what is due at each moment.
    left: Vec<i64>,
    /// A bit for each moment at which work is left.
    present: Vec<u64>,
    /// No moment before this one has work left.
    least: usize,
    /// No moment after this one has.
    most: usize,
}

impl Waiting {
    /// Room for these tasks, none of which waits yet.
    fn room(tasks: impl Iterator<Item = Task>) -> Self {
        let (first, last) =
            tasks.fold((usize::MAX, 0), |(first, last), task| (first.min(task.due), last.max(task.due)));
        let moments = if first <= last { last - first + 1 } else { 0 };
        Self { first, left: vec![0; moments], present: vec![0; moments.div_ceil(64)], least: moments, most: 0 }
    }

    fn push(&mut self, task: &Task) {
        let index = task.due - self.first;
        self.left[index] += task.work;
        self.present[index / 64] |= 1 << (index % 64);
        (self.least, self.most) = (self.least.min(index), self.most.max(index));
    }

    fn remove(&mut self, index: usize) {
        self.left[index] = 0;
        self.present[index / 64] &= !(1 << (index % 64));
    }

    /// The first at `index` or later.
    fn next(&self, index: usize) -> Option<usize> {
        let words = self.present.get(..=self.most / 64)?;
        let mut word = index / 64;
        let mut bits = words.get(word)? & (u64::MAX << (index % 64));
        while bits == 0 {
            word += 1;
            bits = *words.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Works from one release to another, or to the end of time, and gives up what is closed then. Returns the work done, and
    /// whether nothing was given up.
    ///
    /// What capacity one due date can use, a later one can too. So if each in turn takes what those before left of its own, as
    /// much work is done for each first part of them as can be.
    fn run(&mut self, windows: &Windows, from: usize, to: Option<usize>) -> (i64, bool) {
        let (mut done, mut complete) = (0, true);
        let mut next = self.next(self.least);
        let mut least = None;
        while let Some(index) = next {
            let due = self.first + index;
            let step = self.left[index].min(windows.work(from, to, due) - done).max(0);
            done += step;
            self.left[index] -= step;
            if self.left[index] == 0 {
                self.remove(index);
            } else if to.is_none_or(|to| !windows.is_open(to, due)) {
                self.remove(index);
                complete = false;
            } else {
                least = least.or(Some(index));
                // Later due dates can use no more than this one could.
                if to.is_some_and(|to| windows.is_open_until(to, due)) {
                    break;
                }
                // Nor can those for which no more can be done than was; and they are not closed, either.
                if step == 0 {
                    let can_use_more = |index: &usize| windows.work(from, to, self.first + index) > done;
                    next = first(index + 1..self.most + 1, can_use_more).and_then(|index| self.next(index));
                    continue;
                }
            }
            next = self.next(index + 1);
        }
        self.least = least.unwrap_or(self.left.len());
        if self.is_empty() {
            self.most = 0;
        }
        (done, complete)
    }

    fn is_empty(&self) -> bool {
        self.least == self.left.len()
    }
}

/// The first of `range` with a property that all later ones have, too.
fn first(range: Range<usize>, property: impl Fn(&usize) -> bool) -> Option<usize> {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low.midpoint(high);
        if property(&middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (low < range.end).then_some(low)
}

/// Works on `tasks` (by release), and gives a task up when no machine can do more for it. Returns the work done; calls `idle`
/// with the number of tasks since the last time nothing was left to do, and whether all were completed.
fn serve(windows: &Windows, tasks: impl Iterator<Item = Task> + Clone, mut idle: impl FnMut(usize, bool)) -> i64 {
    let mut waiting = Waiting::room(tasks.clone());
    let (mut now, mut done, mut since, mut complete) = (0, 0, 0, true);
    for task in tasks {
        if task.release != now && since > 0 {
            let (work, none_given_up) = waiting.run(windows, now, Some(task.release));
            done += work;
            complete &= none_given_up;
            if waiting.is_empty() {
                idle(since, complete);
                (since, complete) = (0, true);
            }
        }
        now = task.release;
        waiting.push(&task);
        since += 1;
    }
    if since > 0 {
        let (work, none_given_up) = waiting.run(windows, now, None);
        done += work;
        idle(since, complete && none_given_up);
    }
    done
}

/// The most work that can be done in all for `tasks`, which are in order of release.
pub(super) fn most_work(windows: &Windows, tasks: impl Iterator<Item = Task> + Clone) -> i64 {
    serve(windows, tasks, |_, _| ())
}

/// Parts that do not get in each other's way, and whether all tasks of each can be completed.
///
/// Where earliest due date first is idle, even though it tried all tasks, any feasible choice of tasks can be idle too: see
/// `docs/bound.md`.
pub(super) fn components<'a>(windows: &Windows, tasks: &'a [Task]) -> Vec<(&'a [Task], bool)> {
    let (mut components, mut rest) = (Vec::new(), tasks);
    serve(windows, tasks.iter().copied(), |n, complete| {
        let (component, others) = rest.split_at(n);
        components.push((component, complete));
        rest = others;
    });
    components
}

#[cfg(test)]
mod tests {
    use super::{super::windows, *};

    #[test]
    fn earliest_due_date_first_preempts_and_gives_up() {
        // The long one is interrupted, and has 4 of its 6 when it is due.
        let (windows, tasks) = windows::single(&[(0, 6, 6), (1, 3, 2), (10, 12, 1)]);
        assert_eq!(most_work(&windows, tasks.iter().copied()), 7);
        let parts: Vec<_> =
            components(&windows, &tasks).iter().map(|(part, complete)| (part.len(), *complete)).collect();
        assert_eq!(parts, [(2, false), (1, true)]);
        assert!(components(&windows, &[]).is_empty());
    }

    #[test]
    fn a_machine_does_nothing_for_what_it_cannot_bring_in_time() {
        // The second machine is open to the patient task only, which makes way for the other on the first.
        let hurried = (vec![0, 0], vec![10, 0], 10);
        let patient = (vec![0, 0], vec![14, 6], 10);
        let (windows, tasks) = windows::several(&[hurried.clone(), patient, hurried]);
        assert_eq!(most_work(&windows, tasks.iter().copied()), 20);
        let of = |which: &[usize]| most_work(&windows, tasks.iter().filter(|task| which.contains(&task.job)).copied());
        assert_eq!((of(&[0, 2]), of(&[1]), of(&[0, 1])), (10, 10, 20));
        assert_eq!(windows.alone(&Task { work: 99, ..tasks[2] }), 20);
    }

    #[test]
    fn what_only_one_machine_is_still_open_to_waits_for_it() {
        // At 5 on both clocks, the first task can only be worked on by the first machine, which the second task needs as well.
        let (windows, tasks) = windows::several(&[(vec![0, 0], vec![9, 5], 13), (vec![5, 5], vec![12, 8], 7)]);
        assert_eq!(most_work(&windows, tasks.iter().copied()), 20);
        assert_eq!(components(&windows, &tasks), [(&tasks[..], true)]);
        let (windows, tasks) = windows::several(&[(vec![0, 0], vec![9, 5], 15), (vec![5, 5], vec![12, 8], 7)]);
        assert_eq!(most_work(&windows, tasks.iter().copied()), 20);
        assert_eq!(components(&windows, &tasks), [(&tasks[..], false)]);
    }
}
