//! The clairvoyant bound: how many blocks no sender can beat, not even one that knows the future.
//!
//! Statement, relaxations and proof are in `docs/bound.md`. In short: links and blocks become tasks on
//! preemptive machines, one for each path (`capacity`, `shared`, `instance`, `windows`); that falls into parts that do not touch
//! (`serve`); and of each part the lowest of several upper bounds counts (`agreeable`, `sweep`, `fractional`, put together by
//! `count`). Where blocks are of no use without others (`depends`), two more are found: of each source alone, block by block
//! (`chains`), and of all by fractions of what each block and those that it needs cost together (`amortised`).

#[cfg(test)]
mod against_pooled;
mod agreeable;
mod amortised;
mod capacity;
mod chains;
mod count;
mod depends;
#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod exhaustive_ties;
mod fractional;
mod instance;
mod serve;
mod shared;
mod sweep;
mod windows;

use std::time::Duration;

use punctual_sim::LinkSpec;

use self::{
    capacity::{Path, UNITS_PER_BYTE},
    depends::Tied,
    fractional::fractional,
    instance::Instance,
    serve::most_work,
};
pub use self::{
    depends::Ties,
    shared::{Links, Place, SharedLink},
};

/// A block that was, or will be, handed over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// When, since the links were shaped.
    pub handed_over: Duration,
    /// Counted from then; without one, it is due at the end.
    pub deadline: Option<Duration>,
    /// Bytes; 0 counts as 1.
    pub size: u32,
    /// 0 is the highest.
    pub priority: u8,
    /// What it is worth in [`Bound::weighted`], if on time; at least 0.
    pub weight: f64,
}

/// What no sender can exceed.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// Most blocks on time in all.
    pub on_time: u64,
    /// Most blocks on time of those with this or a higher priority, for each priority that occurs, the highest first.
    pub up_to_priority: Vec<(u8, u64)>,
    /// Most sum of the weights of blocks on time.
    pub weighted: f64,
    /// Most bytes of blocks on time.
    pub bytes_on_time: u64,
    /// What a sender cannot exceed on average if it does not know which packets will be lost.
    pub average: Average,
    /// Where [`on_time`](Self::on_time) comes from.
    pub origin: Origin,
}

/// What no sender exceeds on average over the losses, unless it knows which packets will be lost before it sends them. Never
/// above the [`Bound`] it belongs to; below it where packets are lost or damaged. A single run may be luckier.
#[derive(Debug, Clone, PartialEq)]
pub struct Average {
    /// Blocks on time in all.
    pub on_time: f64,
    /// Blocks on time of those with this or a higher priority.
    pub up_to_priority: Vec<(u8, f64)>,
    /// Sum of the weights of blocks on time.
    pub weighted: f64,
    /// Bytes of blocks on time.
    pub bytes_on_time: f64,
}

/// How many blocks each method decided about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// All of these can be on time: nothing stands in their way.
    pub unhindered: u64,
    /// None of these can: they are too large for their deadlines even alone.
    pub hopeless: u64,
    /// The optimum was found, of capacity that can be cut as finely as one likes.
    pub exact: u64,
    /// The sweep had to forget something, and was lowest.
    pub swept: u64,
    /// The fractional relaxation was lowest.
    pub fractional: u64,
    /// What blocks need of each other was lowest.
    pub dependent: u64,
}

/// An upper bound on what any sender can bring over `paths` in time, even one that knows the future.
///
/// `end` is when the run stops: what arrives later does not count, and blocks without a deadline are due then. Links count as they
/// are specified, from their beginning on, with their policers. That they lose packets (but see [`Bound::average`]) and have a way back
/// is ignored, which makes the bound no lower. Links that die, and those that paths share besides their own, are for [`bound_over`].
///
/// It takes some tens of milliseconds at most for a few thousand jobs, and some tenths of a second for a hundred thousand.
pub fn bound(paths: &[LinkSpec], jobs: &[Job], end: Duration) -> Bound {
    bound_over(&paths.into(), jobs, end)
}

/// The same as [`bound`] for links that die, and for paths that pass other links besides their own, and have them in common.
///
/// It is the least of what the paths' own links allow and what the shared links do, each counted once, beside the own links of the
/// paths that do not pass them; and of what policers let through that are slower than their links. With one shared link this takes twice
/// as long as without, with *n* others up to *n* + 2 times; with policers twice as long again.
///
/// ```
/// use std::time::Duration;
/// use punctual_eval::bound::{Job, Links, Place, SharedLink, bound_over};
/// use punctual_sim::LinkSpec;
///
/// let ms = Duration::from_millis;
/// let own = vec![LinkSpec::new(10.0, ms(5)), LinkSpec::new(10.0, ms(20))];
/// let modem = SharedLink { link: LinkSpec::new(8.0, ms(10)), paths: vec![0, 1], place: Place::First };
/// let links = Links { own, shared: vec![modem], ..Links::default() };
/// // 20 ms are left after 15 ms on the way: at most 20 kB at 8 Mbit/s, but some 29 kB over both paths.
/// let job = |size| [Job { handed_over: ms(0), deadline: Some(ms(35)), size, priority: 0, weight: 1.0 }];
/// let on_time = |links: &Links, size| bound_over(links, &job(size), ms(100)).on_time;
/// assert_eq!((on_time(&links, 19_000), on_time(&links, 20_000)), (1, 0));
/// // What left the first path's own link less than 5 ms before it dies never arrives: 4 ms of it are left, and 5 ms of the other.
/// let dying = Links { dies: vec![vec![(ms(19), ms(90))]], ..links };
/// assert_eq!((on_time(&dying, 10_500), on_time(&dying, 11_000)), (1, 0));
/// ```
pub fn bound_over(links: &Links, jobs: &[Job], end: Duration) -> Bound {
    bound_of_dependent(links, jobs, &[], end)
}

/// The same as [`bound_over`] for jobs that are of no use without others: one is on time if all that it needs, over any number of
/// steps, has come by its own due date as well. `ties` says of each job what it needs; those without need nothing.
///
/// It is tight for chains in order, such as the frames of a video each of which needs the one before it, up to the next that needs none;
/// of one such source. It takes twice as long, and for some thousands of jobs that need each other some tens of milliseconds more.
///
/// ```
/// use std::time::Duration;
/// use punctual_eval::bound::{Job, Links, Ties, bound_of_dependent};
/// use punctual_sim::LinkSpec;
///
/// let ms = Duration::from_millis;
/// let links = Links { own: vec![LinkSpec::new(10.0, ms(5))], ..Links::default() };
/// let job = |at, size| Job { handed_over: ms(at), deadline: Some(ms(50)), size, priority: 0, weight: 1.0 };
/// // A large frame, and a small one that needs it. The large one takes 80 ms.
/// let (jobs, needs) = ([job(0, 100_000), job(20, 1_000)], [0]);
/// let ties = [Ties::default(), Ties { source: 0, needs: &needs }];
/// let on_time = |ties| bound_of_dependent(&links, &jobs, ties, ms(100)).on_time;
/// assert_eq!((on_time(&[]), on_time(&ties[..])), (1, 0));
/// ```
pub fn bound_of_dependent(links: &Links, jobs: &[Job], ties: &[Ties<'_>], end: Duration) -> Bound {
    let cuts = shared::cuts(links);
    let tied = Tied::new(&cuts, jobs, ties, end);
    let bounds = cuts.iter().map(|cut| over(cut, jobs, tied.as_ref(), end));
    bounds.reduce(Bound::lower).unwrap_or_else(|| over(&[], jobs, tied.as_ref(), end))
}

/// The bound for these paths.
fn over(paths: &[Path], jobs: &[Job], tied: Option<&Tied<'_>>, end: Duration) -> Bound {
    let can = |job: &usize| tied.is_none_or(|tied| tied.can(*job));
    let instance = Instance::new(paths, jobs, end, (0..jobs.len()).filter(can));
    let mut counts = count::prefixes(&instance, jobs);
    // What was found exactly is never above the other, which has more capacity for everything.
    if !counts.exact && instance.windows.machines() > 1 {
        counts = counts.lower(count::prefixes(&instance.pooled(paths, jobs, end), jobs));
    }
    if let Some(dependent) = tied.and_then(|tied| tied.counts(paths, jobs, end)) {
        counts = counts.lower(dependent);
    }
    let up_to_priority: Vec<_> = counts.most.iter().map(|(priority, most)| (*priority, *most as f64)).collect();
    let ceiling = Average {
        on_time: up_to_priority.last().map_or(0.0, |(_, most)| *most),
        weighted: weighted(&instance, jobs, &up_to_priority),
        bytes_on_time: bytes_on_time(&instance, jobs).floor(),
        up_to_priority,
    };
    Bound {
        on_time: counts.most.last().map_or(0, |(_, most)| *most),
        up_to_priority: counts.most,
        weighted: ceiling.weighted,
        bytes_on_time: ceiling.bytes_on_time as u64,
        average: average(paths, &instance, jobs, tied, end, ceiling),
        origin: counts.origin,
    }
}

impl Bound {
    /// The lower of two in every figure.
    fn lower(self, other: Self) -> Self {
        let up_to = self.up_to_priority.iter().zip(&other.up_to_priority);
        Self {
            origin: if other.on_time < self.on_time { other.origin } else { self.origin },
            on_time: self.on_time.min(other.on_time),
            up_to_priority: up_to.map(|((priority, a), (_, b))| (*priority, *a.min(b))).collect(),
            weighted: self.weighted.min(other.weighted),
            bytes_on_time: self.bytes_on_time.min(other.bytes_on_time),
            average: self.average.lower(other.average),
        }
    }
}

impl Average {
    /// The lower of two in every figure.
    fn lower(self, other: Self) -> Self {
        let up_to = self.up_to_priority.iter().zip(&other.up_to_priority);
        Self {
            on_time: self.on_time.min(other.on_time),
            up_to_priority: up_to.map(|((priority, a), (_, b))| (*priority, a.min(*b))).collect(),
            weighted: self.weighted.min(other.weighted),
            bytes_on_time: self.bytes_on_time.min(other.bytes_on_time),
        }
    }
}

/// Lowers `ceiling` to what links carry that lose packets.
fn average(
    paths: &[Path],
    instance: &Instance,
    jobs: &[Job],
    tied: Option<&Tied<'_>>,
    end: Duration,
    ceiling: Average,
) -> Average {
    if !paths.iter().any(Path::is_lossy) {
        return ceiling;
    }
    let thinned: Vec<_> = paths.iter().map(Path::thinned).collect();
    let instance = instance.over(&thinned, jobs, end);
    let up_to = ceiling.up_to_priority.iter().map(|(priority, most)| {
        let within = |job: usize| f64::from(u8::from(jobs[job].priority <= *priority));
        let free: f64 = instance.free.iter().map(|job| within(*job)).sum();
        let limited = fractional(&instance.windows, &instance.tasks, |task| within(task.job));
        let dependent = tied.map_or(f64::INFINITY, |tied| tied.fractional(&thinned, jobs, end, *priority));
        (*priority, most.min(free + limited).min(dependent))
    });
    let up_to_priority: Vec<_> = up_to.collect();
    let average = Average {
        on_time: up_to_priority.last().map_or(0.0, |(_, most)| *most),
        weighted: weighted(&instance, jobs, &up_to_priority),
        bytes_on_time: bytes_on_time(&instance, jobs),
        up_to_priority,
    };
    average.lower(ceiling)
}

/// Most weight on time.
fn weighted(instance: &Instance, jobs: &[Job], up_to_priority: &[(u8, f64)]) -> f64 {
    let weight = |job: usize| if jobs[job].weight > 0.0 { jobs[job].weight } else { 0.0 };
    let free: f64 = instance.free.iter().map(|job| weight(*job)).sum();
    let most = free + fractional(&instance.windows, &instance.tasks, |task| weight(task.job));
    most.min(by_priority(up_to_priority, jobs).unwrap_or(f64::INFINITY))
}

/// Most bytes on time. All bytes are equally dear, so it is the most work that can be done.
fn bytes_on_time(instance: &Instance, jobs: &[Job]) -> f64 {
    let free: u64 = instance.free.iter().map(|job| u64::from(jobs[*job].size)).sum();
    free as f64 + most_work(&instance.windows, instance.tasks.iter().copied()) as f64 / UNITS_PER_BYTE as f64
}

/// Most weight on time, if weight follows from priority and does not rise as that falls: the counts, summed by parts (Abel).
fn by_priority(up_to_priority: &[(u8, f64)], jobs: &[Job]) -> Option<f64> {
    let mut weights = [None; 256];
    for job in jobs {
        let weight = weights[usize::from(job.priority)].get_or_insert(job.weight);
        if *weight != job.weight || job.weight < 0.0 {
            return None;
        }
    }
    let weights: Vec<f64> = weights.into_iter().flatten().collect();
    let next = weights.iter().skip(1).copied().chain([0.0]);
    let steps: Vec<f64> = weights.iter().zip(next).map(|(weight, next)| weight - next).collect();
    let falls = steps.iter().all(|step| *step >= 0.0);
    falls.then(|| steps.iter().zip(up_to_priority).map(|(step, (_, most))| step * most).sum())
}
