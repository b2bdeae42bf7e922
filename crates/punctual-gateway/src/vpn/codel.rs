//! When a queue has been long for too long: CoDel (RFC 8289), with a target that is given.

use std::time::{Duration, Instant};

/// For how long it must have stood: about the longest of usual round trips (section 4.2).
const INTERVAL: Duration = Duration::from_millis(100);
/// A queue that has no more than this is never too long: a packet has to be sent some time (section 5.4).
const LEAST: usize = 1_514;

/// The state of one queue.
#[derive(Debug, Default)]
pub(super) struct Codel {
    /// When the delay will have stood for an interval.
    above: Option<Instant>,
    /// While it is too long: when the next packet tells of it.
    next: Option<Instant>,
    /// Packets that have told of it since it became too long.
    count: u32,
    /// The same, when it last became too long.
    count_before: u32,
    /// When it last ceased to be too long, the next packet would have told then.
    left_at: Option<Instant>,
}

impl Codel {
    /// Whether a packet that leaves the queue now, after it waited so long, is to tell its sender that the queue is too long; `behind` is how many bytes are behind it, and
    /// `target` the delay that may stand.
    pub(super) fn tells(&mut self, waited: Duration, behind: usize, target: Duration, now: Instant) -> bool {
        let stands = self.stands(waited, behind, target, now);
        match self.next {
            Some(next) if !stands => {
                (self.next, self.left_at) = (None, Some(next));
                false
            }
            Some(next) if now >= next => {
                self.count = self.count.saturating_add(1);
                self.next = Some(next + self.pause());
                true
            }
            Some(_) => false,
            None if stands => {
                // If it was too long a moment ago, it goes on at the pace that helped then (section 5.4).
                let lately = self.left_at.is_some_and(|then| now.saturating_duration_since(then) < 16 * INTERVAL);
                let more = self.count.saturating_sub(self.count_before);
                self.count = if lately && more > 1 { more } else { 1 };
                self.count_before = self.count;
                self.next = Some(now + self.pause());
                true
            }
            None => false,
        }
    }

    /// Whether the delay has stood for an interval.
    fn stands(&mut self, waited: Duration, behind: usize, target: Duration, now: Instant) -> bool {
        if waited < target || behind <= LEAST {
            self.above = None;
            return false;
        }
        now >= *self.above.get_or_insert(now + INTERVAL)
    }

    /// The more have told, the sooner the next does (section 3.3).
    fn pause(&self) -> Duration {
        INTERVAL.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Of packets that leave every millisecond, having waited so long: which tell.
    fn told(codel: &mut Codel, start: Instant, waits: impl Iterator<Item = Duration>) -> Vec<u32> {
        let told = waits.zip(0..).filter(|(waited, at)| codel.tells(*waited, 10_000, 5 * MS, start + MS * *at));
        told.map(|(_, at)| at).collect()
    }

    #[test]
    fn a_burst_is_no_reason_and_what_stands_is_told_ever_more_often() {
        let start = Instant::now();
        let burst = (0..99).map(|_| 20 * MS).chain((0..500).map(|_| MS));
        assert_eq!(told(&mut Codel::default(), start, burst), Vec::<u32>::new());
        let stands = told(&mut Codel::default(), start, (0..500).map(|_| 20 * MS));
        // An interval later, then intervals of 100, 71, 58, 50 ms.
        assert_eq!(stands, [100, 200, 271, 329, 379, 424, 464]);
    }

    #[test]
    fn the_last_packet_never_tells_and_a_queue_that_is_back_soon_is_told_at_the_pace_that_helped() {
        let (start, mut codel) = (Instant::now(), Codel::default());
        assert!((0..500).all(|at| !codel.tells(50 * MS, LEAST, 5 * MS, start + MS * at)));
        let start = start + 1_000 * MS;
        told(&mut codel, start, (0..500).map(|_| 20 * MS).chain((0..100).map(|_| MS)));
        let again = told(&mut codel, start + 600 * MS, (0..300).map(|_| 20 * MS));
        assert!(again.len() > 3, "{again:?}");
    }
}
