//! The judge: from runs to shares of the bound and regrets, and from those to what holds.

use std::collections::BTreeMap;

use super::{
    entrants::on_all_paths,
    results::{Behind, CellResults, LimitRow, Overall, PriorityScore, Quantiles, Regret, RunRow, Score, Standing, Summary},
};
use crate::{measure::stat, results::Verdict};

/// Points by which one may be behind.
const SLIGHTLY: f64 = 2.0;
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
    for run in cell.runs.iter().filter(|run| is_judged(&run.contender)) {
        if !names.contains(&run.contender.as_str()) {
            names.push(&run.contender);
        }
    }
    names.into_iter().map(|name| score(cell, name)).collect()
}

/// Plain QUIC is there to be compared with, and so is who has one path alone.
fn is_judged(contender: &str) -> bool {
    !is_baseline(contender) && on_all_paths(contender) == contender
}

fn is_baseline(contender: &str) -> bool {
    ["quic", "mpquic"].iter().any(|quic| {
        let rest = contender.strip_prefix(quic);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '/', '@']))
    })
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
        Some(regret(best.0, best.1, own))
    };
    Some(Standing {
        on_time,
        bound,
        average,
        share: if average > 0.0 { on_time / average } else { 1.0 },
        baseline: best(&is_baseline),
        alone: best(&|other| other != name && on_all_paths(other) == name),
    })
}

/// How much better another was than one's own, seed by seed.
fn regret(than: &str, theirs: &[f64], own: &[f64]) -> Regret {
    let points: Vec<f64> = theirs.iter().zip(own).map(|(theirs, own)| (theirs - own) * 100.0).collect();
    let stat = stat(&points);
    let half_width = (points.len() > 1).then_some(stat.half_width);
    Regret { than: than.to_owned(), points: stat.mean, half_width }
}

impl Regret {
    /// Whether it is more than so many points, and beyond the noise of seeds.
    pub fn is_more_than(&self, points: f64) -> bool {
        self.points > points && self.half_width.is_none_or(|half| self.points - half > 0.0)
    }
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
    let runs = cells.iter().flat_map(|cell| &cell.runs).filter(|run| run.contender == name);
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
