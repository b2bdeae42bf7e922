//! A map of blocks that is fast, because nobody else chooses their ids.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::block::BlockId;

/// Blocks of this end by their ids. These are counted up here, so that no one can make them collide.
pub(crate) type ById<V> = HashMap<BlockId, V, BuildHasherDefault<IdHasher>>;

/// Spreads consecutive numbers (Knuth, The Art of Computer Programming, volume 3, section 6.4: by the golden ratio).
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
