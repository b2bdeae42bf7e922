//! Blocks both ways in one session.

use std::{fs, io::Write as _, path::Path, process::Stdio, thread, time::Duration};

use serde_json::Value;

use crate::processes::{Process, Receiver, punctual, wait_for};

const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/clip.h264");

fn receiver_with_input(args: &[&str]) -> Receiver {
    Receiver::of(punctual().args(["recv", "--listen", "127.0.0.1:0"]).args(args).stdin(Stdio::piped()))
}

fn sender(receiver: &Receiver, args: &[&str]) -> Process {
    let mut command = punctual();
    command.args(["send", &receiver.address, "--fingerprint", &receiver.fingerprint]).args(args);
    Process::start(command.stdin(Stdio::piped()))
}

fn json(process: &Process) -> Value {
    serde_json::from_str(&process.stdout.text()).expect("one JSON object")
}

#[test]
fn a_video_goes_one_way_and_commands_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let (video, commands) = (dir.path().join("video.h264"), dir.path().join("commands"));
    let mut receiver = receiver_with_input(&["--out", video.to_str().unwrap(), "--reply", "-", "--json"]);
    let mut operator = receiver.process.input();
    let mut sender = sender(&receiver, &["--h264", "--receive", commands.to_str().unwrap(), "--json"]);
    let mut camera = sender.input();
    let bytes = fs::read(CLIP).unwrap();
    // A command goes before there is any video, and one in the midst of it.
    writeln!(operator, "wake up").unwrap();
    let come = |what: &str| wait_for(what, || fs::read_to_string(&commands).ok().filter(|text| text == what));
    come("wake up\n");
    camera.write_all(&bytes[..bytes.len() / 2]).unwrap();
    writeln!(operator, "left").unwrap();
    come("wake up\nleft\n");
    // One after the end of the video, too: the session lasts until both have no more to say.
    camera.write_all(&bytes[bytes.len() / 2..]).unwrap();
    drop(camera);
    wait_for("the whole video", || (fs::read(&video).ok()? == bytes).then_some(()));
    writeln!(operator, "stop").unwrap();
    come("wake up\nleft\nstop\n");
    thread::sleep(Duration::from_millis(300));
    assert!(sender.is_running(), "{}", sender.stderr.text());
    drop(operator);
    assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    let (sent, received) = (json(&sender), json(&receiver.process));
    assert_eq!(sent["back"]["blocks"], 3);
    assert_eq!((&received["back"]["blocks"], &received["back"]["on_time"]), (&3.into(), &3.into()));
    assert_eq!(sent["blocks"], received["blocks"]);
}

#[test]
fn the_reply_may_end_first() {
    let dir = tempfile::tempdir().unwrap();
    let back = dir.path().join("back");
    let reply = dir.path().join("reply");
    // Framed messages, an empty one among them, which come framed.
    let messages = b"\0\0\0\x03one\0\0\0\0\0\0\0\x03two";
    fs::write(&reply, messages).unwrap();
    let mut receiver = Receiver::start(&["--reply", reply.to_str().unwrap(), "--reply-as", "framed"]);
    let mut sender = sender(&receiver, &["--lines", "--receive", back.to_str().unwrap(), "--receive-framed"]);
    wait_for("the reply", || (fs::read(&back).ok()? == messages).then_some(()));
    let mut input = sender.input();
    writeln!(input, "thanks").unwrap();
    drop(input);
    assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
    assert!(sender.stderr.text().contains("back 3 blocks: 3 on time"), "{}", sender.stderr.text());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    assert_eq!(receiver.process.stdout.text(), "thanks\n");
}

#[test]
fn a_receiver_without_a_reply_is_not_waited_for() {
    let mut receiver = Receiver::start(&[]);
    let mut sender = sender(&receiver, &["--lines", "--receive", "-"]);
    writeln!(sender.input(), "a line").unwrap();
    assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
    assert_eq!(sender.stdout.text(), "");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

#[test]
fn each_sender_gets_a_file_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let reply = dir.path().join("reply");
    fs::write(&reply, "one\ntwo\n").unwrap();
    let out = dir.path().join("{number}.txt");
    let args = ["--out", out.to_str().unwrap(), "--reply", reply.to_str().unwrap()];
    let mut receiver = Receiver::start(&args);
    for _ in 0..2 {
        let mut sender = sender(&receiver, &["--lines", "--receive", "-"]);
        writeln!(sender.input(), "a line").unwrap();
        assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
        assert_eq!(sender.stdout.text(), "one\ntwo\n");
    }
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

#[test]
fn a_sender_that_takes_nothing_back_is_not_held_up() {
    let mut receiver = receiver_with_input(&["--reply", "-"]);
    let mut operator = receiver.process.input();
    let mut sender = sender(&receiver, &["--lines"]);
    let mut input = sender.input();
    writeln!(input, "a line").unwrap();
    writeln!(operator, "hello").unwrap();
    wait_for("the line", || (receiver.process.stdout.text() == "a line\n").then_some(()));
    wait_for("a hint", || {
        drop(writeln!(operator, "hello?"));
        sender.stderr.text().contains("--receive").then_some(())
    });
    drop(input);
    assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
    // Nor does its own input hold the receiver up.
    assert_eq!(receiver.process.end_by_itself(), Some(0), "{}", receiver.said());
}

#[test]
fn an_operator_who_leaves_ends_the_session() {
    let mut receiver = receiver_with_input(&["--reply", "-"]);
    let mut sender = sender(&receiver, &["--lines", "--receive", "-"]);
    let mut input = sender.input();
    writeln!(input, "a line").unwrap();
    wait_for("the line", || (receiver.process.stdout.text() == "a line\n").then_some(()));
    receiver.process.signal("TERM");
    assert_eq!(receiver.process.end_by_itself(), Some(143), "{}", receiver.said());
    assert_eq!(sender.end_by_itself(), Some(7), "{}", sender.stderr.text());
    drop(input);
}

#[test]
fn what_cannot_be_is_said_at_once() {
    let fails = |args: &[&str], word: &str| {
        let output = punctual().args(args).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(2 | 3)) && said.contains(word), "{args:?}: {said}");
    };
    let dir = tempfile::tempdir().unwrap();
    let many = dir.path().join("{number}");
    fails(&["recv", "--out", many.to_str().unwrap(), "--reply", "-"], "one sender at a time");
    fails(&["recv", "--reply", "/no/such/file"], "/no/such/file");
    fails(&["recv", "--reply", CLIP, "--reply-as", "pictures"], "framed-headers");
    fails(&["recv", "--reply-deadline", "5ms"], "--reply");
    fails(&["send", "127.0.0.1:9", "--lines", "--receive", "-", "--json"], "--receive FILE");
    assert!(Path::new(CLIP).exists());
}
