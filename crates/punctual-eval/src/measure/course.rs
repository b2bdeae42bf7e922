//! How a run went over time.

use std::collections::BTreeMap;

use super::{Run, ratio};
use crate::record::{BlockRow, Nanos, RunRecord};

const SECOND: Nanos = 1_000_000_000;

pub(super) fn recovered_ms(run: &Run<'_>) -> Option<f64> {
    let step = u64::try_from(run.config.step?.0.as_nanos()).ok()?;
    let missed = run.record.blocks.iter().filter(|block| !block.on_time());
    let since = missed.filter_map(|block| block.handed_over.checked_sub(step)).max();
    Some(since.unwrap_or(0) as f64 / 1e6)
}

pub(super) fn worst_second_p0(run: &Run<'_>) -> Option<f64> {
    by_second(run.record.blocks.iter().filter(|block| block.priority == 0)).into_values().min_by(f64::total_cmp)
}

/// Blocks that were handed over in the experiment's window.
fn in_window<'a>(run: &'a Run<'_>) -> Option<impl Iterator<Item = &'a BlockRow>> {
    let window = window(run)?;
    Some(run.record.blocks.iter().filter(move |block| window.contains(&block.handed_over)))
}

fn window(run: &Run<'_>) -> Option<std::ops::Range<Nanos>> {
    let (from, to) = run.config.window?;
    Some(u64::try_from(from.0.as_nanos()).ok()?..u64::try_from(to.0.as_nanos()).ok()?)
}

pub(super) fn on_time_in_window(run: &Run<'_>) -> Option<f64> {
    let (on_time, all) =
        in_window(run)?.fold((0_u64, 0_u64), |(on_time, all), block| (on_time + u64::from(block.on_time()), all + 1));
    ratio(on_time as f64, all as f64)
}

pub(super) fn carried_in_window(run: &Run<'_>) -> Option<f64> {
    let offered: u64 = in_window(run)?.map(|block| u64::from(block.size)).sum();
    let (window, bin) = (window(run)?, RunRecord::BIN.as_nanos() as Nanos);
    let begins = (0..).step_by(bin as usize);
    let arrived = run.record.arrivals.iter().zip(begins).filter(|(_, begin)| window.contains(begin));
    ratio(arrived.map(|(bytes, _)| u64::from(*bytes)).sum::<u64>() as f64, offered as f64)
}

/// Share on time of the blocks handed over in each second that has any.
pub(super) fn by_second<'a>(blocks: impl Iterator<Item = &'a BlockRow>) -> BTreeMap<u64, f64> {
    let mut seconds: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for block in blocks {
        let (on_time, all) = seconds.entry(block.handed_over / SECOND).or_default();
        *on_time += u64::from(block.on_time());
        *all += 1;
    }
    seconds.into_iter().map(|(second, (on_time, all))| (second, on_time as f64 / all as f64)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{BoundFigures, MeasureConfig, testing::*};
    use crate::{
        record::{BlockRow, RunRecord},
        units::Time,
    };

    #[test]
    fn recovery_ends_with_the_last_block_missed() {
        let after = |blocks| {
            let config = MeasureConfig { step: Some(Time(Duration::from_secs(1))), ..MeasureConfig::default() };
            value_with("recovered_ms", &of_blocks(blocks), &BoundFigures::default(), &config)
        };
        assert_close(after(vec![block(1000, 200), lost(1200), block(1300, 300), block(1400, 10)]), 300.0);
        assert_close(after(vec![lost(900), block(1400, 10)]), 0.0);
        assert_close(after(vec![]), 0.0);
        assert_eq!(value("recovered_ms", &of_blocks(vec![lost(0)])), None);
    }

    #[test]
    fn a_window_counts_what_begins_in_it() {
        let ms = |ms| Time(Duration::from_millis(ms));
        let within = |key, record: &RunRecord| {
            let config = MeasureConfig { window: Some((ms(100), ms(200))), ..MeasureConfig::default() };
            value_with(key, record, &BoundFigures::default(), &config)
        };
        let blocks = vec![lost(99), block(100, 50), lost(150), block(180, 10), block(190, 50), block(200, 300)];
        let mut record = of_blocks(blocks);
        assert_close(within("on_time_in_window", &record), 0.75);
        // Of 4,000 bytes handed over, so many arrived in bins 5 to 9.
        record.arrivals = vec![0, 0, 0, 0, 7000, 1000, 0, 0, 0, 2000, 9000];
        assert_close(within("carried_in_window", &record), 0.75);
        assert_eq!(value("on_time_in_window", &record), None);
        assert_eq!(value("carried_in_window", &record), None);
        let empty = of_blocks(vec![lost(500)]);
        assert_eq!((within("on_time_in_window", &empty), within("carried_in_window", &empty)), (None, None));
    }

    #[test]
    fn the_worst_second_is_of_priority_0_and_has_blocks() {
        let low = BlockRow { priority: 1, ..lost(5000) };
        let blocks = vec![block(0, 10), lost(999), block(3000, 10), block(3100, 10), lost(3200), low.clone()];
        assert_close(value("worst_second_p0", &of_blocks(blocks)), 0.5);
        assert_eq!(value("worst_second_p0", &of_blocks(vec![low])), None);
    }
}
