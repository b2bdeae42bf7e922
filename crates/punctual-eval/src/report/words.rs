//! What the measures are called, and how their values are written.

use std::borrow::Cow;

use super::plot::scale::{number, percent, percent_number};
use crate::results::{Cell, Stat};

/// A measure, in words.
#[derive(Debug, Clone)]
pub(super) struct Measure<'a> {
    pub(super) key: &'a str,
    pub(super) title: Cow<'a, str>,
    /// Empty for shares and plain numbers.
    pub(super) unit: &'static str,
    /// Whether it is a share of a whole, written in per cent.
    pub(super) share: bool,
    /// Whether more is better; `None` if neither is.
    pub(super) higher: Option<bool>,
    /// What it means; empty if unknown.
    pub(super) meaning: Cow<'static, str>,
}

const MORE: Option<bool> = Some(true);
const LESS: Option<bool> = Some(false);

/// Key, title, unit (`%` for a share), better, meaning.
const KNOWN: [(&str, &str, &str, Option<bool>, &str); 24] = [
    (
        "on_time",
        "on time",
        "%",
        MORE,
        "Share of the blocks that were with the receiving application, whole, by their deadline.",
    ),
    (
        "bound",
        "bound",
        "%",
        None,
        "The share on time that no sender can exceed on this link, even one that knows the future.",
    ),
    ("share_of_bound", "share of the bound", "%", MORE, "Blocks on time as a share of the clairvoyant bound."),
    (
        "p50_ms",
        "median latency",
        "ms",
        LESS,
        "Half of the blocks took no longer from hand-over to delivery; a block never delivered took infinitely long.",
    ),
    (
        "p90_ms",
        "p90 latency",
        "ms",
        LESS,
        "90 % of the blocks took no longer from hand-over to delivery; a block never delivered took infinitely long.",
    ),
    (
        "p99_ms",
        "p99 latency",
        "ms",
        LESS,
        "99 % of the blocks took no longer from hand-over to delivery; a block never delivered took infinitely long.",
    ),
    (
        "p999_ms",
        "p99.9 latency",
        "ms",
        LESS,
        "99.9 % of the blocks took no longer from hand-over to delivery; a block never delivered took infinitely long.",
    ),
    ("goodput_mbps", "goodput", "Mbit/s", MORE, "Bytes of blocks on time per second of the run."),
    ("bytes_on_time", "bytes on time", "%", MORE, "Bytes of blocks on time as a share of all blocks' bytes."),
    ("good_bytes_ratio", "good bytes", "%", MORE, "Bytes of blocks on time as a share of all block bytes delivered."),
    ("redundancy_ratio", "redundancy", "%", LESS, "Redundancy bytes sent as a share of data bytes."),
    ("resent_ratio", "resent", "%", LESS, "Data bytes sent again as a share of data bytes."),
    ("waste_ratio", "waste", "%", LESS, "Bytes sent that served no block on time, as a share of all bytes sent."),
    ("wait_ms", "wait", "ms", LESS, "Mean time a block waits before its first byte leaves."),
    ("score", "score", "", MORE, "The challenge's score: blocks on time weighted by priority."),
    ("score_share_of_bound", "score, share of the bound", "%", MORE, "The score as a share of the bound's."),
    ("jain", "Jain's index", "", MORE, "Fairness among the flows that share the bottleneck: 1 if all get the same."),
    ("queue_p95_kb", "p95 queue", "KB", LESS, "The bottleneck's queue is no longer 95 % of the time."),
    ("stalls", "stalls", "", LESS, "Times play-out had to stop."),
    ("rebuffers", "rebuffers", "", LESS, "Times the player's buffer ran empty."),
    (
        "recovered_ms",
        "recovery",
        "ms",
        LESS,
        "Time from the change of the network until the full rate is reached again.",
    ),
    (
        "worst_second_p0",
        "priority 0, worst second",
        "%",
        MORE,
        "The least share of priority 0's blocks on time, of any second of the run.",
    ),
    ("bulk_mbps", "bulk rate", "Mbit/s", MORE, "What the transfer without deadlines got."),
    (
        "throughput_mbps",
        "throughput",
        "Mbit/s",
        MORE,
        "All new block bytes delivered per second of the run, on time or not.",
    ),
];

/// A measure by key; one that is not known is called by its key, `on_time:K` is priority K's.
pub(super) fn measure(key: &str) -> Measure<'_> {
    if let Some(&(_, title, unit, higher, meaning)) = KNOWN.iter().find(|known| known.0 == key) {
        let share = unit == "%";
        let unit = if share { "" } else { unit };
        return Measure { key, title: title.into(), unit, share, higher, meaning: meaning.into() };
    }
    if let Some(priority) = key.strip_prefix("on_time:") {
        let title = format!("priority {priority} on time").into();
        let meaning =
            format!("Share of the blocks of priority {priority} (0 is the highest) that were on time.").into();
        return Measure { key, title, unit: "", share: true, higher: MORE, meaning };
    }
    Measure { key, title: key.into(), unit: "", share: false, higher: None, meaning: "".into() }
}

impl Measure<'_> {
    /// What a cell has for it.
    pub(super) fn of(&self, cell: &Cell) -> Option<Stat> {
        let by_priority = || {
            let priority: u8 = self.key.strip_prefix("on_time:")?.parse().ok()?;
            cell.priorities.iter().find(|of| of.priority == priority).map(|of| of.on_time)
        };
        known(cell.stats.get(self.key).copied().or_else(by_priority))
    }

    /// The bound on it, where it has one.
    pub(super) fn bound_of(&self, cell: &Cell) -> Option<Stat> {
        let all = Stat { mean: 1.0, min: 1.0, max: 1.0, n: 1, ..Stat::default() };
        match self.key {
            "on_time" => known(cell.stats.get("bound").copied()),
            // Only the first: the bound on lower priorities is on all up to them together.
            "on_time:0" => known(cell.priorities.iter().find(|of| of.priority == 0).map(|of| of.bound_up_to)),
            "share_of_bound" | "score_share_of_bound" => Some(all),
            _ => None,
        }
    }

    /// The title with the unit.
    pub(super) fn heading(&self) -> String {
        if self.unit.is_empty() { self.title.to_string() } else { format!("{}, {}", self.title, self.unit) }
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

    /// Half the width of an interval, as ±.
    pub(super) fn plus_minus(&self, half_width: f64) -> String {
        match self.share {
            true => format!("±{}", percent_number(half_width).replace("< ", "<")),
            false => format!("±{}", number(half_width)),
        }
    }

    /// All there is to say of a figure.
    pub(super) fn full(&self, stat: &Stat) -> String {
        let mut text = self.value(stat.mean);
        if stat.n > 1 {
            text.push_str(&format!(
                " {} (95 %), {} to {} over {} seeds",
                self.plus_minus(stat.half_width),
                self.bare(stat.min),
                self.value(stat.max),
                stat.n
            ));
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
        assert_eq!(measure("on_time:2").title, "priority 2 on time");
        assert_eq!(measure("p99_ms").heading(), "p99 latency, ms");
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
