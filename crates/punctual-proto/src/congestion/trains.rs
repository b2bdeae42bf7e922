//! The rate of a path from packets that left in one train, and came back spread out by it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// A train tells the path's rate with so many packets,
const TRAIN_PACKETS: u64 = 6;
/// counted up to so many,
const LONGEST_TRAIN: u64 = 16;
/// sent no further apart than this,
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// and in less than this share of the time their answers took.
const TRAIN_SPREAD: f64 = 0.5;
/// The fastest of so many trains is believed: one that was held up on its way tells too little.
const TRAINS: usize = 8;

/// Packets that left close together, as their answers come in.
#[derive(Debug, Clone, Copy)]
struct Train {
    /// When its first packet left, and was answered.
    head: (Instant, Instant),
    /// When its last packet so far left.
    tail_sent: Instant,
    /// Bytes answered after the head.
    bytes: u64,
    packets: u64,
    /// What it tells so far, bytes per second.
    rate: Option<f64>,
}

/// What the last trains told.
#[derive(Debug, Clone, Default)]
pub(super) struct Trains {
    current: Option<Train>,
    /// Bytes per second.
    rates: VecDeque<f64>,
}

impl Trains {
    /// A packet was acknowledged.
    pub(super) fn on_ack(&mut self, sent: Instant, now: Instant, bytes: u64) {
        let Some(train) = self.current.as_mut().filter(|train| {
            let together = sent.checked_duration_since(train.tail_sent).is_some_and(|gap| gap <= TRAIN_GAP);
            together && train.packets < LONGEST_TRAIN
        }) else {
            self.finish();
            self.current = Some(Train { head: (sent, now), tail_sent: sent, bytes: 0, packets: 0, rate: None });
            return;
        };
        train.tail_sent = sent;
        // Packets answered together with the head say nothing of the time between.
        if now > train.head.1 {
            train.bytes += bytes;
            train.packets += 1;
            let sending = sent.saturating_duration_since(train.head.0).as_secs_f64();
            let arriving = now.saturating_duration_since(train.head.1).as_secs_f64();
            if train.packets >= TRAIN_PACKETS && sending < TRAIN_SPREAD * arriving {
                train.rate = Some(train.bytes as f64 / arriving);
            }
        }
    }

    fn finish(&mut self) {
        let Some(rate) = self.current.take().and_then(|train| train.rate) else { return };
        if self.rates.len() == TRAINS {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
    }

    /// What they tell of the path's rate, bytes per second.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rates.iter().copied().chain(self.current.and_then(|train| train.rate)).reduce(f64::max)
    }

    /// Forgets them: the path has shown what it serves.
    pub(super) fn clear(&mut self) {
        self.rates.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_that_the_path_spread_out_tells_its_rate_and_one_as_slow_as_the_sender_nothing() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let told = |sent_apart: Duration| {
            let mut trains = Trains::default();
            for i in 0..10 {
                trains.on_ack(start + sent_apart * i, start + ms(40) + ms(1) * i, 1_000);
            }
            trains.rate()
        };
        let rate = told(Duration::from_micros(100)).unwrap();
        assert!((0.99e6..1.01e6).contains(&rate), "{rate}");
        assert_eq!(told(ms(1)), None);
    }
}
