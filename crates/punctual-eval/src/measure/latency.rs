//! How long blocks took.

use super::{Run, ratio};
use crate::record::{BlockRow, RunRecord};

/// Latency of a block that was never delivered; sorts after every other.
pub(super) const NEVER: u64 = u64::MAX;

/// The same, of delivery against the deadline.
pub(super) const MISSED: i64 = i64::MAX;

const MS: f64 = 1e6;

/// Of a block, nanoseconds.
pub(super) fn latency(block: &BlockRow) -> u64 {
    block.usable.map_or(NEVER, |at| at.saturating_sub(block.handed_over))
}

/// Of all blocks, nanoseconds, least first.
pub(super) fn latencies(record: &RunRecord) -> Vec<u64> {
    let mut latencies: Vec<u64> = record.blocks.iter().map(latency).collect();
    latencies.sort_unstable();
    latencies
}

/// Delivery minus deadline of all blocks with a deadline, nanoseconds, least first.
pub(super) fn deltas(record: &RunRecord) -> Vec<i64> {
    let of = |block: &BlockRow| {
        let due = block.handed_over.saturating_add(block.deadline?);
        Some(block.usable.map_or(MISSED, |at| at.wrapping_sub(due) as i64))
    };
    let mut deltas: Vec<i64> = record.blocks.iter().filter_map(of).collect();
    deltas.sort_unstable();
    deltas
}

/// The least of the sorted values that at least `permille` thousandths of them do not exceed.
///
/// In whole numbers, since `0.07 * 100.0` is more than 7, and the rank after it another block.
pub(super) fn nearest_rank<T: Copy>(sorted: &[T], permille: u64) -> Option<T> {
    let rank = (sorted.len() as u64 * permille).div_ceil(1000).max(1);
    sorted.get(usize::try_from(rank - 1).ok()?).copied()
}

/// A latency in milliseconds.
pub(super) fn in_ms(latency: u64) -> f64 {
    if latency == NEVER { f64::INFINITY } else { latency as f64 / MS }
}

fn percentile(run: &Run<'_>, permille: u64) -> Option<f64> {
    nearest_rank(&run.latencies, permille).map(in_ms)
}

pub(super) fn p50_ms(run: &Run<'_>) -> Option<f64> {
    percentile(run, 500)
}

pub(super) fn p90_ms(run: &Run<'_>) -> Option<f64> {
    percentile(run, 900)
}

pub(super) fn p95_ms(run: &Run<'_>) -> Option<f64> {
    percentile(run, 950)
}

pub(super) fn p99_ms(run: &Run<'_>) -> Option<f64> {
    percentile(run, 990)
}

pub(super) fn p999_ms(run: &Run<'_>) -> Option<f64> {
    percentile(run, 999)
}

pub(super) fn max_ms(run: &Run<'_>) -> Option<f64> {
    percentile(run, 1000)
}

/// The mean of nanoseconds, in milliseconds. Sums whole numbers, which no order of blocks can change.
fn mean(nanos: impl Iterator<Item = i128>) -> Option<f64> {
    let (sum, count) = nanos.fold((0_i128, 0_u64), |(sum, count), nanos| (sum + nanos, count + 1));
    ratio(sum as f64 / MS, count as f64)
}

pub(super) fn mean_ms(run: &Run<'_>) -> Option<f64> {
    mean(run.latencies.iter().take_while(|latency| **latency != NEVER).map(|&latency| latency.into()))
}

pub(super) fn delta_mean_ms(run: &Run<'_>) -> Option<f64> {
    mean(run.deltas.iter().take_while(|delta| **delta != MISSED).map(|&delta| delta.into()))
}

pub(super) fn delta_p99_ms(run: &Run<'_>) -> Option<f64> {
    nearest_rank(&run.deltas, 990).map(|delta| if delta == MISSED { f64::INFINITY } else { delta as f64 / MS })
}

/// Between two stations of the blocks that arrived whole.
fn mean_between(
    run: &Run<'_>,
    from: impl Fn(&BlockRow) -> Option<u64>,
    to: impl Fn(&BlockRow) -> Option<u64>,
) -> Option<f64> {
    let complete = run.record.blocks.iter().filter(|block| block.complete.is_some());
    mean(complete.filter_map(|block| Some(to(block)?.saturating_sub(from(block)?).into())))
}

pub(super) fn wait_ms(run: &Run<'_>) -> Option<f64> {
    mean_between(run, |block| Some(block.handed_over), |block| block.first_sent)
}

pub(super) fn send_ms(run: &Run<'_>) -> Option<f64> {
    mean_between(run, |block| block.first_sent, |block| block.last_sent)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, nearest_rank};
    use crate::record::BlockRow;

    #[test]
    fn nearest_rank_picks_a_value_that_is_there() {
        let values: Vec<u32> = (1..=100).collect();
        assert_eq!(
            [1, 500, 501, 990, 999, 1000].map(|p| nearest_rank(&values, p)),
            [1, 50, 51, 99, 100, 100].map(Some)
        );
        assert_eq!(nearest_rank(&values[..1], 500), Some(1));
        assert_eq!(nearest_rank(&values[..0], 500), None);
        assert_eq!(nearest_rank(&values, 70), Some(7));
    }

    #[test]
    fn percentiles_count_lost_blocks_as_infinitely_late() {
        let mut blocks: Vec<_> = (1..=99).map(|latency| block(0, latency)).rev().collect();
        blocks.push(lost(0));
        let record = of_blocks(blocks);
        let expected = [("p50_ms", 50.0), ("p90_ms", 90.0), ("p95_ms", 95.0), ("p99_ms", 99.0)];
        expected.into_iter().for_each(|(key, ms)| assert_close(value(key, &record), ms));
        assert_eq!(value("p999_ms", &record), Some(f64::INFINITY));
        assert_eq!(value("max_ms", &record), Some(f64::INFINITY));
        assert_close(value("mean_ms", &record), 50.0);
    }

    #[test]
    fn the_greatest_latency_may_be_finite() {
        assert_close(value("max_ms", &of_blocks(vec![block(0, 30), block(5, 70)])), 70.0);
        assert_close(value("p999_ms", &of_blocks(vec![block(0, 30), block(5, 70)])), 70.0);
    }

    #[test]
    fn without_deliveries_there_is_no_mean() {
        let record = of_blocks(vec![lost(0)]);
        for key in ["mean_ms", "delta_mean_ms", "wait_ms", "send_ms"] {
            assert_eq!(value(key, &record), None, "{key}");
        }
        assert_eq!(value("p50_ms", &record), Some(f64::INFINITY));
        assert_eq!(value("delta_p99_ms", &record), Some(f64::INFINITY));
        assert_eq!(value("p50_ms", &of_blocks(vec![])), None);
    }

    #[test]
    fn early_is_negative() {
        let no_deadline = BlockRow { deadline: None, ..block(0, 5000) };
        let record = of_blocks(vec![block(0, 40), block(0, 120), no_deadline.clone()]);
        assert_close(value("delta_mean_ms", &record), -20.0);
        assert_close(value("delta_p99_ms", &record), 20.0);
        assert_eq!(value("delta_p99_ms", &of_blocks(vec![no_deadline])), None);
    }

    #[test]
    fn stations_of_blocks_that_arrived_whole() {
        let sent = |first, last| BlockRow { first_sent: Some(first * MS), last_sent: Some(last * MS), ..block(10, 50) };
        let unfinished = BlockRow { first_sent: Some(500 * MS), last_sent: Some(900 * MS), ..lost(0) };
        let record = of_blocks(vec![sent(12, 20), sent(16, 40), unfinished]);
        assert_close(value("wait_ms", &record), 4.0);
        assert_close(value("send_ms", &record), 16.0);
    }
}
