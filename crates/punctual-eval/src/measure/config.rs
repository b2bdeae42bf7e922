//! What an experiment's `[measure]` table may say.

use serde::{Deserialize, Serialize};

use crate::units::Time;

/// Settings of the measures that need any.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MeasureConfig {
    /// A player to measure `rebuffers` and `rebuffer_s` with; without one they have no value.
    pub playout: Option<Playout>,
    /// When the network changed, since the run's beginning, for `recovered_ms`; without it there is no value.
    pub step: Option<Time>,
    /// From when to when, since the run's beginning, for the measures of a window; without it they have no value.
    pub window: Option<(Time, Time)>,
    /// From when, since the run's beginning, windows are taken to have grown, for percentiles of `settled`; without it they have no value.
    pub settled: Option<Time>,
    /// What a block on time is worth, for `score`.
    pub weights: Weights,
}

impl MeasureConfig {
    /// Refuses a window that ends before it begins.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.window {
            Some((from, to)) if from >= to => Err(format!("[measure] window: it ends at {to}, and begins at {from}")),
            _ => Ok(()),
        }
    }
}

/// A player with a buffer: it begins once the buffer is full, and waits where a block is missing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Playout {
    /// The source it plays, by name.
    pub source: String,
    /// How long each of its blocks plays.
    pub block: Time,
    /// How much play time it buffers: before it begins, and at most when it goes on after a rebuffer.
    pub buffer: Time,
}

/// Weights by priority, highest first; blocks of lower priorities than are listed weigh what the last does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub struct Weights(Vec<f64>);

impl Weights {
    /// What a block of this priority on time adds to the score: its weight over the greatest, 0 to 1.
    pub fn of(&self, priority: u8) -> f64 {
        let greatest = self.0.iter().copied().fold(0.0, f64::max);
        let weight = self.0.get(usize::from(priority)).or(self.0.last());
        weight.map_or(0.0, |weight| weight / greatest)
    }
}

impl Default for Weights {
    /// 3, 2, 1: the AItrans challenge's.
    fn default() -> Self {
        Self(vec![3.0, 2.0, 1.0])
    }
}

impl TryFrom<Vec<f64>> for Weights {
    type Error = String;

    fn try_from(weights: Vec<f64>) -> Result<Self, String> {
        match weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
            Some(weight) => Err(format!("{weight} is no weight; weights are finite and not negative")),
            None if weights.iter().all(|weight| *weight == 0.0) => Err("some weight must be above 0".to_owned()),
            None => Ok(Self(weights)),
        }
    }
}

impl From<Weights> for Vec<f64> {
    fn from(weights: Weights) -> Self {
        weights.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> Result<MeasureConfig, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn an_empty_table_is_the_default() {
        assert_eq!(read(""), Ok(MeasureConfig::default()));
    }

    #[test]
    fn all_of_it_can_be_given() {
        let text = "step = '5s'\nsettled = '2s'\nwindow = ['6s', '9s']\nweights = [4, 1]\nplayout = { source = 'video', block = '200ms', buffer = '400 ms' }";
        let (block, buffer) = (Time(Duration::from_millis(200)), Time(Duration::from_millis(400)));
        let expected = MeasureConfig {
            playout: Some(Playout { source: "video".to_owned(), block, buffer }),
            step: Some(Time(Duration::from_secs(5))),
            window: Some((Time(Duration::from_secs(6)), Time(Duration::from_secs(9)))),
            settled: Some(Time(Duration::from_secs(2))),
            weights: Weights(vec![4.0, 1.0]),
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert!(read("steps = 1").unwrap_err().contains("unknown field"));
        assert!(read("weights = []").unwrap_err().contains("above 0"));
        assert!(read("weights = [0, 0]").unwrap_err().contains("above 0"));
        assert!(read("weights = [1, -1]").unwrap_err().contains("no weight"));
        assert!(read("weights = [inf]").unwrap_err().contains("no weight"));
    }

    #[test]
    fn weights_are_shares_of_the_greatest() {
        let weights = Weights::default();
        assert_eq!([0, 1, 2, 3, 255].map(|p| (weights.of(p) * 3.0).round()), [3.0, 2.0, 1.0, 1.0, 1.0]);
        assert_eq!(weights.of(0), 1.0);
    }
}
