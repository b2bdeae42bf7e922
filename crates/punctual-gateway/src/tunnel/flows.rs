//! The flows between two gateways, as one of them keeps them.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use punctual::{Channel, Session};
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
};

use super::{
    inbox::Inbox,
    listening::Listening,
    lock,
    name::Name,
    wire::{FlowId, StopReason},
};
use crate::class::{Carried, Classifier};

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

/// How datagrams keep their order, and are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// They do not.
    None,
    /// They may.
    Kept,
    /// They leave the far side so long after their coming in, and so in order.
    Delayed(Duration),
    /// They are bytes of a connection, in order.
    Bytes,
}

impl Order {
    /// Of datagrams.
    pub(super) fn of(carried: &Carried) -> Self {
        match carried.latency() {
            Some(latency) => Self::Delayed(latency),
            None if carried.orders() => Self::Kept,
            None => Self::None,
        }
    }
}

/// Where a flow's order is kept.
#[derive(Debug)]
struct Way {
    order: Order,
    channel: Option<Channel>,
    /// The session that was told of it: one more than its generation.
    told: u64,
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
    way: Mutex<Way>,
    /// Whether the far side is known to have it: the lowest bit. Above it, how often it has become unknown.
    known: AtomicU64,
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
        way: (Order, Option<Channel>),
        known: bool,
    ) -> Self {
        Self {
            id,
            name,
            program,
            origin,
            classifier: Mutex::new(classifier),
            way: Mutex::new(Way::of(way)),
            known: AtomicU64::new(known.into()),
            refused: Mutex::new(None),
            used: AtomicU64::new(0),
            born: Instant::now(),
        }
    }

    /// The channel for datagrams that keep their order, or have to, as they are held back.
    pub(super) fn channel_for(&self, ordered: bool) -> Option<Channel> {
        let way = lock(&self.way);
        way.channel.filter(|_| ordered || matches!(way.order, Order::Delayed(_)))
    }

    /// Tells a session, once, how long what goes over the flow's channel is to be held back. Another flow may have had the channel before.
    pub(super) fn tell_latency(&self, session: &Session, generation: u64) {
        let mut way = lock(&self.way);
        let Some(channel) = way.channel else { return };
        if std::mem::replace(&mut way.told, generation + 1) != generation + 1 {
            let latency = match way.order {
                Order::Delayed(latency) => Some(latency),
                _ => None,
            };
            // If the session is gone, the next is told.
            let _ = session.wish_latency(Some(channel), latency);
        }
    }

    /// The far side may not know it.
    pub(super) fn become_unknown(&self) {
        let _ = self.known.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| Some((known | 1) + 1));
    }

    /// Whether the far side has to be told what it is; and since when, for [`become_known`](Self::become_known).
    pub(super) fn is_unknown(&self) -> Option<Unknown> {
        let known = self.known.load(Ordering::Relaxed);
        (known & 1 == 0).then_some(Unknown(known))
    }

    /// The far side has been told, unless it has forgotten it meanwhile.
    pub(super) fn become_known(&self, Unknown(since): Unknown) {
        let _ = self.known.compare_exchange(since, since | 1, Ordering::Relaxed, Ordering::Relaxed);
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

/// That the far side did not know a flow when a datagram left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unknown(u64);

impl Way {
    fn of((order, channel): (Order, Option<Channel>)) -> Self {
        Self { order, channel, told: 0 }
    }
}

/// A TCP connection, as what comes for it from the far side sees it.
#[derive(Debug)]
pub(super) struct TcpFlow {
    /// Which of the peer's sessions it belongs to: it does not outlive it.
    pub(super) generation: u64,
    pub(super) channel: Channel,
    pub(super) came: Arc<Inbox>,
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

/// Numbers of channels. A receiver keeps a channel for as long as the session lives, so those that are free are used again.
#[derive(Debug, Default)]
struct Channels {
    used: u32,
    free: Vec<Channel>,
    /// Those whose blocks were held back at some time in this session. Nobody knows when a word that they are no more is heard, so bytes of connections,
    /// none of which may be passed over, take others.
    delayed: HashSet<Channel>,
    free_delayed: Vec<Channel>,
}

impl Channels {
    /// A channel that no flow has.
    fn take(&mut self, order: Order) -> Option<Channel> {
        let used_before = match order {
            Order::None => return None,
            Order::Bytes => self.free.pop(),
            Order::Kept => self.free.pop().or_else(|| self.free_delayed.pop()),
            Order::Delayed(_) => self.free_delayed.pop().or_else(|| self.free.pop()),
        };
        let channel = used_before.or_else(|| {
            // Channel 0 is the greeting's.
            let next = self.used + 1;
            (next < CHANNELS).then(|| {
                self.used = next;
                Channel(next)
            })
        })?;
        if matches!(order, Order::Delayed(_)) {
            self.delayed.insert(channel);
        }
        Some(channel)
    }

    fn give_back(&mut self, channel: Channel) {
        let free = if self.delayed.contains(&channel) { &mut self.free_delayed } else { &mut self.free };
        free.push(channel);
    }

    /// In a new session, nothing is held back yet.
    fn begin(&mut self) {
        self.free.append(&mut self.free_delayed);
        let free: HashSet<Channel> = self.free.iter().copied().collect();
        self.delayed.retain(|channel| !free.contains(channel));
    }
}

impl Flows {
    /// A channel that no flow has, for what keeps its order.
    pub(super) fn channel(&mut self, order: Order) -> Result<Option<Channel>, StopReason> {
        match order {
            Order::None => Ok(None),
            _ => self.channels.take(order).map(Some).ok_or(StopReason::TooMany),
        }
    }

    /// A session begins.
    pub(super) fn begin(&mut self) {
        self.channels.begin();
    }

    /// Has a flow of datagrams carried otherwise from now on.
    pub(super) fn carry(&mut self, flow: &UdpFlow, carried: &Arc<Carried>) {
        lock(&flow.classifier).replace(carried.clone());
        self.reorder(flow, Order::of(carried));
    }

    /// Has a flow of datagrams keep its order otherwise from now on.
    fn reorder(&mut self, flow: &UdpFlow, order: Order) {
        let mut way = lock(&flow.way);
        if way.order == order {
            return;
        }
        way.channel = match (way.channel, order) {
            (Some(channel), Order::None) => {
                self.channels.give_back(channel);
                None
            }
            (Some(channel), Order::Delayed(_)) => {
                self.channels.delayed.insert(channel);
                Some(channel)
            }
            (channel @ Some(_), _) => channel,
            // If there is none left, it goes on without.
            (None, order) => self.channels.take(order),
        };
        (way.order, way.told) = (order, 0);
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
            Flow::Outward(flow) | Flow::Inward { flow, .. } => lock(&flow.way).channel,
            Flow::Tcp(flow) => Some(flow.channel),
        };
        channel.into_iter().for_each(|channel| self.channels.give_back(channel));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{ClassSettings, Format};

    const LATE: Order = Order::Delayed(Duration::from_millis(200));

    fn flow(way: (Order, Option<Channel>)) -> UdpFlow {
        let class = Arc::new(ClassSettings::default().class("game", Format::Datagrams));
        let carried = Carried { format: Format::Datagrams, class, rules: Vec::new() };
        let nobody = ([127, 0, 0, 1], 9).into();
        UdpFlow::new(FlowId(0), "game".parse().unwrap(), nobody, None, Classifier::new(Arc::new(carried)), way, false)
    }

    #[test]
    fn a_datagram_that_arrived_before_the_far_side_forgot_its_flow_does_not_make_it_known() {
        let flow = flow((Order::None, None));
        let first = flow.is_unknown().expect("it is new");
        flow.become_known(first);
        assert!(flow.is_unknown().is_none());
        // It is forgotten there, and heard only then that the first has arrived.
        flow.become_unknown();
        flow.become_known(first);
        let again = flow.is_unknown().expect("it has to be told");
        flow.become_unknown();
        flow.become_known(again);
        assert!(flow.is_unknown().is_some());
    }

    #[test]
    fn bytes_of_connections_take_no_channel_that_was_held_back_in_this_session() {
        let mut flows = Flows::default();
        let take = |flows: &mut Flows, order| flows.channel(order).unwrap().unwrap();
        let late = take(&mut flows, LATE);
        flows.channels.give_back(late);
        let of_bytes = take(&mut flows, Order::Bytes);
        assert_ne!(of_bytes, late);
        assert_eq!(take(&mut flows, Order::Kept), late, "datagrams say how long at most");
        flows.channels.give_back(late);
        flows.channels.give_back(of_bytes);
        flows.begin();
        let both = [take(&mut flows, Order::Bytes), take(&mut flows, Order::Bytes)];
        assert!(both.contains(&late) && both.contains(&of_bytes), "a session begins with nothing held back");
    }

    #[test]
    fn a_flow_that_is_carried_otherwise_takes_a_channel_and_gives_it_back() {
        let mut flows = Flows::default();
        let flow = flow((Order::None, None));
        flows.reorder(&flow, Order::Kept);
        let channel = flow.channel_for(true).expect("its order is kept");
        assert_eq!(flow.channel_for(false), None);
        flows.reorder(&flow, LATE);
        assert_eq!(flow.channel_for(false), Some(channel), "all that is held back is in order");
        flows.reorder(&flow, Order::None);
        assert_eq!(flow.channel_for(true), None);
        assert_ne!(flows.channel(Order::Bytes), Ok(Some(channel)));
        assert_eq!(flows.channel(LATE), Ok(Some(channel)));
    }
}
