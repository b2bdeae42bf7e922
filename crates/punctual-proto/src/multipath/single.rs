//! One path at a time, like a QUIC connection that migrates.

use std::time::Instant;

use super::{FragmentView, PathChoice, PathHealth, PathId, PathScheduler, PathSet, PathView};

/// The first active path, for as long as it is active; if it has no room, waits.
///
/// A path that went silent is left for the active one with the lowest id, and not returned to when it recovers.
/// If no path is active, any that is ready does, for that fragment.
#[derive(Default)]
pub(super) struct Single {
    current: Option<PathId>,
}

impl PathScheduler for Single {
    fn name(&self) -> &'static str {
        "single"
    }

    fn choose(&mut self, _: &FragmentView, paths: &[PathView], _: Instant) -> PathChoice {
        let active = || paths.iter().filter(|path| path.health == PathHealth::Active);
        let current =
            active().find(|path| Some(path.id) == self.current).or_else(|| active().min_by_key(|path| path.id));
        let path = match current {
            Some(path) => {
                self.current = Some(path.id);
                Some(path).filter(|path| path.ready)
            }
            None => paths.iter().filter(|path| path.ready).min_by_key(|path| path.id),
        };
        path.map_or(PathChoice::Wait, |path| PathChoice::Send(PathSet::one(path.id)))
    }

    /// Repair fragments keep to the path of what they are there for.
    fn protect(&mut self, majority: PathId, _: Option<Instant>, _: &[PathView], _: Instant) -> PathId {
        majority
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{choose, path},
        *,
    };

    #[test]
    fn it_waits_for_its_path() {
        let mut paths = [path(1), path(0)];
        let mut single = Single::default();
        assert_eq!(choose(&mut single, &paths), Some(0));
        paths[1].ready = false;
        assert_eq!(choose(&mut single, &paths), None);
    }

    #[test]
    fn it_leaves_a_path_that_is_suspect_or_gone_and_stays_away() {
        let mut paths = [path(0), path(1), path(2)];
        let mut single = Single::default();
        assert_eq!(choose(&mut single, &paths), Some(0));
        (paths[0].health, paths[0].ready) = (PathHealth::Suspect, false);
        assert_eq!(choose(&mut single, &paths), Some(1));
        paths[0] = path(0);
        assert_eq!(choose(&mut single, &paths), Some(1));
        assert_eq!(choose(&mut single, &[path(0), path(2)]), Some(0), "1 is gone");
    }

    #[test]
    fn a_path_that_is_opening_is_not_used() {
        let opening = PathView { health: PathHealth::Opening, ready: false, ..path(0) };
        assert_eq!(choose(&mut Single::default(), &[opening, path(1)]), Some(1));
        assert_eq!(choose(&mut Single::default(), &[opening]), None);
    }

    #[test]
    fn a_suspect_path_is_better_than_none() {
        let mut single = Single::default();
        let suspect = |id| PathView { health: PathHealth::Suspect, ..path(id) };
        assert_eq!(choose(&mut single, &[suspect(1), suspect(0)]), Some(0));
        assert_eq!(choose(&mut single, &[suspect(0), path(1)]), Some(1));
    }
}
