//! What an application holds on to though others fill the queue.
//!
//! Who sends less than the path carries has filled no queue, and what he leaves others take. But while they send a burst our packets come out of the
//! queue as far apart as theirs in between let them, which looks as if the path had become slow; and who sends less for that comes out further
//! apart still. So what was used before is gone on with, as long as a few packets on end show that the link is faster than that: where it has become
//! slower itself, none come any faster.
//!
//! A flow that is led by losses does as much: its window stays what it is while it is not used up, and is cut where the queue overflows.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use super::{Report, contest::CUT};
use crate::{least::Least, rate::Rate};

/// What was used is remembered for so long, or up to twice as long.
const MEMORY: Duration = Duration::from_millis(500);
/// What the link is known to carry at least, for so long, or up to twice as long.
const SWIFT_MEMORY: Duration = Duration::from_millis(100);
/// Nothing is held where more than this share of it was used: alone on a link that has become slower we would else go as fast as it does, and its queue
/// would stay.
const SHARE: f64 = 0.75;

/// What is held for what was used: what had to wait for a moment is to be sent as well. Without it who was held up once always had something to send from
/// then on, and gave way.
const HEADROOM: f64 = 1.25;

/// What is held on to.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    /// What was delivered at best in rounds in which there was nothing more to send.
    used: Least<Reverse<Rate>>,
    /// The greatest pace at which a few packets came out of a queue.
    swift: Least<Reverse<Rate>>,
    /// A packet found no room in the queue in this round.
    overflows: bool,
}

impl Default for Holding {
    fn default() -> Self {
        Self { used: Least::over(MEMORY), swift: Least::over(SWIFT_MEMORY), overflows: false }
    }
}

impl Holding {
    /// Packets arrived. What comes by fits and starts tells nothing of the link.
    pub(super) fn on_report(&mut self, report: &Report) {
        if report.uneven {
            self.swift.clear();
        } else {
            self.swift.add(Reverse(report.swift), report.now);
        }
    }

    /// A packet found no room in the queue.
    pub(super) fn on_overflow(&mut self) {
        self.overflows = true;
    }

    /// A round ends in which so much was delivered. It was `dry` if there was a moment when nothing more was to be sent, and `starved` if that was because
    /// nothing would have been in time: then the application has use for more, and is to share it like any other.
    pub(super) fn end_round(&mut self, now: Instant, delivered: Rate, dry: bool, starved: bool) {
        let used = self.used.get().map_or(Rate::ZERO, |Reverse(used)| used);
        if std::mem::take(&mut self.overflows) {
            self.used.set(Reverse(used * CUT), now);
        } else if starved {
            self.used.clear();
        } else {
            self.used.add(Reverse(if dry { delivered } else { Rate::ZERO }), now);
        }
    }

    /// What is held on to, nothing if the link may not be fast enough.
    pub(super) fn rate(&self) -> Rate {
        let of = |rate: &Least<Reverse<Rate>>| rate.get().map_or(Rate::ZERO, |Reverse(rate)| rate);
        let used = of(&self.used);
        if used <= of(&self.swift) * SHARE { used * HEADROOM } else { Rate::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Reports of a link that carries so much at least.
    fn report(now: Instant, swift: f64, uneven: bool) -> Report {
        Report {
            now,
            packets: 1,
            bytes: 1_200,
            marked: 0,
            sent: now,
            arrived: (0, 0),
            queue: MS * 20,
            longest: MS * 20,
            service: None,
            swift: Rate::from_bytes_per_second(swift),
            served: true,
            uneven,
        }
    }

    #[test]
    fn what_was_used_is_held_while_the_link_is_known_to_be_faster() {
        let (start, used) = (Instant::now(), Rate::from_bytes_per_second(1e6));
        let mut holding = Holding::default();
        holding.end_round(start, used, true, false);
        assert_eq!(holding.rate(), Rate::ZERO, "nothing is known of the link");
        let used = used * HEADROOM;
        for (at, swift, uneven, held) in [
            (0, 2e6, false, used),
            (50, 1e6, false, used),
            // Nothing faster came for longer than is remembered: the link has become slower.
            (300, 1e6, false, Rate::ZERO),
            (310, 2e6, false, used),
            (320, 9e6, true, Rate::ZERO),
        ] {
            holding.on_report(&report(start + MS * at, swift, uneven));
            assert_eq!(holding.rate(), held, "at {at} ms");
        }
    }

    #[test]
    fn who_overruns_the_queue_or_wants_more_holds_less() {
        let (start, used) = (Instant::now(), Rate::from_bytes_per_second(1e6));
        let mut holding = Holding::default();
        holding.on_report(&report(start, 4e6, false));
        holding.end_round(start, used, true, false);
        holding.on_overflow();
        holding.end_round(start + MS * 40, used, true, false);
        assert_eq!(holding.rate(), used * CUT * HEADROOM);
        holding.end_round(start + MS * 80, used, true, false);
        assert_eq!(holding.rate(), used * HEADROOM, "it is there again");
        holding.end_round(start + MS * 120, used, true, true);
        assert_eq!(holding.rate(), Rate::ZERO);
    }
}
