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

/// The receiver's figures of what it has sent back, once it has handed over so many blocks.
fn handed_over(receiver: &Receiver, blocks: u64) {
    wait_for("blocks handed over", || {
        let text = receiver.said();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.rev().find(|line| line["back"]["blocks"] == blocks)
    });
}

fn file_has(path: &Path, text: &str) {
    wait_for(text, || fs::read_to_string(path).is_ok_and(|written| written == text).then_some(()));
}

#[test]
fn what_one_sender_does_not_get_of_a_pipe_goes_to_the_next_and_both_sides_books_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = ["--keep-going", "--out", out.to_str().unwrap(), "--reply", "-", "--json", "--stats-json", "--strict"];
    let mut receiver = receiver_with_input(&args);
    let mut operator = receiver.process.input();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let call = |to: &Path| {
        sender(&receiver, &["--lines", "--receive", to.to_str().unwrap(), "--idle-timeout", "5s", "--json", "--strict"])
    };
    let gone = call(&first);
    writeln!(operator, "one").unwrap();
    file_has(&first, "one\n");
    gone.stop();
    writeln!(operator, "two").unwrap();
    handed_over(&receiver, 2);
    drop(gone);
    receiver.process.stderr.after("the session was lost");
    let mut next = call(&second);
    file_has(&second, "two\n");
    writeln!(operator, "three").unwrap();
    drop(operator);
    writeln!(next.input(), "a line").unwrap();
    assert_eq!(next.end_by_itself(), Some(0), "{}", next.stderr.text());
    assert_eq!(fs::read_to_string(&second).unwrap(), "two\nthree\n");
    let back = &json(&next)["back"];
    assert_eq!((&back["blocks"], &back["on_time"], &back["complete"]), (&2.into(), &2.into(), &true.into()));
    receiver.process.signal("TERM");
    // Nobody can say that the first had written what it got.
    assert_eq!(receiver.end(), Some(8), "{}", receiver.said());
    let summaries = receiver.process.stdout.text();
    let backs: Vec<Value> =
        summaries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["back"].clone()).collect();
    let told = |at: usize| ["blocks", "on_time", "dropped", "left", "confirmed"].map(|key| backs[at][key].to_string());
    assert_eq!(told(0), ["1", "1", "0", "1", "false"], "{summaries}");
    assert_eq!(told(1), ["2", "2", "0", "0", "true"], "{summaries}");
}

#[test]
fn what_nobody_got_of_a_reply_is_said_to_be_lost() {
    for keeps_going in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (out, back) = (dir.path().join("out"), dir.path().join("back"));
        let args = ["--out", out.to_str().unwrap(), "--reply", "-", "--json", "--stats-json", "--strict"];
        let more = if keeps_going { &["--keep-going"][..] } else { &[] };
        let mut receiver = receiver_with_input(&[&args[..], more].concat());
        let mut operator = receiver.process.input();
        let gone = sender(&receiver, &["--lines", "--receive", back.to_str().unwrap(), "--idle-timeout", "5s"]);
        writeln!(operator, "one").unwrap();
        file_has(&back, "one\n");
        gone.stop();
        writeln!(operator, "two").unwrap();
        handed_over(&receiver, 2);
        drop(gone);
        receiver.process.stderr.after("the session was lost");
        if keeps_going {
            receiver.process.signal("TERM");
        }
        let code = receiver.end();
        let summary = json(&receiver.process);
        let told = ["blocks", "on_time", "dropped", "confirmed"].map(|key| summary["back"][key].to_string());
        if keeps_going {
            assert_eq!((code, told), (Some(8), ["1", "1", "0", "false"].map(str::to_owned)), "{}", receiver.said());
            assert!(receiver.said().contains("1 block of the reply went to nobody"), "{}", receiver.said());
            // Whose figures they are is said once.
            let peer = summary["peer"].as_str().unwrap();
            assert!(!receiver.said().contains(&format!("{peer}: {peer}: ")), "{}", receiver.said());
        } else {
            assert_eq!((code, told), (Some(7), ["2", "1", "1", "false"].map(str::to_owned)), "{}", receiver.said());
        }
    }
}

#[test]
fn a_reply_that_cannot_be_read_to_its_end_is_told_and_one_of_nothing_is_fine() {
    let (cut, whole) = (&b"\0\0\0\x03one\0\0\0\x09cut"[..], &b"\0\0\0\x03one"[..]);
    for (reply, strict, code) in [(cut, true, 8), (cut, false, 2), (whole, true, 0), (whole, false, 0), (b"", true, 0)]
    {
        let dir = tempfile::tempdir().unwrap();
        let [out, from, back] = ["out", "reply", "back"].map(|name| dir.path().join(name));
        fs::write(&from, reply).unwrap();
        let args = ["--out", out.to_str().unwrap(), "--reply", from.to_str().unwrap(), "--reply-as", "framed"];
        let mut receiver = Receiver::start(&[&args[..], if strict { &["--strict"] } else { &[] }].concat());
        let mut sender = sender(&receiver, &["--lines", "--receive", back.to_str().unwrap(), "--strict"]);
        writeln!(sender.input(), "a line").unwrap();
        assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
        assert_eq!(receiver.end(), Some(code), "{}", receiver.said());
        assert_eq!(fs::read_to_string(&back).unwrap(), if reply.is_empty() { "" } else { "one" });
        let told = receiver.said().contains("the reply ends before its end");
        assert_eq!(told, code != 0, "{}", receiver.said());
        assert!(!receiver.said().contains("is empty"), "{}", receiver.said());
    }
}

#[test]
fn a_reply_that_is_not_there_any_more_and_one_with_blocks_that_cannot_be_sent_have_codes_of_their_own() {
    let too_many: Vec<u8> =
        (0..257).flat_map(|n| [format!("channel={n}\n").as_bytes(), b"\0\0\0\x02hi"].concat()).collect();
    for (reply, code, word) in [(None, 3, "the reply ends before its end"), (Some(&too_many), 2, "is left out")] {
        let dir = tempfile::tempdir().unwrap();
        let (from, back) = (dir.path().join("reply"), dir.path().join("back"));
        fs::write(&from, reply.map_or(&b""[..], |reply| reply)).unwrap();
        let mut receiver = Receiver::start(&["--reply", from.to_str().unwrap(), "--reply-as", "framed-headers"]);
        if reply.is_none() {
            fs::remove_file(&from).unwrap();
        }
        let mut sender = sender(&receiver, &["--lines", "--receive", back.to_str().unwrap()]);
        writeln!(sender.input(), "a line").unwrap();
        assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
        assert_eq!(receiver.end(), Some(code), "{}", receiver.said());
        assert!(receiver.said().contains(word), "{}", receiver.said());
    }
}

/// Others come after it, to whom a reply that is read for each may be sent whole.
#[test]
fn a_receiver_that_keeps_going_does_so_after_a_reply_that_was_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let [out, from, back] = ["out", "reply", "back"].map(|name| dir.path().join(name));
    fs::write(&from, "one\n").unwrap();
    let args = ["--keep-going", "--out", out.to_str().unwrap(), "--reply", from.to_str().unwrap()];
    let mut receiver = Receiver::start(&args);
    fs::remove_file(&from).unwrap();
    for told in ["", "one\n"] {
        let mut sender = sender(&receiver, &["--lines", "--receive", back.to_str().unwrap()]);
        writeln!(sender.input(), "a line").unwrap();
        assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
        file_has(&back, told);
        fs::write(&from, "one\n").unwrap();
    }
    assert!(receiver.said().contains("the reply ends here"), "{}", receiver.said());
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

#[test]
fn a_sender_that_lost_a_session_does_not_know_of_all_that_came_back() {
    let dir = tempfile::tempdir().unwrap();
    let (identity, out, back) = (dir.path().join("identity.pem"), dir.path().join("out"), dir.path().join("back"));
    let start = |listen: &str| {
        let mut command = punctual();
        command.args(["recv", "--listen", listen, "--identity", identity.to_str().unwrap(), "--reply", "-"]);
        Receiver::of(command.args(["--keep-going", "--out", out.to_str().unwrap()]).stdin(Stdio::piped()))
    };
    let mut receiver = start("127.0.0.1:0");
    let args = ["--lines", "--receive", back.to_str().unwrap(), "--reconnect", "1m", "--json", "--strict"];
    let mut sender = sender(&receiver, &args);
    let mut operator = receiver.process.input();
    writeln!(operator, "one").unwrap();
    file_has(&back, "one\n");
    receiver.process.signal("KILL");
    receiver.process.end_by_itself();
    let mut receiver = start(&receiver.address);
    sender.stderr.after("connected again");
    writeln!(receiver.process.input(), "two").unwrap();
    file_has(&back, "one\ntwo\n");
    writeln!(sender.input(), "a line").unwrap();
    assert_eq!(sender.end_by_itself(), Some(8), "{}", sender.stderr.text());
    let summary = json(&sender);
    let told = (&summary["back"]["blocks"], &summary["back"]["complete"], &summary["on_time"], &summary["unconfirmed"]);
    assert_eq!(told, (&2.into(), &false.into(), &1.into(), &Value::Null), "{summary}");
}

#[test]
fn a_reply_that_nobody_takes_is_not_confirmed() {
    for (strict, code) in [(&[][..], 0), (&["--strict"][..], 8)] {
        let dir = tempfile::tempdir().unwrap();
        let (out, reply) = (dir.path().join("out"), dir.path().join("reply"));
        fs::write(&reply, "hello\n").unwrap();
        let args = ["--out", out.to_str().unwrap(), "--reply", reply.to_str().unwrap(), "--json", "--stats-json"];
        let mut receiver = Receiver::start(&[&args[..], strict].concat());
        let mut sender = sender(&receiver, &["--lines"]);
        // It is there, and nobody takes it.
        handed_over(&receiver, 1);
        writeln!(sender.input(), "a line").unwrap();
        assert_eq!(sender.end_by_itself(), Some(0), "{}", sender.stderr.text());
        assert_eq!(receiver.end(), Some(code), "{}", receiver.said());
        assert_eq!(json(&receiver.process)["back"]["confirmed"], false);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_comes_back_and_cannot_be_written_ends_the_sender() {
    let mut receiver = receiver_with_input(&["--reply", "-"]);
    let mut operator = receiver.process.input();
    let mut sender = sender(&receiver, &["--lines", "--receive", "/dev/full"]);
    let _input = sender.input();
    writeln!(operator, "hello").unwrap();
    assert_eq!(sender.end_by_itself(), Some(3), "{}", sender.stderr.text());
    assert!(sender.stderr.text().contains("cannot write /dev/full"), "{}", sender.stderr.text());
    assert_eq!(receiver.process.end_by_itself(), Some(7), "{}", receiver.said());
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
