//! `punctual tunnel` and `punctual check-config`, as programs.
#![cfg(unix)]

#[path = "recv/processes.rs"]
#[expect(dead_code, reason = "shared with other tests, which use more of it")]
mod processes;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    path::Path,
    process::Stdio,
    time::Duration,
};

use processes::{Process, punctual, wait_for};

/// A program that sends back what it gets.
fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let mut space = [0; 2_000];
        while let Ok((size, from)) = socket.recv_from(&mut space) {
            let _ = socket.send_to(&space[..size], from);
        }
    });
    address
}

/// Says something to a port until it is answered.
fn ask(port: &str, what: &[u8]) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(port).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let mut space = [0; 2_000];
    wait_for("answer", || {
        // Nobody may listen there yet.
        let _ = socket.send(what);
        socket.recv(&mut space).is_ok().then_some(())
    });
}

fn start(args: &[&str]) -> Process {
    Process::start(punctual().args(args).stdin(Stdio::null()))
}

/// A gateway that waits, where it does, and its fingerprint.
fn waiting(args: &[&str]) -> (Process, String, String) {
    let process = start(&[&["tunnel", "--serve", "127.0.0.1:0"], args].concat());
    let address = process.stderr.after("listening on ");
    let fingerprint = process.stderr.after("fingerprint ");
    (process, address, fingerprint)
}

fn write(path: &Path, text: &str) -> String {
    fs::write(path, text).expect("written");
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn a_port_is_carried_over_two_paths_and_both_end_in_order() {
    let forward = format!("game=udp:{}", echo());
    let (mut server, address, fingerprint) = waiting(&["--forward", &forward]);
    let paths = ["--path", "127.0.0.2", "--path", "127.0.0.3"];
    let trust = ["tunnel", &address, "--fingerprint", &fingerprint, "--listen", "udp:127.0.0.1:0=game"];
    let mut client = start(&[&trust[..], &paths].concat());
    ask(&client.stderr.after("game at udp:"), b"hello");
    for path in ["path 127.0.0.2 is open", "path 127.0.0.3 is open"] {
        client.stderr.after(path);
    }
    client.signal("TERM");
    assert_eq!(client.end_by_itself(), Some(0), "{}", client.stderr.text());
    server.stderr.after("a session has ended");
    server.signal("INT");
    assert_eq!(server.end_by_itself(), Some(0), "{}", server.stderr.text());
}

#[cfg(target_os = "linux")]
#[test]
fn an_address_to_listen_at_may_have_the_interface_of_its_link() {
    let forward = format!("game=udp:{}", echo());
    let (_server, address, fingerprint) = waiting(&["--forward", &forward]);
    let dir = tempfile::tempdir().expect("a directory");
    let settings = format!(
        "to = '{address}'\nmetrics = '[::1%lo]:0'\n[session]\nfingerprint = '{fingerprint}'\n[[listen]]\nname = 'game'\nudp = '[::1%1]:0'\n"
    );
    let file = write(&dir.path().join("client.toml"), &settings);
    let client = start(&["tunnel", "--config", &file, "--listen", "tcp:[::1%lo]:0=game"]);
    client.stderr.after("metrics at http://[::1");
    client.stderr.after("game at tcp:[::1");
    let port = client.stderr.after("game at udp:[::1").rsplit(':').next().expect("a port").to_owned();
    let socket = UdpSocket::bind("[::1]:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    wait_for("answer", || {
        let _ = socket.send_to(b"hello", format!("[::1]:{port}"));
        socket.recv(&mut [0; 100]).is_ok().then_some(())
    });
    for (bad, word) in [
        ("udp:[fe80::1%no-such-if0]:0=x", "there is no interface `no-such-if0`"),
        ("udp:[fe80::1]:5000=x", "say by which interface"),
        ("udp:fe80::1%lo=x", "no address with port"),
    ] {
        let mut refused = start(&["tunnel", "--listen", bad]);
        assert_eq!(refused.end_by_itself(), Some(2), "{bad}");
        assert!(refused.stderr.text().contains(word), "{bad}: {}", refused.stderr.text());
    }
}

#[test]
fn a_gateway_that_was_away_is_called_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let identity = dir.path().join("gateway.pem");
    let identity = identity.to_str().expect("a path in UTF-8");
    let forward = format!("game=udp:{}", echo());
    let (mut server, address, fingerprint) = waiting(&["--forward", &forward, "--identity", identity]);
    let client = start(&["tunnel", &address, "--fingerprint", &fingerprint, "--listen", "udp:127.0.0.1:0=game"]);
    let port = client.stderr.after("game at udp:");
    ask(&port, b"before");
    server.signal("TERM");
    client.stderr.after("calling again in ");
    assert_eq!(server.end_by_itself(), Some(0), "{}", server.stderr.text());
    let again = ["tunnel", "--serve", &address, "--forward", &forward, "--identity", identity];
    let _server = start(&again);
    ask(&port, b"after");
}

#[test]
fn who_is_not_let_in_at_the_first_call_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let [right, wrong] = ["right", "wrong"].map(|name| write(&dir.path().join(name), &format!("{name:0>32}\n")));
    let own = dir.path().join("own.pem");
    let own = own.to_str().expect("a path in UTF-8");
    let (_by_token, token_at, token_print) = waiting(&["--forward", "game=udp:127.0.0.1:9", "--token", &right]);
    let nobody = "ab".repeat(32);
    let (_by_key, key_at, key_print) = waiting(&["--forward", "game=udp:127.0.0.1:9", "--client-fingerprint", &nobody]);
    let by = |at: &str, print: &str, shows: &[&str]| {
        let call = ["tunnel", at, "--fingerprint", print, "--listen", "udp:127.0.0.1:0=game"];
        start(&[&call[..], shows].concat())
    };
    for (mut client, words) in [
        (by(&token_at, &token_print, &[]), "show one with --token"),
        (by(&token_at, &token_print, &["--token", &wrong]), "is not one that it knows"),
        (by(&key_at, &key_print, &[]), "show one with --identity"),
        (by(&key_at, &key_print, &["--identity", own]), "that of this sender has fingerprint"),
    ] {
        assert_eq!(client.end_by_itself(), Some(9), "{}", client.stderr.text());
        assert!(client.stderr.text().contains(words), "{}", client.stderr.text());
    }
}

#[test]
fn who_finds_no_room_at_the_first_call_calls_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = format!("[[forward]]\nname = 'game'\nudp = '{}'\n[limits]\nclients = 1\nidle = '1s'\n", echo());
    let (_server, address, fingerprint) = waiting(&["--config", &write(&dir.path().join("server.toml"), &settings)]);
    let call = || start(&["tunnel", &address, "--fingerprint", &fingerprint, "--listen", "udp:127.0.0.1:0=game"]);
    let first = call();
    ask(&first.stderr.after("game at udp:"), b"first");
    let second = call();
    second.stderr.after("as many gateways as are allowed are here already: calling again in ");
    first.signal("TERM");
    ask(&second.stderr.after("game at udp:"), b"second");
}

#[test]
fn settings_are_read_again_and_what_is_carried_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let one = format!("[[forward]]\nname = 'one'\nudp = '{}'\n", echo());
    let two = format!("[[forward]]\nname = 'two'\nudp = '{}'\n", echo());
    let file = dir.path().join("server.toml");
    let server_file = write(&file, &one);
    let (server, address, fingerprint) = waiting(&["--config", &server_file]);
    let client_file = write(
        &dir.path().join("client.toml"),
        &format!(
            "to = '{address}'\nmetrics = '127.0.0.1:0'\n[session]\nfingerprint = '{fingerprint}'\n\
             [[listen]]\nname = 'two'\nudp = '127.0.0.1:0'\nclass = 'quick'\n[class.quick]\ndeadline = '5s'\n"
        ),
    );
    let client = start(&["tunnel", "--config", &client_file]);
    client.stderr.after("connected");
    write(&file, "this is no TOML");
    server.signal("HUP");
    server.stderr.after("settings not read again: ");
    write(&file, &format!("{one}{two}"));
    server.signal("HUP");
    server.stderr.after("settings read again");
    ask(&client.stderr.after("two at udp:"), b"new");

    let metrics = client.stderr.after("metrics at http://");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(metrics.trim_end_matches("/metrics")).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("text");
        text
    };
    let text = wait_for("figures", || {
        let text = get("/metrics");
        text.contains("punctual_tunnel_datagrams_total{class=\"quick\",outcome=\"on_time\"}").then_some(text)
    });
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("application/openmetrics-text"), "{text}");
    assert!(get("/").starts_with("HTTP/1.1 404"));
}

#[test]
fn settings_with_a_port_that_is_taken_change_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_server, address, fingerprint) = waiting(&["--forward", &format!("game=udp:{}", echo())]);
    let with = |listen: &str, forward: &str| {
        let session = format!("to = '{address}'\n[session]\nfingerprint = '{fingerprint}'\n");
        format!("{session}[[listen]]\nname = 'game'\nudp = '{listen}'\n{forward}")
    };
    let file = dir.path().join("client.toml");
    let client_file = write(&file, &with("127.0.0.1:0", ""));
    let client = start(&["tunnel", "--config", &client_file]);
    let port = client.stderr.after("game at udp:");
    ask(&port, b"before");
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let there = taken.local_addr().expect("it is bound").to_string();
    write(&file, &with(&there, "[[forward]]\nname = 'x'\nudp = '127.0.0.1:9'\n"));
    client.signal("HUP");
    client.stderr.after("settings not read again: cannot listen at ");
    ask(&port, b"after");
}

#[test]
fn a_settings_file_is_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |text: &str| {
        let file = write(&dir.path().join("tunnel.toml"), text);
        let mut process = start(&["check-config", &file]);
        (process.end_by_itself(), process.stderr.text())
    };
    let (code, said) = check("[[forward]]\nname = 'x'\nudp = 'localhost:1'\n");
    assert!(code == Some(0) && said.contains("0 to listen at, 1 to forward"), "{said}");
    let (code, said) = check("[[forward]]\nname = 'x'\nudp = 'localhost'\n");
    assert!(code == Some(2) && said.contains("tunnel.toml:1: port `x`: `localhost` is not HOST:PORT"), "{said}");
    let (code, said) = check("[[forward]]\nname = 'x'\nudp = 'h:1'\n[class.'a\"b']\npriority = 1\n");
    assert!(code == Some(2) && said.contains("class \"a\\\"b\": a name is 1 to 64 letters"), "{said}");
    let (code, said) = check("[session]\nscheduler = 'magic'\n[[forward]]\nname = 'x'\nudp = 'h:1'\n");
    assert!(code == Some(2) && said.contains("magic"), "{said}");
    let junk = write(&dir.path().join("junk.pem"), "no key");
    let (code, said) = check(&format!("identity = '{junk}'\n[[forward]]\nname = 'x'\nudp = 'h:1'\n"));
    assert!(code == Some(2) && said.contains("junk.pem"), "{said}");
    let new = dir.path().join("new.pem");
    let (code, said) = check(&format!("identity = '{}'\n[[forward]]\nname = 'x'\nudp = 'h:1'\n", new.display()));
    assert!(code == Some(0) && !new.exists(), "a check makes no identity: {said}");
    let (code, said) =
        check("[[listen]]\nname = 'x'\nudp = '0.0.0.0:5'\n[[listen]]\nname = 'y'\nudp = '127.0.0.1:5'\n");
    assert!(code == Some(2) && said.contains("cannot both be listened at"), "{said}");
    assert_eq!(start(&["check-config", "/no/such/file"]).end_by_itself(), Some(3));
}

#[test]
fn what_cannot_be_is_said_with_its_own_code() {
    let code = |args: &[&str]| {
        let mut process = start(&[&["tunnel"], args].concat());
        (process.end_by_itself(), process.stderr.text())
    };
    let (ended, said) = code(&[]);
    assert!(ended == Some(2) && said.contains("nothing to do"), "{said}");
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let listen = format!("udp:{}=x", taken.local_addr().expect("it is bound"));
    let (ended, said) = code(&["--listen", &listen]);
    assert!(ended == Some(6) && said.contains("cannot listen at"), "{said}");
    let (_server, address, _) = waiting(&["--forward", "x=udp:127.0.0.1:9"]);
    let wrong = "ab".repeat(32);
    let (ended, said) = code(&[&address, "--fingerprint", &wrong, "--listen", "udp:127.0.0.1:0=x"]);
    assert!(ended == Some(5), "{said}");
}
