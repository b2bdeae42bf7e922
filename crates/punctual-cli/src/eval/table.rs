//! What people read.

use comfy_table::{CellAlignment, Table, presets};
use punctual_eval::{
    experiment::Experiment,
    measure::{Better, Measure},
    results::{Cell, FailedRun, Results, Stat},
};

/// Measures of the table of results, in order.
const COLUMNS: &[&str] = &[
    "on_time",
    "bound",
    "share_of_bound",
    "score_share_of_bound",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "goodput_mbps",
    "bulk_mbps",
    "waste_ratio",
    "redundancy_ratio",
    "jain",
    "rebuffers",
];

pub(super) fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

pub(super) fn list(experiments: &[Experiment]) -> String {
    let mut table = table();
    table.set_header(["name", "what it is", "from"]);
    for experiment in experiments {
        table.add_row([&experiment.name, &experiment.head.title, &experiment.head.source]);
    }
    table.to_string()
}

/// A row for each cell.
pub(super) fn results(results: &Results) -> String {
    let columns = columns(results);
    let axes = results.axes.iter().map(|(name, unit)| heading(name, unit));
    let titles = columns.iter().map(|measure| heading(measure.short, measure.unit_shown()));
    let mut table = table();
    table.set_header(axes.chain(["contender".to_owned()]).chain(titles));
    for cell in &results.cells {
        table.add_row(row(cell, &columns));
    }
    for column in table.column_iter_mut().skip(results.axes.len() + 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}: {}\n{table}", results.name, results.title)
}

/// A long unit goes below the name, to keep the column narrow.
fn heading(name: &str, unit: &str) -> String {
    let apart = if unit.len() > 2 { "\n" } else { " " };
    format!("{name}{apart}{unit}").trim_end().to_owned()
}

/// The measures that tell something: some cell has a value, and not all of them are nothing, unless there is a figure of it.
fn columns(results: &Results) -> Vec<&'static Measure> {
    let values = |key: &str| results.cells.iter().filter_map(|cell| cell.mean(key)).collect::<Vec<_>>();
    // Bulk has no deadlines: its rate is the goodput.
    let bulk_only = values("on_time").is_empty();
    let tells = |key: &str| match key {
        "on_time" => !bulk_only,
        "goodput_mbps" if bulk_only => false,
        // Only where the experiment is about the score.
        "score_share_of_bound" => results.figures.iter().any(|figure| figure.measure.starts_with("score")),
        _ if results.figures.iter().any(|figure| figure.measure == key) => !values(key).is_empty(),
        _ => values(key).iter().any(|value| *value != 0.0),
    };
    COLUMNS.iter().filter(|key| tells(key)).filter_map(|key| Measure::find(key)).collect()
}

fn row(cell: &Cell, columns: &[&Measure]) -> Vec<String> {
    let params = cell.params.iter().map(|(_, value)| value.clone());
    let values = columns.iter().enumerate().map(|(n, measure)| {
        let figure = cell.stat(measure.key).map_or_else(String::new, |stat| figure(measure.key, &stat));
        // Beside the first figure, which is what suffers.
        if n == 0 && !cell.ended.is_empty() { figure + " †" } else { figure }
    });
    params.chain([cell.contender.clone()]).chain(values).collect()
}

/// A figure as people write it, with its interval where that is worth showing.
pub(super) fn figure(key: &str, stat: &Stat) -> String {
    if stat.mean.is_infinite() {
        return "∞".into();
    }
    let in_percent = measure(key).is_some_and(Measure::in_percent);
    match (in_percent, key) {
        (true, "on_time") if stat.n > 1 => format!("{:.1} ± {:.1} %", stat.mean * 100.0, stat.half_width * 100.0),
        (true, _) => format!("{:.1} %", stat.mean * 100.0),
        _ if stat.mean.abs() >= 100.0 => format!("{:.0}", stat.mean),
        _ if stat.mean.abs() >= 10.0 => format!("{:.1}", stat.mean),
        _ => format!("{:.2}", stat.mean),
    }
}

/// What a key is about; behind a colon stands of which blocks.
fn measure(key: &str) -> Option<&'static Measure> {
    Measure::find(key.split(':').next()?)
}

/// A line for each of the runs that failed, a few of them at most.
pub(super) fn failures(failures: &[FailedRun]) -> String {
    let line = |FailedRun { place, seed, why }: &FailedRun| format!("failed: {place}, seed {seed}: {why}");
    failures.iter().take(10).map(line).collect::<Vec<_>>().join("\n")
}

/// A line for each session that was over before its run, a few of them at most.
pub(super) fn ended(lines: &[String]) -> String {
    const MOST: usize = 10;
    let mut text = String::from("† sessions that ended before their time:");
    lines.iter().take(MOST).for_each(|line| text.push_str(&format!("\n  {line}")));
    if lines.len() > MOST {
        text.push_str(&format!("\n  and {} more; the report has them", lines.len() - MOST));
    }
    text
}

/// A row for each threshold that was judged, and how many were not.
pub(super) fn verdicts(results: &Results) -> String {
    let unjudged = results.unjudged.len();
    let not_judged = format!("{}: {unjudged} thresholds not judged, what they are about was not run", results.name);
    if results.verdicts.is_empty() {
        return not_judged;
    }
    let mut table = table();
    table.set_header(["", "must", "measured", "threshold", "where"]);
    for verdict in &results.verdicts {
        let mark = if verdict.holds { "yes" } else { "NO" };
        let in_percent = measure(&verdict.measure).is_some_and(Measure::in_percent);
        let number = |value: f64| if in_percent { format!("{:.2} %", value * 100.0) } else { format!("{value:.4}") };
        let sign = if verdict.at_most { "≤" } else { "≥" };
        let (value, threshold) = (number(verdict.value), format!("{sign} {}", number(verdict.threshold)));
        table.add_row([mark, &verdict.must, &value, &threshold, &verdict.worst]);
    }
    let held = results.verdicts.iter().filter(|verdict| verdict.holds).count();
    let judged = format!("{}: {held} of {} thresholds hold\n{table}", results.name, results.verdicts.len());
    if unjudged > 0 { format!("{judged}\n{not_judged}") } else { judged }
}

/// Whether a change from one value to another is for the better; `None` if the measure does not rank or nothing changed.
pub(super) fn better(key: &str, a: f64, b: f64) -> Option<bool> {
    let up = match measure(key)?.better {
        Better::Up => true,
        Better::Down => false,
        Better::Neither => return None,
    };
    (a != b).then_some((b > a) == up)
}
