//! Messages: sizes and intervals as drawn.

use std::time::Duration;

use super::{
    draft::{Drafts, Making, time},
    error::Problem,
    source::{Messages, Priority},
};

/// Messages that would come closer together than this come so far apart.
const LEAST_INTERVAL: Duration = Duration::from_micros(1);

impl Messages {
    pub(super) fn draft(&self, making: &mut Making<'_>) -> Result<Drafts, Problem> {
        let mut size = self.size.sampler("size", making.files)?;
        let mut every = self.every.sampler("every", making.files)?;
        let priorities = match &making.source.priority {
            Priority::Same(priority) => vec![*priority],
            Priority::Each(list) => list.clone(),
            Priority::Frames(_) => return Err(Problem::value("priority", "messages are no frames")),
        };
        let mut drafts = Drafts::new();
        let mut at = Duration::ZERO;
        let mut left = self.count.unwrap_or(u64::MAX);
        while at < making.length && left > 0 {
            for &priority in &priorities {
                let bytes = size.draw(making.random);
                drafts.push(making.block(at, bytes, priority))?;
            }
            at += time(every.draw(making.random), LEAST_INTERVAL);
            left -= 1;
        }
        Ok(drafts)
    }
}
