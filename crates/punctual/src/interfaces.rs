//! The host's interfaces as they are now, and word of their changes.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use if_addrs::Interface;

use crate::local::{Bind, reaches};

/// How often the list is read where changes are told, in case one was missed.
#[cfg(target_os = "linux")]
const READ_ANYWAY: Duration = Duration::from_secs(15);
/// The same where they are not told. A reading is a few system calls.
const READ_WITHOUT_NOTICES: Duration = Duration::from_secs(1);

/// Changes come in flocks (a link, its address, its routes); one look after the last of a flock is enough.
const FLOCK: Duration = Duration::from_millis(10);

/// What the host's interfaces were like at one moment.
#[derive(Debug, Default, Clone)]
pub(crate) struct Interfaces(Vec<Interface>);

/// What an end to be bound is like at one moment. Two that are equal are the same interface in the same state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Its interface, if it is known.
    pub(crate) interface: Option<String>,
    /// A number the system gives an interface; one that was deleted and made again has another.
    index: Option<u32>,
    /// Our address.
    address: Option<IpAddr>,
    /// Whether the link carries anything.
    up: bool,
    /// Whether it leads to the peer.
    routed: bool,
}

impl Sight {
    /// Whether a socket that was bound when things were like `before` is of no use any more, or will be replaced by a better one.
    pub(crate) fn is_another_than(&self, before: &Self) -> bool {
        (self.index, self.address) != (before.index, before.address)
    }

    /// Whether the interface that this was is no more.
    pub(crate) fn is_gone(&self, now: Option<&Self>) -> bool {
        self.interface.is_some() && now.is_none_or(|now| now.index != self.index)
    }

    /// Whether a packet would leave for the peer.
    pub(crate) fn leads(&self) -> bool {
        self.up && self.routed
    }

    /// Whether something that stood in the way is gone since `before`.
    pub(crate) fn is_better_than(&self, before: Option<&Self>) -> bool {
        before
            .is_none_or(|before| self.is_another_than(before) || self.up && !before.up || self.routed && !before.routed)
    }
}

impl Interfaces {
    /// The interfaces there are, each as often as it has addresses.
    pub(crate) fn read() -> io::Result<Self> {
        if_addrs::get_if_addrs().map(Self)
    }

    /// What is to be seen of an end that would be bound as `bind` for the way to `remote`; `None` if the interface is not there, or has no address of
    /// that IP version.
    pub(crate) fn sight(&self, bind: &Bind, remote: SocketAddr) -> Option<Sight> {
        let found = match bind {
            Bind::Interface(name) => self.best_of(name, remote)?,
            Bind::OnLink(end) => self.0.iter().find(|i| i.ip() == end.ip && end.is_of(&i.name, i.index))?,
            Bind::Address(address) => match self.0.iter().find(|i| has(i, address)) {
                Some(found) => found,
                // It may be one of many (0.0.0.0, 127.0.0.2), or not there yet: binding tells.
                None => {
                    let own = !address.ip().is_unspecified();
                    let address = own.then_some(address.ip());
                    return Some(Sight { interface: None, index: None, address, up: true, routed: true });
                }
            },
        };
        Some(Sight {
            interface: Some(found.name.clone()),
            index: found.index,
            address: Some(found.ip()),
            up: found.is_oper_up(),
            routed: is_routed(found, None, remote).unwrap_or(true),
        })
    }

    /// Ends from which the peer can be reached, one for each interface: the interface itself, or (where the routing goes by the sender's
    /// address) that.
    pub(crate) fn ways_to(&self, remote: SocketAddr) -> Vec<Bind> {
        let mut names: Vec<&str> = self.0.iter().map(|i| &i.name[..]).collect();
        names.sort_unstable();
        names.dedup();
        let way = |name: &str| {
            let found = self.best_of(name, remote)?;
            if found.is_loopback() != remote.ip().is_loopback() || !reaches(found.ip(), remote.ip()) {
                return None;
            }
            // Its link is the one that the peer is on.
            if link_of(&remote).is_some_and(|link| found.index != Some(link)) {
                return None;
            }
            if is_routed(found, None, remote).unwrap_or(true) {
                return Some(Bind::Interface(name.to_owned()));
            }
            is_routed(found, Some(found.ip()), remote).unwrap_or(false).then(|| found.ip().into())
        };
        names.into_iter().filter_map(way).collect()
    }

    /// The interface with the address that a socket would have for the way to `remote`.
    fn best_of(&self, name: &str, remote: SocketAddr) -> Option<&Interface> {
        let of_family = |i: &&Interface| i.name == name && i.ip().is_ipv4() == remote.is_ipv4();
        // Of IPv6 each interface has an address of its link, which is none for the way elsewhere.
        let leads = |i: &&Interface| remote.is_ipv4() || reaches(i.ip(), remote.ip());
        self.0.iter().filter(of_family).filter(leads).min_by_key(|i| (i.is_link_local(), i.ip()))
    }
}

/// Whether the routing tables lead to `remote` through the interface, for a sender with that address; `None` if nobody knows.
#[cfg(target_os = "linux")]
fn is_routed(interface: &Interface, source: Option<IpAddr>, remote: SocketAddr) -> Option<bool> {
    crate::netlink::has_route(interface.index?, source, remote.ip()).ok()
}

/// Whether the system would let a socket with the interface's address send there. It may choose another interface for it; nothing portable tells.
#[cfg(not(target_os = "linux"))]
fn is_routed(interface: &Interface, _: Option<IpAddr>, remote: SocketAddr) -> Option<bool> {
    let socket = std::net::UdpSocket::bind((interface.ip(), 0)).ok()?;
    Some(socket.connect(remote).is_ok())
}

/// Tells when it is time to read the interfaces anew.
pub(crate) struct Watch {
    #[cfg(target_os = "linux")]
    notices: Option<crate::netlink::Notices>,
    /// When to read them at the latest.
    read_at: Instant,
}

impl Watch {
    /// The first reading is due at once.
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            notices: crate::netlink::Notices::open()
                .inspect_err(|error| tracing::debug!(%error, "no notices of interfaces; reading them every second"))
                .ok(),
            read_at: Instant::now(),
        }
    }

    /// Waits until something may have changed since it last said so. May be dropped at any time: nothing is missed.
    pub(crate) async fn changed(&mut self) {
        while self.read_at > Instant::now() {
            tokio::select! {
                () = tokio::time::sleep_until(self.read_at.into()) => {}
                () = self.noticed() => self.read_at = self.read_at.min(Instant::now() + FLOCK),
            }
        }
        self.read_at = Instant::now() + self.period();
    }

    #[cfg(target_os = "linux")]
    async fn noticed(&mut self) {
        match &self.notices {
            // Without a reactor there will be no more notices, nor anything else.
            Some(notices) if notices.changed().await.is_err() => {
                self.notices = None;
                std::future::pending().await
            }
            Some(_) => {}
            None => std::future::pending().await,
        }
    }

    #[cfg(not(target_os = "linux"))]
    async fn noticed(&mut self) {
        std::future::pending().await
    }

    #[cfg(target_os = "linux")]
    fn period(&self) -> Duration {
        if self.notices.is_some() { READ_ANYWAY } else { READ_WITHOUT_NOTICES }
    }

    #[cfg(not(target_os = "linux"))]
    fn period(&self) -> Duration {
        READ_WITHOUT_NOTICES
    }
}

/// The number of the interface on whose link alone an address is of use, if it says so.
fn link_of(address: &SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|&link| link != 0),
        SocketAddr::V4(_) => None,
    }
}

/// Whether that is an interface's address. One that is of use on one link only may be that of several.
fn has(interface: &Interface, address: &SocketAddr) -> bool {
    interface.ip() == address.ip() && link_of(address).is_none_or(|link| interface.index == Some(link))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use if_addrs::{IfAddr, IfOperStatus, Ifv4Addr, Ifv6Addr};

    use super::*;

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)), 4433);

    fn interface(name: &str, index: u32, ip: [u8; 4], up: bool) -> Interface {
        let netmask = Ipv4Addr::new(255, 255, 255, 0);
        Interface {
            name: name.to_owned(),
            addr: IfAddr::V4(Ifv4Addr { ip: ip.into(), netmask, prefixlen: 24, broadcast: None }),
            index: Some(index),
            oper_status: if up { IfOperStatus::Up } else { IfOperStatus::Down },
            is_p2p: false,
            #[cfg(windows)]
            adapter_name: String::new(),
        }
    }

    fn sight(index: u32, ip: [u8; 4], up: bool, routed: bool) -> Sight {
        Sight { interface: Some("w0".into()), index: Some(index), address: Some(ip.into()), up, routed }
    }

    #[test]
    fn a_link_that_only_goes_down_is_the_same_and_a_new_one_is_another() {
        let before = sight(3, [10, 0, 0, 1], true, true);
        let down = sight(3, [10, 0, 0, 1], false, false);
        assert!(!down.is_another_than(&before) && !down.is_better_than(Some(&before)));
        assert!(!before.is_another_than(&down) && before.is_better_than(Some(&down)));
        for other in [sight(4, [10, 0, 0, 1], true, true), sight(3, [10, 0, 0, 2], true, true)] {
            assert!(other.is_another_than(&before) && other.is_better_than(Some(&before)));
        }
        assert!(before.is_better_than(None), "it was not there");
        assert!(!before.is_better_than(Some(&before.clone())));
        assert!(sight(3, [10, 0, 0, 1], false, true).is_better_than(Some(&down)), "a route appeared");
    }

    #[test]
    fn an_interface_is_seen_by_name_and_by_address() {
        let all = Interfaces(vec![interface("w0", 3, [10, 0, 0, 1], true), interface("w1", 4, [10, 0, 1, 1], false)]);
        let named = all.sight(&Bind::Interface("w1".into()), PEER).expect("there");
        assert_eq!((named.interface.as_deref(), named.index, named.up), (Some("w1"), Some(4), false));
        let addressed = all.sight(&IpAddr::from([10, 0, 0, 1]).into(), PEER).expect("there");
        assert_eq!(addressed.interface.as_deref(), Some("w0"));
        assert_eq!(all.sight(&Bind::Interface("w2".into()), PEER), None);
        let v6: SocketAddr = "[2001:db8::1]:1".parse().expect("an address");
        assert_eq!(all.sight(&Bind::Interface("w0".into()), v6), None, "it has no address of that version");
        // An address on a link that is not there is waited for.
        assert_eq!(all.sight(&"fe80::1%w0".parse().expect("an end"), v6), None);
        // Nobody has listed these, and binding them may work nevertheless.
        for unlisted in [[127, 0, 0, 2], [0, 0, 0, 0]] {
            assert!(all.sight(&IpAddr::from(unlisted).into(), PEER).is_some_and(|sight| sight.interface.is_none()));
        }
    }

    #[test]
    fn an_address_of_a_link_leads_no_further() {
        let on_link = |index| Interface {
            addr: IfAddr::V6(Ifv6Addr {
                ip: "fe80::1".parse().expect("an address"),
                netmask: "ffff:ffff:ffff:ffff::".parse().expect("a mask"),
                prefixlen: 64,
                broadcast: None,
            }),
            ..interface(&format!("w{index}"), index, [0; 4], true)
        };
        let all = Interfaces(vec![on_link(3), on_link(4)]);
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let named = |remote: &str| all.sight(&Bind::Interface("w4".into()), address(remote)).map(|sight| sight.index);
        assert_eq!((named("[fe80::2%4]:1"), named("[2001:db8::1]:1")), (Some(Some(4)), None));
        // The same address on two links.
        let seen =
            |bind: &str| all.sight(&address(bind).into(), address("[fe80::2%4]:1")).and_then(|sight| sight.index);
        assert_eq!((seen("[fe80::1%3]:0"), seen("[fe80::1%4]:0")), (Some(3), Some(4)));
        let on_link = |end: &str| all.sight(&end.parse().expect("an end"), address("[fe80::2%4]:1"));
        for (end, index) in
            [("fe80::1%w4", Some(4)), ("fe80::1%3", Some(3)), ("fe80::1%w5", None), ("fe80::2%w4", None)]
        {
            assert_eq!(on_link(end).and_then(|sight| sight.index), index, "{end}");
        }
    }

    #[test]
    fn the_way_to_loopback_is_loopback() {
        let all = Interfaces::read().expect("a list");
        let ways = all.ways_to(PEER);
        let loopbacks = all.0.iter().filter(|i| i.is_loopback()).map(|i| Bind::Interface(i.name.clone()));
        let loopbacks: Vec<_> = loopbacks.collect();
        assert!(!ways.is_empty() && ways.iter().all(|way| loopbacks.contains(way)), "{ways:?}");
    }

    #[tokio::test]
    async fn the_first_reading_is_due_at_once() {
        tokio::time::timeout(Duration::from_secs(60), Watch::new().changed()).await.expect("it is");
    }
}
