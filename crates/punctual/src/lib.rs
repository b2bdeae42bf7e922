//! Delivers blocks before their deadlines, over several network paths at once.
//!
//! A [`Block`] is the smallest thing an application can use: a video frame, a command, a reading. It has a deadline, a priority, perhaps
//! other blocks it depends on. A [`Session`] carries blocks between two programs, over as many network paths as are opened, and
//! says of each how it ended: [`Outcome::Delivered`], and how long it took, or [`Outcome::Dropped`], and why.
//!
//! This crate is `punctual-proto` (the protocol, which does no I/O) on real sockets, with tokio.
//!
//! # An example
//!
//! A server with a certificate it made itself, and a client that knows its fingerprint:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use punctual::{Block, Endpoint, Identity, Outcome};
//!
//! let identity = Identity::self_signed(["localhost"])?;
//! let fingerprint = identity.fingerprint();
//! let server = Endpoint::server(identity).bind("127.0.0.1".parse()?).build()?;
//! let address = server.local_address();
//!
//! let receiver = tokio::spawn(async move {
//!     let session = server.accept().await.expect("a client comes");
//!     let block = session.recv().await.expect("a block comes");
//!     // Keep the session until the sender is done with it.
//!     session.closed().await;
//!     block
//! });
//!
//! let client = Endpoint::client().trust(fingerprint).bind("127.0.0.1".parse()?).build()?;
//! let session = client.connect(address, "localhost").await?;
//! // A second path, from another socket; between two hosts one would bind "wlan0".
//! let second = client.bind("127.0.0.1".parse()?)?;
//! session.open_path(second[0].id, address).await?;
//!
//! let sent = session.send(Block::new("a frame").deadline(Duration::from_secs(1)).priority(0)).await?;
//! assert!(matches!(sent.await, Outcome::Delivered(delivery) if delivery.good_bytes == 7));
//! assert!(session.finish(Duration::from_secs(5)).await.is_empty());
//! assert_eq!(receiver.await?.data, "a frame");
//! client.wait_idle().await;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! ```text
//!   Endpoint, Session, SentBlock …   handles: cheap to clone, callable from any task
//!        │ lock                ▲ wake
//!        ▼                     │
//!   punctual-proto's state machine
//!        ▲ datagrams, time     │ datagrams, events, next wake-up
//!        │                     ▼
//!   one driver task ── UDP sockets, one alarm
//! ```
//!
//! - **Sockets.** Datagrams of one size that go the same way leave in one system call where the system can (GSO on Linux), and arrive so
//!   (GRO). ECN marks pass both ways. A socket that is full holds up no other. An error in sending is a loss,
//!   which QUIC mends; it is logged at most once a second.
//! - **Paths.** [`Endpoint::connect_over`] begins a session over several [`Routes`] at once and keeps them as its paths: what fails is tried again,
//!   interfaces may come, go and change their address. [`Session::open_path`] is for those who look after paths themselves.
//! - **Time.** tokio's timers tick in milliseconds. On Linux the driver's alarm is a timerfd instead, which is late by some
//!   hundredths of a millisecond where a tokio sleep is late by a whole one, so that pacing is smooth; nothing spins. Elsewhere the
//!   millisecond stays, and the pacer's burst allowance keeps the rate.
//! - **Fairness.** The driver does a bounded amount of work and then lets other tasks run.
//! - **Trust.** [`Trust`] says whom a client believes: the system's certificate authorities unless told otherwise. There is no way to
//!   believe everybody.
//! - **Logs.** `tracing` throughout; with [`Config::qlog_dir`] two qlog files for each session.

mod attempts;
mod backoff;
mod builder;
mod config;
mod connect;
mod connect_over;
mod driver;
mod endpoint;
mod ends;
mod error;
mod events;
mod incoming;
mod interfaces;
mod keeper;
mod kept;
mod knock;
mod link;
mod local;
#[cfg(target_os = "linux")]
mod netlink;
mod outbox;
mod path;
mod paths;
mod port;
mod qlog;
mod route;
pub mod scope;
mod scribe;
mod session;
mod shared;
mod snapshot;
mod socket;
mod terms;
mod timer;
mod tls;
#[cfg(feature = "yardstick")]
#[doc(hidden)]
pub mod yardstick;

pub use builder::{ClientBuilder, ServerBuilder};
pub use config::Config;
pub use connect::Connect;
pub use connect_over::ConnectOver;
pub use endpoint::Endpoint;
pub use error::{BuildError, ConnectError, OpenPathError, TlsError};
pub use events::{Events, SentBlock, SessionEvent, Undelivered};
pub use incoming::Incoming;
pub use local::{Bind, BindParseError, Local, LocalEnd};
pub use path::Path;
pub use paths::{Paths, RouteState};
pub use route::{DownReason, Route, RouteChange, RouteError, RouteEvent, RouteEvents, Routes};
pub use session::Session;
pub use snapshot::Snapshot;
pub use terms::RouteTerms;
pub use tls::{AccessList, Fingerprint, FingerprintError, Identity, Trust};

pub use punctual_proto::{
    ALPN, Block, BlockError, BlockId, BlockMeta, BlockUpdate, Channel, CloseReason, ConfigError, Delivery, Delta,
    DropReason, Entry, FragmentArrived, FragmentKind, FragmentSent, Limits, LocalId, LookupError, NetworkPath,
    Observer, ObserverFactory, Outcome, Parameter, PathError, PathEvent, PathId, PathStats, ProtocolError, Qlog,
    QlogSession, Rate, ReceivedBlock, Redundancy, Remains, SendError, SentPacket, SessionConfig, SessionId,
    SessionStats, Token, TokenError, TransportError, clock, congestion, duration, multipath, redundancy, schedule,
};

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
