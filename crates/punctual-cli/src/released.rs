//! How exactly blocks were given out that had to wait for their time (`recv --latency`, `send --latency`).

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use punctual::ReceivedBlock;
use serde::Serialize;

use crate::stats::quantile_ms;

/// Of the blocks that had a time to be given out at, by this host's clock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReleasedFigures {
    /// Blocks that waited for their time,
    pub(crate) waited: u64,
    /// that were whole only after it and given out as they came,
    pub(crate) late: u64,
    /// and that were passed over.
    pub(crate) skipped: u64,
    /// How much later than their time those that waited reached the writer of the output: what this host adds itself.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) max_ms: Option<f64>,
}

/// Counts blocks as they are given out.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    late: u64,
    /// Microseconds later than the time that they waited for.
    behind: Option<Histogram<u64>>,
}

impl Releases {
    /// A block is given out `now`.
    pub(crate) fn note(&mut self, block: &ReceivedBlock, now: Instant) {
        let Some(due) = block.play_at else { return };
        if block.completed_at > due {
            self.late += 1;
            return;
        }
        if self.behind.is_none() {
            let made = Histogram::new(3).ok();
            self.behind = made.map(|mut histogram| {
                histogram.auto(true);
                histogram
            });
        }
        let behind = now.saturating_duration_since(due);
        // A histogram that resizes itself takes every value.
        if let Some(histogram) = &mut self.behind {
            let _ = histogram.record(micros(behind));
        }
    }

    /// What came of it; `None` if no block had a time.
    pub(crate) fn figures(&self, skipped: u64) -> Option<ReleasedFigures> {
        let behind = self.behind.as_ref();
        if behind.is_none() && self.late == 0 && skipped == 0 {
            return None;
        }
        let quantile = |quantile| behind.and_then(|behind| quantile_ms(behind, quantile));
        Some(ReleasedFigures {
            waited: behind.map_or(0, Histogram::len),
            late: self.late,
            skipped,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            max_ms: quantile(1.0),
        })
    }
}

impl ReleasedFigures {
    /// In words, behind others.
    pub(crate) fn summary(&self) -> String {
        let Self { waited, late, skipped, .. } = self;
        let behind = self.p99_ms.map_or_else(String::new, |p99| format!(" (p99 {p99:.1} ms behind it)"));
        format!("; given out: {waited} at their time{behind}, {late} after it, {skipped} skipped")
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
