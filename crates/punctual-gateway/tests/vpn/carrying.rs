//! What is carried, and how.

use std::{collections::HashMap, net::IpAddr};

use punctual_gateway::vpn::{
    Config, Ended, Limits,
    packet::{Ecn, Packet, mark_ce},
    segment::Rest,
};

use super::hosts::{Called, Host, Key, config, nets, patient, tcp, udp, wait_for};

fn server() -> [IpAddr; 2] {
    [[10, 9, 0, 1].into(), "fd09::1".parse().expect("an address")]
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_of_both_versions_come_as_they_went_and_so_do_answers() {
    let key = Key::new();
    let called = Called::start(config(vec![key.client()])).await;
    let calling = key.call(&called).await;
    let setup = calling.host.setup().expect("it was welcomed");
    assert_eq!(setup.addresses, nets(&["10.9.0.2/24", "fd09::2/64"]));
    assert_eq!((setup.routes, setup.mtu), (nets(&["192.168.0.0/16"]), 1_500));
    assert_eq!(called.host.setup().expect("it has started").addresses, nets(&["10.9.0.1/24", "fd09::1/64"]));
    for (own, far) in calling.addresses().into_iter().zip(server()) {
        let mut asked = udp(own, far, (5_000, 53), b"what");
        // Marks of both kinds go through: DSCP, and ECN.
        match far {
            IpAddr::V4(_) => asked[1] = 46 << 2 | 1,
            IpAddr::V6(_) => (asked[0], asked[1]) = (0x60 | 46 >> 2, (46 & 3) << 6 | 1 << 4),
        }
        assert!(mark_ce(&mut asked));
        calling.host.send(asked.clone(), Rest::Nothing);
        let (came, rest) = called.host.came().await;
        assert_eq!((&came[..], rest), (&asked[..], Rest::Nothing));
        let packet = Packet::parse(&came).expect("it is one");
        assert_eq!((packet.dscp, packet.ecn), (46, Ecn::Ce));
        let answer = udp(far, own, (53, 5_000), b"that");
        called.host.send(answer.clone(), Rest::Nothing);
        assert_eq!(calling.host.came().await.0, answer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_to_be_done_is_said() {
    let key = Key::new();
    let called = Called::start(config(vec![key.client()])).await;
    let calling = key.call(&called).await;
    let [own, _] = calling.addresses();
    for (size, rest) in [(40_000, Rest::Segments(1_448)), (100, Rest::Checksum)] {
        let packet = tcp(own, server()[0], (4_000, 80), 0, size);
        calling.host.send(packet.clone(), rest);
        assert_eq!(called.host.came().await, (packet.into(), rest));
    }
    // What no system can do is not asked of it.
    calling.host.send(tcp(own, server()[0], (4_000, 80), 0, 40_000), Rest::Segments(1));
    calling.host.until("punctual_vpn_refused_packets_total{reason=\"malformed\"}", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tcp_flow_keeps_its_order_over_two_paths() {
    let key = Key::new();
    let called = Called::start(config(vec![key.client()])).await;
    let calling = key.call(&called).await;
    let [own, _] = calling.addresses();
    const SEGMENTS: u32 = 300;
    for number in 0..SEGMENTS {
        for port in [4_000, 4_001] {
            calling.host.send(tcp(own, server()[0], (port, 80), number, 1_000), Rest::Nothing);
        }
        if number % 16 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    let mut next = HashMap::from([(4_000, 0), (4_001, 0)]);
    for _ in 0..2 * SEGMENTS {
        let (bytes, _) = called.host.came().await;
        let (port, _) = Packet::parse(&bytes).expect("it is one").ports.expect("of TCP");
        let number = u32::from_be_bytes(bytes[24..28].try_into().expect("four bytes"));
        let due = next.get_mut(&port).expect("one of the two");
        assert_eq!(number, *due, "of {port}");
        *due += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_room_for_new_flows_however_many_have_sent_a_packet_each() {
    let key = Key::new();
    let called = Called::start(config(vec![key.client()])).await;
    let limits = Limits { flows: 10, ..Limits::default() };
    let calling = key.call_by(&called, Host::new(Config { limits, ..patient() }).await).await;
    let [own, _] = calling.addresses();
    for port in 1..=40 {
        let packet = udp(own, server()[0], (port, 53), b"what is its address?");
        calling.host.send(packet.clone(), Rest::Nothing);
        assert_eq!(called.host.came().await.0, packet);
        // Ten flows may begin in a tenth of a second.
        tokio::time::sleep(std::time::Duration::from_millis(15)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_packet_is_not_carried_and_harms_nobody() {
    let key = Key::new();
    let called = Called::start(config(vec![key.client()])).await;
    let calling = key.call(&called).await;
    let [own, _] = calling.addresses();
    calling.host.send(vec![0x45, 0, 0, 9], Rest::Nothing);
    calling.host.send(vec![], Rest::Nothing);
    calling.host.until("punctual_vpn_refused_packets_total{reason=\"malformed\"}", 2).await;
    // For nobody who is here.
    called.host.send(udp(server()[0], [10, 9, 0, 200].into(), (1, 2), b"x"), Rest::Nothing);
    called.host.until("punctual_vpn_refused_packets_total{reason=\"nobody\"}", 1).await;
    let packet = udp(own, server()[0], (1, 2), b"x");
    calling.host.send(packet.clone(), Rest::Nothing);
    assert_eq!(called.host.came().await.0, packet);
}

/// What is under way when a session ends has an outcome, too.
#[tokio::test(flavor = "multi_thread")]
async fn no_packet_is_lost_to_the_books_with_a_session() {
    let key = Key::new();
    let called = Called::start(config(vec![key.client()])).await;
    let calling = key.call(&called).await;
    let [own, _] = calling.addresses();
    let packet = udp(own, server()[0], (1, 2), &[7; 500]);
    for _ in 0..400 {
        calling.host.send(packet.clone(), Rest::Nothing);
    }
    let sent = || calling.host.sum("punctual_vpn_sent_bytes_total") / packet.len() as u64;
    wait_for("packets under way", || sent() > 0).await;
    calling.session.close(0, "");
    let ended = calling.ended.await.unwrap();
    assert!(matches!(ended, Ended::Closed(_)), "{ended:?}");
    let told = || calling.host.sum("punctual_vpn_packets_total");
    wait_for("an outcome of each", || sent() == told()).await;
}
