//! What is handed over these days that has a deadline, and what others leave to it: room in the queues of paths, and paths that it cannot do without.
//!
//! Who fills a path keeps a queue there, if only to see whether the path carries more. What has a deadline waits behind that in its own time: of 21 ms, over a
//! path of 8 and behind what it takes to leave itself, a queue of 12 ms is too much. So as long as blocks with deadlines are handed over, what has none, and is
//! no more important, leaves no more of a queue than a small share of what they have to spare. (A background transport, as LEDBAT is, RFC 6817; but there
//! the queue aimed at is one for all, 100 ms at most.) Every path is still used all the time: what is kept short is the queue, and how fast more is tried.
//!
//! And what has a longer deadline leaves short paths to what has only these, as long as others are enough for it ([`Expected`](crate::multipath)).

use std::time::{Duration, Instant};

use crate::{base::PathView, multipath::PathSet};

/// A kind of which nothing was handed over for so long is no more, unless it is rarer than that.
const MEMORY: Duration = Duration::from_secs(2);
/// A kind is waited for this many times as long as it paused last, but no longer than the second.
const PAUSES: u32 = 2;
const LONGEST_MEMORY: Duration = Duration::from_secs(60);
/// So many kinds are told apart at once.
const MOST_KINDS: usize = 16;
/// Deadlines that differ by less than this share are of one kind.
const ALIKE: f64 = 0.125;
/// What the size of the latest block counts for in their average.
const WEIGHT: f64 = 0.125;
/// The share of what blocks have to spare. What others bring, and cost: `docs/design.md`, "Short queues for what is urgent".
const SHARE: f64 = 0.125;

/// Blocks of one priority and much the same deadline.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// Of the most urgent of them.
    deadline: Duration,
    priority: u8,
    /// Bytes, on average.
    size: f64,
    last: Instant,
    /// How long nothing came before the last.
    pause: Duration,
}

impl Kind {
    fn lives(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) <= (self.pause * PAUSES).clamp(MEMORY, LONGEST_MEMORY)
    }

    /// What one of them has to spare that takes `way` besides leaving at `rate`, bytes per second; `None` if it is late.
    fn spare(&self, way: Duration, rate: f64) -> Option<Duration> {
        let leaves = Duration::try_from_secs_f64(self.size / rate.max(1.0)).ok()?;
        self.deadline.checked_sub(way.saturating_add(leaves))
    }

    /// Whether blocks with this deadline are about as urgent.
    fn is_as_urgent_as(&self, deadline: Duration) -> bool {
        let (known, new) = (self.deadline.as_secs_f64(), deadline.as_secs_f64());
        (known - new).abs() <= ALIKE * known.min(new)
    }
}

/// What was handed over lately that has a deadline.
#[derive(Debug, Default)]
pub(crate) struct Leeway(Vec<Kind>);

impl Leeway {
    /// A block with a deadline is handed over.
    pub(super) fn on_block(&mut self, now: Instant, deadline: Duration, priority: u8, size: u64) {
        let size = size as f64;
        if let Some(kind) = self.0.iter_mut().find(|kind| kind.priority == priority && kind.is_as_urgent_as(deadline)) {
            let is_new = !kind.lives(now);
            kind.deadline = if is_new { deadline } else { kind.deadline.min(deadline) };
            kind.size += (size - kind.size) * if is_new { 1.0 } else { WEIGHT };
            kind.pause = now.saturating_duration_since(kind.last);
            kind.last = now;
            return;
        }
        if self.0.len() >= MOST_KINDS
            && let Some(oldest) = (0..self.0.len()).min_by_key(|&index| self.0[index].last)
        {
            self.0.swap_remove(oldest);
        }
        self.0.push(Kind { deadline, priority, size, last: now, pause: Duration::ZERO });
    }

    /// Those of `paths` that a block of this deadline and priority had better leave to others: to kinds with a shorter deadline, and no less important, that would be late on some of
    /// these paths. They have no other, and it may have.
    pub(crate) fn wanted<'a>(
        &self,
        now: Instant,
        deadline: Duration,
        priority: u8,
        paths: impl Iterator<Item = &'a PathView> + Clone,
    ) -> PathSet {
        let mut wanted = PathSet::default();
        // One kind has nobody to make way for.
        if self.0.len() < 2 {
            return wanted;
        }
        let rate: f64 = paths.clone().map(|path| path.rate).sum();
        let needs_more = |kind: &&Kind| {
            let is_more_urgent = kind.deadline < deadline && !kind.is_as_urgent_as(deadline);
            is_more_urgent && kind.priority <= priority && kind.lives(now)
        };
        for kind in self.0.iter().filter(needs_more) {
            let reaches = |path: &PathView| {
                let takes = path.min_one_way_delay.saturating_add(path.spread);
                kind.spare(takes, rate).is_some()
            };
            if !paths.clone().all(reaches) {
                paths.clone().filter(|path| reaches(path)).for_each(|path| wanted.push(path.id));
            }
        }
        wanted
    }

    /// How long a queue something of this priority that has no deadline may leave on a path; `None` if nobody minds: nothing with a deadline that is as important
    /// was handed over lately, or it could not be in time on this path. `rate`: of all paths together, bytes per second.
    /// `others`: the queue that others keep up there; what it takes is to spare for nobody, and who could not be in time behind it does not mind.
    pub(crate) fn on(
        &self,
        now: Instant,
        path: &PathView,
        others: Duration,
        rate: f64,
        priority: u8,
    ) -> Option<Duration> {
        let minds = |kind: &&Kind| kind.priority <= priority && kind.lives(now);
        let spare = |kind: &Kind| kind.spare(path.min_one_way_delay.saturating_add(others), rate);
        self.0.iter().filter(minds).filter_map(spare).min().map(|spare| others.saturating_add(spare.mul_f64(SHARE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PathId;

    const MS: Duration = Duration::from_millis(1);

    /// A path of 10 ms, and what may be left there at 1 MB/s.
    fn on(leeway: &Leeway, now: Instant, priority: u8) -> Option<Duration> {
        let path = PathView { min_one_way_delay: MS * 10, ..PathView::new(PathId(0), 1e6, MS * 20) };
        leeway.on(now, &path, Duration::ZERO, 1e6, priority)
    }

    #[test]
    fn the_least_that_anybody_can_spare_counts_and_only_of_those_that_are_as_important() {
        let start = Instant::now();
        let mut leeway = Leeway::default();
        assert_eq!(on(&leeway, start, 9), None, "nobody has a deadline");
        leeway.on_block(start, MS * 100, 2, 10_000);
        assert_eq!(on(&leeway, start, 9), Some(MS * 10), "an eighth of 100 − 10 − 10");
        assert_eq!(on(&leeway, start, 1), None, "it is more important itself");
        leeway.on_block(start, MS * 40, 5, 6_000);
        assert_eq!(on(&leeway, start, 9), Some(MS * 3));
        assert_eq!(on(&leeway, start, 4), Some(MS * 10));
        leeway.on_block(start, MS * 9, 0, 100);
        assert_eq!(on(&leeway, start, 9), Some(MS * 3), "which is too late here anyway");
    }

    #[test]
    fn a_path_is_wanted_by_who_is_more_urgent_and_late_on_another() {
        const NONE: [u32; 0] = [];
        let now = Instant::now();
        let with = |id, millis| PathView {
            spread: MS,
            min_one_way_delay: MS * millis,
            ..PathView::new(PathId(id), 1e6, MS * 20)
        };
        let (short, long) = (with(0, 10), with(1, 60));
        let mut leeway = Leeway::default();
        let wanted = |leeway: &Leeway, deadline: u32, priority, paths: &[PathView]| {
            let paths = leeway.wanted(now, MS * deadline, priority, paths.iter());
            paths.iter().map(|path| path.0).collect::<Vec<_>>()
        };
        leeway.on_block(now, MS * 30, 2, 10_000);
        leeway.on_block(now, MS * 150, 2, 10_000);
        assert_eq!(wanted(&leeway, 150, 2, &[short, long]), [0]);
        assert_eq!(wanted(&leeway, 30, 2, &[short, long]), NONE, "nobody is more urgent");
        assert_eq!(wanted(&leeway, 33, 2, &[short, long]), NONE, "that is as urgent");
        assert_eq!(wanted(&leeway, 150, 1, &[short, long]), NONE, "it is more important");
        assert_eq!(wanted(&leeway, 150, 2, &[short, with(1, 12)]), NONE, "any will do");
        assert_eq!(wanted(&leeway, 150, 2, &[with(0, 40), long]), NONE, "none will do");
        // The 5 ms that 10 kB take to leave at 2 MB/s and the spread are part of it.
        assert_eq!(wanted(&leeway, 150, 2, &[with(0, 24), long]), [0]);
        assert_eq!(wanted(&leeway, 150, 2, &[with(0, 25), long]), NONE);
    }

    #[test]
    fn it_counts_for_two_seconds_or_for_as_long_as_it_is_rare() {
        let start = Instant::now();
        let mut leeway = Leeway::default();
        leeway.on_block(start, MS * 50, 0, 0);
        assert_eq!(on(&leeway, start + MS * 2_000, 0), Some(MS * 5));
        assert_eq!(on(&leeway, start + MS * 2_001, 0), None);
        leeway.on_block(start + MS * 5_000, MS * 51, 0, 0);
        assert_eq!(on(&leeway, start + MS * 15_000, 0), Some(MS * 41 / 8), "what was before is forgotten");
        assert_eq!(on(&leeway, start + MS * 15_001, 0), None);
        leeway.on_block(start + MS * 3_600_000, MS * 51, 0, 0);
        assert!(on(&leeway, start + MS * 3_659_000, 0).is_some());
        assert_eq!(on(&leeway, start + MS * 3_661_000, 0), None, "a minute at most");
    }

    #[test]
    fn kinds_are_bounded_and_the_latest_are_known() {
        let start = Instant::now();
        let mut leeway = Leeway::default();
        for n in 0..1_000 {
            leeway.on_block(start + MS * n, MS * (20 + n), (n % 256) as u8, u64::from(n));
        }
        assert_eq!(leeway.0.len(), MOST_KINDS);
        leeway.on_block(start + MS * 1_000, MS * 20, 255, u64::MAX);
        leeway.on_block(start + MS * 1_000, Duration::MAX, 255, 0);
        assert_eq!(leeway.0.len(), MOST_KINDS);
        assert!(on(&leeway, start + MS * 1_000, 255).is_some());
    }
}
