//! The cheapest paths by which a block is in time surely enough; of these the one on which the fragment is expected first.

use std::time::{Duration, Instant};

use super::{
    FragmentView, MAX_PATHS, PathChoice, PathScheduler, PathView,
    earliest::{self, FULL_PACKET},
};
use crate::path::health::GRANULARITY;

/// Cheap paths first, and dear ones where the cheap would not do.
///
/// Paths of the same cost are alike. Those that cost least are enough for a block if all that it has to send, behind what waits for them already,
/// would be across by its deadline, but for a chance no greater than it may run:
///
/// ```text
/// Σ rate_i · (T − wait_i − delay_i)⁺ = bytes before its end and its own      T: when the last of them arrives, over all paths of the tier at once
/// late(T) + loss, if what is lost could not be made good ≤ ε                 ε: by its priority
/// ```
///
/// If they are not, those that cost next to nothing more join them, and so on. Among the paths of the tier it is [`Earliest`](super::earliest::Earliest) that decides, be it to wait for
/// one: so a dear path carries only what the cheap ones cannot, and what was lost on them when it is on its last chance.
/// Where all cost the same, all are one tier.
///
/// What has no deadline takes every path, whatever it costs; and as what is behind it waits for the paths, too, it does not wait for the best of them.
pub(super) struct Expected;

impl PathScheduler for Expected {
    fn name(&self) -> &'static str {
        "expected"
    }

    fn choose(&mut self, fragment: &FragmentView, paths: &[PathView], now: Instant) -> PathChoice {
        let mut whole = fragment.ahead + fragment.block.unsent;
        let Some(due) = fragment.block.due() else {
            whole += fragment.behind;
            return earliest::among(fragment, whole, paths, now, |_| true);
        };
        let left = due.saturating_duration_since(now);
        match Bargain::new(fragment, whole, paths, left, now).and_then(|bargain| bargain.dearest()) {
            Some(most) => earliest::among(fragment, whole, paths, now, |path| path.cost <= most),
            None => earliest::among(fragment, whole, paths, now, |_| true),
        }
    }

    fn counts_behind(&self) -> bool {
        true
    }
}

/// A fragment that is due, and paths of different costs.
struct Bargain<'a> {
    fragment: &'a FragmentView,
    whole: u64,
    paths: &'a [PathView],
    left: Duration,
    now: Instant,
    /// The chance of being late that it may run.
    allowed: f64,
    /// How long it takes by the path that is quickest.
    again: Duration,
}

impl<'a> Bargain<'a> {
    /// `None` if all paths cost the same.
    fn new(
        fragment: &'a FragmentView,
        whole: u64,
        paths: &'a [PathView],
        left: Duration,
        now: Instant,
    ) -> Option<Self> {
        let first = paths.first()?.cost;
        if paths.iter().all(|path| path.cost == first) {
            return None;
        }
        let len = fragment.len.min(FULL_PACKET) as u64;
        let again = paths.iter().filter_map(|path| earliest::arrival(path, len, now)).min()?;
        Some(Self { fragment, whole, paths, left, now, allowed: allowance(fragment.block.priority), again })
    }

    /// What the dearest of the paths costs that are enough; `None` if all of them are asked for.
    fn dearest(&self) -> Option<f64> {
        let mut costs = [0.0; MAX_PATHS];
        let costs = &mut costs[..self.paths.len().min(MAX_PATHS)];
        costs.iter_mut().zip(self.paths).for_each(|(cost, path)| *cost = path.cost);
        costs.sort_by(f64::total_cmp);
        let (&dearest, cheaper) = costs.split_last()?;
        let mut tiers = cheaper.iter().copied().filter(|cost| *cost < dearest);
        tiers.find(|&cost| self.is_enough(cost))
    }

    /// Whether the paths will do that cost no more than that.
    fn is_enough(&self, cost: f64) -> bool {
        let tier = || self.paths.iter().filter(|path| path.cost <= cost);
        let Some(across) = across(tier(), self.whole, self.now) else { return false };
        let len = self.fragment.len.min(FULL_PACKET) as u64;
        tier().all(|path| {
            let Some(arrival) = earliest::arrival(path, len, self.now) else { return true };
            // A rate may be half of what it seems.
            let across = across + across.saturating_sub(path.min_one_way_delay);
            let late = earliest::late(path, across, self.left);
            late + self.lost(path, arrival) <= self.allowed
        })
    }

    /// The chance that it is lost on a path and nothing is to be done about it, or not at what another path costs.
    fn lost(&self, path: &PathView, arrival: Duration) -> f64 {
        let known = arrival.saturating_sub(path.min_one_way_delay) + path.answer + path.spread + GRANULARITY;
        if known + self.again + GRANULARITY * 2 <= self.left && self.fragment.lost_on.is_none() {
            return path.loss * self.again_loss();
        }
        if self.fragment.is_protected && self.fragment.lost_on.is_none() && self.repairs_cost(path) {
            return 0.0;
        }
        path.loss
    }

    /// What is lost of second tries, on the path that loses least of those in time for them.
    fn again_loss(&self) -> f64 {
        let in_time = self.paths.iter().filter(|path| path.delay() <= self.again * 2);
        in_time.map(|path| path.loss).fold(1.0, f64::min)
    }

    /// Whether repair fragments for what is left of the block cost less than to send it on the next dearer path.
    fn repairs_cost(&self, path: &PathView) -> bool {
        let sources = (self.fragment.block.unsent as f64 / FULL_PACKET as f64).ceil().max(1.0);
        let lost = path.loss * sources;
        let repairs = lost + SIGMAS * (lost * path.loss_burst * (1.0 - path.loss)).sqrt() + 1.0;
        let dearer =
            self.paths.iter().map(|path| path.cost).filter(|cost| *cost > path.cost).fold(f64::INFINITY, f64::min);
        repairs * dearer < sources * (dearer - path.cost)
    }
}

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

/// The chance of being late that a block of the highest priority may run, and how much more one of the lowest may, with those between on a geometric scale.
const ALLOWED: (f64, f64) = (1e-3, 10.0);

fn allowance(priority: u8) -> f64 {
    ALLOWED.0 * ALLOWED.1.powf(f64::from(priority) / 255.0)
}
