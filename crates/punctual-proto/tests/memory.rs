//! All sessions of an endpoint together hold no more than is said, whatever their peers send and nobody reads.

mod common;

use common::{End, World, bench::Bench, client_config, ms, raw::Config, server_config, wire::update};
use punctual_proto::{Block, CloseReason, Event, Limits, ProtocolError, SessionConfig};

const BOUND: u64 = 400_000;

#[test]
fn an_endpoint_holds_no_more_than_is_said() {
    let mut world = World::new(ms(10));
    let limits = Limits::default().max_block_size(40_000).receive_bytes(200_000).endpoint_bytes(BOUND);
    let server = world.add_endpoint(Some(server_config(SessionConfig { limits, ..SessionConfig::default() })));
    let mut pairs = Vec::new();
    for _ in 0..12 {
        let host = world.add_endpoint(None);
        let session = world.connect(host, &client_config(SessionConfig::default()), server);
        let theirs = world.accept(server);
        pairs.push((End { host, session }, End { host: server, session: theirs }));
    }
    // The application reads what the first sends, and nothing else.
    let (busy, read) = pairs[0];
    let mut taken = 0;
    let mut over = Vec::new();
    for _ in 0..200 {
        for &(from, _) in &pairs {
            // Those that the server has ended take no more.
            let now = world.now;
            if let Some(session) = world.endpoint(from.host).session(from.session) {
                let _ = session.send(now, Block::new(vec![1; 20_000]));
            }
            world.drain();
        }
        for _ in 0..10 {
            world.run(ms(1));
            taken += world.recv_all(read).len();
        }
        let held: u64 = pairs[1..].iter().map(|(_, to)| held(&mut world, *to)).sum();
        assert!(held <= BOUND, "{held}");
        let end = CloseReason::Protocol(ProtocolError::Memory);
        over.extend(world.take_events(server).into_iter().filter(|(_, event)| *event == Event::Closed(end.clone())));
    }
    assert!(taken > 150, "{taken}: nobody else suffers");
    assert!(!over.is_empty() && over.len() < 11, "{} had to go", over.len());
    assert!(over.iter().all(|(id, _)| *id != read.session));
    let told = CloseReason::Peer { code: 0x0050_550e, reason: ProtocolError::Memory.to_string() };
    let ended = pairs.iter().find(|(_, to)| to.session == over[0].0).expect("one of them").0;
    assert!(world.events_of(ended.host, ended.session).contains(&Event::Closed(told)));
    assert!(world.events_of(busy.host, busy.session).iter().all(|event| !matches!(event, Event::Closed(_))));
}

#[test]
fn blocks_without_bytes_are_held_as_well() {
    let limits = Limits::default().max_block_size(40_000).receive_bytes(200_000).endpoint_bytes(BOUND);
    let mut bench = Bench::with(limits, Config::default());
    for id in 0..3_000_u64 {
        // It is spoken of, and nothing comes of it.
        bench.control(&update(id, 7, 5_000));
        if id % 100 == 99 {
            bench.world.run(ms(10));
        }
    }
    bench.world.run(ms(100));
    assert_eq!(bench.raw().closed_with(), Some(ProtocolError::Memory.code()));
    bench.others_go_on();
}

fn held(world: &mut World, end: End) -> u64 {
    let stats = world.endpoint(end.host).session(end.session).map(|session| session.stats());
    let held = stats.map_or(0, |stats| stats.live_in_bytes);
    world.drain();
    held
}
