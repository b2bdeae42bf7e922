//! What a session decides, for its log: why a block went where, and why it was not in time.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use punctual_proto::{
    BlockId, FragmentArrived, FragmentKind, FragmentSent, Observer, Outcome, PathId, Remains, SentPacket, SessionId,
    multipath::{FragmentView, PathChoice, PathView},
};
use serde_json::{Value, json};

use super::{Logs, SharedLog, millis, reason_name};

/// A path's figures are written no more often than this.
const SAMPLE: Duration = Duration::from_millis(100);

/// Writes what it sees, and passes it on.
pub(super) struct Watch {
    logs: Arc<Logs>,
    session: SessionId,
    log: Arc<SharedLog>,
    /// The application's own.
    inner: Option<Box<dyn Observer>>,
    /// When each path's figures were last written.
    sampled: BTreeMap<PathId, Instant>,
}

impl Watch {
    pub(super) fn new(logs: Arc<Logs>, session: SessionId, inner: Option<Box<dyn Observer>>) -> Self {
        let log = logs.of(session);
        Self { logs, session, log, inner, sampled: BTreeMap::new() }
    }

    fn event(&self, at: Instant, name: &str, data: Value) {
        self.log.get().event(at, name, data);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.logs.forget(self.session);
    }
}

fn kind(kind: FragmentKind) -> &'static str {
    match kind {
        FragmentKind::Source => "source",
        FragmentKind::Resent => "resent",
        FragmentKind::Copy => "copy",
        FragmentKind::Repair => "repair",
        _ => "other",
    }
}

impl Observer for Watch {
    fn block_accepted(&mut self, at: Instant, id: BlockId, size: u64) {
        // The log hears of it from the one who hands it over.
        self.inner.iter_mut().for_each(|inner| inner.block_accepted(at, id, size));
    }

    fn fragment_sent(&mut self, at: Instant, fragment: &FragmentSent) {
        let data = json!({
            "block_id": fragment.block.0,
            "offset": fragment.offset,
            "length": fragment.len,
            "kind": kind(fragment.kind),
            "path_id": fragment.path.0,
            "packet_number": fragment.packet,
        });
        self.event(at, "fragment_sent", data);
        self.inner.iter_mut().for_each(|inner| inner.fragment_sent(at, fragment));
    }

    fn path_chosen(&mut self, at: Instant, fragment: &FragmentView, paths: &[PathView], choice: &PathChoice) {
        // Where there is one path, there is no choice.
        if paths.len() > 1 {
            let seen = |path: &PathView| {
                json!({
                    "path_id": path.id.0,
                    "health": path.health.name(),
                    "ready": path.ready,
                    "delay": millis(path.delay()),
                    "rate": path.rate,
                    "loss": path.loss,
                    "cost": path.cost,
                })
            };
            let chosen: Vec<u32> = match choice {
                PathChoice::Send(set) => set.iter().map(|path| path.0).collect(),
                PathChoice::Wait | PathChoice::Reserve(_) => Vec::new(),
            };
            let data = json!({
                "block_id": fragment.block.id.0,
                "length": fragment.len,
                "lost_on": fragment.lost_on.map(|path| path.0),
                "ahead": fragment.ahead,
                "chosen": chosen,
                "paths": paths.iter().map(seen).collect::<Vec<_>>(),
            });
            self.event(at, "path_chosen", data);
        }
        self.inner.iter_mut().for_each(|inner| inner.path_chosen(at, fragment, paths, choice));
    }

    fn block_ended(&mut self, at: Instant, id: BlockId, outcome: &Outcome, remains: &Remains) {
        if let Outcome::Dropped { reason, .. } = outcome {
            let data = json!({
                "block_id": id.0,
                "reason": reason_name(*reason),
                "cause": remains.cause(),
                "size": remains.size,
                "never_sent": remains.never_sent,
                "lost": remains.lost,
                "unanswered": remains.unanswered,
                "arrived": remains.arrived,
            });
            self.event(at, "block_dropped", data);
        }
        self.inner.iter_mut().for_each(|inner| inner.block_ended(at, id, outcome, remains));
    }

    fn fragment_arrived(&mut self, at: Instant, fragment: &FragmentArrived) {
        if fragment.recovered {
            let data = json!({ "block_id": fragment.block.0, "offset": fragment.offset, "new_bytes": fragment.new });
            self.event(at, "fragment_restored", data);
        }
        self.inner.iter_mut().for_each(|inner| inner.fragment_arrived(at, fragment));
    }

    fn block_complete(&mut self, at: Instant, id: BlockId) {
        self.inner.iter_mut().for_each(|inner| inner.block_complete(at, id));
    }

    fn block_delivered(&mut self, at: Instant, id: BlockId) {
        self.inner.iter_mut().for_each(|inner| inner.block_delivered(at, id));
    }

    fn packet_sent(&mut self, at: Instant, packet: &SentPacket) {
        self.inner.iter_mut().for_each(|inner| inner.packet_sent(at, packet));
    }

    fn packet_acked(&mut self, at: Instant, packet: &SentPacket) {
        self.inner.iter_mut().for_each(|inner| inner.packet_acked(at, packet));
    }

    fn packet_lost(&mut self, at: Instant, packet: &SentPacket) {
        self.event(at, "packet_lost", json!({ "path_id": packet.path.0, "packet_number": packet.number }));
        self.inner.iter_mut().for_each(|inner| inner.packet_lost(at, packet));
    }

    fn packet_forgotten(&mut self, at: Instant, packet: &SentPacket) {
        self.inner.iter_mut().for_each(|inner| inner.packet_forgotten(at, packet));
    }

    fn path_sampled(&mut self, at: Instant, path: &PathView) {
        let due = |last: &Instant| at.saturating_duration_since(*last) >= SAMPLE;
        if self.sampled.get(&path.id).is_none_or(due) {
            self.sampled.insert(path.id, at);
            let data = json!({
                "path_id": path.id.0,
                "health": path.health.name(),
                "congestion_window": path.window,
                "bytes_in_flight": path.in_flight,
                "rate": path.rate,
                "smoothed_rtt": millis(path.rtt),
                "min_rtt": millis(path.min_rtt),
                "one_way_delay": millis(path.one_way_delay),
                "queue": millis(path.queue),
                "loss": path.loss,
            });
            self.event(at, "path_updated", data);
        }
        self.inner.iter_mut().for_each(|inner| inner.path_sampled(at, path));
    }
}
