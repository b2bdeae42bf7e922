//! Far gateways that say what they should not, and those that ask for more than their share.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use punctual::{Block, Channel, CloseReason, Endpoint, Session};
use punctual_gateway::tunnel::{
    Config, Limits, close,
    wire::{FlowId, Hello, Instance, StopReason, Word},
};

use tokio::{net::UdpSocket, task::AbortHandle};

use super::pair::{PATIENCE, Server, ask, config, echo, endpoint_config, program};

/// A gateway of which each word is ours to say.
struct Stranger {
    session: Session,
    _endpoint: Endpoint,
}

fn hello(instance: u8) -> Word {
    Word::Hello(Hello { version: 1, instance: Instance([instance; 16]), offers: Vec::new() })
}

fn first(flow: u64, name: &str, data: &'static [u8]) -> Word {
    Word::First { flow: FlowId(flow), name: name.parse().expect("a name"), data: Bytes::from_static(data) }
}

impl Stranger {
    async fn new(server: &Server) -> Self {
        let endpoint = server.endpoint_for_clients();
        Self { session: server.session(&endpoint).await, _endpoint: endpoint }
    }

    /// One that has been greeted.
    async fn greeted(server: &Server, instance: u8) -> Self {
        Self::new(server).await.greeting(instance).await
    }

    /// One that has been greeted, and takes few blocks before those that came are heard.
    async fn slow(server: &Server) -> Self {
        let mut config = endpoint_config();
        config.session.limits = config.session.limits.receive_blocks(16);
        let endpoint = Endpoint::client().trust(server.fingerprint).config(config).build().expect("a client");
        Self { session: server.session(&endpoint).await, _endpoint: endpoint }.greeting(1).await
    }

    async fn greeting(self, instance: u8) -> Self {
        self.say(hello(instance)).await;
        assert!(matches!(self.hear().await, Word::Hello(_)));
        self
    }

    async fn say(&self, word: Word) {
        self.raw(word.encode()).await;
    }

    async fn raw(&self, block: Bytes) {
        // In order, for what is said later to be heard later.
        let _ = self.session.send(Block::new(block).channel(Channel(0))).await;
    }

    async fn hear(&self) -> Word {
        let block = tokio::time::timeout(PATIENCE, self.session.recv()).await.expect("a word").expect("a session");
        Word::decode(block.data).expect("a sound word").expect("a word that is known")
    }

    /// The code with which the gateway closes the session.
    async fn turned_away(&self) -> u64 {
        let closed = tokio::time::timeout(PATIENCE, self.session.closed()).await;
        match closed.expect("the session is closed") {
            CloseReason::Peer { code, .. } => code,
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_gateway_is_turned_away() {
    let server = Server::start(config(&[], &["x=udp:127.0.0.1:9"])).await;
    for block in [Bytes::from_static(b"a frame of a film"), Bytes::new(), first(0, "x", b"").encode()] {
        let stranger = Stranger::new(&server).await;
        stranger.raw(block).await;
        assert_eq!(stranger.turned_away().await, u64::from(close::REFUSED));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn words_that_make_no_sense_end_the_session_of_whoever_says_them() {
    let server = Server::start(config(&[], &[&format!("x=udp:{}", echo().await)])).await;
    let name = "x".parse().expect("a name");
    let open = |flow| Word::Open { flow: FlowId(flow), name: "x".parse().expect("a name") };
    let data = |flow, offset| Word::Data { flow: FlowId(flow), offset, data: Bytes::from_static(b"!") };
    let cases: Vec<Vec<Bytes>> = vec![
        vec![Bytes::from_static(&[9])],
        vec![Bytes::from_static(&[4, 0])],
        // A number that is the server's to give.
        vec![Word::First { flow: FlowId(1), name, data: Bytes::new() }.encode()],
        vec![open(1).encode()],
        // Bytes for a flow of datagrams.
        vec![first(0, "x", b"?").encode(), data(0, 0).encode()],
        vec![hello(200).encode()],
    ];
    let honest = server.client(config(&["udp:127.0.0.1:0=x"], &[])).await;
    let (_session, _called) = honest.call(&server).await;
    for (number, case) in cases.into_iter().enumerate() {
        let stranger = Stranger::greeted(&server, number as u8).await;
        for block in case {
            stranger.raw(block).await;
        }
        assert_eq!(stranger.turned_away().await, u64::from(close::VIOLATION), "case {number}");
    }
    // Others are none the worse.
    let program = program(honest.port("x").await).await;
    assert_eq!(ask(&program, b"still there?").await, b"still there?");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_bytes_than_were_granted_end_the_session() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = listener.local_addr().expect("it is bound");
    let server = Server::start(config(&[], &[&format!("deaf=tcp:{to}")])).await;
    for (offset, size) in [(0, 65_537), (1, 1)] {
        let stranger = Stranger::greeted(&server, 1).await;
        stranger.say(Word::Open { flow: FlowId(0), name: "deaf".parse().expect("a name") }).await;
        stranger.say(Word::Data { flow: FlowId(0), offset, data: vec![0; size].into() }).await;
        assert_eq!(stranger.turned_away().await, u64::from(close::VIOLATION), "{size} bytes at {offset}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_can_be_reached_but_what_is_forwarded() {
    let server = Server::start(config(&[], &["x=udp:127.0.0.1:9"])).await;
    let stranger = Stranger::greeted(&server, 1).await;
    let stopped = |flow, reason| Word::Stop { flow: FlowId(flow), reason };
    stranger.say(first(0, "y", b"!")).await;
    assert_eq!(stranger.hear().await, stopped(0, StopReason::NoSuchPort));
    stranger.say(Word::Open { flow: FlowId(2), name: "x".parse().expect("a name") }).await;
    assert_eq!(stranger.hear().await, stopped(2, StopReason::NoSuchPort), "it is forwarded for UDP only");
    stranger.say(Word::Datagram { flow: FlowId(4), data: Bytes::new() }).await;
    assert_eq!(stranger.hear().await, stopped(4, StopReason::Unknown));
    // Whoever goes on with a connection that is not carried has not heard so.
    stranger.say(Word::Data { flow: FlowId(2), offset: 0, data: Bytes::from_static(b"!") }).await;
    assert_eq!(stranger.hear().await, stopped(2, StopReason::Unknown));
    stranger.say(Word::Fin { flow: FlowId(2), size: 1 }).await;
    assert_eq!(stranger.hear().await, stopped(2, StopReason::Unknown));
}

/// A program that says more than anybody wants, to whoever says something to it.
pub(crate) async fn flood() -> (SocketAddr, AbortHandle) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("it is bound");
    let flooding = tokio::spawn(async move {
        let (_, to) = socket.recv_from(&mut [0; 100]).await.expect("a datagram");
        loop {
            let _ = socket.send_to(b"more", to).await;
            tokio::task::yield_now().await;
        }
    });
    (address, flooding.abort_handle())
}

/// Waits until the server's metrics have that in them.
async fn until_counted(server: &Server, counted: &str) {
    let there = async {
        while !server.tunnel.metrics().contains(counted) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.expect(counted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_refused_is_told_of_even_if_the_session_is_full() {
    let sink = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let (source, flooding) = flood().await;
    let to = sink.local_addr().expect("it is bound");
    let forwards = [format!("flood=udp:{source},deadline=none"), format!("sink=udp:{to}")];
    let server = Server::start(config(&[], &[&forwards[0], &forwards[1]])).await;
    let stranger = Stranger::slow(&server).await;
    stranger.say(first(0, "flood", b"!")).await;
    until_counted(&server, "refused_datagrams_total{reason=\"full\"}").await;
    flooding.abort();
    stranger.say(Word::Open { flow: FlowId(2), name: "never".parse().expect("a name") }).await;
    stranger.say(first(4, "sink", b"heard")).await;
    // What is behind it has been heard, and so has it.
    tokio::time::timeout(PATIENCE, sink.recv(&mut [0; 100])).await.expect("in time").expect("a datagram");
    let refused = Word::Stop { flow: FlowId(2), reason: StopReason::NoSuchPort };
    while stranger.hear().await != refused {}
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forwarded_now_is_told_even_if_the_session_is_full() {
    let (source, flooding) = flood().await;
    let flood = format!("flood=udp:{source},deadline=none");
    let server = Server::start(config(&[], &[&flood])).await;
    let stranger = Stranger::slow(&server).await;
    stranger.say(first(0, "flood", b"!")).await;
    until_counted(&server, "refused_datagrams_total{reason=\"full\"}").await;
    // It is full while it is read again, too: nothing is heard until then.
    server.tunnel.reload(config(&[], &[&flood, "new=tcp:127.0.0.1:9"])).await.expect("it makes sense");
    flooding.abort();
    let offers = loop {
        if let Word::Hello(hello) = stranger.hear().await {
            break hello.offers;
        }
    };
    assert!(offers.iter().any(|(_, name)| name.as_str() == "new"), "{offers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_far_gateway_has_its_share_of_flows_and_no_other_s() {
    let limits = Limits { flows: 3, ..Limits::default() };
    let server = Server::start(Config { limits, ..config(&[], &[&format!("x=udp:{}", echo().await)]) }).await;
    let (one, other) = (Stranger::greeted(&server, 1).await, Stranger::greeted(&server, 2).await);
    for flow in [0, 2, 4] {
        one.say(first(flow, "x", b"mine")).await;
        assert_eq!(one.hear().await, Word::Datagram { flow: FlowId(flow), data: Bytes::from_static(b"mine") });
    }
    one.say(first(6, "x", b"more")).await;
    assert_eq!(one.hear().await, Word::Stop { flow: FlowId(6), reason: StopReason::TooMany });
    // Flow 0 of another is another flow, and its answers are its own.
    other.say(Word::Datagram { flow: FlowId(0), data: Bytes::new() }).await;
    assert_eq!(other.hear().await, Word::Stop { flow: FlowId(0), reason: StopReason::Unknown });
    other.say(first(0, "x", b"yours")).await;
    assert_eq!(other.hear().await, Word::Datagram { flow: FlowId(0), data: Bytes::from_static(b"yours") });
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_far_gateways_as_are_allowed_and_one_that_comes_again_is_none_more() {
    let limits = Limits { clients: 1, ..Limits::default() };
    let server = Server::start(Config { limits, ..config(&[], &[&format!("x=udp:{}", echo().await)]) }).await;
    let one = Stranger::greeted(&server, 1).await;
    one.say(first(0, "x", b"a")).await;
    assert_eq!(one.hear().await, Word::Datagram { flow: FlowId(0), data: Bytes::from_static(b"a") });
    let other = Stranger::new(&server).await;
    other.say(hello(2)).await;
    assert_eq!(other.turned_away().await, u64::from(close::REFUSED));
    // The same again: it takes the place of its session before, and has the flows that it had.
    let again = Stranger::greeted(&server, 1).await;
    assert_eq!(one.turned_away().await, u64::from(close::STOPPED));
    again.say(Word::Datagram { flow: FlowId(0), data: Bytes::from_static(b"b") }).await;
    assert_eq!(again.hear().await, Word::Datagram { flow: FlowId(0), data: Bytes::from_static(b"b") });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_kept() {
    let limits = Limits { rate: 10_000, ..Limits::default() };
    let sink = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let to: SocketAddr = sink.local_addr().expect("it is bound");
    let server = Server::start(Config { limits, ..config(&[], &[&format!("x=udp:{to}")]) }).await;
    let stranger = Stranger::greeted(&server, 1).await;
    for _ in 0..200 {
        stranger.say(first(0, "x", &[7; 1_000])).await;
    }
    // What is behind all that has been heard by now.
    stranger.say(Word::Datagram { flow: FlowId(8), data: Bytes::new() }).await;
    assert!(matches!(stranger.hear().await, Word::Stop { flow: FlowId(8), .. }));
    let (mut came, mut space) = (0, [0; 2_000]);
    while let Ok(Ok(size)) = tokio::time::timeout(Duration::from_millis(300), sink.recv(&mut space)).await {
        came += size;
    }
    // A second's worth at once, and what is earned while they come: 200,000 bytes would take twenty seconds.
    assert!((1_000..150_000).contains(&came), "{came} bytes");
    assert!(server.tunnel.metrics().contains("refused_datagrams_total{reason=\"rate\"}"), "what is dropped is counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_given_to_the_program_is_counted() {
    let server = Server::start(config(&[], &[&format!("x=udp:{}", echo().await)])).await;
    let stranger = Stranger::greeted(&server, 1).await;
    // Larger than a datagram can be.
    stranger.say(first(0, "x", &[7; 70_000])).await;
    until_counted(&server, "refused_datagrams_total{reason=\"not_sent\"} 1").await;
}
