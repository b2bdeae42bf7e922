//! The Punctual protocol as a state machine: blocks before their deadlines, over several network paths at once.
//!
//! This crate holds all that decides *which bytes go where, when*, and nothing else: no sockets, no
//! clock, no async. Bytes with their network path and the time go in; transmits, events and the next wake-up come out. The
//! same code runs behind real sockets (crate `punctual`) and in virtual time (crate `punctual-sim`).
//!
//! # The way of a block
//!
//! ```text
//!  application                                                                        application
//!      │ send                                                                   recv ▲
//!      ▼                                                                             │
//!  send::store ──▶ schedule ──▶ send::packetize ──▶ multipath ──▶ noq-proto ┄┄▶ receive::reassembly ──▶ receive::release
//!  live blocks,    which one    frames of one        which path    QUIC           fragments to blocks     order, credit
//!  dependencies    goes next    datagram                ▲
//!      ▲                                                │
//!      └── send::recovery ◀── congestion::steering ─────┘
//!          lost: still worth it?   fate of each packet
//! ```
//!
//! A datagram is filled at the moment a path can carry it, so a new urgent block overtakes everything that is not yet on
//! the wire.
//!
//! # The contract
//!
//! A caller of [`Endpoint`] keeps one rule:
//!
//! > After anything that goes in (a datagram, a timeout, any call to a session), drain [`Endpoint::poll_transmit`] and
//! > [`Endpoint::poll_event`] until both return `None`, and only then ask [`Endpoint::poll_timeout`] how long to wait.
//! > Time never runs backwards.
//!
//! Debug builds check it.
//!
//! # Peers that do not speak it
//!
//! The protocol is negotiated by ALPN ([`ALPN`]). A peer that picks another protocol still gets every block, one to a
//! unidirectional QUIC stream; a dropped block's stream is reset.

pub mod clock;
pub mod congestion;
pub mod multipath;
pub mod redundancy;
pub mod schedule;

mod block;
mod by_id;
mod config;
mod endpoint;
mod error;
mod event;
mod fec;
mod frame;
mod noq;
mod observe;
mod path;
mod rate;
mod receive;
mod send;
mod session;
mod stats;

pub use block::{
    Block, BlockId, BlockMeta, BlockUpdate, Channel, Delivery, Delta, DropReason, Outcome, ReceivedBlock, Redundancy,
    UnknownRedundancy,
};
pub use config::{ALPN, ClientConfig, ConfigError, Limits, ServerConfig, SessionConfig};
pub use endpoint::{ConnectError, Endpoint, EndpointConfig, LocalId, NetworkPath, SessionId, Transmit};
pub use error::{BlockError, CloseReason, PathError, ProtocolError, SendError};
pub use event::{Event, PathEvent};
pub use multipath::PathId;
pub use noq_proto::{EcnCodepoint, QlogFactory, QlogFileFactory, rustls};
pub use observe::{FragmentArrived, FragmentKind, FragmentSent, Observer, ObserverFactory, SentPacket};
pub use rate::Rate;
pub use session::Session;
pub use stats::{PathStats, SessionStats};

/// What takes in anything, for the targets in `/fuzz`, and what is measured by itself, for benchmarks: not part of the API.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing {
    #[cfg(feature = "fuzzing")]
    pub use crate::fec::fuzzing::*;
    pub use crate::{frame::fuzzing::*, receive::fuzzing::*};
}
