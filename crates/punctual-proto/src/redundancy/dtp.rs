//! As many repair fragments as the worst group of late would have needed.

use std::{collections::VecDeque, time::Instant};

use super::{GroupFate, GroupView, MAX_REPAIRS, Policy};

/// How far back the worst is sought, in round trips (DTP, section III-C: a round of BBR's cycle).
const MEMORY_RTTS: u32 = 8;

/// DTP's rule: n covers the worst loss of a group in the last 8 RTT, or, if none ended in that time, the mean loss of the path.
#[derive(Default)]
pub(super) struct Dtp {
    /// When groups ended, and the share each had lost.
    fates: VecDeque<(Instant, f64)>,
}

impl Policy for Dtp {
    fn name(&self) -> &'static str {
        "dtp"
    }

    fn repairs(&mut self, group: &GroupView<'_>) -> usize {
        let fresh = |at: Instant| group.now.saturating_duration_since(at) <= group.rtt * MEMORY_RTTS;
        while self.fates.front().is_some_and(|(at, _)| !fresh(*at)) {
            self.fates.pop_front();
        }
        let worst = self.fates.iter().map(|(_, loss)| *loss).reduce(f64::max);
        let loss = worst.unwrap_or_else(|| group.expected_loss());
        ((group.len() as f64 * loss).ceil() as usize).min(MAX_REPAIRS)
    }

    fn on_fate(&mut self, fate: &GroupFate) {
        self.fates.push_back((fate.at, fate.lost as f64 / fate.sent.max(1) as f64));
    }
}
