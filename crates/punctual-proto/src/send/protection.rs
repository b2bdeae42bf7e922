//! What acknowledgements, losses and repair fragments mean for blocks: where packets, groups and blocks meet.

use std::time::{Duration, Instant};

use super::{
    group::Verdict,
    groups::{Groups, Ready},
    live::LiveBlock,
    packetize::{Contents, Piece},
    store::Store,
};
use crate::{block::BlockId, multipath::PathId, observe::FragmentKind};

/// How many blocks that are due sooner are looked at before it is decided that there is no room for redundancy.
const MAX_CLAIMS: usize = 256;

/// How bytes that had been lost came through after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Regained {
    /// They had not been lost.
    Anyway,
    /// They were sent again.
    Resend,
    /// A copy arrived.
    Copy,
}

impl From<FragmentKind> for Regained {
    fn from(kind: FragmentKind) -> Self {
        match kind {
            FragmentKind::Source | FragmentKind::Repair => Self::Anyway,
            FragmentKind::Resent => Self::Resend,
            FragmentKind::Copy => Self::Copy,
        }
    }
}

impl Store {
    /// The peer has a packet.
    pub(crate) fn on_packet_acked(&mut self, now: Instant, contents: &Contents) {
        for piece in contents.iter() {
            self.on_piece_acked(now, piece, piece.kind.into());
        }
        if let Some(symbol) = contents.symbol {
            let (groups, matters) = self.groups_and_matters();
            let verdict = groups.on_acked(now, symbol, matters);
            self.follow(now, verdict);
        }
    }

    /// A packet was lost on `path`.
    pub(crate) fn on_packet_lost(&mut self, now: Instant, contents: &Contents, path: PathId) {
        let (groups, matters) = self.groups_and_matters();
        match contents.symbol.and_then(|symbol| groups.on_lost(now, symbol, path, matters)) {
            Some(verdict) => self.follow(now, verdict),
            None => self.lose_pieces(now, contents, path),
        }
    }

    /// Whether a packet has something of a block that is due before `due_by`. A repair fragment has what its group is there for.
    pub(crate) fn is_urgent(&self, contents: &Contents, due_by: Instant) -> bool {
        let due = |piece: &Piece| self.blocks.get(&piece.id).and_then(LiveBlock::due).is_some_and(|due| due < due_by);
        let group = || contents.symbol.and_then(|symbol| self.groups.first_due(symbol)).is_some_and(|due| due < due_by);
        contents.iter().any(due) || group()
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

    /// The open group gets its repair fragments: so many, on `path`, with `gap` between them.
    pub(crate) fn close_group(&mut self, now: Instant, repairs: usize, path: PathId, gap: Duration) {
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

    fn groups_and_matters(&mut self) -> (&mut Groups, impl Fn(&Contents) -> bool) {
        let blocks = &self.blocks;
        let lacks = |piece: &Piece| {
            blocks.get(&piece.id).is_some_and(|block: &LiveBlock| block.dying.is_none() && block.lacks(&piece.range))
        };
        (&mut self.groups, move |contents: &Contents| contents.iter().any(lacks))
    }

    fn follow(&mut self, now: Instant, verdict: Verdict) {
        for contents in &verdict.recovered {
            contents.iter().for_each(|piece| self.on_piece_acked(now, piece, Regained::Anyway));
        }
        self.tally.restored_bytes += verdict.restored;
        for (contents, path) in &verdict.lost {
            self.lose_pieces(now, contents, *path);
        }
    }

    fn lose_pieces(&mut self, now: Instant, contents: &Contents, path: PathId) {
        for piece in contents.iter() {
            self.on_lost(now, piece.id, piece.range.clone(), piece.with_info, path);
        }
    }

    /// How many bytes can go before anything else without a block of at least this importance, that would have made it at `rate`
    /// (bytes per second), missing its deadline by them. None, if not all can make it as it is of those that could by themselves.
    pub(crate) fn spare(&self, now: Instant, rate: f64, one_way_delay: Duration, priority: u8) -> u64 {
        let (mut claimed, mut spare) = (0.0_f64, f64::INFINITY);
        let mut claims = 0;
        for (due, id) in self.by_due() {
            let Some(block) = self.blocks.get(&id) else { continue };
            let unsent = block.unsent();
            if block.priority > priority || unsent == 0 || block.hopeless {
                continue;
            }
            let room = due.saturating_duration_since(now).saturating_sub(one_way_delay).as_secs_f64() * rate;
            if unsent as f64 > room {
                // It is past saving.
                continue;
            }
            claims += 1;
            claimed += unsent as f64;
            spare = spare.min(room - claimed);
            if spare <= 0.0 || claims >= MAX_CLAIMS {
                return 0;
            }
        }
        spare as u64
    }

    fn by_due(&self) -> impl Iterator<Item = (Instant, BlockId)> + '_ {
        self.due.iter().copied()
    }
}
