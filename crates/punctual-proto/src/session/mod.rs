//! One connection: the glue between the stations. What each of them decides is its own affair.
//!
//! - [`input`] takes in what QUIC has to say: events, datagrams, the fate of packets.
//! - [`output`] asks the stations for the next packet, as the session's pipeline.
//! - [`copies`] and [`protect`] are the parts of that which concern copies and redundancy.
//! - [`second_try`] sends blocks again whose second try has a time of its own.
//! - [`control`] is the control stream, and [`answers`] what is done if nothing is said on it.
//! - [`playout`] is the application's word on when blocks are given out.
//! - [`paths`] opens and closes paths, and looks after them.
//! - [`probing`] keeps the round trips of paths fresh that carry nothing.
//! - [`moves`] follows paths whose peer gets another address, and [`quiet`] finds out if that may be we.
//! - [`fallback`] carries blocks to a peer that does not speak Punctual.
//! - [`door`] is who is let in.
//! - [`ending`] is how a session is accepted, and how it ends; [`idle`], when it does of itself. [`events`] is what the application is told.

mod answers;
mod backlog;
mod control;
mod copies;
mod door;
mod ending;
mod events;
mod fallback;
mod given_up;
mod idle;
mod input;
pub(crate) mod moves;
mod output;
mod paths;
mod patience;
mod playout;
mod probing;
mod protect;
mod queued;
mod quiet;
mod restraint;
mod ride;
mod second_try;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{ConnectionHandle, VarInt};

use self::{
    answers::Answers,
    control::{Control, Hearing},
    door::Door,
    ending::{Ending, Farewell},
    events::Events,
    fallback::Fallback,
    output::Output,
    paths::Opening,
    patience::Patience,
    quiet::Quiet,
};
use crate::{
    block::{Block, BlockId, BlockUpdate, Channel, Delta, ReceivedBlock, Redundancy},
    clock::{Clocks, Micros, Unwrapper},
    config::SessionConfig,
    congestion::steering::{Fate, Gate, Steering},
    error::{BlockError, CloseReason, ProtocolError, SendError},
    event::{Event, PathEvent},
    frame::ControlFrame,
    network::NetworkPath,
    observe::Observer,
    path::{Path, closed::Closed, paths::Paths, probing::Prober, terms::OwnTerms},
    receive::{decode::Groups, receiver::Receiver},
    send::{packetize::Stamp, store::Store},
    stats::SessionStats,
};

/// A session that is over is kept for so long at most.
const MOST_LINGERING: Duration = Duration::from_secs(10);

/// How far a session has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Handshaking,
    Open,
    Closed(CloseReason),
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
    /// What its terms will be once it is open.
    first_terms: OwnTerms,
    steering: Arc<Steering>,
    paths: Paths,
    closed_paths: Closed,
    opening: VecDeque<Opening>,
    next_path: u32,
    /// Controllers made so far.
    drivers: usize,
    retry_at: Option<Instant>,
    clocks: Clocks,
    peer_time: Unwrapper,
    store: Store,
    receiver: Receiver,
    /// Latencies that our application wishes for, of which the peer has not been told: in microseconds, 0 for none.
    wishes: BTreeMap<Option<Channel>, u64>,
    /// The peer's redundancy.
    groups: Groups,
    control: Control,
    /// How long words wait, as things stood after the last input.
    patience: Patience,
    hearing: Hearing,
    fallback: Fallback,
    output: Output,
    log: Vec<Fate>,
    /// What the peer is to hear of paths that were given up, and over which path.
    knocks: VecDeque<(NetworkPath, Vec<u8>)>,
    observer: Option<Box<dyn Observer>>,
    events: Events,
    /// When something came in of which not everything that follows has been done yet.
    unsettled: Option<Instant>,
    /// The application has not accepted the session yet: the peer is not told that it may send anything.
    is_held: bool,
    door: Door,
    ending: Ending,
    farewell: Farewell,
    /// Since when the session is over.
    over_since: Option<Instant>,
    /// Since when the control stream has gone unread because there were too many events.
    stalled: Option<Instant>,
    answers: Answers,
    quiet: Quiet,
    prober: Prober,
    /// When the first packet left that should have been answered since something came.
    unanswered: Option<Instant>,
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
        let path_scheduler = (config.path_scheduler)();
        let mut store = Store::new(limits, (config.scheduler)(), config.redundancy, (config.redundancy_policy)());
        store.minds_sources = path_scheduler.looks_ahead();
        store.second_tries.times(path_scheduler.times_second_tries());
        Self {
            conn,
            handle,
            epoch,
            phase: Phase::Handshaking,
            punctual: None,
            first_path,
            first_terms: OwnTerms::default(),
            steering,
            paths: Paths::default(),
            closed_paths: Closed::default(),
            opening: VecDeque::new(),
            next_path: 1,
            drivers: 0,
            retry_at: None,
            clocks: Clocks::new(),
            peer_time: Unwrapper::default(),
            store,
            receiver: Receiver::new(limits, config.latency, epoch),
            wishes: BTreeMap::new(),
            groups: Groups::new(limits.repair_window),
            control: Control::new(),
            patience: Patience::NONE,
            hearing: Hearing::default(),
            fallback: Fallback::default(),
            output: Output::new(path_scheduler),
            log: Vec::new(),
            knocks: VecDeque::new(),
            observer,
            events: Events::default(),
            unsettled: None,
            is_held: false,
            door: Door::default(),
            ending: Ending::default(),
            farewell: Farewell::default(),
            over_since: None,
            stalled: None,
            answers: Answers::default(),
            quiet: Quiet::default(),
            prober: Prober::default(),
            unanswered: None,
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
        if matches!(self.phase, Phase::Closed(_)) || self.is_finishing() {
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

    /// How blocks of a channel, or of none, are protected against loss that do not say it themselves.
    pub fn redundancy(&self, channel: Option<Channel>) -> Redundancy {
        self.store.redundancy(channel)
    }

    /// Says that a block of about `size` bytes will be handed over on a channel `every` so often, from the next one on, with this deadline and priority; an
    /// interval of zero takes that back. Path schedulers that look ahead keep room for it ([`multipath::Turn`](crate::multipath::Turn)). Without a word, they
    /// recognise channels whose blocks come regularly.
    pub fn expect_source(
        &mut self,
        channel: Channel,
        every: Duration,
        size: u64,
        deadline: Option<Duration>,
        priority: u8,
    ) {
        self.store.sources.declare(channel, every, size, deadline, priority);
    }

    /// The next complete block.
    pub fn recv(&mut self, now: Instant) -> Option<ReceivedBlock> {
        let block = self.receiver.recv()?;
        if let Some(observer) = &mut self.observer {
            observer.block_delivered(now, block.id);
        }
        self.on_given();
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
            blocks_skipped: received.skipped,
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
            peer_max_block_size: self.store.peer_max_block(),
        }
    }

    /// How many of the peer's blocks have come to an end: each is told of.
    pub(crate) fn ends(&self) -> u64 {
        let tally = self.receiver.tally();
        tally.received + tally.peer_dropped
    }

    pub(crate) fn limits(&self) -> &crate::limits::Limits {
        &self.config.limits
    }

    /// Memory held for what the peer sent, bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.receiver.memory() + self.groups.held() + self.fallback.live_in().1
    }

    /// Says how many bytes the peer may have open, before it is told. No more than the limits say.
    pub(crate) fn set_window(&mut self, bytes: u64) {
        self.receiver.set_window(bytes);
    }

    /// Ends the session, and forgets what the application has not taken: the endpoint needs the memory.
    pub(crate) fn give_up_for_others(&mut self, now: Instant) {
        self.fail(now, ProtocolError::Memory);
        self.receiver.forget();
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
        if self.door.is_shut() && !matches!(self.phase, Phase::Closed(_)) {
            return None;
        }
        self.events.pop()
    }

    /// Whether the endpoint may forget the session.
    pub(crate) fn is_over(&self) -> bool {
        self.conn.is_drained() && self.events.is_empty() && self.farewell.due().is_none()
    }

    /// Until when QUIC may keep a connection that is closed.
    fn lingers_until(&self) -> Option<Instant> {
        let waits = self.conn.is_closed() && self.conn.poll_timeout().is_some();
        let since = self.over_since.filter(|_| waits)?;
        since.checked_add(MOST_LINGERING)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let quic = self.conn.poll_timeout();
        if self.phase != Phase::Open {
            let timeouts = [quic, self.lingers_until(), self.store.next_timeout(), self.farewell.due()];
            return timeouts.into_iter().flatten().min();
        }
        let paths = self.paths.iter().filter_map(|path| path.next_timeout(self.config.max_ack_delay)).min();
        // A datagram that QUIC holds back has an alarm of QUIC's own; the next one has to wait for it.
        let wake = self
            .output
            .wake_at()
            .into_iter()
            .chain(self.output.repair_at)
            .chain(self.output.copy_at)
            .chain(self.output.rests_until());
        let reports = self.paths.iter().filter_map(Path::report_due);
        let words = self.control.waits().then(|| self.control.due(self.patience)).flatten();
        let next = reports.chain(wake).min();
        let next = next.filter(|_| !self.output.is_held_up());
        let groups = self.groups.next_timeout().and_then(|at| self.epoch.checked_add(Duration::from_micros(at)));
        // By the contract the events have been taken once this is asked: reading can go on.
        let release = self.next_release();
        let answers = self.next_look_for_answers();
        let door = self.door.due();
        let question = self.next_question();
        [
            quic,
            self.store.next_timeout(),
            paths,
            next,
            groups,
            words,
            self.retry_at,
            self.stalled,
            answers,
            door,
            question,
            self.idle_at(),
            self.next_probe(),
            release,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.catch_up();
        // QUIC keeps what is closed for as long as it is told that three probes would take: by who answers, and may do so late.
        let ends = self.lingers_until().is_some_and(|until| until <= now);
        if let Some(at) = self.conn.poll_timeout().filter(|at| *at <= now || ends) {
            self.conn.handle_timeout(at.max(now));
        }
        self.repeat_farewell(now);
        self.store.on_timeout(now);
        if self.phase == Phase::Open {
            self.groups.on_timeout(self.micros(now));
            self.release_due(now);
            self.try_again(now);
            self.look_after_paths(now);
            self.ask_if_quiet(now);
            self.probe_idle_paths(now);
            self.look_for_answers(now);
            self.look_at_the_door(now);
            self.look_whether_idle(now);
        }
        self.settle(now);
    }

    /// Whether the peer is to know of us yet.
    fn may_speak(&self) -> bool {
        !self.is_held && !self.door.is_shut()
    }

    /// Does what was left to do when datagrams came in: they come in bursts, and what follows is done once for each.
    pub(crate) fn catch_up(&mut self) {
        if let Some(now) = self.unsettled {
            self.settle(now);
        }
    }

    fn patience(&self, now: Instant) -> Patience {
        let path = self.paths.control().and_then(|id| self.paths.get(id));
        // Answers to blocks may fill the way, and often nothing tells of that but acknowledgements of words.
        let path = path.filter(|_| !self.output.is_answering(now));
        Patience::new(self.config.max_ack_delay, self.shortest_rtt(), path.map(Path::rate))
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
        self.store.wake();
        self.pass_on_notices(now);
        self.look_for_the_end();
        if self.phase == Phase::Open && self.punctual == Some(true) && self.may_speak() {
            if self.paths.have_words_stuck() && self.control.say_again(now, self.shortest_rtt(), &mut self.conn) {
                tracing::debug!("the control stream goes on, on another");
                self.paths.words_are_said_again();
            }
            self.tell_terms();
            self.tell_wishes();
            self.patience = self.patience(now);
            self.control.flush(now, self.patience, &mut self.conn);
        }
        self.output.stir();
    }

    /// The session is over.
    fn end(&mut self, now: Instant, reason: CloseReason) {
        if matches!(self.phase, Phase::Closed(_)) {
            return;
        }
        self.phase = Phase::Closed(reason.clone());
        self.over_since = Some(now);
        self.steering.set_gate(Gate::Open);
        self.store.close();
        self.receiver.close();
        self.groups.close();
        self.pass_on_received(now);
        self.pass_on_outcomes(now);
        self.fallback = Fallback::default();
        for opening in std::mem::take(&mut self.opening) {
            self.events.push(Event::Path { id: opening.id, event: PathEvent::Closed });
        }
        if self.door.is_shut() {
            // Nobody was told that it had begun.
            self.events.clear();
        }
        self.events.push(Event::Closed(reason));
    }

    /// The peer broke the protocol.
    fn fail(&mut self, now: Instant, error: ProtocolError) {
        if matches!(self.phase, Phase::Closed(_)) {
            return;
        }
        tracing::debug!(%error, "closing");
        self.part(now, VarInt::from_u32(error.number()), error.to_string().into_bytes().into());
        self.end(now, CloseReason::Protocol(error));
    }

    fn stamp(&self, now: Instant) -> Stamp {
        Stamp { epoch: self.epoch, now }
    }

    fn micros(&self, now: Instant) -> Micros {
        self.stamp(now).micros(now)
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
