//! How the program ends, in every situation in which the answer is known: with which code, and how soon. The same table is in `docs/results.md`.
//!
//! `cargo test -p punctual-cli --test recv every_end -- --nocapture` prints it.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::processes::{Process, Receiver, Sender, punctual, wait_for};

/// Nobody waits longer where the answer is known. Alone on a machine, it takes a twentieth of that.
const AT_ONCE: Duration = Duration::from_secs(2);
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results.md");

/// How an end came about.
struct End {
    code: Option<i32>,
    /// Since there was a reason to end.
    after: Duration,
    said: String,
}

/// A situation: who ends, why, with which code, and what brings it about.
struct Case(&'static str, &'static str, i32, fn(&Path) -> End);

fn end(mut process: Process, since: Instant) -> End {
    let code = process.end_by_itself();
    End { code, after: since.elapsed(), said: process.stderr.text() }
}

/// Starts the program with these arguments, and waits for its end. Its input is empty.
fn run(args: &[&str]) -> End {
    run_with(args, Stdio::null())
}

fn run_with(args: &[&str], input: impl Into<Stdio>) -> End {
    let since = Instant::now();
    end(Process::start(punctual().args(args).stdin(input)), since)
}

/// Runs a sender to some address, with a fingerprint that nobody has.
fn call(to: &str, args: &[&str]) -> End {
    let nobodys = "ab".repeat(32);
    run(&[&["send", to, "--lines", "--quiet", "--fingerprint", &nobodys], args].concat())
}

fn send(receiver: &Receiver, args: &[&str], input: impl Into<Stdio>) -> End {
    let all = [&["send", &receiver.address, "--fingerprint", &receiver.fingerprint, "--quiet"], args].concat();
    run_with(&all, input)
}

/// A receiver and a sender, and a line that has been written.
fn connected(args: &[&str]) -> (Receiver, Sender) {
    let receiver = Receiver::start(&[]);
    let mut sender = receiver.sender(args);
    sender.say("a line");
    wait_for("line", || (receiver.process.stdout.text() == "a line\n").then_some(()));
    (receiver, sender)
}

/// The end of one of the two, after a signal to one of the two.
fn signalled(signal: &str, to_sender: bool, of_sender: bool) -> End {
    // Where nobody can tell of the end, it is the idle time that does; and there is no point in calling again.
    let (receiver, sender) = connected(&["--idle-timeout", "1s", "--reconnect", "0s"]);
    let since = Instant::now();
    if to_sender { &sender.0 } else { &receiver.process }.signal(signal);
    match of_sender {
        true => end(sender.0, since),
        false => end(receiver.process, since),
    }
}

/// The end of a sender whose input ends, with a block under way, when its receiver has just been ended in a way that it can tell nobody of.
fn left_alone(end_of: impl FnOnce(&Process)) -> End {
    let (receiver, mut sender) = connected(&["--finish-timeout", "1s", "--deadline", "100ms"]);
    end_of(&receiver.process);
    sender.say("a line for nobody");
    let since = Instant::now();
    // Its input ends with this.
    drop(sender.0.input());
    end(sender.0, since)
}

fn file(dir: &Path, contents: &[u8]) -> fs::File {
    let path = dir.join("input");
    fs::write(&path, contents).unwrap();
    fs::File::open(path).unwrap()
}

const CASES: &[Case] = &[
    Case("send", "all is well", 0, |dir| send(&Receiver::start(&[]), &["--lines"], file(dir, b"a line\n"))),
    Case("send", "blocks were late, and the receiver has taken what was delivered", 0, |dir| {
        let much = file(dir, &vec![0; 20 << 20]);
        send(&Receiver::start(&[]), &["--chunks", "1M", "--deadline", "1ms"], much)
    }),
    Case("send", "an argument is missing", 2, |_| run(&["send", "127.0.0.1:9"])),
    Case("send", "the receiver is no `HOST:PORT`", 2, |_| call("nowhere", &[])),
    Case("send", "there is nothing to send", 2, |_| send(&Receiver::start(&[]), &["--lines"], Stdio::null())),
    Case("send", "what is to be a video is none", 2, |dir| {
        send(&Receiver::start(&[]), &["--h264"], file(dir, b"hello"))
    }),
    Case("send", "a message cannot be sent: its channel is one too many", 2, |dir| {
        let messages: Vec<u8> =
            (0..257).flat_map(|n| [format!("channel={n}\n").as_bytes(), b"\0\0\0\x02hi"].concat()).collect();
        send(&Receiver::start(&[]), &["--framed-headers"], file(dir, &messages))
    }),
    Case("send", "the file to send is not there", 3, |_| call("127.0.0.1:9", &["/no/such/file"])),
    Case("send", "the settings file is not there", 3, |_| call("127.0.0.1:9", &["--config", "/no/such/file"])),
    Case("send", "the name does not resolve", 4, |_| call("no-such-host.invalid:9", &["--connect-timeout", "1s"])),
    Case("send", "nobody listens at that port", 4, |_| call("127.0.0.1:9", &[])),
    Case("send", "nobody answers, for `--connect-timeout` (1 s here)", 4, |_| {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        call(&silent.local_addr().unwrap().to_string(), &["--connect-timeout", "1s"])
    }),
    Case("send", "the certificate has another fingerprint", 5, |_| call(&Receiver::start(&[]).address, &[])),
    Case("send", "the certificate is of no known authority", 5, |_| {
        run(&["send", &Receiver::start(&[]).address, "--lines", "--quiet"])
    }),
    Case("send", "the interface is not there, for `--connect-timeout` (1 s here)", 6, |_| {
        call("127.0.0.1:9", &["--path", "nosuchif0", "--connect-timeout", "1s"])
    }),
    Case("send", "the receiver's disk is full", 7, |dir| {
        send(&Receiver::start(&["--out", "/dev/full"]), &["--lines"], file(dir, b"a line\n"))
    }),
    Case("send", "the receiver is told to stop", 7, |_| signalled("TERM", false, true)),
    Case("send", "the receiver is killed; `--idle-timeout` (1 s here), no `--reconnect`", 7, |_| {
        signalled("KILL", false, true)
    }),
    Case("send", "the receiver is killed before the end; `--finish-timeout` (1 s here)", 7, |_| {
        left_alone(|receiver| receiver.signal("KILL"))
    }),
    Case("send", "the receiver sleeps at the end; `--finish-timeout` (1 s here)", 7, |_| left_alone(Process::stop)),
    Case("send", "`--strict`, and a block was late", 8, |dir| {
        let much = file(dir, &vec![0; 20 << 20]);
        send(&Receiver::start(&[]), &["--chunks", "1M", "--strict", "--deadline", "1ms"], much)
    }),
    Case("send", "the receiver is busy", 9, |dir| {
        let (receiver, _sender) = connected(&[]);
        send(&receiver, &["--lines"], file(dir, b"a line\n"))
    }),
    Case("send", "the receiver does not let it in", 9, |dir| {
        send(&Receiver::start(&["--client-fingerprint", &"cd".repeat(32)]), &["--lines"], file(dir, b"a line\n"))
    }),
    Case("send", "SIGHUP", 129, |_| signalled("HUP", true, true)),
    Case("send", "Ctrl-C", 130, |_| signalled("INT", true, true)),
    Case("send", "SIGTERM", 143, |_| signalled("TERM", true, true)),
    Case("send", "SIGTERM, and nobody has answered yet", 143, |_| {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = silent.local_addr().unwrap().to_string();
        let args = ["send", &to, "--lines", "--quiet", "--fingerprint", &"ab".repeat(32)];
        let process = Process::start(punctual().args(args).stdin(Stdio::piped()));
        let mut datagram = [0; 2048];
        while silent.recv(&mut datagram).unwrap() == 0 {}
        let since = Instant::now();
        process.signal("TERM");
        end(process, since)
    }),
    Case("recv", "its sender is done", 0, |_| {
        let (receiver, mut sender) = connected(&[]);
        let since = Instant::now();
        sender.end();
        end(receiver.process, since)
    }),
    Case("recv", "its sender is told to stop", 0, |_| signalled("TERM", true, false)),
    Case("recv", "`--json` and the blocks would be mixed up", 2, |_| run(&["recv", "--json"])),
    Case("recv", "what it sends back (`--reply`) cannot be read to its end", 2, |dir| {
        let reply = dir.join("reply");
        fs::write(&reply, b"\0\0\0\x09cut").unwrap();
        let receiver = Receiver::start(&["--reply", reply.to_str().unwrap(), "--reply-as", "framed"]);
        let since = Instant::now();
        send(&receiver, &["--lines"], file(dir, b"a line\n"));
        end(receiver.process, since)
    }),
    Case("recv", "the output cannot be made", 3, |_| {
        run(&["recv", "--listen", "127.0.0.1:0", "--out", "/no/such/file"])
    }),
    Case("recv", "the disk is full", 3, |dir| {
        let receiver = Receiver::start(&["--out", "/dev/full"]);
        let since = Instant::now();
        send(&receiver, &["--lines"], file(dir, b"a line\n"));
        end(receiver.process, since)
    }),
    Case("recv", "the reader of its pipe has gone", 3, |_| {
        let program = env!("CARGO_BIN_EXE_punctual");
        // The shell's code is that of the receiver.
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("set -o pipefail; '{program}' recv --listen 127.0.0.1:0 | true")]);
        let receiver = Receiver::of(shell.stdin(Stdio::null()));
        let mut sender = receiver.sender(&[]);
        let since = Instant::now();
        sender.say("a line");
        end(receiver.process, since)
    }),
    Case("recv", "the port is taken", 6, |_| run(&["recv", "--listen", &Receiver::start(&[]).address])),
    Case("recv", "the sender is killed; its `--idle-timeout` (1 s here)", 7, |_| signalled("KILL", true, false)),
    Case("recv", "SIGTERM, and nobody has called", 143, |_| {
        let receiver = Receiver::start(&[]);
        let since = Instant::now();
        receiver.process.signal("TERM");
        end(receiver.process, since)
    }),
    Case("recv", "SIGTERM amid a session", 143, |_| signalled("TERM", false, false)),
    Case("recv", "SIGTERM, and it was to keep going", 0, |_| {
        let receiver = Receiver::start(&["--keep-going", "--out", "/dev/null"]);
        let since = Instant::now();
        receiver.process.signal("TERM");
        end(receiver.process, since)
    }),
];

#[cfg(target_os = "linux")]
#[test]
fn every_end_has_its_code_and_comes_at_once() {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let table = document.split_once("<!-- ends -->").and_then(|(_, rest)| rest.split_once("<!-- /ends -->")).unwrap().0;
    let documented = table.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        (cells[0].trim_matches('`').to_owned(), cells[1].to_owned(), cells[2].parse().unwrap())
    });
    let documented: Vec<(String, String, i32)> = documented.collect();
    let mut tried = Vec::new();
    println!("| | because | code | after |\n| --- | --- | ---: | ---: |");
    for Case(who, why, code, bring_about) in CASES {
        let dir = tempfile::tempdir().unwrap();
        let End { code: ended, after, said } = bring_about(dir.path());
        println!("| `{who}` | {why} | {} | {:.2} s |", ended.unwrap_or(-1), after.as_secs_f64());
        assert_eq!(ended, Some(*code), "{who}: {why}: {said}");
        // Where it waits for what may yet come, it was told for how long; an idle time has begun before the peer was killed.
        let told = if why.contains("(1 s here)") { Duration::from_secs(1) } else { Duration::ZERO };
        assert!(after < told + AT_ONCE, "{who}: {why}: after {after:?}: {said}");
        tried.push(((*who).to_owned(), (*why).to_owned(), *code));
        // Nothing of one is to be in the way of the next.
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(tried, documented, "docs/results.md has another table");
}
