//! Many sessions behind one or more sockets.

mod aliases;
mod memory;
mod reset;
mod settings;
mod transport;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use bytes::BytesMut;
use noq_proto::{
    ClientConfig as QuicClientConfig, ConnectionEvent, ConnectionHandle, DatagramEvent, Incoming,
    ServerConfig as QuicServerConfig, Transmit as QuicTransmit,
};
use thiserror::Error;

use self::{
    aliases::Aliases,
    memory::{Memory, Part},
    transport::transport_config,
    turns::Turns,
};
pub use self::{reset::ResetSecret, settings::EndpointConfig};
use crate::{
    config::{ClientConfig, ConfigError, ServerConfig, SessionConfig},
    congestion::steering::Steering,
    event::Event,
    fec,
    network::{EcnCodepoint, NetworkPath, SessionId, Transmit},
    session::Session,
    token::Token,
};

/// Datagrams that a session sends before others have their turn: what one call with segmentation offload may carry.
const TRANSMITS_IN_TURN: usize = 32;

/// Why a session could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Neither a DNS name nor an IP address.
    #[error("{0:?} is not a valid server name")]
    ServerName(String),
    /// Port 0, or an unspecified address.
    #[error("{0} is not an address one can connect to")]
    RemoteAddress(SocketAddr),
    /// No session could do its work with these settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No room for another session.
    #[error("the endpoint has no room for another session")]
    Full,
}

/// Many sessions behind one or more sockets. See [the contract](crate#the-contract).
pub struct Endpoint {
    quic: noq_proto::Endpoint,
    epoch: Instant,
    server: Option<Server>,
    sessions: BTreeMap<SessionId, Entry>,
    /// By QUIC's handles, which are small numbers used again.
    by_handle: Vec<Option<SessionId>>,
    next_session: u64,
    /// Answers QUIC gives outside any session.
    replies: VecDeque<(Transmit, Vec<u8>)>,
    /// Sessions that something was done to and that have not been drained of packets since.
    stirred: VecDeque<SessionId>,
    /// Datagrams that the first of them has sent in its turn.
    sent_in_turn: usize,
    /// The same, of events.
    eventful: BTreeSet<SessionId>,
    /// When each session wants to be woken.
    alarms: BTreeSet<(Instant, SessionId)>,
    memory: Memory,
    aliases: Aliases,
    turns: Turns,
    /// The latest time we were told, to find callers whose time runs backwards.
    latest: Option<Instant>,
}

/// A session and what the endpoint has to do for it.
struct Entry {
    session: Box<Session>,
    /// Whether it is among the endpoint's `stirred`.
    stirred: bool,
    /// Its alarm among the endpoint's.
    alarm: Option<Instant>,
    /// Its part of the endpoint's memory.
    part: Part,
}

struct Server {
    quic: Arc<QuicServerConfig>,
    session: Arc<SessionConfig>,
    /// Its sessions wait for being accepted.
    holds: bool,
    /// What their clients have to show, if there is any.
    tokens: Arc<[Token]>,
}

impl Server {
    fn new(config: ServerConfig) -> Self {
        let quic = QuicServerConfig::with_crypto(config.crypto);
        Self { quic: Arc::new(quic), session: Arc::new(config.session), holds: config.holds, tokens: config.tokens }
    }
}

impl Endpoint {
    /// An endpoint; with `server`, one that accepts sessions.
    pub fn new(config: EndpointConfig, server: Option<ServerConfig>) -> Self {
        let mut quic_config = noq_proto::EndpointConfig::default();
        quic_config.rng_seed(config.seed);
        if let Some(secret) = &config.reset {
            secret.apply(&mut quic_config);
        }
        fec::prepare();
        let server = server.map(Server::new);
        let quic = noq_proto::Endpoint::new(Arc::new(quic_config), server.as_ref().map(|s| s.quic.clone()), true);
        Self {
            quic,
            epoch: config.epoch,
            server,
            sessions: BTreeMap::new(),
            by_handle: Vec::new(),
            next_session: 0,
            replies: VecDeque::new(),
            stirred: VecDeque::new(),
            sent_in_turn: 0,
            eventful: BTreeSet::new(),
            alarms: BTreeSet::new(),
            memory: Memory::default(),
            aliases: Aliases::default(),
            turns: Turns::default(),
            latest: None,
        }
    }

    /// Starts a session with the server at `path`. [`Event::Connected`] or [`Event::Closed`] follows.
    pub fn connect(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        path: NetworkPath,
        server_name: &str,
    ) -> Result<SessionId, ConnectError> {
        config.session.check()?;
        self.tick(now);
        let steering = Steering::new();
        let session = Arc::new(config.session.clone());
        let mut quic = QuicClientConfig::new(config.crypto.clone());
        quic.transport_config(Arc::new(transport_config(&session, &steering, false)));
        let (handle, conn) = self.quic.connect(now, quic, path.remote, server_name).map_err(|error| match error {
            noq_proto::ConnectError::InvalidServerName(name) => ConnectError::ServerName(name),
            noq_proto::ConnectError::InvalidRemoteAddress(address) => ConnectError::RemoteAddress(address),
            _ => ConnectError::Full,
        })?;
        let id = self.add(now, conn, handle, session, path, steering);
        if let (Some(entry), Some(token)) = (self.sessions.get_mut(&id), &config.token) {
            entry.session.show(token.clone());
        }
        Ok(id)
    }

    /// Stops (or resumes, with `Some`) accepting new sessions.
    pub fn set_server(&mut self, server: Option<ServerConfig>) {
        self.server = server.map(Server::new);
        self.quic.set_server_config(self.server.as_ref().map(|server| server.quic.clone()));
    }

    /// Takes in one UDP datagram.
    pub fn handle_datagram(&mut self, now: Instant, path: NetworkPath, ecn: Option<EcnCodepoint>, data: BytesMut) {
        if let Some(event) = self.sort(now, path, ecn, data) {
            self.take_in(now, path, ecn, event);
        }
    }

    /// Finds out whom a datagram is for. What is for nobody is answered, if it is to be.
    fn sort(
        &mut self,
        now: Instant,
        path: NetworkPath,
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
    ) -> Option<DatagramEvent> {
        self.tick(now);
        let mut buf = Vec::new();
        let shown = NetworkPath { remote: self.aliases.show(path.remote), ..path };
        match self.quic.handle(now, shown.tuple(), ecn.and_then(EcnCodepoint::to_quic), data, &mut buf)? {
            DatagramEvent::Response(transmit) => {
                self.reply(path, &transmit, buf);
                None
            }
            event => Some(event),
        }
    }

    fn take_in(&mut self, now: Instant, path: NetworkPath, ecn: Option<EcnCodepoint>, event: DatagramEvent) {
        match event {
            DatagramEvent::Response(_) => debug_assert!(false, "it has been answered"),
            DatagramEvent::NewConnection(incoming) => self.accept(now, path, incoming),
            DatagramEvent::ConnectionEvent(handle, event) => {
                if let Some(id) = self.by_handle.get(handle.0).copied().flatten() {
                    self.give(now, id, path, ecn, event);
                }
            }
        }
    }

    /// Gives a session what came for it.
    fn give(
        &mut self,
        now: Instant,
        id: SessionId,
        path: NetworkPath,
        ecn: Option<EcnCodepoint>,
        event: ConnectionEvent,
    ) {
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        if entry.session.handle_datagram(now, path, ecn, event) {
            self.aliases.change(path.remote);
        }
        self.memory.note(&mut entry.part, entry.session.held_bytes());
        if self.memory.is_too_much(entry.session.limits()) {
            self.make_room(now, id);
        }
        self.stir(id);
    }

    /// Writes the next datagram to send into `buf`, which must be empty.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.tick(now);
        if let Some((transmit, bytes)) = self.replies.pop_front() {
            buf.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(&id) = self.stirred.front() {
            if let Some(entry) = self.sessions.get_mut(&id) {
                let transmit = entry.session.poll_transmit(now, buf);
                let answered = self.forward(id);
                if transmit.is_some() {
                    self.share(id);
                    return transmit;
                }
                if answered {
                    continue;
                }
            }
            self.stirred.pop_front();
            self.sent_in_turn = 0;
            self.rest(id);
        }
        None
    }

    /// The next event of any session. An id not seen before is a session that a client has opened.
    pub fn poll_event(&mut self) -> Option<(SessionId, Event)> {
        while let Some(&id) = self.eventful.first() {
            let entry = self.sessions.get_mut(&id);
            if let Some(event) = entry.and_then(|entry| entry.session.poll_event()) {
                return Some((id, event));
            }
            self.eventful.remove(&id);
            self.forget_if_over(id);
        }
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        debug_assert!(
            self.stirred.is_empty() && self.eventful.is_empty() && self.replies.is_empty(),
            "poll_transmit and poll_event must be drained before poll_timeout"
        );
        self.alarms.first().map(|&(at, _)| at)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tick(now);
        while let Some(&(at, id)) = self.alarms.first() {
            if at > now {
                break;
            }
            self.alarms.pop_first();
            if let Some(entry) = self.sessions.get_mut(&id) {
                entry.alarm = None;
                entry.session.handle_timeout(now);
                self.stir(id);
            }
        }
    }

    /// A session, for as long as it lives: until some time after its [`Event::Closed`].
    ///
    /// The endpoint must be drained afterwards, as after any input.
    pub fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.stir(id);
        let session = &mut self.sessions.get_mut(&id)?.session;
        session.catch_up();
        Some(session)
    }

    /// Sessions that have not been forgotten yet, those closing included.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Whether every session is over and its peer has been told as often as it will be. They are forgotten only some time later, as somebody may still ask.
    pub fn has_parted(&self) -> bool {
        self.sessions.values().all(|entry| entry.session.has_parted())
    }

    /// Closes every session, those in the middle of their handshake included; see [`Session::close`].
    pub fn close_all(&mut self, now: Instant, code: u32, reason: &str) {
        let ids: Vec<_> = self.sessions.keys().copied().collect();
        ids.into_iter()
            .for_each(|id| self.session(id).into_iter().for_each(|session| session.close(now, code, reason)));
    }

    /// A session has sent a datagram. After some of them others have their turn.
    fn share(&mut self, id: SessionId) {
        self.sent_in_turn += 1;
        if self.sent_in_turn >= TRANSMITS_IN_TURN && self.stirred.len() > 1 {
            self.sent_in_turn = 0;
            self.stirred.pop_front();
            self.stirred.push_back(id);
        }
    }

    fn tick(&mut self, now: Instant) {
        debug_assert!(self.latest.is_none_or(|latest| now >= latest), "time must not run backwards");
        self.latest = Some(now);
    }

    fn accept(&mut self, now: Instant, path: NetworkPath, incoming: Incoming) {
        let mut buf = Vec::new();
        let Some(server) = &self.server else {
            self.quic.ignore(incoming);
            return;
        };
        let max = server.session.limits.sessions;
        if self.sessions.len() >= max {
            let transmit = self.quic.refuse(incoming, &mut buf);
            return self.reply(path, &transmit, buf);
        }
        // When it gets crowded, only those who can be reached at the address they claim get a session's memory.
        if self.sessions.len() * 2 >= max && !incoming.remote_address_validated() {
            match self.quic.retry(incoming, &mut buf) {
                Ok(transmit) => self.reply(path, &transmit, buf),
                Err(error) => self.quic.ignore(error.into_incoming()),
            }
            return;
        }
        let steering = Steering::new();
        let (session, holds, tokens) = (server.session.clone(), server.holds, server.tokens.clone());
        let mut quic = (*server.quic).clone();
        quic.transport_config(Arc::new(transport_config(&session, &steering, holds || !tokens.is_empty())));
        match self.quic.accept(incoming, now, &mut buf, Some(Arc::new(quic))) {
            Ok((handle, conn)) => {
                let id = self.add(now, conn, handle, session, path, steering);
                if let Some(entry) = self.sessions.get_mut(&id) {
                    if holds {
                        entry.session.await_acceptance();
                    }
                    entry.session.want(tokens);
                }
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.reply(path, &transmit, buf);
                }
            }
        }
    }

    fn add(
        &mut self,
        now: Instant,
        conn: noq_proto::Connection,
        handle: ConnectionHandle,
        config: Arc<SessionConfig>,
        path: NetworkPath,
        steering: Arc<Steering>,
    ) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let observer = config.observer.as_ref().map(|make| make(id));
        let mut session = Box::new(Session::new(conn, handle, config, self.epoch, path, steering, observer));
        session.start(now);
        let part = self.memory.promise(session.limits());
        session.set_window(part.promised());
        self.sessions.insert(id, Entry { session, stirred: false, alarm: None, part });
        if self.by_handle.len() <= handle.0 {
            self.by_handle.resize(handle.0 + 1, None);
        }
        self.by_handle[handle.0] = Some(id);
        self.stir(id);
        id
    }

    /// All sessions together hold too much, it seems: what the applications have taken since is not counted yet. `newest` has just added to it.
    fn make_room(&mut self, now: Instant, newest: SessionId) {
        for entry in self.sessions.values_mut() {
            self.memory.note(&mut entry.part, entry.session.held_bytes());
        }
        let Some(limits) = self.sessions.get(&newest).map(|entry| *entry.session.limits()) else { return };
        while self.memory.is_too_much(&limits) {
            let largest = self.sessions.iter_mut().max_by_key(|(id, entry)| entry.part.weight(**id));
            let Some((&id, entry)) = largest else { return };
            entry.session.give_up_for_others(now);
            self.memory.note(&mut entry.part, entry.session.held_bytes());
            self.stir(id);
        }
    }

    fn reply(&mut self, path: NetworkPath, transmit: &QuicTransmit, mut buf: Vec<u8>) {
        // What cannot be sent soon is not worth keeping: these answers are to strangers.
        const MAX_REPLIES: usize = 1_024;
        if self.replies.len() < MAX_REPLIES {
            buf.truncate(transmit.size);
            let ecn = transmit.ecn.and_then(EcnCodepoint::from_quic);
            self.replies.push_back((Transmit { path, size: transmit.size, ecn }, buf));
        }
    }

    /// Something was done to a session: it may have packets and events.
    fn stir(&mut self, id: SessionId) {
        self.forward(id);
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        if !std::mem::replace(&mut entry.stirred, true) {
            self.stirred.push_back(id);
        }
        self.eventful.insert(id);
    }

    /// Carries what QUIC's connection and endpoint have to tell each other. Whether the connection was told something,
    /// which it may want to pass on.
    fn forward(&mut self, id: SessionId) -> bool {
        let Some(Entry { session, .. }) = self.sessions.get_mut(&id) else { return false };
        let handle = session.handle();
        let mut answered = false;
        while let Some(event) = session.poll_endpoint_event() {
            if event.is_drained() {
                self.by_handle[handle.0] = None;
            }
            if let Some(answer) = self.quic.handle_event(handle, event) {
                session.on_endpoint_answer(answer);
                answered = true;
            }
        }
        answered
    }

    /// A session has no more packets for now.
    fn rest(&mut self, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        entry.stirred = false;
        let at = entry.session.poll_timeout();
        if at != entry.alarm {
            if let Some(old) = std::mem::replace(&mut entry.alarm, at) {
                self.alarms.remove(&(old, id));
            }
            self.alarms.extend(at.map(|at| (at, id)));
        }
        // Packets may have changed what there is to say as well.
        self.eventful.insert(id);
    }

    fn forget_if_over(&mut self, id: SessionId) {
        if self.sessions.get(&id).is_none_or(|entry| !entry.session.is_over()) {
            return;
        }
        let Some(entry) = self.sessions.remove(&id) else { return };
        self.memory.forget(&entry.part);
        if let Some(at) = entry.alarm {
            self.alarms.remove(&(at, id));
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}
