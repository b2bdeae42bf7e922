//! UDP ports: sockets on this side, flows to the other.

use std::{
    cell::RefCell,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{net::UdpSocket, sync::mpsc};
use tracing::{debug, info, warn};

use super::{
    Shared,
    ancillary::{self, Arrival},
    flows::{Asked, Flow, Order, Queued, Task, UdpFlow},
    listening::Listening,
    lock,
    lookup::Lookups,
    name::{Name, Protocol},
    peer::Peer,
    wire::{FlowId, StopReason},
};
use crate::class::Classifier;

/// Bytes that the system is asked to hold for a socket each way: a key frame of a video comes in one burst.
const SOCKET_BUFFER: usize = 4 << 20;
/// The largest datagram, and a byte more than fits into one over IPv4.
const LARGEST: usize = 65_536;
/// Datagrams of one flow that wait for its task.
const QUEUE: usize = 1_024;
/// Datagrams that are taken from a socket before others have their turn.
const BATCH: usize = 64;
/// How long to wait after an error that may come again at once.
const PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    /// Where datagrams are read to: one place for each thread, as nothing waits while it is in use.
    static SPACE: RefCell<Vec<u8>> = RefCell::new(vec![0; LARGEST]);
}

/// A socket, with as much room as the system gives.
fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::DGRAM, None)?;
    if address.is_ipv6() {
        // So that 0.0.0.0 and [::] can be listened to by different names.
        socket.set_only_v6(true)?;
    }
    // The system may grant less.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.set_nonblocking(true)?;
    ancillary::ask(&socket, address);
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// A socket to listen with.
pub(super) fn listen(address: SocketAddr) -> io::Result<UdpSocket> {
    open(address)
}

/// Hears the programs of this side, and never returns.
pub(super) async fn hear(listening: Arc<Listening>, socket: Arc<UdpSocket>, shared: Arc<Shared>) {
    loop {
        let mut heard = socket.readable().await;
        for _ in 0..BATCH {
            heard = heard.and_then(|()| {
                SPACE.with_borrow_mut(|space| {
                    let arrival = ancillary::receive(&socket, space)?;
                    came(&listening, &shared, &space[..arrival.size], arrival);
                    Ok(())
                })
            });
        }
        match heard {
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                warn!(name = %listening.port.name, %error, "cannot receive");
                tokio::time::sleep(PAUSE).await;
            }
            // There may be more; others have their turn first.
            Ok(()) => tokio::task::yield_now().await,
        }
    }
}

/// Whether an error says nothing about the socket: there is nothing to read, or nobody listens where a datagram went.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock,
    };
    let kinds = [WouldBlock, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, Interrupted];
    kinds.contains(&error.kind())
}

/// A datagram has come from a program.
fn came(listening: &Arc<Listening>, shared: &Arc<Shared>, datagram: &[u8], arrival: Arrival) {
    let Arrival { from, at, dscp, .. } = arrival;
    let known = lock(&listening.flows).get(&(from, at)).cloned();
    if let Some((peer, flow)) = &known {
        if peer.send(flow, datagram, dscp, shared) {
            return;
        }
        // Its far gateway is away. Perhaps there is another, or the same, started anew.
        match shared.choose(Protocol::Udp, &listening.port.name) {
            Some(other) if !Arc::ptr_eq(&other, peer) => peer.remove(flow.id),
            _ => {
                shared.metrics.refused("no_session");
                debug!(name = %flow.name, flow = flow.id.0, gateway = %peer, why = "no session", "datagram dropped");
                return;
            }
        }
    }
    let Some(peer) = shared.choose(Protocol::Udp, &listening.port.name) else {
        shared.metrics.refused("no_gateway");
        debug!(name = %listening.port.name, program = %from, why = "no gateway", "datagram dropped");
        listening.complain("no far gateway forwards this port");
        return;
    };
    match begin_outward(&peer, listening, shared, from, at) {
        Ok(flow) => _ = peer.send(&flow, datagram, dscp, shared),
        Err(reason) => {
            shared.metrics.refused("too_many_flows");
            debug!(name = %listening.port.name, program = %from, gateway = %peer, why = reason.words(), "datagram dropped");
            listening.complain(reason.words());
        }
    }
}

/// A program of this side begins a flow.
fn begin_outward(
    peer: &Arc<Peer>,
    listening: &Arc<Listening>,
    shared: &Shared,
    from: SocketAddr,
    at: Option<IpAddr>,
) -> Result<Arc<UdpFlow>, StopReason> {
    let carried = lock(&listening.carried).clone();
    let (name, origin) = (listening.port.name.clone(), Some(Asked { port: Arc::downgrade(listening), at }));
    let mut begun = None;
    let (id, order) = (shared.number(peer.side), Order::of(&carried));
    peer.insert(shared.plan().limits.flows, id, order, |channel| {
        let flow = Arc::new(UdpFlow::new(id, name, from, origin, Classifier::new(carried), (order, channel), false));
        begun = Some(flow.clone());
        Flow::Outward(flow)
    })?;
    let flow = begun.ok_or(StopReason::TooMany)?;
    lock(&listening.flows).insert((from, at), (peer.clone(), flow.clone()));
    debug!(name = %flow.name, program = %from, flow = flow.id.0, gateway = %peer, "flow begins");
    Ok(flow)
}

/// The far side begins a flow.
pub(super) fn begin_inward(peer: &Arc<Peer>, shared: &Arc<Shared>, id: FlowId, name: &Name) -> Result<(), StopReason> {
    let plan = shared.plan();
    let forward = plan.forward(Protocol::Udp, name).ok_or(StopReason::NoSuchPort)?;
    let (queue, datagrams) = mpsc::channel(QUEUE);
    let order = Order::of(&forward.carried);
    peer.insert(plan.limits.flows, id, order, |channel| {
        let nobody = (Ipv4Addr::UNSPECIFIED, 0).into();
        let classifier = Classifier::new(forward.carried.clone());
        let flow = Arc::new(UdpFlow::new(id, name.clone(), nobody, None, classifier, (order, channel), true));
        let task =
            tokio::spawn(carry(Arc::downgrade(peer), shared.clone(), flow.clone(), forward.to.clone(), datagrams));
        Flow::Inward { flow, datagrams: queue, _task: Task(task.abort_handle()) }
    })
}

/// Carries a flow that the far side began, until it is removed.
async fn carry(
    peer: Weak<Peer>,
    shared: Arc<Shared>,
    flow: Arc<UdpFlow>,
    to: String,
    mut datagrams: mpsc::Receiver<Queued>,
) {
    let known = peer.upgrade().map(|peer| (peer.to_string(), peer.lookups.clone()));
    let Some((gateway, lookups)) = known else { return };
    let socket = match connect(&to, &lookups).await {
        Ok(socket) => socket,
        Err(error) => {
            info!(name = %flow.name, flow = flow.id.0, gateway, to, %error, "cannot forward");
            if let Some(peer) = peer.upgrade() {
                peer.give_up(flow.id, StopReason::Unreachable);
            }
            return;
        }
    };
    debug!(name = %flow.name, flow = flow.id.0, gateway, to, from = ?socket.local_addr().ok(), "flow begins");
    loop {
        let failed = tokio::select! {
            queued = datagrams.recv() => match queued {
                Some(Queued { data, .. }) => {
                    let sent = forward(&socket, &data).await;
                    if sent.is_err() {
                        shared.metrics.refused("not_sent");
                    }
                    sent
                }
                None => return,
            },
            readable = socket.readable() => readable.and_then(|()| answers(&socket, &peer, &flow, &shared)),
        };
        match failed {
            Err(error) if !is_passing(&error) => {
                debug!(name = %flow.name, flow = flow.id.0, gateway, %error, "cannot be forwarded or answered");
                tokio::time::sleep(PAUSE).await;
            }
            _ => {}
        }
    }
}

/// Sends a datagram on. What the system says first may be of one that went before, to a program that was not there yet; then it has sent nothing.
async fn forward(socket: &UdpSocket, data: &[u8]) -> io::Result<()> {
    match socket.send(data).await {
        Err(error) if is_passing(&error) => socket.send(data).await.map(drop),
        sent => sent.map(drop),
    }
}

/// Takes what a forwarded port answers.
fn answers(socket: &UdpSocket, peer: &Weak<Peer>, flow: &Arc<UdpFlow>, shared: &Shared) -> io::Result<()> {
    let Some(peer) = peer.upgrade() else { return Ok(()) };
    SPACE.with_borrow_mut(|space| {
        for _ in 0..BATCH {
            let size = socket.try_recv(space)?;
            if !peer.send(flow, &space[..size], None, shared) {
                shared.metrics.refused("no_session");
            }
        }
        Ok(())
    })
}

/// A socket that leads to one place.
async fn connect(to: &str, lookups: &Lookups) -> io::Result<UdpSocket> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in lookups.find(to).await? {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = open(any)?;
        match socket.connect(address).await {
            Ok(()) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
