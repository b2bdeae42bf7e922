use super::*;
use crate::results::{EndedRun, Figure, PriorityCell};

fn stat(mean: f64, half_width: f64, n: u32) -> Stat {
    Stat { mean, half_width, n, ..Stat::default() }
}

fn cell(at: [&str; 2], contender: &str, stats: &[(&str, Stat)]) -> Cell {
    Cell {
        params: vec![("bandwidth".into(), at[0].into()), ("loss".into(), at[1].into())],
        contender: contender.into(),
        seeds: stats.iter().map(|of| of.1.n).max().unwrap_or(1),
        stats: stats.iter().map(|(key, stat)| ((*key).to_owned(), *stat)).collect(),
        ..Cell::default()
    }
}

fn results(cells: Vec<Cell>) -> Results {
    let axes = vec![("bandwidth".into(), "MB/s".into()), ("loss".into(), "%".into())];
    Results { name: "made-up".into(), axes, cells, ..Results::default() }
}

#[test]
fn shares_are_pivoted_beside_the_bound() {
    let bound = ("bound", stat(1.0, 0.0, 3));
    let mut results = results(vec![
        cell(["2", "0"], "ads", &[("on_time", stat(0.9931, 0.0024, 3)), bound]),
        cell(["2", "0"], "quic|x", &[("on_time", stat(0.25, 0.0001, 3)), bound]),
        cell(["3", "0"], "ads", &[("on_time", stat(1.0, 0.0, 3)), bound]),
    ]);
    let verdict = |must: &str, value, holds| Verdict {
        must: must.into(),
        measure: "on_time".into(),
        worst: "bandwidth 2 MB/s".into(),
        value,
        threshold: 0.99,
        holds,
        ..Verdict::default()
    };
    results.verdicts =
        vec![verdict("a <b>", 0.9931, true), verdict("more", 0.98999, false), verdict("some", f64::NAN, false)];
    results.unjudged = ["less", "as much"].map(String::from).to_vec();
    results.failures = vec![FailedRun { place: "bandwidth 2".into(), seed: 3, why: "it is | stuck".into() }];
    assert_eq!(
        page(&results),
        "\
### `made-up`

On time, %: means of 3 seeds, ± half the 95 % interval where it is not 0. At loss 0 %.

| bandwidth, MB/s | bound | `ads` | `quic\\|x` |
| --- | ---: | ---: | ---: |
| 2 | 100.0 | 99.3 ± 0.2 | 25.0 |
| 3 | 100.0 | 100.0 | – |

- failed: bandwidth 2, seed 3: it is \\| stuck

| | must show | measured | threshold | where |
| --- | --- | ---: | ---: | --- |
| yes | a \\<b> | 99.3 % | ≥ 99.0 % | bandwidth 2 MB/s |
| **no** | more | 98.999 % | ≥ 99.000 % | bandwidth 2 MB/s |
| **no** | some | nothing measured | ≥ 99.0 % | bandwidth 2 MB/s |

Thresholds not judged, as what they are about was not run: 2.
"
    );
}

#[test]
fn a_rate_is_no_share_and_one_seed_has_no_interval() {
    let mut results = results(vec![
        cell(["2", "0"], "ads", &[("bulk_mbps", stat(47.94, 0.0, 1))]),
        cell(["2", "5"], "ads", &[("bulk_mbps", stat(6.951, 0.0, 1))]),
        cell(["3", "5"], "ads", &[("bulk_mbps", stat(f64::INFINITY, 0.0, 1))]),
    ]);
    results.figures = vec![Figure { measure: "bulk_mbps".into(), ..Figure::default() }];
    let page = page(&results);
    assert!(page.contains("Rate of the bulk transfer, Mbit/s: one seed.\n"), "{page}");
    assert!(page.contains("| bandwidth, MB/s / loss, % | `ads` |\n| --- | ---: |\n"), "{page}");
    assert!(page.contains("| 2 / 0 | 47.9 |\n| 2 / 5 | 6.95 |\n| 3 / 5 | ∞ |\n"), "{page}");
    assert!(!page.contains("must show"), "{page}");
}

#[test]
fn a_session_that_died_is_marked() {
    let mut results = results(vec![
        cell(["2", "0"], "ads", &[("on_time", stat(0.5, 0.0, 1))]),
        cell(["2", "0"], "quic", &[("on_time", stat(0.25, 0.0, 1))]),
    ]);
    results.cells[0].ended = vec![EndedRun { seed: 1, ended: "31.2 s, sender: the peer fell silent".into() }];
    let page = page(&results);
    assert!(page.contains("\n| 50.0 † | 25.0 |\n"), "{page}");
    let told =
        "† Sessions that ended before their time:\n\n- 2, 0, ads, seed 1: 31.2 s, sender: the peer fell silent\n";
    assert!(page.contains(told), "{page}");
}

#[test]
fn without_axes_there_is_no_column_for_them() {
    let mut one = cell(["2", "0"], "ads", &[("jain", stat(0.954, 0.02, 2))]);
    one.params.clear();
    let figures = vec![Figure { measure: "jain".into(), ..Figure::default() }];
    let page = page(&Results { cells: vec![one], figures, ..Results::default() });
    assert!(page.contains("Jain's index: means of 2 seeds"), "{page}");
    assert!(page.contains("\n| `ads` |\n| ---: |\n| 0.95 ± 0.02 |\n"), "{page}");
}

#[test]
fn the_main_measure_is_what_the_experiment_is_about() {
    let stats = ["on_time", "queue_p95_ms", "carried_in_window"].map(|key| (key, stat(0.5, 0.0, 1)));
    let figure = |kind, measure: &str| Figure { kind, measure: measure.into(), ..Figure::default() };
    let of = |figures: Vec<Figure>, judged: &str| {
        let verdicts = vec![Verdict { measure: judged.into(), ..Verdict::default() }];
        let mut results = Results { figures, verdicts, ..results(vec![cell(["2", "0"], "ads", &stats)]) };
        results.cells[0].priorities = vec![PriorityCell { on_time: stat(1.0, 0.0, 1), ..PriorityCell::default() }];
        main_measure(&results).map(str::to_owned).unwrap()
    };
    let bars = figure(FigureKind::Bars, "queue_p95_ms");
    assert_eq!(of(vec![bars.clone()], "on_time"), "queue_p95_ms");
    let course = figure(FigureKind::Timeline, "");
    assert_eq!(of(vec![course.clone(), bars.clone()], "carried_in_window"), "carried_in_window");
    assert_eq!(of(vec![course, bars], "on_time:0"), "on_time", "of all priorities");
    assert_eq!(of(vec![figure(FigureKind::Bars, "on_time:0")], "on_time"), "on_time:0");
    assert_eq!(
        of(vec![figure(FigureKind::Lines, "bulk_mbps")], ""),
        "on_time",
        "of what there is none, nothing is shown"
    );
    assert_eq!(main_measure(&Results::default()), None);
    assert!(page(&Results::default()).contains("No run had a value."));
}

#[test]
fn the_gauntlet_is_told_by_paths() {
    use crate::gauntlet::{CellResults, Overall, Quantiles, Results, Score, Standing, Summary};
    let cell = |number, paths, share| CellResults {
        number,
        paths,
        hard: vec!["load".into()],
        scores: vec![Score {
            contender: "ads".into(),
            all: Standing { share, ..Standing::default() },
            ..Score::default()
        }],
        ..CellResults::default()
    };
    let all = Overall { shares: Quantiles { cells: 3, mean: 0.8, ..Quantiles::default() }, ..Overall::default() };
    let results = Results {
        first: 7,
        seeds: 2,
        cells: vec![cell(7, 1, 0.9), cell(8, 2, 0.7), cell(9, 2, 0.8)],
        summaries: vec![Summary { contender: "ads".into(), all, failed: 1, ..Summary::default() }],
        verdicts: vec![Verdict {
            must: "hold".into(),
            value: 0.02,
            threshold: 0.01,
            at_most: true,
            ..Verdict::default()
        }],
        ..Results::default()
    };
    let page = gauntlet(&results);
    assert!(page.starts_with("### Gauntlet, cells 7 to 9\n") && page.contains("2 seeds each"), "{page}");
    assert!(page.contains("| | all 3 | one path (1) | 2 paths (2) | easy (0) | first second |"), "{page}");
    assert!(page.contains("| `ads` | 80.0 | 90.0 | 75.0 | – | 0.0 | 0, 0 | 0, 0 |"), "{page}");
    assert!(page.contains("nothing on time: 1.") && page.contains("| **no** | hold | 2.0 % | ≤ 1.0 % |"), "{page}");
}
