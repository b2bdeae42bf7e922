//! How fast packets arrive: BBR's delivery rate samples (draft-ietf-ccwg-bbr, 4.1), from each packet's own history.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

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
    plain: bool,
    /// Bytes in flight, its own included.
    ahead: u64,
}

/// What an acknowledged packet tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Bytes that had been delivered when it left.
    pub(super) delivered: u64,
    /// Bytes delivered since, a second.
    pub(super) rate: f64,
    /// The time over which they were.
    pub(super) interval: Duration,
    /// It left when there was little to send.
    pub(super) app_limited: bool,
    /// It left while we sent no faster than is delivered.
    pub(super) plain: bool,
    /// Bytes that were in flight when it had left.
    pub(super) ahead: u64,
}

/// Packets under way, and what has been delivered.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    /// Packets whose fate is open, by packet number.
    sent: VecDeque<Sent>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Packets sent until more than this is delivered count as limited by the application.
    app_limited_until: u64,
    in_flight: u64,
}

impl Delivery {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            sent: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            app_limited_until: 0,
            in_flight: 0,
        }
    }

    /// Bytes delivered so far.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// When the last of them was.
    pub(super) fn delivered_at(&self) -> Instant {
        self.delivered_at
    }

    /// Bytes under way.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A packet leaves; `plain`: at a time when we send no faster than is delivered.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, pn: u64, plain: bool) {
        if self.in_flight == 0 {
            // After a pause the clock of deliveries starts anew.
            self.first_sent = now;
            self.delivered_at = now;
        }
        self.in_flight += bytes;
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
            plain,
            ahead: self.in_flight,
        });
    }

    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
    ) -> Option<Sample> {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = now;
        if app_limited {
            self.app_limited_until = self.delivered + self.in_flight;
        }
        let packet = self.take(pn).filter(|packet| packet.at == sent)?;
        self.first_sent = packet.at;
        let sending = packet.at.saturating_duration_since(packet.first_sent);
        let arriving = now.saturating_duration_since(packet.delivered_at);
        let interval = sending.max(arriving);
        Some(Sample {
            delivered: packet.delivered,
            rate: (self.delivered - packet.delivered) as f64 / interval.as_secs_f64().max(1e-9),
            interval,
            app_limited: packet.app_limited,
            plain: packet.plain,
            ahead: packet.ahead,
        })
    }

    /// A packet is lost; whether it left plainly.
    pub(super) fn on_lost(&mut self, bytes: u64, pn: u64) -> bool {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.take(pn).is_some_and(|packet| packet.plain)
    }

    /// The engine's own count is the authority: it forgets some packets in silence.
    pub(super) fn set_in_flight(&mut self, in_flight: u64) {
        self.in_flight = in_flight;
    }

    fn take(&mut self, pn: u64) -> Option<Sent> {
        let at = self.sent.binary_search_by_key(&pn, |packet| packet.pn).ok()?;
        self.sent.remove(at)
    }
}
