//! Where randomness comes from.
//!
//! Every link has a generator of its own, seeded from the world's seed and the link's index, so that what happens on
//! one link does not move the dice of another. The generator is PCG64 (`rand_pcg`): its output is fixed by its paper
//! and does not change between versions of the crate, as that of `rand`'s own `StdRng` may; it is small, fast, and
//! nothing here needs to withstand an adversary.

use rand_pcg::Pcg64;

/// The generator used throughout.
pub(crate) type Random = Pcg64;

/// What a seed is for; keeps the streams of links and hosts with the same index apart.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Link = 1,
    Host = 2,
    Cross = 3,
}

/// The generator of the `index`-th thing of its kind in the world with this seed.
pub(crate) fn generator(world_seed: u64, purpose: Purpose, index: u64) -> Random {
    let [a, b, c, d] = words(world_seed, purpose, index);
    Pcg64::new(u128::from(a) << 64 | u128::from(b), u128::from(c) << 64 | u128::from(d))
}

/// Thirty-two bytes for the `index`-th thing of its kind.
pub(crate) fn seed_bytes(world_seed: u64, purpose: Purpose, index: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words(world_seed, purpose, index)) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words(world_seed: u64, purpose: Purpose, index: u64) -> [u64; 4] {
    let mut state = mix(mix(mix(world_seed).wrapping_add(purpose as u64)).wrapping_add(index));
    [(); 4].map(|()| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(state)
    })
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, purpose, index| generator(seed, purpose, index).random::<u64>();
        assert_eq!(draw(1, Purpose::Link, 0), draw(1, Purpose::Link, 0));
        let all = [
            draw(1, Purpose::Link, 0),
            draw(1, Purpose::Link, 1),
            draw(1, Purpose::Host, 0),
            draw(2, Purpose::Link, 0),
            draw(0, Purpose::Link, 1),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
