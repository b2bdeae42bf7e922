//! What was lost, then what has the priority bit, then first come, first served.

use super::sorted::Sorted;

/// The priority FIFO of the CWR paper (III-C): bytes that are sent again go before all others, whatever their priority; then those with the
/// priority bit; among equals first come, first served. A block has the bit if it is more important than one of which nothing was said
/// (128). What is past its deadline is dropped; the paper has no deadlines.
pub(super) fn new() -> Sorted<(bool, bool)> {
    Sorted::new("priority-fifo", |block| (!block.again, block.priority >= 128))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            BlockScheduler, BlockView,
            tests::{block, drain},
        },
        *,
    };

    #[test]
    fn lost_then_marked_then_in_turn() {
        let mut fifo = new();
        for (id, priority, again) in [(0, 128, false), (1, 0, false), (2, 7, false), (3, 255, true), (4, 0, false)] {
            fifo.insert(&BlockView { priority, again, ..block(id) });
        }
        assert_eq!(drain(&mut fifo), [3, 1, 2, 4, 0]);
    }

    #[test]
    fn a_loss_brings_a_block_to_the_front_and_no_longer_than_that() {
        let mut fifo = new();
        (0..3).for_each(|id| fifo.insert(&block(id)));
        fifo.insert(&BlockView { again: true, ..block(2) });
        fifo.insert(&BlockView { again: true, ..block(1) });
        fifo.insert(&BlockView { again: false, ..block(1) });
        assert_eq!(drain(&mut fifo), [2, 0, 1]);
    }
}
