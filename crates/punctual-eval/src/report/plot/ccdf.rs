//! Complementary distribution functions: the share of values greater than x. Their tail is the point, so the shares are on a
//! logarithmic axis.

use super::{
    Look, Size, YAxis,
    axes::{Frame, shortened},
    labels,
    scale::{number, percent},
};
use crate::svg::{Anchor, text_width};

/// The least share an axis goes down to.
const LEAST: f64 = 1e-6;
/// Markers stand where these shares are greater.
const MARKED: [f64; 5] = [0.5, 0.1, 0.01, 0.001, 0.0001];
const LABEL: f64 = 14.0;

/// One distribution.
pub(in crate::report) struct Curve {
    pub(in crate::report) name: String,
    pub(in crate::report) look: Look,
    /// Values ascending, each with the share of values greater.
    pub(in crate::report) steps: Vec<(f64, f64)>,
}

impl Curve {
    /// The share of values that are infinite: what is left beyond the greatest finite one.
    fn never(&self) -> f64 {
        self.finite().last().map_or(if self.steps.is_empty() { 0.0 } else { 1.0 }, |step| step.1)
    }

    fn finite(&self) -> impl DoubleEndedIterator<Item = &(f64, f64)> {
        self.steps.iter().filter(|step| step.0.is_finite() && step.1.is_finite())
    }
}

/// The extent of the axes: least and greatest value, and the least share, of all curves that are to be compared.
#[derive(Debug, Clone, Copy)]
pub(in crate::report) struct Extent {
    values: (f64, f64),
    least: f64,
}

impl Extent {
    /// That of some curves.
    pub(in crate::report) fn of<'a>(curves: impl IntoIterator<Item = &'a Curve>, log_x: bool) -> Self {
        let mut extent = Self { values: (f64::INFINITY, f64::NEG_INFINITY), least: 1.0 };
        for curve in curves {
            for &(value, share) in curve.finite().filter(|step| !log_x || step.0 > 0.0) {
                extent.values = (extent.values.0.min(value), extent.values.1.max(value));
                if share > 0.0 {
                    extent.least = extent.least.min(share);
                }
            }
        }
        if !log_x {
            extent.values.0 = extent.values.0.min(0.0);
        }
        // Down to a whole power of ten, so that the last step is seen to fall.
        extent.least = 10f64.powf((extent.least.max(LEAST) * 0.999).log10().floor());
        extent
    }
}

/// What to draw.
pub(in crate::report) struct Ccdf<'a> {
    pub(in crate::report) size: Size,
    pub(in crate::report) label: &'a str,
    pub(in crate::report) x_title: &'a str,
    pub(in crate::report) y_title: &'a str,
    pub(in crate::report) unit: &'a str,
    pub(in crate::report) log_x: bool,
    pub(in crate::report) extent: Extent,
    pub(in crate::report) curves: &'a [Curve],
}

impl Ccdf<'_> {
    /// The drawing.
    pub(in crate::report) fn draw(&self) -> String {
        let Extent { values: (low, high), least } = self.extent;
        // A little beyond the greatest value, for the plateaus to be seen as such.
        let domain = if self.log_x { (low, high * (high / low).powf(0.06)) } else { (low, high + (high - low) * 0.06) };
        let y = YAxis { title: self.y_title.into(), share: true, domain: (least, 1.0), log: true, infinite: false };
        let notes: Vec<String> = self.curves.iter().map(note).collect();
        let widest = notes.iter().map(|note| text_width(note)).fold(0.0, f64::max);
        let wide = self.size == Size::Wide;
        let margin = if wide && widest > 0.0 { widest + 22.0 } else { 16.0 };
        let mut frame = Frame::continuous(self.size, self.label, domain, self.log_x, self.x_title, &y, margin);
        for ours in [false, true] {
            for curve in self.curves.iter().rev().filter(|curve| curve.look.ours == ours) {
                self.curve(&mut frame, curve);
            }
        }
        if wide {
            write_notes(&mut frame, self.curves, &notes);
        }
        frame.svg.finish()
    }

    fn curve(&self, frame: &mut Frame, curve: &Curve) {
        if curve.steps.is_empty() {
            return;
        }
        frame.svg.open(&format!("s {}", curve.look.class));
        let mut path = Vec::new();
        let mut share = 1.0;
        path.push((frame.left, frame.y.at(share)));
        for &(value, greater) in curve.finite() {
            path.push((frame.x.at(value), frame.y.at(share)));
            path.push((frame.x.at(value), frame.y.at(greater)));
            share = greater;
            if share <= 0.0 {
                break;
            }
        }
        if share > 0.0 {
            path.push((frame.right, frame.y.at(share)));
        }
        let title = match curve.never() {
            0.0 => curve.name.clone(),
            never => format!("{}: {} never delivered", curve.name, percent(never)),
        };
        frame.svg.curve("line", path, &title);
        for mark in MARKED.into_iter().filter(|&mark| mark >= self.extent.least) {
            if let Some(&(value, _)) = curve.finite().find(|step| step.1 <= mark) {
                let title = format!("{}: {} within {} {}", curve.name, percent(1.0 - mark), number(value), self.unit);
                let radius = self.size.radius();
                frame.svg.marker(curve.look.shape, (frame.x.at(value), frame.y.at(mark)), radius, &title);
            }
        }
        frame.svg.close();
    }
}

/// What stands beside the end of a curve that never comes down.
fn note(curve: &Curve) -> String {
    match curve.never() {
        never if never > 0.0 => format!("{} never ({})", percent(never), shortened(&curve.name, 16)),
        _ => String::new(),
    }
}

fn write_notes(frame: &mut Frame, curves: &[Curve], notes: &[String]) {
    let mut noted: Vec<(&Curve, &String)> = curves.iter().zip(notes).filter(|(_, note)| !note.is_empty()).collect();
    noted.truncate(labels::room(LABEL, frame.top, frame.bottom));
    let wanted: Vec<f64> = noted.iter().map(|(curve, _)| frame.y.at(curve.never())).collect();
    let placed = labels::spread(&wanted, LABEL, frame.top, frame.bottom);
    for ((curve, note), y) in noted.into_iter().zip(placed) {
        frame.svg.open(&format!("s {} name", curve.look.class));
        frame.svg.text("", (frame.right + 8.0, y + 4.0), Anchor::Start, note);
        frame.svg.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::Shape;

    fn curve(steps: &[(f64, f64)]) -> Curve {
        let look = Look { class: "c0".into(), shape: Shape::Disc, ours: true };
        Curve { name: "ads".into(), look, steps: steps.to_vec() }
    }

    #[test]
    fn what_is_never_delivered_is_left_at_the_end() {
        assert_eq!(curve(&[(1.0, 0.5), (2.0, 0.0)]).never(), 0.0);
        assert_eq!(curve(&[(1.0, 0.5), (2.0, 0.1), (f64::INFINITY, 0.0)]).never(), 0.1);
        assert_eq!(curve(&[(f64::INFINITY, 0.0)]).never(), 1.0);
        assert_eq!(curve(&[]).never(), 0.0);
    }

    #[test]
    fn axes_end_at_powers_of_ten() {
        let extent = Extent::of([&curve(&[(3.0, 0.5), (20.0, 0.004), (30.0, 0.0)])], true);
        assert_eq!(extent.values, (3.0, 30.0));
        assert!((extent.least - 0.001).abs() < 1e-12);
    }
}
