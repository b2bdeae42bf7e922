//! The ready path with the lowest round-trip time.

use std::time::Instant;

use super::{FragmentView, PathChoice, PathScheduler, PathSet, PathView};

/// Lowest round-trip time first, as long as that path has room.
pub(crate) struct LowestRtt;

impl PathScheduler for LowestRtt {
    fn name(&self) -> &'static str {
        "lowest-rtt"
    }

    fn choose(&mut self, _: &FragmentView, paths: &[PathView], _: Instant) -> PathChoice {
        match paths.iter().filter(|path| path.ready).min_by_key(|path| path.rtt) {
            Some(path) => PathChoice::Send(PathSet::one(path.id)),
            None => PathChoice::Wait,
        }
    }
}
