//! What an experiment varies: axes, and the cells they span.

use serde::Deserialize;
use toml::{Table, Value};

use super::{ExperimentError, document};

/// An `[[axis]]` table: a parameter, the keys it sets, and its values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// As reports and `--set` call it.
    pub name: String,
    /// Its unit, for reports.
    #[serde(default)]
    pub unit: String,
    /// The key, or keys, that take the value.
    #[serde(default)]
    set: Keys,
    /// How the value is written there, `{}` standing for it: `"{} MB/s"`.
    template: Option<String>,
    /// The values: plain ones, or tables `{ label, set = { key = value, … } }` that set several keys at once.
    values: Vec<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a key such as \"path.0.rate\", or a list of them")]
enum Keys {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bundle {
    label: String,
    set: Table,
}

/// A value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// As reports call it.
    pub label: String,
    /// The same as a number, if it is one.
    pub number: Option<f64>,
    /// What it sets.
    sets: Vec<(String, Value)>,
}

impl Axis {
    /// The values in order.
    ///
    /// # Errors
    /// If a table among them is not as it should be.
    pub fn points(&self) -> Result<Vec<Point>, ExperimentError> {
        self.values.iter().map(|value| self.point(value)).collect()
    }

    fn point(&self, value: &Value) -> Result<Point, ExperimentError> {
        if let Value::Table(_) = value {
            let bundle: Bundle =
                value.clone().try_into().map_err(|error: toml::de::Error| self.error(error.message()))?;
            let number = bundle.label.parse().ok();
            return Ok(Point { label: bundle.label, number, sets: bundle.set.into_iter().collect() });
        }
        let keys: &[String] = match &self.set {
            Keys::None => return Err(self.error("it sets no key")),
            Keys::One(key) => std::slice::from_ref(key),
            Keys::Several(keys) => keys,
        };
        let filled = document::fill(self.template.as_deref(), value);
        let label = document::label(value);
        Ok(Point {
            number: label.parse().ok(),
            label,
            sets: keys.iter().map(|key| (key.clone(), filled.clone())).collect(),
        })
    }

    /// Leaves only the values of this comma-separated list. A value the axis does not have is added, if it is a plain one.
    pub(super) fn restrict(&mut self, list: &str) -> Result<(), ExperimentError> {
        let mut kept = Vec::new();
        for wanted in list.split(',').map(str::trim).filter(|wanted| !wanted.is_empty()) {
            let same = |label: &str| {
                label == wanted || matches!((label.parse::<f64>(), wanted.parse::<f64>()), (Ok(a), Ok(b)) if a == b)
            };
            let label = |value: &Value| match value {
                Value::Table(table) => table.get("label").map(document::label).unwrap_or_default(),
                value => document::label(value),
            };
            match self.values.iter().find(|value| same(&label(value))) {
                Some(value) => kept.push(value.clone()),
                None if self.set != Keys::None => kept.push(document::value(wanted)),
                None => {
                    let known: Vec<String> = self.values.iter().map(label).collect();
                    return Err(self.error(&format!("it has no value `{wanted}`; it has: {}", known.join(", "))));
                }
            }
        }
        if kept.is_empty() {
            return Err(self.error("no value is left"));
        }
        self.values = kept;
        Ok(())
    }

    /// The values as they stand in the text.
    pub(super) fn values(&self) -> Value {
        Value::Array(self.values.clone())
    }

    fn error(&self, what: &str) -> ExperimentError {
        ExperimentError::Invalid(format!("axis `{}`: {what}", self.name))
    }
}

impl Point {
    /// Puts the value where it belongs.
    pub(super) fn apply(&self, document: &mut Table) -> Result<(), ExperimentError> {
        self.sets.iter().try_for_each(|(key, value)| document::set(document, key, value.clone()))
    }
}

/// Refuses axes that are called alike, or have no values, or one twice.
pub(super) fn check(axes: &[Axis]) -> Result<(), ExperimentError> {
    for (n, axis) in axes.iter().enumerate() {
        if axes[..n].iter().any(|other| other.name == axis.name) {
            return Err(ExperimentError::Invalid(format!("two axes are called `{}`", axis.name)));
        }
        let points = axis.points()?;
        if points.is_empty() {
            return Err(axis.error("it has no values"));
        }
        let same = |a: &Point, b: &Point| a.label == b.label || a.number.is_some() && a.number == b.number;
        if let Some((_, twice)) = points.iter().enumerate().find(|(n, a)| points[..*n].iter().any(|b| same(a, b))) {
            return Err(axis.error(&format!("it has the value `{}` twice", twice.label)));
        }
        if let Some((key, _)) = points.iter().flat_map(|point| &point.sets).find(|(key, _)| super::is_of_all(key)) {
            return Err(axis.error(&format!("it sets `{key}`, which is the whole experiment's")));
        }
        if axis.template.as_ref().is_some_and(|template| !template.contains("{}")) {
            return Err(axis.error("its `template` has no `{}` where the value goes"));
        }
    }
    Ok(())
}

/// Every combination of the axes' points, the last axis changing fastest.
pub(super) fn combinations(axes: &[Axis]) -> Result<Vec<Vec<Point>>, ExperimentError> {
    axes.iter().try_fold(vec![Vec::new()], |combinations, axis| {
        let points = axis.points()?;
        let longer =
            |before: Vec<Point>| points.clone().into_iter().map(move |point| [before.clone(), vec![point]].concat());
        Ok(combinations.into_iter().flat_map(longer).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(text: &str) -> Axis {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn axes_span_cells() {
        let a = axis("name = 'rate'\nset = 'path.0.rate'\ntemplate = '{} MB/s'\nvalues = [1, 2]");
        let b = axis("name = 'kind'\nvalues = [{ label = 'x', set = { duration = '1s' } }, { label = 'y', set = {} }]");
        let cells = combinations(&[a, b]).unwrap();
        let labels: Vec<Vec<&str>> =
            cells.iter().map(|cell| cell.iter().map(|point| point.label.as_str()).collect()).collect();
        assert_eq!(labels, [["1", "x"], ["1", "y"], ["2", "x"], ["2", "y"]]);
        let mut document: Table = toml::from_str("[[path]]\nrate = 0").unwrap();
        cells[2].iter().try_for_each(|point| point.apply(&mut document)).unwrap();
        assert_eq!(document["path"][0]["rate"].as_str(), Some("2 MB/s"));
        assert_eq!(document["duration"].as_str(), Some("1s"));
        assert_eq!(combinations(&[]).unwrap(), [vec![]]);
    }

    #[test]
    fn an_axis_can_be_restricted() {
        let mut a = axis("name = 'rate'\nset = 'r'\nvalues = [1, 2, 3]");
        a.restrict("2,7").unwrap();
        assert_eq!(a.points().unwrap().iter().map(|point| point.number).collect::<Vec<_>>(), [Some(2.0), Some(7.0)]);
        let mut b = axis("name = 'kind'\nvalues = [{ label = 'x', set = {} }]");
        assert!(b.restrict("y").unwrap_err().to_string().contains("it has: x"));
    }
}
