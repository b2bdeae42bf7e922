//! Ports at which programs of this side are listened to.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, UdpSocket},
    task::JoinHandle,
};
use tracing::{debug, warn};

use super::{Config, Listen, Protocol, Shared, StartError, ancillary, flows::UdpFlow, lock, peer::Peer, tcp, udp};
use crate::class::Carried;

/// A port that is listened at, and the task that does.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) listening: Arc<Listening>,
    socket: Socket,
    task: JoinHandle<()>,
}

/// What is listened with.
#[derive(Debug, Clone)]
enum Socket {
    Udp(Arc<UdpSocket>),
    Tcp(Arc<TcpListener>),
}

/// Where a port comes from when settings are read again.
enum Source {
    /// It is there.
    Stays(usize),
    /// Another is there that leads elsewhere.
    Replaces(usize),
    /// It is new.
    New(Socket, SocketAddr),
    /// It is new, and others that go are in its way: 0.0.0.0 and 127.0.0.1 cannot both be listened at by one port.
    Waits(Vec<usize>),
}

/// A flow that a program has begun, and the far gateway that it leads to.
type Begun = (Arc<Peer>, Arc<UdpFlow>);

/// A port that is listened at.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) port: Listen,
    /// Where it is, its port chosen.
    pub(super) address: SocketAddr,
    pub(super) carried: Mutex<Arc<Carried>>,
    /// Of UDP: the socket, until it is closed. Whoever answers by it has this locked meanwhile, so that it is closed when it is said to be;
    socket: RwLock<Option<Arc<UdpSocket>>>,
    /// and who has been heard, and at which of the host's addresses: a program that asks two of them takes the answers of each from there.
    pub(super) flows: Mutex<HashMap<(SocketAddr, Option<IpAddr>), Begun>>,
    complained: Mutex<Option<Instant>>,
}

impl Socket {
    /// A socket at an address, and the address with its port chosen.
    async fn bind(protocol: Protocol, address: SocketAddr) -> Result<(Self, SocketAddr), StartError> {
        let bound = async {
            Ok(match protocol {
                Protocol::Udp => {
                    let socket = udp::listen(address)?;
                    let address = socket.local_addr()?;
                    (Self::Udp(Arc::new(socket)), address)
                }
                Protocol::Tcp => {
                    let listener = tcp::listen(address)?;
                    let address = listener.local_addr()?;
                    (Self::Tcp(Arc::new(listener)), address)
                }
            })
        };
        bound.await.map_err(|source| StartError::Listen { protocol, address, source })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Port {
    /// Listens at a port.
    pub(super) async fn open(listen: &Listen, config: &Config, shared: &Arc<Shared>) -> Result<Self, StartError> {
        let (socket, address) = Socket::bind(listen.protocol, listen.address).await?;
        Ok(Self::with(socket, address, listen, Arc::new(config.carried(&listen.name, &listen.carry)), shared))
    }

    fn with(socket: Socket, address: SocketAddr, listen: &Listen, carried: Arc<Carried>, shared: &Arc<Shared>) -> Self {
        let listening = Arc::new(Listening {
            port: listen.clone(),
            address,
            carried: Mutex::new(carried),
            socket: RwLock::new(match &socket {
                Socket::Udp(socket) => Some(socket.clone()),
                Socket::Tcp(_) => None,
            }),
            flows: Mutex::default(),
            complained: Mutex::default(),
        });
        let task = match socket.clone() {
            Socket::Udp(socket) => tokio::spawn(udp::hear(listening.clone(), socket, shared.clone())),
            Socket::Tcp(listener) => tokio::spawn(tcp::hear(listening.clone(), listener, shared.clone())),
        };
        Self { listening, socket, task }
    }

    /// Hears nobody any more, and gives its socket to whoever will. Its flows end; the far side hears of that with what it has for them next.
    async fn stop(mut self) -> Socket {
        self.task.abort();
        let _ = (&mut self.task).await;
        for (_, (peer, flow)) in std::mem::take(&mut *lock(&self.listening.flows)) {
            peer.remove(flow.id);
        }
        self.socket.clone()
    }

    /// Hears nobody any more, and closes its socket.
    async fn close(self) {
        let listening = self.listening.clone();
        drop(self.stop().await);
        listening.socket.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Whether it is at the address of a port that settings speak of.
    fn is_at(&self, listen: &Listen) -> bool {
        let Listening { port, address, .. } = &*self.listening;
        (port.protocol, *address) == (listen.protocol, listen.address)
    }

    /// Whether a port that settings speak of may have no room beside it.
    fn is_in_the_way_of(&self, listen: &Listen) -> bool {
        let Listening { port, address, .. } = &*self.listening;
        (port.protocol, address.port()) == (listen.protocol, listen.address.port())
            && (address.ip().is_unspecified() || listen.address.ip().is_unspecified())
    }

    /// Listens where other settings say. What is new is opened before what is gone is closed, but for what cannot be there at once; if it cannot be opened,
    /// all is as it was.
    pub(super) async fn reopen(ports: &mut Vec<Self>, config: &Config, shared: &Arc<Shared>) -> Result<(), StartError> {
        let mut sources = sources(ports, config).await?;
        let mut old: Vec<_> = ports.drain(..).map(Some).collect();
        let opened = open_waiting(&mut sources, &mut old, config, shared).await;
        if opened.is_err() {
            ports.extend(old.into_iter().flatten());
            return opened;
        }
        for (listen, source) in config.listen.iter().zip(sources) {
            let carried = Arc::new(config.carried(&listen.name, &listen.carry));
            match source {
                Source::Stays(index) => {
                    let port = old[index].take();
                    port.iter().for_each(|port| port.listening.carry(carried.clone()));
                    ports.extend(port);
                }
                Source::Replaces(index) => {
                    if let Some(port) = old[index].take() {
                        let address = port.listening.address;
                        ports.push(Self::with(port.stop().await, address, listen, carried, shared));
                    }
                }
                Source::New(socket, address) => ports.push(Self::with(socket, address, listen, carried, shared)),
                Source::Waits(_) => {}
            }
        }
        for gone in old.into_iter().flatten() {
            gone.close().await;
        }
        Ok(())
    }
}

/// Where the ports that settings speak of come from; what is new is opened, if it can be now.
async fn sources(ports: &[Port], config: &Config) -> Result<Vec<Source>, StartError> {
    let mut free: Vec<usize> = (0..ports.len()).collect();
    let mut claim = |fits: &dyn Fn(&Port) -> bool| {
        let place = free.iter().position(|index| fits(&ports[*index]))?;
        Some(free.remove(place))
    };
    let mut found: Vec<_> =
        config.listen.iter().map(|listen| claim(&|port| port.listening.is(listen)).map(Source::Stays)).collect();
    for (listen, source) in config.listen.iter().zip(&mut found) {
        if source.is_none() {
            *source = claim(&|port| port.is_at(listen)).map(Source::Replaces);
        }
    }
    let mut sources = Vec::with_capacity(found.len());
    for (listen, source) in config.listen.iter().zip(found) {
        sources.push(match source {
            Some(source) => source,
            None => match Socket::bind(listen.protocol, listen.address).await {
                Ok((socket, address)) => Source::New(socket, address),
                Err(error) => {
                    let in_the_way = |index: &usize| ports[*index].is_in_the_way_of(listen);
                    let go: Vec<usize> = free.iter().copied().filter(in_the_way).collect();
                    if go.is_empty() {
                        return Err(error);
                    }
                    Source::Waits(go)
                }
            },
        });
    }
    Ok(sources)
}

/// Closes what is in the way of new ports, and opens these. If one cannot be opened, what was closed is opened again.
async fn open_waiting(
    sources: &mut [Source],
    old: &mut [Option<Port>],
    config: &Config,
    shared: &Arc<Shared>,
) -> Result<(), StartError> {
    let mut closed = Vec::new();
    for (listen, source) in config.listen.iter().zip(&mut *sources) {
        let Source::Waits(in_the_way) = source else { continue };
        for index in in_the_way {
            if let Some(port) = old[*index].take() {
                let Listening { port: listen, address, carried, .. } = &*port.listening;
                closed.push((*index, *address, listen.clone(), lock(carried).clone()));
                port.close().await;
            }
        }
        match Socket::bind(listen.protocol, listen.address).await {
            Ok((socket, address)) => *source = Source::New(socket, address),
            Err(failed) => {
                // Those that were opened in their place go first.
                sources.iter_mut().for_each(|source| *source = Source::Waits(Vec::new()));
                for (index, address, listen, carried) in closed {
                    match Socket::bind(listen.protocol, address).await {
                        Ok((socket, _)) => old[index] = Some(Port::with(socket, address, &listen, carried, shared)),
                        Err(error) => {
                            warn!(name = %listen.name, port = %address, %error, "lost: cannot be listened at again")
                        }
                    }
                }
                return Err(failed);
            }
        }
    }
    Ok(())
}

impl Listening {
    /// How often one port's troubles are told.
    const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

    /// Whether this is the port that settings speak of.
    fn is(&self, listen: &Listen) -> bool {
        let Listen { protocol, address, name, .. } = &self.port;
        (protocol, address, name) == (&listen.protocol, &listen.address, &listen.name)
    }

    /// Carries what comes otherwise from now on.
    fn carry(&self, carried: Arc<Carried>) {
        for (peer, flow) in lock(&self.flows).values() {
            peer.carry(flow, &carried);
        }
        *lock(&self.carried) = carried;
    }

    /// Gives a program an answer, from the address that it asked. `false` if it is dropped.
    pub(super) fn answer(&self, datagram: &[u8], program: SocketAddr, at: Option<IpAddr>) -> bool {
        let socket = self.socket.read().unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = &*socket else { return false };
        let sent = ancillary::send_from(socket, datagram, program, at);
        if let Err(error) = &sent {
            debug!(name = %self.port.name, %program, %error, "answer dropped");
        }
        sent.is_ok()
    }

    /// Forgets who has been silent for too long, unless they have begun another flow.
    pub(super) fn forget(&self, flow: &Arc<UdpFlow>, at: Option<IpAddr>) {
        let mut flows = lock(&self.flows);
        if flows.get(&(flow.program, at)).is_some_and(|(_, known)| Arc::ptr_eq(known, flow)) {
            flows.remove(&(flow.program, at));
        }
    }

    /// Says what is wrong, unless that has just been said.
    pub(super) fn complain(&self, why: &str) {
        let now = Instant::now();
        let mut complained = lock(&self.complained);
        if complained.is_none_or(|then| now.saturating_duration_since(then) >= Self::COMPLAIN_EVERY) {
            *complained = Some(now);
            warn!(name = %self.port.name, port = %self.address, why, "not carried");
        }
    }
}
