//! How long what is said on the control stream waits for more of it.

use std::time::{Duration, Instant};

use crate::rate::Rate;

/// Words that are in no hurry wait for others no longer than this.
const MOST_PATIENCE: Duration = Duration::from_millis(25);
/// While they tell of fewer bytes than this,
pub(super) const WORTH_WORDS: u64 = 8 << 10;
/// they wait over a short path until they are about as late as over one of 40 ms.
const HEARD_AFTER: Duration = Duration::from_millis(30);
/// Words of what we have dropped take no more than one in so many of the bytes that their path carries. Where nearly all is dropped they would fill it, and nothing
/// else leave there that could show that it has become faster.
const WORDS_SHARE: u32 = 8;
/// About what a packet with a few words is, bytes.
const WORDS_PACKET: u64 = 90;
/// But however slow that is, they wait no longer than this.
const SLOW_PATIENCE: Duration = Duration::from_millis(500);

/// In a round trip no more than about this many pieces are handed on: on a long path, too, all may be well.
const PIECES_A_ROUND: u32 = 256;
/// After waits in vain no more words than two to this power leave at once before one waits again.
const MOST_LEFT_OUT: u32 = 8;

/// How long words wait for others since some left last: each packet with words costs one, and its ACK one back; and of a stream in too many
/// pieces, as loss makes of many packets with a word each, QUIC's receiver despairs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Words that something waits for.
    pub(super) short: Duration,
    /// Words that only end a matter: what became of a block.
    pub(super) long: Duration,
    /// Of those the ones that tell of few bytes, but for the first of all.
    pub(super) rare: Duration,
    /// Of those the ones on blocks of ours that were dropped.
    pub(super) slow: Duration,
    /// Any words, when very many are under way.
    pub(super) longest: Duration,
}

impl Patience {
    /// None at all.
    pub(super) const NONE: Self = Self {
        short: Duration::ZERO,
        long: Duration::ZERO,
        rare: Duration::ZERO,
        slow: Duration::ZERO,
        longest: Duration::ZERO,
    };

    /// As long as ACKs may wait, and for those that are in no hurry about as long as reports do; on what was dropped longer where they are to leave room on a path
    /// that carries `rate`.
    pub(super) fn new(ack_delay: Duration, round_trip: Duration, rate: Option<Rate>) -> Self {
        let short = ack_delay.max(round_trip / PIECES_A_ROUND);
        let long = (round_trip / 4).min(MOST_PATIENCE).max(short);
        let slow = rate.map_or(Duration::ZERO, |rate| rate.time_for(WORDS_PACKET) * WORDS_SHARE);
        Self {
            short,
            long,
            rare: HEARD_AFTER.saturating_sub(round_trip / 2).min(MOST_PATIENCE).max(long),
            slow: slow.min(SLOW_PATIENCE).max(long),
            longest: round_trip.max(MOST_PATIENCE),
        }
    }
}

/// Whether words on complete blocks find others to share their packet with while they wait.
///
/// A sender that waits for what became of a block, or of a few, before it hands over the next has none under way until it is told, and the wait is for nothing, each time.
/// No sender says that it is one, so it is tried: as long as a wait was in vain, the words after it leave at once, twice as many each time before another waits.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// When the first and the last of the blocks were complete of which there is something to say.
    blocks: Option<(Instant, Instant)>,
    /// Waits in vain since the last that was not.
    vain: u32,
    /// How many times words leave at once before they wait again.
    left_out: u32,
}

impl Company {
    pub(super) fn on_complete(&mut self, now: Instant) {
        self.blocks = Some((self.blocks.map_or(now, |(first, _)| first), now));
    }

    pub(super) fn is_expected(&self) -> bool {
        self.left_out == 0
    }

    /// The words leave. `due`: until when they would wait for company, if nothing else said when they are to leave.
    pub(super) fn on_told(&mut self, now: Instant, due: Option<Instant>) {
        let Some((first, last)) = self.blocks.take() else { return };
        if due.is_none_or(|due| first >= due) {
            return;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
        } else if (last - first) * 2 >= now.saturating_duration_since(first) {
            // Blocks come whether they are answered or not. Those that came together with the first, and nothing since, are as many as may wait for their answers.
            self.vain = 0;
        } else {
            self.vain = (self.vain + 1).min(MOST_LEFT_OUT);
            self.left_out = 1 << self.vain;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_what_was_dropped_wait_the_longer_the_slower_their_path_is() {
        let [delay, round_trip] = [1, 40].map(Duration::from_millis);
        let patience = |rate: Option<f64>| Patience::new(delay, round_trip, rate.map(Rate::from_bytes_per_second));
        assert_eq!([None, Some(1e6)].map(|rate| patience(rate).slow), [round_trip / 4; 2]);
        assert_eq!(patience(Some(3e3)).slow, Duration::from_millis(240));
        let slowest = patience(Some(0.0));
        assert_eq!(
            (slowest.short, slowest.long, slowest.slow, slowest.longest),
            (delay, round_trip / 4, SLOW_PATIENCE, round_trip)
        );
    }

    #[test]
    fn words_wait_where_others_come_meanwhile() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        // Complete at these times, and told at the last of them.
        let tell = |company: &mut Company, times: &[u64]| {
            let (told, complete) = times.split_last().unwrap();
            complete.iter().for_each(|&time| company.on_complete(at(time)));
            company.on_told(at(*told), Some(at(25)));
        };
        let mut company = Company::default();
        for _ in 0..100 {
            tell(&mut company, &[5, 10, 15, 20, 25]);
            // What is complete when words may leave anyhow has not waited.
            tell(&mut company, &[30, 30]);
            assert!(company.is_expected());
        }
        let mut vain = |times: &[u64]| {
            tell(&mut company, times);
            let mut left_out = 0;
            while !company.is_expected() {
                tell(&mut company, &[2, 2]);
                left_out += 1;
            }
            left_out
        };
        assert_eq!([vain(&[2, 25]), vain(&[2, 3, 4, 5, 25]), vain(&[1, 25])], [2, 4, 8]);
        assert_eq!((0..10).map(|_| vain(&[2, 25])).max(), Some(256));
        assert_eq!([vain(&[2, 14, 25]), vain(&[2, 25])], [0, 2]);
    }

    #[test]
    fn words_on_little_wait_over_short_paths_as_over_one_of_40_ms() {
        let rare = |round_trip| Patience::new(Duration::from_millis(2), Duration::from_millis(round_trip), None).rare;
        assert_eq!([1, 20, 40, 60, 100, 400].map(rare), [25, 20, 10, 15, 25, 25].map(Duration::from_millis));
    }
}
