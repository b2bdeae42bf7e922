//! The program `punctual`, as a library: for a program of one's own that has all of it, and own schedulers, controllers, kinds of
//! workload and experiments in `eval` besides.
//!
//! ```no_run
//! use punctual_eval::registry::Registry;
//!
//! fn main() -> std::process::ExitCode {
//!     punctual_cli::run(&Registry::new())
//! }
//! ```

// Standard error that cannot be written is no reason to panic: see `say`.
#![cfg_attr(not(test), deny(clippy::print_stderr))]

mod activation;
mod back;
mod cli;
mod config;
mod connect;
mod demo;
mod display;
mod doubts;
mod eval;
mod exit;
mod feed;
mod gateway;
mod happenings;
mod identity;
mod incoming;
mod line;
mod link;
mod manual;
mod metrics;
mod notify;
mod out;
mod output;
mod path_figures;
mod recv;
mod released;
mod reply;
mod route;
mod say;
mod scope;
mod send;
mod sent;
mod server;
mod signals;
mod sink;
mod source;
mod stats;
mod take;
mod token;
mod tunnel;
#[cfg(target_os = "linux")]
mod vpn;
mod watch;
mod window;

use std::{io::IsTerminal as _, process::ExitCode};

use clap::Parser as _;
use cli::{Cli, Command};
use exit::Failure;
use punctual_eval::registry::Registry;
use tracing_subscriber::EnvFilter;

/// Does what the command line asks for. What `registry` has, `eval` knows beside what is built in.
pub fn run(registry: &Registry) -> ExitCode {
    let code = run_to_its_end(registry);
    say::finish();
    code
}

fn run_to_its_end(registry: &Registry) -> ExitCode {
    let cli = Cli::parse();
    log(match &cli.command {
        // It runs for months, and what it says is looked for afterwards.
        Command::Tunnel(args) if !args.gateway.quiet => Some("punctual_gateway=info"),
        #[cfg(target_os = "linux")]
        Command::Vpn(args) if !args.gateway.quiet => Some("punctual_gateway=info"),
        _ => None,
    });
    let runtime = match has_room().and_then(|()| tokio::runtime::Builder::new_multi_thread().enable_all().build()) {
        Ok(runtime) => runtime,
        Err(error) => return Failure::Other(format!("cannot start: {error}")).report(),
    };
    let done = runtime.block_on(async {
        match &cli.command {
            #[cfg(target_os = "linux")]
            Command::CheckConfig { file } if vpn::is_of(file) => vpn::check(file),
            Command::CheckConfig { file } => tunnel::check(file),
            Command::Completions { shell } => manual::completions(*shell),
            Command::Demo(args) => demo::run(args).await,
            Command::Eval(args) => eval::run(args, registry).await,
            Command::Link(args) => link::run(args).await,
            Command::Man { dir } => manual::pages(dir),
            Command::Recv(args) => recv::run(args).await,
            Command::Send(args) => send::run(args).await,
            Command::Tunnel(args) => tunnel::run(args).await,
            #[cfg(target_os = "linux")]
            Command::Vpn(args) => vpn::run(args).await,
        }
    });
    // A thread may still wait for a pipe to say something.
    runtime.shutdown_background();
    done.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// That there is room for the files that the runtime opens: it panics if one of them is one too many.
fn has_room() -> std::io::Result<()> {
    #[cfg(unix)]
    let _tried = [(); 3].map(|()| std::os::unix::net::UnixStream::pair()).into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(())
}

/// Logs to standard error what `RUST_LOG` asks for, or else what is said here, if anything.
fn log(otherwise: Option<&str>) {
    let filter = EnvFilter::try_from_default_env().ok().or_else(|| otherwise.map(EnvFilter::new));
    if let Some(filter) = filter {
        let to_a_person = std::io::stderr().is_terminal();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(to_a_person)
            .with_writer(say::Log)
            .log_internal_errors(false)
            .init();
    }
}
