//! What a group is granted: as many repair fragments as the policy asks for and as there is room for, by which of two paths, and how far apart they leave.

use std::time::{Duration, Instant};

use super::{GroupView, MAX_REPAIRS};
use crate::{
    base::{GRANULARITY, PathId, PathView},
    fec::most_repairs,
    multipath::repairs::Fit,
};

/// A path with a longer queue than this is busy: with others' packets, or with more than it carries.
const BUSY: Duration = Duration::from_millis(10);
/// On a busy path a group is given repair fragments if as many packets as this, on average, would be lost with one of its own.
const WORTH: f64 = 0.02;
/// More likely than not a group loses something, and without repair fragments what is spent on its sources is in vain.
const LIKELY: f64 = 0.5;
/// Bursts of losses longer than this are worth spreading repair fragments for.
const BURST: f64 = 1.5;
/// While there is but a guess of what a path loses, a group of so many gets one repair fragment there. Nor is it known then what the path carries, and against three losses in a hundred, which is the guess, a first
/// frame of two fragments had four: half a second of 0.15 Mbit/s.
const GUESSED: usize = 3;
/// Where a group got no repair fragments for want of room, none is begun for so long; for want of losses, for a quarter of a round trip, and at least this long.
const REST: Duration = Duration::from_millis(5);

/// No group is begun that would most likely get no repair fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) until: Instant,
    /// On this path; if none, on all.
    pub(crate) path: Option<PathId>,
    /// For blocks of this priority and less important ones.
    pub(crate) priority: u8,
}

/// A path that the repair fragments might take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) view: PathView,
    /// Bytes of other groups' repair fragments that wait for it.
    pub(crate) waiting: u64,
}

/// What is known of a group that is to get its repair fragments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// What policies see of it; for each path, that one is put in.
    pub(crate) group: GroupView<'a>,
    /// Bytes of each of its fragments.
    pub(crate) shard: usize,
    /// When the first of its blocks is due.
    pub(crate) first_due: Option<Instant>,
    /// The peer has all of it.
    pub(crate) has_arrived: bool,
    /// The application wants redundancy for one of its blocks, whatever we think of it.
    pub(crate) asked_for: bool,
    /// One of its blocks depends on others, or others on it.
    pub(crate) is_of_family: bool,
    /// Bytes that can go before what else is there, without making that late.
    pub(crate) spare: u64,
    /// Bytes that leave room beside what is handed over, so that what came late is still caught up with.
    pub(crate) beside: u64,
}

/// What a group gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) repairs: usize,
    pub(crate) path: PathId,
    /// How far apart they leave.
    pub(crate) gap: Duration,
    /// How long groups like this one are not worth beginning.
    pub(crate) rest: Option<Rest>,
}

impl Request<'_> {
    /// By the `first` path, or that of most of its sources (`majority`, given as `of_sources` if it is another one) if a larger part of what is needed there has room.
    /// `policy`: how many repair fragments a group should have.
    pub(crate) fn grant(
        &self,
        first: Candidate,
        of_sources: Option<Candidate>,
        majority: PathId,
        mut policy: impl FnMut(&GroupView<'_>) -> usize,
    ) -> Grant {
        let now = self.group.now;
        let fit = self.fit_on(first, &mut policy);
        let Fit { path: view, wanted, fits: repairs } =
            fit.or_where_more_fit(|| of_sources.map(|candidate| self.fit_on(candidate, &mut policy)));
        let rest = (repairs == 0 && !self.has_arrived).then(|| {
            // Clean is a path, and for longer than full are all: the next report may show that there is room.
            let (path, rest) = if wanted == 0 { (Some(majority), (view.rtt / 4).max(REST)) } else { (None, REST) };
            Rest { until: now + rest, path, priority: self.group.priority }
        });
        let is_guess = self.group.losses_on(view.id).is_guess() && !self.asked_for;
        let repairs = if is_guess { repairs.min(self.group.len() / GUESSED) } else { repairs };
        Grant { repairs, path: view.id, gap: self.spread(&view, repairs), rest }
    }

    fn fit_on(&self, candidate: Candidate, policy: &mut impl FnMut(&GroupView<'_>) -> usize) -> Fit {
        let Candidate { view, waiting } = candidate;
        let group = GroupView { repair_path: view.id, rtt: view.rtt, ..self.group };
        let chance = group.chance_of_loss();
        // Behind a queue, what is added makes all that follows later.
        let worth = view.backlog <= BUSY || self.asked_for || group.len() as f64 * chance >= WORTH;
        let wanted = if self.has_arrived || !worth { 0 } else { policy(&group) };
        let most = usize::try_from(self.room(view, waiting, chance) / self.shard.max(1) as u64).unwrap_or(usize::MAX);
        Fit { path: view, wanted, fits: wanted.min(most).min(MAX_REPAIRS).min(most_repairs(group.len())) }
    }

    /// Bytes of repair fragments that there is room for on a path.
    fn room(&self, view: PathView, waiting: u64, chance_of_loss: f64) -> u64 {
        // Not more than can go before what else is there. Nor so much that what came late would never be caught up with: what is asked for gets it nevertheless, and
        // blocks that would most likely be in vain without, unless others depend on them, which would be late with them.
        let in_vain = chance_of_loss >= LIKELY && !self.is_of_family;
        let room = if self.asked_for || in_vain { self.spare } else { self.spare.min(self.beside) };
        // Nor more than can get there itself, behind those of other groups.
        let carries = |due| view.carries(self.group.now, due).saturating_sub(waiting);
        self.first_due.map_or(room, |due| room.min(carries(due)))
    }

    /// At once where losses are single; where they come in bursts, as far apart as a burst lasts, if there is time.
    fn spread(&self, path: &PathView, repairs: usize) -> Duration {
        if path.loss_burst < BURST || repairs == 0 {
            return Duration::ZERO;
        }
        let burst = Duration::from_secs_f64(path.loss_burst * self.shard as f64 / path.rate.max(1.0));
        let there = self.group.now + path.one_way_delay + GRANULARITY;
        let left = self.first_due.map_or(path.rtt, |due| due.saturating_duration_since(there));
        burst.min(left / (repairs as u32 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{multipath::tests::path, redundancy::Losses};

    const MS: Duration = Duration::from_millis(1);
    const SHARD: usize = 1_000;

    /// A group of ten on path 0, and what is known of two paths, each of which has lost every tenth of a hundred packets.
    fn with<R>(ask: impl FnOnce(Request<'_>) -> R) -> R {
        let mut losses = Losses::default();
        (0..100).for_each(|number| losses.note(number % 10 == 0));
        let now = Instant::now();
        let (sources, losses) = ([(PathId(0), 10)], [(PathId(0), losses), (PathId(1), losses)]);
        ask(Request {
            group: GroupView::new(now, &sources, &losses),
            shard: SHARD,
            first_due: Some(now + MS * 100),
            has_arrived: false,
            asked_for: false,
            is_of_family: true,
            spare: u64::MAX,
            beside: u64::MAX,
        })
    }

    /// What it gets by path 1, where ten are wanted.
    fn granted(request: &Request<'_>, view: PathView) -> Grant {
        request.grant(Candidate { view, waiting: 0 }, None, PathId(0), |_| 10)
    }

    #[test]
    fn as_many_as_there_is_room_for() {
        with(|request| {
            let repairs = |request: Request<'_>, view: PathView| granted(&request, view).repairs;
            assert_eq!(repairs(request, path(1)), 10);
            assert_eq!(repairs(Request { spare: 4_999, ..request }, path(1)), 4, "before what else is there");
            assert_eq!(repairs(Request { beside: 3_000, ..request }, path(1)), 3, "to catch up");
            let slow = PathView { rate: 100e3, ..path(1) };
            assert_eq!(repairs(request, slow), 7, "75 ms are left once there");
            let others = Candidate { view: slow, waiting: 5_000 };
            assert_eq!(request.grant(others, None, PathId(0), |_| 10).repairs, 2, "behind those of other groups");
            // Whom the application wants protected is not held back by what is to be caught up with, nor by a queue, nor is what would be in vain.
            let busy = PathView { backlog: BUSY + MS, ..path(1) };
            for free in [Request { asked_for: true, ..request }, Request { is_of_family: false, ..request }] {
                assert_eq!(repairs(Request { beside: 0, ..free }, path(1)), 10);
                assert_eq!(repairs(free, busy), 10);
            }
        });
    }

    #[test]
    fn none_where_nothing_is_lost_or_lacking() {
        with(|request| {
            let arrived = granted(&Request { has_arrived: true, ..request }, path(1));
            assert_eq!((arrived.repairs, arrived.rest), (0, None));
            let mut clean = Losses::default();
            (0..1_000).for_each(|_| clean.note(false));
            let clean = [(PathId(0), clean), (PathId(1), clean)];
            let group = GroupView { losses: &clean, ..request.group };
            let busy = PathView { backlog: BUSY + MS, ..path(1) };
            let one = Request { group: GroupView { sources: &[(PathId(0), 1)], ..group }, ..request };
            assert_eq!(granted(&one, path(1)).repairs, 10, "the policy's to say");
            assert_eq!(granted(&one, busy).repairs, 0, "not worth what waits behind it");
        });
    }

    #[test]
    fn groups_that_would_get_none_rest() {
        with(|request| {
            let now = request.group.now;
            let full = granted(&Request { spare: 0, ..request }, path(1)).rest;
            assert_eq!(full, Some(Rest { until: now + REST, path: None, priority: 0 }));
            let clean = request.grant(Candidate { view: path(1), waiting: 0 }, None, PathId(0), |_| 0).rest;
            assert_eq!(clean, Some(Rest { until: now + path(1).rtt / 4, path: Some(PathId(0)), priority: 0 }));
            assert_eq!(granted(&request, path(1)).rest, None);
        });
    }

    #[test]
    fn by_the_path_of_the_sources_where_more_has_room() {
        with(|request| {
            let slow = Candidate { view: PathView { rate: 40e3, ..path(1) }, waiting: 0 };
            let own = Candidate { view: path(0), waiting: 0 };
            let asked = std::cell::RefCell::new(Vec::new());
            let policy = |group: &GroupView<'_>| {
                asked.borrow_mut().push(group.repair_path);
                4
            };
            let grant = request.grant(slow, Some(own), PathId(0), policy);
            assert_eq!((grant.repairs, grant.path), (4, PathId(0)));
            assert_eq!(asked.take(), [PathId(1), PathId(0)], "it is told which path is meant");
            let enough = request.grant(Candidate { view: path(1), waiting: 0 }, Some(own), PathId(0), policy);
            assert_eq!((enough.repairs, enough.path), (4, PathId(1)));
            assert_eq!(asked.take(), [PathId(1)], "nobody asks for what is not needed");
        });
    }

    #[test]
    fn bursts_are_waited_out_if_there_is_time() {
        with(|request| {
            assert_eq!(granted(&request, path(1)).gap, Duration::ZERO, "losses are single");
            let bursts = PathView { loss_burst: 4.0, ..path(1) };
            assert_eq!(granted(&request, bursts).gap, MS * 4, "four packets of a millisecond each");
            let soon = Request { first_due: Some(request.group.now + MS * 40), ..request };
            let gap = granted(&soon, bursts).gap;
            assert!(gap > Duration::ZERO && gap * 11 <= MS * 15, "{gap:?}: of all the last is in time, too");
        });
    }
}
