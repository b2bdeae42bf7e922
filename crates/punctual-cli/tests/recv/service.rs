//! Under a service manager: the test is systemd.

use std::{
    net::UdpSocket,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::processes::{PATIENCE, Process, Receiver, Sender, punctual};

/// The socket at which a service manager listens.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn hears(&self) -> String {
        let mut buf = [0; 4096];
        let n = self.0.recv(&mut buf).expect("something is said in time");
        String::from_utf8_lossy(&buf[..n]).into_owned()
    }

    /// Passes over what else is said.
    fn waits_for(&self, what: &str) {
        while !self.hears().lines().any(|line| line == what) {}
    }
}

#[test]
fn a_service_manager_is_kept_informed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = Manager::at(&path);
    let mut command = punctual();
    command.args([
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--keep-going",
        "--dir",
        dir.path().join("blocks").to_str().unwrap(),
    ]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000").stdin(Stdio::null());
    let mut receiver = Receiver::of(&mut command);
    assert_eq!(manager.hears(), "READY=1\n", "before anything else, and only when it listens");
    for _ in 0..3 {
        manager.waits_for("WATCHDOG=1");
    }
    // With a sender, too.
    let mut sender = receiver.sender(&[]);
    sender.say("a line");
    receiver.serves(1);
    for _ in 0..3 {
        manager.waits_for("WATCHDOG=1");
    }
    assert_eq!(sender.end(), Some(0), "{}", sender.said());
    receiver.process.signal("TERM");
    manager.waits_for("STOPPING=1");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

#[test]
fn a_watchdog_that_is_not_ours_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = Manager::at(&path);
    let mut command = punctual();
    command.args(["recv", "--listen", "127.0.0.1:0", "--out", "/dev/null", "--keep-going"]);
    // For another process: a shell that started us, say.
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "20000").env("WATCHDOG_PID", "1").stdin(Stdio::null());
    let mut receiver = Receiver::of(&mut command);
    std::thread::sleep(Duration::from_millis(200));
    receiver.process.signal("TERM");
    assert_eq!([manager.hears(), manager.hears()], ["READY=1\n", "STOPPING=1\n"]);
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}

/// A receiver that is handed a socket as systemd does it: descriptor 3, and two variables.
fn activated(socket: UdpSocket, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"", "sh"]);
    command.args(["env", "--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_punctual"), "recv"]).args(args);
    command.env_remove("NOTIFY_SOCKET").env_remove("RUST_LOG").stdin(Stdio::from(OwnedFd::from(socket)));
    command
}

#[test]
fn a_socket_that_is_handed_over_is_taken() {
    // One of our address, and one of all addresses.
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let socket = UdpSocket::bind(address).unwrap();
        let port = socket.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let identity = dir.path().join("identity");
        let mut first = Receiver::start(&["--identity", identity.to_str().unwrap(), "--out", "/dev/null"]);
        first.process.signal("TERM");
        first.end();
        // Somebody sends before there is a receiver: that is what has the service manager start one.
        let mut command = punctual();
        command.args(["send", &format!("127.0.0.1:{port}"), "--fingerprint", &first.fingerprint, "--lines"]);
        let mut sender = Sender(Process::start(command.stdin(Stdio::piped())));
        sender.say("a line");
        let mut buf = [0; 2048];
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.peek_from(&mut buf).expect("it knocks");
        let mut receiver = Receiver::of(&mut activated(socket, &["--identity", identity.to_str().unwrap()]));
        assert!(receiver.address.ends_with(&format!(":{port}")), "{}", receiver.address);
        assert_eq!(sender.end(), Some(0), "{}", sender.said());
        assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
        assert_eq!(receiver.process.stdout.text(), "a line\n");
        assert_eq!(receiver.said().matches("listening on").count(), 1, "and no other: {}", receiver.said());
    }
}

#[test]
fn what_is_handed_over_and_cannot_be_used_is_named() {
    let dual = |only: bool| {
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None).unwrap();
        socket.set_only_v6(only).unwrap();
        socket.bind(&"[::]:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        UdpSocket::from(socket)
    };
    let mut process = Process::start(&mut activated(dual(false), &["--out", "/dev/null"]));
    assert_eq!(process.end_by_itself(), Some(6), "{}", process.stderr.text());
    assert!(process.stderr.text().contains("BindIPv6Only=ipv6-only"), "{}", process.stderr.text());
    let mut receiver = Receiver::of(&mut activated(dual(true), &["--out", "/dev/null"]));
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(143), "{}", receiver.said());

    // Of TCP, say.
    let mut command = activated(UdpSocket::bind("127.0.0.1:0").unwrap(), &["--out", "/dev/null"]);
    command.stdin(Stdio::from(OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap())));
    let mut process = Process::start(&mut command);
    assert_eq!(process.end_by_itself(), Some(2), "{}", process.stderr.text());
    assert!(process.stderr.text().contains("ListenDatagram="), "{}", process.stderr.text());
}

#[test]
fn the_socket_unit_is_the_services() {
    let unit = include_str!("../../../../contrib/systemd/punctual-recv.socket");
    let service = include_str!("../../../../contrib/systemd/punctual-recv.service");
    let lines: Vec<&str> = unit.lines().collect();
    for line in
        ["ListenDatagram=0.0.0.0:4433", "ListenDatagram=[::]:4433", "BindIPv6Only=ipv6-only", "PassPacketInfo=yes"]
    {
        assert!(lines.contains(&line), "{line}");
    }
    // With a --listen of its own, the service would bind the same port twice.
    assert!(!service.lines().any(|line| line.starts_with("ExecStart=") && line.contains("--listen")));
}

#[test]
fn the_unit_file_has_a_command_line_that_exists() {
    let unit = include_str!("../../../../contrib/systemd/punctual-recv.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("it starts something");
    let dir = tempfile::tempdir().unwrap();
    let line = line.replace("${STATE_DIRECTORY}", dir.path().to_str().unwrap());
    let args: Vec<&str> = line.split_whitespace().skip(1).collect();
    // The port of the unit may be taken here.
    let mut receiver = Receiver::of(punctual().args(args).args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()));
    assert!(dir.path().join("identity.pem").exists());
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}
