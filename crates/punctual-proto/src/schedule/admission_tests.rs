//! What [`admission`](super) must do.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::{
    super::tests::{Step, block, context, drain, model, start, steps},
    *,
};
use crate::base::{PathId, PathView};

const MS: Duration = Duration::from_millis(1);

/// None, so that every decision follows from the forecast alone.
const EXACT: Margins =
    Margins { rate: 0.0, smoothing: f64::MIN_POSITIVE, entry: 0.0, stay: 0.0, stay_time: 0.0, ahead: 0.0 };

fn path() -> PathView {
    PathView {
        id: PathId(0),
        health: PathHealth::Active,
        ready: true,
        ready_at: None,
        rate: 1e6,
        momentary: 0.0,
        growing: false,
        rtt: 20 * MS,
        min_rtt: 20 * MS,
        rtt_var: Duration::ZERO,
        one_way_delay: 10 * MS,
        min_one_way_delay: 10 * MS,
        backlog: Duration::ZERO,
        queue: Duration::ZERO,
        loss: 0.0,
        spread: Duration::ZERO,
        late_by: Duration::ZERO,
        answer: Duration::from_millis(55),
        loss_burst: 1.0,
        window: 20_000,
        in_flight: 0,
        cost: 0.0,
        role: crate::multipath::PathRole::Normal,
        budget_left: 1.0,
        bottleneck: None,
    }
}

fn exact() -> Admission {
    Admission::new(EXACT)
}

/// At 1 MB/s and 10 ms one way, a block that takes `millis` alone, due (from the start) after `due` ms.
fn long(id: u64, priority: u8, millis: u64, due: u64) -> BlockView {
    let size = (millis as f64 * 1000.0 / WIRE_BYTES) as u64;
    BlockView { size, unsent: size, deadline: Some(due as u32 * MS), priority, ..block(id) }
}

fn admitted(admission: &Admission) -> Vec<u64> {
    let mut ids: Vec<_> = admission.blocks.values().filter(|b| b.hope.is_none()).map(|b| b.view.id.0).collect();
    ids.sort_unstable();
    ids
}

/// Inserts them and decides until nothing changes any more.
fn settle(admission: &mut Admission, views: &[BlockView], cx: &SendContext<'_>) -> Vec<u64> {
    views.iter().for_each(|view| admission.insert(view));
    for _ in 0..20 {
        admission.next(cx);
    }
    admitted(admission)
}

#[test]
fn all_are_admitted_if_all_can_make_it() {
    let mut admission = exact();
    let views = [long(0, 2, 30, 100), long(1, 0, 30, 50), long(2, 1, 29, 101)];
    assert_eq!(settle(&mut admission, &views, &context(0)), [0, 1, 2]);
    assert_eq!(drain(&mut admission), [1, 2, 0], "60 ms to spare for the last");
}

#[test]
fn the_important_go_first_as_long_as_there_is_time() {
    let mut admission = exact();
    let views = [long(0, 2, 30, 50), long(1, 0, 60, 150), long(2, 1, 5, 160)];
    assert_eq!(settle(&mut admission, &views, &context(0)), [0, 1, 2]);
    assert_eq!(admission.next(&context(8)), Some(BlockId(1)));
    assert_eq!(admission.next(&context(9)), Some(BlockId(0)), "less than a packet's time to spare");
    admission.remove(BlockId(0));
    assert_eq!(admission.next(&context(40)), Some(BlockId(1)));
}

#[test]
fn there_is_time_for_a_second_try() {
    let path = |millis| PathView { rtt: millis * MS, ..path() };
    let mut admission = exact();
    let paths = [path(10)];
    let cx = SendContext { paths: &paths, ..context(0) };
    // 90 ms are left, and should be 30 more than they take.
    let views = [long(0, 1, 30, 100), long(1, 1, 29, 100), long(2, 1, 10, 100)];
    assert_eq!(settle(&mut admission, &views, &cx), [1, 2]);
    assert_eq!(settle(&mut admission, &[long(3, 0, 30, 100)], &cx), [1, 2, 3], "the least important bear the risk");
    // Once in, a block does not mind a reserve that is used up.
    admission.next(&SendContext { paths: &paths, ..context(20) });
    assert_eq!(admitted(&admission), [1, 2, 3]);
    // Sent again, a block has no time for a third try.
    let mut admission = exact();
    let again = BlockView { unsent: 1000, ..long(0, 0, 30, 100) };
    assert_eq!(settle(&mut admission, &[again], &SendContext { paths: &[path(100)], ..context(85) }), [0]);
}

#[test]
fn who_takes_others_along_bears_no_risk_for_the_less_important() {
    // 90 ms are left, and should be 30 more than they take; without the reserve all fit.
    let paths = [PathView { rtt: 10 * MS, ..path() }];
    let cx = SendContext { paths: &paths, ..context(0) };
    for (followers, expected) in [(0, &[1, 2, 3][..]), (20, &[2, 3])] {
        let mut admission = exact();
        let views = [long(1, 1, 29, 100), long(2, 1, 10, 100)];
        settle(&mut admission, &views, &cx);
        let frame = BlockView { followers, ..long(3, 0, 30, 100) };
        assert_eq!(settle(&mut admission, &[frame], &cx), expected, "{followers}");
    }
}

#[test]
fn who_waits_for_a_path_still_reckons_with_the_slow_ones() {
    // In the 90 ms that are left the second path, 50 ms longer, carries 40 ms' worth: 130 in all.
    let near = PathView { rtt: Duration::ZERO, ..path() };
    let far = PathView { id: PathId(1), one_way_delay: 60 * MS, ..near };
    let paths = [near, far];
    let cx = SendContext { paths: &paths, rate: 2e6, ..context(0) };
    let mut admission = exact();
    let views = [long(0, 1, 60, 100), long(1, 1, 60, 100)];
    assert_eq!(settle(&mut admission, &views, &cx), [0, 1]);
    // The session has each wait for a better path, and lets it compete again.
    for view in &views {
        admission.remove(view.id);
        admission.insert(view);
    }
    assert_eq!(settle(&mut admission, &[long(2, 1, 30, 100)], &cx).len(), 2, "150 ms of work in 130");
}

#[test]
fn equally_urgent_ones_go_by_priority_and_then_by_age() {
    let mut admission = exact();
    settle(&mut admission, &[long(0, 2, 10, 100), long(1, 1, 10, 100), long(2, 1, 10, 100)], &context(0));
    assert_eq!(drain(&mut admission), [1, 2, 0]);
}

#[test]
fn the_less_important_gives_way() {
    let mut admission = exact();
    assert_eq!(settle(&mut admission, &[long(0, 1, 50, 100)], &context(0)), [0]);
    assert_eq!(settle(&mut admission, &[long(1, 0, 60, 120)], &context(0)), [0, 1]);
    assert_eq!(settle(&mut admission, &[long(2, 0, 20, 110)], &context(0)), [1, 2], "130 ms of work in 110");
    assert_eq!(admission.next(&context(0)), Some(BlockId(2)));
}

#[test]
fn the_more_important_never_gives_way() {
    let mut admission = exact();
    let views = [long(0, 0, 80, 100), long(1, 1, 20, 100), long(2, 1, 20, 50), long(3, 255, 20, 90)];
    assert_eq!(settle(&mut admission, &views, &context(0)), [0]);
}

#[test]
fn of_equals_the_longest_gives_way() {
    let mut admission = exact();
    let views = [long(0, 1, 40, 100), long(1, 1, 60, 120), long(2, 1, 30, 130)];
    assert_eq!(settle(&mut admission, &views, &context(0)), [0, 2]);
}

#[test]
fn what_many_depend_on_is_cheap() {
    let mut admission = exact();
    let reference = BlockView { followers: 9, ..long(1, 1, 60, 120) };
    assert_eq!(settle(&mut admission, &[long(0, 1, 40, 100), long(2, 1, 30, 130)], &context(0)), [0, 2]);
    assert_eq!(settle(&mut admission, &[reference], &context(0)), [1, 2], "6 ms for each block that needs it");
    // But it is no more important than they are.
    assert_eq!(settle(&mut admission, &[long(3, 0, 80, 110)], &context(0)), [2, 3]);
}

#[test]
fn what_is_beyond_means_goes_only_if_nothing_else_does() {
    let mut admission = exact();
    let beyond = BlockView { beyond_means: true, ..long(0, 1, 20, 100) };
    assert_eq!(
        settle(&mut admission, &[beyond, long(1, 1, 60, 200)], &context(0)),
        [1],
        "though there is time for both"
    );
    admission.remove(BlockId(1));
    assert_eq!(admission.next(&context(0)), Some(BlockId(0)));
}

#[test]
fn only_what_is_due_before_can_make_room() {
    let mut admission = exact();
    let views = [long(0, 1, 20, 50), long(1, 9, 80, 300), long(2, 0, 25, 50)];
    assert_eq!(settle(&mut admission, &views, &context(0)), [1, 2]);
}

#[test]
fn what_is_begun_is_finished() {
    let mut admission = exact();
    let begun = BlockView { unsent: 30_000, ..long(0, 1, 60, 100) };
    assert_eq!(settle(&mut admission, &[begun, long(1, 1, 70, 101)], &context(0)), [0]);
    assert_eq!(settle(&mut admission, &[long(2, 1, 40, 100)], &context(0)), [0, 2]);
    assert_eq!(settle(&mut admission, &[long(3, 1, 35, 100)], &context(0)), [0, 3]);
}

#[test]
fn nobody_goes_in_vain() {
    let mut admission = exact();
    // Even without the twenty of lower priority, 60 + 40 ms do not fit into 90.
    let mut views: Vec<_> = (0..20).map(|id| long(id, 2, 1, 60)).collect();
    views.push(long(20, 0, 60, 100));
    let before = settle(&mut admission, &views, &context(0));
    assert_eq!(settle(&mut admission, &[long(21, 1, 40, 100)], &context(0)), before);
    // 30 ms do, and only ten of the others have to go.
    assert_eq!(settle(&mut admission, &[long(22, 1, 20, 100)], &context(0)).len(), 2 + 10);
}

#[test]
fn room_is_filled_again() {
    let mut admission = exact();
    let views = [long(0, 0, 60, 100), long(1, 1, 60, 100), long(2, 1, 35, 100), long(3, 2, 10, 100)];
    assert_eq!(settle(&mut admission, &views, &context(0)), [0, 3]);
    admission.remove(BlockId(0));
    admission.next(&context(1));
    assert_eq!(admitted(&admission), [2, 3], "the shorter of the two");
    assert_eq!(settle(&mut admission, &[], &SendContext { rate: 2e6, ..context(2) }), [1, 2, 3]);
}

#[test]
fn the_rest_gets_what_is_left_over() {
    let mut admission = Admission::new(Margins { entry: 0.1, ..EXACT });
    admission.insert(&BlockView { deadline: None, priority: 1, ..block(0) });
    admission.insert(&BlockView { deadline: None, priority: 0, ..block(1) });
    admission.insert(&long(2, 0, 150, 100)); // late
    admission.insert(&long(3, 0, 1, 5)); // over, with 10 ms one way
    admission.insert(&long(4, 9, 89, 100)); // with no margin
    admission.insert(&long(5, 9, 10, 99)); // admitted
    assert_eq!(admission.next(&context(0)), Some(BlockId(5)));
    assert_eq!(admitted(&admission), [5]);
    assert_eq!(drain(&mut admission), [5, 4, 1, 0, 2, 3]);
}

/// Of a second at 1 MB/s, beside twice as much with a deadline: what a block without one gets, bytes.
fn left_in_overload(priority: u8) -> u64 {
    let mut admission = new();
    let mut bulk = BlockView { deadline: None, priority, size: 900_000, unsent: 900_000, ..block(0) };
    admission.insert(&bulk);
    let mut dated = BTreeMap::new();
    for millis in 0..1_000 {
        let now = context(millis).now;
        for id in [2 * millis + 1, 2 * millis + 2] {
            let view = BlockView { begin: now, priority: 5, ..block(id) };
            admission.insert(&view);
            dated.insert(id, view);
        }
        dated.retain(|_, view| {
            view.due().is_some_and(|due| due > now) || {
                admission.remove(view.id);
                false
            }
        });
        let id = admission.next(&context(millis)).unwrap();
        if id == bulk.id {
            bulk.unsent -= 1_000;
            admission.insert(&bulk);
        } else {
            dated.remove(&id.0);
            admission.remove(id);
        }
    }
    900_000 - bulk.unsent
}

/// A program's TCP connection stood still, in both directions, for as long as another's datagrams were a twentieth more than the link carries.
#[test]
fn what_has_no_deadline_is_not_starved_by_what_is_no_more_important() {
    let [more, alike, less] = [4, 5, 6].map(left_in_overload);
    assert!((45_000..65_000).contains(&more) && more == alike && less == 0, "{more} {alike} {less}");
}

#[test]
fn a_late_block_is_admitted_when_the_rate_has_risen() {
    let mut admission = new();
    admission.insert(&long(0, 0, 150, 100));
    admission.insert(&BlockView { deadline: None, ..block(1) });
    assert_eq!(admission.next(&context(0)), Some(BlockId(1)));
    assert_eq!(admission.next(&SendContext { rate: 2e6, ..context(10) }), Some(BlockId(0)));
    assert_eq!(admitted(&admission), [0]);
}

#[test]
fn noise_changes_nothing_and_a_loss_of_rate_does_at_once() {
    let mut admission = new();
    let views = [long(0, 0, 30, 100), long(1, 1, 29, 100), long(2, 1, 28, 100)];
    assert_eq!(settle(&mut admission, &views, &context(0)), [0, 1, 2]);
    for (millis, rate) in [(0, 0.97e6), (0, 1.02e6), (1, 0.99e6), (2, 1.03e6), (3, 0.99e6)] {
        admission.next(&SendContext { rate, ..context(millis) });
        assert_eq!(admitted(&admission), [0, 1, 2], "{rate}");
    }
    // The average is down by 4 % already: no need to wait and see.
    admission.next(&SendContext { rate: 0.8e6, ..context(5) });
    assert_eq!(admitted(&admission), [0, 2]);
    admission.next(&SendContext { rate: 0.82e6, ..context(6) });
    assert_eq!(admitted(&admission), [0, 2]);
}

#[test]
fn who_had_to_wait_for_a_path_keeps_the_place() {
    let mut admission = exact();
    assert_eq!(settle(&mut admission, &[long(0, 1, 50, 100), long(1, 1, 50, 101)], &context(0)), [0]);
    admission.remove(BlockId(0));
    assert_eq!(admission.next(&context(0)), Some(BlockId(1)));
    admission.insert(&long(0, 1, 50, 100));
    assert_eq!(admission.next(&context(1)), Some(BlockId(0)));
    admission.remove(BlockId(0));
    assert_eq!(admission.next(&context(2)), Some(BlockId(1)));
    admission.insert(&long(0, 1, 50, 100));
    assert_eq!(admission.next(&context(3)), Some(BlockId(1)), "time has gone on");
}

/// Whether those can all make it, in whole microseconds: sizes are in µs at this rate, due times half a µs off.
fn feasible(views: &[&BlockView]) -> bool {
    let mut views = views.to_vec();
    views.sort_by_key(|view| view.due());
    let mut out = start();
    views.iter().all(|view| {
        out += Duration::from_micros(view.unsent);
        view.due().is_some_and(|due| out <= due)
    })
}

proptest! {
    /// Moore and Hodgson's promise, priority by priority, against all subsets.
    #[test]
    fn no_set_is_better(
        properties in prop::collection::vec((1u64..60_000, 1u64..150_000, 0u8..3), 1..9),
        decided_before in 0usize..9,
        ended in 0usize..9,
    ) {
        let views: Vec<_> = properties.into_iter().zip(0..).map(|((size, due, priority), id)| {
            let deadline = Some(Duration::from_nanos(due * 1000 + 500));
            BlockView { size, unsent: size, deadline, priority, ..block(id) }
        }).collect();
        let mut admission = exact();
        let cx = SendContext { rate: 1e6 * WIRE_BYTES, one_way_delay: Duration::ZERO, ..context(0) };
        // Some come one by one, each with a decision of its own, and one of them ends.
        let mut views = views;
        for view in &views[..decided_before.min(views.len())] {
            admission.insert(view);
            admission.next(&cx);
        }
        if ended < views.len() {
            admission.remove(views.remove(ended).id);
        }
        let cx = SendContext { now: cx.now + Duration::from_nanos(1), ..cx };
        let chosen = settle(&mut admission, &views, &cx);
        let of = |priority| views.iter().filter(move |view| view.priority == priority);
        let mut kept: Vec<&BlockView> = Vec::new();
        for priority in 0..3 {
            let all: Vec<_> = of(priority).collect();
            let most = (0u32..1 << all.len()).filter(|set| {
                let some = all.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1).map(|(_, view)| *view);
                feasible(&kept.iter().copied().chain(some).collect::<Vec<_>>())
            }).map(u32::count_ones).max();
            let those: Vec<_> = all.into_iter().filter(|view| chosen.contains(&view.id.0)).collect();
            prop_assert_eq!(Some(those.len() as u32), most, "priority {} of {:?}: {:?}", priority, views, chosen);
            kept.extend(those);
        }
        prop_assert!(feasible(&kept));
    }

    #[test]
    fn the_admitted_can_make_it(steps in steps(&[], 1e4..1e7), noisy in any::<bool>(), rtt in 0u32..40) {
        let paths = [PathView { rtt: rtt * MS, ..path() }];
        let mut admission = if noisy { new() } else { exact() };
        let mut blocks = BTreeMap::new();
        for step in &steps {
            model(&mut admission, &mut blocks, step);
            prop_assert_eq!(admission.blocks.len(), blocks.len());
            prop_assert_eq!(admission.admitted.len() + admission.others.len(), blocks.len());
            let Step::Decide { .. } = step else { continue };
            let cx = SendContext { paths: &paths, ..step.context() };
            let fed = admission.fed;
            let chosen = admission.next(&cx);
            let ids = admitted(&admission);
            prop_assert_eq!(ids.len(), admission.admitted.len());
            let mut kept: Vec<_> = ids.into_iter().map(|id| blocks[&BlockId(id)]).collect();
            kept.sort_by_key(|view| (view.due(), view.priority, view.id));
            // The chosen one has no deadline and has waited long enough, or is in the set, not behind its equals, and does not make those before it late.
            let mut queue: Vec<_> = kept.iter().map(|view| admission.blocks[&view.id].job().unwrap()).collect();
            queue.sort_by_key(|job| job.turn);
            let patient = chosen.map(|id| blocks[&id]).filter(|view| view.deadline.is_none());
            if let Some(view) = patient {
                let waited = admission.time - fed;
                prop_assert!(queue.is_empty() || waited >= admission.round_trip.max(f64::from(FED) * PACKET / admission.rate));
                prop_assert!(queue.is_empty() || queue.iter().any(|job| job.turn.priority >= view.priority));
            } else if !queue.is_empty() {
                let at = queue.iter().position(|job| Some(job.turn.id) == chosen);
                prop_assert!(at.is_some());
                let (before, after) = queue.split_at(at.unwrap());
                let arrival = cx.now + cx.one_way_delay + Duration::from_secs_f64(PACKET / admission.rate);
                let mut bytes = 0;
                for job in before {
                    bytes += job.unsent;
                    prop_assert!(after[0].turn.priority < job.turn.priority);
                    let seconds = bytes as f64 * WIRE_BYTES / admission.rate;
                    prop_assert!(admission.seconds(arrival) + seconds <= job.turn.due + 1e-6);
                }
            }
            let mut bytes = 0;
            for view in kept {
                bytes += view.unsent;
                let rate = admission.rate * (1.0 + admission.margins.stay) / WIRE_BYTES;
                let arrival = cx.now + cx.one_way_delay + Duration::from_secs_f64(bytes as f64 / rate);
                let grace = Duration::from_secs_f64(admission.margins.stay_time + 1e-6);
                prop_assert!(view.due().is_some_and(|due| arrival <= due + grace));
            }
        }
    }
}
