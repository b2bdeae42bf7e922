//! Which paths of a session share a bottleneck.
//!
//! Paths that stand in one queue are delayed together. Of each path the mean queue of each [`INTERVAL`] is kept, and the mean by which packets were off
//! their forecasts; two paths share a bottleneck if over the last intervals in which both were used these rise and fall together:
//!
//! ```text
//! z(r) = atanh(r) · √(n − 3)    r: correlation over n common intervals, z: in standard deviations of chance (Fisher)
//! z ≥ SURE for the queues and their steps from interval to interval, z ≥ UNFORESEEN for the errors and their steps
//! ```
//!
//! and do so still, or again, [`CONFIRMED`] intervals later. What is slow, such as the beginning of a session, correlates by chance, but its steps do not;
//! and what we send ourselves fills separate queues together, but that is forecast. A pair is no longer held to share one when the queues of both vary and no longer do so together; as long as
//! there is nothing to be seen, what was found holds.
//!
//! RFC 8382, which has the same aim and from which the intervals are, compares summary statistics (skewness, variability, frequency of
//! oscillation, loss) instead, so that neither clocks nor paths of the flows need anything in common. Here the paths have both ends in common, and a path
//! scheduler that avoids queues sees to it that no two paths meet the same ones equally often: `docs/design.md` has both measured.

use std::{collections::VecDeque, time::Duration};

use crate::base::PathId;

/// How long an interval is: RFC 8382's T (section 2.2).
const INTERVAL: Duration = Duration::from_millis(350);
/// Intervals that are compared at most. Ours: RFC 8382's M is 30, of which a correlation has to be 0.72 to be [`SURE`]; of these, 0.56.
const INTERVALS: usize = 60;
/// The fewest. Ours: with less, how two paths begin, both at once, was taken for a queue.
const LEAST: usize = 10;
/// Standard deviations of chance. Ours: at two looks each at a million pairs of queues that chance fills, as in `tests`, 91 times one was taken to be shared
/// with 4, and 6 times with this.
const SURE: f64 = 4.75;
/// The same of the errors. They are not there to tell one queue from two, but what we fill ourselves from what others do; and a forecast that was wrong on
/// one path at a time is not wrong on both. Ours: 86 of 100 pairs are found with this, 71 with [`SURE`] for both, and 3 of 100 that share nothing with either.
const UNFORESEEN: f64 = 3.5;
/// Intervals that a pair must be found alike after it first was. Ours: each look is another chance for chance; with none, one pair in 100 with queues that
/// others fill was held to share one, with 10 a tenth fewer of those that do were found.
const CONFIRMED: u64 = 5;
/// With less than this they do not rise and fall together any more. Ours, and not tuned: about what 30 intervals differ by chance.
const UNLIKE: f64 = 0.2;
/// Queues that vary by less, microseconds, tell nothing, nor does it matter who shares them. Ours: a packet of 1,500 bytes at 12 Mbit/s.
const LEAST_VARIATION: f64 = 1_000.0;

/// What packets that left in an interval met.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Met {
    /// The interval's number, counted from the session's beginning.
    number: u64,
    /// Mean queue, microseconds.
    queue: f64,
    /// By how much that was more than forecast.
    error: f64,
}

/// What the packets of a path met lately.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    past: VecDeque<Met>,
    /// The interval that is open: its number, and of the packets that came since it was opened their number and the sums.
    open: u64,
    count: f64,
    queue: f64,
    error: f64,
    /// When the open one ends, microseconds of the session's clock; kept, so that no packet costs a division.
    end: u64,
}

impl Delays {
    /// A packet that left at `left`, microseconds of the session's clock, found this `queue`, where it was forecast to `wait`.
    pub(crate) fn add(&mut self, left: u64, queue: Duration, wait: Duration) {
        if left >= self.end {
            self.close(left);
        }
        let queue = queue.as_micros() as f64;
        self.count += 1.0;
        self.queue += queue;
        self.error += queue - wait.as_micros() as f64;
    }

    fn close(&mut self, left: u64) {
        if self.count > 0.0 {
            if self.past.len() == INTERVALS {
                self.past.pop_front();
            }
            self.past.push_back(Met {
                number: self.open,
                queue: self.queue / self.count,
                error: self.error / self.count,
            });
        }
        (self.count, self.queue, self.error) = (0.0, 0.0, 0.0);
        let interval = INTERVAL.as_micros() as u64;
        self.open = left / interval;
        self.end = (self.open + 1) * interval;
    }

    /// The interval that is open: another one, when there is something new to compare.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }
}

/// Whether two paths share a bottleneck, as far as what both met says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Shared,
    Apart,
    Unknown,
}

fn compare(a: &Delays, b: &Delays) -> Verdict {
    let mut common = [(0, [0.0; 2], [0.0; 2]); INTERVALS];
    let mut count = 0;
    let mut others = b.past.iter().peekable();
    for one in &a.past {
        while others.next_if(|other| other.number < one.number).is_some() {}
        if let Some(other) = others.next_if(|other| other.number == one.number) {
            common[count] = (one.number, [one.queue, other.queue], [one.error, other.error]);
            count += 1;
        }
    }
    let common = &common[..count];
    if count < LEAST {
        return Verdict::Unknown;
    }
    let queues = Correlation::of(common.iter().map(|met| met.1));
    if queues.variation.iter().any(|variation| *variation < LEAST_VARIATION) {
        return Verdict::Unknown;
    }
    let neighbours = || common.windows(2).filter(|pair| pair[0].0 + 1 == pair[1].0);
    let step = |before: [f64; 2], after: [f64; 2]| [after[0] - before[0], after[1] - before[1]];
    let steps = Correlation::of(neighbours().map(|pair| step(pair[0].1, pair[1].1)));
    let errors = || Correlation::of(common.iter().map(|met| met.2));
    let error_steps = || Correlation::of(neighbours().map(|pair| step(pair[0].2, pair[1].2)));
    let alike = queues.is(SURE) && steps.is(SURE);
    if alike && errors().is(UNFORESEEN) && error_steps().is(UNFORESEEN) {
        Verdict::Shared
    } else if queues.r < UNLIKE && steps.r < UNLIKE {
        Verdict::Apart
    } else {
        Verdict::Unknown
    }
}

/// How two series go together.
#[derive(Debug, Clone, Copy)]
struct Correlation {
    /// Pearson's coefficient; 0 if one does not vary.
    r: f64,
    count: f64,
    /// Standard deviation of each.
    variation: [f64; 2],
}

impl Correlation {
    fn of(pairs: impl Iterator<Item = [f64; 2]> + Clone) -> Self {
        let count = pairs.clone().count() as f64;
        let sum = |of: &dyn Fn([f64; 2]) -> f64| pairs.clone().map(of).sum::<f64>();
        let mean = [0, 1].map(|i| sum(&|pair| pair[i]) / count.max(1.0));
        let square = [0, 1].map(|i| sum(&|pair| (pair[i] - mean[i]).powi(2)));
        let product = sum(&|pair| (pair[0] - mean[0]) * (pair[1] - mean[1]));
        let scale = (square[0] * square[1]).sqrt();
        let r = if scale > 0.0 { product / scale } else { 0.0 };
        Self { r, count, variation: square.map(|square| (square / count.max(1.0)).sqrt()) }
    }

    /// Whether it is so many standard deviations of chance at least.
    fn is(&self, sure: f64) -> bool {
        // Series that are equal are as sure as can be, not infinitely so.
        self.r.min(0.999).atanh() * (self.count - 3.0).max(0.0).sqrt() >= sure
    }
}

/// The pairs of paths that were found to share a bottleneck, and the groups that follow.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Each with the lower id first.
    pairs: Vec<(PathId, PathId)>,
    /// Those that seem to be one of these, and the interval in which they first did.
    suspects: Vec<((PathId, PathId), u64)>,
    /// Each path that shares one, and the first of its group. Kept, for it is asked for each packet.
    groups: Vec<(PathId, PathId)>,
}

impl Sharing {
    /// There is something new of the path `id`.
    pub(crate) fn judge<'a>(
        &mut self,
        (id, delays): (PathId, &Delays),
        others: impl Iterator<Item = (PathId, &'a Delays)>,
    ) {
        let mut changed = false;
        for (other, theirs) in others.filter(|(other, _)| *other != id) {
            let pair = (id.min(other), id.max(other));
            let known = self.pairs.iter().position(|known| *known == pair);
            match (compare(delays, theirs), known) {
                (Verdict::Shared, None) if self.is_confirmed(pair, delays.open()) => self.pairs.push(pair),
                (Verdict::Apart, Some(at)) => drop(self.pairs.swap_remove(at)),
                (Verdict::Apart, None) => {
                    self.suspects.retain(|(suspect, _)| *suspect != pair);
                    continue;
                }
                _ => continue,
            }
            changed = true;
        }
        if changed {
            self.regroup();
        }
    }

    /// A pair seems to share a bottleneck in the interval `now`. Whether it did before, too, and [`CONFIRMED`] intervals have come and gone
    /// since: a pair is looked at each time an interval ends, and in so many looks chance has its say.
    fn is_confirmed(&mut self, pair: (PathId, PathId), now: u64) -> bool {
        let Some(at) = self.suspects.iter().position(|(suspect, _)| *suspect == pair) else {
            self.suspects.push((pair, now));
            return false;
        };
        match now.saturating_sub(self.suspects[at].1) {
            since if since < CONFIRMED => false,
            since if since <= INTERVALS as u64 => {
                self.suspects.swap_remove(at);
                true
            }
            // Nothing of what was seen then is seen now.
            _ => {
                self.suspects[at].1 = now;
                false
            }
        }
    }

    /// The path is gone, or another.
    pub(crate) fn forget(&mut self, id: PathId) {
        self.suspects.retain(|((a, b), _)| *a != id && *b != id);
        self.pairs.retain(|(a, b)| *a != id && *b != id);
        self.regroup();
    }

    fn regroup(&mut self) {
        self.groups.clear();
        self.groups.extend(self.pairs.iter().flat_map(|&(a, b)| [(a, a), (b, b)]));
        self.groups.sort_unstable();
        self.groups.dedup();
        // Each pair joins two groups under the lower of their names.
        for &(a, b) in &self.pairs {
            let [Some(a), Some(b)] = [a, b].map(|id| first_of(&self.groups, id)) else { continue };
            let (first, other) = (a.min(b), a.max(b));
            self.groups.iter_mut().filter(|(_, of)| *of == other).for_each(|(_, of)| *of = first);
        }
    }

    /// The first of the paths with which a path shares a bottleneck, itself included; `None` if it is not known to share one.
    pub(crate) fn group(&self, id: PathId) -> Option<PathId> {
        first_of(&self.groups, id)
    }
}

fn first_of(groups: &[(PathId, PathId)], id: PathId) -> Option<PathId> {
    groups.iter().find(|(path, _)| *path == id).map(|(_, first)| *first)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What the packets of a path met, ten in each interval: `of` tells their queue and what was forecast, microseconds, by the interval's number.
    fn met(intervals: impl Iterator<Item = u64>, of: impl Fn(u64) -> (u64, u64)) -> Delays {
        let mut delays = Delays::default();
        for number in intervals {
            let (queue, wait) = of(number);
            for packet in 0..10 {
                let left = number * 350_000 + packet * 35_000;
                delays.add(left, Duration::from_micros(queue), Duration::from_micros(wait));
            }
        }
        delays
    }

    /// A queue that nobody foresees, up to 50 ms.
    fn chance(seed: u64) -> impl Fn(u64) -> (u64, u64) + Copy {
        move |number| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state = (state ^ (state >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((state ^ (state >> 31)) % 50_000, 0)
        }
    }

    /// A tenth of `other` beside nine tenths of `one`.
    fn mostly(one: impl Fn(u64) -> (u64, u64), other: impl Fn(u64) -> (u64, u64)) -> impl Fn(u64) -> (u64, u64) {
        move |number| ((one(number).0 * 9 + other(number).0) / 10, 0)
    }

    #[test]
    fn what_is_delayed_together_shares_a_queue() {
        let one = met(0..40, mostly(chance(1), chance(2)));
        assert_eq!(compare(&one, &met(0..40, mostly(chance(1), chance(3)))), Verdict::Shared);
        assert_eq!(
            compare(&one, &met(0..9, mostly(chance(1), chance(3)))),
            Verdict::Unknown,
            "too little of it is known"
        );
        let seldom = met((0..40).step_by(2), mostly(chance(1), chance(3)));
        assert_eq!(compare(&one, &seldom), Verdict::Unknown, "no steps can be compared");
        assert_eq!(compare(&one, &met(100..140, mostly(chance(1), chance(3)))), Verdict::Unknown, "at other times");
        assert_eq!(compare(&one, &met(0..40, |number| (50_000 - chance(1)(number).0, 0))), Verdict::Apart);
    }

    #[test]
    fn what_is_forecast_grows_slowly_or_is_small_tells_nothing() {
        let ours = |number| (chance(1)(number).0, chance(1)(number).0);
        assert_eq!(compare(&met(0..40, ours), &met(0..40, ours)), Verdict::Unknown, "both are filled by us");
        let grows = |seed| move |number| (number * 2_000 + chance(seed)(number).0 / 50, 0);
        assert_ne!(compare(&met(0..40, grows(1)), &met(0..40, grows(2))), Verdict::Shared, "both grow");
        let small = |number| (chance(1)(number).0 / 50, 0);
        assert_eq!(compare(&met(0..40, small), &met(0..40, small)), Verdict::Unknown);
    }

    /// Two paths, and whether they are in one group afterwards.
    fn judged(sharing: &mut Sharing, one: &Delays, other: &Delays) -> bool {
        sharing.judge((PathId(7), one), [(PathId(3), other), (PathId(7), one)].into_iter());
        assert_eq!(sharing.group(PathId(3)), sharing.group(PathId(7)));
        sharing.group(PathId(7)) == Some(PathId(3))
    }

    /// The same of two that meet the same, at a first look and a later one.
    fn found(sharing: &mut Sharing) -> bool {
        let [first, later] = [40, 40 + CONFIRMED].map(|end| met(0..end, chance(1)));
        assert!(!judged(sharing, &first, &first), "it may be chance");
        judged(sharing, &later, &later)
    }

    #[test]
    fn chance_is_not_believed_for_one_look() {
        let busy = |end| met(0..end, chance(1));
        let mut sharing = Sharing::default();
        for end in 40..40 + CONFIRMED {
            assert!(!judged(&mut sharing, &busy(end), &busy(end)), "{end}");
        }
        // Refuted meanwhile, it begins anew.
        let opposite = met(0..40, |number| (50_000 - chance(1)(number).0, 0));
        assert!(!judged(&mut sharing, &busy(40), &opposite));
        assert!(!judged(&mut sharing, &busy(50), &busy(50)));
        // So it does when all that was seen then is over.
        let end = 51 + INTERVALS as u64;
        assert!(!judged(&mut sharing, &busy(end), &busy(end)));
        assert!(judged(&mut sharing, &busy(end + CONFIRMED), &busy(end + CONFIRMED)));
    }

    #[test]
    fn what_was_found_holds_until_it_is_refuted() {
        let (mut sharing, busy) = (Sharing::default(), met(0..45, chance(1)));
        assert!(found(&mut sharing));
        let quiet = met(0..40, |_| (0, 0));
        assert!(judged(&mut sharing, &quiet, &quiet), "there is nothing to be seen");
        let opposite = met(0..40, |number| (50_000 - chance(1)(number).0, 0));
        assert!(!judged(&mut sharing, &busy, &opposite), "they go their own ways");
        assert!(found(&mut sharing));
        sharing.forget(PathId(3));
        assert_eq!([3, 7].map(|id| sharing.group(PathId(id))), [None; 2]);
    }

    /// What the next test asks of some hundred pairs, of more, which are always the same, and of each at two looks.
    #[test]
    fn chance_joins_none_of_twenty_thousand_pairs() {
        let seed = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        for pair in 0..20_000 {
            for end in [40, 40 + CONFIRMED] {
                let [one, other] = [2 * pair + 1, 2 * pair + 2].map(|number| met(0..end, chance(seed(number))));
                assert_ne!(compare(&one, &other), Verdict::Shared, "pair {pair} after {end} intervals");
            }
        }
    }

    proptest! {
        #[test]
        fn queues_of_their_own_are_told_apart(a in 0_u64..1 << 40, b in 0_u64..1 << 40) {
            prop_assume!(a != b);
            prop_assert_ne!(compare(&met(0..40, chance(a)), &met(0..40, chance(b))), Verdict::Shared);
        }

        #[test]
        fn no_time_of_a_receivers_or_order_of_reports_does_harm(
            packets in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>()), 0..200),
        ) {
            let mut delays = Delays::default();
            for (left, queue, wait) in packets {
                let micros = |micros: u32| Duration::from_micros(micros.into());
                delays.add(left >> 1, micros(queue), micros(wait));
            }
            prop_assert!(delays.past.len() <= INTERVALS);
            prop_assert!(delays.past.iter().zip(delays.past.iter().skip(1)).all(|(a, b)| a.number < b.number));
            prop_assert!(matches!(compare(&delays, &delays), Verdict::Shared | Verdict::Unknown));
        }

        #[test]
        fn groups_are_what_pairs_connect(pairs in prop::collection::btree_set((0_u32..8, 0_u32..8), 0..10)) {
            let pairs: Vec<_> = pairs.into_iter().filter(|(a, b)| a < b).map(|(a, b)| (PathId(a), PathId(b))).collect();
            let mut sharing = Sharing { pairs: pairs.clone(), ..Sharing::default() };
            sharing.regroup();
            for id in (0..8).map(PathId) {
                let mut reached = BTreeSet::from([id]);
                for _ in 0..8 {
                    let next = pairs.iter().filter(|(a, b)| reached.contains(a) || reached.contains(b));
                    let next: Vec<_> = next.flat_map(|&(a, b)| [a, b]).collect();
                    reached.extend(next);
                }
                let first = reached.first().copied().filter(|_| reached.len() > 1);
                prop_assert_eq!(sharing.group(id), first, "{:?}", pairs);
            }
        }
    }
}
