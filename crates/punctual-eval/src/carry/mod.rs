//! One run: a plan carried by a contender over the simulator, and what came of it.

mod attempt;
pub(crate) mod cubic_pair;
mod flow;
pub(crate) mod informed;
mod ledger;
pub(crate) mod oracle;
mod punctual;
mod quic;
mod sender;
mod stage;

use std::time::Duration;

use punctual_sim::{LinkCounters, PathHandle, Rate, World};

pub use attempt::attempt;
pub use stage::{CarryError, RivalFlow, Stage};

use self::{
    flow::Flow,
    ledger::{Entries, Ledger},
};
use crate::{
    experiment::Contender,
    network::Path,
    plan::{Bulk, HandOver, Plan, SourcePlan},
    record::{BlockRow, Ended, FlowRow, LinkRow, PathRow, RunRecord, SentBytes},
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
    let reply_ledger = stage.reply.as_ref().map(|plan| Ledger::new(stage, plan));
    let reply = stage.reply.clone().zip(reply_ledger.as_ref());
    let mut flow = Flow::add(&mut world, contender, stage, (stage.plan.clone(), &ledger), reply.clone(), seed)?;
    let (client, server) = flow.ends();
    let paths = stage.lay_paths(&mut world, client, server);
    flow.connect(&mut world, &paths)?;
    let answering = reply.filter(|_| !flow.is_ours()).map(|(plan, ledger)| {
        let seed = stage::rival_seed(seed, stage.rivals.len());
        add_backwards(&mut world, contender, stage, (plan, ledger), &paths, seed)
    });
    let answering = answering.transpose()?;
    let rivals = stage
        .rivals
        .iter()
        .enumerate()
        .map(|(index, rival)| add_rival(&mut world, stage, rival, &paths, stage::rival_seed(seed, index)));
    let rivals = rivals.collect::<Result<Vec<_>, _>>()?;
    let origin = world.handshake()?;
    stage.schedule_deaths(&mut world, &paths, origin);
    flow.set_terms(&mut world, stage.paths.iter().map(|path| (path.role, path.cost, path.budget)));
    watch_queue(&mut world, paths[contender.path.unwrap_or(0)], &ledger, origin);
    world.try_run_until(origin + stage.end).map_err(|stuck| CarryError::stuck(stuck, origin))?;
    flow.collect(&mut world, &ledger);
    if let (Some(mut answering), Some(ledger)) = (answering, &reply_ledger) {
        answering.collect(&mut world, ledger);
    }
    let reply = stage.reply.as_ref().zip(reply_ledger.as_ref()).map(|(plan, ledger)| flow_row("reply", ledger, plan));
    let mut flows = vec![flow_row(&contender.name, &ledger, &stage.plan)];
    let mut ended = ledger.lock().ended.take();
    for (rival, spec) in rivals.into_iter().zip(&stage.rivals) {
        let Competing { mut flow, ledger, plan } = rival;
        flow.collect(&mut world, &ledger);
        flows.push(flow_row(&spec.name, &ledger, &plan));
        let of_rival = |of: Ended| Ended { why: format!("rival {}, {}", spec.name, of.why), ..of };
        ended = ended.or_else(|| ledger.lock().ended.take().map(of_rival));
    }
    Ok(RunRecord { ended, reply, ..record(stage, &world, &paths, &ledger, flows) })
}

/// Bytes a rival keeps handed over: more than any link here holds.
const RIVAL_BACKLOG: u64 = 16 << 20;

/// A rival in the world.
struct Competing {
    flow: Flow,
    ledger: Ledger,
    plan: Plan,
}

/// What a flow has brought.
fn flow_row(name: &str, ledger: &Ledger, plan: &Plan) -> FlowRow {
    let mut entries = ledger.lock();
    find_usable(&mut entries.rows, plan);
    FlowRow {
        name: name.to_owned(),
        delivered_bytes: entries.compared_bytes,
        blocks: entries.rows.len() as u64,
        on_time: entries.rows.iter().filter(|row| row.on_time()).count() as u64,
    }
}

/// Adds a flow over one of the paths, which sends what its plan says, or all it can.
fn add_rival(
    world: &mut World,
    stage: &Stage,
    rival: &RivalFlow,
    paths: &[PathHandle],
    seed: u64,
) -> Result<Competing, CarryError> {
    let plan = rival.plan.clone().unwrap_or_else(|| all_it_can(rival, stage));
    let ledger = Ledger::new(stage, &plan);
    let mut flow = Flow::add(world, &rival.contender, stage, (plan.clone(), &ledger), None, seed)?;
    let path = beside(world, &flow, paths[rival.path], rival.backwards);
    flow.connect(world, &[path])?;
    Ok(Competing { flow, ledger, plan })
}

/// Adds what a contender that has no replies has instead: a connection of its own the other way.
fn add_backwards(
    world: &mut World,
    contender: &Contender,
    stage: &Stage,
    carried: (Plan, &Ledger),
    paths: &[PathHandle],
    seed: u64,
) -> Result<Flow, CarryError> {
    let mut flow = Flow::add(world, contender, stage, carried, None, seed)?;
    let paths: Vec<PathHandle> = paths.iter().map(|path| beside(world, &flow, *path, true)).collect();
    flow.connect(world, &paths)?;
    Ok(flow)
}

/// A way between a flow's ends over a path's links; `backwards`: its sender is where the path's receiver is.
fn beside(world: &mut World, flow: &Flow, path: PathHandle, backwards: bool) -> PathHandle {
    let (client, server) = flow.ends();
    let (there, back) = world.path_links(path);
    let (mut there, mut back) = (there.to_vec(), back.to_vec());
    if backwards {
        std::mem::swap(&mut there, &mut back);
    }
    world.join(client, server, &there, &back)
}

fn all_it_can(rival: &RivalFlow, stage: &Stage) -> Plan {
    let bulk = Bulk {
        block: 64 << 10,
        backlog: RIVAL_BACKLOG,
        priority: 0,
        start: rival.start,
        stop: stage.duration,
        total: None,
    };
    let source = SourcePlan {
        name: rival.name.clone(),
        hand_over: HandOver::default(),
        period: None,
        redundancy: None,
        bulk: Some(bulk),
    };
    Plan { blocks: Vec::new(), sources: vec![source] }
}

/// Looks at what waits on a path, its shared link included, at the end of every bin.
fn watch_queue(world: &mut World, path: PathHandle, ledger: &Ledger, origin: Duration) {
    fn look(world: &mut World, path: PathHandle, ledger: Ledger, bin: usize, origin: Duration) {
        let since = RunRecord::BIN * (bin as u32 + 1);
        let (mut queued, mut wait) = (0, Duration::ZERO);
        for link in world.path_links(path).0.iter().map(|link| world.link(*link)) {
            queued += link.queued_bytes();
            wait += time_to_send(&link.spec().rate, since, link.queued_bytes());
        }
        {
            let mut entries = ledger.lock();
            let Entries { queue, queue_wait, .. } = &mut *entries;
            let (Some(queue), Some(queue_wait)) = (queue.get_mut(bin), queue_wait.get_mut(bin)) else { return };
            *queue = u32::try_from(queued).unwrap_or(u32::MAX);
            *queue_wait = u32::try_from(wait.as_micros()).unwrap_or(u32::MAX);
        }
        let next = origin + RunRecord::BIN * (bin as u32 + 2);
        world.at(next, move |world| look(world, path, ledger, bin + 1, origin));
    }
    let ledger = ledger.clone();
    world.at(origin + RunRecord::BIN, move |world| look(world, path, ledger, 0, origin));
}

/// How long a link takes to send so many bytes from a moment on, to the tenth of a millisecond; [`LONGEST_WAIT`] at most.
fn time_to_send(rate: &Rate, from: Duration, bytes: u64) -> Duration {
    const STEP: Duration = Duration::from_micros(100);
    if bytes == 0 || *rate == Rate::Unlimited {
        return Duration::ZERO;
    }
    let sent_in = |steps: u32| oracle::carried(rate, from, from + STEP * steps) >= bytes as f64;
    // The first number of steps that is enough.
    let (mut short, mut enough) = (0, (LONGEST_WAIT.as_micros() / STEP.as_micros()) as u32);
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        if sent_in(middle) {
            enough = middle;
        } else {
            short = middle;
        }
    }
    STEP * enough
}

/// A queue that stands still for so long counts as one of so long.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

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
    let wasted = entries.rows.iter().filter(|row| !row.on_time());
    RunRecord {
        failure: None,
        ended: None,
        sources: stage.plan.sources.iter().map(|source| source.name.clone()).collect(),
        paths: stage.paths.iter().zip(paths).zip(sent).map(path_row).collect(),
        links: (0..stage.links.len()).map(link_row).collect(),
        flows,
        reply: None,
        lost: entries.lost,
        wasted_bytes: wasted.map(|row| u64::from(row.source_bytes)).sum(),
        bulk_bytes: entries.bulk_bytes,
        blocks: std::mem::take(&mut entries.rows),
        arrivals: std::mem::take(&mut entries.arrivals),
        queue: std::mem::take(&mut entries.queue),
        queue_wait: std::mem::take(&mut entries.queue_wait),
        duration: ledger::nanos(stage.duration),
        events: world.events(),
    }
}

#[cfg(test)]
mod tests {
    use punctual_sim::Schedule;

    use super::*;
    use crate::{experiment::Experiment, files::Files, plan::PlannedBlock};

    /// A flow of 10 blocks a second beside these rivals, for 4 s over a link that there is slower than back.
    fn beside(rivals: &str) -> RunRecord {
        let text = format!(
            "title = 'x'\nduration = '4s'\ncontenders = ['ads']\n[[path]]\nrate = '1 Mbit/s'\ndelay = '10ms'\nqueue = '60 KB'\n\
             back = {{ rate = '8 Mbit/s' }}\n[[workload]]\nsize = 1000\nevery = '100ms'\ndeadline = '80ms'\n{rivals}"
        );
        let cell = Experiment::parse("x", &text).unwrap().cells().unwrap().remove(0);
        run(&Stage::new(&cell.setup, &Files::default(), 1).unwrap(), &cell.contender, 1).unwrap()
    }

    #[test]
    fn a_rival_may_have_a_workload_of_its_own() {
        let media = "[[rival]]\nlike = 'ads'\ncount = 2\nstart = '1s'\n[[rival.workload]]\nsize = { uniform = [500, 1500] }\n\
                     every = '100ms'\nstop = '2s'";
        let record = beside(media);
        let blocks: Vec<_> = record.flows.iter().map(|flow| (flow.name.as_str(), flow.blocks, flow.on_time)).collect();
        // From 1 s to 3 s; without deadlines, on time is delivered at all.
        assert_eq!(blocks, [("ads", 40, 40), ("ads", 20, 20), ("ads", 20, 20)]);
        let [_, one, two] = &record.flows[..] else { panic!("three flows") };
        assert!(one.delivered_bytes > 5_000 && one.delivered_bytes != two.delivered_bytes, "each draws for itself");
    }

    /// A run of 2 s that is watched for 40 s more, over a path with these further keys.
    fn watched(contender: &str, path: &str) -> RunRecord {
        let text = format!(
            "title = 'x'\nduration = '2s'\ndrain = '40s'\ncontenders = ['{contender}']\n[[path]]\nrate = '8 Mbit/s'\n{path}\n\
             [[path]]\nrate = '8 Mbit/s'\ndelay = '30ms'\n{path}\n[[workload]]\nsize = 3000\nevery = '100ms'\ndeadline = '80ms'"
        );
        let cell = Experiment::parse("x", &text).unwrap().cells().unwrap().remove(0);
        run(&Stage::new(&cell.setup, &Files::default(), 1).unwrap(), &cell.contender, 1).unwrap()
    }

    #[test]
    fn a_session_that_dies_is_told() {
        for contender in ["ads", "mpquic"] {
            assert_eq!(watched(contender, "").ended, None, "{contender}");
        }
        let dead = "dies = [['1s', '1000s']]";
        let ended = watched("ads", dead).ended.unwrap();
        // What came last came a little later than the last that left while the paths lived.
        assert!((30_000_000_000..33_000_000_000).contains(&ended.at), "{ended}");
        assert!(ended.to_string().ends_with(": the peer fell silent"), "{ended}");
        // Plain QUIC has no timeout here: it goes on, to no end.
        assert_eq!(watched("mpquic", dead).ended, None);
    }

    #[test]
    fn a_reply_goes_the_other_way() {
        let reply = "[[reply]]\nsize = 4000\nevery = '50ms'\ndeadline = '60ms'";
        let (alone, ours) = (beside(""), beside(reply));
        let of = |record: &RunRecord| record.reply.as_ref().map(|flow| (flow.blocks, flow.on_time));
        assert_eq!((of(&alone), of(&ours)), (None, Some((80, 80))));
        // What comes back is in nobody else's figures, and holds up nothing.
        assert_eq!(ours.flows.len(), 1);
        assert_eq!((ours.flows[0].blocks, ours.flows[0].on_time), (40, 40));
        assert_eq!((ours.sent().source, ours.blocks.len()), (alone.sent().source, 40));
        let answers = |record: &RunRecord| record.paths[0].offered;
        assert!(answers(&ours) > answers(&alone) + 20, "answers to it leave among ours");
    }

    #[test]
    fn plain_quic_replies_in_a_connection_of_its_own() {
        let text = "title = 'x'\nduration = '2s'\ncontenders = ['mpquic', 'quic@1']\n[[path]]\nrate = '8 Mbit/s'\n[[path]]\n\
                    rate = '8 Mbit/s'\ndelay = '30ms'\n[[workload]]\nsize = 3000\nevery = '100ms'\ndeadline = '80ms'\n\
                    [[reply]]\nsize = 1000\nevery = '50ms'\ndeadline = '80ms'";
        for cell in Experiment::parse("x", text).unwrap().cells().unwrap() {
            let record = run(&Stage::new(&cell.setup, &Files::default(), 1).unwrap(), &cell.contender, 1).unwrap();
            let reply = record.reply.unwrap();
            assert_eq!((record.flows[0].on_time, reply.blocks, reply.on_time), (20, 40, 40), "{}", cell.contender.name);
        }
    }

    /// Video both ways, whose key frames come first: what tells each start-up how full its path is waits in the queue of the other.
    #[test]
    fn start_up_both_ways_leaves_room_for_what_is_urgent() {
        let sources = |name: &str| {
            format!(
                "[[{name}]]\nname = 'video'\nkind = 'video'\nbit-rate = '15.2 Mbit/s'\nfps = 30\n\
                 gop = {{ length = 60, b-frames = 0 }}\nratio = [4, 1, 1]\nvariation = 0.2\npriority = 10\ndeadline = '180ms'\n\
                 [[{name}]]\nname = 'control'\nsize = 150\nevery = '10ms'\npriority = 0\ndeadline = '100ms'\n"
            )
        };
        let text = format!(
            "title = 'x'\nduration = '2s'\ncontenders = ['admission']\n[[path]]\nrate = '20 Mbit/s'\ndelay = '40ms'\n\
             queue = '500 KB'\n{}{}",
            sources("workload"),
            sources("reply")
        );
        let cell = Experiment::parse("x", &text).unwrap().cells().unwrap().remove(0);
        let missed = (1..=5).map(|seed| {
            let stage = Stage::new(&cell.setup, &Files::default(), seed).unwrap();
            let record = run(&stage, &cell.contender, seed).unwrap();
            record.blocks.iter().filter(|row| row.priority == 0 && !row.on_time()).count()
        });
        let missed: Vec<usize> = missed.collect();
        assert!(missed.iter().sum::<usize>() <= 5 * 8, "of 200 each: {missed:?}");
    }

    #[test]
    fn a_rival_may_send_the_other_way() {
        let rival = |more: &str| format!("[[rival]]\nlike = 'quic'\n{more}");
        let (with, against) = (beside(&rival("")), beside(&rival("backwards = true")));
        let rate = |record: &RunRecord| record.flows[1].delivered_bytes as f64 * 8.0 / 3e6;
        assert!(rate(&with) < 1.0 && (5.0..8.0).contains(&rate(&against)), "{} {}", rate(&with), rate(&against));
        let longest = |record: &RunRecord| *record.queue_wait.iter().max().unwrap();
        // 60 KB there take 480 ms; of the rival's data that comes back, only the acknowledgements go there.
        assert!((200_000..500_000).contains(&longest(&with)), "{} us", longest(&with));
        assert!(longest(&against) < 50_000, "{} us", longest(&against));
    }

    #[test]
    fn what_is_queued_leaves_as_the_link_lets_it() {
        let (ms, steps) = (Duration::from_millis, Schedule::fixed(8_000_000).then(Duration::from_millis(100), 800_000));
        let rate = Rate::Steps(steps);
        assert_eq!(time_to_send(&rate, ms(0), 0), ms(0));
        assert_eq!(time_to_send(&rate, ms(0), 50_000), ms(50));
        assert_eq!(time_to_send(&rate, ms(90), 11_000), ms(20), "10 KB before the step, 1 KB at a tenth of the rate");
        assert_eq!(time_to_send(&rate, ms(200), 10_000_000), LONGEST_WAIT);
        assert_eq!(time_to_send(&Rate::Unlimited, ms(0), 1), ms(0));
    }

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
