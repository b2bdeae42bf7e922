//! The ready paths in turn.

use std::time::Instant;

use super::{FragmentView, PathChoice, PathId, PathScheduler, PathSet, PathView};

/// Each fragment takes the next ready path, in order of their ids.
#[derive(Default)]
pub(super) struct RoundRobin {
    last: Option<PathId>,
}

impl PathScheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn choose(&mut self, _: &FragmentView, paths: &[PathView], _: Instant) -> PathChoice {
        let ready = || paths.iter().filter(|path| path.ready).map(|path| path.id);
        match ready().filter(|&id| Some(id) > self.last).min().or_else(|| ready().min()) {
            Some(id) => {
                self.last = Some(id);
                PathChoice::Send(PathSet::one(id))
            }
            None => PathChoice::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{choose, path},
        *,
    };

    #[test]
    fn each_in_turn() {
        let mut paths = [path(4), path(0), path(2)];
        let mut scheduler = RoundRobin::default();
        let turns: Vec<_> = (0..4).map(|_| choose(&mut scheduler, &paths)).collect();
        assert_eq!(turns, [Some(0), Some(2), Some(4), Some(0)]);
        paths[2].ready = false;
        assert_eq!(choose(&mut scheduler, &paths), Some(4), "2 would be next, but has no room");
        assert_eq!(choose(&mut scheduler, &paths[..1]), Some(4), "the only one left");
        paths[0].ready = false;
        assert_eq!(choose(&mut scheduler, &paths[..1]), None);
    }
}
