//! What network cards do for a kernel, in software: checksums that are left to them, and large packets cut into those that a network carries.
//!
//! A TUN device that takes *large* packets (TSO, USO) gives and takes up to 64 KB of a flow in one piece, so that all that lies between costs a fortieth for each
//! byte. Such a piece is a packet like any other, but for its length, and for the checksum of its transport, in which only the pseudo header is summed.

use bytes::{Bytes, BytesMut};

use super::packet::{Packet, Transport};

/// What is left to be done with a packet before a network may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rest {
    /// Nothing.
    #[default]
    Nothing,
    /// The checksum of its transport is of the pseudo header only.
    Checksum,
    /// The same, and what the transport carries is to be cut into segments of so many bytes; the last may be shorter. Never 0.
    Segments(u16),
}

/// The most packets that one may be cut into: Linux has 128 for UDP, and what TCP has at least 536 bytes for each.
const MOST_SEGMENTS: usize = 128;

/// The Internet checksum (RFC 1071) of `bytes`, of which `sum` is what has been summed before.
pub(crate) fn checksum(bytes: &[u8], sum: u64) -> u16 {
    let (words, rest) = bytes.as_chunks::<4>();
    // Sums of larger words are as good (RFC 1071, section 2), and an u64 has room for all that a packet has.
    let mut sum = sum + words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum::<u64>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_be_bytes(last));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Where the checksum is in the header of a transport that may have it left out.
pub(crate) fn checksum_offset(transport: Transport) -> Option<usize> {
    match transport {
        Transport::Tcp { .. } => Some(16),
        Transport::Udp => Some(6),
        Transport::Icmp | Transport::Other => None,
    }
}

/// Whether that may be left to be done with such a packet: whoever gives it to a kernel is to have asked.
pub fn is_sound(packet: &Packet, length: usize, rest: Rest) -> bool {
    let segments = |size: u16| {
        let carried = length.saturating_sub(packet.payload_at());
        let count = carried.div_ceil(usize::from(size).max(1));
        size > 0 && (1..=MOST_SEGMENTS).contains(&count)
    };
    match rest {
        Rest::Nothing => true,
        Rest::Checksum => checksum_offset(packet.transport).is_some() && !packet.is_fragment,
        Rest::Segments(size) => checksum_offset(packet.transport).is_some() && !packet.is_fragment && segments(size),
    }
}

/// Does what is left to be done, and gives each packet that comes of it. `packet` is what the headers say.
pub fn finish(bytes: &[u8], packet: &Packet, rest: Rest, mut give: impl FnMut(Bytes)) {
    let whole = match rest {
        _ if !is_sound(packet, bytes.len(), rest) => return,
        Rest::Nothing => return give(Bytes::copy_from_slice(bytes)),
        Rest::Checksum => usize::MAX,
        Rest::Segments(size) => usize::from(size),
    };
    let Some(offset) = checksum_offset(packet.transport) else { return };
    let (headers, carried) = bytes.split_at(packet.payload_at());
    if carried.is_empty() {
        return give(one(bytes, packet, offset));
    }
    let count = carried.len().div_ceil(whole);
    for (index, data) in carried.chunks(whole).enumerate() {
        let mut segment = BytesMut::with_capacity(headers.len() + data.len());
        segment.extend_from_slice(headers);
        segment.extend_from_slice(data);
        number(&mut segment, packet, index, whole, index + 1 == count);
        give(one(&segment, packet, offset));
    }
}

/// Makes headers those of one of many segments.
fn number(segment: &mut [u8], packet: &Packet, index: usize, size: usize, last: bool) {
    let (length, at) = (segment.len(), packet.transport_at);
    // All of them fit into 16 bits, as the large packet does.
    let short = |value: usize| (value as u16).to_be_bytes();
    if packet.source.is_ipv4() {
        segment[2..4].copy_from_slice(&short(length));
        let ident = u16::from_be_bytes([segment[4], segment[5]]).wrapping_add(index as u16);
        segment[4..6].copy_from_slice(&ident.to_be_bytes());
        segment[10..12].fill(0);
        let sum = checksum(&segment[..20.max(usize::from(segment[0] & 15) * 4).min(length)], 0);
        segment[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        segment[4..6].copy_from_slice(&short(length - 40));
    }
    match packet.transport {
        Transport::Tcp { .. } => {
            let sequence = segment[at + 4..at + 8].try_into().map_or(0, u32::from_be_bytes);
            let sequence = sequence.wrapping_add((index * size) as u32);
            segment[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            const FIN: u8 = 0x01;
            const PSH: u8 = 0x08;
            const CWR: u8 = 0x80;
            // The end is that of the last, and RFC 3168 has one answer to a mark, not one each.
            if !last {
                segment[at + 13] &= !(FIN | PSH);
            }
            if index > 0 {
                segment[at + 13] &= !CWR;
            }
        }
        _ => segment[at + 4..at + 6].copy_from_slice(&short(length - at)),
    }
}

/// A packet with its checksum.
fn one(bytes: &[u8], packet: &Packet, offset: usize) -> Bytes {
    let mut bytes = BytesMut::from(bytes);
    let at = packet.transport_at;
    bytes[at + offset..at + offset + 2].fill(0);
    let addresses = if packet.source.is_ipv4() { 12..20 } else { 8..40 };
    let length = (bytes.len() - at) as u64;
    let pseudo = !checksum(&bytes[addresses], length + u64::from(packet.protocol));
    let sum = match (checksum(&bytes[at..], u64::from(pseudo)), packet.transport) {
        // A checksum of zero says that there is none (RFC 768).
        (0, Transport::Udp) => 0xffff,
        (sum, _) => sum,
    };
    bytes[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, PacketHeaders, TransportHeader};
    use proptest::prelude::*;

    use super::*;

    fn carried(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 7) as u8).collect()
    }

    fn packet(six: bool, tcp: bool, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let ip = if six {
            PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 64)
        } else {
            PacketBuilder::ipv4([10, 9, 0, 2], [10, 9, 0, 1], 64)
        };
        let carried = carried(size);
        if tcp {
            ip.tcp(4000, 80, u32::MAX - 100, 512).ack(9).psh().fin().write(&mut bytes, &carried).unwrap();
        } else {
            ip.udp(4000, 80).write(&mut bytes, &carried).unwrap();
        }
        bytes
    }

    fn cut(bytes: &[u8], rest: Rest) -> Vec<Bytes> {
        let mut all = Vec::new();
        finish(bytes, &Packet::parse(bytes).unwrap(), rest, |segment| all.push(segment));
        all
    }

    /// What etherparse, which is not ours, says of it: that it is sound, and what it carries.
    fn read(bytes: &[u8]) -> (PacketHeaders<'_>, Vec<u8>) {
        let headers = PacketHeaders::from_ip_slice(bytes).expect("a packet");
        let payload = headers.payload.slice().to_vec();
        let sum = match (&headers.net, &headers.transport) {
            (Some(etherparse::NetHeaders::Ipv4(ip, _)), Some(TransportHeader::Tcp(tcp))) => {
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                (tcp.checksum, tcp.calc_checksum_ipv4(ip, &payload).unwrap())
            }
            (Some(etherparse::NetHeaders::Ipv4(ip, _)), Some(TransportHeader::Udp(udp))) => {
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                (udp.checksum, udp.calc_checksum_ipv4(ip, &payload).unwrap())
            }
            (Some(etherparse::NetHeaders::Ipv6(ip, _)), Some(TransportHeader::Tcp(tcp))) => {
                (tcp.checksum, tcp.calc_checksum_ipv6(ip, &payload).unwrap())
            }
            (Some(etherparse::NetHeaders::Ipv6(ip, _)), Some(TransportHeader::Udp(udp))) => {
                (udp.checksum, udp.calc_checksum_ipv6(ip, &payload).unwrap())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(sum.0, sum.1, "the transport's checksum");
        (headers, payload)
    }

    #[test]
    fn a_segment_has_its_part_and_the_last_the_end() {
        let bytes = packet(false, true, 2_500);
        let all = cut(&bytes, Rest::Segments(1_000));
        assert_eq!(all.iter().map(Bytes::len).collect::<Vec<_>>(), [1_040, 1_040, 540]);
        let mut sequences = Vec::new();
        for (index, segment) in all.iter().enumerate() {
            let (headers, _) = read(segment);
            let Some(TransportHeader::Tcp(tcp)) = headers.transport else { panic!("no TCP") };
            sequences.push(tcp.sequence_number);
            assert_eq!((tcp.fin, tcp.psh, tcp.ack), (index == 2, index == 2, true));
        }
        assert_eq!(sequences, [u32::MAX - 100, 899, 1_899]);
    }

    #[test]
    fn what_cannot_be_cut_is_not() {
        let bytes = packet(false, true, 2_500);
        let parsed = Packet::parse(&bytes).unwrap();
        assert!(is_sound(&parsed, bytes.len(), Rest::Segments(1_000)));
        assert!(!is_sound(&parsed, bytes.len(), Rest::Segments(0)));
        assert!(!is_sound(&parsed, bytes.len(), Rest::Segments(1)), "into 2,500");
        assert!(!is_sound(&Packet { transport: Transport::Icmp, ..parsed }, bytes.len(), Rest::Checksum));
        assert!(!is_sound(&Packet { is_fragment: true, ..parsed }, bytes.len(), Rest::Checksum));
        assert_eq!(cut(&bytes, Rest::Segments(0)), Vec::<Bytes>::new());
    }

    proptest! {
        #[test]
        fn segments_are_sound_and_carry_the_same(
            six in any::<bool>(), tcp in any::<bool>(), size in 1usize..9_000, segment in 80u16..3_000,
        ) {
            let bytes = packet(six, tcp, size);
            let all = cut(&bytes, Rest::Segments(segment));
            let mut came = Vec::new();
            for segment in &all {
                came.extend(read(segment).1);
            }
            prop_assert_eq!(came, carried(size));
        }

        #[test]
        fn a_checksum_is_filled_in(six in any::<bool>(), tcp in any::<bool>(), size in 0usize..3_000) {
            let bytes = packet(six, tcp, size);
            let mut left = bytes.clone();
            let parsed = Packet::parse(&left).unwrap();
            let at = parsed.transport_at + checksum_offset(parsed.transport).unwrap();
            left[at..at + 2].fill(0x55);
            prop_assert_eq!(cut(&left, Rest::Checksum), vec![Bytes::from(bytes)]);
        }
    }
}
