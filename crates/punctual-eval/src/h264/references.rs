//! Which pictures a picture refers to, from the order of decoding and of display.

use std::collections::VecDeque;

use super::picture::{Coding, Order, Picture};
use crate::annexb::{DisplayOrder, Kind, Placed};

/// The reference pictures decoded lately, as a decoder would hold them.
#[derive(Default)]
pub(super) struct References {
    /// The latest last, at most [`HELD`].
    held: VecDeque<Reference>,
    sequence: u64,
    /// Picture order counts within a sequence: the state of H.264, 8.2.1.1.
    previous: i64,
    decoded: i64,
}

#[derive(Clone, Copy)]
struct Reference {
    index: u64,
    /// Its place in display order, if known.
    count: Option<i64>,
}

/// A decoded picture buffer holds at most 16 frames.
const HELD: usize = 16;

impl References {
    /// Finds the dependencies of the access unit `index`, the next in decoding order, and remembers it if others may refer to it.
    pub(super) fn place(&mut self, index: u64, picture: Option<&Picture>) -> Placed {
        self.decoded += 1;
        let Some(picture) = picture else {
            let display = DisplayOrder { sequence: self.sequence, count: self.previous };
            let (idr, field) = (false, false);
            return Placed { kind: Kind::Unknown, dependencies: self.last(1), idr, field, display };
        };
        if picture.is_idr() {
            self.sequence += 1;
            self.held.clear();
            self.previous = 0;
        }
        let count = self.display_count(picture);
        let dependencies = match picture.coding {
            Coding::I => Vec::new(),
            Coding::P => self.last(1),
            Coding::B => self.neighbours(count),
        };
        let kind = match picture.coding {
            Coding::I => Kind::I,
            _ if picture.reference => Kind::Reference,
            _ => Kind::Disposable,
        };
        if picture.reference {
            if self.held.len() == HELD {
                self.held.pop_front();
            }
            self.held.push_back(Reference { index, count });
            self.previous = count.unwrap_or(self.previous);
        }
        let display = DisplayOrder { sequence: self.sequence, count: count.unwrap_or(self.decoded) };
        Placed { kind, dependencies, idr: picture.is_idr(), field: picture.is_field(), display }
    }

    /// The access unit `part` goes on in `index`.
    pub(super) fn goes_on(&mut self, part: u64, index: u64) {
        if let Some(held) = self.held.back_mut().filter(|held| held.index == part) {
            held.index = index;
        }
    }

    fn last(&self, n: usize) -> Vec<u64> {
        self.held.iter().rev().take(n).map(|reference| reference.index).collect()
    }

    /// The nearest reference pictures on either side in display order; the last two decoded if that is unknown.
    fn neighbours(&self, count: Option<i64>) -> Vec<u64> {
        let Some(count) = count else { return self.last(2) };
        let counted = || self.held.iter().filter_map(|reference| Some((reference.count?, reference.index)));
        let before = counted().filter(|&(other, _)| other <= count).max();
        let after = counted().filter(|&(other, _)| other > count).min();
        before.into_iter().chain(after).map(|(_, index)| index).collect()
    }

    /// The picture order count, from its low bits and the previous reference picture's (H.264, 8.2.1.1).
    fn display_count(&self, picture: &Picture) -> Option<i64> {
        match picture.order {
            Order::LowBits { value, modulus } => {
                let high = self.previous - self.previous.rem_euclid(modulus);
                let low = self.previous.rem_euclid(modulus);
                Some(if value < low && low - value >= modulus / 2 {
                    high + modulus + value
                } else if value > low && value - low > modulus / 2 {
                    high - modulus + value
                } else {
                    high + value
                })
            }
            Order::Decoding => Some(self.decoded),
            Order::Unknown => None,
        }
    }
}
