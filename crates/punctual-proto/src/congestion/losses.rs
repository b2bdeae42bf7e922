//! Which losses are congestion.
//!
//! A radio link loses packets however little is sent; a policer or a short queue loses what is too much. So a loss counts
//! by how much of it there is beyond the least there has been lately: where sending less brings less loss, it was ours.

use std::collections::VecDeque;

/// Packets judged together: with fewer, chance decides. (At 20 % loss the standard deviation is 5.7 %.)
const SAMPLE_PACKETS: u64 = 50;
/// Of so many samples the least is what the path loses by itself.
const MEMORY: usize = 8;
/// So much of a sample lost beyond that is congestion, whatever the delay says (at 20 % loss by chance, 96 samples of 100 have less).
const LIMIT: f64 = 0.3;

/// The losses of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct Losses {
    acked: u64,
    lost: u64,
    /// The least share lost of late: a monotonic queue of sample number and share.
    least: VecDeque<(u64, f64)>,
    samples: u64,
}

impl Losses {
    /// So many packets arrived in a round, and so many were lost.
    pub(super) fn end_round(&mut self, arrived: u64, lost: u64) {
        self.acked += arrived;
        self.lost += lost;
    }

    /// The share that the path loses by itself, as far as is known.
    pub(super) fn by_itself(&self) -> f64 {
        // Until there has been enough to see, none.
        if self.samples < MEMORY as u64 { 0.0 } else { self.least.front().map_or(0.0, |&(_, share)| share) }
    }

    /// The path loses this share by itself, as has been tried.
    pub(super) fn set_own(&mut self, share: f64) {
        self.samples = self.samples.max(MEMORY as u64) + 1;
        self.least = VecDeque::from([(self.samples, share)]);
    }

    /// Whether, since the last time there was enough to judge, so much was lost that it must be congestion.
    pub(super) fn judge(&mut self) -> bool {
        let packets = self.acked + self.lost;
        if packets < SAMPLE_PACKETS {
            return false;
        }
        let share = self.lost as f64 / packets as f64;
        let much = share > LIMIT + self.by_itself();
        (self.acked, self.lost) = (0, 0);
        self.samples += 1;
        while self.least.back().is_some_and(|&(_, other)| other >= share) {
            self.least.pop_back();
        }
        self.least.push_back((self.samples, share));
        while self.least.front().is_some_and(|&(sample, _)| sample + MEMORY as u64 <= self.samples) {
            self.least.pop_front();
        }
        much
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `samples` are judged to be congestion, of every hundred packets so many being lost.
    fn judged(losses: &mut Losses, lost: impl Fn(u64) -> u64, samples: u64) -> usize {
        let judge = |sample| {
            for packet in 0..100 {
                if packet < lost(sample) { losses.end_round(0, 1) } else { losses.end_round(1, 0) }
            }
            losses.judge()
        };
        (0..samples).map(judge).filter(|congestion| *congestion).count()
    }

    #[test]
    fn a_path_that_always_loses_is_not_congested() {
        let mut losses = Losses::default();
        assert_eq!(judged(&mut losses, |sample| 18 + sample % 5, 100), 0);
        assert!((losses.by_itself() - 0.18).abs() < 1e-9);
    }

    #[test]
    fn much_loss_is_congestion_until_it_is_known_to_stay() {
        let mut losses = Losses::default();
        assert_eq!(judged(&mut losses, |_| 40, 100), MEMORY);
        // Less for once, and it is known that it can be less.
        assert_eq!(judged(&mut losses, |_| 5, 1), 0);
        assert_eq!(judged(&mut losses, |_| 40, 3), 3);
    }

    #[test]
    fn what_has_been_tried_is_known_at_once() {
        let mut losses = Losses::default();
        losses.set_own(0.5);
        assert_eq!(losses.by_itself(), 0.5);
        assert_eq!(judged(&mut losses, |_| 60, 20), 0);
        assert!((losses.by_itself() - 0.6).abs() < 1e-9, "it is forgotten as others are");
    }

    #[test]
    fn a_few_packets_say_nothing() {
        let mut losses = Losses::default();
        losses.end_round(0, SAMPLE_PACKETS - 1);
        assert!(!losses.judge());
        losses.end_round(0, 1);
        assert!(losses.judge());
    }
}
