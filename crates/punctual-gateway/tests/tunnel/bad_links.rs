//! Links that lose packets, and one that goes dark for good.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use punctual::{Redundancy, Route};
use punctual_gateway::{class::ClassSettings, tunnel::Config};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UdpSocket,
};

use super::{
    pair::{PATIENCE, Server, config, endpoint_config, program},
    tcp,
};

/// A link to a server that loses every so many of its packets, each way, until it goes dark.
struct Link {
    entrance: SocketAddr,
    dark: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl Link {
    async fn to(server: SocketAddr, loses_every: u64) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
        let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
        back.connect(server).await.expect("an address");
        let entrance = front.local_addr().expect("it is bound");
        let (dark, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let passes = {
            let (dark, lost, seen) = (dark.clone(), lost.clone(), AtomicU64::new(0));
            Arc::new(move || {
                let passes = !dark.load(Ordering::Relaxed)
                    && !(seen.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(loses_every);
                lost.fetch_add(u64::from(!passes), Ordering::Relaxed);
                passes
            })
        };
        let (client, heard) = tokio::sync::watch::channel(None);
        let (there, here, pass) = (back.clone(), front.clone(), passes.clone());
        tokio::spawn(async move {
            let mut space = vec![0; 65_536];
            while let Ok((size, from)) = here.recv_from(&mut space).await {
                client.send_replace(Some(from));
                if pass() {
                    let _ = there.send(&space[..size]).await;
                }
            }
        });
        tokio::spawn(async move {
            let mut space = vec![0; 65_536];
            while let Ok(size) = back.recv(&mut space).await {
                let to = *heard.borrow();
                if let Some(to) = to.filter(|_| passes()) {
                    let _ = front.send_to(&space[..size], to).await;
                }
            }
        });
        Self { entrance, dark, lost }
    }
}

/// A datagram of a transport stream: seven packets of one stream, which say their number.
fn transport_stream(number: u32) -> Vec<u8> {
    let packet = [&[0x47, 0x01, 0x00, 0x10][..], &number.to_be_bytes(), &[0xff; 180]].concat();
    packet.repeat(7)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_comes_whole_and_in_order_over_links_that_lose_and_die() {
    let player = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let _ = socket2::SockRef::from(&player).set_recv_buffer_size(4 << 20);
    let to = player.local_addr().expect("it is bound");
    let server = Server::start(config(&[], &[&format!("camera=udp:{to}")])).await;
    let links = [Link::to(server.address, 10).await, Link::to(server.address, 20).await];
    // Without a deadline, nothing may be missing, however busy the host is.
    let client = server.client(config(&["udp:127.0.0.1:0=camera,format=mpegts,deadline=none"], &[])).await;
    let from = ["127.0.0.2", "127.0.0.3"].map(|local| local.parse().expect("an address"));
    let [one, other] = from;
    let routes = [Route::new(one, links[0].entrance), Route::new(other, links[1].entrance)];
    let _called = client.call_over(routes).await;
    client.until_carried(punctual_gateway::tunnel::Protocol::Udp, "camera").await;
    let camera = program(client.port("camera").await).await;
    const DATAGRAMS: u32 = 600;
    let sending = tokio::spawn({
        let dark = links[0].dark.clone();
        async move {
            for number in 0..DATAGRAMS {
                camera.send(&transport_stream(number)).await.expect("sent");
                tokio::time::sleep(Duration::from_millis(1)).await;
                if number == DATAGRAMS / 2 {
                    dark.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    let mut space = vec![0; 2_000];
    for number in 0..DATAGRAMS {
        let size =
            tokio::time::timeout(PATIENCE, player.recv(&mut space)).await.expect("all of it").expect("a datagram");
        assert!(space[..size] == transport_stream(number), "{number} is another, or is missing");
    }
    sending.await.expect("it does not panic");
    assert!(links.iter().all(|link| link.lost.load(Ordering::Relaxed) > 0), "both links were bad");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_bytes_of_a_connection_arrive_though_settings_would_leave_out_what_is_lost() {
    for (of_session, of_class) in
        [(Redundancy::None, None), (Redundancy::Fec, None), (Redundancy::Auto, Some(Redundancy::None))]
    {
        let lossy = |port: Config| {
            let class = ClassSettings { redundancy: of_class, ..ClassSettings::default() };
            Config { classes: [("lossy".to_owned(), class)].into(), ..port }
        };
        let mut endpoint = endpoint_config();
        endpoint.session.redundancy = of_session;
        let forward = format!("echo=tcp:{},class=lossy", tcp::echo().await);
        let server = Server::with(lossy(config(&[], &[&forward])), None, endpoint.clone()).await;
        let links = [Link::to(server.address, 20).await, Link::to(server.address, 20).await];
        let mut client = server.client(lossy(config(&["tcp:127.0.0.1:0=echo,class=lossy"], &[]))).await;
        client.endpoint =
            punctual::Endpoint::client().trust(server.fingerprint).config(endpoint).build().expect("a client");
        let [one, other] = ["127.0.0.2", "127.0.0.3"].map(|local| local.parse().expect("an address"));
        let _called =
            client.call_over([Route::new(one, links[0].entrance), Route::new(other, links[1].entrance)]).await;
        let sent = tcp::pattern(1 << 20);
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
}
