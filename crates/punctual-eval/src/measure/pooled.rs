//! Percentiles of latency over the blocks of all runs together, and of one priority's or one source's.

use std::collections::BTreeMap;

use super::{
    MeasureConfig,
    latency::{in_ms, latency, nearest_rank},
};
use crate::{record::RunRecord, results::Stat};

/// The percentiles there are, in thousandths, by the measures whose definition they share.
pub(crate) const PERCENTILES: [(&str, u64); 6] =
    [("p50_ms", 500), ("p90_ms", 900), ("p95_ms", 950), ("p99_ms", 990), ("p999_ms", 999), ("max_ms", 1000)];

/// All blocks, in the name of a percentile.
pub(super) const ALL: &str = "all";

/// Those that were handed over once the experiment's windows had grown, likewise.
pub(super) const SETTLED: &str = "settled";

/// Gathers the latencies of a cell's runs by whom they are of: `all`, `settled`, a priority's number, a source's name.
#[derive(Debug, Default)]
pub(super) struct Pool(BTreeMap<String, Vec<u64>>);

impl Pool {
    pub(super) fn add(&mut self, record: &RunRecord, config: &MeasureConfig) {
        if let Some(from) = &config.settled {
            let settled = record.blocks.iter().filter(|block| u128::from(block.handed_over) >= from.0.as_nanos());
            self.0.entry(SETTLED.to_owned()).or_default().extend(settled.map(latency));
        }
        let mut by_key: BTreeMap<(u8, u16), Vec<u64>> = BTreeMap::new();
        for block in &record.blocks {
            by_key.entry((block.priority, block.source)).or_default().push(latency(block));
        }
        for ((priority, source), latencies) in by_key {
            let source = record.sources.get(usize::from(source)).filter(|name| name.parse::<u8>().is_err());
            for who in [Some(ALL.to_owned()), Some(priority.to_string()), source.cloned()].into_iter().flatten() {
                self.0.entry(who).or_default().extend(&latencies);
            }
        }
    }

    /// Each percentile of each, by its name: `p99_ms:all`. It is one figure of `runs` runs, and has no interval.
    pub(super) fn finish(self, runs: u32) -> BTreeMap<String, Stat> {
        let mut stats = BTreeMap::new();
        for (who, mut latencies) in self.0 {
            latencies.sort_unstable();
            for (key, permille) in PERCENTILES {
                if let Some(value) = nearest_rank(&latencies, permille).map(in_ms) {
                    let stat = Stat { mean: value, half_width: 0.0, min: value, max: value, n: runs };
                    stats.insert(format!("{key}:{who}"), stat);
                }
            }
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::{record::BlockRow, units::Time};

    #[test]
    fn runs_are_pooled_by_priority_and_source() {
        let of = |priority, source, block: BlockRow| BlockRow { priority, source, ..block };
        let run = |latency| RunRecord {
            sources: vec!["audio".to_owned(), "7".to_owned()],
            ..of_blocks(vec![of(0, 0, block(0, latency)), of(3, 1, block(0, 10 * latency)), of(3, 1, lost(0))])
        };
        let mut pool = Pool::default();
        let config =
            MeasureConfig { settled: Some(Time(std::time::Duration::from_millis(1))), ..MeasureConfig::default() };
        [1, 2].into_iter().for_each(|latency| pool.add(&run(latency), &config));
        let stats = pool.finish(2);
        let mean = |key: &str| stats.get(key).map(|stat| stat.mean);
        assert_eq!(
            [mean("max_ms:audio"), mean("p50_ms:audio"), mean("p50_ms:all")],
            [Some(2.0), Some(1.0), Some(10.0)]
        );
        assert_eq!([mean("p50_ms:3"), mean("max_ms:3")], [Some(20.0), Some(f64::INFINITY)]);
        assert_eq!(mean("p50_ms:7"), None, "a number is a priority");
        assert_eq!(stats["p99_ms:0"].n, 2);
        assert_eq!(mean("max_ms:settled"), None, "all were handed over at once");
    }
}
