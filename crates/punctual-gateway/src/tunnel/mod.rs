//! UDP and TCP ports through a session.
//!
//! A [`Tunnel`] has the ports; sessions come and go. Flows of datagrams outlive the session that carries them: the far gateway knows by the greeting who
//! calls again. TCP connections do not, as nobody knows what of them arrived.
//!
//! ```no_run
//! # async fn example(session: punctual::Session) -> Result<(), Box<dyn std::error::Error>> {
//! use punctual_gateway::tunnel::{Config, Tunnel};
//!
//! let config = Config { listen: vec!["udp:127.0.0.1:5000=camera".parse()?], ..Config::default() };
//! let tunnel = Tunnel::start(config).await?;
//! // Whoever has a session with a gateway that forwards `camera` hands it over.
//! let ended = tunnel.call(session).await;
//! println!("{ended}");
//! # Ok(())
//! # }
//! ```
//!
//! The grammar is in [`wire`], and in `docs/gateway.md` for a second implementation.

mod ancillary;
mod config;
mod flows;
mod inbox;
mod listening;
mod lookup;
mod name;
mod peer;
mod say;
mod tcp;
mod udp;
pub mod wire;

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use punctual::{CloseReason, Outcome, SentBlock, Session};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

pub use config::{Carry, Config, ConfigError, Forward, Limits, Listen, check_beside};
pub use name::{Name, NameError, Protocol};
pub use peer::Violation;

use crate::{
    class::{Carried, Treatment},
    metrics::{Gateways, Metrics, Snapshot},
};
use flows::{Task, UdpFlow, Unknown};
use listening::Port;
use peer::{Peer, Side};
use say::Stops;
use wire::{FlowId, Hello, Instance, Word};

/// The codes with which a gateway closes a session; 0 is an end in peace.
pub mod close {
    /// The session is not wanted: it is no gateway's, there are as many as are allowed, or another gateway has a name that it forwards. The words say which.
    pub const REFUSED: u32 = 2;
    /// The gateway was told to stop, or the same gateway has another session.
    pub const STOPPED: u32 = 3;
    /// What the far side said makes no sense.
    pub const VIOLATION: u32 = 4;
}

/// How long the far side may take to greet.
const GREET_WITHIN: Duration = Duration::from_secs(10);

/// Locks what only short and sound code has locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings that a gateway's sessions need: larger blocks than a datagram's are not taken, and as many channels are allowed as the tunnel's
/// protocol says.
pub fn session_limits(limits: punctual::Limits) -> punctual::Limits {
    limits.max_block_size(LARGEST_BLOCK).channels(flows::CHANNELS as usize)
}

/// The largest datagram, and what stands in front of it, with room for later versions.
const LARGEST_BLOCK: u64 = 128 << 10;

/// Ports of this side, and the far gateways that they lead to. Dropping it closes all its ports and flows.
#[derive(Debug)]
pub struct Tunnel {
    shared: Arc<Shared>,
    listening: tokio::sync::Mutex<Vec<Port>>,
    _chores: [Task; 2],
}

/// What all tasks of a tunnel share.
#[derive(Debug)]
struct Shared {
    instance: Instance,
    plan: RwLock<Arc<Plan>>,
    /// Told when there is another plan: each session greets anew then.
    replanned: watch::Sender<()>,
    /// Far gateways, in the order in which they last came.
    peers: Mutex<Vec<Arc<Peer>>>,
    /// Flows that began here.
    flows: AtomicU64,
    followed: mpsc::UnboundedSender<Followed>,
    metrics: Metrics,
}

/// What is forwarded, and the bounds.
#[derive(Debug)]
struct Plan {
    forwards: HashMap<(Protocol, Name), Forwarding>,
    limits: Limits,
}

/// A port that is forwarded.
#[derive(Debug)]
struct Forwarding {
    to: String,
    carried: Arc<Carried>,
}

/// A datagram whose end is waited for.
struct Followed {
    sent: SentBlock,
    flow: Arc<UdpFlow>,
    treatment: Treatment,
    /// It says what the flow is, as the far side did not know it.
    unknown: Option<Unknown>,
}

/// A tunnel could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// It makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot listen somewhere.
    #[error("cannot listen at {protocol}:{address}: {source}")]
    Listen {
        /// What was to be spoken there.
        protocol: Protocol,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

/// How a session of a tunnel ended.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Ended {
    /// It was closed, or lost.
    #[error("{0}")]
    Closed(CloseReason),
    /// The far side has not greeted: it is no gateway.
    #[error("the far side has not greeted; is it a gateway (`punctual tunnel`)?")]
    NoGreeting,
    /// The far side broke the tunnel's protocol.
    #[error("the far side broke the tunnel's protocol: {0}")]
    Violation(#[from] Violation),
    /// There are as many far gateways as are allowed.
    #[error("as many gateways as are allowed are here already")]
    Full,
    /// The far side forwards a port by a name that another gateway has while it is connected: one with another certificate, or, where one of the two has none, any other.
    #[error("`{1}` ({0}) is forwarded by another gateway that is connected, with another identity")]
    NameTaken(Protocol, Name),
}

impl Tunnel {
    /// Opens the ports of this side. Nothing passes until there is a session: see [`call`](Self::call), [`answer`](Self::answer).
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(config: Config) -> Result<Self, StartError> {
        config.check()?;
        let (followed, follow) = mpsc::unbounded_channel();
        let shared = Arc::new_cyclic(|shared| Shared {
            instance: Instance(rand::random()),
            plan: RwLock::new(Arc::new(Plan::of(&config))),
            replanned: watch::Sender::default(),
            peers: Mutex::default(),
            flows: AtomicU64::new(0),
            followed,
            metrics: Metrics::of_tunnel(Weak::clone(shared)),
        });
        let mut listening = Vec::new();
        for port in &config.listen {
            listening.push(Port::open(port, &config, &shared).await?);
        }
        let chores = [
            tokio::spawn(follow_all(follow, Arc::downgrade(&shared))).abort_handle(),
            tokio::spawn(sweep(Arc::downgrade(&shared))).abort_handle(),
        ];
        Ok(Self { shared, listening: tokio::sync::Mutex::new(listening), _chores: chores.map(Task) })
    }

    /// Where it listens, and by which name, in the order of the settings.
    pub async fn ports(&self) -> Vec<(Protocol, SocketAddr, Name)> {
        let ports = self.listening.lock().await;
        let ports = ports.iter().map(|Port { listening, .. }| listening);
        ports.map(|port| (port.port.protocol, port.address, port.port.name.clone())).collect()
    }

    /// Does something else from now on. Sessions go on, and so do flows and connections, unless their port is gone or leads elsewhere; connections that are
    /// open stay. Ports that stay are listened at all the time.
    ///
    /// # Errors
    /// See [`StartError`]. Then nothing has changed.
    pub async fn reload(&self, config: Config) -> Result<(), StartError> {
        config.check()?;
        Port::reopen(&mut *self.listening.lock().await, &config, &self.shared).await?;
        let plan = Arc::new(Plan::of(&config));
        let before =
            std::mem::replace(&mut *self.shared.plan.write().unwrap_or_else(PoisonError::into_inner), plan.clone());
        for peer in lock(&self.shared.peers).iter() {
            peer.replan(&before, &plan);
        }
        self.shared.replanned.send_replace(());
        Ok(())
    }

    /// What has been carried, and how paths are: the text format of OpenMetrics, which Prometheus reads.
    pub fn metrics(&self) -> String {
        self.shared.metrics.text()
    }

    /// Whether there is a far gateway that forwards such a port.
    pub fn is_carried(&self, protocol: Protocol, name: &Name) -> bool {
        self.shared.choose(protocol, name).is_some()
    }

    /// Serves a session that we began, to its end.
    pub async fn call(&self, session: Session) -> Ended {
        self.run(&session, Side::Client).await
    }

    /// Serves a session that a far gateway began, to its end.
    pub async fn answer(&self, session: Session) -> Ended {
        self.run(&session, Side::Server).await
    }

    async fn run(&self, session: &Session, side: Side) -> Ended {
        let Err(ended) = self.shared.serve(session, side).await;
        match &ended {
            Ended::Closed(_) => {}
            Ended::NoGreeting => {
                session.close(close::REFUSED, "this is a gateway (`punctual tunnel`), and was not greeted")
            }
            Ended::Full => session.close(close::REFUSED, "busy: as many gateways as are allowed are here already"),
            Ended::NameTaken(..) => {
                let identity = session.peer_fingerprint().map_or_else(|| "none".into(), |shown| shown.to_string());
                warn!(address = ?session.remote_address(), identity, "gateway refused: {ended}");
                session.close(close::REFUSED, &ended.to_string());
            }
            Ended::Violation(violation) => session.close(close::VIOLATION, &violation.to_string()),
        }
        ended
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // Flows' tasks hold what they belong to.
        for peer in lock(&self.shared.peers).drain(..) {
            peer.end();
        }
    }
}

impl Shared {
    fn plan(&self) -> Arc<Plan> {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Our greeting.
    fn hello(&self) -> Hello {
        let mut offers: Vec<_> = self.plan().forwards.keys().cloned().collect();
        offers.sort();
        Hello { version: wire::VERSION, instance: self.instance, offers }
    }

    /// The far gateway that came last of those that forward such a port.
    fn choose(&self, protocol: Protocol, name: &Name) -> Option<Arc<Peer>> {
        lock(&self.peers).iter().rev().find(|peer| peer.offers(protocol, name)).cloned()
    }

    /// Serves a session to its end.
    async fn serve(self: &Arc<Self>, session: &Session, side: Side) -> Result<Infallible, Ended> {
        // From before the greeting is made, so that none is missed.
        let mut replanned = self.replanned.subscribe();
        if side == Side::Client && say::greet(session, self.hello()).await.is_err() {
            return Err(Ended::Closed(crate::why_closed(session).await));
        }
        let hello = tokio::time::timeout(GREET_WITHIN, first_word(session)).await.map_err(|_| Ended::NoGreeting)??;
        let (peer, generation) = self.welcome(side, session, &hello)?;
        let attached = Attached { shared: self, peer: &peer, generation };
        let offers =
            hello.offers.iter().map(|(protocol, name)| format!("{name} ({protocol})")).collect::<Vec<_>>().join(", ");
        self.make_way(&peer, &hello).await;
        self.greeted(&peer, hello)?;
        info!(gateway = %peer, address = ?session.remote_address(), offers, "gateway connected");
        // Nothing else is to come to the far side before our greeting. A client has sent that long ago, and has been answered.
        let greeted = async {
            if side == Side::Server
                && let Ok(sent) = say::greet(session, self.hello()).await
            {
                sent.await;
            }
        };
        // Later ones replace it, each as soon as the session has room for it.
        let greeting = async {
            greeted.await;
            peer.open(attached.generation);
            while replanned.changed().await.is_ok() {
                let _ = say::greet(session, self.hello()).await;
            }
            std::future::pending::<Infallible>().await
        };
        let mut greeting = std::pin::pin!(greeting);
        let stops = Stops::default();
        let mut stopping = std::pin::pin!(stops.say_all(session));
        loop {
            tokio::select! {
                block = session.recv() => {
                    let block = block.map_err(Ended::Closed)?;
                    peer.hear(self, session, attached.generation, &stops, block.data)?;
                }
                never = &mut stopping => match never {},
                never = &mut greeting => match never {},
            }
        }
    }

    /// Who greets: somebody known, or somebody new, if there is room; and how many sessions it has had. It has this one when it is in the list, lest it is forgotten
    /// meanwhile.
    fn welcome(&self, side: Side, session: &Session, hello: &Hello) -> Result<(Arc<Peer>, u64), Ended> {
        let identity = session.peer_fingerprint();
        let mut peers = lock(&self.peers);
        let is_it = |peer: &Arc<Peer>| (peer.side, peer.instance, peer.identity) == (side, hello.instance, identity);
        let known = peers.iter().position(is_it);
        let peer = match known {
            Some(index) => peers.remove(index),
            None if peers.len() >= self.plan().limits.clients => return Err(Ended::Full),
            None => Arc::new(Peer::new(side, hello.instance, identity)),
        };
        peers.push(peer.clone());
        let generation = peer.attach(session, self.plan().limits.rate);
        Ok((peer, generation))
    }

    /// Has those that forward what another says it does, and cannot be told from it by a certificate, give that up if they are not heard of any more: it may be the same gateway,
    /// started anew.
    async fn make_way(&self, peer: &Arc<Peer>, hello: &Hello) {
        if peer.identity.is_some() {
            return;
        }
        let peers = lock(&self.peers).clone();
        let others = peers.iter().filter(|other| other.may_be_another_than(peer) && other.identity.is_none());
        let holders = others.filter(|other| other.holds(&hello.offers).is_some());
        // All at once: whoever comes waits no longer if there are several.
        let each = holders.map(async |holder| {
            if !holder.answers(self.hello()).await {
                info!(gateway = %holder, by = %peer, "not heard of any more: what it forwarded is another's");
                holder.give_up_names(&hello.offers);
            }
        });
        join_all(each).await;
    }

    /// Hears what a far gateway forwards. A name belongs to the identity that has it for as long as it is connected; the same identity may come again beside
    /// its session before, which it may not know to be lost. Those without a certificate have no identity in common.
    fn greeted(&self, peer: &Arc<Peer>, hello: Hello) -> Result<(), Ended> {
        if hello.instance != peer.instance {
            return Err(Violation::Instance.into());
        }
        let peers = lock(&self.peers);
        let others = peers.iter().filter(|other| other.may_be_another_than(peer));
        if let Some((protocol, name)) = others.filter_map(|other| other.holds(&hello.offers)).next() {
            return Err(Ended::NameTaken(protocol, name));
        }
        peer.offer(hello.offers);
        Ok(())
    }

    /// Waits for the end of a datagram's block.
    fn follow(&self, followed: Followed) {
        // The tunnel is ending if nobody follows any more.
        let _ = self.followed.send(followed);
    }

    /// A number for a flow that begins here. None is used again: a far gateway may know a flow longer than we do.
    fn number(&self, side: Side) -> FlowId {
        let flow = self.flows.fetch_add(1, Ordering::Relaxed);
        FlowId(2 * flow + u64::from(side == Side::Server))
    }
}

/// A session that a far gateway has, until this is dropped.
struct Attached<'a> {
    shared: &'a Shared,
    peer: &'a Arc<Peer>,
    generation: u64,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.peer.detach(self.generation);
        self.shared.forget();
    }
}

/// The greeting, with which the far side begins.
async fn first_word(session: &Session) -> Result<Hello, Ended> {
    let block = session.recv().await.map_err(Ended::Closed)?;
    match Word::decode(block.data) {
        Ok(Some(Word::Hello(hello))) => Ok(hello),
        _ => Err(Ended::NoGreeting),
    }
}

/// Hears how datagrams ended.
async fn follow_all(mut followed: mpsc::UnboundedReceiver<Followed>, shared: Weak<Shared>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            more = followed.recv() => match more {
                Some(Followed { sent, flow, treatment, unknown }) => {
                    under_way.push(async move { (sent.await, flow, treatment, unknown) });
                }
                None => return,
            },
            Some((outcome, flow, treatment, unknown)) = under_way.next() => {
                let Some(shared) = shared.upgrade() else { return };
                shared.metrics.ended(&treatment.class.name, &outcome);
                if let (Outcome::Delivered(_), Some(unknown)) = (&outcome, unknown) {
                    flow.become_known(unknown);
                }
            }
        }
    }
}

/// Ends what has been silent for too long, now and then.
async fn sweep(shared: Weak<Shared>) {
    loop {
        let Some(idle) = shared.upgrade().map(|shared| shared.plan().limits.idle) else { return };
        tokio::time::sleep(idle / 4).await;
        let Some(shared) = shared.upgrade() else { return };
        let now = Instant::now();
        let peers = lock(&shared.peers).clone();
        for peer in &peers {
            for flow in peer.sweep(now, idle) {
                debug!(name = %flow.name, program = %flow.program, flow = flow.id.0, gateway = %peer, "flow ends by silence");
                flow.forget();
            }
        }
        shared.forget();
    }
}

impl Gateways for Shared {
    fn snapshots(&self) -> Vec<Snapshot> {
        let peers = lock(&self.peers).clone();
        peers.iter().map(|peer| peer.snapshot()).collect()
    }
}

impl Shared {
    /// Forgets far gateways of which nothing is left.
    fn forget(&self) {
        lock(&self.peers).retain(|peer| !peer.is_gone());
    }
}

impl Plan {
    fn of(config: &Config) -> Self {
        let forwarding = |forward: &Forward| {
            let carried = Arc::new(config.carried(&forward.name, &forward.carry));
            ((forward.protocol, forward.name.clone()), Forwarding { to: forward.to.clone(), carried })
        };
        Self { forwards: config.forward.iter().map(forwarding).collect(), limits: config.limits }
    }

    fn forward(&self, protocol: Protocol, name: &Name) -> Option<&Forwarding> {
        self.forwards.get(&(protocol, name.clone()))
    }
}
