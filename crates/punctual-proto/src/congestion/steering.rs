//! The decorator through which the sender steers single packets and learns their fate.
//!
//! noq asks a factory for one congestion controller per path. We hand it a [`Steered`] one: an ordinary controller inside,
//! and around it three things a datagram sender needs and QUIC's interface does not offer directly:
//!
//! - **Steering.** noq sends application data on the first path whose window has room. `window()` answers 0 for
//!   every path but the one the [`Gate`] names, so the datagram that was just queued can only leave there.
//!   Probes and path challenges pass a closed window, and ACKs unless data waits.
//! - **Fate.** The controller hears of every packet sent, acknowledged and lost; the session reads that from the log.
//! - **Truth for the inner controller.** A path that is merely closed looks idle or blocked to noq. The decorator
//!   passes on what the sender knows: whether the path had data to carry.
//!
//! Pacing is ours too (`congestion::pacing`), as a datagram cannot be taken back from noq's queue once it is there; noq's
//! own pacer is told of a window that makes it hold nothing back (which also shows in QUIC's own qlog events).
//!
//! noq sends ACKs on the first path it may use, which is no help when that path is the dead one. Only its pacer can stop an
//! ACK, and an ACK by itself takes nothing from the pacer's bucket. So a session that merely receives keeps the bucket of
//! every path but the control path at one packet ([`trickle`]): the least thing sent there, a ping when the control path
//! moves away, leaves it short of a packet, and at the rate [`SILENCED`] it stays short until the path's turn comes.
//!
//! What all this takes for granted of noq is written down in [`crate::noq`], and tested.

use std::{
    any::Any,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
};

use crate::noq::{SHUT, SILENCED, UNPACED, WIDE_OPEN, trickle};

/// Names a path's controller within its session; no two have the same.
pub(crate) type Slot = usize;

/// Which path may send what, while noq is asked for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Every path, as its inner controller allows: during the handshake.
    Open,
    /// Datagrams and stream data on this path only.
    Only(Slot),
    /// No data anywhere; probes, challenges and left-over ACKs everywhere.
    Probes,
}

impl Gate {
    const OPEN: usize = usize::MAX;
    const PROBES: usize = usize::MAX - 1;

    fn to_bits(self) -> usize {
        match self {
            Self::Open => Self::OPEN,
            Self::Probes => Self::PROBES,
            Self::Only(slot) => slot,
        }
    }

    fn from_bits(bits: usize) -> Self {
        match bits {
            Self::OPEN => Self::Open,
            Self::PROBES => Self::Probes,
            slot => Self::Only(slot),
        }
    }
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It went out. `probe`: it is larger than the path is known to carry.
    Sent { slot: Slot, pn: u64, bytes: u16, at: Instant, probe: bool },
    /// The peer has it.
    Acked { slot: Slot, pn: u64, sent: Instant },
    /// QUIC's loss detection gave it up.
    Lost { slot: Slot, pn: u64 },
}

/// What a path's controller says, as of its last change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PathReading {
    /// Congestion window, bytes.
    pub(crate) window: u64,
    /// Bytes in flight.
    pub(crate) in_flight: u64,
    /// The controller's own pacing rate, bytes per second.
    pub(crate) pacing_rate: Option<u64>,
    /// The controller's estimate of the path's bandwidth, bytes per second.
    pub(crate) bandwidth: Option<f64>,
    /// Largest UDP payload.
    pub(crate) mtu: u16,
}

/// State shared by a session and the controllers noq holds for it, as are their [`Panel`]s.
///
/// The lock and the atomics are what noq's controller trait forces; nothing is ever contended, as both sides run in the
/// same call. What happens several times for each packet needs no lock, and no atomic instruction but loads and stores.
#[derive(Debug)]
pub(crate) struct Steering {
    gate: AtomicUsize,
    /// Windows and pacing are noq's own (fallback sessions, whose streams noq sends again by itself).
    hands_off: AtomicBool,
    /// The path for ACKs and the control stream, if the session merely receives; else [`NOT_QUIET`].
    quiet_but: AtomicUsize,
    next_slot: AtomicUsize,
    log: Mutex<Vec<Fate>>,
}

/// The session sends, and noq chooses the path of ACKs.
const NOT_QUIET: usize = usize::MAX;

impl Steering {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: AtomicUsize::new(Gate::OPEN),
            hands_off: AtomicBool::new(false),
            quiet_but: AtomicUsize::new(NOT_QUIET),
            next_slot: AtomicUsize::new(0),
            log: Mutex::new(Vec::new()),
        })
    }

    fn log(&self) -> MutexGuard<'_, Vec<Fate>> {
        // A poisoned lock means that a panic is on its way already; the log itself is always whole.
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Opens and closes paths for what noq is asked next.
    pub(crate) fn set_gate(&self, gate: Gate) {
        self.gate.store(gate.to_bits(), Relaxed);
    }

    fn gate(&self) -> Gate {
        Gate::from_bits(self.gate.load(Relaxed))
    }

    /// Leaves windows and pacing to noq for good.
    pub(crate) fn hands_off(&self) {
        self.hands_off.store(true, Relaxed);
    }

    /// Keeps ACKs to one path (a session that merely receives), or lets QUIC choose theirs (one that sends).
    pub(crate) fn keep_quiet_but(&self, slot: Option<Slot>) {
        self.quiet_but.store(slot.unwrap_or(NOT_QUIET), Relaxed);
    }

    /// Moves what has happened since the last call into `log`, which is cleared first.
    pub(crate) fn take_log(&self, log: &mut Vec<Fate>) {
        log.clear();
        std::mem::swap(&mut *self.log(), log);
    }
}

/// Where a path's controller and its session tell each other how things stand.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) slot: Slot,
    window: AtomicU64,
    in_flight: AtomicU64,
    /// [`NONE`] if there is none, as below.
    pacing_rate: AtomicU64,
    /// The bits of the number.
    bandwidth: AtomicU64,
    mtu: AtomicU16,
    app_limited: AtomicBool,
    window_limited: AtomicBool,
}

/// No value: no rate is as large, and no number has these bits.
const NONE: u64 = u64::MAX;

impl Panel {
    fn new(slot: Slot, window: u64, mtu: u16) -> Self {
        Self {
            slot,
            window: AtomicU64::new(window),
            in_flight: AtomicU64::new(0),
            pacing_rate: AtomicU64::new(NONE),
            bandwidth: AtomicU64::new(NONE),
            mtu: AtomicU16::new(mtu),
            app_limited: AtomicBool::new(true),
            window_limited: AtomicBool::new(false),
        }
    }

    /// That of a controller which noq holds for a path.
    pub(crate) fn of(controller: &dyn Controller) -> Option<Arc<Self>> {
        controller.clone_box().into_any().downcast::<Steered>().ok().map(|steered| steered.panel)
    }

    /// What the controller says.
    pub(crate) fn reading(&self) -> PathReading {
        let some = |value: &AtomicU64| Some(value.load(Relaxed)).filter(|&value| value != NONE);
        PathReading {
            window: self.window.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            pacing_rate: some(&self.pacing_rate),
            bandwidth: some(&self.bandwidth).map(f64::from_bits),
            mtu: self.mtu.load(Relaxed),
        }
    }

    /// Tells the controller whether the path could have carried more than there was to send, and whether its window stood in the
    /// way of sending.
    pub(crate) fn set_limited(&self, app_limited: bool, window_limited: bool) {
        self.app_limited.store(app_limited, Relaxed);
        if window_limited {
            self.window_limited.store(true, Relaxed);
        }
    }

    fn add_in_flight(&self, bytes: u16) {
        self.in_flight.store(self.in_flight.load(Relaxed) + u64::from(bytes), Relaxed);
    }

    fn sub_in_flight(&self, bytes: u64) {
        self.in_flight.store(self.in_flight.load(Relaxed).saturating_sub(bytes), Relaxed);
    }
}

/// Builds the controllers of one session.
pub(crate) struct SteeredFactory {
    inner: Arc<dyn ControllerFactory + Send + Sync>,
    steering: Arc<Steering>,
}

impl SteeredFactory {
    pub(crate) fn new(inner: Arc<dyn ControllerFactory + Send + Sync>, steering: Arc<Steering>) -> Self {
        Self { inner, steering }
    }
}

impl ControllerFactory for SteeredFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = self.inner.clone().build(now, current_mtu);
        let slot = self.steering.next_slot.fetch_add(1, Relaxed);
        let panel = Arc::new(Panel::new(slot, inner.window(), current_mtu));
        Box::new(Steered { inner, acked: Vec::new(), panel, steering: self.steering.clone() })
    }
}

/// A controller behind a gate.
#[derive(Debug)]
struct Steered {
    inner: Box<dyn Controller>,
    /// These packets: they go into the log together.
    acked: Vec<Fate>,
    panel: Arc<Panel>,
    steering: Arc<Steering>,
}

impl Steered {
    /// Brings the panel up to date with the inner controller.
    fn publish(&self) {
        let metrics = self.inner.metrics();
        let bandwidth = metrics.bandwidth_estimate.map(|bits| bits as f64 / 8.0);
        self.panel.window.store(self.inner.window(), Relaxed);
        self.panel.pacing_rate.store(metrics.pacing_rate.unwrap_or(NONE), Relaxed);
        self.panel.bandwidth.store(bandwidth.map_or(NONE, f64::to_bits), Relaxed);
    }

    fn gate(&self) -> Gate {
        self.steering.gate()
    }

    /// Windows and pacing are noq's own.
    fn hands_off(&self) -> bool {
        self.steering.hands_off.load(Relaxed)
    }

    /// Whether there was too little to send on the path, as far as noq knows or as the session knows better.
    fn app_limited(&self, noq_says: bool) -> bool {
        let noq_knows = self.hands_off() || self.gate() == Gate::Open;
        if noq_knows { noq_says } else { self.panel.app_limited.load(Relaxed) }
    }
}

impl Controller for Steered {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.inner.on_packet_sent(now, bytes, pn);
        self.panel.add_in_flight(bytes);
        let probe = bytes > self.panel.mtu.load(Relaxed);
        self.steering.log().push(Fate::Sent { slot: self.panel.slot, pn, bytes, at: now, probe });
    }

    fn on_cwnd_limited(&mut self) {
        // A closed gate looks like a full window to noq.
        let gate = self.gate();
        if self.hands_off() && (gate == Gate::Open || gate == Gate::Only(self.panel.slot)) {
            self.inner.on_cwnd_limited();
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, pn: u64, app_limited: bool, rtt: &RttEstimator) {
        let panel = &self.panel;
        if panel.window_limited.load(Relaxed) {
            panel.window_limited.store(false, Relaxed);
            self.inner.on_cwnd_limited();
        }
        self.inner.on_ack(now, sent, bytes, pn, self.app_limited(app_limited), rtt);
        // `on_end_acks` follows.
        let panel = &self.panel;
        panel.sub_in_flight(bytes);
        self.acked.push(Fate::Acked { slot: panel.slot, pn, sent });
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        let app_limited = self.app_limited(app_limited);
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        self.steering.log().append(&mut self.acked);
        self.publish();
        // noq's own count is the authority: packets it forgets in silence (lost MTU probes, discarded keys) end here.
        self.panel.in_flight.store(in_flight, Relaxed);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, is_ecn, lost_bytes, largest_lost_pn);
        self.publish();
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        self.inner.on_packet_lost(lost_bytes, pn, now);
        // `on_congestion_event` follows.
        self.panel.sub_in_flight(lost_bytes.into());
        self.steering.log().push(Fate::Lost { slot: self.panel.slot, pn });
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
        self.publish();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
        self.panel.mtu.store(new_mtu, Relaxed);
        self.publish();
    }

    fn on_ack_frequency_update(&mut self, ack_eliciting_threshold: u64, requested_max_ack_delay: Duration) {
        self.inner.on_ack_frequency_update(ack_eliciting_threshold, requested_max_ack_delay);
    }

    fn window(&self) -> u64 {
        let open = match self.gate() {
            Gate::Open => return self.inner.window(),
            Gate::Only(slot) => slot == self.panel.slot,
            Gate::Probes => false,
        };
        match (open, self.hands_off()) {
            (false, _) => SHUT,
            (true, true) => self.inner.window(),
            // The session has seen to window and pacing before it queued the datagram.
            (true, false) => WIDE_OPEN,
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        if !self.hands_off() {
            metrics.send_quantum = None;
            metrics.pacing_rate = match (self.steering.quiet_but.load(Relaxed), self.gate()) {
                (NOT_QUIET, _) | (_, Gate::Open) => None,
                (slot, _) if slot == self.panel.slot => None,
                (_, Gate::Only(slot)) if slot != self.panel.slot => Some(SILENCED),
                (_, Gate::Only(_) | Gate::Probes) => Some(trickle(self.panel.mtu.load(Relaxed))),
            };
            if metrics.pacing_rate.is_none() {
                metrics.congestion_window = UNPACED;
            }
        }
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            acked: self.acked.clone(),
            panel: self.panel.clone(),
            steering: self.steering.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
