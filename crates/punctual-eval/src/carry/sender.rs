//! Who hands planned blocks over to a session of ours.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use punctual_proto::{Block, BlockId, Channel, DropReason, Outcome, SendError, SessionId};
use punctual_sim::AppContext;

use super::ledger::{Ledger, nanos};
use crate::{
    plan::{Bulk, HandOver, Plan},
    record::Ending,
};

/// Zeros to send; contents do not matter.
fn zeros(len: usize) -> Bytes {
    static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
    if len <= ZEROS.len() { Bytes::from_static(&ZEROS[..len]) } else { vec![0; len].into() }
}

/// Hands the planned blocks over when their time has come.
pub(super) struct Sender {
    plan: Plan,
    ledger: Ledger,
    start: Option<(SessionId, Duration)>,
    sources: Vec<Source>,
    /// Ids of the planned blocks that were taken.
    ids: Vec<Option<BlockId>>,
}

/// How far a source has come.
struct Source {
    hand_over: HandOver,
    /// Its planned blocks that are still to come, then those that are ready and wait for room.
    to_come: VecDeque<u32>,
    waiting: VecDeque<u32>,
    /// Bytes the transport holds of it.
    held: u64,
    /// How much later than planned everything is, because the application had to wait.
    shift: Duration,
    /// What its timer is set to.
    armed: Option<Duration>,
    bulk: Option<Bulk>,
    bulk_sent: u64,
}

impl Source {
    /// Whether the application waits for room, and makes nothing until there is some.
    fn is_held_up(&self) -> bool {
        self.hand_over.blocking && !self.waiting.is_empty()
    }
}

impl Sender {
    pub(super) fn new(plan: Plan, ledger: Ledger) -> Self {
        let mut sources: Vec<Source> = plan
            .sources
            .iter()
            .map(|source| Source {
                hand_over: source.hand_over,
                to_come: VecDeque::new(),
                waiting: VecDeque::new(),
                held: 0,
                shift: Duration::ZERO,
                armed: None,
                bulk: source.bulk,
                bulk_sent: 0,
            })
            .collect();
        for (block, index) in plan.blocks.iter().zip(0..) {
            sources[usize::from(block.source)].to_come.push_back(index);
        }
        Self { ids: vec![None; plan.blocks.len()], plan, ledger, start: None, sources }
    }

    /// Tells the session of a source whose period is no secret.
    fn declare(&self, cx: &mut AppContext<'_>, session: SessionId, source: usize) {
        let Some((every, size)) = self.plan.sources[source].period else { return };
        let Some(block) = self.plan.blocks.iter().find(|block| usize::from(block.source) == source) else { return };
        if let Some(session) = cx.session(session) {
            session.expect_source(Channel(source as u32), every, size, block.deadline, block.priority);
        }
    }

    /// Sets the timer for a source's next block, unless it is set.
    fn arm(&mut self, cx: &mut AppContext<'_>, source: usize) {
        let Some((_, start)) = self.start else { return };
        let one = &mut self.sources[source];
        let Some(&index) = one.to_come.front().filter(|_| !one.is_held_up()) else { return };
        let due = start + self.plan.blocks[index as usize].at + one.shift;
        if one.armed != Some(due) {
            one.armed = Some(due);
            cx.set_timer(due, source as u64);
        }
    }

    /// Makes ready what is due.
    fn make(&mut self, cx: &AppContext<'_>, source: usize) {
        let Some((_, start)) = self.start else { return };
        let since = cx.now() - start;
        let one = &mut self.sources[source];
        one.armed = None;
        while let Some(&index) = one.to_come.front().filter(|_| !one.is_held_up()) {
            let at = self.plan.blocks[index as usize].at + one.shift;
            if at > since {
                return;
            }
            one.to_come.pop_front();
            one.waiting.push_back(index);
            self.ledger.lock().rows[index as usize].handed_over = nanos(at);
        }
    }

    /// Hands over what is ready and has room.
    fn pump(&mut self, cx: &mut AppContext<'_>, source: usize) {
        while let Some(&index) = self.sources[source].waiting.front() {
            if !self.hand_over(cx, source, index) {
                break;
            }
            let waited = cx.now().saturating_sub(self.ready_at(index));
            let one = &mut self.sources[source];
            one.waiting.pop_front();
            if one.hand_over.blocking {
                // The application was held up, and with it all that it makes.
                one.shift += waited;
            }
        }
        self.top_up(cx, source);
        self.arm(cx, source);
    }

    /// Whether the transport took the block (or it is settled that it never will).
    fn hand_over(&mut self, cx: &mut AppContext<'_>, source: usize, index: u32) -> bool {
        let Some((session, _)) = self.start else { return false };
        let planned = &self.plan.blocks[index as usize];
        let size = u64::from(planned.size);
        let Source { hand_over, held, .. } = &self.sources[source];
        // A block larger than the whole queue goes when that is empty.
        if hand_over.queue.is_some_and(|queue| *held > 0 && held + size > queue) {
            return false;
        }
        let waited = cx.now() - self.ready_at(index);
        let mut block = Block::new(zeros(planned.size as usize)).priority(planned.priority);
        block.deadline = planned.deadline;
        block.begin = cx.instant().checked_sub(waited);
        block.redundancy = self.plan.sources[source].redundancy;
        block.channel = planned.ordered.then_some(Channel(u32::from(planned.source)));
        for &on in &planned.depends_on {
            match self.ids[on as usize] {
                Some(id) => block.dependencies.push(id),
                None => {
                    self.ledger.lock().rows[index as usize].ending = Ending::DependencyDropped;
                    return true;
                }
            }
        }
        match cx.send(session, block) {
            Ok(id) => {
                let mut entries = self.ledger.lock();
                entries.name(id, Some(index));
                entries.rows[index as usize].ending = Ending::Unfinished;
                self.ids[index as usize] = Some(id);
                self.sources[source].held += size;
                true
            }
            Err(SendError::Full { .. }) => false,
            Err(_) => true,
        }
    }

    /// When a block is ready, the application's own waits counted.
    fn ready_at(&self, index: u32) -> Duration {
        let start = self.start.map_or(Duration::ZERO, |(_, start)| start);
        start + Duration::from_nanos(self.ledger.lock().rows[index as usize].handed_over)
    }

    /// Keeps a bulk transfer's backlog up.
    fn top_up(&mut self, cx: &mut AppContext<'_>, source: usize) {
        let (Some((session, start)), Some(bulk)) = (self.start, self.sources[source].bulk) else { return };
        let now = cx.now() - start;
        while (bulk.start..bulk.stop).contains(&now) {
            let Source { held, bulk_sent, .. } = &self.sources[source];
            let left = bulk.total.map_or(u64::MAX, |total| total.saturating_sub(*bulk_sent));
            let size = u64::from(bulk.block).min(left);
            if *held >= bulk.backlog || size == 0 {
                return;
            }
            let mut block = Block::new(zeros(size as usize)).priority(bulk.priority);
            block.redundancy = self.plan.sources[source].redundancy;
            let Ok(id) = cx.send(session, block) else { return };
            self.ledger.lock().name(id, None);
            self.sources[source].held += size;
            self.sources[source].bulk_sent += size;
        }
    }

    pub(super) fn ended(&mut self, cx: &mut AppContext<'_>, id: BlockId, outcome: &Outcome) {
        let mut entries = self.ledger.lock();
        let Some(planned) = entries.planned(id) else { return };
        if let Some(row) = entries.row(id) {
            row.ending = ending(outcome);
        }
        drop(entries);
        let source = match planned {
            Some(index) => {
                let block = &self.plan.blocks[index as usize];
                let source = usize::from(block.source);
                self.sources[source].held -= u64::from(block.size);
                source
            }
            None => {
                // Bulk blocks of a source are all alike but perhaps the last.
                let Some(source) = self.sources.iter().position(|source| source.bulk.is_some()) else { return };
                let size = self.sources[source].bulk.map_or(0, |bulk| u64::from(bulk.block));
                self.sources[source].held = self.sources[source].held.saturating_sub(size);
                source
            }
        };
        self.pump(cx, source);
    }

    /// The run has begun.
    pub(super) fn begin(&mut self, cx: &mut AppContext<'_>, session: SessionId) {
        self.start = Some((session, cx.now()));
        for source in 0..self.sources.len() {
            self.declare(cx, session, source);
            self.arm(cx, source);
            if let Some(bulk) = self.sources[source].bulk {
                cx.set_timer(cx.now() + bulk.start, source as u64);
            }
        }
    }

    /// There is room again.
    pub(super) fn pump_all(&mut self, cx: &mut AppContext<'_>) {
        (0..self.sources.len()).for_each(|source| self.pump(cx, source));
    }

    /// The timer of a source has come.
    pub(super) fn on_timer(&mut self, cx: &mut AppContext<'_>, source: usize) {
        self.make(cx, source);
        self.pump(cx, source);
    }
}

fn ending(outcome: &Outcome) -> Ending {
    match outcome {
        Outcome::Delivered(_) => Ending::Delivered,
        Outcome::Dropped { reason: DropReason::Expired, .. } => Ending::Expired,
        Outcome::Dropped { reason: DropReason::DependencyDropped, .. } => Ending::DependencyDropped,
        Outcome::Dropped { .. } => Ending::Dropped,
    }
}
