//! One redundancy group at its sender: what went, what is known of it, and what follows.
//!
//! The sender infers from acknowledgements alone what the receiver could restore: any m of the m + n fragments will do (DTP,
//! section IV-C). So a lost fragment of a group is not sent again as long as those still on their way may make up for it, and
//! when they cannot, just as many more repair fragments follow as are missing.

use std::{ops::Range, time::Instant};

use bytes::Bytes;

use super::packetize::{Contents, Piece};
use crate::{base::PathId, block::BlockId};

/// Where the symbol in a packet belongs. Repair fragments are counted on from m.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) group: u64,
    pub(crate) index: u8,
}

/// What is known of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be sent.
    Due,
    InFlight,
    Acked,
    Lost,
    /// Made, and kept for when more than expected is lost.
    Spare,
}

/// A source fragment.
#[derive(Debug)]
struct Source {
    contents: Contents,
    symbol: Bytes,
    /// Bytes of blocks in it.
    len: u64,
    /// Where it was to go, and once it was lost, where that was.
    path: PathId,
    state: State,
}

/// A repair fragment.
#[derive(Debug)]
struct Repair {
    shard: Bytes,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// More sources may come.
    Open,
    /// It has its repairs.
    Closed,
    /// The receiver has all of it, or could restore it: only what becomes of its packets is still of interest.
    Restored,
    /// Given up; likewise.
    Failed,
}

/// What follows from a symbol's fate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The receiver has these, or could restore them.
    pub(crate) recovered: Vec<Contents>,
    /// Bytes of blocks that were lost, and need not have been.
    pub(crate) restored: u64,
    /// These are lost, and the group cannot help; with the path of the loss.
    pub(crate) lost: Vec<(Contents, PathId)>,
    /// Repair fragments, by index, that are to go now.
    pub(crate) more: Vec<u8>,
}

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    sources: Vec<Source>,
    repairs: Vec<Repair>,
    phase: Phase,
    /// The priority of its most important block.
    pub(crate) priority: u8,
    /// Whether what is lost may be sent again.
    pub(crate) resends: bool,
    /// Blocks in it are sent again at a time of their own: until then nothing is done about what is lost.
    pub(crate) in_its_time: bool,
    /// The application wants redundancy for one of its blocks, whether or not that is worth it.
    pub(crate) asked_for: bool,
    /// By when its first block must have arrived, and its last.
    pub(crate) due: Option<(Instant, Instant)>,
    /// How likely it was that it would come to this.
    pub(crate) reached: f64,
    /// Until then the receiver surely keeps what it has of the group, and a bit longer if later symbols say so; none, if it may
    /// have had to forget it.
    certain_until: Option<Instant>,
    /// It is a datagram and its copy, whatever losses there are.
    pub(crate) is_duplicate: bool,
    /// What it and all groups before had cost the receiver when it was begun.
    pub(crate) cost_before: u64,
    pub(crate) expires: Instant,
    /// When what has left of it will have been answered.
    pub(crate) answered: Instant,
    bytes: u64,
    longest: usize,
}

impl Group {
    /// An empty group. All before it have cost the receiver so much.
    pub(crate) fn new(now: Instant, cost_before: u64, is_duplicate: bool) -> Self {
        Self {
            sources: Vec::new(),
            repairs: Vec::new(),
            phase: Phase::Open,
            priority: u8::MAX,
            resends: true,
            in_its_time: false,
            asked_for: false,
            due: None,
            reached: 0.0,
            certain_until: None,
            is_duplicate,
            cost_before,
            expires: now,
            answered: now,
            bytes: 0,
            longest: 0,
        }
    }

    /// m.
    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// The code's n, those kept back included.
    pub(crate) fn repairs(&self) -> usize {
        self.repairs.len()
    }

    /// Bytes of its longest symbol.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Bytes of its symbols and shards.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Restored | Phase::Failed)
    }

    /// A source fragment left for `path`.
    pub(crate) fn add(&mut self, symbol: Bytes, contents: Contents, path: PathId) {
        self.bytes += symbol.len() as u64;
        self.longest = self.longest.max(symbol.len());
        if self.sources.is_empty() {
            self.certain_until = Some(self.expires);
        }
        let len = contents.iter().map(Piece::len).sum();
        self.sources.push(Source { contents, symbol, len, path, state: State::InFlight });
    }

    /// The receiver may have had no room for it any more: nothing is inferred of it from now on.
    pub(crate) fn doubt(&mut self) {
        self.certain_until = None;
    }

    /// What is to be coded.
    pub(crate) fn symbols(&self) -> Vec<Bytes> {
        self.sources.iter().map(|source| source.symbol.clone()).collect()
    }

    /// How many source fragments went on each path.
    pub(crate) fn paths(&self) -> Vec<(PathId, usize)> {
        let mut paths: Vec<(PathId, usize)> = Vec::new();
        for source in &self.sources {
            match paths.iter_mut().find(|(path, _)| *path == source.path) {
                Some((_, count)) => *count += 1,
                None => paths.push((source.path, 1)),
            }
        }
        paths
    }

    /// The most source fragments that one block has here.
    pub(crate) fn largest_block(&self) -> usize {
        let mut blocks: Vec<BlockId> = self.sources.iter().filter_map(|source| source.first_block()).collect();
        blocks.sort_unstable();
        blocks.chunk_by(|a, b| a == b).map(<[_]>::len).max().unwrap_or(1)
    }

    /// How many source fragments have something of that block.
    pub(crate) fn sources_of(&self, id: BlockId) -> usize {
        self.sources.iter().filter(|source| source.contents.iter().any(|piece| piece.id == id)).count()
    }

    /// The blocks that have something in it, each as often as it has.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.sources.iter().flat_map(|source| source.contents.iter().map(|piece| piece.id))
    }

    /// The block it is there for first.
    pub(crate) fn first_block(&self) -> Option<BlockId> {
        self.sources.iter().find_map(|source| source.first_block())
    }

    /// Whether the peer has all of it already.
    pub(crate) fn has_arrived(&self) -> bool {
        self.sources.iter().all(|source| source.state == State::Acked)
    }

    /// No more sources: here are the shards, of which the first `now_due` are to be sent.
    pub(crate) fn close(
        &mut self,
        now: Instant,
        shards: Vec<Bytes>,
        now_due: usize,
        matters: impl Fn(&Contents) -> bool,
    ) -> Verdict {
        self.bytes += shards.iter().map(|shard| shard.len() as u64).sum::<u64>();
        let state = |index| if index < now_due { State::Due } else { State::Spare };
        self.repairs =
            shards.into_iter().enumerate().map(|(index, shard)| Repair { shard, state: state(index) }).collect();
        self.phase = Phase::Closed;
        self.sources.iter_mut().for_each(|source| source.symbol = Bytes::new());
        self.judge(now, true, matters)
    }

    /// Whether a source fragment of which nothing is known carries something that `matters`.
    pub(crate) fn is_needed(&self, matters: impl Fn(&Contents) -> bool) -> bool {
        self.sources.iter().any(|source| source.state != State::Acked && matters(&source.contents))
    }

    /// The shard of a repair fragment, if it is still to be sent.
    pub(crate) fn due_shard(&self, index: u8) -> Option<&Bytes> {
        let repair = self.repairs.get(usize::from(index)).filter(|repair| repair.state == State::Due)?;
        (self.phase == Phase::Closed).then_some(&repair.shard)
    }

    /// A repair fragment left.
    pub(crate) fn on_repair_sent(&mut self, index: u8) {
        self.repairs[usize::from(index)].state = State::InFlight;
    }

    /// A repair fragment will not be sent after all.
    pub(crate) fn withdraw(&mut self, now: Instant, index: u8, matters: impl Fn(&Contents) -> bool) -> Verdict {
        if let Some(repair) = self.repairs.get_mut(usize::from(index)).filter(|repair| repair.state == State::Due) {
            repair.state = State::Spare;
        }
        self.judge(now, false, matters)
    }

    /// The peer has a symbol.
    pub(crate) fn on_acked(&mut self, now: Instant, index: u8, matters: impl Fn(&Contents) -> bool) -> Verdict {
        if let Some(state) = self.state_mut(index) {
            *state = State::Acked;
        }
        self.judge(now, true, matters)
    }

    /// A symbol was lost on `path`. `in_time`: whether what is sent now can still be of use.
    pub(crate) fn on_lost(
        &mut self,
        now: Instant,
        index: u8,
        path: PathId,
        in_time: bool,
        matters: impl Fn(&Contents) -> bool,
    ) -> Verdict {
        if let Some(source) = self.sources.get_mut(usize::from(index)) {
            source.path = path;
        }
        if let Some(state) = self.state_mut(index).filter(|state| **state == State::InFlight) {
            *state = State::Lost;
            if self.phase == Phase::Restored {
                let restored = self.sources.get(usize::from(index)).map_or(0, |source| source.len);
                return Verdict { restored, ..Verdict::default() };
            }
        }
        self.judge(now, in_time, matters)
    }

    /// It is time to send again what is unacknowledged of a block. If fewer repair fragments will do, as far as they are there, these are to go now: returned
    /// are their indices, and the bytes of the block for which they stand.
    pub(crate) fn second_try(&mut self, id: BlockId) -> (Vec<u8>, Vec<Range<u64>>) {
        let of_block = |source: &&Source| source.contents.iter().any(|piece| piece.id == id);
        let missing = || self.sources.iter().filter(|source| source.state != State::Acked).filter(of_block);
        // As far as is known, the peer needs so many more to restore it all.
        let needed = self.len().saturating_sub(self.count(State::Acked));
        let fewer = needed < missing().count() && needed <= self.count(State::Spare);
        if self.phase != Phase::Closed || !self.resends || !fewer {
            return (Vec::new(), Vec::new());
        }
        let pieces = missing().flat_map(|source| source.contents.iter().filter(|piece| piece.id == id));
        let ranges = pieces.map(|piece| piece.range.clone()).filter(|range| !range.is_empty()).collect();
        let spares = self.repairs.iter_mut().enumerate().filter(|(_, repair)| repair.state == State::Spare);
        let mut more = Vec::new();
        for (index, repair) in spares.take(needed) {
            repair.state = State::Due;
            more.push(index as u8);
        }
        (more, ranges)
    }

    /// Takes out of a source fragment what does not wait for the group, and is sent again by itself.
    pub(crate) fn take_out(&mut self, index: u8, does_not_wait: impl Fn(&Piece) -> bool) -> Contents {
        let Some(source) = self.sources.get_mut(usize::from(index)) else { return Contents::default() };
        let taken = source.contents.take_out(does_not_wait);
        source.len -= taken.iter().map(Piece::len).sum::<u64>();
        taken
    }

    /// Nothing more can come of it.
    pub(crate) fn expire(&mut self) -> Verdict {
        self.phase = Phase::Failed;
        Verdict { lost: self.take_lost(), ..Verdict::default() }
    }

    /// Whether nothing more is to be heard of it, nor to be sent.
    pub(crate) fn is_spent(&self) -> bool {
        let waits = self.phase == Phase::Closed && self.count(State::Due) > 0;
        self.phase != Phase::Open && !waits && self.count(State::InFlight) == 0
    }

    /// Packets sent, and how many of them were lost.
    pub(crate) fn tally(&self) -> (usize, usize) {
        let lost = self.count(State::Lost);
        (self.count(State::InFlight) + self.count(State::Acked) + lost, lost)
    }

    fn judge(&mut self, now: Instant, in_time: bool, matters: impl Fn(&Contents) -> bool) -> Verdict {
        let mut verdict = Verdict::default();
        match self.phase {
            // It may yet get repairs.
            Phase::Open => return verdict,
            Phase::Closed => {}
            // Packets speak for themselves.
            Phase::Restored | Phase::Failed => {
                verdict.lost = self.take_lost();
                return verdict;
            }
        }
        let m = self.len();
        let acked = self.count(State::Acked);
        if acked >= m {
            if self.certain_until.is_some_and(|until| now <= until) {
                self.phase = Phase::Restored;
                let lost = self.sources.iter().filter(|source| source.state == State::Lost);
                verdict.restored = lost.map(|source| source.len).sum();
                let left = self.sources.iter_mut().filter(|source| source.state != State::Acked);
                verdict.recovered = left.map(|source| std::mem::take(&mut source.contents)).collect();
            } else {
                self.phase = Phase::Failed;
                verdict.lost = self.take_lost();
            }
            return verdict;
        }
        let missing = m.saturating_sub(acked + self.count(State::InFlight) + self.count(State::Due));
        let lost =
            self.sources.iter().filter(|source| source.state == State::Lost && matters(&source.contents)).count();
        if missing == 0 || lost == 0 {
            return verdict;
        }
        if self.in_its_time && self.resends {
            if self.count(State::InFlight) + self.count(State::Due) == 0 {
                // Nothing more is to be heard of it.
                self.phase = Phase::Failed;
                verdict.lost = self.take_lost();
            }
            return verdict;
        }
        let spare = self.count(State::Spare);
        if self.resends && in_time && missing < lost && missing <= spare {
            // Fewer repairs do what so many sources would.
            let spares = self.repairs.iter_mut().enumerate().filter(|(_, repair)| repair.state == State::Spare);
            for (index, repair) in spares.take(missing) {
                repair.state = State::Due;
                verdict.more.push(index as u8);
            }
        } else {
            self.phase = Phase::Failed;
            verdict.lost = self.take_lost();
        }
        verdict
    }

    fn take_lost(&mut self) -> Vec<(Contents, PathId)> {
        let lost = self.sources.iter_mut().filter(|source| source.state == State::Lost);
        lost.map(|source| (std::mem::take(&mut source.contents), source.path))
            .filter(|(contents, _)| !contents.is_empty())
            .collect()
    }

    fn state_mut(&mut self, index: u8) -> Option<&mut State> {
        let index = usize::from(index);
        match index.checked_sub(self.sources.len()) {
            None => self.sources.get_mut(index).map(|source| &mut source.state),
            Some(repair) => self.repairs.get_mut(repair).map(|repair| &mut repair.state),
        }
    }

    fn count(&self, state: State) -> usize {
        let sources = self.sources.iter().filter(|source| source.state == state).count();
        sources + self.repairs.iter().filter(|repair| repair.state == state).count()
    }
}

impl Source {
    fn first_block(&self) -> Option<BlockId> {
        self.contents.iter().next().map(|piece| piece.id)
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
