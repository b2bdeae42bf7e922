//! A whole session, whose peer says anything at all.
//!
//! The input is a sequence of steps: a byte that says what it is, one that says how long, and then so many bytes. The handshake and
//! SETTINGS are done before.

#![no_main]

#[path = "../../crates/punctual-proto/tests/common/mod.rs"]
mod common;

use common::{
    World,
    bench::{WINDOW, limits},
    ms,
    raw::{Config, Raw},
    server_config,
    wire::{Said, arrivals, hello, join, read_datagram, timestamp},
};
use punctual_proto::{Block, SessionConfig};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| run(bytes));

/// Reports arrivals of what came, more or less, at any times: six bytes for each.
fn report(raw: &mut Raw, stamps: &mut Vec<u32>, bytes: &[u8]) {
    for payload in raw.datagrams.drain(..) {
        stamps.extend(read_datagram(&payload).into_iter().filter_map(|said| match said {
            Said::Timestamp(stamp) => Some(stamp),
            _ => None,
        }));
    }
    let arrival = |bytes: &[u8; 6]| {
        let stamp = stamps.get(usize::from(bytes[0]) % stamps.len().max(1)).copied().unwrap_or_default();
        let received = u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        (stamp.wrapping_add(u32::from(bytes[1] / 64)), received)
    };
    let list: Vec<_> = bytes.as_chunks().0.iter().map(arrival).collect();
    if !list.is_empty() {
        raw.datagram(join(&[&timestamp(0), &arrivals(0, &list)]));
    }
}

fn run(mut input: &[u8]) {
    let mut world = World::new(ms(1));
    let config = SessionConfig { limits: limits(), ..SessionConfig::default() };
    let server = world.add_endpoint(Some(server_config(config)));
    let raw = world.add_raw(Config::default(), server);
    let session = world.accept(server);
    world.raw(raw).control(&hello(1 << 20, 1 << 22, 1_000, 4));
    world.run(ms(5));

    let mut stamps = Vec::new();
    while let Some((&[step, len], rest)) = input.split_first_chunk() {
        let len = usize::from(len);
        if step % 4 == 0 {
            world.run(ms(len as u64));
            input = rest;
        } else {
            // Datagrams may be longer than a byte can say.
            let (bytes, rest) = rest.split_at((len << (step >> 6)).min(rest.len()));
            input = rest;
            match step % 4 {
                1 => world.raw(raw).control(bytes),
                2 => world.raw(raw).datagram(bytes.to_vec()),
                _ => report(world.raw(raw), &mut stamps, bytes),
            }
            world.run(ms(2));
        }
        let now = world.now;
        let Some(session) = world.endpoint(server).session(session) else { break };
        let stats = session.stats();
        // Small fragments cost more than their bytes, and what is complete is counted besides.
        assert!(stats.live_in_bytes <= 3 * WINDOW, "{stats:?}");
        assert!(stats.wasted_repair_bytes <= stats.repair_bytes_received, "{stats:?}");
        if step & 4 == 0 {
            while session.recv(now).is_some() {}
        }
        if step & 8 == 0 {
            // Something to report of; without room there is none.
            let _ = session.send(now, Block::new(vec![7; 3_000]).deadline(ms(100)));
        }
    }
    // It ends as well as any.
    world.cut = Some(common::address(raw));
    world.run(SessionConfig::default().idle_timeout * 2);
    assert_eq!(world.endpoint(server).sessions(), 0);
}
