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
//! # Two endpoints without a network
//!
//! All of a driver, without sockets: what one endpoint has to send is handed to the other, and the clock jumps to whatever is due next.
//!
//! ```
//! use std::{collections::BTreeMap, sync::Arc, time::{Duration, Instant}};
//! use bytes::BytesMut;
//! use punctual_proto::{
//!     Block, ClientConfig, Endpoint, EndpointConfig, Event, LocalId, NetworkPath, Outcome, ServerConfig,
//!     rustls::{self, pki_types::PrivatePkcs8KeyDer},
//! };
//!
//! // Who the server is, and a client that knows it.
//! let made = rcgen::generate_simple_self_signed(["example".to_owned()])?;
//! let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
//! let mut roots = rustls::RootCertStore::empty();
//! roots.add(made.cert.der().clone())?;
//! let provider = Arc::new(rustls::crypto::ring::default_provider());
//! let tls13 = [&rustls::version::TLS13];
//! let server_tls = rustls::ServerConfig::builder_with_provider(provider.clone())
//!     .with_protocol_versions(&tls13)?
//!     .with_no_client_auth()
//!     .with_single_cert(vec![made.cert.der().clone()], key.into())?;
//! let client_tls = rustls::ClientConfig::builder_with_provider(provider)
//!     .with_protocol_versions(&tls13)?
//!     .with_root_certificates(roots)
//!     .with_no_client_auth();
//!
//! let mut now = Instant::now();
//! let config = EndpointConfig::new(now);
//! let mut ends = [Endpoint::new(config.clone(), None), Endpoint::new(config, Some(ServerConfig::new(server_tls)?))];
//! let addresses = ["10.0.0.1:1".parse()?, "10.0.0.2:2".parse()?];
//! let path_to = |end: usize| NetworkPath { local: LocalId(0), remote: addresses[end] };
//! let session = ends[0].connect(now, &ClientConfig::new(client_tls)?, path_to(1), "example")?;
//! // Allowed at once: the block waits for the handshake.
//! let block = ends[0].session(session).expect("it has just begun").send(now, Block::new("a frame"))?;
//!
//! // When it arrives, at which end, and the datagram.
//! let mut wire = BTreeMap::new();
//! let (mut sequence, mut received, mut outcome) = (0, None, None);
//! while outcome.is_none() {
//!     for end in [0, 1] {
//!         // The contract: drain both, and only then ask how long to wait.
//!         let mut buf = Vec::new();
//!         while let Some(transmit) = ends[end].poll_transmit(now, &mut buf) {
//!             buf.truncate(transmit.size);
//!             sequence += 1;
//!             let arrival = (now + Duration::from_millis(10), sequence);
//!             wire.insert(arrival, (1 - end, transmit.ecn, std::mem::take(&mut buf)));
//!         }
//!         while let Some((id, event)) = ends[end].poll_event() {
//!             match event {
//!                 Event::Readable => received = ends[end].session(id).and_then(|session| session.recv(now)),
//!                 Event::Outcome { id, outcome: how } if id == block => outcome = Some(how),
//!                 Event::Closed(reason) => return Err(reason.into()),
//!                 _ => {}
//!             }
//!             // What was done to a session is input, too.
//!             while let Some(transmit) = ends[end].poll_transmit(now, &mut buf) {
//!                 buf.truncate(transmit.size);
//!                 sequence += 1;
//!                 let arrival = (now + Duration::from_millis(10), sequence);
//!                 wire.insert(arrival, (1 - end, transmit.ecn, std::mem::take(&mut buf)));
//!             }
//!         }
//!     }
//!     let due = wire.first_key_value().map(|((at, _), _)| *at);
//!     now = ends.iter().map(Endpoint::poll_timeout).chain([due]).flatten().min().expect("something is due").max(now);
//!     for end in &mut ends {
//!         if end.poll_timeout().is_some_and(|at| at <= now) {
//!             end.handle_timeout(now);
//!         }
//!     }
//!     while let Some(packet) = wire.first_entry().filter(|packet| packet.key().0 <= now) {
//!         let (end, ecn, datagram) = packet.remove();
//!         ends[end].handle_datagram(now, path_to(1 - end), ecn, BytesMut::from(&datagram[..]));
//!     }
//! }
//! assert_eq!(received.expect("it was delivered").data, "a frame");
//! assert!(matches!(outcome, Some(Outcome::Delivered(delivery)) if delivery.on_time()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Peers that do not speak it
//!
//! The protocol is negotiated by ALPN ([`ALPN`]). A peer that picks another protocol still gets every block, one to a
//! unidirectional QUIC stream; a dropped block's stream is reset.

pub mod clock;
pub mod congestion;
pub mod duration;
pub mod multipath;
pub mod redundancy;
pub mod schedule;

mod base;
mod block;
mod budget;
mod by_id;
mod config;
mod endpoint;
mod error;
mod event;
mod fec;
mod frame;
mod least;
mod limits;
mod losses;
mod network;
mod noq;
mod observe;
mod path;
mod probing;
mod qlog;
mod rate;
mod receive;
mod registry;
mod role;
mod send;
mod session;
mod stats;
mod token;

pub use block::{
    Block, BlockId, BlockMeta, BlockUpdate, Channel, Delivery, Delta, DropReason, Outcome, ReceivedBlock, Redundancy,
};
pub use config::{ALPN, ClientConfig, ConfigError, NoCipherSuite, ServerConfig, SessionConfig};
pub use endpoint::{ConnectError, Endpoint, EndpointConfig, ResetSecret};
pub use error::{BlockError, CloseReason, PathError, ProtocolError, SendError, TransportError};
pub use event::{Event, PathEvent};
pub use limits::Limits;
pub use multipath::PathId;
pub use network::{EcnCodepoint, LocalId, NetworkPath, SessionId, Transmit};
pub use noq_proto::rustls;
pub use observe::{FragmentArrived, FragmentKind, FragmentSent, Observer, ObserverFactory, Remains, SentPacket};
pub use probing::Probing;
pub use qlog::{Qlog, QlogSession};
pub use rate::Rate;
pub use registry::{Entry, LookupError, Parameter};
pub use session::Session;
pub use stats::{PathStats, SessionStats};
pub use token::{Token, TokenError};

/// What takes in anything, for the targets in `/fuzz`, and what is measured by itself, for benchmarks: not part of the API.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing {
    #[cfg(feature = "fuzzing")]
    pub use crate::fec::fuzzing::*;
    pub use crate::{frame::fuzzing::*, receive::fuzzing::*};
}
