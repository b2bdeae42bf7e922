//! Plots as inline SVG. They know nothing of experiments: series of points in, a drawing out. Every mark tells its exact values to
//! a pointer that rests on it; colours are classes of the page's style.

mod axes;
pub(super) mod bars;
pub(super) mod ccdf;
pub(super) mod cloud;
mod labels;
pub(super) mod lines;
pub(super) mod scale;
pub(super) mod strips;

use scale::{Scale, number, tick_label};

use crate::svg::Shape;

/// How a series looks, in every plot of the page.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// CSS classes that give colour, weight and dashes.
    pub(super) class: String,
    /// Its markers.
    pub(super) shape: Shape,
    /// Whether it is what the plot is about; a reference otherwise, drawn first and thinner.
    pub(super) ours: bool,
}

/// A point of a series.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) x: f64,
    /// Infinite values are drawn off the scale; NaN is a gap.
    pub(super) y: f64,
    /// Half the width of its interval; 0 for none.
    pub(super) half: f64,
    /// What it tells.
    pub(super) title: String,
}

/// A line, or a set of bars.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) points: Vec<Point>,
}

/// How large a plot is: the page shows one, two or three beside each other, with text of the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Wide,
    Half,
    Third,
}

impl Size {
    /// For one of so many.
    pub(super) fn among(panels: usize) -> Self {
        match panels {
            0 | 1 => Self::Wide,
            2 | 4 => Self::Half,
            _ => Self::Third,
        }
    }

    /// Width and height, in units of which text is 12 high.
    fn extent(self) -> (f64, f64) {
        match self {
            Self::Wide => (1000.0, 430.0),
            Self::Half => (490.0, 310.0),
            Self::Third => (330.0, 240.0),
        }
    }

    /// The class of a figure's grid of such plots.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Half => "half",
            Self::Third => "third",
        }
    }

    fn radius(self) -> f64 {
        if self == Self::Third { 2.6 } else { 3.4 }
    }
}

/// The vertical axis.
#[derive(Debug, Clone)]
pub(super) struct YAxis {
    /// What it shows, with the unit; written above it.
    pub(super) title: String,
    /// Whether values are shares, written in per cent.
    pub(super) share: bool,
    pub(super) domain: (f64, f64),
    pub(super) log: bool,
    /// Whether there are infinite values, which get a row of their own at the top.
    pub(super) infinite: bool,
}

impl YAxis {
    /// An axis for all these values. A share's ends at 100 % unless all are small, and starts at 0 unless all are large and it need
    /// not.
    pub(super) fn fit(
        title: String,
        share: bool,
        log: bool,
        from_zero: bool,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        let (mut low, mut high, mut infinite) = (f64::INFINITY, f64::NEG_INFINITY, false);
        for value in values.into_iter().filter(|value| !value.is_nan()) {
            if value.is_infinite() {
                infinite = true;
            } else if !log || value > 0.0 {
                (low, high) = (low.min(value), high.max(value));
            }
        }
        let domain = if low > high {
            if log { (0.1, 1.0) } else { (0.0, 1.0) }
        } else if log {
            (low / 1.2, if share && high <= 1.0 { 1.0 } else { high * 1.2 })
        } else if share && high > 0.5 {
            let low = if low >= 0.6 && !from_zero { scale::widened(low, high.max(1.0), 5).0 } else { low.min(0.0) };
            (low, if high <= 1.0 { 1.0 } else { scale::widened(low, high, 5).1 })
        } else {
            scale::widened(low.min(0.0), if high > 0.0 { high } else { 1.0 }, 5)
        };
        Self { title, share, domain, log, infinite }
    }

    /// Ticks with their texts.
    fn ticks(&self, scale: &Scale, about: usize) -> Vec<(f64, String)> {
        let (ticks, step) = scale.ticks(about);
        let text = |tick: f64| match self.share {
            true if step > 0.0 => tick_label(tick * 100.0, step * 100.0) + "\u{a0}%",
            true => number(tick * 100.0) + "\u{a0}%",
            false => tick_label(tick, step),
        };
        ticks.into_iter().map(|tick| (tick, text(tick))).collect()
    }
}

/// The horizontal axis of a plot over the values of a parameter.
#[derive(Debug, Clone)]
pub(super) struct XAxis {
    pub(super) title: String,
    /// Where points lie, and what is written there. Series' points use these positions.
    pub(super) at: Vec<(f64, String)>,
    pub(super) log: bool,
    /// Whether positions are only an order: every label is written, and there is half a step of room at each end.
    pub(super) ordinal: bool,
}

impl XAxis {
    fn domain(&self) -> (f64, f64) {
        let low = self.at.iter().fold(f64::INFINITY, |low, at| low.min(at.0));
        let high = self.at.iter().fold(f64::NEG_INFINITY, |high, at| high.max(at.0));
        if self.ordinal { (low - 0.5, high + 0.5) } else { (low, high) }
    }
}

/// Ours after the others, so that they lie on top.
fn back_to_front(series: &[Series]) -> impl Iterator<Item = &Series> {
    let of = |ours| series.iter().rev().filter(move |series| series.look.ours == ours);
    of(false).chain(of(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_fit_their_values() {
        let domain =
            |share, log, values: &[f64]| YAxis::fit(String::new(), share, log, false, values.iter().copied()).domain;
        assert_eq!(domain(true, false, &[0.2, 0.9]), (0.0, 1.0));
        assert_eq!(domain(true, false, &[0.96, 0.99]), (0.96, 1.0));
        assert_eq!(domain(true, false, &[0.01, 0.08]), (0.0, 0.08));
        assert_eq!(domain(false, false, &[3.0, 93.0]), (0.0, 100.0));
        assert_eq!(domain(false, false, &[]), (0.0, 1.0));
        assert!(YAxis::fit(String::new(), false, true, false, [0.0, f64::INFINITY, 5.0]).infinite);
    }
}
