//! What an application will hand over, fixed before the run begins.

use std::time::Duration;

use punctual_proto::Redundancy;

/// A block that is to be handed over.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedBlock {
    /// When the application has it ready, since the run's beginning.
    pub at: Duration,
    /// Bytes; at least 1.
    pub size: u32,
    /// Counted from `at`.
    pub deadline: Option<Duration>,
    /// 0 is the highest.
    pub priority: u8,
    /// Index into [`Plan::sources`].
    pub source: u16,
    /// Blocks without which this one is of no use: indices into [`Plan::blocks`], all smaller than its own.
    pub depends_on: Vec<u32>,
    /// Whether the receiving application gets the source's blocks in order.
    pub ordered: bool,
}

/// Where blocks come from.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcePlan {
    /// As the experiment calls it.
    pub name: String,
    /// How blocks reach the transport.
    pub hand_over: HandOver,
    /// How often and how large, if the transport is told.
    pub period: Option<(Duration, u64)>,
    /// How its blocks are protected against loss; `None`: as the session has it.
    pub redundancy: Option<Redundancy>,
    /// Data that is sent as fast as it goes, beside the planned blocks.
    pub bulk: Option<Bulk>,
}

/// How blocks get from the application to the transport (the intermediate queue of MAppLE, section III).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandOver {
    /// Bytes of this source the transport takes before the others wait in front of it; `None`: as many as its own limits
    /// allow.
    pub queue: Option<u64>,
    /// Whether the application waits for room, and makes its next block only then, as with a blocking socket. Otherwise blocks
    /// queue up, and their deadlines run.
    pub blocking: bool,
}

/// A transfer without deadlines that always has more to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bulk {
    /// Size of each block, bytes.
    pub block: u32,
    /// Bytes kept handed over.
    pub backlog: u64,
    /// Priority of the blocks.
    pub priority: u8,
    /// From when.
    pub start: Duration,
    /// Until when.
    pub stop: Duration,
    /// Ends after this many bytes, if given.
    pub total: Option<u64>,
}

/// All that an application will do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// In order of time; of several at one time, in the order in which they are handed over.
    pub blocks: Vec<PlannedBlock>,
    /// Where they come from.
    pub sources: Vec<SourcePlan>,
}
