//! What was sent for the blocks of a session: its figures.

use punctual::SessionStats;
use serde::Serialize;

/// Bytes sent for blocks, over all paths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct SentFigures {
    /// For the first time.
    pub(crate) source_bytes: u64,
    /// Again, after a loss.
    pub(crate) resent_bytes: u64,
    /// As copies of what was in flight elsewhere.
    pub(crate) copied_bytes: u64,
    /// As repair fragments.
    pub(crate) repair_bytes: u64,
    /// Of blocks that were of no use in the end: dropped, or late.
    pub(crate) wasted_bytes: u64,
    /// Lost, and restored by repair fragments.
    pub(crate) restored_bytes: u64,
    /// Lost, and there when sent again.
    pub(crate) resend_regained_bytes: u64,
    /// Lost, and there as a copy.
    pub(crate) copy_regained_bytes: u64,
    /// Lost for good.
    pub(crate) never_regained_bytes: u64,
}

impl From<&SessionStats> for SentFigures {
    fn from(stats: &SessionStats) -> Self {
        Self {
            source_bytes: stats.source_bytes,
            resent_bytes: stats.resent_bytes,
            copied_bytes: stats.copied_bytes,
            repair_bytes: stats.repair_bytes,
            wasted_bytes: stats.wasted_bytes,
            restored_bytes: stats.restored_bytes,
            resend_regained_bytes: stats.resend_regained_bytes,
            copy_regained_bytes: stats.copy_regained_bytes,
            never_regained_bytes: stats.never_regained_bytes,
        }
    }
}

impl SentFigures {
    /// Both together.
    pub(crate) fn plus(&self, more: &Self) -> Self {
        Self {
            source_bytes: self.source_bytes + more.source_bytes,
            resent_bytes: self.resent_bytes + more.resent_bytes,
            copied_bytes: self.copied_bytes + more.copied_bytes,
            repair_bytes: self.repair_bytes + more.repair_bytes,
            wasted_bytes: self.wasted_bytes + more.wasted_bytes,
            restored_bytes: self.restored_bytes + more.restored_bytes,
            resend_regained_bytes: self.resend_regained_bytes + more.resend_regained_bytes,
            copy_regained_bytes: self.copy_regained_bytes + more.copy_regained_bytes,
            never_regained_bytes: self.never_regained_bytes + more.never_regained_bytes,
        }
    }

    /// What came since then.
    pub(crate) fn since(&self, then: Option<&Self>) -> Self {
        let Some(then) = then else { return *self };
        Self {
            source_bytes: self.source_bytes.saturating_sub(then.source_bytes),
            resent_bytes: self.resent_bytes.saturating_sub(then.resent_bytes),
            copied_bytes: self.copied_bytes.saturating_sub(then.copied_bytes),
            repair_bytes: self.repair_bytes.saturating_sub(then.repair_bytes),
            wasted_bytes: self.wasted_bytes.saturating_sub(then.wasted_bytes),
            restored_bytes: self.restored_bytes.saturating_sub(then.restored_bytes),
            resend_regained_bytes: self.resend_regained_bytes.saturating_sub(then.resend_regained_bytes),
            copy_regained_bytes: self.copy_regained_bytes.saturating_sub(then.copy_regained_bytes),
            never_regained_bytes: self.never_regained_bytes.saturating_sub(then.never_regained_bytes),
        }
    }

    /// Redundancy in words, if there was any: repair fragments and copies, what they restored, and what was sent for nothing.
    pub(crate) fn summary(&self) -> String {
        let megabytes = |bytes: u64, what: &str| match bytes {
            0 => String::new(),
            bytes => format!(", {:.2} MB {what}", bytes as f64 / 1e6),
        };
        let parts = [
            (self.resent_bytes, "sent again"),
            (self.copied_bytes, "of copies"),
            (self.repair_bytes, "of repair"),
            (self.restored_bytes, "restored"),
            (self.wasted_bytes, "wasted"),
        ];
        let text: String = parts.map(|(bytes, what)| megabytes(bytes, what)).concat();
        text.strip_prefix(", ").map_or_else(String::new, |text| format!("; {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Tally;

    #[test]
    fn redundancy_is_told_where_there_was_any() {
        let summary = |stats: &SessionStats| Tally::default().figures(Some(stats), &[], |_| unreachable!()).summary();
        let mut plain = SessionStats::default();
        plain.source_bytes = 1_000_000;
        assert!(summary(&plain).ends_with(" s"), "{}", summary(&plain));
        let mut helped = plain;
        (helped.repair_bytes, helped.restored_bytes) = (120_000, 50_000);
        assert!(summary(&helped).ends_with(" s; 0.12 MB of repair, 0.05 MB restored"), "{}", summary(&helped));
        let figures = Tally::default().figures(Some(&helped), &[], |_| unreachable!());
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!((&json["sent"]["repair_bytes"], &json["sent"]["wasted_bytes"]), (&120_000.into(), &0.into()));
    }
}
