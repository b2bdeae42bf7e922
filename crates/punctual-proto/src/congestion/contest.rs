//! Holding our own in a queue that others fill.
//!
//! In a queue that never empties each flow has that share of the path that it has of the queue: what counts is the window,
//! not the rate. Ours grows round by round and is cut where the queue overflows, as a loss-based flow's is, so that it finds
//! its share among however many there are. Beside flows that bound their queue without loss, as BBR does, nothing would
//! ever cut it: there it is held to little more than what is delivered, on the path as we find it when we make room.

use std::time::{Duration, Instant};

/// How fast the window grows: this times its packets to the power of 2/3, packets a second. A CUBIC flow that is cut when it has W
/// packets is back after ∛(0.75 W) seconds (RFC 9438, 4.2), so that it grows by 0.33 W^⅔ packets a second. Ours is cut more often,
/// and makes room to look.
const GROWTH: f64 = 0.9;
/// The least it grows, packets a round (Reno).
const LEAST_GROWTH: f64 = 1.0;
/// What is left of the window when the queue overflows (RFC 9438, 4.6).
pub(super) const CUT: f64 = 0.7;
/// Rounds after a cut for which what is lost was sent before it.
const DEAF: u32 = 2;
/// The most we hold, in windows that would deliver what is delivered on the path as it is without us. Alone in the queue with others who give
/// way, that is a share of 1 − 1/1.5, a third;
const CAP: f64 = 1.5;
/// and while the queue has not overflowed for so long
const OVERFLOW_MEMORY: Duration = Duration::from_secs(20);
/// just this.
const TIMID_CAP: f64 = 1.1;
/// Losses count from this part of the longest queue of late: with less of it, they are the path's own (a delay-based
/// discriminator).
const LONG: f64 = 0.6;
/// What of the longest queue is remembered from round to round.
const FADE: f64 = 0.99;
/// The smallest window, packets.
const LEAST: u64 = 4;

/// What a round in the queue was like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Instant,
    /// The window was what held us back.
    pub(super) used: bool,
    /// The share of packets that the path loses by itself.
    pub(super) usual_loss: f64,
    /// The bytes that deliver what is delivered, on the path without us.
    pub(super) held: f64,
    /// The latest round trip.
    pub(super) rtt: Duration,
    pub(super) mtu: u64,
}

/// Our share of a queue that others fill.
#[derive(Debug, Clone)]
pub(super) struct Contest {
    /// Bytes.
    window: f64,
    /// The longest queue of late.
    longest: Duration,
    /// Bytes acknowledged in the round, and lost while the queue was long.
    acked: u64,
    lost: u64,
    /// Rounds for which we do not listen.
    deaf: u32,
    overflowed: Option<Instant>,
}

impl Contest {
    /// Begins with so many bytes.
    pub(super) fn new(window: u64) -> Self {
        Self { window: window as f64, longest: Duration::ZERO, acked: 0, lost: 0, deaf: 0, overflowed: None }
    }

    /// Bytes.
    pub(super) fn window(&self) -> u64 {
        self.window as u64
    }

    /// Packets arrived; the shortest queue that one of them found.
    pub(super) fn on_ack(&mut self, queue: Duration, bytes: u64) {
        self.longest = self.longest.max(queue);
        self.acked += bytes;
    }

    /// A packet was lost when the queue was so long; without us it is `without_us`.
    pub(super) fn on_lost(&mut self, queue: Duration, without_us: Duration, bytes: u64) {
        if queue >= without_us + self.longest.saturating_sub(without_us).mul_f64(LONG) {
            self.lost += bytes;
        }
    }

    pub(super) fn end_round(&mut self, round: &Round) {
        let share = self.lost as f64 / (self.lost + self.acked).max(1) as f64;
        let overflows = self.lost > 0 && share > round.usual_loss && self.deaf == 0;
        self.deaf = self.deaf.saturating_sub(1);
        if overflows {
            self.window *= CUT;
            self.deaf = DEAF;
            self.overflowed = Some(round.now);
        } else if round.used {
            let packets = self.window / round.mtu as f64;
            let growth = GROWTH * packets.powf(2.0 / 3.0) * round.rtt.as_secs_f64();
            self.window += growth.max(LEAST_GROWTH) * round.mtu as f64;
        }
        let of_late = |at: Instant| round.now.saturating_duration_since(at) < OVERFLOW_MEMORY;
        let cap = if self.overflowed.is_some_and(of_late) { CAP } else { TIMID_CAP };
        self.window = self.window.min(cap * round.held).max((LEAST * round.mtu) as f64);
        self.longest = self.longest.mul_f64(FADE);
        (self.acked, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_000;
    const EMPTY: Duration = Duration::from_millis(40);
    const FULL: Duration = Duration::from_millis(120);

    fn round(now: Instant) -> Round {
        Round { now, used: true, usual_loss: 0.0, held: 1e7, rtt: EMPTY, mtu: MTU }
    }

    #[test]
    fn it_grows_and_is_cut_once_an_overflow() {
        let (now, mut contest) = (Instant::now(), Contest::new(100_000));
        contest.end_round(&round(now));
        assert_eq!(contest.window(), 101_000);
        for _ in 0..DEAF {
            contest.on_ack(FULL, 100_000);
            contest.on_lost(FULL, EMPTY, 5_000);
            contest.end_round(&round(now));
        }
        assert_eq!(contest.window(), 71_700, "the second loss was sent before the cut");
    }

    #[test]
    fn it_grows_by_the_time_that_passes() {
        let (now, mut contest) = (Instant::now(), Contest::new(1_000_000));
        // 0.9 · 1000^⅔ packets a second, and a round of 120 ms.
        contest.end_round(&Round { rtt: FULL, ..round(now) });
        assert_eq!(contest.window(), 1_010_800);
    }

    #[test]
    fn losses_in_a_short_queue_or_as_usual_cut_nothing() {
        let (now, mut contest) = (Instant::now(), Contest::new(100_000));
        contest.on_ack(FULL, 90_000);
        contest.on_lost(EMPTY + Duration::from_millis(30), EMPTY, 10_000);
        contest.end_round(&round(now));
        assert!(contest.window() > 100_000);
        contest.on_ack(FULL, 90_000);
        contest.on_lost(FULL, EMPTY, 10_000);
        contest.end_round(&Round { usual_loss: 0.1, ..round(now) });
        assert!(contest.window() > 100_000);
    }

    #[test]
    fn it_is_timid_until_the_queue_overflows() {
        let (now, mut contest) = (Instant::now(), Contest::new(200_000));
        let held = Round { held: 100_000.0, ..round(now) };
        contest.end_round(&held);
        assert_eq!(contest.window(), 110_000);
        contest.on_ack(FULL, 90_000);
        contest.on_lost(FULL, EMPTY, 10_000);
        contest.end_round(&held);
        (0..200).for_each(|_| contest.end_round(&held));
        assert_eq!(contest.window(), 150_000);
        contest.end_round(&Round { now: now + OVERFLOW_MEMORY, ..held });
        assert_eq!(contest.window(), 110_000);
    }
}
