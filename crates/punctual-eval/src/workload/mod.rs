//! To be written.
use std::time::Duration;
use crate::{plan::*, units::*, files::Files};
/// stub
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
pub struct Source { #[allow(missing_docs)] pub size: Size, #[allow(missing_docs)] pub every: Time, #[allow(missing_docs)] pub deadline: Time, #[allow(missing_docs)] pub priority: Vec<u8> }
/// stub
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct WorkloadError;
/// stub
pub fn plan(sources: &[Source], duration: Duration, _: u64, _: &Files) -> Result<Plan, WorkloadError> {
    let mut plan = Plan::default();
    for s in sources { for p in &s.priority {
        let mut at = Duration::ZERO; let id = plan.sources.len() as u16;
        plan.sources.push(SourcePlan { name: format!("p{p}"), hand_over: HandOver::default(), bulk: None });
        while at < duration { plan.blocks.push(PlannedBlock { at, size: s.size.0 as u32, deadline: Some(s.deadline.0), priority: *p, source: id, depends_on: vec![], ordered: false }); at += s.every.0; }
    } }
    plan.blocks.sort_by_key(|b| (b.at, b.source));
    Ok(plan)
}
