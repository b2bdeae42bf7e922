//! A live block at its sender: which of its bytes are where.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rangemap::RangeSet;

use super::{channels::Place, filling::Filling, late::Use, second_try::SecondTry};
use crate::{
    base::PathId,
    base::Remains,
    block::{BlockId, Channel, DropReason, Redundancy, weight},
};

/// Whether the peer knows the block's size, deadline and begin time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InfoState {
    /// It must travel with the next fragment.
    Due,
    /// It is on its way.
    InFlight,
    /// The peer has it.
    Known,
}

/// A block between `send` and its outcome.
#[derive(Debug)]
pub(crate) struct LiveBlock {
    pub(crate) id: BlockId,
    /// Its bytes; none once it is dying.
    pub(crate) data: Bytes,
    /// As it [counts](weight).
    size: u64,
    is_empty: bool,
    pub(crate) begin: Instant,
    /// As the application has said it.
    said: Option<Duration>,
    /// What it is sent by: the same, or what that is [taken for](super::late::Forecast::taken_for).
    pub(crate) deadline: Option<Duration>,
    pub(crate) priority: u8,
    pub(crate) redundancy: Redundancy,
    /// Its channel and its position there.
    pub(crate) channel: Option<Place>,
    /// Whether it has used up credit: its info has been sent at least once.
    pub(crate) opened: bool,
    pub(crate) info: InfoState,
    /// Deadline and priority as its info says them; a later change travels in an UPDATE.
    announced: Option<(Option<Duration>, u8)>,
    /// All bytes below have been sent at least once.
    frontier: u64,
    /// Bytes below the frontier that are lost and must go again.
    lost: RangeSet<u64>,
    /// How many these are.
    lost_bytes: u64,
    /// Where bytes of it were lost last.
    pub(crate) lost_on: Option<PathId>,
    /// Bytes that were lost at some time, and of which it is not known yet whether they came through after all.
    missed: RangeSet<u64>,
    /// Bytes the peer's QUIC has acknowledged.
    acked: Filling,
    /// Those of these that follow from the fate of their groups alone; whether the info does, too; and how many were counted as good.
    presumed: RangeSet<u64>,
    presumed_info: bool,
    presumed_good: u64,
    /// When these are doubted.
    pub(super) doubt_at: Option<Instant>,
    /// How many bytes were acknowledged while they could still be of use.
    pub(crate) good_bytes: u64,
    /// The priority of the most important block that depends on it.
    pub(crate) lent_priority: u8,
    /// When all of it that has left, and all it depends on, should be there, unless something of it was lost.
    pub(super) expected: Option<Instant>,
    /// It cannot be in time itself, but others can that depend on it.
    pub(crate) others: Option<Use>,
    /// What was lost of it can no longer arrive in time: it waits for its deadline, unless the peer has it after all.
    pub(crate) hopeless: bool,
    /// It was dropped here, but the peer may have it whole: its word decides.
    pub(crate) dying: Option<DropReason>,
    /// When answers were last looked for, the peer's was missing.
    pub(crate) owed: bool,
    /// When what is lost of it goes again.
    pub(super) second_try: SecondTry,
}

impl LiveBlock {
    pub(crate) fn new(
        id: BlockId,
        data: Bytes,
        begin: Instant,
        deadline: Option<Duration>,
        priority: u8,
        redundancy: Redundancy,
        channel: Option<Place>,
    ) -> Self {
        Self {
            id,
            size: weight(data.len() as u64),
            is_empty: data.is_empty(),
            data,
            begin,
            said: deadline,
            deadline,
            priority,
            redundancy,
            channel,
            opened: false,
            info: InfoState::Due,
            announced: None,
            frontier: 0,
            lost: RangeSet::new(),
            lost_bytes: 0,
            lost_on: None,
            missed: RangeSet::new(),
            acked: Filling::default(),
            presumed: RangeSet::new(),
            presumed_info: false,
            presumed_good: 0,
            doubt_at: None,
            good_bytes: 0,
            lent_priority: u8::MAX,
            expected: None,
            others: None,
            hopeless: false,
            dying: None,
            owed: false,
            second_try: SecondTry::default(),
        }
    }

    /// Its size as it counts for credit, room and progress.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Its size as the application and the peer are told.
    pub(crate) fn told_size(&self) -> u64 {
        if self.is_empty { 0 } else { self.size }
    }

    /// Whether it has no bytes, so that it arrives with its info.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The application says another deadline, which is taken for `taken`.
    pub(super) fn set_deadline(&mut self, said: Option<Duration>, taken: Option<Duration>) {
        (self.said, self.deadline) = (said, taken);
    }

    /// The deadline that the application has said.
    pub(super) fn said_deadline(&self) -> Option<Duration> {
        self.said
    }

    /// The moment after which the block is worthless.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.begin.checked_add(self.deadline?)
    }

    /// The moment it is sent by: that of others, if it is for their sake.
    pub(super) fn serving_due(&self) -> Option<Instant> {
        self.begin.checked_add(self.serving_deadline()?)
    }

    /// The deadline it is sent by, counted from `begin`: that of others, if it is for their sake.
    pub(crate) fn serving_deadline(&self) -> Option<Duration> {
        match self.others {
            None => self.deadline,
            Some(Use::Until(until)) => Some(until.saturating_duration_since(self.begin)),
            Some(Use::Anytime) => None,
        }
    }

    /// Bytes that have yet to be put on the wire, those to be sent again included.
    pub(crate) fn unsent(&self) -> u64 {
        if self.dying.is_some() {
            return 0;
        }
        self.size - self.frontier + self.lost_bytes
    }

    /// Whether it has bytes that are still to be sent.
    pub(crate) fn goes_on(&self) -> bool {
        self.unsent() > 0 && !self.hopeless
    }

    /// How far it has come.
    pub(crate) fn remains(&self) -> Remains {
        let missing: u64 = self.acked.gaps(0..self.size).map(|gap| len(&gap)).sum();
        let never_sent = self.size - self.frontier;
        Remains {
            size: self.size,
            never_sent,
            lost: self.lost_bytes,
            unanswered: missing.saturating_sub(never_sent + self.lost_bytes),
            arrived: self.size - missing,
        }
    }

    /// Bytes that have been on the wire, each counted once.
    pub(crate) fn sent(&self) -> u64 {
        self.frontier
    }

    /// Whether every byte has been on the wire, so that the peer may have them all.
    pub(crate) fn all_sent_once(&self) -> bool {
        self.frontier == self.size()
    }

    /// Whether there is nothing left but for the peer to say what became of it.
    pub(crate) fn awaits_word(&self) -> bool {
        self.dying.is_some() || self.info == InfoState::Known && self.acked.gaps(0..self.size).next().is_none()
    }

    /// Whether the peer owes a word on it, given whose [turn](super::store::Store::turns) it is in each channel.
    pub(super) fn is_owed(&self, turns: &BTreeMap<Channel, u64>) -> bool {
        let waits = self.channel.is_some_and(|(channel, at)| turns.get(&channel).is_some_and(|first| at > *first));
        self.dying.is_some() || self.awaits_word() && !waits
    }

    /// The next bytes to send: what was lost first, then what is new; `true` if they are sent again.
    pub(crate) fn next_range(&self) -> Option<(Range<u64>, bool)> {
        if let Some(range) = self.lost.first() {
            return Some((range.clone(), true));
        }
        (self.frontier < self.size()).then(|| (self.frontier..self.size(), false))
    }

    /// Deadline and priority for its info, which must say the same each time.
    pub(crate) fn announced(&self) -> (Option<Duration>, u8) {
        self.announced.unwrap_or((self.said, self.priority))
    }

    /// Its info went out.
    pub(crate) fn on_info_sent(&mut self) {
        self.announced = Some(self.announced());
        self.info = InfoState::InFlight;
    }

    /// `range`, the head of [`next_range`](Self::next_range), went out.
    pub(crate) fn on_sent(&mut self, range: Range<u64>) {
        if range.end > self.frontier {
            debug_assert_eq!(range.start, self.frontier, "new bytes go out in order");
            self.frontier = range.end;
        } else {
            self.forget_loss(range);
        }
    }

    /// The peer's QUIC has `range`. Returns how many bytes of it had been lost before.
    pub(crate) fn on_acked(&mut self, range: Range<u64>, now: Instant) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let news = self.acked.gaps(range.clone()).map(|gap| len(&gap)).sum::<u64>();
        if !self.is_empty && self.due().is_none_or(|due| now <= due) {
            self.good_bytes += news;
        }
        // It may have been given up before; there is no need to send it again.
        self.forget_loss(range.clone());
        let mut regained = 0;
        if !self.missed.is_empty() {
            regained = overlap(&self.missed, &range);
            self.missed.remove(range.clone());
        }
        if !self.presumed.is_empty() {
            self.presumed.remove(range.clone());
        }
        self.acked.insert(range);
        regained
    }

    /// The peer's QUIC has the info.
    pub(super) fn on_info_acked(&mut self) {
        (self.info, self.presumed_info) = (InfoState::Known, false);
    }

    /// The peer could restore `range`, and if so the info, from what its QUIC has.
    /// Returns how many bytes of it had been lost before.
    pub(super) fn presume(&mut self, range: Range<u64>, with_info: bool, now: Instant) -> u64 {
        if with_info && self.info != InfoState::Known {
            (self.info, self.presumed_info) = (InfoState::Known, true);
        }
        if range.is_empty() {
            return 0;
        }
        let (gaps, before): (Vec<_>, _) = (self.acked.gaps(range.clone()).collect(), self.good_bytes);
        let earlier = std::mem::take(&mut self.presumed);
        let regained = self.on_acked(range, now);
        self.presumed = earlier;
        self.presumed.extend(gaps);
        self.presumed_good += self.good_bytes - before;
        regained
    }

    /// Whether the peer has something of it only as far as one can tell.
    pub(super) fn is_presumed(&self) -> bool {
        self.presumed_info || !self.presumed.is_empty()
    }

    /// The peer does not have what it was presumed to have.
    pub(super) fn take_back(&mut self) {
        let mut presumed = std::mem::take(&mut self.presumed);
        if std::mem::take(&mut self.presumed_info) {
            self.info = InfoState::Due;
            // It needs a fragment to travel with.
            presumed.insert(0..1);
        }
        let bytes: u64 = presumed.iter().map(len).sum();
        self.good_bytes -= std::mem::take(&mut self.presumed_good).min(bytes).min(self.good_bytes);
        for range in presumed {
            self.acked.remove(range.clone());
            self.lose(range);
        }
    }

    /// Whether any of `range` is not known to have arrived.
    pub(crate) fn lacks(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.acked.gaps(range.clone()).next().is_some()
    }

    /// Bytes that were lost, and of which nothing was heard since.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.iter().map(len).sum()
    }

    /// `range` was lost on `path`. Returns whether that makes any byte due again.
    pub(crate) fn on_lost(&mut self, range: Range<u64>, path: PathId) -> bool {
        if range.is_empty() {
            return false;
        }
        let any = self.lose(range);
        if any {
            self.lost_on = Some(path);
        }
        any
    }

    /// What the peer is not known to have, but for what is `made_good` otherwise, is due again; and its info, if it is not known to have that.
    pub(super) fn miss_all(&mut self, made_good: &RangeSet<u64>, path: PathId) -> RangeSet<u64> {
        let missing: RangeSet<u64> =
            self.acked.gaps(0..self.size).flat_map(|gap| made_good.gaps(&gap).collect::<Vec<_>>()).collect();
        for range in missing.iter() {
            self.on_lost(range.clone(), path);
        }
        if !missing.is_empty() && self.info == InfoState::InFlight {
            self.info = InfoState::Due;
        }
        missing
    }

    /// What the peer does not have of `range`, which is not empty, is due again. Whether that is anything.
    fn lose(&mut self, range: Range<u64>) -> bool {
        let mut any = false;
        for missing in self.acked.gaps(range) {
            self.lost_bytes += self.lost.gaps(&missing).map(|gap| len(&gap)).sum::<u64>();
            self.lost.insert(missing.clone());
            self.missed.insert(missing);
            any = true;
        }
        any
    }

    /// The bytes of `range` need not go again.
    fn forget_loss(&mut self, range: Range<u64>) {
        if !self.lost.is_empty() {
            self.lost_bytes -= overlap(&self.lost, &range);
            self.lost.remove(range);
        }
    }
}

/// How many bytes of `range` are in `set`.
fn overlap(set: &RangeSet<u64>, range: &Range<u64>) -> u64 {
    set.overlapping(range).map(|part| part.end.min(range.end) - part.start.max(range.start)).sum()
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(size: usize) -> LiveBlock {
        LiveBlock::new(BlockId(0), Bytes::from(vec![0; size]), Instant::now(), None, 0, Redundancy::Auto, None)
    }

    #[test]
    fn lost_bytes_go_before_new_ones_and_acked_ones_never_again() {
        let mut b = block(100);
        b.on_sent(0..40);
        b.on_sent(40..60);
        assert_eq!(b.unsent(), 40);
        b.on_acked(10..20, b.begin);
        assert!(b.on_lost(0..40, PathId(0)));
        assert_eq!(b.unsent(), 40 + 30);
        assert_eq!(b.next_range(), Some((0..10, true)));
        b.on_sent(0..10);
        assert_eq!(b.next_range(), Some((20..40, true)));
        b.on_acked(20..40, b.begin);
        assert_eq!(b.next_range(), Some((60..100, false)));
        assert_eq!(b.good_bytes, 30);
        assert!(!b.on_lost(10..20, PathId(0)), "acknowledged bytes cannot be lost");
    }

    #[test]
    fn a_packet_may_have_carried_info_and_no_bytes() {
        let mut b = block(100);
        b.on_acked(0..0, b.begin);
        assert!(!b.on_lost(0..0, PathId(0)));
        assert_eq!(b.unsent(), 100);
    }

    proptest! {
        #[test]
        fn unsent_bytes_are_those_lost_and_those_new(
            steps in prop::collection::vec((0u64..200, 0u64..60, any::<bool>()), 0..100)
        ) {
            let mut b = block(200);
            b.on_sent(0..200);
            for (start, len, acked) in steps {
                let range = start..(start + len).min(200);
                match acked {
                    true => drop(b.on_acked(range, b.begin)),
                    false => drop(b.on_lost(range, PathId(0))),
                }
                prop_assert_eq!(b.unsent(), b.lost.iter().map(|range| range.end - range.start).sum::<u64>());
                if let Some((range, true)) = b.next_range().filter(|_| start % 3 == 0) {
                    b.on_sent(range.start..range.start + (range.end - range.start).min(7));
                }
            }
        }
    }
}
