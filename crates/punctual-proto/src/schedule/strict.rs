//! Strict priority.

use super::sorted::Sorted;

/// The most important block; within a priority, first come, first served.
///
/// The less important starve while there is anything more important, whatever their deadlines.
pub(super) fn new() -> Sorted<u8> {
    Sorted::new("strict", |block| block.priority)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{
            BlockScheduler, BlockView,
            tests::{block, drain, views},
        },
        *,
    };

    #[test]
    fn priority_then_age() {
        let mut strict = new();
        for (id, priority) in [(0, 7), (1, 0), (2, 7), (3, 255), (4, 0)] {
            strict.insert(&BlockView { priority, ..block(id) });
        }
        strict.insert(&BlockView { priority: 9, ..block(1) });
        assert_eq!(drain(&mut strict), [4, 0, 2, 1, 3]);
    }

    proptest! {
        #[test]
        fn the_order_is_a_sort(mut views in views()) {
            let mut strict = new();
            views.iter().for_each(|view| strict.insert(view));
            views.sort_by_key(|view| (view.priority, view.id));
            prop_assert_eq!(drain(&mut strict), views.iter().map(|view| view.id.0).collect::<Vec<_>>());
        }
    }
}
