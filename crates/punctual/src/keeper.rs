//! Keeps a session's routes: tries them, follows their interfaces, and tries again.
//!
//! What to do about one route is in `kept.rs`. Here the routes meet the world: sockets are bound, attempts are made, and all that may change
//! something (interfaces, paths, the application, the clock) ends in one place, [`Keeper::reconcile`], which goes by how things are, not by
//! what has happened. So nothing that is missed is missed for long.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Instant};

use punctual_proto::{LocalId, NetworkPath, PathId, PathStats, multipath::PathHealth};
use tokio::{
    sync::{broadcast, mpsc, watch},
    task::JoinSet,
};

use crate::{
    attempts::{Attempted, OwnSockets},
    connect,
    endpoint::Endpoint,
    error::{BuildError, ConnectError},
    events::SessionEvent,
    interfaces::{Interfaces, Watch},
    kept::{Attempt, Kept},
    link::Link,
    paths::{RouteState, Word},
    route::{DownReason, Route, RouteChange, RouteError, RouteEvent, Routes},
    session::Session,
    shared::Shared,
    terms::RouteTerms,
};

/// Keeps the routes of one session, from before it begins.
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) receive_buffer: usize,
    pub(crate) phase: Phase,
    pub(crate) auto: Vec<(SocketAddr, RouteTerms)>,
    pub(crate) kept: Vec<Kept>,
    /// Interfaces that the application has taken down.
    down: BTreeSet<String>,
    interfaces: Interfaces,
    /// Why they could not be listed when they were looked at last, if so.
    unlisted: Option<String>,
    watch: Watch,
    pub(crate) attempts: JoinSet<Attempted>,
    pub(crate) next_attempt: u64,
    pub(crate) sockets: OwnSockets,
    events: broadcast::Sender<RouteEvent>,
    words: mpsc::UnboundedReceiver<Word>,
}

/// What the routes are for.
pub(crate) enum Phase {
    /// To begin a session over the first that answers.
    Connecting {
        endpoint: Endpoint,
        server_name: String,
        /// The name of this race among the endpoint's.
        race: u64,
    },
    /// To be its paths.
    Keeping {
        link: Link,
        /// Changes whenever a path does.
        paths: watch::Receiver<u64>,
    },
}

/// What a step of the keeper's has brought.
pub(crate) enum Step {
    /// Nothing that concerns others.
    Nothing,
    /// A session has begun.
    Connected(Session),
    /// None can.
    Failed(ConnectError),
    /// It is over.
    Over,
}

impl Keeper {
    pub(crate) fn new(
        shared: Arc<Shared>,
        receive_buffer: usize,
        phase: Phase,
        routes: Routes,
        events: broadcast::Sender<RouteEvent>,
        words: mpsc::UnboundedReceiver<Word>,
    ) -> Self {
        Self {
            sockets: OwnSockets { shared: shared.clone(), ids: BTreeSet::new() },
            shared,
            receive_buffer,
            phase,
            auto: routes.auto,
            kept: routes.named.into_iter().map(|(route, terms)| Kept::new(route, terms, false)).collect(),
            down: BTreeSet::new(),
            interfaces: Interfaces::default(),
            unlisted: None,
            watch: Watch::new(),
            attempts: JoinSet::new(),
            next_attempt: 0,
            events,
            words,
        }
    }

    /// Keeps the session's paths until it ends.
    pub(crate) async fn run(mut self) {
        loop {
            if let Step::Over = self.step().await {
                return;
            }
        }
    }

    /// The session that it has helped to begin is the one whose paths it keeps.
    pub(crate) fn keep(&mut self, session: &Session) {
        self.phase = Phase::keeping(session);
    }

    /// The routes that did not work, and why.
    pub(crate) fn failures(&self) -> Vec<(Route, RouteError)> {
        let failure = |kept: &Kept| match (&kept.attempt, &kept.failure) {
            (Attempt::Running { local, .. }, _) => {
                RouteError::NoAnswer { cause: connect::last_error(&self.shared, *local, kept.route.remote_now()) }
            }
            (_, Some(failure)) => failure.clone(),
            (_, None) => self.unlisted.clone().map_or(RouteError::NoInterface, RouteError::Bind),
        };
        self.kept.iter().map(|kept| (kept.route.clone(), failure(kept))).collect()
    }

    /// Waits for whatever comes next and does what follows. May be dropped and called again at any time.
    pub(crate) async fn step(&mut self) -> Step {
        let due = self.kept.iter().filter_map(Kept::due).min();
        let paths = async {
            match &mut self.phase {
                Phase::Keeping { paths, .. } => _ = paths.changed().await,
                Phase::Connecting { .. } => std::future::pending().await,
            }
        };
        let clock = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        let mut step = Step::Nothing;
        tokio::select! {
            () = self.watch.changed() => self.look(),
            Some(word) = self.words.recv() => self.obey(word),
            Some(attempt) = self.attempts.join_next() => {
                if let Ok(attempt) = attempt {
                    step = self.attempted(attempt);
                }
            }
            () = paths => {}
            () = clock => {}
        }
        match step {
            Step::Nothing => self.reconcile(),
            step => step,
        }
    }

    /// Looks at the interfaces, and at what has changed.
    fn look(&mut self) {
        let now = Instant::now();
        match Interfaces::read() {
            Ok(interfaces) => (self.interfaces, self.unlisted) = (interfaces, None),
            Err(error) => {
                tracing::debug!(%error, "cannot list the interfaces");
                self.unlisted = Some(BuildError::Interfaces(error).to_string());
                return;
            }
        }
        for index in 0..self.kept.len() {
            self.look_at(index, now);
        }
        self.follow_auto();
        for index in 0..self.kept.len() {
            if self.kept[index].sight.is_none() {
                self.look_at(index, now);
            }
        }
    }

    /// Has a route for each interface that leads to the peer.
    fn follow_auto(&mut self) {
        let ways = |(remote, terms): &(SocketAddr, RouteTerms)| {
            let ways = self.interfaces.ways_to(*remote);
            ways.into_iter().map(|bind| (Route::new(bind, *remote), *terms)).collect::<Vec<_>>()
        };
        let mut wanted: Vec<_> = self.auto.iter().flat_map(ways).collect();
        wanted.retain(|(route, _)| !self.is_named_otherwise(route));
        let mut index = 0;
        while let Some(kept) = self.kept.get(index) {
            if kept.auto && kept.path.is_none() && wanted.iter().all(|(route, _)| *route != kept.route) {
                self.forget(index, DownReason::Gone);
            } else {
                index += 1;
            }
        }
        for (route, terms) in wanted {
            if self.kept.iter().all(|kept| kept.route != route) {
                self.kept.push(Kept::new(route, terms, true));
            }
        }
    }

    /// Whether the application has named a way that takes the same interface.
    fn is_named_otherwise(&self, route: &Route) -> bool {
        let Some(sight) = self.interfaces.sight(&route.bind, route.remote) else { return false };
        let same = |kept: &Kept| {
            let other = self.interfaces.sight(&kept.route.bind, kept.route.remote);
            kept.route.remote == route.remote && other.is_some_and(|other| other.interface == sight.interface)
        };
        self.kept.iter().any(|kept| !kept.auto && same(kept))
    }

    /// Looks at one route's interface.
    fn look_at(&mut self, index: usize, now: Instant) {
        let kept = &mut self.kept[index];
        let sight = self.interfaces.sight(&kept.route.bind, kept.route.remote);
        let before = kept.see(sight.clone());
        let gone = before.as_ref().is_some_and(|before| before.is_gone(sight.as_ref()));
        let other = sight.as_ref().zip(before.as_ref()).is_some_and(|(sight, before)| sight.is_another_than(before));
        if gone || other {
            // What was bound to the interface as it was is of no use to it as it is.
            self.drop_attempt(index);
        }
        if gone {
            self.drop_path(index, DownReason::Gone, now);
        }
        let kept = &mut self.kept[index];
        match sight {
            None => {
                if kept.failure != Some(RouteError::NoInterface) {
                    let change = kept.failed(RouteError::NoInterface, now);
                    self.tell(index, change);
                }
            }
            Some(sight) if sight.is_better_than(before.as_ref()) => {
                if other {
                    kept.outdate();
                }
                kept.spare = kept.stop_attempt().or(kept.spare);
                kept.encourage(now);
            }
            Some(_) => {}
        }
    }

    /// Does as the application says.
    fn obey(&mut self, word: Word) {
        let now = Instant::now();
        match word {
            Word::Up(interface) => {
                self.down.remove(&interface);
                for kept in self.kept.iter_mut().filter(|kept| kept.is_over(&interface)) {
                    kept.spare = kept.stop_attempt().or(kept.spare);
                    kept.encourage(now);
                }
            }
            Word::Down(interface) => {
                for index in 0..self.kept.len() {
                    if self.kept[index].is_over(&interface) {
                        self.drop_attempt(index);
                        self.drop_path(index, DownReason::Told, now);
                        self.kept[index].attempt = Attempt::Idle;
                    }
                }
                self.down.insert(interface);
            }
            Word::Add(route) => {
                match self.kept.iter_mut().find(|kept| kept.route == route) {
                    Some(kept) => kept.auto = false,
                    None => self.kept.push(Kept::new(route, RouteTerms::new(), false)),
                }
                self.look();
            }
            Word::Terms(route, terms) => {
                if let Some(index) = self.kept.iter().position(|kept| kept.route == route) {
                    self.kept[index].terms = terms;
                    self.say_terms(index);
                }
            }
            Word::Remove(route) => {
                if let Some(index) = self.kept.iter().position(|kept| kept.route == route) {
                    self.forget(index, DownReason::Told);
                }
            }
            Word::List(answer) => {
                let state = |kept: &Kept| RouteState {
                    route: kept.route.clone(),
                    interface: kept.interface().map(str::to_owned),
                    path: kept.path.as_ref().map(|path| path.id),
                    in_doubt: kept.is_in_doubt(),
                    failure: kept.failure.clone(),
                };
                // Whoever asked may be gone.
                let _ = answer.send(self.kept.iter().map(state).collect());
            }
        }
    }

    /// Brings routes and paths in line, and does what is due.
    fn reconcile(&mut self) -> Step {
        let now = Instant::now();
        if let Phase::Keeping { link, .. } = &self.phase {
            if link.is_closed() {
                return Step::Over;
            }
            let stats = link.path_stats();
            self.follow_paths(&stats, now);
        }
        for index in 0..self.kept.len() {
            let kept = &mut self.kept[index];
            if !matches!(kept.attempt, Attempt::Due(at) if at <= now) {
                continue;
            }
            if !kept.wants_path() || kept.sight.is_none() || self.down.iter().any(|name| kept.is_over(name)) {
                kept.attempt = Attempt::Idle;
            } else if let Err(error) = self.attempt(index, now) {
                return Step::Failed(error);
            }
        }
        Step::Nothing
    }

    /// Takes note of what has become of the session's paths.
    fn follow_paths(&mut self, stats: &[PathStats], now: Instant) {
        for index in 0..self.kept.len() {
            let kept = &mut self.kept[index];
            let change = match (&kept.path, stats) {
                (None, _) => None,
                (Some(path), stats) => match stats.iter().find(|stats| stats.id == path.id) {
                    Some(stats) => kept.hear(stats.health, now),
                    None => {
                        let local = path.local;
                        let change = kept.lost(DownReason::Closed, now);
                        self.release(local);
                        change
                    }
                },
            };
            if let Some(change) = change {
                self.tell(index, change);
            }
            if !self.kept[index].wants_path() {
                self.drop_attempt(index);
            }
        }
        self.adopt(stats, now);
    }

    /// A path that leads where a route does, from a socket bound as it says, is that route's: the first one, or one that the application opened.
    fn adopt(&mut self, stats: &[PathStats], now: Instant) {
        for path in stats.iter().filter(|path| path.health != PathHealth::Opening) {
            if self.kept.iter().any(|kept| kept.path.as_ref().is_some_and(|other| other.id == path.id)) {
                continue;
            }
            let NetworkPath { local, remote } = path.network;
            let Some(bind) = self.shared.with(|state, _| Some(state.ends.socket_of(local)?.bind.clone())) else {
                continue;
            };
            let free = |kept: &Kept| {
                kept.path.is_none()
                    && !matches!(kept.attempt, Attempt::Running { .. })
                    && kept.spare.is_none_or(|s| s == local)
            };
            let fits = |kept: &Kept| kept.route.bind == bind && kept.route.remote_now() == remote && free(kept);
            if let Some(index) = self.kept.iter().position(fits) {
                let kept = &mut self.kept[index];
                kept.spare = None;
                let change = kept.opened(path.id, local, now);
                self.say_terms(index);
                self.tell(index, change);
            }
        }
    }

    /// Tells the session what the path of a route is for and what it costs.
    pub(crate) fn say_terms(&self, index: usize) {
        let Kept { terms, path, .. } = &self.kept[index];
        if let (Phase::Keeping { link, .. }, Some(path)) = (&self.phase, path) {
            // A path that is closed meanwhile needs none.
            let _ = link.set_path_terms(path.id, *terms);
        }
    }

    /// Gives up what is tried, and the socket it was tried from.
    fn drop_attempt(&mut self, index: usize) {
        let kept = &mut self.kept[index];
        for local in [kept.stop_attempt(), kept.spare.take()].into_iter().flatten() {
            self.release(local);
        }
    }

    /// Gives a route's path up, and its socket.
    pub(crate) fn drop_path(&mut self, index: usize, reason: DownReason, now: Instant) {
        let kept = &mut self.kept[index];
        let Some((id, local)) = kept.path.as_ref().map(|path| (path.id, path.local)) else { return };
        if let Some(change) = kept.lost(reason, now) {
            self.tell(index, change);
        }
        self.close(id, local);
    }

    pub(crate) fn close(&mut self, id: PathId, local: LocalId) {
        if let Phase::Keeping { link, .. } = &self.phase {
            // If it is the last, it stays until there is another.
            let _ = link.close_path(id);
        }
        self.release(local);
    }

    /// Gives a socket up, if it is ours and nobody uses it any more.
    pub(crate) fn release(&mut self, local: LocalId) {
        let used = self.kept.iter().flat_map(Kept::locals).any(|used| used == local);
        if !used && self.sockets.ids.remove(&local) {
            self.shared.drive(|state, now| state.unbind(local, now));
        }
    }

    /// Keeps a route no longer.
    fn forget(&mut self, index: usize, reason: DownReason) {
        self.drop_attempt(index);
        self.drop_path(index, reason, Instant::now());
        self.kept.remove(index);
    }

    /// Tells of a route, to those who listen to routes and to those who listen to the session.
    pub(crate) fn tell(&self, index: usize, change: RouteChange) {
        let event = self.kept[index].event(change);
        tracing::info!(%event, "route");
        // Nobody may be listening.
        let _ = self.events.send(event.clone());
        if let Phase::Keeping { link, .. } = &self.phase {
            link.slot(|slot| slot.publish(SessionEvent::Route(event)));
        }
    }
}

impl Phase {
    pub(crate) fn keeping(session: &Session) -> Self {
        let link = session.link().clone();
        let mut paths = link.signals.paths.subscribe();
        // There may be paths already.
        paths.mark_changed();
        Self::Keeping { link, paths }
    }
}
