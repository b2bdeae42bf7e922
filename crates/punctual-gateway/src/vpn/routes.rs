//! What a client takes of what a server gives it: an address is not to cut off a network that the client is in, nor a route to take traffic that it was not to have.
//!
//! Whoever has a server's key says where a client's packets go, so a client says how far it goes along ([`AcceptRoutes`]). Some things no server may have, whatever the client accepts: the
//! networks of the client's other interfaces, loopback and the like, and the server's own addresses, to which the session's packets go themselves.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use thiserror::Error;

use super::{device::Setup, wire::Welcome};

/// The shortest prefix of a VPN's own network that is taken unless more is accepted: 65,536 addresses of IPv4, a site of IPv6 (RFC 4193, section 3.1).
const OWN_V4: u8 = 16;
const OWN_V6: u8 = 48;

/// Networks of private use, of which a VPN's own may be: RFC 1918, RFC 6598, RFC 4193.
const PRIVATE: [IpNet; 5] = [
    v4([10, 0, 0, 0], 8),
    v4([172, 16, 0, 0], 12),
    v4([192, 168, 0, 0], 16),
    v4([100, 64, 0, 0], 10),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
];

/// What never leaves a host or its link (RFC 6890), or is not for one host: no server has it.
const NEVER: [IpNet; 9] = [
    v4([0, 0, 0, 0], 8),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([224, 0, 0, 0], 4),
    v4([255, 255, 255, 255], 32),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 127),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
    // What stands for an address of IPv4 within a host.
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
];

const fn v4(octets: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]), prefix))
}

const fn v6(parts: [u16; 8], prefix: u8) -> IpNet {
    let [a, b, c, d, e, f, g, h] = parts;
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix))
}

/// Which networks a client lets a server have, beyond the VPN's own: routes to them are taken, and packets from them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub enum AcceptRoutes {
    /// None: the server is reached, and who else has an address of the VPN's network.
    #[default]
    None,
    /// What lies within one of these.
    Within(Vec<IpNet>),
    /// Whatever the server says.
    All,
}

/// As settings have it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    One(String),
    Some(Vec<String>),
}

impl TryFrom<Written> for AcceptRoutes {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::One(word) => word.parse(),
            Written::Some(words) => {
                words.iter().map(|word| word.parse()).collect::<Result<Vec<_>, _>>().and_then(Self::all_of)
            }
        }
    }
}

impl FromStr for AcceptRoutes {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "none" => Ok(Self::None),
            "all" => Ok(Self::All),
            network => match network.parse() {
                Ok(network) => Ok(Self::Within(vec![network])),
                Err(_) => Err(format!("`{network}` is neither a network, such as 192.168.0.0/16, nor `none` or `all`")),
            },
        }
    }
}

impl AcceptRoutes {
    /// What several of them say together.
    ///
    /// # Errors
    /// If `none` or `all` stands beside others.
    pub fn all_of(words: Vec<Self>) -> Result<Self, String> {
        if let [_] = &words[..] {
            return Ok(words.into_iter().next().unwrap_or_default());
        }
        let networks: Result<Vec<_>, _> = words
            .into_iter()
            .map(|word| match word {
                Self::Within(networks) => Ok(networks),
                Self::None | Self::All => Err("`none` and `all` stand alone"),
            })
            .collect();
        Ok(Self::Within(networks?.concat()))
    }

    fn contains(&self, network: &IpNet) -> bool {
        match self {
            Self::None => false,
            Self::Within(networks) => networks.iter().any(|one| one.contains(network)),
            Self::All => true,
        }
    }
}

/// Why a client does not take an address or a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The client's settings do not let the server have it.
    #[error("accept-routes does not contain it")]
    NotAccepted,
    /// The network of an address is none of private use, or is large.
    #[error("accept-routes does not contain it, and it is no private network of at most /16, or of /48 of IPv6")]
    NotPrivate,
    /// It is for no network to have.
    #[error("it is of loopback, the link, multicast, or nobody")]
    Never,
    /// It is, or is within, a network that another interface of the client is in.
    #[error("another interface is in {0}")]
    Beside(IpNet),
    /// It is the server's address, to which the session's own packets go.
    #[error("the session's own packets go to {0}")]
    Server(IpAddr),
}

/// What is refused, and why.
pub(super) type Refused = Vec<(IpNet, Refusal)>;

/// Where a client is.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings<'a> {
    /// The networks of its other interfaces, with its addresses.
    pub(super) beside: &'a [IpNet],
    /// Addresses of the server's that are reached as the system's routes say, and would be by the VPN itself if these said so.
    pub(super) servers: &'a [IpAddr],
}

/// What is taken of what a server gives.
pub(super) fn judge(given: &Welcome, accept: &AcceptRoutes, around: &Surroundings) -> (Setup, Refused) {
    let Welcome { mtu, addresses, routes, .. } = given;
    let mut refused = Vec::new();
    let mut take = |network: &IpNet, refusal: Option<Refusal>| match refusal {
        Some(refusal) => {
            if !refused.contains(&(*network, refusal)) {
                refused.push((*network, refusal));
            }
            false
        }
        None => true,
    };
    let mut own = Vec::<IpNet>::new();
    for address in addresses {
        if take(address, of_address(address, accept, around)) && !own.contains(address) {
            own.push(*address);
        }
    }
    // Sorted, and each once: what is around two addresses of the server's has pieces in common.
    let mut pieces = BTreeSet::new();
    for route in routes {
        if take(route, of_route(&route.trunc(), accept, around)) {
            let mut around_servers = vec![route.trunc()];
            for server in around.servers {
                around_servers = around_servers.into_iter().flat_map(|piece| without(piece, *server)).collect();
            }
            pieces.extend(around_servers.into_iter().flat_map(halves));
        }
    }
    // The system has a route to the network of each address; and where a server is in a network of another interface's, the pieces around it are not ours either.
    pieces.retain(|piece| !own.iter().any(|address| address.trunc() == *piece) && beside(piece, around).is_none());
    (Setup { addresses: own, routes: pieces.into_iter().collect(), mtu: *mtu }, refused)
}

fn of_address(address: &IpNet, accept: &AcceptRoutes, around: &Surroundings) -> Option<Refusal> {
    let network = address.trunc();
    let long = match network {
        IpNet::V4(network) => network.prefix_len() >= OWN_V4,
        IpNet::V6(network) => network.prefix_len() >= OWN_V6,
    };
    let is_private = || long && PRIVATE.iter().any(|private| private.contains(&network));
    let host = IpNet::from(address.addr());
    never(&host)
        .or_else(|| never(&network))
        .or_else(|| beside(&host, around))
        .or_else(|| beside(&network, around))
        .or_else(|| (!accept.contains(&network) && !is_private()).then_some(Refusal::NotPrivate))
        .or_else(|| {
            around.servers.iter().find(|server| network.contains(*server)).map(|server| Refusal::Server(*server))
        })
}

fn of_route(route: &IpNet, accept: &AcceptRoutes, around: &Surroundings) -> Option<Refusal> {
    let is_server = |server: &&IpAddr| IpNet::from(**server) == *route;
    never(route)
        .or_else(|| (!accept.contains(route)).then_some(Refusal::NotAccepted))
        .or_else(|| beside(route, around))
        .or_else(|| around.servers.iter().find(is_server).map(|server| Refusal::Server(*server)))
}

fn never(network: &IpNet) -> Option<Refusal> {
    NEVER.iter().any(|never| never.contains(network)).then_some(Refusal::Never)
}

/// Of two routes the longer prefix has it, so that only what is as long or longer takes something away.
fn beside(network: &IpNet, around: &Surroundings) -> Option<Refusal> {
    let others = around.beside.iter().map(IpNet::trunc).filter(|other| other.prefix_len() > 0);
    others.into_iter().find(|other| other.contains(network)).map(Refusal::Beside)
}

/// A network but for one address: itself, or as many pieces as its prefix is shorter than the address.
fn without(network: IpNet, address: IpAddr) -> Vec<IpNet> {
    let (mut pieces, mut left) = (Vec::new(), network);
    if !network.contains(&address) {
        return vec![network];
    }
    while left.prefix_len() < left.max_prefix_len() {
        let halves = left.subnets(left.prefix_len() + 1).into_iter().flatten();
        let (with, free): (Vec<_>, Vec<_>) = halves.partition(|half| half.contains(&address));
        pieces.extend(free);
        match with.first() {
            Some(half) => left = *half,
            None => break,
        }
    }
    pieces
}

/// Everything in two halves, so that a default route that is there goes on being there, and is in force again when we end.
fn halves(network: IpNet) -> Vec<IpNet> {
    match network.prefix_len() {
        0 => network.subnets(1).into_iter().flatten().collect(),
        _ => vec![network],
    }
}

/// The networks that packets from a server may come from: what is accepted, and those of the addresses that were taken.
pub(super) fn sources(accept: &AcceptRoutes, addresses: &[IpNet]) -> Vec<IpNet> {
    let own = addresses.iter().map(IpNet::trunc);
    match accept {
        AcceptRoutes::None => own.collect(),
        AcceptRoutes::Within(networks) => own.chain(networks.iter().copied()).collect(),
        AcceptRoutes::All => vec![v4([0; 4], 0), v6([0; 8], 0)],
    }
}

/// What is refused, for people: the first of it, if it is much.
pub(super) struct Named<'a>(pub(super) &'a Refused);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 16;
        let Self(refused) = self;
        for (at, (network, why)) in refused.iter().take(MOST).enumerate() {
            write!(f, "{}{network} ({why})", if at > 0 { ", " } else { "" })?;
        }
        match refused.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests;
