//! What comes from a far gateway: each word goes to the flow that it is of, and one that makes no sense ends the session.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use bytes::Bytes;
use punctual::Session;
use thiserror::Error;
use tracing::{debug, info};

use super::{Peer, State};
use crate::{
    metrics::Metrics,
    tunnel::{
        Ended, Shared,
        flows::{Flow, Queued},
        lock,
        name::Name,
        say::{Stops, stop},
        tcp, udp,
        wire::{FlowId, StopReason, WireError, Word},
    },
};

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
    /// Hears what comes by a session.
    pub(in super::super) fn hear(
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
                self.end_another(flow, &name);
                if !self.datagram(flow, data.clone(), now, &shared.metrics)? {
                    match udp::begin_inward(self, shared, flow, &name) {
                        Ok(()) => drop(self.datagram(flow, data, now, &shared.metrics)),
                        Err(reason) => {
                            debug!(%name, flow = flow.0, gateway = %self, reason = reason.words(), "flow refused");
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
                    debug!(%name, flow = flow.0, gateway = %self, reason = reason.words(), "connection refused");
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

    /// A flow of this number leads elsewhere: it ends.
    fn end_another(&self, id: FlowId, name: &Name) {
        let mut state = lock(&self.state);
        if let Some(Flow::Inward { flow, .. }) = state.flows.all.get(&id)
            && flow.name != *name
        {
            let gone = state.flows.remove(id);
            drop(state);
            drop(gone);
        }
    }

    fn knows(&self, flow: FlowId) -> bool {
        lock(&self.state).flows.all.contains_key(&flow)
    }

    /// A datagram has come for a flow. `false` if there is no such flow.
    fn datagram(&self, id: FlowId, data: Bytes, now: Instant, metrics: &Metrics) -> Result<bool, Violation> {
        let mut state = lock(&self.state);
        let State { flows, from, .. } = &mut *state;
        let Some(flow) = flows.all.get(&id) else { return Ok(false) };
        let dropped = |why: &'static str| {
            metrics.refused(why);
            debug!(flow = id.0, gateway = %self, why, "datagram of the far side dropped");
        };
        if from.as_mut().is_some_and(|from| !from.take(data.len(), now)) {
            dropped("rate");
            return Ok(true);
        }
        match flow {
            Flow::Outward(flow) => {
                let flow = flow.clone();
                drop(state);
                flow.touch(now);
                if !flow.answer(&data) {
                    dropped("not_sent");
                }
            }
            Flow::Inward { flow, datagrams, .. } => {
                flow.touch(now);
                let held = self.datagrams.take(data.len() as u64);
                // If its queue is full, a datagram is dropped, as any network would.
                if held.is_none_or(|_held| datagrams.try_send(Queued { data, _held }).is_err()) {
                    dropped("full");
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
        match data {
            Some(data) => {
                tcp.received += data.len() as u64;
                if tcp.received > tcp.granted.load(Ordering::Relaxed) {
                    return Err(Violation::Credit(id));
                }
                tcp.came.push(data);
            }
            None => {
                tcp.finished = true;
                tcp.came.finish();
            }
        }
        Ok(true)
    }

    /// The far side does not carry a flow, or no longer.
    fn stopped(&self, id: FlowId, reason: StopReason, now: Instant) {
        let mut state = lock(&self.state);
        match state.flows.all.get(&id) {
            Some(Flow::Outward(flow)) => {
                flow.become_unknown();
                if reason != StopReason::Unknown {
                    let (name, program, reason) = (&flow.name, flow.program, reason.words());
                    info!(%name, %program, flow = id.0, gateway = %self, reason, "flow not carried");
                    flow.refuse(now);
                }
            }
            Some(_) => {
                debug!(flow = id.0, gateway = %self, reason = reason.words(), "flow stopped by the far side");
                let gone = state.flows.remove(id);
                drop(state);
                drop(gone);
            }
            None => {}
        }
    }
}
