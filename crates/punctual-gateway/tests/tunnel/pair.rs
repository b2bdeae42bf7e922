//! Two gateways in one process, with a session over two paths on loopback.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use punctual::{Config as EndpointConfig, Endpoint, Fingerprint, Identity, Route, Session, Trust};
use punctual_gateway::tunnel::{Config, Ended, Protocol, Tunnel, session_limits};
use tokio::{
    net::{TcpStream, UdpSocket},
    task::{AbortHandle, JoinHandle},
};

/// After this, a test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The gateway that is called.
pub(crate) struct Server {
    /// Closes when it goes.
    _endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) tunnel: Arc<Tunnel>,
    accepting: AbortHandle,
}

/// The gateway that calls.
pub(crate) struct Client {
    pub(crate) endpoint: Endpoint,
    pub(crate) tunnel: Arc<Tunnel>,
}

/// What a test does with two gateways.
pub(crate) fn config(listen: &[&str], forward: &[&str]) -> Config {
    Config {
        listen: listen.iter().map(|port| port.parse().expect("a port")).collect(),
        forward: forward.iter().map(|port| port.parse().expect("a port")).collect(),
        ..Config::default()
    }
}

pub(crate) fn endpoint_config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.session.limits = session_limits(config.session.limits);
    config
}

impl Server {
    pub(crate) async fn start(config: Config) -> Self {
        Self::letting_in(config, None).await
    }

    /// One that lets in who shows a certificate that it trusts, if it is to ask for one.
    pub(crate) async fn letting_in(config: Config, clients: Option<Trust>) -> Self {
        Self::with(config, clients, endpoint_config()).await
    }

    pub(crate) async fn with(config: Config, clients: Option<Trust>, endpoint_config: EndpointConfig) -> Self {
        let identity = Identity::self_signed(["localhost"]).expect("an identity");
        let fingerprint = identity.fingerprint();
        let mut builder =
            Endpoint::server(identity).config(endpoint_config).bind("127.0.0.1:0".parse().expect("an address"));
        if let Some(clients) = clients {
            builder = builder.client_ca(clients);
        }
        let endpoint = builder.build().expect("a server");
        let tunnel = Arc::new(Tunnel::start(config).await.expect("a tunnel"));
        let (accepting, answering) = (endpoint.clone(), tunnel.clone());
        let accepting = tokio::spawn(async move {
            while let Some(session) = accepting.accept().await {
                let tunnel = answering.clone();
                tokio::spawn(async move { tunnel.answer(session).await });
            }
        });
        let address = endpoint.local_address();
        Self { _endpoint: endpoint, address, fingerprint, tunnel, accepting: accepting.abort_handle() }
    }

    /// A session with it over two paths.
    pub(crate) async fn session(&self, endpoint: &Endpoint) -> Session {
        let route = |from: &str| Route::new(from.parse().expect("an address"), self.address);
        let connect = endpoint.connect_over([route("127.0.0.2"), route("127.0.0.3")], "localhost");
        connect.await.expect("a session").0
    }

    pub(crate) fn endpoint_for_clients(&self) -> Endpoint {
        Endpoint::client().trust(self.fingerprint).config(endpoint_config()).build().expect("a client")
    }

    pub(crate) async fn client(&self, config: Config) -> Client {
        let tunnel = Arc::new(Tunnel::start(config).await.expect("a tunnel"));
        Client { endpoint: self.endpoint_for_clients(), tunnel }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Client {
    /// Calls the server, in a task of its own.
    pub(crate) async fn call(&self, server: &Server) -> (Session, JoinHandle<Ended>) {
        let session = server.session(&self.endpoint).await;
        let (tunnel, called) = (self.tunnel.clone(), session.clone());
        (session, tokio::spawn(async move { tunnel.call(called).await }))
    }

    /// Calls the server over these routes, in a task of its own.
    pub(crate) async fn call_over<const N: usize>(&self, routes: [Route; N]) -> JoinHandle<Ended> {
        let session = self.endpoint.connect_over(routes, "localhost").await.expect("a session").0;
        let tunnel = self.tunnel.clone();
        tokio::spawn(async move { tunnel.call(session).await })
    }

    /// Where it listens for a name.
    pub(crate) async fn port(&self, name: &str) -> SocketAddr {
        port(&self.tunnel, name).await
    }
}

/// Where a gateway listens for a name.
pub(crate) async fn port(tunnel: &Tunnel, name: &str) -> SocketAddr {
    let ports = tunnel.ports().await;
    ports.iter().find(|(_, _, known)| known.as_str() == name).expect("it listens").1
}

/// A program that says what it is told, behind a word of its own, to whoever told it.
pub(crate) async fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("it is bound");
    tokio::spawn(async move {
        let mut space = vec![0; 65_536];
        while let Ok((size, from)) = socket.recv_from(&mut space).await {
            let _ = socket.send_to(&space[..size], from).await;
        }
    });
    address
}

/// A program that sends to a port.
pub(crate) async fn program(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    socket.connect(to).await.expect("an address");
    socket
}

/// Says something until it is answered: the first words may be said before there is a session.
pub(crate) async fn ask(program: &UdpSocket, what: &[u8]) -> Vec<u8> {
    let mut space = vec![0; 65_536];
    let asking = async {
        loop {
            program.send(what).await.expect("sent");
            let answer = tokio::time::timeout(Duration::from_millis(200), program.recv(&mut space)).await;
            if let Ok(Ok(size)) = answer {
                return size;
            }
        }
    };
    let size = tokio::time::timeout(PATIENCE, asking).await.expect("an answer");
    space.truncate(size);
    space
}

impl Client {
    /// Waits until there is a far gateway that forwards such a port: before, nothing is carried.
    pub(crate) async fn until_carried(&self, protocol: Protocol, name: &str) {
        let name = name.parse().expect("a name");
        let offered = async {
            while !self.tunnel.is_carried(protocol, &name) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, offered).await.expect("a far gateway that forwards it");
    }

    /// A connection that the far side carries.
    pub(crate) async fn connected(&self, name: &str) -> TcpStream {
        self.until_carried(Protocol::Tcp, name).await;
        TcpStream::connect(self.port(name).await).await.expect("it listens")
    }
}
