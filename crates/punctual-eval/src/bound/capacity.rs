//! What a link, or the policer before it, can let through at most: the bytes of blocks by a time, and the first and last departure
//! that are of use to a block.

use std::time::Duration;

use punctual_sim::{LinkSpec, Loss, Rate, Schedule, trace::Opportunities};

/// Bytes of work are counted in units of 1/1024, so that all that follows is exact arithmetic on whole numbers. Capacity is
/// rounded in the sender's favour.
pub(super) const UNITS_PER_BYTE: i64 = 1024;

/// Far beyond any run, and far from overflow.
pub(super) const MOST: i64 = i64::MAX / 8;

/// The least of a QUIC packet that is not an application's: a short header's flags, an 8-byte connection id (what noq, and with
/// it Punctual, gives out), a 1-byte packet number and a 16-byte authentication tag (RFC 9001, 5.3: all cipher suites), then a
/// frame's type and one byte to say which stream or block its bytes are of.
const QUIC_OVERHEAD: u32 = 1 + 8 + 1 + 16 + 1 + 1;

/// One path, as the best of senders could use it: the link that counts, and how far from both ends it is.
#[derive(Debug, Clone)]
pub(super) struct Path {
    /// `None`: as much as one likes, at once.
    work: Option<Work>,
    /// Work that can be saved up to be used later, and is there at the beginning: a policer's burst. As what is [carried](Self::carried).
    saved: u128,
    /// From when to when nothing can leave that arrives, for the link dies, nanoseconds.
    useless: Vec<(u64, u64)>,
    /// Work that is of use to nobody for that.
    lost: Vec<Lost>,
    /// Of the bytes on the wire, in units, those that can be a block's: a numerator and a denominator.
    units_per_byte: (u128, u128),
    delay: Delay,
    /// Nanoseconds that every packet needs before it is at this link.
    ahead: u64,
    /// Nanoseconds that every packet needs once this link's wire is behind it.
    behind: u64,
    /// The greatest probability with which a packet can ever get through undamaged.
    survival: f64,
}

impl Path {
    /// `None` if its packets have no room for data, or nothing ever moves.
    pub(super) fn new(spec: &LinkSpec) -> Option<Self> {
        let payload = spec.mtu.saturating_sub(spec.overhead).saturating_sub(QUIC_OVERHEAD);
        let work = match &spec.rate {
            Rate::Unlimited => None,
            Rate::Steps(schedule) if schedule.values().all(|rate| *rate == 0) => return None,
            Rate::Steps(schedule) => Some(Work::Steps(Steps::new(schedule))),
            Rate::Trace(trace) => Some(Work::Trace(trace.clone())),
        };
        let units_per_byte = (u128::from(payload) * UNITS_PER_BYTE as u128, u128::from(spec.mtu));
        let path = Self {
            work,
            saved: 0,
            useless: Vec::new(),
            lost: Vec::new(),
            units_per_byte,
            delay: Delay::new(&spec.delay),
            ahead: 0,
            behind: 0,
            survival: survival(spec),
        };
        (payload > 0).then_some(path)
    }

    /// The link's policer in the link's place, as if nothing else kept packets from passing; `None` also without one.
    ///
    /// Its work is tokens, counted from those of the beginning on, and packets take the oldest. As the bucket never holds more than it did
    /// then, by any moment as many are used up or lost as have come in since.
    pub(super) fn of_policer(spec: &LinkSpec) -> Option<Self> {
        let policer = spec.policer?;
        let path = Self::new(&LinkSpec { rate: Rate::Unlimited, ..spec.clone() })?;
        let work = Some(Work::Steps(Steps::new(&Schedule::fixed(policer.rate))));
        Some(Self { work, saved: u128::from(policer.burst) * 8 * NANOS, ..path })
    }

    /// The same where the link dies and lives again at these times. Where it takes no time to send, that is ignored.
    ///
    /// What has not arrived when it dies is lost, and what is offered before it lives again. So nobody can use what leaves too late to
    /// arrive by the one and too early to have been offered at the other.
    pub(super) fn dying(self, dies: &[(Duration, Duration)]) -> Self {
        let mut useless: Vec<(u64, u64)> = Vec::new();
        for (killed, revived) in dead(dies) {
            let first = self.delay.latest_departure(killed).map_or(0, |latest| latest.saturating_add(1));
            match useless.last_mut() {
                Some(last) if first <= last.1 => last.1 = revived,
                _ if first < revived => useless.push((first, revived)),
                _ => {}
            }
        }
        let mut lost: Vec<Lost> = Vec::new();
        for &(first, revived) in &useless {
            // What is offered from then on may begin to be sent in the nanosecond before.
            let to = self.carried(u128::from(revived) - 1).0;
            let from = first.checked_sub(1).map_or(0, |last| self.carried(last.into()).0.saturating_add(self.saved));
            let before = lost.last().map_or(0, |last| last.before + (last.to - last.from));
            if from < to {
                lost.push(Lost { from, to, before });
            }
        }
        Self { useless, lost, ..self }
    }

    /// The same with other links around it: a packet needs at least so many nanoseconds on those before and on those behind it, and
    /// survives them with at most this probability.
    pub(super) fn between(self, ahead: u64, behind: u64, survival: f64) -> Self {
        Self { ahead, behind, survival: self.survival * survival, ..self }
    }

    /// Whether packets can be lost.
    pub(super) fn is_lossy(&self) -> bool {
        self.survival < 1.0
    }

    /// The same with only that part of its capacity that is not lost on average, as little as the link can lose.
    pub(super) fn thinned(&self) -> Self {
        const ONE: u128 = 1 << 20;
        let survive = (self.survival * ONE as f64).ceil() as u128;
        let (units, bytes) = self.units_per_byte;
        Self { units_per_byte: (units * survive, bytes * ONE), ..self.clone() }
    }

    /// Whether packets take no time to send.
    pub(super) fn is_unlimited(&self) -> bool {
        self.work.is_none()
    }

    /// The shortest way from this link to the receiver, nanoseconds.
    pub(super) fn least_delay(&self) -> u64 {
        self.delay.least.saturating_add(self.behind)
    }

    /// Whether packets that leave both at the same moment are at the receiver at the same moment, and were as long under way; and what
    /// they use was saved up alike.
    pub(super) fn is_as_long_as(&self, other: &Self) -> bool {
        (self.ahead, self.behind, self.saved, &self.delay) == (other.ahead, other.behind, other.saved, &other.delay)
    }

    /// Whether what comes in can be used later.
    #[cfg(test)]
    pub(super) fn saves(&self) -> bool {
        self.saved > 0
    }

    /// The first moment a packet can be here if it was handed over then, nanoseconds.
    pub(super) fn first_departure(&self, handed_over: u64) -> u64 {
        handed_over.saturating_add(self.ahead)
    }

    /// The last moment a packet can leave and be there by `due`, nanoseconds. Jitter, packets held back and packets that may not
    /// overtake only make it earlier.
    pub(super) fn latest_departure(&self, due: u64) -> Option<u64> {
        self.delay.latest_departure(due.checked_sub(self.behind)?)
    }

    /// At least the units of block data in packets that have left by `time`.
    pub(super) fn by(&self, time: i128) -> i64 {
        let last = self.useless_at(time).map_or(time, |(first, _)| first - 1);
        let Ok(last) = u128::try_from(last) else { return 0 };
        let (work, per_byte) = self.carried(last);
        self.units(self.useful(work.saturating_add(self.saved)), per_byte, true)
    }

    /// At most the units that were gone for good before a packet that was ready at `time`.
    ///
    /// The simulator's links send without gaps: a packet can begin in the nanosecond before it is ready, if the one before left
    /// part of that unused. Hence one nanosecond earlier.
    pub(super) fn before(&self, time: i128) -> i64 {
        let first = self.useless_at(time).map_or(time, |(_, revived)| revived);
        let Ok(last) = u128::try_from(first - 1) else { return 0 };
        let (work, per_byte) = self.carried(last);
        self.units(self.useful(work), per_byte, false)
    }

    /// From when to when nothing that leaves arrives, if that is so at `time`.
    fn useless_at(&self, time: i128) -> Option<(i128, i128)> {
        let begun = self.useless.partition_point(|(first, _)| i128::from(*first) <= time);
        let (first, revived) = *self.useless[..begun].last()?;
        (time < revived.into()).then_some((first.into(), revived.into()))
    }

    /// What is left of the first work without what nobody can use.
    fn useful(&self, work: u128) -> u128 {
        let begun = self.lost.partition_point(|lost| lost.from < work);
        self.lost[..begun].last().map_or(work, |lost| work - (work.min(lost.to) - lost.from) - lost.before)
    }

    /// Work by `time`, and how much of it a byte is.
    fn carried(&self, time: u128) -> (u128, u128) {
        match &self.work {
            None => (0, 1),
            Some(Work::Steps(steps)) => (steps.by(time), 8 * NANOS),
            Some(Work::Trace(trace)) => (opportunities_by(trace, time).saturating_mul(Opportunities::BYTES.into()), 1),
        }
    }

    fn units(&self, work: u128, per_byte: u128, up: bool) -> i64 {
        let numerator = work.saturating_mul(self.units_per_byte.0);
        let denominator = per_byte * self.units_per_byte.1;
        let units = if up { numerator.div_ceil(denominator) } else { numerator / denominator };
        i64::try_from(units).unwrap_or(MOST).min(MOST)
    }
}

const NANOS: u128 = 1_000_000_000;

/// The greatest probability with which a packet can ever get through undamaged, whatever is known of those before it.
pub(super) fn survival(spec: &LinkSpec) -> f64 {
    let least = |loss: &Loss| match loss {
        Loss::None => 0.0,
        Loss::Bernoulli(p) => *p,
        // The channel may have been known to be good, or bad, before it changed for this packet.
        Loss::GilbertElliott(model) => [model.to_bad, 1.0 - model.to_good]
            .map(|bad| bad * model.loss_in_bad + (1.0 - bad) * model.loss_in_good)
            .into_iter()
            .fold(1.0, f64::min),
    };
    let lost = spec.loss.values().map(least).fold(1.0, f64::min).clamp(0.0, 1.0);
    // Of two copies one is enough.
    let (damage, copy) = (spec.corruption.probability.clamp(0.0, 1.0), spec.duplication.clamp(0.0, 1.0));
    (1.0 - lost) * (1.0 - damage * (1.0 - copy + copy * damage))
}

/// Work that is of use to nobody: from where to where, of all the work since the beginning, and how much there was before it.
#[derive(Debug, Clone, Copy)]
struct Lost {
    from: u128,
    to: u128,
    before: u128,
}

/// From when to when a link is dead that is killed and revived at these times, nanoseconds. A dead one cannot be killed again, and once
/// revived it lives.
fn dead(dies: &[(Duration, Duration)]) -> Vec<(u64, u64)> {
    let mut events: Vec<(u64, bool)> =
        dies.iter().flat_map(|(killed, revived)| [(nanos(*killed), true), (nanos(*revived), false)]).collect();
    // What is at the same time comes in the order of the list.
    events.sort_by_key(|(at, _)| *at);
    let (mut dead, mut since) = (Vec::new(), None);
    for (at, killed) in events {
        match (killed, since) {
            (true, None) => since = Some(at),
            (false, Some(killed)) => {
                dead.push((killed, at));
                since = None;
            }
            _ => {}
        }
    }
    dead.extend(since.map(|killed| (killed, u64::MAX)));
    dead
}

#[derive(Debug, Clone)]
enum Work {
    Steps(Steps),
    Trace(Opportunities),
}

/// A rate that changes in steps, summed up.
#[derive(Debug, Clone)]
struct Steps {
    /// From when (nanoseconds), what was done by then (bits · 10⁹), and the rate from there on.
    steps: Vec<(u128, u128, u128)>,
    /// Its length, and what is done in one.
    period: Option<(u128, u128)>,
}

impl Steps {
    fn new(schedule: &Schedule<u64>) -> Self {
        let period = schedule.period().map(|period| period.as_nanos());
        let (mut steps, mut work, mut last) = (Vec::new(), 0, (0, 0));
        for (at, rate) in within_period(schedule) {
            let (at, rate) = (at.as_nanos(), u128::from(*rate));
            work += (at - last.0) * last.1;
            steps.push((at, work, rate));
            last = (at, rate);
        }
        let period = period.map(|period| (period, work + (period - last.0) * last.1));
        Self { steps, period }
    }

    fn by(&self, time: u128) -> u128 {
        let (before, phase) = match self.period {
            None => (0, time),
            Some((period, work)) => ((time / period).saturating_mul(work), time % period),
        };
        let (at, work, rate) = self.steps[self.steps.partition_point(|step| step.0 <= phase) - 1];
        before.saturating_add(work).saturating_add((phase - at).saturating_mul(rate))
    }
}

/// Opportunities at or before `time`.
fn opportunities_by(trace: &Opportunities, time: u128) -> u128 {
    let (times, period) = (trace.times(), trace.period().as_nanos());
    let phase = time % period;
    (time / period) * times.len() as u128 + times.partition_point(|at| at.as_nanos() <= phase) as u128
}

/// The shortest a link's wire ever is, nanoseconds.
pub(super) fn least_delay(spec: &LinkSpec) -> u64 {
    Delay::new(&spec.delay).least
}

/// How long the wire is over time, nanoseconds.
#[derive(Debug, Clone, PartialEq)]
struct Delay {
    /// From when, and how long.
    steps: Vec<(u64, u64)>,
    period: Option<u64>,
    least: u64,
}

impl Delay {
    fn new(schedule: &Schedule<Duration>) -> Self {
        let steps: Vec<_> = within_period(schedule).map(|(at, delay)| (nanos(at), nanos(*delay))).collect();
        let least = steps.iter().map(|step| step.1).min().unwrap_or(0);
        Self { steps, period: schedule.period().map(nanos), least }
    }

    fn latest_departure(&self, due: u64) -> Option<u64> {
        let mut time = due.checked_sub(self.least)?;
        // Backwards over the steps in which a packet would be too late whenever it left.
        loop {
            let (begin, phase) = self.period.map_or((0, time), |period| (time - time % period, time % period));
            let (at, delay) = self.steps[self.steps.partition_point(|step| step.0 <= phase) - 1];
            if let Some(latest) = due.checked_sub(delay).filter(|latest| *latest >= begin + at) {
                return Some(latest.min(time));
            }
            time = (begin + at).checked_sub(1)?;
        }
    }
}

/// The steps of a schedule, or of one repetition of it.
fn within_period<T>(schedule: &Schedule<T>) -> impl Iterator<Item = (Duration, &T)> {
    let next =
        |at: &Duration| schedule.next_change(*at).filter(|at| schedule.period().is_none_or(|period| *at < period));
    std::iter::successors(Some(Duration::ZERO), next).map(|at| (at, schedule.at(at)))
}

/// Nanoseconds; five hundred years at most.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn nanos_ms(millis: u64) -> i128 {
        i128::from(millis) * 1_000_000
    }

    #[test]
    fn capacity_adds_up_over_steps_and_periods() {
        let schedule = Schedule::fixed(8_000).then(ms(100), 0).then(ms(300), 16_000).repeat_every(ms(400));
        let steps = Steps::new(&schedule);
        let bytes: Vec<_> =
            [0, 50, 100, 299, 400, 500, 1_200].map(|at| steps.by(nanos_ms(at) as u128) / (8 * NANOS)).into();
        assert_eq!(bytes, [0, 50, 100, 100, 300, 400, 900]);
    }

    #[test]
    fn opportunities_count_at_both_ends_of_a_window() {
        let spec = LinkSpec::default().rate(Rate::Trace(Opportunities::parse("0\n5\n10\n").unwrap()));
        let path = Path::new(&spec).unwrap();
        // Of 1,500 bytes on the wire, 1,500 - 28 - 28 are a block's.
        let each = |n: i64| n * 1504 * 1444 * UNITS_PER_BYTE / 1500;
        for (at, n) in [(0, 1), (4, 1), (5, 2), (9, 2), (10, 4), (15, 5), (20, 7)] {
            assert!((0..=1).contains(&(path.by(nanos_ms(at)) - each(n))), "{at} ms");
        }
        assert_eq!(path.before(0), 0);
        assert_eq!(path.before(nanos_ms(5)), each(1));
        assert_eq!(path.before(nanos_ms(5) + 1), each(2));
    }

    #[test]
    fn what_a_dead_link_loses_is_left_out() {
        // 1,444 bytes of blocks a millisecond, 20 ms on the wire.
        let at = |millis: i64| millis * 1444 * UNITS_PER_BYTE;
        let dying = |dies: &[(u64, u64)]| {
            let dies: Vec<_> = dies.iter().map(|(killed, revived)| (ms(*killed), ms(*revived))).collect();
            Path::new(&LinkSpec::new(12.0, ms(20))).unwrap().dying(&dies)
        };
        let by = |path: &Path, times: [u64; 5]| times.map(|time| path.by(nanos_ms(time)));
        // Two units are carried in a nanosecond: in the last one before it lives again, a packet may begin.
        assert_eq!(
            by(&dying(&[(100, 200)]), [80, 81, 199, 200, 250]),
            [at(80), at(80), at(80), at(80) + 2, at(130) + 2]
        );
        assert_eq!(dying(&[(100, 200)]).before(nanos_ms(201)), at(81));
        // Nothing arrives between deaths that are too close.
        let close = dying(&[(100, 200), (219, 230)]);
        assert_eq!(by(&close, [80, 200, 229, 230, 250]), [at(80), at(80), at(80), at(80) + 2, at(100) + 2]);
        assert_eq!(by(&dying(&[(10, 50), (60, 70)]), [1, 49, 69, 80, 90])[..3], [0; 3]);
        // One that is dead cannot be killed, and one that lives not be revived.
        let twice = dying(&[(100, 300), (150, 200), (400, u64::MAX / 1_000_000), (400, 350)]);
        assert_eq!(
            by(&twice, [199, 200, 300, 380, 9_000]),
            [at(80), at(80) + 2, at(180) + 2, at(260) + 2, at(260) + 2]
        );
    }

    #[test]
    fn opportunities_of_a_dead_link_are_left_out() {
        let trace = Opportunities::parse("5\n10\n15\n20\n").unwrap();
        let spec = LinkSpec::unlimited(ms(5)).rate(Rate::Trace(trace));
        let path = Path::new(&spec).unwrap().dying(&[(ms(15), ms(25)), (ms(32), ms(32))]);
        // Those at 10 ms and 25 ms are of use; what leaves at 30 ms has not arrived when the link dies for no time at all.
        let count = |at| path.by(nanos_ms(at)) / (1504 * 1444 * UNITS_PER_BYTE / 1500);
        assert_eq!([5, 10, 15, 24, 25, 30, 35].map(count), [1, 2, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn a_policer_lets_through_its_rate_and_what_it_has_saved_up() {
        // A kilobyte a millisecond, and ten of them at once.
        let spec = LinkSpec::unlimited(ms(20)).policer(8_000_000, 10_000);
        let path = Path::of_policer(&spec).unwrap();
        let units = |kilobytes: i64| kilobytes * 1000 * 1444 * UNITS_PER_BYTE / 1500;
        let near = |path: &Path, from, to, kilobytes: i64| {
            let open = path.by(nanos_ms(to)) - path.before(nanos_ms(from));
            assert!((0..=4).contains(&(open - units(kilobytes))), "{open}, {}", units(kilobytes));
        };
        near(&path, 0, 0, 10);
        near(&path, 0, 50, 60);
        near(&path, 7, 8, 11);
        assert!(Path::of_policer(&LinkSpec::new(1.0, ms(1))).is_none());
        // Dead from 80 ms on, as far as departures go. What comes in until the bucket is full before 200 ms is of no use.
        let path = path.dying(&[(ms(100), ms(200))]);
        near(&path, 0, 80, 90);
        near(&path, 0, 150, 90);
        near(&path, 200, 200, 10);
        near(&path, 0, 210, 110);
        // Nothing of a short death is lost for good, though the bucket is full for some of it.
        let short = Path::of_policer(&spec.delay(ms(0))).unwrap().dying(&[(ms(100), ms(109))]);
        near(&short, 0, 200, 210);
        // If nothing comes in, there is only what was there.
        let once = Path::of_policer(&LinkSpec::unlimited(ms(1)).policer(0, 3_000)).unwrap();
        near(&once, 0, 9_000, 3);
    }

    #[test]
    fn the_least_loss_thins_capacity() {
        let survives = |loss: Loss| survival(&LinkSpec::new(1.0, ms(1)).loss(loss));
        assert_eq!(survives(Loss::None), 1.0);
        assert_eq!(survives(Loss::Bernoulli(0.1)), 0.9);
        // 5 % in bursts of 8: a good channel turns bad with 1/8 · 5/95.
        assert!((survives(Loss::bursts(0.05, 8.0)) - (1.0 - 5.0 / 95.0 / 8.0)).abs() < 1e-12);
        let spec =
            LinkSpec::new(12.0, ms(1)).loss(Schedule::fixed(Loss::Bernoulli(0.5)).then(ms(9), Loss::Bernoulli(0.75)));
        let path = Path::new(&spec).unwrap().thinned();
        assert_eq!(path.by(nanos_ms(10)), 10 * 1444 * UNITS_PER_BYTE / 2);
        // Every packet comes twice, each damaged with one half.
        assert_eq!(survival(&LinkSpec::new(1.0, ms(1)).corruption(0.5).duplication(1.0)), 0.75);
    }

    #[test]
    fn the_latest_departure_looks_back_over_steps() {
        let delay = |schedule: Schedule<Duration>| Delay::new(&schedule);
        let at = |delay: &Delay, due| delay.latest_departure(nanos(ms(due))).map(Duration::from_nanos);
        let fixed = delay(Schedule::fixed(ms(20)));
        assert_eq!(at(&fixed, 19), None);
        assert_eq!(at(&fixed, 50), Some(ms(30)));
        // 50 ms long from 100 ms on: what leaves just before arrives sooner than what leaves later.
        let jump = delay(Schedule::fixed(ms(20)).then(ms(100), ms(50)));
        assert_eq!(at(&jump, 110), Some(ms(90)));
        assert_eq!(at(&jump, 149), Some(ms(100) - Duration::from_nanos(1)));
        assert_eq!(at(&jump, 150), Some(ms(100)));
        let repeats = delay(Schedule::fixed(ms(500)).then(ms(50), ms(1)).repeat_every(ms(100)));
        assert_eq!(at(&repeats, 40), None);
        assert_eq!(at(&repeats, 51), Some(ms(50)));
        assert_eq!(at(&repeats, 230), Some(ms(200) - Duration::from_nanos(1)));
        assert_eq!(at(&repeats, 252), Some(ms(251)));
    }

    #[test]
    fn what_cannot_carry_is_no_path() {
        assert!(Path::new(&LinkSpec::new(1.0, ms(1)).mtu(56)).is_none());
        assert!(Path::new(&LinkSpec::new(0.0, ms(1))).is_none());
        assert!(Path::new(&LinkSpec::unlimited(ms(1))).unwrap().is_unlimited());
    }
}
