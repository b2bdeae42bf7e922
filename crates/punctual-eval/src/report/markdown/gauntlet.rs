//! The gauntlet's results as Markdown.

use super::{Column, code, ended, fixed, table, verdicts};
use crate::gauntlet::{Behind, CellResults, Results, Summary};

/// A heading, what those that are judged reached of the bound, by the number of paths, and the thresholds.
pub fn page(results: &Results) -> String {
    let last = results.first + (results.cells.len() as u64).saturating_sub(1);
    let seeds = if results.seeds == 1 { "one seed".into() } else { format!("{} seeds", results.seeds) };
    let heading = format!("### Gauntlet, cells {} to {last}", results.first);
    let caption = format!("Share of the bound on average over the losses, %: means over the cells, {seeds} each.");
    let mut parts = vec![heading, caption, shares(results)];
    let failed: u32 = results.summaries.iter().map(|summary| summary.failed).sum();
    if failed > 0 {
        parts.push(format!("Runs that failed, and count as nothing on time: {failed}."));
    }
    parts.extend(ended(&results.cells.iter().flat_map(CellResults::ended).collect::<Vec<_>>()));
    parts.push(verdicts(&results.verdicts));
    parts.join("\n\n") + "\n"
}

/// A row for each that is judged.
fn shares(results: &Results) -> String {
    let mut paths: Vec<u32> = results.cells.iter().map(|cell| cell.paths).collect();
    paths.sort_unstable();
    paths.dedup();
    let of_paths = |n: u32| results.cells.iter().filter(move |cell| cell.paths == n);
    let easy = results.cells.iter().filter(|cell| cell.is_easy()).count();
    let several = results.cells.len() - of_paths(1).count();

    let mut columns = vec![Column::words(""), Column::figures(&format!("all {}", results.cells.len()))];
    columns.extend(paths.iter().map(|&n| {
        let name = if n == 1 { "one path".into() } else { format!("{n} paths") };
        Column::figures(&format!("{name} ({})", of_paths(n).count()))
    }));
    columns.push(Column::figures(&format!("easy ({easy})")));
    columns.push(Column::figures("first second"));
    columns.push(Column::figures("behind the best baseline by > 2, > 10 points"));
    columns.push(Column::figures(&format!("behind the best path alone by > 2, > 10 (of {several})")));
    let row = |summary: &Summary| {
        let mut row = vec![code(&summary.contender), percent(summary.all.shares.mean)];
        row.extend(paths.iter().map(|&n| percent(mean(of_paths(n), &summary.contender))));
        row.push(if easy > 0 { percent(summary.all.easy.mean) } else { "–".into() });
        row.push(percent(summary.start.shares.mean));
        row.extend([&summary.all.baseline, &summary.all.alone].map(behind));
        row
    };
    table(&columns, results.summaries.iter().map(row))
}

/// The mean share of the bound over some cells; NaN if there are none.
fn mean<'a>(cells: impl Iterator<Item = &'a CellResults>, contender: &str) -> f64 {
    let scores = cells.flat_map(|cell| &cell.scores).filter(|score| score.contender == contender);
    let shares: Vec<f64> = scores.map(|score| score.all.share).collect();
    shares.iter().sum::<f64>() / shares.len() as f64
}

fn percent(share: f64) -> String {
    fixed(share * 100.0, 1)
}

fn behind(behind: &Behind) -> String {
    let doubt = if behind.in_doubt > 0 { format!(" ({} in doubt)", behind.in_doubt) } else { String::new() };
    format!("{}, {}{doubt}", behind.by_2, behind.by_10)
}
