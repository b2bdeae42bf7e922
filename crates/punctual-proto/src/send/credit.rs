//! How many blocks the peer has room for.

/// What the peer lets us open, and what we have opened; totals since the session began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Credit {
    pub(super) granted_bytes: u64,
    pub(super) granted_blocks: u64,
    opened_bytes: u64,
    opened_blocks: u64,
}

impl Credit {
    pub(super) fn allows(&self, size: u64) -> bool {
        self.opened_bytes.saturating_add(size) <= self.granted_bytes && self.opened_blocks < self.granted_blocks
    }

    pub(super) fn open(&mut self, size: u64) {
        self.opened_bytes += size;
        self.opened_blocks += 1;
    }
}
