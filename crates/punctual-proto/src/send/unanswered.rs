//! Blocks of which the peer has all there is and says nothing.

use super::store::Store;
use crate::block::{BlockId, DropReason};

impl Store {
    /// Blocks for which the peer has owed an answer since before this was last asked; those for which it does so now are remembered for the next
    /// time.
    pub(crate) fn unanswered(&mut self) -> Vec<BlockId> {
        let mut unanswered = Vec::new();
        for (&id, block) in self.blocks.iter_mut().filter(|(_, block)| block.awaits_word()) {
            if std::mem::replace(&mut block.owed, true) {
                unanswered.push(id);
            }
        }
        unanswered.sort_unstable();
        unanswered
    }

    /// The block ends without the peer's word. Should that still come, it concerns a block that has ended.
    pub(crate) fn end_unanswered(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get(&id) else { return };
        let by_itself = if block.deadline.is_some() { DropReason::Expired } else { DropReason::Refused };
        let (reason, good_bytes) = (block.dying.unwrap_or(by_itself), block.good_bytes);
        self.bury(id, reason, good_bytes);
    }
}
