//! What handles and the driver share: the protocol behind a lock, and for each session what its handles wait for.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use punctual_proto::{
    BlockId, CloseReason, DropReason, Event, LocalId, Outcome, PathError, PathEvent, PathId, PathStats, ProtocolError,
    ReceivedBlock, SessionId, multipath::PathHealth,
};
use tokio::sync::{Notify, broadcast, oneshot, watch};
use tracing::{Span, debug, info, info_span, trace, warn};

use crate::{
    ends::Ends,
    events::{SessionEvent, Undelivered},
    local::Local,
    qlog::{Logs, Role, SharedLog},
    snapshot::Snapshot,
};

/// Shared by an endpoint's driver and all handles.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// There is work for the driver.
    pub(crate) wake: Notify,
    /// A session waits to be accepted, or none will come any more.
    pub(crate) accepted: Notify,
    /// No session is left.
    pub(crate) idle: Notify,
}

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        Self { state: Mutex::new(state), wake: Notify::new(), accepted: Notify::new(), idle: Notify::new() }
    }

    /// Works on the state. The time is taken under the lock, so that for the protocol it never runs backwards.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut State, Instant) -> R) -> R {
        // Only a bug can poison the lock; the driver's end then marks the endpoint dead.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut state, Instant::now())
    }

    /// As [`with`](Self::with), and has the driver send and tell what came of it.
    pub(crate) fn drive<R>(&self, work: impl FnOnce(&mut State, Instant) -> R) -> R {
        let result = self.with(work);
        self.wake.notify_one();
        result
    }
}

/// Everything behind the lock.
pub(crate) struct State {
    pub(crate) core: punctual_proto::Endpoint,
    pub(crate) sessions: HashMap<SessionId, Slot>,
    /// Sessions that clients have opened and nobody has accepted yet.
    pub(crate) incoming: VecDeque<SessionId>,
    /// How many may wait. They are kept when they end, for the blocks they brought.
    pub(crate) max_incoming: usize,
    pub(crate) ends: Ends,
    pub(crate) logs: Option<Arc<Logs>>,
    /// Set once the endpoint is closing: no session comes in or begins any more.
    pub(crate) closing: Option<(u32, String)>,
    /// Races for a session that have been begun.
    pub(crate) races: u64,
    /// No endpoint handle is left.
    pub(crate) abandoned: bool,
    /// The driver is gone, with its runtime or by a bug; nothing will happen any more.
    pub(crate) dead: bool,
}

/// Why the session cannot be worked with.
pub(crate) struct Gone;

/// With what code and words something is closed that is merely dropped: one whose thread panics is not at a good end, and its peer is not to believe so.
pub(crate) fn farewell() -> (u32, &'static str) {
    if std::thread::panicking() { (ProtocolError::Panicked.code() as u32, "the program has panicked") } else { (0, "") }
}

impl State {
    /// The protocol's half of a session and ours, while it lives.
    pub(crate) fn session(&mut self, id: SessionId) -> Result<(&mut punctual_proto::Session, &mut Slot), Gone> {
        if self.dead {
            return Err(Gone);
        }
        match (self.core.session(id), self.sessions.get_mut(&id)) {
            (Some(session), Some(slot)) if slot.closed.is_none() => Ok((session, slot)),
            _ => Err(Gone),
        }
    }

    /// Begins the books of a new session.
    pub(crate) fn open_slot(&mut self, id: SessionId, role: Role) -> &mut Slot {
        let log = self.logs.as_ref().map(|logs| logs.of(id));
        self.sessions.entry(id).or_insert_with(|| Slot::new(info_span!("session", role = role.name(), id = id.0), log))
    }

    /// Drains the protocol's events; `true` if there were any.
    pub(crate) fn dispatch_events(&mut self, now: Instant, accepted: &Notify) -> bool {
        let mut any = false;
        while let Some((id, event)) = self.core.poll_event() {
            any = true;
            if !self.sessions.contains_key(&id) {
                self.meet(id, &event, now, accepted);
            }
            if let Some(slot) = self.sessions.get_mut(&id) {
                if slot.beaten && matches!(event, Event::Connected { .. }) {
                    // In the same moment as the winner; it has been closed since.
                    continue;
                }
                let (opened, of_path, connected) = match event {
                    Event::Path { event, .. } => (event == PathEvent::Opened, true, false),
                    Event::Connected { .. } => (false, false, true),
                    _ => (false, false, false),
                };
                slot.handle(&mut self.core, id, event, now);
                let race = slot.race.take_if(|_| connected);
                slot.won = slot.won.or(race);
                if slot.is_forgotten() {
                    self.sessions.remove(&id);
                }
                if let Some(race) = race {
                    self.close_losers(race, now);
                }
                if opened {
                    self.close_orphans(id, now);
                }
                if of_path {
                    self.tell_of_paths(id, now);
                }
            }
        }
        any
    }

    /// A session shows itself for the first time: a client has opened it.
    fn meet(&mut self, id: SessionId, event: &Event, now: Instant, accepted: &Notify) {
        if !matches!(event, Event::Connected { .. }) {
            // It ended before it began; nobody was told of it.
            debug!(session = id.0, ?event, "an incoming session failed");
            return;
        }
        let refusal = match &self.closing {
            Some((code, reason)) => Some((*code, &reason[..])),
            None => (self.incoming.len() >= self.max_incoming).then_some((0, "nobody accepts the session")),
        };
        if let Some((code, reason)) = refusal {
            if let Some(session) = self.core.session(id) {
                session.close(now, code, reason);
            }
            return;
        }
        let slot = self.open_slot(id, Role::Server);
        slot.held = true;
        self.incoming.push_back(id);
        accepted.notify_waiters();
    }

    /// A session's last handle is gone.
    pub(crate) fn release(&mut self, id: SessionId, now: Instant) {
        let Some(slot) = self.sessions.get_mut(&id) else { return };
        slot.held = false;
        if slot.is_forgotten() {
            self.sessions.remove(&id);
        } else if let Some(session) = self.core.session(id).filter(|_| !self.dead) {
            let (code, words) = farewell();
            session.close(now, code, words);
        }
    }

    /// Gives a socket up, and before it the paths over it. What it was; `None` if there is no such socket.
    pub(crate) fn unbind(&mut self, id: LocalId, now: Instant) -> Option<Local> {
        let (socket, gone) = self.ends.remove(id)?;
        info!(address = %socket.address, bind = %socket.bind, "unbound");
        let ids: Vec<_> = self.sessions.keys().copied().collect();
        for id in ids {
            let Ok((session, slot)) = self.session(id) else { continue };
            if slot.punctual.is_none() && slot.begins_at.is_some_and(|local| gone.contains(&local)) {
                session.close(now, 0, "");
                continue;
            }
            let waiting = slot.opening.iter().filter(|(_, opening)| gone.contains(&opening.local)).map(|(id, _)| *id);
            let mut paths: Vec<_> = waiting.collect();
            paths.extend(session.path_stats(now).iter().filter(|p| gone.contains(&p.network.local)).map(|p| p.id));
            for path in paths {
                // It may be the session's last, which stays until there is another; or it is in both lists.
                let _: Result<(), PathError> = session.close_path(now, path);
            }
            self.tell_of_paths(id, now);
        }
        Some(socket.describe())
    }

    /// A name for a race.
    pub(crate) fn new_race(&mut self) -> u64 {
        self.races += 1;
        self.races
    }

    /// Whether a session of the race is connected.
    pub(crate) fn is_won(&self, race: u64) -> bool {
        self.sessions.values().any(|slot| slot.won == Some(race))
    }

    /// A session of the race is connected. The others are closed before another datagram of theirs leaves, so that none of them is connected at
    /// the server, which then tells its application of one session only.
    fn close_losers(&mut self, race: u64, now: Instant) {
        for (id, slot) in self.sessions.iter_mut().filter(|(_, slot)| slot.race == Some(race)) {
            slot.beaten = true;
            if let Some(session) = self.core.session(*id) {
                session.close(now, 0, "");
            }
        }
    }

    /// Whether the session has a path that answers, from a socket that is there.
    pub(crate) fn is_reachable(&mut self, id: SessionId, now: Instant) -> bool {
        let paths = match self.session(id) {
            Ok((session, _)) => session.path_stats(now),
            Err(Gone) => return false,
        };
        let answers = |path: &PathStats| path.health == PathHealth::Active;
        paths.iter().any(|path| answers(path) && self.ends.resolve(path.network.local).is_some())
    }

    /// Tells who waits for it that a session's paths have changed.
    fn tell_of_paths(&mut self, id: SessionId, now: Instant) {
        let reachable = self.is_reachable(id, now);
        let Some(slot) = self.sessions.get_mut(&id).filter(|slot| slot.closed.is_none()) else { return };
        if std::mem::replace(&mut slot.stranded, !reachable) == reachable {
            slot.publish(if reachable { SessionEvent::Resumed } else { SessionEvent::Stranded });
        }
        slot.signals.paths.send_modify(|changes| *changes += 1);
    }

    /// Closes paths whose socket is gone, which was not possible as long as they were all the session had.
    fn close_orphans(&mut self, id: SessionId, now: Instant) {
        if self.dead {
            return;
        }
        let Some(session) = self.core.session(id) else { return };
        for path in session.path_stats(now) {
            if self.ends.resolve(path.network.local).is_none() {
                let _: Result<(), PathError> = session.close_path(now, path.id);
            }
        }
    }

    /// Stops accepting, and closes every session.
    pub(crate) fn close(&mut self, now: Instant, code: u32, reason: &str) {
        if self.closing.is_some() || self.dead {
            return;
        }
        info!(sessions = self.sessions.len(), code, reason, "endpoint closing");
        self.closing = Some((code, reason.to_owned()));
        self.core.set_server(None);
        self.core.close_all(now, code, reason);
        for id in std::mem::take(&mut self.incoming) {
            self.release(id, now);
        }
    }

    /// The driver is gone: whoever waits is told.
    pub(crate) fn die(&mut self) {
        self.dead = true;
        for slot in self.sessions.values_mut() {
            slot.end(CloseReason::Local);
        }
        self.sessions.retain(|_, slot| !slot.is_forgotten());
        self.incoming.clear();
    }
}

/// What the handles of one session wait for.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// A block may be there to receive.
    pub(crate) readable: Notify,
    /// There may be room for a block.
    pub(crate) writable: Notify,
    /// It is connected or closed, or (while finishing) has no live block left.
    pub(crate) changed: Notify,
    /// How often a path has changed; also at the session's end.
    pub(crate) paths: watch::Sender<u64>,
}

impl Signals {
    fn all(&self) {
        self.readable.notify_waiters();
        self.writable.notify_waiters();
        self.changed.notify_waiters();
        self.paths.send_modify(|changes| *changes += 1);
    }
}

/// A path on its way.
pub(crate) struct Opening {
    pub(crate) local: LocalId,
    /// Who waits for it to be validated, or given up.
    pub(crate) tell: oneshot::Sender<bool>,
}

/// What the library keeps for a session beside the protocol's own state.
pub(crate) struct Slot {
    pub(crate) signals: Arc<Signals>,
    pub(crate) span: Span,
    /// Whether the peer speaks `punctual/1`, once connected.
    pub(crate) punctual: Option<bool>,
    pub(crate) closed: Option<CloseReason>,
    /// Whether it has handles, or waits to be accepted.
    pub(crate) held: bool,
    /// Who waits for which of our live blocks to end.
    pub(crate) outcomes: HashMap<BlockId, oneshot::Sender<Outcome>>,
    /// Of a session that we begin: the end from which.
    pub(crate) begins_at: Option<LocalId>,
    /// The race it runs, until it is connected.
    pub(crate) race: Option<u64>,
    /// Another has won it.
    beaten: bool,
    /// The race it has won.
    won: Option<u64>,
    /// Whether no path is usable, as was told last.
    stranded: bool,
    /// Paths that somebody waits for.
    pub(crate) opening: HashMap<PathId, Opening>,
    /// Blocks that were complete when the session ended.
    pub(crate) inbox: VecDeque<ReceivedBlock>,
    /// Made when somebody listens.
    pub(crate) events: Option<broadcast::Sender<SessionEvent>>,
    /// Set while finishing: nothing is accepted any more, and what is dropped is noted.
    pub(crate) finishing: Option<Undelivered>,
    /// After finishing: the peer's application has taken all blocks.
    pub(crate) taken: bool,
    /// As they were when the session ended.
    pub(crate) last_stats: Option<Snapshot>,
    pub(crate) log: Option<Arc<SharedLog>>,
}

impl Slot {
    fn new(span: Span, log: Option<Arc<SharedLog>>) -> Self {
        Self {
            signals: Arc::default(),
            span,
            punctual: None,
            closed: None,
            held: false,
            outcomes: HashMap::new(),
            begins_at: None,
            race: None,
            beaten: false,
            won: None,
            stranded: false,
            opening: HashMap::new(),
            inbox: VecDeque::new(),
            events: None,
            finishing: None,
            taken: false,
            last_stats: None,
            log,
        }
    }

    /// Whether nobody can ask for it any more.
    fn is_forgotten(&self) -> bool {
        self.closed.is_some() && !self.held
    }

    fn handle(&mut self, core: &mut punctual_proto::Endpoint, id: SessionId, event: Event, now: Instant) {
        let _entered = self.span.clone().entered();
        match event {
            Event::Connected { punctual } => {
                info!(punctual, "connected");
                self.punctual = Some(punctual);
                self.signals.changed.notify_waiters();
            }
            Event::Outcome { id: block, outcome } => self.outcome(block, outcome, now),
            Event::Readable => self.signals.readable.notify_waiters(),
            Event::Writable => self.signals.writable.notify_waiters(),
            Event::Taken => {
                self.taken = true;
                self.signals.changed.notify_waiters();
            }
            Event::Heard => self.signals.changed.notify_waiters(),
            Event::PeerDropped { id, reason, received_bytes } => {
                trace!(block = id.0, %reason, received_bytes, "dropped by the peer");
                if let Some(log) = &self.log {
                    log.get().peer_dropped(now, id, reason, received_bytes);
                }
                self.publish(SessionEvent::PeerDropped { id, reason, received_bytes });
            }
            Event::Skipped { id, received_bytes } => {
                trace!(block = id.0, received_bytes, "passed over: what follows it is due");
                if let Some(log) = &self.log {
                    log.get().skipped(now, id, received_bytes);
                }
                self.publish(SessionEvent::Skipped { id, received_bytes });
            }
            Event::Expected { id, delta } => {
                if let Some(log) = &self.log {
                    log.get().expected(now, id, delta);
                }
                self.publish(SessionEvent::Expected { id, delta });
            }
            Event::Path { id, event } => self.path(id, event, now),
            Event::Closed(reason) => {
                info!(%reason, "closed");
                if let Some(session) = core.session(id) {
                    self.inbox.extend(std::iter::from_fn(|| session.recv(now)));
                    self.last_stats = Some(Snapshot::of(session, now));
                }
                if let Some(log) = self.log.take() {
                    for block in &self.inbox {
                        log.get().received(now, block);
                    }
                    log.get().closed(now, &reason);
                }
                self.end(reason);
            }
            // What this crate knows nothing of concerns nobody who uses it.
            _ => {}
        }
    }

    fn outcome(&mut self, id: BlockId, outcome: Outcome, now: Instant) {
        trace!(block = id.0, ?outcome, "ended");
        if let Some(log) = &self.log {
            log.get().outcome(now, id, &outcome);
        }
        match self.outcomes.remove(&id) {
            // Whoever had the handle may have dropped it.
            Some(waiting) => _ = waiting.send(outcome),
            None => debug_assert!(false, "block {id} ended twice, or was never sent"),
        }
        if let (Some(undelivered), Outcome::Dropped { reason, .. }) = (&mut self.finishing, outcome) {
            undelivered.blocks.push((id, reason));
        }
    }

    fn path(&mut self, id: PathId, event: PathEvent, now: Instant) {
        match event {
            PathEvent::Suspected { silent } => warn!(path = id.0, ?silent, "path suspected"),
            _ => info!(path = id.0, ?event, "path changed"),
        }
        if let Some(log) = &self.log {
            log.get().path(now, id, event);
        }
        if matches!(event, PathEvent::Opened | PathEvent::Closed)
            && let Some(waiting) = self.opening.remove(&id)
        {
            let _ = waiting.tell.send(event == PathEvent::Opened);
        }
        self.publish(SessionEvent::Path { id, event });
    }

    pub(crate) fn publish(&mut self, event: SessionEvent) {
        // Nobody may be listening any more; then the channel goes, too.
        if self.events.as_ref().is_some_and(|events| events.send(event).is_err()) {
            self.events = None;
        }
    }

    /// The session is over: everybody who waits is told.
    fn end(&mut self, reason: CloseReason) {
        if self.closed.is_none() {
            self.closed = Some(reason);
        }
        // The protocol ends every block before the session; only when the driver died are there some left.
        for (id, waiting) in self.outcomes.drain() {
            if let Some(undelivered) = &mut self.finishing {
                undelivered.blocks.push((id, DropReason::SessionClosed));
            }
            let _ = waiting.send(Outcome::Dropped { reason: DropReason::SessionClosed, good_bytes: 0 });
        }
        self.opening.clear();
        self.events = None;
        self.signals.all();
    }
}
