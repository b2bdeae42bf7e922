//! More than one sender.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::processes::{Receiver, wait_for};

/// Waits until a file holds this.
fn holds(path: &Path, text: &str) {
    wait_for(&format!("{text:?} in {}", path.display()), || {
        fs::read_to_string(path).is_ok_and(|held| held == text).then_some(())
    });
}

#[test]
fn a_second_sender_is_refused_at_the_door() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut receiver = Receiver::start(&["--out", out.to_str().unwrap()]);
    let mut first = receiver.sender(&[]);
    first.say("first");
    receiver.serves(1);

    let mut second = receiver.sender(&["--json"]);
    second.say("second");
    assert_eq!(second.0.end_by_itself(), Some(9), "{}", second.said());
    let said = second.said();
    assert!(said.starts_with("punctual: the receiver refused the session: busy: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let summary: Value = serde_json::from_str(&second.0.stdout.text()).expect("one JSON object");
    assert_eq!((&summary["on_time"], &summary["late"], &summary["bytes"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!(summary["dropped"], summary["blocks"]);

    first.say("last");
    assert_eq!(first.end(), Some(0), "{}", first.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    assert_eq!(fs::read_to_string(&out).unwrap(), "first\nlast\n");
}

#[test]
fn with_a_placeholder_each_has_a_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("got-0001.txt"), "of an earlier run").unwrap();
    let mut receiver = Receiver::start(&["--out", dir.path().join("got-{number}.txt").to_str().unwrap()]);
    let mut first = receiver.sender(&[]);
    first.say("first");
    receiver.serves(1);
    let mut second = receiver.sender(&[]);
    second.say("second");
    receiver.serves(2);
    holds(&dir.path().join("got-0002.txt"), "first\n");
    holds(&dir.path().join("got-0003.txt"), "second\n");
    assert_eq!((first.end(), second.end()), (Some(0), Some(0)));
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    holds(&dir.path().join("got-0001.txt"), "of an earlier run");
}

#[test]
fn a_receiver_that_keeps_going_has_a_directory_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(&["--keep-going", "--dir", dir.path().to_str().unwrap()]);
    let mut senders = [receiver.sender(&[]), receiver.sender(&[]), receiver.sender(&[])];
    for (n, sender) in senders.iter_mut().enumerate() {
        sender.say(&format!("sender {n}"));
    }
    receiver.serves(3);
    for sender in &mut senders {
        assert_eq!(sender.end(), Some(0), "{}", sender.said());
    }
    receiver.process.signal("INT");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    let mut got: BTreeMap<String, String> = BTreeMap::new();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        got.insert(name, fs::read_to_string(path.join("00000000.block")).unwrap());
    }
    let names: Vec<_> = got.keys().map(|name| name.rsplit_once('-').unwrap().0).collect();
    assert_eq!(names, ["0001-127.0.0.1", "0002-127.0.0.1", "0003-127.0.0.1"]);
    let mut lines: Vec<_> = got.values().map(String::as_str).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["sender 0\n", "sender 1\n", "sender 2\n"]);
}

#[test]
fn one_output_takes_one_sender_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut receiver = Receiver::start(&["--keep-going", "--out", out.to_str().unwrap()]);
    for n in 0..4 {
        let mut sender = receiver.sender(&[]);
        sender.say(&n.to_string());
        assert_eq!(sender.end(), Some(0), "{}", sender.said());
    }
    receiver.serves(4);
    let mut fifth = receiver.sender(&[]);
    fifth.say("4");
    receiver.serves(5);
    let mut meanwhile = receiver.sender(&[]);
    meanwhile.say("no");
    assert_eq!(meanwhile.0.end_by_itself(), Some(9), "{}", meanwhile.said());
    assert_eq!(fifth.end(), Some(0));
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    assert_eq!(fs::read_to_string(&out).unwrap(), "0\n1\n2\n3\n4\n");
}

#[cfg(target_os = "linux")]
#[test]
fn who_waits_for_the_output_has_delivered_nothing_yet() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    assert!(Command::new("mkfifo").arg(&out).status().unwrap().success());
    // Open for both, so that neither end waits for the other; nobody reads for now.
    let pipe = fs::OpenOptions::new().read(true).write(true).open(&out).unwrap();
    let mut receiver = Receiver::start(&["--keep-going", "--out", out.to_str().unwrap()]);
    let impatient = ["--finish-timeout", "300ms", "--json"];
    let first = "more than a pipe holds".repeat(50_000);
    let mut sender = receiver.sender(&impatient);
    sender.say(&first);
    receiver.serves(1);
    assert_eq!(sender.end(), Some(7), "{}", sender.said());

    // Its line is still being written, so that these are to wait. One does not wait for long,
    let mut second = receiver.sender(&impatient);
    second.say("second");
    assert_eq!(second.end(), Some(7), "{}", second.said());
    let summary: Value = serde_json::from_str(&second.0.stdout.text()).expect("one JSON object");
    assert_eq!((&summary["on_time"], &summary["late"], &summary["dropped"]), (&0.into(), &0.into(), &1.into()));
    // and one does.
    let mut third = receiver.sender(&[]);
    third.say("third");
    let mut lines = BufReader::new(pipe).lines().map(|line| line.expect("text"));
    assert!(lines.next() == Some(first));
    assert_eq!(lines.next().as_deref(), Some("third"));
    assert_eq!(third.end(), Some(0), "{}", third.said());
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

/// Those who wait for an output whose reader does not read are no more than there is room for, and who has gone gives its place up.
#[cfg(target_os = "linux")]
#[test]
fn no_more_wait_for_the_output_than_there_is_room_for() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    assert!(Command::new("mkfifo").arg(&out).status().unwrap().success());
    let _unread = fs::OpenOptions::new().read(true).write(true).open(&out).unwrap();
    let mut receiver = Receiver::start(&["--keep-going", "--out", out.to_str().unwrap()]);
    let call = |receiver: &Receiver, line: &str| {
        let mut sender = receiver.sender(&["--finish-timeout", "200ms"]);
        sender.say(line);
        sender.end()
    };
    assert_eq!(call(&receiver, &"more than a pipe holds".repeat(50_000)), Some(7));
    // More than may wait, one after the other, each of which waits and has gone when the next calls.
    for n in 0..20 {
        assert_eq!(call(&receiver, "a line"), Some(7), "{n}");
    }
    let wait = |receiver: &Receiver| {
        let mut sender = receiver.sender(&[]);
        sender.say("a line");
        sender
    };
    let mut waiting: Vec<_> = (0..17).map(|_| wait(&receiver)).collect();
    let refused = wait_for("one too many", || waiting.iter_mut().position(|sender| !sender.0.is_running()));
    let mut refused = waiting.swap_remove(refused);
    assert_eq!(refused.end(), Some(9), "{}", refused.said());
    assert_eq!(call(&receiver, "a line"), Some(9));
    let mut gone = waiting.swap_remove(0);
    gone.0.signal("TERM");
    assert_eq!(gone.0.end_by_itself(), Some(143), "{}", gone.said());
    assert_eq!(call(&receiver, "a line"), Some(7), "there is room");
    assert!(waiting.iter_mut().all(|sender| sender.0.is_running()), "the others wait");
    receiver.process.signal("TERM");
    receiver.process.signal("TERM");
    assert!(receiver.end().is_some(), "{}", receiver.said());
}

#[test]
fn once_ends_with_the_first_whatever_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(&["--once", "--out", dir.path().join("{peer}.txt").to_str().unwrap()]);
    let mut sender = receiver.sender(&[]);
    sender.say("one");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1);
    assert!(names[0].to_str().unwrap().starts_with("127.0.0.1-"), "{names:?}");
}

#[test]
fn names_that_make_no_sense_are_said_to() {
    for (args, code, word) in [
        (&["--out", "{date}.h264"][..], 2, "{number} and {peer} only"),
        (&["--out", "/no/such/{number}"], 3, "/no/such"),
        (&["--keep-going", "--dir", "/dev/null/x"], 3, "/dev/null/x"),
        (&["--keep-going", "--once"], 2, "cannot be used with"),
    ] {
        let output = crate::processes::punctual().arg("recv").args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(word), "{args:?}: {text}");
    }
}

#[test]
fn help_names_the_placeholders() {
    let output = crate::processes::punctual().args(["recv", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for word in ["--out 'clip-{number}.h264'", "{number} stands for", "the directory {number}-{peer} in it"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}
