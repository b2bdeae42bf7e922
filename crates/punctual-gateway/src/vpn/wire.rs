//! What the two sides of a VPN say to each other: the payload of each block is one word of this grammar. `docs/gateway.md` has it for a second implementation.
//!
//! A word begins with a byte that says its kind; kinds are others than those of [tunnels](crate::tunnel::wire), so that neither takes the other for its like. Numbers
//! are variable-length integers as in QUIC (RFC 9000, section 16).

use std::net::IpAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ipnet::IpNet;
use thiserror::Error;

use super::segment::Rest;
use crate::number;

/// The version of the grammar.
pub const VERSION: u64 = 1;
/// Addresses that a client may be given, at most.
pub const MAX_ADDRESSES: usize = 16;
/// Routes that a client may be told of, at most.
pub const MAX_ROUTES: usize = 1_024;
/// Kinds from here on are for later versions, and passed over by those who do not know them.
const FIRST_OPTIONAL: u8 = 0x40;

mod kind {
    pub(super) const HELLO: u8 = 0x10;
    pub(super) const WELCOME: u8 = 0x11;
    pub(super) const PACKET: u8 = 0x12;
    pub(super) const UNSUMMED: u8 = 0x13;
    pub(super) const LARGE: u8 = 0x14;
}

/// One thing that a side says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// With which a client begins: the highest version of the grammar that it knows. Both sides speak the lower of the two.
    Hello(u64),
    /// The server's answer; again, when it has changed.
    Welcome(Welcome),
    /// An IP packet, and what is left to be done with it.
    Packet {
        /// The packet.
        packet: Bytes,
        /// What its sender has left to the receiver.
        rest: Rest,
    },
}

/// What a client is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The highest version of the grammar that the server knows.
    pub version: u64,
    /// The largest packet, bytes.
    pub mtu: u16,
    /// The client's addresses, with the network that each is in.
    pub addresses: Vec<IpNet>,
    /// The networks that are behind the server.
    pub routes: Vec<IpNet>,
}

/// A block is no word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WireError {
    /// It ends in the middle of something.
    #[error("it ends too early")]
    Truncated,
    /// Its kind is one that nobody may pass over.
    #[error("there is no word of kind {0}")]
    Kind(u8),
    /// A network is neither of IPv4 nor of IPv6, or its prefix is longer than its address.
    #[error("a network is none")]
    Network,
    /// More is given than [`MAX_ADDRESSES`] or [`MAX_ROUTES`].
    #[error("it names {0} networks")]
    TooMany(u64),
    /// No packet of IPv6 is that small, or no packet that large.
    #[error("an MTU of {0} bytes")]
    Mtu(u64),
    /// Its version is 0.
    #[error("there is no version 0")]
    Version,
    /// A packet is to be cut into segments of no bytes, or of more than there can be.
    #[error("segments of {0} bytes")]
    Segments(u64),
}

impl Word {
    /// As the payload of a block.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Hello(version) => {
                out.put_u8(kind::HELLO);
                number::put(&mut out, *version);
            }
            Self::Welcome(Welcome { version, mtu, addresses, routes }) => {
                out.put_u8(kind::WELCOME);
                number::put(&mut out, *version);
                number::put(&mut out, u64::from(*mtu));
                for networks in [addresses, routes] {
                    number::put(&mut out, networks.len() as u64);
                    networks.iter().for_each(|network| put_network(&mut out, network));
                }
            }
            Self::Packet { packet, rest } => return encode(packet, *rest).0.freeze(),
        }
        out.freeze()
    }

    /// Reads a block's payload; `None` for a word of a later version that may be passed over. What follows a word without a packet is passed over, too:
    /// later versions may add to it.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn decode(mut from: Bytes) -> Result<Option<Self>, WireError> {
        let kind = byte(&mut from)?;
        Ok(Some(match kind {
            kind::HELLO => Self::Hello(version(&mut from)?),
            kind::WELCOME => Self::Welcome(Welcome::decode(&mut from)?),
            kind::PACKET => Self::Packet { packet: from, rest: Rest::Nothing },
            kind::UNSUMMED => Self::Packet { packet: from, rest: Rest::Checksum },
            kind::LARGE => {
                let size = number(&mut from)?;
                let size = u16::try_from(size).ok().filter(|size| *size > 0).ok_or(WireError::Segments(size))?;
                Self::Packet { packet: from, rest: Rest::Segments(size) }
            }
            FIRST_OPTIONAL.. => return Ok(None),
            kind => return Err(WireError::Kind(kind)),
        }))
    }
}

/// A packet's word, and where in it the packet begins.
pub(crate) fn encode(packet: &[u8], rest: Rest) -> (BytesMut, usize) {
    // A kind, and a number of 4 bytes at most.
    let mut out = BytesMut::with_capacity(packet.len() + 5);
    match rest {
        Rest::Nothing => out.put_u8(kind::PACKET),
        Rest::Checksum => out.put_u8(kind::UNSUMMED),
        Rest::Segments(size) => {
            out.put_u8(kind::LARGE);
            number::put(&mut out, u64::from(size));
        }
    }
    let at = out.len();
    out.put_slice(packet);
    (out, at)
}

impl Welcome {
    fn decode(from: &mut Bytes) -> Result<Self, WireError> {
        let version = version(from)?;
        let mtu = number(from)?;
        // RFC 8200, section 5: IPv6 needs 1,280 bytes.
        let mtu = u16::try_from(mtu).ok().filter(|mtu| *mtu >= 1_280).ok_or(WireError::Mtu(mtu))?;
        let addresses = networks(from, MAX_ADDRESSES)?;
        let routes = networks(from, MAX_ROUTES)?;
        Ok(Self { version, mtu, addresses, routes })
    }
}

fn version(from: &mut Bytes) -> Result<u64, WireError> {
    match number(from)? {
        0 => Err(WireError::Version),
        version => Ok(version),
    }
}

/// The version of IP, the address, the length of the prefix.
fn put_network(out: &mut BytesMut, network: &IpNet) {
    match network.addr() {
        IpAddr::V4(address) => {
            out.put_u8(4);
            out.put_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.put_u8(6);
            out.put_slice(&address.octets());
        }
    }
    out.put_u8(network.prefix_len());
}

fn networks(from: &mut Bytes, most: usize) -> Result<Vec<IpNet>, WireError> {
    let count = number(from)?;
    if count > most as u64 {
        return Err(WireError::TooMany(count));
    }
    (0..count).map(|_| network(from)).collect()
}

fn network(from: &mut Bytes) -> Result<IpNet, WireError> {
    let address = match byte(from)? {
        4 => IpAddr::from(octets::<4>(from)?),
        6 => IpAddr::from(octets::<16>(from)?),
        _ => return Err(WireError::Network),
    };
    IpNet::new(address, byte(from)?).map_err(|_| WireError::Network)
}

fn octets<const N: usize>(from: &mut Bytes) -> Result<[u8; N], WireError> {
    let mut octets = [0; N];
    from.try_copy_to_slice(&mut octets).map_err(|_| WireError::Truncated)?;
    Ok(octets)
}

fn byte(from: &mut Bytes) -> Result<u8, WireError> {
    from.try_get_u8().map_err(|_| WireError::Truncated)
}

fn number(from: &mut Bytes) -> Result<u64, WireError> {
    number::get(from).ok_or(WireError::Truncated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The vectors of `docs/gateway.md`.
    fn vectors() -> Vec<(Word, &'static str)> {
        let packet = Bytes::from_static(&[0x45, 0, 0, 20]);
        let net = |text: &str| text.parse().unwrap();
        let welcome = Welcome {
            version: 1,
            mtu: 1_500,
            addresses: vec![net("10.9.0.2/24"), net("fd09::2/64")],
            routes: vec![net("192.168.0.0/16")],
        };
        vec![
            (Word::Hello(1), "1001"),
            (Word::Welcome(welcome), "110145dc02040a0900021806fd090000000000000000000000000002400104c0a8000010"),
            (Word::Packet { packet: packet.clone(), rest: Rest::Nothing }, "1245000014"),
            (Word::Packet { packet: packet.clone(), rest: Rest::Checksum }, "1345000014"),
            (Word::Packet { packet, rest: Rest::Segments(1_448) }, "1445a845000014"),
        ]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn words_are_written_as_documented() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway.md");
        let text = std::fs::read_to_string(document).expect("the document is there");
        for (word, vector) in vectors() {
            let bytes = word.encode();
            assert_eq!(hex(&bytes), vector, "{word:?}");
            assert_eq!(Word::decode(bytes), Ok(Some(word)));
            assert!(text.contains(&format!("`{vector}`")), "{vector} is not in docs/gateway.md");
        }
    }

    #[test]
    fn what_ends_too_early_is_refused() {
        for (word, _) in vectors() {
            if matches!(word, Word::Packet { .. }) {
                continue;
            }
            let bytes = word.encode();
            for end in 0..bytes.len() {
                assert_eq!(Word::decode(bytes.slice(..end)), Err(WireError::Truncated), "{word:?} to {end}");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_what_is_new_is_passed_over() {
        let decode = |bytes: &[u8]| Word::decode(Bytes::copy_from_slice(bytes));
        assert_eq!(decode(&[0]), Err(WireError::Kind(0)), "a tunnel's greeting");
        assert_eq!(decode(&[0x15]), Err(WireError::Kind(0x15)));
        assert_eq!(decode(&[0x40, 9]), Ok(None));
        assert_eq!(decode(&[0x10, 0]), Err(WireError::Version));
        assert_eq!(decode(&[0x10, 2, 7, 7]), Ok(Some(Word::Hello(2))), "a later version has more to say");
        assert_eq!(decode(&[0x14, 0, 1]), Err(WireError::Segments(0)));
        assert_eq!(decode(&[0x11, 1, 0x44, 0xff]), Err(WireError::Mtu(1_279)));
        assert_eq!(decode(&[0x11, 1, 0x45, 0xdc, 17]), Err(WireError::TooMany(17)));
        assert_eq!(decode(&[0x11, 1, 0x45, 0xdc, 1, 5, 0]), Err(WireError::Network));
        assert_eq!(decode(&[0x11, 1, 0x45, 0xdc, 1, 4, 1, 2, 3, 4, 33]), Err(WireError::Network));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused_and_what_is_read_can_be_said(
            kind in prop_oneof![0x10u8..0x15, any::<u8>()], rest in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [&[kind][..], &rest].concat();
            if let Ok(Some(word)) = Word::decode(bytes.into()) {
                prop_assert_eq!(Word::decode(word.encode()), Ok(Some(word)));
            }
        }
    }
}
