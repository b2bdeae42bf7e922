//! The pace at which a path serves the queue on it.

use std::time::{Duration, Instant};

use crate::congestion::answers::{Answer, Answers};

/// The fastest of so many answers is believed: the last packet's of a burst is held back, in case more come.
const ANSWERS: usize = 3;

/// The pace at which our packets come out of a queue, as long as there is one.
///
/// The controller's rate is what the path carried in whole rounds; a path that has just become slower has a long round.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    answers: Answers,
    /// What the last answers told, the latest last, if their packets found a queue.
    told: [Option<f64>; ANSWERS],
}

impl Pace {
    /// A packet was acknowledged, `min_rtt` being what an empty path takes.
    pub(super) fn on_acked(&mut self, sent: Instant, now: Instant, bytes: u64, min_rtt: Duration) {
        if let Some(answer) = self.answers.on_ack(sent, now, bytes, min_rtt) {
            self.note(answer);
        }
    }

    /// All that was acknowledged at this moment has been told.
    pub(super) fn end_acks(&mut self, min_rtt: Duration) {
        if let Some(answer) = self.answers.finish(min_rtt) {
            self.note(answer);
        }
    }

    fn note(&mut self, answer: Answer) {
        self.told.rotate_left(1);
        let seconds = answer.time.as_secs_f64();
        self.told[ANSWERS - 1] = (answer.busy && seconds > 0.0).then(|| answer.bytes as f64 / seconds);
    }

    /// Bytes per second, if there has been a queue for long enough.
    pub(super) fn get(&self) -> Option<f64> {
        self.told.iter().copied().reduce(|a, b| Some(a?.max(b?))).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    #[test]
    fn a_queue_tells_the_pace_and_an_empty_path_nothing() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut pace = Pace::default();
        // A packet every 2 ms, on a path that needs 10 ms for each.
        for n in 0..20 {
            pace.on_acked(start + ms(2) * n, start + RTT + ms(10) * n, 1_000, RTT);
        }
        pace.end_acks(RTT);
        let told = pace.get().unwrap();
        assert!((99e3..101e3).contains(&told), "{told}");
        let later = start + ms(1_000);
        pace.on_acked(later, later + RTT, 1_000, RTT);
        pace.end_acks(RTT);
        assert_eq!(pace.get(), None);
    }

    #[test]
    fn answers_that_come_together_count_together() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut pace = Pace::default();
        for n in 0..40 {
            pace.on_acked(start + ms(2) * n, start + RTT + ms(20) * (n / 2), 1_000, RTT);
        }
        let told = pace.get().unwrap();
        assert!((95e3..105e3).contains(&told), "{told}");
    }
}
