//! Blocks in an order that depends on nothing but themselves: on what the application has said of each, and not on what it is worth to others.

use std::collections::BTreeSet;

use super::{BlockScheduler, BlockView, SendContext};
use crate::{block::BlockId, by_id::ById};

/// Sends the block with the least key, ties by id.
pub(super) struct Sorted<K> {
    name: &'static str,
    key: fn(&BlockView) -> K,
    order: BTreeSet<(K, BlockId)>,
    keys: ById<K>,
}

impl<K: Ord + Copy> Sorted<K> {
    pub(super) fn new(name: &'static str, key: fn(&BlockView) -> K) -> Self {
        Self { name, key, order: BTreeSet::new(), keys: ById::default() }
    }
}

impl<K: Ord + Copy + Send> BlockScheduler for Sorted<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn insert(&mut self, block: &BlockView) {
        let key = (self.key)(block);
        match self.keys.insert(block.id, key) {
            Some(old) if old == key => return,
            Some(old) => self.order.remove(&(old, block.id)),
            None => false,
        };
        self.order.insert((key, block.id));
    }

    fn remove(&mut self, id: BlockId) {
        if let Some(key) = self.keys.remove(&id) {
            self.order.remove(&(key, id));
        }
    }

    fn next(&mut self, _: &SendContext<'_>) -> Option<BlockId> {
        self.order.first().map(|&(_, id)| id)
    }
}
