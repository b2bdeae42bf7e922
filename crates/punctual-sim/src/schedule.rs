//! Values that change at given times.

use std::time::Duration;

/// A value that changes in steps over time.
///
/// A link counts the time from the moment it was shaped (see [`World::handshake`](crate::World::handshake)), which is
/// the beginning of the measured run.
///
/// ```
/// # use std::time::Duration;
/// use punctual_sim::Schedule;
///
/// let rate = Schedule::fixed(12).then(Duration::from_secs(5), 4).then(Duration::from_secs(10), 12);
/// assert_eq!(*rate.at(Duration::from_secs(7)), 4);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule<T> {
    /// In order of time; the first is at zero.
    steps: Vec<(Duration, T)>,
    period: Option<Duration>,
}

impl<T> Schedule<T> {
    /// Always the same.
    pub fn fixed(value: T) -> Self {
        Self { steps: vec![(Duration::ZERO, value)], period: None }
    }

    /// From `at` on `value`, until the next step. A step at the same time as another takes its place.
    pub fn then(mut self, at: Duration, value: T) -> Self {
        let index = self.steps.partition_point(|(time, _)| *time < at);
        match self.steps.get_mut(index) {
            Some((time, old)) if *time == at => *old = value,
            _ => self.steps.insert(index, (at, value)),
        }
        self
    }

    /// Begins anew whenever `period` has passed. Steps at or after `period` are never reached. A period of zero means
    /// none.
    pub fn repeat_every(mut self, period: Duration) -> Self {
        self.period = Some(period).filter(|period| !period.is_zero());
        self
    }

    /// What it is from `offset` on, counted from there.
    pub fn begun_at(&self, offset: Duration) -> Self
    where
        T: Clone,
    {
        let mut begun = Self::fixed(self.at(offset).clone());
        let mut at = offset;
        while let Some(next) = self.next_change(at) {
            if self.period.is_some_and(|period| next - offset >= period) {
                break;
            }
            begun = begun.then(next - offset, self.at(next).clone());
            at = next;
        }
        Self { period: self.period, ..begun }
    }

    /// The same times with other values.
    pub fn map<U>(&self, change: impl Fn(&T) -> U) -> Schedule<U> {
        Schedule { steps: self.steps.iter().map(|(at, value)| (*at, change(value))).collect(), period: self.period }
    }

    /// The value at `time`.
    pub fn at(&self, time: Duration) -> &T {
        if self.steps.len() == 1 {
            return &self.steps[0].1;
        }
        let (_, phase) = self.split(time);
        &self.steps[self.steps.partition_point(|(at, _)| *at <= phase) - 1].1
    }

    /// When the next step comes, strictly after `time`.
    pub fn next_change(&self, time: Duration) -> Option<Duration> {
        if self.steps.len() == 1 {
            return None;
        }
        let (begin, phase) = self.split(time);
        let next = self.steps.get(self.steps.partition_point(|(at, _)| *at <= phase)).map(|(at, _)| *at);
        match (next, self.period) {
            (Some(at), Some(period)) => Some(begin + at.min(period)),
            (None, Some(period)) => Some(begin + period),
            (next, None) => next,
        }
    }

    /// All values, in order of time.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.steps.iter().map(|(_, value)| value)
    }

    /// After what time it repeats, if it does.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// The beginning of the repetition `time` falls into, and how far into it.
    fn split(&self, time: Duration) -> (Duration, Duration) {
        match self.period {
            None => (Duration::ZERO, time),
            Some(period) => {
                let phase = Duration::from_nanos((time.as_nanos() % period.as_nanos()) as u64);
                (time - phase, phase)
            }
        }
    }
}

impl<T: Default> Default for Schedule<T> {
    fn default() -> Self {
        Self::fixed(T::default())
    }
}

impl<T> From<T> for Schedule<T> {
    fn from(value: T) -> Self {
        Self::fixed(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn steps() {
        let schedule = Schedule::fixed('a').then(s(10), 'c').then(s(5), 'b').then(s(10), 'd');
        let seen: String = [0, 4, 5, 9, 10, 99].iter().map(|&t| schedule.at(s(t))).collect();
        assert_eq!(seen, "aabbdd");
        assert_eq!(schedule.next_change(s(0)), Some(s(5)));
        assert_eq!(schedule.next_change(s(5)), Some(s(10)));
        assert_eq!(schedule.next_change(s(10)), None);
    }

    #[test]
    fn it_can_begin_anywhere() {
        let steps = Schedule::fixed('a').then(s(5), 'b').then(s(7), 'c');
        for schedule in
            [steps.clone(), steps.clone().repeat_every(s(9)), steps.repeat_every(s(6)), Schedule::fixed('a')]
        {
            for offset in 0..30 {
                let begun = schedule.begun_at(s(offset));
                assert!((0..30).all(|t| begun.at(s(t)) == schedule.at(s(offset + t))), "{schedule:?} {offset}");
            }
        }
    }

    #[test]
    fn repeats() {
        let schedule = Schedule::fixed('a').then(s(5), 'b').repeat_every(s(8));
        let seen: String = [0, 5, 7, 8, 12, 13, 16].iter().map(|&t| schedule.at(s(t))).collect();
        assert_eq!(seen, "abbaaba");
        assert_eq!(schedule.next_change(s(6)), Some(s(8)));
        assert_eq!(schedule.next_change(s(8)), Some(s(13)));
        assert_eq!(schedule.next_change(s(13)), Some(s(16)));
    }
}
