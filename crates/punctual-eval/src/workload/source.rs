//! What an experiment says about a source of blocks.

use std::{fmt, time::Duration};

use punctual_proto::Redundancy;
use serde::{Deserialize, Deserializer, de};

use super::{dist::Distribution, error::Problem, gop::Gop, own::Own, raw::Raw};
use crate::{
    plan::HandOver,
    units::{BitRate, Size, Time},
};

/// The largest block: what Punctual accepts unless configured otherwise, and far more than anybody has a deadline for.
pub const MAX_BLOCK: u32 = 16 << 20;

/// One `[[workload]]` of an experiment; the [module](super) shows one of every kind.
#[derive(Deserialize, Debug, Clone, PartialEq)]
#[serde(try_from = "Raw")]
pub struct Source {
    /// What it is called in results; `source-1`, `source-2` … unless given.
    pub name: Option<String>,
    /// When it begins. Drawn once for each copy, so that a distribution sets copies apart.
    pub start: Distribution<Time>,
    /// When it ends, if not with the run.
    pub stop: Option<Time>,
    /// So many sources alike, called `name-1`, `name-2` …, each with random numbers of its own.
    pub copies: u16,
    /// Of each block, unless a file has one for it.
    pub deadline: Option<Time>,
    /// Of each block, unless a file has one for it.
    pub priority: Priority,
    /// Whether its blocks are for the receiving application in order.
    pub ordered: bool,
    /// What each block depends on.
    pub depends: Depends,
    /// Turns the source on and off.
    pub on_off: Option<OnOff>,
    /// How blocks reach the transport.
    pub hand_over: HandOver,
    /// How its blocks are protected against loss; as `[session]` says if `None`.
    pub redundancy: Option<Redundancy>,
    /// What it sends.
    pub traffic: Traffic,
}

/// What a source sends: its `kind`.
#[derive(Debug, Clone, PartialEq)]
pub enum Traffic {
    /// Messages of any size at any intervals.
    Messages(Messages),
    /// A video, frame by frame.
    Video(Video),
    /// A video in segments.
    Segments(Segments),
    /// A true video, frame by frame.
    H264(H264),
    /// Blocks listed in a file.
    Csv(Csv),
    /// As much as the network takes.
    Bulk(Bulk),
    /// What a kind makes that was registered.
    Own(Own),
}

/// `kind = "messages"`: the traffic generator of MAppLE (section III).
#[derive(Debug, Clone, PartialEq)]
pub struct Messages {
    /// Of each.
    pub size: Distribution<Size>,
    /// From one to the next.
    pub every: Distribution<Time>,
    /// Ends after so many. A list of priorities makes one of each priority, and counts as one here.
    pub count: Option<u64>,
    /// Whether the transport is told of it beforehand.
    pub declared: bool,
}

/// `kind = "video"`: a coded video, one block for each frame.
///
/// Frames are handed over at regular intervals in the order in which they are coded. The constant delay by which an encoder with B
/// frames is behind is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Video {
    /// Frames per second.
    pub fps: f64,
    /// On average.
    pub bit_rate: BitRate,
    /// The types of its frames.
    pub gop: Gop,
    /// How large I, P and B frames are in proportion to each other.
    pub ratio: [f64; 3],
    /// Standard deviation of the logarithm of a frame's size, were all of one type; frame sizes of each type are log-normal.
    pub variation: f64,
}

/// `kind = "video"` with a `segment`: a streamed video, one block for each segment, all of which stand on their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Segments {
    /// How long each plays, and the time from one to the next.
    pub segment: Time,
    /// On average.
    pub bit_rate: BitRate,
    /// Standard deviation of the logarithm of a segment's size; sizes are log-normal.
    pub variation: f64,
}

/// `kind = "h264"`: the frames of an H.264 byte stream (Annex B), in the order in which it has them.
#[derive(Debug, Clone, PartialEq)]
pub struct H264 {
    /// Its name.
    pub file: String,
    /// Frames per second, if it does not say or not rightly.
    pub fps: Option<f64>,
    /// Whether it begins again when it ends.
    pub repeat: bool,
}

/// `kind = "csv"`: blocks as a file lists them.
#[derive(Debug, Clone, PartialEq)]
pub struct Csv {
    /// Its name.
    pub file: String,
    /// Whether it begins again when it ends.
    pub repeat: bool,
}

/// `kind = "bulk"`: a transfer without deadlines.
#[derive(Debug, Clone, PartialEq)]
pub struct Bulk {
    /// Size of its blocks.
    pub block: Size,
    /// As much is kept handed over.
    pub backlog: Size,
    /// All there is, if it ends.
    pub total: Option<Size>,
}

/// How urgent the blocks of a source are: 0 is the highest.
///
/// In TOML a number, for messages a list (`priority = [0, 1, 2]`), for videos also `priority = { i = 0, p = 1, b = 2 }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Priority {
    /// All alike.
    Same(u8),
    /// One block of each at every instant, handed over in this order.
    Each(Vec<u8>),
    /// By the type of frame.
    Frames(FramePriorities),
}

/// Priorities by type of frame.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct FramePriorities {
    /// Of I frames.
    pub i: u8,
    /// Of P frames.
    pub p: u8,
    /// Of B frames; of frames that none refers to, if the video is a true one.
    pub b: u8,
}

/// What the blocks of a source depend on.
#[derive(Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Depends {
    /// Nothing.
    None,
    /// The source's block before.
    Previous,
    /// What they refer to: the frames of a video on other frames, those of a file on the rows it names.
    References,
    /// The latest block of another source, of any of its copies, that was handed over before: `depends = { source = "name" }`.
    Source(String),
}

/// Periods in which a source works, and silences between them. Its own time stands still in silence: what it would have sent then
/// it sends later.
#[derive(Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct OnOff {
    /// How long it works; it begins so.
    pub on: Distribution<Time>,
    /// How long it is silent.
    pub off: Distribution<Time>,
}

impl Source {
    /// Interval and size of messages that are all alike, if the transport is told of them.
    pub(super) fn period(&self) -> Option<(Duration, u64)> {
        match &self.traffic {
            Traffic::Messages(Messages {
                size: Distribution::Constant(size),
                every: Distribution::Constant(every),
                declared: true,
                ..
            }) => Some((every.0, size.0)),
            _ => None,
        }
    }

    /// Whether all values are ones that can be planned with. Files are not looked at.
    ///
    /// # Errors
    /// The first that will not do.
    pub fn check(&self) -> Result<(), Problem> {
        let above = |key, fine| match fine {
            true => Ok(()),
            false => Err(Problem::value(key, "has to be above zero")),
        };
        self.start.check("start")?;
        if let (Distribution::Constant(start), Some(stop)) = (&self.start, self.stop)
            && stop <= *start
        {
            return Err(Problem::value("stop", format!("{stop} is not after `start`, {start}")));
        }
        above("copies", self.copies > 0)?;
        above("hand-over", self.hand_over.queue != Some(0))?;
        if self.priority == Priority::Each(Vec::new()) {
            return Err(Problem::value("priority", "the list is empty"));
        }
        if let Some(OnOff { on, off }) = &self.on_off {
            above("on-off", *on != Distribution::Constant(Time::default()))?;
            on.check("on-off")?;
            off.check("on-off")?;
        }
        match &self.traffic {
            Traffic::Messages(Messages { declared: true, .. }) if !self.ordered || self.period().is_none() => {
                Err(Problem::value("declared", "is for messages of one size at one interval, and `ordered`"))
            }
            Traffic::Messages(Messages { size, every, .. }) => {
                if let Distribution::Constant(size) = size {
                    check_block("size", *size)?;
                }
                above("every", *every != Distribution::Constant(Time::default()))?;
                size.check("size")?;
                every.check("every")
            }
            Traffic::Video(video) => {
                let fine = |rate: f64| rate > 0.0 && rate.is_finite();
                check_fps(video.fps)?;
                above("bit-rate", fine(video.bit_rate.0))?;
                above("ratio", video.ratio.into_iter().all(fine))?;
                check_variation(video.variation)
            }
            Traffic::Segments(segments) => {
                above("bit-rate", segments.bit_rate.0 > 0.0 && segments.bit_rate.0.is_finite())?;
                above("segment", !segments.segment.0.is_zero())?;
                check_variation(segments.variation)
            }
            Traffic::H264(stream) => stream.fps.map_or(Ok(()), check_fps),
            Traffic::Csv(_) | Traffic::Own(_) => Ok(()),
            Traffic::Bulk(bulk) => {
                check_block("block", bulk.block)?;
                match bulk.backlog < bulk.block {
                    true => Err(Problem::value("backlog", "has to hold a block at least")),
                    false => Ok(()),
                }
            }
        }
    }
}

fn check_block(key: &'static str, size: Size) -> Result<(), Problem> {
    match (1..=u64::from(MAX_BLOCK)).contains(&size.0) {
        true => Ok(()),
        false => Err(Problem::value(key, format!("{} bytes are no block; it has 1 byte to 16 MiB", size.0))),
    }
}

fn check_fps(fps: f64) -> Result<(), Problem> {
    match (0.01..=10_000.0).contains(&fps) {
        true => Ok(()),
        false => Err(Problem::value("fps", "frames per second are from 0.01 to 10000")),
    }
}

fn check_variation(sigma: f64) -> Result<(), Problem> {
    match (0.0..=super::dist::MAX_SIGMA).contains(&sigma) {
        true => Ok(()),
        false => Err(Problem::value("variation", "is from 0 to 5; 0.3 is much")),
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Priority;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a priority from 0 (the highest) to 255, a list of them, or { i = .., p = .., b = .. } for a video",
                )
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Priority, E> {
                let out = || E::invalid_value(de::Unexpected::Signed(value), &self);
                u8::try_from(value).map(Priority::Same).map_err(|_| out())
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Priority, E> {
                let out = || E::invalid_value(de::Unexpected::Unsigned(value), &self);
                u8::try_from(value).map(Priority::Same).map_err(|_| out())
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Priority, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(list)).map(Priority::Each)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Priority, A::Error> {
                FramePriorities::deserialize(de::value::MapAccessDeserializer::new(map)).map(Priority::Frames)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
