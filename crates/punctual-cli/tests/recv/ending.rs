//! How sessions end: written or not, and by signals.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::processes::{PATIENCE, Process, Receiver, Sender, punctual, wait_for};

/// Keeps sending until the sender ends by itself.
fn send_until_it_ends(sender: &mut Sender) -> Option<i32> {
    let rounds = PATIENCE.as_millis() / 10;
    for _ in 0..rounds {
        sender.say("a line");
        if sender.said().contains("punctual: ") {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    sender.0.end_by_itself()
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_not_delivered() {
    let mut receiver = Receiver::start(&["--out", "/dev/full"]);
    let mut sender = receiver.sender(&[]);
    // One block, and nothing that would have the receiver notice but its own care to write before it asks for more.
    sender.say("a line");
    assert_eq!(sender.0.end_by_itself(), Some(7), "{}", sender.said());
    assert!(sender.said().contains("the receiver cannot go on: its output failed"), "{}", sender.said());
    assert_eq!(receiver.end(), Some(3));
    assert!(receiver.said().contains("cannot write /dev/full"), "{}", receiver.said());
}

#[test]
fn a_reader_that_goes_away_ends_the_session() {
    let mut child = punctual()
        .args(["recv", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut said = |what: &str| {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut errors, &mut line).unwrap();
        line.strip_prefix(what).unwrap_or_else(|| panic!("{line:?}")).trim().to_owned()
    };
    let (address, fingerprint) = (said("listening on "), said("fingerprint "));
    let mut command = punctual();
    command.args(["send", &address, "--fingerprint", &fingerprint, "--lines"]).stdin(Stdio::piped());
    let mut sender = Sender(crate::processes::Process::start(&mut command));
    assert_eq!(send_until_it_ends(&mut sender), Some(7), "{}", sender.said());
    let status = wait_for("end of the receiver", || child.try_wait().unwrap());
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert_eq!(status.code(), Some(3), "{rest}");
    assert!(rest.contains("cannot write standard output"), "{rest}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_of_ones_own_that_fails_is_no_end_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(&["--keep-going", "--dir", dir.path().to_str().unwrap()]);
    let mut other = receiver.sender(&[]);
    other.say("one");
    receiver.serves(1);
    let mut hapless = receiver.sender(&[]);
    receiver.serves(2);
    let own = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let own = own.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("0002-")).unwrap();
    fs::remove_dir_all(own).unwrap();
    hapless.say("two");
    assert_eq!(hapless.0.end_by_itself(), Some(7), "{}", hapless.said());
    other.say("three");
    assert_eq!(other.end(), Some(0), "{}", other.said());
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

#[test]
fn a_receiver_that_is_told_to_stop_ends_in_order() {
    for (signal, code) in [("HUP", 129), ("INT", 130), ("TERM", 143)] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let mut receiver = Receiver::start(&["--out", out.to_str().unwrap()]);
        let mut sender = receiver.sender(&[]);
        sender.say("a line");
        wait_for("line", || (fs::read_to_string(&out).unwrap() == "a line\n").then_some(()));
        receiver.process.signal(signal);
        assert_eq!(sender.0.end_by_itself(), Some(7), "{}", sender.said());
        assert!(sender.said().contains("the receiver was told to stop"), "{}", sender.said());
        assert_eq!(receiver.end(), Some(code), "{}", receiver.said());
        assert!(receiver.said().contains("1 block: 1 on time"), "{}", receiver.said());
    }
}

/// The program with these arguments, whose standard error is a disk that is full.
#[cfg(target_os = "linux")]
fn unheard(args: &[&str]) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2>/dev/full", env!("CARGO_BIN_EXE_punctual")]).args(args);
    Process::start(command.stdin(Stdio::piped()))
}

/// Whether somebody listens on the port of an address.
#[cfg(target_os = "linux")]
fn is_taken(address: &str) -> bool {
    let port: u16 = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address with a port");
    let end = format!(":{port:04X}");
    let sockets = fs::read_to_string("/proc/net/udp").expect("what Linux says of its sockets");
    sockets.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end)))
}

#[cfg(target_os = "linux")]
#[test]
fn words_that_cannot_be_written_end_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (identity, out) = (dir.path().join("identity.pem"), dir.path().join("out"));
    let (identity, out) = (identity.to_str().unwrap(), out.to_str().unwrap());
    // Where it listens, and by which fingerprint, is what one says that is heard.
    let mut heard = Receiver::start(&["--identity", identity]);
    heard.process.signal("TERM");
    heard.end();
    let (to, fingerprint) = (heard.address.as_str(), heard.fingerprint.as_str());
    let mut receiver = unheard(&["recv", "--listen", to, "--identity", identity, "--out", out, "--stats-json"]);
    // It cannot say so.
    wait_for("a receiver that listens", || is_taken(to).then_some(()));
    let mut sender = Sender(unheard(&["send", to, "--fingerprint", fingerprint, "--lines", "--stats-json"]));
    let said = sender.talk(|| fs::read_to_string(out).unwrap_or_default());
    assert_eq!((sender.end(), receiver.end_by_itself()), (Some(0), Some(0)));
    assert_eq!(fs::read_to_string(out).unwrap(), said);
    let mut lost = unheard(&["send", "no-such-host.invalid:9", "--lines", "--connect-timeout", "1s"]);
    assert_eq!(lost.end(), Some(4));
}

/// Nobody reads standard error, which is a pipe that is full: a session goes on, and a signal ends it.
#[cfg(target_os = "linux")]
#[test]
fn words_that_nobody_reads_hold_nothing_up() {
    let mut receiver = Receiver::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Holds it open, and never reads. It has room for so much.
    let mut held = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    held.write_all(&[b'x'; 1 << 16]).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2>\"$PIPE\"", env!("CARGO_BIN_EXE_punctual")]).env("PIPE", &pipe);
    command.args(["send", &receiver.address, "--fingerprint", &receiver.fingerprint, "--lines", "--stats-json"]);
    let mut sender = Sender(Process::start(command.stdin(Stdio::piped())));
    sender.talk(|| receiver.process.stdout.text());
    sender.0.signal("TERM");
    assert_eq!(sender.0.end_by_itself(), Some(143));
    drop(held);
    receiver.end();
}

/// What a receiver that is told to stop has taken in and its reader has not is said not to be written.
#[cfg(target_os = "linux")]
#[test]
fn what_is_not_written_is_told_at_a_stop() {
    for (args, code) in [(&[][..], 143), (&["--keep-going", "--strict"], 8)] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        assert!(Command::new("mkfifo").arg(&out).status().unwrap().success());
        let _unread = fs::OpenOptions::new().read(true).write(true).open(&out).unwrap();
        let mut receiver =
            Receiver::start(&[&["--out", out.to_str().unwrap(), "--stats-json", "--json"], args].concat());
        let mut sender = receiver.sender(&["--finish-timeout", "1m"]);
        // More than a pipe holds.
        sender.say(&"x".repeat(1 << 17));
        wait_for("the block", || {
            let said = receiver.said();
            let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.rev().find(|line| line["blocks"] == 1)
        });
        receiver.process.signal("TERM");
        assert_eq!(receiver.end(), Some(code), "{}", receiver.said());
        let summary: Value = serde_json::from_str(&receiver.process.stdout.text()).expect("one JSON object");
        assert_eq!((&summary["on_time"], &summary["unwritten"]), (&1.into(), &1.into()), "{summary}");
        assert_eq!(sender.end(), Some(7), "{}", sender.said());
    }
}

/// Who may open too few files is told so, however few.
#[cfg(target_os = "linux")]
#[test]
fn too_few_files_are_said_to_be_too_few() {
    let mut receiver = Receiver::start(&["--keep-going", "--out", "/dev/null"]);
    let limited = |files: u32, args: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n \"$FILES\"; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_punctual")]);
        let mut process = Process::start(command.args(args).env("FILES", files.to_string()).stdin(Stdio::null()));
        (process.end_by_itself(), process.stderr.text())
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let to = ["send", &receiver.address, "--fingerprint", &receiver.fingerprint, "--lines", file];
    let mut went = 0;
    for files in 6..24 {
        let (code, said) = limited(files, &[&to[..], &["--connect-timeout", "1s", "--quiet"]].concat());
        match code {
            Some(0) => went += 1,
            // By any code that has a meaning; a panic's has none.
            Some(1..=9) => assert!(said.contains("Too many open files"), "{files}: {said}"),
            code => panic!("{files}: {code:?}: {said}"),
        }
    }
    assert!(went > 0, "some of these are enough");
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

/// A receiver with an identity that is kept in `dir`, where the output of each of its senders goes.
fn lasting(dir: &Path, listen: &str) -> Receiver {
    let (identity, out) = (dir.join("identity.pem"), dir.join("{number}"));
    let args = ["--identity", identity.to_str().unwrap(), "--keep-going", "--out", out.to_str().unwrap()];
    Receiver::of(punctual().args(["recv", "--listen", listen]).args(args).stdin(Stdio::null()))
}

/// One that is there again at once says that it does not know the session, long before the idle timeout; and one that is there later is called until it is.
#[test]
fn a_receiver_that_was_killed_and_is_there_again_is_called_again() {
    for (strict, code) in [(&[][..], 0), (&["--strict"][..], 8)] {
        let dir = tempfile::tempdir().unwrap();
        let start = |listen: &str| lasting(dir.path(), listen);
        let mut receiver = start("127.0.0.1:0");
        let address = receiver.address.clone();
        let patient = ["--idle-timeout", "1m", "--reconnect", "1m", "--json", "--stats-json"];
        let mut sender = receiver.sender(&[&patient, strict].concat());
        for n in 1..=3 {
            sender.say(&format!("line {n}"));
            let file = dir.path().join(format!("{n:04}"));
            let line = format!("line {n}\n");
            wait_for(&line, || fs::read_to_string(&file).is_ok_and(|text| text == line).then_some(()));
            if n < 3 {
                // What is written but not known to be there would be sent once more.
                wait_for("word of it", || {
                    let said = sender.said();
                    let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
                    lines.any(|line| line["on_time"] == n).then_some(())
                });
                receiver.process.signal("KILL");
                receiver.process.end_by_itself();
                receiver = start(&address);
            }
        }
        assert_eq!(sender.end(), Some(code), "{}", sender.said());
        // Three sessions, and so two that it connected again for: each has a file.
        assert!(!dir.path().join("0004").exists(), "{}", sender.said());
        // Nobody can say that those which were killed had taken what was delivered to them.
        let summary: Value = serde_json::from_str(&sender.0.stdout.text()).expect("one JSON object");
        let told = (&summary["on_time"], &summary["unconfirmed"], &summary["confirmed"]);
        assert_eq!(told, (&3.into(), &2.into(), &false.into()));
        // Also what went over the paths of those that were lost, the lines that nobody was there to take included.
        let paths = summary["paths"].as_array().expect("a list");
        let told: Vec<_> = paths.iter().map(|path| (path["health"].as_str(), path["source_bytes"].as_u64())).collect();
        let before = summary["sent"]["source_bytes"].as_u64().map(|all| all - 7);
        assert!(before >= Some(14), "{summary}");
        assert_eq!(told, [(Some("active"), Some(7)), (Some("closed"), before)], "{summary}");
    }
}

/// What was read before the input turned out to be no good is sent once there is a session again.
#[test]
fn an_input_that_ends_badly_during_an_outage_is_sent_as_far_as_it_is_good() {
    let dir = tempfile::tempdir().unwrap();
    let start = |listen: &str| lasting(dir.path(), listen);
    let receiver = start("127.0.0.1:0");
    let (address, fingerprint) = (receiver.address.clone(), receiver.fingerprint.clone());
    let args =
        ["--framed", "--idle-timeout", "500ms", "--reconnect", "1m", "--fingerprint", &fingerprint, "--stats-json"];
    let mut sender = Process::start(punctual().args(["send", &address]).args(args).stdin(Stdio::piped()));
    let mut input = sender.input();
    let wrote = |name: &str, text: &str| {
        let file = dir.path().join(name);
        wait_for(text, || fs::read_to_string(&file).is_ok_and(|written| written == text).then_some(()));
    };
    input.write_all(b"\0\0\0\x03one").unwrap();
    wrote("0001", "one");
    // What is written but not known to be there would be sent once more, and be the second.
    wait_for("word of it", || sender.stderr.text().contains("\"on_time\":1").then_some(()));
    drop(receiver);
    // The session is lost.
    sender.stderr.after("\"confirmed\":false");
    input.write_all(b"\0\0\0\x03two\0\0\0\x09cut").unwrap();
    drop(input);
    let _receiver = start(&address);
    assert_eq!(sender.end_by_itself(), Some(2), "{}", sender.stderr.text());
    wrote("0002", "two");
}

/// That the input is no good comes to light before it does that the session is gone: what waits is sent all the same, once there is another.
#[test]
fn an_input_that_ends_badly_before_an_outage_is_noticed_is_sent_as_far_as_it_is_good() {
    let dir = tempfile::tempdir().unwrap();
    let start = |listen: &str| lasting(dir.path(), listen);
    let mut receiver = start("127.0.0.1:0");
    let (address, fingerprint) = (receiver.address.clone(), receiver.fingerprint.clone());
    let args =
        ["--framed", "--idle-timeout", "2s", "--finish-timeout", "1m", "--reconnect", "1m", "--json", "--stats-json"];
    let mut command = punctual();
    command.args(["send", &address, "--fingerprint", &fingerprint]).args(args);
    let mut sender = Process::start(command.stdin(Stdio::piped()));
    let mut input = sender.input();
    let wrote = |name: &str, text: &str| {
        let file = dir.path().join(name);
        wait_for(text, || fs::read_to_string(&file).is_ok_and(|written| written == text).then_some(()));
    };
    input.write_all(b"\0\0\0\x03one").unwrap();
    wrote("0001", "one");
    // What is written but not known to be there would be sent once more, and be the second.
    wait_for("word of it", || sender.stderr.text().contains("\"on_time\":1").then_some(()));
    // It answers nothing any more, and nobody says so.
    receiver.process.stop();
    input.write_all(b"\0\0\0\x03two\0\0\0\x09cut").unwrap();
    drop(input);
    // The session is lost.
    sender.stderr.after("\"confirmed\":false");
    receiver.process.signal("KILL");
    receiver.process.end_by_itself();
    let _receiver = start(&address);
    assert_eq!(sender.end_by_itself(), Some(2), "{}", sender.stderr.text());
    wrote("0002", "two");
    assert!(sender.stderr.text().contains("the input ends in the middle of a message"), "{}", sender.stderr.text());
    let summary: Value = serde_json::from_str(&sender.stdout.text()).expect("one JSON object");
    assert_eq!((&summary["blocks"], &summary["on_time"]), (&2.into(), &2.into()), "{summary}");
}

#[test]
fn a_receiver_without_senders_can_be_told_to_stop() {
    for (args, code) in [(&["--out", "/dev/null"][..], 143), (&["--out", "/dev/null", "--keep-going"], 0)] {
        let mut receiver = Receiver::start(args);
        receiver.process.signal("TERM");
        assert_eq!(receiver.end(), Some(code), "{}", receiver.said());
    }
}

#[test]
fn a_sender_that_is_told_to_stop_finishes_what_it_has_begun() {
    for (signal, code) in [("HUP", 129), ("INT", 130), ("TERM", 143)] {
        let mut receiver = Receiver::start(&[]);
        let mut sender = receiver.sender(&[]);
        sender.say("a line");
        receiver.serves(1);
        wait_for("line", || (receiver.process.stdout.text() == "a line\n").then_some(()));
        sender.0.signal(signal);
        assert_eq!(sender.0.end_by_itself(), Some(code), "{}", sender.said());
        assert!(sender.said().contains("1 block: 1 on time"), "{}", sender.said());
        assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let receiver = Receiver::start(&[]);
    let mut sender = receiver.sender(&["--finish-timeout", "10m", "--idle-timeout", "10m"]);
    sender.say("a line");
    wait_for("line", || (receiver.process.stdout.text() == "a line\n").then_some(()));
    // From now on nothing is answered, and there is something to wait for.
    receiver.process.stop();
    sender.say("another");
    sender.0.signal("TERM");
    sender.0.signal("INT");
    let code = sender.0.end_by_itself();
    assert!(matches!(code, Some(130 | 143)), "{code:?}: {}", sender.said());
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_is_to_be_ignored_is() {
    let mut shell = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_punctual");
    shell
        .args(["-c", &format!("trap '' HUP; exec '{program}' recv --listen 127.0.0.1:0 --out /dev/null --keep-going")]);
    let mut receiver = Receiver::of(shell.stdin(Stdio::null()));
    receiver.process.signal("HUP");
    let mut sender = receiver.sender(&[]);
    sender.say("a line");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}
