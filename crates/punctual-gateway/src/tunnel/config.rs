//! What a tunnel is to do: which ports it listens at, which it forwards to where, and within what bounds.

use std::{collections::BTreeMap, net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

use punctual::{Redundancy, duration, scope};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::name::{Name, NameError, Protocol};
use crate::class::{Carried, ClassSettings, Format, Rule};

/// What a tunnel is to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// Ports at which programs of this side are listened to.
    pub listen: Vec<Listen>,
    /// Ports that programs of the far side may reach.
    pub forward: Vec<Forward>,
    /// Classes by name, for ports and rules to refer to; each is called by a [`Name`], for metrics.
    pub classes: BTreeMap<String, ClassSettings>,
    /// Which datagrams are of which class, the first that holds; of others, their port says it.
    pub rules: Vec<Rule>,
    /// Bounds.
    pub limits: Limits,
}

/// A port at which programs of this side are listened to: `udp:127.0.0.1:5000=camera`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
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
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
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
    /// Bytes per second that are forwarded for one far gateway, and as many that are sent to it; 0 for any number, the default. UDP beyond it is dropped, TCP waits: UDP goes first, and leaves TCP a quarter.
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
    /// One port is at all addresses of the host, another at one of them, by the same number.
    #[error("{0}:{1} and {0}:{2} cannot both be listened at: the one is a part of the other")]
    Within(Protocol, SocketAddr, SocketAddr),
    /// Two ports of one protocol are forwarded by one name.
    #[error("two {0} ports are forwarded as `{1}`")]
    SameName(Protocol, Name),
    /// A class is called what metrics have no word for.
    #[error("class {0:?}: {error}", error = NameError)]
    ClassName(String),
    /// A port or a rule refers to a class that does not exist.
    #[error("{0}: there is no class `{1}`")]
    NoClass(String, String),
    /// A rule holds for nothing that could come.
    #[error("rule {0} never holds: {1}")]
    NeverHolds(usize, String),
    /// More ports are forwarded than a greeting can tell of.
    #[error("{0} ports are forwarded; 1024 can be")]
    TooMany(usize),
    /// A limit with which nothing could be done.
    #[error("limits.{0} must be at least 1")]
    Limit(&'static str),
}

impl ConfigError {
    /// The setting that is at fault, if it is one, by its name and those of the tables that it is in: `limits.flows`, `rule.0`.
    pub fn setting(&self) -> Option<String> {
        match self {
            Self::Limit(name) => Some(format!("limits.{name}")),
            Self::NeverHolds(number, _) => Some(format!("rule.{}", number - 1)),
            _ => None,
        }
    }
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
            for other in self.listen[..index].iter().filter(|other| other.protocol == listen.protocol) {
                check_beside(listen.protocol, other.address, listen.address)?;
            }
        }
        for (index, forward) in self.forward.iter().enumerate() {
            let same = |other: &Forward| (other.protocol, &other.name) == (forward.protocol, &forward.name);
            if self.forward[..index].iter().any(same) {
                return Err(ConfigError::SameName(forward.protocol, forward.name.clone()));
            }
        }
        if let Some(class) = self.classes.keys().find(|class| class.parse::<Name>().is_err()) {
            return Err(ConfigError::ClassName(class.clone()));
        }
        let ports = self.listen.iter().map(|listen| (&listen.name, &listen.carry));
        for (name, carry) in ports.chain(self.forward.iter().map(|forward| (&forward.name, &forward.carry))) {
            if let Some(class) = &carry.class
                && !self.classes.contains_key(class)
            {
                return Err(ConfigError::NoClass(format!("port {name}"), class.clone()));
            }
        }
        for (number, rule) in self.rules.iter().enumerate() {
            if !self.classes.contains_key(&rule.class) {
                return Err(ConfigError::NoClass(format!("rule {}", number + 1), rule.class.clone()));
            }
            let named = |name: &Name| self.listen.iter().any(|listen| listen.name == *name);
            let forwarded = |name: &Name| self.forward.iter().any(|forward| forward.name == *name);
            let why = match &rule.name {
                Some(name) if !named(name) && !forwarded(name) => Some(format!("no port is called `{name}`")),
                _ => rule.never_holds().map(str::to_owned),
            };
            if let Some(why) = why {
                return Err(ConfigError::NeverHolds(number + 1, why));
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

/// Whether the system has room for both of two ports of one protocol. `[::]` stands for addresses of IPv6 only.
///
/// ```
/// use punctual_gateway::tunnel::{Protocol, check_beside};
///
/// let beside = |one: &str, other: &str| check_beside(Protocol::Udp, one.parse().unwrap(), other.parse().unwrap());
/// assert!(beside("127.0.0.1:5000", "127.0.0.2:5000").is_ok() && beside("0.0.0.0:5000", "[::]:5000").is_ok());
/// assert!(beside("127.0.0.1:5000", "0.0.0.0:5000").is_err());
/// ```
///
/// # Errors
/// If not: [`ConfigError::Twice`] or [`ConfigError::Within`].
pub fn check_beside(protocol: Protocol, one: SocketAddr, other: SocketAddr) -> Result<(), ConfigError> {
    let whole = one.ip().is_unspecified() || other.ip().is_unspecified();
    if one.port() == 0 || one.port() != other.port() {
        Ok(())
    } else if one == other {
        Err(ConfigError::Twice(protocol, one))
    } else if whole && one.is_ipv4() == other.is_ipv4() {
        Err(ConfigError::Within(protocol, one, other))
    } else {
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
        let ruled = |rule: &Rule| {
            let class = self.classes.get(&rule.class)?.class(&rule.class, *format);
            rule.name.as_ref().is_none_or(|only| only == name).then(|| (rule.clone(), Arc::new(class)))
        };
        let rules = self.rules.iter().filter_map(ruled).collect();
        Carried { format: *format, class: Arc::new(settings.class(class, *format)), rules }
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
                "format" => carry.format = value.parse()?,
                "class" => carry.class = Some(value.to_owned()),
                _ if carry.settings.set(key, value).map_err(|error| format!("{key}: {error}"))? => {}
                _ => {
                    let known = "format, class, deadline, priority, redundancy, ordered, latency";
                    return Err(format!("`{key}` is not known; there are {known}"));
                }
            }
        }
        Ok(carry)
    }
}

impl Carry {
    /// Bytes of a TCP port all arrive, in order.
    fn fits(&self, protocol: Protocol) -> Result<(), String> {
        let ClassSettings { deadline, ordered, latency, .. } = self.settings;
        let said = deadline.is_some() || ordered.is_some() || latency.is_some() || self.format != Format::default();
        if protocol == Protocol::Tcp && said {
            return Err("a TCP port has no deadline, latency, format or order: its bytes all arrive, in order".into());
        }
        if protocol == Protocol::Tcp && matches!(self.settings.redundancy, Some(Redundancy::None | Redundancy::Fec)) {
            return Err(
                "a TCP port's bytes all arrive: what is lost of them is sent again (retransmit, both, duplicate)"
                    .into(),
            );
        }
        Ok(())
    }
}

/// Whether `to` is a host and a port.
fn check_target(to: &str) -> Result<(), String> {
    let (host, port) = to.rsplit_once(':').unwrap_or((to, ""));
    if host.is_empty() || !matches!(port.parse::<u16>(), Ok(1..)) {
        Err(format!("`{to}` is not HOST:PORT"))
    } else {
        Ok(())
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let (port, name) = parts.next().unwrap_or_default().split_once('=').ok_or("expected udp:ADDRESS:PORT=NAME")?;
        let (protocol, address) = protocol(port)?;
        let address = scope::parse_with_port(address).map_err(|error| error.to_string())?;
        let name = name.parse().map_err(|error| format!("`{name}`: {error}"))?;
        let carry = Carry::parse(parts)?;
        carry.fits(protocol)?;
        Ok(Self { protocol, address, name, carry })
    }
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let (name, port) = parts.next().unwrap_or_default().split_once('=').ok_or("expected NAME=udp:HOST:PORT")?;
        let (protocol, to) = protocol(port)?;
        check_target(to)?;
        let name = name.parse().map_err(|error| format!("`{name}`: {error}"))?;
        let carry = Carry::parse(parts)?;
        carry.fits(protocol)?;
        Ok(Self { name, protocol, to: to.to_owned(), carry })
    }
}

/// A port, as a file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    name: Name,
    udp: Option<String>,
    tcp: Option<String>,
    #[serde(default)]
    format: Format,
    class: Option<String>,
    deadline: Option<String>,
    priority: Option<u8>,
    redundancy: Option<String>,
    ordered: Option<bool>,
    latency: Option<String>,
}

impl Written {
    /// What it speaks, and where.
    fn read(self) -> Result<(Protocol, String, Name, Carry), String> {
        let Self { name, udp, tcp, format, class, deadline, priority, redundancy, ordered, latency } = self;
        let (protocol, place) = match (udp, tcp) {
            (Some(udp), None) => (Protocol::Udp, udp),
            (None, Some(tcp)) => (Protocol::Tcp, tcp),
            _ => return Err(format!("port `{name}`: say either udp or tcp")),
        };
        let mut settings = ClassSettings { priority, ordered, ..ClassSettings::default() };
        for (key, value) in [("deadline", deadline), ("redundancy", redundancy), ("latency", latency)] {
            if let Some(value) = value {
                settings.set(key, &value).map_err(|error| format!("port `{name}`: {key}: {error}"))?;
            }
        }
        let carry = Carry { format, class, settings };
        carry.fits(protocol).map_err(|error| format!("port `{name}`: {error}"))?;
        Ok((protocol, place, name, carry))
    }
}

impl TryFrom<Written> for Listen {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let (protocol, place, name, carry) = written.read()?;
        let address = scope::parse_with_port(&place).map_err(|error| format!("port `{name}`: {error}"))?;
        Ok(Self { protocol, address, name, carry })
    }
}

impl TryFrom<Written> for Forward {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let (protocol, to, name, carry) = written.read()?;
        check_target(&to).map_err(|error| format!("port `{name}`: {error}"))?;
        Ok(Self { name, protocol, to, carry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_a_command_line_has_them() {
        let listen: Listen = "udp:127.0.0.1:5000=camera,format=mpegts,deadline=200ms,priority=3".parse().unwrap();
        assert_eq!((listen.protocol, listen.address.port(), listen.name.as_str()), (Protocol::Udp, 5000, "camera"));
        assert_eq!((listen.carry.format, listen.carry.settings.priority), (Format::TransportStream, Some(3)));
        let forward: Forward = "ssh=tcp:localhost:22,priority=1".parse().unwrap();
        assert_eq!((forward.protocol, &forward.to[..]), (Protocol::Tcp, "localhost:22"));
        for (bad, word) in [
            ("udp:127.0.0.1:5000", "NAME"),
            ("sctp:127.0.0.1:5000=x", "udp: or tcp:"),
            ("udp:5000=x", "address with port"),
            ("udp:127.0.0.1:5000=a/b", "letters"),
            ("udp:127.0.0.1:5000=x,deadline", "KEY=VALUE"),
            ("udp:127.0.0.1:5000=x,colour=red", "there are format"),
            ("udp:127.0.0.1:5000=x,format=mkv", "choose one of"),
            ("tcp:127.0.0.1:5000=x,deadline=1s", "no deadline"),
        ] {
            let error = bad.parse::<Listen>().unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
        for bad in ["x=udp:host", "x=udp::1", "x=udp:host:0", "udp:host:1"] {
            assert!(bad.parse::<Forward>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_says_the_same() {
        let listen: Listen = toml::from_str(
            "name = 'camera'\nudp = '127.0.0.1:5000'\nformat = 'mpegts'\ndeadline = '200ms'\npriority = 3",
        )
        .unwrap();
        assert_eq!(listen, "udp:127.0.0.1:5000=camera,format=mpegts,deadline=200ms,priority=3".parse().unwrap());
        let forward: Forward = toml::from_str("name = 'ssh'\ntcp = 'localhost:22'").unwrap();
        assert_eq!(forward, "ssh=tcp:localhost:22".parse().unwrap());
        for (bad, word) in [
            ("name = 'x'", "either udp or tcp"),
            ("name = 'x'\nudp = '127.0.0.1:1'\ntcp = '127.0.0.1:1'", "either udp or tcp"),
            ("name = 'x'\nudp = 'here'", "no address"),
            ("name = 'x'\ntcp = '127.0.0.1:1'\nordered = true", "no deadline"),
            ("name = 'x'\nudp = '127.0.0.1:1'\ncolour = 1", "colour"),
        ] {
            let error = toml::from_str::<Listen>(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let check = |listen: &[&str], forward: &[&str]| {
            let listen = listen.iter().map(|port| port.parse().unwrap()).collect();
            let forward = forward.iter().map(|port| port.parse().unwrap()).collect();
            Config { listen, forward, ..Config::default() }.check().map_err(|error| error.to_string())
        };
        assert!(check(&[], &[]).unwrap_err().contains("nothing to do"));
        assert!(check(&["udp:127.0.0.1:1=a", "udp:127.0.0.1:1=b"], &[]).unwrap_err().contains("two ports"));
        assert_eq!(
            check(&["udp:127.0.0.1:1=a", "tcp:127.0.0.1:1=a", "udp:127.0.0.1:0=c", "udp:127.0.0.1:0=c"], &[]),
            Ok(())
        );
        for protocol in ["udp", "tcp"] {
            let at = |addresses: [&str; 2]| {
                check(&addresses.map(|address| format!("{protocol}:{address}=a")).each_ref().map(|port| &port[..]), &[])
            };
            for parts in [["0.0.0.0:1", "127.0.0.1:1"], ["[::1]:1", "[::]:1"]] {
                assert!(at(parts).unwrap_err().contains("cannot both be listened at"), "{parts:?}");
            }
            for apart in [["0.0.0.0:1", "[::]:1"], ["127.0.0.1:1", "127.0.0.2:1"], ["0.0.0.0:1", "127.0.0.1:2"]] {
                assert_eq!(at(apart), Ok(()), "{apart:?}");
            }
        }
        assert!(check(&[], &["a=udp:h:1", "a=udp:h:2"]).unwrap_err().contains("forwarded as `a`"));
        assert_eq!(check(&[], &["a=udp:h:1", "a=tcp:h:2"]), Ok(()));
        assert!(check(&["udp:127.0.0.1:1=a,class=x"], &[]).unwrap_err().contains("no class `x`"));
        let rules = vec![Rule { class: "y".into(), ..Rule::default() }];
        let listen = vec!["udp:127.0.0.1:1=a".parse().unwrap()];
        let config = Config { listen, rules, ..Config::default() };
        assert!(config.check().unwrap_err().to_string().contains("rule 1"));
        for name in ["a\"b", "two\nlines", "back\\slash", "", "Büro"] {
            let classes = [(name.to_owned(), ClassSettings::default())].into();
            let error = Config { classes, ..config.clone() }.check().unwrap_err().to_string();
            assert!(error.contains(&format!("class {name:?}: a name is 1 to 64 letters")), "{error}");
        }
    }
}
