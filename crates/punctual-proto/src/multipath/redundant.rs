//! Everything on every path.

use std::time::Instant;

use super::{FragmentView, Outstanding, PathChoice, PathScheduler, PathView, lowest_rtt::LowestRtt};

/// The `Redundant` scheduler of the MAppLE paper (IV-A): what one path carries, all others carry, too.
///
/// A path with room sends the oldest packet that is on its way elsewhere and has not been on it. Only when it has caught up, it takes the
/// lead with something new; of several that have, the one with the lowest round-trip time does. So a narrow path never carries anything that a
/// wide one did not, as long as it is behind, and both together carry no more than the wide one alone.
pub(super) struct Redundant;

impl PathScheduler for Redundant {
    fn name(&self) -> &'static str {
        "redundant"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        LowestRtt.choose(fragment, paths, now)
    }

    fn makes_copies(&self) -> bool {
        true
    }

    fn copy(&mut self, _: &Outstanding, _: &PathView, _: Option<&FragmentView>, _: &[PathView], _: Instant) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{choose, fragment, path},
        *,
    };
    use crate::multipath::PathId;

    #[test]
    fn whatever_is_on_its_way_is_copied() {
        let now = Instant::now();
        let packet = Outstanding::new(fragment().block, now, PathId(0));
        assert!(Redundant.makes_copies());
        assert!(Redundant.copy(&packet, &path(1), Some(&fragment()), &[path(0), path(1)], now));
        assert!(Redundant.copy(&packet, &path(1), None, &[path(0), path(1)], now));
        assert_eq!(choose(&mut Redundant, &[path(1), path(0)]), Some(0));
    }
}
