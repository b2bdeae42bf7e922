//! `punctual eval`: experiments in virtual time.

mod args;
mod compare;
mod json;
mod progress;
mod table;

use std::{
    fs,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub(crate) use args::EvalArgs;
use args::{EvalCommand, RunArgs, ShowArgs};
use punctual_eval::{
    experiment::{Experiment, ExperimentError, builtin},
    files::Files,
    report,
    results::Results,
    run::{self, Options, Progress, RunError},
};

use crate::exit::Failure;

/// Does what the command line asks for.
pub(crate) async fn run(args: &EvalArgs) -> Result<(), Failure> {
    match &args.command {
        EvalCommand::List(list) => {
            let all = builtin::BUILTIN.iter().map(|(name, _)| load(name)).collect::<Result<Vec<_>, _>>()?;
            if list.json {
                json::list(&all)
            } else {
                println!("{}", table::list(&all))
            }
            Ok(())
        }
        EvalCommand::Show(args) => show(args),
        EvalCommand::Run(args) => {
            for name in &args.experiments {
                let (_, results, directory) = perform(name, args).await?;
                conclude(&results, &directory, args);
            }
            Ok(())
        }
        EvalCommand::Check(args) => check(args).await,
        EvalCommand::Compare(args) => compare::run(args),
    }
}

/// A built-in experiment, or one in a file.
fn load(name: &str) -> Result<Experiment, Failure> {
    if let Some(experiment) = builtin::by_name(name) {
        return experiment.map_err(|error| Failure::Usage(format!("{name}: {error}")));
    }
    let path = Path::new(name);
    if path.extension().is_none() {
        let known: Vec<&str> = builtin::BUILTIN.iter().map(|(name, _)| *name).collect();
        return Err(Failure::Usage(format!(
            "no experiment is called `{name}`; give a TOML file or one of: {}",
            known.join(", ")
        )));
    }
    let text = fs::read_to_string(path).map_err(|error| Failure::file("read", path, error))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Experiment::parse(&stem, &text).map_err(|error| Failure::Usage(format!("{name}: {error}")))
}

/// The experiment with the command line's changes.
fn prepare(name: &str, args: &RunArgs) -> Result<Experiment, Failure> {
    let usage = |error: ExperimentError| Failure::Usage(format!("{name}: {error}"));
    let mut experiment = load(name)?;
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

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let experiment = load(&args.experiment)?;
    let cells = experiment.cells().map_err(|error| Failure::Usage(error.to_string()))?;
    println!(
        "# {}: {} cells, {} seeds each\n{}",
        experiment.name,
        cells.len(),
        experiment.head.seeds,
        experiment.text().trim_end()
    );
    Ok(())
}

/// Runs an experiment and writes its files.
async fn perform(name: &str, args: &RunArgs) -> Result<(Experiment, Results, PathBuf), Failure> {
    let experiment = prepare(name, args)?;
    let directory = directory(&experiment.name, args);
    let options = Options {
        files: files(name, args),
        threads: args.jobs.map_or_else(|| Options::new("").threads, |jobs| jobs.get().into()),
        fresh: args.fresh,
        command: command(name, args),
        blocks: !args.no_blocks,
        ..Options::new(&directory)
    };
    let stop = Arc::new(AtomicBool::new(false));
    let interrupted = stop.clone();
    let watch = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.store(true, Ordering::Relaxed);
        }
    });
    let bar = progress::Bar::new(&experiment.name, !args.quiet && std::io::stderr().is_terminal());
    let task = {
        let (experiment, options) = (experiment.clone(), options.clone());
        tokio::task::spawn_blocking(move || {
            run::run(&experiment, &options, &stop, &|progress: Progress| bar.show(progress))
        })
    };
    let results = task.await.map_err(|error| Failure::Other(error.to_string()))?.map_err(failure)?;
    watch.abort();
    let write = |file: &str, content: String| {
        let path = directory.join(file);
        fs::write(&path, content).map_err(|error| Failure::file("write", &path, error))
    };
    write("report.html", report::page(&results))?;
    write("results.json", serde_json::to_string(&results).map_err(|error| Failure::Other(error.to_string()))?)?;
    Ok((experiment, results, directory))
}

fn failure(error: RunError) -> Failure {
    let text = error.to_string();
    match error {
        RunError::Experiment(error) if error.is_about_a_file() => Failure::File(text),
        RunError::File { .. } => Failure::File(text),
        RunError::Experiment(_) => Failure::Usage(text),
        _ => Failure::Other(text),
    }
}

async fn check(args: &RunArgs) -> Result<(), Failure> {
    let (mut failed, mut judged) = (0, 0);
    for name in &args.experiments {
        let (_, results, directory) = perform(name, args).await?;
        failed += results.verdicts.iter().filter(|verdict| !verdict.holds).count();
        judged += results.verdicts.len();
        if args.json {
            json::verdicts(&results);
        } else {
            println!("{}", table::verdicts(&results));
            println!("the report: {}", directory.join("report.html").display());
        }
    }
    if failed > 0 { Err(Failure::Other(format!("{failed} of {judged} thresholds do not hold"))) } else { Ok(()) }
}

fn conclude(results: &Results, directory: &Path, args: &RunArgs) {
    if args.json {
        return json::cells(results);
    }
    println!("{}", table::results(results));
    if !results.verdicts.is_empty() {
        println!("{}", table::verdicts(results));
    }
    println!("the report: {}", directory.join("report.html").display());
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
fn files(name: &str, args: &RunArgs) -> Files {
    let beside = Path::new(name).parent().filter(|_| name.ends_with(".toml")).map(Path::to_path_buf);
    let told = args.data.clone().or_else(|| std::env::var_os("PUNCTUAL_DATA").map(PathBuf::from));
    let usual = ["data", "../shared/data"].map(PathBuf::from);
    Files::new(beside.into_iter().chain(told).chain(usual))
}

/// The command that makes this again.
fn command(name: &str, args: &RunArgs) -> String {
    let mut command = format!("punctual eval run {name}");
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
