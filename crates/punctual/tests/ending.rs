//! How sessions and endpoints end, and what is left of them.

mod common;

use std::{future::IntoFuture, time::Duration};

use common::{FallsSilent, bind, client, client_with, drain, pair, server, server_of, server_with, within};
use punctual::{
    Block, BlockError, BlockId, Channel, CloseReason, Config, DropReason, Endpoint, Identity, Limits, Outcome,
    ProtocolError, SendError,
};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn finishing_waits_for_what_was_handed_over() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    let receiver = tokio::spawn(drain(theirs));
    let mut sent = Vec::new();
    for _ in 0..30 {
        sent.push(within(ours.send(Block::new(vec![0; 50_000]))).await.expect("accepted"));
    }
    let undelivered = within(ours.finish(LONG)).await;
    assert!(undelivered.is_empty(), "{undelivered:?}");
    assert_eq!(undelivered.reason, Some(CloseReason::Local));
    for sent in sent {
        assert!(matches!(within(sent).await, Outcome::Delivered(_)));
    }
    assert_eq!(within(receiver).await.expect("no panic"), 30);
    assert!(matches!(within(ours.send(Block::new("more"))).await, Err(SendError::Closed)));
    assert_eq!(ours.stats().blocks_sent, 30);
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn one_direction_ends_and_the_other_goes_on() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    let talk = async {
        within(ours.send(Block::new("a question"))).await.expect("accepted");
        assert!(within(ours.finish_sending(LONG)).await, "it is taken");
        assert!(matches!(ours.try_send(Block::new("another")), Err(SendError::Closed)));
        let mut answers = Vec::new();
        while let Some(block) = within(ours.recv_until_finished()).await.expect("open") {
            answers.push(block.data);
        }
        assert!(ours.peer_has_finished());
        answers
    };
    let answer = async {
        while let Some(block) = within(theirs.recv_until_finished()).await.expect("open") {
            assert_eq!(block.data, "a question");
        }
        for answer in ["one", "", "two"] {
            within(theirs.send(Block::new(answer).channel(Channel(0)))).await.expect("accepted");
        }
        assert!(within(theirs.finish_sending(LONG)).await);
    };
    let (answers, ()) = tokio::join!(talk, answer);
    assert_eq!(answers, ["one", "", "two"]);
    assert_eq!((ours.close_reason(), theirs.close_reason()), (None, None), "nobody has closed it");
    assert!(within(ours.finish(LONG)).await.is_empty());
    assert!(matches!(within(theirs.closed()).await, CloseReason::Peer { code: 0, .. }));
    assert!(within(theirs.recv_until_finished()).await.is_err());
}

/// Else it would be noticed after the idle timeout only.
#[tokio::test]
async fn a_server_that_was_killed_and_started_anew_ends_the_sessions_of_before() {
    let server = FallsSilent::start();
    let client = Endpoint::client().trust(server.fingerprint).build().expect("a client");
    let session = within(client.connect(server.address, "localhost").into_future()).await.expect("connected");
    let address = server.address;
    let identity = server.fall_silent();
    let _anew = server_of(identity, &address.to_string(), Config::default());
    let sent = within(session.send(Block::new("are you there?"))).await.expect("accepted");
    assert_eq!(within(session.closed()).await, CloseReason::Reset);
    assert!(matches!(within(sent).await, Outcome::Dropped { .. }));
}

#[tokio::test]
async fn finishing_in_no_time_names_what_was_not_delivered() {
    let server = server();
    let client = client(&server);
    let (ours, _theirs) = within(pair(&server, &client)).await;
    let sent = within(ours.send(Block::new(vec![0; 16 << 20]))).await.expect("accepted");
    let id = sent.id();
    let undelivered = within(ours.finish(Duration::ZERO)).await;
    assert_eq!(undelivered.blocks, [(id, DropReason::SessionClosed)]);
    let outcome = within(sent).await;
    assert!(matches!(outcome, Outcome::Dropped { reason: DropReason::SessionClosed, .. }), "{outcome:?}");
}

#[tokio::test]
async fn closing_tells_the_peer_code_and_words() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    ours.close(42, "enough");
    assert_eq!(within(ours.closed()).await, CloseReason::Local);
    assert_eq!(within(theirs.closed()).await, CloseReason::Peer { code: 42, reason: "enough".into() });
    assert!(within(ours.recv()).await.is_err());
    assert_eq!(ours.cancel(BlockId(0)), Err(BlockError::NotLive(BlockId(0))));
    assert!(ours.events().next().await.is_none());
    // Twice does no harm.
    ours.close(43, "again");
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_session() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    let (clone, mut events) = (ours.clone(), ours.events());
    drop(ours);
    assert_eq!(clone.close_reason(), None);
    let sent = within(clone.send(Block::new(vec![0; 16 << 20]))).await.expect("accepted");
    drop(clone);
    // The other handles do not keep it, and are told.
    assert!(matches!(within(sent).await, Outcome::Dropped { reason: DropReason::SessionClosed, .. }));
    while within(events.next()).await.is_some() {}
    assert!(matches!(within(theirs.closed()).await, CloseReason::Peer { code: 0, .. }));
    within(client.wait_idle()).await;
}

/// What is dropped by a panic has not come to a good end, and its peer is not to take it for one.
#[tokio::test]
async fn a_panic_is_no_good_end() {
    let server = server();
    for with_session in [true, false] {
        let client = client(&server);
        let (ours, theirs) = within(pair(&server, &client)).await;
        let panicked = tokio::spawn(async move {
            let held = if with_session { (Some(ours), None) } else { (None, Some((client, ours))) };
            assert!(held.0.is_none() && held.1.is_none(), "this is meant to happen");
        });
        assert!(within(panicked).await.unwrap_err().is_panic());
        let reason = within(theirs.closed()).await;
        assert!(matches!(reason, CloseReason::Peer { code, .. } if code == ProtocolError::Panicked.code()), "{reason}");
    }
}

#[tokio::test]
async fn dropping_the_endpoint_closes_its_sessions() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    drop(client);
    assert_eq!(within(ours.closed()).await, CloseReason::Local);
    assert!(matches!(within(theirs.closed()).await, CloseReason::Peer { .. }));
    within(server.endpoint.wait_idle()).await;
}

#[tokio::test]
async fn a_closed_server_accepts_nobody() {
    let server = server();
    let client = client_with(&server, Config::default().connect_timeout(Duration::from_secs(2)));
    let (ours, _theirs) = within(pair(&server, &client)).await;
    server.endpoint.close(7, "closing time");
    assert!(within(server.endpoint.accept()).await.is_none());
    assert_eq!(within(ours.closed()).await, CloseReason::Peer { code: 7, reason: "closing time".into() });
    assert!(within(client.connect(server.address, "localhost").into_future()).await.is_err());
    within(server.endpoint.wait_idle()).await;
}

#[tokio::test]
async fn giving_up_a_connection_attempt_leaves_nothing_behind() {
    let (_socket, address) = common::black_hole();
    let client = client(&server());
    let attempt = client.connect(address, "localhost").into_future();
    assert!(tokio::time::timeout(Duration::from_millis(50), attempt).await.is_err());
    // A matter of moments. An attempt that went on would do so for as long as it may take, which is 10 s, or until its session is idle, after 30 s.
    tokio::time::timeout(Duration::from_secs(5), client.wait_idle()).await.expect("nothing is waited for");
}

#[test]
fn handles_outlive_the_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    let (_endpoints, session, sent) = first.block_on(async {
        let server = server();
        let client = client(&server);
        let (ours, theirs) = within(pair(&server, &client)).await;
        let sent = ours.send(Block::new(vec![0; 16 << 20])).await.expect("accepted");
        ((server, client, theirs), ours, sent)
    });
    // The drivers go with it.
    drop(first);
    runtime().block_on(async {
        assert!(within(session.recv()).await.is_err());
        assert!(matches!(within(sent).await, Outcome::Dropped { .. }));
        assert!(matches!(session.try_send(Block::new("x")), Err(SendError::Closed)));
        within(session.finish(LONG)).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_at_once() {
    const SESSIONS: usize = 60;
    let server = server();
    let endpoint = server.endpoint.clone();
    let echo = tokio::spawn(async move {
        for _ in 0..SESSIONS {
            let session = endpoint.accept().await.expect("a client");
            tokio::spawn(async move {
                while let Ok(block) = session.recv().await {
                    drop(session.send(Block::new(block.data)).await);
                }
            });
        }
    });
    let client = client(&server);
    let one = |n: usize| {
        let client = client.clone();
        let address = server.address;
        tokio::spawn(async move {
            let session = client.connect(address, "localhost").await.expect("connected");
            for size in [1, 1_000, 30_000] {
                session.send(Block::new(vec![n as u8; size])).await.expect("accepted");
                let back = session.recv().await.expect("an echo");
                assert_eq!(back.data, vec![n as u8; size]);
            }
            assert!(session.finish(LONG).await.is_empty());
        })
    };
    let all: Vec<_> = (0..SESSIONS).map(one).collect();
    within(async {
        for one in all {
            one.await.expect("no panic");
        }
        echo.await.expect("no panic");
        client.wait_idle().await;
        server.endpoint.wait_idle().await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_full_says_so() {
    let mut config = Config::default();
    config.session.limits = Limits::default().sessions(2);
    let server = server_with("127.0.0.1", config);
    let client = client(&server);
    let first = within(pair(&server, &client)).await;
    let second = within(pair(&server, &client)).await;
    assert!(within(client.connect(server.address, "localhost").into_future()).await.is_err());
    drop((first, second));
}

#[tokio::test]
async fn a_session_leaves_two_qlog_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::default().qlog_dir(dir.path());
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity).bind(bind("127.0.0.1")).build().expect("a server");
    let address = server.local_address();
    let client = Endpoint::client().trust(fingerprint).config(config).build().expect("a client");
    let receiver = tokio::spawn(async move { drain(server.accept().await.expect("a client")).await });
    let session = within(client.connect(address, "localhost").into_future()).await.expect("connected");
    for _ in 0..3 {
        drop(within(session.send(Block::new(vec![0; 5_000]).deadline(LONG))).await.expect("accepted"));
    }
    assert!(within(session.finish(LONG)).await.is_empty());
    assert_eq!(within(receiver).await.expect("no panic"), 3);
    within(client.wait_idle()).await;

    let names: Vec<_> = std::fs::read_dir(dir.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
        .collect();
    assert!(names.iter().any(|name| name.ends_with("-quic.sqlog")), "{names:?}");
    let blocks = names.iter().find(|name| name.ends_with("-blocks.sqlog")).expect("a log of blocks");
    let text = std::fs::read_to_string(dir.path().join(blocks)).expect("readable");
    let count = |name: &str| text.matches(&format!("\"punctual:{name}\"")).count();
    assert_eq!((count("block_sent"), count("block_outcome"), count("session_closed")), (3, 3, 1));
}
