//! A host: a clock, and what runs by it.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use punctual_proto::{
    Block, BlockError, BlockId, BlockUpdate, EcnCodepoint, Endpoint, EndpointConfig, Event, NetworkPath, ReceivedBlock,
    SendError, ServerConfig, Session, SessionId, Transmit,
};

use crate::{
    clock::{HostClock, LocalClock},
    log::{AppEvent, EventLog, What},
    node::{Moment, Node},
    queue::{Alarm, EventQueue, Target},
    stuck::MOST_SPINS,
    world::HostId,
};

/// What runs on a host: it reacts to its sessions' events and to timers, in virtual time.
///
/// Whatever it does through its [`AppContext`] reaches the endpoint at once; the world drains the endpoint when the
/// call returns. To read what an application has gathered, use [`World::app`](crate::World::app).
pub trait App: Any {
    /// A session has something to say. [`Event::Connected`] is the first; after
    /// [`World::handshake`](crate::World::handshake) it comes when the measured run begins.
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event);

    /// A timer that was set with [`AppContext::set_timer`] has come.
    fn on_timer(&mut self, cx: &mut AppContext<'_>, token: u64) {
        let _ = (cx, token);
    }
}

/// What a host is made of.
#[derive(Default)]
pub struct HostConfig {
    /// Its clock.
    pub clock: HostClock,
    /// How it accepts sessions, if it does.
    pub server: Option<ServerConfig>,
    /// What runs on it. Without, its events wait for [`World::take_events`](crate::World::take_events).
    pub app: Option<Box<dyn App>>,
}

impl HostConfig {
    /// A client with a perfect clock and no application.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets its clock.
    pub fn clock(self, clock: HostClock) -> Self {
        Self { clock, ..self }
    }

    /// Makes it a server.
    pub fn server(self, server: ServerConfig) -> Self {
        Self { server: Some(server), ..self }
    }

    /// Sets what runs on it.
    pub fn app(self, app: impl App) -> Self {
        Self { app: Some(Box::new(app)), ..self }
    }
}

/// A host in a world.
pub(crate) struct Host {
    pub(crate) id: HostId,
    pub(crate) clock: LocalClock,
    pub(crate) stack: Stack,
    pub(crate) alarm: Alarm,
    /// Where its datagrams go: indices into the world's routes. Looked up only, never iterated.
    pub(crate) routes: HashMap<NetworkPath, usize>,
    /// Its own ends that are taken.
    pub(crate) locals: u32,
    /// Until when it sleeps, if it does.
    pub(crate) asleep_until: Option<Duration>,
    /// Wake-ups on end that did not move time.
    spins: u32,
    last_wake: Duration,
}

/// What a host runs.
pub(crate) enum Stack {
    Punctual(Box<Punctual>),
    Foreign(Box<dyn Node>),
}

/// An endpoint and the application on top.
pub(crate) struct Punctual {
    pub(crate) endpoint: Endpoint,
    pub(crate) app: Option<Box<dyn App>>,
    /// Sessions it has heard of.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// Events for which there is no application.
    pub(crate) inbox: Vec<(Duration, SessionId, Event)>,
}

impl Host {
    pub(crate) fn new(id: HostId, config: HostConfig, anchor: Instant, seed: [u8; 32]) -> Self {
        let clock = LocalClock::new(anchor, config.clock);
        let endpoint = EndpointConfig::new(clock.epoch()).seed(seed);
        let punctual = Punctual {
            endpoint: Endpoint::new(endpoint, config.server),
            app: config.app,
            sessions: BTreeSet::new(),
            inbox: Vec::new(),
        };
        Self::with_stack(id, clock, Stack::Punctual(Box::new(punctual)))
    }

    pub(crate) fn foreign(id: HostId, node: Box<dyn Node>, anchor: Instant) -> Self {
        Self::with_stack(id, LocalClock::new(anchor, HostClock::default()), Stack::Foreign(node))
    }

    fn with_stack(id: HostId, clock: LocalClock, stack: Stack) -> Self {
        let (alarm, routes) = (Alarm::default(), HashMap::new());
        Self { id, clock, stack, alarm, routes, locals: 0, asleep_until: None, spins: 0, last_wake: Duration::ZERO }
    }

    pub(crate) fn moment(&self, now: Duration) -> Moment {
        Moment { now, instant: self.clock.instant(now) }
    }

    /// What is there if the host runs Punctual.
    pub(crate) fn punctual(&self) -> Option<&Punctual> {
        match &self.stack {
            Stack::Punctual(punctual) => Some(punctual),
            Stack::Foreign(_) => None,
        }
    }

    pub(crate) fn punctual_mut(&mut self) -> Option<&mut Punctual> {
        match &mut self.stack {
            Stack::Punctual(punctual) => Some(punctual),
            Stack::Foreign(_) => None,
        }
    }

    pub(crate) fn node(&self) -> Option<&dyn Node> {
        match &self.stack {
            Stack::Punctual(_) => None,
            Stack::Foreign(node) => Some(node.as_ref()),
        }
    }

    pub(crate) fn node_mut(&mut self) -> Option<&mut dyn Node> {
        match &mut self.stack {
            Stack::Punctual(_) => None,
            Stack::Foreign(node) => Some(node.as_mut()),
        }
    }

    /// Calls the timeout of what it runs if it is due. Whether that makes sense: not if it wants it again and again without any
    /// time passing.
    pub(crate) fn wake(&mut self, now: Duration) -> bool {
        let at = self.moment(now);
        if self.stack.poll_timeout().is_some_and(|due| due <= at.instant) {
            self.spins = if self.last_wake == now { self.spins + 1 } else { 0 };
            self.last_wake = now;
            if self.spins >= MOST_SPINS {
                return false;
            }
            self.stack.handle_timeout(at);
        }
        true
    }

    /// Sees to it that it is woken in time.
    pub(crate) fn set_alarm(&mut self, now: Duration, queue: &mut EventQueue) {
        if let Some(due) = self.stack.poll_timeout() {
            self.alarm.set(self.clock.time(due).max(now), queue, Target::Host(self.id));
        }
    }

    /// The application, and its hands; of a host that runs Punctual.
    pub(crate) fn context<'a>(
        &'a mut self,
        now: Duration,
        queue: &'a mut EventQueue,
        log: &'a mut EventLog,
    ) -> Option<(AppContext<'a>, &'a mut Option<Box<dyn App>>)> {
        let (host, instant) = (self.id, self.clock.instant(now));
        let Punctual { endpoint, app, .. } = self.punctual_mut()?;
        Some((AppContext { host, now, instant, endpoint, queue, log }, app))
    }
}

impl Stack {
    pub(crate) fn handle_datagram(&mut self, at: Moment, path: NetworkPath, ecn: Option<EcnCodepoint>, data: BytesMut) {
        match self {
            Self::Punctual(punctual) => punctual.endpoint.handle_datagram(at.instant, path, ecn, data),
            Self::Foreign(node) => node.handle_datagram(at, path, ecn, data),
        }
    }

    pub(crate) fn poll_transmit(&mut self, at: Moment, buf: &mut Vec<u8>) -> Option<Transmit> {
        match self {
            Self::Punctual(punctual) => punctual.endpoint.poll_transmit(at.instant, buf),
            Self::Foreign(node) => node.poll_transmit(at, buf),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Punctual(punctual) => punctual.endpoint.poll_timeout(),
            Self::Foreign(node) => node.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, at: Moment) {
        match self {
            Self::Punctual(punctual) => punctual.endpoint.handle_timeout(at.instant),
            Self::Foreign(node) => node.handle_timeout(at),
        }
    }
}

/// An application's hands: what it can see and do while it is called.
pub struct AppContext<'a> {
    host: HostId,
    now: Duration,
    instant: Instant,
    endpoint: &'a mut Endpoint,
    queue: &'a mut EventQueue,
    log: &'a mut EventLog,
}

impl AppContext<'_> {
    /// Virtual time: the truth, which no host knows.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The host's own clock.
    pub fn instant(&self) -> Instant {
        self.instant
    }

    /// The host the application runs on.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Has [`App::on_timer`] called with `token` at a virtual time, now or later. There can be any number of timers.
    pub fn set_timer(&mut self, at: Duration, token: u64) {
        self.queue.push(at.max(self.now), Target::Timer(self.host, token));
    }

    /// A session, for all that has no method here.
    pub fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.endpoint.session(id)
    }

    /// Hands a block over.
    ///
    /// # Errors
    /// As [`Session::send`]; [`SendError::Closed`] too if there is no such session.
    pub fn send(&mut self, session: SessionId, block: Block) -> Result<BlockId, SendError> {
        let bytes = block.data.len() as u64;
        let id = self.endpoint.session(session).ok_or(SendError::Closed)?.send(self.instant, block)?;
        self.note(session, AppEvent::Sent { id, bytes });
        Ok(id)
    }

    /// The next complete block.
    pub fn recv(&mut self, session: SessionId) -> Option<ReceivedBlock> {
        let block = self.endpoint.session(session)?.recv(self.instant)?;
        self.note(session, AppEvent::Received { id: block.id, bytes: block.data.len() as u64 });
        Some(block)
    }

    /// Changes what was said of a block.
    ///
    /// # Errors
    /// As [`Session::update`].
    pub fn update(&mut self, session: SessionId, id: BlockId, update: BlockUpdate) -> Result<(), BlockError> {
        let now = self.instant;
        self.endpoint.session(session).ok_or(BlockError::NotLive(id))?.update(now, id, update)
    }

    /// Drops a block.
    ///
    /// # Errors
    /// As [`Session::cancel`].
    pub fn cancel(&mut self, session: SessionId, id: BlockId) -> Result<(), BlockError> {
        let now = self.instant;
        self.endpoint.session(session).ok_or(BlockError::NotLive(id))?.cancel(now, id)
    }

    /// Ends a session at once.
    pub fn close(&mut self, session: SessionId, code: u32, reason: &str) {
        let now = self.instant;
        if let Some(session) = self.endpoint.session(session) {
            session.close(now, code, reason);
        }
    }

    pub(crate) fn note(&mut self, session: SessionId, event: AppEvent) {
        self.log.push(self.now, What::App { host: self.host, session, event });
    }
}
