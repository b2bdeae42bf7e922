//! Tests of [`Link`]: each impairment by itself, then all of them together.

use proptest::prelude::*;

use super::*;
use crate::{
    loss::Loss,
    policer::Policer,
    schedule::Schedule,
    spec::{Corruption, Jitter, Queue},
    trace::Opportunities,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn packet(bytes: usize, tag: u64) -> Datagram {
    Datagram { data: BytesMut::zeroed(bytes), ecn: Some(EcnCodepoint::Ect0), tag }
}

/// Everything that arrives until nothing is under way: when, and the tag.
fn drain(link: &mut Link) -> Vec<(Duration, Datagram)> {
    let mut arrived = Vec::new();
    while let Some(due) = link.poll_timeout() {
        while let Some(datagram) = link.poll(due) {
            arrived.push((due, datagram));
        }
    }
    arrived
}

/// Offers `n` packets of 1,222 bytes (1,250 with headers) every `interval`, and returns what arrives.
fn offer_all(link: &mut Link, n: u64, interval: Duration) -> Vec<(Duration, Datagram)> {
    let mut arrived = Vec::new();
    for tag in 0..n {
        let now = interval * tag as u32;
        while let Some(due) = link.poll_timeout().filter(|due| *due <= now) {
            while let Some(datagram) = link.poll(due) {
                arrived.push((due, datagram));
            }
        }
        link.offer(now, packet(1222, tag));
    }
    arrived.extend(drain(link));
    arrived
}

fn tags(arrived: &[(Duration, Datagram)]) -> Vec<u64> {
    arrived.iter().map(|(_, datagram)| datagram.tag).collect()
}

fn balanced(link: &Link) -> bool {
    let c = link.counters();
    c.offered + c.duplicated == c.delivered + c.dropped() + link.inside()
}

#[test]
fn rate_and_delay_are_exact() {
    // 1,250 bytes at 12 Mbit/s: 833,333.3 ns each.
    let mut link = Link::new(LinkSpec::new(12.0, ms(60)).queue(u64::MAX), 1);
    let arrived = offer_all(&mut link, 12_000, Duration::ZERO);
    assert_eq!(arrived.len(), 12_000);
    assert_eq!(arrived[0].0, ms(60) + Duration::from_nanos(833_334));
    assert_eq!(arrived[2].0, ms(60) + Duration::from_nanos(2_500_000));
    assert_eq!(arrived[11_999].0, ms(60) + Duration::from_secs(10));
}

#[test]
fn a_full_queue_drops_the_tail() {
    // The bandwidth-delay product of 10 Mbit/s and 2 × 24 ms is 60,000 bytes: 48 packets.
    let mut link = Link::new(LinkSpec::new(10.0, ms(24)), 1);
    assert_eq!(link.spec().queue_limit(), 60_000);
    let arrived = offer_all(&mut link, 100, Duration::ZERO);
    assert_eq!(tags(&arrived), (0..48).collect::<Vec<_>>());
    assert_eq!(link.counters().overflowed, 52);
    assert_eq!(link.counters().queue_max, 60_000);
    // Short links get 20 packets, and the smallest queue holds one.
    assert_eq!(LinkSpec::new(2.0, ms(2)).queue_limit(), Queue::SHORTEST);
    assert_eq!(offer_all(&mut Link::new(LinkSpec::new(1.0, ms(1)).queue(0), 1), 3, Duration::ZERO).len(), 1);
}

#[test]
fn the_mtu_counts_headers() {
    let mut link = Link::new(LinkSpec::unlimited(ms(1)), 1);
    link.offer(ms(0), packet(1472, 0));
    link.offer(ms(0), packet(1473, 1));
    assert_eq!(tags(&drain(&mut link)), [0]);
    assert_eq!(link.counters().oversized, 1);
}

#[test]
fn jitter_keeps_the_order() {
    for jitter in
        [Jitter::Uniform(ms(40)), Jitter::Exponential(ms(20)), Jitter::Normal { mean: ms(20), deviation: ms(5) }]
    {
        let mut link = Link::new(LinkSpec::unlimited(ms(10)).jitter(jitter), 1);
        let arrived = offer_all(&mut link, 2_000, ms(100));
        assert_eq!(tags(&arrived), (0..2_000).collect::<Vec<_>>());
        let extra: Duration = arrived.iter().map(|(at, datagram)| *at - ms(100) * datagram.tag as u32 - ms(10)).sum();
        let mean = extra.as_secs_f64() / 2_000.0;
        assert!((mean - 0.02).abs() < 0.0015, "{jitter:?} {mean}");
        // Packets closer together than the jitter still do not overtake each other.
        let mut link = Link::new(LinkSpec::unlimited(ms(10)).jitter(jitter), 1);
        assert_eq!(tags(&offer_all(&mut link, 2_000, ms(1))), (0..2_000).collect::<Vec<_>>());
    }
}

#[test]
fn a_shorter_delay_does_not_reorder() {
    let delay = Schedule::fixed(ms(100)).then(ms(50), ms(10));
    let mut link = Link::new(LinkSpec::default().delay(delay), 1);
    let arrived = offer_all(&mut link, 20, ms(5));
    assert_eq!(tags(&arrived), (0..20).collect::<Vec<_>>());
    assert_eq!(arrived[9].0, ms(145));
    assert_eq!(arrived[10].0, ms(145));
}

#[test]
fn reordered_packets_are_overtaken() {
    let mut link = Link::new(LinkSpec::unlimited(ms(10)).reordering(0.1, ms(7)), 1);
    let arrived = offer_all(&mut link, 10_000, ms(2));
    let late = arrived.iter().filter(|(at, datagram)| *at == ms(17) + ms(2) * datagram.tag as u32).count();
    assert_eq!(arrived.len(), 10_000);
    assert_eq!(late as u64, link.counters().reordered);
    assert!((900..1100).contains(&late), "{late}");
    assert!(!arrived.is_sorted_by_key(|(_, datagram)| datagram.tag));
}

#[test]
fn duplicates_are_counted() {
    let mut link = Link::new(LinkSpec::unlimited(ms(10)).duplication(0.2), 1);
    let arrived = offer_all(&mut link, 5_000, ms(1));
    assert_eq!(arrived.len() as u64, 5_000 + link.counters().duplicated);
    assert!((900..1100).contains(&link.counters().duplicated));
    assert!(balanced(&link));
}

#[test]
fn corruption_flips_one_bit() {
    for site in [CorruptionSite::Tag, CorruptionSite::Anywhere] {
        let corruption = Corruption { probability: 0.3, site };
        let mut link = Link::new(LinkSpec { corruption, ..LinkSpec::unlimited(ms(10)) }, 1);
        let arrived = offer_all(&mut link, 5_000, ms(1));
        let mut damaged = 0;
        for (_, datagram) in &arrived {
            let ones: u32 = datagram.data.iter().map(|byte| byte.count_ones()).sum();
            assert!(ones <= 1);
            damaged += u64::from(ones);
            let intact = datagram.data.len() - 16;
            assert!(site == CorruptionSite::Anywhere || datagram.data[..intact].iter().all(|byte| *byte == 0));
        }
        assert_eq!(damaged, link.counters().damaged);
        assert!((1400..1600).contains(&damaged), "{damaged}");
    }
}

#[test]
fn loss_is_as_scheduled() {
    let loss = Schedule::fixed(Loss::None).then(ms(5_000), Loss::Bernoulli(0.1)).then(ms(10_000), Loss::None);
    let mut link = Link::new(LinkSpec::unlimited(ms(10)).loss(loss), 1);
    let arrived = offer_all(&mut link, 15_000, ms(1));
    let missing: Vec<_> = {
        let seen: std::collections::BTreeSet<_> = tags(&arrived).into_iter().collect();
        (0..15_000).filter(|tag| !seen.contains(tag)).collect()
    };
    assert!(missing.iter().all(|tag| (5_000..10_000).contains(tag)));
    assert!((430..570).contains(&missing.len()), "{}", missing.len());
}

#[test]
fn a_policer_drops_what_is_too_much_and_delays_nothing() {
    // 10 Mbit/s are offered for a second, 5 and ten packets pass.
    let mut link = Link::new(LinkSpec::new(100.0, ms(50)).policer(5_000_000, 12_500), 1);
    let arrived = offer_all(&mut link, 1000, ms(1));
    assert_eq!(arrived.len(), 509);
    assert_eq!(link.counters().policed, 491);
    let sent = |tag: u64| ms(1) * tag as u32;
    assert!(arrived.iter().all(|(at, d)| *at == sent(d.tag) + ms(50) + Duration::from_micros(100)));
    assert!(balanced(&link));
}

#[test]
fn ecn_marks_above_the_threshold() {
    let mut link = Link::new(LinkSpec::new(10.0, ms(50)).ecn_threshold(12_500), 1);
    let arrived = offer_all(&mut link, 30, Duration::ZERO);
    let marked: Vec<_> = arrived.iter().filter(|(_, d)| d.ecn == Some(EcnCodepoint::Ce)).map(|(_, d)| d.tag).collect();
    // The first eleven find at most ten queued.
    assert_eq!(marked, (11..30).collect::<Vec<_>>());
    assert_eq!(link.counters().marked, 19);

    let mut link = Link::new(LinkSpec::new(10.0, ms(50)).ecn_threshold(0), 1);
    for tag in 0..3 {
        link.offer(ms(0), Datagram { ecn: None, ..packet(100, tag) });
    }
    assert!(drain(&mut link).iter().all(|(_, d)| d.ecn.is_none()), "not asked for, not marked");
}

#[test]
fn death_takes_what_is_inside() {
    // A packet a millisecond; at 20.5 ms, 20 are on the wire or arrived (10 ms of it) and the rest of 40 queued.
    let mut link = Link::new(LinkSpec::new(10.0, ms(10)).queue(u64::MAX), 1);
    for tag in 0..40 {
        link.offer(ms(0), packet(1222, tag));
    }
    let mut arrived = Vec::new();
    while let Some(due) = link.poll_timeout().filter(|due| *due <= ms(20)) {
        arrived.extend(link.poll(due));
    }
    assert_eq!(arrived.len(), 10);
    link.kill(Duration::from_micros(20_500));
    assert_eq!(link.counters().died, 30);
    assert_eq!(link.poll_timeout(), None);
    link.offer(ms(30), packet(10, 40));
    assert_eq!(link.counters().died, 31);
    link.revive();
    link.offer(ms(40), packet(1222, 41));
    let after = drain(&mut link);
    assert_eq!((after[0].0, after[0].1.tag), (ms(51), 41));
    assert!(balanced(&link));
}

#[test]
fn the_specification_may_change_while_packets_wait() {
    let mut link = Link::new(LinkSpec::new(10.0, ms(0)).queue(u64::MAX), 1);
    for tag in 0..4 {
        link.offer(ms(0), packet(1222, tag));
    }
    // Half of the second is sent at 1.5 ms; the rest goes ten times as slow.
    link.update(Duration::from_micros(1_500), |spec| spec.rate = Rate::mbps(1.0));
    let arrived: Vec<_> = drain(&mut link).into_iter().map(|(at, _)| at).collect();
    assert_eq!(
        arrived,
        [ms(1), Duration::from_micros(6_500), Duration::from_micros(16_500), Duration::from_micros(26_500)]
    );
}

#[test]
fn a_rate_of_zero_waits_for_another() {
    let mut link = Link::new(LinkSpec::new(0.0, ms(5)), 1);
    link.offer(ms(0), packet(1222, 0));
    assert_eq!(link.poll_timeout(), None);
    link.update(ms(100), |spec| spec.rate = Rate::mbps(10.0));
    assert_eq!(drain(&mut link)[0].0, ms(106));
    link.offer(ms(200), packet(1222, 0));
    link.update(ms(200), |spec| spec.rate = Rate::Unlimited);
    assert_eq!(drain(&mut link)[0].0, ms(205));
}

#[test]
fn a_trace_drives_a_link_over_its_end() {
    // Each second: two packets' worth at 100 ms, one at 1000 ms.
    let trace = Opportunities::parse("100\n100\n1000\n").unwrap();
    let spec = LinkSpec::unlimited(ms(20)).rate(Rate::Trace(trace)).queue(u64::MAX);
    let mut link = Link::new(spec, 1);
    for tag in 0..7 {
        link.offer(ms(0), packet(1476, tag));
    }
    // 1,476 + 28 = 1,504: one an opportunity; but the MTU.
    assert_eq!(link.counters().oversized, 7);
    link.update(ms(0), |spec| spec.mtu = 1504);
    for tag in 0..7 {
        link.offer(ms(0), packet(1476, tag));
    }
    let times: Vec<_> = drain(&mut link).iter().map(|(at, _)| at.as_millis()).collect();
    assert_eq!(times, [120, 120, 1020, 1120, 1120, 2020, 2120]);
}

#[test]
fn an_ideal_link_only_delays() {
    let spec = LinkSpec::new(1.0, ms(30)).loss(Loss::Bernoulli(1.0)).jitter(Jitter::Uniform(ms(9))).queue(0);
    let mut link = Link::new(spec, 1);
    link.make_ideal();
    for tag in 0..5 {
        link.offer(ms(1), packet(1222, tag));
    }
    link.offer(ms(1), packet(9000, 5));
    let arrived = drain(&mut link);
    assert_eq!(tags(&arrived), [0, 1, 2, 3, 4]);
    assert!(arrived.iter().all(|(at, _)| *at == ms(31)));
    link.offer(ms(40), packet(1222, 6));
    link.shape(ms(50));
    assert_eq!((link.counters().offered, link.inside()), (1, 1));
    link.offer(ms(50), packet(1222, 7));
    assert_eq!(tags(&drain(&mut link)), [6]);
    assert!(balanced(&link));
}

#[test]
fn records_tell_the_whole_story() {
    let mut link = Link::new(LinkSpec::unlimited(ms(5)).loss(Loss::Bernoulli(1.0)), 1);
    link.set_recording(true);
    link.offer(ms(1), packet(100, 0));
    link.update(ms(1), |spec| spec.loss = Loss::None.into());
    link.offer(ms(2), packet(200, 1));
    drain(&mut link);
    let records: Vec<_> = link.take_records().collect();
    let expected = [
        (ms(1), LinkEvent::Offered, 100),
        (ms(1), LinkEvent::Dropped(DropCause::Loss), 100),
        (ms(2), LinkEvent::Offered, 200),
        (ms(7), LinkEvent::Delivered, 200),
    ];
    assert_eq!(records, expected);
}

fn any_rate() -> impl Strategy<Value = Rate> {
    let steps = proptest::collection::vec((0..2_000u64, 0..20_000_000u64), 1..5).prop_map(|steps| {
        let schedule = steps.iter().fold(Schedule::fixed(1_000_000), |s, (at, rate)| s.then(ms(*at), *rate));
        Rate::Steps(schedule.repeat_every(ms(2_500)))
    });
    let trace = proptest::collection::vec(0..100u64, 1..50).prop_map(|gaps| {
        let mut time = 1;
        let lines: String = gaps
            .iter()
            .map(|gap| {
                time += gap;
                format!("{time}\n")
            })
            .collect();
        Rate::Trace(Opportunities::parse(&lines).unwrap())
    });
    prop_oneof![Just(Rate::Unlimited), (0..50_000_000u64).prop_map(Rate::bits_per_second), steps, trace]
}

prop_compose! {
    fn any_spec()(
        rate in any_rate(),
        delay in 0..100u64,
        jitter in prop_oneof![Just(Jitter::None), (0..50u64).prop_map(|j| Jitter::Uniform(ms(j)))],
        loss in prop_oneof![
            Just(Loss::None),
            (0.0..0.5f64).prop_map(Loss::Bernoulli),
            (0.0..0.5f64, 1.0..10f64).prop_map(|(mean, burst)| Loss::bursts(mean, burst)),
        ],
        (corruption, duplication, reordering) in (0.0..0.3f64, 0.0..0.3f64, 0.0..0.3f64),
        queue in 0..100_000u64,
        ecn in proptest::option::of(0..50_000u64),
        policer in proptest::option::of((0..20_000_000u64, 0..100_000u64)),
    ) -> LinkSpec {
        let policer = policer.map(|(rate, burst)| Policer { rate, burst });
        LinkSpec { rate, jitter, ecn_threshold: ecn, policer, ..LinkSpec::default() }
            .delay(ms(delay)).loss(loss).corruption(corruption).duplication(duplication)
            .reordering(reordering, ms(30)).queue(queue)
    }
}

#[derive(Debug, Clone)]
enum Act {
    Offer(usize),
    Kill,
    Revive,
    Update(Box<LinkSpec>),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => (0..1600usize).prop_map(Act::Offer),
        1 => Just(Act::Kill),
        2 => Just(Act::Revive),
        1 => any_spec().prop_map(|spec| Act::Update(Box::new(spec))),
    ]
}

/// Does it all, checks the balance after each step, and returns what arrived when.
fn play(spec: &LinkSpec, acts: &[(u64, Act)], seed: u64) -> Vec<(Duration, Datagram)> {
    let mut link = Link::new(spec.clone(), seed);
    let (mut now, mut arrived) = (Duration::ZERO, Vec::new());
    for (index, (wait, act)) in acts.iter().enumerate() {
        now += Duration::from_micros(*wait);
        while let Some(due) = link.poll_timeout().filter(|due| *due <= now) {
            while let Some(datagram) = link.poll(due) {
                arrived.push((due, datagram));
            }
            assert!(balanced(&link));
        }
        match act {
            Act::Offer(bytes) => link.offer(now, packet(*bytes, index as u64)),
            Act::Kill => link.kill(now),
            Act::Revive => link.revive(),
            Act::Update(spec) => link.update(now, |old| old.clone_from(spec)),
        }
        assert!(balanced(&link), "{act:?} {:?}", link.counters());
    }
    link.update(now, |spec| spec.rate = Rate::Unlimited);
    arrived.extend(drain(&mut link));
    assert_eq!(link.inside(), 0);
    assert_eq!(link.queued_bytes(), 0);
    assert!(balanced(&link));
    assert_eq!(link.counters().delivered, arrived.len() as u64);
    assert_eq!(link.counters().delivered_bytes, arrived.iter().map(|(_, d)| d.data.len() as u64).sum::<u64>());
    arrived
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_packet_is_accounted_for_and_runs_repeat(
        spec in any_spec(),
        acts in proptest::collection::vec((0..20_000u64, any_act()), 0..200),
        seed: u64,
    ) {
        let once = play(&spec, &acts, seed);
        prop_assert!(once.is_sorted_by_key(|(at, _)| *at));
        prop_assert_eq!(once, play(&spec, &acts, seed));
    }
}

#[test]
fn another_seed_is_another_story() {
    let run = |seed| {
        let spec = LinkSpec::new(5.0, ms(20)).loss(Loss::Bernoulli(0.1)).jitter(Jitter::Uniform(ms(5)));
        offer_all(&mut Link::new(spec, seed), 200, ms(3))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
