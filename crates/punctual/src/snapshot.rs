//! What a session and its paths have counted.

use std::time::Instant;

use punctual_proto::{PathStats, SessionStats};

/// Totals of a session and of its paths, taken at one moment.
///
/// ```
/// # fn told(snapshot: punctual::Snapshot) {
/// // What each path has carried, those that are no more included, to a peer that speaks Punctual.
/// let carried: u64 = snapshot.all_paths().map(|path| path.source_bytes).sum();
/// assert_eq!(carried, snapshot.session.source_bytes);
/// # }
/// # told(punctual::Snapshot::default());
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Of the session.
    pub session: SessionStats,
    /// State and totals of every open path, in the order of their ids.
    pub paths: Vec<PathStats>,
    /// Those that were open and are not any more, as they were at last. No more than 64 are told apart
    /// ([`closed_path_stats`](punctual_proto::Session::closed_path_stats)).
    pub closed_paths: Vec<PathStats>,
}

impl Snapshot {
    pub(crate) fn of(session: &mut punctual_proto::Session, now: Instant) -> Self {
        Self {
            session: session.stats(),
            paths: session.path_stats(now),
            closed_paths: session.closed_path_stats().to_vec(),
        }
    }

    /// Those that are open, and those that are not any more.
    pub fn all_paths(&self) -> impl Iterator<Item = &PathStats> {
        self.paths.iter().chain(&self.closed_paths)
    }
}
