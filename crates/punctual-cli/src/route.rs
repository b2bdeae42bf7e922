//! From names to addresses: who the receiver is, and which of our ends to reach it from.

use std::{
    fmt::Display,
    net::{SocketAddr, SocketAddrV6},
    time::Duration,
};

use punctual::{Bind, Route, RouteTerms, Routes, duration::spoken};

use crate::{
    exit::Failure,
    scope::{self, OnLink, ScopeError},
};

/// What stands for every interface that leads to the receiver, in place of one of our ends.
const AUTO: &str = "auto";

/// The name of a path that leaves as the system chooses.
pub(crate) const SYSTEM: &str = "default";

/// One way to the receiver, as the command line has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Way {
    /// Our end.
    pub(crate) from: From,
    /// Where to send to: `HOST:PORT`.
    pub(crate) to: String,
    /// What its path is for and what it costs.
    pub(crate) terms: RouteTerms,
}

/// Our end of a way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum From {
    /// Whichever the system chooses.
    System,
    /// That one.
    Bind(Bind),
    /// Each interface that leads to the receiver is a way of its own.
    Auto,
}

impl Way {
    /// Whichever way the system chooses.
    pub(crate) fn of_system(to: &str) -> Self {
        Self { from: From::System, to: to.to_owned(), terms: RouteTerms::new() }
    }

    /// Reads `LOCAL` or `LOCAL=HOST:PORT`, and behind commas a role, a cost, a budget or several of them; without the address, the way leads `to`.
    pub(crate) fn parse(text: &str, to: &str) -> Result<Self, Failure> {
        let wrong = |error: &dyn Display| Failure::Usage(format!("--path {text}: {error}"));
        let named = |error: ScopeError| scope::in_flag(error, &format!("--path {text}"));
        let mut parts = text.split(',');
        let way = parts.next().unwrap_or_default();
        let (local, to) = way.split_once('=').unwrap_or((way, to));
        let from = match local {
            AUTO => From::Auto,
            // Its interface is waited for, as any is.
            _ if local.contains('%') => From::Bind(Bind::OnLink(local.parse().map_err(named)?)),
            _ => From::Bind(local.parse().map_err(|error| wrong(&error))?),
        };
        if let From::Bind(Bind::Address(address)) = &from {
            scope::check(*address).map_err(named)?;
        }
        let mut terms = RouteTerms::new();
        for part in parts {
            terms = match part.split_once('=') {
                Some(("cost", cost)) => terms.cost(parse_cost(cost).map_err(|error| wrong(&error))?),
                Some(("budget", budget)) => terms.budget(budget.parse().map_err(|error| wrong(&error))?),
                Some((key, _)) => {
                    let known = "there are `cost=NUMBER` and `budget=BYTES/TIME`";
                    return Err(wrong(&format_args!("`{key}` is not known; {known}")));
                }
                None => terms.role(part.parse().map_err(|error| wrong(&error))?),
            };
        }
        Ok(Self { from, to: to.to_owned(), terms })
    }

    /// What it is to one of the receiver's addresses; `None` if our end is of another IP version.
    pub(crate) fn routes_to(&self, remote: SocketAddr) -> Option<Routes> {
        let bind = match &self.from {
            From::Auto => return Some(Routes::new().and_auto_on(remote, self.terms)),
            From::Bind(Bind::Address(address)) if address.is_ipv4() != remote.is_ipv4() => return None,
            From::Bind(Bind::OnLink(_)) if remote.is_ipv4() => return None,
            From::Bind(bind) => bind.clone(),
            From::System if remote.is_ipv4() => Bind::Address(([0; 4], 0).into()),
            From::System => Bind::Address(([0u16; 8], 0).into()),
        };
        Some(Routes::new().route_on(Route::new(bind, remote), self.terms))
    }
}

impl From {
    /// The interface that it names.
    fn interface(&self) -> Option<&str> {
        match self {
            Self::Bind(Bind::Interface(name) | Bind::OnLink(OnLink { interface: name, .. })) => Some(name),
            Self::Bind(Bind::Address(_)) | Self::System | Self::Auto => None,
        }
    }
}

fn parse_cost(text: &str) -> Result<f64, &'static str> {
    let cost = text.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0);
    cost.ok_or("a cost is a number, and not less than nothing")
}

/// A route's name for people: that of the interface or address it leaves from.
pub(crate) fn name(bind: &Bind) -> String {
    match bind {
        Bind::Address(address) if address.ip().is_unspecified() => SYSTEM.into(),
        Bind::Address(address) if address.port() == 0 => scope::without_port(*address),
        bind => bind.to_string(),
    }
}

/// The host of `HOST:PORT`, without the brackets of an IPv6 address and the interface behind it: what a certificate bears.
pub(crate) fn host(to: &str) -> Result<&str, Failure> {
    let (host, port) = to.rsplit_once(':').unwrap_or((to, ""));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = host.split_once('%').map_or(host, |(host, _)| host);
    match port.parse::<u16>() {
        Ok(1..) if !host.is_empty() => Ok(host),
        _ => Err(Failure::Usage(format!("`{to}` is not HOST:PORT"))),
    }
}

/// The addresses that a way leads to; at least one.
pub(crate) async fn resolve(way: &Way, within: Duration) -> Result<Vec<SocketAddr>, Failure> {
    let to = &way.to;
    host(to)?;
    let named = way.from.interface();
    if to.contains('%') {
        let there: OnLink = to.parse()?;
        return match there.address() {
            // It is on the link of the interface that is waited for.
            Err(ScopeError::Unknown { ip, name, .. }) if named == Some(&name) => {
                Ok(vec![SocketAddrV6::new(ip, there.port, 0, 0).into()])
            }
            address => Ok(vec![address?]),
        };
    }
    let unreachable = |reason: &dyn Display| Failure::Unreachable(format!("cannot resolve {to}: {reason}"));
    let found = tokio::time::timeout(within, tokio::net::lookup_host(to))
        .await
        .map_err(|_| unreachable(&format_args!("no answer within {}", spoken(within))))?
        .map_err(|error| unreachable(&error))?;
    // An interface that was named says on which link an address is.
    let placed = found.map(|address| match named {
        // If it is not there, it is waited for.
        Some(name) => Ok(scope::on_link_of(name, address)),
        None => scope::check(address),
    });
    let (good, loose): (Vec<_>, Vec<_>) = placed.partition(Result::is_ok);
    match (good.is_empty(), loose.into_iter().find_map(Result::err)) {
        (true, Some(error)) => Err(error.into()),
        (true, None) => Err(unreachable(&"it has no address")),
        (false, _) => Ok(good.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use punctual::multipath::PathRole;

    use super::*;

    #[test]
    fn a_path_is_an_end_and_perhaps_another_address() {
        let way = Way::parse("wlan0", "host:1").unwrap();
        assert_eq!((way.from, way.to.as_str()), (From::Bind("wlan0".parse().unwrap()), "host:1"));
        let way = Way::parse("192.0.2.7=198.51.100.7:4433", "host:1").unwrap();
        assert_eq!((way.from, way.to.as_str()), (From::Bind("192.0.2.7".parse().unwrap()), "198.51.100.7:4433"));
        let way = Way::parse("auto", "host:1").unwrap();
        assert_eq!((way.from, way.to.as_str()), (From::Auto, "host:1"));
        assert_eq!(Way::parse("not an interface", "host:1").unwrap_err().code(), 2);
    }

    #[test]
    fn a_path_may_have_a_role_and_a_cost() {
        let backup = RouteTerms::new().role(PathRole::Backup);
        for (text, terms) in [
            ("wwan0", RouteTerms::new()),
            ("wwan0,backup", backup),
            ("wwan0=h:2,cost=0.5,backup", backup.cost(0.5)),
            ("auto,cost=2", RouteTerms::new().cost(2.0)),
            ("wwan0,budget=10MB/1min", RouteTerms::new().budget("10MB/1min".parse().unwrap())),
        ] {
            assert_eq!(Way::parse(text, "host:1").unwrap().terms, terms, "{text}");
        }
        for (bad, word) in [
            ("w0,spare", "preferred, normal, backup"),
            ("w0,cost=-1", "not less than nothing"),
            ("w0,cost=NaN", "a number"),
            ("w0,price=1", "cost=NUMBER"),
            ("w0,budget=10MB", "10MB/1min"),
            ("w0,", "backup"),
            (",backup", "interface"),
        ] {
            let error = Way::parse(bad, "host:1").unwrap_err();
            assert!(error.code() == 2 && error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn an_end_leads_to_addresses_of_its_kind() {
        let (four, six) = ("192.0.2.1:1".parse().unwrap(), "[2001:db8::1]:1".parse().unwrap());
        let leads = |path: &str| {
            let way = Way::parse(path, "host:1").unwrap();
            [four, six].map(|remote| way.routes_to(remote).is_some())
        };
        assert_eq!(leads("192.0.2.7"), [true, false]);
        assert_eq!(leads("2001:db8::7"), [false, true]);
        assert_eq!((leads("eth0"), leads("auto")), ([true; 2], [true; 2]));
    }

    #[test]
    fn a_receiver_is_a_host_and_a_port() {
        assert_eq!(host("server.example:4433").unwrap(), "server.example");
        assert_eq!(host("[::1]:4433").unwrap(), "::1");
        assert_eq!(host("[fe80::1%eth0]:4433").unwrap(), "fe80::1");
        for bad in ["", "server.example", ":4433", "host:", "host:0", "host:70000"] {
            assert_eq!(host(bad).unwrap_err().code(), 2, "{bad}");
        }
    }

    #[tokio::test]
    async fn numbers_need_no_resolver() {
        let within = Duration::from_secs(5);
        let resolve = |path: &str, to: &str| {
            let way = if path.is_empty() { Way::of_system(to) } else { Way::parse(path, to).unwrap() };
            async move { resolve(&way, within).await }
        };
        assert_eq!(resolve("", "127.0.0.1:9").await.unwrap(), ["127.0.0.1:9".parse().unwrap()]);
        assert_eq!(resolve("", "[::1]:9").await.unwrap(), ["[::1]:9".parse().unwrap()]);
        let error = resolve("", "[fe80::1]:9").await.unwrap_err();
        assert!(error.code() == 2 && error.to_string().contains("say by which interface"), "{error}");
        let error = resolve("", "[fe80::1%no-such-if0]:9").await.unwrap_err();
        assert!(error.code() == 6 && error.to_string().contains("no interface `no-such-if0`"), "{error}");
        // By its number, or by the interface that the way leaves from.
        let loopback = if_addrs::get_if_addrs().unwrap().into_iter().find(if_addrs::Interface::is_loopback).unwrap();
        let index = loopback.index.unwrap();
        let placed: SocketAddr = format!("[fe80::1%{index}]:9").parse().unwrap();
        assert_eq!(resolve("", &placed.to_string()).await.unwrap(), [placed]);
        assert_eq!(resolve(&loopback.name, "[fe80::1]:9").await.unwrap(), [placed]);
        // Of one that is not there, once it is.
        for (path, to) in [
            ("nosuchif0", "[fe80::1]:9"),
            ("fe80::2%nosuchif0", "[fe80::1]:9"),
            ("fe80::2%nosuchif0", "[fe80::1%nosuchif0]:9"),
        ] {
            assert_eq!(resolve(path, to).await.unwrap(), ["[fe80::1]:9".parse().unwrap()], "{path} {to}");
        }
        let error = resolve("fe80::2%nosuchif1", "[fe80::1%nosuchif0]:9").await.unwrap_err();
        assert_eq!(error.code(), 6, "{error}");
    }

    #[test]
    fn our_end_may_be_an_address_on_a_link() {
        let loopback = if_addrs::get_if_addrs().unwrap().into_iter().find(if_addrs::Interface::is_loopback).unwrap();
        let index = loopback.index.unwrap();
        let end = |text: &str| Way::parse(text, "host:1").map(|way| way.from);
        let bound: SocketAddr = format!("[fe80::1%{index}]:0").parse().unwrap();
        let address = |text: &str| match end(text).unwrap() {
            From::Bind(Bind::OnLink(end)) => end.address().ok(),
            other => panic!("{other:?}"),
        };
        assert_eq!(address(&format!("fe80::1%{},backup", loopback.name)), Some(bound));
        assert_eq!(address(&format!("fe80::1%{index}=[fe80::2%{index}]:4433")), Some(bound));
        // It is waited for.
        assert_eq!(address("fe80::1%no-such-if0"), None);
        for (bad, code, word) in [("fe80::1", 2, "say by which interface"), ("192.0.2.7%eth0", 2, "IPv6 address")] {
            let error = end(bad).unwrap_err();
            let text = error.to_string();
            assert!(error.code() == code && text.starts_with("--path fe") | text.starts_with("--path 19"), "{text}");
            assert!(text.contains(word), "{text}");
        }
    }
}
