//! How a time that is not known before is distributed, as learnt from what it was.

use std::{cell::Cell, time::Duration};

/// The first bin ends here, and each of the others half an octave further.
const FIRST: Duration = Duration::from_micros(250);
/// Up to 2 s; what is longer is in the last bin.
const BINS: usize = 27;
/// Samples after which an old one counts for 1/e.
const MEMORY: f64 = 256.0;
/// Weights are brought back to this scale before they overflow.
const LARGE: f64 = 1e12;

/// A distribution of durations in bins whose width grows with them, of which one quantile is asked for. The past fades.
#[derive(Debug, Clone)]
pub(crate) struct Law {
    share: f64,
    /// The answers since the last sample: they are asked for several times for each packet.
    quantile: Cell<Option<Option<Duration>>>,
    median: Cell<Option<Option<Duration>>>,
    weights: [f64; BINS],
    total: f64,
    /// What the next sample weighs: as old ones are to fade, new ones weigh more.
    next: f64,
    /// Samples so far.
    count: u64,
}

impl Law {
    /// One that is asked which time this `share` of the samples does not exceed.
    pub(crate) fn of(share: f64) -> Self {
        Self {
            share,
            quantile: Cell::default(),
            median: Cell::default(),
            weights: [0.0; BINS],
            total: 0.0,
            next: 1.0,
            count: 0,
        }
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.quantile.set(None);
        self.median.set(None);
        self.weights[bin(time)] += self.next;
        self.total += self.next;
        self.next *= 1.0 + 1.0 / MEMORY;
        self.count += 1;
        if self.next > LARGE {
            self.weights.iter_mut().for_each(|weight| *weight /= LARGE);
            self.total /= LARGE;
            self.next /= LARGE;
        }
    }

    /// Samples so far, faded ones included.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// A time that at least the share of the samples does not exceed: the end of a bin. `None` without samples.
    pub(crate) fn quantile(&self) -> Option<Duration> {
        let quantile = self.quantile.get().unwrap_or_else(|| self.find(self.share).map(end));
        self.quantile.set(Some(quantile));
        quantile
    }

    /// A time that half of the samples exceed, at the least: the beginning of a bin. `None` without samples.
    pub(crate) fn median(&self) -> Option<Duration> {
        let begin = |bin: usize| bin.checked_sub(1).map_or(Duration::ZERO, end);
        let median = self.median.get().unwrap_or_else(|| self.find(0.5).map(begin));
        self.median.set(Some(median));
        median
    }

    /// The bin up to whose end the share of the samples is.
    fn find(&self, share: f64) -> Option<usize> {
        let wanted = share * self.total;
        let mut sum = 0.0;
        let at = self.weights.iter().position(|weight| {
            sum += weight;
            *weight > 0.0 && sum >= wanted * (1.0 - 1e-12)
        });
        (self.total > 0.0).then(|| at.unwrap_or(BINS - 1))
    }
}

/// Where a time belongs.
fn bin(time: Duration) -> usize {
    let ratio = time.as_micros() as f64 / FIRST.as_micros() as f64;
    if ratio <= 1.0 { 0 } else { ((2.0 * ratio.log2()).ceil() as usize).min(BINS - 1) }
}

/// Where a bin ends.
fn end(bin: usize) -> Duration {
    if bin == 0 { Duration::ZERO } else { FIRST.mul_f64(2_f64.powf(bin as f64 / 2.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn quantiles_are_right_to_half_an_octave() {
        let mut law = Law::of(0.5);
        assert_eq!(law.find(0.5).map(end), None);
        (0..200_u32).for_each(|i| law.add(MS * (i * 7 % 100)));
        for (share, millis) in [(0.5, 50.0), (0.9, 90.0), (0.99, 99.0)] {
            let seconds = law.find(share).map(end).unwrap().as_secs_f64();
            assert!((millis..millis * 1.5).contains(&(seconds * 1e3)), "{share}: {seconds}");
        }
        assert_eq!((law.count(), law.quantile()), (200, law.find(0.5).map(end)));
        (0..200).for_each(|_| law.add(MS * 500));
        assert_eq!(law.quantile(), law.find(0.5).map(end), "it has changed");
    }

    #[test]
    fn what_is_next_to_nothing_is_nothing() {
        let mut law = Law::of(0.5);
        law.add(Duration::from_micros(200));
        assert_eq!(law.find(1.0).map(end), Some(Duration::ZERO));
        law.add(MS * 60_000);
        assert!(law.find(1.0).map(end).unwrap() >= Duration::from_secs(2));
    }

    #[test]
    fn half_are_later_than_the_median_at_the_least() {
        let mut law = Law::of(0.95);
        assert_eq!(law.median(), None);
        (0..100).for_each(|i| law.add(MS * (50 + i % 20)));
        assert!((MS * 40..MS * 60).contains(&law.median().unwrap()), "{:?}", law.median());
        let mut law = Law::of(0.95);
        (0..100).for_each(|i| law.add(if i < 60 { Duration::ZERO } else { MS * 100 }));
        assert_eq!(law.median(), Some(Duration::ZERO));
    }

    #[test]
    fn the_past_fades() {
        let mut law = Law::of(0.5);
        (0..10_000).for_each(|_| law.add(MS * 100));
        (0..1_200).for_each(|_| law.add(MS));
        assert!(law.find(0.98).map(end).unwrap() < MS * 2);
        (0..100_000).for_each(|_| law.add(MS * 10));
        assert!(law.total.is_finite() && law.find(0.5).map(end).unwrap() >= MS * 10);
    }
}
