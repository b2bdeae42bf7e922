//! What a tunnel is to do: which ports it listens at, which it forwards to where, and within what bounds.

use std::{collections::BTreeMap, net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

use punctual::duration;
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::name::{Name, Protocol};
use crate::class::{Carried, ClassSettings, Format};

/// What a tunnel is to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// Ports at which programs of this side are listened to.
    pub listen: Vec<Listen>,
    /// Ports that programs of the far side may reach.
    pub forward: Vec<Forward>,
    /// Classes by name, for ports and rules to refer to.
    pub classes: BTreeMap<String, ClassSettings>,
    /// Bounds.
    pub limits: Limits,
}

/// A port at which programs of this side are listened to: `udp:127.0.0.1:5000=camera`.
#[derive(Debug, Clone, PartialEq)]
pub struct Listen {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where to listen.
    pub address: SocketAddr,
    /// What the far side knows it by.
    pub name: Name,
    /// How what comes in is carried.
    pub carry: Carry,
}

/// A port that programs of the far side may reach: `camera=udp:192.0.2.9:5000`.
#[derive(Debug, Clone, PartialEq)]
pub struct Forward {
    /// What the far side knows it by.
    pub name: Name,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where what comes is sent to: `HOST:PORT`. A name is resolved for each flow anew.
    pub to: String,
    /// How answers are carried.
    pub carry: Carry,
}

/// How a port's datagrams are carried.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Carry {
    /// What they are.
    pub format: Format,
    /// The class that they are of.
    pub class: Option<String>,
    /// What is said of them here, and overrules the class.
    pub settings: ClassSettings,
}

/// Bounds of a tunnel, against hostile programs on either side.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Flows that one far gateway has at once, whoever began them. Default 256.
    pub flows: usize,
    /// Bytes per second that are forwarded for one far gateway, and as many that are sent to it; 0 for any number, the default. UDP beyond it is dropped, TCP waits.
    pub rate: u64,
    /// A UDP flow without a datagram for so long ends. Default 60 s.
    #[serde(deserialize_with = "time")]
    pub idle: Duration,
    /// Far gateways of which something is kept at once, those whose session was lost included. Default 64.
    pub clients: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 256, rate: 0, idle: Duration::from_secs(60), clients: 64 }
    }
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let time = duration::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)?;
    if time.is_zero() { Err(serde::de::Error::custom("longer than nothing, please")) } else { Ok(time) }
}

/// A tunnel cannot do that.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is nothing to listen at and nothing to forward.
    #[error("there is nothing to do: say where to listen, or what to forward")]
    Nothing,
    /// Two ports of one protocol have one address.
    #[error("two ports are to listen at {0}:{1}")]
    Twice(Protocol, SocketAddr),
    /// Two ports of one protocol are forwarded by one name.
    #[error("two {0} ports are forwarded as `{1}`")]
    SameName(Protocol, Name),
    /// A port or a rule refers to a class that does not exist.
    #[error("{0}: there is no class `{1}`")]
    NoClass(String, String),
    /// More ports are forwarded than a greeting can tell of.
    #[error("{0} ports are forwarded; 1024 can be")]
    TooMany(usize),
    /// A limit with which nothing could be done.
    #[error("limits.{0} must be at least 1")]
    Limit(&'static str),
}

impl Config {
    /// Whether a tunnel can do that.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listen.is_empty() && self.forward.is_empty() {
            return Err(ConfigError::Nothing);
        }
        if self.forward.len() > super::wire::MAX_OFFERS {
            return Err(ConfigError::TooMany(self.forward.len()));
        }
        for (index, listen) in self.listen.iter().enumerate() {
            let same = |other: &Listen| (other.protocol, other.address) == (listen.protocol, listen.address);
            if listen.address.port() != 0 && self.listen[..index].iter().any(same) {
                return Err(ConfigError::Twice(listen.protocol, listen.address));
            }
        }
        for (index, forward) in self.forward.iter().enumerate() {
            let same = |other: &Forward| (other.protocol, &other.name) == (forward.protocol, &forward.name);
            if self.forward[..index].iter().any(same) {
                return Err(ConfigError::SameName(forward.protocol, forward.name.clone()));
            }
        }
        let ports = self.listen.iter().map(|listen| (&listen.name, &listen.carry));
        for (name, carry) in ports.chain(self.forward.iter().map(|forward| (&forward.name, &forward.carry))) {
            if let Some(class) = &carry.class
                && !self.classes.contains_key(class)
            {
                return Err(ConfigError::NoClass(format!("port {name}"), class.clone()));
            }
        }
        for (name, limit) in [("flows", self.limits.flows), ("clients", self.limits.clients)] {
            if limit == 0 {
                return Err(ConfigError::Limit(name));
            }
        }
        Ok(())
    }
}

impl Config {
    /// How a port's datagrams are carried, its class looked up.
    pub(super) fn carried(&self, name: &Name, carry: &Carry) -> Carried {
        let Carry { format, class, settings } = carry;
        let named = class.as_ref().and_then(|class| self.classes.get(class));
        let settings = named.map_or_else(|| settings.clone(), |named| settings.or(named));
        let class = class.as_deref().unwrap_or(name.as_str());
        Carried { format: *format, class: Arc::new(settings.class(class, *format)) }
    }
}

/// Reads `udp` or `tcp`, a colon, and what follows.
fn protocol(text: &str) -> Result<(Protocol, &str), String> {
    match text.split_once(':') {
        Some(("udp", rest)) => Ok((Protocol::Udp, rest)),
        Some(("tcp", rest)) => Ok((Protocol::Tcp, rest)),
        _ => Err(format!("`{text}` does not begin with udp: or tcp:")),
    }
}

impl Carry {
    /// Reads what stands behind commas: `format=mpegts`, `class=NAME`, and the settings of a class.
    fn parse<'a>(parts: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut carry = Self::default();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not KEY=VALUE"))?;
            match key {
                "format" => carry.format = parse_format(value)?,
                "class" => carry.class = Some(value.to_owned()),
                _ if carry.settings.set(key, value).map_err(|error| format!("{key}: {error}"))? => {}
                _ => {
                    let known = "format, class, deadline, priority, redundancy, ordered";
                    return Err(format!("`{key}` is not known; there are {known}"));
                }
            }
        }
        Ok(carry)
    }
}

fn parse_format(text: &str) -> Result<Format, String> {
    Format::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
        format!("there is no format `{text}`; choose one of: {}", Format::ALL.map(Format::name).join(", "))
    })
}

/// A TCP port's bytes have a deadline as little as an order of their own.
fn tcp_has_no_class(protocol: Protocol, carry: &Carry) -> Result<(), String> {
    let ClassSettings { deadline, ordered, .. } = carry.settings;
    let said = deadline.is_some() || ordered.is_some() || carry.format != Format::default();
    if protocol == Protocol::Tcp && said {
        return Err("a TCP port has no deadline, format or order: its bytes all arrive, in order".into());
    }
    Ok(())
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let (port, name) = parts.next().unwrap_or_default().split_once('=').ok_or("expected udp:ADDRESS:PORT=NAME")?;
        let (protocol, address) = protocol(port)?;
        let address = address.parse().map_err(|_| format!("`{address}` is no address with port"))?;
        let name = name.parse().map_err(|error| format!("`{name}`: {error}"))?;
        let carry = Carry::parse(parts)?;
        tcp_has_no_class(protocol, &carry)?;
        Ok(Self { protocol, address, name, carry })
    }
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let (name, port) = parts.next().unwrap_or_default().split_once('=').ok_or("expected NAME=udp:HOST:PORT")?;
        let (protocol, to) = protocol(port)?;
        let (host, port) = to.rsplit_once(':').unwrap_or((to, ""));
        if host.is_empty() || !matches!(port.parse::<u16>(), Ok(1..)) {
            return Err(format!("`{to}` is not HOST:PORT"));
        }
        let name = name.parse().map_err(|error| format!("`{name}`: {error}"))?;
        let carry = Carry::parse(parts)?;
        tcp_has_no_class(protocol, &carry)?;
        Ok(Self { name, protocol, to: to.to_owned(), carry })
    }
}
