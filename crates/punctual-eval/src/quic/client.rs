//! The sending end.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_proto::{Dir, Event, PathEvent, PathId, StreamEvent, StreamId, crypto::rustls::QuicClientConfig};
use punctual_proto::{EcnCodepoint, NetworkPath, Transmit};
use punctual_sim::{Moment, Node, tls};

use super::{
    ALPN, Config, Message,
    choice::Chooser,
    framing::{BULK, HEADER, header},
    mux::Lane,
    outgoing::{Outgoing, Sent},
    peer::Peer,
    steering::SteeredFactory,
    tap::{StreamFrame, Tap},
};

/// What a message is made of: what matters is how many bytes there are, not which.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A client that sends the messages of a plan to a [`ServerNode`](super::ServerNode).
///
/// It connects when it is [told where](Self::connect), and its plan begins with the measured run.
pub struct ClientNode {
    config: Config,
    plan: Vec<Message>,
    peer: Peer,
    tap: Tap,
    /// Says which path a packet takes, if not noq.
    chooser: Option<Chooser>,
    /// The first carries the handshake.
    paths: Vec<NetworkPath>,
    /// How many of them were opened.
    opened: usize,
    /// Those of them that cannot carry anything yet.
    opening: BTreeSet<PathId>,
    connected: bool,
    /// When, since the beginning, and why the connection ended.
    closed: Option<(Duration, String)>,
    began: Option<Moment>,
    /// When it was last seen to what is ready, since the beginning.
    looked: Duration,
    outgoing: Outgoing,
    shared: BTreeMap<u32, StreamId>,
    streams_opened: u64,
    /// The first message that is not ready.
    next: usize,
    /// Those that are ready and that QUIC has not taken all of: their turn and what is left of them, if QUIC has taken some.
    ready: BinaryHeap<Reverse<Turn>>,
    begun: BTreeMap<usize, Writing>,
    /// The same, of the current block of bulk data.
    bulk_writing: Option<Writing>,
    bulk_stream: Option<StreamId>,
    /// Bytes of bulk data that were begun, headers not included.
    bulk_begun: u64,
    frames: Vec<StreamFrame>,
}

/// When a message that is ready goes onto its stream: by priority if the multiplexer goes by that, then by age. And which it is.
type Turn = (u8, usize);

/// A message that is on its way onto a stream.
#[derive(Debug)]
struct Writing {
    stream: StreamId,
    header: Bytes,
    /// Bytes of the message behind the header that have not been written.
    body: u64,
    /// Whether the stream ends with it.
    finish: bool,
}

/// A path of a client's connection.
#[derive(Debug, Clone)]
pub struct PathReport {
    /// Where it leads.
    pub network: NetworkPath,
    /// QUIC's own account of it: round-trip time, congestion window, packets and bytes sent, packets lost.
    pub quic: noq_proto::PathStats,
    /// Stream bytes that left on it for the first time.
    pub new_bytes: u64,
    /// Stream bytes that left on it again.
    pub resent_bytes: u64,
}

impl ClientNode {
    /// A client that will send these messages, which are in the order of their times.
    pub fn new(config: &Config, plan: Vec<Message>) -> Self {
        debug_assert!(plan.is_sorted_by_key(|message| message.at), "a plan is in the order of its times");
        Self {
            peer: Peer::new(config.seed, None),
            outgoing: Outgoing::new(plan.len()),
            plan,
            chooser: config.choice.map(Chooser::new),
            config: config.clone(),
            tap: Tap::default(),
            paths: Vec::new(),
            opened: 0,
            opening: BTreeSet::new(),
            connected: false,
            closed: None,
            began: None,
            looked: Duration::ZERO,
            shared: BTreeMap::new(),
            streams_opened: 0,
            next: 0,
            ready: BinaryHeap::new(),
            begun: BTreeMap::new(),
            bulk_writing: None,
            bulk_stream: None,
            bulk_begun: 0,
            frames: Vec::new(),
        }
    }

    /// Has it connect over these paths when the world next runs. The first carries the handshake, the others are opened
    /// behind it.
    pub fn connect(&mut self, paths: Vec<NetworkPath>) {
        self.paths = paths;
    }

    /// What became of each message at this end.
    pub fn sent(&self) -> &[Sent] {
        &self.outgoing.sent
    }

    /// When and why the connection ended, if it has.
    pub fn closed(&self) -> Option<(Duration, &str)> {
        self.closed.as_ref().map(|(at, why)| (*at, why.as_str()))
    }

    /// Bytes on streams that have never left: of messages, and of bulk data.
    pub fn unsent(&self) -> (u64, u64) {
        (self.outgoing.unsent, self.outgoing.unsent_bulk)
    }

    /// The connection's open paths, in the order of their ids.
    pub fn paths(&mut self) -> Vec<PathReport> {
        let Some(connection) = self.peer.connection() else { return Vec::new() };
        let ids = connection.paths();
        let reports = ids.into_iter().filter_map(|id| {
            let quic = connection.path_stats(id)?;
            Some((id, connection.network_path(id).ok()?.remote(), quic))
        });
        let reports: Vec<_> = reports.collect();
        let report = |(id, remote, quic)| {
            let left = self.outgoing.by_path.get(&id).copied().unwrap_or_default();
            let network = self.peer.network(remote)?;
            Some(PathReport { network, quic, new_bytes: left.new_bytes, resent_bytes: left.resent_bytes })
        };
        reports.into_iter().filter_map(report).collect()
    }

    /// Takes in what the connection has to say.
    fn settle(&mut self, at: Moment) {
        while let Some(event) = self.peer.poll_event() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => {
                    let since = self.began.map_or(Duration::ZERO, |began| at.now.saturating_sub(began.now));
                    self.closed = Some((since, reason.to_string()));
                }
                Event::Path(PathEvent::Established { id, .. }) => drop(self.opening.remove(&id)),
                Event::Stream(StreamEvent::Finished { id }) => self.outgoing.close(id),
                _ => {}
            }
        }
        // The peer makes room for paths by and by; each time there is something from it, it may have.
        while self.connected
            && let Some(path) = self.paths.get(self.opened)
            && let Some(id) = self.peer.open_path(at.instant, *path)
        {
            self.opening.insert(id);
            self.opened += 1;
        }
        self.peer.forward();
    }

    /// Begins the handshake, once it is known where.
    fn start(&mut self, at: Moment) {
        if self.peer.has_connection() {
            return;
        }
        let Some(first) = self.paths.first() else { return };
        let mut tls = tls::rustls_client();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let crypto = QuicClientConfig::try_from(tls).expect("ring has the cipher suite that QUIC begins with");
        let mut config = noq_proto::ClientConfig::new(self.tap.wrap(crypto));
        let mut controllers = self.config.controllers();
        if let Some(chooser) = &self.chooser {
            controllers = Arc::new(SteeredFactory::new(controllers, chooser.steering().clone()));
        }
        config.transport_config(self.config.transport(controllers));
        self.peer.connect(at.instant, config, *first);
        self.opened = 1;
    }

    /// When the application next has something. What is ready already waits for room, not for time.
    fn next_hand_over(&self) -> Option<Instant> {
        let began = self.began.filter(|_| self.closed.is_none())?;
        let message = self.plan.get(self.next).map(|message| message.at);
        let bulk = self.config.bulk.map(|bulk| bulk.start);
        let next = [message, bulk].into_iter().flatten().filter(|at| *at > self.looked).min()?;
        Some(began.instant + next)
    }

    /// The next packet. While paths are being opened noq has its way.
    fn next_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let is_ready = self.is_ready();
        match &mut self.chooser {
            Some(chooser) if is_ready => {
                let backlog = self.outgoing.unsent + self.outgoing.unsent_bulk;
                chooser.poll_transmit(&mut self.peer, now, buf, backlog)
            }
            _ => self.peer.poll_transmit(now, buf),
        }
    }

    /// Hands QUIC what is ready, as far as it takes it.
    fn hand_over(&mut self, at: Moment) {
        let Some(began) = self.began.filter(|_| self.closed.is_none()) else { return };
        let now = at.now - began.now;
        self.looked = now;
        while let Some(message) = self.plan.get(self.next).filter(|message| message.at <= now) {
            self.ready.push(Reverse((self.config.order().heeded(message.priority), self.next)));
            self.next += 1;
        }
        while self.hand_over_message(now) {}
        while self.hand_over_bulk(now) {}
    }

    /// Writes (on) the message whose turn it is; whether there may be room for more.
    fn hand_over_message(&mut self, now: Duration) -> bool {
        let Some(&Reverse((_, index))) = self.ready.peek() else { return false };
        let room = self.config.queue.map_or(u64::MAX, |queue| queue.saturating_sub(self.outgoing.unsent));
        if room == 0 {
            return false;
        }
        let message = self.plan[index];
        let mut writing = match self.begun.remove(&index) {
            Some(writing) => writing,
            None => {
                let lane = self.config.multiplexer.lane(index, &message);
                let Some(stream) = self.stream(lane, message.priority) else { return false };
                self.outgoing.begin(stream, index, HEADER as u64 + u64::from(message.bytes));
                self.outgoing.sent[index].taken = Some(now);
                Writing::new(stream, index as u32, message.bytes, lane == Lane::Own)
            }
        };
        let done = self.write(&mut writing, room);
        if done {
            self.outgoing.sent[index].taken_whole = Some(now);
            self.ready.pop();
        } else {
            self.begun.insert(index, writing);
        }
        done
    }

    /// The same for bulk data.
    fn hand_over_bulk(&mut self, now: Duration) -> bool {
        let Some(bulk) = self.config.bulk else { return false };
        let room = bulk.backlog.saturating_sub(self.outgoing.unsent_bulk);
        if room == 0 {
            return false;
        }
        let mut writing = match self.bulk_writing.take() {
            Some(writing) => writing,
            None => {
                let left = bulk.total.map_or(u64::MAX, |total| total.saturating_sub(self.bulk_begun));
                let bytes = u64::from(bulk.block).min(left) as u32;
                if now < bulk.start || now >= bulk.stop || bytes == 0 {
                    return false;
                }
                let own = self.config.multiplexer.is_per_block();
                let Some(stream) = self.bulk_stream(own, bulk.priority) else { return false };
                self.bulk_begun += u64::from(bytes);
                Writing::new(stream, BULK, bytes, own)
            }
        };
        let done = self.write(&mut writing, room);
        if !done {
            self.bulk_writing = Some(writing);
        }
        done
    }

    /// The stream of a lane, opened if need be; `None` if the peer allows none.
    fn stream(&mut self, lane: Lane, priority: u8) -> Option<StreamId> {
        let shared = match lane {
            Lane::Shared(number) => {
                if let Some(stream) = self.shared.get(&number) {
                    return Some(*stream);
                }
                Some(number)
            }
            Lane::Own => None,
        };
        let rank = self.config.order().rank(priority, shared.is_none(), self.streams_opened);
        let stream = self.open(rank, false)?;
        if let Some(number) = shared {
            self.shared.insert(number, stream);
        }
        Some(stream)
    }

    /// The stream for the next block of bulk data: one for all, or one each where messages have theirs.
    fn bulk_stream(&mut self, own: bool, priority: u8) -> Option<StreamId> {
        if own {
            return self.open(self.config.order().rank(priority, true, self.streams_opened), true);
        }
        if self.bulk_stream.is_none() {
            self.bulk_stream = self.open(self.config.order().rank(priority, false, self.streams_opened), true);
        }
        self.bulk_stream
    }

    fn open(&mut self, priority: i32, bulk: bool) -> Option<StreamId> {
        let connection = self.peer.connection()?;
        let stream = connection.streams().open(Dir::Uni)?;
        // It was opened just now, so it can be set.
        let _ = connection.send_stream(stream).set_priority(priority);
        self.outgoing.open(stream, bulk);
        self.streams_opened += 1;
        Some(stream)
    }

    /// Writes up to `room` bytes; whether all is written.
    fn write(&mut self, writing: &mut Writing, mut room: u64) -> bool {
        let Some(connection) = self.peer.connection() else { return false };
        let mut stream = connection.send_stream(writing.stream);
        while room > 0 && !writing.is_empty() {
            let chunk = if writing.header.is_empty() {
                Bytes::from_static(&ZEROS).slice(..writing.body.min(room).min(ZEROS.len() as u64) as usize)
            } else {
                writing.header.slice(..(writing.header.len() as u64).min(room) as usize)
            };
            let Ok(written) = stream.write_chunks(&mut &mut [chunk][..]) else { return false };
            writing.advance(written);
            room -= written as u64;
            self.outgoing.on_written(writing.stream, written as u64);
        }
        if writing.is_empty() && writing.finish {
            let _ = stream.finish();
        }
        writing.is_empty()
    }
}

#[cfg(test)]
impl ClientNode {
    /// Closes the connection at this moment of the run.
    pub(super) fn hang_up(&mut self, since: Duration) {
        let (began, connection) =
            (self.began.expect("the run began"), self.peer.connection().expect("it is connected"));
        connection.close(began.instant + since, 7_u8.into(), Bytes::from_static(b"enough"));
    }
}

impl Writing {
    fn new(stream: StreamId, index: u32, bytes: u32, finish: bool) -> Self {
        Self { stream, header: Bytes::copy_from_slice(&header(index, bytes)), body: u64::from(bytes), finish }
    }

    fn is_empty(&self) -> bool {
        self.header.is_empty() && self.body == 0
    }

    fn advance(&mut self, bytes: usize) {
        if self.header.is_empty() {
            self.body -= bytes as u64;
        } else {
            drop(self.header.split_to(bytes));
        }
    }
}

impl Node for ClientNode {
    fn handle_datagram(&mut self, at: Moment, path: NetworkPath, ecn: Option<EcnCodepoint>, data: BytesMut) {
        self.peer.handle_datagram(at.instant, path, ecn, data);
        self.settle(at);
    }

    fn poll_transmit(&mut self, at: Moment, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.start(at);
        // Each packet that leaves makes room for more.
        self.hand_over(at);
        let transmit = self.next_transmit(at.instant, buf);
        self.tap.take(&mut self.frames);
        if let Some(began) = self.began {
            self.frames.iter().for_each(|frame| self.outgoing.on_frame(*frame, at.now - began.now));
        }
        transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.peer.poll_timeout().into_iter().chain(self.next_hand_over()).min()
    }

    fn handle_timeout(&mut self, at: Moment) {
        self.peer.handle_timeout(at.instant);
        self.settle(at);
    }

    fn is_ready(&self) -> bool {
        self.connected && self.opened == self.paths.len() && self.opening.is_empty()
    }

    fn begin(&mut self, at: Moment) {
        self.began = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_connection_waits_for_no_message() {
        let plan = vec![Message { at: Duration::from_secs(1), bytes: 1, source: 0, priority: 0 }];
        let mut client = ClientNode::new(&Config::new(1), plan);
        let began = Moment { now: Duration::from_secs(2), instant: Instant::now() };
        client.begin(began);
        assert_eq!(client.poll_timeout(), Some(began.instant + Duration::from_secs(1)));
        client.closed = Some((Duration::ZERO, "gone".into()));
        assert_eq!(client.poll_timeout(), None);
    }
}
