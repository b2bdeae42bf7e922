//! What is done about a path that does not answer: it is doubted, suspected and probed, and what was in flight on it given up.

use std::time::{Duration, Instant};

use super::Path;
use crate::{
    base::{Awaited, PathHealth},
    event::PathEvent,
    send::{recovery::Packet, store::Store},
};

/// Packets QUIC never reports on again are given up after this many round trips, and no sooner than after a second.
const FORGOTTEN_RTTS: u32 = 8;
/// An answer that is later than this is not waited for even on a suspect path.
const LATE_ANSWER: Duration = Duration::from_secs(10);

/// What a timeout of a path calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Nothing.
    None,
    /// The path has become suspect.
    Suspected(PathEvent),
    /// It should be probed.
    Probe,
}

impl Path {
    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(crate) fn next_timeout(&self, max_ack_delay: Duration) -> Option<Instant> {
        match self.trust.health() {
            PathHealth::Opening | PathHealth::Closed => None,
            PathHealth::Active | PathHealth::Standby => {
                let oldest = self.oldest_of_tail();
                let silence = oldest.map(|packet| self.trust.silent_at(&packet, &self.model, max_ack_delay));
                let next = self.first_to_judge();
                let overdue = next.map(|packet| self.trust.overdue_at(&packet, &self.model));
                [silence, overdue].into_iter().flatten().min()
            }
            PathHealth::Suspect => self.trust.next_probe(),
        }
    }

    /// Looks after the path's trustworthiness.
    pub(crate) fn on_timeout(&mut self, now: Instant, max_ack_delay: Duration, store: &mut Store) -> Alarm {
        match self.trust.health() {
            PathHealth::Active | PathHealth::Standby => self.watch(now, max_ack_delay, store),
            PathHealth::Suspect if self.trust.takes_probe(now, self.model.rtt()) => {
                // What has left since then, as it does if all paths are suspect, is to be given up in its turn.
                let patience = self.trust.patience(&self.model, max_ack_delay);
                self.in_flight.give_up_older(patience, self.id, now, store);
                Alarm::Probe
            }
            PathHealth::Opening | PathHealth::Suspect | PathHealth::Closed => Alarm::None,
        }
    }

    fn watch(&mut self, now: Instant, max_ack_delay: Duration, store: &mut Store) -> Alarm {
        let silent = |oldest: &Awaited| now >= self.trust.silent_at(oldest, &self.model, max_ack_delay);
        if let Some(oldest) = self.oldest_of_tail().filter(silent) {
            self.suspect(now, store);
            return Alarm::Suspected(PathEvent::Suspected { silent: now - oldest.sent });
        }
        let overdue = |packet: &Awaited| now >= self.trust.overdue_at(packet, &self.model);
        if let Some(packet) = self.first_to_judge().filter(overdue) {
            let due_by = now + self.model.rtt() * if packet.tail { 2 } else { 1 };
            self.in_flight.give_up_urgent(packet.sent, due_by, self.id, now, store);
            self.trust.on_overdue(packet.tail, packet.sent);
        }
        Alarm::None
    }

    /// The oldest packet of the tail.
    fn oldest_of_tail(&self) -> Option<Awaited> {
        self.in_flight.oldest_of_tail().map(|packet| self.as_known_now(packet))
    }

    /// The first packet that has not been looked at yet.
    fn first_to_judge(&self) -> Option<Awaited> {
        self.in_flight.first_after(self.trust.judged()).map(|packet| self.as_known_now(packet))
    }

    /// A packet with the wait that it may have had, by what has become known since it left.
    fn as_known_now(&self, packet: Awaited) -> Awaited {
        match self.in_flight.oldest() {
            Some(oldest) if packet.bears => Awaited { wait: self.model.may_have_waited(&packet, oldest), ..packet },
            _ => packet,
        }
    }

    pub(super) fn suspect(&mut self, now: Instant, store: &mut Store) {
        self.trust.suspect(now);
        self.suspected += 1;
        self.in_flight.begin_silence();
        self.in_flight.give_up(false, self.id, now, store);
    }

    /// Gives up the packets that QUIC has forgotten, and returns them.
    pub(crate) fn expire(&mut self, now: Instant, max_ack_delay: Duration, store: &mut Store) -> Vec<(u64, Packet)> {
        // On a suspect path everything is given up much earlier, and late answers are welcome.
        let least = match self.trust.health() {
            PathHealth::Active | PathHealth::Standby => Duration::from_secs(1),
            PathHealth::Opening | PathHealth::Suspect | PathHealth::Closed => LATE_ANSWER,
        };
        // Nor before their answers are missed: a path on which all is forgotten by then would never be silent.
        let patience = self.trust.patience(&self.model, max_ack_delay);
        let age = (self.model.rtt() * FORGOTTEN_RTTS).max(least).max(patience);
        self.in_flight.expire(age, self.id, now, store)
    }
}
