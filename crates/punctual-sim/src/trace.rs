//! Recorded networks: Mahimahi's delivery opportunities and the traces of the AItrans challenge.

use std::{sync::Arc, time::Duration};

use thiserror::Error;

use crate::{loss::Loss, rate::Rate, schedule::Schedule, spec::LinkSpec};

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TraceError {
    /// A line that does not read as it should.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What was expected.
        what: &'static str,
    },
    /// Nothing in it, or nothing but time zero.
    #[error("the trace is empty")]
    Empty,
}

/// A cellular link as Mahimahi records it: the milliseconds at which it can carry 1,504 bytes.
///
/// Each line of a trace is one such opportunity. One that finds the queue empty is lost; several small packets share
/// one, and a packet that does not fit goes on with the next, all as Mahimahi's `mm-link` does it. The trace repeats
/// when it ends: its last line is its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opportunities {
    /// In ascending order.
    times: Arc<[Duration]>,
    period: Duration,
}

impl Opportunities {
    /// Bytes one opportunity carries, IP headers included.
    pub const BYTES: u32 = 1504;

    /// Reads a Mahimahi trace.
    ///
    /// # Errors
    /// If a line is not a number, or smaller than the one before, or there is no period to repeat.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut times = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let error = |what| TraceError::Line { line: index + 1, what };
            let time = Duration::from_millis(line.trim().parse().map_err(|_| error("expected milliseconds"))?);
            if times.last().is_some_and(|last| time < *last) {
                return Err(error("time runs backwards"));
            }
            times.push(time);
        }
        let period = times.last().copied().filter(|last| !last.is_zero()).ok_or(TraceError::Empty)?;
        Ok(Self { times: times.into(), period })
    }

    /// The same recording, begun this far into it.
    pub fn begun_at(&self, offset: Duration) -> Self {
        let phase = Duration::from_nanos((offset.as_nanos() % self.period.as_nanos()) as u64);
        // An opportunity at the very beginning is the last of the repetition before.
        let first = self.times.partition_point(|at| *at <= phase);
        let late = self.times[first..].iter().map(|at| *at - phase);
        let early = self.times[..first].iter().map(|at| *at + self.period - phase);
        Self { times: late.chain(early).collect(), period: self.period }
    }

    /// When opportunities come within one period, in ascending order. The last is at its end, unless it was
    /// [begun](Self::begun_at) elsewhere.
    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// How long until it repeats.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Bits per second, on average.
    pub fn mean_rate(&self) -> f64 {
        (self.times.len() as f64 * f64::from(Self::BYTES) * 8.0) / self.period.as_secs_f64()
    }

    /// When the opportunity at `cursor` comes, counted from the start of the first repetition.
    pub(crate) fn time(&self, cursor: Cursor) -> Duration {
        self.period * cursor.cycle + self.times[cursor.index]
    }

    /// The first opportunity at or after `time`.
    pub(crate) fn seek(&self, time: Duration) -> Cursor {
        // The last opportunity of one repetition falls on the beginning of the next.
        let cycle = (time.as_nanos().saturating_sub(1) / self.period.as_nanos()) as u32;
        let phase = time - self.period * cycle;
        match self.times.partition_point(|at| *at < phase) {
            index if index == self.times.len() => Cursor { cycle: cycle + 1, index: 0 },
            index => Cursor { cycle, index },
        }
    }

    /// The one behind it.
    pub(crate) fn next(&self, cursor: Cursor) -> Cursor {
        if cursor.index + 1 == self.times.len() {
            Cursor { cycle: cursor.cycle + 1, index: 0 }
        } else {
            Cursor { index: cursor.index + 1, ..cursor }
        }
    }
}

/// A place in a repeating trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Cursor {
    cycle: u32,
    index: usize,
}

/// One line of an AItrans trace: the network from `at` on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AitransRow {
    /// Since the start.
    pub at: Duration,
    /// Bits per second.
    pub rate: u64,
    /// Probability of loss, of each packet by itself.
    pub loss: f64,
    /// One way.
    pub delay: Duration,
}

/// Reads a network trace of the AItrans challenge: `t_s,megabytes_per_s,loss,one_way_delay_s`, a megabyte being 10⁶
/// bytes.
///
/// # Errors
/// If a line does not hold four numbers in their ranges, or times do not ascend.
pub fn parse_aitrans(text: &str) -> Result<Vec<AitransRow>, TraceError> {
    let mut rows: Vec<AitransRow> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let error = |what| TraceError::Line { line: index + 1, what };
        let numbers: Vec<f64> = line.split(',').map_while(|field| field.trim().parse().ok()).collect();
        let &[at, rate, loss, delay] = numbers.as_slice() else { return Err(error("expected four numbers")) };
        let time = |secs| Duration::try_from_secs_f64(secs).map_err(|_| error("a time that cannot be"));
        if !(0.0..=1.0).contains(&loss) || !(0.0..1e6).contains(&rate) {
            return Err(error("a rate or a loss that cannot be"));
        }
        let row = AitransRow { at: time(at)?, rate: (rate * 8e6).round() as u64, loss, delay: time(delay)? };
        if rows.last().is_some_and(|last| row.at <= last.at) {
            return Err(error("time does not advance"));
        }
        rows.push(row);
    }
    if rows.is_empty() { Err(TraceError::Empty) } else { Ok(rows) }
}

/// A link that behaves as the trace says: rate, loss and delay as schedules. It repeats when it ends, its last row
/// lasting as long as the one before it.
///
/// # Errors
/// As [`parse_aitrans`].
pub fn aitrans_link(text: &str) -> Result<LinkSpec, TraceError> {
    let rows = parse_aitrans(text)?;
    let last = rows[rows.len() - 1].at;
    let lasts = rows.len().checked_sub(2).map_or(Duration::ZERO, |before| last - rows[before].at);
    let period = last + lasts;
    fn schedule<T>(rows: &[AitransRow], period: Duration, value: impl Fn(&AitransRow) -> T) -> Schedule<T> {
        let first = Schedule::fixed(value(&rows[0]));
        rows[1..].iter().fold(first, |schedule, row| schedule.then(row.at, value(row))).repeat_every(period)
    }
    Ok(LinkSpec {
        rate: Rate::Steps(schedule(&rows, period, |row| row.rate)),
        delay: schedule(&rows, period, |row| row.delay),
        loss: schedule(&rows, period, |row| Loss::Bernoulli(row.loss)),
        ..LinkSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn mahimahi_repeats() {
        let trace = Opportunities::parse("2\n2\n5\n10\n").unwrap();
        assert_eq!(trace.period(), ms(10));
        assert!((trace.mean_rate() - 4.0 * 1504.0 * 8.0 * 100.0).abs() < 1e-6);
        let mut cursor = trace.seek(ms(0));
        let mut times = Vec::new();
        for _ in 0..9 {
            times.push(trace.time(cursor).as_millis());
            cursor = trace.next(cursor);
        }
        assert_eq!(times, [2, 2, 5, 10, 12, 12, 15, 20, 22]);
    }

    #[test]
    fn seeks_to_the_next_opportunity() {
        let trace = Opportunities::parse("0\n5\n10\n").unwrap();
        for (from, to) in [(0, 0), (1, 5), (5, 5), (6, 10), (10, 10), (11, 15), (15, 15), (1234, 1235)] {
            assert_eq!(trace.time(trace.seek(ms(from))), ms(to), "{from}");
        }
        // At 10 ms there are two: the last of the first repetition and the first of the second.
        let cursor = trace.seek(ms(10));
        assert_eq!(trace.time(trace.next(cursor)), ms(10));
    }

    #[test]
    fn a_recording_can_begin_anywhere() {
        let trace = Opportunities::parse("2\n2\n5\n10\n").unwrap();
        let times = |trace: &Opportunities, from| {
            let cursors = std::iter::successors(Some(trace.seek(from)), |cursor| Some(trace.next(*cursor)));
            cursors.take(9).map(|cursor| trace.time(cursor)).collect::<Vec<_>>()
        };
        for offset in [0, 1, 2, 4, 9, 10, 13].map(ms) {
            let begun = trace.begun_at(offset);
            assert_eq!((begun.period(), begun.times().len()), (ms(10), 4));
            // Not from the very beginning, at which what was there is over.
            for from in 1..25 {
                let expected: Vec<_> = times(&trace, offset + ms(from)).into_iter().map(|at| at - offset).collect();
                assert_eq!(times(&begun, ms(from)), expected, "{offset:?} {from}");
            }
        }
    }

    #[test]
    fn bad_traces_are_refused() {
        assert_eq!(Opportunities::parse(""), Err(TraceError::Empty));
        assert_eq!(Opportunities::parse("0\n0\n"), Err(TraceError::Empty));
        assert!(matches!(Opportunities::parse("1\nx\n"), Err(TraceError::Line { line: 2, .. })));
        assert!(matches!(Opportunities::parse("5\n4\n"), Err(TraceError::Line { line: 2, .. })));
        assert!(parse_aitrans("0,1,0").is_err());
        assert!(parse_aitrans("0,1,2,0.1").is_err());
        assert!(parse_aitrans("0,1,0,-1").is_err());
        assert!(parse_aitrans("1,1,0,0.1\n1,1,0,0.1").is_err());
        assert_eq!(parse_aitrans("\n"), Err(TraceError::Empty));
    }

    #[test]
    fn aitrans_becomes_schedules() {
        let spec = aitrans_link("0,0.5,0,0.02\n1,2,0.01,0.03\n2,1,0,0.02\n").unwrap();
        let Rate::Steps(rate) = &spec.rate else { panic!("not a schedule") };
        assert_eq!(*rate.at(ms(500)), 4_000_000);
        assert_eq!(*rate.at(ms(1500)), 16_000_000);
        assert_eq!(*rate.at(ms(2999)), 8_000_000);
        assert_eq!(*rate.at(ms(3000)), 4_000_000);
        assert_eq!(*spec.delay.at(ms(1000)), ms(30));
        assert_eq!(*spec.loss.at(ms(1000)), Loss::Bernoulli(0.01));
    }
}
