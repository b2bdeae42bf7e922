//! Measures the memory of idle sessions: `cargo run --release -p punctual --example idle_sessions -- [--sessions 200] [--json]`.
//!
//! Two endpoints in one process, so that a session's figure counts both of its ends. Fresh sessions have only shaken hands; used
//! ones have carried a block of 64 KB each way. Resident memory is what Linux says in `/proc/self/status`.

use std::{error::Error, future::IntoFuture, time::Duration};

use punctual::{Block, Config, Endpoint, Identity, Limits, Outcome};
use serde_json::json;

const USED_BLOCK: usize = 64 << 10;

fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes << 10)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (mut sessions, mut as_json) = (200usize, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--sessions" => sessions = arguments.next().ok_or("--sessions needs a number")?.parse()?,
            "--json" => as_json = true,
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let mut config = Config::default();
    // Above half of the limit, a server sends newcomers round by a Retry; that is not what is measured here.
    config.session.limits = Limits::default().sessions(sessions * 2 + 2);
    let identity = Identity::self_signed(["localhost"])?;
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity).bind("127.0.0.1".parse()?).config(config.clone()).build()?;
    let client = Endpoint::client().trust(fingerprint).bind("127.0.0.1".parse()?).config(config).build()?;
    let connect = async || {
        let connecting = client.connect(server.local_address(), "localhost").into_future();
        let (ours, theirs) = tokio::join!(connecting, server.accept());
        Ok::<_, Box<dyn Error>>((ours?, theirs.ok_or("the server is closed")?))
    };
    // The first one pays for what all share: tables, buffers, code.
    let first = connect().await?;

    let before = resident_bytes()?;
    let mut all = Vec::with_capacity(sessions);
    for _ in 0..sessions {
        all.push(connect().await?);
    }
    // Settings, connection ids and the search for the MTU settle.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let fresh = resident_bytes()?.saturating_sub(before);

    for (ours, theirs) in &all {
        for (from, to) in [(ours, theirs), (theirs, ours)] {
            let sent = from.send(Block::new(vec![1; USED_BLOCK])).await?;
            to.recv().await?;
            if !matches!(sent.await, Outcome::Delivered(_)) {
                return Err("a block was lost".into());
            }
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = resident_bytes()?.saturating_sub(before);

    let each = |bytes: u64| bytes / sessions as u64;
    if as_json {
        println!("{}", json!({ "sessions": sessions, "fresh_bytes": each(fresh), "used_bytes": each(used) }));
    } else {
        println!("{sessions} sessions, both ends: {} bytes each fresh, {} each used", each(fresh), each(used));
    }
    drop((first, all));
    client.wait_idle().await;
    Ok(())
}
