//! A measure over a parameter: one line a series, with intervals and the bound.

use super::{
    Point, Series, Size, XAxis, YAxis,
    axes::{Frame, shortened},
    back_to_front, labels,
};
use crate::svg::{Anchor, text_width};

/// Height of a label beside a line's end.
const LABEL: f64 = 15.0;
/// Labels are no longer than this, in characters.
const LONGEST: usize = 22;
/// With more series than this, intervals are whiskers: areas would cover each other.
const MOST_BANDS: usize = 6;

/// What to draw.
pub(in crate::report) struct Lines<'a> {
    pub(in crate::report) size: Size,
    pub(in crate::report) label: &'a str,
    pub(in crate::report) x: XAxis,
    pub(in crate::report) y: YAxis,
    pub(in crate::report) series: &'a [Series],
    /// What nothing can exceed, by x.
    pub(in crate::report) bound: &'a [Point],
}

/// A label beside the end of a line.
struct End<'a> {
    at: (f64, f64),
    text: &'a str,
    class: String,
}

impl Lines<'_> {
    /// The drawing.
    pub(in crate::report) fn draw(&self) -> String {
        let wide = self.size == Size::Wide;
        let names = self.series.iter().map(|series| series.name.as_str()).chain(self.bound_name());
        let widest = names.map(|name| text_width(&shortened(name, LONGEST))).fold(0.0, f64::max);
        let margin = if wide { widest + 34.0 } else { 14.0 };
        let mut frame = Frame::new(self.size, self.label, &self.x, &self.y, margin);
        if self.series.len() <= MOST_BANDS {
            back_to_front(self.series).for_each(|series| band(&mut frame, series));
        } else {
            back_to_front(self.series).for_each(|series| whiskers(&mut frame, series));
        }
        for series in back_to_front(self.series) {
            self.line(&mut frame, series);
        }
        // On top: what reaches the bound would hide it.
        self.draw_bound(&mut frame);
        if wide {
            self.name_ends(&mut frame);
        }
        frame.svg.finish()
    }

    fn bound_name(&self) -> Option<&'static str> {
        (!self.bound.is_empty()).then_some("bound")
    }

    fn draw_bound(&self, frame: &mut Frame) {
        let points: Vec<(f64, f64)> =
            self.bound.iter().map(|point| (frame.x.at(point.x), frame.height_of(point.y))).collect();
        if let [(x, y)] = points[..] {
            frame.svg.curve("bound", [(x - 24.0, y), (x + 24.0, y)], &self.bound[0].title);
            return;
        }
        frame.svg.curve("bound", points.iter().copied(), "bound");
        for (&(x, y), point) in points.iter().zip(self.bound) {
            frame.svg.open("bound-mark");
            frame.svg.marker(crate::svg::Shape::Disc, (x, y), 1.2, &point.title);
            frame.svg.close();
        }
    }

    /// Names beside the ends; without room for all, ours and the bound come first.
    fn name_ends(&self, frame: &mut Frame) {
        let last = |points: &[Point]| points.iter().rposition(|point| !point.y.is_nan());
        let mut ends: Vec<End<'_>> = Vec::new();
        if let Some(last) = last(self.bound).map(|n| &self.bound[n]) {
            let at = (frame.x.at(last.x), frame.height_of(last.y));
            ends.push(End { at, text: "bound", class: "bound-name".into() });
        }
        for ours in [true, false] {
            for series in self.series.iter().filter(|series| series.look.ours == ours) {
                if let Some(n) = last(&series.points) {
                    let at = self.place(frame, series, &series.points[n]);
                    ends.push(End { at, text: &series.name, class: format!("s {} name", series.look.class) });
                }
            }
        }
        let (low, high) = (frame.beyond.min(frame.top), frame.bottom);
        ends.truncate(labels::room(LABEL, low, high));
        let wanted: Vec<f64> = ends.iter().map(|end| end.at.1).collect();
        let placed = labels::spread(&wanted, LABEL, low, high);
        for (end, y) in ends.iter().zip(placed) {
            let x = frame.right + 16.0;
            frame.svg.open(&end.class);
            if (y - end.at.1).abs() > 3.0 || end.at.0 < frame.right - 40.0 {
                frame.svg.line("leader", (end.at.0 + 6.0, end.at.1), (x - 3.0, y));
            }
            frame.svg.text("", (x, y + 4.0), Anchor::Start, &shortened(end.text, LONGEST));
            frame.svg.close();
        }
    }

    fn line(&self, frame: &mut Frame, series: &Series) {
        frame.svg.open(&format!("s {}", series.look.class));
        for stretch in stretches(&series.points) {
            let points: Vec<_> = stretch.iter().map(|point| (frame.x.at(point.x), frame.y.at(point.y))).collect();
            if points.len() > 1 {
                frame.svg.curve("line", points, &series.name);
            }
        }
        // Where values become infinite the line leaves the scale.
        for pair in series.points.windows(2).filter(|pair| !pair[0].y.is_nan() && !pair[1].y.is_nan()) {
            if pair[0].y.is_finite() != pair[1].y.is_finite() {
                let ends = [&pair[0], &pair[1]].map(|point| self.place(frame, series, point));
                frame.svg.curve("line off", ends, &series.name);
            }
        }
        for point in series.points.iter().filter(|point| !point.y.is_nan()) {
            let at = self.place(frame, series, point);
            frame.svg.marker(series.look.shape, at, self.size.radius(), &point.title);
        }
        frame.svg.close();
    }

    /// Where a point lies. Infinite ones would all lie on each other: they stand side by side instead.
    fn place(&self, frame: &Frame, series: &Series, point: &Point) -> (f64, f64) {
        let (x, y) = (frame.x.at(point.x), frame.height_of(point.y));
        if point.y.is_finite() {
            return (x, y);
        }
        let beyond = |other: &&Series| other.points.iter().any(|at| at.x == point.x && at.y.is_infinite());
        let names: Vec<&str> = self.series.iter().filter(beyond).map(|series| series.name.as_str()).collect();
        let rank = names.iter().position(|name| *name == series.name).unwrap_or_default() as f64;
        let gap = 2.6 * self.size.radius();
        ((x + (rank - (names.len() as f64 - 1.0) / 2.0) * gap).clamp(frame.left, frame.right), y)
    }
}

/// Stretches of neighbouring points that a line can connect.
fn stretches(points: &[Point]) -> impl Iterator<Item = &[Point]> {
    points.split(|point| !point.y.is_finite()).filter(|stretch| !stretch.is_empty())
}

fn has_interval(point: &Point) -> bool {
    point.half.is_finite() && point.half > 0.0
}

fn band(frame: &mut Frame, series: &Series) {
    if !series.points.iter().any(has_interval) {
        return;
    }
    frame.svg.open(&format!("s {}", series.look.class));
    for stretch in stretches(&series.points) {
        if let [alone] = stretch {
            whisker(frame, alone);
            continue;
        }
        let edge = |sign: f64| -> Vec<(f64, f64)> {
            let half = |point: &Point| if has_interval(point) { sign * point.half } else { 0.0 };
            stretch.iter().map(|point| (frame.x.at(point.x), frame.y.at(point.y + half(point)))).collect()
        };
        let (upper, lower) = (edge(1.0), edge(-1.0));
        frame.svg.area("interval", &upper, &lower);
    }
    frame.svg.close();
}

fn whiskers(frame: &mut Frame, series: &Series) {
    frame.svg.open(&format!("s {}", series.look.class));
    series.points.iter().for_each(|point| whisker(frame, point));
    frame.svg.close();
}

fn whisker(frame: &mut Frame, point: &Point) {
    if has_interval(point) && point.y.is_finite() {
        let (x, low, high) = (frame.x.at(point.x), frame.y.at(point.y - point.half), frame.y.at(point.y + point.half));
        frame.svg.line("whisker", (x, low), (x, high));
    }
}
