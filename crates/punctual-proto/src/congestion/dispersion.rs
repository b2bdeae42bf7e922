//! What the times between acknowledgements tell of a path's rate, however little is sent on it.
//!
//! An application that sends a block now and then never fills a path, so what is delivered in a round says little about what
//! could be. But a few packets that leave together queue at the narrowest link, and come out at its pace; and so do packets
//! that find a queue.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::answers::Answers;

/// Packets that left no further apart than this left together.
const TOGETHER: Duration = Duration::from_micros(500);
/// Packets that make a burst worth looking at: with fewer, the bundling of acknowledgements is most of what is seen.
const BURST_PACKETS: u32 = 4;
/// Of so many bursts the middle one is believed.
const BURSTS: usize = 5;
/// How long a burst's word counts.
const BURST_MEMORY: Duration = Duration::from_secs(2);

/// Bursts, and how fast the path let them through.
#[derive(Debug, Clone, Default)]
pub(super) struct Bursts {
    current: Option<Burst>,
    told: VecDeque<Told>,
}

/// What a burst told.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// When its first packet left, and its last was answered.
    sent: Instant,
    answered: Instant,
    /// Bytes per second, from when its first packet would have come out of an empty path.
    rate: f64,
    /// The same from when that was answered.
    spread: f64,
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    /// When its first packet left, and its last so far.
    head: Instant,
    tail: Instant,
    /// When the first was answered, and the last so far.
    head_answered: Instant,
    answered: Instant,
    /// Bytes after the first packet.
    bytes: u64,
    packets: u32,
}

impl Bursts {
    /// A packet was acknowledged, `min_rtt` being what an empty path takes.
    pub(super) fn on_ack(&mut self, sent: Instant, now: Instant, bytes: u64, min_rtt: Duration) {
        match &mut self.current {
            Some(burst) if sent.checked_duration_since(burst.tail).is_some_and(|gap| gap <= TOGETHER) => {
                burst.tail = sent;
                burst.answered = now;
                burst.bytes += bytes;
                burst.packets += 1;
            }
            _ => {
                self.finish(min_rtt);
                self.current =
                    Some(Burst { head: sent, tail: sent, head_answered: now, answered: now, bytes: 0, packets: 1 });
            }
        }
    }

    /// The time counts from when the first packet would have come out of an empty path: what it waited, for a turn on a
    /// shared medium or behind others, is part of the path's pace.
    fn finish(&mut self, min_rtt: Duration) {
        let Some(burst) = self.current.take().filter(|burst| burst.packets >= BURST_PACKETS) else { return };
        let took = burst.answered.saturating_duration_since(burst.head).saturating_sub(min_rtt);
        if took.is_zero() {
            return;
        }
        if self.told.len() == BURSTS {
            self.told.pop_front();
        }
        let apart = burst.answered.saturating_duration_since(burst.head_answered);
        let bytes = burst.bytes as f64;
        // Answered all at once, it tells only how answers were bundled.
        let spread = if apart.is_zero() { 0.0 } else { bytes / apart.as_secs_f64() };
        let rate = bytes / took.as_secs_f64();
        self.told.push_back(Told { sent: burst.head, answered: burst.answered, rate, spread });
    }

    /// Forgets those that left before `since`: the path has shown what it has served from then on.
    pub(super) fn forget_before(&mut self, since: Option<Instant>) {
        self.told.retain(|burst| Some(burst.sent) >= since);
    }

    /// What recent bursts tell, bytes per second; `None` if there were too few.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let since = now.checked_sub(BURST_MEMORY).unwrap_or(now);
        self.median(BURSTS, |burst| (burst.answered >= since).then_some(burst.rate))
    }

    /// The same by how far apart their packets were answered, whatever they waited for before: not what there was room for, but what
    /// the narrowest link does.
    pub(super) fn spread(&self, now: Instant) -> Option<f64> {
        let since = now.checked_sub(BURST_MEMORY).unwrap_or(now);
        self.median(BURSTS, |burst| (burst.answered >= since).then_some(burst.spread))
    }

    /// The same of the bursts alone that left from `since` on, however few.
    pub(super) fn spread_since(&self, since: Instant) -> Option<f64> {
        self.median(1, |burst| (burst.sent >= since).then_some(burst.spread))
    }

    fn median(&self, least: usize, of: impl Fn(&Told) -> Option<f64>) -> Option<f64> {
        let mut rates = self.told.iter().filter_map(of).collect::<Vec<_>>();
        if rates.len() < least {
            return None;
        }
        rates.sort_unstable_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    }
}

/// The pace at which a queue is served, while there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy {
    answers: Answers,
    bytes: u64,
    time: Duration,
}

impl Busy {
    /// A packet was acknowledged, `min_rtt` being what an empty path takes.
    pub(super) fn on_ack(&mut self, sent: Instant, now: Instant, bytes: u64, min_rtt: Duration) {
        if let Some(answer) = self.answers.on_ack(sent, now, bytes, min_rtt).filter(|answer| answer.busy) {
            self.bytes += answer.bytes;
            self.time += answer.time;
        }
    }

    /// What was served while there was a queue, bytes per second, once it is at least `least` bytes; it then counts anew.
    pub(super) fn take(&mut self, least: u64) -> Option<f64> {
        if self.bytes < least || self.time.is_zero() {
            return None;
        }
        let (bytes, time) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.time));
        Some(bytes as f64 / time.as_secs_f64())
    }

    /// There is no queue of ours: what the last one was served at counts for half.
    pub(super) fn fade(&mut self) {
        (self.bytes, self.time) = (self.bytes / 2, self.time / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);
    const SIZE: u64 = 1_000;

    /// A link of 1 MB/s, a packet a millisecond: when each of these packets is answered.
    fn answers(sent: &[Instant]) -> Vec<Instant> {
        let mut free = sent[0];
        let serve = |at: &Instant| {
            free = free.max(*at) + Duration::from_millis(1);
            free + RTT - Duration::from_millis(1)
        };
        sent.iter().map(serve).collect()
    }

    #[test]
    fn bursts_tell_the_rate_of_a_path_that_is_hardly_used() {
        let (start, mut bursts) = (Instant::now(), Bursts::default());
        // Four packets every 50 ms: 80 KB/s.
        let sent: Vec<Instant> = (0..40).map(|i| start + Duration::from_millis(50) * (i / 4)).collect();
        for (sent, now) in sent.iter().zip(answers(&sent)) {
            bursts.on_ack(*sent, now, SIZE, RTT);
        }
        let now = start + Duration::from_millis(500);
        let rate = bursts.rate(now).unwrap();
        assert!((0.99e6..1.01e6).contains(&rate), "{rate}");
        assert_eq!(bursts.rate(now + Duration::from_secs(3)), None, "long ago");
    }

    #[test]
    fn a_path_that_has_become_longer_is_as_fast_as_before() {
        let (start, mut bursts) = (Instant::now(), Bursts::default());
        let sent: Vec<Instant> = (0..40).map(|i| start + Duration::from_millis(50) * (i / 4)).collect();
        for (sent, now) in sent.iter().zip(answers(&sent)) {
            bursts.on_ack(*sent, now + RTT, SIZE, RTT);
        }
        let now = start + Duration::from_millis(500);
        assert!(bursts.rate(now).unwrap() < 0.2e6, "it looks like a queue");
        assert!((0.99e6..1.01e6).contains(&bursts.spread(now).unwrap()));
    }

    #[test]
    fn packets_apart_tell_nothing() {
        let (start, mut bursts) = (Instant::now(), Bursts::default());
        let sent: Vec<Instant> = (0..40).map(|i| start + Duration::from_millis(5) * i).collect();
        for (sent, now) in sent.iter().zip(answers(&sent)) {
            bursts.on_ack(*sent, now, SIZE, RTT);
        }
        assert_eq!(bursts.rate(start), None);
    }

    #[test]
    fn a_queue_tells_the_rate_and_pauses_do_not_count() {
        let (start, mut busy) = (Instant::now(), Busy::default());
        // Thirty packets at twice the link's rate, then nothing for a long time, then as many again.
        let at = |i: u32| Duration::from_micros(500) * i + Duration::from_millis(300) * (i / 30);
        let sent: Vec<Instant> = (0..60).map(|i| start + at(i)).collect();
        for (sent, now) in sent.iter().zip(answers(&sent)) {
            busy.on_ack(*sent, now, SIZE, RTT);
        }
        let rate = busy.take(10 * SIZE).unwrap();
        assert!((0.98e6..1.02e6).contains(&rate), "{rate}");
        assert_eq!(busy.take(1), None);
    }

    #[test]
    fn without_a_queue_there_is_no_pace() {
        let (start, mut busy) = (Instant::now(), Busy::default());
        let sent: Vec<Instant> = (0..60).map(|i| start + Duration::from_millis(2) * i).collect();
        for (sent, now) in sent.iter().zip(answers(&sent)) {
            busy.on_ack(*sent, now, SIZE, RTT);
        }
        assert_eq!(busy.take(1), None);
    }
}
