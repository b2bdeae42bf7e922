//! Interfaces that come and go, in network namespaces made for the purpose. Linux, as root; skipped elsewhere.
//!
//! Each test runs itself again in namespaces of its own (`unshare`), for networks and mounts alike, so that nothing that it makes is seen outside or left
//! behind. Of two namespaces in there, one is the client's, the other is called `srv` and is the server's.
#![cfg(target_os = "linux")]

mod common;

use std::{
    fs::File,
    future::IntoFuture,
    net::SocketAddr,
    os::fd::AsFd,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{bind, within};
use punctual::{
    Block, Config, DownReason, Endpoint, Fingerprint, Identity, Outcome, PathStats, Route, RouteChange, RouteError,
    RouteEvents, Routes, Session, SessionEvent, multipath::PathHealth,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Set in the run inside.
const INSIDE: &str = "PUNCTUAL_TEST_NAMESPACE";
/// The server's address, behind all links.
const SERVER: &str = "10.9.0.1";

/// Runs the test inside namespaces of its own; `false` outside them, when that has been done.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--mount", "--"]).args(command).env(INSIDE, "1");
        unshare
    };
    let probe = unshare(&["ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: namespaces need root, unshare and ip");
        return false;
    }
    let program = std::env::current_exe().expect("a program");
    let mut child = unshare(&[program.to_str().expect("a path in UTF-8"), test, "--exact", "--nocapture"])
        .spawn()
        .expect("it ran before");
    // The test inside has its own, shorter limit.
    let limit = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            assert!(status.success(), "{status}");
            return false;
        }
        if Instant::now() > limit {
            child.kill().expect("our child");
            child.wait().expect("our child");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip ran before");
    assert!(status.success(), "ip {arguments}");
}

/// Two namespaces, each with its loopback; the server's address is on its.
fn two_hosts() {
    // Where `ip` keeps the names of namespaces; this hides the host's.
    let hidden = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status().expect("mount is there");
    assert!(hidden.success());
    ip("link set lo up");
    ip("netns add srv");
    ip("-n srv link set lo up");
    ip(&format!("-n srv address add {SERVER}/32 dev lo"));
}

/// Plugs `w1` or `w2` in: a link to the server with addresses 10.N.0.1 and 10.N.0.2.
fn plug(n: u8) {
    ip(&format!("link add w{n} type veth peer name w{n} netns srv"));
    ip(&format!("-n srv address add 10.{n}.0.2/24 dev w{n}"));
    ip(&format!("-n srv link set w{n} up"));
    ip(&format!("address add 10.{n}.0.1/24 dev w{n}"));
    ip(&format!("link set w{n} up"));
    lead(n);
}

/// Has a link lead to the server.
fn lead(n: u8) {
    ip(&format!("route add {SERVER} via 10.{n}.0.2 dev w{n} metric {n}"));
}

fn unplug(n: u8) {
    ip(&format!("link delete w{n}"));
}

struct Server {
    address: SocketAddr,
    fingerprint: Fingerprint,
}

/// A server in the other namespace, which reads all there is, for as long as this process lives.
fn server() -> Server {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let namespace = File::open("/run/netns/srv").expect("it was made");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let identity = Identity::self_signed(["localhost"]).expect("a valid name");
            let fingerprint = identity.fingerprint();
            let server = Endpoint::server(identity).port(4433).build().expect("a free port");
            tell.send(fingerprint).expect("a listener");
            while let Some(session) = server.accept().await {
                tokio::spawn(common::drain(session));
            }
        });
    });
    let address = SERVER.parse().expect("an address");
    Server { address: SocketAddr::new(address, 4433), fingerprint: told.recv().expect("a server") }
}

fn client(server: &Server) -> Endpoint {
    let mut config = Config::default().connect_timeout(Duration::from_secs(60));
    config.session.keep_alive = Duration::from_millis(200);
    Endpoint::client().trust(server.fingerprint).config(config).build().expect("a client")
}

async fn a_block_arrives(session: &Session) {
    let sent = session.send(Block::new(vec![7; 50_000])).await.expect("accepted");
    assert!(matches!(sent.await, Outcome::Delivered(_)));
}

/// Waits for something to happen on an interface.
async fn change(events: &mut RouteEvents, interface: &str, wanted: impl Fn(&RouteChange) -> bool) {
    loop {
        let event = events.next().await.expect("the session lives");
        println!("{event}");
        let bound = event.route.bind.to_string();
        if (event.interface.as_deref() == Some(interface) || bound == interface) && wanted(&event.change) {
            return;
        }
    }
}

fn is_up(change: &RouteChange) -> bool {
    matches!(change, RouteChange::Up { .. })
}

fn is_gone(change: &RouteChange) -> bool {
    matches!(change, RouteChange::Down { reason: DownReason::Gone, .. })
}

#[tokio::test]
async fn every_interface_that_leads_to_the_peer_is_followed() {
    if !inside("every_interface_that_leads_to_the_peer_is_followed") {
        return;
    }
    two_hosts();
    plug(1);
    // A link that leads elsewhere is left alone.
    ip("link add other type veth peer name other netns srv");
    ip("address add 10.3.0.1/24 dev other");
    ip("link set other up");
    let server = server();
    let client = client(&server);
    within(async {
        let connect = client.connect_over(Routes::auto(server.address), "localhost");
        let mut events = connect.events();
        let (session, paths) = connect.into_future().await.expect("connected");
        change(&mut events, "w1", is_up).await;
        a_block_arrives(&session).await;

        plug(2);
        change(&mut events, "w2", is_up).await;
        let interfaces = paths.list().await.into_iter().map(|state| state.interface).collect::<Vec<_>>();
        assert_eq!(interfaces, [Some("w1".to_owned()), Some("w2".to_owned())]);

        // A modem is pulled out and plugged in again: the same name, another interface. Twice.
        for _ in 0..2 {
            unplug(2);
            change(&mut events, "w2", is_gone).await;
            a_block_arrives(&session).await;
            plug(2);
            change(&mut events, "w2", is_up).await;
        }
        unplug(1);
        change(&mut events, "w1", is_gone).await;
        a_block_arrives(&session).await;
        assert_eq!(paths.list().await.len(), 1, "what leads nowhere is no route");
        // No socket is left of those that were.
        assert_eq!(
            client.locals().iter().filter(|local| matches!(local.bind, punctual::Bind::Interface(_))).count(),
            1
        );
    })
    .await;
}

#[tokio::test]
async fn a_route_that_goes_by_the_senders_address_is_found() {
    if !inside("a_route_that_goes_by_the_senders_address_is_found") {
        return;
    }
    two_hosts();
    plug(1);
    plug(2);
    // As is usual where there are two uplinks: the second one's routes are in a table of its own.
    ip(&format!("route delete {SERVER} via 10.2.0.2 dev w2"));
    if !Command::new("ip").args(["rule", "add", "from", "10.2.0.1", "lookup", "102"]).status().expect("ip").success() {
        eprintln!("skipped: the kernel has one routing table");
        return;
    }
    let server = server();
    let client = client(&server);
    within(async {
        let connect = client.connect_over(Routes::auto(server.address), "localhost");
        let mut events = connect.events();
        let (session, paths) = connect.into_future().await.expect("connected");
        change(&mut events, "w1", is_up).await;
        ip(&format!("route add {SERVER} via 10.2.0.2 dev w2 table 102"));
        change(&mut events, "w2", is_up).await;
        let binds = paths.list().await.into_iter().map(|state| state.route.bind).collect::<Vec<_>>();
        assert_eq!(binds, [bind("w1"), bind("10.2.0.1")]);
        unplug(2);
        change(&mut events, "w2", is_gone).await;
        a_block_arrives(&session).await;
    })
    .await;
}

#[tokio::test]
async fn a_session_outlives_all_its_interfaces() {
    if !inside("a_session_outlives_all_its_interfaces") {
        return;
    }
    two_hosts();
    plug(1);
    let server = server();
    let client = client(&server);
    within(async {
        // The second is not there yet.
        let routes = ["w1", "w2"].map(|name| Route::new(bind(name), server.address));
        let connect = client.connect_over(routes, "localhost");
        let mut events = connect.events();
        let (session, _paths) = connect.into_future().await.expect("connected");
        let mut of_session = session.events();
        change(&mut events, "w1", is_up).await;
        // The server has granted ids for other paths by the time a block has arrived.
        a_block_arrives(&session).await;
        unplug(1);
        change(&mut events, "w1", is_gone).await;
        while of_session.next().await.expect("it lives") != SessionEvent::Stranded {}
        session.stranded(Duration::from_millis(100)).await;
        let sent = session.send(Block::new("patience")).await.expect("accepted");
        plug(2);
        change(&mut events, "w2", is_up).await;
        assert!(matches!(sent.await, Outcome::Delivered(_)));
        while of_session.next().await.expect("it lives") != SessionEvent::Resumed {}
        plug(1);
        change(&mut events, "w1", is_up).await;
        a_block_arrives(&session).await;
    })
    .await;
}

#[tokio::test]
async fn an_interface_that_was_down_is_tried_when_it_is_up() {
    if !inside("an_interface_that_was_down_is_tried_when_it_is_up") {
        return;
    }
    two_hosts();
    let server = server();
    let client = client(&server);
    within(async {
        // Nothing is there when the session is to begin.
        let routes = ["w1", "w2"].map(|name| Route::new(bind(name), server.address));
        let connect = client.connect_over(routes, "localhost");
        let mut events = connect.events();
        let plugged = async {
            let missing =
                |change: &RouteChange| matches!(change, RouteChange::Failed { reason: RouteError::NoInterface, .. });
            change(&mut events, "w1", missing).await;
            plug(1);
        };
        let (connected, ()) = tokio::join!(connect.into_future(), plugged);
        let (session, paths) = connected.expect("connected");
        change(&mut events, "w1", is_up).await;
        plug(2);
        change(&mut events, "w2", is_up).await;

        // A link without carrier: the path is doubted, probed ever more rarely, and replaced at once when there is carrier again.
        let mut of_session = session.events();
        ip("-n srv link set w2 down");
        while !session.path_stats().iter().any(|path| path.health == PathHealth::Suspect) {
            of_session.next().await.expect("it lives");
        }
        ip("-n srv link set w2 up");
        let active = |path: &PathStats| path.health == PathHealth::Active;
        while session.path_stats().len() != 2 || !session.path_stats().iter().all(active) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        a_block_arrives(&session).await;

        // Another address (the lease has run out): another path takes the place of the old one.
        let mut events = paths.events();
        ip("-n srv address add 10.2.1.2/24 dev w2");
        ip("address add 10.2.1.9/24 dev w2");
        ip("address delete 10.2.0.1/24 dev w2");
        ip(&format!("route replace {SERVER} via 10.2.1.2 dev w2 metric 2"));
        change(&mut events, "w2", is_up).await;
        a_block_arrives(&session).await;
    })
    .await;
}

#[tokio::test]
async fn what_the_system_forbids_on_one_route_leaves_the_other_alone() {
    if !inside("what_the_system_forbids_on_one_route_leaves_the_other_alone") {
        return;
    }
    two_hosts();
    plug(1);
    let server = server();
    let client = client(&server);
    // EACCES, as from a firewall that says so, and EHOSTUNREACH.
    ip("route add prohibit 10.8.0.1");
    ip("route add unreachable 10.8.0.2");
    within(async {
        let towards = |host: u8| SocketAddr::from(([10, 8, 0, host], 4433));
        let any = || bind("0.0.0.0");
        let towards_nowhere = [1, 2].map(|host| Route::new(any(), towards(host)));
        let good = Route::new(bind("w1"), server.address);
        let routes = Routes::from(towards_nowhere.clone()).route(good);
        let (session, paths) = client.connect_over(routes, "localhost").into_future().await.expect("connected");
        a_block_arrives(&session).await;
        assert_eq!(paths.list().await.iter().filter(|state| state.path.is_some()).count(), 1);

        // The interface's MTU shrinks under the session: what is too large now (EMSGSIZE) is lost until QUIC has found out, and no more.
        towards_nowhere.into_iter().for_each(|route| paths.remove(route));
        let mtu = || session.path_stats()[0].mtu;
        while session.path_stats().len() > 1 || mtu() <= 1_400 {
            a_block_arrives(&session).await;
        }
        ip("link set w1 mtu 1300");
        while mtu() > 1_300 - 28 {
            a_block_arrives(&session).await;
        }
    })
    .await;
}
