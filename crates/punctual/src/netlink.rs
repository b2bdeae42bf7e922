//! What Linux says of interfaces and routes, by netlink (rtnetlink(7)).
//!
//! Two things are asked. That *something* has changed, without reading what: the list of interfaces is then read anew, which is
//! the same on all systems. And whether an interface has a route to an address, which nothing else tells: a socket that is tied to
//! an interface may send anywhere, for where there is no route the kernel takes the peer to be on the link.

use std::{io, net::IpAddr, os::fd::OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink::SocketAddrNetlink, recv, send,
    socket_with,
};
use tokio::io::{Interest, unix::AsyncFd};

/// Groups of notices (linux/rtnetlink.h): links, and of both IP versions addresses, routes and the rules that choose among tables of them.
const GROUPS: u32 = RTMGRP_LINK
    | RTMGRP_IPV4_IFADDR
    | RTMGRP_IPV4_ROUTE
    | RTMGRP_IPV4_RULE
    | RTMGRP_IPV6_IFADDR
    | RTMGRP_IPV6_ROUTE
    | RTMGRP_IPV6_RULE;
const RTMGRP_LINK: u32 = 0x1;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTMGRP_IPV4_RULE: u32 = 0x80;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
const RTMGRP_IPV6_ROUTE: u32 = 0x400;
/// The header has it only as the number of a group, RTNLGRP_IPV6_RULE.
const RTMGRP_IPV6_RULE: u32 = 1 << (19 - 1);

/// Tells that interfaces, addresses or routes have changed.
pub(crate) struct Notices(AsyncFd<OwnedFd>);

impl Notices {
    // See `Timer` for why the deprecated function: what replaces it is unsafe, and an owned descriptor is not closed behind its back.
    #[allow(deprecated)]
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(AsyncFd::with_interest(open(GROUPS)?, Interest::READABLE)?))
    }

    /// Waits for the next change, and takes all notices there are.
    ///
    /// # Errors
    /// When the reactor is gone.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        let mut any = false;
        loop {
            let mut ready = self.0.readable().await?;
            loop {
                match recv(self.0.get_ref(), &mut buffer[..], RecvFlags::empty()) {
                    Err(rustix::io::Errno::WOULDBLOCK) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    // ENOBUFS says that there were more than fit: a change all the more.
                    Ok(_) | Err(_) => any = true,
                }
            }
            ready.clear_ready();
            if any {
                return Ok(());
            }
        }
    }
}

fn open(groups: u32) -> io::Result<OwnedFd> {
    // Without a protocol, netlink is NETLINK_ROUTE.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Whether the routing tables lead to `remote` through an interface, for a sender that has the address `source` if it says so: tables may
/// go by that.
///
/// # Errors
/// The system's, when the question could not be put.
pub(crate) fn has_route(index: u32, source: Option<IpAddr>, remote: IpAddr) -> io::Result<bool> {
    let socket = open(0)?;
    send(&socket, &route_question(index, source, remote), SendFlags::empty())?;
    let mut answer = [0; 4096];
    // The kernel has answered by the time the question is handed over.
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    is_route(&answer[..len]).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// RTM_GETROUTE for one address. RTM_F_FIB_MATCH asks for the route in the tables, so that there is none where the kernel would only assume that
/// the peer is on the link.
fn route_question(index: u32, source: Option<IpAddr>, remote: IpAddr) -> Vec<u8> {
    const RTM_GETROUTE: u16 = 26;
    const NLM_F_REQUEST: u16 = 1;
    const RTM_F_FIB_MATCH: u32 = 0x2000;
    const RTA_DST: u16 = 1;
    const RTA_SRC: u16 = 2;
    const RTA_OIF: u16 = 4;
    let (family, bits) = match remote {
        IpAddr::V4(_) => (AddressFamily::INET, 32),
        IpAddr::V6(_) => (AddressFamily::INET6, 128),
    };
    let family = family.as_raw() as u8;
    let source = source.filter(|source| source.is_ipv4() == remote.is_ipv4());
    // struct rtmsg: family, bits of the destination, of the source, TOS, table, protocol, scope, type, flags.
    let mut body = vec![family, bits, if source.is_some() { bits } else { 0 }, 0, 0, 0, 0, 0];
    body.extend(RTM_F_FIB_MATCH.to_ne_bytes());
    let mut attribute = |kind: u16, value: &[u8]| {
        // Lengths of 4 + 4, 8 or 16 bytes need no padding.
        body.extend((4 + value.len() as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    };
    attribute(RTA_DST, &octets(remote));
    if let Some(source) = source {
        attribute(RTA_SRC, &octets(source));
    }
    attribute(RTA_OIF, &index.to_ne_bytes());
    // struct nlmsghdr: length, type, flags, sequence number, port.
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(RTM_GETROUTE.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Whether the answer is a route; `None` if it is not an answer. A route that forbids (`unreachable`, `prohibit`, `blackhole`) comes as an error.
fn is_route(answer: &[u8]) -> Option<bool> {
    const NLMSG_ERROR: u16 = 2;
    const RTM_NEWROUTE: u16 = 24;
    match u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?) {
        RTM_NEWROUTE => Some(true),
        NLMSG_ERROR => Some(false),
        _ => None,
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_through_loopback() {
        let all = if_addrs::get_if_addrs().expect("a list");
        let Some(index) = all.iter().find(|i| i.is_loopback()).and_then(|i| i.index) else { return };
        let remote = IpAddr::from([127, 0, 0, 9]);
        assert!(has_route(index, None, remote).expect("an answer"));
        assert!(has_route(index, Some([127, 0, 0, 1].into()), remote).expect("an answer"));
        // Nobody has so many interfaces.
        assert!(!has_route(0x7fff_ffff, None, remote).unwrap_or(false));
    }

    #[test]
    fn what_is_no_answer_is_no_route() {
        for short in [&[][..], &[0; 5], &[0; 16]] {
            assert_eq!(is_route(short), None);
        }
    }
}
