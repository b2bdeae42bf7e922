//! The blocks of one source by its own clock, before they are put among those of the others.

use std::time::Duration;

use super::{
    error::Problem,
    files::Files,
    random::Random,
    source::{MAX_BLOCK, Source},
};

/// Blocks that a run may have. A planned block takes some 64 bytes, and its record more.
pub(super) const MAX_BLOCKS: usize = 5_000_000;

/// A block of one source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    /// Since the source began, silences not counted.
    pub(super) at: Duration,
    pub(super) size: u32,
    pub(super) deadline: Option<Duration>,
    pub(super) priority: u8,
    pub(super) ordered: bool,
    /// Index into [`Drafts::parts`].
    pub(super) part: usize,
    /// Blocks of this source, before this one, that it refers to.
    pub(super) references: Vec<u32>,
}

/// The blocks of one source, in order of time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drafts {
    /// The sources it is made of, by the names a file has for them; mostly one without a name.
    pub(super) parts: Vec<Option<String>>,
    pub(super) blocks: Vec<Draft>,
}

impl Drafts {
    pub(super) fn new() -> Self {
        Self { parts: vec![None], blocks: Vec::new() }
    }

    /// Another block, the last so far.
    pub(super) fn push(&mut self, block: Draft) -> Result<(), Problem> {
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(Problem::TooMany { what: "blocks", most: MAX_BLOCKS });
        }
        self.blocks.push(block);
        Ok(())
    }
}

/// What blocks are made of.
pub(super) struct Making<'a> {
    pub(super) source: &'a Source,
    /// Blocks at this time of the source's clock or later are not needed.
    pub(super) length: Duration,
    pub(super) random: &'a mut Random,
    pub(super) files: &'a Files,
}

impl Making<'_> {
    /// A block as the source says, of the only part there is.
    pub(super) fn block(&self, at: Duration, bytes: f64, priority: u8) -> Draft {
        Draft {
            at,
            size: block_size(bytes),
            deadline: self.source.deadline.map(|deadline| deadline.0),
            priority,
            ordered: self.source.ordered,
            part: 0,
            references: Vec::new(),
        }
    }
}

/// The size nearest to what was drawn that a block can have.
fn block_size(bytes: f64) -> u32 {
    // `as` takes what is no number for 0.
    (bytes.round() as u32).clamp(1, MAX_BLOCK)
}

/// The duration nearest to what was drawn, within a year or so.
pub(super) fn time(seconds: f64, least: Duration) -> Duration {
    const MOST: f64 = 3.0e7;
    // Also for what is no number.
    let seconds = if seconds > 0.0 { seconds.min(MOST) } else { 0.0 };
    Duration::from_secs_f64(seconds).max(least)
}
