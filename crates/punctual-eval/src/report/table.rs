//! The tables of the page.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    figure::Scene,
    plot::scale::percent,
    select::{Panel, Selection, title, value, values},
    words::{Measure, known, measure, with_unit},
};
use crate::{
    record::SentBytes,
    results::{Cell, Results, Stat},
    svg::escape,
};

/// The columns of the results, where any run had a value.
const COLUMNS: [&str; 8] =
    ["on_time", "bound", "share_of_bound", "p50_ms", "p99_ms", "p999_ms", "goodput_mbps", "waste_ratio"];
/// With more parameter sets than this their tables are folded.
const MOST_OPEN: usize = 2;
/// With more than this even their list is.
const MOST_LISTED: usize = 12;
/// With more values than this along an axis they are rows, and contenders columns.
const MOST_ACROSS: usize = 12;
/// Without any of the usual columns, at most this many others.
const MOST_OTHERS: usize = 10;
/// With more columns than this along an axis, intervals are not written.
const MOST_WITH_INTERVALS: usize = 7;

/// The measures shown in tables: the usual ones and those of the figures, where any run had a value.
pub(super) fn columns(results: &Results) -> Vec<Measure<'_>> {
    let has = |of: &Measure<'_>| results.cells.iter().any(|cell| of.of(cell).is_some());
    let mut keys: Vec<&str> = COLUMNS.to_vec();
    for figure in &results.figures {
        let key = figure.measure.as_str();
        if !key.is_empty() && !key.contains(':') && !keys.contains(&key) {
            keys.push(key);
        }
    }
    let chosen: Vec<_> = keys.into_iter().map(measure).filter(has).collect();
    if !chosen.is_empty() {
        return chosen;
    }
    let others: BTreeSet<&str> = results.cells.iter().flat_map(|cell| cell.stats.keys()).map(String::as_str).collect();
    others.into_iter().map(measure).filter(has).take(MOST_OTHERS).collect()
}

/// Parameter sets in order, each with its cells.
fn parameter_sets(results: &Results) -> Vec<(String, Vec<&Cell>)> {
    let axes: Vec<usize> = (0..results.axes.len()).collect();
    let mut sets: Vec<(String, Vec<&Cell>)> = Vec::new();
    for cell in &results.cells {
        let title = title(results, cell, &axes);
        match sets.iter_mut().find(|set| set.0 == title) {
            Some(set) => set.1.push(cell),
            None => sets.push((title, vec![cell])),
        }
    }
    sets
}

/// All results: a summary over all sets of parameters if there are several, then each.
pub(super) fn results(scene: &Scene<'_>) -> String {
    let sets = parameter_sets(scene.results);
    let columns = columns(scene.results);
    if columns.is_empty() {
        return "<p class=\"note\">No run had a value.</p>".into();
    }
    let mut html = String::new();
    if sets.len() > 1 {
        let _ = writeln!(
            html,
            "<p class=\"note\">Means over all {} sets of parameters; below, each of them.</p>",
            sets.len()
        );
        html.push_str(&summary(scene, &columns));
    }
    let many = sets.len() > MOST_LISTED;
    if many {
        let _ = writeln!(html, "<details><summary><b>Each of the {} sets of parameters</b></summary>", sets.len());
    }
    for (title, cells) in &sets {
        let inner = format!("{}{}{}", one(scene, &columns, cells), by_priority(scene, cells), by_source(scene, cells));
        match (sets.len(), title.is_empty()) {
            (_, true) => html.push_str(&inner),
            (few, false) if few <= MOST_OPEN => {
                let _ = writeln!(html, "<h3>{}</h3>{inner}", escape(title));
            }
            _ => {
                let _ = writeln!(
                    html,
                    "<details><summary><b>{}</b> <span class=\"note\">{}</span></summary>{inner}</details>",
                    escape(title),
                    glance(scene, cells, &columns[0])
                );
            }
        }
    }
    if many {
        html.push_str("</details>");
    }
    html
}

/// A parameter set in a line.
fn glance(scene: &Scene<'_>, cells: &[&Cell], of: &Measure<'_>) -> String {
    const MOST: usize = 5;
    let named = scene.cast.all().filter_map(|(name, _)| {
        let stat = of.of(cells.iter().find(|cell| cell.contender == name)?)?;
        Some(format!("{} {}", escape(name), escape(&of.value(stat.mean))))
    });
    named.take(MOST).collect::<Vec<_>>().join(" · ")
}

fn head(columns: &[Measure<'_>]) -> String {
    columns.iter().map(|of| format!("<th title=\"{}\">{}</th>", escape(&of.title), escape(&of.column()))).collect()
}

/// The mean of a contender's cells, and how many had no finite value.
fn mean(stats: &[Stat]) -> Option<(f64, usize)> {
    let finite: Vec<f64> = stats.iter().map(|stat| stat.mean).filter(|mean| mean.is_finite()).collect();
    let infinite = stats.len() - finite.len();
    match finite.len() {
        0 if infinite == 0 => None,
        0 => Some((f64::INFINITY, infinite)),
        n => Some((finite.iter().sum::<f64>() / n as f64, infinite)),
    }
}

fn summary(scene: &Scene<'_>, columns: &[Measure<'_>]) -> String {
    let mut html = format!("<div class=\"scroll\"><table><thead><tr><th></th>{}", head(columns));
    let shares = columns.iter().any(|of| of.key == "share_of_bound");
    html.push_str(if shares {
        "<th class=\"where\">of bound, at worst</th></tr></thead><tbody>"
    } else {
        "</tr></thead><tbody>"
    });
    for (name, look) in scene.cast.all() {
        let cells = || scene.results.cells.iter().filter(|cell| cell.contender == name);
        let _ = write!(html, "<tr class=\"{}\"><td>{}</td>", weight(look.ours), scene.cast.swatch(name));
        for of in columns {
            let stats: Vec<Stat> = cells().filter_map(|cell| of.of(cell)).collect();
            let text = match mean(&stats) {
                None => "<td>–</td>".into(),
                Some((mean, 0)) => format!("<td>{}</td>", escape(&of.bare(mean))),
                Some((mean, _)) if mean.is_infinite() => "<td>∞</td>".into(),
                Some((mean, infinite)) => format!(
                    "<td title=\"infinite at {infinite} sets of parameters; the mean of the others\">{} <small>({infinite}× ∞)</small></td>",
                    escape(&of.bare(mean))
                ),
            };
            html.push_str(&text);
        }
        if shares {
            let of = measure("share_of_bound");
            let worst = cells().filter_map(|cell| Some((of.of(cell)?.mean, cell))).min_by(|a, b| a.0.total_cmp(&b.0));
            let axes: Vec<usize> = (0..scene.results.axes.len()).collect();
            let text = worst.map_or("–".into(), |(share, cell)| {
                format!("{} <span class=\"note\">{}</span>", percent(share), escape(&title(scene.results, cell, &axes)))
            });
            let _ = write!(html, "<td class=\"where\">{text}</td>");
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>"
}

/// A parameter set: a row for each contender.
fn one(scene: &Scene<'_>, columns: &[Measure<'_>], cells: &[&Cell]) -> String {
    let mut html = format!("<div class=\"scroll\"><table><thead><tr><th></th>{}</tr></thead><tbody>", head(columns));
    for (name, look) in scene.cast.all() {
        let Some(cell) = cells.iter().find(|cell| cell.contender == name) else {
            continue;
        };
        let _ = write!(html, "<tr class=\"{}\"><td>{}</td>", weight(look.ours), scene.cast.swatch(name));
        for (n, of) in columns.iter().enumerate() {
            let figure = figure_cell(of, of.of(cell));
            html.push_str(&if n == 0 { with_end(figure, cell) } else { figure });
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>"
}

/// Marks the figure of a cell in which a session was over before its run; a pointer tells which and why.
fn with_end(figure: String, cell: &Cell) -> String {
    if cell.ended.is_empty() {
        return figure;
    }
    let told: Vec<String> = cell.ended.iter().map(|run| format!("seed {}: {}", run.seed, run.ended)).collect();
    figure.replacen(
        "</td>",
        &format!(" <abbr class=\"mark-fails\" title=\"{}\">†</abbr></td>", escape(&told.join("; "))),
        1,
    )
}

/// A figure with its interval; what else is known of it for a pointer.
fn figure_cell(of: &Measure<'_>, stat: Option<Stat>) -> String {
    let Some(stat) = stat else {
        return "<td>–</td>".into();
    };
    let interval = match of.plus_minus(&stat) {
        text if text.is_empty() || of.key == "bound" => String::new(),
        text => format!(" <small>{text}</small>"),
    };
    format!("<td title=\"{}\">{}{interval}</td>", escape(&of.full(&stat)), escape(&of.bare(stat.mean)))
}

/// Shares on time by priority, and what blocks up to each priority reach of their bound.
fn by_priority(scene: &Scene<'_>, cells: &[&Cell]) -> String {
    let priorities: BTreeSet<u8> = cells.iter().flat_map(|cell| &cell.priorities).map(|of| of.priority).collect();
    if priorities.len() < 2 {
        return String::new();
    }
    let (on_time, share) = (measure("on_time"), measure("share_of_bound"));
    let mut html = String::from("<h4>By priority</h4><div class=\"scroll\"><table><thead><tr><th></th>");
    for priority in &priorities {
        let _ = write!(html, "<th>{priority} on time</th>");
    }
    for priority in &priorities {
        let up_to = if *priority == 0 { "0".into() } else { format!("0–{priority}") };
        let _ = write!(html, "<th>{up_to} of the bound</th>");
    }
    html.push_str("</tr></thead><tbody>");
    for (name, look) in scene.cast.all() {
        let Some(cell) = cells.iter().find(|cell| cell.contender == name) else {
            continue;
        };
        let _ = write!(html, "<tr class=\"{}\"><td>{}</td>", weight(look.ours), scene.cast.swatch(name));
        let of = |priority| cell.priorities.iter().find(|of| of.priority == priority);
        for &priority in &priorities {
            html.push_str(&figure_cell(&on_time, known(of(priority).map(|of| of.on_time))));
        }
        for &priority in &priorities {
            html.push_str(&figure_cell(&share, known(of(priority).map(|of| of.share_of_bound_up_to))));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>"
}

/// Shares on time by source and bytes by path, where there are several.
fn by_source(scene: &Scene<'_>, cells: &[&Cell]) -> String {
    let sources =
        cells.iter().map(|cell| cell.sources.as_slice()).max_by_key(|sources| sources.len()).unwrap_or_default();
    let sources = if sources.len() > 1 { sources } else { &[] };
    let paths = cells.iter().map(|cell| cell.path_shares.len()).max().filter(|paths| *paths > 1).unwrap_or_default();
    if sources.is_empty() && paths == 0 {
        return String::new();
    }
    let by = match (sources.is_empty(), paths) {
        (false, 0) => "By source",
        (true, _) => "By path",
        _ => "By source and path",
    };
    let mut html = format!("<h4>{by}</h4><div class=\"scroll\"><table><thead><tr><th></th>");
    for source in sources {
        let _ = write!(html, "<th>{} on time</th>", escape(source));
    }
    for path in 0..paths {
        let _ = write!(html, "<th>bytes on path {path}</th>");
    }
    html.push_str("</tr></thead><tbody>");
    for (name, look) in scene.cast.all() {
        let Some(cell) = cells.iter().find(|cell| cell.contender == name) else {
            continue;
        };
        let _ = write!(html, "<tr class=\"{}\"><td>{}</td>", weight(look.ours), scene.cast.swatch(name));
        for n in 0..sources.len() {
            html.push_str(&figure_cell(&measure("on_time"), known(cell.on_time_by_source.get(n).copied())));
        }
        for n in 0..paths {
            let share = cell.path_shares.get(n).filter(|share| !share.is_nan());
            let kinds = cell.path_bytes.get(n).map(by_kind).unwrap_or_default();
            let text = share.map_or("–".into(), |share| percent(*share));
            let _ = write!(html, "<td title=\"{kinds}\">{text}</td>");
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>"
}

/// What of a path's bytes was what.
fn by_kind(sent: &SentBytes) -> String {
    let SentBytes { source, resent, copied, repair } = *sent;
    let share = |bytes: u64| percent(bytes as f64 / sent.total().max(1) as f64);
    let kinds = [(source, "for the first time"), (resent, "again"), (copied, "as copies"), (repair, "as repair data")];
    kinds.map(|(bytes, what)| format!("{} {what}", share(bytes))).join(", ")
}

/// A measure, with an axis along the columns, and contenders by the other axes along the rows.
pub(super) fn axis_by_axis(scene: &Scene<'_>, selection: &Selection<'_>, of: &Measure<'_>) -> String {
    let all: Vec<&Cell> = selection.panels.iter().flat_map(|panel| panel.cells.iter().copied()).collect();
    let columns = selection.x.map_or_else(|| vec![""], |axis| values(&all, axis));
    if let (Some(axis), [panel]) = (selection.x.filter(|_| columns.len() > MOST_ACROSS), &selection.panels[..]) {
        return down(scene, panel, axis, &columns, of);
    }
    // Many columns leave no room for intervals; a pointer still finds them.
    let class = if columns.len() > MOST_WITH_INTERVALS { "dense" } else { "" };
    let heading = escape(&of.heading());
    let mut html = format!("<div class=\"scroll\"><table class=\"{class}\"><thead><tr><th>{heading}</th>");
    for column in &columns {
        let text = selection.x.map_or_else(String::new, |axis| {
            let (name, unit) = &scene.results.axes[axis];
            let named = if columns.len() == 1 { format!("{name} ") } else { String::new() };
            named + &with_unit(column, unit)
        });
        let _ = write!(html, "<th>{}</th>", escape(&text));
    }
    html.push_str("</tr></thead><tbody>");
    for panel in &selection.panels {
        if selection.panels.len() > 1 {
            let (span, title) = (columns.len() + 1, escape(&panel.title));
            let _ = writeln!(html, "<tr class=\"group\"><th colspan=\"{span}\" scope=\"rowgroup\">{title}</th></tr>");
        }
        html.push_str(&rows(scene, panel, selection.x, &columns, of));
    }
    html + "</tbody></table></div>"
}

/// A measure, with an axis down the rows and contenders along the columns; the best of each row is bold.
fn down(scene: &Scene<'_>, panel: &Panel<'_>, axis: usize, values: &[&str], of: &Measure<'_>) -> String {
    let (name, unit) = &scene.results.axes[axis];
    let here = |name: &str| panel.cells.iter().any(|cell| cell.contender == name);
    let names: Vec<&str> = scene.cast.all().map(|(name, _)| name).filter(|name| here(name)).collect();
    let mut html = format!("<div class=\"scroll\"><table class=\"dense\"><thead><tr><th>{}</th>", escape(name));
    for name in &names {
        let _ = write!(html, "<th>{}</th>", scene.cast.swatch(name));
    }
    html.push_str("</tr></thead><tbody>");
    for at in values {
        let cell_of =
            |name: &&str| panel.cells.iter().copied().find(|cell| cell.contender == *name && value(cell, axis) == *at);
        let cells: Vec<Option<&Cell>> = names.iter().map(cell_of).collect();
        let best = best(of, cells.iter().flatten().filter_map(|cell| of.of(cell)).map(|stat| stat.mean));
        let _ = write!(html, "<tr><td>{}</td>", escape(&with_unit(at, unit)));
        cells.into_iter().for_each(|cell| html.push_str(&marked(of, cell, best)));
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>"
}

/// The best of some values, if the measure ranks.
fn best(of: &Measure<'_>, means: impl Iterator<Item = f64>) -> Option<f64> {
    match of.higher {
        Some(true) => means.max_by(f64::total_cmp),
        Some(false) => means.min_by(f64::total_cmp),
        None => None,
    }
}

/// A cell's figure, bold if it is the best.
fn marked(of: &Measure<'_>, cell: Option<&Cell>, best: Option<f64>) -> String {
    let stat = cell.and_then(|cell| of.of(cell));
    let bold = stat.is_some_and(|stat| best == Some(stat.mean));
    let figure = figure_cell(of, stat);
    let figure = if bold { figure.replacen("<td", "<td class=\"best\"", 1) } else { figure };
    match cell {
        Some(cell) => with_end(figure, cell),
        None => figure,
    }
}

/// A panel's contenders by the values of an axis; the best of each value is bold.
fn rows(scene: &Scene<'_>, panel: &Panel<'_>, x: Option<usize>, columns: &[&str], of: &Measure<'_>) -> String {
    let at = |cell: &Cell, column: &str| x.is_none_or(|axis| value(cell, axis) == column);
    let cell_of =
        |name: &str, column: &str| panel.cells.iter().copied().find(|cell| cell.contender == name && at(cell, column));
    let best_of = |column: &&str| {
        let stats = scene.cast.all().filter_map(|(name, _)| of.of(cell_of(name, column)?));
        best(of, stats.map(|stat| stat.mean))
    };
    let best: Vec<Option<f64>> = columns.iter().map(best_of).collect();
    let mut html = String::new();
    for (name, look) in scene.cast.all().filter(|(name, _)| panel.cells.iter().any(|cell| cell.contender == *name)) {
        let _ = write!(html, "<tr class=\"{}\"><td>{}</td>", weight(look.ours), scene.cast.swatch(name));
        for (column, best) in columns.iter().zip(&best) {
            html.push_str(&marked(of, cell_of(name, column), *best));
        }
        html.push_str("</tr>\n");
    }
    html
}

fn weight(ours: bool) -> &'static str {
    if ours { "ours" } else { "theirs" }
}
