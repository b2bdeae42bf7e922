//! What the peer may open: bytes and blocks, as totals since the session began, and renewed as the application takes what has come.

use crate::{error::ProtocolError, limits::Limits};

/// Credit is renewed once this share of the window has been consumed: 1 / 4 (or less, if blocks may be as large as the window).
const STEP: u64 = 4;

/// Bytes and blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

/// The books of it.
#[derive(Debug, Default)]
pub(super) struct Credit {
    granted: Totals,
    opened: Totals,
    /// Blocks known by their fragments or an UPDATE only, each with the end of its furthest fragment.
    headless: Totals,
    consumed: Totals,
}

impl Credit {
    /// The peer is told what it may open.
    pub(super) fn begin(&mut self, limits: &Limits) {
        self.granted = Totals { bytes: limits.receive_bytes, blocks: limits.receive_blocks };
    }

    /// Whether it has been told so.
    pub(super) fn has_begun(&self) -> bool {
        self.granted != Totals::default()
    }

    /// The peer has opened a block of this size.
    pub(super) fn open(&mut self, size: u64) -> Result<(), ProtocolError> {
        self.opened.bytes = self.opened.bytes.saturating_add(size);
        self.opened.blocks += 1;
        self.check()
    }

    /// It speaks of a block that it has not opened, as far as is known yet.
    pub(super) fn hear_of_another(&mut self) -> Result<(), ProtocolError> {
        self.headless.blocks += 1;
        self.check()
    }

    /// Such a block turns out to be this much longer.
    pub(super) fn hear_of_more(&mut self, bytes: u64) -> Result<(), ProtocolError> {
        self.headless.bytes += bytes;
        self.check()
    }

    /// Of such a block more is known, or it is no more; its furthest fragment ended there.
    pub(super) fn settle(&mut self, end: u64) {
        self.headless.bytes -= end;
        self.headless.blocks -= 1;
    }

    /// There are no such blocks any more.
    pub(super) fn settle_all(&mut self) {
        self.headless = Totals::default();
    }

    /// Whether all the peer has opened, as far as it is known, had credit.
    fn check(&self) -> Result<(), ProtocolError> {
        let bytes = self.opened.bytes.saturating_add(self.headless.bytes);
        let blocks = self.opened.blocks + self.headless.blocks;
        if bytes > self.granted.bytes || blocks > self.granted.blocks { Err(ProtocolError::Credit) } else { Ok(()) }
    }

    /// A block of this size is no concern of ours any more. Returns what the peer is to be granted from now on, if that is worth a word.
    pub(super) fn consume(&mut self, size: u64, limits: &Limits) -> Option<Totals> {
        self.consumed.bytes += size;
        self.consumed.blocks += 1;
        let bytes = self.consumed.bytes.saturating_add(limits.receive_bytes);
        let blocks = self.consumed.blocks.saturating_add(limits.receive_blocks);
        // Never less than the largest block needs, if there is that much: a sender might wait for it for ever.
        let left = self.granted.bytes.saturating_sub(self.opened.bytes);
        let is_worth_a_word = bytes - self.granted.bytes >= limits.receive_bytes / STEP
            || left < limits.max_block_size
            || blocks - self.granted.blocks >= limits.receive_blocks.div_ceil(STEP);
        is_worth_a_word.then(|| {
            self.granted = Totals { bytes, blocks };
            self.granted
        })
    }

    /// Bytes that the peer has been granted in all.
    #[cfg(test)]
    pub(super) fn granted_bytes(&self) -> u64 {
        self.granted.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(limits: &Limits) -> Credit {
        let mut credit = Credit::default();
        credit.begin(limits);
        credit
    }

    #[test]
    fn blocks_that_were_never_opened_need_credit_as_well() {
        let limits = Limits { receive_bytes: 1_000, receive_blocks: 2, ..Limits::default() };
        let mut credit = credit(&limits);
        credit.open(400).unwrap();
        credit.hear_of_another().unwrap();
        credit.hear_of_more(600).unwrap();
        assert_eq!(credit.hear_of_more(1), Err(ProtocolError::Credit), "bytes");
        credit.settle(601);
        credit.open(600).unwrap();
        assert_eq!(credit.hear_of_another(), Err(ProtocolError::Credit), "blocks");
    }

    #[test]
    fn it_is_renewed_by_quarters() {
        let limits = Limits { max_block_size: 10, receive_bytes: 1_000, receive_blocks: 1_000, ..Limits::default() };
        let mut credit = credit(&limits);
        for taken in 1..=25 {
            credit.open(10).unwrap();
            let renewed = credit.consume(10, &limits);
            assert_eq!(renewed, (taken == 25).then_some(Totals { bytes: 1_250, blocks: 1_025 }), "{taken}");
        }
    }
}
