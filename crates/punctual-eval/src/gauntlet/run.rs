//! Running the gauntlet: every cell, every contender, every seed, on all cores; an interrupted run goes on where it stopped.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    hash::Hasher,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use siphasher::sip::SipHasher13;
use thiserror::Error;

use super::{
    VERSION,
    cell::Cell,
    easy,
    earlier::{Earlier, EarlierError},
    entrants::{self, Entrant, Listed},
    figures::{self, Kept, Limit},
    results::{CellResults, LimitRow, Participant, Results, RunRow},
    score,
};
use crate::{
    carry::{self, Stage},
    experiment::{Experiment, ExperimentError, Setup},
    files::Files,
    measure::{BoundFigures, MEASURES},
    network::Network,
    registry::Registry,
    run::{
        Progress, hash_program,
        journal::{Journal, RunKey},
        parquet::{RunLabel, RunsFile},
        pool,
    },
};

/// Why the gauntlet came to no end.
#[derive(Debug, Error)]
pub enum GauntletError {
    /// A cell cannot be built: recordings are missing.
    #[error("cell {cell}: {error}")]
    Cell {
        /// Which.
        cell: u64,
        /// Why.
        error: ExperimentError,
    },
    /// A contender nobody knows.
    #[error(transparent)]
    Contender(ExperimentError),
    /// Results of an earlier time that do not fit.
    #[error(transparent)]
    Earlier(#[from] EarlierError),
    /// A file could not be written, or read back.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It was told to stop; what is done is kept.
    #[error("interrupted; the same command goes on where it stopped")]
    Interrupted,
}

/// How the gauntlet is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of the first cell.
    pub first: u64,
    /// How many cells there are, one after the other.
    pub cells: u64,
    /// Runs of each contender in each cell, with seeds from 1 up.
    pub seeds: u32,
    /// Who runs.
    pub contenders: Vec<Listed>,
    /// Results of an earlier time, to compare with contenders that do not run now.
    pub against: Option<Results>,
    /// Where results go.
    pub directory: PathBuf,
    /// Where recordings are looked for.
    pub files: Files,
    /// How many runs go on at once.
    pub threads: usize,
    /// Whether to begin anew though there are runs of an earlier time.
    pub fresh: bool,
    /// The command that makes this again.
    pub command: String,
}

/// A cell that is ready to be run.
struct Ready {
    cell: Cell,
    setup: Setup,
    entrants: Vec<Entrant>,
    /// Why it is not easy.
    hard: Vec<String>,
}

impl Ready {
    fn new(number: u64, options: &Options, files: &Files, registry: &Registry) -> Result<Self, GauntletError> {
        let cell = Cell::draw(number);
        let error = |error| GauntletError::Cell { cell: number, error };
        let experiment = Experiment::parse_with(&format!("cell-{number}"), &cell.text(), registry).map_err(error)?;
        let plans = experiment.cells().map_err(error)?;
        let setup = plans.into_iter().next().map(|plan| plan.setup);
        let setup = setup.ok_or_else(|| error(ExperimentError::Invalid("a cell without contenders".into())))?;
        let network = setup.network(files).map_err(error)?;
        let entrants = options.contenders.iter().flat_map(|listed| listed.entrants(cell.paths.len())).collect();
        Ok(Self { hard: easy::hard(&cell, &network), cell, setup, entrants })
    }
}

/// A run that is to be done.
struct Job<'a> {
    key: RunKey,
    ready: &'a Ready,
    entrant: &'a Entrant,
}

/// What a thread keeps from one run to the next: contenders change fastest.
#[derive(Default)]
struct Last {
    network: Option<(u64, Network)>,
    stage: Option<(u64, u32, Stage, Limit, BoundFigures)>,
}

impl Last {
    fn stage(&mut self, ready: &Ready, seed: u32, files: &Files) -> Result<&(u64, u32, Stage, Limit, BoundFigures), ExperimentError> {
        let number = ready.cell.number;
        let (_, network) = match self.network.take().filter(|(of, _)| *of == number) {
            Some(last) => self.network.insert(last),
            None => self.network.insert((number, ready.setup.network(files)?)),
        };
        match self.stage.take().filter(|(of, under, ..)| (*of, *under) == (number, seed)) {
            Some(last) => Ok(self.stage.insert(last)),
            None => {
                let stage = Stage::over(network.clone(), &ready.setup, files, seed.into())?;
                let (limit, bound) = figures::limit(&stage, &ready.setup);
                Ok(self.stage.insert((number, seed, stage, limit, bound)))
            }
        }
    }
}

/// Runs what is left of the gauntlet, and judges; `runs.parquet` is then in the directory.
///
/// A run that fails has no block on time. `stop` interrupts it between runs.
///
/// # Errors
/// See [`GauntletError`]. Runs that were done are kept.
pub fn run(
    options: &Options,
    registry: &Registry,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Results, GauntletError> {
    let (files, seen) = options.files.watched();
    let numbers = options.first..options.first.saturating_add(options.cells);
    let ready: Vec<Ready> =
        numbers.map(|number| Ready::new(number, options, &files, registry)).collect::<Result<_, _>>()?;
    let earlier = Earlier::new(options, &ready.iter().map(|one| one.cell.number).collect::<Vec<_>>())?;
    fs::create_dir_all(&options.directory).map_err(at(&options.directory))?;
    let path = options.directory.join("journal");
    if options.fresh && path.exists() {
        fs::remove_file(&path).map_err(at(&path))?;
    }
    let mut hasher = SipHasher13::new();
    hasher.write_u32(VERSION);
    hasher.write_u64(seen.fingerprint());
    hash_program(&mut hasher);
    let (journal, done) = Journal::<Kept>::open(&path, hasher.finish()).map_err(at(&path))?;
    let done: BTreeSet<RunKey> = done.into_iter().collect();
    let (jobs, finished): (Vec<Job<'_>>, Vec<Job<'_>>) =
        ready.iter().flat_map(|one| jobs(one, options.seeds)).partition(|job| !done.contains(&job.key));
    let total = jobs.len() + finished.len();
    let (journal, count) = (Mutex::new(journal), AtomicUsize::new(finished.len()));
    progress(Progress { done: finished.len(), total });
    let each = |last: &mut Last, job: &Job<'_>| -> Result<(), GauntletError> {
        let kept = one(job, last, &options.files)?;
        journal.lock().unwrap_or_else(PoisonError::into_inner).append(job.key, &kept).map_err(at(&path))?;
        progress(Progress { done: count.fetch_add(1, Ordering::Relaxed) + 1, total });
        Ok(())
    };
    if !pool::work(&jobs, options.threads, stop, each)? {
        return Err(GauntletError::Interrupted);
    }
    let mut journal = journal.into_inner().unwrap_or_else(PoisonError::into_inner);
    gather(&ready, options, &earlier, &mut journal)
}

/// All runs of a cell, contenders changing fastest.
fn jobs(ready: &Ready, seeds: u32) -> impl Iterator<Item = Job<'_>> {
    let seeds = 1..=seeds;
    seeds.flat_map(move |seed| {
        ready.entrants.iter().map(move |entrant| Job { key: key(ready.cell.number, &entrant.name, seed), ready, entrant })
    })
}

/// Cells and contenders may be others from command to command; a run is known by what it is.
fn key(cell: u64, contender: &str, seed: u32) -> RunKey {
    RunKey { cell: SipHasher13::new_with_keys(VERSION.into(), cell).hash(contender.as_bytes()), seed }
}

fn one(job: &Job<'_>, last: &mut Last, files: &Files) -> Result<Kept, GauntletError> {
    let (ready, seed) = (job.ready, job.key.seed);
    let error = |error| GauntletError::Cell { cell: ready.cell.number, error };
    let (_, _, stage, limit, bound) = last.stage(ready, seed, files).map_err(error)?;
    let contender = &job.entrant.contender;
    let record = match job.entrant.alone {
        Some(path) => carry::attempt(&entrants::alone(stage, path), contender, seed.into()),
        None => carry::attempt(stage, contender, seed.into()),
    };
    Ok(Kept::of(record, limit, bound, &ready.setup))
}

/// Reads all runs back in order: files and results.
fn gather(
    ready: &[Ready],
    options: &Options,
    earlier: &Earlier<'_>,
    journal: &mut Journal<Kept>,
) -> Result<Results, GauntletError> {
    let (path, journal_path) = (options.directory.join("runs.parquet"), options.directory.join("journal"));
    let file = File::create(&path).map(BufWriter::new).map_err(at(&path))?;
    let mut runs = RunsFile::new(file, &["cell".to_owned()]).map_err(at(&path))?;
    let mut cells = Vec::new();
    for one in ready {
        let cell = &one.cell;
        let params = [("cell".to_owned(), cell.number.to_string())];
        let mut results = CellResults {
            number: cell.number,
            description: cell.describe(),
            paths: cell.paths.len() as u32,
            wide: cell.wide,
            hard: one.hard.clone(),
            ..CellResults::default()
        };
        for job in jobs(one, options.seeds) {
            let lost = || io::Error::new(io::ErrorKind::NotFound, "a run is not in the journal any more");
            let kept = journal.read(job.key).and_then(|run| run.ok_or_else(lost)).map_err(at(&journal_path))?;
            let (seed, contender) = (job.key.seed, job.entrant.name.as_str());
            let label = RunLabel { params: &params, contender, seed: seed.into() };
            runs.push(&label, &kept.values, kept.all.blocks, &kept.totals, &kept.bound).map_err(at(&path))?;
            if results.limits.last().is_none_or(|limit| limit.seed != seed) {
                results.limits.push(limit_row(seed, &kept.limit));
            }
            results.runs.push(run_row(seed, contender, &kept));
        }
        earlier.complete(&mut results);
        results.scores = score::scores(&results);
        cells.push(results);
    }
    runs.finish().map_err(at(&path))?;
    let summaries = score::summaries(&cells);
    Ok(Results {
        gauntlet: VERSION,
        first: options.first,
        seeds: options.seeds,
        contenders: participants(ready, earlier),
        verdicts: score::verdicts(&summaries),
        summaries,
        cells,
        command: options.command.clone(),
    })
}

fn participants(ready: &[Ready], earlier: &Earlier<'_>) -> Vec<Participant> {
    let mut all: Vec<Participant> = Vec::new();
    let now = ready.iter().flat_map(|one| &one.entrants).map(|entrant| Participant {
        name: entrants::on_all_paths(&entrant.name).to_owned(),
        role: entrant.role,
        repeats: entrants::repeats(&entrant.name),
        earlier: false,
    });
    for one in now.chain(earlier.participants()) {
        if !all.iter().any(|known| known.name == one.name && known.role == one.role) {
            all.push(one);
        }
    }
    all
}

/// `part / whole`, if there is a whole.
fn share(part: f64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}

fn limit_row(seed: u32, limit: &Limit) -> LimitRow {
    LimitRow {
        seed,
        blocks: limit.blocks,
        bound: share(limit.bound, limit.blocks).unwrap_or(1.0),
        average: share(limit.average, limit.blocks).unwrap_or(1.0),
        start_blocks: limit.start_blocks,
        start_bound: share(limit.start_bound, limit.start_blocks),
        start_average: share(limit.start_average, limit.start_blocks),
        up_to_priority: limit.up_to_priority.clone(),
    }
}

fn run_row(seed: u32, contender: &str, kept: &Kept) -> RunRow {
    let value = |key: &str| {
        let index = MEASURES.iter().position(|measure| measure.key == key)?;
        kept.values.get(index).copied().flatten().filter(|value| value.is_finite())
    };
    let of = |tally: &figures::Tally| share(tally.on_time as f64, tally.blocks);
    RunRow {
        contender: contender.to_owned(),
        seed,
        on_time: of(&kept.all).unwrap_or(0.0),
        start: of(&kept.start),
        by_priority: kept.priorities.iter().map(|(priority, tally)| (*priority, tally.blocks, tally.on_time)).collect(),
        overhead: value("overhead_ratio"),
        failure: kept.totals.failure.clone(),
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> GauntletError + use<> {
    let path = path.to_path_buf();
    move |error| GauntletError::File { path: path.clone(), error }
}
