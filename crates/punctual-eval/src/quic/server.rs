//! The receiving end.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use noq_proto::{Dir, Event, StreamEvent, StreamId, crypto::rustls::QuicServerConfig};
use punctual_proto::{EcnCodepoint, NetworkPath, Transmit};
use punctual_sim::{Moment, Node, tls};

use super::{
    ALPN, Config,
    framing::{BULK, Deframer},
    peer::Peer,
};
use crate::record::RunRecord;

/// What has come of a message. Times count from the run's beginning.
///
/// Streams are read in order: bytes behind a gap have not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// When its first byte could be read.
    pub first: Duration,
    /// When all of it could.
    pub complete: Option<Duration>,
    /// Bytes that could be.
    pub bytes: u32,
}

/// A server that takes what one [`ClientNode`](super::ClientNode) sends, and notes when.
pub struct ServerNode {
    peer: Peer,
    connected: bool,
    closed: Option<(Duration, String)>,
    began: Option<Duration>,
    streams: BTreeMap<StreamId, Deframer>,
    received: BTreeMap<u32, Received>,
    bulk_bytes: Vec<u64>,
    message_bytes: Vec<u64>,
}

impl ServerNode {
    /// A server for the client of the same configuration.
    pub fn new(config: &Config) -> Self {
        let mut tls = tls::rustls_server();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let crypto = QuicServerConfig::try_from(tls).expect("ring has the cipher suite that QUIC begins with");
        let mut server = noq_proto::ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(config.transport(config.controllers()));
        Self {
            peer: Peer::new(config.seed, Some(server)),
            connected: false,
            closed: None,
            began: None,
            streams: BTreeMap::new(),
            received: BTreeMap::new(),
            bulk_bytes: Vec::new(),
            message_bytes: Vec::new(),
        }
    }

    /// What has come of the client's `index`-th message, if anything.
    pub fn received(&self, index: usize) -> Option<&Received> {
        self.received.get(&u32::try_from(index).ok()?)
    }

    /// When and why the connection ended, if it has.
    pub fn closed(&self) -> Option<(Duration, &str)> {
        self.closed.as_ref().map(|(at, why)| (*at, why.as_str()))
    }

    /// Bytes of messages that could be read in each [`RunRecord::BIN`] since the run's beginning.
    pub fn message_bytes(&self) -> &[u64] {
        &self.message_bytes
    }

    /// The same, of bulk data.
    pub fn bulk_bytes(&self) -> &[u64] {
        &self.bulk_bytes
    }

    fn settle(&mut self, at: Moment) {
        let mut readable = Vec::new();
        while let Some(event) = self.peer.poll_event() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => {
                    let since = at.now.saturating_sub(self.began.unwrap_or_default());
                    self.closed = Some((since, reason.to_string()));
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    let Some(connection) = self.peer.connection() else { continue };
                    while let Some(id) = connection.streams().accept(Dir::Uni) {
                        self.streams.insert(id, Deframer::default());
                        readable.push(id);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => readable.push(id),
                _ => {}
            }
        }
        readable.into_iter().for_each(|id| self.read(at, id));
        self.peer.forward();
    }

    fn read(&mut self, at: Moment, id: StreamId) {
        let Some(connection) = self.peer.connection() else { return };
        let Some(deframer) = self.streams.get_mut(&id) else { return };
        let now = at.now.saturating_sub(self.began.unwrap_or_default());
        let (received, message_bytes, bulk_bytes) = (&mut self.received, &mut self.message_bytes, &mut self.bulk_bytes);
        let mut stream = connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        let over = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => deframer.push(&chunk.bytes, |piece| {
                    if piece.index == BULK {
                        return add(bulk_bytes, now, piece.bytes);
                    }
                    add(message_bytes, now, piece.bytes);
                    let fresh = Received { first: now, complete: None, bytes: 0 };
                    let message = received.entry(piece.index).or_insert(fresh);
                    message.bytes += piece.bytes;
                    if piece.last {
                        message.complete = Some(now);
                    }
                }),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        // What this allows the client to send is told with the next packet.
        let _ = chunks.finalize();
        if over {
            self.streams.remove(&id);
        }
    }
}

/// Adds to the bin of a time.
fn add(bins: &mut Vec<u64>, now: Duration, bytes: u32) {
    let bin = (now.as_nanos() / RunRecord::BIN.as_nanos()) as usize;
    if bins.len() <= bin {
        bins.resize(bin + 1, 0);
    }
    bins[bin] += u64::from(bytes);
}

impl Node for ServerNode {
    fn handle_datagram(&mut self, at: Moment, path: NetworkPath, ecn: Option<EcnCodepoint>, data: BytesMut) {
        self.peer.handle_datagram(at.instant, path, ecn, data);
        self.settle(at);
    }

    fn poll_transmit(&mut self, at: Moment, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.peer.poll_transmit(at.instant, buf)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.peer.poll_timeout()
    }

    fn handle_timeout(&mut self, at: Moment) {
        self.peer.handle_timeout(at.instant);
        self.settle(at);
    }

    fn is_ready(&self) -> bool {
        self.connected
    }

    fn begin(&mut self, at: Moment) {
        self.began = Some(at.now);
    }
}
