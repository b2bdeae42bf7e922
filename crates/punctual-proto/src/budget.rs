//! How much a path may be given over time.

use std::{fmt, str::FromStr, time::Duration};

use thiserror::Error;

use crate::duration;

/// How many bytes a path may be given in a time, as a plan for mobile data allows.
///
/// It is a bucket that holds `bytes`, full at first, and fills up again within `per`: so at once no more than that may go, and in any `per` no more than
/// twice as much. What counts is what is sent on the path: QUIC packets, without the headers of UDP and IP. What comes from the peer is not counted; it has
/// a budget of its own to set.
///
/// A path that has spent half of it is used for blocks that others would not carry in time; one that has spent all of it is a
/// [backup](crate::multipath::PathRole::Backup) until an eighth is there again: while another path lives it carries no data. Probes and what is said of
/// the session are few bytes, and go nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathBudget {
    bytes: u64,
    per: Duration,
}

impl PathBudget {
    /// So many bytes in such a time. `None` if either is nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use punctual_proto::multipath::PathBudget;
    ///
    /// let budget = PathBudget::new(2_000_000_000, Duration::from_secs(30 * 86_400)).expect("something in some time");
    /// assert_eq!(budget.bytes(), 2_000_000_000);
    /// assert_eq!(PathBudget::new(0, Duration::from_secs(1)), None);
    /// ```
    pub fn new(bytes: u64, per: Duration) -> Option<Self> {
        (bytes > 0 && !per.is_zero()).then_some(Self { bytes, per })
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time in which they may be sent.
    pub fn per(&self) -> Duration {
        self.per
    }
}

/// `10 MB/1 min`, in the largest unit that loses nothing.
impl fmt::Display for PathBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) =
            UNITS.into_iter().rev().find(|(_, size)| self.bytes.is_multiple_of(*size)).unwrap_or(UNITS[0]);
        write!(f, "{} {unit}/", self.bytes / size)?;
        match self.per.as_secs() {
            seconds if self.per.subsec_nanos() > 0 || !seconds.is_multiple_of(60) => {
                f.write_str(&duration::spoken(self.per))
            }
            seconds if seconds.is_multiple_of(3_600) => write!(f, "{} h", seconds / 3_600),
            seconds => write!(f, "{} min", seconds / 60),
        }
    }
}

/// The units of sizes, and how many bytes each has. As those who sell data count, not as memory is counted.
const UNITS: [(&str, u64); 4] = [("B", 1), ("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];

/// Text that is no budget.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no budget; give bytes and the time they are for, such as 10MB/1min or 2GB/720h (units: B, KB, MB, GB)"
)]
pub struct ParseBudgetError(String);

/// Reads `10MB/1min`: bytes, and behind the stroke a time as [`duration`] has it. Spaces do not matter, nor does whether units are in capitals.
///
/// ```
/// use punctual_proto::multipath::PathBudget;
///
/// let budget: PathBudget = "1.5 GB/720h".parse()?;
/// assert_eq!(budget.bytes(), 1_500_000_000);
/// assert_eq!(budget.to_string(), "1500 MB/720 h");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl FromStr for PathBudget {
    type Err = ParseBudgetError;

    fn from_str(text: &str) -> Result<Self, ParseBudgetError> {
        let read = || {
            let (size, per) = text.split_once('/')?;
            let size = size.trim();
            let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit = size[digits.len()..].to_ascii_uppercase();
            let (_, factor) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
            let bytes = digits.trim().parse::<f64>().ok().filter(|bytes| bytes.is_finite() && *bytes > 0.0)?;
            Self::new((bytes * factor as f64).round() as u64, duration::parse(per).ok()?)
        };
        read().ok_or_else(|| ParseBudgetError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn budgets_are_read_as_they_are_written() {
        for (text, bytes, seconds) in
            [("10MB/1min", 10_000_000, 60), ("1.5 gb / 2 h", 1_500_000_000, 7_200), ("100B/1s", 100, 1)]
        {
            let budget: PathBudget = text.parse().unwrap();
            assert_eq!((budget.bytes(), budget.per()), (bytes, SECOND * seconds), "{text}");
            assert_eq!(budget.to_string().parse(), Ok(budget));
        }
        for bad in [
            "",
            "/",
            "10MB",
            "10/1s",
            "10MB/",
            "10MB/0",
            "0B/1s",
            "-1B/1s",
            "nan B/1s",
            "1e400B/1s",
            "10Mb it/1s",
            "1MB/1",
        ] {
            let error = bad.parse::<PathBudget>().unwrap_err().to_string();
            assert!(error.contains("10MB/1min"), "{bad}: {error}");
        }
    }
}
