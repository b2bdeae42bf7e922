//! Which path repair fragments take.

use std::time::Instant;

use super::{PathHealth, PathId, PathView};
use crate::base::trusted;

/// Not the path that most of a group's sources took, if another gets repair fragments there by `due`: one that shares no bottleneck with it, of these
/// the soonest. What overflows a queue takes the repairs in it, too.
pub(super) fn another(majority: PathId, due: Option<Instant>, paths: &[PathView], now: Instant) -> PathId {
    let arrival = |view: &PathView| now + view.delay();
    let others = trusted(paths).filter(|view| view.id != majority);
    let in_time = others.filter(|view| due.is_none_or(|due| arrival(view) < due));
    let first = paths.iter().find(|view| view.id == majority);
    let shares = |view: &PathView| first.is_some_and(|first| view.shares_with(first));
    in_time.min_by_key(|view| (shares(view), arrival(view), view.id)).map_or(majority, |view| view.id)
}

/// How many repair fragments a group should have if they leave on a path, and how many of them there is room for there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fit {
    pub(crate) path: PathView,
    pub(crate) wanted: usize,
    pub(crate) fits: usize,
}

impl Fit {
    /// The path they were to take, or that of the sources if it takes a larger part of what is needed there.
    pub(crate) fn or_where_more_fit(self, majority: impl FnOnce() -> Option<Self>) -> Self {
        let short = self.fits < self.wanted;
        let more = |own: &Self| own.fits * self.wanted > self.fits * own.wanted;
        short.then(majority).flatten().filter(more).unwrap_or(self)
    }
}

/// What to do with a repair fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Send(PathId),
    /// No path that would do has room.
    Wait,
    /// It would come too late.
    Forget,
}

/// Where a repair fragment goes now: on the path that its group was given, while that is well; on any other only if it is not, or its window is full.
pub(crate) fn choose(paths: &[PathView], path: Option<PathId>, due: Option<Instant>, now: Instant) -> Choice {
    let in_time = |view: &&PathView| due.is_none_or(|due| now + view.delay() < due);
    let useful = || paths.iter().filter(in_time);
    if useful().next().is_none() {
        return Choice::Forget;
    }
    let preferred = useful().find(|view| Some(view.id) == path && view.health == PathHealth::Active);
    match preferred {
        Some(view) if view.ready => return Choice::Send(view.id),
        Some(view) if view.ready_at.is_some() => return Choice::Wait,
        _ => {}
    }
    let ready = useful().filter(|view| view.ready).min_by_key(|view| (view.delay(), view.id));
    ready.map_or(Choice::Wait, |view| Choice::Send(view.id))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::tests::path, *};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn another_path_if_it_is_in_time() {
        let now = Instant::now();
        let with = |id, owd: u32| PathView { one_way_delay: MS * owd, min_one_way_delay: MS * owd, ..path(id) };
        let paths = [with(0, 10), with(1, 40), with(2, 30)];
        let within = |millis: u32| another(PathId(0), Some(now + MS * millis), &paths, now);
        assert_eq!([within(50), within(35), within(20)], [PathId(2), PathId(2), PathId(0)]);
        assert_eq!(another(PathId(2), None, &paths, now), PathId(0));
        let suspect = PathView { health: PathHealth::Suspect, ..paths[0] };
        assert_eq!(another(PathId(2), None, &[suspect, paths[1], paths[2]], now), PathId(1));
    }

    #[test]
    fn another_path_outside_the_bottleneck_if_it_is_in_time() {
        let now = Instant::now();
        let shared = Some(PathId(0));
        let with = |id, owd: u32, bottleneck| PathView {
            one_way_delay: MS * owd,
            min_one_way_delay: MS * owd,
            bottleneck,
            ..path(id)
        };
        let paths = [with(0, 10, shared), with(1, 15, shared), with(2, 30, None)];
        let within = |millis: u32| another(PathId(0), Some(now + MS * millis), &paths, now);
        assert_eq!([within(50), within(20)], [PathId(2), PathId(1)]);
        assert_eq!(another(PathId(2), None, &paths, now), PathId(0), "of what is outside the soonest");
    }

    #[test]
    fn the_path_that_takes_the_larger_part_has_them() {
        let fit = |id, wanted, fits| Fit { path: path(id), wanted, fits };
        let chosen = |first: Fit, own| first.or_where_more_fit(|| own).path.id;
        assert_eq!(chosen(fit(0, 4, 1), Some(fit(1, 6, 6))), PathId(1));
        assert_eq!(chosen(fit(0, 4, 0), Some(fit(1, 6, 0))), PathId(0), "neither has room");
        assert_eq!(chosen(fit(0, 4, 3), Some(fit(1, 8, 6))), PathId(0), "no larger part");
        assert_eq!(chosen(fit(0, 4, 1), None), PathId(0));
        let all = fit(0, 4, 4).or_where_more_fit(|| unreachable!("all fit"));
        assert_eq!(all.path.id, PathId(0));
    }

    #[test]
    fn a_repair_fragment_waits_for_its_path_while_that_is_well() {
        let now = Instant::now();
        let paced = PathView { ready: false, ready_at: Some(now + MS), ..path(0) };
        let go = |paths: &[PathView], millis: u32| choose(paths, Some(PathId(0)), Some(now + MS * millis), now);
        assert_eq!(go(&[path(0), path(1)], 50), Choice::Send(PathId(0)));
        assert_eq!(go(&[paced, path(1)], 50), Choice::Wait);
        assert_eq!(
            go(&[PathView { ready_at: None, ..paced }, path(1)], 50),
            Choice::Send(PathId(1)),
            "its window is full"
        );
        assert_eq!(go(&[PathView { ready_at: None, ..paced }], 50), Choice::Wait);
        assert_eq!(go(&[path(0), path(1)], 25), Choice::Forget);
    }
}
