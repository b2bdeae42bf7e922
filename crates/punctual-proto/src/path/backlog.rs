//! What waits at a path's narrowest link: predicted when packets leave, and put right when they have arrived.

use std::time::{Duration, Instant};

use super::log::Sent;
use crate::rate::Rate;

/// When the narrowest link will have passed on all that the path was given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    until: Instant,
    /// Since when it has had something to do, without a pause.
    busy_since: Instant,
}

impl Backlog {
    pub(crate) fn new(now: Instant) -> Self {
        Self { until: now, busy_since: now }
    }

    /// How long a packet that leaves now would wait.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }

    /// A packet leaves. Returns how long it will wait, and whether it is clean: the link has rested since for as long as it had worked
    /// before, so that it is idle now even if it is only half as fast as it is thought to be.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u16, rate: Rate) -> (Duration, bool) {
        let wait = self.wait(now);
        let rested = now.saturating_duration_since(self.until);
        let worked = self.until.saturating_duration_since(self.busy_since);
        let clean = wait.is_zero() && rested >= worked;
        if wait.is_zero() {
            (self.until, self.busy_since) = (now, now);
        }
        self.until += rate.time_for(bytes.into());
        (wait, clean)
    }

    /// A packet has left the queue at `left`, and those `behind` it are on their way.
    pub(crate) fn replay<'a>(&mut self, left: Instant, behind: impl Iterator<Item = &'a Sent>, rate: Rate) {
        (self.until, self.busy_since) = (left, self.busy_since.min(left));
        for sent in behind {
            self.on_sent(sent.at, sent.bytes, rate);
        }
    }

    /// A packet has left the queue at `left` or before, and those `behind` it are on their way: no more than them waits. A forecast that is longer by
    /// `patience` or less is left as it is, for this is not known as well.
    pub(crate) fn relieve<'a>(
        &mut self,
        left: Instant,
        behind: impl Iterator<Item = &'a Sent>,
        rate: Rate,
        patience: Duration,
    ) {
        if self.until <= left + patience {
            return;
        }
        let mut most = *self;
        most.replay(left, behind, rate);
        if most.until + patience < self.until {
            *self = most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rate() -> Rate {
        Rate::of(1_000, MS)
    }

    #[test]
    fn packets_wait_behind_each_other_and_pauses_make_clean_ones() {
        let start = Instant::now();
        let mut backlog = Backlog::new(start);
        let mut send = |millis: u32| {
            let (wait, clean) = backlog.on_sent(start + MS * millis, 1_000, rate());
            (wait.as_millis(), clean)
        };
        assert_eq!([0, 0, 0].map(&mut send), [(0, true), (1, false), (2, false)]);
        assert_eq!([5, 5].map(&mut send), [(0, false), (1, false)], "3 ms of work, 2 of rest");
        assert_eq!(send(9), (0, true));
    }

    #[test]
    fn what_is_known_of_one_packet_holds_for_those_behind() {
        let start = Instant::now();
        let mut backlog = Backlog::new(start);
        let sent = [0, 1, 2].map(|i| Sent::new(i.into(), start + MS * i, 1_000, Duration::ZERO, false));
        for sent in &sent {
            backlog.on_sent(sent.at, 1_000, rate());
        }
        assert_eq!(backlog.wait(start + MS * 3), Duration::ZERO);
        // The first came out 10 ms later than thought.
        backlog.replay(start + MS * 11, sent[1..].iter(), rate());
        assert_eq!(backlog.wait(start + MS * 3), MS * 10);
        backlog.relieve(start + MS * 20, sent[1..].iter(), rate(), MS);
        assert_eq!(backlog.wait(start + MS * 3), MS * 10, "that it waits for less long is known already");
        backlog.relieve(start + MS * 10, sent[1..].iter(), rate(), MS);
        assert_eq!(backlog.wait(start + MS * 3), MS * 10, "it is not known as well as that");
        backlog.relieve(start + MS * 4, sent[1..].iter(), rate(), MS);
        assert_eq!(backlog.wait(start + MS * 3), MS * 3);
        backlog.replay(start + MS, [].iter(), rate());
        assert_eq!(backlog.wait(start + MS * 3), Duration::ZERO);
    }
}
