//! Workloads: from what an experiment says about its sources to the blocks they make.
//!
//! An experiment has a `[[workload]]` table for each source. All are planned before the run begins, from the run's seed, so that every
//! contender is given the same blocks at the same times.
//!
//! # What every source has
//!
//! | key | | unless given |
//! | --- | --- | --- |
//! | `kind` | `messages`, `video`, `h264`, `csv` or `bulk`, or one that was [registered](crate::registry) | `messages` |
//! | `name` | what results call it | `source-1`, … |
//! | `start`, `stop` | when it begins (a time or a distribution) and ends | with the run |
//! | `copies` | so many sources alike | 1 |
//! | `priority` | 0 is the highest; for messages also a list: one of each at every instant | 0 |
//! | `hand-over` | `{ queue = "1 MB", blocking = true }`: so much of it waits in the transport, and whether the application then waits as well | no limit |
//! | `deadline` | of each block, from the moment it is there | none |
//! | `ordered` | whether the receiving application gets its blocks in order | `false` |
//! | `depends` | `none`, `previous`, `references`, or the latest block of `{ source = "name" }` | `references` where there are any |
//! | `on-off` | `{ on = …, off = … }`: works for the one time and is silent for the other, by turns | always on |
//!
//! Bulk traffic has none of the last four.
//!
//! # One of every kind
//!
//! ```toml
#![doc = include_str!("example.toml")]
//! ```
//!
//! # Use
//!
//! ```
//! use std::time::Duration;
//!
//! use punctual_eval::workload::{Files, Source, plan};
//!
//! #[derive(serde::Deserialize)]
//! struct Sources {
//!     workload: Vec<Source>,
//! }
//!
//! let text = "[[workload]]\nsize = '200 KB'\nevery = '100ms'\ndeadline = '200ms'\npriority = [0, 1, 2]";
//! let sources: Sources = toml::from_str(text)?;
//! let plan = plan(&sources.workload, Duration::from_secs(10), 1, &Files::default())?;
//! assert_eq!(plan.blocks.len(), 300);
//! assert_eq!(plan.blocks[5].at, Duration::from_millis(100));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sizes and intervals
//!
//! `size` and `every` of messages are each a quantity or one of the distributions of [`Shape`]: `uniform`, `normal`, `exponential`,
//! `pareto`, `poisson`, `log-normal`, `gilbert-elliott`, or an empirical `file` (drawn from) or `replay` (in order). Sizes are
//! between 1 byte and 16 MiB, intervals 1 µs at least; what is drawn outside is moved to the nearest that is inside.
//!
//! # Files of blocks
//!
//! A file of `kind = "csv"` has a header line that names some of [`COLUMNS`], or two columns without one: seconds and bytes. What a row
//! leaves open, the source's own keys say. A `source` column splits the file into several sources, called after the source and the column.

mod bitstream;
mod dist;
mod draft;
mod error;
mod gop;
mod messages;
mod on_off;
mod own;
mod planning;
mod random;
mod raw;
mod source;
mod table;
mod video;

use crate::files;
pub use crate::files::{FileError, Files};
pub use dist::{Distribution, GilbertElliott, Quantity, Shape};
pub use error::{Problem, WorkloadError};
pub use gop::{Frame, Gop, GopError};
pub use own::{Asked, Own, OwnBlock};
pub(crate) use own::{Make, OWN, set_apart};
pub use planning::plan;
pub use raw::KINDS;
pub use source::{
    Bulk, Csv, Depends, FramePriorities, H264, MAX_BLOCK, Messages, OnOff, Priority, Segments, Source, Traffic, Video,
};
pub use table::COLUMNS;

#[cfg(test)]
mod tests;
