//! A far gateway: its session, what it offers, the flows between us.

mod hearing;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use punctual::{Channel, Fingerprint, Outcome, SendError, Session};
use tracing::debug;

use super::{
    Followed, Plan, Shared,
    flows::{Budget, Flow, Flows, Held, Order, UdpFlow},
    lock,
    lookup::Lookups,
    name::{Name, Protocol},
    say::{self, stop},
    wire::{FlowId, Hello, Instance, StopReason, Word},
};
use crate::{
    class::{Carried, Origin},
    metrics::Snapshot,
    rate::Bucket,
};
pub use hearing::Violation;

/// Bytes of datagrams from one far gateway that wait to be sent on.
const QUEUED_DATAGRAMS: u64 = 16 << 20;
/// Bytes that one far gateway may have waiting for programs that read slowly, beyond what each connection has anyway.
const TCP_WINDOWS: u64 = 64 << 20;

/// How long one that forwards a port may take to answer when another, which cannot be told from it, says that it does.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

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
    pub(super) lookups: Lookups,
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
    to: Option<Bucket>,
    from: Option<Bucket>,
}

impl Peer {
    pub(super) fn new(side: Side, instance: Instance, identity: Option<Fingerprint>) -> Self {
        let state = State {
            session: None,
            generation: 0,
            open: false,
            offers: BTreeSet::new(),
            flows: Flows::default(),
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
            lookups: Lookups::default(),
        }
    }

    /// Whether it may be somebody else than the other: it has shown another certificate, or is another program and none of the two has shown one.
    pub(super) fn may_be_another_than(&self, other: &Self) -> bool {
        self.identity != other.identity || self.identity.is_none() && self.instance != other.instance
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
                flow.become_unknown();
            }
        }
        state.flows.begin();
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
        let inward = |flow: &Flow| match flow {
            Flow::Inward { flow, .. } => Some(flow.clone()),
            _ => None,
        };
        let stay: Vec<_> = state.flows.all.values().filter_map(inward).collect();
        for flow in stay {
            if let Some(forward) = plan.forward(Protocol::Udp, &flow.name) {
                state.flows.carry(&flow, &forward.carried);
            }
        }
        if plan.limits.rate != before.limits.rate {
            let bucket = || (plan.limits.rate > 0).then(|| Bucket::new(plan.limits.rate, Instant::now()));
            (state.to, state.from) = (bucket(), bucket());
        }
        drop(state);
        drop(gone);
    }

    /// A flow that began here is carried otherwise from now on.
    pub(super) fn carry(&self, flow: &UdpFlow, carried: &Arc<Carried>) {
        lock(&self.state).flows.carry(flow, carried);
    }

    /// How it is now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let state = lock(&self.state);
        let (flows, session) = (state.flows.all.len(), state.session.clone());
        drop(state);
        let session = session.map(|session| session.snapshot());
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

    /// Whether it is heard of, within a time in which any that is there answers: it is greeted once more.
    pub(super) async fn answers(&self, hello: Hello) -> bool {
        let Some(session) = lock(&self.state).session.clone() else { return false };
        let heard = || session.path_stats().iter().map(|path| path.bytes_received).sum::<u64>();
        let before = heard();
        let greeted = async {
            match say::greet(&session, hello).await {
                Ok(sent) => matches!(sent.await, Outcome::Delivered(_)),
                Err(_) => false,
            }
        };
        match tokio::time::timeout(ANSWERS_WITHIN, greeted).await {
            Ok(delivered) => delivered,
            // Its program may be slow to take what was said.
            Err(_) => session.close_reason().is_none() && heard() > before,
        }
    }

    /// These ports are not its own any more.
    pub(super) fn give_up_names(&self, offers: &[(Protocol, Name)]) {
        lock(&self.state).offers.retain(|offer| !offers.contains(offer));
    }

    /// It forwards these ports from now on.
    pub(super) fn offer(&self, offers: Vec<(Protocol, Name)>) {
        lock(&self.state).offers = offers.into_iter().collect();
    }

    /// Puts a flow in, with a channel if its order is kept.
    pub(super) fn insert(
        &self,
        limit: usize,
        id: FlowId,
        order: Order,
        make: impl FnOnce(Option<Channel>) -> Flow,
    ) -> Result<(), StopReason> {
        let mut state = lock(&self.state);
        let flows = &mut state.flows;
        if flows.all.len() >= limit {
            return Err(StopReason::TooMany);
        }
        let channel = flows.channel(order)?;
        flows.all.insert(id, make(channel));
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
        let (session, generation) = {
            let mut state = lock(&self.state);
            let generation = state.generation;
            let Some(session) = state.session.clone().filter(|_| state.open) else { return false };
            // What is not carried keeps no flow: a program that never falls silent would hold one for a far gateway that never comes again.
            flow.touch(now);
            let dropped = |why: &'static str| {
                shared.metrics.refused(why);
                debug!(name = %flow.name, flow = flow.id.0, gateway = %self, why, "datagram dropped");
            };
            if flow.is_refused(now) {
                dropped("not_forwarded");
                return true;
            }
            if state.to.as_mut().is_some_and(|to| !to.take(datagram.len(), now)) {
                dropped("rate");
                return true;
            }
            (session, generation)
        };
        let data = Bytes::copy_from_slice(datagram);
        let unknown = flow.is_unknown().filter(|_| flow.origin.is_some());
        let word = match unknown {
            Some(_) => Word::First { flow: flow.id, name: flow.name.clone(), data },
            None => Word::Datagram { flow: flow.id, data },
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
                shared.follow(Followed { sent, flow: flow.clone(), treatment, unknown });
            }
            Err(error) => {
                shared.metrics.refused(if matches!(error, SendError::Full(_)) { "full" } else { "not_taken" });
                debug!(name = %flow.name, flow = flow.id.0, gateway = %self, why = %error, "datagram dropped");
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
