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

use crate::{
    base::{PathHealth, PathView},
    block::BlockId,
    registry::{self, Entry, LookupError},
};

/// What a scheduler may know of a block that still has bytes to send.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct BlockView {
    /// Its name; ids grow in order of hand-over, so comparing them is first come, first served.
    pub id: BlockId,
    /// Size of the whole block, bytes. At least 1.
    pub size: u64,
    /// Bytes that have yet to be put on the wire, those to be sent again included. At least 1.
    pub unsent: u64,
    /// When it was handed over.
    pub begin: Instant,
    /// Deadline, counted from `begin`. If it cannot be in time itself, that of those it is still sent for. One that was shorter than any path seems to be, as far as half a round trip tells, is longer
    /// here than was said: so long that half of what was said is left.
    pub deadline: Option<Duration>,
    /// 0 is the highest. That of the most important block that depends on it, if this is more and the scheduler
    /// [wants to know](BlockScheduler::inherits_priority).
    pub priority: u8,
    /// How many blocks come to nothing without it: those that depend on it, over any number of steps, or more if blocks of its kind usually
    /// have more.
    pub followers: u32,
    /// More is handed over than can be carried for long, and of what depends on each other this is among what is best left out: it costs the most bytes for
    /// each block that is of use with it.
    pub beyond_means: bool,
    /// What it has to send next was lost.
    pub again: bool,
}

impl BlockView {
    /// A block of `size` bytes of which nothing has left yet, without a deadline, of middling priority (128), on which none depends. For tests of schedulers.
    pub fn new(id: BlockId, size: u64, begin: Instant) -> Self {
        Self {
            id,
            size,
            unsent: size,
            begin,
            deadline: None,
            priority: 128,
            followers: 0,
            beyond_means: false,
            again: false,
        }
    }

    /// The moment after which the block is worthless.
    pub fn due(&self) -> Option<Instant> {
        self.begin.checked_add(self.deadline?)
    }

    /// What has to be sent for each block that it takes to be of use: the less, the better its bytes are spent.
    pub fn price(&self) -> u64 {
        self.unsent.div_ceil(u64::from(self.followers) + 1)
    }
}

/// The sender's state at the moment of a decision.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
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

impl<'a> SendContext<'a> {
    /// What a session shows, given its paths. For tests of schedulers.
    pub fn new(now: Instant, paths: &'a [PathView]) -> Self {
        let usable = || usable(paths);
        Self {
            now,
            paths,
            rate: usable().map(|view| view.rate).sum::<f64>().max(1.0),
            one_way_delay: usable().map(|view| view.one_way_delay).min().unwrap_or_default(),
        }
    }

    /// The paths to reckon with: those that are free of doubt, or all that are in doubt, if none is.
    pub fn usable(&self) -> impl Iterator<Item = &'a PathView> + Clone + use<'a> {
        usable(self.paths)
    }
}

/// Of so many packets one, at the least, is of blocks without a deadline that would else wait for ever, for others or for a queue to become shorter.
pub(crate) const FED: u32 = 16;

/// The paths of `paths` to reckon with: those that are free of doubt, or all that are in doubt, if none is.
pub(crate) fn usable(paths: &[PathView]) -> impl Iterator<Item = &PathView> + Clone {
    use PathHealth::{Active, Suspect};
    let health = if paths.iter().any(|view| view.health == Active) { Active } else { Suspect };
    paths.iter().filter(move |view| view.health == health)
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

    /// Whether a block is shown with the priority of the most important one that depends on it, if that is higher: for schedulers that
    /// weigh what a block is worth. By default it is shown with its own, as the application has said.
    fn inherits_priority(&self) -> bool {
        false
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
///
/// [`by_name`] gives one; any closure that makes a [`BlockScheduler`] will do:
///
/// ```
/// # use punctual_proto::schedule::{self, SchedulerFactory};
/// # use std::sync::Arc;
/// let theirs: SchedulerFactory = schedule::by_name("ads:alpha=0.3")?;
/// let mine: SchedulerFactory = Arc::new(move || theirs());
/// assert_eq!(mine().name(), "ads");
/// # Ok::<(), punctual_proto::LookupError>(())
/// ```
pub type SchedulerFactory = Arc<dyn Fn() -> Box<dyn BlockScheduler> + Send + Sync>;

/// What these are called in errors.
const KIND: &str = "scheduler";

/// The schedulers that can be chosen by name, the default first.
pub const REGISTRY: &[Entry<SchedulerFactory>] = &[
    Entry {
        name: "admission",
        about: "those that can all make it, chosen by priority, earliest deadline first; the rest gets what is left over",
        parameters: &[],
        make: |_| of(admission::new),
    },
    Entry {
        name: "ads",
        about: "deadline, priority and what is left to send, weighed against each other (DTP)",
        parameters: &[ads::ALPHA, ads::BETA],
        make: |values| ads::Ads::factory("ads", values[0], values[1]),
    },
    Entry {
        name: "dtp-d",
        about: "ADS with eyes for deadlines only (alpha 0)",
        parameters: &[ads::BETA],
        make: |values| ads::Ads::factory("dtp-d", 0.0, values[0]),
    },
    Entry { name: "dtp-p", about: "ADS with eyes for priorities only (alpha 1)", parameters: &[], make: |_| dtp_p() },
    Entry {
        name: "edf",
        about: "earliest deadline first, then priority; drops what is past its deadline",
        parameters: &[],
        make: |_| of(edf::new),
    },
    Entry {
        name: "fcfs",
        about: "first come, first served; never drops, like plain QUIC",
        parameters: &[],
        make: |_| of(|| fcfs::Fcfs::new(false)),
    },
    Entry {
        name: "fcfs-drop",
        about: "first come, first served; drops what is past its deadline, like SCTP with lifetimes",
        parameters: &[],
        make: |_| of(|| fcfs::Fcfs::new(true)),
    },
    Entry {
        name: "priority-fifo",
        about: "what was lost, then what is more important than usual, then first come, first served (CWR)",
        parameters: &[],
        make: |_| priority_fifo(),
    },
    Entry {
        name: "strict",
        about: "priority, then first come, first served; drops what is past its deadline",
        parameters: &[],
        make: |_| of(strict::new),
    },
];

/// The scheduler `spec` stands for: a name of [`REGISTRY`], then if need be its parameters, as in `ads:alpha=0.3,beta=255`.
pub fn by_name(spec: &str) -> Result<SchedulerFactory, LookupError> {
    registry::find(REGISTRY, KIND, spec)
}

/// The names [`by_name`] knows, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.name)
}

/// `admission`: those that can all make it, chosen by priority, earliest deadline first; the rest gets what is left over. The default.
pub fn admission() -> SchedulerFactory {
    of(admission::new)
}

/// `ads`: deadline, priority and what is left to send, weighed against each other (DTP). `alpha` is the weight of the priority, 0 to 1; `beta` what a
/// block loses that cannot be in time any more.
///
/// # Errors
/// [`LookupError::BadValue`] if one is out of the bounds that [`REGISTRY`] gives.
///
/// ```
/// # use punctual_proto::schedule;
/// assert_eq!(schedule::ads(0.3, 255.0)?().name(), "ads");
/// assert!(schedule::ads(3.0, 255.0).is_err());
/// # Ok::<(), punctual_proto::LookupError>(())
/// ```
pub fn ads(alpha: f64, beta: f64) -> Result<SchedulerFactory, LookupError> {
    registry::with(REGISTRY, KIND, "ads", &[alpha, beta])
}

/// `dtp-d`: `ads` with eyes for deadlines only, an `alpha` of 0.
///
/// # Errors
/// As for [`ads`].
pub fn dtp_d(beta: f64) -> Result<SchedulerFactory, LookupError> {
    registry::with(REGISTRY, KIND, "dtp-d", &[beta])
}

/// `dtp-p`: `ads` with eyes for priorities only, an `alpha` of 1.
pub fn dtp_p() -> SchedulerFactory {
    ads::Ads::factory("dtp-p", 1.0, ads::BETA.default)
}

/// `edf`: earliest deadline first, then priority; drops what is past its deadline.
pub fn edf() -> SchedulerFactory {
    of(edf::new)
}

/// `fcfs`: first come, first served; never drops, like plain QUIC.
pub fn fcfs() -> SchedulerFactory {
    of(|| fcfs::Fcfs::new(false))
}

/// `fcfs-drop`: first come, first served; drops what is past its deadline.
pub fn fcfs_drop() -> SchedulerFactory {
    of(|| fcfs::Fcfs::new(true))
}

/// `priority-fifo`: what was lost, then what is more important than usual, then first come, first served (CWR).
pub fn priority_fifo() -> SchedulerFactory {
    of(priority_fifo::new)
}

/// `strict`: priority, then first come, first served; drops what is past its deadline.
pub fn strict() -> SchedulerFactory {
    of(strict::new)
}

/// The default scheduler.
pub fn default_factory() -> SchedulerFactory {
    REGISTRY[0].with_defaults()
}

fn of<S: BlockScheduler + 'static>(make: impl Fn() -> S + Send + Sync + 'static) -> SchedulerFactory {
    Arc::new(move || Box::new(make()))
}

mod admission;
mod ads;
mod edf;
mod fcfs;
mod heap;
mod lanes;
mod pipes;
mod priority_fifo;
mod slack;
mod sorted;
mod strict;

#[cfg(test)]
mod link;
#[cfg(test)]
mod tests;
