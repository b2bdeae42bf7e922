//! How far a path can be trusted.
//!
//! Two alarms watch for its death.
//!
//! - *Overdue*: the answer to a packet is later than nearly all. If later packets have been answered, it is lost, in
//!   all likelihood, and fragments whose deadline would not survive more waiting are sent again at once; QUIC gives it up a little later.
//!   If none have, and the path has been quiet besides, that may be the loss of a last packet, or the beginning of the end:
//!   then the path gets no new data, either, while another is free of doubt. The next acknowledgement clears it.
//! - *Silence* for about half a round trip more with data in flight makes a path *suspect*: everything in flight on
//!   it goes elsewhere, and it carries nothing but probes until one of these is answered. Only packets sent after the
//!   suspicion count as evidence, for an acknowledgement of older ones may have come round by another path from before the
//!   path died.

use std::time::{Duration, Instant};

use super::model::Model;
use crate::base::{Awaited, GRANULARITY, PathHealth};

/// An answer is overdue once the path has been quiet for longer than it usually pauses between acknowledgements, and than this.
const MIN_QUIET: Duration = Duration::from_millis(2);
/// This many of the usual pauses between acknowledgements are a silence.
const SILENT_PAUSES: u32 = 3;
/// How long an answer is waited for at least where one has come within less than [`GRANULARITY`], as within a host or a rack. Busy hosts do not run a
/// program for 8 to 15 ms at times, the peer's as well as ours, and there that is all there is to a silence. On longer paths a death is more likely, and
/// costs more: with this as a floor for all of them, 13 of 60 cells of the gauntlet changed, and lost 0.1 points on average.
const HOST_PATIENCE: Duration = Duration::from_millis(20);
/// Bounds on the time between probes of a suspect path.
const PROBE_INTERVAL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// After this many unanswered probes they become rarer.
const EAGER_PROBES: u32 = 50;
/// What part the time between those is of that for which the path has been silent, until it is a second: so much longer at most a short death seems.
const SHORT_SHARE: u32 = 10;
/// The same from then on, up to that bound: QUIC keeps each that is never answered.
const LAZY_SHARE: u32 = 32;
const LAZIEST_PROBES: Duration = Duration::from_secs(15);

/// How far a path is trusted, and why.
#[derive(Debug)]
pub(super) struct Trust {
    health: PathHealth,
    /// An answer is overdue.
    doubtful: bool,
    /// Packets sent up to here have been judged as to whether their answer is overdue.
    judged: Option<Instant>,
    suspect_since: Option<Instant>,
    next_probe: Option<Instant>,
    probes: u32,
    /// When packets were last acknowledged, and the usual time between acknowledgements.
    heard: Option<Instant>,
    pause: Duration,
    /// The quickest answer there has ever been. (Few are: most come together with the next, or after `max_ack_delay`.)
    quickest: Option<Duration>,
}

impl Trust {
    pub(super) fn new(health: PathHealth) -> Self {
        Self {
            health,
            doubtful: false,
            judged: None,
            suspect_since: None,
            next_probe: None,
            probes: 0,
            heard: None,
            pause: Duration::ZERO,
            quickest: None,
        }
    }

    pub(super) fn health(&self) -> PathHealth {
        self.health
    }

    /// How much is to be said against the path: 0 nothing, 1 an overdue answer, 2 suspicion, 3 that it is not open yet.
    pub(super) fn doubt(&self) -> u8 {
        match self.health {
            PathHealth::Active | PathHealth::Standby => u8::from(self.doubtful),
            PathHealth::Suspect => 2,
            PathHealth::Opening | PathHealth::Closed => 3,
        }
    }

    /// Since when it has been suspect, if it is.
    pub(super) fn suspect_since(&self) -> Option<Instant> {
        self.suspect_since
    }

    pub(super) fn on_validated(&mut self) {
        self.health = PathHealth::Active;
    }

    /// A packet was acknowledged. Whether that clears a suspicion.
    pub(super) fn on_acked(&mut self, sent: Instant, now: Instant, rtt: Duration) -> bool {
        if let Some(before) = self.heard.filter(|before| *before != now) {
            let pause = now.saturating_duration_since(before);
            self.pause = (self.pause * 7 + pause.min(rtt)) / 8;
        }
        self.heard = Some(now);
        let answer = now.saturating_duration_since(sent);
        self.quickest = Some(self.quickest.map_or(answer, |quickest| quickest.min(answer)));
        self.doubtful = false;
        let cleared = self.suspect_since.is_some_and(|since| sent >= since);
        if cleared {
            (self.suspect_since, self.next_probe) = (None, None);
            self.health = PathHealth::Active;
        }
        cleared
    }

    pub(super) fn suspect(&mut self, now: Instant) {
        self.health = PathHealth::Suspect;
        self.suspect_since = Some(now);
        self.doubtful = false;
        self.probes = 0;
        self.next_probe = Some(now);
    }

    /// Packets sent up to here need not be looked at again.
    pub(super) fn judged(&self) -> Option<Instant> {
        self.judged
    }

    /// When the answer to a packet is overdue. If later ones have been answered, that is all there is to it; in the tail,
    /// of which nothing has been heard, it may be that nothing is to be heard just now.
    pub(super) fn overdue_at(&self, packet: &Awaited, model: &Model) -> Instant {
        let quiet = self.pause.max(MIN_QUIET);
        let answer = packet.sent + packet.wait + model.overdue() + GRANULARITY;
        self.heard.filter(|_| packet.tail).map_or(answer, |heard| answer.max(heard + quiet))
    }

    /// The answers to packets sent up to `until` are overdue.
    pub(super) fn on_overdue(&mut self, tail: bool, until: Instant) {
        // A single hole is a loss like others; when nothing comes at all, the path itself may be lost.
        self.doubtful |= tail;
        self.judged = Some(until);
    }

    /// When the path is silent, this being the oldest unanswered packet of the tail: there has been time enough for the
    /// answer, and for half a round trip, and some of its usual pauses, nothing else was heard either.
    pub(super) fn silent_at(&self, oldest: &Awaited, model: &Model, max_ack_delay: Duration) -> Instant {
        let quiet = (model.base_rtt() / 2).max(self.pause * SILENT_PAUSES);
        let answer = oldest.sent + oldest.wait + self.patience(model, max_ack_delay);
        self.heard.map_or(answer, |heard| answer.max(heard + quiet))
    }

    /// How long an answer is waited for at all.
    pub(super) fn patience(&self, model: &Model, max_ack_delay: Duration) -> Duration {
        let near = self.quickest.is_some_and(|quickest| quickest < GRANULARITY);
        let least = if near { HOST_PATIENCE } else { Duration::ZERO };
        (model.overdue() + model.base_rtt() / 2 + max_ack_delay + GRANULARITY).max(least)
    }

    /// When the path is to be probed.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        self.next_probe.filter(|_| self.health == PathHealth::Suspect)
    }

    /// Whether a probe is due; it counts as sent.
    pub(super) fn takes_probe(&mut self, now: Instant, rtt: Duration) -> bool {
        if self.next_probe().is_none_or(|at| at > now) {
            return false;
        }
        self.probes += 1;
        let silent = self.suspect_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let eager = rtt.clamp(PROBE_INTERVAL.0, PROBE_INTERVAL.1);
        let rare = (silent / SHORT_SHARE).min(Duration::from_secs(1)).max(silent / LAZY_SHARE).min(LAZIEST_PROBES);
        self.next_probe = Some(now + if self.probes > EAGER_PROBES { eager.max(rare) } else { eager });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_pauses_is_no_silent_path() {
        let start = Instant::now();
        let patience = |quickest, rtt| {
            let model = Model::new(start, start, Duration::from_micros(rtt));
            let mut trust = Trust::new(PathHealth::Active);
            trust.on_acked(start - Duration::from_micros(quickest), start, Duration::ZERO);
            let packet = Awaited { number: 0, bears: false, sent: start, wait: Duration::ZERO, tail: true };
            (trust.silent_at(&packet, &model, Duration::from_millis(2)) - start).as_micros()
        };
        assert_eq!((patience(200, 300), patience(200, 2_500)), (20_000, 20_000));
        // On a network: 1.75 round trips, and 3 ms for the hosts.
        assert_eq!((patience(2_000, 4_000), patience(200, 40_000)), (10_000, 73_000));
    }

    #[test]
    fn a_path_that_is_dead_for_an_hour_is_probed_ever_more_rarely() {
        let (start, mut trust) = (Instant::now(), Trust::new(PathHealth::Active));
        trust.suspect(start);
        let mut probes = Vec::new();
        while let Some(at) = trust.next_probe().filter(|at| *at < start + Duration::from_secs(3_600)) {
            assert!(trust.takes_probe(at, Duration::from_millis(40)));
            probes.push(at - start);
        }
        let within = |seconds| probes.iter().filter(|at| **at < Duration::from_secs(seconds)).count();
        assert!((60..90).contains(&within(30)) && within(3_600) < 450, "{} and {}", within(30), within(3_600));
        let longest = probes.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert_eq!(longest, Some(LAZIEST_PROBES), "when it comes back, that is soon known");
        let gap_at = |at: u64| {
            let at = Duration::from_millis(at);
            probes.windows(2).find(|pair| pair[1] > at).map(|pair| (pair[1] - pair[0]).as_millis())
        };
        assert!(
            gap_at(2_500).is_some_and(|gap| gap <= 250),
            "nor does a death of some seconds last much longer for us"
        );
        trust.on_acked(start + Duration::from_secs(3_600), start + Duration::from_secs(3_601), Duration::ZERO);
        assert_eq!((trust.health(), trust.next_probe()), (PathHealth::Active, None));
    }
}
