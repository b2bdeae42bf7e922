//! A link of known rate and delay, driven packet by packet, to see how many blocks each scheduler gets there in time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{BlockScheduler, BlockView, SendContext, tests::start};
use crate::block::BlockId;

/// Bytes of a block in a packet, and those of the packet.
const FRAGMENT: u64 = 1150;
const PACKET: u64 = 1200;

/// Time on the way of all packets.
pub(super) const ONE_WAY: Duration = Duration::from_micros(2500);

/// A block to be handed over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    /// Since the start.
    pub(super) at: Duration,
    pub(super) size: u64,
    pub(super) deadline: Option<Duration>,
    pub(super) priority: u8,
}

/// What became of the blocks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Tally {
    /// On time, by priority.
    pub(super) on_time: [usize; 3],
    /// Bytes of blocks that came to nothing.
    pub(super) wasted: u64,
}

impl Tally {
    pub(super) fn total(&self) -> usize {
        self.on_time.iter().sum()
    }
}

/// When the last of so many bytes is out, headers counted.
pub(super) fn finish(begin: Duration, bytes: u64, rate: f64) -> Duration {
    let headers = bytes.div_ceil(FRAGMENT) * (PACKET - FRAGMENT);
    begin + Duration::from_secs_f64((bytes + headers) as f64 / rate)
}

/// Sends what is offered (sorted by time) over a link of `rate(time)` bytes per second, of which the scheduler is
/// told `forecast(time)`.
pub(super) fn drive(
    scheduler: &mut dyn BlockScheduler,
    offers: &[Offer],
    rate: impl Fn(Duration) -> f64,
    mut forecast: impl FnMut(Duration) -> f64,
) -> Tally {
    let mut tally = Tally::default();
    let mut live: BTreeMap<BlockId, BlockView> = BTreeMap::new();
    let mut dues: BTreeSet<(Instant, BlockId)> = BTreeSet::new();
    let mut coming = offers.iter().zip(0..).peekable();
    let mut now = Duration::ZERO;
    loop {
        while let Some((offer, id)) = coming.next_if(|(offer, _)| offer.at <= now) {
            let view = BlockView {
                id: BlockId(id),
                size: offer.size,
                unsent: offer.size,
                begin: start() + offer.at,
                deadline: offer.deadline,
                priority: offer.priority,
                followers: 0,
                beyond_means: false,
                again: false,
            };
            live.insert(view.id, view);
            if let Some(due) = view.due() {
                dues.insert((due, view.id));
            }
            scheduler.insert(&view);
        }
        while let Some(&(due, id)) = dues.first()
            && due < start() + now
            && scheduler.drops_stale()
        {
            dues.remove(&(due, id));
            if let Some(view) = live.remove(&id) {
                tally.wasted += view.size - view.unsent;
                scheduler.remove(id);
            }
        }
        let cx = SendContext { now: start() + now, paths: &[], rate: forecast(now), one_way_delay: ONE_WAY };
        let Some(id) = scheduler.next(&cx) else {
            match coming.peek() {
                Some((offer, _)) => now = now.max(offer.at),
                None => break tally,
            }
            continue;
        };
        let view = live.get_mut(&id).expect("a live block");
        let bytes = view.unsent.min(FRAGMENT);
        now = finish(now, bytes, rate(now));
        view.unsent -= bytes;
        if view.unsent > 0 {
            scheduler.insert(view);
            continue;
        }
        scheduler.remove(id);
        let on_time = view.due().is_none_or(|due| start() + now + ONE_WAY <= due);
        if on_time {
            tally.on_time[view.priority as usize] += 1;
        } else {
            tally.wasted += view.size;
        }
        live.remove(&id);
    }
}

mod tests {
    use super::{
        super::{by_name, names},
        *,
    };

    const MS: Duration = Duration::from_millis(1);

    /// Every 100 ms a block of 200 KB of each of three priorities, due after 200 ms.
    fn three_blocks(rounds: u32) -> Vec<Offer> {
        let offer =
            |n: u32| Offer { at: n / 3 * 100 * MS, size: 200_000, deadline: Some(200 * MS), priority: n as u8 % 3 };
        (0..3 * rounds).map(offer).collect()
    }

    /// As many as a sender who knows the future gets there: of equal blocks, whoever would be late is left out.
    fn most_of_equals(offers: &[Offer], rate: f64) -> usize {
        let mut free = Duration::ZERO;
        let on_time = offers.iter().filter(|offer| {
            let end = finish(free.max(offer.at), offer.size, rate);
            let makes_it = offer.deadline.is_some_and(|deadline| end + ONE_WAY <= offer.at + deadline);
            free = if makes_it { end } else { free };
            makes_it
        });
        on_time.count()
    }

    /// A forecast that is off by up to `share` either way, anew every 10 ms.
    fn noisy(rate: f64, share: f64) -> impl Fn(Duration) -> f64 {
        move |at| rate * (1.0 + share * (2.0 * random(at.as_millis() as u64 / 10) - 1.0))
    }

    fn random(seed: u64) -> f64 {
        let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn equal_blocks_arrive_as_well_as_can_be() {
        let offers = three_blocks(20);
        for rate in (1..=10).map(|rate| f64::from(rate) * 1e6) {
            let most = most_of_equals(&offers, rate);
            let run = |name| drive(&mut *by_name(name).unwrap()(), &offers, |_| rate, |_| rate);
            let ours = run("admission");
            assert!(ours.total() as f64 >= 0.98 * most as f64, "{rate}: {ours:?} of {most}");
            for name in names().filter(|&name| name != "fcfs") {
                let theirs = run(name);
                assert!(
                    ours.total() >= theirs.total() && ours.on_time[0] >= theirs.on_time[0],
                    "{rate}, {name}: {theirs:?}"
                );
            }
        }
    }

    #[test]
    fn noise_costs_little() {
        let offers = three_blocks(20);
        for rate in (2..=6).map(|rate| f64::from(rate) * 1e6) {
            let most = most_of_equals(&offers, rate) as f64;
            for (share, aim) in [(0.05, 0.95), (0.2, 0.9)] {
                let ours = drive(&mut *by_name("admission").unwrap()(), &offers, |_| rate, noisy(rate, share));
                assert!(ours.total() as f64 >= aim * most, "{rate} ± {share}: {ours:?} of {most}");
            }
        }
    }

    /// Sizes, deadlines and priorities at random, twice as much as fits, on a link whose rate changes every 400 ms and is known
    /// 30 ms later, ± 5 %.
    #[test]
    fn overload_of_all_kinds() {
        let rate = |at: Duration| 4e6 * (0.5 + random(at.as_millis() as u64 / 400));
        let forecast = |at: Duration| noisy(rate(at.saturating_sub(30 * MS)), 0.05)(at);
        let kinds =
            [(160, 100), (4_000, 200), (20_000, 50), (45_000, 200), (20_000, 400), (200_000, 1000), (100_000, 100)];
        let mut at = 0.0;
        let offers = (0..800).map(|n| {
            at -= random(3 * n).ln() * 0.007; // 7 ms between blocks of 55 KB
            let (size, deadline) = kinds[(random(3 * n + 1) * kinds.len() as f64) as usize];
            let priority = (random(3 * n + 2) * 3.0) as u8;
            Offer { at: Duration::from_secs_f64(at), size, deadline: Some(deadline * MS), priority }
        });
        let offers: Vec<_> = offers.collect();
        let run = |name| drive(&mut *by_name(name).unwrap()(), &offers, rate, forecast);
        let ours = run("admission");
        for name in names().filter(|&name| name != "fcfs" && name != "admission") {
            let theirs = run(name);
            assert!(ours.total() as f64 > 1.2 * theirs.total() as f64, "{ours:?}, {name}: {theirs:?}");
            assert!(ours.on_time[0] as f64 >= 0.98 * theirs.on_time[0] as f64, "{ours:?}, {name}: {theirs:?}");
        }
    }
}
