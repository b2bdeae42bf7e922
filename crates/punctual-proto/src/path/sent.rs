//! What left on a path, or in a session, by why it did.

use crate::base::FragmentKind;

/// Payload bytes by why they left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SentBytes {
    pub(crate) source: u64,
    pub(crate) resent: u64,
    pub(crate) copied: u64,
    pub(crate) repair: u64,
}

impl SentBytes {
    pub(crate) fn count(&mut self, kind: FragmentKind, bytes: u64) {
        *match kind {
            FragmentKind::Source => &mut self.source,
            FragmentKind::Resent => &mut self.resent,
            FragmentKind::Copy => &mut self.copied,
            FragmentKind::Repair => &mut self.repair,
        } += bytes;
    }
}
