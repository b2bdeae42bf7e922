//! What a run leaves behind: one row a block, and totals.

use std::{fmt, ops::AddAssign, time::Duration};

use serde::{Deserialize, Serialize};

/// A moment since the run's beginning, nanoseconds of virtual time; the same for both hosts.
pub type Nanos = u64;

/// What became of a block, stamped at each station it passed. All times are the simulator's own: no clock was estimated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRow {
    /// Index into [`RunRecord::sources`].
    pub source: u16,
    /// 0 is the highest.
    pub priority: u8,
    /// Bytes.
    pub size: u32,
    /// Counted from `handed_over`, nanoseconds.
    pub deadline: Option<Nanos>,
    /// When the application had it ready: deadlines count from here, and so does every wait.
    pub handed_over: Nanos,
    /// When its first byte left the sender.
    pub first_sent: Option<Nanos>,
    /// When its last byte left the sender for the first time.
    pub last_sent: Option<Nanos>,
    /// When its first byte arrived.
    pub first_arrived: Option<Nanos>,
    /// When all of it had arrived.
    pub complete: Option<Nanos>,
    /// When the receiving application had it.
    pub delivered: Option<Nanos>,
    /// When it had it and all it depends on: before that a block is of no use.
    pub usable: Option<Nanos>,
    /// How it ended at the sender.
    pub ending: Ending,
    /// Bytes that arrived before the deadline (all that arrived, if there was none).
    pub good_bytes: u32,
    /// Bytes that arrived, each counted once.
    pub arrived_bytes: u32,
    /// Bytes sent for the first time.
    pub source_bytes: u32,
    /// Bytes sent again after a loss.
    pub resent_bytes: u32,
    /// Bytes sent as copies of what was in flight elsewhere.
    pub copied_bytes: u32,
    /// Bytes of repair data sent for it.
    pub repair_bytes: u32,
}

impl BlockRow {
    /// From hand-over until it was usable.
    pub fn latency(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.usable?.saturating_sub(self.handed_over)))
    }

    /// Whether it was of use: usable, and by its deadline if it had one. A block that never finished was not, nor one that
    /// depends on such a block.
    pub fn on_time(&self) -> bool {
        self.usable
            .is_some_and(|at| self.deadline.is_none_or(|deadline| at <= self.handed_over.saturating_add(deadline)))
    }
}

/// How a block ended at its sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ending {
    /// It had not ended when the run did.
    #[default]
    Unfinished,
    /// Delivered, by the receiver's word.
    Delivered,
    /// Its deadline passed first.
    Expired,
    /// A block it depends on was dropped.
    DependencyDropped,
    /// Dropped for another reason.
    Dropped,
    /// The transport never took it: there was no room until the run ended.
    NotTaken,
}

/// What went over a path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathRow {
    /// UDP payload bytes offered to the forward link by the session under test.
    pub offered_bytes: u64,
    /// Packets offered.
    pub offered: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets a policer dropped.
    #[serde(default)]
    pub policed: u64,
    /// Packets the queue had no room for.
    pub overflowed: u64,
    /// Packets delivered damaged.
    pub damaged: u64,
    /// Bytes that left on it for blocks.
    pub sent: SentBytes,
    /// Most bytes that stood in the link's queue.
    pub queue_max: u64,
    /// Cost of a byte.
    pub cost: f64,
}

/// What happened on a link that paths share, to packets of whichever path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRow {
    /// Packets lost at random.
    pub lost: u64,
    /// Packets a policer dropped.
    pub policed: u64,
    /// Packets the queue had no room for.
    pub overflowed: u64,
    /// Most bytes that stood in its queue.
    pub queue_max: u64,
}

/// Bytes that left for blocks, bulk ones included, by why they did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentBytes {
    /// For the first time.
    pub source: u64,
    /// Again, after a loss.
    pub resent: u64,
    /// As copies of what was in flight elsewhere.
    pub copied: u64,
    /// As repair data.
    pub repair: u64,
}

impl SentBytes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.source + self.resent + self.copied + self.repair
    }
}

impl AddAssign for SentBytes {
    fn add_assign(&mut self, other: Self) {
        self.source += other.source;
        self.resent += other.resent;
        self.copied += other.copied;
        self.repair += other.repair;
    }
}

/// What became of block bytes that were lost, as far as our session's sender knows; each counted once, when that is settled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBytes {
    /// Restored by repair data.
    pub restored: u64,
    /// They came through when sent again.
    pub resend_regained: u64,
    /// They came through as a copy.
    pub copy_regained: u64,
    /// They never came through.
    pub never_regained: u64,
}

impl LostBytes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.restored + self.resend_regained + self.copy_regained + self.never_regained
    }
}

impl AddAssign for LostBytes {
    fn add_assign(&mut self, other: Self) {
        self.restored += other.restored;
        self.resend_regained += other.resend_regained;
        self.copy_regained += other.copy_regained;
        self.never_regained += other.never_regained;
    }
}

/// A rival flow beside the session under test, or that session itself, in a comparison of flows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRow {
    /// What it is.
    pub name: String,
    /// Application bytes delivered in the time during which all flows were there.
    pub delivered_bytes: u64,
    /// Blocks it had to hand over; bulk ones do not count.
    pub blocks: u64,
    /// Those of them that were on time.
    pub on_time: u64,
}

/// That a session was over before its run was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When an end of it first knew.
    pub at: Nanos,
    /// Which end, and what it was told.
    pub why: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s, {}", Duration::from_nanos(self.at).as_secs_f64(), self.why)
    }
}

/// All that is kept of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Why the run came to no end, if it did not; then no block counts as taken.
    pub failure: Option<String>,
    /// How its session ended before it did, or was never established; that of the flow under test, or else the first of its rivals'.
    pub ended: Option<Ended>,
    /// Every planned block, in order of hand-over.
    pub blocks: Vec<BlockRow>,
    /// Names of the sources.
    pub sources: Vec<String>,
    /// The paths, first to last.
    pub paths: Vec<PathRow>,
    /// The links that paths share.
    pub links: Vec<LinkRow>,
    /// The flows, that under test first; one, if it was alone.
    pub flows: Vec<FlowRow>,
    /// What the receiver has handed over to the sender, if it was to.
    pub reply: Option<FlowRow>,
    /// What became of the bytes our session lost; nothing of plain QUIC, which does not tell.
    pub lost: LostBytes,
    /// Bytes sent, each counted once, of blocks that were of no use in the end: late, never there, or without what they depend on.
    pub wasted_bytes: u64,
    /// Bulk bytes the receiving application got.
    pub bulk_bytes: u64,
    /// Block bytes that arrived, new ones, in each [`BIN`](Self::BIN) since the beginning.
    pub arrivals: Vec<u32>,
    /// Bytes queued on the first path's way there, sampled at the end of each bin.
    pub queue: Vec<u32>,
    /// How long that took to send from then on, microseconds.
    pub queue_wait: Vec<u32>,
    /// How long the workload lasted, nanoseconds.
    pub duration: Nanos,
    /// Events the simulator went through; a measure of the work.
    pub events: u64,
}

impl RunRecord {
    /// The grain of [`arrivals`](Self::arrivals).
    pub const BIN: Duration = Duration::from_millis(20);

    /// Bytes that left for blocks on all paths together.
    pub fn sent(&self) -> SentBytes {
        let mut sum = SentBytes::default();
        self.paths.iter().for_each(|path| sum += path.sent);
        sum
    }
}
