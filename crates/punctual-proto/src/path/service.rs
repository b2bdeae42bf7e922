//! How fast the narrowest link serves us, by what comes out of its queue.

use std::time::Duration;

use crate::rate::Rate;

/// So many gaps between arrivals tell a rate. Packets that arrive at one moment, as a receiver reads them or a radio link hands
/// them on, make one gap.
const LEAST_GAPS: f64 = 2.0;
/// A gap of this many times what a packet takes is one in which the link was idle,
const IDLE: f64 = 3.0;
/// if it is no longer than this many times that between the packets as they left.
const AS_SENT: f64 = 1.1;
/// Old gaps are remembered over this many at least.
const MEMORY_GAPS: f64 = 6.0;
/// A packet of a queue comes early if it does by more than this, microseconds, and by more than so many packets take at the queue's pace,
const EARLY: (f64, f64) = (1_000.0, 1.5);
/// each taken for so much of that, as what is lost in between makes the pace seem slower.
const HASTE: f64 = 0.9;
/// A queue comes unevenly if more than this share of it comes early.
const UNEVEN: f64 = 0.5;
/// A packet that was there at the narrowest link this share of a gap too late still belongs to the queue: clocks have a grain.
const TOLERANCE: f64 = 0.05;

/// Bytes that came out of a queue, and the time that took; the past fades as service goes on.
///
/// A packet was in the queue behind another if, over the empty path, it would have come before that one did. From one such arrival
/// to the next the narrowest link was busy with what came, so the gap tells its rate, however little is sent in all: a frame's packets tell
/// as much as a bulk transfer. All times are the receiver's, so nothing on the way back matters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Service {
    /// The latest packet to come.
    last: Option<Arrived>,
    /// A gap has been counted, and nothing came since that was not in its queue.
    in_run: bool,
    bytes: f64,
    /// Microseconds.
    time: f64,
    gaps: f64,
    /// The longest gap that was counted lately, from one arrival to the other, and what it counts for by now: what came in it may be told of later.
    longest: (i64, i64, f64),
    /// When all that came would have, at the pace of the queue; microseconds.
    due: f64,
    /// Bytes that came early.
    early: f64,
    /// The last gap, and the bytes that came at its end; and the greatest pace of two gaps on end since that was last asked for.
    gap: Option<(f64, f64)>,
    swift: Rate,
}

/// A packet's arrival. Times are microseconds; `at` is the receiver's, the others, too, but for the delay of the empty path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) at: i64,
    /// When it would have come over the empty path.
    pub(crate) empty: i64,
    pub(crate) bytes: u16,
}

/// What an arrival says of the narrowest link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The packet was in a queue behind the one that came before it.
    Queue,
    /// The link was idle before: it had no queue, whatever the delay.
    Idle,
    /// Neither is certain.
    Unclear,
}

impl Service {
    /// A packet came. What it waits less than `slack` may be jitter. After `memory` of service, or some gaps, an old gap counts for 1/e;
    /// and none counts for more than that: a link that stood still goes on as before.
    pub(crate) fn on_arrival(&mut self, arrived: Arrived, slack: Duration, memory: Duration) -> Found {
        let Arrived { at, empty, bytes } = arrived;
        let Some(before) = self.last else {
            self.last = Some(arrived);
            return Found::Idle;
        };
        if at < before.at {
            // Of a report that was overtaken. Behind what it came is not known; only whether the time in which it did has been counted.
            let (from, until, weight) = self.longest;
            if (from..until).contains(&at) {
                self.bytes += f64::from(bytes) * weight;
            }
            return Found::Unclear;
        }
        let gap = at.saturating_sub(before.at);
        self.last = Some(arrived);
        // As far apart as they left, and much further than they would come out of a queue: nothing was in the way of either, even if
        // both took longer than ever before.
        let as_sent = gap as f64 <= AS_SENT * empty.saturating_sub(before.empty) as f64;
        let rested =
            self.rate().is_some_and(|rate| gap as f64 >= IDLE * rate.time_for(bytes.into()).as_micros() as f64);
        let there = empty.saturating_add(slack.as_micros() as i64);
        let behind = there as f64 <= before.at as f64 + TOLERANCE * gap as f64;
        if !behind || as_sent && rested {
            self.in_run = false;
            self.gap = None;
            return if rested { Found::Idle } else { Found::Unclear };
        }
        self.note_pace(gap as f64, bytes.into());
        if gap > 0 {
            let memory = (memory.as_micros() as f64).max(MEMORY_GAPS * self.time / self.gaps.max(1.0));
            let gap = if self.gaps < 1.0 { gap as f64 } else { (gap as f64).min(memory) };
            let keep = (-gap / memory.max(1.0)).exp();
            self.bytes *= keep;
            self.early *= keep;
            self.time = self.time * keep + gap;
            self.gaps = self.gaps * keep + 1.0;
            let (from, until, weight) = self.longest;
            self.longest = match at - before.at >= until - from || at - until > memory as i64 {
                true => (before.at, at, 1.0),
                false => (from, until, weight * keep),
            };
            if !std::mem::replace(&mut self.in_run, true) {
                self.due = at as f64;
            }
        }
        if self.in_run {
            self.bytes += f64::from(bytes);
            self.compare(at as f64, bytes.into());
        }
        Found::Queue
    }

    /// A packet came out of the queue so long after the one before it.
    fn note_pace(&mut self, gap: f64, bytes: f64) {
        match &mut self.gap {
            Some((_, came)) if gap == 0.0 => *came += bytes,
            _ if gap == 0.0 => {}
            last => {
                if let Some((before, came)) = last.replace((gap, bytes)) {
                    self.swift = self.swift.max(Rate::from_bytes_per_second((came + bytes) * 1e6 / (before + gap)));
                }
            }
        }
    }

    /// Holds a packet that came `at` to the pace of the queue.
    fn compare(&mut self, at: f64, bytes: f64) {
        let Some(rate) = self.rate() else { return };
        let each = bytes * 1e6 / rate.bytes_per_second();
        if self.due - at > EARLY.0.max(EARLY.1 * each) {
            self.early += bytes;
        }
        self.due = self.due.max(at) + each * HASTE;
    }

    /// Whether what waits comes by fits and starts: packets that are late by chance hold up those behind them, which then come at once, as if
    /// there had been a queue. One of our own is served evenly, if others share the link nearly so.
    pub(crate) fn is_uneven(&self) -> bool {
        self.early > UNEVEN * self.bytes
    }

    /// The greatest pace at which a few packets came out of a queue since this was last asked: the narrowest link is no slower.
    pub(crate) fn take_swift(&mut self) -> Rate {
        std::mem::take(&mut self.swift)
    }

    /// The rate, once there is enough to tell.
    pub(crate) fn rate(&self) -> Option<Rate> {
        (self.gaps >= LEAST_GAPS).then(|| Rate::from_bytes_per_second(self.bytes * 1e6 / self.time.max(1.0)))
    }

    /// Nothing that was seen is to be compared with what comes.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Duration = Duration::from_millis(50);
    const DELAY: i64 = 20_000;

    /// Packets that leave at these microseconds over a link that takes `each` for one.
    fn serve(service: &mut Service, sent: impl IntoIterator<Item = i64>, each: i64) -> usize {
        let mut free = 0;
        let mut queued = 0;
        for at in sent {
            free = free.max(at) + each;
            let arrived = Arrived { at: free + DELAY, empty: at + each + DELAY, bytes: 1_000 };
            queued += usize::from(service.on_arrival(arrived, Duration::ZERO, MEMORY) == Found::Queue);
        }
        queued
    }

    fn megabytes(service: &Service) -> Option<f64> {
        service.rate().map(|rate| (rate.bytes_per_second() / 1e4).round() / 1e2)
    }

    #[test]
    fn bursts_tell_the_rate_of_a_path_that_is_hardly_used() {
        let mut service = Service::default();
        assert_eq!(serve(&mut service, (0..40).map(|i| 50_000 * (i / 4)), 1_000), 30);
        assert_eq!(megabytes(&service), Some(1.0));
    }

    #[test]
    fn what_others_put_in_between_now_and_then_does_not_hide_what_the_link_carries() {
        let (mut service, mut free) = (Service::default(), 0);
        for i in 0..100 {
            // A millisecond each, and three of others before each third.
            free += if i % 3 == 0 { 4_000 } else { 1_000 };
            let arrived = Arrived { at: free + DELAY, empty: 500 * i + DELAY, bytes: 1_000 };
            service.on_arrival(arrived, Duration::ZERO, MEMORY);
        }
        assert!(megabytes(&service).is_some_and(|rate| rate < 0.6));
        assert!((0.99..1.01).contains(&(service.take_swift().bytes_per_second() / 1e6)));
        assert_eq!(service.take_swift(), Rate::ZERO);
    }

    /// Reports overtake each other where they come back by several paths. What has come then came in its time, be that counted already or not.
    #[test]
    fn a_report_that_was_overtaken_makes_no_link_faster() {
        for (apart, known) in [(0, 0.64), (1_000, 1.0)] {
            let mut service = Service::default();
            let mut tell = |packets: std::ops::Range<i64>| {
                for i in packets {
                    // They left at once, or as fast as they come, four milliseconds before.
                    let arrived = Arrived { at: DELAY + 1_000 * i, empty: DELAY + apart * i - 4_000, bytes: 1_000 };
                    service.on_arrival(arrived, Duration::ZERO, MEMORY);
                }
                megabytes(&service)
            };
            assert_eq!(tell(1..21), Some(1.0));
            // Those between are told of later.
            assert_eq!(tell(41..61), Some(known), "{apart}");
            let then = tell(21..41);
            assert!(then.is_some_and(|then| (0.9..=1.0).contains(&then)), "{apart}: {then:?}");
        }
    }

    #[test]
    fn packets_apart_tell_nothing() {
        let mut service = Service::default();
        assert_eq!(serve(&mut service, (0..40).map(|i| 1_200 * i), 1_000), 0);
        assert_eq!(megabytes(&service), None);
    }

    #[test]
    fn a_link_that_becomes_slower_is_noticed_within_its_memory() {
        let mut service = Service::default();
        serve(&mut service, (0..100).map(|i| 900 * i), 1_000);
        assert_eq!(megabytes(&service), Some(1.0));
        serve(&mut service, (0..30).map(|i| 200_000 + 900 * i), 5_000);
        assert!(megabytes(&service).unwrap() < 0.3, "{:?}", service.rate());
    }

    #[test]
    fn what_arrives_together_is_one_gap() {
        let mut service = Service::default();
        // Eight packets every 4 ms, all sent long before.
        for i in 0..64 {
            let arrived = Arrived { at: 100_000 + i / 8 * 4_000, empty: i, bytes: 1_000 };
            service.on_arrival(arrived, Duration::ZERO, Duration::from_secs(10));
        }
        assert!((service.rate().unwrap().bytes_per_second() - 2e6).abs() < 1e3, "{:?}", service.rate());
    }

    #[test]
    fn a_route_that_becomes_longer_is_no_queue() {
        let mut service = Service::default();
        let burst = |i: i64| 33_000 * (i / 10);
        serve(&mut service, (0..100).map(burst), 1_000);
        // All that comes is 50 ms later than it was.
        let (mut free, mut queued) = (0, 0);
        for i in 10..20_i64 {
            for packet in 0..10 {
                let sent = i * 33_000 + 1_000_000;
                free = free.max(sent) + 1_000;
                let arrived = Arrived { at: free + DELAY + 50_000, empty: sent + 1_000 + DELAY, bytes: 1_000 };
                let found = service.on_arrival(arrived, Duration::ZERO, MEMORY);
                queued += usize::from(packet == 0 && i > 10 && found == Found::Queue);
            }
        }
        assert_eq!(queued, 0);
        assert_eq!(megabytes(&service), Some(1.0));
    }

    #[test]
    fn jitter_hands_over_by_fits_and_starts_and_a_link_evenly() {
        // Packets each 400 microseconds over a link that takes 100 for one, up to 12 ms late by chance and in order.
        let mut jittery = Service::default();
        let mut before = 0;
        for i in 0..1_000_i64 {
            before = (400 * i + i * i * 7_919 % 12_007).max(before + 100);
            jittery.on_arrival(Arrived { at: before, empty: 400 * i, bytes: 1_000 }, Duration::ZERO, MEMORY);
        }
        assert!(jittery.is_uneven());
        // A link that is full, beside another flow or not; and one that loses one packet in twelve.
        for (lost, beside) in [(0, 0), (0, 3), (12, 0)] {
            let mut full = Service::default();
            let kept = (1..1_000_i64).filter(|i| lost == 0 || i % lost != 0);
            for i in kept {
                let at = 500 * i + if beside > 0 { i / beside * 500 } else { 0 };
                full.on_arrival(Arrived { at, empty: 400 * i, bytes: 1_000 }, Duration::ZERO, MEMORY);
            }
            assert!(!full.is_uneven(), "{lost} {beside}");
        }
    }

    #[test]
    fn a_stall_counts_little() {
        let mut service = Service::default();
        let at = |i: i64| 1_000 * i + if i > 50 { 800_000 } else { 0 };
        for i in 0..150 {
            service.on_arrival(Arrived { at: at(i), empty: 0, bytes: 1_000 }, Duration::ZERO, MEMORY);
        }
        assert!(megabytes(&service).unwrap() > 0.85, "{:?}", service.rate());
    }

    #[test]
    fn jitter_is_no_queue() {
        let mut service = Service::default();
        // Two packets each 20 ms, a few milliseconds late each, in order.
        let queued = (0..100_i64).filter(|i| {
            let sent = i / 2 * 20_000;
            let late = (i * 7 % 5) * 1_000;
            let arrived = Arrived { at: sent + late.max(i % 2 * 4_000), empty: sent, bytes: 1_000 };
            service.on_arrival(arrived, Duration::from_millis(5), MEMORY) == Found::Queue
        });
        assert_eq!(queued.count(), 0);
    }
}
