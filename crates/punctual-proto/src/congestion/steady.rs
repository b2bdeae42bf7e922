//! Our own controller: drives a path at the rate it delivers, and keeps its queue short.
//!
//! A queue in the network is one no scheduler can reach into: a new urgent block waits behind it. So this controller
//! models the path (what it delivers, how long it takes when empty) in the manner of BBR, and sends at that rate, with three
//! differences that deadlines ask for:
//!
//! - **It watches the delay.** Start-up ends where trains of packets tell that the path's rate is reached, or at the first
//!   standing queue. A queue that stands for a whole round tells the path's rate, and is drained at once; each flow keeps no more than a few packets in
//!   it, so that those with most of the path give way to others of their kind.
//! - **It knows whose queue it is** ([`Standing`]). One that will not go although we make room is filled by others, and then we hold
//!   our own in it by a window of our own ([`Contest`]), and look every so often whether they have gone.
//! - **It probes gently** ([`PROBE_UP`]), only when there is data that could use more, and further as long as it finds more.
//! - **It tells losses apart** ([`Losses`]): what a path loses however little is sent is made up for; what more is lost, is ours.
//! - **It repeats.** Nothing is drawn from a random generator, so virtual-time runs are equal to the byte.
//!
//! What was weighed, and measured, is in `docs/congestion.md`.

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

use super::{
    contest::{Contest, Round},
    delivery::{Delivery, Sample},
    dispersion::{Bursts, Busy},
    losses::Losses,
    standing::{Queue, Standing},
    trains::Trains,
    waits::Waits,
};

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
/// So many packets more than that under way, and still we made room.
const ROOM_PACKETS: u64 = 2;
/// How much faster than the path a probe for more bandwidth is, for one round (BBR's 1.25 would queue a quarter of an RTT);
/// and the rounds after, as long as each finds more.
const PROBE_UP: [f64; 4] = [1.1, 1.25, 1.6, 2.0];
/// What a probe must find, for the next round to go further.
const FOUND: f64 = 1.04;
/// How much slower the round after it is, and every round as long as a queue stands.
const PROBE_DOWN: f64 = 0.9;
/// Rounds from probe to probe (BBR's gain cycle has eight phases).
const CYCLE: u32 = 8;
/// So many packets of ours may stand in the queue before we go slower, by at most so much;
const OWN_PACKETS: f64 = 2.0;
const MOST_SLOWER: f64 = 0.1;
/// with more of them the path is full, and a probe would find nothing.
const FULL_PACKETS: f64 = 4.0;
/// Beside others that fill the queue the window says what we send, and the rate only spreads it: by so much it is faster.
const SHARED_GAIN: f64 = 1.1;
/// The window was used if so much of it was.
const USED: f64 = 0.8;
/// The most loss that we make up for by sending more.
const MOST_MADE_UP_FOR: f64 = 0.4;
/// How long the best delivery rate is believed, in rounds (BBR).
const RATE_MEMORY: u64 = 10;
/// What is left of the rate after congestion that loss has told.
const LOSS_BACKOFF: f64 = 0.85;
/// What a queue was served at tells the rate if it was this many packets.
const BUSY_PACKETS: u64 = 6;
/// Start-up ends at this share of what trains tell.
const TRAIN_SHARE: f64 = 0.95;
/// How much a round's bursts may raise the rate.
const BURST_GROWTH: f64 = 1.25;
/// The same while the path has been this much faster lately.
const REGAIN_GROWTH: f64 = 2.0;
/// A rate below this share of what it was lately may come back at any time: it is probed for eagerly.
const FALLEN: f64 = 0.8;
/// A path on which bursts come through so much faster than its queue seems to be served has no queue.
const IDLE: f64 = 3.0;
/// What of it is believed when nothing else is known: answers come bundled, which makes bursts look faster.
const SPREAD_SHARE: f64 = 0.5;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Finding the rate.
    Startup,
    /// Emptying the queue that start-up made.
    Drain,
    /// At the rate; the number counts rounds since the last probe.
    Cruise(u32),
}

/// The controller.
#[derive(Debug, Clone)]
pub(super) struct Steady {
    initial_window: u64,
    mtu: u64,
    phase: Phase,
    delivery: Delivery,
    standing: Standing,
    losses: Losses,
    /// Our share of the queue, while others fill it.
    contest: Option<Contest>,
    /// The most that was under way in a round before we last made room.
    held: u64,
    last_rtt: Duration,
    trains: Trains,
    waits: Waits,
    bursts: Bursts,
    busy: Busy,
    /// Best delivery rates, bytes per second, with their round: a monotonic queue.
    rates: VecDeque<(u64, f64)>,
    /// The highest of late, and when it was so.
    best: Option<(f64, Instant)>,
    round: u64,
    /// The round ends when a packet sent after this much was delivered is acknowledged.
    round_ends: u64,
    /// Whether a packet of the round left when there was little to send.
    round_app_limited: bool,
    /// The most that was under way in it.
    round_most: u64,
    /// Start-up: the rate that was last grown from, and rounds since.
    full_rate: f64,
    full_rounds: u32,
    /// How far the probe has gone, and the rate at the end of the last round.
    climb: usize,
    probed_from: f64,
}

impl Steady {
    pub(super) fn new(initial_window: u64, mtu: u16, now: Instant) -> Self {
        Self {
            initial_window,
            mtu: u64::from(mtu),
            phase: Phase::Startup,
            delivery: Delivery::new(now),
            standing: Standing::default(),
            losses: Losses::default(),
            contest: None,
            held: 0,
            last_rtt: Duration::ZERO,
            trains: Trains::default(),
            waits: Waits::default(),
            bursts: Bursts::default(),
            busy: Busy::default(),
            rates: VecDeque::new(),
            best: None,
            round: 0,
            round_ends: 0,
            round_app_limited: false,
            round_most: 0,
            full_rate: 0.0,
            full_rounds: 0,
            climb: 0,
            probed_from: 0.0,
        }
    }

    /// What the path delivers, bytes per second.
    fn rate(&self) -> Option<f64> {
        let rate = self.rates.front()?.1;
        // However little it was: a path on which hardly anything is sent could never show that it has become faster.
        let least = (MIN_WINDOW_PACKETS * self.mtu) as f64 / self.standing.rtt()?.as_secs_f64().max(1e-6);
        Some(rate.max(least))
    }

    /// The bandwidth-delay product of the empty path, bytes.
    fn bdp(&self) -> Option<f64> {
        Some(self.rate()? * self.standing.rtt()?.as_secs_f64())
    }

    /// Whether we send no faster than is delivered, so that what is lost is lost by the path itself. In between we make up for
    /// that; if we always did, a policer's losses would be made up for by more of them.
    fn is_plain(&self) -> bool {
        matches!(
            (self.phase, self.standing.queue()),
            (Phase::Startup, _) | (Phase::Cruise(_), Queue::Stands) | (Phase::Cruise(1 | 2 | CYCLE), Queue::Empty)
        )
    }

    /// The share of packets that we send on top, because the path loses it by itself.
    fn made_up_for(&self) -> f64 {
        if self.is_plain() { 0.0 } else { self.losses.by_itself().min(MOST_MADE_UP_FOR) }
    }

    fn gain(&self) -> f64 {
        match (self.phase, self.standing.queue()) {
            (Phase::Startup, _) => STARTUP_GAIN,
            (Phase::Drain, _) => DRAIN_GAIN,
            (Phase::Cruise(_), Queue::Stands) => PROBE_DOWN,
            (Phase::Cruise(0), Queue::Empty) => PROBE_UP[self.climb],
            (Phase::Cruise(_), Queue::Shared(_)) => 1.0,
            (Phase::Cruise(1), _) => PROBE_DOWN,
            (Phase::Cruise(_), Queue::Empty) => self.balance(),
        }
    }

    /// How much slower to go so that no more than so many of our packets wait in the queue. All of our kind see the same queue,
    /// so that those with more than their share have more packets in it, and give way (Vegas).
    fn balance(&self) -> f64 {
        let Some(bdp) = self.bdp() else { return 1.0 };
        let excess = (self.own_queue() - OWN_PACKETS) * self.mtu as f64 / bdp;
        1.0 - excess.clamp(0.0, MOST_SLOWER)
    }

    /// Packets of ours that stood in the queue all of the last round.
    fn own_queue(&self) -> f64 {
        self.rate().unwrap_or_default() * self.standing.last_queue().as_secs_f64() / self.mtu as f64
    }

    fn learn_rate(&mut self, sample: &Sample) {
        // Shorter than a round trip, it would measure how ACKs were bundled (BBR draft, 4.1.2.3).
        if self.standing.rtt().is_some_and(|rtt| sample.interval < rtt) {
            return;
        }
        if sample.app_limited && self.rate().is_some_and(|best| sample.rate < best) {
            return;
        }
        while self.rates.back().is_some_and(|&(_, other)| other <= sample.rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, sample.rate));
        while self.rates.len() > 1 && self.rates.front().is_some_and(|&(round, _)| round + RATE_MEMORY < self.round) {
            self.rates.pop_front();
        }
    }

    fn end_round(&mut self) {
        self.round += 1;
        self.round_ends = self.delivery.delivered();
        self.judge_queue();
        self.learn_from_dispersion();
        self.remember_best();
        if self.losses.judge() {
            for (_, rate) in &mut self.rates {
                *rate *= LOSS_BACKOFF;
            }
            if self.phase == Phase::Startup {
                self.phase = Phase::Cruise(1);
            }
        }
        self.next_phase();
        self.round_app_limited = false;
        self.round_most = self.delivery.in_flight();
    }

    fn judge_queue(&mut self) {
        let (gain, packets) = QUEUED_WINDOW;
        let room = self.bdp().map(|bdp| (gain * bdp) as u64 + (packets + ROOM_PACKETS) * self.mtu);
        let made_room = room.is_some_and(|room| self.round_most <= room);
        let packet_time = self.rate().map_or(0.0, |rate| self.mtu as f64 / rate.max(1.0));
        let before = self.standing.queue();
        if before == Queue::Empty {
            self.held = self.round_most;
        }
        self.standing.end_round(self.delivery.delivered_at(), made_room, Duration::from_secs_f64(packet_time));
        match (self.standing.without_us(), &mut self.contest) {
            (None, contest) if !self.standing.lately_shared() => *contest = None,
            (Some(_), contest @ None) => *contest = Some(Contest::new(self.held)),
            (Some(without_us), Some(contest)) if before != Queue::Stands => contest.end_round(&Round {
                now: self.delivery.delivered_at(),
                used: self.round_most as f64 >= USED * contest.window() as f64,
                usual_loss: self.losses.by_itself(),
                held: self.rates.front().map_or(0.0, |&(_, rate)| rate) * without_us.as_secs_f64(),
                rtt: self.last_rtt,
                mtu: self.mtu,
            }),
            _ => {}
        }
    }

    fn learn_from_dispersion(&mut self) {
        let ours = self.standing.is_ours() && !self.standing.lately_shared();
        if !ours {
            self.busy.fade();
        }
        let (since, now) = (self.standing.since(), self.delivery.delivered_at());
        let spread = since.and_then(|since| self.bursts.spread_since(since));
        // Who sends bursts will have sent one within a round that tells more.
        let wait = spread.is_none() && self.standing.is_new() && self.bursts.rate(now).is_some();
        let served = if ours && !wait { self.busy.take(BUSY_PACKETS * self.mtu) } else { None };
        // Bursts that come through much faster all the same found the path idle before: it is longer than we think, and there is
        // no queue.
        let has_queue = |served: &f64| spread.is_none_or(|spread| spread <= IDLE * served);
        if let Some(served) = served.filter(has_queue) {
            // What the path served while it had a queue is what it can serve, however little there was to send.
            self.rates.retain(|&(_, rate)| rate <= served);
            self.rates.push_back((self.round, served));
            self.trains.clear();
            self.bursts.forget_before(since);
        } else if let Some(more) = self.bursts.rate(now)
            && self.standing.queue() == Queue::Empty
            && self.phase != Phase::Startup
            && self.round_app_limited
        {
            // A path that is seldom full shows in bursts what it could carry. Not all at once: they are short.
            let rate = self.rate().unwrap_or_default();
            let growth = if self.has_fallen() { REGAIN_GROWTH } else { BURST_GROWTH };
            if more > rate {
                self.rates.clear();
                self.rates.push_back((self.round, more.min(rate * growth)));
            }
        }
    }

    fn next_phase(&mut self) {
        let rate = self.rate().unwrap_or_default();
        let queue = self.standing.queue();
        let stands = queue == Queue::Stands;
        let found = self.phase == Phase::Cruise(0) && rate >= FOUND * self.probed_from;
        let eager = self.has_fallen() && queue == Queue::Empty && !self.round_app_limited;
        self.climb = if found { (self.climb + 1).min(PROBE_UP.len() - 1) } else { usize::from(eager) };
        self.probed_from = rate;
        let startup_is_over = self.phase == Phase::Startup && self.startup_is_over();
        if startup_is_over && stands && self.round_app_limited {
            self.trust_bursts();
        }
        self.phase = match self.phase {
            Phase::Startup if startup_is_over && stands => Phase::Drain,
            Phase::Startup if startup_is_over => Phase::Cruise(2),
            Phase::Startup => Phase::Startup,
            // A round is enough for any queue that trains let start-up make.
            Phase::Drain => Phase::Cruise(2),
            // There is more: on.
            Phase::Cruise(0) if found && queue == Queue::Empty => Phase::Cruise(0),
            Phase::Cruise(rounds) if eager && rounds > 1 => Phase::Cruise(0),
            // With nothing more to send, a probe would find nothing.
            Phase::Cruise(rounds)
                if rounds + 1 >= CYCLE && !self.round_app_limited && !stands && self.own_queue() <= FULL_PACKETS =>
            {
                Phase::Cruise(0)
            }
            Phase::Cruise(rounds) => Phase::Cruise((rounds + 1).min(CYCLE)),
        };
    }

    /// A flow that never had much to send leaves start-up by a queue: that of others, or of a path that has become longer. What
    /// it delivered says little of what the path can carry, and with room for that alone it would starve.
    fn trust_bursts(&mut self) {
        let spread = self.bursts.spread(self.delivery.delivered_at()).map(|spread| spread * SPREAD_SHARE);
        if let Some(more) = spread.filter(|more| *more > self.rate().unwrap_or_default()) {
            self.rates.clear();
            self.rates.push_back((self.round, more));
        }
    }

    /// Keeps the best rate of late.
    fn remember_best(&mut self) {
        let rate = self.rate().unwrap_or_default();
        let now = self.delivery.delivered_at();
        let forgotten = |since: Instant| now.saturating_duration_since(since) > BEST_MEMORY;
        if self.best.is_none_or(|(best, since)| rate >= best || forgotten(since)) {
            self.best = Some((rate, now));
        }
    }

    /// Whether the path was much faster lately.
    fn has_fallen(&self) -> bool {
        self.best.is_some_and(|(best, _)| self.rate().unwrap_or_default() < FALLEN * best)
    }

    fn startup_is_over(&mut self) -> bool {
        let rate = self.rate().unwrap_or(0.0);
        let arrived = self.trains.rate().is_some_and(|train| rate >= TRAIN_SHARE * train);
        if self.standing.queue() != Queue::Empty || (arrived && !self.round_app_limited) {
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

    pub(super) fn acked(&mut self, now: Instant, sent: Instant, bytes: u64, pn: u64, app_limited: bool) {
        self.round_most = self.round_most.max(self.delivery.in_flight());
        let sample = self.delivery.on_ack(now, sent, bytes, pn, app_limited);
        self.standing.on_rtt(now.saturating_duration_since(sent), now);
        self.last_rtt = now.saturating_duration_since(sent);
        if let Some(contest) = &mut self.contest {
            contest.on_ack(self.last_rtt, bytes);
        }
        self.trains.on_ack(sent, now, bytes);
        if let Some(rtt) = self.standing.rtt() {
            self.bursts.on_ack(sent, now, bytes, rtt);
            self.busy.on_ack(sent, now, bytes, rtt);
        }
        let Some(sample) = sample else { return };
        if sample.plain {
            self.losses.on_ack();
        }
        if let Some(rtt) = self.standing.rtt().filter(|_| self.phase == Phase::Startup) {
            self.waits.on_ack(sample.ahead, self.last_rtt.saturating_sub(rtt));
        }
        self.round_app_limited |= sample.app_limited;
        self.learn_rate(&sample);
        if sample.delivered >= self.round_ends {
            self.end_round();
        }
        if self.phase == Phase::Drain && self.bdp().is_some_and(|bdp| self.delivery.in_flight() as f64 <= bdp) {
            self.phase = Phase::Cruise(2);
        }
    }
}

impl Controller for Steady {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        let plain = self.is_plain();
        self.delivery.on_sent(now, u64::from(bytes), pn, plain);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, pn: u64, app_limited: bool, _: &RttEstimator) {
        self.acked(now, sent, bytes, pn, app_limited);
    }

    fn on_end_acks(&mut self, _: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        self.delivery.set_in_flight(in_flight);
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, is_ecn: bool, _: u64, _: u64) {
        if is_ecn {
            self.standing.on_mark();
            if self.phase == Phase::Startup {
                self.phase = Phase::Drain;
            }
        }
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, _: Instant) {
        if self.delivery.on_lost(u64::from(lost_bytes), pn) {
            self.losses.on_lost();
        }
        if let (Some(contest), Some(without_us)) = (&mut self.contest, self.standing.without_us()) {
            contest.on_lost(self.last_rtt, without_us, u64::from(lost_bytes));
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        let (Some(rate), Some(rtt)) = (self.rate(), self.standing.rtt()) else { return self.initial_window };
        // Room besides for what acknowledgements bundle.
        let (gain, packets, rtt) = match (self.standing.queue(), self.phase) {
            (Queue::Stands, _) => (QUEUED_WINDOW.0, QUEUED_WINDOW.1, rtt),
            (_, Phase::Startup) => (STARTUP_GAIN, MIN_WINDOW_PACKETS, rtt),
            (Queue::Shared(_), _) => {
                return self.contest.as_ref().map_or(0, Contest::window) + MIN_WINDOW_PACKETS * self.mtu;
            }
            (Queue::Empty, _) => (WINDOW_GAIN, MIN_WINDOW_PACKETS, rtt),
        };
        let window = (gain * rate * rtt.as_secs_f64()) as u64 + packets * self.mtu;
        let floor = if self.phase == Phase::Startup { self.initial_window } else { 0 };
        window.max(floor)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        if let (Some(rate), Some(rtt)) = (self.rate(), self.standing.rtt()) {
            let start = self.initial_window as f64 / rtt.as_secs_f64().max(1e-6);
            let base = if self.phase == Phase::Startup { rate.max(start) } else { rate };
            let wanted = match (self.standing.queue(), &self.contest) {
                (Queue::Shared(without_us), Some(contest)) => {
                    SHARED_GAIN * base.max(contest.window() as f64 / self.last_rtt.max(without_us).as_secs_f64())
                }
                _ => self.gain() * base,
            } / (1.0 - self.made_up_for());
            let paced = match self.trains.rate().filter(|_| self.phase == Phase::Startup) {
                // What has been delivered has been delivered, whatever trains say.
                Some(train) => wanted.min(train.max(rate)),
                None => wanted,
            };
            metrics.pacing_rate = Some(paced as u64);
            // In start-up what has been delivered is mostly what there was to send; the path would carry more.
            let bandwidth = match self.phase {
                Phase::Startup => paced.min(self.waits.most().unwrap_or(f64::INFINITY)).max(rate),
                _ => base,
            };
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

#[cfg(test)]
#[path = "steady_tests.rs"]
mod tests;
