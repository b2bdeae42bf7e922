//! What endpoints are made of.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
};

use punctual_proto::{SessionConfig, Token};

use crate::{
    config::Config,
    endpoint::Endpoint,
    error::BuildError,
    local::Bind,
    qlog::{Logs, Role},
    socket::Socket,
    tls::{self, Fingerprint, Identity, Trust},
};

/// What a client endpoint is made of. Got from [`Endpoint::client`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use punctual::{Config, Endpoint, Trust};
///
/// let mut config = Config::default();
/// config.session.limits = config.session.limits.send_bytes(8 << 20);
/// # let fingerprint = punctual::Identity::self_signed(["localhost"])?.fingerprint();
/// let client = Endpoint::client().trust(Trust::fingerprints([fingerprint])).bind("127.0.0.1".parse()?).config(config).build()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ClientBuilder {
    trust: Trust,
    identity: Option<Identity>,
    token: Option<Token>,
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

    /// Shows each server this token, for one that [wants it](ServerBuilder::token): once it is certain that it is the server that we [trust](Self::trust), and never before.
    ///
    /// A server that does not know it closes the session with [`ProtocolError::Token`](crate::ProtocolError::Token), which may come after `connect` has succeeded:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use punctual::{CloseReason, Endpoint, Identity, ProtocolError, Token};
    ///
    /// let identity = Identity::self_signed(["localhost"])?;
    /// let fingerprint = identity.fingerprint();
    /// let token = Token::new("9b1f0c5e7a3d4826")?;
    /// let server = Endpoint::server(identity).token(token.clone()).bind("127.0.0.1:0".parse()?).build()?;
    /// let address = server.local_address();
    ///
    /// let stranger = Endpoint::client().trust(fingerprint).build()?;
    /// let reason = stranger.connect(address, "localhost").await?.closed().await;
    /// assert!(matches!(reason, CloseReason::Peer { code, .. } if code == ProtocolError::Token.code()));
    ///
    /// let known = Endpoint::client().trust(fingerprint).token(token).build()?;
    /// let session = known.connect(address, "localhost").await?;
    /// let accepted = server.accept().await.ok_or("closed")?;
    /// # drop((session, accepted));
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
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
        let Self { trust, identity, token, fallback, binds, config } = self;
        let (session, logs) = session_config(&config, Role::Client)?;
        let mut client = tls::client_config(&trust, identity.as_ref(), &fallback)?.session(session);
        if let Some(token) = token {
            client = client.token(token);
        }
        let sockets = match &binds[..] {
            [] => vec![open_all(0, &config)?],
            binds => {
                binds.iter().map(|bind| Socket::open_all_of(bind, config.receive_buffer)).collect::<Result<_, _>>()?
            }
        };
        Endpoint::build(config, sockets, Some(client), None, None, logs)
    }
}

/// What a server endpoint is made of. Got from [`Endpoint::server`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use punctual::{Endpoint, Identity, Trust};
///
/// let (server, client) = (Identity::self_signed(["localhost"])?, Identity::self_signed(["sensor-7"])?);
/// // Only this client is let in.
/// let server = Endpoint::server(server).client_ca(Trust::from(client.fingerprint())).bind("127.0.0.1:0".parse()?).build()?;
/// println!("listening on {}", server.local_address());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServerBuilder {
    identity: Identity,
    client_ca: Option<Trust>,
    tokens: Vec<Token>,
    fallback: Vec<Vec<u8>>,
    binds: Vec<Bind>,
    sockets: Vec<UdpSocket>,
    port: Option<u16>,
    config: Config,
}

impl ServerBuilder {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            identity,
            client_ca: None,
            tokens: Vec::new(),
            fallback: Vec::new(),
            binds: Vec::new(),
            sockets: Vec::new(),
            port: None,
            config: Config::default(),
        }
    }

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

    /// Lets in only clients that show this token ([`ClientBuilder::token`]), or another one that was added. Sessions of others end before they begin: they are not
    /// [accepted](Endpoint::accept). May go together with [`client_ca`](Self::client_ca): then both must be right.
    pub fn token(mut self, token: Token) -> Self {
        self.tokens.push(token);
        self
    }

    /// Adds a local end. On an unspecified address (`0.0.0.0`, `[::]`), answers leave from the address that the client asked.
    pub fn bind(mut self, bind: Bind) -> Self {
        self.binds.push(bind);
        self
    }

    /// Adds a UDP socket that is bound already: one from a service manager, say, which keeps it while we are started anew.
    pub fn socket(mut self, socket: UdpSocket) -> Self {
        self.sockets.push(socket);
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

    /// Binds the sockets and starts the driver, on the current tokio runtime. Without a bound end, a socket or a port, the system chooses a
    /// port on all addresses.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(self) -> Result<Endpoint, BuildError> {
        let Self { identity, client_ca, tokens, fallback, binds, sockets: handed_over, port, config } = self;
        let (session, logs) = session_config(&config, Role::Server)?;
        let server = tls::server_config(&identity, client_ca.as_ref(), &fallback)?
            .wait_for_acceptance()
            .tokens(tokens)
            .session(session);
        let mut sockets =
            binds.iter().map(|bind| Socket::open_all_of(bind, config.receive_buffer)).collect::<Result<Vec<_>, _>>()?;
        let is_elsewhere = !binds.is_empty() || !handed_over.is_empty();
        for socket in handed_over {
            sockets.push(vec![Socket::adopt(socket, config.receive_buffer)?]);
        }
        if let Some(port) = port.or((!is_elsewhere).then_some(0)) {
            sockets.push(open_all(port, &config)?);
        }
        let listens = sockets.iter().flatten().map(|socket| socket.address).collect();
        let reset = identity.reset_secret(listens);
        Endpoint::build(config, sockets, None, Some(server), Some(reset), logs)
    }
}

/// Sockets on all addresses, of both IP versions if the host has them.
fn open_all(port: u16, config: &Config) -> Result<Vec<Socket>, BuildError> {
    let v4 = Socket::open_all_of(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into(), config.receive_buffer);
    // With port 0, the two need not be the same.
    let v6 = Socket::open_all_of(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into(), config.receive_buffer);
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

/// The session settings, with qlog if it is wanted, and the logs.
fn session_config(config: &Config, role: Role) -> Result<(SessionConfig, Option<Arc<Logs>>), BuildError> {
    let mut session = config.session.clone();
    let Some(dir) = &config.qlog_dir else { return Ok((session, None)) };
    let logs = Logs::start(dir.clone(), role).map_err(|source| BuildError::Qlog { dir: dir.clone(), source })?;
    logs.watch(&mut session);
    Ok((session, Some(logs)))
}
