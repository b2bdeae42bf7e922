//! One run: a plan carried by a contender over the simulator, and what came of it.

mod ledger;
mod punctual;
mod stage;

pub use stage::{CarryError, Stage};

use crate::{
    experiment::{Contender, Transport},
    record::RunRecord,
};

/// Runs a stage with a contender. The same seed gives the same record.
///
/// # Errors
/// If the contender's settings make no sense or the sessions do not come about.
pub fn run(stage: &Stage, contender: &Contender, seed: u64) -> Result<RunRecord, CarryError> {
    match &contender.transport {
        Transport::Punctual { .. } => punctual::run(stage, contender, seed),
        Transport::Quic { .. } => Err(CarryError::Setting("plain QUIC is not there yet".into())),
    }
}
