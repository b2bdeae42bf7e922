//! Points and lines over two continuous axes: distributions, things in order, one figure against another.

use super::{Look, Size, YAxis, axes::Frame};

/// Room to the right, for half of the last label.
const MARGIN: f64 = 28.0;

/// What to draw.
pub(in crate::report) struct Cloud<'a> {
    pub(in crate::report) size: Size,
    pub(in crate::report) label: &'a str,
    pub(in crate::report) x_title: &'a str,
    pub(in crate::report) x: (f64, f64),
    /// Whether positions along x are shares, written in per cent.
    pub(in crate::report) x_share: bool,
    pub(in crate::report) y: YAxis,
    /// A line to compare with, through these points.
    pub(in crate::report) guide: &'a [(f64, f64)],
    pub(in crate::report) sets: &'a [Set],
}

/// Points that belong together.
pub(in crate::report) struct Set {
    pub(in crate::report) name: String,
    pub(in crate::report) look: Look,
    /// In order along the line, if there is one.
    pub(in crate::report) points: Vec<Mark>,
    /// Whether a line joins them; else each has a marker.
    pub(in crate::report) joined: bool,
}

/// A point.
pub(in crate::report) struct Mark {
    pub(in crate::report) at: (f64, f64),
    /// What it tells; one that tells nothing has no marker on a line.
    pub(in crate::report) title: String,
}

impl Cloud<'_> {
    /// The drawing.
    pub(in crate::report) fn draw(&self) -> String {
        let mut frame = Frame::over(self.size, self.label, self.x, self.x_share, self.x_title, &self.y, MARGIN);
        let guide: Vec<_> = self.guide.iter().map(|(x, y)| (frame.x.at(*x), frame.y.at(*y))).collect();
        frame.svg.curve("bound", guide, "");
        for ours in [false, true] {
            for set in self.sets.iter().rev().filter(|set| set.look.ours == ours) {
                self.set(&mut frame, set);
            }
        }
        frame.svg.finish()
    }

    fn set(&self, frame: &mut Frame, set: &Set) {
        frame.svg.open(&format!("s {}", set.look.class));
        let place = |mark: &Mark| (frame.x.at(mark.at.0), frame.y.at(mark.at.1));
        let places: Vec<(f64, f64)> = set.points.iter().map(place).collect();
        if set.joined {
            frame.svg.curve("line", places.iter().copied(), &set.name);
        }
        let radius = self.size.radius() * 0.8;
        for (mark, at) in set.points.iter().zip(&places).filter(|(mark, _)| !mark.title.is_empty()) {
            frame.svg.marker(set.look.shape, *at, radius, &mark.title);
        }
        frame.svg.close();
    }
}
