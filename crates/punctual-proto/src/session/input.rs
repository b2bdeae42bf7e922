//! What comes in: QUIC's events, datagrams, the fate of packets; and what stations have to say about it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use noq_proto::{
    ConnectionError, ConnectionEvent, Dir, Event as QuicEvent, PathEvent as QuicPathEvent, PathStatus, StreamEvent,
    crypto::rustls::HandshakeData,
};

use super::{Phase, Session};
use crate::{
    base::{PathHealth, PathId},
    block::BlockId,
    clock::wire,
    config::ALPN,
    congestion::steering::Fate,
    error::{CloseReason, ProtocolError, TransportError},
    event::{Event, PathEvent},
    frame::{Arrival, Arrivals, BlockInfo, ControlFrame, DatagramFrame, DatagramFrames, time, time::wire_duration},
    network::{EcnCodepoint, LocalId, NetworkPath},
    noq,
    observe::{FragmentArrived, SentPacket},
    path::{Reported, path_number},
    receive::receiver::{Notice as ReceiverNotice, Totals},
    send::store::Notice as StoreNotice,
};

/// A peer must take datagrams at least as large as this: times, a BLOCK_INFO and something of the block fit.
const MIN_DATAGRAM: usize = 256;

impl Session {
    /// Takes in a UDP datagram of this session. Whether the next ones from there are to be shown to QUIC as from [another address](crate::noq::alias) than
    /// this one, so that it makes sure that the peer is there.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        network: NetworkPath,
        ecn: Option<EcnCodepoint>,
        event: ConnectionEvent,
    ) -> bool {
        let unknown = self.paths.on_network(network).is_none() || self.is_validating(network);
        if unknown {
            // Paths may come, go and move by it: what became of packets is to be told of those there were.
            self.catch_up();
        }
        self.conn.handle_event(event);
        self.on_answered();
        if unknown {
            self.follow_moves(now);
        }
        if let Some(path) = self.paths.on_network(network) {
            path.on_received(now);
        }
        self.take_quic_events(now);
        if self.phase == Phase::Open && self.hearing.readable {
            // What was said before blocks were handed over may be about them.
            self.take_fates(now);
            self.read_streams(now);
        }
        // Drained for each packet, so that it is known which path they came on.
        while let Some(payload) = self.conn.datagrams().recv() {
            if self.phase != Phase::Open || self.punctual != Some(true) {
                continue;
            }
            if let Err(error) = self.take_payload(now, network, ecn, payload) {
                self.fail(now, error);
            }
        }
        self.unsettled = Some(now);
        self.needs_validation(now, network)
    }

    /// Takes in the handshake's first packets: the connection has just been made from them.
    pub(crate) fn start(&mut self, now: Instant) {
        self.settle(now);
    }

    pub(super) fn take_quic_events(&mut self, now: Instant) {
        while let Some(event) = self.conn.poll() {
            if matches!(self.phase, Phase::Closed(_)) {
                // Whatever QUIC still has to say, a session that is over stays so.
                continue;
            }
            match event {
                QuicEvent::Connected => self.establish(now),
                QuicEvent::ConnectionLost { reason } => self.end(now, close_reason(reason)),
                QuicEvent::Stream(event) => self.take_stream_event(now, event),
                // What becomes of the paths of a session that is over is of no interest.
                QuicEvent::Path(_) if matches!(self.phase, Phase::Closed(_)) => {}
                QuicEvent::Path(event) => self.take_path_event(now, event),
                QuicEvent::HandshakeConfirmed => self.renew_keys(),
                QuicEvent::HandshakeDataReady
                | QuicEvent::DatagramReceived
                | QuicEvent::DatagramsUnblocked
                | QuicEvent::NatTraversal(_) => {}
            }
        }
    }

    /// The handshake is done.
    fn establish(&mut self, now: Instant) {
        let data = self.conn.crypto_session().handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
        let punctual = data.is_some_and(|data| data.protocol.as_deref() == Some(ALPN));
        self.punctual = Some(punctual);
        self.phase = Phase::Open;
        self.await_answers(now);
        // Paths can be opened from now on.
        self.opening.iter_mut().for_each(|opening| opening.since = now);
        // The handshake's packets are QUIC's own affair.
        self.steering.take_log(&mut self.log);
        self.log.clear();
        let quic = noq_proto::PathId::ZERO;
        let rtt = self.conn.rtt(quic).unwrap_or(Duration::from_millis(100));
        let terms = self.first_terms;
        if let Some(path) = self.add_path(now, PathId(0), quic, self.first_path, PathHealth::Active, rtt) {
            path.terms.own = terms;
        }
        if punctual && self.conn.datagrams().max_size().is_none_or(|size| size < MIN_DATAGRAM) {
            self.fail(now, ProtocolError::Settings);
            return;
        }
        if !punctual {
            self.steering.hands_off();
            self.store.on_fallback();
        }
        if self.door.is_shut() {
            self.wait_at_the_door(now);
        } else {
            self.let_in();
        }
    }

    fn take_path_event(&mut self, now: Instant, event: QuicPathEvent) {
        match event {
            QuicPathEvent::Established { id: quic, .. } => self.path_established(now, quic),
            QuicPathEvent::Abandoned { id: quic, .. } => self.on_abandoned(now, quic),
            QuicPathEvent::RemoteStatus { id: quic, .. } => {
                // The event tells what a frame said that may have been overtaken by a later one; what holds is what QUIC keeps.
                let distrusted = self.conn.remote_path_status(quic) == Some(PathStatus::Backup);
                if let Some(path) = self.paths.by_quic(quic) {
                    path.set_distrusted(now, distrusted);
                }
                if distrusted {
                    self.show_ourselves(now, quic);
                }
            }
            _ => {}
        }
    }

    fn path_established(&mut self, now: Instant, quic: noq_proto::PathId) {
        if self.paths.by_quic(quic).is_none() {
            // The peer opened it.
            let Ok(tuple) = self.conn.network_path(quic) else { return };
            let local = tuple.local_ip().and_then(LocalId::from_ip).unwrap_or(self.first_path.local);
            let network = NetworkPath { local, remote: noq::real_address(tuple.remote()) };
            let rtt = self.conn.rtt(quic).unwrap_or(Duration::from_millis(100));
            let id = PathId(u32::try_from(path_number(quic)).unwrap_or(u32::MAX));
            self.add_path(now, id, quic, network, PathHealth::Active, rtt);
        }
        let rtt = self.conn.rtt(quic);
        let Some(path) = self.paths.by_quic(quic) else { return };
        let id = path.id;
        path.on_validated(now, rtt);
        self.events.push(Event::Path { id, event: PathEvent::Opened });
    }

    fn take_stream_event(&mut self, now: Instant, event: StreamEvent) {
        if self.punctual == Some(false) {
            self.take_fallback_event(now, event);
            return;
        }
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(id) = self.conn.streams().accept(Dir::Uni) {
                    self.hearing.on_opened(id, &mut self.conn);
                }
            }
            // What went on elsewhere is no longer read.
            StreamEvent::Stopped { id, .. } if !self.control.is_on(id) => {}
            // Neither side may close the control stream, nor open any other.
            StreamEvent::Opened { dir: Dir::Bi } | StreamEvent::Finished { .. } | StreamEvent::Stopped { .. } => {
                self.fail(now, ProtocolError::Stream);
            }
            StreamEvent::Readable { .. } => self.hearing.readable = true,
            StreamEvent::Writable { .. } | StreamEvent::Available { .. } => {}
        }
    }

    /// Reads what streams hold, as long as the application keeps up with its events.
    pub(super) fn read_streams(&mut self, now: Instant) {
        if self.punctual == Some(false) {
            if !self.is_held {
                self.read_fallback_streams(now);
            }
            return;
        }
        self.stalled = None;
        while self.phase == Phase::Open {
            if self.hearing.has_more() && self.events.len() >= self.config.limits.events.max(1) {
                self.stalled = Some(now);
                return;
            }
            let taken = self.take_control_frame(now);
            match taken.and_then(|any| if any { Ok(true) } else { self.hearing.read(&mut self.conn) }) {
                Ok(true) => self.pass_on_received(now),
                Ok(false) => break,
                Err(error) => self.fail(now, error),
            }
        }
        if let Some(bytes) = self.hearing.news() {
            self.control.write(&ControlFrame::Heard { bytes });
        }
    }

    /// Does what the next frame of what was read says. Whether there was one.
    fn take_control_frame(&mut self, now: Instant) -> Result<bool, ProtocolError> {
        let Some(frame) = self.hearing.next()? else { return Ok(false) };
        self.answers.on_word();
        let micros = self.micros(now);
        match frame {
            ControlFrame::Token(token) => self.on_token(&token)?,
            ControlFrame::Settings(settings) => {
                if self.door.is_shut() {
                    return Err(ProtocolError::Token);
                }
                if settings.receive_bytes < settings.max_block_size || settings.receive_blocks == 0 {
                    return Err(ProtocolError::Settings);
                }
                self.store.on_settings(
                    settings.max_block_size,
                    settings.channels,
                    settings.receive_bytes,
                    settings.receive_blocks,
                );
                self.store.groups.set_window(settings.repair_window);
            }
            ControlFrame::Credit { bytes, blocks } => self.store.grant(bytes, blocks),
            ControlFrame::Dropped { id, reason, size, channel } => {
                self.receiver.on_dropped(id, reason, size, channel, micros, &self.clocks)?;
            }
            ControlFrame::DroppedList(reason, runs) => {
                for run in runs {
                    self.receiver.on_run_dropped(run, reason, micros, &self.clocks)?;
                }
            }
            ControlFrame::Completed { id, at, good_bytes } => self.on_completed(now, id, at, good_bytes)?,
            ControlFrame::CompletedList(list) => {
                for (id, at) in list {
                    self.on_completed(now, id, at, u64::MAX)?;
                }
            }
            ControlFrame::Freed { id, good_bytes } => self.store.on_freed(id, good_bytes)?,
            ControlFrame::Refused { id } => self.store.on_refused(id)?,
            ControlFrame::Expect { id, delta } => {
                self.store.check_known(id)?;
                self.events.push(Event::Expected { id, delta });
            }
            ControlFrame::Heard { bytes } => {
                if self.control.on_heard(bytes)? {
                    self.events.push(Event::Heard);
                }
            }
            ControlFrame::Path { path, terms } => self.paths.on_terms(path, terms),
            ControlFrame::Latency { channel, latency } => {
                let latency = Some(Duration::from_micros(latency)).filter(|latency| !latency.is_zero());
                self.follow_clocks(now);
                self.receiver.on_wish(channel, latency, micros, &self.clocks)?;
            }
            ControlFrame::Finished => self.on_finished(),
            ControlFrame::Taken => self.on_taken(),
            ControlFrame::Update { id, priority, deadline } => {
                self.receiver.on_update(id, deadline.map(Duration::from_micros), priority)?;
            }
        }
        Ok(true)
    }

    /// The peer has all of a block since `at`, on its clock, and `good_bytes` of it came in time.
    fn on_completed(&mut self, now: Instant, id: BlockId, at: u32, good_bytes: u64) -> Result<(), ProtocolError> {
        let Some(block) = self.store.get(id) else { return self.store.on_completed(id, Duration::ZERO, 0) };
        let elapsed = now.saturating_duration_since(block.begin);
        let begin = self.stamp(now).micros(block.begin);
        let at = self.peer_time.extend(at, self.micros(now));
        let completion = match self.clocks.to_ours(at) {
            Some(at) => {
                let before = self.epoch.saturating_duration_since(block.begin);
                Duration::from_micros(at.saturating_sub(begin)).saturating_add(before)
            }
            // The clocks have not been compared: the word took about half a round trip.
            None => elapsed.saturating_sub(self.shortest_rtt() / 2),
        };
        // Whatever the clocks say, it cannot have been later than now.
        self.store.on_completed(id, completion.min(elapsed), good_bytes)
    }

    pub(super) fn shortest_rtt(&self) -> Duration {
        self.paths.iter().map(|path| path.base_rtt()).min().unwrap_or_default()
    }

    /// Takes in one datagram's frames, and those of others that it helps to restore.
    fn take_payload(
        &mut self,
        now: Instant,
        network: NetworkPath,
        ecn: Option<EcnCodepoint>,
        payload: Bytes,
    ) -> Result<(), ProtocolError> {
        let bytes = payload.len() as u64;
        let micros = self.micros(now);
        let mut stamp = None;
        let mut has_blocks = false;
        let mut source = None;
        let mut restored = Vec::new();
        for frame in DatagramFrames::new(payload) {
            match frame? {
                DatagramFrame::Source { head, symbol } => {
                    self.check_redundancy()?;
                    source = Some((head, symbol));
                }
                DatagramFrame::Repair { head, shard } => {
                    self.check_redundancy()?;
                    has_blocks = true;
                    restored = self.groups.on_repair(&head, &shard, micros)?;
                }
                DatagramFrame::Timestamp { sent } => {
                    let extended = self.peer_time.extend(sent, micros);
                    stamp = Some((sent, extended));
                    if let Some(path) = self.paths.on_network(network) {
                        self.clocks.on_arrival(path.id, extended, micros);
                    }
                    if self.receiver.is_timed() {
                        self.follow_clocks(now);
                    }
                }
                DatagramFrame::Arrivals(arrivals) => self.take_arrivals(now, &arrivals)?,
                DatagramFrame::BlockInfo(info) => {
                    has_blocks = true;
                    self.take_info(now, &info, stamp.map(|(_, extended)| extended))?;
                }
                DatagramFrame::Fragment { id, offset, data } => {
                    has_blocks = true;
                    self.take_fragment(now, id, offset, data, Some(network))?;
                }
            }
        }
        if has_blocks {
            self.output.note_heard(now);
            self.quiet.on_data(now, self.config.keep_alive);
        }
        if let Some((sent, _)) = stamp
            && let Some(path) = self.paths.on_network(network)
        {
            let arrival = Arrival { stamp: sent, received: wire(micros), ce: ecn == Some(EcnCodepoint::Ce) };
            path.feedback.on_arrival(now, arrival, bytes, has_blocks);
        }
        if let Some((head, symbol)) = source {
            restored = self.groups.on_source(&head, &symbol, micros)?;
        }
        restored.into_iter().try_for_each(|symbol| self.take_restored(now, symbol))
    }

    /// The peer reports when datagrams of ours came.
    fn take_arrivals(&mut self, now: Instant, arrivals: &Arrivals) -> Result<(), ProtocolError> {
        // What was acknowledged with the report is to be known before it.
        self.take_fates(now);
        let micros = self.micros(now);
        let quic = u32::try_from(arrivals.path).map_err(|_| ProtocolError::Malformed)?;
        let Some(path) = self.paths.by_quic(quic.into()) else { return Ok(()) };
        let mut list = Vec::with_capacity(arrivals.list.len());
        for arrival in &arrivals.list {
            let at = self.peer_time.extend(arrival.received, micros);
            let sent = time::from_wire(arrival.stamp, micros);
            if sent <= micros {
                self.clocks.on_reported(path.id, sent, at, micros);
            }
            let at = self.clocks.without_drift(at, micros);
            list.push(Reported { stamp: arrival.stamp, at, ce: arrival.ce });
        }
        let id = path.id;
        self.paths.on_report(id, now, &list);
        Ok(())
    }

    /// Takes in the frames of a datagram that was lost or has not come yet. Of its times only those count that its blocks
    /// are measured by: they say nothing of any path.
    fn take_restored(&mut self, now: Instant, symbol: Bytes) -> Result<(), ProtocolError> {
        let mut stamp = None;
        for frame in DatagramFrames::of_symbol(symbol) {
            // What cannot be read was never sent.
            match frame.map_err(|_| ProtocolError::Repair)? {
                DatagramFrame::Timestamp { sent } => stamp = Some(self.peer_time.extend(sent, self.micros(now))),
                DatagramFrame::Arrivals(_) => {}
                DatagramFrame::BlockInfo(info) => self.take_info(now, &info, stamp)?,
                DatagramFrame::Fragment { id, offset, data } => {
                    self.take_fragment(now, id, offset, data, None)?;
                }
                DatagramFrame::Source { .. } | DatagramFrame::Repair { .. } => return Err(ProtocolError::Repair),
            }
        }
        Ok(())
    }

    /// Whether the peer was told that it may send redundancy.
    fn check_redundancy(&self) -> Result<(), ProtocolError> {
        if self.config.limits.repair_window == 0 || !self.receiver.has_begun() {
            Err(ProtocolError::UnknownFrame)
        } else {
            Ok(())
        }
    }

    /// `stamp` is the TIMESTAMP of the datagram, on the peer's clock.
    fn take_info(&mut self, now: Instant, info: &BlockInfo, stamp: Option<u64>) -> Result<(), ProtocolError> {
        let begin = stamp.ok_or(ProtocolError::Malformed)?.saturating_sub(info.age);
        let completes = self.receiver.on_info(info, begin, self.micros(now), &self.clocks)?;
        if completes && let Some(observer) = &mut self.observer {
            observer.block_complete(now, info.id);
        }
        Ok(())
    }

    /// `network` is the path its datagram came on; `None` if that was restored.
    fn take_fragment(
        &mut self,
        now: Instant,
        block: BlockId,
        offset: u64,
        data: Bytes,
        network: Option<NetworkPath>,
    ) -> Result<(), ProtocolError> {
        let len = data.len() as u64;
        let taken = self.receiver.on_fragment(block, offset, data, self.micros(now), &self.clocks)?;
        let recovered = network.is_none();
        if recovered {
            self.groups.on_recovered(taken.new);
        }
        if let Some(observer) = &mut self.observer {
            let path = network.and_then(|network| self.paths.on_network(network)).map(|path| path.id);
            let duplicate = len - taken.new;
            let fragment = FragmentArrived { block, offset, new: taken.new, duplicate, path, recovered };
            observer.fragment_arrived(now, &fragment);
            if taken.completes {
                observer.block_complete(now, block);
            }
        }
        Ok(())
    }

    /// Learns what became of packets.
    pub(super) fn take_fates(&mut self, now: Instant) {
        let mut log = std::mem::take(&mut self.log);
        self.steering.take_log(&mut log);
        let (mut judged, mut asked) = (false, None);
        for fate in log.drain(..) {
            judged |= !matches!(fate, Fate::Sent { .. });
            let (Fate::Sent { slot, .. } | Fate::Acked { slot, .. } | Fate::Lost { slot, .. }) = fate;
            let Some(path) = self.paths.in_slot(slot) else { continue };
            match fate {
                Fate::Sent { pn, bytes, at, probe, .. } => {
                    if let Some(observer) = self.observer.as_mut().filter(|_| !probe) {
                        if let Some(before) = path.in_flight.get(pn) {
                            // Of another space of QUIC's, during the handshake.
                            observer.packet_forgotten(at, &SentPacket::new(path.id, pn, before));
                        }
                        observer.packet_sent(at, &SentPacket { path: path.id, number: pn, bytes, sent: at });
                    }
                    path.on_sent(pn, bytes, at, probe);
                    self.output.on_sent(path, pn);
                    asked = asked.or(Some(at));
                }
                Fate::Acked { pn, sent, .. } => {
                    if let Some(observer) = &mut self.observer
                        && let Some(packet) = path.in_flight.get(pn).filter(|packet| packet.sent == sent)
                    {
                        observer.packet_acked(now, &SentPacket::new(path.id, pn, packet));
                    }
                    if let Some(event) = path.on_acked(pn, sent, now, &mut self.store) {
                        tracing::debug!(path = %path.id, "recovered");
                        self.events.push(Event::Path { id: path.id, event });
                    }
                }
                Fate::Lost { pn, .. } => {
                    if let Some(observer) = &mut self.observer
                        && let Some(packet) = path.in_flight.get(pn)
                    {
                        observer.packet_lost(now, &SentPacket::new(path.id, pn, packet));
                    }
                    path.on_lost(pn, now, &mut self.store);
                }
            }
        }
        self.log = log;
        if let Some(at) = asked {
            self.on_asked(at);
        }
        if judged {
            for path in self.paths.iter_mut() {
                path.follow(now);
            }
            if self.observer.is_some() {
                self.show_paths(now);
            }
        }
    }

    fn show_paths(&mut self, now: Instant) {
        self.refresh_views(now);
        if let Some(observer) = &mut self.observer {
            self.output.views().iter().for_each(|view| observer.path_sampled(now, view));
        }
    }

    /// Carries what the stations have to say to where it belongs.
    pub(super) fn pass_on_notices(&mut self, now: Instant) {
        self.pass_on_received(now);
        self.pass_on_outcomes(now);
        if let Err(error) = self.control.check_backlog() {
            self.fail(now, error);
        }
    }

    /// The part of that which concerns the peer's blocks.
    pub(super) fn pass_on_received(&mut self, now: Instant) {
        while let Some(notice) = self.receiver.poll() {
            match notice {
                ReceiverNotice::Completed { id, at, size, good_bytes } => {
                    self.control.complete(now, id, wire(at), size, good_bytes);
                }
                ReceiverNotice::Freed { id, good_bytes } => {
                    self.control.write(&ControlFrame::Freed { id, good_bytes });
                }
                ReceiverNotice::Credit(Totals { bytes, blocks }) => {
                    if self.punctual == Some(true) {
                        self.control.write(&ControlFrame::Credit { bytes, blocks });
                    }
                }
                ReceiverNotice::Skipped { id, received_bytes } => {
                    self.control.write(&ControlFrame::Refused { id });
                    self.events.push(Event::Skipped { id, received_bytes });
                }
                ReceiverNotice::Dropped { id, reason, received_bytes } => {
                    self.events.push(Event::PeerDropped { id, reason, received_bytes });
                }
                ReceiverNotice::Readable => self.events.push(Event::Readable),
            }
        }
    }

    /// The part of that which concerns our own blocks.
    pub(super) fn pass_on_outcomes(&mut self, now: Instant) {
        while let Some(notice) = self.store.poll() {
            match notice {
                StoreNotice::Ended(id, outcome, remains) => {
                    if let Some(observer) = &mut self.observer {
                        observer.block_ended(now, id, &outcome, &remains);
                    }
                    self.control.forget_update(id);
                    self.fallback_ended(id, &outcome);
                    self.events.push(Event::Outcome { id, outcome });
                }
                StoreNotice::Dropped { id, reason, size, channel } => match (size, channel) {
                    _ if self.punctual == Some(false) => {}
                    (0, None) => self.control.give_up(id, reason),
                    _ => self.control.write(&ControlFrame::Dropped { id, reason, size, channel }),
                },
                StoreNotice::Updated { id, deadline, priority } => {
                    if self.punctual == Some(true) {
                        self.control.update(id, deadline.map(wire_duration), priority);
                    }
                }
            }
        }
        // What is to be said to a peer that does not speak Punctual is never said.
        self.store.hush(self.punctual != Some(false) && self.control.has_enough());
        if self.store.take_writable() {
            self.events.push(Event::Writable);
        }
    }
}

fn close_reason(error: ConnectionError) -> CloseReason {
    match error {
        ConnectionError::ApplicationClosed(close) => CloseReason::Peer {
            code: close.error_code.into_inner(),
            reason: String::from_utf8_lossy(&close.reason).into_owned(),
        },
        ConnectionError::TimedOut => CloseReason::TimedOut,
        ConnectionError::Reset => CloseReason::Reset,
        ConnectionError::LocallyClosed => CloseReason::Local,
        other => CloseReason::Transport(TransportError::of(&other)),
    }
}
