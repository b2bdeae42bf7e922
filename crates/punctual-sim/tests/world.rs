//! Worlds as such: handshakes, shared links, several hosts, sessions without a rehearsed handshake.

mod common;

use common::*;
use punctual_proto::{Block, Event, Outcome, SessionId};
use punctual_sim::{App, AppContext, HandshakeError, HostConfig, LinkSpec, LogMode, Loss, World, tls};

/// How the blocks of a host without an application ended.
fn outcomes(world: &mut World, host: punctual_sim::HostId) -> Vec<Outcome> {
    let events = world.take_events(host).into_iter();
    events
        .filter_map(|(.., event)| if let Event::Outcome { outcome, .. } = event { Some(outcome) } else { None })
        .collect()
}

#[test]
fn the_measured_run_begins_at_a_whole_second_with_clean_counters() {
    // A link so slow and lossy that no handshake would come through it in time.
    let link = LinkSpec::new(0.001, ms(250)).loss(Loss::Bernoulli(0.9));
    let mut world = World::new(1).with_log(LogMode::Full);
    let client = world.add_host(HostConfig::new());
    let server = world.add_host(HostConfig::new().server(tls::server_config()));
    let path = world.add_path(client, server, link.clone(), link);
    let connection = world.connect(client, &tls::client_config(), &[path]).unwrap();
    let start = world.handshake().unwrap();
    assert_eq!((start.subsec_nanos(), world.now()), (0, start));
    assert!(start <= ms(5_000), "{start:?}");
    assert!(world.server(connection).is_some());
    let connected = |events: Vec<(_, _, Event)>| {
        events
            .iter()
            .filter(|(at, _, event)| *at == start && matches!(event, Event::Connected { punctual: true }))
            .count()
    };
    assert_eq!(connected(world.take_events(client)), 1);
    assert_eq!(connected(world.take_events(server)), 1);
    assert!(world.log().records().iter().all(|record| record.at >= start));
    let (there, back) = world.path_links(path);
    for link in [there[0], back[0]] {
        assert_eq!(world.counters(link).delivered, 0);
        assert_eq!(world.counters(link).offered, world.link(link).inside());
    }
}

/// Takes the blocks of any number of sessions.
struct Taker;

impl App for Taker {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        if event == Event::Readable {
            while cx.recv(session).is_some() {}
        }
    }
}

#[test]
fn several_clients_share_a_link() {
    let mut world = World::new(2);
    let server = world.add_host(HostConfig::new().server(tls::server_config()).app(Taker));
    let bottleneck = world.add_link(LinkSpec::new(10.0, ms(10)));
    let mut clients = Vec::new();
    for delay in [5, 30] {
        let client = world.add_host(HostConfig::new());
        let access = world.add_link(LinkSpec::new(100.0, ms(delay)));
        let back = world.add_link(LinkSpec::unlimited(ms(delay + 10)));
        let path = world.join(client, server, &[access, bottleneck], &[back]);
        let connection = world.connect(client, &tls::client_config(), &[path]).unwrap();
        clients.push((client, connection, access));
    }
    world.handshake().unwrap();
    for (client, connection, _) in &clients {
        let (_, session) = world.client(*connection);
        world.enter(*client, |cx| cx.send(session, Block::new(vec![0; 50_000]))).unwrap();
    }
    world.run_for(ms(3_000));
    let mut through = 0;
    for (client, _, access) in clients {
        assert!(matches!(outcomes(&mut world, client)[..], [Outcome::Delivered(_)]));
        through += world.counters(access).delivered;
    }
    assert_eq!(world.counters(bottleneck).offered, through);
}

#[test]
fn without_a_rehearsal_the_handshake_meets_the_real_links() {
    let link = LinkSpec::new(1.0, ms(50)).loss(Loss::Bernoulli(0.1));
    let mut world = World::new(3);
    let client = world.add_host(HostConfig::new());
    let server = world.add_host(HostConfig::new().server(tls::server_config()).app(Sink::default()));
    let path = world.add_path(client, server, link.clone(), link);
    let connection = world.connect(client, &tls::client_config(), &[path]).unwrap();
    let (_, session) = world.client(connection);
    world.enter(client, |cx| cx.send(session, Block::new(vec![0; 10_000]))).unwrap();
    world.run_until(ms(10_000));
    let (there, _) = world.path_links(path);
    assert!(world.counters(there[0]).lost > 0);
    assert!(matches!(outcomes(&mut world, client)[..], [Outcome::Delivered(_)]));
}

#[test]
fn a_handshake_that_cannot_be_fails() {
    let mut world = World::new(4);
    let client = world.add_host(HostConfig::new());
    let server = world.add_host(HostConfig::new().server(tls::server_config()));
    let path = world.add_path(client, server, LinkSpec::unlimited(ms(5)), LinkSpec::unlimited(ms(5)));
    world.connect(client, &tls::client_config(), &[path]).unwrap();
    world.kill_path(path);
    assert!(matches!(world.handshake(), Err(HandshakeError::Closed(..) | HandshakeError::TimedOut)));
}

#[test]
fn closing_frees_both_ends() {
    let mut world = World::new(5);
    let client = world.add_host(HostConfig::new());
    let server = world.add_host(HostConfig::new().server(tls::server_config()));
    let path = world.add_path(client, server, dmtp_link(), dmtp_link());
    let connection = world.connect(client, &tls::client_config(), &[path]).unwrap();
    world.handshake().unwrap();
    let (_, session) = world.client(connection);
    world.enter(client, |cx| cx.close(session, 0, "enough"));
    world.run_for(ms(5_000));
    assert_eq!((world.sessions(client), world.sessions(server)), (0, 0));
    assert!(matches!(world.take_events(server).last(), Some((.., Event::Closed(_)))));
}

#[test]
fn actions_happen_in_the_order_of_time() {
    let mut world = World::new(6);
    let [a, b] = [(); 2].map(|()| world.add_host(HostConfig::new()));
    let path = world.add_path(a, b, dmtp_link(), dmtp_link());
    assert_eq!(world.path_ends(path), (a, b));
    assert_ne!(world.network_path(path, a).remote, world.network_path(path, b).remote);
    let actions = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    for time in [5, 1, 3] {
        let actions = actions.clone();
        world.at(ms(time), move |world| actions.borrow_mut().push(world.now()));
    }
    world.run_until(ms(4));
    assert_eq!(*actions.borrow(), [ms(1), ms(3)]);
    assert_eq!(world.now(), ms(4));
}
