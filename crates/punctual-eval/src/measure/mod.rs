//! From what a run left behind to named figures, and from the runs of a cell to their mean.
//!
//! A [`Run`] is a record beside the clairvoyant bound's [`BoundFigures`] for the same plan. Every [`Measure`] of
//! [`MEASURES`] takes one number from it; they are pure, so a kept record gives the same figures again. A [`CellBuilder`]
//! gathers the runs of a cell, one seed after the other.
//!
//! The rules that hold for all of them:
//!
//! - *Block* means planned block: what the transport never took, or dropped, counts like what came too late.
//! - A block is on time as [`BlockRow::on_time`](crate::record::BlockRow::on_time) says; without a deadline, if it was
//!   delivered at all.
//! - Latency counts from hand-over, so waiting in front of the transport is part of it. A block that was never delivered took
//!   infinitely long; percentiles count it, means say which blocks they are over.
//! - Percentiles are nearest-rank: the least value that at least the given share of all values does not exceed. Nothing is
//!   interpolated.
//! - A measure has no value where its denominator is zero, except a share of the bound, which is 1 if the bound is 0: nothing
//!   could be had, and nothing was missed. What counts blocks has no value in a run without any, as of a bulk transfer, and
//!   Jain's index none with a single flow.

mod bytes;
mod cell;
mod config;
mod course;
mod latency;
mod playout;
pub(crate) mod pooled;
mod share;
mod stat;
#[cfg(test)]
mod testing;
mod timeline;

pub use cell::CellBuilder;
pub use config::{MeasureConfig, Playout, Weights};
use serde::{Deserialize, Serialize};
pub use stat::stat;

use crate::record::RunRecord;

/// What the clairvoyant bound says no sender can beat, for one plan over one network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BoundFigures {
    /// Blocks on time.
    pub on_time: u64,
    /// Blocks on time of a priority and all higher ones together, for each priority that occurs, highest first.
    pub up_to_priority: Vec<(u8, u64)>,
    /// Sum over blocks on time of their [weight](Weights::of), on the scale of the measure `score`.
    pub weighted: f64,
    /// Bytes of blocks on time.
    pub bytes_on_time: u64,
    /// Blocks on time on average over the losses, if nobody knows them beforehand.
    pub average_on_time: f64,
    /// Blocks on time, with all that they depend on there too; `None` where nothing depends on anything, or nobody asked.
    pub decodable: Option<u64>,
}

impl BoundFigures {
    /// The bound on blocks of this and higher priorities; `None` if it says nothing of them.
    pub fn up_to(&self, priority: u8) -> Option<u64> {
        let known = self.up_to_priority.iter().filter(|(up_to, _)| *up_to <= priority);
        known.max_by_key(|(up_to, _)| *up_to).map(|(_, blocks)| *blocks)
    }
}

/// A run to be measured.
#[derive(Debug)]
pub struct Run<'a> {
    /// What the run left behind.
    pub record: &'a RunRecord,
    /// What could have been had.
    pub bound: &'a BoundFigures,
    /// The experiment's own settings.
    pub config: &'a MeasureConfig,
    /// Of all blocks, least first, nanoseconds; [`NEVER`](latency::NEVER) for those never delivered.
    latencies: Vec<u64>,
    /// Delivery minus deadline of all blocks with a deadline, least first; [`MISSED`](latency::MISSED) likewise.
    deltas: Vec<i64>,
}

impl<'a> Run<'a> {
    /// Sorts what several measures need sorted.
    pub fn new(record: &'a RunRecord, bound: &'a BoundFigures, config: &'a MeasureConfig) -> Self {
        Self { record, bound, config, latencies: latency::latencies(record), deltas: latency::deltas(record) }
    }

    /// The value of every measure, in the order of [`MEASURES`]; `None` where the run has none.
    pub fn values(&self) -> Vec<Option<f64>> {
        MEASURES.iter().map(|measure| measure.of(self)).collect()
    }
}

/// Which way a measure improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Up,
    /// Less is better.
    Down,
    /// It explains; it does not rank.
    Neither,
}

/// A figure that can be taken of any run.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// What experiments, thresholds and files call it.
    pub key: &'static str,
    /// As a heading.
    pub title: &'static str,
    /// As the heading of a narrow column, or within a sentence.
    pub short: &'static str,
    /// Of its values; `share` is from 0 to 1, `ratio` any number, empty for plain counts and indices.
    pub unit: &'static str,
    /// Its definition.
    pub about: &'static str,
    /// Which way it improves.
    pub better: Better,
    function: fn(&Run<'_>) -> Option<f64>,
}

impl Measure {
    /// The measure of this name.
    pub fn find(key: &str) -> Option<&'static Self> {
        MEASURES.iter().find(|measure| measure.key == key)
    }

    /// Whether its values are parts of a whole, which people read in per cent.
    pub fn in_percent(&self) -> bool {
        matches!(self.unit, "share" | "ratio")
    }

    /// The unit to write after a value or into a heading; empty for parts of a whole, and where there is none.
    pub fn unit_shown(&self) -> &'static str {
        if self.in_percent() { "" } else { self.unit }
    }

    /// Its value for a run; `None` if the run has nothing to measure, infinite if it took forever.
    pub fn of(&self, run: &Run<'_>) -> Option<f64> {
        (self.function)(run)
    }
}

const fn measure(
    key: &'static str,
    title: &'static str,
    short: &'static str,
    unit: &'static str,
    better: Better,
    function: fn(&Run<'_>) -> Option<f64>,
    about: &'static str,
) -> Measure {
    Measure { key, title, short, unit, about, better, function }
}

/// Every measure there is.
#[rustfmt::skip] // a table
pub const MEASURES: &[Measure] = {
    use Better::{Down, Neither, Up};
    &[
        measure("on_time", "On time", "on time", "share", Up, share::on_time,
            "blocks on time, of all blocks; those that never finished are missed"),
        measure("delivered", "Delivered", "delivered", "share", Up, share::delivered,
            "blocks the receiving application got, in time or not, of all blocks"),
        measure("bound", "Bound", "bound", "share", Neither, share::bound,
            "blocks the clairvoyant bound has on time, of all blocks"),
        measure("share_of_bound", "On time, of the bound", "of bound", "share", Up, share::share_of_bound,
            "blocks on time, of those the clairvoyant bound has on time"),
        measure("bound_average", "Bound on average", "avg bound", "share", Neither, share::bound_average,
            "blocks that no sender can have on time on average over the losses unless it knows them beforehand, of all blocks"),
        measure("share_of_bound_average", "On time, of the bound on average", "of avg bound", "ratio", Up, share::share_of_bound_average,
            "blocks on time, of those that no sender can exceed on average over the losses; a lucky run may be above 1"),
        measure("bound_decodable", "Decodable bound", "decodable", "share", Neither, share::bound_decodable,
            "blocks the clairvoyant bound has on time if a block also needs those that it depends on, of all blocks"),
        measure("share_of_decodable", "On time, of the decodable", "of decodable", "share", Up, share::share_of_decodable,
            "blocks on time, of those the clairvoyant bound has on time if a block also needs those that it depends on"),
        measure("score", "Score", "score", "points", Up, share::score,
            "sum over blocks on time of their priority's weight over the greatest weight (AItrans); all others score 0"),
        measure("score_share_of_bound", "Score, of the bound", "score of bound", "share", Up, share::score_share_of_bound,
            "score, of the greatest score the clairvoyant bound allows"),
        measure("jain", "Jain's index", "Jain", "", Up, share::jain,
            "(sum of x)^2 / (n x sum of x^2) over the bytes x each of n flows delivered while all were there, n at least 2"),
        measure("least_flow_on_time", "On time, the worst flow", "worst flow", "share", Up, share::least_flow_on_time,
            "the least share on time among the flows that hand blocks over, that under test included, n at least 2"),
        measure("reply_on_time", "On time, the reply", "reply", "share", Up, share::reply_on_time,
            "blocks of [[reply]], which the receiver hands over to the sender, on time, of all of them"),

        measure("good_bytes_ratio", "Good bytes ratio", "good bytes", "share", Up, bytes::good_bytes_ratio,
            "bytes that arrived before their block's deadline, of all block bytes that arrived, each counted once (DTP, VI-A)"),
        measure("good_bytes", "Good bytes", "good", "MB", Up, bytes::good_bytes,
            "bytes that arrived before their block's deadline, each counted once"),
        measure("bytes_on_time", "Bytes on time", "on time", "MB", Up, bytes::bytes_on_time,
            "bytes of blocks on time"),
        measure("bytes_share_of_bound", "Bytes on time, of the bound", "bytes of bound", "share", Up, bytes::bytes_share_of_bound,
            "bytes of blocks on time, of those the clairvoyant bound has on time"),
        measure("useful_ratio", "Useful bytes", "useful", "share", Up, bytes::useful_ratio,
            "bytes of blocks on time, of all block bytes sent: first sent, sent again, copies and repair"),
        measure("waste_ratio", "Waste", "waste", "share", Down, bytes::waste_ratio,
            "bytes sent for blocks not on time, of all block bytes sent: first sent, sent again, copies and repair"),
        measure("redundancy_ratio", "Redundancy", "redundancy", "ratio", Down, bytes::redundancy_ratio,
            "repair and copied bytes, per byte of blocks and bulk sent for the first time"),
        measure("resent_ratio", "Resent", "resent", "ratio", Down, bytes::resent_ratio,
            "bytes sent again after a loss, per byte of blocks and bulk sent for the first time"),
        measure("restored_ratio", "Restored", "restored", "share", Neither, bytes::restored_ratio,
            "bytes that were lost and restored by repair data, of all that our session lost"),
        measure("resend_regained_ratio", "Regained by sending again", "resent in time", "share", Neither, bytes::resend_regained_ratio,
            "bytes that were lost and came through when sent again, of all that our session lost"),
        measure("never_regained_ratio", "Never regained", "never regained", "share", Down, bytes::never_regained_ratio,
            "bytes that were lost and never came through, of all that our session lost"),
        measure("overhead_ratio", "Overhead", "overhead", "ratio", Down, bytes::overhead_ratio,
            "UDP payload bytes offered to all paths, per byte of blocks and bulk that arrived, minus 1"),
        measure("cost", "Cost", "cost", "cost x MB", Down, bytes::cost,
            "sum over paths of UDP payload bytes offered, times the path's cost of a byte"),
        measure("cost_per_byte", "Cost of a byte", "cost/byte", "cost", Down, bytes::cost_per_byte,
            "cost, of each byte of blocks and bulk that arrived"),
        measure("cheap_share", "On the cheapest path", "cheapest", "share", Up, bytes::cheap_share,
            "block bytes that left on the path, or paths, of least cost, of all block bytes that left"),
        measure("goodput_mbps", "Goodput", "goodput", "Mbit/s", Up, bytes::goodput_mbps,
            "bytes of blocks on time and of bulk, over the workload's duration"),
        measure("throughput_mbps", "Throughput", "throughput", "Mbit/s", Neither, bytes::throughput_mbps,
            "new block bytes that arrived while the workload lasted, over its duration"),
        measure("bulk_mbps", "Rate of the bulk transfer", "bulk", "Mbit/s", Up, bytes::bulk_mbps,
            "bulk bytes the receiving application got, over the workload's duration"),
        measure("dropped_ratio", "Dropped", "dropped", "share", Down, bytes::dropped_ratio,
            "packets that policers and full queues dropped, of all packets offered to the paths' links there; those that share a link count its drops"),
        measure("queue_p95_kb", "Queue, 95th percentile", "p95 queue", "KB", Down, bytes::queue_p95_kb,
            "95th percentile of the bytes queued on the first path's way there, sampled every 20 ms"),
        measure("queue_p95_ms", "Wait in the queue, 95th percentile", "p95 wait", "ms", Down, bytes::queue_p95_ms,
            "95th percentile of the time that the bytes queued on the first path's way there then took to leave, sampled every 20 ms, 10 s at most"),

        measure("mean_ms", "Mean latency", "mean", "ms", Down, latency::mean_ms,
            "mean of hand-over to delivery, over the blocks that were delivered"),
        measure("p50_ms", "Median latency", "p50", "ms", Down, latency::p50_ms,
            "half of all blocks took at most this long from hand-over to delivery"),
        measure("p90_ms", "90th percentile latency", "p90", "ms", Down, latency::p90_ms,
            "90 % of all blocks took at most this long from hand-over to delivery"),
        measure("p95_ms", "95th percentile latency", "p95", "ms", Down, latency::p95_ms,
            "95 % of all blocks took at most this long from hand-over to delivery"),
        measure("p99_ms", "99th percentile latency", "p99", "ms", Down, latency::p99_ms,
            "99 % of all blocks took at most this long from hand-over to delivery"),
        measure("p999_ms", "99.9th percentile latency", "p99.9", "ms", Down, latency::p999_ms,
            "99.9 % of all blocks took at most this long from hand-over to delivery"),
        measure("max_ms", "Greatest latency", "max", "ms", Down, latency::max_ms,
            "no block took longer from hand-over to delivery"),
        measure("delta_mean_ms", "Mean against deadline", "mean − due", "ms", Down, latency::delta_mean_ms,
            "mean of delivery minus deadline, over the blocks with a deadline that were delivered; early is negative"),
        measure("delta_p99_ms", "99th percentile against deadline", "p99 − due", "ms", Down, latency::delta_p99_ms,
            "99 % of all blocks with a deadline were delivered at most this long after it; early is negative"),
        measure("wait_ms", "Wait before sending", "wait", "ms", Down, latency::wait_ms,
            "mean of hand-over to the first byte sent, over the blocks that arrived whole"),
        measure("send_ms", "Time to send", "send", "ms", Neither, latency::send_ms,
            "mean of the first byte sent to the last byte sent for the first time, over the blocks that arrived whole"),

        measure("stalls", "Stalls", "stalls", "", Down, playout::stalls,
            "runs of consecutive blocks with deadlines, of one source, that were not on time; several in a row are one"),
        measure("rebuffers", "Rebuffers", "rebuffers", "", Down, playout::rebuffers,
            "times a player with the experiment's play-out buffer ran dry"),
        measure("rebuffer_s", "Time rebuffering", "rebuffering", "s", Down, playout::rebuffer_s,
            "how long that player showed nothing, its start not counted"),
        measure("recovered_ms", "Recovery", "recovery", "ms", Down, course::recovered_ms,
            "the latest hand-over since the experiment's step of a block that was not on time, minus the step; 0 if there was none"),
        measure("worst_second_p0", "Worst second, priority 0", "worst s, p0", "share", Up, course::worst_second_p0,
            "the least share on time among priority 0's blocks handed over in one second, over the seconds that have any"),
        measure("on_time_in_window", "On time in the window", "in window", "share", Up, course::on_time_in_window,
            "blocks on time, of all that were handed over in the experiment's window"),
        measure("carried_in_window", "Carried in the window", "carried", "ratio", Up, course::carried_in_window,
            "new block bytes that arrived in the experiment's window, per byte that was handed over in it; what had waited before may make it more than 1"),
    ]
};

/// Something of a run's blocks, if it has any.
fn if_blocks<T>(run: &Run<'_>, value: impl FnOnce() -> T) -> Option<T> {
    (!run.record.blocks.is_empty()).then(value)
}

/// `part / whole`, if there is a whole.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole != 0.0).then(|| part / whole)
}

/// `part / bound`; all of it if nothing could be had.
fn of_bound(part: f64, bound: f64) -> f64 {
    ratio(part, bound).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{testing::*, *};
    use crate::record::BlockRow;

    #[test]
    fn keys_are_unique_and_found() {
        let keys: BTreeSet<_> = MEASURES.iter().map(|measure| measure.key).collect();
        assert_eq!(keys.len(), MEASURES.len());
        assert_eq!(Measure::find("p99_ms").map(|measure| measure.unit), Some("ms"));
        assert!(Measure::find("on_time:0").is_none());
    }

    #[test]
    fn a_run_without_anything_has_few_values() {
        let (record, bound, config) = (RunRecord::default(), BoundFigures::default(), MeasureConfig::default());
        let values = Run::new(&record, &bound, &config).values();
        let have: Vec<_> = MEASURES.iter().zip(values).filter_map(|(m, v)| Some((m.key, v?))).collect();
        assert_eq!(have, [("cost", 0.0)]);
    }

    #[test]
    fn no_value_is_not_a_number_when_nothing_arrives() {
        let config = MeasureConfig { step: Some(Default::default()), ..with_playout() };
        let record = RunRecord { blocks: vec![lost(0), lost(10)], ..record() };
        let values = Run::new(&record, &BoundFigures::default(), &config).values();
        for (measure, value) in MEASURES.iter().zip(values) {
            assert!(value.is_none_or(|value| !value.is_nan()), "{}", measure.key);
        }
    }

    #[test]
    fn the_bound_up_to_a_priority_includes_the_higher_ones() {
        let bound = BoundFigures { up_to_priority: vec![(1, 5), (3, 9)], ..Default::default() };
        assert_eq!([0, 1, 2, 3, 4].map(|p| bound.up_to(p)), [None, Some(5), Some(5), Some(9), Some(9)]);
    }

    /// Blocks of any fate, in order of hand-over.
    fn any_record() -> impl Strategy<Value = RunRecord> {
        let fate = (0..3000_u64, prop::option::of(0..300_u64), 0..3_u8, any::<bool>(), 0..=1000_u32, 0..500_u32);
        let block = fate.prop_map(|(at, latency, priority, deadline, arrived, extra)| {
            let block = latency.map_or_else(|| lost(at), |latency| block(at, latency));
            let arrived = if latency.is_some() { 1000 } else { arrived };
            let deadline = block.deadline.filter(|_| deadline);
            let good_bytes = if block.on_time() { arrived } else { arrived / 2 };
            let sent = BlockRow { source_bytes: arrived, resent_bytes: extra, repair_bytes: extra, ..block };
            BlockRow { priority, deadline, good_bytes, arrived_bytes: arrived, ..sent }
        });
        prop::collection::vec(block, 0..60).prop_map(|mut blocks| {
            blocks.sort_by_key(|block| block.handed_over);
            of_blocks(blocks)
        })
    }

    proptest! {
        #[test]
        fn shares_are_shares_and_percentiles_rise(record in any_record()) {
            let on_time = record.blocks.iter().filter(|block| block.on_time()).count() as u64;
            let bound = BoundFigures { on_time: on_time + 1, weighted: 1e3, bytes_on_time: 1_000_000, ..Default::default() };
            let config = with_playout();
            let run = Run::new(&record, &bound, &config);
            for measure in MEASURES.iter().filter(|measure| measure.unit == "share" && !measure.key.starts_with("bound")) {
                let value = measure.of(&run);
                prop_assert!(value.is_none_or(|value| (0.0..=1.0).contains(&value)), "{} is {value:?}", measure.key);
            }
            let of = |key| Measure::find(key).and_then(|measure| measure.of(&run));
            prop_assert!(of("on_time") <= of("delivered"));
            let percentiles = ["p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"].map(of);
            prop_assert!(percentiles.is_sorted(), "{percentiles:?}");
            prop_assert_eq!(of("max_ms") == Some(f64::INFINITY), of("delivered").is_some_and(|share| share < 1.0));
        }
    }
}
