//! What happened between two moments: the difference of two sets of figures.

use serde::Serialize;

use crate::{
    path_figures::PathFigures,
    sent::SentFigures,
    stats::{Figures, quantile_ms},
};

/// What a session did lately.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Window {
    /// How long it is.
    pub(crate) seconds: f64,
    pub(crate) blocks: u64,
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    pub(crate) bytes: u64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) sent: Option<SentFigures>,
    pub(crate) paths: Vec<PathWindow>,
}

/// What the paths of a name did lately: those that are closed, too. Its gauges (round trip, window and the like) are of the moment anyway.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PathWindow {
    pub(crate) name: String,
    /// UDP payload, bytes per second.
    pub(crate) sent_per_second: f64,
    pub(crate) received_per_second: f64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    /// Of blocks, as in the totals.
    pub(crate) source_bytes: u64,
    pub(crate) resent_bytes: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) repair_bytes: u64,
}

impl Window {
    /// From `then`, or from the beginning if that is `None`, until `now`.
    pub(crate) fn between(then: Option<&Figures>, now: &Figures) -> Self {
        let before = |count: fn(&Figures) -> u64| then.map_or(0, count);
        // What a receiver's refusal takes back makes counts fall.
        let since = |count: fn(&Figures) -> u64| count(now).saturating_sub(before(count));
        let seconds = now.seconds - then.map_or(0.0, |then| then.seconds);
        let mut delays = now.delays.clone();
        if let Some(then) = then {
            // It fails where the earlier has what the later lacks; then they were begun anew.
            let _ = delays.subtract(&then.delays);
        }
        let before = then.map_or(&[][..], |then| &then.paths);
        // Of a name that nothing has been called by in the window there is nothing to say.
        let open = now.paths.iter().chain(before).filter(|path| !path.is_closed()).map(|path| &path.name);
        let mut paths: Vec<PathWindow> = Vec::new();
        for name in open.filter(|name| now.paths.iter().any(|path| path.name == **name)) {
            if paths.iter().all(|known| known.name != *name) {
                paths.push(PathWindow::between(before, &now.paths, name, seconds));
            }
        }
        Self {
            seconds: (seconds * 1e3).round() / 1e3,
            blocks: since(|figures| figures.blocks),
            on_time: since(|figures| figures.on_time),
            late: since(|figures| figures.late),
            dropped: since(|figures| figures.dropped),
            bytes: since(|figures| figures.bytes),
            p50_ms: quantile_ms(&delays, 0.5),
            p99_ms: quantile_ms(&delays, 0.99),
            sent: now.sent.map(|sent| sent.since(then.and_then(|then| then.sent.as_ref()))),
            paths,
        }
    }
}

impl PathWindow {
    /// Of all paths that are called `name`.
    fn between(then: &[PathFigures], now: &[PathFigures], name: &str, seconds: f64) -> Self {
        let total = |paths: &[PathFigures], count: fn(&PathFigures) -> u64| {
            paths.iter().filter(|path| path.name == name).map(count).sum::<u64>()
        };
        let since = |count| total(now, count).saturating_sub(total(then, count));
        let per_second = |bytes: u64| if seconds > 0.0 { (bytes as f64 / seconds).round() } else { 0.0 };
        Self {
            name: name.to_owned(),
            sent_per_second: per_second(since(|path| path.bytes_sent)),
            received_per_second: per_second(since(|path| path.bytes_received)),
            packets_sent: since(|path| path.packets_sent),
            packets_lost: since(|path| path.packets_lost),
            source_bytes: since(|path| path.source_bytes),
            resent_bytes: since(|path| path.resent_bytes),
            copied_bytes: since(|path| path.copied_bytes),
            repair_bytes: since(|path| path.repair_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual::{Delivery, Outcome};

    use super::*;
    use crate::stats::Tally;

    #[test]
    fn a_path_that_is_closed_has_a_window_until_then() {
        let figures = |paths: &[PathFigures]| {
            let mut figures = Tally::default().figures(None, &[], |_| unreachable!());
            figures.paths = paths.to_vec();
            figures
        };
        let path = |name: &str, source_bytes| PathFigures { source_bytes, ..PathFigures::example(0, name) };
        let told = |then: &Figures, now: &Figures| -> Vec<(String, u64)> {
            let paths = Window::between(Some(then), now).paths;
            paths.into_iter().map(|path| (path.name, path.source_bytes)).collect()
        };
        let both = figures(&[path("usb0", 100), path("wlan0", 50)]);
        let one = figures(&[path("wlan0", 60), path("usb0", 107).closed()]);
        assert_eq!(told(&both, &one), [("wlan0".to_owned(), 10), ("usb0".to_owned(), 7)]);
        let again = figures(&[path("wlan0", 60), path("usb0", 3), path("usb0", 107).closed()]);
        assert_eq!(told(&one, &one), [("wlan0".to_owned(), 0)]);
        assert_eq!(told(&one, &again), [("wlan0".to_owned(), 0), ("usb0".to_owned(), 3)]);
        // A receiver calls all that are closed by one name, which is that of none that is open.
        let closed = figures(&[path("wlan0", 60), path("closed", 107).closed()]);
        assert_eq!(told(&both, &closed), [("wlan0".to_owned(), 10)]);
    }

    #[test]
    fn a_window_has_what_came_since() {
        let tally = Tally::default();
        let delivered = |ms| {
            tally.handed_over();
            let completion = Duration::from_millis(ms);
            tally.ended(&Outcome::Delivered(Delivery::new(completion, None, 10)), None, Duration::ZERO, 10);
        };
        delivered(500);
        let then = tally.figures(None, &[], |_| unreachable!());
        delivered(20);
        delivered(20);
        let now = tally.figures(None, &[], |_| unreachable!());
        let window = Window::between(Some(&then), &now);
        assert_eq!((window.blocks, window.on_time, window.bytes), (2, 2, 20));
        assert_eq!(window.p99_ms.map(f64::round), Some(20.0), "of all of them it is 500 ms");
        let whole = Window::between(None, &now);
        assert_eq!((whole.blocks, whole.p99_ms.map(f64::round)), (3, Some(500.0)));
    }
}
