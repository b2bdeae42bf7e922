//! Sessions over several routes: begun on the first that answers, and kept on all.

mod common;

use std::{
    future::IntoFuture,
    net::SocketAddr,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use common::{FallsSilent, Server, bind, black_hole, client, client_with, pair, server, within};
use punctual::{
    Block, Config, ConnectError, DownReason, Endpoint, Fingerprint, Outcome, PathId, Paths, Route, RouteChange,
    RouteError, RouteEvents, RouteTerms, Routes, Session, SessionEvent,
    multipath::{PathHealth, PathRole},
};

fn route(local: &str, remote: SocketAddr) -> Route {
    Route::new(bind(local), remote)
}

/// Waits for something to happen to a route.
async fn change(events: &mut RouteEvents, route: &Route, wanted: impl Fn(&RouteChange) -> bool) -> RouteChange {
    loop {
        let event = events.next().await.expect("the session lives");
        if event.route == *route && wanted(&event.change) {
            return event.change;
        }
    }
}

fn is_up(change: &RouteChange) -> bool {
    matches!(change, RouteChange::Up { .. })
}

async fn connect(client: &Endpoint, server: &Server, routes: impl Into<Routes>) -> (Session, Session, Paths) {
    let (ours, theirs) = tokio::join!(client.connect_over(routes, "localhost").into_future(), server.endpoint.accept());
    let (ours, paths) = ours.expect("connected");
    (ours, theirs.expect("accepted"), paths)
}

async fn until_there_are(session: &Session, paths: usize) {
    while session.path_stats().len() != paths {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_block_arrives(ours: &Session, theirs: &Session) {
    let sent = ours.send(Block::new(vec![7; 50_000])).await.expect("accepted");
    assert_eq!(theirs.recv().await.expect("a block").data.len(), 50_000);
    assert!(matches!(sent.await, Outcome::Delivered(_)));
}

#[tokio::test]
async fn routes_have_terms_from_the_start_and_both_ends_know_them() {
    let server = server();
    let client = client(&server);
    within(async {
        // Whichever of them the session begins on.
        let terms = RouteTerms::new().role(PathRole::Backup).cost(3.0);
        let spare = route("127.0.0.2", server.address);
        let routes = Routes::from([route("127.0.0.1", server.address)]).route_on(spare.clone(), terms);
        let (ours, theirs, paths) = connect(&client, &server, routes).await;
        until_there_are(&ours, 2).await;
        until_there_are(&theirs, 2).await;
        let known = |session: &Session| {
            let stats = session.path_stats();
            stats.iter().filter(|path| (path.role, path.cost) == (PathRole::Backup, 3.0)).count()
        };
        while known(&theirs) != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(known(&ours), 1);
        a_block_arrives(&ours, &theirs).await;
        let of_backup = |session: &Session| {
            let stats = session.path_stats();
            stats.into_iter().find(|path| path.role == PathRole::Backup).expect("there")
        };
        assert_eq!((of_backup(&ours).health, of_backup(&ours).source_bytes), (PathHealth::Standby, 0));

        paths.set_terms(spare, RouteTerms::new().role(PathRole::Normal));
        while known(&theirs) != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn all_routes_are_tried_and_the_server_sees_one_session_with_all_of_them() {
    let server = server();
    let client = client(&server);
    let before = client.locals().len();
    within(async {
        let routes = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|local| route(local, server.address));
        let (ours, theirs, paths) = connect(&client, &server, routes.clone()).await;
        until_there_are(&ours, 3).await;
        until_there_are(&theirs, 3).await;
        a_block_arrives(&ours, &theirs).await;
        // The others in the race have left no trace: no session waits at the server, and no socket was made twice.
        let mut another = pin!(server.endpoint.accept());
        assert!(another.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(client.locals().len(), before + 3);
        let states = paths.list().await;
        assert_eq!(states.iter().map(|state| state.route.clone()).collect::<Vec<_>>(), routes);
        assert!(states.iter().all(|state| state.path.is_some() && state.failure.is_none()), "{states:?}");

        // Sockets go with the session, the peer told.
        ours.close(7, "done");
        assert!(matches!(theirs.closed().await, punctual::CloseReason::Peer { code: 7, .. }));
        while client.locals().len() > before {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(paths.list().await.is_empty());
        assert!(paths.events().next().await.is_none());
        client.wait_idle().await;
    })
    .await;
}

/// The client's worker stands still after each turn, the server's does not: so the answers to all handshakes are there in the same moment. And the
/// attempt that is told last is the first to be looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_race_with_several_first_has_one_winner_and_its_session_lives() {
    let (tell, told) = std::sync::mpsc::channel();
    let answering = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = server();
            tell.send((server.address, server.fingerprint)).expect("a listener");
            let mut sessions = Vec::new();
            while sessions.len() < 10 {
                let session = within(server.endpoint.accept()).await.expect("open");
                // Those in which something comes are the client's own.
                let block = within(session.recv()).await;
                sessions.push((session, block.map(|block| block.data)));
            }
            for (session, _) in &sessions {
                within(session.closed()).await;
            }
            sessions.into_iter().map(|(_, block)| block).collect::<Vec<_>>()
        })
    });
    let (address, fingerprint) = told.recv().expect("a server");
    let client = Endpoint::client().trust(fingerprint).build().expect("a client");
    for round in 0..10 {
        let routes = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|local| route(local, address));
        let standing = tokio::spawn(async {
            loop {
                std::thread::sleep(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
        });
        let connected = within(client.connect_over(routes, "localhost").into_future()).await;
        standing.abort();
        let (session, _paths) = connected.expect("connected");
        let sent = within(session.send(Block::new(vec![round; 10]))).await.expect("it lives");
        assert!(matches!(within(sent.into_future()).await, punctual::Outcome::Delivered(_)));
        session.close(0, "");
    }
    within(client.wait_idle()).await;
    let blocks = answering.join().expect("no panic");
    let one_each: Vec<_> = (0..10).map(|round| Ok(vec![round; 10].into())).collect();
    assert_eq!(blocks, one_each, "the server sees one session each time");
}

#[tokio::test]
async fn a_route_that_leads_nowhere_holds_up_no_other_and_is_tried_again() {
    let server = server();
    let client = client_with(&server, Config::default().connect_timeout(Duration::from_secs(1)));
    let (_socket, nowhere) = black_hole();
    within(async {
        let good = route("127.0.0.2", server.address);
        let silent = route("127.0.0.3", nowhere);
        // TEST-NET-1 belongs to nobody, so not to us.
        let absent = route("192.0.2.251", server.address);
        let missing = route("no-such-if0", server.address);
        let routes = [silent.clone(), absent.clone(), missing.clone(), good.clone()];
        // So that the one second counts for paths alone.
        let connect = client.connect_over(routes, "localhost").timeout(Duration::from_secs(60));
        let (mut silent_events, mut absent_events, mut missing_events) =
            (connect.events(), connect.events(), connect.events());
        let (ours, theirs) = tokio::join!(connect.into_future(), server.endpoint.accept());
        let ((ours, paths), theirs) = (ours.expect("connected"), theirs.expect("accepted"));
        let mut of_session = ours.events();
        a_block_arrives(&ours, &theirs).await;

        let failed = |change: &RouteChange| matches!(change, RouteChange::Failed { .. });
        let RouteChange::Failed { reason, again_in } = change(&mut silent_events, &silent, failed).await else {
            unreachable!()
        };
        assert!(matches!(reason, RouteError::NoAnswer { .. }) && again_in.is_some(), "{reason:?}");
        change(&mut silent_events, &silent, |change| *change == RouteChange::Tried).await;
        let RouteChange::Failed { reason, again_in } = change(&mut absent_events, &absent, failed).await else {
            unreachable!()
        };
        assert!(matches!(reason, RouteError::Bind(_)) && again_in.is_some(), "{reason:?}");
        let missed = change(&mut missing_events, &missing, failed).await;
        assert_eq!(missed, RouteChange::Failed { reason: RouteError::NoInterface, again_in: None });
        // Those who listen to the session hear the same.
        while !matches!(of_session.next().await.expect("it lives"), SessionEvent::Route(event) if event.route == silent)
        {
        }

        paths.remove(silent.clone());
        paths.remove(absent);
        paths.remove(missing);
        assert_eq!(paths.list().await.iter().map(|state| state.route.clone()).collect::<Vec<_>>(), [good]);
        a_block_arrives(&ours, &theirs).await;
    })
    .await;
}

#[tokio::test]
async fn what_no_route_leads_to_is_an_error_that_names_them_all() {
    let server = server();
    let client = client_with(&server, Config::default().connect_timeout(Duration::from_millis(300)));
    let (_socket, nowhere) = black_hole();
    within(async {
        let routes = [route("127.0.0.3", nowhere), route("no-such-if0", server.address)];
        let error = client.connect_over(routes.clone(), "localhost").into_future().await.expect_err("nobody there");
        let ConnectError::NoRoute { failures, .. } = &error else { panic!("{error:?}") };
        assert_eq!(failures.iter().map(|(route, _)| route.clone()).collect::<Vec<_>>(), routes);
        assert!(matches!(failures[0].1, RouteError::NoAnswer { .. }), "{failures:?}");
        assert_eq!(failures[1].1, RouteError::NoInterface);
        assert!(error.to_string().contains("no-such-if0"), "{error}");
        let error = server.endpoint.connect_over(routes, "localhost").into_future().await.expect_err("a server");
        assert!(matches!(error, ConnectError::NotClient), "{error:?}");

        let error = client.connect_over(Routes::new(), "localhost").timeout(Duration::from_secs(3_600));
        let error = error.into_future().await.expect_err("nowhere to go");
        assert!(matches!(&error, ConnectError::NoRoute { failures, .. } if failures.is_empty()), "{error:?}");

        // Who is the wrong one everywhere need not be waited for.
        let stranger = Endpoint::client().trust(Fingerprint([7; 32])).build().expect("a client");
        let routes = ["127.0.0.1", "127.0.0.2"].map(|local| route(local, server.address));
        let patient = stranger.connect_over(routes, "localhost").timeout(Duration::from_secs(3_600));
        let error = patient.into_future().await.expect_err("refused");
        assert!(matches!(error, ConnectError::Fingerprint { .. }), "{error:?}");
        client.wait_idle().await;
    })
    .await;
}

#[tokio::test]
async fn the_application_takes_routes_down_and_up_and_adds_others() {
    let server = server();
    let client = client(&server);
    within(async {
        let [first, second, third] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|local| route(local, server.address));
        let connect = client.connect_over([first.clone(), second.clone()], "localhost");
        let mut events = connect.events();
        let (ours, theirs) = tokio::join!(connect.into_future(), server.endpoint.accept());
        let ((ours, paths), theirs) = (ours.expect("connected"), theirs.expect("accepted"));
        let mut of_first = paths.events();
        change(&mut events, &second, is_up).await;
        while paths.list().await.iter().any(|state| state.path.is_none()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        paths.down("127.0.0.2");
        let told = |change: &RouteChange| matches!(change, RouteChange::Down { reason: DownReason::Told, .. });
        change(&mut events, &second, told).await;
        until_there_are(&theirs, 1).await;
        a_block_arrives(&ours, &theirs).await;
        paths.up("127.0.0.2");
        change(&mut events, &second, is_up).await;

        paths.add(third.clone());
        change(&mut events, &third, is_up).await;
        paths.remove(third.clone());
        change(&mut events, &third, told).await;

        // Even the last: the session waits for it.
        paths.down("127.0.0.1");
        paths.down("127.0.0.2");
        change(&mut of_first, &first, told).await;
        change(&mut events, &second, told).await;
        ours.stranded(Duration::ZERO).await;
        assert_eq!(ours.close_reason(), None);
        let sent = ours.send(Block::new("patience")).await.expect("accepted");
        paths.up("127.0.0.2");
        change(&mut events, &second, is_up).await;
        assert_eq!(theirs.recv().await.expect("a block").data, "patience");
        assert!(matches!(sent.await, Outcome::Delivered(_)));
        until_there_are(&ours, 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_path_that_is_closed_comes_back_until_its_route_is_removed() {
    let server = server();
    let client = Endpoint::client().trust(server.fingerprint).bind(bind("127.0.0.1")).build().expect("a client");
    let (ours, theirs) = within(pair(&server, &client)).await;
    within(async {
        // A session that was begun otherwise; its path is taken for the route's that says the same.
        let [first, second] = ["127.0.0.1", "127.0.0.2"].map(|local| route(local, server.address));
        let paths = ours.keep_paths([first.clone(), second.clone()]);
        let mut events = paths.events();
        assert_eq!(change(&mut events, &first, is_up).await, RouteChange::Up { path: PathId(0) });
        let RouteChange::Up { path } = change(&mut events, &second, is_up).await else { unreachable!() };
        assert_eq!(client.locals().len(), 2);

        ours.close_path(path).expect("not the last");
        let closed = RouteChange::Down { path, reason: DownReason::Closed };
        change(&mut events, &second, |change| *change == closed).await;
        let RouteChange::Up { path } = change(&mut events, &second, is_up).await else { unreachable!() };
        // The socket is taken away from under it.
        let local = ours.path_stats().iter().find(|stats| stats.id == path).expect("open").network.local;
        client.unbind(local).expect("bound");
        change(&mut events, &second, |change| matches!(change, RouteChange::Down { .. })).await;
        change(&mut events, &second, is_up).await;
        a_block_arrives(&ours, &theirs).await;

        paths.remove(second.clone());
        change(&mut events, &second, |change| matches!(change, RouteChange::Down { .. })).await;
        until_there_are(&ours, 1).await;
        // What the application has bound stays its own.
        paths.remove(first.clone());
        change(&mut events, &first, |change| matches!(change, RouteChange::Down { .. })).await;
        assert_eq!(client.locals().len(), 1);
        a_block_arrives(&ours, &theirs).await;
    })
    .await;
}

#[tokio::test]
async fn whatever_leads_to_the_peer_is_a_route() {
    let server = server();
    let client = client(&server);
    within(async {
        let (ours, theirs, paths) = connect(&client, &server, Routes::auto(server.address)).await;
        a_block_arrives(&ours, &theirs).await;
        let states = paths.list().await;
        assert!(!states.is_empty() && states.iter().all(|state| state.interface.is_some()), "{states:?}");
    })
    .await;
}

#[tokio::test]
async fn a_session_without_a_usable_path_says_so_before_it_ends() {
    let server = FallsSilent::start();
    let mut config = Config::default();
    config.session.keep_alive = Duration::from_millis(100);
    // Longer than the test: it is the paths that are asked about.
    config.session.idle_timeout = Duration::from_secs(600);
    let client = Endpoint::client().trust(server.fingerprint).config(config).build().expect("a client");
    within(async {
        let (ours, _paths) = client
            .connect_over([route("127.0.0.1", server.address)], "localhost")
            .into_future()
            .await
            .expect("connected");
        let mut events = ours.events();
        server.fall_silent();
        ours.stranded(Duration::from_millis(10)).await;
        assert_eq!(ours.close_reason(), None);
        while events.next().await.expect("it lives") != SessionEvent::Stranded {}
        ours.close(0, "");
        ours.stranded(Duration::from_secs(3_600)).await;
    })
    .await;
}
