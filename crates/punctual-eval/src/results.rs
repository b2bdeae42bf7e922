//! What an experiment found: one [`Cell`] for each set of parameters and contender, over all seeds.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::record::{LostBytes, SentBytes};

/// JSON has neither infinity nor NaN, and serde_json writes `null` for both. A number that is `null` comes back infinite.
fn endless<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

/// In a list, what is `null` was missing.
fn with_gaps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    Vec::deserialize(deserializer).map(fill_gaps)
}

/// The same for lists of lists.
fn all_with_gaps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<f64>>, D::Error> {
    let lists: Vec<Vec<Option<f64>>> = Vec::deserialize(deserializer)?;
    Ok(lists.into_iter().map(fill_gaps).collect())
}

fn fill_gaps(values: Vec<Option<f64>>) -> Vec<f64> {
    values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect()
}

/// A figure over the seeds of a cell. In JSON, what is infinite is `null`, and so is everything of a figure that no run has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Stat {
    /// The mean; infinite if a run's value was.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean (Student's t); 0 with a single seed.
    pub half_width: f64,
    /// The least of the runs' values.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Runs that had a value.
    pub n: u32,
}

/// A [`Stat`] in JSON.
#[derive(Serialize, Deserialize)]
struct Written {
    mean: Option<f64>,
    half_width: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    n: u32,
}

impl From<Written> for Stat {
    fn from(Written { mean, half_width, min, max, n }: Written) -> Self {
        let [mean, half_width, min, max] = [mean, half_width, min, max].map(|of| of.unwrap_or(f64::INFINITY));
        if n == 0 { Self::default() } else { Self { mean, half_width, min, max, n } }
    }
}

impl From<Stat> for Written {
    fn from(Stat { mean, half_width, min, max, n }: Stat) -> Self {
        let [mean, half_width, min, max] = [mean, half_width, min, max].map(|of| Some(of).filter(|_| n > 0));
        Self { mean, half_width, min, max, n }
    }
}

/// On time, by priority.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PriorityCell {
    /// 0 is the highest.
    pub priority: u8,
    /// Share of the priority's blocks on time.
    pub on_time: Stat,
    /// The bound on the share on time of all blocks of this and higher priorities together.
    pub bound_up_to: Stat,
    /// Blocks on time of this and higher priorities, as a share of the bound.
    pub share_of_bound_up_to: Stat,
}

/// Course of a run, averaged over the seeds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// For each priority (as in [`Cell::priorities`]), by the second of hand-over: the mean share on time; NaN where none were
    /// handed over.
    #[serde(deserialize_with = "all_with_gaps")]
    pub on_time: Vec<Vec<f64>>,
    /// The least of the seeds' shares.
    #[serde(deserialize_with = "all_with_gaps")]
    pub on_time_min: Vec<Vec<f64>>,
    /// New block bytes that arrived, Mbit/s, in bins of [`bin_ms`](Self::bin_ms).
    #[serde(deserialize_with = "with_gaps")]
    pub arrivals_mbps: Vec<f64>,
    /// Bytes in the first path's queue at the end of each bin.
    #[serde(deserialize_with = "with_gaps")]
    pub queue_bytes: Vec<f64>,
    /// Width of a bin, milliseconds.
    pub bin_ms: f64,
}

/// What one contender did with one set of parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The axes and this cell's place on each, as a person reads it, in the experiment's order.
    pub params: Vec<(String, String)>,
    /// The same as numbers, where they are.
    pub numbers: Vec<Option<f64>>,
    /// Who.
    pub contender: String,
    /// Over how many seeds.
    pub seeds: u32,
    /// Every measure of [`measure::MEASURES`](crate::measure::MEASURES), by key.
    pub stats: BTreeMap<String, Stat>,
    /// Runs whose session was over before they were, or never came about.
    #[serde(default)]
    pub ended: Vec<EndedRun>,
    /// By priority, highest first.
    pub priorities: Vec<PriorityCell>,
    /// Names of the sources.
    pub sources: Vec<String>,
    /// Share of each source's blocks on time.
    pub on_time_by_source: Vec<Stat>,
    /// Share of block bytes that left on each path.
    pub path_shares: Vec<f64>,
    /// Bytes that left for blocks on each path, of all seeds together.
    #[serde(default)]
    pub path_bytes: Vec<SentBytes>,
    /// What became of the bytes our session lost, of all seeds together.
    #[serde(default)]
    pub lost: LostBytes,
    /// Bytes sent, each counted once, of blocks that were of no use in the end, of all seeds together.
    #[serde(default)]
    pub wasted_bytes: u64,
    /// Latencies of all seeds' blocks, milliseconds, with the share of blocks that took longer; never delivered is infinitely
    /// long. Thinned to at most a few hundred points, all of the tail kept.
    pub ccdf: Vec<(f64, f64)>,
    /// Percentiles of the latencies of all seeds' blocks together, by name: `p99_ms:all`, and of a priority (`p99_ms:0`) or a source (`p99_ms:audio`).
    #[serde(default)]
    pub pooled: BTreeMap<String, Stat>,
    /// The course of the run.
    pub timeline: Timeline,
}

impl Cell {
    /// A measure, or a percentile [over all seeds](Self::pooled), or with `:K` after it priority K's (`on_time:K`; `bound:K` and `share_of_bound:K` are of all blocks up to that
    /// priority), or that of a source (`on_time:NAME`); `None` if no run had a value.
    pub fn stat(&self, measure: &str) -> Option<Stat> {
        let stat = match measure.split_once(':') {
            Some(_) if self.pooled.contains_key(measure) => self.pooled[measure],
            Some(("on_time", source)) if source.parse::<u8>().is_err() => {
                *self.sources.iter().zip(&self.on_time_by_source).find(|(name, _)| *name == source)?.1
            }
            Some((measure, priority)) => {
                let priority: u8 = priority.parse().ok()?;
                let of = self.priorities.iter().find(|of| of.priority == priority)?;
                match measure {
                    "on_time" => of.on_time,
                    "bound" => of.bound_up_to,
                    "share_of_bound" => of.share_of_bound_up_to,
                    _ => return None,
                }
            }
            None => *self.stats.get(measure)?,
        };
        (stat.n > 0).then_some(stat)
    }

    /// A measure's mean; `None` if no run had a value.
    pub fn mean(&self, measure: &str) -> Option<f64> {
        self.stat(measure).map(|stat| stat.mean)
    }
}

/// A run whose session was over before it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRun {
    /// The run's seed.
    pub seed: u32,
    /// When, counted from the run's beginning, which end knew first, and why: `31.204 s, sender: the peer fell silent`.
    pub ended: String,
}

/// A run that came to no end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRun {
    /// Parameters and contender.
    pub place: String,
    /// The run's seed.
    pub seed: u32,
    /// Why.
    pub why: String,
}

/// A threshold of an experiment, and what was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What must hold, in words.
    pub must: String,
    /// The measure it is about; empty if unknown.
    #[serde(default)]
    pub measure: String,
    /// Whether the threshold is the most that will do, not the least.
    #[serde(default)]
    pub at_most: bool,
    /// Where the decisive case is: the one closest to failing, or that fails most.
    pub worst: String,
    /// The measured value; NaN if there was nothing to measure, which fails.
    #[serde(deserialize_with = "endless")]
    pub value: f64,
    /// What it had to reach (or stay below).
    #[serde(deserialize_with = "endless")]
    pub threshold: f64,
    /// Whether it holds.
    pub holds: bool,
}

/// What an experiment found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The experiment's name.
    pub name: String,
    /// Its title, a line.
    pub title: String,
    /// What it is and what it must show, a paragraph.
    pub about: String,
    /// Where it comes from: paper and figure.
    pub source: String,
    /// The names of the axes with their units, in order.
    pub axes: Vec<(String, String)>,
    /// The contenders in order, reference ones (the bound is not among them) last.
    pub contenders: Vec<String>,
    /// In order of parameters, then contenders.
    pub cells: Vec<Cell>,
    /// Runs that came to no end; their blocks count as not on time.
    #[serde(default)]
    pub failures: Vec<FailedRun>,
    /// The experiment's thresholds.
    pub verdicts: Vec<Verdict>,
    /// Thresholds, in words, that say nothing of what was run: overrides left out their contender or their cells.
    #[serde(default)]
    pub unjudged: Vec<String>,
    /// The command that makes it again.
    pub command: String,
    /// The experiment's text (TOML), overrides included.
    pub setup: String,
    /// Figures to draw.
    pub figures: Vec<Figure>,
}

impl Results {
    /// Every run whose session was over before it was, in words, in the order of the cells.
    pub fn ended(&self) -> Vec<String> {
        let of_cell = |cell: &Cell| {
            let params = cell.params.iter().map(|(_, value)| value.as_str());
            let place = params.chain([cell.contender.as_str()]).collect::<Vec<_>>().join(", ");
            let one = move |run: &EndedRun| format!("{place}, seed {}: {}", run.seed, run.ended);
            cell.ended.iter().map(one).collect::<Vec<_>>()
        };
        self.cells.iter().flat_map(of_cell).collect()
    }
}

/// A figure of an experiment's report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// What it shows, in words.
    pub title: String,
    /// Its kind.
    pub kind: FigureKind,
    /// The measure drawn; `on_time:0` is priority 0's share on time.
    #[serde(default)]
    pub measure: String,
    /// The axis along x, for `lines` and `bars`; the first one if empty.
    #[serde(default)]
    pub x: String,
    /// Which of the other axes' values: name and value; small multiples over those not named.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
    /// Whether y is logarithmic.
    #[serde(default)]
    pub log_y: bool,
    /// Whether x is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// Only these contenders, if any are named.
    #[serde(default)]
    pub contenders: Vec<String>,
}

impl Figure {
    /// Whether what it says of an axis in [`at`](Self::at) is this value of it: the same text, or the same number, with the axis's unit or without.
    pub(crate) fn is_at(want: &str, label: &str, number: Option<f64>, unit: &str) -> bool {
        let read = |text: &str| text.trim().strip_suffix(unit).unwrap_or(text).trim().parse::<f64>().ok();
        let same = |have: Option<f64>| have.is_some() && have == read(want);
        label.trim() == want.trim() || same(read(label)) || same(number)
    }
}

/// What a figure looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A measure over an axis, a line a contender, with intervals, and the bound where the measure has one.
    #[default]
    Lines,
    /// The same as bars, for axes that are no numbers.
    Bars,
    /// Latency CCDFs, one line a contender.
    Ccdf,
    /// Share on time over the run, by the second of hand-over.
    Timeline,
    /// Arrival rate and queue over the run.
    Rate,
    /// A table of the measure: axis by axis.
    Table,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_colon_is_a_priority_or_a_source() {
        let stat = |mean| Stat { mean, n: 1, ..Stat::default() };
        let priority = PriorityCell { priority: 3, on_time: stat(0.5), ..PriorityCell::default() };
        let cell = Cell {
            priorities: vec![priority],
            sources: vec!["audio".to_owned(), "idle".to_owned()],
            on_time_by_source: vec![stat(0.25), Stat::default()],
            ..Cell::default()
        };
        let means =
            ["on_time:3", "on_time:audio", "on_time:idle", "on_time:film", "on_time:0"].map(|key| cell.mean(key));
        assert_eq!(means, [Some(0.5), Some(0.25), None, None, None]);
    }

    #[test]
    fn who_died_is_told_and_older_results_are_read() {
        let run = EndedRun { seed: 2, ended: "31.2 s, sender: the peer fell silent".into() };
        let params = vec![("loss".to_owned(), "5".to_owned())];
        let cell = Cell { params, contender: "ads".into(), ended: vec![run], ..Cell::default() };
        let results = Results { cells: vec![cell, Cell::default()], ..Results::default() };
        assert_eq!(results.ended(), ["5, ads, seed 2: 31.2 s, sender: the peer fell silent"]);
        let mut json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["cells"][1]["ended"], serde_json::json!([]));
        json["cells"].as_array_mut().unwrap().iter_mut().for_each(|cell| {
            cell.as_object_mut().unwrap().remove("ended").unwrap();
        });
        let older: Results = serde_json::from_value(json).unwrap();
        assert!(older.ended().is_empty());
    }

    #[test]
    fn what_is_endless_or_missing_survives_json() {
        let stat = Stat { mean: f64::INFINITY, half_width: f64::INFINITY, min: 1.0, max: f64::INFINITY, n: 2 };
        let timeline = Timeline { on_time: vec![vec![1.0, f64::NAN]], arrivals_mbps: vec![2.0], ..Timeline::default() };
        let stats = [("p99_ms".to_owned(), stat), ("mean_ms".to_owned(), Stat::default())].into();
        let cell = Cell { stats, timeline, ..Cell::default() };
        let results = Results { cells: vec![cell], ..Results::default() };
        let back: Results = serde_json::from_str(&serde_json::to_string(&results).unwrap()).unwrap();
        assert_eq!((back.cells[0].stats["p99_ms"], back.cells[0].stats["mean_ms"]), (stat, Stat::default()));
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["cells"][0]["stats"]["mean_ms"]["mean"], serde_json::Value::Null, "there is none");
        assert!(back.cells[0].timeline.on_time[0][1].is_nan());
    }
}
