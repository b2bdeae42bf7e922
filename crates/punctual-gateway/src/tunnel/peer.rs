//! A far gateway: its session, what it offers, the flows between us.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use punctual::{Channel, Fingerprint, SendError, Session};
use thiserror::Error;
use tracing::{debug, info};

use super::{
    Ended, Plan, Shared,
    flows::{Budget, Flow, Flows, Held, Queued, TcpWord, UdpFlow},
    lock,
    name::{Name, Protocol},
    say::{Stops, stop},
    tcp, udp,
    wire::{FlowId, Instance, StopReason, WireError, Word},
};
use crate::{
    class::Origin,
    metrics::{Metrics, Snapshot},
    rate::Bucket,
};

/// Bytes of datagrams from one far gateway that wait to be sent on.
const QUEUED_DATAGRAMS: u64 = 16 << 20;
/// Bytes that one far gateway may have waiting for programs that read slowly, beyond what each connection has anyway.
const TCP_WINDOWS: u64 = 64 << 20;

/// Which of the two gateways this one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// It calls.
    Client,
    /// It is called.
    Server,
}

impl Side {
    /// Whether this side began a flow.
    fn began(self, flow: FlowId) -> bool {
        flow.0.is_multiple_of(2) == (self == Self::Client)
    }
}

/// A far gateway. It outlives its session, so that its flows do.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) side: Side,
    pub(super) instance: Instance,
    /// Of the certificate that it has shown. Whoever comes with another is another, and those without any cannot be told apart.
    pub(super) identity: Option<Fingerprint>,
    state: Mutex<State>,
    datagrams: Budget,
    pub(super) windows: Budget,
}

#[derive(Debug)]
struct State {
    /// The session there is,
    session: Option<Session>,
    /// how many there have been,
    generation: u64,
    /// and whether the far side has our greeting, before which nothing is to come.
    open: bool,
    /// The ports that it forwards, for as long as it has a session.
    offers: BTreeSet<(Protocol, Name)>,
    flows: Flows,
    next_flow: u64,
    to: Option<Bucket>,
    from: Option<Bucket>,
}

/// What a far gateway may not say.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A block is no word.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It began with something other than a greeting.
    #[error("it does not greet")]
    NoHello,
    /// It greets as somebody else.
    #[error("it has changed its instance")]
    Instance,
    /// It begins a flow by a number that is for us to give.
    #[error("flow {} is not its to begin", .0.0)]
    NotItsFlow(FlowId),
    /// A flow of one protocol is spoken of as if it were of the other.
    #[error("flow {} is of another protocol", .0.0)]
    OtherProtocol(FlowId),
    /// Bytes of a connection are not those that come next.
    #[error("flow {} goes on at another byte than it should", .0.0)]
    Offset(FlowId),
    /// More came for a connection than was granted.
    #[error("flow {} exceeds its credit", .0.0)]
    Credit(FlowId),
}

impl Peer {
    pub(super) fn new(side: Side, instance: Instance, identity: Option<Fingerprint>) -> Self {
        let state = State {
            session: None,
            generation: 0,
            open: false,
            offers: BTreeSet::new(),
            flows: Flows::default(),
            next_flow: u64::from(side == Side::Server),
            to: None,
            from: None,
        };
        Self {
            side,
            instance,
            identity,
            state: Mutex::new(state),
            datagrams: Budget::new(QUEUED_DATAGRAMS),
            windows: Budget::new(TCP_WINDOWS),
        }
    }

    /// The session there is, and its generation.
    pub(super) fn session(&self) -> Option<(Session, u64)> {
        let state = lock(&self.state);
        state.session.clone().filter(|_| state.open).map(|session| (session, state.generation))
    }

    /// The far side has our greeting: whatever there is may follow.
    pub(super) fn open(&self, generation: u64) {
        let mut state = lock(&self.state);
        state.open |= state.generation == generation;
    }

    /// Everything ends.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.session = None;
        let gone = std::mem::take(&mut state.flows);
        drop(state);
        drop(gone);
    }

    /// Whether it forwards such a port, and can be reached.
    pub(super) fn offers(&self, protocol: Protocol, name: &Name) -> bool {
        let state = lock(&self.state);
        state.open && state.session.is_some() && state.offers.contains(&(protocol, name.clone()))
    }

    /// Takes a session, in place of one there may be. Its generation.
    pub(super) fn attach(&self, session: &Session, rate: u64) -> u64 {
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.generation += 1;
        state.open = false;
        if let Some(before) = state.session.replace(session.clone()) {
            before.close(super::close::STOPPED, "another session has taken its place");
        }
        let bucket = || (rate > 0).then(|| Bucket::new(rate, now));
        if state.to.is_none() || rate == 0 {
            (state.to, state.from) = (bucket(), bucket());
        }
        for flow in state.flows.all.values() {
            if let Flow::Outward(flow) = flow {
                // It may have been started anew, and know nothing.
                flow.known.store(false, Ordering::Relaxed);
            }
        }
        let generation = state.generation;
        // The connections of the session before went with it.
        let gone = state.flows.drain_tcp(generation);
        drop(state);
        drop(gone);
        generation
    }

    /// Its session has ended, unless another has taken its place. Connections end with it, flows of datagrams do not.
    pub(super) fn detach(&self, generation: u64) {
        let mut state = lock(&self.state);
        if state.generation == generation {
            state.session = None;
            state.offers.clear();
            let gone = state.flows.drain_tcp(generation + 1);
            drop(state);
            drop(gone);
        }
    }

    /// It is asked for other things from now on: flows end whose port is gone or leads elsewhere.
    pub(super) fn replan(&self, before: &Plan, plan: &Plan) {
        let mut state = lock(&self.state);
        let target = |plan: &Plan, name: &Name| plan.forward(Protocol::Udp, name).map(|forward| forward.to.clone());
        let leads_elsewhere = |flow: &Flow| match flow {
            Flow::Inward { flow, .. } => target(before, &flow.name) != target(plan, &flow.name),
            Flow::Outward(_) | Flow::Tcp(_) => false,
        };
        let gone = state.flows.drain(leads_elsewhere);
        for flow in state.flows.all.values() {
            if let Flow::Inward { flow, .. } = flow
                && let Some(forward) = plan.forward(Protocol::Udp, &flow.name)
            {
                lock(&flow.classifier).replace(forward.carried.clone());
            }
        }
        if plan.limits.rate != before.limits.rate {
            let bucket = || (plan.limits.rate > 0).then(|| Bucket::new(plan.limits.rate, Instant::now()));
            (state.to, state.from) = (bucket(), bucket());
        }
        drop(state);
        drop(gone);
    }

    /// How it is now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let state = lock(&self.state);
        let (flows, session) = (state.flows.all.len(), state.session.clone());
        drop(state);
        let session = session.map(|session| (session.stats(), session.path_stats()));
        Snapshot { gateway: self.to_string(), flows, session }
    }

    /// Whether nothing is left to be kept of it.
    pub(super) fn is_gone(&self) -> bool {
        let state = lock(&self.state);
        state.session.is_none() && state.flows.all.is_empty()
    }

    /// The first of these ports that it forwards.
    pub(super) fn holds(&self, offers: &[(Protocol, Name)]) -> Option<(Protocol, Name)> {
        let state = lock(&self.state);
        offers.iter().find(|offer| state.offers.contains(offer)).cloned()
    }

    /// It forwards these ports from now on.
    pub(super) fn offer(&self, offers: Vec<(Protocol, Name)>) {
        lock(&self.state).offers = offers.into_iter().collect();
    }

    /// Hears what comes by a session.
    pub(super) fn hear(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        session: &Session,
        generation: u64,
        stops: &Stops,
        block: Bytes,
    ) -> Result<(), Ended> {
        let Some(word) = Word::decode(block).map_err(Violation::from)? else { return Ok(()) };
        let now = Instant::now();
        if !matches!(word, Word::Hello(_)) {
            // It would say nothing else if it did not have our greeting.
            self.open(generation);
        }
        match word {
            Word::Hello(hello) => shared.greeted(self, hello)?,
            Word::Datagram { flow, data } => {
                shared.metrics.received();
                if !self.datagram(flow, data, now, &shared.metrics)? {
                    stop(session, flow, StopReason::Unknown);
                }
            }
            Word::First { flow, name, data } => {
                if self.side.began(flow) {
                    return Err(Violation::NotItsFlow(flow).into());
                }
                shared.metrics.received();
                if !self.datagram(flow, data.clone(), now, &shared.metrics)? {
                    match udp::begin_inward(self, shared, flow, &name) {
                        Ok(()) => drop(self.datagram(flow, data, now, &shared.metrics)),
                        Err(reason) => {
                            debug!(%name, flow = flow.0, reason = reason.words(), "flow refused");
                            stop(session, flow, reason);
                        }
                    }
                }
            }
            Word::Open { flow, name } => {
                if self.side.began(flow) || self.knows(flow) {
                    return Err(Violation::NotItsFlow(flow).into());
                }
                if let Err(reason) = tcp::begin_inward(self, shared, session, generation, flow, &name) {
                    debug!(%name, flow = flow.0, reason = reason.words(), "connection refused");
                    stops.add(flow, reason);
                }
            }
            Word::Data { flow, offset, data } => {
                if !self.bytes(flow, offset, Some(data))? {
                    stops.add(flow, StopReason::Unknown);
                }
            }
            Word::Fin { flow, size } => {
                if !self.bytes(flow, size, None)? {
                    stops.add(flow, StopReason::Unknown);
                }
            }
            Word::Credit { flow, limit } => {
                if let Some(Flow::Tcp(tcp)) = lock(&self.state).flows.all.get(&flow) {
                    tcp.credit.send_if_modified(|credit| {
                        let more = limit > *credit;
                        *credit = limit.max(*credit);
                        more
                    });
                }
            }
            Word::Stop { flow, reason } => self.stopped(flow, reason, now),
        }
        Ok(())
    }

    fn knows(&self, flow: FlowId) -> bool {
        lock(&self.state).flows.all.contains_key(&flow)
    }

    /// A datagram has come for a flow. `false` if there is no such flow.
    fn datagram(&self, id: FlowId, data: Bytes, now: Instant, metrics: &Metrics) -> Result<bool, Violation> {
        let mut state = lock(&self.state);
        let State { flows, from, .. } = &mut *state;
        let Some(flow) = flows.all.get(&id) else { return Ok(false) };
        if from.as_mut().is_some_and(|from| !from.take(data.len(), now)) {
            metrics.refused("rate");
            return Ok(true);
        }
        match flow {
            Flow::Outward(flow) => {
                let flow = flow.clone();
                drop(state);
                flow.touch(now);
                if !flow.answer(&data) {
                    metrics.refused("not_sent");
                }
            }
            Flow::Inward { flow, datagrams, .. } => {
                flow.touch(now);
                let held = self.datagrams.take(data.len() as u64);
                // If its queue is full, a datagram is dropped, as any network would.
                if held.is_none_or(|_held| datagrams.try_send(Queued { data, _held }).is_err()) {
                    metrics.refused("full");
                }
            }
            Flow::Tcp(_) => return Err(Violation::OtherProtocol(id)),
        }
        Ok(true)
    }

    /// Bytes have come for a connection, or it is said that these were all. `false` if there is no such connection: it was stopped here, which the far side has
    /// yet to hear, or has not understood.
    fn bytes(&self, id: FlowId, offset: u64, data: Option<Bytes>) -> Result<bool, Violation> {
        let mut state = lock(&self.state);
        let tcp = match state.flows.all.get_mut(&id) {
            Some(Flow::Tcp(tcp)) => tcp,
            Some(_) => return Err(Violation::OtherProtocol(id)),
            None => return Ok(false),
        };
        if offset != tcp.received || tcp.finished {
            return Err(Violation::Offset(id));
        }
        let word = match data {
            Some(data) => {
                tcp.received += data.len() as u64;
                if tcp.received > tcp.granted.load(Ordering::Relaxed) {
                    return Err(Violation::Credit(id));
                }
                TcpWord::Data(data)
            }
            None => {
                tcp.finished = true;
                TcpWord::Fin
            }
        };
        // If its task has just ended, it will be heard of.
        let _ = tcp.words.send(word);
        Ok(true)
    }

    /// The far side does not carry a flow, or no longer.
    fn stopped(&self, id: FlowId, reason: StopReason, now: Instant) {
        let mut state = lock(&self.state);
        match state.flows.all.get(&id) {
            Some(Flow::Outward(flow)) => {
                flow.known.store(false, Ordering::Relaxed);
                if reason != StopReason::Unknown {
                    info!(name = %flow.name, program = %flow.program, reason = reason.words(), "flow not carried");
                    flow.refuse(now);
                }
            }
            Some(_) => {
                debug!(flow = id.0, reason = reason.words(), "flow stopped by the far side");
                let gone = state.flows.remove(id);
                drop(state);
                drop(gone);
            }
            None => {}
        }
    }

    /// Puts a flow of datagrams in, with a number and, if its order is kept, a channel.
    pub(super) fn insert(
        &self,
        limit: usize,
        id: Option<FlowId>,
        ordered: bool,
        make: impl FnOnce(FlowId, Option<Channel>) -> Flow,
    ) -> Result<(), StopReason> {
        let mut state = lock(&self.state);
        let State { flows, next_flow, .. } = &mut *state;
        if flows.all.len() >= limit {
            return Err(StopReason::TooMany);
        }
        let channel = if ordered { Some(flows.channel().ok_or(StopReason::TooMany)?) } else { None };
        let id = id.unwrap_or_else(|| {
            let id = FlowId(*next_flow);
            *next_flow += 2;
            id
        });
        flows.all.insert(id, make(id, channel));
        Ok(())
    }

    /// Ends a flow that the far side began, and says why.
    pub(super) fn give_up(&self, id: FlowId, reason: StopReason) {
        if let Some((session, _)) = self.session() {
            stop(&session, id, reason);
        }
        self.remove(id);
    }

    /// Ends a flow.
    pub(super) fn remove(&self, id: FlowId) {
        let gone = lock(&self.state).flows.remove(id);
        drop(gone);
    }

    /// Ends flows of datagrams that have been silent for too long, and gives those that began here.
    pub(super) fn sweep(&self, now: Instant, idle: Duration) -> Vec<Arc<UdpFlow>> {
        let mut state = lock(&self.state);
        let silent = |flow: &Flow| match flow {
            Flow::Outward(flow) | Flow::Inward { flow, .. } => flow.is_silent(now, idle),
            Flow::Tcp(_) => false,
        };
        let gone = state.flows.drain(silent);
        drop(state);
        let outward = |flow| match flow {
            Flow::Outward(flow) => Some(flow),
            _ => None,
        };
        gone.into_iter().filter_map(outward).collect()
    }

    /// Sends a datagram of a program. `false` if there is no session to send it by.
    pub(super) fn send(&self, flow: &Arc<UdpFlow>, datagram: &[u8], dscp: Option<u8>, shared: &Shared) -> bool {
        let now = Instant::now();
        flow.touch(now);
        let (session, generation) = {
            let mut state = lock(&self.state);
            let generation = state.generation;
            let Some(session) = state.session.clone().filter(|_| state.open) else { return false };
            if flow.is_refused(now) {
                shared.metrics.refused("not_forwarded");
                return true;
            }
            if state.to.as_mut().is_some_and(|to| !to.take(datagram.len(), now)) {
                shared.metrics.refused("rate");
                return true;
            }
            (session, generation)
        };
        let data = Bytes::copy_from_slice(datagram);
        let word = if flow.origin.is_some() && !flow.known.load(Ordering::Relaxed) {
            Word::First { flow: flow.id, name: flow.name.clone(), data }
        } else {
            Word::Datagram { flow: flow.id, data }
        };
        let mut classifier = lock(&flow.classifier);
        let treatment = classifier.classify(datagram, Origin { program: flow.program, dscp }, generation);
        let mut block = treatment.block(word.encode());
        block.channel = flow.channel_for(treatment.class.ordered);
        flow.tell_latency(&session, generation);
        match session.try_send(block) {
            Ok(sent) => {
                classifier.sent(sent.id());
                shared.metrics.sent(&treatment.class.name, datagram.len());
                shared.follow(sent, flow, treatment);
            }
            Err(error) => {
                shared.metrics.refused(if matches!(error, SendError::Full(_)) { "full" } else { "not_taken" });
                debug!(name = %flow.name, %error, "datagram dropped");
            }
        }
        true
    }

    /// Waits until so many bytes of a connection may be carried to the far side.
    pub(super) async fn may_send(&self, bytes: usize) {
        self.may(bytes, |state| &mut state.to).await;
    }

    /// Waits until so many bytes of a connection that came from the far side may be sent on.
    pub(super) async fn may_forward(&self, bytes: usize) {
        self.may(bytes, |state| &mut state.from).await;
    }

    async fn may(&self, mut bytes: usize, which: fn(&mut State) -> &mut Option<Bucket>) {
        while bytes > 0 {
            let taken = match which(&mut lock(&self.state)) {
                Some(bucket) => bucket.take_or_wait(bytes, Instant::now()),
                None => return,
            };
            match taken {
                Ok(taken) => bytes -= taken,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    /// A larger window for one connection, if there is room for it.
    pub(super) fn window(&self, bytes: u64) -> Option<Held> {
        self.windows.take(bytes)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.instance.fmt(f)
    }
}
