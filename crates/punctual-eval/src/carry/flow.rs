//! A sender, a receiver and what they speak.

use punctual_proto::multipath::{PathBudget, PathRole};
use punctual_sim::{HostId, PathHandle, World};

use super::{CarryError, Stage, ledger::Ledger, punctual, quic};
use crate::{
    experiment::{Contender, QuicSpec, SessionSpec, Transport},
    plan::Plan,
    quic::{Config, PACKET},
    registry::UnknownName,
};

/// A flow in a world.
pub(super) struct Flow {
    pair: Pair,
    /// The only path it takes of those it is given, if it does not take all.
    only: Option<usize>,
}

enum Pair {
    Punctual(Box<punctual::Pair>),
    Quic(quic::Pair),
}

impl Flow {
    /// Adds the two hosts of a flow that carries this plan, and if it is of ours perhaps a `reply` the other way.
    pub(super) fn add(
        world: &mut World,
        contender: &Contender,
        stage: &Stage,
        (plan, ledger): (Plan, &Ledger),
        reply: Option<(Plan, &Ledger)>,
        seed: u64,
    ) -> Result<Self, CarryError> {
        let mut only = contender.path;
        let pair = match &contender.transport {
            Transport::Punctual { .. } => {
                let session = contender.session(stage.session.clone());
                Pair::Punctual(Box::new(punctual::Pair::add(world, &session, stage, (plan, ledger), reply)?))
            }
            Transport::Quic { multiplexer, stream_scheduler, multipath, congestion, choice } => {
                if !multipath {
                    only.get_or_insert(0);
                }
                let mut config = Config {
                    multiplexer: *multiplexer,
                    stream_scheduler: *stream_scheduler,
                    choice: *choice,
                    ..Config::new(seed)
                };
                set(&mut config, &stage.session, &stage.quic);
                if let Some(name) = congestion {
                    let unknown = |error: UnknownName| CarryError::Setting(error.to_string());
                    config.congestion = stage.registry.find_quic_controller(name).map_err(unknown)?;
                }
                Pair::Quic(quic::Pair::add(world, config, plan))
            }
        };
        ledger.lock().first_path = only.unwrap_or(0);
        Ok(Self { pair, only })
    }

    /// Whether it is a session of ours, which carries both ways at once.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.pair, Pair::Punctual(_))
    }

    /// The sender and the receiver.
    pub(super) fn ends(&self) -> (HostId, HostId) {
        match &self.pair {
            Pair::Punctual(pair) => (pair.client, pair.server),
            Pair::Quic(pair) => (pair.client, pair.server),
        }
    }

    /// Has the sender connect over these paths, or the only one of them that it takes.
    pub(super) fn connect(&mut self, world: &mut World, paths: &[PathHandle]) -> Result<(), CarryError> {
        let taken = match self.only {
            Some(path) => paths.get(path..=path),
            None => Some(paths),
        };
        let taken = taken.ok_or_else(|| CarryError::Setting("there is no such path".into()))?;
        match &mut self.pair {
            Pair::Punctual(pair) => pair.connect(world, taken),
            Pair::Quic(pair) => pair.connect(world, taken),
        }
    }

    /// Tells the sender what paths are for and what they cost, if it wants to know.
    pub(super) fn set_terms(
        &self,
        world: &mut World,
        terms: impl Iterator<Item = (PathRole, f64, Option<PathBudget>)>,
    ) {
        let (skipped, taken) = self.only.map_or((0, usize::MAX), |path| (path, 1));
        match &self.pair {
            Pair::Punctual(pair) => pair.set_terms(world, terms.skip(skipped).take(taken)),
            Pair::Quic(_) => {}
        }
    }

    /// Enters into the ledger what has not been entered as it happened.
    pub(super) fn collect(&mut self, world: &mut World, ledger: &Ledger) {
        match &mut self.pair {
            Pair::Punctual(pair) => pair.collect(world, ledger),
            Pair::Quic(pair) => pair.collect(world, ledger),
        }
    }
}

/// Plain QUIC's settings; those that the experiment leaves open are our session's.
fn set(config: &mut Config, session: &SessionSpec, quic: &QuicSpec) {
    let first_window = u64::from(session.initial_window_packets()) * PACKET;
    config.initial_window = quic.initial_window.map_or(first_window, |size| size.0);
    config.max_ack_delay = quic.max_ack_delay.map_or(config.max_ack_delay, |delay| delay.0);
    config.ack_every = quic.ack_every.unwrap_or(config.ack_every);
}
