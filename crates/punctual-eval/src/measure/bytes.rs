//! Bytes, rates and what they cost.

use std::cmp::Ordering;

use super::{Run, if_blocks, latency::nearest_rank, of_bound, ratio};
use crate::record::{BlockRow, LostBytes, RunRecord};

const MB: f64 = 1e6;

fn sum(run: &Run<'_>, bytes: impl Fn(&BlockRow) -> u64) -> u64 {
    run.record.blocks.iter().map(bytes).sum()
}

/// Everything sent for a block.
fn sent(block: &BlockRow) -> u64 {
    [block.source_bytes, block.resent_bytes, block.copied_bytes, block.repair_bytes].into_iter().map(u64::from).sum()
}

fn size_on_time(run: &Run<'_>) -> u64 {
    sum(run, |block| if block.on_time() { block.size.into() } else { 0 })
}

fn good(run: &Run<'_>) -> u64 {
    sum(run, |block| block.good_bytes.into())
}

fn arrived(run: &Run<'_>) -> u64 {
    sum(run, |block| block.arrived_bytes.into())
}

pub(super) fn good_bytes_ratio(run: &Run<'_>) -> Option<f64> {
    ratio(good(run) as f64, arrived(run) as f64)
}

pub(super) fn good_bytes(run: &Run<'_>) -> Option<f64> {
    if_blocks(run, || good(run) as f64 / MB)
}

pub(super) fn bytes_on_time(run: &Run<'_>) -> Option<f64> {
    if_blocks(run, || size_on_time(run) as f64 / MB)
}

pub(super) fn bytes_share_of_bound(run: &Run<'_>) -> Option<f64> {
    if_blocks(run, || of_bound(size_on_time(run) as f64, run.bound.bytes_on_time as f64))
}

pub(super) fn useful_ratio(run: &Run<'_>) -> Option<f64> {
    ratio(size_on_time(run) as f64, sum(run, sent) as f64)
}

pub(super) fn waste_ratio(run: &Run<'_>) -> Option<f64> {
    let wasted = sum(run, |block| if block.on_time() { 0 } else { sent(block) });
    ratio(wasted as f64, sum(run, sent) as f64)
}

pub(super) fn redundancy_ratio(run: &Run<'_>) -> Option<f64> {
    let sent = run.record.sent();
    ratio((sent.repair + sent.copied) as f64, sent.source as f64)
}

pub(super) fn resent_ratio(run: &Run<'_>) -> Option<f64> {
    let sent = run.record.sent();
    ratio(sent.resent as f64, sent.source as f64)
}

/// Of the bytes lost, those of one fate.
fn of_lost(run: &Run<'_>, bytes: fn(&LostBytes) -> u64) -> Option<f64> {
    let lost = &run.record.lost;
    ratio(bytes(lost) as f64, lost.total() as f64)
}

pub(super) fn restored_ratio(run: &Run<'_>) -> Option<f64> {
    of_lost(run, |lost| lost.restored)
}

pub(super) fn resend_regained_ratio(run: &Run<'_>) -> Option<f64> {
    of_lost(run, |lost| lost.resend_regained)
}

pub(super) fn never_regained_ratio(run: &Run<'_>) -> Option<f64> {
    of_lost(run, |lost| lost.never_regained)
}

pub(super) fn overhead_ratio(run: &Run<'_>) -> Option<f64> {
    let offered: u64 = run.record.paths.iter().map(|path| path.offered_bytes).sum();
    ratio(offered as f64, (arrived(run) + run.record.bulk_bytes) as f64).map(|ratio| ratio - 1.0)
}

pub(super) fn cost(run: &Run<'_>) -> Option<f64> {
    // From +0: the sum of no floats is -0.
    Some(run.record.paths.iter().fold(0.0, |sum, path| sum + path.cost * path.offered_bytes as f64 / MB))
}

pub(super) fn cost_per_byte(run: &Run<'_>) -> Option<f64> {
    ratio(cost(run)? * MB, (arrived(run) + run.record.bulk_bytes) as f64)
}

pub(super) fn cheap_share(run: &Run<'_>) -> Option<f64> {
    let paths = &run.record.paths;
    let least = paths.iter().map(|path| path.cost).min_by(f64::total_cmp)?;
    let cheap = paths.iter().filter(|path| path.cost.total_cmp(&least) == Ordering::Equal);
    let bytes = cheap.map(|path| path.sent.total()).sum::<u64>();
    ratio(bytes as f64, run.record.sent().total() as f64)
}

pub(super) fn dropped_ratio(run: &Run<'_>) -> Option<f64> {
    let paths = &run.record.paths;
    let dropped: u64 = paths.iter().map(|path| path.policed + path.overflowed).sum();
    let shared: u64 = run.record.links.iter().map(|link| link.policed + link.overflowed).sum();
    ratio((dropped + shared) as f64, paths.iter().map(|path| path.offered).sum::<u64>() as f64)
}

/// Bytes over the workload's duration.
fn mbps(run: &Run<'_>, bytes: u64) -> Option<f64> {
    ratio(bytes as f64 * 8.0 / MB, run.record.duration as f64 / 1e9)
}

pub(super) fn goodput_mbps(run: &Run<'_>) -> Option<f64> {
    mbps(run, size_on_time(run) + run.record.bulk_bytes)
}

pub(super) fn throughput_mbps(run: &Run<'_>) -> Option<f64> {
    mbps(run, during_workload(run, &run.record.arrivals).map(|&bytes| u64::from(bytes)).sum())
}

pub(super) fn bulk_mbps(run: &Run<'_>) -> Option<f64> {
    mbps(run, run.record.bulk_bytes)
}

pub(super) fn queue_p95_kb(run: &Run<'_>) -> Option<f64> {
    let mut samples: Vec<u32> = during_workload(run, &run.record.queue).copied().collect();
    samples.sort_unstable();
    nearest_rank(&samples, 950).map(|bytes| f64::from(bytes) / 1e3)
}

pub(super) fn queue_p95_ms(run: &Run<'_>) -> Option<f64> {
    let mut samples: Vec<u32> = during_workload(run, &run.record.queue_wait).copied().collect();
    samples.sort_unstable();
    nearest_rank(&samples, 950).map(|wait| f64::from(wait) / 1e3)
}

/// The bins that begin while the workload lasts: what follows only drains, and how long that takes says little.
fn during_workload<'a>(run: &Run<'_>, bins: &'a [u32]) -> impl Iterator<Item = &'a u32> {
    let count = u128::from(run.record.duration).div_ceil(RunRecord::BIN.as_nanos());
    bins.iter().take(usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::{BoundFigures, MeasureConfig, testing::*};
    use crate::record::{BlockRow, LostBytes, PathRow, RunRecord, SentBytes};

    fn source_bytes(source: u64) -> SentBytes {
        SentBytes { source, ..SentBytes::default() }
    }

    /// One block on time, with a copy and repair; one late, sent twice, half of it good; one of which nothing left.
    fn three() -> RunRecord {
        let helped = BlockRow { copied_bytes: 300, repair_bytes: 200, ..block(0, 50) };
        let late = BlockRow { resent_bytes: 500, good_bytes: 500, ..block(0, 150) };
        of_blocks(vec![helped, late, lost(0)])
    }

    #[test]
    fn good_bytes_are_those_before_the_deadline() {
        assert_close(value("good_bytes_ratio", &three()), 0.75);
        assert_close(value("good_bytes", &three()), 0.0015);
        assert_eq!(value("good_bytes_ratio", &of_blocks(vec![lost(0)])), None);
        assert_close(value("good_bytes", &of_blocks(vec![lost(0)])), 0.0);
    }

    #[test]
    fn bytes_on_time_are_of_whole_blocks() {
        assert_close(value("bytes_on_time", &three()), 0.001);
        let bound = BoundFigures { bytes_on_time: 4000, ..BoundFigures::default() };
        assert_close(value_with("bytes_share_of_bound", &three(), &bound, &MeasureConfig::default()), 0.25);
        assert_close(value("bytes_share_of_bound", &three()), 1.0);
    }

    #[test]
    fn all_that_was_sent_counts() {
        assert_close(value("useful_ratio", &three()), 1000.0 / 3000.0);
        assert_close(value("waste_ratio", &three()), 1500.0 / 3000.0);
        for key in ["useful_ratio", "waste_ratio"] {
            assert_eq!(value(key, &of_blocks(vec![lost(0)])), None, "{key}");
        }
    }

    #[test]
    fn redundancy_is_of_all_that_left_bulk_included() {
        let path = |source, resent, copied, repair| PathRow {
            sent: SentBytes { source, resent, copied, repair },
            ..PathRow::default()
        };
        let record = RunRecord { paths: vec![path(1500, 100, 0, 200), path(500, 400, 300, 0)], ..record() };
        assert_close(value("redundancy_ratio", &record), 500.0 / 2000.0);
        assert_close(value("resent_ratio", &record), 500.0 / 2000.0);
        for key in ["redundancy_ratio", "resent_ratio"] {
            assert_eq!(value(key, &of_blocks(vec![lost(0)])), None, "{key}");
        }
    }

    #[test]
    fn what_was_lost_has_one_fate_or_another() {
        let lost = LostBytes { restored: 600, resend_regained: 250, copy_regained: 50, never_regained: 100 };
        let record = RunRecord { lost, ..record() };
        for (key, expected) in [("restored_ratio", 0.6), ("resend_regained_ratio", 0.25), ("never_regained_ratio", 0.1)]
        {
            assert_close(value(key, &record), expected);
            assert_eq!(value(key, &RunRecord::default()), None, "{key}: nothing was lost");
        }
    }

    #[test]
    fn overhead_and_cost_are_of_udp_bytes() {
        let path = |offered_bytes, source, cost| PathRow {
            offered_bytes,
            sent: source_bytes(source),
            cost,
            ..PathRow::default()
        };
        let record = RunRecord {
            paths: vec![path(3000, 2700, 1.0), path(1500, 300, 2.0)],
            bulk_bytes: 1000,
            ..of_blocks(vec![block(0, 50), block(0, 150)])
        };
        assert_close(value("overhead_ratio", &record), 0.5);
        assert_close(value("cost", &record), 0.006);
        assert_close(value("cost_per_byte", &record), 2.0);
        assert_close(value("cheap_share", &record), 0.9);
        let alike = RunRecord { paths: vec![path(1, 1, 2.0), path(1, 3, 2.0)], ..record };
        assert_close(value("cheap_share", &alike), 1.0);
        let idle = RunRecord { paths: vec![path(500, 0, 1.0)], ..of_blocks(vec![lost(0)]) };
        assert_eq!(value("overhead_ratio", &idle), None);
        assert_eq!(value("cost_per_byte", &idle), None);
        assert_eq!(value("cheap_share", &idle), None);
    }

    #[test]
    fn drops_are_those_of_policers_and_full_queues() {
        let path = |lost| PathRow { offered: 100, lost, policed: 3, overflowed: 7, ..PathRow::default() };
        assert_close(value("dropped_ratio", &RunRecord { paths: vec![path(50), path(0)], ..record() }), 0.1);
        assert_eq!(value("dropped_ratio", &record()), None);
    }

    #[test]
    fn rates_are_over_the_workload() {
        let blocks = vec![block(0, 50), block(0, 150), BlockRow { deadline: None, ..block(0, 5000) }];
        let mut arrivals = vec![0; 60];
        (arrivals[0], arrivals[49], arrivals[50]) = (20_000, 5000, 70_000);
        let record = RunRecord { bulk_bytes: 123_000, arrivals, ..of_blocks(blocks) };
        assert_close(value("goodput_mbps", &record), 1.0);
        assert_close(value("throughput_mbps", &record), 0.2);
        assert_close(value("bulk_mbps", &record), 0.984);
        let instant = RunRecord { duration: 0, ..record };
        for key in ["goodput_mbps", "throughput_mbps", "bulk_mbps"] {
            assert_eq!(value(key, &instant), None, "{key}");
        }
    }

    #[test]
    fn queue_samples_after_the_workload_do_not_count() {
        let mut queue: Vec<u32> = (1..=20).map(|kb| kb * 1000).collect();
        queue.extend([900_000; 10]);
        let record = RunRecord { queue, duration: 400 * MS, ..record() };
        assert_close(value("queue_p95_kb", &record), 19.0);
        assert_close(value("queue_p95_ms", &RunRecord { queue_wait: record.queue.clone(), ..record }), 19.0);
        assert_eq!(value("queue_p95_ms", &RunRecord::default()), None);
        assert_eq!(value("queue_p95_kb", &RunRecord::default()), None);
    }
}
