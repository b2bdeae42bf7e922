//! A set of offsets that fills up from the front.

use std::{iter, ops::Range};

use rangemap::RangeSet;

/// Offsets of a block's bytes. They come nearly in order, so that most of the time all are one range, which needs no search.
#[derive(Debug, Default)]
pub(super) struct Filling {
    /// All below are in the set.
    head: u64,
    /// Those beyond; they never touch the head.
    islands: RangeSet<u64>,
}

impl Filling {
    /// Adds `range`, which is not empty.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.start > self.head {
            self.islands.insert(range);
            return;
        }
        self.head = self.head.max(range.end);
        while let Some(reached) = self.islands.first().filter(|island| island.start <= self.head).cloned() {
            self.head = self.head.max(reached.end);
            self.islands.remove(reached);
        }
    }

    /// Takes `range`, which is not empty, out.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        self.islands.remove(range.clone());
        if range.start < self.head {
            if range.end < self.head {
                self.islands.insert(range.end..self.head);
            }
            self.head = range.start;
        }
    }

    /// The parts of `range`, which is not empty, that are not in the set.
    pub(super) fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (mut at, end) = (range.start.max(self.head), range.end);
        let islands = self.islands.overlapping(range).map(|island| (island.start, island.end));
        islands.chain(iter::once((end, end))).filter_map(move |(start, next)| {
            let gap = at..start;
            at = at.max(next);
            (!gap.is_empty()).then_some(gap)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_ranges(ranges in prop::collection::vec((0u64..200, 1u64..60), 0..60)) {
            let (mut filling, mut set) = (Filling::default(), RangeSet::new());
            for (start, len) in ranges {
                let range = start..start + len;
                let expected: Vec<_> = set.gaps(&range).collect();
                prop_assert_eq!(filling.gaps(range.clone()).collect::<Vec<_>>(), expected);
                // What is asked and what is added differ.
                let range = start / 2..start / 2 + len;
                filling.insert(range.clone());
                set.insert(range);
                if start % 7 == 0 {
                    filling.remove(start..start + 1);
                    set.remove(start..start + 1);
                }
            }
        }
    }
}
