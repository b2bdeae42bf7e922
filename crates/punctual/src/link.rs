//! The way from handles to their session.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use punctual_proto::{
    LocalId, NetworkPath, PathError, PathId, PathStats, SessionId,
    multipath::{PathBudget, PathRole},
};
use tokio::sync::oneshot;

use crate::{
    error::OpenPathError,
    local::{Bind, LocalEnd},
    path::Path,
    session::canonical,
    shared::{Gone, Opening, Shared, Signals, Slot, State},
    snapshot::Snapshot,
    socket::Socket,
    terms::RouteTerms,
};

/// The way to a session, for whoever may outlive it.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: SessionId,
    pub(crate) signals: Arc<Signals>,
    pub(crate) settings: Settings,
}

/// What a session's handles need to know of the endpoint's settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// How long opening a path may take.
    pub(crate) connect_timeout: Duration,
    /// Whether a block past its deadline is still worth handing over.
    pub(crate) drops_stale: bool,
    pub(crate) event_backlog: usize,
    pub(crate) receive_buffer: usize,
}

impl Link {
    /// Works on the live session, and has the driver send and tell what came of it.
    pub(crate) fn drive<R>(
        &self,
        work: impl FnOnce(&mut punctual_proto::Session, &mut Slot, Instant) -> R,
    ) -> Result<R, Gone> {
        self.shared.drive(|state, now| state.session(self.id).map(|(session, slot)| work(session, slot, now)))
    }

    /// Looks at the books, which outlive the session until its last handle is gone.
    pub(crate) fn slot<R>(&self, look: impl FnOnce(&mut Slot) -> R) -> Option<R> {
        self.shared.with(|state, _| state.sessions.get_mut(&self.id).map(look))
    }

    /// The application has dealt with all it was given. Seldom does anybody wait for that word.
    pub(crate) fn catch_up(&self) {
        if self.shared.with(|state, now| state.session(self.id).is_ok_and(|(session, _)| session.caught_up(now))) {
            self.shared.wake.notify_one();
        }
    }

    /// As [`Session::open_path`](crate::Session::open_path).
    pub(crate) async fn open_path(&self, local: LocalEnd, remote: SocketAddr) -> Result<Path, OpenPathError> {
        let local = match local {
            LocalEnd::Id(id) => id,
            LocalEnd::Bind(bind) => self.end_bound_as(&bind, canonical(remote))?,
        };
        self.open_path_on(local, remote, RouteTerms::new()).await
    }

    /// The end that is bound so and can reach `remote`; a new one, if there is none.
    fn end_bound_as(&self, bind: &Bind, remote: SocketAddr) -> Result<LocalId, OpenPathError> {
        let bound = self.shared.with(|state, _| {
            let (_, slot) = state.session(self.id).map_err(|Gone| PathError::Closed)?;
            // For a session that opens no paths nothing is bound.
            slot.begins_at.ok_or(PathError::NotClient)?;
            Ok::<_, PathError>(state.ends.bound_as(bind, remote))
        })?;
        if let Some(local) = bound {
            return Ok(local);
        }
        if bind.is_of_another_family_than(remote)
            && let Some(&local) = bind.addresses()?.0.first()
        {
            return Err(OpenPathError::Family { local, remote });
        }
        let socket = Socket::open_towards(bind, remote, self.settings.receive_buffer)?;
        Ok(self.shared.drive(|state, _| state.ends.add(socket, false))?.id)
    }

    /// The same, with the path's terms said before anything can leave on it.
    pub(crate) async fn open_path_on(
        &self,
        local: LocalId,
        remote: SocketAddr,
        terms: RouteTerms,
    ) -> Result<Path, OpenPathError> {
        let remote = canonical(remote);
        let (id, opened) = self.shared.drive(|state, now| {
            let from = state.ends.socket_of(local).ok_or(OpenPathError::UnknownLocal(local))?.address;
            if from.is_ipv4() != remote.is_ipv4() {
                return Err(OpenPathError::Family { local: from, remote });
            }
            let (session, slot) = state.session(self.id).map_err(|Gone| PathError::Closed)?;
            let id = session.open_path(now, NetworkPath { local, remote })?;
            // Terms that make no sense are not said.
            let _ = terms.apply(session, now, id);
            let (tell, opened) = oneshot::channel();
            slot.opening.insert(id, Opening { local, tell });
            Ok((id, opened))
        })?;
        let mut guard = OpeningPath { link: self, id, done: false };
        let after = self.settings.connect_timeout;
        let opened =
            tokio::time::timeout(after, opened).await.map_err(|_| OpenPathError::TimedOut { remote, after })?;
        guard.done = true;
        match opened {
            Ok(true) => Ok(Path { link: self.clone(), id, local, remote }),
            Ok(false) => Err(OpenPathError::Abandoned),
            Err(_) => Err(PathError::Closed.into()),
        }
    }

    pub(crate) fn close_path(&self, id: PathId) -> Result<(), PathError> {
        self.drive(|session, _, now| session.close_path(now, id)).unwrap_or(Err(PathError::Closed))
    }

    pub(crate) fn set_path_cost(&self, id: PathId, cost: f64) -> Result<(), PathError> {
        self.drive(|session, _, now| session.set_path_cost(now, id, cost)).unwrap_or(Err(PathError::Closed))
    }

    pub(crate) fn set_path_role(&self, id: PathId, role: PathRole) -> Result<(), PathError> {
        self.set_path_terms(id, RouteTerms::new().role(role))
    }

    pub(crate) fn set_path_budget(&self, id: PathId, budget: Option<PathBudget>) -> Result<(), PathError> {
        self.drive(|session, _, now| session.set_path_budget(now, id, budget)).unwrap_or(Err(PathError::Closed))
    }

    pub(crate) fn set_path_terms(&self, id: PathId, terms: RouteTerms) -> Result<(), PathError> {
        self.drive(|session, _, now| terms.apply(session, now, id)).unwrap_or(Err(PathError::Closed))
    }

    /// Whether the session has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.slot(|slot| slot.closed.is_some()).unwrap_or(true)
    }

    /// Whether the session has a path that answers.
    pub(crate) fn is_reachable(&self) -> bool {
        self.shared.with(|state, now| state.is_reachable(self.id, now))
    }

    pub(crate) fn path_stats(&self) -> Vec<PathStats> {
        self.shared.with(|state, now| match state.session(self.id) {
            Ok((session, _)) => session.path_stats(now),
            Err(Gone) => last_stats(state, self.id).paths,
        })
    }
}

pub(crate) fn last_stats(state: &State, id: SessionId) -> Snapshot {
    state.sessions.get(&id).and_then(|slot| slot.last_stats.clone()).unwrap_or_default()
}

/// Gives a path up unless it was opened.
struct OpeningPath<'a> {
    link: &'a Link,
    id: PathId,
    done: bool,
}

impl Drop for OpeningPath<'_> {
    fn drop(&mut self) {
        if !self.done {
            // It may have gone by itself.
            let _ = self.link.close_path(self.id);
            self.link.slot(|slot| slot.opening.remove(&self.id));
        }
    }
}
