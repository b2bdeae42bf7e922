//! Scales of the axes, their ticks, and numbers as people write them.

/// Maps values to positions along one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::report) struct Scale {
    domain: (f64, f64),
    range: (f64, f64),
    log: bool,
}

impl Scale {
    /// A scale from a domain to a range of positions. One that is no interval of finite (for a logarithmic scale: positive)
    /// numbers is replaced by one that is.
    pub(in crate::report) fn new(domain: (f64, f64), range: (f64, f64), log: bool) -> Self {
        let (mut low, mut high) = domain;
        if !low.is_finite() || !high.is_finite() {
            (low, high) = (0.0, 1.0);
        }
        if log {
            high = if high > 0.0 { high } else { 1.0 };
            low = if low > 0.0 { low } else { high / 1e3 };
        }
        if low >= high {
            (low, high) = if log { (high / 2.0, high * 2.0) } else { (low - 0.5, low + 0.5) };
        }
        Self { domain: (low, high), range, log }
    }

    /// The same onto other positions.
    pub(in crate::report) fn onto(self, range: (f64, f64)) -> Self {
        Self { range, ..self }
    }

    pub(in crate::report) fn range(&self) -> (f64, f64) {
        self.range
    }

    /// The position of a value; values outside the domain lie on its edge, and what is no number at its beginning.
    pub(in crate::report) fn at(&self, value: f64) -> f64 {
        let warp = |x: f64| if self.log { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (low, high) = (warp(self.domain.0), warp(self.domain.1));
        let share = ((warp(value) - low) / (high - low)).clamp(0.0, 1.0);
        let share = if value.is_nan() || share.is_nan() { 0.0 } else { share };
        self.range.0 + share * (self.range.1 - self.range.0)
    }

    /// About as many round values within the domain, with the step between them (0 on a logarithmic scale).
    pub(in crate::report) fn ticks(&self, about: usize) -> (Vec<f64>, f64) {
        if self.log { (self.log_ticks(about), 0.0) } else { self.linear_ticks(about) }
    }

    fn linear_ticks(&self, about: usize) -> (Vec<f64>, f64) {
        let (low, high) = self.domain;
        let step = nice_step(high - low, about);
        // Multiples of the step, counted in whole numbers so that no error adds up.
        let first = (low / step - 1e-9).ceil();
        let count = ((high - low) / step + 1e-9).floor() as usize + 1;
        let ticks = (0..count).map(|n| (first + n as f64) * step);
        (ticks.filter(|&tick| tick <= high + step * 1e-9).collect(), step)
    }

    /// Powers of ten; with 2 and 5 times those between them as long as there is room.
    fn log_ticks(&self, about: usize) -> Vec<f64> {
        let (low, high) = self.domain;
        let inside = |tick: &f64| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(tick);
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let with = |digits: &[f64], every: i32| -> Vec<f64> {
            let powers = (first..=last).filter(|power| power.rem_euclid(every) == 0);
            powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power))).filter(inside).collect()
        };
        let mut ticks = with(&[1.0, 2.0, 5.0], 1);
        for every in 1.. {
            if ticks.len() <= about.max(2) || every > 40 {
                break;
            }
            ticks = with(&[1.0], every);
        }
        if ticks.is_empty() { vec![low, high] } else { ticks }
    }
}

/// The step of 1, 2 or 5 times a power of ten that parts a span into about as many.
fn nice_step(span: f64, about: usize) -> f64 {
    let rough = (span / about.max(1) as f64).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let digit = match rough / power {
        r if r <= 1.5 => 1.0,
        r if r <= 3.2 => 2.0,
        r if r <= 7.0 => 5.0,
        _ => 10.0,
    };
    digit * power
}

/// A domain, widened to whole ticks.
pub(in crate::report) fn widened(low: f64, high: f64, about: usize) -> (f64, f64) {
    if !(low.is_finite() && high.is_finite() && low < high) {
        return (low, high);
    }
    let step = nice_step(high - low, about);
    ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step)
}

/// A tick's value, with the decimals its step needs.
pub(in crate::report) fn tick_label(value: f64, step: f64) -> String {
    if step <= 0.0 || value.abs() >= 1e12 {
        return number(value);
    }
    let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    grouped(if text.trim_start_matches(['-', '0', '.']).is_empty() { "0" } else { &text })
}

/// A number with three significant digits, without needless zeros, thousands apart.
pub(in crate::report) fn number(value: f64) -> String {
    if value.is_nan() {
        return "–".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".into() } else { "−∞".into() };
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-6..1e12).contains(&size) {
        return format!("{value:.1e}");
    }
    let decimals = (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    grouped(if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text })
}

/// Digits in threes from 10 000 up, and a true minus sign.
fn grouped(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("−", digits));
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut apart = String::from(sign);
    for (digit, left) in whole.chars().zip((0..whole.len()).rev()) {
        apart.push(digit);
        if whole.len() > 4 && left > 0 && left % 3 == 0 {
            apart.push('\u{202f}');
        }
    }
    apart + rest
}

/// A share in per cent, never rounded to all or nothing unless it is.
pub(in crate::report) fn percent(share: f64) -> String {
    format!("{}\u{a0}%", percent_number(share))
}

/// The same without the sign.
pub(in crate::report) fn percent_number(share: f64) -> String {
    let exact = share * 100.0;
    if !exact.is_finite() || exact.abs() >= 1000.0 {
        return number(exact);
    }
    if exact == 0.0 || exact == 100.0 {
        return format!("{exact:.0}");
    }
    let texts = (1..=4).map(|decimals| format!("{exact:.decimals$}"));
    let mut honest = texts.filter(|text| text.parse().is_ok_and(|read: f64| read != 0.0 && read != 100.0));
    let text = honest.next().unwrap_or_else(|| (if exact < 1.0 { "< 0.0001" } else { "> 99.9999" }).into());
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scales_map_and_clamp() {
        let linear = Scale::new((0.0, 10.0), (100.0, 0.0), false);
        assert_eq!([linear.at(0.0), linear.at(5.0), linear.at(99.0)], [100.0, 50.0, 0.0]);
        assert_eq!([linear.at(f64::NAN), linear.at(f64::INFINITY)], [100.0, 0.0]);
        let log = Scale::new((10.0, 1000.0), (0.0, 100.0), true);
        assert!((log.at(100.0) - 50.0).abs() < 1e-9);
        assert_eq!(log.at(0.0), 0.0);
    }

    #[test]
    fn ticks_are_round() {
        let ticks = |low, high| Scale::new((low, high), (0.0, 1.0), false).ticks(5);
        assert_eq!(ticks(0.0, 10.0).0, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let (shares, step) = ticks(0.0, 1.0);
        let labels: Vec<String> = shares.iter().map(|&tick| tick_label(tick * 100.0, step * 100.0)).collect();
        assert_eq!(labels, ["0", "20", "40", "60", "80", "100"]);
        let log = |low, high| Scale::new((low, high), (0.0, 1.0), true).ticks(7).0;
        assert_eq!(log(1.0, 100.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(log(0.9, 11_000.0), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn domains_widen_to_ticks() {
        assert_eq!(widened(0.3, 9.1, 5), (0.0, 10.0));
        assert_eq!(widened(0.0, 10.0, 5), (0.0, 10.0));
        assert_eq!(widened(3.0, 3.0, 5), (3.0, 3.0));
    }

    #[test]
    fn numbers_read_as_written_by_hand() {
        let texts = [0.0, 0.5, 1.0, 12.34, 1234.0, 12_345.0, -4.56789, 0.000_123, f64::INFINITY, f64::NAN].map(number);
        assert_eq!(texts, ["0", "0.5", "1", "12.3", "1234", "12\u{202f}345", "−4.57", "0.000123", "∞", "–"]);
        assert_eq!(
            [tick_label(10_050.0, 50.0), tick_label(1.5, 0.5), tick_label(0.0, 0.5)],
            ["10\u{202f}050", "1.5", "0"]
        );
    }

    #[test]
    fn shares_are_not_rounded_away() {
        assert_eq!(
            [1.0, 0.0, 0.99967, 0.6033, 1e-9].map(percent),
            ["100", "0", "99.97", "60.3", "< 0.0001"].map(|text| text.to_owned() + "\u{a0}%")
        );
        assert_eq!(percent(1.0 - 1e-9), "> 99.9999\u{a0}%");
    }

    proptest! {
        #[test]
        fn positions_stay_in_range(low: f64, high: f64, value: f64, log: bool) {
            let scale = Scale::new((low, high), (300.0, 20.0), log);
            prop_assert!((20.0..=300.0).contains(&scale.at(value)));
        }

        #[test]
        fn ticks_lie_inside_and_are_few(low in -1e6..1e6, span in 1e-3..1e6, about in 4usize..12) {
            let scale = Scale::new((low, low + span), (0.0, 100.0), false);
            let (ticks, step) = scale.ticks(about);
            prop_assert!((2..=2 * about + 2).contains(&ticks.len()));
            for tick in ticks {
                prop_assert!(tick >= low - step * 1e-6 && tick <= low + span + step * 1e-6);
            }
        }

        #[test]
        fn log_ticks_are_few(low in 1e-6..1e6, factor in 1.01..1e6, about in 2usize..12) {
            let (ticks, _) = Scale::new((low, low * factor), (0.0, 100.0), true).ticks(about);
            prop_assert!(!ticks.is_empty() && ticks.len() <= about.max(3));
        }
    }
}
