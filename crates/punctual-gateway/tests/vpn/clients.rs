//! Many clients, those that come again, and those that do what they should not.

use std::{net::IpAddr, time::Duration};

use punctual::{Block, CloseReason, Session};
use punctual_gateway::vpn::{
    Client, Config, Ended, Limits, StartError, Violation, close,
    segment::Rest,
    wire::{WireError, Word},
};
use tokio::sync::mpsc;

use super::hosts::{Called, Key, PATIENCE, config, nets, udp, wait_for};

const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));

async fn say(session: &Session, word: &Word) {
    session.send(Block::new(word.encode())).await.expect("it is there").await;
}

fn refused(reason: &str) -> String {
    format!("punctual_vpn_refused_packets_total{{reason=\"{reason}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_has_its_addresses_and_gets_what_is_for_them() {
    let keys = [Key::new(), Key::new(), Key::new()];
    let named = Client { address: vec![[10, 9, 0, 77].into(), "fd09::77".parse().unwrap()], ..keys[2].client() };
    let called = Called::start(config(vec![keys[0].client(), keys[1].client(), named])).await;
    let mut all = Vec::new();
    for key in &keys {
        all.push(key.call(&called).await);
    }
    assert_eq!(all[2].addresses()[0], IpAddr::from([10, 9, 0, 77]));
    for one in &all {
        for (own, far) in one.addresses().into_iter().zip([SERVER, "fd09::1".parse().unwrap()]) {
            let packet = udp(far, own, (1, 2), own.to_string().as_bytes());
            called.host.send(packet.clone(), Rest::Nothing);
            assert_eq!(one.host.came().await.0, packet);
        }
    }
    // Who comes again has what it had, and the session before ends.
    let before = all.remove(0);
    let addresses = before.addresses();
    let again = keys[0].call(&called).await;
    assert_eq!(again.addresses(), addresses);
    let Ended::Closed(CloseReason::Peer { code, .. }) = before.ended.await.expect("no panic") else {
        panic!("it was not closed")
    };
    assert_eq!(code, u64::from(close::STOPPED));
    let packet = udp(SERVER, addresses[0], (1, 2), b"again");
    called.host.send(packet.clone(), Rest::Nothing);
    assert_eq!(again.host.came().await.0, packet);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_started_anew_gives_the_same_addresses_whoever_comes_first() {
    let keys = [Key::new(), Key::new(), Key::new()];
    let clients = || config(keys.iter().map(Key::client).collect());
    let mut had = Vec::new();
    let before = Called::start(clients()).await;
    for key in &keys {
        had.push(key.call(&before).await.addresses());
    }
    drop(before);
    let after = Called::start(clients()).await;
    for (key, had) in keys.iter().zip(had).rev() {
        assert_eq!(key.call(&after).await.addresses(), had);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_with_one_key_put_each_other_out_and_the_last_is_reached() {
    let key = Key::new();
    let called = Called::start(config(vec![key.client()])).await;
    let mut last = key.call(&called).await;
    for _ in 0..20 {
        let next = key.call(&called).await;
        last.ended.await.expect("no panic");
        last = next;
    }
    let [own, _] = last.addresses();
    assert_eq!(own, IpAddr::from([10, 9, 0, 2]), "none has been given twice");
    let packet = udp(SERVER, own, (1, 2), b"to the last");
    called.host.send(packet.clone(), Rest::Nothing);
    assert_eq!(last.host.came().await.0, packet);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_gone_is_told() {
    let called = Called::start(config(vec![Key::new().client()])).await;
    assert!(tokio::time::timeout(Duration::from_millis(1), called.host.vpn.gone()).await.is_err());
    called.host.delete_device();
    let gone = tokio::time::timeout(super::hosts::PATIENCE, called.host.vpn.gone());
    assert_eq!(gone.await.expect("it is told"), "broken pipe");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_takes_anothers_address_nor_reaches_another() {
    let keys = [Key::new(), Key::new()];
    let behind = Client { networks: nets(&["192.168.7.0/24"]), ..keys[1].client() };
    let called = Called::start(config(vec![keys[0].client(), behind])).await;
    let (hostile, other) = (keys[0].call(&called).await, keys[1].call(&called).await);
    let ([own, _], [others, _]) = (hostile.addresses(), other.addresses());
    hostile.host.send(udp(others, SERVER, (1, 2), b"as another"), Rest::Nothing);
    hostile.host.send(udp([192, 168, 7, 9].into(), SERVER, (1, 2), b"as who is behind another"), Rest::Nothing);
    hostile.host.send(udp(SERVER, SERVER, (1, 2), b"as the server"), Rest::Nothing);
    called.host.until(&refused("source"), 3).await;
    hostile.host.send(udp(own, others, (1, 2), b"to another"), Rest::Nothing);
    hostile.host.send(udp(own, [192, 168, 7, 9].into(), (1, 2), b"to who is behind another"), Rest::Nothing);
    called.host.until(&refused("client_to_client"), 2).await;
    // Who is behind a client is heard and reached.
    let from = udp([192, 168, 7, 9].into(), SERVER, (1, 2), b"from behind");
    other.host.send(from.clone(), Rest::Nothing);
    assert_eq!(called.host.came().await.0, from, "and nothing of the hostile one's");
    let to = udp(SERVER, [192, 168, 7, 9].into(), (2, 1), b"to behind");
    called.host.send(to.clone(), Rest::Nothing);
    assert_eq!(other.host.came().await.0, to);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_reach_each_other_where_settings_say_so() {
    let keys = [Key::new(), Key::new()];
    let mut settings = config(keys.iter().map(Key::client).collect());
    settings.server.as_mut().expect("it is one").client_to_client = true;
    let called = Called::start(settings).await;
    let (one, other) = (keys[0].call(&called).await, keys[1].call(&called).await);
    let packet = udp(one.addresses()[0], other.addresses()[0], (1, 2), b"hello");
    one.host.send(packet.clone(), Rest::Nothing);
    // The system forwards it, if it does.
    let (came, rest) = called.host.came().await;
    called.host.send(came.to_vec(), rest);
    assert_eq!(other.host.came().await.0, packet);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_no_more_than_its_share() {
    let key = Key::new();
    let slow = Client { rate: Some(1_000), ..key.client() };
    let called = Called::start(config(vec![slow])).await;
    let calling = key.call(&called).await;
    for _ in 0..100 {
        calling.host.send(udp(calling.addresses()[0], SERVER, (1, 2), &[0; 1_000]), Rest::Nothing);
        called.host.send(udp(SERVER, calling.addresses()[0], (2, 1), &[0; 1_000]), Rest::Nothing);
    }
    // A second's worth is saved up: of the hundred that come, and of as many that go, one passes each second.
    called.host.until(&refused("rate"), 150).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_not_let_in_and_settings_that_change_let_others_in() {
    let keys = [Key::new(), Key::new()];
    let called = Called::start(config(vec![keys[0].client()])).await;
    let first = keys[0].call(&called).await;
    assert!(keys[1].is_turned_away(&called).await);
    let mut both = config(vec![keys[0].client(), keys[1].client()]);
    let server = both.server.as_mut().expect("it is one");
    server.routes = nets(&["172.16.0.0/12"]);
    called.host.vpn.reload(both.clone()).await.expect("it makes sense");
    // Who is here goes on, and hears of the routes.
    wait_for("routes", || first.host.setup().is_some_and(|setup| setup.routes == nets(&["172.16.0.0/12"]))).await;
    let second = keys[1].call(&called).await;
    let packet = udp(second.addresses()[0], SERVER, (1, 2), b"hello");
    second.host.send(packet.clone(), Rest::Nothing);
    assert_eq!(called.host.came().await.0, packet);
    called.host.vpn.reload(config(vec![keys[1].client()])).await.expect("it makes sense");
    let Ended::Closed(CloseReason::Peer { code, .. }) = first.ended.await.expect("no panic") else {
        panic!("it is let in no more")
    };
    assert_eq!(code, u64::from(close::REFUSED));
    assert!(keys[0].is_turned_away(&called).await);
    assert!(second.session.close_reason().is_none(), "the other goes on");
    // What takes a restart changes nothing.
    both.server.as_mut().expect("it is one").addresses = nets(&["10.8.0.1/24"]);
    assert!(matches!(called.host.vpn.reload(both).await, Err(StartError::Restart)));
    assert!(keys[0].is_turned_away(&called).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_is_given_now_is_told_even_if_the_session_is_full() {
    let (key, (tell, mut sessions)) = (Key::new(), mpsc::unbounded_channel());
    let called = Called::telling(config(vec![key.client()]), Some(tell)).await;
    let (_endpoint, session) = key.slow_session(&called).await;
    let theirs = sessions.recv().await.expect("it is there");
    let welcomed = || async {
        loop {
            let block = tokio::time::timeout(PATIENCE, session.recv()).await.expect("a word").expect("open");
            if let Ok(Some(Word::Welcome(welcome))) = Word::decode(block.data) {
                return welcome;
            }
        }
    };
    say(&session, &Word::Hello(1)).await;
    let before = welcomed().await;
    // Words that are for later versions, of which so many wait to be heard, and the others to leave.
    let fill = || while theirs.try_send(Block::new([&[0x77][..], &[0; 50_000]].concat())).is_ok() {};
    let delivered = || theirs.stats().blocks_on_time >= 16;
    wait_for("a session that is full", || (fill(), delivered()).1).await;
    fill();
    let mut other = config(vec![key.client()]);
    other.server.as_mut().expect("it is one").routes = nets(&["172.16.0.0/12"]);
    called.host.vpn.reload(other).await.expect("it makes sense");
    let after = welcomed().await;
    assert_eq!((&after.addresses, after.routes), (&before.addresses, nets(&["172.16.0.0/12"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_clients_than_may_be() {
    let keys = [Key::new(), Key::new()];
    let limits = Limits { clients: 1, ..Limits::default() };
    let called = Called::start(Config { limits, ..config(keys.iter().map(Key::client).collect()) }).await;
    let first = keys[0].call(&called).await;
    let (_endpoint, second) = keys[1].session(&called).await;
    say(&second, &Word::Hello(1)).await;
    assert_eq!(called.an_end().await, Ended::Full);
    first.session.close(0, "");
    called.an_end().await;
    keys[1].call(&called).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_keep_to_the_protocol_is_out_and_others_are_not() {
    let keys = [Key::new(), Key::new()];
    let called = Called::start(config(keys.iter().map(Key::client).collect())).await;
    let steady = keys[0].call(&called).await;
    let (_endpoint, session) = keys[1].session(&called).await;
    session.send(Block::new(&b"\x01\x00hello"[..])).await.expect("sent");
    assert_eq!(called.an_end().await, Ended::NoGreeting, "a tunnel, say");
    for (bytes, violation) in [
        (&b"\x00"[..], Violation::Wire(WireError::Kind(0))),
        (&b"\x14\x00x"[..], Violation::Wire(WireError::Segments(0))),
        (&b"\x10\x01"[..], Violation::Greeting),
    ] {
        let (_endpoint, session) = keys[1].session(&called).await;
        say(&session, &Word::Hello(1)).await;
        // What is no packet, and what is for later versions, is passed over.
        session.send(Block::new(&b"\x12\x45garbage"[..])).await.expect("sent");
        session.send(Block::new(&b"\x77later"[..])).await.expect("sent").await;
        session.send(Block::new(bytes)).await.expect("sent");
        assert_eq!(called.an_end().await, Ended::Violation(violation));
    }
    called.host.until(&refused("malformed"), 3).await;
    let packet = udp(steady.addresses()[0], SERVER, (1, 2), b"still here");
    steady.host.send(packet.clone(), Rest::Nothing);
    assert_eq!(called.host.came().await.0, packet);
    assert!(tokio::time::timeout(Duration::from_millis(1), steady.ended).await.is_err());
}
