//! How late packets leave: what a link that runs on a busy host adds to what it was asked for.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Of all packets that came out: how much later than their time they were sent on.
#[derive(Debug, Default)]
pub(crate) struct Lateness(Option<Histogram<u64>>);

/// The same in figures, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct LatenessFigures {
    pub(crate) packets: u64,
    pub(crate) mean_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
    /// The share that was later than a millisecond.
    pub(crate) over_1ms: f64,
}

impl Lateness {
    /// A packet that was due at one time was sent on at another.
    pub(crate) fn note(&mut self, due: Duration, sent: Duration) {
        if self.0.is_none() {
            // Three digits between a microsecond and an hour, beyond which it is an hour.
            self.0 = Histogram::new_with_max(3_600_000_000, 3).ok();
        }
        let late = sent.saturating_sub(due).as_micros();
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(u64::try_from(late).unwrap_or(u64::MAX).max(1));
        }
    }

    /// In figures; `None` if nothing has come out.
    pub(crate) fn figures(&self) -> Option<LatenessFigures> {
        let histogram = self.0.as_ref()?;
        let quantile = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Some(LatenessFigures {
            packets: histogram.len(),
            mean_ms: (histogram.mean() * 1e3).round() / 1e6,
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            max_ms: histogram.max() as f64 / 1e3,
            over_1ms: histogram.count_between(1_001, u64::MAX) as f64 / histogram.len() as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_is_not_late() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.figures(), None);
        let ms = Duration::from_millis;
        lateness.note(ms(5), ms(4));
        (0..97).for_each(|_| lateness.note(ms(5), ms(5) + Duration::from_micros(100)));
        lateness.note(ms(5), ms(8));
        lateness.note(ms(5), Duration::MAX);
        let figures = lateness.figures().unwrap();
        assert_eq!((figures.packets, figures.p50_ms, figures.over_1ms), (100, 0.1, 0.02));
        assert!((figures.p99_ms - 3.0).abs() < 0.01 && figures.max_ms >= 3_600_000.0, "{figures:?}");
    }
}
