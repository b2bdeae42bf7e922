//! Earliest deadline first.

use std::time::Instant;

use super::{BlockView, sorted::Sorted};

/// The block that is due first; those without a deadline come last. Ties by priority, then in order of hand-over.
///
/// A block that cannot make it any more keeps its place until its deadline has passed, which is why EDF, the best order
/// while all deadlines can be met, does badly when they cannot.
pub(super) fn new() -> Sorted<impl Ord + Copy> {
    Sorted::new("edf", key)
}

fn key(block: &BlockView) -> (bool, Option<Instant>, u8) {
    let due = block.due();
    (due.is_none(), due, block.priority)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{
        super::{
            BlockScheduler,
            tests::{block, drain, start, views},
        },
        *,
    };

    #[test]
    fn the_earliest_due_goes_first() {
        let due = |begin, deadline| BlockView {
            begin: start() + Duration::from_millis(begin),
            deadline: Some(Duration::from_millis(deadline)),
            ..block(begin)
        };
        let mut edf = new();
        for view in [due(0, 300), due(1, 100), due(2, 299), BlockView { deadline: None, ..block(3) }, due(4, 50)] {
            edf.insert(&view);
        }
        assert_eq!(drain(&mut edf), [4, 1, 0, 2, 3], "300 and 301 ms");
    }

    #[test]
    fn ties_go_by_priority_and_then_by_age() {
        let mut edf = new();
        for (id, priority) in [(0, 2), (1, 1), (2, 1)] {
            edf.insert(&BlockView { priority, ..block(id) });
        }
        edf.insert(&BlockView { priority: 0, ..block(2) });
        assert_eq!(drain(&mut edf), [2, 1, 0]);
    }

    proptest! {
        #[test]
        fn the_order_is_a_sort(mut views in views()) {
            let mut edf = new();
            views.iter().for_each(|view| edf.insert(view));
            views.sort_by_key(|view| (view.due().is_none(), view.due(), view.priority, view.id));
            prop_assert_eq!(drain(&mut edf), views.iter().map(|view| view.id.0).collect::<Vec<_>>());
        }
    }
}
