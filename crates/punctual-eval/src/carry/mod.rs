//! One run: a plan carried by a contender over the simulator, and what came of it.

mod attempt;
mod flow;
mod ledger;
pub(crate) mod oracle;
mod punctual;
mod quic;
mod stage;

use std::time::Duration;

use punctual_sim::{LinkCounters, PathHandle, World};

pub use attempt::attempt;
pub use stage::{CarryError, RivalFlow, Stage};

use self::{flow::Flow, ledger::Ledger};
use crate::{
    experiment::Contender,
    network::Path,
    plan::{Bulk, HandOver, Plan, SourcePlan},
    record::{BlockRow, FlowRow, LinkRow, PathRow, RunRecord, SentBytes},
};

/// Events of a world per second of virtual time that are taken for a loop: a link of 1 Gbit/s carries a million packets of 100
/// bytes in that time, and each of them makes a handful of events.
const MOST_EVENTS_PER_SECOND: f64 = 1e7;

/// Runs a stage with a contender. The same seed gives the same record.
///
/// # Errors
/// If the contender's settings make no sense, the sessions do not come about, or time stops passing.
pub fn run(stage: &Stage, contender: &Contender, seed: u64) -> Result<RunRecord, CarryError> {
    let most_events = (stage.end + World::HANDSHAKE_LIMIT).as_secs_f64() * MOST_EVENTS_PER_SECOND;
    let mut world = World::new(seed).with_most_events(most_events as u64);
    let ledger = Ledger::new(stage, &stage.plan);
    let mut flow = Flow::add(&mut world, contender, stage, stage.plan.clone(), &ledger, seed)?;
    let (client, server) = flow.ends();
    let paths = stage.lay_paths(&mut world, client, server);
    flow.connect(&mut world, &paths)?;
    let rivals = stage.rivals.iter().zip(1..).map(|(rival, index)| {
        // Rivals draw from generators of their own.
        add_rival(&mut world, stage, rival, &paths, seed.wrapping_add(index << 32))
    });
    let rivals = rivals.collect::<Result<Vec<_>, _>>()?;
    let origin = world.handshake()?;
    stage.schedule_deaths(&mut world, &paths, origin);
    flow.set_costs(&mut world, stage.paths.iter().map(|path| path.cost));
    watch_queue(&mut world, paths[contender.path.unwrap_or(0)], &ledger, origin);
    world.try_run_until(origin + stage.end).map_err(|stuck| CarryError::stuck(stuck, origin))?;
    flow.collect(&mut world, &ledger);
    let mut flows = vec![FlowRow { name: contender.name.clone(), delivered_bytes: ledger.lock().compared_bytes }];
    for ((mut flow, ledger), rival) in rivals.into_iter().zip(&stage.rivals) {
        flow.collect(&mut world, &ledger);
        flows.push(FlowRow { name: rival.name.clone(), delivered_bytes: ledger.lock().compared_bytes });
    }
    Ok(record(stage, &world, &paths, &ledger, flows))
}

/// Bytes a rival keeps handed over: more than any link here holds.
const RIVAL_BACKLOG: u64 = 16 << 20;

/// Adds a flow that sends all it can over one of the paths.
fn add_rival(
    world: &mut World,
    stage: &Stage,
    rival: &RivalFlow,
    paths: &[PathHandle],
    seed: u64,
) -> Result<(Flow, Ledger), CarryError> {
    let bulk = Bulk {
        block: 64 << 10,
        backlog: RIVAL_BACKLOG,
        priority: 0,
        start: rival.start,
        stop: stage.duration,
        total: None,
    };
    let source =
        SourcePlan { name: rival.name.clone(), hand_over: HandOver::default(), redundancy: None, bulk: Some(bulk) };
    let plan = Plan { blocks: Vec::new(), sources: vec![source] };
    let ledger = Ledger::new(stage, &plan);
    let mut flow = Flow::add(world, &rival.contender, stage, plan, &ledger, seed)?;
    let (client, server) = flow.ends();
    let (there, back) = world.path_links(paths[rival.path]);
    let (there, back) = (there.to_vec(), back.to_vec());
    let path = world.join(client, server, &there, &back);
    flow.connect(world, &[path])?;
    Ok((flow, ledger))
}

/// Looks at what waits on a path, its shared link included, at the end of every bin.
fn watch_queue(world: &mut World, path: PathHandle, ledger: &Ledger, origin: Duration) {
    fn look(world: &mut World, path: PathHandle, ledger: Ledger, bin: usize, origin: Duration) {
        let queued: u64 = world.path_links(path).0.iter().map(|link| world.link(*link).queued_bytes()).sum();
        {
            let mut entries = ledger.lock();
            let Some(entry) = entries.queue.get_mut(bin) else { return };
            *entry = u32::try_from(queued).unwrap_or(u32::MAX);
        }
        let next = origin + RunRecord::BIN * (bin as u32 + 2);
        world.at(next, move |world| look(world, path, ledger, bin + 1, origin));
    }
    let ledger = ledger.clone();
    world.at(origin + RunRecord::BIN, move |world| look(world, path, ledger, 0, origin));
}

/// A block is usable once it and all it depends on are there.
fn find_usable(rows: &mut [BlockRow], plan: &Plan) {
    for (index, block) in plan.blocks.iter().enumerate() {
        // Dependencies come before what depends on them.
        let needed = block.depends_on.iter().map(|&on| rows[on as usize].usable);
        rows[index].usable = needed.chain([rows[index].delivered]).try_fold(0, |latest, at| Some(latest.max(at?)));
    }
}

fn record(stage: &Stage, world: &World, paths: &[PathHandle], ledger: &Ledger, flows: Vec<FlowRow>) -> RunRecord {
    let mut entries = ledger.lock();
    find_usable(&mut entries.rows, &stage.plan);
    let sent = entries.path_bytes.clone();
    let path_row = |((path, &handle), sent): ((&Path, &PathHandle), SentBytes)| {
        let counters = world.counters(world.path_links(handle).0[0]);
        PathRow {
            offered_bytes: counters.offered_bytes,
            offered: counters.offered,
            lost: counters.lost,
            policed: counters.policed,
            overflowed: counters.overflowed,
            damaged: counters.damaged,
            sent,
            queue_max: counters.queue_max,
            cost: path.cost,
        }
    };
    let link_row = |index: usize| {
        let through = |(path, &handle): (&Path, &PathHandle)| {
            let (there, back) = world.path_links(handle);
            [there, back]
                .into_iter()
                .zip(path.through)
                .find(|(_, link)| *link == Some(index))
                .map(|(links, _)| links[1])
        };
        let counters = stage.paths.iter().zip(paths).find_map(through).map(|link| *world.counters(link));
        let LinkCounters { lost, policed, overflowed, queue_max, .. } = counters.unwrap_or_default();
        LinkRow { lost, policed, overflowed, queue_max }
    };
    RunRecord {
        failure: None,
        sources: stage.plan.sources.iter().map(|source| source.name.clone()).collect(),
        paths: stage.paths.iter().zip(paths).zip(sent).map(path_row).collect(),
        links: (0..stage.links.len()).map(link_row).collect(),
        flows,
        lost: entries.lost,
        wasted_bytes: entries.wasted_bytes,
        bulk_bytes: entries.bulk_bytes,
        blocks: std::mem::take(&mut entries.rows),
        arrivals: std::mem::take(&mut entries.arrivals),
        queue: std::mem::take(&mut entries.queue),
        duration: ledger::nanos(stage.duration),
        events: world.events(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlannedBlock;

    #[test]
    fn a_block_is_usable_with_what_it_depends_on() {
        let block = |depends_on: &[u32]| PlannedBlock {
            at: Duration::ZERO,
            size: 1,
            deadline: None,
            priority: 0,
            source: 0,
            depends_on: depends_on.to_vec(),
            ordered: false,
        };
        let plan = Plan { blocks: [&[][..], &[0], &[1], &[], &[3, 2]].map(block).to_vec(), sources: Vec::new() };
        let mut rows =
            [Some(5), Some(3), Some(9), None, Some(4)].map(|delivered| BlockRow { delivered, ..BlockRow::default() });
        find_usable(&mut rows, &plan);
        assert_eq!(rows.map(|row| row.usable), [Some(5), Some(5), Some(9), None, None]);
    }
}
