//! The path on which the fragment is expected to arrive first, or one that does not hold its block up.

use std::time::{Duration, Instant};

use super::{FragmentView, PathChoice, PathScheduler, PathSet, PathView};

/// Earliest arrival first.
///
/// A fragment that leaves at time t on a path is expected after what that path was given before has gone through its
/// narrowest link, and after the delay of the empty path:
///
/// ```text
/// arrival = t + max(backlog − (t − now), 0) + length / rate + least one-way delay
/// ```
///
/// where t is now, or when pacing lets the path go. If that is earliest on a path that is ready, the fragment takes it.
///
/// Otherwise it could wait for the better path. But its block is of use only when the last of it is there, and all that it has to
/// send would have to go through the better path, behind what waits for it already. A fragment that arrives on another path no later
/// than that costs its block nothing, so it goes now. The last fragments of a block wait, rather than take a slow path
/// and be what their block is late for. (The comparison is that of ECF: Lim et al., CoNEXT 2017.)
///
/// A fragment that was lost and goes again may have no third chance. Then it is not enough to be early: of the paths that get it
/// there in time it takes the one that loses least, to a per cent, and of several the earliest.
pub(super) struct Earliest;

impl PathScheduler for Earliest {
    fn name(&self) -> &'static str {
        "earliest"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        let len = fragment.len.min(FULL_PACKET) as u64;
        if let Some(due) = fragment.block.due().filter(|_| fragment.lost_on.is_some())
            && let Some(path) = surest(paths, len, due, now)
        {
            return if path.ready { PathChoice::Send(PathSet::one(path.id)) } else { PathChoice::Wait };
        }
        let Some((_, best)) = first(paths.iter(), len, now) else { return PathChoice::Wait };
        if best.ready {
            return PathChoice::Send(PathSet::one(best.id));
        }
        let all = fragment.ahead + fragment.block.unsent;
        match (first(paths.iter().filter(|path| path.ready), len, now), arrival(best, all, now)) {
            (Some((arrival, path)), Some(whole)) if arrival <= whole => PathChoice::Send(PathSet::one(path.id)),
            _ => PathChoice::Wait,
        }
    }
}

/// The path on which `len` bytes arrive first, and when.
fn first<'a>(paths: impl Iterator<Item = &'a PathView>, len: u64, now: Instant) -> Option<(Duration, &'a PathView)> {
    let arrivals = paths.filter_map(|path| Some((arrival(path, len, now)?, path)));
    arrivals.min_by_key(|&(arrival, path)| (arrival, path.id))
}

/// The path that loses least of those on which `len` bytes arrive by `due`, if there is no time to find them lost and send them
/// again by the earliest.
fn surest(paths: &[PathView], len: u64, due: Instant, now: Instant) -> Option<&PathView> {
    let arrivals = paths.iter().filter_map(|path| Some((arrival(path, len, now)?, path)));
    let (earliest, path) = first(paths.iter(), len, now)?;
    if now + earliest + path.rtt + path.rtt_var * 4 <= due {
        return None;
    }
    let in_time = arrivals.filter(|(arrival, _)| now + *arrival <= due);
    let per_cent = |path: &PathView| (path.loss * 100.0).round() as u32;
    in_time.min_by_key(|&(arrival, path)| (per_cent(path), arrival, path.id)).map(|(_, path)| path)
}

/// How long from now until `bytes` would be across, if pacing is all that can hold them back.
fn arrival(path: &PathView, bytes: u64, now: Instant) -> Option<Duration> {
    let wait = match path.ready_at {
        _ if path.ready => Duration::ZERO,
        Some(at) => at.saturating_duration_since(now),
        None => return None,
    };
    let through = Duration::from_secs_f64(bytes as f64 / path.rate.max(1.0));
    Some(wait + path.backlog.saturating_sub(wait) + through + path.min_one_way_delay)
}

/// No more of a block than this goes in one packet, near enough.
const FULL_PACKET: usize = 1_400;

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
        let shut = PathView { ready_at: None, ..fast };
        assert_eq!(Earliest.choose(&fragment(), &[shut, slow], now), PathChoice::Send(PathSet::one(slow.id)));
    }
}
