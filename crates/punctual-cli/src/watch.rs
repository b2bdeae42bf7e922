//! What happens to a sender's paths, in lines for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use punctual::{DownReason, PathId, RouteChange, RouteEvent, RouteEvents, duration::spoken};

use crate::route;

/// What the paths of a session are called. Clones are the same names.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathNames(Arc<Mutex<BTreeMap<PathId, String>>>);

impl PathNames {
    fn insert(&self, id: PathId, name: String) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(id, name);
    }

    /// The name of a path; one that nobody has named is called by its number.
    pub(crate) fn get(&self, id: PathId) -> String {
        let names = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// Follows a session's routes from the first try on, and names its paths.
pub(crate) struct Watch {
    events: RouteEvents,
    lines: Lines,
}

/// What has been said of the routes.
#[derive(Default)]
struct Lines {
    names: PathNames,
    /// Why each did not work when that was last said: it is said once, however often it is tried.
    failures: BTreeMap<String, String>,
    /// Those that were said to be down.
    down: BTreeSet<String>,
    /// Paths of which that was said since they had fallen silent.
    silent: BTreeSet<PathId>,
}

impl Watch {
    pub(crate) fn new(events: RouteEvents) -> Self {
        Self { events, lines: Lines::default() }
    }

    pub(crate) fn names(&self) -> PathNames {
        self.lines.names.clone()
    }

    /// The next line; never returns once there are no more. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> String {
        while let Some(event) = self.events.next().await {
            if let Some(line) = self.lines.of(&event) {
                return line;
            }
        }
        std::future::pending().await
    }
}

impl Lines {
    /// What is to be said of an event.
    fn of(&mut self, event: &RouteEvent) -> Option<String> {
        let name = route::name(&event.route.bind);
        match &event.change {
            RouteChange::Failed { reason, again_in } => {
                let reason = reason.to_string();
                if self.failures.get(&name) == Some(&reason) {
                    return None;
                }
                let again = again_in.map_or_else(String::new, |pause| format!("; again in {}", spoken(pause)));
                let line = format!("path {name}: {reason}{again}");
                self.failures.insert(name, reason);
                Some(line)
            }
            RouteChange::Up { path } => {
                self.names.insert(*path, name.clone());
                self.failures.remove(&name);
                let was_down = self.down.remove(&name);
                // The session says itself that a path which had fallen silent is in use again. And where there is nothing to choose from,
                // that there is a path goes without saying.
                let known = self.silent.remove(path) || name == route::SYSTEM && !was_down;
                (!known).then(|| format!("path {name} is open"))
            }
            RouteChange::Down { path, reason } => {
                if *reason == DownReason::Silent {
                    self.silent.insert(*path);
                }
                let line = format!("path {name} is down: {reason}");
                self.down.insert(name);
                Some(line)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual::{Route, RouteError};

    use super::*;

    fn lines(changes: impl IntoIterator<Item = RouteChange>, bind: &str) -> (Vec<String>, PathNames) {
        let mut lines = Lines::default();
        let route = Route::new(bind.parse().unwrap(), "192.0.2.7:4433".parse().unwrap());
        let event = |change| RouteEvent::new(route.clone(), change);
        (changes.into_iter().filter_map(|change| lines.of(&event(change))).collect(), lines.names)
    }

    fn failed(pause: u64) -> RouteChange {
        let again_in = Some(Duration::from_millis(pause));
        RouteChange::Failed { reason: RouteError::NoAnswer { cause: None }, again_in }
    }

    #[test]
    fn a_failure_is_said_once_and_what_follows_is_said() {
        let up = RouteChange::Up { path: PathId(1) };
        let gone = RouteChange::Down { path: PathId(1), reason: DownReason::Gone };
        let (said, names) = lines([RouteChange::Tried, failed(500), failed(1000), up, gone, failed(400)], "eth0");
        assert_eq!(
            said,
            [
                "path eth0: no answer; again in 500 ms",
                "path eth0 is open",
                "path eth0 is down: the interface or its address is gone",
                "path eth0: no answer; again in 400 ms",
            ]
        );
        assert_eq!((names.get(PathId(1)), names.get(PathId(2))), ("eth0".into(), "path 2".into()));
    }

    #[test]
    fn the_only_way_needs_no_announcement() {
        let up = |path| RouteChange::Up { path: PathId(path) };
        let silent = RouteChange::Down { path: PathId(0), reason: DownReason::Silent };
        let (said, _) = lines([up(0), silent.clone(), up(0), silent, up(1)], "0.0.0.0");
        assert_eq!(said.len(), 3, "{said:?}");
        assert_eq!(said[2], "path default is open");
    }
}
