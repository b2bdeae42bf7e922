//! A measure by category: a group of bars each, with whiskers, and ticks for the bound.

use super::{Point, Series, Size, XAxis, YAxis, axes::Frame};
use crate::svg::{Anchor, text_width};

/// Share of a group's step that its bars fill.
const FILLED: f64 = 0.8;

/// What to draw. Points' positions are 0, 1, 2 … for the groups of the ordinal axis.
pub(in crate::report) struct Bars<'a> {
    pub(in crate::report) size: Size,
    pub(in crate::report) label: &'a str,
    pub(in crate::report) x: XAxis,
    pub(in crate::report) y: YAxis,
    pub(in crate::report) series: &'a [Series],
    /// What nothing can exceed, by group.
    pub(in crate::report) bound: &'a [Point],
    /// Whether each group has a single bar, whichever series' it is, instead of one place for each series.
    pub(in crate::report) single: bool,
    /// Writes a value above its bar.
    pub(in crate::report) value: &'a dyn Fn(f64) -> String,
}

impl Bars<'_> {
    /// The drawing.
    pub(in crate::report) fn draw(&self) -> String {
        let margin = if self.bound.is_empty() { 14.0 } else { 56.0 };
        let mut frame = Frame::new(self.size, self.label, &self.x, &self.y, margin);
        let step = frame.x.at(1.0) - frame.x.at(0.0);
        // With one group, the axis ends before 1.
        let step = if self.x.at.len() > 1 { step } else { frame.right - frame.left };
        let places = if self.single { 1 } else { self.series.len().max(1) };
        let width = (step * FILLED / places as f64).min(64.0);
        for (series, n) in self.series.iter().zip(0..) {
            let place = if self.single { 0 } else { n };
            let offset = (f64::from(place) - places as f64 / 2.0) * width;
            frame.svg.open(&format!("s {}", series.look.class));
            for point in &series.points {
                self.bar(&mut frame, point, offset, width);
            }
            frame.svg.close();
        }
        self.draw_bound(&mut frame, places as f64 * width / 2.0 + 3.0);
        // On top of everything, else the bound would cross them out.
        for (series, n) in self.series.iter().zip(0..) {
            let place = if self.single { 0 } else { n };
            let offset = (f64::from(place) - places as f64 / 2.0) * width;
            frame.svg.open(&format!("s {}", series.look.class));
            for point in series.points.iter().filter(|point| !point.y.is_nan()) {
                self.value(&mut frame, point, offset, width);
            }
            frame.svg.close();
        }
        frame.svg.finish()
    }

    fn draw_bound(&self, frame: &mut Frame, half: f64) {
        for point in self.bound {
            let (x, y) = (frame.x.at(point.x), frame.height_of(point.y));
            frame.svg.curve("bound", [(x - half, y), (x + half, y)], &point.title);
        }
        if let Some(last) = self.bound.last() {
            let y = frame.height_of(last.y);
            frame.svg.text("bound-name", (frame.right + 8.0, y + 4.0), Anchor::Start, "bound");
        }
    }

    fn bar(&self, frame: &mut Frame, point: &Point, offset: f64, width: f64) {
        if point.y.is_nan() {
            return;
        }
        let gap = (width * 0.08).min(1.5);
        let (x, y) = (frame.x.at(point.x) + offset, frame.height_of(point.y));
        // On a scale without a zero, bars stand on the floor.
        let floor = if self.y.domain.0 <= 0.0 { frame.y.at(0.0) } else { frame.bottom };
        let (top, height) = (y.min(floor), (y - floor).abs());
        frame.svg.rect("bar", (x + gap, top), (width - 2.0 * gap, height), &point.title);
        if has_interval(point) {
            let middle = x + width / 2.0;
            let (low, high) = (frame.y.at(point.y - point.half), frame.y.at(point.y + point.half));
            frame.svg.line("whisker dark", (middle, low), (middle, high));
        }
    }

    /// Writes a bar's value above it, if it is wide enough.
    fn value(&self, frame: &mut Frame, point: &Point, offset: f64, width: f64) {
        let text = (self.value)(point.y);
        if text_width(&text) <= width + 2.0 {
            let top = if has_interval(point) { frame.y.at(point.y + point.half) } else { frame.height_of(point.y) };
            let x = frame.x.at(point.x) + offset + width / 2.0;
            frame.svg.text("value", (x, top - 5.0), Anchor::Middle, &text);
        }
    }
}

fn has_interval(point: &Point) -> bool {
    point.y.is_finite() && point.half.is_finite() && point.half > 0.0
}
