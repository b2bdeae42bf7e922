//! What the peer's application has not taken is not claimed to be: sessions that nobody accepts, blocks that nobody reads or has dealt with.

mod common;

use std::{
    future::IntoFuture,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{client, pair, server, within};
use punctual::{Block, CloseReason, DropReason, Incoming, Outcome};
use tokio::net::UdpSocket;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_session_that_nobody_accepts_gets_nothing() {
    let server = server();
    let client = client(&server);
    let session = within(client.connect(server.address, "localhost").into_future()).await.expect("it answers");
    let sent = within(session.send(Block::new("to nobody"))).await.expect("accepted");
    let undelivered = within(session.finish(Duration::from_millis(500))).await;
    assert_eq!(undelivered.blocks.len(), 1, "{undelivered:?}");
    assert!(!undelivered.taken);
    assert_eq!(sent.id(), undelivered.blocks[0].0);
}

#[tokio::test]
async fn a_session_that_is_refused_has_delivered_nothing() {
    let server = server();
    let client = client(&server);
    for refuse in [|incoming: Incoming| incoming.refuse(7, "full"), drop] {
        let connect = client.connect(server.address, "localhost").into_future();
        let (session, incoming) = within(async { tokio::join!(connect, server.endpoint.incoming()) }).await;
        let (session, incoming) = (session.expect("it answers"), incoming.expect("open"));
        assert!(incoming.remote_address().is_some_and(|address| address.ip().is_loopback()));
        let mut sent = within(session.send(Block::new("too early"))).await.expect("accepted");
        // Whoever decides may take its time.
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut sent).await.is_err(), "it is not delivered");
        refuse(incoming);
        let outcome = within(sent).await;
        assert!(matches!(outcome, Outcome::Dropped { reason: DropReason::SessionClosed, .. }), "{outcome:?}");
        assert!(matches!(within(session.closed()).await, CloseReason::Peer { .. }));
    }
    let (ours, theirs) = within(pair(&server, &client)).await;
    let sent = within(ours.send(Block::new("in time"))).await.expect("accepted");
    assert_eq!(within(theirs.recv()).await.expect("it is let in").data, "in time");
    assert!(matches!(within(sent).await, Outcome::Delivered(_)));
    // Who ends while waiting is let in and has ended; where it came from is known.
    let connect = client.connect(server.address, "localhost").into_future();
    let (session, incoming) = within(async { tokio::join!(connect, server.endpoint.incoming()) }).await;
    session.expect("it answers").close(0, "");
    ours.close(0, "");
    within(client.wait_idle()).await;
    let incoming = incoming.expect("open");
    assert!(incoming.remote_address().is_some_and(|address| address.ip().is_loopback()));
    assert_eq!(
        within(incoming.accept().recv()).await.map(|block| block.data),
        Err(CloseReason::Peer { code: 0, reason: String::new() })
    );
}

#[tokio::test]
async fn blocks_that_nobody_reads_are_not_taken() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    let sent = within(ours.send(Block::new("unread"))).await.expect("accepted");
    within(sent).await;
    let undelivered = within(ours.finish(Duration::from_millis(300))).await;
    assert!(undelivered.is_empty() && !undelivered.taken, "{undelivered:?}");
    // It can still be read.
    assert_eq!(within(theirs.recv()).await.expect("it is there").data, "unread");
}

#[tokio::test]
async fn an_application_says_when_it_has_dealt_with_everything() {
    let server = server();
    let client = client(&server);
    let (ours, theirs) = within(pair(&server, &client)).await;
    theirs.confirm_on_next_recv();
    let sent = within(ours.send(Block::new("read, but not written"))).await.expect("accepted");
    within(sent).await;
    within(theirs.recv()).await.expect("a block");
    let finishing = tokio::spawn({
        let ours = ours.clone();
        async move { ours.finish(LONG).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!finishing.is_finished(), "it waits for the application");
    assert!(matches!(within(theirs.recv()).await, Err(CloseReason::Peer { code: 0, .. })));
    let undelivered = within(finishing).await.expect("no panic");
    assert!(undelivered.taken, "{undelivered:?}");
}

/// A relay to a server that loses every other datagram of its client's once it is told to. Where it is.
async fn lossy_relay(server: SocketAddr, loses: Arc<AtomicBool>) -> SocketAddr {
    let (front, back) = (bound().await, bound().await);
    back.connect(server).await.expect("an address");
    let address = front.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut there, mut here, mut client, mut count) = ([0; 2_048], [0; 2_048], None, 0);
        loop {
            tokio::select! {
                came = front.recv_from(&mut there) => {
                    let Ok((length, from)) = came else { continue };
                    client = Some(from);
                    count += 1;
                    if count % 2 == 0 || !loses.load(Ordering::Relaxed) {
                        let _ = back.send(&there[..length]).await;
                    }
                }
                came = back.recv(&mut here) => {
                    let (Ok(length), Some(client)) = (came, client) else { continue };
                    let _ = front.send_to(&here[..length], client).await;
                }
            }
        }
    });
    address
}

async fn bound() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.expect("a loopback address")
}

/// The word that an answer is taken was lost with the session, if its datagram was.
#[tokio::test]
async fn who_finishes_has_told_that_the_answer_is_taken() {
    let server = server();
    let client = client(&server);
    for n in 0..12 {
        let loses = Arc::<AtomicBool>::default();
        let relay = lossy_relay(server.address, loses.clone()).await;
        let connect = client.connect(relay, "localhost").into_future();
        let (ours, theirs) = within(async { tokio::join!(connect, server.endpoint.accept()) }).await;
        let (ours, theirs) = (ours.expect("connected"), theirs.expect("accepted"));
        let answer = async {
            within(theirs.send(Block::new("an answer"))).await.expect("accepted");
            within(theirs.finish_sending(LONG)).await
        };
        let take = async {
            loses.store(true, Ordering::Relaxed);
            while within(ours.recv_until_finished()).await.expect("open").is_some() {}
            within(ours.finish(LONG)).await
        };
        let (taken, undelivered) = tokio::join!(answer, take);
        assert!(taken, "session {n}");
        assert_eq!(undelivered.reason, Some(CloseReason::Local));
    }
}
