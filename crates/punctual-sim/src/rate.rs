//! How fast a link puts packets on the wire.

use std::time::Duration;

use crate::{
    schedule::Schedule,
    trace::{Cursor, Opportunities},
};

/// A link's capacity. Headers count: see [`LinkSpec::overhead`](crate::LinkSpec::overhead).
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Rate {
    /// Packets take no time to send, and never queue.
    #[default]
    Unlimited,
    /// Bits per second, fixed or changing. At 0 nothing moves.
    Steps(Schedule<u64>),
    /// As a cellular link was recorded.
    Trace(Opportunities),
}

impl Rate {
    /// Always this many bits per second.
    pub fn bits_per_second(rate: u64) -> Self {
        Self::Steps(Schedule::fixed(rate))
    }

    /// Always this many megabits (10⁶ bits) per second.
    pub fn mbps(rate: f64) -> Self {
        Self::bits_per_second((rate * 1e6).round() as u64)
    }

    /// Bits per second for sizing a queue: the mean of what repeats (a trace, a repeating schedule), the highest of any other
    /// schedule, `None` if unlimited.
    pub fn nominal(&self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::Steps(schedule) => Some(match schedule.period() {
                Some(period) => work_between(self, Duration::ZERO, period) as f64 / period.as_nanos() as f64,
                None => schedule.values().copied().max().unwrap_or(0) as f64,
            }),
            Self::Trace(trace) => Some(trace.mean_rate()),
        }
    }
}

/// Sends one packet after another at a [`Rate`], to the nanosecond and without losing fractions of one between packets.
///
/// All times count from the link's origin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Serializer {
    current: Option<Current>,
    /// When the last packet was done, and the part of that nanosecond it left unused (bits · 10⁹).
    idle_since: Duration,
    credit: u128,
    /// The next opportunity not used, and what is left of the one before it.
    cursor: Cursor,
    left: u32,
}

/// The packet being sent.
#[derive(Debug, Clone, Copy)]
struct Current {
    since: Duration,
    bytes: u32,
    /// What remained to do at `since`, bits · 10⁹.
    work: u128,
    done: Option<Duration>,
}

const NANOS: u128 = 1_000_000_000;

impl Serializer {
    pub(crate) fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// When the packet being sent will be done, if it ever is.
    pub(crate) fn done_at(&self) -> Option<Duration> {
        self.current?.done
    }

    /// Begins to send a packet. The one before must be finished.
    pub(crate) fn start(&mut self, rate: &Rate, now: Duration, bytes: u32) {
        debug_assert!(self.current.is_none());
        let credit = if now == self.idle_since { std::mem::take(&mut self.credit) } else { 0 };
        let work = (u128::from(bytes) * 8 * NANOS).saturating_sub(credit);
        self.run(rate, now, bytes, work);
    }

    /// Ends the packet being sent.
    pub(crate) fn finish(&mut self) {
        if let Some(Current { done: Some(done), .. }) = self.current.take() {
            self.idle_since = done;
        }
    }

    /// Gives the packet being sent up.
    pub(crate) fn abort(&mut self) {
        (self.current, self.credit, self.left) = (None, 0, 0);
    }

    /// Goes on at another rate. What a trace has sent of a packet is sent again.
    pub(crate) fn change(&mut self, old: &Rate, new: &Rate, now: Duration) {
        if old == new {
            return;
        }
        (self.cursor, self.left) = (Cursor::default(), 0);
        if let Some(current) = self.current.take() {
            let work = current.work.saturating_sub(work_between(old, current.since, now));
            self.run(new, now, current.bytes, work);
        }
    }

    fn run(&mut self, rate: &Rate, now: Duration, bytes: u32, work: u128) {
        let done = match rate {
            Rate::Unlimited => Some(now),
            Rate::Steps(schedule) => finish(schedule, now, work).map(|(done, credit)| {
                self.credit = credit;
                done
            }),
            Rate::Trace(trace) => Some(self.ride(trace, now, bytes)),
        };
        self.current = Some(Current { since: now, bytes, work, done });
    }

    /// When a packet that starts at `now` has had opportunities enough.
    fn ride(&mut self, trace: &Opportunities, now: Duration, bytes: u32) -> Duration {
        if now != self.idle_since {
            self.left = 0;
        }
        self.cursor = self.cursor.max(trace.seek(now));
        let (mut need, mut at) = (bytes, now);
        while need > self.left {
            need -= self.left;
            self.left = Opportunities::BYTES;
            at = trace.time(self.cursor);
            self.cursor = trace.next(self.cursor);
        }
        self.left -= need;
        at
    }
}

/// When `work` begun at `start` is done, and what more could have been done by then.
fn finish(schedule: &Schedule<u64>, start: Duration, mut work: u128) -> Option<(Duration, u128)> {
    if schedule.values().all(|rate| *rate == 0) {
        return None;
    }
    let mut time = start;
    loop {
        let rate = u128::from(*schedule.at(time));
        let next = schedule.next_change(time);
        let need = if rate > 0 { work.div_ceil(rate) } else { u128::MAX };
        match next {
            Some(next) if need > (next - time).as_nanos() => {
                work -= rate * (next - time).as_nanos();
                time = next;
            }
            None if rate == 0 => return None,
            _ => return Some((time + Duration::from_nanos(need as u64), need * rate - work)),
        }
    }
}

/// What can be done between two moments.
fn work_between(rate: &Rate, from: Duration, until: Duration) -> u128 {
    let Rate::Steps(schedule) = rate else { return 0 };
    let (mut time, mut work) = (from, 0);
    while time < until {
        let next = schedule.next_change(time).map_or(until, |next| next.min(until));
        work += u128::from(*schedule.at(time)) * (next - time).as_nanos();
        time = next;
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// When each of `n` packets handed over at once is done.
    fn times(rate: &Rate, n: usize, bytes: u32) -> Vec<Duration> {
        let (mut serializer, mut now) = (Serializer::default(), Duration::ZERO);
        (0..n)
            .map(|_| {
                serializer.start(rate, now, bytes);
                now = serializer.done_at().unwrap();
                serializer.finish();
                now
            })
            .collect()
    }

    #[test]
    fn fixed_rate_is_exact_over_any_number_of_packets() {
        // 1,231 bytes at 7 Mbit/s take 1,406,857.14 ns: rounded up each time, a million would be 0.86 ms late.
        let last = *times(&Rate::mbps(7.0), 1_000_000, 1231).last().unwrap();
        let exact = Duration::from_nanos((1_000_000u128 * 1231 * 8 * NANOS).div_ceil(7_000_000) as u64);
        assert_eq!(last, exact);
    }

    #[test]
    fn a_schedule_is_obeyed_within_a_packet() {
        // 1,000 bytes: 8,000 bits; 4 ms at 1 Mbit/s, nothing for 6 ms, the other half at 2 Mbit/s.
        let schedule = Schedule::fixed(1_000_000).then(ms(4), 0).then(ms(10), 2_000_000);
        assert_eq!(times(&Rate::Steps(schedule), 2, 1000), [ms(12), ms(16)]);
    }

    #[test]
    fn what_repeats_has_a_mean() {
        let schedule = Schedule::fixed(4_000_000).then(ms(300), 12_000_000);
        assert_eq!(Rate::Steps(schedule.clone()).nominal(), Some(12e6));
        assert_eq!(Rate::Steps(schedule.repeat_every(ms(400))).nominal(), Some(6e6));
    }

    #[test]
    fn nothing_moves_at_zero() {
        assert_eq!(finish(&Schedule::fixed(0), ms(1), 1), None);
        assert_eq!(finish(&Schedule::fixed(1).then(ms(1), 0), ms(2), 1), None);
        assert_eq!(finish(&Schedule::fixed(0).then(ms(1), 0).repeat_every(ms(2)), ms(2), 1), None);
    }

    #[test]
    fn the_rate_may_change_under_a_packet() {
        let (slow, fast) = (Rate::bits_per_second(8_000), Rate::bits_per_second(80_000));
        let mut serializer = Serializer::default();
        serializer.start(&slow, ms(0), 100);
        assert_eq!(serializer.done_at(), Some(ms(100)));
        serializer.change(&slow, &fast, ms(50));
        assert_eq!(serializer.done_at(), Some(ms(55)));
        serializer.change(&fast, &Rate::Unlimited, ms(52));
        assert_eq!(serializer.done_at(), Some(ms(52)));
    }

    #[test]
    fn a_trace_carries_1504_bytes_a_line() {
        let trace = Rate::Trace(Opportunities::parse("2\n2\n5\n10\n").unwrap());
        assert_eq!(times(&trace, 6, 1504), [2, 2, 5, 10, 12, 12].map(ms));
        // Three of 500 to an opportunity; the fourth straddles two.
        assert_eq!(times(&trace, 7, 500), [2, 2, 2, 2, 2, 2, 5].map(ms));
        // One of 4,000 needs three.
        assert_eq!(times(&trace, 1, 4000), [ms(5)]);
    }

    #[test]
    fn an_opportunity_nobody_takes_is_lost() {
        let rate = Rate::Trace(Opportunities::parse("2\n5\n10\n").unwrap());
        let mut serializer = Serializer::default();
        serializer.start(&rate, ms(0), 100);
        assert_eq!(serializer.done_at(), Some(ms(2)));
        serializer.finish();
        serializer.start(&rate, ms(3), 100);
        assert_eq!(serializer.done_at(), Some(ms(5)));
        serializer.finish();
        serializer.start(&rate, ms(39), 1504);
        assert_eq!(serializer.done_at(), Some(ms(40)));
    }

    #[test]
    fn what_is_given_up_leaves_nothing_to_the_next() {
        let rate = Rate::Trace(Opportunities::parse("2\n5\n10\n").unwrap());
        let mut serializer = Serializer::default();
        serializer.start(&rate, ms(0), 1504);
        serializer.finish();
        // Given up and begun anew at once, before the opportunity at 5 ms that it would have had a part of.
        serializer.start(&rate, ms(2), 100);
        serializer.abort();
        serializer.start(&rate, ms(2), 100);
        assert_eq!(serializer.done_at(), Some(ms(10)));
    }

    #[test]
    fn a_trace_has_its_mean_rate() {
        let text: String = (1..=1000).map(|i| format!("{}\n", i * 3 + (i * 7919) % 3)).collect();
        let trace = Opportunities::parse(&text).unwrap();
        let (mean, n) = (trace.mean_rate(), 20_000);
        let last = *times(&Rate::Trace(trace), n, 1200).last().unwrap();
        let rate = n as f64 * 1200.0 * 8.0 / last.as_secs_f64();
        assert!((rate / mean - 1.0).abs() < 1e-3, "{rate} {mean}");
    }
}
