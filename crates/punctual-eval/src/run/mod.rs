//! Running experiments: every cell, every seed, on all cores.
//!
//! A run depends on its cell and its seed only, so runs may be done in any order. Each goes into a [journal] as it is
//! finished. When all are there they are read back in the experiment's order, and from them come the files and the
//! [`Results`]: the same to the byte, whatever the order was, and however often the experiment was interrupted.

use std::{
    fs::{self, File},
    hash::Hasher,
    io::{self, BufWriter},
    path::PathBuf,
    sync::atomic::AtomicBool,
    thread,
    time::Duration,
};

use siphasher::sip::SipHasher13;
use thiserror::Error;

use crate::{
    bound::{self, Bound},
    carry::{self, Stage},
    experiment::{CellPlan, Experiment, ExperimentError, Setup},
    files::Files,
    measure::{BoundFigures, CellBuilder, MeasureConfig},
    network::{LinkTable, Network, PathSpec},
    record::RunRecord,
    results::{FailedRun, Results},
};

pub mod journal;
pub(crate) mod limits;
pub mod parquet;
mod pool;
pub(crate) mod sweep;

use journal::RunKey;
use parquet::{BlocksFile, RunLabel, RunsFile};
use sweep::{Manner, Sweep, at};
pub use sweep::{Progress, SweepError};

/// Why an experiment came to no end.
#[derive(Debug, Error)]
pub enum RunError {
    /// It makes no sense, or lacks files.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// Its runs came to no end.
    #[error(transparent)]
    Sweep(#[from] SweepError),
}

/// How an experiment is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where results go.
    pub directory: PathBuf,
    /// Where recorded networks and workloads are looked for.
    pub files: Files,
    /// How many runs go on at once.
    pub threads: usize,
    /// Whether to begin anew though there are runs of an earlier time.
    pub fresh: bool,
    /// The command that makes this again, for the report.
    pub command: String,
    /// Whether to write a row for each block, which for long experiments is a large file.
    pub blocks: bool,
}

impl Options {
    /// Into this directory, on all cores.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            files: Files::default(),
            threads: thread::available_parallelism().map_or(1, usize::from),
            fresh: false,
            command: String::new(),
            blocks: true,
        }
    }
}

/// A run that is to be done.
struct Job<'a> {
    key: RunKey,
    plan: &'a CellPlan,
}

/// Runs what is left of an experiment, and gathers the results; `runs.parquet` and `blocks.parquet` are then in the directory.
///
/// A run that fails has no block on time, and is named in the results. `stop` interrupts it between runs.
///
/// # Errors
/// See [`RunError`]. Runs that were done are kept.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Results, RunError> {
    let cells = experiment.cells()?;
    let manner = Manner { threads: options.threads, stop, progress };
    let sweep = Sweep::open(&options.directory, options.fresh, basis(&cells, &options.files)?, manner)?;
    let seeds = 1..=experiment.head.seeds;
    let of_cell = |(cell, plan)| seeds.clone().map(move |seed| Job { key: RunKey { cell, seed }, plan });
    let jobs: Vec<Job<'_>> = (0..).zip(&cells).flat_map(of_cell).collect();
    sweep.perform(&jobs, |job| job.key, |network, job| one(job, network, &options.files))?;
    gather(experiment, &cells, options, &sweep)
}

/// What is kept of a run.
type Kept = (RunRecord, BoundFigures);

/// The network of the runs that a thread does one after the other. Recordings are read when it changes, not for every run: seeds
/// and contenders change faster than parameters.
#[derive(Default)]
struct LastNetwork(Option<(Vec<PathSpec>, Vec<LinkTable>, Network)>);

impl LastNetwork {
    fn of(&mut self, setup: &Setup, files: &Files) -> Result<Network, ExperimentError> {
        let last = self.0.take().filter(|(paths, links, _)| *paths == setup.paths && *links == setup.links);
        let (.., network) = match last {
            Some(last) => self.0.insert(last),
            None => self.0.insert((setup.paths.clone(), setup.links.clone(), setup.network(files)?)),
        };
        Ok(network.clone())
    }
}

fn one(job: &Job<'_>, network: &mut LastNetwork, files: &Files) -> Result<Kept, RunError> {
    let setup = &job.plan.setup;
    let stage = Stage::over(network.of(setup, files)?, setup, files, job.key.seed.into())?;
    let record = carry::attempt(&stage, &job.plan.contender, job.key.seed.into());
    let jobs = jobs_of(&record, &setup.measure);
    let decodable = limits::dependent(&stage, &jobs).map(|bound| bound.on_time);
    Ok((record, BoundFigures { decodable, ..figures(&limits::bound(&stage, &jobs)) }))
}

/// The blocks of a record as the bound takes them.
pub(crate) fn jobs_of(record: &RunRecord, measure: &MeasureConfig) -> Vec<bound::Job> {
    let nanos = Duration::from_nanos;
    let job = |block: &crate::record::BlockRow| bound::Job {
        handed_over: nanos(block.handed_over),
        deadline: block.deadline.map(nanos),
        size: block.size,
        priority: block.priority,
        weight: measure.weights.of(block.priority),
    };
    record.blocks.iter().map(job).collect()
}

/// What measures know of a bound.
pub(crate) fn figures(bound: &Bound) -> BoundFigures {
    BoundFigures {
        on_time: bound.on_time,
        up_to_priority: bound.up_to_priority.clone(),
        weighted: bound.weighted,
        bytes_on_time: bound.bytes_on_time,
        average_on_time: bound.average.on_time,
        decodable: None,
    }
}

/// Reads all runs back in order: files and results.
fn gather(
    experiment: &Experiment,
    cells: &[CellPlan],
    options: &Options,
    sweep: &Sweep<'_, Kept>,
) -> Result<Results, RunError> {
    let axes: Vec<String> = experiment.head.axes.iter().map(|axis| axis.name.clone()).collect();
    let create = |name: &str| {
        let path = options.directory.join(name);
        File::create(&path).map(BufWriter::new).map_err(at(&path))
    };
    let (runs_path, blocks_path) = (options.directory.join("runs.parquet"), options.directory.join("blocks.parquet"));
    let mut runs = RunsFile::new(create("runs.parquet")?, &axes).map_err(at(&runs_path))?;
    let mut blocks = match options.blocks {
        true => Some(BlocksFile::new(create("blocks.parquet")?, &axes).map_err(at(&blocks_path))?),
        false => {
            // One of an earlier time would be of other runs.
            match fs::remove_file(&blocks_path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&blocks_path)(error).into()),
                _ => None,
            }
        }
    };
    let (mut results, mut failures) = (Vec::new(), Vec::new());
    for (cell, plan) in (0..).zip(cells) {
        let params: Vec<(String, String)> =
            axes.iter().cloned().zip(plan.points.iter().map(|point| point.label.clone())).collect();
        let numbers = plan.points.iter().map(|point| point.number).collect();
        let contender = &plan.contender.name;
        let mut builder = CellBuilder::new(params.clone(), numbers, contender.clone(), plan.setup.measure.clone());
        for seed in 1..=experiment.head.seeds {
            let (record, bound) = sweep.read(RunKey { cell, seed })?;
            let values = builder.add(&record, &bound);
            let label = RunLabel { params: &params, contender, seed: seed.into() };
            let count = record.blocks.len() as u64;
            runs.push(&label, &values, count, &record, &bound).map_err(at(&runs_path))?;
            if let Some(blocks) = &mut blocks {
                blocks.push(&label, &record).map_err(at(&blocks_path))?;
            }
            if let Some(why) = record.failure {
                failures.push(FailedRun { place: place(plan), seed, why });
            }
        }
        results.push(builder.finish());
    }
    runs.finish().map_err(at(&runs_path))?;
    if let Some(blocks) = blocks {
        blocks.finish().map_err(at(&blocks_path))?;
    }
    let head = &experiment.head;
    let mut results = Results {
        name: experiment.name.clone(),
        title: head.title.clone(),
        about: head.about.clone(),
        source: head.source.clone(),
        axes: head.axes.iter().map(|axis| (axis.name.clone(), axis.unit.clone())).collect(),
        contenders: experiment.contenders.iter().map(|contender| contender.name.clone()).collect(),
        cells: results,
        failures,
        verdicts: Vec::new(),
        unjudged: Vec::new(),
        command: options.command.clone(),
        setup: experiment.text(),
        figures: head.figures.clone(),
    };
    let judged: Vec<_> = head.musts.iter().map(|must| must.judge(&results).ok_or_else(|| must.say.clone())).collect();
    for verdict in judged {
        match verdict {
            Ok(verdict) => results.verdicts.push(verdict),
            Err(must) => results.unjudged.push(must),
        }
    }
    Ok(results)
}

/// What runs depend on, that of an earlier time must have been the same: cells and files.
///
/// The stage of every cell is built for it, so what cannot be built is known before anything is run.
fn basis(cells: &[CellPlan], files: &Files) -> Result<SipHasher13, RunError> {
    let mut hasher = SipHasher13::new();
    // All that a run depends on; neither how many seeds there are nor what is made of the results.
    hasher.write(format!("{cells:?}").as_bytes());
    let (files, seen) = files.watched();
    // Contenders seldom change the setup, and they change fastest.
    for same in cells.chunk_by(|a, b| a.setup == b.setup) {
        Stage::new(&same[0].setup, &files, 1)?;
    }
    hasher.write_u64(seen.fingerprint());
    Ok(hasher)
}

fn place(plan: &CellPlan) -> String {
    let points = plan.points.iter().map(|point| point.label.as_str());
    points.chain([plan.contender.name.as_str()]).collect::<Vec<_>>().join(", ")
}
