use std::collections::BTreeMap;

use super::page;
use crate::{
    record::{LostBytes, SentBytes},
    results::{Cell, EndedRun, Figure, FigureKind, PriorityCell, Results, Stat, Timeline, Verdict},
};

fn stat(mean: f64) -> Stat {
    Stat { mean, half_width: 0.01, min: mean - 0.02, max: mean + 0.02, n: 10 }
}

/// A cell with every measure; shares rise with `x` towards `best`.
fn cell(contender: &str, best: f64, x: f64) -> Cell {
    let share = best * (1.0 - (-x).exp());
    let tail = if share < 0.5 { f64::INFINITY } else { 300.0 / share };
    let stats =
        [("on_time", share), ("bound", 1.0), ("share_of_bound", share), ("p99_ms", tail), ("waste_ratio", 0.02)];
    let never = 1.0 - share;
    Cell {
        params: vec![("bandwidth".into(), format!("{x} MB/s")), ("loss <a&b>".into(), "0".into())],
        numbers: vec![Some(x), Some(0.0)],
        contender: contender.into(),
        seeds: 10,
        stats: stats.map(|(key, value)| (key.to_owned(), stat(value))).into(),
        ended: Vec::new(),
        priorities: (0..2)
            .map(|priority| PriorityCell {
                priority,
                on_time: stat(share),
                bound_up_to: stat(1.0),
                share_of_bound_up_to: stat(share),
            })
            .collect(),
        sources: vec!["camera".into(), "sensor".into()],
        on_time_by_source: vec![stat(share), Stat::default()],
        path_shares: vec![0.7, 0.3],
        path_bytes: vec![SentBytes { source: 60, repair: 10, ..SentBytes::default() }; 2],
        lost: LostBytes::default(),
        wasted_bytes: 0,
        ccdf: vec![(5.0, 0.9), (20.0, never.max(0.1)), (90.0, never), (f64::INFINITY, 0.0)],
        pooled: [("p99_ms:all".to_owned(), stat(tail))].into(),
        timeline: Timeline {
            on_time: vec![vec![share, f64::NAN, 1.0], vec![share, share, 0.5]],
            on_time_min: vec![vec![0.0, f64::NAN, 1.0], vec![0.0, share, 0.4]],
            arrivals_mbps: vec![3.0, 4.0, f64::NAN, 5.0],
            queue_bytes: vec![1e4, 0.0, 2e5],
            bin_ms: 100.0,
        },
    }
}

fn every_figure() -> Vec<Figure> {
    use FigureKind::{Bars, Ccdf, Lines, Rate, Table, Timeline};
    let mut figures = Vec::new();
    for kind in [Lines, Bars, Ccdf, Timeline, Rate, Table] {
        for measure in ["on_time", "p99_ms", "on_time:0", "unheard_of", ""] {
            for log in [false, true] {
                figures.push(Figure {
                    title: format!("{kind:?} of {measure}"),
                    kind,
                    measure: measure.into(),
                    log_x: log,
                    log_y: log,
                    ..Figure::default()
                });
            }
        }
    }
    figures.push(Figure { at: [("bandwidth".into(), "99".into())].into(), ..Figure::default() });
    figures.push(Figure { x: "no such axis".into(), ..Figure::default() });
    figures
}

fn results(cells: Vec<Cell>) -> Results {
    Results {
        name: "made-up".into(),
        title: "A <made-up> experiment & its report".into(),
        axes: vec![("bandwidth".into(), "MB/s".into()), ("loss <a&b>".into(), "%".into())],
        contenders: vec!["ads".into(), "quic".into()],
        verdicts: vec![Verdict {
            must: "ads ≥ 0.95".into(),
            worst: "1 MB/s".into(),
            value: f64::NAN,
            threshold: 0.95,
            ..Verdict::default()
        }],
        command: "punctual eval run made-up".into(),
        setup: "[link]\nrate = \"<3\"\n".into(),
        figures: every_figure(),
        cells,
        ..Results::default()
    }
}

/// Every tag is closed in order, nothing but known entities, and no coordinate is no number.
fn check(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!doctype html>").expect("a document type");
    while let Some(at) = rest.find('<') {
        let (text, after) = rest.split_at(at);
        if open.last() != Some(&"style") {
            assert!(!text.contains('>'), "stray > in {text:?}");
            for entity in text.split('&').skip(1) {
                assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)), "&{entity}");
            }
        }
        let end = after.find('>').expect("an end of the tag");
        let tag = &after[1..end];
        rest = &after[end + 1..];
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        assert!(!tag.contains("NaN") && !tag.replace("infinite", "").contains("inf"), "<{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') && !["meta", "input", "br"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("<script"), "needs something else");
}

#[test]
fn a_page_is_well_formed_and_repeatable() {
    let cells: Vec<Cell> =
        (1..=4).flat_map(|x| [cell("ads", 0.99, f64::from(x)), cell("quic", 0.6, f64::from(x))]).collect();
    let results = results(cells);
    let html = page(&results);
    check(&html);
    assert_eq!(html, page(&results));
    assert!(html.contains("A &lt;made-up&gt; experiment"));
    assert!(html.contains("nothing measured"));
    assert!(html.contains("rate = &quot;&lt;3&quot;"));
}

#[test]
fn nothing_measured_is_a_page_too() {
    check(&page(&Results::default()));
    check(&page(&results(Vec::new())));
    let empty = |contender: &str| Cell { contender: contender.into(), ..Cell::default() };
    check(&page(&results(vec![empty("ads"), empty("quic")])));
}

#[test]
fn one_cell_is_enough() {
    check(&page(&results(vec![cell("ads", 0.9, 2.0)])));
    let no_axes = Cell { params: Vec::new(), numbers: Vec::new(), ..cell("ads", 0.9, 2.0) };
    check(&page(&Results { axes: Vec::new(), ..results(vec![no_axes]) }));
}

#[test]
fn sessions_that_died_are_marked() {
    let mut results = results(vec![cell("ads", 1.0, 1.0), cell("quic", 0.5, 1.0)]);
    results.cells[0].ended = vec![EndedRun { seed: 3, ended: "31.000 s, sender: <silent>".into() }];
    let page = page(&results);
    check(&page);
    assert!(page.contains("In one run a session ended before its time"));
    assert!(page.contains("seed 3: 31.000 s, sender: &lt;silent&gt;\">†</abbr>"));
}

#[test]
fn infinite_and_missing_values_are_drawn() {
    let odd = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -1.0, 1e300];
    let with = |(n, value): (usize, &f64)| {
        let stats: BTreeMap<String, Stat> = ["on_time", "p99_ms", "bound", "share_of_bound"]
            .iter()
            .map(|key| ((*key).to_owned(), stat(*value)))
            .collect();
        let ccdf = vec![(*value, 0.5), (f64::INFINITY, 0.5)];
        Cell { stats, ccdf, ..cell("ads", 0.9, n as f64) }
    };
    let html = page(&results(odd.iter().enumerate().map(with).collect()));
    check(&html);
    assert!(html.contains('∞'));
}

#[test]
fn forty_contenders_fit() {
    let names: Vec<String> = (0..40).map(|n| format!("a-rather-long-contender-name-{n}")).collect();
    let cells = names.iter().flat_map(|name| (1..=3).map(|x| cell(name, 0.9, f64::from(x)))).collect();
    check(&page(&Results { contenders: names, ..results(cells) }));
}

#[test]
fn panels_left_out_are_said_to_be() {
    let cells = (1..=30).map(|x| cell("ads", 0.9, f64::from(x))).collect();
    assert!(page(&results(cells)).contains("12 of 30 parameter sets are drawn."));
}
