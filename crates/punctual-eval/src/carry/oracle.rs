//! A controller that knows its link, to tell what the controller costs from what the schedulers do.
//!
//! It knows the link's capacity at all times, and so when each packet will have left its queue; it sends such that the queue never empties
//! and is never long. It does not know what will be lost, nor what others send.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use punctual_proto::{
    Rate,
    congestion::{Congestion, Driver, PathState, Report},
};
use punctual_sim::{Datagram, Link, LinkSpec, Queue, Rate as LinkRate};

use crate::network::Path;

/// The name it is chosen by.
pub(crate) const NAME: &str = "oracle";
/// How long what waits at the link takes at most.
const LEAD: Duration = Duration::from_millis(2);
/// The forecast for schedulers is the mean over so long.
const HORIZON: Duration = Duration::from_millis(200);

/// When the run began, by the sender's clock.
pub(super) type Origin = Arc<Mutex<Option<Instant>>>;

/// The controllers of a session over these paths.
pub(super) fn congestion(paths: &[Path], origin: Origin) -> Congestion {
    each(paths, origin, |spec, origin| Box::new(Oracle::new(spec, origin)))
}

/// What `make` makes of each path's link.
pub(super) fn each(
    paths: &[Path],
    origin: Origin,
    make: impl Fn(LinkSpec, Origin) -> Box<dyn Driver> + Send + Sync + 'static,
) -> Congestion {
    let links: Vec<LinkSpec> = paths.iter().map(|path| path.forward.clone()).collect();
    Congestion::Reports(Arc::new(move |index, _| {
        let spec = links.get(index).or(links.first()).cloned().unwrap_or_default();
        make(spec, origin.clone())
    }))
}

/// The same link without anything but its capacity.
pub(super) fn bare(spec: &LinkSpec) -> Link {
    let bare = LinkSpec {
        rate: spec.rate.clone(),
        overhead: spec.overhead,
        queue: Queue::Bytes(u64::MAX / 2),
        mtu: u32::MAX,
        ..LinkSpec::default()
    };
    Link::new(bare, 0)
}

/// Time since the run began; `None` before.
pub(super) fn since(origin: &Origin, now: Instant) -> Option<Duration> {
    let origin = (*origin.lock().unwrap_or_else(PoisonError::into_inner))?;
    Some(now.saturating_duration_since(origin))
}

/// Drives a path by what its link is.
#[derive(Debug)]
struct Oracle {
    origin: Origin,
    rate: LinkRate,
    overhead: u32,
    /// The same link without anything but its capacity, one packet at a time.
    link: Link,
    /// When it will have passed on all that was sent, since the run began.
    free: Duration,
    /// What left before this has been made up for.
    mended: Option<Instant>,
}

impl Oracle {
    fn new(spec: LinkSpec, origin: Origin) -> Self {
        let link = bare(&spec);
        Self { origin, rate: spec.rate, overhead: spec.overhead, link, free: Duration::ZERO, mended: None }
    }

    fn since(&self, now: Instant) -> Option<Duration> {
        since(&self.origin, now)
    }
}

impl Driver for Oracle {
    fn on_sent(&mut self, now: Instant, bytes: u64, _: u64) {
        let Some(since) = self.since(now).filter(|_| self.rate != LinkRate::Unlimited) else { return };
        let start = since.max(self.free);
        let data = vec![0; bytes as usize][..].into();
        self.link.offer(start, Datagram { data, ecn: None, tag: 0 });
        self.free = self.link.poll_timeout().unwrap_or(start + HORIZON);
        let _ = self.link.poll(self.free);
    }

    /// Packets that only acknowledge are not told of, and others share the link: a queue that is longer than it should be waits, too.
    fn on_report(&mut self, report: &Report, _: &PathState) -> Option<Duration> {
        let more = report.queue.saturating_sub(LEAD * 2);
        if report.served && !more.is_zero() && self.mended.is_none_or(|mended| report.sent > mended) {
            self.free = self.free.max(self.since(report.now)?) + more;
            self.mended = Some(report.now);
        }
        None
    }

    fn rate(&self, now: Instant, path: &PathState) -> Rate {
        let Some(since) = self.since(now) else { return Rate::from_bytes_per_second(1e9) };
        let share = f64::from(path.mtu) / f64::from(u32::from(path.mtu) + self.overhead);
        Rate::from_bytes_per_second(carried(&self.rate, since, since + HORIZON) / HORIZON.as_secs_f64() * share)
    }

    fn pace(&self, _: Instant, _: &PathState) -> Rate {
        Rate::from_bytes_per_second(1e12)
    }

    fn window(&self, _: &PathState) -> u64 {
        u64::MAX / 2
    }

    fn ready_at(&self, now: Instant) -> Option<Instant> {
        let wait = self.free.checked_sub(self.since(now)?)?.checked_sub(LEAD)?;
        Some(now + wait + Duration::from_nanos(1))
    }

    fn backlog(&self, now: Instant) -> Option<Duration> {
        Some(self.free.saturating_sub(self.since(now)?))
    }
}

/// Bytes that a link can carry between two moments.
pub(super) fn carried(rate: &LinkRate, from: Duration, to: Duration) -> f64 {
    match rate {
        LinkRate::Unlimited => 1e9 * (to - from).as_secs_f64(),
        LinkRate::Steps(schedule) => {
            let (mut at, mut bytes) = (from, 0.0);
            while at < to {
                let next = schedule.next_change(at).unwrap_or(to).min(to);
                bytes += *schedule.at(at) as f64 / 8.0 * (next - at).as_secs_f64();
                at = next;
            }
            bytes
        }
        LinkRate::Trace(trace) => {
            let (times, period) = (trace.times(), trace.period().as_nanos());
            let by = |time: Duration| {
                let (turns, phase) = (time.as_nanos() / period, time.as_nanos() % period);
                turns as f64 * times.len() as f64 + times.partition_point(|at| at.as_nanos() <= phase) as f64
            };
            (by(to) - by(from)) * f64::from(punctual_sim::trace::Opportunities::BYTES)
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_sim::{Schedule, trace::Opportunities};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn capacity_is_that_of_the_link() {
        let steps = LinkRate::Steps(Schedule::fixed(8_000_000).then(MS * 10, 0).then(MS * 30, 16_000_000));
        assert_eq!(carried(&steps, MS * 5, MS * 35), 15_000.0);
        let trace = LinkRate::Trace(Opportunities::parse("0\n5\n10\n").unwrap());
        assert_eq!(carried(&trace, MS, MS * 11), f64::from(3 * Opportunities::BYTES));
    }

    #[test]
    fn it_keeps_the_queue_short_and_never_empty() {
        let (start, origin) = (Instant::now(), Origin::default());
        *origin.lock().unwrap() = Some(start);
        let mut oracle = Oracle::new(LinkSpec::new(9.6, MS), origin);
        let (mut now, mut sent) = (start, 0);
        while now < start + MS * 1_000 {
            match oracle.ready_at(now) {
                Some(at) => now = at,
                None => {
                    oracle.on_sent(now, 1_172, 0);
                    sent += 1;
                    assert!(oracle.backlog(now).unwrap() <= LEAD + MS, "a packet takes a millisecond");
                }
            }
        }
        assert!((1_000..=1_003).contains(&sent), "{sent}");
    }
}
