//! Which block goes next.
//!
//! A scheduler keeps whatever index it likes over the blocks that may be sent now and names the one whose
//! bytes go into the next packet. It never sees a clock, a socket or a payload: only [`BlockView`]s and a
//! [`SendContext`], so a unit test takes microseconds. The session calls [`BlockScheduler::next`] once a
//! packet, so that must not be linear in the number of live blocks.
//!
//! A new scheduler is one new file here and one line in [`REGISTRY`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{block::BlockId, multipath::PathView};

/// What a scheduler may know of a block that still has bytes to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockView {
    /// Its name; ids grow in order of hand-over, so comparing them is first come, first served.
    pub id: BlockId,
    /// Size of the whole block, bytes. At least 1.
    pub size: u64,
    /// Bytes that have yet to be put on the wire, those to be sent again included. At least 1.
    pub unsent: u64,
    /// When it was handed over.
    pub begin: Instant,
    /// Deadline, counted from `begin`.
    pub deadline: Option<Duration>,
    /// 0 is the highest.
    pub priority: u8,
}

impl BlockView {
    /// The moment after which the block is worthless.
    pub fn due(&self) -> Option<Instant> {
        self.begin.checked_add(self.deadline?)
    }
}

/// The sender's state at the moment of a decision.
#[derive(Debug, Clone, Copy)]
pub struct SendContext<'a> {
    /// Now.
    pub now: Instant,
    /// Every open path.
    pub paths: &'a [PathView],
    /// What all usable paths together can carry, bytes per second. Never 0.
    pub rate: f64,
    /// The smallest estimated one-way delay of a usable path.
    pub one_way_delay: Duration,
}

/// Chooses the block whose bytes go into the next packet.
///
/// The session keeps the scheduler's picture true: `insert` when a block becomes eligible (it has unsent bytes and
/// depends on nothing unsent) and again whenever its view changes; `remove` when it has nothing left to
/// send or has ended. `next` must return an inserted block if there is one it wants sent.
pub trait BlockScheduler: Send {
    /// The name it is chosen by.
    fn name(&self) -> &'static str;

    /// Whether blocks are dropped once their deadline has passed at the sender. `false` is plain QUIC's behaviour.
    fn drops_stale(&self) -> bool {
        true
    }

    /// A block became eligible, or its view changed (the same id replaces the old view).
    fn insert(&mut self, block: &BlockView);

    /// The block has nothing (more) to send. Unknown ids are ignored.
    fn remove(&mut self, id: BlockId);

    /// The block to send from now, or `None` to send nothing.
    ///
    /// Amortised cost must not grow linearly with the number of inserted blocks.
    fn next(&mut self, cx: &SendContext<'_>) -> Option<BlockId>;
}

/// Makes a scheduler for each new session.
pub type SchedulerFactory = Arc<dyn Fn() -> Box<dyn BlockScheduler> + Send + Sync>;

/// The schedulers that can be chosen by name, the default first.
pub const REGISTRY: &[(&str, fn() -> Box<dyn BlockScheduler>)] = &[("fcfs", || Box::new(fcfs::Fcfs::new(false)))];

/// The default scheduler.
pub fn default_factory() -> SchedulerFactory {
    Arc::new(REGISTRY[0].1)
}

mod fcfs;
