//! Where datagrams come from and go to, and what they are like.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use noq_proto::FourTuple;

/// The packet size that every path carries, and that a window is counted in.
pub(crate) const BASE_PACKET: u64 = 1_200;

/// Names a session of an endpoint. Never used twice by the same endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A handle of the caller's for one of its own ends: a socket, an interface, a local address.
///
/// Only compared for equality; what it means is the caller's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub u32);

impl LocalId {
    /// The prefix 100::/64, which is set apart for addresses that lead nowhere (RFC 6666).
    const PREFIX: u128 = 0x0100 << 112;

    /// The address by which QUIC, which knows paths by their IP addresses, tells our ends apart.
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(Self::PREFIX | u128::from(self.0)).into()
    }

    pub(crate) fn from_ip(ip: IpAddr) -> Option<Self> {
        let IpAddr::V6(ip) = ip else { return None };
        let bits = u128::from(ip);
        (bits >> 64 == Self::PREFIX >> 64).then_some(Self(bits as u32))
    }
}

/// Where a datagram comes from or goes to.
///
/// `remote` is an address as QUIC is shown it. For paths that are not plain UDP the caller
/// makes one up and keeps the table; not between 4000:: and a000::, where QUIC is shown peers a second time that have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkPath {
    /// Our end.
    pub local: LocalId,
    /// The peer's end.
    pub remote: SocketAddr,
}

impl NetworkPath {
    /// As noq knows it.
    pub(crate) fn tuple(self) -> FourTuple {
        FourTuple::new(self.remote, Some(self.local.to_ip()))
    }
}

/// The ECN mark of an IP packet (RFC 3168), as far as it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EcnCodepoint {
    /// It may be marked, ECT(1).
    Ect1 = 0b01,
    /// It may be marked, ECT(0).
    Ect0 = 0b10,
    /// It met congestion.
    Ce = 0b11,
}

impl EcnCodepoint {
    /// From the two lowest bits of the traffic class; `None` where there is no mark. The bits of one are `mark as u8`.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 0b11 {
            0b01 => Some(Self::Ect1),
            0b10 => Some(Self::Ect0),
            0b11 => Some(Self::Ce),
            _ => None,
        }
    }

    /// As noq knows it.
    pub(crate) fn to_quic(self) -> Option<noq_proto::EcnCodepoint> {
        noq_proto::EcnCodepoint::from_bits(self as u8)
    }

    pub(crate) fn from_quic(mark: noq_proto::EcnCodepoint) -> Option<Self> {
        Self::from_bits(mark as u8)
    }
}

/// One UDP datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub path: NetworkPath,
    /// Bytes of it, in the buffer given to [`Endpoint::poll_transmit`](crate::Endpoint::poll_transmit).
    pub size: usize,
    /// The ECN mark to put on it.
    pub ecn: Option<EcnCodepoint>,
}
