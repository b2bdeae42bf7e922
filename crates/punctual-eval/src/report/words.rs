//! How the measures and their values are written.

use std::borrow::Cow;

use super::plot::scale::{number, percent};
use crate::{
    measure::{self, Better},
    results::{Cell, Stat},
};

/// A measure, in words.
#[derive(Debug, Clone)]
pub(super) struct Measure<'a> {
    pub(super) key: &'a str,
    pub(super) title: Cow<'a, str>,
    /// As the head of a column, without the unit.
    pub(super) short: Cow<'a, str>,
    /// Empty for shares and plain numbers.
    pub(super) unit: &'static str,
    /// Whether it is a part of a whole, written in per cent.
    pub(super) share: bool,
    /// Whether more is better; `None` if neither is.
    pub(super) higher: Option<bool>,
    /// What it means; empty if unknown.
    pub(super) meaning: Cow<'static, str>,
}

/// A measure by key; one that is not known is called by its key. After a colon comes the priority, or the source, that it is of.
pub(super) fn measure(key: &str) -> Measure<'_> {
    let (name, priority) = key.split_once(':').map_or((key, None), |(name, priority)| (name, Some(priority)));
    let Some(known) = measure::Measure::find(name) else {
        return Measure {
            key,
            title: key.into(),
            short: key.into(),
            unit: "",
            share: false,
            higher: None,
            meaning: "".into(),
        };
    };
    let (title, short, meaning) = match priority {
        None => (known.title.into(), known.short.into(), known.about.into()),
        Some("all") => (
            format!("{}, all seeds", known.title).into(),
            known.short.into(),
            format!("{}; over the blocks of all seeds together", known.about).into(),
        ),
        Some("settled") => (
            format!("{}, settled", known.title).into(),
            format!("{}, settled", known.short).into(),
            format!(
                "{}; over the blocks of all seeds together that were handed over once windows had grown",
                known.about
            )
            .into(),
        ),
        Some(source) if source.parse::<u8>().is_err() => (
            format!("{}, {source}", known.title).into(),
            format!("{}, {source}", known.short).into(),
            format!("{}; of the source {source} only", known.about).into(),
        ),
        Some(priority) => (
            format!("{}, priority {priority}", known.title).into(),
            format!("{}, p{priority}", known.short).into(),
            format!("{}; of priority {priority} only (0 is the highest)", known.about).into(),
        ),
    };
    let higher = match known.better {
        Better::Up => Some(true),
        Better::Down => Some(false),
        Better::Neither => None,
    };
    Measure { key, title, short, unit: known.unit_shown(), share: known.in_percent(), higher, meaning }
}

impl Measure<'_> {
    /// What a cell has for it.
    pub(super) fn of(&self, cell: &Cell) -> Option<Stat> {
        known(cell.stat(self.key))
    }

    /// The bound on it, where it has one.
    pub(super) fn bound_of(&self, cell: &Cell) -> Option<Stat> {
        let all = Stat { mean: 1.0, min: 1.0, max: 1.0, n: 1, ..Stat::default() };
        match self.key {
            "on_time" => known(cell.stat("bound")),
            // Only the first: the bound on lower priorities is on all up to them together.
            "on_time:0" => known(cell.stat("bound:0")),
            "share_of_bound" | "score_share_of_bound" | "bytes_share_of_bound" => Some(all),
            _ => None,
        }
    }

    /// The title with the unit.
    pub(super) fn heading(&self) -> String {
        if self.unit.is_empty() { self.title.to_string() } else { format!("{}, {}", self.title, self.unit) }
    }

    /// The same for a column.
    pub(super) fn column(&self) -> String {
        format!("{} {}", self.short, self.unit).trim_end().to_owned()
    }

    /// A value with its unit.
    pub(super) fn value(&self, value: f64) -> String {
        match (self.share, self.unit) {
            (true, _) => percent(value),
            (false, "") => number(value),
            (false, unit) => format!("{} {unit}", number(value)),
        }
    }

    /// A value for a column whose head has the unit.
    pub(super) fn bare(&self, value: f64) -> String {
        if self.share { percent(value) } else { number(value) }
    }

    /// An interval, as ±, no finer than its mean is written; empty if there is none, or it vanishes in rounding.
    pub(super) fn plus_minus(&self, stat: &Stat) -> String {
        let (half, mean) =
            if self.share { (stat.half_width * 100.0, stat.mean * 100.0) } else { (stat.half_width, stat.mean) };
        if !(half.is_finite() && mean.is_finite()) {
            return String::new();
        }
        // Shares have one decimal, other numbers three digits.
        let digits = if self.share || mean == 0.0 { 1.0 } else { 2.0 - mean.abs().log10().floor() };
        let decimals = digits.clamp(0.0, 9.0) as usize;
        let text = format!("{half:.decimals$}");
        if text.parse() == Ok(0.0) { String::new() } else { format!("±{text}") }
    }

    /// All there is to say of a figure.
    pub(super) fn full(&self, stat: &Stat) -> String {
        let mut text = self.value(stat.mean);
        if stat.n > 1 {
            let interval = match self.plus_minus(stat) {
                none if none.is_empty() => none,
                some => format!(" {some} (95 %)"),
            };
            let (least, most) = (self.bare(stat.min), self.value(stat.max));
            text.push_str(&format!("{interval}, {least} to {most} over {} seeds", stat.n));
        }
        text
    }
}

/// A figure, if a run had one.
pub(super) fn known(stat: Option<Stat>) -> Option<Stat> {
    stat.filter(|stat| stat.n > 0 && !stat.mean.is_nan())
}

/// A value of an axis with its unit, unless it carries one.
pub(super) fn with_unit(value: &str, unit: &str) -> String {
    if unit.is_empty() || value.trim().parse::<f64>().is_err() {
        value.to_owned()
    } else {
        format!("{} {unit}", value.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_measures_keep_their_key() {
        assert_eq!(measure("odd_thing").title, "odd_thing");
        assert_eq!(measure("on_time:2").title, "On time, priority 2");
        assert_eq!(measure("on_time:audio").title, "On time, audio");
        assert_eq!(measure("p99_ms").heading(), "99th percentile latency, ms");
        assert_eq!([measure("p99_ms"), measure("waste_ratio")].map(|of| of.column()), ["p99 ms", "waste"]);
    }

    #[test]
    fn figures_are_written_in_full() {
        let stat = Stat { mean: 0.979, half_width: 0.003, min: 0.97, max: 0.98, n: 10 };
        assert_eq!(measure("on_time").full(&stat), "97.9\u{a0}% ±0.3 (95 %), 97.0\u{a0}% to 98.0\u{a0}% over 10 seeds");
        let once = Stat { mean: f64::INFINITY, n: 1, ..Stat::default() };
        assert_eq!(measure("p99_ms").full(&once), "∞ ms");
    }

    #[test]
    fn axis_values_get_their_unit_once() {
        assert_eq!(
            [with_unit("3", "MB/s"), with_unit("3 MB/s", "MB/s"), with_unit("lte", "")],
            ["3 MB/s", "3 MB/s", "lte"]
        );
    }
}
