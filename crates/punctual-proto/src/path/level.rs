//! A delay that stays where it is though a queue of ours would have become shorter.
//!
//! While there is a queue, it becomes shorter by the time that passes and longer by what joins it:
//!
//! ```text
//! queue(packet) − queue(first) = Σ bytes / rate − (sent(packet) − sent(first))
//! ```
//!
//! Who pauses between frames leaves gaps in it, and his own queue shows them. If all packets are late by the same nevertheless, what they are late by is no queue: the route has become longer.
//! (Or others fill the queue just as fast as it is emptied, which is the same to who sends so little.)

use std::time::{Duration, Instant};

use super::service::Service;

/// What varies by no more than this has stayed the same.
const CONSTANT: Duration = Duration::from_millis(1);
/// A queue of ours would have become so much shorter,
const FALL: Duration = Duration::from_millis(10);
/// and this share of the time that has passed: rates are not known any better.
const SHARE: f64 = 0.25;
/// as so many have shown, each after another pause,
const PAUSES: u32 = 2;
/// of so many that left further apart than would count: of packets that are late by chance few are late by the same.
const PACKETS: u32 = 8;
/// How far what is ours of a queue may be off.
const UNSURE: f64 = 0.5;
/// Less than this is not worth speaking of.
const LEAST: Duration = Duration::from_millis(3);

/// A packet that came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// When it left.
    pub(crate) sent: Instant,
    /// Bytes that had left before it.
    pub(crate) before: u64,
    /// How much later it came than over the empty path.
    pub(crate) queue: Duration,
    /// By the one who has a queue.
    pub(crate) marked: bool,
}

impl Step {
    /// Whether it may be of a longer route.
    fn is_late(&self) -> bool {
        self.queue >= LEAST && !self.marked
    }
}

/// Packets on end that were late by the same, but for what is ours of it.
#[derive(Debug)]
struct Run {
    first: Step,
    last: Step,
    /// The queue that the last has found of those that left since the first, if they had been all.
    own: Duration,
    /// What they were late by without that.
    range: (Duration, Duration),
    /// When the last left of those that count, and how many do.
    packets: (Instant, u32),
    /// By how much a queue of ours would have become shorter when that was last counted, and how often it has been.
    pauses: (Duration, u32),
    /// The pace of queues before.
    service: Service,
}

/// What packets are late by, while that does not change.
#[derive(Debug, Default)]
pub(crate) struct Level(Option<Run>);

impl Level {
    /// A packet came over a path that serves queues like this. By how much the route is longer, if it has turned out to be; then what has been seen of the service since is none.
    pub(crate) fn on_arrival(&mut self, step: Step, service: &mut Service) -> Option<Duration> {
        let Some((run, rate)) = self.0.as_mut().zip(service.rate()).filter(|_| step.is_late()) else {
            self.0 = Some(step).filter(Step::is_late).map(|step| Run::of(step, service));
            return None;
        };
        if step.sent < run.last.sent {
            return None;
        }
        let between = step.sent - run.last.sent;
        let joined = rate.time_for(step.before.saturating_sub(run.last.before));
        run.own = run.own.saturating_add(joined).saturating_sub(between);
        run.last = step;
        let late = step.queue.saturating_sub(run.own);
        let range = (run.range.0.min(late), run.range.1.max(late));
        if range.1 - range.0 > CONSTANT {
            // How much is ours is not known to a hair.
            if range.1 - range.0 > CONSTANT + run.own.mul_f64(UNSURE) {
                *run = Run::of(step, service);
            }
            return None;
        }
        run.range = range;
        if step.sent - run.packets.0 >= CONSTANT {
            run.packets = (step.sent, run.packets.1 + 1);
        }
        let passed = step.sent - run.first.sent;
        let fall = passed.saturating_sub(rate.time_for(step.before.saturating_sub(run.first.before)));
        if fall >= run.pauses.0 + CONSTANT {
            run.pauses = (fall, run.pauses.1 + 1);
        }
        if run.pauses.1 < PAUSES || run.packets.1 < PACKETS || fall < FALL || fall < passed.mul_f64(SHARE) {
            return None;
        }
        let run = self.0.take()?;
        *service = run.service;
        Some(run.range.0)
    }
}

impl Run {
    fn of(first: Step, service: &Service) -> Self {
        Self {
            first,
            last: first,
            own: Duration::ZERO,
            range: (first.queue, first.queue),
            packets: (first.sent, 1),
            pauses: (Duration::ZERO, 0),
            service: service.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::service::Arrived;

    const MS: Duration = Duration::from_millis(1);

    /// Frames of ten packets that leave a millisecond apart, each 20 ms, over a link that takes `each` for one and is so much longer from frame 5 on; from `marks` of
    /// queue on it marks. By how much that is found, in which frame, and how many bytes a millisecond the link is taken to serve then.
    fn frames(each: Duration, longer: Duration, marks: Duration) -> Option<(u32, Duration, f64)> {
        let (start, mut level, mut service) = (Instant::now(), Level::default(), Service::default());
        let mut free = start;
        (0..400_u32).find_map(|i| {
            let sent = start + MS * (i / 10 * 20 + i % 10);
            free = free.max(sent) + each;
            let more = if i >= 50 { longer } else { Duration::ZERO };
            let micros = |at: Instant| at.saturating_duration_since(start).as_micros() as i64;
            let arrived = Arrived { at: micros(free + more), empty: micros(sent + each), bytes: 1_000 };
            service.on_arrival(arrived, Duration::ZERO, MS * 50);
            let queue = free - sent - each + more;
            let step = Step { sent, before: u64::from(i) * 1_000, queue, marked: queue >= marks };
            let by = level.on_arrival(step, &mut service)?;
            Some((i / 10, by, service.rate().map_or(0.0, |rate| (rate.bytes_per_second() / 1e3).round())))
        })
    }

    #[test]
    fn a_route_that_becomes_longer_is_known_after_two_frames() {
        for (each, rate) in [(MS * 5 / 4, 800.0), (MS * 7 / 5, 714.0)] {
            assert_eq!(frames(each, MS * 40, Duration::MAX), Some((7, MS * 40, rate)));
        }
    }

    #[test]
    fn a_queue_is_none() {
        // Too much for the link: it grows. Just as much as it carries: it goes up and down.
        assert_eq!(frames(MS * 3, Duration::ZERO, Duration::MAX), None);
        assert_eq!(frames(MS * 2, Duration::ZERO, Duration::MAX), None);
    }

    #[test]
    fn what_is_marked_is_a_queue() {
        assert_eq!(frames(MS * 5 / 4, MS * 40, MS * 40), None);
    }
}
