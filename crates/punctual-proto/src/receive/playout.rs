//! Play-out at a fixed latency: what was said of it, and the blocks that wait for their time.
//!
//! A block of a channel with a latency is given to the application at *hand-over at the sender + latency*, by the [play-out clock](crate::clock::PlayoutClock). It
//! is complete for the peer as soon as it is whole; only the application waits for it. Nothing is waited for beyond that time: when a block's time has come, those before it
//! in its channel that are not whole are passed over. One that becomes whole after its time, and that nothing behind it has overtaken, is given out at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::block::{BlockId, Channel, ReceivedBlock};

/// Whose blocks: those of a channel, or those of none.
type Whose = Option<Channel>;

/// The longest latency that can be set, of times on the wire that mean the moment within 35 minutes.
const LONGEST: Duration = crate::limits::LONGEST_LATENCY;

/// How long after their hand-over blocks are to be given out.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    /// By the application's word: of all of which it says nothing else,
    all: Option<Duration>,
    /// and of these.
    own: BTreeMap<Whose, Option<Duration>>,
    /// What the peer's application wishes; ours has the last word.
    wished: BTreeMap<Whose, Duration>,
}

impl Latencies {
    pub(super) fn new(all: Option<Duration>) -> Self {
        Self { all: all.map(|latency| latency.min(LONGEST)), ..Self::default() }
    }

    pub(super) fn of(&self, whose: Whose) -> Option<Duration> {
        let own = self.own.get(&whose).copied();
        own.unwrap_or_else(|| self.all.or_else(|| self.wished.get(&whose).copied()))
    }

    /// Whether there is any.
    pub(super) fn is_set(&self) -> bool {
        self.all.is_some() || !self.wished.is_empty() || self.own.values().any(Option::is_some)
    }

    pub(super) fn set(&mut self, whose: Whose, latency: Option<Duration>) {
        self.own.insert(whose, latency.map(|latency| latency.min(LONGEST)));
    }

    /// The peer wishes this latency, or none any more. One of more channels than these has no say.
    pub(super) fn wish(&mut self, whose: Whose, latency: Option<Duration>, max_channels: usize) {
        match latency {
            None => drop(self.wished.remove(&whose)),
            Some(latency) => {
                let channels = self.wished.len() - usize::from(self.wished.contains_key(&None));
                if self.wished.contains_key(&whose) || whose.is_none() || channels < max_channels {
                    self.wished.insert(whose, latency);
                }
            }
        }
    }
}

/// A block that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) block: ReceivedBlock,
    pub(super) place: Option<(Channel, u64)>,
    /// When it was handed over, on the peer's clock, or what it is taken to have been.
    pub(super) begin: u64,
}

impl Held {
    fn whose(&self) -> Whose {
        self.place.map(|(channel, _)| channel)
    }

    /// Its place among those that wait with it.
    fn key(&self) -> u64 {
        self.place.map_or(self.begin, |(_, position)| position)
    }
}

/// Blocks with the same latency: of a channel in its order, those of none as they were handed over.
#[derive(Debug, Default)]
struct Line {
    order: BTreeSet<(u64, BlockId)>,
    /// How long after their hand-over they are due, microseconds.
    latency: u64,
}

/// Whole blocks that wait for their time. Times are those of the peer's clock, so that they stay the same when the comparison of the clocks moves.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    held: BTreeMap<BlockId, Held>,
    bytes: u64,
    lines: BTreeMap<Whose, Line>,
    /// When the first block of each line is due.
    queue: BTreeSet<(u64, Whose)>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn contains(&self, id: BlockId) -> bool {
        self.held.contains_key(&id)
    }

    /// When the first is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.queue.first().map(|&(due, _)| due)
    }

    /// Has a block wait until so long after its hand-over, like all others of its channel, or of none.
    pub(super) fn insert(&mut self, held: Held, latency: u64) {
        let (id, whose, key) = (held.block.id, held.whose(), held.key());
        self.bytes += held.block.meta.size;
        self.held.insert(id, held);
        self.change_line(whose, |line| {
            line.order.insert((key, id));
            line.latency = latency;
        });
    }

    /// The next block that is due by then, and when it was.
    pub(super) fn pop_due(&mut self, by: u64) -> Option<(Held, u64)> {
        self.next_due().filter(|due| *due <= by)?;
        self.pop_next()
    }

    /// The next block, whenever it is due.
    pub(super) fn pop_next(&mut self) -> Option<(Held, u64)> {
        let &(due, whose) = self.queue.first()?;
        let &(_, id) = self.lines.get(&whose)?.order.first()?;
        Some((self.remove(id)?, due))
    }

    /// Takes a block out, due or not.
    pub(super) fn remove(&mut self, id: BlockId) -> Option<Held> {
        let held = self.held.get(&id)?;
        let (whose, key) = (held.whose(), held.key());
        self.change_line(whose, |line| _ = line.order.remove(&(key, id)));
        let held = self.held.remove(&id)?;
        self.bytes -= held.block.meta.size;
        Some(held)
    }

    /// The latency of these blocks is another.
    pub(super) fn reschedule(&mut self, whose: Whose, latency: u64) {
        if self.lines.contains_key(&whose) {
            self.change_line(whose, |line| line.latency = latency);
        }
    }

    /// Changes a line, and keeps its turn that of its first block.
    fn change_line(&mut self, whose: Whose, change: impl FnOnce(&mut Line)) {
        let held = &self.held;
        let turn = |line: &Line| {
            let (_, id) = line.order.first()?;
            held.get(id).map(|held| (held.begin.saturating_add(line.latency), whose))
        };
        let line = self.lines.entry(whose).or_default();
        if let Some(before) = turn(line) {
            self.queue.remove(&before);
        }
        change(line);
        match turn(line) {
            Some(now) => drop(self.queue.insert(now)),
            None => drop(self.lines.remove(&whose)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;

    use super::*;
    use crate::block::BlockMeta;

    fn held(id: u64, place: Option<(Channel, u64)>, begin: u64) -> Held {
        let meta = BlockMeta { size: 3, ..BlockMeta::default() };
        let data = Bytes::from_static(b"abc");
        let block = ReceivedBlock {
            id: BlockId(id),
            data,
            meta,
            completed_at: Instant::now(),
            completion: None,
            play_at: None,
        };
        Held { block, place, begin }
    }

    fn drain(waiting: &mut Waiting, by: u64) -> Vec<u64> {
        std::iter::from_fn(|| waiting.pop_due(by)).map(|(held, _)| held.block.id.0).collect()
    }

    #[test]
    fn a_channel_keeps_its_order_and_others_do_not_wait_for_it() {
        let mut waiting = Waiting::default();
        let ch = Channel(1);
        waiting.insert(held(2, Some((ch, 2)), 10), 10);
        waiting.insert(held(7, None, 20), 5);
        // In front of it, and due later.
        waiting.insert(held(1, Some((ch, 1)), 30), 10);
        waiting.insert(held(3, Some((ch, 3)), 40), 10);
        assert_eq!(waiting.next_due(), Some(25));
        assert_eq!(drain(&mut waiting, 39), [7]);
        assert_eq!(drain(&mut waiting, 40), [1, 2]);
        assert_eq!((waiting.len(), waiting.bytes(), waiting.next_due()), (1, 3, Some(50)));
        assert_eq!(waiting.remove(BlockId(3)).map(|held| held.block.id), Some(BlockId(3)));
        assert_eq!((waiting.len(), waiting.bytes(), waiting.next_due()), (0, 0, None));
        assert!(waiting.lines.is_empty() && waiting.queue.is_empty());
    }

    #[test]
    fn another_latency_is_another_time() {
        let mut waiting = Waiting::default();
        waiting.insert(held(1, Some((Channel(1), 0)), 10), 10);
        waiting.insert(held(2, None, 10), 20);
        waiting.insert(held(3, None, 9), 20);
        waiting.reschedule(Some(Channel(1)), 50);
        waiting.reschedule(Some(Channel(2)), 50);
        assert_eq!(waiting.next_due(), Some(29));
        waiting.reschedule(None, 60);
        assert_eq!(drain(&mut waiting, 68), [1]);
        assert_eq!(drain(&mut waiting, 69), [3]);
        assert_eq!(waiting.pop_due(70).map(|(held, due)| (held.block.id.0, due)), Some((2, 70)));
        assert!(waiting.lines.is_empty() && waiting.queue.is_empty());
    }

    #[test]
    fn our_application_has_the_last_word() {
        let (ms, ch) = (Duration::from_millis, Some(Channel(4)));
        let mut latencies = Latencies::default();
        assert!(!latencies.is_set());
        latencies.wish(ch, Some(ms(100)), 1);
        assert_eq!((latencies.of(ch), latencies.of(None)), (Some(ms(100)), None));
        latencies.wish(Some(Channel(5)), Some(ms(100)), 1);
        assert_eq!(latencies.of(Some(Channel(5))), None, "more channels than there may be");
        latencies.wish(None, Some(ms(50)), 1);
        assert_eq!(latencies.of(None), Some(ms(50)));
        latencies.set(ch, None);
        assert_eq!(latencies.of(ch), None, "as it comes");
        latencies.set(ch, Some(Duration::MAX));
        assert_eq!(latencies.of(ch), Some(LONGEST));
        latencies.wish(None, None, 1);
        assert_eq!(latencies.of(None), None);
        assert_eq!(Latencies::new(Some(ms(7))).of(None), Some(ms(7)));
    }
}
