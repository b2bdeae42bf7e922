//! A map of blocks that is fast, because nobody else chooses their ids.

use rustc_hash::FxHashMap;

use crate::block::BlockId;

/// Blocks of this end by their ids. These are counted up here, so that no one can make them collide.
pub(crate) type ById<V> = FxHashMap<BlockId, V>;
