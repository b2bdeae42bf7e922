//! Which block may be opened next: begun, and so take its whole size from the credit that the peer gives.

use std::collections::{BTreeMap, BTreeSet};

use super::{channels::Place, graph::Graph, live::LiveBlock};
use crate::{
    block::{BlockId, Channel},
    by_id::ById,
};

/// Of those that are in front of a block in its channel, and of what they depend on, so many are looked at.
pub(super) const LINE: usize = 64;
/// So many times what must be opened first is found to have something before it itself.
const STEPS: usize = 8;

/// After one of a channel that was dropped so many of it may be opened before those in front of them.
const FREE: u32 = 64;

/// What the peer lets us open, what waits for that, and what was opened.
#[derive(Debug, Default)]
pub(super) struct Opening {
    credit: Credit,
    /// What all blocks that have not been opened need,
    needed: Reserve,
    /// and those of channels among them, by their place.
    unopened: BTreeMap<Place, BlockId>,
    /// How many more of a channel may be opened out of turn.
    free: BTreeMap<Channel, u32>,
    /// Blocks the scheduler chose but there was no credit for.
    waiting: BTreeSet<BlockId>,
    /// There has come more of that since.
    has_more: bool,
}

/// What the peer lets us open, and what we have opened; totals since the session began.
#[derive(Debug, Clone, Copy, Default)]
struct Credit {
    granted_bytes: u64,
    granted_blocks: u64,
    opened_bytes: u64,
    opened_blocks: u64,
}

/// Of the credit, what is to be left for others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Reserve {
    bytes: u64,
    blocks: u64,
}

impl Reserve {
    /// One of these blocks does not need it any more.
    fn take(&mut self, size: u64) {
        self.bytes -= size;
        self.blocks -= 1;
    }
}

impl Credit {
    /// Whether there is enough for a block of this size, and for others after it.
    fn allows(&self, size: u64, reserve: Reserve) -> bool {
        self.opened_bytes.saturating_add(size + reserve.bytes) <= self.granted_bytes
            && self.opened_blocks + reserve.blocks < self.granted_blocks
    }

    /// Whether there is enough for all of that.
    fn has(&self, all: Reserve) -> bool {
        self.opened_bytes.saturating_add(all.bytes) <= self.granted_bytes
            && self.opened_blocks + all.blocks <= self.granted_blocks
    }
}

impl Opening {
    /// A block was handed over.
    pub(super) fn insert(&mut self, place: Option<Place>, id: BlockId, size: u64) {
        self.needed.bytes += size;
        self.needed.blocks += 1;
        if let Some(place) = place {
            self.unopened.insert(place, id);
        }
    }

    /// The peer takes no other channels than these.
    pub(super) fn retain(&mut self, is_known: impl Fn(Channel) -> bool) {
        self.unopened.retain(|&(channel, _), _| is_known(channel));
        self.free.retain(|&channel, _| is_known(channel));
    }

    /// The block to open so that `block`, which is not open, is of use.
    ///
    /// As long as all of a channel gets there its order is the best, for what overtakes waits. Where some are dropped, those before a block are not to be opened for its sake,
    /// as they may be of no use any more: if there is enough for all that have not been opened, it is the block itself.
    ///
    /// # Errors
    /// The blocks that have to wait for credit from now on, if there is too little.
    pub(super) fn choose(
        &mut self,
        block: &LiveBlock,
        blocks: &ById<LiveBlock>,
        graph: &Graph,
    ) -> Result<BlockId, [BlockId; 2]> {
        let is_free = block.channel.is_some_and(|(channel, _)| self.free.contains_key(&channel));
        if is_free && self.credit.has(self.needed) {
            return Ok(block.id);
        }
        let (first, reserve) = self.first(block, blocks, graph);
        if blocks.get(&first).is_some_and(|block| self.credit.allows(block.size(), reserve)) {
            return Ok(first);
        }
        let waiting = [block.id, first];
        self.waiting.extend(waiting);
        Err(waiting)
    }

    /// The block that must be opened first for `block` to be of use: in a channel those before it, for
    /// it waits for them at the receiver. If it took the credit that they need, both would wait for ever. And the credit that must be left
    /// when that is open: if those before it cannot be sent yet, for what they depend on has not been, what they need to be.
    fn first(&self, block: &LiveBlock, blocks: &ById<LiveBlock>, graph: &Graph) -> (BlockId, Reserve) {
        let mut first = block;
        for _ in 0..STEPS {
            let Some((channel, position)) = first.channel else { break };
            let before = self.unopened.range((channel, 0)..(channel, position)).map(|(_, &id)| id);
            let mut line: Vec<BlockId> = before.take(LINE).collect();
            // The first that can be sent; it waits for those before it, too.
            if let Some(place) = line.iter().position(|&id| is_sendable(id, blocks, graph)) {
                first = blocks.get(&line[place]).unwrap_or(first);
                line.truncate(place);
            }
            let (needed, reserve) = needs(first.id, line, blocks, graph);
            match needed.and_then(|needed| blocks.get(&needed)) {
                Some(needed) if !self.credit.allows(first.size(), reserve) => first = needed,
                _ => return (first.id, reserve),
            }
        }
        (first.id, Reserve::default())
    }

    /// A block was opened. Returns one that need not wait any more.
    pub(super) fn on_opened(&mut self, size: u64, place: Option<Place>) -> Option<BlockId> {
        self.credit.opened_bytes += size;
        self.credit.opened_blocks += 1;
        self.needed.take(size);
        let place = place?;
        if let Some(free) = self.free.get_mut(&place.0) {
            *free -= 1;
            if *free == 0 {
                self.free.remove(&place.0);
            }
        }
        self.pass(place)
    }

    /// A block was dropped.
    pub(super) fn on_dropped(&mut self, place: Option<Place>) {
        self.free.extend(place.map(|(channel, _)| (channel, FREE)));
    }

    /// A block has ended. Returns one that need not wait any more.
    pub(super) fn on_ended(&mut self, block: &LiveBlock) -> Option<BlockId> {
        self.waiting.remove(&block.id);
        if !block.opened {
            self.needed.take(block.size());
        }
        self.pass(block.channel?)
    }

    /// A place in a channel has been opened, or will never be: the next may not have to leave room any more.
    fn pass(&mut self, place: Place) -> Option<BlockId> {
        self.unopened.remove(&place);
        let next = self.unopened.range(place..=(place.0, u64::MAX)).next().map(|(_, &id)| id);
        next.filter(|next| self.waiting.remove(next))
    }

    /// Raises the credit. Totals only grow; a smaller one is an old one.
    pub(super) fn grant(&mut self, bytes: u64, blocks: u64) {
        self.has_more |= bytes > self.credit.granted_bytes || blocks > self.credit.granted_blocks;
        self.credit.granted_bytes = self.credit.granted_bytes.max(bytes);
        self.credit.granted_blocks = self.credit.granted_blocks.max(blocks);
    }

    /// Those that waited for credit, if it has been raised since.
    pub(super) fn wake(&mut self) -> BTreeSet<BlockId> {
        if std::mem::take(&mut self.has_more) { std::mem::take(&mut self.waiting) } else { BTreeSet::new() }
    }

    /// Whether a block waits for credit.
    pub(super) fn is_waiting(&self, id: BlockId) -> bool {
        self.waiting.contains(&id)
    }

    /// Whether a block depends, over any number of steps, on one that waits for credit. If it is open itself, as one is that was only then said to depend on others, the
    /// credit that is lacking may be what it holds until it has been sent.
    pub(super) fn holds_up(&self, id: BlockId, graph: &Graph) -> bool {
        let mut seen = BTreeSet::from_iter(graph.members(id));
        let mut todo: Vec<BlockId> = seen.iter().flat_map(|&member| graph.blockers(member)).collect();
        while let Some(id) = todo.pop().filter(|_| !self.waiting.is_empty() && seen.len() <= LINE) {
            if self.waiting.contains(&id) {
                return true;
            }
            if seen.insert(id) {
                todo.extend(graph.members(id).flat_map(|member| graph.blockers(member)));
            }
        }
        false
    }

    /// Whether nothing is left of past blocks but counters.
    pub(super) fn is_clean(&self) -> bool {
        self.unopened.is_empty() && self.waiting.is_empty() && self.needed == Reserve::default()
    }
}

/// Of the blocks that have not been opened of those in `line`, and of what they depend on: the first that can be sent, and the credit that they all need.
fn needs(of: BlockId, line: Vec<BlockId>, blocks: &ById<LiveBlock>, graph: &Graph) -> (Option<BlockId>, Reserve) {
    let mut todo = line;
    let mut seen = BTreeSet::from([of]);
    let (mut needed, mut reserve) = (None, Reserve::default());
    while let Some(id) = todo.pop() {
        let Some(block) = blocks.get(&id) else { continue };
        if seen.len() > LINE || !seen.insert(id) {
            continue;
        }
        // One that is open may end before what it depends on does, and then hand that on.
        todo.extend(graph.needs(id));
        if block.opened {
            continue;
        }
        reserve.bytes += block.size();
        reserve.blocks += 1;
        if is_sendable(id, blocks, graph) {
            needed = needed.min(Some(id)).or(Some(id));
        }
    }
    (needed, reserve)
}

/// Whether a block has bytes that may be sent, credit apart.
pub(super) fn is_sendable(id: BlockId, blocks: &ById<LiveBlock>, graph: &Graph) -> bool {
    blocks.get(&id).is_some_and(LiveBlock::goes_on) && graph.is_free(id)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;

    use super::*;
    use crate::block::Redundancy;

    /// Blocks of one channel, of these sizes and in this order, none of which is open.
    fn in_channel(sizes: &[usize]) -> (Opening, ById<LiveBlock>) {
        let (mut opening, mut blocks) = (Opening::default(), ById::default());
        for (&size, n) in sizes.iter().zip(0..) {
            let (id, place) = (BlockId(n), (Channel(1), n));
            let data = Bytes::from(vec![0; size]);
            blocks.insert(id, LiveBlock::new(id, data, Instant::now(), None, 0, Redundancy::Auto, Some(place)));
            opening.insert(Some(place), id, size as u64);
        }
        (opening, blocks)
    }

    #[test]
    fn the_first_of_a_channel_is_opened_first() {
        let (mut opening, blocks) = in_channel(&[100, 10]);
        let [first, second] = [0, 1].map(BlockId);
        let graph = Graph::default();
        opening.grant(50, 2);
        opening.wake();
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Err([second, first]), "both wait");
        assert!(opening.is_waiting(first) && opening.is_waiting(second));
        opening.grant(50, 1);
        assert_eq!(opening.wake(), BTreeSet::new(), "that is no more");
        opening.grant(109, 2);
        assert_eq!(opening.wake(), BTreeSet::from([first, second]));
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Ok(first));
        assert_eq!(opening.on_opened(100, blocks[&first].channel), None);
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Err([second; 2]), "9 bytes are left");
        opening.grant(110, 2);
        opening.wake();
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Ok(second));
        opening.on_opened(10, blocks[&second].channel);
        assert!(opening.is_clean());
    }

    #[test]
    fn where_some_are_dropped_none_is_opened_for_the_sake_of_order_if_there_is_room_for_all() {
        let (mut opening, blocks) = in_channel(&[100, 10]);
        let [first, second] = [0, 1].map(BlockId);
        opening.on_dropped(blocks[&first].channel);
        opening.grant(110, 1);
        assert_eq!(opening.choose(&blocks[&second], &blocks, &Graph::default()), Ok(first), "for one of both");
        opening.grant(110, 2);
        assert_eq!(opening.choose(&blocks[&second], &blocks, &Graph::default()), Ok(second));
        opening.on_opened(10, blocks[&second].channel);
        assert_eq!(opening.choose(&blocks[&first], &blocks, &Graph::default()), Ok(first));
    }

    #[test]
    fn one_behind_leaves_room_for_what_is_not_sent_yet() {
        let (mut opening, blocks) = in_channel(&[100, 10]);
        let [first, second] = [0, 1].map(BlockId);
        let mut graph = Graph::default();
        // The first waits for something that has been opened.
        graph.set_needs(first, [BlockId(9)], |_| true);
        opening.grant(109, 2);
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Err([second; 2]));
        assert_eq!(opening.on_ended(&blocks[&first]), Some(second), "it need not leave room any more");
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Ok(second));
    }

    #[test]
    fn one_in_the_middle_leaves_room_for_those_before_it() {
        let (mut opening, blocks) = in_channel(&[100, 20, 10]);
        let [first, second, third] = [0, 1, 2].map(BlockId);
        let mut graph = Graph::default();
        graph.set_needs(first, [BlockId(9)], |_| true);
        // What goes before the third is the second, and that must not take what the first needs.
        opening.grant(119, 2);
        assert_eq!(opening.choose(&blocks[&third], &blocks, &graph), Err([third, second]));
        opening.grant(120, 2);
        assert_eq!(opening.choose(&blocks[&third], &blocks, &graph), Ok(second));
    }

    #[test]
    fn room_is_left_for_what_an_open_one_may_hand_on() {
        let (mut opening, mut blocks) = in_channel(&[100, 10]);
        let [first, second, open, last] = [0, 1, 2, 3].map(BlockId);
        for (id, size) in [(open, 20), (last, 50)] {
            let data = Bytes::from(vec![0; size]);
            let mut block = LiveBlock::new(id, data, Instant::now(), None, 0, Redundancy::Auto, None);
            block.opened = id == open;
            if !block.opened {
                opening.insert(None, id, block.size());
            }
            blocks.insert(id, block);
        }
        // The first waits for one that is open, and that for the last.
        let mut graph = Graph::default();
        graph.set_needs(open, [last], |_| true);
        graph.set_needs(first, [open], |_| true);
        opening.grant(159, 2);
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Ok(last), "100 and 50 and 10 are too much");
        opening.grant(160, 2);
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Ok(last), "three blocks are too many");
        opening.grant(160, 3);
        assert_eq!(opening.choose(&blocks[&second], &blocks, &graph), Ok(second));
    }
}
