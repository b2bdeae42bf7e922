//! What families of blocks are like: a first that depends on none, as an I frame, and those that depend on it over any number of steps.
//!
//! The next family of its kind begins where one has ended. So a member's place in its family tells how many are still to depend on it: as many as on
//! those at the same place in the families before.

use std::collections::BTreeMap;

use super::kin::Kind;

/// Members of a family whose places are told apart.
const PLACES: usize = 1024;
/// How much the latest family counts in what is usual.
const GAIN: f64 = 0.25;
/// Families of a kind whose members come in between each other do not end with the next. For so many families after that nothing is concluded.
const MIXED: u32 = 16;

/// What is known of the families of one kind, which is that of their first.
#[derive(Debug, Default)]
struct Pattern {
    /// The first of the latest family, and how many it has by now.
    latest: (u64, u32),
    /// How many followers the member at each place usually has.
    usual: Vec<f64>,
    /// Bytes of a member on average.
    size: f64,
    /// For how many families nothing is concluded.
    mixed: u32,
    /// Members of such families that are remembered.
    members: u32,
}

/// What is known of families.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<Kind, Pattern>);

/// What a member's family tells of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outlook {
    /// It will have so many followers in all.
    Usual(f64),
    /// It belongs to the latest of its kind, and none before has had so many members.
    Open,
    /// It will have no more than it has.
    Ended,
}

impl Families {
    /// `first` begins a family of this kind. Returns the first of the family that has ended by that, if it was one of several.
    pub(super) fn begin(&mut self, kind: Kind, first: u64) -> Option<u64> {
        let pattern = self.0.entry(kind).or_default();
        let (before, members) = std::mem::replace(&mut pattern.latest, (first, 1));
        if members > 1 {
            pattern.mixed = pattern.mixed.saturating_sub(1);
            return Some(before);
        }
        if members == 1 {
            self.learn(kind, 0, 0);
        }
        None
    }

    /// A block has come to the family of `first`, which is of this kind. Returns its place there, if that tells anything.
    pub(super) fn join(&mut self, kind: Kind, first: u64) -> Option<u32> {
        let pattern = self.0.get_mut(&kind)?;
        if pattern.latest.0 != first {
            pattern.mixed = MIXED;
            return None;
        }
        pattern.latest.1 += 1;
        Some(pattern.latest.1 - 1)
    }

    /// A member of a family that has ended had so many followers.
    pub(super) fn learn(&mut self, kind: Kind, place: u32, followers: u32) {
        let Some(pattern) = self.0.get_mut(&kind) else { return };
        let (place, followers) = (place as usize, f64::from(followers));
        let known = pattern.usual.len();
        match pattern.usual.get_mut(place) {
            Some(usual) => *usual += (followers - *usual) * GAIN,
            None if place == known && place < PLACES => pattern.usual.push(followers),
            None => {}
        }
    }

    /// The members of a family that has ended had so many bytes on average.
    pub(super) fn learn_size(&mut self, kind: Kind, size: f64) {
        let Some(pattern) = self.0.get_mut(&kind) else { return };
        pattern.size = if pattern.size == 0.0 { size } else { pattern.size + (size - pattern.size) * GAIN };
    }

    /// Bytes of a member of such families on average; 0 if there was none.
    pub(super) fn size(&self, kind: Kind) -> f64 {
        self.0.get(&kind).map_or(0.0, |pattern| pattern.size)
    }

    /// What is to be expected of the member at that place in the family of `first`, if anything is known.
    pub(super) fn outlook(&self, kind: Kind, first: u64, place: u32) -> Option<Outlook> {
        let pattern = self.0.get(&kind).filter(|pattern| pattern.mixed == 0)?;
        if pattern.latest.0 != first {
            return Some(Outlook::Ended);
        }
        Some(pattern.usual.get(place as usize).copied().map_or(Outlook::Open, Outlook::Usual))
    }

    /// A member of a family of this kind is remembered from now on.
    pub(super) fn remember(&mut self, kind: Kind) {
        self.0.entry(kind).or_default().members += 1;
    }

    /// A member of a family of this kind is not remembered any more; of a kind without any, nothing is.
    pub(super) fn forget(&mut self, kind: Kind) {
        let Some(pattern) = self.0.get_mut(&kind) else { return };
        pattern.members = pattern.members.saturating_sub(1);
        if pattern.members == 0 {
            self.0.remove(&kind);
        }
    }

    /// Of how many kinds anything is known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
