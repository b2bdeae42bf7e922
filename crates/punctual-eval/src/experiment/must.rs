//! What an experiment must show, and whether it did.

use serde::Deserialize;

use super::{
    ExperimentError,
    axis::{Axis, Point},
    condition::Condition,
    unknown,
};
use crate::{
    measure::{MEASURES, Measure, pooled::PERCENTILES},
    results::{Cell, Results, Verdict},
};

/// A `[[must]]` table: a measure of a contender, against a number or another contender.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Must {
    /// In words.
    pub say: String,
    /// The contender.
    pub of: String,
    /// The measure; `on_time:0` is priority 0's share on time.
    pub measure: String,
    /// The least that will do.
    at_least: Option<f64>,
    /// The most that will do.
    at_most: Option<f64>,
    /// At least what this contender has, times `times`, less `tolerance`.
    at_least_that_of: Option<String>,
    /// At most what this contender has, times `times`, plus `tolerance`.
    at_most_that_of: Option<String>,
    times: Option<f64>,
    tolerance: Option<f64>,
    /// Only cells for which this holds: `bandwidth >= 3 and loss < 0.1`.
    #[serde(rename = "where", default)]
    condition: Condition,
    /// How the cells count together.
    #[serde(default)]
    over: Over,
}

/// How the cells of a [`Must`] count together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// It must hold in every cell.
    #[default]
    Every,
    /// In at least one.
    Any,
    /// For the mean of all.
    Mean,
    /// For the worst of all seeds in every cell.
    EverySeed,
}

/// Whether there is a measure of that name, as thresholds and figures have them: perhaps with a priority, a source or the like behind a colon.
///
/// # Errors
/// If there is none: the names there are.
pub fn check_measure(name: &str) -> Result<(), String> {
    let known = match name.split_once(':') {
        Some(("on_time", source)) if source.parse::<u64>().is_err() => !source.is_empty(),
        Some((measure, who)) if PERCENTILES.iter().any(|(key, _)| *key == measure) => !who.is_empty(),
        Some((measure, priority)) => BY_PRIORITY.contains(&measure) && priority.parse::<u8>().is_ok(),
        None => Measure::find(name).is_some(),
    };
    let all = || MEASURES.iter().map(|measure| measure.key).collect::<Vec<_>>().join(", ");
    let by_priority = BY_PRIORITY.join(", ");
    if known {
        Ok(())
    } else {
        Err(format!(
            "there is no measure `{name}`; there are: {}; with a priority, as in `on_time:0`: {by_priority}; and `on_time` with a source's name; and percentiles over all seeds, as in `p99_ms:all`, `p99_ms:settled`, `p99_ms:0`, `p99_ms:NAME`",
            all()
        ))
    }
}

/// Measures that exist for a priority alone.
const BY_PRIORITY: [&str; 3] = ["on_time", "bound", "share_of_bound"];

/// A cell's value and what it is held against.
struct Case {
    place: String,
    value: f64,
    threshold: f64,
}

impl Must {
    /// Refuses what makes no sense, before hours are spent.
    pub(super) fn check(&self) -> Result<(), ExperimentError> {
        self.makes_sense().map_err(|what| self.error(&what))
    }

    fn makes_sense(&self) -> Result<(), String> {
        let given = [
            self.at_least.is_some(),
            self.at_most.is_some(),
            self.at_least_that_of.is_some(),
            self.at_most_that_of.is_some(),
        ];
        if given.iter().filter(|given| **given).count() != 1 {
            return Err("give exactly one of at-least, at-most, at-least-that-of, at-most-that-of".into());
        }
        if self.other().is_none() && (self.times.is_some() || self.tolerance.is_some()) {
            return Err("`times` and `tolerance` go with at-least-that-of and at-most-that-of".into());
        }
        let numbers = [self.at_least, self.at_most, self.times, self.tolerance];
        if let Some(number) = numbers.into_iter().flatten().find(|number| !number.is_finite()) {
            return Err(format!("{number} is nothing that a measure can be held against"));
        }
        check_measure(&self.measure)
    }

    /// Refuses one about a contender, an axis or cells that the experiment, as it is written, does not have.
    pub(super) fn check_names(
        &self,
        contenders: &[&str],
        axes: &[Axis],
        places: &[Vec<Point>],
    ) -> Result<(), ExperimentError> {
        let stranger =
            [Some(&self.of), self.other()].into_iter().flatten().find(|name| !contenders.contains(&name.as_str()));
        if let Some(name) = stranger {
            return Err(self.error(&unknown("contender", name, contenders.iter().copied())));
        }
        if let Some(name) = self.condition.unknown_axis(axes) {
            return Err(self.error(&unknown("axis", name, axes.iter().map(|axis| axis.name.as_str()))));
        }
        if !places.iter().any(|place| self.condition.holds_at(axes, place)) {
            return Err(self.error("its `where` holds in no cell"));
        }
        Ok(())
    }

    fn error(&self, what: &str) -> ExperimentError {
        ExperimentError::Invalid(format!("must `{}`: {what}", self.say))
    }

    fn wants_more(&self) -> bool {
        self.at_least.is_some() || self.at_least_that_of.is_some()
    }

    /// How far a case is from failing; negative if it does.
    fn margin(&self, case: &Case) -> f64 {
        if self.wants_more() { case.value - case.threshold } else { case.threshold - case.value }
    }

    /// Whether the results satisfy it, and where they come closest to not doing so. `None` if that cannot be said of them: a contender
    /// it names was not run, or none of the cells it is about.
    pub fn judge(&self, results: &Results) -> Option<Verdict> {
        if self.other().is_some_and(|other| !results.contenders.contains(other)) {
            return None;
        }
        let mut cases: Vec<Case> = results
            .cells
            .iter()
            .filter(|cell| cell.contender == self.of && self.condition.holds(cell))
            .map(|cell| self.case(cell, results))
            .collect();
        if self.over == Over::Mean && !cases.is_empty() {
            let mean = |of: fn(&Case) -> f64| cases.iter().map(of).sum::<f64>() / cases.len() as f64;
            let (value, threshold) = (mean(|case| case.value), mean(|case| case.threshold));
            cases = vec![Case { place: format!("mean of {} cells", cases.len()), value, threshold }];
        }
        // What is not a number is the worst of all.
        let key = |case: &Case| Some(self.margin(case)).filter(|margin| !margin.is_nan()).unwrap_or(f64::NEG_INFINITY);
        // Of equals the one with most in it: where nobody has anything, nothing is shown.
        let order = |a: &&Case, b: &&Case| key(a).total_cmp(&key(b)).then(b.value.total_cmp(&a.value));
        let decisive = match self.over {
            Over::Any => cases.iter().max_by(order),
            Over::Every | Over::Mean | Over::EverySeed => cases.iter().min_by(order),
        };
        decisive.map(|case| Verdict {
            must: self.say.clone(),
            measure: self.measure.clone(),
            at_most: !self.wants_more(),
            worst: case.place.clone(),
            value: case.value,
            threshold: case.threshold,
            holds: self.margin(case) >= 0.0,
        })
    }

    /// The contender it compares with.
    fn other(&self) -> Option<&String> {
        self.at_least_that_of.as_ref().or(self.at_most_that_of.as_ref())
    }

    fn case(&self, cell: &Cell, results: &Results) -> Case {
        let worst = self.over == Over::EverySeed;
        let value = value(cell, &self.measure, worst.then_some(self.wants_more())).unwrap_or(f64::NAN);
        let threshold = match self.other() {
            Some(other) => {
                let theirs = results
                    .cells
                    .iter()
                    .find(|cell2| cell2.contender == *other && cell2.params == cell.params)
                    .and_then(|cell2| value_mean(cell2, &self.measure))
                    .unwrap_or(f64::NAN);
                let tolerance = self.tolerance.unwrap_or_default();
                let tolerance = if self.wants_more() { -tolerance } else { tolerance };
                self.times.unwrap_or(1.0) * theirs + tolerance
            }
            None => self.at_least.or(self.at_most).unwrap_or(f64::NAN),
        };
        let unit = |name: &str| results.axes.iter().find(|axis| axis.0 == *name).map_or("", |axis| axis.1.as_str());
        let param = |(name, value): &(String, String)| format!("{name} {value} {}", unit(name)).trim_end().to_owned();
        let place = cell.params.iter().map(param).collect::<Vec<_>>().join(", ");
        Case { place, value, threshold }
    }
}

fn value_mean(cell: &Cell, measure: &str) -> Option<f64> {
    value(cell, measure, None)
}

/// A cell's value of a measure: the mean over its seeds, or the worst of them (the least if more is wanted).
fn value(cell: &Cell, measure: &str, worst: Option<bool>) -> Option<f64> {
    let stat = cell.stat(measure)?;
    Some(match worst {
        None => stat.mean,
        Some(true) => stat.min,
        Some(false) => stat.max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Stat;

    fn results() -> Results {
        let cell = |bandwidth: f64, contender: &str, on_time: f64| Cell {
            params: vec![("bandwidth".into(), bandwidth.to_string())],
            numbers: vec![Some(bandwidth)],
            contender: contender.into(),
            stats: [(
                "on_time".to_owned(),
                Stat { mean: on_time, min: on_time - 0.1, max: on_time, n: 3, ..Stat::default() },
            )]
            .into(),
            ..Cell::default()
        };
        Results {
            contenders: vec!["ads".into(), "quic".into()],
            cells: vec![cell(1.0, "ads", 0.5), cell(1.0, "quic", 0.1), cell(2.0, "ads", 0.9), cell(2.0, "quic", 0.6)],
            ..Results::default()
        }
    }

    fn judged(text: &str) -> Option<Verdict> {
        let must: Must = toml::from_str(&format!("say = 'x'\nof = 'ads'\nmeasure = 'on_time'\n{text}")).unwrap();
        must.check().unwrap();
        must.judge(&results())
    }

    fn judge(text: &str) -> Verdict {
        judged(text).unwrap()
    }

    #[test]
    fn every_cell_counts() {
        let verdict = judge("at-least = 0.5");
        assert!(verdict.holds && verdict.worst == "bandwidth 1" && verdict.value == 0.5);
        assert!(!judge("at-least = 0.6").holds);
        assert!(judge("at-least = 0.9\nwhere = 'bandwidth >= 2'").holds);
        assert!(judge("at-least = 0.9\nover = 'any'").holds);
        assert!(judge("at-least = 0.7\nover = 'mean'").holds && !judge("at-least = 0.71\nover = 'mean'").holds);
        assert!(!judge("at-least = 0.5\nover = 'every-seed'").holds);
        assert!(judge("at-most = 0.9").holds && !judge("at-most = 0.8").holds);
    }

    #[test]
    fn contenders_are_compared_cell_by_cell() {
        assert!(judge("at-least-that-of = 'quic'").holds);
        let verdict = judge("at-least-that-of = 'quic'\ntimes = 2");
        assert!(!verdict.holds && verdict.worst == "bandwidth 2");
        assert!(judge("at-least-that-of = 'quic'\ntimes = 5\nover = 'any'").holds);
        assert!(!judge("at-most-that-of = 'quic'\ntolerance = 0.3").holds);
    }

    #[test]
    fn what_was_not_run_is_not_judged() {
        assert_eq!(judged("at-least = 0\nwhere = 'bandwidth > 5'"), None);
        assert_eq!(judged("at-least-that-of = 'nobody'"), None);
    }

    #[test]
    fn a_measure_may_be_of_a_priority_or_a_source() {
        for known in ["p99_ms", "on_time:7", "bound:0", "on_time:audio", "p999_ms:all", "p99_ms:0", "p99_ms:audio"] {
            assert_eq!(check_measure(known), Ok(()), "{known}");
        }
        for unknown in ["p98_ms", "on_time:", "on_time:256", "p99_ms:", "mean_ms:0", "bound:audio"] {
            assert!(check_measure(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn nothing_measured_is_no_success() {
        let must: Must = toml::from_str("say = 'x'\nof = 'ads'\nmeasure = 'p99_ms'\nat-least = 0").unwrap();
        assert!(!must.judge(&results()).unwrap().holds);
        let must: Must = toml::from_str("say = 'x'\nof = 'ads'\nmeasure = 'p99_ms'\nat-most-that-of = 'quic'").unwrap();
        assert!(!must.judge(&results()).unwrap().holds);
    }
}
