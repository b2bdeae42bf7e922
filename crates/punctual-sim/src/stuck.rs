//! Worlds in which time stands still.

use std::time::Duration;

use thiserror::Error;

use crate::{queue::Target, world::HostId};

/// Why a world does not go on: what runs in it would keep it busy for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Stuck {
    /// Time does not pass any more, because a host asks to be woken, or sends, without end.
    #[error("host {} keeps the world at {at:?}", host.0)]
    Host {
        /// Which.
        host: HostId,
        /// When.
        at: Duration,
    },
    /// Time does not pass any more, for a reason that is no host's.
    #[error("more than {MOST_AT_ONCE} events at {at:?}")]
    Instant {
        /// When.
        at: Duration,
    },
    /// There have been more events than the world was [allowed](crate::World::with_most_events).
    #[error("more than {events} events by {at:?}")]
    Events {
        /// How many are allowed.
        events: u64,
        /// When there were more.
        at: Duration,
    },
}

/// Wake-ups of a host on end without any time passing that are taken for one that has lost itself.
pub(crate) const MOST_SPINS: u32 = 10_000;

/// Datagrams a host may send on end without anything else happening: some hundred megabytes. No window is that large.
pub(crate) const MOST_SENT_AT_ONCE: u32 = 250_000;

/// Events at one instant: far more than packets and timers there can be.
const MOST_AT_ONCE: u32 = 1_000_000;

/// Counts events, and says when there are too many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    events: u64,
    most: u64,
    instant: Duration,
    at_once: u32,
}

impl Default for Watch {
    fn default() -> Self {
        Self { events: 0, most: u64::MAX, instant: Duration::ZERO, at_once: 0 }
    }
}

impl Watch {
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn allow(&mut self, most: u64) {
        self.most = most;
    }

    /// Counts an event that is about to happen.
    pub(crate) fn count(&mut self, at: Duration, target: &Target) -> Result<(), Stuck> {
        self.events += 1;
        self.at_once = if at == self.instant { self.at_once + 1 } else { 1 };
        self.instant = at;
        if self.at_once > MOST_AT_ONCE {
            return Err(match target {
                Target::Host(host) | Target::Kick(host) | Target::Timer(host, _) => Stuck::Host { host: *host, at },
                Target::Link(_) | Target::Cross(_) | Target::Action(_) => Stuck::Instant { at },
            });
        }
        if self.events > self.most { Err(Stuck::Events { events: self.most, at }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::LinkId;

    #[test]
    fn an_instant_holds_only_so_many_events() {
        let mut watch = Watch::default();
        let (at, link) = (Duration::from_secs(1), Target::Link(LinkId(0)));
        assert!((0..MOST_AT_ONCE).all(|_| watch.count(at, &link).is_ok()));
        assert_eq!(watch.count(at, &link), Err(Stuck::Instant { at }));
        assert_eq!(watch.count(at, &Target::Kick(HostId(3))), Err(Stuck::Host { host: HostId(3), at }));
        assert_eq!(watch.count(at * 2, &link), Ok(()));
    }

    #[test]
    fn a_limit_is_kept() {
        let mut watch = Watch::default();
        watch.allow(2);
        let counted = (1..=3).map(|n| watch.count(Duration::from_secs(n), &Target::Link(LinkId(0))));
        let at = Duration::from_secs(3);
        assert_eq!(counted.collect::<Vec<_>>(), [Ok(()), Ok(()), Err(Stuck::Events { events: 2, at })]);
    }
}
