//! Courses over time: strips one above the other on a common clock.

use super::{
    Series, YAxis, back_to_front,
    scale::{Scale, tick_label},
};
use crate::svg::{Anchor, Svg, text_width};

const WIDTH: f64 = 1000.0;
const RIGHT: f64 = 16.0;
/// Room above a strip for its title.
const TOP: f64 = 30.0;
const GAP: f64 = 16.0;

/// One strip. Points are at the beginning of their interval of time, and hold until the next's; a point's `half` reaches
/// downwards only, to the least value.
pub(in crate::report) struct Strip {
    pub(in crate::report) title: String,
    pub(in crate::report) y: YAxis,
    pub(in crate::report) series: Vec<Series>,
}

/// What to draw.
pub(in crate::report) struct Strips<'a> {
    pub(in crate::report) label: &'a str,
    pub(in crate::report) strips: &'a [Strip],
    /// Until when, in seconds.
    pub(in crate::report) seconds: f64,
    /// How long a point holds, in seconds.
    pub(in crate::report) bin: f64,
}

impl Strips<'_> {
    /// The drawing.
    pub(in crate::report) fn draw(&self) -> String {
        let strip_height = if self.strips.len() == 1 { 260.0 } else { 132.0 };
        let height = self.strips.len() as f64 * (strip_height + TOP + GAP) - GAP + 44.0;
        let mut svg = Svg::new(WIDTH, height, self.label);
        let left = self.strips.iter().map(label_width).fold(24.0, f64::max) + 14.0;
        let x = Scale::new((0.0, self.seconds), (left, WIDTH - RIGHT), false);
        let mut bottom = 0.0;
        for (strip, n) in self.strips.iter().zip(0..) {
            let top = f64::from(n) * (strip_height + TOP + GAP) + TOP;
            bottom = top + strip_height;
            self.strip(&mut svg, strip, &x, &Scale::new(strip.y.domain, (bottom, top), strip.y.log));
        }
        let (ticks, step) = x.ticks(12);
        for tick in ticks {
            svg.line("axis", (x.at(tick), bottom), (x.at(tick), bottom + 4.0));
            svg.text("", (x.at(tick), bottom + 18.0), Anchor::Middle, &tick_label(tick, step));
        }
        svg.text("title", ((left + WIDTH - RIGHT) / 2.0, bottom + 38.0), Anchor::Middle, "time, s");
        svg.finish()
    }

    fn strip(&self, svg: &mut Svg, strip: &Strip, x: &Scale, y: &Scale) {
        let ((left, right), (bottom, top)) = (x.range(), y.range());
        svg.text("strong", (left - 8.0, top - 12.0), Anchor::Start, &strip.title);
        svg.text("title", (right, top - 12.0), Anchor::End, &strip.y.title);
        for (tick, text) in strip.y.ticks(y, 4) {
            svg.line("grid", (left, y.at(tick)), (right, y.at(tick)));
            svg.text("", (left - 8.0, y.at(tick) + 4.0), Anchor::End, &text);
        }
        svg.line("axis", (left, bottom), (right, bottom));
        for series in back_to_front(&strip.series) {
            self.course(svg, series, x, y);
        }
    }

    fn course(&self, svg: &mut Svg, series: &Series, x: &Scale, y: &Scale) {
        svg.open(&format!("s {}", series.look.class));
        for stretch in series.points.split(|point| !point.y.is_finite()).filter(|stretch| !stretch.is_empty()) {
            let level = |below: fn(&super::Point) -> f64| -> Vec<(f64, f64)> {
                let ends = |point: &super::Point| {
                    let at = y.at(point.y - below(point));
                    [(x.at(point.x), at), (x.at(point.x + self.bin), at)]
                };
                stretch.iter().flat_map(ends).collect()
            };
            let mean = level(|_| 0.0);
            if stretch.iter().any(|point| point.half > 0.0) {
                svg.area("interval", &mean, &level(|point| if point.half.is_finite() { point.half } else { 0.0 }));
            }
            svg.curve("line", mean, &series.name);
        }
        // Something for the pointer at each point, without a visible marker.
        for point in series.points.iter().filter(|point| point.y.is_finite() && !point.title.is_empty()) {
            svg.rect(
                "hit",
                (x.at(point.x), y.at(point.y) - 5.0),
                (x.at(point.x + self.bin) - x.at(point.x), 10.0),
                &point.title,
            );
        }
        svg.close();
    }
}

fn label_width(strip: &Strip) -> f64 {
    let y = Scale::new(strip.y.domain, (132.0, 0.0), strip.y.log);
    strip.y.ticks(&y, 4).iter().map(|(_, text)| text_width(text)).fold(0.0, f64::max)
}
