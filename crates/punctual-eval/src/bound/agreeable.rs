//! Windows in which what comes first is due first, on one machine: the most tasks on time, exactly.

use super::windows::{Task, Windows};

/// Looks at a task, at most, before it is left to other bounds.
const MOST_STEPS: usize = 20_000_000;

/// Whether no task has its window inside another's. `tasks` are in order of release, then due date.
pub(super) fn agree(tasks: &[Task]) -> bool {
    tasks.is_sorted_by_key(|task| task.due)
}

/// The most tasks on time on one machine, if releases and due dates are in the same order (Kise, Ibaraki and Mine 1978): one after the other,
/// and whenever one is late, that is left out without which the last is done earliest. `None` if it takes too long.
pub(super) fn most(windows: &Windows, tasks: &[Task]) -> Option<u64> {
    /// A task that is kept, and when it begins.
    struct Kept {
        release: i64,
        work: i64,
        begin: i64,
    }
    let mut kept: Vec<Kept> = Vec::with_capacity(tasks.len());
    let mut steps = 0;
    for task in tasks {
        let (release, due) = (windows.releases.at(task.release)[0], windows.dues.at(task.due)[0]);
        let free = kept.last().map_or(i64::MIN, |last| last.begin + last.work);
        let begin = release.max(free);
        kept.push(Kept { release, work: task.work, begin });
        if begin + task.work <= due {
            continue;
        }
        // Without one, those behind it move up, each as far as its release lets it.
        let (mut worst, mut gain, mut room) = (kept.len() - 1, 0, i64::MAX);
        for (index, one) in kept.iter().enumerate().rev() {
            steps += 1;
            if one.work.min(room) > gain {
                (worst, gain) = (index, one.work.min(room));
            }
            room = room.min(one.begin - one.release);
            if room <= gain {
                break;
            }
        }
        kept.remove(worst);
        let mut free = worst.checked_sub(1).map_or(i64::MIN, |before| kept[before].begin + kept[before].work);
        for one in &mut kept[worst..] {
            one.begin = one.release.max(free);
            free = one.begin + one.work;
            steps += 1;
        }
        if steps > MOST_STEPS {
            return None;
        }
    }
    Some(kept.len() as u64)
}
