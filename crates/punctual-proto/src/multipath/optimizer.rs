//! The cheapest set of paths that is in time surely enough.

use std::time::{Duration, Instant};

use super::{
    FragmentView, PathChoice, PathHealth, PathId, PathScheduler, PathSet, PathView,
    lowest_rtt::LowestRtt,
    plan::{Link, Way, plan},
};

/// DMTP's optimizer (V): what goes first on which path, and again on which, follows a plan of least cost under which as much as asked for is in time
/// ([`plan`]). Fragments are dealt out by how far each way is behind its share.
///
/// What is to be sent is measured over [`PERIOD`]; a plan is made anew after that, if path, deadline or load have changed by more than a twentieth. A way whose path
/// has no room is waited for as long as the block can; else the fragment takes a path that has some. What has no deadline takes the lowest round-trip time.
/// Blocks of different deadlines share a plan, the latest one's: the paper solves one stream at a time.
pub(super) struct Optimizer {
    quality: f64,
    ways: Vec<Way>,
    /// How far each is behind its share, bytes.
    behind: Vec<f64>,
    ids: Vec<PathId>,
    links: Vec<Link>,
    deadline: f64,
    /// Bytes per second that are to be sent.
    load: f64,
    sent: u64,
    since: Option<Instant>,
}

/// The share in time that is asked for, unless said otherwise.
pub(super) const QUALITY: crate::registry::Parameter = crate::registry::Parameter {
    name: "quality",
    about: "the share of the data that is to be in time, at the least cost",
    default: 0.999,
    min: 0.0,
    max: 1.0,
};

const PERIOD: Duration = Duration::from_millis(100);
/// No plan is made anew for less.
const CHANGE: f64 = 0.05;
/// Bytes of a packet, near enough.
const FULL_PACKET: usize = 1_400;

impl Optimizer {
    pub(super) fn new(quality: f64) -> Self {
        Self {
            quality,
            ways: Vec::new(),
            behind: Vec::new(),
            ids: Vec::new(),
            links: Vec::new(),
            deadline: 0.0,
            load: 0.0,
            sent: 0,
            since: None,
        }
    }

    /// Makes the plan anew if that is due.
    fn follow(&mut self, deadline: f64, paths: &[PathView], now: Instant) {
        let usable = || paths.iter().filter(|path| path.ready || path.health == PathHealth::Active);
        let same_paths = usable().map(|path| path.id).eq(self.ids.iter().copied());
        let past = self.since.map(|since| now.saturating_duration_since(since));
        if same_paths && past.is_some_and(|past| past < PERIOD) {
            return;
        }
        let load = past.map_or(0.0, |past| self.sent as f64 / past.as_secs_f64().max(1e-3));
        (self.since, self.sent) = (Some(now), 0);
        let links: Vec<Link> = usable().map(link).collect();
        let differs = |a: f64, b: f64| (a - b).abs() > CHANGE * b.abs().max(1e-6);
        let changed = |(a, b): (&Link, &Link)| {
            differs(a.delay, b.delay)
                || (a.loss - b.loss).abs() > CHANGE / 10.0
                || differs(a.rate, b.rate)
                || a.cost != b.cost
        };
        let news = !same_paths
            || differs(load, self.load)
            || differs(deadline, self.deadline)
            || links.iter().zip(&self.links).any(changed);
        if news {
            (self.load, self.deadline) = (load, deadline);
            self.ids = usable().map(|path| path.id).collect();
            self.ways = plan(&links, load, deadline, self.quality);
            self.behind = vec![0.0; self.ways.len()];
            self.links = links;
        }
    }

    /// Where to send again what was lost there: as planned, or on the path that loses least.
    fn again(&self, lost_on: PathId, paths: &[PathView]) -> Option<PathId> {
        let of = |way: &&Way| self.ids.get(way.first) == Some(&lost_on);
        let planned = self.ways.iter().filter(of).max_by(|a, b| a.share.total_cmp(&b.share)).and_then(|way| way.again);
        let surest =
            || paths.iter().filter(|path| path.ready).min_by(|a, b| a.loss.total_cmp(&b.loss)).map(|path| path.id);
        planned.and_then(|again| self.ids.get(again).copied()).or_else(surest)
    }
}

fn link(path: &PathView) -> Link {
    let packet = FULL_PACKET as f64 / path.rate.max(1.0);
    Link {
        delay: path.min_one_way_delay.as_secs_f64() + packet,
        answer: path.answer.as_secs_f64() + packet,
        loss: path.loss.clamp(0.0, 1.0),
        rate: path.rate,
        cost: path.cost,
    }
}

impl PathScheduler for Optimizer {
    fn name(&self) -> &'static str {
        "optimizer"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        let Some(due) = fragment.block.due() else { return LowestRtt.choose(fragment, paths, now) };
        let left = due.saturating_duration_since(now);
        let len = fragment.len.min(FULL_PACKET) as f64;
        let deadline = fragment.block.deadline.unwrap_or_default().as_secs_f64();
        self.follow(deadline, paths, now);
        let chosen = match fragment.lost_on {
            Some(lost_on) => self.again(lost_on, paths),
            None => {
                self.behind.iter_mut().zip(&self.ways).for_each(|(behind, way)| *behind += way.share * len);
                let most = (0..self.ways.len()).max_by(|&a, &b| self.behind[a].total_cmp(&self.behind[b]));
                if let Some(way) = most {
                    self.behind[way] -= len;
                }
                most.and_then(|way| self.ids.get(self.ways[way].first).copied())
            }
        };
        let wanted = chosen.and_then(|id| paths.iter().find(|path| path.id == id));
        let choice = match wanted {
            Some(path) if path.ready => PathChoice::Send(PathSet::one(path.id)),
            // A packet's time more than pacing asks for, and a second try's on top.
            Some(path) if path.ready_at.is_some_and(|at| at + path.delay() * 2 < now + left) => PathChoice::Wait,
            _ => LowestRtt.choose(fragment, paths, now),
        };
        if fragment.lost_on.is_none() && choice != PathChoice::Wait {
            self.sent += len as u64;
        }
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{fragment, path},
        *,
    };
    use crate::schedule::BlockView;

    const MS: Duration = Duration::from_millis(1);

    /// DMTP's: alike but for cost and loss.
    fn paths(loss: f64) -> [PathView; 2] {
        let with = |id, cost, loss| PathView {
            cost,
            loss,
            rate: 1.9e6,
            min_one_way_delay: MS * 60,
            answer: MS * 123,
            ..path(id)
        };
        [with(0, 1.0, loss), with(1, 2.0, 0.0)]
    }

    fn due_in(millis: u32, lost_on: Option<PathId>) -> FragmentView {
        let block = BlockView { begin: Instant::now(), deadline: Some(MS * millis), ..fragment().block };
        FragmentView { block, lost_on, ..fragment() }
    }

    fn sends(optimizer: &mut Optimizer, fragment: &FragmentView, paths: &[PathView]) -> Option<PathId> {
        match optimizer.choose(fragment, paths, fragment.block.begin) {
            PathChoice::Send(paths) => paths.iter().next(),
            _ => None,
        }
    }

    #[test]
    fn first_tries_on_the_cheap_path_and_second_ones_on_the_sure_one() {
        let mut optimizer = Optimizer::new(0.999);
        assert_eq!(sends(&mut optimizer, &due_in(200, None), &paths(0.1)), Some(PathId(0)));
        assert_eq!(sends(&mut optimizer, &due_in(200, Some(PathId(0))), &paths(0.1)), Some(PathId(1)));
    }

    #[test]
    fn without_time_for_a_second_try_the_sure_path() {
        let mut optimizer = Optimizer::new(0.999);
        let taken: Vec<_> = (0..200).map(|_| sends(&mut optimizer, &due_in(130, None), &paths(0.1))).collect();
        assert!(taken.iter().filter(|id| **id == Some(PathId(0))).count() <= 4);
    }

    #[test]
    fn what_has_no_deadline_takes_the_lowest_round_trip_time() {
        let [a, b] = paths(0.0);
        let b = PathView { rtt: MS, ..b };
        assert_eq!(sends(&mut Optimizer::new(0.999), &fragment(), &[a, b]), Some(PathId(1)));
    }
}
