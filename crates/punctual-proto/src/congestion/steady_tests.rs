//! Tests of [`Steady`] in virtual time: alone, beside its kind, and on paths that change, lose, drop and mark.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use noq_proto::congestion::Controller;

use super::{
    super::bottleneck::{Bottleneck, Path},
    Steady,
};

/// What UDP payload a path of [`Path::PLAIN`]'s rate carries, bytes per second.
const RATE: f64 = Path::PLAIN.rate;

fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn alone_it_has_all_of_the_path_and_hardly_a_queue() {
    let mut link = Bottleneck::new(Path::PLAIN, &[0.0]);
    link.run(1.0);
    let rate = link.run(20.0)[0];
    assert!(rate > 0.95 * RATE, "{rate}");
    assert!(link.wait_p95() < 0.006, "{}", link.wait_p95());
    assert_eq!(link.lost(), 0.0);
}

#[test]
fn flows_of_its_kind_come_to_share_alike() {
    for from in [&[0.0, 2.0][..], &[0.0, 0.3, 0.7, 1.5]] {
        let mut link = Bottleneck::new(Path { queue: 400e3, ..Path::PLAIN }, from);
        link.run(10.0);
        let rates = link.run(20.0);
        assert!(jain(&rates) > 0.9, "{rates:?}");
        assert!(rates.iter().sum::<f64>() > 0.9 * RATE, "{rates:?}");
        assert!(link.wait_p95() < 0.025, "{}", link.wait_p95());
    }
}

#[test]
fn a_path_that_loses_is_made_full_use_of() {
    for (percent, least) in [(1, 0.93), (10, 0.85), (20, 0.7)] {
        let mut link = Bottleneck::new(Path { loss_percent: percent, ..Path::PLAIN }, &[0.0]);
        link.run(5.0);
        let rate = link.run(20.0)[0];
        assert!(rate > least * (1.0 - percent as f64 / 100.0) * RATE, "{percent} %: {rate}");
    }
}

#[test]
fn under_a_policer_it_has_its_rate_and_does_not_run_away() {
    for loss_percent in [0, 1, 10] {
        let policed = 0.4 * RATE;
        let mut link = Bottleneck::new(Path { policer: Some((policed, 64e3)), loss_percent, ..Path::PLAIN }, &[0.0]);
        link.run(5.0);
        let rate = link.run(30.0)[0];
        let kept = 1.0 - loss_percent as f64 / 100.0;
        assert!(rate > 0.85 * kept * policed, "{loss_percent} %: {rate}");
        assert!(link.lost() < 0.1 + loss_percent as f64 / 100.0, "{loss_percent} %: {}", link.lost());
    }
}

#[test]
fn a_short_queue_costs_little() {
    let mut link = Bottleneck::new(Path { queue: 12e3, ..Path::PLAIN }, &[0.0]);
    link.run(2.0);
    let rate = link.run(20.0)[0];
    assert!(rate > 0.9 * RATE, "{rate}");
    assert!(link.lost() < 0.02, "{}", link.lost());
}

#[test]
fn a_path_that_becomes_longer_is_used_again() {
    let mut link = Bottleneck::new(Path::PLAIN, &[0.0]);
    link.run(5.0);
    link.path.rtt = Duration::from_millis(90);
    link.run(15.0);
    let rate = link.run(10.0)[0];
    assert!(rate > 0.9 * RATE, "{rate}");
    assert!(link.wait_p95() < 0.015, "{}", link.wait_p95());
    link.path.rtt = Duration::from_millis(40);
    link.run(2.0);
    let rate = link.run(10.0)[0];
    assert!(rate > 0.9 * RATE, "{rate}");
}

#[test]
fn a_path_that_becomes_slower_and_faster_is_followed() {
    let mut link = Bottleneck::new(Path::PLAIN, &[0.0]);
    link.run(5.0);
    link.path.rate = RATE / 4.0;
    link.run(1.0);
    let rate = link.run(4.0)[0];
    assert!(rate > 0.9 * RATE / 4.0, "{rate}");
    assert!(link.wait_p95() < 0.03, "{}", link.wait_p95());
    link.path.rate = RATE;
    link.run(1.5);
    let rate = link.run(5.0)[0];
    assert!(rate > 0.9 * RATE, "{rate}");
}

#[test]
fn marks_keep_the_queue_shorter_than_delay_alone_does() {
    let waits = |mark_above| {
        let mut link = Bottleneck::new(Path { mark_above, ..Path::PLAIN }, &[0.0, 0.5]);
        link.run(5.0);
        let rates = link.run(20.0);
        assert!(rates.iter().sum::<f64>() > 0.8 * RATE, "{rates:?}");
        link.waits.iter().sum::<f64>() / link.waits.len() as f64
    };
    let (with, without) = (waits(Some(0.002)), waits(None));
    assert!(with < without, "{with} {without}");
}

/// Four packets every 50 ms, less than the path carries, which then falls to a fifth: bursts of before must not be believed any more.
#[test]
fn a_path_that_falls_under_a_flow_with_little_to_send_is_known_at_once() {
    let (start, rtt, mtu) = (Instant::now(), Duration::from_millis(60), 1_200);
    let mut steady = Steady::new(12_000, mtu, start);
    let (mut free, mut pn, mut in_flight) = (Duration::ZERO, 0, 0);
    let mut answers = VecDeque::new();
    let answer =
        |steady: &mut Steady, in_flight: &mut u64, answers: &mut VecDeque<(Duration, Duration, u64)>, until| {
            while let Some((at, sent, pn)) = answers.front().copied().filter(|(at, ..)| *at <= until) {
                answers.pop_front();
                *in_flight -= u64::from(mtu);
                steady.acked(start + at, start + sent, u64::from(mtu), pn, true);
                steady.on_end_acks(start + at, *in_flight, true, Some(pn));
            }
        };
    let mut told = Vec::new();
    for burst in 0..120 {
        let now = Duration::from_millis(50) * burst;
        let rate = if burst < 80 { 250e3 } else { 50e3 };
        answer(&mut steady, &mut in_flight, &mut answers, now);
        for _ in 0..4 {
            if in_flight + u64::from(mtu) <= steady.window() {
                steady.on_packet_sent(start + now, mtu, pn);
                in_flight += u64::from(mtu);
                free = free.max(now) + Duration::from_secs_f64(f64::from(mtu) / rate);
                answers.push_back((free + rtt, now, pn));
                pn += 1;
            }
        }
        told.push(steady.metrics().bandwidth_estimate.unwrap_or_default() as f64 / 8.0);
    }
    assert!(told[79] > 150e3, "{}", told[79]);
    // Twelve bursts are ten round trips. It believes in four packets a round trip at least.
    assert!(told[92..].iter().all(|told| *told < 100e3), "{:?}", &told[80..]);
}
