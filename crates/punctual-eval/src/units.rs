//! Quantities as people write them in experiments: `2.5ms`, `8 Mbit/s`, `200 KB`, `1 %`; and modes of redundancy: `fec`.
//!
//! Times are read as everywhere ([`punctual_proto::duration`]). A bare number has the unit the field names: seconds, bits per second, bytes, a share of one. Prefixes are decimal (`KB` is
//! 1,000 bytes), as link rates and the papers have them; `KiB` and `MiB` are binary.

use std::{fmt, time::Duration};

use punctual_proto::{Probing, Redundancy, duration};
use serde::{Deserialize, Deserializer, de};

/// A duration: `100ms`, `2.5 ms`, `1min`, or, not as text, a number of seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// A rate in bits per second: `8 Mbit/s`, `1 MB/s`, or a number of bits per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct BitRate(pub f64);

/// A size in bytes: `200 KB`, `64KiB`, or a number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A share of one: `1 %` or `0.01`.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// A mode of redundancy by its name: `auto`, `none`, `fec`, `retransmit`, `both`, `duplicate`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mode(pub Redundancy);

/// Whether idle paths are pinged, by its name: `off`, `free`, `all`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Probes(pub Probing);

const RATES: &[(&str, f64)] = &[
    ("", 1.0),
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("B/s", 8.0),
    ("KB/s", 8e3),
    ("MB/s", 8e6),
    ("GB/s", 8e9),
];
const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
const SHARES: &[(&str, f64)] = &[("", 1.0), ("%", 0.01)];

/// Reads a number with one of these units.
pub(crate) fn parse(text: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | '+' | '-'))).unwrap_or(text.len());
    // `2e3` is a number, `2 e` is not.
    let (number, unit) = match text.parse::<f64>() {
        Ok(_) => (text, ""),
        Err(_) => (&text[..end], text[end..].trim()),
    };
    let known = || units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
    let value: f64 = number.replace('_', "").parse().map_err(|_| format!("`{text}` does not begin with a number"))?;
    let (_, factor) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .ok_or_else(|| format!("`{unit}` is not a unit that fits here; use one of: {}", known()))?;
    let value = value * factor;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(format!("`{text}` is out of range")) }
}

/// What a TOML value may be where a quantity is wanted.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, or text with a number and its unit")]
enum Raw {
    Integer(i64),
    Float(f64),
    Text(String),
}

fn quantity<'de, D: Deserializer<'de>>(deserializer: D, units: &[(&str, f64)]) -> Result<f64, D::Error> {
    let text = match Raw::deserialize(deserializer)? {
        Raw::Integer(number) => number.to_string(),
        Raw::Float(number) => number.to_string(),
        Raw::Text(text) => text,
    };
    parse(&text, units).map_err(de::Error::custom)
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = match Raw::deserialize(deserializer)? {
            Raw::Text(text) => return duration::parse(&text).map(Self).map_err(de::Error::custom),
            Raw::Integer(seconds) => seconds as f64,
            Raw::Float(seconds) => seconds,
        };
        let time = duration::from_secs(seconds).ok_or_else(|| format!("a time cannot be {seconds} s long"));
        time.map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for BitRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quantity(deserializer, RATES).map(Self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quantity(deserializer, SIZES).map(|bytes| Self(bytes.round() as u64))
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = quantity(deserializer, SHARES)?;
        if share <= 1.0 { Ok(Self(share)) } else { Err(de::Error::custom(format!("{share} is more than all"))) }
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Probes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(de::Error::custom)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 1e6 => write!(f, "{} Mbit/s", rate / 1e6),
            rate => write!(f, "{} kbit/s", rate / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Debug, PartialEq)]
    struct All {
        time: Time,
        rate: BitRate,
        size: Size,
        share: Share,
    }

    fn read(text: &str) -> Result<All, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn units_are_understood() {
        let expected = All {
            time: Time(Duration::from_micros(2500)),
            rate: BitRate(8e6),
            size: Size(200_000),
            share: Share(0.01),
        };
        for text in [
            "time = '2.5ms'\nrate = '8 Mbit/s'\nsize = '200 KB'\nshare = '1 %'",
            "time = 0.0025\nrate = 8_000_000\nsize = 200000\nshare = 0.01",
            "time = '2500 us'\nrate = '1MB/s'\nsize = '200kb'\nshare = '0.01'",
        ] {
            assert_eq!(read(text).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn errors_name_the_units() {
        let with = |key: &str, value: &str| {
            let mut fields = [("time", "1"), ("rate", "1"), ("size", "1"), ("share", "1")];
            fields.iter_mut().filter(|(name, _)| *name == key).for_each(|field| field.1 = value);
            read(&fields.map(|(name, value)| format!("{name} = {value}")).join("\n")).unwrap_err()
        };
        assert!(with("time", "'5 furlongs'").contains("ms"), "{}", with("time", "'5 furlongs'"));
        assert!(with("time", "'5'").contains("no unit"));
        assert!(with("time", "-5").contains("-5 s"));
        assert!(with("rate", "'fast'").contains("number"));
        assert!(with("size", "-1").contains("out of range"));
        assert!(with("share", "'120 %'").contains("more than all"));
    }
}
