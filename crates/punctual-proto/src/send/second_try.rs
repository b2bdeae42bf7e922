//! Blocks whose second try has a time of its own, as DMTP's have: what is unacknowledged of them then goes again, once.
//!
//! Until then nothing follows from a loss, and afterwards only from that of what went again: more of the block is not sent then, unless others depend on it.
//! (A scheduler that drops nothing sends on until all has arrived.)

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rangemap::RangeSet;

use super::{live::LiveBlock, packetize::Piece, store::Store};
use crate::{
    base::{FragmentKind, PathId},
    block::BlockId,
};

/// When what is lost of a block goes again.
#[derive(Debug, Default)]
pub(super) enum SecondTry {
    /// When it is found to be lost, each packet by itself, and as often as there is time.
    #[default]
    WhenLost,
    /// Some time after all of it has left; the slowest path that has carried any of it takes so long to answer.
    WhenLeft { slowest: Duration },
    /// At this time. The last of it left on that path.
    At(Instant, PathId),
    /// This of it has gone again.
    Done(RangeSet<u64>),
}

impl LiveBlock {
    /// Whether its second try has a time of its own.
    pub(crate) fn has_its_time(&self) -> bool {
        !matches!(self.second_try, SecondTry::WhenLost)
    }
}

/// The times of second tries that are to come.
#[derive(Debug, Default)]
pub(crate) struct SecondTries {
    are_timed: bool,
    at: BTreeSet<(Instant, BlockId)>,
}

impl SecondTries {
    /// Whether those of blocks that are handed over from now on have a time.
    pub(crate) fn times(&mut self, are_timed: bool) {
        self.are_timed = are_timed;
    }

    /// Whether they have.
    pub(crate) fn are_timed(&self) -> bool {
        self.are_timed
    }

    pub(super) fn begin(&self, block: &mut LiveBlock) {
        if self.are_timed && block.deadline.is_some() && block.redundancy.resends() {
            block.second_try = SecondTry::WhenLeft { slowest: Duration::ZERO };
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.at.first().map(|&(at, _)| at)
    }

    pub(super) fn forget(&mut self, block: &LiveBlock) {
        if let SecondTry::At(at, _) = block.second_try {
            self.at.remove(&(at, block.id));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
}

impl Store {
    /// Bytes of a block left for the first time, on a path that takes so long to `answer`. If that was the last of it, returns how long the slowest does that carried any.
    pub(crate) fn on_first_try(&mut self, id: BlockId, answer: Duration) -> Option<Duration> {
        let block = self.blocks.get_mut(&id)?;
        let all = block.all_sent_once();
        let SecondTry::WhenLeft { slowest } = &mut block.second_try else { return None };
        *slowest = answer.max(*slowest);
        all.then_some(*slowest)
    }

    /// What is unacknowledged of a block, the last of which left on `path`, goes again then.
    pub(crate) fn set_second_try(&mut self, id: BlockId, at: Instant, path: PathId) {
        if let Some(block) = self.blocks.get_mut(&id) {
            block.second_try = SecondTry::At(at, path);
            self.second_tries.at.insert((at, id));
        }
    }

    /// Whether any block is to be sent again now.
    pub(crate) fn is_second_try_due(&self, now: Instant) -> bool {
        self.second_tries.next_timeout().is_some_and(|at| at <= now)
    }

    /// Has blocks sent again whose time has come. If what leaves now cannot arrive in time, before `arrives`, nothing is sent.
    pub(crate) fn try_again(&mut self, now: Instant, arrives: Instant) {
        while self.is_second_try_due(now) {
            if let Some((_, id)) = self.second_tries.at.pop_first() {
                self.try_one_again(now, id, arrives);
            }
        }
    }

    /// Has a block sent again: of each redundancy group as many fragments as the peer lacks, or as many as of the block are unacknowledged, if that is less.
    fn try_one_again(&mut self, now: Instant, id: BlockId, arrives: Instant) {
        let Some(block) = self.blocks.get(&id) else { return };
        let SecondTry::At(_, path) = block.second_try else { return };
        let in_time = !self.drops_stale || block.due().is_none_or(|due| arrives <= due);
        let made_good =
            if in_time && block.dying.is_none() { self.groups.second_try(now, id) } else { RangeSet::new() };
        let Some(block) = self.blocks.get_mut(&id) else { return };
        let missing = block.miss_all(&made_good, path);
        let any = !missing.is_empty();
        block.second_try = SecondTry::Done(missing);
        if any && block.dying.is_none() {
            self.after_loss(now, id);
            if !in_time {
                self.send_no_more(now, id);
            }
        }
    }

    /// A piece of a block was lost whose second try has a time of its own.
    pub(super) fn on_lost_in_its_time(&mut self, now: Instant, piece: &Piece, path: PathId) {
        let Some(block) = self.blocks.get(&piece.id) else { return };
        let start = piece.range.start;
        let lost: Vec<_> = match &block.second_try {
            // Once it has gone again, that one's fate counts.
            SecondTry::Done(again) if piece.kind == FragmentKind::Source && !piece.range.is_empty() => {
                again.gaps(&piece.range).collect()
            }
            SecondTry::Done(_) => vec![piece.range.clone()],
            // That its bytes were lost is seen when it is time. Its info goes along with the next.
            _ => return self.on_lost(now, piece.id, start..start, piece.with_info, path),
        };
        for range in lost {
            self.on_lost(now, piece.id, range, piece.with_info, path);
            self.send_no_more(now, piece.id);
        }
    }

    /// There is no third try, unless the block is sent for others' sake.
    fn send_no_more(&mut self, now: Instant, id: BlockId) {
        if self.drops_stale && self.blocks.get(&id).is_some_and(|block| block.unsent() > 0) && !self.goes_on(now, id) {
            self.give_up(id);
        }
    }
}
