//! Workloads, baselines, experiments, the clairvoyant bound and reports: what MAppLE is to multipath QUIC, for deadlines.
//!
//! ```text
//!  experiment (TOML) ──▶ cells: parameters × contender × seed
//!                          │ each
//!                          ▼
//!      workload ──▶ plan ──▶ carry (Punctual, plain QUIC) over punctual-sim ──▶ record ──▶ measure ──▶ report, Parquet
//!                    └─────────────────────▶ bound ──────────────────────────────────────────┘
//! ```

pub mod annexb;
pub mod bound;
pub mod carry;
pub mod experiment;
pub mod files;
pub mod gauntlet;
pub mod h264;
pub mod h265;
pub mod measure;
pub mod network;
pub mod plan;
pub mod quic;
mod reading;
pub mod record;
pub mod registry;
pub mod report;
pub mod results;
pub mod run;
pub mod svg;
pub mod units;
pub mod workload;
