//! A small world in virtual time: endpoints, and peers that speak bare QUIC, joined by a network that loses nothing unless
//! it is told to.
//!
//! Time stands still while anything is left to do, and then jumps to the next packet or alarm.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub(crate) mod bench;
pub(crate) mod inject;
pub(crate) mod raw;
pub(crate) mod wanderer;
pub(crate) mod wire;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use punctual_proto::{
    Block, BlockId, BlockUpdate, ClientConfig, Delivery, EcnCodepoint, Endpoint, EndpointConfig, Event, LocalId,
    NetworkPath, Outcome, ReceivedBlock, SendError, ServerConfig, Session, SessionConfig, SessionId,
    rustls::{
        self,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use raw::Raw;

/// The name in the test certificate.
pub(crate) const SERVER_NAME: &str = "punctual.test";

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn certificate() -> &'static (CertificateDer<'static>, PrivateKeyDer<'static>) {
    static MADE: OnceLock<(CertificateDer<'static>, PrivateKeyDer<'static>)> = OnceLock::new();
    MADE.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]).expect("a certificate can be made");
        (made.cert.into(), PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into())
    })
}

/// A protocol that is not Punctual, which every server here speaks as well.
pub(crate) const OTHER_ALPN: &[u8] = b"other/1";

pub(crate) fn rustls_server() -> rustls::ServerConfig {
    let (certificate, key) = certificate();
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.clone_key())
        .expect("the key belongs to the certificate");
    config.alpn_protocols = vec![OTHER_ALPN.to_vec()];
    config
}

pub(crate) fn rustls_client() -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate().0.clone()).expect("the certificate is valid");
    rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

pub(crate) fn server_config(session: SessionConfig) -> ServerConfig {
    ServerConfig::new(rustls_server()).expect("ring has the first cipher suite").session(session)
}

pub(crate) fn client_config(session: SessionConfig) -> ClientConfig {
    ClientConfig::new(rustls_client()).expect("ring has the first cipher suite").session(session)
}

/// The first of the ends that a host has that roams.
const ROAMING: u32 = 32_768;

/// The first of the ends as which a NAT shows others. One that it has not bound leads nowhere.
pub(crate) const BOUND: u32 = 1_000;

/// The first of those that differ by their port only, not by their address.
pub(crate) const BOUND_PORT: u32 = 10_000;

/// The port of all others.
const PORT: u16 = 4433;

/// Names a host of a world.
pub(crate) type HostId = usize;

/// Where a host can be reached.
pub(crate) fn address(host: HostId) -> SocketAddr {
    address_at(host, 0)
}

/// The address of an end of a host, by its [`LocalId`].
pub(crate) fn address_at(host: HostId, local: u32) -> SocketAddr {
    let (local, port) = if (BOUND_PORT..ROAMING).contains(&local) { (0, local as u16) } else { (local, PORT) };
    let [.., high, low] = local.to_be_bytes();
    (Ipv4Addr::new(10, high, low, host as u8 + 1), port).into()
}

fn end_at(address: SocketAddr) -> (HostId, LocalId) {
    match address {
        SocketAddr::V4(v4) => {
            let [_, high, low, host] = v4.ip().octets();
            let by_port = Some(v4.port()).filter(|port| (BOUND_PORT..ROAMING).contains(&u32::from(*port)));
            (usize::from(host) - 1, LocalId(by_port.unwrap_or(u16::from_be_bytes([high, low])).into()))
        }
        SocketAddr::V6(_) => panic!("{address} is nobody's"),
    }
}

enum Host {
    Punctual(Box<Endpoint>),
    Raw(Box<Raw>),
}

/// A UDP datagram on its way.
struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    ecn: Option<EcnCodepoint>,
    data: Vec<u8>,
}

/// Hosts and what is between them.
pub(crate) struct World {
    pub(crate) now: Instant,
    hosts: Vec<Host>,
    wire: BTreeMap<(Instant, u64), Packet>,
    sequence: u64,
    /// How long what is sent from now on takes.
    pub(crate) one_way_delay: Duration,
    /// What each endpoint's sessions had to say and nobody has taken yet.
    events: Vec<Vec<(SessionId, Event)>>,
    /// UDP datagrams each host has sent.
    pub(crate) packets_sent: Vec<u64>,
    /// Bytes of these.
    pub(crate) bytes_sent: Vec<u64>,
    /// Real time that each host has taken for what came in and what goes out.
    pub(crate) spent: Vec<Duration>,
    /// The most events that an endpoint had at once.
    pub(crate) most_events: usize,
    /// How much longer the next packet of this host takes.
    delay: Option<(HostId, Duration)>,
    /// Of the packets of this host every so manieth is lost.
    pub(crate) lose_every: Option<(HostId, u64)>,
    /// The next packet of this host is lost if it is at least this long.
    pub(crate) lose_next: Option<(HostId, usize)>,
    /// What is longer than this does not pass the path that ends here.
    pub(crate) narrow: Option<(SocketAddr, usize)>,
    /// What this address sends is lost, and what is sent to it.
    pub(crate) cut: Option<SocketAddr>,
    /// Each packet of this host comes from another of its ends.
    pub(crate) roams: Option<HostId>,
    /// Ends of hosts that are behind a NAT, and as which end the world sees each. What is sent to them otherwise is lost.
    pub(crate) nat: BTreeMap<(HostId, u32), u32>,
    /// By how much each host's clock is behind, for it stood while the host slept.
    behind: Vec<Duration>,
    /// This host sleeps.
    asleep: Option<HostId>,
    /// This host can deal with so many datagrams a millisecond, and others wait for their turn.
    pub(crate) slow: Option<(HostId, usize)>,
    /// When it has last.
    worked: Instant,
    /// What this host sends arrives so many times.
    pub(crate) multiplied: Option<(HostId, usize)>,
}

impl World {
    /// Without hosts; every path takes `one_way_delay` in each direction.
    pub(crate) fn new(one_way_delay: Duration) -> Self {
        let now = Instant::now();
        Self {
            now,
            hosts: Vec::new(),
            wire: BTreeMap::new(),
            sequence: 0,
            one_way_delay,
            events: Vec::new(),
            packets_sent: Vec::new(),
            bytes_sent: Vec::new(),
            spent: Vec::new(),
            most_events: 0,
            delay: None,
            lose_every: None,
            lose_next: None,
            narrow: None,
            cut: None,
            roams: None,
            nat: BTreeMap::new(),
            behind: Vec::new(),
            asleep: None,
            slow: None,
            worked: now,
            multiplied: None,
        }
    }

    fn add(&mut self, host: Host) -> HostId {
        self.hosts.push(host);
        self.events.push(Vec::new());
        self.packets_sent.push(0);
        self.bytes_sent.push(0);
        self.spent.push(Duration::ZERO);
        self.behind.push(Duration::ZERO);
        self.hosts.len() - 1
    }

    /// Adds an endpoint; with `server`, one that accepts sessions.
    pub(crate) fn add_endpoint(&mut self, server: Option<ServerConfig>) -> HostId {
        let seed = [self.hosts.len() as u8 + 1; 32];
        let config = EndpointConfig::new(self.now).seed(seed);
        self.add(Host::Punctual(Box::new(Endpoint::new(config, server))))
    }

    /// Adds a peer that speaks bare QUIC and begins a connection with `server`.
    pub(crate) fn add_raw(&mut self, config: raw::Config, server: HostId) -> HostId {
        let raw = Raw::connect(self.now, config, address(server));
        self.add(Host::Raw(Box::new(raw)))
    }

    pub(crate) fn endpoint(&mut self, host: HostId) -> &mut Endpoint {
        match &mut self.hosts[host] {
            Host::Punctual(endpoint) => endpoint,
            Host::Raw(_) => panic!("host {host} has no endpoint"),
        }
    }

    pub(crate) fn raw(&mut self, host: HostId) -> &mut Raw {
        match &mut self.hosts[host] {
            Host::Raw(raw) => raw,
            Host::Punctual(_) => panic!("host {host} is an endpoint"),
        }
    }

    /// Begins a session of `client` with `server`.
    pub(crate) fn connect(&mut self, client: HostId, config: &ClientConfig, server: HostId) -> SessionId {
        let (now, path) = (self.now, NetworkPath { local: LocalId(0), remote: address(server) });
        self.endpoint(client).connect(now, config, path, SERVER_NAME).expect("a session can be begun")
    }

    /// A session that is still known.
    pub(crate) fn session(&mut self, host: HostId, id: SessionId) -> &mut Session {
        self.endpoint(host).session(id).expect("the session lives")
    }

    /// Lets `for_` pass.
    pub(crate) fn run(&mut self, for_: Duration) {
        let until = self.now + for_;
        loop {
            self.drain();
            match self.next_event().filter(|&at| at <= until) {
                Some(at) => {
                    self.now = self.now.max(at);
                    self.step();
                }
                None => break,
            }
        }
        self.now = until;
    }

    /// A host sleeps for so long, and its clock stands; what comes to it meanwhile is lost.
    pub(crate) fn sleep(&mut self, host: HostId, for_: Duration) {
        self.drain();
        self.asleep = Some(host);
        self.run(for_);
        self.asleep = None;
        self.behind[host] += for_;
    }

    /// The time by a host's own clock.
    pub(crate) fn now_at(&self, host: HostId) -> Instant {
        self.now - self.behind[host]
    }

    /// Runs until `done` says so; fails after `patience`.
    pub(crate) fn run_until(&mut self, patience: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let until = self.now + patience;
        loop {
            self.drain();
            if done(self) {
                self.drain();
                return;
            }
            let at = self.next_event().filter(|&at| at <= until).expect("it happens in time");
            self.now = self.now.max(at);
            self.step();
        }
    }

    fn next_event(&mut self) -> Option<Instant> {
        let packet = self.wire.first_key_value().map(|(&(at, _), _)| at);
        let asleep = self.asleep;
        let awake = self.hosts.iter().zip(&self.behind).enumerate().filter(|(id, _)| asleep != Some(*id));
        let alarms = awake.map(|(_, (host, behind))| match host {
            Host::Punctual(endpoint) => Some(endpoint.poll_timeout()? + *behind),
            Host::Raw(raw) => Some(raw.poll_timeout()? + *behind),
        });
        let work = self.slow.map(|_| self.worked + ms(1));
        alarms.chain([packet, work]).flatten().min()
    }

    /// Does what is due now.
    fn step(&mut self) {
        let now = self.now;
        for (id, host) in self.hosts.iter_mut().enumerate().filter(|(id, _)| self.asleep != Some(*id)) {
            let (now, since) = (now - self.behind[id], Instant::now());
            match host {
                Host::Punctual(endpoint) if endpoint.poll_timeout().is_some_and(|at| at <= now) => {
                    endpoint.handle_timeout(now);
                }
                Host::Raw(raw) if raw.poll_timeout().is_some_and(|at| at <= now) => raw.handle_timeout(now),
                Host::Punctual(_) | Host::Raw(_) => {}
            }
            self.spent[id] += since.elapsed();
        }
        if let Some((host, most)) = self.slow.filter(|_| now >= self.worked + ms(1)) {
            self.worked = now;
            let now = self.now_at(host);
            self.endpoint(host).work(now, most);
        }
        self.drain();
        while let Some(packet) = self.wire.first_entry().filter(|packet| packet.key().0 <= now) {
            let Packet { from, to, ecn, data } = packet.remove();
            let data = BytesMut::from(&data[..]);
            let (host, local) = end_at(to);
            if self.asleep == Some(host) {
                continue;
            }
            let Some(local) = self.behind_nat(host, local) else { continue };
            let (now, since) = (self.now_at(host), Instant::now());
            match &mut self.hosts[host] {
                Host::Punctual(endpoint) if self.slow.is_some_and(|(slow, _)| slow == host) => {
                    endpoint.queue_datagram(now, NetworkPath { local, remote: from }, ecn, data);
                }
                Host::Punctual(endpoint) => {
                    endpoint.handle_datagram(now, NetworkPath { local, remote: from }, ecn, data);
                }
                Host::Raw(raw) => {
                    // Where it has only made believe to be, it is where it was.
                    let local = if local.0 >= ROAMING { 0 } else { local.0 };
                    raw.handle_datagram(now, (from, address_at(host, local).ip()), ecn, data);
                }
            }
            self.spent[host] += since.elapsed();
            self.drain();
        }
    }

    /// The end of a host that a packet is for which came to `seen`, if a NAT lets it through.
    fn behind_nat(&self, host: HostId, seen: LocalId) -> Option<LocalId> {
        match self.nat.iter().find(|&(&(behind, _), &bound)| behind == host && bound == seen.0) {
            Some((&(_, local), _)) => Some(LocalId(local)),
            None => {
                Some(seen).filter(|seen| !self.nat.contains_key(&(host, seen.0)) && !(BOUND..ROAMING).contains(&seen.0))
            }
        }
    }

    /// The next packet of a host takes `extra` longer, and is overtaken.
    pub(crate) fn delay_next(&mut self, host: HostId, extra: Duration) {
        self.drain();
        self.delay = Some((host, extra));
    }

    /// Carries away all that hosts have to send and to say.
    pub(crate) fn drain(&mut self) {
        for id in (0..self.hosts.len()).filter(|id| self.asleep != Some(*id)) {
            let now = self.now - self.behind[id];
            loop {
                let (mut data, since) = (Vec::new(), Instant::now());
                let sent = match &mut self.hosts[id] {
                    Host::Punctual(endpoint) => {
                        endpoint.poll_transmit(now, &mut data).map(|t| (t.path.local, t.path.remote, t.size, t.ecn))
                    }
                    Host::Raw(raw) => {
                        let local = |ip: Option<IpAddr>| ip.map_or(LocalId(0), |ip| end_at((ip, 0).into()).1);
                        raw.poll_transmit(now, &mut data).map(|(ip, to, size, ecn)| (local(ip), to, size, ecn))
                    }
                };
                self.spent[id] += since.elapsed();
                let Some((local, to, size, ecn)) = sent else { break };
                self.sequence += 1;
                let roams = self.roams == Some(id);
                let local = if roams { ROAMING + self.sequence as u32 % 32_000 } else { local.0 };
                let local = self.nat.get(&(id, local)).copied().unwrap_or(local);
                let from = address_at(id, local);
                data.truncate(size);
                self.packets_sent[id] += 1;
                self.bytes_sent[id] += size as u64;
                let unlucky = |&(host, nth): &(HostId, u64)| host == id && self.packets_sent[id].is_multiple_of(nth);
                let ends_at = |end: SocketAddr| end == from || end == to;
                let next = self.lose_next.take_if(|&mut (host, least)| host == id && data.len() >= least).is_some();
                let too_long = self.narrow.is_some_and(|(end, most)| ends_at(end) && data.len() > most);
                let unlucky = self.lose_every.as_ref().is_some_and(unlucky);
                if unlucky || next || too_long || self.cut.is_some_and(ends_at) {
                    continue;
                }
                let extra = self.delay.take_if(|(host, _)| *host == id).map_or(Duration::ZERO, |(_, extra)| extra);
                let times = self.multiplied.filter(|(host, _)| *host == id).map_or(1, |(_, times)| times);
                for _ in 0..times {
                    self.sequence += 1;
                    let key = (self.now + self.one_way_delay + extra, self.sequence);
                    self.wire.insert(key, Packet { from, to, ecn, data: data.clone() });
                }
            }
            if let Host::Punctual(endpoint) = &mut self.hosts[id] {
                let (before, since) = (self.events[id].len(), Instant::now());
                self.events[id].extend(std::iter::from_fn(|| endpoint.poll_event()));
                self.spent[id] += since.elapsed();
                self.most_events = self.most_events.max(self.events[id].len() - before);
            }
        }
    }

    /// What the sessions of an endpoint have said since the last call.
    pub(crate) fn take_events(&mut self, host: HostId) -> Vec<(SessionId, Event)> {
        self.drain();
        std::mem::take(&mut self.events[host])
    }

    /// The same of one session; what others said stays.
    pub(crate) fn events_of(&mut self, host: HostId, session: SessionId) -> Vec<Event> {
        self.drain();
        let (its, others) = std::mem::take(&mut self.events[host]).into_iter().partition(|(id, _)| *id == session);
        self.events[host] = others;
        let its: Vec<(SessionId, Event)> = its;
        its.into_iter().map(|(_, event)| event).collect()
    }

    /// Runs until a session of the server is connected that was not there before, and returns it.
    pub(crate) fn accept(&mut self, server: HostId) -> SessionId {
        let (id, punctual) = self.accept_any(server);
        assert!(punctual);
        id
    }

    /// As `accept`, and whether it speaks Punctual.
    pub(crate) fn accept_any(&mut self, server: HostId) -> (SessionId, bool) {
        let mut found = None;
        self.run_until(ms(5_000), |world| {
            let new = world.events[server].iter().position(|(_, event)| matches!(event, Event::Connected { .. }));
            found = new.map(|at| world.events[server].remove(at));
            found.is_some()
        });
        match found {
            Some((id, Event::Connected { punctual })) => (id, punctual),
            other => panic!("{other:?}"),
        }
    }
}

/// One end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) host: HostId,
    pub(crate) session: SessionId,
}

impl World {
    pub(crate) fn send(&mut self, end: End, block: Block) -> BlockId {
        self.try_send(end, block).expect("there is room")
    }

    pub(crate) fn try_send(&mut self, end: End, block: Block) -> Result<BlockId, SendError> {
        let now = self.now_at(end.host);
        let sent = self.session(end.host, end.session).send(now, block);
        self.drain();
        sent
    }

    pub(crate) fn update(&mut self, end: End, id: BlockId, update: BlockUpdate) {
        let now = self.now_at(end.host);
        self.session(end.host, end.session).update(now, id, update).expect("the block is live");
        self.drain();
    }

    pub(crate) fn cancel(&mut self, end: End, id: BlockId) {
        let now = self.now_at(end.host);
        self.session(end.host, end.session).cancel(now, id).expect("the block is live");
        self.drain();
    }

    pub(crate) fn recv(&mut self, end: End) -> Option<ReceivedBlock> {
        let (now, since) = (self.now_at(end.host), Instant::now());
        let block = self.session(end.host, end.session).recv(now);
        self.spent[end.host] += since.elapsed();
        self.drain();
        block
    }

    /// Every block that is there.
    pub(crate) fn recv_all(&mut self, end: End) -> Vec<ReceivedBlock> {
        std::iter::from_fn(|| self.recv(end)).collect()
    }
}

/// How blocks ended, by what their session said.
pub(crate) fn outcomes(events: &[Event]) -> BTreeMap<BlockId, Outcome> {
    let mut outcomes = BTreeMap::new();
    for event in events {
        if let Event::Outcome { id, outcome } = event {
            assert_eq!(outcomes.insert(*id, *outcome), None, "two outcomes for {id}");
        }
    }
    outcomes
}

/// The delivery an outcome is.
pub(crate) fn delivery(outcome: Option<&Outcome>) -> Delivery {
    match outcome {
        Some(Outcome::Delivered(delivery)) => *delivery,
        other => panic!("not delivered: {other:?}"),
    }
}
