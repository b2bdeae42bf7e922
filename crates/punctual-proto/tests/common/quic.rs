//! Two ends of bare noq in virtual time, with controllers whose answers are a test's to give and that note what they are told.

use std::{
    any::Any,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, atomic::AtomicUsize},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event,
    FourTuple, MtuDiscoveryConfig, PathId, PathStatus, RttEstimator, ServerConfig, TransportConfig, VarInt,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};

use crate::{
    common::{SERVER_NAME, inject, ms, rustls_client, rustls_server},
    noq::{UNPACED, WIDE_OPEN, has_no_path},
};

/// What a packet takes from one side to the other.
pub(crate) const ONE_WAY: Duration = ms(10);
/// Room in the queue for outgoing datagrams.
pub(crate) const QUEUE: usize = 64 << 10;

/// What a controller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Sent { slot: usize, pn: u64, bytes: u16 },
    Acked { slot: usize, pn: u64 },
    EndOfAcks { slot: usize, in_flight: u64 },
    Lost { slot: usize, pn: u64 },
    Congestion { slot: usize },
    Mtu { slot: usize, mtu: u16 },
}

/// What a controller answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answers {
    pub(crate) window: u64,
    pub(crate) metrics_window: u64,
    pub(crate) pacing_rate: Option<u64>,
}

impl Default for Answers {
    fn default() -> Self {
        Self { window: WIDE_OPEN, metrics_window: UNPACED, pacing_rate: None }
    }
}

/// One side's controllers, in the order in which noq asked for them.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    pub(crate) answers: Vec<Answers>,
    pub(crate) told: Vec<Told>,
}

/// How a test and noq share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Hand>>);

impl Shared {
    pub(crate) fn get(&self) -> MutexGuard<'_, Hand> {
        self.0.lock().expect("no test has failed")
    }

    /// All controllers say this from now on.
    pub(crate) fn all(&self, answers: Answers) {
        self.get().answers.fill(answers);
    }

    /// What was told since the last call.
    pub(crate) fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.get().told)
    }
}

impl ControllerFactory for Shared {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        let mut hand = self.get();
        hand.answers.push(Answers::default());
        Box::new(Puppet { slot: hand.answers.len() - 1, shared: (*self).clone() })
    }
}

/// A controller.
#[derive(Debug, Clone)]
pub(crate) struct Puppet {
    pub(crate) slot: usize,
    shared: Shared,
}

impl Puppet {
    fn note(&self, told: Told) {
        self.shared.get().told.push(told);
    }

    fn answers(&self) -> Answers {
        self.shared.get().answers[self.slot]
    }
}

impl Controller for Puppet {
    fn on_packet_sent(&mut self, _: Instant, bytes: u16, pn: u64) {
        self.note(Told::Sent { slot: self.slot, pn, bytes });
    }

    fn on_ack(&mut self, _: Instant, _: Instant, _: u64, pn: u64, _: bool, _: &RttEstimator) {
        self.note(Told::Acked { slot: self.slot, pn });
    }

    fn on_end_acks(&mut self, _: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        self.note(Told::EndOfAcks { slot: self.slot, in_flight });
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {
        self.note(Told::Congestion { slot: self.slot });
    }

    fn on_packet_lost(&mut self, _: u16, pn: u64, _: Instant) {
        self.note(Told::Lost { slot: self.slot, pn });
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.note(Told::Mtu { slot: self.slot, mtu });
    }

    fn window(&self) -> u64 {
        self.answers().window
    }

    fn metrics(&self) -> ControllerMetrics {
        let answers = self.answers();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = answers.metrics_window;
        metrics.pacing_rate = answers.pacing_rate;
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        UNPACED
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The client's end number `end`, as it is told to noq there: no true address, and of another family than the server's.
pub(crate) fn local(end: u8) -> IpAddr {
    Ipv6Addr::from((0x0100 << 112) | u128::from(end)).into()
}

/// The same end, as the server sees it.
pub(crate) fn seen(end: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, end, 1), 4_433).into()
}

pub(crate) fn server_address() -> SocketAddr {
    (Ipv4Addr::new(10, 1, 0, 1), 443).into()
}

/// One end of the connection.
pub(crate) struct Side {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub(crate) conn: Connection,
    pub(crate) hand: Shared,
    /// What the connection has said.
    pub(crate) events: Vec<Event>,
    /// The datagrams that came, each with the number of packets that had come when it could be received.
    pub(crate) datagrams: Vec<(usize, Bytes)>,
    packets: usize,
}

impl Side {
    /// Gives noq's two halves what each has for the other, and takes what there is to take.
    fn settle(&mut self) {
        while let Some(event) = self.conn.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(self.handle, event) {
                self.conn.handle_event(answer);
            }
        }
        self.events.extend(std::iter::from_fn(|| self.conn.poll()));
    }

    pub(crate) fn send(&mut self, payload: impl Into<Bytes>) {
        self.conn.datagrams().send(payload.into(), false).expect("it fits");
    }

    /// The controller that noq holds for a path.
    pub(crate) fn slot(&self, path: PathId) -> Option<usize> {
        let controller = self.conn.congestion_state(path)?;
        controller.clone_box().into_any().downcast::<Puppet>().ok().map(|puppet| puppet.slot)
    }
}

struct Packet {
    to_server: bool,
    end: u8,
    data: Vec<u8>,
}

/// A packet that noq has just made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    /// The end of the client's that it leaves from or goes to.
    pub(crate) end: u8,
    pub(crate) size: usize,
}

/// Which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Client,
    Server,
}

/// How a pair is to be.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) mtu_discovery: bool,
    /// Room in the queue for outgoing datagrams, if not [`QUEUE`].
    pub(crate) queue: Option<usize>,
    pub(crate) renewals: Arc<AtomicUsize>,
}

/// A client and a server, connected over the client's end 0.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Side,
    pub(crate) server: Side,
    wire: BTreeMap<(Instant, u64), Packet>,
    sequence: u64,
    /// All packets that were made, until a test takes them.
    pub(crate) made: Vec<(Who, Made)>,
    /// No larger packet gets through from or to this end.
    pub(crate) narrow: Option<(u8, usize)>,
    /// So many packets of the client are lost from here on.
    pub(crate) lose: usize,
    /// What leaves the client's end 0 comes from this one.
    pub(crate) moved_to: Option<u8>,
}

fn transport(hand: &Shared, wanted: &Wanted) -> Arc<TransportConfig> {
    let mut ack_frequency = AckFrequencyConfig::default();
    ack_frequency.ack_eliciting_threshold(VarInt::from_u32(1)).max_ack_delay(Some(ms(2)));
    let mut transport = TransportConfig::default();
    transport
        .datagram_send_buffer_size(wanted.queue.unwrap_or(QUEUE))
        .datagram_receive_buffer_size(Some(1 << 20))
        .max_concurrent_multipath_paths(8)
        .ack_frequency_config(Some(ack_frequency))
        .mtu_discovery_config(wanted.mtu_discovery.then(MtuDiscoveryConfig::default))
        .congestion_controller_factory(Arc::new(hand.clone()));
    Arc::new(transport)
}

fn endpoint(seed: u8, server: Option<ServerConfig>) -> Endpoint {
    let mut config = EndpointConfig::default();
    config.rng_seed(Some([seed; 32]));
    Endpoint::new(Arc::new(config), server.map(Arc::new), true)
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(Wanted::default())
    }

    /// Connected, and with paths from so many ends of the client.
    pub(crate) fn over(ends: u8) -> Self {
        let mut pair = Self::new();
        (1..ends).for_each(|end| _ = pair.open(end));
        pair
    }

    pub(crate) fn with(wanted: Wanted) -> Self {
        let mut pair = Self::begun(wanted);
        pair.run(ms(500));
        assert!(pair.client.events.iter().any(|event| matches!(event, Event::HandshakeConfirmed)));
        pair
    }

    /// The client's first packet has arrived.
    pub(crate) fn begun(wanted: Wanted) -> Self {
        let now = Instant::now();
        let (ours, theirs) = (Shared::default(), Shared::default());
        let crypto = QuicClientConfig::try_from(rustls_client()).expect("ring has the first cipher suite");
        let mut config = ClientConfig::new(inject::counting(crypto, wanted.renewals.clone()));
        config.transport_config(transport(&ours, &wanted));
        let mut client_endpoint = endpoint(1, None);
        let (handle, mut conn) =
            client_endpoint.connect(now, config, server_address(), SERVER_NAME).expect("a connection can be begun");
        let mut hello = Vec::new();
        assert!(conn.poll_transmit(now, NonZeroUsize::MIN, &mut hello).is_some(), "a client begins");
        let client = Side {
            endpoint: client_endpoint,
            handle,
            conn,
            hand: ours,
            events: Vec::new(),
            datagrams: Vec::new(),
            packets: 0,
        };

        let mut tls = rustls_server();
        tls.alpn_protocols = Vec::new();
        let crypto = QuicServerConfig::try_from(tls).expect("ring has the first cipher suite");
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport(&theirs, &wanted));
        let mut server_endpoint = endpoint(2, Some(config));
        let tuple = FourTuple::new(seen(0), Some(local(0)));
        let mut buf = Vec::new();
        let come = server_endpoint.handle(now, tuple, None, BytesMut::from(&hello[..]), &mut buf);
        let Some(DatagramEvent::NewConnection(incoming)) = come else { panic!("a client is not taken for one") };
        let (handle, conn) = server_endpoint.accept(incoming, now, &mut buf, None).expect("it is accepted");
        let server = Side {
            endpoint: server_endpoint,
            handle,
            conn,
            hand: theirs,
            events: Vec::new(),
            datagrams: Vec::new(),
            packets: 0,
        };
        let wire = BTreeMap::new();
        Self { now, client, server, wire, sequence: 0, made: Vec::new(), narrow: None, lose: 0, moved_to: None }
    }

    pub(crate) fn side(&mut self, who: Who) -> &mut Side {
        match who {
            Who::Client => &mut self.client,
            Who::Server => &mut self.server,
        }
    }

    /// Opens a path from another end of the client.
    pub(crate) fn open(&mut self, end: u8) -> PathId {
        let id = self.begin_opening(end);
        self.run(ms(500));
        id
    }

    /// The same, of which nobody has heard yet.
    pub(crate) fn begin_opening(&mut self, end: u8) -> PathId {
        let tuple = FourTuple::new(server_address(), Some(local(end)));
        self.client.conn.open_path(tuple, PathStatus::Available, self.now).expect("it can be opened")
    }

    /// Asks a side for a packet, which goes on its way.
    pub(crate) fn poll(&mut self, who: Who) -> Option<Made> {
        let now = self.now;
        let side = self.side(who);
        side.settle();
        if has_no_path(&side.conn) {
            return None;
        }
        let mut data = Vec::new();
        let transmit = side.conn.poll_transmit(now, NonZeroUsize::MIN, &mut data);
        side.settle();
        let transmit = transmit?;
        data.truncate(transmit.size);
        let end = match (who, transmit.src_ip, transmit.destination.ip()) {
            (Who::Client, None, _) => 0,
            (Who::Client, Some(IpAddr::V6(ip)), _) => ip.octets()[15],
            (Who::Server, _, IpAddr::V4(ip)) => ip.octets()[2],
            other => panic!("nobody is at {other:?}"),
        };
        self.sequence += 1;
        let too_long = self.narrow.is_some_and(|(narrow, most)| narrow == end && data.len() > most);
        let unlucky = who == Who::Client && self.lose > 0;
        if unlucky {
            self.lose -= 1;
        }
        if !too_long && !unlucky {
            let packet = Packet { to_server: who == Who::Client, end, data };
            self.wire.insert((now + ONE_WAY, self.sequence), packet);
        }
        let made = Made { end, size: transmit.size };
        self.made.push((who, made));
        Some(made)
    }

    /// What a side has to send now.
    pub(crate) fn drain(&mut self, who: Who) -> Vec<Made> {
        std::iter::from_fn(|| self.poll(who)).collect()
    }

    /// Lets `for_` pass.
    pub(crate) fn run(&mut self, for_: Duration) {
        let until = self.now + for_;
        loop {
            self.drain(Who::Client);
            self.drain(Who::Server);
            let packet = self.wire.first_key_value().map(|(&(at, _), _)| at);
            let alarms = [packet, self.client.conn.poll_timeout(), self.server.conn.poll_timeout()];
            let Some(at) = alarms.into_iter().flatten().min().filter(|&at| at <= until) else { break };
            self.now = self.now.max(at);
            self.step();
        }
        self.now = until;
    }

    /// Lets what is on its way arrive, and nobody answer.
    pub(crate) fn deliver(&mut self) {
        if let Some((&(at, _), _)) = self.wire.last_key_value() {
            self.now = self.now.max(at);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        for side in [&mut self.client, &mut self.server] {
            if side.conn.poll_timeout().is_some_and(|at| at <= now) {
                side.conn.handle_timeout(now);
            }
        }
        let due: Vec<_> = self.wire.range(..=(now, u64::MAX)).map(|(&key, _)| key).collect();
        for key in due {
            let Some(Packet { to_server, end, data }) = self.wire.remove(&key) else { continue };
            let (side, tuple) = if to_server {
                let end = self.moved_to.filter(|_| end == 0).unwrap_or(end);
                (&mut self.server, FourTuple::new(seen(end), Some(local(0))))
            } else {
                let end = if self.moved_to == Some(end) { 0 } else { end };
                (&mut self.client, FourTuple::new(server_address(), Some(local(end))))
            };
            let event = side.endpoint.handle(now, tuple, None, BytesMut::from(&data[..]), &mut Vec::new());
            side.packets += 1;
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                side.conn.handle_event(event);
                let packets = side.packets;
                let payloads = std::iter::from_fn(|| side.conn.datagrams().recv());
                side.datagrams.extend(payloads.map(|payload| (packets, payload)));
            }
            side.settle();
            self.drain(Who::Client);
            self.drain(Who::Server);
        }
    }
}
