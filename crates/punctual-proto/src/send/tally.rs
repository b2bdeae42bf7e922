//! What became of blocks, and of bytes that were lost, in figures.

/// Counters of ended blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) accepted: u64,
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    /// Bytes lost that came through: because their group was restored, because they were sent again, as a copy.
    pub(crate) restored_bytes: u64,
    pub(crate) resend_regained_bytes: u64,
    pub(crate) copy_regained_bytes: u64,
    /// Bytes lost that never did.
    pub(crate) never_regained_bytes: u64,
    /// Bytes of blocks that ended without having been of use, as far as they had been sent.
    pub(crate) wasted_bytes: u64,
}
