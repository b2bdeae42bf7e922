//! What a path has carried, and how it is: its figures.

use std::collections::BTreeMap;

use punctual::{PathId, PathStats, multipath::PathHealth};
use serde::Serialize;

use crate::stats::rounded_ms;

/// A path's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PathFigures {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The peer's end.
    pub(crate) remote: String,
    /// `opening`; `active`; `standby`, a backup that is not needed; `suspect`, silent when it should not be; or `closed`: the totals of all
    /// that had this name and are no more, and all else as it was on the last of them.
    pub(crate) health: &'static str,
    pub(crate) rtt_ms: f64,
    pub(crate) min_rtt_ms: f64,
    /// Towards the peer.
    pub(crate) one_way_delay_ms: f64,
    /// What it may carry, bytes per second; null while nothing bounds it.
    pub(crate) rate: f64,
    /// Congestion window and what of it is in flight, bytes.
    pub(crate) window: u64,
    pub(crate) in_flight: u64,
    /// Lately, 0 to 1.
    pub(crate) loss: f64,
    /// Packets lost on end, on average.
    pub(crate) loss_burst: f64,
    /// Of blocks: for the first time, again, as copies, as repair fragments.
    pub(crate) source_bytes: u64,
    pub(crate) resent_bytes: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) repair_bytes: u64,
    /// Reports of when the peer's datagrams came.
    pub(crate) report_bytes: u64,
    /// All UDP payload.
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    /// The largest UDP payload that fits.
    pub(crate) mtu: u16,
    /// How often it was suspected.
    pub(crate) suspected: u64,
    /// Of a byte, as the application said.
    pub(crate) cost: f64,
    /// What it is for.
    pub(crate) role: &'static str,
    /// Paths with the same number were found to share a bottleneck: the id of the first of them.
    pub(crate) bottleneck: Option<u32>,
}

impl PathFigures {
    pub(crate) fn new(name: String, path: &PathStats) -> Self {
        let ms = rounded_ms;
        Self {
            id: path.id.0,
            name,
            remote: path.network.remote.to_string(),
            health: path.health.name(),
            rtt_ms: ms(path.rtt),
            min_rtt_ms: ms(path.min_rtt),
            one_way_delay_ms: ms(path.one_way_delay),
            rate: path.rate,
            window: path.window,
            in_flight: path.in_flight,
            loss: path.loss,
            loss_burst: path.loss_burst,
            source_bytes: path.source_bytes,
            resent_bytes: path.resent_bytes,
            copied_bytes: path.copied_bytes,
            repair_bytes: path.repair_bytes,
            report_bytes: path.report_bytes,
            bytes_sent: path.bytes_sent,
            bytes_received: path.bytes_received,
            packets_sent: path.packets_sent,
            packets_lost: path.packets_lost,
            mtu: path.mtu,
            suspected: path.suspected,
            cost: path.cost,
            role: path.role.name(),
            bottleneck: path.bottleneck.map(|first| first.0),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.health == PathHealth::Closed.name()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.health == PathHealth::Active.name()
    }

    /// As it is once it is closed.
    #[cfg(test)]
    pub(crate) fn closed(self) -> Self {
        Self { health: PathHealth::Closed.name(), in_flight: 0, ..self }
    }

    /// A path with this name that has carried nothing yet.
    #[cfg(test)]
    pub(crate) fn example(id: u32, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            remote: "192.0.2.7:4433".into(),
            health: PathHealth::Active.name(),
            rtt_ms: 46.0,
            min_rtt_ms: 40.0,
            one_way_delay_ms: 23.0,
            rate: 1e6,
            window: 20_000,
            in_flight: 0,
            loss: 0.01,
            loss_burst: 1.0,
            source_bytes: 0,
            resent_bytes: 0,
            copied_bytes: 0,
            repair_bytes: 0,
            report_bytes: 0,
            bytes_sent: 0,
            bytes_received: 0,
            packets_sent: 0,
            packets_lost: 0,
            mtu: 1200,
            suspected: 0,
            cost: 0.0,
            role: "normal",
            bottleneck: None,
        }
    }
}

/// What paths have carried that are no more.
#[derive(Debug, Default)]
pub(crate) struct ClosedPaths {
    /// Those of earlier sessions, one of each name.
    before: Vec<(String, PathStats)>,
    /// Those of the session there is, each as it was at last. Their names may come to be known later.
    now: BTreeMap<PathId, PathStats>,
}

impl ClosedPaths {
    /// The session has closed these, and maybe others before them.
    pub(crate) fn note(&mut self, closed: &[PathStats]) {
        for path in closed {
            // Where several have become one since, it has the id of one that is known.
            self.now.entry(path.id).or_insert(*path);
        }
    }

    /// The session is over, and these paths with it.
    pub(crate) fn end_session(&mut self, open: &[PathStats], name: impl Fn(PathId) -> String) {
        for path in std::mem::take(&mut self.now).values().chain(open) {
            let mut path = *path;
            (path.health, path.in_flight) = (PathHealth::Closed, 0);
            add(&mut self.before, name(path.id), path);
        }
    }

    /// One for each name.
    pub(crate) fn figures(&self, name: impl Fn(PathId) -> String) -> Vec<PathFigures> {
        let mut all = self.before.clone();
        for path in self.now.values() {
            add(&mut all, name(path.id), *path);
        }
        all.into_iter().map(|(name, path)| PathFigures::new(name, &path)).collect()
    }
}

/// All these together.
pub(crate) fn together(name: &str, paths: &[PathStats]) -> Option<PathFigures> {
    let all = paths.iter().copied().reduce(|earlier, path| path.after(&earlier));
    all.map(|all| PathFigures::new(name.to_owned(), &all))
}

fn add(list: &mut Vec<(String, PathStats)>, name: String, path: PathStats) {
    match list.iter_mut().find(|(other, _)| *other == name) {
        Some((_, earlier)) => *earlier = path.after(earlier),
        None => list.push((name, path)),
    }
}
