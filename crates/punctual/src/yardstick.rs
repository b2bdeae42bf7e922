//! QUIC without Punctual, over the library's own sockets: what the goodput benchmark measures against.
//!
//! Its driver does turn by turn what the library's does, with the same sockets, batches, buffers and alarm; only the
//! protocol behind it is noq's alone.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EndpointConfig, Event, FourTuple, ServerConfig,
    StreamEvent, StreamId, TransportConfig, congestion::ControllerFactory, crypto::rustls::QuicClientConfig,
    crypto::rustls::QuicServerConfig,
};
use punctual_proto::EcnCodepoint;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{
    local::Bind,
    outbox::{Datagram, Outbox},
    socket::{ReceiveBuffers, Socket},
    timer::Timer,
};

/// As in the library's driver.
const TRANSMITS_PER_TURN: usize = 256;
const RECEIVES_PER_TURN: usize = 2;
/// What is written to a stream at once: as much as in a block of the benchmark's.
const STREAM_WRITE: usize = 64 << 10;

/// What the bytes travel in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// Datagrams, as large as the path carries.
    Datagrams,
    /// One stream.
    Stream,
}

/// Both ends of a connection that carries bytes one way, as fast as it goes.
pub struct Yardstick {
    sender: End,
    receiver: End,
    received: Arc<AtomicU64>,
}

struct End {
    quic: noq_proto::Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    server: bool,
    carrier: Carrier,
    stream: Option<StreamId>,
    payload: Option<Bytes>,
    received: Arc<AtomicU64>,
    socket: Socket,
    outbox: Outbox,
    buffers: ReceiveBuffers,
    datagram: Vec<u8>,
    due: Option<Instant>,
    timer: Timer,
}

impl Yardstick {
    /// On loopback, with these controllers and socket buffers of this size, and an ACK held back for so long at most.
    ///
    /// # Panics
    /// If anything goes wrong: it is a benchmark.
    pub fn new(
        controllers: Arc<dyn ControllerFactory + Send + Sync>,
        carrier: Carrier,
        receive_buffer: usize,
        max_ack_delay: Duration,
    ) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a valid name");
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls13 = [&rustls::version::TLS13];

        let mut frequency = noq_proto::AckFrequencyConfig::default();
        frequency.ack_eliciting_threshold(1u32.into()).max_ack_delay(Some(max_ack_delay));
        let mut transport = TransportConfig::default();
        transport
            .datagram_receive_buffer_size(Some(256 << 10))
            .datagram_send_buffer_size(64 << 10)
            .ack_frequency_config(Some(frequency))
            .congestion_controller_factory(controllers);
        let transport = Arc::new(transport);

        let tls = rustls::ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&tls13);
        let tls = tls.expect("TLS 1.3").with_no_client_auth().with_single_cert(vec![certificate.clone()], key);
        let crypto = QuicServerConfig::try_from(tls.expect("our own certificate")).expect("TLS 1.3");
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(transport.clone());

        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).expect("our own certificate");
        let tls = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&tls13);
        let tls = tls.expect("TLS 1.3").with_root_certificates(roots).with_no_client_auth();
        let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS 1.3")));
        client.transport_config(transport);

        let received = Arc::new(AtomicU64::new(0));
        let receiver = End::new(Some(server), carrier, receive_buffer, &received);
        let mut sender = End::new(None, carrier, receive_buffer, &received);
        let remote = receiver.socket.address;
        let connection = sender.quic.connect(Instant::now(), client, remote, "localhost").expect("a valid name");
        sender.connection = Some(connection);
        Self { sender, receiver, received }
    }

    /// Sends until `bytes` have arrived.
    pub async fn run(&mut self, bytes: u64) {
        let target = self.received.load(Relaxed) + bytes;
        poll_fn(|cx| {
            let turns = [self.sender.turn(cx), self.receiver.turn(cx)];
            if self.received.load(Relaxed) >= target {
                return Poll::Ready(());
            }
            if turns.contains(&true) {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Packets that were lost.
    pub fn lost(&mut self) -> u64 {
        self.sender.stats().lost_packets
    }

    /// Bytes of UDP payload that went back.
    pub fn sent_back(&mut self) -> u64 {
        self.receiver.stats().udp_tx.bytes
    }
}

impl End {
    fn new(server: Option<ServerConfig>, carrier: Carrier, receive_buffer: usize, received: &Arc<AtomicU64>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Socket::open(address, None, Bind::Address(address), receive_buffer).expect("a loopback address");
        let is_server = server.is_some();
        Self {
            quic: noq_proto::Endpoint::new(Arc::new(EndpointConfig::default()), server.map(Arc::new), true),
            connection: None,
            server: is_server,
            carrier,
            stream: None,
            payload: None,
            received: received.clone(),
            socket,
            outbox: Outbox::default(),
            buffers: ReceiveBuffers::new(),
            datagram: Vec::with_capacity(2048),
            due: None,
            timer: Timer::new(),
        }
    }

    fn stats(&mut self) -> noq_proto::PathStats {
        let stats = self.connection.as_mut().and_then(|(_, connection)| connection.path_stats(noq_proto::PathId::ZERO));
        stats.unwrap_or_default()
    }

    /// As the library's driver; `true` if there is more to do.
    fn turn(&mut self, cx: &mut std::task::Context<'_>) -> bool {
        let mut more = self.receive();
        let now = Instant::now();
        if let Some((_, connection)) = &mut self.connection {
            if self.due.is_some_and(|due| due <= now) {
                connection.handle_timeout(now);
            }
            let drained = self.drain(now);
            if let Some((_, connection)) = &self.connection {
                self.due = connection.poll_timeout();
            }
            more |= !drained || self.due.is_some_and(|due| due <= now);
        }
        self.outbox.flush(&self.socket);
        self.timer.set(self.due);
        if more {
            return true;
        }
        self.timer.poll(cx).is_ready()
            | self.socket.poll_readable(cx).is_ready()
            | (self.outbox.is_blocked() && self.socket.poll_writable(cx).is_ready())
    }

    fn receive(&mut self) -> bool {
        let mut more = false;
        for call in 1..=RECEIVES_PER_TURN {
            match self.socket.receive(&mut self.buffers, false) {
                Ok(n) => {
                    let now = Instant::now();
                    for received in self.buffers.received(n) {
                        let path = FourTuple::new(received.remote, None);
                        let ecn = received.ecn.and_then(|mark| noq_proto::EcnCodepoint::from_bits(mark as u8));
                        for datagram in received.datagrams {
                            let mut reply = Vec::new();
                            let data = BytesMut::from(datagram);
                            match self.quic.handle(now, path, ecn, data, &mut reply) {
                                Some(DatagramEvent::NewConnection(incoming)) if self.server => {
                                    let accepted = self.quic.accept(incoming, now, &mut reply, None);
                                    self.connection = accepted.ok();
                                }
                                Some(DatagramEvent::ConnectionEvent(_, event)) => {
                                    let Some((_, connection)) = &mut self.connection else { continue };
                                    connection.handle_event(event);
                                    while let Some(event) = connection.poll() {
                                        if matches!(event, Event::Stream(StreamEvent::Opened { .. })) {
                                            self.stream = connection.streams().accept(Dir::Uni);
                                        }
                                    }
                                    if let Some(id) = self.stream.filter(|_| self.server) {
                                        self.received.fetch_add(read(connection, id), Relaxed);
                                    }
                                    while let Some(datagram) = connection.datagrams().recv() {
                                        self.received.fetch_add(datagram.len() as u64, Relaxed);
                                    }
                                }
                                _ => {}
                            }
                            forward(&mut self.quic, &mut self.connection);
                        }
                    }
                    more |= call == RECEIVES_PER_TURN;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        more
    }

    fn drain(&mut self, now: Instant) -> bool {
        for _ in 0..TRANSMITS_PER_TURN {
            let Some((_, connection)) = &mut self.connection else { return true };
            if !self.server && !connection.is_handshaking() && self.carrier == Carrier::Stream {
                if self.stream.is_none() {
                    self.stream = connection.streams().open(Dir::Uni);
                }
                let payload = self.payload.get_or_insert_with(|| vec![0; STREAM_WRITE].into());
                if let Some(id) = self.stream {
                    // Full is full.
                    let _ = connection.send_stream(id).write_chunks(&mut &mut [payload.clone()][..]);
                }
            } else if !self.server && !connection.is_handshaking() {
                let size = connection.datagrams().max_size().expect("datagrams were negotiated");
                if self.payload.as_ref().is_none_or(|payload| payload.len() != size) {
                    self.payload = Some(vec![0; size].into());
                }
                if let Some(payload) = &self.payload {
                    // Full is full.
                    let _ = connection.datagrams().send(payload.clone(), false);
                }
            }
            self.datagram.clear();
            let transmit = connection.poll_transmit(now, NonZeroUsize::MIN, &mut self.datagram);
            forward(&mut self.quic, &mut self.connection);
            let Some(transmit) = transmit else { return true };
            let data = &self.datagram[..transmit.size];
            let ecn = transmit.ecn.and_then(|mark| EcnCodepoint::from_bits(mark as u8));
            let datagram = Datagram { remote: transmit.destination, source: None, ecn, data };
            self.outbox.push(datagram, self.socket.max_segments());
        }
        false
    }
}

/// Reads what a stream has, and counts it.
fn read(connection: &mut Connection, id: StreamId) -> u64 {
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return 0 };
    let mut bytes = 0;
    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
        bytes += chunk.bytes.len() as u64;
    }
    // What it asks for, further credit, leaves with the next turn.
    let _ = chunks.finalize();
    bytes
}

/// Carries what connection and endpoint have to tell each other.
fn forward(quic: &mut noq_proto::Endpoint, connection: &mut Option<(ConnectionHandle, Connection)>) {
    let Some((handle, connection)) = connection else { return };
    while let Some(event) = connection.poll_endpoint_events() {
        if let Some(answer) = quic.handle_event(*handle, event) {
            connection.handle_event(answer);
        }
    }
}

impl std::fmt::Debug for Yardstick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Yardstick").finish_non_exhaustive()
    }
}
