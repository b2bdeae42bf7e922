//! A peer that does anything at all with its paths, as bytes say: for the fuzz target `multipath`, and for a test with fixed seeds.

use punctual_proto::{Block, Event, SessionConfig};

use super::{
    World, address, address_at,
    bench::{WINDOW, limits},
    ms,
    raw::Config,
    server_config,
    wire::{arrivals, hello, join, timestamp, varint},
};

/// Paths that the session is known to have at most.
const MOST_PATHS: usize = 8;
/// The first of multipath's frames (RFC 10069): PATH_ABANDON, PATH_BACKUP, and so on.
const FIRST_FRAME: u64 = 0x3e75;

/// Does what `input` says, which is steps: a byte that says what it is, one that says how much, and then bytes of which some steps need any.
/// Panics if the server does, or holds too much, or its session does not end once its peer is gone.
pub(crate) fn run(mut input: &[u8]) {
    let mut world = World::new(ms(1));
    let config = SessionConfig { limits: limits(), ..SessionConfig::default() };
    let server = world.add_endpoint(Some(server_config(config)));
    let raw = world.add_raw(Config { paths: 100, ..Config::default() }, server);
    let session = world.accept(server);
    world.raw(raw).control(&hello(1 << 20, 1 << 22, 1_000, 4));
    world.run(ms(5));
    while let Some((&[step, arg], rest)) = input.split_first_chunk() {
        let (now, number) = (world.now, u64::from(arg));
        let (bytes, behind) = rest.split_at(usize::from(arg).min(rest.len()));
        // Of steps that do not take them, the next step begins there.
        input = rest;
        // Only for a moment: noq answers each move with two challenges, whose answers are two moves, and so on for as long as the peer likes.
        world.roams = None;
        let peer = world.raw(raw);
        let known = peer.paths();
        let path = known.get(usize::from(arg) % known.len().max(1)).copied();
        match (step % 16, path) {
            (0, _) => _ = peer.open_path(now, address_at(raw, 1 + u32::from(arg % 32))),
            (1, _) => (0..10).for_each(|i| _ = peer.open_path(now, address_at(raw, 40 + i))),
            (2, Some(path)) => peer.close_path(now, path),
            (3, _) => known.iter().skip(1).for_each(|path| peer.close_path(now, *path)),
            (4, Some(path)) => peer.set_status(path, step & 16 == 0),
            (5, _) => world.roams = Some(raw),
            (6, _) => world.lose_every = Some((if arg & 16 == 0 { raw } else { server }, number % 4 + 1)),
            (7, _) => world.lose_every = None,
            (8, _) => {
                // Small numbers make sense most often.
                let (kind, few) = (FIRST_FRAME + number % 8, &bytes[..bytes.len().min(3)]);
                let numbers = few.iter().flat_map(|&byte| varint(u64::from(byte % 20)));
                peer.frames(&varint(kind).into_iter().chain(numbers).chain([8; 25]).collect::<Vec<_>>());
            }
            (9, _) => {
                let stamp = u32::from(arg) << 20;
                peer.datagram(join(&[
                    &timestamp(stamp),
                    &arrivals(number % 12, &[(stamp, !stamp), (stamp / 3, stamp)]),
                ]));
            }
            (10, _) => {
                peer.datagram(bytes.to_vec());
                input = behind;
            }
            (11, _) => {
                peer.control(bytes);
                input = behind;
            }
            (12, _) => {
                peer.frames(bytes);
                input = behind;
            }
            (13, _) => world.run(ms(number * 16)),
            _ => world.run(ms(number / 16)),
        }
        world.run(ms(2));
        let now = world.now;
        let Some(session) = world.endpoint(server).session(session) else { break };
        let stats = session.stats();
        assert!(stats.live_in_bytes <= 3 * WINDOW, "{stats:?}");
        assert!(session.path_stats(now).len() <= MOST_PATHS);
        if step & 32 == 0 {
            while session.recv(now).is_some() {}
        }
        if step & 64 == 0 {
            let _ = session.send(now, Block::new(vec![7; 3_000]).deadline(ms(100)));
        }
    }
    // It ends as well as any, and says why.
    (world.roams, world.lose_every, world.cut) = (None, Some((raw, 1)), Some(address(raw)));
    world.run(SessionConfig::default().idle_timeout * 2);
    let events = world.events_of(server, session);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Closed(_))).count(), 1, "{events:?}");
    assert_eq!(world.endpoint(server).sessions(), 0);
}
