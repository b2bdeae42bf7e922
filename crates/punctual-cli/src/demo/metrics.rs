//! The figures of a run, from what was recorded of each frame. The same rule for every run.
//!
//! - A frame is **ready** when it and every frame it refers to are with the receiver: a P frame is of no use before the I frame
//!   it builds on. Its **delay** is counted from its hand-over to the transport. A frame that never became ready has no delay.
//! - It is **on time** if its delay is at most the deadline.
//! - Play-out lags the hand-over by the deadline. A **stall** begins when a frame is not ready at its play-out
//!   instant, and lasts as long as the frames after it are not either: several in a row are one stall.
//! - Percentiles are over all frames, those that were never ready counting as infinitely late.

use std::time::Duration;

use hdrhistogram::Histogram;
use punctual_eval::h264::AccessUnit;

use super::stage::{Recording, Times};

/// A run in figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Summary {
    pub(crate) frames: usize,
    /// Share of frames on time, 0 to 1.
    pub(crate) on_time: f64,
    /// Half of the frames had at most this delay; `None` if infinite.
    pub(crate) p50: Option<Duration>,
    /// 99 % of the frames had at most this delay; `None` if infinite.
    pub(crate) p99: Option<Duration>,
    pub(crate) stalls: usize,
    /// Frames in the longest stall.
    pub(crate) longest_stall: usize,
    /// Frames that were never ready.
    pub(crate) missing: usize,
    /// UDP payload bytes from the client, on all paths.
    pub(crate) bytes_sent: u64,
}

/// When each frame was ready, counted from the beginning of the clip.
pub(crate) fn ready(frames: &[AccessUnit], times: &[Times]) -> Vec<Option<Duration>> {
    let mut ready: Vec<Option<Duration>> = Vec::with_capacity(frames.len());
    for (frame, times) in frames.iter().zip(times) {
        let needed = frame.dependencies.iter().map(|&on| ready.get(on as usize).copied().flatten());
        // None is less than Some: a missing frame must make this one missing, so fold by hand.
        ready.push(needed.fold(times.arrived, |latest, on| Some(latest?.max(on?))));
    }
    ready
}

/// The delay of each frame.
pub(crate) fn delays(frames: &[AccessUnit], times: &[Times]) -> Vec<Option<Duration>> {
    let ready = ready(frames, times);
    times.iter().zip(ready).map(|(times, ready)| Some(ready?.saturating_sub(times.sent?))).collect()
}

/// The figures of a run with these delays.
pub(crate) fn summarize(delays: &[Option<Duration>], deadline: Duration, bytes_sent: u64) -> Summary {
    let late: Vec<bool> = delays.iter().map(|delay| delay.is_none_or(|delay| delay > deadline)).collect();
    let on_time = late.iter().filter(|late| !**late).count();
    let stalls: Vec<usize> = late.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect();
    Summary {
        frames: delays.len(),
        on_time: if delays.is_empty() { 1.0 } else { on_time as f64 / delays.len() as f64 },
        p50: percentile(delays, 0.50),
        p99: percentile(delays, 0.99),
        stalls: stalls.len(),
        longest_stall: stalls.into_iter().max().unwrap_or(0),
        missing: delays.iter().filter(|delay| delay.is_none()).count(),
        bytes_sent,
    }
}

impl Recording {
    /// UDP payload bytes from the client on all paths.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.carried.iter().map(crate::link::relay::Carried::bytes).sum()
    }
}

/// The smallest delay that a share `q` of all frames does not exceed; `None` if that takes frames without a delay.
fn percentile(delays: &[Option<Duration>], q: f64) -> Option<Duration> {
    let rank = ((q * delays.len() as f64).ceil() as u64).max(1);
    let mut histogram = Histogram::<u64>::new(3).ok()?;
    for delay in delays.iter().flatten() {
        histogram.record(u64::try_from(delay.as_micros()).ok()?).ok()?;
    }
    if rank > histogram.len() {
        return None;
    }
    // A little less than rank/len, so that rounding up inside the histogram ends at this rank.
    Some(Duration::from_micros(histogram.value_at_quantile((rank as f64 - 0.5) / histogram.len() as f64)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use punctual_eval::h264::{DisplayOrder, Kind};

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn frame(index: u64, dependencies: &[u64]) -> AccessUnit {
        AccessUnit {
            index,
            data: Bytes::new(),
            kind: Kind::Reference,
            dependencies: dependencies.to_vec(),
            idr: false,
            field: false,
            display: DisplayOrder { sequence: 0, count: 0 },
        }
    }

    fn times(sent: u64, arrived: Option<u64>) -> Times {
        Times { sent: Some(ms(sent)), arrived: arrived.map(ms) }
    }

    fn some(millis: &[u64]) -> Vec<Option<Duration>> {
        millis.iter().map(|&delay| Some(ms(delay))).collect()
    }

    #[test]
    fn a_frame_is_ready_with_the_last_of_those_it_needs() {
        let frames = [frame(0, &[]), frame(1, &[0]), frame(2, &[1]), frame(3, &[]), frame(4, &[3, 2])];
        let times =
            [times(0, Some(90)), times(33, Some(60)), times(66, None), times(100, Some(150)), times(133, Some(190))];
        assert_eq!(delays(&frames, &times), [Some(ms(90)), Some(ms(57)), None, Some(ms(50)), None]);
    }

    #[test]
    fn consecutive_late_frames_are_one_stall() {
        let mut delays = some(&[200, 10, 200, 200, 10, 10]);
        delays.extend([None, None]);
        let summary = summarize(&delays, ms(100), 7);
        assert_eq!((summary.stalls, summary.longest_stall), (3, 2));
        assert_eq!(summary.missing, 2);
        assert_eq!(summary.on_time, 3.0 / 8.0);
        assert_eq!(summary.bytes_sent, 7);
    }

    #[test]
    fn exactly_at_the_deadline_is_on_time() {
        assert_eq!(summarize(&some(&[100]), ms(100), 0).on_time, 1.0);
    }

    #[test]
    fn percentiles_count_missing_frames_as_infinitely_late() {
        let mut delays = some(&(1..=98).collect::<Vec<_>>());
        delays.extend([None, None]);
        let summary = summarize(&delays, ms(1_000), 0);
        assert_eq!(summary.p50.map(|p| p.as_millis()), Some(50));
        assert_eq!(summary.p99, None);
        delays.truncate(99);
        assert_eq!(summarize(&delays, ms(1_000), 0).p99, None);
        delays.truncate(98);
        assert_eq!(summarize(&delays, ms(1_000), 0).p99.map(|p| p.as_millis()), Some(98));
    }

    #[test]
    fn no_frames_no_percentiles() {
        let summary = summarize(&[], ms(100), 0);
        assert_eq!((summary.p50, summary.stalls, summary.on_time), (None, 0, 1.0));
    }
}
