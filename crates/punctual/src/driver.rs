//! The one task of an endpoint: moves datagrams between sockets and the protocol, and tells handles what happened.
//!
//! It keeps the protocol's contract: after anything that goes in, whether from a socket, the alarm or a handle, it drains
//! transmits and events, and only then asks when to wake up. Each turn does a bounded amount of work and then lets other tasks run.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use punctual_proto::{LocalId, NetworkPath};
use tracing::{debug, trace};

use crate::{
    outbox::Datagram,
    port::Port,
    shared::{Shared, State},
    socket::{ReceiveBuffers, Received, Socket},
    timer::Timer,
};

/// Datagrams taken from the protocol in one turn, at most: what a few calls with segmentation offload carry, a fraction of a
/// millisecond's work.
const TRANSMITS_PER_TURN: usize = 256;

/// Calls to receive on one socket in one turn, at most.
const RECEIVES_PER_TURN: usize = 2;
/// The same while more comes than can be dealt with: reading and sorting is cheap, and what is not read in time the system throws away, whosoever it is.
const RECEIVES_IN_A_FLOOD: usize = 16;
/// A turn that is later than this was held up: by the system, which ran something else, or by the application. What the protocol waits for may long be
/// there, without the runtime having looked.
const HELD_UP: Duration = Duration::from_millis(1);
/// Datagrams that sessions deal with, in turn, before the sockets are read again: less than one call may bring.
const DEALT_WITH_AT_ONCE: usize = 128;

/// Drives an endpoint until its handles and sessions are gone.
pub(crate) async fn run(shared: Arc<Shared>) {
    let _guard = Guard(shared.clone());
    let mut driver = Driver {
        shared,
        ports: BTreeMap::new(),
        changes: 0,
        buffers: ReceiveBuffers::new(),
        datagram: Vec::with_capacity(2048),
        due: None,
        timer: Timer::new(),
    };
    loop {
        match driver.turn() {
            Turn::More => tokio::task::yield_now().await,
            Turn::Done => driver.wait().await,
            Turn::Over => break,
        }
    }
    debug!("endpoint gone");
}

/// Tells the handles when the driver ends, however that comes about.
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.with(|state, _| state.die());
        self.0.accepted.notify_waiters();
        self.0.idle.notify_waiters();
    }
}

enum Turn {
    /// There is more to do.
    More,
    /// There is nothing to do until something happens.
    Done,
    /// There will never be anything to do.
    Over,
}

struct Driver {
    shared: Arc<Shared>,
    /// The sockets of the shared state, as they were when it had seen this many changes of them.
    ports: BTreeMap<LocalId, Port>,
    changes: u64,
    buffers: ReceiveBuffers,
    /// Where the protocol writes a datagram.
    datagram: Vec<u8>,
    /// When the protocol wants to be called.
    due: Option<Instant>,
    timer: Timer,
}

impl Driver {
    fn turn(&mut self) -> Turn {
        let mut more = self.receive();
        let shared = self.shared.clone();
        let over = shared.with(|state, now| {
            self.follow_sockets(state);
            more |= deal(state, now);
            if self.due.is_some_and(|due| due <= now) {
                state.core.handle_timeout(now);
            }
            let drained = self.drain(state, now);
            if drained {
                self.due = state.core.poll_timeout();
            }
            more |= !drained || self.due.is_some_and(|due| due <= now);
            if state.core.has_parted() {
                shared.idle.notify_waiters();
            }
            state.abandoned && state.core.sessions() == 0 && drained
        });
        for Port { socket, outbox, .. } in self.ports.values_mut() {
            outbox.flush(socket);
        }
        self.timer.set(self.ports.values().filter_map(Port::due).chain(self.due).min());
        match (over, more) {
            (true, _) if self.ports.values().all(|port| port.outbox.is_empty()) => Turn::Over,
            (_, true) => Turn::More,
            (_, false) => Turn::Done,
        }
    }

    /// Takes over the sockets that have come, and drops those that have gone, with what waited to leave through them.
    fn follow_sockets(&mut self, state: &State) {
        if self.changes == state.ends.changes() {
            return;
        }
        self.changes = state.ends.changes();
        self.ports.retain(|id, _| state.ends.resolve(*id).is_some());
        for socket in state.ends.sockets() {
            self.ports.entry(socket.local).or_insert_with(|| Port::new(socket.clone()));
        }
    }

    /// Takes in what the sockets have; `true` if there may be more.
    fn receive(&mut self) -> bool {
        let mut more = false;
        // Else the time that this host took would be held against the network.
        let held_up = self.due.is_some_and(|due| due + HELD_UP < Instant::now());
        for port in self.ports.values_mut() {
            let (mut calls, mut most) = (0, RECEIVES_PER_TURN);
            while calls < most {
                let Some(n) = port.receive(&mut self.buffers, held_up) else { break };
                for received in self.buffers.received(n) {
                    self.shared.with(|state, now| take_in(state, now, &port.socket, received));
                }
                if self.shared.with(deal) {
                    // What waits is somebody's who sends too much; what is still to be read may be others'.
                    most = RECEIVES_IN_A_FLOOD;
                }
                calls += 1;
            }
            more |= calls == most;
        }
        more
    }

    /// Drains transmits and events; `false` if this turn's share was not enough.
    fn drain(&mut self, state: &mut State, now: Instant) -> bool {
        // Events first: what one of them ends (the losers of a race) has no more to send.
        state.dispatch_events(now, &self.shared.accepted);
        let mut transmits = 0;
        loop {
            let before = transmits;
            while transmits < TRANSMITS_PER_TURN && self.transmit(state, now) {
                transmits += 1;
            }
            let events = state.dispatch_events(now, &self.shared.accepted);
            if transmits == TRANSMITS_PER_TURN {
                return false;
            }
            if transmits == before && !events {
                return true;
            }
        }
    }

    /// Moves one datagram from the protocol to a socket's outbox; `false` if there is none.
    fn transmit(&mut self, state: &mut State, now: Instant) -> bool {
        self.datagram.clear();
        let Some(transmit) = state.core.poll_transmit(now, &mut self.datagram) else { return false };
        let NetworkPath { local, remote } = transmit.path;
        // The socket of a session's last path may have been given up; what is sent there is lost.
        let Some((socket, source)) = state.ends.resolve(local) else { return true };
        if let Some(Port { socket, outbox, .. }) = self.ports.get_mut(&socket) {
            let datagram = Datagram { remote, source, ecn: transmit.ecn, data: &self.datagram[..transmit.size] };
            outbox.push(datagram, socket.max_segments());
        }
        true
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        let mut woken = pin!(self.shared.wake.notified());
        poll_fn(|cx| {
            let mut ready = woken.as_mut().poll(cx).is_ready() | self.timer.poll(cx).is_ready();
            for port in self.ports.values() {
                ready |= port.poll_ready(cx);
            }
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Hands the protocol what came from one peer in one go.
fn take_in(state: &mut State, now: Instant, socket: &Socket, received: Received<'_>) {
    let Some(path) = path_of(state, socket, received.remote, received.to) else {
        trace!(to = ?received.to, "the socket was given up, or too many addresses of ours are in use; datagrams dropped");
        return;
    };
    for datagram in received.datagrams {
        state.core.queue_datagram(now, path, received.ecn, BytesMut::from(datagram));
    }
}

/// Has sessions deal with what has come for them: with all of it if it is one session's, and else with so much that there is time to look whether there is
/// more for others. Whether some of it still waits.
fn deal(state: &mut State, now: Instant) -> bool {
    let budget = if state.core.is_contended() { DEALT_WITH_AT_ONCE } else { usize::MAX };
    state.core.work(now, budget)
}

/// The network path of what came in. A server's socket on all addresses is as many ends as we have addresses, so that answers leave from
/// the address that was asked; a client's is one end, for the system chooses the address it sends from.
fn path_of(state: &mut State, socket: &Socket, remote: SocketAddr, to: Option<IpAddr>) -> Option<NetworkPath> {
    let local = match to.filter(|_| socket.by_address) {
        Some(ip) => state.ends.of_address(socket.local, ip)?,
        None => state.ends.resolve(socket.local)?.0,
    };
    Some(NetworkPath { local, remote })
}
