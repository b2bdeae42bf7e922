//! Redundancy groups: what came of each, until what did not come can be restored.
//!
//! A group is kept until all its symbols are there, or it has outlived its use, or there is no room for it; which of the three it
//! was makes no difference later: it is *over*, and what else comes of it is of no interest here.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rangemap::RangeSet;

use crate::{
    clock::Micros,
    error::ProtocolError,
    fec::{Code, LENGTH_PREFIX},
    frame::{RepairHead, SourceHead},
};

/// What keeping a symbol or shard costs besides its bytes, for accounting. The protocol allows 128: senders reckon with it.
const SYMBOL_OVERHEAD: u64 = 64;
/// What keeping a group costs besides. The protocol allows 512.
const GROUP_OVERHEAD: u64 = 384;
/// Groups are forgotten at multiples of this, so that a timer serves many of them. Microseconds.
const LIFE_STEP: Micros = 10_000;
/// The most separate ranges of ids that are remembered as over; beyond, the oldest gap counts as over, too. As the protocol has it.
const MAX_RANGES: usize = 4_096;

/// A group that is not over.
#[derive(Debug, Default)]
struct Group {
    sources: Shards,
    repairs: Shards,
    /// The longest symbol of `sources`, bytes.
    longest: usize,
    /// Known once a repair has come.
    code: Option<Code>,
    /// When it is of no use any more.
    expires: Micros,
}

impl Group {
    fn held(&self) -> u64 {
        GROUP_OVERHEAD + self.sources.held() + self.repairs.held()
    }

    /// # Errors
    /// If what has come cannot be of one group.
    fn check(&self) -> Result<(), ProtocolError> {
        let fits = self
            .code
            .is_none_or(|code| self.sources.end() <= code.sources && self.longest + LENGTH_PREFIX <= code.shard_len);
        if fits { Ok(()) } else { Err(ProtocolError::Repair) }
    }

    /// Whether all symbols are there or can be.
    fn is_decodable(&self) -> bool {
        self.code.is_some_and(|code| self.sources.len() + self.repairs.len() >= code.sources)
    }

    /// The symbols that have not come, once the group is decodable.
    fn restore(&self) -> Result<Vec<Bytes>, ProtocolError> {
        match self.code.filter(|code| self.sources.len() < code.sources) {
            Some(code) => code.restore(self.sources.iter(), self.repairs.iter()),
            None => Ok(Vec::new()),
        }
    }
}

/// Symbols or shards of a group, by index: copies, for the datagrams they came in may be parts of large buffers.
#[derive(Debug, Default)]
struct Shards {
    all: Vec<(u8, Box<[u8]>)>,
    /// A bit for each index.
    have: u128,
    bytes: u64,
}

impl Shards {
    /// Adds one with an index below 128; `false` if that is there.
    fn insert(&mut self, index: u8, bytes: &[u8]) -> bool {
        let bit = 1 << index;
        if self.have & bit != 0 {
            return false;
        }
        self.have |= bit;
        self.bytes += bytes.len() as u64;
        self.all.push((index, bytes.into()));
        true
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    /// One more than the highest index.
    fn end(&self) -> usize {
        (u128::BITS - self.have.leading_zeros()) as usize
    }

    fn held(&self) -> u64 {
        self.bytes + self.all.len() as u64 * SYMBOL_OVERHEAD
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.all.iter().map(|(index, bytes)| (usize::from(*index), &**bytes))
    }
}

/// Counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) recovered_bytes: u64,
    pub(crate) repair_bytes: u64,
    pub(crate) wasted_repair_bytes: u64,
}

/// The redundancy groups of one direction of a session.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The most that `held` may be.
    window: u64,
    live: BTreeMap<u64, Group>,
    /// Memory that `live` takes, roughly.
    held: u64,
    /// When live groups expire.
    expiries: BTreeSet<(Micros, u64)>,
    over: RangeSet<u64>,
    tally: Tally,
}

impl Groups {
    /// With room for `window` bytes, overheads included.
    pub(crate) fn new(window: u64) -> Self {
        let tally = Tally::default();
        Self { window, live: BTreeMap::new(), held: 0, expiries: BTreeSet::new(), over: RangeSet::new(), tally }
    }

    /// A symbol arrived. Returns those that can be restored now.
    pub(crate) fn on_source(
        &mut self,
        head: &SourceHead,
        symbol: &[u8],
        now: Micros,
    ) -> Result<Vec<Bytes>, ProtocolError> {
        let Some(mut group) = self.take(head.group, head.life, now) else { return Ok(Vec::new()) };
        // What comes a second time may differ, as a resent datagram does; the first will do.
        if group.sources.insert(head.index, symbol) {
            group.longest = group.longest.max(symbol.len());
        }
        self.put_back(head.group, group)
    }

    /// A repair arrived. Returns the symbols that can be restored now.
    pub(crate) fn on_repair(
        &mut self,
        head: &RepairHead,
        shard: &[u8],
        now: Micros,
    ) -> Result<Vec<Bytes>, ProtocolError> {
        let len = shard.len() as u64;
        self.tally.repair_bytes += len;
        let Some(mut group) = self.take(head.group, head.life, now) else {
            self.tally.wasted_repair_bytes += len;
            return Ok(Vec::new());
        };
        let code = Code { sources: head.sources.into(), repairs: head.repairs.into(), shard_len: shard.len() };
        if *group.code.get_or_insert(code) != code {
            return Err(ProtocolError::Repair);
        }
        if !group.repairs.insert(head.index, shard) {
            self.tally.wasted_repair_bytes += len;
        }
        self.put_back(head.group, group)
    }

    /// Bytes of a block were new that a restored symbol had.
    /// Bytes that are kept, overheads included.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn on_recovered(&mut self, bytes: u64) {
        self.tally.recovered_bytes += bytes;
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(crate) fn next_timeout(&self) -> Option<Micros> {
        self.expiries.first().map(|&(at, _)| at)
    }

    /// Forgets groups that are of no use any more.
    pub(crate) fn on_timeout(&mut self, now: Micros) {
        while let Some(&(_, id)) = self.expiries.first().filter(|(at, _)| *at <= now) {
            self.forget(id);
        }
    }

    /// Forgets all groups: the session is over.
    pub(crate) fn close(&mut self) {
        self.tally.wasted_repair_bytes += self.live.values().map(|group| group.repairs.bytes).sum::<u64>();
        *self = Self { tally: self.tally, ..Self::new(self.window) };
    }

    /// Whether there is nothing to forget.
    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// The group something has come of, known or new; `None` if it is over. It is to be [put back](Self::put_back).
    fn take(&mut self, id: u64, life: u64, now: Micros) -> Option<Group> {
        self.on_timeout(now);
        if self.over.contains(&id) {
            return None;
        }
        let mut group = self.live.remove(&id).inspect(|group| self.held -= group.held()).unwrap_or_default();
        let end = now.saturating_add(life.saturating_mul(1_000));
        let expires = (end / LIFE_STEP + 1).saturating_mul(LIFE_STEP);
        if expires > group.expires {
            self.expiries.remove(&(group.expires, id));
            self.expiries.insert((expires, id));
            group.expires = expires;
        }
        Some(group)
    }

    /// Does what can be done with a group to which something was added.
    fn put_back(&mut self, id: u64, group: Group) -> Result<Vec<Bytes>, ProtocolError> {
        group.check()?;
        if group.is_decodable() {
            let restored = group.restore()?;
            if restored.is_empty() {
                self.tally.wasted_repair_bytes += group.repairs.bytes;
            }
            self.expiries.remove(&(group.expires, id));
            self.end(id);
            return Ok(restored);
        }
        self.held += group.held();
        self.live.insert(id, group);
        while self.held > self.window
            && let Some((&oldest, _)) = self.live.first_key_value()
        {
            self.forget(oldest);
        }
        Ok(Vec::new())
    }

    /// Gives a live group up.
    fn forget(&mut self, id: u64) {
        let Some(group) = self.live.remove(&id) else { return };
        self.held -= group.held();
        self.expiries.remove(&(group.expires, id));
        self.tally.wasted_repair_bytes += group.repairs.bytes;
        self.end(id);
    }

    /// Remembers that a group is over.
    fn end(&mut self, id: u64) {
        self.over.insert(id..id + 1);
        if self.over.len() <= MAX_RANGES {
            return;
        }
        // A peer that leaves gaps for ever loses the oldest.
        if let Some(next) = self.over.iter().nth(1).map(|range| range.start) {
            self.over.insert(0..next);
            while let Some((&oldest, _)) = self.live.first_key_value().filter(|(id, _)| **id < next) {
                self.forget(oldest);
            }
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Groups {
    /// Panics if the books are wrong, or a bound is exceeded.
    pub(super) fn check(&self) {
        assert_eq!(self.held, self.live.values().map(Group::held).sum::<u64>());
        let expiries: BTreeSet<_> = self.live.iter().map(|(&id, group)| (group.expires, id)).collect();
        assert_eq!(self.expiries, expiries);
        assert!(self.held <= self.window);
        assert!(self.over.len() <= MAX_RANGES);
        assert!(!self.live.keys().any(|id| self.over.contains(id)));
        assert!(self.tally.wasted_repair_bytes <= self.tally.repair_bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::fec::Encoder;

    const LIFE: u64 = 50;

    /// What a sender makes of symbols.
    struct Sent {
        id: u64,
        symbols: Vec<Bytes>,
        repairs: Vec<Bytes>,
    }

    impl Sent {
        fn new(id: u64, sources: usize, repairs: usize) -> Self {
            let symbols: Vec<_> = (0..sources).map(|i| Bytes::from(vec![i as u8 + 1; 20 + i])).collect();
            let repairs = Encoder::new().encode(&symbols, repairs);
            Self { id, symbols, repairs }
        }

        fn head(&self, index: usize) -> RepairHead {
            let (sources, repairs) = (self.symbols.len() as u8, self.repairs.len() as u8);
            RepairHead { group: self.id, life: LIFE, sources, repairs, index: index as u8 }
        }

        fn source(&self, groups: &mut Groups, index: usize, now: Micros) -> Result<Vec<Bytes>, ProtocolError> {
            let head = SourceHead { group: self.id, index: index as u8, life: LIFE };
            groups.on_source(&head, &self.symbols[index], now)
        }

        fn repair(&self, groups: &mut Groups, index: usize, now: Micros) -> Result<Vec<Bytes>, ProtocolError> {
            groups.on_repair(&self.head(index), &self.repairs[index], now)
        }
    }

    const NOTHING: Result<Vec<Bytes>, ProtocolError> = Ok(Vec::new());

    #[test]
    fn repairs_stand_in_for_any_symbols() {
        let mut groups = Groups::new(1 << 20);
        let sent = Sent::new(7, 3, 2);
        assert_eq!(sent.repair(&mut groups, 1, 0), NOTHING);
        assert_eq!(sent.source(&mut groups, 1, 0), NOTHING);
        assert_eq!(sent.repair(&mut groups, 0, 0), Ok(vec![sent.symbols[0].clone(), sent.symbols[2].clone()]));
        assert!(groups.is_empty());
        assert_eq!(sent.source(&mut groups, 0, 0), NOTHING, "a straggler opens nothing");
        assert!(groups.is_empty());
        let len = sent.repairs[0].len() as u64;
        assert_eq!((groups.tally.repair_bytes, groups.tally.wasted_repair_bytes), (2 * len, 0));
    }

    #[test]
    fn repairs_that_are_not_needed_are_wasted() {
        let mut groups = Groups::new(1 << 20);
        let sent = Sent::new(7, 2, 3);
        let len = sent.repairs[0].len() as u64;
        for index in [0, 0] {
            assert_eq!(sent.repair(&mut groups, index, 0), NOTHING);
        }
        assert_eq!(groups.tally.wasted_repair_bytes, len, "the same twice");
        assert_eq!(sent.source(&mut groups, 1, 0), Ok(vec![sent.symbols[0].clone()]));
        assert_eq!(sent.repair(&mut groups, 2, 0), NOTHING);
        assert_eq!(groups.tally.wasted_repair_bytes, 2 * len, "too late");

        let sent = Sent::new(8, 2, 3);
        let len = len + sent.repairs[0].len() as u64;
        assert_eq!(sent.source(&mut groups, 0, 0), NOTHING);
        assert_eq!(sent.source(&mut groups, 1, 0), NOTHING);
        assert_eq!(groups.live.len(), 1, "nobody has said that there are no more");
        assert_eq!(sent.repair(&mut groups, 0, 0), NOTHING);
        assert_eq!(groups.tally.wasted_repair_bytes, len + len / 2);
        assert!(groups.is_empty());
    }

    #[test]
    fn a_group_is_forgotten_when_its_latest_life_has_run_out() {
        let mut groups = Groups::new(1 << 20);
        let sent = Sent::new(3, 2, 1);
        assert_eq!(sent.source(&mut groups, 0, 1_000), NOTHING);
        assert_eq!(sent.repair(&mut Groups::new(1 << 20), 0, 0), NOTHING);
        let first = groups.next_timeout().unwrap();
        assert!((51_001..=51_000 + LIFE_STEP).contains(&first), "{first}");
        // A shorter life changes nothing, a longer one does.
        let other = |life| SourceHead { group: 3, index: 0, life };
        assert_eq!(groups.on_source(&other(1), &[], 2_000), NOTHING);
        assert_eq!(groups.next_timeout(), Some(first));
        assert_eq!(groups.on_source(&other(LIFE + 20), &[], 2_000), NOTHING);
        groups.on_timeout(first);
        assert!(!groups.is_empty());
        let last = groups.next_timeout().unwrap();
        assert!(last > first + LIFE_STEP);
        // Nobody has called on_timeout, but it is as late as that.
        assert_eq!(sent.repair(&mut groups, 0, last), NOTHING);
        assert!(groups.is_empty());
        assert_eq!(groups.next_timeout(), None);
        groups.check();
    }

    #[test]
    fn the_longest_life_is_no_trouble() {
        let mut groups = Groups::new(1 << 20);
        for life in [u64::MAX, (1 << 62) - 1, 0] {
            let head = SourceHead { group: life / 2, index: 0, life };
            assert_eq!(groups.on_source(&head, b"x", u64::MAX - 5), NOTHING);
        }
        groups.check();
    }

    #[test]
    fn contradictions() {
        let sent = Sent::new(1, 3, 2);
        let refused = Err(ProtocolError::Repair);
        let with_repair = || {
            let mut groups = Groups::new(1 << 20);
            assert_eq!(sent.repair(&mut groups, 0, 0), NOTHING);
            groups
        };
        let (head, shard) = (sent.head(1), &sent.repairs[1]);
        assert_eq!(with_repair().on_repair(&RepairHead { sources: 4, ..head }, shard, 0), refused);
        assert_eq!(with_repair().on_repair(&RepairHead { repairs: 3, ..head }, shard, 0), refused);
        assert_eq!(with_repair().on_repair(&head, &shard[2..], 0), refused);
        let source = |index| SourceHead { group: 1, index, life: LIFE };
        let longest = vec![0; shard.len() - 2];
        assert_eq!(with_repair().on_source(&source(2), &longest, 0), NOTHING);
        assert_eq!(with_repair().on_source(&source(2), &[&longest[..], &[0]].concat(), 0), refused);
        assert_eq!(with_repair().on_source(&source(3), b"x", 0), refused);

        // And the other way round.
        let mut groups = Groups::new(1 << 20);
        assert_eq!(groups.on_source(&source(3), b"x", 0), NOTHING);
        assert_eq!(groups.on_repair(&head, shard, 0), refused);
        let mut groups = Groups::new(1 << 20);
        assert_eq!(groups.on_source(&source(0), &[&longest[..], &[0]].concat(), 0), NOTHING);
        assert_eq!(groups.on_repair(&head, shard, 0), refused);

        // What comes out is no shard.
        let mut groups = with_repair();
        assert_eq!(sent.source(&mut groups, 0, 0), NOTHING);
        let garbage = vec![0xff; shard.len()];
        assert_eq!(groups.on_repair(&head, &garbage, 0), refused);
    }

    #[test]
    fn the_first_of_two_symbols_stands() {
        let mut groups = Groups::new(1 << 20);
        let sent = Sent::new(1, 2, 1);
        assert_eq!(sent.source(&mut groups, 0, 0), NOTHING);
        let again = SourceHead { group: 1, index: 0, life: LIFE };
        assert_eq!(groups.on_source(&again, &[9; 500], 0), NOTHING);
        assert_eq!(sent.repair(&mut groups, 0, 0), Ok(vec![sent.symbols[1].clone()]));
    }

    #[test]
    fn beyond_the_window_the_lowest_ids_go_first() {
        let symbol = [0; 1_000];
        let mut groups = Groups::new(3 * (1_000 + SYMBOL_OVERHEAD + GROUP_OVERHEAD));
        for group in [5, 9, 7, 8, 3] {
            assert_eq!(groups.on_source(&SourceHead { group, index: 0, life: LIFE }, &symbol, 0), NOTHING);
            groups.check();
        }
        assert_eq!(groups.live.keys().copied().collect::<Vec<_>>(), [7, 8, 9]);
        let mut tiny = Groups::new(1);
        assert_eq!(tiny.on_source(&SourceHead { group: 1, index: 0, life: LIFE }, &symbol, 0), NOTHING);
        assert!(tiny.is_empty());
    }

    #[test]
    fn gaps_between_groups_that_are_over_are_not_remembered_for_ever() {
        let mut groups = Groups::new(1 << 20);
        let open = |groups: &mut Groups, id| {
            groups.on_source(&SourceHead { group: id, index: 0, life: LIFE }, b"x", 0).unwrap();
        };
        open(&mut groups, 3);
        for id in 0..3 * MAX_RANGES as u64 {
            let sent = Sent::new(10 + 2 * id, 1, 1);
            assert_eq!(sent.repair(&mut groups, 0, 0).unwrap().len(), 1);
            groups.check();
        }
        assert!(groups.over.contains(&11), "a gap long ago");
        assert!(!groups.over.contains(&(6 * MAX_RANGES as u64 - 1)), "a recent one");
        assert!(groups.is_empty(), "and what was in such a gap is gone");
    }

    /// What happens to one datagram: how late it comes, twice or not at all.
    fn any_fate() -> impl Strategy<Value = (u64, u8)> {
        (0..100_u64, prop_oneof![3 => Just(1_u8), 1 => Just(0), 1 => Just(2)])
    }

    proptest! {
        #[test]
        fn what_can_be_restored_is_once(
            sizes in vec((1..12_usize, 1..6_usize), 1..12),
            fates in vec(any_fate(), 12 * 17),
        ) {
            let sent: Vec<_> = sizes.iter().enumerate().map(|(id, &(m, n))| Sent::new(id as u64, m, n)).collect();
            let mut arrivals = Vec::new();
            let mut fate = fates.iter();
            for (which, group) in sent.iter().enumerate() {
                for shard in 0..group.symbols.len() + group.repairs.len() {
                    let &(delay, times) = fate.next().unwrap();
                    arrivals.extend((0..times).map(|again| (delay + u64::from(again), which, shard)));
                }
            }
            arrivals.sort_unstable();
            let mut groups = Groups::new(1 << 20);
            let mut came = vec![BTreeSet::new(); sent.len()];
            let mut restored = vec![Vec::new(); sent.len()];
            for (_, which, shard) in arrivals {
                let group = &sent[which];
                let m = group.symbols.len();
                let more = if shard < m {
                    group.source(&mut groups, shard, 0)
                } else {
                    group.repair(&mut groups, shard - m, 0)
                }.unwrap();
                let before = came[which].len();
                came[which].insert(shard);
                let missing: Vec<_> = (0..m).filter(|s| !came[which].contains(s)).collect();
                // One that needs a repair to be known waits for it.
                let decodable = came[which].len() >= m && before < m;
                let expected = missing.iter().map(|&s| group.symbols[s].clone()).collect::<Vec<_>>();
                prop_assert_eq!(&more, if decodable { &expected } else { const { &Vec::new() } });
                restored[which].extend(more);
                groups.check();
            }
            for (came, group) in came.iter().zip(&sent) {
                let over = came.len() >= group.symbols.len() && came.iter().any(|&s| s >= group.symbols.len());
                prop_assert_eq!(groups.live.contains_key(&group.id), !came.is_empty() && !over);
            }
            groups.on_timeout(1 << 40);
            prop_assert!(groups.is_empty());
            prop_assert_eq!(groups.held, 0);
        }

        #[test]
        fn arbitrary_steps(bytes in vec(any::<u8>(), 0..400)) {
            crate::fuzzing::repair(&bytes);
        }

        #[test]
        fn whatever_comes_stays_in_its_bounds(
            window in 0..8_000_u64,
            frames in vec((any::<bool>(), 0..30_u64, 0..6_u8, 1..6_u8, 1..6_u8, 0..40_u64, 1..20_usize, 0..30_000_u64), 1..200),
        ) {
            let mut groups = Groups::new(window);
            let mut now = 0;
            for (is_source, group, index, sources, repairs, life, half, pause) in frames {
                now += pause;
                let bytes = vec![index; 2 * half];
                let _ = if is_source {
                    groups.on_source(&SourceHead { group, index, life }, &bytes, now)
                } else {
                    let index = index % repairs;
                    groups.on_repair(&RepairHead { group, life, sources, repairs, index }, &bytes, now)
                };
                if groups.expiries.len() != groups.live.len() {
                    // An error: the session would be over.
                    groups = Groups::new(window);
                }
                groups.check();
                prop_assert!(groups.next_timeout().is_none_or(|at| at > now));
            }
        }
    }
}
