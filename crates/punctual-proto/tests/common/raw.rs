//! A client that speaks QUIC and nothing else: what it puts into datagrams and streams is the test's affair.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, FourTuple, PathId, PathStatus,
    StreamEvent, StreamId, TransportConfig, VarInt, crypto::rustls::QuicClientConfig,
};

use punctual_proto::EcnCodepoint;

use super::{SERVER_NAME, inject, rustls_client};

/// What the peer is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    /// The protocol it asks for.
    pub(crate) alpn: &'static [u8],
    /// Bytes of a stream that it lets the other side send ahead of its reading.
    pub(crate) stream_window: u32,
    /// Whether it reads streams.
    pub(crate) reads: bool,
    /// Whether it takes datagrams.
    pub(crate) datagrams: bool,
    /// Streams it lets the other side open at first.
    pub(crate) streams: u32,
    /// Paths it may have at a time; 0: it knows of no multipath.
    pub(crate) paths: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { alpn: b"punctual/1", stream_window: 1 << 20, reads: true, datagrams: true, streams: 8, paths: 0 }
    }
}

/// One connection.
pub(crate) struct Raw {
    endpoint: Endpoint,
    conn: Connection,
    handle: ConnectionHandle,
    config: Config,
    server: SocketAddr,
    /// Streams that hold bytes QUIC has not taken yet.
    backlog: Vec<(StreamId, Vec<u8>)>,
    outbox: Vec<Bytes>,
    control: Option<StreamId>,
    accepted: Vec<StreamId>,
    /// Payloads of the datagrams that came.
    pub(crate) datagrams: Vec<Bytes>,
    /// What came on the first stream of the other side.
    pub(crate) stream: Vec<u8>,
    pub(crate) connected: bool,
    pub(crate) lost: Option<ConnectionError>,
}

impl Raw {
    pub(crate) fn connect(now: Instant, config: Config, server: SocketAddr) -> Self {
        let mut tls = rustls_client();
        tls.alpn_protocols = vec![config.alpn.to_vec()];
        let crypto = QuicClientConfig::try_from(tls).expect("ring has the first cipher suite");
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_uni_streams(VarInt::from_u32(config.streams))
            .stream_receive_window(VarInt::from_u32(config.stream_window))
            .datagram_receive_buffer_size(config.datagrams.then_some(1 << 20))
            .datagram_send_buffer_size(16 << 20)
            .keep_alive_interval(Some(Duration::from_secs(1)))
            .max_concurrent_multipath_paths(config.paths)
            .mtu_discovery_config(None);
        let mut client = noq_proto::ClientConfig::new(inject::client(crypto));
        client.transport_config(Arc::new(transport));
        let mut endpoint_config = noq_proto::EndpointConfig::default();
        endpoint_config.rng_seed(Some([99; 32]));
        let mut endpoint = Endpoint::new(Arc::new(endpoint_config), None, true);
        let (handle, conn) = endpoint.connect(now, client, server, SERVER_NAME).expect("a connection can be begun");
        Self {
            endpoint,
            conn,
            handle,
            config,
            server,
            backlog: Vec::new(),
            outbox: Vec::new(),
            control: None,
            accepted: Vec::new(),
            datagrams: Vec::new(),
            stream: Vec::new(),
            connected: false,
            lost: None,
        }
    }

    /// Sends a datagram.
    pub(crate) fn datagram(&mut self, payload: impl Into<Bytes>) {
        self.outbox.push(payload.into());
        self.pump();
    }

    /// Sends QUIC frames of the test's own making, in one packet.
    pub(crate) fn frames(&mut self, frames: &[u8]) {
        self.datagram(inject::smuggled(frames));
    }

    /// Opens a path from its end `local`, if the other side allows it.
    pub(crate) fn open_path(&mut self, now: Instant, local: SocketAddr) -> Option<PathId> {
        let tuple = FourTuple::new(self.server, Some(local.ip()));
        let opened = self.conn.open_path(tuple, PathStatus::Available, now).ok();
        self.pump();
        opened
    }

    /// Abandons a path, if it is not the last.
    pub(crate) fn close_path(&mut self, now: Instant, id: PathId) {
        let _ = self.conn.close_path(now, id, VarInt::from_u32(0));
        self.pump();
    }

    /// Its paths, those included that it has just abandoned.
    pub(crate) fn paths(&self) -> Vec<PathId> {
        self.conn.paths()
    }

    /// Says how much it likes a path.
    pub(crate) fn set_status(&mut self, id: PathId, available: bool) {
        let status = if available { PathStatus::Available } else { PathStatus::Backup };
        let _ = self.conn.set_path_status(id, status);
    }

    /// Writes to its control stream, which it opens if it has none.
    pub(crate) fn control(&mut self, bytes: &[u8]) {
        let id = match self.control {
            Some(id) => id,
            None => {
                let id = self.open();
                self.control = Some(id);
                id
            }
        };
        self.write(id, bytes);
    }

    /// Opens a unidirectional stream.
    pub(crate) fn open(&mut self) -> StreamId {
        self.conn.streams().open(Dir::Uni).expect("the other side allows streams")
    }

    /// The same, if the other side allows it.
    pub(crate) fn try_open(&mut self) -> Option<StreamId> {
        self.conn.streams().open(Dir::Uni)
    }

    /// Ends a stream all of which was written.
    pub(crate) fn finish(&mut self, id: StreamId) {
        self.conn.send_stream(id).finish().expect("it is open");
    }

    pub(crate) fn write(&mut self, id: StreamId, bytes: &[u8]) {
        self.backlog.push((id, bytes.to_vec()));
        self.pump();
    }

    /// Ends its control stream.
    pub(crate) fn finish_control(&mut self) {
        let id = self.control.expect("it was opened");
        self.conn.send_stream(id).finish().expect("it is open");
    }

    pub(crate) fn reset_control(&mut self) {
        let id = self.control.expect("it was opened");
        self.conn.send_stream(id).reset(VarInt::from_u32(7)).expect("it is open");
    }

    /// Its control stream goes on, on another, from `place`; `reset`: and it gives the first one up.
    pub(crate) fn go_on(&mut self, place: u64, reset: bool) {
        let before = self.control.take();
        if let Some(id) = before.filter(|_| reset) {
            self.conn.send_stream(id).reset(VarInt::from_u32(0x51)).expect("it is open");
        }
        self.control(&super::wire::join(&[&super::wire::varint(0x51), &super::wire::varint(place)]));
    }

    /// Gives its control stream up.
    pub(crate) fn leave_control(&mut self) {
        let id = self.control.take().expect("it was opened");
        self.conn.send_stream(id).reset(VarInt::from_u32(0x51)).expect("it is open");
    }

    /// Asks the other side to end its control stream.
    pub(crate) fn stop_theirs(&mut self) {
        let id = self.accepted[0];
        self.conn.recv_stream(id).stop(VarInt::from_u32(7)).expect("it is open");
    }

    /// Lets the other side have so many streams.
    pub(crate) fn allow_streams(&mut self, streams: u32) {
        self.conn.set_max_concurrent_streams(Dir::Uni, VarInt::from_u32(streams));
    }

    /// The application error code with which the other side ended the connection, if it did.
    pub(crate) fn closed_with(&self) -> Option<u64> {
        match &self.lost {
            Some(ConnectionError::ApplicationClosed(close)) => Some(close.error_code.into_inner()),
            _ => None,
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.conn.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
        self.pump();
    }

    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        (from, to): (SocketAddr, IpAddr),
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
    ) {
        let ecn = ecn.and_then(|mark| noq_proto::EcnCodepoint::from_bits(mark as u8));
        let event = self.endpoint.handle(now, FourTuple::new(from, Some(to)), ecn, data, &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.conn.handle_event(event);
        }
        self.pump();
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<(Option<IpAddr>, SocketAddr, usize, Option<EcnCodepoint>)> {
        self.pump();
        let transmit = self.conn.poll_transmit(now, NonZeroUsize::MIN, buf);
        self.forward();
        let mark = |mark| EcnCodepoint::from_bits(mark as u8);
        transmit.map(|transmit| (transmit.src_ip, transmit.destination, transmit.size, transmit.ecn.and_then(mark)))
    }

    fn forward(&mut self) {
        while let Some(event) = self.conn.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(self.handle, event) {
                self.conn.handle_event(answer);
            }
        }
    }

    /// Takes in what the connection has, and gives it what waits.
    fn pump(&mut self) {
        self.forward();
        while let Some(event) = self.conn.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(id) = self.conn.streams().accept(Dir::Uni) {
                        self.accepted.push(id);
                    }
                }
                _ => {}
            }
        }
        while let Some(payload) = self.conn.datagrams().recv() {
            self.datagrams.push(payload);
        }
        if self.config.reads
            && let Some(&id) = self.accepted.first()
            && let Ok(mut chunks) = self.conn.recv_stream(id).read(true)
        {
            while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                self.stream.extend_from_slice(&chunk.bytes);
            }
            let _ = chunks.finalize();
        }
        if !self.connected {
            return;
        }
        for payload in self.outbox.drain(..) {
            // After the end of the connection nobody cares.
            let _ = self.conn.datagrams().send(payload, false);
        }
        for (id, bytes) in &mut self.backlog {
            if let Ok(written) = self.conn.send_stream(*id).write(bytes) {
                bytes.drain(..written);
            }
        }
        self.backlog.retain(|(_, bytes)| !bytes.is_empty());
    }
}
