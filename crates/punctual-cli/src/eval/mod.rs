//! `punctual eval`: experiments in virtual time.

mod args;
mod compare;
mod gauntlet;
mod json;
mod progress;
mod stop;
mod table;

use std::{
    fs,
    io::IsTerminal as _,
    path::{Path, PathBuf},
};

pub(crate) use args::EvalArgs;
use args::{EvalCommand, RunArgs, ShowArgs};
use punctual_eval::{
    experiment::{Experiment, ExperimentError},
    files::Files,
    registry::Registry,
    report,
    results::Results,
    run::{self, Options, Progress, RunError, SweepError},
};
use stop::Stop;

use crate::{exit::Failure, out::line};

/// Does what the command line asks for.
pub(crate) async fn run(args: &EvalArgs, registry: &Registry) -> Result<(), Failure> {
    match &args.command {
        EvalCommand::List(list) => {
            let all = registry.experiments().map(|name| load(name, registry)).collect::<Result<Vec<_>, _>>()?;
            if list.json { json::list(&all) } else { line(table::list(&all)) }
        }
        EvalCommand::Show(args) => show(args, registry),
        EvalCommand::Run(args) => {
            let experiments = prepare_all(args, registry)?;
            let (mut failed, stop) = (0, Stop::listen()?);
            for (name, experiment) in experiments {
                let (results, directory) = perform(name, experiment, args, &stop).await?;
                conclude(&results, &directory, args)?;
                failed += results.failures.len();
            }
            all_came_through(failed)
        }
        EvalCommand::Check(args) => check(args, registry).await,
        EvalCommand::Compare(args) => compare::run(args),
        EvalCommand::Gauntlet(args) => gauntlet::run(args, registry).await,
    }
}

/// Results are there all the same, but who asked for them has to know.
fn all_came_through(failed: usize) -> Result<(), Failure> {
    if failed > 0 { Err(Failure::Other(format!("{failed} runs failed; the results say which"))) } else { Ok(()) }
}

/// An experiment that is known by its name, or one in a file.
fn load(name: &str, registry: &Registry) -> Result<Experiment, Failure> {
    if let Some(experiment) = registry.load(name) {
        return experiment.map_err(|error| Failure::Usage(format!("{name}: {error}")));
    }
    let path = Path::new(name);
    if path.extension().is_none() {
        let known: Vec<&str> = registry.experiments().collect();
        return Err(Failure::Usage(format!(
            "no experiment is called `{name}`; give a TOML file or one of: {}",
            known.join(", ")
        )));
    }
    let text = fs::read_to_string(path).map_err(|error| Failure::file("read", path, error))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if stem.trim_matches('.').is_empty() {
        // Results go to a directory that is called so.
        return Err(Failure::Usage(format!("{name}: an experiment is called as its file is, and this is no name")));
    }
    Experiment::parse_with(&stem, &text, registry).map_err(|error| Failure::Usage(format!("{name}: {error}")))
}

/// The experiment with the command line's changes.
fn prepare(name: &str, args: &RunArgs, registry: &Registry) -> Result<Experiment, Failure> {
    let usage = |error: ExperimentError| Failure::Usage(format!("{name}: {error}"));
    let mut experiment = load(name, registry)?;
    if args.smoke {
        experiment = experiment.smoke().map_err(usage)?;
    }
    if let Some(seeds) = args.seeds {
        experiment = experiment.with("seeds", &seeds.to_string()).map_err(usage)?;
    }
    for (key, value) in &args.set {
        experiment = experiment.with(key, value).map_err(usage)?;
    }
    Ok(experiment)
}

/// All of them, each with what it was called on the command line: what is wrong with the last is told before the first is run.
fn prepare_all<'a>(args: &'a RunArgs, registry: &Registry) -> Result<Vec<(&'a str, Experiment)>, Failure> {
    let mut all: Vec<(&str, Experiment)> = Vec::new();
    for name in &args.experiments {
        let experiment = prepare(name, args, registry)?;
        // Results go to a directory of the experiment's name.
        if let Some((other, _)) = all.iter().find(|(_, other)| other.name == experiment.name) {
            let what = format!(
                "the results of {other} and {name} would go to one place: run them one by one, with an --out each"
            );
            return Err(Failure::Usage(what));
        }
        all.push((name, experiment));
    }
    Ok(all)
}

fn show(args: &ShowArgs, registry: &Registry) -> Result<(), Failure> {
    let experiment = load(&args.experiment, registry)?;
    let cells = experiment.cells().map_err(|error| Failure::Usage(error.to_string()))?;
    let (name, text) = (&experiment.name, experiment.text());
    line(format_args!("# {name}: {} cells, {} seeds each", cells.len(), experiment.head.seeds))?;
    line(text.trim_end())
}

/// Runs an experiment and writes its files.
async fn perform(
    name: &str,
    experiment: Experiment,
    args: &RunArgs,
    stop: &Stop,
) -> Result<(Results, PathBuf), Failure> {
    let directory = directory(&experiment.name, args);
    let mut options = Options {
        files: files(name, args.data.as_deref()),
        fresh: args.fresh,
        command: command(name, args),
        blocks: !args.no_blocks,
        ..Options::new(&directory)
    };
    if let Some(jobs) = args.jobs {
        options.threads = jobs.get().into();
    }
    let flag = stop.flag();
    let bar = progress::Bar::new(&experiment.name, !args.quiet && std::io::stderr().is_terminal());
    let task = tokio::task::spawn_blocking(move || {
        run::run(&experiment, &options, &flag, &|progress: Progress| bar.show(progress))
    });
    let results = task.await.map_err(|error| Failure::Other(error.to_string()))?;
    let results = results.map_err(|error| failure(error, stop))?;
    let write = |file: &str, content: String| {
        let path = directory.join(file);
        fs::write(&path, content).map_err(|error| Failure::file("write", &path, error))
    };
    write("report.html", report::page(&results))?;
    write("results.json", serde_json::to_string(&results).map_err(|error| Failure::Other(error.to_string()))?)?;
    Ok((results, directory))
}

fn failure(error: RunError, stop: &Stop) -> Failure {
    let text = error.to_string();
    match error {
        RunError::Experiment(error) if error.is_about_a_file() => Failure::File(text),
        RunError::Experiment(_) => Failure::Usage(text),
        RunError::Sweep(SweepError::File { .. } | SweepError::Busy(_)) => Failure::File(text),
        RunError::Sweep(SweepError::Interrupted) => stop.failure(),
    }
}

async fn check(args: &RunArgs, registry: &Registry) -> Result<(), Failure> {
    let experiments = prepare_all(args, registry)?;
    if let Some((name, _)) = experiments.iter().find(|(_, experiment)| experiment.head.musts.is_empty()) {
        let what = format!("{name}: it has no [[must]], so there is nothing to check; `run` runs it");
        return Err(Failure::Usage(what));
    }
    let (mut failed, mut judged, mut lost) = (0, 0, 0);
    let stop = Stop::listen()?;
    for (name, experiment) in experiments {
        let (results, directory) = perform(name, experiment, args, &stop).await?;
        failed += results.verdicts.iter().filter(|verdict| !verdict.holds).count();
        judged += results.verdicts.len();
        lost += results.failures.len();
        if args.json {
            json::verdicts(&results)?;
        } else if args.markdown {
            line(report::markdown::page(&results))?;
        } else {
            line(table::verdicts(&results))?;
            ended(&results)?;
            line(format_args!("the report: {}", directory.join("report.html").display()))?;
        }
    }
    match failed {
        0 => all_came_through(lost),
        _ => Err(Failure::Other(format!("{failed} of {judged} thresholds do not hold"))),
    }
}

/// Says which sessions did not live as long as their runs.
fn ended(results: &Results) -> Result<(), Failure> {
    let lines = results.ended();
    if lines.is_empty() { Ok(()) } else { line(table::ended(&lines)) }
}

fn conclude(results: &Results, directory: &Path, args: &RunArgs) -> Result<(), Failure> {
    if args.json {
        return json::cells(results);
    }
    if args.markdown {
        return line(report::markdown::page(results));
    }
    line(table::results(results))?;
    if !results.failures.is_empty() {
        line(table::failures(&results.failures))?;
    }
    ended(results)?;
    if !results.verdicts.is_empty() || !results.unjudged.is_empty() {
        line(table::verdicts(results))?;
    }
    line(format_args!("the report: {}", directory.join("report.html").display()))
}

/// Characters of a directory's name.
const LONGEST_NAME: usize = 120;

/// Where the results go: a directory for each experiment, and for each set of changes to it.
fn directory(name: &str, args: &RunArgs) -> PathBuf {
    let mut own = name.to_owned();
    if args.smoke {
        own.push_str("-smoke");
    }
    for (key, value) in &args.set {
        own.push_str(&format!("-{key}={value}"));
    }
    let tame = |c: char| if c.is_alphanumeric() || "-=.,_:".contains(c) { c } else { '_' };
    let tamed: String = own.chars().map(tame).take(LONGEST_NAME).collect();
    // What was cut off, or made tame, still tells two of them apart.
    let whole = tamed == own;
    args.out.join(if whole { tamed } else { format!("{tamed}-{:08x}", crc32fast::hash(own.as_bytes())) })
}

/// Where recordings are looked for: beside the experiment's file, where the command line or the environment says, in the usual places.
fn files(name: &str, data: Option<&Path>) -> Files {
    let beside = Path::new(name).parent().filter(|_| name.ends_with(".toml")).map(Path::to_path_buf);
    let told = data.map(Path::to_path_buf).or_else(|| std::env::var_os("PUNCTUAL_DATA").map(PathBuf::from));
    let usual = ["data", "../shared/data"].map(PathBuf::from);
    Files::new(beside.into_iter().chain(told).chain(usual))
}

/// The command that makes this again.
fn command(name: &str, args: &RunArgs) -> String {
    let mut command = format!("{} eval run {name}", program());
    if args.smoke {
        command.push_str(" --smoke");
    }
    if let Some(seeds) = args.seeds {
        command.push_str(&format!(" --seeds {seeds}"));
    }
    for (key, value) in &args.set {
        command.push_str(&format!(" --set '{key}={value}'"));
    }
    command
}

/// What this program is called; not everybody's is `punctual`.
fn program() -> String {
    let path = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    path.file_stem().map_or_else(|| "punctual".into(), |name| name.to_string_lossy().into_owned())
}
