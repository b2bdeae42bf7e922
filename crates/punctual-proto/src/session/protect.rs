//! The pipeline's redundancy: what joins a group, when a group gets its repair fragments, and when these go.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Session, queued::Datagram};
use crate::{
    base::{PathId, trusted},
    block::{BlockId, Redundancy},
    clock::wire,
    frame::DatagramWriter,
    multipath::repairs::{self, Choice},
    redundancy::{
        GroupView, Losses,
        grant::{Candidate, Request},
    },
    send::{
        group::Symbol,
        groups::{Joining, Membership, RepairFragment},
        last_chance::{Chance, Kind},
        live::LiveBlock,
        packetize::{Contents, Filled},
    },
};

/// This share of the time that is left is kept in reserve when a group waits for more, at least.
const RESERVE: u32 = 4;

impl Session {
    /// What a datagram can hope for that leaves on `path` now.
    pub(super) fn chance(&self, now: Instant, path: PathId) -> Option<Chance> {
        let views = self.output.views();
        let view = views.iter().find(|view| view.id == path)?;
        Some(Chance::new(now, view, views))
    }

    /// The datagram's place in a group, if with bytes of block `id` it is of a `kind` that has one.
    pub(super) fn join_group(
        &mut self,
        id: BlockId,
        chance: &Chance,
        kind: Kind,
        capacity: usize,
    ) -> Option<Membership> {
        if kind == Kind::Plain || !self.store.groups.has_room(capacity) {
            return None;
        }
        let joining = joining(self.store.get(id)?, chance, kind, self.store.groups.usual_repairs());
        Some(self.store.groups.join(chance.now, &joining))
    }

    /// Closes the open group if a datagram of that kind can neither join it nor go without. What follows may concern any block.
    pub(super) fn make_way(&mut self, now: Instant, kind: Kind) -> bool {
        let must = self.store.groups.must_close_for(kind);
        if must {
            self.close_group(now);
        }
        must
    }

    /// The datagram that was given a place is filled.
    pub(super) fn add_to_group(&mut self, chance: &Chance, kind: Kind, member: Membership, filled: &Filled) {
        // What came along may be due sooner, or matter more.
        for piece in filled.contents.iter().skip(1) {
            if let Some(block) = self.store.get(piece.id) {
                let joining = joining(block, chance, kind, self.store.groups.usual_repairs());
                self.store.groups.take_in(chance.now, &joining);
            }
        }
        let symbol = filled.payload.slice(filled.symbol_at..);
        if self.store.add_to_group(member.symbol, symbol, filled.contents.clone(), chance.path.id) {
            self.close_group(chance.now);
        }
    }

    /// Closes the open group if it has waited long enough, there being nothing at hand that could join it.
    pub(super) fn close_idle_group(&mut self, now: Instant) -> bool {
        let due = self.store.groups.close_at(now, true).is_some_and(|at| at <= now);
        if due {
            self.close_group(now);
        }
        due
    }

    /// Gives the open group its repair fragments.
    fn close_group(&mut self, now: Instant) {
        let beside = self.store.redundancy_room(now);
        let Some((group, shard)) = self.store.groups.open() else { return };
        let (sources, due, priority) = (group.paths(), group.due, group.priority);
        let majority = sources.iter().max_by_key(|(_, count)| *count).map_or(PathId(0), |(path, _)| *path);
        let first_due = due.map(|(first, _)| first);
        let path = self.output.protect(majority, first_due, now);
        let views = self.output.views();
        let groups = &self.store.groups;
        let candidate = |path: PathId| {
            let view = views.iter().find(|view| view.id == path).copied()?;
            Some(Candidate { view, waiting: groups.waiting_on(path) })
        };
        let Some(first) = candidate(path) else {
            // No path is left that it could take.
            self.store.close_group(now, 0, majority, Duration::ZERO);
            return;
        };
        let of_sources = candidate(majority).filter(|_| majority != path);
        // Who asks for a copy of a small block wants it though larger ones are too much; what is ours to judge is at nobody's cost.
        let size = if group.is_duplicate { self.store.largest_of(group) } else { u64::MAX };
        let losses: Vec<(PathId, Losses)> = self.paths.iter().map(|path| (path.id, *path.in_flight.losses())).collect();
        let request = Request {
            group: GroupView {
                now,
                sources: &sources,
                repair_path: path,
                losses: &losses,
                priority,
                largest_block: group.largest_block(),
                reached: group.reached,
                rtt: first.view.rtt,
            },
            shard,
            first_due,
            has_arrived: group.has_arrived(),
            asked_for: group.asked_for,
            is_of_family: self.store.is_of_family(group),
            spare: first_due.map_or(u64::MAX, |_| self.store.spare(now, trusted(views), priority, size)),
            beside,
        };
        let grant = request.grant(first, of_sources, majority, |view| self.store.groups.wanted(view));
        if let Some(rest) = grant.rest {
            self.store.groups.rest(rest);
        }
        self.store.close_group(now, grant.repairs, grant.path, grant.gap);
    }

    /// A repair fragment that can go now.
    pub(super) fn next_repair(&mut self, now: Instant) -> Option<(Datagram, Bytes)> {
        let close_at = self.store.groups.close_at(now, false);
        if close_at.is_some_and(|at| at <= now) {
            self.refresh_views(now);
            self.close_group(now);
        }
        self.output.repair_at = self.store.groups.close_at(now, false);
        if !self.store.groups.has_waiting() {
            return None;
        }
        self.refresh_views(now);
        let capacity = self.capacity()?;
        for ready in self.store.groups.ready(now) {
            let fits = ready.datagram <= capacity;
            let choice = match fits && self.store.group_matters(&ready) {
                true => repairs::choose(self.output.views(), ready.path, ready.due, now),
                false => Choice::Forget,
            };
            match choice {
                Choice::Send(path) => {
                    let Some(repair) = self.store.groups.take(now, &ready) else { continue };
                    self.output.note_data(now);
                    self.steering.keep_quiet_but(None);
                    let micros = self.micros(now);
                    let stamp = self.paths.get_mut(path).map_or(micros, |path| path.stamp(micros));
                    let stamp = wire(stamp);
                    return Some(write(&repair, ready.symbol, path, capacity, stamp));
                }
                Choice::Wait => {
                    let paced = self.output.views().iter().filter_map(|view| view.ready_at);
                    self.output.repair_at = paced.chain(self.output.repair_at).min();
                }
                Choice::Forget => self.store.withdraw_repair(now, &ready),
            }
        }
        let next = self.store.groups.next_repair(now);
        self.output.repair_at = next.into_iter().chain(self.output.repair_at).min();
        None
    }
}

/// `repairs`: how many bytes of repair fragments the group is likely to get.
fn joining(block: &LiveBlock, chance: &Chance, kind: Kind, repairs: u64) -> Joining {
    let (now, path) = (chance.now, &chance.path);
    let due = block.due();
    let spare = due.map_or(path.rtt, |due| due.saturating_duration_since(now + path.one_way_delay));
    // These must get there, too, behind what waits on the path.
    let sending = path.backlog + Duration::from_secs_f64(repairs as f64 / path.rate.max(1.0));
    let reserve = (spare / RESERVE).max(sending).min(spare);
    Joining {
        priority: block.priority,
        due,
        resends: block.redundancy.resends(),
        in_its_time: block.has_its_time(),
        asked_for: block.redundancy != Redundancy::Auto,
        reached: chance.reached(block),
        close_by: now + (spare - reserve),
        duplicate: kind == Kind::Duplicate,
        rtt: path.rtt,
    }
}

fn write(repair: &RepairFragment, symbol: Symbol, path: PathId, capacity: usize, stamp: u32) -> (Datagram, Bytes) {
    let mut writer = DatagramWriter::new(capacity);
    writer.timestamp(stamp);
    let fits = writer.repair(&repair.head, &repair.shard);
    debug_assert!(fits, "it was measured before it was taken");
    let repair = repair.block.map(|block| (repair.shard.len() as u64, block));
    (Datagram { path, stamp, contents: Contents::repair(symbol), repair, len: 0 }, writer.finish())
}
