//! What a session does, told as it happens: for measurements.

use std::{sync::Arc, time::Instant};

pub use crate::base::{FragmentKind, Remains};
use crate::{
    base::{PathId, PathView},
    block::{BlockId, Outcome},
    multipath::{FragmentView, PathChoice},
    network::SessionId,
    send::recovery::Packet,
};

/// Sees what a session does with blocks, fragments and packets, at the moment it does it. It cannot change anything.
///
/// Every `at` is on the clock the caller of the endpoint goes by. Calls come from within the session's own, so they should be
/// short: what is seen goes into a buffer or a channel, and whoever reads that keeps its other end.
///
/// Of a block one sees, in this order,
///
/// ```text
/// sender     block_accepted ─▶ fragment_sent … ┄▶
/// receiver                                     ┄▶ fragment_arrived … ─▶ block_complete ─▶ block_delivered
/// ```
///
/// as far as it gets; how it ended is an [`Event`](crate::Event). Of a packet one sees `packet_sent` and then at most one
/// of `packet_acked`, `packet_lost` and `packet_forgotten`; those without any are in flight, or were when the session ended.
///
/// In a session with a peer that does not speak Punctual, QUIC itself cuts blocks into stream frames and sends lost ones again:
/// there are packets, and blocks accepted, complete and delivered, but no fragments.
///
/// ```
/// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}}, time::Instant};
/// use punctual_proto::{FragmentKind, FragmentSent, Observer, SessionConfig};
///
/// /// Counts the bytes that left a second time.
/// struct Resent(Arc<AtomicU64>);
///
/// impl Observer for Resent {
///     fn fragment_sent(&mut self, _: Instant, fragment: &FragmentSent) {
///         if fragment.kind == FragmentKind::Resent {
///             self.0.fetch_add(fragment.len, Relaxed);
///         }
///     }
/// }
///
/// let resent = Arc::new(AtomicU64::new(0));
/// let count = resent.clone();
/// let observer = Arc::new(move |_session| Box::new(Resent(count.clone())) as Box<dyn Observer>);
/// let config = SessionConfig { observer: Some(observer), ..SessionConfig::default() };
/// # drop((config, resent));
/// ```
pub trait Observer: Send {
    /// Sender: [`send`](crate::Session::send) took a block of `size` bytes.
    fn block_accepted(&mut self, at: Instant, id: BlockId, size: u64) {
        let _ = (at, id, size);
    }

    /// Sender: a fragment left.
    fn fragment_sent(&mut self, at: Instant, fragment: &FragmentSent) {
        let _ = (at, fragment);
    }

    /// Sender: the path scheduler was asked where a fragment is to go, was shown these paths, and chose. (A block that would be late anyway may be made to wait
    /// all the same, so as not to be in the way of others.)
    fn path_chosen(&mut self, at: Instant, fragment: &FragmentView, paths: &[PathView], choice: &PathChoice) {
        let _ = (at, fragment, paths, choice);
    }

    /// Sender: a block ended. What had become of its bytes says why.
    fn block_ended(&mut self, at: Instant, id: BlockId, outcome: &Outcome, remains: &Remains) {
        let _ = (at, id, outcome, remains);
    }

    /// Receiver: a fragment arrived, or its datagram was restored from others.
    fn fragment_arrived(&mut self, at: Instant, fragment: &FragmentArrived) {
        let _ = (at, fragment);
    }

    /// Receiver: all of a block is there. In a channel it may still have to wait for those before it.
    fn block_complete(&mut self, at: Instant, id: BlockId) {
        let _ = (at, id);
    }

    /// Receiver: [`recv`](crate::Session::recv) gave a block to the application.
    fn block_delivered(&mut self, at: Instant, id: BlockId) {
        let _ = (at, id);
    }

    /// A packet left.
    fn packet_sent(&mut self, at: Instant, packet: &SentPacket) {
        let _ = (at, packet);
    }

    /// The peer has acknowledged a packet.
    fn packet_acked(&mut self, at: Instant, packet: &SentPacket) {
        let _ = (at, packet);
    }

    /// QUIC's loss detection has given a packet up. (Its fragments may have been sent again before, if their path fell
    /// silent.)
    fn packet_lost(&mut self, at: Instant, packet: &SentPacket) {
        let _ = (at, packet);
    }

    /// Nothing more will be heard of a packet: its path was closed or moved, or QUIC discarded it with the keys of the
    /// handshake (RFC 9002, section 6.4).
    fn packet_forgotten(&mut self, at: Instant, packet: &SentPacket) {
        let _ = (at, packet);
    }

    /// A path's window, rate, round trips and the like. All open paths are shown whenever acknowledgements or losses
    /// may have changed one of them.
    fn path_sampled(&mut self, at: Instant, path: &PathView) {
        let _ = (at, path);
    }
}

/// Makes the observer of a session, which is named as in [`Endpoint::poll_event`](crate::Endpoint::poll_event).
pub type ObserverFactory = Arc<dyn Fn(SessionId) -> Box<dyn Observer> + Send + Sync>;

/// A fragment that left. Totals by kind are those of [`SessionStats`](crate::SessionStats).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentSent {
    /// The block it is part of; of a repair fragment, the first its group is there for.
    pub block: BlockId,
    /// Where in the block it begins, bytes; 0 for a repair fragment.
    pub offset: u64,
    /// Its length, bytes; at least one.
    pub len: u64,
    /// Why it was sent.
    pub kind: FragmentKind,
    /// The path it left on.
    pub path: PathId,
    /// The number of the packet it left in: a [`SentPacket`] seen before.
    pub packet: u64,
}

/// A fragment that arrived. Totals are those of [`SessionStats`](crate::SessionStats).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentArrived {
    /// The block it is part of.
    pub block: BlockId,
    /// Where in the block it begins, bytes.
    pub offset: u64,
    /// Bytes of it that were new.
    pub new: u64,
    /// Bytes of it that had arrived before, or belong to a block that has ended here.
    pub duplicate: u64,
    /// The path it came on; `None` if it was recovered, or came from an address that is no path's (yet).
    pub path: Option<PathId>,
    /// Whether its datagram was restored from redundancy, and did not arrive.
    pub recovered: bool,
}

/// A QUIC packet that was sent.
///
/// Packets of the handshake, packets that only acknowledge and MTU probes are left out: they carry no blocks and most of them
/// do not count towards congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentPacket {
    /// The path it left on.
    pub path: PathId,
    /// Its number; each path counts for itself.
    ///
    /// The last packets of the handshake are counted for themselves, too, so that a number may come twice at the very
    /// beginning; the first of the two is forgotten.
    pub number: u64,
    /// Its size as a QUIC packet, bytes.
    pub bytes: u16,
    /// When it left.
    pub sent: Instant,
}

impl SentPacket {
    pub(crate) fn new(path: PathId, number: u64, packet: &Packet) -> Self {
        Self { path, number, bytes: packet.bytes, sent: packet.sent }
    }
}

/// Tells an observer, if there is one, that nothing more will be heard of packets of a path.
pub(crate) fn forget<'a>(
    observer: &mut Option<Box<dyn Observer>>,
    at: Instant,
    path: PathId,
    packets: impl IntoIterator<Item = (u64, &'a Packet)>,
) {
    if let Some(observer) = observer {
        for (number, packet) in packets {
            observer.packet_forgotten(at, &SentPacket::new(path, number, packet));
        }
    }
}
