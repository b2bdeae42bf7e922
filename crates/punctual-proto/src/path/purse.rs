//! What is left of what a path may be given.

use std::time::Instant;

use crate::budget::PathBudget;

/// A path that has spent its budget is used again when this share of it is there.
const ENOUGH: f64 = 0.125;

/// What is left of a budget, whatever that is just now.
#[derive(Debug)]
pub(crate) struct Purse {
    /// Of the budget, 1 being all of it; less than nothing where words of the session's own went when all was spent.
    share: f64,
    at: Instant,
    is_spent: bool,
}

impl Purse {
    /// A full one.
    pub(crate) fn new(now: Instant) -> Self {
        Self { share: 1.0, at: now, is_spent: false }
    }

    pub(crate) fn on_sent(&mut self, bytes: u64, budget: Option<PathBudget>) {
        self.share -= budget.map_or(0.0, |budget| bytes as f64 / budget.bytes() as f64);
    }

    /// Takes in that time has passed. Whether it is spent has one answer until the next call. Without a budget it is full.
    pub(crate) fn refill(&mut self, budget: Option<PathBudget>, now: Instant) {
        let past = now.saturating_duration_since(self.at).as_secs_f64();
        let more = budget.map_or(f64::INFINITY, |budget| past / budget.per().as_secs_f64());
        self.share = (self.share + more).min(1.0);
        self.at = self.at.max(now);
        self.is_spent = self.share <= if self.is_spent { ENOUGH } else { 0.0 };
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// The share of the budget that is left, from 0 to 1; without one, 1.
    pub(crate) fn share(&self) -> f64 {
        self.share.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_spent_comes_back_in_its_time() {
        let start = Instant::now();
        let mut purse = Purse::new(start);
        purse.on_sent(1_000_000, None);
        purse.refill(None, start);
        assert_eq!((purse.share(), purse.is_spent()), (1.0, false), "there is no budget");
        let budget = PathBudget::new(1_000, SECOND * 10);
        for (bytes, share, spent) in [(600, 0.4, false), (500, 0.0, true)] {
            purse.on_sent(bytes, budget);
            purse.refill(budget, start);
            assert!((purse.share() - share).abs() < 1e-9 && purse.is_spent() == spent, "{purse:?}");
        }
        // A tenth less than nothing, and back to an eighth.
        for (after, spent) in [(1, true), (2, true), (3, false)] {
            purse.refill(budget, start + SECOND * after);
            assert_eq!(purse.is_spent(), spent, "{after} s");
        }
        purse.refill(budget, start + SECOND * 100);
        assert_eq!(purse.share(), 1.0);
        purse.on_sent(5_000, budget);
        purse.refill(None, start + SECOND * 100);
        assert!(!purse.is_spent());
    }

    proptest! {
        /// Who stops when it is spent never sends more than the bucket holds, and what came into it.
        #[test]
        fn no_more_goes_than_may(steps in proptest::collection::vec((0_u64..2_000, 1_u64..1_500), 1..300)) {
            let (mut now, start) = (Instant::now(), Instant::now());
            let (mut purse, budget) = (Purse::new(start), PathBudget::new(100_000, SECOND * 10));
            let mut sent = 0;
            for (millis, bytes) in steps {
                now += Duration::from_millis(millis);
                purse.refill(budget, now);
                if !purse.is_spent() {
                    purse.on_sent(bytes, budget);
                    sent += bytes;
                }
                let may = 100_000.0 * (1.0 + (now - start).as_secs_f64() / 10.0) + 1_500.0;
                prop_assert!(sent as f64 <= may, "{} of {}", sent, may);
            }
        }
    }
}
