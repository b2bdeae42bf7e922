//! Running the gauntlet: every cell, every contender, every seed, on all cores; an interrupted run goes on where it stopped.

use std::{
    collections::BTreeSet, fs::File, hash::Hasher, io::BufWriter, path::PathBuf, sync::atomic::AtomicBool, thread,
};

use siphasher::sip::SipHasher13;
use thiserror::Error;

use super::{
    VERSION,
    cell::Cell,
    changes::Changes,
    earlier::{Earlier, EarlierError},
    easy,
    entrants::{self, Entrant, Listed, Role},
    figures::{self, Kept, Limit},
    results::{CellResults, LimitRow, Participant, Results, RunRow},
    score,
};
use crate::{
    carry::{self, Stage},
    experiment::{ExperimentError, Setup},
    files::Files,
    measure::{BoundFigures, MEASURES},
    network::Network,
    registry::Registry,
    run::{
        journal::RunKey,
        parquet::{RunLabel, RunsFile},
        sweep::{Manner, Progress, Sweep, SweepError, at},
    },
};

/// Why the gauntlet came to no end.
#[derive(Debug, Error)]
pub enum GauntletError {
    /// A cell cannot be built: recordings are missing, or it cannot be changed so.
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
    /// Numbers of cells that cannot be.
    #[error("there are no cells of such numbers: the last is that of 64 bits")]
    TooFar,
    /// Results of an earlier time that do not fit.
    #[error(transparent)]
    Earlier(#[from] EarlierError),
    /// Its runs came to no end.
    #[error(transparent)]
    Sweep(#[from] SweepError),
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
    /// What is changed in every cell.
    pub changes: Changes,
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

impl Options {
    /// A hundred cells from the first, with the usual contenders, into this directory, on all cores.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            first: 0,
            cells: 100,
            seeds: 2,
            contenders: Listed::usual(&Registry::new()),
            changes: Changes::default(),
            against: None,
            directory: directory.into(),
            files: Files::default(),
            threads: thread::available_parallelism().map_or(1, usize::from),
            fresh: false,
            command: String::new(),
        }
    }
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
        let experiment = options.changes.experiment(&cell, registry).map_err(error)?;
        let plans = experiment.cells().map_err(error)?;
        let setup = plans.into_iter().next().map(|plan| plan.setup);
        let setup = setup.ok_or_else(|| error(ExperimentError::Invalid("a cell without contenders".into())))?;
        let network = setup.network(files).map_err(error)?;
        let entrants = options.contenders.iter().flat_map(|listed| listed.entrants(cell.paths.len())).collect();
        let hard = match options.changes.is_empty() {
            true => easy::hard(&cell, &network),
            false => vec!["it is not as drawn".into()],
        };
        Ok(Self { hard, cell, setup, entrants })
    }
}

/// Refuses contenders that no cell has a path for, and those that would run twice.
fn check(options: &Options, ready: &[Ready]) -> Result<(), GauntletError> {
    let wrong = |name: &str, error: &str| {
        GauntletError::Contender(ExperimentError::Contender { name: name.to_owned(), error: error.to_owned() })
    };
    for listed in &options.contenders {
        if let Some(name) = listed.lacks_a_path(ready.iter().map(|one| one.cell.paths.len())) {
            return Err(wrong(&name, "none of these cells has so many paths"));
        }
    }
    for one in ready {
        let names: Vec<&str> = one.entrants.iter().map(|entrant| entrant.name.as_str()).collect();
        if let Some((_, name)) = names.iter().enumerate().find(|(n, name)| names[..*n].contains(name)) {
            return Err(wrong(name, "it would run twice"));
        }
    }
    Ok(())
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
    scene: Option<Scene>,
}

/// A cell under a seed.
struct Scene {
    cell: u64,
    seed: u32,
    stage: Stage,
    limit: Limit,
    bound: BoundFigures,
}

impl Last {
    fn scene(&mut self, ready: &Ready, seed: u32, files: &Files) -> Result<&Scene, ExperimentError> {
        let cell = ready.cell.number;
        let (_, network) = match self.network.take().filter(|(of, _)| *of == cell) {
            Some(last) => self.network.insert(last),
            None => self.network.insert((cell, ready.setup.network(files)?)),
        };
        match self.scene.take().filter(|scene| (scene.cell, scene.seed) == (cell, seed)) {
            Some(last) => Ok(self.scene.insert(last)),
            None => {
                let stage = Stage::over(network.clone(), &ready.setup, files, seed.into())?;
                let (limit, bound) = figures::limit(&stage, &ready.setup);
                Ok(self.scene.insert(Scene { cell, seed, stage, limit, bound }))
            }
        }
    }
}

/// Runs what is left of the gauntlet, and judges; `runs.parquet` is then in the directory.
///
/// A run that fails has no block on time. Where one that is judged seems to be behind another, both are run again with further seeds.
/// `stop` interrupts it between runs.
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
    let last = options.first.checked_add(options.cells.saturating_sub(1));
    let numbers = options.first..=last.ok_or(GauntletError::TooFar)?;
    let ready: Vec<Ready> =
        numbers.map(|number| Ready::new(number, options, &files, registry)).collect::<Result<_, _>>()?;
    check(options, &ready)?;
    let earlier = Earlier::new(options, &ready.iter().map(|one| one.cell.number).collect::<Vec<_>>())?;
    let mut hasher = SipHasher13::new();
    hasher.write_u32(VERSION);
    hasher.write_u64(seen.fingerprint());
    for change in options.changes.lines() {
        hasher.write(change.as_bytes());
        hasher.write_u8(0);
    }
    let manner = Manner { threads: options.threads, stop, progress };
    let sweep = Sweep::open(&options.directory, options.fresh, hasher, manner)?;
    let perform = |jobs: &[Job<'_>]| sweep.perform(jobs, |job| job.key, |last, job| one(job, last, &options.files));

    let first: Vec<Job<'_>> = ready.iter().flat_map(|one| all_jobs(one, options.seeds)).collect();
    perform(&first)?;
    let mut cells: Vec<CellResults> = ready.iter().map(CellResults::from).collect();
    for (cell, one) in cells.iter_mut().zip(&ready) {
        for job in all_jobs(one, options.seeds) {
            let (seed, kept) = (job.key.seed, sweep.read(job.key)?);
            if cell.limits.last().is_none_or(|limit| limit.seed != seed) {
                cell.limits.push(limit_row(seed, &kept.limit));
            }
            cell.runs.push(run_row(seed, &job.entrant.name, &kept));
        }
        earlier.complete(cell);
        cell.scores = score::scores(cell);
    }

    let extra = confirmers(&ready, &cells, registry)?;
    let further = options.seeds + 1..=options.seeds + FURTHER_SEEDS;
    let asked = extra.iter().flat_map(|one| further.clone().map(move |seed| (one, seed)));
    let known = |one: &Confirmer<'_>, seed| {
        let earlier = earlier.run(one.ready.cell.number, &one.entrant.name, seed);
        earlier.filter(|_| !one.ready.entrants.contains(&one.entrant))
    };
    let (taken, missing): (Vec<_>, Vec<_>) =
        asked.map(|(one, seed)| (one, seed, known(one, seed))).partition(|(.., known)| known.is_some());
    let second: Vec<Job<'_>> = missing.iter().map(|(one, seed, _)| Job::new(one.ready, &one.entrant, *seed)).collect();
    perform(&second)?;
    let at_cell = |number: u64| (number - options.first) as usize;
    for (one, _, run) in taken {
        cells[at_cell(one.ready.cell.number)].confirming.extend(run);
    }
    for job in &second {
        let row = run_row(job.key.seed, &job.entrant.name, &sweep.read(job.key)?);
        cells[at_cell(job.ready.cell.number)].confirming.push(row);
    }
    cells.iter_mut().for_each(|cell| cell.scores = score::scores(cell));

    write_runs(options, &sweep, first.iter().chain(&second))?;
    let summaries = score::summaries(&cells);
    Ok(Results {
        gauntlet: VERSION,
        first: options.first,
        seeds: options.seeds,
        changes: options.changes.lines().collect(),
        contenders: participants(&ready, &earlier),
        verdicts: score::verdicts(&summaries),
        summaries,
        cells,
        command: options.command.clone(),
    })
}

/// Seeds with which two are run again of whom one seems to be behind.
const FURTHER_SEEDS: u32 = 6;

/// Who is run again in a cell.
struct Confirmer<'a> {
    ready: &'a Ready,
    entrant: Entrant,
}

/// All who are, each once a cell, in order.
fn confirmers<'a>(
    ready: &'a [Ready],
    cells: &[CellResults],
    registry: &Registry,
) -> Result<Vec<Confirmer<'a>>, GauntletError> {
    let mut all = Vec::new();
    for (one, cell) in ready.iter().zip(cells) {
        let names: BTreeSet<String> = score::doubts(cell).into_iter().flat_map(|(own, than)| [own, than]).collect();
        for name in names {
            let entrant = match one.entrants.iter().find(|entrant| entrant.name == name) {
                Some(entrant) => Some(entrant.clone()),
                // One whose runs are of an earlier time.
                None => Listed::parse(&name, registry)
                    .map_err(GauntletError::Contender)?
                    .entrants(one.cell.paths.len())
                    .into_iter()
                    .next(),
            };
            all.extend(entrant.map(|entrant| Confirmer { ready: one, entrant }));
        }
    }
    Ok(all)
}

impl<'a> Job<'a> {
    /// Cells and contenders may be others from command to command; a run is known by what it is.
    fn new(ready: &'a Ready, entrant: &'a Entrant, seed: u32) -> Self {
        let hasher = SipHasher13::new_with_keys(VERSION.into(), ready.cell.number);
        Self { key: RunKey { cell: hasher.hash(entrant.name.as_bytes()), seed }, ready, entrant }
    }
}

/// All runs of a cell, contenders changing fastest.
fn all_jobs(ready: &Ready, seeds: u32) -> impl Iterator<Item = Job<'_>> {
    (1..=seeds).flat_map(move |seed| ready.entrants.iter().map(move |entrant| Job::new(ready, entrant, seed)))
}

/// Does a job.
fn one(job: &Job<'_>, last: &mut Last, files: &Files) -> Result<Kept, GauntletError> {
    let (ready, seed) = (job.ready, job.key.seed);
    let error = |error| GauntletError::Cell { cell: ready.cell.number, error };
    let Scene { stage, limit, bound, .. } = last.scene(ready, seed, files).map_err(error)?;
    let contender = &job.entrant.contender;
    let record = match job.entrant.alone {
        Some(path) => carry::attempt(&entrants::alone(stage, path), contender, seed.into()),
        None => carry::attempt(stage, contender, seed.into()),
    };
    Ok(Kept::of(record, limit, bound, &ready.setup))
}

/// Writes `runs.parquet`.
fn write_runs<'j>(
    options: &Options,
    sweep: &Sweep<'_, Kept>,
    jobs: impl Iterator<Item = &'j Job<'j>>,
) -> Result<(), SweepError> {
    let path = options.directory.join("runs.parquet");
    let file = File::create(&path).map(BufWriter::new).map_err(at(&path))?;
    let mut runs = RunsFile::new(file, &["cell".to_owned()]).map_err(at(&path))?;
    for job in jobs {
        let kept = sweep.read(job.key)?;
        let params = [("cell".to_owned(), job.ready.cell.number.to_string())];
        let label = RunLabel { params: &params, contender: &job.entrant.name, seed: job.key.seed.into() };
        runs.push(&label, &kept.values, kept.all.blocks, &kept.totals, &kept.bound).map_err(at(&path))?;
    }
    runs.finish().map_err(at(&path))?;
    Ok(())
}

impl From<&Ready> for CellResults {
    fn from(ready: &Ready) -> Self {
        let cell = &ready.cell;
        Self {
            number: cell.number,
            description: cell.describe(),
            paths: cell.paths.len() as u32,
            wide: cell.wide,
            hard: ready.hard.clone(),
            ..Self::default()
        }
    }
}

fn participants(ready: &[Ready], earlier: &Earlier<'_>) -> Vec<Participant> {
    let mut all: Vec<Participant> = Vec::new();
    let now = ready.iter().flat_map(|one| &one.entrants).map(|entrant| Participant {
        name: entrants::on_all_paths(&entrant.name).to_owned(),
        role: Role::of(&entrant.name),
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
    let overhead = MEASURES.iter().position(|measure| measure.key == "overhead_ratio");
    let overhead = overhead.and_then(|index| kept.values.get(index).copied().flatten());
    let of = |tally: &figures::Tally| share(tally.on_time as f64, tally.blocks);
    RunRow {
        contender: contender.to_owned(),
        seed,
        on_time: of(&kept.all).unwrap_or(0.0),
        start: of(&kept.start),
        by_priority: kept.priorities.iter().map(|(priority, tally)| (*priority, tally.blocks, tally.on_time)).collect(),
        overhead: overhead.filter(|value| value.is_finite()),
        failure: kept.totals.failure.clone(),
        ended: kept.totals.ended.as_ref().map(ToString::to_string),
    }
}
