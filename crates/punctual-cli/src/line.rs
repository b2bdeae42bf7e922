//! A session in one line.

use crate::{
    stats::{Figures, PathFigures},
    window::{PathWindow, Window},
};

/// Columns of a terminal that has as many as it always had.
pub(crate) const WIDTH: usize = 80;

/// How much is said of each path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// In words.
    Full,
    /// Without the units' spaces, and of health only what is not well.
    Short,
    /// Only how many there are.
    Count,
}

/// As much as fits `width` columns: of many paths less is said of each, and then only how many are well.
pub(crate) fn fitted(now: &Figures, last: &Window, width: usize) -> String {
    let lines = [Detail::Full, Detail::Short, Detail::Count].map(|detail| with(now, last, detail));
    let fits = lines.iter().find(|line| line.chars().count() <= width);
    fits.cloned().unwrap_or_else(|| {
        let [.., shortest] = lines;
        let kept: String = shortest.chars().take(width.saturating_sub(1)).collect();
        format!("{kept}…")
    })
}

/// Everything, however long it is.
pub(crate) fn whole(now: &Figures, last: &Window) -> String {
    format!("{}{:.0} s  {}{}", now.prefix(), now.seconds, now.counts(), paths(now, last, Detail::Full))
}

fn with(now: &Figures, last: &Window, detail: Detail) -> String {
    let missed = now.missed();
    let missed = if missed == 0 { String::new() } else { format!(", {missed} missed") };
    let head = format!("{}{:.0} s  {} on time{missed}", now.prefix(), now.seconds, now.on_time);
    head + &paths(now, last, detail)
}

fn paths(now: &Figures, last: &Window, detail: Detail) -> String {
    if detail == Detail::Count {
        let well = now.paths.iter().filter(|path| path.health == "ok").count();
        return format!(" | {well} of {} paths ok", now.paths.len());
    }
    now.paths.iter().zip(&last.paths).map(|(path, last)| of_path(path, last, detail)).collect()
}

/// Its health, its rate in the window (of the direction that has more), recent loss, and the one-way delay.
fn of_path(path: &PathFigures, last: &PathWindow, detail: Detail) -> String {
    let PathFigures { name, health, .. } = path;
    let megabits = last.sent_per_second.max(last.received_per_second) * 8.0 / 1e6;
    let (loss, delay) = (path.loss * 100.0, path.one_way_delay_ms);
    match (detail, *health) {
        (Detail::Full, _) => format!(" | {name} {health} {megabits:.1} Mb/s {loss:.1} % {delay:.0} ms"),
        (_, "ok") => format!("  {name} {megabits:.1}M {loss:.0}% {delay:.0}ms"),
        _ => format!("  {name} {health}! {megabits:.1}M {loss:.0}% {delay:.0}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Tally;

    fn figures(names: &[&str]) -> (Figures, Window) {
        let mut figures = Tally::default().figures(None, &[], |_| unreachable!());
        (figures.seconds, figures.on_time, figures.late) = (3_600.0, 108_000, 12);
        figures.paths = (0..).zip(names).map(|(id, name)| PathFigures::example(id, name)).collect();
        let window = Window::between(None, &figures);
        (figures, window)
    }

    #[test]
    fn the_more_paths_the_shorter() {
        let (now, last) = figures(&["eth0"]);
        let full = "3600 s  108000 on time, 12 missed | eth0 ok 0.0 Mb/s 1.0 % 23 ms";
        assert_eq!(fitted(&now, &last, WIDTH - 2), full);
        let (mut now, last) = figures(&["eth0", "wlan0"]);
        let short = "3600 s  108000 on time, 12 missed  eth0 0.0M 1% 23ms  wlan0 0.0M 1% 23ms";
        assert_eq!(fitted(&now, &last, WIDTH - 2), short);
        now.paths[0].health = "suspect";
        (now.on_time, now.late) = (300, 0);
        let ill = "3600 s  300 on time  eth0 suspect! 0.0M 1% 23ms  wlan0 0.0M 1% 23ms";
        assert_eq!(fitted(&now, &last, WIDTH - 2), ill);
    }

    #[test]
    fn whatever_there_is_fits() {
        for paths in 0..16 {
            let names: Vec<String> = (0..paths).map(|n| format!("2001:db8::{n}")).collect();
            let (now, last) = figures(&names.iter().map(String::as_str).collect::<Vec<_>>());
            for width in [20, 40, WIDTH - 2] {
                let line = fitted(&now, &last, width);
                assert!(line.chars().count() <= width, "{line}");
            }
        }
        let (now, last) = figures(&["a", "b", "c", "d", "e", "f"]);
        assert!(fitted(&now, &last, WIDTH - 2).ends_with("6 of 6 paths ok"));
    }
}
