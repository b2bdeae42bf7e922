//! A server and clients in one process, whose devices are queues, with sessions over two paths on loopback.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use ipnet::IpNet;
use punctual::{Config as EndpointConfig, Endpoint, Fingerprint, Identity, Route, Session, Trust};
use punctual_gateway::{
    class::{ClassSettings, Deadline},
    vpn::{
        AcceptRoutes, Client, Config, Device, Ended, Rule, Server, Setup, Vpn, packet::Packet, segment::Rest,
        session_limits,
    },
};
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc},
    task::{AbortHandle, JoinHandle},
};

/// After this, a test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A device whose system is the test.
#[derive(Debug)]
pub(crate) struct Queue {
    sent: mpsc::UnboundedSender<(Bytes, Rest)>,
    from_system: AsyncMutex<mpsc::UnboundedReceiver<(Bytes, Rest)>>,
    to_system: mpsc::UnboundedSender<(Bytes, Rest)>,
    came: AsyncMutex<mpsc::UnboundedReceiver<(Bytes, Rest)>>,
    setups: Mutex<Vec<Setup>>,
    /// Networks of the host's other interfaces.
    pub(crate) beside: Mutex<Vec<IpNet>>,
    deleted: AtomicBool,
}

impl Queue {
    fn new() -> Self {
        let ((sent, from_system), (to_system, came)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (from_system, came) = (AsyncMutex::new(from_system), AsyncMutex::new(came));
        Self {
            sent,
            from_system,
            to_system,
            came,
            setups: Mutex::default(),
            beside: Mutex::default(),
            deleted: AtomicBool::default(),
        }
    }
}

impl Device for Queue {
    async fn recv(&self, space: &mut [u8]) -> io::Result<(Range<usize>, Rest)> {
        if self.deleted.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (packet, rest) = self.from_system.lock().await.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
        // As a system does that puts something in front.
        space[10..10 + packet.len()].copy_from_slice(&packet);
        Ok((10..10 + packet.len(), rest))
    }

    fn send(&self, bytes: &[u8], _: &Packet, rest: Rest) -> io::Result<()> {
        self.to_system.send((Bytes::copy_from_slice(bytes), rest)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    async fn set_up(&self, setup: &Setup) -> io::Result<()> {
        self.setups.lock().expect("sound").push(setup.clone());
        Ok(())
    }

    async fn beside(&self) -> io::Result<Vec<IpNet>> {
        Ok(self.beside.lock().expect("sound").clone())
    }
}

/// One side.
pub(crate) struct Host {
    pub(crate) vpn: Arc<Vpn<Queue>>,
}

impl Host {
    pub(crate) async fn new(config: Config) -> Self {
        Self { vpn: Arc::new(Vpn::start(Queue::new(), config).await.expect("it makes sense")) }
    }

    /// The system sends a packet.
    pub(crate) fn send(&self, packet: Vec<u8>, rest: Rest) {
        self.vpn.device().sent.send((packet.into(), rest)).expect("it is read");
    }

    /// The device goes, as when somebody deletes it.
    pub(crate) fn delete_device(&self) {
        self.vpn.device().deleted.store(true, Ordering::Relaxed);
        // It is being read: what comes is the last.
        self.send(vec![], Rest::Nothing);
    }

    /// What the system gets next.
    pub(crate) async fn came(&self) -> (Bytes, Rest) {
        let mut came = self.vpn.device().came.lock().await;
        tokio::time::timeout(PATIENCE, came.recv()).await.expect("a packet").expect("the device is there")
    }

    /// What the device was told to be last.
    pub(crate) fn setup(&self) -> Option<Setup> {
        self.vpn.device().setups.lock().expect("sound").last().cloned()
    }

    pub(crate) fn counter(&self, line: &str) -> u64 {
        let text = self.vpn.metrics();
        let found = text.lines().find_map(|said| said.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or(0)
    }

    /// The sum of a metric over all its labels.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        let text = self.vpn.metrics();
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix('{')?.rsplit(' ').next()?.parse::<u64>().ok();
        text.lines().filter_map(of).sum()
    }

    /// Waits for a metric to have been counted so far.
    pub(crate) async fn until(&self, line: &str, count: u64) {
        wait_for(line, || self.counter(line) >= count).await;
    }
}

pub(crate) async fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "in vain for {what}");
}

/// The side that is called.
pub(crate) struct Called {
    pub(crate) host: Host,
    _endpoint: Endpoint,
    address: SocketAddr,
    fingerprint: Fingerprint,
    accepting: AbortHandle,
    pub(crate) ended: AsyncMutex<mpsc::UnboundedReceiver<Ended>>,
}

pub(crate) fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().expect("a network")).collect()
}

/// A server at 10.9.0.1 and fd09::1 that lets these in.
pub(crate) fn config(clients: Vec<Client>) -> Config {
    let server = Server {
        addresses: nets(&["10.9.0.1/24", "fd09::1/64"]),
        routes: nets(&["192.168.0.0/16"]),
        mtu: 1_500,
        clients,
        client_to_client: false,
    };
    Config { server: Some(server), ..patient() }
}

/// A client's: nothing comes too late, however busy the host is, and it takes what it is given.
pub(crate) fn patient() -> Config {
    let all = ClassSettings { deadline: Some(Deadline(None)), ..ClassSettings::default() };
    let rule = Rule { class: "all".into(), ..Rule::default() };
    let accept_routes = AcceptRoutes::All;
    Config { classes: [("all".to_owned(), all)].into(), rules: vec![rule], accept_routes, ..Config::default() }
}

fn endpoint_config() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.session.limits = session_limits(config.session.limits);
    config
}

impl Called {
    pub(crate) async fn start(config: Config) -> Self {
        Self::telling(config, None).await
    }

    /// One that tells of its sessions.
    pub(crate) async fn telling(config: Config, sessions: Option<mpsc::UnboundedSender<Session>>) -> Self {
        let host = Host::new(config).await;
        let identity = Identity::self_signed(["localhost"]).expect("an identity");
        let fingerprint = identity.fingerprint();
        let builder =
            Endpoint::server(identity).config(endpoint_config()).client_ca(Trust::from(host.vpn.access_list()));
        let endpoint = builder.bind("127.0.0.1:0".parse().expect("an address")).build().expect("a server");
        let (accepting, vpn) = (endpoint.clone(), host.vpn.clone());
        let (tell, ended) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(async move {
            while let Some(session) = accepting.accept().await {
                let (vpn, tell) = (vpn.clone(), tell.clone());
                if let Some(sessions) = &sessions {
                    let _ = sessions.send(session.clone());
                }
                tokio::spawn(async move { tell.send(vpn.answer(session).await) });
            }
        });
        let (address, accepting) = (endpoint.local_address(), accepting.abort_handle());
        Self { host, _endpoint: endpoint, address, fingerprint, accepting, ended: AsyncMutex::new(ended) }
    }

    /// How a session ended.
    pub(crate) async fn an_end(&self) -> Ended {
        let mut ended = self.ended.lock().await;
        tokio::time::timeout(PATIENCE, ended.recv()).await.expect("an end").expect("it is told")
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A key, and what is needed to use it again.
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn new() -> Self {
        Self(Identity::self_signed(["client"]).expect("an identity").to_pem().into())
    }

    fn identity(&self) -> Identity {
        Identity::from_pem(&self.0, &self.0).expect("our own")
    }

    /// As settings have it.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.identity().fingerprint())
    }

    fn endpoint(&self, server: &Called) -> Endpoint {
        self.endpoint_with(server, endpoint_config())
    }

    fn endpoint_with(&self, server: &Called, config: EndpointConfig) -> Endpoint {
        let builder = Endpoint::client().trust(server.fingerprint).identity(self.identity());
        builder.config(config).build().expect("a client")
    }

    /// A session that takes few blocks before those that came are heard.
    pub(crate) async fn slow_session(&self, server: &Called) -> (Endpoint, Session) {
        let mut config = endpoint_config();
        config.session.limits = config.session.limits.receive_blocks(16);
        let endpoint = self.endpoint_with(server, config);
        let session = endpoint.connect(server.address, "localhost").await.expect("a session");
        (endpoint, session)
    }

    /// A session over two paths, of which each word is the test's to say.
    pub(crate) async fn session(&self, server: &Called) -> (Endpoint, Session) {
        let endpoint = self.endpoint(server);
        let route = |from: &str| Route::new(from.parse().expect("an address"), server.address);
        let connect = endpoint.connect_over([route("127.0.0.2"), route("127.0.0.3")], "localhost");
        let (session, _) = connect.await.expect("a session");
        (endpoint, session)
    }

    /// Whether the server turns it away, sooner or later.
    pub(crate) async fn is_turned_away(&self, server: &Called) -> bool {
        let endpoint = self.endpoint(server);
        match endpoint.connect(server.address, "localhost").await {
            // TLS tells a client that it is not let in only when the server has heard of its certificate.
            Ok(session) => tokio::time::timeout(PATIENCE, session.closed()).await.is_ok(),
            Err(_) => true,
        }
    }

    /// A client that has been welcomed, and takes all that it is given.
    pub(crate) async fn call(&self, server: &Called) -> Calling {
        self.call_by(server, Host::new(patient()).await).await
    }

    /// The same, on a host that may take less.
    pub(crate) async fn call_by(&self, server: &Called, host: Host) -> Calling {
        let calling = self.begin(server, host).await;
        wait_for("a welcome", || calling.host.vpn.is_open()).await;
        calling
    }

    /// A client that is about to be welcomed.
    pub(crate) async fn begin(&self, server: &Called, host: Host) -> Calling {
        let (endpoint, session) = self.session(server).await;
        let (vpn, called) = (host.vpn.clone(), session.clone());
        let ended = tokio::spawn(async move { vpn.call(called).await });
        Calling { host, session, ended, _endpoint: endpoint }
    }
}

/// The side that calls.
pub(crate) struct Calling {
    pub(crate) host: Host,
    pub(crate) session: Session,
    pub(crate) ended: JoinHandle<Ended>,
    _endpoint: Endpoint,
}

impl Calling {
    /// Its addresses: of IPv4, and of IPv6.
    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        let setup = self.host.setup().expect("it was welcomed");
        let of = |is_v4: bool| setup.addresses.iter().map(IpNet::addr).find(|address| address.is_ipv4() == is_v4);
        [of(true).expect("one of IPv4"), of(false).expect("one of IPv6")]
    }
}

/// A datagram of UDP.
pub(crate) fn udp(from: IpAddr, to: IpAddr, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ip(from, to).udp(ports.0, ports.1).write(&mut bytes, data).expect("room");
    bytes
}

/// A segment of TCP that begins with a number.
pub(crate) fn tcp(from: IpAddr, to: IpAddr, ports: (u16, u16), number: u32, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ip(from, to).tcp(ports.0, ports.1, number, 512).write(&mut bytes, &vec![7; size]).expect("room");
    bytes
}

fn ip(from: IpAddr, to: IpAddr) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    use etherparse::{IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder as Builder};
    let headers = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = Ipv4Header::new(0, 64, IpNumber::UDP, from.octets(), to.octets()).expect("small");
            IpHeaders::Ipv4(header, Default::default())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header =
                Ipv6Header { source: from.octets(), destination: to.octets(), hop_limit: 64, ..Default::default() };
            IpHeaders::Ipv6(header, Default::default())
        }
        other => panic!("of two versions: {other:?}"),
    };
    Builder::ip(headers)
}
