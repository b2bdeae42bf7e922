//! Paths that carry nothing until they have to, and senders that have little to send.

mod common;

use common::*;
use punctual_proto::{Block, PathEvent, multipath, schedule};
use punctual_sim::LinkSpec;

fn link(millis: u64) -> LinkSpec {
    LinkSpec::new(10.0, ms(millis)).queue(100_000)
}

/// 3 KB now and then, due in 150 ms. The path on which they went becomes longer than that; the other has never had anything to do, and its first train of
/// packets tells how fast its link serves them, but not that it carries more than they are.
#[test]
fn a_path_that_has_carried_little_is_not_taken_for_slow() {
    for every in [500, 1_000, 2_000] {
        let count = 30_000 / every;
        let source = Source::new(Block::new(vec![7; 3_000]).deadline(ms(150)), ms(every), count);
        let mut pair = Setup::new(vec![link(20), link(50)]).connect(source);
        let to = pair.world.path_links(pair.paths[0]).0.to_vec();
        let longer = move |world: &mut punctual_sim::World| {
            to.iter().for_each(|link| world.update_link(*link, |spec| spec.delay = ms(200).into()));
        };
        pair.world.at(pair.start + ms(10_100), longer);
        pair.world.run_for(ms(31_000));
        assert_eq!(pair.source().sent.len() as u64, count);
        let late = pair.late();
        // What left before it was known, and the next.
        assert!(late.len() <= 2, "every {every} ms, late: {late:?}");
    }
}

/// 407 bytes now and then, due in 67 ms, of two paths on one alone, which dies for 1.6 s. All that it is asked meanwhile is lost, which is no sign that it was given
/// too much: it is not taken for one of some hundred bytes a second when it is back.
#[test]
fn a_path_that_was_dead_is_what_it_was_before() {
    let source = Source::new(Block::new(vec![7; 407]).deadline(ms(67)), ms(791), 40);
    let mut pair = Setup::new(vec![link(90), link(9)]).connect(source);
    let path = pair.paths[1];
    pair.world.at(pair.start + ms(14_200), move |world| world.kill_path(path));
    pair.world.at(pair.start + ms(15_800), move |world| world.revive_path(path));
    pair.world.run_for(ms(33_000));
    let late = pair.late();
    assert!(late.iter().all(|(_, at, _)| (ms(13_500)..ms(16_500)).contains(at)), "late: {late:?}");
}

/// The first answers to what leaves on a long path come by a short one that is open beside it. Then they come by the long one, and are no silence (a scheduler that keeps to one path went over to the narrow
/// one for good).
#[test]
fn a_path_whose_first_answers_came_by_a_shorter_one_is_not_silent_when_they_do_no_more() {
    for delay in [2, 5, 10, 20] {
        let links = vec![LinkSpec::new(50.0, ms(50)), LinkSpec::new(2.0, ms(delay))];
        let mut setup = Setup::new(links);
        setup.config.session.scheduler = schedule::by_name("fcfs").expect("known");
        setup.config.session.path_scheduler = multipath::by_name("single").expect("known");
        let mut pair = setup.connect(Source::new(Block::new(vec![7; 80_000]).deadline(ms(100)), ms(100), 50));
        pair.world.run_for(ms(6_000));
        let events = &pair.source().path_events;
        assert!(
            !events.iter().any(|(_, id, event)| *id == 0 && matches!(event, PathEvent::Suspected { .. })),
            "{events:?}"
        );
        // The first is more than what may leave at once.
        assert!(pair.late().len() <= 1, "{delay} ms: {:?}", pair.late());
    }
}
