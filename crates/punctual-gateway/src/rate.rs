//! How much a client may have carried.

use std::time::{Duration, Instant};

/// Bytes per second, with what was saved up in the last second.
///
/// Datagrams cannot wait: they [`take`](Self::take) or are dropped. Bytes of connections can: they [`wait`](Self::take_or_wait) in small parts, and leave half of what may be
/// saved up to datagrams. So that datagrams without end do not stop connections, these have a quarter of the rate whatever is left.
#[derive(Debug)]
pub(crate) struct Bucket {
    all: Level,
    /// What connections may take even if it has to be owed.
    waiting: Level,
}

/// Bytes that come at a rate, up to a depth.
#[derive(Debug)]
struct Level {
    /// Bytes per second.
    rate: f64,
    depth: f64,
    level: f64,
    filled: Instant,
}

impl Level {
    /// A full one.
    fn new(rate: f64, depth: f64, now: Instant) -> Self {
        Self { rate, depth, level: depth, filled: now }
    }

    fn fill(&mut self, now: Instant) {
        let earned = self.rate * now.saturating_duration_since(self.filled).as_secs_f64();
        self.level = (self.level + earned).min(self.depth);
        self.filled = self.filled.max(now);
    }

    /// How long until there is so much.
    fn until(&self, level: f64) -> Duration {
        Duration::from_secs_f64((level - self.level).max(0.0) / self.rate)
    }
}

impl Bucket {
    /// For how long what is not used is saved up, seconds.
    const DEPTH: f64 = 1.0;
    /// What is left to datagrams, of the depth.
    const RESERVE: f64 = 0.5;
    /// What connections take at once at most, of the depth: seldom enough for few wake-ups, and little beside the reserve.
    const PART: f64 = 1.0 / 16.0;
    /// What connections have whatever is left, of the rate.
    const SHARE: f64 = 0.25;

    /// A full bucket; `rate` in bytes per second.
    pub(crate) fn new(rate: u64, now: Instant) -> Self {
        let rate = rate as f64;
        let depth = rate * Self::DEPTH;
        Self {
            all: Level::new(rate, depth, now),
            waiting: Level::new(rate * Self::SHARE, (depth * Self::PART).max(1.0), now),
        }
    }

    /// Takes so many bytes out, if there is anything left: what comes later waits for the debt.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) -> bool {
        self.all.fill(now);
        let left = self.all.level > 0.0;
        if left {
            self.all.level -= bytes as f64;
        }
        left
    }

    /// Takes some of so many bytes that can wait: how many, or how long until it is worth asking again.
    pub(crate) fn take_or_wait(&mut self, bytes: usize, now: Instant) -> Result<usize, Duration> {
        self.all.fill(now);
        self.waiting.fill(now);
        let part = (bytes as f64).min((self.all.depth * Self::PART).floor().max(1.0));
        let spare = self.all.depth * Self::RESERVE + part;
        // Less than a byte is no reason to wait: times are rounded.
        let free = self.all.level + 0.5 >= spare.min(self.all.depth);
        if !free && self.waiting.level + 0.5 < part {
            return Err(self.all.until(spare.min(self.all.depth)).min(self.waiting.until(part)));
        }
        self.all.level -= part;
        self.waiting.level -= part.min(self.waiting.level);
        Ok(part as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_long_run_the_rate_is_kept_and_a_burst_is_a_seconds_worth() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10_000, start);
        let at_once = (0..100).filter(|_| bucket.take(1_000, start)).count();
        assert_eq!(at_once, 10);
        let (mut now, mut passed) = (start, 0);
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            passed += usize::from(bucket.take(1_000, now));
        }
        assert!((99..=101).contains(&passed), "{passed} in ten seconds");
    }

    /// What passes in ten seconds, after one in which what was saved up is used: bytes of a connection that has 64 KiB to send whenever it may, and datagrams of those that come.
    fn beside_each_other(rate: u64, datagram: usize, every: Duration) -> (f64, usize, usize) {
        let start = Instant::now();
        let mut bucket = Bucket::new(rate, start);
        let (mut wake, mut left, mut bytes, mut passed, mut came) = (start, 65_536, 0, 0, 0);
        let mut next = start;
        let at = |seconds| start + Duration::from_secs(seconds);
        while wake.min(next) < at(11) {
            let now = wake.min(next);
            let counts = now >= at(1);
            // At the same time, the connection comes first.
            if wake <= next {
                match bucket.take_or_wait(left, now) {
                    Ok(taken) => {
                        bytes += if counts { taken } else { 0 };
                        left = if left == taken { 65_536 } else { left - taken };
                    }
                    Err(wait) => wake = now + wait.max(Duration::from_nanos(1)),
                }
            } else {
                let passes = bucket.take(datagram, now);
                came += usize::from(counts);
                passed += usize::from(counts && passes);
                next = now + every;
            }
        }
        (bytes as f64 / 10.0, passed, came)
    }

    #[test]
    fn datagrams_pass_beside_a_connection_that_takes_what_there_is() {
        for rate in [20_000, 500_000, 50_000_000] {
            // One in a hundred, and a third, of the rate.
            for share in [100, 3] {
                let every = Duration::from_secs_f64(500.0 * share as f64 / rate as f64);
                let (bytes, passed, came) = beside_each_other(rate, 500, every);
                assert_eq!(passed, came, "datagrams at {rate} B/s, one in {share}");
                let all = bytes + passed as f64 * 50.0;
                let off = (all / rate as f64 - 1.0).abs();
                assert!(off < 0.03, "{all} bytes per second of {rate}");
            }
        }
    }

    #[test]
    fn datagrams_without_end_leave_a_connection_its_share_and_the_rate_is_kept() {
        let (bytes, passed, _) = beside_each_other(500_000, 1_000, Duration::from_micros(500));
        assert!((120_000.0..135_000.0).contains(&bytes), "{bytes} bytes per second");
        let all = bytes + passed as f64 * 100.0;
        assert!((475_000.0..525_000.0).contains(&all), "{all} bytes per second");
    }

    #[test]
    fn even_a_byte_per_second_goes_on() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1, start);
        let (mut now, mut taken) = (start, 0);
        while taken < 20 {
            match bucket.take_or_wait(20 - taken, now) {
                Ok(more) => taken += more,
                Err(wait) => now += wait.max(Duration::from_nanos(1)),
            }
        }
        let took = (now - start).as_secs_f64();
        assert!((16.0..24.0).contains(&took), "{took} s");
    }
}
