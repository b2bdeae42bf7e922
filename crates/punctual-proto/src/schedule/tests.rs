//! What every scheduler must do, and what the tests of each are written with.

use std::{
    collections::BTreeMap,
    sync::OnceLock,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{BlockScheduler, BlockView, LookupError, SendContext, by_name, default_factory, names};
use crate::block::BlockId;

/// The moment all tests start at.
pub(super) fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// 1000 bytes, all unsent, handed over at the start, due 100 ms later.
pub(super) fn block(id: u64) -> BlockView {
    BlockView {
        id: BlockId(id),
        size: 1000,
        unsent: 1000,
        begin: start(),
        deadline: Some(Duration::from_millis(100)),
        priority: 128,
        followers: 0,
        beyond_means: false,
        again: false,
    }
}

/// So many milliseconds after the start: 1 MB/s, 10 ms one way.
pub(super) fn context(millis: u64) -> SendContext<'static> {
    SendContext {
        now: start() + Duration::from_millis(millis),
        paths: &[],
        rate: 1e6,
        one_way_delay: Duration::from_millis(10),
    }
}

/// Sends every block whole: their ids in the scheduler's order.
pub(super) fn drain(scheduler: &mut dyn BlockScheduler) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some(id) = scheduler.next(&context(0)) {
        scheduler.remove(id);
        order.push(id.0);
    }
    order
}

/// Up to 60 blocks, in no order.
pub(super) fn views() -> impl Strategy<Value = Vec<BlockView>> {
    prop::collection::vec((0u64..50, prop::option::of(1u64..50), 0u8..4), 0..60).prop_map(|properties| {
        let views = properties.into_iter().zip(0..).map(|((begin, deadline, priority), id)| BlockView {
            begin: start() + Duration::from_millis(begin),
            deadline: deadline.map(Duration::from_millis),
            priority,
            ..block(id * 31 % 61)
        });
        views.collect()
    })
}

/// What can happen to a scheduler.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Insert(BlockView),
    /// Sends this share of what is left of the nth block.
    Progress(usize, f64),
    Remove(usize),
    Decide {
        at: Duration,
        one_way_delay: Duration,
        rate: f64,
    },
}

impl Step {
    pub(super) fn context(&self) -> SendContext<'static> {
        let Self::Decide { at, one_way_delay, rate } = *self else { panic!("{self:?}") };
        SendContext { now: start() + at, one_way_delay, rate, paths: &[] }
    }
}

/// Random steps over two seconds in which time never runs back, with deadlines (ms) from `deadlines` or, if that is empty, any.
pub(super) fn steps(deadlines: &'static [u64], rates: impl Strategy<Value = f64>) -> impl Strategy<Value = Vec<Step>> {
    let micros = if deadlines.is_empty() {
        (1000u64..2_000_000).boxed()
    } else {
        prop::sample::select(deadlines).prop_map(|millis| millis * 1000).boxed()
    };
    let block = (1u64..200_000, prop::option::weighted(0.8, micros), any::<u8>(), 0u64..50_000);
    let decide = (0u64..50_000, rates);
    let step = (0u8..10, block, decide, any::<prop::sample::Index>(), 0.0..1.0f64);
    prop::collection::vec(step, 1..150).prop_map(|steps| {
        let mut now = Duration::from_millis(100);
        let steps = steps.into_iter().zip(0u64..).map(|((kind, block, decide, which, share), id)| match kind {
            0..4 => Step::Insert(BlockView {
                id: BlockId(id),
                size: block.0,
                unsent: block.0,
                begin: start() + now - Duration::from_micros(block.3),
                deadline: block.1.map(Duration::from_micros),
                priority: block.2,
                followers: 0,
                beyond_means: false,
                again: false,
            }),
            4..6 => Step::Progress(which.index(150), share),
            6 => Step::Remove(which.index(150)),
            _ => {
                now += Duration::from_micros(decide.0);
                let one_way_delay = Duration::from_micros((share * 40_000.0) as u64);
                Step::Decide { at: now, one_way_delay, rate: decide.1 }
            }
        });
        steps.collect()
    })
}

/// Does to the scheduler, and to the plain map beside it, what the step says.
pub(super) fn model(scheduler: &mut dyn BlockScheduler, blocks: &mut BTreeMap<BlockId, BlockView>, step: &Step) {
    let nth = |blocks: &BTreeMap<BlockId, BlockView>, n: usize| {
        blocks.keys().nth(n.checked_rem(blocks.len()).unwrap_or(0)).copied()
    };
    match step {
        Step::Insert(view) => {
            blocks.insert(view.id, *view);
            scheduler.insert(view);
        }
        Step::Progress(n, share) => {
            if let Some(view) = nth(blocks, *n).and_then(|id| blocks.get_mut(&id)) {
                view.unsent = (view.unsent - (view.unsent as f64 * share) as u64).max(1);
                scheduler.insert(view);
            }
        }
        Step::Remove(n) => {
            if let Some(id) = nth(blocks, *n) {
                blocks.remove(&id);
                scheduler.remove(id);
                scheduler.remove(id);
            }
        }
        Step::Decide { .. } => {}
    }
}

proptest! {
    #[test]
    fn every_scheduler_returns_a_live_block_if_there_is_one(steps in steps(&[], 1e3..1e8)) {
        for name in names() {
            let mut scheduler = by_name(name).unwrap()();
            let mut blocks = BTreeMap::new();
            for step in &steps {
                model(&mut *scheduler, &mut blocks, step);
                if let Step::Decide { .. } = step {
                    match scheduler.next(&step.context()) {
                        Some(id) => prop_assert!(blocks.contains_key(&id), "{} returned {}", name, id),
                        None => prop_assert!(blocks.is_empty(), "{} returned none of {:?}", name, blocks),
                    }
                }
            }
        }
    }
}

#[test]
fn each_name_has_a_constructor() {
    use super::*;

    let made = [
        admission(),
        ads(0.5, 255.0).expect("within bounds"),
        dtp_d(255.0).expect("within bounds"),
        dtp_p(),
        edf(),
        fcfs(),
        fcfs_drop(),
        priority_fifo(),
        strict(),
    ];
    assert!(made.iter().map(|factory| factory().name()).eq(names()));
    assert!(dtp_d(-1.0).is_err());
}

#[test]
fn names_lead_to_their_schedulers() {
    for name in names() {
        let scheduler = by_name(name).unwrap()();
        assert_eq!(scheduler.name(), name);
        assert_eq!(scheduler.drops_stale(), name != "fcfs");
    }
    assert_eq!(default_factory()().name(), "admission");
    assert!(by_name("ads:alpha=0.3,beta=255").is_ok());
    assert!(matches!(by_name("adds"), Err(LookupError::UnknownName { .. })));
    assert!(matches!(by_name("dtp-p:alpha=0"), Err(LookupError::UnknownParameter { .. })));
    assert!(matches!(by_name("ads:alpha=1.1"), Err(LookupError::BadValue { parameter: "alpha", .. })));
}
