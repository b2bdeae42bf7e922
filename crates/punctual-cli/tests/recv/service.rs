//! Under a service manager: the test is systemd.

use std::{os::unix::net::UnixDatagram, path::Path, process::Stdio, time::Duration};

use crate::processes::{PATIENCE, Receiver, punctual};

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

#[test]
fn the_unit_file_has_a_command_line_that_exists() {
    let unit = include_str!("../../../../contrib/systemd/punctual-recv.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("it starts something");
    let dir = tempfile::tempdir().unwrap();
    let line = line
        .replace("${STATE_DIRECTORY}", dir.path().to_str().unwrap())
        .replace("--listen 4433", "--listen 127.0.0.1:0");
    let args: Vec<&str> = line.split_whitespace().skip(1).collect();
    let mut receiver = Receiver::of(punctual().args(args).stdin(Stdio::null()));
    assert!(dir.path().join("identity.pem").exists());
    receiver.process.signal("TERM");
    assert_eq!(receiver.end(), Some(0), "{}", receiver.said());
}
