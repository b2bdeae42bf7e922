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
