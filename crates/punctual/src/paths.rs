//! The application's hold on a session's routes.

use punctual_proto::PathId;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::{
    keeper::{Keeper, Phase},
    route::{Route, RouteError, RouteEvent, RouteEvents, Routes},
    session::Session,
    terms::RouteTerms,
};

/// The routes of a session, which are kept as paths for as long as it lives.
///
/// Got from [`Endpoint::connect_over`](crate::Endpoint::connect_over) or [`Session::keep_paths`]. Each route is tried at once. What
/// fails is tried again, after half a second at first and 15 s in the end, or a minute once nothing else has come of it for an hour; and at once when its interface comes up, gets an address or a route. When
/// an interface is deleted, its path is closed, and there is another from a new socket when it is made again. When its address changes,
/// or a path has been silent for 5 s, another is opened beside it and takes its place if it works.
///
/// On Linux the system tells of changes; elsewhere interfaces are read every second.
///
/// Clones are handles of the same routes. They do not keep the session alive, and dropping them ends nothing: routes are kept until the session ends.
#[derive(Debug, Clone)]
pub struct Paths {
    words: mpsc::UnboundedSender<Word>,
    events: broadcast::WeakSender<RouteEvent>,
}

/// What the application says to the keeper of its routes.
#[derive(Debug)]
pub(crate) enum Word {
    Up(String),
    Down(String),
    Add(Route),
    Remove(Route),
    Terms(Route, RouteTerms),
    List(oneshot::Sender<Vec<RouteState>>),
}

/// How a route is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteState {
    /// Which.
    pub route: Route,
    /// The interface it takes, or took last, if that is known.
    pub interface: Option<String>,
    /// The path it is, if it is one.
    pub path: Option<PathId>,
    /// Whether that path has not answered of late.
    pub in_doubt: bool,
    /// Why it is none.
    pub failure: Option<RouteError>,
}

impl Paths {
    pub(crate) fn new(words: mpsc::UnboundedSender<Word>, events: &broadcast::Sender<RouteEvent>) -> Self {
        Self { words, events: events.downgrade() }
    }

    /// An interface has come up, or may be used again after [`down`](Self::down): its routes are tried now. Interfaces are watched, so
    /// this is for those who know earlier or better.
    ///
    /// The name is the interface's, or the address that a route was bound to.
    pub fn up(&self, interface: &str) {
        // If the keeper is gone, so is the session.
        let _ = self.words.send(Word::Up(interface.to_owned()));
    }

    /// An interface is not to be used: its paths are closed, and not opened again until [`up`](Self::up).
    pub fn down(&self, interface: &str) {
        let _ = self.words.send(Word::Down(interface.to_owned()));
    }

    /// Keeps another route.
    pub fn add(&self, route: Route) {
        let _ = self.words.send(Word::Add(route));
    }

    /// Keeps a route no longer, and closes its path.
    pub fn remove(&self, route: Route) {
        let _ = self.words.send(Word::Remove(route));
    }

    /// Says what a route's path is for and what it costs, now and whenever it is opened again. What these terms leave open stays as it was.
    pub fn set_terms(&self, route: Route, terms: RouteTerms) {
        let _ = self.words.send(Word::Terms(route, terms));
    }

    /// The routes as they are now; none once the session has ended.
    pub async fn list(&self) -> Vec<RouteState> {
        let (tell, told) = oneshot::channel();
        let _ = self.words.send(Word::List(tell));
        told.await.unwrap_or_default()
    }

    /// What happens to the routes from now on. The session's own [`events`](Session::events) tell the same.
    pub fn events(&self) -> RouteEvents {
        // A keeper that is gone has no more events: a channel without a sender.
        RouteEvents(self.events.upgrade().map_or_else(|| broadcast::channel(1).1, |events| events.subscribe()))
    }
}

impl Session {
    /// Keeps these routes as paths of the session for as long as it lives. For a session that is yet to begin, [`Endpoint::connect_over`](crate::Endpoint::connect_over) does it
    /// from the start.
    ///
    /// Paths that are open already from a socket bound as a route says, and lead to its address, are taken for that route's. Clients only: the routes of a
    /// server's session all [fail](RouteError::NotSupported).
    ///
    /// ```no_run
    /// # async fn example(endpoint: punctual::Endpoint) -> Result<(), Box<dyn std::error::Error>> {
    /// use punctual::{Route, Routes};
    ///
    /// let server = "203.0.113.5:4433".parse()?;
    /// let session = endpoint.connect(server, "camera.example").await?;
    /// let paths = session.keep_paths([Route::new("eth0".parse()?, server), Route::new("wwan0".parse()?, server)]);
    /// // The modem's volume is used up.
    /// paths.down("wwan0");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn keep_paths(&self, routes: impl Into<Routes>) -> Paths {
        let link = self.link();
        let (events, _) = broadcast::channel(link.settings.event_backlog.max(1));
        let (words, heard) = mpsc::unbounded_channel();
        let paths = Paths::new(words, &events);
        let (shared, buffer) = (link.shared.clone(), link.settings.receive_buffer);
        tokio::spawn(Keeper::new(shared, buffer, Phase::keeping(self), routes.into(), events, heard).run());
        paths
    }
}
