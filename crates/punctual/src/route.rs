//! Ways to a peer, and what becomes of them.

use std::{fmt, net::SocketAddr, time::Duration};

use punctual_proto::{PathError, PathId};
use thiserror::Error;
use tokio::sync::broadcast;

use crate::{
    error::{BuildError, ConnectError, OpenPathError},
    interfaces::Interfaces,
    local::{Bind, without_port},
    scope::on_link_of,
    session::canonical,
    terms::RouteTerms,
};

/// One way to a peer: from an end of ours to an address of the peer's.
///
/// The end need not be there yet: an interface that is down, has no address or is not plugged in is waited for. To leave the choice of
/// the way to the system, the end is the unspecified address (`0.0.0.0`, `[::]`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Our end.
    pub bind: Bind,
    /// The peer's address.
    pub remote: SocketAddr,
}

impl Route {
    /// The way from there to there.
    pub fn new(bind: Bind, remote: SocketAddr) -> Self {
        Self { bind, remote: canonical(remote) }
    }

    /// The peer's address as it is to be called now. One that is of use on one link only, and does not say on which, is on the link of the interface that our end names.
    pub(crate) fn remote_now(&self) -> SocketAddr {
        match &self.bind {
            Bind::Interface(name) => on_link_of(name, self.remote),
            Bind::OnLink(end) => on_link_of(&end.interface, self.remote),
            Bind::Address(_) => self.remote,
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bind {
            Bind::Address(address) if address.port() == 0 => {
                write!(f, "{} to {}", without_port(address), self.remote)
            }
            bind => write!(f, "{bind} to {}", self.remote),
        }
    }
}

/// The ways a session is to have, for [`Endpoint::connect_over`](crate::Endpoint::connect_over) and
/// [`Session::keep_paths`](crate::Session::keep_paths).
///
/// ```
/// use punctual::{Route, Routes};
///
/// let server = "203.0.113.5:4433".parse()?;
/// // These two …
/// let named = Routes::from([Route::new("eth0".parse()?, server), Route::new("wwan0".parse()?, server)]);
/// // … or whatever leads there, now and later.
/// let all = Routes::auto(server);
/// # let _ = (named, all);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Routes {
    pub(crate) named: Vec<(Route, RouteTerms)>,
    pub(crate) auto: Vec<(SocketAddr, RouteTerms)>,
}

impl Routes {
    /// None yet: see [`route`](Self::route) and [`and_auto`](Self::and_auto).
    pub fn new() -> Self {
        Self::default()
    }

    /// Every interface that has a route to `remote`, as interfaces and routes come and go.
    ///
    /// Loopback counts for a peer on loopback only. On Linux the routing tables are asked. Elsewhere an interface counts from which the system
    /// lets one send to the peer, which may be more than lead there: those that do not are tried now and then, in vain.
    pub fn auto(remote: SocketAddr) -> Self {
        Self::new().and_auto(remote)
    }

    /// Adds a way.
    pub fn route(self, route: Route) -> Self {
        self.route_on(route, RouteTerms::new())
    }

    /// Adds a way, and says what its path is for and what it costs. One that is there already stays as it is.
    pub fn route_on(mut self, route: Route, terms: RouteTerms) -> Self {
        if self.named.iter().all(|(other, _)| *other != route) {
            self.named.push((route, terms));
        }
        self
    }

    /// Adds every interface with a route to (another address of) the peer; see [`auto`](Self::auto).
    pub fn and_auto(self, remote: SocketAddr) -> Self {
        self.and_auto_on(remote, RouteTerms::new())
    }

    /// The same, saying what these paths are for and what they cost. An interface that is also named has the terms of that way.
    pub fn and_auto_on(mut self, remote: SocketAddr, terms: RouteTerms) -> Self {
        let remote = canonical(remote);
        if self.auto.iter().all(|(other, _)| *other != remote) {
            self.auto.push((remote, terms));
        }
        self
    }
}

impl Routes {
    /// Adds all of those.
    pub fn and(self, others: Self) -> Self {
        let Self { named, auto } = others;
        let all = named.into_iter().fold(self, |all, (route, terms)| all.route_on(route, terms));
        auto.into_iter().fold(all, |all, (remote, terms)| all.and_auto_on(remote, terms))
    }

    /// Whether one of them is there now: its interface is up, has an address of the peer's IP version, and leads to the peer as far as the
    /// system tells. Of a peer that has several addresses, those can be told apart by it to which there is a way.
    pub fn any_is_there(&self) -> bool {
        // If nobody can tell, it may be there.
        let Ok(interfaces) = Interfaces::read() else { return true };
        let is_there = |(route, _): &(Route, RouteTerms)| {
            interfaces.sight(&route.bind, route.remote).is_some_and(|sight| sight.leads())
        };
        self.named.iter().any(is_there) || self.auto.iter().any(|(remote, _)| !interfaces.ways_to(*remote).is_empty())
    }
}

impl FromIterator<Route> for Routes {
    fn from_iter<I: IntoIterator<Item = Route>>(routes: I) -> Self {
        routes.into_iter().fold(Self::new(), Self::route)
    }
}

impl<const N: usize> From<[Route; N]> for Routes {
    fn from(routes: [Route; N]) -> Self {
        routes.into_iter().collect()
    }
}

impl From<Vec<Route>> for Routes {
    fn from(routes: Vec<Route>) -> Self {
        routes.into_iter().collect()
    }
}

/// Something happened to a [`Route`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteEvent {
    /// Which.
    pub route: Route,
    /// The interface it takes, or took last, if that is known.
    pub interface: Option<String>,
    /// What.
    pub change: RouteChange,
}

impl RouteEvent {
    /// Something that happened to a route whose interface is not known.
    pub fn new(route: Route, change: RouteChange) -> Self {
        Self { route, interface: None, change }
    }
}

impl fmt::Display for RouteEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { route, interface, change } = self;
        match (interface, &route.bind) {
            (Some(interface), Bind::Address(_) | Bind::OnLink(_)) => write!(f, "{route} ({interface}): {change}"),
            _ => write!(f, "{route}: {change}"),
        }
    }
}

/// What can happen to a [`Route`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteChange {
    /// The peer is called over it.
    Tried,
    /// That did not work.
    Failed {
        /// Why not.
        reason: RouteError,
        /// When it is tried again; `None` if that waits for its interface, for the application, or is no use.
        again_in: Option<Duration>,
    },
    /// It is a path of the session from now on.
    Up {
        /// The path's name.
        path: PathId,
    },
    /// It no longer is, or for so long without a sign that another try is made beside it.
    Down {
        /// The path's name.
        path: PathId,
        /// Why.
        reason: DownReason,
    },
}

impl fmt::Display for RouteChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tried => write!(f, "tried"),
            Self::Failed { reason, again_in: None } => write!(f, "{reason}"),
            Self::Failed { reason, again_in: Some(pause) } => write!(f, "{reason}; again in {pause:.1?}"),
            Self::Up { path } => write!(f, "up as {path}"),
            Self::Down { path, reason } => write!(f, "{path} is down: {reason}"),
        }
    }
}

/// Why a [`Route`] could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The interface is not there, or has no address of the peer's IP version. It is waited for.
    #[error("the interface is not there, or has no address of the peer's IP version")]
    NoInterface,
    /// No socket could be had, or the interfaces could not be listed.
    #[error("{0}")]
    Bind(String),
    /// Nothing came back over it.
    #[error("no answer{}", cause.as_ref().map(|c| format!(" ({c})")).unwrap_or_default())]
    NoAnswer {
        /// What the system said when we sent, if it said anything.
        cause: Option<String>,
    },
    /// The host has said that no program listens there.
    #[error("nobody listens there")]
    NobodyListens,
    /// Somebody answered, and a session is not to be had there: see [`ConnectError`].
    #[error("{0}")]
    Refused(String),
    /// The session has as many paths as it may have.
    #[error("the session has as many paths as are allowed")]
    TooMany,
    /// The session has had as many paths as it can have in all its life. Those that are open stay; for others another session is to be begun.
    #[error("the session has had as many paths as it can have in its life")]
    Spent,
    /// The session cannot have more than one path: the peer does not know how.
    #[error("the peer does not support several paths")]
    NotSupported,
    /// It was given up meanwhile.
    #[error("given up")]
    GivenUp,
}

impl RouteError {
    /// Whether another try may end otherwise though nothing has changed here.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Self::NoInterface | Self::Refused(_) | Self::Spent | Self::NotSupported)
    }

    pub(crate) fn of_bind(error: &BuildError) -> Self {
        match error {
            BuildError::Interface { .. } => Self::NoInterface,
            other => Self::Bind(other.to_string()),
        }
    }

    pub(crate) fn of_connect(error: &ConnectError, cause: Option<String>) -> Self {
        match error {
            ConnectError::TimedOut { .. } => Self::NoAnswer { cause },
            ConnectError::NobodyListens { .. } => Self::NobodyListens,
            ConnectError::Fingerprint { .. } | ConnectError::Certificate(_) | ConnectError::Refused(_) => {
                Self::Refused(error.to_string())
            }
            _ => Self::GivenUp,
        }
    }

    pub(crate) fn of_path(error: &OpenPathError, cause: Option<String>) -> Self {
        match error {
            OpenPathError::TimedOut { .. } | OpenPathError::Abandoned => Self::NoAnswer { cause },
            OpenPathError::Path(PathError::TooMany) => Self::TooMany,
            OpenPathError::Path(PathError::Spent) => Self::Spent,
            OpenPathError::Path(PathError::NotSupported | PathError::NotClient) => Self::NotSupported,
            _ => Self::GivenUp,
        }
    }
}

/// Why a [`Route`] is no path any more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DownReason {
    /// The path was closed: by the peer, or by the application.
    #[error("the path was closed")]
    Closed,
    /// The interface is gone, or has lost the address.
    #[error("the interface or its address is gone")]
    Gone,
    /// Nothing has come back over it for some seconds. It is still probed, and used again if it answers.
    #[error("no answer any more")]
    Silent,
    /// The application said so: [`Paths::down`](crate::Paths::down) or [`Paths::remove`](crate::Paths::remove).
    #[error("taken down")]
    Told,
}

/// What happens to the routes of a session.
#[derive(Debug)]
pub struct RouteEvents(pub(crate) broadcast::Receiver<RouteEvent>);

impl RouteEvents {
    /// The next event; `None` after the last. One who is too slow misses the oldest.
    pub async fn next(&mut self) -> Option<RouteEvent> {
        loop {
            match self.0.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
