//! Which path, or paths, a fragment takes.
//!
//! A path scheduler is shown the fragment to send and every open path, and answers with the paths to send it on now, or
//! that it would rather wait. A new one is one new file here and one line in [`REGISTRY`].

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::schedule::{BlockView, Entry, SchedulerError, registry};

/// Names a path within a session, at this end. The first path is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path {}", self.0)
    }
}

/// Everything the sender's stations may know of a path. One read-only view that all of them share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathView {
    /// Its name.
    pub id: PathId,
    /// Whether it is trusted with data.
    pub health: PathHealth,
    /// Whether a full packet could leave on it now: it is open, and window and pacing have room.
    pub ready: bool,
    /// When pacing lets the next packet go, if only pacing stands in the way.
    pub ready_at: Option<Instant>,
    /// What the congestion controller would let it carry, bytes per second. Never 0.
    pub rate: f64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Smallest round-trip time seen.
    pub min_rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// Estimated one-way delay towards the peer, queueing included; half the RTT until it has been measured.
    pub one_way_delay: Duration,
    /// The same of an empty path: the least it was lately.
    pub min_one_way_delay: Duration,
    /// How long the path needs, at its rate, for what it was given already.
    pub backlog: Duration,
    /// How long packets waited at least that the receiver last told of, as far as that is more than they vary by anyway.
    pub queue: Duration,
    /// How much later than forecast packets arrive: nineteen of twenty no later than that.
    pub spread: Duration,
    /// How long the answer to a packet takes that does not wait: all but one in a hundred come sooner.
    pub answer: Duration,
    /// Share of packets lost lately, 0 to 1.
    pub loss: f64,
    /// How many packets are lost on end, on average; at least 1.
    pub loss_burst: f64,
    /// Congestion window, bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Cost of a byte, in the application's own unit; 0 unless set with
    /// [`Session::set_path_cost`](crate::Session::set_path_cost), here or by the peer.
    pub cost: f64,
    /// What it is for; see [`Session::set_path_role`](crate::Session::set_path_role).
    pub role: PathRole,
}

impl PathView {
    /// How long a packet that leaves now needs, behind what waits on the path already.
    pub fn delay(&self) -> Duration {
        self.one_way_delay.max(self.min_one_way_delay + self.backlog)
    }

    /// Whether what leaves now would wait behind other packets: by what the path was given, and by what those found that have arrived. (The one may
    /// be a guess, from a rate that was too low; the other is old.)
    pub fn is_busy(&self) -> bool {
        self.backlog.min(self.queue) > BUSY
    }

    /// How many bytes that leave from now on arrive by `due`, as its rate allows and its window.
    pub fn carries(&self, now: Instant, due: Instant) -> u64 {
        let time = due.saturating_duration_since(now + self.delay()).as_secs_f64();
        // What the window has room for now, and what acknowledgements make room for.
        let room = self.window.saturating_sub(self.in_flight) as f64;
        let freed = self.window as f64 * time / self.rtt.as_secs_f64().max(1e-6);
        (self.rate * time).min(room + freed) as u64
    }
}

/// How far a path is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathHealth {
    /// Being validated; no data yet.
    Opening,
    /// In use.
    Active,
    /// It is well, and a [backup](PathRole::Backup): it carries no data, for another path lives.
    Standby,
    /// It went silent with data in flight. Probed, but not given data while another path is active.
    Suspect,
}

/// The fragment a path is sought for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FragmentView {
    /// The block it belongs to.
    pub block: BlockView,
    /// Bytes of the block in this packet.
    pub len: usize,
    /// Where an earlier copy was lost, if this one is sent again.
    pub lost_on: Option<PathId>,
    /// Bytes of more urgent blocks that the path scheduler made wait for a path.
    pub ahead: u64,
}

/// The most paths a session can have open.
pub const MAX_PATHS: usize = 16;

/// Less than this is the grain of links and hosts, and no queue.
const BUSY: Duration = Duration::from_millis(1);

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
}

/// Chooses the paths for each fragment.
pub trait PathScheduler: Send {
    /// The name it is chosen by.
    fn name(&self) -> &'static str;

    /// Whether it uses all paths there are. If not, repair fragments keep to the path of what they are there for.
    fn uses_all(&self) -> bool {
        true
    }

    /// Where to send `fragment` now. At least one path of `paths` is [`ready`](PathView::ready).
    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice;
}

/// Makes a path scheduler for each new session.
pub type PathSchedulerFactory = Arc<dyn Fn() -> Box<dyn PathScheduler> + Send + Sync>;

/// The path schedulers that can be chosen by name, the default first.
pub const REGISTRY: &[Entry<PathSchedulerFactory>] = &[
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
pub fn by_name(spec: &str) -> Result<PathSchedulerFactory, SchedulerError> {
    registry::find(REGISTRY, spec)
}

/// The names [`by_name`] knows, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.name)
}

/// The default path scheduler.
pub fn default_factory() -> PathSchedulerFactory {
    REGISTRY[0].with_defaults()
}

mod earliest;
mod lowest_rtt;
mod role;
mod round_robin;
mod single;

pub use role::{PathRole, UnknownRole};

#[cfg(test)]
pub(crate) mod tests;
