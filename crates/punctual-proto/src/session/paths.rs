//! Paths of a session: opened, closed, looked after, and what they are like.

use std::time::{Duration, Instant};

use noq_proto::{PathError as NoqPathError, PathStatus, VarInt};

use super::{Phase, Session};
use crate::{
    budget::PathBudget,
    congestion::{Driver, steering::Panel},
    error::{PathError, ProtocolError},
    event::{Event, PathEvent},
    frame::ControlFrame,
    multipath::{PathHealth, PathId, PathRole, PathView},
    network::{BASE_PACKET, NetworkPath},
    noq, observe,
    path::{Alarm, Path, path_number, terms::OwnTerms},
    role::Terms,
    stats::PathStats,
};

/// How long a path that the peer has no room for yet is tried again.
const OPENING_PATIENCE: Duration = Duration::from_secs(3);
/// How often.
const OPENING_RETRY: Duration = Duration::from_millis(20);

/// Paths that are abandoned and that QUIC has not forgotten yet, at most. It keeps each for three of its PTOs, a few seconds, and with the packet that
/// abandons one allows another: a peer that opens and abandons paths as fast as it is allowed to would have thousands, and noq looks at each of them
/// for each of them whenever it is asked for a packet. (With 2,000, a packet took 30 ms.)
const MOST_ABANDONED: usize = 32;
/// Paths that a client may have opened in all of a session's life: of each, noq's endpoint keeps the list of its connection ids, which are none any
/// more, until the session ends. That is some 400 bytes, 6 MB of all.
const MOST_EVER: u64 = 16_384;

/// A path on which nothing has come for so long is closed, while another is well: QUIC keeps each probe that is not answered, 240 an hour for ever. Whoever wants the path
/// opens another.
const HOPELESS: Duration = Duration::from_secs(3_600);

/// How often the peer is told of a path that is given up before it was heard of. What is lost costs one of the ids that the peer has granted.
const KNOCKS: usize = 3;

/// A path that waits until the peer has room for it.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) id: PathId,
    network: NetworkPath,
    terms: OwnTerms,
    /// Since when it could have been opened.
    pub(super) since: Instant,
}

impl Session {
    /// Opens another path (clients only). [`PathEvent::Opened`] or `Closed` follows.
    ///
    /// # Errors
    /// See [`PathError`]. Two paths between the same ends would share all that happens to them, so the second is refused.
    pub fn open_path(&mut self, now: Instant, network: NetworkPath) -> Result<PathId, PathError> {
        if self.conn.side().is_server() {
            return Err(PathError::NotClient);
        }
        match self.phase {
            Phase::Closed(_) => return Err(PathError::Closed),
            Phase::Open if !self.conn.is_multipath_negotiated() => return Err(PathError::NotSupported),
            Phase::Open | Phase::Handshaking => {}
        }
        if let Some(id) = self.path_between(network) {
            return Err(PathError::AlreadyOpen(id));
        }
        let max = self.config.limits.paths as usize;
        if self.paths.iter().count().max(1) + self.opening.len() >= max || self.has_abandoned_too_many() {
            return Err(PathError::TooMany);
        }
        // The peer would end the session at the next one that is given up.
        if u64::from(self.next_path) >= MOST_EVER {
            return Err(PathError::Spent);
        }
        let id = PathId(self.next_path);
        self.next_path += 1;
        self.opening.push_back(Opening { id, network, terms: OwnTerms::default(), since: now });
        self.settle(now);
        Ok(id)
    }

    /// The path with these ends, open or on its way.
    fn path_between(&self, network: NetworkPath) -> Option<PathId> {
        // Until the handshake is done, the first path is only on its way, too.
        let first = (self.phase == Phase::Handshaking).then_some((PathId(0), self.first_path));
        let opening = self.opening.iter().map(|opening| (opening.id, opening.network));
        let mut all = self.paths.iter().map(|path| (path.id, path.network)).chain(first).chain(opening);
        all.find(|&(_, other)| other == network).map(|(id, _)| id)
    }

    /// Says what a byte costs on a path, for path schedulers to see ([`PathView::cost`](crate::multipath::PathView)), in any unit the
    /// application likes. At first it is 0, or what the peer says: it is told, so that what comes back can go by it, unless its application has its
    /// own word to say. It can be set as soon as the path has an id, the first one's in the handshake.
    ///
    /// # Errors
    /// [`PathError::InvalidCost`] if it is negative, infinite or not a number; [`PathError::Unknown`] if there is no such path.
    pub fn set_path_cost(&mut self, now: Instant, id: PathId, cost: f64) -> Result<(), PathError> {
        if !Terms::is_cost(cost) {
            return Err(PathError::InvalidCost);
        }
        self.set_terms(now, id, |terms| terms.cost = Some(cost))
    }

    /// Says what a path is for: a [backup](PathRole::Backup) carries no data while another path lives. At first it is [normal](PathRole::Normal), or what
    /// the peer says, as for [costs](Self::set_path_cost); and it can be set as soon.
    ///
    /// # Errors
    /// [`PathError::Unknown`] if there is no such path.
    pub fn set_path_role(&mut self, now: Instant, id: PathId, role: PathRole) -> Result<(), PathError> {
        self.set_terms(now, id, |terms| terms.role = Some(role))
    }

    /// Says how much a path may be given over time; see [`PathBudget`]. `None`, as at first, sets no bound. It is ours alone: the peer is not told,
    /// and keeps to what its own application says.
    ///
    /// # Errors
    /// [`PathError::Unknown`] if there is no such path.
    pub fn set_path_budget(&mut self, now: Instant, id: PathId, budget: Option<PathBudget>) -> Result<(), PathError> {
        self.set_terms(now, id, |terms| terms.budget = budget)
    }

    fn set_terms(&mut self, now: Instant, id: PathId, set: impl FnOnce(&mut OwnTerms)) -> Result<(), PathError> {
        let place = match self.phase {
            Phase::Closed(_) => return Err(PathError::Closed),
            Phase::Handshaking if id == PathId(0) => Some(&mut self.first_terms),
            Phase::Handshaking | Phase::Open => {
                let opening = self.opening.iter_mut().find(|opening| opening.id == id);
                let open = self.paths.get_mut(id).map(|path| &mut path.terms.own);
                open.or(opening.map(|opening| &mut opening.terms))
            }
        };
        set(place.ok_or(PathError::Unknown)?);
        // A path scheduler may have waited for a cheaper path.
        self.settle(now);
        Ok(())
    }

    /// Tells the peer what our application has said of paths, if it has not been told.
    pub(super) fn tell_terms(&mut self) {
        while self.control.has_room()
            && let Some((path, terms)) = self.paths.next_terms()
        {
            self.control.write(&ControlFrame::Path { path, terms });
        }
    }

    /// Closes a path; what was in flight on it goes elsewhere.
    pub fn close_path(&mut self, now: Instant, id: PathId) -> Result<(), PathError> {
        if matches!(self.phase, Phase::Closed(_)) {
            return Err(PathError::Closed);
        }
        if let Some(at) = self.opening.iter().position(|opening| opening.id == id) {
            self.opening.remove(at);
            self.events.push(Event::Path { id, event: PathEvent::Closed });
        } else {
            self.shut_path(now, id)?;
        }
        self.settle(now);
        Ok(())
    }

    fn shut_path(&mut self, now: Instant, id: PathId) -> Result<(), PathError> {
        use noq_proto::ClosePathError::*;
        let quic = self.paths.get(id).ok_or(PathError::Unknown)?.quic;
        self.knock_elsewhere(id);
        self.conn.close_path(now, quic, VarInt::from_u32(0)).map_err(|error| match error {
            MultipathNotNegotiated => PathError::NotSupported,
            ClosedPath => PathError::Unknown,
            LastOpenPath => PathError::Last,
        })
    }

    /// Keeps what left last on a path that is being opened.
    pub(super) fn keep_knock(&mut self, network: NetworkPath, datagram: &[u8]) {
        if let Some(path) = self.paths.on_network(network).filter(|path| path.health() == PathHealth::Opening) {
            path.knock = datagram.to_vec();
        }
    }

    /// Has the peer hear of a path that is given up before anything came back over it, by what was sent there, over the paths that answer.
    ///
    /// An id is granted anew when both sides have abandoned its path, and noq does so only of paths that it knows (n0-computer/noq#804). So of a way on which all is lost
    /// each try would use up an id for ever, and after a few of them no path could be opened any more. The peer answers to where it hears it from, and we no longer listen: it never
    /// takes the path for validated.
    fn knock_elsewhere(&mut self, id: PathId) {
        let Some(path) = self.paths.get_mut(id).filter(|path| path.health() == PathHealth::Opening) else { return };
        let knock = std::mem::take(&mut path.knock);
        let answers = |path: &&Path| matches!(path.health(), PathHealth::Active | PathHealth::Standby);
        let others: Vec<_> = self.paths.iter().filter(answers).map(|path| path.network).collect();
        if !knock.is_empty() {
            let times = others.into_iter().cycle().take(KNOCKS);
            self.knocks.extend(times.map(|network| (network, knock.clone())));
        }
    }

    /// State and totals of every open path, in the order of their ids.
    pub fn path_stats(&mut self, now: Instant) -> Vec<PathStats> {
        let conn = &mut self.conn;
        let mut views = Vec::new();
        self.paths.views(now, self.clocks.offset_without_drift(), &mut views);
        let stats = |(path, view): (&Path, PathView)| {
            let quic = conn.path_stats(path.quic).unwrap_or_default();
            PathStats {
                id: path.id,
                network: path.network,
                health: view.health,
                rtt: view.rtt,
                min_rtt: view.min_rtt,
                one_way_delay: view.one_way_delay,
                rate: view.rate,
                window: view.window,
                in_flight: view.in_flight,
                loss: view.loss,
                loss_burst: view.loss_burst,
                source_bytes: path.sent.source,
                resent_bytes: path.sent.resent,
                copied_bytes: path.sent.copied,
                repair_bytes: path.sent.repair,
                report_bytes: path.feedback.reported_bytes(),
                bytes_sent: quic.udp_tx.bytes,
                bytes_received: quic.udp_rx.bytes,
                packets_sent: quic.sent_packets,
                packets_lost: quic.lost_packets,
                mtu: quic.current_mtu,
                suspected: path.suspected,
                cost: view.cost,
                role: view.role,
                bottleneck: view.bottleneck,
            }
        };
        self.paths.iter().zip(views).map(stats).collect()
    }

    /// The paths that are closed and were open before, as they were at last, the one that was closed last at the end. What these and those that are
    /// [open](Self::path_stats) have sent of blocks is all that was sent of them, but for peers that do not speak Punctual: QUIC sends them streams, by the
    /// paths that it likes. No more than 64 are told apart: then those that have been closed longest are one, with the totals of all and the id of the last of them.
    pub fn closed_path_stats(&self) -> &[PathStats] {
        self.closed_paths.all()
    }

    /// Does what time demands: suspects paths, probes them, gives packets up.
    pub(super) fn look_after_paths(&mut self, now: Instant) {
        let mut in_need = false;
        for path in self.paths.iter_mut() {
            match path.on_timeout(now, self.config.max_ack_delay, &mut self.store) {
                Alarm::None => {}
                Alarm::Suspected(event) => {
                    tracing::debug!(path = %path.id, "suspected");
                    self.events.push(Event::Path { id: path.id, event });
                }
                Alarm::Probe => {
                    let _ = self.conn.ping_path(path.quic);
                    in_need |= path.has_words_stuck();
                }
            }
            let expired = path.expire(now, self.config.max_ack_delay, &mut self.store);
            observe::forget(&mut self.observer, now, path.id, expired.iter().map(|(pn, packet)| (*pn, packet)));
        }
        self.close_hopeless(now);
        // Words wait for a path that answers. Where all is quiet, none would be heard.
        for path in self.paths.iter().filter(|path| in_need && path.health() == PathHealth::Active) {
            let _ = self.conn.ping_path(path.quic);
        }
    }

    fn close_hopeless(&mut self, now: Instant) {
        let is_well = |path: &Path| path.health() == PathHealth::Active;
        let is_hopeless = |path: &&Path| {
            let silent = now.saturating_duration_since(path.last_received());
            path.health() == PathHealth::Suspect && silent >= HOPELESS
        };
        let hopeless =
            self.paths.iter().find(is_hopeless).filter(|_| self.paths.iter().any(is_well)).map(|path| path.id);
        if let Some(id) = hopeless {
            tracing::debug!(path = %id, "closed: nothing has come for an hour");
            // One that is gone already is as good.
            let _ = self.shut_path(now, id);
        }
    }

    /// Renews QUIC's keys before there are several paths.
    ///
    /// noq does so by itself after 10 to 1,000 packets, and tells by packet numbers which are from before. But those of different paths do not
    /// compare: what is under way on a longer path, with the old keys, is taken to be from after the renewal, and lost. The next time is after
    /// millions of packets. What little has left by now may be lost in the same way, if the next path is shorter; to open it a round trip later
    /// would cost more.
    pub(super) fn renew_keys(&mut self) {
        if self.conn.side().is_client() && self.punctual == Some(true) && self.conn.is_multipath_negotiated() {
            noq::renew_keys(&mut self.conn);
        }
    }

    /// Tries to open the paths that wait for it.
    pub(super) fn open_paths(&mut self, now: Instant) {
        while let Some(Opening { id, network, terms, since }) = self.opening.front() {
            let (id, network, terms) = (*id, *network, *terms);
            let gives_up = now.saturating_duration_since(*since) >= OPENING_PATIENCE;
            let tuple = network.tuple();
            match self.conn.open_path(tuple, PathStatus::Available, now) {
                Ok(quic) => {
                    let rtt = self.conn.rtt(quic).unwrap_or(OPENING_RETRY);
                    if let Some(path) = self.add_path(now, id, quic, network, PathHealth::Opening, rtt) {
                        path.terms.own = terms;
                    }
                }
                Err(NoqPathError::MaxPathIdReached | NoqPathError::RemoteCidsExhausted) if !gives_up => {
                    // The peer grants path ids and connection ids in frames of their own; they are on their way.
                    self.retry_at = Some(now + OPENING_RETRY);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, path = %id, "path not opened");
                    self.events.push(Event::Path { id, event: PathEvent::Closed });
                }
            }
            self.opening.pop_front();
        }
    }

    /// A path of QUIC's is one of ours from now on.
    pub(super) fn add_path(
        &mut self,
        now: Instant,
        id: PathId,
        quic: noq_proto::PathId,
        network: NetworkPath,
        health: PathHealth,
        rtt: Duration,
    ) -> Option<&mut Path> {
        let panel = self.conn.congestion_state(quic).and_then(Panel::of)?;
        let driver = self.new_driver();
        let mut path = Path::new((id, quic), network, panel, driver, self.epoch, now, rtt);
        if health == PathHealth::Active {
            path.on_validated(now, None);
        }
        Some(self.paths.add(path))
    }

    /// Whether QUIC has more to do with paths that are no more than with those that are.
    pub(super) fn has_abandoned_too_many(&self) -> bool {
        self.conn.paths().len() > self.config.limits.paths as usize + MOST_ABANDONED
    }

    /// A path is no more, of which the application may never have heard. A client that wears paths out must go.
    pub(super) fn on_abandoned(&mut self, now: Instant, quic: noq_proto::PathId) {
        if self.conn.side().is_server() && (self.has_abandoned_too_many() || path_number(quic) >= MOST_EVER) {
            self.fail(now, ProtocolError::Paths);
            return;
        }
        let Some((id, health)) = self.paths.by_quic(quic).map(|path| (path.id, path.health())) else { return };
        self.knock_elsewhere(id);
        let last = (health != PathHealth::Opening).then(|| self.path_stats(now));
        if let Some(last) = last.into_iter().flatten().find(|stats| stats.id == id) {
            self.closed_paths.add(last);
        }
        let Some(mut path) = self.paths.remove(id) else { return };
        observe::forget(&mut self.observer, now, id, path.in_flight.iter());
        path.in_flight.give_up(true, id, now, &mut self.store);
        self.clocks.path_closed(id);
        self.events.push(Event::Path { id, event: PathEvent::Closed });
    }

    /// A controller for the next path, unless QUIC's drive it.
    pub(super) fn new_driver(&mut self) -> Option<Box<dyn Driver>> {
        let index = self.drivers;
        self.drivers += 1;
        let window = u64::from(self.config.initial_window_packets) * BASE_PACKET;
        self.config.congestion.driver(index, window).filter(|_| self.punctual == Some(true))
    }
}
