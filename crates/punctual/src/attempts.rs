//! Attempts of a [`Keeper`]: a route is called from a socket of its own, and what comes of it.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use punctual_proto::{LocalId, NetworkPath, PathId};

use crate::{
    connect,
    error::{ConnectError, OpenPathError},
    keeper::{Keeper, Phase, Step},
    kept::{Attempt, Kept},
    path::Path,
    route::{DownReason, Route, RouteChange, RouteError},
    session::Session,
    shared::Shared,
    socket::Socket,
};

/// How long sockets outlive the session, so that the peer can be told of its end, and told again.
const LINGER: Duration = Duration::from_secs(3);

/// How an attempt ended.
pub(crate) struct Attempted {
    pub(crate) number: u64,
    pub(crate) local: LocalId,
    pub(crate) remote: SocketAddr,
    pub(crate) result: Result<Opened, Failed>,
}

pub(crate) enum Opened {
    Session(Session),
    Path(Path),
}

pub(crate) enum Failed {
    Connect(ConnectError),
    Path(OpenPathError),
}

impl Keeper {
    /// Tries a route.
    ///
    /// # Errors
    /// What would be the same for every route.
    pub(crate) fn attempt(&mut self, index: usize, now: Instant) -> Result<(), ConnectError> {
        let local = match self.socket_for(index, now) {
            Ok(local) => local,
            Err(reason) => {
                let change = self.kept[index].failed(reason, now);
                self.tell(index, change);
                return Ok(());
            }
        };
        let (number, remote) = (self.next_attempt, self.kept[index].route.remote_now());
        self.next_attempt += 1;
        let terms = self.kept[index].terms;
        let done = move |result| Attempted { number, local, remote, result };
        let task = match &self.phase {
            Phase::Connecting { endpoint, server_name, race } => {
                let after = endpoint.0.config.connect_timeout;
                let path = NetworkPath { local, remote };
                let Some(session) = connect::begin(&endpoint.0, path, server_name, Some(*race))? else {
                    // The winner's route is about to say so; the path that this one becomes leaves from this socket.
                    (self.kept[index].attempt, self.kept[index].spare) = (Attempt::Idle, Some(local));
                    return Ok(());
                };
                // The first path has its name from the start; if the session has ended already, that will be heard of.
                let _ = session.link().set_path_terms(PathId(0), terms);
                self.attempts.spawn(async move {
                    let answered = connect::answered(&session, local, remote, after).await;
                    done(answered.map(|()| Opened::Session(session)).map_err(Failed::Connect))
                })
            }
            Phase::Keeping { link, .. } => {
                let link = link.clone();
                self.attempts.spawn(async move {
                    done(link.open_path_on(local, remote, terms).await.map(Opened::Path).map_err(Failed::Path))
                })
            }
        };
        self.kept[index].attempt = Attempt::Running { number, local, task };
        self.tell(index, RouteChange::Tried);
        Ok(())
    }

    /// An attempt has ended.
    pub(crate) fn attempted(&mut self, attempt: Attempted) -> Step {
        let now = Instant::now();
        let Attempted { number, local, remote, result } = attempt;
        let Some(index) = self.kept.iter().position(|kept| kept.awaits(number)) else {
            // It came too late. A session closes itself.
            if let Ok(Opened::Path(path)) = result {
                let _ = path.close();
            }
            return Step::Nothing;
        };
        match result {
            Ok(Opened::Session(session)) => {
                self.win(index);
                return Step::Connected(session);
            }
            Ok(Opened::Path(path)) => {
                let kept = &mut self.kept[index];
                let old = kept.path.take();
                let change = kept.opened(path.id, local, now);
                self.tell(index, change);
                if let Some(old) = old {
                    self.close(old.id, old.local);
                }
            }
            Err(Failed::Connect(error)) => {
                let cause = connect::last_error(&self.shared, local, remote);
                let change = self.kept[index].failed(RouteError::of_connect(&error, cause), now);
                self.tell(index, change);
                self.release(local);
                // Somebody answers everywhere, and it is the wrong one, or says that there is nobody.
                let refused =
                    |kept: &Kept| matches!(kept.failure, Some(RouteError::Refused(_) | RouteError::NobodyListens));
                if self.kept.iter().all(refused) {
                    return Step::Failed(error);
                }
            }
            Err(Failed::Path(error)) => {
                let cause = connect::last_error(&self.shared, local, remote);
                let reason = RouteError::of_path(&error, cause);
                let full = reason == RouteError::TooMany;
                let change = self.kept[index].failed(reason, now);
                self.tell(index, change);
                self.release(local);
                if full && self.kept[index].path.is_some() {
                    // There is no room for a new one beside the old.
                    self.drop_path(index, DownReason::Silent, now);
                    self.kept[index].attempt = Attempt::Due(now);
                }
            }
        }
        Step::Nothing
    }

    /// A route has won the race. The others' attempts are over, but not their sockets: paths will leave from them.
    fn win(&mut self, winner: usize) {
        let now = Instant::now();
        for (index, kept) in self.kept.iter_mut().enumerate() {
            kept.spare = kept.stop_attempt().or(kept.spare);
            if index != winner {
                kept.encourage(now);
            }
        }
    }

    /// A socket to try a route from.
    fn socket_for(&mut self, index: usize, now: Instant) -> Result<LocalId, RouteError> {
        let spare = self.kept[index].spare.take();
        if let Some(spare) = spare.filter(|spare| self.shared.with(|state, _| state.ends.resolve(*spare).is_some())) {
            return Ok(spare);
        }
        let Route { bind, remote } = self.kept[index].route.clone();
        if bind.port().is_some() {
            // There can be only one of these.
            if self.kept[index].path.is_some() {
                self.drop_path(index, DownReason::Silent, now);
            }
            let bound = |socket: &&Arc<Socket>| socket.bind == bind;
            if let Some(local) = self.shared.with(|state, _| state.ends.sockets().find(bound).map(|s| s.local)) {
                return Ok(local);
            }
        }
        let socket =
            Socket::open_towards(&bind, remote, self.receive_buffer).map_err(|error| RouteError::of_bind(&error))?;
        let local = self
            .shared
            .drive(|state, _| state.ends.add(socket, false))
            .map_err(|error| RouteError::of_bind(&error))?
            .id;
        self.sockets.ids.insert(local);
        Ok(local)
    }
}

/// Sockets that were bound for a session and go with it: a little later, so that the peer hears of its end.
pub(crate) struct OwnSockets {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ids: BTreeSet<LocalId>,
}

impl Drop for OwnSockets {
    fn drop(&mut self) {
        let (shared, ids) = (self.shared.clone(), std::mem::take(&mut self.ids));
        let unbind = move || shared.drive(|state, now| ids.iter().for_each(|id| _ = state.unbind(*id, now)));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    tokio::time::sleep(LINGER).await;
                    unbind();
                });
            }
            Err(_) => unbind(),
        }
    }
}
