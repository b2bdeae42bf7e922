//! The paths of a session together: which may carry data now, and which ACKs and control.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use noq_proto::PathStatus;

use super::{CONTROL_SILENCE, Path, Reported, sharing::Sharing};
use crate::{
    base::{PathHealth, PathId, PathView},
    congestion::steering::Slot,
    limits::MAX_PATHS,
    network::NetworkPath,
    role::Terms,
};

/// A path is clearly worse than another if an answer takes longer on it by more than this factor.
const CONTROL_RATIO: f64 = 1.25;

/// What a lost answer costs, round trips.
const CONTROL_LOSS_COST: f64 = 4.0;

/// How much longer an answer is taken to need where nothing has arrived for a while, in parts of that while. A whole one drives ACKs from
/// short paths to long ones at every burst of losses (gauntlet 100 to 219: 83.9 % of the bound; a quarter 84.4, a tenth 84.0, which is the same
/// but for chance).
const CONTROL_SILENCE_COST: f64 = 0.1;

/// More is not taken to be lost on any path: with nothing left to compare, it would never be tried again.
const MOST_CONTROL_LOSS: f64 = 0.98;

/// The paths of a session, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    list: Vec<Path>,
    /// Where ACKs and the control stream go.
    control: Option<PathId>,
    /// Which of them share a bottleneck.
    sharing: Sharing,
    /// What the peer has said of paths that we do not know, by their numbers on the wire; of [`MAX_PATHS`] at most.
    foretold: BTreeMap<u64, Terms>,
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

    pub(crate) fn add(&mut self, mut path: Path) -> &mut Path {
        if let Some(terms) = self.foretold.remove(&path.number()) {
            path.terms.hear(terms);
        }
        let at = self.list.partition_point(|other| other.id < path.id);
        self.list.insert(at, path);
        &mut self.list[at]
    }

    pub(crate) fn remove(&mut self, id: PathId) -> Option<Path> {
        let at = self.list.iter().position(|path| path.id == id)?;
        self.sharing.forget(id);
        Some(self.list.remove(at))
    }

    /// The peer reports when datagrams of ours came on a path.
    pub(crate) fn on_report(&mut self, id: PathId, now: Instant, list: &[Reported]) {
        let Some(path) = self.get_mut(id) else { return };
        let before = path.model.met().open();
        path.on_report(now, list);
        if path.model.met().open() == before || self.is_single() {
            return;
        }
        let met = || self.list.iter().map(|path| (path.id, path.model.met()));
        if let Some(new) = met().find(|(of, _)| *of == id) {
            self.sharing.judge(new, met());
        }
    }

    /// A path has become another: whom it shared a bottleneck with is not known any more.
    pub(crate) fn on_moved(&mut self, id: PathId) {
        self.sharing.forget(id);
    }

    /// Whether there is no choice.
    pub(crate) fn is_single(&self) -> bool {
        self.list.len() == 1
    }

    /// The path on which ACKs and the control stream went last.
    pub(crate) fn control(&self) -> Option<PathId> {
        self.control
    }

    /// Fills `views`, with what each path can do now, the peer's clock being `offset` microseconds ahead of ours.
    ///
    /// Only those least doubted carry data, and backups only if none else is as good. If all are suspect, all hope rests on these.
    pub(crate) fn views(&self, now: Instant, offset: Option<f64>, views: &mut Vec<PathView>) {
        views.clear();
        let best = self.best();
        for path in &self.list {
            let trusted = path.health() != PathHealth::Opening && Some(path.rank()) == best;
            views.push(PathView { bottleneck: self.sharing.group(path.id), ..path.view(now, offset, trusted) });
        }
    }

    /// How little there is to be said against the best of them.
    fn best(&self) -> Option<(u8, bool)> {
        self.list.iter().map(Path::rank).min()
    }

    /// The peer says what a path is for and what it costs, a path by its number on the wire. It may be one that we do not know of yet.
    pub(crate) fn on_terms(&mut self, number: u64, terms: Terms) {
        match self.list.iter_mut().find(|path| path.number() == number) {
            Some(path) => path.terms.hear(terms),
            None => {
                self.foretold.insert(number, terms);
                if self.foretold.len() > MAX_PATHS {
                    // Paths' numbers rise: it is most likely closed.
                    self.foretold.pop_first();
                }
            }
        }
    }

    /// What the peer is to be told of the next path of which there is something to tell.
    pub(crate) fn next_terms(&mut self) -> Option<(u64, Terms)> {
        let open = self.list.iter_mut().filter(|path| path.health() != PathHealth::Opening);
        open.into_iter().find_map(|path| Some((path.number(), path.terms.news()?)))
    }

    /// Chooses the path on which ACKs and the control stream should leave now.
    ///
    /// An answer is safest on the path that was heard last, and tells the peer most there: if each path's ACKs return on it,
    /// the death of one path takes no other's with it. Only a clearly faster path, heard lately, is preferred.
    pub(crate) fn choose_control(&mut self, now: Instant) -> Option<Slot> {
        let open = || self.list.iter().filter(|path| path.health() != PathHealth::Opening);
        // Who hears of us on no path may still call on all of them, and most on those that it has lost faith in: those do not make others old.
        let arrives = open().filter(|path| path.unheard_since().is_none());
        let newest = arrives.map(|path| path.last_received).max();
        let newest = newest.or_else(|| open().map(|path| path.last_received).max())?;
        let silence = |path: &Path| path.usual_silence().clamp(CONTROL_SILENCE.0, CONTROL_SILENCE.1);
        let heard = || open().filter(|path| newest.saturating_duration_since(path.last_received) <= silence(path));
        // An answer that is lost costs a loss alarm at the other end, and what has to arrive goes until it does. Where nothing seems to arrive,
        // that may last as long again as it has: the path is not given up, but less and less likely to be the best.
        let cost = |path: &Path| {
            let loss = path.in_flight.loss().min(MOST_CONTROL_LOSS);
            let silent = path.unheard_since().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            path.rtt().mul_f64((1.0 + CONTROL_LOSS_COST * loss) / (1.0 - loss)) + silent.mul_f64(CONTROL_SILENCE_COST)
        };
        // What a backup carries is dear. It does only what no other can.
        let spared = heard().any(|path| !path.is_backup() && path.unheard_since().is_none());
        let heard = || heard().filter(|path| !(spared && path.is_backup()));
        let least = heard().map(cost).min()?.mul_f64(CONTROL_RATIO);
        let chosen = heard().filter(|&path| cost(path) <= least).max_by_key(|path| path.last_received)?;
        let (id, slot) = (chosen.id, chosen.slot());
        self.control = Some(id);
        Some(slot)
    }

    /// The path for words: the control path, or one of those least doubted, if only that has room for them.
    ///
    /// Where nothing seems to arrive anywhere, none is better than the control path, on which the peer was heard last. Answers go along with words, and wait with them: without them
    /// neither side might hear again that a path lives, so there they need no room. What was in flight is most likely lost, and words are few.
    pub(crate) fn choose_for_words(&self, control: Slot) -> Option<Slot> {
        let control = self.list.iter().find(|path| path.slot() == control)?;
        let arrives = |path: &&Path| path.is_available() && path.unheard_since().is_none();
        let roomy = || self.list.iter().filter(arrives).filter(|path| path.has_room_for_words());
        let chosen =
            Some(control).filter(|path| path.has_room_for_words()).or_else(|| roomy().min_by_key(|path| path.rtt()));
        chosen.or(Some(control).filter(|path| path.unheard_since().is_some())).map(Path::slot)
    }

    /// Whether something of the control stream is in flight on a path that seems dead, and would go on another now.
    pub(crate) fn have_words_stuck(&self) -> bool {
        self.list.iter().any(|path| path.has_words_stuck() && Some(path.id) != self.control)
    }

    /// What was in flight of the control stream is said again.
    pub(crate) fn words_are_said_again(&mut self) {
        self.list.iter_mut().for_each(|path| path.last_words = None);
    }

    /// Tells QUIC, and with it the peer, which paths its own frames may take (RFC 10069, path status).
    ///
    /// Doubted paths, and those that the application calls so, are backups as long as there is a better one; but never the control path, on which
    /// the peer was heard.
    pub(crate) fn set_statuses(&mut self, conn: &mut noq_proto::Connection) {
        // An overdue answer alone may have been lost. The peer would send its ACKs where they take longer, and all answers be late.
        let best = self.best();
        let control = self.control;
        for path in &mut self.list {
            let available = Some(path.rank()) == best || Some(path.id) == control;
            let status = if available { PathStatus::Available } else { PathStatus::Backup };
            if path.status != status && conn.set_path_status(path.quic, status).is_ok() {
                path.status = status;
            }
        }
    }
}
