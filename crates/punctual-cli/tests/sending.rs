//! What a sender makes of its input: live and from files, videos and messages, and what is none of these.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use punctual_eval::h264;
use serde_json::Value;

const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/clip.h264");

/// As long as anything here may take, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn punctual() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A process that does not outlive its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    /// Its end, which comes in time.
    fn end(mut self) -> Output {
        let read = |from: Option<Box<dyn std::io::Read + Send>>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut from) = from {
                    from.read_to_end(&mut bytes).expect("it can be read");
                }
                bytes
            })
        };
        let stdout = read(self.0.stdout.take().map(|from| Box::new(from) as _));
        let stderr = read(self.0.stderr.take().map(|from| Box::new(from) as _));
        let due = Instant::now() + PATIENCE;
        let status = loop {
            match self.0.try_wait().expect("it can be asked") {
                Some(status) => break status,
                None if Instant::now() > due => panic!("it does not end"),
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

/// A receiver under way, which writes messages behind their lengths to standard output.
struct Receiver {
    process: Process,
    address: String,
    fingerprint: String,
    /// What it writes, all of which is read as it comes: a receiver whose reader does not read has not taken anything.
    written: Option<Written>,
}

type Written = thread::JoinHandle<Vec<u8>>;

impl Receiver {
    fn start(args: &[&str]) -> Self {
        let mut receiver = Self::start_with(args);
        let mut stdout = receiver.process.0.stdout.take().expect("it is piped");
        let read = move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).expect("it can be read");
            bytes
        };
        receiver.written = Some(thread::spawn(read));
        receiver
    }

    fn start_with(args: &[&str]) -> Self {
        let mut process = Process::start(punctual().args(["recv", "--listen", "127.0.0.1:0"]).args(args));
        let mut errors = BufReader::new(process.0.stderr.take().expect("it is piped"));
        let mut said = |what: &str| {
            let mut line = String::new();
            errors.read_line(&mut line).expect("it is text");
            line.strip_prefix(what).unwrap_or_else(|| panic!("{what}: {line:?}")).trim().to_owned()
        };
        let (address, fingerprint) = (said("listening on "), said("fingerprint "));
        // What else it says is nobody's business here, but must be read.
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self { process, address, fingerprint, written: None }
    }

    /// One whose output the test reads itself.
    fn start_unread() -> (Self, ChildStdout) {
        let mut receiver = Self::start_with(&[]);
        let stdout = receiver.process.0.stdout.take().expect("it is piped");
        (receiver, stdout)
    }

    fn sender(&self, args: &[&str]) -> Command {
        let mut command = punctual();
        command.args(["send", &self.address, "--fingerprint", &self.fingerprint]).args(args).stdin(Stdio::piped());
        command
    }

    /// Sends to it from a pipe.
    fn send(&self, args: &[&str], input: &[u8]) -> Output {
        let mut sender = Process::start(&mut self.sender(args));
        let mut stdin = sender.0.stdin.take().expect("it is piped");
        let input = input.to_vec();
        // It may end before it has read everything.
        thread::spawn(move || stdin.write_all(&input));
        sender.end()
    }

    fn end(self) -> Output {
        let output = self.process.end();
        let stdout = self.written.map(|written| written.join().unwrap());
        Output { stdout: stdout.unwrap_or_default(), ..output }
    }
}

fn fails(output: &Output, word: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.lines().count() == 1 && said.starts_with("punctual: ") && said.contains(word), "{said:?}");
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Takes so many bytes from a stream of the receiver's, in time. What comes later is read, too, and forgotten.
fn take(mut from: impl std::io::Read + Send + 'static, len: usize) -> Vec<u8> {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut bytes = vec![0; len];
        from.read_exact(&mut bytes).expect("they come");
        // The test may have failed for another reason.
        let _ = tell.send(bytes);
        std::io::copy(&mut from, &mut std::io::sink())
    });
    told.recv_timeout(PATIENCE).expect("the bytes come")
}

#[test]
fn a_live_frame_arrives_before_the_next_is_there() {
    let bytes = fs::read(CLIP).unwrap();
    let (units, _) = h264::split(&bytes, 16 << 20);
    let (receiver, stdout) = Receiver::start_unread();
    let mut sender = Process::start(&mut receiver.sender(&["--h264", "--json", "--deadline", "60s"]));
    let mut stdin: ChildStdin = sender.0.stdin.take().expect("it is piped");
    let mut sent = 0;
    for unit in &units[..6] {
        stdin.write_all(&unit.data).unwrap();
        sent += unit.data.len();
    }
    // The sixth frame, too, of which nothing but silence says that it is complete.
    assert!(take(stdout, sent) == bytes[..sent]);
    drop(stdin);
    assert!(json(&sender.end())["blocks"].as_u64() >= Some(6));
    drop(receiver);
}

#[test]
fn a_live_video_does_not_fall_behind_its_nominal_rate() {
    // Ten seconds of video by its own word, in no time: nothing holds it up.
    let receiver = Receiver::start(&[]);
    let began = Instant::now();
    let sent = json(&receiver.send(&["--h264", "--json"], &fs::read(CLIP).unwrap()));
    assert_eq!((&sent["on_time"], &sent["dropped"]), (&sent["blocks"], &0.into()));
    assert!(sent["seconds"].as_f64() < Some(9.0) || began.elapsed() > PATIENCE / 2, "{sent}");
    assert!(receiver.end().stdout == fs::read(CLIP).unwrap());
}

#[test]
fn the_delay_counts_from_a_frames_first_byte() {
    let bytes = fs::read(CLIP).unwrap();
    let (units, _) = h264::split(&bytes, 16 << 20);
    let (receiver, stdout) = Receiver::start_unread();
    let mut sender = Process::start(&mut receiver.sender(&["--h264", "--json"]));
    let mut stdin = sender.0.stdin.take().expect("it is piped");
    // Once a frame is there, the sender reads.
    stdin.write_all(&units[0].data).unwrap();
    take(stdout, units[0].data.len());
    // The delimiter of the next comes long before the rest of it.
    stdin.write_all(&units[1].data[..6]).unwrap();
    thread::sleep(Duration::from_secs(2));
    stdin.write_all(&units[1].data[6..]).unwrap();
    drop(stdin);
    let sent = json(&sender.end());
    assert!(sent["p99_ms"].as_f64() >= Some(1000.0), "{sent}");
}

#[test]
fn a_live_video_keeps_its_beat_if_asked_to() {
    let bytes = fs::read(CLIP).unwrap();
    let (units, _) = h264::split(&bytes, 16 << 20);
    let some: Vec<u8> = units[..31].iter().flat_map(|unit| unit.data.to_vec()).collect();
    let receiver = Receiver::start(&[]);
    let sent = json(&receiver.send(&["--h264", "--pace", "--json"], &some));
    assert!(sent["seconds"].as_f64() >= Some(0.99), "{sent}");
    assert!(receiver.end().stdout == some);
}

#[test]
fn what_a_beat_keeps_back_is_part_of_the_delay_of_a_pipe_and_of_no_deadline() {
    let bytes = fs::read(CLIP).unwrap();
    let (units, _) = h264::split(&bytes, 16 << 20);
    let some: Vec<u8> = units[..31].iter().flat_map(|unit| unit.data.to_vec()).collect();
    let dir = tempfile::tempdir().unwrap();
    let film = dir.path().join("film.h264");
    fs::write(&film, &some).unwrap();
    // A second of video, all there at once. However slow the machine is, it has been there for half a second when the last frames' turns come.
    let receiver = Receiver::start(&[]);
    let sent = json(&receiver.send(&["--h264", "--pace", "--json"], &some));
    assert!(sent["p99_ms"].as_f64() >= Some(500.0) && sent["kept_back_ms"].as_f64() >= Some(500.0), "{sent}");
    // With a deadline that is shorter than the video by far, but not than a slow machine's pauses.
    let receiver = Receiver::start(&[]);
    let sent = json(&receiver.send(&["--h264", "--pace", "--fps", "5", "--deadline", "3s", "--json"], &some));
    assert_eq!((&sent["on_time"], &sent["dropped"]), (&31.into(), &0.into()), "{sent}");
    assert!(sent["p99_ms"].as_f64() >= Some(5000.0), "{sent}");
    // Nothing has waited for its turn in a file: the clock starts when it comes.
    let receiver = Receiver::start(&[]);
    let sent = json(&receiver.send(&[film.to_str().unwrap(), "--h264", "--json"], b""));
    assert!(sent["kept_back_ms"].is_null(), "{sent}");
}

#[test]
fn who_joins_a_stream_begins_at_a_key_frame() {
    let bytes = fs::read(CLIP).unwrap();
    let (units, _) = h264::split(&bytes, 16 << 20);
    let key = units.iter().find(|unit| unit.index > 0 && unit.idr).expect("there is another");
    let from: usize = units[..key.index as usize].iter().map(|unit| unit.data.len()).sum();
    let receiver = Receiver::start(&[]);
    let sent = receiver.send(&["--h264"], &bytes[units[0].data.len() + 50..]);
    assert_eq!(sent.status.code(), Some(0));
    assert!(text(&sent.stderr).contains("begins in the middle of a stream"), "{}", text(&sent.stderr));
    assert!(receiver.end().stdout == bytes[from..]);
}

/// An H.265 stream of so many pictures, 25 per second by its own word, an IDR picture each 8: headers as the standard has them, and no picture
/// behind them.
fn h265(pictures: u8) -> Vec<u8> {
    // A picture of 64 by 64 samples, each referring to the one before it.
    const VPS: &[u8] = b"\x40\x01\x0c\x01\xff\xff\x01\x60\0\0\x03\0\0\x03\0\0\x03\0\0\x03\0\x93\xac\x09";
    const SPS: &[u8] = b"\x42\x01\x01\x01\x60\0\0\x03\0\0\x03\0\0\x03\0\0\x03\0\x93\xa0\x20\x81\x05\x96\xb9\x24\xc1\x2e\x20\x10\0\0\x03\0\x10\0\0\x03\x01\x90\x80";
    const PPS: &[u8] = b"\x44\x01\xc0\0\0\x04";
    let body = [0xa5; 500];
    let picture = |n: u8| match n % 8 {
        0 => vec![VPS.to_vec(), SPS.to_vec(), PPS.to_vec(), [&[0x26, 0x01, 0xac, 0x40], &body[..]].concat()],
        // Its place in display order is in the fourth byte.
        n => vec![[&[0x02, 0x01, 0xd0, n << 3 | 4, 0x10], &body[..]].concat()],
    };
    let nals = (0..pictures).flat_map(picture);
    nals.flat_map(|nal| [&[0, 0, 0, 1], &nal[..]].concat()).collect()
}

#[test]
fn an_h265_video_arrives_from_a_file_and_live() {
    let dir = tempfile::tempdir().unwrap();
    let (path, video) = (dir.path().join("film.h265"), h265(30));
    fs::write(&path, &video).unwrap();
    let receiver = Receiver::start(&[]);
    let sent = json(&receiver.send(&[path.to_str().unwrap(), "--h265", "--json"], b""));
    assert_eq!((&sent["blocks"], &sent["on_time"]), (&30.into(), &30.into()));
    // 29 times 40 ms.
    assert!(sent["seconds"].as_f64() >= Some(1.15), "{sent}");
    assert!(receiver.end().stdout == video);

    let receiver = Receiver::start(&[]);
    // From within the first picture.
    let sent = receiver.send(&["--h265"], &video[300..]);
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    assert!(receiver.end().stdout == video[h265(8).len()..]);
    fails(&Receiver::start(&[]).send(&["--h264", "-q"], &video), "give --h265");
}

#[test]
fn what_is_no_byte_stream_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let transport: Vec<u8> = (0..188 * 50).map(|at| if at % 188 == 0 { 0x47 } else { 0x11 }).collect();
    for (name, content, word) in [
        ("film.ts", &transport[..], "film.ts -c copy -bsf:v h264_mp4toannexb -f h264 -`"),
        ("film.mp4", b"\0\0\0\x18ftypmp42\0\0\0\0", "is an MP4 file"),
        ("film.hevc", b"\0\0\0\x01\x40\x01\x0c\x01", "give --h265"),
        ("nothing", b"", "nothing is empty"),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        // It needs no receiver to know.
        fails(&punctual().args(["send", "127.0.0.1:9", "--h264"]).arg(&path).output().unwrap(), word);
    }
    let receiver = Receiver::start(&[]);
    fails(&receiver.send(&["--h264", "-q"], &transport), "is an MPEG transport stream");
    assert_eq!(receiver.end().status.code(), Some(0));
}

#[test]
fn nothing_at_all_is_said_to_be_nothing() {
    for what in ["--h264", "--h265", "--lines", "--framed"] {
        let receiver = Receiver::start(&[]);
        fails(&receiver.send(&[what, "-q"], b""), "standard input is empty");
        assert_eq!(receiver.end().status.code(), Some(0));
    }
}

#[test]
fn noise_amid_a_video_ends_nobody() {
    let bytes = fs::read(CLIP).unwrap();
    let (begin, end) = bytes.split_at(bytes.len() / 2);
    let noise: Vec<u8> = (0..40_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let whole = [begin, &noise, end].concat();
    let receiver = Receiver::start(&[]);
    let sent = receiver.send(&["--h264"], &whole);
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    let received = receiver.end();
    assert_eq!(received.status.code(), Some(0));
    assert!(received.stdout == whole);
}

#[test]
fn what_the_receiver_cannot_write_is_not_said_to_be_there() {
    // More than a pipe holds, and nobody reads it.
    let (receiver, _unread) = Receiver::start_unread();
    let sent = receiver.send(&["--chunks", "64K", "--finish-timeout", "1s"], &vec![7; 1 << 20]);
    assert_eq!(sent.status.code(), Some(7), "{}", text(&sent.stderr));
    let said = text(&sent.stderr);
    assert!(said.contains("has not taken all") && said.contains("not known to be taken"), "{said}");
}

#[test]
fn an_empty_message_is_a_message() {
    let messages = b"\0\0\0\x03one\0\0\0\0\0\0\0\x03two\0\0\0\0";
    let receiver = Receiver::start(&["--framed"]);
    let sent = json(&receiver.send(&["--framed", "--json"], messages));
    assert_eq!((&sent["blocks"], &sent["on_time"]), (&4.into(), &4.into()));
    assert_eq!(receiver.end().stdout, messages);
    // With settings of its own, in a channel and in none.
    let receiver = Receiver::start(&["--framed"]);
    let sent =
        receiver.send(&["--framed-headers", "-q"], b"channel=3 deadline=60s\n\0\0\0\0channel=none needs=1\n\0\0\0\0");
    assert!(sent.status.success() && sent.stderr.is_empty(), "{}", text(&sent.stderr));
    assert_eq!(receiver.end().stdout, [0; 8]);
}

#[test]
fn messages_may_have_settings_of_their_own() {
    let receiver = Receiver::start(&["--framed"]);
    let input = b"priority=0 deadline=60s\n\0\0\0\x03onechannel=none needs=1\n\0\0\0\x03two\n\0\0\0\x05three";
    let sent = json(&receiver.send(&["--framed-headers", "--channel", "9", "--priority", "7", "--json"], input));
    assert_eq!((&sent["blocks"], &sent["on_time"]), (&3.into(), &3.into()));
    let received = receiver.end().stdout;
    // The second is in no channel: nobody waits for it, and it for nobody.
    for message in [&b"\0\0\0\x03one"[..], b"\0\0\0\x03two", b"\0\0\0\x05three"] {
        assert!(received.windows(message.len()).any(|window| window == message), "{received:?}");
    }
    let receiver = Receiver::start(&["--framed"]);
    fails(&receiver.send(&["--framed-headers", "-q"], b"\n\0\0\0\x01aneeds=2\n\0\0\0\x01b"), "message 2: `needs=2`");
    assert_eq!(receiver.end().stdout, b"\0\0\0\x01a");
}

#[test]
fn what_makes_no_sense_is_said_in_a_sentence() {
    let send = |args: &[&str]| punctual().args(["send", "127.0.0.1:9"]).args(args).output().unwrap();
    let negative = send(&["--lines", "--deadline", "-5ms"]);
    assert_eq!(negative.status.code(), Some(2));
    assert!(text(&negative.stderr).contains("cannot be negative"), "{}", text(&negative.stderr));
    for flag in ["--idle-timeout", "--connect-timeout"] {
        let never = send(&["--lines", flag, "0s"]);
        let said = text(&never.stderr);
        assert_eq!(never.status.code(), Some(2), "{said}");
        assert!(said.contains(flag) && said.contains("longer than nothing"), "{said}");
    }
    fails(&send(&["--lines", "--pace"]), "--pace is for videos");
    fails(&send(&["--lines", "--fps", "25"]), "--fps is for videos");
    fails(
        &send(&["--lines", "--redundancy-policy", "risk:size=1"]),
        "redundancy policy `risk` has no parameter `size`",
    );

    let fingerprint = "ab".repeat(32);
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = nobody.local_addr().unwrap().to_string();
    let call = || {
        let args = ["send", &silent, "--lines", "--fingerprint", &fingerprint, "--connect-timeout", "300ms"];
        let called = punctual().args(args).output().unwrap();
        assert_eq!(called.status.code(), Some(4));
        text(&called.stderr)
    };
    let said = call();
    assert!(said.contains("within 300 ms") && said.contains("is `punctual recv` running there"), "{said}");
    drop(nobody);
    let said = call();
    assert!(said.contains("nobody listens") && said.contains("is `punctual recv` running there"), "{said}");

    let receiver = Receiver::start(&["--keep-going"]);
    let untrusted = punctual().args(["send", &receiver.address, "--lines"]).output().unwrap();
    assert_eq!(untrusted.status.code(), Some(5));
    let said = text(&untrusted.stderr);
    assert!(said.contains("--fingerprint") && said.contains("--ca"), "{said}");
}

#[test]
fn shells_and_man_are_served() {
    for shell in ["bash", "fish", "zsh"] {
        let output = punctual().args(["completions", shell]).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("framed-headers"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(punctual().arg("man").arg(dir.path()).status().unwrap().success());
    assert!(fs::read_to_string(dir.path().join("punctual-send.1")).unwrap().contains("framed\\-headers"));
}
