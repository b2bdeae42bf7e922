//! The round trips of paths that carry nothing are kept fresh, where the settings ask for it.
//!
//! A path on which nothing has left for a second, and four round trips, is pinged. Of more than two that are due at once, the two are that have waited longest: drawn at random, as DMTP has it, one
//! might wait for long. QUIC answers pings, and no report tells how long one took one way. Where the answer takes longer or shorter than when packets were last reported, that is the way there of a
//! backup, for answers come back on another path; of a path that is available, each way is taken to have changed by half of it.
//!
//! DMTP monitors all paths so; its paper (Networking 2023, V-A) gives no numbers.

use std::time::{Duration, Instant};

use super::{Path, paths::Paths};
use crate::base::{PathHealth, PathId, PathView};

/// A path is idle if nothing has left on it for so long, and so many round trips.
const IDLE: Duration = Duration::from_secs(1);
const IDLE_RTTS: u32 = 4;
/// Paths that are pinged at once, at most, and how long the others wait for their turn.
const AT_ONCE: usize = 2;
const TURN: Duration = Duration::from_secs(1);
/// A round trip that differs by no more than this, and what answers vary by, is the same: pings are shorter than packets.
const SAME: Duration = Duration::from_millis(2);

/// What one path remembers for this.
#[derive(Debug)]
pub(super) struct Probed {
    /// When anything left last that is answered.
    last: Instant,
    /// The round trip, and what answers vary by, when packets were last reported.
    seen: Option<(Duration, Duration)>,
    /// It was pinged since; and how long the latest answer took.
    pinged: bool,
    answer: Option<Duration>,
}

/// By how much a path has changed since packets were last reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// The round trip then, and now.
    pub(super) before: Duration,
    pub(super) now: Duration,
}

impl Change {
    /// How long something takes now that took so long, if one `part`-th of the change is on it.
    pub(super) fn apply(self, took: Duration, part: u32) -> Duration {
        (took + self.now / part).saturating_sub(self.before / part)
    }
}

impl Probed {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, seen: None, pinged: false, answer: None }
    }

    pub(super) fn on_sent(&mut self, at: Instant) {
        self.last = at;
    }

    /// Packets were reported, the round trip being `base`, of which all but one in a hundred come by `answer`.
    pub(super) fn on_report(&mut self, base: Duration, answer: Duration) {
        (self.seen, self.pinged, self.answer) = (Some((base, answer.saturating_sub(base))), false, None);
    }

    /// A packet was acknowledged, so long after it had left.
    pub(super) fn on_acked(&mut self, took: Duration) {
        if self.pinged {
            self.answer = Some(took);
        }
    }

    /// By how much the round trip has changed since packets were last reported, if pings have shown that. Where none ever were, it is taken to be `base`.
    pub(super) fn change(&self, base: Duration) -> Option<Change> {
        let (before, varies) = self.seen.unwrap_or((base, Duration::ZERO));
        let now = self.answer.filter(|now| now.abs_diff(before) > varies + SAME)?;
        Some(Change { before, now })
    }
}

impl Path {
    /// When it counts as idle.
    fn idle_at(&self) -> Instant {
        self.probed.last + IDLE.max(self.rtt() * IDLE_RTTS)
    }

    /// What a path that carries nothing is like, where pings know better than what was reported last.
    pub(super) fn freshen(&self, view: PathView) -> PathView {
        let Some(change) = self.probed.change(view.min_rtt) else { return view };
        // What leaves on a backup is answered on another path, so that all of the change is on the way there.
        let least = change.apply(view.min_one_way_delay, if self.is_available() { 2 } else { 1 });
        PathView {
            rtt: change.now,
            min_rtt: change.apply(view.min_rtt, 1),
            answer: change.apply(view.answer, 1),
            one_way_delay: least + view.backlog,
            min_one_way_delay: least,
            ..view
        }
    }

    fn is_probed(&self, metered: bool) -> bool {
        let well = matches!(self.health(), PathHealth::Active | PathHealth::Standby);
        let is_limited = self.validation.is_some_and(|validation| validation.is_limited());
        well && !is_limited && (metered || !self.terms.is_metered())
    }
}

/// Says which idle paths are to be pinged, and when.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    /// None is before then.
    next_turn: Option<Instant>,
}

impl Prober {
    /// When [`due`](Self::due) names any. `metered`: paths that cost something, too.
    pub(crate) fn next_timeout(&self, paths: &Paths, metered: bool) -> Option<Instant> {
        let idle = paths.iter().filter(|path| path.is_probed(metered)).map(Path::idle_at).min()?;
        Some(self.next_turn.map_or(idle, |turn| turn.max(idle)))
    }

    /// Paths that are to be pinged now; they count as pinged.
    pub(crate) fn due(&mut self, now: Instant, paths: &mut Paths, metered: bool) -> Vec<PathId> {
        if self.next_turn.is_some_and(|at| now < at) {
            return Vec::new();
        }
        let due = |path: &&Path| path.is_probed(metered) && path.idle_at() <= now;
        let mut due: Vec<_> = paths.iter().filter(due).map(|path| (path.idle_at(), path.id)).collect();
        self.next_turn = (due.len() > AT_ONCE).then(|| now + TURN);
        due.sort_unstable();
        due.truncate(AT_ONCE);
        let due: Vec<_> = due.into_iter().map(|(_, id)| id).collect();
        for path in paths.iter_mut().filter(|path| due.contains(&path.id)) {
            (path.probed.last, path.probed.pinged) = (now, true);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_pings_show_holds_until_packets_are_reported() {
        let mut probed = Probed::new(Instant::now());
        probed.pinged = true;
        probed.on_acked(MS * 50);
        assert_eq!(probed.change(MS * 40), Some(Change { before: MS * 40, now: MS * 50 }), "none ever was");
        probed.on_report(MS * 40, MS * 43);
        probed.on_acked(MS * 160);
        assert_eq!(probed.change(MS), None, "it was not pinged");
        probed.pinged = true;
        for (answer, changed) in [(45, false), (46, true), (34, true), (35, false), (160, true)] {
            probed.on_acked(MS * answer);
            assert_eq!(probed.change(MS).is_some(), changed, "{answer}");
        }
        let change = probed.change(MS).expect("it has");
        assert_eq!((change.apply(MS * 20, 2), change.apply(MS * 43, 1)), (MS * 80, MS * 163));
        probed.on_report(MS * 160, MS * 163);
        assert_eq!(probed.change(MS), None);
        let shorter = Change { before: MS * 40, now: MS * 4 };
        assert_eq!(shorter.apply(MS * 10, 2), Duration::ZERO);
    }
}
