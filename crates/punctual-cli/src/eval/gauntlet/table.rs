//! What people read of the gauntlet.

use comfy_table::CellAlignment;
use punctual_eval::{
    gauntlet::{Behind, CellResults, Overall, Regret, Results, Score},
    results::Verdict,
};

use super::super::table::{ended as told_ended, table};

/// Worst cells that are named.
const WORST: usize = 20;

/// All of it.
pub(super) fn all(results: &Results) -> String {
    let last = results.first + results.cells.len() as u64 - 1;
    let easy = results.cells.iter().filter(|cell| cell.is_easy()).count();
    let mut text = format!(
        "gauntlet {}, cells {} to {last} ({easy} of {} easy), {} seeds each\n",
        results.gauntlet,
        results.first,
        results.cells.len(),
        results.seeds
    );
    if !results.changes.is_empty() {
        text.push_str(&format!("changed: {}\n", results.changes.join(", ")));
    }
    text.push_str(&summaries(results));
    text.push_str(&failures(results));
    let ended: Vec<String> = results.cells.iter().flat_map(CellResults::ended).collect();
    if !ended.is_empty() {
        text.push_str(&format!("\n{}\n", told_ended(&ended)));
    }
    text.push('\n');
    text.push_str(&worst(results));
    text.push_str(&verdicts(&results.verdicts));
    text
}

/// Two rows for each that is judged: all blocks, and those of the first second.
fn summaries(results: &Results) -> String {
    let mut table = table();
    table.set_header([
        "of the bound",
        "mean",
        "least",
        "p1",
        "p5",
        "p25",
        "p50",
        "easy\nmean",
        "easy\np5",
        "easy\nleast",
        "behind the best\nbaseline > 2, > 10",
        "behind the best\npath alone > 2, > 10",
    ]);
    for summary in &results.summaries {
        for (what, of) in [(summary.contender.clone(), &summary.all), ("  first second".into(), &summary.start)] {
            table.add_row(row(what, of));
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn row(what: String, of: &Overall) -> Vec<String> {
    let (shares, easy) = (&of.shares, &of.easy);
    let mut row = vec![what];
    row.extend([shares.mean, shares.least, shares.p1, shares.p5, shares.p25, shares.p50].map(percent));
    row.extend([easy.mean, easy.p5, easy.least].map(|share| if easy.cells > 0 { percent(share) } else { "–".into() }));
    row.extend([&of.baseline, &of.alone].map(behind));
    row
}

fn behind(behind: &Behind) -> String {
    let doubt = if behind.in_doubt > 0 { format!(" (+{}?)", behind.in_doubt) } else { String::new() };
    format!("{}{doubt}, {} of {}", behind.by_2, behind.by_10, behind.cells)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// How many runs of whom came to no end.
fn failures(results: &Results) -> String {
    let failed = results.cells.iter().flat_map(|cell| cell.runs.iter().map(move |run| (cell.number, run)));
    let failed: Vec<_> = failed.filter_map(|(cell, run)| Some((cell, run, run.failure.as_ref()?))).collect();
    let Some((cell, run, why)) = failed.first() else { return String::new() };
    let first = format!("{} in cell {cell}, seed {}: {why}", run.contender, run.seed);
    format!("\n{} runs failed, and count as nothing on time; the first is {first}\n", failed.len())
}

/// The cells in which one that is judged is farthest behind, then those farthest from the bound.
fn worst(results: &Results) -> String {
    let mut rows: Vec<(f64, &CellResults, &Score)> = results
        .cells
        .iter()
        .flat_map(|cell| cell.scores.iter().map(move |score| (points(score), cell, score)))
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut text = format!("The {} worst: points behind, and what was reached of the bound\n", WORST.min(rows.len()));
    for (_, cell, score) in rows.into_iter().take(WORST) {
        let end = if cell.has_ended(&score.contender) { " †" } else { "" };
        text.push_str(&format!(
            "{:>8}  {:<10} {:>7}{end} of {:<7} {}{}\n          {}\n",
            cell.number,
            score.contender,
            percent(score.all.on_time),
            percent(score.all.average),
            regret(score.all.baseline.as_ref()),
            regret(score.all.alone.as_ref()),
            cell.description,
        ));
    }
    text
}

/// By how many points another was better at most.
fn points(score: &Score) -> f64 {
    let regrets = [&score.all.baseline, &score.all.alone];
    regrets.into_iter().flatten().map(|regret| regret.points).fold(f64::NEG_INFINITY, f64::max)
}

fn regret(regret: Option<&Regret>) -> String {
    regret.map_or_else(String::new, |regret| {
        let half = regret.half_width.map_or_else(String::new, |half| format!(" ± {half:.1}"));
        format!("{:+.1}{half} {}  ", -regret.points, regret.than)
    })
}

fn verdicts(verdicts: &[Verdict]) -> String {
    let mut table = table();
    table.set_header(["", "threshold", "measured", "", "where"]);
    for verdict in verdicts {
        let sign = if verdict.at_most { "≤" } else { "≥" };
        let mark = if verdict.holds { "held" } else { "NOT HELD" };
        let measured = if verdict.value.is_nan() { "–".into() } else { percent(verdict.value) };
        table.add_row([
            mark,
            &verdict.must,
            &measured,
            &format!("{sign} {}", percent(verdict.threshold)),
            &verdict.worst,
        ]);
    }
    table.to_string()
}
