//! What a decision costs: for each packet `next`, then `insert` (or `remove`, and a new block's `insert`) of the block
//! it named, and the end of those that are overdue.
//!
//! `conference` has a few distinct deadlines and most blocks are unsent; in `scattered` no two deadlines are equal and
//! all blocks are partly sent at first.
//!
//! `cargo bench -p punctual-proto --bench schedule`

#![allow(missing_docs)] // of what criterion's macros make

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use punctual_proto::{
    BlockId,
    schedule::{self, BlockScheduler, BlockView, SendContext},
};

/// Bytes of a block in one packet.
const FRAGMENT: u64 = 1150;

/// What an application sends: size (bytes), deadline (ms) and priority.
type Kind = (u64, Option<u64>, u8);

/// A conference with a file beside it: audio, control, video frames large and small, a bulk transfer.
const CONFERENCE: &[Kind] = &[
    (160, Some(100), 0),
    (600, Some(50), 1),
    (4_000, Some(200), 2),
    (6_000, Some(200), 2),
    (45_000, Some(200), 2),
    (20_000, Some(400), 3),
    (250_000, Some(1_000), 5),
    (1_000_000, None, 7),
];

/// As many live blocks as asked for, sent packet by packet.
struct Sender {
    scheduler: Box<dyn BlockScheduler>,
    /// By id, from `first`; `None` once sent or dropped.
    blocks: VecDeque<Option<BlockView>>,
    first: u64,
    /// When which block is due.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    rate: f64,
    now: Instant,
    packets: u64,
    scattered: bool,
}

impl Sender {
    fn new(name: &str, live: u64, scattered: bool) -> Self {
        let mut sender = Self {
            scheduler: schedule::by_name(name).expect("a name of the registry")(),
            blocks: Default::default(),
            first: 0,
            due: BinaryHeap::new(),
            // About a quarter of a second's work for the live blocks.
            rate: live as f64 * 160_000.0 * 4.0,
            now: Instant::now(),
            packets: 0,
            scattered,
        };
        for _ in 0..live {
            sender.hand_over();
        }
        if scattered {
            // Every block partly sent, each by another share.
            for (n, block) in sender.blocks.iter_mut().flatten().enumerate() {
                block.unsent = 1 + (block.size - 1) * (1 + n as u64 * 7919 % 997) / 997;
                sender.scheduler.insert(block);
            }
        }
        for _ in 0..live {
            sender.packet();
        }
        sender
    }

    fn hand_over(&mut self) {
        let id = self.first + self.blocks.len() as u64;
        let random = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let (size, deadline, priority) = CONFERENCE[random as usize % CONFERENCE.len()];
        let deadline = match deadline.map(Duration::from_millis) {
            _ if self.scattered => Some(Duration::from_micros(20_000 + random % 2_000_000)),
            deadline => deadline,
        };
        let mut view = BlockView::new(BlockId(id), size, self.now);
        view.deadline =
            if self.scattered { deadline } else { deadline.map(|d| Duration::from_millis(d.as_millis() as u64)) };
        view.priority = priority;
        self.scheduler.insert(&view);
        self.blocks.push_back(Some(view));
        if let Some(due) = view.due().filter(|_| self.scheduler.drops_stale()) {
            self.due.push(Reverse((due, id)));
        }
    }

    fn packet(&mut self) {
        self.packets += 1;
        self.now += Duration::from_secs_f64(FRAGMENT as f64 / self.rate);
        // The rate swings by 5 % and the one-way delay by 1 ms, as estimates do.
        let swing = (self.packets % 1024) as f64 / 512.0 - 1.0;
        let mut cx = SendContext::new(self.now, &[]);
        cx.rate = self.rate * (1.0 + 0.05 * swing);
        cx.one_way_delay = Duration::from_micros(20_000 + self.packets % 8 * 125);
        let id = self.scheduler.next(&cx).expect("there are live blocks");
        let block = self.blocks[(id.0 - self.first) as usize].as_mut().expect("a live block");
        if block.unsent > FRAGMENT {
            block.unsent -= FRAGMENT;
            self.scheduler.insert(block);
        } else {
            self.end(id.0);
        }
        while let Some(&Reverse((due, id))) = self.due.peek()
            && due < self.now
        {
            self.due.pop();
            self.end(id);
        }
        black_box(id);
    }

    /// A block that is sent or overdue makes room for a new one.
    fn end(&mut self, id: u64) {
        let Some(slot) = id.checked_sub(self.first).and_then(|index| self.blocks.get_mut(index as usize)) else {
            return;
        };
        if slot.take().is_none() {
            return;
        }
        self.scheduler.remove(BlockId(id));
        while let Some(None) = self.blocks.front() {
            self.blocks.pop_front();
            self.first += 1;
        }
        self.hand_over();
    }
}

fn decisions(criterion: &mut Criterion) {
    for (workload, scattered) in [("conference", false), ("scattered", true)] {
        let mut group = criterion.benchmark_group(workload);
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_millis(1000)).sample_size(20);
        for name in schedule::names() {
            for live in [10, 1_000, 10_000] {
                group.bench_function(BenchmarkId::new(name, live), |bencher| {
                    let mut sender = Sender::new(name, live, scattered);
                    bencher.iter(|| sender.packet());
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
