//! The course of a run, averaged over the seeds as they come.

use std::collections::BTreeMap;

use super::course::by_second;
use crate::{
    record::RunRecord,
    results::{PriorityCell, Timeline},
};

/// Most points of a curve; longer runs get wider bins. Twice what a figure can show.
const MAX_BINS: usize = 1000;

/// Shares of one second so far.
#[derive(Debug, Clone, Copy)]
struct Second {
    sum: f64,
    least: f64,
    seeds: u32,
}

/// Sums over the seeds of a cell.
#[derive(Debug, Default)]
pub(super) struct TimelineBuilder {
    seeds: u32,
    /// By priority and second of hand-over.
    shares: BTreeMap<u8, BTreeMap<u64, Second>>,
    arrivals: Vec<u64>,
    queue: Vec<u64>,
}

impl TimelineBuilder {
    pub(super) fn add(&mut self, record: &RunRecord, priorities: impl Iterator<Item = u8>) {
        self.seeds += 1;
        for priority in priorities {
            let seconds = self.shares.entry(priority).or_default();
            for (second, share) in by_second(record.blocks.iter().filter(|block| block.priority == priority)) {
                let second = seconds.entry(second).or_insert(Second { sum: 0.0, least: share, seeds: 0 });
                second.sum += share;
                second.least = second.least.min(share);
                second.seeds += 1;
            }
        }
        add_up(&mut self.arrivals, &record.arrivals);
        add_up(&mut self.queue, &record.queue);
    }

    /// `priorities` says in which order.
    pub(super) fn finish(self, priorities: &[PriorityCell]) -> Timeline {
        let seconds = self.shares.values().filter_map(|seconds| seconds.keys().next_back()).max();
        let seconds = 0..seconds.map_or(0, |last| last + 1);
        let course = |figure: fn(&Second) -> f64| -> Vec<Vec<f64>> {
            let of = |cell: &PriorityCell, second| self.shares.get(&cell.priority)?.get(&second).map(figure);
            let line = |cell| seconds.clone().map(|second| of(cell, second).unwrap_or(f64::NAN)).collect();
            priorities.iter().map(line).collect()
        };
        let width = self.arrivals.len().max(self.queue.len()).div_ceil(MAX_BINS).max(1);
        let bin = RunRecord::BIN * width as u32;
        let seeds = f64::from(self.seeds.max(1));
        let mbps = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64 * 8.0 / 1e6 / seeds / bin.as_secs_f64();
        Timeline {
            on_time: course(|second| second.sum / f64::from(second.seeds)),
            on_time_min: course(|second| second.least),
            arrivals_mbps: self.arrivals.chunks(width).map(mbps).collect(),
            queue_bytes: self.queue.chunks(width).map(|bytes| bytes[bytes.len() - 1] as f64 / seeds).collect(),
            bin_ms: bin.as_secs_f64() * 1e3,
        }
    }
}

/// Where one run was longer than another, the shorter one had nothing.
fn add_up(sums: &mut Vec<u64>, values: &[u32]) {
    sums.resize(sums.len().max(values.len()), 0);
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += u64::from(*value));
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn timeline(records: &[RunRecord], priorities: &[u8]) -> Timeline {
        let mut builder = TimelineBuilder::default();
        records.iter().for_each(|record| builder.add(record, priorities.iter().copied()));
        let cells: Vec<_> =
            priorities.iter().map(|&priority| PriorityCell { priority, ..Default::default() }).collect();
        builder.finish(&cells)
    }

    #[test]
    fn seconds_average_over_the_seeds_that_have_blocks() {
        let records =
            [of_blocks(vec![block(0, 10), lost(500), block(2000, 10)]), of_blocks(vec![block(0, 10), block(500, 10)])];
        let timeline = timeline(&records, &[0, 1]);
        assert_eq!(timeline.on_time[0][0], 0.75);
        assert_eq!(timeline.on_time_min[0][0], 0.5);
        assert!(timeline.on_time[0][1].is_nan());
        assert_eq!(timeline.on_time[0][2], 1.0);
        assert_eq!(timeline.on_time[1].len(), 3);
        assert!(timeline.on_time[1].iter().all(|share| share.is_nan()));
    }

    #[test]
    fn rates_average_over_all_seeds() {
        let with = |arrivals, queue| RunRecord { arrivals, queue, ..record() };
        let timeline = timeline(&[with(vec![5000, 2500], vec![10, 30]), with(vec![5000], vec![20])], &[]);
        assert_eq!(timeline.arrivals_mbps, [2.0, 0.5]);
        assert_eq!(timeline.queue_bytes, [15.0, 15.0]);
        assert_eq!(timeline.bin_ms, 20.0);
    }

    #[test]
    fn long_runs_get_wider_bins() {
        let queue = (0..2500).collect();
        let timeline = timeline(&[RunRecord { arrivals: vec![2500; 2500], queue, ..record() }], &[]);
        assert_eq!(timeline.arrivals_mbps[..833], [1.0; 833]);
        assert_eq!(timeline.bin_ms, 60.0);
        assert_eq!((timeline.queue_bytes.len(), timeline.queue_bytes[0]), (834, 2.0));
    }
}
