//! What the controller makes of single rounds.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A path of that length that nothing else is known of.
fn path(base: Duration, rtt: Duration) -> Path {
    Path {
        base,
        usual: base,
        rtt,
        jitter: Duration::ZERO,
        in_flight: 12_000,
        mtu: 1_200,
        packet: 1_200,
        policed: None,
        room: None,
        no_room: 0,
        chance: 0.0,
    }
}

/// Ten packets, the last of which left at `sent`, have come all at once and found queues from `queue` to `longest`.
fn ten(now: Instant, sent: Instant, arrived: u64, queue: Duration, longest: Duration) -> Report {
    Report {
        now,
        packets: 10,
        bytes: 12_000,
        marked: 0,
        sent,
        arrived: (arrived, arrived),
        queue,
        longest,
        service: None,
        swift: Rate::ZERO,
        served: false,
        uneven: false,
    }
}

/// A radio link hands over at one moment what waited for long, and then nothing until the round is over unanswered.
#[test]
fn what_comes_at_one_moment_is_no_endless_rate() {
    let (start, mut steady) = (Instant::now(), Steady::new(12_000));
    steady.on_sent(start, 1_200, 12_000);
    let mut report = |at: u32, sent: u32, arrived: u64| {
        let report = ten(start + MS * at, start + MS * sent, arrived, MS * 50, MS * 50);
        steady.on_report(&report, &path(MS * 10, MS * 60));
        steady.rate.unwrap_or_default().bytes_per_second()
    };
    report(60, 1, 1_000_000);
    report(120, 2, 1_060_000);
    // Twelve kilobytes in a round trip at most.
    assert!(report(160, 2, 1_060_000) <= 1.2e6);
}

/// The first round trips over a long path: there are only a few packets to tell a queue from jitter by (gauntlet 19207).
#[test]
fn a_few_packets_that_are_late_by_chance_do_not_end_start_up() {
    for (queue, longest, ends) in [(3, 9, false), (3, 5, true), (40, 90, false), (40, 70, true)] {
        let (start, mut steady) = (Instant::now(), Steady::new(12_000));
        steady.on_sent(start, 1_200, 12_000);
        for (round, least) in [(1, 0), (2, queue)] {
            let at = start + MS * 20 * round;
            let report = ten(at, at - MS * 10, u64::from(round) * 20_000, MS * least, MS * longest);
            steady.on_report(&report, &path(MS * 20, MS * 20));
            steady.on_sent(at, 1_200, 12_000);
        }
        assert_eq!(!steady.startup, ends, "{queue} to {longest} ms");
    }
}

/// Small messages fill the first window in a moment, and the next leaves a round trip later. What came in that moment is told by the report behind the pause.
#[test]
fn what_left_before_a_pause_was_as_fast_as_it_left() {
    // A report of ten packets each 4 ms, and one behind a pause; what left at once is no sign of anything.
    for (gap, fast) in [(4, true), (0, false)] {
        let (start, mut steady) = (Instant::now(), Steady::new(12_000));
        steady.on_sent(start, 1_200, 12_000);
        for (left, came) in [(0, 0), (gap, 4), (2 * gap, 8), (130, 138)] {
            let report = ten(start + MS * (120 + came), start + MS * left, u64::from(came) * 1_000, Duration::ZERO, MS);
            steady.on_report(&report, &path(MS * 120, MS * 120));
        }
        let rate = steady.rate.unwrap_or_default().bytes_per_second();
        assert_eq!(rate > 2.9e6, fast, "{rate}");
    }
}

/// All but a few words was lost, as where the MTU has shrunk, and what came through is taken for all that the path carries (wide 300033).
#[test]
fn a_packet_leaves_each_round_trip_however_little_was_delivered() {
    for (rtt, least) in [(MS * 20, LEAST_OFTEN), (MS * 400, MS * 400)] {
        let (start, mut steady) = (Instant::now(), Steady::new(12_000));
        steady.on_sent(start, 1_200, 12_000);
        for round in 1..=8 {
            let at = start + MS * 1_000 * round;
            let lost = Loss::new(1_200);
            (0..30).for_each(|_| steady.on_lost(&lost));
            let words = ten(at, at - rtt, u64::from(round) * 1_000_000, Duration::ZERO, Duration::ZERO);
            steady.on_report(&Report { packets: 1, bytes: 40, ..words }, &path(rtt, rtt));
            steady.on_sent(at, 1_200, 12_000);
        }
        assert!(!steady.startup && steady.rate.unwrap() < Rate::of(60, MS * 1_000), "{:?}", steady.rate);
        assert!(steady.pace(start, &path(rtt, rtt)) >= Rate::of(1_200, least), "{rtt:?}");
    }
}

/// What waits for something else than the path's pace, as for the receiver's credit, does so for as long as that takes.
#[test]
fn who_is_starved_goes_no_faster_than_all_of_it_would_leave_at_once() {
    let (start, mut steady) = (Instant::now(), Steady::new(12_000));
    steady.on_sent(start, 1_200, 12_000);
    for round in 1..=2_000 {
        let at = start + MS * 20 * round;
        let report = ten(at, at - MS * 10, u64::from(round) * 20_000, Duration::ZERO, Duration::ZERO);
        steady.on_dry();
        steady.on_starved();
        steady.on_report(&report, &path(MS * 20, MS * 20));
        steady.on_sent(at, 1_200, 12_000);
    }
    let rate = steady.rate.expect("it has delivered");
    assert!(rate > Rate::of(12_000, MS * 20) * 2.0, "it climbs: {rate:?}");
    assert!(rate <= Rate::of(12_000, QUANTUM), "{rate:?}");
    assert!(steady.window(&path(MS * 20, MS * 20)) < 1_000_000);
}
