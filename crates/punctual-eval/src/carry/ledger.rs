//! What is noted while a run goes on.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use punctual_proto::{BlockId, FragmentArrived, FragmentKind, FragmentSent, Observer, SessionStats};

use super::Stage;
use crate::{
    plan::{Plan, PlannedBlock},
    record::{BlockRow, Ended, Ending, LostBytes, Nanos, RunRecord, SentBytes},
};

/// What is noted of one session, by both of its ends. Both run in one thread; the lock is for the sake of
/// [`Observer`], which must be `Send`.
#[derive(Debug, Clone)]
pub(super) struct Ledger(Arc<Mutex<Entries>>);

/// The entries.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) rows: Vec<BlockRow>,
    /// Of each block id, which planned block it is; `None` is bulk.
    ids: Vec<Option<u32>>,
    pub(super) bulk_bytes: u64,
    /// Bytes delivered in the time in which flows are compared.
    pub(super) compared_bytes: u64,
    comparison: (Nanos, Nanos),
    pub(super) arrivals: Vec<u32>,
    pub(super) queue: Vec<u32>,
    /// How long what is queued takes to send, microseconds.
    pub(super) queue_wait: Vec<u32>,
    /// By path of the experiment.
    pub(super) path_bytes: Vec<SentBytes>,
    /// Which of them is the flow's first.
    pub(super) first_path: usize,
    pub(super) lost: LostBytes,
    /// How the session ended, if it has.
    pub(super) ended: Option<Ended>,
}

pub(super) fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Ledger {
    pub(super) fn new(stage: &Stage, plan: &Plan) -> Self {
        let bins = (stage.end.as_nanos() / RunRecord::BIN.as_nanos()) as usize + 1;
        let row = |block: &PlannedBlock| BlockRow {
            source: block.source,
            priority: block.priority,
            size: block.size,
            deadline: block.deadline.map(nanos),
            handed_over: nanos(block.at),
            ending: Ending::NotTaken,
            ..BlockRow::default()
        };
        let (from, to) = stage.comparison();
        Self(Arc::new(Mutex::new(Entries {
            rows: plan.blocks.iter().map(row).collect(),
            ids: Vec::with_capacity(plan.blocks.len()),
            bulk_bytes: 0,
            compared_bytes: 0,
            comparison: (nanos(from), nanos(to)),
            arrivals: vec![0; bins],
            queue: vec![0; bins],
            queue_wait: vec![0; bins],
            path_bytes: vec![SentBytes::default(); stage.paths.len()],
            first_path: 0,
            lost: LostBytes::default(),
            ended: None,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// The next block id is that of a planned block, or of bulk data.
    pub(super) fn name(&mut self, id: BlockId, planned: Option<u32>) {
        debug_assert_eq!(id.0, self.ids.len() as u64, "block ids count up from zero");
        self.ids.push(planned);
    }

    /// Which planned block an id is; `Some(None)` is bulk.
    pub(super) fn planned(&self, id: BlockId) -> Option<Option<u32>> {
        self.ids.get(usize::try_from(id.0).ok()?).copied()
    }

    pub(super) fn row(&mut self, id: BlockId) -> Option<&mut BlockRow> {
        let index = self.planned(id)??;
        self.rows.get_mut(index as usize)
    }

    /// A block is with the receiving application.
    pub(super) fn delivered(&mut self, id: BlockId, at: Nanos, bytes: u64) {
        self.compare(at, bytes);
        match self.row(id) {
            Some(row) => row.delivered = Some(at),
            None => self.bulk_bytes += bytes,
        }
    }

    /// One end's session is over. What the other hears later only follows from it.
    pub(super) fn over(&mut self, end: &str, at: Nanos, why: &dyn fmt::Display) {
        if self.ended.as_ref().is_none_or(|ended| at < ended.at) {
            self.ended = Some(Ended { at, why: format!("{end}: {why}") });
        }
    }

    /// Counts bytes if they were delivered in the time in which flows are compared.
    pub(super) fn compare(&mut self, at: Nanos, bytes: u64) {
        let (from, to) = self.comparison;
        if (from..to).contains(&at) {
            self.compared_bytes += bytes;
        }
    }

    fn sent(&mut self, at: Nanos, fragment: &FragmentSent) {
        let len = u32::try_from(fragment.len).unwrap_or(u32::MAX);
        if let Some(sent) = self.path_bytes.get_mut(self.first_path + fragment.path.0 as usize) {
            *match fragment.kind {
                FragmentKind::Source => &mut sent.source,
                FragmentKind::Resent => &mut sent.resent,
                FragmentKind::Copy => &mut sent.copied,
                _ => &mut sent.repair,
            } += fragment.len;
        }
        let Some(row) = self.row(fragment.block) else { return };
        row.first_sent.get_or_insert(at);
        match fragment.kind {
            FragmentKind::Source => {
                row.source_bytes += len;
                if row.source_bytes >= row.size {
                    row.last_sent = Some(at);
                }
            }
            FragmentKind::Resent => row.resent_bytes += len,
            FragmentKind::Copy => row.copied_bytes += len,
            _ => row.repair_bytes += len,
        }
    }

    /// What the sender has counted.
    pub(super) fn counted(&mut self, stats: &SessionStats) {
        self.lost = LostBytes {
            restored: stats.restored_bytes,
            resend_regained: stats.resend_regained_bytes,
            copy_regained: stats.copy_regained_bytes,
            never_regained: stats.never_regained_bytes,
        };
    }

    fn arrived(&mut self, at: Nanos, fragment: &FragmentArrived) {
        let new = u32::try_from(fragment.new).unwrap_or(u32::MAX);
        if let Some(bin) = self.arrivals.get_mut((at / nanos(RunRecord::BIN)) as usize) {
            *bin += new;
        }
        let Some(row) = self.row(fragment.block) else { return };
        row.first_arrived.get_or_insert(at);
        row.arrived_bytes += new;
        if row.deadline.is_none_or(|deadline| at <= row.handed_over + deadline) {
            row.good_bytes += new;
        }
    }
}

/// Notes what an end of a session does with blocks. The clock of its host reads `origin` when the run begins.
#[derive(Clone)]
pub(super) struct Scribe {
    /// Whose blocks it sends,
    pub(super) sent: Option<Ledger>,
    /// and whose it takes.
    pub(super) taken: Option<Ledger>,
    pub(super) origin: Arc<Mutex<Option<Instant>>>,
}

impl Scribe {
    /// Since the run's beginning.
    fn since(&self, at: Instant) -> Option<Nanos> {
        let origin = (*self.origin.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(nanos(at.saturating_duration_since(origin)))
    }
}

impl Observer for Scribe {
    fn fragment_sent(&mut self, at: Instant, fragment: &FragmentSent) {
        if let (Some(at), Some(ledger)) = (self.since(at), &self.sent) {
            ledger.lock().sent(at, fragment);
        }
    }

    fn fragment_arrived(&mut self, at: Instant, fragment: &FragmentArrived) {
        if let (Some(at), Some(ledger)) = (self.since(at), &self.taken) {
            ledger.lock().arrived(at, fragment);
        }
    }

    fn block_complete(&mut self, at: Instant, id: BlockId) {
        if let (Some(at), Some(ledger)) = (self.since(at), &self.taken)
            && let Some(row) = ledger.lock().row(id)
        {
            row.complete = Some(at);
        }
    }
}
