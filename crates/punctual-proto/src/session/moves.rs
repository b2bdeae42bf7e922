//! Paths whose peer gets another address, as a NAT brings about that forgets.
//!
//! QUIC notices it by itself, takes the path for another from then on, and makes sure that the peer is there (RFC 9000, 9): until then it may send no more
//! than three times what it gets. noq says so a second time if nothing comes back, and then never again: the path would stay as good as dead. So it is shown
//! [another address](crate::noq::alias) for the peer, as if that had moved once more.

use std::time::{Duration, Instant};

use super::Session;
use crate::{
    base::{PathHealth, PathId},
    congestion::steering::Panel,
    endpoint::{LocalId, NetworkPath},
    event::Event,
    noq, observe,
};

/// How long it takes until a path that has moved is validated again, if it has not been, in round trips: noq gives up after three of its probe timeouts.
const AGAIN_RTTS: u32 = 4;
/// Bounds on that.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Each time it takes a quarter longer, up to this much longer in all. The path may have become a long one; but where much is lost, in bursts, and with one challenge at a time,
/// dozens have to be sent before the session is dead. (With twice as long each time, up to 10 s, one in 300 moving worlds ended.)
const MOST_LONGER: u32 = 4;

/// So many times as much as comes from there QUIC sends to an address that has not been validated (RFC 9000, 8.1).
const UNPROVEN_SHARE: u64 = 3;
/// And this much more at most: the last packet, and a challenge or two to where the peer was before.
const BEYOND: u64 = 4_500;

/// The validation of a path whose peer has moved. noq does not tell whether it has succeeded: an answer that comes may be to a challenge from before the last move. So it is
/// believed only once the path carries something, and doubted if QUIC does not let go what is to leave on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validation {
    /// Answers to challenges that had come on the path before.
    answers: u64,
    /// How long it is given.
    wait: Duration,
    /// And at most, another time.
    most: Duration,
    until: Instant,
    done: bool,
    /// Bytes that had come and gone on the path before.
    before: (u64, u64),
    /// QUIC may hardly send there.
    limited: bool,
}

/// What has come and gone on a path.
struct Traffic {
    /// Answers to challenges, valid or not.
    answers: u64,
    received: u64,
    sent: u64,
}

impl Traffic {
    fn of(conn: &mut noq_proto::Connection, quic: noq_proto::PathId) -> Self {
        let (answers, received, sent) = conn
            .path_stats(quic)
            .map_or((0, 0, 0), |stats| (stats.frame_rx.path_response, stats.udp_rx.bytes, stats.udp_tx.bytes));
        Self { answers, received, sent }
    }
}

impl Validation {
    /// One that begins now, after the one `before` if that did not succeed.
    fn begin(now: Instant, traffic: &Traffic, rtt: Duration, before: Option<&Self>) -> Self {
        let failed = before.filter(|before| !before.done);
        let first = (rtt * AGAIN_RTTS).clamp(AGAIN.0, AGAIN.1);
        let (wait, most) = failed.map_or((first, first * MOST_LONGER), |failed| (failed.wait, failed.most));
        Self {
            answers: traffic.answers,
            wait,
            most: most.min(AGAIN.1),
            until: now + wait,
            done: false,
            before: (traffic.received, traffic.sent),
            limited: false,
        }
    }

    /// Whether QUIC may hardly send on the path: as much as it may to somebody who has not shown that he is there has gone (RFC 9000, 8.2.1), and no more than that, which would show
    /// that he has. What is to leave there waits for others' packets to come, and all that follows with it.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    fn look_at(&mut self, traffic: &Traffic) {
        let (received, sent) = (traffic.received - self.before.0, traffic.sent - self.before.1);
        let most = received.saturating_mul(UNPROVEN_SHARE);
        self.limited = traffic.answers == self.answers && sent >= most && sent <= most + BEYOND;
    }

    /// Whether it is to be tried again. Then not soon another time: of several paths to the same address another may be the one that moves.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.until;
        if due {
            self.wait = (self.wait * 5 / 4).min(self.most);
            self.until = now + self.wait;
        }
        due
    }

    /// QUIC does not let go what is to leave on the path: it has not succeeded, whatever has come back. What the answers so far were to, they are not counted again: or each
    /// packet that comes would have it believed once more, and put off for as long.
    fn doubt(&mut self, now: Instant, traffic: &Traffic) {
        if std::mem::take(&mut self.done) {
            self.answers = traffic.answers;
            self.until = now + self.wait;
        }
        self.look_at(traffic);
    }
}

impl Session {
    /// QUIC does not let go what is to leave on a path that has moved. Says whether that may be because it has yet to be validated.
    pub(super) fn doubt_validation(&mut self, now: Instant, id: PathId) -> bool {
        let Some(path) = self.paths.get_mut(id) else { return false };
        let Some(validation) = path.validation.as_mut() else { return false };
        validation.doubt(now, &Traffic::of(&mut self.conn, path.quic));
        true
    }

    /// A datagram came, from an address that was unknown or on a path that is being validated: QUIC may have taken that for a path whose peer has moved.
    /// It begins such a path's congestion control anew, and keeps what becomes of the packets sent before to itself.
    pub(super) fn follow_moves(&mut self, now: Instant) {
        let mut moved = Vec::new();
        for path in self.paths.iter_mut() {
            let Ok(tuple) = self.conn.network_path(path.quic) else { continue };
            let local = tuple.local_ip().and_then(LocalId::from_ip).unwrap_or(path.network.local);
            let shown = tuple.remote();
            if path.shown != shown {
                moved.push(path.id);
                path.shown = shown;
            }
            path.network = NetworkPath { local, remote: noq::real_address(shown) };
        }
        for id in moved {
            let driver = self.new_driver();
            let Some(path) = self.paths.get_mut(id) else { continue };
            let traffic = Traffic::of(&mut self.conn, path.quic);
            path.validation = Some(Validation::begin(now, &traffic, path.rtt(), path.validation.as_ref()));
            let controller = self.conn.congestion_state(path.quic);
            if let Some(controller) = controller {
                noq::nothing_in_flight(controller, now);
            }
            if let Some(panel) = controller.and_then(Panel::of) {
                tracing::debug!(path = %path.id, to = %path.network.remote, "moved");
                observe::forget(&mut self.observer, now, path.id, path.in_flight.iter());
                let event = path.on_moved(now, panel, driver, &mut self.store);
                self.events.push_back(Event::Path { id, event });
                self.paths.on_moved(id);
            }
        }
    }

    /// Whether the path to `network` is to be validated once more: what comes from there has to be shown to QUIC as from elsewhere.
    pub(super) fn needs_validation(&mut self, now: Instant, network: NetworkPath) -> bool {
        let Some(path) = self.paths.on_network(network) else { return false };
        let carries = path.health() == PathHealth::Active;
        let Some(validation) = path.validation.as_mut().filter(|validation| !validation.done) else { return false };
        let traffic = Traffic::of(&mut self.conn, path.quic);
        validation.done = carries && traffic.answers > validation.answers;
        validation.look_at(&traffic);
        !validation.done && validation.is_due(now)
    }

    /// Whether a path is being validated to which `network` leads.
    pub(super) fn is_validating(&mut self, network: NetworkPath) -> bool {
        self.paths.on_network(network).is_some_and(|path| path.validation.is_some_and(|validation| !validation.done))
    }
}
