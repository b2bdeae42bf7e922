//! Carries what the kernel sends between two network namespaces over [wires](super::wires): a TUN device in each, and between them the links that an experiment had. For what is not ours to open a
//! socket for: kernel TCP and MPTCP, or a program that knows nothing of a relay.
//!
//! Packets are whole IP packets here, so a link counts them as they are, and their ECN marks are read and written.

use std::{
    fs::File,
    io,
    net::Ipv4Addr,
    os::fd::AsFd as _,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use punctual_sim::EcnCodepoint;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, InterruptEvent, SyncDevice};

use super::{
    lateness::Lateness,
    wires::{Arrival, Plan, Way, Wires},
};
use crate::exit::Failure;

/// How often the sending thread looks whether it should end.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// The most packets that are sent on before others may be taken in.
const BATCH: usize = 64;
/// Where `ip netns` keeps its namespaces.
const NAMESPACES: &str = "/run/netns";

/// Where a device is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// A namespace of `ip netns`; `.` for our own.
    namespace: String,
    address: Ipv4Addr,
    prefix: u8,
}

/// Devices with links between them. They go when this is dropped.
pub(crate) struct Devices {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    lines: Vec<String>,
}

struct Shared {
    epoch: Instant,
    /// Of each path, that at its beginning and that at its end.
    devices: Vec<[SyncDevice; 2]>,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
    wake: InterruptEvent,
}

struct State {
    wires: Wires,
    lateness: Lateness,
}

impl Devices {
    /// Makes two devices for each path and carries packets between them from now on; schedules and losses begin with the first.
    ///
    /// # Errors
    /// If a place makes no sense or there are not two for each path, or the devices cannot be had: that takes root.
    pub(crate) fn open(places: &[String], mut plan: Plan, seed: u64) -> Result<Self, Failure> {
        let places: Vec<Place> = places.iter().map(|place| parse(place)).collect::<Result<_, _>>()?;
        let (pairs, rest) = places.as_chunks::<2>();
        if pairs.len() != plan.paths.len() || !rest.is_empty() {
            let (paths, given) = (plan.paths.len(), places.len());
            return Err(Failure::Usage(format!(
                "{paths} paths need {} of --tun, two for each; there are {given}",
                2 * paths
            )));
        }
        let mut mtu = u32::MAX;
        plan.each_link(|link| {
            // A packet has its headers.
            link.overhead = 0;
            mtu = mtu.min(link.mtu);
        });
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let (mut devices, mut lines) = (Vec::new(), Vec::new());
        for (pair, index) in pairs.iter().zip(0..) {
            let name = format!("link{index}");
            let [near, far] = pair;
            devices.push([make(near, &name, mtu)?, make(far, &name, mtu)?]);
            for Place { namespace, address, prefix } in pair {
                lines.push(format!("{name} in {namespace}: {address}/{prefix}"));
            }
        }
        let wake = InterruptEvent::new().map_err(|error| Failure::Other(format!("cannot make an event: {error}")))?;
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            devices,
            state: Mutex::new(State { wires: Wires::new(plan, seed), lateness: Lateness::default() }),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            wake,
        });
        let mut opened = Self { shared: shared.clone(), threads: Vec::new(), lines };
        for path in 0..shared.devices.len() {
            for way in [Way::There, Way::Back] {
                opened.spawn(move |shared| shared.hear(path, way))?;
            }
        }
        opened.spawn(Shared::send_on)?;
        Ok(opened)
    }

    fn spawn(&mut self, work: impl FnOnce(&Shared) + Send + 'static) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let thread = thread::Builder::new().name("link".into()).spawn(move || work(&shared));
        self.threads.push(thread.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?);
        Ok(())
    }

    /// What there is, for people.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Looks at what there is to tell: the wires, how late they are, and since when they have been in use.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Wires, &Lateness, Option<Duration>) -> R) -> R {
        let now = self.shared.epoch.elapsed();
        let state = self.shared.lock();
        let since = state.wires.begun().map(|begun| now.saturating_sub(begun));
        look(&state.wires, &state.lateness, since)
    }
}

impl Devices {
    /// Carries nothing any more; what was carried has been counted when this returns.
    pub(crate) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.shared.wake.trigger();
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.stop();
    }
}

/// `NETNS,ADDRESS/LENGTH`.
fn parse(text: &str) -> Result<Place, Failure> {
    let place = || {
        let (namespace, address) = text.split_once(',')?;
        let (address, prefix) = address.split_once('/')?;
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
        let is_name = !namespace.is_empty() && !namespace.contains('/') && namespace != "..";
        is_name.then_some(Place { namespace: namespace.into(), address: address.parse().ok()?, prefix })
    };
    place()
        .ok_or_else(|| Failure::Usage(format!("--tun {text}: expected NETNS,ADDRESS/LENGTH, such as left,10.9.0.1/24")))
}

/// Makes a device where it is to be. A thread of its own goes there, and ends there.
fn make(place: &Place, name: &str, mtu: u16) -> Result<SyncDevice, Failure> {
    let failed = |error: io::Error| {
        let hint = if error.kind() == io::ErrorKind::PermissionDenied { " (that takes root)" } else { "" };
        Failure::Path(format!("cannot make the device {name} in {}: {error}{hint}", place.namespace))
    };
    let namespace = match place.namespace.as_str() {
        "." => None,
        namespace => {
            let path = Path::new(NAMESPACES).join(namespace);
            let file = File::open(&path);
            Some(file.map_err(|error| {
                Failure::Path(format!("there is no namespace {namespace}: {}: {error}", path.display()))
            })?)
        }
    };
    let work = || {
        if let Some(namespace) = &namespace {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        DeviceBuilder::new().name(name).mtu(mtu).ipv4(place.address, place.prefix, None).enable(true).build_sync()
    };
    let made = thread::scope(|scope| scope.spawn(work).join());
    made.unwrap_or_else(|_| Err(io::Error::other("the thread that was to make it is gone"))).map_err(failed)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left plain data behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Takes in what the kernel sends at one end of a path.
    fn hear(&self, path: usize, way: Way) {
        let mut buf = vec![0; 65_536];
        while !self.stopped() {
            let received = self.devices[path][way as usize].recv_intr_timeout(&mut buf, &self.wake, Some(HEARTBEAT));
            let len = match received {
                Ok(len) => len,
                Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) => continue,
                Err(_) => {
                    // A device that was taken down, or is gone with its namespace.
                    thread::sleep(HEARTBEAT);
                    continue;
                }
            };
            let packet = &buf[..len];
            if is_chatter(packet) {
                continue;
            }
            let mut state = self.lock();
            // Taken under the lock, so that for the links time never runs backwards.
            let now = self.epoch.elapsed();
            if state.wires.begun().is_none() {
                state.wires.begin(now);
            }
            let before = state.wires.next();
            state.wires.offer(now, path, way, 0, packet.into(), ecn(packet));
            let sooner = state.wires.next() != before;
            drop(state);
            if sooner {
                self.changed.notify_one();
            }
        }
    }

    /// Gives each packet to the kernel at the other end when it is due.
    fn send_on(&self) {
        let mut due = Vec::with_capacity(BATCH);
        while !self.stopped() {
            let mut state = self.lock();
            let now = self.epoch.elapsed();
            while due.len() < BATCH
                && let Some(arrival) = state.wires.poll(now)
            {
                due.push(arrival);
            }
            if due.is_empty() {
                let wait = state.wires.next().map_or(HEARTBEAT, |next| next.saturating_sub(now).min(HEARTBEAT));
                drop(self.changed.wait_timeout(state, wait));
                continue;
            }
            drop(state);
            let mut sent = Vec::with_capacity(due.len());
            for Arrival { due, path, way, mut datagram, .. } in due.drain(..) {
                if datagram.ecn == Some(EcnCodepoint::Ce) {
                    mark(&mut datagram.data);
                }
                // What cannot be delivered is lost, as on any network.
                let _ = self.devices[path][1 - way as usize].send(&datagram.data);
                sent.push((due, self.epoch.elapsed()));
            }
            let mut state = self.lock();
            sent.into_iter().for_each(|(due, sent)| state.lateness.note(due, sent));
        }
    }
}

/// What IPv6 says by itself on a new interface, to all on the link: nobody asked for it to be carried, nor for its being the beginning.
fn is_chatter(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(6) => packet.get(24..26) == Some(&[0xff, 0x02]),
        Some(4) => false,
        _ => true,
    }
}

/// The ECN mark of an IP packet.
fn ecn(packet: &[u8]) -> Option<EcnCodepoint> {
    let second = packet.get(1)?;
    EcnCodepoint::from_bits(if packet[0] >> 4 == 4 { *second } else { second >> 4 })
}

/// Marks an IP packet with ECN CE.
fn mark(packet: &mut BytesMut) {
    match packet.first().map(|first| (first >> 4, usize::from(first & 15) * 4)) {
        Some((4, header)) if header >= 20 && packet.len() >= header => {
            packet[1] |= 3;
            packet[10..12].fill(0);
            // RFC 1071.
            let words = packet[..header].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum: u32 = words.sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some((6, _)) if packet.len() > 1 => packet[1] |= 0x30,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of RFC 1071's arithmetic: its words and its checksum add up to 0xffff.
    fn is_sound(header: &[u8]) -> bool {
        let sum: u32 = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        (sum & 0xffff) + (sum >> 16) == 0xffff
    }

    #[test]
    fn marks_are_read_and_written() {
        let mut packet = BytesMut::from(
            &[
                0x45, 0x02, 0x00, 0x54, 0x00, 0x00, 0x40, 0x00, 0x40, 0x01, 0xb8, 0x55, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
                0xa8, 0x00, 0xc7, 1, 2, 3,
            ][..],
        );
        assert_eq!(ecn(&packet), Some(EcnCodepoint::Ect0));
        mark(&mut packet);
        assert_eq!(ecn(&packet), Some(EcnCodepoint::Ce));
        assert!(is_sound(&packet[..20]), "{packet:x?}");
        let mut six = BytesMut::from(&[0x60, 0x10, 0, 0][..]);
        assert_eq!(ecn(&six), Some(EcnCodepoint::Ect1));
        mark(&mut six);
        assert_eq!((ecn(&six), &six[..]), (Some(EcnCodepoint::Ce), &[0x60, 0x30, 0, 0][..]));
        // What is cut short, or no IP at all, harms nobody.
        for len in 0..20 {
            let mut short = BytesMut::from(&packet[..len]);
            mark(&mut short);
            let _ = (ecn(&short), is_chatter(&short));
        }
    }

    #[test]
    fn places_are_read() {
        let place = parse("left,10.9.0.1/24").unwrap();
        assert_eq!((place.namespace.as_str(), place.address, place.prefix), ("left", Ipv4Addr::new(10, 9, 0, 1), 24));
        for bad in ["", "left", "left,10.9.0.1", "left,10.9.0.1/33", ",10.9.0.1/24", "../x,10.9.0.1/24", "left,x/24"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
