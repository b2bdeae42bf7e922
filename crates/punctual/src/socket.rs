//! UDP sockets, with the offloads that make them fast: many datagrams in one system call each way.

use std::{
    collections::VecDeque,
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use noq_udp::{RecvMeta, UdpSocketState};
use punctual_proto::{EcnCodepoint, LocalId};
use socket2::{Domain, Protocol, Type};
use tokio::io::Interest;
use tracing::{debug, warn};

use crate::local::Bind;

/// The largest UDP payload over IPv4; more cannot be handed over in one call, however it is segmented.
const MAX_UDP_PAYLOAD: usize = 65_507;

/// What every path carries (RFC 9000, section 14).
const MIN_MTU: usize = 1_200;

/// Receive buffers, one system call's worth. Each takes up to 64 datagrams that the kernel has joined.
const RECEIVE_BUFFERS: usize = if noq_udp::BATCH_SIZE < 8 { noq_udp::BATCH_SIZE } else { 8 };

/// Bytes that wait for a socket whose send buffer is full; what comes on top is lost, as in any queue that is full. Two of Linux's
/// default send buffers: data that waits here can no longer be overtaken by a more urgent block.
const MAX_BACKLOG: usize = 512 << 10;

/// A UDP socket.
pub(crate) struct Socket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    pub(crate) address: SocketAddr,
    pub(crate) bind: Bind,
    /// The end that is this socket as such.
    pub(crate) local: LocalId,
    /// Whether each of our addresses behind it is an end of its own.
    pub(crate) by_address: bool,
    errors: Mutex<SendErrors>,
}

/// The last error in sending, and how many were not worth a line in the log.
#[derive(Default)]
struct SendErrors {
    last: Option<(SocketAddr, String)>,
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl Socket {
    /// Binds a socket. `device` ties it to an interface, and is no reason to fail: see [`Bind::Interface`].
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(
        address: SocketAddr,
        device: Option<&str>,
        bind: Bind,
        receive_buffer: usize,
    ) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            // An IPv4 packet is never shown as an IPv6 one, so that an address has one form.
            socket.set_only_v6(true)?;
        }
        let address = match device {
            Some(name) if bind_device(&socket, name) => SocketAddr::new(unspecified(address), address.port()),
            _ => address,
        };
        socket.bind(&address.into())?;
        if let Err(error) = socket.set_recv_buffer_size(receive_buffer) {
            debug!(%error, "receive buffer stays as it is");
        }
        let socket: std::net::UdpSocket = socket.into();
        // Sets it non-blocking, among other things.
        let state = UdpSocketState::new((&socket).into())?;
        let io = tokio::net::UdpSocket::from_std(socket)?;
        let address = io.local_addr()?;
        Ok(Self { io, state, address, bind, local: LocalId(u32::MAX), by_address: false, errors: Mutex::default() })
    }

    /// Takes what has arrived. Each element of `meta[..n]` tells of the buffer of the same index.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has.
    pub(crate) fn receive(&self, buffers: &mut ReceiveBuffers) -> io::Result<usize> {
        let (data, meta) = (&mut buffers.data, &mut buffers.meta);
        let mut chunks = data.chunks_exact_mut(ReceiveBuffers::EACH);
        let mut slices: [_; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("as many as there are buffers")));
        self.io.try_io(Interest::READABLE, || self.state.recv((&self.io).into(), &mut slices, meta))
    }

    /// Ready when there may be something to receive.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_recv_ready(cx).map(drop)
    }

    /// Ready when there may be room to send.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_send_ready(cx).map(drop)
    }

    /// The most datagrams one call can send.
    pub(crate) fn max_segments(&self) -> usize {
        self.state.max_gso_segments().get()
    }

    /// What the system last said against sending to `remote`.
    pub(crate) fn last_error(&self, remote: SocketAddr) -> Option<String> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.last.as_ref().filter(|(to, _)| *to == remote).map(|(_, error)| error.clone())
    }

    /// Sends a batch; `false` if there is no room for it now. Everything else that can go wrong is a loss, which QUIC mends.
    fn send(&self, batch: &Batch) -> bool {
        let Err(error) = self.try_send(batch, &batch.data, Some(batch.segment)) else { return true };
        if error.kind() == io::ErrorKind::WouldBlock {
            return false;
        }
        if batch.count > 1 && self.max_segments() == 1 {
            // The network card cannot segment, which shows only now: noq-udp has taken note. One by one, then.
            for datagram in batch.data.chunks(batch.segment) {
                if let Err(error) = self.try_send(batch, datagram, None) {
                    self.note_error(batch.remote, &error);
                }
            }
            return true;
        }
        self.note_error(batch.remote, &error);
        true
    }

    fn try_send(&self, batch: &Batch, contents: &[u8], segment_size: Option<usize>) -> io::Result<()> {
        let transmit = noq_udp::Transmit {
            destination: batch.remote,
            ecn: batch.ecn.and_then(|ecn| noq_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size,
            src_ip: batch.source,
        };
        self.io.try_io(Interest::WRITABLE, || self.state.try_send((&self.io).into(), &transmit))
    }

    fn note_error(&self, remote: SocketAddr, error: &io::Error) {
        if noq_udp::is_msg_size_err(error) {
            // What a probe for the path's MTU is there to find out.
            return;
        }
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.last = Some((remote, error.to_string()));
        let now = Instant::now();
        if errors.logged_at.is_some_and(|at| now.duration_since(at) < Duration::from_secs(1)) {
            errors.unlogged += 1;
            return;
        }
        errors.logged_at = Some(now);
        let unlogged = std::mem::take(&mut errors.unlogged);
        warn!(local = %self.address, %remote, %error, unlogged, "cannot send");
    }
}

#[cfg(target_os = "linux")]
fn bind_device(socket: &socket2::Socket, name: &str) -> bool {
    socket
        .bind_device(Some(name.as_bytes()))
        .inspect_err(|error| debug!(%error, name, "cannot tie a socket to the interface; binding its address instead"))
        .is_ok()
}

#[cfg(not(target_os = "linux"))]
fn bind_device(_: &socket2::Socket, _: &str) -> bool {
    false
}

fn unspecified(address: SocketAddr) -> IpAddr {
    match address {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Room for what one system call receives; shared by an endpoint's sockets.
pub(crate) struct ReceiveBuffers {
    data: Vec<u8>,
    meta: [RecvMeta; RECEIVE_BUFFERS],
}

impl ReceiveBuffers {
    /// The kernel joins at most 64 datagrams, and never to more than a UDP payload can be.
    const EACH: usize = 1 << 16;

    pub(crate) fn new() -> Self {
        Self { data: vec![0; Self::EACH * RECEIVE_BUFFERS], meta: [RecvMeta::default(); RECEIVE_BUFFERS] }
    }

    /// What the first `n` buffers hold: where from and to, and the datagrams.
    pub(crate) fn received(&self, n: usize) -> impl Iterator<Item = Received<'_>> {
        self.meta[..n].iter().zip(self.data.chunks_exact(Self::EACH)).map(|(meta, data)| Received {
            remote: meta.addr,
            to: meta.dst_ip,
            ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
            datagrams: data[..meta.len.min(Self::EACH)].chunks(meta.stride.max(1)),
        })
    }
}

/// One buffer's worth: datagrams that came from one peer in one go.
pub(crate) struct Received<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) to: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) datagrams: std::slice::Chunks<'a, u8>,
}

/// Datagrams of one size (the last may be shorter) that leave in one call.
#[derive(Debug)]
struct Batch {
    remote: SocketAddr,
    source: Option<IpAddr>,
    ecn: Option<EcnCodepoint>,
    segment: usize,
    count: usize,
    data: Vec<u8>,
}

impl Batch {
    /// Whether the datagram could join.
    fn takes(&self, datagram: &Datagram<'_>, max_segments: usize) -> bool {
        self.is_to(datagram)
            && self.ecn == datagram.ecn
            && self.count < max_segments
            && (datagram.data.len() == self.segment || self.is_of_proven_size() && datagram.data.len() < self.segment)
            && self.data.len() == self.segment * self.count
            && self.data.len() + datagram.data.len() <= MAX_UDP_PAYLOAD
    }

    /// Whether this cannot be a probe for a larger MTU: those are alone of their size. Were one joined by another datagram and too
    /// large for the interface, both would be lost, and older kernels would answer as if segmentation as such were not
    /// supported.
    fn is_of_proven_size(&self) -> bool {
        self.count > 1 || self.segment <= MIN_MTU
    }

    fn is_to(&self, datagram: &Datagram<'_>) -> bool {
        self.remote == datagram.remote && self.source == datagram.source
    }
}

/// A datagram on its way to a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) data: &'a [u8],
}

/// What waits to leave through one socket.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    batches: VecDeque<Batch>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    bytes: usize,
    /// The socket's send buffer was full.
    blocked: bool,
    overflowed: u64,
}

impl Outbox {
    /// Puts a datagram behind the others, joined to the last one that goes the same way if the two can leave together.
    pub(crate) fn push(&mut self, datagram: Datagram<'_>, max_segments: usize) {
        if self.bytes + datagram.data.len() > MAX_BACKLOG {
            self.overflowed += 1;
            if self.overflowed.is_power_of_two() {
                warn!(remote = %datagram.remote, lost = self.overflowed, "the socket does not keep up; datagrams are lost");
            }
            return;
        }
        self.bytes += datagram.data.len();
        // Paths take turns packet by packet; looking past the other paths' batches keeps each path's packets together, in order.
        let last = self.batches.iter_mut().rev().take(16).find(|batch| batch.is_to(&datagram));
        if let Some(batch) = last.filter(|batch| batch.takes(&datagram, max_segments)) {
            batch.data.extend_from_slice(datagram.data);
            batch.count += 1;
            return;
        }
        let mut data = self.spare.pop().unwrap_or_default();
        data.extend_from_slice(datagram.data);
        let Datagram { remote, source, ecn, .. } = datagram;
        self.batches.push_back(Batch { remote, source, ecn, segment: data.len(), count: 1, data });
    }

    /// Sends what there is room for.
    pub(crate) fn flush(&mut self, socket: &Socket) {
        self.blocked = false;
        while let Some(batch) = self.batches.front() {
            if !socket.send(batch) {
                self.blocked = true;
                return;
            }
            let mut data = self.batches.pop_front().expect("it was there").data;
            self.bytes -= data.len();
            data.clear();
            if self.spare.len() < 16 {
                self.spare.push(data);
            }
        }
    }

    /// Whether something waits for the socket to have room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn batches(outbox: &Outbox) -> Vec<(u16, usize, usize)> {
        outbox.batches.iter().map(|b| (b.remote.port(), b.count, b.data.len())).collect()
    }

    fn push(outbox: &mut Outbox, port: u16, len: usize, max_segments: usize) {
        let data = vec![0; len];
        outbox.push(Datagram { remote: address(port), source: None, ecn: None, data: &data }, max_segments);
    }

    #[test]
    fn equal_datagrams_of_a_path_leave_together() {
        let mut outbox = Outbox::default();
        // Two paths that take turns; a shorter datagram ends a batch, a longer one begins the next.
        for (port, len) in [(1, 1200), (2, 1200), (1, 1200), (2, 1200), (1, 700), (1, 700), (2, 1300), (1, 600)] {
            push(&mut outbox, port, len, 64);
        }
        assert_eq!(batches(&outbox), [(1, 3, 3100), (2, 2, 2400), (1, 2, 1300), (2, 1, 1300)]);
    }

    #[test]
    fn marks_and_limits_part_batches() {
        let mut outbox = Outbox::default();
        push(&mut outbox, 1, 100, 2);
        push(&mut outbox, 1, 100, 2);
        push(&mut outbox, 1, 100, 2);
        let marked = Datagram { remote: address(1), source: None, ecn: Some(EcnCodepoint::Ect0), data: &[0; 100] };
        outbox.push(marked, 2);
        assert_eq!(batches(&outbox), [(1, 2, 200), (1, 1, 100), (1, 1, 100)]);
        let mut outbox = Outbox::default();
        for _ in 0..64 {
            push(&mut outbox, 1, 1472, 64);
        }
        assert_eq!(batches(&outbox), [(1, 44, 44 * 1472), (1, 20, 20 * 1472)]);
    }

    #[test]
    fn a_probe_for_the_mtu_leaves_alone() {
        let mut outbox = Outbox::default();
        for len in [1300, 1300, 700, 1452, 1300, 1300] {
            push(&mut outbox, 1, len, 64);
        }
        assert_eq!(batches(&outbox), [(1, 3, 3300), (1, 1, 1452), (1, 2, 2600)]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut outbox = Outbox::default();
        for _ in 0..10_000 {
            push(&mut outbox, 1, 1200, 64);
        }
        assert!(outbox.bytes <= MAX_BACKLOG && outbox.overflowed > 0);
    }

    #[tokio::test]
    async fn a_batch_arrives_datagram_by_datagram() {
        let open = || Socket::open(address(0), None, Bind::Address(address(0)), 1 << 20).expect("loopback");
        let (from, to) = (open(), open());
        let mut outbox = Outbox::default();
        for n in 0..10u8 {
            let data = vec![n; if n == 9 { 50 } else { 1000 }];
            let datagram = Datagram { remote: to.address, source: None, ecn: Some(EcnCodepoint::Ect0), data: &data };
            outbox.push(datagram, from.max_segments());
        }
        let (mut buffers, mut seen) = (ReceiveBuffers::new(), Vec::new());
        while seen.len() < 10 {
            outbox.flush(&from);
            if outbox.is_blocked() {
                std::future::poll_fn(|cx| from.poll_writable(cx)).await;
                continue;
            }
            std::future::poll_fn(|cx| to.poll_readable(cx)).await;
            let Ok(n) = to.receive(&mut buffers) else { continue };
            for received in buffers.received(n) {
                assert_eq!(received.remote, from.address);
                assert_eq!(received.ecn, Some(EcnCodepoint::Ect0));
                seen.extend(received.datagrams.map(|d| (d[0], d.len())));
            }
        }
        assert_eq!(seen, (0..10).map(|n| (n, if n == 9 { 50 } else { 1000 })).collect::<Vec<_>>());
    }
}
