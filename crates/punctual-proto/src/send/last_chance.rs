//! Whether what leaves now is on its last chance, and so belongs into a group.

use std::time::{Duration, Instant};

use super::{groups::Groups, live::LiveBlock};
use crate::{
    base::{GRANULARITY, PathView, trusted},
    block::Redundancy,
};

/// A fragment is about this large when the number of a block's is estimated.
const FRAGMENT: f64 = 1_150.0;

/// A path is counted on for what is lost on another if it carries this part of it, at the other's whole rate. With all of it, paths of which little is known yet do not count, and
/// repair fragments take the room of what is lost to queues: 1,498 blocks of 2,000 are in time in `answers_leave_room_on_two_paths`, 1,825 with a quarter.
const LEAST_PART: f64 = 0.25;

/// A path that loses no more than this is not worth leaving room for what is to be done when it does.
const LOSSY: f64 = 0.02;

/// How a datagram with bytes of a block is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By being sent again, if at all.
    Plain,
    /// By its group.
    Group,
    /// By a second one.
    Duplicate,
}

/// What a datagram that leaves now on a certain path can hope for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance {
    pub(crate) now: Instant,
    pub(crate) path: PathView,
    /// How long its answer takes at most, were the path empty.
    answer: Duration,
    /// How long what is sent again takes by the fastest path that carries it.
    again: Duration,
}

impl Chance {
    pub(crate) fn new(now: Instant, path: &PathView, paths: &[PathView]) -> Self {
        // A path that carries much less than is lost, were the other full, is soon too late for the rest.
        let takes_part = |view: &&PathView| view.id == path.id || view.rate >= path.loss * path.rate * LEAST_PART;
        let again = trusted(paths).filter(takes_part).map(PathView::delay).min().unwrap_or_else(|| path.delay());
        Self { now, path: *path, answer: path.answer, again }
    }

    /// How it is protected, if it carries bytes of `block`.
    pub(crate) fn kind(&self, block: &LiveBlock, groups: &Groups) -> Kind {
        let due = block.due();
        let in_vain = due.is_some_and(|due| self.now + self.path.one_way_delay >= due);
        match block.redundancy {
            _ if in_vain => Kind::Plain,
            Redundancy::None | Redundancy::Retransmit => Kind::Plain,
            Redundancy::Fec | Redundancy::Both => Kind::Group,
            Redundancy::Duplicate => Kind::Duplicate,
            Redundancy::Auto => match due {
                Some(due) if self.is_last(due) && !groups.rests(self.now, self.path.id, block.priority) => Kind::Group,
                _ => Kind::Plain,
            },
        }
    }

    /// Whether it could not be lost, be found to be lost, and be sent again by `due`: once its answer is missing, what is sent again
    /// has to get there by the fastest path that carries it.
    ///
    /// The answer is that of an empty path. If it is only a queue that takes the chance, there is too much on its way
    /// already, and more of it would cost more than losses do.
    fn is_last(&self, due: Instant) -> bool {
        self.now + self.answer + self.again + GRANULARITY * 2 > due
    }

    /// Whether bytes of `block` that are lost now are likely to go again in a group, on their last chance.
    pub(crate) fn is_last_but_one(&self, block: &LiveBlock) -> bool {
        let then_last = |due| Self { now: self.now + self.answer, ..*self }.is_last(due);
        block.redundancy == Redundancy::Auto && self.path.loss >= LOSSY && block.due().is_some_and(then_last)
    }

    /// How likely it was that what the block has to send now would have to be sent: all but certain for new bytes, and for lost
    /// ones as likely as the loss of any of its fragments.
    pub(crate) fn reached(&self, block: &LiveBlock) -> f64 {
        match block.next_range() {
            Some((_, true)) => {
                let fragments = (block.size() as f64 / FRAGMENT).ceil();
                1.0 - (1.0 - self.path.loss.clamp(0.0, 0.99)).powf(fragments)
            }
            _ => 1.0,
        }
    }
}
