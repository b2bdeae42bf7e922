//! An endpoint: sockets, and the sessions behind them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use punctual_proto::{ClientConfig, EndpointConfig, LocalId, ResetSecret};
use tracing::{Instrument, debug_span, info};

use crate::{
    builder::{ClientBuilder, ServerBuilder},
    config::Config,
    connect::Connect,
    driver,
    error::BuildError,
    incoming::Incoming,
    link::Settings,
    local::{Bind, Local},
    qlog::{Logs, Role},
    session::{Session, canonical},
    shared::{Shared, State, farewell},
    socket::Socket,
    tls::Identity,
};

/// How long before the endpoint its clock begins.
const LEAD: Duration = Duration::from_secs(60);

/// Sockets, and the sessions behind them. The way into the library.
///
/// Clones are handles of the same endpoint. When the last is dropped, all its sessions are closed; the driver task stays until
/// the peers have been told. To be sure that they are before the program ends, [`close`](Self::close) and
/// [`wait_idle`](Self::wait_idle).
#[derive(Clone)]
pub struct Endpoint(pub(crate) Arc<Owner>);

/// Closes the endpoint when the last handle goes.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Option<ClientConfig>,
    pub(crate) config: Config,
    pub(crate) settings: Settings,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.drive(|state, now| {
            state.abandoned = true;
            let (code, words) = farewell();
            state.close(now, code, words);
        });
        self.shared.accepted.notify_waiters();
    }
}

impl Endpoint {
    /// The way to an endpoint that starts sessions.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use punctual::{Bind, Endpoint, Fingerprint};
    ///
    /// let fingerprint: Fingerprint = "…".parse()?;
    /// let endpoint = Endpoint::client().trust(fingerprint).bind("eth0".parse()?).bind("wlan0".parse()?).build()?;
    /// let server = "203.0.113.5:4433".parse()?;
    /// let session = endpoint.connect(server, "camera.example").await?;
    /// let wlan: Bind = "wlan0".parse()?;
    /// session.open_path(wlan, server).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn client() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The way to an endpoint that accepts sessions, and is known by `identity`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use punctual::{Endpoint, Identity};
    ///
    /// let endpoint = Endpoint::server(Identity::from_pem_files("chain.pem", "key.pem")?).port(4433).build()?;
    /// while let Some(session) = endpoint.accept().await {
    ///     tokio::spawn(async move {
    ///         while let Ok(block) = session.recv().await {
    ///             println!("{}: {} bytes", block.id, block.data.len());
    ///         }
    ///     });
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn server(identity: Identity) -> ServerBuilder {
        ServerBuilder::new(identity)
    }

    /// Starts a session with the server at `remote`, from the first socket of the same IP version ([`Connect::from`] chooses another).
    ///
    /// `server_name` is the DNS name or IP address that the server's certificate must bear.
    pub fn connect(&self, remote: SocketAddr, server_name: &str) -> Connect {
        Connect::new(self.clone(), canonical(remote), server_name)
    }

    /// The next session that a client has started, let in; `None` once the endpoint is closed. Who wants to look first, and perhaps refuse it, waits for
    /// [`incoming`](Self::incoming) ones.
    ///
    /// At most [`Limits::sessions`](crate::Limits::sessions) wait to be accepted; those that come on top are closed.
    pub async fn accept(&self) -> Option<Session> {
        self.incoming().await.map(Incoming::accept)
    }

    /// The next session that a client has started, to be let in or turned away; `None` once the endpoint is closed.
    ///
    /// As many may wait as with [`accept`](Self::accept).
    pub async fn incoming(&self) -> Option<Incoming> {
        let shared = &self.0.shared;
        loop {
            let came = shared.accepted.notified();
            let (next, over) = shared.with(|state, _| {
                let next =
                    state.incoming.pop_front().and_then(|id| Some((id, state.sessions.get(&id)?.signals.clone())));
                (next, state.dead || state.closing.is_some())
            });
            match next {
                Some((id, signals)) => {
                    return Some(Incoming::new(Session::new(shared.clone(), id, signals, self.0.settings)));
                }
                None if over => return None,
                None => came.await,
            }
        }
    }

    /// The endpoint's own ends, in the order in which they were bound.
    pub fn locals(&self) -> Vec<Local> {
        self.0.shared.with(|state, _| state.ends.sockets().map(|socket| socket.describe()).collect())
    }

    /// The end that was bound as `bind` and can reach `remote`, as far as its IP version goes.
    pub fn local(&self, bind: &Bind, remote: SocketAddr) -> Option<LocalId> {
        self.0.shared.with(|state, _| state.ends.bound_as(bind, canonical(remote)))
    }

    /// The address of the first socket; the unspecified one, port 0, if all have been [unbound](Self::unbind).
    pub fn local_address(&self) -> SocketAddr {
        let first = self.0.shared.with(|state, _| state.ends.sockets().next().map(|socket| socket.address));
        first.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into())
    }

    /// Binds another socket (two, for an interface that has addresses of both IP versions): an interface came up, say.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn bind(&self, bind: Bind) -> Result<Vec<Local>, BuildError> {
        let sockets = Socket::open_all_of(&bind, self.0.config.receive_buffer)?;
        let by_address = self.0.client.is_none();
        self.0.shared.drive(|state, _| {
            if state.dead || state.closing.is_some() {
                return Err(BuildError::Closed);
            }
            sockets.into_iter().map(|socket| state.ends.add(socket, by_address)).collect()
        })
    }

    /// Gives a socket up: its interface went, say, or is not to be used any more. What it was; `None` if there is no such socket.
    ///
    /// The paths over it are closed first, of all sessions; what was in flight on them goes elsewhere. A session of which it carries the
    /// only path lives on without one, for [`idle_timeout`](crate::SessionConfig::idle_timeout): a path that is opened meanwhile takes the
    /// place. One that has not begun yet ends. The id names nothing from now on; that of another socket is another.
    ///
    /// ```no_run
    /// # async fn example(endpoint: punctual::Endpoint, session: punctual::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = "203.0.113.5:4433".parse()?;
    /// // The modem was plugged in again: its interface has the same name, and is another one.
    /// let modem = "wwan0".parse()?;
    /// let old = endpoint.local(&modem, server).ok_or("it was bound")?;
    /// endpoint.unbind(old);
    /// let new = endpoint.bind(modem)?;
    /// session.open_path(new[0].id, server).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn unbind(&self, id: LocalId) -> Option<Local> {
        self.0.shared.drive(|state, now| state.unbind(id, now))
    }

    /// Accepts no more sessions and closes all there are.
    pub fn close(&self, code: u32, reason: &str) {
        self.0.shared.drive(|state, now| state.close(now, code, reason));
        self.0.shared.accepted.notify_waiters();
    }

    /// Waits until every session is over, and the peers of those that were closed have been told: a few times over each path, as nobody acknowledges it.
    pub async fn wait_idle(&self) {
        let shared = &self.0.shared;
        loop {
            let idle = shared.idle.notified();
            if shared.with(|state, _| state.dead || state.core.has_parted()) {
                break;
            }
            idle.await;
        }
        if let Some(logs) = shared.with(|state, _| state.logs.clone()) {
            logs.caught_up().await;
        }
    }

    pub(crate) fn build(
        config: Config,
        binds: Vec<Vec<Socket>>,
        client: Option<ClientConfig>,
        server: Option<punctual_proto::ServerConfig>,
        reset: Option<ResetSecret>,
        logs: Option<Arc<Logs>>,
    ) -> Result<Self, BuildError> {
        config.session.check()?;
        let role = if server.is_some() { Role::Server } else { Role::Client };
        let by_address = server.is_some();
        // What was recorded before there was an endpoint to send it with has its age nevertheless, at both ends.
        let now = Instant::now();
        let mut core = EndpointConfig::new(now.checked_sub(LEAD).unwrap_or(now));
        core.reset = reset;
        let core = punctual_proto::Endpoint::new(core, server);
        let mut state = State {
            core,
            sessions: Default::default(),
            incoming: Default::default(),
            max_incoming: config.session.limits.sessions,
            ends: Default::default(),
            logs,
            closing: None,
            races: 0,
            abandoned: false,
            dead: false,
        };
        for socket in binds.into_iter().flatten() {
            let local = state.ends.add(socket, by_address)?;
            info!(role = role.name(), address = %local.address, bind = %local.bind, "bound");
        }
        let settings = Settings {
            connect_timeout: config.connect_timeout,
            drops_stale: (config.session.scheduler)().drops_stale(),
            event_backlog: config.event_backlog,
            receive_buffer: config.receive_buffer,
        };
        let shared = Arc::new(Shared::new(state));
        tokio::spawn(driver::run(shared.clone()).instrument(debug_span!("endpoint", role = role.name())));
        Ok(Self(Arc::new(Owner { shared, client, config, settings })))
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("locals", &self.locals()).finish_non_exhaustive()
    }
}
