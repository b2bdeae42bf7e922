use std::time::{Duration, Instant};

use super::*;
use crate::{
    base::{PathId, PathView},
    block::{Block, BlockUpdate, Channel, Delivery, Outcome, Redundancy},
    limits::Limits,
    multipath::tests::path,
    redundancy, schedule,
    send::{recovery, store::Notice},
};

const MS: Duration = Duration::from_millis(1);

/// A store whose blocks leave by hand, over paths of 1 MB/s and 25 ms unless said otherwise.
struct Sender {
    store: Store,
    start: Instant,
    paths: Vec<PathView>,
    ended: Vec<(u64, Option<DropReason>)>,
}

impl Sender {
    fn new() -> Self {
        Self::scheduled("ads")
    }

    fn scheduled(name: &str) -> Self {
        let scheduler = schedule::by_name(name).unwrap()();
        let mut store = Store::new(Limits::default(), scheduler, Redundancy::Auto, redundancy::default_factory()());
        store.on_settings(1 << 24, 10, 1 << 30, 1 << 20);
        Self { store, start: Instant::now(), paths: vec![path(0)], ended: Vec::new() }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + MS * millis as u32
    }

    /// A block of so many bytes is handed over, due 100 ms later.
    fn send(&mut self, at: u64, size: usize, needs: &[u64]) -> u64 {
        self.send_with(at, Block::new(vec![0; size]).deadline(100 * MS), needs)
    }

    fn send_with(&mut self, at: u64, block: Block, needs: &[u64]) -> u64 {
        let block = needs.iter().fold(block, |block, &need| block.depends_on(BlockId(need)));
        let id = self.store.insert(self.at(at), block).unwrap().0;
        self.look();
        id
    }

    /// Who goes next.
    fn next(&mut self, at: u64) -> Option<u64> {
        let now = self.at(at);
        let rate = self.paths.iter().map(|path| path.rate).sum();
        let one_way_delay = self.paths.iter().map(|path| path.one_way_delay).min().unwrap();
        let next = self.store.next(&SendContext { now, paths: &self.paths, rate, one_way_delay });
        self.look();
        next.map(|id| id.0)
    }

    /// So many of its bytes leave.
    fn leave(&mut self, id: u64, bytes: u64) {
        let sent = self.store.get(BlockId(id)).unwrap().sent();
        self.store.on_sent(BlockId(id), sent..sent + bytes, sent == 0);
    }

    fn lose(&mut self, at: u64, id: u64, bytes: u64) {
        self.store.on_lost(self.at(at), BlockId(id), 0..bytes, false, PathId(0));
        self.look();
    }

    fn deliver(&mut self, id: u64) {
        self.store.on_completed(BlockId(id), 50 * MS, 0).unwrap();
        self.look();
    }

    fn wait_until(&mut self, at: u64) {
        while let Some(next) = self.store.next_timeout().filter(|&next| next <= self.at(at)) {
            self.store.on_timeout(next);
        }
        self.store.on_timeout(self.at(at));
        self.look();
    }

    fn look(&mut self) {
        while let Some(notice) = self.store.poll() {
            if let Notice::Ended(id, outcome, _) = notice {
                let reason = match outcome {
                    Outcome::Dropped { reason, .. } => Some(reason),
                    Outcome::Delivered(Delivery { .. }) => None,
                };
                self.ended.push((id.0, reason));
            }
        }
    }

    fn dropped(&self) -> Vec<(u64, DropReason)> {
        self.ended.iter().filter_map(|&(id, reason)| Some((id, reason?))).collect()
    }
}

const EXPIRED: DropReason = DropReason::Expired;
const ORPHAN: DropReason = DropReason::DependencyDropped;

#[test]
fn a_late_block_lives_while_another_can_be_in_time_with_it() {
    for scheduler in ["ads", "admission", "edf", "strict"] {
        let mut sender = Sender::scheduled(scheduler);
        // 110 ms of work.
        let first = sender.send(0, 110_000, &[]);
        assert_eq!(sender.next(0), Some(first));
        sender.leave(first, 90_000);
        let second = sender.send(50, 5_000, &[first]);
        sender.wait_until(105);
        assert_eq!(sender.dropped(), []);
        assert_eq!(sender.next(105), Some(first), "{scheduler}: there by 150, and then the other by 155");
        // 20 and 5 ms of work and 25 ms of way do not fit into 40; but where one came after 50 ms, others may.
        sender.wait_until(115);
        assert_eq!(sender.dropped(), []);
        // Nothing is there to be sent in their place; then another stands alone, and nobody will depend on them any more.
        sender.wait_until(1_000);
        assert_eq!(sender.dropped(), []);
        let third = sender.send(1_000, 1_000, &[]);
        sender.wait_until(1_010);
        assert_eq!(sender.dropped(), [(first, EXPIRED), (second, ORPHAN)]);
        sender.leave(third, 1_000);
        sender.deliver(third);
        assert!(sender.store.is_clean());
    }
}

#[test]
fn what_nobody_depends_on_is_dropped_at_its_deadline() {
    let mut sender = Sender::new();
    let first = sender.send(0, 110_000, &[]);
    sender.next(0);
    sender.wait_until(100);
    assert_eq!(sender.dropped(), []);
    sender.wait_until(101);
    assert_eq!(sender.dropped(), [(first, EXPIRED)]);
}

#[test]
fn a_late_block_goes_by_the_deadline_of_those_it_is_for() {
    let mut sender = Sender::scheduled("edf");
    let first = sender.send(0, 60_000, &[]);
    sender.next(0);
    let second = sender.send_with(60, Block::new(vec![0; 5_000]).deadline(200 * MS).priority(3), &[first]);
    let other = sender.send_with(60, Block::new(vec![0; 5_000]).deadline(120 * MS).priority(3), &[]);
    // It cannot be there by 100.
    sender.next(60);
    let view = sender.store.view(BlockId(first)).unwrap();
    let due = view.due().unwrap();
    assert!(sender.at(250) < due && due < sender.at(260), "5 ms before the other is due: {:?}", due - sender.start);
    assert_eq!(view.followers, 1);
    assert_eq!(sender.next(60), Some(other), "which is more urgent by then");
    sender.leave(other, 5_000);
    assert_eq!(sender.next(66), Some(first));
    sender.leave(first, 60_000);
    assert_eq!(sender.next(130), Some(second));
}

#[test]
fn what_depends_on_it_lends_its_priority_unless_the_order_is_the_applications() {
    for (scheduler, expected) in [("ads", 4), ("admission", 4), ("edf", 9), ("strict", 9)] {
        let mut sender = Sender::scheduled(scheduler);
        let first = sender.send_with(0, Block::new(vec![0; 5_000]).priority(9), &[]);
        sender.send_with(0, Block::new(vec![0; 5_000]).priority(4), &[first]);
        assert_eq!(sender.store.view(BlockId(first)).unwrap().priority, expected, "{scheduler}");
    }
}

#[test]
fn one_that_depends_on_it_and_has_no_deadline_needs_it_at_any_time() {
    let mut sender = Sender::new();
    let first = sender.send(0, 110_000, &[]);
    sender.next(0);
    sender.send_with(10, Block::new(vec![0; 5_000]), &[first]);
    sender.wait_until(10_000);
    assert_eq!((sender.dropped(), sender.next(10_000)), (vec![], Some(first)));
    assert_eq!(sender.store.view(BlockId(first)).unwrap().deadline, None);
}

/// A frame of `size` every 20 ms, each of which depends on the one before; `first` bytes for the first one of every 50.
fn stream(sender: &mut Sender, from: u64, frames: u64, first: usize, size: usize) -> Vec<u64> {
    let mut before = None;
    let send = |n| {
        let size = if n == 0 { first } else { size };
        let id = sender.send(from + 20 * n, size, before.as_slice());
        before = Some(id);
        id
    };
    (0..frames).map(send).collect()
}

fn deliver_all(sender: &mut Sender, at: u64) {
    while let Some(id) = sender.next(at) {
        let left = sender.store.get(BlockId(id)).unwrap().unsent();
        sender.leave(id, left);
        sender.deliver(id);
    }
}

#[test]
fn those_to_come_count_if_there_is_room_to_catch_up() {
    let hurried = Block::new(vec![0; 1_000]).deadline(200 * MS).priority(255);
    let patient = Block::new(vec![0; 1_000]);
    let unimportant = Block::new(vec![0; 1_000]).priority(255);
    // 10 kB every 20 ms leave half of the rate free, 18 kB hardly any: then they do as long as they are in the way of nobody who is in a hurry or
    // as important.
    for (size, other, lives) in [
        (10_000, Some(&hurried), true),
        (18_000, Some(&hurried), false),
        (18_000, Some(&patient), false),
        (18_000, Some(&unimportant), true),
        (18_000, None, true),
    ] {
        let mut sender = Sender::new();
        for round in 0..3 {
            for id in stream(&mut sender, 1_000 * round, 50, 20_000, size) {
                while sender.store.get(BlockId(id)).is_some() {
                    deliver_all(&mut sender, 1_000 * round + 20 * (id % 50));
                }
            }
        }
        let due = 3_000 + 100;
        let late = stream(&mut sender, 3_000, 6, 100_000, size);
        if let Some(other) = other {
            sender.send_with(3_050, other.clone(), &[]);
        }
        sender.next(3_000);
        // None of these can be in time: 100 ms of work, and then five frames.
        sender.wait_until(due + 1);
        assert_eq!(sender.store.get(BlockId(late[0])).is_some(), lives, "{size}");
        // They do not come for a while, and then never.
        sender.wait_until(due + 200);
        assert_eq!(sender.store.get(BlockId(late[0])).is_some(), lives, "{size}");
        sender.store.on_last(sender.at(due + 200));
        sender.look();
        assert!(sender.dropped().contains(&(late[0], EXPIRED)));
        let remains = other.is_some_and(|other| [&patient, &unimportant].contains(&other));
        assert_eq!(sender.store.is_clean(), !remains, "it was not sent");
    }
}

/// Of each group the first frame is dropped as soon as it is late, since others are there that have a deadline. That so few came before it was tells nothing of how
/// many would be of use with the next one.
#[test]
fn how_many_come_is_learnt_also_from_those_that_are_dropped() {
    let mut sender = Sender::new();
    for round in 0..4 {
        // 100 kB are 100 ms of work, and no more follow it than three quarters of what the path carries.
        let first = sender.send(1_000 * round, 100_000, &[]);
        sender.store.drop_block(BlockId(first), EXPIRED);
        let mut before = first;
        for n in 1..50 {
            before = sender.send(1_000 * round + 20 * n, 15_000, &[before]);
        }
        assert!(sender.store.is_clean());
    }
    let first = sender.send(4_000, 100_000, &[]);
    sender.send_with(4_000, Block::new(vec![0; 200_000]).deadline(300 * MS).priority(255), &[]);
    assert_eq!(sender.next(4_000), Some(first));
    sender.wait_until(4_101);
    assert_eq!(sender.dropped().last().map(|last| last.0), Some(first - 1), "49 are still to come");
}

/// A frame that takes longer than its deadline is not to wait behind a transfer until those are handed over that need it, nor to be due for them before it can be there.
#[test]
fn who_is_put_off_since_it_is_late_goes_for_those_that_need_it() {
    for scheduler in ["ads", "admission"] {
        let mut sender = Sender::scheduled(scheduler);
        for round in 0..3 {
            for id in stream(&mut sender, 1_000 * round, 50, 10_000, 5_000) {
                deliver_all(&mut sender, 1_000 * round + 20 * (id % 50));
            }
        }
        let transfer = sender.send_with(2_990, Block::new(vec![0; 1_000_000]).priority(200), &[]);
        assert_eq!(sender.next(2_990), Some(transfer));
        let first = sender.send(3_000, 110_000, &[]);
        assert_eq!(sender.next(3_000), Some(first), "{scheduler}");
        let then = sender.send(3_020, 5_000, &[first]);
        sender.leave(first, 110_000);
        // It is not late by itself until 70 ms before it is due.
        assert_eq!(sender.next(3_100), Some(then), "{scheduler}");
    }
}

/// The first frames of a video, over a path of which little is known yet: to drop them all until the next that stands alone is to go by an estimate
/// that is about to be mended (gauntlet 121).
#[test]
fn nobody_is_given_up_for_a_rate_that_is_only_beginning_to_show() {
    for growing in [false, true] {
        let mut sender = Sender::new();
        sender.paths = vec![PathView { growing, rate: 2e5, ..path(0) }];
        let first = sender.send(0, 50_000, &[]);
        assert_eq!(sender.next(0), Some(first));
        let mut last = first;
        for frame in 1..12 {
            last = sender.send(frame * 10, 8_000, &[last]);
            // Something else is there to be sent in its place.
            sender.send_with(frame * 10, Block::new(vec![0; 500]).deadline(100 * MS).priority(255), &[]);
            sender.next(frame * 10);
        }
        sender.wait_until(115);
        let lives = sender.store.get(BlockId(first)).is_some_and(|block| block.dying.is_none());
        assert_eq!(lives, growing);
    }
}

#[test]
fn lost_bytes_go_again_for_the_sake_of_others() {
    let mut sender = Sender::new();
    let first = sender.send(0, 10_000, &[]);
    sender.next(0);
    sender.leave(first, 10_000);
    let second = sender.send(90, 1_000, &[first]);
    sender.next(95);
    sender.leave(second, 1_000);
    sender.lose(120, first, 5_000);
    assert_eq!((sender.dropped(), sender.next(120)), (vec![], Some(first)));
    // Without them they do not: this is of a kind on which none has depended.
    let alone = sender.send_with(200, Block::new(vec![0; 10_000]).deadline(100 * MS).priority(1), &[]);
    sender.leave(alone, 10_000);
    sender.lose(320, alone, 5_000);
    assert_eq!(sender.store.get(BlockId(alone)).unwrap().dying, Some(EXPIRED));
}

#[test]
fn a_path_that_is_too_slow_is_no_help() {
    let mut sender = Sender::new();
    sender.paths = vec![
        PathView { rate: 1e4, ..path(0) },
        PathView { rate: 1e7, one_way_delay: 300 * MS, min_one_way_delay: 300 * MS, ..path(1) },
    ];
    let first = sender.send(0, 10_000, &[]);
    sender.next(0);
    let second = sender.send(90, 1_000, &[first]);
    let other = sender.send_with(95, Block::new(vec![0; 1_000]).deadline(100 * MS).priority(255), &[]);
    sender.wait_until(101);
    assert_eq!(sender.dropped(), [(first, EXPIRED), (second, ORPHAN)]);
    assert!(sender.store.get(BlockId(other)).is_some());
}

#[test]
fn who_depends_on_what_waits_for_a_path_may_go_but_not_out_of_turn() {
    let mut sender = Sender::new();
    let in_channel = |size| Block::new(vec![0; size]).deadline(100 * MS).channel(Channel(1));
    let [first, second] = [sender.send(0, 1_000, &[]), 1].map(BlockId);
    sender.send(0, 1_000, &[first.0]);
    let third = sender.send_with(0, in_channel(1_000), &[]);
    let fourth = sender.send_with(0, in_channel(1_000), &[third]);
    for id in [first, BlockId(third)] {
        sender.store.hold(id);
        sender.store.pass_over(id);
    }
    // A new one changes nothing about that.
    let fifth = sender.send(0, 1_000, &[first.0]);
    assert_eq!(sender.next(0), Some(second.0), "the fourth is in a channel behind the third");
    sender.leave(second.0, 1_000);
    let next = sender.next(0);
    assert!(next.is_none() || next == Some(fifth), "{next:?}");
    [first, BlockId(third)].into_iter().for_each(|id| sender.store.unhold(id));
    let mut order = Vec::new();
    while let Some(id) = sender.next(0) {
        let left = sender.store.get(BlockId(id)).unwrap().unsent();
        sender.leave(id, left);
        order.push(id);
    }
    let at = |id| order.iter().position(|&other| other == id);
    assert!(at(first.0) < at(fifth) && at(third) < at(fourth) && order.len() == 4, "{order:?}");
}

#[test]
fn a_delivered_block_hands_on_what_it_still_needs() {
    let mut sender = Sender::new();
    let first = sender.send(0, 10_000, &[]);
    let second = sender.send(0, 1_000, &[first]);
    let third = sender.send(0, 1_000, &[second]);
    sender.leave(first, 10_000);
    sender.leave(second, 1_000);
    // The second overtakes the first, which is lost.
    sender.deliver(second);
    let fourth = sender.send(10, 1_000, &[second]);
    sender.lose(10, first, 10_000);
    assert_eq!(sender.next(10), Some(first), "nothing else can be sent");
    sender.store.cancel(BlockId(first)).unwrap();
    sender.store.on_freed(BlockId(first), 0).unwrap();
    sender.look();
    assert_eq!(sender.dropped(), [(first, DropReason::Cancelled), (third, ORPHAN), (fourth, ORPHAN)]);
    let fifth = sender.send(20, 1_000, &[second]);
    assert_eq!(sender.dropped().last(), Some(&(fifth, ORPHAN)), "it comes later");
    assert!(sender.store.is_clean());
}

#[test]
fn a_block_that_lacks_what_it_depends_on_is_no_help_even_if_it_arrives() {
    let mut sender = Sender::new();
    let first = sender.send(0, 10_000, &[]);
    let second = sender.send(0, 1_000, &[first]);
    let third = sender.send(0, 1_000, &[second]);
    sender.leave(first, 10_000);
    sender.leave(second, 1_000);
    sender.store.cancel(BlockId(first)).unwrap();
    sender.store.on_freed(BlockId(first), 0).unwrap();
    sender.look();
    assert_eq!(sender.dropped(), [(first, DropReason::Cancelled), (third, ORPHAN)]);
    sender.deliver(second);
    let fourth = sender.send(20, 1_000, &[second]);
    assert_eq!(sender.dropped().last(), Some(&(fourth, ORPHAN)));
    assert!(sender.store.is_clean());
}

#[test]
fn a_circle_that_is_late_keeps_nobody_alive() {
    let mut sender = Sender::new();
    let first = sender.send(0, 110_000, &[]);
    let second = sender.send(0, 1_000, &[first]);
    let update = crate::block::BlockUpdate { dependencies: Some(vec![BlockId(second)]), ..Default::default() };
    sender.store.update(BlockId(first), update).unwrap();
    sender.next(0);
    // Nobody else will depend on them.
    sender.store.on_last(sender.at(0));
    sender.wait_until(500);
    assert_eq!(sender.dropped().len(), 2);
    assert!(sender.store.is_clean());
}

#[test]
fn schedulers_that_drop_nothing_still_do_not() {
    let mut sender = Sender::scheduled("fcfs");
    let first = sender.send(0, 110_000, &[]);
    sender.send(10, 1_000, &[first]);
    sender.next(0);
    sender.wait_until(10_000);
    assert_eq!((sender.dropped(), sender.next(10_000)), (vec![], Some(first)));
}

#[test]
fn who_waits_for_what_comes_too_late_is_sent_for_those_that_are_due_after_that() {
    let mut sender = Sender::scheduled("edf");
    let slow = sender.send(0, 1_000, &[]);
    sender.leave(slow, 1_000);
    sender.store.on_its_way(sender.at(1), BlockId(slow), sender.at(250));
    // Due at 120, when nobody can use it.
    let waits = sender.send(20, 1_000, &[slow]);
    let other = sender.send(30, 1_000, &[]);
    sender.wait_until(31);
    assert_eq!(sender.next(31), Some(waits), "nobody else needs it");
    // Due at 260: it can, if it has this one by then.
    sender.send_with(40, Block::new(vec![0; 1_000]).deadline(220 * MS), &[waits]);
    sender.wait_until(60);
    assert_eq!(sender.next(60), Some(other));
    sender.leave(other, 1_000);
    assert_eq!(sender.next(60), Some(waits));
    sender.wait_until(130);
    assert_eq!(sender.dropped(), [], "though its own time is up");
    assert_eq!(sender.next(130), Some(waits));
}

#[test]
fn what_leaves_too_late_makes_those_late_that_were_there_before() {
    let mut sender = Sender::scheduled("edf");
    let slow = sender.send(0, 1_000, &[]);
    let waits = sender.send(20, 1_000, &[slow]);
    let last = sender.send_with(20, Block::new(vec![0; 1_000]).deadline(400 * MS), &[waits]);
    let other = sender.send(25, 1_000, &[]);
    sender.leave(slow, 1_000);
    assert_eq!(sender.next(30), Some(waits), "in time, as far as anybody knows");
    sender.store.on_its_way(sender.at(30), BlockId(slow), sender.at(300));
    assert_eq!(sender.next(30), Some(other));
    // It was there sooner.
    sender.deliver(slow);
    sender.wait_until(45);
    assert_eq!(sender.next(45), Some(waits));
    assert!(sender.store.get(BlockId(last)).is_some());
}

#[test]
fn lateness_is_handed_on_to_what_has_left_since() {
    let mut sender = Sender::scheduled("edf");
    let slow = sender.send(0, 1_000, &[]);
    sender.leave(slow, 1_000);
    sender.store.on_its_way(sender.at(0), BlockId(slow), sender.at(250));
    let middle = sender.send(5, 1_000, &[slow]);
    sender.leave(middle, 1_000);
    sender.store.on_its_way(sender.at(6), BlockId(middle), sender.at(32));
    let last = sender.send(40, 1_000, &[middle]);
    assert!(sender.store.is_late(sender.at(40), BlockId(last)), "due at 140, and of no use before 250");
    sender.deliver(slow);
    sender.deliver(middle);
    assert!(!sender.store.is_late(sender.at(40), BlockId(last)));
}

/// Whose pace it is that makes a block late, and whose it is not.
#[test]
fn what_leaves_too_late_would_have_been_in_time_on_a_faster_path() {
    let mut sender = Sender::new();
    let mut unmet = |at, arrives| {
        // Due 100 ms later.
        let block = sender.send(0, 1_000, &[]);
        sender.leave(block, 1_000);
        sender.store.on_its_way(sender.at(at), BlockId(block), sender.at(arrives));
        sender.store.take_unmet()
    };
    assert_eq!(unmet(60, 90), None, "it is in time");
    assert_eq!(unmet(80, 110), Some(MS * 100), "it waited for 80 ms");
    assert_eq!(unmet(20, 130), None, "the way itself takes too long");
    assert_eq!(unmet(0, 101), None);
}

/// The first of two blocks, 20 ms of work, cannot be in time any more when the second leaves. What of it has been said by then, and when it ends by itself.
fn passed_at(channels: [u32; 2], scheduler: &str) -> (Vec<(u64, DropReason)>, u64) {
    let mut sender = Sender::scheduled(scheduler);
    let [first, second] = [(0, 20_000), (1, 1_000)].map(|(at, size)| {
        let block = Block::new(vec![0; size]).deadline(100 * MS).channel(Channel(channels[at as usize]));
        sender.send_with(at, block, &[])
    });
    assert!(sender.next(0).is_some());
    sender.leave(second, 1_000);
    sender.next(60);
    sender.wait_until(70);
    let dropped = sender.dropped();
    sender.wait_until(101);
    assert_eq!(sender.dropped(), [(first, EXPIRED)], "{scheduler}");
    (dropped, first)
}

#[test]
fn who_cannot_be_in_time_is_dropped_before_others_of_its_channel_wait_for_it() {
    for scheduler in ["ads", "admission", "edf", "strict"] {
        let (dropped, first) = passed_at([1, 1], scheduler);
        assert_eq!(dropped, [(first, EXPIRED)], "{scheduler}");
        assert_eq!(passed_at([1, 2], scheduler).0, [], "{scheduler}: nothing waits for it");
    }
}

#[test]
fn while_a_path_begins_to_show_what_it_carries_nobody_is_dropped_for_others_of_its_channel() {
    let mut sender = Sender::scheduled("admission");
    sender.paths = vec![PathView { growing: true, ..path(0) }];
    let block = |size: usize| Block::new(vec![0; size]).deadline(100 * MS).channel(Channel(1));
    let [_, second] = [20_000, 1_000].map(|size| sender.send_with(0, block(size), &[]));
    sender.next(0);
    sender.leave(second, 1_000);
    sender.next(60);
    sender.wait_until(70);
    assert_eq!(sender.dropped(), []);
}

#[test]
fn what_comes_late_is_dropped_on_its_way_if_others_of_its_channel_would_wait_for_it() {
    for depended_on in [false, true] {
        let mut sender = Sender::scheduled("admission");
        let block = || Block::new(vec![0; 1_000]).deadline(100 * MS).channel(Channel(1));
        let [first, second] = [0, 10].map(|at| sender.send_with(at, block(), &[]));
        if depended_on {
            sender.send_with(11, Block::new(vec![0; 1_000]).deadline(100 * MS), &[first]);
        }
        sender.next(50);
        for (id, at) in [(first, 130), (second, 80)] {
            sender.leave(id, 1_000);
            sender.store.on_its_way(sender.at(50), BlockId(id), sender.at(at));
        }
        sender.next(51);
        // Whether the peer has it, after all, is for the peer to say.
        let dying = sender.store.get(BlockId(first)).unwrap().dying;
        assert_eq!(dying, (!depended_on).then_some(EXPIRED));
        assert_eq!(sender.store.get(BlockId(second)).unwrap().dying, None);
    }
}

#[test]
fn who_can_still_be_in_time_is_not_dropped_for_others_of_its_channel() {
    let mut sender = Sender::scheduled("admission");
    let block = |size: usize| Block::new(vec![0; size]).deadline(100 * MS).channel(Channel(1));
    let [first, second] = [20_000, 1_000].map(|size| sender.send_with(0, block(size), &[]));
    sender.next(0);
    sender.leave(second, 1_000);
    // 20 ms of work and 25 ms of way: that is known from 55 ms on, or a little sooner.
    sender.next(45);
    sender.wait_until(50);
    assert_eq!(sender.dropped(), []);
    sender.wait_until(57);
    assert_eq!(sender.dropped(), [(first, EXPIRED)]);
}

#[test]
fn a_deadline_that_no_path_seems_to_meet_is_met_as_if_the_way_were_shorter() {
    let taken = |delays: &[u32], said: u32| {
        let mut sender = Sender::new();
        let path = |(id, &delay): (usize, &u32)| PathView {
            min_one_way_delay: MS * delay,
            one_way_delay: MS * delay,
            ..path(id as u32)
        };
        sender.paths = delays.iter().enumerate().map(path).collect();
        sender.next(0);
        let id = sender.send_with(0, Block::new(vec![0; 1_000]).deadline(MS * said), &[]);
        let block = sender.store.get(BlockId(id)).unwrap();
        assert_eq!(block.announced().0, Some(MS * said), "as the peer is told");
        block.deadline.unwrap()
    };
    assert_eq!(taken(&[132], 125), MS * 132 + MS * 125 / 2);
    assert_eq!(taken(&[124], 125), MS * 124 + MS * 125 / 2, "1 ms is as good as none");
    assert_eq!(taken(&[115], 125), MS * 125);
    assert_eq!(taken(&[132, 40], 125), MS * 125, "one path is enough");
}

#[test]
fn who_is_told_of_a_deadline_is_told_what_the_application_said() {
    let mut sender = Sender::new();
    sender.paths = vec![PathView { min_one_way_delay: MS * 200, one_way_delay: MS * 200, ..path(0) }];
    sender.next(0);
    let block = |size: usize| Block::new(vec![0; size]).deadline(MS * 100);
    let [first, second] = [1_000, 2_000].map(|size| BlockId(sender.send_with(0, block(size), &[])));
    for (id, bytes) in [(first, 1_000), (second, 1_000)] {
        sender.leave(id.0, bytes);
    }
    let update = BlockUpdate { deadline: Some(Some(MS * 90)), ..BlockUpdate::default() };
    sender.store.update(second, update).unwrap();
    sender.store.on_completed(first, MS * 150, 0).unwrap();
    let notices: Vec<_> = std::iter::from_fn(|| sender.store.poll()).collect();
    assert!(notices.contains(&Notice::Updated { id: second, deadline: Some(MS * 90), priority: 128 }), "{notices:?}");
    // By what the block is sent by, 250 ms, it would have been in time.
    let is_late = |notice: &Notice| matches!(notice, Notice::Ended(id, Outcome::Delivered(delivery), _) if *id == first && !delivery.on_time());
    assert!(notices.iter().any(is_late), "{notices:?}");
}

/// Whoever goes next has something to send, whatever has become of it and of those around it meanwhile.
#[test]
fn who_goes_next_is_alive() {
    let mut state = 15_u64;
    let mut dice = move |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    for run in 0..400 {
        let mut sender = Sender::scheduled(["strict", "ads", "edf", "admission", "dtp-d"][run % 5]);
        let (mut at, mut all) = (0, Vec::new());
        for _ in 0..200 {
            let alive =
                |sender: &Sender, id: u64| sender.store.get(BlockId(id)).is_some_and(|block| block.dying.is_none());
            match dice(8) {
                0 | 1 => {
                    let needs: Vec<_> = all.last().copied().filter(|_| dice(4) > 0).into_iter().collect();
                    let block = Block::new(vec![0; 1 + dice(30_000) as usize]).deadline(MS * (40 + dice(80) as u32));
                    let block = if run % 2 == 0 { block.channel(Channel(1)) } else { block };
                    all.push(sender.send_with(at, block, &needs));
                }
                2 => {
                    let lost = all[all.len().saturating_sub(3)..].iter().copied().find(|&id| alive(&sender, id));
                    if let Some((id, sent)) = lost.and_then(|id| Some((id, sender.store.get(BlockId(id))?.sent()))) {
                        sender.lose(at, id, sent);
                    }
                }
                3 if dice(3) == 0 => at += dice(60),
                3 => at += dice(10),
                4 if dice(8) == 0 => sender.wait_until(at),
                _ => {
                    let now = sender.at(at);
                    let cx = SendContext { now, paths: &sender.paths, rate: 1e6, one_way_delay: 25 * MS };
                    let Some(id) = recovery::next_worthwhile(&mut sender.store, &cx) else { continue };
                    assert!(alive(&sender, id.0), "run {run}, {id:?}");
                    let block = sender.store.get(id).unwrap();
                    let (range, _) = block.next_range().expect("it has something to send");
                    let end = range.end.min(range.start + 1 + dice(60_000));
                    let with_info = range.start == 0;
                    sender.store.on_sent(id, range.start..end, with_info);
                    let piece = range.start..end;
                    sender.store.on_its_way(now, id, now + 25 * MS);
                    if dice(5) == 0 {
                        sender.store.on_lost(now, id, piece, false, PathId(0));
                    }
                    sender.look();
                }
            }
        }
    }
}

#[test]
fn what_a_bucket_holds_for_a_moment_is_no_room_for_redundancy() {
    let room = |momentary: f64| {
        let mut sender = Sender::new();
        sender.paths = vec![PathView { momentary, ..path(0) }];
        sender.send(0, 10_000, &[]);
        sender.next(0);
        sender.store.redundancy_room(sender.at(0))
    };
    let (lasting, most) = (room(0.9 * path(0).rate), room(0.0));
    assert!(lasting > 0 && lasting <= most / 10, "{lasting} of {most}");
}
