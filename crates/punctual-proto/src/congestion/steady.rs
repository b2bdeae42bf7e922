//! Our own controller: drives a path at the rate it delivers, and keeps its queue short.
//!
//! A queue in the network is one no scheduler can reach into: a new urgent block waits behind it. So this controller
//! models the path (what it delivers, how long it takes when empty) in the manner of BBR, and sends at that rate, with three
//! differences that deadlines ask for:
//!
//! - **It watches the delay.** Start-up ends where trains of packets tell that the path's rate is reached, or at the first
//!   standing queue. A queue that stands for a whole round tells the path's rate, and is drained at once. There is no periodic starvation
//!   to find the empty path's RTT: a queue that will not shrink is taken for the path's new length.
//! - **It probes gently** ([`PROBE_UP`]), only when there is data that could use more, and further as long as it finds more.
//! - **It repeats.** Nothing is drawn from a random generator, so virtual-time runs are equal to the byte.
//!
//! Loss by itself says little about congestion on the paths we are for, so it is answered only when much is lost
//! ([`LOSS_LIMIT`]) over a round.

use std::{
    any::Any,
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
};

use super::dispersion::{Bursts, Busy};

/// How fast start-up grows: the least that doubles the rate each round (BBR's 2/ln 2).
const STARTUP_GAIN: f64 = 2.77;
/// How fast the queue that start-up made is emptied. Trains keep it short, so that BBR's 1/2.77 would cost deadlines more
/// than the queue does.
const DRAIN_GAIN: f64 = 0.75;
/// A rate that grew by less than this in a round has stopped growing (BBR).
const GROWTH: f64 = 1.25;
/// After so many rounds without growth, start-up ends (BBR).
const FULL_ROUNDS: u32 = 3;
/// The window, in bandwidth-delay products: room for acknowledgements to come late (BBR's cwnd_gain).
const WINDOW_GAIN: f64 = 2.0;
/// The same as long as a queue stands, with the packets on top: little enough for it to empty.
const QUEUED_WINDOW: (f64, u64) = (1.0, 2);
/// How much faster than the path a probe for more bandwidth is, for one round (BBR's 1.25 would queue a quarter of an RTT);
/// and the rounds after, as long as each finds more.
const PROBE_UP: [f64; 4] = [1.1, 1.25, 1.6, 2.0];
/// What a probe must find, for the next round to go further.
const FOUND: f64 = 1.04;
/// How much slower the round after it is, and every round as long as a queue stands.
const PROBE_DOWN: f64 = 0.9;
/// Rounds from probe to probe (BBR's gain cycle has eight phases).
const CYCLE: u32 = 8;
/// How long the best delivery rate is believed, in rounds (BBR).
const RATE_MEMORY: u64 = 10;
/// How long the shortest round trip is believed (BBR).
const RTT_MEMORY: Duration = Duration::from_secs(10);
/// A queue stands if the shortest round trip of a round exceeds the path's by this, or by [`QUEUE_SHARE`].
const QUEUE_FLOOR: Duration = Duration::from_millis(4);
/// See [`QUEUE_FLOOR`]; a share of the path's round trip.
const QUEUE_SHARE: u32 = 16;
/// A queue that after so many rounds has not shrunk below this share of what it was is the path's new length.
const STUBBORN_ROUNDS: u32 = 4;
const STUBBORN_SHARE: f64 = 0.7;
/// So large a share of a round lost is congestion, whatever the delay says (BBR v1 bears about a fifth).
const LOSS_LIMIT: f64 = 0.25;
/// What is left of the rate after such a round.
const LOSS_BACKOFF: f64 = 0.85;
/// Packets that left in one train, and came back spread out by the path, tell its rate: with so many of them,
const TRAIN_PACKETS: u64 = 6;
/// counted up to so many,
const LONGEST_TRAIN: u64 = 16;
/// sent no further apart than this,
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// and in less than this share of the time their answers took.
const TRAIN_SPREAD: f64 = 0.5;
/// The fastest of so many trains is believed: one that was held up on its way tells too little.
const TRAINS: usize = 8;
/// Start-up ends at this share of what trains tell.
const TRAIN_SHARE: f64 = 0.95;
/// How much a round's bursts may raise the rate.
const BURST_GROWTH: f64 = 1.25;
/// The same while the path has been this much faster lately.
const REGAIN_GROWTH: f64 = 2.0;
/// A rate below this share of what it was lately may come back at any time: it is probed for eagerly.
const FALLEN: f64 = 0.8;
/// How long lately is.
const BEST_MEMORY: Duration = Duration::from_secs(10);
/// The smallest window, in packets (RFC 9002 has 2; acknowledgements come for every second packet).
const MIN_WINDOW_PACKETS: u64 = 4;

/// Builds [`Steady`] controllers.
#[derive(Debug, Clone)]
pub(super) struct SteadyConfig {
    /// Bytes.
    pub(super) initial_window: u64,
}

impl ControllerFactory for SteadyConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Steady::new(self.initial_window, current_mtu, now))
    }
}

/// Packets that left close together, as their answers come in.
#[derive(Debug, Clone, Copy)]
struct Train {
    /// When its first packet left, and was answered.
    head: (Instant, Instant),
    /// When its last packet so far left.
    tail_sent: Instant,
    /// Bytes answered after the head.
    bytes: u64,
    packets: u64,
    /// What it tells so far, bytes per second.
    rate: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Finding the rate.
    Startup,
    /// Emptying the queue that start-up made.
    Drain,
    /// At the rate; the number counts rounds since the last probe.
    Cruise(u32),
}

/// What was known when a packet left.
#[derive(Debug, Clone, Copy)]
struct Sent {
    pn: u64,
    at: Instant,
    /// Bytes delivered by then, and when the last of them was.
    delivered: u64,
    delivered_at: Instant,
    /// When the packet left whose delivery that was.
    first_sent: Instant,
    app_limited: bool,
}

/// The controller.
#[derive(Debug, Clone)]
struct Steady {
    initial_window: u64,
    mtu: u64,
    phase: Phase,
    /// Packets whose fate is open, by packet number.
    sent: VecDeque<Sent>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Packets sent until more than this is delivered count as limited by the application.
    app_limited_until: u64,
    in_flight: u64,
    /// Best delivery rates, bytes per second, with their round: a monotonic queue.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    /// The round ends when a packet sent after this much was delivered is acknowledged.
    round_ends: u64,
    /// The shortest round trip, and bytes answered and lost, in the round.
    round_shortest: Duration,
    round_acked: u64,
    round_lost: u64,
    /// Whether a packet of the round left when there was little to send.
    round_app_limited: bool,
    min_rtt: Option<(Duration, Instant)>,
    /// Start-up: the rate that was last grown from, and rounds since.
    full_rate: f64,
    full_rounds: u32,
    queue_stands: bool,
    /// How far the probe has gone, and the rate at the end of the last round.
    climb: usize,
    probed_from: f64,
    /// For how many rounds it has, and how long it was in the first.
    queued: Option<(u32, Duration)>,
    train: Option<Train>,
    /// What the last trains told of the path's rate, bytes per second.
    trains: VecDeque<f64>,
    bursts: Bursts,
    busy: Busy,
    /// The highest rate of late, and when it was so.
    best: Option<(f64, Instant)>,
}

impl Steady {
    fn new(initial_window: u64, mtu: u16, now: Instant) -> Self {
        Self {
            initial_window,
            mtu: u64::from(mtu),
            phase: Phase::Startup,
            sent: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            app_limited_until: 0,
            in_flight: 0,
            rates: VecDeque::new(),
            round: 0,
            round_ends: 0,
            round_shortest: Duration::MAX,
            round_acked: 0,
            round_lost: 0,
            round_app_limited: false,
            min_rtt: None,
            full_rate: 0.0,
            full_rounds: 0,
            queue_stands: false,
            climb: 0,
            probed_from: 0.0,
            queued: None,
            train: None,
            trains: VecDeque::new(),
            bursts: Bursts::default(),
            busy: Busy::default(),
            best: None,
        }
    }

    /// What the path delivers, bytes per second.
    fn rate(&self) -> Option<f64> {
        let rate = self.rates.front()?.1;
        // However little it was: a path on which hardly anything is sent could never show that it has become faster.
        let least = (MIN_WINDOW_PACKETS * self.mtu) as f64 / self.rtt()?.as_secs_f64().max(1e-6);
        Some(rate.max(least))
    }

    fn rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|(rtt, _)| rtt)
    }

    /// The bandwidth-delay product, bytes.
    fn bdp(&self) -> Option<f64> {
        Some(self.rate()? * self.rtt()?.as_secs_f64())
    }

    fn gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => DRAIN_GAIN,
            Phase::Cruise(_) if self.queue_stands => PROBE_DOWN,
            Phase::Cruise(0) => PROBE_UP[self.climb],
            Phase::Cruise(1) => PROBE_DOWN,
            Phase::Cruise(_) => 1.0,
        }
    }

    fn sample_rate(&mut self, packet: &Sent, now: Instant) {
        let sending = packet.at.saturating_duration_since(packet.first_sent);
        let arriving = now.saturating_duration_since(packet.delivered_at);
        let interval = sending.max(arriving);
        // Shorter than a round trip, it would measure how ACKs were bundled (BBR draft, 4.1.2.3).
        if interval.is_zero() || self.rtt().is_some_and(|rtt| interval < rtt) {
            return;
        }
        let rate = (self.delivered - packet.delivered) as f64 / interval.as_secs_f64();
        if packet.app_limited && self.rate().is_some_and(|best| rate < best) {
            return;
        }
        while self.rates.back().is_some_and(|&(_, other)| other <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self.rates.len() > 1 && self.rates.front().is_some_and(|&(round, _)| round + RATE_MEMORY < self.round) {
            self.rates.pop_front();
        }
    }

    /// Follows trains: what the narrowest link spread out shows how fast it is.
    fn sample_train(&mut self, sent: Instant, now: Instant, bytes: u64) {
        let Some(train) = self.train.as_mut().filter(|train| {
            let together = sent.checked_duration_since(train.tail_sent).is_some_and(|gap| gap <= TRAIN_GAP);
            together && train.packets < LONGEST_TRAIN
        }) else {
            self.finish_train();
            self.train = Some(Train { head: (sent, now), tail_sent: sent, bytes: 0, packets: 0, rate: None });
            return;
        };
        train.tail_sent = sent;
        // Packets answered together with the head say nothing of the time between.
        if now > train.head.1 {
            train.bytes += bytes;
            train.packets += 1;
            let sending = sent.saturating_duration_since(train.head.0).as_secs_f64();
            let arriving = now.saturating_duration_since(train.head.1).as_secs_f64();
            if train.packets >= TRAIN_PACKETS && sending < TRAIN_SPREAD * arriving {
                train.rate = Some(train.bytes as f64 / arriving);
            }
        }
    }

    fn finish_train(&mut self) {
        let Some(rate) = self.train.take().and_then(|train| train.rate) else { return };
        if self.trains.len() == TRAINS {
            self.trains.pop_front();
        }
        self.trains.push_back(rate);
    }

    /// What trains tell of the path's rate, bytes per second.
    fn train_rate(&self) -> Option<f64> {
        self.trains.iter().copied().chain(self.train.and_then(|train| train.rate)).reduce(f64::max)
    }

    fn sample_rtt(&mut self, rtt: Duration, now: Instant) {
        self.round_shortest = self.round_shortest.min(rtt);
        if self.min_rtt.is_none_or(|(min, since)| rtt <= min || now.saturating_duration_since(since) > RTT_MEMORY) {
            self.min_rtt = Some((rtt, now));
        }
    }

    fn end_round(&mut self) {
        self.round += 1;
        self.round_ends = self.delivered;
        self.judge_queue();
        let served = self.busy.take(TRAIN_PACKETS * self.mtu);
        if let Some(served) = served.filter(|_| self.queue_stands) {
            // What the path served while it had a queue is what it can serve, however little there was to send.
            self.rates.retain(|&(_, rate)| rate <= served);
            self.rates.push_back((self.round, served));
            self.trains.clear();
        } else if let Some(more) = self.bursts.rate(self.delivered_at).filter(|_| !self.queue_stands)
            && self.phase != Phase::Startup
        {
            // A path that is seldom full shows in bursts what it could carry. Not all at once: they are short.
            let now = self.rate().unwrap_or_default();
            let growth = if self.has_fallen() { REGAIN_GROWTH } else { BURST_GROWTH };
            if more > now {
                self.rates.clear();
                self.rates.push_back((self.round, more.min(now * growth)));
            }
        }
        self.remember_best();
        let lost = self.round_lost as f64 / (self.round_lost + self.round_acked).max(1) as f64;
        if lost > LOSS_LIMIT {
            for (_, rate) in &mut self.rates {
                *rate *= LOSS_BACKOFF;
            }
        }
        let rate = self.rate().unwrap_or_default();
        let found = self.phase == Phase::Cruise(0) && rate >= FOUND * self.probed_from;
        let eager = self.has_fallen() && !self.queue_stands && !self.round_app_limited;
        self.climb = if found { (self.climb + 1).min(PROBE_UP.len() - 1) } else { usize::from(eager) };
        self.probed_from = rate;
        let startup_is_over = self.phase == Phase::Startup && self.startup_is_over();
        self.phase = match self.phase {
            Phase::Startup if startup_is_over && self.queue_stands => Phase::Drain,
            Phase::Startup if startup_is_over => Phase::Cruise(2),
            Phase::Startup => Phase::Startup,
            // A round is enough for any queue that trains let start-up make.
            Phase::Drain => Phase::Cruise(2),
            // There is more: on.
            Phase::Cruise(0) if found && !self.queue_stands => Phase::Cruise(0),
            Phase::Cruise(rounds) if eager && rounds > 1 => Phase::Cruise(0),
            // With nothing more to send, a probe would find nothing.
            Phase::Cruise(rounds) if rounds + 1 >= CYCLE && !self.round_app_limited && !self.queue_stands => {
                Phase::Cruise(0)
            }
            Phase::Cruise(rounds) => Phase::Cruise((rounds + 1).min(CYCLE)),
        };
        self.round_shortest = Duration::MAX;
        self.round_acked = 0;
        self.round_lost = 0;
        self.round_app_limited = false;
    }

    /// Keeps the best rate of late.
    fn remember_best(&mut self) {
        let rate = self.rate().unwrap_or_default();
        let now = self.delivered_at;
        let forgotten = |since: Instant| now.saturating_duration_since(since) > BEST_MEMORY;
        if self.best.is_none_or(|(best, since)| rate >= best || forgotten(since)) {
            self.best = Some((rate, now));
        }
    }

    /// Whether the path was much faster lately.
    fn has_fallen(&self) -> bool {
        self.best.is_some_and(|(best, _)| self.rate().unwrap_or_default() < FALLEN * best)
    }

    /// Whether a queue stood all the round. One that will not shrink, though less is sent than the path delivers, is none: the
    /// path itself has become longer (or others keep its queue full, which for us is the same).
    fn judge_queue(&mut self) {
        let Some((min, since)) = self.min_rtt.filter(|_| self.round_shortest < Duration::MAX) else { return };
        let queue = self.round_shortest.saturating_sub(min);
        self.queue_stands = queue > QUEUE_FLOOR.max(min / QUEUE_SHARE);
        if !self.queue_stands {
            self.queued = None;
            return;
        }
        let (rounds, first) = self.queued.map_or((1, queue), |(rounds, first)| (rounds + 1, first));
        self.queued = Some((rounds, first));
        if rounds >= STUBBORN_ROUNDS && queue >= first.mul_f64(STUBBORN_SHARE) {
            self.min_rtt = Some((self.round_shortest, since.max(self.delivered_at)));
            self.queue_stands = false;
            self.queued = None;
        }
    }

    fn startup_is_over(&mut self) -> bool {
        let rate = self.rate().unwrap_or(0.0);
        let arrived = self.train_rate().is_some_and(|train| rate >= TRAIN_SHARE * train);
        if self.queue_stands || (arrived && !self.round_app_limited) {
            return true;
        }
        if rate >= self.full_rate * GROWTH {
            self.full_rate = rate;
            self.full_rounds = 0;
        } else if !self.round_app_limited {
            self.full_rounds += 1;
        }
        self.full_rounds >= FULL_ROUNDS
    }

    fn take(&mut self, pn: u64) -> Option<Sent> {
        let at = self.sent.binary_search_by_key(&pn, |packet| packet.pn).ok()?;
        self.sent.remove(at)
    }
}

impl Controller for Steady {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        if self.in_flight == 0 {
            // After a pause the clock of deliveries starts anew.
            self.first_sent = now;
            self.delivered_at = now;
        }
        self.in_flight += u64::from(bytes);
        // Numbers of the handshake's packet spaces overlap; those packets tell little and are left out.
        if self.sent.back().is_some_and(|last| last.pn >= pn) {
            return;
        }
        self.sent.push_back(Sent {
            pn,
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            app_limited: self.delivered <= self.app_limited_until,
        });
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, pn: u64, app_limited: bool, _: &RttEstimator) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = now;
        self.round_acked += bytes;
        self.sample_rtt(now.saturating_duration_since(sent), now);
        self.sample_train(sent, now, bytes);
        if let Some((min_rtt, _)) = self.min_rtt {
            self.bursts.on_ack(sent, now, bytes, min_rtt);
            self.busy.on_ack(sent, now, bytes, min_rtt);
        }
        if app_limited {
            self.app_limited_until = self.delivered + self.in_flight;
        }
        let Some(packet) = self.take(pn).filter(|packet| packet.at == sent) else { return };
        self.first_sent = packet.at;
        self.round_app_limited |= packet.app_limited;
        self.sample_rate(&packet, now);
        if packet.delivered >= self.round_ends {
            self.end_round();
        }
        if self.phase == Phase::Drain && self.bdp().is_some_and(|bdp| self.in_flight as f64 <= bdp) {
            self.phase = Phase::Cruise(2);
        }
    }

    fn on_end_acks(&mut self, _: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        self.in_flight = in_flight;
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, is_ecn: bool, _: u64, _: u64) {
        // A mark is a queue seen by the one who has it.
        if is_ecn {
            self.queue_stands = true;
            if self.phase == Phase::Startup {
                self.phase = Phase::Drain;
            }
        }
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, _: Instant) {
        self.in_flight = self.in_flight.saturating_sub(u64::from(lost_bytes));
        self.round_lost += u64::from(lost_bytes);
        self.take(pn);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        let Some(bdp) = self.bdp() else { return self.initial_window };
        // Room besides for what acknowledgements bundle.
        let (gain, packets) = match self.phase {
            _ if self.queue_stands => QUEUED_WINDOW,
            Phase::Startup => (STARTUP_GAIN, MIN_WINDOW_PACKETS),
            Phase::Drain | Phase::Cruise(_) => (WINDOW_GAIN, MIN_WINDOW_PACKETS),
        };
        let window = (gain * bdp) as u64 + packets * self.mtu;
        let floor = if self.phase == Phase::Startup { self.initial_window } else { 0 };
        window.max(floor)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        if let (Some(rate), Some(rtt)) = (self.rate(), self.rtt()) {
            let start = self.initial_window as f64 / rtt.as_secs_f64().max(1e-6);
            let base = if self.phase == Phase::Startup { rate.max(start) } else { rate };
            let wanted = self.gain() * base;
            let paced = match self.train_rate().filter(|_| self.phase == Phase::Startup) {
                // What has been delivered has been delivered, whatever trains say.
                Some(train) => wanted.min(train.max(rate)),
                None => wanted,
            };
            metrics.pacing_rate = Some(paced as u64);
            // In start-up what has been delivered is mostly what there was to send; the path would carry more.
            let bandwidth = if self.phase == Phase::Startup { paced } else { base };
            metrics.bandwidth_estimate = Some((bandwidth * 8.0) as u64);
        }
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
