//! Whether what is lost, while no queue shows, is lost because we go too fast.
//!
//! A queue of a packet or two that overflows loses as if by chance, and so does a policer that others use, or that is shallower than what leaves at once: what passes between two of its drops is no even rate, by which
//! a policer of our own would be known. Who makes up for such losses by repairs, and by more speed, loses more. Whether they are ours is tried: for a few rounds no more is sent than has passed. If much less is lost
//! then, they were, and we stay careful: what passes is all there is, until a round that loses little lets it be a little more. If not, it is what the path loses, and was sent slower for nothing.

use super::round::Round;
use crate::rate::Rate;

/// So many rounds on end, with so many packets in all, that lose this share of what the path does not lose by itself, and find no queue, are tried; and in as many it shows.
const ROUNDS: u32 = 4;
const PACKETS: u64 = 100;
const MUCH: f64 = 0.23;
/// Losses are ours if so much of them is left at most, where no more is sent than has passed.
const LEFT: f64 = 0.3;
/// Then no burst is believed, and nothing faster tried but little by little, for so many rounds.
const CAREFUL_ROUNDS: u32 = 128;
/// Little by little: after a round that lost one packet in so many at most, and had more to send,
const HARDLY: u64 = 64;
/// by a tenth, and no faster than so many times what it delivered, which shows of how much use it is.
const CLIMB: f64 = 1.1;
const SHOWN: f64 = 1.25;
/// No more is made up for meanwhile.
pub(super) const MADE_UP_FOR: f64 = 0.05;

/// What is known of such losses.
#[derive(Debug, Clone, Default)]
pub(super) struct Dropping {
    run: Run,
    trial: Option<Trial>,
    /// For how many rounds we are careful.
    careful: u32,
}

/// Rounds on end.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    rounds: u32,
    packets: u64,
    lost: u64,
    /// What the best of them delivered.
    delivered: Rate,
}

impl Run {
    fn add(&mut self, round: &Round, delivered: Rate) {
        self.rounds += 1;
        self.packets += round.packets + round.lost;
        self.lost += round.lost;
        self.delivered = self.delivered.max(delivered);
    }

    fn tells(&self) -> bool {
        self.rounds >= ROUNDS && self.packets >= PACKETS
    }

    /// The share that was lost.
    fn share(&self) -> f64 {
        self.lost as f64 / self.packets.max(1) as f64
    }
}

/// No more is sent than has passed.
#[derive(Debug, Clone)]
struct Trial {
    /// What was lost before, and how fast we went.
    share: f64,
    rate: Rate,
    /// What was sent before it began is answered in its first round.
    begun: bool,
    run: Run,
}

/// What follows from a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// We go no faster than that.
    Slower(Rate),
    /// A careful round has lost little: so fast, then.
    Faster(Rate),
    /// The path loses this share by itself, and we went too slow.
    Innocent(Rate, f64),
}

impl Dropping {
    /// Nothing faster is to be tried, and little to be made up for.
    pub(super) fn is_careful(&self) -> bool {
        self.careful > 0
    }

    /// A round ended that delivered so much, of a path that loses the share `own` by itself, where we go at `rate`. Its losses `tell` something unless a queue does.
    pub(super) fn end_round(
        &mut self,
        round: &Round,
        delivered: Rate,
        (own, rate): (f64, Rate),
        tell: bool,
    ) -> Option<Verdict> {
        self.careful = self.careful.saturating_sub(1);
        // What takes longer than we are careful is no trial: faster may be tried then.
        if !tell || self.trial.is_some() && !self.is_careful() {
            (self.run, self.trial) = (Run::default(), None);
            return None;
        }
        if let Some(trial) = &mut self.trial {
            if std::mem::replace(&mut trial.begun, true) {
                trial.run.add(round, delivered);
            }
            let trial = self.trial.take_if(|trial| trial.run.tells())?;
            if trial.run.share() <= trial.share * LEFT {
                return None;
            }
            self.careful = 0;
            return Some(Verdict::Innocent(trial.rate, trial.run.share()));
        }
        let loses = |share: f64| round.lost as f64 > (own + share * (1.0 - own)) * (round.packets + round.lost) as f64;
        if !loses(MUCH) {
            self.run = Run::default();
            let climbs = self.is_careful() && !round.dry && round.lost * HARDLY <= round.packets;
            return climbs.then(|| Verdict::Faster(rate.max((rate * CLIMB).min(delivered * SHOWN))));
        }
        self.run.add(round, delivered);
        if !self.run.tells() {
            return None;
        }
        let run = std::mem::take(&mut self.run);
        self.trial = Some(Trial { share: run.share(), rate, begun: false, run: Run::default() });
        self.careful = CAREFUL_ROUNDS;
        Some(Verdict::Slower(run.delivered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: f64 = 2e6;
    const PASSES: f64 = 1e6;

    fn rate(bytes: f64) -> Rate {
        Rate::from_bytes_per_second(bytes)
    }

    /// A round of a hundred packets, of which so many were lost.
    fn round(dropping: &mut Dropping, lost: u64, dry: bool) -> Option<Verdict> {
        let round = Round { packets: 100 - lost, lost, dry, ..Round::default() };
        dropping.end_round(&round, rate(PASSES), (0.0, rate(FAST)), true)
    }

    /// Half of all is lost until that is tried.
    fn tried(dry: bool) -> Dropping {
        let mut dropping = Dropping::default();
        assert!((1..ROUNDS).all(|_| round(&mut dropping, 50, dry).is_none()));
        assert_eq!(round(&mut dropping, 50, dry), Some(Verdict::Slower(rate(PASSES))));
        assert!(dropping.is_careful());
        // What was under way.
        assert_eq!(round(&mut dropping, 50, dry), None);
        dropping
    }

    #[test]
    fn what_is_lost_no_more_was_ours() {
        for dry in [false, true] {
            let mut dropping = tried(dry);
            assert!((0..ROUNDS).all(|_| round(&mut dropping, 5, dry).is_none()));
            assert!(dropping.is_careful());
            let mut at = |lost, dry, now: f64| {
                let round = Round { packets: 100 - lost, lost, dry, ..Round::default() };
                dropping.end_round(&round, rate(PASSES), (0.0, rate(now)), true)
            };
            assert_eq!(at(1, false, PASSES), Some(Verdict::Faster(rate(PASSES * CLIMB))));
            assert_eq!(at(1, false, FAST), Some(Verdict::Faster(rate(FAST))), "it is of no use");
            assert_eq!(at(1, true, PASSES), None, "nobody wants more");
            assert_eq!(round(&mut dropping, 5, false), None);
            assert!((0..CAREFUL_ROUNDS).all(|_| round(&mut dropping, 5, dry).is_none()));
            assert!(!dropping.is_careful());
        }
    }

    #[test]
    fn what_is_lost_all_the_same_is_the_paths() {
        let mut dropping = tried(true);
        assert!((1..ROUNDS).all(|_| round(&mut dropping, 50, true).is_none()));
        assert_eq!(round(&mut dropping, 50, true), Some(Verdict::Innocent(rate(FAST), 0.5)));
        assert!(!dropping.is_careful());
        // And known for that.
        let again = Round { packets: 50, lost: 50, ..Round::default() };
        assert!((0..100).all(|_| dropping.end_round(&again, rate(PASSES), (0.5, rate(FAST)), true).is_none()));
    }

    #[test]
    fn who_sends_too_little_to_tell_is_not_judged() {
        let mut dropping = tried(true);
        let judge = |_| dropping.end_round(&Round::default(), rate(PASSES), (0.0, rate(FAST)), true);
        assert_eq!((0..CAREFUL_ROUNDS).find_map(judge), None);
        assert!(!dropping.is_careful());
        // Whatever is lost later is tried anew.
        assert!((1..ROUNDS).all(|_| round(&mut dropping, 50, true).is_none()));
        assert_eq!(round(&mut dropping, 50, true), Some(Verdict::Slower(rate(PASSES))));
    }

    #[test]
    fn a_queue_tells_by_itself() {
        let mut dropping = Dropping::default();
        for n in 0..100 {
            let drops = Round { packets: 50, lost: 50, ..Round::default() };
            assert_eq!(dropping.end_round(&drops, rate(PASSES), (0.0, rate(FAST)), n % 4 != 0), None);
        }
    }
}
