//! The plots of the report.

use std::time::Duration;

use punctual_eval::svg::{Anchor, Svg};

use super::{
    super::{Run, scenario::LinkSpec, stage::Stage},
    scale::Scale,
};
use crate::link::relay::BIN;

/// Width of a plot across the page, in its own units; text is 12 of them high.
const WIDTH: f64 = 1000.0;
/// Room for the labels on the left and on the right.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;

/// The clip and the network on a common clock.
pub(super) struct Scene<'a> {
    pub(super) stage: &'a Stage,
    pub(super) runs: &'a [Run],
}

impl Scene<'_> {
    fn seconds(&self) -> f64 {
        (self.stage.interval * self.stage.frames.len() as u32).as_secs_f64()
    }

    fn time(&self, width: f64) -> Scale {
        Scale::linear((0.0, self.seconds()), (LEFT, width - RIGHT))
    }

    fn deadline_ms(&self) -> f64 {
        self.stage.scenario.deadline.as_secs_f64() * 1e3
    }

    /// Stretches of time in which some path has less than its best rate.
    fn dips(&self) -> Vec<(f64, f64)> {
        let end = self.seconds();
        let links = self.stage.scenario.paths.iter().map(|path| &path.up);
        links.flat_map(|link| dips(link, end)).collect()
    }

    /// Delay of each frame over time, one strip for each run, all on one scale.
    pub(super) fn delays(&self) -> String {
        const STRIP: f64 = 150.0;
        const TOP: f64 = 26.0;
        let height = self.runs.len() as f64 * (STRIP + TOP) + 30.0;
        let mut svg = Svg::new(WIDTH, height, "delay of each frame over time");
        let x = self.time(WIDTH);
        for (run, n) in self.runs.iter().zip(0..) {
            let top = f64::from(n) * (STRIP + TOP) + TOP;
            self.delay_strip(&mut svg, run, &x, &self.delay_scale((top + STRIP, top)));
        }
        time_axis(&mut svg, &x, height - 28.0);
        svg.finish()
    }

    fn delay_strip(&self, svg: &mut Svg, run: &Run, x: &Scale, y: &Scale) {
        let (bottom, top) = y.range;
        self.shade(svg, x, top, bottom - top);
        let on_time = format!("{} {} on time", run.title(), percent(run.summary.on_time));
        svg.text(&format!("run {}", run.name), (LEFT, top - 8.0), Anchor::Start, &on_time);
        for tick in ticks(y) {
            svg.line("grid", (LEFT, y.at(tick)), (WIDTH - RIGHT, y.at(tick)));
            svg.text("", (LEFT - 8.0, y.at(tick) + 4.0), Anchor::End, &milliseconds(tick));
        }
        let deadline = y.at(self.deadline_ms());
        svg.line("deadline", (LEFT, deadline), (WIDTH - RIGHT, deadline));
        svg.text("late", (WIDTH - RIGHT, deadline - 5.0), Anchor::End, "deadline");
        for ((frame, delay), n) in self.stage.frames.iter().zip(&run.delays).zip(0u32..) {
            let at = x.at((self.stage.interval * n).as_secs_f64());
            let what = format!("frame {n} ({}, {:.1} KB)", frame.kind.letter(), frame.data.len() as f64 / 1e3);
            match delay {
                None => svg.cross("lost", (at, top + 5.0), &format!("{what}: never")),
                Some(delay) => {
                    let ms = delay.as_secs_f64() * 1e3;
                    let class = if *delay > self.stage.scenario.deadline { "late" } else { run.name };
                    svg.dot(class, (at, y.at(ms)), 2.2, &format!("{what}: {ms:.0} ms"));
                }
            }
        }
    }

    /// From the best to the worst delay of any run, whole powers or halves thereof.
    fn delay_scale(&self, range: (f64, f64)) -> Scale {
        let all = || self.runs.iter().flat_map(|run| &run.delays).flatten().map(|delay| delay.as_secs_f64() * 1e3);
        let low = all().fold(self.deadline_ms() / 4.0, f64::min);
        let high = all().fold(self.deadline_ms() * 4.0, f64::max);
        Scale::log((low.max(1.0) * 0.9, high * 1.15), range)
    }

    /// Share of frames with at most a given delay.
    pub(super) fn distribution(&self) -> String {
        const W: f64 = 480.0;
        const H: f64 = 300.0;
        let mut svg = Svg::new(W, H, "share of frames by delay");
        let mut x = self.delay_scale((0.0, 0.0));
        x.range = (LEFT, W - RIGHT);
        let y = Scale::linear((0.0, 1.0), (H - 46.0, 12.0));
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            svg.line("grid", (x.range.0, y.at(share)), (x.range.1, y.at(share)));
            svg.text("", (LEFT - 8.0, y.at(share) + 4.0), Anchor::End, &format!("{:.0} %", share * 100.0));
        }
        for tick in ticks(&x) {
            svg.text("", (x.at(tick), H - 28.0), Anchor::Middle, &milliseconds(tick));
        }
        svg.text("", (x.range.1, H - 8.0), Anchor::End, "delay");
        let deadline = x.at(self.deadline_ms());
        svg.line("deadline", (deadline, y.range.0), (deadline, y.range.1));
        for run in self.runs {
            let mut delays: Vec<f64> = run.delays.iter().flatten().map(|delay| delay.as_secs_f64() * 1e3).collect();
            delays.sort_by(f64::total_cmp);
            let share = |n: usize| n as f64 / run.delays.len().max(1) as f64;
            let steps = delays.iter().zip(0..).flat_map(|(&ms, n)| [(ms, share(n)), (ms, share(n + 1))]);
            let last = (x.domain.1, share(delays.len()));
            svg.curve(run.name, steps.chain([last]).map(|(ms, share)| (x.at(ms), y.at(share))), "");
        }
        svg.finish()
    }

    /// What the paths can carry over time, against what the clip needs.
    pub(super) fn network(&self) -> String {
        const H: f64 = 180.0;
        let mut svg = Svg::new(WIDTH, H, "capacity of the paths and rate of the clip over time");
        let x = self.time(WIDTH);
        let links: Vec<&LinkSpec> = self.stage.scenario.paths.iter().map(|path| &path.up).collect();
        let best: f64 = links.iter().map(|link| best_rate(link)).sum();
        let y = Scale::linear((0.0, best / 1e6 * 1.1), (H - 30.0, 8.0));
        self.shade(&mut svg, &x, y.range.1, y.range.0 - y.range.1);
        self.rate_axis(&mut svg, &y, WIDTH);
        let mut moments: Vec<f64> =
            links.iter().flat_map(|link| &link.rates).map(|&(from, _)| from.as_secs_f64()).collect();
        moments.push(self.seconds());
        moments.sort_by(f64::total_cmp);
        moments.dedup();
        for span in moments.windows(2).filter(|span| span[1] <= self.seconds()) {
            let mut below = 0.0;
            for (link, path) in links.iter().zip(0..) {
                let rate = rate_at(link, span[0]) / 1e6;
                let (low, high) = (y.at(below), y.at(below + rate));
                svg.rect(
                    &format!("path-{path}"),
                    (x.at(span[0]), high),
                    (x.at(span[1]) - x.at(span[0]), low - high),
                    "",
                );
                below += rate;
            }
        }
        svg.curve("demand-edge", self.demand().into_iter().map(|(at, mbits)| (x.at(at), y.at(mbits))), "");
        svg.curve("demand", self.demand().into_iter().map(|(at, mbits)| (x.at(at), y.at(mbits))), "");
        time_axis(&mut svg, &x, H - 28.0);
        svg.finish()
    }

    /// The clip's rate in megabits per second, over a sliding half second.
    fn demand(&self) -> Vec<(f64, f64)> {
        let interval = self.stage.interval.as_secs_f64();
        let half = ((0.25 / interval).round() as usize).max(1);
        let sizes: Vec<usize> = self.stage.frames.iter().map(|frame| frame.data.len()).collect();
        (0..sizes.len())
            .map(|n| {
                let around = n.saturating_sub(half)..(n + half).min(sizes.len());
                let seconds = around.len() as f64 * interval;
                (n as f64 * interval, sizes[around].iter().sum::<usize>() as f64 * 8e-6 / seconds)
            })
            .collect()
    }

    /// What each run sent on each path over time.
    pub(super) fn shares(&self) -> String {
        const STRIP: f64 = 92.0;
        const TOP: f64 = 28.0;
        let height = self.runs.len() as f64 * (STRIP + TOP) + 30.0;
        let mut svg = Svg::new(WIDTH, height, "bytes sent on each path over time");
        let x = self.time(WIDTH);
        let best: f64 = self.stage.scenario.paths.iter().map(|path| best_rate(&path.up)).sum();
        for (run, n) in self.runs.iter().zip(0..) {
            let top = f64::from(n) * (STRIP + TOP) + TOP;
            let y = Scale::linear((0.0, best / 1e6 * 1.1), (top + STRIP, top));
            self.share_strip(&mut svg, run, &x, &y);
        }
        time_axis(&mut svg, &x, height - 28.0);
        svg.finish()
    }

    fn share_strip(&self, svg: &mut Svg, run: &Run, x: &Scale, y: &Scale) {
        // Five bins of the relay's, half a second.
        const GROUP: usize = 5;
        let (bottom, top) = y.range;
        self.shade(svg, x, top, bottom - top);
        self.rate_axis(svg, y, WIDTH);
        let names = self.stage.scenario.paths.iter().zip(&run.carried);
        let total = run.summary.bytes_sent.max(1) as f64;
        let split: Vec<String> = names
            .map(|(path, carried)| format!("{} on path {}", percent(carried.bytes() as f64 / total), path.name))
            .collect();
        let title = format!("{}: {:.2} MB, {}", run.title(), total / 1e6, split.join(", "));
        svg.text(&format!("run {}", run.name), (LEFT, top - 8.0), Anchor::Start, &title);
        let span = BIN.as_secs_f64() * GROUP as f64;
        let groups = (self.seconds() / span).ceil() as usize;
        for group in 0..groups {
            let from = group as f64 * span;
            let mut below = 0.0;
            for (carried, path) in run.carried.iter().zip(0..) {
                let bytes: u64 = carried.bins.iter().skip(group * GROUP).take(GROUP).sum();
                let mbits = bytes as f64 * 8e-6 / span;
                let (low, high) = (y.at(below), y.at(below + mbits));
                let width = x.at(from + span) - x.at(from) - 1.5;
                svg.rect(&format!("path-{path}"), (x.at(from) + 0.75, high), (width, low - high), "");
                below += mbits;
            }
        }
    }

    fn rate_axis(&self, svg: &mut Svg, y: &Scale, width: f64) {
        for mbits in [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0].into_iter().filter(|&mbits| mbits <= y.domain.1) {
            svg.line("grid", (LEFT, y.at(mbits)), (width - RIGHT, y.at(mbits)));
            let text = if mbits == 0.0 { "0".into() } else { format!("{mbits} Mbit/s") };
            svg.text("", (LEFT - 8.0, y.at(mbits) + 4.0), Anchor::End, &text);
        }
    }

    fn shade(&self, svg: &mut Svg, x: &Scale, top: f64, height: f64) {
        for (from, to) in self.dips() {
            svg.rect("band", (x.at(from), top), (x.at(to) - x.at(from), height), "");
        }
    }
}

fn time_axis(svg: &mut Svg, x: &Scale, y: f64) {
    svg.line("axis", (x.range.0, y), (x.range.1, y));
    for second in 0..=(x.domain.1.round() as u32) {
        let at = x.at(f64::from(second));
        svg.line("axis", (at, y), (at, y + 4.0));
        svg.text("", (at, y + 18.0), Anchor::Middle, &format!("{second} s"));
    }
}

/// 1, 2 and 5 times powers of ten within the scale.
fn ticks(scale: &Scale) -> Vec<f64> {
    let all = (0..6).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    all.filter(|tick| (scale.domain.0..=scale.domain.1).contains(tick)).collect()
}

fn milliseconds(ms: f64) -> String {
    if ms >= 1000.0 { format!("{} s", ms / 1000.0) } else { format!("{ms} ms") }
}

/// A share, never rounded to all or nothing unless it is.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        exact @ (0.0 | 100.0) => format!("{exact} %"),
        close if !(0.1..99.9).contains(&close) => format!("{close:.2} %"),
        rough => format!("{rough:.1} %"),
    }
}

fn best_rate(link: &LinkSpec) -> f64 {
    link.rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max)
}

fn rate_at(link: &LinkSpec, at: f64) -> f64 {
    let at = Duration::from_secs_f64(at);
    link.rates.iter().rev().find(|&&(from, _)| from <= at).map_or(0.0, |&(_, rate)| rate)
}

fn dips(link: &LinkSpec, end: f64) -> Vec<(f64, f64)> {
    let best = best_rate(link);
    let ends = link.rates.iter().skip(1).map(|&(from, _)| from.as_secs_f64()).chain([end]);
    let spans = link.rates.iter().zip(ends);
    spans.filter(|((_, rate), _)| *rate < best).map(|((from, _), to)| (from.as_secs_f64(), to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_not_rounded_away() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.99967), "99.97 %");
        assert_eq!(percent(0.6033), "60.3 %");
    }

    #[test]
    fn a_dip_lasts_from_its_rate_to_the_next() {
        let ms = Duration::from_millis;
        let link = |rates: &[(u64, f64)]| LinkSpec {
            rates: rates.iter().map(|&(from, rate)| (ms(from), rate)).collect(),
            delay: ms(1),
            loss: 0.0,
            queue: 1,
        };
        assert_eq!(dips(&link(&[(0, 2.0), (3_000, 1.0), (5_000, 2.0)]), 10.0), [(3.0, 5.0)]);
        assert_eq!(dips(&link(&[(0, 2.0), (3_000, 1.0)]), 10.0), [(3.0, 10.0)]);
        assert!(dips(&link(&[(0, 2.0)]), 10.0).is_empty());
        assert_eq!(rate_at(&link(&[(0, 2.0), (3_000, 1.0)]), 3.0), 1.0);
    }
}
