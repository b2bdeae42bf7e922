//! What the headers of an IP packet say, as far as a VPN has to know; and ECN marks.

use std::net::IpAddr;

use etherparse::{IpNumber, Ipv4Slice, Ipv6Slice, TcpSlice, UdpSlice, err};
use thiserror::Error;

/// The most bytes that a packet has: what the length of IPv4 can say. Also of what is to be cut into packets yet.
pub const LARGEST: usize = 65_535;

/// Congestion marks (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Its transport does not know of them.
    NotEct,
    /// It does.
    Ect1,
    /// It does.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    fn of(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// Protocols of which more is known than their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP, with the length of its header.
    Tcp {
        /// Bytes of the header, options included.
        header: usize,
    },
    /// UDP.
    Udp,
    /// ICMP, of either version of IP.
    Icmp,
    /// Another, or a later fragment, which has no header of its own.
    Other,
}

/// A packet's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Whose it is.
    pub source: IpAddr,
    /// Whom it is for.
    pub destination: IpAddr,
    /// What is in it, behind IPv6's extension headers (IANA's number).
    pub protocol: u8,
    /// The same, where it is known.
    pub transport: Transport,
    /// Source and destination, of TCP and UDP.
    pub ports: Option<(u16, u16)>,
    /// RFC 2474.
    pub dscp: u8,
    /// RFC 3168.
    pub ecn: Ecn,
    /// Where its transport's header begins.
    pub transport_at: usize,
    /// Whether it is a part of another packet.
    pub is_fragment: bool,
}

/// It is no packet of IP that could be carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PacketError {
    /// It is of another version of IP.
    #[error("it is neither IPv4 nor IPv6")]
    Version,
    /// Its headers end too early, contradict themselves, or have extensions in an order that there is not.
    #[error("its headers make no sense")]
    Headers,
    /// It is longer or shorter than it says.
    #[error("its length is not what it says")]
    Length,
    /// The header of its TCP or UDP makes no sense.
    #[error("the header of its transport makes no sense")]
    Transport,
}

impl Packet {
    /// Reads a packet's headers.
    ///
    /// ```
    /// use punctual_gateway::vpn::packet::{Packet, Transport};
    ///
    /// let udp = [
    ///     0x45, 0xb8, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1, 0x13, 0x88, 0, 53, 0, 10, 0, 0, b'h', b'i',
    /// ];
    /// let packet = Packet::parse(&udp)?;
    /// assert_eq!((packet.transport, packet.ports, packet.dscp), (Transport::Udp, Some((5000, 53)), 46));
    /// # Ok::<(), punctual_gateway::vpn::packet::PacketError>(())
    /// ```
    ///
    /// # Errors
    /// See [`PacketError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => {
                let ip = Ipv4Slice::from_slice(bytes).map_err(|_| PacketError::Headers)?;
                let header = ip.header();
                if usize::from(header.total_len()) != bytes.len() {
                    return Err(PacketError::Length);
                }
                // What IPsec puts before a transport's header stays a protocol of its own: nothing behind it is read.
                let head = header.slice().len();
                let addresses = (header.source_addr().into(), header.destination_addr().into());
                let traffic_class = header.dcp().value() << 2 | header.ecn().value();
                let is_fragment = header.is_fragmenting_payload();
                let first = header.fragments_offset().value() == 0;
                Self::of(bytes, addresses, traffic_class, header.protocol(), head, is_fragment, first)
            }
            Some(6) => {
                let ip = Ipv6Slice::from_slice(bytes).map_err(|error| match error {
                    err::ipv6::SliceError::Len(_) => PacketError::Length,
                    _ => PacketError::Headers,
                })?;
                let header = ip.header();
                if usize::from(header.payload_length()) + header.slice().len() != bytes.len() {
                    return Err(PacketError::Length);
                }
                let payload = ip.payload();
                let at = bytes.len() - payload.payload.len();
                let addresses = (header.source_addr().into(), header.destination_addr().into());
                let is_fragment = ip.is_payload_fragmented();
                let first = !is_fragment || first_of_fragments(&ip);
                Self::of(bytes, addresses, header.traffic_class(), payload.ip_number, at, is_fragment, first)
            }
            _ => Err(PacketError::Version),
        }
    }

    /// `first`: whether it begins with a transport's header.
    fn of(
        bytes: &[u8],
        (source, destination): (IpAddr, IpAddr),
        traffic_class: u8,
        protocol: IpNumber,
        transport_at: usize,
        is_fragment: bool,
        first: bool,
    ) -> Result<Self, PacketError> {
        let payload = bytes.get(transport_at..).ok_or(PacketError::Headers)?;
        let (transport, ports) = match protocol {
            _ if !first => (Transport::Other, None),
            IpNumber::TCP => {
                let tcp = TcpSlice::from_slice(payload).map_err(|_| PacketError::Transport)?;
                let header = tcp.header_slice().len();
                (Transport::Tcp { header }, Some((tcp.source_port(), tcp.destination_port())))
            }
            IpNumber::UDP if is_fragment => {
                // Its length is that of the whole.
                let ports = payload.first_chunk::<8>().ok_or(PacketError::Transport)?;
                let [a, b, c, d, ..] = *ports;
                (Transport::Other, Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))))
            }
            IpNumber::UDP => {
                let udp = UdpSlice::from_slice(payload).map_err(|_| PacketError::Transport)?;
                (Transport::Udp, Some((udp.source_port(), udp.destination_port())))
            }
            IpNumber::ICMP | IpNumber::IPV6_ICMP => (Transport::Icmp, None),
            _ => (Transport::Other, None),
        };
        let (dscp, ecn) = (traffic_class >> 2, Ecn::of(traffic_class));
        Ok(Self { source, destination, protocol: protocol.0, transport, ports, dscp, ecn, transport_at, is_fragment })
    }

    /// Where what the transport carries begins: behind a header of TCP or UDP.
    pub fn payload_at(&self) -> usize {
        self.transport_at
            + match self.transport {
                Transport::Tcp { header } => header,
                Transport::Udp => 8,
                Transport::Icmp | Transport::Other => 0,
            }
    }
}

/// Whether a packet with a fragment header is the first of its fragments.
fn first_of_fragments(ip: &Ipv6Slice<'_>) -> bool {
    ip.extensions().clone().into_iter().all(|extension| match extension {
        etherparse::Ipv6ExtensionSlice::Fragment(fragment) => fragment.fragment_offset().value() == 0,
        _ => true,
    })
}

/// Marks a packet as having met congestion, if its transport knows what that means. `false` if not, and the packet is as it was.
///
/// The checksum of IPv4's header is corrected for the mark (RFC 1624, equation 3), not made anew: a header that was damaged stays so.
pub fn mark_ce(bytes: &mut [u8]) -> bool {
    match bytes.first().map(|first| first >> 4) {
        Some(4) if bytes.len() >= 20 && Ecn::of(bytes[1]) != Ecn::NotEct => {
            let before = u16::from_be_bytes([bytes[0], bytes[1]]);
            bytes[1] |= 3;
            let after = u16::from_be_bytes([bytes[0], bytes[1]]);
            let checksum = !u16::from_be_bytes([bytes[10], bytes[11]]);
            let sum = u32::from(checksum) + u32::from(!before) + u32::from(after);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            bytes[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            true
        }
        Some(6) if bytes.len() >= 40 && Ecn::of(bytes[1] >> 4) != Ecn::NotEct => {
            bytes[1] |= 0x30;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{IpFragOffset, PacketBuilder};
    use proptest::prelude::*;

    use super::*;
    use crate::vpn::segment::checksum;

    fn v4(tos: u8, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv4([10, 9, 0, 2], [10, 9, 0, 1], 64).tcp(4000, 80, 7, 512);
        builder.write(&mut bytes, &vec![7; size]).unwrap();
        bytes[1] = tos;
        bytes[10..12].fill(0);
        let sum = checksum(&bytes[..20], 0);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn v6(protocol: u8, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = (extensions.len() + payload.len()) as u16;
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(length.to_be_bytes());
        bytes.extend([protocol, 64]);
        bytes.extend([0xfd; 16]);
        bytes.extend([0xfe; 16]);
        bytes.extend(extensions);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn tcp_over_ipv4_is_read() {
        let bytes = v4(0xb9, 10);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.source, packet.destination), ([10, 9, 0, 2].into(), [10, 9, 0, 1].into()));
        assert_eq!((packet.protocol, packet.transport), (6, Transport::Tcp { header: 20 }));
        assert_eq!((packet.ports, packet.dscp, packet.ecn), (Some((4000, 80)), 46, Ecn::Ect1));
        assert_eq!((packet.transport_at, packet.payload_at(), packet.is_fragment), (20, 40, false));
    }

    #[test]
    fn ports_are_found_behind_ipv6s_extensions() {
        let udp = [0x13, 0x88, 0, 53, 0, 10, 0, 0, b'h', b'i'];
        // Hop-by-hop options, then destination options.
        let extensions = [60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
        let packet = Packet::parse(&v6(0, &extensions, &udp)).unwrap();
        assert_eq!((packet.protocol, packet.transport, packet.ports), (17, Transport::Udp, Some((5000, 53))));
        assert_eq!((packet.transport_at, packet.payload_at()), (56, 64));
    }

    #[test]
    fn only_the_first_fragment_has_ports() {
        let udp = [0x13, 0x88, 0, 53, 1, 0, 0, 0, b'h', b'i'];
        let fragment = |offset: u16, more: u16| {
            let [high, low] = (offset << 3 | more).to_be_bytes();
            Packet::parse(&v6(44, &[17, 0, high, low, 0, 0, 0, 9], &udp)).unwrap()
        };
        assert_eq!((fragment(0, 1).ports, fragment(0, 1).is_fragment), (Some((5000, 53)), true));
        assert_eq!((fragment(3, 0).ports, fragment(3, 0).transport), (None, Transport::Other));
        let mut bytes = v4(0, 10);
        let offset = IpFragOffset::try_new(9).unwrap();
        bytes[6..8].copy_from_slice(&offset.value().to_be_bytes());
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.ports, packet.transport, packet.is_fragment), (None, Transport::Other, true));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bytes = v4(0, 10);
        assert_eq!(Packet::parse(&[]), Err(PacketError::Version));
        assert_eq!(Packet::parse(&[0x50; 40]), Err(PacketError::Version));
        assert_eq!(Packet::parse(&bytes[..19]), Err(PacketError::Headers));
        assert_eq!(Packet::parse(&[&bytes[..], &[0]].concat()), Err(PacketError::Length), "longer than it says");
        let mut short = bytes.clone();
        short[32] = 0xf0;
        assert_eq!(Packet::parse(&short), Err(PacketError::Transport), "a TCP header longer than the packet");
        assert_eq!(Packet::parse(&v6(17, &[], &[0; 7])), Err(PacketError::Transport));
        let six = v6(59, &[], &[]);
        assert!(Packet::parse(&six).is_ok(), "nothing in it");
        assert_eq!(Packet::parse(&[&six[..], &[0]].concat()), Err(PacketError::Length));
        // A chain of extensions that ends in the middle of one.
        assert!(Packet::parse(&v6(0, &[60, 5, 0, 0], &[])).is_err());
    }

    #[test]
    fn only_who_knows_marks_is_marked() {
        for (tos, marked) in [(0, false), (1, true), (2, true), (3, true)] {
            let mut bytes = v4(tos, 0);
            let before = bytes.clone();
            assert_eq!(mark_ce(&mut bytes), marked);
            assert_eq!(checksum(&bytes[..20], 0), 0, "the header adds up");
            if marked {
                assert_eq!(Packet::parse(&bytes).unwrap().ecn, Ecn::Ce);
            } else {
                assert_eq!(bytes, before);
            }
            let mut six = v6(59, &[], &[]);
            six[1] = tos << 4 | 5;
            assert_eq!(mark_ce(&mut six), marked);
            assert_eq!(six[1], if marked { 0x35 } else { tos << 4 | 5 }, "the flow label stays");
        }
    }

    proptest! {
        #[test]
        fn a_mark_keeps_the_header_sound(tos in any::<u8>(), ident in any::<u16>(), ttl in any::<u8>(), size in 0usize..100) {
            let mut bytes = v4(tos, size);
            bytes[4..6].copy_from_slice(&ident.to_be_bytes());
            bytes[8] = ttl;
            bytes[10..12].fill(0);
            let sum = checksum(&bytes[..20], 0);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            mark_ce(&mut bytes);
            prop_assert_eq!(checksum(&bytes[..20], 0), 0);
        }

        #[test]
        fn whatever_comes_is_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), six in any::<bool>()) {
            if let Some(first) = bytes.first_mut() {
                *first = *first & 0x0f | if six { 0x60 } else { 0x40 };
            }
            if bytes.len() >= 40 {
                // So that more than the length is looked at.
                let length = bytes.len() as u16;
                if six {
                    bytes[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                } else {
                    bytes[2..4].copy_from_slice(&length.to_be_bytes());
                }
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                prop_assert!(packet.payload_at() <= bytes.len());
            }
            mark_ce(&mut bytes);
        }
    }
}
