//! What is kept of a run: counts, not blocks.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    bound::Job,
    carry::Stage,
    experiment::Setup,
    measure::{BoundFigures, Run},
    record::{BlockRow, RunRecord},
    run::{figures, jobs_of, limits},
};

/// Blocks handed over in this time tell how a session starts.
pub(super) const START: Duration = Duration::from_secs(1);

/// Some blocks, and how many of them were on time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) blocks: u64,
    pub(super) on_time: u64,
}

impl Tally {
    fn add(&mut self, block: &BlockRow) {
        self.blocks += 1;
        self.on_time += u64::from(block.on_time());
    }
}

/// What nobody can exceed with a cell's blocks under a seed, in blocks on time with all that they need.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Limit {
    pub(super) blocks: u64,
    pub(super) bound: f64,
    /// On average over the losses.
    pub(super) average: f64,
    /// The same of the blocks of the [start](START).
    pub(super) start_blocks: u64,
    pub(super) start_bound: f64,
    pub(super) start_average: f64,
    /// The average of each priority and those above it.
    pub(super) up_to_priority: Vec<(u8, f64)>,
}

/// A run, in what the journal has of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) all: Tally,
    pub(super) start: Tally,
    pub(super) priorities: Vec<(u8, Tally)>,
    pub(super) limit: Limit,
    /// Of every measure.
    pub(super) values: Vec<Option<f64>>,
    /// Totals; its blocks and its course are not kept.
    pub(super) totals: RunRecord,
    pub(super) bound: BoundFigures,
}

/// A bound of a cell under a seed, as measures and as the judge take it.
pub(super) fn limit(stage: &Stage, setup: &Setup) -> (Limit, BoundFigures) {
    // As planned: a cell's sources never wait for room in the transport.
    let planned = RunRecord {
        blocks: stage.plan.blocks.iter().map(|block| row(block.at, block)).collect(),
        ..RunRecord::default()
    };
    let jobs = jobs_of(&planned, &setup.measure);
    let start: Vec<Job> = jobs.iter().copied().filter(|job| job.handed_over < START).collect();
    let apart = limits::bound(stage, &jobs);
    let dependent = limits::dependent(stage, &jobs);
    let figures = BoundFigures { decodable: dependent.as_ref().map(|bound| bound.on_time), ..figures(&apart) };
    let whole = dependent.unwrap_or(apart);
    let first = limits::dependent(stage, &start).unwrap_or_else(|| limits::bound(stage, &start));
    let limit = Limit {
        blocks: jobs.len() as u64,
        bound: whole.on_time as f64,
        average: whole.average.on_time,
        start_blocks: start.len() as u64,
        start_bound: first.on_time as f64,
        start_average: first.average.on_time,
        up_to_priority: whole.average.up_to_priority.clone(),
    };
    (limit, figures)
}

fn row(at: Duration, block: &crate::plan::PlannedBlock) -> BlockRow {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    BlockRow {
        size: block.size,
        priority: block.priority,
        handed_over: nanos(at),
        deadline: block.deadline.map(nanos),
        ..BlockRow::default()
    }
}

impl Kept {
    /// What is kept of a record.
    pub(super) fn of(record: RunRecord, limit: &Limit, bound: &BoundFigures, setup: &Setup) -> Self {
        let values = Run::new(&record, bound, &setup.measure).values();
        let (mut all, mut start) = (Tally::default(), Tally::default());
        let mut priorities: BTreeMap<u8, Tally> = BTreeMap::new();
        for block in &record.blocks {
            all.add(block);
            priorities.entry(block.priority).or_default().add(block);
            if Duration::from_nanos(block.handed_over) < START {
                start.add(block);
            }
        }
        let totals = RunRecord { blocks: Vec::new(), arrivals: Vec::new(), queue: Vec::new(), ..record };
        let priorities = priorities.into_iter().collect();
        Self { all, start, priorities, limit: limit.clone(), values, totals, bound: bound.clone() }
    }
}
