//! Completion times are right though the hosts' clocks are not.

mod common;

use std::time::Duration;

use common::*;
use punctual_proto::Block;
use punctual_sim::{HostClock, LinkSpec, Schedule};

const TOLERANCE: Duration = ms(2);

/// The receiver may not know completion times before the clocks have been compared; this long it has for that.
const LEARNING: Duration = ms(1_000);

fn completion_times_are_right(links: Vec<LinkSpec>, client: HostClock, server: HostClock, seconds: u64) {
    let source = Source::new(Block::new(vec![7; 6_000]).deadline(ms(200)), ms(50), 20 * seconds);
    let mut pair = Setup { clocks: [client, server], ..Setup::new(links) }.connect(source);
    pair.world.run_for(Duration::from_secs(seconds + 1));
    let (source, sink) = (pair.source(), pair.sink());
    assert_eq!(source.outcomes.len() as u64, 20 * seconds);
    let (mut delivered, mut worst) = (0, [(Duration::ZERO, Duration::ZERO); 2]);
    for (id, delivery) in source.deliveries() {
        let sent = source.sent[&id];
        let (received, believed) = sink.received[&id];
        let truth = received - sent;
        let after = sent - pair.start;
        let mut compare = |end: usize, believed: Duration| {
            worst[end] = worst[end].max((believed.abs_diff(truth), after));
        };
        compare(0, delivery.completion);
        match believed {
            Some(believed) => compare(1, believed),
            None => assert!(after < LEARNING, "the receiver knows no completion time after {after:?}"),
        }
        delivered += 1;
    }
    assert_eq!(delivered, 20 * seconds, "all delivered");
    assert!(
        worst.iter().all(|(error, _)| *error <= TOLERANCE),
        "worst errors of sender and receiver, and when: {worst:?} with {client:?} {server:?}"
    );
}

fn ahead(hours: u64, drift_ppm: f64) -> HostClock {
    HostClock::ahead(Duration::from_secs(hours * 3600)).drift_ppm(drift_ppm)
}

#[test]
fn three_hours_apart_and_drifting() {
    for (client, server) in [
        (ahead(0, 0.0), ahead(3, 0.0)),
        (ahead(0, 100.0), ahead(3, -100.0)),
        (ahead(3, 100.0), ahead(0, -100.0)),
        (ahead(3, -100.0), ahead(0, 100.0)),
    ] {
        completion_times_are_right(vec![dmtp_link(); 2], client, server, 60);
    }
}

#[test]
fn over_unequal_paths() {
    let links = vec![LinkSpec::new(15.0, ms(20)), LinkSpec::new(5.0, ms(80))];
    completion_times_are_right(links, ahead(0, 100.0), ahead(3, -100.0), 60);
}

#[test]
fn while_the_delay_steps() {
    let delay = Schedule::fixed(ms(30)).then(ms(15_000), ms(70)).then(ms(30_000), ms(20)).then(ms(40_000), ms(60));
    let links = vec![LinkSpec::new(15.0, ms(30)).delay(delay)];
    completion_times_are_right(links, ahead(0, -100.0), ahead(3, 100.0), 60);
}
