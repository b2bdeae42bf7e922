//! To be written.

pub mod journal;
pub mod parquet;
