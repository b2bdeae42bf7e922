//! A controller that knows all that feedback can tell: what its link carried up to a round trip ago, whether anything was there to be carried or not.
//!
//! The [oracle](super::oracle) knows what the link will do. No sender does; what it can know is a round trip old. So what a controller has less than
//! the oracle is split in two: what nobody could know, and what it might have. It takes the link to go on as fast as it was of late, and lets a queue
//! stand that long enough covers what it did not foresee.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use punctual_proto::{
    Rate,
    congestion::{Congestion, Driver, PathState, Report},
};
use punctual_sim::{Datagram, Link, LinkSpec, Rate as LinkRate};

use super::oracle::{self, Origin};
use crate::network::Path;

/// The name it is chosen by.
pub(crate) const NAME: &str = "informed";
/// The queue it keeps to, so that a link that becomes faster within a round trip is not idle.
const QUEUE: Duration = Duration::from_millis(20);
/// The link is taken to go on as it did for so long.
const LATELY: Duration = Duration::from_millis(50);
/// What schedulers reckon with is that of so long.
const FORECAST: Duration = Duration::from_millis(100);
/// A round trip, until one has been measured.
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Bytes per second: less is not reckoned with, for that link would never be tried again.
const LEAST: f64 = 6_000.0;

/// The controllers of a session over these paths.
pub(super) fn congestion(paths: &[Path], origin: Origin) -> Congestion {
    oracle::each(paths, origin, |spec, origin| Box::new(Informed::new(spec, origin)))
}

#[derive(Debug)]
struct Informed {
    origin: Origin,
    spec: LinkSpec,
    /// The same link without anything but its capacity.
    link: Link,
    /// When it will have passed on all that was sent, since the run began.
    free: Duration,
    /// What was sent: when it has left the link, and its bytes.
    sent: VecDeque<(Duration, u64)>,
    round_trip: Duration,
}

impl Informed {
    fn new(spec: LinkSpec, origin: Origin) -> Self {
        let link = oracle::bare(&spec);
        Self { origin, spec, link, free: Duration::ZERO, sent: VecDeque::new(), round_trip: ROUND_TRIP }
    }

    /// What the link carried over so long until a round trip ago, of QUIC's packets.
    fn carried(&self, since: Duration, lately: Duration, mtu: u16) -> Rate {
        let until = since.saturating_sub(self.round_trip);
        let from = until.saturating_sub(lately);
        if from == until {
            return Rate::from_bytes_per_second(1e6);
        }
        let share = f64::from(mtu) / f64::from(u32::from(mtu) + self.spec.overhead);
        let rate = oracle::carried(&self.spec.rate, from, until) / (until - from).as_secs_f64() * share;
        Rate::from_bytes_per_second(rate.max(LEAST))
    }

    /// How long what was sent will keep the link busy, if it goes on as of late.
    fn wait(&self, since: Duration) -> Duration {
        let until = since.saturating_sub(self.round_trip);
        let unknown: u64 = self.sent.iter().rev().take_while(|(left, _)| *left > until).map(|(_, bytes)| bytes).sum();
        self.carried(since, LATELY, u16::MAX).time_for(unknown).saturating_sub(self.round_trip)
    }
}

impl Driver for Informed {
    fn on_sent(&mut self, now: Instant, bytes: u64, _: u64) {
        let Some(since) = oracle::since(&self.origin, now).filter(|_| self.spec.rate != LinkRate::Unlimited) else {
            return;
        };
        let start = since.max(self.free);
        self.link.offer(start, Datagram { data: vec![0; bytes as usize][..].into(), ecn: None, tag: 0 });
        self.free = self.link.poll_timeout().unwrap_or(start + FORECAST);
        let _ = self.link.poll(self.free);
        self.sent.push_back((self.free, bytes));
        let known = since.saturating_sub(self.round_trip * 2);
        while self.sent.front().is_some_and(|(left, _)| *left < known) {
            self.sent.pop_front();
        }
    }

    fn on_report(&mut self, _: &Report, path: &PathState) -> Option<Duration> {
        self.round_trip = path.base;
        None
    }

    fn rate(&self, now: Instant, path: &PathState) -> Rate {
        let Some(since) = oracle::since(&self.origin, now) else { return Rate::from_bytes_per_second(1e9) };
        self.carried(since, FORECAST, path.mtu)
    }

    fn pace(&self, _: Instant, _: &PathState) -> Rate {
        Rate::from_bytes_per_second(1e12)
    }

    fn window(&self, _: &PathState) -> u64 {
        u64::MAX / 2
    }

    fn ready_at(&self, now: Instant) -> Option<Instant> {
        let wait = self.wait(oracle::since(&self.origin, now)?).checked_sub(QUEUE)?;
        Some(now + wait + Duration::from_nanos(1))
    }

    fn backlog(&self, now: Instant) -> Option<Duration> {
        Some(self.wait(oracle::since(&self.origin, now)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use punctual_sim::Schedule;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A link that falls to a quarter is driven as before until a round trip later, and then no faster than it is.
    #[test]
    fn what_it_knows_is_a_round_trip_old() {
        let (start, origin) = (Instant::now(), Origin::default());
        *origin.lock().unwrap_or_else(PoisonError::into_inner) = Some(start);
        let rate = LinkRate::Steps(Schedule::fixed(9_600_000).then(MS * 1_000, 2_400_000));
        let mut informed = Informed::new(LinkSpec { rate, ..LinkSpec::new(9.6, MS) }, origin);
        let (mut now, mut sent) = (start, [0; 40]);
        while now < start + MS * 2_000 {
            match informed.ready_at(now) {
                Some(at) => now = at,
                None => {
                    informed.on_sent(now, 1_172, 0);
                    sent[((now - start).as_millis() / 50) as usize] += 1;
                }
            }
        }
        // A packet takes 1 ms, and then 4.
        assert!((48..=52).contains(&sent[18]) && sent[20] > 40, "{sent:?}");
        assert!((24..=26).contains(&sent[30..32].iter().sum::<u32>()), "{sent:?}");
    }
}
