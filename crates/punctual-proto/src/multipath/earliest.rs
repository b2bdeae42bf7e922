//! The path on which the fragment is expected to arrive first, or one that does not hold its block up.

use std::time::{Duration, Instant};

use super::{FragmentView, PathChoice, PathHealth, PathScheduler, PathSet, PathView};

/// Earliest arrival first, among those that risk least.
///
/// A fragment that leaves at time t on a path is expected after what that path was given before has gone through its
/// narrowest link, and after the delay of the empty path:
///
/// ```text
/// arrival = t + max(backlog − (t − now), 0) + length / rate + least one-way delay
/// ```
///
/// where t is now, or when pacing lets the path go. It is there in time unless it is later than that by more than there is to spare, or
/// lost; if there is time to find it lost and to send it again, lost twice. The path on which that is least likely, roughly,
/// is the best, of several the one with the earliest arrival, of those that differ by less than forecasts do the cheapest. If it is ready, the fragment
/// takes it.
///
/// Otherwise it could wait for the better path. But its block is of use only when the last of it is there, and all that it has to
/// send would have to go through the better path, behind what waits for it already. A fragment that arrives on another path no later
/// than that, and risks no more, costs its block nothing, so it goes now. The last fragments of a block wait, rather than take a slow path
/// and be what their block is late for. (The comparison is that of ECF: Lim et al., CoNEXT 2017.) With a deadline, which makes all that comes
/// in time alike, both are doubted for that: a rate may be half of what it seems, and once that shows it is too late for another path.
pub(super) struct Earliest;

/// What a path promises: the band of its risk, then the arrival. The less, the better.
type Promise = (usize, Duration);

impl PathScheduler for Earliest {
    fn name(&self) -> &'static str {
        "earliest"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        among(fragment, paths, now, |_| true)
    }
}

/// What [`Earliest`] answers if only the paths that are meant may be taken. What is lost may be sent again on any.
pub(super) fn among(
    fragment: &FragmentView,
    paths: &[PathView],
    now: Instant,
    is_meant: impl Fn(&PathView) -> bool,
) -> PathChoice {
    let meant = || paths.iter().filter(|path| is_meant(path));
    let len = fragment.len.min(FULL_PACKET) as u64;
    let left = fragment.block.due().map(|due| due.saturating_duration_since(now));
    let quickest = paths.iter().filter_map(|path| arrival(path, len, now)).min();
    let again = quickest.filter(|_| fragment.redundancy.resends());
    let is_repaired = fragment.lost_on.is_none() && fragment.redundancy.repairs();
    let bands = if is_repaired { &BANDS[..] } else { &FINE_BANDS[..] };
    let in_vain = bands.len();
    let promise = |path: &PathView, bytes: u64| -> Option<Promise> {
        let arrival = arrival(path, bytes, now)?;
        Some((left.map_or(0, |left| band(risk(path, arrival, again, left), bands)), arrival))
    };
    let best = |ready: bool| {
        let promises = meant().filter(|path| path.ready || !ready).filter_map(|path| Some((promise(path, len)?, path)));
        let ((risk, first), _) = promises.clone().min_by_key(|&(promise, _)| promise)?;
        // Of those that nobody could tell apart the cheapest.
        let alike = promises.filter(|&((other, arrival), _)| other == risk && arrival <= first + GRAIN);
        alike.min_by(|(a, one), (b, other)| one.cost.total_cmp(&other.cost).then((a, one.id).cmp(&(b, other.id))))
    };
    match best(false) {
        Some((_, path)) if path.ready => PathChoice::Send(PathSet::one(path.id)),
        Some(((risk, first), path)) => {
            match (best(true), promise(path, fragment.whole())) {
                // To wait for a moment costs less, and the rest of the block has time to do so, too.
                (Some(((other, arrival), stopgap)), Some((whole, _)))
                    if other == risk
                        && path.ready_at.is_some()
                        && whole == risk
                        && first <= arrival + GRAIN
                        && path.cost < stopgap.cost =>
                {
                    PathChoice::Wait
                }
                // In vain, while it need not be.
                (Some(((other, _), _)), _) if other == in_vain && risk < in_vain => PathChoice::Wait,
                (Some((other, stopgap)), Some(whole))
                    if other <= whole || left.is_some() && doubted(stopgap, other) <= doubted(path, whole) =>
                {
                    PathChoice::Send(PathSet::one(stopgap.id))
                }
                _ => PathChoice::Wait,
            }
        }
        None => PathChoice::Wait,
    }
}

/// The chance that a fragment which goes there now is in time, if it is sent once.
pub(super) fn in_time(fragment: &FragmentView, path: &PathView, now: Instant) -> f64 {
    let Some(arrival) = arrival(path, fragment.len.min(FULL_PACKET) as u64, now) else { return 0.0 };
    let left = fragment.block.due().map(|due| due.saturating_duration_since(now));
    left.map_or(1.0 - path.loss, |left| 1.0 - risk(path, arrival, None, left))
}

/// The chance that a fragment expected at `arrival` is not there when it is `left` from now, if one that goes `again` takes so long, or none does.
///
/// Half of all packets are later than expected and [`late_by`](PathView::late_by), one in twenty by more than the spread; between and beyond, the chance is taken to fall
/// by the same factor with each bit.
fn risk(path: &PathView, arrival: Duration, again: Option<Duration>, left: Duration) -> f64 {
    let found = arrival.saturating_sub(path.min_one_way_delay) + path.answer;
    let lost = if again.is_some_and(|again| found + again <= left) { path.loss * path.loss } else { path.loss };
    1.0 - (1.0 - late(path, arrival, left)) * (1.0 - lost)
}

/// The chance that it comes later than that, though it is not lost.
pub(super) fn late(path: &PathView, arrival: Duration, left: Duration) -> f64 {
    let to_spare = left.as_secs_f64() - (arrival + path.late_by).as_secs_f64();
    let queue = arrival.saturating_sub(path.min_one_way_delay);
    // A forecast is of the least delay: packets are later by more than they are earlier.
    let spread = if to_spare < 0.0 {
        path.late_by.max(path.spread / 2)
    } else if path.late_by.is_zero() {
        path.spread
    } else {
        path.spread_beyond().mul_f64(WITHIN_BIN)
    };
    let spread = (spread.max(GRAIN) + queue / RATE_DOUBT).as_secs_f64();
    let tail = 0.5 * (2.0 * LATE).powf(to_spare.abs() / spread);
    if to_spare < 0.0 { 1.0 - tail } else { tail }
}

/// How many of the bands are below it.
fn band(risk: f64, bands: &[f64]) -> usize {
    bands.iter().filter(|&&band| risk > band).count()
}

/// What the path promises if all that is before it there takes twice as long.
fn doubted(path: &PathView, (risk, arrival): Promise) -> Promise {
    (risk, arrival + arrival.saturating_sub(path.min_one_way_delay))
}

/// How long from now until `bytes` would be across, if pacing is all that can hold them back, or a window that opens at the path's rate.
pub(super) fn arrival(path: &PathView, bytes: u64, now: Instant) -> Option<Duration> {
    let wait = match path.ready_at {
        _ if path.ready => Duration::ZERO,
        Some(at) => at.saturating_duration_since(now),
        None if path.health == PathHealth::Active => {
            let over = (path.in_flight + FULL_PACKET as u64).saturating_sub(path.window);
            Duration::from_secs_f64(over as f64 / path.rate.max(1.0))
        }
        None => return None,
    };
    let through = Duration::from_secs_f64(bytes as f64 / path.rate.max(1.0));
    Some(wait + path.backlog.saturating_sub(wait) + through + path.min_one_way_delay)
}

/// Where between both is much, it is reckoned from the middle of what a path's spread was counted in: half octaves, whose end that is.
const WITHIN_BIN: f64 = 0.85;
/// No more of a block than this goes in one packet, near enough.
pub(super) const FULL_PACKET: usize = 1_400;
/// The share of packets that are later than forecast by more than a path's spread.
const LATE: f64 = 0.05;
/// Risks that are about the same.
const BANDS: [f64; 3] = [0.02, 0.08, 0.3];
/// The same for what is sent again, which is most likely its last chance, and for what has no repair fragments. Beyond the last is what is not likely to be of use.
const FINE_BANDS: [f64; 7] = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.08, 0.3];
/// What a queue takes may be longer by one part in so many, as rates are known no better.
const RATE_DOUBT: u32 = 8;
/// No forecast is better than this, the grain of clocks and links.
const GRAIN: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{choose, fragment, path},
        *,
    };
    use crate::schedule::BlockView;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_loaded_fast_path_gives_way_to_a_slow_one_and_no_sooner() {
        let with = |id, owd: u32, backlog: u32| PathView {
            min_one_way_delay: MS * owd,
            backlog: MS * backlog,
            rate: 1e6,
            ..path(id)
        };
        assert_eq!(choose(&mut Earliest, &[with(0, 10, 0), with(1, 40, 0)]), Some(0));
        assert_eq!(choose(&mut Earliest, &[with(0, 10, 29), with(1, 40, 0)]), Some(0));
        assert_eq!(choose(&mut Earliest, &[with(0, 10, 31), with(1, 40, 0)]), Some(1));
    }

    #[test]
    fn of_paths_that_are_alike_the_cheapest() {
        let with = |id, cost, micros| PathView {
            cost,
            min_one_way_delay: Duration::from_micros(micros),
            rate: 1e6,
            ..path(id)
        };
        assert_eq!(choose(&mut Earliest, &[with(0, 2.0, 10_000), with(1, 1.0, 10_400)]), Some(1));
        assert_eq!(choose(&mut Earliest, &[with(0, 2.0, 10_000), with(1, 1.0, 10_600)]), Some(0));
        assert_eq!(choose(&mut Earliest, &[with(0, 1.0, 10_400), with(1, 1.0, 10_000)]), Some(1));
        // It is worth waiting for, but not for long.
        for (wait, expected) in [(300, None), (600, Some(0))] {
            let ready_at = Some(Instant::now() + Duration::from_micros(wait));
            let cheap = PathView { ready: false, ready_at, ..with(1, 1.0, 10_000) };
            assert_eq!(choose(&mut Earliest, &[with(0, 2.0, 10_000), cheap]), expected, "{wait}");
        }
    }

    #[test]
    fn what_was_lost_takes_the_path_that_loses_least_of_those_in_time() {
        let now = Instant::now();
        let lossy = PathView { min_one_way_delay: MS * 10, loss: 0.2, rate: 1e6, ..path(0) };
        let sure = PathView { min_one_way_delay: MS * 40, loss: 0.0, rate: 1e6, ..path(1) };
        let within = |deadline: u32| {
            let block = BlockView { begin: now, deadline: Some(MS * deadline), ..fragment().block };
            let again = FragmentView { block, lost_on: Some(lossy.id), ..fragment() };
            Earliest.choose(&again, &[lossy, sure], now)
        };
        assert_eq!(within(50), PathChoice::Send(PathSet::one(sure.id)));
        assert_eq!(within(30), PathChoice::Send(PathSet::one(lossy.id)));
        assert_eq!(within(5), PathChoice::Send(PathSet::one(lossy.id)), "late anyway");
    }

    #[test]
    fn it_waits_for_a_path_that_is_worth_it() {
        let now = Instant::now();
        let fast = PathView { ready: false, ready_at: Some(now + MS * 5), min_one_way_delay: MS * 10, ..path(0) };
        let slow = PathView { min_one_way_delay: MS * 40, ..path(1) };
        assert_eq!(Earliest.choose(&fragment(), &[fast, slow], now), PathChoice::Wait);
        // 25 kB take 25 ms on the fast path, and 5 ms until it is ready: the slow one is no later.
        for (size, ahead, expected) in
            [(24_000, 0, false), (26_000, 0, true), (1_000, 24_000, false), (1_000, 25_000, true)]
        {
            let block = BlockView { size, unsent: size, ..fragment().block };
            let choice = Earliest.choose(&FragmentView { block, ahead, ..fragment() }, &[fast, slow], now);
            assert_eq!(choice != PathChoice::Wait, expected, "{size} {ahead}");
        }
        // A window that is full opens at the path's rate: 20 kB too much are 20 ms, 50 kB are not worth it.
        for (in_flight, expected) in [(20_000, false), (50_000, true)] {
            let shut = PathView { ready_at: None, window: 1_400, in_flight, ..fast };
            let choice = Earliest.choose(&fragment(), &[shut, slow], now);
            assert_eq!(choice != PathChoice::Wait, expected, "{in_flight}");
        }
        let gone = PathView { ready_at: None, health: PathHealth::Suspect, ..fast };
        assert_eq!(Earliest.choose(&fragment(), &[gone, slow], now), PathChoice::Send(PathSet::one(slow.id)));
    }

    #[test]
    fn with_time_to_spare_it_does_not_wait_for_a_path_that_may_be_slower_than_it_seems() {
        let now = Instant::now();
        let fast = PathView { ready: false, ready_at: Some(now + MS), min_one_way_delay: MS * 10, ..path(0) };
        let slow = PathView { min_one_way_delay: MS * 40, ..path(1) };
        // 20 kB are across after 31 ms on the fast path, or after 52, if it carries half.
        for (deadline, size, expected) in
            [(None, 20_000, false), (Some(150), 20_000, true), (Some(150), 10_000, false), (Some(41), 20_000, false)]
        {
            let deadline = deadline.map(|deadline| MS * deadline);
            let block = BlockView { begin: now, deadline, size, unsent: size, ..fragment().block };
            let choice = Earliest.choose(&FragmentView { block, ..fragment() }, &[fast, slow], now);
            assert_eq!(choice != PathChoice::Wait, expected, "{deadline:?} {size}");
        }
    }

    /// Half of all packets are later than 60 ms here, though one in twenty is later than 80 on either path.
    #[test]
    fn a_path_on_which_half_come_late_is_told_from_one_on_which_few_do() {
        let steady = PathView { min_one_way_delay: MS * 20, spread: MS * 60, ..path(0) };
        let held_up = PathView { late_by: MS * 40, ..steady };
        let late = |path: &PathView, left: u32| late(path, MS * 20, MS * left);
        assert!((late(&steady, 80) - 0.05).abs() < 1e-9);
        assert!((late(&held_up, 60) - 0.5).abs() < 1e-9);
        assert!(late(&held_up, 80) < 0.05 && late(&held_up, 40) > 0.8, "{}", late(&held_up, 40));
        assert!(late(&steady, 40) < 0.3, "{}", late(&steady, 40));
        let all: Vec<_> = (0..120).map(|left| late(&held_up, left)).collect();
        assert!(all.is_sorted_by(|a, b| a >= b), "{all:?}");
    }
}
