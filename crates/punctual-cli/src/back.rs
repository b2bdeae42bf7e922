//! What goes the other way in a session, from the receiver to the sender: its figures at both ends.

use serde::Serialize;

/// Of the blocks that the receiver sends back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BackFigures {
    pub(crate) blocks: u64,
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    /// Of those delivered.
    pub(crate) bytes: u64,
    /// Whether the sender has said that its program has taken all that was delivered. Null before the end, at the sender, and if that does not speak Punctual.
    pub(crate) confirmed: Option<bool>,
    /// Blocks that this session has not delivered, and that are kept for the next sender. They are not among the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<u64>,
    /// Of those delivered, the blocks that are not written, at a sender whose output does not take them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unwritten: Option<u64>,
    /// Whether the receiver has said that there is no more, in each of the sessions. If not, blocks may be missing of which nothing is known here. Null before that, and at
    /// the receiver.
    pub(crate) complete: Option<bool>,
}

impl BackFigures {
    /// With the blocks that the receiver has dropped, of which its peer's tally knows nothing.
    pub(crate) fn with_dropped(mut self, dropped: u64) -> Self {
        self.blocks += dropped;
        self.dropped += dropped;
        self
    }

    /// Whether every block was delivered on time, was taken, and is known of.
    pub(crate) fn is_whole(&self) -> bool {
        self.late + self.dropped == 0 && self.unwritten.is_none() && !self.is_in_doubt() && self.complete != Some(false)
    }

    /// Whether blocks were delivered of which nobody has said that they were taken.
    fn is_in_doubt(&self) -> bool {
        self.confirmed == Some(false) && self.on_time + self.late > 0
    }

    /// The counts in words.
    pub(crate) fn counts(&self) -> String {
        let noun = if self.blocks == 1 { "block" } else { "blocks" };
        let Self { blocks, on_time, late, dropped, .. } = self;
        let doubt = if self.is_in_doubt() { ", not known to be taken by the sender's program" } else { "" };
        let more = if self.complete == Some(false) { ", and perhaps more that never came" } else { "" };
        let left = match self.left {
            None | Some(0) => String::new(),
            Some(left) => format!(", and {left} for the next sender"),
        };
        let unwritten = self.unwritten.map_or_else(String::new, |blocks| format!(", {blocks} not written"));
        format!("back {blocks} {noun}: {on_time} on time, {late} late, {dropped} dropped{unwritten}{doubt}{left}{more}")
    }

    /// In words, behind others.
    pub(crate) fn summary(&self) -> String {
        format!("; {}", self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said() {
        let all = BackFigures { blocks: 3, on_time: 3, confirmed: Some(true), ..BackFigures::default() };
        assert_eq!((all.is_whole(), all.counts().as_str()), (true, "back 3 blocks: 3 on time, 0 late, 0 dropped"));
        for (figures, words) in [
            (BackFigures { confirmed: Some(false), ..all }, ", not known to be taken by the sender's program"),
            (BackFigures { complete: Some(false), ..all }, ", and perhaps more that never came"),
            (BackFigures { unwritten: Some(1), ..all }, "0 dropped, 1 not written"),
            (all.with_dropped(1), "back 4 blocks: 3 on time, 0 late, 1 dropped"),
        ] {
            assert!(!figures.is_whole() && figures.summary().contains(words), "{}", figures.summary());
        }
        let kept = BackFigures { left: Some(2), ..all };
        assert!(kept.is_whole() && kept.counts().ends_with(", and 2 for the next sender"), "{}", kept.counts());
        let nothing = BackFigures { confirmed: Some(false), ..BackFigures::default() };
        assert!(nothing.is_whole(), "where nothing was delivered nothing is to be taken");
    }
}
