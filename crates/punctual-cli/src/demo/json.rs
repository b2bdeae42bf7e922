//! The demo's result as one JSON object.

use std::{path::Path, time::Duration};

use serde::Serialize;

use super::Run;

/// What `punctual demo --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Output<'a> {
    runs: Vec<RunOutput<'a>>,
    report: &'a Path,
}

#[derive(Debug, Serialize)]
struct RunOutput<'a> {
    name: &'a str,
    frames: usize,
    on_time: f64,
    /// Milliseconds; null if infinite, because frames are missing.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    stalls: usize,
    bytes_sent: u64,
    clip: &'a Path,
}

impl<'a> Output<'a> {
    pub(super) fn new(runs: &'a [Run], report: &'a Path) -> Self {
        let ms = |delay: Option<Duration>| delay.map(|delay| (delay.as_secs_f64() * 1e5).round() / 100.0);
        let runs = runs.iter().map(|run| RunOutput {
            name: run.name,
            frames: run.summary.frames,
            on_time: run.summary.on_time,
            p50_ms: ms(run.summary.p50),
            p99_ms: ms(run.summary.p99),
            stalls: run.summary.stalls,
            bytes_sent: run.summary.bytes_sent,
            clip: &run.clip,
        });
        Self { runs: runs.collect(), report }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::demo::metrics::Summary;

    #[test]
    fn it_has_the_promised_shape() {
        let summary = Summary {
            frames: 300,
            on_time: 0.5,
            p50: Some(Duration::from_micros(81_234)),
            p99: None,
            stalls: 2,
            missing: 4,
            bytes_sent: 1_500_000,
        };
        let run = Run { name: "punctual", summary, delays: vec![], carried: vec![], clip: "out/punctual.mp4".into() };
        let output = serde_json::to_value(Output::new(&[run], Path::new("out/report.html"))).unwrap();
        assert_eq!(
            output,
            json!({
                "runs": [{
                    "name": "punctual", "frames": 300, "on_time": 0.5, "p50_ms": 81.23, "p99_ms": null,
                    "stalls": 2, "bytes_sent": 1_500_000, "clip": "out/punctual.mp4",
                }],
                "report": "out/report.html",
            })
        );
    }
}
