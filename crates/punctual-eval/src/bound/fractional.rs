//! The fractional relaxation: a part of a task is worth that part of its value.

use super::{
    serve::most_work,
    windows::{Task, Windows},
};

/// Sets of tasks for which the most work is found exactly. More make the bound tighter, and each costs a run of earliest due date
/// first. Enough for every size of a workload with few sizes.
const CHECKPOINTS: usize = 24;

/// Tasks looked at, at most, at all checkpoints together; there are always four.
const MOST_TASKS: usize = 400_000;

/// The most value of parts of `tasks` (by release) that can be done in their windows; `value` is that of a whole task.
///
/// The amounts that can be done form a polymatroid, so serving tasks in order of value per work is best (Edmonds 1970). The rank
/// of a set is what earliest due date first does for it; it is taken of some of the sets the greedy passes, which makes the
/// bound no lower.
pub(super) fn fractional(windows: &Windows, tasks: &[Task], value: impl Fn(&Task) -> f64) -> f64 {
    let density = |task: &Task| value(task) / task.work as f64;
    let valued = tasks.iter().enumerate().filter(|(_, task)| value(task) > 0.0);
    let mut order: Vec<(f64, usize)> = valued.map(|(index, task)| (density(task), index)).collect();
    order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    // Where the density changes, as far as there are checkpoints; equal ones need none between them.
    let mut ends: Vec<usize> = (1..order.len()).filter(|i| order[i - 1].0 > order[*i].0).collect();
    ends.push(order.len());
    let step = ends.len().div_ceil((MOST_TASKS / order.len().max(1)).clamp(4, CHECKPOINTS));
    let last = ends.len() - 1;
    let ends = ends.iter().enumerate().filter(|(i, _)| (last - i).is_multiple_of(step)).map(|(_, end)| *end);

    let mut among = vec![false; tasks.len()];
    let (mut begin, mut done, mut total) = (0, 0, 0.0);
    for end in ends {
        let group = &order[begin..end];
        group.iter().for_each(|(_, index)| among[*index] = true);
        let most = most_work(windows, tasks.iter().zip(&among).filter(|(_, among)| **among).map(|(task, _)| *task));
        for task in group.iter().map(|(_, index)| &tasks[*index]) {
            let part = windows.alone(task).min(most - done);
            done += part;
            total += value(task) * (part as f64 / task.work as f64);
        }
        begin = end;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::{super::windows, *};

    #[test]
    fn small_tasks_go_first() {
        // Three of 10 units in a window of 26, a small one in the middle.
        let (windows, tasks) = windows::single(&[(0, 26, 10), (0, 26, 10), (0, 26, 10), (5, 9, 4)]);
        let most = |value: &dyn Fn(&Task) -> f64| fractional(&windows, &tasks, value);
        assert_eq!(most(&|_| 1.0), 1.0 + 2.2);
        assert_eq!(most(&|task| task.work as f64), 26.0);
        assert_eq!(most(&|task| if task.work == 4 { 0.0 } else { 2.0 }), 5.2);
        assert_eq!(fractional(&windows, &[], |_| 1.0), 0.0);
    }
}
