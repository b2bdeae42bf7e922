//! Starting a session over several routes at once.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    time::Duration,
};

use tokio::sync::{broadcast, mpsc};

use crate::{
    endpoint::Endpoint,
    error::ConnectError,
    keeper::{Keeper, Phase, Step},
    paths::Paths,
    route::{RouteEvent, RouteEvents, Routes},
    session::Session,
};

/// An attempt over several routes; await it to get the session and its [`Paths`].
#[must_use = "nothing happens until it is awaited"]
#[derive(Debug)]
pub struct ConnectOver {
    endpoint: Endpoint,
    routes: Routes,
    server_name: String,
    timeout: Duration,
    events: broadcast::Sender<RouteEvent>,
}

impl Endpoint {
    /// Starts a session with a server that several routes lead to, and keeps these routes as its paths.
    ///
    /// All that can be tried is tried at once, each route from a socket of its own, and the session begins on the first that answers. The server's
    /// application never hears of the others. They become paths, and are kept as [`Paths`] says. What is down, has no address yet or does not answer is
    /// tried again and again, now and for as long as the session lives.
    ///
    /// The endpoint's own sockets are not needed for that, and not used unless a route names the port of one.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use punctual::{Block, Endpoint, Fingerprint, RouteChange, Routes};
    ///
    /// let fingerprint: Fingerprint = "…".parse()?;
    /// let endpoint = Endpoint::client().trust(fingerprint).build()?;
    /// let server = "203.0.113.5:4433".parse()?;
    /// // Whatever leads there: Ethernet now, and a modem that is plugged in an hour later.
    /// let connect = endpoint.connect_over(Routes::auto(server), "camera.example");
    /// let mut events = connect.events();
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         // "wwan0 to 203.0.113.5:4433: up as path 2"
    ///         println!("{event}");
    ///     }
    /// });
    /// let (session, paths) = connect.await?;
    /// session.send(Block::new("a frame")).await?;
    /// // The application knows best.
    /// paths.down("wwan0");
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_over(&self, routes: impl Into<Routes>, server_name: &str) -> ConnectOver {
        ConnectOver {
            routes: routes.into(),
            server_name: server_name.to_owned(),
            timeout: self.0.config.connect_timeout,
            events: broadcast::channel(self.0.config.event_backlog.max(1)).0,
            endpoint: self.clone(),
        }
    }
}

impl ConnectOver {
    /// Says how long the attempt may take, in place of [`Config::connect_timeout`](crate::Config::connect_timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What happens to the routes, from the first try on and as long as the session lives.
    pub fn events(&self) -> RouteEvents {
        RouteEvents(self.events.subscribe())
    }

    async fn run(self) -> Result<(Session, Paths), ConnectError> {
        let Self { endpoint, routes, server_name, timeout: after, events } = self;
        let (words, heard) = mpsc::unbounded_channel();
        let paths = Paths::new(words, &events);
        let shared = endpoint.0.shared.clone();
        let receive_buffer = endpoint.0.config.receive_buffer;
        let race = shared.with(|state, _| state.new_race());
        if endpoint.0.client.is_none() {
            return Err(ConnectError::NotClient);
        }
        if routes == Routes::new() {
            return Err(ConnectError::NoRoute { after: Duration::ZERO, failures: Vec::new() });
        }
        let phase = Phase::Connecting { endpoint, server_name, race };
        let mut keeper = Keeper::new(shared, receive_buffer, phase, routes, events, heard);
        let won = tokio::time::timeout(after, async {
            loop {
                match keeper.step().await {
                    Step::Nothing => {}
                    Step::Connected(session) => return Ok(session),
                    Step::Failed(error) => return Err(error),
                    Step::Over => return Err(ConnectError::EndpointClosed),
                }
            }
        });
        let session = match won.await {
            Ok(won) => won?,
            Err(_) => return Err(ConnectError::NoRoute { after, failures: keeper.failures() }),
        };
        keeper.keep(&session);
        tokio::spawn(keeper.run());
        Ok((session, paths))
    }
}

impl IntoFuture for ConnectOver {
    type Output = Result<(Session, Paths), ConnectError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
