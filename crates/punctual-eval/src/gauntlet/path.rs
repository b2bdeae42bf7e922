//! A path, as drawn.

use std::collections::BTreeSet;

use super::{
    dice::{Dice, rounded},
    recorded::{Recorded, STRETCHES},
};

/// One path. Where two values stand together, the first is a moment as a share of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// How fast it is.
    pub rate: Rate,
    /// One way, in milliseconds, from which moment on.
    pub delay: Vec<(f64, f64)>,
    /// What its queue holds.
    pub queue: Queue,
    /// What it loses by chance.
    pub loss: Loss,
    /// Whether it loses the same on the way back.
    pub loses_back: bool,
    /// What is added to the delay.
    pub jitter: Option<Jitter>,
    /// Share of packets that are held back, and how long, in milliseconds.
    pub reordering: Option<(f64, f64)>,
    /// From when, and for how many seconds, it is dead.
    pub dies: Option<(f64, f64)>,
    /// When nothing moves, and for how many milliseconds.
    pub stalls: Vec<(f64, f64)>,
    /// What is more is dropped: bits per second, and bytes of a burst.
    pub policer: Option<(f64, u64)>,
    /// The largest packet.
    pub mtu: u32,
    /// Bytes in the queue above which packets are marked.
    pub ecn_threshold: Option<u64>,
    /// Traffic of others.
    pub cross: Option<Cross>,
    /// What is worse on the way back.
    pub back: Back,
}

/// How fast a path is.
#[derive(Debug, Clone, PartialEq)]
pub enum Rate {
    /// Bits per second, from which moment on.
    Steps(Vec<(f64, f64)>),
    /// As a cellular link was recorded.
    Recorded(Recorded),
}

/// What a queue holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queue {
    /// Bytes.
    pub bytes: u64,
    /// How that came about.
    pub by: QueueBy,
}

/// How a queue's size was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueBy {
    /// So many bandwidth-delay products.
    Products(f64),
    /// What leaves in so many milliseconds.
    Time(f64),
    /// So many bytes.
    Bytes,
}

/// What a path loses by chance, as a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Nothing.
    None,
    /// Each packet for itself.
    Random(f64),
    /// In bursts of so many packets on average.
    Bursts(f64, f64),
}

/// What is added to a delay, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// From nothing to this.
    Uniform(f64),
    /// This on average.
    Exponential(f64),
    /// Mean and deviation.
    Normal(f64, f64),
}

/// Traffic of others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cross {
    /// Bits per second, while it is there.
    pub rate: f64,
    /// When its packets come.
    pub pattern: Pattern,
}

/// When packets of others come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pattern {
    /// Evenly.
    Constant,
    /// By chance.
    Poisson,
    /// In bursts: mean milliseconds on and off.
    OnOff(f64, f64),
}

/// What is worse on the way back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Back {
    /// Its own rate, bits per second, and queue, bytes.
    pub rate: Option<(f64, u64)>,
    /// Its own jitter.
    pub jitter: Option<Jitter>,
    /// Its own random loss.
    pub loss: Option<f64>,
    /// Traffic of others.
    pub cross: Option<Cross>,
}

impl Back {
    /// Whether there is any trouble.
    pub fn is_troubled(&self) -> bool {
        *self != Self::default()
    }
}

/// Rates and delays of a range of cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    /// Mbit/s.
    pub(super) rate: (f64, f64),
    /// One way, milliseconds.
    pub(super) delay: (f64, f64),
}

/// Most cells are from here: networks as there are many.
pub(super) const CORE: Range = Range { rate: (0.5, 100.0), delay: (2.0, 150.0) };

/// The others may be from anywhere in here.
pub(super) const WIDE: Range = Range { rate: (0.1, 1000.0), delay: (1.0, 400.0) };

/// The largest packet of an ordinary path; a queue holds one at least.
pub(super) const MTU: u32 = 1500;

/// Of a forward rate, what its acknowledgements need at most: 40 bytes or so for two packets of 1,500, and some slack.
const ACKS: f64 = 1.0 / 40.0;

/// The least queue of a narrow way back: a few acknowledgements.
const LEAST_BACK_QUEUE: f64 = 3_000.0;

/// What a threshold for marks is at least: two packets, or every one would be marked.
const LEAST_THRESHOLD: f64 = 3_000.0;

/// Most of a run that a path may be dead.
const MOST_DEAD: f64 = 0.5;

impl Path {
    /// Draws a path for a run of about so many seconds.
    pub(super) fn draw(dice: &mut Dice, range: Range, seconds: f64) -> Self {
        let recorded = dice.chance(0.12).then(|| dice.pick(STRETCHES).either_way(dice.chance(0.5)));
        let base = rounded(recorded.map_or_else(|| dice.log_uniform(range.rate) * 1e6, |recorded| recorded.rate()));
        let delay = dice.log_uniform(range.delay);
        let queue = match recorded {
            Some(_) => Queue { bytes: dice.log_uniform((30e3, 500e3)) as u64, by: QueueBy::Bytes },
            None => queue(dice, base, delay),
        };
        let loss = match dice.uniform((0.0, 1.0)) {
            share if share < 0.45 => Loss::None,
            share if share < 0.75 => Loss::Random(dice.log_uniform((1e-4, 0.1))),
            _ => Loss::Bursts(dice.log_uniform((0.001, 0.05)), dice.log_uniform((2.0, 20.0))),
        };
        let loses_back = loss != Loss::None && dice.chance(0.5);
        let jitter = dice.chance(0.25).then(|| jitter(dice));
        let reordering = dice.chance(0.05).then(|| (dice.log_uniform((0.001, 0.05)), dice.log_uniform((1.0, 30.0))));
        let stepping = dice.chance(0.2);
        let rate = match recorded {
            Some(recorded) => Rate::Recorded(recorded),
            None if stepping => Rate::Steps(steps(dice, base, 5, (0.2, 3.0))),
            None => Rate::Steps(vec![(0.0, base)]),
        };
        let delay = if dice.chance(0.1) { steps(dice, delay, 4, (0.3, 4.0)) } else { vec![(0.0, delay)] };
        let longest = (seconds * MOST_DEAD).min(5.0);
        let dies = dice.chance(0.06).then(|| (dice.uniform((0.05, 0.9)), dice.log_uniform((0.5, longest))));
        // A recording has stalls of its own.
        let stalling = dice.chance(0.05) && recorded.is_none();
        let stalls = if stalling { stalls(dice) } else { Vec::new() };
        let policer = dice
            .chance(0.05)
            .then(|| (rounded(base * dice.uniform((0.3, 0.9))), dice.log_uniform((10e3, 100e3)) as u64));
        let mtu = if dice.chance(0.2) { dice.whole(1280, MTU) } else { MTU };
        let ecn_threshold = dice
            .chance(0.05)
            .then(|| (queue.bytes as f64 * dice.uniform((0.1, 0.5))).max(LEAST_THRESHOLD).round() as u64);
        let cross = dice.chance(0.1).then(|| cross(dice, base));
        let fastest = match &rate {
            Rate::Steps(steps) => steps.iter().map(|step| step.1).fold(0.0, f64::max),
            Rate::Recorded(recorded) => recorded.back_rate(),
        };
        let back = if dice.chance(0.15) { back(dice, fastest, recorded.is_some()) } else { Back::default() };
        Self {
            rate,
            delay,
            queue,
            loss,
            loses_back,
            jitter,
            reordering,
            dies,
            stalls,
            policer,
            mtu,
            ecn_threshold,
            cross,
            back,
        }
    }

    /// Bits per second on average, what a policer drops not counted; stalls and deaths are not looked at.
    pub fn mean_rate(&self) -> f64 {
        let most = self.policer.map_or(f64::INFINITY, |(rate, _)| rate);
        match &self.rate {
            Rate::Recorded(recorded) => recorded.rate().min(most),
            Rate::Steps(steps) => {
                let ends = steps.iter().skip(1).map(|step| step.0).chain([1.0]);
                steps.iter().zip(ends).map(|((from, rate), to)| (to - from) * rate.min(most)).sum()
            }
        }
    }

    /// The delay it begins with, milliseconds.
    pub fn delay_ms(&self) -> f64 {
        self.delay[0].1
    }
}

/// A queue by time or by products, as likely.
pub(super) fn queue(dice: &mut Dice, rate: f64, delay_ms: f64) -> Queue {
    let (by, ms) = if dice.chance(0.5) {
        let products = dice.log_uniform((0.5, 4.0));
        (QueueBy::Products(products), products * 2.0 * delay_ms)
    } else {
        let ms = dice.log_uniform((50.0, 500.0));
        (QueueBy::Time(ms), ms)
    };
    Queue { bytes: (rate / 8e3 * ms).max(f64::from(MTU)).round() as u64, by }
}

/// The same value at first, then others at random moments: 2 to `most` in all.
fn steps(dice: &mut Dice, base: f64, most: u32, factors: (f64, f64)) -> Vec<(f64, f64)> {
    let moments = {
        let more = dice.whole(1, most - 1);
        dice.moments(more)
    };
    let more = moments.into_iter().map(|at| (at, rounded(base * dice.log_uniform(factors))));
    std::iter::once((0.0, base)).chain(more).collect()
}

fn stalls(dice: &mut Dice) -> Vec<(f64, f64)> {
    let count = dice.whole(1, 3);
    dice.moments(count).into_iter().map(|at| (at, dice.log_uniform((50.0, 800.0)))).collect()
}

fn jitter(dice: &mut Dice) -> Jitter {
    let ms = dice.log_uniform((0.5, 20.0));
    match dice.whole(0, 2) {
        0 => Jitter::Uniform(ms),
        1 => Jitter::Exponential(ms),
        _ => Jitter::Normal(ms, rounded(ms * dice.uniform((0.2, 0.6)))),
    }
}

fn cross(dice: &mut Dice, rate: f64) -> Cross {
    let rate = rounded(rate * dice.uniform((0.05, 0.4)));
    let pattern = match dice.whole(0, 2) {
        0 => Pattern::Constant,
        1 => Pattern::Poisson,
        _ => Pattern::OnOff(dice.log_uniform((100.0, 1000.0)), dice.log_uniform((100.0, 1000.0))),
    };
    Cross { rate, pattern }
}

/// One or two troubles. A recorded way back keeps its rate.
fn back(dice: &mut Dice, fastest: f64, recorded: bool) -> Back {
    let mut back = Back::default();
    let first = dice.whole(0, 3);
    let second = if dice.chance(0.5) { (first + dice.whole(1, 3)) % 4 } else { first };
    // A rate comes before traffic that takes its share of it.
    for trouble in BTreeSet::from([first, second]) {
        let rate = back.rate.map_or(fastest, |(rate, _)| rate);
        match trouble {
            0 if !recorded => {
                let rate = rounded((dice.log_uniform((0.1, 1.0)) * 1e6).max(fastest * ACKS));
                let queue = (rate / 8e3 * dice.log_uniform((50.0, 500.0))).max(LEAST_BACK_QUEUE);
                back.rate = Some((rate, queue.round() as u64));
            }
            1 => back.jitter = Some(jitter(dice)),
            2 => back.loss = Some(dice.log_uniform((0.01, 0.1))),
            _ => back.cross = Some(cross(dice, rate)),
        }
    }
    back
}

impl Loss {
    /// The share that is lost.
    pub fn mean(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Random(share) | Self::Bursts(share, _) => share,
        }
    }
}

impl Jitter {
    /// What 99 % of packets do not exceed, milliseconds.
    pub fn most_ms(self) -> f64 {
        match self {
            Self::Uniform(most) => 0.99 * most,
            // −ln 0.01.
            Self::Exponential(mean) => 4.605 * mean,
            // The normal distribution's quantile.
            Self::Normal(mean, deviation) => mean + 2.326 * deviation,
        }
    }
}
