//! Whether a path whose peer has moved has been validated since, as far as one can tell.

use std::time::{Duration, Instant};

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
pub(crate) struct Traffic {
    /// Answers to challenges, valid or not.
    answers: u64,
    received: u64,
    sent: u64,
}

impl Traffic {
    pub(crate) fn of(conn: &mut noq_proto::Connection, quic: noq_proto::PathId) -> Self {
        let (answers, received, sent) = conn
            .path_stats(quic)
            .map_or((0, 0, 0), |stats| (stats.frame_rx.path_response, stats.udp_rx.bytes, stats.udp_tx.bytes));
        Self { answers, received, sent }
    }
}

impl Validation {
    /// One that begins now, after the one `before` if that did not succeed.
    pub(crate) fn begin(now: Instant, traffic: &Traffic, rtt: Duration, before: Option<&Self>) -> Self {
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

    /// Whether it is still to be shown that the peer is there.
    pub(crate) fn is_open(&self) -> bool {
        !self.done
    }

    /// Something came from there, on a path that does or does not carry data. Whether it is to be tried once more.
    pub(crate) fn on_arrival(&mut self, now: Instant, traffic: &Traffic, carries: bool) -> bool {
        self.done = carries && traffic.answers > self.answers;
        self.look_at(traffic);
        !self.done && self.is_due(now)
    }

    /// Whether QUIC may hardly send on the path: as much as it may to somebody who has not shown that he is there has gone (RFC 9000, 8.2.1), and no more than that, which would show
    /// that he has. What is to leave there waits for others' packets to come, and all that follows with it.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    fn look_at(&mut self, traffic: &Traffic) {
        // Of a path that QUIC has forgotten meanwhile there are no figures.
        let received = traffic.received.saturating_sub(self.before.0);
        let sent = traffic.sent.saturating_sub(self.before.1);
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
    pub(crate) fn doubt(&mut self, now: Instant, traffic: &Traffic) {
        if std::mem::take(&mut self.done) {
            self.answers = traffic.answers;
            self.until = now + self.wait;
        }
        self.look_at(traffic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_limited_until_its_peer_has_answered_or_much_has_left() {
        let traffic = |answers, received, sent| Traffic { answers, received, sent };
        let now = Instant::now();
        let limited = |then| {
            let mut validation = Validation::begin(now, &traffic(3, 10_000, 90_000), Duration::from_millis(40), None);
            validation.on_arrival(now, &then, true);
            validation.is_limited()
        };
        assert!(limited(traffic(3, 10_030, 91_200)), "a challenge has left, and a ping has come");
        assert!(!limited(traffic(3, 10_500, 91_200)), "there is room for another");
        assert!(!limited(traffic(4, 10_030, 91_200)), "the peer has answered");
        assert!(!limited(traffic(3, 10_030, 99_000)), "so much would not have left if it had not");
        // QUIC has forgotten the path.
        limited(traffic(0, 0, 0));
    }
}
