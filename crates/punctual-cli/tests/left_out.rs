//! Blocks that no session takes: `punctual send` sends the others, and does not say that all is well.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use punctual::{Endpoint, Identity, Limits};
use serde_json::Value;

/// A receiver of blocks up to 1,000 bytes.
struct Picky {
    address: String,
    fingerprint: String,
    received: thread::JoinHandle<Vec<Vec<u8>>>,
}

impl Picky {
    fn start() -> Self {
        let (tell, told) = mpsc::channel();
        let received = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let identity = Identity::self_signed(["localhost"]).unwrap();
                let fingerprint = identity.fingerprint().to_string();
                let mut config = punctual::Config::default();
                config.session.limits = Limits::default().max_block_size(1_000);
                let listen: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
                let endpoint = Endpoint::server(identity).config(config).bind(listen.into()).build().unwrap();
                tell.send((endpoint.locals()[0].address.to_string(), fingerprint)).unwrap();
                let session = endpoint.accept().await.unwrap();
                let mut received = Vec::new();
                while let Ok(block) = session.recv().await {
                    received.push(block.data.to_vec());
                }
                received
            })
        });
        let (address, fingerprint) = told.recv_timeout(Duration::from_secs(60)).unwrap();
        Self { address, fingerprint, received }
    }

    fn send(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(["send", &self.address, "--fingerprint", &self.fingerprint, "--json"]).args(args);
        command.env_remove("RUST_LOG").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        // It may end before it has read everything.
        let _ = child.stdin.take().expect("it is piped").write_all(input);
        child.wait_with_output().expect("it ends")
    }
}

fn message(len: usize) -> Vec<u8> {
    [&u32::try_from(len).unwrap().to_be_bytes()[..], &vec![b'x'; len]].concat()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn figures(output: &Output) -> [Value; 4] {
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    ["blocks", "on_time", "dropped", "left_out"].map(|key| json[key].clone())
}

/// However soon they leave: before the receiver has said how large they may be, too.
#[test]
fn what_is_too_large_for_the_receiver_is_told_and_the_rest_is_sent() {
    for strict in [&[][..], &["--strict"]] {
        let receiver = Picky::start();
        let input = [message(1_001), message(10), message(2_000), message(20)].concat();
        let sent = receiver.send(&[&["--framed"], strict].concat(), &input);
        assert_eq!(sent.status.code(), Some(2), "{}", said(&sent));
        assert_eq!(figures(&sent), [4, 2, 2, 2].map(Value::from));
        for words in ["block 1 is left out: a block of 1001 bytes exceeds the limit of 1000", "2 blocks are left out"] {
            assert!(said(&sent).contains(words), "{words}: {}", said(&sent));
        }
        let sizes: Vec<usize> = receiver.received.join().unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [10, 20]);
    }
}

#[test]
fn what_no_receiver_takes_is_told_and_the_rest_is_sent() {
    let receiver = Picky::start();
    let input = [message(10), message((16 << 20) + 1), message(20)].concat();
    let sent = receiver.send(&["--framed"], &input);
    assert_eq!(sent.status.code(), Some(2), "{}", said(&sent));
    assert_eq!(figures(&sent), [3, 2, 1, 1].map(Value::from));
    let words = "block 2 is left out: a block of 16777217 bytes exceeds the limit of 16777216";
    assert!(said(&sent).contains(words), "{}", said(&sent));
    let sizes: Vec<usize> = receiver.received.join().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [10, 20]);
}

#[test]
fn an_input_of_which_nothing_can_be_sent_is_no_good() {
    let receiver = Picky::start();
    let sent = receiver.send(&["--chunks", "2K"], &[0; 6_144]);
    assert_eq!(sent.status.code(), Some(2), "{}", said(&sent));
    assert_eq!(figures(&sent), [3, 0, 3, 3].map(Value::from));
    assert!(receiver.received.join().unwrap().is_empty());
}

#[test]
fn a_channel_too_many_is_left_out_and_nothing_else() {
    let receiver = Picky::start();
    let input: Vec<u8> = (0..260)
        .flat_map(|n| [format!("channel={n}\n").into_bytes(), message(10)].concat())
        // One that there is already has room.
        .chain([b"channel=7\n".to_vec(), message(11)].concat())
        .collect();
    let sent = receiver.send(&["--framed-headers"], &input);
    assert_eq!(sent.status.code(), Some(2), "{}", said(&sent));
    assert_eq!(figures(&sent), [261, 257, 4, 4].map(Value::from));
    assert!(said(&sent).contains("block 257 is left out: its channel is one more"), "{}", said(&sent));
    assert_eq!(receiver.received.join().unwrap().len(), 257);
}
