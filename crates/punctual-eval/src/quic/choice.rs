//! Which path a packet takes.
//!
//! noq has no hook for that: it sends on the first path, in order of ids, whose window and pacer have room. With a choice of ours, it is asked for one
//! packet at a time while a [gate](super::steering) lets stream data out on one path only.
//!
//! # The pacer
//!
//! A path that has room in its window can still be held by noq's pacer, and noq does not say for how long. So it is tried: if nothing comes although
//! there is data, the pacer is at work, and noq's timer for it is set. What then? MPTCP's textbook rule looks at windows alone and would leave the data
//! with the path. That is right for a burst that the pacer will have let go within milliseconds. It is wrong for a transfer: a controller that is
//! paced below its window (BBR always is) never runs out of it, and the second path would carry nothing for ever. Linux's MPTCP goes by the time in which
//! a path can have sent what waits. So here: [`PathChoice::LowestRtt`] waits for the pacers of the faster paths if all that waits fits into their
//! windows, and they would have sent it, and had it answered, before an answer could come over the next path. Otherwise the next one is taken.
//! [`PathChoice::RoundRobin`] never waits.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{Connection, PathId};
use punctual_proto::Transmit;
use thiserror::Error;

use super::{
    peer::Peer,
    steering::{Gate, Panel, Steering},
};

/// Which path a packet of a multipath client takes. By name: `lowest-rtt`, `round-robin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathChoice {
    /// Of those whose window has room for a full packet, the one with the least smoothed round-trip time.
    LowestRtt,
    /// Of those, each in turn.
    RoundRobin,
}

/// Not the name of a [`PathChoice`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no choice of path for plain QUIC; use `lowest-rtt` or `round-robin`, or nothing for noq's own")]
pub struct UnknownChoice(String);

impl FromStr for PathChoice {
    type Err = UnknownChoice;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "lowest-rtt" => Ok(Self::LowestRtt),
            "round-robin" => Ok(Self::RoundRobin),
            _ => Err(UnknownChoice(name.to_owned())),
        }
    }
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LowestRtt => "lowest-rtt",
            Self::RoundRobin => "round-robin",
        })
    }
}

/// noq's pacer, where a controller names no rate of its own, lets a window out in four fifths of a round trip.
const PACER_SPEED: f64 = 1.25;

/// A path that has room.
#[derive(Debug, Clone, Copy, PartialEq)]
struct View {
    id: PathId,
    rtt: Duration,
    /// Bytes that its window has room for.
    room: u64,
    /// At which its pacer lets packets go, bytes per second.
    rate: f64,
}

/// Asks noq for packets, path by path.
pub(super) struct Chooser {
    choice: PathChoice,
    steering: Arc<Steering>,
    panels: BTreeMap<PathId, Arc<Panel>>,
    /// Which path had the last packet.
    last: Option<PathId>,
}

impl Chooser {
    pub(super) fn new(choice: PathChoice) -> Self {
        Self { choice, steering: Steering::new(), panels: BTreeMap::new(), last: None }
    }

    pub(super) fn steering(&self) -> &Arc<Steering> {
        &self.steering
    }

    /// The next packet, when `backlog` bytes on streams have never left.
    pub(super) fn poll_transmit(
        &mut self,
        peer: &mut Peer,
        now: Instant,
        buf: &mut Vec<u8>,
        backlog: u64,
    ) -> Option<Transmit> {
        let paths = self.in_order(peer.connection()?);
        self.panels.values().for_each(|panel| panel.set_spared(false));
        if paths.is_empty() {
            return self.poll_through(peer, now, buf, Gate::Shut);
        }
        for (at, path) in paths.iter().enumerate() {
            let slot = self.panels.get(&path.id)?.slot;
            let transmit = self.poll_through(peer, now, buf, Gate::Only(slot));
            if transmit.is_some() {
                self.last = Some(path.id);
                return transmit;
            }
            if !self.steering.take_refused() {
                // No data.
                return None;
            }
            let (tried, others) = paths.split_at(at + 1);
            if self.choice.waits(tried, backlog, others) {
                others.iter().filter_map(|path| self.panels.get(&path.id)).for_each(|panel| panel.set_spared(true));
                return None;
            }
        }
        None
    }

    fn poll_through(&self, peer: &mut Peer, now: Instant, buf: &mut Vec<u8>, gate: Gate) -> Option<Transmit> {
        self.steering.take_refused();
        self.steering.set_gate(gate);
        let transmit = peer.poll_transmit(now, buf);
        self.steering.set_gate(Gate::Open);
        transmit
    }

    /// The paths that have room, the one to be tried first in front.
    fn in_order(&mut self, connection: &Connection) -> Vec<View> {
        let mut views: Vec<View> = connection.paths().into_iter().filter_map(|id| self.view(connection, id)).collect();
        match self.choice {
            PathChoice::LowestRtt => views.sort_by_key(|view| (view.rtt, view.id)),
            PathChoice::RoundRobin => views.sort_by_key(|view| (Some(view.id) <= self.last, view.id)),
        }
        views
    }

    fn view(&mut self, connection: &Connection, id: PathId) -> Option<View> {
        let controller = connection.congestion_state(id)?;
        let panel = match self.panels.get(&id) {
            Some(panel) => panel,
            None => self.panels.entry(id).or_insert(Panel::of(controller)?),
        };
        let window = controller.window();
        let room = panel.room(window)?;
        let rtt = connection.rtt(id)?;
        let by_window = || PACER_SPEED * window as f64 / rtt.as_secs_f64().max(f64::MIN_POSITIVE);
        let rate = controller.metrics().pacing_rate.map_or_else(by_window, |rate| rate as f64);
        Some(View { id, rtt, room, rate })
    }
}

impl PathChoice {
    /// Whether `backlog` bytes wait for the pacers of the paths that were tried, rather than taking the first of the others.
    fn waits(self, tried: &[View], backlog: u64, others: &[View]) -> bool {
        let Some(next) = others.first().filter(|_| self == Self::LowestRtt) else { return false };
        let room: u64 = tried.iter().map(|path| path.room).sum();
        let rate: f64 = tried.iter().map(|path| path.rate).sum();
        let slowest = tried.iter().map(|path| path.rtt).max().unwrap_or_default();
        backlog <= room && slowest.as_secs_f64() + backlog as f64 / rate <= next.rtt.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_there_and_back() {
        for choice in [PathChoice::LowestRtt, PathChoice::RoundRobin] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for name in ["", "single", "earliest"] {
            assert!(name.parse::<PathChoice>().unwrap_err().to_string().contains("round-robin"), "{name}");
        }
    }

    #[test]
    fn a_burst_waits_for_the_pacer_and_a_transfer_does_not() {
        let path = |millis, room| View { id: PathId::ZERO, rtt: Duration::from_millis(millis), room, rate: 1e6 };
        let [fast, slow] = [path(20, 50_000), path(60, 50_000)];
        let waits = |backlog| PathChoice::LowestRtt.waits(&[fast], backlog, &[slow]);
        assert!(waits(39_000), "sent after 39 ms and answered after 59");
        assert!(!waits(41_000));
        assert!(!PathChoice::LowestRtt.waits(&[path(20, 10_000)], 20_000, &[slow]), "the window ends first");
        assert!(!PathChoice::LowestRtt.waits(&[fast], 1, &[fast]));
        assert!(PathChoice::LowestRtt.waits(&[fast, path(25, 50_000)], 66_000, &[slow]), "two carry twice as much");
        assert!(!PathChoice::LowestRtt.waits(&[fast], 1, &[]), "there is nothing to wait for");
        assert!(!PathChoice::RoundRobin.waits(&[fast], 1, &[slow]));
    }
}
