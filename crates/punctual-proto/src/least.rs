//! The least of what was seen lately.

use std::time::{Duration, Instant};

/// The least value of the last `span`, or of up to twice as long if little was seen.
///
/// Two generations: the one that is open, and the one before it. So nothing is stored for each value, and what is forgotten is forgotten
/// at once. (For the greatest of something, use [`Reverse`](std::cmp::Reverse).)
#[derive(Debug, Clone, Copy)]
pub(crate) struct Least<T> {
    span: Duration,
    open: Option<(T, Instant)>,
    before: Option<T>,
}

impl<T: Copy + PartialOrd> Least<T> {
    pub(crate) fn over(span: Duration) -> Self {
        Self { span, open: None, before: None }
    }

    pub(crate) fn add(&mut self, value: T, now: Instant) {
        match &mut self.open {
            Some((_, since)) if now.saturating_duration_since(*since) > self.span => {
                let stale = now.saturating_duration_since(*since) > self.span * 2;
                self.before = self.open.filter(|_| !stale).map(|(least, _)| least);
                self.open = Some((value, now));
            }
            Some((least, _)) => {
                if value < *least {
                    *least = value;
                }
            }
            None => self.open = Some((value, now)),
        }
    }

    pub(crate) fn get(&self) -> Option<T> {
        let (least, _) = self.open?;
        Some(self.before.filter(|before| *before < least).unwrap_or(least))
    }

    /// Forgets everything but this value.
    pub(crate) fn set(&mut self, value: T, now: Instant) {
        (self.open, self.before) = (Some((value, now)), None);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        (self.open, self.before) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_forgotten_after_one_to_two_spans() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut least = Least::over(second * 5);
        assert_eq!(least.get(), None);
        least.add(3, start);
        for after in 1..=5 {
            least.add(7, start + second * after);
        }
        assert_eq!(least.get(), Some(3));
        for after in 6..=11 {
            least.add(8, start + second * after);
            assert_eq!(least.get(), Some(3), "{after}");
        }
        least.add(9, start + second * 12);
        assert_eq!(least.get(), Some(8));
        least.add(20, start + second * 40);
        assert_eq!(least.get(), Some(20), "a long pause leaves nothing");
        least.set(30, start + second * 41);
        assert_eq!(least.get(), Some(30));
    }
}
