//! The program `punctual`.
mod cli;
mod demo;
mod exit;
mod h264;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let cli::Command::Demo(args) = cli.command;
    match demo::run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
