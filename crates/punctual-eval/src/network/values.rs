//! What a direction may say of losses, its queue, and others' traffic.

use punctual_proto::duration::spoken;
use punctual_sim::{GilbertElliott, Loss};
use serde::{Deserialize, Deserializer};
use toml::Value;

use crate::{
    experiment::ExperimentError,
    reading::part,
    units::{BitRate, Share, Size, Time},
};

/// A share such as `"1 %"`, `{ mean, burst }`, or `{ to-bad, to-good, loss-in-good, loss-in-bad }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LossSpec {
    Bernoulli(Share),
    Bursts(Bursts),
    Model(Model),
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bursts {
    pub(super) mean: Share,
    /// Packets lost on end, on average; as chance has it if `None`.
    pub(super) burst: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Model {
    pub(super) to_bad: Share,
    pub(super) to_good: Share,
    pub(super) loss_in_good: Share,
    pub(super) loss_in_bad: Share,
}

/// By hand: of what is tried in turn, serde does not say why it does not fit.
impl<'de> Deserialize<'de> for LossSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Table(table) if table.contains_key("mean") || table.contains_key("burst") => {
                part(table).map(Self::Bursts)
            }
            Value::Table(table) => part(table).map(Self::Model),
            share => part(share).map(Self::Bernoulli),
        }
    }
}

/// A size such as `"64 KB"`, `{ bdp = 1.0 }` or `{ time = "50ms" }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QueueSpec {
    Bytes(Size),
    For(QueueFor),
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum QueueFor {
    Bdp(f64),
    Time(Time),
}

impl<'de> Deserialize<'de> for QueueSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Table(table) => part(table).map(Self::For),
            size => part(size).map(Self::Bytes),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum JitterSpec {
    Uniform(Time),
    Exponential(Time),
    Normal { mean: Time, deviation: Time },
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicerSpec {
    pub(super) rate: BitRate,
    pub(super) burst: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReorderingSpec {
    pub(super) probability: Share,
    pub(super) delay: Time,
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

/// Others' packets in a second at most: a run with more would take longer than anybody waits.
const MOST_CROSS: f64 = 1e6;

impl CrossSpec {
    pub(super) fn check(&self) -> Result<(), String> {
        let bytes = self.packet.unwrap_or(punctual_sim::CrossTraffic::constant(1.0).packet);
        let packets = self.rate.0 / 8.0 / f64::from(bytes);
        if bytes == 0 {
            Err("`cross` traffic of packets without bytes".into())
        } else if packets > MOST_CROSS {
            Err(format!(
                "`cross` traffic of {} in packets of {bytes} bytes: a million of them a second at most",
                self.rate
            ))
        } else if self.on_off.is_some_and(|(on, _)| on.0.is_zero()) {
            Err("`cross` traffic that is on for no time".into())
        } else if let Some(stop) = self.stop.filter(|stop| stop.0 <= self.start.0) {
            Err(format!("`cross` traffic that stops at {} and begins at {}", spoken(stop.0), spoken(self.start.0)))
        } else {
            Ok(())
        }
    }
}

impl LossSpec {
    pub(super) fn check(&self) -> Result<(), ExperimentError> {
        match self {
            Self::Bursts(Bursts { burst: Some(burst), .. }) if !(*burst >= 1.0 && burst.is_finite()) => {
                Err(ExperimentError::Invalid(format!("a burst of {burst} packets: one of losses is 1 at least")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn model(&self) -> Loss {
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
