//! Links, networks and whole worlds in virtual time.
//!
//! A [`World`] holds hosts, each with a clock of its own ([`HostClock`]) and a real [`punctual_proto::Endpoint`],
//! joined by [`Link`]s that delay, queue, lose, damage, reorder, duplicate, mark and die as they are told. The code
//! under test is the one that runs behind real sockets; only time and the network are made up. A minute of network
//! takes about a second, and **the same seed gives the same run, to the byte**.
//!
//! ```
//! use std::time::Duration;
//! use punctual_proto::{Block, Event};
//! use punctual_sim::{HostClock, HostConfig, LinkSpec, Loss, World, tls};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ms = Duration::from_millis;
//! let mut world = World::new(42);
//! let client = world.add_host(HostConfig::new());
//! let server = world.add_host(
//!     HostConfig::new()
//!         .server(tls::server_config())
//!         .clock(HostClock::ahead(Duration::from_secs(3 * 3600)).drift_ppm(100.0)),
//! );
//!
//! // Two paths, 15 Mbit/s and 60 ms each way; one loses 5 % of its packets in bursts of 8, towards the server.
//! let good = LinkSpec::new(15.0, ms(60));
//! let bad = good.clone().loss(Loss::bursts(0.05, 8.0));
//! let paths = [world.add_path(client, server, good.clone(), good.clone()), world.add_path(client, server, bad, good)];
//!
//! // Shake hands over ideal links; the measured run begins when this returns.
//! let connection = world.connect(client, &tls::client_config(), &paths)?;
//! let start = world.handshake()?;
//!
//! // The second path dies for two seconds.
//! let path = paths[1];
//! world.at(start + ms(500), move |world| world.kill_path(path));
//! world.at(start + ms(2500), move |world| world.revive_path(path));
//!
//! let (_, session) = world.client(connection);
//! let block = world.enter(client, |cx| cx.send(session, Block::new(vec![0; 24_000]).deadline(ms(200))))?;
//! world.run_for(Duration::from_secs(1));
//!
//! let ended = world.take_events(client).into_iter().find_map(|(at, _, event)| match event {
//!     Event::Outcome { id, outcome } if id == block => Some((at - start, outcome)),
//!     _ => None,
//! });
//! let (took, outcome) = ended.expect("every block ends");
//! println!("{took:?}: {outcome:?}");
//! # Ok(())
//! # }
//! ```
//!
//! # Workloads
//!
//! What is more than a few lines belongs in an [`App`]: the world calls it with its sessions' events and its own
//! timers, and it acts through its [`AppContext`]. Without one, events wait for [`World::take_events`]. Memory stays
//! flat either way as long as the application keeps little; a world remembers nothing that is over, unless it is asked
//! to ([`World::with_log`]).
//!
//! # Others
//!
//! A host need not run Punctual: a [`Node`] is whatever takes datagrams and gives datagrams ([`World::add_node`]). And
//! links can have [`CrossTraffic`] that takes its share of their queue and their rate.
//!
//! # Time
//!
//! Virtual time is a [`Duration`](std::time::Duration) since the world began, in nanoseconds. Events happen in the
//! order of time, and for the same time in the order in which they came to be. [`Instant`](std::time::Instant)s exist
//! only inside a host, on its own clock.
//!
//! # Chance
//!
//! Every link and every source of cross traffic has a generator of its own, seeded by the world's seed and its index,
//! and each endpoint is seeded by the world's seed and the host's index. TLS keys cannot be seeded, so *contents* differ from run to run; sizes and
//! times do not. For that the handshake is kept apart (see [`World::handshake`]) and corruption is placed where
//! contents do not matter ([`CorruptionSite`]). A congestion controller that draws from a generator that cannot be
//! seeded, as noq's BBRv3 does, breaks the promise.
//!
//! # The link model
//!
//! Looked at before writing it: `str0m-netem` 0.4 (sans-IO like ours, with Gilbert–Elliott; but one fixed rate, no
//! schedules or traces, corruption, MTU, ECN or death, and changes only as a whole), `netem-trace` 0.5 (schedules and
//! Mahimahi traces, no link), `turmoil` and `madsim` (deterministic, but hosts of futures and a latency, no queue or
//! rate), `linkem` (Linux namespaces, real time). None has a virtual-time queue whose rate follows a trace, and every
//! one would have had to be wrapped in most of what is here.

mod clock;
mod connection;
mod cross;
mod host;
mod link;
mod log;
mod loss;
mod node;
mod policer;
mod queue;
mod rate;
mod rng;
mod schedule;
mod spec;
mod stuck;
pub mod tls;
pub mod trace;
mod trouble;
mod world;

pub use clock::HostClock;
pub use connection::{ConnectionId, HandshakeError};
pub use cross::{CrossTraffic, Pattern};
pub use host::{App, AppContext, HostConfig};
pub use link::{CrossCounters, Datagram, Link, LinkCounters};
pub use log::{AppEvent, DropCause, EventLog, LinkEvent, LogMode, Record, What};
pub use loss::{GilbertElliott, Loss};
pub use node::{Moment, Node};
pub use policer::Policer;
pub use punctual_proto::EcnCodepoint;
pub use rate::Rate;
pub use schedule::Schedule;
pub use spec::{Corruption, CorruptionSite, Jitter, LinkSpec, Queue, Reordering};
pub use stuck::Stuck;
pub use trouble::SleepClock;
pub use world::{HostId, LinkId, PathHandle, World};
