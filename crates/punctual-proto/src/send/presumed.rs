//! What the peer is presumed to have, and does not speak of.
//!
//! That any m fragments of a group have been acknowledged means that the receiver could restore the rest, if it still had the group when the last of
//! them came. How long it keeps one is told by the clock, and the clock of a host that sleeps may stand still: when it wakes up, the group seems to have
//! been there all the time. So what follows from a group alone is taken back where the peer's word on the block does not come.

use std::time::{Duration, Instant};

use super::{live::LiveBlock, packetize::Piece, store::Store};

/// How long the peer's word on a block may take. If it comes later, some bytes were sent twice; each is, at most once for each time it has been in a group.
const WORD_TAKES: Duration = Duration::from_secs(3);

impl Store {
    /// The peer could restore a piece of a block, as far as one can tell.
    pub(super) fn on_piece_presumed(&mut self, now: Instant, piece: &Piece) {
        let Some(block) = self.blocks.get_mut(&piece.id) else { return };
        let before = block.unsent();
        let regained = block.presume(piece.range.clone(), piece.with_info, now);
        if block.is_presumed() {
            let doubt_at = *block.doubt_at.get_or_insert(now + WORD_TAKES);
            self.doubts.insert((doubt_at, piece.id));
        }
        self.after_ack(piece, before, regained);
    }

    /// Takes back what the peer should have spoken of by now.
    pub(super) fn doubt_presumed(&mut self, now: Instant) {
        if self.next_doubt().is_none_or(|at| now < at) {
            return;
        }
        let mut turns = self.turns();
        while let Some((_, id)) = self.doubts.first().copied().filter(|&(at, _)| at <= now) {
            self.doubts.pop_first();
            let Some(block) = self.blocks.get_mut(&id) else { continue };
            block.doubt_at = None;
            if !block.is_presumed() || block.dying.is_some() {
                continue;
            }
            if block.is_owed(&turns) {
                block.take_back();
                // Those behind it wait for it now.
                if let Some((channel, position)) = block.channel {
                    turns.entry(channel).and_modify(|first| *first = position.min(*first)).or_insert(position);
                }
                self.after_loss(now, id);
            } else {
                block.doubt_at = Some(now + WORD_TAKES);
                self.doubts.insert((now + WORD_TAKES, id));
            }
        }
    }

    /// The block has ended.
    pub(super) fn forget_doubt(&mut self, block: &LiveBlock) {
        if let Some(at) = block.doubt_at {
            self.doubts.remove(&(at, block.id));
        }
    }

    /// When [`doubt_presumed`](Self::doubt_presumed) is due.
    pub(super) fn next_doubt(&self) -> Option<Instant> {
        self.doubts.first().map(|&(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::{FragmentKind, PathId},
        block::{Block, BlockId, Channel, DropReason, Outcome, Redundancy},
        limits::Limits,
        redundancy, schedule,
        send::{live::InfoState, store::Notice},
    };

    const MS: Duration = Duration::from_millis(1);

    fn store() -> Store {
        let (scheduler, policy) = (schedule::default_factory()(), redundancy::default_factory()());
        let mut store = Store::new(Limits::default(), scheduler, Redundancy::Auto, policy);
        store.on_settings(1 << 20, 8, 1 << 20, 100);
        store
    }

    fn piece(id: BlockId, range: std::ops::Range<u64>, with_info: bool) -> Piece {
        Piece { id, range, with_info, kind: FragmentKind::Source }
    }

    /// The peer is known to have the second half of a block of 1,000 bytes, and presumed to have the first, and its info.
    fn half_presumed(store: &mut Store, now: Instant, block: Block) -> BlockId {
        let id = store.insert(now, block).unwrap();
        store.on_sent(id, 0..1_000, true);
        store.on_piece_presumed(now, &piece(id, 0..500, true));
        store.on_piece_acked(now, &piece(id, 500..1_000, false));
        assert_eq!(store.get(id).map(|block| (block.awaits_word(), block.unsent())), Some((true, 0)));
        id
    }

    #[test]
    fn what_is_only_presumed_goes_again_if_the_peer_says_nothing() {
        let (now, mut store) = (Instant::now(), store());
        let id = half_presumed(&mut store, now, Block::new(vec![0; 1_000]));
        assert_eq!(store.next_timeout(), Some(now + WORD_TAKES));
        store.on_timeout(now + WORD_TAKES - MS);
        assert_eq!(store.get(id).unwrap().unsent(), 0);
        store.on_timeout(now + WORD_TAKES);
        let block = store.get(id).unwrap();
        assert_eq!(block.next_range(), Some((0..500, true)));
        assert_eq!((block.info, block.good_bytes), (InfoState::Due, 500));
        // Now the peer says itself that it has it.
        store.on_sent(id, 0..500, true);
        store.on_piece_acked(now + WORD_TAKES, &piece(id, 0..500, true));
        assert_eq!(store.get(id).map(|block| (block.awaits_word(), block.good_bytes)), Some((true, 1_000)));
        assert_eq!(store.next_timeout(), None, "that is certain");
    }

    #[test]
    fn an_acknowledgement_makes_certain_what_was_presumed() {
        let (now, mut store) = (Instant::now(), store());
        let id = half_presumed(&mut store, now, Block::new(vec![0; 1_000]));
        store.on_piece_acked(now, &piece(id, 0..500, true));
        store.on_timeout(now + WORD_TAKES);
        assert_eq!(store.get(id).map(|block| (block.awaits_word(), block.good_bytes)), Some((true, 1_000)));
    }

    #[test]
    fn the_word_on_it_ends_all_doubt() {
        let (now, mut store) = (Instant::now(), store());
        let id = half_presumed(&mut store, now, Block::new(vec![0; 1_000]));
        store.on_completed(id, MS, 1_000).unwrap();
        assert!(store.is_clean());
        assert_eq!(store.next_timeout(), None);
    }

    #[test]
    fn a_block_that_waits_for_its_turn_is_not_spoken_of() {
        let (now, mut store) = (Instant::now(), store());
        let in_channel = || Block::new(vec![0; 1_000]).channel(Channel(1));
        let first = store.insert(now, in_channel()).unwrap();
        let second = half_presumed(&mut store, now, in_channel());
        store.on_timeout(now + WORD_TAKES);
        assert_eq!(store.get(second).unwrap().unsent(), 0);
        store.on_sent(first, 0..1_000, true);
        store.on_piece_acked(now, &piece(first, 0..1_000, true));
        store.on_timeout(now + WORD_TAKES * 2);
        assert_eq!(store.get(second).unwrap().unsent(), 500);
    }

    #[test]
    fn what_is_overdue_is_dropped_and_the_peer_asked() {
        let (now, mut store) = (Instant::now(), store());
        let id = half_presumed(&mut store, now, Block::new(vec![0; 1_000]).deadline(MS * 100));
        store.on_timeout(now + WORD_TAKES);
        let dropped = Notice::Dropped { id, reason: DropReason::Expired, size: 1_000, channel: None };
        assert_eq!(std::iter::from_fn(|| store.poll()).collect::<Vec<_>>(), [dropped]);
        store.on_freed(id, 0).unwrap();
        let ended = std::iter::from_fn(|| store.poll()).next();
        let Some(Notice::Ended(_, Outcome::Dropped { reason, .. }, _)) = ended else { panic!("{ended:?}") };
        assert_eq!(reason, DropReason::Expired);
        assert!(store.is_clean());
    }

    #[test]
    fn a_loss_elsewhere_is_none_of_what_is_presumed() {
        let (now, mut store) = (Instant::now(), store());
        let id = half_presumed(&mut store, now, Block::new(vec![0; 1_000]));
        store.on_lost(now, id, 0..1_000, true, PathId(0));
        assert_eq!(store.get(id).unwrap().unsent(), 0);
    }
}
