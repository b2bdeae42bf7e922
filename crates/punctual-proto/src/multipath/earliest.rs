//! The path on which the fragment is expected to arrive first.

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
/// where t is now, or when pacing lets the path go. If that is earliest on a path that must still wait, the
/// fragment waits with it, rather than take a slow path and be what its block is late for.
pub(super) struct Earliest;

impl PathScheduler for Earliest {
    fn name(&self) -> &'static str {
        "earliest"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        let best = paths
            .iter()
            .filter_map(|path| Some((arrival(path, fragment.len, now)?, path.id, path.ready)))
            .min_by_key(|&(arrival, id, _)| (arrival, id));
        match best {
            Some((_, id, true)) => PathChoice::Send(PathSet::one(id)),
            _ => PathChoice::Wait,
        }
    }
}

/// How long from now until `len` bytes would be across, if pacing is all that can hold them back.
fn arrival(path: &PathView, len: usize, now: Instant) -> Option<Duration> {
    let wait = match path.ready_at {
        _ if path.ready => Duration::ZERO,
        Some(at) => at.saturating_duration_since(now),
        None => return None,
    };
    let through = Duration::from_secs_f64(len.min(FULL_PACKET) as f64 / path.rate.max(1.0));
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
    fn it_waits_for_a_path_that_is_worth_it() {
        let now = Instant::now();
        let fast = PathView { ready: false, ready_at: Some(now + MS * 5), min_one_way_delay: MS * 10, ..path(0) };
        let slow = PathView { min_one_way_delay: MS * 40, ..path(1) };
        assert_eq!(Earliest.choose(&fragment(), &[fast, slow], now), PathChoice::Wait);
        let shut = PathView { ready_at: None, ..fast };
        assert_eq!(Earliest.choose(&fragment(), &[shut, slow], now), PathChoice::Send(PathSet::one(slow.id)));
    }
}
