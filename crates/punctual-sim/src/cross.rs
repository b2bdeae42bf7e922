//! Packets of others that take their share of a link.

use std::time::Duration;

use rand::RngExt;
use rand_distr::{Distribution, Exp1};

use crate::{
    queue::{Alarm, Target},
    rng::Random,
    world::{LinkId, World},
};

/// Packets that come to a link's queue beside those of the hosts, and vanish at its far end. They wait, are serialised,
/// dropped and lost like any other packet, and answer to nothing: no congestion control.
///
/// They leave no record in the [log](crate::EventLog), and are counted apart ([`CrossCounters`](crate::CrossCounters)).
///
/// ```
/// # use std::time::Duration;
/// use punctual_sim::CrossTraffic;
///
/// // Others send 4 Mbit/s in bursts, 0.2 s on and 0.3 s off on average, from the fifth second on: 1.6 Mbit/s in all.
/// let (on, off) = (Duration::from_millis(200), Duration::from_millis(300));
/// let traffic = CrossTraffic::bursts(4.0, on, off).from(Duration::from_secs(5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossTraffic {
    /// When packets come.
    pub pattern: Pattern,
    /// Megabits (10⁶ bits) a second, headers included: the mean, or that of each burst.
    pub mbps: f64,
    /// Bytes of each packet, headers included. Default 1,500.
    pub packet: u32,
    /// When they begin, counted from the beginning of the run.
    pub start: Duration,
    /// When they end, counted alike; `None` is never.
    pub stop: Option<Duration>,
}

/// When packets of cross traffic come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// At even intervals.
    Constant,
    /// At any time, whenever the last came: exponentially distributed intervals.
    Poisson,
    /// At even intervals while on, and not at all while off. On and off times are exponentially distributed.
    Bursts {
        /// Mean time on.
        on: Duration,
        /// Mean time off.
        off: Duration,
    },
}

impl CrossTraffic {
    /// Packets at even intervals; only when the first comes is left to chance.
    pub fn constant(mbps: f64) -> Self {
        Self { pattern: Pattern::Constant, mbps, packet: 1500, start: Duration::ZERO, stop: None }
    }

    /// Packets that come independently of each other, at this mean rate.
    pub fn poisson(mbps: f64) -> Self {
        Self { pattern: Pattern::Poisson, ..Self::constant(mbps) }
    }

    /// Bursts at this rate, with these mean times on and off.
    pub fn bursts(mbps: f64, on: Duration, off: Duration) -> Self {
        Self { pattern: Pattern::Bursts { on, off }, ..Self::constant(mbps) }
    }

    /// Sets the size of each packet, bytes with headers.
    pub fn packet(self, packet: u32) -> Self {
        Self { packet, ..self }
    }

    /// Begins this long after the run's beginning.
    pub fn from(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// Ends this long after the run's beginning.
    pub fn until(self, stop: Duration) -> Self {
        Self { stop: Some(stop), ..self }
    }
}

/// Cross traffic in a world.
pub(crate) struct CrossSource {
    link: LinkId,
    traffic: CrossTraffic,
    /// As it was before anything was drawn.
    random: Random,
    origin: Duration,
    arrivals: Arrivals,
    alarm: Alarm,
}

impl CrossSource {
    pub(crate) fn new(link: LinkId, traffic: CrossTraffic, random: Random) -> Self {
        let arrivals = Arrivals::new(traffic, random.clone());
        Self { link, traffic, random, origin: Duration::ZERO, arrivals, alarm: Alarm::default() }
    }

    /// Nothing more comes until it is started.
    pub(crate) fn pause(&mut self) {
        self.alarm = Alarm::default();
    }
}

impl World {
    /// Has a source begin now, whatever it did before.
    pub(crate) fn start_cross_traffic(&mut self, index: usize) {
        let source = &mut self.cross[index];
        source.pause();
        source.origin = self.now;
        source.arrivals = Arrivals::new(source.traffic, source.random.clone());
        self.await_cross_traffic(index);
    }

    /// A packet of a source is due, unless the source was started anew since.
    pub(crate) fn send_cross_traffic(&mut self, index: usize) {
        let source = &mut self.cross[index];
        if !source.alarm.ring(self.now) {
            return;
        }
        let (now, bytes) = (self.now, source.traffic.packet);
        self.touch(self.cross[index].link, |link| link.offer_cross(now, bytes));
        self.await_cross_traffic(index);
    }

    fn await_cross_traffic(&mut self, index: usize) {
        let source = &mut self.cross[index];
        if let Some(after) = source.arrivals.next() {
            source.alarm.set((source.origin + after).max(self.now), &mut self.queue, Target::Cross(index));
        }
    }
}

/// When the packets of a source come, counted from the beginning of the run.
struct Arrivals {
    pattern: Pattern,
    random: Random,
    /// Mean time between two packets, seconds; while on.
    interval: f64,
    /// When the last came, seconds.
    last: f64,
    /// When the burst ends, seconds.
    on_until: f64,
    first: bool,
    stop: Option<Duration>,
}

impl Arrivals {
    fn new(traffic: CrossTraffic, mut random: Random) -> Self {
        let start = traffic.start.as_secs_f64();
        let on_until = match traffic.pattern {
            Pattern::Constant | Pattern::Poisson => f64::INFINITY,
            // On or off as likely as at any other time.
            Pattern::Bursts { on, off } => {
                let (on, off) = (on.as_secs_f64(), off.as_secs_f64());
                let begins_on = random.random::<f64>() * (on + off) < on;
                if begins_on { start + exponential(on, &mut random) } else { start }
            }
        };
        Self {
            pattern: traffic.pattern,
            random,
            interval: f64::from(traffic.packet) * 8.0 / (traffic.mbps.max(0.0) * 1e6),
            last: start,
            on_until,
            first: true,
            stop: traffic.stop,
        }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let first = std::mem::take(&mut self.first);
        let mut gap = match self.pattern {
            Pattern::Poisson => exponential(self.interval, &mut self.random),
            // Sources of the same rate are not to march in step.
            Pattern::Constant | Pattern::Bursts { .. } if first => self.interval * self.random.random::<f64>(),
            Pattern::Constant | Pattern::Bursts { .. } => self.interval,
        };
        // What is left of the interval at the end of a burst goes into the next, so that the mean rate is right however
        // short the bursts are. The bounds end it for rates and times that make no sense.
        if let Pattern::Bursts { on, off } = self.pattern {
            while self.last + gap > self.on_until && self.last < NEVER && gap.is_finite() {
                gap -= self.on_until - self.last;
                self.last = self.on_until + exponential(off.as_secs_f64(), &mut self.random);
                self.on_until = self.last + exponential(on.as_secs_f64().max(SHORTEST_BURST), &mut self.random);
            }
        }
        // A rate of zero is an endless gap; one without end would stop time.
        self.last += gap.max(1e-9);
        let at = Duration::from_secs_f64((self.last < NEVER).then_some(self.last)?);
        self.stop.is_none_or(|stop| at < stop).then_some(at)
    }
}

/// Mean time on, seconds, below which a source would do nothing but begin and end bursts.
const SHORTEST_BURST: f64 = 1e-6;

/// Ten thousand years, in seconds.
const NEVER: f64 = 3.2e11;

fn exponential(mean: f64, random: &mut Random) -> f64 {
    let sample: f64 = Exp1.sample(random);
    sample * mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};

    fn arrivals(traffic: CrossTraffic) -> impl Iterator<Item = f64> {
        Arrivals::new(traffic, generator(5, Purpose::Cross, 0)).map(|at| at.as_secs_f64())
    }

    /// Mean rate, and squared coefficient of variation of the number of packets in 100 ms, over 2,000 s.
    fn observe(traffic: CrossTraffic) -> (f64, f64) {
        let mut counts = vec![0.0; 20_000];
        for at in arrivals(traffic.until(Duration::from_secs(2_000))) {
            counts[(at * 10.0) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        (mean * 10.0 * f64::from(traffic.packet) * 8.0 / 1e6, variance / mean)
    }

    #[test]
    fn each_pattern_has_its_rate_and_its_spread() {
        let (rate, spread) = observe(CrossTraffic::constant(4.0));
        assert!((rate - 4.0).abs() < 0.001 && spread < 0.01, "{rate} {spread}");
        // The variance of a Poisson process is its mean.
        let (rate, spread) = observe(CrossTraffic::poisson(4.0));
        assert!((rate - 4.0).abs() < 0.03 && (spread - 1.0).abs() < 0.05, "{rate} {spread}");
        let ms = Duration::from_millis;
        let (rate, spread) = observe(CrossTraffic::bursts(4.0, ms(100), ms(300)).packet(1000));
        assert!((rate - 1.0).abs() < 0.03 && spread > 10.0, "{rate} {spread}");
        // Bursts shorter than the time between two packets.
        let (rate, _) = observe(CrossTraffic::bursts(4.0, ms(1), ms(1)));
        assert!((rate - 2.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn from_start_to_stop() {
        let secs = Duration::from_secs;
        for traffic in [CrossTraffic::constant(1.2), CrossTraffic::bursts(2.4, secs(1), secs(1))] {
            let times: Vec<_> = arrivals(traffic.from(secs(3)).until(secs(63))).collect();
            assert!(times.iter().all(|at| (3.0..63.0).contains(at)));
            assert!((3_000..9_000).contains(&times.len()), "{}", times.len());
        }
        assert_eq!(arrivals(CrossTraffic::constant(0.0)).count(), 0);
        assert_eq!(arrivals(CrossTraffic::bursts(1.0, Duration::ZERO, secs(1_000_000_000))).count(), 0);
    }
}
