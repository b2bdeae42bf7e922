//! The program as a person meets it: what it prints, what it writes, and how it exits.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/clip.h264");

fn punctual() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    punctual().args(args).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails with this code and one line that says so much.
fn fails(output: &Output, code: i32, word: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.lines().count() == 1 && text.starts_with("punctual: ") && text.contains(word), "{text:?}");
    assert!(output.stdout.is_empty());
}

/// A receiver under way.
struct Receiver {
    child: Killed,
    address: String,
    fingerprint: String,
    errors: BufReader<std::process::ChildStderr>,
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Receiver {
    fn start(args: &[&str]) -> Self {
        let child = punctual()
            .args(["recv", "--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut child = Killed(child);
        let mut errors = BufReader::new(child.0.stderr.take().expect("it is piped"));
        let mut said = |what: &str| {
            let mut line = String::new();
            errors.read_line(&mut line).expect("it is text");
            line.strip_prefix(what).unwrap_or_else(|| panic!("{what}: {line:?}")).trim().to_owned()
        };
        let (address, fingerprint) = (said("listening on "), said("fingerprint "));
        Self { child, address, fingerprint, errors }
    }

    /// Sends to it.
    fn send(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = punctual()
            .args(["send", &self.address, "--fingerprint", &self.fingerprint])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // It may end before it has read everything.
        let _ = child.stdin.take().expect("it is piped").write_all(input);
        child.wait_with_output().expect("it ends")
    }

    /// Its end: exit code, standard output, the rest of standard error.
    fn end(mut self) -> (Option<i32>, Vec<u8>, String) {
        let mut text = String::new();
        self.errors.read_to_string(&mut text).expect("it is text");
        // Its output is small enough to wait in the pipe until it has ended.
        let mut output = Vec::new();
        self.child.0.stdout.take().expect("it is piped").read_to_end(&mut output).expect("it can be read");
        (self.child.0.wait().expect("it ends").code(), output, text)
    }
}

#[test]
fn a_video_arrives_byte_for_byte_over_two_paths() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("got.h264");
    let receiver = Receiver::start(&["--out", out.to_str().unwrap(), "--json"]);
    // Loopback has as many addresses as one likes on Linux only.
    let second = if cfg!(target_os = "linux") { "127.0.0.2" } else { "127.0.0.1" };
    let sent =
        receiver.send(&[CLIP, "--h264", "--fps", "1000", "--path", "127.0.0.1", "--path", second, "--json"], b"");
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
    let (code, stdout, _) = receiver.end();
    assert_eq!(code, Some(0));
    assert!(fs::read(&out).unwrap() == fs::read(CLIP).unwrap());
    let json: Value = serde_json::from_slice(&sent.stdout).expect("one JSON object");
    assert!(json["sent"]["source_bytes"].as_u64() >= json["bytes"].as_u64(), "{json}");
    let of_paths: u64 = json["paths"].as_array().unwrap().iter().filter_map(|path| path["source_bytes"].as_u64()).sum();
    assert_eq!(json["sent"]["source_bytes"], of_paths);
    for summary in [sent.stdout, stdout] {
        let json: Value = serde_json::from_slice(&summary).expect("one JSON object");
        assert_eq!((&json["blocks"], &json["on_time"], &json["dropped"]), (&300.into(), &300.into(), &0.into()));
        assert_eq!(json["bytes"], fs::metadata(CLIP).unwrap().len());
    }
}

#[test]
fn chunks_arrive_as_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("in"), dir.path().join("out"));
    let data: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    fs::write(&input, &data).unwrap();
    let receiver = Receiver::start(&["-o", out.to_str().unwrap()]);
    let sent = receiver.send(&[input.to_str().unwrap(), "--chunks", "64K", "--strict"], b"");
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
    assert!(stderr(&sent).contains("184 blocks: 184 on time, 0 late, 0 dropped"), "{}", stderr(&sent));
    assert_eq!(receiver.end().0, Some(0));
    assert!(fs::read(&out).unwrap() == data);
}

#[test]
fn lines_go_to_standard_output() {
    let receiver = Receiver::start(&[]);
    let sent = receiver.send(&["--lines", "--priority", "3"], b"one\ntwo\nthree");
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
    let (code, stdout, text) = receiver.end();
    assert_eq!((code, &stdout[..]), (Some(0), &b"one\ntwo\nthree"[..]));
    assert!(text.contains("3 blocks: 3 on time"), "{text}");
}

#[test]
fn messages_keep_their_frames() {
    let receiver = Receiver::start(&["--framed"]);
    let messages = b"\0\0\0\x03one\0\0\0\x05three";
    assert_eq!(receiver.send(&["--framed"], messages).status.code(), Some(0));
    assert_eq!(receiver.end().1, messages);
}

#[test]
fn blocks_go_to_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(&["--dir", dir.path().join("blocks").to_str().unwrap()]);
    assert_eq!(receiver.send(&["--lines", "--unordered"], b"one\ntwo\n").status.code(), Some(0));
    assert_eq!(receiver.end().0, Some(0));
    let read = |name: &str| fs::read_to_string(dir.path().join("blocks").join(name)).unwrap();
    assert_eq!((read("00000000.block"), read("00000001.block")), ("one\n".into(), "two\n".into()));
}

#[test]
fn an_identity_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (path, out) = (dir.path().join("identity.pem"), dir.path().join("out"));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let receiver = Receiver::start(&["--identity", path.to_str().unwrap(), "--out", out.to_str().unwrap()]);
        seen.push(receiver.fingerprint.clone());
        // Its own certificate serves as its authority, too.
        let sent = punctual()
            .args(["send", &receiver.address.replace("127.0.0.1", "localhost"), "--ca", path.to_str().unwrap(), CLIP])
            .args(["--chunks", "1M", "--path", "127.0.0.1"])
            .output()
            .unwrap();
        assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
        assert_eq!(receiver.end().0, Some(0));
    }
    assert_eq!(seen[0], seen[1]);
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777, 0o600);
}

#[test]
fn settings_come_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("punctual.toml");
    fs::write(&path, "scheduler = \"edf\"\ndeadline = \"60s\"\npath = [\"127.0.0.1\"]\n").unwrap();
    let receiver = Receiver::start(&[]);
    let sent = receiver.send(&["--lines", "--config", path.to_str().unwrap()], b"hello\n");
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
    assert_eq!(receiver.end().1, b"hello\n");
}

#[test]
fn redundancy_is_chosen_and_told() {
    let receiver = Receiver::start(&[]);
    let args = ["--lines", "--deadline", "60s", "--redundancy", "both", "--redundancy-policy", "dmtp:cap=1", "--json"];
    let sent = receiver.send(&args, b"one\ntwo\n");
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
    let json: Value = serde_json::from_slice(&sent.stdout).expect("one JSON object");
    for key in ["repair_bytes", "restored_bytes", "never_regained_bytes", "wasted_bytes"] {
        assert!(json["sent"][key].is_u64(), "{key}: {json}");
    }
    assert!(json["paths"][0]["repair_bytes"].is_u64() && json["paths"][0]["loss_burst"].is_f64(), "{json}");
    assert_eq!(receiver.end().1, b"one\ntwo\n");
}

#[test]
fn bad_settings_are_named_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("punctual.toml");
    let send = || run(&["send", "127.0.0.1:9", "--lines", "--config", path.to_str().unwrap()]);
    fs::write(&path, "priority = 1\ndeadlin = \"1s\"\n").unwrap();
    fails(&send(), 2, "punctual.toml:2: unknown field `deadlin`");
    fs::write(&path, "priority = [").unwrap();
    fails(&send(), 2, "punctual.toml:1: ");
    fs::write(&path, "scheduler = \"magic\"").unwrap();
    fails(&send(), 2, "no scheduler is called `magic`");
    fs::remove_file(&path).unwrap();
    fails(&send(), 3, "punctual.toml");
}

#[test]
fn what_makes_no_sense_is_said_to() {
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["send", "127.0.0.1:9"]).status.code(), Some(2));
    fails(&run(&["send", "nowhere", "--lines"]), 2, "`nowhere` is not HOST:PORT");
    fails(&run(&["send", "127.0.0.1:9", "--lines", "--fingerprint", "abc"]), 2, "64 hexadecimal digits");
    fails(&run(&["send", "127.0.0.1:9", "--lines", "--ca", CLIP]), 2, "no certificate");
    let much = run(&["send", "127.0.0.1:9", "--lines", "--redundancy", "much"]);
    assert!(much.status.code() == Some(2) && stderr(&much).contains("choose one of: auto, none"), "{}", stderr(&much));
    let policy = ["send", "127.0.0.1:9", "--lines", "--redundancy-policy", "much"];
    fails(&run(&policy), 2, "no redundancy policy is called `much`; choose one of: risk");
    fails(&run(&["recv", "--json"]), 2, "--out or --dir");
    fails(&run(&["recv", "--identity", CLIP]), 2, "clip.h264");

    let receiver = Receiver::start(&[]);
    fails(&receiver.send(&["--h264", "-q"], b"hello"), 2, "no H.264");
    assert_eq!(receiver.end().0, Some(0));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let no = "/no/such/file";
    fails(&run(&["send", "127.0.0.1:9", no, "--lines"]), 3, no);
    fails(&run(&["recv", "--out", no]), 3, no);
    fails(&run(&["recv", "--dir", "/dev/null/x"]), 3, "/dev/null/x");
    fails(&run(&["recv", "--identity", "/no/such/identity.pem"]), 3, "/no/such/identity.pem");
    fails(&run(&["demo", "--quiet", "--out", "/dev/null/x"]), 3, "/dev/null/x");
}

#[test]
fn nobody_there_is_noticed_in_time() {
    let fingerprint = "ab".repeat(32);
    let args = ["--lines", "--fingerprint", &fingerprint, "--connect-timeout", "300ms"];
    fails(&run(&[&["send", "127.0.0.1:9"], &args[..]].concat()), 4, "no answer from 127.0.0.1:9");
    fails(&run(&[&["send", "no-such-host.invalid:9"], &args[..]].concat()), 4, "cannot resolve no-such-host.invalid:9");
}

#[test]
fn another_certificate_is_not_accepted() {
    let receiver = Receiver::start(&["--keep-going"]);
    let wrong = "ab".repeat(32);
    let to = &receiver.address;
    fails(&run(&["send", to, "--lines", "--fingerprint", &wrong]), 5, &receiver.fingerprint);
}

#[test]
fn a_path_that_cannot_be_bound_is_named() {
    let fingerprint = "ab".repeat(32);
    let send = |path: &str| {
        // It may come up while we wait.
        let args = ["--lines", "--fingerprint", &fingerprint, "--connect-timeout", "300ms", "--quiet", "--path", path];
        run(&[&["send", "127.0.0.1:9"], &args[..]].concat())
    };
    // An address of documentation, which nobody has.
    fails(&send("192.0.2.1"), 6, "192.0.2.1");
    fails(&send("nosuchif0"), 6, "nosuchif0");
    let receiver = Receiver::start(&["--keep-going"]);
    fails(&run(&["recv", "--listen", &receiver.address]), 6, &receiver.address);
}

#[cfg(target_os = "linux")]
#[test]
fn a_receiver_that_cannot_write_ends_the_session() {
    let receiver = Receiver::start(&["--out", "/dev/full"]);
    let sent = receiver.send(&["--lines", "--quiet"], &b"a line\n".repeat(100_000));
    fails(&sent, 7, "the receiver cannot go on");
    let (code, _, text) = receiver.end();
    assert_eq!(code, Some(3));
    assert!(text.contains("cannot write /dev/full"), "{text}");
}

#[test]
fn strict_says_when_blocks_were_late() {
    // 16 MB in a millisecond is more than any loopback does.
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in");
    fs::write(&input, vec![7; 16_000_000]).unwrap();
    let receiver = Receiver::start(&[]);
    let sent =
        receiver.send(&[input.to_str().unwrap(), "--chunks", "16M", "--deadline", "1ms", "--strict", "--quiet"], b"");
    fails(&sent, 8, "1 block: 0 on time");
    assert_eq!(receiver.end().0, Some(0));
}

#[test]
fn the_demo_prints_one_object_and_leaves_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("demo");
    let output = run(&["demo", "--json", "--seconds", "1", "--out", out.to_str().unwrap()]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let runs = json["runs"].as_array().unwrap();
    let names: Vec<_> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["quic", "multipath-quic", "punctual"]);
    for run in runs {
        assert_eq!(run["frames"], 30);
        assert!((0.0..=1.0).contains(&run["on_time"].as_f64().unwrap()));
        assert!(["p50_ms", "p99_ms"].iter().all(|key| run[key].is_null() || run[key].is_f64()), "{run}");
        assert!(run["stalls"].is_u64() && run["bytes_sent"].as_u64() > Some(50_000), "{run}");
        let clip = Path::new(run["clip"].as_str().unwrap());
        assert!(fs::metadata(clip).unwrap().len() > 10_000);
        assert!(fs::metadata(clip.with_extension("h264")).unwrap().len() > 10_000);
    }
    let report = fs::read_to_string(json["report"].as_str().unwrap()).unwrap();
    assert!(report.starts_with("<!doctype html>") && report.ends_with("</html>\n"));
}

#[test]
fn help_teaches() {
    for (command, word) in [("demo", "report.html"), ("recv", "Examples:"), ("send", "Examples:")] {
        let output = run(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stdout).contains(word));
    }
    let send = String::from_utf8_lossy(&run(&["send", "--help"]).stdout).into_owned();
    // However its lines are broken.
    let send = send.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in ["retransmit sent again if lost", "duplicate everything twice", "target=0.001, the chance"] {
        assert!(send.contains(word), "{word}: {send}");
    }
    assert!(String::from_utf8_lossy(&run(&["--help"]).stdout).contains("Exit codes:"));
}
