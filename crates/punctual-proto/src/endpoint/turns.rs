//! Turns: where more comes in than can be dealt with, each session gets as much of the time as any other.
//!
//! All sessions of an endpoint share its sockets, and a peer that sends more than its share, or what is dear to deal with, would have everybody's packets wait behind its own, in the system's
//! buffer first, which then overflows for all. So what comes is only sorted at first, which is cheap; the sessions that have something take turns. Who has too much waiting loses what
//! comes on top, as it would at any narrow link, and nobody else does.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use bytes::BytesMut;
use noq_proto::{ConnectionEvent, DatagramEvent};

use super::{EcnCodepoint, Endpoint, NetworkPath, SessionId};

/// Packets of a session in one turn: enough for what it has at hand to stay in the processor's cache, and too few for others to notice.
const TURN: usize = 8;
/// Packets of a session that may wait: some milliseconds' work, and no less than what one call to the system may bring of it.
const MAX_WAITING: usize = 1_024;
/// Packets of all sessions that may wait, about 24 MB.
const MAX_ALL: usize = 16_384;

/// A packet that has been sorted.
struct Packet {
    path: NetworkPath,
    ecn: Option<EcnCodepoint>,
    event: ConnectionEvent,
}

/// What waits.
#[derive(Default)]
pub(super) struct Turns {
    /// Of each session that has any,
    packets: BTreeMap<SessionId, VecDeque<Packet>>,
    /// in the order of their turns.
    order: VecDeque<SessionId>,
    count: usize,
}

impl Turns {
    fn push(&mut self, id: SessionId, packet: Packet) {
        let waiting = self.packets.entry(id).or_default();
        if waiting.len() >= MAX_WAITING || self.count >= MAX_ALL {
            return;
        }
        if waiting.is_empty() {
            self.order.push_back(id);
        }
        waiting.push_back(packet);
        self.count += 1;
    }

    /// The next session's packets of one turn, `most` of them.
    fn next(&mut self, most: usize) -> Option<(SessionId, Vec<Packet>)> {
        let id = self.order.pop_front()?;
        let mut entry = match self.packets.entry(id) {
            std::collections::btree_map::Entry::Occupied(entry) => entry,
            std::collections::btree_map::Entry::Vacant(_) => return None,
        };
        let waiting = entry.get_mut();
        let turn: Vec<_> = waiting.drain(..waiting.len().min(most)).collect();
        self.count -= turn.len();
        if waiting.is_empty() {
            entry.remove();
        } else {
            self.order.push_back(id);
        }
        Some((id, turn))
    }
}

impl Endpoint {
    /// Takes in one UDP datagram as [`handle_datagram`](Self::handle_datagram) does, but leaves what is for a session waiting for its turn ([`work`](Self::work)).
    ///
    /// For callers whom more may reach than they can deal with.
    pub fn queue_datagram(&mut self, now: Instant, path: NetworkPath, ecn: Option<EcnCodepoint>, data: BytesMut) {
        match self.sort(now, path, ecn, data) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(id) = self.by_handle.get(handle.0).copied().flatten() {
                    self.turns.push(id, Packet { path, ecn, event });
                }
            }
            Some(other) => self.take_in(now, path, ecn, other),
            None => {}
        }
    }

    /// Deals with about `budget` datagrams of those that wait, session by session in turn. Whether there are more.
    pub fn work(&mut self, now: Instant, budget: usize) -> bool {
        self.tick(now);
        let mut left = budget;
        while left > 0 {
            let Some((id, packets)) = self.turns.next(left.min(TURN)) else { break };
            left -= packets.len();
            for Packet { path, ecn, event } in packets {
                self.give(now, id, path, ecn, event);
            }
        }
        self.turns.count > 0
    }

    /// Whether several sessions wait for their turns: then it is worth looking whether there is something for others still.
    pub fn is_contended(&self) -> bool {
        self.turns.order.len() > 1
    }
}
