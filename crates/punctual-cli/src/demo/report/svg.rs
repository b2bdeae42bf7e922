//! Just enough SVG for the report's plots: scales, axes, marks. Colours are CSS classes, so that the page's light and dark themes apply.

use std::fmt::{self, Write as _};

/// Maps values to positions along one axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) domain: (f64, f64),
    pub(super) range: (f64, f64),
    pub(super) log: bool,
}

impl Scale {
    pub(super) fn linear(domain: (f64, f64), range: (f64, f64)) -> Self {
        Self { domain, range, log: false }
    }

    pub(super) fn log(domain: (f64, f64), range: (f64, f64)) -> Self {
        Self { domain, range, log: true }
    }

    /// The position of a value; values outside the domain lie on its edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let warp = |x: f64| if self.log { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (low, high) = (warp(self.domain.0), warp(self.domain.1));
        let share = ((warp(value) - low) / (high - low)).clamp(0.0, 1.0);
        self.range.0 + share * (self.range.1 - self.range.0)
    }
}

/// A drawing, as it grows.
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
    label: String,
}

/// Which way a text extends from its position.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
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

impl Svg {
    /// An empty drawing; `label` is for those who cannot see it.
    pub(super) fn new(width: f64, height: f64, label: &str) -> Self {
        Self { body: String::new(), width, height, label: escape(label) }
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64)) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            at.0,
            at.1,
            size.0.max(0.0),
            size.1.max(0.0)
        ));
    }

    /// A dot that tells `title` to a pointer that rests on it.
    pub(super) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, title: &str) {
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\"><title>{}</title></circle>",
            at.0,
            at.1,
            escape(title)
        ));
    }

    /// A small × that tells `title`.
    pub(super) fn cross(&mut self, class: &str, at: (f64, f64), title: &str) {
        let (x, y) = at;
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{:.1} {:.1}l5 5m0 -5l-5 5\"><title>{}</title></path>",
            x - 2.5,
            y - 2.5,
            escape(title)
        ));
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
            at.0,
            at.1,
            anchor.name(),
            escape(text)
        ));
    }

    /// A line through points.
    pub(super) fn curve(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
        }
        if !path.is_empty() {
            self.push(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
        }
    }

    /// The drawing as an element.
    pub(super) fn finish(self) -> String {
        format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
            self.width, self.height, self.label, self.body
        )
    }

    fn push(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }
}

/// Text for an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_map_and_clamp() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 0.0));
        assert_eq!([linear.at(0.0), linear.at(5.0), linear.at(99.0)], [100.0, 50.0, 0.0]);
        let log = Scale::log((10.0, 1000.0), (0.0, 100.0));
        assert!((log.at(100.0) - 50.0).abs() < 1e-9);
        assert_eq!(log.at(0.0), 0.0);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
    }
}
