//! Peers that do not speak Punctual: here, ones written with quinn.

mod common;

use std::{
    collections::BTreeMap,
    future::IntoFuture,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use common::{bind, within};
use punctual::{
    Block, BlockError, BlockUpdate, Config, ConnectError, Delta, DropReason, Endpoint, Fingerprint, Identity, Limits,
    Outcome, SendError, Session, SessionEvent,
};
use quinn::{VarInt, crypto::rustls::QuicClientConfig, crypto::rustls::QuicServerConfig};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};

/// The protocol the peers have in common.
const BLOCKS: &[u8] = b"blocks-by-stream";
/// What a dropped block's stream is reset with (docs/protocol.md).
const DROPPED: VarInt = VarInt::from_u32(0x50_5500 + 0x40);
const LONG: Duration = Duration::from_secs(60);

/// A server that knows nothing of Punctual.
struct QuinnServer {
    endpoint: quinn::Endpoint,
    address: SocketAddr,
    fingerprint: Fingerprint,
}

fn quinn_server(alpn: &[u8], transport: quinn::TransportConfig) -> QuinnServer {
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    let chain = identity.chain_der().map(|der| der.to_vec().into()).collect();
    let key = PrivatePkcs8KeyDer::from_pem_slice(identity.to_pem().as_bytes()).expect("our own PEM");
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, key.into())
        .expect("our own certificate");
    tls.alpn_protocols = vec![alpn.to_vec()];
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).expect("TLS 1.3")));
    config.transport_config(Arc::new(transport));
    let endpoint = quinn::Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).expect("a loopback address");
    QuinnServer { address: endpoint.local_addr().expect("bound"), fingerprint: identity.fingerprint(), endpoint }
}

fn punctual_client(server: &QuinnServer) -> Endpoint {
    Endpoint::client().trust(server.fingerprint).fallback_protocol(BLOCKS).build().expect("a client")
}

/// A Punctual client's session with a quinn server, and the latter's half of it.
async fn pair(server: &QuinnServer, client: &Endpoint) -> (Session, quinn::Connection) {
    let accept = async { server.endpoint.accept().await.expect("open").await.expect("connected") };
    let (ours, theirs) = tokio::join!(client.connect(server.address, "localhost").into_future(), accept);
    let ours = ours.expect("connected");
    assert!(!ours.is_punctual());
    (ours, theirs)
}

/// A quinn client's connection to a Punctual server, and the latter's half of it.
async fn reverse_pair(config: Config) -> (Endpoint, quinn::Endpoint, Session, quinn::Connection) {
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    let mut roots = rustls::RootCertStore::empty();
    for der in identity.chain_der() {
        roots.add(der.to_vec().into()).expect("a certificate");
    }
    let server = Endpoint::server(identity)
        .bind(bind("127.0.0.1"))
        .fallback_protocol(BLOCKS)
        .config(config)
        .build()
        .expect("a server");
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![BLOCKS.to_vec()];
    let tls = QuicClientConfig::try_from(tls).expect("TLS 1.3");
    let mut client = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).expect("a loopback address");
    client.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
    let connect = client.connect(server.local_address(), "localhost").expect("a valid name");
    let (theirs, ours) = tokio::join!(connect, server.accept());
    let ours = ours.expect("accepted");
    assert!(!ours.is_punctual());
    (server, client, ours, theirs.expect("connected"))
}

/// Bytes that tell their block and their place in it.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed.wrapping_mul(97)) as u8).collect()
}

/// The sizes of the blocks in these tests: single bytes, what fits a packet and what does not, many packets.
fn sizes() -> impl Iterator<Item = usize> {
    [1, 2, 1_199, 1_200, 1_201, 5_000, 65_536, 300_001].into_iter().cycle().take(64)
}

#[tokio::test]
async fn every_block_arrives_byte_for_byte_one_to_a_stream() {
    let server = quinn_server(BLOCKS, quinn::TransportConfig::default());
    let client = punctual_client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    let reader = tokio::spawn(async move {
        let mut blocks = Vec::new();
        while let Ok(mut stream) = theirs.accept_uni().await {
            blocks.push(stream.read_to_end(1 << 20).await.expect("a whole block"));
        }
        blocks
    });
    assert!(matches!(ours.try_send(Block::new(vec![])), Err(SendError::Empty)), "a stream without bytes is no block");
    let mut sent = Vec::new();
    for (n, size) in sizes().enumerate() {
        let block = Block::new(pattern(n, size)).priority(n as u8).deadline(LONG);
        sent.push((size, within(ours.send(block)).await.expect("accepted")));
    }
    for (size, sent) in sent {
        let outcome = within(sent).await;
        assert!(
            matches!(&outcome, Outcome::Delivered(delivery) if delivery.good_bytes == size as u64 && delivery.on_time()),
            "{size}: {outcome:?}"
        );
    }
    assert!(within(ours.finish(LONG)).await.is_empty());
    let mut arrived = within(reader).await.expect("no panic");
    let mut expected: Vec<_> = sizes().enumerate().map(|(n, size)| pattern(n, size)).collect();
    arrived.sort_unstable();
    expected.sort_unstable();
    assert!(arrived == expected, "{} streams for {} blocks", arrived.len(), expected.len());
    let stats = ours.stats();
    assert_eq!((stats.blocks_on_time, stats.blocks_late, stats.blocks_dropped), (64, 0, 0));
    within(client.wait_idle()).await;
}

/// A server that gives a stream no more room than 64 KB until it is read.
fn slow_server() -> QuinnServer {
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(64 << 10));
    quinn_server(BLOCKS, transport)
}

/// Reads a stream until it is reset: with what code, after how many bytes.
async fn read_until_reset(stream: &mut quinn::RecvStream) -> (VarInt, usize) {
    let mut bytes = 0;
    loop {
        match stream.read_chunk(usize::MAX, true).await {
            Ok(Some(chunk)) => bytes += chunk.bytes.len(),
            Err(quinn::ReadError::Reset(code)) => return (code, bytes),
            other => panic!("neither data nor a reset: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_block_cancelled_half_way_is_a_reset() {
    let server = slow_server();
    let client = punctual_client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        let big = ours.send(Block::new(pattern(1, 4 << 20)).priority(0)).await.expect("accepted");
        let depends = ours.send(Block::new("with it").depends_on(big.id())).await.expect("accepted");
        let mut stream = theirs.accept_uni().await.expect("a stream");
        let first = stream.read_chunk(100, true).await.expect("open").expect("data");
        assert_eq!(first.bytes, pattern(1, first.bytes.len()));
        ours.cancel(big.id()).expect("live");
        let outcome = big.await;
        assert!(matches!(outcome, Outcome::Dropped { reason: DropReason::Cancelled, .. }), "{outcome:?}");
        let outcome = depends.await;
        assert!(matches!(outcome, Outcome::Dropped { reason: DropReason::DependencyDropped, .. }), "{outcome:?}");
        let (code, bytes) = read_until_reset(&mut stream).await;
        assert_eq!(code, DROPPED);
        assert!(bytes < 4 << 20);
        // What follows is whole, and nothing was heard of the block that depended on the cancelled one.
        let after = ours.send(Block::new("after")).await.expect("accepted");
        let mut stream = theirs.accept_uni().await.expect("a stream");
        assert_eq!(stream.read_to_end(100).await.expect("a whole block"), b"after");
        assert!(matches!(after.await, Outcome::Delivered(_)));
    })
    .await;
    assert!(within(ours.finish(LONG)).await.is_empty());
}

#[tokio::test]
async fn a_block_that_expires_half_way_is_a_reset() {
    let server = slow_server();
    let client = punctual_client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        let stale = ours.send(Block::new(pattern(2, 4 << 20))).await.expect("accepted");
        let mut stream = theirs.accept_uni().await.expect("a stream");
        // Part of it has arrived, and more than the window it cannot be. Now the deadline turns out to be past.
        let update = BlockUpdate { deadline: Some(Some(Block::MIN_DEADLINE)), ..BlockUpdate::default() };
        ours.update(stale.id(), update).expect("live");
        let outcome = stale.await;
        assert!(
            matches!(outcome, Outcome::Dropped { reason: DropReason::Expired, good_bytes } if good_bytes < 4 << 20),
            "{outcome:?}"
        );
        assert_eq!(read_until_reset(&mut stream).await.0, DROPPED);
    })
    .await;
    assert!(within(ours.finish(LONG)).await.is_empty());
}

#[tokio::test]
async fn a_stream_that_is_stopped_is_a_refused_block() {
    let server = slow_server();
    let client = punctual_client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        let unwanted = ours.send(Block::new(pattern(3, 1 << 20))).await.expect("accepted");
        let mut stream = theirs.accept_uni().await.expect("a stream");
        stream.stop(VarInt::from_u32(7)).expect("open");
        let outcome = unwanted.await;
        assert!(matches!(outcome, Outcome::Dropped { reason: DropReason::Refused, .. }), "{outcome:?}");
    })
    .await;
    assert!(within(ours.finish(LONG)).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_each_block_ends_once_on_both_sides() {
    const BLOCKS_SENT: usize = 600;
    let mut transport = quinn::TransportConfig::default();
    transport.max_concurrent_uni_streams(VarInt::from_u32(20)).stream_receive_window(VarInt::from_u32(32 << 10));
    let server = quinn_server(BLOCKS, transport);
    let client = punctual_client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    // What the peer made of each stream: how many were whole, reset, stopped.
    let reader = tokio::spawn(async move {
        let mut ends = BTreeMap::<_, usize>::new();
        for n in 0.. {
            let Ok(mut stream) = theirs.accept_uni().await else { break };
            let end = if n % 11 == 0 {
                // It may have been reset by then.
                let _ = stream.stop(VarInt::from_u32(0));
                "stopped"
            } else {
                match stream.read_to_end(1 << 20).await {
                    Ok(block) => {
                        let (number, rest) = block.split_first_chunk().expect("it is numbered");
                        assert!(rest == pattern(u16::from_be_bytes(*number).into(), rest.len()), "block {number:?}");
                        "whole"
                    }
                    Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) => {
                        assert_eq!(code, DROPPED);
                        "reset"
                    }
                    Err(other) => panic!("{other}"),
                }
            };
            *ends.entry(end).or_default() += 1;
        }
        ends
    });
    let mut outcomes = Vec::new();
    for n in 0..BLOCKS_SENT {
        let len = 1 + n * 7_919 % 40_000;
        let data = [&(n as u16).to_be_bytes()[..], &pattern(n, len)].concat();
        let mut block = Block::new(data).priority((n % 256) as u8);
        if n % 3 == 0 {
            block = block.deadline(Duration::from_millis(1 + n as u64 % 30));
        }
        let sent = within(ours.send(block)).await.expect("accepted");
        if n % 7 == 0 {
            // It may have ended.
            let _ = ours.cancel(sent.id());
        }
        outcomes.push(sent);
    }
    let mut delivered = 0;
    for sent in outcomes {
        delivered += usize::from(matches!(within(sent).await, Outcome::Delivered(_)));
    }
    let stats = ours.stats();
    assert_eq!(stats.blocks_sent, BLOCKS_SENT as u64);
    assert_eq!(stats.blocks_on_time + stats.blocks_late + stats.blocks_dropped, stats.blocks_sent);
    assert_eq!((stats.live_out, stats.live_out_bytes), (0, 0));
    assert!(within(ours.finish(LONG)).await.is_empty());
    let ends = within(reader).await.expect("no panic");
    let whole = ends.get("whole").copied().unwrap_or_default();
    let stopped = ends.get("stopped").copied().unwrap_or_default();
    // A block may be whole over there and its acknowledgement not yet here when it is dropped; and a stream may be stopped
    // that has arrived.
    assert!(delivered <= whole + stopped, "{delivered} delivered, {ends:?}");
}

#[tokio::test]
async fn a_server_without_a_common_protocol_is_an_error() {
    let server = quinn_server(b"something else", quinn::TransportConfig::default());
    let client = punctual_client(&server);
    let acceptor = server.endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = acceptor.accept().await {
            drop(incoming.await)
        }
    });
    let error = within(client.connect(server.address, "localhost").into_future()).await.expect_err("no protocol");
    assert!(matches!(&error, ConnectError::Refused(words) if words == "no common protocol"), "{error:?}");
}

#[tokio::test]
async fn each_stream_of_a_quinn_client_is_a_block() {
    let (_server, _client, ours, theirs) = within(reverse_pair(Config::default())).await;
    let sender = tokio::spawn(async move {
        for (n, size) in sizes().enumerate() {
            let mut stream = theirs.open_uni().await.expect("open");
            stream.write_all(&pattern(n, size)).await.expect("written");
            stream.finish().expect("open");
        }
        theirs
    });
    let mut arrived = BTreeMap::new();
    for _ in sizes() {
        let block = within(ours.recv()).await.expect("a block");
        assert_eq!(block.meta.size, block.data.len() as u64);
        assert!(arrived.insert(block.id.0, block.data).is_none());
    }
    // Streams are numbered, and so are the blocks.
    for (n, size) in sizes().enumerate() {
        assert_eq!(arrived[&(n as u64)], pattern(n, size));
    }
    assert_eq!(ours.stats().blocks_received, 64);
    drop(within(sender).await.expect("no panic"));
}

#[tokio::test]
async fn blocks_go_back_to_a_quinn_client() {
    let (_server, _client, ours, theirs) = within(reverse_pair(Config::default())).await;
    within(async {
        for (n, size) in sizes().enumerate() {
            let sent = ours.send(Block::new(pattern(n, size))).await.expect("accepted");
            let mut stream = theirs.accept_uni().await.expect("a stream");
            assert!(stream.read_to_end(1 << 20).await.expect("a whole block") == pattern(n, size));
            assert!(matches!(sent.await, Outcome::Delivered(_)));
            assert_eq!(ours.expect(punctual::BlockId(0), Delta::from_micros(1)), Err(BlockError::Fallback));
        }
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_reset_is_a_block_the_peer_dropped() {
    let (_server, _client, ours, theirs) = within(reverse_pair(Config::default())).await;
    let mut events = ours.events();
    within(async {
        let mut stream = theirs.open_uni().await.expect("open");
        stream.write_all(b"a beginning").await.expect("written");
        stream.reset(VarInt::from_u32(3)).expect("open");
        let mut stream = theirs.open_uni().await.expect("open");
        stream.write_all(b"whole").await.expect("written");
        stream.finish().expect("open");
        loop {
            match events.next().await.expect("an event") {
                SessionEvent::PeerDropped { id, received_bytes, .. } => {
                    assert_eq!(id.0, 0);
                    assert!(received_bytes <= 11);
                    break;
                }
                _ => continue,
            }
        }
        assert_eq!(ours.recv().await.expect("a block").data, "whole");
    })
    .await;
    assert_eq!(ours.stats().blocks_peer_dropped, 1);
}

#[tokio::test]
async fn a_stream_larger_than_a_block_may_be_is_stopped() {
    let limits = Limits::default().max_block_size(10_000);
    let mut config = Config::default();
    config.session.limits = limits;
    let (_server, _client, ours, theirs) = within(reverse_pair(config)).await;
    within(async {
        let mut stream = theirs.open_uni().await.expect("open");
        // It may be stopped before all is written.
        let _ = stream.write_all(&pattern(0, 10_001)).await;
        assert_eq!(stream.stopped().await.expect("connected"), Some(DROPPED));
        let mut stream = theirs.open_uni().await.expect("open");
        stream.write_all(&pattern(1, 10_000)).await.expect("written");
        stream.finish().expect("open");
        assert!(ours.recv().await.expect("a block").data == pattern(1, 10_000));
    })
    .await;
}

/// Room for two and a half blocks of 100 KB.
fn little_room() -> Config {
    let mut config = Config::default();
    config.session.limits = Limits::default().max_block_size(128_000).receive_bytes(256_000);
    config
}

/// What may be held beyond the limit: the rest of what was read at once.
const MARGIN: u64 = 64 << 10;

#[tokio::test]
async fn whole_blocks_wait_in_the_network_while_there_is_no_room() {
    let (_server, _client, ours, theirs) = within(reverse_pair(little_room())).await;
    let sender = tokio::spawn(async move {
        for n in 0..20 {
            let mut stream = theirs.open_uni().await.expect("open");
            // One after the other, so that what takes room are whole blocks.
            stream.set_priority(-(n as i32)).expect("open");
            stream.write_all(&pattern(n, 100_000)).await.expect("written");
            stream.finish().expect("open");
        }
        theirs
    });
    // Until nothing more comes in.
    let mut held = 0;
    while held < 200_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        held = ours.stats().live_in_bytes;
    }
    for _ in 0..20 {
        let stats = ours.stats();
        assert!(stats.live_in_bytes <= 256_000 + MARGIN, "{stats:?}");
        let block = within(ours.recv()).await.expect("a block");
        assert!(block.data == pattern(block.id.0 as usize, 100_000));
    }
    let stats = ours.stats();
    assert_eq!((stats.blocks_peer_dropped, stats.live_in, stats.live_in_bytes), (0, 0, 0));
    drop(within(sender).await.expect("no panic"));
}

#[tokio::test]
async fn beginnings_of_blocks_take_no_more_room_than_there_is() {
    const STREAMS: usize = 50;
    let (_server, _client, ours, theirs) = within(reverse_pair(little_room())).await;
    let mut writers = Vec::new();
    for n in 0..STREAMS {
        let mut stream = theirs.open_uni().await.expect("open");
        writers.push(tokio::spawn(async move {
            // It may be stopped.
            let whole = stream.write_all(&pattern(n, 100_000)).await.is_ok();
            (stream, whole)
        }));
    }
    let mut streams = Vec::new();
    for writer in writers {
        streams.push(within(writer).await.expect("no panic"));
        let stats = ours.stats();
        assert!(stats.live_in_bytes <= 256_000 + MARGIN, "{stats:?}");
    }
    let mut finished = 0;
    for (mut stream, _) in streams {
        finished += u64::from(stream.finish().is_ok());
        // Its end has arrived, or it has been stopped.
        let _ = within(stream.stopped()).await;
    }
    // What was not stopped is whole.
    while ours.stats().live_in > 0 {
        let block = within(ours.recv()).await.expect("a block");
        assert!(block.data == pattern(block.id.0 as usize, 100_000));
    }
    let stats = ours.stats();
    assert_eq!(stats.blocks_received + stats.blocks_peer_dropped, STREAMS as u64);
    assert!((2..=finished).contains(&stats.blocks_received), "{stats:?}, {finished} finished");
}

#[tokio::test]
async fn a_stream_without_bytes_is_no_block() {
    let (_server, _client, ours, theirs) = within(reverse_pair(Config::default())).await;
    for bytes in [&b""[..], b"one", b"", b"two"] {
        let mut stream = within(theirs.open_uni()).await.expect("there is credit for streams");
        stream.write_all(bytes).await.expect("open");
        stream.finish().expect("open");
        // The next one comes later than this.
        within(stream.stopped()).await.expect("all of it was acknowledged");
    }
    for bytes in [b"one", b"two"] {
        assert_eq!(&within(ours.recv()).await.expect("open").data[..], bytes);
    }
}
