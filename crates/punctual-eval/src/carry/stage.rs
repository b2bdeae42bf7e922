//! What a run needs before anyone is sent onto it: network, plan, settings.

use std::time::Duration;

use punctual_sim::{CrossTraffic, HandshakeError, HostId, LinkId, PathHandle, World};
use thiserror::Error;

use crate::{
    experiment::{Contender, ExperimentError, QuicSpec, Rival, SessionSpec, Setup, contender},
    files::Files,
    network::{CrossSpec, Path},
    plan::Plan,
    registry::Registry,
    workload,
};

/// Why a run did not come about.
#[derive(Debug, Error)]
pub enum CarryError {
    /// A setting that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The sessions were not established.
    #[error("the handshake failed: {0}")]
    Handshake(#[from] HandshakeError),
}

/// A run's network, plan and settings, the same for every contender.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// The network.
    pub paths: Vec<Path>,
    /// The workload.
    pub plan: Plan,
    /// How long blocks are handed over.
    pub duration: Duration,
    /// When the run ends.
    pub end: Duration,
    /// Our session's settings.
    pub session: SessionSpec,
    /// Plain QUIC's.
    pub quic: QuicSpec,
    /// Flows beside the one under test.
    pub rivals: Vec<RivalFlow>,
    /// Where names are looked up.
    pub registry: Registry,
}

/// A flow beside the one under test.
#[derive(Debug, Clone, PartialEq)]
pub struct RivalFlow {
    /// As results call it.
    pub name: String,
    /// What it is.
    pub contender: Contender,
    /// Over which path.
    pub path: usize,
    /// From when.
    pub start: Duration,
}

impl Stage {
    /// Builds the stage of a run with this seed.
    ///
    /// # Errors
    /// If files are missing or something in it makes no sense.
    pub fn new(setup: &Setup, files: &Files, seed: u64) -> Result<Self, ExperimentError> {
        Self::over(setup.network(files)?, setup, files, seed)
    }

    /// The same over a network that was built already: it is the same for every seed.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(paths: Vec<Path>, setup: &Setup, files: &Files, seed: u64) -> Result<Self, ExperimentError> {
        let plan = workload::plan(&setup.sources, setup.duration.0, seed, files)?;
        let longest = plan.blocks.iter().filter_map(|block| block.deadline).max().unwrap_or_default();
        let rivals =
            setup.rivals.iter().map(|rival| rivals(rival, &paths, &setup.registry)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            duration: setup.duration.0,
            end: setup.end(longest),
            session: setup.session.clone(),
            quic: setup.quic,
            rivals: rivals.concat(),
            registry: setup.registry.clone(),
            paths,
            plan,
        })
    }

    /// From when to when flows are compared: all are there, and have been for a quarter of the time.
    pub(super) fn comparison(&self) -> (Duration, Duration) {
        let all_there = self.rivals.iter().map(|rival| rival.start).max().unwrap_or_default();
        (all_there + self.duration.saturating_sub(all_there) / 4, self.duration)
    }

    /// Puts the paths between two hosts, with what goes on on them besides. Times in the stage count from the beginning of the
    /// run, which is not known yet, so deaths wait for [`schedule_deaths`](Self::schedule_deaths).
    pub(super) fn lay_paths(&self, world: &mut World, client: HostId, server: HostId) -> Vec<PathHandle> {
        let mut handles = Vec::new();
        for path in &self.paths {
            let handle = world.add_path(client, server, path.forward.clone(), path.back.clone());
            let (there, back) = world.path_links(handle);
            let links: [LinkId; 2] = [there[0], back[0]];
            for (link, traffic) in links.into_iter().zip(&path.cross) {
                traffic.iter().for_each(|traffic| world.add_cross_traffic(link, cross(traffic)));
            }
            handles.push(handle);
        }
        handles
    }

    /// Lets paths die and live again when they are to.
    pub(super) fn schedule_deaths(&self, world: &mut World, handles: &[PathHandle], origin: Duration) {
        for (path, &handle) in self.paths.iter().zip(handles) {
            for &(from, to) in &path.dies {
                world.at(origin + from, move |world| world.kill_path(handle));
                world.at(origin + to, move |world| world.revive_path(handle));
            }
        }
    }
}

fn rivals(rival: &Rival, paths: &[Path], registry: &Registry) -> Result<Vec<RivalFlow>, ExperimentError> {
    if rival.path >= paths.len() {
        return Err(ExperimentError::Invalid(format!("rival `{}`: there is no path {}", rival.like, rival.path)));
    }
    let flow = |_| {
        let contender = contender::by_name(&rival.like, registry)?;
        Ok(RivalFlow { name: rival.like.clone(), contender, path: rival.path, start: rival.start.0 })
    };
    (0..rival.count).map(flow).collect()
}

fn cross(spec: &CrossSpec) -> CrossTraffic {
    let mbps = spec.rate.0 / 1e6;
    let traffic = match spec.on_off {
        Some((on, off)) => CrossTraffic::bursts(mbps, on.0, off.0),
        None if spec.poisson => CrossTraffic::poisson(mbps),
        None => CrossTraffic::constant(mbps),
    };
    let traffic = traffic.packet(spec.packet.unwrap_or(traffic.packet)).from(spec.start.0);
    match spec.stop {
        Some(stop) => traffic.until(stop.0),
        None => traffic,
    }
}
