//! What lies under the name of an output: it is nobody's to lose.

use std::{fs, io::Write as _, path::Path, process::Stdio, time::Duration};

use serde_json::Value;

use super::processes::{PATIENCE, Process, Receiver, punctual, wait_for};

/// The fingerprint of a receiver that there is not.
const NOBODY: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn one_object(process: &Process) -> Value {
    serde_json::from_str(&process.stdout.text()).expect("one JSON object")
}

/// Runs it to its end; the code and what it said.
fn runs(args: &[&str]) -> (Option<i32>, String) {
    let output = punctual().args(args).stdin(Stdio::null()).output().expect("the program starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn who_cannot_start_empties_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [film, other] = ["film", "other"].map(|name| dir.path().join(name));
    let mut receiver = Receiver::start(&["--out", film.to_str().unwrap()]);
    let mut sender = receiver.sender(&["--strict"]);
    sender.say("first");
    wait_for("the first line", || (text(&film) == "first\n").then_some(()));
    // The same once more, by mistake: the port is taken. Elsewhere, the file is.
    let (code, said) = runs(&["recv", "--listen", &receiver.address, "--out", film.to_str().unwrap()]);
    assert!(matches!(code, Some(3 | 6)), "{code:?}: {said}");
    let (code, said) = runs(&["recv", "--listen", "127.0.0.1:0", "--out", film.to_str().unwrap()]);
    assert!(code == Some(3) && said.contains("another program"), "{code:?}: {said}");
    fs::write(&other, "of last year").unwrap();
    let (code, said) = runs(&["recv", "--listen", &receiver.address, "--out", other.to_str().unwrap()]);
    assert_eq!(code, Some(6), "{said}");
    let (code, _) = runs(&["recv", "--out", other.to_str().unwrap(), "--reply", "/no/such/file"]);
    assert_eq!(code, Some(3));
    let args = ["send", "127.0.0.1:9", "--fingerprint", NOBODY, "--connect-timeout", "1s", "--lines", "--receive"];
    let (code, said) = runs(&[&args[..], &[other.to_str().unwrap()]].concat());
    assert_ne!(code, Some(0), "{said}");
    assert_eq!(text(&other), "of last year");
    sender.say("last");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    assert_eq!(text(&film), "first\nlast\n");
    // Who begins does so anew, though nothing comes.
    let mut receiver = Receiver::start(&["--out", film.to_str().unwrap()]);
    assert_eq!(text(&film), "");
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(143));
}

#[test]
fn what_is_read_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input");
    fs::write(&input, "a line\n").unwrap();
    let link = dir.path().join("link");
    fs::hard_link(&input, &link).unwrap();
    let (input, link) = (input.to_str().unwrap(), link.to_str().unwrap());
    for args in [
        &["send", "127.0.0.1:9", "--fingerprint", NOBODY, "--lines", input, "--receive", link][..],
        &["recv", "--reply", input, "--out", link],
    ] {
        let (code, said) = runs(args);
        assert!(code == Some(2) && said.contains("is what is read"), "{args:?}: {code:?} {said}");
    }
    assert_eq!(text(Path::new(input)), "a line\n");
}

/// A sender that is at the same address again, whoever has been started anew.
#[test]
fn a_name_by_address_is_not_overwritten_by_a_later_run() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("{peer}.txt");
    for _ in 0..2 {
        let mut receiver = Receiver::start(&["--out", out.to_str().unwrap()]);
        // A port that was free a moment ago.
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let port = fs::read_to_string(dir.path().join("port")).ok().unwrap_or_else(|| port.to_string());
        fs::write(dir.path().join("port"), &port).unwrap();
        let mut sender = receiver.sender(&["--path", &format!("127.0.0.1:{port}")]);
        sender.say("a line");
        assert_eq!(sender.end(), Some(0), "{}", sender.said());
        receiver.process.signal("TERM");
        assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    }
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some());
    assert_eq!(names.iter().map(|path| text(path)).collect::<Vec<_>>(), ["a line\n"; 2], "{names:?}");
}

/// What lies in the session when a receiver is told to stop is not written, either.
#[cfg(target_os = "linux")]
#[test]
fn all_that_came_and_was_not_written_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    assert!(std::process::Command::new("mkfifo").arg(&out).status().unwrap().success());
    let _unread = fs::OpenOptions::new().read(true).write(true).open(&out).unwrap();
    let mut receiver = Receiver::start(&["--out", out.to_str().unwrap(), "--json"]);
    let mut sender = receiver.sender(&["--finish-timeout", "1m", "--json", "--stats-json"]);
    for _ in 0..500 {
        sender.say(&"x".repeat(4_000));
    }
    wait_for("word of all", || {
        let said = sender.said();
        let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.any(|line| line["on_time"] == 500).then_some(())
    });
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(143), "{}", receiver.said());
    assert_eq!(sender.end(), Some(7), "{}", sender.said());
    let summary = one_object(&receiver.process);
    // A pipe holds 64 KiB.
    let unwritten = summary["unwritten"].as_u64().expect("a number");
    assert!(summary["blocks"] == 500 && (470..500).contains(&unwritten), "{summary}");
}

#[test]
fn who_has_nothing_to_say_can_listen() {
    let dir = tempfile::tempdir().unwrap();
    let heard = dir.path().join("heard");
    let mut receiver =
        Receiver::of(punctual().args(["recv", "--listen", "127.0.0.1:0", "--reply", "-"]).stdin(Stdio::piped()));
    let mut command = punctual();
    command.args(["send", &receiver.address, "--fingerprint", &receiver.fingerprint, "--lines", "--receive"]);
    let mut sender = Process::start(command.arg(&heard).stdin(Stdio::null()));
    let mut words = receiver.process.input();
    let mut all = String::new();
    for n in 0..3 {
        writeln!(words, "{n}").unwrap();
        all += &format!("{n}\n");
        wait_for(&all, || (text(&heard) == all).then_some(()));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(sender.is_running(), "{}", sender.stderr.text());
    drop(words);
    assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

/// Of whichever channel.
#[test]
fn a_latency_is_asked_for_every_channel() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut receiver = Receiver::start(&["--out", out.to_str().unwrap(), "--json"]);
    let args = ["send", &receiver.address, "--fingerprint", &receiver.fingerprint, "--framed-headers", "--latency"];
    let mut sender = Process::start(punctual().args(args).arg("1s").stdin(Stdio::piped()));
    let mut input = sender.input();
    for n in 0..10_u8 {
        let channel = ["0", "1", "none"][usize::from(n) % 3];
        let header = format!("channel={channel} deadline=1s\n");
        input.write_all(&[header.as_bytes(), &[0, 0, 0, 1], &[b'a' + n]].concat()).unwrap();
    }
    drop(input);
    assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    let summary = one_object(&receiver.process);
    assert!(summary["blocks"] == 10 && summary["released"]["waited"] == 10, "{summary}");
    // No more than a receiver grants.
    let (code, said) = runs(&["send", "127.0.0.1:9", "--fingerprint", NOBODY, "--lines", "--latency", "20s"]);
    assert!(code == Some(2) && said.contains("10 s"), "{code:?} {said}");
}

/// A session with both ways is called again for the sake of what comes back, too.
#[test]
fn who_only_listens_any_more_connects_again() {
    let dir = tempfile::tempdir().unwrap();
    let [identity, heard, reply] = ["identity.pem", "heard", "reply"].map(|name| dir.path().join(name));
    fs::write(&reply, "a reply\n").unwrap();
    let start = |listen: &str, from: &str| {
        let args = ["recv", "--listen", listen, "--identity", identity.to_str().unwrap(), "--reply", from];
        Receiver::of(punctual().args(args).stdin(Stdio::piped()))
    };
    let mut receiver = start("127.0.0.1:0", "-");
    let mut command = punctual();
    command.args(["send", &receiver.address, "--fingerprint", &receiver.fingerprint, "--lines", "--receive"]);
    command.arg(&heard).args(["--idle-timeout", "1m", "--reconnect", "1m"]).stdin(Stdio::piped());
    let mut sender = Process::start(&mut command);
    writeln!(sender.input(), "all there is").unwrap();
    receiver.serves(1);
    let mut words = receiver.process.input();
    writeln!(words, "hello").unwrap();
    wait_for("hello", || (text(&heard) == "hello\n").then_some(()));
    receiver.process.signal("KILL");
    receiver.process.end_by_itself();
    let mut again = start(&receiver.address, reply.to_str().unwrap());
    assert_eq!(sender.end_by_itself(), Some(0), "{} within {PATIENCE:?}", sender.stderr.text());
    assert_eq!(again.end(), Some(0), "{}", again.said());
    assert_eq!(text(&heard), "hello\na reply\n");
}
