//! The ready path with the lowest round-trip time.

use std::time::Instant;

use super::{FragmentView, PathChoice, PathScheduler, PathSet, PathView};

/// Lowest round-trip time first, as long as that path has room; then the next. Ties by id.
///
/// This is MPTCP's default, and its weakness is kept: while the fastest path has no room, a fragment takes a slow one, even if the
/// fast one would have room again soon enough to bring it there earlier.
pub(super) struct LowestRtt;

impl PathScheduler for LowestRtt {
    fn name(&self) -> &'static str {
        "lowest-rtt"
    }

    fn choose(&mut self, _: &FragmentView, paths: &[PathView], _: Instant) -> PathChoice {
        match paths.iter().filter(|path| path.ready).min_by_key(|path| (path.rtt, path.id)) {
            Some(path) => PathChoice::Send(PathSet::one(path.id)),
            None => PathChoice::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::tests::{choose, path},
        *,
    };

    #[test]
    fn the_fastest_with_room() {
        let with_rtt = |id, millis| PathView { rtt: Duration::from_millis(millis), ..path(id) };
        let mut paths = [with_rtt(0, 50), with_rtt(3, 20), with_rtt(2, 20), with_rtt(1, 90)];
        for expected in [2, 3, 0, 1] {
            assert_eq!(choose(&mut LowestRtt, &paths), Some(expected));
            paths.iter_mut().filter(|path| path.id.0 == expected).for_each(|path| path.ready = false);
        }
        assert_eq!(choose(&mut LowestRtt, &paths), None);
    }
}
