//! A host that has something else to do now and then: that is not the network's silence.

mod common;

use std::{future::IntoFuture as _, sync::mpsc, thread, time::Duration};

use common::{drain, server, within};
use punctual::{Block, Endpoint, Outcome};

/// The server has a thread of its own, and answers at once; it is the client's that stands still.
#[tokio::test]
async fn a_program_that_stands_still_holds_that_against_no_path() {
    let (tell, told) = mpsc::channel();
    let answering = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = server();
            tell.send((server.address, server.fingerprint)).expect("a listener");
            within(async { drain(server.endpoint.accept().await.expect("a session")).await }).await
        })
    });
    let (address, fingerprint) = told.recv().expect("a server");
    let client = Endpoint::client().trust(fingerprint).build().expect("a client");
    let session = within(client.connect(address, "localhost").into_future()).await.expect("connected");
    let mut blocks = 0;
    for _ in 0..10 {
        let first = within(session.send(Block::new(vec![1; 5_000]))).await.expect("accepted");
        // The driver's turn: the block leaves, and an answer is awaited.
        tokio::task::yield_now().await;
        thread::sleep(Duration::from_millis(60));
        // The answer is there. But the driver is woken by another block, before the runtime has looked.
        let second = within(session.send(Block::new(vec![2; 5_000]))).await.expect("accepted");
        for sent in [first, second] {
            assert!(matches!(within(sent.into_future()).await, Outcome::Delivered(_)));
            blocks += 1;
        }
    }
    assert_eq!(session.path_stats()[0].suspected, 0);
    session.close(0, "");
    within(client.wait_idle()).await;
    drop(session);
    assert_eq!(answering.join().expect("no panic"), blocks);
}
