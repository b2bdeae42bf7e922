//! Who may send, and what comes from those who may not.

use std::{fs, net::UdpSocket, path::Path, process::Stdio};

use crate::processes::{Receiver, Sender, punctual};

/// A sender that shows the identity in this file, which is made if there is none.
fn sender_as(receiver: &Receiver, identity: &Path) -> Sender {
    let mut sender = receiver.sender(&["--identity", identity.to_str().unwrap()]);
    sender.say("a line");
    sender
}

/// Makes an identity, and gives its fingerprint.
fn identity(path: &Path) -> String {
    let mut receiver = Receiver::start(&["--identity", path.to_str().unwrap(), "--out", "/dev/null"]);
    receiver.process.signal("TERM");
    receiver.end();
    receiver.fingerprint
}

#[test]
fn only_senders_that_were_named_are_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let [known, also, unknown] = ["known", "also", "unknown"].map(|name| dir.path().join(name));
    let (first, second) = (identity(&known), identity(&also));
    let out = dir.path().join("{number}.txt");
    let args = ["--out", out.to_str().unwrap(), "--client-fingerprint", &first, "--client-fingerprint", &second];
    let mut receiver = Receiver::start(&args);

    let mut sender = sender_as(&receiver, &unknown);
    assert_eq!(sender.0.end_by_itself(), Some(9), "{}", sender.said());
    let made = identity(&unknown);
    assert!(sender.said().contains(&format!("made {}: fingerprint {made}", unknown.display())), "{}", sender.said());
    let refused = sender.said().lines().find(|line| line.contains("does not let this sender in")).unwrap().to_owned();
    assert!(refused.contains(&made), "whoever runs the receiver must be told which to let in: {refused}");

    let mut nobody = receiver.sender(&[]);
    nobody.say("a line");
    assert_eq!(nobody.0.end_by_itself(), Some(9), "{}", nobody.said());
    assert!(nobody.said().contains("--identity"), "{}", nobody.said());

    for path in [&known, &also] {
        let mut sender = sender_as(&receiver, path);
        assert_eq!(sender.end(), Some(0), "{}", sender.said());
    }
    receiver.serves(2);
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!([read("0001.txt"), read("0002.txt")], ["a line\n", "a line\n"]);
    assert!(!dir.path().join("0003.txt").exists());
}

#[test]
fn an_authority_says_who_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let [known, unknown] = ["known", "unknown"].map(|name| dir.path().join(name));
    identity(&known);
    // A certificate that vouches for itself is its own authority.
    let mut receiver = Receiver::start(&["--client-ca", known.to_str().unwrap()]);
    let mut sender = sender_as(&receiver, &unknown);
    assert_eq!(sender.0.end_by_itself(), Some(9), "{}", sender.said());
    let mut sender = sender_as(&receiver, &known);
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    assert_eq!(receiver.process.stdout.text(), "a line\n");
}

#[test]
fn only_senders_with_a_token_are_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (first, second, wrong) = ("5f1d0c9b8a7e6f42", "00000000000000000000000000000000", "5f1d0c9b8a7e6f43");
    let known = file("known", &format!("# camera 1\n{first}\n"));
    let (mine, other) = (file("mine", &format!("{first}\n")), file("other", wrong));
    let out = dir.path().join("{number}.txt");
    let mut command = punctual();
    command.args(["recv", "--listen", "127.0.0.1:0", "--out", out.to_str().unwrap(), "--token", &known]);
    command.args(["--token", "@PUNCTUAL_TEST_TOKEN"]).env("PUNCTUAL_TEST_TOKEN", second).stdin(Stdio::null());
    let mut receiver = Receiver::of(&mut command);

    let send = |receiver: &Receiver, args: &[&str]| {
        let mut sender = receiver.sender(args);
        sender.say("a line");
        let code = sender.0.end_by_itself_or_with_its_input();
        (code, sender.said())
    };
    let (code, said) = send(&receiver, &["--token", &other]);
    assert!(code == Some(9) && said.contains("that of --token is not one that it knows"), "{code:?} {said}");
    assert!(!said.contains(wrong), "secrets are not shown: {said}");
    let (code, said) = send(&receiver, &[]);
    assert!(code == Some(9) && said.contains("show one with --token"), "{code:?} {said}");
    let (code, said) = send(&receiver, &["--token", &mine]);
    assert_eq!(code, Some(0), "{said}");
    // By the other token, from a settings file.
    let settings = file("settings.toml", &format!("token = {:?}\n", file("second", second)));
    let (code, said) = send(&receiver, &["--config", &settings]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = send(&receiver, &["--token", "/no/such/file"]);
    assert!(code == Some(3) && said.contains("/no/such/file"), "{code:?} {said}");

    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!([read("0001.txt"), read("0002.txt")], ["a line\n", "a line\n"]);
    assert!(!dir.path().join("0003.txt").exists(), "nobody else was let in");
    assert!(!receiver.said().contains(first), "{}", receiver.said());
}

#[test]
fn a_token_is_not_shown_to_a_stranger() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, "5f1d0c9b8a7e6f42").unwrap();
    // A receiver that is not the one that is trusted, and would take anybody.
    let mut receiver = Receiver::start(&["--out", "/dev/null"]);
    let fingerprint = "77".repeat(32);
    let mut sender = punctual();
    sender.args(["send", &receiver.address, "--fingerprint", &fingerprint, "--lines", "--token"]).arg(&path);
    let output = sender.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!receiver.said().contains("receiving from"), "it never was its sender");
    receiver.process.signal("TERM");
    receiver.end();
}

#[test]
fn junk_is_no_end() {
    let mut receiver = Receiver::start(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Of each size, beginning with each kind of QUIC header: a version that nobody speaks, an Initial of nonsense, a short header.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for size in (0..1500).step_by(7) {
        let mut datagram: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(size)
        .collect();
        for head in [
            &[][..],
            &[0xc0, 0x0a, 0x0a, 0x0a, 0x0a],
            &[0xc3, 0, 0, 0, 1, 8],
            &[0xc3, 0, 0, 0, 1, 255],
            &[0x40],
            &[0xff, 0, 0, 0, 0],
        ] {
            if let Some(begin) = datagram.get_mut(..head.len()) {
                begin.copy_from_slice(head);
            }
            // The system may not take it; one more or less is no matter.
            let _ = socket.send_to(&datagram, &receiver.address);
        }
    }
    let mut sender = receiver.sender(&[]);
    sender.say("a line");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    assert_eq!(receiver.process.stdout.text(), "a line\n");
}

#[test]
fn what_is_no_fingerprint_is_said_to() {
    let output = crate::processes::punctual().args(["recv", "--client-fingerprint", "abc"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("64 hexadecimal digits"), "{text}");
}
