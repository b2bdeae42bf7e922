//! Which path repair fragments take.

use std::time::Instant;

use super::{PathHealth, PathId, PathView};
use crate::send::last_chance::trusted;

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
