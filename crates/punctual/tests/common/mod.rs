//! Endpoints on loopback, and a guard against hanging.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    future::{Future, IntoFuture},
    net::SocketAddr,
    time::Duration,
};

use tokio::sync::oneshot;

use punctual::{Bind, Config, Endpoint, Fingerprint, Identity, Session};

/// Far longer than any test takes: only what would never end fails by it.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it ends")
}

pub fn bind(text: &str) -> Bind {
    text.parse().expect("a valid address or interface")
}

pub struct Server {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    pub fingerprint: Fingerprint,
}

pub fn server() -> Server {
    server_with("127.0.0.1", Config::default())
}

pub fn server_with(address: &str, config: Config) -> Server {
    server_of(identity(), address, config)
}

fn identity() -> Identity {
    Identity::self_signed(["localhost"]).expect("a valid name")
}

pub fn server_of(identity: Identity, address: &str, config: Config) -> Server {
    let fingerprint = identity.fingerprint();
    let endpoint = Endpoint::server(identity).bind(bind(address)).config(config).build().expect("a loopback address");
    Server { address: endpoint.local_address(), endpoint, fingerprint }
}

pub fn client(server: &Server) -> Endpoint {
    client_with(server, Config::default())
}

pub fn client_with(server: &Server, config: Config) -> Endpoint {
    Endpoint::client().trust(server.fingerprint).config(config).build().expect("a client")
}

/// A client's session and the server's half of it.
pub async fn pair(server: &Server, client: &Endpoint) -> (Session, Session) {
    let (ours, theirs) =
        tokio::join!(client.connect(server.address, "localhost").into_future(), server.endpoint.accept());
    (ours.expect("connected"), theirs.expect("accepted"))
}

/// Reads until the session ends; how many blocks there were.
pub async fn drain(session: Session) -> usize {
    let mut blocks = 0;
    while session.recv().await.is_ok() {
        blocks += 1;
    }
    blocks
}

/// A UDP socket that never answers.
pub fn black_hole() -> (std::net::UdpSocket, SocketAddr) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a loopback address");
    let address = socket.local_addr().expect("bound");
    (socket, address)
}

/// A server that accepts one session and then vanishes without a word.
pub struct FallsSilent {
    pub address: SocketAddr,
    pub fingerprint: Fingerprint,
    identity: Identity,
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl FallsSilent {
    pub fn start() -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let identity = identity();
        let same = identity.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let kept = runtime.block_on(async {
                let server = server_of(same, "127.0.0.1", Config::default());
                tell.send((server.address, server.fingerprint)).expect("a listener");
                let session = server.endpoint.accept().await;
                stopped.await.expect("told to stop");
                (server, session)
            });
            // The driver goes before the handles, so that nobody closes anything.
            drop(runtime);
            drop(kept);
        });
        let (address, fingerprint) = told.recv().expect("a server");
        Self { address, fingerprint, identity, stop, thread }
    }

    /// Its identity, for who comes after it.
    pub fn fall_silent(self) -> Identity {
        self.stop.send(()).expect("it runs");
        self.thread.join().expect("no panic");
        self.identity
    }
}
