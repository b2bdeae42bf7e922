//! Two hosts in virtual time: what the estimator says, beside the truth.

mod world;

use proptest::prelude::*;

use super::*;
use world::*;

impl Clocks {
    /// Our time as the peer's.
    fn to_peer(&self, ours: Micros) -> Option<u64> {
        let origin = self.known_origin()?;
        let offset = self.filter.offset_at(ours).round() as i128;
        Some(clamp((i128::from(ours) + origin).saturating_add(offset)))
    }
}

#[test]
fn hours_apart_and_drifting() {
    for error in World::default().check("idle", 1_000.0) {
        assert!((error.skew_ppm + 200.0).abs() < 1.0, "{error:?}");
        assert!(error.delay < 500.0, "{error:?}");
    }
    World { ours_ppm: -100.0, peer_ppm: 100.0, ours_start: 9, peer_start: HOURS_3, ..World::default() }
        .check("idle, peer ahead", 1_000.0);
}

#[test]
fn symmetric_jitter() {
    for (name, delay) in [
        ("jitter 1 ms, RTT 60", (|_, _, _, random| 30.0 * MS + jitter(MS, random)) as Delay),
        ("jitter 3 ms, RTT 120", |_, _, _, random| 60.0 * MS + jitter(3.0 * MS, random)),
    ] {
        World { delay, echo_least: true, ..World::default() }.check(name, 1_000.0);
        // Eight echoes, none chosen for being early, are too few for a millisecond within the first second.
        World { delay, ..World::default() }.check(&format!("{name}, latest"), 2_500.0);
    }
}

#[test]
fn queueing_noise() {
    let delay: Delay = |_, way, at, random| 40.0 * MS + jitter(0.3 * MS, random) + queue(way, at, random);
    World { delay, echo_least: true, ..World::default() }.check("queues to 50 ms, least", 1_000.0);
    World { delay, settled: 5 * SECOND, ..World::default() }.check("queues to 50 ms, latest", 1_000.0);
    let delay: Delay = |_, way, _, random| match way {
        Way::There => 40.0 * MS + 50.0 * MS * random.unit(),
        Way::Back => 40.0 * MS + jitter(0.3 * MS, random),
    };
    // One datagram in fifty has less than a millisecond of queueing: a second is too short to meet one, and ten minutes
    // of five echoes a second, chosen at random, meet few.
    World { delay, echo_least: true, settled: 20 * SECOND, ..World::default() }.check("white 50 ms, least", 1_000.0);
    World { delay, settled: 20 * SECOND, ..World::default() }.check("white 50 ms, latest", 2_500.0);
}

/// Both ways at once, as Wi-Fi does it: no bucket is free of it.
#[test]
fn large_jitter_both_ways() {
    for (name, delay, worst) in [
        ("white 30 ms both ways", (|_, _, _, random| 40.0 * MS + 30.0 * MS * random.unit()) as Delay, 1_000.0),
        ("jitter 10 ms both ways", |_, _, _, random| 40.0 * MS + jitter(10.0 * MS, random), 1_000.0),
        // So few datagrams are undelayed that there is no floor to speak of: what can be said is that it does not run away.
        (
            "normal 15 ms both ways",
            |_, _, _, random| {
                let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
                40.0 * MS + (15.0 * MS + 5.0 * MS * normal).max(0.0)
            },
            8_000.0,
        ),
    ] {
        let intervals = [20_000, 20_000];
        World { intervals, delay, echo_least: true, settled: 20 * SECOND, ..World::default() }.check(name, worst);
    }
}

#[test]
fn standing_queue_comes_and_goes() {
    // 40 ms for 8 s out of 20, in one direction: longer than a level is held.
    let delay: Delay = |_, way, at, random| {
        let standing = way == Way::There && at % (20 * SECOND) > 12 * SECOND;
        30.0 * MS + jitter(0.3 * MS, random) + if standing { 40.0 * MS + 5.0 * MS * random.unit() } else { 0.0 }
    };
    World { delay, ..World::default() }.check("standing queue", 1_000.0);
}

#[test]
fn one_way_traffic() {
    let delay: Delay = |_, _, _, random| 50.0 * MS + jitter(0.3 * MS, random);
    World { intervals: [1_000, 100_000], delay, ..World::default() }.check("traffic there only", 1_000.0);
    World { intervals: [100_000, 1_000], delay, ..World::default() }.check("traffic back only", 1_000.0);
}

#[test]
fn symmetric_step_moves_nothing() {
    let delay: Delay = |_, _, at, random| {
        let stepped = (at / (60 * SECOND)) % 2 == 1;
        MS * if stepped { 60.0 } else { 30.0 } + jitter(0.3 * MS, random)
    };
    World { delay, ..World::default() }.check("symmetric steps", 1_000.0);
}

#[test]
fn asymmetric_step_moves_the_delay_not_the_clock() {
    let delay: Delay = |_, way, at, random| {
        let stepped = way == Way::There && at > 60 * SECOND;
        MS * if stepped { 80.0 } else { 30.0 } + jitter(0.3 * MS, random)
    };
    for error in (World { delay, ..World::default() }).check("step 30 to 80 ms there", 2_000.0) {
        assert!(error.delay < 2_000.0, "{error:?}");
        assert!(error.textbook_worst > 20_000.0, "{error:?}");
    }
    // Up, further up, down, below where it began; each way in turn.
    let delay: Delay = |_, way, at, random| {
        let there = [50.0, 80.0, 80.0, 35.0, 35.0, 30.0, 60.0, 60.0, 40.0, 40.0, 40.0];
        let back = [50.0, 50.0, 70.0, 70.0, 50.0, 45.0, 45.0, 58.0, 58.0, 30.0, 30.0];
        let step = (at / (60 * SECOND)) as usize;
        MS * if way == Way::There { there[step] } else { back[step] } + jitter(0.3 * MS, random)
    };
    for error in (World { delay, ..World::default() }).check("steps each minute", 2_000.0) {
        assert!(error.delay < 2_000.0, "{error:?}");
    }
    // While the filter knows the drift only roughly.
    let delay: Delay = |_, way, at, random| {
        let stepped = way == Way::Back && at > 5 * SECOND;
        MS * if stepped { 80.0 } else { 30.0 } + jitter(0.3 * MS, random)
    };
    World { delay, ..World::default() }.check("early step", 2_000.0);
}

#[test]
fn small_steps_stay_small() {
    for (name, size) in [("step of 2 ms", 2.0), ("step of 3 ms", 3.0), ("step of 4 ms", 4.0), ("step of 6 ms", 6.0)] {
        let delay: Delay = match size as u32 {
            2 => |_, way, at, _| MS * if way == Way::There && at > 60 * SECOND { 42.0 } else { 40.0 },
            3 => |_, way, at, _| MS * if way == Way::There && at > 60 * SECOND { 43.0 } else { 40.0 },
            4 => |_, way, at, _| MS * if way == Way::There && at > 60 * SECOND { 44.0 } else { 40.0 },
            _ => |_, way, at, _| MS * if way == Way::There && at > 60 * SECOND { 46.0 } else { 40.0 },
        };
        World { delay, ..World::default() }.check(name, 2_000.0);
    }
}

#[test]
fn an_asymmetric_path_joins_and_the_first_leaves() {
    let delay: Delay = |path, way, _, random| {
        let base = match (path, way) {
            (0, _) => 40.0,
            (_, Way::There) => 20.0,
            (_, Way::Back) => 90.0,
        };
        base * MS + jitter(0.3 * MS, random)
    };
    let paths = vec![(0, 0, 120 * SECOND), (1, 30 * SECOND, u64::MAX)];
    World { paths, delay, ..World::default() }.check("asymmetric second path", 1_000.0);
    let paths = vec![(0, 0, u64::MAX), (1, 0, u64::MAX)];
    World { paths, delay, ..World::default() }.check("asymmetric path from the start", 1_000.0);
}

#[test]
fn a_much_shorter_path_takes_over() {
    // 60 ms there and 20 ms back says 20 ms wrong; 5 ms each way cannot be.
    let delay: Delay = |path, way, _, random| {
        let base = match (path, way) {
            (0, Way::There) => 60.0,
            (0, Way::Back) => 20.0,
            _ => 5.0,
        };
        base * MS + jitter(0.1 * MS, random)
    };
    let paths = vec![(0, 0, u64::MAX), (1, 30 * SECOND, u64::MAX)];
    for error in (World { paths, delay, settled: 40 * SECOND, ..World::default() }).check("takeover", 1_000.0) {
        assert!(error.delay < 1_000.0, "{error:?}");
    }
}

#[test]
fn paths_come_and_go_for_ten_minutes() {
    let paths =
        (0..40).map(|n| (n % 8, u64::from(n) * 15 * SECOND, u64::from(n) * 15 * SECOND + 18 * SECOND)).collect();
    let delay: Delay = |path, way, at, random| {
        let skewed = if way == Way::There { f64::from(path) * 4.0 } else { 0.0 };
        (32.0 + skewed) * MS + jitter(0.3 * MS, random) + queue(way, at, random)
    };
    World { paths, delay, echo_least: true, ..World::default() }.check("paths come and go", 3_000.0);
}

#[test]
fn wire_times_wrap() {
    // The peer's clock passes 2³² µs a few seconds in; ours is near another wrap.
    let peer_start = (3 << 32) - 5 * SECOND;
    World { peer_start, ours_start: (1 << 33) - 2 * SECOND, ..World::default() }.check("wrap", 1_000.0);
}

#[test]
fn silence_of_any_length_is_bridged() {
    const MINUTE: u64 = 60 * SECOND;
    let delay: Delay = |_, _, _, random| 30.0 * MS + jitter(0.3 * MS, random);
    for idle in [1, 36, 50, 120] {
        let pauses = vec![(Who::Idle, MINUTE, (1 + idle) * MINUTE)];
        let errors = World { delay, pauses, length: (3 + idle) * MINUTE, ..World::default() }
            .check(&format!("{idle} minutes of silence"), 2_000.0);
        assert!(errors.iter().all(|error| error.delay < 2_000.0), "{errors:?}");
    }
}

#[test]
fn a_clock_that_stood_or_was_set_is_followed() {
    // One path, and a second that is longer one way.
    let delay: Delay = |path, way, _, random| {
        (30.0 + if path > 0 && way == Way::There { 25.0 } else { 0.0 }) * MS + jitter(0.3 * MS, random)
    };
    for paths in [vec![(0, 0, u64::MAX)], vec![(0, 0, u64::MAX), (1, 0, u64::MAX)]] {
        for (who, millis) in [
            (Who::Ours, 5_000),
            (Who::Peer, 5_000),
            (Who::Ours, 25_000),
            (Who::Peer, 25_000),
            (Who::Step, 20),
            (Who::Step, 40),
            (Who::Step, 100),
            (Who::Step, 1_200_000),
        ] {
            let pauses = [100, 160]
                .map(|from| (who, from * SECOND + 123_456, from * SECOND + 123_456 + millis * 1_000))
                .to_vec();
            let name = format!("{millis} ms, {} paths", paths.len());
            let world = World { delay, pauses, length: 240 * SECOND, paths: paths.clone(), ..World::default() };
            let errors = world.check(&name, 2_500.0);
            assert!(errors.iter().all(|error| error.delay < 2_500.0), "{name}: {errors:?}");
        }
    }
}

#[test]
fn the_difference_is_told_modulo_what_the_wire_can_tell() {
    for ahead in [-3_000_000_000_i64, -5_000, 0, 58_291, 2_000_000_000] {
        let (mut clocks, mut unwrapper) = (Clocks::new(), Unwrapper::default());
        let at = |time: u64| wire(time.wrapping_add_signed(ahead));
        clocks.on_arrival(PathId(0), unwrapper.extend(at(HOURS_3), HOURS_3 + 20_000), HOURS_3 + 20_000);
        clocks.on_reported(
            PathId(0),
            HOURS_3,
            unwrapper.extend(at(HOURS_3 + 20_000), HOURS_3 + 40_000),
            HOURS_3 + 40_000,
        );
        let offset = clocks.estimate().expect("both directions were heard").offset_micros;
        let truth = ahead as f64;
        let wraps = (offset - truth) / 4_294_967_296.0;
        assert!((wraps - wraps.round()).abs() < 1e-9 && offset.abs() <= 2_147_483_648.0, "{ahead}: {offset}");
    }
}

#[test]
fn nothing_is_said_before_both_directions_are_heard() {
    let mut clocks = Clocks::new();
    clocks.on_arrival(PathId(0), 5, 10);
    assert_eq!((clocks.estimate(), clocks.to_ours(5), clocks.to_peer(5)), (None, None, None));
    clocks.on_reported(PathId(1), 4, 9, 11);
    assert_eq!(clocks.estimate(), None, "two directions of two paths are none of one");
    clocks.on_reported(PathId(0), 0, 1_000, 20_000);
    assert!(clocks.estimate().is_some());
    clocks.path_closed(PathId(0));
    assert!(clocks.estimate().is_some(), "what was learnt stays");
}

#[derive(Debug, Clone)]
enum Input {
    Arrival(u32, u64, u64),
    Echo(u32, u64, u64, u64),
    Closed(u32),
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..10_000_000u64, Just(0), Just(u64::MAX)]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        (0..20u32, time(), time()).prop_map(|(path, sent, now)| Input::Arrival(path, sent, now)),
        (0..3u32, time(), time(), time()).prop_map(|(path, sent, there, now)| Input::Echo(path, sent, there, now)),
        (0..3u32, 0..9_999_999u64, time(), 0..9_999_999u64).prop_map(|(path, sent, there, later)| Input::Echo(
            path,
            sent,
            there,
            sent + later
        )),
        (0..20u32).prop_map(Input::Closed),
    ]
}

proptest! {
    #[test]
    fn any_input_leaves_it_finite(inputs in proptest::collection::vec(input(), 0..200), probe in time()) {
        let mut clocks = Clocks::new();
        for input in inputs {
            match input {
                Input::Arrival(path, sent, now) => clocks.on_arrival(PathId(path), sent, now),
                Input::Echo(path, sent, there, now) => clocks.on_reported(PathId(path), sent, there, now),
                Input::Closed(path) => clocks.path_closed(PathId(path)),
            }
            prop_assert!(clocks.paths.len() <= MAX_PATHS);
            if let Some(estimate) = clocks.estimate() {
                prop_assert!(estimate.offset_micros.is_finite() && estimate.skew_ppm.abs() <= 500.0);
                prop_assert!(clocks.filter.deviation().is_finite());
                prop_assert!(clocks.to_ours(probe).is_some() && clocks.to_peer(probe).is_some());
            }
        }
    }


    #[test]
    fn conversions_invert_each_other(offset in 0..1u64 << 50, at in 0..1u64 << 40) {
        let mut clocks = Clocks::new();
        for step in 0..300u64 {
            let now = step * 10_000;
            clocks.on_arrival(PathId(0), offset + now, now + 20_000);
            clocks.on_reported(PathId(0), now, offset + now + 20_000, now + 40_000);
        }
        let peer = clocks.to_peer(at).unwrap();
        prop_assert!(clocks.to_ours(peer).unwrap().abs_diff(at) <= 1);
        prop_assert!(peer.abs_diff(at + offset) <= 2 + at / 1_000_000);
    }
}
