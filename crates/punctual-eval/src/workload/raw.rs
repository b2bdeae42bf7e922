//! From the keys of a `[[workload]]` table to a [`Source`].
//!
//! The table is read flat, with every key that any kind has, and sorted by kind afterwards: so a mistyped key or value is told
//! with its place in the file, which serde's tagged enums cannot do.

use serde::Deserialize;

use super::{
    dist::Distribution,
    error::{Problem, WorkloadError},
    gop::Gop,
    own::Own,
    source::{Bulk, Csv, Depends, H264, Messages, OnOff, Priority, Segments, Source, Traffic, Video},
};
use crate::{
    plan,
    units::{BitRate, Mode, Size, Time},
};

/// Every key there is.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Raw {
    #[serde(default)]
    kind: Kind,
    name: Option<String>,
    start: Option<Distribution<Time>>,
    stop: Option<Time>,
    copies: Option<u16>,
    deadline: Option<Time>,
    priority: Option<Priority>,
    ordered: Option<bool>,
    depends: Option<Depends>,
    on_off: Option<OnOff>,
    hand_over: Option<HandOver>,
    redundancy: Option<Mode>,
    size: Option<Distribution<Size>>,
    every: Option<Distribution<Time>>,
    count: Option<u64>,
    declared: Option<bool>,
    fps: Option<f64>,
    bit_rate: Option<BitRate>,
    gop: Option<Gop>,
    ratio: Option<[f64; 3]>,
    variation: Option<f64>,
    segment: Option<Time>,
    file: Option<String>,
    repeat: Option<bool>,
    block: Option<Size>,
    backlog: Option<Size>,
    total: Option<Size>,
    /// The table of a kind that was registered; [`set_apart`](super::own::set_apart) puts it here.
    own: Option<toml::Table>,
}

#[derive(Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    #[default]
    Messages,
    Video,
    H264,
    Csv,
    Bulk,
    Own,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct HandOver {
    queue: Option<Size>,
    #[serde(default)]
    blocking: bool,
}

/// The kinds of source that are built in.
pub const KINDS: &[&str] = &["messages", "video", "h264", "csv", "bulk"];

/// I, P and B frames in proportion, if the experiment does not say: the bits that MPEG-2 Test Model 5 (chapter 10) gives the first
/// pictures of each type, from their initial complexities 160, 60 and 42 and the factor 1.4 by which B pictures may be coarser.
const RATIO: [f64; 3] = [16.0, 6.0, 3.0];

/// Seconds between I frames if the experiment does not say: what Apple's authoring specification for HTTP Live Streaming asks for.
/// There are no B frames then, as is usual where every frame of delay counts.
const KEY_FRAME_INTERVAL: f64 = 2.0;

/// Bytes of a block of bulk traffic.
const BULK_BLOCK: u64 = 64_000;

/// Bytes of bulk traffic kept handed over: more than a path of 1 Gbit/s and 60 ms holds, as our sessions count what is under way.
const BULK_BACKLOG: u64 = 16_000_000;

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Video => "video",
            Self::H264 => "h264",
            Self::Csv => "csv",
            Self::Bulk => "bulk",
            Self::Own => super::own::OWN,
        }
    }

    /// The keys that mean something for this kind but not for every other.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &["size", "every", "count", "declared", "deadline", "ordered", "depends", "on-off"],
            Self::Video => {
                &["fps", "bit-rate", "gop", "ratio", "variation", "segment", "deadline", "ordered", "depends", "on-off"]
            }
            Self::H264 => &["file", "fps", "repeat", "deadline", "ordered", "depends", "on-off"],
            Self::Csv => &["file", "repeat", "deadline", "ordered", "depends", "on-off"],
            Self::Bulk => &["block", "backlog", "total"],
            Self::Own => &["own", "deadline", "ordered", "depends", "on-off"],
        }
    }
}

impl Raw {
    /// The keys given that some kinds do not have.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("deadline", self.deadline.is_some()),
            ("ordered", self.ordered.is_some()),
            ("depends", self.depends.is_some()),
            ("on-off", self.on_off.is_some()),
            ("size", self.size.is_some()),
            ("every", self.every.is_some()),
            ("count", self.count.is_some()),
            ("declared", self.declared.is_some()),
            ("fps", self.fps.is_some()),
            ("bit-rate", self.bit_rate.is_some()),
            ("gop", self.gop.is_some()),
            ("ratio", self.ratio.is_some()),
            ("variation", self.variation.is_some()),
            ("segment", self.segment.is_some()),
            ("file", self.file.is_some()),
            ("repeat", self.repeat.is_some()),
            ("block", self.block.is_some()),
            ("backlog", self.backlog.is_some()),
            ("total", self.total.is_some()),
            ("own", self.own.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, given)| given.then_some(key))
    }

    fn traffic(&mut self) -> Result<Traffic, Problem> {
        let missing = |key| Problem::Missing { kind: self.kind.name(), key };
        Ok(match self.kind {
            Kind::Messages => Traffic::Messages(Messages {
                size: self.size.take().ok_or(missing("size"))?,
                every: self.every.take().ok_or(missing("every"))?,
                count: self.count,
                declared: self.declared.unwrap_or(false),
            }),
            Kind::Video => {
                let bit_rate = self.bit_rate.ok_or(missing("bit-rate"))?;
                let variation = self.variation.unwrap_or(0.0);
                if let Some(segment) = self.segment {
                    if let Some(key) = self.given().find(|key| ["fps", "gop", "ratio"].contains(key)) {
                        return Err(Problem::value(key, "a video with a `segment` is sent by segments, not by frames"));
                    }
                    return Ok(Traffic::Segments(Segments { segment, bit_rate, variation }));
                }
                let fps = self.fps.ok_or(missing("fps"))?;
                let gop = match self.gop.take() {
                    Some(gop) => gop,
                    // A frame rate that is none is found out by `check`.
                    None => Gop::regular(((fps * KEY_FRAME_INTERVAL).round() as u32).clamp(1, 20_000), 0)
                        .map_err(|error| Problem::value("gop", error.to_string()))?,
                };
                Traffic::Video(Video { fps, bit_rate, gop, ratio: self.ratio.unwrap_or(RATIO), variation })
            }
            Kind::H264 => Traffic::H264(H264 {
                file: self.file.take().ok_or(missing("file"))?,
                fps: self.fps,
                repeat: self.repeat.unwrap_or(false),
            }),
            Kind::Csv => Traffic::Csv(Csv {
                file: self.file.take().ok_or(missing("file"))?,
                repeat: self.repeat.unwrap_or(false),
            }),
            Kind::Bulk => Traffic::Bulk(Bulk {
                block: self.block.unwrap_or(Size(BULK_BLOCK)),
                backlog: self.backlog.unwrap_or(Size(BULK_BACKLOG)),
                total: self.total,
            }),
            Kind::Own => Traffic::Own(Own { table: self.own.take().ok_or(missing("own"))?, make: None }),
        })
    }
}

impl TryFrom<Raw> for Source {
    /// For a reader: serde takes no more than a message, and knows of the table no more than that it is one of `[[workload]]`.
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, String> {
        let name = raw.name.clone();
        Self::from_raw(raw).map_err(|problem| match name {
            Some(source_name) => WorkloadError { source_name, problem }.to_string(),
            None => problem.to_string(),
        })
    }
}

impl Source {
    fn from_raw(mut raw: Raw) -> Result<Self, Problem> {
        let kind = raw.kind;
        if let Some(key) = raw.given().find(|key| !kind.keys().contains(key)) {
            return Err(Problem::Foreign { kind: kind.name(), key, own: kind.keys() });
        }
        let traffic = raw.traffic()?;
        let refers = matches!(traffic, Traffic::Video(_) | Traffic::H264(_) | Traffic::Csv(_) | Traffic::Own(_));
        if raw.depends == Some(Depends::References) && !refers {
            return Err(Problem::value(
                "depends",
                "only the frames of a video and the rows of a file have `references`",
            ));
        }
        let wrong = match (&raw.priority, &traffic) {
            (Some(Priority::Each(_)), Traffic::Messages(_))
            | (Some(Priority::Frames(_)), Traffic::Video(_) | Traffic::H264(_)) => None,
            (Some(Priority::Each(_)), _) => Some("a list of priorities is for messages; here it is one number"),
            (Some(Priority::Frames(_)), _) => Some("priorities by frame type are for videos; here it is one number"),
            (Some(Priority::Same(_)) | None, _) => None,
        };
        if let Some(wrong) = wrong {
            return Err(Problem::value("priority", wrong));
        }
        let depends = raw.depends.unwrap_or(if refers { Depends::References } else { Depends::None });
        let source = Self {
            name: raw.name,
            start: raw.start.unwrap_or(Distribution::Constant(Time::default())),
            stop: raw.stop,
            copies: raw.copies.unwrap_or(1),
            deadline: raw.deadline,
            priority: raw.priority.unwrap_or(Priority::Same(0)),
            ordered: raw.ordered.unwrap_or(false),
            depends,
            on_off: raw.on_off,
            hand_over: raw.hand_over.map_or_else(plan::HandOver::default, |hand_over| plan::HandOver {
                queue: hand_over.queue.map(|size| size.0),
                blocking: hand_over.blocking,
            }),
            redundancy: raw.redundancy.map(|mode| mode.0),
            traffic,
        };
        source.check()?;
        Ok(source)
    }
}
