//! Blocks by due time, with what the tightest of them has to spare.
//!
//! Sent back to back in the order of their due times, block k is complete once it and all those before it are out. With
//! S_k for the unsent bytes of those up to and including k, and a *pace* in seconds per byte, it must start no later than
//!
//! ```text
//! due_k − pace · S_k
//! ```
//!
//! and all are in time exactly if the least of these moments has not passed: the latest start of the whole queue. No other
//! order does better (Jackson 1955). A treap keeps, for each subtree, the bytes and the latest start of its blocks
//! alone, from which that of two subtrees side by side follows without looking into them:
//!
//! ```text
//! start(left, right) = min(start(left), start(right) − pace · bytes(left))
//! ```
//!
//! So adding, removing, changing a block and each question below cost O(log blocks). Only a new pace means going through all.

use std::cmp::{Ordering, Reverse};

use slab::Slab;

use crate::block::BlockId;

/// A block's place in the queue: earliest due first, then by priority, then in order of hand-over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Turn {
    /// When it has to be out, seconds. Never NaN.
    pub(super) due: f64,
    pub(super) priority: u8,
    pub(super) id: BlockId,
}

/// A block in the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Job {
    pub(super) turn: Turn,
    /// Seconds it may come later than it is due, once it is in.
    pub(super) grace: f64,
    pub(super) unsent: u64,
    /// What has to be sent for each block that needs it: where one has to go, the dearest does.
    pub(super) price: u64,
}

impl Job {
    /// When it has to be out.
    pub(super) fn due(&self, pace: Pace) -> f64 {
        match pace {
            Pace::Entry | Pace::Ahead => self.turn.due,
            Pace::Stay => self.turn.due + self.grace,
        }
    }
}

/// Which of the paces a question is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    /// The cautious one, for blocks that want to get in.
    Entry = 0,
    /// The hopeful one, for those that are in.
    Stay = 1,
    /// The one at which those that are in must still make it when another is sent ahead of its turn.
    Ahead = 2,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    nodes: Slab<Node>,
    root: u32,
    /// Seconds per byte, by [`Pace`].
    paces: [f64; 3],
}

#[derive(Debug)]
struct Node {
    job: Job,
    /// Random; a parent's is never below its children's, which keeps the tree balanced.
    rank: u64,
    left: u32,
    right: u32,
    total: Total,
}

/// What is known of the blocks of a subtree.
#[derive(Debug, Clone, Copy)]
struct Total {
    bytes: u64,
    start: [f64; 3],
    /// The one to give up first. `None` only if there are no blocks.
    weakest: Option<Job>,
    /// The most important; of equals the one due first. `None` only if there are no blocks.
    foremost: Option<Turn>,
}

const NONE: u32 = u32::MAX;

const EMPTY: Total = Total { bytes: 0, start: [f64::INFINITY; 3], weakest: None, foremost: None };

impl Eq for Turn {}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.total_cmp(&other.due).then(self.priority.cmp(&other.priority)).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Turn {
    fn more_important(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if (b.priority, b) < (a.priority, a) { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

impl Job {
    /// Greater is weaker: less important, then dearer, then due earlier.
    fn weakness(&self) -> (u8, u64, Reverse<Turn>) {
        (self.turn.priority, self.price, Reverse(self.turn))
    }

    fn weaker(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if a.weakness() < b.weakness() { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { nodes: Slab::new(), root: NONE, paces: [0.0; 3] }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Sets the seconds a byte takes, by [`Pace`]. Goes through all blocks.
    pub(super) fn set_paces(&mut self, paces: [f64; 3]) {
        self.paces = paces;
        self.sum_all(self.root);
    }

    /// Adds a block that is not in the queue.
    pub(super) fn insert(&mut self, job: Job) {
        // The finaliser of SplitMix64: ids are consecutive, ranks must not be.
        let mut rank = job.turn.id.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        rank = (rank ^ (rank >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        rank = (rank ^ (rank >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let node = Node { job, rank: rank ^ (rank >> 31), left: NONE, right: NONE, total: EMPTY };
        let new = self.nodes.insert(node) as u32;
        self.root = self.insert_below(self.root, new);
    }

    /// Takes out a block that is in the queue.
    pub(super) fn remove(&mut self, turn: Turn) {
        self.root = self.remove_below(self.root, turn);
    }

    /// Changes the unsent bytes, and the price, of a block that is in the queue.
    pub(super) fn set_unsent(&mut self, turn: Turn, unsent: u64, price: u64) {
        self.set_below(self.root, turn, unsent, price);
    }

    /// The most important block of those up to and including `last`, all if that is `None`; of equals the one due first.
    pub(super) fn foremost(&self, last: Option<Turn>) -> Option<BlockId> {
        let mut foremost = None;
        let mut at = self.root;
        while let Some(node) = self.nodes.get(at as usize) {
            at = if last.is_none_or(|last| node.job.turn <= last) {
                let these = Turn::more_important(self.total(node.left).foremost, Some(node.job.turn));
                foremost = Turn::more_important(foremost, these);
                node.right
            } else {
                node.left
            };
        }
        foremost.map(|turn| turn.id)
    }

    /// The first block that would be late if sending began at `time` (seconds).
    pub(super) fn first_late(&self, pace: Pace, time: f64) -> Option<Turn> {
        self.late_below(self.root, pace, None, 0, time)
    }

    /// The first block that `job`, not in the queue, would make late by joining it: itself or one after it.
    pub(super) fn first_late_with(&self, pace: Pace, time: f64, job: &Job) -> Option<Turn> {
        let seconds_per_byte = self.paces[pace as usize];
        let bytes = self.bytes_before(job.turn) + job.unsent;
        if job.due(pace) - seconds_per_byte * (bytes as f64) < time {
            return Some(job.turn);
        }
        self.late_below(self.root, pace, Some(job.turn), job.unsent, time)
    }

    /// The least important block there is, as [`Queue::weakest`] has it.
    pub(super) fn weakest_of_all(&self) -> Option<Job> {
        self.total(self.root).weakest
    }

    /// The block to give up first among those up to and including `last`: of the least important the dearest, of
    /// equals the one due first.
    pub(super) fn weakest(&self, last: Turn) -> Option<Job> {
        let mut weakest = None;
        let mut at = self.root;
        while let Some(node) = self.nodes.get(at as usize) {
            at = if node.job.turn <= last {
                weakest = Job::weaker(weakest, Job::weaker(self.total(node.left).weakest, Some(node.job)));
                node.right
            } else {
                node.left
            };
        }
        weakest
    }

    /// Whether `job` would be in time, and make none late, if those that `ignored` says were not there. Goes through all
    /// blocks.
    pub(super) fn fits_without(&self, pace: Pace, time: f64, job: &Job, ignored: impl Fn(&Job) -> bool) -> bool {
        let mut bytes = 0;
        let mut in_time = true;
        let mut waiting = Some(job);
        let mut send = |next: &Job, counts: bool| {
            bytes += next.unsent;
            in_time &= !counts || next.due(pace) - self.paces[pace as usize] * bytes as f64 >= time;
        };
        self.each(self.root, &mut |other| {
            if let Some(job) = waiting.take_if(|job| job.turn < other.turn) {
                send(job, true);
            }
            if !ignored(other) {
                send(other, waiting.is_none());
            }
        });
        waiting.into_iter().for_each(|job| send(job, true));
        in_time
    }

    fn each(&self, at: u32, visit: &mut impl FnMut(&Job)) {
        let Some(node) = self.nodes.get(at as usize) else { return };
        self.each(node.left, visit);
        visit(&node.job);
        self.each(node.right, visit);
    }

    fn total(&self, at: u32) -> Total {
        self.nodes.get(at as usize).map_or(EMPTY, |node| node.total)
    }

    /// Sums up a node whose children are summed up.
    fn sum(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let (left, right) = (self.total(node.left), self.total(node.right));
        let bytes = left.bytes + node.job.unsent;
        let start = |pace: Pace| {
            let alone = node.job.due(pace).min(right.start[pace as usize]);
            left.start[pace as usize].min(alone - self.paces[pace as usize] * bytes as f64)
        };
        let start = [start(Pace::Entry), start(Pace::Stay), start(Pace::Ahead)];
        let weakest = Job::weaker(Job::weaker(left.weakest, right.weakest), Some(node.job));
        let foremost = Turn::more_important(Turn::more_important(left.foremost, right.foremost), Some(node.job.turn));
        self.nodes[at as usize].total = Total { bytes: bytes + right.bytes, start, weakest, foremost };
    }

    fn sum_all(&mut self, at: u32) {
        let Some(&Node { left, right, .. }) = self.nodes.get(at as usize) else { return };
        self.sum_all(left);
        self.sum_all(right);
        self.sum(at);
    }

    fn insert_below(&mut self, at: u32, new: u32) -> u32 {
        let Some(node) = self.nodes.get(at as usize) else {
            self.sum(new);
            return new;
        };
        let turn = self.nodes[new as usize].job.turn;
        debug_assert_ne!(turn, node.job.turn);
        if self.nodes[new as usize].rank > node.rank {
            let (left, right) = self.split(at, turn);
            let node = &mut self.nodes[new as usize];
            (node.left, node.right) = (left, right);
            self.sum(new);
            return new;
        }
        if turn < node.job.turn {
            let left = self.insert_below(node.left, new);
            self.nodes[at as usize].left = left;
        } else {
            let right = self.insert_below(node.right, new);
            self.nodes[at as usize].right = right;
        }
        self.sum(at);
        at
    }

    /// What is before `turn`, and the rest.
    fn split(&mut self, at: u32, turn: Turn) -> (u32, u32) {
        let Some(node) = self.nodes.get(at as usize) else { return (NONE, NONE) };
        if node.job.turn < turn {
            let (left, right) = self.split(node.right, turn);
            self.nodes[at as usize].right = left;
            self.sum(at);
            (at, right)
        } else {
            let (left, right) = self.split(node.left, turn);
            self.nodes[at as usize].left = right;
            self.sum(at);
            (left, at)
        }
    }

    fn remove_below(&mut self, at: u32, turn: Turn) -> u32 {
        let Some(&Node { ref job, left, right, .. }) = self.nodes.get(at as usize) else {
            debug_assert!(false, "{turn:?} is not in the queue");
            return NONE;
        };
        match turn.cmp(&job.turn) {
            Ordering::Equal => {
                self.nodes.remove(at as usize);
                return self.merge(left, right);
            }
            Ordering::Less => self.nodes[at as usize].left = self.remove_below(left, turn),
            Ordering::Greater => self.nodes[at as usize].right = self.remove_below(right, turn),
        }
        self.sum(at);
        at
    }

    fn merge(&mut self, left: u32, right: u32) -> u32 {
        let (Some(a), Some(b)) = (self.nodes.get(left as usize), self.nodes.get(right as usize)) else {
            return if left == NONE { right } else { left };
        };
        if a.rank > b.rank {
            let below = self.merge(a.right, right);
            self.nodes[left as usize].right = below;
            self.sum(left);
            left
        } else {
            let below = self.merge(left, b.left);
            self.nodes[right as usize].left = below;
            self.sum(right);
            right
        }
    }

    fn set_below(&mut self, at: u32, turn: Turn, unsent: u64, price: u64) {
        let Some(&Node { ref job, left, right, .. }) = self.nodes.get(at as usize) else {
            debug_assert!(false, "{turn:?} is not in the queue");
            return;
        };
        match turn.cmp(&job.turn) {
            Ordering::Equal => {
                let job = &mut self.nodes[at as usize].job;
                (job.unsent, job.price) = (unsent, price);
            }
            Ordering::Less => self.set_below(left, turn, unsent, price),
            Ordering::Greater => self.set_below(right, turn, unsent, price),
        }
        self.sum(at);
    }

    fn bytes_before(&self, turn: Turn) -> u64 {
        let mut bytes = 0;
        let mut at = self.root;
        while let Some(node) = self.nodes.get(at as usize) {
            at = if node.job.turn < turn {
                bytes += self.total(node.left).bytes + node.job.unsent;
                node.right
            } else {
                node.left
            };
        }
        bytes
    }

    /// The first block of a subtree, and after `after`, that is late if `before` bytes are sent before the subtree.
    fn late_below(&self, at: u32, pace: Pace, after: Option<Turn>, before: u64, time: f64) -> Option<Turn> {
        let node = self.nodes.get(at as usize)?;
        let seconds = |bytes: u64| self.paces[pace as usize] * bytes as f64;
        if node.total.start[pace as usize] - seconds(before) >= time {
            return None;
        }
        let bytes = before + self.total(node.left).bytes + node.job.unsent;
        if after.is_none_or(|after| node.job.turn > after) {
            if let Some(turn) = self.late_below(node.left, pace, after, before, time) {
                return Some(turn);
            }
            if node.job.due(pace) - seconds(bytes) < time {
                return Some(node.job.turn);
            }
        }
        self.late_below(node.right, pace, after, bytes, time)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whom each question is about, found by going through all.
    struct Naive(Vec<Job>);

    impl Naive {
        fn late(&self, pace: Pace, paces: [f64; 3], time: f64) -> impl Iterator<Item = Turn> {
            let late = self.0.iter().scan(0, move |bytes, job| {
                *bytes += job.unsent;
                Some((job.due(pace) - paces[pace as usize] * (*bytes as f64) < time).then_some(job.turn))
            });
            late.flatten()
        }

        fn with(&self, job: Job) -> Self {
            let mut jobs = self.0.clone();
            jobs.push(job);
            jobs.sort_by_key(|job| job.turn);
            Self(jobs)
        }
    }

    proptest! {
        // Paces and times are sums of few powers of two, so that nothing is rounded.
        #[test]
        fn it_answers_like_a_list(
            steps in prop::collection::vec((0u8..6, 0u64..40, 0u32..64, 0u32..8, 0u8..3, 1u64..100, 1u64..100), 1..120),
            paces in (1u32..8, 1u32..8, 1u32..8),
            time in 0u32..64,
        ) {
            let paces = [f64::from(paces.0) / 64.0, f64::from(paces.1) / 64.0, f64::from(paces.2) / 64.0];
            let time = f64::from(time);
            let mut queue = Queue::new();
            queue.set_paces(paces);
            let mut naive = Naive(Vec::new());
            for (kind, id, due, grace, priority, unsent, price) in steps {
                let turn = Turn { due: f64::from(due), priority, id: BlockId(id) };
                let job = Job { turn, grace: f64::from(grace), unsent, price };
                match naive.0.iter().position(|other| other.turn.id == job.turn.id) {
                    None => {
                        for pace in [Pace::Entry, Pace::Stay, Pace::Ahead] {
                            let late = naive.with(job).late(pace, paces, time).find(|&turn| turn >= job.turn);
                            prop_assert_eq!(queue.first_late_with(pace, time, &job), late);
                            let ignored = |other: &Job| other.turn.priority > priority;
                            let rest = Naive(naive.0.iter().copied().filter(|other| !ignored(other)).collect());
                            let fits = rest.with(job).late(pace, paces, time).all(|turn| turn < job.turn);
                            prop_assert_eq!(queue.fits_without(pace, time, &job, ignored), fits);
                        }
                        queue.insert(job);
                        naive = naive.with(job);
                    }
                    Some(at) if kind < 3 => {
                        queue.remove(naive.0[at].turn);
                        naive.0.remove(at);
                    }
                    Some(at) if kind < 5 => {
                        queue.set_unsent(naive.0[at].turn, unsent, price);
                        (naive.0[at].unsent, naive.0[at].price) = (unsent, price);
                    }
                    Some(_) => queue.set_paces(paces),
                }
                prop_assert_eq!(queue.len(), naive.0.len());
                for pace in [Pace::Entry, Pace::Stay, Pace::Ahead] {
                    prop_assert_eq!(queue.first_late(pace, time), naive.late(pace, paces, time).next());
                }
                let until = naive.0.iter().filter(|other| other.turn <= job.turn);
                let foremost = until.clone().min_by_key(|other| (other.turn.priority, other.turn));
                prop_assert_eq!(queue.foremost(Some(job.turn)), foremost.map(|job| job.turn.id));
                let foremost = naive.0.iter().min_by_key(|other| (other.turn.priority, other.turn));
                prop_assert_eq!(queue.foremost(None), foremost.map(|job| job.turn.id));
                prop_assert_eq!(queue.weakest_of_all(), naive.0.iter().copied().max_by_key(Job::weakness));
                prop_assert_eq!(queue.weakest(job.turn), until.copied().max_by_key(Job::weakness));
            }
        }
    }

    #[test]
    fn it_stays_shallow() {
        let mut queue = Queue::new();
        for id in 0..10_000 {
            queue.insert(Job {
                turn: Turn { due: id as f64, priority: 0, id: BlockId(id) },
                grace: 0.0,
                unsent: 1,
                price: 1,
            });
        }
        fn depth(queue: &Queue, at: u32) -> usize {
            queue.nodes.get(at as usize).map_or(0, |node| 1 + depth(queue, node.left).max(depth(queue, node.right)))
        }
        assert!(depth(&queue, queue.root) < 50);
    }
}
