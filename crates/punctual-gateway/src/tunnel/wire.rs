//! What gateways say to each other: the payload of each block is one word of this grammar. `docs/gateway.md` has it for a second implementation.
//!
//! A word begins with a byte that says its kind. Numbers are variable-length integers as in QUIC (RFC 9000, section 16), names have a byte
//! of length in front; what is left of the block is the data.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::name::{Name, Protocol};
use crate::number;

/// The version of the grammar.
pub const VERSION: u64 = 1;
/// Ports that a greeting may offer, at most.
pub const MAX_OFFERS: usize = 1_024;
/// Bytes of a TCP connection that may be sent each way before the far side grants more with [`Word::Credit`].
pub const INITIAL_CREDIT: u64 = 65_536;
/// Kinds from here on are for later versions, and passed over by those who do not know them.
const FIRST_OPTIONAL: u8 = 0x20;

mod kind {
    pub(super) const HELLO: u8 = 0;
    pub(super) const DATAGRAM: u8 = 1;
    pub(super) const FIRST: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const DATA: u8 = 4;
    pub(super) const FIN: u8 = 5;
    pub(super) const CREDIT: u8 = 6;
    pub(super) const STOP: u8 = 7;
}

/// One thing that a gateway says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// The greeting, with which each side begins; again, when what it offers has changed.
    Hello(Hello),
    /// A datagram of a flow that the far side knows.
    Datagram {
        /// Which flow.
        flow: FlowId,
        /// The datagram; may be empty.
        data: Bytes,
    },
    /// A datagram of a flow that the far side may not know yet.
    First {
        /// Which flow.
        flow: FlowId,
        /// The port at the far side that it is for.
        name: Name,
        /// The datagram; may be empty.
        data: Bytes,
    },
    /// A TCP connection begins.
    Open {
        /// Which flow it is from now on.
        flow: FlowId,
        /// The port at the far side that it is for.
        name: Name,
    },
    /// Bytes of a TCP connection.
    Data {
        /// Which flow.
        flow: FlowId,
        /// Bytes of this direction that went before.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// No more bytes of a TCP connection come in this direction.
    Fin {
        /// Which flow.
        flow: FlowId,
        /// All bytes of this direction.
        size: u64,
    },
    /// So many bytes of a TCP connection may be sent, from its beginning on; what was said before is a lower bound.
    Credit {
        /// Which flow.
        flow: FlowId,
        /// Bytes in all.
        limit: u64,
    },
    /// The sender does not carry this flow, or carries it no longer.
    Stop {
        /// Which flow.
        flow: FlowId,
        /// Why.
        reason: StopReason,
    },
}

/// A greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The highest version of the grammar that the sender knows. Both sides speak the lower of the two.
    pub version: u64,
    /// Drawn at random when the sender started. Known to this sender only, so that its flows outlive a session that is lost.
    pub instance: Instance,
    /// The ports that it forwards.
    pub offers: Vec<(Protocol, Name)>,
}

/// Who greets. It is a secret between two gateways: of its text there is only the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance(pub [u8; 16]);

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([one, two, three, ..]) = self;
        write!(f, "{one:02x}{two:02x}{three:02x}")
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instance({self}…)")
    }
}

/// Names a flow within all that passes between two gateways. Even for those that the client of the session began, odd for the server's;
/// none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// Why a flow is not carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Its end is not known here: it was silent for too long. Datagrams go on with [`Word::First`].
    Unknown,
    /// No port of that name is forwarded here.
    NoSuchPort,
    /// There are as many flows as are allowed.
    TooMany,
    /// Where the port is forwarded to could not be reached.
    Unreachable,
    /// The connection was reset.
    Reset,
    /// A reason of a later version.
    Other(u64),
}

impl StopReason {
    fn code(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::NoSuchPort => 1,
            Self::TooMany => 2,
            Self::Unreachable => 3,
            Self::Reset => 4,
            Self::Other(code) => code,
        }
    }

    fn of(code: u64) -> Self {
        match code {
            0 => Self::Unknown,
            1 => Self::NoSuchPort,
            2 => Self::TooMany,
            3 => Self::Unreachable,
            4 => Self::Reset,
            code => Self::Other(code),
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unknown => "the flow is not known there any more",
            Self::NoSuchPort => "no port of that name is forwarded there",
            Self::TooMany => "there are as many flows as are allowed there",
            Self::Unreachable => "where it is forwarded to could not be reached",
            Self::Reset => "the connection was reset",
            Self::Other(_) => "for a reason that is not known here",
        }
    }
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
    /// A name is none.
    #[error("a port has a name that is none")]
    Name,
    /// A port speaks neither UDP nor TCP.
    #[error("there is no protocol {0}")]
    Protocol(u8),
    /// More ports are offered than [`MAX_OFFERS`].
    #[error("it offers {0} ports; 1024 are allowed")]
    Offers(u64),
    /// There is no version 0.
    #[error("there is no version 0")]
    Version,
}

impl Word {
    /// The block's payload.
    pub fn encode(&self) -> Bytes {
        let data = match self {
            Self::Datagram { data, .. } | Self::First { data, .. } | Self::Data { data, .. } => &data[..],
            _ => &[],
        };
        let mut out = BytesMut::with_capacity(32 + Name::LONGEST + data.len());
        match self {
            Self::Hello(Hello { version, instance, offers }) => {
                out.put_u8(kind::HELLO);
                number::put(&mut out, *version);
                out.put_slice(&instance.0);
                number::put(&mut out, offers.len() as u64);
                for (protocol, name) in offers {
                    out.put_u8(*protocol as u8);
                    put_name(&mut out, name);
                }
            }
            Self::Datagram { flow, .. } => put_head(&mut out, kind::DATAGRAM, *flow),
            Self::First { flow, name, .. } => {
                put_head(&mut out, kind::FIRST, *flow);
                put_name(&mut out, name);
            }
            Self::Open { flow, name } => {
                put_head(&mut out, kind::OPEN, *flow);
                put_name(&mut out, name);
            }
            Self::Data { flow, offset, .. } => {
                put_head(&mut out, kind::DATA, *flow);
                number::put(&mut out, *offset);
            }
            Self::Fin { flow, size } => {
                put_head(&mut out, kind::FIN, *flow);
                number::put(&mut out, *size);
            }
            Self::Credit { flow, limit } => {
                put_head(&mut out, kind::CREDIT, *flow);
                number::put(&mut out, *limit);
            }
            Self::Stop { flow, reason } => {
                put_head(&mut out, kind::STOP, *flow);
                number::put(&mut out, reason.code());
            }
        }
        out.put_slice(data);
        out.freeze()
    }

    /// Reads a block's payload; `None` for a word of a later version that may be passed over. What follows a word that has no data is passed over, too:
    /// later versions may add to it.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn decode(mut from: Bytes) -> Result<Option<Self>, WireError> {
        let kind = byte(&mut from)?;
        if kind == kind::HELLO {
            return Hello::decode(&mut from).map(|hello| Some(Self::Hello(hello)));
        }
        if kind >= FIRST_OPTIONAL {
            return Ok(None);
        }
        if kind > kind::STOP {
            return Err(WireError::Kind(kind));
        }
        let flow = FlowId(number(&mut from)?);
        Ok(Some(match kind {
            kind::DATAGRAM => Self::Datagram { flow, data: from },
            kind::FIRST => {
                let name = name(&mut from)?;
                Self::First { flow, name, data: from }
            }
            kind::OPEN => Self::Open { flow, name: name(&mut from)? },
            kind::DATA => {
                let offset = number(&mut from)?;
                Self::Data { flow, offset, data: from }
            }
            kind::FIN => Self::Fin { flow, size: number(&mut from)? },
            kind::CREDIT => Self::Credit { flow, limit: number(&mut from)? },
            _ => Self::Stop { flow, reason: StopReason::of(number(&mut from)?) },
        }))
    }
}

impl Hello {
    fn decode(from: &mut Bytes) -> Result<Self, WireError> {
        let version = number(from)?;
        if version == 0 {
            return Err(WireError::Version);
        }
        let mut instance = [0; 16];
        from.try_copy_to_slice(&mut instance).map_err(|_| WireError::Truncated)?;
        let count = number(from)?;
        if count > MAX_OFFERS as u64 {
            return Err(WireError::Offers(count));
        }
        let offer = |_| {
            let protocol = match byte(from)? {
                0 => Protocol::Udp,
                1 => Protocol::Tcp,
                other => return Err(WireError::Protocol(other)),
            };
            Ok((protocol, name(from)?))
        };
        let offers = (0..count).map(offer).collect::<Result<_, _>>()?;
        Ok(Self { version, instance: Instance(instance), offers })
    }
}

fn put_head(out: &mut BytesMut, kind: u8, flow: FlowId) {
    out.put_u8(kind);
    number::put(out, flow.0);
}

fn put_name(out: &mut BytesMut, name: &Name) {
    // A name has 64 bytes at most.
    out.put_u8(name.as_str().len() as u8);
    out.put_slice(name.as_str().as_bytes());
}

fn byte(from: &mut Bytes) -> Result<u8, WireError> {
    from.try_get_u8().map_err(|_| WireError::Truncated)
}

fn number(from: &mut Bytes) -> Result<u64, WireError> {
    number::get(from).ok_or(WireError::Truncated)
}

fn name(from: &mut Bytes) -> Result<Name, WireError> {
    let length = usize::from(byte(from)?);
    if from.len() < length {
        return Err(WireError::Truncated);
    }
    let text = from.split_to(length);
    std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).ok_or(WireError::Name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::number::LARGEST;

    fn camera() -> Name {
        "camera".parse().unwrap()
    }

    /// The vectors of `docs/gateway.md`.
    fn vectors() -> Vec<(Word, &'static str)> {
        let data = Bytes::from_static(b"hi");
        vec![
            (
                Word::Hello(Hello {
                    version: 1,
                    instance: Instance(*b"0123456789abcdef"),
                    offers: vec![(Protocol::Udp, camera()), (Protocol::Tcp, "ssh".parse().unwrap())],
                }),
                "00013031323334353637383961626364656602000663616d6572610103737368",
            ),
            (Word::Datagram { flow: FlowId(2), data: data.clone() }, "01026869"),
            (Word::Datagram { flow: FlowId(64), data: Bytes::new() }, "014040"),
            (Word::First { flow: FlowId(1), name: camera(), data: data.clone() }, "02010663616d6572616869"),
            (Word::Open { flow: FlowId(16_384), name: camera() }, "03800040000663616d657261"),
            (Word::Data { flow: FlowId(0), offset: 1 << 30, data }, "0400c0000000400000006869"),
            (Word::Fin { flow: FlowId(4), size: 2 }, "050402"),
            (Word::Credit { flow: FlowId(4), limit: 65_536 }, "060480010000"),
            (Word::Stop { flow: FlowId(6), reason: StopReason::NoSuchPort }, "070601"),
        ]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn words_are_written_as_documented() {
        for (word, vector) in vectors() {
            let bytes = word.encode();
            assert_eq!(hex(&bytes), vector, "{word:?}");
            assert_eq!(Word::decode(bytes), Ok(Some(word)));
        }
    }

    #[test]
    fn the_documented_vectors_are_these() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway.md");
        let text = std::fs::read_to_string(document).expect("the document is there");
        for (_, vector) in vectors() {
            assert!(text.contains(&format!("`{vector}`")), "{vector} is not in docs/gateway.md");
        }
    }

    #[test]
    fn what_ends_too_early_is_refused() {
        for (word, _) in vectors() {
            let bytes = word.encode();
            let head = match word {
                // What is left of these is data, of whatever length.
                Word::Datagram { ref data, .. } | Word::First { ref data, .. } | Word::Data { ref data, .. } => {
                    bytes.len() - data.len()
                }
                _ => bytes.len(),
            };
            for end in 0..head {
                assert_eq!(Word::decode(bytes.slice(..end)), Err(WireError::Truncated), "{word:?} to {end}");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_what_is_new_is_passed_over() {
        let decode = |bytes: &[u8]| Word::decode(Bytes::copy_from_slice(bytes));
        assert_eq!(decode(&[8]), Err(WireError::Kind(8)));
        assert_eq!(decode(&[0x1f]), Err(WireError::Kind(0x1f)));
        assert_eq!(decode(&[0x20]), Ok(None));
        assert_eq!(decode(&[0xff, 1, 2]), Ok(None));
        assert_eq!(decode(&[kind::OPEN, 0, 0]), Err(WireError::Name));
        assert_eq!(decode(&[kind::OPEN, 0, 2, b'/', b'.']), Err(WireError::Name));
        assert_eq!(decode(&[kind::HELLO, 0]), Err(WireError::Version));
        let hello = |rest: &[u8]| decode(&[&[kind::HELLO, 1][..], &[7; 16], rest].concat());
        assert_eq!(hello(&[0x44, 0x01]), Err(WireError::Offers(1_025)));
        assert_eq!(hello(&[1, 2, 1, b'a']), Err(WireError::Protocol(2)));
        assert!(matches!(hello(&[0, 9, 9]), Ok(Some(Word::Hello(_)))), "a later version has more to say");
        assert_eq!(
            decode(&[kind::STOP, 0, 63]),
            Ok(Some(Word::Stop { flow: FlowId(0), reason: StopReason::Other(63) }))
        );
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused_and_what_is_read_can_be_said(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(Some(word)) = Word::decode(bytes.into()) {
                prop_assert_eq!(Word::decode(word.encode()), Ok(Some(word)));
            }
        }

        #[test]
        fn numbers_come_back(number in 0..=LARGEST, shift in 0u32..62) {
            let word = Word::Fin { flow: FlowId(number >> shift), size: number };
            prop_assert_eq!(Word::decode(word.encode()), Ok(Some(word)));
        }
    }
}
