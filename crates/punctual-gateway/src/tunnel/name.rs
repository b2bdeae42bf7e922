//! What a forwarded port is called.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// The name under which one gateway forwards a port and the other listens for it: 1 to 64 ASCII letters, digits, `.`, `_` and `-`.
///
/// ```
/// use punctual_gateway::tunnel::Name;
///
/// assert_eq!("camera-2".parse::<Name>().unwrap().as_str(), "camera-2");
/// assert!("../etc".parse::<Name>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest there may be, bytes.
    pub const LONGEST: usize = 64;

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text is no name of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a name is 1 to 64 letters, digits, `.`, `_` and `-`")]
pub struct NameError;

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=Self::LONGEST).contains(&text.len()) && text.bytes().all(allowed);
        if fits { Ok(Self(text.into())) } else { Err(NameError) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Datagrams, each a block.
    Udp,
    /// Connections, whose bytes are carried in order.
    Tcp,
}

impl Protocol {
    /// `udp` or `tcp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
