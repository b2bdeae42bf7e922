//! Carries UDP datagrams between a client and a server over impaired paths, on real sockets, without privileges.
//!
//! Each path has a socket that the client sends to and one that speaks to the server. A thread for each
//! socket takes datagrams in and asks the [`Link`] when they arrive; one more thread sends them on at that moment. Threads
//! rather than tasks, because they wake within a fraction of a millisecond and do not share a run queue with what is being measured.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::impair::{Fate, Link, LinkSpec};

/// Both directions of a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathSpec {
    pub(crate) name: &'static str,
    /// From the client to the server.
    pub(crate) up: LinkSpec,
    /// Back again.
    pub(crate) down: LinkSpec,
}

/// What a path carried from the client to the server since [`Relay::begin`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// UDP payload bytes the client sent, in each [`BIN`] of time.
    pub(crate) bins: Vec<u64>,
    /// Datagrams the client sent.
    pub(crate) datagrams: u64,
    /// Of these, lost on the wire.
    pub(crate) lost: u64,
    /// Of these, dropped for want of room in the queue.
    pub(crate) dropped: u64,
}

impl Carried {
    /// UDP payload bytes the client sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.bins.iter().sum()
    }
}

/// The resolution of [`Carried::bins`].
pub(crate) const BIN: Duration = Duration::from_millis(100);

/// How often a thread that hears nothing looks whether it should end.
const HEARTBEAT: Duration = Duration::from_millis(25);

/// Paths between one client and one server. Ends when dropped.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    entrances: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    epoch: Instant,
    server: SocketAddr,
    ends: Vec<Ends>,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
}

/// The two sockets of a path.
struct Ends {
    /// Where the client sends to.
    front: UdpSocket,
    /// Where the server sees the client.
    back: UdpSocket,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Up,
    Down,
}

struct State {
    paths: Vec<PathState>,
    on_the_way: BinaryHeap<Reverse<Datagram>>,
    accepted: u64,
    begun: Option<Duration>,
}

struct PathState {
    up: Link,
    down: Link,
    client: Option<SocketAddr>,
    carried: Carried,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Datagram {
    arrives: Duration,
    /// Keeps those that arrive at the same moment in order.
    number: u64,
    path: usize,
    direction: Direction,
    bytes: Vec<u8>,
}

impl Relay {
    /// Opens the paths to `server`, with loss drawn from `seed`.
    ///
    /// # Errors
    /// If no loopback socket can be had.
    pub(crate) fn start(paths: &[PathSpec], server: SocketAddr, seed: u64) -> io::Result<Self> {
        let mut ends = Vec::new();
        let mut states = Vec::new();
        for (path, number) in paths.iter().zip(0..) {
            let (front, back) = (loopback()?, loopback()?);
            ends.push(Ends { front, back });
            states.push(PathState {
                up: Link::new(path.up.clone(), seed ^ (2 * number)),
                down: Link::new(path.down.clone(), seed ^ (2 * number + 1)),
                client: None,
                carried: Carried::default(),
            });
        }
        let entrances = ends.iter().map(|ends| ends.front.local_addr()).collect::<io::Result<_>>()?;
        let state = State { paths: states, on_the_way: BinaryHeap::new(), accepted: 0, begun: None };
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            server,
            ends,
            state: Mutex::new(state),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let mut relay = Self { shared, entrances, threads: Vec::new() };
        for path in 0..paths.len() {
            relay.spawn(move |shared| shared.take_in(path, Direction::Up))?;
            relay.spawn(move |shared| shared.take_in(path, Direction::Down))?;
        }
        relay.spawn(Shared::send_on)?;
        Ok(relay)
    }

    fn spawn(&mut self, work: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let shared = self.shared.clone();
        self.threads.push(thread::Builder::new().name("relay".into()).spawn(move || work(&shared))?);
        Ok(())
    }

    /// The addresses the client has to send to, one for each path.
    pub(crate) fn entrances(&self) -> &[SocketAddr] {
        &self.entrances
    }

    /// Starts the schedules of all links, loss, and the counting of what is carried.
    pub(crate) fn begin(&self) {
        let now = self.shared.epoch.elapsed();
        let mut state = self.shared.lock();
        state.begun = Some(now);
        for path in &mut state.paths {
            path.up.begin(now);
            path.down.begin(now);
        }
    }

    /// What each path has carried so far.
    pub(crate) fn carried(&self) -> Vec<Carried> {
        self.shared.lock().paths.iter().map(|path| path.carried.clone()).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn loopback() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(HEARTBEAT))?;
    Ok(socket)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left plain data behind.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Receives what comes in at one end of a path and puts it on the way.
    fn take_in(&self, path: usize, direction: Direction) {
        let ends = &self.ends[path];
        let socket = match direction {
            Direction::Up => &ends.front,
            Direction::Down => &ends.back,
        };
        let mut buf = vec![0; 65_536];
        while !self.stopped() {
            // Time-outs, and the ICMP errors of an end that is gone, are no reason to stop.
            let Ok((len, from)) = socket.recv_from(&mut buf) else { continue };
            if direction == Direction::Down && from != self.server {
                continue;
            }
            let now = self.epoch.elapsed();
            let mut state = self.lock();
            if let Some(arrives) = state.accept(now, path, direction, from, len) {
                let number = state.accepted;
                let bytes = buf[..len].to_vec();
                state.on_the_way.push(Reverse(Datagram { arrives, number, path, direction, bytes }));
                drop(state);
                self.changed.notify_one();
            }
        }
    }

    /// Sends each datagram on when it is due.
    fn send_on(&self) {
        let mut state = self.lock();
        while !self.stopped() {
            let now = self.epoch.elapsed();
            let wait = match state.on_the_way.peek() {
                Some(Reverse(next)) if next.arrives <= now => {
                    if let Some(Reverse(datagram)) = state.on_the_way.pop() {
                        let client = state.paths[datagram.path].client;
                        drop(state);
                        self.deliver(&datagram, client);
                        state = self.lock();
                    }
                    continue;
                }
                Some(Reverse(next)) => next.arrives - now,
                None => HEARTBEAT,
            };
            state = self
                .changed
                .wait_timeout(state, wait)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    fn deliver(&self, datagram: &Datagram, client: Option<SocketAddr>) {
        let ends = &self.ends[datagram.path];
        // What cannot be delivered is lost, as on any network.
        let _ = match (datagram.direction, client) {
            (Direction::Up, _) => ends.back.send_to(&datagram.bytes, self.server),
            (Direction::Down, Some(client)) => ends.front.send_to(&datagram.bytes, client),
            (Direction::Down, None) => Ok(0),
        };
    }
}

impl State {
    /// When a datagram of `len` bytes arrives, if it does.
    fn accept(
        &mut self,
        now: Duration,
        path: usize,
        direction: Direction,
        from: SocketAddr,
        len: usize,
    ) -> Option<Duration> {
        self.accepted += 1;
        let begun = self.begun;
        let path = &mut self.paths[path];
        let link = match direction {
            Direction::Up => &mut path.up,
            Direction::Down => &mut path.down,
        };
        let fate = link.offer(now, len);
        if direction == Direction::Up {
            path.client = Some(from);
            if let Some(begun) = begun {
                path.carried.count(now.saturating_sub(begun), len, fate);
            }
        }
        match fate {
            Fate::Arrives(at) => Some(at),
            Fate::Lost | Fate::Dropped => None,
        }
    }
}

impl Carried {
    fn count(&mut self, at: Duration, len: usize, fate: Fate) {
        let bin = (at.as_micros() / BIN.as_micros()) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += len as u64;
        self.datagrams += 1;
        self.lost += u64::from(fate == Fate::Lost);
        self.dropped += u64::from(fate == Fate::Dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perfect() -> LinkSpec {
        LinkSpec { rates: vec![(Duration::ZERO, 1e9)], delay: Duration::from_millis(5), loss: 0.0, queue: 1 << 20 }
    }

    #[test]
    fn carries_both_ways_and_counts() {
        let server = loopback().unwrap();
        let client = loopback().unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        }
        let paths = ["a", "b"].map(|name| PathSpec { name, up: perfect(), down: perfect() });
        let relay = Relay::start(&paths, server.local_addr().unwrap(), 1).unwrap();
        relay.begin();
        let mut buf = [0; 100];
        let mut seen = Vec::new();
        for (entrance, word) in relay.entrances().iter().zip([&b"one"[..], b"seven"]) {
            let sent = Instant::now();
            client.send_to(word, entrance).unwrap();
            let (len, from) = server.recv_from(&mut buf).unwrap();
            assert!(sent.elapsed() >= Duration::from_millis(5), "not before its time");
            assert_eq!(&buf[..len], word);
            server.send_to(b"back", from).unwrap();
            assert_eq!(client.recv_from(&mut buf).unwrap(), (4, *entrance));
            seen.push(from);
        }
        assert_ne!(seen[0], seen[1], "the server sees two addresses");
        let carried = relay.carried();
        assert_eq!(carried.iter().map(Carried::bytes).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(carried[0].datagrams, 1);
    }

    #[test]
    fn a_lossy_path_loses() {
        let server = loopback().unwrap();
        let client = loopback().unwrap();
        let path = PathSpec { name: "a", up: LinkSpec { loss: 1.0, ..perfect() }, down: perfect() };
        let relay = Relay::start(&[path], server.local_addr().unwrap(), 1).unwrap();
        relay.begin();
        client.send_to(b"gone", relay.entrances()[0]).unwrap();
        while relay.carried()[0].datagrams == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(relay.carried()[0].lost, 1);
        assert!(server.recv_from(&mut [0; 10]).is_err());
    }
}
