//! Whether paths that carry nothing are pinged.

use std::{fmt, str::FromStr};

use crate::registry::LookupError;

/// Whether a sender keeps fresh how long paths take that carry nothing: spare ones, backups, and those that its path scheduler does not use.
///
/// A path on which nothing has left for a second, and four round trips, is pinged; of more than two that are due at once, the two are that have waited longest, once a second.
/// Pings tell the round trip. What a backup is asked is answered on another path, so its change is that of the way there; elsewhere half of it is taken to be, until something is sent.
///
/// It costs a ping and its answer a second on each of two paths at most, some 100 bytes each way, and the peer needs no setting for it. A ping that is lost makes
/// its path suspect for a round trip or two, and one that died is missed within two seconds, not within [`keep_alive`](crate::SessionConfig::keep_alive).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Probing {
    /// No.
    #[default]
    Off,
    /// Of paths that are free: without a [cost](crate::Session::set_path_cost) or a [budget](crate::Session::set_path_budget).
    Free,
    /// Of all paths.
    All,
}

impl Probing {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Off, Self::Free, Self::All];

    /// The name it is chosen by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Free => "free",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Probing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Probing {
    type Err = LookupError;

    fn from_str(name: &str) -> Result<Self, LookupError> {
        Self::ALL.into_iter().find(|probing| probing.name() == name).ok_or_else(|| LookupError::UnknownName {
            kind: "way of probing",
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        assert_eq!(Probing::default(), Probing::Off);
        assert!(Probing::ALL.iter().all(|probing| probing.to_string().parse() == Ok(*probing)));
        assert!("on".parse::<Probing>().is_err());
    }
}
