//! The command line of `punctual eval`.

use std::{num::NonZeroU16, path::PathBuf};

use clap::{Args, Subcommand};

use super::gauntlet::GauntletArgs;

const EVAL_HELP: &str = "\
Examples:
  punctual eval list
  punctual eval run dtp-bandwidth                       all of it, as the paper has it
  punctual eval run dtp-bandwidth --smoke               a first look, in seconds
  punctual eval run dtp-bandwidth --set bandwidth=2,3 --set contenders=ads,edf --seeds 3
  punctual eval run dtp-bandwidth --set path.0.loss=0.01 --set session.congestion=cubic --json
  punctual eval run ./mine.toml --data ~/traces
  punctual eval check dtp-bandwidth && echo as claimed
  punctual eval check dtp-bandwidth fairness --markdown tables for a document
  punctual eval compare punctual-eval/before punctual-eval/after
  punctual eval gauntlet --cells 40                     networks and workloads nobody has thought of
  punctual eval gauntlet --show 17 > cell.toml          one of them, to look at and to run by itself";

/// `punctual eval`.
#[derive(Debug, Args)]
#[command(after_help = EVAL_HELP)]
pub(crate) struct EvalArgs {
    #[command(subcommand)]
    pub(crate) command: EvalCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EvalCommand {
    /// Name the experiments there are.
    List(ListArgs),
    /// Print an experiment as TOML, to read or to make one's own from.
    Show(ShowArgs),
    /// Run experiments: every set of parameters, every contender, every seed. An interrupted run goes on where it stopped.
    Run(RunArgs),
    /// Run what has not been run yet and say of each threshold whether it holds; exit with code 1 if one does not.
    Check(RunArgs),
    /// Set two results side by side, cell by cell.
    Compare(CompareArgs),
    /// Run the gauntlet: networks and workloads drawn from their numbers, ours beside plain QUIC and beside itself on one path alone;
    /// exit with code 1 if a threshold does not hold.
    Gauntlet(GauntletArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The experiment: its name, or a TOML file.
    pub(crate) experiment: String,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The experiments: names, or TOML files.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) experiments: Vec<String>,
    /// Runs of each cell; each has a seed of its own, from 1 on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seeds: Option<u32>,
    /// Change the experiment: an axis (`bandwidth=2,3`), `contenders=ads,edf`, or any key (`path.0.loss=0.01`); may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_set)]
    pub(crate) set: Vec<(String, String)>,
    /// The experiment's short version.
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Where to put the results, a directory for each experiment.
    #[arg(long, value_name = "DIR", default_value = "punctual-eval")]
    pub(crate) out: PathBuf,
    /// Where recorded networks and workloads lie; otherwise PUNCTUAL_DATA, `data`, `../shared/data`.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Runs at once; otherwise as many as there are cores.
    #[arg(long, short, value_name = "N")]
    pub(crate) jobs: Option<NonZeroU16>,
    /// Run everything again, though it has been run.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Write no row for each block, only for each run.
    #[arg(long)]
    pub(crate) no_blocks: bool,
    /// Print the results as one JSON object a line and cell, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print GitHub-flavoured Markdown for documents, and nothing else: for each experiment a table of its main measure (that of its
    /// first figure; rows are parameters, columns the bound and contenders, cells the mean ± half its 95 % interval over the seeds),
    /// and one of its thresholds.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The one: a directory of results.
    pub(crate) a: PathBuf,
    /// The other.
    pub(crate) b: PathBuf,
    /// The measure to compare by; may be repeated.
    #[arg(long, value_name = "MEASURE", default_values = ["on_time", "p99_ms"])]
    pub(crate) measure: Vec<String>,
    /// One JSON object a line and cell.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `KEY=VALUE` in its two parts.
pub(super) fn parse_set(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}
