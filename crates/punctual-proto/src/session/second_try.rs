//! Second tries that have a time of their own ([`PathScheduler::times_second_tries`](crate::multipath::PathScheduler)).

use std::time::{Duration, Instant};

use super::{Session, output::context};
use crate::{
    base::{FragmentKind, PathId, PathView},
    send::packetize::Contents,
};

/// Delays are known to this.
const ROUNDING: Duration = Duration::from_micros(250);

impl Session {
    /// What has just been filled leaves on `path`. Of blocks that have now all left it follows when their second try is.
    pub(super) fn time_second_tries(&mut self, now: Instant, contents: &Contents, path: PathId) {
        if !self.store.second_tries.are_timed() {
            return;
        }
        let answer = |view: &PathView| view.backlog + view.answer;
        let Some(answer) = self.output.views().iter().find(|view| view.id == path).map(answer) else { return };
        for piece in contents.iter().filter(|piece| piece.kind == FragmentKind::Source) {
            if let Some(slowest) = self.store.on_first_try(piece.id, answer) {
                self.store.set_second_try(piece.id, now + slowest + ROUNDING, path);
            }
        }
    }

    /// Sends blocks again whose time has come.
    pub(super) fn try_again(&mut self, now: Instant) {
        if self.store.is_second_try_due(now) {
            self.refresh_views(now);
            let arrives = now + context(now, self.output.views()).one_way_delay;
            self.store.try_again(now, arrives);
        }
    }
}
