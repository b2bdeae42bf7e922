//! The program `punctual`.

use std::process::ExitCode;

use punctual_eval::registry::Registry;

fn main() -> ExitCode {
    punctual_cli::run(&Registry::new())
}
