//! Records made by hand.

use std::time::Duration;

use super::{BoundFigures, Measure, MeasureConfig, Playout, Run};
use crate::{
    record::{BlockRow, Ending, Nanos, RunRecord},
    units::Time,
};

pub(super) const MS: Nanos = 1_000_000;

/// A block of 1,000 bytes handed over at `at` ms, delivered `latency` ms later; its deadline is 100 ms.
pub(super) fn block(at: u64, latency: u64) -> BlockRow {
    let (handed_over, done) = (at * MS, (at + latency) * MS);
    BlockRow {
        size: 1000,
        deadline: Some(100 * MS),
        handed_over,
        first_sent: Some(handed_over),
        last_sent: Some(handed_over),
        first_arrived: Some(done),
        complete: Some(done),
        delivered: Some(done),
        usable: Some(done),
        ending: Ending::Delivered,
        good_bytes: if latency <= 100 { 1000 } else { 0 },
        arrived_bytes: 1000,
        source_bytes: 1000,
        ..BlockRow::default()
    }
}

/// A block of 1,000 bytes of which nothing was sent.
pub(super) fn lost(at: u64) -> BlockRow {
    BlockRow { size: 1000, deadline: Some(100 * MS), handed_over: at * MS, ..BlockRow::default() }
}

/// A record of a second without blocks, of a source `video`.
pub(super) fn record() -> RunRecord {
    RunRecord { sources: vec!["video".to_owned()], duration: 1000 * MS, ..RunRecord::default() }
}

pub(super) fn of_blocks(blocks: Vec<BlockRow>) -> RunRecord {
    RunRecord { blocks, ..record() }
}

/// A player of 200 ms blocks with room for two.
pub(super) fn with_playout() -> MeasureConfig {
    let ms = |ms| Time(Duration::from_millis(ms));
    let playout = Playout { source: "video".to_owned(), block: ms(200), buffer: ms(400) };
    MeasureConfig { playout: Some(playout), ..MeasureConfig::default() }
}

/// The measure `key` of a record without bound and settings.
pub(super) fn value(key: &str, record: &RunRecord) -> Option<f64> {
    value_with(key, record, &BoundFigures::default(), &MeasureConfig::default())
}

pub(super) fn value_with(key: &str, record: &RunRecord, bound: &BoundFigures, config: &MeasureConfig) -> Option<f64> {
    Measure::find(key).unwrap_or_else(|| panic!("no measure {key}")).of(&Run::new(record, bound, config))
}

/// Compares up to rounding.
pub(super) fn assert_close(value: Option<f64>, expected: f64) {
    assert!(value.is_some_and(|value| (value - expected).abs() < 1e-9), "{value:?} is not {expected}");
}
