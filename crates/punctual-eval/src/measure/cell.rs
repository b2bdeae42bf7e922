//! From the runs of a cell, one seed after the other, to what is kept of it.

use std::collections::BTreeMap;

use super::{
    BoundFigures, MEASURES, MeasureConfig, Run, latency, of_bound, pooled::Pool, ratio, stat, timeline::TimelineBuilder,
};
use crate::{
    record::{BlockRow, RunRecord, SentBytes},
    results::{Cell, EndedRun, PriorityCell, Stat},
};

/// How many of the longest latencies the CCDF keeps one by one.
const TAIL: usize = 100;

/// Points a decade of the CCDF gets before its tail.
const PER_DECADE: i32 = 40;

/// Values of one priority, a run each.
#[derive(Debug, Default)]
struct PriorityValues {
    on_time: Vec<f64>,
    bound_up_to: Vec<f64>,
    share_of_bound_up_to: Vec<f64>,
}

/// Gathers a cell's runs. It keeps every latency, 8 bytes a block and four times that, and otherwise only sums: records can go as soon as they were
/// added.
#[derive(Debug)]
pub struct CellBuilder {
    config: MeasureConfig,
    cell: Cell,
    values: Vec<Vec<f64>>,
    priorities: BTreeMap<u8, PriorityValues>,
    by_source: Vec<Vec<f64>>,
    path_bytes: Vec<SentBytes>,
    latencies: Vec<u64>,
    pool: Pool,
    timeline: TimelineBuilder,
}

impl CellBuilder {
    /// An empty cell at this place of the experiment; `params` and `numbers` as in [`Cell`].
    pub fn new(
        params: Vec<(String, String)>,
        numbers: Vec<Option<f64>>,
        contender: String,
        config: MeasureConfig,
    ) -> Self {
        Self {
            config,
            cell: Cell { params, numbers, contender, ..Cell::default() },
            values: vec![Vec::new(); MEASURES.len()],
            priorities: BTreeMap::new(),
            by_source: Vec::new(),
            path_bytes: Vec::new(),
            latencies: Vec::new(),
            pool: Pool::default(),
            timeline: TimelineBuilder::default(),
        }
    }

    /// Adds the run of the next seed. Returns the run's own values, in the order of [`MEASURES`].
    pub fn add(&mut self, record: &RunRecord, bound: &BoundFigures) -> Vec<Option<f64>> {
        let run = Run::new(record, bound, &self.config);
        let values = run.values();
        for (all, value) in self.values.iter_mut().zip(&values) {
            all.extend(value);
        }
        self.latencies.extend_from_slice(&run.latencies);
        self.pool.add(record, &self.config);
        self.cell.seeds += 1;
        let seed = self.cell.seeds;
        self.cell.ended.extend(record.ended.as_ref().map(|ended| EndedRun { seed, ended: ended.to_string() }));
        let blocks = self.add_priorities(record, bound);
        self.timeline.add(record, blocks.keys().copied());
        self.add_sources(record);
        grow(&mut self.path_bytes, record.paths.len());
        self.path_bytes.iter_mut().zip(&record.paths).for_each(|(sum, path)| *sum += path.sent);
        self.cell.lost += record.lost;
        self.cell.wasted_bytes += record.wasted_bytes;
        values
    }

    /// Returns the blocks on time, and all, of each priority.
    fn add_priorities(&mut self, record: &RunRecord, bound: &BoundFigures) -> BTreeMap<u8, (u64, u64)> {
        let blocks = tally(record, |block| block.priority);
        let (mut on_time_up_to, mut all_up_to) = (0, 0);
        for (&priority, &(on_time, all)) in &blocks {
            on_time_up_to += on_time;
            all_up_to += all;
            let values = self.priorities.entry(priority).or_default();
            values.on_time.extend(ratio(on_time as f64, all as f64));
            if let Some(bound) = bound.up_to(priority) {
                values.bound_up_to.extend(ratio(bound as f64, all_up_to as f64));
                values.share_of_bound_up_to.push(of_bound(on_time_up_to as f64, bound as f64));
            }
        }
        blocks
    }

    fn add_sources(&mut self, record: &RunRecord) {
        if self.cell.sources.len() < record.sources.len() {
            self.cell.sources.clone_from(&record.sources);
        }
        grow(&mut self.by_source, record.sources.len());
        for (source, (on_time, all)) in tally(record, |block| block.source) {
            if let Some(values) = self.by_source.get_mut(usize::from(source)) {
                values.extend(ratio(on_time as f64, all as f64));
            }
        }
    }

    /// The cell over all runs added.
    pub fn finish(self) -> Cell {
        let stats = MEASURES.iter().zip(&self.values).map(|(measure, values)| (measure.key.to_owned(), stat(values)));
        let priorities: Vec<_> =
            self.priorities.into_iter().map(|(priority, values)| values.finish(priority)).collect();
        let all_bytes = self.path_bytes.iter().map(SentBytes::total).sum::<u64>() as f64;
        let mut latencies = self.latencies;
        latencies.sort_unstable();
        Cell {
            stats: stats.collect(),
            on_time_by_source: self.by_source.iter().map(|values| stat(values)).collect(),
            path_shares: self
                .path_bytes
                .iter()
                .map(|bytes| ratio(bytes.total() as f64, all_bytes).unwrap_or(0.0))
                .collect(),
            path_bytes: self.path_bytes,
            ccdf: ccdf(&latencies),
            pooled: self.pool.finish(self.cell.seeds),
            timeline: self.timeline.finish(&priorities),
            priorities,
            ..self.cell
        }
    }
}

impl PriorityValues {
    fn finish(self, priority: u8) -> PriorityCell {
        let [on_time, bound_up_to, share_of_bound_up_to]: [Stat; 3] =
            [self.on_time, self.bound_up_to, self.share_of_bound_up_to].map(|values| stat(&values));
        PriorityCell { priority, on_time, bound_up_to, share_of_bound_up_to }
    }
}

fn grow<T: Default>(values: &mut Vec<T>, len: usize) {
    values.resize_with(values.len().max(len), T::default);
}

/// Blocks on time, and all of them, by what `key` says.
fn tally<K: Ord>(record: &RunRecord, key: impl Fn(&BlockRow) -> K) -> BTreeMap<K, (u64, u64)> {
    let mut tally = BTreeMap::new();
    for block in &record.blocks {
        let (on_time, all): &mut (u64, u64) = tally.entry(key(block)).or_default();
        *on_time += u64::from(block.on_time());
        *all += 1;
    }
    tally
}

/// The share of blocks that took longer than each of a few hundred of the sorted latencies.
///
/// The body is thinned twice, evenly in the share and evenly in its logarithm, as a figure may have either axis; the
/// [`TAIL`] longest finite latencies are all there.
fn ccdf(latencies: &[u64]) -> Vec<(f64, f64)> {
    let all = latencies.len();
    let finite = latencies.partition_point(|latency| *latency != latency::NEVER);
    let even = (0..=100).map(|percent| all * percent / 100);
    let decades = (all.max(1) as f64).log10().ceil() as i32;
    let logarithmic = (0..=decades * PER_DECADE)
        .map(|step| all - (all as f64 * 10_f64.powf(-f64::from(step) / f64::from(PER_DECADE))) as usize);
    let tail = finite.saturating_sub(TAIL)..finite;
    let mut ranks: Vec<usize> = even.chain(logarithmic).chain(tail).filter(|rank| *rank < finite).collect();
    ranks.sort_unstable();
    let mut thinned: Vec<u64> = ranks.into_iter().map(|rank| latencies[rank]).collect();
    thinned.dedup();
    let longer = |latency| all - latencies.partition_point(|other| *other <= latency);
    thinned.into_iter().map(|latency| (latency::in_ms(latency), longer(latency) as f64 / all as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::record::{LostBytes, PathRow};

    fn builder() -> CellBuilder {
        let params = vec![("bandwidth".to_owned(), "1 MB/s".to_owned())];
        CellBuilder::new(params, vec![Some(8e6)], "ads".to_owned(), MeasureConfig::default())
    }

    fn cell(runs: &[(RunRecord, BoundFigures)]) -> Cell {
        let mut builder = builder();
        runs.iter().for_each(|(record, bound)| drop(builder.add(record, bound)));
        builder.finish()
    }

    #[test]
    fn an_empty_cell_is_empty() {
        let cell = cell(&[]);
        assert_eq!((cell.seeds, cell.mean("on_time")), (0, None));
        assert_eq!(cell.stats.len(), MEASURES.len());
        assert!(cell.ccdf.is_empty() && cell.priorities.is_empty());
        assert_eq!(cell.contender, "ads");
    }

    #[test]
    fn measures_are_averaged_over_the_runs_that_have_them() {
        let run = |blocks| (of_blocks(blocks), BoundFigures::default());
        let mut builder = builder();
        let (first, second) = (run(vec![block(0, 10), lost(0)]), run(vec![lost(0)]));
        let values = builder.add(&first.0, &first.1);
        assert_eq!(values, Run::new(&first.0, &first.1, &MeasureConfig::default()).values());
        builder.add(&second.0, &second.1);
        let cell = builder.finish();
        assert_eq!((cell.seeds, cell.mean("on_time")), (2, Some(0.25)));
        assert_eq!((cell.mean("mean_ms"), cell.stats["mean_ms"].n), (Some(10.0), 1));
        assert_eq!(cell.mean("p50_ms"), Some(f64::INFINITY));
        assert_eq!(cell.mean("jain"), None);
    }

    #[test]
    fn priorities_accumulate_against_the_bound() {
        let of = |priority, block: BlockRow| BlockRow { priority, ..block };
        let blocks = vec![of(0, block(0, 10)), of(0, lost(0)), of(2, block(0, 10)), of(2, lost(0)), of(2, lost(0))];
        let bound = BoundFigures { up_to_priority: vec![(0, 2), (2, 4)], ..BoundFigures::default() };
        let cell = cell(&[(of_blocks(blocks), bound)]);
        let means = |priority: &PriorityCell| {
            [priority.on_time, priority.bound_up_to, priority.share_of_bound_up_to].map(|stat| stat.mean)
        };
        assert_eq!(cell.priorities.iter().map(|priority| priority.priority).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(means(&cell.priorities[0]), [0.5, 1.0, 0.5]);
        assert_eq!(means(&cell.priorities[1]), [1.0 / 3.0, 0.8, 0.5]);
        assert_eq!((cell.timeline.on_time[0][0], cell.timeline.on_time[1][0]), (0.5, 1.0 / 3.0));
    }

    #[test]
    fn sources_and_paths() {
        let of = |source, block: BlockRow| BlockRow { source, ..block };
        let path = |source, repair| PathRow {
            sent: SentBytes { source, repair, ..SentBytes::default() },
            ..PathRow::default()
        };
        let first = RunRecord {
            sources: vec!["audio".to_owned(), "video".to_owned(), "idle".to_owned()],
            paths: vec![path(10, 0), path(20, 10)],
            lost: LostBytes { restored: 3, never_regained: 1, ..LostBytes::default() },
            wasted_bytes: 7,
            ..of_blocks(vec![of(0, block(0, 10)), of(1, block(0, 10)), of(1, lost(0)), of(9, lost(0))])
        };
        let cell = cell(&[(first.clone(), BoundFigures::default()), (first, BoundFigures::default())]);
        assert_eq!(cell.sources, ["audio", "video", "idle"]);
        assert_eq!(
            cell.on_time_by_source.iter().map(|s| (s.mean, s.n)).collect::<Vec<_>>(),
            [(1.0, 2), (0.5, 2), (0.0, 0)]
        );
        assert_eq!(cell.path_shares, [0.25, 0.75]);
        assert_eq!(cell.path_bytes[1], SentBytes { source: 40, repair: 20, ..SentBytes::default() });
        assert_eq!((cell.lost.restored, cell.lost.total(), cell.wasted_bytes), (6, 8, 14));
    }

    #[test]
    fn the_ccdf_of_few_blocks_is_all_of_it() {
        let ms = |ms: u64| ms * MS;
        assert_eq!(ccdf(&[ms(1), ms(2), ms(2), latency::NEVER]), [(1.0, 0.75), (2.0, 0.25)]);
        assert_eq!(ccdf(&[latency::NEVER]), []);
        assert_eq!(ccdf(&[]), []);
    }

    #[test]
    fn the_ccdf_of_many_blocks_is_thinned_but_for_its_tail() {
        let mut latencies: Vec<u64> = (1..=1_000_000).map(|i| i * 1000).collect();
        latencies.extend([latency::NEVER; 10]);
        let ccdf = ccdf(&latencies);
        assert!((300..600).contains(&ccdf.len()), "{}", ccdf.len());
        let share = |longer: u32| f64::from(longer) / 1_000_010.0;
        let tail: Vec<_> = (0..100).rev().map(|i| (f64::from(1_000_000 - i) / 1e3, share(i + 10))).collect();
        assert_eq!(ccdf[ccdf.len() - 100..], tail);
        assert!(ccdf.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1));
        assert!(ccdf.windows(2).all(|pair| pair[0].1 - pair[1].1 < 0.0101 && pair[0].1 / pair[1].1 < 1.11));
    }
}
