//! What a path's past says of its losses: how many, and how many on end.

/// How many packets back the long memory reaches, and the short one.
const MEMORY: (f64, f64) = (4_096.0, 192.0);
/// What is believed before anything has been seen: that three packets in a hundred begin a loss, as if seen on ten. So a new path is
/// treated with care, and known soon.
const PRIOR_LOSS: (f64, f64) = (0.3, 9.7);
/// and that four losses in five are followed by a packet that arrives, as if seen on five.
const PRIOR_END: (f64, f64) = (4.0, 1.0);
/// Until so many packets have been seen, hardly more than the belief stands for, or one of them lost, it is no more than a guess. With 20, 90 starts on slow links have 0.5 points more, and answers on two paths leave less room.
const GUESS: f64 = 12.0;
/// The memories disagree if what the short one has seen is this many standard deviations from what the long one expects.
const DISAGREEMENT: f64 = 3.0;

/// Counts of what followed what, the past fading.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    /// After a packet that arrived: one that did too, and one that was lost.
    arrived: f64,
    begun: f64,
    /// After a packet that was lost: one that arrived, and one that was lost, too.
    ended: f64,
    continued: f64,
}

impl Counts {
    fn note(&mut self, before: bool, lost: bool, keep: f64) {
        for count in [&mut self.arrived, &mut self.begun, &mut self.ended, &mut self.continued] {
            *count *= keep;
        }
        *match (before, lost) {
            (false, false) => &mut self.arrived,
            (false, true) => &mut self.begun,
            (true, false) => &mut self.ended,
            (true, true) => &mut self.continued,
        } += 1.0;
    }

    fn lost(&self) -> f64 {
        self.begun + self.continued
    }

    fn all(&self) -> f64 {
        self.arrived + self.begun + self.ended + self.continued
    }

    fn begin(&self) -> Beta {
        Beta { yes: PRIOR_LOSS.0 + self.begun, no: PRIOR_LOSS.1 + self.arrived }
    }

    fn end(&self) -> Beta {
        Beta { yes: PRIOR_END.0 + self.ended, no: PRIOR_END.1 + self.continued }
    }

    /// The share of packets to be lost, by what is believed.
    fn rate(&self) -> f64 {
        let (begin, end) = (self.begin().mean(), self.end().mean());
        begin / (begin + end)
    }
}

/// A belief about a probability: so many times yes, so many times no.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Beta {
    yes: f64,
    no: f64,
}

impl Beta {
    pub(crate) fn mean(&self) -> f64 {
        self.yes / (self.yes + self.no)
    }

    fn deviation(&self) -> f64 {
        let all = self.yes + self.no;
        (self.yes * self.no / (all * all * (all + 1.0))).sqrt()
    }

    /// Three points and their weights that have its mean and variance (Gauss and Hermite's for a normal distribution); but none lies
    /// outside of 0 and 1, so that of very small probabilities the mean comes out too high, which is on the safe side.
    pub(crate) fn points(&self) -> [(f64, f64); 3] {
        let (mean, far) = (self.mean(), 3_f64.sqrt() * self.deviation());
        let at = |x: f64| x.clamp(1e-7, 1.0 - 1e-7);
        [(at(mean - far), 1.0 / 6.0), (at(mean), 2.0 / 3.0), (at(mean + far), 1.0 / 6.0)]
    }
}

/// The losses of a path, as a channel that is at times good and at times bad (Gilbert 1960).
///
/// Two things are learnt from the fate of each packet, in the order of sending: how often a loss follows a packet that
/// arrived, and how often an arrival follows a loss. Both are beliefs, not numbers: of a path on which little was sent, little is known.
/// A long memory tells small rates apart; when a short one contradicts it, the path has changed, and the short one is right.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Losses {
    long: Counts,
    short: Counts,
    before: bool,
}

impl Losses {
    /// The next packet, in the order of sending, arrived or was `lost`.
    pub fn note(&mut self, lost: bool) {
        self.long.note(self.before, lost, 1.0 - 1.0 / MEMORY.0);
        self.short.note(self.before, lost, 1.0 - 1.0 / MEMORY.1);
        self.before = lost;
        // Nothing lost for long, and nothing now, is no contradiction.
        if (lost || self.long.lost() >= 1.0) && self.has_changed() {
            self.long = self.short;
        }
    }

    /// So many of those noted as lost were lost to something else.
    pub(crate) fn pardon(&mut self, losses: u32) {
        for counts in [&mut self.long, &mut self.short] {
            let mut left = f64::from(losses);
            for count in [&mut counts.continued, &mut counts.begun] {
                let pardoned = left.min(*count);
                *count -= pardoned;
                left -= pardoned;
            }
        }
    }

    /// Whether the memories contradict each other.
    fn has_changed(&self) -> bool {
        let (n, rate) = (self.short.all(), self.long.rate());
        let burst = self.burst().max(1.0);
        // Losses come in bursts: so many fewer independent events, each weighing so much more.
        let deviation = (n * rate * (1.0 - rate) * burst).sqrt().max(1.0);
        (self.short.lost() - n * rate).abs() > DISAGREEMENT * deviation && self.long.all() > n
    }

    /// The share of packets to expect to be lost, 0 to 1: never quite 0, and about three in a hundred if nothing has been seen.
    pub fn rate(&self) -> f64 {
        self.long.rate()
    }

    /// Whether what is believed is but a guess.
    pub(crate) fn is_guess(&self) -> bool {
        self.long.all() < GUESS && self.long.lost() < 1.0
    }

    /// How many losses to expect on end; at least 1.
    pub fn burst(&self) -> f64 {
        1.0 / self.long.end().mean()
    }

    /// The share of packets that were lost lately, 0 to 1: what was seen, nothing believed.
    pub fn observed_rate(&self) -> f64 {
        self.long.lost() / self.long.all().max(1.0)
    }

    /// How many were lost on end lately, on average; 1 if none.
    pub fn observed_burst(&self) -> f64 {
        if self.long.begun > 0.0 { (self.long.lost() / self.long.begun).max(1.0) } else { 1.0 }
    }

    /// The chance that a loss follows an arrival, and that an arrival follows a loss.
    pub(crate) fn beliefs(&self) -> (Beta, Beta) {
        (self.long.begin(), self.long.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `each`-th packet begins a burst of so many losses.
    fn after(packets: u32, each: u32, burst: u32, losses: &mut Losses) {
        (0..packets).for_each(|i| losses.note(i % each >= each - burst));
    }

    #[test]
    fn rate_and_bursts_are_told_apart() {
        let (mut single, mut bursts) = (Losses::default(), Losses::default());
        after(4_000, 10, 1, &mut single);
        after(4_000, 80, 8, &mut bursts);
        for losses in [single, bursts] {
            assert!((0.085..0.115).contains(&losses.rate()), "{}", losses.rate());
        }
        assert!(single.burst() < 1.1, "{}", single.burst());
        assert!((6.0..9.0).contains(&bursts.burst()), "{}", bursts.burst());
    }

    #[test]
    fn a_clean_path_is_believed_in_slowly_and_a_new_loss_at_once() {
        let mut losses = Losses::default();
        assert!((0.02..0.05).contains(&losses.rate()));
        after(4_000, 10_000, 1, &mut losses);
        assert!(losses.rate() < 0.000_3, "{}", losses.rate());
        after(60, 10, 1, &mut losses);
        assert!(losses.rate() > 0.02, "{}", losses.rate());
        after(400, 10_000, 1, &mut losses);
        assert!(losses.rate() < 0.02, "{}", losses.rate());
    }
}
