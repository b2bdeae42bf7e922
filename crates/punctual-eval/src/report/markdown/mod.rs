//! An experiment's results as GitHub-flavoured Markdown, for documents: its main measure, and what it must show.

mod gauntlet;

pub use gauntlet::page as gauntlet;

use super::{
    select::{value, values},
    words::{Measure, known, measure, with_unit},
};
use crate::results::{Cell, FailedRun, FigureKind, Results, Stat, Verdict};

/// Most runs that failed, or whose sessions died, that are named one by one.
const MOST_FAILURES: usize = 10;
/// Digits behind the point at most, where fewer do not tell a value from its threshold.
const MOST_DECIMALS: usize = 6;

/// A heading, the main measure by parameters and contenders, and the thresholds. The same results give the same text.
///
/// The main measure is that of the first figure. Where that is a course or a distribution, it is what the first threshold is about,
/// of all priorities and sources together; or else the blocks on time.
pub fn page(results: &Results) -> String {
    let mut parts = vec![format!("### `{}`", results.name)];
    match main_measure(results) {
        Some(of) => {
            let of = measure(of);
            parts.extend([caption(results, &of), pivot(results, &of)]);
        }
        None => parts.push("No run had a value.".into()),
    }
    parts.extend(failures(&results.failures));
    parts.extend(ended(&results.ended()));
    if !results.verdicts.is_empty() {
        parts.push(verdicts(&results.verdicts));
    }
    if !results.unjudged.is_empty() {
        parts.push(format!("Thresholds not judged, as what they are about was not run: {}.", results.unjudged.len()));
    }
    parts.join("\n\n") + "\n"
}

/// What the experiment is about, if any run had a value of it.
fn main_measure(results: &Results) -> Option<&str> {
    let plotted = |kind| matches!(kind, FigureKind::Lines | FigureKind::Bars | FigureKind::Table);
    let drawn = results.figures.first().filter(|figure| plotted(figure.kind)).map(|figure| figure.measure.as_str());
    let judged = results.verdicts.first().and_then(|verdict| verdict.measure.split(':').next());
    let has = |key: &&str| {
        let of = measure(key);
        results.cells.iter().any(|cell| of.of(cell).is_some())
    };
    drawn.into_iter().chain(judged).chain(["on_time", "bulk_mbps"]).find(has)
}

/// What the table shows, and where axes stand that it does not vary.
fn caption(results: &Results, of: &Measure<'_>) -> String {
    let unit = if of.share { "%" } else { of.unit };
    let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
    let seeds = match results.cells.iter().map(|cell| cell.seeds).max() {
        Some(seeds) if seeds > 1 => format!("means of {seeds} seeds, ± half the 95 % interval where it is not 0"),
        _ => "one seed".into(),
    };
    let cells: Vec<&Cell> = results.cells.iter().collect();
    let fixed: Vec<String> = results
        .axes
        .iter()
        .enumerate()
        .filter_map(|(n, (name, unit))| match &values(&cells, n)[..] {
            [only] => Some(format!("{name} {}", with_unit(only, unit))),
            _ => None,
        })
        .collect();
    let at = if fixed.is_empty() { String::new() } else { format!(" At {}.", fixed.join(", ")) };
    text(&format!("{}{unit}: {seeds}.{at}", of.title))
}

/// A row for each set of parameters, a column for each contender, and one for the bound where the measure has one.
fn pivot(results: &Results, of: &Measure<'_>) -> String {
    let all: Vec<&Cell> = results.cells.iter().collect();
    let varied: Vec<usize> = (0..results.axes.len()).filter(|&axis| values(&all, axis).len() > 1).collect();
    let mut rows: Vec<(Vec<&str>, Vec<&Cell>)> = Vec::new();
    let mut contenders: Vec<&str> = Vec::new();
    for cell in &all {
        let at: Vec<&str> = varied.iter().map(|&axis| value(cell, axis)).collect();
        match rows.iter_mut().find(|row| row.0 == at) {
            Some(row) => row.1.push(cell),
            None => rows.push((at, vec![cell])),
        }
        if !contenders.contains(&cell.contender.as_str()) {
            contenders.push(&cell.contender);
        }
    }
    let bound = |cells: &[&Cell]| cells.iter().find_map(|cell| of.bound_of(cell));
    // The bound on a share of the bound says nothing.
    let bounded = !of.key.contains("share_of") && rows.iter().any(|row| bound(&row.1).is_some());

    let mut columns: Vec<Column> = Vec::new();
    if !varied.is_empty() {
        columns.push(Column::words(&axes(results, &varied)));
    }
    columns.extend(bounded.then(|| Column::figures("bound")));
    columns.extend(contenders.iter().map(|name| Column::figures(&code(name))));
    let line = |(at, cells): &(Vec<&str>, Vec<&Cell>)| {
        let mut line: Vec<String> = Vec::new();
        if !varied.is_empty() {
            line.push(text(&at.join(" / ")));
        }
        // That of the seeds' plans and networks: its spread is not what the table is about.
        line.extend(bounded.then(|| bound(cells).map_or("–".into(), |stat| bare(of, stat.mean))));
        line.extend(contenders.iter().map(|name| {
            let cell = cells.iter().find(|cell| cell.contender == *name);
            let figure = cell.and_then(|cell| known(of.of(cell))).map_or("–".into(), |stat| with_interval(of, &stat));
            if cell.is_some_and(|cell| !cell.ended.is_empty()) { figure + " †" } else { figure }
        }));
        line
    };
    table(&columns, rows.iter().map(line))
}

/// The axes of the rows, with their units.
fn axes(results: &Results, varied: &[usize]) -> String {
    let one = |&axis: &usize| {
        let (name, unit) = &results.axes[axis];
        if unit.is_empty() { name.clone() } else { format!("{name}, {unit}") }
    };
    text(&varied.iter().map(one).collect::<Vec<_>>().join(" / "))
}

/// So many digits behind the point leave a number short.
fn decimals(of: &Measure<'_>, value: f64) -> usize {
    match value.abs() {
        _ if of.share => 1,
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    }
}

fn fixed(value: f64, decimals: usize) -> String {
    match value {
        _ if value.is_nan() => "–".into(),
        f64::INFINITY => "∞".into(),
        _ => format!("{value:.decimals$}").replace('-', "−"),
    }
}

/// A value without its unit; shares in per cent.
fn bare(of: &Measure<'_>, value: f64) -> String {
    fixed(if of.share { value * 100.0 } else { value }, decimals(of, value))
}

/// The mean with half of its interval, if there is one that does not vanish in rounding.
fn with_interval(of: &Measure<'_>, stat: &Stat) -> String {
    let mean = bare(of, stat.mean);
    let half = if of.share { stat.half_width * 100.0 } else { stat.half_width };
    let text = fixed(half, decimals(of, stat.mean));
    let vanishes = stat.n < 2 || !half.is_finite() || text.parse() == Ok(0.0);
    if vanishes { mean } else { format!("{mean} ± {text}") }
}

/// The runs that failed, a few of them by name.
fn failures(failures: &[FailedRun]) -> Option<String> {
    let named = failures.iter().take(MOST_FAILURES);
    let mut lines: Vec<String> =
        named.map(|FailedRun { place, seed, why }| text(&format!("- failed: {place}, seed {seed}: {why}"))).collect();
    if failures.len() > MOST_FAILURES {
        lines.push(format!("- and {} more", failures.len() - MOST_FAILURES));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The sessions that were over before their runs, a few of them one by one.
fn ended(lines: &[String]) -> Option<String> {
    let mut told: Vec<String> = lines.iter().take(MOST_FAILURES).map(|line| text(&format!("- {line}"))).collect();
    if lines.len() > MOST_FAILURES {
        told.push(format!("- and {} more", lines.len() - MOST_FAILURES));
    }
    (!told.is_empty()).then(|| format!("† Sessions that ended before their time:\n\n{}", told.join("\n")))
}

/// A row for each threshold.
fn verdicts(verdicts: &[Verdict]) -> String {
    let columns = [
        Column::words(""),
        Column::words("must show"),
        Column::figures("measured"),
        Column::figures("threshold"),
        Column::words("where"),
    ];
    let row = |verdict: &Verdict| {
        let mark = if verdict.holds { "yes" } else { "**no**" };
        let [value, threshold] = told_apart(verdict);
        vec![mark.into(), text(&verdict.must), value, threshold, text(&verdict.worst)]
    };
    table(&columns, verdicts.iter().map(row))
}

/// A verdict's value and threshold, to as many digits as tell them apart.
fn told_apart(verdict: &Verdict) -> [String; 2] {
    // Verdicts of the gauntlet name no measure, and are all shares.
    let of = measure(if verdict.measure.is_empty() { "on_time" } else { &verdict.measure });
    let both = [verdict.value, verdict.threshold].map(|value| if of.share { value * 100.0 } else { value });
    let unit = if of.share { "%" } else { of.unit };
    let written = |decimals| both.map(|value| format!("{} {unit}", fixed(value, decimals)).trim_end().to_owned());
    let least = decimals(&of, verdict.threshold);
    let tells = |texts: &[String; 2]| texts[0] != texts[1] || both[0] == both[1];
    let [value, threshold] = (least..MOST_DECIMALS).map(written).find(tells).unwrap_or_else(|| written(MOST_DECIMALS));
    let sign = if verdict.at_most { "≤" } else { "≥" };
    [if verdict.value.is_nan() { "nothing measured".into() } else { value }, format!("{sign} {threshold}")]
}

/// The head of a table's column.
struct Column {
    head: String,
    figures: bool,
}

impl Column {
    fn words(head: &str) -> Self {
        Self { head: head.to_owned(), figures: false }
    }

    fn figures(head: &str) -> Self {
        Self { head: head.to_owned(), figures: true }
    }
}

fn table(columns: &[Column], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!(" {cell} |").replace("  |", " |")).collect();
        format!("|{cells}")
    };
    let heads: Vec<String> = columns.iter().map(|column| column.head.clone()).collect();
    let rules = columns.iter().map(|column| if column.figures { "---:" } else { "---" }.to_owned());
    let mut lines = vec![line(&heads), line(&rules.collect::<Vec<_>>())];
    lines.extend(rows.map(|row| line(&row)));
    lines.join("\n")
}

/// Words that are no markup, and do not end a table's cell.
fn text(words: &str) -> String {
    let mut text = String::with_capacity(words.len());
    for c in words.chars() {
        if matches!(c, '\\' | '|' | '<' | '*') {
            text.push('\\');
        }
        text.push(if c == '\n' { ' ' } else { c });
    }
    text
}

/// A name as code.
fn code(name: &str) -> String {
    format!("`{}`", name.replace('`', "'").replace('|', "\\|"))
}

#[cfg(test)]
mod tests;
