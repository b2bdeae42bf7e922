//! Blocks that wait for the one stream which the server allows.

use noq_proto::{TransportConfig, VarInt};
use punctual_proto::{Block, BlockUpdate, Channel, Event as PunctualEvent, Outcome, SessionId};
use punctual_sim::{HostConfig, HostId, LinkSpec, World};
use rand_pcg::Pcg64;

use super::{Plain, START, client_config};
use crate::{ms, restless::content};

/// A client and a server that allows one stream at a time.
fn with_one_stream() -> (World, HostId, SessionId) {
    let mut world = World::new(1);
    let mut transport = TransportConfig::default();
    transport.max_concurrent_uni_streams(VarInt::from_u32(1));
    let mut plain = Plain::new(Pcg64::new(1, 79), transport, 0);
    (plain.lazy, plain.picky) = (false, false);
    let hosts = [world.add_host(HostConfig::new()), world.add_node(plain)];
    let path = world.add_path(hosts[0], hosts[1], LinkSpec::new(8.0, ms(20)), LinkSpec::new(8.0, ms(20)));
    let connection = world.connect(hosts[0], &client_config(), &[path]).unwrap();
    world.run_until(START);
    let (_, session) = world.client(connection);
    (world, hosts[0], session)
}

/// One that waits for a stream is dropped, and one behind it in its channel, which had stood aside for it, must still go.
#[test]
fn a_block_goes_when_the_one_before_it_is_dropped_that_waited_for_a_stream() {
    let (mut world, client, session) = with_one_stream();
    let mut send = |number, channel| {
        let block = Block::new(content(number, 100));
        let block = if channel { block.channel(Channel(1)) } else { block };
        world.enter(client, |cx| cx.send(session, block)).unwrap()
    };
    let [_, before, behind] = [send(0, false), send(1, true), send(2, true)];
    world.enter(client, |cx| cx.cancel(session, before)).unwrap();
    world.run_for(ms(1_000));
    let ended = |(_, _, event)| match event {
        PunctualEvent::Outcome { id, outcome } if id == behind => Some(outcome),
        _ => None,
    };
    let outcome = world.take_events(client).into_iter().find_map(ended);
    assert!(matches!(outcome, Some(Outcome::Delivered(_))), "{outcome:?}");
}

/// One that holds the only stream is made to depend on one that waits for it, and must not wait for that in turn.
#[test]
fn a_block_goes_on_that_holds_the_stream_which_what_it_depends_on_waits_for() {
    let (mut world, client, session) = with_one_stream();
    let ids = [100_000, 100].map(|size| {
        let block = Block::new(content(size, size as usize));
        world.enter(client, |cx| cx.send(session, block)).unwrap()
    });
    // It has its stream.
    world.run_for(ms(20));
    let update = BlockUpdate { dependencies: Some(vec![ids[1]]), ..BlockUpdate::default() };
    world.enter(client, |cx| cx.update(session, ids[0], update)).unwrap();
    world.run_for(ms(1_000));
    let delivered = |(_, _, event)| match event {
        PunctualEvent::Outcome { id, outcome: Outcome::Delivered(_) } => Some(id),
        _ => None,
    };
    let delivered: Vec<_> = world.take_events(client).into_iter().filter_map(delivered).collect();
    assert_eq!(delivered, ids);
}
