//! Conditions on a cell's parameters: `bandwidth >= 3 and loss < 0.1`.

use serde::{Deserialize, Deserializer, de};

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
            let ((axis, value), operator) =
                found.ok_or_else(|| format!("`{part}` is no comparison, such as `bandwidth >= 3`"))?;
            Ok(Comparison { axis: axis.trim().to_owned(), operator, value: value.trim().to_owned() })
        });
        comparisons.collect::<Result<_, String>>().map(Self)
    }

    /// Whether it holds for a cell. A comparison with an axis the cell does not have does not hold.
    pub fn holds(&self, cell: &Cell) -> bool {
        self.0.iter().all(|comparison| {
            cell.params
                .iter()
                .zip(&cell.numbers)
                .find(|((name, _), _)| *name == comparison.axis)
                .is_some_and(|((_, label), number)| comparison.holds(label, *number))
        })
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
        assert!(Condition::parse("rate").is_err());
    }
}
