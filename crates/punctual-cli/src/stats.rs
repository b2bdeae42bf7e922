//! Figures of a session under way and at its end, for people and for programs.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use punctual::{Outcome, PathId, PathStats, ReceivedBlock, SessionStats};
use serde::Serialize;

use crate::{
    back::BackFigures,
    cli::CommonArgs,
    exit::Failure,
    out,
    path_figures::PathFigures,
    released::{ReleasedFigures, Releases},
    say::say,
    sent::SentFigures,
};

/// Counts blocks as they end. Clones count together.
#[derive(Clone)]
pub(crate) struct Tally(Arc<Mutex<Counts>>);

struct Counts {
    began: Instant,
    blocks: u64,
    on_time: u64,
    late: u64,
    dropped: u64,
    past_playout: u64,
    bytes: u64,
    /// The longest that a block waited for its turn in a beat.
    kept_back: Duration,
    /// Microseconds to delivery, from hand-over or from when the first byte came by itself.
    delays: Histogram<u64>,
    releases: Releases,
}

/// The figures at a moment.
///
/// On time is, at both ends, what was delivered by the block's own deadline, or has none: the one the transport goes by and the
/// receiver is told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Where the session comes from, at a receiver of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    /// Since the session began.
    pub(crate) seconds: f64,
    /// Handed over by the sender, as far as this side knows.
    pub(crate) blocks: u64,
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    /// Of those on time, the frames that came after their own moment, which others refer to and which therefore had more time; null at
    /// the receiver, which is not told.
    pub(crate) past_playout: Option<u64>,
    /// Of the blocks delivered.
    pub(crate) bytes: u64,
    /// Of the blocks delivered; null if there are none, or if the clocks could not be compared.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// The most that keeping a live video's beat (`--pace`) has added to a delay, which no deadline counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept_back_ms: Option<f64>,
    /// Whether the receiver has said, at the end, that its program has taken all that was delivered. Null before the end, at the receiver, and
    /// if that does not speak Punctual.
    pub(crate) confirmed: Option<bool>,
    /// Of those delivered, the blocks of sessions that were lost before the receiver could say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unconfirmed: Option<u64>,
    /// Of those dropped, the blocks that could not be sent at all, for they were larger than the receiver takes, say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<u64>,
    /// Of those delivered, the blocks that are not written, at a receiver whose output does not take them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unwritten: Option<u64>,
    /// How exactly blocks were given out that had a time for it, at a receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) released: Option<ReleasedFigures>,
    /// What went the other way, if anything could: from the receiver to the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) back: Option<BackFigures>,
    /// What was sent for the blocks, and what of it was of use; null at the receiver.
    pub(crate) sent: Option<SentFigures>,
    /// Those that are open, and what those have carried that are closed: at the sender one of each name, at the receiver one in all.
    pub(crate) paths: Vec<PathFigures>,
    #[serde(skip)]
    pub(crate) delays: Histogram<u64>,
}

/// In milliseconds, to the hundredth.
pub(crate) fn rounded_ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

/// A quantile of delays in microseconds, in milliseconds; `None` if there are none.
pub(crate) fn quantile_ms(delays: &Histogram<u64>, quantile: f64) -> Option<f64> {
    (!delays.is_empty()).then(|| delays.value_at_quantile(quantile) as f64 / 1e3)
}

impl Default for Tally {
    fn default() -> Self {
        // Three digits between a microsecond and some weeks; such bounds are always valid.
        let mut delays = Histogram::new(3).expect("three significant digits are possible");
        delays.auto(true);
        let counts = Counts {
            began: Instant::now(),
            blocks: 0,
            on_time: 0,
            late: 0,
            dropped: 0,
            past_playout: 0,
            bytes: 0,
            kept_back: Duration::ZERO,
            delays,
            releases: Releases::default(),
        };
        Self(Arc::new(Mutex::new(counts)))
    }
}

impl Tally {
    /// Blocks that were delivered, in time or not.
    pub(crate) fn delivered(&self) -> u64 {
        let counts = self.lock();
        counts.on_time + counts.late
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A block was read at the sender.
    pub(crate) fn handed_over(&self) {
        self.lock().blocks += 1;
    }

    /// An earlier session has left these.
    pub(crate) fn taken_over(&self, blocks: u64) {
        self.lock().blocks += blocks;
    }

    /// A block was given up before it was accepted.
    pub(crate) fn given_up(&self) {
        self.lock().dropped += 1;
    }

    /// A block ended at the sender, which was to be seen after `playout`, and whose beat had `kept_back` it before it was handed over.
    pub(crate) fn ended(&self, outcome: &Outcome, playout: Option<Duration>, kept_back: Duration, size: u64) {
        match outcome {
            Outcome::Delivered(delivery) => {
                let mut counts = self.lock();
                counts.delivered(Some(kept_back + delivery.completion), delivery.on_time(), size);
                counts.kept_back = counts.kept_back.max(kept_back);
                if delivery.on_time() && playout.is_some_and(|playout| delivery.completion > playout) {
                    counts.past_playout += 1;
                }
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
        counts.releases.note(block, Instant::now());
    }

    /// The receiver turned the session away, and kept nothing of it, whatever it had said of blocks before.
    pub(crate) fn refused(&self) {
        let mut counts = self.lock();
        // Also the one that was to be handed over when it came.
        counts.dropped = counts.blocks;
        (counts.on_time, counts.late, counts.past_playout, counts.bytes) = (0, 0, 0, 0);
        counts.kept_back = Duration::ZERO;
        counts.delays.reset();
    }

    /// The figures now; `sent` is the sender's session. `name` names paths.
    pub(crate) fn figures(
        &self,
        sent: Option<&SessionStats>,
        paths: &[PathStats],
        name: impl Fn(PathId) -> String,
    ) -> Figures {
        let counts = self.lock();
        Figures {
            peer: None,
            seconds: (counts.began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            blocks: counts.blocks,
            on_time: counts.on_time,
            late: counts.late,
            dropped: counts.dropped,
            past_playout: sent.map(|_| counts.past_playout),
            bytes: counts.bytes,
            kept_back_ms: (!counts.kept_back.is_zero()).then(|| rounded_ms(counts.kept_back)),
            confirmed: None,
            unconfirmed: None,
            left_out: None,
            unwritten: None,
            released: None,
            back: None,
            p50_ms: quantile_ms(&counts.delays, 0.5),
            p99_ms: quantile_ms(&counts.delays, 0.99),
            sent: sent.map(SentFigures::from),
            paths: paths.iter().map(|path| PathFigures::new(name(path.id), path)).collect(),
            delays: counts.delays.clone(),
        }
    }
}

impl Tally {
    /// How exactly blocks were given out, if they had a time for it.
    pub(crate) fn released(&self, skipped: u64) -> Option<ReleasedFigures> {
        self.lock().releases.figures(skipped)
    }

    /// As the figures of what went back.
    pub(crate) fn back(&self) -> BackFigures {
        let counts = self.lock();
        BackFigures {
            blocks: counts.blocks,
            on_time: counts.on_time,
            late: counts.late,
            dropped: counts.dropped,
            bytes: counts.bytes,
            ..BackFigures::default()
        }
    }

    /// Blocks that were handed over and have not ended go to the next session, whose books they are in.
    pub(crate) fn handed_on(&self, blocks: u64) {
        let mut counts = self.lock();
        counts.blocks = counts.blocks.saturating_sub(blocks);
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

    /// What `--strict` does not let pass, if there is something, in words.
    pub(crate) fn shortfall(&self) -> Option<String> {
        let is_known =
            self.unconfirmed.or(self.unwritten).is_none() && self.back.as_ref().is_none_or(BackFigures::is_whole);
        match (self.missed(), is_known) {
            (0, true) => None,
            (_, true) => Some(self.counts()),
            // Whose figures they are is for the caller to say.
            (_, false) => Some(self.summary().split_off(self.prefix().len())),
        }
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

    /// Begins a line about the session where there may be others.
    pub(crate) fn prefix(&self) -> String {
        self.peer.as_ref().map_or_else(String::new, |peer| format!("{peer}: "))
    }

    /// The line at the end.
    pub(crate) fn summary(&self) -> String {
        let past = match self.past_playout {
            None | Some(0) => String::new(),
            Some(past) => format!(" ({past} past play-out, of use to other frames)"),
        };
        let left_out = self.left_out.map_or_else(String::new, |blocks| format!(" ({blocks} left out)"));
        let delays = match (self.p50_ms, self.p99_ms) {
            (Some(p50), Some(p99)) => format!("; delay p50 {p50:.0} ms, p99 {p99:.0} ms"),
            _ => String::new(),
        };
        let kept_back = match self.kept_back_ms {
            Some(longest) if longest >= 1.0 => format!(", with up to {longest:.0} ms of --pace"),
            _ => String::new(),
        };
        let doubt = match self.unconfirmed {
            Some(blocks) => {
                format!("; {blocks} not known to be taken by the receiver's program, whose session was lost")
            }
            None if self.confirmed == Some(false) && self.on_time + self.late > 0 => {
                "; not known to be taken by the receiver's program".into()
            }
            None => self.unwritten.map_or_else(String::new, |blocks| format!("; {blocks} not written to the output")),
        };
        let sent = self.sent.as_ref().map_or_else(String::new, SentFigures::summary);
        let (prefix, counts) = (self.prefix(), self.counts());
        let (megabytes, seconds) = (self.bytes as f64 / 1e6, self.seconds);
        let back = self.back.as_ref().map_or_else(String::new, BackFigures::summary);
        let released = self.released.as_ref().map_or_else(String::new, ReleasedFigures::summary);
        format!(
            "{prefix}{counts}{left_out}{past}{doubt}{delays}{kept_back}{released}; {megabytes:.2} MB in {seconds:.1} s{sent}{back}"
        )
    }
}

/// Prints the end of a session as it was asked for.
pub(crate) fn conclude(common: &CommonArgs, figures: &Figures) -> Result<(), Failure> {
    if common.json {
        let json = serde_json::to_string(figures).map_err(|error| Failure::Other(error.to_string()))?;
        return out::line(json);
    }
    if !common.quiet {
        say!("{}", figures.summary());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use punctual::{Delivery, Delta, DropReason};

    use super::*;

    #[test]
    fn every_end_is_counted_once() {
        let tally = Tally::default();
        let (playout, deadline) = (Duration::from_millis(25), Duration::from_millis(100));
        let delivered = |ms| {
            let completion = Duration::from_millis(ms);
            let delta = Some(Delta::between(deadline, completion));
            Outcome::Delivered(Delivery::new(completion, delta, 10))
        };
        for outcome in [
            delivered(20),
            delivered(30),
            delivered(200),
            Outcome::Dropped { reason: DropReason::Expired, good_bytes: 0 },
        ] {
            tally.handed_over();
            tally.ended(&outcome, Some(playout), Duration::ZERO, 10);
        }
        tally.handed_over();
        tally.given_up();
        let figures = tally.figures(Some(&SessionStats::default()), &[], |_| unreachable!());
        assert_eq!([figures.blocks, figures.on_time, figures.late, figures.dropped], [5, 2, 1, 2]);
        assert_eq!((figures.missed(), figures.bytes), (3, 30));
        assert_eq!(figures.p50_ms.map(f64::round), Some(30.0));
        let summary = figures.summary();
        let begin = "5 blocks: 2 on time, 1 late, 2 dropped (1 past play-out, of use to other frames); delay p50 30 ms";
        assert!(summary.starts_with(begin), "{summary}");
        tally.refused();
        let figures = tally.figures(None, &[], |_| unreachable!());
        assert_eq!([figures.blocks, figures.on_time, figures.late, figures.dropped], [5, 0, 0, 5]);
    }

    #[test]
    fn what_a_beat_keeps_back_counts_for_the_delay_and_not_for_the_deadline() {
        let (tally, ms) = (Tally::default(), Duration::from_millis);
        let delivered = Outcome::Delivered(Delivery::new(ms(20), Some(Delta::between(ms(100), ms(20))), 10));
        for (ended, p99, summary) in
            [(ms(0), 20.0, "p99 20 ms; 0"), (ms(800), 820.0, "p99 820 ms, with up to 800 ms of --pace")]
        {
            tally.handed_over();
            tally.ended(&delivered, Some(ms(100)), ended, 10);
            let figures = tally.figures(Some(&SessionStats::default()), &[], |_| unreachable!());
            assert_eq!((figures.p99_ms.map(f64::round), figures.past_playout, figures.late), (Some(p99), Some(0), 0));
            assert!(figures.summary().contains(summary), "{}", figures.summary());
        }
    }

    #[test]
    fn an_end_that_was_not_confirmed_is_told_where_it_matters() {
        let doubt = |confirmed, delivered| {
            let tally = Tally::default();
            tally.handed_over();
            let outcome = Outcome::Delivered(Delivery::new(Duration::from_millis(20), None, 10));
            let dropped = Outcome::Dropped { reason: DropReason::Expired, good_bytes: 0 };
            tally.ended(if delivered { &outcome } else { &dropped }, None, Duration::ZERO, 10);
            let mut figures = tally.figures(Some(&SessionStats::default()), &[], |_| unreachable!());
            figures.confirmed = confirmed;
            figures.summary().contains("0 dropped; not known to be taken by the receiver's program; delay")
        };
        assert!(doubt(Some(false), true));
        assert!(!doubt(Some(false), false), "nothing was delivered");
        assert!(!doubt(Some(true), true) && !doubt(None, true));
    }

    #[test]
    fn without_blocks_there_are_no_delays() {
        let figures = Tally::default().figures(None, &[], |_| unreachable!());
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!((&json["p50_ms"], &json["blocks"]), (&serde_json::Value::Null, &0.into()));
        assert!(json["sent"].is_null(), "a receiver has sent no blocks");
    }
}
