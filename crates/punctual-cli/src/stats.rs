//! Figures of a session under way and at its end, for people and for programs.

use std::{
    io::IsTerminal as _,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use punctual::{Outcome, PathStats, ReceivedBlock};
use serde::Serialize;

use crate::cli::CommonArgs;

/// Counts blocks as they end. Clones count together.
#[derive(Clone)]
pub(crate) struct Tally(Arc<Mutex<Counts>>);

struct Counts {
    began: Instant,
    blocks: u64,
    on_time: u64,
    late: u64,
    dropped: u64,
    bytes: u64,
    /// Microseconds from hand-over to delivery.
    delays: Histogram<u64>,
}

/// The figures at a moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Since the session began.
    pub(crate) seconds: f64,
    /// Handed over by the sender, as far as this side knows.
    pub(crate) blocks: u64,
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    /// Of the blocks delivered.
    pub(crate) bytes: u64,
    /// Of the blocks delivered; null if there are none, or if the clocks could not be compared.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) paths: Vec<PathFigures>,
}

/// A path's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PathFigures {
    pub(crate) name: String,
    pub(crate) rtt_ms: f64,
    /// Lately, 0 to 1.
    pub(crate) loss: f64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
}

impl Default for Tally {
    fn default() -> Self {
        // Three digits between a microsecond and some weeks; such bounds are always valid.
        let mut delays = Histogram::new(3).expect("three significant digits are possible");
        delays.auto(true);
        let counts = Counts { began: Instant::now(), blocks: 0, on_time: 0, late: 0, dropped: 0, bytes: 0, delays };
        Self(Arc::new(Mutex::new(counts)))
    }
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A block was read at the sender.
    pub(crate) fn handed_over(&self) {
        self.lock().blocks += 1;
    }

    /// A block was given up before it was accepted.
    pub(crate) fn given_up(&self) {
        self.lock().dropped += 1;
    }

    /// A block ended at the sender.
    pub(crate) fn ended(&self, outcome: &Outcome, size: u64) {
        match outcome {
            Outcome::Delivered(delivery) => self.lock().delivered(Some(delivery.completion), delivery.on_time(), size),
            Outcome::Dropped { .. } => self.given_up(),
        }
    }

    /// A block arrived at the receiver.
    pub(crate) fn received(&self, block: &ReceivedBlock) {
        let mut counts = self.lock();
        counts.blocks += 1;
        let on_time = block.delta().is_none_or(|delta| !delta.is_late());
        counts.delivered(block.completion, on_time, block.data.len() as u64);
    }

    /// A block that will never arrive at the receiver.
    pub(crate) fn peer_dropped(&self) {
        let mut counts = self.lock();
        counts.blocks += 1;
        counts.dropped += 1;
    }

    /// The figures now. `name` names paths.
    pub(crate) fn figures(&self, paths: &[PathStats], name: impl Fn(&PathStats) -> String) -> Figures {
        let counts = self.lock();
        let quantile = |q| (!counts.delays.is_empty()).then(|| counts.delays.value_at_quantile(q) as f64 / 1e3);
        Figures {
            seconds: (counts.began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            blocks: counts.blocks,
            on_time: counts.on_time,
            late: counts.late,
            dropped: counts.dropped,
            bytes: counts.bytes,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            paths: paths
                .iter()
                .map(|path| PathFigures {
                    name: name(path),
                    rtt_ms: (path.rtt.as_secs_f64() * 1e5).round() / 100.0,
                    loss: path.loss,
                    bytes_sent: path.bytes_sent,
                    bytes_received: path.bytes_received,
                })
                .collect(),
        }
    }
}

impl Counts {
    fn delivered(&mut self, delay: Option<Duration>, on_time: bool, size: u64) {
        if on_time {
            self.on_time += 1;
        } else {
            self.late += 1;
        }
        self.bytes += size;
        if let Some(delay) = delay {
            // A histogram that resizes itself takes every value.
            let _ = self.delays.record(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX));
        }
    }
}

impl Figures {
    /// Blocks that were not delivered on time.
    pub(crate) fn missed(&self) -> u64 {
        self.late + self.dropped
    }

    /// The counts in words.
    pub(crate) fn counts(&self) -> String {
        let noun = if self.blocks == 1 { "block" } else { "blocks" };
        let Self { blocks, on_time, late, dropped, .. } = self;
        format!("{blocks} {noun}: {on_time} on time, {late} late, {dropped} dropped")
    }

    /// The line at the end.
    pub(crate) fn summary(&self) -> String {
        let delays = match (self.p50_ms, self.p99_ms) {
            (Some(p50), Some(p99)) => format!("; delay p50 {p50:.0} ms, p99 {p99:.0} ms"),
            _ => String::new(),
        };
        format!("{}{delays}; {:.2} MB in {:.1} s", self.counts(), self.bytes as f64 / 1e6, self.seconds)
    }

    /// The line while it runs.
    fn line(&self) -> String {
        let paths: String = self
            .paths
            .iter()
            .map(|path| {
                let bytes = path.bytes_sent.max(path.bytes_received) as f64 / 1e6;
                format!(" | {} {bytes:.2} MB, rtt {:.0} ms, loss {:.1} %", path.name, path.rtt_ms, path.loss * 100.0)
            })
            .collect();
        format!("{:.0} s  {}{paths}", self.seconds, self.counts())
    }
}

/// Shows figures once a second, to whoever wants them.
pub(crate) struct Display {
    bar: Option<ProgressBar>,
    json: bool,
}

impl Display {
    pub(crate) fn new(common: &CommonArgs) -> Self {
        let terminal = !common.quiet && !common.stats_json && std::io::stderr().is_terminal();
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(
                ProgressStyle::with_template("{spinner} {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar
        });
        Self { bar, json: common.stats_json }
    }

    /// Shows what `figures` gives, once a second, and never returns.
    pub(crate) async fn run(&self, figures: impl Fn() -> Figures) {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        // The first tick is at once, when there is nothing to show.
        tick.tick().await;
        loop {
            tick.tick().await;
            let figures = figures();
            if let Some(bar) = &self.bar {
                bar.set_message(figures.line());
                bar.tick();
            }
            if self.json
                && let Ok(json) = serde_json::to_string(&figures)
            {
                eprintln!("{json}");
            }
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints the end of a session as it was asked for.
pub(crate) fn conclude(common: &CommonArgs, figures: &Figures) {
    if common.json {
        if let Ok(json) = serde_json::to_string(figures) {
            println!("{json}");
        }
    } else if !common.quiet {
        eprintln!("{}", figures.summary());
    }
}

#[cfg(test)]
mod tests {
    use punctual::{Delivery, Delta, DropReason};

    use super::*;

    #[test]
    fn every_end_is_counted_once() {
        let tally = Tally::default();
        let delivered = |ms, late| {
            let delta = Delta::from_micros(if late { 1 } else { 0 });
            Outcome::Delivered(Delivery { completion: Duration::from_millis(ms), delta: Some(delta), good_bytes: 10 })
        };
        for outcome in [
            delivered(20, false),
            delivered(30, false),
            delivered(200, true),
            Outcome::Dropped { reason: DropReason::Expired, good_bytes: 0 },
        ] {
            tally.handed_over();
            tally.ended(&outcome, 10);
        }
        tally.handed_over();
        tally.given_up();
        let figures = tally.figures(&[], |_| unreachable!());
        assert_eq!([figures.blocks, figures.on_time, figures.late, figures.dropped], [5, 2, 1, 2]);
        assert_eq!((figures.missed(), figures.bytes), (3, 30));
        assert_eq!(figures.p50_ms.map(f64::round), Some(30.0));
        assert!(figures.summary().starts_with("5 blocks: 2 on time, 1 late, 2 dropped; delay p50 30 ms"));
    }

    #[test]
    fn without_blocks_there_are_no_delays() {
        let figures = Tally::default().figures(&[], |_| unreachable!());
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!((&json["p50_ms"], &json["blocks"]), (&serde_json::Value::Null, &0.into()));
    }
}
