//! Whose turn it is in each channel.

use std::collections::BTreeMap;

use crate::{
    block::{BlockId, Channel},
    error::ProtocolError,
};

/// What is known of a position in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// This block stands there.
    Taken(BlockId),
    /// The block that stood there was dropped.
    Skipped,
}

/// The in-order channels of one direction.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    channels: BTreeMap<Channel, State>,
    places: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Every position below is behind us.
    next: u64,
    places: BTreeMap<u64, Place>,
}

impl Channels {
    /// A block stands at a position of a channel.
    ///
    /// # Errors
    /// If another stands there, the position is behind us, or there are more channels or places than allowed.
    pub(crate) fn place(
        &mut self,
        (channel, position): (Channel, u64),
        id: BlockId,
        max_channels: usize,
        max_places: usize,
    ) -> Result<(), ProtocolError> {
        self.set((channel, position), Place::Taken(id), max_channels, max_places)
    }

    /// The block at a position was dropped.
    pub(crate) fn skip(
        &mut self,
        (channel, position): (Channel, u64),
        id: BlockId,
        max_channels: usize,
        max_places: usize,
    ) -> Result<(), ProtocolError> {
        if let Some(place) = self.channels.get_mut(&channel).and_then(|state| state.places.get_mut(&position))
            && *place == Place::Taken(id)
        {
            *place = Place::Skipped;
            return Ok(());
        }
        self.set((channel, position), Place::Skipped, max_channels, max_places)
    }

    fn set(
        &mut self,
        (channel, position): (Channel, u64),
        place: Place,
        max_channels: usize,
        max_places: usize,
    ) -> Result<(), ProtocolError> {
        if self.places >= max_places || (self.channels.len() >= max_channels && !self.channels.contains_key(&channel)) {
            return Err(ProtocolError::Channel);
        }
        let state = self.channels.entry(channel).or_default();
        if position < state.next || state.places.insert(position, place).is_some() {
            return Err(ProtocolError::Channel);
        }
        self.places += 1;
        Ok(())
    }

    /// The next block of the channel whose turn it is, if `complete` says that it is all there.
    pub(crate) fn advance(&mut self, channel: Channel, complete: impl Fn(BlockId) -> bool) -> Option<BlockId> {
        let state = self.channels.get_mut(&channel)?;
        loop {
            let place = state.places.first_entry().filter(|place| *place.key() == state.next)?;
            let turn = match *place.get() {
                Place::Taken(id) if !complete(id) => return None,
                Place::Taken(id) => Some(id),
                Place::Skipped => None,
            };
            place.remove();
            self.places -= 1;
            state.next += 1;
            if turn.is_some() {
                return turn;
            }
        }
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
        assert!(c.skip((Channel(1), 6), BlockId(6), 1, 2).is_err());
    }
}
