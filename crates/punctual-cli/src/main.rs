//! The program `punctual`.
mod demo;
mod exit;
mod h264;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match demo::run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
