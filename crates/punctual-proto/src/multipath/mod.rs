//! Which path, or paths, a fragment takes.
//!
//! A path scheduler is shown the fragment to send and every open path, and answers with the paths to send it on now, or
//! that it would rather wait. It is also asked for copies of what is on its way elsewhere, and for the path of repair fragments: all that
//! decides where bytes go is here. A new one is one new file and one line in [`REGISTRY`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use crate::{
    base::{PathHealth, PathId, PathView},
    budget::{ParseBudgetError, PathBudget},
    limits::MAX_PATHS,
    role::PathRole,
};
use crate::{
    block::Redundancy,
    registry::{self, Entry, LookupError},
    schedule::BlockView,
};

/// The fragment a path is sought for.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FragmentView {
    /// The block it belongs to.
    pub block: BlockView,
    /// Bytes of the block in this packet.
    pub len: usize,
    /// Where an earlier copy was lost, if this one is sent again.
    pub lost_on: Option<PathId>,
    /// Bytes of more urgent blocks that the path scheduler made wait for a path.
    pub ahead: u64,
    /// Bytes of all other blocks that are no less important, and wait; counted only for who [makes copies](PathScheduler::makes_copies).
    pub behind: u64,
    /// How its block is protected against loss.
    pub redundancy: Redundancy,
    /// Paths that others need more: blocks that are handed over these days with a shorter deadline, are no less important, and would be late on some of the rest.
    pub wanted: PathSet,
}

impl FragmentView {
    /// Bytes that are to go until its block is across: all that it has yet to send, and what is ahead of that.
    pub fn whole(&self) -> u64 {
        self.ahead + self.block.unsent
    }

    /// The next `len` bytes of a block, for the first time and with nothing before them. For tests of path schedulers.
    pub fn new(block: BlockView, len: usize) -> Self {
        Self {
            block,
            len,
            lost_on: None,
            ahead: 0,
            behind: 0,
            redundancy: Redundancy::Auto,
            wanted: PathSet::default(),
        }
    }
}

/// A small set of paths, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathSet {
    len: u8,
    ids: [u32; MAX_PATHS],
}

impl PathSet {
    /// A set of one.
    pub fn one(id: PathId) -> Self {
        let mut set = Self::default();
        set.push(id);
        set
    }

    /// Adds a path behind the others; a path that is in the set already, or one too many, is ignored.
    pub fn push(&mut self, id: PathId) {
        let len = usize::from(self.len);
        if len < MAX_PATHS && !self.ids[..len].contains(&id.0) {
            self.ids[len] = id.0;
            self.len += 1;
        }
    }

    /// Whether a path is in it.
    pub fn contains(&self, id: PathId) -> bool {
        self.ids[..usize::from(self.len)].contains(&id.0)
    }

    /// The paths, first choice first.
    pub fn iter(&self) -> impl Iterator<Item = PathId> + '_ {
        self.ids[..usize::from(self.len)].iter().map(|&id| PathId(id))
    }
}

/// A path scheduler's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathChoice {
    /// Send the fragment now on the first of these, and a copy on each of the others.
    ///
    /// All must be [`ready`](PathView::ready).
    Send(PathSet),
    /// Do not send this block's bytes now, though some path may be ready; ask again when something changes.
    Wait,
    /// The same, because the room that there is must be left for what is expected; ask again at this time at the latest.
    ///
    /// A path that is ready meanwhile is not one for which there was too little to send: its congestion window may grow.
    Reserve(Instant),
}

/// A packet that is on its way on one path, and that another might carry, too.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Outstanding {
    /// The first block it carries bytes of, as it is now: it may have nothing left to send.
    pub block: BlockView,
    /// When it left.
    pub sent: Instant,
    /// On which path.
    pub path: PathId,
}

impl Outstanding {
    /// A packet with bytes of a block. For tests of path schedulers.
    pub fn new(block: BlockView, sent: Instant, path: PathId) -> Self {
        Self { block, sent, path }
    }
}

/// The next message of a periodic source.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Turn {
    /// When it is expected to be handed over; now, if it is overdue.
    pub at: Instant,
    /// How long after it the one after is.
    pub every: Duration,
    /// Bytes.
    pub size: u64,
    /// Counted from `at`.
    pub deadline: Option<Duration>,
    /// 0 is the highest.
    pub priority: u8,
}

/// What is to be expected.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Outlook<'a> {
    /// The next turn of each periodic source, the soonest first.
    pub turns: &'a [Turn],
    in_flight: &'a dyn Fn(PathId, Instant) -> u64,
}

impl<'a> Outlook<'a> {
    /// These turns, and on each path so many bytes in flight at each time. For tests of path schedulers.
    pub fn new(turns: &'a [Turn], in_flight: &'a dyn Fn(PathId, Instant) -> u64) -> Self {
        Self { turns, in_flight }
    }

    /// How many of the bytes in flight on a path will still be at `at`, if their answers take a round trip.
    pub fn in_flight_at(&self, path: PathId, at: Instant) -> u64 {
        (self.in_flight)(path, at)
    }
}

/// Chooses the paths for each fragment.
pub trait PathScheduler: Send {
    /// The name it is chosen by.
    fn name(&self) -> &'static str;

    /// Where to send `fragment` now, be it for the first time or again. At least one path of `paths` is [`ready`](PathView::ready).
    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice;

    /// Whether it wants to be shown what is [ahead](Self::look_ahead).
    fn looks_ahead(&self) -> bool {
        false
    }

    /// What is to be expected, shown before each call of [`choose`](Self::choose).
    fn look_ahead(&mut self, outlook: &Outlook<'_>, paths: &[PathView], now: Instant) {
        let _ = (outlook, paths, now);
    }

    /// Whether second tries have a time of their own: what is unacknowledged of a block with a deadline goes again once, when all answers should be there, if it can
    /// still arrive, and at no other time. By default what is lost goes again as soon as its answer is missing, each packet by itself, and as often as there is time.
    fn times_second_tries(&self) -> bool {
        false
    }

    /// Whether it is to be asked for [`copies`](Self::copy).
    fn makes_copies(&self) -> bool {
        false
    }

    /// Whether `path`, which is ready, is to carry what `packet` does, too. Asked before anything new is sent, of the packets that are on their
    /// way on other paths and have not been copied to this one, the oldest first; of a block of which
    /// it wants no copy, not again for the next packet. `next` is what would be sent now, if anything would.
    fn copy(
        &mut self,
        packet: &Outstanding,
        path: &PathView,
        next: Option<&FragmentView>,
        paths: &[PathView],
        now: Instant,
    ) -> bool {
        let _ = (packet, path, next, paths, now);
        false
    }

    /// The path for the repair fragments of a group that is due then, most of whose sources took `majority`. By default another that
    /// gets them there in time, the soonest of these; there the same burst of losses would hit both. Where it carries too few of them they
    /// go on `majority`, if that carries more.
    fn protect(&mut self, majority: PathId, due: Option<Instant>, paths: &[PathView], now: Instant) -> PathId {
        repairs::another(majority, due, paths, now)
    }
}

/// Makes a path scheduler for each new session.
pub type PathSchedulerFactory = Arc<dyn Fn() -> Box<dyn PathScheduler> + Send + Sync>;

/// What these are called in errors.
const KIND: &str = "path scheduler";

/// The path schedulers that can be chosen by name, the default first.
pub const REGISTRY: &[Entry<PathSchedulerFactory>] = &[
    Entry {
        name: "expected",
        about: "the cheapest paths by which the block is in time surely enough, and of these the earliest",
        parameters: &[],
        make: |_| of(|| expected::Expected),
    },
    Entry {
        name: "cwr",
        about: "lowest round-trip time first, but room is kept there for messages of periodic sources (CWR)",
        parameters: &[],
        make: |_| cwr(),
    },
    Entry {
        name: "cwr-red",
        about: "the same with room on all paths, and a copy of each such message on each (CWR+RED)",
        parameters: &[],
        make: |_| cwr_red(),
    },
    Entry {
        name: "dmtp",
        about: "as `optimizer`; what is unacknowledged of a block goes again once, at a time of its own, by the fastest path (DMTP)",
        parameters: &[optimizer::QUALITY],
        make: |values| {
            let quality = values[0];
            of(move || dmtp::Dmtp::new(quality))
        },
    },
    Entry {
        name: "earliest",
        about: "the path on which the fragment should arrive first, or any that does not hold its block up",
        parameters: &[],
        make: |_| Arc::new(|| Box::new(earliest::Earliest)),
    },
    Entry {
        name: "lowest-rtt",
        about: "of the paths with room the one with the lowest round-trip time",
        parameters: &[],
        make: |_| Arc::new(|| Box::new(lowest_rtt::LowestRtt)),
    },
    Entry {
        name: "nine-tails",
        about: "lowest round-trip time first; near the end of a block everything on every path (MAppLE, as its program has it)",
        parameters: &[],
        make: |_| nine_tails(),
    },
    Entry {
        name: "nine-tails-paper",
        about: "the same as its paper has it: near the end of a block the path with the highest rate leads",
        parameters: &[],
        make: |_| nine_tails_paper(),
    },
    Entry {
        name: "optimizer",
        about: "the cheapest paths by which enough is in time, first tries and second ones (DMTP, Chuat et al.)",
        parameters: &[optimizer::QUALITY],
        make: |values| {
            let quality = values[0];
            of(move || optimizer::Optimizer::new(quality))
        },
    },
    Entry {
        name: "redundant",
        about: "everything on every path: a path with room first catches up with the others (MAppLE)",
        parameters: &[],
        make: |_| redundant(),
    },
    Entry {
        name: "round-robin",
        about: "the paths with room in turn, fragment by fragment",
        parameters: &[],
        make: |_| Arc::new(|| Box::<round_robin::RoundRobin>::default()),
    },
    Entry {
        name: "single",
        about: "one path at a time: another only when that goes silent or closes",
        parameters: &[],
        make: |_| Arc::new(|| Box::<single::Single>::default()),
    },
];

/// The path scheduler `spec` stands for: a name of [`REGISTRY`], then if need be its parameters, as in `name:x=1,y=2`.
///
/// ```
/// # use punctual_proto::multipath;
/// assert_eq!(multipath::by_name("lowest-rtt")?().name(), "lowest-rtt");
/// assert_eq!(multipath::lowest_rtt()().name(), "lowest-rtt");
/// let error = multipath::by_name("fastest").err().expect("there is none");
/// assert_eq!(error.to_string(), "no path scheduler is called `fastest`; choose one of: expected, cwr, cwr-red, dmtp, earliest, lowest-rtt, nine-tails, nine-tails-paper, optimizer, redundant, round-robin, single");
/// # Ok::<(), punctual_proto::LookupError>(())
/// ```
pub fn by_name(spec: &str) -> Result<PathSchedulerFactory, LookupError> {
    registry::find(REGISTRY, KIND, spec)
}

/// The names [`by_name`] knows, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.name)
}

/// `expected`: the cheapest paths by which the block is in time surely enough, and of these the earliest. The default.
pub fn expected() -> PathSchedulerFactory {
    Arc::new(|| Box::new(expected::Expected))
}

/// `cwr`: lowest round-trip time first, but room is kept there for messages of periodic sources (CWR).
pub fn cwr() -> PathSchedulerFactory {
    of(|| reservation::Reservation::new(false))
}

/// `cwr-red`: as [`cwr`], with room on all paths, and a copy of each such message on each (CWR+RED).
pub fn cwr_red() -> PathSchedulerFactory {
    of(|| reservation::Reservation::new(true))
}

/// `dmtp`: as [`optimizer`]; what is unacknowledged of a block goes again once, at a time of its own, by the fastest path (DMTP).
///
/// # Errors
/// [`LookupError::BadValue`] if `quality` is out of the bounds that [`REGISTRY`] gives.
pub fn dmtp(quality: f64) -> Result<PathSchedulerFactory, LookupError> {
    registry::with(REGISTRY, KIND, "dmtp", &[quality])
}

/// `earliest`: the path on which the fragment should arrive first, or any that does not hold its block up, whatever it costs.
pub fn earliest() -> PathSchedulerFactory {
    Arc::new(|| Box::new(earliest::Earliest))
}

/// `lowest-rtt`: of the paths with room the one with the lowest round-trip time.
pub fn lowest_rtt() -> PathSchedulerFactory {
    Arc::new(|| Box::new(lowest_rtt::LowestRtt))
}

/// `nine-tails`: lowest round-trip time first; near the end of a block everything on every path (MAppLE, as its program has it).
pub fn nine_tails() -> PathSchedulerFactory {
    of(|| nine_tails::NineTails::new(nine_tails::Variant::Code))
}

/// `nine-tails-paper`: as [`nine_tails`], but as its paper has it: near the end of a block the path with the highest rate leads.
pub fn nine_tails_paper() -> PathSchedulerFactory {
    of(|| nine_tails::NineTails::new(nine_tails::Variant::Paper))
}

/// `optimizer`: the cheapest paths by which enough is in time, first tries and second ones (DMTP, Chuat et al.). `quality` is the share of the data that is to
/// be in time, 0 to 1.
///
/// # Errors
/// [`LookupError::BadValue`] if it is out of the bounds that [`REGISTRY`] gives.
pub fn optimizer(quality: f64) -> Result<PathSchedulerFactory, LookupError> {
    registry::with(REGISTRY, KIND, "optimizer", &[quality])
}

/// `redundant`: everything on every path, where a path with room first catches up with the others (MAppLE).
pub fn redundant() -> PathSchedulerFactory {
    of(|| redundant::Redundant)
}

/// `round-robin`: the paths with room in turn, fragment by fragment.
pub fn round_robin() -> PathSchedulerFactory {
    Arc::new(|| Box::<round_robin::RoundRobin>::default())
}

/// `single`: one path at a time, another only when that goes silent or closes.
pub fn single() -> PathSchedulerFactory {
    Arc::new(|| Box::<single::Single>::default())
}

/// The chance that a fragment that leaves on a path now, or when pacing lets it, and is never sent again is there by its deadline, by which `expected` and `earliest` decide;
/// without a deadline, that it arrives at all. 0 on a path that takes nothing.
///
/// How it fares against what comes of it: `punctual-sim/tests/calibration.rs`.
pub fn in_time(fragment: &FragmentView, path: &PathView, now: Instant) -> f64 {
    earliest::in_time(fragment, path, now)
}

fn of<S: PathScheduler + 'static>(make: impl Fn() -> S + Send + Sync + 'static) -> PathSchedulerFactory {
    Arc::new(move || Box::new(make()))
}

/// The default path scheduler.
pub fn default_factory() -> PathSchedulerFactory {
    REGISTRY[0].with_defaults()
}

mod dmtp;
mod earliest;
mod expected;
mod lowest_rtt;
mod nine_tails;
mod optimizer;
pub mod plan;
mod redundant;
pub(crate) mod repairs;
mod reservation;
mod round_robin;
mod simplex;
mod single;

#[cfg(test)]
mod expectimax;
#[cfg(test)]
pub(crate) mod tests;
