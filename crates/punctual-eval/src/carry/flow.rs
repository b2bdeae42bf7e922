//! A sender, a receiver and what they speak.

use punctual_sim::{HostId, PathHandle, World};

use super::{CarryError, Stage, ledger::Ledger, punctual, quic};
use crate::{
    experiment::{Contender, Transport},
    plan::Plan,
    quic::Config,
    registry::UnknownName,
};

/// A flow in a world.
pub(super) enum Flow {
    Punctual(Box<punctual::Pair>),
    Quic(quic::Pair),
}

impl Flow {
    /// Adds the two hosts of a flow that carries this plan.
    pub(super) fn add(
        world: &mut World,
        contender: &Contender,
        stage: &Stage,
        plan: Plan,
        ledger: &Ledger,
        seed: u64,
    ) -> Result<Self, CarryError> {
        Ok(match &contender.transport {
            Transport::Punctual { .. } => {
                let session = contender.session(stage.session.clone());
                Self::Punctual(Box::new(punctual::Pair::add(world, &session, stage, plan, ledger)?))
            }
            Transport::Quic { multiplexer, multipath, congestion } => {
                let mut config = Config::new(seed);
                config.multiplexer = *multiplexer;
                if let Some(name) = congestion {
                    let unknown = |error: UnknownName| CarryError::Setting(error.to_string());
                    config.congestion = stage.registry.find_quic_controller(name).map_err(unknown)?;
                }
                Self::Quic(quic::Pair::add(world, config, *multipath, plan))
            }
        })
    }

    /// The sender and the receiver.
    pub(super) fn ends(&self) -> (HostId, HostId) {
        match self {
            Self::Punctual(pair) => (pair.client, pair.server),
            Self::Quic(pair) => (pair.client, pair.server),
        }
    }

    /// Has the sender connect over these paths, or the first of them, if it is not to have more.
    pub(super) fn connect(&mut self, world: &mut World, paths: &[PathHandle]) -> Result<(), CarryError> {
        match self {
            Self::Punctual(pair) => pair.connect(world, paths),
            Self::Quic(pair) => pair.connect(world, paths),
        }
    }

    /// Tells the sender what paths cost, if it wants to know.
    pub(super) fn set_costs(&self, world: &mut World, costs: impl Iterator<Item = f64>) {
        match self {
            Self::Punctual(pair) => pair.set_costs(world, costs),
            Self::Quic(_) => {}
        }
    }

    /// Enters into the ledger what has not been entered as it happened.
    pub(super) fn collect(&mut self, world: &mut World, ledger: &Ledger) {
        match self {
            Self::Punctual(pair) => pair.collect(world, ledger),
            Self::Quic(pair) => pair.collect(world, ledger),
        }
    }
}
