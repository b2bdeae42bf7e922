//! Sockets that go while sessions live.

mod common;

use std::{future::IntoFuture, time::Duration};

use common::{bind, black_hole, client, pair, server, within};
use punctual::{
    Block, ConnectError, Endpoint, Events, OpenPathError, Outcome, PathEvent, PathId, Session, SessionEvent,
    multipath::PathHealth,
};

/// Waits for an event of a path, past all others.
async fn path_event(events: &mut Events, wanted: PathEvent) -> PathId {
    loop {
        match events.next().await.expect("the session lives") {
            SessionEvent::Path { id, event } if event == wanted => return id,
            _ => {}
        }
    }
}

async fn a_block_arrives(ours: &Session, theirs: &Session, size: usize) {
    let sent = ours.send(Block::new(vec![7; size])).await.expect("accepted");
    assert_eq!(theirs.recv().await.expect("a block").data.len(), size);
    assert!(matches!(sent.await, Outcome::Delivered(_)));
}

#[tokio::test]
async fn a_socket_goes_after_its_paths_and_leaves_no_id_behind() {
    let server = server();
    let client = Endpoint::client().trust(server.fingerprint).bind(bind("127.0.0.1")).build().expect("a client");
    let (ours, theirs) = within(pair(&server, &client)).await;
    let mut events = ours.events();
    within(async {
        let mut ids = vec![client.locals()[0].id];
        // More often than a session may have paths at once.
        for _ in 0..12 {
            let added = client.bind(bind("127.0.0.3")).expect("a loopback address");
            let [local] = &added[..] else { panic!("one address, one socket") };
            assert!(!ids.contains(&local.id), "an id names one end for ever");
            ids.push(local.id);
            let path = ours.open_path(local.id, server.address).await.expect("validated");
            a_block_arrives(&ours, &theirs, 30_000).await;
            assert_eq!(client.unbind(local.id).as_ref(), Some(local));
            assert_eq!(path_event(&mut events, PathEvent::Closed).await, path.id());
            assert_eq!(client.locals().len(), 1);
            let error = ours.open_path(local.id, server.address).await.expect_err("it is gone");
            assert!(matches!(error, OpenPathError::UnknownLocal(id) if id == local.id), "{error:?}");
            assert_eq!(client.unbind(local.id), None);
            a_block_arrives(&ours, &theirs, 30_000).await;
        }
        assert_eq!(ours.path_stats().len(), 1);
        while theirs.path_stats().len() > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // What went over those that are gone is not forgotten.
        let told = ours.snapshot();
        assert_eq!((told.paths.len(), told.closed_paths.len()), (1, 12));
        assert!(told.closed_paths.iter().all(|path| path.health == PathHealth::Closed && path.bytes_received > 0));
        assert_eq!(told.all_paths().map(|path| path.source_bytes).sum::<u64>(), told.session.source_bytes);
        assert!(told.session.source_bytes >= 24 * 30_000, "{told:?}");
        let received = theirs.snapshot();
        assert_eq!((received.paths.len(), received.closed_paths.len()), (1, 12));
        // Once it has ended they are as they were.
        ours.close(0, "");
        ours.closed().await;
        assert_eq!(ours.snapshot().closed_paths, told.closed_paths);
    })
    .await;
}

#[tokio::test]
async fn a_session_outlives_the_socket_of_its_last_path() {
    let server = server();
    let client = Endpoint::client().trust(server.fingerprint).bind(bind("127.0.0.1")).build().expect("a client");
    let (ours, theirs) = within(pair(&server, &client)).await;
    let mut events = ours.events();
    within(async {
        // The server has granted ids for other paths by the time a block has arrived.
        a_block_arrives(&ours, &theirs, 100).await;
        let first = client.locals()[0].id;
        client.unbind(first).expect("bound");
        assert!(client.locals().is_empty());
        assert!(client.local_address().ip().is_unspecified());
        let sent = ours.send(Block::new("patience")).await.expect("accepted");
        let added = client.bind(bind("127.0.0.3")).expect("a loopback address");
        let path = ours.open_path(added[0].id, server.address).await.expect("validated");
        assert_eq!(theirs.recv().await.expect("a block").data, "patience");
        assert!(matches!(sent.await, Outcome::Delivered(_)));
        // The path without a socket could only be closed now.
        assert_eq!(path_event(&mut events, PathEvent::Closed).await, PathId(0));
        assert_eq!(ours.path_stats().iter().map(|stats| stats.id).collect::<Vec<_>>(), [path.id()]);
        a_block_arrives(&ours, &theirs, 100_000).await;
    })
    .await;
}

#[tokio::test]
async fn what_is_only_on_its_way_ends_with_its_socket() {
    let server = server();
    let client = client(&server);
    let (ours, _theirs) = within(pair(&server, &client)).await;
    let (_socket, nowhere) = black_hole();
    within(async {
        // A path, and a session, that nobody answers.
        let spare = client.bind(bind("127.0.0.3")).expect("a loopback address")[0].id;
        let path = ours.open_path(spare, nowhere);
        let session = client.connect(nowhere, "localhost").from(spare).into_future();
        let unbind = async {
            while ours.path_stats().len() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            client.unbind(spare)
        };
        let (path, session, unbound) = tokio::join!(path, session, unbind);
        assert!(matches!(path, Err(OpenPathError::Abandoned)), "{path:?}");
        assert!(matches!(session, Err(ConnectError::Failed(_))), "{session:?}");
        assert!(unbound.is_some());
    })
    .await;
}

#[tokio::test]
async fn a_server_gives_up_a_socket_and_its_other_sessions_live() {
    let identity = punctual::Identity::self_signed(["localhost"]).expect("a valid name");
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity).bind(bind("127.0.0.1")).bind(bind("127.0.0.2")).build().expect("a server");
    let client = Endpoint::client().trust(fingerprint).bind(bind("127.0.0.1")).build().expect("a client");
    within(async {
        let [first, second] = [0, 1].map(|n| server.locals()[n].clone());
        let (ours, theirs) = tokio::join!(client.connect(first.address, "localhost").into_future(), server.accept());
        let (ours, theirs) = (ours.expect("connected"), theirs.expect("accepted"));
        ours.open_path(client.locals()[0].id, second.address).await.expect("validated");
        let mut events = ours.events();
        while theirs.path_stats().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.unbind(first.id).expect("bound");
        assert_eq!(path_event(&mut events, PathEvent::Closed).await, PathId(0));
        a_block_arrives(&ours, &theirs, 50_000).await;
    })
    .await;
}
