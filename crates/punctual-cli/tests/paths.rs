//! Senders whose interfaces come and go, in network namespaces made for the purpose. Linux, as root; skipped elsewhere.
//!
//! Each test runs itself again in namespaces of its own (`unshare`), for networks and mounts alike, so that nothing that it makes is seen outside or left
//! behind. Of two namespaces in there, one is the sender's, the other is called `srv` and is the receiver's.
#![cfg(target_os = "linux")]

#[path = "recv/processes.rs"]
#[expect(dead_code, reason = "shared with other tests, which use more of it")]
mod processes;

use std::process::{Command, Stdio};

use processes::{Process, Receiver, punctual, wait_for};
use serde_json::Value;

/// Set in the run inside.
const INSIDE: &str = "PUNCTUAL_TEST_NAMESPACE";
/// The receiver's address, behind all links.
const SERVER: &str = "10.9.0.1";

/// Runs the test inside namespaces of its own; `false` outside them, when that has been done.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--mount", "--"]).args(command).env(INSIDE, "1");
        unshare
    };
    let probe = unshare(&["ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: namespaces need root, unshare and ip");
        return false;
    }
    let program = std::env::current_exe().expect("a program");
    let status = unshare(&[program.to_str().expect("a path in UTF-8"), test, "--exact", "--nocapture"]).status();
    assert!(status.expect("it ran before").success());
    false
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip ran before");
    assert!(status.success(), "ip {arguments}");
}

/// Two namespaces, each with its loopback; the receiver's address is on its.
fn two_hosts() {
    // Where `ip` keeps the names of namespaces; this hides the host's.
    let hidden = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status().expect("mount is there");
    assert!(hidden.success());
    ip("link set lo up");
    ip("netns add srv");
    ip("-n srv link set lo up");
    ip(&format!("-n srv address add {SERVER}/32 dev lo"));
}

/// Plugs `w1` or `w2` in: a link to the receiver with addresses 10.N.0.1 and 10.N.0.2.
fn plug(n: u8) {
    ip(&format!("link add w{n} type veth peer name w{n} netns srv"));
    ip(&format!("-n srv address add 10.{n}.0.2/24 dev w{n}"));
    ip(&format!("-n srv link set w{n} up"));
    ip(&format!("address add 10.{n}.0.1/24 dev w{n}"));
    ip(&format!("link set w{n} up"));
    ip(&format!("route add {SERVER} via 10.{n}.0.2 dev w{n} metric {n}"));
}

fn unplug(n: u8) {
    ip(&format!("link delete w{n}"));
}

/// `punctual recv` in the other namespace.
fn receiver(args: &[&str]) -> Receiver {
    let program = punctual();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", "srv"]).arg(program.get_program()).args(program.get_args());
    command.args(["recv", "--listen", &format!("{SERVER}:4433")]).args(args);
    Receiver::of(command.stdin(Stdio::null()))
}

/// Waits until `what` has been said so often.
fn said(process: &Process, what: &str, times: usize) {
    wait_for(&format!("{what:?} {times} times in {:?}", process.stderr.text()), || {
        (process.stderr.text().matches(what).count() >= times).then_some(())
    });
}

#[test]
fn auto_takes_every_interface_and_follows_them() {
    if !inside("auto_takes_every_interface_and_follows_them") {
        return;
    }
    two_hosts();
    plug(1);
    let mut receiver = receiver(&[]);
    let mut sender = receiver.sender(&["--path", "auto", "--json"]);
    sender.0.stderr.after("path w1 is open");
    sender.say("over the one that is there");
    plug(2);
    sender.0.stderr.after("path w2 is open");
    unplug(1);
    sender.0.stderr.after("path w1 is down: the interface or its address is gone");
    sender.say("over the other");
    wait_for("both lines", || receiver.process.stdout.text().contains("the other").then_some(()));
    plug(1);
    said(&sender.0, "path w1 is open", 2);
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    assert_eq!(receiver.process.stdout.text(), "over the one that is there\nover the other\n");
    let summary: Value = serde_json::from_str(&sender.0.stdout.text()).expect("one JSON object");
    assert_eq!((&summary["blocks"], &summary["on_time"]), (&2.into(), &2.into()), "{summary}");
    // Each has a line, and w1, which was away, another for what it carried before.
    let mut paths: Vec<_> = summary["paths"].as_array().expect("a list").iter().collect();
    paths.sort_by_key(|path| (path["name"].as_str(), path["health"].as_str()));
    let told: Vec<_> = paths.iter().map(|path| (&path["name"], &path["health"], &path["source_bytes"])).collect();
    let before = (&"w1".into(), &"closed".into(), &27.into());
    assert_eq!(
        told,
        [(&"w1".into(), &"active".into(), &0.into()), before, (&"w2".into(), &"active".into(), &15.into())]
    );
}

#[test]
fn all_paths_are_tried_at_once_and_one_that_is_not_there_is_waited_for() {
    if !inside("all_paths_are_tried_at_once_and_one_that_is_not_there_is_waited_for") {
        return;
    }
    two_hosts();
    plug(2);
    let mut receiver = receiver(&[]);
    // The first is not there, and nobody is at the other end of the second.
    let args = ["--path", "w1", "--path", "w2=10.2.0.77:4433", "--path", "w2"];
    let mut sender = receiver.sender(&args);
    sender.0.stderr.after("path w1: the interface is not there");
    sender.0.stderr.after("path w2 is open");
    sender.say("a line");
    plug(1);
    sender.0.stderr.after("path w1 is open");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

#[test]
fn a_session_over_what_is_not_there_yet_begins_when_it_is() {
    if !inside("a_session_over_what_is_not_there_yet_begins_when_it_is") {
        return;
    }
    two_hosts();
    let mut receiver = receiver(&[]);
    let mut sender = receiver.sender(&["--path", "w1", "--connect-timeout", "60s"]);
    sender.0.stderr.after("path w1: the interface is not there");
    plug(1);
    sender.say("a line");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());

    // And where nothing leads there, that is what is said.
    unplug(1);
    let mut sender = receiver.sender(&["--path", "auto", "--connect-timeout", "300ms"]);
    assert_eq!(sender.0.end_by_itself(), Some(6), "{}", sender.said());
    assert!(sender.said().contains("no interface led to the receiver"), "{}", sender.said());
}

/// What the receiver has written, all files together.
fn written(dir: &std::path::Path) -> String {
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("a directory").map(|file| file.expect("one").path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read_to_string(file).expect("text")).collect()
}

#[test]
fn a_sender_that_was_cut_off_goes_on_with_what_is_not_too_late() {
    if !inside("a_sender_that_was_cut_off_goes_on_with_what_is_not_too_late") {
        return;
    }
    two_hosts();
    plug(1);
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver(&["--out", dir.path().join("{number}").to_str().unwrap()]);
    let mut sender = receiver.sender(&["--path", "auto", "--idle-timeout", "1s", "--reconnect", "60s"]);
    sender.say("before");
    wait_for("the first line", || written(dir.path()).contains("before").then_some(()));
    unplug(1);
    sender.say("in flight");
    sender.0.stderr.after("connecting again, for 60 s at most");
    sender.say("meanwhile");
    plug(2);
    sender.0.stderr.after("path w2 is open");
    sender.0.stderr.after("connected again");
    sender.say("after");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    wait_for("the last line", || written(dir.path()).ends_with("after\n").then_some(()));
    assert_eq!(written(dir.path()), "before\nin flight\nmeanwhile\nafter\n");
    assert!(sender.said().contains("4 blocks: 4 on time"), "{}", sender.said());
}

#[test]
fn a_sender_that_was_cut_off_waits_for_its_turn() {
    if !inside("a_sender_that_was_cut_off_waits_for_its_turn") {
        return;
    }
    two_hosts();
    plug(1);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let receiver = receiver(&["--keep-going", "--out", out.to_str().unwrap()]);
    let mut sender = receiver.sender(&["--path", "auto", "--idle-timeout", "1s", "--reconnect", "60s"]);
    sender.say("before");
    wait_for("the first line", || written(dir.path()).contains("before").then_some(()));
    unplug(1);
    sender.say("in flight");
    sender.0.stderr.after("connecting again");
    // Somebody else comes first: on the receiver's own host, which may need a moment to see that the first is lost.
    let program = punctual();
    let mut other = Command::new("ip");
    other.args(["netns", "exec", "srv"]).arg(program.get_program()).args(program.get_args());
    other.args(["send", &receiver.address, "--fingerprint", &receiver.fingerprint, "--lines"]).stdin(Stdio::piped());
    let mut other = loop {
        let mut started = processes::Sender(Process::start(&mut other));
        started.say("another");
        let there = wait_for("an answer", || {
            let refused = started.said().contains("refused").then_some(false);
            refused.or(written(dir.path()).contains("another").then_some(true))
        });
        if there {
            break started;
        }
    };
    plug(1);
    sender.0.stderr.after("the receiver refused the session");
    assert_eq!(other.end(), Some(0), "{}", other.said());
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    wait_for("the last line", || written(dir.path()).ends_with("in flight\n").then_some(()));
    assert!(sender.said().contains("2 blocks: 2 on time"), "{}", sender.said());
}

#[test]
fn a_sender_that_cannot_connect_again_says_so_in_the_end() {
    if !inside("a_sender_that_cannot_connect_again_says_so_in_the_end") {
        return;
    }
    two_hosts();
    plug(1);
    let receiver = receiver(&[]);
    let mut sender = receiver.sender(&["--path", "w1", "--idle-timeout", "500ms", "--reconnect", "300ms"]);
    sender.say("a line");
    sender.0.stderr.after("path w1 is open");
    unplug(1);
    assert_eq!(sender.0.end_by_itself(), Some(7), "{}", sender.said());
    assert!(sender.said().contains("connecting again failed"), "{}", sender.said());
}

#[test]
fn a_sender_that_is_not_to_connect_again_does_not() {
    if !inside("a_sender_that_is_not_to_connect_again_does_not") {
        return;
    }
    two_hosts();
    plug(1);
    let receiver = receiver(&[]);
    let mut sender = receiver.sender(&["--path", "w1", "--idle-timeout", "500ms", "--reconnect", "0s"]);
    sender.0.stderr.after("path w1 is open");
    unplug(1);
    assert_eq!(sender.0.end_by_itself(), Some(7), "{}", sender.said());
    assert!(!sender.said().contains("connecting again"), "{}", sender.said());
}

/// Addresses that are of use on one link only, at both ends, with its interface by name, by number, and as `--path` names it.
#[test]
fn an_address_of_the_link_needs_its_interface_and_no_more() {
    if !inside("an_address_of_the_link_needs_its_interface_and_no_more") {
        return;
    }
    two_hosts();
    plug(1);
    plug(2);
    for n in [1, 2] {
        ip(&format!("-n srv address add fe80::b/64 dev w{n} nodad"));
        ip(&format!("address add fe80::a/64 dev w{n} nodad"));
    }
    let shown = Command::new("ip").args(["-o", "link", "show", "w2"]).output().expect("ip ran before");
    let number = String::from_utf8(shown.stdout).unwrap().split(':').next().unwrap().to_owned();
    for (to, path) in [
        ("[fe80::b%w2]:4433", &[][..]),
        (&format!("[fe80::b%{number}]:4433"), &[]),
        ("[fe80::b%w2]:4433", &["--path", "fe80::a%w2"]),
        ("[fe80::b]:4433", &["--path", "w2"]),
        ("[fe80::b%w2]:4433", &["--path", "auto"]),
    ] {
        let program = punctual();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", "srv"]).arg(program.get_program()).args(program.get_args());
        command.args(["recv", "--listen", "[fe80::b%w2]:4433"]);
        let mut receiver = Receiver::of(command.stdin(Stdio::null()));
        receiver.address = to.to_owned();
        let mut sender = receiver.sender(path);
        sender.say("over the second");
        assert_eq!(sender.end(), Some(0), "{to} {path:?}: {}", sender.said());
        assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
        assert_eq!(receiver.process.stdout.text(), "over the second\n");
    }
}

/// As any interface is; and each time that it comes it has another number.
#[test]
fn the_interface_of_an_address_of_the_link_is_waited_for() {
    if !inside("the_interface_of_an_address_of_the_link_is_waited_for") {
        return;
    }
    two_hosts();
    let plug = |n: u8| {
        plug(n);
        ip(&format!("-n srv address add fe80::b/64 dev w{n} nodad"));
        ip(&format!("address add fe80::a/64 dev w{n} nodad"));
    };
    plug(1);
    let program = punctual();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", "srv"]).arg(program.get_program()).args(program.get_args());
    command.args(["recv", "--listen", "[::]:4433"]);
    let mut receiver = Receiver::of(command.stdin(Stdio::null()));
    receiver.address = "[fe80::b%w1]:4433".to_owned();
    let mut sender = receiver.sender(&["--path", "w1", "--path", "fe80::a%w2=[fe80::b%w2]:4433"]);
    sender.0.stderr.after("path w1 is open");
    sender.0.stderr.after("path fe80::a%w2: the interface is not there");
    for times in [1, 2] {
        plug(2);
        said(&sender.0, "path fe80::a%w2 is open", times);
        unplug(2);
        said(&sender.0, "path fe80::a%w2 is down: the interface or its address is gone", times);
    }
    sender.say("a line");
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
    assert_eq!(receiver.process.stdout.text(), "a line\n");
}
