//! What a run needs before anyone is sent onto it: network, plan, settings.

use std::time::Duration;

use punctual_sim::{CrossTraffic, HandshakeError, HostId, LinkId, PathHandle, Stuck, World};
use thiserror::Error;

use crate::{
    experiment::{Contender, ExperimentError, QuicSpec, Rival, SessionSpec, Setup, contender},
    files::Files,
    network::{CrossSpec, Network, Path, SharedLink},
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
    /// Time did not pass any more.
    #[error("{who} at {at:?} of the run keeps time from passing")]
    Stuck {
        /// The host that is to blame; or what is.
        who: String,
        /// When, since the run's beginning.
        at: Duration,
    },
}

impl CarryError {
    /// Of a world that is stuck; its run began at `origin`.
    pub(super) fn stuck(stuck: Stuck, origin: Duration) -> Self {
        // The flow under test comes first, and its sender before its receiver; then comes what carries its reply, if that is another, and rivals.
        let (who, at) = match stuck {
            Stuck::Host { host: HostId(0), at } => ("the sender".into(), at),
            Stuck::Host { host: HostId(1), at } => ("the receiver".into(), at),
            Stuck::Host { host, at } => (format!("host {}, of another flow,", host.0), at),
            Stuck::Instant { at } => ("the network".into(), at),
            Stuck::Events { events, at } => (format!("what had {events} events"), at),
        };
        Self::Stuck { who, at: at.saturating_sub(origin) }
    }
}

/// A run's network, plan and settings, the same for every contender.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// The network.
    pub paths: Vec<Path>,
    /// Links that some paths share.
    pub links: Vec<SharedLink>,
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
    /// What the receiver hands over to the sender meanwhile.
    pub reply: Option<Plan>,
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
    /// Whether it sends over the path's way back.
    pub backwards: bool,
    /// From when.
    pub start: Duration,
    /// What it does, if it does not send all it can.
    pub plan: Option<Plan>,
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
    pub fn over(network: Network, setup: &Setup, files: &Files, seed: u64) -> Result<Self, ExperimentError> {
        let Network { paths, links } = network;
        let plan = workload::plan(&setup.sources, setup.duration.0, seed, files)?;
        let reply = Some(&setup.replies).filter(|replies| !replies.is_empty());
        let reply =
            reply.map(|replies| workload::plan(replies, setup.duration.0, reply_seed(seed), files)).transpose()?;
        let blocks = plan.blocks.iter().chain(reply.iter().flat_map(|reply| &reply.blocks));
        let longest = blocks.filter_map(|block| block.deadline).max().unwrap_or_default();
        let mut flows: Vec<RivalFlow> = Vec::new();
        for rival in &setup.rivals {
            let first = flows.len();
            flows.extend(rivals(rival, &paths, setup, files, |index| rival_seed(seed, first + index))?);
        }
        Ok(Self {
            duration: setup.duration.0,
            end: setup.end(longest),
            session: setup.session.clone(),
            quic: setup.quic,
            reply,
            rivals: flows,
            registry: setup.registry.clone(),
            paths,
            links,
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
        let own: Vec<[LinkId; 2]> = self
            .paths
            .iter()
            .map(|path| [&path.forward, &path.back].map(|spec| world.add_link(spec.clone())))
            .collect();
        let shared: Vec<LinkId> = self.links.iter().map(|link| world.add_link(link.spec.clone())).collect();
        for (path, links) in self.paths.iter().zip(&own) {
            links.iter().zip(&path.cross).for_each(|(link, traffic)| add_cross(world, *link, traffic));
        }
        self.links.iter().zip(&shared).for_each(|(link, id)| add_cross(world, *id, &link.cross));
        let join = |(path, own): (&Path, [LinkId; 2])| {
            let [there, back] = [0, 1].map(|way| -> Vec<LinkId> {
                [own[way]].into_iter().chain(path.through[way].map(|link| shared[link])).collect()
            });
            world.join(client, server, &there, &back)
        };
        self.paths.iter().zip(own).map(join).collect()
    }

    /// Lets paths die and live again when they are to: their own links, not those they share.
    pub(super) fn schedule_deaths(&self, world: &mut World, handles: &[PathHandle], origin: Duration) {
        for (path, &handle) in self.paths.iter().zip(handles) {
            let (there, back) = world.path_links(handle);
            let own = [there[0], back[0]];
            for &(from, to) in &path.dies {
                world.at(origin + from, move |world| own.into_iter().for_each(|link| world.kill_link(link)));
                world.at(origin + to, move |world| own.into_iter().for_each(|link| world.revive_link(link)));
            }
        }
    }
}

fn add_cross(world: &mut World, link: LinkId, traffic: &[CrossSpec]) {
    traffic.iter().for_each(|traffic| world.add_cross_traffic(link, cross(traffic)));
}

/// Nor does a reply draw from the same generator as what it goes against.
fn reply_seed(seed: u64) -> u64 {
    !seed
}

/// Rivals draw from generators of their own.
pub(super) fn rival_seed(seed: u64, index: usize) -> u64 {
    seed.wrapping_add((index as u64 + 1) << 32)
}

fn rivals(
    rival: &Rival,
    paths: &[Path],
    setup: &Setup,
    files: &Files,
    seed: impl Fn(usize) -> u64,
) -> Result<Vec<RivalFlow>, ExperimentError> {
    if rival.path >= paths.len() {
        return Err(ExperimentError::Invalid(format!("rival `{}`: there is no path {}", rival.like, rival.path)));
    }
    let flow = |index| {
        let contender = contender::by_name(&rival.like, &setup.registry)?;
        let (start, length) = (rival.start.0, setup.duration.0.saturating_sub(rival.start.0));
        let plan = match rival.sources.is_empty() {
            true => None,
            false => Some(later(workload::plan(&rival.sources, length, seed(index as usize), files)?, start)),
        };
        Ok(RivalFlow { name: rival.like.clone(), contender, path: rival.path, backwards: rival.backwards, start, plan })
    };
    (0..rival.count).map(flow).collect()
}

/// A plan that begins later than the run.
fn later(mut plan: Plan, start: Duration) -> Plan {
    plan.blocks.iter_mut().for_each(|block| block.at += start);
    for bulk in plan.sources.iter_mut().filter_map(|source| source.bulk.as_mut()) {
        (bulk.start, bulk.stop) = (bulk.start + start, bulk.stop + start);
    }
    plan
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
