//! How often answers leave on a path that they fill.
//!
//! Every second packet is answered at once, and when packets came is reported four times in a round trip: for 18 Mbit/s that is 0.65 Mbit/s
//! of packets with little in them, and many an uplink has less. No controller slows answers down, for nobody answers them: they wait in the queue
//! that they make, up to its length, and the peer learns of losses when it is too late to mend them. So where reports on our own datagrams find a queue of answers, these share packets,
//! which are a gap apart:
//!
//! ```text
//! gap := min(max(gap · GROW, LEAST), most)    at each look at which the least delayed packet found a queue of ours
//!        gap · SHRINK, or none below LEAST/2  at each other
//! most = base round trip / 8, at least MOST
//! ```
//!
//! A queue is ours if more than [`PACKETS`] of our packets leave in the time that it takes, and if enough of them leave to share packets.
//! Others' traffic, and links that hold packets up for reasons of their own, as LTE does, make queues as well, which no gap makes shorter: if it does not, that is
//! given up for a while.
//!
//! RFC 5690 does so for TCP with marks and losses, but those come when the queue is full, and all answers are late by its length.

use std::time::{Duration, Instant};

/// The shortest gap: with less, packets that answer two of 1,200 bytes each are as far apart at 10 Mbit/s.
const LEAST: Duration = Duration::from_millis(2);
/// The longest, or an eighth of a round trip: what an answer is late by then is about what it is by chance.
const MOST: Duration = Duration::from_millis(10);
const GROW: f64 = 1.5;
/// Slow: a look at ten in a second gives a gap up in seven seconds, and the queue that tells of one that is too short lasts for one or two.
const SHRINK: f64 = 0.99;
/// A look is no shorter than this, nor than a round trip, after which what a gap does can be seen.
const LOOK: Duration = Duration::from_millis(50);
/// A queue that stands is worth speaking of from here on, or from an eighth of the round trip.
const QUEUE: Duration = Duration::from_millis(5);
/// So many of our packets stand in a queue that is ours.
const PACKETS: f64 = 8.0;
/// So many that would share a packet are worth their wait.
const SHARED: f64 = 2.0;
/// A trial: of so many looks while packets are shared no more than so many may find such a queue that is no shorter than it was at the look before. Else
/// it is not ours after all, and answers leave at any time for [`REST`].
const TRIAL: (u32, u32) = (16, 4);
const REST: Duration = Duration::from_secs(10);

/// How far apart a path's answers are.
#[derive(Debug, Default)]
pub(crate) struct Thinning {
    gap: Duration,
    /// When answers left last, by themselves or with a report.
    last: Option<Instant>,
    /// When was looked last, and how many answers left since.
    looked: Option<Instant>,
    answers: u32,
    /// Since then data waited for room; and did not, for there was none.
    data: (bool, bool),
    /// The queue as it was found last.
    before: Duration,
    /// Looks of the trial that is under way, and those that speak against it.
    looks: (u32, u32),
    /// The last trial failed: none before then.
    next_trial: Option<Instant>,
}

impl Thinning {
    /// Packets of ours found this `queue` at least, in an empty round trip of `base`, on a path whose packets vary by `jitter`.
    pub(super) fn on_report(&mut self, now: Instant, queue: Duration, base: Duration, jitter: Duration) {
        let looked = *self.looked.get_or_insert(now);
        let passed = now.saturating_duration_since(looked);
        if passed < LOOK.max(base) || self.next_trial.is_some_and(|next| now < next) {
            return;
        }
        let (most, rate) = (MOST.max(base / 8), f64::from(self.answers) / passed.as_secs_f64());
        let wanted = std::mem::take(&mut self.data) == (true, false);
        (self.looked, self.answers) = (Some(now), 0);
        let many = rate * most.as_secs_f64() > SHARED || self.is_on();
        let stands = queue > QUEUE.max(base / 8) + jitter && rate * queue.as_secs_f64() > PACKETS && many;
        if self.is_on() {
            let (looks, against) = &mut self.looks;
            *looks += 1;
            *against += u32::from(stands && queue >= self.before);
            if *against > TRIAL.1 {
                *self = Self { last: self.last, next_trial: Some(now + REST), ..Self::default() };
                return;
            }
            if *looks >= TRIAL.0 {
                self.looks = (0, 0);
            }
        }
        self.before = queue;
        if stands || wanted && many {
            self.gap = self.gap.mul_f64(GROW).clamp(LEAST, most);
        } else {
            self.gap = Some(self.gap.mul_f64(SHRINK)).filter(|gap| *gap >= LEAST / 2).unwrap_or_default();
        }
    }

    /// A packet with nothing but answers and words in it leaves.
    pub(crate) fn on_answer(&mut self, now: Instant) {
        self.last = Some(now);
        self.answers = self.answers.saturating_add(1);
    }

    /// A report leaves, and answers with it.
    pub(crate) fn on_report_left(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// Data waits for room, or there is none.
    pub(super) fn on_data(&mut self, is_dry: bool) {
        self.data = (self.data.0 || !is_dry, self.data.1 || is_dry);
    }

    /// Whether they are to be apart at all.
    pub(crate) fn is_on(&self) -> bool {
        !self.gap.is_zero()
    }

    /// Until when the next rests, if it does.
    pub(crate) fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.last.map(|last| last + self.gap).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BASE: Duration = Duration::from_millis(12);

    /// Looks at a path on which so many answers a second want to leave, each of which adds to the queue, of which so many leave it each second.
    /// Returns the gaps and the queue at the end.
    fn look(thinning: &mut Thinning, answers: f64, link: f64, seconds: u32) -> Vec<(Duration, Duration)> {
        let (start, mut queue, mut list) = (Instant::now(), 0.0f64, Vec::new());
        for i in 1..=seconds * 10 {
            let leave = if thinning.is_on() { answers.min(1.0 / thinning.gap.as_secs_f64()) } else { answers } / 10.0;
            let now = start + MS * 100 * i;
            (0..leave as u32).for_each(|_| thinning.on_answer(now));
            queue = (queue + leave - link / 10.0).clamp(0.0, 250.0);
            let wait = Duration::from_secs_f64(queue / link);
            thinning.on_report(now, wait, BASE, Duration::ZERO);
            list.push((thinning.gap, wait));
        }
        list
    }

    #[test]
    fn answers_that_fill_a_link_share_packets_until_they_do_not() {
        let mut thinning = Thinning::default();
        let looks = look(&mut thinning, 750.0, 400.0, 20);
        let (early, late) = looks.split_at(20);
        assert!(early.iter().any(|(gap, _)| *gap >= MS * 3), "{early:?}");
        let late: Duration = late.iter().map(|(_, wait)| *wait).sum::<Duration>() / 180;
        assert!(late < MS * 25, "{late:?}, and 600 ms of answers for good without");
    }

    #[test]
    fn where_there_is_room_they_leave_at_any_time() {
        let mut thinning = Thinning::default();
        assert!(look(&mut thinning, 750.0, 800.0, 5).iter().all(|(gap, _)| gap.is_zero()));
    }

    #[test]
    fn few_answers_are_not_to_blame_for_a_queue() {
        let mut thinning = Thinning::default();
        let start = Instant::now();
        for i in 1..100 {
            let now = start + MS * 100 * i;
            (0..10).for_each(|_| thinning.on_answer(now));
            thinning.on_report(now, MS * 200, BASE, Duration::ZERO);
        }
        assert!(!thinning.is_on());
    }

    /// A link that holds up what is on it from time to time, whatever we do.
    #[test]
    fn a_queue_that_no_gap_makes_shorter_is_not_ours() {
        let mut thinning = Thinning::default();
        let (start, mut on) = (Instant::now(), 0);
        for i in 1..=400 {
            let now = start + MS * 100 * i;
            (0..60).for_each(|_| thinning.on_answer(now));
            thinning.on_report(now, MS * if i % 2 == 0 { 50 } else { 1 }, BASE, Duration::ZERO);
            on += u32::from(thinning.is_on());
        }
        assert!(on < 100, "{on} of 400");
    }

    #[test]
    fn data_that_waits_for_room_gets_that_of_answers() {
        let mut thinning = Thinning::default();
        let start = Instant::now();
        for i in 1..20 {
            let now = start + MS * 100 * i;
            (0..70).for_each(|_| thinning.on_answer(now));
            thinning.on_data(false);
            thinning.on_report(now, Duration::ZERO, BASE, Duration::ZERO);
        }
        assert_eq!(thinning.gap, MOST);
        thinning.on_data(true);
        thinning.on_report(start + MS * 2_000, Duration::ZERO, BASE, Duration::ZERO);
        assert!(thinning.gap < MOST, "there was none for a while");
    }

    #[test]
    fn what_rests_leaves_a_gap_after_the_last() {
        let now = Instant::now();
        let mut thinning = Thinning { gap: MS * 4, ..Thinning::default() };
        assert_eq!(thinning.rests_until(now), None);
        thinning.on_answer(now);
        assert_eq!(thinning.rests_until(now + MS), Some(now + MS * 4));
        assert_eq!(thinning.rests_until(now + MS * 4), None);
    }
}
