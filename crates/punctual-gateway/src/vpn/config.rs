//! What a VPN is to do: who may come, what each is given, and how packets are carried.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use punctual::{Fingerprint, Redundancy};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::{
    packet::{Packet, Transport},
    routes::AcceptRoutes,
    wire::{MAX_ADDRESSES, MAX_ROUTES},
};
use crate::{
    class::{ClassSettings, DEFAULT_DEADLINE, Deadline, Dscp},
    tunnel::{Name, NameError},
};

/// The largest packet unless something else is said: that of Ethernet, so that nothing inside has to know of the VPN.
pub const DEFAULT_MTU: u16 = 1_500;

/// What a VPN is to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// Of the side that is called; `None` for one that calls.
    pub server: Option<Server>,
    /// Of one that calls: which networks the server may have. Default none but the VPN's own.
    pub accept_routes: AcceptRoutes,
    /// Classes by name, for rules to refer to; each is called by a [`Name`], for metrics.
    pub classes: BTreeMap<String, ClassSettings>,
    /// Which packets are of which class, the first that holds.
    pub rules: Vec<Rule>,
    /// Bounds.
    pub limits: Limits,
}

/// Whom a server lets in, and what it gives them.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Its own addresses; clients are given addresses in the networks that these are in.
    pub addresses: Vec<IpNet>,
    /// Networks that clients are told to reach through the server.
    pub routes: Vec<IpNet>,
    /// The largest packet, bytes. Default [`DEFAULT_MTU`].
    pub mtu: u16,
    /// Who may come.
    pub clients: Vec<Client>,
    /// Whether clients may reach each other, as far as the system forwards it. Default no.
    pub client_to_client: bool,
}

/// Somebody who may come.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Client {
    /// Of the certificate that it shows.
    #[serde(deserialize_with = "parsed")]
    pub fingerprint: Fingerprint,
    /// What it is called, in logs and metrics, and no other is: a [`Name`]. Its fingerprint's beginning if nothing is said.
    #[serde(default)]
    pub name: Option<String>,
    /// The addresses it has; without, it is given some.
    #[serde(default)]
    pub address: Vec<IpAddr>,
    /// Networks behind it: it may send from there, and what is for there goes to it.
    #[serde(default)]
    pub networks: Vec<IpNet>,
    /// As [`Limits::rate`], for this one.
    #[serde(default)]
    pub rate: Option<u64>,
}

impl Client {
    /// Somebody of whom no more is known.
    pub fn new(fingerprint: Fingerprint) -> Self {
        Self { fingerprint, name: None, address: Vec::new(), networks: Vec::new(), rate: None }
    }

    /// For people.
    pub fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.fingerprint.to_string().chars().take(8).collect())
    }
}

fn parsed<'de, D: Deserializer<'de>>(from: D) -> Result<Fingerprint, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

/// Bounds of a VPN, against hostile clients and programs.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Bytes per second that are carried for one client, each way; 0 for any number, the default. What is beyond it is dropped.
    pub rate: u64,
    /// Clients that are connected at once. Default 256.
    pub clients: usize,
    /// Flows of one client of which the order and the queue are kept, at most 4,095. Default 4,095: when there are more, those that have been silent for longest are forgotten.
    pub flows: usize,
    /// Bytes of packets that wait for one client, or to go to the server. Default 8 MiB.
    pub queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rate: 0, clients: 256, flows: 4_095, queue: 8 << 20 }
    }
}

/// Which packets are of a class. All that is said must hold.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// The class that they are of.
    pub class: String,
    /// Only of that protocol: `tcp`, `udp`, `icmp` (of both versions of IP), or a number from 0 to 255.
    #[serde(default)]
    pub protocol: Option<Protocol>,
    /// Only from or to that port.
    #[serde(default)]
    pub port: Option<u16>,
    /// Only what is marked so (DSCP): `ef`, `af41`, `cs5`, or a number from 0 to 63.
    #[serde(default)]
    pub dscp: Option<Dscp>,
    /// Only from or to that network.
    #[serde(default)]
    pub network: Option<IpNet>,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// IANA's number.
    Number(u8),
}

impl TryFrom<toml::Value> for Protocol {
    type Error = String;

    fn try_from(written: toml::Value) -> Result<Self, String> {
        let protocol = match &written {
            toml::Value::Integer(number) => u8::try_from(*number).ok().map(Self::Number),
            toml::Value::String(name) => match &name.to_ascii_lowercase()[..] {
                "tcp" => Some(Self::Tcp),
                "udp" => Some(Self::Udp),
                "icmp" => Some(Self::Icmp),
                _ => None,
            },
            _ => None,
        };
        protocol.ok_or_else(|| format!("{written} is no protocol: expected tcp, udp, icmp, or 0 to 255"))
    }
}

impl Protocol {
    fn is_of(self, packet: &Packet) -> bool {
        match self {
            Self::Tcp => packet.protocol == 6,
            Self::Udp => packet.protocol == 17,
            Self::Icmp => packet.transport == Transport::Icmp,
            Self::Number(number) => packet.protocol == number,
        }
    }
}

impl Rule {
    fn holds(&self, packet: &Packet) -> bool {
        let at = |network: IpNet| network.contains(&packet.source) || network.contains(&packet.destination);
        self.protocol.is_none_or(|protocol| protocol.is_of(packet))
            && self.port.is_none_or(|port| packet.ports.is_some_and(|(from, to)| from == port || to == port))
            && self.dscp.is_none_or(|Dscp(dscp)| dscp == packet.dscp)
            && self.network.is_none_or(at)
    }
}

/// How long a packet may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    /// As long as it takes.
    Whenever,
    /// So long.
    Time(Duration),
    /// As long as a TCP waits before it sends again what is not answered.
    Patience,
}

/// How packets of one kind are carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Treatment {
    /// What it is called, in metrics.
    pub(super) class: Arc<str>,
    pub(super) within: Within,
    pub(super) priority: u8,
    pub(super) redundancy: Option<Redundancy>,
    pub(super) ordered: bool,
}

impl Treatment {
    /// What is said of a class, over what packets of a transport have if nothing is said.
    ///
    /// TCP keeps its order, as it takes what is out of order for a loss; and of what is lost in a path it is spared the news as long as it would not have found out itself.
    /// Repair fragments would be bytes that it could use itself.
    fn of(class: &str, settings: &ClassSettings, transport: Transport) -> Self {
        let is_tcp = matches!(transport, Transport::Tcp { .. });
        let within = match settings.deadline {
            Some(Deadline(Some(time))) => Within::Time(time),
            Some(Deadline(None)) => Within::Whenever,
            None if is_tcp => Within::Patience,
            None => Within::Time(DEFAULT_DEADLINE),
        };
        Self {
            class: class.into(),
            within,
            priority: settings.priority.unwrap_or(128),
            redundancy: settings.redundancy.or(is_tcp.then_some(Redundancy::Retransmit)),
            ordered: settings.ordered.unwrap_or(is_tcp),
        }
    }
}

/// Says of each packet how it is carried.
#[derive(Debug, Default)]
pub(super) struct Classes(Vec<(Rule, [Arc<Treatment>; 2])>, Defaults);

/// What is of no class: TCP, UDP, ICMP, others.
#[derive(Debug)]
struct Defaults([Arc<Treatment>; 4]);

impl Default for Defaults {
    fn default() -> Self {
        let of = |name, transport| Arc::new(Treatment::of(name, &ClassSettings::default(), transport));
        let tcp = Transport::Tcp { header: 0 };
        Self([of("tcp", tcp), of("udp", Transport::Udp), of("icmp", Transport::Icmp), of("other", Transport::Other)])
    }
}

impl Classes {
    pub(super) fn of(config: &Config) -> Self {
        let rule = |rule: &Rule| {
            let settings = config.classes.get(&rule.class)?;
            let of = |transport| Arc::new(Treatment::of(&rule.class, settings, transport));
            Some((rule.clone(), [of(Transport::Tcp { header: 0 }), of(Transport::Other)]))
        };
        Self(config.rules.iter().filter_map(rule).collect(), Defaults::default())
    }

    pub(super) fn classify(&self, packet: &Packet) -> &Arc<Treatment> {
        let Self(rules, Defaults(defaults)) = self;
        let is_tcp = matches!(packet.transport, Transport::Tcp { .. });
        match rules.iter().find(|(rule, _)| rule.holds(packet)) {
            Some((_, [tcp, other])) => {
                if is_tcp {
                    tcp
                } else {
                    other
                }
            }
            None => match packet.transport {
                Transport::Tcp { .. } => &defaults[0],
                Transport::Udp => &defaults[1],
                Transport::Icmp => &defaults[2],
                Transport::Other => &defaults[3],
            },
        }
    }
}

impl ConfigError {
    /// The setting that is at fault, if it is one, by its name and those of the tables that it is in: `limits.flows`, `rule.0`.
    pub fn setting(&self) -> Option<String> {
        match self {
            Self::Limit(name, ..) => Some(format!("limits.{name}")),
            Self::NoClass(number, _) | Self::PortZero(number) => Some(format!("rule.{}", number - 1)),
            Self::Mtu(_) => Some("vpn.mtu".into()),
            _ => None,
        }
    }
}

/// A VPN cannot do that.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The server has no address.
    #[error("the server needs an address, such as 10.9.0.1/24, in the network that clients are given addresses of")]
    NoAddress,
    /// A network is given twice, or two overlap.
    #[error("{0} and {1} overlap")]
    Overlap(IpNet, IpNet),
    /// An address cannot be the server's, as it stands for a network.
    #[error("{0} stands for the network itself; the server's address is one within it, such as 10.9.0.1/24")]
    NotAHost(IpNet),
    /// Nobody may come.
    #[error("nobody is let in: name the fingerprint of a client at least")]
    NoClients,
    /// Two clients have one fingerprint.
    #[error("two clients have the fingerprint {0}")]
    Twice(Fingerprint),
    /// A client is called what metrics have no word for.
    #[error("client {0:?}: {error}", error = NameError)]
    ClientName(String),
    /// Two clients have one name.
    #[error("two clients are called `{0}`")]
    SameName(String),
    /// A class is called what metrics have no word for.
    #[error("class {0:?}: {error}", error = NameError)]
    ClassName(String),
    /// Two clients, or one and the server, have one address.
    #[error("{0} is given to two")]
    SameAddress(IpAddr),
    /// An address of a client is in none of the server's networks.
    #[error("{0} is in none of the server's networks")]
    Outside(IpAddr),
    /// More than the protocol has room for.
    #[error("{0}: {1} are too many")]
    TooMany(&'static str, usize),
    /// Smaller than IPv6 needs.
    #[error("the MTU is {0}; IPv6 needs 1280")]
    Mtu(u16),
    /// A rule refers to a class that does not exist.
    #[error("rule {0}: there is no class `{1}`")]
    NoClass(usize, String),
    /// A rule holds for no packet.
    #[error("rule {0} never holds: nothing is from or to port 0")]
    PortZero(usize),
    /// A class has a setting that is for tunnels.
    #[error("class `{0}`: a VPN holds nothing back, and has no latency")]
    Latency(String),
    /// A limit with which nothing could be done.
    #[error("limits.{0} is {1}; it must be {2}")]
    Limit(&'static str, usize, &'static str),
}

impl Config {
    /// Whether a VPN can do that.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(server) = &self.server {
            server.check()?;
        }
        if let Some(class) = self.classes.keys().find(|class| class.parse::<Name>().is_err()) {
            return Err(ConfigError::ClassName(class.clone()));
        }
        for (number, rule) in self.rules.iter().enumerate() {
            if !self.classes.contains_key(&rule.class) {
                return Err(ConfigError::NoClass(number + 1, rule.class.clone()));
            }
            if rule.port == Some(0) {
                return Err(ConfigError::PortZero(number + 1));
            }
        }
        if let Some((name, _)) = self.classes.iter().find(|(_, settings)| settings.latency.is_some()) {
            return Err(ConfigError::Latency(name.clone()));
        }
        let Limits { clients, flows, queue, .. } = self.limits;
        if clients == 0 {
            return Err(ConfigError::Limit("clients", clients, "at least 1"));
        }
        if !(1..=4_095).contains(&flows) {
            return Err(ConfigError::Limit("flows", flows, "1 to 4095"));
        }
        if queue < 65_536 {
            return Err(ConfigError::Limit("queue", queue, "at least 65536"));
        }
        Ok(())
    }
}

impl Server {
    fn check(&self) -> Result<(), ConfigError> {
        let Self { addresses, routes, mtu, clients, .. } = self;
        if addresses.is_empty() {
            return Err(ConfigError::NoAddress);
        }
        if addresses.len() > MAX_ADDRESSES {
            return Err(ConfigError::TooMany("address", addresses.len()));
        }
        if routes.len() > MAX_ROUTES {
            return Err(ConfigError::TooMany("route", routes.len()));
        }
        if *mtu < 1_280 {
            return Err(ConfigError::Mtu(*mtu));
        }
        for (index, address) in addresses.iter().enumerate() {
            overlap(address, &addresses[..index])?;
            if address.addr() == address.network() && address.prefix_len() < address.max_prefix_len() - 1 {
                return Err(ConfigError::NotAHost(*address));
            }
        }
        if clients.is_empty() {
            return Err(ConfigError::NoClients);
        }
        let (mut known, mut called, mut given, mut networks) =
            (HashSet::new(), HashSet::new(), HashSet::new(), Vec::new());
        given.extend(addresses.iter().map(IpNet::addr));
        for client in clients {
            if !known.insert(client.fingerprint) {
                return Err(ConfigError::Twice(client.fingerprint));
            }
            let name = client.name();
            if name.parse::<Name>().is_err() {
                return Err(ConfigError::ClientName(name));
            }
            if !called.insert(name.clone()) {
                return Err(ConfigError::SameName(name));
            }
            if client.address.len() > MAX_ADDRESSES {
                return Err(ConfigError::TooMany("address", client.address.len()));
            }
            for address in &client.address {
                if !addresses.iter().any(|network| network.contains(address)) {
                    return Err(ConfigError::Outside(*address));
                }
                if !given.insert(*address) {
                    return Err(ConfigError::SameAddress(*address));
                }
            }
            for network in &client.networks {
                overlap(network, addresses)?;
                overlap(network, &networks)?;
                networks.push(*network);
            }
        }
        Ok(())
    }
}

fn overlap(one: &IpNet, others: &[IpNet]) -> Result<(), ConfigError> {
    let overlaps = |other: &&IpNet| other.contains(&one.network()) || one.contains(&other.network());
    others.iter().find(overlaps).map_or(Ok(()), |other| Err(ConfigError::Overlap(*one, *other)))
}

#[cfg(test)]
mod tests;
