//! Hosts that run something else than Punctual, and traffic that belongs to no host.

mod common;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use common::{Pair, Setup, dmtp_link, dmtp_source, ms};
use punctual_proto::{EcnCodepoint, NetworkPath, Transmit};
use punctual_sim::{
    CrossTraffic, HandshakeError, HostId, LinkCounters, LinkSpec, LogMode, Loss, Moment, Node, PathHandle, Stuck, World,
};

/// Sends a numbered datagram at even intervals, and notes when its echo came.
struct Pinger {
    path: Option<NetworkPath>,
    interval: Duration,
    bytes: usize,
    next: Option<Instant>,
    due: bool,
    sent: Vec<Duration>,
    echoes: Vec<(u64, Duration)>,
    ready: bool,
}

impl Pinger {
    fn new(interval: Duration, bytes: usize) -> Self {
        let (sent, echoes) = (Vec::new(), Vec::new());
        Self { path: None, interval, bytes, next: None, due: false, sent, echoes, ready: true }
    }
}

impl Node for Pinger {
    fn handle_datagram(&mut self, at: Moment, path: NetworkPath, _: Option<EcnCodepoint>, data: BytesMut) {
        assert_eq!(Some(path), self.path);
        self.echoes.push((u64::from_be_bytes(data[..8].try_into().unwrap()), at.now));
    }

    fn poll_transmit(&mut self, at: Moment, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        buf.extend_from_slice(&(self.sent.len() as u64).to_be_bytes());
        buf.resize(self.bytes, 0);
        self.sent.push(at.now);
        Some(Transmit { path: self.path?, size: self.bytes, ecn: None })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    fn handle_timeout(&mut self, at: Moment) {
        assert_eq!(self.next, Some(at.instant), "woken when it is time");
        (self.due, self.next) = (true, Some(at.instant + self.interval));
    }

    fn is_ready(&self) -> bool {
        self.ready
    }

    fn begin(&mut self, at: Moment) {
        self.next = Some(at.instant);
    }
}

/// Sends back what comes.
#[derive(Default)]
struct Echo(VecDeque<(NetworkPath, BytesMut)>);

impl Node for Echo {
    fn handle_datagram(&mut self, _: Moment, path: NetworkPath, _: Option<EcnCodepoint>, data: BytesMut) {
        self.0.push_back((path, data));
    }

    fn poll_transmit(&mut self, _: Moment, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (path, data) = self.0.pop_front()?;
        buf.extend_from_slice(&data);
        Some(Transmit { path, size: data.len(), ecn: None })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Moment) {}
}

fn echoing(link: LinkSpec, interval: Duration, bytes: usize) -> (World, HostId, PathHandle) {
    let mut world = World::new(3).with_log(LogMode::Full);
    let pinger = world.add_node(Pinger::new(interval, bytes));
    let echo = world.add_node(Echo::default());
    let path = world.add_path(pinger, echo, link.clone(), link);
    let network_path = world.network_path(path, pinger);
    world.node_mut::<Pinger>(pinger).unwrap().path = Some(network_path);
    (world, pinger, path)
}

#[test]
fn an_echo_takes_a_round_trip() {
    let (mut world, pinger, _) = echoing(LinkSpec::unlimited(ms(20)), ms(10), 100);
    let start = world.handshake().unwrap();
    world.run_for(ms(995));
    let node = world.node::<Pinger>(pinger).unwrap();
    assert_eq!(node.sent, (0..100).map(|i| start + ms(10) * i).collect::<Vec<_>>());
    assert_eq!(node.echoes, (0..96).map(|i| (i, start + ms(10) * i as u32 + ms(40))).collect::<Vec<_>>());
    assert!(world.node::<Echo>(pinger).is_none(), "the other is the echo");
}

#[test]
fn a_handshake_waits_for_nodes() {
    let (mut world, pinger, _) = echoing(LinkSpec::unlimited(ms(20)), ms(10), 100);
    world.node_mut::<Pinger>(pinger).unwrap().ready = false;
    world.at(ms(3_500), move |world| world.node_mut::<Pinger>(pinger).unwrap().ready = true);
    assert_eq!(world.handshake(), Ok(ms(5_000)));
    let (mut world, pinger, _) = echoing(LinkSpec::unlimited(ms(20)), ms(10), 100);
    world.node_mut::<Pinger>(pinger).unwrap().ready = false;
    assert_eq!(world.handshake(), Err(HandshakeError::TimedOut));
}

/// Wants to be woken now, whenever that is; or sends for ever.
struct Lost {
    path: NetworkPath,
    from: Option<Instant>,
    sends: bool,
}

impl Node for Lost {
    fn handle_datagram(&mut self, _: Moment, _: NetworkPath, _: Option<EcnCodepoint>, _: BytesMut) {}

    fn poll_transmit(&mut self, at: Moment, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.from.filter(|from| self.sends && at.instant >= *from)?;
        buf.extend([0; 10]);
        Some(Transmit { path: self.path, size: 10, ecn: None })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.from
    }

    fn handle_timeout(&mut self, _: Moment) {}

    fn begin(&mut self, at: Moment) {
        self.from = Some(at.instant + ms(30));
    }
}

#[test]
fn a_world_notices_that_time_stands_still() {
    for sends in [false, true] {
        let (mut world, pinger, _) = echoing(LinkSpec::unlimited(ms(20)), ms(10), 3);
        let path = world.network_path(PathHandle(0), pinger);
        let lost = world.add_node(Lost { path, from: None, sends });
        let start = world.handshake().unwrap();
        assert_eq!(world.try_run_until(start + ms(29)), Ok(()));
        let stuck = Stuck::Host { host: lost, at: start + ms(30) };
        assert_eq!(world.try_run_until(start + ms(100)), Err(stuck));
        assert_eq!((world.now(), world.try_step()), (start + ms(30), Err(stuck)), "it goes on being stuck");
    }
}

#[test]
fn a_world_has_only_as_many_events_as_it_may() {
    let count = |most: u64| {
        let mut world = World::new(1).with_most_events(most);
        (0..10).for_each(|n| world.at(ms(n), |_| ()));
        (world.try_run_until(ms(100)), world.events())
    };
    assert_eq!(count(10), (Ok(()), 10));
    assert_eq!(count(9), (Err(Stuck::Events { events: 9, at: ms(9) }), 10));
}

#[test]
fn a_node_shares_a_world_with_punctual() {
    let mut pair: Pair = Setup::new(vec![dmtp_link()]).prepare(dmtp_source(1));
    let pinger = pair.world.add_node(Pinger::new(ms(10), 100));
    let echo = pair.world.add_node(Echo::default());
    let (there, back) = pair.world.path_links(pair.paths[0]);
    let (there, back) = (there.to_vec(), back.to_vec());
    let path = pair.world.join(pinger, echo, &there, &back);
    let network_path = pair.world.network_path(path, pinger);
    pair.world.node_mut::<Pinger>(pinger).unwrap().path = Some(network_path);
    pair.begin();
    pair.world.run_for(ms(2_000));
    assert_eq!(pair.late(), []);
    assert!(!pair.source().sent.is_empty());
    assert!(pair.world.node::<Pinger>(pinger).unwrap().echoes.len() > 180);
    assert!(pair.world.take_events(pinger).is_empty());
    assert_eq!(pair.world.sessions(pinger), 0);
}

/// 20 s of a 10 Mbit/s link with 100 ms of queue, for a pinger that asks for `mbps` of it, headers included.
fn beside(traffic: CrossTraffic, mbps: f64) -> LinkCounters {
    let interval = Duration::from_secs_f64(1_250.0 * 8.0 / (mbps * 1e6));
    let (mut world, _, path) = echoing(LinkSpec::new(10.0, ms(10)).queue(125_000), interval, 1_222);
    let link = world.path_links(path).0[0];
    world.add_cross_traffic(link, traffic);
    world.handshake().unwrap();
    world.run_for(Duration::from_secs(20));
    *world.counters(link)
}

#[test]
fn cross_traffic_leaves_the_rest() {
    let bursts = CrossTraffic::bursts(8.0, ms(10), ms(30));
    for (traffic, mean) in [
        (CrossTraffic::constant(3.0).packet(1_250), 3.0),
        (CrossTraffic::poisson(5.0).packet(500), 5.0),
        (bursts, 2.0),
        (CrossTraffic::constant(0.0), 0.0),
    ] {
        let within = beside(traffic, (10.0 - mean) * 0.9);
        assert_eq!((within.dropped(), within.cross.dropped), (0, 0), "{traffic:?}");
        let asked = within.cross.offered_bytes as f64 * 8.0 / 20.0 / 1e6;
        assert!((asked - mean).abs() <= 0.1 * mean, "{traffic:?}: {asked}");
        let beyond = beside(traffic, (10.0 - mean) * 1.3);
        assert!(beyond.dropped() > 0);
        let carried = (beyond.delivered * 1_250 + beyond.cross.carried_bytes) as f64 * 8.0 / 20.0 / 1e6;
        assert!((carried / 10.0 - 1.0).abs() < 0.01, "{traffic:?}: the link is full: {carried}");
    }
}

#[test]
fn cross_traffic_is_lost_and_stops_like_any_other() {
    let mut world = World::new(4).with_log(LogMode::Full);
    let (a, b) = (world.add_node(Echo::default()), world.add_node(Echo::default()));
    let link = LinkSpec::new(10.0, ms(10)).loss(Loss::Bernoulli(0.2));
    let path = world.add_path(a, b, link.clone(), link);
    let link = world.path_links(path).0[0];
    world.add_cross_traffic(link, CrossTraffic::constant(12.0).packet(1_200).from(ms(500)).until(ms(2_500)));
    let start = world.handshake().unwrap();
    world.run_until(start + ms(499));
    assert_eq!(world.counters(link).cross.offered, 0);
    world.run_until(start + ms(1_500));
    world.kill_link(link);
    world.run_until(start + ms(4_000));
    let cross = world.counters(link).cross;
    assert_eq!(cross.offered, 2_500);
    assert_eq!(cross.offered, cross.carried + cross.dropped);
    // Of a second, 10/12 fits through the rate, and 80 % of that is not lost.
    assert!((cross.carried as f64 / (1_250.0 * 10.0 / 12.0 * 0.8) - 1.0).abs() < 0.05, "{cross:?}");
    assert_eq!((world.counters(link).offered, world.counters(link).dropped()), (0, 0));
    assert!(world.log().records().is_empty());
}

#[test]
fn others_repeat_too() {
    let run = |seed, traffic: Option<CrossTraffic>| {
        let mut pair = Setup { seed, log: LogMode::Hash, ..Setup::new(vec![dmtp_link()]) }.prepare(dmtp_source(2));
        let link = pair.world.path_links(pair.paths[0]).0[0];
        traffic.into_iter().for_each(|traffic| pair.world.add_cross_traffic(link, traffic));
        pair.begin();
        pair.world.run_for(ms(3_000));
        pair.world.log().hash()
    };
    let bursts = CrossTraffic::bursts(12.0, ms(100), ms(100));
    assert_eq!(run(5, Some(bursts)), run(5, Some(bursts)));
    assert_ne!(run(5, Some(bursts)), run(6, Some(bursts)));
    assert_ne!(run(5, Some(bursts)), run(5, None));
    let node = || {
        let (mut world, ..) = echoing(dmtp_link().loss(Loss::Bernoulli(0.1)), ms(1), 1_200);
        world.handshake().unwrap();
        world.run_for(ms(2_000));
        world.log().hash()
    };
    assert_eq!(node(), node());
}
