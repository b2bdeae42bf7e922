//! One connection: the glue between the stations. What each of them decides is its own affair.
//!
//! - [`input`] takes in what QUIC has to say: events, datagrams, the fate of packets.
//! - [`output`] asks the stations for the next packet, as the session's pipeline.
//! - [`protect`] is the part of that which concerns redundancy.
//! - [`control`] is the control stream.
//! - [`fallback`] carries blocks to a peer that does not speak Punctual.

mod control;
mod fallback;
mod input;
mod output;
mod protect;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{ConnectionHandle, FourTuple, PathError as NoqPathError, PathStatus, VarInt};

use self::{control::Control, fallback::Fallback, output::Output};
use crate::{
    block::{Block, BlockId, BlockUpdate, Channel, Delta, ReceivedBlock, Redundancy},
    clock::{Clocks, Micros, Unwrapper},
    config::SessionConfig,
    congestion::{
        Driver,
        steering::{Fate, Gate, Panel, Steering},
    },
    endpoint::{BASE_PACKET, LocalId, NetworkPath},
    error::{BlockError, CloseReason, PathError, ProtocolError, SendError},
    event::{Event, PathEvent},
    frame::ControlFrame,
    multipath::{PathHealth, PathId},
    observe::{self, Observer},
    path::{Alarm, Path, paths::Paths},
    receive::{decode::Groups, receiver::Receiver},
    send::{packetize::Stamp, store::Store},
    stats::{PathStats, SessionStats},
};

/// How long a path that the peer has no room for yet is tried again.
const OPENING_PATIENCE: Duration = Duration::from_secs(3);
/// How often.
const OPENING_RETRY: Duration = Duration::from_millis(20);

/// How far a session has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Handshaking,
    Open,
    Closed(CloseReason),
}

/// A path that waits until the peer has room for it.
#[derive(Debug)]
struct Opening {
    id: PathId,
    network: NetworkPath,
    cost: f64,
    /// Since when it could have been opened.
    since: Instant,
}

/// One connection with a peer, over one or more paths.
///
/// Got from [`Endpoint::session`](crate::Endpoint::session), and under [its contract](crate#the-contract).
pub struct Session {
    conn: noq_proto::Connection,
    handle: ConnectionHandle,
    config: Arc<SessionConfig>,
    epoch: Instant,
    phase: Phase,
    punctual: Option<bool>,
    /// Where the first packets go; that path's address on our side is not known to QUIC before the first answer.
    first_path: NetworkPath,
    /// What its cost will be once it is open.
    first_cost: f64,
    steering: Arc<Steering>,
    paths: Paths,
    opening: VecDeque<Opening>,
    next_path: u32,
    /// Controllers made so far.
    drivers: usize,
    retry_at: Option<Instant>,
    clocks: Clocks,
    peer_time: Unwrapper,
    store: Store,
    receiver: Receiver,
    /// The peer's redundancy.
    groups: Groups,
    control: Control,
    fallback: Fallback,
    output: Output,
    log: Vec<Fate>,
    observer: Option<Box<dyn Observer>>,
    events: VecDeque<Event>,
    /// When something came in of which not everything that follows has been done yet.
    unsettled: Option<Instant>,
    /// Since when the control stream has gone unread because there were too many events.
    stalled: Option<Instant>,
}

impl Session {
    pub(crate) fn new(
        conn: noq_proto::Connection,
        handle: ConnectionHandle,
        config: Arc<SessionConfig>,
        epoch: Instant,
        first_path: NetworkPath,
        steering: Arc<Steering>,
        observer: Option<Box<dyn Observer>>,
    ) -> Self {
        let limits = config.limits;
        Self {
            conn,
            handle,
            epoch,
            phase: Phase::Handshaking,
            punctual: None,
            first_path,
            first_cost: 0.0,
            steering,
            paths: Paths::default(),
            opening: VecDeque::new(),
            next_path: 1,
            drivers: 0,
            retry_at: None,
            clocks: Clocks::new(),
            peer_time: Unwrapper::default(),
            store: Store::new(limits, (config.scheduler)(), config.redundancy, (config.redundancy_policy)()),
            receiver: Receiver::new(limits, epoch),
            groups: Groups::new(limits.repair_window),
            control: Control::new(),
            fallback: Fallback::default(),
            output: Output::new((config.path_scheduler)()),
            log: Vec::new(),
            observer,
            events: VecDeque::new(),
            unsettled: None,
            stalled: None,
            config,
        }
    }

    /// Hands a block over. Its deadline runs from here (or from [`Block::begin`]).
    ///
    /// Allowed before [`Event::Connected`](crate::Event::Connected); the block waits.
    ///
    /// # Errors
    /// See [`SendError`]; `Full` gives the block back.
    pub fn send(&mut self, now: Instant, block: Block) -> Result<BlockId, SendError> {
        if matches!(self.phase, Phase::Closed(_)) {
            return Err(SendError::Closed);
        }
        let size = block.data.len() as u64;
        let id = self.store.insert(now, block)?;
        if let Some(observer) = &mut self.observer {
            observer.block_accepted(now, id, size);
        }
        self.settle(now);
        Ok(id)
    }

    /// Whether `send` would take a block of `size` bytes now, as far as room goes.
    pub fn has_room(&self, size: usize) -> bool {
        self.store.has_room(size)
    }

    /// Changes what was said of a live block.
    pub fn update(&mut self, now: Instant, id: BlockId, update: BlockUpdate) -> Result<(), BlockError> {
        self.store.update(id, update)?;
        self.settle(now);
        Ok(())
    }

    /// Drops a live block, and with it those that depend on it. Its outcome follows as an event: dropped, unless
    /// the receiver turns out to have it already.
    pub fn cancel(&mut self, now: Instant, id: BlockId) -> Result<(), BlockError> {
        self.store.cancel(id)?;
        self.settle(now);
        Ok(())
    }

    /// Says how blocks of a channel are protected against loss that are handed over from now on and do not say it themselves.
    ///
    /// # Errors
    /// [`SendError::TooManyChannels`] if that has been said of as many channels as [`Limits`](crate::Limits) allow.
    pub fn set_channel_redundancy(&mut self, channel: Channel, mode: Redundancy) -> Result<(), SendError> {
        self.store.set_channel_redundancy(channel, mode)
    }

    /// The next complete block.
    pub fn recv(&mut self, now: Instant) -> Option<ReceivedBlock> {
        let block = self.receiver.recv()?;
        if let Some(observer) = &mut self.observer {
            observer.block_delivered(now, block.id);
        }
        self.settle(now);
        Some(block)
    }

    /// Tells the peer's application by how much a block's completion missed what this side expected
    /// (`expect` of DTP): positive means it came too late.
    ///
    /// # Errors
    /// [`BlockError::NotLive`] if nothing has been heard of it or of a later one: telling the peer would end the session.
    pub fn expect(&mut self, now: Instant, id: BlockId, delta: Delta) -> Result<(), BlockError> {
        if self.punctual == Some(false) {
            return Err(BlockError::Fallback);
        }
        if !self.receiver.knows(id) {
            return Err(BlockError::NotLive(id));
        }
        if !self.control.has_room() {
            return Err(BlockError::Busy);
        }
        self.control.write(&ControlFrame::Expect { id, delta });
        self.settle(now);
        Ok(())
    }

    /// Refuses one of the peer's blocks: it is freed here and dropped there.
    pub fn refuse(&mut self, now: Instant, id: BlockId) -> Result<(), BlockError> {
        if self.punctual == Some(false) {
            return Err(BlockError::Fallback);
        }
        self.receiver.refuse(id, self.stamp(now).micros(now), &self.clocks)?;
        self.control.write(&ControlFrame::Refused { id });
        self.settle(now);
        Ok(())
    }

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
        if self.paths.iter().count().max(1) + self.opening.len() >= max {
            return Err(PathError::TooMany);
        }
        let id = PathId(self.next_path);
        self.next_path += 1;
        self.opening.push_back(Opening { id, network, cost: 0.0, since: now });
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
    /// application likes. At first it is 0. It can be set as soon as the path has an id, the first one's in the handshake.
    ///
    /// # Errors
    /// [`PathError::InvalidCost`] if it is negative, infinite or not a number; [`PathError::Unknown`] if there is no such path.
    pub fn set_path_cost(&mut self, now: Instant, id: PathId, cost: f64) -> Result<(), PathError> {
        if !cost.is_finite() || cost < 0.0 {
            return Err(PathError::InvalidCost);
        }
        let place = match self.phase {
            Phase::Closed(_) => return Err(PathError::Closed),
            Phase::Handshaking if id == PathId(0) => Some(&mut self.first_cost),
            Phase::Handshaking | Phase::Open => {
                let opening = self.opening.iter_mut().find(|opening| opening.id == id);
                let open = self.paths.get_mut(id).map(|path| &mut path.cost);
                open.or(opening.map(|opening| &mut opening.cost))
            }
        };
        *place.ok_or(PathError::Unknown)? = cost;
        // A path scheduler may have waited for a cheaper path.
        self.settle(now);
        Ok(())
    }

    /// Closes a path; what was in flight on it goes elsewhere.
    pub fn close_path(&mut self, now: Instant, id: PathId) -> Result<(), PathError> {
        if matches!(self.phase, Phase::Closed(_)) {
            return Err(PathError::Closed);
        }
        if let Some(at) = self.opening.iter().position(|opening| opening.id == id) {
            self.opening.remove(at);
            self.events.push_back(Event::Path { id, event: PathEvent::Closed });
        } else {
            use noq_proto::ClosePathError::*;
            let quic = self.paths.get(id).ok_or(PathError::Unknown)?.quic;
            self.conn.close_path(now, quic, VarInt::from_u32(0)).map_err(|error| match error {
                MultipathNotNegotiated => PathError::NotSupported,
                ClosedPath => PathError::Unknown,
                LastOpenPath => PathError::Last,
            })?;
        }
        self.settle(now);
        Ok(())
    }

    /// Ends the session at once: every live block is dropped ([`DropReason::SessionClosed`](crate::DropReason)).
    ///
    /// `code` 0 is a normal end; codes from [`ProtocolError::BASE`] to 255 above it are Punctual's own.
    pub fn close(&mut self, now: Instant, code: u32, reason: &str) {
        if matches!(self.phase, Phase::Closed(_)) {
            return;
        }
        self.conn.close(now, VarInt::from_u32(code), reason.as_bytes().to_vec().into());
        self.end(CloseReason::Local);
        self.settle(now);
    }

    /// Blocks handed over that have not ended yet.
    pub fn live_blocks(&self) -> usize {
        self.store.len()
    }

    /// Whether the peer speaks `punctual/1`; `None` before the handshake has told.
    pub fn is_punctual(&self) -> Option<bool> {
        self.punctual
    }

    /// Why the session ended, once it has.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        match &self.phase {
            Phase::Closed(reason) => Some(reason),
            Phase::Handshaking | Phase::Open => None,
        }
    }

    /// The peer's address on its first path.
    pub fn remote_address(&self) -> SocketAddr {
        self.first_path.remote
    }

    /// The certificates the peer showed, its own first; empty if it showed none.
    pub fn peer_certificates(&self) -> Vec<crate::rustls::pki_types::CertificateDer<'static>> {
        let identity = self.conn.crypto_session().peer_identity();
        identity.and_then(|any| any.downcast().ok()).map_or_else(Vec::new, |certificates| *certificates)
    }

    /// Totals.
    pub fn stats(&self) -> SessionStats {
        let sent = self.store.tally();
        let received = self.receiver.tally();
        let redundancy = self.groups.tally();
        let ((blocks, bytes), (streams, stream_bytes)) = (self.receiver.live(), self.fallback.live_in());
        SessionStats {
            blocks_sent: sent.accepted,
            blocks_on_time: sent.on_time,
            blocks_late: sent.late,
            blocks_dropped: sent.dropped,
            blocks_received: received.received,
            blocks_peer_dropped: received.peer_dropped,
            source_bytes: self.output.sent.source,
            resent_bytes: self.output.sent.resent,
            copied_bytes: self.output.sent.copied,
            repair_bytes: self.output.sent.repair,
            wasted_bytes: sent.wasted_bytes,
            restored_bytes: sent.restored_bytes,
            resend_regained_bytes: sent.resend_regained_bytes,
            copy_regained_bytes: sent.copy_regained_bytes,
            never_regained_bytes: sent.never_regained_bytes,
            received_bytes: received.received_bytes,
            duplicate_bytes: received.duplicate_bytes,
            recovered_bytes: redundancy.recovered_bytes,
            repair_bytes_received: redundancy.repair_bytes,
            wasted_repair_bytes: redundancy.wasted_repair_bytes,
            live_out: self.store.len() as u64,
            live_out_bytes: self.store.bytes(),
            live_in: blocks + streams,
            live_in_bytes: bytes + stream_bytes,
            clock: self.clocks.estimate(),
        }
    }

    /// State and totals of every open path, in the order of their ids.
    pub fn path_stats(&mut self, now: Instant) -> Vec<PathStats> {
        let conn = &mut self.conn;
        let offset = self.clocks.offset();
        let stats = |path: &Path| {
            let view = path.view(now, offset, true);
            let quic = conn.path_stats(path.quic).unwrap_or_default();
            PathStats {
                id: path.id,
                network: path.network,
                health: path.health(),
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
                bytes_sent: quic.udp_tx.bytes,
                bytes_received: quic.udp_rx.bytes,
                packets_sent: quic.sent_packets,
                packets_lost: quic.lost_packets,
                mtu: quic.current_mtu,
                suspected: path.suspected,
                cost: path.cost,
            }
        };
        self.paths.iter().map(stats).collect()
    }

    /// Whether nothing is left of past blocks but counters: what a test for leaks asks once all blocks have ended. (Of a
    /// peer that sends redundancy, something is kept for a moment longer.)
    pub fn is_clean(&self) -> bool {
        self.store.is_clean() && self.receiver.live() == (0, 0) && self.groups.is_empty() && self.fallback.is_clean()
    }

    pub(crate) fn handle(&self) -> ConnectionHandle {
        self.handle
    }

    /// What QUIC's connection has to tell its endpoint.
    pub(crate) fn poll_endpoint_event(&mut self) -> Option<noq_proto::EndpointEvent> {
        self.conn.poll_endpoint_events()
    }

    /// What the endpoint had to say to that.
    pub(crate) fn on_endpoint_answer(&mut self, answer: noq_proto::ConnectionEvent) {
        self.conn.handle_event(answer);
        self.output.stir();
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.catch_up();
        self.events.pop_front()
    }

    /// Whether the endpoint may forget the session.
    pub(crate) fn is_over(&self) -> bool {
        self.conn.is_drained() && self.events.is_empty()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let quic = self.conn.poll_timeout();
        if self.phase != Phase::Open {
            return [quic, self.store.next_timeout()].into_iter().flatten().min();
        }
        let paths = self.paths.iter().filter_map(|path| path.next_timeout(self.config.max_ack_delay)).min();
        // A datagram that QUIC holds back has an alarm of QUIC's own; the next one has to wait for it.
        let wake = self.output.wake_at().into_iter().chain(self.output.repair_at);
        let reports = self.paths.iter().filter_map(Path::report_due);
        let words = self.control.due(self.config.max_ack_delay);
        let next = reports.chain(wake).min();
        let next = next.filter(|_| !self.output.is_held_up());
        let groups = self.groups.next_timeout().and_then(|at| self.epoch.checked_add(Duration::from_micros(at)));
        // By the contract the events have been taken once this is asked: reading can go on.
        [quic, self.store.next_timeout(), paths, next, groups, words, self.retry_at, self.stalled]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.catch_up();
        if self.conn.poll_timeout().is_some_and(|at| at <= now) {
            self.conn.handle_timeout(now);
        }
        self.store.on_timeout(now);
        if self.phase == Phase::Open {
            self.groups.on_timeout(self.micros(now));
            self.look_after_paths(now);
        }
        self.settle(now);
    }

    fn look_after_paths(&mut self, now: Instant) {
        for path in self.paths.iter_mut() {
            match path.on_timeout(now, self.config.max_ack_delay, &mut self.store) {
                Alarm::None => {}
                Alarm::Suspected(event) => {
                    tracing::debug!(path = %path.id, "suspected");
                    self.events.push_back(Event::Path { id: path.id, event });
                }
                Alarm::Probe => {
                    let _ = self.conn.ping_path(path.quic);
                }
            }
            let expired = path.expire(now, &mut self.store);
            observe::forget(&mut self.observer, now, path.id, expired.iter().map(|(pn, packet)| (*pn, packet)));
        }
    }

    /// Tries to open the paths that wait for it.
    fn open_paths(&mut self, now: Instant) {
        while let Some(Opening { id, network, cost, since }) = self.opening.front() {
            let (id, network, cost) = (*id, *network, *cost);
            let gives_up = now.saturating_duration_since(*since) >= OPENING_PATIENCE;
            let tuple = network.into();
            match self.conn.open_path(tuple, PathStatus::Available, now) {
                Ok(quic) => {
                    let rtt = self.conn.rtt(quic).unwrap_or(OPENING_RETRY);
                    if let Some(path) = self.add_path(now, id, quic, network, PathHealth::Opening, rtt) {
                        path.cost = cost;
                    }
                }
                Err(NoqPathError::MaxPathIdReached | NoqPathError::RemoteCidsExhausted) if !gives_up => {
                    // The peer grants path ids and connection ids in frames of their own; they are on their way.
                    self.retry_at = Some(now + OPENING_RETRY);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, path = %id, "path not opened");
                    self.events.push_back(Event::Path { id, event: PathEvent::Closed });
                }
            }
            self.opening.pop_front();
        }
    }

    fn add_path(
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

    /// A controller for the next path, unless QUIC's drive it.
    fn new_driver(&mut self) -> Option<Box<dyn Driver>> {
        let index = self.drivers;
        self.drivers += 1;
        let window = u64::from(self.config.initial_window_packets) * BASE_PACKET;
        self.config.congestion.driver(index, window).filter(|_| self.punctual == Some(true))
    }

    /// A datagram came from an unknown address: QUIC may have taken that for a path whose peer has moved. It begins such a
    /// path's congestion control anew, and keeps what becomes of the packets sent before to itself.
    fn follow_moves(&mut self, now: Instant) {
        let mut moved = Vec::new();
        for path in self.paths.iter_mut() {
            let Ok(tuple) = self.conn.network_path(path.quic) else { continue };
            let local = tuple.local_ip().and_then(LocalId::from_ip).unwrap_or(path.network.local);
            if path.network.remote != tuple.remote() {
                moved.push(path.id);
            }
            path.network = NetworkPath { local, remote: tuple.remote() };
        }
        for id in moved {
            let driver = self.new_driver();
            let Some(path) = self.paths.get_mut(id) else { continue };
            if let Some(panel) = self.conn.congestion_state(path.quic).and_then(Panel::of) {
                tracing::debug!(path = %path.id, to = %path.network.remote, "moved");
                observe::forget(&mut self.observer, now, path.id, path.in_flight.iter());
                let event = path.on_moved(now, panel, driver, &mut self.store);
                self.events.push_back(Event::Path { id: path.id, event });
            }
        }
    }

    /// Does what was left to do when datagrams came in: they come in bursts, and what follows is done once for each.
    pub(crate) fn catch_up(&mut self) {
        if let Some(now) = self.unsettled {
            self.settle(now);
        }
    }

    /// Brings everything that follows from an input about: nothing is left undone but packets and events.
    fn settle(&mut self, now: Instant) {
        self.unsettled = None;
        self.take_quic_events(now);
        self.take_fates(now);
        if self.phase == Phase::Open {
            self.retry_at = None;
            self.open_paths(now);
            self.read_streams(now);
        }
        self.pass_on_notices(now);
        if self.phase == Phase::Open && self.punctual == Some(true) {
            self.control.flush(now, self.config.max_ack_delay, &mut self.conn);
        }
        self.output.stir();
    }

    /// The session is over.
    fn end(&mut self, reason: CloseReason) {
        if matches!(self.phase, Phase::Closed(_)) {
            return;
        }
        self.phase = Phase::Closed(reason.clone());
        self.steering.set_gate(Gate::Open);
        self.store.close();
        self.receiver.close();
        self.groups.close();
        self.pass_on_received();
        self.pass_on_outcomes();
        self.fallback = Fallback::default();
        for opening in std::mem::take(&mut self.opening) {
            self.events.push_back(Event::Path { id: opening.id, event: PathEvent::Closed });
        }
        self.events.push_back(Event::Closed(reason));
    }

    /// The peer broke the protocol.
    fn fail(&mut self, now: Instant, error: ProtocolError) {
        tracing::debug!(%error, "closing");
        self.conn.close(now, error.code(), error.to_string().into_bytes().into());
        self.end(CloseReason::Protocol(error));
    }

    fn stamp(&self, now: Instant) -> Stamp {
        Stamp { epoch: self.epoch, now }
    }

    fn micros(&self, now: Instant) -> Micros {
        self.stamp(now).micros(now)
    }
}

impl From<NetworkPath> for FourTuple {
    fn from(path: NetworkPath) -> Self {
        Self::new(path.remote, Some(path.local.to_ip()))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("phase", &self.phase)
            .field("punctual", &self.punctual)
            .field("live_blocks", &self.store.len())
            .finish_non_exhaustive()
    }
}
