//! Paths that do not answer, as a person is told of them.
//!
//! The protocol suspects a path within tens of milliseconds, since a deadline cannot wait, and often it answers a moment later: a queue, a lost
//! packet, a busy host. The application hears of that at once and statistics count it; a line on the terminal is for what lasts.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use punctual::PathId;

/// What is over sooner than this is not told. Nobody could do anything about it.
const LASTING: Duration = Duration::from_millis(200);

/// What is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    /// A path is silent.
    Path(PathId),
    /// All are.
    All,
}

/// Doubts there are, and whether they have been told.
#[derive(Debug, Default)]
pub(crate) struct Doubts(BTreeMap<Doubt, Open>);

#[derive(Debug)]
struct Open {
    /// Since when nothing is heard.
    since: Instant,
    /// When it is to be told, if it has not been.
    due: Option<Instant>,
}

impl Doubts {
    /// One has come up, after a silence.
    pub(crate) fn arise(&mut self, now: Instant, doubt: Doubt, silent: Duration) {
        let since = now.checked_sub(silent).unwrap_or(now);
        self.0.entry(doubt).or_insert(Open { since, due: Some(now + LASTING) });
    }

    /// It is settled, or the path is gone. Whether it had been told.
    pub(crate) fn settle(&mut self, doubt: Doubt) -> bool {
        self.0.remove(&doubt).is_some_and(|open| open.due.is_none())
    }

    /// When the next one is to be told.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.values().filter_map(|open| open.due).min()
    }

    /// The next one that is to be told by now, and for how long nothing has been heard.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(Doubt, Duration)> {
        let (doubt, open) = self.0.iter_mut().find(|(_, open)| open.due.is_some_and(|due| due <= now))?;
        open.due = None;
        Some((*doubt, now.saturating_duration_since(open.since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_soon_over_is_not_told() {
        let (start, mut doubts) = (Instant::now(), Doubts::default());
        doubts.arise(start, Doubt::Path(PathId(0)), 8 * MS);
        doubts.arise(start, Doubt::All, Duration::ZERO);
        assert_eq!(doubts.due(), Some(start + LASTING));
        assert_eq!(doubts.next(start + LASTING - MS), None);
        assert!(!doubts.settle(Doubt::Path(PathId(0))) && !doubts.settle(Doubt::All));
        assert_eq!((doubts.due(), doubts.next(start + LASTING)), (None, None));
        assert!(!doubts.settle(Doubt::All), "there is none");
    }

    #[test]
    fn what_lasts_is_told_once_and_so_is_its_end() {
        let (start, mut doubts) = (Instant::now(), Doubts::default());
        let (one, two) = (Doubt::Path(PathId(1)), Doubt::Path(PathId(2)));
        doubts.arise(start, one, 60 * MS);
        doubts.arise(start + 50 * MS, two, 60 * MS);
        doubts.arise(start + 100 * MS, one, 60 * MS);
        assert_eq!(doubts.next(start + LASTING), Some((one, LASTING + 60 * MS)));
        assert_eq!(doubts.next(start + LASTING), None, "once; the other is not due");
        assert_eq!(doubts.due(), Some(start + 50 * MS + LASTING));
        assert!(doubts.settle(one) && !doubts.settle(two));
    }
}
