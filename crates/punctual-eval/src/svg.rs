//! Just enough SVG for the reports of experiments and of the demo: marks and text. Colours are CSS classes, so that the page's light and
//! dark themes apply. Positions and sizes are in the drawing's own units, which are pixels unless it is scaled.

use std::fmt::{self, Write as _};

/// A drawing, as it grows.
#[derive(Debug)]
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
    label: String,
}

/// Which way a text extends from its position.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// To the right.
    Start,
    /// Both ways.
    Middle,
    /// To the left.
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// The shape of a marker: tells contenders apart where colours cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A filled circle.
    Disc,
    /// Filled.
    Square,
    /// Filled, its point up.
    Triangle,
    /// A filled square on its point.
    Diamond,
    /// A filled triangle, its point down.
    Wedge,
    /// An open circle.
    Ring,
    /// An upright cross.
    Plus,
    /// A diagonal cross.
    Cross,
}

impl Shape {
    /// In the order in which they are given out.
    pub const ALL: [Self; 8] =
        [Self::Disc, Self::Square, Self::Triangle, Self::Diamond, Self::Wedge, Self::Ring, Self::Plus, Self::Cross];

    /// The outline around (0, 0), about `r` in every direction, and whether it is drawn as strokes rather than filled.
    fn outline(self, r: f64) -> (String, bool) {
        let disc = format!("m{:.1} 0a{r} {r} 0 1 0 {d:.1} 0a{r} {r} 0 1 0 {:.1} 0z", -r, -2.0 * r, d = 2.0 * r);
        match self {
            Self::Disc => (disc, false),
            Self::Ring => (disc, true),
            Self::Square => {
                let a = r * 0.9;
                (format!("m{:.1} {:.1}h{:.1}v{:.1}h{:.1}z", -a, -a, 2.0 * a, 2.0 * a, -2.0 * a), false)
            }
            Self::Triangle => (format!("m0 {:.1}l{:.1} {:.1}h{:.1}z", -1.2 * r, 1.15 * r, 2.1 * r, -2.3 * r), false),
            Self::Wedge => (format!("m0 {:.1}l{:.1} {:.1}h{:.1}z", 1.2 * r, 1.15 * r, -2.1 * r, -2.3 * r), false),
            Self::Diamond => {
                let a = r * 1.3;
                (format!("m0 {:.1}l{a:.1} {a:.1}l{:.1} {a:.1}l{:.1} {:.1}z", -a, -a, -a, -a), false)
            }
            Self::Plus => {
                (format!("m{:.1} 0h{:.1}m{:.1} {:.1}v{:.1}", -1.2 * r, 2.4 * r, -1.2 * r, -1.2 * r, 2.4 * r), true)
            }
            Self::Cross => (
                format!("m{:.1} {:.1}l{d:.1} {d:.1}m0 {:.1}l{:.1} {d:.1}", -r, -r, -2.0 * r, -2.0 * r, d = 2.0 * r),
                true,
            ),
        }
    }
}

impl Svg {
    /// An empty drawing; `label` is for those who cannot see it.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        Self { body: String::new(), width, height, label: escape(label) }
    }

    /// Begins a group of marks.
    pub fn open(&mut self, class: &str) {
        self.push(format_args!("<g class=\"{class}\">"));
    }

    /// Ends the group begun last.
    pub fn close(&mut self) {
        self.push(format_args!("</g>"));
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A rectangle that tells `title`, if that is not empty.
    pub fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), title: &str) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">{}</rect>",
            at.0,
            at.1,
            size.0.max(0.0),
            size.1.max(0.0),
            tooltip(title)
        ));
    }

    /// A dot that tells `title` to a pointer that rests on it.
    pub fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, title: &str) {
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\">{}</circle>",
            at.0,
            at.1,
            tooltip(title)
        ));
    }

    /// A small × that tells `title` to a pointer that rests on it.
    pub fn cross(&mut self, class: &str, at: (f64, f64), title: &str) {
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{:.1} {:.1}l5 5m0 -5l-5 5\">{}</path>",
            at.0 - 2.5,
            at.1 - 2.5,
            tooltip(title)
        ));
    }

    /// A marker that tells `title` to a pointer near it.
    pub fn marker(&mut self, shape: Shape, at: (f64, f64), radius: f64, title: &str) {
        let (outline, open) = shape.outline(radius);
        let class = if open { "open" } else { "full" };
        self.push(format_args!(
            "<g class=\"mark\" transform=\"translate({:.1} {:.1})\">{}<circle class=\"hit\" r=\"9\"/><path class=\"{class}\" d=\"M0 0{outline}\"/></g>",
            at.0,
            at.1,
            tooltip(title)
        ));
    }

    /// A line of text.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
            at.0,
            at.1,
            anchor.name(),
            escape(text)
        ));
    }

    /// A text that ends at a position and rises towards it.
    pub fn tilted(&mut self, class: &str, at: (f64, f64), text: &str) {
        self.push(format_args!(
            "<text class=\"{class}\" text-anchor=\"end\" transform=\"translate({:.1} {:.1}) rotate(-32)\">{}</text>",
            at.0,
            at.1,
            escape(text)
        ));
    }

    /// A line through points that tells `title`, if that is not empty.
    pub fn curve(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>, title: &str) {
        let path = path(points);
        if !path.is_empty() {
            self.push(format_args!("<path class=\"{class}\" d=\"{path}\">{}</path>", tooltip(title)));
        }
    }

    /// The area between an upper and a lower line.
    pub fn area(&mut self, class: &str, upper: &[(f64, f64)], lower: &[(f64, f64)]) {
        let path = path(upper.iter().chain(lower.iter().rev()).copied());
        if !path.is_empty() {
            self.push(format_args!("<path class=\"{class}\" d=\"{path}Z\"/>"));
        }
    }

    /// The drawing as an element.
    pub fn finish(self) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.width, self.height, self.label, self.body
        )
    }

    /// The marks alone, to be put into another drawing.
    pub fn marks(&self) -> &str {
        &self.body
    }

    fn push(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }
}

fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
    }
    path
}

fn tooltip(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}

/// Text for an element or an attribute. Characters that XML cannot hold become replacement characters.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// About how wide a text of the plots is; fonts differ, so rather too wide than too narrow.
pub fn text_width(text: &str) -> f64 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | '|' | '\'' | ' ' | '\u{a0}' | '\u{202f}' => 4.0,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 11.0,
        c if c.is_uppercase() => 8.6,
        _ => 7.1,
    };
    text.chars().map(width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b & \"c\">\u{1}"), "a&lt;b &amp; &quot;c&quot;&gt;\u{fffd}");
    }

    #[test]
    fn an_empty_curve_is_no_element() {
        let mut svg = Svg::new(1.0, 1.0, "");
        svg.curve("", [], "");
        svg.area("", &[], &[]);
        assert!(!svg.finish().contains("<path"));
    }
}
