//! The one task of an endpoint: moves datagrams between sockets and the protocol, and tells handles what happened.
//!
//! It keeps the protocol's contract: after anything that goes in, whether from a socket, the alarm or a handle, it drains
//! transmits and events, and only then asks when to wake up. Each turn does a bounded amount of work and then lets other tasks run.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Instant,
};

use bytes::BytesMut;
use punctual_proto::NetworkPath;
use tracing::{debug, trace};

use crate::{
    shared::{Shared, State},
    socket::{Datagram, Outbox, ReceiveBuffers, Received, Socket},
    timer::Timer,
};

/// Datagrams taken from the protocol in one turn, at most: what a few calls with segmentation offload carry, a fraction of a
/// millisecond's work.
const TRANSMITS_PER_TURN: usize = 256;

/// Calls to receive on one socket in one turn, at most.
const RECEIVES_PER_TURN: usize = 2;

/// Drives an endpoint until its handles and sessions are gone.
pub(crate) async fn run(shared: Arc<Shared>) {
    let _guard = Guard(shared.clone());
    let mut driver = Driver {
        shared,
        sockets: Vec::new(),
        outboxes: Vec::new(),
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
    /// As in the shared state; sockets are only ever added.
    sockets: Vec<Arc<Socket>>,
    outboxes: Vec<Outbox>,
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
            self.adopt_sockets(state);
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
        for (outbox, socket) in self.outboxes.iter_mut().zip(&self.sockets) {
            outbox.flush(socket);
        }
        self.timer.set(self.due);
        match (over, more) {
            (true, _) if self.outboxes.iter().all(Outbox::is_empty) => Turn::Over,
            (_, true) => Turn::More,
            (_, false) => Turn::Done,
        }
    }

    fn adopt_sockets(&mut self, state: &State) {
        let new = &state.sockets[self.sockets.len()..];
        self.outboxes.extend(new.iter().map(|_| Outbox::default()));
        self.sockets.extend(new.iter().cloned());
    }

    /// Takes in what the sockets have; `true` if there may be more.
    fn receive(&mut self) -> bool {
        let mut more = false;
        for (index, socket) in self.sockets.iter().enumerate() {
            for call in 1..=RECEIVES_PER_TURN {
                match socket.receive(&mut self.buffers) {
                    Ok(n) => {
                        for received in self.buffers.received(n) {
                            self.shared.with(|state, now| take_in(state, now, index, socket, received));
                        }
                        more |= call == RECEIVES_PER_TURN;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        // An earlier datagram of ours was answered by an ICMP message, or the interface is down.
                        trace!(local = %socket.address, %error, "cannot receive");
                        break;
                    }
                }
            }
        }
        more
    }

    /// Drains transmits and events; `false` if this turn's share was not enough.
    fn drain(&mut self, state: &mut State, now: Instant) -> bool {
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
        let Some((index, source)) = state.locals.resolve(local) else {
            debug_assert!(false, "the protocol made up a local end");
            return true;
        };
        let datagram = Datagram { remote, source, ecn: transmit.ecn, data: &self.datagram[..transmit.size] };
        self.outboxes[index].push(datagram, self.sockets[index].max_segments());
        true
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        let mut woken = pin!(self.shared.wake.notified());
        poll_fn(|cx| {
            let mut ready = woken.as_mut().poll(cx).is_ready() | self.timer.poll(cx).is_ready();
            for (socket, outbox) in self.sockets.iter().zip(&self.outboxes) {
                ready |= socket.poll_readable(cx).is_ready();
                ready |= outbox.is_blocked() && socket.poll_writable(cx).is_ready();
            }
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Hands the protocol what came from one peer in one go.
fn take_in(state: &mut State, now: Instant, index: usize, socket: &Socket, received: Received<'_>) {
    let Some(path) = path_of(state, index, socket, received.remote, received.to) else {
        trace!(to = ?received.to, "too many addresses of ours are in use; datagrams dropped");
        return;
    };
    for datagram in received.datagrams {
        state.core.handle_datagram(now, path, received.ecn, BytesMut::from(datagram));
    }
}

/// The network path of what came in. A server's socket on all addresses is as many ends as we have addresses, so that answers leave from
/// the address that was asked; a client's is one end, for the system chooses the address it sends from.
fn path_of(
    state: &mut State,
    index: usize,
    socket: &Socket,
    remote: SocketAddr,
    to: Option<IpAddr>,
) -> Option<NetworkPath> {
    let local = match to.filter(|_| socket.by_address) {
        Some(ip) => state.locals.of_address(index, ip)?,
        None => socket.local,
    };
    Some(NetworkPath { local, remote })
}
