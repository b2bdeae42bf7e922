//! What a path is for, and what it costs.

use std::{fmt, str::FromStr};

use crate::registry::LookupError;

/// What a path is for, as its application says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PathRole {
    /// To be used before others, whatever these cost, while it is surely enough. Path schedulers see it and may go by it; `expected`, the default, does.
    Preferred,
    /// To be used.
    #[default]
    Normal,
    /// To be used only when no other path lives: until then it carries probes and no data.
    Backup,
}

impl PathRole {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Preferred, Self::Normal, Self::Backup];

    /// The name it is chosen by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preferred => "preferred",
            Self::Normal => "normal",
            Self::Backup => "backup",
        }
    }
}

impl fmt::Display for PathRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PathRole {
    type Err = LookupError;

    fn from_str(name: &str) -> Result<Self, LookupError> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or_else(|| LookupError::UnknownName {
            kind: "role of a path",
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).to_vec(),
        })
    }
}

/// What one side says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Terms {
    pub(crate) role: PathRole,
    /// Cost of a byte, in the application's own unit; finite and not negative.
    pub(crate) cost: f64,
}

/// Every cost is equal to itself, for none is NaN.
impl Eq for Terms {}

impl Terms {
    /// Whether a path can cost so much.
    pub(crate) fn is_cost(cost: f64) -> bool {
        cost.is_finite() && cost.is_sign_positive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_go_by_their_names() {
        for role in PathRole::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        let error = "spare".parse::<PathRole>().unwrap_err().to_string();
        assert!(PathRole::ALL.iter().all(|role| error.contains(role.name())), "{error}");
    }
}
