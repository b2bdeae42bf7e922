//! What lasts, and what ends: sessions that are lost, flows that fall silent, settings that are read again.

use std::time::Duration;

use punctual_gateway::tunnel::{Config, Limits, Protocol};
use tokio::net::{TcpListener, UdpSocket};

use super::{
    hostile::flood,
    pair::{PATIENCE, Server, ask, config, echo, program},
    reused::until_no_flows,
};

/// Who answers with the address that it sees.
async fn mirror() -> std::net::SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("it is bound");
    tokio::spawn(async move {
        let mut space = [0; 100];
        while let Ok((_, from)) = socket.recv_from(&mut space).await {
            let _ = socket.send_to(from.to_string().as_bytes(), from).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_outlive_the_session_and_the_far_program_sees_the_same_address() {
    let server = Server::start(config(&[], &[&format!("game=udp:{}", mirror().await)])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=game"], &[])).await;
    let (session, called) = client.call(&server).await;
    let program = program(client.port("game").await).await;
    let before = ask(&program, b"who am I?").await;
    session.close(1, "it breaks here");
    called.await.expect("it does not panic");
    let (_session, _called) = client.call(&server).await;
    assert_eq!(ask(&program, b"and now?").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_end_by_silence_at_either_side_and_begin_again() {
    let idle = Duration::from_millis(200);
    let short = |config| Config { limits: Limits { idle, ..Limits::default() }, ..config };
    for server_ends_first in [true, false] {
        let (here, there) =
            (config(&["udp:127.0.0.1:0=game"], &[]), config(&[], &[&format!("game=udp:{}", mirror().await)]));
        let (here, there) = if server_ends_first { (here, short(there)) } else { (short(here), there) };
        let server = Server::start(there).await;
        let client = server.client(here).await;
        let (_session, _called) = client.call(&server).await;
        let program = program(client.port("game").await).await;
        let before = ask(&program, b"who am I?").await;
        let shorter = if server_ends_first { &server.tunnel } else { &client.tunnel };
        let ended = async {
            while shorter.metrics().contains("punctual_tunnel_flows{gateway=")
                && !shorter
                    .metrics()
                    .lines()
                    .any(|line| line.starts_with("punctual_tunnel_flows{") && line.ends_with("} 0"))
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("an end by silence");
        assert_ne!(ask(&program, b"and now?").await, before, "another flow, from another socket");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_read_again_while_everything_goes_on() {
    let (one, other) = (echo().await, echo().await);
    let server = Server::start(config(&[], &[&format!("one=udp:{one}")])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=one"], &[])).await;
    let (session, _called) = client.call(&server).await;
    let program_of_one = program(client.port("one").await).await;
    ask(&program_of_one, b"before").await;

    let forwards = [format!("one=udp:{one}"), format!("other=udp:{other}")];
    server.tunnel.reload(config(&[], &[&forwards[0], &forwards[1]])).await.expect("it makes sense");
    let port_of_one = client.port("one").await;
    let listens = ["udp:127.0.0.1:0=one", "udp:127.0.0.1:0=other"];
    client.tunnel.reload(config(&listens, &[])).await.expect("it makes sense");
    assert_eq!(client.port("one").await, port_of_one, "what stays is not touched");
    client.until_carried(Protocol::Udp, "other").await;
    let program_of_other = program(client.port("other").await).await;
    assert_eq!(ask(&program_of_other, b"new").await, b"new");
    assert_eq!(ask(&program_of_one, b"after").await, b"after");

    // What is forwarded no longer is reached no longer.
    server.tunnel.reload(config(&[], &[&forwards[1]])).await.expect("it makes sense");
    let gone = async {
        let mut space = [0; 100];
        loop {
            program_of_one.send(b"anybody?").await.expect("sent");
            if tokio::time::timeout(Duration::from_millis(300), program_of_one.recv(&mut space)).await.is_err() {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("no more answers");
    assert_eq!(ask(&program_of_other, b"still").await, b"still");
    assert!(session.close_reason().is_none());
    assert!(client.tunnel.reload(config(&[], &[])).await.is_err(), "it makes no sense");
    assert_eq!(ask(&program_of_other, b"unharmed").await, b"unharmed");
}

/// Says something new until that is answered: what was said twice before is answered twice.
async fn still_carries(program: &UdpSocket, what: &str) {
    while ask(program, what.as_bytes()).await != what.as_bytes() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_cannot_be_listened_at_leaves_everything_as_it_was() {
    let server = Server::start(config(&[], &[&format!("game=udp:{}", echo().await)])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=game", "tcp:127.0.0.1:0=web"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let before = client.tunnel.ports().await;
    let port = client.port("game").await;
    let program = program(port).await;
    ask(&program, b"before").await;
    let taken = UdpSocket::bind("127.0.0.1:0").await.expect("a socket").into_std().expect("a socket");
    let taken_for_tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    // Where the port has to be closed before another can be opened: at any address, of which one is taken.
    let _beside = UdpSocket::bind(("127.0.0.2", port.port())).await;
    let moved = format!("udp:{}=game", taken.local_addr().expect("it is bound"));
    let moved_for_tcp = format!("tcp:{}=web", taken_for_tcp.local_addr().expect("it is bound"));
    let widened = format!("udp:0.0.0.0:{}=game", port.port());
    for listens in [
        &["udp:127.0.0.1:0=more", &moved, "tcp:127.0.0.1:0=web"][..],
        &[&moved_for_tcp, "udp:127.0.0.1:0=more"],
        &[&widened, "udp:127.0.0.1:0=more"],
    ] {
        let error = client.tunnel.reload(config(listens, &[])).await.expect_err("a port that is taken");
        assert!(error.to_string().contains("cannot listen at"), "{error}");
        assert_eq!(client.tunnel.ports().await, before, "{listens:?}");
        still_carries(&program, &listens.concat()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_can_have_another_name_or_more_addresses() {
    let server = Server::start(config(&[], &[&format!("game=udp:{}", echo().await)])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=none", "tcp:127.0.0.1:0=none"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let [udp, tcp] = client.tunnel.ports().await.try_into().expect("two ports");
    // The same addresses lead elsewhere.
    let renamed = [format!("udp:{}=game", udp.1), format!("tcp:{}=web", tcp.1)];
    client.tunnel.reload(config(&[&renamed[0], &renamed[1]], &[])).await.expect("both are ours");
    let program_of_it = program(udp.1).await;
    assert_eq!(ask(&program_of_it, b"renamed").await, b"renamed");
    assert_eq!(client.port("web").await, tcp.1);
    for address in ["0.0.0.0", "127.0.0.1"] {
        let listens = [format!("udp:{address}:{}=game", udp.1.port()), format!("tcp:{address}:{}=web", tcp.1.port())];
        client.tunnel.reload(config(&[&listens[0], &listens[1]], &[])).await.expect("both are ours");
        still_carries(&program_of_it, address).await;
        assert_eq!(client.port("web").await.to_string(), format!("{address}:{}", tcp.1.port()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_carried_is_counted_by_its_class() {
    let server = Server::start(config(&[], &[&format!("game=udp:{}", echo().await)])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=game,deadline=10s"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let program = program(client.port("game").await).await;
    ask(&program, b"0123456789").await;
    let counted = async {
        while !client.tunnel.metrics().contains("punctual_tunnel_datagrams_total{class=\"game\",outcome=\"on_time\"}") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("its end is heard of");
    let text = client.tunnel.metrics();
    for part in ["punctual_tunnel_path_rtt_seconds{gateway=\"", "punctual_tunnel_path_health{gateway=\"", "path=\"1\""]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_never_falls_silent_holds_no_room_for_who_is_gone() {
    let (source, _flooding) = flood().await;
    let limits = Limits { clients: 1, idle: Duration::from_millis(200), ..Limits::default() };
    let server = Server::start(Config { limits, ..config(&[], &[&format!("flood=udp:{source}")]) }).await;
    for _ in 0..2 {
        // Each is another program to the server.
        let client = server.client(config(&["udp:127.0.0.1:0=flood"], &[])).await;
        let carried = async {
            loop {
                let (session, mut called) = client.call(&server).await;
                let carried = client.until_carried(Protocol::Udp, "flood");
                tokio::select! {
                    () = carried => break (session, called),
                    // There is one still.
                    _ = &mut called => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        let _called = tokio::time::timeout(PATIENCE / 4, carried).await.expect("it is let in");
        let program = program(client.port("flood").await).await;
        program.send(b"begin").await.expect("sent");
        let _ = tokio::time::timeout(Duration::from_secs(1), program.recv(&mut [0; 100])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_of_a_port_that_is_not_there_any_more_end_at_both_sides() {
    let (source, _flooding) = flood().await;
    let forwards = [format!("flood=udp:{source}"), format!("game=udp:{}", echo().await)];
    let server = Server::start(config(&[], &[&forwards[0], &forwards[1]])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=flood", "udp:127.0.0.1:0=game"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let program = program(client.port("flood").await).await;
    ask(&program, b"begin").await;
    client.tunnel.reload(config(&["udp:127.0.0.1:0=game"], &[])).await.expect("it makes sense");
    until_no_flows(&client.tunnel).await;
    until_no_flows(&server.tunnel).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_that_go_on_are_held_back_as_long_as_settings_say_now() {
    let server = Server::start(config(&[], &[&format!("game=udp:{}", echo().await)])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=game"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let program = program(client.port("game").await).await;
    ask(&program, b"before").await;
    // A number, so that no answer is taken for that of another question.
    let mut number = 0_u32;
    let mut took = async || {
        number += 1;
        let began = std::time::Instant::now();
        program.send(&number.to_be_bytes()).await.expect("sent");
        let mut space = [0; 100];
        let answered =
            async { while program.recv(&mut space).await.is_ok_and(|size| space[..size] != number.to_be_bytes()) {} };
        tokio::time::timeout(PATIENCE, answered).await.expect("an answer");
        began.elapsed()
    };
    for (settings, least, most) in
        [(",latency=2s,deadline=2s", 1_900, 60_000), ("", 0, 1_500), (",latency=1s,deadline=1s", 900, 60_000)]
    {
        let port = format!("udp:127.0.0.1:0=game{settings}");
        client.tunnel.reload(config(&[&port], &[])).await.expect("it makes sense");
        // What is said of a channel may be heard behind the first block.
        took().await;
        let took = took().await.as_millis();
        assert!((least..most).contains(&took), "{took} ms with `{settings}`");
    }
}
