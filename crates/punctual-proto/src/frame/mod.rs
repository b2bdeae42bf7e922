//! The wire: every frame, written and read side by side.
//!
//! Two things carry frames. A **datagram** ([`datagram`]) holds what the network may lose: the blocks themselves and the
//! times that compare the clocks. The **control stream** ([`control`]), one each way, holds what must arrive: limits,
//! credit, and how blocks ended. `docs/protocol.md` describes both for a second implementation; its test vectors are
//! checked against this module.
//!
//! | file | frames |
//! | --- | --- |
//! | [`varint`] | the integers all of them are made of |
//! | [`time`] | TIMESTAMP, and times modulo 2^32 |
//! | [`arrivals`] | ARRIVALS |
//! | [`zigzag`] | differences between them |
//! | [`block`] | BLOCK_INFO, and the heads of FRAGMENT and BLOCK |
//! | [`repair`] | SOURCE, and the head of REPAIR |
//! | [`datagram`] | a datagram's payload, as a writer and as an iterator |
//! | [`control`] | the control stream, as an encoder and an incremental decoder |
//! | [`lists`] | COMPLETED_LIST, DROPPED_LIST |
//! | [`continuation`] | how it goes on, on another stream of QUIC's |
//!
//! Reading trusts nothing: no length is believed before the bytes it promises are there, and nothing is allocated for one.
//! What a frame *means* (whether its block exists, whether there was credit for it) is for the stations that use it.

pub(crate) mod arrivals;
pub(crate) mod block;
pub(crate) mod continuation;
pub(crate) mod control;
pub(crate) mod datagram;
pub(crate) mod lists;
pub(crate) mod repair;
pub(crate) mod time;
pub(crate) mod varint;
mod zigzag;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod vectors;

use std::ops::RangeInclusive;

pub(crate) use arrivals::{Arrival, Arrivals};
pub(crate) use block::BlockInfo;
pub(crate) use control::{ControlDecoder, ControlFrame, Settings};
pub(crate) use datagram::{DatagramFrame, DatagramFrames, DatagramWriter};
pub(crate) use repair::{RepairHead, SourceHead};

/// Frame types that carry a length and that a receiver who does not know them skips, in datagrams and on the control
/// stream alike.
const EXTENSIONS: RangeInclusive<u64> = 0x40..=0x7f;
