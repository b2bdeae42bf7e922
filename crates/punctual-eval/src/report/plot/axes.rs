//! The frame of a plot: margins, grid, ticks and titles.

use super::{
    Size, XAxis, YAxis,
    scale::{Scale, number, tick_label},
};
use crate::svg::{Anchor, Svg, text_width};

/// Height of the row above the scale for infinite values.
const ROW: f64 = 22.0;
/// Space between neighbouring labels of ticks.
const APART: f64 = 10.0;

/// A drawing with axes, ready for marks.
pub(super) struct Frame {
    pub(super) svg: Svg,
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// Where infinite values lie.
    pub(super) beyond: f64,
}

impl Frame {
    /// `margin` is the room to the right of the plot.
    pub(super) fn new(size: Size, label: &str, x: &XAxis, y: &YAxis, margin: f64) -> Self {
        let (width, height) = size.extent();
        let mut frame = Self::with_y(width, height, label, y, margin, size);
        let tilt = frame.category_tilt(x);
        frame.bottom -= tilt;
        frame.settle_y(y, size);
        frame.x = Scale::new(x.domain(), frame.inset(x, y), x.log);
        frame.write_x(x, height);
        frame
    }

    /// The same with a continuous horizontal axis.
    pub(super) fn continuous(
        size: Size,
        label: &str,
        x: (f64, f64),
        log: bool,
        title: &str,
        y: &YAxis,
        margin: f64,
    ) -> Self {
        Self::with_x(size, label, Scale::new(x, (0.0, 1.0), log), tick_label, title, y, margin)
    }

    /// The same with a continuous linear axis, of shares or other numbers.
    pub(super) fn over(
        size: Size,
        label: &str,
        x: (f64, f64),
        share: bool,
        title: &str,
        y: &YAxis,
        margin: f64,
    ) -> Self {
        let percent = |tick: f64, step: f64| tick_label(tick * 100.0, step * 100.0) + "\u{a0}%";
        let write = if share { percent } else { tick_label };
        Self::with_x(size, label, Scale::new(x, (0.0, 1.0), false), write, title, y, margin)
    }

    fn with_x(
        size: Size,
        label: &str,
        x: Scale,
        write: fn(f64, f64) -> String,
        title: &str,
        y: &YAxis,
        margin: f64,
    ) -> Self {
        let (width, height) = size.extent();
        let mut frame = Self::with_y(width, height, label, y, margin, size);
        frame.settle_y(y, size);
        frame.x = x.onto((frame.left, frame.right));
        let (ticks, step) = frame.x.ticks(((frame.right - frame.left) / 70.0) as usize);
        frame.write_ticks(&ticks.iter().map(|&tick| (tick, write(tick, step))).collect::<Vec<_>>());
        frame.x_title(title, height);
        frame
    }

    fn with_y(width: f64, height: f64, label: &str, y: &YAxis, margin: f64, size: Size) -> Self {
        let row = if y.infinite { ROW } else { 0.0 };
        let (top, bottom) = (32.0 + row, height - 46.0);
        let rough = Scale::new(y.domain, (bottom, top), y.log);
        let ticks = y.ticks(&rough, about(size));
        let widest = ticks.iter().map(|(_, text)| text_width(text)).fold(24.0, f64::max);
        Self {
            svg: Svg::new(width, height, label),
            x: rough,
            y: rough,
            // However odd the numbers, most of the drawing is the plot.
            left: (widest + 14.0).min(width / 3.0),
            right: width - margin,
            top,
            bottom,
            beyond: 32.0 + 6.0,
        }
    }

    /// Draws the vertical axis, once the plot's extent is known.
    fn settle_y(&mut self, y: &YAxis, size: Size) {
        self.y = Scale::new(y.domain, (self.bottom, self.top), y.log);
        self.svg.text("title", (self.left - 8.0, 14.0), Anchor::Start, &y.title);
        for (tick, text) in y.ticks(&self.y, about(size)) {
            let at = self.y.at(tick);
            self.svg.line("grid", (self.left, at), (self.right, at));
            self.svg.text("", (self.left - 8.0, at + 4.0), Anchor::End, &text);
        }
        if y.infinite {
            let (from, height) = (self.beyond - 10.0, ROW - 2.0);
            self.svg.rect("beyond", (self.left, from), (self.right - self.left, height), "");
            self.svg.text("", (self.left - 8.0, self.beyond + 5.0), Anchor::End, "∞");
        }
        self.svg.line("axis", (self.left, self.bottom), (self.right, self.bottom));
    }

    /// Points of a numeric axis keep a little clear of the edges.
    fn inset(&self, x: &XAxis, y: &YAxis) -> (f64, f64) {
        // Infinite values stand side by side, which takes more room.
        let room = match (x.ordinal, y.infinite) {
            (true, _) => 0.0,
            (false, false) => 12.0,
            (false, true) => 26.0,
        };
        (self.left + room, self.right - room)
    }

    /// Room for the labels of categories, more than for one line if they have to be tilted.
    fn category_tilt(&self, x: &XAxis) -> f64 {
        if !x.ordinal {
            return 0.0;
        }
        let step = (self.right - self.left) / x.at.len().max(1) as f64;
        let widest = x.at.iter().map(|(_, text)| text_width(text)).fold(0.0, f64::max);
        if widest + APART <= step { 0.0 } else { (widest * 0.53 - 8.0).clamp(0.0, 90.0).max(1.0) }
    }

    fn write_x(&mut self, x: &XAxis, height: f64) {
        let tilt = self.category_tilt(x);
        if x.ordinal && tilt > 0.0 {
            // Each label needs a line's height along the axis; of more only some are written.
            let step = (self.right - self.left) / x.at.len() as f64;
            let every = (15.0 / step).ceil().max(1.0) as usize;
            for (at, text) in x.at.iter().step_by(every) {
                self.svg.tilted("", (self.x.at(*at) + 4.0, self.bottom + 14.0), &shortened(text, 24));
            }
        } else if x.ordinal || self.all_fit(&x.at) {
            self.write_ticks(&x.at);
        } else {
            let (ticks, step) = self.x.ticks(((self.right - self.left) / 60.0) as usize);
            let text = |tick| if step > 0.0 { tick_label(tick, step) } else { number(tick) };
            self.write_ticks(&ticks.into_iter().map(|tick| (tick, text(tick))).collect::<Vec<_>>());
        }
        self.x_title(&x.title, height);
    }

    fn x_title(&mut self, title: &str, height: f64) {
        self.svg.text("title", ((self.left + self.right) / 2.0, height - 7.0), Anchor::Middle, title);
    }

    fn all_fit(&self, ticks: &[(f64, String)]) -> bool {
        ticks.windows(2).all(|pair| {
            let apart = (self.x.at(pair[1].0) - self.x.at(pair[0].0)).abs();
            apart >= (text_width(&pair[0].1) + text_width(&pair[1].1)) / 2.0 + APART
        })
    }

    /// Writes ticks along x, leaving out those that would touch the one before.
    fn write_ticks(&mut self, ticks: &[(f64, String)]) {
        let mut free = f64::NEG_INFINITY;
        for (value, text) in ticks {
            let (at, half) = (self.x.at(*value), text_width(text) / 2.0);
            self.svg.line("axis", (at, self.bottom), (at, self.bottom + 4.0));
            if at - half >= free {
                self.svg.text("", (at, self.bottom + 18.0), Anchor::Middle, text);
                free = at + half + APART / 2.0;
            }
        }
    }

    /// Where a value lies, infinite ones in their row.
    pub(super) fn height_of(&self, value: f64) -> f64 {
        if value.is_infinite() && value > 0.0 { self.beyond } else { self.y.at(value) }
    }
}

fn about(size: Size) -> usize {
    if size == Size::Wide { 6 } else { 5 }
}

/// A text of at most so many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
    }
}
