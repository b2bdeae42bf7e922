//! Datagrams through two gateways.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use punctual_gateway::{
    class::{Dscp, Rule},
    tunnel::Config,
};

use tokio::net::UdpSocket;

use super::pair::{PATIENCE, Server, ask, config, echo, program};

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_go_through_and_answers_find_their_way_back() {
    let server = Server::start(config(&[], &[&format!("game=udp:{}", echo().await)])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=game"], &[])).await;
    let (session, _called) = client.call(&server).await;
    let programs = [program(client.port("game").await).await, program(client.port("game").await).await];
    for n in 0..10 {
        for (which, program) in programs.iter().enumerate() {
            let words = format!("{which}: {n}");
            assert_eq!(ask(program, words.as_bytes()).await, words.as_bytes());
        }
    }
    let [first, second] = session.path_stats()[..] else { panic!("two paths") };
    // What has gone over a path is told when it is no more.
    let counted = |text: &str, path: &str| {
        let of = format!("path=\"{path}\"}} ");
        let mut lines = text.lines().filter(|line| line.starts_with("punctual_tunnel_path_sent_bytes_total"));
        lines.find_map(|line| line.split_once(&of)?.1.parse::<u64>().ok())
    };
    let before = client.tunnel.metrics();
    assert_eq!(counted(&before, "closed"), None, "{before}");
    let carried = counted(&before, &second.id.0.to_string()).expect("it is open");
    session.close_path(second.id).expect("it is not the last");
    while session.path_stats().len() > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let after = client.tunnel.metrics();
    assert!(counted(&after, "closed") >= Some(carried), "{after}");
    assert_eq!(counted(&after, &second.id.0.to_string()), None, "{after}");
    assert!(counted(&after, &first.id.0.to_string()).is_some(), "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_of_any_size_survive() {
    let server = Server::start(config(&[], &[&format!("any=udp:{}", echo().await)])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=any"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let port = client.port("any").await;
    for size in [1, 0, 1_200, 1_316, 9_000, 65_507] {
        // One of its own: on a busy host what was asked twice is answered twice.
        let program = program(port).await;
        let datagram: Vec<u8> = (0..size).map(|n| n as u8).collect();
        assert_eq!(ask(&program, &datagram).await, datagram, "{size} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_datagram_to_a_program_that_has_just_begun_reaches_it() {
    let place = UdpSocket::bind("127.0.0.1:0").await.expect("a socket").local_addr().expect("it is bound");
    let server = Server::start(config(&[], &[&format!("any=udp:{place}")])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=any"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let program = program(client.port("any").await).await;
    for n in 0..5_u8 {
        // Nobody is there.
        program.send(&[n, 0]).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let there = UdpSocket::bind(place).await.expect("nobody else is there");
        program.send(&[n, 1]).await.expect("sent");
        let mut space = [0; 16];
        let came = tokio::time::timeout(PATIENCE, there.recv(&mut space)).await.expect("it comes");
        assert_eq!(space[..came.expect("received")], [n, 1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_listens_too() {
    let server = Server::start(config(&["udp:127.0.0.1:0=sensor"], &[])).await;
    let client = server.client(config(&[], &[&format!("sensor=udp:{}", echo().await)])).await;
    let (_session, _called) = client.call(&server).await;
    let program = program(super::pair::port(&server.tunnel, "sensor").await).await;
    assert_eq!(ask(&program, b"how warm?").await, b"how warm?");
}

/// Programs that connect their sockets take no answer from elsewhere.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn answers_come_from_the_address_that_was_asked() {
    let server = Server::start(config(&[], &[&format!("any=udp:{}", echo().await)])).await;
    let client = server.client(config(&["udp:0.0.0.0:0=any", "udp:[::]:0=any"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    for (_, at, _) in client.tunnel.ports().await {
        let of = |local: &str| SocketAddr::new(local.parse().expect("an address"), at.port());
        let asked = if at.is_ipv4() { vec![of("127.0.0.2"), of("127.0.0.3")] } else { vec![of("::1")] };
        let here = if at.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        // By one socket, too.
        let both = UdpSocket::bind(here).await.expect("a socket");
        for asked in asked {
            let program = UdpSocket::bind(here).await.expect("a socket");
            program.connect(asked).await.expect("an address");
            assert_eq!(ask(&program, b"who?").await, b"who?", "{asked}");
            both.connect(asked).await.expect("an address");
            let words = asked.to_string();
            // What was asked twice before is answered twice.
            while ask(&both, words.as_bytes()).await != words.as_bytes() {}
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn marks_of_programs_say_the_class() {
    let class = |text: &str| (text.to_owned(), Default::default());
    let rules = vec![Rule { class: "marked".into(), dscp: Some(Dscp(46)), ..Rule::default() }];
    let here = Config { classes: [class("marked")].into(), rules, ..config(&["udp:127.0.0.1:0=any"], &[]) };
    let server = Server::start(config(&[], &[&format!("any=udp:{}", echo().await)])).await;
    let client = server.client(here).await;
    let (_session, _called) = client.call(&server).await;
    let program = program(client.port("any").await).await;
    socket2::SockRef::from(&program).set_tos_v4(46 << 2).expect("it can be marked");
    ask(&program, b"urgent").await;
    assert!(client.tunnel.metrics().contains("punctual_tunnel_sent_bytes_total{class=\"marked\"}"));
    assert!(!client.tunnel.metrics().contains("class=\"any\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_a_latency_is_held_back_on_the_far_side_as_long_as_it_says() {
    let server = Server::start(config(&[], &[&format!("film=udp:{}", echo().await)])).await;
    let client = server.client(config(&["udp:127.0.0.1:0=film,deadline=200ms,latency=400ms"], &[])).await;
    let (_session, _called) = client.call(&server).await;
    let program = program(client.port("film").await).await;
    let mut space = [0; 16];
    let mut answer = async || {
        let size = tokio::time::timeout(Duration::from_secs(10), program.recv(&mut space)).await;
        space[..size.expect("in time").expect("a datagram")].to_vec()
    };
    ask(&program, b"first").await;
    // The first words make the flow known. They, and what is said before the far side has heard of the latency, come as soon as they can; what is said after is held back.
    for word in 0..100_u8 {
        let began = Instant::now();
        program.send(&[word]).await.expect("sent");
        // Of the first, said more than once, answers may still be on their way.
        while answer().await != [word] {}
        if began.elapsed() > Duration::from_millis(300) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing is held back");
}
