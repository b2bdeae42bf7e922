//! The cheapest paths by which a block is in time surely enough; of these the one on which the fragment is expected first.

use std::time::{Duration, Instant};

use super::{
    FragmentView, MAX_PATHS, PathChoice, PathRole, PathScheduler, PathSet, PathView,
    earliest::{self, FULL_PACKET},
};
use crate::base::{GRANULARITY, MISS, bears};

/// Cheap paths first, and dear ones where the cheap would not do. The default.
///
/// Paths of the same [`price`] are alike, but for those that others need [more](FragmentView::wanted), which come last of them. Those that cost least are enough for a block if all that it has to send, behind what waits for them already,
/// is across by its deadline, but for a chance no greater than it may run:
///
/// ```text
/// Σ rate_i · (T − start_i)⁺ = bytes before its end and its own       T: when the last of them arrives, over all these paths at once
/// late(T, twice the time that is not mere distance) + n · lost ≤ ε   ε: by its priority, n: fragments of the block
/// ```
///
/// where rate_i is no more than the window lets go in a round trip, start_i when path i begins to deliver, and `lost` the chance that the fragment at hand is
/// lost and nothing can be done about it:
///
/// ```text
/// loss_i · least loss of another try        if it may be sent again: where there is time to find it lost, behind the queue, and to send it again
///                                           (squared if that has repair fragments)
/// 0                                         if repair fragments on a dearer path cost less than the rest of the block would there
/// loss_i                                    otherwise
/// ```
///
/// Of these paths those are left out on which it would be lost too easily. If the others are not enough, the next dearer join them, and so on. Among the paths so found it is [`earliest`] that decides, be it to wait for
/// one: a dear path carries what the cheap ones cannot, and what was lost there when it is on its last chance. (So a try on the cheap path
/// and, for what it loses, one on the dear path: 1 + τ · cost instead of cost; the aim is that of DMTP's optimizer, V, but fragment by fragment, for what it knows of paths
/// changes faster than plans.) Where all cost the same, and none is wanted more by others, all are taken together, and so they are by what has no deadline.
pub(super) struct Expected;

impl PathScheduler for Expected {
    fn name(&self) -> &'static str {
        "expected"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        let enough = Bargain::new(fragment, paths, now).and_then(|bargain| bargain.enough());
        earliest::among(fragment, paths, now, |path| enough.is_none_or(|enough| enough.contains(path.id)))
    }
}

/// What a byte costs on a path, for comparison alone: less than nothing if the path is [preferred](PathRole::Preferred), and more than on any that has no
/// budget if half of its own is spent.
fn price(path: &PathView) -> f64 {
    match path.role {
        _ if path.budget_left < SCARCE => path.cost + SCARCE_COST,
        PathRole::Preferred => -1.0 / (1.0 + path.cost),
        PathRole::Normal | PathRole::Backup => path.cost,
    }
}

/// In what order paths are tried: by price, and of those that cost the same first the ones that nobody else needs more.
fn rank(path: &PathView, fragment: &FragmentView) -> (f64, bool) {
    (price(path), fragment.wanted.contains(path.id))
}

/// Of a budget half is kept for what would be late without.
const SCARCE: f64 = 0.5;
const SCARCE_COST: f64 = 1e9;

/// A fragment that is due, and paths of different costs.
struct Bargain<'a> {
    fragment: &'a FragmentView,
    paths: &'a [PathView],
    left: Duration,
    now: Instant,
    /// The chance of being late that its block may run.
    allowed: f64,
    /// How many fragments share that.
    fragments: f64,
    /// How long the fragment would take, path by path.
    arrivals: [Option<Duration>; MAX_PATHS],
}

impl<'a> Bargain<'a> {
    /// `None` if all paths are alike, or it does not matter.
    fn new(fragment: &'a FragmentView, paths: &'a [PathView], now: Instant) -> Option<Self> {
        let paths = &paths[..paths.len().min(MAX_PATHS)];
        let first = rank(paths.first()?, fragment);
        if paths.iter().all(|path| rank(path, fragment) == first) {
            return None;
        }
        let left = fragment.block.due()?.saturating_duration_since(now);
        let fragments = (fragment.block.size as f64 / FULL_PACKET as f64).ceil().max(1.0);
        let len = fragment.len.min(FULL_PACKET) as u64;
        let mut arrivals = [None; MAX_PATHS];
        arrivals.iter_mut().zip(paths).for_each(|(of, path)| *of = earliest::arrival(path, len, now));
        let allowed = MISS * bears(fragment.block.priority);
        Some(Self { fragment, paths, left, now, allowed, fragments, arrivals })
    }

    /// The paths and how long the fragment would take on each; those on which it can go, if only after a while.
    fn open(&self) -> impl Iterator<Item = (&'a PathView, Duration)> {
        self.paths.iter().zip(self.arrivals).filter_map(|(path, arrival)| Some((path, arrival?)))
    }

    /// The cheapest paths that are enough; `None` if all of them are asked for.
    fn enough(&self) -> Option<PathSet> {
        // What is lost of the block, path by path, should all of it go there; in the order of prices.
        let mut offers = [((0.0, false), 0.0, None::<&PathView>); MAX_PATHS];
        let mut count = 0;
        for (path, arrival) in self.open() {
            offers[count] = (rank(path, self.fragment), self.fragments * self.lost(path, arrival), Some(path));
            count += 1;
        }
        let offers = &mut offers[..count];
        offers.sort_by(|(a, ..), (b, ..)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut end = 0;
        while end < count {
            let most = offers[end].0;
            end += offers[end..].iter().take_while(|(rank, ..)| *rank == most).count();
            if end == count && offers[0].0.0 == most.0 {
                // They all cost the same, and are all needed: as if nobody else wanted them.
                return None;
            }
            let sure = || offers[..end].iter().filter(|(_, lost, _)| *lost <= self.allowed);
            let paths = || sure().filter_map(|(_, lost, path)| Some(((*path)?, *lost)));
            let Some(across) = across(paths().map(|(path, _)| path), self.fragment.whole(), self.now) else { continue };
            let is_enough = paths().all(|(path, lost)| {
                // A rate may be half of what it seems.
                let across = across + across.saturating_sub(path.min_one_way_delay);
                earliest::late(path, across, self.left) + lost <= self.allowed
            });
            if is_enough {
                let mut set = PathSet::default();
                paths().for_each(|(path, _)| set.push(path.id));
                return Some(set);
            }
        }
        None
    }

    /// The chance that it is lost on a path where it arrives at `arrival`, and that nothing is to be done about it.
    fn lost(&self, path: &PathView, arrival: Duration) -> f64 {
        let is_first = self.fragment.lost_on.is_none();
        if is_first && self.fragment.redundancy.resends() {
            // The answer waits behind the queue, too, and the alarm for what is later than that.
            let known = arrival.saturating_sub(path.min_one_way_delay) + path.answer + path.spread + GRANULARITY;
            let second = self.lost_again(known);
            if second < 1.0 {
                // That is its last chance, for which there are repair fragments.
                return path.loss * if self.fragment.redundancy.repairs() { second * second } else { second };
            }
        }
        if is_first && self.fragment.redundancy.repairs() && self.repairs_are_cheaper(path) { 0.0 } else { path.loss }
    }

    /// What is lost of second tries that leave so late, where least of them is that are still in time; all, if none is.
    fn lost_again(&self, known: Duration) -> f64 {
        // Who leaves a path to others does not count on it for this, either.
        let own = self.open().filter(|(path, _)| !self.fragment.wanted.contains(path.id));
        let in_time = own.filter(|(_, arrival)| known + *arrival + MARGIN <= self.left);
        in_time.map(|(path, _)| path.loss).fold(1.0, f64::min)
    }

    /// Whether repair fragments on the next dearer path, for what is left of the block, cost less there than that itself.
    fn repairs_are_cheaper(&self, path: &PathView) -> bool {
        let sources = (self.fragment.block.unsent as f64 / FULL_PACKET as f64).ceil().max(1.0);
        let lost = path.loss * sources;
        let deviation = (lost * (1.0 - path.loss) * path.loss_burst).sqrt();
        let repairs = lost + SIGMAS * deviation + 1.0;
        let dearer = self.paths.iter().map(|path| path.cost).filter(|cost| *cost > path.cost);
        let dearer = dearer.fold(f64::INFINITY, f64::min);
        repairs * dearer < sources * (dearer - path.cost)
    }
}

/// Second tries are counted on that are in time by this much: QUIC's timers are late by a millisecond, and hosts are.
const MARGIN: Duration = Duration::from_millis(2);
/// Repair fragments are for losses as many standard deviations above the mean.
const SIGMAS: f64 = 3.0;

/// How long from now until so many bytes would be across, on all these paths at once.
fn across<'a>(paths: impl Iterator<Item = &'a PathView>, bytes: u64, now: Instant) -> Option<Duration> {
    // When each begins to deliver, and how fast.
    let mut starts = [(f64::INFINITY, 0.0); MAX_PATHS];
    let mut count = 0;
    for path in paths.take(MAX_PATHS) {
        if let Some(start) = earliest::arrival(path, 0, now) {
            // A window that has not been measured yet may be all that there is for a round trip.
            let opens = path.window as f64 / path.rtt.as_secs_f64().max(1e-6);
            starts[count] = (start.as_secs_f64(), path.rate.min(opens).max(1.0));
            count += 1;
        }
    }
    let starts = &mut starts[..count];
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut left, mut rate) = (bytes as f64, 0.0);
    for (i, (start, own)) in starts.iter().enumerate() {
        rate += own;
        let next = starts.get(i + 1).map_or(f64::INFINITY, |(next, _)| *next);
        let time = left / rate;
        if start + time <= next {
            return Duration::try_from_secs_f64(start + time).ok();
        }
        left -= rate * (next - start);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{fragment, path},
        *,
    };
    use crate::{base::PathId, block::Redundancy, schedule::BlockView};

    const MS: Duration = Duration::from_millis(1);

    /// So many bytes, all of them to be sent, due after so many milliseconds.
    fn block(now: Instant, size: u64, millis: u32) -> FragmentView {
        let block = BlockView { begin: now, deadline: Some(MS * millis), size, unsent: size, ..fragment().block };
        FragmentView { block, ..fragment() }
    }

    fn on(id: u32) -> PathChoice {
        PathChoice::Send(PathSet::one(PathId(id)))
    }

    /// 1 MB/s and 60 ms one way, its answers after 122; path 0 costs 1, and path 1 twice as much.
    fn pair() -> [PathView; 2] {
        let with = |id: u32| PathView {
            min_one_way_delay: MS * 60,
            one_way_delay: MS * 60,
            rtt: MS * 120,
            answer: MS * 122,
            window: 240_000,
            cost: f64::from(id + 1),
            ..path(id)
        };
        [with(0), with(1)]
    }

    #[test]
    fn the_cheap_path_while_it_is_enough() {
        let now = Instant::now();
        let [cheap, dear] = pair();
        // 20 kB take 80 ms there, or 100 if it carries half; 50 kB take 110 or 160.
        for (size, within, expected) in [(20_000, 130, 0), (50_000, 110, 1), (50_000, 200, 0)] {
            let busy = PathView { one_way_delay: MS * 61, backlog: MS, ..cheap };
            assert_eq!(Expected.choose(&block(now, size, within), &[busy, dear], now), on(expected), "{size} {within}");
        }
        // It is worth waiting for.
        let paced = PathView { ready: false, ready_at: Some(now + MS * 5), ..cheap };
        assert_eq!(Expected.choose(&block(now, 20_000, 150), &[paced, dear], now), PathChoice::Wait);
        // But not if its window is all that there is for a round trip.
        let narrow = PathView { window: 12_000, in_flight: 12_000, ready: false, ..cheap };
        assert_eq!(Expected.choose(&block(now, 50_000, 200), &[narrow, dear], now), on(1));
        let patient = FragmentView { block: BlockView { deadline: None, ..block(now, 1_000, 1).block }, ..fragment() };
        let busy = PathView { backlog: MS * 5, ..cheap };
        assert_eq!(Expected.choose(&patient, &[busy, dear], now), on(1), "without a deadline the earliest");
    }

    #[test]
    fn a_first_try_on_the_cheap_path_and_the_last_on_the_sure_one() {
        let now = Instant::now();
        let [cheap, dear] = pair();
        let lossy = PathView { loss: 0.1, loss_burst: 1.0, ..cheap };
        // Found lost after 124 ms, and there after 61 more; half the time is not enough, and few fragments are not worth a group.
        for (within, expected) in [(200, 0), (180, 1)] {
            assert_eq!(Expected.choose(&block(now, 1_000, within), &[lossy, dear], now), on(expected), "{within} ms");
        }
        let once = FragmentView { redundancy: Redundancy::None, ..block(now, 1_000, 200) };
        assert_eq!(Expected.choose(&once, &[lossy, dear], now), on(1), "what is lost of it is lost");
        let again = FragmentView { lost_on: Some(lossy.id), ..block(now, 1_000, 200) };
        assert_eq!(Expected.choose(&again, &[lossy, dear], now), on(1), "it would be the last try");
        // 40 fragments with 11 repair fragments on the dear path cost less than 40 there; unprotected they would be lost.
        let wide = |loss| PathView { rate: 1e7, window: 10_000_000, loss, loss_burst: 1.0, ..cheap };
        let large = block(now, 56_000, 180);
        assert_eq!(Expected.choose(&large, &[wide(0.1), dear], now), on(0));
        let bare = FragmentView { redundancy: Redundancy::Retransmit, ..large };
        assert_eq!(Expected.choose(&bare, &[wide(0.1), dear], now), on(1));
    }

    #[test]
    fn a_preferred_path_comes_first_and_a_scarce_one_last() {
        let now = Instant::now();
        let [one, other] = pair().map(|path| PathView { cost: 0.0, ..path });
        let slower = PathView { one_way_delay: MS * 70, min_one_way_delay: MS * 70, ..one };
        let small = |within| block(now, 1_000, within);
        assert_eq!(Expected.choose(&small(200), &[slower, other], now), on(1));
        let preferred = PathView { role: PathRole::Preferred, ..slower };
        assert_eq!(Expected.choose(&small(200), &[preferred, other], now), on(0));
        assert_eq!(Expected.choose(&small(65), &[preferred, other], now), on(1), "there it would be late");
        let scarce = PathView { budget_left: 0.4, ..other };
        assert_eq!(Expected.choose(&small(200), &[slower, scarce], now), on(0));
        assert_eq!(Expected.choose(&small(65), &[slower, scarce], now), on(1));
    }

    #[test]
    fn a_path_that_others_need_more_is_left_to_them_while_the_rest_is_enough() {
        let now = Instant::now();
        let [short, long] = pair().map(|path| PathView { cost: 0.0, ..path });
        let short = PathView { min_one_way_delay: MS * 10, one_way_delay: MS * 10, ..short };
        let of = |size, within, wanted| FragmentView { wanted, ..block(now, size, within) };
        let others = PathSet::one(short.id);
        // 20 kB take 80 ms on the other, or 100 if it carries half.
        for (within, wanted, expected) in [(130, PathSet::default(), 0), (130, others, 1), (95, others, 0)] {
            let choice = Expected.choose(&of(20_000, within, wanted), &[short, long], now);
            assert_eq!(choice, on(expected), "{within} {wanted:?}");
        }
        // It is worth waiting for, and what it costs comes first.
        let paced = PathView { ready: false, ready_at: Some(now + MS * 5), ..long };
        assert_eq!(Expected.choose(&of(20_000, 150, others), &[short, paced], now), PathChoice::Wait);
        let dear = PathView { cost: 1.0, ..long };
        assert_eq!(Expected.choose(&of(20_000, 130, others), &[short, dear], now), on(0));
        // What is lost after 124 ms would be in time there alone, at the second try: then the first may as well go there.
        let lossy = PathView { loss: 0.1, loss_burst: 1.0, ..long };
        assert_eq!(Expected.choose(&of(1_000, 180, others), &[short, lossy], now), on(0));
        assert_eq!(Expected.choose(&of(1_000, 250, others), &[short, lossy], now), on(0), "not surely enough");
    }

    #[test]
    fn bytes_are_across_when_all_paths_together_have_carried_them() {
        let now = Instant::now();
        let [one, other] = pair();
        let later = PathView { min_one_way_delay: MS * 80, ..other };
        let at = |bytes| across([one, later].iter(), bytes, now).unwrap().as_micros();
        // Until 80 ms one path delivers a byte each microsecond, from then on both do.
        assert_eq!([at(0), at(10_000), at(20_000), at(40_000)], [60_000, 70_000, 80_000, 90_000]);
        let gone = PathView { ready: false, ready_at: None, health: crate::base::PathHealth::Suspect, ..one };
        assert_eq!(across([gone].iter(), 1, now), None);
    }
}
