//! Workloads: from what an experiment says about its sources to the blocks they make.
//!
//! An experiment has a `[[workload]]` table for each source. All are planned before the run begins, from the run's seed, so that every
//! contender is given the same blocks at the same times.
//!
//! # What every source has
//!
//! | key | | unless given |
//! | --- | --- | --- |
//! | `kind` | `messages`, `video`, `csv` or `bulk` | `messages` |
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
//! let sources: Sources = toml::from_str(
//!     r#"
//!     # Three messages of 200 KB every 100 ms, of priorities 0, 1 and 2 (DTP, figure 3).
//!     [[workload]]
//!     name = "blocks"
//!     size = "200 KB"
//!     every = "100ms"
//!     priority = [0, 1, 2]
//!     deadline = "200ms"
//!
//!     # Ten sensors that begin at different times. Messages with exponential intervals are a Poisson process.
//!     [[workload]]
//!     name = "sensor"
//!     copies = 10
//!     start = { uniform = ["0s", "1s"] }
//!     size = { log-normal = { mean = "2 KB", sigma = 0.5 } }
//!     every = { exponential = { mean = "50ms" } }
//!
//!     # Speech: on and off with exponential times (Gilbert-Elliott); 20 ms of sound at a time while on.
//!     [[workload]]
//!     name = "audio"
//!     size = 160
//!     every = "20ms"
//!     deadline = "150ms"
//!     on-off = { on = { exponential = { mean = "1s" } }, off = { exponential = { mean = "1.35s" } } }
//!
//!     # A video call. P frames depend on the frame before, B frames on those on either side.
//!     [[workload]]
//!     name = "camera"
//!     kind = "video"
//!     fps = 30
//!     bit-rate = "2 Mbit/s"
//!     gop = { length = 30, b-frames = 2 }   # or "IBBPBBP"
//!     ratio = [16, 6, 3]                    # sizes of I, P and B frames
//!     variation = 0.2                       # sigma of their logarithms
//!     priority = { i = 0, p = 1, b = 2 }
//!     deadline = "100ms"
//!     ordered = true
//!
//!     # A streamed video: a block for each segment.
//!     [[workload]]
//!     name = "film"
//!     kind = "video"
//!     bit-rate = "6.6 Mbit/s"
//!     segment = "200ms"
//!     deadline = "400ms"
//!     hand-over = { queue = "1 MB", blocking = true }
//!
//!     # Blocks from a file, again and again.
//!     [[workload]]
//!     name = "recorded"
//!     kind = "csv"
//!     file = "blocks.csv"
//!     repeat = true
//!     deadline = "200ms"
//!
//!     # What fills the rest.
//!     [[workload]]
//!     name = "download"
//!     kind = "bulk"
//!     block = "64 KB"
//!     backlog = "256 KB"
//!     priority = 255
//!     "#,
//! )?;
//!
//! # let dir = tempfile::tempdir()?;
//! # std::fs::write(dir.path().join("blocks.csv"), "at_s,size,deadline_s\n0,2000,\n0.04,500,0.1\n")?;
//! # let experiments = dir.path();
//! let plan = plan(&sources.workload, Duration::from_secs(10), 1, &Files::new([experiments]))?;
//! assert_eq!(plan.sources.len(), 16);
//! assert_eq!(plan.sources[1].name, "sensor-1");
//! assert_eq!(plan.blocks[2].priority, 2);
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

mod dist;
mod draft;
mod error;
mod gop;
mod messages;
mod on_off;
mod planning;
mod random;
mod raw;
mod source;
mod table;
mod video;

pub use dist::{Distribution, GilbertElliott, Quantity, Shape};
pub use error::{Problem, WorkloadError};
use crate::files;
pub use crate::files::{FileError, Files};
pub use gop::{Frame, Gop, GopError};
pub use planning::plan;
pub use source::{
    Bulk, Csv, Depends, FramePriorities, MAX_BLOCK, Messages, OnOff, Priority, Segments, Source, Traffic, Video,
};
pub use table::COLUMNS;

#[cfg(test)]
mod tests;
