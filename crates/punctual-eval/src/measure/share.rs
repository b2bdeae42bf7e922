//! Shares of blocks, and what comes of them.

use super::{Run, if_blocks, of_bound, ratio};
use crate::record::BlockRow;

fn count(run: &Run<'_>, which: impl Fn(&BlockRow) -> bool) -> f64 {
    run.record.blocks.iter().filter(|block| which(block)).count() as f64
}

fn planned(run: &Run<'_>) -> f64 {
    run.record.blocks.len() as f64
}

pub(super) fn on_time(run: &Run<'_>) -> Option<f64> {
    ratio(count(run, BlockRow::on_time), planned(run))
}

pub(super) fn delivered(run: &Run<'_>) -> Option<f64> {
    ratio(count(run, |block| block.delivered.is_some()), planned(run))
}

pub(super) fn bound(run: &Run<'_>) -> Option<f64> {
    ratio(run.bound.on_time as f64, planned(run))
}

pub(super) fn share_of_bound(run: &Run<'_>) -> Option<f64> {
    if_blocks(run, || of_bound(count(run, BlockRow::on_time), run.bound.on_time as f64))
}

pub(super) fn bound_average(run: &Run<'_>) -> Option<f64> {
    ratio(run.bound.average_on_time, planned(run))
}

pub(super) fn share_of_bound_average(run: &Run<'_>) -> Option<f64> {
    if_blocks(run, || of_bound(count(run, BlockRow::on_time), run.bound.average_on_time))
}

/// Where nothing depends on anything, the bound itself.
fn most_decodable(run: &Run<'_>) -> f64 {
    run.bound.decodable.unwrap_or(run.bound.on_time) as f64
}

pub(super) fn bound_decodable(run: &Run<'_>) -> Option<f64> {
    ratio(most_decodable(run), planned(run))
}

pub(super) fn share_of_decodable(run: &Run<'_>) -> Option<f64> {
    if_blocks(run, || of_bound(count(run, BlockRow::on_time), most_decodable(run)))
}

pub(super) fn score(run: &Run<'_>) -> Option<f64> {
    // Counted by priority first: the sum must not depend on the order of blocks, and this is also quicker.
    let mut on_time = [0_u64; 256];
    for block in run.record.blocks.iter().filter(|block| block.on_time()) {
        on_time[usize::from(block.priority)] += 1;
    }
    let points = (0..=u8::MAX).zip(on_time).map(|(priority, blocks)| run.config.weights.of(priority) * blocks as f64);
    if_blocks(run, || points.sum())
}

pub(super) fn score_share_of_bound(run: &Run<'_>) -> Option<f64> {
    Some(of_bound(score(run)?, run.bound.weighted))
}

pub(super) fn jain(run: &Run<'_>) -> Option<f64> {
    // A flow that is alone is neither fair nor unfair.
    let flows = Some(&run.record.flows).filter(|flows| flows.len() > 1)?;
    let sum: f64 = flows.iter().map(|flow| flow.delivered_bytes as f64).sum();
    let squares: f64 = flows.iter().map(|flow| (flow.delivered_bytes as f64).powi(2)).sum();
    ratio(sum * sum, flows.len() as f64 * squares)
}

pub(super) fn least_flow_on_time(run: &Run<'_>) -> Option<f64> {
    let flows = Some(&run.record.flows).filter(|flows| flows.len() > 1)?;
    flows.iter().filter_map(|flow| ratio(flow.on_time as f64, flow.blocks as f64)).min_by(f64::total_cmp)
}

pub(super) fn reply_on_time(run: &Run<'_>) -> Option<f64> {
    let reply = run.record.reply.as_ref()?;
    ratio(reply.on_time as f64, reply.blocks as f64)
}

#[cfg(test)]
mod tests {
    use super::super::{BoundFigures, MeasureConfig, testing::*};
    use crate::record::{BlockRow, FlowRow, RunRecord};

    fn four() -> RunRecord {
        let no_deadline = BlockRow { deadline: None, ..block(30, 900) };
        of_blocks(vec![block(0, 100), block(10, 101), lost(20), no_deadline])
    }

    #[test]
    fn late_and_lost_blocks_are_not_on_time() {
        assert_close(value("on_time", &four()), 0.5);
        assert_close(value("delivered", &four()), 0.75);
        assert_close(value("on_time", &of_blocks(vec![lost(0)])), 0.0);
        assert_eq!(value("on_time", &record()), None);
        assert_eq!(value("delivered", &record()), None);
    }

    #[test]
    fn shares_of_the_bound() {
        let bound = BoundFigures { on_time: 3, weighted: 2.5, average_on_time: 1.6, ..BoundFigures::default() };
        let with = |key| value_with(key, &four(), &bound, &MeasureConfig::default());
        assert_close(with("bound"), 0.75);
        assert_close(with("share_of_bound"), 2.0 / 3.0);
        assert_close(with("score_share_of_bound"), 2.0 / 2.5);
        assert_close(with("bound_decodable"), 0.75);
        let bound = BoundFigures { decodable: Some(2), ..bound.clone() };
        let of_decodable = |key| value_with(key, &four(), &bound, &MeasureConfig::default());
        assert_close(of_decodable("bound_decodable"), 0.5);
        assert_close(of_decodable("share_of_decodable"), 1.0);
        assert_close(with("bound_average"), 0.4);
        assert_close(with("share_of_bound_average"), 1.25);
        assert_close(value("share_of_bound", &of_blocks(vec![lost(0)])), 1.0);
        assert_close(value("share_of_bound_average", &of_blocks(vec![lost(0)])), 1.0);
        assert_eq!((value("bound_average", &record()), value("share_of_bound_average", &record())), (None, None));
    }

    #[test]
    fn blocks_score_by_priority_if_on_time() {
        let of = |priority, latency| BlockRow { priority, ..block(0, latency) };
        let record = of_blocks(vec![of(0, 50), of(1, 50), of(2, 50), of(7, 50), of(0, 200), lost(0)]);
        assert_close(value("score", &record), 1.0 + 2.0 / 3.0 + 1.0 / 3.0 + 1.0 / 3.0);
        let config = MeasureConfig { weights: vec![1.0, 0.0].try_into().unwrap(), ..MeasureConfig::default() };
        assert_close(value_with("score", &record, &BoundFigures::default(), &config), 1.0);
    }

    #[test]
    fn jain_is_one_for_equals_one_nth_for_a_monopoly_and_nothing_for_one() {
        let with = |bytes: &[u64]| {
            let flow = |&delivered_bytes| FlowRow { delivered_bytes, ..FlowRow::default() };
            value("jain", &RunRecord { flows: bytes.iter().map(flow).collect(), ..record() })
        };
        assert_close(with(&[5, 5, 5]), 1.0);
        assert_close(with(&[9, 0, 0]), 1.0 / 3.0);
        assert_close(with(&[3, 1]), 0.8);
        assert_eq!(with(&[7]), None);
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[0, 0]), None);
    }

    #[test]
    fn a_reply_is_measured_by_its_own_blocks() {
        let reply = |on_time, blocks| Some(FlowRow { on_time, blocks, ..FlowRow::default() });
        let value = |reply| value("reply_on_time", &RunRecord { reply, ..of_blocks(vec![lost(0)]) });
        assert_close(value(reply(3, 4)), 0.75);
        assert_eq!(value(reply(0, 0)), None);
        assert_eq!(value(None), None);
    }

    #[test]
    fn the_worst_flow_is_of_those_with_blocks() {
        let with = |flows: &[(u64, u64)]| {
            let flow = |&(on_time, blocks)| FlowRow { on_time, blocks, ..FlowRow::default() };
            value("least_flow_on_time", &RunRecord { flows: flows.iter().map(flow).collect(), ..record() })
        };
        assert_close(with(&[(9, 10), (3, 4), (0, 0)]), 0.75);
        assert_eq!(with(&[(9, 10)]), None);
        assert_eq!(with(&[(0, 0), (0, 0)]), None);
    }
}
