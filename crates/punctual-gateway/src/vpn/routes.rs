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
mod tests {
    use super::*;
    use crate::vpn::wire::MAX_ROUTES;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn welcome(addresses: &[&str], routes: &[&str]) -> Welcome {
        Welcome { version: 1, mtu: 1_500, addresses: nets(addresses), routes: nets(routes) }
    }

    fn within(texts: &[&str]) -> AcceptRoutes {
        AcceptRoutes::Within(nets(texts))
    }

    /// Routes that are taken, and why others are not.
    fn routes(accept: &AcceptRoutes, routes: &[&str]) -> (Vec<IpNet>, Vec<Refusal>) {
        let (setup, refused) = judge(&welcome(&["10.9.0.2/24"], routes), accept, &Surroundings::default());
        (setup.routes, refused.into_iter().map(|(_, why)| why).collect())
    }

    #[test]
    fn no_route_is_taken_that_is_not_accepted() {
        let all = ["0.0.0.0/0", "::/0", "192.168.7.0/24", "192.168.0.0/15", "8.8.8.8/32"];
        assert_eq!(routes(&AcceptRoutes::default(), &all), (vec![], vec![Refusal::NotAccepted; 5]));
        let (taken, refused) = routes(&within(&["192.168.0.0/16", "fd00::/8"]), &all);
        assert_eq!((taken, refused), (nets(&["192.168.7.0/24"]), vec![Refusal::NotAccepted; 4]));
        assert_eq!(routes(&within(&["0.0.0.0/0"]), &["10.0.0.0/8", "::/1"]).0, nets(&["10.0.0.0/8"]));
    }

    #[test]
    fn everything_is_two_halves_and_what_is_said_twice_is_taken_once() {
        let (taken, refused) =
            routes(&AcceptRoutes::All, &["0.0.0.0/0", "0.0.0.0/0", "::/0", "10.1.2.3/16", "10.1.0.0/16"]);
        assert_eq!(taken, nets(&["0.0.0.0/1", "10.1.0.0/16", "128.0.0.0/1", "::/1", "8000::/1"]));
        assert_eq!(refused, []);
        // The system makes that by itself.
        assert_eq!(routes(&AcceptRoutes::All, &["10.9.0.0/24"]).0, []);
        assert_eq!(routes(&AcceptRoutes::None, &["10.1.0.0/16"; 3]).1.len(), 1);
    }

    #[test]
    fn what_is_of_the_host_or_its_links_is_never_taken() {
        let never = [
            "127.0.0.0/8",
            "127.1.2.3/32",
            "::1/128",
            "::/128",
            "fe80::/64",
            "169.254.0.0/16",
            "224.0.0.0/4",
            "ff02::/16",
            "0.0.0.0/8",
        ];
        assert_eq!(routes(&AcceptRoutes::All, &never), (vec![], vec![Refusal::Never; never.len()]));
    }

    #[test]
    fn the_networks_of_other_interfaces_stay_theirs() {
        let beside = nets(&["192.168.1.20/24", "fd01::5/64", "203.0.113.9/32"]);
        let around = Surroundings { beside: &beside, ..Surroundings::default() };
        let given = [
            "192.168.1.0/24",
            "192.168.1.128/25",
            "192.168.1.1/32",
            "fd01::/64",
            "203.0.113.9/32",
            "192.168.0.0/16",
            "fd00::/8",
        ];
        let (setup, refused) = judge(&welcome(&["10.9.0.2/24"], &given), &AcceptRoutes::All, &around);
        // What is wider does not take them away.
        assert_eq!(setup.routes, nets(&["192.168.0.0/16", "fd00::/8"]));
        let theirs = Refusal::Beside(beside[0].trunc());
        assert_eq!(refused[..3], given[..3].iter().map(|route| (route.parse().unwrap(), theirs)).collect::<Vec<_>>());
        assert_eq!(refused.len(), 5);
    }

    #[test]
    fn an_address_is_of_a_small_private_network_or_accepted_and_of_no_other_interface() {
        let beside = nets(&["192.168.1.20/24", "10.50.0.1/30"]);
        let around = Surroundings { beside: &beside, servers: &["172.16.0.9".parse().unwrap()] };
        let judged = |address: &str, accept: &AcceptRoutes| {
            let (setup, refused) = judge(&welcome(&[address], &[]), accept, &around);
            assert_eq!(setup.addresses.len() + refused.len(), 1);
            refused.first().map(|(_, why)| *why)
        };
        let none = AcceptRoutes::None;
        for fine in ["10.9.0.2/24", "10.9.0.2/32", "10.9.0.2/16", "100.64.0.2/24", "fd09::2/64", "fd09::2/48"] {
            assert_eq!(judged(fine, &none), None, "{fine}");
        }
        for (bad, why) in [
            ("10.9.0.2/8", Refusal::NotPrivate),
            ("1.2.3.4/1", Refusal::NotPrivate),
            ("8.8.8.8/32", Refusal::NotPrivate),
            ("2001:db8::2/64", Refusal::NotPrivate),
            ("fd09::2/32", Refusal::NotPrivate),
            ("10.9.0.2/0", Refusal::NotPrivate),
            ("127.0.0.2/32", Refusal::Never),
            ("fe80::2/64", Refusal::Never),
            ("192.168.1.20/32", Refusal::Beside(beside[0].trunc())),
            ("192.168.1.77/16", Refusal::Beside(beside[0].trunc())),
            ("172.16.0.2/24", Refusal::Server(around.servers[0])),
        ] {
            assert_eq!(judged(bad, &none), Some(why), "{bad}");
        }
        assert_eq!(judged("10.9.0.2/8", &within(&["10.0.0.0/8"])), None);
        assert_eq!(judged("8.8.8.8/32", &AcceptRoutes::All), None);
    }

    #[test]
    fn routes_lead_around_the_server() {
        let servers: [IpAddr; 3] =
            ["203.0.113.5".parse().unwrap(), "198.51.100.7".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let around = Surroundings { servers: &servers, ..Surroundings::default() };
        let given = welcome(&["10.9.0.2/24"], &["0.0.0.0/0", "::/0", "203.0.113.0/24", "203.0.113.5/32"]);
        let (Setup { routes, .. }, refused) = judge(&given, &AcceptRoutes::All, &around);
        assert_eq!(refused, [(nets(&["203.0.113.5/32"])[0], Refusal::Server(servers[0]))]);
        let leads = |to: &str| {
            let to: IpAddr = to.parse().unwrap();
            routes.iter().any(|route| route.contains(&to))
        };
        for server in ["203.0.113.5", "198.51.100.7", "2001:db8::1"] {
            assert!(!leads(server), "{server}");
        }
        for other in [
            "203.0.113.4",
            "203.0.113.6",
            "198.51.100.6",
            "0.0.0.1",
            "255.255.255.254",
            "2001:db8::",
            "2001:db8::2",
            "::5",
            "ffff::",
        ] {
            assert!(leads(other), "{other}");
        }
        assert!(routes.len() <= 2 * 32 + 128, "{}", routes.len());
    }

    #[test]
    fn around_a_server_in_the_clients_own_network_that_network_stays_as_it_was() {
        let (beside, servers) = (nets(&["192.168.1.20/24"]), ["192.168.1.9".parse().unwrap()]);
        let around = Surroundings { beside: &beside, servers: &servers };
        let (setup, refused) = judge(&welcome(&["10.9.0.2/24"], &["0.0.0.0/0"]), &AcceptRoutes::All, &around);
        let longest = |to: &str| {
            let to: IpAddr = to.parse().unwrap();
            setup.routes.iter().filter(|route| route.contains(&to)).map(IpNet::prefix_len).max()
        };
        // Shorter than /24, so that the interface's own route has it.
        assert!(
            longest("192.168.1.1").is_none_or(|length| length < 24)
                && longest("192.168.1.8").is_none_or(|length| length < 24)
        );
        assert_eq!((longest("192.168.0.1"), longest("8.8.8.8"), refused), (Some(24), Some(1), vec![]));
    }

    #[test]
    fn there_are_no_more_routes_than_can_be_however_many_are_given() {
        // Each of another length, all of them around the server.
        let server: IpAddr = "2001:db8::1".parse().unwrap();
        let nested: Vec<IpNet> = (0..=128).map(|length| IpNet::new(server, length).unwrap().trunc()).collect();
        let many = (0..MAX_ROUTES - nested.len())
            .map(|at| IpNet::new(Ipv4Addr::from(0x0b00_0000 + at as u32 * 256).into(), 24).unwrap());
        let given = Welcome { routes: nested.into_iter().chain(many).collect(), ..welcome(&[], &[]) };
        let around = Surroundings { servers: &[server], ..Surroundings::default() };
        let (setup, _) = judge(&given, &AcceptRoutes::All, &around);
        assert!(setup.routes.len() <= MAX_ROUTES, "{}", setup.routes.len());
    }

    #[test]
    fn packets_come_from_where_routes_may_lead() {
        let own = nets(&["10.9.0.2/24"]);
        let from = |accept: &AcceptRoutes, source: &str| {
            let source: IpAddr = source.parse().unwrap();
            sources(accept, &own).iter().any(|network| network.contains(&source))
        };
        assert!(from(&AcceptRoutes::None, "10.9.0.1") && !from(&AcceptRoutes::None, "192.168.1.1"));
        assert!(from(&within(&["192.168.0.0/16"]), "192.168.1.1") && !from(&within(&["192.168.0.0/16"]), "8.8.8.8"));
        assert!(from(&AcceptRoutes::All, "8.8.8.8") && from(&AcceptRoutes::All, "2001:db8::1"));
    }

    #[test]
    fn what_is_accepted_is_said_in_words_or_networks() {
        #[derive(Deserialize)]
        struct Said {
            accept: AcceptRoutes,
        }
        let read = |text: &str| toml::from_str::<Said>(&format!("accept = {text}")).map(|said| said.accept);
        assert_eq!(read("'none'").unwrap(), AcceptRoutes::None);
        assert_eq!(read("'all'").unwrap(), AcceptRoutes::All);
        assert_eq!(read("['10.0.0.0/8', '::/0']").unwrap(), within(&["10.0.0.0/8", "::/0"]));
        assert_eq!(read("'10.0.0.0/8'").unwrap(), within(&["10.0.0.0/8"]));
        assert_eq!(read("[]").unwrap(), within(&[]));
        for (bad, why) in [
            ("'some'", "neither a network"),
            ("['10.0.0.0/8', 'all']", "stand alone"),
            ("['none', 'all']", "stand alone"),
            ("7", ""),
        ] {
            assert!(read(bad).unwrap_err().to_string().contains(why), "{bad}");
        }
    }

    #[test]
    fn what_is_refused_is_named_and_much_of_it_is_cut_short() {
        let refused: Refused = (0..20).map(|_| (nets(&["8.8.8.8/32"])[0], Refusal::NotAccepted)).collect();
        let text = Named(&refused).to_string();
        assert!(
            text.starts_with("8.8.8.8/32 (accept-routes does not contain it), ") && text.ends_with(", and 4 more"),
            "{text}"
        );
    }
}
