//! Which pictures a picture refers to, from its reference picture set.

use std::collections::VecDeque;

use super::picture::{Coding, Order, Picture, Role};
use crate::annexb::{DisplayOrder, Kind, Placed};

/// The reference pictures decoded lately, as a decoder would hold them.
#[derive(Default)]
pub(super) struct References {
    /// The latest last, at most [`HELD`].
    held: VecDeque<Reference>,
    sequence: u64,
    /// The picture order count of the latest picture from which others are told (H.265, 8.3.1).
    anchor: i64,
}

#[derive(Clone, Copy)]
struct Reference {
    index: u64,
    /// Its place in display order, if known.
    count: Option<i64>,
}

/// A decoded picture buffer holds at most 16 pictures (H.265, A.4.2).
const HELD: usize = 16;

impl References {
    /// Finds the dependencies of the access unit `index`, the next in decoding order, and remembers it if others may refer to it.
    pub(super) fn place(&mut self, index: u64, picture: Option<&Picture>) -> Placed {
        let Some(picture) = picture else {
            let display = DisplayOrder { sequence: self.sequence, count: self.anchor };
            return Placed { kind: Kind::Unknown, dependencies: self.last(), idr: false, field: false, display };
        };
        if picture.role == Role::Fresh {
            self.sequence += 1;
            self.held.clear();
            self.anchor = 0;
        }
        let random_access = picture.role != Role::Trailing;
        let count = picture.order.map(|order| self.display_count(order));
        let intra = random_access || picture.coding == Coding::I;
        let dependencies = if intra { Vec::new() } else { self.needs(picture, count) };
        let kind = match (intra, picture.reference) {
            (true, _) => Kind::I,
            (false, true) => Kind::Reference,
            (false, false) => Kind::Disposable,
        };
        if picture.reference {
            if self.held.len() == HELD {
                self.held.pop_front();
            }
            self.held.push_back(Reference { index, count });
        }
        if picture.anchor {
            self.anchor = count.unwrap_or(self.anchor);
        }
        let display = DisplayOrder { sequence: self.sequence, count: count.unwrap_or(self.anchor) };
        Placed { kind, dependencies, idr: random_access, field: false, display }
    }

    /// The access unit `part` goes on in `index`.
    pub(super) fn goes_on(&mut self, part: u64, index: u64) {
        if let Some(held) = self.held.back_mut().filter(|held| held.index == part) {
            held.index = index;
        }
    }

    fn last(&self) -> Vec<u64> {
        self.held.back().map(|reference| reference.index).into_iter().collect()
    }

    /// Of the pictures it may refer to: the latest decoded for a P picture, the nearest on either side for a B picture.
    fn needs(&self, picture: &Picture, count: Option<i64>) -> Vec<u64> {
        let (Some(set), Some(count)) = (&picture.set, count) else { return self.last() };
        let used: Vec<i64> = set.used().map(|delta| count + delta).collect();
        let known = || {
            let held = self.held.iter().filter_map(|reference| Some((reference.count?, reference.index)));
            held.filter(|(count, _)| used.contains(count))
        };
        let found: Vec<u64> = match picture.coding {
            Coding::B => {
                let before = known().filter(|&(other, _)| other < count).max();
                let after = known().filter(|&(other, _)| other > count).min();
                before.into_iter().chain(after).map(|(_, index)| index).collect()
            }
            Coding::I | Coding::P => known().map(|(_, index)| index).next_back().into_iter().collect(),
        };
        // A set of which nothing is there (long-term pictures, or a stream with gaps) tells nothing.
        if found.is_empty() { self.last() } else { found }
    }

    /// The picture order count, from its low bits and the one of the latest anchor (H.265, 8.3.1).
    fn display_count(&self, Order { value, modulus }: Order) -> i64 {
        let low = self.anchor.rem_euclid(modulus);
        let high = self.anchor - low;
        if value < low && low - value >= modulus / 2 {
            high + modulus + value
        } else if value > low && value - low > modulus / 2 {
            high - modulus + value
        } else {
            high + value
        }
    }
}
