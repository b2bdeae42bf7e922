//! A peer that sends more than there is time for has its own packets wait, and nobody else's.

mod common;

use common::{End, World, client_config, ms, outcomes, server_config};
use punctual_proto::{Block, Outcome, SessionConfig};

/// The share of an honest client's blocks that are delivered in time beside one whose every packet comes `times`, at a server that can deal with 20 packets a millisecond.
fn beside_a_flood(times: usize) -> f64 {
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let mut join = || {
        let host = world.add_endpoint(None);
        let session = world.connect(host, &client_config(SessionConfig::default()), server);
        (End { host, session }, End { host: server, session: world.accept(server) })
    };
    let (honest, theirs) = join();
    let (hostile, _) = join();
    world.run(ms(100));
    world.slow = Some((server, 20));
    world.multiplied = Some((hostile.host, times));
    let (mut sent, mut delivered) = (0, 0);
    for _ in 0..300 {
        for _ in 0..10 {
            world.send(hostile, Block::new(vec![1; 1_000]).deadline(ms(50)));
            world.run(ms(1));
        }
        world.send(honest, Block::new(vec![1; 10_000]).deadline(ms(60)));
        sent += 1;
        world.recv_all(theirs);
        let ended = outcomes(&world.events_of(honest.host, honest.session));
        delivered += ended.values().filter(|outcome| matches!(outcome, Outcome::Delivered(_))).count();
    }
    f64::from(delivered as u32) / f64::from(sent)
}

#[test]
fn a_flood_costs_nobody_else() {
    let alone = beside_a_flood(1);
    let flooded = beside_a_flood(50);
    assert!(alone > 0.97, "{alone}");
    assert!(flooded >= 0.9 * alone, "{flooded} of {alone}");
}
