//! The paths of a session together: which may carry data now, and which ACKs and control.

use std::time::Instant;

use noq_proto::PathStatus;

use super::{CONTROL_SILENCE, Path};
use crate::{
    congestion::steering::Slot,
    endpoint::NetworkPath,
    multipath::{PathHealth, PathId, PathView},
};

/// A path is clearly worse than another if an answer takes longer on it by more than this factor.
const CONTROL_RATIO: f64 = 1.25;

/// What a lost answer costs, round trips.
const CONTROL_LOSS_COST: f64 = 4.0;

/// A path that loses more than this share of what is sent on it is no better for ACKs and control than one that the peer distrusts.
const CONTROL_MOST_LOST: f64 = 0.5;

/// The paths of a session, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    list: Vec<Path>,
    /// Where ACKs and the control stream go, and since when.
    control: Option<(PathId, Instant)>,
}

impl Paths {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.list.iter_mut()
    }

    pub(crate) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.id == id)
    }

    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.list.iter().find(|path| path.id == id)
    }

    pub(crate) fn by_quic(&mut self, quic: noq_proto::PathId) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.quic == quic)
    }

    pub(crate) fn in_slot(&mut self, slot: Slot) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.slot() == slot)
    }

    /// The path a datagram from `network` came on.
    pub(crate) fn on_network(&mut self, network: NetworkPath) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.network == network)
    }

    pub(crate) fn add(&mut self, path: Path) -> &mut Path {
        let at = self.list.partition_point(|other| other.id < path.id);
        self.list.insert(at, path);
        &mut self.list[at]
    }

    pub(crate) fn remove(&mut self, id: PathId) -> Option<Path> {
        let at = self.list.iter().position(|path| path.id == id)?;
        Some(self.list.remove(at))
    }

    /// Whether there is no choice.
    pub(crate) fn is_single(&self) -> bool {
        self.list.len() == 1
    }

    /// The path on which ACKs and the control stream went last.
    pub(crate) fn control(&self) -> Option<PathId> {
        self.control.map(|(id, _)| id)
    }

    /// Fills `views`, with what each path can do now, the peer's clock being `offset` microseconds ahead of ours.
    ///
    /// Only those least doubted carry data. If all are suspect, all hope rests on these.
    pub(crate) fn views(&self, now: Instant, offset: Option<f64>, views: &mut Vec<PathView>) {
        views.clear();
        let best = self.list.iter().map(|path| path.doubt().max(1)).min();
        for path in &self.list {
            let trusted = path.health() != PathHealth::Opening && Some(path.doubt().max(1)) == best;
            views.push(path.view(now, offset, trusted));
        }
    }

    /// Chooses the path on which ACKs and the control stream should leave now.
    ///
    /// An answer is safest on the path that was heard last, and tells the peer most there: if each path's ACKs return on it,
    /// the death of one path takes no other's with it. Only a clearly faster path, heard lately, is preferred.
    pub(crate) fn choose_control(&mut self, now: Instant) -> Option<Slot> {
        let (id, slot) = self.best_control(now).map(|path| (path.id, path.slot()))?;
        if self.control() != Some(id) {
            self.control = Some((id, now));
        }
        Some(slot)
    }

    fn best_control(&self, now: Instant) -> Option<&Path> {
        let open = || self.list.iter().filter(|path| path.health() != PathHealth::Opening);
        let newest = open().map(|path| path.last_received).max()?;
        let silence = |path: &Path| path.usual_silence().clamp(CONTROL_SILENCE.0, CONTROL_SILENCE.1);
        let heard = || open().filter(|path| newest.saturating_duration_since(path.last_received) <= silence(path));
        let proven = |path: &Path| path.health() == PathHealth::Active && path.in_flight.loss() <= CONTROL_MOST_LOST;
        let good = || heard().filter(|path| !path.peer_distrusts && proven(path));
        // An answer that is lost costs a loss alarm at the other end.
        let cost = |path: &Path| path.rtt().mul_f64(1.0 + CONTROL_LOSS_COST * path.in_flight.loss());
        if let Some(least) = good().map(cost).min() {
            let cheap = good().filter(|&path| cost(path) <= least.mul_f64(CONTROL_RATIO));
            return cheap.max_by_key(|path| path.last_received);
        }
        // What goes where nothing arrives is not even known to be lost, for want of answers. So they take turns.
        let of_turn = |path: &&Path| {
            self.control.is_some_and(|(id, since)| id == path.id && now.saturating_duration_since(since) < path.rtt())
        };
        let next = || heard().find(|path| Some(path.id) > self.control());
        heard().find(of_turn).or_else(next).or_else(|| heard().next())
    }

    /// Whether something of the control stream is in flight on a path that seems dead, and would go on another now.
    pub(crate) fn have_words_stuck(&self) -> bool {
        self.list.iter().any(|path| path.has_words_stuck() && Some(path.id) != self.control())
    }

    /// What was in flight of the control stream is said again.
    pub(crate) fn words_are_said_again(&mut self) {
        self.list.iter_mut().for_each(|path| path.words.1 = None);
    }

    /// Tells QUIC, and with it the peer, which paths its own frames may take (RFC 10069, path status).
    ///
    /// Doubted paths are backups as long as there is a better one; but never the control path, on which the peer was heard.
    pub(crate) fn set_statuses(&mut self, conn: &mut noq_proto::Connection) {
        // An overdue answer alone may have been lost. The peer would send its ACKs where they take longer, and all answers be late.
        let best = self.list.iter().map(|path| path.doubt().max(1)).min();
        let control = self.control();
        for path in &mut self.list {
            let available = Some(path.doubt().max(1)) == best || Some(path.id) == control;
            let status = if available { PathStatus::Available } else { PathStatus::Backup };
            if path.status != status && conn.set_path_status(path.quic, status).is_ok() {
                path.status = status;
            }
        }
    }
}
