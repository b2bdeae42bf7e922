//! UDP sockets, with the offloads that make them fast: many datagrams in one system call each way.

use std::{
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

use crate::{
    error::BuildError,
    local::{Bind, Local, reaches},
    outbox::Batch,
};

/// Receive buffers, one system call's worth. Each takes up to 64 datagrams that the kernel has joined.
const RECEIVE_BUFFERS: usize = if noq_udp::BATCH_SIZE < 8 { noq_udp::BATCH_SIZE } else { 8 };

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

/// What has become of an attempt to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// It has left, or never will.
    Done,
    /// There is no room; the system tells when there is.
    Full,
    /// There is no room in a queue further down, of which nobody tells when there is.
    Short,
}

impl Sending {
    fn after(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::Full,
            io::ErrorKind::OutOfMemory => Self::Short,
            _ if is_no_buffers(error) => Self::Short,
            _ => Self::Done,
        }
    }
}

#[cfg(unix)]
fn is_no_buffers(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOBUFS)
}

#[cfg(windows)]
fn is_no_buffers(error: &io::Error) -> bool {
    const WSAENOBUFS: i32 = 10_055;
    error.raw_os_error() == Some(WSAENOBUFS)
}

#[cfg(not(any(unix, windows)))]
fn is_no_buffers(_: &io::Error) -> bool {
    false
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
        Self::of(socket, bind, receive_buffer)
    }

    /// Takes a socket that somebody else has bound.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) fn adopt(socket: std::net::UdpSocket, receive_buffer: usize) -> Result<Self, BuildError> {
        tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let address = socket.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let failed = |reason: String| BuildError::Socket { address, reason };
        let socket = socket2::Socket::from(socket);
        if address.port() == 0 {
            return Err(failed("it is not bound".into()));
        }
        // Each address is to have one form.
        if address.is_ipv6() && address.ip().is_unspecified() && !socket.only_v6().unwrap_or(true) {
            return Err(failed(
                "it takes IPv4 packets as IPv6; let it take IPv6 only (IPV6_V6ONLY; in a unit of systemd BindIPv6Only=ipv6-only), and hand over another for IPv4".into(),
            ));
        }
        Self::of(socket, Bind::Address(address), receive_buffer).map_err(|error| failed(error.to_string()))
    }

    /// A socket that is bound.
    fn of(socket: socket2::Socket, bind: Bind, receive_buffer: usize) -> io::Result<Self> {
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

    /// The sockets that `bind` asks for; at least one.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) fn open_all_of(bind: &Bind, receive_buffer: usize) -> Result<Vec<Self>, BuildError> {
        tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (addresses, device) = bind.addresses()?;
        let open = |address| {
            Self::open(address, device, bind.clone(), receive_buffer)
                .map_err(|source| BuildError::Bind { bind: bind.clone(), source })
        };
        addresses.into_iter().map(open).collect()
    }

    /// The socket that `bind` asks for and that can reach `remote`, as far as its IP version goes.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub(crate) fn open_towards(bind: &Bind, remote: SocketAddr, receive_buffer: usize) -> Result<Self, BuildError> {
        let (addresses, device) = bind.addresses()?;
        // Of IPv6 each interface has an address of its link, which leads no further.
        let stays = |address: &SocketAddr| device.is_some() && address.is_ipv6() && !reaches(address.ip(), remote.ip());
        let leads = |address: &SocketAddr| address.is_ipv4() == remote.is_ipv4() && !stays(address);
        let address = addresses.into_iter().find(leads);
        let failed = |source| BuildError::Bind { bind: bind.clone(), source };
        let address = address.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
        Self::open(address, device, bind.clone(), receive_buffer).map_err(failed)
    }

    /// As the application sees it.
    pub(crate) fn describe(&self) -> Local {
        Local { id: self.local, address: self.address, bind: self.bind.clone() }
    }

    /// Takes what has arrived. Each element of `meta[..n]` tells of the buffer of the same index. With `unannounced`, also what the runtime has not
    /// heard of yet.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has.
    pub(crate) fn receive(&self, buffers: &mut ReceiveBuffers, unannounced: bool) -> io::Result<usize> {
        let (data, meta) = (&mut buffers.data, &mut buffers.meta);
        let mut chunks = data.chunks_exact_mut(ReceiveBuffers::EACH);
        let mut slices: [_; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("as many as there are buffers")));
        let mut receive = || self.state.recv((&self.io).into(), &mut slices, meta);
        if unannounced { receive() } else { self.io.try_io(Interest::READABLE, receive) }
    }

    /// Ties it to one peer: then the system tells what is said of its port.
    pub(crate) async fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.io.connect(peer).await
    }

    /// Sends to the peer that it is [tied](Self::connect) to.
    pub(crate) async fn send_to_peer(&self, data: &[u8]) -> io::Result<usize> {
        self.io.send(data).await
    }

    /// Waits for something from that peer, or of it.
    pub(crate) async fn receive_from_peer(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.recv(buffer).await
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

    /// Sends a batch, as far as the system lets us. What else can go wrong is a loss, which QUIC mends: a firewall that forbids it (EPERM), no
    /// route, a link that is down, an interface that is no more (ENODEV). It concerns this socket alone, and costs one call for each datagram
    /// that the protocol sends, which on a path that does not answer is not many.
    pub(crate) fn send(&self, batch: &Batch) -> Sending {
        let Err(error) = self.try_send(batch, &batch.data, Some(batch.segment)) else { return Sending::Done };
        let sending = Sending::after(&error);
        if sending != Sending::Done {
            return sending;
        }
        if batch.count > 1 && self.max_segments() == 1 {
            // The network card cannot segment, which shows only now: noq-udp has taken note. One by one, then.
            for datagram in batch.data.chunks(batch.segment) {
                if let Err(error) = self.try_send(batch, datagram, None) {
                    self.note_error(batch.remote, &error);
                }
            }
            return Sending::Done;
        }
        self.note_error(batch.remote, &error);
        Sending::Done
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
            // What a probe for the path's MTU is there to find out. If the interface's MTU has shrunk, QUIC sees that nothing large arrives any more.
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

#[cfg(all(test, unix))]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn only_want_of_room_is_waited_for() {
        let after = |errno: Errno| Sending::after(&errno.into());
        assert_eq!(after(Errno::AGAIN), Sending::Full);
        for short in [Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(after(short), Sending::Short, "{short:?}");
        }
        let lost = [
            Errno::PERM,
            Errno::ACCESS,
            Errno::MSGSIZE,
            Errno::NODEV,
            Errno::NXIO,
            Errno::NETDOWN,
            Errno::NETUNREACH,
            Errno::HOSTUNREACH,
            Errno::ADDRNOTAVAIL,
            Errno::INVAL,
            Errno::CONNREFUSED,
        ];
        for lost in lost {
            assert_eq!(after(lost), Sending::Done, "{lost:?}");
        }
    }

    async fn open() -> Socket {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Socket::open(address, None, address.into(), 1 << 16).expect("loopback");
        std::future::poll_fn(|cx| socket.poll_writable(cx)).await;
        socket
    }

    fn batch(remote: SocketAddr, size: usize) -> Batch {
        Batch { remote, source: None, ecn: None, segment: size, count: 1, data: vec![1; size] }
    }

    /// What a socket may send after all these.
    async fn arrives(from: &Socket, to: &Socket) {
        assert_eq!(from.send(&batch(to.address, 100)), Sending::Done);
        let mut buffers = ReceiveBuffers::new();
        let arrived = async {
            loop {
                std::future::poll_fn(|cx| to.poll_readable(cx)).await;
                if to.receive(&mut buffers, false).is_ok() {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), arrived).await.expect("it arrives");
    }

    #[tokio::test]
    async fn what_is_forbidden_is_lost_and_nothing_else_is() {
        let (from, to) = (open().await, open().await);
        // A socket that was not allowed to broadcast gets EACCES; on some systems, from loopback, that there is no way.
        let broadcast = SocketAddr::from(([255, 255, 255, 255], 4433));
        assert_eq!(from.send(&batch(broadcast, 100)), Sending::Done);
        assert!(from.last_error(broadcast).is_some());
        arrives(&from, &to).await;
    }

    #[tokio::test]
    async fn what_is_too_large_is_lost_without_a_word() {
        let (from, to) = (open().await, open().await);
        // More than a datagram can be: EMSGSIZE, whatever the interface's MTU.
        assert_eq!(from.send(&batch(to.address, 65_508)), Sending::Done);
        assert_eq!(from.last_error(to.address), None);
        arrives(&from, &to).await;
    }
}
