//! IPv6 addresses that are of use on one link only, and the interface of that link: `fe80::1%eth0`, or by its number `fe80::1%3`.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use thiserror::Error;

use crate::exit::Failure;

/// Why an address and an interface do not go together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ScopeError {
    /// There is something else before the `%`.
    #[error(
        "before `%` and the name of an interface there is an IPv6 address, as in fe80::1%eth0, or [fe80::1%eth0]:4433 with a port"
    )]
    NoAddress,
    /// No interface is called so, or has that number.
    #[error("there is no interface `{name}` for {ip}; there are {known}")]
    Unknown {
        /// As it was written.
        name: String,
        /// The address behind which it was.
        ip: Ipv6Addr,
        /// Those there are.
        known: String,
    },
    /// The address may be on any link.
    #[error(
        "{0} is the address of a host on one link: say by which interface, as in {0}%eth0 (`ip -6 address` names them)"
    )]
    Missing(Ipv6Addr),
}

impl From<ScopeError> for Failure {
    fn from(error: ScopeError) -> Self {
        let text = error.to_string();
        match error {
            ScopeError::Unknown { .. } => Self::Path(text),
            ScopeError::NoAddress | ScopeError::Missing(_) => Self::Usage(text),
        }
    }
}

impl ScopeError {
    /// The same, with what it was found in.
    pub(crate) fn in_flag(self, flag: &str) -> Failure {
        match self.into() {
            Failure::Path(text) => Failure::Path(format!("{flag}: {text}")),
            Failure::Usage(text) => Failure::Usage(format!("{flag}: {text}")),
            other => other,
        }
    }
}

/// Reads an address with an interface, with a port (`[fe80::1%eth0]:4433`) or without (0); `None` if there is no `%` in it, so that it is something else.
pub(crate) fn parse(text: &str) -> Option<Result<SocketAddr, ScopeError>> {
    text.contains('%').then(|| {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.rsplit_once("]:")) {
            Some((host, port)) => (host, port.parse().map_err(|_| ScopeError::NoAddress)?),
            None => (text, 0),
        };
        let (ip, name) = host.split_once('%').ok_or(ScopeError::NoAddress)?;
        let ip: Ipv6Addr = ip.parse().map_err(|_| ScopeError::NoAddress)?;
        if name.contains([':', ']']) {
            return Err(ScopeError::NoAddress);
        }
        let index = index_of(name).ok_or_else(|| ScopeError::Unknown { name: name.to_owned(), ip, known: known() })?;
        Ok(SocketAddrV6::new(ip, port, 0, index).into())
    })
}

/// That an address says all that is to be known of where it is.
pub(crate) fn check(address: SocketAddr) -> Result<SocketAddr, ScopeError> {
    match address {
        SocketAddr::V6(v6) if is_loose(&v6) => Err(ScopeError::Missing(*v6.ip())),
        address => Ok(address),
    }
}

/// The address; if it is of use on one link only and does not say on which, on that of this interface.
pub(crate) fn on_link_of(interface: &str, address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if is_loose(&v6) => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, index_of(interface).unwrap_or(0)).into()
        }
        address => address,
    }
}

/// An address without its port, for people.
pub(crate) fn without_port(address: SocketAddr) -> String {
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

fn known() -> String {
    let names: Vec<String> = interfaces().into_iter().map(|(name, index)| format!("{name} (%{index})")).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
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
            assert_eq!(Failure::from(error).code(), 6);
        }
        let loose = check("[fe80::1]:4433".parse().unwrap()).unwrap_err();
        assert_eq!((Failure::from(loose.clone()).code(), loose.to_string().contains("fe80::1%eth0")), (2, true));
        for good in ["[fe80::1%1]:4433", "[2001:db8::1]:4433", "192.0.2.7:1"] {
            assert!(check(good.parse().unwrap()).is_ok(), "{good}");
        }
    }
}
