//! The part of the receiver that gives blocks out at their time; see [`playout`](crate::receive::playout).

use std::time::{Duration, Instant};

use super::{Notice, Receiver};
use crate::{
    block::{BlockId, Channel},
    clock::{Clocks, Micros},
    error::ProtocolError,
    frame::time::wire_duration,
    receive::playout::Held,
};

impl Receiver {
    /// Whether any blocks may have to wait for their time.
    pub(crate) fn is_timed(&self) -> bool {
        self.latencies.is_set() || self.waiting.len() > 0
    }

    /// The peer's clock is `offset` microseconds ahead, as far as is known `now`.
    pub(crate) fn follow(&mut self, offset: f64, now: Micros) {
        self.playout.follow(offset, now);
    }

    /// How long after their hand-over blocks of a channel, or of none, are given out.
    pub(crate) fn latency(&self, whose: Option<Channel>) -> Option<Duration> {
        self.latencies.of(whose)
    }

    /// Our application's word on that.
    pub(crate) fn set_latency(
        &mut self,
        whose: Option<Channel>,
        latency: Option<Duration>,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<(), ProtocolError> {
        let before = self.latencies.of(whose);
        self.latencies.set(whose, latency);
        self.on_latency(whose, before, now, clocks)
    }

    /// The peer's application's word on that.
    pub(crate) fn on_wish(
        &mut self,
        whose: Option<Channel>,
        latency: Option<Duration>,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<(), ProtocolError> {
        let before = self.latencies.of(whose);
        let latency = latency.map(|latency| latency.min(self.limits.wished_latency));
        self.latencies.wish(whose, latency, self.limits.channels);
        self.on_latency(whose, before, now, clocks)
    }

    /// When the next block is to be given out.
    pub(crate) fn next_release(&self) -> Option<Micros> {
        self.playout.ours(self.waiting.next_due()?)
    }

    /// Gives out every block whose time has come.
    ///
    /// # Errors
    /// If the peer leaves more of its channels unheard of than it may.
    pub(crate) fn release_due(&mut self, now: Micros) -> Result<(), ProtocolError> {
        let Some(by) = self.playout.peers(now) else { return Ok(()) };
        while let Some((mut held, due)) = self.waiting.pop_due(by) {
            held.block.play_at = self.play_at(due);
            self.give_out(held)?;
        }
        Ok(())
    }

    /// A block is whole: the peer hears of it now, the application gets it at its time.
    pub(super) fn have_it_wait(
        &mut self,
        id: BlockId,
        latency: Duration,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<(), ProtocolError> {
        let Some((info, block)) = self.complete(id, now, clocks) else { return Ok(()) };
        // Nothing was handed over after it came, whatever the peer says: so nothing waits for longer than the latency.
        let here = self.playout.peers(now);
        let begin = here.map_or(info.begin, |here| info.begin.min(here));
        let held = Held { block, place: info.channel, begin };
        let Some(here) = here else { return self.give_out(held) };
        let latency = wire_duration(latency);
        self.waiting.insert(held, latency);
        if begin.saturating_add(latency) <= here { self.release_due(now) } else { Ok(()) }
    }

    /// Our reading of a time on the peer's clock.
    pub(super) fn play_at(&self, due: u64) -> Option<Instant> {
        self.epoch.checked_add(Duration::from_micros(self.playout.ours(due)?))
    }

    /// The application gets a block, and those before it in its channel that are not whole will not be waited for.
    fn give_out(&mut self, held: Held) -> Result<(), ProtocolError> {
        if let Some(place) = held.place {
            let left = self.channels.pass(place, self.max_places())?;
            left.into_iter().for_each(|id| self.skip(id));
        }
        self.hand_over(held.block);
        Ok(())
    }

    /// Refuses a block that is known and not whole: its turn has passed.
    pub(super) fn skip(&mut self, id: BlockId) {
        let Some(block) = self.take(id) else { return };
        let received_bytes = block.bytes.received();
        self.refused.insert(id, block.info);
        self.end(id);
        self.tally.skipped += 1;
        self.notices.push_back(Notice::Skipped { id, received_bytes });
    }

    /// The latency of a channel's blocks, or of those of none, may have changed.
    fn on_latency(
        &mut self,
        whose: Option<Channel>,
        before: Option<Duration>,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<(), ProtocolError> {
        let latency = self.latencies.of(whose);
        if latency == before {
            return Ok(());
        }
        // Without one, what waited for its time is given out.
        self.waiting.reschedule(whose, latency.map_or(0, wire_duration));
        self.release_due(now)?;
        let Some(channel) = whose else { return Ok(()) };
        if latency.is_none() {
            self.release_channel(channel, now, clocks);
        } else if before.is_none() {
            // What is whole has waited for its turn, and waits for its time now.
            for id in self.channels.take_whole(channel) {
                self.check_complete(id, now, clocks)?;
            }
        }
        Ok(())
    }
}
