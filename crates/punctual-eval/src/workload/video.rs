//! Videos made up from a bit rate: frames with their dependencies, or segments.

use std::time::Duration;

use rand_distr::Distribution as _;

use super::{
    dist::log_normal,
    draft::{Drafts, Making, time},
    error::Problem,
    gop::{Frame, Gop},
    source::{FramePriorities, Priority, Segments, Source, Video},
};

impl FramePriorities {
    pub(super) const fn of(self, frame: Frame) -> u8 {
        match frame {
            Frame::I => self.i,
            Frame::P => self.p,
            Frame::B => self.b,
        }
    }
}

impl Source {
    /// The priorities of a video's frames.
    pub(super) fn frame_priorities(&self) -> Result<FramePriorities, Problem> {
        match self.priority {
            Priority::Same(priority) => Ok(FramePriorities { i: priority, p: priority, b: priority }),
            Priority::Frames(priorities) => Ok(priorities),
            Priority::Each(_) => Err(Problem::value("priority", "a list of priorities is for messages")),
        }
    }
}

impl Video {
    /// Mean size of the frames of each type, bytes: in the ratio given, and such that the pattern has the bit rate.
    fn mean_sizes(&self) -> impl Fn(Frame) -> f64 {
        let share = {
            let [i, p, b] = self.ratio;
            move |frame| match frame {
                Frame::I => i,
                Frame::P => p,
                Frame::B => b,
            }
        };
        let frames = self.gop.frames();
        let shares: f64 = frames.iter().map(|&frame| share(frame)).sum();
        let mean = self.bit_rate.0 / 8.0 / self.fps;
        let scale = mean * frames.len() as f64 / shares;
        move |frame| share(frame) * scale
    }

    pub(super) fn draft(&self, making: &mut Making<'_>) -> Result<Drafts, Problem> {
        let priorities = making.source.frame_priorities()?;
        let mean_size = self.mean_sizes();
        let varied = variation(self.variation)?;
        let mut drafts = Drafts::new();
        for (index, frame) in (0u32..).zip(Gop::coded(&self.gop)) {
            let at = time(f64::from(index) / self.fps, Duration::ZERO);
            if at >= making.length {
                break;
            }
            let bytes = mean_size(frame.kind) * varied.sample(making.random);
            let mut block = making.block(at, bytes, priorities.of(frame.kind));
            block.references = frame.references.into_iter().flatten().collect();
            drafts.push(block)?;
        }
        Ok(drafts)
    }
}

impl Segments {
    pub(super) fn draft(&self, making: &mut Making<'_>) -> Result<Drafts, Problem> {
        let Priority::Same(priority) = making.source.priority else {
            return Err(Problem::value("priority", "segments have one priority"));
        };
        let mean = self.bit_rate.0 / 8.0 * self.segment.0.as_secs_f64();
        let varied = variation(self.variation)?;
        let mut drafts = Drafts::new();
        let mut at = Duration::ZERO;
        while at < making.length {
            let bytes = mean * varied.sample(making.random);
            drafts.push(making.block(at, bytes, priority))?;
            at += self.segment.0;
        }
        Ok(drafts)
    }
}

/// By what sizes are multiplied: 1 on average.
fn variation(sigma: f64) -> Result<rand_distr::LogNormal<f64>, Problem> {
    log_normal(1.0, sigma).map_err(|error| Problem::value("variation", error.to_string()))
}
