//! Puts the blocks of all sources into one order.

use std::{collections::HashSet, time::Duration};

use super::{
    draft::{Drafts, MAX_BLOCKS, Making, time},
    error::{Problem, WorkloadError},
    files::Files,
    on_off::Clock,
    random::{Purpose, generator},
    source::{Depends, Priority, Source, Traffic},
};
use crate::plan::{self, Plan, PlannedBlock, SourcePlan};

/// What these sources do in a run that lasts so long, in order of time, and of the sources where times are equal.
///
/// The same seed makes the same plan, and a source makes the same blocks whatever others come after it.
///
/// # Errors
/// If a source has values that cannot be, needs files that are not there or hold something else, or would make the run too large.
pub fn plan(sources: &[Source], duration: Duration, seed: u64, files: &Files) -> Result<Plan, WorkloadError> {
    let names = names(sources);
    let failed = |index: usize| {
        let source_name = names[index].clone();
        move |problem| WorkloadError { source_name, problem }
    };
    let depends = depends(sources, &names).map_err(|(index, problem)| failed(index)(problem))?;
    let mut run = Run { duration, seed, files, sources: Vec::new(), made: Vec::new() };
    for (index, source) in sources.iter().enumerate() {
        source.check().map_err(failed(index))?;
        for copy in 0..source.copies {
            run.add(source, index, copy, &names[index]).map_err(failed(index))?;
        }
    }
    let called = run.sources.iter().map(|source| &source.name);
    for names in [names.iter().collect::<Vec<_>>(), called.collect()] {
        if let Some(name) = repeated(&names) {
            return Err(WorkloadError { source_name: name.clone(), problem: Problem::SameName });
        }
    }
    Ok(Plan { blocks: in_order(run.made, &depends), sources: run.sources })
}

/// A block that depends on others by their places among all blocks made so far, in the order in which they were made.
struct Made {
    block: PlannedBlock,
    /// Index of its [`Source`].
    source: usize,
}

/// What blocks of each source depend on beside those that their source knows itself: the latest block of another source.
fn depends(sources: &[Source], names: &[String]) -> Result<Vec<Option<usize>>, (usize, Problem)> {
    let other = |index: usize, source: &Source| {
        let Depends::Source(wanted) = &source.depends else { return Ok(None) };
        match names.iter().enumerate().find(|(other, name)| *other != index && *name == wanted) {
            Some((other, _)) => Ok(Some(other)),
            None => {
                let others = names.iter().enumerate().filter(|(other, _)| *other != index);
                let others = others.map(|(_, name)| format!("`{name}`")).collect();
                Err((index, Problem::UnknownSource { wanted: wanted.clone(), others }))
            }
        }
    };
    sources.iter().enumerate().map(|(index, source)| other(index, source)).collect()
}

fn names(sources: &[Source]) -> Vec<String> {
    let name = |(number, source): (usize, &Source)| source.name.clone().unwrap_or_else(|| format!("source-{number}"));
    (1..).zip(sources).map(name).collect()
}

/// A name that two have.
fn repeated<'a>(names: &[&'a String]) -> Option<&'a String> {
    let mut seen = HashSet::new();
    names.iter().copied().find(|name| !seen.insert(*name))
}

/// A run's sources, as far as they have been added.
struct Run<'a> {
    duration: Duration,
    seed: u64,
    files: &'a Files,
    sources: Vec<SourcePlan>,
    made: Vec<Made>,
}

impl Run<'_> {
    /// Adds one copy of a source.
    fn add(&mut self, source: &Source, index: usize, copy: u16, name: &str) -> Result<(), Problem> {
        let generator = |purpose| generator(self.seed, index, copy, purpose);
        let start = source.start.sampler("start", self.files)?.draw(&mut generator(Purpose::Start));
        let start = time(start, Duration::ZERO);
        let stop = source.stop.map_or(self.duration, |stop| stop.0.min(self.duration));
        let length = stop.saturating_sub(start);
        let mut clock = Clock::new(source.on_off.as_ref(), generator(Purpose::OnOff), self.files)?;
        let mut random = generator(Purpose::Traffic);
        let mut making = Making { source, length, random: &mut random, files: self.files };
        let drafts = match &source.traffic {
            Traffic::Messages(messages) => messages.draft(&mut making)?,
            Traffic::Video(video) => video.draft(&mut making)?,
            Traffic::Segments(segments) => segments.draft(&mut making)?,
            Traffic::H264(stream) => stream.draft(&mut making)?,
            Traffic::Csv(csv) => csv.draft(&mut making)?,
            Traffic::Bulk(_) => Drafts::new(),
            Traffic::Own(own) => own.draft(&mut making)?,
        };
        let first = self.sources.len();
        for part in &drafts.parts {
            let part = part.as_ref().map(|part| format!("-{part}")).unwrap_or_default();
            let copy = if source.copies > 1 { format!("-{}", copy + 1) } else { String::new() };
            self.sources.push(SourcePlan {
                name: format!("{name}{part}{copy}"),
                hand_over: source.hand_over,
                period: source.period(),
                redundancy: source.redundancy,
                bulk: source.bulk(start.min(stop), stop)?,
            });
        }
        if self.sources.len() > usize::from(u16::MAX) {
            return Err(Problem::TooMany { what: "sources", most: u16::MAX.into() });
        }
        let base = self.made.len();
        let mut latest = vec![None; drafts.parts.len()];
        for (place, draft) in (base..).zip(drafts.blocks) {
            let Some(at) = clock.since_start(draft.at, length) else { break };
            if place >= MAX_BLOCKS {
                return Err(Problem::TooMany { what: "blocks", most: MAX_BLOCKS });
            }
            let previous = latest[draft.part].replace(place as u32);
            let depends_on = match source.depends {
                Depends::None | Depends::Source(_) => Vec::new(),
                Depends::Previous => previous.into_iter().collect(),
                Depends::References => draft.references.iter().map(|on| on + base as u32).collect(),
            };
            let block = PlannedBlock {
                at: start + at,
                size: draft.size,
                deadline: draft.deadline,
                priority: draft.priority,
                source: (first + draft.part) as u16,
                depends_on,
                ordered: draft.ordered,
            };
            self.made.push(Made { block, source: index });
        }
        Ok(())
    }
}

impl Source {
    fn bulk(&self, start: Duration, stop: Duration) -> Result<Option<plan::Bulk>, Problem> {
        let Traffic::Bulk(bulk) = &self.traffic else { return Ok(None) };
        let Priority::Same(priority) = self.priority else {
            return Err(Problem::value("priority", "bulk traffic has one priority"));
        };
        Ok(Some(plan::Bulk {
            // `check` has found it to be no larger than a block may be.
            block: bulk.block.0 as u32,
            backlog: bulk.backlog.0,
            priority,
            start,
            stop,
            total: bulk.total.map(|total| total.0),
        }))
    }
}

/// Sorts blocks by time, and turns what they depend on from places among those made into places in the plan.
fn in_order(made: Vec<Made>, depends: &[Option<usize>]) -> Vec<PlannedBlock> {
    let mut order: Vec<u32> = (0..made.len() as u32).collect();
    // Stable: of one time, in order of the sources, and of each source as it made them.
    order.sort_by_key(|&place| made[place as usize].block.at);
    let mut index = vec![0; made.len()];
    for (to, &from) in (0u32..).zip(&order) {
        index[from as usize] = to;
    }
    let mut made: Vec<Option<Made>> = made.into_iter().map(Some).collect();
    let mut latest = vec![None; depends.len()];
    let mut blocks = Vec::with_capacity(made.len());
    for (to, from) in (0u32..).zip(order) {
        let Some(Made { mut block, source }) = made[from as usize].take() else { continue };
        for on in &mut block.depends_on {
            *on = index[*on as usize];
        }
        block.depends_on.extend(depends[source].and_then(|other| latest[other]));
        latest[source] = Some(to);
        blocks.push(block);
    }
    blocks
}
