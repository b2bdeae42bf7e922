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
/// After so many pings to which QUIC has said nothing it is not believed to have validated a path. One or two may have come just now.
const UNANSWERED: u64 = 3;

/// The validation of a path whose peer has moved. noq does not tell whether it has succeeded: an answer that comes may be to a challenge from before the last move. So it is
/// believed only once the path carries something, and doubted if QUIC does not let go what is to leave on it, be it an answer to pings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validation {
    /// Answers to challenges that had come on the path before.
    answers: u64,
    /// How long it is given.
    wait: Duration,
    /// And at most, another time.
    most: Duration,
    /// When it is tried again, or looked at again if it is done.
    until: Instant,
    done: bool,
    /// Bytes that had come and gone on the path before.
    before: (u64, u64),
    /// QUIC may hardly send there.
    limited: bool,
    /// Pings that had come on the path when something had last left, and bytes that had by then on any path.
    seen: (u64, u64),
}

/// What has come and gone on a path.
pub(crate) struct Traffic {
    /// Answers to challenges, valid or not.
    answers: u64,
    received: u64,
    sent: u64,
    pings: u64,
    /// Bytes that have left on all paths together: answers take any.
    sent_anywhere: u64,
}

impl Traffic {
    pub(crate) fn of(conn: &mut noq_proto::Connection, quic: noq_proto::PathId) -> Self {
        let sent_anywhere = conn.stats().udp_tx.bytes;
        let stats = conn.path_stats(quic).unwrap_or_default();
        Self {
            answers: stats.frame_rx.path_response,
            received: stats.udp_rx.bytes,
            sent: stats.udp_tx.bytes,
            pings: stats.frame_rx.ping,
            sent_anywhere,
        }
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
            seen: (0, 0),
        }
    }

    /// Whether it is still to be shown that the peer is there.
    pub(crate) fn is_open(&self) -> bool {
        !self.done
    }

    /// Whether what comes now is of interest: on a path that is done only now and then.
    pub(crate) fn is_curious(&self, now: Instant) -> bool {
        !self.done || now >= self.until
    }

    /// Something came from there, on a path that does or does not carry data. Whether it is to be tried once more. QUIC does not even acknowledge on a path that has not been
    /// validated, and one who has nothing else to say would not notice: so also if it has said nothing to pings for as long as it had to validate the path.
    pub(crate) fn on_arrival(&mut self, now: Instant, traffic: &Traffic, carries: bool) -> bool {
        if traffic.sent_anywhere != self.seen.1 {
            self.seen = (traffic.pings, traffic.sent_anywhere);
        }
        if !self.done {
            self.done = carries && traffic.answers > self.answers;
        } else if traffic.pings >= self.seen.0 + UNANSWERED {
            self.done = false;
            self.answers = traffic.answers;
        }
        self.look_at(traffic);
        if self.done {
            self.until = now + self.wait;
            return false;
        }
        self.is_due(now)
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
        let traffic = |answers, received, sent| Traffic { answers, received, sent, pings: 0, sent_anywhere: sent };
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

    #[test]
    fn a_path_on_which_pings_stay_without_answer_is_validated_again() {
        let traffic = |answers, pings, sent_anywhere| Traffic { answers, received: 0, sent: 0, pings, sent_anywhere };
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let validated = || {
            let mut validation = Validation::begin(start, &traffic(0, 7, 1_000), Duration::from_millis(40), None);
            assert!(!validation.on_arrival(at(40), &traffic(1, 7, 1_000), true));
            assert!(!validation.is_open());
            validation
        };
        let mut silent = validated();
        assert!(!silent.is_curious(at(150)));
        assert!(!silent.on_arrival(at(300), &traffic(1, 9, 1_000), true), "one may be answered yet");
        assert!(silent.on_arrival(at(600), &traffic(1, 10, 1_000), true));
        assert!(silent.is_open());
        let mut heard = validated();
        for (pings, millis) in (8..).zip((300..3_000).step_by(300)) {
            assert!(!heard.on_arrival(at(millis), &traffic(1, pings, 1_000 + pings / 2), true), "{pings}");
        }
        let mut idle = validated();
        assert!(!idle.on_arrival(at(60_000), &traffic(1, 7, 1_000), true));
    }
}
