//! Fills one datagram at the moment a path can carry it.

use std::{ops::Range, time::Instant};

use bytes::Bytes;

use super::{
    group::Symbol,
    groups::{Groups, Membership},
    live::{InfoState, LiveBlock},
    recovery,
    store::Store,
};
use crate::{
    base::FragmentKind,
    block::BlockId,
    clock::{Micros, wire},
    frame::{
        BlockInfo, DatagramWriter,
        repair::{max_symbol, source_head},
        time::wire_duration,
        varint,
    },
    receive::feedback::Feedback,
    schedule::SendContext,
};

/// Below this many bytes of room a packet is full: the head of another fragment would be most of it.
const MIN_ROOM: usize = 48;

/// The repair fragments of a group may have to tell of a longer life than its first sources do: what fits in two bytes, milliseconds.
const LONG_LIFE: u64 = 16_383;

/// A part of a block in a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) id: BlockId,
    pub(crate) range: Range<u64>,
    pub(crate) with_info: bool,
    pub(crate) kind: FragmentKind,
}

impl Piece {
    /// Its bytes of the block; none if only the info had room.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// What a packet carries of blocks. Nearly always one piece, which then costs no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    first: Option<Piece>,
    rest: Vec<Piece>,
    /// Its place in a redundancy group, if it has one.
    pub(crate) symbol: Option<Symbol>,
}

impl Contents {
    /// Those of a repair fragment.
    pub(crate) fn repair(symbol: Symbol) -> Self {
        Self { symbol: Some(symbol), ..Self::default() }
    }

    #[cfg(test)]
    pub(crate) fn of(piece: Piece) -> Self {
        Self { first: Some(piece), ..Self::default() }
    }

    fn push(&mut self, piece: Piece) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.rest.push(piece),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.first.iter().chain(&self.rest)
    }

    /// The same once more, for another path.
    pub(crate) fn copy(&self) -> Self {
        let mut copy = self.clone();
        copy.first.iter_mut().chain(&mut copy.rest).for_each(|piece| piece.kind = FragmentKind::Copy);
        // Its group counts on the original only.
        copy.symbol = None;
        copy
    }

    /// Takes out the pieces for which `is_it` says so.
    pub(crate) fn take_out(&mut self, is_it: impl Fn(&Piece) -> bool) -> Self {
        let mut taken = Self::default();
        if self.iter().any(&is_it) {
            let symbol = self.symbol;
            for piece in std::mem::take(self).into_pieces() {
                if is_it(&piece) { taken.push(piece) } else { self.push(piece) }
            }
            self.symbol = symbol;
        }
        taken
    }

    fn into_pieces(self) -> impl Iterator<Item = Piece> {
        self.first.into_iter().chain(self.rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether it carries bytes of a block, and not as a copy.
    pub(crate) fn is_original(&self) -> bool {
        self.first.as_ref().is_some_and(|piece| piece.kind != FragmentKind::Copy && !piece.range.is_empty())
    }
}

/// How much of a datagram that has room for `capacity` bytes also has room in one that is in that group.
pub(crate) fn fits_group(capacity: usize, group: u64) -> usize {
    max_symbol(capacity, group, LONG_LIFE)
}

/// A datagram ready to go.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) payload: Bytes,
    pub(crate) contents: Contents,
    /// Where in the payload its symbol begins, if it is in a group.
    pub(crate) symbol_at: usize,
}

/// The sender's clock, for the stamps in a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) epoch: Instant,
    pub(crate) now: Instant,
}

impl Stamp {
    pub(crate) fn micros(&self, at: Instant) -> Micros {
        at.saturating_duration_since(self.epoch).as_micros() as Micros
    }

    /// How long ago that was, even if there was no endpoint yet.
    fn age(&self, at: Instant) -> Micros {
        let before = self.epoch.saturating_duration_since(at);
        self.micros(self.now).saturating_sub(self.micros(at)) + wire_duration(before)
    }
}

/// What a datagram says before it comes to blocks.
#[derive(Debug)]
pub(crate) struct Preface<'a> {
    pub(crate) stamp: Stamp,
    /// Its TIMESTAMP, which may be a little later than now.
    pub(crate) sent: Micros,
    /// What there is to report of the path with this number.
    pub(crate) report: Option<(u64, &'a mut Feedback)>,
    /// Its place in a group, if it has one.
    pub(crate) member: Option<Membership>,
}

/// Fills a datagram of at most `capacity` bytes, with bytes of `first` and then, as long as there is room, of
/// whichever block the scheduler names next. Only what is good `company` comes along.
pub(crate) fn fill(
    store: &mut Store,
    cx: &SendContext<'_>,
    first: BlockId,
    capacity: usize,
    Preface { stamp, sent, report, member }: Preface<'_>,
    company: impl Fn(&LiveBlock, &Groups) -> bool,
) -> Filled {
    let (mut writer, symbol_at) = match member {
        None => (DatagramWriter::new(capacity), 0),
        Some(Membership { symbol: Symbol { group, index }, life }) => {
            let head = source_head(group, life);
            let mut writer = DatagramWriter::new(head + max_symbol(capacity, group, life.max(LONG_LIFE)));
            writer.source(group, index, life);
            (writer, head)
        }
    };
    writer.timestamp(wire(sent));
    if let Some((path, feedback)) = report {
        // There is to be room for what it goes along with.
        let most = writer.remaining() / 2;
        let size = feedback.size().min(most);
        let fills = store.get(first).is_some_and(|block| fills(&writer, block, (stamp, sent), size));
        if !(fills && feedback.put_off()) {
            add_report(&mut writer, path, feedback, most, stamp.now);
        }
    }
    let mut contents = Contents { symbol: member.map(|member| member.symbol), ..Contents::default() };
    let mut next = Some(first);
    while let Some(id) = next {
        if !add(&mut writer, store, id, (stamp, sent), &mut contents) || writer.remaining() < MIN_ROOM {
            break;
        }
        next = recovery::next_worthwhile(store, cx)
            .filter(|id| store.get(*id).is_some_and(|block| company(block, &store.groups)));
    }
    Filled { payload: writer.finish(), contents, symbol_at }
}

/// Fills a datagram with what another, that is on its way, carries of blocks, as far as the peer is not known to have it.
pub(crate) fn fill_copy(
    store: &Store,
    original: &Contents,
    capacity: usize,
    stamp: Stamp,
    sent: Micros,
) -> Option<Filled> {
    let mut writer = DatagramWriter::new(capacity);
    writer.timestamp(wire(sent));
    let mut contents = Contents::default();
    for piece in original.iter() {
        let Some(block) = store.get(piece.id).filter(|block| block.dying.is_none() && block.lacks(&piece.range)) else {
            continue;
        };
        let with_info = piece.with_info && block.info != InfoState::Known;
        let info = info(block, stamp, sent);
        let written = if block.is_empty() {
            // Its one byte stands for its info.
            if writer.block_info(&info) { block.size() } else { 0 }
        } else {
            let bytes = &block.data[piece.range.start as usize..piece.range.end as usize];
            let whole = with_info && bytes.len() as u64 == block.size();
            match whole && writer.block(&info, bytes) {
                true => bytes.len() as u64,
                false if with_info && !writer.block_info(&info) => 0,
                false => writer.fragment(piece.id, piece.range.start, bytes) as u64,
            }
        };
        if written == 0 {
            break;
        }
        let range = piece.range.start..piece.range.start + written;
        contents.push(Piece { id: piece.id, range, with_info, kind: FragmentKind::Copy });
    }
    (!contents.is_empty()).then(|| Filled { payload: writer.finish(), contents, symbol_at: 0 })
}

/// Whether what is to be sent of a block has room in a datagram, but not beside so many bytes of something else. It would need another, for a few bytes.
fn fills(writer: &DatagramWriter, block: &LiveBlock, (stamp, sent): (Stamp, Micros), other: usize) -> bool {
    let Some((range, _)) = block.next_range() else { return false };
    let info = (block.info == InfoState::Due).then(|| info(block, stamp, sent));
    let needs = writer.needed_for(info.as_ref(), block.id, &range);
    needs <= writer.remaining() && needs + other > writer.remaining()
}

/// Reports what there is of a path, as far as `most` bytes have room for it.
pub(crate) fn add_report(writer: &mut DatagramWriter, path: u64, feedback: &mut Feedback, most: usize, now: Instant) {
    let room = writer.remaining();
    let count = writer.arrivals(path, feedback.arrivals(), most);
    feedback.on_reported(now, count, room - writer.remaining());
}

/// Adds what fits of a block. `false` if the datagram is full.
fn add(
    writer: &mut DatagramWriter,
    store: &mut Store,
    id: BlockId,
    (stamp, sent): (Stamp, Micros),
    contents: &mut Contents,
) -> bool {
    let Some(block) = store.get(id) else { return false };
    // All there is of an empty block is its info.
    let with_info = block.info == InfoState::Due || block.is_empty();
    if with_info && add_whole(writer, block, (stamp, sent)) {
        let range = 0..block.size();
        store.on_sent(id, range.clone(), with_info);
        contents.push(Piece { id, range, with_info, kind: FragmentKind::Source });
        return true;
    }
    let told = with_info.then(|| info(block, stamp, sent));
    if told.is_some_and(|info| !writer.block_info(&info)) {
        return false;
    }
    let Some((mut range, again)) = block.next_range() else { return false };
    if let Some(info) = told.filter(|_| !again) {
        // Should it be lost it is to fit into one datagram again.
        let most = writer.remaining().saturating_sub(info.grows_by());
        let over = writer.needed_for(None, id, &range).saturating_sub(most);
        range.end = range.end.saturating_sub(over as u64).max(range.start);
    }
    let written = if block.is_empty() {
        block.size()
    } else {
        writer.fragment(id, range.start, &block.data[range.start as usize..range.end as usize]) as u64
    };
    if written == 0 && !with_info {
        return false;
    }
    let range = range.start..range.start + written;
    let kind = if again { FragmentKind::Resent } else { FragmentKind::Source };
    store.on_sent(id, range.clone(), with_info);
    contents.push(Piece { id, range, with_info, kind });
    written > 0
}

/// Adds a block of which nothing has left yet, if there is room for all of it.
fn add_whole(writer: &mut DatagramWriter, block: &LiveBlock, (stamp, sent): (Stamp, Micros)) -> bool {
    let fits = block.size() <= writer.remaining() as u64;
    fits && block.next_range() == Some((0..block.size(), false)) && writer.block(&info(block, stamp, sent), &block.data)
}

fn info(block: &LiveBlock, stamp: Stamp, sent: Micros) -> BlockInfo {
    let (deadline, priority) = block.announced();
    BlockInfo {
        id: block.id,
        size: block.told_size(),
        age: (stamp.age(block.begin) + sent.saturating_sub(stamp.micros(stamp.now))).min(varint::MAX),
        deadline: deadline.map(wire_duration),
        priority,
        channel: block.channel,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        base::PathId,
        block::{Block, Redundancy},
        frame::Arrival,
        limits::Limits,
        multipath::tests::path,
        redundancy, schedule,
    };

    const MS: Duration = Duration::from_millis(1);

    /// Bytes of the block that a datagram of 1,200 has, `millis` after the block was handed over, beside a report that nobody waits for.
    fn leaves(store: &mut Store, epoch: Instant, id: BlockId, millis: u32) -> Range<u64> {
        let (now, paths) = (epoch + MS * millis, [path(0)]);
        let cx = SendContext { now, paths: &paths, rate: 1e6, one_way_delay: MS };
        let mut feedback = Feedback::default();
        feedback.on_arrival(now, Arrival { stamp: 1, received: 2, ce: false }, 60, true);
        feedback.on_reported(now, 1, 20);
        for stamp in 1..=4 {
            feedback.on_arrival(now, Arrival { stamp, received: 2, ce: false }, 60, false);
            feedback.on_reported(now, usize::from(stamp < 4), 20);
        }
        let stamp = Stamp { epoch, now };
        let preface = Preface { stamp, sent: stamp.micros(now), report: Some((0, &mut feedback)), member: None };
        let filled = fill(store, &cx, id, 1_200, preface, |_, _| false);
        filled.contents.iter().next().expect("it has bytes").range.clone()
    }

    #[test]
    fn what_is_lost_fits_into_one_datagram_again() {
        let scheduler = schedule::by_name("ads").unwrap()();
        let mut store = Store::new(Limits::default(), scheduler, Redundancy::Auto, redundancy::default_factory()());
        store.on_settings(1 << 24, 10, 1 << 30, 1 << 20);
        let epoch = Instant::now();
        let id = store.insert(epoch, Block::new(vec![7; 5_000]).deadline(MS * 500)).unwrap();
        // Now it is young, and there is nothing to report.
        let (paths, stamp) = ([path(0)], Stamp { epoch, now: epoch });
        let cx = SendContext { now: epoch, paths: &paths, rate: 1e6, one_way_delay: MS };
        let parts: Vec<_> = (0..3)
            .map(|sent| {
                let preface = Preface { stamp, sent, report: None, member: None };
                let filled = fill(&mut store, &cx, id, 1_200, preface, |_, _| false);
                filled.contents.iter().next().expect("it has bytes").range.clone()
            })
            .collect();
        for part in parts {
            store.on_lost(epoch + MS * 100, id, part.clone(), part.start == 0, PathId(0));
            assert_eq!(leaves(&mut store, epoch, id, 100), part);
        }
        // What is to be sent for the first time takes a report along, and fills the datagram.
        assert!(leaves(&mut store, epoch, id, 100).end < 5_000);
    }
}
