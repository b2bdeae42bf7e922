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
/// Ends of blocks that cost as much as a packet: to tell of one, and to have it taken, costs about an eighth of that (`examples/hostile_cost.rs`), and a packet may bring thousands.
const ENDS: u64 = 8;
/// Packets of a session that may wait: some milliseconds' work, and no less than what one call to the system may bring of it.
const MAX_WAITING: usize = 1_024;
/// Packets of all sessions that may wait, about 24 MB.
const MAX_ALL: usize = 16_384;

/// A packet that has been sorted.
pub(super) struct Packet {
    path: NetworkPath,
    ecn: Option<EcnCodepoint>,
    event: ConnectionEvent,
}

/// What waits.
pub(super) struct Turns<P = Packet> {
    /// Of each session that has any,
    packets: BTreeMap<SessionId, VecDeque<P>>,
    /// in the order of their turns.
    order: VecDeque<SessionId>,
    count: usize,
    /// What sessions have had beyond their turns, in packets' worth.
    debts: BTreeMap<SessionId, usize>,
    /// What a packet of a session cost in its last turn, if it was more than one does.
    dear: BTreeMap<SessionId, usize>,
}

impl<P> Default for Turns<P> {
    fn default() -> Self {
        Self {
            packets: BTreeMap::new(),
            order: VecDeque::new(),
            count: 0,
            debts: BTreeMap::new(),
            dear: BTreeMap::new(),
        }
    }
}

impl<P> Turns<P> {
    fn push(&mut self, id: SessionId, packet: P) {
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

    /// Whose turn it is. Who has had more than his turns is passed over for as many, while others wait.
    fn next_session(&mut self) -> Option<SessionId> {
        while self.order.len() > 1 {
            let id = self.order.pop_front()?;
            match self.debts.get_mut(&id).filter(|debt| **debt >= TURN) {
                Some(debt) => *debt -= TURN,
                None => return Some(id),
            }
            self.order.push_back(id);
        }
        // Whoever is alone harms nobody.
        self.debts.clear();
        self.dear.clear();
        self.order.pop_front()
    }

    /// A session's turn of `count` packets has cost so much more than these.
    fn charge(&mut self, id: SessionId, count: usize, more: usize) {
        let beyond = count.saturating_add(more).saturating_sub(TURN);
        if beyond > 0 && !self.order.is_empty() {
            let debt = self.debts.entry(id).or_default();
            *debt = debt.saturating_add(beyond);
        }
        match more / count.max(1) {
            0 => self.dear.remove(&id),
            _ if self.order.is_empty() => None,
            each => self.dear.insert(id, each),
        };
    }

    /// The next session's packets of one turn, `most` of them.
    fn next(&mut self, most: usize) -> Option<(SessionId, Vec<P>)> {
        let id = self.next_session()?;
        let mut entry = match self.packets.entry(id) {
            std::collections::btree_map::Entry::Occupied(entry) => entry,
            std::collections::btree_map::Entry::Vacant(_) => return None,
        };
        let waiting = entry.get_mut();
        // Before it is known what they cost it may be too many.
        let dear = self.dear.get(&id).copied().unwrap_or_default();
        let most = most.min(TURN.div_ceil(1 + dear));
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

    /// Deals with about `budget` datagrams of those that wait, or as much as costs what these do, session by session in turn. Whether there are more.
    pub fn work(&mut self, now: Instant, budget: usize) -> bool {
        self.tick(now);
        let mut left = budget;
        while left > 0 {
            let Some((id, packets)) = self.turns.next(left.min(TURN)) else { break };
            // With nobody else waiting it does not matter what it costs, and all that came is looked at together.
            let others = !self.turns.order.is_empty() && self.turns.order != [id];
            let (count, before) = (packets.len(), if others { self.ends_of(id) } else { 0 });
            for Packet { path, ecn, event } in packets {
                self.give(now, id, path, ecn, event);
            }
            let ends = if others { self.ends_of(id).saturating_sub(before) } else { 0 };
            let more = usize::try_from(ends / ENDS).unwrap_or(usize::MAX);
            self.turns.charge(id, count, more);
            left = left.saturating_sub(count.saturating_add(more));
        }
        self.turns.count > 0
    }

    /// How many of the peer's blocks have come to an end in a session, with all that has come in so far.
    fn ends_of(&mut self, id: SessionId) -> u64 {
        self.sessions.get_mut(&id).map_or(0, |entry| {
            entry.session.catch_up();
            entry.session.ends()
        })
    }

    /// Whether several sessions wait for their turns: then it is worth looking whether there is something for others still.
    pub fn is_contended(&self) -> bool {
        self.turns.order.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of sessions whose packets cost so much, which share of the time each has, if all have more waiting than there is time for.
    fn shares<const N: usize>(costs: [usize; N]) -> [f64; N] {
        let mut turns = Turns::<()>::default();
        let mut spent = [0; N];
        while spent.iter().sum::<usize>() < 100_000 {
            for session in 0..N {
                while turns.packets.get(&SessionId(session as u64)).map_or(0, VecDeque::len) < 20 {
                    turns.push(SessionId(session as u64), ());
                }
            }
            let (id, packets) = turns.next(TURN).expect("all have some");
            let cost = costs[id.0 as usize] * packets.len();
            turns.charge(id, packets.len(), cost - packets.len());
            spent[id.0 as usize] += cost;
        }
        spent.map(|spent| spent as f64 / 100_000.0)
    }

    #[test]
    fn who_has_dear_packets_has_fewer_of_them() {
        for costs in [[1, 1, 1], [1, 26, 1], [1, 130, 26], [3, 1, 130]] {
            for share in shares(costs) {
                assert!((0.31..0.36).contains(&share), "{costs:?}: {share}");
            }
        }
    }

    #[test]
    fn who_is_alone_owes_nothing() {
        let mut turns = Turns::<()>::default();
        let [first, second] = [0, 1].map(SessionId);
        (0..10).for_each(|_| turns.push(first, ()));
        turns.push(second, ());
        assert_eq!(turns.next(TURN).map(|(id, packets)| (id, packets.len())), Some((first, 8)));
        turns.charge(first, 8, 10_000);
        assert_eq!(turns.next(TURN).map(|(id, _)| id), Some(second));
        turns.charge(second, 1, 0);
        assert_eq!(turns.next(TURN).map(|(id, packets)| (id, packets.len())), Some((first, 2)));
    }
}
