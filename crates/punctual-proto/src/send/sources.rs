//! Periodic sources: when the next message of each is to be expected, and how large it will be.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use crate::{block::Channel, multipath::Turn};

/// Blocks of a channel before its period is believed, and the latest of which it is learnt.
const LEARNT_FROM: usize = 8;
const MEMORY: usize = 16;
/// The mean deviation of intervals from their median, as a share of that, from which on they are no period.
const IRREGULAR: f64 = 0.1;
/// Turns that may pass without a block before nothing more is expected.
const MISSES: u32 = 2;
/// The most sources that are kept.
const MOST: usize = 256;

/// What the application has said of a source.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Declared {
    every: Duration,
    size: u64,
}

/// A source: a channel and what is known of it.
#[derive(Debug, Default)]
struct Source {
    declared: Option<Declared>,
    deadline: Option<Duration>,
    priority: u8,
    last: Option<Instant>,
    intervals: VecDeque<Duration>,
    sizes: VecDeque<u64>,
}

impl Source {
    fn add(&mut self, begin: Instant, size: u64) {
        if let Some(last) = self.last {
            let interval = begin.saturating_duration_since(last);
            if self.period().is_some_and(|(every, _)| interval > every.saturating_mul(MISSES)) {
                // Whatever it was, it has ended; this may be the beginning of another.
                self.intervals.clear();
                self.sizes.clear();
            } else {
                self.intervals.push_back(interval);
            }
        }
        self.sizes.push_back(size);
        self.last = Some(begin);
        if self.sizes.len() > MEMORY {
            self.sizes.pop_front();
        }
        if self.intervals.len() >= MEMORY {
            self.intervals.pop_front();
        }
    }

    /// Its interval and the size of its blocks: as declared, or if they are regular, as they were. Of sizes the 95th percentile.
    fn period(&self) -> Option<(Duration, u64)> {
        if let Some(Declared { every, size }) = self.declared {
            return Some((every, size));
        }
        if self.sizes.len() < LEARNT_FROM || self.intervals.is_empty() {
            return None;
        }
        let mut intervals: Vec<f64> = self.intervals.iter().map(Duration::as_secs_f64).collect();
        intervals.sort_by(f64::total_cmp);
        let median = intervals[intervals.len() / 2];
        let deviation =
            intervals.iter().map(|interval| (interval - median).abs()).sum::<f64>() / intervals.len() as f64;
        if median <= 0.0 || deviation >= IRREGULAR * median {
            return None;
        }
        let mut sizes: Vec<u64> = self.sizes.iter().copied().collect();
        sizes.sort_unstable();
        let at = (sizes.len() * 95).div_ceil(100) - 1;
        Some((Duration::from_secs_f64(median), sizes[at]))
    }

    /// Its next turn. One that is overdue is due now.
    fn turn(&self, now: Instant) -> Option<Turn> {
        let (every, size) = self.period()?;
        let last = self.last?;
        // Of one that no clock will see none is due.
        let (at, over) = (last.checked_add(every)?, last.checked_add(every.saturating_mul(MISSES))?);
        if now > over {
            return None;
        }
        Some(Turn { at: at.max(now), every, size, deadline: self.deadline, priority: self.priority })
    }
}

/// The periodic sources of a sender.
#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<Channel, Source>);

impl Sources {
    /// The application says what to expect on a channel. An interval of nothing takes that back.
    pub(crate) fn declare(
        &mut self,
        channel: Channel,
        every: Duration,
        size: u64,
        deadline: Option<Duration>,
        priority: u8,
    ) {
        if let Some(source) = self.of(channel) {
            source.declared = (!every.is_zero()).then_some(Declared { every, size });
            (source.deadline, source.priority) = (deadline, priority);
        }
    }

    /// A block was handed over.
    pub(crate) fn on_block(
        &mut self,
        channel: Channel,
        begin: Instant,
        size: u64,
        deadline: Option<Duration>,
        priority: u8,
    ) {
        if let Some(source) = self.of(channel) {
            if source.declared.is_none() {
                (source.deadline, source.priority) = (deadline, priority);
            }
            source.add(begin, size);
        }
    }

    /// The source of a channel, a new one if there is room for it.
    fn of(&mut self, channel: Channel) -> Option<&mut Source> {
        let room = self.0.len() < MOST || self.0.contains_key(&channel);
        room.then(|| self.0.entry(channel).or_default())
    }

    /// The next turn of each, the soonest first.
    pub(crate) fn turns(&self, now: Instant, turns: &mut Vec<Turn>) {
        turns.clear();
        turns.extend(self.0.values().filter_map(|source| source.turn(now)));
        turns.sort_by_key(|turn| turn.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const CHANNEL: Channel = Channel(3);

    fn turn(sources: &Sources, now: Instant) -> Option<(Instant, u64)> {
        let mut turns = Vec::new();
        sources.turns(now, &mut turns);
        assert!(turns.len() <= 1);
        turns.first().map(|turn| (turn.at, turn.size))
    }

    #[test]
    fn a_declared_source_is_expected_from_its_first_block_until_it_misses_two_turns() {
        let start = Instant::now();
        let mut sources = Sources::default();
        sources.declare(CHANNEL, MS * 50, 10_000, None, 0);
        assert_eq!(turn(&sources, start), None);
        sources.on_block(CHANNEL, start, 9_000, None, 7);
        assert_eq!(turn(&sources, start + MS), Some((start + MS * 50, 10_000)));
        assert_eq!(turn(&sources, start + MS * 70), Some((start + MS * 70, 10_000)), "overdue");
        assert_eq!(turn(&sources, start + MS * 101), None);
        sources.on_block(CHANNEL, start + MS * 300, 9_000, None, 7);
        assert_eq!(turn(&sources, start + MS * 300), Some((start + MS * 350, 10_000)));
        sources.declare(CHANNEL, Duration::ZERO, 0, None, 0);
        assert_eq!(turn(&sources, start + MS * 300), None);
    }

    #[test]
    fn a_source_that_never_comes_again_is_not_expected() {
        let start = Instant::now();
        let mut sources = Sources::default();
        sources.declare(CHANNEL, Duration::MAX, 10_000, None, 0);
        for n in 0..3 {
            sources.on_block(CHANNEL, start + MS * n, 9_000, None, 7);
            assert_eq!(turn(&sources, start + MS * n), None);
        }
    }

    #[test]
    fn a_regular_channel_is_predicted_after_eight_blocks() {
        let start = Instant::now();
        let mut sources = Sources::default();
        for n in 0..8 {
            assert_eq!(turn(&sources, start + MS * 40 * n), None, "{n}");
            // A millisecond early or late.
            let jitter = if n % 2 == 0 { MS } else { Duration::ZERO };
            sources.on_block(CHANNEL, start + MS * 40 * n + jitter, 1_000 + u64::from(n), None, 1);
        }
        let (at, size) = turn(&sources, start + MS * 281).unwrap();
        assert_eq!(size, 1_007);
        let late = at.saturating_duration_since(start + MS * 320);
        assert!(late <= MS * 2, "{late:?}");
        // After a gap it begins anew.
        sources.on_block(CHANNEL, start + MS * 500, 1_000, None, 1);
        assert_eq!(turn(&sources, start + MS * 500), None);
    }

    #[test]
    fn what_comes_at_any_time_is_not() {
        let start = Instant::now();
        let mut sources = Sources::default();
        for (n, at) in (0..).zip([0, 10, 45, 50, 100, 120, 170, 171, 230, 240, 300]) {
            sources.on_block(CHANNEL, start + MS * at, 1_000, None, 1);
            assert_eq!(turn(&sources, start + MS * at), None, "{n}");
        }
    }
}
