//! The blocks of a receiver: from the first fragment until the application has them, or never will.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rangemap::RangeSet;

mod incoming;
mod timed;

pub(crate) use super::credit::Totals;
use incoming::{Incoming, Info};

use super::{
    credit::Credit,
    playout::{Latencies, Waiting},
    release::{Channels, Stand},
};
use crate::{
    block::{BlockId, BlockMeta, Channel, DropReason, ReceivedBlock, weight},
    clock::{Clocks, Micros, PlayoutClock},
    error::{BlockError, ProtocolError},
    frame::{BlockInfo, time::wire_duration},
    limits::Limits,
};

/// The most separate ranges that are remembered, of ended ids (beyond, the oldest gap counts as ended) and of dropped
/// positions in channels (beyond is an error). Between two ranges there is a live block of the sender's, which by
/// `docs/protocol.md` has no more than this.
const MAX_RANGES: usize = crate::limits::MAX_LIVE + 1;

/// What is reckoned for a block, besides its bytes: its entry in a map, and its place in its channel.
const BLOCK: u64 = 256;
/// The same for a range.
const RANGE: u64 = 48;

/// Something the receiver has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// To the peer: the application has the block.
    /// `good_bytes` of its bytes came in time; all, if that is `None`.
    Completed { id: BlockId, at: Micros, size: u64, good_bytes: Option<u64> },
    /// To the peer: a dropped block is forgotten here.
    Freed { id: BlockId, good_bytes: u64 },
    /// To the peer: new totals of credit.
    Credit(Totals),
    /// To both: a block is not wanted any more, for what is behind it in its channel has come to its time.
    Skipped { id: BlockId, received_bytes: u64 },
    /// To the application: the peer dropped a block.
    Dropped { id: BlockId, reason: DropReason, received_bytes: u64 },
    /// To the application: there is something to receive.
    Readable,
}

/// What a fragment brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes that were new.
    pub(crate) new: u64,
    /// Whether the block is complete by it.
    pub(crate) completes: bool,
}

/// Counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) received: u64,
    pub(crate) peer_dropped: u64,
    pub(crate) skipped: u64,
    pub(crate) received_bytes: u64,
    pub(crate) duplicate_bytes: u64,
}

/// The blocks of one direction of a session.
#[derive(Debug)]
pub(crate) struct Receiver {
    limits: Limits,
    /// The zero of our clock.
    epoch: Instant,
    blocks: BTreeMap<BlockId, Incoming>,
    /// Memory held by `blocks`.
    held: u64,
    channels: Channels,
    latencies: Latencies,
    playout: PlayoutClock,
    /// Whole blocks, for the peer they have ended, that the application is to have later.
    waiting: Waiting,
    ready: VecDeque<ReceivedBlock>,
    ready_bytes: u64,
    /// Blocks that have ended here, one way or another.
    ended: RangeSet<u64>,
    /// Blocks refused here whose credit the peer has not settled yet, and their info, if that had been seen.
    refused: BTreeMap<BlockId, Option<Info>>,
    credit: Credit,
    notices: VecDeque<Notice>,
    tally: Tally,
}

impl Receiver {
    /// `latency` is that of all blocks of which nothing else is said.
    pub(crate) fn new(limits: Limits, latency: Option<Duration>, epoch: Instant) -> Self {
        Self {
            limits,
            epoch,
            blocks: BTreeMap::new(),
            held: 0,
            channels: Channels::default(),
            latencies: Latencies::new(latency),
            playout: PlayoutClock::default(),
            waiting: Waiting::default(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            ended: RangeSet::new(),
            refused: BTreeMap::new(),
            credit: Credit::default(),
            notices: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// Bounds the bytes that the peer may have open, before it is told.
    pub(crate) fn set_window(&mut self, bytes: u64) {
        self.limits.receive_bytes = bytes;
    }

    /// What the peer is told, or has been.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The peer is told what it may open.
    pub(crate) fn begin(&mut self) {
        self.credit.begin(&self.limits);
    }

    /// Whether it has been told so.
    pub(crate) fn has_begun(&self) -> bool {
        self.credit.has_begun()
    }

    /// BLOCK_INFO arrived; `begin` is the block's hand-over on the peer's clock. Returns whether the block is complete by it.
    pub(crate) fn on_info(
        &mut self,
        frame: &BlockInfo,
        begin: u64,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<bool, ProtocolError> {
        let id = frame.id;
        let info = Info {
            size: weight(frame.size),
            is_empty: frame.size == 0,
            begin,
            deadline: frame.deadline.map(Duration::from_micros),
            priority: frame.priority,
            channel: frame.channel,
        };
        if info.size > self.limits.max_block_size {
            return Err(ProtocolError::BlockSize);
        }
        if self.ended.contains(&id.0) {
            return Ok(false);
        }
        if let Some(known) = self.blocks.get(&id).and_then(|block| block.info) {
            return if known == info { Ok(false) } else { Err(ProtocolError::InfoConflict) };
        }
        let mut block = self.take(id).unwrap_or_default();
        if block.bytes.end() > info.size {
            return Err(ProtocolError::FragmentRange);
        }
        self.credit.open(info.size)?;
        block.bytes.expect(info.size);
        let (limits, max_places) = (self.limits, self.max_places());
        block.info = Some(info);
        self.keep(id, block);
        if let Some(place) = info.channel
            && self.channels.place(place, id, limits.channels, max_places)? == Stand::Passed
        {
            self.skip(id);
            return Ok(false);
        }
        if !info.is_empty {
            return self.check_complete(id, now, clocks);
        }
        // It comes with the byte that it counts as.
        let taken = self.on_fragment(id, 0, Bytes::from_static(&[0]), now, clocks)?;
        self.tally.received_bytes -= taken.new;
        Ok(taken.completes || taken.new == 0 && self.check_complete(id, now, clocks)?)
    }

    /// A fragment arrived.
    pub(crate) fn on_fragment(
        &mut self,
        id: BlockId,
        offset: u64,
        data: Bytes,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<Taken, ProtocolError> {
        let len = data.len() as u64;
        if self.ended.contains(&id.0) {
            self.tally.duplicate_bytes += len;
            return Ok(Taken { new: 0, completes: false });
        }
        let max_size = self.limits.max_block_size;
        let block = self.block(id)?;
        if offset.saturating_add(len) > block.info.map_or(max_size, |info| info.size) {
            return Err(ProtocolError::FragmentRange);
        }
        let held = block.bytes.held();
        let end = block.bytes.end();
        let new = block.bytes.insert(offset, data)?;
        let due = block
            .info
            .zip(block.deadline())
            .and_then(|(info, deadline)| Some(clocks.to_ours(info.begin)?.saturating_add(wire_duration(deadline))));
        if due.is_none_or(|due| now <= due) {
            block.good_bytes += new;
        }
        let holds = block.bytes.held();
        let longer = if block.info.is_none() { block.bytes.end() - end } else { 0 };
        self.held = self.held + holds - held;
        self.tally.received_bytes += new;
        self.tally.duplicate_bytes += len - new;
        self.credit.hear_of_more(longer)?;
        // Twice the window leaves room for the accounting of small fragments; an honest peer is far from it.
        if self.held > self.limits.receive_bytes.saturating_mul(2) {
            return Err(ProtocolError::Credit);
        }
        // One that is complete already may be waiting for its turn.
        Ok(Taken { new, completes: new > 0 && self.check_complete(id, now, clocks)? })
    }

    /// The peer changed a block's deadline and priority.
    pub(crate) fn on_update(
        &mut self,
        id: BlockId,
        deadline: Option<Duration>,
        priority: u8,
    ) -> Result<(), ProtocolError> {
        if !self.ended.contains(&id.0) {
            self.block(id)?.update = Some((deadline, priority));
        }
        Ok(())
    }

    /// The peer dropped a block of `size` bytes, or one that was never opened (`size` 0).
    pub(crate) fn on_dropped(
        &mut self,
        id: BlockId,
        reason: DropReason,
        size: u64,
        place: Option<(Channel, u64)>,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<(), ProtocolError> {
        if size > self.limits.max_block_size {
            return Err(ProtocolError::BlockSize);
        }
        if let Some(info) = self.refused.remove(&id) {
            if info.is_some_and(|info| info.size != size || info.channel != place) {
                return Err(ProtocolError::InfoConflict);
            }
            if size > 0 {
                if info.is_none() {
                    self.credit.open(size)?;
                }
                self.consume(size);
                self.notices.push_back(Notice::Freed { id, good_bytes: 0 });
            }
            // Of a block refused before its info came it was not known that others wait for it.
            return match place.filter(|_| info.is_none()) {
                Some(place) => self.pass_over(place, id, now, clocks),
                None => Ok(()),
            };
        }
        if self.ended.contains(&id.0) {
            // It was complete first, and COMPLETED has said so; the answer is for form.
            if size > 0 {
                self.notices.push_back(Notice::Freed { id, good_bytes: 0 });
            }
            return Ok(());
        }
        let block = self.take(id);
        let info = block.as_ref().and_then(|block| block.info);
        if info.is_some_and(|info| info.size != size || info.channel != place) {
            return Err(ProtocolError::InfoConflict);
        }
        if block.as_ref().is_some_and(|block| block.bytes.end() > size) {
            return Err(ProtocolError::FragmentRange);
        }
        let (received_bytes, good_bytes) = block.map_or((0, 0), |block| (block.bytes.received(), block.good_bytes));
        if size > 0 {
            if info.is_none() {
                self.credit.open(size)?;
            }
            self.consume(size);
            self.notices.push_back(Notice::Freed { id, good_bytes });
        }
        self.end(id);
        self.tally.peer_dropped += 1;
        self.notices.push_back(Notice::Dropped { id, reason, received_bytes });
        match place {
            Some(place) => self.pass_over(place, id, now, clocks),
            None => Ok(()),
        }
    }

    /// The peer dropped these blocks, none of which was ever opened or has a place in a channel.
    pub(crate) fn on_run_dropped(
        &mut self,
        run: Range<u64>,
        reason: DropReason,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<(), ProtocolError> {
        // What has ended already costs no more than a look.
        let news: Vec<_> = self.ended.gaps(&run).collect();
        news.into_iter().flatten().try_for_each(|id| self.on_dropped(BlockId(id), reason, 0, None, now, clocks))
    }

    /// Whether the peer has handed such a block over: it counts, so all up to the newest.
    pub(crate) fn knows(&self, id: BlockId) -> bool {
        let newest_ended = self.ended.last().is_some_and(|range| id.0 < range.end);
        newest_ended || self.blocks.last_key_value().is_some_and(|(&newest, _)| id <= newest)
    }

    /// The application does not want a block.
    pub(crate) fn refuse(&mut self, id: BlockId, now: Micros, clocks: &Clocks) -> Result<(), BlockError> {
        let block = self.take(id).ok_or(BlockError::NotLive(id))?;
        self.refused.insert(id, block.info);
        self.end(id);
        if let Some(place) = block.info.and_then(|info| info.channel) {
            // The place exists: it came with the info.
            let _ = self.pass_over(place, id, now, clocks);
        }
        Ok(())
    }

    /// The next block for the application.
    pub(crate) fn recv(&mut self) -> Option<ReceivedBlock> {
        let block = self.ready.pop_front()?;
        self.ready_bytes -= block.meta.size;
        self.consume(weight(block.meta.size));
        Some(block)
    }

    /// A block of a peer that does not speak Punctual is whole.
    pub(crate) fn on_stream_block(&mut self, id: BlockId, data: Bytes, completed_at: Instant) {
        let meta = BlockMeta { size: data.len() as u64, ..BlockMeta::default() };
        self.tally.received_bytes += meta.size;
        self.hand_over(ReceivedBlock { id, data, meta, completed_at, completion: None, play_at: None });
    }

    /// A block of such a peer will never be whole.
    pub(crate) fn on_stream_dropped(&mut self, id: BlockId, received_bytes: u64) {
        self.tally.peer_dropped += 1;
        self.notices.push_back(Notice::Dropped { id, reason: DropReason::Cancelled, received_bytes });
    }

    pub(crate) fn poll(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Blocks begun and not consumed, and the bytes held for them.
    pub(crate) fn live(&self) -> (u64, u64) {
        let blocks = self.blocks.len() + self.waiting.len() + self.ready.len();
        (blocks as u64, self.held + self.waiting.bytes() + self.ready_bytes)
    }

    /// Memory held for the peer, about: bytes, and what is remembered of blocks that have none, or have ended.
    pub(crate) fn memory(&self) -> u64 {
        let (blocks, bytes) = self.live();
        let entries = blocks + self.refused.len() as u64;
        let ranges = self.ended.len() + self.channels.places();
        bytes + BLOCK * entries + RANGE * ranges as u64
    }

    /// Whether the application has been given less than there is.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.waiting.len() > 0
    }

    /// Forgets what is ready, too.
    pub(crate) fn forget(&mut self) {
        self.waiting = Waiting::default();
        self.close();
        self.ready = VecDeque::new();
        self.ready_bytes = 0;
    }

    /// Forgets everything that is not whole: the session is over. What waits for its time is ready now, for there is no clock any more to have it wait by.
    pub(crate) fn close(&mut self) {
        while let Some((mut held, due)) = self.waiting.pop_next() {
            held.block.play_at = self.play_at(due);
            self.hand_over(held.block);
        }
        self.blocks.clear();
        self.held = 0;
        self.credit.settle_all();
        self.refused.clear();
        self.channels = Channels::default();
        self.notices.retain(|notice| matches!(notice, Notice::Dropped { .. } | Notice::Readable));
    }

    fn max_places(&self) -> usize {
        // Those of open blocks, and what was dropped between the sender's live ones.
        usize::try_from(self.limits.receive_blocks).unwrap_or(usize::MAX).saturating_add(MAX_RANGES)
    }

    /// A block that has not ended, which the peer may be speaking of for the first time.
    fn block(&mut self, id: BlockId) -> Result<&mut Incoming, ProtocolError> {
        if !self.blocks.contains_key(&id) {
            self.credit.hear_of_another()?;
        }
        Ok(self.blocks.entry(id).or_default())
    }

    fn take(&mut self, id: BlockId) -> Option<Incoming> {
        let block = self.blocks.remove(&id)?;
        self.held -= block.bytes.held();
        if block.info.is_none() {
            self.credit.settle(block.bytes.end());
        }
        Some(block)
    }

    /// Puts a block back whose info is known.
    fn keep(&mut self, id: BlockId, block: Incoming) {
        self.held += block.bytes.held();
        self.blocks.insert(id, block);
    }

    fn consume(&mut self, size: u64) {
        let renewed = self.credit.consume(size, &self.limits);
        self.notices.extend(renewed.map(Notice::Credit));
    }

    fn end(&mut self, id: BlockId) {
        self.ended.insert(id.0..id.0 + 1);
        if self.ended.len() > MAX_RANGES {
            let floor = self.ended.first().map_or(0, |range| range.end);
            let next = self.ended.iter().nth(1).map_or(floor, |range| range.start);
            // A peer that leaves gaps for ever loses the oldest: those ids count as ended.
            self.ended.insert(0..next.max(floor));
        }
    }

    /// Nobody in a channel need wait for the block at a place any more.
    fn pass_over(
        &mut self,
        place: (Channel, u64),
        id: BlockId,
        now: Micros,
        clocks: &Clocks,
    ) -> Result<(), ProtocolError> {
        self.channels.skip(place, id, self.limits.channels, self.max_places())?;
        self.release_channel(place.0, now, clocks);
        Ok(())
    }

    /// Whether a block is complete; if so, it is released as far as its channel's order, or its time, allows.
    fn check_complete(&mut self, id: BlockId, now: Micros, clocks: &Clocks) -> Result<bool, ProtocolError> {
        let Some(block) = self.blocks.get(&id).filter(|block| block.is_complete()) else {
            return Ok(false);
        };
        let place = block.info.and_then(|info| info.channel);
        match (self.latencies.of(place.map(|(channel, _)| channel)), place) {
            (Some(latency), _) => self.have_it_wait(id, latency, now, clocks)?,
            (None, Some(place)) => {
                self.channels.on_whole(place);
                self.release_channel(place.0, now, clocks);
            }
            (None, None) => self.release(id, now, clocks),
        }
        Ok(true)
    }

    /// Gives out what is whole, as far as the channel's order allows. Of a channel with a latency it is time that says so.
    fn release_channel(&mut self, channel: Channel, now: Micros, clocks: &Clocks) {
        if self.latencies.of(Some(channel)).is_some() {
            return;
        }
        let (blocks, waiting) = (&self.blocks, &self.waiting);
        let complete = |id| blocks.get(&id).is_some_and(Incoming::is_complete) || waiting.contains(id);
        let mut turn = Vec::new();
        while let Some(id) = self.channels.advance(channel, complete) {
            turn.push(id);
        }
        for id in turn {
            match self.waiting.remove(id) {
                // It had a latency when it was whole.
                Some(held) => self.hand_over(held.block),
                None => self.release(id, now, clocks),
            }
        }
    }

    fn release(&mut self, id: BlockId, now: Micros, clocks: &Clocks) {
        if let Some((_, block)) = self.complete(id, now, clocks) {
            self.hand_over(block);
        }
    }

    /// Says that a block is whole, and ends it for the peer.
    fn complete(&mut self, id: BlockId, now: Micros, clocks: &Clocks) -> Option<(Info, ReceivedBlock)> {
        let block = self.take(id)?;
        let info = block.info?;
        let (deadline, priority) = block.update.unwrap_or((info.deadline, info.priority));
        let good_bytes = Some(block.good_bytes).filter(|&good| good < info.size);
        self.notices.push_back(Notice::Completed { id, at: now, size: info.size, good_bytes });
        self.end(id);
        let (size, data) = if info.is_empty { (0, Bytes::new()) } else { (info.size, block.bytes.into_bytes()) };
        let meta = BlockMeta { size, deadline, priority, channel: info.channel.map(|(channel, _)| channel) };
        let completion = clocks.to_ours(info.begin).map(|begin| Duration::from_micros(now.saturating_sub(begin)));
        let completed_at = self.epoch + Duration::from_micros(now);
        Some((info, ReceivedBlock { id, data, meta, completed_at, completion, play_at: None }))
    }

    fn hand_over(&mut self, block: ReceivedBlock) {
        self.tally.received += 1;
        self.ready_bytes += block.meta.size;
        if self.ready.is_empty() {
            self.notices.push_back(Notice::Readable);
        }
        self.ready.push_back(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(limits: Limits) -> (Receiver, Clocks) {
        let mut receiver = Receiver::new(limits, None, Instant::now());
        receiver.begin();
        (receiver, Clocks::new())
    }

    fn info(id: u64, size: u64, channel: Option<(Channel, u64)>) -> BlockInfo {
        BlockInfo { id: BlockId(id), size, age: 0, deadline: None, priority: 0, channel }
    }

    #[test]
    fn a_block_refused_before_its_info_came_holds_up_no_channel() {
        let (mut r, clocks) = receiver(Limits::default());
        let place = |position| Some((Channel(1), position));
        r.on_fragment(BlockId(0), 3, Bytes::from_static(b"x"), 1, &clocks).unwrap();
        r.refuse(BlockId(0), 1, &clocks).unwrap();
        r.on_info(&info(1, 1, place(1)), 0, 2, &clocks).unwrap();
        r.on_fragment(BlockId(1), 0, Bytes::from_static(b"y"), 2, &clocks).unwrap();
        assert_eq!(r.recv(), None, "it is not its turn");
        r.on_dropped(BlockId(0), DropReason::Refused, 9, place(0), 3, &clocks).unwrap();
        assert_eq!(r.recv().map(|block| block.id), Some(BlockId(1)));
        assert_eq!(r.live(), (0, 0));
    }

    #[test]
    fn a_refused_block_is_as_large_as_its_info_said() {
        for (size, place, fits) in
            [(9, None, true), (1_000_000, None, false), (0, None, false), (9, Some((Channel(1), 0)), false)]
        {
            let (mut r, clocks) = receiver(Limits::default());
            r.on_info(&info(0, 9, None), 0, 1, &clocks).unwrap();
            r.refuse(BlockId(0), 1, &clocks).unwrap();
            let granted = r.credit.granted_bytes();
            let settled = r.on_dropped(BlockId(0), DropReason::Refused, size, place, 2, &clocks);
            assert_eq!(settled, if fits { Ok(()) } else { Err(ProtocolError::InfoConflict) }, "{size} {place:?}");
            assert!(r.credit.granted_bytes() <= granted + 9, "credit is what was opened, once");
        }
    }

    #[test]
    fn there_is_always_credit_for_the_largest_block() {
        let limits = Limits { max_block_size: 1_000, receive_bytes: 1_100, ..Limits::default() };
        let (mut r, clocks) = receiver(limits);
        let (mut granted, mut opened) = (1_100, 0);
        for (id, size) in [100, 200, 1_000, 50, 60, 1_000].into_iter().enumerate() {
            let id = id as u64;
            opened += size;
            assert!(opened <= granted, "no credit for block {id}");
            r.on_info(&info(id, size, None), 0, 1, &clocks).unwrap();
            r.on_fragment(BlockId(id), 0, vec![0; size as usize].into(), 1, &clocks).unwrap();
            r.recv().unwrap();
            while let Some(notice) = r.poll() {
                if let Notice::Credit(totals) = notice {
                    granted = totals.bytes;
                }
            }
        }
    }
}
