//! The packets of a path, from leaving to what became of them.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::rate::Rate;

/// Packets remembered at most; of a path that carries more in flight the oldest are forgotten, and their arrivals tell nothing.
const MOST: usize = 65_536;

/// What became of a packet, as far as the receiver or QUIC has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    /// It arrived, this much later than over the empty path.
    Arrived(Duration),
    /// QUIC gave it up, and the receiver has not reported it.
    Lost,
}

/// A packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Its own stamp; if it has none, that of a packet before it.
    stamp: u32,
    has_stamp: bool,
    pub(crate) pn: u64,
    pub(crate) at: Instant,
    pub(crate) bytes: u16,
    /// Bytes that had left before it.
    pub(crate) before: u64,
    /// How long it was expected to wait at the narrowest link, behind packets of ours.
    pub(crate) wait: Duration,
    /// The path was so long idle before that nothing of ours can have been in its way.
    pub(crate) clean: bool,
    pub(crate) fate: Fate,
    /// How long its acknowledgement took, if that says so.
    pub(crate) answered: Option<Duration>,
}

/// The packets of a path in the order in which they left.
#[derive(Debug, Default)]
pub(crate) struct SentLog {
    packets: VecDeque<Sent>,
    /// How many have been removed from the front, so that a place has a number that stays.
    removed: u64,
    /// Bytes that have left.
    total: u64,
}

/// A packet's place in the log; it stays the same.
pub(crate) type Place = u64;

impl SentLog {
    /// A packet leaves; whether it has a stamp is told by [`set_stamp`](Self::set_stamp).
    pub(crate) fn push(&mut self, sent: Sent) {
        if self.packets.len() == MOST {
            self.packets.pop_front();
            self.removed += 1;
        }
        let stamp = self.packets.back().map_or(0, |sent| sent.stamp);
        self.packets.push_back(Sent { stamp, before: self.total, ..sent });
        self.total += u64::from(sent.bytes);
    }

    /// The last packet, which has this number, has a stamp.
    pub(crate) fn set_stamp(&mut self, pn: u64, stamp: u32) {
        if let Some(sent) = self.packets.back_mut().filter(|sent| sent.pn == pn) {
            (sent.stamp, sent.has_stamp) = (stamp, true);
        }
    }

    /// The packet with this stamp, if it is not known to have arrived. Stamps rise from packet to packet, modulo 2^32, but for copies of
    /// what left elsewhere, which may be a few places off.
    pub(crate) fn find(&self, stamp: u32) -> Option<Place> {
        let first = self.packets.front()?.stamp;
        let ahead = stamp.wrapping_sub(first).cast_signed();
        let before = |sent: &Sent| sent.stamp.wrapping_sub(first).cast_signed() < ahead;
        let at = self.packets.partition_point(before);
        let near = at.saturating_sub(4)..(at + 4).min(self.packets.len());
        let is_it = |sent: &Sent| sent.has_stamp && sent.stamp == stamp && !matches!(sent.fate, Fate::Arrived(_));
        near.clone().find(|&index| is_it(&self.packets[index])).map(|index| self.removed + index as u64)
    }

    /// The packet with this number.
    pub(crate) fn by_number(&self, pn: u64) -> Option<Place> {
        let at = self.packets.binary_search_by_key(&pn, |sent| sent.pn).ok()?;
        Some(self.removed + at as u64)
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Sent> {
        self.packets.get(usize::try_from(place.checked_sub(self.removed)?).ok()?)
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut Sent> {
        self.packets.get_mut(usize::try_from(place.checked_sub(self.removed)?).ok()?)
    }

    /// Whether the last packet is not on its way any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.packets.back().is_none_or(|sent| sent.fate != Fate::Open)
    }

    /// Since when the link has served the latest packet to have arrived of those before this one, and how many bytes it has served before this one since. If none has arrived, the same of
    /// packet `oldest`, from when it left.
    pub(crate) fn served_before(&self, sent: &Sent, oldest: u64) -> Option<(Instant, u64)> {
        let end = self.packets.partition_point(|other| other.before < sent.before);
        let arrived = |other: &Sent| match other.fate {
            Fate::Arrived(queue) => Some((other.at + queue, sent.before - other.before)),
            Fate::Open | Fate::Lost => None,
        };
        let latest = self.packets.range(..end).rev().find_map(arrived);
        latest.or_else(|| {
            let first = self.get(self.by_number(oldest)?).filter(|first| first.before <= sent.before)?;
            Some((first.at, sent.before - first.before))
        })
    }

    /// The packets behind a place.
    pub(crate) fn behind(&self, place: Place) -> impl ExactSizeIterator<Item = &Sent> {
        let from = (place + 1).saturating_sub(self.removed).min(self.packets.len() as u64);
        self.packets.range(from as usize..)
    }

    /// The queue that a packet would have found, near enough: what the last to leave before it that arrived found, as it has been served since, and as what left meanwhile has joined it, for as
    /// long as the `service` of each takes. Without one before it, that of the first behind.
    ///
    /// The longer of both neighbours' would say that chance strikes longer queues more often. So would the queue of long ago where frames leave at once, since of the first of a frame it would be what
    /// the last of the one before found; and so would, in a train, what the one before has added itself, which therefore counts only as far as it has been served.
    pub(crate) fn queue_beside(&self, place: Place, service: Option<Rate>) -> Option<Duration> {
        /// Packets looked at on either side: where a queue overflows after the link has become slower, hundreds on end are lost.
        const REACH: usize = 1_024;
        let at = usize::try_from(place.checked_sub(self.removed)?).ok()?.min(self.packets.len());
        let found = |sent: &Sent| match sent.fate {
            Fate::Arrived(queue) => Some(queue),
            Fate::Open | Fate::Lost => None,
        };
        let since = (at.saturating_sub(REACH)..at).rev().find(|&i| found(&self.packets[i]).is_some());
        let Some(since) = since else {
            return self.packets.range((at + 1).min(self.packets.len())..).take(REACH).find_map(found);
        };
        let mut queue = found(&self.packets[since])?;
        for (sent, next) in self.packets.range(since..at).zip(self.packets.range(since + 1..)) {
            let passed = next.at.saturating_duration_since(sent.at);
            let own = service.map_or(Duration::ZERO, |rate| rate.time_for(sent.bytes.into()));
            let joined = match sent.fate {
                Fate::Arrived(_) => own.min(passed),
                Fate::Open => own,
                Fate::Lost => Duration::ZERO,
            };
            queue = (queue + joined).saturating_sub(passed);
        }
        Some(queue)
    }

    /// Forgets packets that left before `since`.
    pub(crate) fn forget(&mut self, since: Instant) {
        while self.packets.front().is_some_and(|sent| sent.at < since) {
            self.packets.pop_front();
            self.removed += 1;
        }
    }
}

impl Sent {
    /// A packet that leaves now.
    pub(crate) fn new(pn: u64, at: Instant, bytes: u16, wait: Duration, clean: bool) -> Self {
        Self { stamp: 0, has_stamp: false, pn, at, bytes, before: 0, wait, clean, fate: Fate::Open, answered: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_across_the_turn_and_each_once() {
        let (now, mut log) = (Instant::now(), SentLog::default());
        let stamp = |i: u64| (u32::MAX - 50).wrapping_add(i as u32 * 3);
        for i in 0..100 {
            log.push(Sent::new(i * 2, now, 100, Duration::ZERO, false));
            log.set_stamp(i * 2, stamp(i));
        }
        for i in 0..100 {
            let place = log.find(stamp(i)).unwrap();
            assert_eq!(log.get(place).unwrap().pn, i * 2);
            assert_eq!(log.by_number(i * 2), Some(place));
            log.get_mut(place).unwrap().fate = Fate::Arrived(Duration::ZERO);
            assert_eq!(log.find(stamp(i)), None, "it has come already");
        }
        assert_eq!((log.find(stamp(3) + 1), log.by_number(3)), (None, None));
    }

    #[test]
    fn a_copy_with_an_older_stamp_is_found() {
        let (now, mut log) = (Instant::now(), SentLog::default());
        for (pn, stamp) in [(0, 10), (1, 12), (2, 11), (3, 13)] {
            log.push(Sent::new(pn, now, 100, Duration::ZERO, false));
            log.set_stamp(pn, stamp);
        }
        assert_eq!([10, 11, 12, 13].map(|stamp| log.find(stamp)), [Some(0), Some(2), Some(1), Some(3)]);
    }

    #[test]
    fn a_loss_is_told_what_its_neighbours_found() {
        let (ms, now, mut log) = (Duration::from_millis(1), Instant::now(), SentLog::default());
        (0..300).for_each(|i| log.push(Sent::new(u64::from(i), now + ms * i, 100, Duration::ZERO, false)));
        for (place, queue) in [(1, 1), (3, 9), (299, 3)] {
            log.get_mut(place).unwrap().fate = Fate::Arrived(ms * queue);
        }
        // What leaves takes as long as until the next leaves.
        let rate = Some(Rate::from_bytes_per_second(100e3));
        let beside = |place| log.queue_beside(place, rate).map(|queue| queue.as_millis());
        assert_eq!([2, 4, 200, 298].map(beside), [Some(1), Some(9), Some(9), Some(9)], "that of the one before");
        assert_eq!(beside(0), Some(1), "there is none before it");
        assert_eq!(beside(999), Some(3));
        log.forget(now + ms * 298);
        assert_eq!(log.get(297).map(|sent| sent.pn), None);
        assert_eq!(log.behind(298).map(|sent| sent.pn).collect::<Vec<_>>(), [299]);
        assert_eq!(log.queue_beside(298, rate), Some(ms * 3), "it is forgotten who was before it");
        assert_eq!(SentLog::default().queue_beside(0, rate), None);
    }

    #[test]
    fn a_queue_is_served_while_nothing_is_reported() {
        let (ms, now, mut log) = (Duration::from_millis(1), Instant::now(), SentLog::default());
        // Frames of ten packets at once, 20 ms apart, over a link that takes half a millisecond for each.
        (0..30).for_each(|i| log.push(Sent::new(u64::from(i), now + ms * (i / 10 * 20), 100, Duration::ZERO, false)));
        (0..10_u32).for_each(|i| log.get_mut(i.into()).unwrap().fate = Fate::Arrived(ms * i / 2));
        let rate = Some(Rate::from_bytes_per_second(200e3));
        let beside = |log: &SentLog, place| log.queue_beside(place, rate).map(|queue| queue.as_micros());
        assert_eq!(beside(&log, 10), Some(0), "the first of a frame, not the last of the one before");
        assert_eq!([14, 25].map(|place| beside(&log, place)), [Some(2_000), Some(2_500)]);
        log.get_mut(11).unwrap().fate = Fate::Lost;
        assert_eq!(beside(&log, 14), Some(1_500), "what was lost waits nowhere");
    }
}
