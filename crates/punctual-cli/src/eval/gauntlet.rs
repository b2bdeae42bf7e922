//! `punctual eval gauntlet`: networks and workloads drawn from their numbers.

mod table;

use std::{
    fs,
    io::IsTerminal as _,
    num::NonZeroU16,
    path::{Path, PathBuf},
};

use clap::Args;
use punctual_eval::{
    experiment::contender,
    gauntlet::{self, Cell, Changes, GauntletError, Listed, Options, Results},
    registry::Registry,
    report,
    run::{Progress, SweepError},
};

use super::{all_came_through, args::parse_set, files, program, progress, stop::Stop};
use crate::{exit::Failure, out::line};

/// `punctual eval gauntlet`.
#[derive(Debug, Args)]
pub(crate) struct GauntletArgs {
    /// How many cells, one after the other.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    cells: u64,
    /// The first cell's number.
    #[arg(long, value_name = "K", default_value_t = 0)]
    first: u64,
    /// Runs of each contender in each cell; each has a seed of its own, from 1 on.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// Who runs: contenders as experiments name them; with `@K` behind, on path K (from 0) alone, with `@each` on each path alone.
    /// Otherwise ours, both alone and on all paths, and plain QUIC of several kinds.
    #[arg(long, value_name = "LIST")]
    contenders: Option<String>,
    /// Change every cell: any key of an experiment (`session.send-buffer=200 KB`); `workload.*.` is every source but bulk, `path.*.` every path
    /// (`'workload.*.ordered=true'`); may be repeated. What no cell draws is judged so. None of them is easy then.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_set)]
    set: Vec<(String, String)>,
    /// Take the results of contenders that do not run now from these, of the same cells.
    #[arg(long, value_name = "results.json")]
    against: Option<PathBuf>,
    /// Print a cell as an experiment and do nothing else.
    #[arg(long, value_name = "K", conflicts_with_all = ["cells", "first", "seeds", "contenders", "against", "json", "markdown"])]
    show: Option<u64>,
    /// Where to put the results, in a directory for these cells.
    #[arg(long, value_name = "DIR", default_value = "punctual-eval")]
    out: PathBuf,
    /// Where recorded networks lie; otherwise PUNCTUAL_DATA, `data`, `../shared/data`.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Runs at once; otherwise as many as there are cores.
    #[arg(long, short, value_name = "N")]
    jobs: Option<NonZeroU16>,
    /// Run everything again, though it has been run.
    #[arg(long)]
    fresh: bool,
    /// Print the results as one JSON object, everything of every cell, and nothing else.
    #[arg(long)]
    json: bool,
    /// Print GitHub-flavoured Markdown for documents, and nothing else: shares of the bound by the number of paths, and the thresholds.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
}

/// Does what the command line asks for.
pub(super) async fn run(args: &GauntletArgs, registry: &Registry) -> Result<(), Failure> {
    if let Some(number) = args.show {
        return line(shown(number, &changes(args)?, registry)?.trim_end());
    }
    let directory = args.out.join(format!("gauntlet-{}-{}", args.first, args.cells));
    let options = options(args, &directory, registry)?;
    let results = perform(options, args, registry.clone()).await?;
    let json = serde_json::to_string(&results).map_err(|error| Failure::Other(error.to_string()))?;
    let write = |file: &str, content: &str| {
        let path = directory.join(file);
        fs::write(&path, content).map_err(|error| Failure::file("write", &path, error))
    };
    write("results.json", &json)?;
    write("report.html", &report::gauntlet(&results))?;
    if args.json {
        line(json)?;
    } else if args.markdown {
        line(report::markdown::gauntlet(&results))?;
    } else {
        line(table::all(&results))?;
        line(format_args!("the report: {}", directory.join("report.html").display()))?;
    }
    match results.verdicts.iter().filter(|verdict| !verdict.holds).count() {
        0 => {
            let runs = results.cells.iter().flat_map(|cell| &cell.runs);
            all_came_through(runs.filter(|run| run.failure.is_some()).count())
        }
        missed => Err(Failure::Other(format!("{missed} of {} thresholds do not hold", results.verdicts.len()))),
    }
}

/// A cell as text.
fn shown(number: u64, changes: &Changes, registry: &Registry) -> Result<String, Failure> {
    let cell = Cell::draw(number);
    if changes.is_empty() {
        return Ok(cell.text());
    }
    let experiment = changes.experiment(&cell, registry);
    experiment.map(|experiment| experiment.text()).map_err(|error| Failure::Usage(format!("cell {number}: {error}")))
}

fn changes(args: &GauntletArgs) -> Result<Changes, Failure> {
    Changes::new(args.set.iter().cloned()).map_err(|error| Failure::Usage(error.to_string()))
}

fn options(args: &GauntletArgs, directory: &Path, registry: &Registry) -> Result<Options, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let contenders = match &args.contenders {
        None => Listed::usual(registry),
        Some(list) => contender::listed(list)
            .iter()
            .map(|name| Listed::parse(name, registry))
            .collect::<Result<_, _>>()
            .map_err(|error| usage(&error))?,
    };
    let mut options = Options {
        first: args.first,
        cells: args.cells,
        seeds: args.seeds,
        contenders,
        changes: changes(args)?,
        against: args.against.as_deref().map(read).transpose()?,
        files: files("", args.data.as_deref()),
        fresh: args.fresh,
        command: command(args),
        ..Options::new(directory)
    };
    if let Some(jobs) = args.jobs {
        options.threads = jobs.get().into();
    }
    Ok(options)
}

/// Results of an earlier time: the file, or the directory it is in.
fn read(path: &Path) -> Result<Results, Failure> {
    let path = if path.is_dir() { path.join("results.json") } else { path.to_path_buf() };
    let text = fs::read_to_string(&path).map_err(|error| Failure::file("read", &path, error))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("{} is not a gauntlet's results: {error}", path.display())))
}

async fn perform(options: Options, args: &GauntletArgs, registry: Registry) -> Result<Results, Failure> {
    let stop = Stop::listen()?;
    let flag = stop.flag();
    let bar = progress::Bar::new("gauntlet", !args.quiet && std::io::stderr().is_terminal());
    let task = tokio::task::spawn_blocking(move || {
        gauntlet::run(&options, &registry, &flag, &|progress: Progress| bar.show(progress))
    });
    let results = task.await.map_err(|error| Failure::Other(error.to_string()))?;
    results.map_err(|error| failure(error, &stop))
}

fn failure(error: GauntletError, stop: &Stop) -> Failure {
    let text = error.to_string();
    match error {
        GauntletError::Cell { error, .. } if error.is_about_a_file() => Failure::File(text),
        GauntletError::Cell { .. }
        | GauntletError::Contender(_)
        | GauntletError::TooFar
        | GauntletError::Earlier(_) => Failure::Usage(text),
        GauntletError::Sweep(SweepError::File { .. } | SweepError::Busy(_)) => Failure::File(text),
        GauntletError::Sweep(SweepError::Interrupted) => stop.failure(),
    }
}

/// The command that makes this again.
fn command(args: &GauntletArgs) -> String {
    let mut command =
        format!("{} eval gauntlet --first {} --cells {} --seeds {}", program(), args.first, args.cells, args.seeds);
    if let Some(list) = &args.contenders {
        command.push_str(&format!(" --contenders {list}"));
    }
    for (key, value) in &args.set {
        command.push_str(&format!(" --set '{key}={value}'"));
    }
    if let Some(path) = &args.against {
        command.push_str(&format!(" --against {}", path.display()));
    }
    command
}
