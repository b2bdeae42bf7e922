//! As many repair fragments as the worst of the last groups would have needed, up to a cap.

use std::collections::VecDeque;

use super::{GroupFate, GroupView, MAX_REPAIRS, Policy};
use crate::registry::Parameter;

pub(super) const CAP: Parameter = Parameter {
    name: "cap",
    about: "the most repair fragments for each source fragment; 1 is a copy of all",
    default: 0.5,
    min: 0.0,
    max: 4.0,
};

/// How many groups back the worst is sought. DMTP does not say; its frames come 50 times a second, and adapt in well under one.
const WINDOW: usize = 16;

/// DMTP's rule (section IV): the coding rate covers the worst loss of a moving window of groups, up to a cap.
pub(super) struct Dmtp {
    cap: f64,
    losses: VecDeque<f64>,
}

impl Dmtp {
    pub(super) fn new(cap: f64) -> Self {
        Self { cap, losses: VecDeque::new() }
    }
}

impl Policy for Dmtp {
    fn name(&self) -> &'static str {
        "dmtp"
    }

    fn repairs(&mut self, group: &GroupView<'_>) -> usize {
        let loss = self.losses.iter().copied().fold(0.0, f64::max);
        let m = group.len() as f64;
        // Of m + n, n are lost if the share is n / (m + n).
        let needed = (m * loss / (1.0 - loss).max(0.05)).ceil();
        needed.min((m * self.cap).ceil()).min(MAX_REPAIRS as f64) as usize
    }

    fn on_fate(&mut self, fate: &GroupFate) {
        if self.losses.len() == WINDOW {
            self.losses.pop_front();
        }
        self.losses.push_back(fate.lost as f64 / fate.sent.max(1) as f64);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::PathId;

    fn repairs(dmtp: &mut Dmtp, sources: usize) -> usize {
        dmtp.repairs(&GroupView {
            now: Instant::now(),
            sources: &[(PathId(0), sources)],
            repair_path: PathId(0),
            losses: &[],
            priority: 0,
            largest_block: sources,
            reached: 1.0,
            rtt: Duration::from_millis(50),
        })
    }

    #[test]
    fn the_worst_of_a_window_up_to_the_cap() {
        let mut dmtp = Dmtp::new(CAP.default);
        let fate = |lost| GroupFate { at: Instant::now(), sent: 20, lost };
        assert_eq!(repairs(&mut dmtp, 20), 0, "it adapts by its own groups only");
        dmtp.on_fate(&fate(4));
        (1..WINDOW).for_each(|_| dmtp.on_fate(&fate(1)));
        assert_eq!(repairs(&mut dmtp, 20), 5, "5 of 25 are a fifth");
        dmtp.on_fate(&fate(1));
        assert_eq!(repairs(&mut dmtp, 18), 1);
        dmtp.on_fate(&fate(15));
        assert_eq!(repairs(&mut dmtp, 20), 10, "half as many at most");
    }
}
