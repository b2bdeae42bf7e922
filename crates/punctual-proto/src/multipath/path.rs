//! A path as its sender sees it: what is in flight, how fast it may go, whether it can be trusted.
//!
//! Two alarms watch for its death.
//!
//! - *Overdue*: the answer to a packet is later than any answer was lately. If later packets have been answered, it is lost, in
//!   all likelihood, and fragments whose deadline would not survive more waiting are sent again at once; QUIC gives it up a little later.
//!   If none have, and the path has been quiet besides, that may be the loss of a last packet, or the beginning of the end:
//!   then the path gets no new data, either, while another is free of doubt. The next acknowledgement clears it.
//! - *Silence* for about one and a half round trips with data in flight makes a path *suspect*: everything in flight on
//!   it goes elsewhere, and it carries nothing but probes until one of these is answered. Only packets sent after the
//!   suspicion count as evidence, for an acknowledgement of older ones may have come round by another path from before the
//!   path died.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::PathStatus;

use super::{PathEvent, PathHealth, PathId, PathView, pace::Pace, pacing::Pacer, sent::SentBytes};
use crate::{
    congestion::steering::{Panel, PathReading, Slot},
    endpoint::NetworkPath,
    frame::TimeEcho,
    send::{
        recovery::{InFlight, Packet},
        store::Store,
    },
};

/// Silence after which a path with data in flight is suspect, in round-trip times.
const PATIENCE_RTTS: f64 = 1.5;
/// An answer is overdue once it is later than any in this many round trips.
const RECENT_RTTS: u32 = 8;
/// And once the path has been quiet for longer than it usually pauses between acknowledgements, and than this.
const MIN_QUIET: Duration = Duration::from_millis(2);
/// So many of the usual pauses between acknowledgements are a silence.
const SILENT_PAUSES: u32 = 3;
/// Timers and schedulers of real hosts are late by about this much.
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);
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
/// Send up to this much faster than window / RTT, so that the window and not the pacer is the limit (RFC 9002, 7.7).
const PACING_GAIN: f64 = 1.25;
/// What is lost while the queue is longer than this, and than half of the empty path, is lost to congestion.
const LONG_QUEUE: Duration = Duration::from_millis(30);
/// Packets QUIC never reports on again are given up after so many round trips, and no sooner than after a second.
const FORGOTTEN_RTTS: u32 = 8;

/// How much longer than another the control path may have been silent: bounds; in between, what is usual on it.
pub(super) const CONTROL_SILENCE: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(50));
/// How long a generation of observed silences lasts.
const SILENCE_MEMORY: Duration = Duration::from_secs(1);

/// A path of a session.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    /// QUIC's name for it.
    pub(crate) quic: noq_proto::PathId,
    /// Its number on the wire.
    number: u64,
    panel: Arc<Panel>,
    pub(crate) network: NetworkPath,
    pub(crate) health: PathHealth,
    pub(crate) in_flight: InFlight,
    pub(crate) suspected: u64,
    /// Payload bytes that left on it.
    pub(crate) sent: SentBytes,
    /// Cost of a byte, in the application's own unit.
    pub(crate) cost: f64,
    /// What QUIC and the peer were told of the path.
    pub(super) status: PathStatus,
    /// The peer has said that it would rather not have the path used.
    pub(crate) peer_distrusts: bool,
    /// When a datagram last came from it.
    pub(super) last_received: Instant,
    /// The longest silence between two datagrams lately, in two generations, and when this one began.
    longest_silence: (Duration, Duration),
    silences_since: Instant,
    pacer: Pacer,
    /// When the path will have passed on what it was given, at its rate (bytes per second).
    busy_until: Instant,
    rate: f64,
    /// How fast answers come while there is a queue.
    pace: Pace,
    /// RTT until an ACK has measured one.
    initial_rtt: Duration,
    /// When packets were last acknowledged, and the least of their round trips.
    last_answer: Option<(Instant, Duration)>,
    /// The longest round trip lately, in two generations: this one and the one before.
    longest_rtt: (Duration, Duration),
    generation_since: Instant,
    /// The usual time between acknowledgements.
    pause: Duration,
    /// An answer is overdue.
    doubtful: bool,
    /// Packets sent up to here have been judged as to whether their answer is overdue.
    judged: Option<Instant>,
    suspect_since: Option<Instant>,
    next_probe: Option<Instant>,
    probes: u32,
    /// The stamp that came with the least delay since the last echo, and the latest: one tells the clocks, the other
    /// the queue.
    echo: Option<(TimeEcho, TimeEcho)>,
    echo_due: Option<Instant>,
    last_echo: Option<Instant>,
    echoes: u32,
}

impl Path {
    /// A path that is being opened.
    pub(crate) fn new(
        id: PathId,
        quic: noq_proto::PathId,
        panel: Arc<Panel>,
        network: NetworkPath,
        now: Instant,
        initial_rtt: Duration,
    ) -> Self {
        let reading = &panel.reading();
        let pacing = pacing_rate(reading, initial_rtt);
        Self {
            id,
            quic,
            number: path_number(quic),
            panel,
            network,
            health: PathHealth::Opening,
            in_flight: InFlight::default(),
            suspected: 0,
            sent: SentBytes::default(),
            cost: 0.0,
            status: PathStatus::Available,
            peer_distrusts: false,
            last_received: now,
            longest_silence: (Duration::ZERO, Duration::ZERO),
            silences_since: now,
            pacer: Pacer::new(now, pacing, reading.mtu),
            busy_until: now,
            rate: rate(reading, initial_rtt),
            pace: Pace::default(),
            initial_rtt,
            last_answer: None,
            longest_rtt: (Duration::ZERO, Duration::ZERO),
            generation_since: now,
            pause: Duration::ZERO,
            doubtful: false,
            judged: None,
            suspect_since: None,
            next_probe: None,
            probes: 0,
            echo: None,
            echo_due: None,
            last_echo: None,
            echoes: 0,
        }
    }

    /// Names its controller.
    pub(crate) fn slot(&self) -> Slot {
        self.panel.slot
    }

    /// What its controller says.
    pub(crate) fn reading(&self) -> PathReading {
        self.panel.reading()
    }

    /// Tells its controller whether the path could have carried more than there was to send, and whether its window stood in the way.
    pub(crate) fn set_limited(&self, app_limited: bool, window_limited: bool) {
        self.panel.set_limited(app_limited, window_limited);
    }

    /// The path as schedulers see it. `trusted`: whether it may carry data as things stand.
    pub(crate) fn view(
        &self,
        now: Instant,
        reading: &PathReading,
        (one_way_delay, least): (Option<Duration>, Option<Duration>),
        trusted: bool,
    ) -> PathView {
        let (rtt, min_rtt, rtt_var) = self.rtts(reading);
        let room = reading.in_flight + u64::from(reading.mtu) <= reading.window;
        let paced_until = self.pacer.ready_at(now);
        PathView {
            id: self.id,
            health: if self.is_doubted() { PathHealth::Suspect } else { self.health },
            ready: trusted && room && paced_until.is_none(),
            ready_at: paced_until.filter(|_| trusted && room),
            rate: rate(reading, rtt),
            rtt,
            min_rtt,
            rtt_var,
            one_way_delay: one_way_delay.unwrap_or(rtt / 2),
            min_one_way_delay: least.unwrap_or(min_rtt / 2),
            backlog: self.busy_until.saturating_duration_since(now),
            loss: self.in_flight.losses().observed_rate(),
            loss_burst: self.in_flight.losses().observed_burst(),
            window: reading.window,
            in_flight: reading.in_flight,
            cost: self.cost,
        }
    }

    /// Until when pacing holds the next packet back, if it does.
    pub(crate) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.pacer.ready_at(now)
    }

    pub(crate) fn rtts(&self, reading: &PathReading) -> (Duration, Duration, Duration) {
        match reading.rtt {
            Some(rtt) => (rtt.smoothed, rtt.min, rtt.var),
            None => (self.initial_rtt, self.initial_rtt, self.initial_rtt / 2),
        }
    }

    /// A packet left on the path.
    pub(crate) fn on_sent(&mut self, pn: u64, bytes: u16, at: Instant, probe: bool) {
        self.pacer.on_sent(at, u64::from(bytes));
        self.busy_until = self.busy_until.max(at) + Duration::from_secs_f64(f64::from(bytes) / self.rate);
        // The loss of an MTU probe says nothing of the path, and QUIC does not report it.
        if !probe {
            self.in_flight.on_sent(pn, at, bytes);
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
        let bytes = self.in_flight.on_acked(pn, sent, now, store)?;
        self.pace.on_acked(sent, now, bytes.into(), self.rtts(reading).1);
        self.note_answer(now, now.saturating_duration_since(sent), reading);
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
        let (rtt, min, _) = self.rtts(reading);
        let congestion = rtt.saturating_sub(min) > (min / 2).max(LONG_QUEUE);
        self.in_flight.on_lost(pn, congestion, self.id, now, store);
    }

    /// Goes as fast as the controller says; packets were acknowledged or lost.
    pub(crate) fn follow(&mut self, now: Instant, reading: &PathReading) {
        let rtt = self.rtts(reading).0;
        self.rate = rate(reading, rtt);
        self.pacer.set_rate(now, pacing_rate(reading, rtt), reading.mtu);
        if self.last_heard() == Some(now) {
            self.note_queue(now, reading);
        }
    }

    /// A path that was being opened is ready for data.
    pub(crate) fn on_validated(&mut self, now: Instant, rtt: Option<Duration>, reading: &PathReading) {
        self.health = PathHealth::Active;
        self.initial_rtt = rtt.unwrap_or(self.initial_rtt);
        self.follow(now, reading);
    }

    /// The peer's end of the path has moved: it is to be trusted again on evidence only, and nothing will be heard of the
    /// packets that are in flight. Returns what to tell the application.
    pub(crate) fn on_moved(&mut self, now: Instant, panel: Arc<Panel>, store: &mut Store) -> PathEvent {
        let reading = &panel.reading();
        self.panel = panel;
        self.suspect(now, store);
        self.in_flight.give_up(true, self.id, now, store);
        self.in_flight = InFlight::default();
        self.pacer.set_rate(now, pacing_rate(reading, self.rtts(reading).0), reading.mtu);
        PathEvent::Suspected { silent: now.saturating_duration_since(self.last_received) }
    }

    /// When packets were last acknowledged.
    fn last_heard(&self) -> Option<Instant> {
        self.last_answer.map(|(at, _)| at)
    }

    /// Learns from an acknowledgement how long answers take, and how far apart they come.
    fn note_answer(&mut self, now: Instant, rtt: Duration, reading: &PathReading) {
        // Of packets acknowledged together only the latest tells how long its answer took; the others may have been
        // answered before, in an ACK that was lost.
        let rtt = match self.last_answer {
            Some((at, least)) if at == now => rtt.min(least),
            Some((before, settled)) => {
                self.longest_rtt.0 = self.longest_rtt.0.max(settled);
                let pause = now.saturating_duration_since(before);
                self.pause = (self.pause * 7 + pause.min(self.rtts(reading).0)) / 8;
                rtt
            }
            None => rtt,
        };
        self.last_answer = Some((now, rtt));
        self.doubtful = false;
        if now.saturating_duration_since(self.generation_since) > self.rtts(reading).0 * RECENT_RTTS {
            self.longest_rtt = (Duration::ZERO, self.longest_rtt.0);
            self.generation_since = now;
        }
    }

    /// A datagram came from it.
    pub(crate) fn on_received(&mut self, now: Instant) {
        if now == self.last_received {
            // As all but the first of what comes together.
            return;
        }
        if now.saturating_duration_since(self.silences_since) > SILENCE_MEMORY {
            self.longest_silence = (Duration::ZERO, self.longest_silence.0);
            self.silences_since = now;
        }
        let silence = now.saturating_duration_since(self.last_received);
        // A real outage is not something to get used to.
        if silence <= CONTROL_SILENCE.1 {
            self.longest_silence.0 = self.longest_silence.0.max(silence);
        }
        self.last_received = now;
    }

    /// A silence that means nothing yet: a little more than the longest lately.
    pub(super) fn usual_silence(&self) -> Duration {
        self.longest_silence.0.max(self.longest_silence.1).mul_f64(1.25)
    }

    /// Learns from acknowledgements how long the queue is: all that is in flight but for what the empty path holds, at the pace at which
    /// it is served. That is longer than thought if the path has become slower, which that pace tells first.
    fn note_queue(&mut self, now: Instant, reading: &PathReading) {
        let min_rtt = self.rtts(reading).1;
        self.pace.end_acks(min_rtt);
        let pace = self.pace.get().map_or(self.rate, |pace| pace.clamp(1.0, self.rate));
        let through = Duration::from_secs_f64(reading.in_flight as f64 / pace);
        self.busy_until = self.busy_until.max(now + through.saturating_sub(min_rtt));
    }

    /// Whether QUIC may send data on it as things stand.
    pub(crate) fn is_available(&self) -> bool {
        self.status == PathStatus::Available
    }

    /// How much is to be said against the path: 0 nothing, 1 an overdue answer, 2 suspicion, 3 that it is not open yet.
    pub(super) fn doubt(&self) -> u8 {
        match self.health {
            PathHealth::Active => u8::from(self.doubtful),
            PathHealth::Suspect => 2,
            PathHealth::Opening => 3,
        }
    }

    /// Whether new data should rather go elsewhere.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubtful || self.health != PathHealth::Active
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(crate) fn next_timeout(&self, reading: &PathReading, max_ack_delay: Duration) -> Option<Instant> {
        match self.health {
            PathHealth::Opening => None,
            PathHealth::Active => {
                let oldest = self.in_flight.oldest_of_tail();
                let silence = oldest.map(|sent| self.silent_at(sent, reading, max_ack_delay));
                let next = self.in_flight.first_after(self.judged);
                let overdue = next.map(|(sent, tail)| self.overdue_at(sent, tail, reading, max_ack_delay));
                [silence, overdue].into_iter().flatten().min()
            }
            PathHealth::Suspect => self.next_probe,
        }
    }

    /// When a datagram should leave to carry an echo.
    pub(crate) fn echo_due(&self) -> Option<Instant> {
        self.echo_due.filter(|_| !self.is_doubted())
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
                let oldest = self.in_flight.oldest_of_tail();
                if let Some(since) = oldest.filter(|&sent| now >= self.silent_at(sent, reading, max_ack_delay)) {
                    self.suspect(now, store);
                    return Alarm::Suspected(PathEvent::Suspected { silent: now - since });
                }
                let next = self.in_flight.first_after(self.judged);
                let overdue = next.filter(|(sent, tail)| now >= self.overdue_at(*sent, *tail, reading, max_ack_delay));
                if let Some((_, tail)) = overdue {
                    // A single hole is a loss like others; when nothing comes at all, the path itself may be lost.
                    self.doubtful |= tail;
                    let due_by = now + self.rtts(reading).0 * if tail { 2 } else { 1 };
                    let sent_by = now.checked_sub(self.longest_answer(reading, max_ack_delay)).unwrap_or(now);
                    self.in_flight.give_up_urgent(sent_by, due_by, self.id, now, store);
                    self.judged = Some(sent_by);
                }
                Alarm::None
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

    /// Gives up the packets that QUIC has forgotten, and returns them.
    pub(crate) fn expire(&mut self, now: Instant, reading: &PathReading, store: &mut Store) -> Vec<(u64, Packet)> {
        // On a suspect path everything has been given up already, and late answers are welcome.
        if self.health != PathHealth::Active {
            return Vec::new();
        }
        let age = (self.rtts(reading).0 * FORGOTTEN_RTTS).max(Duration::from_secs(1));
        self.in_flight.expire(age, self.id, now, store)
    }

    /// How long an answer may take before it is overdue: longer than any lately, or than can be put down to variation.
    fn longest_answer(&self, reading: &PathReading, max_ack_delay: Duration) -> Duration {
        let (rtt, _, var) = self.rtts(reading);
        self.longest_answer_at(rtt, var, max_ack_delay)
    }

    /// The same, for who knows the path's round-trip time and its variation already.
    pub(crate) fn longest_answer_at(&self, rtt: Duration, var: Duration, max_ack_delay: Duration) -> Duration {
        let (longest, unusual) = (self.longest_rtt.0.max(self.longest_rtt.1), rtt + (var * 4).max(max_ack_delay));
        // What is usual, a path must have shown first: a full packet takes longer than those of the handshake.
        let usual = if self.longest_rtt.1.is_zero() { unusual } else { longest.min(unusual) };
        usual.max(rtt) + GRANULARITY
    }

    /// When the answer to a packet sent then is overdue. If later ones have been answered, that is all there is to it; in the tail,
    /// of which nothing has been heard, it may be that nothing is to be heard just now.
    fn overdue_at(&self, sent: Instant, tail: bool, reading: &PathReading, max_ack_delay: Duration) -> Instant {
        let quiet = self.pause.max(MIN_QUIET);
        let answer = sent + self.longest_answer(reading, max_ack_delay);
        self.last_heard().filter(|_| tail).map_or(answer, |heard| answer.max(heard + quiet))
    }

    fn suspect(&mut self, now: Instant, store: &mut Store) {
        self.health = PathHealth::Suspect;
        self.suspected += 1;
        self.suspect_since = Some(now);
        self.doubtful = false;
        self.probes = 0;
        self.next_probe = Some(now);
        self.in_flight.give_up(false, self.id, now, store);
    }

    /// When the path is silent, its oldest unanswered packet having been sent then: there has been time enough for the
    /// answer, and for half a round trip, and some of its usual pauses, nothing else was heard either.
    fn silent_at(&self, sent: Instant, reading: &PathReading, max_ack_delay: Duration) -> Instant {
        let quiet = (self.rtts(reading).0 / 2).max(self.pause * SILENT_PAUSES);
        let answer = sent + self.patience(reading, max_ack_delay);
        self.last_heard().map_or(answer, |heard| answer.max(heard + quiet))
    }

    /// How long the answer to a packet may take, with nothing after it answered, before the path is suspect.
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
        self.echo.is_some() && self.echo_due().is_some_and(|due| due <= now)
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
