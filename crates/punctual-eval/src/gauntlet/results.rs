//! What the gauntlet found: `results.json`.

use serde::{Deserialize, Serialize};

use super::entrants::Role;
use crate::results::Verdict;

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The [version](super::VERSION) of the cells.
    pub gauntlet: u32,
    /// Number of the first cell.
    pub first: u64,
    /// Runs of each contender in each cell.
    pub seeds: u32,
    /// What was changed in every cell, each `KEY=VALUE`.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Who took part, in order.
    pub contenders: Vec<Participant>,
    /// One after the other.
    pub cells: Vec<CellResults>,
    /// Of each contender that is judged, over all cells.
    pub summaries: Vec<Summary>,
    /// What must hold of them.
    pub verdicts: Vec<Verdict>,
    /// The command that makes it again.
    pub command: String,
}

/// Somebody who took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// The name; without a path, if it was on each alone.
    pub name: String,
    /// What it is to the judge.
    pub role: Role,
    /// Whether the same seed gives the same run.
    pub repeats: bool,
    /// Whether its runs are of an earlier time, and perhaps of another program.
    pub earlier: bool,
}

/// A cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CellResults {
    /// Its number.
    pub number: u64,
    /// What it is, in a line.
    pub description: String,
    /// Its paths.
    pub paths: u32,
    /// Whether it is from the wide range.
    pub wide: bool,
    /// Why it is not easy; nothing if it is.
    pub hard: Vec<String>,
    /// What nobody can exceed, of each seed.
    pub limits: Vec<LimitRow>,
    /// All runs.
    pub runs: Vec<RunRow>,
    /// Runs with further seeds, of those who seemed behind and of who seemed better.
    #[serde(default)]
    pub confirming: Vec<RunRow>,
    /// Those who are judged.
    pub scores: Vec<Score>,
}

impl CellResults {
    /// Who had sessions in it that were over before the run was: a line for each run.
    pub fn ended(&self) -> Vec<String> {
        let runs = self.runs.iter().chain(&self.confirming);
        let told = runs.filter_map(|run| Some((run, run.ended.as_ref()?)));
        told.map(|(run, why)| format!("cell {}, {}, seed {}: {why}", self.number, run.contender, run.seed)).collect()
    }

    /// Whether one of the first seeds' runs of a contender is among them.
    pub fn has_ended(&self, contender: &str) -> bool {
        self.runs.iter().any(|run| run.contender == contender && run.ended.is_some())
    }

    /// Whether it is easy.
    pub fn is_easy(&self) -> bool {
        self.hard.is_empty()
    }
}

/// What nobody can exceed, as shares of a cell's blocks under a seed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitRow {
    /// Which seed.
    pub seed: u32,
    /// All blocks.
    pub blocks: u64,
    /// The clairvoyant bound.
    pub bound: f64,
    /// The same, on average over the losses.
    pub average: f64,
    /// The blocks of the first second.
    pub start_blocks: u64,
    /// The bound on them.
    pub start_bound: Option<f64>,
    /// The same, on average over the losses.
    pub start_average: Option<f64>,
    /// Blocks of each priority and those above it that can be on time, on average over the losses.
    pub up_to_priority: Vec<(u8, f64)>,
}

/// A run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Who, and on which path if alone.
    pub contender: String,
    /// Which seed.
    pub seed: u32,
    /// Blocks on time, of all.
    pub on_time: f64,
    /// The same of the first second's.
    pub start: Option<f64>,
    /// Each priority, its blocks, and those of them on time.
    pub by_priority: Vec<(u8, u64, u64)>,
    /// Bytes offered to all paths, of those of blocks that arrived, minus 1.
    pub overhead: Option<f64>,
    /// Why it came to no end; nothing counts as on time then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// When, which end, and why, if its session was over before it was, or never came about.
    #[serde(default)]
    pub ended: Option<String>,
}

/// How one that is judged did in a cell; means over the seeds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Who.
    pub contender: String,
    /// Of all blocks.
    pub all: Standing,
    /// Of those of the first second; nothing if there are none.
    pub start: Option<Standing>,
    /// By priority, the highest first.
    pub priorities: Vec<PriorityScore>,
    /// Bytes offered to all paths, of those of blocks that arrived, minus 1.
    pub overhead: Option<f64>,
}

/// Shares on time of a priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PriorityScore {
    /// 0 is the highest.
    pub priority: u8,
    /// Of its blocks.
    pub on_time: f64,
    /// Of this and higher priorities, what was reached of the average bound on them.
    pub share_up_to: f64,
}

/// Shares on time, and what they are compared with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Blocks on time.
    pub on_time: f64,
    /// The clairvoyant bound on them.
    pub bound: f64,
    /// The same, on average over the losses.
    pub average: f64,
    /// What was reached of the average bound.
    pub share: f64,
    /// How much better the best baseline was.
    pub baseline: Option<Regret>,
    /// How much better it was itself on the best path alone.
    pub alone: Option<Regret>,
}

/// How much better another was.
///
/// Who is best in a cell is who had the best luck, too. So where one seems to be behind, and not beyond doubt, both are run again with
/// other seeds, and those alone tell by how much.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Regret {
    /// Who.
    pub than: String,
    /// In points: hundredths of all blocks, the mean over seeds. Negative if it was worse.
    pub points: f64,
    /// Half the width of the 95 % interval (Student's t) of the mean, seed paired with seed; nothing with a single one.
    pub half_width: Option<f64>,
    /// Whether it is of the further seeds.
    pub confirmed: bool,
}

/// How one that is judged did over all cells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Who.
    pub contender: String,
    /// Of all blocks.
    pub all: Overall,
    /// Of the first second's.
    pub start: Overall,
    /// Runs that came to no end.
    pub failed: u32,
}

/// Figures over cells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// What was reached of the bound.
    pub shares: Quantiles,
    /// The same in easy cells.
    pub easy: Quantiles,
    /// Cells behind the best baseline.
    pub baseline: Behind,
    /// Cells behind the best path alone.
    pub alone: Behind,
}

/// Of some cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many.
    pub cells: u32,
    /// The mean.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// What 99 % reach.
    pub p1: f64,
    /// What 95 % reach.
    pub p5: f64,
    /// What three quarters reach.
    pub p25: f64,
    /// What half reach.
    pub p50: f64,
}

/// Cells in which another was better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// Cells in which there is somebody to compare with.
    pub cells: u32,
    /// By more than 2 points.
    pub by_2: u32,
    /// By more than 10 points.
    pub by_10: u32,
    /// By more than 2 points, but not beyond the noise of seeds.
    pub in_doubt: u32,
    /// The most points beyond the noise of seeds.
    pub worst: f64,
    /// Where that is.
    pub worst_cell: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_died_is_told_and_older_rows_are_read() {
        let lived = RunRow { contender: "quic".into(), seed: 1, ..RunRow::default() };
        let ended = Some("31.000 s, sender: the peer fell silent".to_owned());
        let died = RunRow { contender: "ads".into(), ended, ..lived.clone() };
        let cell = CellResults { number: 7, runs: vec![lived.clone(), died], ..CellResults::default() };
        assert_eq!(cell.ended(), ["cell 7, ads, seed 1: 31.000 s, sender: the peer fell silent"]);
        assert!(cell.has_ended("ads") && !cell.has_ended("quic"));

        let mut json = serde_json::to_value(&lived).unwrap();
        assert!(json["ended"].is_null(), "it says so");
        json.as_object_mut().unwrap().remove("ended").unwrap();
        assert_eq!(serde_json::from_value::<RunRow>(json).unwrap(), lived);
    }
}
