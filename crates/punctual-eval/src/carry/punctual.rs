//! Blocks over our own session.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use punctual_proto::{
    Block, BlockId, Channel, ClientConfig, DropReason, Event, Outcome, PathId, SendError, SessionConfig, SessionId,
    multipath::{PathBudget, PathRole},
};
use punctual_sim::{App, AppContext, ConnectionId, HostClock, HostConfig, HostId, PathHandle, World, tls};

use super::{
    CarryError, Stage, informed,
    ledger::{Ledger, Scribe, nanos},
    oracle,
};
use crate::{
    experiment::SessionSpec,
    plan::{Bulk, HandOver, Plan},
    record::Ending,
    registry::Registry,
};

/// The receiver's clock is this far ahead: nobody may assume that clocks agree.
const CLOCK_OFFSET: Duration = Duration::from_secs(3 * 3600);

/// A sender and a receiver.
pub(super) struct Pair {
    pub(super) client: HostId,
    pub(super) server: HostId,
    config: ClientConfig,
    connection: Option<ConnectionId>,
}

impl Pair {
    pub(super) fn add(
        world: &mut World,
        spec: &SessionSpec,
        stage: &Stage,
        plan: Plan,
        ledger: &Ledger,
    ) -> Result<Self, CarryError> {
        let origins: [Arc<Mutex<Option<Instant>>>; 2] = Default::default();
        let mut session = session_config(spec, &stage.registry)?;
        let observers = [0, 1].map(|end: usize| {
            let (ledger, origin) = (ledger.clone(), origins[end].clone());
            let factory: punctual_proto::ObserverFactory =
                Arc::new(move |_| Box::new(Scribe { ledger: ledger.clone(), origin: origin.clone() }));
            factory
        });
        let [sending, receiving] = observers;
        let [client_origin, server_origin] = origins;
        let sink = Sink { ledger: ledger.clone(), origin: server_origin, start: None };
        let server = tls::server_config().session(SessionConfig { observer: Some(receiving), ..session.clone() });
        session.observer = Some(sending);
        match spec.congestion.as_str() {
            oracle::NAME => session.congestion = oracle::congestion(&stage.paths, client_origin.clone()),
            informed::NAME => session.congestion = informed::congestion(&stage.paths, client_origin.clone()),
            _ => {}
        }
        let sender = Sender::new(plan, ledger.clone(), client_origin);
        let client = world.add_host(HostConfig::new().app(sender));
        let server = world.add_host(HostConfig::new().clock(HostClock::ahead(CLOCK_OFFSET)).server(server).app(sink));
        Ok(Self { client, server, config: tls::client_config().session(session), connection: None })
    }

    pub(super) fn connect(&mut self, world: &mut World, paths: &[PathHandle]) -> Result<(), CarryError> {
        let connection = world.connect(self.client, &self.config, paths);
        self.connection = Some(connection.map_err(|error| CarryError::Setting(error.to_string()))?);
        Ok(())
    }

    /// Enters what the sender has counted.
    pub(super) fn collect(&self, world: &mut World, ledger: &Ledger) {
        let Some(connection) = self.connection else { return };
        let (host, session) = world.client(connection);
        // A session that has ended before its time has taken its books with it.
        if let Some(stats) = world.enter(host, |cx| cx.session(session).map(|session| session.stats())) {
            ledger.lock().counted(&stats);
        }
    }

    /// Tells the session what its paths are for, what they cost and may carry, where that is not as usual.
    pub(super) fn set_terms(
        &self,
        world: &mut World,
        terms: impl Iterator<Item = (PathRole, f64, Option<PathBudget>)>,
    ) {
        let Some(connection) = self.connection else { return };
        let (host, session) = world.client(connection);
        for (path, (role, cost, budget)) in (0..).map(PathId).zip(terms) {
            world.enter(host, |cx| {
                let now = cx.instant();
                let Some(session) = cx.session(session) else { return };
                // A path that died since needs none.
                if cost > 0.0 {
                    let _ = session.set_path_cost(now, path, cost);
                }
                if budget.is_some() {
                    let _ = session.set_path_budget(now, path, budget);
                }
                if role != PathRole::Normal {
                    let _ = session.set_path_role(now, path, role);
                }
            });
        }
    }
}

fn session_config(spec: &SessionSpec, registry: &Registry) -> Result<SessionConfig, CarryError> {
    let mut config = SessionConfig {
        scheduler: registry.find_scheduler(&spec.scheduler).map_err(CarryError::Setting)?,
        path_scheduler: registry.find_path_scheduler(&spec.path_scheduler).map_err(CarryError::Setting)?,
        congestion: registry
            .find_controller(&spec.congestion)
            .map_err(|error| CarryError::Setting(error.to_string()))?,
        redundancy: spec.redundancy.0,
        redundancy_policy: registry.find_redundancy_policy(&spec.redundancy_policy).map_err(CarryError::Setting)?,
        probing: spec.probing.0,
        initial_window_packets: spec.initial_window_packets(),
        ..SessionConfig::default()
    };
    if let Some(size) = spec.send_buffer {
        config.limits.send_bytes = size.0;
    }
    Ok(config)
}

/// Zeros to send; contents do not matter.
fn zeros(len: usize) -> Bytes {
    static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
    if len <= ZEROS.len() { Bytes::from_static(&ZEROS[..len]) } else { vec![0; len].into() }
}

/// Hands the planned blocks over when their time has come.
struct Sender {
    plan: Plan,
    ledger: Ledger,
    /// The host's clock at the run's beginning, for the scribe.
    origin: Arc<Mutex<Option<Instant>>>,
    start: Option<(SessionId, Duration)>,
    sources: Vec<Source>,
    /// Ids of the planned blocks that were taken.
    ids: Vec<Option<BlockId>>,
}

/// How far a source has come.
struct Source {
    hand_over: HandOver,
    /// Its planned blocks that are still to come, then those that are ready and wait for room.
    to_come: VecDeque<u32>,
    waiting: VecDeque<u32>,
    /// Bytes the transport holds of it.
    held: u64,
    /// How much later than planned everything is, because the application had to wait.
    shift: Duration,
    /// What its timer is set to.
    armed: Option<Duration>,
    bulk: Option<Bulk>,
    bulk_sent: u64,
}

impl Source {
    /// Whether the application waits for room, and makes nothing until there is some.
    fn is_held_up(&self) -> bool {
        self.hand_over.blocking && !self.waiting.is_empty()
    }
}

impl Sender {
    fn new(plan: Plan, ledger: Ledger, origin: Arc<Mutex<Option<Instant>>>) -> Self {
        let mut sources: Vec<Source> = plan
            .sources
            .iter()
            .map(|source| Source {
                hand_over: source.hand_over,
                to_come: VecDeque::new(),
                waiting: VecDeque::new(),
                held: 0,
                shift: Duration::ZERO,
                armed: None,
                bulk: source.bulk,
                bulk_sent: 0,
            })
            .collect();
        for (block, index) in plan.blocks.iter().zip(0..) {
            sources[usize::from(block.source)].to_come.push_back(index);
        }
        Self { ids: vec![None; plan.blocks.len()], plan, ledger, origin, start: None, sources }
    }

    /// Tells the session of a source whose period is no secret.
    fn declare(&self, cx: &mut AppContext<'_>, session: SessionId, source: usize) {
        let Some((every, size)) = self.plan.sources[source].period else { return };
        let Some(block) = self.plan.blocks.iter().find(|block| usize::from(block.source) == source) else { return };
        if let Some(session) = cx.session(session) {
            session.expect_source(Channel(source as u32), every, size, block.deadline, block.priority);
        }
    }

    /// Sets the timer for a source's next block, unless it is set.
    fn arm(&mut self, cx: &mut AppContext<'_>, source: usize) {
        let Some((_, start)) = self.start else { return };
        let one = &mut self.sources[source];
        let Some(&index) = one.to_come.front().filter(|_| !one.is_held_up()) else { return };
        let due = start + self.plan.blocks[index as usize].at + one.shift;
        if one.armed != Some(due) {
            one.armed = Some(due);
            cx.set_timer(due, source as u64);
        }
    }

    /// Makes ready what is due.
    fn make(&mut self, cx: &AppContext<'_>, source: usize) {
        let Some((_, start)) = self.start else { return };
        let since = cx.now() - start;
        let one = &mut self.sources[source];
        one.armed = None;
        while let Some(&index) = one.to_come.front().filter(|_| !one.is_held_up()) {
            let at = self.plan.blocks[index as usize].at + one.shift;
            if at > since {
                return;
            }
            one.to_come.pop_front();
            one.waiting.push_back(index);
            self.ledger.lock().rows[index as usize].handed_over = nanos(at);
        }
    }

    /// Hands over what is ready and has room.
    fn pump(&mut self, cx: &mut AppContext<'_>, source: usize) {
        while let Some(&index) = self.sources[source].waiting.front() {
            if !self.hand_over(cx, source, index) {
                break;
            }
            let waited = cx.now().saturating_sub(self.ready_at(index));
            let one = &mut self.sources[source];
            one.waiting.pop_front();
            if one.hand_over.blocking {
                // The application was held up, and with it all that it makes.
                one.shift += waited;
            }
        }
        self.top_up(cx, source);
        self.arm(cx, source);
    }

    /// Whether the transport took the block (or it is settled that it never will).
    fn hand_over(&mut self, cx: &mut AppContext<'_>, source: usize, index: u32) -> bool {
        let Some((session, _)) = self.start else { return false };
        let planned = &self.plan.blocks[index as usize];
        let size = u64::from(planned.size);
        let Source { hand_over, held, .. } = &self.sources[source];
        // A block larger than the whole queue goes when that is empty.
        if hand_over.queue.is_some_and(|queue| *held > 0 && held + size > queue) {
            return false;
        }
        let waited = cx.now() - self.ready_at(index);
        let mut block = Block::new(zeros(planned.size as usize)).priority(planned.priority);
        block.deadline = planned.deadline;
        block.begin = cx.instant().checked_sub(waited);
        block.redundancy = self.plan.sources[source].redundancy;
        block.channel = planned.ordered.then_some(Channel(u32::from(planned.source)));
        for &on in &planned.depends_on {
            match self.ids[on as usize] {
                Some(id) => block.dependencies.push(id),
                None => {
                    self.ledger.lock().rows[index as usize].ending = Ending::DependencyDropped;
                    return true;
                }
            }
        }
        match cx.send(session, block) {
            Ok(id) => {
                let mut entries = self.ledger.lock();
                entries.name(id, Some(index));
                entries.rows[index as usize].ending = Ending::Unfinished;
                self.ids[index as usize] = Some(id);
                self.sources[source].held += size;
                true
            }
            Err(SendError::Full { .. }) => false,
            Err(_) => true,
        }
    }

    /// When a block is ready, the application's own waits counted.
    fn ready_at(&self, index: u32) -> Duration {
        let start = self.start.map_or(Duration::ZERO, |(_, start)| start);
        start + Duration::from_nanos(self.ledger.lock().rows[index as usize].handed_over)
    }

    /// Keeps a bulk transfer's backlog up.
    fn top_up(&mut self, cx: &mut AppContext<'_>, source: usize) {
        let (Some((session, start)), Some(bulk)) = (self.start, self.sources[source].bulk) else { return };
        let now = cx.now() - start;
        while (bulk.start..bulk.stop).contains(&now) {
            let Source { held, bulk_sent, .. } = &self.sources[source];
            let left = bulk.total.map_or(u64::MAX, |total| total.saturating_sub(*bulk_sent));
            let size = u64::from(bulk.block).min(left);
            if *held >= bulk.backlog || size == 0 {
                return;
            }
            let mut block = Block::new(zeros(size as usize)).priority(bulk.priority);
            block.redundancy = self.plan.sources[source].redundancy;
            let Ok(id) = cx.send(session, block) else { return };
            self.ledger.lock().name(id, None);
            self.sources[source].held += size;
            self.sources[source].bulk_sent += size;
        }
    }

    fn ended(&mut self, cx: &mut AppContext<'_>, id: BlockId, outcome: &Outcome) {
        let mut entries = self.ledger.lock();
        let Some(planned) = entries.planned(id) else { return };
        if let Some(row) = entries.row(id) {
            row.ending = ending(outcome);
        }
        drop(entries);
        let source = match planned {
            Some(index) => {
                let block = &self.plan.blocks[index as usize];
                let source = usize::from(block.source);
                self.sources[source].held -= u64::from(block.size);
                source
            }
            None => {
                // Bulk blocks of a source are all alike but perhaps the last.
                let Some(source) = self.sources.iter().position(|source| source.bulk.is_some()) else { return };
                let size = self.sources[source].bulk.map_or(0, |bulk| u64::from(bulk.block));
                self.sources[source].held = self.sources[source].held.saturating_sub(size);
                source
            }
        };
        self.pump(cx, source);
    }
}

fn ending(outcome: &Outcome) -> Ending {
    match outcome {
        Outcome::Delivered(_) => Ending::Delivered,
        Outcome::Dropped { reason: DropReason::Expired, .. } => Ending::Expired,
        Outcome::Dropped { reason: DropReason::DependencyDropped, .. } => Ending::DependencyDropped,
        Outcome::Dropped { .. } => Ending::Dropped,
    }
}

impl App for Sender {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.start = Some((session, cx.now()));
                *self.origin.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.instant());
                for source in 0..self.sources.len() {
                    self.declare(cx, session, source);
                    self.arm(cx, source);
                    if let Some(bulk) = self.sources[source].bulk {
                        cx.set_timer(cx.now() + bulk.start, source as u64);
                    }
                }
            }
            Event::Outcome { id, outcome } => self.ended(cx, id, &outcome),
            Event::Writable => (0..self.sources.len()).for_each(|source| self.pump(cx, source)),
            // Before there is a run to be over, it is the handshake that fails.
            Event::Closed(why) => {
                if let Some((_, start)) = self.start {
                    self.ledger.lock().over("sender", nanos(cx.now() - start), &why);
                }
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, token: u64) {
        let source = token as usize;
        self.make(cx, source);
        self.pump(cx, source);
    }
}

/// Takes every block at once.
struct Sink {
    ledger: Ledger,
    origin: Arc<Mutex<Option<Instant>>>,
    start: Option<Duration>,
}

impl App for Sink {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.start = Some(cx.now());
                *self.origin.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.instant());
            }
            Event::Readable => {
                while let Some(block) = cx.recv(session) {
                    let at = nanos(cx.now() - self.start.unwrap_or_default());
                    self.ledger.lock().delivered(block.id, at, block.data.len() as u64);
                }
            }
            Event::Closed(why) => {
                if let Some(start) = self.start {
                    self.ledger.lock().over("receiver", nanos(cx.now() - start), &why);
                }
            }
            _ => {}
        }
    }
}
