//! A path of a session.

use std::net::SocketAddr;

use punctual_proto::{
    LocalId, PathError, PathId, PathStats,
    multipath::{PathBudget, PathRole},
};

use crate::link::Link;

/// A path of a session. Dropping the handle does not close it.
#[derive(Clone)]
pub struct Path {
    pub(crate) link: Link,
    pub(crate) id: PathId,
    pub(crate) local: LocalId,
    pub(crate) remote: SocketAddr,
}

impl Path {
    /// Its name within the session.
    pub fn id(&self) -> PathId {
        self.id
    }

    /// Our end.
    pub fn local(&self) -> LocalId {
        self.local
    }

    /// The peer's end.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Its state and totals; `None` once it is closed.
    pub fn stats(&self) -> Option<PathStats> {
        self.link.path_stats().into_iter().find(|path| path.id == self.id)
    }

    /// Says what a byte costs on it; see [`Session::set_path_cost`](crate::Session::set_path_cost).
    ///
    /// # Errors
    /// As there.
    pub fn set_cost(&self, cost: f64) -> Result<(), PathError> {
        self.link.set_path_cost(self.id, cost)
    }

    /// Says what it is for; see [`Session::set_path_role`](crate::Session::set_path_role).
    ///
    /// # Errors
    /// As there.
    pub fn set_role(&self, role: PathRole) -> Result<(), PathError> {
        self.link.set_path_role(self.id, role)
    }

    /// Says how much may be sent on it over time; see [`Session::set_path_budget`](crate::Session::set_path_budget).
    ///
    /// # Errors
    /// As there.
    pub fn set_budget(&self, budget: Option<PathBudget>) -> Result<(), PathError> {
        self.link.set_path_budget(self.id, budget)
    }

    /// Closes it; what was in flight on it goes elsewhere.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn close(&self) -> Result<(), PathError> {
        self.link.close_path(self.id)
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Path").field("id", &self.id).field("local", &self.local).field("remote", &self.remote).finish()
    }
}
