//! `punctual vpn`, as programs between two network namespaces. Linux, as root: who is not is told that it was not tried.
#![cfg(target_os = "linux")]

#[path = "common/namespace.rs"]
mod namespace;
#[path = "recv/processes.rs"]
#[expect(dead_code, reason = "shared with other tests, which use more of it")]
mod processes;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use namespace::Namespace;
use processes::{Process, punctual, wait_for};

impl Namespace {
    /// `ip` in it; what it prints.
    fn ip(&self, what: &str) -> String {
        let done = Command::new("ip").args(["-n", &self.0]).args(what.split(' ')).output().expect("there is `ip`");
        assert!(done.status.success(), "{what}: {done:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// The program in it.
    fn start(&self, args: &[&str]) -> Process {
        let (mut command, program) = (Command::new("ip"), punctual());
        command.args(["netns", "exec", &self.0]).arg(program.get_program()).args(program.get_args());
        command.arg("vpn").args(args);
        Process::start(command.stdin(Stdio::null()))
    }
}

/// Two namespaces with two links between them; `None`, and said so, for who is not root.
fn hosts() -> Option<[Namespace; 2]> {
    let [left, right] = Namespace::pair("a VPN")?;
    for at in 0..2 {
        let made = Command::new("ip")
            .args([
                "link",
                "add",
                &format!("w{at}"),
                "netns",
                &left.0,
                "type",
                "veth",
                "peer",
                "name",
                &format!("w{at}"),
            ])
            .args(["netns", &right.0])
            .status();
        assert!(made.is_ok_and(|made| made.success()), "a veth pair");
        for (end, host) in [(&left, 1), (&right, 2)] {
            end.ip(&format!("addr add 10.71.{at}.{host}/24 dev w{at}"));
            end.ip(&format!("link set w{at} up"));
        }
    }
    Some([left, right])
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A client says its fingerprint before it calls.
fn fingerprint_of(host: &Namespace, key: &Path) -> String {
    let mut first = host.start(&["10.71.0.2:9", "--fingerprint", &"ab".repeat(32), "--identity", text(key)]);
    let fingerprint = first.stderr.after("for the server to let us in: ");
    first.signal("TERM");
    first.end_by_itself();
    fingerprint
}

/// Settings of a server that lets that client in.
fn serving(client: &str, routes: &str, mtu: u16) -> String {
    format!(
        "serve = ['4433']\n[vpn]\naddress = ['{SERVER}/24', 'fd72::1/64']\nroute = [{routes}]\nmtu = {mtu}\n\
         [[client]]\nfingerprint = '{client}'\nname = 'left'\n"
    )
}

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 72, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 72, 0, 1);

#[test]
fn packets_pass_between_namespaces_and_settings_are_read_again() {
    let Some([left, right]) = hosts() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let [key, settings] = ["client.pem", "server.toml"].map(|name| dir.path().join(name));
    let fingerprint = fingerprint_of(&left, &key);
    let write = |routes: &str, mtu| fs::write(&settings, serving(&fingerprint, routes, mtu)).expect("written");
    write("'192.168.0.0/16'", 1_500);
    let mut server = right.start(&["--config", text(&settings)]);
    let known = server.stderr.after("fingerprint ");
    let paths = ["--path", "w0", "--path", "w1=10.71.1.2:4433", "--accept-routes", "all"];
    let called = ["10.71.0.2:4433", "--fingerprint", &known, "--identity", text(&key)];
    let mut client = left.start(&[&called[..], &paths].concat());
    client.stderr.after("connected");
    wait_for("addresses and routes", || {
        let routes = left.ip("route show");
        (left.ip("addr show dev punctual0").contains("10.72.0.2/24") && routes.contains("192.168.0.0/16")).then_some(())
    });
    // Datagrams go there and back.
    let echo = right.enter(|| {
        let socket = UdpSocket::bind((SERVER, 5_000)).expect("its address");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let mut space = [0; 2_000];
        let (size, from) = socket.recv_from(&mut space).expect("a datagram");
        socket.send_to(&space[..size], from).expect("sent");
        from
    });
    let asked = left.enter(|| {
        let socket = UdpSocket::bind((CLIENT, 0)).expect("its address");
        socket.connect((SERVER, 5_000)).expect("an address");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        let mut space = [0; 2_000];
        wait_for("answer", || {
            let _ = socket.send(&[5; 1_400]);
            socket.recv(&mut space).ok()
        })
    });
    assert_eq!(asked.join().expect("no panic"), 1_400);
    assert_eq!(echo.join().expect("no panic").ip(), CLIENT);
    // A connection's bytes all come, though in large pieces.
    const BYTES: usize = 8 << 20;
    let data = |at: usize| (at * 31 + at / 257) as u8;
    let listener = right.enter(|| TcpListener::bind((SERVER, 5_001)).expect("its address")).join().expect("no panic");
    let sending = left.enter(move || {
        let mut stream = TcpStream::connect((SERVER, 5_001)).expect("it answers");
        stream.write_all(&(0..BYTES).map(data).collect::<Vec<u8>>()).expect("sent");
    });
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let mut came = Vec::new();
    stream.read_to_end(&mut came).expect("all of it");
    sending.join().expect("no panic");
    assert!(came.len() == BYTES && came.iter().enumerate().all(|(at, byte)| *byte == data(at)), "{}", came.len());
    // Routes that are others are known at the other side at once.
    write("'172.16.0.0/12'", 1_400);
    server.signal("HUP");
    server.stderr.after("settings read again");
    wait_for("another route", || {
        let routes = left.ip("route show");
        (routes.contains("172.16.0.0/12") && !routes.contains("192.168.0.0/16")).then_some(())
    });
    for end in [&left, &right] {
        wait_for("another MTU", || end.ip("link show dev punctual0").contains("mtu 1400 ").then_some(()));
    }
    client.signal("TERM");
    assert_eq!(client.end_by_itself(), Some(0), "{}", client.stderr.text());
    assert!(!left.ip("link show").contains("punctual0"), "the device goes with it");
    server.signal("TERM");
    assert_eq!(server.end_by_itself(), Some(0), "{}", server.stderr.text());
}

/// The kernel forgets a device's routes, and its addresses of IPv6, when it goes down.
#[test]
fn a_device_that_was_down_is_what_it_was() {
    let Some([left, right]) = hosts() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let [key, settings] = ["client.pem", "server.toml"].map(|name| dir.path().join(name));
    let fingerprint = fingerprint_of(&left, &key);
    let behind = "networks = ['192.168.7.0/24', 'fd99::/64']\n";
    let all = serving(&fingerprint, "'172.16.0.0/12', 'fd98::/64'", 1_400) + behind;
    fs::write(&settings, all).expect("written");
    let server = right.start(&["--config", text(&settings)]);
    let known = server.stderr.after("fingerprint ");
    let called = ["10.71.0.2:4433", "--fingerprint", &known, "--identity", text(&key)];
    let client = left.start(&[&called[..], &["--accept-routes", "all"]].concat());
    client.stderr.after("connected");
    for (end, all) in [
        (&left, ["10.72.0.2/24", "fd72::2/64", "172.16.0.0/12", "fd98::/64"]),
        (&right, ["10.72.0.1/24", "fd72::1/64", "192.168.7.0/24", "fd99::/64"]),
    ] {
        let is_whole = || {
            let shown = ["addr show", "-4 route show", "-6 route show"];
            let shown = shown.map(|what| end.ip(&format!("{what} dev punctual0"))).concat();
            all.iter().all(|part| shown.contains(part)).then_some(())
        };
        wait_for("addresses and routes", is_whole);
        // Twice: the first time is not the last.
        for _ in 0..2 {
            end.ip("link set dev punctual0 down");
            assert!(is_whole().is_none());
            end.ip("link set dev punctual0 up");
            wait_for("addresses and routes again", is_whole);
        }
    }
    for mut one in [client, server] {
        one.signal("TERM");
        assert_eq!(one.end_by_itself(), Some(0), "{}", one.stderr.text());
    }
}

#[test]
fn a_link_that_falls_silent_is_told() {
    let Some([left, right]) = hosts() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let [key, settings] = ["client.pem", "server.toml"].map(|name| dir.path().join(name));
    fs::write(&settings, serving(&fingerprint_of(&left, &key), "", 1_500)).expect("written");
    let server = right.start(&["--config", text(&settings)]);
    let known = server.stderr.after("fingerprint ");
    let paths = ["--path", "w0", "--path", "w1=10.71.1.2:4433"];
    let called = ["10.71.0.2:4433", "--fingerprint", &known, "--identity", text(&key)];
    let client = left.start(&[&called[..], &paths].concat());
    client.stderr.after("path w1 is open");
    right.ip("addr del 10.71.1.2/24 dev w1");
    client.stderr.after("path w1 is suspected: silent for ");
    right.ip("addr add 10.71.1.2/24 dev w1");
    client.stderr.after("path w1 is in use again");
}

#[test]
fn a_server_takes_nothing_from_a_client_that_is_not_for_it_to_have() {
    let Some([left, right]) = hosts() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let [key, settings] = ["client.pem", "server.toml"].map(|name| dir.path().join(name));
    let fingerprint = fingerprint_of(&left, &key);
    // Everything; the client's second link, whole and in part; and what another of its routes leads to.
    let greedy = "'0.0.0.0/0', '::/0', '10.71.1.0/24', '10.71.1.2/32', '172.20.0.0/16', '192.168.0.0/16'";
    fs::write(&settings, serving(&fingerprint, greedy, 1_500)).expect("written");
    let mut server = right.start(&["--config", text(&settings)]);
    let known = server.stderr.after("fingerprint ");
    left.ip("route add default via 10.71.0.2");
    left.ip("route add 172.20.0.0/16 dev w1");
    let before = [left.ip("-4 route show"), left.ip("-6 route show")];
    // The way to the server is the system's to choose, which a route to everything would lead into the VPN.
    let called = ["10.71.0.2:4433", "--fingerprint", &known, "--identity", text(&key)];
    let mut client = left.start(&called);
    client.stderr.after("not taken from the server: 0.0.0.0/0 (accept-routes does not contain it), ::/0 (");
    wait_for("an address", || left.ip("addr show dev punctual0").contains("10.72.0.2/24").then_some(()));
    assert_eq!(left.ip("route show dev punctual0").lines().count(), 1, "that of its address");
    client.signal("TERM");
    assert_eq!(client.end_by_itself(), Some(0), "{}", client.stderr.text());

    let mut client = left.start(&[&called[..], &["--accept-routes", "all"]].concat());
    let second = "another interface is in 10.71.1.0/24";
    let refused = client.stderr.after("not taken from the server: ");
    assert_eq!(refused, format!("10.71.1.0/24 ({second}), 10.71.1.2/32 ({second})"));
    client.stderr.after("not set: another route leads there");
    wait_for("routes", || left.ip("route show dev punctual0").contains("192.168.0.0/16").then_some(()));
    let by = |to: &str| left.ip(&format!("route get {to}"));
    for (to, device) in [
        ("10.71.0.2", "w0"),
        ("10.71.1.2", "w1"),
        ("172.20.0.1", "w1"),
        ("10.71.0.3", "w0"),
        ("192.168.1.1", "punctual0"),
        ("8.8.8.8", "punctual0"),
        ("2001:db8::1", "punctual0"),
    ] {
        assert!(by(to).contains(&format!("dev {device} ")), "{to}: {}", by(to));
    }
    // The session goes on, and carries.
    let echo = right.enter(|| {
        let socket = UdpSocket::bind((SERVER, 5_000)).expect("its address");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let mut space = [0; 100];
        let (size, from) = socket.recv_from(&mut space).expect("a datagram");
        socket.send_to(&space[..size], from).expect("sent");
    });
    let asked = left.enter(|| {
        let socket = UdpSocket::bind((CLIENT, 0)).expect("its address");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        wait_for("answer", || {
            let _ = socket.send_to(b"hello", (SERVER, 5_000));
            socket.recv(&mut [0; 100]).ok()
        })
    });
    assert_eq!(asked.join().expect("no panic"), 5);
    echo.join().expect("no panic");
    client.signal("TERM");
    assert_eq!(client.end_by_itself(), Some(0), "{}", client.stderr.text());
    assert_eq!([left.ip("-4 route show"), left.ip("-6 route show")], before, "all is as it was");
    // It cannot have an address in the network of another interface.
    left.ip("addr add 10.72.0.77/24 dev w1");
    left.ip("addr add fd72::77/64 dev w1 nodad");
    let mut client = left.start(&called);
    client
        .stderr
        .after("no address that the server gives is taken: 10.72.0.2/24 (another interface is in 10.72.0.0/24)");
    client.signal("TERM");
    client.end_by_itself();
    server.signal("TERM");
    assert_eq!(server.end_by_itself(), Some(0), "{}", server.stderr.text());
}

#[test]
fn who_loses_the_device_ends_and_says_so() {
    let Some([_, right]) = hosts() else { return };
    let client = "ab".repeat(32);
    let mut server = right.start(&["--address", "10.72.0.1/24", "--client", &client]);
    server.stderr.after("fingerprint ");
    right.ip("link del punctual0");
    assert_eq!(server.end_by_itself(), Some(6), "{}", server.stderr.text());
    assert!(server.stderr.text().contains("the device is gone"), "{}", server.stderr.text());
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vpn.toml");
    for (settings, code, word) in [
        ("to = 'h:1'\nidentity = 'x.pem'\n[session]\nfingerprint = 'ab'\n[vpn]", 2, "fingerprint"),
        ("[vpn]\naddress = ['10.9.0.0/24']\n[[client]]\nfingerprint = ''", 2, ":4: "),
        ("[vpn]\naddress = ['10.9.0.1/24']", 2, "nobody is let in"),
        (
            "to = 'h:1'\nidentity = 'x.pem'\n[vpn]\ndevice = 'sixteen-letters0'",
            2,
            "sixteen-letters0\" is no name of a device",
        ),
        ("to = 'h:1'\nidentity = 'x.pem'\n[vpn]\ndevice = 'a/b'", 2, "\"a/b\" is no name of a device"),
        ("to = 'h:1'\nidentity = 'x.pem'\n[vpn]\ndevice = ''", 2, "is no name of a device"),
        ("to = 'h:1'\nidentity = '/no/such/place/x.pem'\n[vpn]", 3, "/no/such/place/x.pem"),
    ] {
        fs::write(&file, settings).expect("written");
        let output = punctual().args(["check-config", text(&file)]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(word), "{settings}: {said}");
    }
    let junk = dir.path().join("junk.pem");
    fs::write(&junk, "no key").expect("written");
    fs::write(&file, format!("to = 'h:1'\nidentity = '{}'\n[vpn]", junk.display())).expect("written");
    let output = punctual().args(["check-config", text(&file)]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("junk.pem"), "{said}");
    let client = "ab".repeat(32);
    fs::write(&file, format!("[vpn]\naddress = ['10.9.0.1/24']\n[[client]]\nfingerprint = '{client}'"))
        .expect("written");
    let output = punctual().args(["check-config", text(&file)]).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
}
