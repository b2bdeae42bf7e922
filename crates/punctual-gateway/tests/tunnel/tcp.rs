//! Connections through two gateways.

use std::{net::SocketAddr, time::Duration};

use punctual_gateway::tunnel::{Config, Limits, Protocol, Tunnel};

use super::pair::{PATIENCE, Server, ask, config, echo as datagram_echo, program};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::{TcpListener, TcpStream},
};

/// A program that says what it is told, until whoever tells it has finished.
pub(crate) async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
    address
}

/// Reads to the end, or to what went wrong.
async fn rest(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("an end")?;
    Ok(all)
}

/// What nobody writes by mistake.
pub(crate) fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_bytes_arrive_in_order_and_each_direction_has_its_own_end() {
    let server = Server::start(config(&[], &[&format!("echo=tcp:{}", echo().await)])).await;
    let client = server.client(config(&["tcp:127.0.0.1:0=echo"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    // More than any window, so that credit must be granted.
    let sent = pattern(12 << 20);
    let mut stream = client.connected("echo").await;
    let (mut reader, mut writer) = stream.split();
    let mut came = Vec::new();
    let both = async {
        tokio::join!(
            async {
                writer.write_all(&sent).await.expect("written");
                writer.shutdown().await.expect("half of it ends");
            },
            async { reader.read_to_end(&mut came).await.expect("an orderly end") }
        )
    };
    tokio::time::timeout(PATIENCE, both).await.expect("an end");
    assert!(came == sent, "{} bytes of {}", came.len(), sent.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_read_holds_up_its_own_connection_only() {
    // One that accepts and reads nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let deaf = listener.local_addr().expect("it is bound");
    let forwards = [format!("deaf=tcp:{deaf}"), format!("echo=tcp:{}", echo().await)];
    let server = Server::start(config(&[], &[&forwards[0], &forwards[1]])).await;
    let client = server.client(config(&["tcp:127.0.0.1:0=deaf", "tcp:127.0.0.1:0=echo"], &[])).await;
    let (session, _called) = client.call(&server).await;

    let mut stuck = client.connected("deaf").await;
    let (_kept, _) = listener.accept().await.expect("it is forwarded");
    let block = pattern(1 << 20);
    let mut written = 0;
    // Until nothing more is taken: sockets' buffers and windows are full.
    while let Ok(taken) = tokio::time::timeout(Duration::from_millis(500), stuck.write(&block)).await {
        written += taken.expect("it lasts");
        assert!(written < 256 << 20, "somebody keeps it all");
    }
    assert!(session.stats().live_out_bytes < 16 << 20, "{} bytes are held", session.stats().live_out_bytes);

    let mut stream = client.connected("echo").await;
    stream.write_all(b"still there?").await.expect("written");
    stream.shutdown().await.expect("half of it ends");
    assert_eq!(rest(&mut stream).await.expect("an orderly end"), b"still there?");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_reached_is_a_connection_that_is_reset() {
    // A port that was just free.
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("it is bound");
    let server = Server::start(config(&[], &[&format!("gone=tcp:{nobody}")])).await;
    let client = server.client(config(&["tcp:127.0.0.1:0=gone", "tcp:127.0.0.1:0=never"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    client.until_carried(Protocol::Tcp, "gone").await;
    // The far side does not forward the other one at all.
    for name in ["gone", "never"] {
        // The reset may be there before the connection is known to be.
        let ended = match TcpStream::connect(client.port(name).await).await {
            Ok(mut stream) => rest(&mut stream).await,
            Err(error) => Err(error),
        };
        let error = ended.expect_err("an end in peace would be a lie");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_lost_resets_its_connections_and_the_next_carries_new_ones() {
    let server = Server::start(config(&[], &[&format!("echo=tcp:{}", echo().await)])).await;
    let client = server.client(config(&["tcp:127.0.0.1:0=echo"], &[])).await;
    let (session, called) = client.call(&server).await;
    let mut stream = client.connected("echo").await;
    stream.write_all(b"half of it").await.expect("written");
    let mut half = [0; 10];
    stream.read_exact(&mut half).await.expect("an answer");
    session.close(1, "it breaks here");
    called.await.expect("it does not panic");
    assert!(rest(&mut stream).await.is_err(), "an end in peace would be a lie");

    let (_session, _called) = client.call(&server).await;
    let mut stream = client.connected("echo").await;
    stream.write_all(b"again").await.expect("written");
    stream.shutdown().await.expect("half of it ends");
    assert_eq!(rest(&mut stream).await.expect("an orderly end"), b"again");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_pass_beside_a_connection_that_takes_all_the_rate() {
    let forwards = [format!("echo=tcp:{}", echo().await), format!("game=udp:{},deadline=none", datagram_echo().await)];
    let server = Server::start(config(&[], &[&forwards[0], &forwards[1]])).await;
    let here = config(&["tcp:127.0.0.1:0=echo", "udp:127.0.0.1:0=game,deadline=none"], &[]);
    let limits = Limits { rate: 200_000, ..Limits::default() };
    let client = server.client(Config { limits, ..here }).await;
    let (_session, _called) = client.call(&server).await;
    let (mut reader, mut writer) = client.connected("echo").await.into_split();
    let writing = tokio::spawn(async move { while writer.write_all(&[7; 65_536]).await.is_ok() {} });
    // More than was saved up: from here on the rate is what there is.
    let mut saved_up = vec![0; 250_000];
    tokio::time::timeout(PATIENCE, reader.read_exact(&mut saved_up)).await.expect("in time").expect("an echo");
    let program = program(client.port("game").await).await;
    for number in 0..100_u8 {
        assert!(!ask(&program, &[number]).await.is_empty());
    }
    assert!(!writing.is_finished(), "the connection has always more to say");
    let metrics = client.tunnel.metrics();
    assert!(!metrics.contains("refused_datagrams_total{reason=\"rate\"}"), "{metrics}");
}

/// A gateway's flows, as its metrics have them.
fn flows(tunnel: &Tunnel) -> Option<usize> {
    let metrics = tunnel.metrics();
    let line = metrics.lines().find(|line| line.starts_with("punctual_tunnel_flows{"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Waits until a gateway has so many flows.
async fn until_flows(tunnel: &Tunnel, number: usize) {
    let there = async {
        while flows(tunnel) != Some(number) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.expect("as many flows");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_breaks_off_is_noticed_while_the_other_does_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = listener.local_addr().expect("it is bound");
    let server = Server::start(config(&[], &[&format!("deaf=tcp:{to}")])).await;
    let client = server.client(config(&["tcp:127.0.0.1:0=deaf"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    // One has said that it is done, of the other nothing more can be taken: in neither case is the socket read from.
    for done in [true, false] {
        let mut stream = client.connected("deaf").await;
        let (mut kept, _) = listener.accept().await.expect("it is forwarded");
        if done {
            stream.shutdown().await.expect("half of it ends");
            assert_eq!(rest(&mut kept).await.expect("an orderly end"), b"");
        } else {
            let block = pattern(1 << 20);
            while let Ok(taken) = tokio::time::timeout(Duration::from_millis(500), stream.write(&block)).await {
                taken.expect("it lasts");
            }
        }
        until_flows(&server.tunnel, 1).await;
        stream.set_zero_linger().expect("it can be reset");
        drop(stream);
        for tunnel in [&client.tunnel, &server.tunnel] {
            until_flows(tunnel, 0).await;
        }
        // What was on its way before may still be read, and so may the end, if it was said.
        tokio::time::timeout(PATIENCE, kept.ready(Interest::ERROR)).await.expect("in time").expect("a reset");
    }
}

/// Whether the host asks now and then if the other end of a connection is there: the kind of timer in `/proc/net/tcp` is 2 then.
#[cfg(target_os = "linux")]
fn is_asked(from: SocketAddr, to: SocketAddr) -> bool {
    let hex = |address: SocketAddr| match address.ip() {
        std::net::IpAddr::V4(ip) => format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port()),
        std::net::IpAddr::V6(_) => unreachable!("the test has none"),
    };
    let all = std::fs::read_to_string("/proc/net/tcp").expect("a list");
    all.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        matches!(&fields[..], [_, local, remote, _, _, timer, ..] if *local == hex(from) && *remote == hex(to) && timer.starts_with("02:"))
    })
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn programs_of_both_sides_are_asked_whether_they_are_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = listener.local_addr().expect("it is bound");
    let server = Server::start(config(&[], &[&format!("quiet=tcp:{to}")])).await;
    let client = server.client(config(&["tcp:127.0.0.1:0=quiet"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let stream = client.connected("quiet").await;
    let (_kept, gateway) = listener.accept().await.expect("it is forwarded");
    let (program, listening) = (stream.local_addr().expect("an address"), stream.peer_addr().expect("an address"));
    let asked = async {
        while !is_asked(listening, program) || !is_asked(gateway, to) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("both are asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_addresses_of_either_version_can_be_listened_at_by_one_port() {
    let four = Tunnel::start(config(&["tcp:0.0.0.0:0=web", "udp:0.0.0.0:0=game"], &[])).await.expect("a tunnel");
    let ports = four.ports().await;
    let six: Vec<_> =
        ports.iter().map(|(protocol, at, name)| format!("{protocol}:[::]:{}={name}", at.port())).collect();
    let six: Vec<_> = six.iter().map(|port| &port[..]).collect();
    let six = Tunnel::start(config(&six, &[])).await.expect("there is room for both");
    assert_eq!(six.ports().await.len(), 2);
}
