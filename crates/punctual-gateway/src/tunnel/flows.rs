//! The flows between two gateways, as one of them keeps them.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use punctual::{Channel, Session};
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
};

use super::{listening::Listening, lock, name::Name, wire::FlowId};
use crate::class::Classifier;

/// Channels that one side may have in use: the greeting's, and one for each flow whose order is kept. The protocol of the tunnel has both sides
/// allow as many.
pub(crate) const CHANNELS: u32 = 4_096;

/// All flows of one far gateway.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) all: HashMap<FlowId, Flow>,
    channels: Channels,
}

/// A flow.
#[derive(Debug)]
pub(super) enum Flow {
    /// Datagrams of a program of this side; answers go to it.
    Outward(Arc<UdpFlow>),
    /// Datagrams from the far side; its task sends them on, and brings the answers.
    Inward { flow: Arc<UdpFlow>, datagrams: mpsc::Sender<Queued>, _task: Task },
    /// A TCP connection of either side.
    Tcp(TcpFlow),
}

/// A datagram on its way to a program.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) data: Bytes,
    pub(super) _held: Held,
}

/// A task that ends with what it belongs to.
#[derive(Debug)]
pub(super) struct Task(pub(super) AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where a program was heard: the port, and the host's address that it sent to, if the port is at all of them.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) port: Weak<Listening>,
    pub(super) at: Option<IpAddr>,
}

/// A flow of datagrams.
#[derive(Debug)]
pub(super) struct UdpFlow {
    pub(super) id: FlowId,
    pub(super) name: Name,
    /// The program at this side: who asked, or who is asked.
    pub(super) program: SocketAddr,
    /// Where the program was heard, if it began.
    pub(super) origin: Option<Asked>,
    pub(super) classifier: Mutex<Classifier>,
    /// Where its order is kept.
    pub(super) channel: Option<Channel>,
    /// How long after their coming in datagrams are to leave the far side.
    latency: Option<Duration>,
    /// The session that was told so: one more than its generation.
    told: AtomicU64,
    /// Whether the far side is known to have it.
    pub(super) known: AtomicBool,
    /// Until when it is not even tried, since the far side does not carry it.
    refused: Mutex<Option<Instant>>,
    /// When a datagram was last carried, either way: milliseconds since `born`.
    used: AtomicU64,
    born: Instant,
}

impl UdpFlow {
    /// For how long a flow that the far side does not carry is not tried again.
    const REFUSED_FOR: Duration = Duration::from_secs(5);

    pub(super) fn new(
        id: FlowId,
        name: Name,
        program: SocketAddr,
        origin: Option<Asked>,
        classifier: Classifier,
        channel: Option<Channel>,
        known: bool,
    ) -> Self {
        Self {
            id,
            name,
            program,
            origin,
            classifier: Mutex::new(classifier),
            channel,
            latency: None,
            told: AtomicU64::new(0),
            known: AtomicBool::new(known),
            refused: Mutex::new(None),
            used: AtomicU64::new(0),
            born: Instant::now(),
        }
    }

    /// The same, whose datagrams leave the far side so long after their coming in.
    pub(super) fn with_latency(self, latency: Option<Duration>) -> Self {
        Self { latency, ..self }
    }

    /// The channel for datagrams that keep their order, or have to, as they are held back.
    pub(super) fn channel_for(&self, ordered: bool) -> Option<Channel> {
        self.channel.filter(|_| ordered || self.latency.is_some())
    }

    /// Tells a session, once, how long what goes over the flow's channel is to be held back. Another flow may have had the channel before.
    pub(super) fn tell_latency(&self, session: &Session, generation: u64) {
        let Some(channel) = self.channel else { return };
        if self.told.swap(generation + 1, Ordering::Relaxed) != generation + 1 {
            // If the session is gone, the next is told.
            let _ = session.wish_latency(Some(channel), self.latency);
        }
    }

    /// Gives an answer to the program that began it. `false` if it is dropped.
    pub(super) fn answer(&self, datagram: &[u8]) -> bool {
        self.origin.as_ref().is_some_and(|Asked { port, at }| {
            port.upgrade().is_some_and(|port| port.answer(datagram, self.program, *at))
        })
    }

    /// Its port forgets it.
    pub(super) fn forget(self: &Arc<Self>) {
        if let Some(Asked { port, at }) = &self.origin
            && let Some(port) = port.upgrade()
        {
            port.forget(self, *at);
        }
    }

    /// A datagram passes.
    pub(super) fn touch(&self, now: Instant) {
        let since = now.saturating_duration_since(self.born);
        self.used.fetch_max(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn is_silent(&self, now: Instant, idle: Duration) -> bool {
        let used = self.born + Duration::from_millis(self.used.load(Ordering::Relaxed));
        now.saturating_duration_since(used) >= idle
    }

    /// The far side does not carry it.
    pub(super) fn refuse(&self, now: Instant) {
        *lock(&self.refused) = Some(now + Self::REFUSED_FOR);
    }

    pub(super) fn is_refused(&self, now: Instant) -> bool {
        lock(&self.refused).is_some_and(|until| now < until)
    }
}

/// A TCP connection, as what comes for it from the far side sees it.
#[derive(Debug)]
pub(super) struct TcpFlow {
    /// Which of the peer's sessions it belongs to: it does not outlive it.
    pub(super) generation: u64,
    pub(super) channel: Channel,
    pub(super) words: mpsc::UnboundedSender<TcpWord>,
    /// Bytes that have come.
    pub(super) received: u64,
    /// Bytes that may come: what the task has granted.
    pub(super) granted: Arc<AtomicU64>,
    /// Whether all has come.
    pub(super) finished: bool,
    /// Bytes that may be sent.
    pub(super) credit: watch::Sender<u64>,
    pub(super) _task: Option<Task>,
}

/// What comes for a TCP connection.
#[derive(Debug)]
pub(super) enum TcpWord {
    Data(Bytes),
    Fin,
}

/// Numbers of channels. A receiver keeps a channel for as long as the session lives, so those that are free are used again.
#[derive(Debug, Default)]
struct Channels {
    used: u32,
    free: Vec<Channel>,
}

impl Flows {
    /// A channel that no flow has.
    pub(super) fn channel(&mut self) -> Option<Channel> {
        self.channels.free.pop().or_else(|| {
            // Channel 0 is the greeting's.
            let next = self.channels.used + 1;
            (next < CHANNELS).then(|| {
                self.channels.used = next;
                Channel(next)
            })
        })
    }

    /// Ends the connections of sessions before that of a generation.
    pub(super) fn drain_tcp(&mut self, generation: u64) -> Vec<Flow> {
        self.drain(|flow| matches!(flow, Flow::Tcp(tcp) if tcp.generation < generation))
    }

    /// Ends those of which this holds. They are to be dropped when nothing is locked any more.
    pub(super) fn drain(&mut self, ends: impl Fn(&Flow) -> bool) -> Vec<Flow> {
        let ids: Vec<FlowId> = self.all.iter().filter(|(_, flow)| ends(flow)).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Ends a flow.
    pub(super) fn remove(&mut self, id: FlowId) -> Option<Flow> {
        let flow = self.all.remove(&id)?;
        let channel = match &flow {
            Flow::Outward(flow) | Flow::Inward { flow, .. } => flow.channel,
            Flow::Tcp(flow) => Some(flow.channel),
        };
        self.channels.free.extend(channel);
        Some(flow)
    }
}

/// Bytes that may be held for one far gateway.
#[derive(Debug)]
pub(super) struct Budget(Arc<AtomicU64>);

/// Bytes that are held, until this is dropped.
#[derive(Debug)]
pub(super) struct Held(Arc<AtomicU64>, u64);

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Takes so much of it, if there is so much left.
    pub(super) fn take(&self, bytes: u64) -> Option<Held> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.ok().map(|_| Held(self.0.clone(), bytes))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, Ordering::Relaxed);
    }
}
