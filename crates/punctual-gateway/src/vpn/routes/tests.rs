use proptest::prelude::*;

use super::*;
use crate::vpn::wire::MAX_ROUTES;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn welcome(addresses: &[&str], routes: &[&str]) -> Welcome {
    Welcome { version: 1, mtu: 1_500, addresses: nets(addresses), routes: nets(routes) }
}

fn within(texts: &[&str]) -> AcceptRoutes {
    AcceptRoutes::Within(nets(texts))
}

/// Routes that are taken, and why others are not.
fn routes(accept: &AcceptRoutes, routes: &[&str]) -> (Vec<IpNet>, Vec<Refusal>) {
    let (setup, refused) = judge(&welcome(&["10.9.0.2/24"], routes), accept, &Surroundings::default());
    (setup.routes, refused.into_iter().map(|(_, why)| why).collect())
}

#[test]
fn no_route_is_taken_that_is_not_accepted() {
    let all = ["0.0.0.0/0", "::/0", "192.168.7.0/24", "192.168.0.0/15", "8.8.8.8/32"];
    assert_eq!(routes(&AcceptRoutes::default(), &all), (vec![], vec![Refusal::NotAccepted; 5]));
    let (taken, refused) = routes(&within(&["192.168.0.0/16", "fd00::/8"]), &all);
    assert_eq!((taken, refused), (nets(&["192.168.7.0/24"]), vec![Refusal::NotAccepted; 4]));
    assert_eq!(routes(&within(&["0.0.0.0/0"]), &["10.0.0.0/8", "::/1"]).0, nets(&["10.0.0.0/8"]));
}

#[test]
fn everything_is_two_halves_and_what_is_said_twice_is_taken_once() {
    let (taken, refused) =
        routes(&AcceptRoutes::All, &["0.0.0.0/0", "0.0.0.0/0", "::/0", "10.1.2.3/16", "10.1.0.0/16"]);
    assert_eq!(taken, nets(&["0.0.0.0/1", "10.1.0.0/16", "128.0.0.0/1", "::/1", "8000::/1"]));
    assert_eq!(refused, []);
    // The system makes that by itself.
    assert_eq!(routes(&AcceptRoutes::All, &["10.9.0.0/24"]).0, []);
    assert_eq!(routes(&AcceptRoutes::None, &["10.1.0.0/16"; 3]).1.len(), 1);
}

#[test]
fn what_is_of_the_host_or_its_links_is_never_taken() {
    let never = [
        "127.0.0.0/8",
        "127.1.2.3/32",
        "::1/128",
        "::/128",
        "fe80::/64",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "ff02::/16",
        "0.0.0.0/8",
    ];
    assert_eq!(routes(&AcceptRoutes::All, &never), (vec![], vec![Refusal::Never; never.len()]));
}

#[test]
fn the_networks_of_other_interfaces_stay_theirs() {
    let beside = nets(&["192.168.1.20/24", "fd01::5/64", "203.0.113.9/32"]);
    let around = Surroundings { beside: &beside, ..Surroundings::default() };
    let given = [
        "192.168.1.0/24",
        "192.168.1.128/25",
        "192.168.1.1/32",
        "fd01::/64",
        "203.0.113.9/32",
        "192.168.0.0/16",
        "fd00::/8",
    ];
    let (setup, refused) = judge(&welcome(&["10.9.0.2/24"], &given), &AcceptRoutes::All, &around);
    // What is wider does not take them away.
    assert_eq!(setup.routes, nets(&["192.168.0.0/16", "fd00::/8"]));
    let theirs = Refusal::Beside(beside[0].trunc());
    assert_eq!(refused[..3], given[..3].iter().map(|route| (route.parse().unwrap(), theirs)).collect::<Vec<_>>());
    assert_eq!(refused.len(), 5);
}

#[test]
fn an_address_is_of_a_small_private_network_or_accepted_and_of_no_other_interface() {
    let beside = nets(&["192.168.1.20/24", "10.50.0.1/30"]);
    let around = Surroundings { beside: &beside, servers: &["172.16.0.9".parse().unwrap()] };
    let judged = |address: &str, accept: &AcceptRoutes| {
        let (setup, refused) = judge(&welcome(&[address], &[]), accept, &around);
        assert_eq!(setup.addresses.len() + refused.len(), 1);
        refused.first().map(|(_, why)| *why)
    };
    let none = AcceptRoutes::None;
    for fine in ["10.9.0.2/24", "10.9.0.2/32", "10.9.0.2/16", "100.64.0.2/24", "fd09::2/64", "fd09::2/48"] {
        assert_eq!(judged(fine, &none), None, "{fine}");
    }
    for (bad, why) in [
        ("10.9.0.2/8", Refusal::NotPrivate),
        ("1.2.3.4/1", Refusal::NotPrivate),
        ("8.8.8.8/32", Refusal::NotPrivate),
        ("2001:db8::2/64", Refusal::NotPrivate),
        ("fd09::2/32", Refusal::NotPrivate),
        ("10.9.0.2/0", Refusal::NotPrivate),
        ("127.0.0.2/32", Refusal::Never),
        ("fe80::2/64", Refusal::Never),
        ("192.168.1.20/32", Refusal::Beside(beside[0].trunc())),
        ("192.168.1.77/16", Refusal::Beside(beside[0].trunc())),
        ("172.16.0.2/24", Refusal::Server(around.servers[0])),
    ] {
        assert_eq!(judged(bad, &none), Some(why), "{bad}");
    }
    assert_eq!(judged("10.9.0.2/8", &within(&["10.0.0.0/8"])), None);
    assert_eq!(judged("8.8.8.8/32", &AcceptRoutes::All), None);
}

#[test]
fn routes_lead_around_the_server() {
    let servers: [IpAddr; 3] =
        ["203.0.113.5".parse().unwrap(), "198.51.100.7".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    let around = Surroundings { servers: &servers, ..Surroundings::default() };
    let given = welcome(&["10.9.0.2/24"], &["0.0.0.0/0", "::/0", "203.0.113.0/24", "203.0.113.5/32"]);
    let (Setup { routes, .. }, refused) = judge(&given, &AcceptRoutes::All, &around);
    assert_eq!(refused, [(nets(&["203.0.113.5/32"])[0], Refusal::Server(servers[0]))]);
    let leads = |to: &str| {
        let to: IpAddr = to.parse().unwrap();
        routes.iter().any(|route| route.contains(&to))
    };
    for server in ["203.0.113.5", "198.51.100.7", "2001:db8::1"] {
        assert!(!leads(server), "{server}");
    }
    for other in [
        "203.0.113.4",
        "203.0.113.6",
        "198.51.100.6",
        "0.0.0.1",
        "255.255.255.254",
        "2001:db8::",
        "2001:db8::2",
        "::5",
        "ffff::",
    ] {
        assert!(leads(other), "{other}");
    }
    assert!(routes.len() <= 2 * 32 + 128, "{}", routes.len());
}

#[test]
fn around_a_server_in_the_clients_own_network_that_network_stays_as_it_was() {
    let (beside, servers) = (nets(&["192.168.1.20/24"]), ["192.168.1.9".parse().unwrap()]);
    let around = Surroundings { beside: &beside, servers: &servers };
    let (setup, refused) = judge(&welcome(&["10.9.0.2/24"], &["0.0.0.0/0"]), &AcceptRoutes::All, &around);
    let longest = |to: &str| {
        let to: IpAddr = to.parse().unwrap();
        setup.routes.iter().filter(|route| route.contains(&to)).map(IpNet::prefix_len).max()
    };
    // Shorter than /24, so that the interface's own route has it.
    assert!(
        longest("192.168.1.1").is_none_or(|length| length < 24)
            && longest("192.168.1.8").is_none_or(|length| length < 24)
    );
    assert_eq!((longest("192.168.0.1"), longest("8.8.8.8"), refused), (Some(24), Some(1), vec![]));
}

#[test]
fn there_are_no_more_routes_than_can_be_however_many_are_given() {
    // Each of another length, all of them around the server.
    let server: IpAddr = "2001:db8::1".parse().unwrap();
    let nested: Vec<IpNet> = (0..=128).map(|length| IpNet::new(server, length).unwrap().trunc()).collect();
    let many = (0..MAX_ROUTES - nested.len())
        .map(|at| IpNet::new(Ipv4Addr::from(0x0b00_0000 + at as u32 * 256).into(), 24).unwrap());
    let given = Welcome { routes: nested.into_iter().chain(many).collect(), ..welcome(&[], &[]) };
    let around = Surroundings { servers: &[server], ..Surroundings::default() };
    let (setup, _) = judge(&given, &AcceptRoutes::All, &around);
    assert!(setup.routes.len() <= MAX_ROUTES, "{}", setup.routes.len());
}

#[test]
fn packets_come_from_where_routes_may_lead() {
    let own = nets(&["10.9.0.2/24"]);
    let from = |accept: &AcceptRoutes, source: &str| {
        let source: IpAddr = source.parse().unwrap();
        sources(accept, &own).iter().any(|network| network.contains(&source))
    };
    assert!(from(&AcceptRoutes::None, "10.9.0.1") && !from(&AcceptRoutes::None, "192.168.1.1"));
    assert!(from(&within(&["192.168.0.0/16"]), "192.168.1.1") && !from(&within(&["192.168.0.0/16"]), "8.8.8.8"));
    assert!(from(&AcceptRoutes::All, "8.8.8.8") && from(&AcceptRoutes::All, "2001:db8::1"));
}

#[test]
fn what_is_accepted_is_said_in_words_or_networks() {
    #[derive(Deserialize)]
    struct Said {
        accept: AcceptRoutes,
    }
    let read = |text: &str| toml::from_str::<Said>(&format!("accept = {text}")).map(|said| said.accept);
    assert_eq!(read("'none'").unwrap(), AcceptRoutes::None);
    assert_eq!(read("'all'").unwrap(), AcceptRoutes::All);
    assert_eq!(read("['10.0.0.0/8', '::/0']").unwrap(), within(&["10.0.0.0/8", "::/0"]));
    assert_eq!(read("'10.0.0.0/8'").unwrap(), within(&["10.0.0.0/8"]));
    assert_eq!(read("[]").unwrap(), within(&[]));
    for (bad, why) in [
        ("'some'", "neither a network"),
        ("['10.0.0.0/8', 'all']", "stand alone"),
        ("['none', 'all']", "stand alone"),
        ("7", ""),
    ] {
        assert!(read(bad).unwrap_err().to_string().contains(why), "{bad}");
    }
}

#[test]
fn what_is_refused_is_named_and_much_of_it_is_cut_short() {
    let refused: Refused = (0..20).map(|_| (nets(&["8.8.8.8/32"])[0], Refusal::NotAccepted)).collect();
    let text = Named(&refused).to_string();
    assert!(
        text.starts_with("8.8.8.8/32 (accept-routes does not contain it), ") && text.ends_with(", and 4 more"),
        "{text}"
    );
}

/// Networks of both versions, many of them within each other.
fn network() -> impl Strategy<Value = IpNet> {
    let v4 = (prop_oneof![Just(0x0a00_0000u32), Just(0xc0a8_0100), any::<u32>()], any::<u8>(), 0..=32u8)
        .prop_map(|(high, low, length)| IpNet::new(Ipv4Addr::from(high | u32::from(low)).into(), length).unwrap());
    let v6 = (prop_oneof![Just(0xfd09u128 << 112), any::<u128>()], any::<u8>(), 0..=128u8)
        .prop_map(|(high, low, length)| IpNet::new(Ipv6Addr::from(high | u128::from(low)).into(), length).unwrap());
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn whatever_a_server_gives_it_has_nothing_that_is_not_for_it(
        addresses in proptest::collection::vec(network(), 0..4),
        routes in proptest::collection::vec(network(), 0..20),
        accepted in proptest::option::of(proptest::collection::vec(network(), 0..4)),
        beside in proptest::collection::vec(network(), 0..4),
        servers in proptest::collection::vec(network().prop_map(|network| network.addr()), 0..3),
    ) {
        let given = Welcome { version: 1, mtu: 1_500, addresses, routes };
        let accept = accepted.map_or(AcceptRoutes::All, AcceptRoutes::Within);
        let (setup, _) = judge(&given, &accept, &Surroundings { beside: &beside, servers: &servers });
        for route in &setup.routes {
            prop_assert!(accept.contains(route) && given.routes.iter().any(|given| given.contains(route)));
            prop_assert!(route.prefix_len() > 0 && !servers.iter().any(|server| route.contains(server)));
            prop_assert!(!beside.iter().any(|other| other.prefix_len() > 0 && other.trunc().contains(route)));
        }
        for address in &setup.addresses {
            prop_assert!(given.addresses.contains(address));
            prop_assert!(!beside.iter().any(|other| other.prefix_len() > 0 && other.contains(&address.addr())));
        }
        // What is accepted and in nobody's way is taken.
        for route in given.routes.iter().map(IpNet::trunc).filter(|route| accept.contains(route) && route.prefix_len() > 0) {
            let free = !servers.iter().any(|server| route.contains(server))
                && !beside.iter().any(|other| other.prefix_len() > 0 && other.trunc().contains(&route))
                && never(&route).is_none();
            let own = setup.addresses.iter().any(|address| address.trunc() == route);
            prop_assert!(!free || own || setup.routes.contains(&route), "{route}");
        }
    }
}
