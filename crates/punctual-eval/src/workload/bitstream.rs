//! A true video: the access units of an H.264 file, at the times at which a camera would have them.

use std::time::Duration;

use super::{
    draft::{Draft, Drafts, Making, time},
    error::Problem,
    gop::Frame,
    source::{H264, MAX_BLOCK},
};
use crate::h264::{AccessUnit, Kind, split};

impl H264 {
    pub(super) fn draft(&self, making: &mut Making<'_>) -> Result<Drafts, Problem> {
        let priorities = making.source.frame_priorities()?;
        let content = making.files.read(&self.file)?;
        let (units, rate) = split(&content, MAX_BLOCK as usize);
        // As the program does that sends such streams: no picture is understood before the parameter sets have come.
        if units.first().is_none_or(|unit| unit.kind == Kind::Unknown && rate.is_none()) {
            let problem = "is no H.264 byte stream that begins with its parameter sets".into();
            return Err(Problem::Content { file: self.file.clone(), problem });
        }
        let Some(rate) = self.fps.or(rate) else {
            return Err(Problem::value("fps", format!("{} does not say its frame rate; give it here", self.file)));
        };
        // A field is half a frame.
        let halves = |unit: &AccessUnit| if unit.field { 1 } else { 2 };
        let mut drafts = Drafts::new();
        let mut now: u64 = 0;
        loop {
            let base = drafts.blocks.len() as u32;
            for unit in &units {
                let at = time(now as f64 / (2.0 * rate), Duration::ZERO);
                if at >= making.length {
                    return Ok(drafts);
                }
                let priority = priorities.of(frame(unit.kind));
                let references = unit.dependencies.iter().map(|&on| base + on as u32).collect();
                drafts.push(Draft { references, ..making.block(at, unit.data.len() as f64, priority) })?;
                now += halves(unit);
            }
            if !self.repeat {
                return Ok(drafts);
            }
        }
    }
}

/// What a picture counts as. One that could not be understood may be anything.
const fn frame(kind: Kind) -> Frame {
    match kind {
        Kind::I | Kind::Unknown => Frame::I,
        Kind::Reference => Frame::P,
        Kind::Disposable => Frame::B,
    }
}
