//! A network path that is worse than loopback, in virtual time: packets and the time go in, the time of arrival comes out.
//!
//! A [`Link`] is one direction of a path. A packet waits in a drop-tail queue, is put on the wire at the link's rate of that moment,
//! may be lost there, and arrives one delay later. Nothing here touches a socket or a clock; `relay.rs` does.

use std::{collections::VecDeque, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// Bytes of IPv4 and UDP headers, which a link of a given rate has to carry as well.
pub(crate) const HEADERS: usize = 28;

/// How one direction of a path treats packets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkSpec {
    /// Rates in bits per second, each from its moment on; the first is from 0.
    pub(crate) rates: Vec<(Duration, f64)>,
    /// Propagation delay.
    pub(crate) delay: Duration,
    /// The chance that a packet is lost on the wire, each by itself.
    pub(crate) loss: f64,
    /// Bytes that may wait; what does not fit is dropped.
    pub(crate) queue: usize,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It arrives then.
    Arrives(Duration),
    /// It was sent and lost.
    Lost,
    /// The queue was full.
    Dropped,
}

/// One direction of a path, in use.
///
/// Times are counted from a moment of the caller's choosing; the moments of [`LinkSpec::rates`] from [`begin`](Self::begin).
pub(crate) struct Link {
    spec: LinkSpec,
    seed: u64,
    rng: StdRng,
    begun: Option<Duration>,
    /// Packets not yet wholly on the wire: when they will be, and their sizes.
    waiting: VecDeque<(Duration, usize)>,
    waiting_bytes: usize,
}

impl Link {
    pub(crate) fn new(spec: LinkSpec, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        Self { spec, seed, rng, begun: None, waiting: VecDeque::new(), waiting_bytes: 0 }
    }

    /// Starts the schedule of rates, and loss; before, the first rate holds and nothing is lost, so that a handshake neither
    /// fails nor draws from the generator.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.begun = Some(now);
        self.rng = StdRng::seed_from_u64(self.seed);
    }

    /// A packet of `payload` UDP bytes comes to the link. Calls are in order of time.
    pub(crate) fn offer(&mut self, now: Duration, payload: usize) -> Fate {
        while let Some(&(sent, bytes)) = self.waiting.front().filter(|(sent, _)| *sent <= now) {
            let _ = sent;
            self.waiting_bytes -= bytes;
            self.waiting.pop_front();
        }
        let bytes = payload + HEADERS;
        if self.waiting_bytes + bytes > self.spec.queue {
            return Fate::Dropped;
        }
        let start = self.waiting.back().map_or(now, |&(sent, _)| sent);
        let sent = self.sent_by(start, bytes);
        self.waiting.push_back((sent, bytes));
        self.waiting_bytes += bytes;
        if self.begun.is_some() && self.rng.random::<f64>() < self.spec.loss {
            return Fate::Lost;
        }
        Fate::Arrives(sent + self.spec.delay)
    }

    /// When a packet is on the wire whose first bit is sent at `start`.
    fn sent_by(&self, start: Duration, bytes: usize) -> Duration {
        let mut bits = bytes as f64 * 8.0;
        let mut at = start;
        loop {
            let (rate, until) = self.rate(at);
            let took = Duration::from_secs_f64(bits / rate);
            match until.filter(|&until| at + took > until) {
                None => return at + took,
                Some(until) => {
                    bits -= (until - at).as_secs_f64() * rate;
                    at = until;
                }
            }
        }
    }

    /// The rate at a moment, and until when it holds.
    fn rate(&self, at: Duration) -> (f64, Option<Duration>) {
        let rates = &self.spec.rates;
        let Some(begun) = self.begun else { return (rates[0].1, None) };
        let next = rates.partition_point(|&(from, _)| begun + from <= at).max(1);
        (rates[next - 1].1, rates.get(next).map(|&(from, _)| begun + from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// 1 byte per millisecond, headers included.
    fn slow() -> LinkSpec {
        LinkSpec { rates: vec![(ms(0), 8_000.0)], delay: ms(50), loss: 0.0, queue: 1_000 }
    }

    #[test]
    fn a_packet_takes_its_size_over_the_rate_plus_the_delay() {
        let mut link = Link::new(slow(), 1);
        assert_eq!(link.offer(ms(7), 100 - HEADERS), Fate::Arrives(ms(7 + 100 + 50)));
    }

    #[test]
    fn packets_wait_for_those_before_them() {
        let mut link = Link::new(slow(), 1);
        assert_eq!(link.offer(ms(0), 100 - HEADERS), Fate::Arrives(ms(150)));
        assert_eq!(link.offer(ms(0), 100 - HEADERS), Fate::Arrives(ms(250)));
        assert_eq!(link.offer(ms(190), 100 - HEADERS), Fate::Arrives(ms(350)));
        assert_eq!(link.offer(ms(1_000), 100 - HEADERS), Fate::Arrives(ms(1_150)), "an idle link is not in debt");
    }

    #[test]
    fn the_queue_holds_so_many_bytes_and_no_more() {
        let mut link = Link::new(slow(), 1);
        for _ in 0..10 {
            assert!(matches!(link.offer(ms(0), 100 - HEADERS), Fate::Arrives(_)));
        }
        assert_eq!(link.offer(ms(99), 1), Fate::Dropped);
        assert!(matches!(link.offer(ms(100), 100 - HEADERS), Fate::Arrives(_)), "the first has left");
        assert_eq!(link.offer(ms(100), 100 - HEADERS), Fate::Dropped);
    }

    #[test]
    fn a_change_of_rate_in_the_middle_of_a_packet_counts() {
        let rates = vec![(ms(0), 8_000.0), (ms(100), 4_000.0), (ms(300), 16_000.0)];
        let mut link = Link::new(LinkSpec { rates, ..slow() }, 1);
        link.begin(ms(1_000));
        // From 1,050: 50 bytes at 1/ms, 100 at ½/ms until 1,300, 50 at 2/ms.
        assert_eq!(link.offer(ms(1_050), 200 - HEADERS), Fate::Arrives(ms(1_325 + 50)));
    }

    #[test]
    fn before_the_beginning_the_first_rate_holds_and_nothing_is_lost() {
        let rates = vec![(ms(0), 8_000.0), (ms(100), 1.0)];
        let mut link = Link::new(LinkSpec { rates, loss: 1.0, ..slow() }, 1);
        assert_eq!(link.offer(ms(5_000), 100 - HEADERS), Fate::Arrives(ms(5_150)));
        link.begin(ms(6_000));
        assert_eq!(link.offer(ms(6_000), 1), Fate::Lost);
    }

    #[test]
    fn loss_is_as_frequent_as_it_was_said_to_be_and_repeats() {
        let fates = |seed| {
            let mut link = Link::new(LinkSpec { rates: vec![(ms(0), 1e9)], loss: 0.1, ..slow() }, seed);
            // A handshake of any length changes nothing.
            for n in 0..seed {
                link.offer(ms(n), 10);
            }
            link.begin(ms(1_000));
            (0..10_000).map(|n| link.offer(ms(1_000 + n), 10) == Fate::Lost).collect::<Vec<_>>()
        };
        let lost = fates(3).iter().filter(|&&lost| lost).count();
        assert!((900..1_100).contains(&lost), "{lost}");
        assert_eq!(fates(3), fates(3));
        assert_ne!(fates(3), fates(4));
    }
}
