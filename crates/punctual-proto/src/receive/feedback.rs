//! When datagrams came over a path, until the peer is told.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::frame::Arrival;

/// This many first datagrams of a path are reported at once, so that clocks are compared early and start-up is short.
const EAGER: u32 = 4;
/// How soon an arrival is reported: a quarter of a round trip, within these bounds. Under load many arrivals share a report.
const SOON: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// How soon if the report would be more than a hundredth of the bytes it tells of: a round trip, within these bounds.
const LATE: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(100));
/// A report takes one byte for this many bytes that it tells of, at most.
const BYTES_A_BYTE: u64 = 100;
/// What a report takes, about: a head, and each arrival.
const HEAD_BYTES: u64 = 12;
const ARRIVAL_BYTES: u64 = 4;
/// Arrivals kept for the next report; of more the oldest are not reported.
const MOST: usize = 512;
/// With so many a report is due: it fills a datagram.
const FULL: usize = 256;
/// Arrivals that nobody waits for, those of datagrams without blocks, go along with blocks this often.
const IDLE: Duration = Duration::from_millis(100);
/// And with the next at the latest after so many that had no room for them.
const PUT_OFF: u8 = 4;

/// The arrivals on a path that have not been reported.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    list: VecDeque<Arrival>,
    /// Bytes that came with them.
    bytes: u64,
    /// When the first of those came that the peer waits for.
    first: Option<Instant>,
    last_report: Option<Instant>,
    /// So many times what there is has not gone along with a datagram that had no room for it.
    put_off: u8,
    reports: u32,
    /// Bytes that all reports took.
    reported_bytes: u64,
}

impl Feedback {
    /// A datagram came. `awaited`: it had blocks, whose sender wants to know how the path is. (Answers to answers would never end.)
    pub(crate) fn on_arrival(&mut self, now: Instant, arrival: Arrival, bytes: u64, awaited: bool) {
        if self.list.len() == MOST {
            self.list.pop_front();
        }
        self.list.push_back(arrival);
        self.bytes += bytes;
        if awaited || self.reports < EAGER {
            self.first.get_or_insert(now);
        }
    }

    /// When a report is due, the round trip being `rtt`.
    pub(crate) fn due(&self, rtt: Duration) -> Option<Instant> {
        let first = self.first?;
        if self.reports < EAGER || self.list.len() >= FULL {
            return Some(first);
        }
        let cost = self.size() as u64;
        let wait =
            if cost * BYTES_A_BYTE <= self.bytes { (rtt / 4).clamp(SOON.0, SOON.1) } else { rtt.clamp(LATE.0, LATE.1) };
        Some(first + wait)
    }

    /// Whether what there is should go along with a datagram that leaves anyway.
    pub(crate) fn goes_along(&self, now: Instant, rtt: Duration) -> bool {
        let rests = || self.last_report.is_none_or(|last| now.saturating_duration_since(last) >= IDLE);
        self.due(rtt).map_or_else(rests, |due| now >= due)
    }

    /// Puts off what nobody waits for until another datagram leaves. Whether that can be done: a few times.
    pub(crate) fn put_off(&mut self) -> bool {
        let can_wait = self.first.is_none() && self.put_off < PUT_OFF;
        self.put_off += u8::from(can_wait);
        can_wait
    }

    /// The bytes of a report of it, about.
    pub(crate) fn size(&self) -> usize {
        (HEAD_BYTES + ARRIVAL_BYTES * self.list.len() as u64) as usize
    }

    /// What there is to report, the oldest first.
    pub(crate) fn arrivals(&mut self) -> &[Arrival] {
        self.list.make_contiguous()
    }

    /// So many of them have been reported, in a report of `bytes`.
    pub(crate) fn on_reported(&mut self, now: Instant, count: usize, bytes: usize) {
        self.list.drain(..count);
        self.reported_bytes += bytes as u64;
        self.put_off = 0;
        self.reports = self.reports.saturating_add(1);
        self.last_report = Some(now);
        self.bytes = 0;
        self.first = self.first.filter(|_| !self.list.is_empty());
    }

    /// Bytes that all reports took.
    pub(crate) fn reported_bytes(&self) -> u64 {
        self.reported_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(40);

    fn arrival(stamp: u32) -> Arrival {
        Arrival { stamp, received: stamp + 7, ce: false }
    }

    /// One that has reported often enough to be patient.
    fn patient(now: Instant) -> Feedback {
        let mut feedback = Feedback::default();
        for i in 0..EAGER {
            feedback.on_arrival(now, arrival(i), 1_200, true);
            assert_eq!(feedback.due(RTT), Some(now), "{i}");
            feedback.on_reported(now, 1, 13);
        }
        feedback
    }

    #[test]
    fn reports_are_soon_where_they_cost_little() {
        let now = Instant::now();
        let mut feedback = patient(now);
        assert_eq!(feedback.due(RTT), None);
        feedback.on_arrival(now, arrival(9), 300, true);
        assert_eq!(feedback.due(RTT), Some(now + RTT), "16 bytes for 300");
        feedback.on_arrival(now + MS, arrival(10), 1_700, true);
        assert_eq!(feedback.due(RTT), Some(now + MS * 10), "20 bytes for 2,000");
        assert_eq!(feedback.arrivals(), [arrival(9), arrival(10)]);
        feedback.on_reported(now + MS * 10, 1, 13);
        assert!(feedback.due(RTT).is_some(), "one did not fit");
        feedback.on_reported(now + MS * 10, 1, 13);
        assert_eq!(feedback.due(RTT), None);
    }

    #[test]
    fn what_nobody_waits_for_goes_along_now_and_then() {
        let now = Instant::now();
        let mut feedback = patient(now);
        feedback.on_arrival(now, arrival(9), 60, false);
        assert_eq!(feedback.due(RTT), None);
        assert!(!feedback.goes_along(now + IDLE / 2, RTT) && feedback.goes_along(now + IDLE, RTT));
    }

    #[test]
    fn what_nobody_waits_for_is_put_off_a_few_times() {
        let now = Instant::now();
        let mut feedback = patient(now);
        feedback.on_arrival(now, arrival(9), 60, false);
        assert_eq!((0..9).filter(|_| feedback.put_off()).count(), usize::from(PUT_OFF));
        feedback.on_reported(now, 1, 13);
        feedback.on_arrival(now, arrival(10), 60, true);
        assert!(!feedback.put_off(), "somebody waits for it");
    }

    #[test]
    fn memory_is_bounded() {
        let now = Instant::now();
        let mut feedback = patient(now);
        (0..10_000).for_each(|i| feedback.on_arrival(now, arrival(i), 60, false));
        assert_eq!(feedback.arrivals().len(), MOST);
        assert_eq!(feedback.arrivals().last(), Some(&arrival(9_999)));
    }
}
