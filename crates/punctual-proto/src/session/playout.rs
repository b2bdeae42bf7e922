//! Play-out: blocks that are given to the application at a fixed latency after their hand-over.

use std::time::{Duration, Instant};

use super::{Phase, Session};
use crate::{
    block::Channel,
    error::SendError,
    frame::{ControlFrame, time::wire_duration},
    limits::MAX_LIVE,
};

impl Session {
    /// Has the peer's blocks of a channel, or (`None`) those of no channel, given to our application `latency` after their hand-over there: early ones wait, and for late
    /// ones nothing waits. With `None` they are given out as they come, in a channel in order. What nothing is said of has the latency of
    /// [`SessionConfig::latency`](crate::SessionConfig::latency), or else the one that the peer [wishes](Self::wish_latency).
    ///
    /// - **When.** At hand-over + latency, by the estimate of how the two clocks differ. As that moves, play-out follows it by 0.25 % of the time at most, so that
    ///   nobody hears it; only where a host's clock stood for 0.1 s or more does it jump. It cannot know a constant difference between the delays of the two directions, half of which it is off by.
    ///   Nothing waits for longer than the latency.
    /// - **What is not there.** A block that is not whole when its time comes is waited for only until one behind it in its channel is whole and due. Then it is passed over and refused, so that its
    ///   sender spends nothing more on it or on what depends on it: [`Event::Skipped`](crate::Event::Skipped). Of blocks that are of no channel each is given out as soon as it is whole and due.
    /// - **For the sender** a block is delivered when it is whole here; its completion and its deadline do not count the wait that this side has chosen, nor blocks before it in its channel. A
    ///   deadline longer than the latency is of no use.
    /// - **What waits** holds its credit: [`Limits::receive_bytes`](crate::Limits::receive_bytes) and `receive_blocks` must hold what comes within the latency. When the session ends
    ///   it is given out at once.
    ///
    /// Of a peer that does not speak Punctual there are no times to go by: its blocks are given out as they come.
    pub fn set_latency(&mut self, now: Instant, channel: Option<Channel>, latency: Option<Duration>) {
        self.follow_clocks(now);
        if let Err(error) = self.receiver.set_latency(channel, latency, self.micros(now), &self.clocks) {
            self.fail(now, error);
        }
        self.settle(now);
    }

    /// The latency in force for the peer's blocks of a channel, or of none.
    pub fn latency(&self, channel: Option<Channel>) -> Option<Duration> {
        self.receiver.latency(channel)
    }

    /// Tells the peer at which latency after their hand-over our blocks of a channel, or (`None`) those of no channel, should be given to its application; `None` or zero takes that back. It is
    /// [done](Self::set_latency) there unless that application says otherwise, up to a [limit](crate::Limits::wished_latency). Blocks that are handed over before the peer
    /// can know of it may be given out as they come.
    ///
    /// # Errors
    /// [`SendError::TooManyChannels`] if that is said of more channels at once than could have live blocks.
    pub fn wish_latency(
        &mut self,
        now: Instant,
        channel: Option<Channel>,
        latency: Option<Duration>,
    ) -> Result<(), SendError> {
        if self.wishes.len() >= MAX_LIVE && !self.wishes.contains_key(&channel) {
            return Err(SendError::TooManyChannels);
        }
        self.wishes.insert(channel, latency.map_or(0, wire_duration));
        self.settle(now);
        Ok(())
    }

    /// Tells the peer what has been wished for since.
    pub(super) fn tell_wishes(&mut self) {
        while self.control.has_room()
            && let Some((channel, latency)) = self.wishes.pop_first()
        {
            self.control.write(&ControlFrame::Latency { channel, latency });
        }
    }

    /// Has play-out follow what is known of the clocks. Needless while nothing waits for its time.
    pub(super) fn follow_clocks(&mut self, now: Instant) {
        let (micros, one_way) = (self.micros(now), self.shortest_rtt() / 2);
        if let Some(offset) = self.clocks.offset_or_guess(micros, one_way.as_micros() as f64) {
            self.receiver.follow(offset, micros);
        }
    }

    /// When a block is to be given out next.
    pub(super) fn next_release(&self) -> Option<Instant> {
        self.epoch.checked_add(Duration::from_micros(self.receiver.next_release()?))
    }

    /// Gives out blocks whose time has come.
    pub(super) fn release_due(&mut self, now: Instant) {
        if !self.receiver.is_timed() || self.phase != Phase::Open {
            return;
        }
        self.follow_clocks(now);
        if let Err(error) = self.receiver.release_due(self.micros(now)) {
            self.fail(now, error);
        }
    }
}
