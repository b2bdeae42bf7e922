//! The figures as a table on screen.

use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::Run;

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 7] =
    ["transport", "frames on time", "p50 delay", "p99 delay", "stalls", "never there", "bytes sent"];

/// A run's row.
pub(super) fn cells(run: &Run) -> [String; 7] {
    let summary = &run.summary;
    let delay =
        |delay: Option<Duration>| delay.map_or("∞".into(), |delay| format!("{:.0} ms", delay.as_secs_f64() * 1e3));
    [
        run.title().into(),
        format!("{:.1} %", summary.on_time * 100.0),
        delay(summary.p50),
        delay(summary.p99),
        summary.stalls.to_string(),
        summary.missing.to_string(),
        format!("{:.2} MB", summary.bytes_sent as f64 / 1e6),
    ]
}

pub(super) fn render(runs: &[Run]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_header(COLUMNS);
    for run in runs {
        let mut cells = cells(run).map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right));
        cells[0] = Cell::new(run.title());
        table.add_row(cells);
    }
    table.to_string()
}
