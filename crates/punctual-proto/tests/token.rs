//! A server that lets in only clients with a token: who comes in, and what others bring about, which is nothing.

mod common;

use common::{
    End, World, client_config, ms,
    raw::Config,
    server_config,
    wire::{Info, fragment, frame, hello, join, repair, source, timestamp},
};
use punctual_proto::{Block, CloseReason, Event, ProtocolError, SessionConfig, SessionId, Token};

fn token(byte: u8) -> Token {
    Token::new([byte; 32]).expect("long enough")
}

/// A server that knows the tokens of 1s and of 2s.
fn server(world: &mut World) -> common::HostId {
    world.add_endpoint(Some(server_config(SessionConfig::default()).tokens([token(1), token(2)])))
}

/// The TOKEN frame, behind the type of a control stream if it is the first.
fn shown(bytes: &[u8]) -> Vec<u8> {
    frame(0x0e, bytes)
}

/// SETTINGS behind the type of a control stream, and without it.
fn settings() -> (Vec<u8>, Vec<u8>) {
    let hello = hello(1 << 20, 1 << 22, 1_000, 4);
    (hello.clone(), hello[2..].to_vec())
}

/// A client of ours with this token, or none, is let in or not.
fn comes(world: &mut World, server: common::HostId, shown: Option<Token>) -> Result<(), u64> {
    let client = world.add_endpoint(None);
    let mut config = client_config(SessionConfig::default());
    if let Some(token) = shown {
        config = config.token(token);
    }
    let session = world.connect(client, &config, server);
    let id = world.send(End { host: client, session }, Block::new("a block"));
    world.run(ms(300));
    let events = world.events_of(client, session);
    assert!(events.contains(&Event::Connected { punctual: true }), "the handshake succeeds: {events:?}");
    let closed = events.iter().find_map(|event| match event {
        Event::Closed(CloseReason::Peer { code, .. }) => Some(*code),
        _ => None,
    });
    if let Some(code) = closed {
        return Err(code);
    }
    let outcome = common::outcomes(&events);
    assert!(common::delivery(outcome.get(&id)).completion < ms(100));
    Ok(())
}

/// What the server's application has heard.
fn heard(world: &mut World, server: common::HostId) -> Vec<(SessionId, Event)> {
    world.take_events(server)
}

#[test]
fn who_shows_a_token_that_is_known_comes_in() {
    let mut world = World::new(ms(5));
    let server = server(&mut world);
    let refused = Err(ProtocolError::Token.code());
    assert_eq!(comes(&mut world, server, Some(token(1))), Ok(()));
    assert_eq!(comes(&mut world, server, None), refused);
    assert_eq!(comes(&mut world, server, Some(token(3))), refused);
    assert_eq!(comes(&mut world, server, Some(token(2))), Ok(()));
    let events = heard(&mut world, server);
    let connected = events.iter().filter(|(_, event)| matches!(event, Event::Connected { .. })).count();
    let closed = |event: &Event| *event == Event::Closed(CloseReason::Protocol(ProtocolError::Token));
    assert_eq!((connected, events.iter().filter(|(_, event)| closed(event)).count()), (2, 2));
    assert!(!events.iter().any(|(_, event)| matches!(event, Event::Path { .. })), "{events:?}");
}

#[test]
fn a_token_that_nobody_asks_for_does_no_harm() {
    let mut world = World::new(ms(5));
    let server = world.add_endpoint(Some(server_config(SessionConfig::default())));
    assert_eq!(comes(&mut world, server, Some(token(9))), Ok(()));
}

#[test]
fn nothing_is_said_to_who_shows_nothing() {
    let (hello, plain) = settings();
    let kind = &hello[..2];
    let right = shown(&[1; 32]);
    let block = |id| join(&[&timestamp(1), &Info::new(id, 1).bytes(), &fragment(id, 0, &[7])]);
    for (name, words, error) in [
        ("no token", hello.clone(), Some(ProtocolError::Token)),
        ("another", join(&[kind, &shown(&[9; 32]), &plain]), Some(ProtocolError::Token)),
        ("the beginning of one", join(&[kind, &shown(&[1; 31]), &plain]), Some(ProtocolError::Token)),
        ("more than it", join(&[kind, &shown(&[1; 33]), &plain]), Some(ProtocolError::Token)),
        ("too little", join(&[kind, &shown(&[1; 15])]), Some(ProtocolError::Malformed)),
        ("too much", join(&[kind, &shown(&[1; 257])]), Some(ProtocolError::Malformed)),
        ("too late", join(&[&hello, &right]), Some(ProtocolError::Token)),
        ("twice", join(&[kind, &right, &right, &plain]), Some(ProtocolError::Settings)),
        ("something before it", join(&[kind, &frame(0x05, &[7]), &right]), Some(ProtocolError::Settings)),
        ("half of the right one", join(&[kind, &right[..20]]), None),
        ("nothing", Vec::new(), None),
    ] {
        let mut world = World::new(ms(5));
        let server = server(&mut world);
        let raw = world.add_raw(Config { paths: 3, ..Config::default() }, server);
        world.run(ms(50));
        assert!(world.raw(raw).connected, "{name}");
        if !words.is_empty() {
            world.raw(raw).control(&words);
        }
        world.run(ms(50));
        assert!(world.raw(raw).stream.is_empty() || name == "twice", "{name}: it was told something");
        if error.is_none() {
            // It has until the session would be idle, though it is not: it goes on sending pings.
            world.run(ms(20_000));
            assert_eq!(world.raw(raw).lost, None, "{name}");
            world.run(ms(11_000));
        }
        let error = error.unwrap_or(ProtocolError::Token);
        assert_eq!(world.raw(raw).closed_with(), Some(error.code()), "{name}");
        let events = heard(&mut world, server).into_iter().map(|(_, event)| event).collect::<Vec<_>>();
        if name != "twice" {
            assert_eq!(events, [Event::Closed(CloseReason::Protocol(error))], "{name}");
        }
        world.run(ms(3_000));
        assert_eq!(world.endpoint(server).sessions(), 0, "{name}: it is forgotten");
    }
    // Blocks on credit, and redundancy in a window, that were never given.
    let repair = join(&[&timestamp(1), &repair(0, 1_000, (2, 1), 0, &[0; 20])]);
    for (datagram, error) in [
        (block(0), ProtocolError::Credit),
        (source(0, 0, 1_000), ProtocolError::UnknownFrame),
        (repair, ProtocolError::UnknownFrame),
    ] {
        let mut world = World::new(ms(5));
        let server = server(&mut world);
        let raw = world.add_raw(Config::default(), server);
        world.run(ms(50));
        world.raw(raw).datagram(datagram);
        world.run(ms(50));
        assert_eq!(world.raw(raw).closed_with(), Some(error.code()));
    }
}

#[test]
fn who_cannot_speak_is_not_let_in() {
    let mut world = World::new(ms(5));
    let config = server_config(SessionConfig::default()).tokens([token(1)]);
    let server = world.add_endpoint(Some(config));
    let raw = world.add_raw(Config { alpn: common::OTHER_ALPN, ..Config::default() }, server);
    world.run(ms(100));
    assert_eq!(world.raw(raw).closed_with(), Some(ProtocolError::Token.code()));
}

#[test]
fn the_right_token_opens_the_door_and_the_application_still_has_its_say() {
    let mut world = World::new(ms(5));
    let config = server_config(SessionConfig::default()).wait_for_acceptance().tokens([token(1)]);
    let server = world.add_endpoint(Some(config));
    let raw = world.add_raw(Config::default(), server);
    world.run(ms(50));
    let (hello, plain) = settings();
    world.raw(raw).control(&join(&[&hello[..2], &shown(&[1; 32]), &plain]));
    let (session, _) = world.accept_any(server);
    world.run(ms(100));
    assert!(world.raw(raw).stream.is_empty(), "it has not been accepted");
    let now = world.now;
    world.session(server, session).accept(now);
    world.drain();
    world.run(ms(100));
    assert!(!world.raw(raw).stream.is_empty());
}
