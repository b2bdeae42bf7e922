//! The command line.
use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[arg(long, default_value = "punctual-demo")]
    pub(crate) out: PathBuf,
    #[arg(long, default_value = "150ms", value_parser = humantime::parse_duration)]
    pub(crate) deadline: Duration,
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long)]
    pub(crate) quiet: bool,
}
