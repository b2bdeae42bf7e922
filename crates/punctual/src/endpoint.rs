//! An endpoint: sockets, and the sessions behind them.

use std::{
    future::{Future, IntoFuture},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use punctual_proto::{ClientConfig, EndpointConfig, LocalId, NetworkPath, QlogFileFactory, SessionConfig};
use tracing::{Instrument, debug_span, info};

use crate::{
    config::Config,
    driver,
    error::{BuildError, ConnectError},
    local::{Bind, Local, interface_addresses},
    qlog::Role,
    session::{Session, Settings, canonical},
    shared::{Shared, State},
    socket::Socket,
    tls::{self, Fingerprint, Identity, Trust},
};

/// Sockets, and the sessions behind them. The way into the library.
///
/// Clones are handles of the same endpoint. When the last is dropped, all its sessions are closed; the driver task stays until
/// the peers have been told. To be sure that they are before the program ends, [`close`](Self::close) and
/// [`wait_idle`](Self::wait_idle).
#[derive(Clone)]
pub struct Endpoint(Arc<Owner>);

/// Closes the endpoint when the last handle goes.
struct Owner {
    shared: Arc<Shared>,
    client: Option<ClientConfig>,
    config: Config,
    settings: Settings,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.drive(|state, now| {
            state.abandoned = true;
            state.close(now, 0, "");
        });
        self.shared.accepted.notify_waiters();
    }
}

impl Endpoint {
    /// The way to an endpoint that starts sessions.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use punctual::{Endpoint, Fingerprint};
    ///
    /// let fingerprint: Fingerprint = "…".parse()?;
    /// let endpoint = Endpoint::client().trust(fingerprint).bind("eth0".parse()?).bind("wlan0".parse()?).build()?;
    /// let server = "203.0.113.5:4433".parse()?;
    /// let session = endpoint.connect(server, "camera.example").await?;
    /// let wlan = endpoint.local(&"wlan0".parse()?, server).ok_or("wlan0 has no IPv4 address")?;
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
        ServerBuilder {
            identity,
            client_ca: None,
            fallback: Vec::new(),
            binds: Vec::new(),
            port: None,
            config: Config::default(),
        }
    }

    /// Starts a session with the server at `remote`, from the first socket of the same IP version ([`Connect::from`] chooses another).
    ///
    /// `server_name` is the DNS name or IP address that the server's certificate must bear.
    pub fn connect(&self, remote: SocketAddr, server_name: &str) -> Connect {
        Connect {
            endpoint: self.clone(),
            remote: canonical(remote),
            server_name: server_name.to_owned(),
            local: None,
            timeout: self.0.config.connect_timeout,
        }
    }

    /// The next session that a client has started; `None` once the endpoint is closed.
    ///
    /// At most [`Limits::sessions`](crate::Limits::sessions) wait to be accepted; those that come on top are closed.
    pub async fn accept(&self) -> Option<Session> {
        let shared = &self.0.shared;
        loop {
            let accepted = shared.accepted.notified();
            let (next, over) = shared.drive(|state, now| {
                let next =
                    state.incoming.pop_front().and_then(|id| Some((id, state.sessions.get(&id)?.signals.clone())));
                if let Some((id, _)) = next
                    && let Ok((session, _)) = state.session(id)
                {
                    session.accept(now);
                }
                (next, state.dead || state.closing.is_some())
            });
            match next {
                Some((id, signals)) => return Some(Session::new(shared.clone(), id, signals, self.0.settings)),
                None if over => return None,
                None => accepted.await,
            }
        }
    }

    /// The endpoint's own ends, in the order in which they were bound.
    pub fn locals(&self) -> Vec<Local> {
        self.0.shared.with(|state, _| {
            let local =
                |socket: &Arc<Socket>| Local { id: socket.local, address: socket.address, bind: socket.bind.clone() };
            state.sockets.iter().map(local).collect()
        })
    }

    /// The end that was bound as `bind` and can reach `remote`, as far as its IP version goes.
    pub fn local(&self, bind: &Bind, remote: SocketAddr) -> Option<LocalId> {
        let v4 = canonical(remote).is_ipv4();
        self.locals()
            .into_iter()
            .find(|local| local.bind == *bind && local.address.is_ipv4() == v4)
            .map(|local| local.id)
    }

    /// The address of the first socket.
    pub fn local_address(&self) -> SocketAddr {
        self.0.shared.with(|state, _| state.sockets[0].address)
    }

    /// Binds another socket (two, for an interface that has addresses of both IP versions): an interface came up, say.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn bind(&self, bind: Bind) -> Result<Vec<Local>, BuildError> {
        let sockets = open(&bind, &self.0.config)?;
        let by_address = self.0.client.is_none();
        self.0.shared.drive(|state, _| {
            if state.dead || state.closing.is_some() {
                return Err(BuildError::Closed);
            }
            Ok(sockets.into_iter().map(|socket| add_socket(state, socket, by_address)).collect())
        })
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
                return;
            }
            idle.await;
        }
    }

    fn build(
        config: Config,
        binds: Vec<Vec<Socket>>,
        client: Option<ClientConfig>,
        server: Option<punctual_proto::ServerConfig>,
    ) -> Result<Self, BuildError> {
        config.session.check()?;
        let role = if server.is_some() { Role::Server } else { Role::Client };
        let by_address = server.is_some();
        let core = punctual_proto::Endpoint::new(EndpointConfig { seed: None, epoch: Instant::now() }, server);
        let mut state = State {
            core,
            sessions: Default::default(),
            incoming: Default::default(),
            max_incoming: config.session.limits.sessions,
            locals: Default::default(),
            sockets: Vec::new(),
            qlog_dir: config.qlog_dir.clone(),
            closing: None,
            abandoned: false,
            dead: false,
        };
        for socket in binds.into_iter().flatten() {
            let local = add_socket(&mut state, socket, by_address);
            info!(role = role.name(), address = %local.address, bind = %local.bind, "bound");
        }
        let settings = Settings {
            connect_timeout: config.connect_timeout,
            drops_stale: (config.session.scheduler)().drops_stale(),
            event_backlog: config.event_backlog,
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

fn add_socket(state: &mut State, mut socket: Socket, by_address: bool) -> Local {
    socket.local = state.locals.add_socket(state.sockets.len());
    socket.by_address = by_address && socket.address.ip().is_unspecified();
    let local = Local { id: socket.local, address: socket.address, bind: socket.bind.clone() };
    state.sockets.push(Arc::new(socket));
    local
}

/// The sockets that `bind` asks for; at least one.
fn open(bind: &Bind, config: &Config) -> Result<Vec<Socket>, BuildError> {
    tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
    let (addresses, device) = match bind {
        Bind::Address(address) => (vec![*address], None),
        Bind::Interface(name) => (interface_addresses(name)?, Some(name.as_str())),
    };
    let open = |address| {
        Socket::open(address, device, bind.clone(), config.receive_buffer)
            .map_err(|source| BuildError::Bind { bind: bind.clone(), source })
    };
    addresses.into_iter().map(open).collect()
}

/// Sockets on all addresses, of both IP versions if the host has them.
fn open_all(port: u16, config: &Config) -> Result<Vec<Socket>, BuildError> {
    let v4 = open(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into(), config);
    // With port 0, the two need not be the same.
    let v6 = open(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into(), config);
    match (v4, v6) {
        (Ok(v4), Ok(v6)) => Ok(v4.into_iter().chain(v6).collect()),
        // A host without IPv6 (or without IPv4) does with the other; a port that is taken is an error.
        (Ok(one), Err(BuildError::Bind { source, .. })) | (Err(BuildError::Bind { source, .. }), Ok(one))
            if source.kind() != std::io::ErrorKind::AddrInUse =>
        {
            Ok(one)
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// The session settings, with qlog if it is wanted.
fn session_config(config: &Config, role: Role) -> Result<SessionConfig, BuildError> {
    let mut session = config.session.clone();
    if let Some(dir) = &config.qlog_dir {
        std::fs::create_dir_all(dir).map_err(|source| BuildError::Qlog { dir: dir.clone(), source })?;
        session.qlog = Some(Arc::new(QlogFileFactory::new(dir.clone()).with_prefix(role.name())));
    }
    Ok(session)
}

/// A connection attempt; await it to get the session.
#[must_use = "nothing happens until it is awaited"]
#[derive(Debug)]
pub struct Connect {
    endpoint: Endpoint,
    remote: SocketAddr,
    server_name: String,
    local: Option<LocalId>,
    timeout: Duration,
}

impl Connect {
    /// Chooses the local end of the first path.
    pub fn from(mut self, local: LocalId) -> Self {
        self.local = Some(local);
        self
    }

    /// Says how long the attempt may take, in place of [`Config::connect_timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn run(self) -> Result<Session, ConnectError> {
        let Self { endpoint, remote, server_name, local, timeout: after } = self;
        let Owner { shared, client, settings, .. } = &*endpoint.0;
        let client = client.as_ref().ok_or(ConnectError::NotClient)?;
        let (session, socket) = shared.drive(|state, now| {
            if state.dead || state.closing.is_some() {
                return Err(ConnectError::EndpointClosed);
            }
            let (local, socket) = choose_local(state, local, remote)?;
            let id = state.core.connect(now, client, NetworkPath { local, remote }, &server_name).map_err(|error| {
                match error {
                    punctual_proto::ConnectError::ServerName(name) => ConnectError::ServerName(name),
                    punctual_proto::ConnectError::RemoteAddress(address) => ConnectError::RemoteAddress(address),
                    punctual_proto::ConnectError::Config(error) => ConnectError::Config(error),
                    punctual_proto::ConnectError::Full => ConnectError::Full,
                }
            })?;
            let slot = state.open_slot(id, Role::Client, now);
            slot.held = true;
            Ok((Session::new(shared.clone(), id, slot.signals.clone(), *settings), socket))
        })?;
        // Should this future be dropped, so is the session's only handle, which closes it.
        let error = match tokio::time::timeout(after, session.connected()).await {
            Ok(Ok(())) => return Ok(session),
            Ok(Err(reason)) => ConnectError::from_reason(reason, remote, after),
            Err(_) => ConnectError::TimedOut { remote, after, cause: None },
        };
        Err(match error {
            ConnectError::TimedOut { remote, after, .. } => {
                ConnectError::TimedOut { remote, after, cause: socket.last_error(remote) }
            }
            other => other,
        })
    }
}

impl IntoFuture for Connect {
    type Output = Result<Session, ConnectError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

fn choose_local(
    state: &State,
    local: Option<LocalId>,
    remote: SocketAddr,
) -> Result<(LocalId, Arc<Socket>), ConnectError> {
    let socket = match local {
        Some(local) => {
            let (socket, _) = state.locals.resolve(local).ok_or(ConnectError::UnknownLocal(local))?;
            Some(&state.sockets[socket])
        }
        None => state.sockets.iter().find(|socket| socket.address.is_ipv4() == remote.is_ipv4()),
    };
    let socket =
        socket.filter(|socket| socket.address.is_ipv4() == remote.is_ipv4()).ok_or(ConnectError::NoLocal(remote))?;
    Ok((local.unwrap_or(socket.local), socket.clone()))
}

/// What a client endpoint is made of. Got from [`Endpoint::client`].
#[derive(Debug, Default)]
pub struct ClientBuilder {
    trust: Trust,
    identity: Option<Identity>,
    fallback: Vec<Vec<u8>>,
    binds: Vec<Bind>,
    config: Config,
}

impl ClientBuilder {
    /// Whose word to take for who the server is. Default: what the operating system trusts.
    pub fn trust(mut self, trust: impl Into<Trust>) -> Self {
        self.trust = trust.into();
        self
    }

    /// What to show a server that asks who we are.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Adds a local end. Without any, there is one on all addresses for each IP version, and the system chooses.
    pub fn bind(mut self, bind: Bind) -> Self {
        self.binds.push(bind);
        self
    }

    /// Offers another application protocol (ALPN) after `punctual/1`, to a server that does not speak that: it gets each block
    /// as a unidirectional stream.
    pub fn fallback_protocol(mut self, alpn: impl Into<Vec<u8>>) -> Self {
        self.fallback.push(alpn.into());
        self
    }

    /// Replaces the settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Binds the sockets and starts the driver, on the current tokio runtime.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(self) -> Result<Endpoint, BuildError> {
        let Self { trust, identity, fallback, binds, config } = self;
        let client =
            tls::client_config(&trust, identity.as_ref(), &fallback)?.session(session_config(&config, Role::Client)?);
        let sockets = match &binds[..] {
            [] => vec![open_all(0, &config)?],
            binds => binds.iter().map(|bind| open(bind, &config)).collect::<Result<_, _>>()?,
        };
        Endpoint::build(config, sockets, Some(client), None)
    }
}

/// What a server endpoint is made of. Got from [`Endpoint::server`].
#[derive(Debug)]
pub struct ServerBuilder {
    identity: Identity,
    client_ca: Option<Trust>,
    fallback: Vec<Vec<u8>>,
    binds: Vec<Bind>,
    port: Option<u16>,
    config: Config,
}

impl ServerBuilder {
    /// The fingerprint that clients can pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    /// Turns away clients without a certificate signed by these authorities ([`Trust::ca_pem`], [`Trust::ca_der`]), or without one of
    /// these certificates ([`Trust::fingerprints`]).
    ///
    /// A client that is turned away may learn of it only after its `connect` has succeeded: TLS 1.3 checks
    /// the client last.
    pub fn client_ca(mut self, authorities: Trust) -> Self {
        self.client_ca = Some(authorities);
        self
    }

    /// Adds a local end. On an unspecified address (`0.0.0.0`, `[::]`), answers leave from the address that the client asked.
    pub fn bind(mut self, bind: Bind) -> Self {
        self.binds.push(bind);
        self
    }

    /// Listens on this port of all addresses, of both IP versions if the host has them.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Speaks another application protocol (ALPN) with clients that do not know `punctual/1`.
    pub fn fallback_protocol(mut self, alpn: impl Into<Vec<u8>>) -> Self {
        self.fallback.push(alpn.into());
        self
    }

    /// Replaces the settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Binds the sockets and starts the driver, on the current tokio runtime. Without a bound end or a port, the system chooses a
    /// port on all addresses.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(self) -> Result<Endpoint, BuildError> {
        let Self { identity, client_ca, fallback, binds, port, config } = self;
        let server = tls::server_config(&identity, client_ca.as_ref(), &fallback)?
            .wait_for_acceptance()
            .session(session_config(&config, Role::Server)?);
        let mut sockets = binds.iter().map(|bind| open(bind, &config)).collect::<Result<Vec<_>, _>>()?;
        if let Some(port) = port.or(binds.is_empty().then_some(0)) {
            sockets.push(open_all(port, &config)?);
        }
        Endpoint::build(config, sockets, None, Some(server))
    }
}
