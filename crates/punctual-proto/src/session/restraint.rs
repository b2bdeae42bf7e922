//! What has no deadline keeps the queues of paths as short as what has one needs them: the block waits, though a path has room.

use std::time::{Duration, Instant};

use super::Session;
use crate::{
    limits::MAX_PATHS,
    multipath::{FragmentView, PathChoice},
    network::BASE_PACKET,
    schedule::{FED, usable},
};

/// It looks again after this at the soonest.
const LEAST_WAIT: Duration = Duration::from_micros(100);
/// After so many that have to wait nobody else without a deadline is looked at.
const MOST_KEPT: usize = 16;

/// Who waits for shorter queues.
#[derive(Debug, Default)]
pub(super) struct Restraint {
    /// When something without a deadline left last.
    last: Option<Instant>,
    /// How many blocks wait in this round.
    kept: usize,
}

/// Paths that are not shown to a fragment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hidden {
    paths: [bool; MAX_PATHS],
    /// When the first of them may be shown again.
    until: Instant,
}

impl Session {
    /// Hides the paths on which `fragment` has to leave a shorter queue than there is; not where nothing of its kind has left for a round trip, or for as long as
    /// [`FED`] packets take if that is longer, as what waits there may be no shorter for our waiting.
    pub(super) fn hide_busy_paths(&mut self, fragment: &FragmentView, now: Instant) -> Option<Hidden> {
        let block = &fragment.block;
        if block.deadline.is_some() {
            return None;
        }
        let rate: f64 = usable(self.output.views()).map(|view| view.rate).sum();
        let last = self.output.restraint.last;
        let most_bytes = self.output.capacity.unwrap_or(BASE_PACKET as usize);
        let mut hidden: Option<Hidden> = None;
        let all = self.paths.iter().zip(self.output.views_mut()).enumerate().take(MAX_PATHS);
        for (index, (path, view)) in all.filter(|(_, (_, view))| view.ready) {
            let others = path.queue_of_others();
            let Some(most) = self.store.leeway.on(now, view, others, rate, block.priority) else { continue };
            let bytes = path.datagram(most_bytes) as f64;
            let packet = Duration::try_from_secs_f64(bytes / view.rate.max(1.0)).unwrap_or(Duration::MAX);
            let over = view.backlog.saturating_add(packet).saturating_sub(most.max(packet));
            if over.is_zero() {
                continue;
            }
            let fed = last.map_or(now, |last| last + view.rtt.max(packet.saturating_mul(FED)));
            if fed <= now {
                continue;
            }
            view.ready = false;
            let until = (now + over.max(LEAST_WAIT)).min(fed);
            let hidden = hidden.get_or_insert(Hidden { paths: [false; MAX_PATHS], until });
            hidden.paths[index] = true;
            hidden.until = hidden.until.min(until);
        }
        hidden
    }

    /// Shows them again. What the path scheduler said when it did not see them is that the block waits for them.
    pub(super) fn show_busy_paths(&mut self, hidden: Option<Hidden>, choice: PathChoice, now: Instant) -> PathChoice {
        let Some(Hidden { paths, until }) = hidden else { return choice };
        for (view, _) in self.output.views_mut().iter_mut().zip(paths).filter(|(_, hidden)| *hidden) {
            view.ready = true;
        }
        if let PathChoice::Send(_) = choice {
            return choice;
        }
        self.output.restraint.kept += 1;
        self.output.reserve(PathChoice::Reserve(until), now)
    }
}

impl Restraint {
    /// A block leaves.
    pub(super) fn on_sent(&mut self, now: Instant, has_deadline: bool) {
        if !has_deadline {
            self.last = Some(now);
        }
    }

    /// A round begins.
    pub(super) fn begin(&mut self) {
        self.kept = 0;
    }

    /// Whether so many wait that others need not be asked.
    pub(super) fn keeps_enough(&self) -> bool {
        self.kept >= MOST_KEPT
    }
}
