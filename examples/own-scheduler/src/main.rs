//! The program `punctual` with a scheduler, a congestion controller and a kind of workload of one's own.

mod controller;
mod scheduler;
mod workload;

use std::process::ExitCode;

use punctual_eval::registry::{NameError, Registry};

/// What is registered: a line each. Experiments can choose it by these names.
fn registry() -> Result<Registry, NameError> {
    Registry::new()
        .scheduler("shortest-first", scheduler::ShortestFirst::default)?
        .controller("window-64k", |_| controller::FixedWindow(64_000))?
        .workload("sensors", workload::sensors)
}

fn main() -> ExitCode {
    match registry() {
        Ok(registry) => punctual_cli::run(&registry),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use punctual_eval::{
        experiment::Experiment,
        run::{self, Options},
    };

    #[test]
    fn the_experiment_runs_and_shows_what_it_must() {
        let experiment =
            Experiment::parse_with("experiment", include_str!("../experiment.toml"), &super::registry().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let experiment = experiment.unwrap().smoke().unwrap();
        let results = run::run(&experiment, &Options::new(directory.path()), &AtomicBool::new(false), &|_| {}).unwrap();
        assert_eq!(results.cells.len(), experiment.cells().unwrap().len());
        assert!(
            results.verdicts.len() == 1 && results.verdicts.iter().all(|verdict| verdict.holds),
            "{:?}",
            results.verdicts
        );
    }
}
