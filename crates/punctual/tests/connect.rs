//! Who gets a session, and who does not.

mod common;

use std::{future::IntoFuture, net::SocketAddr, time::Duration};

use common::{bind, black_hole, client, client_with, pair, server, server_with, within};
use punctual::{BuildError, CloseReason, Config, ConnectError, Endpoint, Fingerprint, Identity, Route, Trust};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A certificate authority for one test.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a valid name");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Identity::from_pem(certificate.pem(), key.serialize_pem()).expect("our own PEM")
    }
}

#[tokio::test]
async fn a_pinned_fingerprint_connects_over_both_ip_versions() {
    for address in ["127.0.0.1", "::1"] {
        let server = server_with(address, Config::default());
        let client = client(&server);
        let (ours, theirs) = within(pair(&server, &client)).await;
        assert!(ours.is_punctual() && theirs.is_punctual());
        assert_eq!(ours.remote_address(), Some(server.address));
    }
}

#[tokio::test]
async fn another_fingerprint_is_refused_and_the_presented_one_named() {
    let server = server();
    let client = Endpoint::client().trust(Fingerprint([7; 32])).build().expect("a client");
    let error = within(client.connect(server.address, "localhost").into_future()).await.expect_err("refused");
    assert!(matches!(error, ConnectError::Fingerprint { presented } if presented == server.fingerprint), "{error:?}");
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn by_default_an_unknown_certificate_is_refused() {
    let server = server();
    let client = match Endpoint::client().build() {
        Ok(client) => client,
        // A system without root certificates trusts nobody, which is as well.
        Err(BuildError::Tls(punctual::TlsError::NoSystemRoots(_))) => return,
        Err(other) => panic!("{other}"),
    };
    let error = within(client.connect(server.address, "localhost").into_future()).await.expect_err("refused");
    assert!(matches!(error, ConnectError::Certificate(_)), "{error:?}");
}

#[tokio::test]
async fn an_authority_of_ones_own_vouches_for_names() {
    let authority = Authority::new();
    let server = Endpoint::server(authority.issue("camera.test")).bind(bind("127.0.0.1")).build().expect("a server");
    let address = server.local_address();
    let client = Endpoint::client().trust(Trust::ca_pem(&authority.pem).expect("PEM")).build().expect("a client");
    within(client.connect(address, "camera.test").into_future()).await.expect("connected");
    let error = within(client.connect(address, "other.test").into_future()).await.expect_err("another name");
    assert!(matches!(error, ConnectError::Certificate(_)), "{error:?}");

    let stranger = Authority::new();
    let client = Endpoint::client().trust(Trust::ca_pem(&stranger.pem).expect("PEM")).build().expect("a client");
    let error = within(client.connect(address, "camera.test").into_future()).await.expect_err("another authority");
    assert!(matches!(error, ConnectError::Certificate(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_can_ask_clients_for_certificates() {
    let authority = Authority::new();
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity)
        .bind(bind("127.0.0.1"))
        .client_ca(Trust::ca_pem(&authority.pem).expect("PEM"))
        .build()
        .expect("a server");
    let address = server.local_address();

    let known = Endpoint::client().trust(fingerprint).identity(authority.issue("alice")).build().expect("a client");
    let session = within(known.connect(address, "localhost").into_future()).await.expect("connected");
    let accepted = within(server.accept()).await.expect("accepted");
    drop((session, accepted));

    let stranger = Authority::new().issue("mallory");
    for identity in [None, Some(stranger)] {
        let mut builder = Endpoint::client().trust(fingerprint);
        if let Some(identity) = identity {
            builder = builder.identity(identity);
        }
        let client = builder.build().expect("a client");
        // TLS 1.3 checks the client last, so that the client may believe itself connected for a moment.
        match within(client.connect(address, "localhost").into_future()).await {
            Ok(session) => {
                let reason = within(session.closed()).await;
                assert!(matches!(reason, CloseReason::Transport(_)), "{reason:?}");
            }
            Err(ConnectError::Refused(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    // Nobody else has been let in.
    server.close(0, "");
    assert!(within(server.accept()).await.is_none());
}

#[tokio::test]
async fn silence_is_an_error_in_the_time_set() {
    let (_socket, address) = black_hole();
    let config = Config::default().connect_timeout(Duration::from_millis(300));
    let client = client_with(&server(), config);
    let error = within(client.connect(address, "localhost").into_future()).await.expect_err("nobody is there");
    assert!(matches!(error, ConnectError::TimedOut { remote, .. } if remote == address), "{error:?}");
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn where_nobody_listens_is_said_at_once() {
    let (socket, address) = black_hole();
    drop(socket);
    let config = Config::default().connect_timeout(Duration::from_secs(600));
    let client = client_with(&server(), config);
    let nobody = |error: &ConnectError| matches!(error, ConnectError::NobodyListens { remote } if *remote == address);
    let error = within(client.connect(address, "localhost").into_future()).await.expect_err("nobody is there");
    assert!(nobody(&error), "{error:?}");
    let routes = [Route::new(bind("127.0.0.1"), address), Route::new(bind("lo"), address)];
    let error = within(client.connect_over(routes, "localhost").into_future()).await.expect_err("by no way");
    assert!(nobody(&error), "{error:?}");

    // Whoever listens at first, and goes, is missed soon after.
    let (socket, address) = black_hole();
    let connect = client.connect(address, "localhost").into_future();
    let leave = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(socket);
    };
    let (connected, ()) = within(async { tokio::join!(connect, leave) }).await;
    assert!(matches!(connected, Err(ConnectError::NobodyListens { .. })), "{connected:?}");
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn what_cannot_be_connected_to_is_said_at_once() {
    let server = server();
    let client = client(&server);
    let connect = |address: &str, name: &str| client.connect(address.parse().expect("an address"), name).into_future();
    assert!(matches!(within(connect("127.0.0.1:0", "localhost")).await, Err(ConnectError::RemoteAddress(_))));
    assert!(matches!(within(connect("0.0.0.0:1", "localhost")).await, Err(ConnectError::RemoteAddress(_))));
    assert!(matches!(within(connect("127.0.0.1:1", "no name")).await, Err(ConnectError::ServerName(_))));
    assert!(matches!(
        within(server.endpoint.connect(server.address, "localhost").into_future()).await,
        Err(ConnectError::NotClient)
    ));
    let only_v4 = Endpoint::client().trust(server.fingerprint).bind(bind("127.0.0.1")).build().expect("a client");
    let v6: SocketAddr = "[::1]:4433".parse().expect("an address");
    assert!(matches!(within(only_v4.connect(v6, "localhost").into_future()).await, Err(ConnectError::NoLocal(_))));
    only_v4.close(0, "");
    assert!(matches!(
        within(only_v4.connect(server.address, "localhost").into_future()).await,
        Err(ConnectError::EndpointClosed)
    ));
}

#[tokio::test]
async fn what_cannot_be_bound_is_said_at_once() {
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    // TEST-NET-1 belongs to nobody.
    let error = Endpoint::server(identity.clone()).bind(bind("192.0.2.251:4433")).build().expect_err("not ours");
    assert!(matches!(error, BuildError::Bind { .. }), "{error:?}");
    let error = Endpoint::server(identity.clone()).bind(bind("no-such-if0")).build().expect_err("not there");
    assert!(matches!(error, BuildError::Interface { .. }), "{error:?}");
    let server = server();
    let taken = server.address.port();
    let error = Endpoint::server(identity).bind(bind(&format!("127.0.0.1:{taken}"))).build().expect_err("taken");
    assert!(matches!(&error, BuildError::Bind { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse));
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    assert!(matches!(Endpoint::server(identity).build(), Err(BuildError::NoRuntime)));
}

#[tokio::test]
async fn a_server_on_all_addresses_answers_from_the_one_asked() {
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity).build().expect("a server");
    let port = server.local_address().port();
    let client = Endpoint::client().trust(fingerprint).build().expect("a client");
    // Were the answer to come from 127.0.0.1, no session would come about.
    let address = SocketAddr::from(([127, 0, 0, 3], port));
    let session = within(client.connect(address, "localhost").into_future()).await.expect("connected");
    assert_eq!(session.remote_address(), Some(address));
}

#[tokio::test]
async fn a_server_can_name_its_clients() {
    let [known, stranger] = [(); 2].map(|()| Identity::self_signed(["client"]).expect("a valid name"));
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity)
        .bind(bind("127.0.0.1"))
        .client_ca(Trust::fingerprints([known.fingerprint()]))
        .build()
        .expect("a server");
    let address = server.local_address();

    for identity in [None, Some(stranger)] {
        let mut builder = Endpoint::client().trust(fingerprint);
        if let Some(identity) = identity {
            builder = builder.identity(identity);
        }
        match within(builder.build().expect("a client").connect(address, "localhost").into_future()).await {
            Ok(session) => assert!(matches!(within(session.closed()).await, CloseReason::Transport(_))),
            Err(ConnectError::Refused(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    let known = Endpoint::client().trust(fingerprint).identity(known).build().expect("a client");
    let session = within(known.connect(address, "localhost").into_future()).await.expect("connected");
    let accepted = within(server.accept()).await.expect("accepted, and the first to be");
    drop((session, accepted));
}
