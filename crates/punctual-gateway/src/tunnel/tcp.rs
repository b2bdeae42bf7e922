//! TCP ports: connections on this side, flows to the other. What is read is carried in order and without a deadline, no faster than the far
//! side's program reads.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{BufMut as _, BytesMut};
use punctual::{Block, Channel, SendError, Session};
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::{
    io::Interest,
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tracing::{debug, info, warn};

use super::{
    Shared,
    flows::{Flow, Order, Task, TcpFlow},
    inbox::Inbox,
    listening::Listening,
    name::{Name, Protocol},
    peer::Peer,
    say::own,
    wire::{FlowId, INITIAL_CREDIT, StopReason, Word},
};
use crate::{class::Class, surely};

/// Bytes of a connection that are carried as one block, at most.
const LARGEST: usize = 65_536;
/// Bytes that may be under way to, or wait for, a program that reads: enough for 300 Mbit/s over 100 ms.
const WINDOW: u64 = 4 << 20;
/// Connections that wait to be accepted: what tokio's own listeners have.
const BACKLOG: i32 = 1_024;
/// How long to wait after an error in accepting: there may be no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// After how long a silence it is asked whether a program's host is still there,
const ASK_AFTER: Duration = Duration::from_secs(60);
/// and how often from then on. How often in vain is for the system to say: Linux has nine.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// How long it may take to reach where a port is forwarded to.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A connection, and all that its task needs.
struct Connection {
    peer: Arc<Peer>,
    session: Session,
    id: FlowId,
    name: Name,
    channel: Channel,
    class: Arc<Class>,
    came: Arc<Inbox>,
    granted: Arc<AtomicU64>,
    credit: watch::Receiver<u64>,
}

/// Why a connection ended before its time.
#[derive(Debug, Error)]
enum Broken {
    #[error(transparent)]
    Program(#[from] io::Error),
    #[error(transparent)]
    Session(#[from] SendError),
    #[error("the far side stopped it")]
    Stopped,
}

/// A socket to listen with.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    if address.is_ipv6() {
        // As of UDP, so that 0.0.0.0 and [::] can be listened to by different names.
        socket.set_only_v6(true)?;
    }
    // Not of Windows, where it would let two listen at one port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts connections of this side's programs, and never returns.
pub(super) async fn hear(listening: Arc<Listening>, listener: Arc<TcpListener>, shared: Arc<Shared>) {
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(name = %listening.port.name, %error, "cannot accept");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        resets_when_dropped(&stream);
        let name = listening.port.name.clone();
        let found = shared.choose(Protocol::Tcp, &name);
        let Some((peer, (session, generation))) = found.and_then(|peer| Some((peer.clone(), peer.session()?))) else {
            listening.complain("no far gateway forwards this port");
            continue;
        };
        let class = super::lock(&listening.carried).class.clone();
        let begun = begin(&peer, &shared, &session, generation, None, name, class, |connection| async move {
            let open = Word::Open { flow: connection.id, name: connection.name.clone() };
            connection.session.send(own(&connection.session, open).channel(connection.channel)).await?;
            let Connection { peer, name, id, .. } = &connection;
            debug!(%name, program = %from, flow = id.0, gateway = %peer, "connection begins");
            connection.carry(stream).await
        });
        if let Err(reason) = begun {
            listening.complain(reason.words());
        }
    }
}

/// The far side begins a connection.
pub(super) fn begin_inward(
    peer: &Arc<Peer>,
    shared: &Arc<Shared>,
    session: &Session,
    generation: u64,
    id: FlowId,
    name: &Name,
) -> Result<(), StopReason> {
    let plan = shared.plan();
    let forward = plan.forward(Protocol::Tcp, name).ok_or(StopReason::NoSuchPort)?;
    let to = forward.to.clone();
    let class = forward.carried.class.clone();
    begin(peer, shared, session, generation, Some(id), name.clone(), class, |connection| async move {
        let connect = async { TcpStream::connect(&*connection.peer.lookups.find(&to).await?).await };
        let stream = match tokio::time::timeout(CONNECT_WITHIN, connect).await {
            Ok(connected) => connected,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        match stream {
            Ok(stream) => {
                resets_when_dropped(&stream);
                connection.carry(stream).await
            }
            Err(error) => {
                let Connection { peer, name, id, .. } = &connection;
                info!(%name, flow = id.0, gateway = %peer, to, %error, "cannot forward");
                connection.stop(StopReason::Unreachable).await;
                Ok(())
            }
        }
    })
}

/// Puts a connection among the peer's flows, with a task that ends with it.
#[expect(clippy::too_many_arguments, reason = "what a connection is made of, from two sides")]
fn begin<F: Future<Output = Result<(), Broken>> + Send + 'static>(
    peer: &Arc<Peer>,
    shared: &Shared,
    session: &Session,
    generation: u64,
    id: Option<FlowId>,
    name: Name,
    class: Arc<Class>,
    run: impl FnOnce(Connection) -> F,
) -> Result<(), StopReason> {
    let came = Arc::new(Inbox::default());
    let (raise, credit) = watch::channel(INITIAL_CREDIT);
    let granted = Arc::new(AtomicU64::new(INITIAL_CREDIT));
    let id = id.unwrap_or_else(|| shared.number(peer.side));
    peer.insert(shared.plan().limits.flows, id, Order::Bytes, |channel| {
        // All of TCP is in order, so there is one.
        let channel = channel.unwrap_or(Channel(0));
        let (session, granted_here) = (session.clone(), granted.clone());
        let ended = (peer.clone(), session.clone());
        let connection = Connection {
            peer: peer.clone(),
            session,
            id,
            name: name.clone(),
            channel,
            class,
            came: came.clone(),
            granted: granted_here,
            credit,
        };
        let carried = run(connection);
        let task = tokio::spawn(async move {
            let (peer, session) = ended;
            if let Err(broken) = carried.await {
                debug!(%name, flow = id.0, gateway = %peer, error = %broken, "connection reset");
                if !matches!(broken, Broken::Stopped) {
                    let word = Word::Stop { flow: id, reason: StopReason::Reset };
                    // Behind what was sent: it must not come before the connection does.
                    let _ = session.send(own(&session, word).channel(channel)).await;
                }
            }
            peer.remove(id);
        });
        let task = Some(Task(task.abort_handle()));
        Flow::Tcp(TcpFlow {
            generation,
            channel,
            came,
            received: 0,
            granted,
            finished: false,
            credit: raise,
            _task: task,
        })
    })
}

/// Whoever goes away without a word of farewell has not sent all: a program must be able to tell a connection that broke from one that ended. And a program whose host
/// has gone away is to be missed.
fn resets_when_dropped(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let _ = socket.set_linger(Some(Duration::ZERO));
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(ASK_AFTER).with_interval(ASK_EVERY));
    // Blocks are made of what is there; to wait for more is not TCP's business here.
    let _ = stream.set_nodelay(true);
}

/// Waits until the connection is broken, though nothing may be read or written now.
async fn broken(stream: &TcpStream) -> io::Error {
    match stream.ready(Interest::ERROR).await {
        Ok(_) => stream.take_error().ok().flatten().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()),
        Err(error) => error,
    }
}

/// Writes all of it, as fast as the program reads.
async fn write_all(stream: &TcpStream, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        stream.writable().await?;
        match stream.try_write(data) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => data = &data[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Connection {
    /// Carries both directions to their ends.
    async fn carry(self, stream: TcpStream) -> Result<(), Broken> {
        tokio::select! {
            // What has ended as it should has not broken.
            biased;
            ended = async { tokio::try_join!(self.upward(&stream), self.downward(&stream)) } => drop(ended?),
            error = broken(&stream) => return Err(error.into()),
        }
        // Both have ended as they should.
        let _ = SockRef::from(&stream).set_linger(None);
        Ok(())
    }

    /// From the program to the far side.
    async fn upward(&self, stream: &TcpStream) -> Result<(), Broken> {
        let mut credit = self.credit.clone();
        let mut sent = 0;
        loop {
            let limit = *credit.wait_for(|limit| *limit > sent).await.map_err(|_| Broken::Stopped)?;
            let room = usize::try_from(limit - sent).unwrap_or(usize::MAX).min(LARGEST);
            // Not filled with room before there is something to read: many connections are idle.
            stream.readable().await?;
            let mut data = BytesMut::with_capacity(room).limit(room);
            let read = match stream.try_read_buf(&mut data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                read => read?,
            };
            if read == 0 {
                self.say(Word::Fin { flow: self.id, size: sent }).await?;
                return Ok(());
            }
            self.peer.may_send(read).await;
            let word = Word::Data { flow: self.id, offset: sent, data: data.into_inner().freeze() };
            self.say(word).await?;
            sent += read as u64;
        }
    }

    /// From the far side to the program.
    async fn downward(&self, stream: &TcpStream) -> Result<(), Broken> {
        let (mut written, mut window, mut larger) = (0, INITIAL_CREDIT, None);
        loop {
            let Some(data) = self.came.next().await else {
                SockRef::from(stream).shutdown(Shutdown::Write)?;
                return Ok(());
            };
            self.peer.may_forward(data.len()).await;
            write_all(stream, &data).await?;
            written += data.len() as u64;
            if larger.is_none() && written >= INITIAL_CREDIT / 2 {
                // It is more than a few words: give it the larger window, if there is room for that.
                larger = self.peer.window(WINDOW - INITIAL_CREDIT);
                window = if larger.is_some() { WINDOW } else { INITIAL_CREDIT };
            }
            let granted = self.granted.load(Ordering::Relaxed);
            if granted.saturating_sub(written) <= window / 2 {
                let limit = written + window;
                self.granted.store(limit, Ordering::Relaxed);
                self.session.send(own(&self.session, Word::Credit { flow: self.id, limit })).await?;
            }
        }
    }

    /// Says something that keeps its place.
    async fn say(&self, word: Word) -> Result<(), SendError> {
        let block = Block::new(word.encode()).priority(self.class.priority).channel(self.channel);
        self.session.send(block.redundancy(surely(&self.session, self.class.redundancy))).await.map(drop)
    }

    /// Says that it is not carried.
    async fn stop(&self, reason: StopReason) {
        let word = Word::Stop { flow: self.id, reason };
        let _ = self.session.send(own(&self.session, word).channel(self.channel)).await;
    }
}
