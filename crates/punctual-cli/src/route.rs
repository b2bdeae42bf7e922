//! From names to addresses: who the receiver is, and which of our ends to reach it from.

use std::{net::SocketAddr, time::Duration};

use punctual::Bind;

use crate::{config::spoken, exit::Failure};

/// One way to the receiver, as the command line has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Route {
    /// Our end; `None` leaves it to the system.
    pub(crate) local: Option<Bind>,
    /// Where to send to: `HOST:PORT`.
    pub(crate) to: String,
}

impl Route {
    /// Reads `LOCAL` or `LOCAL=HOST:PORT`; without the latter, the way leads `to`.
    pub(crate) fn parse(text: &str, to: &str) -> Result<Self, Failure> {
        let (local, to) = text.split_once('=').unwrap_or((text, to));
        let bind = local.parse().map_err(|error| Failure::Usage(format!("--path {text}: {error}")))?;
        Ok(Self { local: Some(bind), to: to.to_owned() })
    }

    /// For people.
    pub(crate) fn name(&self) -> String {
        match &self.local {
            None => "default".into(),
            Some(Bind::Address(address)) if address.port() == 0 => address.ip().to_string(),
            Some(bind) => bind.to_string(),
        }
    }
}

/// The host of `HOST:PORT`, without the brackets of an IPv6 address.
pub(crate) fn host(to: &str) -> Result<&str, Failure> {
    let (host, port) = to.rsplit_once(':').unwrap_or((to, ""));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match port.parse::<u16>() {
        Ok(1..) if !host.is_empty() => Ok(host),
        _ => Err(Failure::Usage(format!("`{to}` is not HOST:PORT"))),
    }
}

/// The addresses of `HOST:PORT`; at least one.
pub(crate) async fn resolve(to: &str, within: Duration) -> Result<Vec<SocketAddr>, Failure> {
    host(to)?;
    let unreachable = |reason: &dyn std::fmt::Display| Failure::Unreachable(format!("cannot resolve {to}: {reason}"));
    let found = tokio::time::timeout(within, tokio::net::lookup_host(to))
        .await
        .map_err(|_| unreachable(&format_args!("no answer within {}", spoken(within))))?
        .map_err(|error| unreachable(&error))?;
    let found: Vec<SocketAddr> = found.collect();
    if found.is_empty() { Err(unreachable(&"it has no address")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_an_end_and_perhaps_another_address() {
        let route = Route::parse("wlan0", "host:1").unwrap();
        assert_eq!((route.name().as_str(), route.to.as_str()), ("wlan0", "host:1"));
        let route = Route::parse("192.0.2.7=198.51.100.7:4433", "host:1").unwrap();
        assert_eq!((route.name().as_str(), route.to.as_str()), ("192.0.2.7", "198.51.100.7:4433"));
        assert_eq!(Route::parse("not an interface", "host:1").unwrap_err().code(), 2);
    }

    #[test]
    fn a_receiver_is_a_host_and_a_port() {
        assert_eq!(host("server.example:4433").unwrap(), "server.example");
        assert_eq!(host("[::1]:4433").unwrap(), "::1");
        for bad in ["", "server.example", ":4433", "host:", "host:0", "host:70000"] {
            assert_eq!(host(bad).unwrap_err().code(), 2, "{bad}");
        }
    }

    #[tokio::test]
    async fn numbers_need_no_resolver() {
        let within = Duration::from_secs(5);
        assert_eq!(resolve("127.0.0.1:9", within).await.unwrap(), ["127.0.0.1:9".parse().unwrap()]);
    }
}
