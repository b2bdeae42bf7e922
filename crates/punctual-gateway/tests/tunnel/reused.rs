//! What was another flow's before: channels, and numbers.

use std::{net::SocketAddr, time::Duration};

use punctual_gateway::tunnel::{Config, Limits, Tunnel};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UdpSocket,
};

use super::{
    pair::{PATIENCE, Server, ask, config, echo, program},
    tcp,
};

const IDLE: Duration = Duration::from_millis(200);

fn brief(config: Config) -> Config {
    Config { limits: Limits { idle: IDLE, ..Limits::default() }, ..config }
}

/// Waits until a gateway has no flow any more.
pub(crate) async fn until_no_flows(tunnel: &Tunnel) {
    let ended = async {
        while tunnel.metrics().lines().any(|line| line.starts_with("punctual_tunnel_flows{") && !line.ends_with("} 0"))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("no more flows");
}

/// A program that answers with its own name.
async fn named(name: &'static [u8]) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 100]).await {
            let _ = socket.send_to(name, from).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_not_held_back_where_datagrams_were() {
    let forwards =
        [format!("late=udp:{},latency=5s,deadline=5s", echo().await), format!("web=tcp:{}", tcp::echo().await)];
    let server = Server::start(brief(config(&[], &[&forwards[0], &forwards[1]]))).await;
    let listens = ["udp:127.0.0.1:0=late,latency=5s,deadline=5s", "tcp:127.0.0.1:0=web"];
    let client = server.client(brief(config(&listens, &[]))).await;
    let (session, _called) = client.call(&server).await;
    client.until_carried(punctual_gateway::tunnel::Protocol::Udp, "late").await;
    program(client.port("late").await).await.send(b"one").await.expect("sent");
    tokio::time::sleep(IDLE * 2).await;
    until_no_flows(&client.tunnel).await;
    // It takes the channel that has been given back.
    let mut stream = client.connected("web").await;
    stream.write_all(b"at once").await.expect("written");
    let mut answer = [0; 7];
    let answered = tokio::time::timeout(Duration::from_secs(3), stream.read_exact(&mut answer)).await;
    assert!(answered.is_ok_and(|answered| answered.is_ok()), "it waits for what it is not");
    assert!(session.close_reason().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_no_other_flow_s_though_the_far_side_knows_it_longer() {
    let forwards = [format!("a=udp:{}", named(b"a").await), format!("b=udp:{}", named(b"b").await)];
    let forward = format!("web=tcp:{}", tcp::echo().await);
    let server = Server::start(config(&[], &[&forwards[0], &forwards[1], &forward])).await;
    let listens = ["udp:127.0.0.1:0=a", "udp:127.0.0.1:0=b", "tcp:127.0.0.1:0=web"];
    let client = server.client(brief(config(&listens, &[]))).await;
    let (session, called) = client.call(&server).await;
    assert_eq!(ask(&program(client.port("a").await).await, b"who?").await, b"a");
    until_no_flows(&client.tunnel).await;
    // With nothing left, it forgets the far gateway, too.
    session.close(1, "it breaks here");
    called.await.expect("it does not panic");
    let (session, _called) = client.call(&server).await;
    let mut stream = client.connected("web").await;
    stream.write_all(b"!").await.expect("written");
    stream.read_exact(&mut [0]).await.expect("an answer");
    assert_eq!(ask(&program(client.port("b").await).await, b"and who are you?").await, b"b");
    assert!(session.close_reason().is_none());
}
