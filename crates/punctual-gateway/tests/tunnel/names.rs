//! Whose a name is when several gateways call.

use std::sync::Arc;

use punctual::{Endpoint, Identity, Session, Trust};
use punctual_gateway::tunnel::{Ended, Protocol, Tunnel};
use tokio::{net::UdpSocket, task::JoinHandle};

use super::pair::{Client, PATIENCE, Server, ask, config, endpoint_config, program};

/// A key, of which there may be several gateways one after the other.
struct Key(Vec<u8>);

impl Key {
    fn new() -> Self {
        Self(Identity::self_signed(["client"]).expect("an identity").to_pem().into())
    }

    fn identity(&self) -> Identity {
        Identity::from_pem(&self.0, &self.0).expect("its own identity")
    }

    /// A gateway that has just started, with this key.
    async fn gateway(&self, server: &Server, forward: &[&str]) -> Client {
        let builder = Endpoint::client().trust(server.fingerprint).identity(self.identity());
        let endpoint = builder.config(endpoint_config()).build().expect("a client");
        let tunnel = Arc::new(Tunnel::start(config(&[], forward)).await.expect("a tunnel"));
        Client { endpoint, tunnel }
    }
}

/// A program that answers with its own name whatever it is told.
async fn named(name: &'static str) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("it is bound");
    tokio::spawn(async move {
        let mut space = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut space).await {
            let _ = socket.send_to(name.as_bytes(), from).await;
        }
    });
    format!("camera=udp:{address}")
}

async fn server(keys: &[&Key]) -> Server {
    let trusted = Trust::fingerprints(keys.iter().map(|key| key.identity().fingerprint()));
    Server::letting_in(config(&["udp:127.0.0.1:0=camera", "udp:127.0.0.1:0=other"], &[]), Some(trusted)).await
}

/// Waits until the server has somebody who forwards a name, or nobody any more.
async fn until(server: &Server, name: &str, carried: bool) {
    let name = name.parse().expect("a name");
    let so = async {
        while server.tunnel.is_carried(Protocol::Udp, &name) != carried {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, so).await.expect("it comes to be so");
}

/// A new program asks for the camera: who answers.
async fn camera(server: &Server) -> Vec<u8> {
    ask(&program(super::pair::port(&server.tunnel, "camera").await).await, b"who?").await
}

async fn refused(called: (Session, JoinHandle<Ended>)) {
    let (_session, ended) = called;
    let ended = tokio::time::timeout(PATIENCE, ended).await.expect("it is turned away").expect("no panic");
    let words = ended.to_string();
    assert!(words.contains("`camera` (udp) is forwarded by another gateway"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_cannot_be_taken_from_the_gateway_that_has_it() {
    let (owner, thief) = (Key::new(), Key::new());
    let server = server(&[&owner, &thief]).await;
    let first = owner.gateway(&server, &[&named("owner").await]).await;
    let (session, _) = first.call(&server).await;
    until(&server, "camera", true).await;
    let stolen = named("thief").await;
    let second = thief.gateway(&server, &[&stolen]).await;
    refused(second.call(&server).await).await;
    assert_eq!(camera(&server).await, b"owner");
    // Nor with a greeting that comes later.
    let harmless = thief.gateway(&server, &["other=udp:127.0.0.1:9"]).await;
    let called = harmless.call(&server).await;
    until(&server, "other", true).await;
    harmless.tunnel.reload(config(&[], &[&stolen])).await.expect("it makes sense");
    refused(called).await;
    assert_eq!(camera(&server).await, b"owner");
    // When it is gone, the name is free.
    session.close(0, "done");
    until(&server, "camera", false).await;
    let _called = second.call(&server).await;
    until(&server, "camera", true).await;
    assert_eq!(camera(&server).await, b"thief");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_started_anew_has_its_names_at_once() {
    let (owner, other) = (Key::new(), Key::new());
    let server = server(&[&owner, &other]).await;
    let before = owner.gateway(&server, &[&named("before").await]).await;
    let (session, _) = before.call(&server).await;
    until(&server, "camera", true).await;
    assert_eq!(camera(&server).await, b"before");
    let after = owner.gateway(&server, &[&named("after").await, "other=udp:127.0.0.1:9"]).await;
    let _called = after.call(&server).await;
    until(&server, "other", true).await;
    assert!(session.close_reason().is_none(), "the server need not have heard that it is lost");
    assert_eq!(camera(&server).await, b"after");
}

/// Who is let in by a token, or by anybody, shows no certificate.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_cannot_be_taken_from_a_gateway_without_a_certificate_that_is_there() {
    let server = Server::start(config(&["udp:127.0.0.1:0=camera", "udp:127.0.0.1:0=other"], &[])).await;
    let first = server.client(config(&[], &[&named("owner").await])).await;
    let (session, _) = first.call(&server).await;
    until(&server, "camera", true).await;
    let stolen = named("thief").await;
    let second = server.client(config(&[], &[&stolen])).await;
    refused(second.call(&server).await).await;
    assert_eq!(camera(&server).await, b"owner");
    // Nor with a greeting that comes later.
    let harmless = server.client(config(&[], &["other=udp:127.0.0.1:9"])).await;
    let called = harmless.call(&server).await;
    until(&server, "other", true).await;
    harmless.tunnel.reload(config(&[], &[&stolen])).await.expect("it makes sense");
    refused(called).await;
    assert_eq!(camera(&server).await, b"owner");
    // The same one may come again beside its session before.
    let again = first.call(&server).await;
    tokio::time::timeout(PATIENCE, session.closed()).await.expect("another has taken its place");
    assert_eq!(camera(&server).await, b"owner");
    // When it is gone, the name is free.
    again.0.close(0, "done");
    until(&server, "camera", false).await;
    let _called = second.call(&server).await;
    until(&server, "camera", true).await;
    assert_eq!(camera(&server).await, b"thief");
}

/// The server has not heard that the one before is gone, and cannot tell that it is the same.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_killed_and_started_anew_without_a_certificate_has_its_names() {
    let server = Server::start(config(&["udp:127.0.0.1:0=camera"], &[])).await;
    let before = Arc::new(Tunnel::start(config(&[], &[&named("before").await])).await.expect("a tunnel"));
    // A session of a program that is killed: nobody closes it, and nobody answers any more.
    let (address, fingerprint) = (server.address, server.fingerprint);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let killed = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let held = runtime.block_on(async {
            let builder = Endpoint::client().trust(fingerprint).config(endpoint_config());
            let endpoint = builder.build().expect("a client");
            let session = endpoint.connect(address, "localhost").await.expect("a session");
            let call = before.call(session.clone());
            tokio::select! {
                ended = call => panic!("{ended}"),
                stopped = stopped => stopped.expect("it is told"),
            }
            (endpoint, session)
        });
        // The driver goes before the handles, so that nobody closes anything.
        drop(runtime);
        held
    });
    until(&server, "camera", true).await;
    assert_eq!(camera(&server).await, b"before");
    stop.send(()).expect("it runs");
    let held = tokio::task::spawn_blocking(|| killed.join().expect("no panic")).await.expect("no panic");
    let after = server.client(config(&[], &[&named("after").await])).await;
    let (session, ended) = after.call(&server).await;
    let answers = async { while camera(&server).await != b"after" {} };
    tokio::time::timeout(PATIENCE, answers).await.expect("the name is its own");
    assert!(session.close_reason().is_none() && !ended.is_finished());
    drop(held);
}
