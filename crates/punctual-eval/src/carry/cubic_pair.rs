//! CUBIC that takes the share of two flows, as the QUIC has it with which the papers on several paths were measured.
//!
//! Google's QUIC, quic-go until 2018 and the multipath QUIC that was made of it let a connection count as two. Over 50 Mbit/s, 100 ms and 0.1 % of loss
//! CUBIC by RFC 8312 carries some 4 Mbit/s, less than the 6.4 Mbit/s of the MAppLE paper's messages, which its single path carries. With two flows it
//! is about 8. So this is what the paper's figures are compared under; nobody should send with it.

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory},
};
use punctual_proto::congestion::{Congestion, CongestionFactory};

/// The name it is chosen by.
pub(crate) const NAME: &str = "cubic-pair";

/// Flows that it takes the share of.
const FLOWS: f64 = 2.0;
/// CUBIC's own constants (RFC 8312, 4.5 and 5.1): what is left of a window after a loss, and how steep the curve is, packets per cubic second.
const BETA_OF_ONE: f64 = 0.7;
const C: f64 = 0.4;
/// A loss costs one of the flows its part, and the others nothing.
const BETA: f64 = (FLOWS - 1.0 + BETA_OF_ONE) / FLOWS;
/// What the window of as many flows of Reno's, with that beta, grows by in a round trip, packets.
const ALPHA: f64 = 3.0 * FLOWS * FLOWS * (1.0 - BETA) / (1.0 + BETA);
/// Packets: the window is never less.
const LEAST: f64 = 2.0;

/// Makes them, given the first window in bytes.
pub(crate) fn congestion() -> Congestion {
    let factory: CongestionFactory = Arc::new(|window| Arc::new(Factory { window }));
    Congestion::Acks(factory)
}

#[derive(Debug)]
struct Factory {
    window: u64,
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, _: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(CubicPair::new(self.window, mtu))
    }
}

/// All sizes in bytes.
#[derive(Debug, Clone)]
struct CubicPair {
    first_window: u64,
    mtu: f64,
    window: f64,
    slow_start_until: f64,
    /// The window before the last loss, and what Reno's would be.
    plateau: f64,
    reno: f64,
    /// When the window began to grow after it, and how long it takes back to the plateau, seconds.
    grows_since: Option<Instant>,
    climb: f64,
    /// What was sent before that has had its effect.
    recovers_from: Option<Instant>,
}

impl CubicPair {
    fn new(window: u64, mtu: u16) -> Self {
        Self {
            first_window: window,
            mtu: mtu.into(),
            window: window as f64,
            slow_start_until: f64::INFINITY,
            plateau: 0.0,
            reno: 0.0,
            grows_since: None,
            climb: 0.0,
            recovers_from: None,
        }
    }

    fn is_old(&self, sent: Instant) -> bool {
        self.recovers_from.is_some_and(|from| sent <= from)
    }

    fn grow(&mut self, now: Instant, bytes: f64, rtt: Duration) {
        if self.window < self.slow_start_until {
            self.window += bytes;
            return;
        }
        let since = *self.grows_since.get_or_insert_with(|| {
            self.plateau = self.plateau.max(self.window);
            self.climb = ((self.plateau - self.window) / self.mtu / C).cbrt();
            self.reno = self.window;
            now
        });
        self.reno += ALPHA * self.mtu * bytes / self.reno;
        let time = (now.saturating_duration_since(since) + rtt).as_secs_f64();
        let target = self.plateau + C * self.mtu * (time - self.climb).powi(3);
        if target > self.window {
            // No faster than by half of what arrives.
            self.window += ((target - self.window) / self.window * bytes).min(bytes / 2.0);
        }
        self.window = self.window.max(self.reno);
    }
}

impl Controller for CubicPair {
    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _: u64, app_limited: bool, rtt: &RttEstimator) {
        if !app_limited && !self.is_old(sent) {
            self.grow(now, bytes as f64, rtt.min());
        }
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, _: bool, _: u64, _: u64) {
        if self.is_old(sent) {
            return;
        }
        self.recovers_from = Some(now);
        self.grows_since = None;
        // Who had to give way before the old plateau makes room for others.
        let gives_way = self.window < self.plateau;
        self.plateau = if gives_way { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(LEAST * self.mtu);
        self.slow_start_until = self.window;
        if persistent {
            self.window = LEAST * self.mtu;
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.window = self.window.max(LEAST * self.mtu);
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.first_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: f64 = 1_400.0;
    const RTT: Duration = Duration::from_millis(100);

    /// A window of so many packets that has just lost one.
    fn after_a_loss(packets: f64, now: Instant) -> CubicPair {
        let mut pair = CubicPair::new((packets * MTU) as u64, 1_400);
        pair.on_congestion_event(now, now, false, false, 1_400, 0);
        pair
    }

    #[test]
    fn a_loss_costs_half_of_what_it_costs_one_flow() {
        let now = Instant::now();
        let mut pair = after_a_loss(100.0, now);
        assert_eq!(pair.window(), (85.0 * MTU) as u64);
        pair.on_congestion_event(now + RTT, now, false, false, 1_400, 0);
        assert_eq!(pair.window(), (85.0 * MTU) as u64, "it was sent before");
    }

    #[test]
    fn it_climbs_back_to_where_it_was_and_dwells_there() {
        let start = Instant::now();
        let mut pair = after_a_loss(400.0, start);
        // 60 packets: the cube root of 150, 5.3 s.
        let mut at = |seconds: f64| {
            let now = start + Duration::from_secs_f64(seconds);
            (0..20).for_each(|_| pair.grow(now, pair.window / 20.0, RTT));
            pair.window / MTU
        };
        let windows: Vec<f64> = (0..80).map(|n| at(f64::from(n) / 10.0)).collect();
        assert!(windows.is_sorted());
        assert!((395.0..405.0).contains(&windows[52]), "{}", windows[52]);
        assert!(windows[30] > 390.0 && windows[79] > 402.0, "{} {}", windows[30], windows[79]);
    }

    #[test]
    fn a_small_window_grows_like_that_of_two_flows() {
        let start = Instant::now();
        let mut pair = after_a_loss(20.0, start);
        let before = pair.window / MTU;
        for n in 0..10 {
            (0..10).for_each(|_| pair.grow(start + RTT * n, pair.window / 10.0, RTT));
        }
        let grown = pair.window / MTU - before;
        assert!((8.0..11.0).contains(&grown), "{grown} packets in ten round trips");
    }
}
