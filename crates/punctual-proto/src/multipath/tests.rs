//! What every path scheduler must do, and what the tests of each are written with.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::block::{BlockId, Redundancy};

/// An active path with room.
pub(crate) fn path(id: u32) -> PathView {
    PathView {
        id: PathId(id),
        health: PathHealth::Active,
        ready: true,
        ready_at: None,
        rate: 1e6,
        momentary: 0.0,
        growing: false,
        rtt: Duration::from_millis(50),
        min_rtt: Duration::from_millis(50),
        rtt_var: Duration::from_millis(5),
        one_way_delay: Duration::from_millis(25),
        min_one_way_delay: Duration::from_millis(25),
        backlog: Duration::ZERO,
        queue: Duration::ZERO,
        spread: Duration::ZERO,
        late_by: Duration::ZERO,
        answer: Duration::from_millis(55),
        loss: 0.0,
        loss_burst: 1.0,
        window: 100_000,
        in_flight: 0,
        cost: 0.0,
        role: crate::multipath::PathRole::Normal,
        budget_left: 1.0,
        bottleneck: None,
    }
}

/// A fragment of a kilobyte.
pub(super) fn fragment() -> FragmentView {
    let begin = Instant::now();
    let block = BlockView {
        id: BlockId(0),
        size: 1000,
        unsent: 1000,
        begin,
        deadline: None,
        priority: 0,
        followers: 0,
        beyond_means: false,
        again: false,
    };
    FragmentView {
        block,
        len: 1000,
        lost_on: None,
        ahead: 0,
        behind: 0,
        redundancy: Redundancy::Auto,
        wanted: PathSet::default(),
    }
}

/// The path a fragment takes.
pub(super) fn choose(scheduler: &mut dyn PathScheduler, paths: &[PathView]) -> Option<u32> {
    match scheduler.choose(&fragment(), paths, Instant::now()) {
        PathChoice::Send(paths) => Some(paths.iter().next()?.0),
        PathChoice::Wait | PathChoice::Reserve(_) => None,
    }
}

proptest! {
    #[test]
    fn every_scheduler_sends_on_ready_paths_only(views in prop::collection::vec((0u64..4, 0u8..3, any::<bool>()), 0..6)) {
        // As the session shows them: a path that is not active is ready only if none is.
        let none_active = views.iter().all(|&(_, health, _)| health != 0);
        let paths: Vec<_> = views.iter().zip(0..).map(|(&(rtt, health, ready), id)| PathView {
            rtt: Duration::from_millis(rtt),
            health: [PathHealth::Active, PathHealth::Suspect, PathHealth::Opening][usize::from(health)],
            ready: ready && (health == 0 || health == 1 && none_active),
            ..path(id)
        }).collect();
        for name in names() {
            let mut scheduler = by_name(name).unwrap()();
            for _ in 0..3 {
                match choose(&mut *scheduler, &paths) {
                    Some(id) => prop_assert!(paths[id as usize].ready, "{} chose {}", name, id),
                    None if name == "single" => {}
                    None => prop_assert!(paths.iter().all(|path| !path.ready), "{} waits", name),
                }
            }
        }
    }
}

#[test]
fn each_name_has_a_constructor() {
    let made = [
        expected(),
        cwr(),
        cwr_red(),
        dmtp(0.5).expect("in bounds"),
        earliest(),
        lowest_rtt(),
        nine_tails(),
        nine_tails_paper(),
        optimizer(0.999).expect("within bounds"),
        redundant(),
        round_robin(),
        single(),
    ];
    assert!(made.iter().map(|factory| factory().name()).eq(names()));
    assert!(optimizer(1.1).is_err());
}

#[test]
fn names_lead_to_their_schedulers() {
    for name in names() {
        assert_eq!(by_name(name).unwrap()().name(), name);
    }
    assert_eq!(default_factory()().name(), "expected");
    let error = by_name("fastest").err().unwrap().to_string();
    assert_eq!(
        error,
        "no path scheduler is called `fastest`; choose one of: expected, cwr, cwr-red, dmtp, earliest, lowest-rtt, nine-tails, nine-tails-paper, optimizer, redundant, round-robin, single"
    );
}
