//! A gate round the congestion controllers of a client, through which single packets are steered.
//!
//! noq sends data on the first path whose window has room, and it asks each path's controller for the window. Round each of them
//! stands a decorator that answers 0 while the [`Gate`] lets stream data out elsewhere. What does not count against a window passes all the
//! same: ACKs where no data waits behind them, loss probes, MTU probes. Nothing else of noq's changes: each path has its own window, its own pacer and its own loss recovery.
//!
//! The controller inside must not be misled by that:
//!
//! - noq takes a shut path for one whose window is full. The decorator passes that on only if it is.
//! - noq takes a shut path for one that had data to send. So it had, if the data went elsewhere only because its own window or
//!   pacer had no room. If it had room and was passed over, it had nothing to send: it is *spared*, and its controller hears that the
//!   application is what limits it.
//!
//! Outside of questions for packets the gate is open, so that whoever asks for windows hears the truth.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
};

/// On which path stream data may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// On any whose window has room.
    Open,
    /// On the one whose controller has this slot.
    Only(usize),
    /// On none.
    Shut,
}

/// What a client and its controllers share. (Atomics are what noq's traits want; nothing contends.)
#[derive(Debug)]
pub(super) struct Steering {
    /// The slot that is open, [`OPEN`] or [`SHUT`].
    gate: AtomicUsize,
    /// Whether a shut path was asked to take data.
    refused: AtomicBool,
    /// How many controllers there are.
    slots: AtomicUsize,
}

const OPEN: usize = usize::MAX;
const SHUT: usize = usize::MAX - 1;

impl Steering {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { gate: AtomicUsize::new(OPEN), refused: AtomicBool::new(false), slots: AtomicUsize::new(0) })
    }

    pub(super) fn set_gate(&self, gate: Gate) {
        let bits = match gate {
            Gate::Open => OPEN,
            Gate::Only(slot) => slot,
            Gate::Shut => SHUT,
        };
        self.gate.store(bits, Relaxed);
    }

    /// Whether a shut path was asked to take data since this was last called.
    pub(super) fn take_refused(&self) -> bool {
        let refused = self.refused.load(Relaxed);
        self.refused.store(false, Relaxed);
        refused
    }
}

/// What a path's controller and its client tell each other.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) slot: usize,
    in_flight: AtomicU64,
    mtu: AtomicU16,
    spared: AtomicBool,
}

impl Panel {
    /// That of a controller which noq holds for a path.
    pub(super) fn of(controller: &dyn Controller) -> Option<Arc<Self>> {
        controller.clone_box().into_any().downcast::<Steered>().ok().map(|steered| steered.panel)
    }

    /// The room in this window, bytes, if a full packet fits in, as noq reckons.
    pub(super) fn room(&self, window: u64) -> Option<u64> {
        let room = window.saturating_sub(self.in_flight.load(Relaxed));
        (room >= u64::from(self.mtu.load(Relaxed))).then_some(room)
    }

    /// Says whether data passed the path over though it had room.
    pub(super) fn set_spared(&self, spared: bool) {
        self.spared.store(spared, Relaxed);
    }

    fn add_in_flight(&self, bytes: u64) {
        self.in_flight.store(self.in_flight.load(Relaxed) + bytes, Relaxed);
    }

    fn sub_in_flight(&self, bytes: u64) {
        self.in_flight.store(self.in_flight.load(Relaxed).saturating_sub(bytes), Relaxed);
    }
}

/// Makes the controllers of a client.
pub(super) struct SteeredFactory {
    inner: Arc<dyn ControllerFactory + Send + Sync>,
    steering: Arc<Steering>,
}

impl SteeredFactory {
    pub(super) fn new(inner: Arc<dyn ControllerFactory + Send + Sync>, steering: Arc<Steering>) -> Self {
        Self { inner, steering }
    }
}

impl ControllerFactory for SteeredFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let panel = Panel {
            slot: self.steering.slots.fetch_add(1, Relaxed),
            in_flight: AtomicU64::new(0),
            mtu: AtomicU16::new(current_mtu),
            spared: AtomicBool::new(false),
        };
        let inner = self.inner.clone().build(now, current_mtu);
        Box::new(Steered { inner, panel: Arc::new(panel), steering: self.steering.clone() })
    }
}

/// A controller behind the gate.
#[derive(Debug)]
struct Steered {
    inner: Box<dyn Controller>,
    panel: Arc<Panel>,
    steering: Arc<Steering>,
}

impl Steered {
    fn is_shut(&self) -> bool {
        let open = self.steering.gate.load(Relaxed);
        open != OPEN && open != self.panel.slot
    }

    fn app_limited(&self, noq_says: bool) -> bool {
        noq_says || self.panel.spared.load(Relaxed)
    }
}

impl Controller for Steered {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.panel.add_in_flight(bytes.into());
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
        if self.is_shut() {
            self.steering.refused.store(true, Relaxed);
        }
        if self.panel.room(self.inner.window()).is_none() {
            self.inner.on_cwnd_limited();
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, pn: u64, app_limited: bool, rtt: &RttEstimator) {
        self.panel.sub_in_flight(bytes);
        self.inner.on_ack(now, sent, bytes, pn, self.app_limited(app_limited), rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        // noq's own count is the authority: padded packets that want no ACK are in it, lost MTU probes no longer.
        self.panel.in_flight.store(in_flight, Relaxed);
        self.inner.on_end_acks(now, in_flight, self.app_limited(app_limited), largest_packet_num_acked);
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
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        self.panel.sub_in_flight(lost_bytes.into());
        self.inner.on_packet_lost(lost_bytes, pn, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.panel.mtu.store(new_mtu, Relaxed);
        self.inner.on_mtu_update(new_mtu);
    }

    fn on_ack_frequency_update(&mut self, ack_eliciting_threshold: u64, requested_max_ack_delay: Duration) {
        self.inner.on_ack_frequency_update(ack_eliciting_threshold, requested_max_ack_delay);
    }

    fn window(&self) -> u64 {
        if self.is_shut() { 0 } else { self.inner.window() }
    }

    fn metrics(&self) -> ControllerMetrics {
        // noq's pacer goes by these, on shut paths as well.
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let Self { inner, panel, steering } = self;
        Box::new(Self { inner: inner.clone_box(), panel: panel.clone(), steering: steering.clone() })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Notes what it is told; its window is 10,000 bytes.
    #[derive(Debug, Clone, Default)]
    struct Listener(Arc<Mutex<Vec<&'static str>>>);

    impl Listener {
        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }

        fn heard(&self) -> Vec<&'static str> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    impl ControllerFactory for Listener {
        fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
            Box::new((*self).clone())
        }
    }

    impl Controller for Listener {
        fn on_cwnd_limited(&mut self) {
            self.note("window limited");
        }

        fn on_end_acks(&mut self, _: Instant, _: u64, app_limited: bool, _: Option<u64>) {
            self.note(if app_limited { "application limited" } else { "not limited" });
        }

        fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {
            self.note("congestion");
        }

        fn on_mtu_update(&mut self, _: u16) {
            self.note("mtu");
        }

        fn window(&self) -> u64 {
            10_000
        }

        fn clone_box(&self) -> Box<dyn Controller> {
            Box::new(self.clone())
        }

        fn initial_window(&self) -> u64 {
            10_000
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }

    type Watched = (Box<dyn Controller>, Arc<Panel>);

    /// A client's first two controllers and what they were told.
    fn pair() -> (Arc<Steering>, [Watched; 2], Listener) {
        let (steering, listener) = (Steering::new(), Listener::default());
        let factory = Arc::new(SteeredFactory::new(Arc::new(listener.clone()), steering.clone()));
        let controllers = [0, 1].map(|slot| {
            let controller = factory.clone().build(Instant::now(), 1_200);
            let panel = Panel::of(&*controller).expect("it is one of ours");
            assert_eq!(panel.slot, slot);
            (controller, panel)
        });
        (steering, controllers, listener)
    }

    #[test]
    fn a_gate_opens_one_window() {
        let (steering, controllers, _) = pair();
        let windows = |gate| {
            steering.set_gate(gate);
            [&controllers[0], &controllers[1]].map(|(controller, _)| controller.window())
        };
        assert_eq!(windows(Gate::Open), [10_000, 10_000]);
        assert_eq!(windows(Gate::Only(1)), [0, 10_000]);
        assert_eq!(windows(Gate::Shut), [0, 0]);
        let pacers = controllers.iter().map(|(controller, _)| controller.metrics().congestion_window);
        assert_eq!(pacers.collect::<Vec<_>>(), [10_000, 10_000], "pacers go on");
    }

    #[test]
    fn a_shut_path_is_limited_only_if_it_is_full() {
        let (steering, [(mut first, panel), (mut second, _)], listener) = pair();
        let now = Instant::now();
        steering.set_gate(Gate::Only(1));
        first.on_cwnd_limited();
        assert_eq!(listener.heard(), [""; 0]);
        assert!(steering.take_refused() && !steering.take_refused());
        first.on_packet_sent(now, 8_800, 0);
        assert_eq!(panel.room(10_000), Some(1_200));
        first.on_packet_sent(now, 1, 1);
        assert_eq!(panel.room(10_000), None);
        first.on_cwnd_limited();
        second.on_packet_sent(now, 10_000, 0);
        second.on_cwnd_limited();
        assert_eq!(listener.heard(), ["window limited", "window limited"]);
        first.on_end_acks(now, 5_000, false, None);
        assert_eq!(panel.room(10_000), Some(5_000), "noq's count is the authority");
        first.on_packet_lost(1_000, 0, now);
        first.on_mtu_update(6_000);
        assert_eq!(panel.room(10_000), Some(6_000));
        assert_eq!(listener.heard(), ["not limited", "mtu"]);
    }

    #[test]
    fn what_was_passed_over_is_limited_by_the_application() {
        let (_, [(mut first, panel), _], listener) = pair();
        let mut end_acks = |app_limited| first.on_end_acks(Instant::now(), 0, app_limited, None);
        panel.set_spared(true);
        end_acks(false);
        panel.set_spared(false);
        end_acks(false);
        end_acks(true);
        assert_eq!(listener.heard(), ["application limited", "not limited", "application limited"]);
    }
}
