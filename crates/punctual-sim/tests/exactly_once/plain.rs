//! Worlds in which the server is a plain QUIC library that knows nothing of Punctual: each block is a stream (`docs/protocol.md`). It reads what comes, at once
//! or later, stops some of it, and has streams of its own, of which it resets some. There is one path, as it has no other.

mod one_stream;

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use noq_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, FourTuple, Incoming, ReadError,
    ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt, crypto::rustls::QuicServerConfig,
};
use punctual_proto::{BlockId, ClientConfig, DropReason, EcnCodepoint, NetworkPath, Outcome, SessionId, Transmit};
use punctual_sim::{HostClock, HostConfig, HostId, LinkSpec, LogMode, Moment, Node, World, tls};
use rand::{Rng, RngExt, seq::IteratorRandom};
use rand_pcg::Pcg64;

use crate::{
    ms,
    narrow::{any_limits, any_link},
    restless::{ACTIVE, NAMED, Restless, content, leftovers},
};

/// What client and server have in common.
const ALPN: &[u8] = b"blocks-by-stream";
/// What the stream of a dropped block is reset with.
const DROPPED: VarInt = VarInt::from_u32(0x50_5540);
/// The handshake is over by then. It goes over ideal links, as in other worlds, and things begin now.
const START: Duration = Duration::from_secs(2);
/// How long a world has to come to rest when nobody does anything new.
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest mean burst of losses, packets. Here QUIC sends lost bytes again, and waits twice as long after each probe that is not answered: a burst in which the next
/// ten packets are lost, as other worlds have it, lasts for minutes then.
const BURST: f64 = 3.0;
/// When a lazy server reads what has come.
const LAZINESS: Duration = ms(40);
/// No packet is delayed by more than this over its link's delay and queue: 40 times the mean jitter of a link.
const MOST_JITTER: Duration = ms(200);
/// The least time between two wake-ups of a connection: noq's pacer may ask to be woken at the same moment again.
const TICK: Duration = Duration::from_micros(1);

/// How a stream of the client's has ended for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// All of it was read, and when.
    Whole(Duration),
    /// The client gave it up, with this code.
    Reset(VarInt),
    /// The server did not want it.
    Stopped,
}

/// A stream of the server's own.
struct Own {
    bytes: Vec<u8>,
    written: usize,
    /// Bytes of it that may be written so far.
    allowed: usize,
    state: OwnState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnState {
    Open,
    /// All of it has been written, its end too.
    Finished,
    /// All of it is acknowledged.
    Acknowledged,
    /// The server gave it up.
    Reset,
    /// The client did not want it.
    Stopped,
}

/// A server that speaks QUIC, and does with streams whatever it likes.
struct Plain {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    network: Option<NetworkPath>,
    replies: VecDeque<(Transmit, Vec<u8>)>,
    woken: Option<Instant>,
    closed: Option<String>,
    random: Pcg64,
    lazy: bool,
    /// Whether it stops streams now and then.
    picky: bool,
    /// Bytes that it may still begin streams of.
    budget: usize,
    /// When it acts next, if it does; and when it reads.
    acts: Option<Instant>,
    reads: Option<Instant>,
    /// What has been read of the client's streams that go on, and of those that have ended.
    open: BTreeMap<StreamId, Vec<u8>>,
    ended: Vec<(Vec<u8>, End)>,
    own: BTreeMap<StreamId, Own>,
}

impl Plain {
    fn new(mut random: Pcg64, mut transport: TransportConfig, budget: usize) -> Self {
        let mut tls = tls::rustls_server();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let crypto = QuicServerConfig::try_from(tls).expect("ring has the cipher suite that QUIC begins with");
        transport.max_idle_timeout(None);
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(Arc::new(transport));
        let mut config = EndpointConfig::default();
        let mut rng_seed = [0; 32];
        random.fill_bytes(&mut rng_seed);
        config.rng_seed(Some(rng_seed));
        Self {
            endpoint: Endpoint::new(Arc::new(config), Some(Arc::new(server)), true),
            connection: None,
            network: None,
            replies: VecDeque::new(),
            woken: None,
            closed: None,
            lazy: random.random_bool(0.3),
            picky: random.random_bool(0.5),
            random,
            budget,
            acts: None,
            reads: None,
            open: BTreeMap::new(),
            ended: Vec::new(),
            own: BTreeMap::new(),
        }
    }

    fn accept(&mut self, at: Moment, path: NetworkPath, incoming: Incoming) {
        let mut buf = Vec::new();
        match self.endpoint.accept(incoming, at.instant, &mut buf, None) {
            Ok(accepted) => {
                self.connection = Some(accepted);
                self.acts = Some(at.instant + START.saturating_sub(at.now));
            }
            Err(error) => error.response.iter().for_each(|transmit| self.reply(path, transmit, buf.clone())),
        }
    }

    fn reply(&mut self, path: NetworkPath, transmit: &noq_proto::Transmit, mut buf: Vec<u8>) {
        buf.truncate(transmit.size);
        self.replies.push_back((Transmit { path, size: transmit.size, ecn: mark(transmit) }, buf));
    }

    /// Hears what has happened, reads and writes.
    fn settle(&mut self, at: Moment) {
        self.hear(at);
        if !self.lazy {
            self.read(at);
        }
        self.write();
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(answer);
            }
        }
    }

    fn hear(&mut self, at: Moment) {
        let Some((_, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll() {
            match event {
                Event::ConnectionLost { reason } => self.closed = Some(reason.to_string()),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(id) = connection.streams().accept(Dir::Uni) {
                        self.open.insert(id, Vec::new());
                    }
                    self.reads.get_or_insert(at.instant + LAZINESS);
                }
                Event::Stream(StreamEvent::Readable { .. }) => drop(self.reads.get_or_insert(at.instant + LAZINESS)),
                Event::Stream(StreamEvent::Finished { id }) => {
                    let own = self.own.get_mut(&id).expect("it is the server's own");
                    assert_eq!(own.state, OwnState::Finished, "it was finished once");
                    own.state = OwnState::Acknowledged;
                }
                Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                    assert_eq!(error_code, DROPPED);
                    let own = self.own.get_mut(&id).expect("it is the server's own");
                    own.state = OwnState::Stopped;
                    let _ = connection.send_stream(id).reset(error_code);
                }
                _ => (),
            }
        }
    }

    fn read(&mut self, at: Moment) {
        self.reads = None;
        let Some((_, connection)) = &mut self.connection else { return };
        let ended = &mut self.ended;
        self.open.retain(|id, bytes| {
            let mut stream = connection.recv_stream(*id);
            let mut chunks = stream.read(true).expect("it has not ended");
            let end = loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                    Ok(None) => break Some(End::Whole(at.now)),
                    Err(ReadError::Reset(code)) => break Some(End::Reset(code)),
                    Err(_) => break None,
                }
            };
            let _ = chunks.finalize();
            ended.extend(end.map(|end| (std::mem::take(bytes), end)));
            end.is_none()
        });
    }

    /// Writes what may be written and there is room for.
    fn write(&mut self) {
        let Some((_, connection)) = &mut self.connection else { return };
        for (id, own) in self.own.iter_mut().filter(|(_, own)| own.state == OwnState::Open) {
            let mut stream = connection.send_stream(*id);
            while own.written < own.allowed {
                let Ok(written) = stream.write(&own.bytes[own.written..own.allowed]) else { break };
                own.written += written;
            }
            // Of one that has been stopped we hear soon.
            if own.written == own.bytes.len() && stream.finish().is_ok() {
                own.state = OwnState::Finished;
            }
        }
    }

    fn act(&mut self, at: Moment) {
        if at.now >= START + ACTIVE {
            self.acts = None;
            self.own.values_mut().for_each(|own| own.allowed = own.bytes.len());
            return;
        }
        self.acts = Some(at.instant + ms(self.random.random_range(1..40)));
        match self.random.random_range(0..10) {
            0 | 1 if self.picky => self.stop(),
            2 => self.reset(),
            3 | 4 => {
                if let Some(own) = self.own.values_mut().choose(&mut self.random) {
                    own.allowed = own.bytes.len();
                }
            }
            _ => self.begin_stream(),
        }
    }

    /// Stops one of the client's streams, of which enough has been read to tell the block.
    fn stop(&mut self) {
        let Some((_, connection)) = &mut self.connection else { return };
        let known = self.open.iter().filter(|(_, bytes)| bytes.len() >= NAMED).map(|(id, _)| *id);
        let Some(id) = known.choose(&mut self.random) else { return };
        connection.recv_stream(id).stop(DROPPED).expect("it has not ended");
        self.ended.push((self.open.remove(&id).unwrap_or_default(), End::Stopped));
    }

    /// Gives up one of its own.
    fn reset(&mut self) {
        let Some((_, connection)) = &mut self.connection else { return };
        let unfinished = self.own.iter_mut().filter(|(_, own)| own.state == OwnState::Open);
        let Some((id, own)) = unfinished.choose(&mut self.random) else { return };
        connection.send_stream(*id).reset(VarInt::from_u32(3)).expect("it is open");
        own.state = OwnState::Reset;
    }

    fn begin_stream(&mut self) {
        let random = &mut self.random;
        let size = match random.random_range(0..20) {
            0 => 0,
            1..10 => random.random_range(NAMED..2_000),
            // With small limits a block has 40,000 bytes at most.
            _ => random.random_range(NAMED..44_000),
        };
        let allowed = if random.random_bool(0.5) { size } else { random.random_range(0..=size) };
        let Some((_, connection)) = &mut self.connection else { return };
        let Some(rest) = self.budget.checked_sub(size) else { return };
        if let Some(id) = connection.streams().open(Dir::Uni) {
            self.budget = rest;
            let bytes = content(id.index() as u32, size);
            self.own.insert(id, Own { bytes, written: 0, allowed, state: OwnState::Open });
        }
    }

    /// Whether it has done all, and nothing that it has begun or been sent goes on.
    fn is_at_rest(&self) -> bool {
        let goes_on = |own: &Own| matches!(own.state, OwnState::Open | OwnState::Finished);
        self.acts.is_none() && self.reads.is_none() && self.open.is_empty() && !self.own.values().any(goes_on)
    }

    /// Its streams that blocks come of: those without bytes are none.
    fn blocks(&self) -> impl Iterator<Item = (BlockId, &Own)> {
        // One that was given up is one even if it had none.
        let is_block = |own: &Own| !own.bytes.is_empty() || own.state == OwnState::Reset;
        self.own.iter().filter(move |(_, own)| is_block(own)).map(|(id, own)| (BlockId(id.index()), own))
    }
}

impl Node for Plain {
    fn handle_datagram(&mut self, at: Moment, path: NetworkPath, ecn: Option<EcnCodepoint>, data: BytesMut) {
        self.network = Some(path);
        let tuple = FourTuple::new(path.remote, Some(path.local.to_ip()));
        let ecn = ecn.and_then(|mark| noq_proto::EcnCodepoint::from_bits(mark as u8));
        let mut buf = Vec::new();
        match self.endpoint.handle(at.instant, tuple, ecn, data, &mut buf) {
            None => {}
            Some(DatagramEvent::Response(transmit)) => self.reply(path, &transmit, buf),
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(at, path, incoming),
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
        }
        self.settle(at);
    }

    fn poll_transmit(&mut self, at: Moment, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((transmit, bytes)) = self.replies.pop_front() {
            buf.extend_from_slice(&bytes);
            return Some(transmit);
        }
        let (_, connection) = self.connection.as_mut()?;
        let transmit = connection.poll_transmit(at.instant, NonZeroUsize::MIN, buf)?;
        Some(Transmit { path: self.network?, size: transmit.size, ecn: mark(&transmit) })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.connection.as_ref().and_then(|(_, connection)| connection.poll_timeout());
        let due = due.map(|due| self.woken.map_or(due, |woken| due.max(woken + TICK)));
        [due, self.acts, self.reads.filter(|_| self.lazy)].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, at: Moment) {
        if let Some((_, connection)) = &mut self.connection
            && connection.poll_timeout().is_some_and(|due| due <= at.instant)
        {
            connection.handle_timeout(at.instant);
            self.woken = Some(at.instant);
        }
        if self.acts.is_some_and(|due| due <= at.instant) {
            self.act(at);
        }
        if self.reads.is_some_and(|due| due <= at.instant) {
            self.read(at);
        }
        self.settle(at);
    }
}

/// In half of the worlds small limits, so that they are met.
fn any_transport(random: &mut Pcg64) -> TransportConfig {
    let mut transport = TransportConfig::default();
    if random.random_bool(0.5) {
        transport
            .max_concurrent_uni_streams(VarInt::from_u32(random.random_range(1..20)))
            .stream_receive_window(VarInt::from_u32(random.random_range(2_000..64_000)))
            .receive_window(VarInt::from_u32(random.random_range(8_000..400_000)));
    }
    transport
}

/// A client that would like to speak Punctual, but makes do with plain QUIC.
fn client_config() -> ClientConfig {
    let mut tls = tls::rustls_client();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    ClientConfig::new(tls).expect("ring has the cipher suite that QUIC begins with")
}

/// The ECN mark of what leaves.
fn mark(transmit: &noq_proto::Transmit) -> Option<EcnCodepoint> {
    transmit.ecn.and_then(|mark| EcnCodepoint::from_bits(mark as u8))
}

/// The number of a block of which these bytes have come, if they are enough to tell; whether they are such a block's, and all of it.
fn identify(bytes: &[u8]) -> Result<Option<(usize, bool)>, String> {
    let Some((name, _)) = bytes.split_first_chunk::<NAMED>() else { return Ok(None) };
    let [number, size] = [0, 4].map(|at| u32::from_le_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]]));
    let whole = content(number, size as usize);
    if !whole.starts_with(bytes) {
        return Err(format!("other bytes than those of block {number}, or more"));
    }
    Ok(Some((number as usize, whole.len() == bytes.len())))
}

/// The longest that a packet takes over a link.
fn longest(spec: &LinkSpec) -> Duration {
    let rate = spec.rate.nominal().expect("it has a rate");
    let queued = Duration::from_secs_f64((spec.queue_limit() + u64::from(spec.mtu)) as f64 * 8.0 / rate);
    spec.delay.values().max().copied().unwrap_or_default() + queued + spec.reordering.delay + MOST_JITTER
}

/// What a world is judged by.
struct Terms {
    /// The longest that a packet takes to the server.
    longest: Duration,
    /// The largest block that the client takes.
    largest: u64,
    /// Whether the client has room for all that the server sends.
    is_room: bool,
}

/// Runs a world to its end; what is wrong with it, if anything.
pub(crate) fn run(seed: u64, log: LogMode) -> Result<(), String> {
    let mut random = Pcg64::new(seed.into(), 5);
    let mut world = World::new(seed).with_log(log);
    let mut config = client_config();
    let limits = any_limits(&mut random);
    config.session.limits = limits;
    // However long it waits: the session is not to end by itself.
    config.session.idle_timeout = PATIENCE;
    let clock = HostClock::ahead(Duration::from_secs(random.random_range(0..10_000)))
        .drift_ppm(random.random_range(-100.0..100.0));
    let client = HostConfig::new().clock(clock).app(Restless::numbering(random.next_u64(), START));
    // In every other world all that it sends has room at the client, even if nothing is taken.
    let room = usize::try_from(limits.receive_bytes).expect("64 bits") - 1;
    let budget = if random.random_bool(0.5) { room } else { usize::MAX };
    let mut fate = Pcg64::new(random.next_u64().into(), 79);
    let transport = any_transport(&mut fate);
    let hosts = [world.add_host(client), world.add_node(Plain::new(fate, transport, budget))];
    let specs = [any_link(&mut random, BURST), any_link(&mut random, BURST)];
    let [there, back] = specs.each_ref().map(|spec| LinkSpec { delay: spec.delay.clone(), ..LinkSpec::default() });
    let path = world.add_path(hosts[0], hosts[1], there, back);
    let connection = world.connect(hosts[0], &config, &[path]).map_err(|error| error.to_string())?;
    world.run_until(START - ms(1));
    let links = [world.path_links(path).0[0], world.path_links(path).1[0]];
    for (link, spec) in links.into_iter().zip(specs.clone()) {
        world.update_link(link, |link| *link = spec);
    }
    // The path dies for a while, both ways or one.
    if random.random_bool(0.5) {
        let death = START + ms(random.random_range(0..1_500));
        let rebirth = death + ms(random.random_range(1..1_500));
        let both = random.random_bool(0.7);
        let mortal = links[random.random_range(0..2)];
        for link in links.into_iter().filter(|link| both || *link == mortal) {
            world.at(death, move |world| world.kill_link(link));
            world.at(rebirth, move |world| world.revive_link(link));
        }
    }
    let (_, session) = world.client(connection);
    if world.enter(hosts[0], |cx| cx.session(session).is_none_or(|session| session.is_punctual() != Some(false))) {
        return Err("it did not fall back".into());
    }

    world.run_until(START + ACTIVE + LAZINESS);
    let last = world.now() + PATIENCE;
    while world.now() < last {
        if is_at_rest(&mut world, hosts, session) {
            // What is on its way twice must not turn up again.
            world.run_for(ms(300));
            // Where a RESET_STREAM was lost, a stream may turn up late that the server had not heard of.
            if is_at_rest(&mut world, hosts, session) {
                break;
            }
        }
        world.run_for(ms(50));
    }
    let terms = Terms { longest: longest(&specs[0]), largest: limits.max_block_size, is_room: budget == room };
    let result = verdict(&mut world, hosts, session, &terms);
    if result.is_err() && log == LogMode::Full {
        println!("{}", world.log());
    }
    result
}

fn is_at_rest(world: &mut World, hosts: [HostId; 2], session: SessionId) -> bool {
    let client: &Restless = world.app(hosts[0]).expect("it runs there");
    let server: &Plain = world.node(hosts[1]).expect("it is one");
    client.outcomes.len() == client.accepted.len()
        && server.is_at_rest()
        && client.received.len() + client.peer_dropped.len() >= server.blocks().count()
        && leftovers(world, hosts[0], session) == [0; 4]
}

fn verdict(world: &mut World, hosts: [HostId; 2], session: SessionId, terms: &Terms) -> Result<(), String> {
    let left = leftovers(world, hosts[0], session);
    let client: &Restless = world.app(hosts[0]).expect("it runs there");
    let server: &Plain = world.node(hosts[1]).expect("it is one");
    if let Some(reason) = client.closed.as_ref().or(server.closed.as_ref()) {
        return Err(format!("closed: {reason}"));
    }
    if left != [0; 4] {
        return Err(format!("the client is left with {left:?} (blocks out, bytes, blocks in, bytes)"));
    }
    if !server.open.is_empty() {
        return Err(format!("the server is left with {:?}", server.open.keys().collect::<Vec<_>>()));
    }
    judge_sent(client, server, terms).map_err(|error| format!("blocks of the client: {error}"))?;
    judge_received(client, server, terms).map_err(|error| format!("streams of the server: {error}"))
}

/// What became of the client's blocks, there and here.
fn judge_sent(client: &Restless, server: &Plain, terms: &Terms) -> Result<(), String> {
    let mut ends = vec![Vec::new(); client.accepted.len()];
    // Streams that were given up before the server knew of what block they were.
    let mut nameless = 0;
    for (bytes, end) in &server.ended {
        match (identify(bytes)?, end) {
            (Some((number, whole)), _) if whole || !matches!(end, End::Whole(_)) => {
                ends.get_mut(number).ok_or(format!("block {number} was never accepted"))?.push(*end);
            }
            (None, End::Reset(DROPPED)) => nameless += 1,
            _ => return Err(format!("a stream of {} bytes: {end:?}", bytes.len())),
        }
    }
    let patience = if server.lazy { LAZINESS } else { Duration::ZERO };
    let mut unseen = 0;
    for (number, (id, ends)) in client.accepted.iter().zip(&ends).enumerate() {
        let outcomes = client.outcomes.get(id).map_or(&[][..], |outcomes| outcomes);
        let ended = client.ended.get(id).copied().unwrap_or_default();
        let right = match (outcomes, &ends[..]) {
            // It was there before it was known here.
            ([Outcome::Delivered(_)], [End::Whole(at)]) => *at <= ended + patience,
            // What was acknowledged before the client heard that it is not wanted is delivered to QUIC.
            ([Outcome::Delivered(_)], [End::Stopped]) => true,
            ([Outcome::Dropped { reason: DropReason::Refused, .. }], ends) => *ends == [End::Stopped],
            ([Outcome::Dropped { .. }], []) => {
                unseen += 1;
                true
            }
            ([Outcome::Dropped { .. }], [End::Reset(code)]) => *code == DROPPED,
            ([Outcome::Dropped { .. }], [End::Stopped]) => true,
            // All of it was on its way, or there, when it was dropped, and no acknowledgement had come back: nothing of it leaves later.
            ([Outcome::Dropped { .. }], [End::Whole(at)]) => *at <= ended + terms.longest + patience,
            _ => false,
        };
        if !right {
            return Err(format!("{number} ({id}): outcomes {outcomes:?} at {ended:?}, but at the server {ends:?}"));
        }
    }
    if let Some(id) = client.outcomes.keys().find(|id| !client.accepted.contains(id)) {
        return Err(format!("{id} was never accepted"));
    }
    if nameless > unseen {
        return Err(format!("{nameless} streams were reset at once, but only {unseen} blocks dropped"));
    }
    Ok(())
}

/// What became of the server's streams.
fn judge_received(client: &Restless, server: &Plain, terms: &Terms) -> Result<(), String> {
    let blocks: BTreeMap<_, _> = server.blocks().collect();
    if let Some(id) = client.received.keys().chain(client.peer_dropped.keys()).find(|id| !blocks.contains_key(id)) {
        return Err(format!("{id} was never sent"));
    }
    for (id, own) in blocks {
        let received = client.received.get(&id).copied().unwrap_or(0);
        let dropped = client.peer_dropped.get(&id).copied().unwrap_or(0);
        let too_large = own.bytes.len() as u64 > terms.largest;
        let right = match (own.state, received, dropped) {
            (OwnState::Reset, 0, 1) => true,
            (OwnState::Acknowledged, 1, 0) => !too_large,
            // It is not wanted if it is too large, or if there was no room left. That may have been found out when all of it was there.
            (OwnState::Stopped | OwnState::Acknowledged, 0, 1) => too_large || !terms.is_room,
            _ => false,
        };
        if !right {
            let Own { bytes, state, .. } = own;
            let size = bytes.len();
            return Err(format!("{id} of {size} bytes: {state:?}; received {received} times, dropped {dropped} times"));
        }
    }
    Ok(())
}
