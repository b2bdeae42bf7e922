//! The pipeline's redundancy: what joins a group, when a group gets its repair fragments, and when these go.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{
    Session,
    output::{Datagram, context},
};
use crate::{
    block::{BlockId, Redundancy},
    frame::DatagramWriter,
    multipath::{PathHealth, PathId, PathView},
    redundancy::{GroupView, Losses},
    send::{
        group::Symbol,
        groups::{Joining, Membership, Ready, RepairFragment},
        live::LiveBlock,
        packetize::{Contents, Filled},
    },
};

/// Timers and schedulers of real hosts are late by about this much.
const GRANULARITY: Duration = Duration::from_millis(1);
/// Bursts of losses longer than this are worth spreading repair fragments for.
const BURST: f64 = 1.5;
/// This share of the time that is left is kept in reserve when a group waits for more.
const RESERVE: u32 = 4;
/// Where a group got no repair fragments, for want of losses or of room, none is begun for a quarter of a round trip, and at least this long.
const REST: Duration = Duration::from_millis(5);
/// A fragment is about this large when the number of a block's is estimated.
const FRAGMENT: f64 = 1_150.0;

impl Session {
    /// The datagram's place in a group, if what it carries of block `id` on `path` is to have repair fragments.
    pub(super) fn join_group(
        &mut self,
        now: Instant,
        id: BlockId,
        path: PathId,
        capacity: usize,
    ) -> Option<Membership> {
        let joining = self.joining(now, id, path).filter(|_| self.store.groups.has_room(capacity));
        if self.store.groups.has_open() && joining.is_none_or(|joining| self.store.groups.must_close_for(&joining)) {
            self.close_group(now, joining.is_some());
        }
        joining.map(|joining| self.store.groups.join(now, &joining))
    }

    fn joining(&mut self, now: Instant, id: BlockId, path: PathId) -> Option<Joining> {
        let block = self.store.get(id)?;
        let views = self.output.views();
        let view = views.iter().find(|view| view.id == path)?;
        let sender = self.paths.get(path)?;
        let due = block.due();
        let useful = due.is_none_or(|due| now + view.one_way_delay < due);
        let wanted = match block.redundancy {
            Redundancy::None | Redundancy::Retransmit => false,
            Redundancy::Fec | Redundancy::Both | Redundancy::Duplicate => useful,
            Redundancy::Auto if self.store.groups.rests(now) => false,
            Redundancy::Auto => {
                let answer = || sender.longest_answer(&self.steering.reading(sender.slot), self.config.max_ack_delay);
                useful && due.is_some_and(|due| !survives_a_loss(now, due, view, answer(), views))
            }
        };
        if !wanted {
            return None;
        }
        let spare = due.map_or(view.rtt, |due| due.saturating_duration_since(now + view.one_way_delay));
        Some(Joining {
            priority: block.priority,
            due,
            resends: block.redundancy.resends(),
            reached: reached(block, view.loss),
            close_by: now + spare - spare / RESERVE,
            duplicate: block.redundancy == Redundancy::Duplicate,
            rtt: view.rtt,
        })
    }

    /// The datagram that was given a place is filled.
    pub(super) fn add_to_group(&mut self, now: Instant, member: Membership, filled: &Filled, path: PathId) {
        let symbol = filled.payload.slice(filled.symbol_at..);
        if self.store.groups.add(member.symbol, symbol, filled.contents.clone(), path) {
            self.close_group(now, false);
        }
    }

    /// Gives the open group its repair fragments if it is time. `idle`: there is nothing that could join it now; otherwise it
    /// is time. Returns whether there are repair fragments by it.
    pub(super) fn close_group(&mut self, now: Instant, idle: bool) -> bool {
        if self.store.groups.close_at(now, true).is_none_or(|at| idle && at > now) {
            return false;
        }
        let Some((group, shard)) = self.store.groups.open() else { return false };
        let (sources, due, priority) = (group.paths(), group.due, group.priority);
        let Some(&(majority, _)) = sources.iter().max_by_key(|(_, count)| *count) else { return false };
        let views = self.output.views();
        let path = repair_path(views, majority, due.map(|(first, _)| first), now);
        let Some(view) = views.iter().find(|view| view.id == path).copied() else { return false };
        let cx = context(now, views);
        let room = match due {
            Some(_) => self.store.spare(now, cx.rate, cx.one_way_delay, priority),
            None => u64::MAX,
        };
        let most = usize::try_from(room / shard.max(1) as u64).unwrap_or(usize::MAX);
        let losses: Vec<(PathId, Losses)> = self.paths.iter().map(|path| (path.id, *path.in_flight.losses())).collect();
        let losses: Vec<(PathId, &Losses)> = losses.iter().map(|(id, losses)| (*id, losses)).collect();
        let group_view = GroupView {
            now,
            sources: &sources,
            repair_path: path,
            losses: &losses,
            priority,
            largest_block: group.largest_block(),
            reached: group.reached,
            rtt: view.rtt,
        };
        let wanted = if group.has_arrived() { 0 } else { self.store.groups.wanted(&group_view) };
        let repairs = wanted.min(most);
        if repairs == 0 {
            self.store.groups.rest_until(now + (view.rtt / 4).max(REST));
        }
        let gap = spread(&view, shard, repairs, due.map(|(first, _)| first), now);
        self.store.close_group(now, repairs, path, gap);
        repairs > 0
    }

    /// A repair fragment that can go now.
    pub(super) fn next_repair(&mut self, now: Instant) -> Option<(Datagram, Bytes)> {
        if self.store.groups.close_at(now, false).is_some_and(|at| at <= now) {
            self.refresh_views(now);
            self.close_group(now, false);
        }
        self.output.repair_at = None;
        if !self.store.groups.has_waiting() {
            return None;
        }
        self.refresh_views(now);
        let capacity = self.capacity()?;
        for ready in self.store.groups.ready(now) {
            let choice = match self.store.group_matters(&ready) {
                true => choose(self.output.views(), &ready, now),
                false => Choice::Forget,
            };
            match choice {
                Choice::Send(path) => {
                    let Some(repair) = self.store.groups.take(now, &ready) else { continue };
                    if let Some(datagram) = write(&repair, ready.symbol, path, capacity) {
                        return Some(datagram);
                    }
                    // The MTU has fallen since: it goes for lost.
                    self.store.on_packet_lost(now, &Contents::repair(ready.symbol), path);
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

/// Whether a fragment that leaves on `path` now could be lost, be found to be lost, and be sent again in time: once its
/// `answer` is overdue, which is no later than the longest lately or what the queue makes of it, it has to get there by the path
/// that is fastest.
fn survives_a_loss(now: Instant, due: Instant, path: &PathView, answer: Duration, paths: &[PathView]) -> bool {
    let again = trusted(paths).map(|view| view.one_way_delay.max(view.min_one_way_delay + view.backlog)).min();
    let Some(again) = again else { return false };
    let noticed = answer.max(path.min_rtt + path.backlog) + GRANULARITY;
    now + noticed + again + GRANULARITY <= due
}

/// How likely it was that what the block has to send now would have to be sent: all but certain for new bytes, and for lost ones
/// as likely as the loss of any of its fragments.
fn reached(block: &LiveBlock, loss: f64) -> f64 {
    match block.next_range() {
        Some((_, true)) => {
            let fragments = (block.size() as f64 / FRAGMENT).ceil();
            1.0 - (1.0 - loss.clamp(0.0, 0.99)).powf(fragments)
        }
        _ => 1.0,
    }
}

/// The paths that are free of doubt, or all, if none is.
fn trusted(paths: &[PathView]) -> impl Iterator<Item = &PathView> {
    let any = paths.iter().any(|view| view.health == PathHealth::Active);
    paths.iter().filter(move |view| !any || view.health == PathHealth::Active)
}

/// The path for a group's repair fragments: not that of most of its sources, if another gets them there in time; there
/// the same burst would hit both.
fn repair_path(paths: &[PathView], majority: PathId, due: Option<Instant>, now: Instant) -> PathId {
    let arrival = |view: &PathView| now + view.backlog + view.min_one_way_delay.max(view.one_way_delay);
    let others = trusted(paths).filter(|view| view.id != majority);
    let in_time = others.filter(|view| due.is_none_or(|due| arrival(view) < due));
    in_time.min_by_key(|view| (arrival(view), view.id)).map_or(majority, |view| view.id)
}

/// How far apart repair fragments leave: at once where losses are single; where they come in bursts, as far as a burst lasts, if
/// there is time.
fn spread(path: &PathView, shard: usize, repairs: usize, due: Option<Instant>, now: Instant) -> Duration {
    if path.loss_burst < BURST || repairs == 0 {
        return Duration::ZERO;
    }
    let burst = Duration::from_secs_f64(path.loss_burst * shard as f64 / path.rate.max(1.0));
    let left = due.map_or(path.rtt, |due| due.saturating_duration_since(now + path.one_way_delay + GRANULARITY));
    burst.min(left / (repairs as u32 + 1))
}

/// What to do with a repair fragment.
enum Choice {
    Send(PathId),
    /// No path that would do has room.
    Wait,
    /// It would come too late, or is not needed any more.
    Forget,
}

fn choose(paths: &[PathView], repair: &Ready, now: Instant) -> Choice {
    let in_time = |view: &&PathView| repair.due.is_none_or(|due| now + view.one_way_delay < due);
    let useful = || paths.iter().filter(in_time);
    if useful().next().is_none() {
        return Choice::Forget;
    }
    let preferred = useful().find(|view| Some(view.id) == repair.path && view.health == PathHealth::Active);
    match preferred {
        Some(view) if view.ready => return Choice::Send(view.id),
        Some(view) if view.ready_at.is_some() => return Choice::Wait,
        _ => {}
    }
    let ready = useful().filter(|view| view.ready).min_by_key(|view| (view.one_way_delay + view.backlog, view.id));
    ready.map_or(Choice::Wait, |view| Choice::Send(view.id))
}

fn write(repair: &RepairFragment, symbol: Symbol, path: PathId, capacity: usize) -> Option<(Datagram, Bytes)> {
    let mut writer = DatagramWriter::new(capacity);
    if !writer.repair(&repair.head, &repair.shard) {
        return None;
    }
    let repair = repair.block.map(|block| (repair.shard.len() as u64, block));
    Some((Datagram { path, contents: Contents::repair(symbol), repair }, writer.finish()))
}
