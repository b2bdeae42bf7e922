//! How connections and paths end.

use std::num::NonZeroUsize;

use noq_proto::{ConnectionError, Event, FourTuple, PathStatus, VarInt};

use super::{
    common::{inject::smuggled, ms, wire::varint},
    noq::{MOST_REASON, has_no_path, told_of},
    quic::{Answers, Pair, Wanted, Who, local, server_address},
};

#[test]
fn a_reason_to_close_fits_with_any_code() {
    let long = "x".repeat(5_000);
    let reason = told_of(&long);
    assert_eq!(reason.len(), MOST_REASON);
    for code in [0, 1 << 6, 1 << 14, u32::MAX] {
        // In the middle of the handshake, too: there it must merely not panic, as the reason is not told.
        for confirmed in [false, true] {
            let mut pair = if confirmed { Pair::over(2) } else { Pair::begun(Wanted::default()) };
            pair.server.conn.close(pair.now, VarInt::from_u32(code), reason.to_owned().into());
            pair.run(ms(100));
            let lost = pair.client.events.iter().find_map(|event| match event {
                Event::ConnectionLost { reason } => Some(reason),
                _ => None,
            });
            match lost {
                Some(ConnectionError::ApplicationClosed(close)) if confirmed => assert_eq!(
                    (close.error_code, &close.reason[..]),
                    (VarInt::from_u32(code), reason.as_bytes()),
                    "noq cuts a reason of {MOST_REASON} bytes: `MOST_REASON` is too much, and longer ones may overrun its packet again"
                ),
                other => assert!(!confirmed, "noq does not tell of the end, code {code}: {other:?}"),
            }
        }
    }
}

#[test]
fn the_farewell_is_said_in_one_call() {
    let mut pair = Pair::begun(Wanted::default());
    pair.drain(Who::Server);
    pair.deliver();
    assert!(
        !pair.client.conn.is_handshaking(),
        "noq's client needs more than the server's first answer: this test tests nothing"
    );
    pair.client.conn.close(pair.now, VarInt::from_u32(0), "".into());
    // One for each level of encryption; asked for one, it begins anew each time where that takes all of a datagram.
    let most = NonZeroUsize::new(3).expect("it is not zero");
    let mut made = || pair.client.conn.poll_transmit(pair.now, most, &mut Vec::new()).is_some();
    assert!(made(), "noq says no farewell in the middle of the handshake: the peer waits for what has been given up");
    assert!(
        !made(),
        "noq says farewell again and again: a client that closes with its first answer floods the network"
    );
}

#[test]
fn the_farewell_leaves_on_a_path_that_is_not_being_abandoned() {
    let mut pair = Pair::over(3);
    let paths = pair.client.conn.paths();
    for &path in &paths[..2] {
        pair.client.conn.close_path(pair.now, path, VarInt::from_u32(0)).expect("there is another");
    }
    pair.client.conn.close(pair.now, VarInt::from_u32(7), "over".into());
    let ends: Vec<_> = pair.drain(Who::Client).iter().map(|made| made.end).collect();
    assert_eq!(
        ends.first(),
        Some(&2),
        "noq says farewell on a path that is being abandoned: `Session::part` cannot choose the path of it any more, which may be dead"
    );
}

#[test]
fn abandoned_paths_are_known_for_a_while_and_the_last_leaves_none() {
    const PATH_ABANDON: u64 = 0x3e75;
    let mut pair = Pair::over(2);
    let path = pair.client.conn.paths()[1];
    pair.client.conn.close_path(pair.now, path, VarInt::from_u32(0)).expect("there is another");
    pair.run(ms(20));
    assert_eq!(
        pair.client.conn.paths().len(),
        2,
        "noq forgets abandoned paths at once: `MOST_ABANDONED` bounds nothing any more, and need not"
    );
    pair.run(ms(10_000));
    assert_eq!(
        pair.client.conn.paths().len(),
        1,
        "noq keeps abandoned paths for more than seconds: sessions that open and close paths now and then end with `Paths`"
    );
    let frames: Vec<_> = [PATH_ABANDON, 0, 0].into_iter().flat_map(varint).collect();
    pair.client.send(smuggled(&frames));
    pair.client.hand.all(Answers::default());
    let mut none = false;
    for _ in 0..500 {
        pair.run(ms(20));
        none |= has_no_path(&pair.server.conn);
    }
    assert!(
        none,
        "noq keeps the last path when the peer has abandoned it, or has no list of paths that shows it: `has_no_path` does not tell when noq must not be \
         asked for packets, which would panic (1.4)"
    );
}

#[test]
fn a_path_of_which_the_peer_never_heard_has_used_its_id_up() {
    let mut pair = Pair::over(1);
    pair.narrow = Some((5, 0));
    let tuple = FourTuple::new(server_address(), Some(local(5)));
    let tries = (0..40).take_while(|_| {
        let opened = pair.client.conn.open_path(tuple, PathStatus::Available, pair.now);
        pair.run(ms(500));
        let closed = opened.map(|path| pair.client.conn.close_path(pair.now, path, VarInt::from_u32(0)));
        pair.run(ms(500));
        closed.is_ok()
    });
    assert!(
        tries.count() < 40,
        "noq grants an id anew of whose path its peer never heard: `knock_elsewhere` need not make believe that it has"
    );
}
