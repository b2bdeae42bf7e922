//! The block with the least left to send goes first, as long as it can make it.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use punctual_proto::{
    BlockId,
    schedule::{BlockScheduler, BlockView, SendContext},
};

/// Shortest remaining first: the most blocks on time for their bytes, and large ones wait.
#[derive(Default)]
pub struct ShortestFirst {
    blocks: HashMap<BlockId, BlockView>,
    /// By what is left to send.
    order: BTreeSet<(u64, BlockId)>,
    /// Those that cannot make it any more: sent only when there is nothing else.
    late: BTreeSet<BlockId>,
}

impl ShortestFirst {
    fn can_make_it(block: &BlockView, cx: &SendContext<'_>) -> bool {
        let sending = Duration::try_from_secs_f64(block.unsent as f64 / cx.rate).unwrap_or(Duration::MAX);
        let arrival = cx.now.checked_add(sending.saturating_add(cx.one_way_delay));
        block.due().is_none_or(|due| arrival.is_some_and(|arrival| arrival <= due))
    }
}

impl BlockScheduler for ShortestFirst {
    fn name(&self) -> &'static str {
        "shortest-first"
    }

    fn insert(&mut self, block: &BlockView) {
        self.remove(block.id);
        self.blocks.insert(block.id, *block);
        self.order.insert((block.unsent, block.id));
    }

    fn remove(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.remove(&id) {
            self.order.remove(&(block.unsent, id));
            self.late.remove(&id);
        }
    }

    fn next(&mut self, cx: &SendContext<'_>) -> Option<BlockId> {
        // Each block is set aside at most once for each time it was inserted, so the cost does not grow with their number.
        while let Some((_, id)) = self.order.first().copied() {
            if self.blocks.get(&id).is_some_and(|block| Self::can_make_it(block, cx)) {
                return Some(id);
            }
            self.order.pop_first();
            self.late.insert(id);
        }
        self.late.first().copied()
    }
}
