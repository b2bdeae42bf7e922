//! What a path is like, and how it is driven: each fact about a path has one owner, and it is here.
//!
//! ```text
//!  packets leave ──▶ log ──────────┐
//!  ARRIVALS ─────▶ floor   ────────┤  how long the empty path is; what exceeds that is the queue
//!                  service ────────┤  how fast the queue is served
//!                  backlog ────────┼─▶ model ──▶ controller, path schedulers, last chance, redundancy, admission, statistics
//!                  overflow, losses┤  what is lost, and which of it by a full queue
//!                  policer ────────┤  or by a policer, and what that lets pass
//!                  room    ────────┤  or by a queue of a few packets, and how much of ours it holds
//!                  law     ────────┤  how far forecasts are off
//!  ACKs ─────────▶ proof   ────────┤  what may be in flight whatever the receiver says
//!                  health  ────────┘  whether it can be trusted
//! ```
//!
//! All that concerns the way there is taken from the receiver's times ([`Arrivals`](crate::frame::Arrivals)): what happens to ACKs on the
//! way back only says when something is known, not what.

mod backlog;
pub(crate) mod closed;
mod floor;
pub(crate) mod health;
mod law;
mod level;
#[cfg(test)]
mod link;
mod log;
mod model;
mod overflow;
pub(crate) mod paths;
pub(crate) mod probing;
mod proof;
mod purse;
pub(crate) mod sent;
mod service;
mod sharing;
pub(crate) mod terms;
#[cfg(test)]
mod tests;
mod thinning;
pub(crate) mod validation;
mod watch;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::PathStatus;

pub(crate) use crate::noq::path_number;

pub(crate) use self::model::Reported;
pub(crate) use self::watch::Alarm;
use self::{
    health::Trust, model::Model, probing::Probed, proof::Proof, purse::Purse, sent::SentBytes, terms::PathTerms,
    thinning::Thinning, validation::Validation,
};
use crate::{
    base::{PathHealth, PathId, PathView},
    congestion::{
        Driver, Loss, PathState,
        pacing::{self, Pacer},
        steering::{Panel, PathReading, Slot},
    },
    event::PathEvent,
    network::NetworkPath,
    rate::Rate,
    receive::feedback::Feedback,
    role::PathRole,
    send::{recovery::InFlight, store::Store},
};

/// A controller of QUIC's that gives no pace: up to this much faster than window / RTT, so that the window and not the pacer is the
/// limit (RFC 9002, 7.7).
const PACING_GAIN: f64 = 1.25;
/// A packet takes no longer than this on its path, unless it is small.
const GRAIN: Duration = Duration::from_millis(12);
/// What a policer's bucket holds is taken to leave within this time, as far as forecasts go: that of a frame or two.
const BURST_TIME: Duration = Duration::from_millis(50);
/// A queue in which packets have waited behind so many times what may leave at once has room for that. (They may have been late by chance, too.)
const LONG_QUEUE: u64 = 4;
/// Packets more than the window holds that may be in flight if they bear words, where nothing is lost.
const WORDS_ROOM: f64 = 16.0;
/// Smaller packets would be heads for the most part.
const LEAST_PACKET: u16 = 500;
/// What is lost at least on a path whose answer is overdue, as far as its share of losses goes: it may be dead, or an answer was lost.
const DOUBTED_LOSS: f64 = 0.25;
/// How much longer than another the control path may have been silent: bounds; in between, what is usual on it.
const CONTROL_SILENCE: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(50));
/// How long a generation of observed silences lasts.
const SILENCE_MEMORY: Duration = Duration::from_secs(1);

/// A path that was suspect for so long, and for so many round trips, was dead: bursts of losses are over sooner, as far as they can be told from that.
const DEAD: Duration = Duration::from_millis(250);
const DEAD_RTTS: u32 = 4;

/// A path of a session.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    /// QUIC's name for it.
    pub(crate) quic: noq_proto::PathId,
    /// The same, as a number on the wire: kept, for QUIC tells it as text only, and each packet needs it.
    number: u64,
    panel: Arc<Panel>,
    pub(crate) network: NetworkPath,
    /// The peer's address as QUIC was shown it.
    pub(crate) shown: SocketAddr,
    /// Whether the peer has been found at the address to which it has moved, if it ever has.
    pub(crate) validation: Option<Validation>,
    trust: Trust,
    pub(crate) in_flight: InFlight,
    pub(crate) suspected: u64,
    /// The datagram that left last while it was being opened.
    pub(crate) knock: Vec<u8>,
    /// Payload bytes that left on it.
    pub(crate) sent: SentBytes,
    pub(crate) terms: PathTerms,
    /// What is left of its budget.
    purse: Purse,
    /// What QUIC and the peer were told of the path.
    status: PathStatus,
    /// Since when the peer would rather not have us use it.
    distrusted: Option<Instant>,
    /// How many pieces of the control stream have left on it.
    pieces_said: u64,
    /// The latest packet with one, if that was not said again elsewhere.
    last_words: Option<u64>,
    /// When a datagram last came from it.
    last_received: Instant,
    /// The longest silence between two datagrams lately, in two generations, and when this one began.
    longest_silence: (Duration, Duration),
    silences_since: Instant,
    model: Model,
    proof: Proof,
    /// Bytes.
    first_window: u64,
    /// Ours, or if none, QUIC's own drives the path.
    driver: Option<Box<dyn Driver>>,
    pacer: Pacer,
    /// Keeps to what a policer lets pass, if there is one.
    shaper: Option<Pacer>,
    /// What the path is taken to carry, and before long.
    rate: Rate,
    forecast: Rate,
    /// Bytes without a deadline that left before anything was heard of the path.
    patient: u64,
    /// Stamps of the path's datagrams rise, so that each names one.
    last_stamp: u64,
    /// What is to be reported of the peer's datagrams.
    pub(crate) feedback: Feedback,
    /// How often the peer's are answered.
    pub(crate) thinning: Thinning,
    /// What is to be kept fresh while it is idle.
    probed: Probed,
}

impl Path {
    /// A path that is being opened.
    pub(crate) fn new(
        (id, quic): (PathId, noq_proto::PathId),
        network: NetworkPath,
        panel: Arc<Panel>,
        driver: Option<Box<dyn Driver>>,
        epoch: Instant,
        now: Instant,
        initial_rtt: Duration,
    ) -> Self {
        let window = panel.reading().window;
        let mut path = Self {
            id,
            quic,
            number: path_number(quic),
            panel,
            network,
            shown: network.remote,
            validation: None,
            trust: Trust::new(PathHealth::Opening),
            in_flight: InFlight::default(),
            suspected: 0,
            knock: Vec::new(),
            sent: SentBytes::default(),
            terms: PathTerms::default(),
            purse: Purse::new(now),
            status: PathStatus::Available,
            distrusted: None,
            pieces_said: 0,
            last_words: None,
            last_received: now,
            longest_silence: (Duration::ZERO, Duration::ZERO),
            silences_since: now,
            model: Model::new(now, epoch, initial_rtt),
            proof: Proof::default(),
            first_window: window,
            driver,
            pacer: Pacer::new(now, window),
            shaper: None,
            rate: Rate::LEAST,
            forecast: Rate::LEAST,
            patient: 0,
            last_stamp: 0,
            feedback: Feedback::default(),
            thinning: Thinning::default(),
            probed: Probed::new(now),
        };
        path.follow(now);
        path
    }

    /// Names its controller.
    pub(crate) fn slot(&self) -> Slot {
        self.panel.slot
    }

    /// What QUIC says of it.
    pub(crate) fn reading(&self) -> PathReading {
        self.panel.reading()
    }

    /// What a controller of ours is shown.
    fn state(&self, reading: &PathReading) -> PathState {
        PathState {
            base: self.model.base_rtt(),
            usual: self.model.usual_rtt(),
            rtt: self.model.rtt(),
            jitter: self.model.jitter(),
            in_flight: reading.in_flight,
            mtu: reading.mtu,
            packet: self.packet(reading.mtu),
            policed: self.shaper.as_ref().map(Pacer::pace),
            room: self.room(reading.mtu),
            no_room: self.in_flight.no_room(),
            chance: self.in_flight.losses().rate(),
        }
    }

    /// How much may usually leave at once, where the queue may be too short for that: not where packets have waited in a longer one.
    fn at_once(&self, packet: u16) -> u64 {
        let most = pacing::usual_depth(self.rate, packet);
        if self.rate.bytes_in(self.model.longest_queue()) > (most * LONG_QUEUE) as f64 { 0 } else { most }
    }

    /// How many bytes may leave at once, if that is less than may usually.
    fn room(&self, mtu: u16) -> Option<u64> {
        self.in_flight.room().filter(|room| *room < pacing::usual_depth(self.rate, self.packet(mtu)))
    }

    /// Something expired that had not all left, and would have been in time there had it been faster.
    pub(crate) fn starve(&mut self) {
        if let Some(driver) = &mut self.driver {
            driver.on_starved();
        }
    }

    /// Tells its controller whether the path could have carried more than there was to send, and whether its window stood in the way.
    pub(crate) fn set_limited(&mut self, app_limited: bool, window_limited: bool) {
        self.thinning.on_data(app_limited);
        match &mut self.driver {
            Some(driver) => {
                if app_limited {
                    driver.on_dry();
                }
            }
            None => self.panel.set_limited(app_limited, window_limited),
        }
    }

    /// How large packets are where they may have `most`: on a slow path no larger than what it carries in a short time, for what is urgent
    /// waits for those before it.
    fn packet(&self, most: u16) -> u16 {
        let soon = (self.rate.bytes_in(GRAIN) as u16).max(LEAST_PACKET);
        if self.driver.is_some() { soon.min(most) } else { most }
    }

    /// The same for the datagram in it, where there is room for `most`.
    pub(crate) fn datagram(&self, most: usize) -> usize {
        usize::from(self.packet(u16::try_from(most).unwrap_or(u16::MAX)))
    }

    /// How much may be in flight.
    fn window(&self, reading: &PathReading) -> u64 {
        let Some(driver) = &self.driver else { return reading.window };
        driver.window(&self.state(reading)).min(self.proof.limit(self.first_window))
    }

    /// Whether there is room for what QUIC says of its own, and says again: beyond what data may take, a little more, so that it goes before data,
    /// and the less the more is lost. Without a limit, words lost to a queue that is full would be said again and again, as fast as their loss is
    /// noticed, and keep it full.
    pub(crate) fn has_room_for_words(&self) -> bool {
        let reading = &self.reading();
        let passes = 1.0 - self.in_flight.loss().clamp(0.0, 1.0);
        let room = WORDS_ROOM * passes * passes * f64::from(self.packet(reading.mtu));
        reading.in_flight <= self.window(reading) + room as u64
    }

    /// What it is taken to carry.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// The path as schedulers see it. `offset`: the peer's clock minus ours, microseconds. `trusted`: whether it may carry data as
    /// things stand.
    pub(crate) fn view(&self, now: Instant, offset: Option<f64>, trusted: bool) -> PathView {
        let reading = &self.reading();
        let window = self.window(reading);
        let room = reading.in_flight + u64::from(self.packet(reading.mtu)) <= window;
        let paced_until = self.paced_until(now);
        let backlog = self.backlog(now);
        let min_rtt = self.model.base_rtt();
        let least = offset.and_then(|offset| self.model.one_way_delay(offset)).unwrap_or(min_rtt / 2);
        let rate = self.forecast_at(now).bytes_per_second();
        let view = PathView {
            id: self.id,
            health: self.standing(trusted),
            ready: trusted && room && paced_until.is_none(),
            ready_at: paced_until.filter(|_| trusted && room),
            rate,
            momentary: rate - self.lasting().bytes_per_second(),
            growing: self.driver.as_ref().is_some_and(|driver| driver.is_growing()),
            rtt: self.model.rtt(),
            min_rtt,
            rtt_var: self.model.rtt_var(),
            one_way_delay: least + backlog,
            min_one_way_delay: least,
            backlog,
            queue: self.model.queue(now),
            spread: self.model.spread(),
            late_by: self.model.late_by(),
            answer: self.model.answer(),
            loss: self.in_flight.loss().max(if self.is_doubted() { DOUBTED_LOSS } else { 0.0 }),
            loss_burst: self.in_flight.losses().observed_burst(),
            window,
            in_flight: reading.in_flight,
            cost: self.terms.cost(),
            role: self.terms.role(),
            budget_left: self.purse.share(),
            bottleneck: None,
        };
        self.freshen(view)
    }

    /// What the path will carry in the near future; under a policer what that lets pass, and what its bucket holds.
    fn forecast_at(&self, now: Instant) -> Rate {
        let Some(shaper) = &self.shaper else { return self.forecast };
        self.forecast.min(shaper.pace() + Rate::of(shaper.tokens(now) as u64, BURST_TIME))
    }

    /// The same in the long run, whatever its bucket holds.
    fn lasting(&self) -> Rate {
        self.shaper.as_ref().map_or(self.forecast, |shaper| self.forecast.min(shaper.pace()))
    }

    fn backlog(&self, now: Instant) -> Duration {
        let known = self.driver.as_ref().and_then(|driver| driver.backlog(now));
        known.unwrap_or_else(|| self.model.backlog(now))
    }

    /// The queue that others keep up there, whatever we do.
    pub(crate) fn queue_of_others(&self) -> Duration {
        self.driver.as_ref().map_or(Duration::ZERO, |driver| driver.queue_of_others())
    }

    /// How many of the bytes in flight will still be at `at`, if their answers take a round trip.
    pub(crate) fn in_flight_at(&self, at: Instant) -> u64 {
        let since = at.checked_sub(self.model.rtt());
        since.map_or(self.reading().in_flight, |since| self.in_flight.sent_after(since))
    }

    /// Until when pacing holds the next packet back, if it does.
    pub(crate) fn paced_until(&self, now: Instant) -> Option<Instant> {
        let driven = self.driver.as_ref().and_then(|driver| driver.ready_at(now));
        let shaped = self.shaper.as_ref().and_then(|shaper| shaper.ready_at(now));
        self.pacer.ready_at(now).max(driven).max(shaped)
    }

    /// Whether it lives, as far as we know.
    pub(crate) fn health(&self) -> PathHealth {
        self.trust.health()
    }

    /// The same with regard to the others: whether it may carry data beside them is `trusted`.
    pub(crate) fn standing(&self, trusted: bool) -> PathHealth {
        match self.trust.health() {
            PathHealth::Active if !trusted => PathHealth::Standby,
            health => health,
        }
    }

    /// How much is to be said against giving it data: the less, the better. An answer that is overdue is not enough, and a backup is better than
    /// what is suspect, or where QUIC may hardly send.
    fn rank(&self) -> (u8, bool) {
        let least = if self.validation.is_some_and(|validation| validation.is_limited()) { 2 } else { 1 };
        (self.trust.doubt().max(least), self.is_backup())
    }

    /// Takes in what has come into its budget since.
    pub(crate) fn refill_budget(&mut self, now: Instant) {
        self.purse.refill(self.terms.own.budget, now);
    }

    fn is_backup(&self) -> bool {
        self.terms.role() == PathRole::Backup || self.purse.is_spent()
    }

    /// Smoothed round trip.
    pub(crate) fn rtt(&self) -> Duration {
        self.model.rtt()
    }

    /// The round trip when nothing of ours waits.
    pub(crate) fn base_rtt(&self) -> Duration {
        self.model.base_rtt()
    }

    /// Whether a datagram with a stamp has left on it.
    pub(crate) fn is_stamped(&self) -> bool {
        self.last_stamp > 0
    }

    /// The stamp of a datagram that leaves at `micros` of the session's clock: a microsecond later than that, if that was used before.
    pub(crate) fn stamp(&mut self, micros: u64) -> u64 {
        self.last_stamp = micros.max(self.last_stamp + 1);
        self.last_stamp
    }

    /// A packet left on the path.
    pub(crate) fn on_sent(&mut self, pn: u64, bytes: u16, at: Instant, probe: bool) {
        self.pacer.on_sent(at, u64::from(bytes));
        self.purse.on_sent(u64::from(bytes), self.terms.own.budget);
        if let Some(shaper) = &mut self.shaper {
            shaper.on_sent(at, u64::from(bytes));
        }
        if !probe {
            self.probed.on_sent(at);
        }
        let wait = self.model.on_sent(pn, bytes, at, self.rate);
        if let Some(driver) = &mut self.driver {
            driver.on_sent(at, bytes.into(), self.panel.reading().in_flight);
        }
        // The loss of an MTU probe says nothing of the path, and QUIC does not report it.
        if !probe {
            self.in_flight.on_sent(pn, at, bytes, wait);
        }
    }

    /// That packet carried a datagram with a stamp.
    pub(crate) fn on_stamped(&mut self, pn: u64, stamp: u32) {
        self.model.on_stamped(pn, stamp);
    }

    /// Nothing in that packet has a deadline.
    pub(crate) fn on_patient(&mut self, pn: u64) {
        if !self.model.is_known() {
            self.patient += self.in_flight.get(pn).map_or(0, |packet| u64::from(packet.bytes));
        }
    }

    /// Packet `pn` has left, and with it there were `pieces` of the control stream in all on this path.
    pub(crate) fn note_words(&mut self, pn: u64, pieces: u64) {
        if pieces > self.pieces_said {
            (self.pieces_said, self.last_words) = (pieces, Some(pn));
        }
    }

    /// Whether something of the control stream is in flight that QUIC cannot know to be lost: nothing sent later has been acknowledged, and
    /// maybe nothing ever will be.
    pub(crate) fn has_words_stuck(&self) -> bool {
        self.health() == PathHealth::Suspect && self.last_words > self.in_flight.largest_acked()
    }

    /// How much more than the window may be in flight of what has a deadline: as much as what has none took of the first window.
    pub(crate) fn lent(&self) -> u64 {
        if self.model.is_known() { 0 } else { self.patient }
    }

    /// A packet was acknowledged. Returns [`PathEvent::Recovered`] if that clears a suspicion.
    pub(crate) fn on_acked(&mut self, pn: u64, sent: Instant, now: Instant, store: &mut Store) -> Option<PathEvent> {
        let bytes = self.in_flight.on_acked(pn, sent, now, store)?;
        self.proof.on_acked(bytes, now, self.model.rtt());
        self.model.on_acked(pn, sent, now);
        self.probed.on_acked(now.saturating_duration_since(sent));
        let silent = self.trust.suspect_since().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let recovered = self.trust.on_acked(sent, now, self.model.rtt());
        if recovered {
            self.in_flight.end_silence(silent >= DEAD.max(self.model.rtt() * DEAD_RTTS));
        }
        recovered.then_some(PathEvent::Recovered)
    }

    /// QUIC gave a packet up.
    pub(crate) fn on_lost(&mut self, pn: u64, now: Instant, store: &mut Store) {
        let (queue, congestion) = self.model.on_lost(pn);
        if let Some(packet) = self.in_flight.get(pn) {
            self.proof.on_lost(packet.bytes, now, self.model.rtt());
            // That a dead path lost what asked it to answer is no sign that it was given too much.
            if let Some(driver) = self.driver.as_mut().filter(|_| !packet.died) {
                driver.on_lost(&Loss { bytes: packet.bytes.into(), queue, overflow: congestion.is_some() });
            }
        }
        if let Some(before) = congestion {
            self.in_flight.pardon(before);
        }
        self.in_flight.on_lost(pn, congestion.is_some(), self.id, now, store);
    }

    /// All that is to be said of packets at this moment has been said: goes as fast as the controller says from now on.
    pub(crate) fn follow(&mut self, now: Instant) {
        self.model.end_acks(now, self.rate);
        self.shape(now);
        let reading = self.reading();
        let state = self.state(&reading);
        match &self.driver {
            Some(driver) => {
                self.rate = driver.rate(now, &state).max(Rate::LEAST);
                self.forecast = driver.forecast(now, &state).max(Rate::LEAST);
                self.pacer.set(now, driver.pace(now, &state), state.packet, driver.burst(&state).or(state.room));
                self.in_flight.set_rate(self.rate, self.at_once(state.packet));
            }
            None => {
                let by_window = Rate::of(reading.window, state.rtt);
                self.rate = reading.bandwidth.map_or(by_window, Rate::from_bytes_per_second).max(Rate::LEAST);
                self.forecast = self.rate;
                let pace = reading.pacing_rate.map(|rate| Rate::from_bytes_per_second(rate as f64));
                self.pacer.set(now, pace.unwrap_or(by_window * PACING_GAIN), reading.mtu, None);
            }
        }
    }

    /// Keeps to what a policer lets pass.
    fn shape(&mut self, now: Instant) {
        let limit = self.in_flight.policed().filter(|_| self.driver.is_some());
        let Some(limit) = limit else { return self.shaper = None };
        let shaper = self.shaper.get_or_insert_with(|| Pacer::empty(now));
        shaper.set(now, limit.rate, 0, Some(limit.burst));
    }

    /// The peer reports when datagrams of ours came.
    pub(crate) fn on_report(&mut self, now: Instant, list: &[Reported]) {
        let Some(report) = self.model.on_report(now, list) else { return };
        self.thinning.on_report(now, report.queue, self.model.base_rtt(), self.model.jitter());
        let state = self.state(&self.reading());
        if let Some(driver) = &mut self.driver
            && let Some(longer) = driver.on_report(&report, &state)
        {
            self.model.raise_floor(longer, now);
        }
        self.follow(now);
        self.model.correct(self.rate);
        self.probed.on_report(self.model.base_rtt(), self.model.answer());
    }

    /// A path that was being opened is ready for data.
    pub(crate) fn on_validated(&mut self, now: Instant, rtt: Option<Duration>) {
        self.trust.on_validated();
        if let Some(rtt) = rtt {
            self.model.set_initial_rtt(rtt);
        }
        self.follow(now);
    }

    /// The peer's end of the path has moved: it is to be trusted again on evidence only, and nothing will be heard of the
    /// packets that are in flight. Returns what to tell the application.
    pub(crate) fn on_moved(
        &mut self,
        now: Instant,
        panel: Arc<Panel>,
        driver: Option<Box<dyn Driver>>,
        store: &mut Store,
    ) -> PathEvent {
        self.panel = panel;
        self.driver = driver;
        self.suspect(now, store);
        self.in_flight.give_up(true, self.id, now, store);
        self.in_flight = InFlight::default();
        self.model.clear(now);
        self.proof = Proof::default();
        self.follow(now);
        PathEvent::Suspected { silent: now.saturating_duration_since(self.last_received) }
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

    /// When a datagram came from it last.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// A silence that means nothing yet: a little more than the longest lately.
    fn usual_silence(&self) -> Duration {
        self.longest_silence.0.max(self.longest_silence.1).mul_f64(1.25)
    }

    /// Whether QUIC may send data on it as things stand.
    pub(crate) fn is_available(&self) -> bool {
        self.status == PathStatus::Available
    }

    /// The peer has said whether it would rather not have us use it.
    pub(crate) fn set_distrusted(&mut self, now: Instant, distrusted: bool) {
        self.distrusted = distrusted.then(|| self.distrusted.unwrap_or(now));
    }

    /// Since when nothing that we send on it seems to arrive, by our account or the peer's.
    fn unheard_since(&self) -> Option<Instant> {
        [self.distrusted, self.trust.suspect_since()].into_iter().flatten().min()
    }

    /// Whether new data should rather go elsewhere.
    pub(crate) fn is_doubted(&self) -> bool {
        self.trust.doubt() > 0
    }

    /// When a datagram should leave to carry a report.
    pub(crate) fn report_due(&self) -> Option<Instant> {
        let due = self.feedback.due(self.model.rtt())?;
        Some(self.thinning.rests_until(due).unwrap_or(due))
    }

    /// Its number on the wire.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}
