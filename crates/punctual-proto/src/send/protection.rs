//! What acknowledgements, losses and repair fragments mean for blocks: where packets, groups and blocks meet.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    group::{Group, Symbol, Verdict},
    groups::{Groups, Ready},
    live::LiveBlock,
    packetize::{Contents, Piece},
    store::Store,
};
use crate::{
    base::{FragmentKind, PathId, PathView},
    block::BlockId,
};

/// So many of the blocks that are due soonest are looked at to see whether there is room for redundancy: what is due later is not in a hurry.
const MAX_CLAIMS: usize = 1_024;

impl Store {
    /// The peer has a packet.
    pub(crate) fn on_packet_acked(&mut self, now: Instant, contents: &Contents) {
        for piece in contents.iter() {
            self.on_piece_acked(now, piece);
        }
        if let Some(symbol) = contents.symbol {
            let (groups, matters) = self.groups_and_matters();
            let verdict = groups.on_acked(now, symbol, matters);
            self.follow(now, verdict);
        }
    }

    /// A packet was lost on `path`.
    pub(crate) fn on_packet_lost(&mut self, now: Instant, contents: &Contents, path: PathId) {
        if let Some(symbol) = contents.symbol {
            // What has no deadline gains nothing by waiting for the group's verdict, and holds up what comes after it; what could be sent again in time
            // loses that by waiting too long.
            let (blocks, groups) = (&self.blocks, &self.groups);
            let loses_by_waiting = |block: &LiveBlock| {
                let too_late = block.due().is_none_or(|due| groups.tells_too_late(now, symbol, due));
                too_late && block.redundancy.resends() && !block.has_its_time()
            };
            let pieces = contents.iter().filter(|piece| blocks.get(&piece.id).is_some_and(loses_by_waiting));
            let who: BTreeSet<BlockId> = pieces.map(|piece| piece.id).collect();
            let impatient = self.groups.take_out(symbol, |piece| who.contains(&piece.id));
            self.lose_pieces(now, &impatient, path);
        }
        let (groups, matters) = self.groups_and_matters();
        match contents.symbol.and_then(|symbol| groups.on_lost(now, symbol, path, matters)) {
            Some(verdict) => self.follow(now, verdict),
            None => self.lose_pieces(now, contents, path),
        }
    }

    /// Whether a packet has something of a block that is due before `due_by`, or that has no deadline and has all been sent: nothing of it follows by whose answer
    /// a loss would be found. A repair fragment has what its group is there for.
    pub(crate) fn is_urgent(&self, contents: &Contents, due_by: Instant) -> bool {
        // What is not sent again has no hurry to be found lost.
        let block = |piece: &Piece| self.blocks.get(&piece.id).filter(|block| block.redundancy.resends());
        let hurries =
            |block: &LiveBlock| !block.has_its_time() && block.due().map_or(block.unsent() == 0, |due| due < due_by);
        let due = |piece: &Piece| block(piece).is_some_and(hurries);
        let group = || contents.symbol.and_then(|symbol| self.groups.first_due(symbol)).is_some_and(|due| due < due_by);
        contents.iter().any(due) || group()
    }

    /// Whether anything in a packet may be sent again.
    pub(crate) fn resends(&self, contents: &Contents) -> bool {
        let block = |piece: &Piece| self.blocks.get(&piece.id).is_some_and(|block| block.redundancy.resends());
        contents.iter().any(block) || contents.symbol.is_some_and(|symbol| self.groups.resends(symbol))
    }

    /// Whether a repair fragment could still be of use to a block.
    pub(crate) fn group_matters(&mut self, ready: &Ready) -> bool {
        let (groups, matters) = self.groups_and_matters();
        groups.get(ready.symbol).is_some_and(|group| group.is_needed(matters))
    }

    /// A repair fragment is not to be sent after all.
    pub(crate) fn withdraw_repair(&mut self, now: Instant, ready: &Ready) {
        let (groups, matters) = self.groups_and_matters();
        let verdict = groups.withdraw(now, ready, matters);
        self.follow(now, verdict);
    }

    /// A datagram that was given a place in a group is filled. Returns whether the group is to be closed.
    pub(crate) fn add_to_group(&mut self, symbol: Symbol, bytes: Bytes, contents: Contents, path: PathId) -> bool {
        let blocks = &self.blocks;
        let ended = |id| blocks.get(&id).is_none_or(|block: &LiveBlock| block.unsent() == 0);
        self.groups.add(symbol, bytes, contents, path, ended)
    }

    /// The open group gets its repair fragments: so many, on `path`, with `gap` between them.
    pub(crate) fn close_group(&mut self, now: Instant, repairs: usize, path: PathId, gap: Duration) {
        let bytes = self.groups.open().map_or(0, |(_, shard)| repairs as u64 * shard as u64);
        self.load.on_redundancy(bytes);
        let (groups, matters) = self.groups_and_matters();
        let verdict = groups.close(now, repairs, path, gap, matters);
        self.follow(now, verdict);
    }

    /// Groups whose time is up are forgotten.
    pub(super) fn expire_groups(&mut self, now: Instant) {
        for (contents, path) in self.groups.on_timeout(now) {
            self.lose_pieces(now, &contents, path);
        }
    }

    /// How many bytes of redundancy there is room for beside what is handed over lately, on the paths that are of use to what is due last.
    pub(crate) fn redundancy_room(&mut self, now: Instant) -> u64 {
        let last = self.due.last().filter(|_| self.forecast.is_known());
        let deadline = last.map(|(due, _)| due.saturating_duration_since(now));
        deadline.map_or(u64::MAX, |deadline| self.load.redundancy_room(now, self.forecast.rate(deadline)) as u64)
    }

    fn groups_and_matters(&mut self) -> (&mut Groups, impl Fn(&Contents) -> bool) {
        let blocks = &self.blocks;
        let lacks = |piece: &Piece| {
            blocks.get(&piece.id).is_some_and(|block: &LiveBlock| block.dying.is_none() && block.lacks(&piece.range))
        };
        (&mut self.groups, move |contents: &Contents| contents.iter().any(lacks))
    }

    fn follow(&mut self, now: Instant, verdict: Verdict) {
        for contents in &verdict.recovered {
            contents.iter().for_each(|piece| self.on_piece_presumed(now, piece));
        }
        self.tally.restored_bytes += verdict.restored;
        for (contents, path) in &verdict.lost {
            self.lose_pieces(now, contents, *path);
        }
    }

    fn lose_pieces(&mut self, now: Instant, contents: &Contents, path: PathId) {
        // What becomes of a copy says nothing of the original, which has a fate of its own.
        for piece in contents.iter().filter(|piece| piece.kind != FragmentKind::Copy) {
            match self.blocks.get(&piece.id).is_some_and(LiveBlock::has_its_time) {
                true => self.on_lost_in_its_time(now, piece, path),
                false => self.on_lost(now, piece.id, piece.range.clone(), piece.with_info, path),
            }
        }
    }

    /// The size of the largest block that has something in a group.
    pub(crate) fn largest_of(&self, group: &Group) -> u64 {
        group.blocks().filter_map(|id| self.blocks.get(&id)).map(LiveBlock::size).max().unwrap_or(0)
    }

    /// Whether a group has something of a block that depends on others, or they on it.
    pub(crate) fn is_of_family(&self, group: &Group) -> bool {
        group.blocks().any(|id| self.kin.is_of_family(id))
    }

    /// How many bytes can go before anything else without a block of at least this importance, that would have made it, missing its
    /// deadline by them. None, if not all can make it as it is of those that could by themselves.
    ///
    /// Blocks as important, but larger than `size` do not count: where there is too much, a small block costs less than a large one
    /// that would have to give way to it.
    ///
    /// Until a deadline each path carries what its rate allows, once what waits on it already has gone.
    pub(crate) fn spare<'a>(
        &self,
        now: Instant,
        paths: impl Iterator<Item = &'a PathView> + Clone,
        priority: u8,
        size: u64,
    ) -> u64 {
        let (mut claimed, mut spare) = (0.0_f64, f64::INFINITY);
        for &(due, id) in self.due.iter().take(MAX_CLAIMS) {
            let Some(block) = self.blocks.get(&id) else { continue };
            let unsent = block.unsent();
            let gives_way = block.priority > priority || block.priority == priority && block.size() > size;
            if gives_way || unsent == 0 || block.hopeless {
                continue;
            }
            let room = paths.clone().map(|path| path.carries(now, due) as f64).sum::<f64>();
            if unsent as f64 > room {
                // It is past saving.
                continue;
            }
            claimed += unsent as f64;
            spare = spare.min(room - claimed);
            if spare <= 0.0 {
                return 0;
            }
        }
        spare as u64
    }
}
