//! The round trips of paths that carry nothing are kept fresh, where the settings ask for it.
//!
//! A path on which nothing has left for a second, and four round trips, is pinged. Of more than two that are due at once, two are, drawn at random. QUIC
//! answers pings, and no report tells how long one took one way. Where the answer takes longer or shorter than when packets were last reported, that is the way there of a
//! backup, for answers come back on another path; of a path that is available, each way is taken to have changed by half of it.
//!
//! DMTP monitors all paths so; its paper (Networking 2023, V-A) gives no numbers.

use std::time::{Duration, Instant};

use super::{Path, paths::Paths};
use crate::base::{PathHealth, PathId};

/// A path is idle if nothing has left on it for so long, and so many round trips.
const IDLE: Duration = Duration::from_secs(1);
const IDLE_RTTS: u32 = 4;
/// Paths that are pinged at once, at most, and how long the others wait for the next draw.
const DRAWN: usize = 2;
const DRAW_EVERY: Duration = Duration::from_secs(1);
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

    fn is_probed(&self, metered: bool) -> bool {
        let well = matches!(self.health(), PathHealth::Active | PathHealth::Standby);
        let is_limited = self.validation.is_some_and(|validation| validation.is_limited());
        well && !is_limited && (metered || !self.terms.is_metered())
    }
}

/// Says which idle paths are to be pinged, and when.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    /// No path is drawn before then.
    draw_at: Option<Instant>,
    draws: u64,
}

impl Prober {
    /// When [`due`](Self::due) names any. `metered`: paths that cost something, too.
    pub(crate) fn next_timeout(&self, paths: &Paths, metered: bool) -> Option<Instant> {
        let idle = paths.iter().filter(|path| path.is_probed(metered)).map(Path::idle_at).min()?;
        Some(self.draw_at.map_or(idle, |draw_at| draw_at.max(idle)))
    }

    /// Paths that are to be pinged now; they count as pinged.
    pub(crate) fn due(&mut self, now: Instant, paths: &mut Paths, metered: bool) -> Vec<PathId> {
        if self.draw_at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        let due = |path: &&Path| path.is_probed(metered) && path.idle_at() <= now;
        let mut due: Vec<PathId> = paths.iter().filter(due).map(|path| path.id).collect();
        self.draw_at = (due.len() > DRAWN).then(|| now + DRAW_EVERY);
        while due.len() > DRAWN {
            due.swap_remove(self.draw(due.len()));
        }
        for path in paths.iter_mut().filter(|path| due.contains(&path.id)) {
            (path.probed.last, path.probed.pinged) = (now, true);
        }
        due
    }

    /// A number below `below`, which is not 0. Who is drawn need be no secret, but the same run is to draw the same: SplitMix64 of how often was drawn.
    fn draw(&mut self, below: usize) -> usize {
        self.draws += 1;
        let mut z = self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
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
