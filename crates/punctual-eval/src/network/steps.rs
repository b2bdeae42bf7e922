//! Values that may change over time.

use std::time::Duration;

use punctual_proto::duration::spoken;
use punctual_sim::Schedule;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use toml::Value;

use crate::{experiment::ExperimentError, reading::part, units::Time};

/// A value that may change over time: it alone, steps of `[time, value]`, or `{ steps = [[time, value], …], repeat = time }`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Steps<T> {
    Changing(Vec<(Time, T)>),
    Repeating(Repeating<T>),
    Fixed(T),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Repeating<T> {
    steps: Vec<(Time, T)>,
    repeat: Time,
}

/// By hand: of what is tried in turn, serde does not say why it does not fit.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Steps<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            steps @ Value::Array(_) => part(steps).map(Self::Changing),
            Value::Table(table) if table.contains_key("steps") || table.contains_key("repeat") => {
                part(table).map(Self::Repeating)
            }
            fixed => part(fixed).map(Self::Fixed),
        }
    }
}

/// The shortest time after which steps begin anew: what changes more often is no link.
const LEAST_REPEAT: Duration = Duration::from_millis(1);

/// Whether steps begin with the run, each after the one before, and begin anew after the last if they do.
fn check_steps(times: impl Iterator<Item = Duration>, repeat: Option<Duration>) -> Result<(), String> {
    let mut before: Option<Duration> = None;
    for at in times {
        match before {
            None if !at.is_zero() => {
                return Err(format!("the first step is at {}, and has to be at 0 s", spoken(at)));
            }
            Some(before) if at <= before => {
                return Err(format!(
                    "a step at {} comes after one at {}: give them in order",
                    spoken(at),
                    spoken(before)
                ));
            }
            _ => before = Some(at),
        }
    }
    match (repeat, before) {
        (Some(repeat), _) if repeat < LEAST_REPEAT => {
            Err(format!("steps that begin anew after {}: give {} at least", spoken(repeat), spoken(LEAST_REPEAT)))
        }
        (Some(repeat), Some(last)) if repeat <= last => {
            Err(format!("steps begin anew after {}, and the last of them is at {}", spoken(repeat), spoken(last)))
        }
        _ => Ok(()),
    }
}

impl<T> Steps<T> {
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        let (fixed, steps) = match self {
            Self::Fixed(value) => (Some(value), &[][..]),
            Self::Changing(steps) | Self::Repeating(Repeating { steps, .. }) => (None, &steps[..]),
        };
        fixed.into_iter().chain(steps.iter().map(|(_, value)| value))
    }

    pub(super) fn schedule<U>(&self, key: &str, convert: impl Fn(&T) -> U) -> Result<Schedule<U>, ExperimentError> {
        let (steps, repeat) = match self {
            Self::Fixed(value) => return Ok(Schedule::fixed(convert(value))),
            Self::Changing(steps) => (steps, None),
            Self::Repeating(Repeating { steps, repeat }) => (steps, Some(repeat)),
        };
        check_steps(steps.iter().map(|(at, _)| at.0), repeat.map(|period| period.0))
            .map_err(|what| ExperimentError::Invalid(format!("`{key}`: {what}")))?;
        let mut steps = steps.iter();
        let none = || ExperimentError::Invalid(format!("`{key}`: there are no steps"));
        let (_, first) = steps.next().ok_or_else(none)?;
        let schedule =
            steps.fold(Schedule::fixed(convert(first)), |schedule, (at, value)| schedule.then(at.0, convert(value)));
        Ok(match repeat {
            Some(period) => schedule.repeat_every(period.0),
            None => schedule,
        })
    }
}
