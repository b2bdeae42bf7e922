//! What the peer says: what it has, what it does not want, and what it has room for.

use std::time::Duration;

use super::{
    live::LiveBlock,
    store::{Notice, Store},
};
use crate::{
    block::{BlockId, Delivery, Delta, DropReason, Outcome},
    error::ProtocolError,
};

impl Store {
    /// The peer has handed the whole block to its application, `completion` after its hand-over here.
    pub(crate) fn on_completed(
        &mut self,
        id: BlockId,
        completion: Duration,
        good_bytes: u64,
    ) -> Result<(), ProtocolError> {
        let Some(block) = self.known(id)? else { return Ok(()) };
        let delta = block.said_deadline().map(|deadline| Delta::between(deadline, completion));
        let good_bytes =
            if delta.is_some_and(Delta::is_late) { good_bytes.min(block.told_size()) } else { block.told_size() };
        self.passed.on_completed(block.channel, id);
        self.end(id, Outcome::Delivered(Delivery { completion, delta, good_bytes }));
        Ok(())
    }

    /// The peer has freed a block that we dropped.
    pub(crate) fn on_freed(&mut self, id: BlockId, good_bytes: u64) -> Result<(), ProtocolError> {
        let Some(block) = self.known(id)? else { return Ok(()) };
        let Some(reason) = block.dying else { return Err(ProtocolError::UnknownBlock) };
        let good_bytes = good_bytes.min(block.told_size());
        self.bury(id, reason, good_bytes);
        Ok(())
    }

    /// The peer does not want a block.
    pub(crate) fn on_refused(&mut self, id: BlockId) -> Result<(), ProtocolError> {
        let Some(block) = self.known(id)? else { return Ok(()) };
        let (good_bytes, size, channel) = (block.good_bytes, block.size(), block.channel);
        let reason = block.dying.unwrap_or(DropReason::Refused);
        if block.dying.is_none() {
            // The answer settles the credit that the block used.
            self.notices.push_back(Notice::Dropped { id, reason, size, channel });
        }
        self.bury(id, reason, good_bytes);
        Ok(())
    }

    /// # Errors
    /// If there never was such a block.
    pub(crate) fn check_known(&self, id: BlockId) -> Result<(), ProtocolError> {
        if id.0 < self.next_id { Ok(()) } else { Err(ProtocolError::UnknownBlock) }
    }

    /// A live block the peer speaks of; `None` if it has ended.
    fn known(&self, id: BlockId) -> Result<Option<&LiveBlock>, ProtocolError> {
        match self.blocks.get(&id) {
            Some(block) if block.opened => Ok(Some(block)),
            None if id.0 < self.next_id => Ok(None),
            _ => Err(ProtocolError::UnknownBlock),
        }
    }

    /// The peer's limits are known: totals of credit, and its largest block.
    pub(crate) fn on_settings(&mut self, max_block: u64, max_channels: u64, bytes: u64, blocks: u64) {
        self.peer_max_block = Some(max_block);
        self.channels.on_peer_limit(max_channels);
        self.opening.retain(|channel| self.channels.contains(channel));
        self.passed.retain(|channel| self.channels.contains(channel));
        for (id, reason, place) in std::mem::take(&mut self.early_drops) {
            let channel = Some(place).filter(|&(channel, _)| self.channels.contains(channel));
            self.notices.push_back(Notice::Dropped { id, reason, size: 0, channel });
        }
        let mut unfit = Vec::new();
        for (&id, block) in &mut self.blocks {
            if block.channel.is_some_and(|(channel, _)| !self.channels.contains(channel)) {
                block.channel = None;
                unfit.push(id);
            } else if block.size() > max_block {
                unfit.push(id);
            }
        }
        unfit.sort_unstable();
        for id in unfit {
            self.drop_block(id, DropReason::Refused);
        }
        self.grant(bytes, blocks);
        self.wake();
    }

    /// The peer is a plain QUIC endpoint: no credit to wait for, no answers to drops, and no blocks without bytes.
    pub(crate) fn on_fallback(&mut self) {
        self.peer_confirms = false;
        self.early_drops.clear();
        let mut empty: Vec<_> = self.blocks.values().filter(|block| block.is_empty()).map(|block| block.id).collect();
        empty.sort_unstable();
        empty.into_iter().for_each(|id| self.drop_block(id, DropReason::Refused));
        self.grant(u64::MAX, u64::MAX);
        self.wake();
    }

    /// Raises the credit. Totals only grow; a smaller one is an old one. It is made use of when [woken](Self::wake).
    pub(crate) fn grant(&mut self, bytes: u64, blocks: u64) {
        self.opening.grant(bytes, blocks);
    }

    /// Has those compete again that waited for credit, if there is more: once for all that the peer has said.
    pub(crate) fn wake(&mut self) {
        for id in self.opening.wake() {
            self.refresh(id);
            self.refresh_open_followers(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{
        block::{Block, Channel, Redundancy},
        error::SendError,
        limits::Limits,
        redundancy, schedule,
    };

    #[test]
    fn the_peer_never_hears_of_channels_it_has_no_room_for() {
        let mut store = Store::new(
            Limits::default(),
            schedule::default_factory()(),
            Redundancy::Auto,
            redundancy::default_factory()(),
        );
        let mut send = |block| store.insert(Instant::now(), block).unwrap();
        let kept = send(Block::new(vec![0; 10]).channel(Channel(1)));
        let excess = send(Block::new(vec![0; 10]).channel(Channel(2)));
        let large = send(Block::new(vec![0; 1_001]).channel(Channel(1)));
        store.on_settings(1_000, 1, 10_000, 10);
        let dropped = |id, channel| Notice::Dropped { id, reason: DropReason::Refused, size: 0, channel };
        let notices: Vec<_> = std::iter::from_fn(|| store.poll()).collect();
        assert!(notices.contains(&dropped(excess, None)));
        assert!(notices.contains(&dropped(large, Some((Channel(1), 1)))));
        assert!(store.get(kept).is_some());
        let more = store.insert(Instant::now(), Block::new(vec![0; 10]).channel(Channel(2)));
        assert_eq!(more, Err(SendError::TooManyChannels));
    }

    #[test]
    fn a_plain_peer_is_sent_no_empty_blocks() {
        let mut store = Store::new(
            Limits::default(),
            schedule::default_factory()(),
            Redundancy::Auto,
            redundancy::default_factory()(),
        );
        let mut send = |size| store.insert(Instant::now(), Block::new(vec![0; size]));
        let (early, kept) = (send(0).unwrap(), send(1).unwrap());
        store.on_fallback();
        assert!(store.get(early).is_none() && store.get(kept).is_some());
        let ended = |notice| matches!(notice, Notice::Ended(id, Outcome::Dropped { reason: DropReason::Refused, .. }, _) if id == early);
        assert!(std::iter::from_fn(|| store.poll()).any(ended));
        assert_eq!(store.insert(Instant::now(), Block::new(vec![])), Err(SendError::Empty));
    }
}
