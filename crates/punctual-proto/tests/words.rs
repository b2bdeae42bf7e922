//! However much there is to say of one's own blocks, a session does not die of it, and what waits to be said is bounded.

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::{End, World, address, client_config, ms, server_config};
use punctual_proto::{Block, BlockId, BlockUpdate, Channel, Event, SendError, SessionConfig};

/// Blocks in a channel, due soon; whoever finds no room waits until there is some.
struct Source {
    from: End,
    sent: BTreeSet<BlockId>,
    full: u64,
    ended: BTreeSet<BlockId>,
}

impl Source {
    fn new(from: End) -> Self {
        Self { from, sent: BTreeSet::new(), full: 0, ended: BTreeSet::new() }
    }

    /// Ten each millisecond.
    fn run(&mut self, world: &mut World, millis: u64) {
        for _ in 0..millis {
            for _ in 0..10 {
                let block = Block::new(vec![7; 20]).deadline(Duration::from_millis(50)).channel(Channel(1));
                match world.try_send(self.from, block) {
                    Ok(id) => assert!(self.sent.insert(id)),
                    Err(SendError::Full(_)) => self.full += 1,
                    Err(error) => panic!("{error:?}"),
                }
            }
            self.wait(world, ms(1));
        }
    }

    fn wait(&mut self, world: &mut World, time: Duration) {
        world.run(time);
        for event in world.events_of(self.from.host, self.from.session) {
            match event {
                Event::Outcome { id, .. } => assert!(self.ended.insert(id), "{id:?} ended twice"),
                Event::Closed(reason) => panic!("{reason:?}"),
                _ => {}
            }
        }
    }
}

fn connecting() -> (World, End, usize) {
    let mut world = World::new(ms(10));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    let host = world.add_endpoint(None);
    let session = world.connect(host, &client_config(SessionConfig::default()), server);
    (world, End { host, session }, server)
}

#[test]
fn blocks_of_a_channel_that_are_given_up_in_an_outage_do_not_end_the_session() {
    let (mut world, from, server) = connecting();
    world.accept(server);
    let mut source = Source::new(from);
    source.run(&mut world, 100);
    world.cut = Some(address(from.host));
    source.run(&mut world, 20_000);
    assert!(source.full > 0, "there is a limit to what may wait to be said");
    world.cut = None;
    source.wait(&mut world, ms(10_000));
    assert_eq!(source.sent, source.ended);
    let full = source.full;
    source.run(&mut world, 1_000);
    assert_eq!(source.full, full, "and room again");
}

#[test]
fn what_is_given_up_before_the_peer_has_said_anything_is_bounded() {
    let (mut world, from, server) = connecting();
    world.cut = Some(address(server));
    let mut source = Source::new(from);
    source.run(&mut world, 2_500);
    let limit = SessionConfig::default().limits.send_blocks;
    assert!(source.sent.len() <= limit && source.full > 0, "{} of {limit}", source.sent.len());
    world.cut = None;
    world.accept(server);
    source.wait(&mut world, ms(5_000));
    assert_eq!(source.sent, source.ended);
    let full = source.full;
    source.run(&mut world, 100);
    assert_eq!(source.full, full, "there is room again");
}

#[test]
fn of_what_is_changed_again_and_again_only_the_last_word_is_said() {
    let (mut world, from, server) = connecting();
    let to = End { host: server, session: world.accept(server) };
    let id = world.send(from, Block::new(vec![7; 4 << 20]));
    world.run(ms(100));
    world.cut = Some(address(from.host));
    let now = world.now;
    for change in 0..600_000_u32 {
        let update = BlockUpdate { priority: Some(change as u8), ..BlockUpdate::default() };
        world.session(from.host, from.session).update(now, id, update).expect("it is live");
    }
    world.run(ms(1_000));
    world.cut = None;
    let last = BlockUpdate { priority: Some(77), ..BlockUpdate::default() };
    world.update(from, id, last);
    world.run(ms(20_000));
    let received = world.recv(to).expect("it arrived, and the session lives");
    assert_eq!((received.id, received.meta.priority), (id, 77));
}

/// What is said goes before the blocks behind it, though both may be in one packet, or come in one burst.
#[test]
fn a_wish_holds_for_the_blocks_that_come_with_it() {
    for in_bursts in [false, true] {
        let (mut world, from, server) = connecting();
        let to = End { host: server, session: world.accept(server) };
        world.run(ms(100));
        world.slow = Some((server, 20)).filter(|_| in_bursts);
        let now = world.now_at(from.host);
        let wished = world.session(from.host, from.session).wish_latency(now, Some(Channel(1)), Some(ms(200)));
        wished.expect("one channel");
        for _ in 0..10 {
            world.send(from, Block::new(vec![1; 900]).channel(Channel(1)));
        }
        world.run(ms(150));
        assert_eq!(world.recv_all(to).len(), 0, "{in_bursts}: before their time");
        world.run(ms(100));
        assert_eq!(world.recv_all(to).len(), 10, "{in_bursts}");
    }
}
