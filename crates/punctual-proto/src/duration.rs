//! Times as people write and read them: the one grammar of flags, settings files, experiments and whatever else takes a time as text.
//!
//! ```
//! use std::time::Duration;
//! use punctual_proto::duration::{parse, spoken};
//!
//! assert_eq!(parse("5ms"), Ok(Duration::from_millis(5)));
//! assert_eq!(parse("1.5 s"), Ok(Duration::from_millis(1_500)));
//! assert_eq!(parse("2min 30s"), Ok(Duration::from_secs(150)));
//! assert_eq!(parse("0"), Ok(Duration::ZERO));
//! assert_eq!(
//!     parse("150").unwrap_err().to_string(),
//!     "`150` has no unit; give a time such as 150ms, 1.5s or 2min (units: ns, us, ms, s, min, h)"
//! );
//! assert_eq!(spoken(Duration::from_nanos(4_999_992_689)), "5 s");
//! ```

use std::time::Duration;

use thiserror::Error;

/// Names of units, and how many nanoseconds each has; the last two are other names.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("µs", 1_000),
    ("m", 60_000_000_000),
];

/// Text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what}; give a time such as 150ms, 1.5s or 2min (units: ns, us, ms, s, min, h)")]
pub struct ParseDurationError {
    what: String,
}

/// Reads a time: a number and its unit, or several of these, which are added up. Spaces do not matter, nor underscores in a number. Without a unit
/// there is only `0`. What is less than a nanosecond is rounded.
///
/// Whatever the `Debug` form of a [`Duration`] is, this reads.
///
/// # Errors
/// If it is anything else; the error says what, and which units there are.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    let error = |what: String| Err(ParseDurationError { what });
    let mut rest = text.trim();
    if rest.is_empty() {
        return error("there is no time".into());
    }
    if rest.starts_with(['-', '\u{2212}']) {
        return error("a time cannot be negative".into());
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_'))).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let Some(number) = Decimal::parse(number) else { return error(format!("`{text}` is no time")) };
        let behind = behind.trim_start();
        let end = behind.find(|c: char| !c.is_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        if unit.is_empty() {
            return error(format!("`{text}` has no unit"));
        }
        let Some((_, length)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return error(format!("`{unit}` is no unit of time"));
        };
        nanos += number.times(*length);
        rest = behind.trim_start();
    }
    from_nanos(nanos).map_or_else(|| error(format!("`{text}` is longer than any time here")), Ok)
}

/// A number as it was written, lest anything of it be lost.
struct Decimal {
    whole: u64,
    /// The digits behind the point, as a number, and how many there are.
    fraction: (u64, u32),
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let text = text.replace('_', "");
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        // What lies behind these digits is less than a nanosecond, of any unit.
        let digits = &fraction[..fraction.len().min(18)];
        let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
        let is_number = !(fraction.contains('.') || whole.is_empty() && fraction.is_empty());
        is_number.then_some(Self { whole: number(whole)?, fraction: (number(digits)?, digits.len() as u32) })
    }

    /// So many times this, rounded.
    fn times(&self, length: u128) -> u128 {
        let (digits, count) = self.fraction;
        let scale = 10_u128.pow(count);
        u128::from(self.whole) * length + (u128::from(digits) * length + scale / 2) / scale
    }
}

/// A time of so many seconds, to the nearest nanosecond; `None` if it is negative, or longer than a [`Duration`] can be.
pub fn from_secs(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

fn from_nanos(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// A time as people say it, to three digits: `5 s`, `1.5 s`, `150 ms`.
pub fn spoken(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        _ if time.is_zero() => (0.0, "s"),
        0.0..999.5e-9 => (seconds * 1e9, "ns"),
        0.0..999.5e-6 => (seconds * 1e6, "us"),
        0.0..0.9995 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let digits = [9.995, 99.95].iter().filter(|&&step| value < step).count();
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_numbers_with_units() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("7ns", 7),
            ("2us", 2_000),
            ("2µs", 2_000),
            ("5ms", 5_000_000),
            ("0.3ms", 300_000),
            (".5s", 500_000_000),
            (" 1.5 s ", 1_500_000_000),
            ("1_000ms", 1_000_000_000),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("10m", 600_000_000_000),
            ("1h2min3s4ms", 3_723_004_000_000),
            ("1min 30s", 90_000_000_000),
            ("0.1s", 100_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_told_what_is() {
        for (text, words) in [
            ("", "there is no time"),
            ("-5ms", "a time cannot be negative"),
            ("\u{2212}5ms", "a time cannot be negative"),
            ("150", "`150` has no unit"),
            ("1s 5", "has no unit"),
            ("soon", "`soon` is no time"),
            ("1.2.3s", "is no time"),
            ("5 furlongs", "`furlongs` is no unit of time"),
            ("5MS", "`MS` is no unit of time"),
            ("1e3s", "`e` is no unit"),
            ("inf s", "is no time"),
            ("99999999999999999999s", "is no time"),
            ("18446744073709551615h", "longer than any time"),
            (".s", "is no time"),
            ("_s", "is no time"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            for example in ["150ms", "1.5s", "2min", "us", "h)"] {
                assert!(error.contains(example), "{text}: {error}");
            }
        }
    }

    #[test]
    fn people_are_told_three_digits() {
        let spoken = |nanos| spoken(Duration::from_nanos(nanos));
        for (nanos, text) in [
            (0, "0 s"),
            (7, "7 ns"),
            (12_345, "12.3 us"),
            (999_400, "999 us"),
            (999_999, "1 ms"),
            (1_234_000, "1.23 ms"),
            (150_000_000, "150 ms"),
            (999_999_999, "1 s"),
            (1_500_000_000, "1.5 s"),
            (4_999_992_689, "5 s"),
            (90_000_000_000, "90 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(spoken(nanos), text);
        }
    }

    proptest! {
        #[test]
        fn what_debug_writes_can_be_read(seconds: u64, micros: u32, nanos: u64) {
            for time in [Duration::from_secs(seconds), Duration::from_micros(micros.into()), Duration::from_nanos(nanos)] {
                prop_assert_eq!(parse(&format!("{time:?}")), Ok(time));
                prop_assert!(parse(&spoken(time)).is_ok());
            }
        }

        #[test]
        fn anything_is_read_or_refused(text in ".{0,12}") {
            let _ = parse(&text);
        }
    }
}
