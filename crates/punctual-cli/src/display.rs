//! Figures while a session runs: a line that is kept up to date on a terminal, lines now and then in a log, JSON for programs.

use std::{
    collections::BTreeSet,
    io::IsTerminal as _,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use punctual::{Events, PathId};
use serde::Serialize;
use tokio::time::Interval;

use crate::{
    cli::CommonArgs,
    happenings::{Happenings, called},
    line,
    say::say,
    stats::Figures,
    watch::Watch,
    window::Window,
};

/// How often a line is shown where it cannot be kept up to date.
const LOG_EVERY: u32 = 10;

/// Standard error, on which the sessions of this process show their figures. Clones are the same screen.
#[derive(Clone)]
pub(crate) struct Screen {
    /// On a terminal, one line for each session.
    bars: Option<MultiProgress>,
    /// Where there is none, lines now and then.
    log: bool,
    json: bool,
    quiet: bool,
}

impl Screen {
    pub(crate) fn new(common: &CommonArgs) -> Self {
        let shown = !common.quiet && !common.stats_json;
        let terminal = std::io::stderr().is_terminal();
        let bars = (shown && terminal).then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Self { bars, log: shown && !terminal, json: common.stats_json, quiet: common.quiet }
    }

    /// Prints a line, unless it is to be quiet.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            self.beside(|| say!("{text}"));
        }
    }

    /// Prints something without disturbing the lines that are kept up to date.
    pub(crate) fn beside(&self, print: impl FnOnce()) {
        match &self.bars {
            Some(bars) => bars.suspend(print),
            None => print(),
        }
    }
}

/// Shows one session's figures.
pub(crate) struct Display {
    screen: Screen,
    bar: Option<ProgressBar>,
    shown: Mutex<Shown>,
}

/// What was shown last, and how often something was. One session may follow another.
#[derive(Default)]
struct Shown {
    then: Option<Figures>,
    seconds: u32,
}

impl Shown {
    /// What happened since this was asked last, and how often it has been.
    fn until(&mut self, now: &Figures) -> (Window, u32) {
        let last = Window::between(self.then.as_ref(), now);
        self.seconds = self.seconds.wrapping_add(1);
        self.then = Some(now.clone());
        (last, self.seconds)
    }
}

/// A line of `--stats-json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    total: &'a Figures,
    last: &'a Window,
}

impl Display {
    pub(crate) fn new(common: &CommonArgs) -> Self {
        Self::on(Screen::new(common))
    }

    /// A session's place on a screen it may share with others.
    pub(crate) fn on(screen: Screen) -> Self {
        let bar = screen.bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            bars.add(ProgressBar::no_length()).with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        Self { screen, bar, shown: Mutex::default() }
    }

    /// Shows what `figures` gives, once a second, while there is no session, and never returns.
    pub(crate) async fn wait<Never>(&self, figures: impl Fn() -> Figures) -> Never {
        let mut tick = ticks().await;
        loop {
            tick.tick().await;
            self.show(&figures());
        }
    }

    /// Shows what `figures` gives, once a second, and what happens to paths, and never returns. If the session's routes are watched, they
    /// tell which paths there are.
    pub(crate) async fn run<Never>(
        &self,
        events: Events,
        mut routes: Option<&mut Watch>,
        figures: impl Fn() -> Figures,
    ) -> Never {
        let routed = routes.is_some();
        let mut tick = ticks().await;
        // The first path is as old as the session.
        let mut known = BTreeSet::from([0]);
        let mut happenings = Happenings::new(events, routed);
        loop {
            let route = async {
                match &mut routes {
                    Some(watch) => watch.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                line = route => self.tell(&figures(), &line),
                _ = tick.tick() => {
                    let now = figures();
                    for path in now.paths.iter().filter(|path| !["opening", "closed"].contains(&path.health)) {
                        if known.insert(path.id) && !routed {
                            let name = called(PathId(path.id), &name(PathId(path.id), [Some(&now), None]));
                            self.tell(&now, &format!("{name} is open"));
                        }
                    }
                    self.show(&now);
                }
                happening = happenings.next() => {
                    let now = figures();
                    let line = happening.line(|id| name(id, [Some(&now), self.shown().then.as_ref()]));
                    self.tell(&now, &line);
                }
            }
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what there is now, and what happened since that was done last.
    fn show(&self, now: &Figures) {
        let (last, seconds) = self.shown().until(now);
        self.draw(&last, now, seconds);
    }

    fn draw(&self, last: &Window, now: &Figures, seconds: u32) {
        if let Some(bar) = &self.bar {
            // The spinner and a space come before it.
            bar.set_message(line::fitted(now, last, line::WIDTH - 2, seconds));
            bar.tick();
        }
        if self.screen.log && seconds.is_multiple_of(LOG_EVERY) {
            say!("{}", line::whole(now, last));
        }
        if self.screen.json
            && let Ok(json) = serde_json::to_string(&Report { total: now, last })
        {
            say!("{json}");
        }
    }

    /// Says something before there is a session.
    pub(crate) fn say(&self, text: &str) {
        if self.bar.is_some() || self.screen.log {
            self.screen.say(text);
        }
    }

    /// Says something of the session beside its figures. Where standard error is for programs, it is in those.
    fn tell(&self, now: &Figures, text: &str) {
        if self.bar.is_some() || self.screen.log {
            self.screen.say(&format!("{}{:.1} s  {text}", now.prefix(), now.seconds));
        }
    }
}

/// One a second from now on, when there is nothing to show yet.
async fn ticks() -> Interval {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.tick().await;
    ticks
}

/// What a path is called, also if it has just gone.
fn name(id: PathId, figures: [Option<&Figures>; 2]) -> String {
    let mut paths = figures.into_iter().flatten().flat_map(|figures| &figures.paths);
    paths.find(|path| path.id == id.0).map_or_else(|| id.to_string(), |path| path.name.clone())
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual::{Delivery, Outcome};

    use super::*;
    use crate::{path_figures::PathFigures, stats::Tally};

    #[test]
    fn a_session_that_follows_another_begins_no_window() {
        let tally = Tally::default();
        let delivered = || {
            tally.handed_over();
            let delivery = Delivery::new(Duration::from_millis(5), None, 10);
            tally.ended(&Outcome::Delivered(delivery), None, Duration::ZERO, 10);
        };
        let path = |packets_sent| PathFigures { packets_sent, ..PathFigures::example(0, "wifi") };
        let figures = |paths: &[PathFigures]| {
            let mut figures = tally.figures(None, &[], |_| unreachable!());
            figures.paths = paths.to_vec();
            figures
        };
        let mut shown = Shown::default();
        delivered();
        let (first, _) = shown.until(&figures(&[path(100)]));
        assert_eq!((first.blocks, first.paths[0].packets_sent), (1, 100));
        // Its first path has the same number, and has sent less; the one before had ten packets more until it ended.
        delivered();
        delivered();
        let (last, seconds) = shown.until(&figures(&[path(30), path(110).closed()]));
        assert_eq!((last.blocks, last.paths.len(), last.paths[0].packets_sent, seconds), (2, 1, 40, 2));
    }
}
