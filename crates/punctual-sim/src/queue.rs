//! What is to happen next.

use std::{cmp::Ordering, collections::BinaryHeap, time::Duration};

use crate::world::{HostId, LinkId, World};

/// Something that is to happen.
pub(crate) enum Target {
    /// What a host runs wants to be woken.
    Host(HostId),
    /// A host has something to send, or to say.
    Kick(HostId),
    /// A packet leaves a link's queue, or arrives.
    Link(LinkId),
    /// A packet of cross traffic comes; which of the world's sources it is from.
    Cross(usize),
    /// An application's timer.
    Timer(HostId, u64),
    /// The scenario interferes.
    Action(Box<dyn FnOnce(&mut World)>),
}

/// Events in the order of time, and for the same time in the order in which they were put in: nothing is left to
/// chance.
#[derive(Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    sequence: u64,
}

impl EventQueue {
    pub(crate) fn push(&mut self, time: Duration, target: Target) {
        self.sequence += 1;
        self.heap.push(Entry { time, sequence: self.sequence, target });
    }

    /// When the next event is due.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        self.heap.peek().map(|entry| entry.time)
    }

    pub(crate) fn pop(&mut self) -> Option<(Duration, Target)> {
        self.heap.pop().map(|entry| (entry.time, entry.target))
    }
}

struct Entry {
    time: Duration,
    sequence: u64,
    target: Target,
}

impl Ord for Entry {
    /// The earliest is the greatest, as the heap gives out the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// The earliest wake-up a host or a link has in the queue.
///
/// A wake-up that turns out to be too early costs a look and is put in again; one that has been overtaken by an earlier
/// one is ignored when its time comes. So nothing is ever searched or removed in the middle of the heap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Alarm(Option<Duration>);

impl Alarm {
    /// Sees to it that there is a wake-up at `time` or before.
    pub(crate) fn set(&mut self, time: Duration, queue: &mut EventQueue, target: Target) {
        if self.0.is_none_or(|set| time < set) {
            self.0 = Some(time);
            queue.push(time, target);
        }
    }

    /// Whether the wake-up that has come at `now` is the one that is set; then none is.
    pub(crate) fn ring(&mut self, now: Duration) -> bool {
        let due = self.0 == Some(now);
        if due {
            self.0 = None;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_time_then_of_arrival() {
        let mut queue = EventQueue::default();
        for (token, time) in [(0, 5), (1, 3), (2, 5), (3, 3), (4, 1)] {
            queue.push(Duration::from_secs(time), Target::Timer(HostId(0), token));
        }
        assert_eq!(queue.next_time(), Some(Duration::from_secs(1)));
        let mut tokens = Vec::new();
        while let Some((_, Target::Timer(_, token))) = queue.pop() {
            tokens.push(token);
        }
        assert_eq!(tokens, [4, 1, 3, 0, 2]);
    }

    #[test]
    fn an_alarm_keeps_the_earliest() {
        let (mut queue, mut alarm) = (EventQueue::default(), Alarm::default());
        let at = Duration::from_secs;
        alarm.set(at(9), &mut queue, Target::Host(HostId(0)));
        alarm.set(at(5), &mut queue, Target::Host(HostId(0)));
        alarm.set(at(7), &mut queue, Target::Host(HostId(0)));
        assert_eq!(queue.pop().map(|(time, _)| time), Some(at(5)));
        assert!(alarm.ring(at(5)));
        assert_eq!(queue.pop().map(|(time, _)| time), Some(at(9)));
        assert!(!alarm.ring(at(9)));
        assert_eq!(queue.next_time(), None);
    }
}
