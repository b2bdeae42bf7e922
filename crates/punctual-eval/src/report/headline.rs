//! The result in a sentence, and whether it is what it must be.

use std::fmt::Write as _;

use super::{
    cast::Cast,
    select::title,
    words::{Measure, measure},
};
use crate::{
    results::{FailedRun, FigureKind, Results, Verdict},
    svg::escape,
};

/// So many of ours are named in the sentence, beside one other.
const OURS: usize = 2;

/// The result: what the first contenders reached of the measure the experiment is about, beside a reference; a clause each.
pub(super) fn clauses(results: &Results, cast: &Cast) -> Vec<String> {
    let Some(of) = subject(results) else {
        return vec![if results.title.is_empty() { results.name.clone() } else { results.title.clone() }];
    };
    let of = measure(&of);
    let ours =
        cast.all().filter(|(_, look)| look.ours).filter_map(|(name, _)| clause(results, &of, name, true)).take(OURS);
    let mut all: Vec<String> = ours.collect();
    let others = || cast.all().filter(|(_, look)| !look.ours).map(|(name, _)| name);
    // What ours is compared with is the best that plain QUIC can do. Only where there is none, it is another reference.
    let mut baselines: Vec<(f64, &str)> = others()
        .filter(|name| is_plain_quic(name))
        .filter_map(|name| Some((mean(results, &of, name)?, name)))
        .collect();
    match of.higher {
        Some(true) => baselines.sort_by(|a, b| b.0.total_cmp(&a.0)),
        Some(false) => baselines.sort_by(|a, b| a.0.total_cmp(&b.0)),
        None => {}
    }
    let best_first = baselines.into_iter().map(|(_, name)| name);
    all.extend(best_first.chain(others()).find_map(|name| clause(results, &of, name, all.is_empty())));
    all
}

/// Whether a contender is plain QUIC, by its name.
fn is_plain_quic(name: &str) -> bool {
    ["quic", "mpquic"]
        .iter()
        .any(|quic| name.strip_prefix(quic).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '/', '@'])))
}

/// A contender's mean over all parameter sets, infinite where it never was in one of them.
fn mean(results: &Results, of: &Measure<'_>, name: &str) -> Option<f64> {
    let cells = results.cells.iter().filter(|cell| cell.contender == name);
    let values: Vec<f64> = cells.filter_map(|cell| Some(of.of(cell)?.mean)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The measure the experiment is about: its first figure's, but the share of a bound rather than what it is a share of.
fn subject(results: &Results) -> Option<String> {
    let has = |key: &str| {
        let of = measure(key);
        results.cells.iter().any(|cell| of.of(cell).is_some())
    };
    let plotted = |kind| matches!(kind, FigureKind::Lines | FigureKind::Bars | FigureKind::Table);
    let first = results.figures.iter().find(|figure| plotted(figure.kind)).map(|figure| figure.measure.as_str());
    let shares =
        [("on_time", "share_of_bound"), ("bytes_on_time", "bytes_share_of_bound"), ("score", "score_share_of_bound")];
    let share = |key: &str| shares.iter().find(|(of, _)| *of == key).map(|(_, share)| *share);
    let first = first.filter(|key| !key.is_empty()).map(|key| share(key).filter(|share| has(share)).unwrap_or(key));
    [first.unwrap_or("share_of_bound"), "share_of_bound", "on_time"].into_iter().find(|key| has(key)).map(str::to_owned)
}

/// A contender's mean over all parameter sets, and in detail its worst.
fn clause(results: &Results, of: &Measure<'_>, name: &str, detail: bool) -> Option<String> {
    let cells = results.cells.iter().filter(|cell| cell.contender == name);
    let values: Vec<f64> = cells.filter_map(|cell| Some(of.of(cell)?.mean)).collect();
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if finite.is_empty() {
        return (!values.is_empty()).then(|| format!("{name}: never"));
    }
    let mean = of.value(finite.iter().sum::<f64>() / finite.len() as f64);
    let never = match values.len() - finite.len() {
        0 => String::new(),
        never => format!(", never in {never} of {} cases", values.len()),
    };
    if !detail {
        return Some(format!("{name}: {mean}{never}"));
    }
    let what = match of.key {
        "share_of_bound" => "of the bound",
        "score_share_of_bound" => "of the bound on the score",
        "bytes_share_of_bound" => "of the bound in bytes",
        _ if of.share || !of.unit.is_empty() => &of.short,
        _ => &of.title,
    };
    if values.len() == 1 {
        return Some(format!("{name}: {mean} {what}"));
    }
    let worst = match of.higher {
        Some(true) => finite.iter().copied().min_by(f64::total_cmp),
        Some(false) => finite.iter().copied().max_by(f64::total_cmp),
        None => None,
    };
    let worst = worst.filter(|_| never.is_empty()).map_or(never, |worst| format!(", {} at worst", of.value(worst)));
    Some(format!("{name}: {mean} {what} on average{worst}"))
}

/// Most runs that failed that are named one by one.
const MOST_FAILURES: usize = 20;

/// The runs that failed.
pub(super) fn failures(failures: &[FailedRun]) -> String {
    if failures.is_empty() {
        return String::new();
    }
    let runs = if failures.len() == 1 { "One run".to_owned() } else { format!("{} runs", failures.len()) };
    let mut html = format!("<section><h2 class=\"fails\">{runs} failed, and count as nothing on time</h2>\n<ul>\n");
    for FailedRun { place, seed, why } in failures.iter().take(MOST_FAILURES) {
        let _ = writeln!(html, "<li>{}, seed {seed}: {}</li>", escape(place), escape(why));
    }
    html + "</ul></section>\n"
}

/// The sessions that were over before their runs, a line for each run.
pub(super) fn ended(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let runs = if lines.len() == 1 { "one run".to_owned() } else { format!("{} runs", lines.len()) };
    let mut html = format!("<section><h2 class=\"fails\">† In {runs} a session ended before its time</h2>\n<ul>\n");
    for line in lines.iter().take(MOST_FAILURES) {
        let _ = writeln!(html, "<li>{}</li>", escape(line));
    }
    html + "</ul></section>\n"
}

/// The thresholds, each with what was measured.
pub(super) fn verdicts(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let held = verdicts.iter().filter(|verdict| verdict.holds).count();
    let summary = match (held, verdicts.len()) {
        (1, 1) => "The threshold holds".to_owned(),
        (0, 1) => "The threshold is missed".to_owned(),
        (held, all) if held == all => format!("All {all} thresholds hold"),
        (held, all) => format!("{} of {all} thresholds missed", all - held),
    };
    let class = if held == verdicts.len() { "holds" } else { "fails" };
    let mut html = format!("<section><h2 class=\"{class}\">{summary}</h2>\n<ul class=\"verdicts\">\n");
    for verdict in verdicts {
        let (class, mark, word) = if verdict.holds { ("holds", "✔", "holds") } else { ("fails", "✘", "missed") };
        let (value, threshold) = values(verdict);
        let worst = if verdict.worst.is_empty() {
            String::new()
        } else {
            format!("<span class=\"note\">{}</span>", escape(&verdict.worst))
        };
        let _ = writeln!(
            html,
            "<li class=\"{class}\"><span class=\"mark-{class}\" role=\"img\" aria-label=\"{word}\">{mark}</span>\
             <span class=\"must\">{} {worst}</span> <span class=\"measured\">{value} <small>{threshold}</small></span></li>",
            escape(&verdict.must)
        );
    }
    html + "</ul></section>\n"
}

/// A verdict's value and threshold, to as many digits as tell them apart.
fn values(verdict: &Verdict) -> (String, String) {
    let of = measure(&verdict.measure);
    let sign = if verdict.at_most { "≤" } else { "≥" };
    let threshold = of.value(verdict.threshold);
    let value = match of.value(verdict.value) {
        _ if verdict.value.is_nan() => "nothing measured".into(),
        same if same == threshold && verdict.value != verdict.threshold => format!("{:.6}", verdict.value),
        value => value,
    };
    (value, format!("{sign} {threshold}"))
}

/// A note on where a contender is worst, by the share of the bound.
pub(super) fn worst(results: &Results, cast: &Cast) -> Option<String> {
    let of = measure("share_of_bound");
    let (name, _) = cast.all().find(|(_, look)| look.ours)?;
    let cells = results.cells.iter().filter(|cell| cell.contender == name);
    let (share, cell) = cells.filter_map(|cell| Some((of.of(cell)?.mean, cell))).min_by(|a, b| a.0.total_cmp(&b.0))?;
    let axes: Vec<usize> = (0..results.axes.len()).collect();
    let at = title(results, cell, &axes);
    (!at.is_empty() && share < 1.0).then(|| format!("{name} is farthest from the bound at {at}: {}.", of.value(share)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Cell, Stat};

    fn cell(contender: &str, share: f64) -> Cell {
        let stat = Stat { mean: share, n: 10, ..Stat::default() };
        Cell { contender: contender.into(), stats: [("share_of_bound".into(), stat)].into(), ..Cell::default() }
    }

    #[test]
    fn the_sentence_says_average_and_worst() {
        let cells = vec![cell("quic", 0.5), cell("quic", 0.3), cell("ads", 0.99), cell("ads", 0.95)];
        let results = Results { cells, ..Results::default() };
        let cast = Cast::of(&results);
        let said = clauses(&results, &cast);
        assert_eq!(said, ["ads: 97.0\u{a0}% of the bound on average, 95.0\u{a0}% at worst", "quic: 40.0\u{a0}%"]);
    }

    #[test]
    fn runs_that_failed_are_named() {
        let failed = |seed| FailedRun { place: "loss 1, <quic>".into(), seed, why: "the sender …".into() };
        assert!(failures(&[failed(3)]).contains("One run failed"));
        let html = failures(&(0..30).map(failed).collect::<Vec<_>>());
        assert!(
            html.contains("30 runs failed") && html.contains("&lt;quic&gt;, seed 19:") && !html.contains("seed 20")
        );
        assert!(failures(&[]).is_empty());
    }

    #[test]
    fn sessions_that_died_are_named() {
        let line = |seed| format!("<loss> 1, quic, seed {seed}: 31.2 s, sender: the peer fell silent");
        assert!(ended(&[line(3)]).contains("In one run a session ended"));
        let html = ended(&(0..30).map(line).collect::<Vec<_>>());
        assert!(html.contains("30 runs") && html.contains("&lt;loss&gt; 1") && !html.contains("seed 20:"), "{html}");
        assert!(ended(&[]).is_empty());
    }

    #[test]
    fn ours_is_compared_with_the_best_that_plain_quic_can_do() {
        let of = |names: &[(&str, f64)]| {
            let cells: Vec<_> = names.iter().map(|(name, share)| cell(name, *share)).collect();
            let results = Results { cells, ..Results::default() };
            let cast = Cast::of(&results);
            clauses(&results, &cast).pop().unwrap()
        };
        let named = |names: &[(&str, f64)]| of(names).split(':').next().unwrap().to_owned();
        let mut names = vec![("ads", 0.99), ("quic", 0.5), ("quic-by-priority", 0.8), ("sctp", 0.97)];
        assert_eq!(named(&names), "quic-by-priority");
        names.extend([("mpquic-by-priority/bbr3/lowest-rtt", 0.9), ("quic/bbr3@1", 0.85)]);
        assert_eq!(named(&names), "mpquic-by-priority/bbr3/lowest-rtt");
        // By the mean: one good case does not make it the best.
        names.extend([("mpquic-by-priority/bbr3/lowest-rtt", 0.2), ("quic/bbr3@1", 0.84)]);
        assert_eq!(named(&names), "quic/bbr3@1");
        assert_eq!(named(&[("ads", 0.9), ("sctp", 0.97), ("fcfs", 0.5)]), "sctp", "where there is no plain QUIC");
        assert_eq!(named(&[("quick-mine", 0.9), ("quic", 0.1)]), "quic");
    }

    #[test]
    fn less_is_better_where_it_is() {
        let cell = |contender: &str, millis: f64| {
            let stat = Stat { mean: millis, n: 10, ..Stat::default() };
            Cell { contender: contender.into(), stats: [("p99_ms".into(), stat)].into(), ..Cell::default() }
        };
        let figures =
            vec![crate::results::Figure { title: "x".into(), measure: "p99_ms".into(), ..Default::default() }];
        let cells = vec![cell("ads", 50.0), cell("quic", f64::INFINITY), cell("mpquic", 90.0), cell("quic-one", 80.0)];
        let results = Results { cells, figures, ..Results::default() };
        let said = clauses(&results, &Cast::of(&results));
        assert!(said[1].starts_with("quic-one: 80"), "{said:?}");
    }

    #[test]
    fn verdicts_are_counted() {
        let verdict =
            |holds| Verdict { must: "a < b".into(), value: f64::NAN, threshold: 1.0, holds, ..Verdict::default() };
        assert!(verdicts(&[verdict(true), verdict(false)]).contains("1 of 2 thresholds missed"));
        assert!(verdicts(&[verdict(false)]).contains("nothing measured"));
        assert!(verdicts(&[]).is_empty());
    }
}
