//! What the system tells of datagrams beside their bytes: how they were marked (DSCP, RFC 2474), and which of the host's addresses they were sent to (RFC 3542); and
//! how it is told which of them to answer from.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use tokio::net::UdpSocket;

/// A datagram, as far as it is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) size: usize,
    pub(super) from: SocketAddr,
    /// The address that it was sent to, if that is not the socket's own.
    pub(super) at: Option<IpAddr>,
    pub(super) dscp: Option<u8>,
}

/// Asks the system to tell of each datagram how it was marked and, of a socket at any address, which it was sent to. Where it does not, nothing is known.
#[cfg(target_os = "linux")]
pub(super) fn ask(socket: &socket2::Socket, address: SocketAddr) {
    use nix::sys::socket::{setsockopt, sockopt};

    let marks = if address.is_ipv4() { socket.set_recv_tos_v4(true) } else { socket.set_recv_tclass_v6(true) };
    if let Err(error) = marks {
        tracing::debug!(%error, "the system does not tell how datagrams are marked");
    }
    if address.ip().is_unspecified() {
        let told = match address {
            SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4PacketInfo, &true),
            SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "the system does not tell what datagrams are sent to");
        }
    }
}

/// Only Linux is asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn ask(_: &socket2::Socket, _: SocketAddr) {}

/// Receives a datagram, if there is one.
#[cfg(target_os = "linux")]
pub(super) fn receive(socket: &UdpSocket, space: &mut [u8]) -> io::Result<Arrival> {
    use std::{
        net::{Ipv4Addr, Ipv6Addr},
        os::fd::AsRawFd as _,
    };

    use nix::{
        libc::{in_pktinfo, in6_pktinfo},
        sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg},
    };

    socket.try_io(tokio::io::Interest::READABLE, || {
        let mut control = nix::cmsg_space!(i32, in6_pktinfo, in_pktinfo);
        let mut parts = [io::IoSliceMut::new(space)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let from = message.address.and_then(|from| match (from.as_sockaddr_in(), from.as_sockaddr_in6()) {
            (Some(v4), _) => Some(SocketAddr::V4((*v4).into())),
            (_, Some(v6)) => Some(SocketAddr::V6((*v6).into())),
            _ => None,
        });
        let (mut traffic_class, mut at) = (None, None);
        for told in message.cmsgs()? {
            match told {
                ControlMessageOwned::Ipv4Tos(class) => traffic_class = Some(class),
                // A byte, in the clothes of a larger number.
                ControlMessageOwned::Ipv6TClass(class) => traffic_class = Some(class as u8),
                // Of what was sent to many, this is the address that the system would answer from.
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    at = Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(info.ipi_spec_dst.s_addr))));
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    at = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                _ => {}
            }
        }
        Ok(Arrival {
            size: message.bytes,
            from: from.ok_or(io::ErrorKind::InvalidData)?,
            at: at.filter(|at| !at.is_multicast() && !at.is_unspecified()),
            // The two lowest bits are ECN's.
            dscp: traffic_class.map(|class| class >> 2),
        })
    })
}

/// Receives a datagram, if there is one: its size, and whose it is.
#[cfg(not(target_os = "linux"))]
pub(super) fn receive(socket: &UdpSocket, space: &mut [u8]) -> io::Result<Arrival> {
    let (size, from) = socket.try_recv_from(space)?;
    Ok(Arrival { size, from, at: None, dscp: None })
}

/// Sends a datagram from one of the host's addresses.
#[cfg(target_os = "linux")]
pub(super) fn send_from(socket: &UdpSocket, datagram: &[u8], to: SocketAddr, at: Option<IpAddr>) -> io::Result<usize> {
    use std::os::fd::AsRawFd as _;

    use nix::{
        libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo},
        sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg},
    };

    let (v4, v6);
    // By which interface, the system finds as for any other datagram.
    let from = match at {
        None => return socket.try_send_to(datagram, to),
        Some(IpAddr::V4(at)) => {
            let spec = in_addr { s_addr: at.to_bits().to_be() };
            v4 = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: spec, ipi_addr: in_addr { s_addr: 0 } };
            ControlMessage::Ipv4PacketInfo(&v4)
        }
        Some(IpAddr::V6(at)) => {
            v6 = in6_pktinfo { ipi6_addr: in6_addr { s6_addr: at.octets() }, ipi6_ifindex: 0 };
            ControlMessage::Ipv6PacketInfo(&v6)
        }
    };
    let (parts, to) = ([io::IoSlice::new(datagram)], SockaddrStorage::from(to));
    socket.try_io(tokio::io::Interest::WRITABLE, || {
        Ok(sendmsg(socket.as_raw_fd(), &parts, &[from], MsgFlags::MSG_DONTWAIT, Some(&to))?)
    })
}

/// Sends a datagram from the address that the system chooses.
#[cfg(not(target_os = "linux"))]
pub(super) fn send_from(socket: &UdpSocket, datagram: &[u8], to: SocketAddr, _: Option<IpAddr>) -> io::Result<usize> {
    socket.try_send_to(datagram, to)
}
