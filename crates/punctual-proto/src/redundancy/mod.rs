//! How many repair fragments a group of fragments gets.
//!
//! Fragments whose loss could not be made good in time by sending them again travel in *groups* of m source and n repair
//! fragments, any m of which restore the group (DTP, section III-C). When there is a group, and what is in it, is for the
//! sender to say; a policy says how large n is. It sees a [`GroupView`] and nothing else, so a new one is one new file here
//! and one line in [`REGISTRY`].

use std::{sync::Arc, time::Instant};

use crate::{
    base::PathId,
    registry::{self, Entry, LookupError},
};

mod chance;
mod dmtp;
mod dtp;
pub(crate) mod grant;
mod risk;

pub use crate::losses::Losses;

/// The most source fragments of a group. Larger ones protect better for the same bytes, but each is a chance to wait longer.
pub const MAX_SOURCES: usize = 64;
/// The most repair fragments of a group.
pub const MAX_REPAIRS: usize = 64;

/// A group that is about to get its repair fragments.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct GroupView<'a> {
    /// When.
    pub now: Instant,
    /// Its source fragments: how many went, or are to go, on each path.
    pub sources: &'a [(PathId, usize)],
    /// The path its repair fragments would take.
    pub repair_path: PathId,
    /// What is known of losses on each open path.
    pub losses: &'a [(PathId, Losses)],
    /// The priority of its most important block; 0 is the highest.
    pub priority: u8,
    /// The most source fragments any one block has in it.
    pub largest_block: usize,
    /// How likely it was that it would come to this: 1 but for fragments that are sent again, which it needed a loss for.
    pub reached: f64,
    /// A round-trip time of the path its source fragments take, for policies that look back so many of them.
    pub rtt: std::time::Duration,
}

impl<'a> GroupView<'a> {
    /// A group of fragments of one block of the highest priority, the repairs to take the first of its paths. For tests of policies.
    pub fn new(now: Instant, sources: &'a [(PathId, usize)], losses: &'a [(PathId, Losses)]) -> Self {
        Self {
            now,
            sources,
            repair_path: sources.first().map_or(PathId(0), |(path, _)| *path),
            losses,
            priority: 0,
            largest_block: sources.iter().map(|(_, count)| count).sum(),
            reached: 1.0,
            rtt: std::time::Duration::from_millis(50),
        }
    }

    /// m.
    pub fn len(&self) -> usize {
        self.sources.iter().map(|(_, count)| count).sum()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of losses on a path; nothing, if it is not open.
    pub fn losses_on(&self, path: PathId) -> Losses {
        self.losses.iter().find(|(id, _)| *id == path).map_or_else(Losses::default, |(_, losses)| *losses)
    }

    /// The share of source fragments to be lost.
    pub fn expected_loss(&self) -> f64 {
        let lost = self.sources.iter().map(|&(path, count)| count as f64 * self.losses_on(path).rate());
        lost.sum::<f64>() / self.len().max(1) as f64
    }

    /// The chance that any source fragment is lost, if each is by itself.
    pub fn chance_of_loss(&self) -> f64 {
        1.0 - (1.0 - self.expected_loss().clamp(0.0, 1.0)).powf(self.len() as f64)
    }
}

/// A group whose fragments have all met their fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupFate {
    /// When the last of them did.
    pub at: Instant,
    /// Source and repair fragments sent.
    pub sent: usize,
    /// How many of them were lost.
    pub lost: usize,
}

/// Says how many repair fragments a group gets.
pub trait Policy: Send {
    /// The name it is chosen by.
    fn name(&self) -> &'static str;

    /// n. The sender makes it less where the path has no room for so many, and where it is more than 4 m + 8, which is all that the protocol allows. It may ask
    /// again for the same group on another path, if the first has no room.
    fn repairs(&mut self, group: &GroupView<'_>) -> usize;

    /// What became of an earlier group.
    fn on_fate(&mut self, fate: &GroupFate) {
        let _ = fate;
    }
}

/// Makes a policy for each new session.
pub type PolicyFactory = Arc<dyn Fn() -> Box<dyn Policy> + Send + Sync>;

/// What these are called in errors.
const KIND: &str = "redundancy policy";

/// The policies that can be chosen by name, the default first.
pub const REGISTRY: &[Entry<PolicyFactory>] = &[
    Entry {
        name: "risk",
        about: "the fewest that keep the chance of a miss below a target, by what is known of loss and its bursts",
        parameters: &[risk::TARGET],
        make: |values| {
            let target = values[0];
            Arc::new(move || Box::new(risk::Risk::new(target)))
        },
    },
    Entry {
        name: "dtp",
        about: "to cover the worst loss of a group in the last 8 RTT, or else the mean (DTP)",
        parameters: &[],
        make: |_| Arc::new(|| Box::<dtp::Dtp>::default()),
    },
    Entry {
        name: "dmtp",
        about: "to cover the worst loss of the last groups, up to a cap (DMTP)",
        parameters: &[dmtp::CAP],
        make: |values| {
            let cap = values[0];
            Arc::new(move || Box::new(dmtp::Dmtp::new(cap)))
        },
    },
];

/// The policy `spec` stands for: a name of [`REGISTRY`], then if need be its parameters, as in `risk:target=0.01`.
///
/// ```
/// # use punctual_proto::redundancy;
/// assert_eq!(redundancy::by_name("risk:target=0.01")?().name(), "risk");
/// assert_eq!(redundancy::risk(0.01)?().name(), "risk");
/// # Ok::<(), punctual_proto::LookupError>(())
/// ```
pub fn by_name(spec: &str) -> Result<PolicyFactory, LookupError> {
    registry::find(REGISTRY, KIND, spec)
}

/// The names [`by_name`] knows, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.name)
}

/// `risk`: the fewest that keep the chance of a miss below `target`, by what is known of loss and its bursts. The default.
///
/// # Errors
/// [`LookupError::BadValue`] if it is out of the bounds that [`REGISTRY`] gives.
pub fn risk(target: f64) -> Result<PolicyFactory, LookupError> {
    registry::with(REGISTRY, KIND, "risk", &[target])
}

/// `dtp`: to cover the worst loss of a group in the last 8 RTT, or else the mean.
pub fn dtp() -> PolicyFactory {
    Arc::new(|| Box::<dtp::Dtp>::default())
}

/// `dmtp`: to cover the worst loss of the last groups, up to `cap`.
///
/// # Errors
/// As for [`risk`].
pub fn dmtp(cap: f64) -> Result<PolicyFactory, LookupError> {
    registry::with(REGISTRY, KIND, "dmtp", &[cap])
}

/// The default policy.
pub fn default_factory() -> PolicyFactory {
    REGISTRY[0].with_defaults()
}
