//! The network of an experiment: `[[path]]` tables, each two links of the simulator.
//!
//! ```toml
//! [[path]]
//! rate = "12 MB/s"                                  # or in steps: [["0s", "12 MB/s"], ["5s", "4 MB/s"]]
//! delay = "2.5ms"                                   # one way; or in steps
//! loss = "1 %"                                      # or { mean = "5 %", burst = 8 }, or in steps
//! policer = { rate = "20 Mbit/s", burst = "64 KB" } # drops what is more
//! queue = { bdp = 1.0 }                             # or "64 KB"; without it, one bandwidth-delay product
//! cross = [{ rate = "1 Mbit/s", packet = 1200 }]    # traffic of others
//! back = { loss = 0 }                               # where the way back differs; otherwise it is like the way there
//! ```
//!
//! `trace = "file"` takes the rate from a Mahimahi trace, `aitrans = "file"` rate, loss and delay from one of the AItrans
//! challenge. The way back of such a path has its delay, and neither a rate nor losses unless `back` says so.

use std::time::Duration;

use punctual_sim::{
    Corruption, CorruptionSite, GilbertElliott, Jitter, LinkSpec, Loss, Policer, Queue, Rate, Reordering, Schedule,
    trace::{Opportunities, aitrans_link},
};
use serde::{Deserialize, Deserializer, de};

use crate::{
    experiment::ExperimentError,
    files::Files,
    units::{BitRate, Share, Size, Time},
};

/// A `[[path]]` table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathSpec {
    there: DirectionSpec,
    own: PathOwn,
}

/// What a `[[path]]` table says of the path as a whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct PathOwn {
    name: Option<String>,
    back: Option<DirectionSpec>,
    #[serde(default)]
    cost: f64,
    #[serde(default)]
    dies: Vec<(Time, Time)>,
}

impl<'de> Deserialize<'de> for PathSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand, because serde cannot both flatten and refuse unknown fields.
        let mut there = toml::Table::deserialize(deserializer)?;
        let own: toml::Table =
            ["name", "back", "cost", "dies"].into_iter().filter_map(|key| there.remove_entry(key)).collect();
        Ok(Self {
            there: there.try_into().map_err(de::Error::custom)?,
            own: own.try_into().map_err(de::Error::custom)?,
        })
    }
}

/// One direction of a path.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DirectionSpec {
    rate: Option<Steps<BitRate>>,
    trace: Option<String>,
    aitrans: Option<String>,
    /// A factor on the rates of a trace.
    scale: Option<f64>,
    delay: Option<Steps<Time>>,
    jitter: Option<JitterSpec>,
    loss: Option<Steps<LossSpec>>,
    policer: Option<PolicerSpec>,
    queue: Option<QueueSpec>,
    corruption: Option<Share>,
    reordering: Option<ReorderingSpec>,
    duplication: Option<Share>,
    ecn_threshold: Option<Size>,
    mtu: Option<u32>,
    cross: Option<Vec<CrossSpec>>,
}

/// A value that may change over time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a value, or steps of [time, value], or { steps = [[time, value], …], repeat = time }")]
enum Steps<T> {
    Changing(Vec<(Time, T)>),
    Repeating { steps: Vec<(Time, T)>, repeat: Time },
    Fixed(T),
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "a share such as \"1 %\", { mean, burst }, or { to-bad, to-good, loss-in-good, loss-in-bad }"
)]
enum LossSpec {
    Bernoulli(Share),
    Bursts(Bursts),
    Model(Model),
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bursts {
    mean: Share,
    /// Packets lost on end, on average; as chance has it if `None`.
    burst: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Model {
    to_bad: Share,
    to_good: Share,
    loss_in_good: Share,
    loss_in_bad: Share,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a size such as \"64 KB\", { bdp = 1.0 } or { time = \"50ms\" }")]
enum QueueSpec {
    Bytes(Size),
    Bdp { bdp: f64 },
    Time { time: Time },
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum JitterSpec {
    Uniform(Time),
    Exponential(Time),
    Normal { mean: Time, deviation: Time },
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicerSpec {
    rate: BitRate,
    burst: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReorderingSpec {
    probability: Share,
    delay: Time,
}

/// Traffic of others on a link.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CrossSpec {
    /// Mean rate while on, headers included.
    pub rate: BitRate,
    /// Bytes of a packet.
    pub packet: Option<u32>,
    /// Whether packets come by chance (a Poisson process) or evenly.
    #[serde(default)]
    pub poisson: bool,
    /// Mean time on, and off, exponentially distributed.
    pub on_off: Option<(Time, Time)>,
    /// From when.
    #[serde(default)]
    pub start: Time,
    /// Until when.
    pub stop: Option<Time>,
}

/// A path ready for the simulator.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// As reports call it.
    pub name: String,
    /// The way there.
    pub forward: LinkSpec,
    /// The way back.
    pub back: LinkSpec,
    /// Traffic of others on the way there, and on the way back.
    pub cross: [Vec<CrossSpec>; 2],
    /// Cost of a byte.
    pub cost: f64,
    /// When it dies, and lives again.
    pub dies: Vec<(Duration, Duration)>,
}

impl PathSpec {
    /// The links this describes. `index` counts paths, for those without a name.
    ///
    /// # Errors
    /// If a trace cannot be read, or the table makes no sense.
    pub fn build(&self, index: usize, files: &Files) -> Result<Path, ExperimentError> {
        let forward = self.there.link(LinkSpec::default(), files)?;
        let traced = self.there.trace.is_some() || self.there.aitrans.is_some();
        let like = match traced {
            true => LinkSpec { rate: Rate::Unlimited, loss: Schedule::default(), ..forward.clone() },
            false => forward.clone(),
        };
        let back = match &self.own.back {
            Some(spec) => spec.link(like, files)?,
            None => like,
        };
        let cross = |spec: Option<&DirectionSpec>| spec.and_then(|spec| spec.cross.clone()).unwrap_or_default();
        Ok(Path {
            name: self.own.name.clone().unwrap_or_else(|| format!("path {index}")),
            cross: [cross(Some(&self.there)), cross(self.own.back.as_ref())],
            forward,
            back,
            cost: self.own.cost,
            dies: self.own.dies.iter().map(|(from, to)| (from.0, to.0)).collect(),
        })
    }
}

impl DirectionSpec {
    /// What `like` is, as far as this says nothing else.
    fn link(&self, like: LinkSpec, files: &Files) -> Result<LinkSpec, ExperimentError> {
        let mut link = like;
        if let Some(name) = &self.aitrans {
            let recorded = aitrans_link(&files.text(name)?).map_err(|error| ExperimentError::trace(name, error))?;
            link = LinkSpec { rate: recorded.rate, delay: recorded.delay, loss: recorded.loss, ..link };
        }
        if let Some(name) = &self.trace {
            let trace =
                Opportunities::parse(&files.text(name)?).map_err(|error| ExperimentError::trace(name, error))?;
            link.rate = Rate::Trace(trace);
        }
        if let Some(rate) = &self.rate {
            link.rate = Rate::Steps(rate.schedule(|rate| rate.0.round() as u64)?);
        }
        if let Some(factor) = self.scale {
            link.rate = scaled(link.rate, factor)?;
        }
        if let Some(delay) = &self.delay {
            link.delay = delay.schedule(|delay| delay.0)?;
        }
        if let Some(loss) = &self.loss {
            link.loss = loss.schedule(LossSpec::model)?;
        }
        if let Some(jitter) = self.jitter {
            link.jitter = match jitter {
                JitterSpec::Uniform(most) => Jitter::Uniform(most.0),
                JitterSpec::Exponential(mean) => Jitter::Exponential(mean.0),
                JitterSpec::Normal { mean, deviation } => Jitter::Normal { mean: mean.0, deviation: deviation.0 },
            };
        }
        if let Some(share) = self.corruption {
            link.corruption = Corruption { probability: share.0, site: CorruptionSite::Tag };
        }
        if let Some(spec) = self.reordering {
            link.reordering = Reordering { probability: spec.probability.0, delay: spec.delay.0 };
        }
        if let Some(policer) = self.policer {
            link.policer = Some(Policer { rate: policer.rate.0.round() as u64, burst: policer.burst.0 });
        }
        link.duplication = self.duplication.map_or(link.duplication, |share| share.0);
        link.ecn_threshold = self.ecn_threshold.map(|size| size.0).or(link.ecn_threshold);
        link.mtu = self.mtu.unwrap_or(link.mtu);
        // Last, for a product needs the others.
        match self.queue {
            Some(QueueSpec::Bytes(size)) => link.queue = Queue::Bytes(size.0),
            Some(QueueSpec::Bdp { bdp }) => link.queue = Queue::Bytes((bdp * product(&link)).max(1.0) as u64),
            Some(QueueSpec::Time { time }) => {
                let rate = link.rate.nominal().unwrap_or_default() / 8.0;
                link.queue = Queue::Bytes((rate * time.0.as_secs_f64()).max(1.0) as u64);
            }
            None => {}
        }
        Ok(link)
    }
}

/// Bandwidth-delay product of a link and one like it back, bytes.
fn product(link: &LinkSpec) -> f64 {
    let delay = link.delay.values().max().copied().unwrap_or_default();
    link.rate.nominal().unwrap_or_default() / 8.0 * 2.0 * delay.as_secs_f64()
}

fn scaled(rate: Rate, factor: f64) -> Result<Rate, ExperimentError> {
    if !(factor.is_finite() && factor > 0.0) {
        return Err(ExperimentError::Invalid(format!("a path's `scale` of {factor}: give a positive number")));
    }
    match rate {
        Rate::Steps(schedule) => Ok(Rate::Steps(schedule.map(|rate| (*rate as f64 * factor).round() as u64))),
        Rate::Unlimited => Ok(Rate::Unlimited),
        Rate::Trace(_) => Err(ExperimentError::Invalid("`scale` does not go with a Mahimahi trace".into())),
    }
}

impl<T> Steps<T> {
    fn schedule<U>(&self, convert: impl Fn(&T) -> U) -> Result<Schedule<U>, ExperimentError> {
        let (steps, repeat) = match self {
            Self::Fixed(value) => return Ok(Schedule::fixed(convert(value))),
            Self::Changing(steps) => (steps, None),
            Self::Repeating { steps, repeat } => (steps, Some(repeat)),
        };
        let mut steps = steps.iter();
        let (_, first) = steps.next().ok_or_else(|| ExperimentError::Invalid("a schedule without steps".into()))?;
        let schedule =
            steps.fold(Schedule::fixed(convert(first)), |schedule, (at, value)| schedule.then(at.0, convert(value)));
        Ok(match repeat {
            Some(period) => schedule.repeat_every(period.0),
            None => schedule,
        })
    }
}

impl LossSpec {
    fn model(&self) -> Loss {
        match *self {
            Self::Bernoulli(Share(0.0)) => Loss::None,
            Self::Bernoulli(share) => Loss::Bernoulli(share.0),
            Self::Bursts(Bursts { mean, burst: Some(burst) }) => Loss::bursts(mean.0, burst),
            Self::Bursts(Bursts { mean, burst: None }) => Self::Bernoulli(mean).model(),
            Self::Model(model) => Loss::GilbertElliott(GilbertElliott {
                to_bad: model.to_bad.0,
                to_good: model.to_good.0,
                loss_in_good: model.loss_in_good.0,
                loss_in_bad: model.loss_in_bad.0,
            }),
        }
    }
}
