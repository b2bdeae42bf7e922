//! Carries UDP datagrams between clients and a server over [wires](super::wires), on real sockets, without privileges.
//!
//! Each path has a socket that clients send to, and for each client one that speaks to the server, so that the server tells them apart. A thread for each
//! socket takes datagrams in; one more sends them on when they are due. Threads rather than tasks, because they wake within a fraction of a millisecond and do not
//! share a run queue with what is being measured.
//!
//! All clients of a path share its links. ECN marks are those of UDP's payload here, which has none: they are lost.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    lateness::Lateness,
    wires::{Arrival, Plan, Way, Wires},
};

/// How often a thread that hears nothing looks whether it should end.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// The most clients at once, of all paths together: each has a socket and a thread.
const MOST_CLIENTS: usize = 256;
/// A client of which nothing was heard for this long makes room for another, if there is none.
const IDLE: Duration = Duration::from_secs(30);
/// What the sockets are asked to hold, bytes: a few milliseconds of a fast link. The system may give less.
const BUFFER: usize = 4 << 20;
/// The most packets that are sent on before others may be taken in.
const BATCH: usize = 64;

/// The resolution of [`Carried::bins`].
pub(crate) const BIN: Duration = Duration::from_millis(100);

/// What a path carried from clients to the server since [`Relay::begin`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// UDP payload bytes that clients sent, in each [`BIN`] of time.
    pub(crate) bins: Vec<u64>,
    /// Datagrams that clients sent.
    pub(crate) datagrams: u64,
    /// Of these, lost on the wire.
    pub(crate) lost: u64,
    /// Of these, dropped for want of room in the queue.
    pub(crate) dropped: u64,
}

impl Carried {
    /// UDP payload bytes that clients sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.bins.iter().sum()
    }

    fn count(&mut self, at: Duration, len: usize) {
        // An hour of bins; what comes later is in the last.
        const MOST_BINS: usize = 36_000;
        let bin = ((at.as_micros() / BIN.as_micros()) as usize).min(MOST_BINS - 1);
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += len as u64;
    }
}

/// One end of a path and the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// Where clients send to.
    pub(crate) listen: SocketAddr,
    /// The server.
    pub(crate) to: SocketAddr,
}

/// Paths between clients and a server. Ends when dropped.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    entrances: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    epoch: Instant,
    fronts: Vec<Front>,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
    /// Whether the first datagram is the beginning.
    begins_by_itself: bool,
}

/// Where the clients of a path send to, and where their datagrams go.
struct Front {
    socket: UdpSocket,
    to: SocketAddr,
}

struct State {
    wires: Wires,
    clients: HashMap<u32, Client>,
    by_address: HashMap<(usize, SocketAddr), u32>,
    next_client: u32,
    /// Datagrams of clients for whom there was no room.
    turned_away: u64,
    /// Threads of clients.
    threads: Vec<JoinHandle<()>>,
    carried: Vec<Carried>,
    lateness: Lateness,
}

/// A client of a path.
struct Client {
    path: usize,
    address: SocketAddr,
    /// Where the server sees it.
    socket: Arc<UdpSocket>,
    heard: Duration,
    /// Tells its thread to end.
    gone: Arc<AtomicBool>,
}

/// What a relay has done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) clients: u64,
    pub(crate) turned_away: u64,
}

impl Relay {
    /// Opens the paths, each between these ends, with what is left to chance drawn from `seed`. With `begins_by_itself`, schedules and losses begin with the first datagram; else with
    /// [`begin`](Self::begin), and until then links are ideal, so that a handshake neither fails nor draws anything.
    ///
    /// # Errors
    /// If a socket cannot be had.
    pub(crate) fn start(plan: Plan, ends: &[Ends], seed: u64, begins_by_itself: bool) -> io::Result<Self> {
        let front = |ends: &Ends| Ok(Front { socket: open(ends.listen)?, to: ends.to });
        let fronts = ends.iter().map(front).collect::<io::Result<Vec<_>>>()?;
        let entrances = fronts.iter().map(|front| front.socket.local_addr()).collect::<io::Result<_>>()?;
        let state = State {
            carried: vec![Carried::default(); plan.paths.len()],
            wires: Wires::new(plan, seed),
            clients: HashMap::new(),
            by_address: HashMap::new(),
            next_client: 0,
            turned_away: 0,
            threads: Vec::new(),
            lateness: Lateness::default(),
        };
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            fronts,
            state: Mutex::new(state),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            begins_by_itself,
        });
        let mut relay = Self { shared, entrances, threads: Vec::new() };
        for path in 0..ends.len() {
            let shared = relay.shared.clone();
            relay.threads.push(spawn(move || shared.hear_clients(path))?);
        }
        let shared = relay.shared.clone();
        relay.threads.push(spawn(move || shared.send_on())?);
        Ok(relay)
    }

    /// The addresses that clients have to send to, one for each path.
    pub(crate) fn entrances(&self) -> &[SocketAddr] {
        &self.entrances
    }

    /// Starts the schedules of all links, loss, and the counting of what is carried.
    pub(crate) fn begin(&self) {
        let now = self.shared.epoch.elapsed();
        self.shared.lock().begin(now);
    }

    /// What each path has carried so far.
    pub(crate) fn carried(&self) -> Vec<Carried> {
        let state = self.shared.lock();
        let carried = state.carried.iter().enumerate().map(|(path, carried)| {
            let counters = state.wires.counters(path, Way::There);
            let (lost, dropped) = (counters.links.lost, counters.links.overflowed);
            Carried { datagrams: counters.packets, lost, dropped, ..carried.clone() }
        });
        carried.collect()
    }

    /// Looks at what there is to tell: the wires, how late they are, and since when they have been in use.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Wires, &Lateness, Traffic, Option<Duration>) -> R) -> R {
        let now = self.shared.epoch.elapsed();
        let state = self.shared.lock();
        let traffic = Traffic { clients: state.next_client.into(), turned_away: state.turned_away };
        let since = state.wires.begun().map(|begun| now.saturating_sub(begun));
        look(&state.wires, &state.lateness, traffic, since)
    }
}

impl Relay {
    /// Carries nothing any more; what was carried has been counted when this returns.
    pub(crate) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // Nobody adds to these from here on.
        let clients = std::mem::take(&mut self.shared.lock().threads);
        for thread in clients {
            let _ = thread.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("link".into()).spawn(work)
}

fn open(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_read_timeout(Some(HEARTBEAT))?;
    // What the system does not give is done without.
    let options = socket2::SockRef::from(&socket);
    let _ = options.set_recv_buffer_size(BUFFER);
    let _ = options.set_send_buffer_size(BUFFER);
    Ok(socket)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left plain data behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Receives what clients send over a path.
    fn hear_clients(self: &Arc<Self>, path: usize) {
        let mut buf = vec![0; 65_536];
        while !self.stopped() {
            // Time-outs, and the ICMP errors of an end that is gone, are no reason to stop.
            let Ok((len, from)) = self.fronts[path].socket.recv_from(&mut buf) else { continue };
            let mut state = self.lock();
            // Taken under the lock, so that for the links time never runs backwards.
            let now = self.epoch.elapsed();
            if state.wires.begun().is_none() && self.begins_by_itself {
                state.begin(now);
            }
            match self.client(&mut state, path, from, now) {
                Some(client) => self.take_in(state, now, path, Way::There, client, &buf[..len]),
                None => state.turned_away += 1,
            }
        }
    }

    /// Receives what the server sends to a client.
    fn hear_server(&self, path: usize, client: u32, socket: &UdpSocket, gone: &AtomicBool) {
        let mut buf = vec![0; 65_536];
        while !self.stopped() && !gone.load(Ordering::Relaxed) {
            let Ok(len) = socket.recv(&mut buf) else { continue };
            let state = self.lock();
            let now = self.epoch.elapsed();
            self.take_in(state, now, path, Way::Back, client, &buf[..len]);
        }
    }

    fn take_in(&self, mut state: MutexGuard<'_, State>, now: Duration, path: usize, way: Way, whose: u32, data: &[u8]) {
        if way == Way::There
            && let Some(begun) = state.wires.begun()
        {
            state.carried[path].count(now.saturating_sub(begun), data.len());
        }
        let before = state.wires.next();
        state.wires.offer(now, path, way, whose, data.into(), None);
        let sooner = state.wires.next() != before;
        drop(state);
        if sooner {
            self.changed.notify_one();
        }
    }

    /// The client of this address, which may be new.
    fn client(self: &Arc<Self>, state: &mut State, path: usize, from: SocketAddr, now: Duration) -> Option<u32> {
        if let Some(id) = state.by_address.get(&(path, from)) {
            if let Some(client) = state.clients.get_mut(id) {
                client.heard = now;
            }
            return Some(*id);
        }
        if state.clients.len() >= MOST_CLIENTS && !state.forget_an_idle_one(now) {
            return None;
        }
        let to = self.fronts[path].to;
        let any: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = open(any).and_then(|socket| socket.connect(to).map(|()| Arc::new(socket))).ok()?;
        let (id, gone) = (state.next_client, Arc::new(AtomicBool::new(false)));
        let thread = {
            let (shared, socket, gone) = (self.clone(), socket.clone(), gone.clone());
            spawn(move || shared.hear_server(path, id, &socket, &gone)).ok()?
        };
        state.next_client = state.next_client.wrapping_add(1);
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(thread);
        state.clients.insert(id, Client { path, address: from, socket, heard: now, gone });
        state.by_address.insert((path, from), id);
        Some(id)
    }

    /// Sends each datagram on when it is due.
    fn send_on(&self) {
        let mut due = Vec::with_capacity(BATCH);
        while !self.stopped() {
            let mut state = self.lock();
            let now = self.epoch.elapsed();
            while due.len() < BATCH
                && let Some(arrival) = state.wires.poll(now)
            {
                let to = state.clients.get(&arrival.whose).map(|client| (client.address, client.socket.clone()));
                due.push((arrival, to));
            }
            if due.is_empty() {
                let wait = state.wires.next().map_or(HEARTBEAT, |next| next.saturating_sub(now).min(HEARTBEAT));
                drop(self.changed.wait_timeout(state, wait));
                continue;
            }
            drop(state);
            let mut sent = Vec::with_capacity(due.len());
            for (arrival, to) in due.drain(..) {
                if let Some((client, socket)) = to {
                    self.deliver(&arrival, client, &socket);
                    sent.push((arrival.due, self.epoch.elapsed()));
                }
            }
            let mut state = self.lock();
            sent.into_iter().for_each(|(due, sent)| state.lateness.note(due, sent));
        }
    }

    fn deliver(&self, arrival: &Arrival, client: SocketAddr, socket: &UdpSocket) {
        // What cannot be delivered is lost, as on any network.
        let _ = match arrival.way {
            Way::There => socket.send(&arrival.datagram.data),
            Way::Back => self.fronts[arrival.path].socket.send_to(&arrival.datagram.data, client),
        };
    }
}

impl State {
    fn begin(&mut self, now: Duration) {
        // What is due until now comes out first, as it would have.
        self.wires.begin(now);
        self.carried.fill(Carried::default());
        self.lateness = Lateness::default();
    }

    /// Makes room for a client. Whether there was one that has been silent for long.
    fn forget_an_idle_one(&mut self, now: Duration) -> bool {
        let longest =
            self.clients.iter().min_by_key(|(_, client)| client.heard).map(|(id, client)| (*id, client.heard));
        let Some((id, _)) = longest.filter(|(_, heard)| now.saturating_sub(*heard) >= IDLE) else { return false };
        if let Some(client) = self.clients.remove(&id) {
            client.gone.store(true, Ordering::Relaxed);
            self.by_address.remove(&(client.path, client.address));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use punctual_sim::{LinkSpec, Loss};

    use super::*;

    fn loopback() -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    }

    fn perfect() -> LinkSpec {
        LinkSpec::unlimited(Duration::from_millis(5))
    }

    fn start(plan: Plan, server: &UdpSocket) -> Relay {
        let ends = Ends { listen: (Ipv4Addr::LOCALHOST, 0).into(), to: server.local_addr().unwrap() };
        let ends = vec![ends; plan.paths.len()];
        Relay::start(plan, &ends, 1, true).unwrap()
    }

    #[test]
    fn carries_both_ways_for_each_client_and_counts() {
        let (server, clients) = (loopback(), [loopback(), loopback()]);
        let plan = Plan::default().path("a", perfect(), perfect()).path("b", perfect(), perfect());
        let mut relay = start(plan, &server);
        let mut buf = [0; 100];
        let mut seen = Vec::new();
        for entrance in relay.entrances() {
            for (client, word) in clients.iter().zip([&b"one"[..], b"seven"]) {
                let sent = Instant::now();
                client.send_to(word, entrance).unwrap();
                let (len, from) = server.recv_from(&mut buf).unwrap();
                assert!(sent.elapsed() >= Duration::from_millis(5), "not before its time");
                assert_eq!(&buf[..len], word);
                seen.push((from, client, entrance));
            }
        }
        // Answers find their way, whoever is asked first.
        for (from, client, entrance) in seen.iter().rev() {
            server.send_to(b"back", from).unwrap();
            assert_eq!(client.recv_from(&mut buf).unwrap(), (4, **entrance));
        }
        let mut addresses: Vec<_> = seen.iter().map(|(from, ..)| from).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 4, "the server tells clients and paths apart");
        relay.stop();
        let carried = relay.carried();
        assert_eq!(carried.iter().map(Carried::bytes).collect::<Vec<_>>(), [8, 8]);
        assert_eq!(carried[0].datagrams, 2);
        relay.look(|wires, lateness, traffic, since| {
            assert_eq!(wires.counters(1, Way::Back).packets, 2);
            assert_eq!(lateness.figures().map(|figures| figures.packets), Some(8));
            assert_eq!((traffic.clients, traffic.turned_away, since.is_some()), (4, 0, true));
        });
    }

    #[test]
    fn strangers_cannot_answer_for_the_server() {
        let (server, client, stranger) = (loopback(), loopback(), loopback());
        let relay = start(Plan::default().path("a", perfect(), perfect()), &server);
        client.send_to(b"hello", relay.entrances()[0]).unwrap();
        let (_, from) = server.recv_from(&mut [0; 10]).unwrap();
        stranger.send_to(b"strange", from).unwrap();
        server.send_to(b"true", from).unwrap();
        assert_eq!(client.recv_from(&mut [0; 10]).unwrap().0, 4);
    }

    #[test]
    fn a_lossy_path_loses_once_it_has_begun() {
        let (server, client) = (loopback(), loopback());
        let plan = Plan::default().path("a", perfect().loss(Loss::Bernoulli(1.0)), perfect());
        let ends = Ends { listen: (Ipv4Addr::LOCALHOST, 0).into(), to: server.local_addr().unwrap() };
        let relay = Relay::start(plan, &[ends], 1, false).unwrap();
        client.send_to(b"handshake", relay.entrances()[0]).unwrap();
        assert_eq!(server.recv_from(&mut [0; 10]).unwrap().0, 9);
        relay.begin();
        client.send_to(b"gone", relay.entrances()[0]).unwrap();
        while relay.carried()[0].lost == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let carried = &relay.carried()[0];
        assert_eq!((carried.bytes(), carried.datagrams, carried.lost, carried.dropped), (4, 1, 1, 0));
    }
}
