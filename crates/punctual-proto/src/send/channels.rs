//! The channels that were sent on.

use std::collections::BTreeMap;

use crate::{
    block::{Channel, Redundancy},
    error::SendError,
    limits::Limits,
};

/// A block's channel and its position there.
pub(super) type Place = (Channel, u64);

/// What is known of channels.
#[derive(Debug)]
pub(super) struct Channels {
    /// The most there may be on our side.
    limit: usize,
    /// The most the peer takes, once it has said so.
    peer_limit: Option<u64>,
    states: BTreeMap<Channel, State>,
    /// How blocks of some are protected that do not say it themselves.
    redundancy: BTreeMap<Channel, Redundancy>,
}

/// A channel that was sent on.
#[derive(Debug, Clone, Copy)]
struct State {
    /// The position of its next block.
    next: u64,
    /// How many channels there were before it.
    rank: u64,
}

impl Channels {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { limit: limits.channels, peer_limit: None, states: BTreeMap::new(), redundancy: BTreeMap::new() }
    }

    /// Whether a block may go on this one.
    pub(super) fn takes(&self, channel: Channel) -> bool {
        let limit = (self.limit as u64).min(self.peer_limit.unwrap_or(u64::MAX));
        self.contains(channel) || (self.states.len() as u64) < limit
    }

    /// The place of the next block on this one.
    pub(super) fn next(&mut self, channel: Channel) -> Place {
        let rank = self.states.len() as u64;
        let state = self.states.entry(channel).or_insert(State { next: 0, rank });
        state.next += 1;
        (channel, state.next - 1)
    }

    /// Whether it was sent on, and the peer takes it as far as it has said.
    pub(super) fn contains(&self, channel: Channel) -> bool {
        self.states.contains_key(&channel)
    }

    /// The peer takes so many; it would take it for an error to hear of more. The others are forgotten.
    pub(super) fn on_peer_limit(&mut self, limit: u64) {
        self.peer_limit = Some(limit);
        self.states.retain(|_, state| state.rank < limit);
    }

    /// Whether the peer has said how many it takes.
    pub(super) fn has_peer_limit(&self) -> bool {
        self.peer_limit.is_some()
    }

    /// How its blocks are protected, if that was said.
    pub(super) fn redundancy(&self, channel: Channel) -> Option<Redundancy> {
        self.redundancy.get(&channel).copied()
    }

    /// Says how its blocks are protected.
    ///
    /// # Errors
    /// As for a block of a channel too many.
    pub(super) fn set_redundancy(&mut self, channel: Channel, mode: Redundancy) -> Result<(), SendError> {
        if !self.redundancy.contains_key(&channel) && self.redundancy.len() >= self.limit {
            return Err(SendError::TooManyChannels);
        }
        self.redundancy.insert(channel, mode);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_came_first_stay_if_the_peer_takes_fewer() {
        let mut channels = Channels::new(&Limits { channels: 2, ..Limits::default() });
        let [a, b, c] = [9, 1, 5].map(Channel);
        assert_eq!([a, b, a].map(|channel| channels.next(channel)), [(a, 0), (b, 0), (a, 1)]);
        assert_eq!([a, b, c].map(|channel| channels.takes(channel)), [true, true, false], "two are enough");
        channels.on_peer_limit(1);
        assert_eq!([a, b, c].map(|channel| channels.takes(channel)), [true, false, false]);
        assert_eq!(channels.next(a), (a, 2));
    }
}
