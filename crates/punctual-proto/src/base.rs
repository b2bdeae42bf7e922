//! What all stations share, and what depends on none of them: names and views of paths, kinds of fragments.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::role::PathRole;

/// Names a path within a session, at this end. The first path is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path {}", self.0)
    }
}

/// Timers and schedulers of real hosts are late by about this much.
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);
/// Less than this is the grain of links and hosts, and no queue.
const BUSY: Duration = Duration::from_millis(1);

/// Everything the sender's stations may know of a path. One read-only view that all of them share.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
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
    /// How much of that only for a moment: for what a policer's bucket holds.
    pub momentary: f64,
    /// Nothing has shown yet that it carries no more: `rate` is what it was seen to carry, and may be a small part of it.
    pub growing: bool,
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
    /// How much later than forecast half of the packets arrive, and no more than [`spread`](Self::spread): next to nothing where each is late by its own chance, most of that where
    /// packets keep their order, so that one that is late holds up those behind it.
    pub late_by: Duration,
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
    /// The share of its [budget](crate::multipath::PathBudget) that is left, from 0 to 1; without one, 1.
    pub budget_left: f64,
    /// The first of the paths with which it was found to share a bottleneck, or itself, if it is the first of several; of a path that is not known
    /// to share one, none. See [`shares_with`](Self::shares_with).
    pub bottleneck: Option<PathId>,
}

impl PathView {
    /// An empty path that is in use, has never lost anything and costs nothing, with this rate (bytes per second) and round trip. For tests of schedulers.
    pub fn new(id: PathId, rate: f64, rtt: Duration) -> Self {
        Self {
            id,
            health: PathHealth::Active,
            ready: true,
            ready_at: None,
            rate,
            momentary: 0.0,
            growing: false,
            rtt,
            min_rtt: rtt,
            rtt_var: Duration::ZERO,
            one_way_delay: rtt / 2,
            min_one_way_delay: rtt / 2,
            backlog: Duration::ZERO,
            queue: Duration::ZERO,
            spread: Duration::ZERO,
            late_by: Duration::ZERO,
            answer: rtt,
            loss: 0.0,
            loss_burst: 1.0,
            window: (2.0 * rate * rtt.as_secs_f64()) as u64,
            in_flight: 0,
            cost: 0.0,
            role: PathRole::default(),
            budget_left: 1.0,
            bottleneck: None,
        }
    }

    /// Whether it was found to share a bottleneck with another path: what waits or is lost there on one does on the other.
    pub fn shares_with(&self, other: &Self) -> bool {
        self.bottleneck.is_some() && self.bottleneck == other.bottleneck
    }

    /// By how much more than half of all packets one in twenty is late.
    pub(crate) fn spread_beyond(&self) -> Duration {
        self.spread.saturating_sub(self.late_by)
    }

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

/// The chance that a block of the highest priority may run of missing its deadline though there is a way to be surer.
pub(crate) const MISS: f64 = 1e-3;
/// The lowest priority bears this much more risk than the highest, with those between on a geometric scale.
const LOWEST_BEARS: f64 = 10.0;

/// How much more risk blocks of a priority bear than those of the highest.
pub(crate) fn bears(priority: u8) -> f64 {
    LOWEST_BEARS.powf(f64::from(priority) / 255.0)
}

/// How far a path is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathHealth {
    /// Being validated; no data yet.
    Opening,
    /// In use.
    Active,
    /// It is well, and a [backup](PathRole::Backup): it carries no data, for another path lives.
    Standby,
    /// It went silent with data in flight. Probed, but not given data while another path is active.
    Suspect,
    /// It is no more ([`Session::closed_path_stats`](crate::Session::closed_path_stats)).
    Closed,
}

impl PathHealth {
    /// The word for it in logs, metrics and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Suspect => "suspect",
            Self::Closed => "closed",
        }
    }
}

/// Why the bytes of a fragment went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FragmentKind {
    /// For the first time.
    Source,
    /// Once more, because the packet that carried them was lost or is taken for lost. (Rarely QUIC throws away the first
    /// packet before it leaves, when the MTU has fallen: that one is not seen at all.)
    Resent,
    /// As a copy of a fragment that the path scheduler wanted on several paths.
    Copy,
    /// Not bytes of the block, but a repair fragment of a group in which the block has a part.
    Repair,
}

/// How far a block had come when it ended: what had become of each of its bytes. All but `size` add up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remains {
    /// The block's size, bytes.
    pub size: u64,
    /// Bytes that had never left.
    pub never_sent: u64,
    /// Bytes that were lost, and had not been sent again.
    pub lost: u64,
    /// Bytes that had left, and of which nothing had been heard.
    pub unanswered: u64,
    /// Bytes that the peer's QUIC had acknowledged.
    pub arrived: u64,
}

impl Remains {
    /// Why a block that is not there in time is not, in a word: it was *not begun* when its time was up, *not finished*, something was *lost* and not
    /// made good, or all of it is *unanswered*, on its way or with the peer.
    pub fn cause(&self) -> &'static str {
        match self {
            _ if self.never_sent == self.size => "not_begun",
            _ if self.never_sent > 0 => "not_finished",
            _ if self.lost > 0 => "lost",
            _ => "unanswered",
        }
    }
}

/// A packet whose answer is awaited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awaited {
    /// QUIC's number of it.
    pub(crate) number: u64,
    pub(crate) sent: Instant,
    /// How long it was expected to wait on its way.
    pub(crate) wait: Duration,
    /// It bears bytes of blocks.
    pub(crate) bears: bool,
    /// Nothing that left after it has been acknowledged.
    pub(crate) tail: bool,
}

/// The paths that are free of doubt, or all, if none is.
pub(crate) fn trusted(paths: &[PathView]) -> impl Iterator<Item = &PathView> + Clone {
    let any = paths.iter().any(|view| view.health == PathHealth::Active);
    paths.iter().filter(move |view| !any || view.health == PathHealth::Active)
}
