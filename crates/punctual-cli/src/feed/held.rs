//! Blocks that have been read and have not ended: what there is to go on with if the session is lost.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use punctual::{Block, BlockId, DropReason, Outcome};

use crate::stats::Tally;

/// A block that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// As it is sent, but for its dependencies.
    pub(crate) block: Block,
    /// After what time it was to be seen.
    pub(crate) playout: Option<Duration>,
    /// How long it had been there when its deadline began to count, which is part of its delay.
    pub(crate) kept_back: Duration,
    /// Positions of the blocks that it needs.
    pub(crate) needs: Vec<u64>,
}

impl Held {
    /// Whether its deadline has passed.
    fn is_stale(&self, now: Instant) -> bool {
        let due = self.block.begin.zip(self.block.deadline);
        due.is_some_and(|(begin, deadline)| begin + deadline <= now)
    }
}

/// What has become of a block that others may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is held, and known to the session by this name, if it has been handed over to one.
    Live(Option<BlockId>),
    /// The receiver has it.
    There,
    /// It was given up.
    Lost,
}

/// The blocks so far, by their position in the input. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocks(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    held: BTreeMap<u64, Held>,
    bytes: usize,
    fates: BTreeMap<u64, Fate>,
    next: u64,
}

impl Blocks {
    /// A decoder holds 16 reference pictures; what lies further back than this is not referred to.
    const KEPT: u64 = 256;

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Holds the next block; its position.
    pub(crate) fn hold(&self, held: Held) -> u64 {
        let mut books = self.lock();
        let position = books.next;
        books.next += 1;
        books.bytes += held.block.data.len();
        books.held.insert(position, held);
        books.fates.insert(position, Fate::Live(None));
        let oldest = position.saturating_sub(Self::KEPT);
        books.fates = books.fates.split_off(&oldest);
        position
    }

    /// A block that is held, with its dependencies by the names that the session has for them; `None` if it cannot be sent any more: it, or one that it needs, was given up.
    pub(crate) fn block(&self, position: u64) -> Option<Block> {
        let books = self.lock();
        let Held { block, needs, .. } = books.held.get(&position)?;
        let mut block = block.clone();
        for need in needs {
            match books.fates.get(need) {
                Some(Fate::Live(Some(id))) => block.dependencies.push(*id),
                Some(Fate::Live(None) | Fate::Lost) => return None,
                // One that has been forgotten is long since delivered or dropped.
                Some(Fate::There) | None => {}
            }
        }
        Some(block)
    }

    /// The session has taken a block.
    pub(crate) fn named(&self, position: u64, id: BlockId) {
        self.lock().settle(position, Fate::Live(Some(id)));
    }

    /// A block is given up here.
    pub(crate) fn give_up(&self, position: u64, tally: &Tally) {
        let mut books = self.lock();
        if books.release(position).is_some() {
            books.settle(position, Fate::Lost);
            tally.given_up();
        }
    }

    /// A session says how a block ended. If it ended with the session, it stays: there may be another.
    pub(crate) fn ended(&self, position: u64, outcome: &Outcome, tally: &Tally) {
        if matches!(outcome, Outcome::Dropped { reason: DropReason::SessionClosed, .. }) {
            return;
        }
        let mut books = self.lock();
        let Some(held) = books.release(position) else { return };
        let delivered = matches!(outcome, Outcome::Delivered(_));
        books.settle(position, if delivered { Fate::There } else { Fate::Lost });
        tally.ended(outcome, held.playout, held.kept_back, held.block.data.len() as u64);
    }

    /// The session is lost, and with it its names for blocks. What is too late by now is given up; the others, in order.
    pub(crate) fn begin_again(&self, tally: &Tally) -> Vec<u64> {
        self.drop_stale(tally);
        let mut books = self.lock();
        let live: Vec<u64> = books.held.keys().copied().collect();
        live.iter().for_each(|position| books.settle(*position, Fate::Live(None)));
        live
    }

    /// Gives up what is too late.
    pub(crate) fn drop_stale(&self, tally: &Tally) {
        let now = Instant::now();
        let books = self.lock();
        let stale: Vec<u64> = books.held.iter().filter(|(_, held)| held.is_stale(now)).map(|(at, _)| *at).collect();
        drop(books);
        stale.into_iter().for_each(|position| self.give_up(position, tally));
    }

    /// Nothing more will come of what is held.
    pub(crate) fn give_up_all(&self, tally: &Tally) {
        let held: Vec<u64> = self.lock().held.keys().copied().collect();
        held.into_iter().for_each(|position| self.give_up(position, tally));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().held.is_empty()
    }

    /// Blocks that are held.
    pub(crate) fn len(&self) -> usize {
        self.lock().held.len()
    }

    /// Bytes of all blocks that are held.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }
}

impl Books {
    fn settle(&mut self, position: u64, fate: Fate) {
        if let Some(known) = self.fates.get_mut(&position) {
            *known = fate;
        }
    }

    fn release(&mut self, position: u64) -> Option<Held> {
        let held = self.held.remove(&position)?;
        self.bytes -= held.block.data.len();
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(needs: &[u64], age: Duration) -> Held {
        let mut block = Block::new(vec![1; 10]).deadline(Duration::from_secs(5));
        block.begin = Instant::now().checked_sub(age);
        Held { block, playout: None, kept_back: NOW, needs: needs.to_vec() }
    }

    const NOW: Duration = Duration::ZERO;
    const LOST: Outcome = Outcome::Dropped { reason: DropReason::SessionClosed, good_bytes: 0 };
    const EXPIRED: Outcome = Outcome::Dropped { reason: DropReason::Expired, good_bytes: 0 };

    #[test]
    fn what_needs_a_block_that_was_given_up_is_given_up() {
        let (blocks, tally) = (Blocks::default(), Tally::default());
        let first = blocks.hold(held(&[], NOW));
        blocks.named(first, BlockId(7));
        let second = blocks.hold(held(&[first], NOW));
        assert_eq!(blocks.block(second).unwrap().dependencies, [BlockId(7)]);
        blocks.ended(first, &EXPIRED, &tally);
        assert_eq!(blocks.block(second), None);
        for _ in 0..1_000 {
            let position = blocks.hold(held(&[], NOW));
            blocks.give_up(position, &tally);
        }
        assert!(blocks.block(second).unwrap().dependencies.is_empty(), "long ago");
        assert!(blocks.lock().fates.len() <= 257);
        blocks.give_up_all(&tally);
        assert_eq!((blocks.is_empty(), blocks.bytes()), (true, 0));
    }

    #[test]
    fn what_a_lost_session_leaves_is_sent_again_if_it_is_not_too_late() {
        let (blocks, tally) = (Blocks::default(), Tally::default());
        let old = blocks.hold(held(&[], Duration::from_secs(6)));
        let first = blocks.hold(held(&[], NOW));
        let second = blocks.hold(held(&[first], NOW));
        let orphan = blocks.hold(held(&[old], NOW));
        for (position, id) in [(old, 0), (first, 1), (second, 2), (orphan, 3)] {
            blocks.named(position, BlockId(id));
            blocks.ended(position, &LOST, &tally);
        }
        assert_eq!(blocks.begin_again(&tally), [first, second, orphan]);
        assert!(blocks.block(second).is_none(), "it is not known to the new session before the other is");
        blocks.named(first, BlockId(0));
        assert_eq!(blocks.block(second).unwrap().dependencies, [BlockId(0)]);
        assert!(blocks.block(orphan).is_none());
    }
}
