//! A network device whose packets go through a session.
//!
//! Each IP packet is a block. One side is the *server*: it lets in clients by their keys, gives them addresses and routes, and holds each to its own. The others call it.
//!
//! ```no_run
//! # async fn example(session: punctual::Session) -> Result<(), Box<dyn std::error::Error>> {
//! # #[cfg(target_os = "linux")] {
//! use punctual_gateway::vpn::{Config, Tun, Vpn};
//!
//! let vpn = Vpn::start(Tun::open("punctual0")?, Config::default()).await?;
//! // Whoever has a session with a server hands it over; the device gets its addresses from there.
//! let ended = vpn.call(session).await;
//! println!("{ended}");
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!  system ─▶ device ─▶ parse, whose is it ─▶ a queue for each flow, in turns ─▶ block ═▶ session ═▶ block ─▶ may it say that ─▶ device ─▶ system
//!                      packet.rs, mod.rs      flows.rs, codel.rs, gauge.rs                                   peer.rs
//! ```
//!
//! What a client takes of what it is given is for it to say: [`AcceptRoutes`]. The grammar is in [`wire`], and in `docs/gateway.md` for a second implementation.

mod addresses;
mod client;
mod codel;
mod config;
mod device;
mod error;
mod flows;
mod gauge;
pub mod packet;
mod peer;
mod routes;
pub mod segment;
mod server;
#[cfg(target_os = "linux")]
mod tun;
pub mod wire;

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
    time::Duration,
};

use ipnet::IpNet;
use punctual::{AccessList, Fingerprint, Session};
use tokio::{sync::watch, task::AbortHandle};
use tracing::{debug, warn};

pub use config::{Client, Config, ConfigError, DEFAULT_MTU, Limits, Protocol, Rule, Server};
pub use device::{Device, DeviceNameError, SPACE, Setup, check_device_name};
pub use error::{Ended, StartError, Violation};
pub use routes::{AcceptRoutes, Refusal};
#[cfg(target_os = "linux")]
pub use tun::Tun;

use crate::metrics::{Gateways, Metrics, Snapshot};
pub use crate::tunnel::close;
use addresses::Addresses;
use client::Taken;
use config::Classes;
use error::end;
use packet::Packet;
use peer::{Follow, Peer, Places};
use segment::{Rest, is_sound};
use wire::Welcome;

/// How long the far side may take to greet.
const GREET_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait after an error of the device that may come again at once.
const PAUSE: Duration = Duration::from_millis(100);
/// Errors in a row after which a device is held to be gone: 2 s of them.
const MOST_ERRORS: u32 = 20;
/// Bytes of packets that may be under way to us in one session, and from us: 100 ms of 1 Gbit/s, and the queue.
const SESSION_BYTES: u64 = 16 << 20;

/// Locks what only short and sound code has locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings that a VPN's sessions need: blocks are packets, and there are channels for as many flows as the protocol says.
pub fn session_limits(limits: punctual::Limits) -> punctual::Limits {
    let limits = limits.max_block_size(flows::LARGEST_WORD).channels(4_096);
    limits.receive_bytes(SESSION_BYTES).send_bytes(SESSION_BYTES)
}

/// One side of a VPN, with its device. Dropping it ends all.
#[derive(Debug)]
pub struct Vpn<D> {
    shared: Arc<Shared<D>>,
    _chores: [Task; 2],
}

/// A task that ends with what it belongs to.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Shared<D> {
    device: D,
    plan: RwLock<Arc<Plan>>,
    table: Mutex<Table>,
    known: AccessList,
    /// Of a client.
    taken: tokio::sync::Mutex<Taken>,
    /// Why the device is gone, if it is.
    gone: watch::Sender<Option<String>>,
    metrics: Arc<Metrics>,
}

/// What settings say, as it is looked up.
#[derive(Debug)]
struct Plan {
    classes: Classes,
    limits: Limits,
    server: Option<Server>,
    accept_routes: AcceptRoutes,
    clients: HashMap<Fingerprint, Client>,
    /// Networks in which there are clients, or which are behind one.
    of_clients: Vec<IpNet>,
}

/// Who is where.
#[derive(Debug, Default)]
struct Table {
    /// Of a client: the server.
    server: Option<Arc<Peer>>,
    /// Of a server: those that are connected,
    clients: HashMap<Fingerprint, Arc<Peer>>,
    /// by their addresses,
    at: HashMap<IpAddr, Arc<Peer>>,
    /// and by the networks behind them.
    behind: Vec<(IpNet, Arc<Peer>)>,
    addresses: Addresses,
}

impl<D: Device> Vpn<D> {
    /// Sets the device up and carries what comes from it. Nothing passes until there is a session: see [`call`](Self::call), [`answer`](Self::answer).
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(device: D, config: Config) -> Result<Self, StartError> {
        config.check()?;
        let plan = Arc::new(Plan::of(&config));
        if let Some(server) = &plan.server {
            device.set_up(&server.setup()).await.map_err(StartError::Device)?;
        }
        let mut table = Table::default();
        if plan.server.is_none() {
            table.server = Some(Arc::new(Peer::new("server".into(), &plan.limits)));
        }
        plan.give(&mut table);
        let known = AccessList::new(plan.clients.keys().copied());
        let shared = Arc::new_cyclic(|shared| Shared {
            device,
            plan: RwLock::new(plan),
            table: Mutex::new(table),
            known,
            taken: tokio::sync::Mutex::default(),
            gone: watch::Sender::default(),
            metrics: Arc::new(Metrics::of_vpn(Weak::clone(shared))),
        });
        let (reader, kept) = (Arc::downgrade(&shared), shared.clone());
        let chores = [
            tokio::spawn(read(reader)).abort_handle(),
            tokio::spawn(async move { match kept.device.keep_up().await {} }).abort_handle(),
        ];
        Ok(Self { shared, _chores: chores.map(Task) })
    }

    /// The certificates of those that a server lets in: for its endpoint, which is to let in no others. It follows [`reload`](Self::reload).
    pub fn access_list(&self) -> &AccessList {
        &self.shared.known
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.shared.device
    }

    /// Goes by other settings from now on. Sessions go on, but for those of clients that are let in no more; clients whose addresses, routes or MTU are others now are told.
    ///
    /// # Errors
    /// See [`StartError`]. If the settings make no sense or take a restart, nothing has changed; if the device cannot be set up, everything else is done.
    pub async fn reload(&self, config: Config) -> Result<(), StartError> {
        config.check()?;
        let shared = &self.shared;
        let (before, plan) = (shared.plan(), Arc::new(Plan::of(&config)));
        match (&before.server, &plan.server) {
            (None, None) => {}
            (Some(one), Some(other)) if one.addresses == other.addresses => {}
            _ => return Err(StartError::Restart),
        }
        shared.replan(&before, &plan);
        match &plan.server {
            Some(server) => shared.device.set_up(&server.setup()).await.map_err(StartError::Device),
            None => shared.accept_again().await.or_else(|ended| match ended {
                Ended::Device(error) => Err(StartError::Device(io::Error::other(error))),
                // It has been told; what was taken before stays until the session ends.
                _ => Ok(()),
            }),
        }
    }

    /// Of a client: no route is to lead to these addresses of the server's, as the session's own packets go there by the system's routes. To be said before each call, of those addresses
    /// that are not reached from a socket that is tied to an interface; else a route to everything would lead the session into itself.
    pub async fn lead_around(&self, servers: &[IpAddr]) {
        if let Err(error) = self.shared.lead_around(servers).await {
            warn!(%error, "the device is not as it should be");
        }
    }

    /// What has been carried, and how paths are: the text format of OpenMetrics, which Prometheus reads.
    pub fn metrics(&self) -> String {
        self.shared.metrics.text()
    }

    /// Waits until the device is gone, as somebody has deleted it: what the system said. Nothing is carried any more.
    pub async fn gone(&self) -> String {
        let mut gone = self.shared.gone.subscribe();
        // It cannot fail: we have the sender.
        gone.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()).unwrap_or_default()
    }

    /// Whether packets pass to the server, or to a client.
    pub fn is_open(&self) -> bool {
        let table = lock(&self.shared.table);
        table.server.iter().chain(table.clients.values()).any(|peer| peer.is_open())
    }

    /// Serves a session that we began, with a server, to its end.
    pub async fn call(&self, session: Session) -> Ended {
        let Err(ended) = self.shared.call(&session).await;
        end(&session, &ended);
        ended
    }

    /// Serves a session that a client began, to its end.
    pub async fn answer(&self, session: Session) -> Ended {
        let Err(ended) = self.shared.answer(&session).await;
        end(&session, &ended);
        ended
    }
}

/// Carries what comes from the device, for as long as there are a VPN and a device.
async fn read<D: Device>(shared: Weak<Shared<D>>) {
    let (mut space, mut errors) = (vec![0; SPACE], 0);
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match shared.device.recv(&mut space).await {
            Ok((range, rest)) => {
                errors = 0;
                shared.carry(&space[range], rest);
            }
            Err(error) if errors >= MOST_ERRORS => {
                warn!(%error, "the device is gone");
                shared.gone.send_replace(Some(error.to_string()));
                return;
            }
            Err(error) => {
                if errors == 0 {
                    warn!(%error, "cannot read from the device");
                }
                errors += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl<D: Device> Shared<D> {
    fn plan(&self) -> Arc<Plan> {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has everybody go by other settings from now on.
    fn replan(&self, before: &Plan, plan: &Arc<Plan>) {
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = plan.clone();
        self.known.replace(plan.clients.keys().copied());
        let mut table = lock(&self.table);
        plan.give(&mut table);
        if let Some(peer) = &table.server {
            peer.replan(plan, plan.limits.rate);
        }
        let here: Vec<_> = table.clients.iter().map(|(client, peer)| (*client, peer.clone())).collect();
        for (fingerprint, peer) in here {
            let Some(session) = peer.session() else { continue };
            let placed = plan.clients.get(&fingerprint).ok_or("no longer let in").and_then(|client| {
                peer.replan(plan, plan.rate(client));
                table.place(plan, client, &peer).ok_or("no address is left for it")
            });
            match placed {
                Ok((welcome, changed)) => {
                    let told =
                        |server: &Option<Server>| server.as_ref().map(|server| (server.routes.clone(), server.mtu));
                    if changed || told(&before.server) != told(&plan.server) {
                        peer.tell(welcome);
                    }
                }
                Err(why) => session.close(close::REFUSED, why),
            }
        }
    }

    /// The system sends a packet.
    fn carry(&self, bytes: &[u8], rest: Rest) {
        let packet = match Packet::parse(bytes) {
            Ok(packet) if is_sound(&packet, bytes.len(), rest) => packet,
            _ => return self.metrics.refused("malformed"),
        };
        let Some(peer) = lock(&self.table).whose(&packet.destination) else { return self.metrics.refused("nobody") };
        peer.send(&packet, bytes, rest, &self.plan(), &self.metrics);
    }

    /// A packet has come by a session.
    fn deliver(&self, peer: &Peer, bytes: &[u8], rest: Rest, plan: &Plan) {
        self.metrics.received();
        let packet = match Packet::parse(bytes) {
            Ok(packet) if is_sound(&packet, bytes.len(), rest) => packet,
            _ => return self.metrics.refused("malformed"),
        };
        let may = peer.may_come(&packet, bytes.len());
        if let Err(why) = may.and_then(|()| self.may_go(&packet, plan)) {
            return self.metrics.refused(why);
        }
        if let Err(error) = self.device.send(bytes, &packet, rest) {
            self.metrics.refused("device");
            debug!(%error, "the system does not take a packet");
        }
    }

    /// Whether a client's packet may go where it is to go.
    fn may_go(&self, packet: &Packet, plan: &Plan) -> Result<(), &'static str> {
        let Some(server) = plan.server.as_ref().filter(|server| !server.client_to_client) else { return Ok(()) };
        let to = packet.destination;
        let own = server.addresses.iter().any(|address| address.addr() == to);
        let of_clients = || plan.of_clients.iter().any(|network| network.contains(&to));
        if !own && of_clients() { Err("client_to_client") } else { Ok(()) }
    }
}

/// A session that a far side has, until this is dropped.
struct Attached<'a> {
    peer: &'a Peer,
    generation: u64,
}

impl<'a> Attached<'a> {
    fn new(peer: &'a Peer, session: &Session) -> (Self, Follow) {
        let (generation, follow) = peer.attach(session);
        (Self { peer, generation }, follow)
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.peer.detach(self.generation);
    }
}

impl Table {
    /// Whom a packet is for.
    fn whose(&self, destination: &IpAddr) -> Option<Arc<Peer>> {
        let behind = || {
            let leads = self.behind.iter().filter(|(network, _)| network.contains(destination));
            leads.max_by_key(|(network, _)| network.prefix_len()).map(|(_, peer)| peer)
        };
        self.server.as_ref().or_else(|| self.at.get(destination)).or_else(behind).cloned()
    }

    /// Gives a client its addresses, and sends what is for them to it: what it is to be told, and whether that is not what it was.
    fn place(&mut self, plan: &Plan, client: &Client, peer: &Arc<Peer>) -> Option<(Welcome, bool)> {
        let server = plan.server.as_ref()?;
        let within = |address: &IpAddr| {
            let network = server.addresses.iter().find(|network| network.contains(address))?;
            IpNet::new(*address, network.prefix_len()).ok()
        };
        let addresses: Vec<IpNet> = if client.address.is_empty() {
            let Self { addresses, clients, .. } = self;
            addresses.lease(client.fingerprint, |other| clients.contains_key(other))?
        } else {
            client.address.iter().filter_map(within).collect()
        };
        self.forget(peer);
        self.at.extend(addresses.iter().map(|address| (address.addr(), peer.clone())));
        self.behind.extend(client.networks.iter().map(|network| (*network, peer.clone())));
        let changed = peer.place(Places { addresses: addresses.clone(), networks: client.networks.clone() });
        let Server { routes, mtu, .. } = server;
        Some((Welcome { version: wire::VERSION, mtu: *mtu, addresses, routes: routes.clone() }, changed))
    }

    /// Sends nothing to a client any more.
    fn forget(&mut self, gone: &Arc<Peer>) {
        self.at.retain(|_, peer| !Arc::ptr_eq(peer, gone));
        self.behind.retain(|(_, peer)| !Arc::ptr_eq(peer, gone));
    }
}

impl Plan {
    fn of(config: &Config) -> Self {
        let server = config.server.clone();
        let clients = || server.iter().flat_map(|server| &server.clients);
        let behind = clients().flat_map(|client| &client.networks);
        let of_clients = server.iter().flat_map(|server| &server.addresses).chain(behind).map(IpNet::trunc).collect();
        let clients = clients().map(|client| (client.fingerprint, client.clone())).collect();
        let accept_routes = config.accept_routes.clone();
        Self { classes: Classes::of(config), limits: config.limits, server, accept_routes, clients, of_clients }
    }

    /// Bytes per second that are carried for a client.
    fn rate(&self, client: &Client) -> u64 {
        client.rate.unwrap_or(self.limits.rate)
    }

    /// Has addresses given by these settings from now on.
    fn give(&self, table: &mut Table) {
        if let Some(server) = &self.server {
            let reserved = self.clients.values().flat_map(|client| client.address.iter().copied());
            let given = server.clients.iter().filter(|client| client.address.is_empty());
            table.addresses.replace(&server.addresses, reserved, given.map(|client| client.fingerprint));
        }
    }
}

impl Server {
    /// What its device is to be.
    fn setup(&self) -> Setup {
        let routes = self.clients.iter().flat_map(|client| client.networks.iter().copied()).collect();
        Setup { addresses: self.addresses.clone(), routes, mtu: self.mtu }
    }
}

impl<D: Device> Gateways for Shared<D> {
    fn snapshots(&self) -> Vec<Snapshot> {
        let table = lock(&self.table);
        let peers: Vec<_> = table.server.iter().chain(table.clients.values()).cloned().collect();
        drop(table);
        peers.iter().map(|peer| peer.snapshot()).collect()
    }
}
