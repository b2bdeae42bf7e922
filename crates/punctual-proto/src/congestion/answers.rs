//! What came out of a queue, from one answer to the next.

use std::time::{Duration, Instant};

/// Groups acknowledged packets by the moment at which they were.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    /// When the answer before came.
    before: Option<Instant>,
    open: Option<Open>,
}

/// An answer that may not be complete.
#[derive(Debug, Clone, Copy)]
struct Open {
    at: Instant,
    /// When the latest of its packets left.
    sent: Instant,
    bytes: u64,
}

/// Packets that were acknowledged together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) bytes: u64,
    /// Since the answer before.
    pub(crate) time: Duration,
    /// The narrowest link was busy all that time. It was if the latest of the packets was there when those of the answer before had
    /// gone: if it left at least an empty path's round trip before that came. (An earlier one may have been answered
    /// before, in an ACK that was lost.)
    pub(crate) busy: bool,
}

impl Answers {
    /// A packet was acknowledged, `min_rtt` being what an empty path takes. Returns the answer before, now that it is complete.
    pub(crate) fn on_ack(&mut self, sent: Instant, now: Instant, bytes: u64, min_rtt: Duration) -> Option<Answer> {
        if let Some(open) = self.open.as_mut().filter(|open| open.at == now) {
            open.sent = open.sent.max(sent);
            open.bytes += bytes;
            return None;
        }
        let complete = self.finish(min_rtt);
        self.open = Some(Open { at: now, sent, bytes });
        complete
    }

    /// The answer, if it is complete.
    pub(crate) fn finish(&mut self, min_rtt: Duration) -> Option<Answer> {
        let Open { at, sent, bytes } = self.open.take()?;
        let before = self.before.replace(at)?;
        Some(Answer { bytes, time: at.saturating_duration_since(before), busy: sent + min_rtt <= before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    #[test]
    fn packets_whose_answer_was_lost_found_no_queue() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut answers = Answers::default();
        // A packet every 10 ms; of the first four answers the second and third are lost.
        assert!(answers.on_ack(start, start + RTT, 1, RTT).is_none());
        for n in 1..4 {
            assert!(answers.on_ack(start + ms(10) * n, start + RTT + ms(30), 1, RTT).is_none());
        }
        let answer = answers.finish(RTT).unwrap();
        assert_eq!((answer.bytes, answer.time, answer.busy), (3, ms(30), false));
    }

    #[test]
    fn packets_that_left_before_the_one_before_was_served_did() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut answers = Answers::default();
        for n in 0..3 {
            let answer = answers.on_ack(start, start + RTT + ms(10) * n, 7, RTT);
            assert_eq!(
                answer.map(|answer| (answer.bytes, answer.time, answer.busy)),
                (n > 1).then_some((7, ms(10), true))
            );
        }
    }
}
