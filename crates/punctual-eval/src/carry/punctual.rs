//! Blocks over our own session.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use punctual_proto::{
    ClientConfig, Event, PathId, SessionConfig, SessionId,
    multipath::{PathBudget, PathRole},
};
use punctual_sim::{App, AppContext, ConnectionId, HostClock, HostConfig, HostId, PathHandle, World, tls};

use super::{
    CarryError, Stage, informed,
    ledger::{Ledger, Scribe, nanos},
    oracle,
    sender::Sender,
};
use crate::{experiment::SessionSpec, plan::Plan, registry::Registry};

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
    /// `reply` is what the receiver hands over to the sender, if it does.
    pub(super) fn add(
        world: &mut World,
        spec: &SessionSpec,
        stage: &Stage,
        (plan, ledger): (Plan, &Ledger),
        reply: Option<(Plan, &Ledger)>,
    ) -> Result<Self, CarryError> {
        let origins: [Arc<Mutex<Option<Instant>>>; 2] = Default::default();
        let mut session = session_config(spec, &stage.registry)?;
        let of_reply = reply.as_ref().map(|(_, ledger)| (*ledger).clone());
        let observer = |sent: Option<Ledger>, taken: Option<Ledger>, origin: &Arc<Mutex<Option<Instant>>>| {
            let scribe = Scribe { sent, taken, origin: origin.clone() };
            let factory: punctual_proto::ObserverFactory = Arc::new(move |_| Box::new(scribe.clone()));
            factory
        };
        let sending = observer(Some(ledger.clone()), of_reply.clone(), &origins[0]);
        let receiving = observer(of_reply.clone(), Some(ledger.clone()), &origins[1]);
        let [client_origin, server_origin] = origins;
        let server = tls::server_config().session(SessionConfig { observer: Some(receiving), ..session.clone() });
        session.observer = Some(sending);
        match spec.congestion.as_str() {
            oracle::NAME => session.congestion = oracle::congestion(&stage.paths, client_origin.clone()),
            informed::NAME => session.congestion = informed::congestion(&stage.paths, client_origin.clone()),
            _ => {}
        }
        let near = End {
            sender: Some(Sender::new(plan, ledger.clone())),
            sink: of_reply.map(Sink::new),
            role: "sender",
            ledger: ledger.clone(),
            origin: client_origin,
            start: None,
        };
        let far = End {
            sender: reply.map(|(plan, ledger)| Sender::new(plan, ledger.clone())),
            sink: Some(Sink::new(ledger.clone())),
            role: "receiver",
            ledger: ledger.clone(),
            origin: server_origin,
            start: None,
        };
        let client = world.add_host(HostConfig::new().app(near));
        let server = world.add_host(HostConfig::new().clock(HostClock::ahead(CLOCK_OFFSET)).server(server).app(far));
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

/// The application at one end of a session.
struct End {
    /// What it hands over, if it does.
    sender: Option<Sender>,
    /// Where it puts what comes, if something can.
    sink: Option<Sink>,
    /// What it is in the flow that is looked at, whose `ledger` says how the session ended.
    role: &'static str,
    ledger: Ledger,
    /// The host's clock at the run's beginning, for the scribe.
    origin: Arc<Mutex<Option<Instant>>>,
    start: Option<Duration>,
}

impl App for End {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.start = Some(cx.now());
                *self.origin.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.instant());
                if let Some(sender) = &mut self.sender {
                    sender.begin(cx, session);
                }
            }
            Event::Readable => {
                if let Some(sink) = &self.sink {
                    sink.take_all(cx, session, self.start.unwrap_or_default());
                }
            }
            Event::Outcome { id, outcome } => {
                if let Some(sender) = &mut self.sender {
                    sender.ended(cx, id, &outcome);
                }
            }
            Event::Writable => {
                if let Some(sender) = &mut self.sender {
                    sender.pump_all(cx);
                }
            }
            // Before there is a run to be over, it is the handshake that fails.
            Event::Closed(why) => {
                if let Some(start) = self.start {
                    self.ledger.lock().over(self.role, nanos(cx.now() - start), &why);
                }
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, token: u64) {
        if let Some(sender) = &mut self.sender {
            sender.on_timer(cx, token as usize);
        }
    }
}

/// Takes every block at once.
struct Sink {
    ledger: Ledger,
}

impl Sink {
    fn new(ledger: Ledger) -> Self {
        Self { ledger }
    }

    fn take_all(&self, cx: &mut AppContext<'_>, session: SessionId, start: Duration) {
        while let Some(block) = cx.recv(session) {
            let at = nanos(cx.now() - start);
            self.ledger.lock().delivered(block.id, at, block.data.len() as u64);
        }
    }
}
