//! Whose turn it is in each channel.
//!
//! In a channel with a [play-out latency](super::playout) it is time that says so, and what is not there then is passed over: of a block that has not been heard of
//! it is remembered that nobody waits for it any more.

use std::collections::{BTreeMap, BTreeSet};

use rangemap::RangeSet;

use crate::{
    block::{BlockId, Channel},
    error::ProtocolError,
};

/// The in-order channels of one direction.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    channels: BTreeMap<Channel, State>,
    /// Entries of all channels' maps.
    places: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Every position below is behind us.
    next: u64,
    /// Which block stands where.
    taken: BTreeMap<u64, BlockId>,
    /// Those of them that are whole and have not been told of.
    whole: BTreeSet<u64>,
    /// Positions whose blocks were dropped. As ranges: where one block is late, everything behind it may be dropped.
    skipped: RangeSet<u64>,
    /// Positions behind us whose blocks have not been heard of.
    passed: RangeSet<u64>,
}

/// Where a block stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    /// It has a turn.
    Waits,
    /// Its turn has passed.
    Passed,
}

impl State {
    fn places(&self) -> usize {
        self.taken.len() + self.skipped.len() + self.passed.len()
    }

    fn is_set(&self, position: u64) -> bool {
        position < self.next || self.taken.contains_key(&position) || self.skipped.contains(&position)
    }
}

impl Channels {
    /// Places and ranges of places that are remembered.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// A block stands at a position of a channel, or would, had its turn not passed.
    ///
    /// # Errors
    /// If another stands there, the position is behind us, or there are more channels or places than allowed.
    pub(crate) fn place(
        &mut self,
        place: (Channel, u64),
        id: BlockId,
        max_channels: usize,
        max_places: usize,
    ) -> Result<Stand, ProtocolError> {
        self.set(place, Some(id), max_channels, max_places)
    }

    /// The block at a position was dropped.
    pub(crate) fn skip(
        &mut self,
        (channel, position): (Channel, u64),
        id: BlockId,
        max_channels: usize,
        max_places: usize,
    ) -> Result<(), ProtocolError> {
        if let Some(state) = self.channels.get_mut(&channel)
            && state.taken.get(&position) == Some(&id)
        {
            state.taken.remove(&position);
            state.whole.remove(&position);
            self.places -= 1;
        }
        self.set((channel, position), None, max_channels, max_places).map(drop)
    }

    fn set(
        &mut self,
        (channel, position): (Channel, u64),
        block: Option<BlockId>,
        max_channels: usize,
        max_places: usize,
    ) -> Result<Stand, ProtocolError> {
        if self.channels.len() >= max_channels && !self.channels.contains_key(&channel) {
            return Err(ProtocolError::Channel);
        }
        let state = self.channels.entry(channel).or_default();
        let before = state.places();
        let stand = if state.passed.contains(&position) { Stand::Passed } else { Stand::Waits };
        match block {
            _ if stand == Stand::Passed => state.passed.remove(position..position + 1),
            _ if state.is_set(position) => return Err(ProtocolError::Channel),
            Some(id) => drop(state.taken.insert(position, id)),
            None => state.skipped.insert(position..position + 1),
        }
        self.places = self.places + state.places() - before;
        if self.places > max_places { Err(ProtocolError::Channel) } else { Ok(stand) }
    }

    /// The turn of the block at a position has come, whatever is before it. Returns the blocks that were there, and are behind us now.
    ///
    /// # Errors
    /// If more positions are behind us of whose blocks nothing is known, in more pieces, than is allowed.
    pub(crate) fn pass(
        &mut self,
        (channel, position): (Channel, u64),
        max_places: usize,
    ) -> Result<Vec<BlockId>, ProtocolError> {
        let Some(state) = self.channels.get_mut(&channel).filter(|state| state.next <= position) else {
            return Ok(Vec::new());
        };
        let before = state.places();
        state.taken.remove(&position);
        state.whole = state.whole.split_off(&(position + 1));
        let behind = state.next..position;
        if !behind.is_empty() {
            state.passed.insert(behind.clone());
        }
        let mut left = Vec::new();
        while let Some(first) = state.taken.first_entry().filter(|first| *first.key() < position) {
            let at = *first.key();
            state.passed.remove(at..at + 1);
            left.push(first.remove());
        }
        // What stands at the position is not skipped, so no range reaches beyond it.
        while let Some(range) = state.skipped.first().filter(|range| range.start < position).cloned() {
            state.passed.remove(range.clone());
            state.skipped.remove(range);
        }
        state.next = position + 1;
        self.places = self.places + state.places() - before;
        if self.places > max_places { Err(ProtocolError::Channel) } else { Ok(left) }
    }

    /// The block at a position is whole, and waits for its turn.
    pub(crate) fn on_whole(&mut self, (channel, position): (Channel, u64)) {
        if let Some(state) = self.channels.get_mut(&channel)
            && state.taken.contains_key(&position)
        {
            state.whole.insert(position);
        }
    }

    /// The blocks of a channel that are whole and wait for their turn; each is told once.
    pub(crate) fn take_whole(&mut self, channel: Channel) -> Vec<BlockId> {
        let Some(state) = self.channels.get_mut(&channel) else { return Vec::new() };
        let whole = std::mem::take(&mut state.whole);
        whole.iter().filter_map(|position| state.taken.get(position).copied()).collect()
    }

    /// The next block of the channel whose turn it is, if `complete` says that it is all there.
    pub(crate) fn advance(&mut self, channel: Channel, complete: impl Fn(BlockId) -> bool) -> Option<BlockId> {
        let state = self.channels.get_mut(&channel)?;
        if let Some(skipped) = state.skipped.get(&state.next).cloned() {
            state.next = skipped.end;
            state.skipped.remove(skipped);
            self.places -= 1;
        }
        let first = state.taken.first_entry().filter(|first| *first.key() == state.next)?;
        if !complete(*first.get()) {
            return None;
        }
        let id = first.remove();
        state.whole.remove(&state.next);
        self.places -= 1;
        state.next += 1;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_in_order_and_dropped_ones_are_passed_over() {
        let mut c = Channels::default();
        let ch = Channel(7);
        c.place((ch, 2), BlockId(12), 1, 10).unwrap();
        c.place((ch, 0), BlockId(10), 1, 10).unwrap();
        assert_eq!(c.advance(ch, |_| true), Some(BlockId(10)));
        assert_eq!(c.advance(ch, |_| true), None, "1 is not known yet");
        c.skip((ch, 1), BlockId(11), 1, 10).unwrap();
        assert_eq!(c.advance(ch, |_| false), None);
        assert_eq!(c.advance(ch, |_| true), Some(BlockId(12)));
        assert_eq!(c.places, 0);
    }

    #[test]
    fn hostile_positions_are_refused() {
        let mut c = Channels::default();
        c.place((Channel(1), 0), BlockId(0), 1, 2).unwrap();
        assert!(c.place((Channel(1), 0), BlockId(1), 1, 2).is_err());
        assert!(c.place((Channel(2), 0), BlockId(1), 1, 2).is_err());
        c.skip((Channel(1), 5), BlockId(5), 1, 2).unwrap();
        assert!(c.skip((Channel(1), 5), BlockId(6), 1, 2).is_err());
        assert!(c.place((Channel(1), 5), BlockId(6), 1, 2).is_err());
        c.skip((Channel(1), 6), BlockId(6), 1, 2).unwrap();
        assert!(c.skip((Channel(1), 8), BlockId(8), 1, 2).is_err(), "a gap takes a place");
    }

    #[test]
    fn time_passes_over_what_is_not_there() {
        let mut c = Channels::default();
        let ch = Channel(7);
        // Position 0 is not heard of, 1 not whole, 2 dropped, 3 and 4 not heard of, 5 has come to its time.
        c.place((ch, 1), BlockId(11), 1, 10).unwrap();
        c.skip((ch, 2), BlockId(12), 1, 10).unwrap();
        assert_eq!(c.place((ch, 5), BlockId(15), 1, 10), Ok(Stand::Waits));
        assert_eq!(c.pass((ch, 5), 10), Ok(vec![BlockId(11)]));
        assert_eq!(c.places, 2, "0, and 3 with 4");
        assert!(c.place((ch, 1), BlockId(21), 1, 10).is_err(), "twice");
        assert!(c.place((ch, 5), BlockId(25), 1, 10).is_err(), "twice");
        assert!(c.skip((ch, 2), BlockId(12), 1, 10).is_err(), "twice");
        assert_eq!(c.place((ch, 3), BlockId(13), 1, 10), Ok(Stand::Passed));
        assert!(c.place((ch, 3), BlockId(23), 1, 10).is_err(), "twice");
        c.skip((ch, 4), BlockId(14), 1, 10).unwrap();
        c.skip((ch, 0), BlockId(10), 1, 10).unwrap();
        assert_eq!(c.places, 0);
        assert_eq!(c.place((ch, 6), BlockId(16), 1, 10), Ok(Stand::Waits));
        assert_eq!(c.advance(ch, |_| true), Some(BlockId(16)), "order goes on behind it");
    }

    #[test]
    fn what_is_passed_over_is_bounded() {
        let mut c = Channels::default();
        let ch = Channel(7);
        for position in [1, 1 << 61, (1 << 61) + 2] {
            c.place((ch, position), BlockId(position), 1, 3).unwrap();
            assert_eq!(c.pass((ch, position), 2).is_err(), position == (1 << 61) + 2, "three gaps");
        }
    }

    #[test]
    fn what_is_dropped_behind_a_late_block_takes_one_place() {
        let mut c = Channels::default();
        let ch = Channel(0);
        c.place((ch, 0), BlockId(0), 1, 2).unwrap();
        for position in (1..1_000).rev() {
            c.skip((ch, position), BlockId(position), 1, 2).unwrap();
        }
        assert_eq!(c.places, 2);
        assert_eq!(c.advance(ch, |_| true), Some(BlockId(0)));
        assert_eq!(c.advance(ch, |_| true), None);
        assert_eq!(c.places, 0);
        assert!(c.place((ch, 999), BlockId(1_000), 1, 2).is_err(), "behind us");
        c.place((ch, 1_000), BlockId(1_000), 1, 2).unwrap();
    }
}
