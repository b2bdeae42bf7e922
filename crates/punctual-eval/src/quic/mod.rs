//! The baseline: blocks over plain QUIC streams.
//!
//! A [`ClientNode`] and a [`ServerNode`] run noq, the QUIC that Punctual is built on, as its users get it: streams,
//! noq's own loss recovery and pacing, noq's own choice of path. Nothing knows of deadlines. The client is given the
//! [messages](Message) an application has and when; a [`Multiplexer`] says which stream each goes on; the server notes when
//! each had come.
//!
//! ```
//! # use std::time::Duration;
//! use punctual_eval::quic::{ClientNode, Config, Message, ServerNode};
//! use punctual_sim::{LinkSpec, World};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ms = Duration::from_millis;
//! let plan = vec![Message { at: ms(0), bytes: 100_000, source: 0, priority: 0 }];
//! let config = Config::new(1);
//! let mut world = World::new(1);
//! let client = world.add_node(ClientNode::new(&config, plan));
//! let server = world.add_node(ServerNode::new(&config));
//! let link = LinkSpec::new(16.0, ms(20));
//! let path = world.add_path(client, server, link.clone(), link);
//! let network = world.network_path(path, client);
//! world.node_mut::<ClientNode>(client).unwrap().connect(vec![network]);
//! world.handshake()?;
//! world.run_for(Duration::from_secs(1));
//! let received = world.node::<ServerNode>(server).unwrap().received(0).unwrap();
//! assert!(received.complete.unwrap() > ms(70)); // 50 ms at 2 MB/s, and 20 ms to get there.
//! # Ok(())
//! # }
//! ```
//!
//! # What is as noq has it, and what is not
//!
//! - Flow control, stream limits and idle timeouts are so large that they never bind: that is a matter of settings, not of
//!   QUIC. Only [`Config::queue`] bounds what is handed over.
//! - Streams of one priority are served in turn, packet by packet, as noq does it by default. For blocks each on a stream of
//!   its own that would be processor sharing, which delays all of them; DTP's baseline, quiche, serves such streams in the
//!   order of their opening, what was lost of older ones first. noq does the same when each stream has a priority of its
//!   own that falls with its number, so [`Multiplexer::PerBlock`] sets them thus.
//! - With several paths noq sends on the first whose window and pacer have room, unless a [`PathChoice`] says otherwise. What is lost goes
//!   wherever there is room next. A path on which nothing comes back is not given up: noq has a timeout for that, but not by default.
//!   All ACKs go back on the server's first path, as noq has it.
//! - The first congestion window and the ACKs that are asked for are those of our session, unless set otherwise; noq's own are ten packets, and an
//!   ACK after 25 ms. noq tells its peer once how often it wants ACKs; paths opened later keep an ACK for every second packet.
//! - noq is never woken twice within a microsecond: its pacer at times asks to be woken in no time at all, and does not get on until some has passed.
//!
//! # Times
//!
//! All times here count from the beginning of the measured run, [`Node::begin`](punctual_sim::Node::begin), and are the
//! simulator's own. When bytes leave is seen in the packets themselves, as they are encrypted.

mod choice;
mod client;
mod framing;
mod mux;
mod order;
mod outgoing;
mod peer;
mod server;
mod steering;
mod tap;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use noq_proto::{AckFrequencyConfig, MtuDiscoveryConfig, TransportConfig, VarInt, congestion::ControllerFactory};
use punctual_proto::{
    SessionConfig,
    congestion::{self, CongestionFactory},
};

pub use choice::{PathChoice, UnknownChoice};
pub use client::{ClientNode, PathReport};
pub use mux::{Multiplexer, UnknownMultiplexer};
pub use order::{StreamScheduler, UnknownStreamScheduler};
pub use outgoing::Sent;
pub use server::{Received, ServerNode};

use crate::plan::{Bulk, PlannedBlock};

/// The protocol both nodes speak, by ALPN.
const ALPN: &[u8] = b"punctual-eval/quic";
/// Bytes the receiver allows ahead of its reading on each stream, and on all: more than any run sends. (Not the most
/// there can be, as noq adds to it.)
const WINDOW: u64 = 1 << 48;
/// Unidirectional streams that may be open at once. A block that has none waits for one.
const STREAMS: u32 = 1 << 14;
/// Paths a connection may have.
const PATHS: u32 = 8;
/// The packet in which our session counts its first window, bytes: the one that every path carries.
pub(crate) const PACKET: u64 = 1_200;
/// Our session has an ACK sent at least for every so many packets.
const ACK_EVERY: u32 = 2;

/// Something an application has to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// When it is ready, since the run's beginning.
    pub at: Duration,
    /// Its size.
    pub bytes: u32,
    /// Which source it is from; of interest to [`Multiplexer::PerSource`].
    pub source: u16,
    /// 0 is the highest; of interest to [`Multiplexer::ByPriority`].
    pub priority: u8,
}

impl From<&PlannedBlock> for Message {
    fn from(block: &PlannedBlock) -> Self {
        Self { at: block.at, bytes: block.size, source: block.source, priority: block.priority }
    }
}

/// How a client and its server are set up.
#[derive(Clone)]
pub struct Config {
    /// Seeds all that noq draws, but for keys, and for what noq's BBR3 draws (so runs with that do not repeat).
    pub seed: u64,
    /// The congestion controller, as Punctual takes it. Default `cubic`, which is noq's.
    pub congestion: CongestionFactory,
    /// The first congestion window, bytes. Default that of our session; noq's own is 12,000.
    pub initial_window: u64,
    /// How long each end lets the other hold back an ACK; noq keeps to it from 1 ms to 25 ms. Default that of our session; noq's own is 25 ms.
    pub max_ack_delay: Duration,
    /// Each end wants an ACK at least for every so many packets, 1 or more. Default that of our session, 2, which is noq's own.
    pub ack_every: u32,
    /// Which stream a message goes on. Default [`Multiplexer::PerBlock`].
    pub multiplexer: Multiplexer,
    /// Which stream goes next. Default: that which the multiplexer's name says.
    pub stream_scheduler: Option<StreamScheduler>,
    /// Which path the client's packets take. Default: as noq has it.
    pub choice: Option<PathChoice>,
    /// Bytes of messages that QUIC takes ahead of what it has sent; further ones wait at the application, as before a
    /// socket whose buffer is full, and those of higher priority go first where the multiplexer goes by it. Default: any number.
    pub queue: Option<u64>,
    /// A transfer beside the messages, as fast as it goes.
    pub bulk: Option<Bulk>,
}

impl Config {
    /// The defaults, with this seed.
    pub fn new(seed: u64) -> Self {
        let session = SessionConfig::default();
        Self {
            seed,
            congestion: congestion::quic("cubic").expect("the registry has noq's own controllers"),
            initial_window: u64::from(session.initial_window_packets) * PACKET,
            max_ack_delay: session.max_ack_delay,
            ack_every: ACK_EVERY,
            multiplexer: Multiplexer::default(),
            stream_scheduler: None,
            choice: None,
            queue: None,
            bulk: None,
        }
    }

    fn order(&self) -> StreamScheduler {
        self.stream_scheduler.unwrap_or_else(|| StreamScheduler::of(self.multiplexer))
    }

    /// The controllers of an end.
    fn controllers(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        (self.congestion)(self.initial_window)
    }

    /// The settings of an end with these controllers.
    fn transport(&self, controllers: Arc<dyn ControllerFactory + Send + Sync>) -> Arc<TransportConfig> {
        let window = VarInt::from_u64(WINDOW).expect("it is less than 2⁶²");
        let mut acks = AckFrequencyConfig::default();
        let threshold = VarInt::from_u32(self.ack_every.saturating_sub(1));
        acks.ack_eliciting_threshold(threshold).max_ack_delay(Some(self.max_ack_delay));
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
            .stream_receive_window(window)
            .receive_window(window)
            .send_window(WINDOW)
            .send_fairness(self.order().is_fair())
            .max_idle_timeout(None)
            .max_concurrent_multipath_paths(PATHS)
            .mtu_discovery_config(Some(MtuDiscoveryConfig::default()))
            .ack_frequency_config(Some(acks))
            .congestion_controller_factory(controllers);
        Arc::new(transport)
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("seed", &self.seed)
            .field("initial_window", &self.initial_window)
            .field("max_ack_delay", &self.max_ack_delay)
            .field("ack_every", &self.ack_every)
            .field("multiplexer", &self.multiplexer)
            .field("stream_scheduler", &self.stream_scheduler)
            .field("choice", &self.choice)
            .field("queue", &self.queue)
            .field("bulk", &self.bulk)
            .finish_non_exhaustive()
    }
}
