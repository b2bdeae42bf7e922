//! The judge: from runs to shares of the bound and regrets, and from those to what holds.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    entrants::{Role, on_all_paths},
    results::{
        Behind, CellResults, LimitRow, Overall, PriorityScore, Quantiles, Regret, RunRow, Score, Standing, Summary,
    },
};
use crate::{measure::stat, results::Verdict};

/// Points by which one may be behind.
pub(super) const SLIGHTLY: f64 = 2.0;
/// Points by which one must not.
const BADLY: f64 = 10.0;
/// Cells in which one may be slightly behind, of all.
const MOST_BEHIND: f64 = 0.01;
/// What is to be reached of the bound in easy cells, in all but a twentieth of them.
const EASY_SHARE: f64 = 0.97;
/// The same on average over all cells.
const MEAN_SHARE: f64 = 0.85;

/// Those of a cell who are judged.
pub(super) fn scores(cell: &CellResults) -> Vec<Score> {
    let mut names: Vec<&str> = Vec::new();
    for run in cell.runs.iter().filter(|run| Role::of(&run.contender) == Role::Ours) {
        if !names.contains(&run.contender.as_str()) {
            names.push(&run.contender);
        }
    }
    names.into_iter().map(|name| score(cell, name)).collect()
}

fn score(cell: &CellResults, name: &str) -> Score {
    let own: Vec<&RunRow> = cell.runs.iter().filter(|run| run.contender == name).collect();
    let overhead: Vec<f64> = own.iter().filter_map(|run| run.overhead).collect();
    let all = standing(cell, name, |run| Some(run.on_time), |limit| Some((limit.bound, limit.average)));
    let start = |limit: &LimitRow| Some((limit.start_bound?, limit.start_average?));
    Score {
        contender: name.to_owned(),
        all: all.unwrap_or_default(),
        start: standing(cell, name, |run| run.start, start),
        priorities: priorities(cell, &own),
        overhead: (!overhead.is_empty()).then(|| stat(&overhead).mean),
    }
}

/// Shares by priority, all seeds' blocks together.
fn priorities(cell: &CellResults, own: &[&RunRow]) -> Vec<PriorityScore> {
    let mut tallies: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    for (priority, blocks, on_time) in own.iter().flat_map(|run| &run.by_priority) {
        let (all, such) = tallies.entry(*priority).or_default();
        *all += blocks;
        *such += on_time;
    }
    let mut up_to = 0;
    let score = |(priority, (blocks, on_time)): (u8, (u64, u64))| {
        up_to += on_time;
        let limits = cell.limits.iter().flat_map(|limit| &limit.up_to_priority).filter(|(of, _)| *of == priority);
        let limit: f64 = limits.map(|(_, blocks)| blocks).sum();
        PriorityScore {
            priority,
            on_time: on_time as f64 / blocks.max(1) as f64,
            share_up_to: if limit > 0.0 { up_to as f64 / limit } else { 1.0 },
        }
    };
    tallies.into_iter().map(score).collect()
}

/// How one stands in a cell by the share of blocks that `of` takes from a run, under the bounds that `limit` takes.
fn standing(
    cell: &CellResults,
    name: &str,
    of: impl Fn(&RunRow) -> Option<f64>,
    limit: impl Fn(&LimitRow) -> Option<(f64, f64)>,
) -> Option<Standing> {
    let mut shares: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for run in &cell.runs {
        shares.entry(&run.contender).or_default().extend(of(run));
    }
    let own = shares.get(name).filter(|own| !own.is_empty())?;
    let limits: Vec<(f64, f64)> = cell.limits.iter().filter_map(limit).collect();
    let bound = stat(&limits.iter().map(|limit| limit.0).collect::<Vec<_>>()).mean;
    let average = stat(&limits.iter().map(|limit| limit.1).collect::<Vec<_>>()).mean;
    let on_time = stat(own).mean;
    let best = |among: &dyn Fn(&str) -> bool| {
        let others = shares.iter().filter(|(other, values)| among(other) && values.len() == own.len());
        let best = others.max_by(|a, b| stat(a.1).mean.total_cmp(&stat(b.1).mean))?;
        Some(confirmed(cell, name, best.0, &of).unwrap_or_else(|| regret(best.0, best.1, own)))
    };
    Some(Standing {
        on_time,
        bound,
        average,
        share: if average > 0.0 { on_time / average } else { 1.0 },
        baseline: best(&|other| Role::of(other) == Role::Baseline),
        alone: best(&|other| other != name && on_all_paths(other) == name),
    })
}

/// The same of further seeds that both were run with, if there are any.
fn confirmed(cell: &CellResults, name: &str, than: &str, of: &impl Fn(&RunRow) -> Option<f64>) -> Option<Regret> {
    let shares = |who: &str| -> BTreeMap<u32, f64> {
        let runs = cell.confirming.iter().filter(|run| run.contender == who);
        runs.filter_map(|run| Some((run.seed, of(run)?))).collect()
    };
    let (own, theirs) = (shares(name), shares(than));
    let both: Vec<(f64, f64)> = own.iter().filter_map(|(seed, own)| Some((*theirs.get(seed)?, *own))).collect();
    let (theirs, own): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
    (own.len() > 1).then(|| Regret { confirmed: true, ..regret(than, &theirs, &own) })
}

/// How much better another was than one's own, seed by seed.
fn regret(than: &str, theirs: &[f64], own: &[f64]) -> Regret {
    let points: Vec<f64> = theirs.iter().zip(own).map(|(theirs, own)| (theirs - own) * 100.0).collect();
    let stat = stat(&points);
    let half_width = (points.len() > 1).then_some(stat.half_width);
    Regret { than: than.to_owned(), points: stat.mean, half_width, confirmed: false }
}

impl Regret {
    /// Whether it is more than so many points, and beyond the noise of seeds.
    pub fn is_more_than(&self, points: f64) -> bool {
        self.points > points && self.half_width.is_none_or(|half| self.points - half > 0.0)
    }
}

/// Pairs of a cell of which the one seems to be behind the other, but not beyond doubt: to be run again with other seeds.
pub(super) fn doubts(cell: &CellResults) -> BTreeSet<(String, String)> {
    let of = |score: &Score| {
        let regrets = [score.all.baseline.clone(), score.all.alone.clone()].into_iter().flatten();
        let clear = |regret: &Regret| regret.half_width.is_some_and(|half| regret.points - half > SLIGHTLY);
        let behind = regrets.filter(|regret| regret.points > SLIGHTLY && !regret.confirmed && !clear(regret));
        behind.map(|regret| (score.contender.clone(), regret.than)).collect::<Vec<_>>()
    };
    cell.scores.iter().flat_map(of).collect()
}

/// Those who are judged, over all cells.
pub(super) fn summaries(cells: &[CellResults]) -> Vec<Summary> {
    let mut names: Vec<&str> = Vec::new();
    for score in cells.iter().flat_map(|cell| &cell.scores) {
        if !names.contains(&score.contender.as_str()) {
            names.push(&score.contender);
        }
    }
    names.into_iter().map(|name| summary(cells, name)).collect()
}

fn summary(cells: &[CellResults], name: &str) -> Summary {
    let runs =
        cells.iter().flat_map(|cell| cell.runs.iter().chain(&cell.confirming)).filter(|run| run.contender == name);
    Summary {
        contender: name.to_owned(),
        all: overall(cells, name, |score| Some(&score.all)),
        start: overall(cells, name, |score| score.start.as_ref()),
        failed: runs.filter(|run| run.failure.is_some()).count() as u32,
    }
}

fn overall(cells: &[CellResults], name: &str, of: impl Fn(&Score) -> Option<&Standing>) -> Overall {
    let standings: Vec<(&CellResults, &Standing)> = cells
        .iter()
        .filter_map(|cell| Some((cell, of(cell.scores.iter().find(|score| score.contender == name)?)?)))
        .collect();
    let easy = standings.iter().filter(|(cell, _)| cell.is_easy());
    let regrets = |of: fn(&Standing) -> Option<&Regret>| {
        behind(standings.iter().filter_map(|(cell, standing)| Some((cell.number, of(standing)?))))
    };
    Overall {
        shares: quantiles(standings.iter().map(|(_, standing)| standing.share)),
        easy: quantiles(easy.map(|(_, standing)| standing.share)),
        baseline: regrets(|standing| standing.baseline.as_ref()),
        alone: regrets(|standing| standing.alone.as_ref()),
    }
}

fn quantiles(shares: impl Iterator<Item = f64>) -> Quantiles {
    let mut shares: Vec<f64> = shares.collect();
    shares.sort_by(f64::total_cmp);
    if shares.is_empty() {
        return Quantiles::default();
    }
    // Nearest rank: so many of them are below it at most.
    let at = |percent: usize| shares[(shares.len() * percent / 100).min(shares.len() - 1)];
    Quantiles {
        cells: shares.len() as u32,
        mean: shares.iter().sum::<f64>() / shares.len() as f64,
        least: shares[0],
        p1: at(1),
        p5: at(5),
        p25: at(25),
        p50: at(50),
    }
}

fn behind<'a>(regrets: impl Iterator<Item = (u64, &'a Regret)>) -> Behind {
    let mut behind = Behind::default();
    for (cell, regret) in regrets {
        behind.cells += 1;
        behind.by_2 += u32::from(regret.is_more_than(SLIGHTLY));
        behind.by_10 += u32::from(regret.is_more_than(BADLY));
        behind.in_doubt += u32::from(regret.points > SLIGHTLY && !regret.is_more_than(SLIGHTLY));
        if regret.is_more_than(0.0) && regret.points > behind.worst {
            (behind.worst, behind.worst_cell) = (regret.points, Some(cell));
        }
    }
    behind
}

/// What must hold of those who are judged.
pub(super) fn verdicts(summaries: &[Summary]) -> Vec<Verdict> {
    summaries.iter().flat_map(of_one).collect()
}

fn of_one(summary: &Summary) -> Vec<Verdict> {
    let (name, all) = (&summary.contender, &summary.all);
    let mut verdicts = Vec::new();
    for (than, behind) in [("the best baseline", &all.baseline), ("itself on the best path alone", &all.alone)] {
        let share = if behind.cells > 0 { f64::from(behind.by_2) / f64::from(behind.cells) } else { f64::NAN };
        let worst = behind.worst_cell.map_or_else(String::new, |cell| format!("cell {cell}"));
        verdicts.push(Verdict {
            must: format!("{name} is behind {than} by more than {SLIGHTLY} points in at most 1 % of cells"),
            measure: "on_time".into(),
            at_most: true,
            worst: format!("{} of {} cells, {} more in doubt", behind.by_2, behind.cells, behind.in_doubt),
            value: share,
            threshold: MOST_BEHIND,
            holds: share <= MOST_BEHIND,
        });
        verdicts.push(Verdict {
            must: format!("{name} is never behind {than} by more than {BADLY} points"),
            measure: "on_time".into(),
            at_most: true,
            worst,
            value: if behind.cells > 0 { behind.worst / 100.0 } else { f64::NAN },
            threshold: BADLY / 100.0,
            holds: behind.cells > 0 && behind.worst <= BADLY,
        });
    }
    let share = |must: String, of: &Quantiles, value: f64, threshold: f64| Verdict {
        must,
        measure: "share_of_bound".into(),
        at_most: false,
        worst: format!("{} cells", of.cells),
        value: if of.cells > 0 { value } else { f64::NAN },
        threshold,
        holds: of.cells > 0 && value >= threshold,
    };
    let easy = format!("{name} reaches 97 % of the bound in 95 % of the easy cells");
    verdicts.push(share(easy, &all.easy, all.easy.p5, EASY_SHARE));
    let mean = format!("{name} reaches 85 % of the bound on average over all cells");
    verdicts.push(share(mean, &all.shares, all.shares.mean, MEAN_SHARE));
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(contender: &str, seed: u32, on_time: f64) -> RunRow {
        let by_priority = vec![(0, 10, (on_time * 10.0) as u64), (1, 90, (on_time * 90.0) as u64)];
        RunRow {
            contender: contender.into(),
            seed,
            on_time,
            start: Some(on_time / 2.0),
            by_priority,
            ..RunRow::default()
        }
    }

    /// Runs with two seeds each, under a bound of 0.8.
    fn cell(shares: &[(&str, [f64; 2])]) -> CellResults {
        let runs = shares.iter().flat_map(|(name, shares)| [run(name, 1, shares[0]), run(name, 2, shares[1])]);
        let limit = LimitRow {
            bound: 0.9,
            average: 0.8,
            start_bound: Some(1.0),
            start_average: Some(1.0),
            up_to_priority: vec![(0, 10.0), (1, 80.0)],
            ..LimitRow::default()
        };
        let limits = [1, 2].map(|seed| LimitRow { seed, ..limit.clone() }).into();
        let mut cell = CellResults { number: 7, runs: runs.collect(), limits, ..CellResults::default() };
        cell.scores = scores(&cell);
        cell
    }

    #[test]
    fn ours_are_held_against_the_best_of_each_kind() {
        let cell = cell(&[
            ("ads", [0.6, 0.64]),
            ("ads@0", [0.2, 0.3]),
            ("ads@1", [0.7, 0.5]),
            ("edf@0", [0.9, 0.9]),
            ("quic-by-priority@0", [0.5, 0.6]),
            ("mpquic", [0.7, 0.66]),
        ]);
        assert_eq!(cell.scores.len(), 1, "who has one path alone and plain QUIC are not judged");
        let all = &cell.scores[0].all;
        assert!((all.on_time - 0.62).abs() < 1e-9 && (all.share - 0.775).abs() < 1e-9, "{all:?}");
        let (baseline, alone) = (all.baseline.clone().unwrap(), all.alone.clone().unwrap());
        assert_eq!((baseline.than.as_str(), alone.than.as_str()), ("mpquic", "ads@1"));
        assert!((baseline.points - 6.0).abs() < 1e-9 && (alone.points + 2.0).abs() < 1e-9);
        // 10 and 2 points: with two seeds that may be nothing.
        assert!(baseline.half_width.unwrap() > 50.0 && !baseline.is_more_than(SLIGHTLY));
        let start = cell.scores[0].start.as_ref().unwrap();
        assert!((start.on_time - 0.31).abs() < 1e-9 && (start.share - 0.31).abs() < 1e-9);
        let priorities = &cell.scores[0].priorities;
        assert_eq!(priorities.iter().map(|of| of.priority).collect::<Vec<_>>(), [0, 1]);
        assert!((priorities[1].share_up_to - 123.0 / 160.0).abs() < 1e-9, "{priorities:?}");
    }

    #[test]
    fn other_seeds_tell_whether_one_is_behind() {
        let cell = cell(&[("ads", [0.6, 0.6]), ("quic", [0.7, 0.7]), ("mpquic", [0.6, 0.61])]);
        assert!(doubts(&cell).is_empty(), "there is no noise at all");
        let mut cell = super::tests::cell(&[("ads", [0.6, 0.6]), ("quic", [0.69, 0.71]), ("mpquic", [0.6, 0.61])]);
        assert_eq!(doubts(&cell), [("ads".to_owned(), "quic".to_owned())].into());
        // It was luck: with other seeds there is no difference.
        let further = |quic: [f64; 3]| {
            let runs =
                quic.into_iter().zip(3..).flat_map(|(quic, seed)| [run("ads", seed, 0.6), run("quic", seed, quic)]);
            runs.collect::<Vec<_>>()
        };
        cell.confirming = further([0.61, 0.58, 0.62]);
        cell.scores = scores(&cell);
        let regret = cell.scores[0].all.baseline.clone().unwrap();
        assert!(
            regret.confirmed && (regret.points - 1.0 / 3.0).abs() < 1e-9 && !regret.is_more_than(0.0),
            "{regret:?}"
        );
        assert!(doubts(&cell).is_empty());
        // It was not.
        cell.confirming = further([0.69, 0.71, 0.70]);
        cell.scores = scores(&cell);
        assert!(cell.scores[0].all.baseline.as_ref().unwrap().is_more_than(SLIGHTLY));
    }

    #[test]
    fn what_must_hold_is_judged_over_all_cells() {
        let good = || cell(&[("ads", [0.79, 0.79]), ("ads@0", [0.5, 0.5]), ("quic", [0.78, 0.79])]);
        let bad = || CellResults {
            number: 9,
            ..cell(&[("ads", [0.6, 0.6]), ("ads@0", [0.65, 0.65]), ("quic", [0.75, 0.75])])
        };
        let hard = |cell: CellResults| CellResults { hard: vec!["load".into()], ..cell };
        let judged = |cells: &[CellResults]| {
            let summaries = summaries(cells);
            let held = verdicts(&summaries).iter().map(|verdict| verdict.holds).collect::<Vec<_>>();
            (summaries[0].all.clone(), held)
        };
        let (overall, held) = judged(&[good(), hard(good())]);
        assert_eq!((overall.shares.cells, overall.easy.cells, overall.baseline.by_2), (2, 1, 0));
        assert_eq!(held, [true; 6]);
        let (overall, held) = judged(&[good(), hard(bad())]);
        let Overall { baseline, alone, .. } = overall;
        assert_eq!((baseline.by_2, baseline.by_10, baseline.worst_cell), (1, 1, Some(9)));
        assert_eq!((alone.by_2, alone.by_10), (1, 0));
        assert_eq!(held, [false, false, false, true, true, true]);
        // Nothing to compare with, nothing that holds.
        let (_, held) = judged(&[cell(&[("ads", [0.79, 0.79])])]);
        assert_eq!(held, [false, false, false, false, true, true]);
    }

    #[test]
    fn quantiles_are_what_most_reach() {
        let of = quantiles((1..=200).map(|n| f64::from(n) / 200.0));
        assert_eq!((of.least, of.p1, of.p5, of.p25, of.p50), (0.005, 0.015, 0.055, 0.255, 0.505));
        assert_eq!(quantiles(std::iter::empty()), Quantiles::default());
    }
}
