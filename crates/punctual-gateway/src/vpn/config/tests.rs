use super::*;
use crate::vpn::packet::Ecn;

fn server() -> Server {
    Server {
        addresses: vec!["10.9.0.1/24".parse().unwrap()],
        routes: Vec::new(),
        mtu: DEFAULT_MTU,
        clients: vec![Client::new(Fingerprint([1; 32]))],
        client_to_client: false,
    }
}

fn packet(transport: Transport, protocol: u8, ports: Option<(u16, u16)>, dscp: u8) -> Packet {
    Packet {
        source: [10, 9, 0, 2].into(),
        destination: [192, 0, 2, 1].into(),
        protocol,
        transport,
        ports,
        dscp,
        ecn: Ecn::NotEct,
        transport_at: 20,
        is_fragment: false,
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    let with = |change: &dyn Fn(&mut Server)| {
        let mut server = server();
        change(&mut server);
        Config { server: Some(server), ..Config::default() }.check().map_err(|error| error.to_string())
    };
    assert_eq!(with(&|_| {}), Ok(()));
    assert_eq!(Config::default().check(), Ok(()), "a client needs nothing said");
    let net = |text: &str| -> IpNet { text.parse().unwrap() };
    let wrong = |change: &dyn Fn(&mut Server), word: &str| {
        let error = with(change).unwrap_err();
        assert!(error.contains(word), "{error}");
    };
    wrong(&|server| server.addresses.clear(), "needs an address");
    wrong(&|server| server.addresses.push(net("10.9.0.130/25")), "overlap");
    wrong(&|server| server.addresses[0] = net("10.9.0.0/24"), "stands for the network");
    wrong(&|server| server.clients.clear(), "nobody is let in");
    wrong(&|server| server.clients.push(server.clients[0].clone()), "two clients");
    let called = |name: &str, number| Client { name: Some(name.into()), ..Client::new(Fingerprint([number; 32])) };
    wrong(&|server| server.clients.extend([called("van", 2), called("van", 3)]), "two clients are called `van`");
    wrong(&|server| server.clients.push(called("01010101", 2)), "two clients are called `01010101`");
    for name in ["v\"an", "two\nlines", "back\\slash", "", "Büro"] {
        let said = format!("client {name:?}: a name is 1 to 64 letters");
        wrong(&|server| server.clients.push(called(name, 2)), &said);
    }
    let classes = [("a\"b".to_owned(), ClassSettings::default())].into();
    let error = Config { classes, ..Config::default() }.check().unwrap_err().to_string();
    assert!(error.contains("class \"a\\\"b\": a name is 1 to 64 letters"), "{error}");
    wrong(&|server| server.clients[0].address.push([10, 9, 0, 1].into()), "given to two");
    wrong(&|server| server.clients[0].address.push([10, 8, 0, 1].into()), "none of the server's");
    wrong(&|server| server.clients[0].networks.push(net("10.9.0.64/26")), "overlap");
    wrong(&|server| server.mtu = 1_279, "IPv6 needs 1280");
    let rules = vec![Rule { class: "x".into(), ..Rule::default() }];
    assert!(Config { rules, ..Config::default() }.check().unwrap_err().to_string().contains("rule 1"));
    let limits = Limits { flows: 4_096, ..Limits::default() };
    assert!(Config { limits, ..Config::default() }.check().unwrap_err().to_string().contains("limits.flows"));
}

#[test]
fn the_first_rule_that_holds_says_the_class() {
    let text = "
        [[rule]]
        class = 'voice'
        dscp = 'ef'
        [[rule]]
        class = 'names'
        protocol = 'udp'
        port = 53
        [[rule]]
        class = 'sctp'
        protocol = 132
        network = '192.0.2.0/24'
        [class.voice]
        deadline = '150ms'
        priority = 3
        [class.names]
        redundancy = 'duplicate'
        [class.sctp]
        ordered = true";
    #[derive(Deserialize)]
    struct File {
        rule: Vec<Rule>,
        class: BTreeMap<String, ClassSettings>,
    }
    let File { rule, class } = toml::from_str(text).unwrap();
    let config = Config { rules: rule, classes: class, ..Config::default() };
    assert_eq!(config.check(), Ok(()));
    let classes = Classes::of(&config);
    let tcp = Transport::Tcp { header: 20 };
    let of = |transport, protocol, ports, dscp| classes.classify(&packet(transport, protocol, ports, dscp)).clone();
    let voice = of(Transport::Udp, 17, Some((5_000, 5_001)), 46);
    assert_eq!((&*voice.class, voice.within, voice.priority), ("voice", Within::Time(Duration::from_millis(150)), 3));
    let names = of(Transport::Udp, 17, Some((5_000, 53)), 0);
    assert_eq!((&*names.class, names.redundancy, names.ordered), ("names", Some(Redundancy::Duplicate), false));
    assert_eq!(&*of(tcp, 6, Some((5_000, 53)), 0).class, "tcp");
    assert!(of(Transport::Other, 132, None, 0).ordered);
    let web = of(tcp, 6, Some((5_000, 80)), 0);
    assert_eq!((web.within, web.ordered), (Within::Patience, true));
    assert_eq!(of(Transport::Icmp, 1, None, 0).within, Within::Time(DEFAULT_DEADLINE));
}

#[test]
fn a_client_is_read() {
    let text = format!(
        "fingerprint = '{}'\nname = 'van'\naddress = ['10.9.0.7']\nnetworks = ['192.168.7.0/24']",
        "ab".repeat(32)
    );
    let client: Client = toml::from_str(&text).unwrap();
    assert_eq!((client.name(), client.address.len(), client.networks.len()), ("van".into(), 1, 1));
    assert_eq!(Client::new(Fingerprint([0xab; 32])).name(), "abababab");
    assert!(toml::from_str::<Client>("fingerprint = 'ab'").is_err());
    assert!(toml::from_str::<Rule>("class = 'x'\nprotocol = 'smtp'").unwrap_err().to_string().contains("no protocol"));
}
