//! A path as its sender sees it: what is in flight, how fast it may go, whether it can be trusted.
//!
//! A path that has data in flight and is silent for longer than about one and a half round trips is *suspect*: what is in
//! flight on it goes elsewhere at once, and it carries nothing but probes until one of these is answered. Only packets
//! sent after the suspicion count as evidence, for an acknowledgement of older ones may have come round by another path
//! from before the path died.

use std::time::{Duration, Instant};

use super::{PathEvent, PathHealth, PathId, PathView, pacing::Pacer};
use crate::{
    congestion::steering::{PathReading, Slot, Steering},
    endpoint::NetworkPath,
    frame::TimeEcho,
    send::{packetize::Contents, recovery::InFlight, store::Store},
};

/// Silence after which a path with data in flight is suspect, in round-trip times.
const PATIENCE_RTTS: f64 = 1.5;
/// Timers and schedulers of real hosts are late by about this much.
const GRANULARITY: Duration = Duration::from_millis(1);
/// Bounds on the time between probes of a suspect path.
const PROBE_INTERVAL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// After this many unanswered probes they become rarer.
const EAGER_PROBES: u32 = 50;
/// The time between those.
const LAZY_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How often the peer is told the times of arrival of its datagrams, while they come.
const ECHO_INTERVAL: Duration = Duration::from_millis(100);
/// So many first datagrams of a path are answered at once, so that clocks are compared early.
const EAGER_ECHOES: u32 = 4;
/// Weight of one packet in the recent loss rate.
const LOSS_WEIGHT: f64 = 1.0 / 64.0;
/// Send up to this much faster than window / RTT, so that the window and not the pacer is the limit (RFC 9002, 7.7).
const PACING_GAIN: f64 = 1.25;
/// Packets QUIC never reports on again are given up after so many round trips, and no sooner than after a second.
const FORGOTTEN_RTTS: u32 = 8;

/// A path of a session.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    /// QUIC's name for it.
    pub(crate) quic: noq_proto::PathId,
    /// Its number on the wire.
    number: u64,
    pub(crate) slot: Slot,
    pub(crate) network: NetworkPath,
    pub(crate) health: PathHealth,
    pub(crate) in_flight: InFlight,
    pub(crate) suspected: u64,
    /// The peer has said that it does not trust the path.
    pub(crate) peer_distrusts: bool,
    /// When a datagram last came from it.
    pub(crate) last_received: Instant,
    pacer: Pacer,
    /// RTT until an ACK has measured one.
    initial_rtt: Duration,
    last_heard: Option<Instant>,
    suspect_since: Option<Instant>,
    next_probe: Option<Instant>,
    probes: u32,
    loss: f64,
    /// The stamp that came with the least delay since the last echo, and the latest: one tells the clocks, the other
    /// the queue.
    echo: Option<(TimeEcho, TimeEcho)>,
    echo_due: Option<Instant>,
    last_echo: Option<Instant>,
    echoes: u32,
}

impl Path {
    pub(crate) fn new(
        id: PathId,
        quic: noq_proto::PathId,
        slot: Slot,
        network: NetworkPath,
        health: PathHealth,
        now: Instant,
        initial_rtt: Duration,
        reading: &PathReading,
    ) -> Self {
        let rate = pacing_rate(reading, initial_rtt);
        Self {
            id,
            quic,
            number: path_number(quic),
            slot,
            network,
            health,
            in_flight: InFlight::default(),
            suspected: 0,
            peer_distrusts: false,
            last_received: now,
            pacer: Pacer::new(now, rate, reading.mtu),
            initial_rtt,
            last_heard: None,
            suspect_since: None,
            next_probe: None,
            probes: 0,
            loss: 0.0,
            echo: None,
            echo_due: None,
            last_echo: None,
            echoes: 0,
        }
    }

    /// The path as schedulers see it. `trusted`: whether it may carry data as things stand.
    pub(crate) fn view(
        &self,
        now: Instant,
        reading: &PathReading,
        one_way_delay: Option<Duration>,
        trusted: bool,
    ) -> PathView {
        let (rtt, min_rtt, rtt_var) = self.rtts(reading);
        let room = reading.in_flight + u64::from(reading.mtu) <= reading.window;
        let paced_until = self.pacer.ready_at(now);
        PathView {
            id: self.id,
            health: self.health,
            ready: trusted && room && paced_until.is_none(),
            ready_at: paced_until.filter(|_| trusted && room),
            rate: rate(reading, rtt),
            rtt,
            min_rtt,
            rtt_var,
            one_way_delay: one_way_delay.unwrap_or(rtt / 2),
            loss: self.loss,
            window: reading.window,
            in_flight: reading.in_flight,
            cost: 0.0,
        }
    }

    pub(crate) fn rtts(&self, reading: &PathReading) -> (Duration, Duration, Duration) {
        match reading.rtt {
            Some(rtt) => (rtt.smoothed, rtt.min, rtt.var),
            None => (self.initial_rtt, self.initial_rtt, self.initial_rtt / 2),
        }
    }

    /// A packet left on the path.
    pub(crate) fn on_sent(&mut self, pn: u64, bytes: u16, at: Instant, mtu: u16) {
        self.pacer.on_sent(at, u64::from(bytes));
        // A packet beyond the MTU is an MTU probe: its loss says nothing of the path, and QUIC does not report it.
        if bytes <= mtu {
            self.in_flight.on_sent(pn, at, Contents::default());
        }
    }

    /// A packet was acknowledged. Returns [`PathEvent::Recovered`] if that clears a suspicion.
    pub(crate) fn on_acked(
        &mut self,
        pn: u64,
        sent: Instant,
        now: Instant,
        reading: &PathReading,
        store: &mut Store,
    ) -> Option<PathEvent> {
        self.in_flight.on_acked(pn, sent, now, store)?;
        self.last_heard = Some(now);
        self.loss *= 1.0 - LOSS_WEIGHT;
        self.pacer.set_rate(now, pacing_rate(reading, self.rtts(reading).0), reading.mtu);
        if self.suspect_since.is_some_and(|since| sent >= since) {
            self.suspect_since = None;
            self.next_probe = None;
            self.health = PathHealth::Active;
            return Some(PathEvent::Recovered);
        }
        None
    }

    /// QUIC gave a packet up.
    pub(crate) fn on_lost(&mut self, pn: u64, now: Instant, reading: &PathReading, store: &mut Store) {
        self.loss += (1.0 - self.loss) * LOSS_WEIGHT;
        self.in_flight.on_lost(pn, self.id, now, store);
        self.pacer.set_rate(now, pacing_rate(reading, self.rtts(reading).0), reading.mtu);
    }

    /// A path that was being opened is ready for data.
    pub(crate) fn on_validated(&mut self, now: Instant, rtt: Option<Duration>, reading: &PathReading) {
        self.health = PathHealth::Active;
        self.initial_rtt = rtt.unwrap_or(self.initial_rtt);
        self.pacer.set_rate(now, pacing_rate(reading, self.rtts(reading).0), reading.mtu);
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(crate) fn next_timeout(&self, reading: &PathReading, max_ack_delay: Duration) -> Option<Instant> {
        let alarm = match self.health {
            PathHealth::Opening => None,
            PathHealth::Active => self.silent_since().map(|since| since + self.patience(reading, max_ack_delay)),
            PathHealth::Suspect => self.next_probe,
        };
        [alarm, self.echo_due].into_iter().flatten().min()
    }

    /// Looks after the path's trustworthiness.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        reading: &PathReading,
        max_ack_delay: Duration,
        store: &mut Store,
    ) -> Alarm {
        match self.health {
            PathHealth::Active => {
                let Some(since) = self.silent_since() else { return Alarm::None };
                if now < since + self.patience(reading, max_ack_delay) {
                    let age = (self.rtts(reading).0 * FORGOTTEN_RTTS).max(Duration::from_secs(1));
                    self.in_flight.expire(age, self.id, now, store);
                    return Alarm::None;
                }
                self.suspect(now, store);
                Alarm::Suspected(PathEvent::Suspected { silent: now - since })
            }
            PathHealth::Suspect if self.next_probe.is_some_and(|at| at <= now) => {
                self.probes += 1;
                let interval = if self.probes > EAGER_PROBES {
                    LAZY_PROBE_INTERVAL
                } else {
                    self.rtts(reading).0.clamp(PROBE_INTERVAL.0, PROBE_INTERVAL.1)
                };
                self.next_probe = Some(now + interval);
                Alarm::Probe
            }
            PathHealth::Opening | PathHealth::Suspect => Alarm::None,
        }
    }

    fn suspect(&mut self, now: Instant, store: &mut Store) {
        self.health = PathHealth::Suspect;
        self.suspected += 1;
        self.suspect_since = Some(now);
        self.probes = 0;
        self.next_probe = Some(now);
        self.in_flight.give_up(self.id, now, store);
    }

    /// Since when nothing has been heard of what is in flight.
    fn silent_since(&self) -> Option<Instant> {
        let oldest = self.in_flight.oldest()?;
        Some(self.last_heard.map_or(oldest, |heard| heard.max(oldest)))
    }

    fn patience(&self, reading: &PathReading, max_ack_delay: Duration) -> Duration {
        let (rtt, _, var) = self.rtts(reading);
        rtt.mul_f64(PATIENCE_RTTS).max(rtt + var * 4) + max_ack_delay + GRANULARITY
    }

    /// A datagram stamped `sent` by the peer arrived at `received` (both as they go on the wire).
    pub(crate) fn on_stamp(&mut self, now: Instant, sent: u32, received: u32, has_blocks: bool) {
        let latest = TimeEcho { path: self.number, echoed: sent, received };
        let delay = |echo: &TimeEcho| echo.received.wrapping_sub(echo.echoed);
        let least = match self.echo {
            // Both differences hold the same unknown offset of the clocks, so their difference does not.
            Some((least, _)) if (delay(&latest).wrapping_sub(delay(&least)) as i32) > 0 => least,
            _ => latest,
        };
        self.echo = Some((least, latest));
        let due = if self.echoes < EAGER_ECHOES {
            now
        } else if has_blocks {
            self.last_echo.map_or(now, |last| (last + ECHO_INTERVAL).max(now))
        } else {
            // Answering an answer would never end.
            return;
        };
        self.echo_due = Some(self.echo_due.map_or(due, |before| before.min(due)));
    }

    /// The echoes to put into a datagram that leaves now, if it is time: that of the least delayed stamp, and of the
    /// latest.
    pub(crate) fn take_echo(&mut self, now: Instant) -> Option<(TimeEcho, TimeEcho)> {
        if self.last_echo.is_some_and(|last| now < last + ECHO_INTERVAL) && self.echoes >= EAGER_ECHOES {
            return None;
        }
        let echo = self.echo.take()?;
        self.echo_due = None;
        self.last_echo = Some(now);
        self.echoes = self.echoes.saturating_add(1);
        Some(echo)
    }

    /// Whether a datagram should leave now just to carry the echo.
    pub(crate) fn owes_echo(&self, now: Instant) -> bool {
        self.health == PathHealth::Active && self.echo.is_some() && self.echo_due.is_some_and(|due| due <= now)
    }
}

/// What a timeout of a path calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Nothing.
    None,
    /// The path has become suspect.
    Suspected(PathEvent),
    /// It should be probed.
    Probe,
}

/// Bytes per second the path can carry: its controller's estimate, or a window each round trip.
fn rate(reading: &PathReading, rtt: Duration) -> f64 {
    let by_window = reading.window as f64 / rtt.as_secs_f64().max(1e-6);
    reading.bandwidth.unwrap_or(by_window).max(1.0)
}

fn pacing_rate(reading: &PathReading, rtt: Duration) -> f64 {
    match reading.pacing_rate {
        Some(rate) => rate as f64,
        None => PACING_GAIN * reading.window as f64 / rtt.as_secs_f64().max(1e-6),
    }
}

/// The number of a path, as it goes on the wire. noq shows it only as text.
pub(crate) fn path_number(id: noq_proto::PathId) -> u64 {
    id.to_string().parse().unwrap_or(u64::MAX)
}

/// The paths of a session, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    list: Vec<Path>,
    /// Where ACKs and the control stream go.
    control: Option<PathId>,
}

/// How much longer than another the control path may have been silent: bounds, and the share of its RTT in between.
const CONTROL_SILENCE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

impl Paths {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.list.iter_mut()
    }

    pub(crate) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.id == id)
    }

    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.list.iter().find(|path| path.id == id)
    }

    pub(crate) fn by_quic(&mut self, quic: noq_proto::PathId) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.quic == quic)
    }

    pub(crate) fn in_slot(&mut self, slot: Slot) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.slot == slot)
    }

    /// The path a datagram from `network` came on.
    pub(crate) fn on_network(&mut self, network: NetworkPath) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.network == network)
    }

    pub(crate) fn add(&mut self, path: Path) {
        let at = self.list.partition_point(|other| other.id < path.id);
        self.list.insert(at, path);
    }

    pub(crate) fn remove(&mut self, id: PathId) -> Option<Path> {
        let at = self.list.iter().position(|path| path.id == id)?;
        if self.control == Some(id) {
            self.control = None;
        }
        Some(self.list.remove(at))
    }

    /// Fills `views`, with what each path can do now.
    ///
    /// A suspect path carries data only if no path is above suspicion: then all hope rests on it.
    pub(crate) fn views(
        &self,
        now: Instant,
        steering: &Steering,
        one_way_delay: impl Fn(PathId) -> Option<Duration>,
        views: &mut Vec<PathView>,
    ) {
        views.clear();
        let any_active = self.list.iter().any(|path| path.health == PathHealth::Active);
        for path in &self.list {
            let trusted = match path.health {
                PathHealth::Active => true,
                PathHealth::Suspect => !any_active,
                PathHealth::Opening => false,
            };
            views.push(path.view(now, &steering.reading(path.slot), one_way_delay(path.id), trusted));
        }
    }

    /// The path on which ACKs and the control stream should leave.
    ///
    /// The peer's silence on a path is the first sign that ours is lost on it too, long before any timer: so the path
    /// moves, with some hysteresis, to where the peer was heard last. Among those heard lately it is the fastest.
    pub(crate) fn control_path(&mut self, steering: &Steering) -> Option<Slot> {
        let usable = |path: &&Path| path.health == PathHealth::Active && !path.peer_distrusts;
        let any_active = self.list.iter().any(|path| usable(&path));
        let candidates = || self.list.iter().filter(|path| !any_active || usable(path));
        let newest = candidates().map(|path| path.last_received).max()?;
        let rtt = |path: &Path| path.rtts(&steering.reading(path.slot)).0;
        let silence = |path: &Path| (rtt(path) / 4).clamp(CONTROL_SILENCE.0, CONTROL_SILENCE.1);
        let heard = |path: &&Path| newest.saturating_duration_since(path.last_received) <= silence(path);
        let current = candidates().find(|path| Some(path.id) == self.control);
        if let Some(path) = current.filter(heard) {
            return Some(path.slot);
        }
        let best = candidates().filter(heard).min_by_key(|path| (rtt(path), path.id))?;
        let slot = best.slot;
        self.control = Some(best.id);
        Some(slot)
    }
}
