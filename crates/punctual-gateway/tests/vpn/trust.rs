//! What a client takes of what a server gives it.

use std::net::IpAddr;

use ipnet::IpNet;
use punctual_gateway::vpn::{AcceptRoutes, Config, Ended, segment::Rest};

use super::hosts::{Called, Host, Key, config, nets, patient, udp, wait_for};

const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));

fn accepting(accept_routes: AcceptRoutes) -> Config {
    Config { accept_routes, ..patient() }
}

/// A server that has clients reach everything through it.
async fn greedy(key: &Key) -> Called {
    let mut settings = config(vec![key.client()]);
    settings.server.as_mut().expect("it is one").routes =
        nets(&["0.0.0.0/0", "::/0", "192.168.0.0/16", "192.168.0.0/16"]);
    Called::start(settings).await
}

fn routes(host: &Host) -> Vec<IpNet> {
    host.setup().expect("it was welcomed").routes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_takes_no_route_and_no_packet_that_it_does_not_accept() {
    let key = Key::new();
    let called = greedy(&key).await;
    let client = key.call_by(&called, Host::new(accepting(AcceptRoutes::None)).await).await;
    assert_eq!((routes(&client.host), client.addresses()[0]), (vec![], [10, 9, 0, 2].into()));
    // The server sends as somebody whom it is not to be.
    let forged = udp([192, 168, 1, 1].into(), client.addresses()[0], (53, 53), b"forged");
    called.host.send(forged, Rest::Nothing);
    client.host.until("punctual_vpn_refused_packets_total{reason=\"source\"}", 1).await;
    let own = udp(SERVER, client.addresses()[0], (1, 2), b"its own");
    called.host.send(own.clone(), Rest::Nothing);
    assert_eq!(client.host.came().await.0, own, "and nothing before it");
    // Settings that say more are followed at once, by the session that is there.
    let more = accepting(AcceptRoutes::Within(nets(&["192.168.0.0/16"])));
    client.host.vpn.reload(more).await.expect("it makes sense");
    assert_eq!(routes(&client.host), nets(&["192.168.0.0/16"]));
    let behind = udp([192, 168, 1, 1].into(), client.addresses()[0], (53, 53), b"accepted");
    called.host.send(behind.clone(), Rest::Nothing);
    assert_eq!(client.host.came().await.0, behind);
    client.host.vpn.reload(accepting(AcceptRoutes::None)).await.expect("it makes sense");
    assert_eq!(routes(&client.host), []);
    assert!(client.session.close_reason().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_address_is_no_longer_accepted_is_what_it_was() {
    let key = Key::new();
    let mut settings = config(vec![key.client()]);
    settings.server.as_mut().expect("it is one").addresses = nets(&["203.0.113.1/24", "2001:db8::1/64"]);
    let called = Called::start(settings).await;
    let public = accepting(AcceptRoutes::Within(nets(&["203.0.113.0/24", "2001:db8::/64"])));
    let client = key.call_by(&called, Host::new(public).await).await;
    let own = |number: u8| udp([203, 0, 113, 1].into(), client.addresses()[0], (1, 2), &[number]);
    called.host.send(own(1), Rest::Nothing);
    assert_eq!(client.host.came().await.0, own(1));
    client.host.vpn.reload(accepting(AcceptRoutes::None)).await.expect("it makes sense");
    called.host.send(own(2), Rest::Nothing);
    assert_eq!(client.host.came().await.0, own(2), "its address is still there, and so is who gave it");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_lead_around_the_servers_own_addresses() {
    let key = Key::new();
    let called = greedy(&key).await;
    let host = Host::new(accepting(AcceptRoutes::All)).await;
    let (first, second): (IpAddr, IpAddr) = ([203, 0, 113, 5].into(), [198, 51, 100, 7].into());
    host.vpn.lead_around(&[first]).await;
    let client = key.call_by(&called, host).await;
    let leads = |to: IpAddr| routes(&client.host).iter().any(|route| route.contains(&to));
    assert!(!leads(first) && leads(second));
    // It has another address when it is called again.
    client.host.vpn.lead_around(&[second]).await;
    assert!(leads(first) && !leads(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_address_is_taken_that_is_of_another_interface() {
    let key = Key::new();
    let called = greedy(&key).await;
    let host = Host::new(patient()).await;
    *host.vpn.device().beside.lock().expect("sound") = nets(&["10.9.0.200/24", "fd09::77/128"]);
    let client = key.call_by(&called, host).await;
    // That of IPv6 is in nobody's network.
    assert_eq!(client.host.setup().expect("it was welcomed").addresses, nets(&["fd09::2/64"]));
    let host = Host::new(patient()).await;
    *host.vpn.device().beside.lock().expect("sound") = nets(&["10.9.0.200/24", "fd09::77/64"]);
    let none = key.begin(&called, host).await;
    let Ended::NotAccepted(why) = none.ended.await.expect("no panic") else { panic!("it has no address") };
    assert!(why.contains("10.9.0.2/24 (another interface is in 10.9.0.0/24)"), "{why}");
    assert_eq!(none.host.setup(), None, "nothing is set up");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_mtu_is_that_of_both_sides_at_once() {
    let key = Key::new();
    let called = Called::start(config(vec![key.client()])).await;
    let client = key.call(&called).await;
    let mut settings = config(vec![key.client()]);
    settings.server.as_mut().expect("it is one").mtu = 1_400;
    called.host.vpn.reload(settings).await.expect("it makes sense");
    assert_eq!(called.host.setup().expect("it has started").mtu, 1_400);
    wait_for("the MTU", || client.host.setup().is_some_and(|setup| setup.mtu == 1_400)).await;
    assert!(client.session.close_reason().is_none());
}
