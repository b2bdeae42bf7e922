//! The logs of a session, read by the `qlog` crate: they are valid, and say why.

mod common;

use std::{collections::BTreeMap, future::IntoFuture, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use common::{bind, drain, within};
use punctual::{Block, Config, Endpoint, Identity, Outcome, Redundancy, multipath};
use qlog::reader::{Event, QlogSeqReader};
use serde_json::Value;
use tokio::net::UdpSocket;

const LONG: Duration = Duration::from_secs(60);

/// Carries datagrams to `server` and back, but for each ninth of those that go there.
async fn relay(socket: Arc<UdpSocket>, server: SocketAddr) {
    let (mut client, mut count, mut buf) = (None, 0, vec![0; 65_536]);
    while let Ok((len, from)) = socket.recv_from(&mut buf).await {
        let to = if from == server {
            client
        } else {
            client = Some(from);
            count += 1;
            // The handshake goes through.
            Some(server).filter(|_| count < 20 || count % 9 != 0)
        };
        if let Some(to) = to {
            let _ = socket.send_to(&buf[..len], to).await;
        }
    }
}

/// The events of a log by name, and the header's schemas.
fn read(path: &Path) -> (Vec<String>, BTreeMap<String, Vec<Value>>) {
    let reader = QlogSeqReader::with_file(path).expect("a valid header");
    let schemas = reader.qlog.trace.event_schemas.clone();
    assert_eq!(reader.qlog.file_schema, "urn:ietf:params:qlog:file:sequential");
    let mut events = BTreeMap::<_, Vec<_>>::new();
    let mut last = 0.0;
    for event in reader {
        let (time, name, data) = match event {
            Event::Json(event) => (event.time, event.name, event.data),
            Event::Qlog(event) => {
                let value = serde_json::to_value(&event).expect("JSON");
                (event.time, value["name"].as_str().expect("a name").to_owned(), value["data"].clone())
            }
        };
        assert!(time >= last, "{name}: time runs backwards");
        last = time;
        events.entry(name).or_default().push(data);
    }
    (schemas, events)
}

fn named(dir: &Path, end: &str) -> std::path::PathBuf {
    let files = std::fs::read_dir(dir).expect("readable").map(|entry| entry.expect("readable").path());
    let all: Vec<_> = files.collect();
    let found = all.iter().find(|path| path.to_str().is_some_and(|path| path.ends_with(end)));
    found.unwrap_or_else(|| panic!("no {end} among {all:?}")).clone()
}

#[tokio::test]
async fn a_log_says_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let identity = Identity::self_signed(["localhost"]).expect("a valid name");
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity).bind(bind("127.0.0.1")).build().expect("a server");
    let address = server.local_address();
    let receiver = tokio::spawn(async move { drain(server.accept().await.expect("a client")).await });
    let lossy = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
    let way = lossy.local_addr().expect("it is bound");
    let relay = tokio::spawn(relay(lossy, address));

    let mut config = Config::default().qlog_dir(dir.path());
    // Each path is used, whatever it is like.
    config.session.path_scheduler = multipath::round_robin();
    let client =
        Endpoint::client().trust(fingerprint).bind(bind("127.0.0.1")).config(config).build().expect("a client");
    let session = within(client.connect(way, "localhost").into_future()).await.expect("connected");
    let second = client.bind(bind("127.0.0.1")).expect("a socket");
    within(session.open_path(second[0].id, address)).await.expect("opened");

    // What is lost of it is sent again, or made good by repair fragments.
    for redundancy in [Redundancy::Retransmit, Redundancy::Both] {
        let block = Block::new(vec![7; 200_000]).redundancy(redundancy);
        let sent = within(session.send(block)).await.expect("accepted");
        assert!(matches!(within(sent).await, Outcome::Delivered(_)));
    }
    // More than fits into any window before its time is up.
    let hopeless = Block::new(vec![7; 8 << 20]).deadline(Duration::from_millis(1));
    let hopeless = within(session.send(hopeless)).await.expect("accepted");
    assert!(matches!(within(hopeless).await, Outcome::Dropped { .. }));
    assert!(within(session.finish(LONG)).await.is_empty());
    within(receiver).await.expect("no panic");
    within(client.wait_idle()).await;
    drop((session, client));
    relay.abort();

    let (schemas, events) = read(&named(dir.path(), "-blocks.sqlog"));
    assert_eq!(schemas, ["urn:punctual:qlog:blocks-02"]);
    let of = |name: &str| events.get(&format!("punctual:{name}")).map_or(&[][..], |events| &events[..]);
    assert_eq!((of("block_sent").len(), of("block_outcome").len(), of("session_closed").len()), (3, 3, 1));

    let sent = of("fragment_sent");
    let kinds = |kind: &str| sent.iter().filter(|fragment| fragment["kind"] == kind).count();
    assert!(kinds("source") > 300, "{} fragments", kinds("source"));
    assert!(kinds("resent") > 0, "what the relay dropped went again");
    assert!(kinds("repair") > 0, "the second block had repair fragments");
    assert!(!of("packet_lost").is_empty());
    for path in [0, 1] {
        assert!(sent.iter().any(|fragment| fragment["path_id"] == path), "path {path} carried something");
    }

    let chosen = of("path_chosen");
    assert!(!chosen.is_empty());
    for choice in chosen {
        let paths = choice["paths"].as_array().expect("a list");
        assert!(paths.len() == 2 && paths.iter().all(|path| path["delay"].is_f64()), "{choice}");
    }

    let [dropped] = of("block_dropped") else { panic!("{:?}", of("block_dropped")) };
    let bytes = |name: &str| dropped[name].as_u64().unwrap_or_else(|| panic!("{name}: {dropped}"));
    assert_eq!((&dropped["block_id"], &dropped["reason"]), (&2.into(), &"expired".into()));
    assert!(["not_begun", "not_finished"].contains(&dropped["cause"].as_str().expect("text")), "{dropped}");
    assert!(bytes("never_sent") > 0);
    let parts = ["never_sent", "lost", "unanswered", "arrived"].map(bytes).iter().sum::<u64>();
    assert_eq!(parts, bytes("size"));

    // The window is that of the path, not the one that turns QUIC's pacer off.
    let windows = of("path_updated").iter().map(|path| path["congestion_window"].as_u64().expect("a number"));
    assert!(windows.clone().count() > 0 && windows.clone().all(|window| window > 0 && window < 1 << 32));

    let quic = std::fs::read_to_string(named(dir.path(), "-quic.sqlog")).expect("readable");
    assert!(!quic.contains("8589934592"), "a window that is none");
    let (_, events) = read(&named(dir.path(), "-quic.sqlog"));
    assert!(events.contains_key("quic:packet_sent"), "{:?}", events.keys());
}
