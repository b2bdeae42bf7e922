//! First come, first served.

use std::collections::BTreeSet;

use super::{BlockScheduler, BlockView, SendContext};
use crate::block::BlockId;

/// First come, first served; with `drops_stale`, the SCTP' of the DTP paper, without, its QUIC.
pub(super) struct Fcfs {
    queue: BTreeSet<BlockId>,
    drops_stale: bool,
}

impl Fcfs {
    pub(super) fn new(drops_stale: bool) -> Self {
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

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{block, drain},
        *,
    };

    #[test]
    fn whoever_came_first() {
        for drops_stale in [false, true] {
            let mut fcfs = Fcfs::new(drops_stale);
            assert_eq!(fcfs.drops_stale(), drops_stale);
            for id in [3, 1, 2, 1] {
                fcfs.insert(&BlockView { priority: id as u8, ..block(id) });
            }
            fcfs.remove(BlockId(2));
            fcfs.remove(BlockId(7));
            assert_eq!(drain(&mut fcfs), [1, 3]);
        }
    }
}
