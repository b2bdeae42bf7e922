//! Hosts that run something else than Punctual.

use std::{
    any::Any,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use punctual_proto::{EcnCodepoint, NetworkPath, Transmit};

/// A moment, as a host is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Virtual time: the truth, which no host knows. For records, not for decisions.
    pub now: Duration,
    /// The host's own clock.
    pub instant: Instant,
}

/// A host that runs something else than Punctual, beside others that do or do not: a rival to compare with, a server
/// that knows no better, a middlebox.
///
/// Like [`punctual_proto::Endpoint`] it is a state machine: datagrams and the time go in, datagrams and the next
/// wake-up come out. After anything that goes in, the world drains [`poll_transmit`](Self::poll_transmit) and then asks
/// [`poll_timeout`](Self::poll_timeout). A node that is to repeat itself draws from nothing that is not seeded.
///
/// What a node has gathered is read with [`World::node`](crate::World::node).
pub trait Node: Any {
    /// Takes in one UDP datagram.
    fn handle_datagram(&mut self, at: Moment, path: NetworkPath, ecn: Option<EcnCodepoint>, data: BytesMut);

    /// Writes the next datagram to send into `buf`, which is empty.
    fn poll_transmit(&mut self, at: Moment, buf: &mut Vec<u8>) -> Option<Transmit>;

    /// When, by the host's own clock, [`handle_timeout`](Self::handle_timeout) is to be called next.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Does what is due.
    fn handle_timeout(&mut self, at: Moment);

    /// Whether it needs ideal links no longer: [`World::handshake`](crate::World::handshake) waits for that.
    fn is_ready(&self) -> bool {
        true
    }

    /// The measured run begins: links are shaped now. Not called in worlds without a
    /// [handshake](crate::World::handshake).
    fn begin(&mut self, at: Moment) {
        let _ = at;
    }
}
