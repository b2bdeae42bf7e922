//! Conditions on a cell's parameters: `bandwidth >= 3 and loss < 0.1`.

use serde::{Deserialize, Deserializer, de};

use super::axis::{Axis, Point};
use crate::results::Cell;

/// Comparisons that must all hold. The default holds everywhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Condition(Vec<Comparison>);

#[derive(Debug, Clone, PartialEq)]
struct Comparison {
    axis: String,
    operator: Operator,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Longer ones first, for `<=` begins with `<`.
const OPERATORS: &[(&str, Operator)] = &[
    ("<=", Operator::LessEqual),
    (">=", Operator::GreaterEqual),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("=", Operator::Equal),
];

impl Condition {
    fn parse(text: &str) -> Result<Self, String> {
        let comparisons = text.split(" and ").map(|part| {
            let found = OPERATORS.iter().find_map(|&(sign, operator)| Some((part.split_once(sign)?, operator)));
            let no_comparison = || format!("`{}` is no comparison, such as `bandwidth >= 3`", part.trim());
            let ((axis, value), operator) = found.ok_or_else(no_comparison)?;
            let (axis, value) = (axis.trim().to_owned(), value.trim().to_owned());
            if axis.is_empty() || value.is_empty() || value.starts_with(['=', '<', '>', '!']) {
                return Err(no_comparison());
            }
            let ordered = !matches!(operator, Operator::Equal | Operator::NotEqual);
            if ordered && value.parse::<f64>().is_err() {
                return Err(format!("`{value}` is no number: only `=` and `!=` compare text"));
            }
            Ok(Comparison { axis, operator, value })
        });
        comparisons.collect::<Result<_, String>>().map(Self)
    }

    /// Whether it holds for a cell. A comparison with an axis the cell does not have does not hold.
    pub fn holds(&self, cell: &Cell) -> bool {
        self.holds_where(|axis| {
            let index = cell.params.iter().position(|(name, _)| name == axis)?;
            Some((cell.params[index].1.as_str(), *cell.numbers.get(index)?))
        })
    }

    /// The same for the place of one, a point on each of the axes.
    pub(super) fn holds_at(&self, axes: &[Axis], points: &[Point]) -> bool {
        self.holds_where(|name| {
            let point = points.get(axes.iter().position(|axis| axis.name == name)?)?;
            Some((point.label.as_str(), point.number))
        })
    }

    /// The first axis it speaks of that is none of these.
    pub(super) fn unknown_axis(&self, axes: &[Axis]) -> Option<&str> {
        let names = self.0.iter().map(|comparison| comparison.axis.as_str());
        names.into_iter().find(|name| axes.iter().all(|axis| axis.name != *name))
    }

    fn holds_where<'a>(&self, value: impl Fn(&str) -> Option<(&'a str, Option<f64>)>) -> bool {
        let holds = |one: &Comparison| value(&one.axis).is_some_and(|(label, number)| one.holds(label, number));
        self.0.iter().all(holds)
    }
}

impl Comparison {
    fn holds(&self, label: &str, number: Option<f64>) -> bool {
        match (number, self.value.parse::<f64>().ok()) {
            (Some(a), Some(b)) => match self.operator {
                Operator::Equal => a == b,
                Operator::NotEqual => a != b,
                Operator::Less => a < b,
                Operator::LessEqual => a <= b,
                Operator::Greater => a > b,
                Operator::GreaterEqual => a >= b,
            },
            _ => match self.operator {
                Operator::Equal => label == self.value,
                Operator::NotEqual => label != self.value,
                _ => false,
            },
        }
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> bool {
        let cell = Cell {
            params: vec![("rate".into(), "3".into()), ("link".into(), "lte".into())],
            numbers: vec![Some(3.0), None],
            ..Cell::default()
        };
        Condition::parse(text).unwrap().holds(&cell)
    }

    #[test]
    fn comparisons() {
        for text in
            ["rate = 3", "rate>=3", "rate <= 3.0", "rate < 4 and rate > 2", "link = lte", "rate != 2", "link != wifi"]
        {
            assert!(holds(text), "{text}");
        }
        for text in
            ["rate = 2", "rate > 3", "rate < 3", "link = wifi", "link > 2", "rate = 3 and link = x", "other = 3"]
        {
            assert!(!holds(text), "{text}");
        }
        for (text, word) in [
            ("rate", "`rate` is no comparison"),
            ("rate == 3", "`rate == 3` is no comparison"),
            ("rate >> 3", "no comparison"),
            ("rate = 3 and ", "no comparison"),
            ("rate <", "no comparison"),
            ("= 3", "no comparison"),
            ("link > lte", "`lte` is no number"),
        ] {
            let error = Condition::parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
