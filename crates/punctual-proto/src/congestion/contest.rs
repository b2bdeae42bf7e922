//! Holding our own in a queue that others fill.
//!
//! In a queue that never empties each flow gets the share of the path that it has of the queue, so what counts is the
//! window and not the rate. Ours grows by so much a round and is cut where the queue overflows, as a window of
//! those beside it is; and it is never more than what two of us, alone, would hold, which is what BBR bears.

use std::time::Duration;

fn tune(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Our share of a queue that others fill.
#[derive(Debug, Clone)]
pub(super) struct Contest {
    /// Bytes.
    window: f64,
    /// The longest round trip of late.
    longest: Duration,
    /// Bytes lost in the round while the queue was long.
    lost: u64,
    acked: u64,
    /// Rounds for which what is lost was sent before the last cut.
    deaf: u32,
}

impl Contest {
    /// Begins with what is under way.
    pub(super) fn new(window: u64) -> Self {
        Self { window: window as f64, longest: Duration::ZERO, lost: 0, acked: 0, deaf: 0 }
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    pub(super) fn on_ack(&mut self, rtt: Duration, bytes: u64) {
        self.longest = self.longest.max(rtt);
        self.acked += bytes;
    }

    /// A packet was lost, when the round trip was `rtt`, without us `without_us`.
    pub(super) fn on_lost(&mut self, rtt: Duration, without_us: Duration, bytes: u64) {
        let long = without_us + self.longest.saturating_sub(without_us).mul_f64(tune("LONG", 0.6));
        if rtt >= long {
            self.lost += bytes;
        }
    }

    /// Ends a round; `used`: the window was what held us back.
    pub(super) fn end_round(&mut self, used: bool, usual_loss: f64, cap: f64, mtu: u64) {
        let share = self.lost as f64 / (self.lost + self.acked).max(1) as f64;
        let congested = share > usual_loss && self.lost > 0 && self.deaf == 0;
        self.deaf = self.deaf.saturating_sub(1);
        if congested {
            self.window *= tune("CUT", 0.7);
            self.deaf = 2;
        } else if used {
            self.window += (tune("ADD", 1.5) * mtu as f64).max(self.window * tune("GROW", 0.0));
        }
        self.window = self.window.min(cap);
        self.longest = self.longest.mul_f64(0.99);
        (self.lost, self.acked) = (0, 0);
    }
}
