//! What to bind, and what came of it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr, SocketAddrV6},
    str::FromStr,
};

use punctual_proto::LocalId;
use thiserror::Error;

use crate::{error::BuildError, scope::OnLink};

/// What to bind a socket to.
///
/// ```
/// use punctual::Bind;
///
/// assert_eq!("192.0.2.7".parse(), Ok(Bind::Address(([192, 0, 2, 7], 0).into())));
/// assert_eq!("[::1]:4433".parse(), Ok(Bind::Address("[::1]:4433".parse()?)));
/// assert_eq!("wlan0".parse(), Ok(Bind::Interface("wlan0".into())));
/// assert_eq!("fe80::1%wlan0".parse(), Ok(Bind::OnLink("fe80::1%wlan0".parse()?)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Bind {
    /// An address and port; port 0 lets the system choose. The unspecified address (`0.0.0.0`, `[::]`) stands for all addresses of its
    /// IP version.
    Address(SocketAddr),
    /// A network interface by name: one socket for each IP version it has an address of.
    ///
    /// On Linux the socket is tied to the interface itself, so that packets leave through it whatever the routing table says. Where
    /// that is not allowed or not possible, the socket is bound to the interface's address, and the routing table
    /// decides.
    Interface(String),
    /// An address of IPv6 on the link of an interface, whichever number that has when it is bound.
    OnLink(OnLink),
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Interface(name) => name.fmt(f),
            Self::OnLink(end) => end.fmt(f),
        }
    }
}

/// The text names neither an address nor an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "expected an IP address, an address with port, or the name of a network interface, or, of IPv6, an address on the link of one (fe80::1%eth0)"
)]
pub struct BindParseError;

impl FromStr for Bind {
    type Err = BindParseError;

    fn from_str(text: &str) -> Result<Self, BindParseError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Address(address));
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Address((ip, 0).into()));
        }
        if text.contains('%') {
            return text.parse().map(Self::OnLink).map_err(|_| BindParseError);
        }
        // A name the kernel would allow (`dev_valid_name`), that is not a mistyped address.
        let name =
            (1..=15).contains(&text.len()) && !text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
        let address = text.chars().all(|c| c.is_ascii_digit() || c == '.');
        if name && !address { Ok(Self::Interface(text.to_owned())) } else { Err(BindParseError) }
    }
}

impl From<SocketAddr> for Bind {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl From<IpAddr> for Bind {
    fn from(ip: IpAddr) -> Self {
        Self::Address((ip, 0).into())
    }
}

/// Our end of a path that is to be opened, for [`Session::open_path`](crate::Session::open_path): one that the endpoint has, or what to bind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LocalEnd {
    /// One of the endpoint's [`locals`](crate::Endpoint::locals).
    Id(LocalId),
    /// The socket that was bound as this and can reach the peer, as far as its IP version goes; a new one, if there is none.
    Bind(Bind),
}

impl From<LocalId> for LocalEnd {
    fn from(id: LocalId) -> Self {
        Self::Id(id)
    }
}

impl From<Bind> for LocalEnd {
    fn from(bind: Bind) -> Self {
        Self::Bind(bind)
    }
}

/// One of an endpoint's own ends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Local {
    /// Its name, for `connect` and `open_path`.
    pub id: LocalId,
    /// The address it is bound to.
    pub address: SocketAddr,
    /// What was asked for when it was bound.
    pub bind: Bind,
}

/// Whether an address is of use on one link only.
fn is_of_a_link(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Whether one with that address can reach the other, as far as that is known by the addresses: one of a link alone leads no further.
pub(crate) fn reaches(from: IpAddr, to: IpAddr) -> bool {
    !is_of_a_link(from) || is_of_a_link(to)
}

impl Bind {
    /// Its addresses as the interfaces are now, at least one, and the interface that a socket is to be tied to.
    pub(crate) fn addresses(&self) -> Result<(Vec<SocketAddr>, Option<&str>), BuildError> {
        match self {
            Self::Address(address) => Ok((vec![*address], None)),
            Self::Interface(name) => Ok((interface_addresses(name)?, Some(name.as_str()))),
            Self::OnLink(end) => match end.address() {
                Ok(address) => Ok((vec![address], None)),
                Err(_) => Err(no_interface(&end.interface, &if_addrs::get_if_addrs().unwrap_or_default())),
            },
        }
    }

    /// Whether it is an address of the other IP version than `remote`.
    pub(crate) fn is_of_another_family_than(&self, remote: SocketAddr) -> bool {
        match self {
            Self::Address(address) => address.is_ipv4() != remote.is_ipv4(),
            Self::Interface(_) => false,
            Self::OnLink(_) => remote.is_ipv4(),
        }
    }

    /// The port that it asks for, if it does.
    pub(crate) fn port(&self) -> Option<u16> {
        let port = match self {
            Self::Address(address) => address.port(),
            Self::Interface(_) => 0,
            Self::OnLink(end) => end.port,
        };
        Some(port).filter(|&port| port != 0)
    }
}

/// That there is no such interface, but others.
fn no_interface(name: &str, all: &[if_addrs::Interface]) -> BuildError {
    let mut known: Vec<_> = all.iter().map(|i| i.name.clone()).collect();
    known.sort();
    known.dedup();
    BuildError::Interface { name: name.to_owned(), known }
}

/// An address without its port, but with the link that it is of use on: `fe80::1%3`.
pub(crate) fn without_port(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        address => address.ip().to_string(),
    }
}

/// The addresses of an interface that a socket may be bound to: at most one of each IP version, with the reach to leave the link if it
/// has one.
fn interface_addresses(name: &str) -> Result<Vec<SocketAddr>, BuildError> {
    let all = if_addrs::get_if_addrs().map_err(BuildError::Interfaces)?;
    let of = |v4: bool| {
        all.iter().filter(|i| i.name == name && i.ip().is_ipv4() == v4).min_by_key(|i| i.is_link_local()).map(|i| {
            match i.ip() {
                IpAddr::V4(ip) => SocketAddr::from((ip, 0)),
                IpAddr::V6(ip) => {
                    let scope = if i.is_link_local() { i.index.unwrap_or(0) } else { 0 };
                    SocketAddrV6::new(ip, 0, 0, scope).into()
                }
            }
        })
    };
    let found: Vec<_> = [of(true), of(false)].into_iter().flatten().collect();
    if found.is_empty() { Err(no_interface(name, &all)) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_addresses_are_not_taken_for_interfaces() {
        for bad in [
            "",
            "127.0.0.1.5",
            "eth0%1",
            "127.0.0.1%eth0",
            "256.1.1.1",
            "::zz",
            "eth0:80",
            "a name",
            "an-interface-name-too-long",
        ] {
            assert_eq!(bad.parse::<Bind>(), Err(BindParseError), "{bad}");
        }
    }

    #[test]
    fn an_address_keeps_its_link() {
        let without_port = |text: &str| without_port(&text.parse().unwrap());
        assert_eq!(without_port("[fe80::1%3]:9"), "fe80::1%3");
        assert_eq!(without_port("[fe80::1]:9"), "fe80::1");
        assert_eq!(without_port("192.0.2.7:9"), "192.0.2.7");
    }

    #[test]
    fn an_unknown_interface_is_an_error_that_names_the_others() {
        let Err(BuildError::Interface { known, .. }) = interface_addresses("no-such-if0") else { panic!() };
        assert!(!known.is_empty());
    }
}
