//! Blocks of which the peer has all there is and says nothing.

use std::collections::BTreeMap;

use super::store::Store;
use crate::block::{BlockId, Channel, DropReason};

impl Store {
    /// Blocks for which the peer has owed an answer since before this was last asked; those for which it does so now are remembered for the next
    /// time.
    pub(crate) fn unanswered(&mut self) -> Vec<BlockId> {
        let turns = self.turns();
        let mut unanswered = Vec::new();
        for (&id, block) in &mut self.blocks {
            let owed = block.is_owed(&turns);
            if std::mem::replace(&mut block.owed, owed) && owed {
                unanswered.push(id);
            }
        }
        unanswered.sort_unstable();
        unanswered
    }

    /// The first of each channel that the peer does not have yet: it speaks of what it has when it is its turn.
    pub(super) fn turns(&self) -> BTreeMap<Channel, u64> {
        let mut turns = BTreeMap::<Channel, u64>::new();
        for block in self.blocks.values().filter(|block| !block.awaits_word()) {
            if let Some((channel, position)) = block.channel {
                turns.entry(channel).and_modify(|first| *first = position.min(*first)).or_insert(position);
            }
        }
        turns
    }

    /// The block ends without the peer's word. Should that still come, it concerns a block that has ended.
    pub(crate) fn end_unanswered(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get(&id) else { return };
        let by_itself = if block.deadline.is_some() { DropReason::Expired } else { DropReason::Refused };
        let (reason, good_bytes) = (block.dying.unwrap_or(by_itself), block.good_bytes);
        self.bury(id, reason, good_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{super::live::InfoState, *};
    use crate::{
        block::{Block, Redundancy},
        limits::Limits,
        redundancy, schedule,
    };

    /// The peer's QUIC has all of it.
    fn acknowledge(store: &mut Store, id: BlockId) {
        let block = store.blocks.get_mut(&id).expect("it is live");
        block.on_sent(0..block.size());
        block.on_acked(0..block.size(), Instant::now());
        (block.opened, block.info) = (true, InfoState::Known);
    }

    #[test]
    fn who_waits_for_its_turn_is_not_owed_an_answer() {
        let (scheduler, policy) = (schedule::default_factory()(), redundancy::default_factory()());
        let mut store = Store::new(Limits::default(), scheduler, Redundancy::Auto, policy);
        let mut send = |channel| {
            let block = Block::new(vec![0; 10]);
            let block = if let Some(channel) = channel { block.channel(Channel(channel)) } else { block };
            store.insert(Instant::now(), block).expect("there is room")
        };
        let [slow, behind, alone, other] = [Some(1), Some(1), None, Some(2)].map(&mut send);
        assert_eq!(store.unanswered(), [], "nothing has been sent");
        [behind, alone, other].into_iter().for_each(|id| acknowledge(&mut store, id));
        assert_eq!(store.unanswered(), [], "there was no time to answer");
        assert_eq!(store.unanswered(), [alone, other]);
        [alone, other].into_iter().for_each(|id| store.end_unanswered(id));
        assert_eq!(store.unanswered(), []);
        acknowledge(&mut store, slow);
        assert_eq!(store.unanswered(), [], "since now");
        assert_eq!(store.unanswered(), [slow, behind]);
    }
}
