//! First come, first served.

use std::collections::BTreeSet;

use super::{BlockScheduler, BlockView, SendContext};
use crate::block::BlockId;

/// First come, first served; with `drops_stale`, the paper's SCTP'.
pub(crate) struct Fcfs {
    queue: BTreeSet<BlockId>,
    drops_stale: bool,
}

impl Fcfs {
    pub(crate) fn new(drops_stale: bool) -> Self {
        Self { queue: BTreeSet::new(), drops_stale }
    }
}

impl BlockScheduler for Fcfs {
    fn name(&self) -> &'static str {
        if self.drops_stale { "fcfs-drop" } else { "fcfs" }
    }

    fn drops_stale(&self) -> bool {
        self.drops_stale
    }

    fn insert(&mut self, block: &BlockView) {
        self.queue.insert(block.id);
    }

    fn remove(&mut self, id: BlockId) {
        self.queue.remove(&id);
    }

    fn next(&mut self, _: &SendContext<'_>) -> Option<BlockId> {
        self.queue.first().copied()
    }
}
