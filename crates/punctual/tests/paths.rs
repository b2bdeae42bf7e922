//! Several paths between the same two endpoints.

mod common;

use std::{net::SocketAddr, time::Duration};

use common::{bind, black_hole, client_with, pair, server, within};
use punctual::{
    Block, BuildError, Config, Endpoint, LocalId, OpenPathError, Outcome, PathError, PathEvent, PathId, SessionEvent,
};

#[tokio::test]
async fn two_local_addresses_are_two_paths() {
    let server = server();
    let client = Endpoint::client()
        .trust(server.fingerprint)
        .bind(bind("127.0.0.1"))
        .bind(bind("127.0.0.2"))
        .build()
        .expect("a client");
    let (ours, theirs) = within(pair(&server, &client)).await;
    let (mut our_events, mut their_events) = (ours.events(), theirs.events());
    within(async {
        let local = client.local(&bind("127.0.0.2"), server.address).expect("bound");
        let path = ours.open_path(local, server.address).await.expect("validated");
        assert_eq!((path.local(), path.remote()), (local, server.address));
        for events in [&mut our_events, &mut their_events] {
            let event = events.next().await;
            assert_eq!(event, Some(SessionEvent::Path { id: path.id(), event: PathEvent::Opened }));
        }
        assert_eq!(ours.path_stats().len(), 2);

        path.set_cost(2.5).expect("a cost");
        ours.set_path_cost(PathId(0), 1.0).expect("a cost");
        assert_eq!(ours.path_stats().iter().map(|path| path.cost).collect::<Vec<_>>(), [1.0, 2.5]);
        assert_eq!(path.set_cost(-1.0), Err(PathError::InvalidCost));
        assert_eq!(ours.set_path_cost(PathId(9), 1.0), Err(PathError::Unknown));

        // The first path goes; what is sent then takes the second.
        let first = ours.path_stats()[0].id;
        ours.close_path(first).expect("not the last");
        let sent = ours.send(Block::new(vec![3; 100_000])).await.expect("accepted");
        assert_eq!(theirs.recv().await.expect("a block").data.len(), 100_000);
        assert!(matches!(sent.await, Outcome::Delivered(_)));
        assert!(path.stats().is_some_and(|stats| stats.bytes_sent > 100_000));
        assert_eq!(path.close(), Err(PathError::Last));
    })
    .await;
}

#[tokio::test]
async fn a_socket_can_be_added_while_a_session_lives() {
    let server = server();
    let client = Endpoint::client().trust(server.fingerprint).bind(bind("127.0.0.1")).build().expect("a client");
    let (ours, _theirs) = within(pair(&server, &client)).await;
    let added = client.bind(bind("127.0.0.3")).expect("a loopback address");
    within(ours.open_path(added[0].id, server.address)).await.expect("validated");
    assert_eq!(client.locals().len(), 2);
}

#[tokio::test]
async fn an_interface_is_a_local_end() {
    let server = server();
    let client = Endpoint::client()
        .trust(server.fingerprint)
        .bind(bind("127.0.0.2"))
        .bind(bind("lo"))
        .build()
        .expect("loopback by name");
    let (ours, _theirs) = within(pair(&server, &client)).await;
    let local = client.local(&bind("lo"), server.address).expect("it has an IPv4 address");
    let path = within(ours.open_path(local, server.address)).await.expect("validated");
    let error = within(ours.open_path(local, server.address)).await.expect_err("there is one already");
    assert!(matches!(error, OpenPathError::Path(PathError::AlreadyOpen(id)) if id == path.id()), "{error:?}");
}

#[tokio::test]
async fn a_path_leaves_from_what_a_bind_says_and_that_is_bound_once() {
    let server = server();
    let client = Endpoint::client().trust(server.fingerprint).bind(bind("127.0.0.1")).build().expect("a client");
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        // Nothing is bound so yet.
        let path = ours.open_path(bind("127.0.0.3"), server.address).await.expect("validated");
        assert_eq!(client.local(&bind("127.0.0.3"), server.address), Some(path.local()));
        assert_eq!(client.locals().len(), 2);
        // What is bound is taken, for another path after the first, and for none beside it.
        let error = ours.open_path(bind("127.0.0.3"), server.address).await.expect_err("there is one already");
        assert!(matches!(error, OpenPathError::Path(PathError::AlreadyOpen(id)) if id == path.id()), "{error:?}");
        path.close().expect("not the last");
        let again = ours.open_path(bind("127.0.0.3"), server.address).await.expect("validated");
        assert_eq!((again.local(), client.locals().len()), (path.local(), 2));

        let v6 = ours.open_path(bind("::1"), server.address).await.expect_err("the other IP version");
        assert!(matches!(v6, OpenPathError::Family { .. }), "{v6:?}");
        let nobody = ours.open_path(bind("no-such-if0"), server.address).await.expect_err("no such interface");
        assert!(matches!(nobody, OpenPathError::Bind(BuildError::Interface { .. })), "{nobody:?}");
        let before = server.endpoint.locals().len();
        let error = theirs.open_path(bind("127.0.0.4"), server.address).await.expect_err("a server");
        assert!(matches!(error, OpenPathError::Path(PathError::NotClient)), "{error:?}");
        assert_eq!((client.locals().len(), server.endpoint.locals().len()), (2, before), "nothing was bound in vain");
    })
    .await;
}

#[tokio::test]
async fn a_path_that_leads_nowhere_is_an_error_in_the_time_set() {
    let server = server();
    let client = client_with(&server, Config::default().connect_timeout(Duration::from_millis(500)));
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        let (_socket, nowhere) = black_hole();
        let local = client.locals()[0].id;
        let error = ours.open_path(local, nowhere).await.expect_err("nobody is there");
        assert!(matches!(error, OpenPathError::TimedOut { .. } | OpenPathError::Abandoned), "{error:?}");
        let error = ours.open_path(LocalId(99), server.address).await.expect_err("not bound");
        assert!(matches!(error, OpenPathError::UnknownLocal(LocalId(99))), "{error:?}");
        let v6: SocketAddr = "[::1]:4433".parse().expect("an address");
        let error = ours.open_path(local, v6).await.expect_err("the other IP version");
        assert!(matches!(error, OpenPathError::Family { .. }), "{error:?}");
        let error = theirs.open_path(server.endpoint.locals()[0].id, server.address).await.expect_err("a server");
        assert!(matches!(error, OpenPathError::Path(PathError::NotClient)), "{error:?}");
        // The session is none the worse.
        let sent = ours.send(Block::new("still there")).await.expect("accepted");
        assert_eq!(theirs.recv().await.expect("a block").data, "still there");
        assert!(matches!(sent.await, Outcome::Delivered(_)));
    })
    .await;
}
