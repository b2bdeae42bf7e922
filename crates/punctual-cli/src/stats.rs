//! Figures of a session under way and at its end, for people and for programs.

use std::{
    io::IsTerminal as _,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use punctual::{Outcome, PathStats, ReceivedBlock, SessionStats};
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
    /// What was sent for the blocks, and what of it was of use; null at the receiver.
    pub(crate) sent: Option<SentFigures>,
    pub(crate) paths: Vec<PathFigures>,
}

/// Bytes sent for blocks, over all paths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct SentFigures {
    /// For the first time.
    pub(crate) source_bytes: u64,
    /// Again, after a loss.
    pub(crate) resent_bytes: u64,
    /// As copies of what was in flight elsewhere.
    pub(crate) copied_bytes: u64,
    /// As repair fragments.
    pub(crate) repair_bytes: u64,
    /// Of blocks that were of no use in the end: dropped, or late.
    pub(crate) wasted_bytes: u64,
    /// Lost, and restored by repair fragments.
    pub(crate) restored_bytes: u64,
    /// Lost, and there when sent again.
    pub(crate) resend_regained_bytes: u64,
    /// Lost, and there as a copy.
    pub(crate) copy_regained_bytes: u64,
    /// Lost for good.
    pub(crate) never_regained_bytes: u64,
}

impl From<&SessionStats> for SentFigures {
    fn from(stats: &SessionStats) -> Self {
        Self {
            source_bytes: stats.source_bytes,
            resent_bytes: stats.resent_bytes,
            copied_bytes: stats.copied_bytes,
            repair_bytes: stats.repair_bytes,
            wasted_bytes: stats.wasted_bytes,
            restored_bytes: stats.restored_bytes,
            resend_regained_bytes: stats.resend_regained_bytes,
            copy_regained_bytes: stats.copy_regained_bytes,
            never_regained_bytes: stats.never_regained_bytes,
        }
    }
}

impl SentFigures {
    /// Redundancy in words, if there was any: repair fragments and copies, what they restored, and what was sent for nothing.
    fn summary(&self) -> String {
        let megabytes = |bytes: u64, what: &str| match bytes {
            0 => String::new(),
            bytes => format!(", {:.2} MB {what}", bytes as f64 / 1e6),
        };
        let parts = [
            (self.resent_bytes, "sent again"),
            (self.copied_bytes, "of copies"),
            (self.repair_bytes, "of repair"),
            (self.restored_bytes, "restored"),
            (self.wasted_bytes, "wasted"),
        ];
        let text: String = parts.map(|(bytes, what)| megabytes(bytes, what)).concat();
        text.strip_prefix(", ").map_or_else(String::new, |text| format!("; {text}"))
    }
}

/// A path's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PathFigures {
    pub(crate) name: String,
    pub(crate) rtt_ms: f64,
    /// Lately, 0 to 1.
    pub(crate) loss: f64,
    /// Packets lost on end, on average.
    pub(crate) loss_burst: f64,
    /// Of blocks: for the first time, again, as copies, as repair fragments.
    pub(crate) source_bytes: u64,
    pub(crate) resent_bytes: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) repair_bytes: u64,
    /// All UDP payload.
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

    /// A block ended at the sender, which was to be there within `deadline`.
    pub(crate) fn ended(&self, outcome: &Outcome, deadline: Option<Duration>, size: u64) {
        match outcome {
            Outcome::Delivered(delivery) => {
                let on_time = deadline.is_none_or(|deadline| delivery.completion <= deadline);
                self.lock().delivered(Some(delivery.completion), on_time, size);
            }
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

    /// The receiver turned the session away, and kept nothing of it, whatever it had said of blocks before.
    pub(crate) fn refused(&self) {
        let mut counts = self.lock();
        counts.dropped += counts.on_time + counts.late;
        (counts.on_time, counts.late, counts.bytes) = (0, 0, 0);
        counts.delays.reset();
    }

    /// The figures now; `sent` is the sender's session. `name` names paths.
    pub(crate) fn figures(
        &self,
        sent: Option<&SessionStats>,
        paths: &[PathStats],
        name: impl Fn(&PathStats) -> String,
    ) -> Figures {
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
            sent: sent.map(SentFigures::from),
            paths: paths
                .iter()
                .map(|path| PathFigures {
                    name: name(path),
                    rtt_ms: (path.rtt.as_secs_f64() * 1e5).round() / 100.0,
                    loss: path.loss,
                    loss_burst: path.loss_burst,
                    source_bytes: path.source_bytes,
                    resent_bytes: path.resent_bytes,
                    copied_bytes: path.copied_bytes,
                    repair_bytes: path.repair_bytes,
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

    /// With the blocks that the peer has dropped, of which a receiver's tally knows nothing.
    pub(crate) fn with_peer_dropped(mut self, dropped: u64) -> Self {
        self.blocks += dropped;
        self.dropped += dropped;
        self
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
        let sent = self.sent.as_ref().map_or_else(String::new, SentFigures::summary);
        format!("{}{delays}; {:.2} MB in {:.1} s{sent}", self.counts(), self.bytes as f64 / 1e6, self.seconds)
    }

    /// The line while it runs.
    fn line(&self) -> String {
        let paths: String = self
            .paths
            .iter()
            .map(|path| {
                let bytes = path.bytes_sent.max(path.bytes_received) as f64 / 1e6;
                let repair = match path.repair_bytes {
                    0 => String::new(),
                    repair => format!(", repair {:.2} MB", repair as f64 / 1e6),
                };
                let (rtt, loss) = (path.rtt_ms, path.loss * 100.0);
                format!(" | {} {bytes:.2} MB{repair}, rtt {rtt:.0} ms, loss {loss:.1} %", path.name)
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
    use punctual::{Delivery, DropReason};

    use super::*;

    #[test]
    fn every_end_is_counted_once() {
        let tally = Tally::default();
        let deadline = Duration::from_millis(100);
        let delivered =
            |ms| Outcome::Delivered(Delivery { completion: Duration::from_millis(ms), delta: None, good_bytes: 10 });
        for outcome in [
            delivered(20),
            delivered(30),
            delivered(200),
            Outcome::Dropped { reason: DropReason::Expired, good_bytes: 0 },
        ] {
            tally.handed_over();
            tally.ended(&outcome, Some(deadline), 10);
        }
        tally.handed_over();
        tally.given_up();
        let figures = tally.figures(None, &[], |_| unreachable!());
        assert_eq!([figures.blocks, figures.on_time, figures.late, figures.dropped], [5, 2, 1, 2]);
        assert_eq!((figures.missed(), figures.bytes), (3, 30));
        assert_eq!(figures.p50_ms.map(f64::round), Some(30.0));
        assert!(figures.summary().starts_with("5 blocks: 2 on time, 1 late, 2 dropped; delay p50 30 ms"));
    }

    #[test]
    fn without_blocks_there_are_no_delays() {
        let figures = Tally::default().figures(None, &[], |_| unreachable!());
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!((&json["p50_ms"], &json["blocks"]), (&serde_json::Value::Null, &0.into()));
        assert!(json["sent"].is_null(), "a receiver has sent no blocks");
    }

    #[test]
    fn redundancy_is_told_where_there_was_any() {
        let summary = |stats: &SessionStats| Tally::default().figures(Some(stats), &[], |_| unreachable!()).summary();
        let plain = SessionStats { source_bytes: 1_000_000, ..SessionStats::default() };
        assert!(summary(&plain).ends_with(" s"), "{}", summary(&plain));
        let helped = SessionStats { repair_bytes: 120_000, restored_bytes: 50_000, ..plain };
        assert!(summary(&helped).ends_with(" s; 0.12 MB of repair, 0.05 MB restored"), "{}", summary(&helped));
        let figures = Tally::default().figures(Some(&helped), &[], |_| unreachable!());
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!((&json["sent"]["repair_bytes"], &json["sent"]["wasted_bytes"]), (&120_000.into(), &0.into()));
    }
}
