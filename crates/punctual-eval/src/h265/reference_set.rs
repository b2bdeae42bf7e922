//! Short-term reference picture sets: which pictures a picture may refer to, by their distance in display order (H.265, 7.3.7 and 7.4.8).

use super::bits::Bits;

/// The pictures a decoder keeps for a picture and those after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReferenceSet {
    /// Shown before the picture, the nearest first.
    before: Vec<Entry>,
    /// Shown after it, the nearest first.
    after: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// Its picture order count less the picture's own; not 0.
    delta: i64,
    /// Whether the picture itself may refer to it; if not, only later ones do.
    used: bool,
}

/// A decoded picture buffer holds at most 16 pictures (H.265, A.4.2).
const MAX_PICTURES: usize = 16;
/// Distances are of 16 bits (H.265, 7.4.8).
const MAX_DELTA: u32 = (1 << 15) - 1;

impl ReferenceSet {
    /// Reads the set that is to be number `sets.len()`. `in_slice` if it stands in a slice header, where it may lean on any of `sets`; in a
    /// parameter set it can lean on the one before it alone.
    pub(super) fn parse(bits: &mut Bits<'_>, sets: &[Self], in_slice: bool) -> Option<Self> {
        if !sets.is_empty() && bits.flag()? {
            let back = if in_slice { bits.golomb(63)? as usize + 1 } else { 1 };
            let model = sets.get(sets.len().checked_sub(back)?)?;
            return model.derive(bits);
        }
        let (before, after) = (bits.golomb(MAX_PICTURES as u32)?, bits.golomb(MAX_PICTURES as u32)?);
        let mut entries = |count: u32, sign: i64| {
            let mut delta = 0;
            (0..count)
                .map(|_| {
                    delta += sign * i64::from(bits.golomb(MAX_DELTA)? + 1);
                    Some(Entry { delta, used: bits.flag()? })
                })
                .collect::<Option<Vec<_>>>()
        };
        Some(Self { before: entries(before, -1)?, after: entries(after, 1)? })
    }

    /// Reads a set that is this one, moved, with some left out (equations 7-61 and 7-62).
    fn derive(&self, bits: &mut Bits<'_>) -> Option<Self> {
        let negative = bits.flag()?;
        let distance = i64::from(bits.golomb(MAX_DELTA)?) + 1;
        let shift = if negative { -distance } else { distance };
        // One word for each entry, in the order of the set, and one for the picture that the set was for.
        let words = (0..=self.before.len() + self.after.len())
            .map(|_| {
                let used = bits.flag()?;
                let kept = used || bits.flag()?;
                Some((kept, used))
            })
            .collect::<Option<Vec<_>>>()?;
        let own = (0, words.last().copied()?);
        let entries = self.before.iter().chain(&self.after).map(|entry| entry.delta);
        let moved = entries.zip(words).chain([own]).filter(|(_, (kept, _))| *kept);
        let moved: Vec<Entry> = moved.map(|(delta, (_, used))| Entry { delta: delta + shift, used }).collect();
        let side = |wanted: fn(i64) -> bool| {
            let mut side: Vec<Entry> = moved.iter().copied().filter(|entry| wanted(entry.delta)).collect();
            // The equations walk the sets such that the nearest comes first.
            side.sort_by_key(|entry| entry.delta.abs());
            side
        };
        let (before, after) = (side(|delta| delta < 0), side(|delta| delta > 0));
        (before.len() <= MAX_PICTURES && after.len() <= MAX_PICTURES).then_some(Self { before, after })
    }

    /// Distances of the pictures that the picture itself may refer to.
    pub(super) fn used(&self) -> impl Iterator<Item = i64> {
        self.before.iter().chain(&self.after).filter(|entry| entry.used).map(|entry| entry.delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h265::tests::Writer;

    fn set(before: &[(i64, bool)], after: &[(i64, bool)]) -> ReferenceSet {
        let entries = |list: &[(i64, bool)]| list.iter().map(|&(delta, used)| Entry { delta, used }).collect();
        ReferenceSet { before: entries(before), after: entries(after) }
    }

    #[test]
    fn a_set_is_read_as_distances() {
        // Two before, at -1 and -4 (the latter for later ones only), one after, at +2.
        let nal = Writer::nal(1).ue(2).ue(1).ue(0).bit(true).ue(2).bit(false).ue(1).bit(true).end();
        let read = ReferenceSet::parse(&mut Bits::of(&nal).unwrap(), &[], false).unwrap();
        assert_eq!(read, set(&[(-1, true), (-4, false)], &[(2, true)]));
        assert_eq!(read.used().collect::<Vec<_>>(), [-1, 2]);
    }

    #[test]
    fn a_set_may_lean_on_another() {
        let model = set(&[(-1, true), (-4, true)], &[(2, true)]);
        // Moved by -2: -3, -6, 0 (which is nothing) and the picture itself at -2. The second is dropped, the first kept for later.
        let words = Writer::nal(1).bit(true).bit(true).ue(1);
        let nal = words.bit(false).bit(true).bit(false).bit(false).bit(true).bit(true).end();
        let read = ReferenceSet::parse(&mut Bits::of(&nal).unwrap(), &[model], false).unwrap();
        assert_eq!(read, set(&[(-2, true), (-3, false)], &[]));
    }

    #[test]
    fn absurd_sets_are_none() {
        let nal = Writer::nal(1).ue(17).ue(0).end();
        assert_eq!(ReferenceSet::parse(&mut Bits::of(&nal).unwrap(), &[], false), None);
        // In a slice: leans on a set that is not there.
        let nal = Writer::nal(1).bit(true).ue(5).end();
        assert_eq!(ReferenceSet::parse(&mut Bits::of(&nal).unwrap(), &[ReferenceSet::default()], true), None);
    }
}
