//! As many repair fragments as the worst group of late would have needed.

use std::{collections::VecDeque, time::Instant};

use super::{GroupFate, GroupView, MAX_REPAIRS, Policy};

/// How far back the worst is sought, in round trips (DTP, section III-C: a round of BBR's cycle).
const MEMORY_RTTS: u32 = 8;

/// More groups than this do not end in that time, or tell nothing new.
const MAX_FATES: usize = 256;

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
        if self.fates.len() == MAX_FATES {
            self.fates.pop_front();
        }
        self.fates.push_back((fate.at, fate.lost as f64 / fate.sent.max(1) as f64));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::Losses, *};
    use crate::base::PathId;

    const A: PathId = PathId(0);
    const RTT: Duration = Duration::from_millis(50);

    fn repairs(dtp: &mut Dtp, now: Instant, losses: &Losses) -> usize {
        let (sources, losses) = ([(A, 20)], [(A, *losses)]);
        dtp.repairs(&GroupView {
            now,
            sources: &sources,
            repair_path: A,
            losses: &losses,
            priority: 0,
            largest_block: 20,
            reached: 1.0,
            rtt: RTT,
        })
    }

    #[test]
    fn the_worst_group_of_eight_round_trips_or_the_mean() {
        let start = Instant::now();
        let mut losses = Losses::default();
        (0..4_000).for_each(|i| losses.note(i % 10 == 9));
        let mut dtp = Dtp::default();
        assert_eq!(repairs(&mut dtp, start, &losses), 2 + 1, "a little over a tenth of 20, rounded up");
        dtp.on_fate(&GroupFate { at: start, sent: 20, lost: 8 });
        dtp.on_fate(&GroupFate { at: start + RTT, sent: 20, lost: 4 });
        assert_eq!(repairs(&mut dtp, start + RTT * 8, &losses), 8);
        assert_eq!(repairs(&mut dtp, start + RTT * 9, &losses), 4, "the worst is too long ago");
        assert_eq!(repairs(&mut dtp, start + RTT * 10, &losses), 3);
    }
}
