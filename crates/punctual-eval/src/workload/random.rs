//! Where a workload's randomness comes from.
//!
//! Every copy of every source has generators of its own, so that another source beside it, or another copy of it, changes
//! nothing about it. They are PCG64 for the reasons `punctual-sim` gives, seeded by SipHash-2-4: both are fixed by their
//! papers, so that a seed means the same workload in years to come.

use rand_pcg::Pcg64;
use siphasher::sip128::SipHasher24;

/// The generator used throughout.
pub(super) type Random = Pcg64;

/// What the numbers are for; a source whose silences change keeps its sizes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Start = 1,
    Traffic = 2,
    OnOff = 3,
}

/// The generator of a copy of the `source`-th source of the run with this seed.
pub(super) fn generator(seed: u64, source: usize, copy: u16, purpose: Purpose) -> Random {
    let hasher = SipHasher24::new_with_keys(seed, source as u64);
    let word = |half: u8| {
        let [low, high] = copy.to_le_bytes();
        hasher.hash(&[purpose as u8, low, high, half]).as_u128()
    };
    Pcg64::new(word(0), word(1))
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, source, copy, purpose| generator(seed, source, copy, purpose).random::<u64>();
        let all = [
            draw(1, 0, 0, Purpose::Traffic),
            draw(2, 0, 0, Purpose::Traffic),
            draw(1, 1, 0, Purpose::Traffic),
            draw(1, 0, 1, Purpose::Traffic),
            draw(1, 0, 256, Purpose::Traffic),
            draw(1, 0, 0, Purpose::Start),
            draw(1, 0, 0, Purpose::OnOff),
        ];
        assert_eq!(all[0], draw(1, 0, 0, Purpose::Traffic));
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
