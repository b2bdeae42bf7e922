//! IPv6 addresses that are of use on one link only, and the interface of that link: `fe80::1%eth0`, or by its number `fe80::1%3`.

use std::{
    fmt,
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    str::FromStr,
};

use thiserror::Error;

/// An address on the link of an interface, which need not be there yet.
///
/// ```
/// use punctual::scope::OnLink;
///
/// let end: OnLink = "[fe80::1%eth0]:4433".parse()?;
/// assert_eq!((end.interface.as_str(), end.port, end.to_string()), ("eth0", 4433, "[fe80::1%eth0]:4433".into()));
/// assert_eq!("fe80::1%3".parse::<OnLink>()?.port, 0);
/// # Ok::<(), punctual::scope::ScopeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OnLink {
    /// The address.
    pub ip: Ipv6Addr,
    /// Its port; 0 for none in particular.
    pub port: u16,
    /// The interface's name, or its number.
    pub interface: String,
}

/// Why an address and an interface do not go together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// There is something else before the `%`.
    #[error(
        "before `%` and the name of an interface there is an IPv6 address, as in fe80::1%eth0, or [fe80::1%eth0]:4433 with a port"
    )]
    NoAddress,
    /// No interface is called so, or has that number.
    #[error("there is no interface `{name}` for {ip}; there are {}", listed(.known))]
    Unknown {
        /// As it was written.
        name: String,
        /// The address behind which it was.
        ip: Ipv6Addr,
        /// Those there are.
        known: Vec<String>,
    },
    /// It is no address with a port.
    #[error("`{0}` is no address with port")]
    NoPort(String),
    /// The address may be on any link.
    #[error(
        "{0} is the address of a host on one link: say by which interface, as in {0}%eth0 (`ip -6 address` names them)"
    )]
    Missing(Ipv6Addr),
}

/// Names for people.
fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

impl OnLink {
    /// The address as the system has it while the interface is there: with the interface's number.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`] if the interface is not there.
    pub fn address(&self) -> Result<SocketAddr, ScopeError> {
        let Self { ip, port, interface } = self;
        let index = index_of(interface).ok_or_else(|| ScopeError::Unknown {
            name: interface.clone(),
            ip: *ip,
            known: interfaces().into_iter().map(|(name, index)| format!("{name} (%{index})")).collect(),
        })?;
        Ok(SocketAddrV6::new(*ip, *port, 0, index).into())
    }

    /// Whether its interface is this one.
    pub(crate) fn is_of(&self, name: &str, index: Option<u32>) -> bool {
        self.interface == name || index.is_some() && self.interface.parse().ok() == index
    }
}

impl FromStr for OnLink {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.rsplit_once("]:")) {
            Some((host, port)) => (host, port.parse().map_err(|_| ScopeError::NoAddress)?),
            None => (text, 0),
        };
        let (ip, interface) = host.split_once('%').ok_or(ScopeError::NoAddress)?;
        let ip: Ipv6Addr = ip.parse().map_err(|_| ScopeError::NoAddress)?;
        if interface.contains([':', ']']) {
            return Err(ScopeError::NoAddress);
        }
        Ok(Self { ip, port, interface: interface.to_owned() })
    }
}

impl fmt::Display for OnLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ip, port, interface } = self;
        match port {
            0 => write!(f, "{ip}%{interface}"),
            port => write!(f, "[{ip}%{interface}]:{port}"),
        }
    }
}

/// Reads an address with an interface, with a port (`[fe80::1%eth0]:4433`) or without (0), as the interfaces are now; `None` if there is no `%` in it, so that it is something else.
pub fn parse(text: &str) -> Option<Result<SocketAddr, ScopeError>> {
    text.contains('%').then(|| text.parse().and_then(|end: OnLink| end.address()))
}

/// Reads an address with a port, where one is to be listened at: `192.0.2.7:4433`, `[2001:db8::1]:4433`, `[fe80::1%eth0]:4433`.
///
/// # Errors
/// If it is none, or does not say on which link it is, or says one that is not there.
pub fn parse_with_port(text: &str) -> Result<SocketAddr, ScopeError> {
    match parse(text) {
        Some(_) if !text.starts_with('[') => Err(ScopeError::NoPort(text.to_owned())),
        Some(address) => address,
        None => check(text.parse().map_err(|_| ScopeError::NoPort(text.to_owned()))?),
    }
}

/// That an address says all that is to be known of where it is.
///
/// # Errors
/// [`ScopeError::Missing`] if it is of use on one link only, and does not say on which.
pub fn check(address: SocketAddr) -> Result<SocketAddr, ScopeError> {
    match address {
        SocketAddr::V6(v6) if is_loose(&v6) => Err(ScopeError::Missing(*v6.ip())),
        address => Ok(address),
    }
}

/// The address; if it is of use on one link only and does not say on which, on that of this interface, if that is there.
pub fn on_link_of(interface: &str, address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if is_loose(&v6) => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, index_of(interface).unwrap_or(0)).into()
        }
        address => address,
    }
}

/// An address without its port, for people.
pub fn without_port(address: SocketAddr) -> String {
    let SocketAddr::V6(v6) = address else { return address.ip().to_string() };
    match v6.scope_id() {
        0 => v6.ip().to_string(),
        index => format!("{}%{}", v6.ip(), name_of(index).unwrap_or_else(|| index.to_string())),
    }
}

fn is_loose(address: &SocketAddrV6) -> bool {
    address.ip().is_unicast_link_local() && address.scope_id() == 0
}

/// The interfaces there are, with their numbers. A list that cannot be read is empty.
fn interfaces() -> Vec<(String, u32)> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let mut all: Vec<_> = all.into_iter().filter_map(|found| Some((found.name, found.index?))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The number of an interface, by its name or that number.
fn index_of(name: &str) -> Option<u32> {
    let number = name.parse().ok();
    interfaces().into_iter().find(|(known, index)| known == name || Some(*index) == number).map(|(_, index)| index)
}

fn name_of(index: u32) -> Option<String> {
    interfaces().into_iter().find(|(_, known)| *known == index).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interface that every host has.
    fn loopback() -> (String, u32) {
        let all = if_addrs::get_if_addrs().unwrap();
        let found = all.into_iter().find(if_addrs::Interface::is_loopback).expect("there is a loopback interface");
        (found.name, found.index.expect("interfaces have numbers"))
    }

    #[test]
    fn an_interface_goes_by_its_name_and_its_number() {
        let (name, index) = loopback();
        let expected = |port| Some(Ok(SocketAddrV6::new("fe80::1".parse().unwrap(), port, 0, index).into()));
        for zone in [name.clone(), index.to_string()] {
            assert_eq!(parse(&format!("fe80::1%{zone}")), expected(0));
            assert_eq!(parse(&format!("[fe80::1%{zone}]:4433")), expected(4433));
            let end: OnLink = format!("fe80::1%{zone}").parse().unwrap();
            assert!(end.is_of(&name, Some(index)) && !end.is_of("no-such-if0", None));
        }
        let address = parse(&format!("[fe80::1%{index}]:4433")).unwrap().unwrap();
        assert_eq!(without_port(address), format!("fe80::1%{name}"));
        assert_eq!(without_port("192.0.2.7:9".parse().unwrap()), "192.0.2.7");
        assert_eq!(on_link_of(&name, "[fe80::1]:9".parse().unwrap()), format!("[fe80::1%{index}]:9").parse().unwrap());
        assert_eq!(on_link_of(&name, "[2001:db8::1]:9".parse().unwrap()), "[2001:db8::1]:9".parse().unwrap());
    }

    #[test]
    fn what_is_none_is_named() {
        assert_eq!(parse("fe80::1"), None);
        for bad in
            ["192.0.2.7%eth0", "%eth0", "host%eth0", "[fe80::1%eth0]:port", "[fe80::1%eth0]", "fe80::1%eth0:4433"]
        {
            assert_eq!(parse(bad), Some(Err(ScopeError::NoAddress)), "{bad}");
        }
        for bad in ["fe80::1%no-such-if0", "fe80::1%", "[fe80::1%4294967295]:1"] {
            let Some(Err(error @ ScopeError::Unknown { .. })) = parse(bad) else { panic!("{bad}") };
            assert!(error.to_string().contains(&loopback().0), "{error}");
        }
        for bad in ["fe80::1%1", "fe80::1", "here:1", "[fe80::1]:1"] {
            assert!(parse_with_port(bad).is_err(), "{bad}");
        }
        let (_, index) = loopback();
        for good in ["192.0.2.7:1".to_owned(), "[::1]:1".to_owned(), format!("[fe80::1%{index}]:1")] {
            assert_eq!(parse_with_port(&good).unwrap(), good.parse().unwrap());
        }
        let loose = check("[fe80::1]:4433".parse().unwrap()).unwrap_err();
        assert!(loose.to_string().contains("fe80::1%eth0"));
        for good in ["[fe80::1%1]:4433", "[2001:db8::1]:4433", "192.0.2.7:1"] {
            assert!(check(good.parse().unwrap()).is_ok(), "{good}");
        }
    }
}
