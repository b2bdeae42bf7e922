//! `punctual link`: what it carries, what it says, and how it ends.

#[cfg(target_os = "linux")]
#[path = "common/namespace.rs"]
mod namespace;

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::{Ipv4Addr, UdpSocket},
    process::{Child, ChildStderr, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// The program as a bad link, which is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(args: &[&str]) -> (Self, BufReader<ChildStderr>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        let mut child = command
            .arg("link")
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        (Self(child), stderr)
    }

    /// Ends it in order; its code, and what it printed.
    #[cfg(unix)]
    fn terminate(mut self) -> (Option<i32>, String) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("there is kill").success());
        let code = self.0.wait().expect("it ends").code();
        let mut out = String::new();
        self.0.stdout.take().expect("it is a pipe").read_to_string(&mut out).expect("it prints text");
        (code, out)
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    socket
}

/// Where it says that it listens.
fn entrance(stderr: &mut BufReader<ChildStderr>) -> String {
    let mut line = String::new();
    stderr.read_line(&mut line).expect("it says where it listens");
    let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
    address.split(',').next().expect("an address").to_owned()
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_punctual")).arg("link").args(args).output().expect("the program runs")
}

#[test]
#[cfg(unix)]
fn it_carries_datagrams_late_and_tells_what_it_did() {
    let server = socket();
    let to = server.local_addr().unwrap().to_string();
    let args = ["--listen", "127.0.0.1:0", "--to", &to, "--delay", "20ms", "--back", "delay = '1ms'", "--json"];
    let (link, mut stderr) = Running::start(&args);
    let at = entrance(&mut stderr);
    let clients = [socket(), socket()];
    let mut buf = [0; 100];
    for client in &clients {
        let sent = Instant::now();
        client.send_to(b"there", &at).unwrap();
        let (len, from) = server.recv_from(&mut buf).unwrap();
        assert_eq!(&buf[..len], b"there");
        assert!(sent.elapsed() >= Duration::from_millis(20));
        server.send_to(b"back", from).unwrap();
        assert_eq!(client.recv_from(&mut buf).unwrap().0, 4);
    }
    let (code, out) = link.terminate();
    assert_eq!(code, Some(0), "to be told to stop is how it ends");
    let summary: Value = serde_json::from_str(&out).expect("one JSON object");
    assert_eq!((&summary["clients"], &summary["seed"], &summary["refused"]), (&2.into(), &1.into(), &0.into()));
    let path = &summary["paths"][0];
    assert_eq!(
        (&path["there"]["packets"], &path["there"]["bytes"], &path["there"]["lost"]),
        (&2.into(), &10.into(), &0.into())
    );
    assert_eq!((&path["back"]["packets"], &path["back"]["delivered"]), (&2.into(), &2.into()));
    assert_eq!(summary["late"]["packets"], 4);
    assert!(summary["late"]["p99_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn it_ends_by_itself_and_says_what_makes_no_sense() {
    let done = run(&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--for", "50ms", "--json", "--quiet"]);
    assert!(done.status.success() && done.stderr.is_empty());
    let summary: Value = serde_json::from_slice(&done.stdout).expect("one JSON object");
    assert_eq!((&summary["late"], &summary["seconds"]), (&Value::Null, &0.0.into()));
    for (args, code, word) in [
        (&["--listen", "127.0.0.1:0"][..], 2, "--to"),
        (&["--listen", "127.0.0.1:0", "--to", "nowhere"], 2, "HOST:PORT"),
        (&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--rate", "fast"], 2, "`rate`"),
        (&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--spec", "nothing.toml"], 3, "nothing.toml"),
        (&["--listen", "192.0.2.1:9", "--to", "127.0.0.1:9"], 6, "listen"),
        (&["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"], 2, "2 of --listen"),
        (&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--trace", "nowhere.down"], 3, "nowhere.down"),
        (&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--for", "0s"], 2, "--for"),
        (&["--listen", "127.0.0.1:9", "--to", "127.0.0.1:9"], 2, "in circles"),
        (&["--listen", "0.0.0.0:9", "--to", "localhost:9"], 2, "in circles"),
        (&["--listen", "127.0.0.1:9", "--to", "0.0.0.0:9"], 2, "in circles"),
        (&["--listen", "127.0.0.1:9", "--to", "[::ffff:127.0.0.1]:9"], 2, "in circles"),
        (&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:0"], 2, "HOST:PORT"),
        (&["--tun", "left"], 2, "NETNS"),
        (&["--tun", "left,10.9.0.1/24"], 2, "2 of --tun"),
    ] {
        let done = run(args);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

/// Kernel TCP between two namespaces, as root; elsewhere it is not tried.
#[cfg(target_os = "linux")]
mod between_namespaces {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        thread,
    };

    use super::{namespace::Namespace, *};

    #[test]
    fn kernel_tcp_meets_the_link() {
        let Some([left, right]) = Namespace::pair("a link") else { return };
        let places = [format!("{},10.9.0.1/24", left.0), format!("{},10.9.0.2/24", right.0)];
        let [near, far] = &places;
        let args = ["--tun", near, "--tun", far, "--rate", "20Mbit/s", "--delay", "20ms", "--loss", "1%", "--json"];
        let (link, mut stderr) = Running::start(&args);
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            stderr.read_line(line).expect("it says what there is");
        }
        assert!(lines[1].contains("link0 in") && lines[1].contains("10.9.0.2/24"), "{lines:?}");
        let server = right.enter(|| {
            let listener = TcpListener::bind("10.9.0.2:5000").expect("the device is up");
            move || {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut all = Vec::new();
                stream.read_to_end(&mut all).expect("all of it");
                all.len()
            }
        });
        let accept = server.join().expect("it listens");
        let server = thread::spawn(accept);
        let client = left.enter(|| {
            let begun = Instant::now();
            let mut stream = TcpStream::connect("10.9.0.2:5000").expect("there is a way");
            assert!(begun.elapsed() >= Duration::from_millis(40), "a round trip");
            stream.write_all(&vec![7; 200_000]).expect("it takes it");
        });
        client.join().expect("the client is done");
        assert_eq!(server.join().expect("the server is done"), 200_000);
        let (code, out) = link.terminate();
        let summary: Value = serde_json::from_str(&out).expect("one JSON object");
        assert_eq!(code, Some(0));
        let there = &summary["paths"][0]["there"];
        assert!(there["packets"].as_u64() > Some(100) && there["bytes"].as_u64() > Some(200_000), "{summary}");
        assert!(summary["clients"].is_null() && summary["late"]["packets"].as_u64() > Some(100));
    }
}
