//! Two endpoints face to face, for what the simulator's networks cannot do to them: addresses that change, peers that
//! misbehave.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use rcgen::generate_simple_self_signed;

use crate::{
    Block, BlockError, BlockId, ClientConfig, CloseReason, Delta, Endpoint, EndpointConfig, Event, Limits, LocalId,
    NetworkPath, Outcome, ReceivedBlock, ResetSecret, ServerConfig, Session, SessionConfig, SessionId,
    base::PathHealth, rustls,
};

const NAME: &str = "punctual.test";
const DELAY: Duration = Duration::from_millis(10);
const CLIENT: usize = 0;
const SERVER: usize = 1;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn configs() -> (ClientConfig, ServerConfig) {
    let (client, server) = tls();
    (ClientConfig::new(client).unwrap(), ServerConfig::new(server).unwrap())
}

/// The same, with a server that speaks something else.
fn plain_configs() -> (ClientConfig, ServerConfig) {
    let (mut client, mut server) = tls();
    client.alpn_protocols = vec![b"other".to_vec()];
    server.alpn_protocols = vec![b"other".to_vec()];
    let crypto = Arc::new(server.try_into().unwrap());
    (
        ClientConfig::new(client).unwrap(),
        ServerConfig { crypto, holds: false, tokens: Arc::default(), session: SessionConfig::default() },
    )
}

fn tls() -> (rustls::ClientConfig, rustls::ServerConfig) {
    let pair = generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pair.cert.der().clone()).unwrap();
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let versions = &[&rustls::version::TLS13];
    let client = rustls::ClientConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der());
    let server = server.with_no_client_auth().with_single_cert(vec![pair.cert.der().clone()], key.into()).unwrap();
    (client, server)
}

/// A client and a server, and what is on its way between them.
struct Pair {
    now: Instant,
    ends: [Endpoint; 2],
    ids: [Option<SessionId>; 2],
    events: [Vec<Event>; 2],
    wire: VecDeque<(Instant, usize, NetworkPath, Vec<u8>)>,
    /// Where the world sees the client's ends, by their [`LocalId`].
    client: Vec<SocketAddr>,
    server: SocketAddr,
}

impl Pair {
    /// A client that has begun to connect.
    fn new((client, server): (ClientConfig, ServerConfig)) -> Self {
        let now = Instant::now();
        let config = |seed| EndpointConfig::new(now).seed([seed; 32]).reset(ResetSecret::new([1; 32]));
        let mut pair = Self {
            now,
            ends: [Endpoint::new(config(1), None), Endpoint::new(config(2), Some(server))],
            ids: [None; 2],
            events: Default::default(),
            wire: VecDeque::new(),
            client: vec!["[2001:db8::1]:1000".parse().unwrap(), "[2001:db8::2]:1000".parse().unwrap()],
            server: "[2001:db8::99]:443".parse().unwrap(),
        };
        let path = pair.path(0);
        pair.ids[CLIENT] = Some(pair.ends[CLIENT].connect(now, &client, path, NAME).unwrap());
        pair
    }

    fn connected() -> Self {
        let mut pair = Self::new(configs());
        pair.run(ms(200));
        assert!(pair.ids[SERVER].is_some(), "connected");
        pair
    }

    /// A path as the client names it.
    fn path(&self, local: u32) -> NetworkPath {
        NetworkPath { local: LocalId(local), remote: self.server }
    }

    fn session(&mut self, end: usize) -> &mut Session {
        self.ends[end].session(self.ids[end].expect("it has a session")).expect("which lives")
    }

    fn send(&mut self, end: usize, block: Block) -> BlockId {
        let now = self.now;
        self.session(end).send(now, block).unwrap()
    }

    fn recv(&mut self, end: usize) -> Option<ReceivedBlock> {
        let now = self.now;
        self.session(end).recv(now)
    }

    fn outcome(&self, end: usize, id: BlockId) -> Option<Outcome> {
        self.events[end].iter().find_map(|event| match event {
            Event::Outcome { id: ended, outcome } if *ended == id => Some(*outcome),
            _ => None,
        })
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.drain();
            let alarms = self.ends.iter().filter_map(Endpoint::poll_timeout);
            let next = alarms.chain(self.wire.front().map(|packet| packet.0)).min();
            let Some(next) = next.filter(|&next| next <= end) else { break };
            self.now = self.now.max(next);
            while self.wire.front().is_some_and(|packet| packet.0 <= self.now) {
                let (_, to, path, data) = self.wire.pop_front().unwrap();
                self.ends[to].handle_datagram(self.now, path, None, data[..].into());
                self.drain();
            }
            for end in [CLIENT, SERVER] {
                self.ends[end].handle_timeout(self.now);
                self.drain();
            }
        }
        self.now = end;
    }

    fn drain(&mut self) {
        let mut buf = Vec::new();
        for end in [CLIENT, SERVER] {
            while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buf) {
                let arrival = if end == CLIENT {
                    Some(NetworkPath { local: LocalId(0), remote: self.client[transmit.path.local.0 as usize] })
                } else {
                    let local = self.client.iter().position(|&addr| addr == transmit.path.remote);
                    local.map(|local| self.path(local as u32))
                };
                if let Some(arrival) = arrival {
                    self.wire.push_back((self.now + DELAY, 1 - end, arrival, buf[..transmit.size].to_vec()));
                }
                buf.clear();
            }
            while let Some((id, event)) = self.ends[end].poll_event() {
                self.ids[end] = Some(id);
                self.events[end].push(event);
            }
        }
    }
}

#[test]
fn blocks_go_both_ways() {
    let mut pair = Pair::connected();
    let ids = [CLIENT, SERVER].map(|end| pair.send(end, Block::new(vec![end as u8; 20_000]).deadline(ms(500))));
    pair.run(ms(500));
    for end in [CLIENT, SERVER] {
        assert_eq!(pair.recv(1 - end).unwrap().data, vec![end as u8; 20_000]);
        assert!(matches!(pair.outcome(end, ids[end]), Some(Outcome::Delivered(delivery)) if delivery.on_time()));
    }
    assert!([CLIENT, SERVER].into_iter().all(|end| pair.session(end).is_clean()));
}

#[test]
fn nothing_can_be_expected_of_a_block_unheard_of() {
    let mut pair = Pair::connected();
    let now = pair.now;
    let delta = Delta::from_micros(5);
    assert_eq!(pair.session(SERVER).expect(now, BlockId(7), delta), Err(BlockError::NotLive(BlockId(7))));
    let id = pair.send(CLIENT, Block::new(vec![1; 10]));
    pair.run(ms(100));
    let now = pair.now;
    pair.session(SERVER).expect(now, id, delta).unwrap();
    pair.run(ms(100));
    assert!(pair.events[CLIENT].contains(&Event::Expected { id, delta }));
}

#[test]
fn nothing_follows_the_end() {
    let mut pair = Pair::connected();
    pair.send(CLIENT, Block::new(vec![1; 100_000]));
    pair.send(SERVER, Block::new(vec![1; 100_000]));
    pair.run(ms(12));
    let now = pair.now;
    pair.session(CLIENT).close(now, 7, "enough");
    pair.run(ms(5_000));
    for end in [CLIENT, SERVER] {
        assert!(matches!(pair.events[end].last(), Some(Event::Closed(_))), "{:?}", pair.events[end]);
        assert_eq!(pair.ends[end].sessions(), 0);
    }
}

/// A server that has the secret of the one before it ends the sessions of that; one that has another cannot.
#[test]
fn a_server_that_was_started_anew_says_so() {
    for secret in [1, 2] {
        let mut pair = Pair::connected();
        let config = EndpointConfig::new(pair.now).seed([9; 32]).reset(ResetSecret::new([secret; 32]));
        pair.ends[SERVER] = Endpoint::new(config, Some(configs().1));
        pair.ids[SERVER] = None;
        pair.send(CLIENT, Block::new(vec![1; 10_000]));
        pair.run(ms(100));
        let ended = pair.events[CLIENT].iter().find_map(|event| match event {
            Event::Closed(reason) => Some(reason),
            _ => None,
        });
        assert_eq!(ended, (secret == 1).then_some(&CloseReason::Reset), "{:?}", pair.events[CLIENT]);
    }
}

#[test]
fn a_session_closed_in_its_handshake_stays_closed() {
    let mut pair = Pair::new(configs());
    pair.run(ms(15));
    let now = pair.now;
    pair.session(CLIENT).close(now, 0, "");
    pair.run(ms(20_000));
    assert_eq!(pair.events[CLIENT], [Event::Closed(CloseReason::Local)]);
    assert_eq!(pair.ends[CLIENT].sessions(), 0);
}

#[test]
fn few_events_at_a_time_are_enough() {
    let (client, server) = configs();
    let limits = Limits { events: 1, ..Limits::default() };
    let mut pair = Pair::new((client.session(SessionConfig { limits, ..SessionConfig::default() }), server));
    let ids: Vec<_> = (0..100).map(|_| pair.send(CLIENT, Block::new(vec![1; 100]))).collect();
    pair.run(ms(120));
    while pair.recv(SERVER).is_some() {}
    pair.run(ms(60));
    assert!(ids.iter().all(|&id| pair.outcome(CLIENT, id).is_some()));
}

#[test]
fn a_plain_peer_gets_more_blocks_than_it_allows_streams() {
    let mut pair = Pair::new(plain_configs());
    let ids: Vec<_> = (0..700).map(|_| pair.send(CLIENT, Block::new(vec![1; 100]))).collect();
    pair.run(ms(500));
    while pair.recv(SERVER).is_some() {}
    pair.run(ms(500));
    while pair.recv(SERVER).is_some() {}
    assert_eq!(pair.session(CLIENT).is_punctual(), Some(false));
    assert!(ids.iter().all(|&id| matches!(pair.outcome(CLIENT, id), Some(Outcome::Delivered(_)))));
    assert!([CLIENT, SERVER].into_iter().all(|end| pair.session(end).is_clean()));
}

#[test]
fn a_server_follows_a_client_that_moves() {
    let mut pair = Pair::connected();
    let before = pair.send(SERVER, Block::new(vec![1; 50_000]));
    pair.run(ms(4));
    // What is under way towards the old address is lost, and congestion control begins anew.
    pair.client[0] = "[2001:db8::3]:2000".parse().unwrap();
    let hello = pair.send(CLIENT, Block::new(vec![2; 5_000]));
    pair.run(ms(1_000));
    let after = pair.send(SERVER, Block::new(vec![3; 50_000]).deadline(ms(500)));
    pair.run(ms(1_000));
    for (end, id) in [(SERVER, before), (CLIENT, hello), (SERVER, after)] {
        assert!(matches!(pair.outcome(end, id), Some(Outcome::Delivered(_))), "{id}: {:?}", pair.outcome(end, id));
    }
    let now = pair.now;
    let moved = pair.session(SERVER).path_stats(now)[0];
    assert_eq!((moved.network.remote, moved.health), (pair.client[0], PathHealth::Active));
}
