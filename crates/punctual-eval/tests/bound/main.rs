//! The clairvoyant bound against links and sessions as they are: nothing ever beats it.

mod routes;
mod sessions;

use std::time::Duration;

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use punctual_eval::bound::{Job, Links, Place, SharedLink, bound, bound_over};
use punctual_sim::{LinkSpec, Loss, Rate, Schedule, trace::Opportunities};

use self::{
    routes::{Dies, PAYLOAD, Routes},
    sessions::run,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn job(at: u64, deadline: u64, size: u32, priority: u8) -> Job {
    Job { handed_over: ms(at), deadline: Some(ms(deadline)), size, priority, weight: 1.0 }
}

fn links() -> impl Strategy<Value = LinkSpec> {
    let rate = || prop::sample::select(vec![0, 1_200_000, 3_700_001, 12_000_000]);
    let delay = || prop::sample::select(vec![0u64, 7, 20, 45]).prop_map(ms);
    let steps = (rate(), rate(), 1..37u64, delay(), delay(), 1..23u64, any::<bool>()).prop_map(
        |(first, then, at, short, long, later, repeats)| {
            let mut rate = Schedule::fixed(first).then(ms(at), then);
            let mut delay = Schedule::fixed(long).then(ms(later), short);
            if repeats {
                (rate, delay) = (rate.repeat_every(ms(37)), delay.repeat_every(ms(23)));
            }
            LinkSpec::default().rate(Rate::Steps(rate)).delay(delay)
        },
    );
    let trace = (prop::collection::vec(0..40u32, 1..40), delay()).prop_map(|(mut times, delay)| {
        times.sort_unstable();
        times.push(41);
        let text: String = times.iter().map(|time| format!("{time}\n")).collect();
        LinkSpec::unlimited(delay).rate(Rate::Trace(Opportunities::parse(&text).unwrap()))
    });
    prop_oneof![steps, trace]
}

/// The same, every other one with a policer.
fn policed() -> impl Strategy<Value = LinkSpec> {
    let rate = prop::sample::select(vec![0u64, 1_200_000, 3_700_001, 8_000_000]);
    let policer = (rate, prop::sample::select(vec![1_500u64, 3_100, 9_000]));
    (links(), prop::option::of(policer)).prop_map(|(link, policer)| match policer {
        Some((rate, burst)) => link.policer(rate, burst),
        None => link,
    })
}

/// When a link dies, and lives again: every other one once or twice, for no time at all, too.
fn dies() -> impl Strategy<Value = Dies> {
    let once = (0..90u64, 0..40u64).prop_map(|(at, lasts)| (ms(at), ms(at + lasts)));
    prop_oneof![Just(Dies::new()), prop::collection::vec(once, 1..=2)]
}

/// So many links of which some die and some are policed.
fn harsh(paths: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Links> {
    prop::collection::vec((policed(), dies()), paths).prop_map(|paths| {
        let (own, dies) = paths.into_iter().unzip();
        Links { own, dies, ..Links::default() }
    })
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (0..60u64, 1..60u64, 1..12u32, 0..3u32, 0..3u8).prop_map(|(at, deadline, packets, less, priority)| {
        job(at, deadline, packets * PAYLOAD - less * 500, priority)
    });
    prop::collection::vec(job, 1..=5)
}

/// How far it is above what can be sent, in so many cases.
fn closeness(links: impl Strategy<Value = Links>, cases: usize) -> Vec<i64> {
    let mut runner = TestRunner::deterministic();
    let instances = (links, jobs());
    let mut instance = || Some(instances.new_tree(&mut runner).ok()?.current());
    let gaps =
        |(links, jobs): (Links, Vec<Job>)| Routes::over(&links).gaps(&bound_over(&links, &jobs, ms(1_000)), &jobs);
    (0..cases).filter_map(|_| instance()).flat_map(gaps).collect()
}

/// What can be sent comes in packets, the bound's capacity does not.
#[test]
fn links_come_close_to_it() {
    let gentle = |most| prop::collection::vec(links(), 1..=most).prop_map(|own| Links { own, ..Links::default() });
    for (what, links, percent) in [
        ("one link", gentle(1).boxed(), 90),
        ("up to four links", gentle(4).boxed(), 85),
        ("one that may die or be policed", harsh(1..=1).boxed(), 90),
        ("up to four that may", harsh(1..=4).boxed(), 80),
    ] {
        let gaps = closeness(links, 150);
        let equal = gaps.iter().filter(|gap| **gap == 0).count();
        assert!(equal * 100 >= gaps.len() * percent, "{what}: equal in {equal} of {}", gaps.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn no_choice_of_blocks_over_a_link_beats_it(spec in links(), jobs in jobs()) {
        let links = [spec];
        let gaps = Routes::apart(&links).gaps(&bound(&links, &jobs, ms(1_000)), &jobs);
        prop_assert!(gaps.iter().all(|gap| *gap >= 0), "{:?}", gaps);
    }

    #[test]
    fn nor_over_several(links in prop::collection::vec(links(), 2..=4), jobs in jobs()) {
        let gaps = Routes::apart(&links).gaps(&bound(&links, &jobs, ms(1_000)), &jobs);
        prop_assert!(gaps.iter().all(|gap| *gap >= 0), "{:?}", gaps);
    }

    #[test]
    fn nor_over_links_that_die_or_are_policed(one in harsh(1..=1), several in harsh(2..=4), jobs in jobs()) {
        for links in [one, several] {
            let gaps = Routes::over(&links).gaps(&bound_over(&links, &jobs, ms(1_000)), &jobs);
            prop_assert!(gaps.iter().all(|gap| *gap >= 0), "{:?}", gaps);
        }
    }

    #[test]
    fn nor_over_a_shared_link(links in harsh(1..=3), link in policed(), first in any::<bool>(), jobs in jobs()) {
        let place = if first { Place::First } else { Place::Last };
        let shared = vec![SharedLink { link, paths: (0..links.own.len()).collect(), place }];
        let links = Links { shared, ..links };
        let gaps = Routes::over(&links).gaps(&bound_over(&links, &jobs, ms(1_000)), &jobs);
        prop_assert!(gaps.iter().all(|gap| *gap >= 0), "{:?}", gaps);
    }

    #[test]
    fn neither_deaths_nor_policers_raise_it(links in harsh(1..=4), jobs in jobs()) {
        let (own, dies) = (&links.own, &links.dies);
        let gentle: Vec<_> = own.iter().map(|link| LinkSpec { policer: None, ..link.clone() }).collect();
        let all = bound(&gentle, &jobs, ms(200));
        for links in [Links::from(&own[..]), Links { own: gentle, dies: dies.clone(), ..Links::default() }, links.clone()] {
            let fewer = bound_over(&links, &jobs, ms(200));
            prop_assert!(fewer.up_to_priority.iter().zip(&all.up_to_priority).all(|(fewer, all)| fewer <= all));
            prop_assert!(fewer.bytes_on_time <= all.bytes_on_time && fewer.weighted <= all.weighted + 1e-6);
        }
    }

    #[test]
    fn another_path_never_lowers_it(links in prop::collection::vec(links(), 2..=4), jobs in jobs()) {
        let (fewer, all) = (bound(&links[1..], &jobs, ms(200)), bound(&links, &jobs, ms(200)));
        prop_assert!(fewer.up_to_priority.iter().zip(&all.up_to_priority).all(|(fewer, all)| fewer <= all));
        prop_assert!(fewer.bytes_on_time <= all.bytes_on_time && fewer.weighted <= all.weighted + 1e-6);
    }

    #[test]
    fn more_capacity_and_more_time_never_lower_it(jobs in jobs(), rate in 1_000_000..9_000_000u64, more in 10_000..3_000_000u64, later in 0..40u64) {
        let link = |rate| [LinkSpec::unlimited(ms(5)).rate(Rate::bits_per_second(rate))];
        let less = bound(&link(rate), &jobs, ms(200));
        let patient: Vec<_> = jobs.iter().map(|job| Job { deadline: job.deadline.map(|deadline| deadline + ms(later)), ..*job }).collect();
        for more in [bound(&link(rate + more), &jobs, ms(200)), bound(&link(rate), &patient, ms(200))] {
            prop_assert!(more.on_time >= less.on_time && more.bytes_on_time >= less.bytes_on_time);
            prop_assert!(more.up_to_priority.iter().zip(&less.up_to_priority).all(|(more, less)| more >= less));
            prop_assert!(more.weighted >= less.weighted - 1e-6);
        }
    }
}

#[test]
fn edges() {
    let nothing = bound(&[], &[job(0, 10, 1, 0)], ms(100));
    assert_eq!((nothing.on_time, nothing.bytes_on_time, nothing.origin.hopeless), (0, 0, 1));
    assert_eq!(bound(&[LinkSpec::new(1.0, ms(1))], &[], Duration::MAX).up_to_priority, []);
    let far = Job {
        handed_over: Duration::MAX,
        deadline: Some(Duration::MAX),
        size: u32::MAX,
        priority: 255,
        weight: f64::NAN,
    };
    for rate in [Rate::Unlimited, Rate::bits_per_second(u64::MAX), Rate::bits_per_second(1)] {
        let link = LinkSpec::unlimited(ms(1)).rate(rate);
        assert!(bound(&[link.clone(), link], &[far, job(0, 10, 0, 3)], Duration::MAX).weighted.is_finite());
    }
}

/// Ten blocks a second of this size for ten seconds, due after so many milliseconds.
fn steady(deadline: u64, size: u32, priority: u8) -> Vec<Job> {
    (0..100).map(|i| job(i * 100, deadline, size, priority)).collect()
}

#[test]
fn a_path_that_is_too_long_for_a_block_does_not_carry_it() {
    let end = ms(11_000);
    let link = |delay| LinkSpec::new(12.0, ms(delay));
    // 1,444 bytes of blocks a millisecond. Nothing is there in 25 ms over these two.
    let jobs = steady(25, 10_000, 0);
    let neither = bound(&[link(26), link(58)], &jobs, end);
    assert_eq!((neither.on_time, neither.bytes_on_time, neither.origin.hopeless), (0, 0, 100));
    // 20 ms of the third path are 28,880 bytes, with or without them.
    for size in [10_000, 28_880, 28_890] {
        let jobs = steady(25, size, 0);
        assert_eq!(bound(&[link(26), link(58), link(5)], &jobs, end), bound(&[link(5)], &jobs, end), "{size} bytes");
    }
    // Of three blocks that are as large as two thirds of it, one is on time each time.
    let jobs: Vec<_> = (0..3).flat_map(|_| steady(25, 20_000, 0)).collect();
    assert_eq!(bound(&[link(26), link(5), link(58)], &jobs, end).on_time, 100);
}

#[test]
fn the_long_path_is_there_for_what_is_patient() {
    let end = ms(11_000);
    let paths = [LinkSpec::new(12.0, ms(2)), LinkSpec::new(12.0, ms(150))];
    // In 100 ms, 98 ms of the short path: 141,512 bytes. In 400 ms 250 ms of the long one as well.
    let on_time = |urgent, patient| {
        let jobs = [steady(100, urgent, 0), steady(400, patient, 1)].concat();
        bound(&paths, &jobs, end).up_to_priority
    };
    assert_eq!(on_time(141_500, 140_000), [(0, 100), (1, 200)]);
    assert_eq!(on_time(141_600, 140_000), [(0, 0), (1, 100)]);
    // Both urgent blocks at once do not fit, wherever the patient ones go.
    let twice = [steady(100, 80_000, 0), steady(100, 80_000, 0), steady(400, 100_000, 1)].concat();
    assert_eq!(bound(&paths, &twice, end).up_to_priority, [(0, 100), (1, 200)]);
    // What the short path has left over the patient ones can have: 2,888 bytes a millisecond in all.
    let bytes = |size| {
        let jobs = [steady(100, 40_000, 0), steady(400, size, 1)].concat();
        bound(&paths, &jobs, end).on_time
    };
    assert_eq!(bytes(248_000), 200);
    assert!(bytes(255_000) < 200);
}

#[test]
fn a_shared_link_is_counted_once() {
    let end = ms(11_000);
    let own = [LinkSpec::new(12.0, ms(5)), LinkSpec::new(12.0, ms(20)), LinkSpec::unlimited(ms(40))];
    let jobs = [steady(60, 100_000, 0), steady(80, 200_000, 1)].concat();
    for place in [Place::First, Place::Last] {
        let shared = |link: LinkSpec, paths: &[usize]| vec![SharedLink { link, paths: paths.into(), place }];
        let over = |shared| bound_over(&Links { shared, ..own[..].into() }, &jobs, end);
        // One that nobody passes, and one that takes no time, change nothing.
        assert_eq!(over(shared(LinkSpec::new(1.0, ms(5)), &[])), bound(&own, &jobs, end));
        assert_eq!(over(shared(LinkSpec::unlimited(ms(0)), &[0, 1, 2])), bound(&own, &jobs, end));
        // One that all pass is one path, if it is the narrowest.
        let narrow = LinkSpec::new(10.0, ms(0));
        let alone = bound(&[LinkSpec::new(10.0, ms(5))], &jobs, end);
        let all = over(shared(narrow.clone(), &[0, 1, 2]));
        assert_eq!((all.bytes_on_time, all.on_time), (alone.bytes_on_time, alone.on_time));
        // Those that do not pass it are not touched.
        assert_eq!(over(shared(narrow, &[0, 1])).on_time, 200);
        // Its delay is on top.
        assert_eq!(over(shared(LinkSpec::unlimited(ms(60)), &[0, 1, 2])).up_to_priority, [(0, 0), (1, 0)]);
    }
}

#[test]
fn a_dead_link_carries_nothing() {
    // A block every 100 ms, which takes 50 ms and then 20 on the wire.
    let (end, jobs) = (ms(11_000), steady(100, 60_000, 0));
    let dying = |from, to| Links { dies: vec![vec![(ms(from), ms(to))]], ..[LinkSpec::new(10.0, ms(20))][..].into() };
    let on_time =
        |links: &Links| (bound_over(links, &jobs, end).on_time, Routes::over(links).send(&jobs, &[0], 1).len());
    assert_eq!(on_time(&dying(20_000, 30_000)), (100, 100));
    assert_eq!(on_time(&dying(4_000, 6_000)), (80, 80));
    // The blocks at 3.9 s and 5.9 s have 30 ms each, and would need 50.
    assert_eq!(on_time(&dying(3_950, 5_950)), (79, 79));
    // Two paths, one of which is dead from the beginning and the other one in between.
    let own = vec![LinkSpec::new(10.0, ms(20)), LinkSpec::new(10.0, ms(20))];
    let links = Links { own, dies: vec![vec![(ms(0), ms(3_000))], vec![(ms(2_000), ms(5_000))]], ..Links::default() };
    assert_eq!(bound_over(&links, &jobs, end).on_time, 90);
}

#[test]
fn a_policer_lets_half_of_it_through() {
    // 9.6 Mbit/s, of which 10 Mbit/s have room for 96 %, and 5 Mbit/s for half.
    let jobs: Vec<_> = (0..200).map(|i| job(i * 10, 100, 12_000, 0)).collect();
    let every_other: Vec<_> = jobs.iter().copied().step_by(2).collect();
    let policed = |mbps| [LinkSpec::new(mbps, ms(20)).policer(5_000_000, 15_000)];
    for links in [policed(10.0), [LinkSpec { rate: Rate::Unlimited, ..policed(1.0)[0].clone() }]] {
        let bound = bound(&links, &jobs, ms(3_000));
        assert_eq!(Routes::apart(&links).send(&every_other, &[0], 1).len(), 100);
        assert!((100..=105).contains(&bound.on_time), "{}", bound.on_time);
        assert!((1_200_000..=1_300_000).contains(&bound.bytes_on_time), "{}", bound.bytes_on_time);
    }
    // Of a link that is slower than its policer nothing is left out.
    assert_eq!(bound(&policed(4.0), &jobs, ms(3_000)), bound(&[LinkSpec::new(4.0, ms(20))], &jobs, ms(3_000)));
}

#[test]
fn what_a_policer_has_saved_up_comes_at_once() {
    // 15 kB at once, and 12 kB again once 16 ms have passed; each is due 1 ms after it could be there.
    let policed = [LinkSpec::new(1_000.0, ms(20)).policer(6_000_000, 15_000)];
    let on_time = |jobs: &[Job]| (bound(&policed, jobs, ms(1_000)).on_time, Routes::apart(&policed).best(jobs));
    assert_eq!(on_time(&[job(0, 21, 14_440, 0), job(16, 21, 11_552, 0), job(16, 21, 1_444, 0)]), (2, 2));
    assert_eq!(on_time(&[job(0, 21, 14_440, 0), job(20, 21, 14_440, 0)]), (2, 2));
    assert_eq!(on_time(&[job(0, 21, 14_440, 0), job(16, 21, 14_440, 0)]), (1, 1));
    assert_eq!(on_time(&[job(100, 21, 17_328, 0)]), (0, 0));
}

#[test]
fn loss_on_one_path_lowers_what_that_path_brings_on_average() {
    let end = ms(11_000);
    let jobs = [steady(20, 20_000, 0), steady(900, 300_000, 0)].concat();
    let path = |delay, loss| LinkSpec::new(12.0, ms(delay)).loss(Loss::Bernoulli(loss));
    let average = |short, long| {
        let bound = bound(&[path(2, short), path(200, long)], &jobs, end);
        (bound.bytes_on_time, bound.average.bytes_on_time)
    };
    let (clean, same) = average(0.0, 0.0);
    assert_eq!(clean as f64, same);
    let (_, short) = average(0.3, 0.0);
    let (_, long) = average(0.0, 0.3);
    let (most, both) = average(0.3, 0.3);
    assert_eq!(most, clean);
    assert!(both < short.min(long) && short.max(long) < clean as f64, "{both} {short} {long} {clean}");
}

/// Not even senders that know at once what was lost, only not before.
#[test]
fn no_mean_over_the_losses_beats_the_average() {
    let jobs = [steady(30, 15_000, 0), steady(90, 45_000, 0), steady(250, 90_000, 0)];
    let jobs: Vec<_> = jobs.iter().flat_map(|source| &source[..10]).copied().collect();
    let lossy = |mbps, delay, loss| LinkSpec::new(mbps, ms(delay)).loss(loss);
    let worlds = [
        vec![lossy(12.0, 5, Loss::Bernoulli(0.3))],
        vec![lossy(8.0, 2, Loss::Bernoulli(0.3)), lossy(4.0, 60, Loss::Bernoulli(0.05))],
        vec![lossy(7.0, 2, Loss::bursts(0.2, 4.0)), lossy(3.0, 110, Loss::None), lossy(2.0, 40, Loss::Bernoulli(0.5))],
        vec![lossy(20.0, 5, Loss::Bernoulli(0.3)).policer(12_000_000, 9_000)],
    ];
    let gentle = worlds.iter().map(|own| Links::from(&own[..]));
    let dies = vec![vec![(ms(200), ms(320))], vec![(ms(500), ms(600))]];
    let dying = Links { dies, ..worlds[1][..].into() };
    const RUNS: u64 = 20;
    let mut closest: f64 = 0.0;
    for links in gentle.chain([dying]) {
        let bound = bound_over(&links, &jobs, ms(11_000));
        let routes = Routes::over(&links);
        let order: Vec<usize> = (0..links.own.len()).collect();
        // Of the third source, one block in so many.
        for every in [1, 2, 3, 20] {
            let (others, third) = jobs.split_at(20);
            let sent: Vec<_> = others.iter().chain(third.iter().step_by(every)).copied().collect();
            let runs = (0..RUNS).map(|seed| routes.send(&sent, &order, seed * 10).len());
            let mean = runs.sum::<usize>() as f64 / RUNS as f64;
            assert!(mean <= bound.average.on_time, "{links:?}: {mean}, {bound:?}");
            closest = closest.max(mean / bound.average.on_time);
        }
    }
    assert!(closest > 0.85, "nowhere more than {closest} of it");
}

#[test]
fn loss_lowers_the_average_only() {
    let jobs: Vec<_> = (0..100).map(|i| job(i * 10, 100, 15_000, (i % 2) as u8)).collect();
    let link = LinkSpec::new(10.0, ms(20));
    let clean = bound(std::slice::from_ref(&link), &jobs, ms(2_000));
    assert_eq!(clean.average.on_time, clean.on_time as f64);
    let lossy = bound(&[link.loss(Loss::Bernoulli(0.2))], &jobs, ms(2_000));
    assert_eq!(lossy.on_time, clean.on_time);
    let share = lossy.average.bytes_on_time / clean.average.bytes_on_time;
    assert!((0.79..0.82).contains(&share), "{share}");
    assert!(
        lossy.average.up_to_priority.iter().zip(&clean.up_to_priority).all(|(lossy, clean)| lossy.1 <= clean.1 as f64)
    );
}

#[test]
fn no_session_beats_it() {
    let end = ms(4_000);
    let mut jobs = Vec::new();
    for i in 0..150 {
        jobs.push(job(i * 20, 100, 200 + (i as u32 * 37) % 900, 0));
    }
    for i in 0..90 {
        jobs.push(job(i * 33, 150, 9_000 + (i as u32 * 7919) % 14_000, 1));
    }
    for i in 0..30 {
        jobs.push(job(i * 100 + 3, 400, 40_000, 2));
    }
    let steps = Schedule::fixed(8_000_000).then(ms(700), 2_000_000).then(ms(1_300), 6_000_000).repeat_every(ms(2_000));
    let trace: String = (0..700).map(|i| format!("{}\n", i * 2 + (i * 7919) % 2 + 100 * (i / 350))).collect();
    let trace = Opportunities::parse(&trace).unwrap();
    let worlds = [
        ("fixed", vec![LinkSpec::new(5.0, ms(20))]),
        ("steps", vec![LinkSpec::unlimited(ms(30)).rate(Rate::Steps(steps))]),
        ("trace", vec![LinkSpec::unlimited(ms(15)).rate(Rate::Trace(trace))]),
        ("two paths", vec![LinkSpec::new(3.0, ms(10)), LinkSpec::new(2.0, ms(45))]),
        ("two far apart", vec![LinkSpec::new(2.0, ms(2)), LinkSpec::new(4.0, ms(70))]),
        ("three paths", vec![LinkSpec::new(2.0, ms(5)), LinkSpec::new(2.0, ms(60)), LinkSpec::new(2.0, ms(110))]),
        ("policed", vec![LinkSpec::new(20.0, ms(20)).policer(5_000_000, 30_000)]),
        ("one of two policed", vec![LinkSpec::new(3.0, ms(10)), LinkSpec::new(9.0, ms(45)).policer(2_000_000, 9_000)]),
    ];
    let gentle = worlds.iter().map(|(name, own)| (*name, Links::from(&own[..])));
    let dies = vec![vec![(ms(500), ms(900)), (ms(3_000), ms(3_300))], vec![(ms(1_500), ms(2_200))]];
    let dying = ["fixed", "trace", "two paths", "one of two policed"].into_iter().filter_map(|name| {
        let own = worlds.iter().find(|world| world.0 == name)?;
        Some((name, Links { dies: dies.clone(), ..own.1[..].into() }))
    });
    for (name, links) in gentle.chain(dying) {
        let bound = bound_over(&links, &jobs, end);
        let mut best = 0;
        for scheduler in ["ads", "edf", "strict", "fcfs-drop"] {
            let on_time = run(&links, &jobs, scheduler, end);
            for (priority, most) in &bound.up_to_priority {
                let count = on_time.iter().filter(|job| job.priority <= *priority).count() as u64;
                assert!(count <= *most, "{name}, {scheduler}: {count} up to priority {priority}, bound {most}");
            }
            let bytes: u64 = on_time.iter().map(|job| u64::from(job.size)).sum();
            assert!(bytes <= bound.bytes_on_time, "{name}, {scheduler}: {bytes} bytes, bound {}", bound.bytes_on_time);
            best = best.max(on_time.len() as u64);
        }
        assert!(best * 2 >= bound.on_time, "{name}: at best {best} of {}", bound.on_time);
    }
}
