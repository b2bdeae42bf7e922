//! A binary heap whose entries can be removed and re-keyed.

use crate::block::BlockId;

/// Where an entry that is in no heap would be.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Smallest key first, ties by id; each entry belongs to a slot of the owner's.
///
/// The position of each slot's entry is kept outside, in a `Vec` indexed by slot, because several heaps
/// can share one as long as no slot is in two of them. The heap allocates only to grow.
#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
}

/// A key, and what it is the key of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Entry {
    /// Never NaN.
    pub(super) key: f64,
    pub(super) id: BlockId,
    pub(super) slot: u32,
}

impl Entry {
    fn precedes(&self, other: &Self) -> bool {
        self.key < other.key || (self.key == other.key && self.id < other.id)
    }
}

impl Heap {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Entry> {
        self.entries.first()
    }

    /// The entry at `index` of the tree; its children are at `2 * index + 1` and `2 * index + 2`.
    pub(super) fn get(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)
    }

    /// Adds an entry, or re-keys the one its slot has in this heap.
    pub(super) fn set(&mut self, entry: Entry, positions: &mut [u32]) {
        let mut index = positions[entry.slot as usize] as usize;
        if positions[entry.slot as usize] == NOWHERE {
            index = self.entries.len();
            self.entries.push(entry);
        }
        self.entries[index] = entry;
        self.settle(index, positions);
    }

    /// Takes out the entry of a slot that is in this heap.
    pub(super) fn remove(&mut self, slot: u32, positions: &mut [u32]) {
        let index = positions[slot as usize] as usize;
        self.entries.swap_remove(index);
        positions[slot as usize] = NOWHERE;
        if index < self.entries.len() {
            self.settle(index, positions);
        }
    }

    /// Gives back the room of a heap that was once much larger.
    pub(super) fn shrink_to(&mut self, entries: usize) {
        self.entries.shrink_to(entries);
    }

    /// Moves the entry at `index` up or down to where it belongs.
    fn settle(&mut self, mut index: usize, positions: &mut [u32]) {
        let entry = self.entries[index];
        while index > 0 {
            let parent = (index - 1) / 2;
            if !entry.precedes(&self.entries[parent]) {
                break;
            }
            self.put(index, self.entries[parent], positions);
            index = parent;
        }
        loop {
            let left = 2 * index + 1;
            let Some(mut child) = self.entries.get(left) else { break };
            let mut at = left;
            if let Some(right) = self.entries.get(left + 1)
                && right.precedes(child)
            {
                (child, at) = (right, left + 1);
            }
            if !child.precedes(&entry) {
                break;
            }
            self.put(index, *child, positions);
            index = at;
        }
        self.put(index, entry, positions);
    }

    fn put(&mut self, index: usize, entry: Entry, positions: &mut [u32]) {
        self.entries[index] = entry;
        positions[entry.slot as usize] = index as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_smallest(steps in prop::collection::vec((0u32..20, prop::option::of(0u8..10)), 1..200)) {
            let mut heap = Heap::default();
            let mut positions = vec![NOWHERE; 20];
            let mut model = [None; 20];
            for (slot, key) in steps {
                model[slot as usize] = key;
                match key {
                    Some(key) => heap.set(Entry { key: key.into(), id: BlockId(slot.into()), slot }, &mut positions),
                    None if positions[slot as usize] != NOWHERE => heap.remove(slot, &mut positions),
                    None => {}
                }
                let expected = model.iter().zip(0u32..).filter_map(|(key, slot)| Some(((*key)?, slot))).min();
                prop_assert_eq!(heap.first().map(|entry| (entry.key as u8, entry.slot)), expected);
                prop_assert_eq!(heap.is_empty(), expected.is_none());
            }
        }
    }
}
