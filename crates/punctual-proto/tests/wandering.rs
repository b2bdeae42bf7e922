//! Peers that do anything at all with their paths: what the fuzz target `multipath` does, with fixed seeds.

mod common;

/// Numbers that depend on the seed only (splitmix64).
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_server_outlives_them() {
    for seed in 0..120 {
        common::wanderer::run(&bytes(seed, 40 + 2 * seed as usize));
    }
}

/// Only with steps after which a session goes on: no bytes that are no frames.
#[test]
fn a_server_puts_up_with_those_that_keep_to_the_protocol() {
    const STEPS: [u8; 10] = [0, 1, 2, 4, 5, 7, 9, 13, 14, 15];
    for seed in 0..25 {
        let mut steps = bytes(seed, 300);
        steps.iter_mut().step_by(2).for_each(|step| *step = *step & !15 | STEPS[usize::from(*step) % STEPS.len()]);
        common::wanderer::run(&steps);
    }
}
