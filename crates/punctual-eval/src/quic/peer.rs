//! A QUIC endpoint with one connection, driven by datagrams and the time.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event, Incoming, PathId,
    PathStatus, ServerConfig,
};
use punctual_proto::{EcnCodepoint, NetworkPath, Transmit};
use punctual_sim::tls::SERVER_NAME;

/// The least time between two wake-ups of a connection. On any machine some passes, and noq counts on it: its pacer rounds a wait of less than five
/// nanoseconds down to none, gains nothing in no time, and asks to be woken at the same moment again. (Such waits come about where a path is much
/// faster than when the bucket was last sized, which is when window or MTU change, not when the round-trip time does.)
const TICK: Duration = Duration::from_micros(1);

/// A QUIC endpoint and its only connection, if it has one yet.
pub(super) struct Peer {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    /// Where datagrams go, by the peer's address, which is another for each path of a world.
    networks: BTreeMap<SocketAddr, NetworkPath>,
    /// What the endpoint answers outside the connection.
    replies: VecDeque<(Transmit, Vec<u8>)>,
    /// When the connection was last woken.
    woken: Option<Instant>,
}

impl Peer {
    /// A client, or with `server` a server; they draw differently though the seed is the same.
    pub(super) fn new(seed: u64, server: Option<ServerConfig>) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8] = u8::from(server.is_some());
        let mut config = EndpointConfig::default();
        config.rng_seed(Some(bytes));
        Self {
            endpoint: Endpoint::new(Arc::new(config), server.map(Arc::new), true),
            connection: None,
            networks: BTreeMap::new(),
            replies: VecDeque::new(),
            woken: None,
        }
    }

    /// Begins the handshake.
    pub(super) fn connect(&mut self, now: Instant, config: ClientConfig, network: NetworkPath) {
        self.networks.insert(network.remote, network);
        // The addresses of a world and the name of its certificate are valid, so there is no error to report.
        self.connection = self.endpoint.connect(now, config, network.remote, SERVER_NAME).ok();
    }

    /// Opens another path; `None` if the peer has not made room for it yet.
    pub(super) fn open_path(&mut self, now: Instant, network: NetworkPath) -> Option<PathId> {
        self.networks.insert(network.remote, network);
        self.connection()?.open_path(tuple(network), PathStatus::Available, now).ok()
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut().map(|(_, connection)| connection)
    }

    pub(super) fn has_connection(&self) -> bool {
        self.connection.is_some()
    }

    /// The path to an address of the peer's.
    pub(super) fn network(&self, remote: SocketAddr) -> Option<NetworkPath> {
        self.networks.get(&remote).copied()
    }

    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        path: NetworkPath,
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
    ) {
        self.networks.insert(path.remote, path);
        let mut buf = Vec::new();
        let ecn = ecn.and_then(|mark| noq_proto::EcnCodepoint::from_bits(mark as u8));
        match self.endpoint.handle(now, tuple(path), ecn, data, &mut buf) {
            None => {}
            Some(DatagramEvent::Response(transmit)) => self.reply(path, &transmit, buf),
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, path, incoming),
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some((own, connection)) = &mut self.connection
                    && *own == handle
                {
                    connection.handle_event(event);
                }
            }
        }
        self.forward();
    }

    fn accept(&mut self, now: Instant, path: NetworkPath, incoming: Incoming) {
        let mut buf = Vec::new();
        if self.connection.is_some() {
            let transmit = self.endpoint.refuse(incoming, &mut buf);
            return self.reply(path, &transmit, buf);
        }
        match self.endpoint.accept(incoming, now, &mut buf, None) {
            Ok(accepted) => self.connection = Some(accepted),
            Err(error) => error.response.iter().for_each(|transmit| self.reply(path, transmit, buf.clone())),
        }
    }

    fn reply(&mut self, path: NetworkPath, transmit: &noq_proto::Transmit, mut buf: Vec<u8>) {
        buf.truncate(transmit.size);
        self.replies.push_back((Transmit { path, size: transmit.size, ecn: mark(transmit) }, buf));
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((transmit, bytes)) = self.replies.pop_front() {
            buf.extend_from_slice(&bytes);
            return Some(transmit);
        }
        let transmit = self.connection()?.poll_transmit(now, NonZeroUsize::MIN, buf)?;
        let path = self.network(transmit.destination)?;
        Some(Transmit { path, size: transmit.size, ecn: mark(&transmit) })
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.connection.as_ref()?.1.poll_timeout()?;
        Some(self.woken.map_or(due, |woken| due.max(woken + TICK)))
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = self.connection()
            && connection.poll_timeout().is_some_and(|due| due <= now)
        {
            connection.handle_timeout(now);
            self.woken = Some(now);
        }
        self.forward();
    }

    /// What the connection has to say.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.connection()?.poll()
    }

    /// Carries what the connection and the endpoint have to tell each other.
    pub(super) fn forward(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(answer);
            }
        }
    }
}

/// A path as noq knows it.
fn tuple(path: NetworkPath) -> noq_proto::FourTuple {
    noq_proto::FourTuple::new(path.remote, Some(path.local.to_ip()))
}

/// The ECN mark of what leaves.
fn mark(transmit: &noq_proto::Transmit) -> Option<EcnCodepoint> {
    transmit.ecn.and_then(|mark| EcnCodepoint::from_bits(mark as u8))
}
