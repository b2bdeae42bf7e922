//! The far side, or a client: its session, and what waits to go there.

use std::{
    fmt,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use ipnet::IpNet;
use punctual::{Block, Channel, Outcome, SendError, SentBlock, Session};
use tokio::sync::{Notify, mpsc, watch};
use tracing::debug;

use super::{
    Limits, Plan,
    config::Treatment,
    flows::{Dropped, Flows},
    gauge::Gauge,
    lock,
    packet::Packet,
    segment::Rest,
    wire::{Welcome, Word},
};
use crate::{
    metrics::{Metrics, Snapshot},
    rate::Bucket,
};

/// The channel of greetings: a later one replaces the one before.
const GREETINGS: Channel = Channel(0);
/// By how much packets of flows that send little go before others of their class: within a session nothing else tells them apart.
const THIN_AHEAD: u8 = 32;
/// How often it is looked whether there is room for what waits, beside when a block has ended.
const TICK: Duration = Duration::from_millis(1);

/// A far side. It outlives its session.
pub(super) struct Peer {
    /// What it is called.
    pub(super) name: String,
    state: Mutex<State>,
    /// Something waits for room,
    waits: AtomicBool,
    /// as is told here.
    wake: Notify,
    /// Of a client: what it is given, if that is something else than it was told when it came.
    given: watch::Sender<Option<Welcome>>,
}

#[derive(Debug)]
struct State {
    session: Option<Session>,
    /// How many there have been.
    generation: u64,
    /// Whether the session may carry packets: greetings have been exchanged.
    open: bool,
    flows: Flows,
    gauge: Gauge,
    /// Where blocks are followed to their end.
    followed: Option<mpsc::UnboundedSender<Followed>>,
    rate: u64,
    to: Option<Bucket>,
    from: Option<Bucket>,
    places: Places,
}

/// Where packets of a far side may come from, and which of them go to a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// Its addresses, with the networks that they are in.
    pub(super) addresses: Vec<IpNet>,
    /// Networks behind it.
    pub(super) networks: Vec<IpNet>,
}

impl Places {
    fn contain(&self, address: &IpAddr) -> bool {
        self.addresses.iter().any(|own| own.addr() == *address)
            || self.networks.iter().any(|network| network.contains(address))
    }
}

/// A block whose end is waited for.
#[derive(Debug)]
pub(super) struct Followed {
    sent: SentBlock,
    bytes: u64,
    treatment: Arc<Treatment>,
}

/// Blocks whose end is to be heard of.
pub(super) type Follow = mpsc::UnboundedReceiver<Followed>;

impl Peer {
    pub(super) fn new(name: String, limits: &Limits) -> Self {
        let state = State {
            session: None,
            generation: 0,
            open: false,
            flows: Flows::new(limits.flows, limits.queue),
            gauge: Gauge::default(),
            followed: None,
            rate: 0,
            to: None,
            from: None,
            places: Places::default(),
        };
        let (state, waits, wake) = (Mutex::new(state), AtomicBool::new(false), Notify::new());
        Self { name, state, waits, wake, given: watch::Sender::default() }
    }

    /// Has it told what it is given, by the session that it has.
    pub(super) fn tell(&self, welcome: Welcome) {
        self.given.send_replace(Some(welcome));
    }

    /// What it is to be told from now on.
    pub(super) fn told(&self) -> watch::Receiver<Option<Welcome>> {
        self.given.subscribe()
    }

    /// Takes a session, in place of one there may be: its generation, and what is to be [driven](Self::drive).
    pub(super) fn attach(&self, session: &Session) -> (u64, Follow) {
        let (followed, follow) = mpsc::unbounded_channel();
        let mut state = lock(&self.state);
        state.generation += 1;
        (state.open, state.gauge, state.followed) = (false, Gauge::default(), Some(followed));
        if let Some(before) = state.session.replace(session.clone()) {
            before.close(super::close::STOPPED, "another session has taken its place");
        }
        (state.generation, follow)
    }

    /// Its session has ended, unless another has taken its place.
    pub(super) fn detach(&self, generation: u64) {
        let mut state = lock(&self.state);
        if state.generation == generation {
            (state.session, state.open, state.followed) = (None, false, None);
        }
    }

    /// Packets may pass.
    pub(super) fn open(&self, generation: u64) {
        let mut state = lock(&self.state);
        state.open |= state.generation == generation;
    }

    /// The session there is.
    pub(super) fn session(&self) -> Option<Session> {
        lock(&self.state).session.clone()
    }

    /// Whether packets may pass.
    pub(super) fn is_open(&self) -> bool {
        lock(&self.state).open
    }

    /// Goes by these settings from now on.
    pub(super) fn replan(&self, plan: &Plan, rate: u64) {
        let mut state = lock(&self.state);
        state.flows.limit(plan.limits.flows, plan.limits.queue);
        state.flows.reclassify(&plan.classes);
        if rate != state.rate {
            let bucket = || (rate > 0).then(|| Bucket::new(rate, Instant::now()));
            (state.rate, state.to, state.from) = (rate, bucket(), bucket());
        }
    }

    /// Where its packets may come from, from now on. `false` if that is as it was.
    pub(super) fn place(&self, places: Places) -> bool {
        let mut state = lock(&self.state);
        let changed = state.places != places;
        state.places = places;
        changed
    }

    /// How it is now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let state = lock(&self.state);
        let (flows, session) = (state.flows.len(), state.session.clone());
        drop(state);
        let session = session.map(|session| session.snapshot());
        Snapshot { gateway: self.name.clone(), flows, session }
    }

    /// Sends a packet, or has it wait for its turn.
    pub(super) fn send(&self, packet: &Packet, bytes: &[u8], rest: Rest, plan: &Plan, metrics: &Metrics) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if !state.open {
            return metrics.refused("no_session");
        }
        if state.to.as_mut().is_some_and(|to| !to.take(bytes.len(), now)) {
            return metrics.refused("rate");
        }
        state.flows.push(packet, bytes, rest, &plan.classes, now, |why| metrics.refused(why.name()));
        self.pump(&mut state, now, metrics);
    }

    /// Whether a packet may come from it: as to its source, and its rate.
    pub(super) fn may_come(&self, packet: &Packet, length: usize) -> Result<(), &'static str> {
        let mut state = lock(&self.state);
        if !state.places.contain(&packet.source) {
            return Err("source");
        }
        let within = state.from.as_mut().is_none_or(|from| from.take(length, Instant::now()));
        if within { Ok(()) } else { Err("rate") }
    }

    /// Hands over what there is room for.
    fn pump(&self, state: &mut State, now: Instant, metrics: &Metrics) {
        let State { session: Some(session), open: true, flows, gauge, followed, .. } = state else { return };
        while !flows.is_idle() {
            gauge.ask(session, now);
            let dropped = |_: &Treatment, why: Dropped| metrics.refused(why.name());
            let Some(next) = flows.pop(gauge.has_room(), gauge.times(), now, dropped) else { break };
            let bytes = next.word.len();
            let Treatment { class, priority, redundancy, .. } = &*next.treatment;
            let priority = if next.thin { priority.saturating_sub(THIN_AHEAD) } else { *priority };
            let mut block = Block::new(next.word.freeze()).priority(priority).begun_at(next.came);
            (block.deadline, block.channel, block.redundancy) = (next.within, next.channel, *redundancy);
            match session.try_send(block) {
                Ok(sent) => {
                    gauge.handed_over(bytes);
                    metrics.sent(class, bytes - next.at);
                    if next.marked {
                        metrics.marked();
                    }
                    if let Some(followed) = followed {
                        // The session is ending if nobody follows any more.
                        let _ = followed.send(Followed { sent, bytes: bytes as u64, treatment: next.treatment });
                    }
                }
                Err(error) => {
                    metrics.refused(if matches!(error, SendError::Full(_)) { "full" } else { "not_taken" });
                    debug!(client = %self, %error, "packet dropped");
                }
            }
        }
        let waits = !flows.is_idle();
        if self.waits.swap(waits, Ordering::Relaxed) != waits && waits {
            self.wake.notify_one();
        }
    }

    /// Hands over what waits as room comes, hears how blocks ended, and never returns.
    pub(super) async fn drive<Never>(&self, follow: Follow, metrics: &Arc<Metrics>) -> Never {
        let mut books = Books { follow, under_way: FuturesUnordered::new(), metrics: metrics.clone() };
        loop {
            let tick = async {
                if !self.waits.load(Ordering::Relaxed) {
                    self.wake.notified().await;
                }
                tokio::time::sleep(TICK).await;
            };
            let ended = tokio::select! {
                (outcome, bytes) = books.next() => Some((outcome, bytes)),
                () = tick => None,
            };
            let mut state = lock(&self.state);
            if let Some((Outcome::Dropped { good_bytes, .. }, bytes)) = ended {
                state.gauge.dropped(bytes.saturating_sub(good_bytes));
            }
            self.pump(&mut state, Instant::now(), metrics);
        }
    }
}

impl Future for Followed {
    type Output = (Outcome, u64, Arc<Treatment>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.sent).poll(cx);
        outcome.map(|outcome| (outcome, self.bytes, self.treatment.clone()))
    }
}

/// The blocks of a session whose end is waited for, and counted: that of all of them, also when nobody goes on asking.
struct Books {
    follow: Follow,
    under_way: FuturesUnordered<Followed>,
    metrics: Arc<Metrics>,
}

impl Books {
    /// How the next of them ended, and how long it was. Never returns if there are no more.
    async fn next(&mut self) -> (Outcome, u64) {
        loop {
            tokio::select! {
                Some(followed) = self.follow.recv() => self.under_way.push(followed),
                Some((outcome, bytes, treatment)) = self.under_way.next() => {
                    self.metrics.ended(&treatment.class, &outcome);
                    return (outcome, bytes);
                }
                else => std::future::pending().await,
            }
        }
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        // All that is under way ends with the session, which is about to.
        self.follow.close();
        while let Ok(followed) = self.follow.try_recv() {
            self.under_way.push(followed);
        }
        let (mut under_way, metrics) = (std::mem::take(&mut self.under_way), self.metrics.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                while let Some((outcome, _, treatment)) = under_way.next().await {
                    metrics.ended(&treatment.class, &outcome);
                }
            });
        }
    }
}

/// Says something else than a packet.
pub(super) async fn say(session: &Session, word: &Word) -> Result<SentBlock, SendError> {
    let block = Block::new(word.encode()).priority(0).channel(GREETINGS);
    session.send(block.redundancy(crate::surely(session, None))).await
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&self.name).finish()
    }
}
