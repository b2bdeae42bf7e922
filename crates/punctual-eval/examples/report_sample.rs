//! Writes the report of made-up results to the file named: for work on the page's looks. No number in it was measured.

use std::{env, fs, io, process::ExitCode};

use punctual_eval::{
    report,
    results::{Cell, Figure, FigureKind, PriorityCell, Results, Stat, Timeline, Verdict},
};

/// Name, capacity it makes good use of, delay it adds, and how unfair it is to priority 0.
const CONTENDERS: [(&str, f64, f64, f64); 6] = [
    ("ads", 0.97, 12.0, 0.0),
    ("admission", 0.995, 9.0, 0.0),
    ("dtp-d", 0.88, 18.0, 0.5),
    ("sctp", 0.6, 60.0, 0.9),
    ("mpquic", 0.45, 80.0, 1.0),
    ("quic", 0.38, 95.0, 1.0),
];

fn main() -> ExitCode {
    let Some(path) = env::args().nth(1) else {
        eprintln!("usage: report_sample FILE.html");
        return ExitCode::FAILURE;
    };
    match write(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(path: &str) -> io::Result<()> {
    fs::write(path, report::page(&sample()))
}

fn sample() -> Results {
    let cells = [0.0, 1.0, 5.0]
        .iter()
        .flat_map(|loss| (1..=10).map(move |bandwidth| (f64::from(bandwidth), *loss)))
        .flat_map(|(bandwidth, loss)| CONTENDERS.map(|contender| cell(contender, bandwidth, loss)));
    let figure = |title: &str, kind, measure: &str| Figure {
        title: title.into(),
        kind,
        measure: measure.into(),
        ..Figure::default()
    };
    let at = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Results {
        name: "made-up-bandwidth".into(),
        title: "Blocks on time over bandwidth (made-up numbers)".into(),
        about: "Three blocks of 200 KB with priorities 0 to 2, every 100 ms, with a deadline of 200 ms, over one link. No number \
                on this page was measured."
            .into(),
        source: "nobody, figure 0".into(),
        axes: vec![("bandwidth".into(), "MB/s".into()), ("loss".into(), "%".into())],
        contenders: CONTENDERS.iter().map(|contender| contender.0.to_owned()).collect(),
        cells: cells.collect(),
        verdicts: vec![
            Verdict {
                must: "ads: share of the bound at least 0.95 at every bandwidth".into(),
                worst: "bandwidth 1 MB/s, loss 5 %".into(),
                value: 0.968,
                threshold: 0.95,
                holds: true,
            },
            Verdict {
                must: "admission: share of the bound at least 0.98 at every bandwidth".into(),
                worst: "bandwidth 2 MB/s, loss 5 %".into(),
                value: 0.974,
                threshold: 0.98,
                holds: false,
            },
        ],
        command: "punctual eval run made-up-bandwidth --seeds 10".into(),
        setup: "name = \"made-up-bandwidth\"\nseeds = 10\n\n[axes]\nbandwidth = { from = 1, to = 10, unit = \"MB/s\" }\n".into(),
        figures: vec![
            Figure {
                at: at(&[("loss", "1")]),
                ..figure("Blocks on time over bandwidth", FigureKind::Lines, "on_time")
            },
            figure("Blocks on time over bandwidth, by loss", FigureKind::Lines, "on_time"),
            Figure {
                at: at(&[("loss", "1")]),
                ..figure("Share of the bound", FigureKind::Lines, "share_of_bound")
            },
            Figure {
                at: at(&[("loss", "1")]),
                log_y: true,
                ..figure("The slowest block in a hundred", FigureKind::Lines, "p99_ms")
            },
            Figure {
                x: "loss".into(),
                at: at(&[("bandwidth", "4")]),
                ..figure("By loss", FigureKind::Bars, "on_time")
            },
            Figure {
                x: "loss".into(),
                at: at(&[("bandwidth", "4"), ("loss", "1")]),
                ..figure("At one place", FigureKind::Bars, "goodput_mbps")
            },
            Figure {
                at: at(&[("bandwidth", "4"), ("loss", "1")]),
                log_x: true,
                ..figure("Latency", FigureKind::Ccdf, "")
            },
            Figure { at: at(&[("loss", "1")]), log_x: true, ..figure("Latency by bandwidth", FigureKind::Ccdf, "") },
            Figure {
                at: at(&[("bandwidth", "4"), ("loss", "1")]),
                ..figure("The run, second by second", FigureKind::Timeline, "")
            },
            Figure {
                at: at(&[("bandwidth", "4"), ("loss", "1")]),
                ..figure("Rate and queue", FigureKind::Rate, "")
            },
            figure("On time", FigureKind::Table, "on_time"),
        ],
    }
}

fn stat(mean: f64, half_width: f64) -> Stat {
    Stat { mean, half_width, min: mean - 2.0 * half_width, max: mean + 2.0 * half_width, n: 10 }
}

/// A number in 0..1 that looks random and is always the same.
fn noise(seed: f64) -> f64 {
    (seed * 12.9898).sin().abs() * 43_758.545_3 % 1.0
}

fn cell((contender, use_of, delay, unfair): (&str, f64, f64, f64), bandwidth: f64, loss: f64) -> Cell {
    let bound = (bandwidth / 6.3 * (1.0 - loss / 100.0)).min(1.0);
    let crowd = 1.0 - use_of;
    let share = (1.0 - crowd * (1.0 + loss / 4.0) * (10.0 / (bandwidth + 3.0)).min(1.6)).clamp(0.02, 1.0)
        + 0.01 * noise(bandwidth + delay);
    let share = share.min(0.9995);
    let on_time = bound * share;
    let width = 0.004 + 0.03 * noise(bandwidth * 3.0 + loss + delay) * (1.0 - share);
    let never = (1.0 - share) * 0.3;
    let spread = delay * (1.0 + loss) * 6.0 / bandwidth;
    let quantile = |tail: f64| if tail <= never * 0.5 { f64::INFINITY } else { 20.0 + spread * (1.0 / tail).ln() };
    let stats = [
        ("on_time", stat(on_time, width)),
        ("bound", stat(bound, 0.0)),
        ("share_of_bound", stat(share, width)),
        ("p50_ms", stat(quantile(0.5), 0.8)),
        ("p99_ms", stat(quantile(0.01), 14.0)),
        ("p999_ms", stat(quantile(0.001), 40.0)),
        ("goodput_mbps", stat(48.0 * on_time, 0.6)),
        ("waste_ratio", stat((1.0 - share) * 0.4, 0.002)),
    ];
    let by_priority = |priority: u8| {
        let lag = f64::from(priority) * (1.0 - unfair) * (1.0 - on_time) * 0.7;
        let on_time = (on_time.powf(0.15 + unfair) - lag).clamp(0.0, 1.0);
        let bound = (bound * 3.0 / f64::from(priority + 1)).min(1.0);
        PriorityCell {
            priority,
            on_time: stat(on_time, width),
            bound_up_to: stat(bound, 0.0),
            share_of_bound_up_to: stat((on_time / bound).min(1.0), width),
        }
    };
    let tails = (0..120).map(|n| 10f64.powf(-f64::from(n) / 30.0)).filter(|tail| *tail > never);
    let second = |n: u32, priority: usize| {
        let hit = if (5..10).contains(&n) { 0.35 + 0.3 * priority as f64 } else { 0.02 };
        (1.0 - hit * (1.0 - share) * 3.0 - 0.03 * noise(f64::from(n) + delay)).clamp(0.0, 1.0)
    };
    let course = |least: f64| (0..3).map(|p| (0..15).map(|n| (second(n, p) - least).max(0.0)).collect()).collect();
    let rate = |n: u32| if (50..100).contains(&n) { 16.0 } else { 48.0 };
    Cell {
        params: vec![("bandwidth".into(), bandwidth.to_string()), ("loss".into(), loss.to_string())],
        numbers: vec![Some(bandwidth), Some(loss)],
        contender: contender.into(),
        seeds: 10,
        stats: stats.map(|(key, stat)| (key.to_owned(), stat)).into(),
        priorities: (0..3).map(by_priority).collect(),
        sources: vec!["camera".into()],
        on_time_by_source: vec![stat(on_time, width)],
        path_shares: vec![1.0],
        ccdf: tails.map(|tail| (20.0 + spread * (1.0 / tail).ln(), tail)).collect::<Vec<_>>(),
        timeline: Timeline {
            on_time: course(0.0),
            on_time_min: course(0.06),
            arrivals_mbps: (0..150).map(|n| (rate(n) * (share - 0.1 * noise(f64::from(n) * delay))).max(0.0)).collect(),
            queue_bytes: (0..150).map(|n| 4e3 * delay * (0.4 + 0.6 * noise(f64::from(n) + delay))).collect(),
            bin_ms: 100.0,
        },
    }
}
