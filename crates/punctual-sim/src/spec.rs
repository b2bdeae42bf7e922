//! What a link is made of.

use std::time::Duration;

use rand_distr::{Distribution, Exp1, StandardNormal};

use crate::{loss::Loss, policer::Policer, rate::Rate, rng::Random, schedule::Schedule};

/// What a link is made of. The default is a perfect one; set what you need.
///
/// ```
/// # use std::time::Duration;
/// use punctual_sim::{LinkSpec, Loss};
///
/// let lossy = LinkSpec::new(15.0, Duration::from_millis(60)).loss(Loss::bursts(0.05, 8.0));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// How fast packets leave.
    pub rate: Rate,
    /// How long the wire is. A shorter one does not let packets overtake those before them.
    pub delay: Schedule<Duration>,
    /// What is added to the delay, packet by packet; the order is kept.
    pub jitter: Jitter,
    /// Which packets are lost.
    pub loss: Schedule<Loss>,
    /// Which packets are damaged.
    pub corruption: Corruption,
    /// Which packets are overtaken by later ones.
    pub reordering: Reordering,
    /// Probability that a packet arrives twice.
    pub duplication: f64,
    /// What is dropped before the queue.
    pub policer: Option<Policer>,
    /// How much may wait; the packet being sent counts.
    pub queue: Queue,
    /// The queue length, bytes, above which packets that allow it are marked with ECN CE.
    pub ecn_threshold: Option<u64>,
    /// The largest packet, IP header included. Default 1,500.
    pub mtu: u32,
    /// What IP and UDP headers add to each datagram. Default 28, as IPv4 has it.
    pub overhead: u32,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate: Rate::Unlimited,
            delay: Schedule::default(),
            jitter: Jitter::None,
            loss: Schedule::default(),
            corruption: Corruption::default(),
            reordering: Reordering::default(),
            duplication: 0.0,
            policer: None,
            queue: Queue::Auto,
            ecn_threshold: None,
            mtu: 1500,
            overhead: 28,
        }
    }
}

impl LinkSpec {
    /// A rate in megabits (10⁶ bits) per second and a one-way delay.
    pub fn new(mbps: f64, delay: Duration) -> Self {
        Self { rate: Rate::mbps(mbps), delay: delay.into(), ..Self::default() }
    }

    /// A delay, and as fast as you like.
    pub fn unlimited(delay: Duration) -> Self {
        Self { delay: delay.into(), ..Self::default() }
    }

    /// Sets the rate.
    pub fn rate(self, rate: Rate) -> Self {
        Self { rate, ..self }
    }

    /// Sets the one-way delay, fixed or as a schedule.
    pub fn delay(self, delay: impl Into<Schedule<Duration>>) -> Self {
        Self { delay: delay.into(), ..self }
    }

    /// Sets the jitter.
    pub fn jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// Sets the loss, fixed or as a schedule.
    pub fn loss(self, loss: impl Into<Schedule<Loss>>) -> Self {
        Self { loss: loss.into(), ..self }
    }

    /// Damages packets with this probability, such that runs repeat (see [`CorruptionSite::Tag`]).
    pub fn corruption(self, probability: f64) -> Self {
        Self { corruption: Corruption { probability, site: CorruptionSite::Tag }, ..self }
    }

    /// Holds packets back by `delay` with this probability.
    pub fn reordering(self, probability: f64, delay: Duration) -> Self {
        Self { reordering: Reordering { probability, delay }, ..self }
    }

    /// Delivers packets twice with this probability.
    pub fn duplication(self, duplication: f64) -> Self {
        Self { duplication, ..self }
    }

    /// Sets the queue's size, bytes.
    pub fn queue(self, bytes: u64) -> Self {
        Self { queue: Queue::Bytes(bytes), ..self }
    }

    /// Drops what exceeds so many bits per second by more than so many bytes.
    pub fn policer(self, rate: u64, burst: u64) -> Self {
        Self { policer: Some(Policer { rate, burst }), ..self }
    }

    /// Marks with ECN CE what finds more than this many bytes queued.
    pub fn ecn_threshold(self, bytes: u64) -> Self {
        Self { ecn_threshold: Some(bytes), ..self }
    }

    /// Sets the largest packet, IP header included.
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// The queue's size, bytes.
    pub fn queue_limit(&self) -> u64 {
        match self.queue {
            Queue::Bytes(bytes) => bytes,
            Queue::Auto => {
                let delay = self.delay.values().max().copied().unwrap_or_default();
                let product = self.rate.nominal().unwrap_or(0.0) / 8.0 * 2.0 * delay.as_secs_f64();
                (product as u64).max(Queue::SHORTEST)
            }
        }
    }
}

/// How much may wait for a link before packets are dropped at its tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Queue {
    /// The bandwidth-delay product, as a well-set router has it: nominal rate (see [`Rate::nominal`]) times twice the
    /// longest one-way delay, and never less than 20 full packets (30,000 bytes).
    #[default]
    Auto,
    /// This many bytes.
    Bytes(u64),
}

impl Queue {
    /// The least that `Auto` gives: 20 packets of 1,500 bytes.
    pub const SHORTEST: u64 = 30_000;
}

/// How much longer than its delay a packet takes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Jitter {
    /// Not at all.
    #[default]
    None,
    /// Anything from zero to this.
    Uniform(Duration),
    /// Normally distributed, but never less than zero.
    Normal {
        /// In the middle.
        mean: Duration,
        /// Standard deviation.
        deviation: Duration,
    },
    /// Exponentially distributed with this mean: mostly little, at times much.
    Exponential(Duration),
}

impl Jitter {
    pub(crate) fn draw(&self, random: &mut Random) -> Duration {
        let secs = match self {
            Self::None => return Duration::ZERO,
            Self::Uniform(most) => most.as_secs_f64() * rand::RngExt::random::<f64>(random),
            Self::Normal { mean, deviation } => {
                let sample: f64 = StandardNormal.sample(random);
                (mean.as_secs_f64() + deviation.as_secs_f64() * sample).max(0.0)
            }
            Self::Exponential(mean) => {
                let sample: f64 = Exp1.sample(random);
                mean.as_secs_f64() * sample
            }
        };
        Duration::from_nanos((secs * 1e9) as u64)
    }
}

/// Which packets arrive with a bit flipped. (Real UDP mostly drops such packets; checksums are weak, offloaded, or
/// off.)
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Corruption {
    /// Of each packet.
    pub probability: f64,
    /// Where the bit is.
    pub site: CorruptionSite,
}

/// Where in a packet a bit is flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CorruptionSite {
    /// In the last 16 bytes, which are QUIC's authentication tag: the receiver finds the packet damaged, whatever it
    /// holds. Its contents, which TLS makes different in every run, cannot change what happens, so runs repeat.
    #[default]
    Tag,
    /// Anywhere. A flipped header bit can make a receiver answer, and how depends on the contents: such runs do not
    /// repeat.
    Anywhere,
}

/// Which packets are overtaken.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reordering {
    /// Of each packet.
    pub probability: f64,
    /// How long it is held back; those behind it do not wait.
    pub delay: Duration,
}
