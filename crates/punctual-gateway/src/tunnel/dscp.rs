//! How datagrams were marked (DSCP, RFC 2474), where the system tells.

use std::{io, net::SocketAddr};

use tokio::net::UdpSocket;

/// Asks the system to tell of each datagram how it was marked. Where it does not, none is.
#[cfg(target_os = "linux")]
pub(super) fn ask(socket: &socket2::Socket, address: SocketAddr) {
    let asked = if address.is_ipv4() { socket.set_recv_tos_v4(true) } else { socket.set_recv_tclass_v6(true) };
    if let Err(error) = asked {
        tracing::debug!(%error, "the system does not tell how datagrams are marked");
    }
}

/// Only Linux is asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn ask(_: &socket2::Socket, _: SocketAddr) {}

/// Receives a datagram, if there is one: its size, whose it is, and how it was marked.
#[cfg(target_os = "linux")]
pub(super) fn receive(socket: &UdpSocket, space: &mut [u8]) -> io::Result<(usize, SocketAddr, Option<u8>)> {
    use std::os::fd::AsRawFd as _;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};

    socket.try_io(tokio::io::Interest::READABLE, || {
        let mut control = nix::cmsg_space!(u8, i32);
        let mut parts = [io::IoSliceMut::new(space)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let from = message.address.and_then(|from| match (from.as_sockaddr_in(), from.as_sockaddr_in6()) {
            (Some(v4), _) => Some(SocketAddr::V4((*v4).into())),
            (_, Some(v6)) => Some(SocketAddr::V6((*v6).into())),
            _ => None,
        });
        let traffic_class = message.cmsgs()?.find_map(|told| match told {
            ControlMessageOwned::Ipv4Tos(class) => Some(class),
            // A byte, in the clothes of a larger number.
            ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
            _ => None,
        });
        // The two lowest bits are ECN's.
        Ok((message.bytes, from.ok_or(io::ErrorKind::InvalidData)?, traffic_class.map(|class| class >> 2)))
    })
}

/// Receives a datagram, if there is one: its size, and whose it is.
#[cfg(not(target_os = "linux"))]
pub(super) fn receive(socket: &UdpSocket, space: &mut [u8]) -> io::Result<(usize, SocketAddr, Option<u8>)> {
    let (size, from) = socket.try_recv_from(space)?;
    Ok((size, from, None))
}
