//! Fragments to bytes.
//!
//! Nothing here is sized by what a peer claims alone: the contiguous head of a block grows as bytes arrive, and what arrives
//! ahead of a gap waits as it came.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use crate::error::ProtocolError;

/// What holding a fragment costs besides its bytes (map node, reference to its packet), for accounting.
const ISLAND_OVERHEAD: u64 = 128;
/// What it costs where it keeps a packet alive: as much of that as is not its own, too.
const PINNED_OVERHEAD: u64 = ISLAND_OVERHEAD + LARGEST_PACKET - SMALL as u64;
/// The largest packet there is: what Ethernet carries. Only over loopback could there be others, and QUIC does not look for them.
const LARGEST_PACKET: u64 = 1_500;
/// Where a block's size is known, there is room for up to so many times what has arrived: the less is moved as it grows.
const FORESIGHT: usize = 8;
/// Fragments shorter than this are copied, so that they do not keep a whole packet alive.
const SMALL: usize = 1_024;

/// The bytes of one block, as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Everything up to the first gap.
    head: BytesMut,
    /// How long it will be, if that is known; else 0.
    expected: usize,
    /// What lies beyond it, by offset; never overlapping, never touching `head`.
    islands: BTreeMap<u64, Bytes>,
    island_bytes: u64,
    /// How many of them keep a packet alive.
    pinned: u64,
}

impl Reassembly {
    /// The block will be of `size` bytes.
    pub(crate) fn expect(&mut self, size: u64) {
        self.expected = usize::try_from(size).unwrap_or(0);
    }

    /// Takes a fragment in. Returns how many of its bytes were new.
    ///
    /// # Errors
    /// If it says something else than an earlier fragment did about the same bytes.
    pub(crate) fn insert(&mut self, offset: u64, data: Bytes) -> Result<u64, ProtocolError> {
        if offset == self.head.len() as u64 && self.islands.is_empty() {
            // In order, as nearly all of them.
            self.extend(&data);
            return Ok(data.len() as u64);
        }
        let before = self.received();
        let end = offset + data.len() as u64;
        let head = self.head.len() as u64;
        let known = usize::try_from(head.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        if known > 0 {
            let start = offset as usize;
            if self.head[start..start + known] != data[..known] {
                return Err(ProtocolError::FragmentConflict);
            }
        }
        let mut rest = data.slice(known..);
        let mut at = offset + known as u64;
        // Walk the islands that overlap, keeping only what falls between them.
        while !rest.is_empty() {
            if let Some((&start, island)) = self.islands.range(..=at).next_back()
                && start + (island.len() as u64) > at
            {
                let skip = (at - start) as usize;
                let overlap = (island.len() - skip).min(rest.len());
                if island[skip..skip + overlap] != rest[..overlap] {
                    return Err(ProtocolError::FragmentConflict);
                }
                rest = rest.slice(overlap..);
                at += overlap as u64;
                continue;
            }
            let gap_end = self.islands.range(at..end).next().map_or(end, |(&start, _)| start);
            let fresh = rest.split_to((gap_end - at) as usize);
            self.add(at, fresh);
            at = gap_end;
        }
        self.absorb();
        Ok(self.received() - before)
    }

    /// Bytes that have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.head.len() as u64 + self.island_bytes
    }

    /// Bytes of memory this takes, roughly.
    pub(crate) fn held(&self) -> u64 {
        let copied = self.islands.len() as u64 - self.pinned;
        self.received() + copied * ISLAND_OVERHEAD + self.pinned * PINNED_OVERHEAD
    }

    /// The end of the furthest byte that has arrived.
    pub(crate) fn end(&self) -> u64 {
        self.islands.last_key_value().map_or(self.head.len() as u64, |(&at, island)| at + island.len() as u64)
    }

    /// Whether the first `size` bytes are all here.
    pub(crate) fn is_complete(&self, size: u64) -> bool {
        self.head.len() as u64 == size
    }

    /// The contiguous head.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.head.freeze()
    }

    fn extend(&mut self, bytes: &[u8]) {
        let len = self.head.len() + bytes.len();
        if len > self.head.capacity() {
            let room = len.max(self.expected.min(len.saturating_mul(FORESIGHT)));
            self.head.reserve(room - self.head.len());
        }
        self.head.extend_from_slice(bytes);
    }

    fn add(&mut self, at: u64, fresh: Bytes) {
        if at == self.head.len() as u64 {
            self.extend(&fresh);
        } else {
            self.island_bytes += fresh.len() as u64;
            self.pinned += u64::from(is_pinned(&fresh));
            let own = if is_pinned(&fresh) { fresh } else { Bytes::copy_from_slice(&fresh) };
            self.islands.insert(at, own);
        }
    }

    /// Moves islands that the head has reached into it.
    fn absorb(&mut self) {
        while let Some(island) = self.islands.first_entry().filter(|island| *island.key() == self.head.len() as u64) {
            let bytes = island.remove();
            self.island_bytes -= bytes.len() as u64;
            self.pinned -= u64::from(is_pinned(&bytes));
            self.extend(&bytes);
        }
    }
}

/// Whether a fragment that waits stays where it is, in its packet.
fn is_pinned(fragment: &Bytes) -> bool {
    fragment.len() >= SMALL
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole() -> Bytes {
        (0..=255u8).cycle().take(2_000).collect::<Vec<_>>().into()
    }

    proptest! {
        #[test]
        fn any_order_any_overlap_gives_the_block(cuts in prop::collection::vec((0usize..2_000, 1usize..600), 0..60)) {
            let whole = whole();
            let mut r = Reassembly::default();
            let mut seen = vec![false; whole.len()];
            for (start, len) in cuts {
                let end = (start + len).min(whole.len());
                let new = seen[start..end].iter().filter(|&&s| !s).count() as u64;
                seen[start..end].fill(true);
                prop_assert_eq!(r.insert(start as u64, whole.slice(start..end)).unwrap(), new);
                prop_assert_eq!(r.received(), seen.iter().filter(|&&s| s).count() as u64);
            }
            prop_assert!(r.insert(0, whole.clone()).is_ok());
            prop_assert!(r.is_complete(2_000));
            prop_assert_eq!(r.into_bytes(), whole);
        }
    }

    #[test]
    fn a_claim_by_itself_takes_no_memory() {
        let mut r = Reassembly::default();
        r.expect(16 << 20);
        for at in (0..2_000).step_by(100) {
            r.insert(at as u64, whole().slice(at..at + 100)).unwrap();
            assert!(r.head.capacity() <= r.head.len() * FORESIGHT, "{} for {}", r.head.capacity(), r.head.len());
        }
    }

    #[test]
    fn contradictions_are_found_in_head_and_islands() {
        let mut r = Reassembly::default();
        r.insert(0, Bytes::from_static(b"abc")).unwrap();
        r.insert(10, Bytes::from_static(b"xyz")).unwrap();
        assert_eq!(r.insert(2, Bytes::from_static(b"Zd")), Err(ProtocolError::FragmentConflict));
        assert_eq!(r.insert(9, Bytes::from_static(b"-XYZ")), Err(ProtocolError::FragmentConflict));
        assert_eq!(r.insert(11, Bytes::from_static(b"yz-")), Ok(1));
        assert_eq!(r.end(), 14);
    }
}
