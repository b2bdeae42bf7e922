//! Blocks that are dropped, and with them what depends on them.
//!
//! A block that has left whole may be at the receiver: it is *dying* until the peer has said whether it is.

use std::cmp::Reverse;

use super::{
    late::FAMILY,
    live::LiveBlock,
    store::{Notice, Store},
};
use crate::block::{BlockId, DropReason, Outcome};

impl Store {
    /// Drops a block for `reason`, and with it whatever depends on it.
    pub(super) fn drop_block(&mut self, id: BlockId, reason: DropReason) {
        self.drop_all(vec![(id, reason)]);
    }

    fn drop_all(&mut self, mut todo: Vec<(BlockId, DropReason)>) {
        let mut said = Vec::new();
        while let Some((id, reason)) = todo.pop() {
            let Some(is_dying) = self.blocks.get(&id).map(|block| block.dying.is_some()) else { continue };
            let orphans: Vec<_> =
                self.graph.dependants(id).map(|orphan| (orphan, DropReason::DependencyDropped)).collect();
            if !is_dying {
                said.extend(self.drop_alone(id, reason));
            }
            // Those that depend on one which is dying live on until the peer has said that it does not have it; but if it lacks what that one depends
            // on, it does not matter whether it has this one.
            let may_be_of_use = self.blocks.contains_key(&id) && reason != DropReason::DependencyDropped;
            if !may_be_of_use {
                let is_known = self.dropped.contains(&id.0) && is_dying;
                self.dropped.insert(id.0..id.0 + 1);
                todo.extend(orphans.into_iter().filter(|_| !is_known));
            } else if reason == DropReason::Expired {
                for orphan in self.that_wait_for(id) {
                    said.extend(self.drop_alone(orphan, DropReason::DependencyDropped));
                }
            }
        }
        // In a channel the peer gives out what is whole once it has heard that all before it is dropped: it must have heard of all of these by then.
        said.sort_unstable_by_key(|&(id, _)| Reverse(id));
        self.notices.extend(said.into_iter().map(|(_, notice)| notice));
    }

    /// Spends nothing more on a block: one that the peer may have whole is dying from now on, another has ended. Returns what the peer is to be told.
    fn drop_alone(&mut self, id: BlockId, reason: DropReason) -> Option<(BlockId, Notice)> {
        let block = self.blocks.get_mut(&id)?;
        let size = if block.opened { block.size() } else { 0 };
        let (channel, good_bytes) = (block.channel, block.good_bytes);
        if block.opened && block.all_sent_once() && self.peer_confirms {
            block.dying = Some(reason);
            // It is sent for nobody's sake any more.
            (block.data, block.others) = (Default::default(), None);
            self.after_change(id);
        } else {
            self.end(id, Outcome::Dropped { reason, good_bytes });
        }
        match channel {
            Some(place) if self.peer_confirms && !self.channels.has_peer_limit() => {
                self.early_drops.push((id, reason, place));
                None
            }
            channel => Some((id, Notice::Dropped { id, reason, size, channel })),
        }
    }

    /// Those that depend on a block, have left whole, and wait at the peer for it, as they come behind it in its channel. If the peer does not have it, they are of no
    /// use; if it does, it has given out those it has of them.
    fn that_wait_for(&self, first: BlockId) -> Vec<BlockId> {
        let channel = |id: BlockId| Some(self.blocks.get(&id)?.channel?.0);
        let Some(own) = channel(first) else { return Vec::new() };
        let waits = |id: &BlockId| {
            let has_left = |block: &LiveBlock| block.dying.is_none() && block.opened && block.all_sent_once();
            *id > first && channel(*id) == Some(own) && self.blocks.get(id).is_some_and(has_left)
        };
        self.graph.followers(first, FAMILY).into_iter().filter(waits).collect()
    }

    /// Ends a block by the peer's word, and drops what depends on it.
    pub(super) fn bury(&mut self, id: BlockId, reason: DropReason, good_bytes: u64) {
        let mut orphans: Vec<_> =
            self.graph.dependants(id).map(|orphan| (orphan, DropReason::DependencyDropped)).collect();
        orphans.reverse();
        self.end(id, Outcome::Dropped { reason, good_bytes });
        self.drop_all(orphans);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{
        block::{Block, Channel, Redundancy},
        limits::Limits,
        redundancy, schedule,
    };

    const EXPIRED: DropReason = DropReason::Expired;
    const ORPHAN: DropReason = DropReason::DependencyDropped;

    /// A block that others depend on, one behind the other; all are in the channel, if there is one. Of the last nothing has left, of the others all.
    fn chain<const N: usize>(channel: Option<Channel>) -> (Store, [BlockId; N]) {
        let (scheduler, redundancy) = (schedule::default_factory()(), redundancy::default_factory()());
        let mut store = Store::new(Limits::default(), scheduler, Redundancy::Auto, redundancy);
        store.on_settings(1 << 20, 10, 1 << 20, 100);
        let mut last = None;
        let ids = std::array::from_fn(|_| {
            let block = Block { channel, ..Block::new(vec![0; 10]).deadline(Duration::from_millis(100)) };
            let id = store.insert(Instant::now(), last.into_iter().fold(block, Block::depends_on)).unwrap();
            last = Some(id);
            id
        });
        for &id in &ids[..N - 1] {
            store.on_sent(id, 0..10, true);
        }
        (store, ids)
    }

    /// Whom the peer was told of, and why, and what has ended.
    fn said(store: &mut Store) -> (Vec<(BlockId, DropReason)>, Vec<BlockId>) {
        let (mut told, mut ended) = (Vec::new(), Vec::new());
        while let Some(notice) = store.poll() {
            match notice {
                Notice::Dropped { id, reason, .. } => told.push((id, reason)),
                Notice::Ended(id, ..) => ended.push(id),
                Notice::Updated { .. } => {}
            }
        }
        (told, ended)
    }

    #[test]
    fn who_waits_for_one_that_is_late_is_not_given_out_when_that_is_dropped() {
        let (mut store, [first, second, third, unsent]) = chain(Some(Channel(1)));
        store.drop_block(first, EXPIRED);
        let told = vec![(third, ORPHAN), (second, ORPHAN), (first, EXPIRED)];
        assert_eq!(said(&mut store), (told, vec![]), "whoever comes later in the channel, sooner");
        // The peer has none of them.
        store.on_freed(third, 0).unwrap();
        assert_eq!(said(&mut store), (vec![(unsent, ORPHAN)], vec![third, unsent]));
        store.on_freed(second, 0).unwrap();
        store.on_freed(first, 0).unwrap();
        assert_eq!(said(&mut store), (vec![], vec![second, first]));
        assert!(store.is_clean());
    }

    #[test]
    fn who_is_whole_at_the_peer_takes_none_with_it() {
        let (mut store, [first, second, unsent]) = chain(Some(Channel(1)));
        store.drop_block(first, EXPIRED);
        said(&mut store);
        for id in [first, second] {
            store.on_completed(id, Duration::from_millis(110), 0).unwrap();
        }
        assert_eq!(said(&mut store), (vec![], vec![first, second]));
        assert!(store.is_sendable(unsent), "all that it depends on is there");
    }

    #[test]
    fn what_depends_on_what_the_peer_lacks_is_dropped_with_its_word() {
        let (mut store, [first, _, unsent]) = chain(Some(Channel(1)));
        store.drop_block(first, EXPIRED);
        said(&mut store);
        store.on_freed(first, 0).unwrap();
        assert_eq!(
            said(&mut store),
            (vec![(unsent, ORPHAN)], vec![first, unsent]),
            "whatever is said of the one between"
        );
    }

    #[test]
    fn who_waits_for_none_lives_until_the_peers_word() {
        let (mut store, [first, second, unsent]) = chain(None);
        store.drop_block(first, EXPIRED);
        assert_eq!(said(&mut store), (vec![(first, EXPIRED)], vec![]));
        store.on_freed(first, 0).unwrap();
        assert_eq!(said(&mut store), (vec![(unsent, ORPHAN), (second, ORPHAN)], vec![first, unsent]));
    }
}
